"""Activations, softmax and its kin."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), element by element."""
    if inplace:
        return ops.relu_(input)
    return ops.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x within 0 and 6, element by element."""
    if inplace:
        return ops.relu6_(input)
    return ops.relu6(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it exceeds ``threshold``, ``value`` elsewhere."""
    if inplace:
        return ops.threshold_(input, threshold, value)
    return ops.threshold(input, threshold, value)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x within ``min_val`` and ``max_val``. Raises LayerError when they are in the wrong order."""
    if min_val > max_val:
        raise LayerError(f"hardtanh: min_val {min_val} exceeds max_val {max_val}")
    if inplace:
        return ops.hardtanh_(input, min_val, max_val)
    return ops.hardtanh(input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6, element by element."""
    if inplace:
        return ops.hardswish_(input)
    return ops.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6, element by element."""
    if inplace:
        return ops.hardsigmoid_(input)
    return ops.hardsigmoid(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    if inplace:
        return ops.elu_(input, alpha)
    return ops.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The scaled exponential linear unit, whose constants keep mean and variance."""
    if inplace:
        return ops.selu_(input)
    return ops.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere."""
    if inplace:
        return ops.celu_(input, alpha)
    return ops.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, ``negative_slope * x`` elsewhere."""
    if inplace:
        return ops.leaky_relu_(input, negative_slope)
    return ops.leaky_relu(input, negative_slope)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """x where positive, x times a slope elsewhere: drawn per element in training, the mean of the range otherwise."""
    if training:
        noise = ops.empty_like(input)
        if inplace:
            return ops.rrelu_with_noise_(input, noise, lower, upper, True)
        return ops.rrelu_with_noise(input, noise, lower, upper, True)
    if inplace:
        return ops.rrelu_(input, lower, upper)
    return ops.rrelu(input, lower, upper)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), element by element."""
    if inplace:
        return ops.silu_(input)
    return ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)), element by element."""
    if inplace:
        return ops.mish_(input)
    return ops.mish(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along ``dim`` times the sigmoid of the second."""
    return ops.glu(input, dim)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), element by element."""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent, element by element."""
    return ops.tanh(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x), element by element."""
    return ops.sub(input, ops.tanh(input))


def softsign(input: Tensor) -> Tensor:
    """x / (1 + abs(x)), element by element."""
    return ops.div(input, ops.add(ops.abs(input), 1))


def softmax_dim(ndim: int) -> int:
    """The dimension softmax takes when none is given: the first of 0, 1 or 3 dimensions, else the second."""
    if ndim == 0 or ndim == 1 or ndim == 3:
        return 0
    return 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    """exp(x) over its sum along ``dim``, computed in ``dtype`` if given."""
    if dim is None:
        dim = softmax_dim(input.ndim)
    return ops.softmax(input, dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    """Softmax of -x."""
    if dim is None:
        dim = softmax_dim(input.ndim)
    return ops.softmax(ops.neg(input), dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    """The logarithm of softmax."""
    if dim is None:
        dim = softmax_dim(input.ndim)
    return ops.log_softmax(input, dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A draw from the Gumbel-softmax distribution; with ``hard``, 1 at its maximum along ``dim`` and 0 elsewhere."""
    noise = ops.neg(ops.log(ops.exponential_(ops.empty_like(logits))))
    soft = ops.softmax(ops.div(ops.add(logits, noise), tau), dim)
    if hard:
        index = ops.argmax(soft, dim, True)
        return ops.scatter(ops.zeros_like(logits), dim, index, 1.0)
    return soft
