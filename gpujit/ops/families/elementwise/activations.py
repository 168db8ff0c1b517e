"""Activation functions: relu and its kin, gelu, silu, soft and hard forms, gated units.

Several steps over one array reuse one temporary and run in blocks, see ``numeric.in_blocks``.
"""

from __future__ import annotations

import math
from typing import Any

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import Array
from gpujit.ops.families.elementwise.pointwise import FLOAT_ONLY, FLOAT_OR_COMPLEX, NO_BOOL, REAL_ONLY
from gpujit.ops.families.elementwise.special import erf_of
from gpujit.ops.families.elementwise.unary import sigmoid
from gpujit.ops.into import fits
from gpujit.ops.numeric import between, between_into, blocks_into, filled, filled_into, in_blocks
from gpujit.ops.registry import library, out_form, pointwise
from gpujit.ops.rows import Rows, no_dims
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.pieces import glu_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_REAL_NUMBERS = {**NO_BOOL, **REAL_ONLY}

# ---------------------------------------------------------------------------------------- pieces of straight lines


@pointwise("aten::relu(Tensor self) -> Tensor", refuse=_REAL_NUMBERS, inplace=True, out="out", onnx="Relu", into=True)
def relu(m: Any, x: Array) -> Array:
    """max(x, 0); NaN stays NaN."""
    return m.maximum(x, 0)


@pointwise("aten::relu6(Tensor self) -> Tensor", refuse=_REAL_NUMBERS, inplace=True, into=True)
def relu6(m: Any, x: Array) -> Array:
    """``x`` kept within 0 and 6."""
    return m.minimum(m.maximum(x, 0), 6)


def _hardtanh_into(m: Any, out: Array, x: Array, low: Any, high: Any) -> Any:
    if x.dtype.kind != "f":
        return NotImplemented
    between_into(m, out, x, low, high)
    return None


@pointwise(
    "aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    refuse=_REAL_NUMBERS, inplace=True, out="out", into=_hardtanh_into,
)  # fmt: skip
def hardtanh(m: Any, x: Array, low: Any, high: Any) -> Array:
    """``x`` kept within the two numbers."""
    if x.dtype.kind in "iu":
        low, high = int(low), int(high)
        if x.dtype.kind == "u" and low < 0:
            raise OpError(
                f"aten::hardtanh: min_val={low} is negative, the tensor is {x.dtype}; take a signed or floating dtype"
            )
    return between(m, x, low, high)


def _leaky_relu_into(m: Any, out: Array, x: Array, slope: Any) -> Any:
    if out is x or not 0 < slope <= 1:
        return NotImplemented
    m.maximum(x, m.multiply(x, slope, out=out), out=out)
    return None


@pointwise(
    "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    refuse=FLOAT_ONLY,
    inplace=True,
    out="out",
    into=_leaky_relu_into,
)
def leaky_relu(m: Any, x: Array, slope: Any) -> Array:
    """``x`` above zero, slope * x below."""
    y = x * slope
    if 0 < slope <= 1:
        return m.maximum(x, y)
    return m.where(x > 0, x, y)


def _threshold_into(m: Any, out: Array, x: Array, limit: Any, value: Any) -> None:
    if x.dtype.kind in "iu":
        limit, value = int(limit), int(value)
    below = m.less_equal(x, limit)
    if out is not x:
        m.copyto(out, x)
    m.copyto(out, value, where=below)


@pointwise(
    "aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    refuse=_REAL_NUMBERS, inplace=True, out="out", into=_threshold_into,
)  # fmt: skip
def threshold(m: Any, x: Array, limit: Any, value: Any) -> Array:
    """``x`` above the limit, ``value`` elsewhere; NaN stays NaN."""
    if x.dtype.kind in "iu":
        limit, value = int(limit), int(value)
    return m.where(x <= limit, value, x)


def _hardshrink_into(m: Any, out: Array, x: Array, lambd: Any) -> None:
    inside = (x >= -lambd) & (x <= lambd)
    if out is not x:
        m.copyto(out, x)
    m.copyto(out, 0, where=inside)


@pointwise(
    "aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", refuse=FLOAT_ONLY, out="out", into=_hardshrink_into
)
def hardshrink(m: Any, x: Array, lambd: Any) -> Array:
    """``x`` outside [-lambd, lambd], 0 inside."""
    return m.where((x >= -lambd) & (x <= lambd), 0, x)


def _softshrink_into(m: Any, out: Array, x: Array, lambd: Any) -> Any:
    if out is x or not lambd >= 0:
        return NotImplemented
    m.minimum(m.maximum(x, -lambd, out=out), lambd, out=out)
    m.subtract(x, out, out=out)
    return None


@pointwise(
    "aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", refuse=FLOAT_ONLY, out="out", into=_softshrink_into
)
def softshrink(m: Any, x: Array, lambd: Any) -> Array:
    """``x`` moved by ``lambd`` towards zero, and 0 where that would cross it."""
    if not lambd >= 0:
        raise OpError(f"aten::softshrink: lambd is {lambd}; it must not be negative")
    return x - m.minimum(m.maximum(x, -lambd), lambd)


def _hardsigmoid_into(m: Any, out: Array, x: Array) -> Any:
    return filled_into(m, out, _hardsigmoid, x)


@pointwise(
    "aten::hardsigmoid(Tensor self) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=_hardsigmoid_into
)
def hardsigmoid(m: Any, x: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6."""
    return filled(m, _hardsigmoid, x)


def _hardsigmoid(m: Any, x: Any, y: Any) -> None:
    m.add(x, 3, out=y)
    m.clip(y, 0, 6, out=y)
    m.divide(y, 6, out=y)


def _hardswish_into(m: Any, out: Array, x: Array) -> Any:
    return filled_into(m, out, _hardswish, x)


@pointwise("aten::hardswish(Tensor self) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=_hardswish_into)
def hardswish(m: Any, x: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6."""
    return filled(m, _hardswish, x)


def _hardswish(m: Any, x: Any, y: Any) -> None:
    m.add(x, 3, out=y)
    m.clip(y, 0, 6, out=y)
    m.multiply(y, x, out=y)
    m.divide(y, 6, out=y)


@pointwise("aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor", refuse=FLOAT_ONLY)
def prelu_kernel(m: Any, x: Array, weight: Array) -> Array:
    """``x`` above zero, weight * x below; ``weight`` broadcasts."""
    return m.where(x > 0, x, weight * x)


@pointwise(
    "aten::prelu(Tensor self, Tensor weight) -> Tensor",
    refuse=FLOAT_ONLY,
    onnx="PRelu",
    type_rule=same_type,
    scalar=Rows(no_dims, prelu_kernel, aligned={"weight": 1}),
)
def prelu(m: Any, x: Array, weight: Array) -> Array:
    """``x`` above zero, weight * x below: one weight for all, or one for each channel (dim 1)."""
    if weight.size != 1:
        channels = x.shape[1] if x.ndim > 1 else 1
        if weight.ndim != 1 or weight.size != channels:
            raise ShapeError(
                f"aten::prelu: weight has shape {weight.shape}, input {x.shape} has {channels} channels in dim 1; "
                "give one weight, or one for each channel"
            )
        weight = weight.reshape((channels,) + (1,) * (x.ndim - 2))
    elif weight.ndim != x.ndim:
        weight = weight.reshape((1,) * x.ndim)
    return m.where(x > 0, x, weight * x)


# ------------------------------------------------------------------------------------------------ exponential pieces


def _elu_into(m: Any, out: Array, x: Array, alpha: Any, scale: Any, input_scale: Any) -> Any:
    def block(m: Any, x: Any) -> Any:
        return elu(m, x, alpha, scale, input_scale)

    return blocks_into(m, out, block, x)


@pointwise(
    "aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
    refuse=FLOAT_ONLY, inplace=True, out="out", into=_elu_into,
)  # fmt: skip
def elu(m: Any, x: Array, alpha: Any, scale: Any, input_scale: Any) -> Array:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    above = x if scale == 1 else x * scale
    below = m.expm1(x if input_scale == 1 else x * input_scale)
    factor = alpha * scale
    return m.where(x > 0, above, below if factor == 1 else below * factor)


def _celu_into(m: Any, out: Array, x: Array, alpha: Any) -> Any:
    return _elu_into(m, out, x, alpha, 1, 1 / alpha) if alpha else NotImplemented


@pointwise(
    "aten::celu(Tensor self, Scalar alpha=1.) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=_celu_into
)
def celu(m: Any, x: Array, alpha: Any) -> Array:
    """``x`` above zero, alpha * (exp(x / alpha) - 1) below."""
    if alpha == 0:
        raise OpError("aten::celu: alpha is 0 (ZeroDivisionError); it must be another number")
    return elu(m, x, alpha, 1, 1 / alpha)


def _selu_into(m: Any, out: Array, x: Array) -> Any:
    return blocks_into(m, out, selu, x)


@pointwise("aten::selu(Tensor self) -> Tensor", refuse=FLOAT_ONLY, inplace=True, into=_selu_into)
def selu(m: Any, x: Array) -> Array:
    """elu with the constants that keep mean 0 and variance 1 (Klambauer and others 2017)."""
    return elu(m, x, 1.6732632423543772, 1.0507009873554805, 1)


def _softplus_into(m: Any, out: Array, x: Array, beta: Any, limit: Any) -> Any:
    def block(m: Any, x: Any) -> Any:
        return softplus(m, x, beta, limit)

    return blocks_into(m, out, block, x)


@pointwise(
    "aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
    refuse=FLOAT_ONLY,
    out="out",
    into=_softplus_into,
)
def softplus(m: Any, x: Array, beta: Any, limit: Any) -> Array:
    """log(1 + exp(beta * x)) / beta, and ``x`` itself where beta * x exceeds the limit."""
    z = x if beta == 1 else x * beta
    y = m.log1p(m.exp(z))
    return m.where(z > limit, x, y if beta == 1 else y / beta)


def _log_sigmoid_into(m: Any, out: Array, x: Array) -> Any:
    return blocks_into(m, out, log_sigmoid, x)


@pointwise("aten::log_sigmoid(Tensor self) -> Tensor", refuse=FLOAT_ONLY, out="out", into=_log_sigmoid_into)
def log_sigmoid(m: Any, x: Array) -> Array:
    """log(sigmoid(x)), finite far below zero."""
    return m.minimum(x, 0) - m.log1p(m.exp(-m.absolute(x)))


@library("aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)")
def log_sigmoid_forward(xp: Any, x: Array) -> tuple[Array, Array]:
    """log(sigmoid(x)), and exp(-|x|) for the backward pass."""
    if x.dtype.kind != "f":
        raise DTypeError(
            f"aten::log_sigmoid_forward: {x.dtype} tensors are not supported; cast to a floating dtype first"
        )
    buffer = xp.exp(-xp.absolute(x))
    return xp.minimum(x, 0) - xp.log1p(buffer), buffer


out_form(
    "aten::log_sigmoid_forward.output(Tensor self, *, Tensor(a!) output, Tensor(b!) buffer) "
    "-> (Tensor(a!), Tensor(b!))",
    "aten::log_sigmoid_forward",
)


def _silu_into(m: Any, out: Array, x: Array) -> Any:
    return filled_into(m, out, _silu, x)


@pointwise("aten::silu(Tensor self) -> Tensor", refuse=FLOAT_OR_COMPLEX, inplace=True, out="out", into=_silu_into)
def silu(m: Any, x: Array) -> Array:
    """x / (1 + exp(-x))."""
    return filled(m, _silu, x)


def _silu(m: Any, x: Any, y: Any) -> None:
    m.negative(x, out=y)
    m.exp(y, out=y)
    m.add(y, 1, out=y)
    m.divide(x, y, out=y)


def _mish_into(m: Any, out: Array, x: Array) -> Any:
    return blocks_into(m, out, _mish, x)


@pointwise("aten::mish(Tensor self) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=_mish_into)
def mish(m: Any, x: Array) -> Array:
    """x * tanh(log(1 + exp(x)))."""
    return in_blocks(m, _mish, x)


def _mish(m: Any, x: Any) -> Any:
    y = m.exp(x)
    m.log1p(y, out=y)
    m.tanh(y, out=y)
    y *= x
    return y


def _gelu_into(m: Any, out: Array, x: Array, approximate: str) -> Any:
    function = {"none": _gelu, "tanh": _gelu_tanh}.get(approximate)
    return NotImplemented if function is None else filled_into(m, out, function, x)


@pointwise(
    'aten::gelu(Tensor self, *, str approximate="none") -> Tensor',
    refuse=FLOAT_ONLY,
    inplace=True,
    out="out",
    into=_gelu_into,
)
def gelu(m: Any, x: Array, approximate: str) -> Array:
    """x times the normal distribution's probability below it; ``tanh`` takes the usual approximation."""
    if approximate == "none":
        return filled(m, _gelu, x)
    if approximate == "tanh":
        return filled(m, _gelu_tanh, x)
    raise OpError(f"aten::gelu: approximate is {approximate!r}; it must be 'none' or 'tanh'")


# log(P / (1 - P)) / x as a polynomial of x * x, highest power first, where P is the normal distribution's probability
# below x; divided by -log(2). Fitted so that x * P is within 3e-8 * max(1, |x|) (Lawson's method).
_LOGIT = tuple(
    -c / math.log(2)
    for c in (
        3.69338387e-09, -2.71463464e-07, 8.02524163e-06, -1.11208174e-04, -6.34820970e-05, 7.26641286e-02,
        1.59577062,
    )
)  # fmt: skip


def _gelu(m: Any, x: Any, y: Any) -> None:
    if x.dtype != FLOAT32:
        m.add(erf_of(m, x * math.sqrt(0.5)), 1, out=y)
        m.multiply(y, x, out=y)
        m.multiply(y, 0.5, out=y)
        return
    square = m.multiply(x, x)
    m.multiply(square, _LOGIT[0], out=y)
    for c in _LOGIT[1:-1]:
        m.add(y, c, out=y)
        m.multiply(y, square, out=y)
    m.add(y, _LOGIT[-1], out=y)
    m.multiply(y, x, out=y)
    m.exp2(y, out=y)
    m.add(y, 1, out=y)
    m.divide(x, y, out=y)


def _gelu_tanh(m: Any, x: Any, y: Any) -> None:
    m.multiply(x, x, out=y)
    m.multiply(y, 0.044715 * math.sqrt(2 / math.pi), out=y)
    m.add(y, math.sqrt(2 / math.pi), out=y)
    m.multiply(y, x, out=y)
    m.tanh(y, out=y)
    m.add(y, 1, out=y)
    m.multiply(y, x, out=y)
    m.multiply(y, 0.5, out=y)


def _glu_into(xp: Any, out: Array, x: Array, dim: int) -> Any:
    if not x.ndim or not -x.ndim <= dim < x.ndim or x.shape[dim] % 2 or x.dtype.kind != "f":
        return NotImplemented
    half = x.shape[dim] // 2
    before = (slice(None),) * (dim % x.ndim)
    first, second = x[(*before, slice(half))], x[(*before, slice(half, None))]
    if not fits(out, first.shape, x.dtype):
        return NotImplemented
    xp.exp(xp.negative(second, out=out), out=out)
    out += 1
    xp.divide(first, out, out=out)
    return None


@library("aten::glu(Tensor self, int dim=-1) -> Tensor", out="out", type_rule=glu_type, into=_glu_into)
def glu(xp: Any, x: Array, dim: int) -> Array:
    """The first half along ``dim`` times the sigmoid of the second."""
    if not x.ndim:
        raise ShapeError("aten::glu: the input has no dim; it needs one of an even size")
    if not -x.ndim <= dim < x.ndim:
        raise ShapeError(f"aten::glu: dim is {dim}, out of the range [{-x.ndim}, {x.ndim - 1}] of shape {x.shape}")
    if x.shape[dim] % 2:
        raise ShapeError(f"aten::glu: dim {dim} has size {x.shape[dim]}; it must be even")
    if x.dtype.kind not in "fc":
        raise DTypeError(f"aten::glu: {x.dtype} tensors are not supported; cast to a floating dtype first")
    half = x.shape[dim] // 2
    before = (slice(None),) * (dim % x.ndim)
    return x[(*before, slice(half))] * sigmoid(xp, x[(*before, slice(half, None))])
