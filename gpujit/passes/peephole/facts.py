"""What local rules ask about a value: its constant, its dtype and shape, who writes or returns it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_CODE, kind_of
from gpujit.ir.graph import Node, Value
from gpujit.ops import table


class _NotConstant:
    def __repr__(self) -> str:
        return "NOT_CONSTANT"


# Equal to no constant.
NOT_CONSTANT: Any = _NotConstant()


def full_name(node: Node) -> str | None:
    """``aten::add.Tensor``; None for nodes without a schema."""
    return None if node.schema is None else node.schema.full_name


def constant_of(value: Value) -> Any:
    """The Python value of a constant or of a list of constants nobody else can change; NOT_CONSTANT for others."""
    node = value.node
    if node.kind == "prim::Constant":
        return node.attributes.get("value")
    if node.kind == "prim::ListConstruct" and all(v.is_constant for v in node.inputs):
        if len(value.uses) == 1 or not any(_may_change_list(use.node) for use in value.uses):
            return [v.constant() for v in node.inputs]
    return NOT_CONSTANT


def _may_change_list(node: Node) -> bool:
    """Whether a reader of a list may change it or hand it on to one that does."""
    return node.schema is None or any(a.alias is not None for a in node.schema.arguments if _is_list(a.type))


def _is_list(t: T.Type) -> bool:
    return isinstance(t, T.ListType) or (isinstance(t, T.OptionalType) and isinstance(t.element, T.ListType))


def is_int(value: Any, wanted: int) -> bool:
    """Whether a constant is the int ``wanted`` (and no float or bool)."""
    return type(value) is int and value == wanted


def number_of(value: Value) -> Any:
    """A constant number: int, float or complex, also one that a trace stored as a 0-dim tensor; else NOT_CONSTANT."""
    constant = constant_of(value)
    if isinstance(constant, np.ndarray) and constant.ndim == 0 and constant.dtype.kind in "iufc":
        return constant.item()
    return constant if type(constant) in (int, float, complex) else NOT_CONSTANT


def dtype_of(value: Value) -> np.dtype | None:
    """The dtype of a tensor, None when it is not known (or NumPy has none like it)."""
    t = value.type
    if value.is_constant and isinstance(value.constant(), np.ndarray):
        return value.constant().dtype  # type: ignore[no-any-return]
    return BY_CODE[t.dtype].dtype if isinstance(t, T.TensorType) and t.dtype is not None else None


def has_dtype(value: Value, *wanted: np.dtype | None) -> bool:
    """Whether a tensor is known to have one of these dtypes. (NumPy takes None for float64 when it compares dtypes.)"""
    dtype = dtype_of(value)
    return dtype is not None and any(w is not None and dtype == w for w in wanted)


def code_of(value: Value) -> int | None:
    """TorchScript's code of a tensor's dtype, None when it is not known."""
    return value.type.dtype if isinstance(value.type, T.TensorType) else None


def is_floating(value: Value) -> bool:
    """Whether a value is known to be a tensor of real floating numbers."""
    dtype = dtype_of(value)
    return dtype is not None and kind_of(dtype) == 2


def shape_of(value: Value) -> tuple[int | None, ...] | None:
    """The sizes of a tensor, None for each unknown one; None when the rank is unknown."""
    t = value.type
    if value.is_constant and isinstance(value.constant(), np.ndarray):
        return tuple(value.constant().shape)
    return t.shape if isinstance(t, T.TensorType) else None


def rank_of(value: Value) -> int | None:
    """The number of dimensions of a tensor, None when it is not known."""
    shape = shape_of(value)
    return None if shape is None else len(shape)


def known_shape(value: Value) -> tuple[int, ...] | None:
    """The sizes of a tensor when all are known."""
    shape = shape_of(value)
    return None if shape is None or None in shape else tuple(n for n in shape if n is not None)


def same_dtype(a: Value, b: Value) -> str | None:
    """None when two tensors are known to have one dtype; else what is known."""
    if code_of(a) is None or code_of(a) != code_of(b):
        return f"dtype goes from {a.type} to {b.type}"
    return None


def same_shape(a: Value, b: Value) -> str | None:
    """None when two tensors are known to have one shape; else what is known."""
    if known_shape(a) is None or known_shape(a) != known_shape(b):
        return f"shape goes from {a.type} to {b.type}"
    return None


# Views that refuse to copy, so that they fail for some layouts, and views that are defined by strides.
_BY_LAYOUT = frozenset((
    "aten::view", "aten::view.dtype", "aten::view_as", "aten::_unsafe_view", "aten::unflatten.int", "aten::as_strided",
    "aten::_reshape_alias", "aten::view_as_complex", "aten::swapaxes_", "aten::squeeze_", "aten::unsqueeze_",
))  # fmt: skip


def layout_matters(value: Value) -> str | None:
    """Why somebody may depend on how a tensor lies in memory: a ``view`` that would have to copy fails.

    Views, reductions and operators on elements hand a layout on; operators with kernels of their own do not.
    """
    seen = {value}
    stack = [value]
    while stack:
        for node, _ in stack.pop().uses:
            name = full_name(node)
            op = table.by_full_name(name or "")
            if name in _BY_LAYOUT or (op is not None and op.kind == "prim" and op.type_rule is None):
                return f"{node.kind} may depend on the memory layout"
            if op is None:
                if node.kind not in ("prim::Return", "prim::ListConstruct", "prim::TupleConstruct"):
                    return f"{node.kind} may depend on the memory layout"
                if node.kind == "prim::Return" and node.block is not None and node.block.owner is not None:
                    return "it leaves a block"
            if op is None or op.kind != "library":
                found = [v for v in node.outputs if v not in seen and _holds_tensors(v.type)]
                seen.update(found)
                stack += found
    return None


def _holds_tensors(t: T.Type) -> bool:
    return any(isinstance(part, T.TensorType) for part in T.walk(t))


def remove_unread(nodes: Iterable[Node]) -> None:
    """Destroy those of ``nodes`` (each after those it reads) whose results nobody reads."""
    for node in reversed(list(nodes)):
        if not any(v.uses for v in node.outputs):
            node.destroy()
