"""Special functions: known values, identities, agreement with PyTorch, edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.elementwise.bessel
import gpujit.ops.families.elementwise.gamma
import gpujit.ops.families.elementwise.polynomials
import gpujit.ops.families.elementwise.special  # noqa: F401  # declares the entries
from gpujit.support.errors import DTypeError, OpError
from tests.ops.check import against_torch, assert_same, run

NAN, INF = math.nan, math.inf
GRID = np.r_[np.linspace(-7, 7, 501), np.linspace(-1.02, 1.02, 101), 27.0, -30.0, 1e-300, 8.0, 1e300]


def d(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


EULER = 0.57721566490153286
# Values of tables (Abramowitz and Stegun; DLMF), to all digits of float64.
VALUES: list[tuple[str, tuple[Any, ...], np.ndarray]] = [
    ("erf", (d(0, 0.5, INF, -INF, NAN),), d(0, 0.5204998778130465, 1, -1, NAN)),
    ("erfc", (d(0, 10, INF, -INF),), d(1, 2.088487583762545e-45, 0, 2)),
    ("special_erfcx", (d(0, 1, 1e10, -1),), d(1, 0.427583576155807, 1 / (1e10 * math.sqrt(math.pi)),
        5.008980080762283)),
    ("erfinv", (d(0, 0.5, 1, -1, 2),), d(0, 0.4769362762044699, INF, -INF, NAN)),
    ("special_ndtr", (d(0, 1, -INF),), d(0.5, 0.8413447460685429, 0)),
    ("special_ndtri", (d(0.5, 0.975, 0, 1, 2),), d(0, 1.959963984540054, -INF, INF, NAN)),
    ("special_log_ndtr", (d(0, -40),), d(math.log(0.5), -804.608442013754)),
    ("special_entr", (d(1, 0, 0.5, -1),), d(0, 0, 0.34657359027997264, -INF)),
    ("xlogy.Tensor", (d(0, 2, 0), d(0, math.e, NAN)), d(0, 2, NAN)),
    ("xlogy.Scalar_Self", (3, d(1, math.e)), d(0, 3)),
    ("xlogy.Scalar_Other", (d(0, 2), math.e), d(0, 2)),
    ("special_xlog1py", (d(0, 2), d(-1, math.e - 1)), d(0, 2)),
    ("lgamma", (d(1, 2, 0.5, 100, -0.5, 0, -3, INF, -INF),),
     d(0, 0, math.log(math.pi) / 2, math.lgamma(100), math.log(2 * math.sqrt(math.pi)), INF, INF, INF, INF)),
    ("digamma", (d(1, 0.5, 100, -0.5, 0, -0.0, -1),),
     d(-EULER, -EULER - 2 * math.log(2), 4.600161852738087, 0.03648997397857652, -INF, INF, NAN)),
    ("polygamma", (1, d(1, 0.5)), d(math.pi**2 / 6, math.pi**2 / 2)),
    ("polygamma", (2, d(1),), d(-2.4041138063191886)),
    ("special_zeta", (d(2, 4, 1, 0.5), d(1, 1, 1, 1)), d(math.pi**2 / 6, math.pi**4 / 90, INF, NAN)),
    ("igamma", (d(1, 0.5, 10, 0, 3), d(2, 1, 3, 1, 0)), d(1 - math.exp(-2), math.erf(1), 0.0011024881301154797, 1, 0)),
    ("igammac", (d(1, 0.5, 0, 3), d(2, 25, 1, 0)), d(math.exp(-2), math.erfc(5), 0, 1)),
    ("mvlgamma", (d(3), 2), d(0.5 * math.log(math.pi) + math.log(2) + math.lgamma(2.5))),
    ("i0", (d(0, 1, -1, 10),), d(1, 1.2660658777520084, 1.2660658777520084, 2815.716628466254)),
    ("special_i0e", (d(0, 1, 1e4),), d(1, 0.46575960759364043, 0.003989472674604687)),
    ("special_i1", (d(0, 1, -1),), d(0, 0.565159103992485, -0.565159103992485)),
    ("special_i1e", (d(1,),), d(0.2079104153497085)),
    ("special_bessel_j0", (d(0, 1),), d(1, 0.7651976865579666)),
    ("special_bessel_j1", (d(0, 1, -1),), d(0, 0.44005058574493355, -0.44005058574493355)),
    ("special_bessel_y0", (d(1, 0, -1),), d(0.08825696421567697, -INF, NAN)),
    ("special_bessel_y1", (d(1, 0),), d(-0.7812128213002887, -INF)),
    ("special_modified_bessel_i0", (d(1),), d(1.2660658777520084)),
    ("special_modified_bessel_i1", (d(1),), d(0.565159103992485)),
    ("special_modified_bessel_k0", (d(1, 3, 0, -1),), d(0.42102443824070834, 0.03473950438627925, INF, NAN)),
    ("special_modified_bessel_k1", (d(1, 3),), d(0.6019072301972346, 0.040156431128194184)),
    ("special_scaled_modified_bessel_k0", (d(1),), d(0.42102443824070834 * math.e)),
    ("special_scaled_modified_bessel_k1", (d(3),), d(0.040156431128194184 * math.exp(3))),
    ("special_spherical_bessel_j0", (d(0, 0.25, math.pi / 2, INF),), d(1, math.sin(0.25) / 0.25, 2 / math.pi, 0)),
    ("special_airy_ai", (d(0, 1, -1, 5, 200),), d(0.3550280538878172, 0.1352924163128814, 0.5355608832923521,
     0.00010834442813607442, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "want"), VALUES, ids=[f"{i}-{v[0]}" for i, v in enumerate(VALUES)])
def test_value(name: str, args: tuple[Any, ...], want: np.ndarray) -> None:
    got = run(f"aten::{name}", *args)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=2e-13, atol=1e-15)


def test_oscillating_functions_far_out() -> None:
    """To the six digits that PyTorch's form of the asymptotic expansions keeps."""
    for name, x, want in (
        ("bessel_j0", 10, -0.24593576445134835), ("bessel_j1", -10, -0.04347274616886144),
        ("bessel_y0", 10, 0.05567116728359939), ("bessel_y1", 10, 0.24901542420695388),
        ("airy_ai", -5, 0.35076100902411431),
    ):  # fmt: skip
        np.testing.assert_allclose(run(f"aten::special_{name}", d(x)), want, rtol=1e-5)


def test_erf_of_float64_to_the_last_digits() -> None:
    np.testing.assert_allclose(run("aten::erf", GRID), [math.erf(x) for x in GRID], rtol=1e-15)
    np.testing.assert_allclose(run("aten::erfc", GRID), [math.erfc(x) for x in GRID], rtol=4e-15)


def test_erf_of_float32_within_three_units() -> None:
    x = np.r_[np.linspace(-5, 5, 20001), 1e-30, -1e-38, INF, -INF, -0.0].astype(np.float32)
    got = run("aten::erf", x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [math.erf(v) for v in x.astype(np.float64)], rtol=3.6e-7)
    assert np.isnan(run("aten::erf", np.float32([NAN]))[0])
    np.testing.assert_array_equal(run("aten::erf", np.float32([INF, -INF, 4, -4])), [1, -1, 1, -1])


def test_lgamma_of_many() -> None:
    x = np.r_[np.linspace(-9.9, 40, 700), 1e5, 1e15]
    np.testing.assert_allclose(run("aten::lgamma", x), [math.lgamma(v) for v in x], rtol=1e-12, atol=1e-14)


def test_inverses_come_back() -> None:
    p = np.r_[np.linspace(0.001, 0.999, 99), 1e-200]
    np.testing.assert_allclose(run("aten::special_ndtr", run("aten::special_ndtri", p)), p, rtol=1e-12)
    y = np.r_[np.linspace(-0.999, 0.999, 99), 1e-20]
    np.testing.assert_allclose(run("aten::erf", run("aten::erfinv", y)), y, rtol=1e-12)


def test_incomplete_gammas_add_up() -> None:
    a, x = np.meshgrid([0.1, 1, 5.5, 80, 1000], [0.01, 1, 6, 75, 1010])
    total = run("aten::igamma", a, x) + run("aten::igammac", a, x)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def test_whole_numbers_become_float32() -> None:
    for name in ("erf", "lgamma", "digamma", "i0", "special_bessel_j0", "special_ndtr"):
        assert run(f"aten::{name}", np.array([1, 2])).dtype == np.float32
    assert run("aten::special_zeta.self_scalar", 2, np.array([1, 2])).dtype == np.float32


UNARY = (
    "erf", "erfc", "erfinv", "lgamma", "digamma", "i0", "special_erfcx", "special_ndtr", "special_ndtri",
    "special_log_ndtr",
    "special_entr", "special_i0e", "special_i1", "special_i1e", "special_bessel_j0", "special_bessel_j1",
    "special_bessel_y0", "special_bessel_y1", "special_modified_bessel_i0", "special_modified_bessel_i1",
    "special_modified_bessel_k0", "special_modified_bessel_k1", "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1", "special_spherical_bessel_j0", "special_airy_ai", "special_expit",
    "special_psi",
    "special_gammaln", "special_sinc", "special_exp2", "special_log1p", "special_expm1", "special_erf",
    "special_erfinv",
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_agrees(name: str) -> None:
    x = np.array([[-2.5, -0.7, 0.0], [0.3, 0.9, 2.2], [5.5, 9.25, 0.01]])
    for y in (x, x.astype(np.float32), x.T, x[::2, 1:], x[:0], x[0, :1].reshape(()), np.array([[1, 2, 5]], np.int32)):
        against_torch(f"aten::{name}", y, tolerance=3e-5 if y.dtype != np.float64 else 1e-10)
    against_torch(f"aten::{name}", d(NAN))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_polygamma_agrees(n: int) -> None:
    against_torch("aten::polygamma", n, d(0.1, 0.5, 1, 2.5, 30, -0.5, INF))
    x = d(0.5, 2)
    want = run("aten::polygamma", n, x)
    assert run("aten::polygamma_", x, n) is x
    assert_same(x, want)


@pytest.mark.parametrize("name", ["igamma", "igammac", "special_gammainc", "special_gammaincc"])
def test_incomplete_gamma_agrees(name: str) -> None:
    values = [0, 0.2, 1, 3.5, 40, INF, NAN, -1]
    a, x = (v.reshape(-1) for v in np.meshgrid(values, values))
    against_torch(f"aten::{name}", a, x)


def test_zeta_agrees() -> None:
    values = [-1.5, 0, 0.5, 1, 1.5, 3, 20, NAN]
    s, q = (v.reshape(-1) for v in np.meshgrid(values, [-2.5, -2, 0, 0.25, 1, 12, 1000]))
    against_torch("aten::special_zeta", s, q)
    against_torch("aten::special_zeta.other_scalar", s, 2.0)


FAMILIES = [f"{s}chebyshev_polynomial_{k}" for s in ("", "shifted_") for k in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"
]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_polynomial_agrees(name: str) -> None:
    x = np.array([-1.5, -1, -0.4, 0, 0.3, 1, 2])[:, None]
    n = np.array([-1, 0, 1, 2, 3, 6, 7, 9, 14])
    against_torch(f"aten::special_{name}", x, n)
    against_torch(f"aten::special_{name}.x_scalar", 0.25, n)
    against_torch(f"aten::special_{name}.n_scalar", x, 4)


def test_polynomials_by_hand() -> None:
    x = d(0.5, -2)
    for name, want in (
        ("chebyshev_polynomial_t", 4 * x**3 - 3 * x), ("chebyshev_polynomial_u", 8 * x**3 - 4 * x),
        ("hermite_polynomial_h", 8 * x**3 - 12 * x), ("hermite_polynomial_he", x**3 - 3 * x),
        ("laguerre_polynomial_l", (-(x**3) + 9 * x**2 - 18 * x + 6) / 6),
        ("legendre_polynomial_p", (5 * x**3 - 3 * x) / 2),
    ):  # fmt: skip
        np.testing.assert_allclose(run(f"aten::special_{name}", x, np.array([3, 3])), want)
    assert np.isnan(run("aten::special_hermite_polynomial_h", d(0.5), np.array([600])))[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(dtype: str) -> None:
    import ml_dtypes

    x = np.array([0.25, 1.5, 3], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for name in ("erf", "erfc", "lgamma", "digamma", "i0"):
        against_torch(f"aten::{name}", x)


def test_in_place_and_out() -> None:
    x = d(0.5, 1)
    assert run("aten::erf_", x) is x
    np.testing.assert_allclose(x, [math.erf(0.5), math.erf(1)])
    out = np.empty(2)
    assert run("aten::special_i1.out", d(0, 1), out) is out
    np.testing.assert_allclose(out, [0, 0.565159103992485])
    assert run("aten::xlogy.OutScalar_Self", 2.0, d(1, math.e), out) is out
    np.testing.assert_allclose(out, [0, 2])


REFUSALS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::erf", (np.array([1j]),), DTypeError, "complex"),
    ("aten::polygamma", (-1, d(1)), OpError, "negative"),
    ("aten::mvlgamma", (d(1), 0), OpError, "at least 1"),
    ("aten::igamma", (np.array([1]), np.array([1])), DTypeError, "floating"),
    ("aten::lgamma_", (np.array([1]),), DTypeError, "can't be cast"),
]


@pytest.mark.parametrize(("name", "args", "error", "match"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_refusal(name: str, args: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        run(name, *args)
