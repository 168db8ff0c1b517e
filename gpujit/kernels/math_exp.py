"""Exponentials and what is made of them, as vector expressions: exp, tanh, sigmoid, silu, softplus, sinh, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpujit.kernels import math_coefficients as c
from gpujit.kernels.vector import Emitter, Vector


class Format(NamedTuple):
    """What a float format needs for splitting and scaling.

    ``low`` and ``high`` clamp the argument of exp; from ``smooth`` on up to minus that its results are normal numbers.
    """

    bits: str
    mantissa: int
    bias: int
    low: float
    high: float
    smooth: float
    ln2: tuple[float, ...]
    log2_e: float
    exp: tuple[float, ...]
    exp2: tuple[float, ...]

    @property
    def magic(self) -> float:
        """Added to a small number, leaves the number's nearest integer in the low bits."""
        return 1.5 * 2.0**self.mantissa


FORMATS = {
    "float32": Format("int32", 23, 127, -104.0, 89.0, -87.0, c.LN2_32, c.LOG2_E_32[0], c.EXP32, c.EXP2_32),
    "float64": Format("int64", 52, 1023, -746.0, 710.0, -708.0, c.LN2_64, c.LOG2_E_64[0], c.EXP64, c.EXP2_64),
}


def power_of_two(e: Emitter, n: Vector, dtype: str) -> Vector:
    """2 to an integer within the exponents of normal numbers."""
    f = FORMATS[dtype]
    return e.bitcast((n + f.bias) << f.mantissa, dtype)


def nearest(e: Emitter, x: Vector, scale: float) -> tuple[Vector, Vector]:
    """The whole number nearest to ``x * scale``, as a float and as an integer; for products well under 2**mantissa."""
    f = FORMATS[x.dtype]
    shifted = e.fma(x, x.like(scale), f.magic)
    magic = e.constant(x.dtype, 1, f.magic)
    integer = e.bitcast(shifted, f.bits) - e.broadcast(e.bitcast(magic, f.bits), x.lanes)
    return Vector(e, e.builder.fsub(shifted.value, x.like(f.magic).value), x.dtype, x.lanes), integer


def reduced(e: Emitter, x: Vector) -> tuple[Vector, Vector, Vector]:
    """(exp(r) - 1, n, n) with x = n * ln 2 + r and |r| <= ln 2 / 2, for clamped ``x``; n as float and integer."""
    f = FORMATS[x.dtype]
    whole, n = nearest(e, x, f.log2_e)
    r = e.fma(whole, -f.ln2[0], x)
    r = e.fma(whole, -f.ln2[1], r)
    return e.fma(r * r, e.polynomial(r, f.exp), r), whole, n


def _exp_parts(e: Emitter, x: Vector, careful: bool) -> tuple[Vector, Vector, Vector, Vector]:
    """(a, b, w, n) with exp(x) = (a + b) * 2**w, ``b`` what ``a`` lost, for a clamped argument; n is w as an integer.

    Without ``careful`` b is less than a few ulp of a, and nothing at all is promised about it.
    """
    if not e.has_table(x):
        less_one, whole, n = reduced(e, x)
        near = less_one + 1
        return near, less_one - (near - 1), whole, n
    # x = w * ln 2 + r with w in sixteenths: this magic number leaves w's fraction in the low four bits.
    magic = 1.5 * 2.0**19
    shifted = e.fma(x, c.LOG2_E_32[0], magic)
    w = shifted - magic
    r = e.fma(w, -c.LN2_32[0], x)
    r = e.fma(w, -c.LN2_32[1], r)
    index = e.bitcast(shifted, "int32")
    # scalef, which follows, rounds its exponent down to a whole number.
    if careful:
        return *_by_table(e, r, index), w, index
    power = e.look_up(c.EXP2_TABLE[0], index)
    less_one = e.fma(r * r, e.polynomial(r, c.EXP_SHORT), r)
    return e.fma(power, less_one, power), less_one, w, index


def exp_minus(e: Emitter, x: Vector, rest: Vector) -> tuple[Vector, Vector, Vector]:
    """(a, b, w) with exp(-x - rest) = (a + b) * 2**w for float32 x from 0 to 104 and a small ``rest``, by tables."""
    magic = 1.5 * 2.0**19
    shifted = e.fma(x, -c.LOG2_E_32[0], magic)
    w = shifted - magic
    r = e.fma(w, -c.LN2_32[0], -x)
    r = e.fma(w, -c.LN2_32[1], r) - rest
    return *_by_table(e, r, e.bitcast(shifted, "int32")), w


def _by_table(e: Emitter, r: Vector, index: Vector) -> tuple[Vector, Vector]:
    """exp(r) * 2**(index / 16) in two parts, of which the second is what rounding took from the first."""
    power = e.look_up(c.EXP2_TABLE[0], index)
    less_one = e.fma(r * r, e.polynomial(r, c.EXP_SHORT), r)
    rest = e.fma(power, less_one, e.look_up(c.EXP2_TABLE[1], index))
    near = power + rest
    return near, rest - (near - power)


def exp_moderate(e: Emitter, x: Vector, careful: bool = False) -> Vector:
    """exp of a clamped argument, within 1.1 ulp, or 0.7 if ``careful`` and the machine has tables."""
    near, _, w, n = _exp_parts(e, x, careful)
    return e.scale(near, w, n)


def exp(e: Emitter, x: Vector) -> Vector:
    """e to the ``x``."""
    f = FORMATS[x.dtype]
    return _exp_from(e, x, f.low, lambda y: e.select(y > f.high, f.high, y))


def exp_below(e: Emitter, x: Vector) -> Vector:
    """e to the ``x`` up to 0."""
    return _exp_from(e, x, FORMATS[x.dtype].low, lambda y: y)


def exp_normal(e: Emitter, x: Vector) -> Vector:
    """e to the ``x`` up to 0, and 0 where that is less than normal numbers: to compute with those takes far longer."""
    return _exp_from(e, x, FORMATS[x.dtype].smooth, lambda y: y)


def _exp_from(e: Emitter, x: Vector, low: float, clamped: Callable[[Vector], Vector]) -> Vector:
    """e to the ``x``, 0 below ``low``."""
    if not e.has_scale(x):
        return _unless_nothing(e, x, low, lambda y: exp_moderate(e, clamped(y)))
    # The last instruction makes 0 of whatever came out below: nothing waits for the comparison.
    near, _, w, n = _exp_parts(e, clamped(x), careful=False)
    return e.scale(near, w, n, kept=~(x < low))


def _unless_nothing(e: Emitter, x: Vector, low: float, build: Callable[[Vector], Vector]) -> Vector:
    """``build(x)``, and 0 below ``low``, where no number is small enough.

    Masks are made of such arguments, and processors take a hundred times as long to round a result down to 0.
    """
    nothing = x < low
    return e.select(nothing, 0.0, build(e.select(nothing, 0.0, x)))


def exp_half(e: Emitter, x: Vector) -> Vector:
    """exp(x) / 2, which overflows later than exp."""
    f = FORMATS[x.dtype]
    less_one, whole, n = reduced(e, e.clamp(x, f.low, f.high + 1))
    return e.scale(less_one + 1, whole - 1, n - 1)


def exp2_of(e: Emitter, x: Vector, coefficients: tuple[float, ...]) -> Vector:
    """2 to the ``x`` by a polynomial for (2**x - 1) / x."""
    f = FORMATS[x.dtype]
    limit = float(f.bias)

    def build(y: Vector) -> Vector:
        y = e.select(y > limit + 1, limit + 1, y)
        whole, n = nearest(e, y, 1.0)
        r = y - whole
        return e.scale(e.fma(r, e.polynomial(r, coefficients), 1.0), whole, n)

    return _unless_nothing(e, x, -(limit + f.mantissa + 1), build)


def exp2(e: Emitter, x: Vector) -> Vector:
    """2 to the ``x``."""
    return exp2_of(e, x, FORMATS[x.dtype].exp2)


def expm1(e: Emitter, x: Vector) -> Vector:
    """exp(x) - 1, exact to the last places near 0."""
    f = FORMATS[x.dtype]
    clamped = e.clamp(x, -2.0 * f.mantissa, f.high)
    less_one, _, n = reduced(e, clamped)
    # Half the scale, doubled at the end: 2**n itself is no float just below the overflow.
    scale = power_of_two(e, n - 1, x.dtype)
    large = e.fma(less_one, scale, scale - 0.5) * 2
    # Without scaling the low bits of denormals live, and -0.0 keeps its sign.
    return e.copysign(e.select(n == 0, less_one, large), x)


def _logistic(e: Emitter, x: Vector, weight: Vector | None) -> Vector:
    """weight * sigmoid(x); ``weight`` is x itself, or None for 1."""
    f = FORMATS[x.dtype]
    near, lost, w, n = _exp_parts(e, -x, careful=True)
    bell = e.scale(near, w, n)
    below = bell + 1
    # The reciprocal, corrected by its own remainder and by what rounding took from the sum.
    larger, smaller = e.select(bell > 1, bell, 1.0), e.select(bell < 1, bell, 1.0)
    lost = e.scale(lost, w, n) + (smaller - (below - larger))
    ratio = e.reciprocal_close(below)
    ratio = e.fma(e.fma(-ratio, lost, e.fma(-ratio, below, 1.0)), ratio, ratio)
    usual = ratio if weight is None else weight * ratio

    def far() -> Vector:
        """As exp(x) is small against 1 here, it is the result; lower than exp needs, for the weight comes first."""
        less_one, whole, n = reduced(e, e.clamp(x, 1.1 * f.low, 0.0))
        factor = x.like(1.0) if weight is None else weight
        small = e.scale(e.fma(less_one, factor, factor), whole, n)
        # -inf * 0 is NaN, which PyTorch answers too.
        small = e.select(x < 1.1 * f.low, factor * 0.0, small)
        return e.select(x > -f.smooth, factor, e.select(x < f.smooth, small, usual))

    return e.unless_rare(e.abs(x) > -f.smooth, usual, far)


def sigmoid(e: Emitter, x: Vector) -> Vector:
    """1 / (1 + exp(-x)), with small results down to the denormals."""
    return _logistic(e, x, None)


def silu(e: Emitter, x: Vector) -> Vector:
    """x * sigmoid(x)."""
    return _logistic(e, x, x)


def _tanh_table(e: Emitter, x: Vector) -> Vector:
    """By a polynomial around the middle of a quarter of an octave."""
    size = e.abs(x)
    is_one = size > 9.02
    a = e.select(is_one, 9.0, size)
    column, u, below = e.octave_quarter(a)
    result = e.look_up_wide(c.TANH_TABLE[-1], column)
    for row in reversed(c.TANH_TABLE[1:-1]):
        result = e.fma(result, u, e.look_up_wide(row, column))
    # Below an eighth the polynomial is that of tanh(a) - a.
    first = e.select(below, a, e.look_up_wide(c.TANH_TABLE[0], column))
    return e.copysign(e.select(is_one, 1.0, e.fma(result, u, first)), x)


def tanh(e: Emitter, x: Vector) -> Vector:
    """The hyperbolic tangent."""
    if e.has_table(x):
        return _tanh_table(e, x)
    f = FORMATS[x.dtype]
    size = e.abs(x)
    if x.dtype == "float32":
        z = x * x
        small = e.fma(x * z, e.polynomial(z, c.TANH32), x)
        large = 1 - e.reciprocal_close((exp_moderate(e, e.select(size > 10, 10.0, size) * 2) + 1) * 0.5)
        return e.select(size < 0.55, small, e.copysign(large, x))
    double = e.select(size > f.mantissa / 2, float(f.mantissa), size * 2)
    less_one, _, n = reduced(e, double)
    scale = power_of_two(e, n, x.dtype)
    t = e.fma(less_one, scale, scale - 1)
    return e.copysign(t / (t + 2), x)


def sinh(e: Emitter, x: Vector) -> Vector:
    """The hyperbolic sine."""
    size = e.abs(x)
    half = exp_half(e, size)
    z = x * x
    tail = e.polynomial(z, c.SINH32 if x.dtype == "float32" else c.SINH64)
    small = e.fma(size * z, tail, size)
    return e.copysign(e.select(size < 1, small, half - 0.25 / half), x)


def cosh(e: Emitter, x: Vector) -> Vector:
    """The hyperbolic cosine."""
    half = exp_half(e, e.abs(x))
    return half + 0.25 / half


def gelu_tanh(e: Emitter, x: Vector) -> Vector:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x**3), as x * sigmoid(2 u)."""
    u = x * e.fma(x * x, 2 * 0.7978845608028654 * 0.044715, 2 * 0.7978845608028654)
    return x * sigmoid(e, u)
