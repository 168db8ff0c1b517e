"""First values of parameters: PyTorch's functions, and for equal seeds its very numbers.

Each fills the array it is given, in place, and returns it. ``generator`` is the stream to draw from; None is the
default one, which ``gpujit.manual_seed`` starts anew.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from gpujit import ops
from gpujit.nn.parameter import to_array
from gpujit.nn.typing import Tensor
from gpujit.ops.families.random.random import fill
from gpujit.ops.families.random.samplers import normal_numbers, uniform_numbers
from gpujit.ops.generator import Generator
from gpujit.support.errors import LayerError

_GAIN_ONE = (
    "linear", "identity", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "sigmoid",
)  # fmt: skip


_F = TypeVar("_F", bound=Callable[..., Any])
_SKIPPED: ContextVar[bool] = ContextVar("gpujit.nn first values are skipped", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """While it lasts the functions below leave arrays as they are, and draw nothing."""
    token = _SKIPPED.set(True)
    try:
        yield
    finally:
        _SKIPPED.reset(token)


def _fills(function: _F) -> _F:
    """The same, but for ``skipped``."""

    @wraps(function)
    def call(tensor: Any, *args: Any, **kwargs: Any) -> Tensor:
        return _array(tensor) if _SKIPPED.get() else function(tensor, *args, **kwargs)

    return cast(_F, call)


def _array(tensor: Any) -> Tensor:
    return to_array(tensor, "init")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the size of numbers through an activation; ``param`` is leaky_relu's slope.

    Raises LayerError for an unknown activation, or a slope that is no number.
    """
    if nonlinearity in _GAIN_ONE:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise LayerError(f"calculate_gain: the slope of leaky_relu must be a number, found {param!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise LayerError(f"calculate_gain: no gain is known for {nonlinearity!r}")


@_fills
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers from ``a`` to below ``b``."""
    return fill(np, _array(tensor), generator, uniform_numbers, float(a), float(b))


@_fills
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers."""
    return fill(np, _array(tensor), generator, normal_numbers, float(mean), float(std))


@_fills
def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers within ``a`` and ``b``: those outside are drawn again."""
    x = _array(tensor)
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("trunc_normal_: the mean is more than 2 std outside the bounds", stacklevel=2)

    def below(edge: float) -> float:
        return (1.0 + math.erf((edge - mean) / std / math.sqrt(2.0))) / 2.0

    if below(b) - below(a) > 0.3:
        low, high = x.dtype.type(a), x.dtype.type(b)
        normal_(x, mean, std, generator)
        while True:
            outside = (x < low) | (x > high)
            if not outside.any():
                return x
            x[outside] = normal_(np.empty_like(x), mean, std, generator)[outside]
    # Few normal numbers would fall inside: uniform ones are kept with a chance that follows the density.
    mode = max(a, min(mean, b))
    log_peak = -0.5 * ((mode - mean) / std) ** 2
    pending: Tensor = np.ones(x.shape, bool)
    drawn, chance = np.empty_like(x), np.empty_like(x)
    while pending.any():
        uniform_(drawn, a, b, generator)
        x[pending] = drawn[pending]
        log_density = ops.sub_(ops.mul_(ops.pow_(ops.div_(ops.sub(drawn, mean), std), 2), -0.5), log_peak)
        pending &= ops.log(uniform_(chance, 0.0, 1.0, generator)) > log_density
    return x


@_fills
def constant_(tensor: Any, val: float) -> Tensor:
    """One value everywhere."""
    x = _array(tensor)
    x[...] = val
    return x


def ones_(tensor: Any) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


@_fills
def eye_(tensor: Any) -> Tensor:
    """The identity matrix. Raises LayerError unless there are 2 dimensions."""
    x = _array(tensor)
    if x.ndim != 2:
        raise LayerError(f"eye_: 2 dimensions are needed, found {x.ndim}")
    x[...] = np.eye(*x.shape)
    return x


@_fills
def dirac_(tensor: Any, groups: int = 1) -> Tensor:
    """A convolution's weight that passes on its input, as far as there are channels, in each group."""
    x = _array(tensor)
    if x.ndim not in (3, 4, 5):
        raise LayerError(f"dirac_: 3 to 5 dimensions are needed, found {x.ndim}")
    if x.shape[0] % groups != 0:
        raise LayerError(f"dirac_: {x.shape[0]} output channels cannot be divided into {groups} groups")
    per_group = x.shape[0] // groups
    centre = tuple(n // 2 for n in x.shape[2:])
    x[...] = 0
    for g in range(groups):
        for i in range(min(per_group, x.shape[1])):
            x[(g * per_group + i, i, *centre)] = 1
    return x


def _fans(x: Tensor, op: str) -> tuple[int, int]:
    """How many inputs each output reads, and how many outputs each input reaches."""
    if x.ndim < 2:
        raise LayerError(f"{op}: at least 2 dimensions are needed, found {x.ndim}")
    field = math.prod(x.shape[2:])
    return x.shape[1] * field, x.shape[0] * field


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers of variance ``gain**2 * 2 / (fan_in + fan_out)``."""
    x = _array(tensor)
    std = gain * math.sqrt(2.0 / float(sum(_fans(x, "xavier_uniform_"))))
    bound = math.sqrt(3.0) * std
    return uniform_(x, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers of variance ``gain**2 * 2 / (fan_in + fan_out)``."""
    x = _array(tensor)
    return normal_(x, 0.0, gain * math.sqrt(2.0 / float(sum(_fans(x, "xavier_normal_")))), generator)


def _kaiming_std(x: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise LayerError(f"kaiming: mode must be fan_in or fan_out, found {mode!r}")
    fan = _fans(x, "kaiming")[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers of variance ``gain**2 / fan``; ``a`` is leaky_relu's slope."""
    x = _array(tensor)
    if 0 in x.shape:
        return x
    bound = math.sqrt(3.0) * _kaiming_std(x, a, mode, nonlinearity)
    return uniform_(x, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers of variance ``gain**2 / fan``; ``a`` is leaky_relu's slope."""
    x = _array(tensor)
    if 0 in x.shape:
        return x
    return normal_(x, 0.0, _kaiming_std(x, a, mode, nonlinearity), generator)


@_fills
def orthogonal_(tensor: Any, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """``gain`` times a matrix with orthonormal rows or columns, whichever are fewer; rows are the first dimension."""
    x = _array(tensor)
    if x.ndim < 2:
        raise LayerError(f"orthogonal_: at least 2 dimensions are needed, found {x.ndim}")
    if x.size == 0:
        return x
    rows = x.shape[0]
    flat = normal_(np.empty((rows, x.size // rows), x.dtype), 0.0, 1.0, generator)
    wide = rows < flat.shape[1]
    q, r = ops.linalg_qr(np.ascontiguousarray(flat.T) if wide else flat)
    # The factorisation is unique with a positive diagonal.
    q = q * np.sign(np.diagonal(r))
    x[...] = (q.T if wide else q).reshape(x.shape) * x.dtype.type(gain)
    return x


@_fills
def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal numbers, a part ``sparsity`` of each column zero."""
    x = _array(tensor)
    if x.ndim != 2:
        raise LayerError(f"sparse_: 2 dimensions are needed, found {x.ndim}")
    normal_(x, 0.0, std, generator)
    zeros = math.ceil(sparsity * x.shape[0])
    for column in range(x.shape[1]):
        x[ops.randperm(x.shape[0])[:zeros], column] = 0
    return x
