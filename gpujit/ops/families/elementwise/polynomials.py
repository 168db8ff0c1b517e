"""Orthogonal polynomials of degree n at x: Chebyshev's four kinds, plain and shifted, Hermite, Laguerre, Legendre.

By their three-term recurrences, in float64; inside (-1, 1) Chebyshev polynomials of high degree by their trigonometric
form. A negative degree gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.families.elementwise.pointwise import REAL_ONLY
from gpujit.ops.families.elementwise.special import wide
from gpujit.ops.registry import pointwise
from gpujit.ops.rows import OPAQUE

# The polynomial of degree k from x, its predecessor q and the one before, p.
Step = Callable[[int, Any, Any, Any], Any]


def _recurrence(m: Any, x: Any, n: Any, first: Any, step: Step) -> Any:
    y = m.where(n == 0, 1.0, m.where(n == 1, first, 0.0))
    p, q = m.ones_like(first), first
    top = int(n.max()) if n.size else 0
    for k in range(2, top + 1):
        p, q = q, step(k, x, q, p)
        y = m.where(n == k, q, y)
        if k % 64 == 0 and not m.isfinite(q).any():
            # Once infinite, the recurrence ends in NaN.
            return m.where(n > k, math.nan, y)
    return y


def _chebyshev_step(k: int, x: Any, q: Any, p: Any) -> Any:
    return 2 * x * q - p


# Kind: degree 1, the form in the angle arccos(x), and the values at 1 and -1 from the degree and its parity sign.
_CHEBYSHEV: dict[str, tuple[Any, Any, Any, Any]] = {
    "t": (lambda x: x, lambda m, n, a: m.cos(n * a), lambda n: 1.0, lambda n, sign: sign),
    "u": (
        lambda x: 2 * x, lambda m, n, a: m.sin((n + 1) * a) / m.sin(a),
        lambda n: n + 1.0, lambda n, sign: sign * (n + 1.0),
    ),
    "v": (
        lambda x: 2 * x - 1, lambda m, n, a: m.cos((n + 0.5) * a) / m.cos(a / 2),
        lambda n: 1.0, lambda n, sign: sign * (2 * n + 1.0),
    ),
    "w": (
        lambda x: 2 * x + 1, lambda m, n, a: m.sin((n + 0.5) * a) / m.sin(a / 2),
        lambda n: 2 * n + 1.0, lambda n, sign: sign,
    ),
}  # fmt: skip


def _chebyshev(kind: str, shifted: bool) -> Callable[[Any, Any, Any, Any], Any]:
    first, form, at_one, at_minus_one = _CHEBYSHEV[kind]

    def polynomial(m: Any, x: Any, n: Any, narrow: bool) -> Any:
        if shifted:
            x = 2 * x - 1
        size = m.absolute(x)
        by_angle = (n > 8) & (size < 1)
        ends = (size == 1) & (n >= 0)
        y = _recurrence(m, x, m.where(by_angle | ends, 0, n), first(x), _chebyshev_step)
        if by_angle.any():
            y = m.where(by_angle, form(m, n, m.arccos(m.where(by_angle, x, 0))), y)
        sign = 1.0 - 2.0 * (n % 2)
        return m.where(ends, m.where(x > 0, at_one(n), at_minus_one(n, sign)), y)

    return polynomial


def _hermite(double: bool) -> Callable[[Any, Any, Any, Any], Any]:
    factor = 2 if double else 1

    def polynomial(m: Any, x: Any, n: Any, narrow: bool) -> Any:
        limit = 128 if narrow else 512
        y = _recurrence(m, x, m.minimum(n, limit), factor * x, lambda k, x, q, p: factor * (x * q - (k - 1) * p))
        return m.where(n > limit, math.nan, y)

    return polynomial


def _laguerre(m: Any, x: Any, n: Any, narrow: bool) -> Any:
    return _recurrence(m, x, n, 1 - x, lambda k, x, q, p: ((2 * k - 1 - x) * q - (k - 1) * p) / k)


def _legendre(m: Any, x: Any, n: Any, narrow: bool) -> Any:
    return _recurrence(m, x, n, x, lambda k, x, q, p: ((2 * k - 1) * x * q - (k - 1) * p) / k)


def _declare(name: str, polynomial: Callable[[Any, Any, Any, Any], Any]) -> None:
    def body(m: Any, x: Any, n: Any) -> Array:
        """The polynomial of degree ``n`` at ``x``, in floating point; a fraction of the degree is cut off."""
        narrow = (x if hasattr(x, "dtype") else n).dtype != "float64"
        x, n = m.broadcast_arrays(wide(m, x), m.asarray(n).astype(m.int64))
        return polynomial(m, x, n, narrow)

    for overload, parameters, out in (
        ("", "Tensor x, Tensor n", "out"),
        (".x_scalar", "Scalar x, Tensor n", "x_scalar_out"),
        (".n_scalar", "Tensor x, Scalar n", "n_scalar_out"),
    ):
        text = f"aten::special_{name}{overload}({parameters}) -> Tensor"
        pointwise(text, result="float", operands=("x", "n"), refuse=REAL_ONLY, out=out, scalar=OPAQUE)(body)


for _kind in _CHEBYSHEV:
    _declare(f"chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=False))
    _declare(f"shifted_chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=True))
_declare("hermite_polynomial_h", _hermite(double=True))
_declare("hermite_polynomial_he", _hermite(double=False))
_declare("laguerre_polynomial_l", _laguerre)
_declare("legendre_polynomial_p", _legendre)
