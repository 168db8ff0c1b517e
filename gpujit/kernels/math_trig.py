"""Trigonometric functions and their inverses as vector expressions."""

from __future__ import annotations

import math

from gpujit.kernels import math_coefficients as c
from gpujit.kernels.math_exp import FORMATS, nearest
from gpujit.kernels.vector import Emitter, Vector

# Up to here three parts of pi / 2 leave the remainder exact to the last place.
_LIMITS = {"float32": 32768.0, "float64": 2.0**20}
# Where asin changes to the root's form. pi / 2 - 2 asin(s) cancels, the more the smaller the result.
_ASIN_LIMITS = {"float32": 0.625, "float64": 0.5}


def _parts(dtype: str) -> tuple[float, ...]:
    return c.HALF_PI_32 if dtype == "float32" else c.HALF_PI_64


def quadrant(e: Emitter, x: Vector) -> tuple[Vector, Vector]:
    """(r, n) with x = n * pi / 2 + r and |r| <= pi / 4, for moderate ``x``."""
    whole, n = nearest(e, x, 2 / math.pi)
    r = x
    for part in _parts(x.dtype):
        r = e.fma(whole, -part, r)
    return r, n


def _sin_of(e: Emitter, r: Vector) -> Vector:
    z = r * r
    return e.fma(r * z, e.polynomial(z, c.SIN32 if r.dtype == "float32" else c.SIN64), r)


def _cos_of(e: Emitter, r: Vector) -> Vector:
    z = r * r
    tail = e.polynomial(z, c.COS32 if r.dtype == "float32" else c.COS64)
    return e.fma(z * z, tail, e.fma(z, -0.5, 1.0))


def _wave(e: Emitter, x: Vector, turn: int, name: str) -> Vector:
    f = FORMATS[x.dtype]
    r, n = quadrant(e, x)
    if turn:
        n = n + turn
    result = e.select((n & 1) == 0, _sin_of(e, r), _cos_of(e, r))
    sign = (n & 2) << (f.mantissa + (7 if f.mantissa == 23 else 10))
    result = e.bitcast(e.bitcast(result, f.bits) ^ sign, x.dtype)
    if not turn:
        # -0.0 keeps its sign, which the polynomial's sum loses.
        result = e.select(x == 0, x, result)
    # The C library reduces by as many digits of pi as it takes.
    return e.unless_rare(e.abs(x) > _LIMITS[x.dtype], result, lambda: e.overloaded(name, x))


def sin(e: Emitter, x: Vector) -> Vector:
    """The sine, right for large arguments too."""
    return _wave(e, x, 0, "sin")


def cos(e: Emitter, x: Vector) -> Vector:
    """The cosine, right for large arguments too."""
    return _wave(e, x, 1, "cos")


def _tan_single(e: Emitter, x: Vector) -> Vector:
    whole, n = nearest(e, x, 2 / math.pi)
    first, second, third = c.HALF_PI_32
    near = e.fma(whole, -first, x)
    product = whole * second
    r = near - product
    # What the remainder lost in rounding counts where the result is large.
    lost = e.fma(whole, -third, near - r - product - e.fma(whole, second, -product))
    z = r * r
    more = e.fma(r * z, e.polynomial(z, c.TAN32), lost)
    t = r + more
    # A tangent just above 1 has half of the places that its inverse has: what rounding takes from it counts there.
    rest = more - (t - r)
    inverse = -1 / t
    inverse = e.fma(inverse, e.fma(inverse, t, 1.0) + inverse * rest, inverse)
    result = e.select((n & 1) == 0, t, inverse)
    return e.select(x == 0, x, result)


def tan(e: Emitter, x: Vector) -> Vector:
    """The tangent, right for large arguments too."""
    if x.dtype == "float32":
        result = _tan_single(e, x)
    else:
        r, n = quadrant(e, x)
        top, bottom = _sin_of(e, r), _cos_of(e, r)
        even = (n & 1) == 0
        result = e.select(even, top, -bottom) / e.select(even, bottom, top)
        result = e.select(x == 0, x, result)
    rare = e.abs(x) > _LIMITS[x.dtype]
    return e.unless_rare(rare, result, lambda: e.overloaded("tan", x))


def _asin_small(e: Emitter, x: Vector, z: Vector) -> Vector:
    """asin for small ``x``, given x * x."""
    tail = e.polynomial(z, c.ASIN32 if x.dtype == "float32" else c.ASIN64)
    return e.fma(x * z, tail, x)


def _asin_root(e: Emitter, a: Vector) -> tuple[Vector, Vector]:
    """(s, s * s) with asin(a) = pi / 2 - 2 asin(s), for large a."""
    z = e.fma(a, -0.5, 0.5)
    return e.sqrt(z), z


def asin(e: Emitter, x: Vector) -> Vector:
    """The arc sine; NaN beyond 1."""
    a = e.abs(x)
    large = a > _ASIN_LIMITS[x.dtype]
    root, half = _asin_root(e, a)
    z = e.select(large, half, a * a)
    near = _asin_small(e, e.select(large, root, a), z)
    first, second = _parts(x.dtype)[:2]
    return e.copysign(e.select(large, e.fma(near, -2.0, second) + first, near), x)


def acos(e: Emitter, x: Vector) -> Vector:
    """The arc cosine; NaN beyond 1."""
    a = e.abs(x)
    large = a > _ASIN_LIMITS[x.dtype]
    root, half = _asin_root(e, a)
    z = e.select(large, half, a * a)
    near = _asin_small(e, e.select(large, root, a), z)
    first, second = _parts(x.dtype)[:2]
    middle = first - (e.copysign(near, x) - second)
    edge = e.select(x < 0, 2 * first - (near * 2 - 2 * second), near * 2)
    return e.select(large, edge, middle)


def _atan_unit(e: Emitter, t: Vector) -> Vector:
    """atan for 0 <= t <= 1."""
    z = t * t
    return e.fma(t * z, e.polynomial(z, c.ATAN32 if t.dtype == "float32" else c.ATAN64), t)


def atan(e: Emitter, x: Vector) -> Vector:
    """The arc tangent."""
    a = e.abs(x)
    large = a > 1
    near = _atan_unit(e, e.select(large, 1 / a, a))
    first, second = _parts(x.dtype)[:2]
    return e.copysign(e.select(large, first - (near - second), near), x)


def atan2(e: Emitter, y: Vector, x: Vector) -> Vector:
    """The angle of the point (x, y), between -pi and pi; C's answers at zeros and infinities."""
    f = FORMATS[x.dtype]
    ax, ay = e.abs(x), e.abs(y)
    steep = ay > ax
    top, bottom = e.select(steep, ax, ay), e.select(steep, ay, ax)
    ratio = top / bottom
    ratio = e.select(bottom == 0, 0.0, ratio)
    ratio = e.select(top == math.inf, 1.0, ratio)
    near = _atan_unit(e, ratio)
    first, second = _parts(x.dtype)[:2]
    angle = e.select(steep, first - (near - second), near)
    left = e.bitcast(x, f.bits) < 0
    angle = e.select(left, 2 * first - (angle - 2 * second), angle)
    angle = e.select((x != x) | (y != y), math.nan, angle)
    return e.copysign(angle, y)
