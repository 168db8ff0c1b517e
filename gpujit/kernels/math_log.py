"""Logarithms and what is made of them, as vector expressions: log, log1p, softplus, pow, asinh, acosh, atanh."""

from __future__ import annotations

import math
from collections.abc import Callable

from gpujit.kernels import math_coefficients as c
from gpujit.kernels.math_exp import FORMATS, exp2_of, exp_moderate, power_of_two
from gpujit.kernels.vector import Emitter, Vector

_ROOT_BITS = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}
_SMALLEST = {"float32": 2.0**-126, "float64": 2.0**-1022}
_INF = math.inf


def split_normal(e: Emitter, x: Vector) -> tuple[Vector, Vector]:
    """(k, f) with x = 2**k * (1 + f), k whole and 1 + f between sqrt(1/2) and sqrt(2), for positive normal ``x``."""
    f = FORMATS[x.dtype]
    bits = e.bitcast(x, f.bits)
    k = (bits - _ROOT_BITS[x.dtype]) >> f.mantissa
    return e.cast(k, x.dtype), e.bitcast(bits - (k << f.mantissa), x.dtype) - 1


def split(e: Emitter, x: Vector) -> tuple[Vector, Vector]:
    """The same for any positive finite ``x``."""
    tiny = x < _SMALLEST[x.dtype]
    shift = FORMATS[x.dtype].mantissa + 1
    k, f = split_normal(e, e.select(tiny, x * 2.0**shift, x))
    return e.select(tiny, k - shift, k), f


Reader = Callable[[Vector, Vector], Vector]


def _logarithm(e: Emitter, x: Vector, of: Reader) -> Vector:
    """``of(k, f)`` for x = 2**k * (1 + f), with log's answers at 0, infinity, below 0 and at NaN."""
    f = FORMATS[x.dtype]
    unsigned = f.bits.replace("int", "uint")
    bits = e.bitcast(x, unsigned)
    first = 1 << f.mantissa
    infinity = (2 * f.bias + 1) << f.mantissa

    def special() -> Vector:
        result = e.select(x < _INF, of(*split(e, x)), x)
        result = e.select(x == 0, -_INF, result)
        return e.select(x < 0, math.nan, result)

    return e.unless_rare(bits - first >= infinity - first, of(*split_normal(e, x)), special)


def log_near_one(e: Emitter, f: Vector) -> tuple[Vector, Vector]:
    """log(1 + f) as f + rest, for 1 + f between sqrt(1/2) and sqrt(2)."""
    z = f * f
    if f.dtype == "float32":
        return f, e.fma(z, -0.5, z * f * e.polynomial(f, c.LOG32))
    s = f / (f + 2)
    s2, half = s * s, z * 0.5
    return f, e.fma(s, e.fma(s2 * 2, e.polynomial(s2, c.LOG64), half), -half)


def _log_of(e: Emitter, k: Vector, f: Vector) -> Vector:
    first, rest = log_near_one(e, f)
    ln2 = FORMATS[f.dtype].ln2
    return e.fma(k, ln2[0], first + e.fma(k, ln2[1], rest))


def log(e: Emitter, x: Vector) -> Vector:
    """The natural logarithm; NaN below 0, -inf at 0."""
    return _logarithm(e, x, lambda k, f: _log_of(e, k, f))


def _log_base(
    e: Emitter, x: Vector, tail: tuple[float, ...], slope: tuple[float, ...], two: tuple[float, ...]
) -> Vector:
    def of(k: Vector, f: Vector) -> Vector:
        if x.dtype == "float32":
            rest = e.fma(f * f, e.polynomial(f, tail), f * slope[1])
            near = e.fma(f, slope[0], e.fma(k, two[1], rest) if two[1] else rest)
        else:
            first, rest = log_near_one(e, f)
            # (first + rest) * slope with what each rounding loses.
            total = first + rest
            lost = rest - (total - first)
            product = total * slope[0]
            error = e.fma(total, slope[0], -product)
            near = product + (error + e.fma(total, slope[1], e.fma(lost, slope[0], k * two[1])))
        return e.fma(k, two[0], near)

    return _logarithm(e, x, of)


def log2(e: Emitter, x: Vector) -> Vector:
    """The logarithm to base 2."""
    slope = c.LOG2_E_32 if x.dtype == "float32" else c.LOG2_E_64
    return _log_base(e, x, c.LOG2_32, slope, (1.0, 0.0))


def log10(e: Emitter, x: Vector) -> Vector:
    """The logarithm to base 10."""
    if x.dtype == "float32":
        return _log_base(e, x, c.LOG10_32, c.LOG10_E_32, c.LOG10_2_32)
    return _log_base(e, x, (), c.LOG10_E_64, c.LOG10_2_64)


def log1p(e: Emitter, x: Vector) -> Vector:
    """log(1 + x), exact to the last places near 0."""
    f = FORMATS[x.dtype]
    bits = e.bitcast(x + 1, f.bits)
    k = (bits - _ROOT_BITS[x.dtype]) >> f.mantissa
    # x / 2**k + (1 / 2**k - 1) is rounded once, where 1 + x would lose the low bits of x.
    half = k >> 1
    first, second = power_of_two(e, -half, x.dtype), power_of_two(e, half - k, x.dtype)
    near = e.fma(x * first, second, e.fma(first, second, -1.0))
    result = e.select(x < _INF, _log_of(e, e.cast(k, x.dtype), near), x)
    result = e.select(x == -1, -_INF, result)
    # Keeps -0.0.
    result = e.select(x == 0, x, result)
    return e.select(x < -1, math.nan, result)


def softplus(e: Emitter, x: Vector) -> Vector:
    """log(1 + exp(x)), which does not overflow."""
    low = FORMATS[x.dtype].low
    below = e.select(e.abs(x) > -low, low, -e.abs(x))
    rest = log1p(e, exp_moderate(e, below, careful=True))
    return e.select(x > 0, x + rest, rest)


def log_sigmoid(e: Emitter, x: Vector) -> Vector:
    """log(sigmoid(x))."""
    return -softplus(e, -x)


def _log2_medium(e: Emitter, x: Vector) -> Vector:
    """log2 of a positive finite float64 to 30 bits and more, also relative to a small result."""
    # float32's denormals are normal here; 0 and what is not finite is set right by the caller.
    k, f = split_normal(e, x)
    s = f * e.reciprocal_medium(f + 2)
    z = s * s
    slope = 2 * c.LOG2_E_64[0]
    return e.fma(e.fma(s * z, e.polynomial(z, c.LOG_MEDIUM), s), slope, k)


def _log2_double(e: Emitter, x: Vector) -> tuple[Vector, Vector]:
    """log2 of a positive finite float64 as a sum of two, to 64 bits and more."""
    k, f = split(e, x)
    # s = f / (2 + f) in two parts: 2 atanh(s) = log(1 + f).
    below = f + 2
    below_lost = f - (below - 2)
    s = f / below
    s_lost = e.fma(s, -below, f) / below - s * below_lost / below
    z = s * s
    z_lost = e.fma(s, s, -z) + 2 * s * s_lost
    cube = s * z
    cube_lost = e.fma(s, z, -cube) + e.fma(s, z_lost, s_lost * z)
    # The polynomial's first term carries what the others are too small to lose.
    others = z * e.polynomial(z, c.LOG64[1:])
    weight = others + c.LOG64[0]
    weight_lost = others - (weight - c.LOG64[0])
    tail = cube * weight
    tail_lost = e.fma(cube, weight, -tail) + e.fma(cube, weight_lost, cube_lost * weight)
    high = s + tail
    low = tail - (high - s) + tail_lost + s_lost
    slope, slope_lost = 2 * c.LOG2_E_64[0], 2 * c.LOG2_E_64[1]
    product = high * slope
    lost = e.fma(high, slope, -product) + e.fma(low, slope, high * slope_lost)
    total = k + product
    # k is 0 or larger than the product.
    return total, product - (total - k) + lost


def pow(e: Emitter, x: Vector, y: Vector) -> Vector:
    """``x`` to the ``y``: sign by odd whole ``y``, NaN for ``x < 0`` and fractional ``y``, 1 for y = 0 or x = 1."""
    dtype = x.dtype
    size = e.abs(x)
    # Above this every float is even.
    limit = 2.0 ** (FORMATS[dtype].mantissa + 1)
    whole = e.trunc(y) == y
    odd = whole & (e.trunc(y * 0.5) != y * 0.5) & (e.abs(y) < limit)
    if dtype == "float32":
        wide = e.cast(size, "float64")
        exponent = _log2_medium(e, wide) * e.cast(y, "float64")
        result = e.cast(exp2_of(e, exponent, c.EXP2_MEDIUM), "float32")
    else:
        high, low = _log2_double(e, size)
        product = high * y
        lost = e.fma(high, y, -product)
        correction = e.fma(low, y, lost)
        # The correction of the exponent, as a factor near 1; none where the exponent is out of range anyway.
        fits = e.abs(product) < 1100.0
        factor = e.select(fits, e.fma(correction, c.LN2_64[0], 1.0), 1.0)
        result = exp2_of(e, product, FORMATS[dtype].exp2) * factor
    one = x.like(1.0)
    # Infinite and zero bases: 0 or infinity by the signs of log|x| and y.
    grows = (size > one) == (y > 0)
    edge = (size == 0) | (size == _INF) | (e.abs(y) == _INF)
    result = e.select(edge, e.select(grows, x.like(_INF), x.like(0.0)), result)
    result = e.select((size == one) & (e.abs(y) == _INF), one, result)
    negative = e.bitcast(x, FORMATS[dtype].bits) < 0
    result = e.select(negative & odd, -result, result)
    result = e.select((x < 0) & ~whole & (size != _INF), math.nan, result)
    result = e.select((x != x) | (y != y), math.nan, result)
    return e.select((y == 0) | (x == one), one, result)


def _in_double(e: Emitter, x: Vector) -> Vector:
    return e.cast(x, "float64")


def asinh(e: Emitter, x: Vector) -> Vector:
    """The inverse of sinh. float32 is computed in float64."""
    a = _in_double(e, e.abs(x))
    huge = a > 2.0**500
    a2 = a * a
    # log(2 a) where a * a would overflow.
    near = log1p(e, a + a2 / (e.sqrt(a2 + 1) + 1))
    if x.dtype == "float64":
        near = e.select(huge, log(e, a) + c.LN2_64[0], near)
    else:
        near = e.select(a == _INF, a, near)
    return e.copysign(e.cast(near, x.dtype), x)


def acosh(e: Emitter, x: Vector) -> Vector:
    """The inverse of cosh; NaN below 1. float32 is computed in float64."""
    a = _in_double(e, x)
    t = a - 1
    near = log1p(e, t + e.sqrt(t * (a + 1)))
    if x.dtype == "float64":
        near = e.select(a > 2.0**500, log(e, a) + c.LN2_64[0], near)
    return e.cast(e.select(a < 1, math.nan, near), x.dtype)


def atanh(e: Emitter, x: Vector) -> Vector:
    """The inverse of tanh; NaN beyond 1, infinite at 1."""
    a = e.abs(x)
    if x.dtype == "float64":
        return e.copysign(log1p(e, (a + a) / (1 - a)) * 0.5, x)
    z = a * a
    small = e.fma(a * z, e.polynomial(z, c.ATANH32), a)
    # From 1/2 on the argument of log is exact but for one rounding.
    large = log(e, (a + 1) / (1 - a)) * 0.5
    return e.copysign(e.select(a < 0.5, small, large), x)
