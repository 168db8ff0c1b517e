"""The error function and its kin, entropies, and products with logarithms that are 0 at 0.

Coefficients: S. L. Moshier, Cephes Mathematical Library, ndtr.c and ndtri.c (float64); erf of float32 is a rational
minimax fit of our own. Functions without a float32 form of their own compute in float64, which their caller rounds.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import gpujit.ops.families.elementwise.unary  # noqa: F401  # special_ names are given to what it declares
from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.recorded import Recorded
from gpujit.ir.values import Array
from gpujit.ops.aliases import same_as
from gpujit.ops.families.elementwise.pointwise import REAL_ONLY
from gpujit.ops.numeric import horner, in_blocks, monic, piecewise
from gpujit.ops.registry import pointwise

# erf(x) = x * P(x*x) / Q(x*x) for |x| <= 3.925, where float32 reaches 1; relative error of the fit 1.9e-8.
_ERF32_LIMIT = 3.925
_ERF32_P = (2.05010491e-06, 0.000284883495, 0.00376560111, 0.0527486764, 0.190405925, 1.12837915)
_ERF32_Q = (3.80919419e-05, 0.00116253384, 0.0149691834, 0.11410891, 0.502075598, 1.0)
# erf(x) = x * T(x*x) / U(x*x) below 1; erfc(x) = exp(-x*x) * P(x) / Q(x) from 1 to 8, R / S above. Q, S, U are monic.
_ERF_T = (
    9.604973739870516, 90.02601972038427, 2232.005345946843, 7003.325141128051, 55592.30130103949,
)  # fmt: skip
_ERF_U = (
    33.56171416475031, 521.3579497801527, 4594.323829709801, 22629.000061389095, 49267.39426086359,
)  # fmt: skip
_ERF_P = (
    2.461969814735305e-10, 0.5641895648310689, 7.463210564422699, 48.63719709856814, 196.5208329560771,
    526.4451949954773, 934.5285271719576, 1027.5518868951572, 557.5353353693994,
)  # fmt: skip
_ERF_Q = (
    13.228195115474499, 86.70721408859897, 354.9377788878199, 975.7085017432055, 1823.9091668790973,
    2246.3376081871097, 1656.6630919416134, 557.5353408177277,
)  # fmt: skip
_ERF_R = (
    0.5641895835477551, 1.275366707599781, 5.019050422511805, 6.160210979930536, 7.4097426995044895,
    2.9788666537210022,
)  # fmt: skip
_ERF_S = (
    2.2605286322011726, 9.396035249380015, 12.048953980809666, 17.08144507475659, 9.608968090632859,
    3.369076451000815,
)  # fmt: skip
# ndtri: the middle, tails to exp(-32), tails beyond.
_NDTRI_P0 = (
    -59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968, -1.2391658386738125,
)  # fmt: skip
_NDTRI_Q0 = (
    1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937, 200.26021238006066,
    -82.03722561683334, 15.90562251262117, -1.1833162112133,
)  # fmt: skip
_NDTRI_P1 = (
    4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008, 14.684956192885803,
    2.1866330685079025, -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854,
)  # fmt: skip
_NDTRI_Q1 = (
    15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075, 2.504649462083094,
    -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574,
)  # fmt: skip
_NDTRI_P2 = (
    3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755, 0.20148538954917908,
    0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09,
)  # fmt: skip
_NDTRI_Q2 = (
    6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663, 0.013420400608854318,
    0.00032801446468212774, 2.8924786474538068e-06, 6.790194080099813e-09,
)  # fmt: skip


@cache
def _erf32_coefficients(m: Any) -> Any:
    return m.asarray((_ERF32_P[::-1], _ERF32_Q[::-1]), dtype=m.float32)


def erf32(m: Any, x: Any) -> Any:
    """erf of a one-dim float32 array, within 3 units in the last place; exact at infinities and NaN."""
    x = m.maximum(m.minimum(x, _ERF32_LIMIT), -_ERF32_LIMIT)
    # Both polynomials in one matrix product: all terms are positive, so nothing cancels, and it is one pass, not ten.
    powers = m.empty((6, x.size), dtype=m.float32)
    powers[0] = 1
    z, zz = powers[1], powers[2]
    m.multiply(x, x, out=z)
    m.multiply(z, z, out=zz)
    m.multiply(z, zz, out=powers[3])
    m.multiply(zz, zz, out=powers[4])
    m.multiply(zz, powers[3], out=powers[5])
    y, q = m.matmul(_erf32_coefficients(m), powers)
    y *= x
    y /= q
    # Rounding may lift the ends over 1.
    m.minimum(y, 1, out=y)
    return m.maximum(y, -1, out=y)


def _exp_minus_square(m: Any, x: Any) -> Any:
    # x * x rounded would lose digits that exp magnifies: split x so that one square is exact.
    head = m.rint(x * 128) / 128
    return m.exp(-head * head) * m.exp((head - x) * (head + x))


def _erf_small(x: Any) -> Any:
    z = x * x
    return x * horner(z, _ERF_T) / monic(z, _ERF_U)


def _scaled_tail(m: Any, x: Any) -> Any:
    """exp(x*x) * erfc(x) for x >= 1."""
    return piecewise(
        m,
        x,
        [
            (x < 8, lambda t: horner(t, _ERF_P) / monic(t, _ERF_Q)),
            (x >= 8, lambda t: horner(1 / t, _ERF_R[::-1]) / _reversed_monic(1 / t, _ERF_S) / t),
        ],
    )


def _reversed_monic(u: Any, coefficients: tuple[float, ...]) -> Any:
    # The monic polynomial in t = 1 / u, over t**n: no power of a large t overflows.
    y = u * coefficients[-1]
    for c in coefficients[-2::-1]:
        y += c
        y *= u
    return y + 1


def erf64(m: Any, x: Any) -> Any:
    """erf of a float64 array, within 1e-15."""
    if isinstance(x, Recorded):
        return m.erf(x)
    size = m.absolute(x)
    small = size <= 1
    if small.all():
        return _erf_small(x)
    return piecewise(
        m,
        x,
        [
            (small, _erf_small),
            ((size > 1) & (size < 6), lambda t: m.copysign(1 - _erfc_tail(m, m.absolute(t)), t)),
            (size >= 6, m.sign),
        ],
    )


def _erfc_tail(m: Any, x: Any) -> Any:
    return _exp_minus_square(m, x) * _scaled_tail(m, x)


def erfc64(m: Any, x: Any) -> Any:
    """1 - erf(x) of a float64 array without cancellation, down to the smallest numbers."""
    if isinstance(x, Recorded):
        return m.erfc(x)
    return piecewise(
        m,
        x,
        [
            (m.absolute(x) <= 1, lambda t: 1 - _erf_small(t)),
            ((x > 1) & (x < 28), lambda t: _erfc_tail(m, t)),
            (x >= 28, m.zeros_like),
            ((x < -1) & (x > -6), lambda t: 2 - _erfc_tail(m, -t)),
            (x <= -6, lambda t: m.full_like(t, 2)),
        ],
    )


def erfcx64(m: Any, x: Any) -> Any:
    """exp(x*x) * erfc(x) of a float64 array."""
    return piecewise(
        m,
        x,
        [
            (m.absolute(x) <= 1, lambda t: m.exp(t * t) * (1 - _erf_small(t))),
            (x > 1, lambda t: _scaled_tail(m, t)),
            (x < -1, lambda t: m.exp(t * t) * erfc64(m, t)),
        ],
    )


def erf_of(m: Any, x: Array) -> Array:
    """erf in the dtype of ``x``."""
    if isinstance(x, Recorded):
        return m.erf(x)
    return in_blocks(m, erf_flat, x)


def erf_flat(m: Any, x: Any) -> Any:
    """erf in the dtype of the one-dim array ``x``."""
    return erf32(m, x) if x.dtype == FLOAT32 else erf64(m, x)


def wide(m: Any, x: Any) -> Any:
    """``x`` as a float64 array, also when it is a number."""
    return x.astype(m.float64) if hasattr(x, "dtype") else m.asarray(x, dtype=m.float64)


@pointwise("aten::erf(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out", onnx="Erf")
def erf(m: Any, x: Array) -> Array:
    """The error function."""
    return erf_of(m, x)


@pointwise("aten::erfc(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out")
def erfc(m: Any, x: Array) -> Array:
    """1 - erf(x), accurate where that is small."""
    return erfc64(m, wide(m, x))


@pointwise("aten::special_erfcx(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def erfcx(m: Any, x: Array) -> Array:
    """exp(x*x) * erfc(x)."""
    return erfcx64(m, wide(m, x))


def ndtri64(m: Any, p: Any) -> Any:
    """Where the normal distribution has the probability ``p`` below it (float64)."""
    upper = p > 1 - math.exp(-2)
    y = m.where(upper, 1 - p, p)

    def middle(t: Any) -> Any:
        t = t - 0.5
        z = t * t
        return (t + t * (z * horner(z, _NDTRI_P0) / monic(z, _NDTRI_Q0))) * math.sqrt(2 * math.pi)

    def tail(t: Any) -> Any:
        x = m.sqrt(-2 * m.log(t))
        z = 1 / x
        near = horner(z, _NDTRI_P1) / monic(z, _NDTRI_Q1)
        far = horner(z, _NDTRI_P2) / monic(z, _NDTRI_Q2)
        return z * m.where(x < 8, near, far) - (x - m.log(x) / x)

    x = piecewise(m, y, [(y > math.exp(-2), middle), ((y > 0) & (y <= math.exp(-2)), tail)])
    x = m.where(upper, -x, x)
    x = m.where(p == 0, -math.inf, m.where(p == 1, math.inf, x))
    return m.where((p < 0) | (p > 1), math.nan, x)


def _erfinv64(m: Any, y: Any) -> Any:
    # From the quantile of the nearer tail, which keeps its digits, and one Newton step with the tail's erfc.
    size = m.absolute(y)
    x = m.where(size == 1, math.inf, m.where(size < 1, -ndtri64(m, (1 - size) / 2) / math.sqrt(2), math.nan))
    slope = 2 / math.sqrt(math.pi) * m.exp(-x * x)
    fault = m.where(size < 0.5, erf64(m, x) - size, (1 - size) - erfc64(m, x))
    step = m.where((size < 1) & (slope > 0), fault / slope, 0)
    return m.copysign(x - step, y)


@pointwise("aten::erfinv(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, inplace=True, out="out")
def erfinv(m: Any, y: Array) -> Array:
    """The x with erf(x) = y; infinite at -1 and 1, NaN beyond."""
    return _erfinv64(m, wide(m, y))


@pointwise("aten::special_ndtr(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def ndtr(m: Any, x: Array) -> Array:
    """The probability of a normal variable below ``x``."""
    return erfc64(m, wide(m, x) * -math.sqrt(0.5)) / 2


@pointwise("aten::special_ndtri(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def ndtri(m: Any, p: Array) -> Array:
    """Where the normal distribution has the probability ``p`` below it."""
    return ndtri64(m, wide(m, p))


@pointwise("aten::special_log_ndtr(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def log_ndtr(m: Any, x: Array) -> Array:
    """The logarithm of ``ndtr``, finite far below zero."""
    t = wide(m, x) * math.sqrt(0.5)
    return m.where(t < -math.sqrt(0.5), m.log(erfcx64(m, -t) / 2) - t * t, m.log1p(-erfc64(m, t) / 2))


# ------------------------------------------------------------------------------- logarithms that are 0 at 0


@pointwise("aten::special_entr(Tensor self) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def entr(m: Any, x: Array) -> Array:
    """-x * log(x), 0 at 0, -inf below."""
    y = -x * m.log(m.where(x > 0, x, 1))
    return m.where(x < 0, -math.inf, y)


def _product(m: Any, x: Any, log: Any, y: Any) -> Any:
    return m.where(m.isnan(y), math.nan, m.where(x == 0, 0, x * log))


@pointwise(
    "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    out="OutScalar_Self",
)
@pointwise(
    "aten::xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor",
    result="float", refuse=REAL_ONLY, inplace=True, out="OutScalar_Other",
)  # fmt: skip
@pointwise(
    "aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor",
    result="float", refuse=REAL_ONLY, inplace=True, out="OutTensor",
)  # fmt: skip
def xlogy(m: Any, x: Any, y: Any) -> Array:
    """x * log(y), 0 where ``x`` is 0, NaN where ``y`` is."""
    return _product(m, x, m.log(y), y)


@pointwise(
    "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor",
    result="float", refuse=REAL_ONLY, out="self_scalar_out",
)  # fmt: skip
@pointwise(
    "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor",
    result="float", refuse=REAL_ONLY, out="other_scalar_out",
)  # fmt: skip
@pointwise("aten::special_xlog1py(Tensor self, Tensor other) -> Tensor", result="float", refuse=REAL_ONLY, out="out")
def xlog1py(m: Any, x: Any, y: Any) -> Array:
    """x * log(1 + y), 0 where ``x`` is 0, NaN where ``y`` is."""
    return _product(m, x, m.log1p(y), y)


for _overload, _theirs, _parameters in (
    ("", "Tensor", "Tensor self, Tensor other"),
    (".other_scalar", "Scalar_Other", "Tensor self, Scalar other"),
    (".self_scalar", "Scalar_Self", "Scalar self, Tensor other"),
):
    same_as(f"aten::special_xlogy{_overload}({_parameters}) -> Tensor", f"aten::xlogy.{_theirs}")
    _out = f"{_overload[1:]}_out" if _overload else "out"
    same_as(f"aten::special_xlogy.{_out}({_parameters}, *, Tensor(a!) out) -> Tensor(a!)", f"aten::xlogy.Out{_theirs}")


def special_name(name: str, of: str) -> None:
    """Declare ``aten::special_name``, which has no in-place form, as another name of ``aten::of``."""
    same_as(f"aten::special_{name}(Tensor self) -> Tensor", f"aten::{of}")
    same_as(f"aten::special_{name}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", f"aten::{of}.out")


for _name in ("erf", "erfc", "erfinv", "exp2", "expm1", "log1p", "sinc"):
    special_name(_name, _name)
special_name("expit", "sigmoid")
same_as("aten::special_logit(Tensor self, float? eps=None) -> Tensor", "aten::logit")
same_as("aten::special_logit.out(Tensor self, float? eps=None, *, Tensor(a!) out) -> Tensor(a!)", "aten::logit.out")
