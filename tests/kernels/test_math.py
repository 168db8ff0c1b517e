"""Vector functions: errors in ulp over float32's patterns and much of float64, and the answers at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.kernels import native
from gpujit.kernels.emit import KernelWriter
from gpujit.kernels.math import EXP_BELOW, FUNCTIONS
from gpujit.kernels.math_basic import integer_remainder
from gpujit.kernels.target import host
from gpujit.kernels.vector import Vector
from tests.kernels.math_reference import AGAINST_ARGUMENT, EXACT, REFERENCE, apply, build, ulps, worst

UNARY = [name for name, f in FUNCTIONS.items() if f.arity == 1]
BINARY = [name for name, f in FUNCTIONS.items() if f.arity == 2]
# What the machine likes best, and the portable road with the shorter vectors of older ones.
ROADS = [("best", host().width, None), ("portable", 8, False)]
EDGES = np.array(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 7, -7, 1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, -1e-38,
     1.17549435e-38, 3.4028235e38, -3.4028235e38, 2.0**24, 2.0**24 + 2, -(2.0**24), 88.8, -88.8, 104, -104, 1e10, -1e10,
     0.99999994, 1.0000001, -0.99999994, 1e30, -1e30],
    np.float32,
)  # fmt: skip

road = pytest.mark.parametrize(("lanes", "avx512"), [r[1:] for r in ROADS], ids=[r[0] for r in ROADS])


def sweep(name: str, lanes: int, avx512: bool | None, step: int) -> None:
    kernel = build(name, "float32", lanes, avx512)
    block = 1 << 22
    for start in range(0, 1 << 32, block * step):
        bits = np.arange(start, min(start + block * step, 1 << 32), step, dtype=np.uint64).astype(np.uint32)
        x = bits.view(np.float32)
        with np.errstate(all="ignore"):
            want = REFERENCE[name](x.astype(np.float64))
        got = apply(kernel, x)
        error, text = worst(name, got, want, x)
        assert error <= (0.5 if name in EXACT else 2.0), text
        if name not in AGAINST_ARGUMENT:
            zeros = want == 0
            assert np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros])), f"sign of a zero of {name}"


@road
@pytest.mark.parametrize("name", UNARY)
def test_float32_is_within_two_ulp(name, lanes, avx512):
    sweep(name, lanes, avx512, 79999)


@pytest.mark.skipif(not host().avx512, reason="the machine has no AVX-512")
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("name", ["exp", "tanh", "silu", "rsqrt", "erf", "expm1"])
def test_shorter_vectors_on_machines_with_avx512(name, lanes):
    sweep(name, lanes, True, 399989)
    x = np.linspace(-700, 700, 1001)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x)
    got = apply(build(name, "float64", lanes // 2, True), x)
    assert np.allclose(got, want, rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", UNARY)
def test_one_lane_is_a_scalar(name):
    x = np.array([0.3, -0.3, 1.5, 40, -40, np.nan, 3e4, 1e6], np.float32)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.float64))
    error, text = worst(name, apply(build(name, "float32", 1), x), want, x)
    assert error <= 2, text


@road
def test_exponentials_of_what_is_not_above_0(lanes, avx512):
    """As the general one, but NaN's: none is said to be above."""
    whole, below = (build(f, "float32", lanes, avx512) for f in ("exp", EXP_BELOW))
    bits = np.arange(1 << 31, 0xFF800001, 9973, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), [0.0, -0.0, -np.inf, np.nan, -87.4, -103.9, -104.1]]).astype(np.float32)
    np.testing.assert_array_equal(apply(below, x), apply(whole, x))


@pytest.mark.slow
@road
@pytest.mark.parametrize("name", UNARY)
def test_float32_is_within_two_ulp_dense(name, lanes, avx512):
    sweep(name, lanes, avx512, 211)


@road
@pytest.mark.parametrize("name", UNARY)
def test_numbers_of_few_bits(name, lanes, avx512):
    """Those of at most eight bits and the ones next to them: tables and forms change over at some of these."""
    bits = (np.arange(1 << 16, dtype=np.int64) << 16)[:, None] + [-1, 0, 1]
    x = (bits.ravel() % (1 << 32)).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.float64))
    error, text = worst(name, apply(build(name, "float32", lanes, avx512), x), want, x)
    assert error <= 2, text


@road
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_where_waves_change_over(name, lanes, avx512):
    """The numbers next to odd multiples of pi / 4, where remainders are largest; sweeps may miss the worst of them."""
    quarters = ((2 * np.arange(10_000) + 1) * np.pi / 4).astype(np.float32)
    x = (quarters.view(np.int32)[:, None] + np.arange(-60, 61, dtype=np.int32)).view(np.float32).ravel()
    error, text = worst(name, apply(build(name, "float32", lanes, avx512), x), REFERENCE[name](x.astype(np.float64)), x)
    assert error <= 2, text


@road
@pytest.mark.parametrize("name", UNARY)
def test_float32_edges(name, lanes, avx512):
    with np.errstate(all="ignore"):
        want = REFERENCE[name](EDGES.astype(np.float64))
        if name == "gelu":
            # 0.5 * x * (1 + erf(x / sqrt(2))) at -inf.
            want[-np.inf == EDGES] = np.nan
    got = apply(build(name, "float32", lanes, avx512), EDGES)
    error, text = worst(name, got, want, EDGES)
    assert error <= 2, text


@road
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_limits_are_exact(name, dtype, lanes, avx512):
    """What 1 - tanh(x) ** 2 becomes at infinity hangs on tanh(x) being 1 there, and not next to it."""
    x = np.array([0.0, -0.0, np.inf, -np.inf], dtype)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.float64)).astype(dtype)
    got = apply(build(name, dtype, lanes if dtype == "float32" else lanes // 2, avx512), x)
    whole = np.isfinite(want) & (want == np.rint(want)) | np.isinf(want)
    np.testing.assert_array_equal(got[whole], want[whole])


def pairs(seed: int, dtype: str) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    n = 20000

    def any_size(low: int = -3, high: int = 4) -> np.ndarray:
        return (rng.standard_normal(n) * 10.0 ** rng.integers(low, high, n)).astype(dtype)

    grid = [g.ravel().astype(dtype) for g in np.meshgrid(EDGES, EDGES)]
    near_one = np.abs(1 + rng.standard_normal(n) * 10.0 ** rng.integers(-7, 0, n)).astype(dtype)
    patterns = [rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32) for _ in range(2)]
    return [
        (grid[0], grid[1]),
        (patterns[0].astype(dtype), patterns[1].astype(dtype)),
        (any_size(), any_size()),
        (np.abs(any_size()), any_size()),
        (near_one, any_size(0, 7)),
        (any_size(), np.rint(any_size(0, 2))),
        (any_size(-36, 37), any_size(-36, 37)),
    ]


@road
@pytest.mark.parametrize("name", BINARY)
def test_float32_of_two_arguments(name, lanes, avx512):
    kernel = build(name, "float32", lanes, avx512)
    for x, y in pairs(5, "float32"):
        with np.errstate(all="ignore"):
            wide = (x, y) if name == "remainder" else (x.astype(np.float64), y.astype(np.float64))
            want = REFERENCE[name](*wide).astype(np.float64)
        got = apply(kernel, x, y)
        error = ulps(got, want)
        at = int(np.argmax(error))
        limit = 0.0 if name in EXACT else 2.0
        assert error[at] <= limit, f"{name}({x[at]!r}, {y[at]!r}) is {got[at]!r}, not {want[at]!r}"
        known = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[known]), np.signbit(want[known])), name


DOMAINS = {"log": "+", "log2": "+", "log10": "+", "sqrt": "+", "rsqrt": "+", "acosh": ">1", "asin": "1", "acos": "1",
           "atanh": "1", "log1p": ">-1"}  # fmt: skip


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize(("lanes", "avx512"), [(host().lanes(64), None), (4, False)], ids=["best", "portable"])
@pytest.mark.parametrize("name", UNARY)
def test_float64(name, lanes, avx512):
    rng = np.random.default_rng(3)
    n = 6000
    x = np.concatenate(
        [rng.standard_normal(n) * 10.0 ** rng.integers(-8, 4, n), rng.uniform(-1, 1, n), rng.uniform(-30, 30, n),
         1 + rng.standard_normal(n) * 10.0 ** rng.integers(-9, -1, n), rng.uniform(-745, 745, n)]
    )  # fmt: skip
    domain = DOMAINS.get(name)
    if domain == "+":
        x = np.abs(x)
    elif domain == ">1":
        x = 1 + np.abs(x)
    elif domain == "1":
        x = x[np.abs(x) < 1]
    elif domain == ">-1":
        x = x[x > -1]
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.longdouble)).astype(np.longdouble)
    got = apply(build(name, "float64", lanes, avx512), x)
    error, text = worst(name, got, want, x)
    # The C library's erf, which is the reference here, is itself off by one.
    assert error <= (0.51 if name in EXACT else 5 if name in ("erf", "erfc") else 3), text


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize("name", BINARY)
def test_float64_of_two_arguments(name):
    kernel = build(name, "float64", host().lanes(64))
    for x, y in pairs(6, "float64"):
        with np.errstate(all="ignore"):
            wide = (x, y) if name in EXACT else (x.astype(np.longdouble), y.astype(np.longdouble))
            want = REFERENCE[name](*wide).astype(np.longdouble)
        got = apply(kernel, x, y)
        error = ulps(got, want)
        at = int(np.argmax(error))
        assert error[at] <= (0.0 if name in EXACT else 4.0), (
            f"{name}({x[at]!r}, {y[at]!r}) is {got[at]!r}, not {want[at]!r}"
        )


def test_float64_edges():
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e308, -1e308, 1, -1, 1e-310, 709.7, 710, -745.2]
    )
    for name in UNARY:
        with np.errstate(all="ignore"):
            want = REFERENCE[name](x)
        if name == "gelu":
            want[x == -np.inf] = np.nan
        got = apply(build(name, "float64", host().lanes(64)), x)
        same = (np.isnan(got) & np.isnan(want)) | (np.isinf(want) & (got == want))
        close = np.isclose(got, want, rtol=1e-14, atol=0) | (np.abs(want) < 1e-300)
        assert np.all(same | close), (name, x[~(same | close)], got, want)
        zeros = (x == 0) & (want == 0)
        assert np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros])), name


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("floored", [True, False])
def test_integer_remainders(dtype, floored):
    rng = np.random.default_rng(2)
    kind = np.iinfo(dtype)
    x = rng.integers(kind.min, kind.max, 500, dtype=dtype, endpoint=True)
    y = rng.integers(max(kind.min, -9), 9, 500, dtype=dtype)
    y[y == 0] = 1
    x[:5], y[:5] = kind.min, kind.max if kind.min == 0 else -1
    writer = KernelWriter()
    with writer.kernel("modulo") as k:
        places = [k.pointer(i) for i in range(3)]

        def body(i: Vector, mask: Vector | None) -> None:
            a, b = (k.e.load(p, i.value, dtype, 8, mask, other=1) for p in places[:2])
            k.e.store(places[2], i.value, integer_remainder(k.e, a, b, floored), mask=mask)

        k.vector_loop(k.integer(3), 8, body)
    kernel = native.Library(native.compile_ir([str(writer)])).kernel("modulo")
    want = np.remainder(x, y) if floored else np.fmod(x, y)
    assert np.array_equal(apply(kernel, x, y), want)
