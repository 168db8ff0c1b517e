"""Matrix products as native steps: ``linear``, ``mm``, ``bmm``, ``addmm`` and ``matmul`` through the gemm template.

Constant weights are packed once, whatever the number of plans that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import gemm
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.kernels.templates.gemm_rows import kind_of
from gpujit.kernels.templates.gemm_weights import Packed, pack_as
from gpujit.kernels.templates.packs import kept
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.native import Made
from gpujit.static_runtime.places import Place, Strides
from gpujit.static_runtime.starts import Start, cast_start, is_half
from gpujit.support.errors import ArgumentError, InternalError

# A matrix that is no constant is packed on the way. For few rows that is as much work as the product: above so many
# numbers it is left to the library.
FEW_ROWS, LARGE = 4, 4096


class Operand(NamedTuple):
    """A matrix, or several of them: the tensor, with shape and strides in elements as the product sees them."""

    value: Value
    shape: tuple[int, ...]
    steps: Strides
    dtype: str = "float32"

    @property
    def turned(self) -> Operand:
        """Rows and columns exchanged."""
        shape, steps = (*self.shape[:-2], *self.shape[:-3:-1]), (*self.steps[:-2], *self.steps[:-3:-1])
        return self._replace(shape=shape, steps=steps)


class Product(NamedTuple):
    """``left @ right + bias``."""

    left: Operand
    right: Operand
    bias: Value | None = None


def native_product(
    node: Node,
    place_of: Callable[[Value], Place | None],
    result: Place,
    ending: Ending = NO_ENDING,
    start: Start | None = None,
    kept_as: str = "float32",
    choose: Choose = quickest,
) -> Made | None:
    """The native step of a node that is a product of matrices of float32 or half types; None for others.

    Half types are multiplied as float32, and the result is rounded once. ``kept_as``: the dtype of constant matrices in
    memory; those that cannot be kept so stay float32. ``choose``: which of the tiles that round alike.

    Raises ArgumentError, InternalError with the reason why the step cannot make what ``start`` says.
    """
    reader = _READERS.get(node.kind)
    if reader is None or not _is_float(result):
        return None
    found = reader(node, place_of)
    if found is None or not found.left.dtype == found.right.dtype == result.dtype.name:
        return None
    bias = None
    if found.bias is not None:
        if not found.bias.is_constant:
            return None
        bias = found.bias.constant()
        if bias.dtype != result.dtype or bias.shape != result.shape[-1:]:
            return None
    own = None
    left = place_of(found.left.value)
    try:
        if start is None and left is not None and is_half(left):
            own, steps = cast_start(found.left.value, left)
            found = found._replace(left=found.left._replace(steps=steps))
        elif start is not None:
            if start.is_read(found.right.value, place_of):
                raise ArgumentError("it is the right one of two matrices, whose columns are packed")
            if not start.is_read(found.left.value, place_of):
                raise ArgumentError("it is not what is multiplied")
        return _made(found, bias, result, ending, start or own, kept_as, choose)
    except (ArgumentError, InternalError):
        if start is not None:
            raise
        return None


def _made(
    product: Product,
    bias: np.ndarray | None,
    result: Place,
    ending: Ending,
    start: Start | None,
    kept_as: str,
    choose: Choose,
) -> Made | None:
    left, right = product.left, product.right
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if right.shape[-2] != k or result.shape[-1] != n:
        return None
    batch = left.shape[:-2]
    if len(right.shape) == 2:
        # One matrix for all: the rows of the left ones are rows of one, when they lie evenly.
        while batch and (left.steps[-3] == left.steps[-2] * m or batch[-1] == 1):
            m *= batch[-1]
            shape, steps = (*batch[:-1], m, k), (*left.steps[:-3], left.steps[-2], left.steps[-1])
            left = left._replace(shape=shape, steps=steps)
            batch = batch[:-1]
        right = right._replace(shape=(*batch, k, n), steps=(*[0] * len(batch), *right.steps))
    elif right.shape[:-2] != batch:
        return None
    if len(batch) > 2 or prod(result.shape) != prod(batch) * m * n or not prod(result.shape) or not k:
        return None
    is_pair = len(batch) == 2
    rows = (batch[1] * m * n, m * n, n, 1) if is_pair else (m * n, 0, n, 1)
    described = gemm.Gemm(
        m, n, k, _strides(left), rows, r=rows, batch=prod(batch), inner=batch[1] if is_pair else 1,
        epilogue=ending.epilogue(bias is not None, result.dtype),
    )  # fmt: skip
    source, read = (None, [left.value]) if start is None else (start.source, [*start.operands])
    if right.value.is_constant:
        if any(right.steps[:-2]):
            return None
        weights = right.value.constant()
        matrix = np.lib.stride_tricks.as_strided(weights, (k, n), tuple(s * weights.itemsize for s in right.steps[-2:]))
        if kept_as == "int8" and not np.isfinite(matrix).all():
            kept_as = "float32"
        described = described._replace(right=kept_as)
        spec = gemm.plan(described, "" if source is None else kind_of(described), choose)
        packed = packed_matrix(weights, matrix, spec.tile, kept_as)
        return ending.step(gemm.bind(described, matrix, bias, packed, source, spec), read)
    if m < FEW_ROWS and k * n > LARGE:
        return None
    pair = described._replace(b=_strides(right), right=right.dtype)
    spec = gemm.plan(pair, "" if source is None else kind_of(pair), choose)
    return ending.step(gemm.bind(pair, None, bias, source=source, spec=spec), [*read, right.value])


def _strides(x: Operand) -> tuple[int, int, int, int]:
    """Outer, inner, and those of a matrix."""
    outer, inner = ((0, 0, *x.steps[:-2])[-2:]) if len(x.steps) != 3 else (x.steps[0], 0)
    return outer, inner, x.steps[-2], x.steps[-1]


# Packed weights -------------------------------------------------------------------------------------------------------


def packed_matrix(weights: np.ndarray, matrix: np.ndarray, tile: int, dtype: str = "float32") -> Packed:
    """The weights as the template reads them, kept as long as the weights are."""
    return kept(weights, ("matrix", tile, dtype, matrix.shape, matrix.strides), lambda: pack_as(matrix, tile, dtype))


# Operators ------------------------------------------------------------------------------------------------------------


def _operand(value: Value, place_of: Callable[[Value], Place | None], least: int = 2) -> Operand | None:
    place = place_of(value)
    if place is None or not _is_float(place) or place.steps is None or len(place.shape) < least:
        return None
    return Operand(value, place.shape, place.steps, place.dtype.name)


def _is_float(place: Place) -> bool:
    return place.dtype == FLOAT32 or is_half(place)


def _linear(node: Node, place_of: Callable[[Value], Place | None]) -> Product | None:
    x, w, bias = node.inputs
    left, right = _operand(x, place_of), _operand(w, place_of)
    if left is None or right is None or len(right.shape) != 2:
        return None
    no_bias = bias.is_constant and bias.constant() is None
    return Product(left, right.turned, None if no_bias else bias)


def _plain(node: Node, place_of: Callable[[Value], Place | None]) -> Product | None:
    left, right = _operand(node.inputs[0], place_of), _operand(node.inputs[1], place_of)
    return None if left is None or right is None else Product(left, right)


def _addmm(node: Node, place_of: Callable[[Value], Place | None]) -> Product | None:
    bias, x, w, beta, alpha = node.inputs
    if not all(v.is_constant and v.constant() == 1 for v in (beta, alpha)):
        return None
    left, right = _operand(x, place_of), _operand(w, place_of)
    return None if left is None or right is None else Product(left, right, bias)


_READERS = {
    "aten::linear": _linear,
    "aten::mm": _plain,
    "aten::bmm": _plain,
    "aten::matmul": _plain,
    "aten::addmm": _addmm,
}
