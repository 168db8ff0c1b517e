"""Gradients of the activation functions, as operators that graphs with gradients call."""

from __future__ import annotations

import math
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.families.elementwise.pointwise import FLOAT_ONLY, FLOAT_OR_COMPLEX, NO_BOOL, REAL_ONLY
from gpujit.ops.families.elementwise.special import erf_of
from gpujit.ops.families.elementwise.unary import sigmoid
from gpujit.ops.registry import library, out_form, pointwise
from gpujit.support.errors import DTypeError, OpError, ShapeError


def _gradient(parameters: str, name: str, out: str = "grad_input") -> None:
    """The form of ``aten::name`` that writes the gradient into its last argument."""
    star = "" if "*," in parameters else "*, "
    out_form(f"aten::{name}.{out}({parameters}, {star}Tensor(a!) {out}) -> Tensor(a!)", f"aten::{name}")


def _conj(m: Any, x: Any) -> Any:
    return m.conjugate(x) if x.dtype.kind == "c" else x


@pointwise("aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor", refuse=FLOAT_OR_COMPLEX)
def sigmoid_backward(m: Any, grad: Array, y: Array) -> Array:
    """grad * (1 - y) * y for the result y of sigmoid."""
    return grad * _conj(m, (1 - y) * y)


@pointwise("aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor", refuse=FLOAT_OR_COMPLEX)
def tanh_backward(m: Any, grad: Array, y: Array) -> Array:
    """grad * (1 - y * y) for the result y of tanh."""
    return grad * _conj(m, 1 - y * y)


@pointwise(
    'aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate="none") -> Tensor', refuse=FLOAT_ONLY
)
def gelu_backward(m: Any, grad: Array, x: Array, approximate: str) -> Array:
    """grad times the slope of gelu."""
    if approximate == "tanh":
        c = math.sqrt(2 / math.pi)
        t = m.tanh(c * (x + 0.044715 * x * x * x))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (c * (1 + 3 * 0.044715 * x * x))
    elif approximate == "none":
        slope = 0.5 * (1 + erf_of(m, x * math.sqrt(0.5))) + x * m.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    else:
        raise OpError(f"aten::gelu_backward: approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return grad * slope


@pointwise("aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor", refuse=FLOAT_OR_COMPLEX)
def silu_backward(m: Any, grad: Array, x: Array) -> Array:
    """grad times the slope of silu."""
    s = sigmoid(m, x)
    return grad * (s * (1 + x * (1 - s)))


@pointwise("aten::mish_backward(Tensor grad_output, Tensor self) -> Tensor", refuse=FLOAT_ONLY)
def mish_backward(m: Any, grad: Array, x: Array) -> Array:
    """grad times the slope of mish."""
    t = m.tanh(m.log1p(m.exp(x)))
    return grad * (t + x * sigmoid(m, x) * (1 - t * t))


@pointwise(
    "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
    refuse={**NO_BOOL, **REAL_ONLY},
)
def threshold_backward(m: Any, grad: Array, x: Array, limit: Any) -> Array:
    """``grad`` where ``x`` exceeds the limit, 0 elsewhere."""
    return m.where(x <= (int(limit) if x.dtype.kind in "iu" else limit), 0, grad)


@pointwise(
    "aten::leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result) -> Tensor",
    refuse=FLOAT_ONLY,
)
def leaky_relu_backward(m: Any, grad: Array, x: Array, slope: Any, self_is_result: bool) -> Array:
    """``grad`` above zero, slope * grad below."""
    if self_is_result and slope < 0:
        raise OpError(f"aten::leaky_relu_backward: a negative slope ({slope}) cannot be undone from the result")
    return m.where(x > 0, grad, grad * slope)


@pointwise(
    "aten::elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, "
    "Tensor self_or_result) -> Tensor",
    refuse=FLOAT_ONLY,
)
def elu_backward(m: Any, grad: Array, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Array) -> Array:
    """grad times the slope of elu, from its input or its result."""
    if is_result:
        if alpha < 0:
            raise OpError(f"aten::elu_backward: a negative alpha ({alpha}) cannot be undone from the result")
        below = input_scale * (x + alpha * scale)
    else:
        below = (input_scale * alpha * scale) * m.exp(x * input_scale)
    return grad * m.where(x <= 0, below, scale)


@pointwise("aten::hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd) -> Tensor", refuse=FLOAT_ONLY)
@pointwise("aten::softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor", refuse=FLOAT_ONLY)
def shrink_backward(m: Any, grad: Array, x: Array, lambd: Any) -> Array:
    """``grad`` outside [-lambd, lambd], 0 inside."""
    return m.where((x >= -lambd) & (x <= lambd), 0, grad)


@pointwise("aten::hardsigmoid_backward(Tensor grad_output, Tensor self) -> Tensor", refuse=FLOAT_ONLY)
def hardsigmoid_backward(m: Any, grad: Array, x: Array) -> Array:
    """grad / 6 within (-3, 3), 0 outside."""
    return m.where((x > -3) & (x < 3), grad / 6, 0)


@pointwise("aten::hardswish_backward(Tensor grad_output, Tensor self) -> Tensor", refuse=FLOAT_ONLY, out="out")
def hardswish_backward(m: Any, grad: Array, x: Array) -> Array:
    """grad times the slope of hardswish."""
    return m.where(x <= -3, 0, m.where(x < 3, grad * (x / 3 + 0.5), grad))


@pointwise(
    "aten::hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) -> Tensor",
    refuse=FLOAT_ONLY,
)
def hardtanh_backward(m: Any, grad: Array, x: Array, low: Any, high: Any) -> Array:
    """``grad`` between the bounds, 0 at them and outside."""
    return m.where((x <= low) | (x >= high), 0, grad)


@pointwise(
    "aten::softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) -> Tensor",
    refuse=FLOAT_ONLY,
)
def softplus_backward(m: Any, grad: Array, x: Array, beta: Any, limit: Any) -> Array:
    """grad times the slope of softplus."""
    z = x * beta
    return m.where(z > limit, grad, grad * sigmoid(m, z))


@pointwise("aten::log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor", refuse=FLOAT_ONLY)
def log_sigmoid_backward(m: Any, grad: Array, x: Array, buffer: Array) -> Array:
    """grad times the slope of log_sigmoid, given exp(-|x|)."""
    part = buffer / (1 + buffer)
    return grad * m.where(x < 0, 1 - part, part)


@pointwise("aten::logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor", refuse=FLOAT_ONLY)
def logit_backward(m: Any, grad: Array, x: Array, eps: float | None) -> Array:
    """grad / (x * (1 - x)); 0 outside [eps, 1 - eps], NaN outside [0, 1] without ``eps``."""
    low = 0.0 if eps is None else eps
    y = m.where((x == 0) | (x == 1), grad * math.inf, grad / (x * (1 - x)))
    return m.where((x < low) | (x > 1 - low), math.nan if eps is None else 0, y)


@library("aten::glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor")
def glu_backward(xp: Any, grad: Array, x: Array, dim: int) -> Array:
    """The gradients of both halves, joined along ``dim``."""
    if not -x.ndim <= dim < x.ndim or x.shape[dim] % 2:
        raise ShapeError(f"aten::glu_backward: dim {dim} of shape {x.shape} must exist and be even")
    if grad.shape[dim] * 2 != x.shape[dim]:
        raise ShapeError(
            f"aten::glu_backward: grad_output has shape {grad.shape}, half of {x.shape} along {dim} is needed"
        )
    if x.dtype.kind not in "fc":
        raise DTypeError(f"aten::glu_backward: {x.dtype} tensors are not supported; cast to a floating dtype first")
    half = x.shape[dim] // 2
    before = (slice(None),) * (dim % x.ndim)
    a, s = x[(*before, slice(half))], sigmoid(xp, x[(*before, slice(half, None))])
    return xp.concatenate((grad * s, grad * a * s * (1 - s)), axis=dim)


@pointwise(
    "aten::rrelu_with_noise_backward(Tensor grad_output, Tensor self, Tensor noise, Scalar lower, Scalar upper, "
    "bool training, bool self_is_result) -> Tensor",
    refuse=FLOAT_ONLY, out="out",
)  # fmt: skip
def rrelu_with_noise_backward(
    m: Any, grad: Array, x: Array, noise: Array, lower: Any, upper: Any, training: bool, self_is_result: bool
) -> Array:
    """grad times the slopes that were drawn, or their mean in inference."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return leaky_relu_backward(m, grad, x, (lower + upper) / 2, self_is_result)


@library("aten::_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)")
def prelu_kernel_backward(xp: Any, grad: Array, x: Array, weight: Array) -> tuple[Array, Array]:
    """The gradients of the input and of the broadcast weight."""
    above = x > 0
    return xp.where(above, grad, weight * grad), xp.where(above, 0, x * grad).astype(grad.dtype)


_gradient("Tensor grad_output, Tensor output", "sigmoid_backward")
_gradient("Tensor grad_output, Tensor output", "tanh_backward")
_gradient('Tensor grad_output, Tensor self, *, str approximate="none"', "gelu_backward")
_gradient("Tensor grad_output, Tensor self", "silu_backward")
_gradient("Tensor grad_output, Tensor self, Scalar threshold", "threshold_backward")
_gradient(
    "Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self_or_result",
    "elu_backward",
)
_gradient("Tensor grad_out, Tensor self, Scalar lambd", "hardshrink_backward")
_gradient("Tensor grad_output, Tensor self, Scalar lambd", "softshrink_backward")
_gradient("Tensor grad_output, Tensor self", "hardsigmoid_backward")
_gradient("Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val", "hardtanh_backward")
_gradient("Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result", "leaky_relu_backward")
_gradient("Tensor grad_output, Tensor self, Tensor buffer", "log_sigmoid_backward")
_gradient("Tensor grad_output, Tensor self, Scalar beta, Scalar threshold", "softplus_backward")
_gradient("Tensor grad_output, Tensor self, float? eps=None", "logit_backward")
_gradient("Tensor grad_output, Tensor self, int dim", "glu_backward")
