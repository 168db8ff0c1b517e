"""Activations to a few ulp, without branches and divisions: for sums of products, whose own rounding errors are larger.

They take a third of the instructions of the functions in ``math_exp``. What differs besides the last bits: results
below 1e-34 are not exact.
"""

from __future__ import annotations

from gpujit.kernels import math_coefficients as c
from gpujit.kernels.vector import Emitter, Vector

# exp of minus that is a normal number, and so are 1 + exp of it and the reciprocal of the sum.
_LIMIT = 86.0


def _exp_negative(e: Emitter, x: Vector) -> Vector:
    """exp(-x) of float32, within 2 ulp for moderate arguments; clamped, so that its reciprocal is a normal number too.

    NaN may become anything.
    """
    y = e.clamp(-x, -_LIMIT, _LIMIT)
    if not e.has_table(y):
        shifted = e.fma(y, c.LOG2_E_32[0], 1.5 * 2.0**23)
        whole = shifted - 1.5 * 2.0**23
        r = e.fma(whole, -c.LN2_32[1], e.fma(whole, -c.LN2_32[0], y))
        n = e.bitcast(shifted, "int32") - e.bitcast(y.like(1.5 * 2.0**23), "int32")
        return e.scale(e.fma(r * r, e.polynomial(r, c.EXP32), r) + 1, whole, n)
    # The exponent in sixteenths: the magic number leaves the fraction in the low four bits.
    magic = 1.5 * 2.0**19
    shifted = e.fma(y, c.LOG2_E_32[0], magic)
    w = shifted - magic
    r = e.fma(w, -(c.LN2_32[0] + c.LN2_32[1]), y)
    power = e.look_up(c.EXP2_TABLE[0], e.bitcast(shifted, "int32"))
    less_one = e.fma(r * r, e.polynomial(r, c.EXP_SHORT), r)
    return e.scale(e.fma(power, less_one, power), w, e.bitcast(shifted, "int32"))


def sigmoid(e: Emitter, x: Vector) -> Vector:
    """1 / (1 + exp(-x)); NaN of NaN."""
    found = e.reciprocal_close(_exp_negative(e, x) + 1)
    return e.select(x == x, found, x)


def silu(e: Emitter, x: Vector) -> Vector:
    """x * sigmoid(x); NaN of minus infinity, as of the whole formula."""
    return _weighted(e, x, x)


def _weighted(e: Emitter, weight: Vector, x: Vector) -> Vector:
    """weight * sigmoid(x), where x is about as large as the weight."""
    found = weight * e.reciprocal_close(_exp_negative(e, x) + 1)
    return e.select(x < -_LIMIT, weight * 0.0, found)


def gelu_tanh(e: Emitter, x: Vector) -> Vector:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x**3), as x * sigmoid(2 u)."""
    u = x * e.fma(x * x, 2 * 0.7978845608028654 * 0.044715, 2 * 0.7978845608028654)
    return _weighted(e, x, u)
