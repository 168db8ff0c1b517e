"""What vector functions are measured against: the same in NumPy at higher precision, and errors in ulp."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpujit.kernels import native
from gpujit.kernels.emit import KernelWriter
from gpujit.kernels.math import FUNCTIONS, MathFunction
from gpujit.kernels.vector import Vector

Array = np.ndarray


def _exact(function: Callable[[float], float]) -> Callable[[Array], Array]:
    vectorised = np.vectorize(function, otypes=[np.float64])

    def call(x: Array) -> Array:
        return np.asarray(vectorised(x.astype(np.float64)))

    return call


_erfc = _exact(math.erfc)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu_tanh(x: Array) -> Array:
    root = math.sqrt(2 / math.pi)
    return x * _sigmoid(2 * root * (x + 0.044715 * x**3))


def _remainder(x: Array, y: Array) -> Array:
    """PyTorch's: fmod, moved to the sign of ``y``, and no sign given to zeros."""
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


REFERENCE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "tanh": np.tanh, "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x), "sinh": np.sinh, "cosh": np.cosh, "gelu_tanh": _gelu_tanh,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "softplus": _softplus,
    "log_sigmoid": lambda x: -_softplus(-x), "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "erf": _exact(math.erf), "erfc": _erfc, "gelu": lambda x: x * 0.5 * _erfc(-x * math.sqrt(0.5)),
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "frac": lambda x: x - np.trunc(x),
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
    "pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod, "remainder": _remainder,
}  # fmt: skip
# Where PyTorch's own formula loses relative accuracy as the result vanishes, errors count against x.
AGAINST_ARGUMENT = ("gelu", "gelu_tanh")
EXACT = ("sqrt", "floor", "ceil", "round", "trunc", "frac", "sign", "fmod", "remainder")


def build(of: str | MathFunction, dtype: str, lanes: int, avx512: bool | None = None) -> native.Kernel:
    """A kernel of the function over arrays: block of the inputs, the output, the number of elements."""
    function = FUNCTIONS[of] if isinstance(of, str) else of
    name = function.name
    writer = KernelWriter()
    with writer.kernel(f"sweep_{name}", avx512=avx512) as k:
        places = [k.pointer(slot) for slot in range(function.arity + 1)]

        def body(i: Vector, mask: Vector | None) -> None:
            arguments = [k.e.load(p, i.value, dtype, lanes, mask, other=1) for p in places[:-1]]
            k.e.store(places[-1], i.value, function(k.e, *arguments), mask=mask)

        k.vector_loop(k.integer(function.arity + 1), lanes, body)
    # The portable road also goes through the short list of LLVM's passes, so that both lists are tested.
    effort = native.TIDY if avx512 is False else 1
    return native.Library(native.compile_ir([str(writer)], effort)).kernel(f"sweep_{name}")


def apply(kernel: native.Kernel, *arguments: Array) -> Array:
    """The kernel's results for arrays of one size."""
    arrays = [np.ascontiguousarray(a) for a in arguments]
    out = np.empty_like(arrays[0])
    kernel(native.pack_block([*arrays, out, out.size]))
    return out


def ulps(got: Array, want: Array) -> Array:
    """|got - want| in units of the last place of ``want`` rounded to the type of ``got``; inf where one alone is NaN.

    An infinity counts as the number that would follow the largest one, so that overflow at the wrong place shows.
    """
    kind = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        beyond = np.ldexp(np.ones(1, want.dtype), int(kind.maxexp))[0]
        size = np.minimum(np.abs(rounded), kind.max)
        unit = np.maximum(np.spacing(size), kind.smallest_subnormal).astype(want.dtype)
        if got.dtype != want.dtype:
            difference = np.abs(_finite(got.astype(want.dtype), beyond) - _finite(want, beyond))
        else:
            difference = np.abs(got - want)
        error = np.where((got == rounded) & ~np.isfinite(rounded), 0, difference / unit)
    nan_got, nan_want = np.isnan(got), np.isnan(want)
    return np.asarray(np.where(nan_got & nan_want, 0, np.where(nan_got != nan_want, np.inf, error)))


def _finite(x: Array, beyond: float) -> Array:
    return np.where(np.isinf(x) | (np.abs(x) > beyond), np.sign(x) * beyond, x)


def worst(name: str, got: np.ndarray, want: np.ndarray, x: np.ndarray) -> tuple[float, str]:
    """The largest error, and where it is."""
    error = ulps(got, want)
    if name in AGAINST_ARGUMENT:
        with np.errstate(all="ignore"):
            unit = np.spacing(np.abs(x))
            against = np.abs(got.astype(np.float64) - want) / unit
        error = np.where(np.isfinite(want) & np.isfinite(against), np.minimum(error, against), error)
    at = int(np.argmax(error))
    return float(error[at]), f"{name}({x.flat[at]!r}) is {got[at]!r}, not {want[at]!r}: {error[at]:.2f} ulp"
