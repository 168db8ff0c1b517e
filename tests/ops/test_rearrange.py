"""Pixel and channel shuffles, im2col and col2im."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.conv
import gpujit.ops.families.layers.rearrange  # noqa: F401  # importing declares the entries
from gpujit.support.errors import ShapeError
from tests.ops.check import against_torch, assert_same, run

DTYPES = [np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16, ml_dtypes.bfloat16, np.complex64]


def test_shuffles_by_hand() -> None:
    """Four channels become one plane of twice the size, and come back."""
    x = np.arange(8).reshape(4, 1, 2)
    y = run("aten::pixel_shuffle", x, 2)
    assert y.tolist() == [[[0, 2, 1, 3], [4, 6, 5, 7]]]
    assert_same(run("aten::pixel_unshuffle", y, 2), x)
    c = np.arange(6).reshape(1, 6, 1)
    assert run("aten::channel_shuffle", c, 2).reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]
    assert run("aten::native_channel_shuffle", c, 3).reshape(-1).tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_shuffles_against_torch(dtype: Any) -> None:
    """Dtypes, leading dims, views, empty."""
    x = np.arange(2 * 12 * 4 * 6).reshape(2, 12, 4, 6).astype(dtype)
    for y in (x, x[0], x[None], x[:0], x.swapaxes(2, 3)):
        against_torch("aten::pixel_shuffle", y, 2)
        against_torch("aten::pixel_unshuffle", y, 2)
    for y in (x, x[:0], x.swapaxes(2, 3), x[..., 0]):
        against_torch("aten::channel_shuffle", y, 3)
    assert not np.shares_memory(run("aten::pixel_shuffle", x, 1), x)
    assert not np.shares_memory(run("aten::channel_shuffle", x, 1), x)


def test_columns_by_hand() -> None:
    """The windows of a 3 by 3 image, and how often each element lies in one."""
    x = np.arange(9).reshape(1, 3, 3)
    columns = run("aten::im2col", x, [2, 2], [1, 1], [0, 0], [1, 1])
    assert columns.tolist() == [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    counts = run("aten::col2im", np.ones_like(columns), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1])
    assert counts.tolist() == [[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]


def test_columns_times_weights_are_convolution() -> None:
    """im2col and a matrix product give conv2d; col2im of a matrix product gives its transpose."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 3, 7, 6)), rng.standard_normal((4, 3, 3, 2))
    columns = run("aten::im2col", x, [3, 2], [1, 2], [1, 0], [2, 1])
    want = run("aten::conv2d", x, w, None, [2, 1], [1, 0], [1, 2])
    assert_same((w.reshape(4, -1) @ columns).reshape(want.shape), want)
    back = w.reshape(4, -1).T @ want.reshape(2, 4, -1)
    got = run("aten::col2im", back, [7, 6], [3, 2], [1, 2], [1, 0], [2, 1])
    assert_same(got, run("aten::conv_transpose2d.input", want, w, None, [2, 1], [1, 0], [0, 0], 1, [1, 2]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64])
@pytest.mark.parametrize(
    ("kernel", "dilation", "padding", "stride"),
    [([2, 3], [1, 1], [0, 0], [1, 1]), ([3, 2], [2, 1], [1, 2], [1, 2]), ([1, 1], [1, 1], [0, 1], [2, 2])],
)
def test_columns_against_torch(dtype: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    """Dtypes, no batch, an empty one, views."""
    x = np.random.default_rng(1).standard_normal((2, 3, 7, 6)).astype(dtype)
    tolerance = 1e-2 if dtype == np.float16 else None
    for y in (x, x[0], x[:0], x.swapaxes(1, 2)):
        against_torch("aten::im2col", y, kernel, dilation, padding, stride)
        if y.shape[0]:
            columns = run("aten::im2col", y, kernel, dilation, padding, stride)
            against_torch(
                "aten::col2im", columns, list(y.shape[-2:]), kernel, dilation, padding, stride, tolerance=tolerance
            )


X = np.zeros((1, 6, 4, 5), np.float32)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("pixel_shuffle", (X, 2), "input has 6 channels, upscale_factor=2 needs a multiple of 4"),
        ("pixel_shuffle", (X[0, 0], 2), r"input \[4, 5\] has 2 dims, expected at least 3"),
        ("pixel_shuffle", (X, 0), "upscale_factor is 0"),
        ("pixel_unshuffle", (X, 2), "downscale_factor=2 does not divide height 4 and width 5"),
        ("channel_shuffle", (X, 4), "groups=4 does not divide 6 channels"),
        ("im2col", (X, [5, 1], [1, 1], [0, 0], [1, 1]), r"windows \[5, 1\] .* do not fit into \[4, 5\]"),
        ("im2col", (X, [2, 2], [1, 1], [0, 0], [0, 1]), r"stride is \[0, 1\], every number must be at least 1"),
        ("im2col", (X[0, 0], [2, 2], [1, 1], [0, 0], [1, 1]), "must have 3 or 4 dims"),
        ("col2im", (X[0], [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]), "input has 5 columns, .* has 4 windows"),
        ("col2im", (X[0], [3, 3], [3, 1], [1, 1], [0, 0], [1, 1]), "input has 4 rows, kernel .* needs a multiple of 3"),
    ],
)
def test_refusals(name: str, args: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(ShapeError, match=message):
        run(f"aten::{name}", *args)
