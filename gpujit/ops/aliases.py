"""Other names of entries, and forms whose overload name is not the functional one's."""

from __future__ import annotations

from collections.abc import Collection

from gpujit.ops.registry import Op, add_op, by_full_name, by_name
from gpujit.support.errors import InternalError


def _copy(op: Op, text: str) -> None:
    add_op(
        Op(
            text,
            op.kind,
            op.body,
            type_rule=op.type_rule,
            onnx=op.onnx,
            result=op.result,
            operands=op.operands,
            refuse=op.refuse,
            half=op.half,
            effects=op.effects,
            derived_from=op.derived_from,
            form=op.form,
            into=op.into,
            scalar=op.scalar,
            may_alias=op.may_alias,
            hidden_writes=op.hidden_writes,
            random=op.random,
            active_if=op.active_if,
            never_raises=op.never_raises,
            asked_for_shape=op.asked_for_shape,
        )
    )


def alias(name: str, of: str, *, without: Collection[str] = ()) -> None:
    """Declare every overload of ``of`` and its in-place form under ``name`` too, but for those in ``without``."""
    entries = [*by_name(of), *by_name(f"{of}_")]
    if not entries:
        raise InternalError(f"{of} has to be declared before its other name {name}")
    for op in entries:
        if op.overload not in without:
            _copy(op, name + op.text[len(of) :])


def same_as(text: str, full_name: str) -> None:
    """Declare ``text``, which has the same parameters, as one more name of the entry ``full_name``."""
    op = by_full_name(full_name)
    if op is None:
        raise InternalError(f"{full_name} has to be declared before {text!r}")
    _copy(op, text)


def inplace_form(text: str, functional: str) -> None:
    """Declare an in-place form whose name cannot be derived: ``aten::pow_.Scalar`` of ``aten::pow.Tensor_Scalar``."""
    op = by_full_name(functional)
    if op is None:
        raise InternalError(f"{functional} has to be declared before its in-place form {text!r}")
    add_op(Op(text, op.kind, op.body, derived_from=op, form="inplace"))
