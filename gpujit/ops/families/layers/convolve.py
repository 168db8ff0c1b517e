"""Convolution in one, two and three dimensions, and its transpose.

The common path gathers windows into columns and multiplies once by the weight matrix (im2col and one gemm). On one
thread that takes 1.2 to 1.4 times as long as a blocked direct convolution for the layers of a residual network.
Depthwise layers are sums over taps of shifted products, or products with banded matrices for large kernels; 1x1 layers
are matrix products of the input as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import gcd, isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.strided import add_windows, expand_list, gather_index, padded, shape_text, strided, tap_slices, windows
from gpujit.support.errors import DTypeError, ShapeError

# Columns of one image up to this many elements are fetched by a cached index instead of a window view.
SMALL_COLUMNS = 6144
# Elements of columns held at once; more images or rows than that are done in turns.
COLUMN_LIMIT = 1 << 21
# Elements of a depthwise accumulator that stay in a core's own cache.
CACHED = 1 << 16


class Plan(NamedTuple):
    """What follows from the shapes and the numbers of a convolution alone."""

    batched: bool
    rank: int
    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    kernel: tuple[int, ...]
    outs: tuple[int, ...]
    channels: int
    out_channels: int
    path: str
    result: tuple[int, ...]
    index: Any
    transformed: bool = False


def _same_padding(op: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> tuple[Any, Any]:
    if any(s != 1 for s in stride):
        raise ShapeError(f"{op}: padding 'same' needs stride 1, found stride {list(stride)}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def _check_common(op: str, x: tuple[int, ...], w: tuple[int, ...], rank: int, groups: int) -> bool:
    """Whether the input has a batch dim. Raises ShapeError for ranks or groups that cannot be."""
    if rank < 1 or len(w) != rank + 2:
        raise ShapeError(f"{op}: weight {shape_text(w)} has {len(w)} dims, expected {rank + 2}")
    if len(x) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: input {shape_text(x)} has {len(x)} dims, weight {shape_text(w)} needs {rank + 2}, "
            f"or {rank + 1} without a batch"
        )
    if groups < 1:
        raise ShapeError(f"{op}: groups is {groups}, expected at least 1")
    if min(w[2:]) < 1:
        raise ShapeError(f"{op}: weight {shape_text(w)} has an empty kernel")
    return len(x) == rank + 2


def _check_numbers(op: str, stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int]) -> None:
    if min(stride) < 1:
        raise ShapeError(f"{op}: stride is {list(stride)}, every number must be at least 1")
    if min(dilation) < 1:
        raise ShapeError(f"{op}: dilation is {list(dilation)}, every number must be at least 1")
    if min(padding) < 0:
        raise ShapeError(f"{op}: padding is {list(padding)}, negative padding is not supported; slice the input")


@lru_cache(maxsize=1024)
def make_plan(
    op: str, x: tuple[int, ...], w: tuple[int, ...], stride_: tuple[int, ...], padding: tuple[int, ...] | str,
    dilation_: tuple[int, ...], groups: int, rank: int,
) -> Plan:  # fmt: skip
    """The plan of a convolution of ``x`` with ``w``. Raises ShapeError when they do not fit."""
    batched = _check_common(op, x, w, rank, groups)
    if not batched:
        x = (1, *x)
    kernel, out_channels, channels = w[2:], w[0], x[1]
    stride = expand_list(op, "stride", stride_, rank)
    dilation = expand_list(op, "dilation", dilation_, rank)
    if not isinstance(padding, str):
        low = high = expand_list(op, "padding", padding, rank)
    elif padding == "same":
        low, high = _same_padding(op, kernel, stride, dilation)
    elif padding == "valid":
        low = high = (0,) * rank
    else:
        raise ShapeError(f"{op}: padding is {padding!r}, expected 'same', 'valid' or numbers")
    _check_numbers(op, stride, dilation, low)
    if channels != w[1] * groups:
        raise ShapeError(
            f"{op}: input has {channels} channels, weight {shape_text(w)} with groups={groups} needs {w[1] * groups}"
        )
    if out_channels % groups:
        raise ShapeError(
            f"{op}: weight {shape_text(w)} makes {out_channels} channels, groups={groups} does not divide them"
        )
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    sizes = tuple(a + n + b for a, n, b in zip(low, x[2:], high, strict=True))
    if any(r > n for r, n in zip(reach, sizes, strict=True)):
        raise ShapeError(
            f"{op}: the kernel reaches over {shape_text(reach)}, more than the padded input {shape_text(sizes)}"
        )
    outs = tuple((n - r) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True))
    per_group = w[1]
    columns = channels * prod(kernel) * prod(outs)
    index = None
    if per_group == 1 and groups > 1:
        path = "depthwise"
    elif prod(kernel) == 1 and not any(low):
        path = "pointwise"
    elif x[0] == 1 and groups == 1 and columns <= SMALL_COLUMNS:
        path = "small"
        index = gather_index(x[2:], outs, stride, low, dilation, kernel, channels)
    else:
        path = "columns"
    result = (x[0], out_channels, *outs) if batched else (out_channels, *outs)
    transformed = (
        rank == 2 and groups == 1 and kernel[1] == 3 and max(stride) == max(dilation) == 1
        and prod(outs) >= MANY_POSITIONS and min(channels, out_channels) >= 48
    )  # fmt: skip
    return Plan(
        batched, rank, stride, low, high, dilation, groups, kernel, outs, channels, out_channels, path, result, index,
        transformed,
    )  # fmt: skip


def _check_arrays(op: str, x: Array, w: Array, bias: Array | None, out_channels: int) -> None:
    dtype = x.dtype
    if w.dtype != dtype or (bias is not None and bias.dtype != dtype):
        found = "" if bias is None else f" and bias {bias.dtype}"
        raise DTypeError(f"{op}: input is {dtype}, weight {w.dtype}{found}; they must have one dtype")
    if dtype.kind == "b":
        raise DTypeError(f"{op}: input is bool; convert it to a number type first")
    if bias is not None and bias.shape != (out_channels,):
        raise ShapeError(f"{op}: bias is {shape_text(bias.shape)}, the weight makes {out_channels} channels")


def convolve(
    xp: Any, op: str, x: Array, w: Array, bias: Array | None, stride: Sequence[int], padding: Sequence[int] | str,
    dilation: Sequence[int], groups: int, rank: int,
) -> Array:  # fmt: skip
    """Cross-correlation of ``x [N, C, *spatial]`` (or without N) with ``w [O, C / groups, *kernel]``."""
    pads = padding if isinstance(padding, str) else tuple(padding)
    plan = make_plan(op, x.shape, w.shape, tuple(stride), pads, tuple(dilation), groups, rank)
    _check_arrays(op, x, w, bias, plan.out_channels)
    if plan.index is not None and xp is np:
        return _small(x, w, bias, plan)
    if 0 in plan.result:
        return xp.empty(plan.result, x.dtype)
    if not plan.batched:
        x = x[None]
    return _PATHS[plan.path](xp, x, w, bias, plan).reshape(plan.result)


def _small(x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
    # Everything below is overhead-bound: one gather, one gemm, one addition.
    n = x.size
    flat = np.empty(n + 1, x.dtype)
    flat[:n] = x.reshape(-1)
    flat[n] = 0
    y = np.dot(w.reshape(plan.out_channels, -1), flat.take(plan.index))
    if bias is not None:
        length = y.shape[1]
        # A repeated bias has no short inner loop.
        y += bias.reshape(-1, 1) if length > 16 else bias.repeat(length).reshape(y.shape)
    return y.reshape(plan.result)


def _add_bias(y: Array, bias: Array | None) -> Array:
    if bias is not None:
        y += bias.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def _pointwise(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
    if max(plan.stride) > 1:
        x = x[tap_slices((0,) * plan.rank, plan.stride, plan.outs)]
    n, groups = x.shape[0], plan.groups
    length = prod(plan.outs)
    if groups == 1:
        matrix = w.reshape(plan.out_channels, -1)
        if n == 1:
            y = xp.dot(matrix, x.reshape(-1, length)).reshape(1, -1, length)
        else:
            y = xp.matmul(matrix, x.reshape(n, plan.channels, length))
    else:
        y = xp.matmul(w.reshape(groups, plan.out_channels // groups, -1), x.reshape(n, groups, -1, length))
    return _add_bias(y.reshape(n, plan.out_channels, length), bias)


def _columns(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
    n, groups, outs, o = x.shape[0], plan.groups, plan.outs, plan.out_channels
    if xp is np and plan.transformed and x.dtype.kind == "f":
        y = _three_wide(xp, x, w, bias, plan)
        if y is not None:
            return y
    x = padded(xp, x, plan.low, plan.high)
    depth, length = w[0].size, prod(outs)
    per_image = groups * depth * length
    if groups == 1 and n > 4 and length <= 16 and n * per_image <= COLUMN_LIMIT:
        return _few_positions(xp, x, w, bias, plan)
    matrix = w.reshape(groups, o // groups, depth) if groups > 1 else w.reshape(o, depth)
    lead = (groups, depth) if groups > 1 else (depth,)
    out_lead = (groups, o // groups) if groups > 1 else (o,)
    if max(plan.stride) == 1 and plan.rank > 1 and x.shape[-1] <= 1.15 * outs[-1]:
        return _wide_columns(xp, x, matrix, lead, out_lead, bias, plan)
    view = windows(xp, x, plan.kernel, plan.stride, plan.dilation, outs)
    if n * per_image <= COLUMN_LIMIT:
        y = xp.matmul(matrix, view.reshape(n, *lead, length))
        return _add_bias(y.reshape(n, o, length), bias)
    y = xp.empty((n, *out_lead, length), x.dtype)
    rest = prod(outs[1:])
    rows = max(1, COLUMN_LIMIT * outs[0] // max(1, per_image))
    images = max(1, COLUMN_LIMIT // max(1, per_image))
    first = 2 + plan.rank
    for i in range(0, n, images):
        part = view[i : i + images]
        for r in range(0, outs[0], rows):
            piece = part[(slice(None),) * first + (slice(r, r + rows),)]
            count = min(rows, outs[0] - r) * rest
            xp.matmul(
                matrix,
                piece.reshape(part.shape[0], *lead, count),
                out=y[i : i + images, ..., r * rest : r * rest + count],
            )
    return _add_bias(y.reshape(n, o, length), bias)


def _few_positions(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
    # Many images with few windows each: one product with all windows as rows beats one narrow product an image.
    n, length, rank = x.shape[0], prod(plan.outs), plan.rank
    view = windows(xp, x, plan.kernel, plan.stride, plan.dilation, plan.outs)
    order = (0, *range(2 + rank, 2 + 2 * rank), *range(1, 2 + rank))
    y = xp.dot(view.transpose(order).reshape(n * length, -1), w.reshape(plan.out_channels, -1).T)
    if bias is not None:
        y += bias
    return xp.ascontiguousarray(y.reshape(n, length, -1).transpose(0, 2, 1))


def _wide_columns(
    xp: Any, x: Array, matrix: Array, lead: tuple[int, ...], out_lead: tuple[int, ...], bias: Array | None, plan: Plan
) -> Array:
    # With stride 1 a tap meets one unbroken run of the padded image: copy runs, and drop what lies between rows after.
    n, c, outs = x.shape[0], x.shape[1], plan.outs
    steps = tuple(s // x.itemsize for s in x.strides[2:])
    y = xp.empty((n, plan.out_channels, *outs), x.dtype)
    shift = None if bias is None else bias.reshape(-1, 1)
    depth = prod(lead)
    row = steps[0]
    rows = max(1, min(outs[0], COLUMN_LIMIT // max(1, depth * row)))
    images = max(1, COLUMN_LIMIT // max(1, depth * row * outs[0]))
    taps = tuple(s * d for s, d in zip(x.strides[2:], plan.dilation, strict=True))
    for i in range(0, n, images):
        count = min(images, n - i)
        for r in range(0, outs[0], rows):
            height = min(rows, outs[0] - r)
            # The last row stops where its last window does, so that no run reads past the buffer.
            run = (height - 1) * row + sum((m - 1) * s for m, s in zip(outs[1:], steps[1:], strict=True)) + 1
            view = strided(
                xp, x, (count, c, *plan.kernel, run), (*x.strides[:2], *taps, x.itemsize),
                i * x.strides[0] + r * x.strides[2],
            )  # fmt: skip
            wide = xp.empty((count, *out_lead, height * row), x.dtype)
            xp.matmul(matrix, view.reshape(count, *lead, run), out=wide[..., :run])
            if shift is not None:
                # Here and not on the way to y, where every row would be a loop of its own.
                wide.reshape(count, plan.out_channels, -1)[..., :run] += shift
            kept = wide.reshape(count, plan.out_channels, height, *x.shape[3:])
            kept = kept[(..., *(slice(m) for m in outs[1:]))]
            y[i : i + count, :, r : r + height] = kept
    return y


# Positions of the result from which on transforming the weights of a 3-wide kernel is worth it.
MANY_POSITIONS = 400
# Elements of columns of a transformed image held at once.
TRANSFORMED_LIMIT = 1 << 17


def _three_wide(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array | None:
    """Convolution with a kernel 3 wide in two dims, stride 1: two columns of the result from four products, not six.

    None when something is not finite, since differences of infinities are none. Each column of the result is made of
    the elements under its own windows only, so that it keeps the digits that a plain sum has.
    Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks", F(2, 3) along the width.
    """
    n, c, o, kh, (height, width) = x.shape[0], plan.channels, plan.out_channels, plan.kernel[0], plan.outs
    row = -(-width // 2) + 1
    left, middle, right = w[..., 0], w[..., 1], w[..., 2]
    weights = xp.empty((4, o, c * kh), w.dtype)
    views = weights.reshape(4, o, c, kh)
    views[0], views[3] = left, right
    xp.add(left, right, out=views[1])
    views[1] *= 0.5
    half = middle * views.dtype.type(0.5)
    xp.subtract(views[1], half, out=views[2])
    views[1] += half
    y = xp.empty((n, o, height, width), x.dtype)
    shift = None if bias is None else bias.reshape(-1, 1)
    rows = max(1, min(height, TRANSFORMED_LIMIT // (c * kh * row)))
    for i in range(n):
        for r in range(0, height, rows):
            count = min(rows, height - r)
            both = _three_wide_rows(xp, x[i], weights, shift, plan, r, count)
            if not isfinite(xp.dot(both.reshape(-1), both.reshape(-1))):
                return None
            y[i, :, r : r + count] = both.reshape(o, count, 2 * row)[:, :, :width]
    return y


def _three_wide_rows(
    xp: Any, x: Array, weights: Array, shift: Array | None, plan: Plan, first: int, count: int
) -> Array:
    """``count`` rows of the result of _three_wide, from ``first`` on, each with one pair of columns too many."""
    (c, sizes), kh, (top, left) = (x.shape[0], x.shape[1:]), plan.kernel[0], plan.low
    row = -(-plan.outs[1] // 2) + 1
    # Even and odd columns of the padded rows, each row one element longer than there are pairs: what is computed across
    # rows is dropped.
    height = count + kh - 1
    halves = xp.zeros((2, c, height, row), x.dtype)
    start, stop = max(first - top, 0), min(first - top + height, sizes[0])
    if start < stop:
        for odd in (0, 1):
            skipped = max(-(-(left - odd) // 2), 0)
            seen = x[:, start:stop, 2 * skipped + odd - left :: 2][..., : row - skipped]
            at = start + top - first
            halves[odd, :, at : at + stop - start, skipped : skipped + seen.shape[2]] = seen
    even, odds = halves.reshape(2, -1)
    flat = xp.empty((4, c * height * row), x.dtype)
    xp.subtract(even[:-1], even[1:], out=flat[0, :-1])
    xp.add(odds[:-1], even[1:], out=flat[1, :-1])
    xp.subtract(even[1:], odds[:-1], out=flat[2, :-1])
    xp.subtract(odds[:-1], odds[1:], out=flat[3, :-1])
    run = count * row - 1
    products = xp.empty((4, weights.shape[1], run), x.dtype)
    size = flat.itemsize
    for k in range(4):
        columns = strided(xp, flat, (c, kh, run), (height * row * size, row * size, size), k * flat.strides[0])
        xp.dot(weights[k], columns.reshape(c * kh, run), out=products[k])
    total, difference, third, last = products[0], products[1], products[2], products[3]
    total += difference
    total += third
    difference -= third
    difference -= last
    if shift is not None:
        total += shift
        difference += shift
    both = xp.zeros((weights.shape[1], count * row, 2), x.dtype)
    both[:, :-1, 0], both[:, :-1, 1] = total, difference
    return both


def _phases(xp: Any, x: Array, plan: Plan) -> Array:
    """``[*stride, N, C, *Q]``: the padded input, split so that windows a stride apart are neighbours."""
    rank, (n, c) = plan.rank, x.shape[:2]
    high = [b + -(a + m + b) % s for a, m, b, s in zip(plan.low, x.shape[2:], plan.high, plan.stride, strict=True)]
    x = padded(xp, x, plan.low, high)
    if max(plan.stride) == 1:
        return x.reshape((1,) * rank + x.shape)
    pairs = [size for m, s in zip(x.shape[2:], plan.stride, strict=True) for size in (m // s, s)]
    order = (*range(3, 3 + 2 * rank, 2), 0, 1, *range(2, 2 + 2 * rank, 2))
    return xp.ascontiguousarray(x.reshape(n, c, *pairs).transpose(order))


def _depthwise(xp: Any, x: Array, w: Array, bias: Array | None, plan: Plan) -> Array:
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
        phases = _phases(xp, part, plan).reshape(*plan.stride, *part.shape[:2], -1)
        shape = (n, part_w.shape[0], many)
        wide = xp.empty((*shape, outs[0] * steps[0]), x.dtype)
        total = wide[..., :run]
        term = xp.empty((*shape, run), x.dtype) if len(groups) > 1 else None
        for t, group in enumerate(groups):
            image = phases[group.phase][..., group.start :]
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


_PATHS = {"depthwise": _depthwise, "pointwise": _pointwise, "small": _columns, "columns": _columns}


# --------------------------------------------------------------------------------------- transposed convolution


@lru_cache(maxsize=512)
def _transposed_plan(
    op: str, x: tuple[int, ...], w: tuple[int, ...], stride_: tuple[int, ...], padding_: tuple[int, ...],
    extra_: tuple[int, ...], dilation_: tuple[int, ...], groups: int, rank: int,
) -> Plan:  # fmt: skip
    batched = _check_common(op, x, w, rank, groups)
    if not batched:
        x = (1, *x)
    stride = expand_list(op, "stride", stride_, rank)
    padding = expand_list(op, "padding", padding_, rank)
    dilation = expand_list(op, "dilation", dilation_, rank)
    extra = expand_list(op, "output_padding", extra_, rank)
    _check_numbers(op, stride, dilation, padding)
    if x[1] != w[0]:
        raise ShapeError(f"{op}: input has {x[1]} channels, weight {shape_text(w)} needs {w[0]}")
    if w[0] % groups:
        raise ShapeError(f"{op}: weight {shape_text(w)} takes {w[0]} channels, groups={groups} does not divide them")
    if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ShapeError(
            f"{op}: output_padding is {list(extra)}, it must be smaller than stride {list(stride)} "
            f"or dilation {list(dilation)}"
        )
    kernel = w[2:]
    outs = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x[2:], stride, padding, dilation, kernel, extra, strict=True)
    )
    if min(outs) < 1:
        raise ShapeError(
            f"{op}: input {shape_text(x)} with kernel {shape_text(kernel)}, stride {list(stride)} and padding "
            f"{list(padding)} leaves an output of size {shape_text(outs)}"
        )
    o = w[1] * groups
    tiles = kernel == stride and max(dilation) == 1 and not any(padding) and not any(extra)
    result = (x[0], o, *outs) if batched else (o, *outs)
    path = "tiles" if tiles else "scatter"
    return Plan(batched, rank, stride, padding, padding, dilation, groups, kernel, outs, x[1], o, path, result, None)


def convolve_transposed(
    xp: Any, op: str, x: Array, w: Array, bias: Array | None, stride: Sequence[int], padding: Sequence[int],
    output_padding: Sequence[int], groups: int, dilation: Sequence[int], rank: int,
) -> Array:  # fmt: skip
    """Transposed convolution of ``x [N, C, *spatial]`` with ``w [C, O / groups, *kernel]``."""
    plan = _transposed_plan(
        op, x.shape, w.shape, tuple(stride), tuple(padding), tuple(output_padding), tuple(dilation), groups, rank
    )  # fmt: skip
    _check_arrays(op, x, w, bias, plan.out_channels)
    if 0 in plan.result:
        return xp.empty(plan.result, x.dtype)
    if not plan.batched:
        x = x[None]
    n, c, sizes, o = x.shape[0], plan.channels, x.shape[2:], plan.out_channels
    length = prod(sizes)
    if groups == 1:
        flat = xp.matmul(w.reshape(c, -1).T, x.reshape(n, c, length))
    else:
        matrix = w.reshape(groups, c // groups, -1).transpose(0, 2, 1)
        flat = xp.matmul(matrix, x.reshape(n, groups, c // groups, length))
    columns = flat.reshape(n, o, *plan.kernel, *sizes)
    if plan.path == "tiles":
        pairs = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
        y = columns.transpose(0, 1, *pairs).reshape(n, o, *plan.outs)
    else:
        full = tuple(m + 2 * p for m, p in zip(plan.outs, plan.low, strict=True))
        y = add_windows(xp, columns, full, plan.stride, plan.dilation)
        if any(plan.low):
            y = y[(..., *(slice(p, p + m) for p, m in zip(plan.low, plan.outs, strict=True)))]
            if bias is None:
                y = xp.ascontiguousarray(y)
    if bias is not None:
        y = xp.add(y, bias.reshape(-1, *(1,) * rank), order="C")
    return y.reshape(plan.result)
