"""Arithmetic that changes nothing or can be done at less cost, with the same result to the last bit.

What looks like an identity often is none: ``x + 0`` turns -0.0 into 0.0 and a bool into an int, ``x * 0`` hides NaN,
``x ** 0.5`` and ``sqrt(x)`` differ at -inf. So rules on floats ask for the sign of zero and all rules for the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import HALF_TYPES, kind_of
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ops.numbers import wrap
from gpujit.passes.base import graph_pass
from gpujit.passes.peephole.facts import (
    NOT_CONSTANT,
    constant_of,
    dtype_of,
    full_name,
    is_floating,
    layout_matters,
    number_of,
    remove_unread,
    same_dtype,
)
from gpujit.passes.peephole.main import itself
from gpujit.passes.rewrite import Match, Rule, constant_before, insert_op, replace_node, rewrite_pass

# ------------------------------------------------------------------------------------------------------------ tensors


def _changes(m: Match, wanted: tuple[float, ...]) -> str | None:
    """Why an operand is not one of these numbers, or gives the result another dtype or shape."""
    number = number_of(m["a1"])
    if number is NOT_CONSTANT or number not in wanted:
        return f"it is not known to be one of {wanted}"
    return _not_tensor(m) or same_dtype(m["x"], m["y"]) or layout_matters(m["y"])


def _not_tensor(m: Match) -> str | None:
    return None if isinstance(m["x"].type, T.TensorType) else "it is no tensor"


def _adds(sign: float) -> Callable[[Match], str | None]:
    """Why ``x + sign * a1 * a2`` may differ from ``x``."""

    def unless(m: Match) -> str | None:
        alpha = number_of(m["a2"])
        if type(alpha) not in (int, float) or not math.isfinite(alpha):
            return "alpha is not known"
        fault = _changes(m, (0,))
        if fault is not None:
            return fault
        dtype = dtype_of(m["x"])
        if dtype is not None and kind_of(dtype) < 2:
            return None
        if not is_floating(m["x"]):
            return "both parts of a complex number have a sign of zero"
        # Only -0.0 leaves -0.0 as it is.
        added = sign * (float(number_of(m["a1"])) * alpha)
        return None if math.copysign(1.0, added) < 0 else "-0.0 would become 0.0"

    return unless


def _not_whole(m: Match) -> str | None:
    """Why a quotient rounded down may differ from ``x``, which is divided by one."""
    dtype = dtype_of(m["x"])
    return _changes(m, (1,)) or (None if dtype is not None and kind_of(dtype) == 1 else "x may be no whole number")


def _not_squared(m: Match) -> str | None:
    dtype = dtype_of(m["x"])
    if dtype is None or kind_of(dtype) not in (1, 2):
        return "x is not known to be a real number"
    return _changes(m, (2,))


def _one_divisor(m: Match) -> str | None:
    # A quotient that is rounded has three arguments.
    return _changes(m, (1,))


TENSORS = (
    itself("add-zero", "aten::add", 3, _adds(1.0)),
    itself("sub-zero", "aten::sub", 3, _adds(-1.0)),
    itself("mul-one", "aten::mul", 2, lambda m: _changes(m, (1,))),
    itself("div-one", "aten::div", 2, _one_divisor),
    itself("floor-divide-one", "aten::floor_divide", 2, _not_whole),
    itself("pow-one", "aten::pow", 2, lambda m: _changes(m, (1,))),
    Rule(
        "pow-two",
        before="graph(%x, %a1):\n  %y = aten::pow(%x, %a1)\n  return (%y)",
        after="graph(%x, %a1):\n  %y = aten::mul(%x, %x)\n  return (%y)",
        unless=_not_squared,
    ),
    Rule(
        "neg-neg",
        before="graph(%x):\n  %n = aten::neg(%x)\n  %y = aten::neg(%n)\n  return (%y)",
        after="graph(%x):\n  return (%x)",
        unless=lambda m: _not_tensor(m) or layout_matters(m["y"]),
    ),
    *(
        Rule(
            f"{name}-twice",
            before=f"graph(%x):\n  %n = aten::{name}(%x)\n  %y = aten::{name}(%n)\n  return (%y)",
            after=f"graph(%x):\n  %n = aten::{name}(%x)\n  return (%n)",
            unless=_not_tensor,
        )
        for name in ("relu", "abs", "floor", "ceil", "round", "trunc", "sign", "relu6")
    ),
)

# ------------------------------------------------------------------------------------------------------------ numbers


def _not(wanted: Any, kind: T.Type) -> Callable[[Match], str | None]:
    def unless(m: Match) -> str | None:
        constant = constant_of(m["a1"])
        fits = m["x"].type == kind and type(constant) is type(wanted) and constant == wanted
        return None if fits else f"it is no {kind} with {wanted}"

    return unless


NUMBERS = (
    *(itself(f"{n}-int-zero", f"aten::{n}", 2, _not(0, T.INT)) for n in ("add", "sub", "__lshift__", "__rshift__")),
    *(itself(f"{n}-int-one", f"aten::{n}", 2, _not(1, T.INT)) for n in ("mul", "floordiv")),
    *(itself(f"{n}-float-one", f"aten::{n}", 2, _not(1.0, T.FLOAT)) for n in ("mul", "div")),
    itself("and-true", "aten::__and__", 2, _not(True, T.BOOL)),
    itself("or-false", "aten::__or__", 2, _not(False, T.BOOL)),
)


arithmetic = rewrite_pass("arithmetic", (*TENSORS, *NUMBERS))


# ---------------------------------------------------------------------------------------- where a constant is computed


@graph_pass("arithmetic_constants")
def simplify_with_constants(graph: Graph) -> bool:
    """Join chains of whole numbers with constants, answer comparisons that always hold, divide by multiplying.

    ``(n + 2) + 3`` becomes ``n + 5``; ``x.size(0) >= 0`` is True; ``x / 8`` becomes ``x * 0.125``, which is exact as
    eighths are floats.
    """
    changed = False
    for node in list(graph.all_nodes()):
        rule = _BY_NAME.get(full_name(node))
        value = rule(node) if rule is not None else None
        if value is not None:
            inner = [v.node for v in node.inputs]
            replace_node(node, [value])
            remove_unread(n for n in inner if full_name(n) in _CHAINS)
            changed = True
    return changed


def _int_constant(value: Value) -> int | None:
    constant = constant_of(value)
    return constant if type(constant) is int else None


def _added(node: Node) -> tuple[Value, int] | None:
    """``x`` and ``c`` of ``x + c``, ``c + x`` or ``x - c``."""
    name = full_name(node)
    if name not in ("aten::add.int", "aten::sub.int"):
        return None
    a, b = node.inputs
    n = _int_constant(b)
    if n is not None:
        return a, n if name == "aten::add.int" else -n
    n = _int_constant(a)
    return (b, n) if n is not None and name == "aten::add.int" else None


def _join_sums(node: Node) -> Value | None:
    outer = _added(node)
    inner = None if outer is None else _added(outer[0].node)
    if outer is None or inner is None or inner[0].is_constant:
        return None
    total = wrap(outer[1] + inner[1])
    return insert_op(node, "aten::add.int", (inner[0], constant_before(node, total, T.INT)), node)


def _multiplied(node: Node) -> tuple[Value, int] | None:
    if full_name(node) != "aten::mul.int":
        return None
    a, b = node.inputs
    n = _int_constant(b)
    if n is not None:
        return a, n
    n = _int_constant(a)
    return (b, n) if n is not None else None


def _join_products(node: Node) -> Value | None:
    outer = _multiplied(node)
    inner = None if outer is None else _multiplied(outer[0].node)
    if outer is None or inner is None or inner[0].is_constant:
        return None
    product = wrap(outer[1] * inner[1])
    return insert_op(node, "aten::mul.int", (inner[0], constant_before(node, product, T.INT)), node)


_CHAINS = frozenset(("aten::add.int", "aten::sub.int", "aten::mul.int"))
# Never less than zero.
_COUNTS = frozenset(("aten::size.int", "aten::dim", "aten::numel", "aten::len.t", "aten::len.Tensor"))
_HOLDS_FOR_ITSELF = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


def _compared(comparison: str) -> Callable[[Node], Value | None]:
    def rule(node: Node) -> Value | None:
        a, b = node.inputs
        if a is b:
            return constant_before(node, _HOLDS_FOR_ITSELF[comparison], T.BOOL)
        n = _int_constant(b)
        if n is None or full_name(a.node) not in _COUNTS:
            return None
        # A count is at least 0.
        if comparison in ("ge", "ne", "gt") and (n < 0 or (n == 0 and comparison == "ge")):
            return constant_before(node, True, T.BOOL)
        if comparison in ("lt", "eq", "le") and (n < 0 or (n == 0 and comparison == "lt")):
            return constant_before(node, False, T.BOOL)
        return None

    return rule


def _divided(node: Node) -> Value | None:
    """``x * (1 / c)`` for ``x / c``, where ``c`` is a power of two, so that both are rounded alike."""
    x, y = node.inputs[0], node.output
    number, dtype = number_of(node.inputs[1]), dtype_of(x)
    if type(number) not in (int, float) or not number or not math.isfinite(number) or dtype is None:
        return None
    if not is_floating(x) or same_dtype(x, y) is not None or number == 1:
        return None
    fraction, exponent = math.frexp(float(number))
    if abs(fraction) != 0.5 or float(number) != number:
        return None
    # Half types are divided in float32.
    limits = np.finfo(np.float32 if dtype in HALF_TYPES else dtype)
    if not limits.minexp < exponent - 1 < -limits.minexp:
        return None
    return insert_op(node, "aten::mul.Scalar", (x, constant_before(node, 1.0 / float(number), T.FLOAT)), node)


_BY_NAME: dict[str | None, Callable[[Node], Value | None]] = {
    "aten::add.int": _join_sums,
    "aten::sub.int": _join_sums,
    "aten::mul.int": _join_products,
    "aten::div.Tensor": _divided,
    "aten::div.Scalar": _divided,
    **{f"aten::{name}.int": _compared(name) for name in _HOLDS_FOR_ITSELF},
}
