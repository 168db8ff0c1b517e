"""The gamma function's family: logarithm, derivatives, incomplete integrals, the Hurwitz zeta function; in float64.

Sources: Lanczos' approximation, g = 607/128 (coefficients of P. Godfrey, 2001); the rest after S. L. Moshier, Cephes
Mathematical Library (psi.c, zeta.c, igam.c), with the continued fraction evaluated by Lentz's method.
"""

from __future__ import annotations

import math
from typing import Any

from gpujit.ir.recorded import Recorded
from gpujit.ir.values import Array
from gpujit.ops.aliases import same_as
from gpujit.ops.families.elementwise.pointwise import FLOAT_ONLY, REAL_ONLY
from gpujit.ops.families.elementwise.special import special_name, wide
from gpujit.ops.numeric import any_of, horner, piecewise
from gpujit.ops.registry import library, pointwise
from gpujit.ops.rows import OPAQUE
from gpujit.ops.writes import write_into
from gpujit.support.errors import OpError

_EPSILON = 2.0**-53
# The multivariate gamma function costs time in proportion to its dimension.
_LARGEST_DIMENSION = 1 << 20
_LANCZOS_G = 607 / 128
_LANCZOS = (
    57.156235665862923517, -59.597960355475491248, 14.136097974741747174, -0.49191381609762019978,
    0.33994649984811888699e-4, 0.46523628927048575665e-4, -0.98374475304879564677e-4, 0.15808870322491248884e-3,
    -0.21026444172410488319e-3, 0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip
# B(2k) / 2k, highest first: the asymptotic series of digamma.
_DIGAMMA = (
    0.08333333333333333, -0.021092796092796094, 0.007575757575757576, -0.004166666666666667,
    0.003968253968253968, -0.008333333333333333, 0.08333333333333333,
)  # fmt: skip
# (2k)! / B(2k): Euler and Maclaurin's correction.
_ZETA = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.3183792, 74724249600.0, -2950130727918.164,
    116467828143500.67, -4597978722407473.0, 1.8152105401943546e17, -7.166165256175667e18,
)  # fmt: skip


def lgamma64(m: Any, x: Any) -> Any:
    """log(|gamma(x)|); infinite at 0, -1, -2, ... and at both infinities."""
    if isinstance(x, Recorded):
        return m.lgamma(x)

    def right(t: Any) -> Any:
        total = m.full_like(t, 0.99999999999999709182)
        for k, c in enumerate(_LANCZOS):
            total += c / (t + k)
        base = t + (_LANCZOS_G - 0.5)
        y = (t - 0.5) * m.log(base) - base + 0.5 * math.log(2 * math.pi) + m.log(total)
        return m.where((t == 1) | (t == 2), 0, m.where(t == math.inf, math.inf, y))

    def left(t: Any) -> Any:
        sine = m.absolute(m.sin(math.pi * (t - m.rint(t))))
        y = math.log(math.pi) - m.log(sine) - right(1 - t)
        return m.where((t == m.rint(t)), math.inf, y)

    return piecewise(m, x, [(x >= 0.5, right), (x < 0.5, left)])


def digamma64(m: Any, x: Any) -> Any:
    """The slope of lgamma; -inf and inf at 0 and -0, NaN at -1, -2, ..."""

    def right(t: Any) -> Any:
        y = m.zeros_like(t)
        for _ in range(10):
            low = t < 10
            if not any_of(low):
                break
            y = m.where(low, y - 1 / t, y)
            t = m.where(low, t + 1, t)
        z = 1 / (t * t)
        return y + m.log(t) - 0.5 / t - z * horner(z, _DIGAMMA)

    def left(t: Any) -> Any:
        # fmod keeps the fraction exact; the slope of the reflection is pi / tan(pi * t).
        y = right(1 - t) - math.pi / m.tan(math.pi * m.fmod(t, 1))
        y = m.where(t == m.floor(t), math.nan, y)
        return m.where(t == 0, m.copysign(math.inf, -t), y)

    return piecewise(m, x, [(x > 0, right), (x <= 0, left)])


def zeta64(m: Any, s: Any, q: Any) -> Any:
    """The Hurwitz zeta function: the sum of (k + q)**-s over k = 0, 1, ...; inf at s = 1, NaN below."""
    s, q = m.broadcast_arrays(s, q)
    pole = (q <= 0) & (q == m.floor(q))
    undefined = (q <= 0) & (s != m.floor(s)) & ~pole
    q = m.where(pole | undefined, 1, q)
    total = m.power(q, -s)
    a = q.copy()
    term = m.zeros_like(total)
    for _ in range(9):
        a = a + 1
        term = m.power(a, -s)
        total = total + term
    low = a <= 9
    while low.any():
        a = m.where(low, a + 1, a)
        term = m.where(low, m.power(a, -s), term)
        total = m.where(low, total + term, total)
        low = a <= 9
    total = total + term * a / (s - 1) - 0.5 * term
    factor = m.ones_like(total)
    k = 0
    b = term
    for coefficient in _ZETA:
        factor = factor * (s + k)
        b = b / a
        correction = factor * b / coefficient
        total = total + m.where(m.isfinite(correction), correction, 0)
        factor = factor * (s + k + 1)
        b = b / a
        k += 2
    total = m.where(undefined, math.nan, m.where(pole, math.inf, total))
    return m.where(s == 1, math.inf, m.where(s < 1, math.nan, total))


def _leading(m: Any, a: Any, x: Any) -> Any:
    return m.exp(a * m.log(x) - x - lgamma64(m, a))


def _lower_series(m: Any, a: Any, x: Any) -> Any:
    # gamma(a, x) = x**a exp(-x) / a * (1 + x/(a+1) + x*x/((a+1)(a+2)) + ...)
    term = m.ones_like(a)
    total = m.ones_like(a)
    n = a
    for _ in range(20000):
        n = n + 1
        term = term * x / n
        total = total + term
        if not (term > total * _EPSILON).any():
            break
    return _leading(m, a, x) * total / a


def _upper_fraction(m: Any, a: Any, x: Any) -> Any:
    b = x + 1 - a
    c = m.full_like(x, 1e300)
    d = 1 / b
    h = d
    for i in range(1, 20000):
        numerator = i * (a - i)
        b = b + 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        change = c * d
        h = h * change
        if not (m.absolute(change - 1) > 4 * _EPSILON).any():
            break
    return _leading(m, a, x) * h


def incomplete_gamma(m: Any, a: Any, x: Any, upper: bool) -> Any:
    """The regularised lower or upper incomplete gamma function."""
    a, x = m.broadcast_arrays(a, x)
    y = m.full(a.shape, math.nan, dtype=m.float64)
    inside = (a > 0) & (x > 0) & m.isfinite(a) & m.isfinite(x)
    by_fraction = inside & (x > 1) & (x > a)
    by_series = inside & ~by_fraction
    if by_series.any():
        part = _lower_series(m, a[by_series], x[by_series])
        y[by_series] = 1 - part if upper else part
    if by_fraction.any():
        part = _upper_fraction(m, a[by_fraction], x[by_fraction])
        y[by_fraction] = part if upper else 1 - part
    one, zero = (1.0, 0.0) if upper else (0.0, 1.0)
    # The edges, later ones winning: x at infinity, a at infinity, x = 0, a = 0.
    y = m.where((x == math.inf) & ~(a < 0), zero, y)
    y = m.where((a == math.inf) & ~(x < 0), m.where(x == math.inf, math.nan, one), y)
    y = m.where((x == 0) & ~(a < 0), one, y)
    return m.where((a == 0) & (x >= 0), m.where(x > 0, zero, math.nan), y)


@pointwise("aten::lgamma(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out")
def lgamma(m: Any, x: Array) -> Array:
    """log(|gamma(x)|)."""
    return lgamma64(m, wide(m, x))


@pointwise("aten::digamma(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out")
def digamma(m: Any, x: Array) -> Array:
    """The slope of lgamma."""
    return digamma64(m, wide(m, x))


@pointwise("aten::polygamma(int n, Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out", scalar=OPAQUE)
def polygamma(m: Any, n: int, x: Array) -> Array:
    """The n-th derivative of digamma."""
    if n < 0:
        raise OpError(f"aten::polygamma: n is {n}; it must not be negative")
    x = wide(m, x)
    if n == 0:
        return digamma64(m, x)
    if n == 1:
        # By reflection below one half, where the sum of zeta would have to start far left.
        low = x < 0.5
        y = zeta64(m, m.full_like(x, 2), m.where(low, 1 - x, x))
        y = m.where(low, (math.pi / m.sin(math.pi * x)) ** 2 - y, y)
        return m.where(x == math.inf, 0, y)
    return (-1) ** (n + 1) * math.exp(math.lgamma(n + 1)) * zeta64(m, m.full_like(x, n + 1), x)


@library("aten::polygamma_(Tensor(a!) self, int n) -> Tensor(a!)", half="native")
def polygamma_(xp: Any, x: Array, n: int) -> Array:
    """``x``, replaced by the n-th derivative of digamma at it."""
    y = polygamma(xp, n, x)
    return write_into(x, y.astype(x.dtype) if x.dtype.kind not in "biu" else y, "aten::polygamma_")


@pointwise(
    "aten::special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    out="self_scalar_out",
    scalar=OPAQUE,
)
@pointwise(
    "aten::special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    out="other_scalar_out",
    scalar=OPAQUE,
)
@pointwise(
    "aten::special_zeta(Tensor self, Tensor other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    out="out",
    scalar=OPAQUE,
)
def zeta(m: Any, s: Any, q: Any) -> Array:
    """The Hurwitz zeta function of ``s`` at ``q``."""
    return zeta64(m, wide(m, s), wide(m, q))


@pointwise(
    "aten::igamma(Tensor self, Tensor other) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", scalar=OPAQUE
)
def igamma(m: Any, a: Array, x: Array) -> Array:
    """The regularised lower incomplete gamma function."""
    return incomplete_gamma(m, wide(m, a), wide(m, x), upper=False)


@pointwise(
    "aten::igammac(Tensor self, Tensor other) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", scalar=OPAQUE
)
def igammac(m: Any, a: Array, x: Array) -> Array:
    """The regularised upper incomplete gamma function."""
    return incomplete_gamma(m, wide(m, a), wide(m, x), upper=True)


@pointwise("aten::mvlgamma(Tensor self, int p) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out")
def mvlgamma(m: Any, x: Array, p: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if not 1 <= p <= _LARGEST_DIMENSION:
        raise OpError(f"aten::mvlgamma: p is {p}; it must be at least 1, and at most {_LARGEST_DIMENSION}")
    x = wide(m, x)
    total = m.full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = total + lgamma64(m, x - j / 2)
    return total


for _name, _of in (("digamma", "digamma"), ("psi", "digamma"), ("gammaln", "lgamma")):
    special_name(_name, _of)
for _name, _of in (("gammainc", "igamma"), ("gammaincc", "igammac")):
    same_as(f"aten::special_{_name}(Tensor self, Tensor other) -> Tensor", f"aten::{_of}")
    same_as(
        f"aten::special_{_name}.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", f"aten::{_of}.out"
    )
same_as("aten::special_polygamma(int n, Tensor self) -> Tensor", "aten::polygamma")
same_as("aten::special_polygamma.out(int n, Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten::polygamma.out")
same_as("aten::special_multigammaln(Tensor self, int p) -> Tensor", "aten::mvlgamma")
same_as("aten::special_multigammaln.out(Tensor self, int p, *, Tensor(a!) out) -> Tensor(a!)", "aten::mvlgamma.out")
