"""Quantised tensors: from real numbers and back, and the choice of scale and zero point.

Rounding is to the nearest even integer, in float32 and by the reciprocal of the scale, as FBGEMM computes it: a
division would differ from PyTorch in the last place now and then.
"""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import Array, QTensor
from gpujit.support.errors import DTypeError, OpError

QINT8, QUINT8, QINT32 = 12, 13, 14
STORED = {QINT8: np.dtype(np.int8), QUINT8: np.dtype(np.uint8), QINT32: np.dtype(np.int32)}
LIMITS = {QINT8: (-128, 127), QUINT8: (0, 255), QINT32: (-(2**31), 2**31 - 1)}
_SMALL_SCALE = 6.1e-5


def check_quantised(op: str, **tensors: Any) -> None:
    """Refuse arguments that are no quantised tensors. Raises DTypeError."""
    for name, x in tensors.items():
        if type(x) is not QTensor:
            found = getattr(x, "dtype", type(x).__name__)
            raise DTypeError(f"{op}: {name} must be a quantised tensor, it is {found}; call quantize_per_tensor first")


def check_per_tensor(op: str, x: QTensor) -> None:
    """Refuse a tensor quantised per channel. Raises OpError."""
    if x.axis is not None:
        raise OpError(f"{op}: the tensor is quantised per channel along dim {x.axis}; only one scale is supported")


def limits(op: str, code: int) -> tuple[int, int]:
    """The smallest and largest integer of a quantised dtype. Raises DTypeError for another dtype."""
    found = LIMITS.get(code)
    if found is None:
        raise DTypeError(f"{op}: dtype code {code} is no quantised dtype; use qint8 (12), quint8 (13) or qint32 (14)")
    return found


def round_clip(xp: Any, x: Array, zero_point: Any, low: int, high: int, stored: Any) -> Array:
    """``clip(round(x) + zero_point)`` as integers; ``x`` is overwritten."""
    xp.rint(x, out=x)
    x += zero_point
    xp.maximum(x, low, out=x)
    xp.minimum(x, high, out=x)
    return x.astype(stored)


def quantize_values(xp: Any, x: Array, scale: float, zero_point: int, code: int) -> Array:
    """The integers of ``x`` under one scale and zero point."""
    low, high = LIMITS[code]
    if code == QINT32:
        # 2**31 - 1 has no float32.
        return round_clip(xp, x.astype("float64") / scale, zero_point, low, high, STORED[code])
    return round_clip(xp, x * (np.float32(1) / np.float32(scale)), zero_point, low, high, STORED[code])


def requantize_values(xp: Any, x: Array, scale: float, zero_point: int, code: int) -> Array:
    """The integers of ``x`` as operators on quantised tensors round them: after the zero point was added.

    The two ways differ where a number lies half way between two integers, which sums and means of integers often do.
    """
    if code == QINT32:
        return quantize_values(xp, x, scale, zero_point, code)
    y = x * (np.float32(1) / np.float32(scale))
    y += zero_point
    low, high = LIMITS[code]
    return round_clip(xp, y, 0, low, high, STORED[code])


def dequantize_values(q: Array, scale: float, zero_point: int) -> Array:
    """The float32 numbers that integers stand for."""
    x = centred(q, zero_point)
    x *= np.float32(scale)
    return x


def centred(q: Array, zero_point: Any) -> Array:
    """``q - zero_point`` in float32, which holds it exactly for 8-bit integers."""
    x = q.astype(FLOAT32)
    if type(zero_point) is not int or zero_point:
        x -= zero_point
    return x


def quantize(xp: Any, x: Array, scale: float, zero_point: int, code: int) -> QTensor:
    """``x`` (float32) as a quantised tensor of one scale."""
    return QTensor(quantize_values(xp, x, scale, zero_point, code), code, scale, zero_point)


def requantize(xp: Any, x: Array, scale: float, zero_point: int, code: int) -> QTensor:
    """A result (float32) of an operator on quantised tensors as a quantised tensor."""
    return QTensor(requantize_values(xp, x, scale, zero_point, code), code, scale, zero_point)


def channel_shape(q: QTensor) -> list[int]:
    """The shape under which one number a channel broadcasts over the tensor."""
    shape = [1] * q.values.ndim
    assert q.axis is not None
    shape[q.axis] = -1
    return shape


def dequantize(xp: Any, q: QTensor) -> Array:
    """The float32 tensor that ``q`` stands for."""
    if q.axis is None:
        return dequantize_values(q.values, q.scale, q.zero_point)
    shape = channel_shape(q)
    x = q.values.astype(FLOAT32)
    x -= q.zero_point.astype(FLOAT32).reshape(shape)
    x *= q.scale.astype(FLOAT32).reshape(shape)
    return x


def with_values(q: QTensor, values: Array) -> QTensor:
    """Other integers under the same scale and zero point."""
    return QTensor(values, q.dtype, q.scale, q.zero_point, q.axis)


def choose_parameters(low: float, high: float, qmin: int, qmax: int, reduce_range: bool) -> tuple[float, int]:
    """Scale and zero point that cover ``low`` to ``high`` and hold 0 exactly.

    ``reduce_range`` gives one bit away, which 16-bit sums of products need on older CPUs.
    Source: the algorithm of FBGEMM's ChooseQuantizationParams.
    """
    if reduce_range:
        # Division towards zero, as in C.
        qmin, qmax = int(qmin / 2), int(qmax / 2)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (qmax - qmin)
    with np.errstate(all="ignore"):
        vanishes = np.float32(scale) == 0 or isinf(float(np.float32(1) / np.float32(scale)))
    if vanishes:
        scale = 0.1
    if scale < _SMALL_SCALE:
        before, scale = scale, _SMALL_SCALE
        if low == 0.0:
            high = scale * (qmax - qmin)
        elif high == 0.0:
            low = -scale * (qmax - qmin)
        else:
            low, high = low * (scale / before), high * (scale / before)
    from_low, from_high = qmin - low / scale, qmax - high / scale
    error_low, error_high = abs(qmin) + abs(low / scale), abs(qmax) + abs(high / scale)
    zero = from_low if error_low < error_high else from_high
    return scale, min(max(round(zero), qmin), qmax)
