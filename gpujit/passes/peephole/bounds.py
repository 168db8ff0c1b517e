"""Between which numbers the elements of a tensor lie, as far as the nodes that made it tell.

Enough to see that attention masks hold no infinity: constants, fills, choices, sums and products of bounded tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import kind_of
from gpujit.ir.graph import Node, Value
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.peephole.facts import NOT_CONSTANT, constant_of, dtype_of, full_name, number_of

Bounds = tuple[float, float]
# How far back through the graph an answer may lie.
DEPTH = 60


def bounds_of(value: Value, alias: AliasAnalysis, depth: int = DEPTH) -> Bounds | None:
    """The least and the greatest number a tensor or number may hold, both finite; None when they are not known.

    Tensors that anybody writes have none.
    """
    if value.is_constant:
        return None if alias.is_written(value) else _of_constant(value.constant())
    if depth == 0 or (isinstance(value.type, TensorType) and alias.is_written(value)):
        return None
    found = _of_node(value.node, lambda v: bounds_of(v, alias, depth - 1))
    if found is None:
        return _of_dtype(dtype_of(value))
    return _rounded(found, value)


def is_finite(value: Value, alias: AliasAnalysis) -> bool:
    """Whether a tensor is known to hold neither infinities nor NaN."""
    return bounds_of(value, alias) is not None


def _of_dtype(dtype: np.dtype | None) -> Bounds | None:
    """What any bool or whole number lies between."""
    if dtype is None or kind_of(dtype) > 1:
        return None
    return (0.0, 1.0) if kind_of(dtype) == 0 else (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))


def _of_constant(constant: Any) -> Bounds | None:
    if isinstance(constant, np.ndarray):
        if not constant.size or constant.dtype.kind not in "biufV":
            return None
        # ml_dtypes' min and max are slow, but such constants are rare.
        low, high = float(constant.min()), float(constant.max())
    elif isinstance(constant, (bool, int, float)):
        low = high = float(constant)
    else:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _rounded(bounds: Bounds, value: Value) -> Bounds | None:
    """The bounds in the tensor's dtype; None when rounding to it may overflow, or when it is no tensor of numbers."""
    if not isinstance(value.type, TensorType):
        return bounds
    dtype = dtype_of(value)
    if dtype is None or kind_of(dtype) == 3:
        return None
    if kind_of(dtype) < 2:
        return bounds if kind_of(dtype) == 1 or bounds == (0.0, 1.0) else (0.0, 1.0)
    with np.errstate(over="ignore"):
        low, high = (float(np.float64(b).astype(dtype)) for b in bounds)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


Ask = Callable[[Value], "Bounds | None"]


def _of_node(node: Node, ask: Ask) -> Bounds | None:
    name = full_name(node)
    rule = _RULES.get(name or "")
    if rule is not None:
        return rule(node, ask)
    op = table.by_full_name(name) if name else None
    # Views choose and repeat elements of their first argument.
    if op is not None and op.kind == "view" and len(node.outputs) == 1 and node.inputs:
        return ask(node.inputs[0])
    return None


def _of_finite(low: float, high: float) -> Callable[[Node, Ask], Bounds | None]:
    """Bounds of a function of finite numbers; NaN would stay NaN."""
    return lambda node, ask: None if ask(node.inputs[0]) is None else (low, high)


def _unknown(node: Node, ask: Ask) -> Bounds | None:
    return None


def _first(node: Node, ask: Ask) -> Bounds | None:
    return ask(node.inputs[0])


def _union(*of: int) -> Callable[[Node, Ask], Bounds | None]:
    def rule(node: Node, ask: Ask) -> Bounds | None:
        found = [ask(node.inputs[i]) for i in of]
        known = [b for b in found if b is not None]
        if len(known) < len(found):
            return None
        return min(low for low, _ in known), max(high for _, high in known)

    return rule


def _listed(node: Node, ask: Ask) -> Bounds | None:
    """Of ``cat`` and ``stack``."""
    maker = node.inputs[0].node
    if maker.kind != "prim::ListConstruct" or len(node.inputs[0].uses) != 1:
        return None
    return _union(*range(len(maker.inputs)))(maker, ask)


def _sum(sign: int, swap: bool = False) -> Callable[[Node, Ask], Bounds | None]:
    def rule(node: Node, ask: Ask) -> Bounds | None:
        alpha = number_of(node.inputs[2])
        a, b = ask(node.inputs[0]), ask(node.inputs[1])
        if alpha is NOT_CONSTANT or isinstance(alpha, complex) or a is None or b is None:
            return None
        if swap:
            a, b = b, a
        x, y = sorted(sign * alpha * end for end in b)
        return a[0] + x, a[1] + y

    return rule


def _product(node: Node, ask: Ask) -> Bounds | None:
    a, b = ask(node.inputs[0]), ask(node.inputs[1])
    if a is None or b is None:
        return None
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _negated(node: Node, ask: Ask) -> Bounds | None:
    a = ask(node.inputs[0])
    return None if a is None else (-a[1], -a[0])


def _filled(at: int) -> Callable[[Node, Ask], Bounds | None]:
    def rule(node: Node, ask: Ask) -> Bounds | None:
        return _of_constant(constant_of(node.inputs[at]))

    return rule


def _always(low: float, high: float) -> Callable[[Node, Ask], Bounds | None]:
    return lambda node, ask: (low, high)


_RULES: dict[str, Callable[[Node, Ask], Bounds | None]] = {
    "aten::add.Tensor": _sum(1), "aten::add.Scalar": _sum(1), "aten::sub.Tensor": _sum(-1),
    "aten::sub.Scalar": _sum(-1), "aten::rsub.Scalar": _sum(-1, swap=True), "aten::rsub.Tensor": _sum(-1, swap=True),
    "aten::mul.Tensor": _product, "aten::mul.Scalar": _product, "aten::neg": _negated,
    "aten::masked_fill.Scalar": _union(0, 2), "aten::masked_fill.Tensor": _union(0, 2),
    "aten::where.self": _union(1, 2), "aten::where.ScalarSelf": _union(1, 2), "aten::where.ScalarOther": _union(1, 2),
    "aten::where.Scalar": _union(1, 2), "aten::zeros": _always(0.0, 0.0), "aten::zeros_like": _always(0.0, 0.0),
    "aten::ones": _always(1.0, 1.0), "aten::ones_like": _always(1.0, 1.0), "aten::full": _filled(1),
    "aten::full_like": _filled(1), "aten::new_zeros": _always(0.0, 0.0), "aten::new_ones": _always(1.0, 1.0),
    "aten::new_full": _filled(2), "aten::embedding": _first, "aten::index.Tensor": _first, "aten::gather": _first,
    "aten::index_select": _first, "aten::clone": _first, "aten::repeat": _first,
    "aten::sigmoid": _of_finite(0.0, 1.0),
    "aten::tanh": _of_finite(-1.0, 1.0),
    "aten::type_as": _first, "aten::cat": _listed, "aten::stack": _listed,
    # These views read memory in another way than element by element.
    "aten::view.dtype": _unknown, "aten::as_strided": _unknown,
    "aten::triu": lambda node, ask: _with_zero(ask(node.inputs[0])),
    "aten::tril": lambda node, ask: _with_zero(ask(node.inputs[0])),
}  # fmt: skip


def _with_zero(bounds: Bounds | None) -> Bounds | None:
    return None if bounds is None else (min(bounds[0], 0.0), max(bounds[1], 0.0))
