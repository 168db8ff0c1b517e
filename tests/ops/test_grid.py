"""Grid sampling and affine grids against hand-made values, resampling and PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.layers.grid
import gpujit.ops.families.layers.resample  # noqa: F401  # importing declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def row_at(positions: list[float], mode: int, padding: int, align: bool) -> list[float]:
    """Samples of the row 1 2 3 4 at these positions, given in pixels."""
    row = np.array([1, 2, 3, 4], np.float64).reshape(1, 1, 1, 4)
    at = np.array(positions)
    x = 2 * at / 3 - 1 if align else (2 * at + 1) / 4 - 1
    grid = np.stack((x, np.zeros_like(x)), -1).reshape(1, 1, -1, 2)
    out: list[float] = run("aten::grid_sampler", row, grid, mode, padding, align).reshape(-1).round(9).tolist()
    return out


@pytest.mark.parametrize("align", [False, True])
def test_positions_by_hand(align: bool) -> None:
    """Between pixels, and outside in each padding mode."""
    assert row_at([0, 1.5, 3, 2.25], BILINEAR, ZEROS, align) == [1, 2.5, 4, 3.25]
    assert row_at([-0.5, 3.75, -2, 9], BILINEAR, ZEROS, align) == [0.5, 1, 0, 0]
    assert row_at([-0.5, 3.75, -2, 9], BILINEAR, BORDER, align) == [1, 4, 1, 4]
    assert row_at([0.4, 0.6, 2.9, -0.4], NEAREST, ZEROS, align) == [1, 2, 4, 1]
    assert row_at([0, 1, 2, 3], BICUBIC, BORDER, align) == [1, 2, 3, 4]
    # Corners aligned reflect at pixel centres, otherwise at pixel edges.
    assert row_at([-1, 4, 7], NEAREST, REFLECTION, align) == ([2, 3, 2] if align else [1, 4, 1])


def test_identity_map_and_resampling() -> None:
    """The grid of the identity gives the image back; a larger one is bilinear upsampling."""
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 6))
    eye = np.tile(np.eye(2, 3), (2, 1, 1))
    for align in (False, True):
        grid = run("aten::affine_grid_generator", eye, [2, 3, 5, 6], align)
        assert_same(run("aten::grid_sampler", x, grid, BILINEAR, ZEROS, align), x)
        larger = run("aten::affine_grid_generator", eye, [2, 3, 9, 11], align)
        got = run("aten::grid_sampler", x, larger, BILINEAR, BORDER, align)
        assert_same(got, run("aten::upsample_bilinear2d", x, [9, 11], align))
    assert_same(run("aten::cudnn_grid_sampler", x, grid), run("aten::grid_sampler_2d", x, grid, BILINEAR, ZEROS, True))
    volume = np.random.default_rng(1).standard_normal((1, 2, 3, 4, 5))
    grid = run("aten::affine_grid_generator", np.eye(3, 4)[None], [1, 2, 3, 4, 5], True)
    assert_same(run("aten::grid_sampler_3d", volume, grid, BILINEAR, ZEROS, True), volume)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", [ZEROS, BORDER, REFLECTION])
@pytest.mark.parametrize("mode", [BILINEAR, NEAREST, BICUBIC])
def test_sampling_against_torch(mode: int, padding: int, align: bool) -> None:
    """Planes and volumes, far outside, views, dtypes, empty batches and grids."""
    rng = np.random.default_rng(2)
    for dtype, tolerance in ((np.float32, 2e-4), (np.float64, 1e-9)):
        x, grid = rng.standard_normal((2, 3, 5, 6)).astype(dtype), (rng.standard_normal((2, 7, 4, 2)) * 2).astype(dtype)
        grid[0, 0, 0] = 1
        for name in ("grid_sampler", "grid_sampler_2d"):
            against_torch(f"aten::{name}", x, grid, mode, padding, align, tolerance=tolerance)
        against_torch(
            "aten::grid_sampler", x.swapaxes(2, 3), grid.swapaxes(1, 2), mode, padding, align, tolerance=tolerance
        )
        against_torch("aten::grid_sampler", x[:0], grid[:0], mode, padding, align)
        if padding != ZEROS:
            grid[1, 2, 3, 0] = math.nan
            against_torch("aten::grid_sampler", x, grid, mode, padding, align, tolerance=tolerance)
        if mode != BICUBIC:
            x, grid = (
                rng.standard_normal((2, 2, 3, 4, 5)).astype(dtype),
                (rng.standard_normal((2, 4, 3, 2, 3)) * 2).astype(dtype),
            )
            for name in ("grid_sampler", "grid_sampler_3d"):
                against_torch(f"aten::{name}", x, grid, mode, padding, align, tolerance=tolerance)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [[2, 1, 4, 5], [2, 1, 1, 3], [2, 1, 3, 4, 5], [2, 1, 1, 2, 1]])
def test_affine_grid_against_torch(size: list[int], align: bool) -> None:
    """Planes and volumes, dims of one element."""
    rank = len(size) - 2
    for dtype in (np.float32, np.float64):
        theta = np.random.default_rng(3).standard_normal((2, rank, rank + 1)).astype(dtype)
        against_torch("aten::affine_grid_generator", theta, size, align)


X, GRID = np.zeros((1, 3, 5, 5), np.float32), np.zeros((1, 2, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        (
            "grid_sampler",
            (X[0], GRID, 0, 0, True),
            ShapeError,
            "input has 3 dims and grid 4, expected both to have 4 or 5",
        ),
        ("grid_sampler_3d", (X, GRID, 0, 0, True), ShapeError, "expected both to have 5"),
        ("grid_sampler", (X, GRID[..., :1], 0, 0, True), ShapeError, "its last dim must be 2"),
        ("grid_sampler", (X, GRID, 3, 0, True), OpError, "interpolation_mode is 3 and padding_mode 0"),
        (
            "grid_sampler",
            (X[..., None], np.zeros((1, 2, 2, 2, 3), np.float32), 2, 0, True),
            OpError,
            "bicubic interpolation",
        ),
        ("grid_sampler", (X, GRID.astype(np.float64), 0, 0, True), DTypeError, "input is float32 and grid float64"),
        ("grid_sampler", (X.astype(int), GRID.astype(int), 0, 0, True), DTypeError, "expected a floating dtype"),
        ("grid_sampler", (X[:, :, :0], GRID, 0, 0, True), ShapeError, "has an empty dim to sample from"),
        ("affine_grid_generator", (X[0], [1, 3, 5, 5], True), ShapeError, r"theta \[3, 5, 5\] must be \[1, 2, 3\]"),
        ("affine_grid_generator", (X[0], [1, 3, 5], True), ShapeError, r"size is \[1, 3, 5\], expected 4 or 5 numbers"),
    ],
)
def test_refusals(name: str, args: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(error, match=message):
        run(f"aten::{name}", *args)
