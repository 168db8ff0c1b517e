"""Convolutions of many groups: by taps, or as products with banded matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.convolve_plan import Plan, phases
from gpujit.ops.strided import padded, strided

# Elements of a depthwise accumulator that stay in a core's own cache.
CACHED = 1 << 16


def depthwise(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
    if xp is np and plan.rank == 2 and x.dtype.kind == "f" and _is_wide_kernel(plan):
        y = _banded(xp, x, w, bias, plan)
        if y is not None:
            return y
    n, c, outs, rank = x.shape[0], plan.channels, plan.outs, plan.rank
    many = plan.out_channels // c
    rows = [-(-(a + m + b) // s) for a, m, b, s in zip(plan.low, x.shape[2:], plan.high, plan.stride, strict=True)]
    steps = [prod(rows[i + 1 :]) for i in range(rank)]
    # Within a phase a tap meets one unbroken run, as in _wide_columns.
    run = sum((m - 1) * s for m, s in zip(outs, steps, strict=True)) + 1
    y = xp.empty((n, c, many, *outs), x.dtype)
    weight = w.reshape(c, many, *plan.kernel)
    shift = None if bias is None else bias.reshape(c, many, 1)
    channels = max(1, min(c, CACHED // (n * many * run)))
    groups = _tap_groups(plan, steps)
    kept_index = (..., *(slice(m) for m in outs))
    for a in range(0, c, channels):
        part_w = weight[a : a + channels]
        # Part by part, so that what is padded and split is still in the cache when it is read.
        part = x[:, a : a + channels]
        split = phases(xp, part, plan).reshape(*plan.stride, *part.shape[:2], -1)
        shape = (n, part_w.shape[0], many)
        wide = xp.empty((*shape, outs[0] * steps[0]), x.dtype)
        total = wide[..., :run]
        term = xp.empty((*shape, run), x.dtype) if len(groups) > 1 else None
        for t, group in enumerate(groups):
            image = split[group.phase][..., group.start :]
            _weighted_runs(xp, image, part_w[group.taps], group, run, term if t else total)
            if t:
                total += term
        if shift is not None:
            # Here and not on the way to y, where every row would be a loop of its own.
            total += shift[a : a + channels]
        y[:, a : a + channels] = wide.reshape(*shape, outs[0], *rows[1:])[kept_index]
    return y


class TapGroup(NamedTuple):
    """Taps of one phase along the first spatial dim: ``number`` of them, ``step`` elements apart."""

    phase: tuple[int, ...]
    start: int
    step: int
    number: int
    taps: Any


def _tap_groups(plan: Plan, steps: Sequence[int]) -> list[TapGroup]:
    kernel, stride, dilation = plan.kernel, plan.stride, plan.dilation
    # Along the first dim every ``period``-th tap has the same phase. In one dim taps would lie as close as the elements
    # of a run, and each is a group of its own.
    period = stride[0] // gcd(stride[0], dilation[0]) if plan.rank > 1 else kernel[0]
    groups = []
    for first in range(min(period, kernel[0])):
        for rest in product(*(range(k) for k in kernel[1:])):
            offsets = [t * d for t, d in zip((first, *rest), dilation, strict=True)]
            groups.append(
                TapGroup(
                    tuple(o % s for o, s in zip(offsets, stride, strict=True)),
                    sum(o // s * d for o, s, d in zip(offsets, stride, steps, strict=True)),
                    period * dilation[0] // stride[0] * steps[0],
                    len(range(first, kernel[0], period)),
                    (slice(None), slice(None), slice(first, None, period), *rest),
                )
            )
    return groups


def _weighted_runs(xp: Any, image: Array, weight: Array, group: TapGroup, run: int, out: Array) -> None:
    """Sum of the runs of ``image [N, C, L]`` that a group's taps meet, by ``weight [C, M, taps]``, into ``out``."""
    if xp is np and group.number > 1:
        n, c = image.shape[:2]
        size = image.itemsize
        view = np.lib.stride_tricks.as_strided(
            image, (n, c, group.number, run), (*image.strides[:2], group.step * size, size), writeable=False
        )
        # Its inner loop multiplies and adds in one pass over a run.
        np.einsum("cmt,nctr->ncmr", weight, view, out=out)
        return
    for t in range(group.number):
        seen = image[:, :, None, t * group.step : t * group.step + run]
        factor = weight[:, :, t, None]
        if t == 0:
            xp.multiply(seen, factor, out=out)
        else:
            out += seen * factor


# Rows of the result that one product of _banded makes.
BAND = 8


def _is_wide_kernel(plan: Plan) -> bool:
    """Whether the bands pay: a large kernel over an image of some size."""
    return (
        plan.out_channels == plan.channels
        and max(plan.stride) == max(plan.dilation) == 1
        and prod(plan.kernel) >= 36
        and min(plan.kernel) > 1
        and prod(plan.outs) >= 1024
    )


def _banded(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array | None:
    """Depthwise convolution by products with banded matrices; None when something is not finite.

    BAND rows of the result are, for each column of the kernel, a banded matrix of that column's taps times the rows of
    the image they reach. The columns' results are added, each shifted by one element.
    """
    n, c, (kh, kw), (height, width) = x.shape[0], plan.channels, plan.kernel, plan.outs
    tiles = -(-height // BAND)
    reach = BAND + kh - 1
    high = (plan.high[0] + tiles * BAND - height, plan.high[1])
    row = plan.low[1] + x.shape[3] + high[1]
    band = xp.zeros((c, kw, BAND, reach), x.dtype)
    s = band.strides
    strided(xp, band, (c, kw, BAND, kh), (*s[:2], s[2] + s[3], s[3]))[...] = w[:, 0].transpose(0, 2, 1)[:, :, None]
    band = band.reshape(c, kw * BAND, reach)
    y = xp.empty((n, c, height, width), x.dtype)
    run = BAND * tiles * row - kw + 1
    channels = max(1, CACHED // (kw * BAND * tiles * row))
    for i in range(n):
        for a in range(0, c, channels):
            part = padded(xp, x[i, a : a + channels], plan.low, high)
            count, s = part.shape[0], part.strides
            seen = strided(xp, part, (count, reach, tiles, row), (s[0], s[1], BAND * s[1], s[2]))
            seen = seen.reshape(count, reach, -1)
            columns = xp.matmul(band[a : a + count], seen).reshape(count, kw, -1)
            wide = xp.zeros((count, BAND * tiles * row), x.dtype)
            total = wide[:, :run]
            xp.add(columns[:, 0, :run], columns[:, 1, 1 : 1 + run], out=total)
            for j in range(2, kw):
                total += columns[:, j, j : j + run]
            if not isfinite(xp.dot(wide.reshape(-1), wide.reshape(-1))):
                # A zero of the band times infinity would spread.
                return None
            if bias is not None:
                total += bias[a : a + count, None]
            kept = wide.reshape(count, BAND, tiles, row).transpose(0, 2, 1, 3).reshape(count, -1, row)
            y[i, a : a + count] = kept[:, :height, :width]
    return y
