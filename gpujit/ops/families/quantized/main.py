"""Quantisation: to and from quantised tensors, fake quantisation, and what the rest of the package needs to know of it.

``QTENSOR_RULES`` says what plain operators do with quantised tensors; ``unpack_state`` rebuilds packed parameters from
what an archive stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32
from gpujit.ir.values import Array, QTensor
from gpujit.ops.families.quantized.embedding import EmbeddingPackedParams
from gpujit.ops.families.quantized.layers import ConvPackedParams, LinearPackedParams
from gpujit.ops.families.quantized.plain_operators import RULES as QTENSOR_RULES
from gpujit.ops.families.quantized.qtensor import (
    QINT8,
    QINT32,
    QUINT8,
    STORED,
    check_quantised,
    choose_parameters,
    dequantize,
    limits,
    quantize,
    round_clip,
)
from gpujit.ops.families.quantized.rnn import CellParams
from gpujit.ops.families.quantized.state import unpack_state
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.common import masked_type, same_type
from gpujit.ops.rules.quantised import (
    dequantised_list_type,
    dequantised_type,
    empty_quantised_type,
    from_integers_type,
    integers_type,
    quantised_list_type,
    quantised_type,
)
from gpujit.support.errors import DTypeError, OpError, ShapeError

__all__ = [
    "QTENSOR_RULES", "CellParams", "ConvPackedParams", "EmbeddingPackedParams", "LinearPackedParams", "unpack_state",
]  # fmt: skip

# Codes of PyTorch's quantisation schemes.
_PER_TENSOR_AFFINE, _PER_CHANNEL_AFFINE, _PER_CHANNEL_FLOAT = 1, 3, 5


# ------------------------------------------------------------------------------------------------- to quantised tensors


def _check_float(op: str, x: Any) -> None:
    if getattr(x, "dtype", None) != FLOAT32:
        raise DTypeError(f"{op}: quantize only works on float32 tensors, found {getattr(x, 'dtype', type(x).__name__)}")


def _check_zero_point(op: str, zero_point: int, code: int) -> None:
    low, high = limits(op, code)
    if not low <= zero_point <= high:
        raise OpError(f"{op}: zero_point {zero_point} is outside the dtype's range {low} to {high}")


def _quantize(xp: Any, op: str, x: Array, scale: float, zero_point: int, code: int) -> QTensor:
    _check_float(op, x)
    _check_zero_point(op, zero_point, code)
    return quantize(xp, x, scale, zero_point, code)


@library(
    "aten::quantize_per_tensor(Tensor self, float scale, int zero_point, ScalarType dtype) -> Tensor",
    half="native",
    type_rule=quantised_type,
)
def quantize_per_tensor(xp: Any, x: Array, scale: float, zero_point: int, dtype: int) -> QTensor:
    """``round(x / scale) + zero_point``, clipped to the dtype's range."""
    return _quantize(xp, "aten::quantize_per_tensor", x, scale, zero_point, dtype)


@library(
    "aten::quantize_per_tensor.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, ScalarType dtype)"
    " -> Tensor",
    half="native",
    type_rule=quantised_type,
)
def quantize_per_tensor_by_tensors(xp: Any, x: Array, scale: Array, zero_point: Array, dtype: int) -> QTensor:
    """The same, for a scale and a zero point held in tensors of one element."""
    return _quantize(xp, "aten::quantize_per_tensor", x, float(scale.item()), int(zero_point.item()), dtype)


@library(
    "aten::quantize_per_tensor.tensors(Tensor[] tensors, Tensor scales, Tensor zero_points, ScalarType dtype)"
    " -> Tensor[]",
    half="native",
    type_rule=quantised_list_type,
)
def quantize_tensors(xp: Any, tensors: Sequence[Array], scales: Array, zero_points: Array, dtype: int) -> list[QTensor]:
    """Several tensors, each with a scale and a zero point of its own."""
    op = "aten::quantize_per_tensor"
    if scales.shape != (len(tensors),) or zero_points.shape != scales.shape:
        raise ShapeError(f"{op}: {len(tensors)} tensors need as many scales and zero points, found {scales.shape}")
    pairs = zip(tensors, scales.tolist(), zero_points.tolist(), strict=True)
    return [_quantize(xp, op, x, s, int(z), dtype) for x, s, z in pairs]


@library(
    "aten::quantize_per_tensor_dynamic(Tensor self, ScalarType dtype, bool reduce_range) -> Tensor",
    half="native",
    type_rule=quantised_type,
)
def quantize_per_tensor_dynamic(xp: Any, x: Array, dtype: int, reduce_range: bool) -> QTensor:
    """The tensor quantised by its own range."""
    op = "aten::quantize_per_tensor_dynamic"
    _check_float(op, x)
    if dtype not in (QINT8, QUINT8):
        raise DTypeError(f"{op}: dtype must be qint8 (12) or quint8 (13), found {dtype}")
    bits = 7 if reduce_range else 8
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype == QINT8 else (0, (1 << bits) - 1)
    if not x.size:
        return quantize(xp, x, 0.1, 0, dtype)
    scale, zero = choose_parameters(float(x.min()), float(x.max()), low, high, False)
    return quantize(xp, x, scale, zero, dtype)


@library(
    "aten::quantize_per_channel(Tensor self, Tensor scales, Tensor zero_points, int axis, ScalarType dtype) -> Tensor",
    half="native",
    type_rule=quantised_type,
)
def quantize_per_channel(xp: Any, x: Array, scales: Array, zero_points: Array, axis: int, dtype: int) -> QTensor:
    """The tensor with one scale and zero point for each index along ``axis``.

    Zero points of a floating dtype are kept as they are and added before rounding.
    """
    op = "aten::quantize_per_channel"
    _check_float(op, x)
    low, high = limits(op, dtype)
    if not 0 <= axis < x.ndim or scales.shape != (x.shape[axis],) or zero_points.shape != scales.shape:
        raise ShapeError(
            f"{op}: scales {scales.shape} and zero_points {zero_points.shape} do not fit dim {axis} of {x.shape}"
        )
    shape = [1] * x.ndim
    shape[axis] = -1
    y = x * (np.float32(1) / scales.astype(FLOAT32)).reshape(shape)
    if zero_points.dtype.kind == "f":
        y += zero_points.astype(FLOAT32).reshape(shape)
        return QTensor(round_clip(xp, y, 0, low, high, STORED[dtype]), dtype, scales.astype(FLOAT32), zero_points, axis)
    if dtype == QINT32:
        y = y.astype("float64")
    values = round_clip(xp, y, zero_points.reshape(shape), low, high, STORED[dtype])
    return QTensor(values, dtype, scales.astype("float64"), zero_points.astype("int64"), axis)


@library(
    "aten::_make_per_tensor_quantized_tensor(Tensor self, float scale, int zero_point) -> Tensor",
    half="native",
    type_rule=from_integers_type,
)
def make_per_tensor(xp: Any, x: Array, scale: float, zero_point: int) -> QTensor:
    """Integers taken as they are for a quantised tensor."""
    return QTensor(x.copy(), _code_of("aten::_make_per_tensor_quantized_tensor", x), scale, zero_point)


@library(
    "aten::_make_per_channel_quantized_tensor(Tensor self, Tensor scale, Tensor zero_point, int axis) -> Tensor",
    half="native",
    type_rule=from_integers_type,
)
def make_per_channel(xp: Any, x: Array, scale: Array, zero_point: Array, axis: int) -> QTensor:
    """Integers taken as they are for a tensor quantised per channel."""
    return QTensor(x.copy(), _code_of("aten::_make_per_channel_quantized_tensor", x), scale, zero_point, axis)


def _code_of(op: str, x: Array) -> int:
    for code, dtype in STORED.items():
        if x.dtype == dtype:
            return code
    raise DTypeError(f"{op}: self must be int8, uint8 or int32, it is {x.dtype}")


@library(
    "aten::_empty_affine_quantized(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, float scale=1., int zero_point=0, MemoryFormat? memory_format=0) -> Tensor",
    half="native",
    type_rule=empty_quantised_type,
)
def empty_affine_quantized(
    xp: Any,
    size: Sequence[int],
    dtype: int | None,
    layout: Any,
    device: Any,
    pin_memory: Any,
    scale: float,
    zero_point: int,
    memory_format: Any,
) -> QTensor:
    """A quantised tensor whose integers are zero."""
    code = QUINT8 if dtype is None else dtype
    limits("aten::_empty_affine_quantized", code)
    return QTensor(xp.zeros(tuple(size), STORED[code]), code, scale, zero_point)


# ------------------------------------------------------------------------------------------------- and back


def _real(xp: Any, x: Any) -> Array:
    if type(x) is QTensor:
        return dequantize(xp, x)
    return x.astype(FLOAT32) if x.dtype != FLOAT32 else x


def _real_list(xp: Any, tensors: Sequence[Any]) -> list[Array]:
    """The float32 tensors that quantised ones stand for."""
    return [_real(xp, x) for x in tensors]


def _real_any(xp: Any, value: Any) -> Any:
    """A tensor, list, tuple or dict with every tensor in it dequantised."""
    if type(value) is QTensor or hasattr(value, "dtype"):
        return _real(xp, value)
    if isinstance(value, dict):
        return {k: _real_any(xp, v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_real_any(xp, v) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_real_any(xp, v) for v in value)
    return value


@library("aten::dequantize.self(Tensor self) -> Tensor", half="native", type_rule=dequantised_type, may_alias=True)
def dequantize_self(xp: Any, x: Any) -> Array:
    """The float32 tensor that a quantised one stands for; other tensors as float32."""
    return _real(xp, x)


library(
    "aten::dequantize.tensors(Tensor[] tensors) -> Tensor[]",
    half="native",
    type_rule=dequantised_list_type,
    may_alias=True,
)(_real_list)
library("aten::dequantize.tensor(Tensor qtensor) -> Tensor", half="native", type_rule=dequantised_type, may_alias=True)(
    dequantize_self
)
library(
    "aten::dequantize.list(Tensor[] qtensors) -> Tensor[]",
    half="native",
    type_rule=dequantised_list_type,
    may_alias=True,
)(_real_list)
library("aten::dequantize.any(Any tensors) -> Any", half="native", may_alias=True)(_real_any)


@library("aten::int_repr(Tensor self) -> Tensor", half="native", type_rule=integers_type)
def int_repr(xp: Any, x: Any) -> Array:
    """The integers of a quantised tensor."""
    check_quantised("aten::int_repr", self=x)
    return x.values.copy()


def _one_scale(op: str, x: Any) -> QTensor:
    check_quantised(op, self=x)
    if x.axis is not None:
        raise OpError(f"{op}: expected quantizer to be per tensor affine, the tensor is quantised per channel")
    return x  # type: ignore[no-any-return]


def _many_scales(op: str, x: Any) -> QTensor:
    check_quantised(op, self=x)
    if x.axis is None:
        raise OpError(f"{op}: expected quantizer to be per channel affine, the tensor has one scale")
    return x  # type: ignore[no-any-return]


@prim("aten::q_scale(Tensor self) -> float")
def q_scale(x: Any) -> float:
    """The scale of a tensor quantised as a whole."""
    return float(_one_scale("aten::q_scale", x).scale)


@prim("aten::q_zero_point(Tensor self) -> int")
def q_zero_point(x: Any) -> int:
    """The zero point of a tensor quantised as a whole."""
    return int(_one_scale("aten::q_zero_point", x).zero_point)


@prim("aten::q_per_channel_scales(Tensor self) -> Tensor")
def q_per_channel_scales(x: Any) -> Array:
    """The scales of a tensor quantised per channel."""
    return _many_scales("aten::q_per_channel_scales", x).scale


@prim("aten::q_per_channel_zero_points(Tensor self) -> Tensor")
def q_per_channel_zero_points(x: Any) -> Array:
    """The zero points of a tensor quantised per channel."""
    return _many_scales("aten::q_per_channel_zero_points", x).zero_point


@prim("aten::q_per_channel_axis(Tensor self) -> int")
def q_per_channel_axis(x: Any) -> int:
    """The dim along which the scales of a tensor vary."""
    axis = _many_scales("aten::q_per_channel_axis", x).axis
    assert axis is not None
    return axis


@prim("aten::qscheme(Tensor self) -> QScheme")
def qscheme(x: Any) -> int:
    """The code of the tensor's quantisation scheme."""
    check_quantised("aten::qscheme", self=x)
    if x.axis is None:
        return _PER_TENSOR_AFFINE
    return _PER_CHANNEL_FLOAT if x.zero_point.dtype.kind == "f" else _PER_CHANNEL_AFFINE


# ------------------------------------------------------------------------------------------------- fake quantisation


def _check_range(op: str, low: int, high: int) -> None:
    if low > high:
        raise OpError(f"{op}: quant_min {low} must not exceed quant_max {high}")


def _fake(xp: Any, x: Array, scale: Any, zero: Any, low: int, high: int, with_mask: bool) -> tuple[Array, Any]:
    """What ``x`` becomes when quantised and dequantised, and where it was not clipped."""
    real = x.dtype.type
    y = x * (real(1) / scale)
    if getattr(getattr(zero, "dtype", None), "kind", "i") == "f":
        y += zero
        xp.rint(y, out=y)
    else:
        xp.rint(y, out=y)
        y += zero
    mask = ((y >= low) & (y <= high)) if with_mask else None
    xp.maximum(y, real(low), out=y)
    xp.minimum(y, real(high), out=y)
    y -= zero
    y *= scale
    return y, mask


def _fake_tensor(
    xp: Any, op: str, x: Array, scale: float, zero: int, low: int, high: int, mask: bool
) -> tuple[Array, Any]:
    _check_range(op, low, high)
    if x.dtype.kind != "f":
        raise DTypeError(f"{op}: self must be floating point, it is {x.dtype}")
    if not low <= zero <= high:
        raise OpError(f"{op}: `zero_point` must be between `quant_min` and `quant_max`, found {zero}")
    return _fake(xp, x, x.dtype.type(np.float32(scale)), x.dtype.type(zero), low, high, mask)


def _fake_channels(
    xp: Any, op: str, x: Array, scale: Array, zero: Array, axis: int, low: int, high: int, mask: bool
) -> tuple[Array, Any]:
    _check_range(op, low, high)
    if not -x.ndim <= axis < x.ndim or scale.shape != (x.shape[axis],) or zero.shape != scale.shape:
        raise ShapeError(f"{op}: scale {scale.shape} and zero_point {zero.shape} do not fit dim {axis} of {x.shape}")
    shape = [1] * x.ndim
    shape[axis] = -1
    zeros = zero.reshape(shape)
    if zero.dtype.kind in "iu":
        if zero.size and (int(zero.min()) < low or int(zero.max()) > high):
            raise OpError(f"{op}: `zero_point` must be between `quant_min` and `quant_max`")
        # Whole numbers stay whole in the tensor's own dtype.
        y, found = _fake(xp, x, scale.astype(x.dtype).reshape(shape), zeros.astype("int64"), low, high, mask)
        return y, found
    return _fake(xp, x, scale.astype(x.dtype).reshape(shape), zeros.astype(x.dtype), low, high, mask)


_RANGE = "int quant_min, int quant_max"


@library(
    f"aten::fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, {_RANGE}) -> Tensor",
    type_rule=same_type,
)
def fake_quantize_per_tensor(xp: Any, x: Array, scale: float, zero_point: int, low: int, high: int) -> Array:
    """``x`` rounded and clipped as quantisation would, in floating point."""
    return _fake_tensor(xp, "aten::fake_quantize_per_tensor_affine", x, scale, zero_point, low, high, False)[0]


@library(
    f"aten::fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, "
    f"{_RANGE}) -> Tensor",
    type_rule=same_type,
)
def fake_quantize_by_tensors(xp: Any, x: Array, scale: Array, zero_point: Array, low: int, high: int) -> Array:
    """The same, for a scale and a zero point held in tensors of one element."""
    op = "aten::fake_quantize_per_tensor_affine"
    return _fake_tensor(xp, op, x, float(scale.item()), int(zero_point.item()), low, high, False)[0]


@library(
    f"aten::fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, {_RANGE})"
    " -> (Tensor output, Tensor mask)",
    type_rule=masked_type,
)
def fake_quantize_cachemask(
    xp: Any, x: Array, scale: float, zero_point: int, low: int, high: int
) -> tuple[Array, Array]:
    """Fake quantisation, and where nothing was clipped."""
    return _fake_tensor(xp, "aten::fake_quantize_per_tensor_affine_cachemask", x, scale, zero_point, low, high, True)


@library(
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, "
    f"Tensor fake_quant_enabled, {_RANGE}) -> (Tensor output, Tensor mask)",
    type_rule=masked_type,
)
def fake_quantize_cachemask_by_tensors(
    xp: Any, x: Array, scale: Array, zero_point: Array, enabled: Array, low: int, high: int
) -> tuple[Array, Array]:
    """Fake quantisation when it is enabled, and where nothing was clipped."""
    op = "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    if not int(enabled.item()):
        return x.copy(), xp.ones(x.shape, BOOL_)
    return _fake_tensor(xp, op, x, float(scale.item()), int(zero_point.item()), low, high, True)


@library(
    f"aten::fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, {_RANGE})"
    " -> Tensor",
    type_rule=same_type,
)
def fake_quantize_per_channel(
    xp: Any, x: Array, scale: Array, zero_point: Array, axis: int, low: int, high: int
) -> Array:
    """Fake quantisation with one scale and zero point for each index along ``axis``."""
    return _fake_channels(xp, "aten::fake_quantize_per_channel_affine", x, scale, zero_point, axis, low, high, False)[0]


@library(
    f"aten::fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, "
    f"{_RANGE})"
    " -> (Tensor output, Tensor mask)",
    type_rule=masked_type,
)
def fake_quantize_channel_cachemask(
    xp: Any, x: Array, scale: Array, zero_point: Array, axis: int, low: int, high: int
) -> tuple[Array, Array]:
    """Fake quantisation per channel, and where nothing was clipped."""
    op = "aten::fake_quantize_per_channel_affine_cachemask"
    return _fake_channels(xp, op, x, scale, zero_point, axis, low, high, True)


@library(
    f"aten::_fake_quantize_learnable_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, {_RANGE}, "
    "float grad_factor=1.) -> Tensor",
    type_rule=same_type,
)
def fake_quantize_learnable(
    xp: Any, x: Array, scale: Array, zero_point: Array, low: int, high: int, grad_factor: float
) -> Array:
    """Fake quantisation for a learned zero point, which is rounded and clipped first."""
    zero = min(max(round(float(zero_point.item())), low), high)
    op = "aten::_fake_quantize_learnable_per_tensor_affine"
    return _fake_tensor(xp, op, x, float(scale.item()), zero, low, high, False)[0]


@library(
    f"aten::_fake_quantize_learnable_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, "
    f"{_RANGE}, "
    "float grad_factor=1.) -> Tensor",
    type_rule=same_type,
)
def fake_quantize_learnable_per_channel(
    xp: Any, x: Array, scale: Array, zero_point: Array, axis: int, low: int, high: int, grad_factor: float
) -> Array:
    """Fake quantisation per channel for learned zero points, which are rounded and clipped first."""
    zeros = xp.rint(zero_point).clip(low, high).astype("int64")
    op = "aten::_fake_quantize_learnable_per_channel_affine"
    return _fake_channels(xp, op, x, scale, zeros, axis, low, high, False)[0]
