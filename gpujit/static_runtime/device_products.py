"""Matrix products as steps on a GPU: ``linear``, ``mm``, ``bmm``, ``matmul``, ``mv`` and those that add to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.passes.nodes import known
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, View, copy, multiply, started
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.places import Place


class Product(NamedTuple):
    """``alpha * left @ right + beta * added``; ``turned``: the right side's rows and columns are exchanged."""

    left: Value
    right: Value
    added: Value | None = None
    turned: bool = False
    alpha: float = 1.0
    beta: float = 1.0


def device_product(node: Node, place_of: PlaceOf, result: Place, ending: Ending = NO_ENDING) -> MadeStep | None:
    """The step of a node that is a product of floating-point matrices; None for others.

    Of endings only relu is done: a library's gelu is an approximation.
    """
    reader = _READERS.get(node.kind)
    found = None if reader is None else reader(node)
    if found is None or result.dtype not in PRODUCT_TYPES or ending.operands or ending.activation not in (None, "relu"):
        return None
    operands = [found.left, found.right, *([] if found.added is None else [found.added])]
    begun = started(operands, place_of, result)
    if begun is None:
        return None
    build, views, out = begun
    left, right = views[:2]
    sides = _matrices(left, right.turned if found.turned else right, out)
    if sides is None or not _add(build, sides, views[2:], out, found, ending.activation or ""):
        return None
    return build.finish(), operands


def _add(
    build: StepBuilder,
    sides: tuple[View, View, View],
    added: Sequence[View],
    whole: View,
    found: Product,
    ending: str,
) -> bool:
    left, right, out = sides
    bias, beta = None, 0.0
    if added and found.beta and prod(out.shape):
        (x,) = added
        missing = len(whole.shape) - len(x.shape)
        if missing < 0 or any(a not in (1, b) for a, b in zip(x.shape, whole.shape[missing:], strict=True)):
            return False
        is_row = prod(x.shape) == whole.shape[-1] == x.shape[-1] if x.shape else False
        if found.beta == 1 and is_row and (x.steps[-1] == 1 or x.shape[-1] == 1) and out.shape[-1] == x.shape[-1]:
            bias = x.at
        else:
            copy(build, x, whole)
            beta = found.beta
    return multiply(build, left, right, out, found.alpha, beta, bias, ending)


def _matrices(left: View, right: View, out: View) -> tuple[View, View, View] | None:
    """The sides and the result with rows and columns, where tensors of one dim had none."""
    if not left.shape or not right.shape:
        return None
    shape, steps = list(out.shape), list(out.steps)
    if len(left.shape) == 1:
        left = left._replace(shape=(1, *left.shape), steps=(0, *left.steps))
        at = len(shape) - (len(right.shape) > 1)
        shape.insert(at, 1)
        steps.insert(at, 0)
    if len(right.shape) == 1:
        right = right._replace(shape=(*right.shape, 1), steps=(*right.steps, 0))
        shape.append(1)
        steps.append(0)
    batch = tuple(shape[:-2])
    if shape[-2:] != [left.shape[-2], right.shape[-1]] or right.shape[-2] != left.shape[-1]:
        return None
    for x in (left, right):
        lead = x.shape[:-2]
        if len(lead) > len(batch) or any(a not in (1, b) for a, b in zip(lead[::-1], batch[::-1], strict=False)):
            return None
    return left, right, out._replace(shape=tuple(shape), steps=tuple(steps))


# Operators ------------------------------------------------------------------------------------------------------------


def _linear(node: Node) -> Product | None:
    x, w, bias = node.inputs
    has_none = bias.is_constant and bias.constant() is None
    return Product(x, w, None if has_none else bias, turned=True)


def _plain(node: Node) -> Product | None:
    return Product(node.inputs[0], node.inputs[1]) if len(node.inputs) == 2 else None


def _added(node: Node) -> Product | None:
    if len(node.inputs) != 5:
        return None
    added, left, right, beta, alpha = node.inputs
    factors = known(alpha), known(beta)
    if any(type(f) not in (int, float) for f in factors):
        return None
    return Product(left, right, added if factors[1] else None, False, float(factors[0]), float(factors[1]))


_READERS = {
    "aten::linear": _linear,
    "aten::mm": _plain,
    "aten::bmm": _plain,
    "aten::matmul": _plain,
    "aten::mv": _plain,
    "aten::dot": _plain,
    "aten::addmm": _added,
    "aten::addmv": _added,
    "aten::baddbmm": _added,
}
