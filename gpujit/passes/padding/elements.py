"""Rules that entries of the operator table bring with them: those that work element by element, or on rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.types import TensorType
from gpujit.ops.rows import Rows
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.padding.relations import SAME, Call, Entry, Mixes, Prefix, Relation, along, is_same, rule, shape_of


@rule("__is__", "__isnot__", shapes=("self", "obj"))
def identity(call: Call) -> Relation:
    """Which objects are one does not depend on what is in them, but for who may return what is given."""
    for value in call.kept.inputs:
        op = entry_of(value.node)
        returns_given = op is not None and (op.may_alias or (op.kind == "view" and op.scalar is not None))
        if returns_given or value.node.kind in ("prim::ListUnpack", "prim::TupleUnpack", "prim::DictUnpack"):
            raise Mixes("whether it is one object with another may depend on the layout of inputs")
    return SAME


def elementwise(call: Call, aligned: Sequence[str] = ()) -> Relation:
    """Operands are broadcast; those that lie along another dim than their last must be the same."""
    rank = len(call.result()[0])
    found: set[int] = set()
    for argument, value, relation in zip(call.op.schema.arguments, call.kept.inputs, call.relations, strict=False):
        if isinstance(relation, Prefix):
            shape = shape_of(value)
            if shape is None:
                raise Mixes("the shapes of its operands are not known beforehand")
            if argument.name in aligned:
                raise Mixes(f"its argument {argument.name} depends on the padding")
            found.add(relation.dim + rank - len(shape))
        elif not is_same(relation):
            raise Mixes(f"its argument {argument.name} depends on the padding")
    if len(found) > 1:
        raise Mixes("its operands are padded along different dims")
    return Prefix(found.pop()) if found else SAME


def by_rows(call: Call, rows: Rows) -> Relation:
    """What lies along other dims than a row does, stays by itself."""
    first = next(a.name for a in call.op.schema.arguments if isinstance(a.type, TensorType))
    rank = len(call.shape(first))
    dim = call.dim(first)
    # Dims counted with groups are other ones; what lies in a group is behind the first.
    axes = range(1, rank) if rows.groups is not None else rows.axes(rank, _arguments(call))
    axes = range(rank) if axes is None else axes
    along(dim, "computes over", axes)
    if not axes:
        return elementwise(call, tuple(rows.aligned))
    others = [a.name for a in call.op.schema.arguments if a.name != first]
    call.need_same(*others)
    if dim is None:
        return SAME
    kept, _ = call.result()
    return Prefix(dim if len(kept) == rank else dim - sum(a < dim for a in axes))


def _arguments(call: Call) -> list[Any]:
    """The arguments by position, None for tensors."""
    found: list[Any] = []
    for argument in call.op.schema.arguments:
        is_tensor = isinstance(argument.type, TensorType)
        found.append(None if is_tensor or not _is_constant(call, argument.name) else call.value(argument.name))
    return found


def _is_constant(call: Call, name: str) -> bool:
    index = call.op.schema.index_of(name)
    return index >= len(call.kept.inputs) or call.kept.inputs[index].is_constant


def of_entry(call: Call) -> Entry | None:
    """The rule for an operator that its entry says enough of."""
    op = call.op
    if isinstance(op.scalar, Rows):
        rows = op.scalar
        return Entry(lambda c: by_rows(c, rows), rows=True)
    if op.kind == "pointwise":
        return Entry(elementwise, rows=True)
    return None
