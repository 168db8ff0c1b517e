"""The vector functions by name: each writes LLVM IR for float32 or float64 vectors of any number of lanes.

At most 2 ulp in float32 over the whole range (gelu's two forms: 2 ulp of the argument, as PyTorch's), at most 4 in
float64, and C's answers at infinities, NaN, -0.0 and denormals. The polynomials are ours:
ci/fit_polynomials.py computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpujit.kernels import math_basic, math_error, math_exp, math_log, math_trig
from gpujit.kernels.vector import Emitter, Vector


class MathFunction(NamedTuple):
    """``build(emitter, *vectors)`` emits the function; ``arity`` vectors of one float type give one."""

    name: str
    arity: int
    build: Callable[..., Vector]

    def __call__(self, emitter: Emitter, *arguments: Vector) -> Vector:
        """Emits the function without fast-math flags, since its error-free steps must stay as they are."""
        flags, emitter.flags = emitter.flags, ()
        try:
            return self.build(emitter, *arguments)
        finally:
            emitter.flags = flags


_UNARY = (
    math_exp.exp, math_exp.exp2, math_exp.expm1, math_exp.tanh, math_exp.sigmoid, math_exp.silu, math_exp.sinh,
    math_exp.cosh, math_exp.gelu_tanh,
    math_log.log, math_log.log2, math_log.log10, math_log.log1p, math_log.softplus, math_log.log_sigmoid,
    math_log.asinh, math_log.acosh, math_log.atanh,
    math_trig.sin, math_trig.cos, math_trig.tan, math_trig.asin, math_trig.acos, math_trig.atan,
    math_error.erf, math_error.erfc, math_error.gelu,
    math_basic.sqrt, math_basic.rsqrt, math_basic.reciprocal, math_basic.floor, math_basic.ceil, math_basic.round,
    math_basic.trunc, math_basic.frac, math_basic.sign,
)  # fmt: skip
_BINARY = (math_log.pow, math_trig.atan2, math_basic.hypot, math_basic.fmod, math_basic.remainder)

FUNCTIONS: dict[str, MathFunction] = {
    f.__name__: MathFunction(f.__name__, arity, f) for arity, group in ((1, _UNARY), (2, _BINARY)) for f in group
}

# No functions of the program: exp of what is known not to be above 0, and division by what was inverted beforehand.
EXP_BELOW = MathFunction("exp_below", 1, math_exp.exp_below)
INVERSE = MathFunction("inverse", 1, math_basic.inverse)
QUOTIENT = MathFunction("quotient", 3, math_basic.quotient)
QUOTIENT_OF_LESS = MathFunction("quotient_of_less", 3, math_basic.quotient_of_less)
