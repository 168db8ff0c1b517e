"""Sampling an image at the points of a grid, and the grid of an affine map."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.resample import _cubic
from gpujit.ops.registry import library
from gpujit.ops.rules.windows import grid_sample_type
from gpujit.ops.strided import shape_text
from gpujit.support.errors import DTypeError, OpError, ShapeError

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _pixels(at: Array, n: int, align: bool) -> Array:
    """Positions in pixels of positions from -1 to 1, which are centres or edges of the outermost pixels."""
    return (at + 1) * ((n - 1) * 0.5) if align else ((at + 1) * n - 1) * 0.5


def _reflect(xp: Any, at: Array, n: int, align: bool) -> Array:
    low, span = (0.0, float(n - 1)) if align else (-0.5, float(n))
    if span <= 0:
        return xp.zeros_like(at)
    at = abs(at - low)
    turns = xp.floor(at / span)
    rest = at - turns * span
    return xp.where(turns % 2 == 0, rest + low, span - rest + low)


def _placed(xp: Any, at: Array, n: int, padding: int, align: bool, volume: bool = False) -> Array:
    if padding == ZEROS:
        return at
    real = at.dtype
    if padding == REFLECTION:
        at = _reflect(xp, at, n, align)
    # NaN goes to the first pixel of a plane, and to the last of a volume, where it passes the lower bound.
    at = xp.where(at < 0, 0, at) if volume else xp.where(at > 0, at, 0)
    return xp.where(at < n - 1, at, n - 1).astype(real, copy=False)


class _Rows:
    """Pixels of all images as rows of channels, with a row of zeros behind them for what lies outside."""

    def __init__(self, xp: Any, x: Array) -> None:
        n, c = x.shape[:2]
        self.xp, self.sizes = xp, x.shape[2:]
        area = prod(self.sizes)
        self.rows = xp.empty((n * area + 1, c), x.dtype)
        self.rows[:-1].reshape(n, area, c)[...] = x.reshape(n, c, area).transpose(0, 2, 1)
        self.rows[-1] = 0
        self.offset = (xp.arange(n) * area)[:, None]

    def fetch(self, places: Sequence[Array]) -> Array:
        """Rows ``[N, points, C]`` at whole-number positions ``[N, points]`` a dim."""
        xp = self.xp
        index: Any = 0
        inside: Any = None
        for at, n in zip(places, self.sizes, strict=True):
            good = (at >= 0) & (at < n)
            inside = good if inside is None else inside & good
            index = index * n + xp.where(good, at, 0).astype(np.int64)
        return self.rows.take(xp.where(inside, index + self.offset, self.rows.shape[0] - 1), 0)


def _linear(xp: Any, rows: _Rows, at: Sequence[Array]) -> Array:
    low = [xp.floor(a) for a in at]
    part = [a - b for a, b in zip(at, low, strict=True)]
    total: Array = None
    for corner in product((0, 1), repeat=len(at)):
        weight: Any = 1
        for up, p in zip(corner, part, strict=True):
            weight = weight * (p if up else 1 - p)
        term = rows.fetch([b + up for b, up in zip(low, corner, strict=True)])
        term *= weight[..., None]
        total = term if total is None else total + term
    return total


def _bicubic(xp: Any, rows: _Rows, at: Sequence[Array], padding: int, align: bool) -> Array:
    low = [xp.floor(a) for a in at]
    weights = [_cubic(a - b, -0.75) for a, b in zip(at, low, strict=True)]
    places = [
        [_placed(xp, b + k, n, padding, align) for k in (-1, 0, 1, 2)] for b, n in zip(low, rows.sizes, strict=True)
    ]
    total: Array = None
    for i, j in product(range(4), repeat=2):
        term = rows.fetch([places[0][i], places[1][j]])
        term *= (weights[0][i] * weights[1][j])[..., None].astype(term.dtype, copy=False)
        total = term if total is None else total + term
    return total


def sample(
    xp: Any, op: str, x: Array, grid: Array, mode: int, padding: int, align: bool, rank: int | None = None
) -> Array:
    """``x [N, C, *spatial]`` at the points ``grid [N, *points, rank]``, which name the last dim of ``x`` first."""
    if x.ndim not in (4, 5) or x.ndim != grid.ndim or (rank is not None and x.ndim != rank + 2):
        wanted = "4 or 5" if rank is None else str(rank + 2)
        raise ShapeError(f"{op}: input has {x.ndim} dims and grid {grid.ndim}, expected both to have {wanted}")
    rank = x.ndim - 2
    if grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ShapeError(
            f"{op}: grid {shape_text(grid.shape)} does not fit input {shape_text(x.shape)}; its last dim must be {rank}"
        )
    if 0 in x.shape[2:]:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has an empty dim to sample from")
    if mode not in (BILINEAR, NEAREST, BICUBIC) or padding not in (ZEROS, BORDER, REFLECTION):
        raise OpError(f"{op}: interpolation_mode is {mode} and padding_mode {padding}, expected 0 to 2")
    if mode == BICUBIC and rank == 3:
        raise OpError(f"{op}: bicubic interpolation needs an input of 4 dims, found 5")
    if x.dtype != grid.dtype:
        raise DTypeError(f"{op}: input is {x.dtype} and grid {grid.dtype}; they must have one dtype")
    if x.dtype.kind != "f":
        raise DTypeError(f"{op}: input is {x.dtype}, expected a floating dtype")
    n, c, points = x.shape[0], x.shape[1], grid.shape[1:-1]
    shape = (n, c, *points)
    if 0 in shape:
        return xp.empty(shape, x.dtype)
    flat = grid.reshape(n, -1, rank)
    at = [_pixels(flat[..., rank - 1 - axis], size, align) for axis, size in enumerate(x.shape[2:])]
    rows = _Rows(xp, x)
    if mode == BICUBIC:
        y = _bicubic(xp, rows, at, padding, align)
    else:
        at = [_placed(xp, a, size, padding, align, rank == 3) for a, size in zip(at, x.shape[2:], strict=True)]
        y = rows.fetch([xp.rint(a) for a in at]) if mode == NEAREST else _linear(xp, rows, at)
    return xp.ascontiguousarray(y.transpose(0, 2, 1)).reshape(shape)


_ARGUMENTS = "Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners"


def _declare(name: str, rank: int | None, out: str | None) -> None:
    op = f"aten::{name}"

    @library(f"{op}({_ARGUMENTS}) -> Tensor", out=out, type_rule=grid_sample_type)
    def sampler(xp: Any, x: Array, grid: Array, mode: int, padding: int, align: bool) -> Array:
        """The input at the points of the grid."""
        return sample(xp, op, x, grid, mode, padding, align, rank)


for _row in (
    ("grid_sampler", None, None),
    ("grid_sampler_2d", 2, "out"),
    ("_grid_sampler_2d_cpu_fallback", 2, "out"),
    ("grid_sampler_3d", 3, "out"),
):
    _declare(*_row)


@library("aten::cudnn_grid_sampler(Tensor self, Tensor grid) -> Tensor output", type_rule=grid_sample_type)
def cudnn_grid_sampler(xp: Any, x: Array, grid: Array) -> Array:
    """The input at the points of the grid: bilinear, zeros outside, corners aligned."""
    return sample(xp, "aten::cudnn_grid_sampler", x, grid, BILINEAR, ZEROS, True, 2)


@library("aten::affine_grid_generator(Tensor theta, int[] size, bool align_corners) -> Tensor", out="out")
def affine_grid_generator(xp: Any, theta: Array, size: list[int], align: bool) -> Array:
    """Points ``[N, *size[2:], rank]`` that the affine maps ``theta [N, rank, rank + 1]`` send a regular grid to."""
    op = "aten::affine_grid_generator"
    rank = len(size) - 2
    if rank not in (2, 3):
        raise ShapeError(f"{op}: size is {list(size)}, expected 4 or 5 numbers")
    if theta.shape != (size[0], rank, rank + 1):
        raise ShapeError(
            f"{op}: theta {shape_text(theta.shape)} must be [{size[0]}, {rank}, {rank + 1}] for size {list(size)}"
        )
    if theta.dtype.kind != "f":
        raise DTypeError(f"{op}: theta is {theta.dtype}, expected a floating dtype")
    sizes = size[2:]
    base = xp.ones((*sizes, rank + 1), theta.dtype)
    for axis, n in enumerate(sizes):
        line = xp.linspace(-1, 1, n, dtype=theta.dtype) if n > 1 else xp.zeros(n, theta.dtype)
        if not align and n:
            line = line * theta.dtype.type((n - 1) / n)
        base[..., rank - 1 - axis] = line.reshape(-1, *(1,) * (rank - 1 - axis))
    y = xp.matmul(base.reshape(1, -1, rank + 1), theta.transpose(0, 2, 1))
    return y.reshape(size[0], *sizes, rank)
