"""Pooling against NumPy: windows, padding, means that count it or not, adaptive windows, NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.planes import Window
from gpujit.kernels.templates.pool import Pool, bind, bind_adaptive
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from tests.kernels.templates.test_gemm import numbers


def reference(x: np.ndarray, pool: Pool) -> np.ndarray:
    window = pool.window
    (py, px), (sy, sx), (dy, dx), (kh, kw), (my, mx) = (
        window.padding, window.stride, window.dilation, window.kernel, window.more,
    )  # fmt: skip
    empty = -np.inf if pool.kind == "max" else 0
    widths = ((0, 0), (py, py + my), (px, px + mx))
    padded = np.pad(x.astype(np.float64), widths, constant_values=empty)
    # What counts of a mean's window: the image and its padding, but not what rounding up adds.
    counted = np.ones(x.shape[1:]) if not pool.counts_padding else np.ones((x.shape[1] + 2 * py, x.shape[2] + 2 * px))
    border = ((py, py + my), (px, px + mx)) if not pool.counts_padding else ((0, my), (0, mx))
    weight = np.pad(counted, border)
    out = np.empty((len(x), *window.output))
    for i in range(window.output[0]):
        for j in range(window.output[1]):
            rows = slice(i * sy, i * sy + (kh - 1) * dy + 1, dy)
            columns = slice(j * sx, j * sx + (kw - 1) * dx + 1, dx)
            part = padded[:, rows, columns]
            if pool.kind == "max":
                out[:, i, j] = part.max((1, 2))
            else:
                out[:, i, j] = part.sum((1, 2)) / (pool.divisor or weight[rows, columns].sum())
    return out


def check(pool: Pool, x: np.ndarray) -> None:
    room = np.full((pool.images + 2, *pool.window.output), np.nan, np.float32)
    bind(pool)(x, room[1:-1])
    np.testing.assert_allclose(room[1:-1], reference(x, pool), rtol=1e-5, atol=1e-6)
    assert np.isnan(room[[0, -1]]).all()


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(["max", "mean"]),
    images=st.integers(1, 3),
    size=st.tuples(st.integers(1, 20), st.integers(1, 80)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    half=st.booleans(),
    counts=st.booleans(),
    ceil=st.booleans(),
)
def test_any_window(
    kind: str, images: int, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], half: bool,
    counts: bool, ceil: bool,
) -> None:  # fmt: skip
    padding = (kernel[0] // 2, kernel[1] // 2) if half else (0, 0)
    window = Window(*size, kernel, stride, padding)
    if ceil:
        # As rounding up does it: no window begins beyond the image and its padding before it.
        more = tuple(
            s - 1 if (n + 2 * p - t + s - 1) // s * s < n + p else 0
            for n, p, t, s in zip(size, padding, kernel, stride)
        )
        window = window._replace(more=(more[0], more[1]))
    assume(min(window.output) > 0)
    check(Pool(kind, images, window, counts), numbers(np.random.default_rng(0), images, *size))


def test_dilated_maxima() -> None:
    check(Pool("max", 2, Window(15, 40, (3, 3), (2, 1), (1, 1), (2, 3))), numbers(np.random.default_rng(0), 2, 15, 40))


def test_a_divisor_of_ones_own() -> None:
    x = numbers(np.random.default_rng(0), 1, 6, 6)
    check(Pool("mean", 1, Window(6, 6, (2, 2), (2, 2)), True, 3), x)


def test_nan_is_the_largest_and_minus_infinity_the_smallest() -> None:
    x = np.full((1, 4, 4), -np.inf, np.float32)
    x[0, 0, 0] = np.nan
    out = np.zeros((1, 2, 2), np.float32)
    bind(Pool("max", 1, Window(4, 4, (2, 2), (2, 2))))(x, out)
    np.testing.assert_array_equal(out, [[[np.nan, -np.inf], [-np.inf, -np.inf]]])


@pytest.mark.parametrize("width", [1, 8])
def test_narrow_vectors_and_teams(width: int) -> None:
    x = numbers(np.random.default_rng(0), 5, 11, 13)
    with config(simd_width=width, threads=2):
        pool = Pool("max", 5, Window(11, 13, (3, 3), (2, 2), (1, 1)))
        kernel, out = bind(pool), np.empty((5, 6, 7), np.float32)
        kernel.is_small = False
        kernel(x, out)
        np.testing.assert_array_equal(out, reference(x, pool).astype(np.float32))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["max", "mean"]),
    st.tuples(st.integers(1, 17), st.integers(1, 90)),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
)
def test_adaptive_windows(kind: str, size: tuple[int, int], output: tuple[int, int]) -> None:
    x = numbers(np.random.default_rng(0), 3, *size)
    got = np.full((3, *output), np.nan, np.float32)
    bind_adaptive(kind, 3, size, output)(x, got)
    reduce = np.max if kind == "max" else np.mean
    for i in range(output[0]):
        for j in range(output[1]):
            rows = slice(i * size[0] // output[0], -(-(i + 1) * size[0] // output[0]))
            columns = slice(j * size[1] // output[1], -(-(j + 1) * size[1] // output[1]))
            want = reduce(x[:, rows, columns].astype(np.float64), axis=(1, 2))
            np.testing.assert_allclose(got[:, i, j], want, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nothing to compute"):
        bind(Pool("max", 1, Window(2, 2, (3, 3))))
    with pytest.raises(ArgumentError, match="there are max, mean"):
        bind(Pool("median", 1, Window(5, 5, (3, 3))))
    with pytest.raises(ArgumentError, match="nothing to compute"):
        bind_adaptive("mean", 1, (0, 3), (1, 1))
