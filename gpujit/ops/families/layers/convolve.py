"""Convolution in one, two and three dimensions, as products of gathered windows.

The common path gathers windows into columns and multiplies once by the weight matrix (im2col and one gemm). On one
thread that takes 1.2 to 1.4 times as long as a blocked direct convolution for the layers of a residual network.
Depthwise layers are sums over taps of shifted products, or products with banded matrices for large kernels; 1x1 layers
are matrix products of the input as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.convolve_depthwise import depthwise
from gpujit.ops.families.layers.convolve_plan import Plan, check_arrays, make_plan
from gpujit.ops.strided import padded, strided, tap_slices, windows

# Elements of columns held at once; more images or rows than that are done in turns.
COLUMN_LIMIT = 1 << 21


def convolve(
    xp: Any, op: str, x: Array, w: Array, bias: Array | None, stride: Sequence[int], padding: Sequence[int] | str,
    dilation: Sequence[int], groups: int, rank: int,
) -> Array:  # fmt: skip
    """Cross-correlation of ``x [N, C, *spatial]`` (or without N) with ``w [O, C / groups, *kernel]``."""
    pads = padding if isinstance(padding, str) else tuple(padding)
    plan = make_plan(op, x.shape, w.shape, tuple(stride), pads, tuple(dilation), groups, rank)
    check_arrays(op, x, w, bias, plan.out_channels)
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


_PATHS = {"depthwise": depthwise, "pointwise": _pointwise, "small": _columns, "columns": _columns}
