"""What operators over rows do to one row, for ``Rows``: bodies for a Recorder, whose reductions give the row's number.

The bodies that run on arrays pick blocks and layouts to be fast there; these say the same in the fewest passes over a
row. Half types arrive as float32, and an asked dtype that is half is computed in float32 (``record`` casts results).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES, INT64, numpy_dtype
from gpujit.ir.scalar import RecordError
from gpujit.ops.axes import need_floating, need_real
from gpujit.ops.promotion import to_floating
from gpujit.support.errors import DTypeError, OpError

Body = Callable[..., Any]


def _asked(x: Any, code: int | None) -> Any:
    if code is None:
        return x
    dtype = numpy_dtype(code)
    # Half numbers are rounded to half first, as a cast tensor would be.
    return x.astype(dtype).astype(FLOAT32) if dtype in HALF_TYPES else x.astype(dtype)


def _summed(x: Any, code: int | None) -> Any:
    """What is added up: integers and bools as int64, when no dtype is asked for."""
    return x.astype(INT64) if code is None and x.dtype.kind in "bui" else _asked(x, code)


def _mean(m: Any, x: Any) -> Any:
    return m.sum(x) / m.count(x.dtype)


# --------------------------------------------------------------------------------------------------------- sums


def summed(of: str, code_at: int) -> Body:
    """``sum``, ``prod``, ``cumsum`` or ``cumprod`` with a dtype argument at a position."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        x = _summed(x, args[code_at - 1])
        return getattr(m, of)(x if x.dtype != BOOL_ else x.astype(INT64)).astype(x.dtype)

    return body


def nansum(m: Any, x: Any, dim: Any, keepdim: bool, code: int | None) -> Any:
    """The sum with NaN taken as zero."""
    return m.sum(_summed(m.where(m.isnan(x), 0, x), code))


def mean(code_at: int, op: str) -> Body:
    """The mean, with a dtype argument at a position."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        x = _asked(x, args[code_at - 1])
        if x.dtype.kind in "bui":
            need_floating(x, op)
        return _mean(m, x)

    return body


def variance(root: bool, with_mean: bool, correction: Callable[..., float], op: str) -> Body:
    """Variance or its root; ``correction`` tells the divisor's from the arguments after the first."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        need_floating(x, op)
        centre = _mean(m, x)
        d = x - centre
        y = m.sum(d * d) / m.maximum(m.count(x.dtype) - correction(*args), 0)
        y = m.sqrt(y) if root else y
        return (y, centre) if with_mean else y

    return body


def norm(p_at: int | None, code_at: int | None, op: str) -> Body:
    """(sum |x|^p)^(1/p), with p (2 when None or not there) and a dtype argument at positions."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        p = args[p_at - 1] if p_at is not None else None
        p = 2 if p is None else p
        need_floating(x, op)
        x = _asked(x, args[code_at - 1] if code_at is not None else None)
        if x.dtype.kind in "bui":
            raise DTypeError(f"{op}: {x.dtype} is no dtype of norms; pass a floating one")
        if p == 2:
            return m.sqrt(m.sum(x * x))
        size = m.abs(x)
        if p == 1:
            return m.sum(size)
        if math.isinf(p):
            return m.max(size) if p > 0 else m.min(size)
        if p == 0:
            return m.sum((size != 0).astype(x.dtype))
        return m.power(m.sum(m.power(size, p)), 1.0 / p)

    return body


# ------------------------------------------------------------------------------------------- truth and extremes


def truth(of: str) -> Body:
    """``any`` or ``all``; of uint8 tensors uint8, of others bool."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        y = getattr(m, of)(x.astype(BOOL_))
        return y.astype(x.dtype) if x.dtype.char == "B" else y

    return body


def count_nonzero(m: Any, x: Any, *args: Any) -> Any:
    """How many are not zero."""
    return m.sum((x != 0).astype(INT64))


def extremes(*of: str, op: str) -> Body:
    """One or more of ``max``, ``min``, ``argmax``, ``argmin``."""

    def body(m: Any, x: Any, *args: Any) -> Any:
        need_real(x, op)
        if x.dtype == BOOL_ and of[0].startswith("arg"):
            raise DTypeError(f"{op}: bool tensors are not taken; cast to an integer dtype first")
        found = tuple(getattr(m, name)(x) for name in of)
        return found if len(found) > 1 else found[0]

    return body


# ------------------------------------------------------------------------------------------------------- softmax


def _exponentials(m: Any, x: Any) -> tuple[Any, Any]:
    """``x`` less its maximum, and the exponentials of that."""
    d = x - m.max(x)
    return d, m.exp(d)


def softmax(logarithm: bool, has_dtype: bool, op: str) -> Body:
    """softmax or its logarithm; the argument after dim is a dtype, or half_to_float."""

    def body(m: Any, x: Any, dim: int, last: Any) -> Any:
        if not has_dtype and last:
            raise DTypeError(f"{op}: half_to_float is for GPUs only; call the public operator with dtype=")
        x = _asked(x, last if has_dtype else None)
        if x.dtype.kind != "f":
            need_floating(x, op)
        d, e = _exponentials(m, x)
        # One division a row: the others would take longer than the exponentials.
        return d - m.log(m.sum(e)) if logarithm else e * (1 / m.sum(e))

    return body


def safe_softmax(m: Any, x: Any, dim: int, code: int | None) -> Any:
    """softmax, except that a row of -inf alone gives zeros."""
    x = _asked(x, code)
    if x.dtype.kind != "f":
        need_floating(x, "aten::_safe_softmax")
    _, e = _exponentials(m, x)
    return m.where(m.all(x == -math.inf), 0, e * (1 / m.sum(e)))


def logsumexp(m: Any, x: Any, dim: Any, keepdim: bool) -> Any:
    """log(sum(exp(x))) without overflow."""
    x = x.astype(to_floating(x.dtype))
    top = m.max(x)
    top = m.where(m.isfinite(top), top, 0)
    return m.log(m.sum(m.exp(x - top))) + top


# ------------------------------------------------------------------------------------------------- normalisation


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _normalised(m: Any, x: Any, eps: float, op: str) -> tuple[Any, Any, Any]:
    """``x`` at mean 0 and variance 1, and the mean and the inverse deviation it had."""
    if x.dtype.kind != "f":
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")
    centre = _mean(m, x)
    d = x - centre
    rstd = 1 / m.sqrt(_mean(m, d * d) + eps)
    return d * rstd, centre, rstd


def layer_norm(m: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float, enable: bool = True) -> Any:
    """Mean 0 and variance 1 over the last dims, scaled and shifted."""
    return _scaled(_normalised(m, x, eps, "aten::layer_norm")[0], weight, bias)


def group_norm(m: Any, x: Any, groups: int, weight: Any, bias: Any, eps: float, enable: bool) -> Any:
    """Mean 0 and variance 1 over each sample's group of channels, scaled and shifted per channel."""
    return _scaled(_normalised(m, x, eps, "aten::group_norm")[0], weight, bias)


def instance_norm(
    m: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input: bool, momentum: float, eps: float, on: bool
) -> Any:
    """Mean 0 and variance 1 over each sample's channel, scaled and shifted per channel."""
    if not use_input or mean is not None or var is not None:
        raise RecordError("aten::instance_norm: running statistics are not recorded; it runs unfused")
    return _scaled(_normalised(m, x, eps, "aten::instance_norm")[0], weight, bias)


def rms_norm(m: Any, x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    """``x`` over the root of its mean square, scaled."""
    if x.dtype.kind != "f":
        raise DTypeError(f"aten::rms_norm: expected a floating tensor, found {x.dtype}")
    # Half types are normalised in float32, and with its epsilon.
    eps = float(m.finfo(x.dtype).eps) if eps is None else eps
    return _scaled(x * (1 / m.sqrt(_mean(m, x * x) + eps)), weight, None)


def batch_norm(
    m: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, on: bool
) -> Any:
    """``x`` scaled and shifted per channel by running statistics."""
    if training or mean is None or var is None:
        raise RecordError("aten::batch_norm: statistics of the input itself are not recorded; it runs unfused")
    if x.dtype.kind != "f":
        raise OpError(f"aten::batch_norm: expected a floating tensor, found {x.dtype}")
    scale = 1 / m.sqrt(var + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * scale + shift
