"""Operands that templates make themselves, beside the same templates on operands that lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import scalar
from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from gpujit.ir.scalar import Expr
from gpujit.kernels.index import dim
from gpujit.kernels.reference import run
from gpujit.kernels.templates import conv, gemm
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.gemm import Gemm
from gpujit.kernels.templates.planes import Window
from gpujit.kernels.templates.producer import Source
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError

DTYPES = [FLOAT32, FLOAT16, BFLOAT16]


def numbers(*shape: int, dtype: np.dtype = FLOAT32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def steps(x: np.ndarray) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def shifted(x: Expr, v: Expr) -> Expr:
    return scalar.apply("maximum", scalar.apply("add", x, v), scalar.const(0.5, FLOAT32))


def softmax(x: Expr, v: Expr) -> Expr:
    e = scalar.apply("exp", scalar.apply("sub", x, scalar.reduce("max", x)))
    return scalar.apply("mul", scalar.apply("div", e, scalar.reduce("sum", e)), v)


def program(rank: int, dtype: np.dtype, along: int, what: Callable[[Expr, Expr], Expr], rows: int = 0) -> TileProgram:
    """``what`` of an array as float32 and of a vector along one of its dims."""
    builder = Builder(rank, rows)
    at = [dim(d) for d in range(rank)]
    x = scalar.cast(builder.load(builder.input(dtype, rank), at), FLOAT32)
    v = builder.load(builder.input(FLOAT32, 1), [dim(along)])
    builder.store(builder.output(FLOAT32, rank), at, what(x, v))
    return builder.finish()


def made_by(p: TileProgram, x: np.ndarray, v: np.ndarray) -> tuple[Source, np.ndarray]:
    """The source of a program, and what the oracle makes."""
    made = np.zeros(x.shape, np.float32)
    run(p, [x, v], [made], x.shape)
    return Source(p, (steps(x), steps(v)), x.shape, x.shape), made


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert not np.isnan(got).any()
    np.testing.assert_allclose(got, want, 1e-4, 1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 70), st.integers(2, 90))


@settings(max_examples=30, deadline=None)
@given(SIZES, st.sampled_from(DTYPES), st.sampled_from([1, 2, 3]), st.booleans(), st.booleans())
def test_rows_of_a_product(
    sizes: tuple[int, int, int, int], dtype: np.dtype, threads: int, with_row: bool, is_last: bool
) -> None:
    batch, m, n, k = sizes
    x, v, w = numbers(batch, m, k, dtype=dtype), numbers(k, seed=1), numbers(k, n, seed=2)
    p = program(3, dtype, 2, softmax if with_row else shifted, int(with_row))
    bias, residual = numbers(n, seed=3), numbers(batch, m, n, seed=4)
    strides = (m * n, 0, n, 1)
    described = Gemm(
        m, n, k, (m * k, 0, k, 1), strides, r=strides, batch=batch, epilogue=Epilogue(True, True, "relu", is_last)
    )
    with config(threads=threads):
        source, made = made_by(p, x, v)
        bound = gemm.bind(described, w, bias, source=source)
        c = np.full((batch, m, n), np.nan, np.float32)
        # Twice: what the first call left in scratch memory does not matter.
        for _ in range(2):
            bound(x, v, c, residual)
    plain = made @ w + bias
    same(c, np.maximum(plain, 0) + residual if is_last else np.maximum(plain + residual, 0))


@settings(max_examples=20, deadline=None)
@given(SIZES, st.sampled_from(DTYPES), st.sampled_from([1, 2, 3]))
def test_columns_of_a_product(sizes: tuple[int, int, int, int], dtype: np.dtype, threads: int) -> None:
    batch, k, n, m = sizes
    x, v, w = numbers(batch, k, m, dtype=dtype), numbers(m, seed=1), numbers(k, n, seed=2)
    described = Gemm(m, n, k, (k * m, 0, 1, m), (m * n, 0, 1, m), batch=batch)
    if k == 1:
        # Then it is rows.
        described = described._replace(a=(m, 0, 1, 1))
    with config(threads=threads):
        source, made = made_by(program(3, dtype, 2, shifted), x, v)
        try:
            bound = gemm.bind(described, w, source=source)
        except ArgumentError:
            assert k == 1
            return
        c = np.full((batch, n, m), np.nan, np.float32)
        bound(x, v, c)
    same(c, (made.transpose(0, 2, 1) @ w).transpose(0, 2, 1))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("n", [3, 40, 130])
def test_products_with_another_array(turned: bool, n: int) -> None:
    x, v = numbers(2, 3, 20, 24), numbers(24, seed=1)
    right = numbers(2, 3, n, 24, seed=2).swapaxes(2, 3) if turned else numbers(2, 3, 24, n, seed=2)
    described = Gemm(
        20, n, 24, (3 * 480, 480, 24, 1), (3 * 20 * n, 20 * n, n, 1), b=(3 * 24 * n, 24 * n, *steps(right)[2:]),
        batch=6, inner=3,
    )  # fmt: skip
    for threads in (1, 3):
        with config(threads=threads):
            source, made = made_by(program(4, FLOAT32, 3, softmax, 1), x, v)
            c = np.full((2, 3, 20, n), np.nan, np.float32)
            gemm.bind(described, source=source)(x, v, right, c)
        same(c, made @ right)


WINDOWS = [
    ((1, 1), (1, 1), (0, 0)), ((3, 3), (1, 1), (1, 1)), ((3, 3), (1, 1), (0, 2)), ((5, 2), (2, 1), (2, 1)),
    ((3, 3), (3, 2), (1, 0)),
]  # fmt: skip
METHODS = ["dense", "rows", "few", "pixels", "winograd2", "winograd4"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_images_of_a_convolution(method: str, window: tuple[tuple[int, int], ...]) -> None:
    kernel, stride, padding = window
    for (channels, filters, groups), area, dtype, threads in (
        ((16, 20, 1), (7, 7), FLOAT32, 1),
        ((16, 24, 2), (9, 30), FLOAT16, 2),
        ((5, 5, 5), (12, 5), BFLOAT16, 3),
    ):
        described = conv.Conv(2, channels, filters, Window(*area, kernel, stride, padding), groups)
        x, v = numbers(2, channels, *area, dtype=dtype), numbers(channels, seed=1)
        w = numbers(filters, channels // groups, *kernel, seed=2)
        with config(threads=threads):
            # What is made of 0 is at least a half: it must not be in the border.
            source, made = made_by(program(4, dtype, 1, shifted), x, v)
            try:
                plain = conv.bind(described, w, method=method)
            except ArgumentError:
                continue
            want, got = (np.full((2, filters, *described.window.output), np.nan, np.float32) for _ in range(2))
            plain(made, want)
            conv.bind(described, w, method=method, source=source)(x, v, got)
        same(got, want)


def test_a_norm_over_pixels_is_made_channel_by_channel() -> None:
    x, v = numbers(2, 8, 40), numbers(8, seed=1)
    builder = Builder(3, 1)
    y = builder.load(builder.input(FLOAT32, 3), [dim(0), dim(1), dim(2)])
    y = softmax(y, builder.load(builder.input(FLOAT32, 1), [dim(1)]))
    builder.store(builder.output(FLOAT32, 3), [dim(0), dim(1), dim(2)], y)
    source, made = made_by(builder.finish(), x, v)
    w = numbers(12, 8, 1, 3, seed=2)
    described = conv.Conv(2, 8, 12, Window(1, 40, (1, 3), padding=(0, 1)))
    want, got = (np.full((2, 12, 1, 40), np.nan, np.float32) for _ in range(2))
    conv.bind(described, w, method="dense")(made.reshape(2, 8, 1, 40), want)
    conv.bind(described, w, method="dense", source=source)(x, v, got)
    same(got, want)
    # A panel of pixels would need a part of each row.
    plain = conv.Conv(2, 8, 12, Window(1, 40, (1, 1)))
    with pytest.raises(ArgumentError, match="depend on all of it"):
        conv.bind(plain, numbers(12, 8, 1, 1), method="dense", source=source)


def refused(source: Source, a: Sequence[int], m: int = 6, k: int = 8, batch: int = 1) -> str:
    with pytest.raises(ArgumentError) as found:
        gemm.bind(Gemm(m, 5, k, a, (m * 5, 0, 5, 1), batch=batch), numbers(k, 5), source=source)
    return found.value.message


def test_refusals() -> None:
    source, _ = made_by(program(2, FLOAT32, 1, shifted), numbers(6, 8), numbers(8))
    gemm.bind(Gemm(6, 5, 8, (0, 0, 8, 1), (0, 0, 5, 1)), numbers(8, 5), source=source)
    assert "lie together" in refused(source, (0, 0, 9, 2), m=3, k=3)
    assert "a part of what is made" in refused(source, (0, 0, 8, 1), m=6, k=7)
    assert "not what is made" in refused(source, (0, 0, 8, 1), m=7)
    assert "no rows" in refused(source, (0, 0, 5, 1), m=9, k=5)
    assert "does not compute rows" in refused(source, (0, 0, 16, 1), m=3, k=16)
    turned, _ = made_by(program(2, FLOAT32, 1, shifted), numbers(8, 6).T, numbers(8))
    assert "lie apart" in refused(turned, (0, 0, 8, 1))
    over_rows, _ = made_by(program(2, FLOAT32, 1, softmax, 1), numbers(8, 6), numbers(6))
    assert "depend on all of it" in refused(over_rows, (0, 0, 1, 6))
    with pytest.raises(ArgumentError, match="a part of what is made"):
        conv.bind(conv.Conv(1, 2, 4, Window(4, 4, (3, 3))), numbers(4, 2, 3, 3), source=source)


def test_programs_with_more_than_a_result() -> None:
    builder = Builder(2)
    x = builder.load(builder.input(FLOAT32, 2), [dim(0), dim(1)])
    builder.store(builder.output(FLOAT32, 2), [dim(0), dim(1)], x)
    builder.check(scalar.apply("lt", x, scalar.const(9.0, FLOAT32)), "too large")
    source = Source(builder.finish(), ((8, 1),), (6, 8), (6, 8))
    assert "checks" in refused(source, (0, 0, 8, 1))
