"""Tile programs that fetch elements from elsewhere: pixels by tables of places and weights, edges, gated halves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BOOL_, INT64
from gpujit.ir.scalar import Expr
from gpujit.kernels.cuda_windows import computed, widened
from gpujit.kernels.index import Index, dim, index, value
from gpujit.kernels.tile import Bound, TileProgram
from gpujit.kernels.tile_build import Builder

INT32 = np.dtype(np.int32)
# Ways to go on behind an edge.
EDGES = ("reflect", "replicate", "circular")


@lru_cache(maxsize=64)
def resampled(dtype: np.dtype, taps: tuple[int, ...], has_weights: bool) -> TileProgram:
    """Images (images, channels, pixels ...) of other images, each pixel a sum over ``taps`` places along each dim.

    Behind the images come for each dim int32 places (taps, pixels), -1 for none, and with ``has_weights`` weights, of
    the dtype that sums have.
    """
    rank = len(taps)
    builder = Builder(2 + rank)
    x = builder.input(dtype, 2 + rank)
    places: list[list[Expr]] = []
    weights: list[list[Expr]] = []
    sizes = [builder.param() for _ in range(rank)]
    for k, count in enumerate(taps):
        table = builder.input(INT32, 2)
        places.append([scalar.cast(builder.load(table, [t, dim(2 + k)]), INT64) for t in range(count)])
        if has_weights:
            numbers = builder.input(computed(dtype), 2)
            weights.append([builder.load(numbers, [t, dim(2 + k)]) for t in range(count)])
    total: Expr | None = None
    for tap in product(*map(range, taps)):
        at = [value(places[k][t]) for k, t in enumerate(tap)]
        mask = builder.inside(*(Bound(index(0), i, n) for i, n in zip(at, sizes, strict=True)))
        term = widened(builder.load(x, [dim(0), dim(1), *at], mask))
        for k, t in enumerate(tap):
            if has_weights:
                term = scalar.apply("mul", term, weights[k][t])
        total = term if total is None else scalar.apply("add", total, term)
    assert total is not None
    builder.store(builder.output(dtype, 2 + rank), [dim(k) for k in range(2 + rank)], scalar.cast(total, dtype))
    return builder.finish()


@lru_cache(maxsize=64)
def edged(dtype: np.dtype, rank: int, dims: tuple[int, ...], mode: str) -> TileProgram:
    """A tensor whose ``dims`` go on behind their edges. Parameters: for each of them what lies before, and its size."""
    builder = Builder(rank)
    at: list[Index] = [dim(k) for k in range(rank)]
    for d in dims:
        before, count = builder.param(), builder.param()
        place = builder.position(dim(d) - before)
        last = builder.position(count - 1)
        none = scalar.const(0, INT64)
        if mode == "reflect":
            place = scalar.apply("abs", place)
            place = scalar.apply("sub", last, scalar.apply("abs", scalar.apply("sub", last, place)))
        elif mode == "replicate":
            place = scalar.apply("minimum", scalar.apply("maximum", place, none), last)
        else:
            place = scalar.apply("mod", place, builder.position(count))
        at[d] = value(place)
    x = builder.load(builder.input(dtype, rank), at)
    builder.store(builder.output(dtype, rank), [dim(k) for k in range(rank)], x)
    return builder.finish()


@lru_cache(maxsize=64)
def taken(dtype: np.dtype, rank: int, d: int) -> TileProgram:
    """The elements whose places along a dim are in the second input, int64 and within the tensor."""
    builder = Builder(rank)
    x, places = builder.input(dtype, rank), builder.input(INT64, 1)
    at: list[Index] = [dim(k) for k in range(rank)]
    at[d] = value(builder.load(places, [dim(d)]))
    builder.store(builder.output(dtype, rank), [dim(k) for k in range(rank)], builder.load(x, at))
    return builder.finish()


@lru_cache(maxsize=32)
def gated(dtype: np.dtype, rank: int) -> TileProgram:
    """The first tensor times the sigmoid of the second."""
    builder = Builder(rank)
    at = [dim(k) for k in range(rank)]
    x, gate = (widened(builder.load(builder.input(dtype, rank), at)) for _ in range(2))
    one = scalar.const(1.0, gate.dtype)
    less = scalar.apply("add", one, scalar.apply("exp", scalar.apply("neg", gate)))
    y = scalar.apply("mul", x, scalar.apply("div", one, less))
    builder.store(builder.output(dtype, rank), at, scalar.cast(y, dtype))
    return builder.finish()


def takes(dtypes: Sequence[np.dtype]) -> bool:
    """Whether programs can load and store elements of these dtypes."""
    return all(d == BOOL_ or d.kind in "iuf" or d.name == "bfloat16" for d in dtypes)
