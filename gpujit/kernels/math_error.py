"""The error function, its complement and gelu, as vector expressions."""

from __future__ import annotations

import math

from gpujit.kernels import math_coefficients as c
from gpujit.kernels.math_exp import exp, exp2_of, exp_minus, exp_moderate
from gpujit.kernels.vector import Emitter, Vector

_ROOT_HALF = math.sqrt(0.5)


def _erf_table(e: Emitter, x: Vector) -> Vector:
    """By a polynomial around the nearest quarter, whose coefficients come from tables."""
    a = e.abs(x)
    # From here on 1 is the nearest float, or next to it.
    a = e.select(a > 3.87, 3.87, a)
    magic = 1.5 * 2.0**21
    shifted = a + magic
    u = a - (shifted - magic)
    index = e.bitcast(shifted, "int32")
    result = e.look_up(c.ERF_TABLE[-1], index)
    for row in reversed(c.ERF_TABLE[1:-1]):
        result = e.fma(result, u, e.look_up(row, index))
    # Around 0, up to 1/8, which is rounded to 0, the polynomial is that of erf(a) - a.
    return e.copysign(e.fma(result, u, e.select(a > 0.125, e.look_up(c.ERF_TABLE[0], index), a)), x)


def erf(e: Emitter, x: Vector) -> Vector:
    """The error function."""
    if e.has_table(x):
        return _erf_table(e, x)
    a = e.abs(x)
    z = x * x
    if x.dtype == "float64":
        small = e.fma(a, e.polynomial(z, c.ERF64), a)
        return e.copysign(e.select(a < 1, small, 1 - erfc(e, a)), x)
    small = e.fma(a, e.polynomial(z, c.ERF32), a)
    # From 4 on the result is 1.
    large = 1 - exp_moderate(e, e.polynomial(e.select(a > 4, 4.0, a), c.LOG_ERFC32))
    return e.copysign(e.select(a < 1, small, large), x)


def _erfc_table(e: Emitter, x: Vector) -> Vector:
    """exp(-x * x), with what rounding takes from it, times a polynomial around the middle of a quarter of an octave."""
    a = e.abs(x)
    # No number is small enough from here on, and rounding down to 0 takes long.
    nothing = a > 10.1
    a = e.select(nothing, 0.0, a)
    column, u, _ = e.octave_quarter(a)
    scaled = e.look_up_wide(c.ERFCX_TABLE[-1], column)
    for row in reversed(c.ERFCX_TABLE[:-1]):
        scaled = e.fma(scaled, u, e.look_up_wide(row, column))
    square = a * a
    near, rest, w = exp_minus(e, square, e.fma(a, a, -square))
    result = e.scale(e.fma(near, scaled, rest * scaled), w, e.cast(w, "int32"))
    result = e.select(nothing, 0.0, result)
    return e.select(x < 0, 2 - result, result)


def erfc(e: Emitter, x: Vector) -> Vector:
    """1 - erf(x), relatively exact for large ``x``. float32 without tables is computed in float64."""
    if e.has_table(x):
        return _erfc_table(e, x)
    single = x.dtype == "float32"
    wide = e.cast(x, "float64")
    a = e.abs(wide)
    a = e.select(a > (11.0 if single else 28.0), 11.0 if single else 28.0, a)
    square = a * a
    if single:
        # One reciprocal for both quotients: of (a + 4) * (2 a + 1).
        weight = e.fma(a, 2.0, 1.0)
        both = e.reciprocal_medium((a + 4) * weight)
        bell = exp2_of(e, square * -c.LOG2_E_64[0], c.EXP2_MEDIUM)
        result = e.polynomial((a - 4) * weight * both, c.ERFCX_MEDIUM) * ((a + 4) * both) * bell
    else:
        q = (a - 4) / (a + 4)
        # exp takes the rounded square; what was lost is a factor near 1.
        bell = exp(e, -square) * (1 - e.fma(a, a, -square))
        result = e.polynomial(q, c.ERFCX64) / e.fma(a, 2.0, 1.0) * bell
        # Near 1 the next float below is close, and the product's three roundings would show.
        result = e.select(a < 0.5, 1 - e.fma(a, e.polynomial(square, c.ERF64), a), result)
    return e.cast(e.select(wide < 0, 2 - result, result), x.dtype)


def gelu(e: Emitter, x: Vector) -> Vector:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    return x * 0.5 * (erf(e, x * _ROOT_HALF) + 1)
