"""Convolution and its transpose against a direct sum over taps and PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.conv  # noqa: F401  # importing declares the entries
from gpujit.ops.families.layers import convolve, convolve_depthwise
from gpujit.support.errors import DTypeError, ShapeError
from tests.ops.check import against_torch, assert_same, run

BFLOAT16 = ml_dtypes.bfloat16


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    """Numbers of about unit size; small integers for integer types."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-4, 5, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def window(at: Any, stride: Any, dilation: Any, kernel: Any) -> tuple[slice, ...]:
    """The elements one window meets."""
    rows = zip(at, stride, dilation, kernel, strict=True)
    return tuple(slice(p * s, p * s + d * (k - 1) + 1, d) for p, s, d, k in rows)


def direct(x: Any, w: Any, bias: Any, stride: Any, low: Any, high: Any, dilation: Any, groups: int) -> np.ndarray:
    """The definition of convolution, one output element at a time."""
    x = np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)])
    sizes = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    per = w.shape[0] // groups
    for n, o, *at in product(*map(range, y.shape)):
        first = o // per * w.shape[1]
        index = window(at, stride, dilation, w.shape[2:])
        y[(n, o, *at)] = (x[(n, slice(first, first + w.shape[1]), *index)] * w[o]).sum()
    return y if bias is None else y + bias.reshape(-1, *(1,) * len(sizes))


def scattered(x: Any, w: Any, stride: Any, padding: Any, extra: Any, dilation: Any, groups: int) -> np.ndarray:
    """The definition of transposed convolution, one input element at a time."""
    rank = w.ndim - 2
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(x.shape[2:], stride, dilation, w.shape[2:], extra, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *full), x.dtype)
    per = x.shape[1] // groups
    for n, c, *at in product(*map(range, x.shape)):
        o = c // per * w.shape[1]
        index = window(at, stride, dilation, w.shape[2:])
        y[(n, slice(o, o + w.shape[1]), *index)] += x[(n, c, *at)] * w[c]
    cut = [slice(p, m - p) for p, m in zip(padding, full, strict=True)]
    assert len(cut) == rank
    return y[(..., *cut)]


# input, weight, stride, padding, dilation, groups; they reach every path of convolve.py
CASES = [
    ((1, 5, 9), (4, 5, 3), [1], [1], [1], 1),
    ((3, 4, 9), (6, 2, 2), [2], [0], [2], 2),
    ((1, 4, 7), (4, 1, 3), [1], [1], [1], 4),
    ((2, 4, 7), (8, 1, 3), [2], [1], [1], 4),
    ((2, 3, 6, 7), (5, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((1, 3, 30, 40), (5, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((1, 6, 30, 40), (4, 3, 3, 3), [1, 1], [1, 1], [1, 2], 2),
    ((1, 3, 31, 24), (4, 3, 3, 2), [2, 3], [1, 0], [1, 2], 1),
    ((6, 3, 4, 5), (5, 3, 3, 3), [1, 1], [0, 0], [1, 1], 1),
    ((2, 6, 5, 5), (4, 6, 1, 1), [1, 1], [0, 0], [1, 1], 1),
    ((1, 6, 5, 5), (4, 6, 1, 1), [2, 2], [0, 0], [1, 1], 1),
    ((2, 6, 5, 5), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], 2),
    ((2, 3, 5, 5), (4, 3, 1, 1), [1, 1], [1, 1], [1, 1], 1),
    ((2, 6, 8, 9), (12, 1, 3, 2), [1, 1], [1, 1], [1, 1], 6),
    ((2, 6, 8, 9), (6, 1, 3, 3), [2, 1], [1, 2], [1, 2], 6),
    ((2, 3, 4, 5, 6), (4, 3, 2, 2, 3), [1, 1, 1], [1, 0, 1], [1, 1, 1], 1),
    ((1, 4, 4, 5, 6), (4, 1, 2, 2, 3), [1, 2, 1], [1, 0, 1], [2, 1, 1], 4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_is_the_sum_over_taps(case: Any) -> None:
    """Every path computes the definition."""
    shape, weight, stride, padding, dilation, groups = case
    x, w, bias = numbers(shape, np.float64), numbers(weight, np.float64, 2), numbers(weight[0], np.float64, 3)
    name = f"aten::conv{len(shape) - 2}d"
    for b in (bias, None):
        want = direct(x, w, b, stride, padding, padding, dilation, groups)
        assert_same(run(name, x, w, b, stride, padding, dilation, groups), want)
    whole = run("aten::convolution", x, w, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    assert_same(whole, direct(x, w, bias, stride, padding, padding, dilation, groups))


def test_explicit_numbers() -> None:
    """A difference filter on squares gives odd numbers."""
    x = np.array([[[0, 1, 4, 9, 16]]], np.float32)
    w = np.array([[[-1, 1]]], np.float32)
    assert run("aten::conv1d", x, w).tolist() == [[[1, 3, 5, 7]]]
    assert run("aten::conv1d", x, w, np.array([10], np.float32), [2], [1]).tolist() == [[[10, 13, 17]]]
    y = run("aten::conv_transpose1d", np.array([[[1, 2]]], np.float32), np.array([[[1, 10, 100]]], np.float32))
    assert y.tolist() == [[[1, 12, 120, 200]]]


def test_large_inputs_are_done_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting columns by images and rows changes nothing."""
    for shape, weight, stride in (
        ((3, 4, 30, 20), (5, 4, 3, 3), [1, 1]),
        ((3, 4, 30, 20), (5, 4, 3, 3), [2, 1]),
        ((3, 4, 30, 20), (4, 1, 3, 3), [1, 1]),
        ((3, 4, 300), (5, 4, 3), [1]),
    ):
        x, w, bias = numbers(shape, np.float64), numbers(weight, np.float64), numbers(weight[0], np.float64)
        groups = shape[1] // weight[1]
        args = (f"aten::conv{len(stride)}d", x, w, bias, stride, [1] * len(stride), [1] * len(stride), groups)
        monkeypatch.undo()
        want = run(*args)
        for limit in (1, 2000, 30000):
            monkeypatch.setattr(convolve, "COLUMN_LIMIT", limit)
            monkeypatch.setattr(convolve_depthwise, "CACHED", limit)
            assert_same(run(*args), want)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding(kernel: int, dilation: int) -> None:
    """``same`` keeps the size; an odd total is padded more at the end."""
    x, w = numbers((1, 2, 9, 8), np.float64), numbers((3, 2, kernel, 2), np.float64, 2)
    total = (dilation * (kernel - 1), dilation)
    low = [t // 2 for t in total]
    high = [t - t // 2 for t in total]
    y = run("aten::conv2d.padding", x, w, None, [1, 1], "same", [dilation, dilation], 1)
    assert_same(y, direct(x, w, None, [1, 1], low, high, [dilation, dilation], 1))
    assert_same(run("aten::_convolution_mode", x, w, None, [1, 1], "same", [dilation, dilation], 1), y)
    valid = run("aten::_convolution_mode", x, w, None, [1, 1], "valid", [dilation, dilation], 1)
    assert_same(valid, direct(x, w, None, [1, 1], [0, 0], [0, 0], [dilation, dilation], 1))


# input, weight, stride, padding, output padding, dilation, groups
TRANSPOSED = [
    ((2, 4, 6), (4, 3, 3), [2], [1], [1], [1], 1),
    ((2, 4, 6), (4, 3, 2), [2], [0], [0], [1], 2),
    ((2, 4, 4, 5), (4, 2, 2, 2), [2, 2], [0, 0], [0, 0], [1, 1], 1),
    ((2, 4, 4, 5), (4, 2, 3, 2), [1, 3], [1, 2], [0, 1], [2, 1], 2),
    ((1, 2, 3, 2, 3), (2, 2, 2, 2, 3), [1, 2, 1], [0, 1, 1], [0, 1, 0], [1, 1, 1], 1),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_scatters(case: Any) -> None:
    """The transpose adds a scaled kernel for every input element; it is what ``_convolution`` calls transposed."""
    shape, weight, stride, padding, extra, dilation, groups = case
    rank = len(stride)
    x, w = numbers(shape, np.float64), numbers(weight, np.float64, 2)
    bias = numbers(weight[1] * groups, np.float64, 3)
    want = scattered(x, w, stride, padding, extra, dilation, groups)
    name = f"aten::conv_transpose{rank}d" + ("" if rank == 1 else ".input")
    assert_same(run(name, x, w, None, stride, padding, extra, groups, dilation), want)
    rest = (stride, padding, dilation, True, extra, groups)
    with_bias = run("aten::_convolution", x, w, bias, *rest, False, False, True, True)
    assert_same(with_bias, want + bias.reshape(-1, *(1,) * rank))
    old = run(
        "aten::_convolution.deprecated", x, w, bias, stride, padding, dilation, True, extra, groups, False, False, True
    )
    assert_same(old, with_bias)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex64, np.float16, BFLOAT16])
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_conv_against_torch(case: Any, dtype: Any) -> None:
    """Dtypes, contiguous or not, with and without a batch."""
    shape, weight, stride, padding, dilation, groups = case
    x, w, bias = numbers(shape, dtype), numbers(weight, dtype, 2), numbers(weight[0], dtype, 3)
    name = f"aten::conv{len(shape) - 2}d"
    tolerance = {np.float16: 2e-2, BFLOAT16: 1e-1, np.float32: 1e-4, np.complex64: 1e-4}.get(dtype)
    against_torch(name, x, w, bias, stride, padding, dilation, groups, tolerance=tolerance)
    against_torch(name, x[0], w, None, stride, padding, dilation, groups, tolerance=tolerance)
    turned = np.ascontiguousarray(x.swapaxes(1, -1)).swapaxes(1, -1)
    against_torch(name, turned, w, bias, stride, padding, dilation, groups, tolerance=tolerance)
    against_torch(name, x[:0], w, bias, stride, padding, dilation, groups)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float16])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_against_torch(case: Any, dtype: Any) -> None:
    """Dtypes, empty and without a batch."""
    shape, weight, stride, padding, extra, dilation, groups = case
    x, w = numbers(shape, dtype), numbers(weight, dtype, 2)
    bias = numbers(weight[1] * groups, dtype, 3)
    name = f"aten::conv_transpose{len(stride)}d" + ("" if len(stride) == 1 else ".input")
    tolerance = 2e-2 if dtype == np.float16 else 1e-4
    for y in (x, x[0], x[:0]):
        against_torch(name, y, w, bias, stride, padding, extra, groups, dilation, tolerance=tolerance)


def test_nan_and_infinity_stay_where_they_are() -> None:
    """One bad element reaches only the windows that hold it."""
    x, w = numbers((1, 2, 12, 40)), numbers((3, 2, 3, 3), seed=2)
    x[0, 0, 5, 7] = np.nan
    x[0, 1, 9, 30] = np.inf
    y = run("aten::conv2d", x, w, None, [1, 1], [1, 1])
    assert np.isnan(y[0, 0]).sum() == 9 and np.isinf(y[0, 0]).sum() == 9
    against_torch("aten::conv2d", x, w, None, [1, 1], [1, 1], tolerance=1e-4)


def test_names_of_single_kernels() -> None:
    """Each is convolution with its own defaults."""
    x2, w2, x3, w3 = numbers((1, 4, 6, 7)), numbers((5, 4, 3, 2)), numbers((1, 4, 4, 5, 6)), numbers((5, 4, 2, 3, 2))
    plain2 = run("aten::conv2d", x2, w2)
    plain3 = run("aten::conv3d", x3, w3)
    for name in ("thnn_conv2d", "slow_conv_dilated2d"):
        assert_same(run(f"aten::{name}", x2, w2, [3, 2]), plain2)
    for name in ("slow_conv3d", "slow_conv_dilated3d"):
        assert_same(run(f"aten::{name}", x3, w3, [2, 3, 2]), plain3)
    for rank, x, w in ((2, x2, numbers((4, 1, 3, 2))), (3, x3, numbers((4, 1, 2, 3, 2)))):
        name = "_conv_depthwise2d" if rank == 2 else "conv_depthwise3d"
        one, none = [1] * rank, [0] * rank
        got = run(f"aten::{name}", x, w, list(w.shape[2:]), None, one, none, one)
        assert_same(got, run(f"aten::conv{rank}d", x, w, None, one, none, one, 4))
        back = numbers((4, *w.shape))[:, :, 0]
        got = run(f"aten::slow_conv_transpose{rank}d", x, back, list(back.shape[2:]))
        assert_same(got, run(f"aten::conv_transpose{rank}d.input", x, back))
    assert_same(
        run("aten::mkldnn_convolution", x2, w2, None, [1, 1], [2, 2], [1, 1], 1),
        run("aten::conv2d", x2, w2, None, [2, 2], [1, 1]),
    )
    assert_same(run("aten::convolution_overrideable", x2, w2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), plain2)
    with pytest.raises(ShapeError, match=r"thnn_conv2d: kernel_size is \[2, 2\]"):
        run("aten::thnn_conv2d", x2, w2, [2, 2])


def test_out_form_writes() -> None:
    """The out= form fills the array given and returns it."""
    x, w = numbers((1, 4, 6, 7)), numbers((5, 4, 3, 2))
    target = np.zeros((1, 5, 4, 6), np.float32)
    got = run("aten::convolution.out", x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, target)
    assert got is target
    assert_same(target, run("aten::conv2d", x, w))


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_conv_tbc(pad: int) -> None:
    """The same as conv1d with the dims in another order."""
    x, w, bias = numbers((7, 2, 3), np.float64), numbers((3, 3, 4), np.float64, 2), numbers(4, np.float64, 3)
    want = run("aten::conv1d", x.transpose(1, 2, 0), w.transpose(2, 1, 0), bias, [1], [pad]).transpose(2, 0, 1)
    assert_same(run("aten::conv_tbc", x, w, bias, pad), want)
    against_torch("aten::conv_tbc", x, w, bias, pad)


X, W = np.zeros((1, 3, 5, 5), np.float32), np.zeros((8, 4, 3, 3), np.float32)
GOOD = np.zeros((8, 3, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X, W), ShapeError, r"aten::conv2d: input has 3 channels, weight \[8, 4, 3, 3\] with groups=1 needs 4"),
        ((X[0, 0], GOOD), ShapeError, r"input \[5, 5\] has 2 dims"),
        ((X, GOOD[0]), ShapeError, r"weight \[3, 3, 3\] has 3 dims, expected 4"),
        ((X[:, :, :2], GOOD), ShapeError, r"the kernel reaches over \[3, 3\], more than the padded input \[2, 5\]"),
        ((X, GOOD, None, [0, 1]), ShapeError, r"stride is \[0, 1\]"),
        ((X, GOOD, None, [1, 1], [-1, 0]), ShapeError, r"padding is \[-1, 0\]"),
        ((X, GOOD, None, [1, 1], [0, 0], [0, 1]), ShapeError, r"dilation is \[0, 1\]"),
        ((X, GOOD, None, [1, 1, 1]), ShapeError, r"stride is \[1, 1, 1\], expected one number or 2"),
        ((X, GOOD[:, :1], None, [1, 1], [0, 0], [1, 1], 3), ShapeError, "makes 8 channels, groups=3"),
        ((X, GOOD, None, [1, 1], [0, 0], [1, 1], 0), ShapeError, "groups is 0"),
        ((X, GOOD, np.zeros(7, np.float32)), ShapeError, r"bias is \[7\], the weight makes 8 channels"),
        ((X, GOOD.astype(np.float64)), DTypeError, "input is float32, weight float64"),
        ((X, GOOD, np.zeros(8, np.int64)), DTypeError, "bias int64"),
        ((X.astype(bool), GOOD.astype(bool)), DTypeError, "input is bool"),
    ],
)
def test_refusals(args: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(error, match=message):
        run("aten::conv2d", *args)


def test_more_refusals() -> None:
    """Named padding and the transpose have rules of their own."""
    with pytest.raises(ShapeError, match="padding 'same' needs stride 1"):
        run("aten::conv2d.padding", X, GOOD, None, [2, 1], "same")
    with pytest.raises(ShapeError, match="padding is 'full', expected 'same', 'valid' or numbers"):
        run("aten::conv2d.padding", X, GOOD, None, [1, 1], "full")
    back = np.zeros((3, 2, 3, 3), np.float32)
    name = "aten::conv_transpose2d.input"
    with pytest.raises(ShapeError, match=r"output_padding is \[1, 0\]"):
        run(name, X, back, None, [1, 1], [0, 0], [1, 0])
    with pytest.raises(ShapeError, match=r"input has 3 channels, weight \[8, 3, 3, 3\] needs 8"):
        run(name, X, GOOD)
    with pytest.raises(ShapeError, match="leaves an output of size"):
        run(name, X[..., :1, :1], back, None, [1, 1], [2, 2])
    with pytest.raises(ShapeError, match=r"conv_tbc: self has 2 dims"):
        run("aten::conv_tbc", X[0, 0], GOOD[0], np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("x", "w", "numbers"),
    [
        # A kernel three wide: two columns of the result at a time, in one or more turns.
        ((2, 49, 21, 37), (50, 49, 3, 3), ([1], [1, 1], [1], 1)),
        ((1, 48, 41, 36), (48, 48, 5, 3), ([1], [1, 0], [1], 1)),
        ((1, 48, 30, 37), (48, 48, 1, 3), ([1], [2, 3], [1], 1)),
        # Depthwise with a large kernel: banded matrices, with a last band that is not full.
        ((2, 5, 33, 47), (5, 1, 7, 7), ([1], [3, 2], [1], 5)),
        ((1, 3, 40, 40), (3, 1, 5, 9), ([1], [0, 4], [1], 3)),
        # Depthwise with strides and dilations that fall into several phases.
        ((1, 4, 23, 19), (8, 1, 5, 3), ([3, 2], [2, 1], [2, 1], 4)),
        ((1, 4, 23, 19), (4, 1, 4, 3), ([2, 2], [0, 1], [1, 3], 4)),
    ],
)
def test_special_paths_against_torch(x: Any, w: Any, numbers: Any) -> None:
    rng = np.random.default_rng(5)
    image, kernel = rng.standard_normal(x).astype(np.float32), rng.standard_normal(w).astype(np.float32)
    kernel /= np.float32(np.sqrt(kernel[0].size))
    bias = rng.standard_normal(w[0]).astype(np.float32)
    against_torch("aten::conv2d", image, kernel, bias, *numbers)
    against_torch("aten::conv2d", image, kernel, None, *numbers)


@pytest.mark.parametrize(("channels", "kernel", "groups"), [(48, 3, 1), (3, 7, 3)])
def test_infinity_does_not_spread_in_transformed_sums(channels: int, kernel: int, groups: int) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((1, channels, 33, 33)).astype(np.float32)
    w = rng.standard_normal((channels, channels // groups, kernel, kernel)).astype(np.float32)
    x[0, 1, 10, 11] = np.inf
    y = run("aten::conv2d", x, w, None, [1], [kernel // 2], [1], groups)
    assert not np.isnan(y).any()
    reached = np.isinf(y).any(axis=(0, 1))
    side = slice(10 - kernel // 2, 11 + kernel // 2)
    assert reached[side, 11 - kernel // 2 : 12 + kernel // 2].all() and reached.sum() == kernel * kernel
