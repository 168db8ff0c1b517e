"""Type rules of operators that make, read or return quantised tensors, whose dtype codes NumPy has no dtypes for."""

from __future__ import annotations

from typing import Any

from gpujit.ir.types import TensorType
from gpujit.ops.rules.common import (
    FLOAT32_CODE,
    ListOf,
    Shape,
    Size,
    Unknown,
    broadcast,
    cast,
    code,
    like,
    same_size,
    shape_of,
    sizes_of,
    texts,
)
from gpujit.ops.rules.pieces import cat_type
from gpujit.ops.rules.products import product_shape
from gpujit.ops.rules.windows import convolved, convolved_transposed
from gpujit.ops.symbolic import NotKnown

# What holds the integers of qint8, quint8 and qint32: int8, uint8, int32.
_STORED = {12: 1, 13: 0, 14: 3}


def quantised_type(x: TensorType, *, dtype: Any) -> TensorType:
    """The first argument in a quantised dtype."""
    return cast(x, dtype)


def quantised_list_type(tensors: Any, *, dtype: Any) -> Any:
    """Every tensor in a quantised dtype."""
    if isinstance(tensors, Unknown):
        raise NotKnown
    if isinstance(tensors, ListOf):
        return ListOf(cast(tensors.element, dtype))
    return [cast(t, dtype) for t in tensors]


def dequantised_type(x: TensorType) -> TensorType:
    """The numbers a quantised tensor stands for, float32."""
    return TensorType(FLOAT32_CODE, x.shape)


def dequantised_list_type(tensors: Any) -> Any:
    """The numbers that quantised tensors stand for."""
    return quantised_list_type(tensors, dtype=FLOAT32_CODE)


def integers_type(x: TensorType) -> TensorType:
    """The integers of a quantised tensor."""
    return TensorType(None if x.dtype is None else _STORED.get(x.dtype), x.shape)


def from_integers_type(x: TensorType) -> TensorType:
    """The quantised tensor of some integers."""
    codes = {stored: quantised for quantised, stored in _STORED.items()}
    return TensorType(None if x.dtype is None else codes.get(x.dtype), x.shape)


def empty_quantised_type(size: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes in a quantised dtype."""
    return TensorType(code(dtype, None), sizes_of(size, op))


def quantised_pair_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """Two tensors broadcast, in the first one's dtype."""
    return like(a, broadcast([shape_of(a), shape_of(b)], op))


def quantised_matmul_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """The product, in the first one's dtype."""
    return like(a, product_shape(shape_of(a), shape_of(b), op))


def quantised_cat_type(tensors: Any, dim: Any, *, op: str) -> TensorType:
    """Tensors joined along a dim, in the first one's dtype."""
    if isinstance(tensors, (Unknown, ListOf)):
        raise NotKnown
    joined = cat_type([TensorType(FLOAT32_CODE, t.shape) for t in tensors], dim, op=op)
    return like(tensors[0], joined.shape)


def _weight_of(packed: Any) -> Any:
    """The weight of packed parameters. Raises NotKnown when they are not known."""
    weight = None if isinstance(packed, Unknown) else getattr(packed, "weight", None)
    if weight is None:
        raise NotKnown
    return weight


def packed_linear_type(x: TensorType, packed: Any, *, op: str) -> TensorType:
    """Rows times packed weights: the last size becomes the number of outputs, which they alone know."""
    shape = shape_of(x)
    outputs: Size = None
    try:
        outputs, inputs = _weight_of(packed).shape
    except NotKnown:
        pass
    else:
        same_size(
            shape[-1] if shape else None, inputs, f"{op}: input {texts(shape)}, the weight needs rows of {inputs}"
        )
    return like(x, (*shape[:-1], outputs))


def packed_conv_type(x: TensorType, packed: Any, *, op: str) -> TensorType:
    """Convolution with packed weights, plain or transposed."""
    shape = shape_of(x)
    try:
        weight: Shape = _weight_of(packed).shape
    except NotKnown:
        return like(x, (shape[0], *(None,) * (len(shape) - 1)))
    rank = len(shape) - 2
    # One spatial dim is packed as two.
    kernel = TensorType(x.dtype, (*weight[:2], *weight[-rank:]))
    stride, padding, dilation = (v[-rank:] for v in (packed.stride, packed.padding, packed.dilation))
    if packed.transpose:
        more = packed.output_padding[-rank:]
        found = convolved_transposed(x, kernel, stride, padding, more, packed.groups, dilation, rank, op)
    else:
        found = convolved(x, kernel, None, stride, padding, dilation, packed.groups, rank, op)
    return like(x, found.shape)
