"""Tile programs that pool windows of images: maxima, means, and means of the uneven windows of adaptive pooling.

Arrays are (images, channels, pixels ...). Small windows have code for each tap; large ones are rows that threads share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import INT64, kind_of
from gpujit.ir.scalar import Expr
from gpujit.kernels.cuda_windows import Sizes, computed, placed, widened
from gpujit.kernels.index import Index, dim, div, index
from gpujit.kernels.tile import Bound, TileProgram
from gpujit.kernels.tile_build import Builder

# What a mean is divided by: the taps that lie on the image, or on its padding too, or a number.
INSIDE, PADDED = "inside", "padded"


@lru_cache(maxsize=64)
def largest(dtype: np.dtype, rank: int, taps: Sizes | None) -> TileProgram:
    """The largest number of each window; with no ``taps`` they are the last dims of the space, its rows."""
    builder = Builder(2 + 2 * rank if taps is None else 2 + rank, rank if taps is None else 0)
    windows = placed(builder, rank)
    x = builder.input(dtype, 2 + rank)
    at = [dim(2 + k) for k in range(rank)]
    wide = computed(dtype)
    lowest = -np.inf if kind_of(wide) == 2 else int(np.iinfo(wide).min)

    def number(tap: Sequence[Index | int]) -> Expr:
        pixel = windows.pixel(at, tap)
        return widened(builder.load(x, [dim(0), dim(1), *pixel], windows.inside(builder, pixel), lowest))

    if taps is None:
        found = scalar.reduce("max", number([dim(2 + rank + k) for k in range(rank)]))
    else:
        first, *others = [number(tap) for tap in product(*map(range, taps))]
        found = first
        for other in others:
            found = scalar.apply("maximum", found, other)
    _store(builder, found, dtype, rank)
    return builder.finish()


@lru_cache(maxsize=64)
def means(dtype: np.dtype, rank: int, taps: Sizes | None, divisor: int | str) -> TileProgram:
    """The mean of each window; with no ``taps`` they are the last dims of the space, its rows."""
    builder = Builder(2 + 2 * rank if taps is None else 2 + rank, rank if taps is None else 0)
    windows = placed(builder, rank)
    x = builder.input(dtype, 2 + rank)
    at = [dim(2 + k) for k in range(rank)]
    wide = computed(dtype)
    low = index(0) if divisor == INSIDE else None

    def parts(tap: Sequence[Index | int]) -> tuple[Expr, Expr | None]:
        pixel = windows.pixel(at, tap)
        number = widened(builder.load(x, [dim(0), dim(1), *pixel], windows.inside(builder, pixel)))
        if type(divisor) is int:
            return number, None
        edges = [index(0) if low is not None else p for p in windows.padding]
        bounds = [
            Bound(low if low is not None else -p, y, n + p) for y, n, p in zip(pixel, windows.image, edges, strict=True)
        ]
        return number, scalar.cast(builder.inside(*bounds), wide)

    if taps is None:
        number, one = parts([dim(2 + rank + k) for k in range(rank)])
        total = scalar.reduce("sum", number)
        count = None if one is None else scalar.reduce("sum", one)
    else:
        pairs = [parts(tap) for tap in product(*map(range, taps))]
        total, count = pairs[0]
        for number, one in pairs[1:]:
            total = scalar.apply("add", total, number)
            count = None if count is None or one is None else scalar.apply("add", count, one)
    by = scalar.const(float(divisor), wide) if count is None else count
    _store(builder, scalar.apply("div", total, by), dtype, rank)
    return builder.finish()


@lru_cache(maxsize=64)
def adaptive_means(dtype: np.dtype, rank: int) -> TileProgram:
    """Means of windows that share the pixels out: from o * n / m to (o + 1) * n / m, outwards, for place o of m.

    Parameters are the image's sizes n. Rows are as long as the longest window.
    """
    builder = Builder(2 + 2 * rank, rank)
    sizes = [builder.param() for _ in range(rank)]
    counts = [builder.param() for _ in range(rank)]
    pixel, bounds, area = [], [], None
    for k in range(rank):
        o, tap = dim(2 + k), dim(2 + rank + k)
        start = div(o * sizes[k], counts[k])
        length = div((o + 1) * sizes[k] + counts[k] - 1, counts[k]) - start
        pixel.append(start + tap)
        bounds.append(Bound(index(0), tap, length))
        number = builder.position(length)
        area = number if area is None else scalar.apply("mul", area, number)
    assert area is not None and area.dtype == INT64
    x = builder.load(builder.input(dtype, 2 + rank), [dim(0), dim(1), *pixel], builder.inside(*bounds))
    total = scalar.reduce("sum", widened(x))
    _store(builder, scalar.apply("div", total, scalar.cast(area, total.dtype)), dtype, rank)
    return builder.finish()


def _store(builder: Builder, found: Expr, dtype: np.dtype, rank: int) -> None:
    builder.store(builder.output(dtype, 2 + rank), [dim(k) for k in range(2 + rank)], scalar.cast(found, dtype))
