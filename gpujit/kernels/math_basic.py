"""Roots, remainders and parts of numbers, as vector expressions."""

from __future__ import annotations

import math

from llvmlite import ir

from gpujit.kernels.vector import Emitter, Vector


def sqrt(e: Emitter, x: Vector) -> Vector:
    """The square root; NaN below 0."""
    return e.sqrt(x)


def rsqrt(e: Emitter, x: Vector) -> Vector:
    """1 / sqrt(x)."""
    if e.avx512 and x.dtype == "float32" and x.lanes >= 4:
        y = e.rsqrt14(x)
        # One step from 14 bits to 24, of third order; at 0 and infinity the estimate is the answer.
        error = e.fma(-(x * y), y, 1.0)
        better = e.fma(y * error, e.fma(error, 0.375, 0.5), y)
        return e.select((x > 0) & (x < math.inf), better, y)
    return 1 / e.sqrt(x)


def reciprocal(e: Emitter, x: Vector) -> Vector:
    """1 / x."""
    return 1 / x


def inverse(e: Emitter, y: Vector) -> Vector:
    """What ``quotient`` takes for a divisor: 1 / y, or NaN where it shall divide."""
    small, large = (2.0**-100, 2.0**100) if y.dtype == "float32" else (2.0**-900, 2.0**900)
    return e.select((y >= small) & (y <= large), 1 / y, math.nan)


def quotient(e: Emitter, x: Vector, y: Vector, inverse_of_y: Vector) -> Vector:
    """x / y by a reciprocal that was computed before, as dividing rounds it but for denormal results.

    Five instructions take a fifth of the time of a division. What overflows on the way divides after all.
    """
    near = x * inverse_of_y
    # The remainder is exact. In this order -0.0 stays what it is.
    found = e.fma(-e.fma(near, y, -x), inverse_of_y, near)
    return e.unless_rare(found != found, found, lambda: x / y)


def quotient_of_less(e: Emitter, x: Vector, y: Vector, inverse_of_y: Vector) -> Vector:
    """``quotient`` for y from 1 on: nothing overflows, so that there is nothing to divide."""
    near = x * inverse_of_y
    found = e.fma(-e.fma(near, y, -x), inverse_of_y, near)
    # An infinite number leaves no remainder.
    return e.select(found != found, near, found)


def floor(e: Emitter, x: Vector) -> Vector:
    """The largest whole number not above."""
    return e.floor(x)


def ceil(e: Emitter, x: Vector) -> Vector:
    """The smallest whole number not below."""
    return e.ceil(x)


def round(e: Emitter, x: Vector) -> Vector:
    """The nearest whole number, halves to the even one."""
    return e.round(x)


def trunc(e: Emitter, x: Vector) -> Vector:
    """The whole number next to it towards 0."""
    return e.trunc(x)


def frac(e: Emitter, x: Vector) -> Vector:
    """x - trunc(x); NaN at infinities."""
    return x - e.trunc(x)


def sign(e: Emitter, x: Vector) -> Vector:
    """-1, 0 or 1; 0 for NaN, as PyTorch answers."""
    return e.select(x > 0, x.like(1), e.select(x < 0, x.like(-1), x.like(0)))


def hypot(e: Emitter, x: Vector, y: Vector) -> Vector:
    """sqrt(x * x + y * y) without overflow; infinite when either is."""
    infinite = (e.abs(x) == math.inf) | (e.abs(y) == math.inf)
    if x.dtype == "float32":
        a, b = e.cast(x, "float64"), e.cast(y, "float64")
        result = e.cast(e.sqrt(e.fma(a, a, b * b)), "float32")
    else:
        a, b = e.abs(x), e.abs(y)
        # Scaled by a power of two, which loses nothing but what is too small to count.
        large = (a > 2.0**500) | (b > 2.0**500)
        small = (a < 2.0**-450) & (b < 2.0**-450)
        scale = e.select(large, 2.0**-600, e.select(small, 2.0**600, x.like(1.0)))
        back = e.select(large, 2.0**600, e.select(small, 2.0**-600, x.like(1.0)))
        a, b = a * scale, b * scale
        result = e.sqrt(e.fma(a, a, b * b)) * back
    return e.select(infinite, math.inf, result)


def fmod(e: Emitter, x: Vector, y: Vector) -> Vector:
    """The remainder of x / y with the sign of ``x``, exact; NaN for y = 0 or infinite ``x``. In float64 throughout."""
    wide, divisor = e.cast(e.abs(x), "float64"), e.cast(e.abs(y), "float64")
    quotient = wide / divisor
    # Exact: below 2**53 the quotient is at most one off, and what is left is a multiple of y's last place under 2 y.
    rest = e.fma(e.trunc(quotient), -divisor, wide)

    def further() -> Vector:
        """Each step leaves 2**-53 of what was; quotients of float32 reach 2**277. float64 asks the C library."""
        if x.dtype == "float64":
            return Vector(e, e.builder.frem(wide.value, divisor.value), "float64", x.lanes)
        r = rest
        for _ in range(6):
            r = e.fma(e.trunc(r / divisor), -divisor, r)
        return r

    rest = e.unless_rare(quotient >= 2.0**53, rest, further)
    # A quotient rounded up to a whole number leaves a negative remainder.
    rest = e.select(rest < 0, rest + divisor, rest)
    rest = e.select(rest >= divisor, rest - divisor, rest)
    result = e.copysign(e.cast(rest, x.dtype), x)
    return e.select((e.abs(y) == math.inf) & (e.abs(x) < math.inf), x, result)


def remainder(e: Emitter, x: Vector, y: Vector) -> Vector:
    """The remainder of x / y with the sign of ``y``, as PyTorch's remainder and Python's %."""
    rest = fmod(e, x, y)
    wrong = (rest != 0) & ((y < 0) ^ (rest < 0))
    return e.select(wrong, rest + y, rest)


def integer_remainder(e: Emitter, x: Vector, y: Vector, floored: bool) -> Vector:
    """x % y of integers, with the sign of ``y`` if ``floored``, else of ``x``; ``y`` must not be 0."""
    b: ir.IRBuilder = e.builder
    if x.element.kind == "u":
        return Vector(e, b.urem(x.value, y.value), x.dtype, x.lanes)
    # The smallest integer by -1 overflows in hardware; every remainder by -1 is that by 1.
    y = e.select(y == -1, 1, y) if not floored else y
    safe = e.select(y == -1, 1, y)
    rest = Vector(e, b.srem(x.value, safe.value), x.dtype, x.lanes)
    if not floored:
        return rest
    wrong = (rest != 0) & ((y < 0) ^ (rest < 0))
    return e.select(wrong, rest + y, rest)
