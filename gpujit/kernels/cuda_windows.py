"""Tile programs over windows of images: columns for a product, small filters, sums of transposed filters, pooling.

Images have one to three dims of pixels; arrays are (images, channels, pixels ...). Strides, paddings and dilations are
parameters, so that layers of one kind share a kernel; the sizes of windows are not, where each tap has its own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import FLOAT32, HALF_TYPES
from gpujit.ir.scalar import Expr
from gpujit.kernels.index import Index, dim, div, index, mod
from gpujit.kernels.tile import Bound, TileProgram
from gpujit.kernels.tile_build import Builder

Sizes = tuple[int, ...]


class Windows(NamedTuple):
    """What places windows on images: for each dim of pixels the image's size, stride, padding before and dilation."""

    image: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes

    @property
    def numbers(self) -> list[int]:
        """The parameters of a program, in order."""
        return [n for each in self for n in each]


def for_dims(numbers: Any, rank: int, least: int) -> Sizes | None:
    """A list of one number, or one for each dim of pixels, as one for each; None when it is none, or one is smaller
    than ``least``."""
    if not isinstance(numbers, list) or len(numbers) not in (1, rank):
        return None
    if any(type(n) is not int or n < least for n in numbers):
        return None
    return tuple(numbers) if len(numbers) == rank else tuple(numbers) * rank


class Placed(NamedTuple):
    """The parameters of windows as indexes."""

    image: Sequence[Index]
    stride: Sequence[Index]
    padding: Sequence[Index]
    dilation: Sequence[Index]

    def pixel(self, at: Sequence[Index], tap: Sequence[Index | int]) -> list[Index]:
        """The pixel that a tap of the window at a place lies on."""
        return [o * s - p + t * d for o, s, p, t, d in zip(at, self.stride, self.padding, tap, self.dilation)]

    def inside(self, builder: Builder, pixel: Sequence[Index]) -> Expr:
        """Whether a pixel is one of the image's."""
        return builder.inside(*(Bound(index(0), y, n) for y, n in zip(pixel, self.image)))


def placed(builder: Builder, rank: int) -> Placed:
    return Placed(*([builder.param() for _ in range(rank)] for _ in range(4)))


def computed(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums of ``dtype`` are made."""
    return FLOAT32 if dtype in HALF_TYPES else dtype


def widened(x: Expr) -> Expr:
    return scalar.cast(x, computed(x.dtype))


@lru_cache(maxsize=64)
def columns(dtype: np.dtype, rank: int) -> TileProgram:
    """Windows as columns: (images, channels, taps ..., places ...) of (images, channels, pixels ...)."""
    builder = Builder(2 + 2 * rank)
    windows = placed(builder, rank)
    tap, at = [dim(2 + k) for k in range(rank)], [dim(2 + rank + k) for k in range(rank)]
    pixel = windows.pixel(at, tap)
    x = builder.load(builder.input(dtype, 2 + rank), [dim(0), dim(1), *pixel], windows.inside(builder, pixel))
    builder.store(builder.output(dtype, 2 + 2 * rank), [dim(k) for k in range(builder.dims)], x)
    return builder.finish()


@lru_cache(maxsize=64)
def small_filters(dtype: np.dtype, taps: Sizes, channels: int, has_bias: bool, ending: str) -> TileProgram:
    """Groups of few channels, filtered: (images, groups, filters, places ...) of (images, groups, channels, pixels).

    Filters are (groups, filters, channels, taps ...), biases (groups, filters). ``ending`` is "" or "relu".
    """
    rank = len(taps)
    builder = Builder(3 + rank)
    windows = placed(builder, rank)
    x, w = builder.input(dtype, 3 + rank), builder.input(dtype, 3 + rank)
    at = [dim(3 + k) for k in range(rank)]
    total = widened(builder.load(builder.input(dtype, 2), [dim(1), dim(2)])) if has_bias else None
    for tap in product(*map(range, taps)):
        pixel = windows.pixel(at, tap)
        is_inside = windows.inside(builder, pixel)
        for c in range(channels):
            factor = widened(builder.load(w, [dim(1), dim(2), c, *tap]))
            term = scalar.apply("mul", widened(builder.load(x, [dim(0), dim(1), c, *pixel], is_inside)), factor)
            total = term if total is None else scalar.apply("add", total, term)
    assert total is not None
    if ending == "relu":
        total = scalar.apply("maximum", total, scalar.const(0.0, total.dtype))
    place = [dim(k) for k in range(builder.dims)]
    builder.store(builder.output(dtype, 3 + rank), place, scalar.cast(total, dtype))
    return builder.finish()


@lru_cache(maxsize=64)
def whole_filters(dtype: np.dtype, rank: int, has_bias: bool, ending: str) -> TileProgram:
    """As ``small_filters``, with the numbers of a window as rows that threads share: (channels, taps ...)."""
    builder = Builder(4 + 2 * rank, 1 + rank)
    windows = placed(builder, rank)
    at = [dim(3 + k) for k in range(rank)]
    channel, tap = dim(3 + rank), [dim(4 + rank + k) for k in range(rank)]
    pixel = windows.pixel(at, tap)
    x = builder.load(builder.input(dtype, 3 + rank), [dim(0), dim(1), channel, *pixel], windows.inside(builder, pixel))
    w = builder.load(builder.input(dtype, 3 + rank), [dim(1), dim(2), channel, *tap])
    total = scalar.reduce("sum", scalar.apply("mul", widened(x), widened(w)))
    if has_bias:
        total = scalar.apply("add", total, widened(builder.load(builder.input(dtype, 2), [dim(1), dim(2)])))
    if ending == "relu":
        total = scalar.apply("maximum", total, scalar.const(0.0, total.dtype))
    place = [dim(k) for k in range(3 + rank)]
    builder.store(builder.output(dtype, 3 + rank), place, scalar.cast(total, dtype))
    return builder.finish()


@lru_cache(maxsize=64)
def spread_sums(dtype: np.dtype, taps: Sizes, has_bias: bool) -> TileProgram:
    """Sums of what windows put on each pixel: (images, filters, pixels ...) of (images, filters, taps ..., places ...).

    ``image`` of the windows is the number of places along each dim. Biases are (filters,).
    """
    rank = len(taps)
    builder = Builder(2 + rank)
    windows = placed(builder, rank)
    x = builder.input(dtype, 2 + 2 * rank)
    total = widened(builder.load(builder.input(dtype, 1), [dim(1)])) if has_bias else None
    for tap in product(*map(range, taps)):
        place, bounds = [], []
        for k in range(rank):
            # Moved up by whole strides, so that nothing divided is negative.
            reach = dim(2 + k) + windows.padding[k] - tap[k] * windows.dilation[k]
            up = tap[k] * windows.dilation[k]
            moved = reach + up * windows.stride[k]
            place.append(div(moved, windows.stride[k]) - up)
            bounds.append(Bound(index(0), mod(moved, windows.stride[k]), index(1)))
            bounds.append(Bound(index(0), place[-1], windows.image[k]))
        term = widened(builder.load(x, [dim(0), dim(1), *tap, *place], builder.inside(*bounds)))
        total = term if total is None else scalar.apply("add", total, term)
    assert total is not None
    builder.store(builder.output(dtype, 2 + rank), [dim(k) for k in range(2 + rank)], scalar.cast(total, dtype))
    return builder.finish()
