"""Pooling against a loop over windows and PyTorch."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.pool
import gpujit.ops.families.layers.unpool  # noqa: F401  # importing declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

NAN, INF = math.nan, math.inf
BFLOAT16 = ml_dtypes.bfloat16


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 1, step: float = 0.5) -> np.ndarray:
    """Numbers of about unit size, many of them equal, so that ties are common."""
    x = np.random.default_rng(seed).standard_normal(shape) * 2
    return (np.round(x / step) * step).astype(dtype)


def looped(x: np.ndarray, bounds: Any, value: Any) -> np.ndarray:
    """``value`` of every window; ``bounds`` holds (low, high) a position and dim."""
    shape = (*x.shape[:2], *(len(b) for b in bounds))
    first = value(x[0, 0][tuple(slice(*b[0]) for b in bounds)])
    y = np.zeros(shape, np.asarray(first).dtype)
    for n, c, *at in product(*map(range, shape)):
        y[(n, c, *at)] = value(x[n, c][tuple(slice(*b[i]) for b, i in zip(bounds, at, strict=True))])
    return y


def adaptive_bounds(n: int, size: int) -> list[tuple[int, int]]:
    """Windows that divide ``n`` elements into ``size`` parts, which may overlap."""
    return [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]


def test_explicit_rows() -> None:
    """Small rows by hand: strides, padding, ceil mode, divisors."""
    row = np.array([[[1, 5, 2, 4, 3]]], np.float32)
    assert run("aten::max_pool1d", row, [2]).tolist() == [[[5, 4]]]
    assert run("aten::max_pool1d", row, [2], [], [0], [1], True).tolist() == [[[5, 4, 3]]]
    assert run("aten::max_pool1d", -row, [3], [2], [1]).tolist() == [[[-1, -2, -3]]]
    assert run("aten::max_pool1d", row, [2], [1], [0], [3]).tolist() == [[[4, 5]]]
    values, places = run("aten::max_pool1d_with_indices", row, [3], [2], [1])
    assert values.tolist() == [[[5, 5, 4]]] and places.tolist() == [[[1, 1, 3]]] and places.dtype == np.int64
    assert run("aten::avg_pool1d", row, [2]).tolist() == [[[3, 3]]]
    assert run("aten::avg_pool1d", row, [2], [], [1]).tolist() == [[[0.5, 3.5, 3.5]]]
    assert run("aten::avg_pool1d", row, [2], [], [1], False, False).tolist() == [[[1, 3.5, 3.5]]]
    assert run("aten::avg_pool1d", row, [2], [], [0], True).tolist() == [[[3, 3, 3]]]
    assert run("aten::avg_pool2d", row, [1, 2], [], [0], False, True, 4).tolist() == [[[1.5, 1.5]]]
    assert_same(run("aten::adaptive_avg_pool1d", row, [2]), np.array([[[8 / 3, 3]]], np.float32))
    values, places = run("aten::adaptive_max_pool1d", row, [2])
    assert values.tolist() == [[[5, 4]]] and places.tolist() == [[[1, 3]]]
    square = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    values, places = run("aten::max_pool2d_with_indices", square, [2, 2])
    assert values.tolist() == [[[5, 7], [13, 15]]] and places.tolist() == [[[5, 7], [13, 15]]]
    assert run("aten::avg_pool2d", square, [2, 2]).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert run("aten::avg_pool2d", -square.astype(np.int64), [2, 2]).tolist() == [[[-2, -4], [-10, -12]]]


def test_first_of_equal_maxima_and_last_nan() -> None:
    """The place of a maximum is its first in row order; of several NaN it is the last."""
    x = np.array([[[0, 7, 0], [7, 0, 7], [0, 0, 0]]], np.float32)
    assert run("aten::max_pool2d_with_indices", x, [3, 3])[1].tolist() == [[[1]]]
    assert run("aten::adaptive_max_pool2d", x, [1, 1])[1].tolist() == [[[1]]]
    x[0, 1, 1] = x[0, 0, 2] = NAN
    value, place = run("aten::max_pool2d_with_indices", x, [3, 3])
    assert np.isnan(value).all() and place.tolist() == [[[4]]]
    assert np.isnan(run("aten::max_pool2d", x, [3, 3])).all()
    low = np.full((1, 2, 2), -INF, np.float32)
    value, place = run("aten::max_pool2d_with_indices", low, [2, 2], [1, 1], [1, 1])
    assert np.isneginf(value).all() and place.tolist() == [[[0, 0, 1], [0, 0, 1], [2, 2, 3]]]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_by_definition(rank: int) -> None:
    """Maximum, place and mean of each window, by a loop."""
    x = numbers((2, 2, 7, 6, 5)[: 2 + rank], np.float64)
    kernel, stride = [3, 2, 2][:rank], [2, 1, 2][:rank]
    bounds = [[(i, i + k) for i in range(0, n - k + 1, s)] for n, k, s in zip(x.shape[2:], kernel, stride, strict=True)]
    want = looped(x, bounds, np.max)
    assert_same(run(f"aten::max_pool{rank}d", x, kernel, stride), want)
    values, places = run(f"aten::max_pool{rank}d_with_indices", x, kernel, stride)
    assert_same(values, want)
    flat = x.reshape(2, 2, -1)
    assert_same(np.take_along_axis(flat, places.reshape(2, 2, -1), -1).reshape(want.shape), want)
    assert_same(run(f"aten::avg_pool{rank}d", x, kernel, stride), looped(x, bounds, np.mean))


@pytest.mark.parametrize("sizes", [(3, 2, 4), (7, 6, 5), (1, 1, 1), (9, 4, 1), (7, 3, 5)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_by_definition(rank: int, sizes: Any) -> None:
    """Windows that divide the input, evenly or not, and more windows than elements."""
    x = numbers((2, 2, 7, 6, 5)[: 2 + rank], np.float64)
    output = list(sizes[:rank])
    bounds = [adaptive_bounds(n, s) for n, s in zip(x.shape[2:], output, strict=True)]
    means = looped(x, bounds, np.mean)
    assert_same(run(f"aten::adaptive_avg_pool{rank}d", x, output), means)
    if rank > 1:
        assert_same(run(f"aten::_adaptive_avg_pool{rank}d", x, output), means)
    values, places = run(f"aten::adaptive_max_pool{rank}d", x, output)
    assert_same(values, looped(x, bounds, np.max))
    assert_same(np.take_along_axis(x.reshape(2, 2, -1), places.reshape(2, 2, -1), -1).reshape(values.shape), values)


# kernel, stride, padding, dilation, ceil mode
MAXIMA = [
    ([3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], False),
    ([2, 2, 2], [], [0, 0, 0], [1, 1, 1], True),
    ([3, 2, 2], [1, 2, 3], [1, 0, 1], [2, 1, 2], True),
    ([1, 1, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1], False),
    ([2, 3, 1], [3, 3, 2], [1, 1, 0], [1, 1, 1], True),
]


@pytest.mark.parametrize("case", MAXIMA, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.float16, BFLOAT16])
def test_max_pool_against_torch(rank: int, case: Any, dtype: Any) -> None:
    """Dtypes, ranks, views, no batch and an empty one."""
    if rank == 1 and np.dtype(dtype).kind in "iu":
        # PyTorch has no kernel for rows of integers.
        dtype = np.float32
    kernel, stride, padding, dilation, ceil_mode = (v[:rank] if isinstance(v, list) else v for v in case)
    x = numbers((2, 3, 9, 8, 7)[: 2 + rank], dtype)
    for name in (f"aten::max_pool{rank}d", f"aten::max_pool{rank}d_with_indices"):
        against_torch(name, x, kernel, stride, padding, dilation, ceil_mode)
    against_torch(f"aten::max_pool{rank}d", x[0], kernel, stride, padding, dilation, ceil_mode)
    against_torch(f"aten::max_pool{rank}d", x[:0], kernel, stride, padding, dilation, ceil_mode)
    against_torch(f"aten::max_pool{rank}d_with_indices", x.swapaxes(0, 1), kernel, stride, padding, dilation, ceil_mode)
    if np.dtype(dtype).kind == "f":
        x.reshape(-1)[::7] = NAN
        x.reshape(-1)[::5] = -INF
        against_torch(f"aten::max_pool{rank}d_with_indices", x, kernel, stride, padding, dilation, ceil_mode)


# kernel, stride, padding, ceil mode, padding counted, divisor
MEANS = [
    ([2, 2, 2], [], [0, 0, 0], False, True, None),
    ([3, 3, 2], [2, 1, 2], [1, 1, 1], True, True, None),
    ([3, 3, 2], [2, 2, 2], [1, 1, 1], True, False, None),
    ([3, 2, 2], [3, 3, 3], [1, 1, 1], False, False, 5),
    ([9, 8, 7], [1, 1, 1], [0, 0, 0], False, True, None),
    ([2, 2, 2], [2, 2, 2], [0, 0, 0], True, True, -3),
]


@pytest.mark.parametrize("case", MEANS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16, BFLOAT16])
def test_avg_pool_against_torch(rank: int, case: Any, dtype: Any) -> None:
    """Dtypes, ranks, views, no batch and an empty one."""
    if rank == 3 and np.dtype(dtype).itemsize == 2:
        # PyTorch has no half-precision kernel for volumes on CPU.
        dtype = np.float32
    kernel, stride, padding, ceil_mode, counted, divisor = (v[:rank] if isinstance(v, list) else v for v in case)
    x = numbers((2, 3, 9, 8, 7)[: 2 + rank], dtype)
    last = [] if rank == 1 else [divisor]
    for y in (x, x[0], x[:0], x.swapaxes(0, 1)):
        against_torch(f"aten::avg_pool{rank}d", y, kernel, stride, padding, ceil_mode, counted, *last)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_adaptive_against_torch(rank: int, dtype: Any) -> None:
    """Dtypes, views, NaN, zero windows."""
    x = numbers((2, 3, 9, 8, 7)[: 2 + rank], dtype)
    x.reshape(-1)[::31] = NAN
    x.reshape(-1)[::29] = INF
    for output in ([4, 3, 2][:rank], [1] * rank, [3, 8, 9][:rank]):
        for y in (x, x[0], x[:0], x.swapaxes(0, 1)):
            against_torch(f"aten::adaptive_avg_pool{rank}d", y, output, tolerance=5e-3 if dtype == np.float16 else None)
            against_torch(f"aten::adaptive_max_pool{rank}d", y, output)
    against_torch(f"aten::adaptive_max_pool{rank}d", x[0, :0], [2] * rank)
    for y in (x[0, :0], x[:, :0]) if rank < 3 else (x[0, :0],):
        against_torch(f"aten::adaptive_avg_pool{rank}d", y, [2] * rank)
    if rank > 1:
        against_torch(f"aten::adaptive_avg_pool{rank}d", x, [0, *[2] * (rank - 1)])


@pytest.mark.parametrize("rank", [2, 3])
def test_unpool_puts_maxima_back(rank: int) -> None:
    """Pooling, then unpooling, keeps the maxima and zeroes the rest."""
    x = np.random.default_rng(3).standard_normal((2, 3, 4, 6, 4)[: 2 + rank]).astype(np.float32)
    values, places = run(f"aten::max_pool{rank}d_with_indices", x, [2] * rank)
    last = [[2] * rank, [0] * rank] if rank == 3 else []
    sizes = list(x.shape[2:])
    y = run(f"aten::max_unpool{rank}d", values, places, sizes, *last)
    assert np.count_nonzero(y) == values.size
    assert_same(np.where(y != 0, x, 0), y)
    against_torch(f"aten::max_unpool{rank}d", values, places, sizes, *last)
    against_torch(f"aten::max_unpool{rank}d", values[0], places[0], [s + 1 for s in sizes], *last)
    with pytest.raises(ShapeError, match=r"indices reach from .* output of 1 elements"):
        run(f"aten::max_unpool{rank}d", values, places, [1] * rank, *last)
    with pytest.raises(DTypeError, match="indices are int32, expected int64"):
        run(f"aten::max_unpool{rank}d", values, places.astype(np.int32), sizes, *last)
    with pytest.raises(ShapeError, match="differ in shape"):
        run(f"aten::max_unpool{rank}d", values, places[:1], sizes, *last)


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_max_pool(rank: int) -> None:
    """A sample of zero starts at the first element; others as PyTorch has them."""
    x = np.random.default_rng(3).standard_normal((2, 3, 7, 6, 8)[: 2 + rank]).astype(np.float32)
    kernel, output = [2] * rank, [3, 4, 3][:rank]
    name = f"aten::fractional_max_pool{rank}d"
    values, places = run(name, x, kernel, output, np.zeros((2, 3, rank), np.float32))
    corner = (slice(None), slice(None), *(slice(0, 2),) * rank)
    assert_same(values[(..., *(0,) * rank)], x[corner].reshape(2, 3, -1).max(-1))
    assert_same(np.take_along_axis(x.reshape(2, 3, -1), places.reshape(2, 3, -1), -1).reshape(values.shape), values)
    samples = np.random.default_rng(4).random((2, 3, rank)).astype(np.float32)
    against_torch(name, x, kernel, output, samples)
    x[0, 0, 2] = NAN
    against_torch(name, x, kernel, output, samples)
    out, indices = np.empty_like(values), np.empty_like(places)
    got = run(f"{name}.output", x, kernel, output, samples, out, indices)
    assert got[0] is out and got[1] is indices
    assert_same(got, run(name, x, kernel, output, samples))
    with pytest.raises(ShapeError, match="does not fit"):
        run(name, x, kernel, [9] * rank, samples)
    with pytest.raises(ShapeError, match=r"_random_samples \[2, 2, \d\] do not fit"):
        run(name, x, kernel, output, samples[:, :2])


def test_out_forms_of_two_results() -> None:
    """Both arrays are written and returned."""
    x = numbers((1, 2, 4, 4))
    want = run("aten::max_pool2d_with_indices", x, [2, 2])
    out, indices = np.empty((1, 2, 2, 2), np.float32), np.empty((1, 2, 2, 2), np.int64)
    got = run("aten::max_pool2d_with_indices.out", x, [2, 2], [], [0, 0], [1, 1], False, out, indices)
    assert got[0] is out and got[1] is indices
    assert_same(got, want)
    assert_same(run("aten::adaptive_max_pool2d.out", x, [2, 2], out, indices), want)


def test_results_are_fresh() -> None:
    """Windows of one element must not hand the input's memory out."""
    x = numbers((1, 2, 4, 4))
    for got in (
        run("aten::max_pool2d", x, [1, 1]),
        run("aten::avg_pool2d", x, [1, 1]),
        run("aten::adaptive_avg_pool2d", x, [4, 4]),
        run("aten::max_pool2d_with_indices", x, [1, 1])[0],
    ):
        assert_same(got, x)
        assert not np.shares_memory(got, x)


X = np.zeros((1, 3, 5, 5), np.float32)


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("max_pool2d", (X[0, 0], [2, 2]), ShapeError, r"input \[5, 5\] has 2 dims, expected 3, or 4 with a batch"),
        ("max_pool2d", (X, [0, 2]), ShapeError, r"kernel_size is \[0, 2\], every number must be at least 1"),
        ("max_pool2d", (X, [2, 2], [0, 1]), ShapeError, r"stride is \[0, 1\]"),
        ("max_pool2d", (X, [2, 2], [1, 1], [2, 0]), ShapeError, "at most half of the window"),
        ("max_pool2d", (X, [6, 2]), ShapeError, r"windows \[6, 2\] .* do not fit into input \[1, 3, 5, 5\]"),
        ("max_pool2d", (X, [2, 2, 2]), ShapeError, r"kernel_size is \[2, 2, 2\], expected one number or 2"),
        ("max_pool2d", (X[:, :0], [2, 2]), ShapeError, "has an empty dim besides the batch"),
        ("max_pool2d", (X.astype(np.complex64), [2, 2]), DTypeError, "input is complex64, expected a real number type"),
        ("avg_pool2d", (X.astype(bool), [2, 2]), DTypeError, "input is bool"),
        ("avg_pool2d", (X, [2, 2], [], [0, 0], False, True, 0), OpError, "divisor_override is 0"),
        ("avg_pool3d", (X, [4, 2, 2], [], [2, 0, 0]), ShapeError, r"windows \[4, 2, 2\] are larger than input"),
        ("adaptive_avg_pool2d", (X, [-1, 2]), ShapeError, r"output_size is \[-1, 2\]"),
        ("adaptive_avg_pool2d", (X.astype(np.int64), [2, 2]), DTypeError, "the mean needs a floating dtype"),
        ("adaptive_max_pool2d", (X[0, 0], [2, 2]), ShapeError, r"input \[5, 5\] has 2 dims"),
    ],
)
def test_refusals(name: str, args: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(error, match=message):
        run(f"aten::{name}", *args)
