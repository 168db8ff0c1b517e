"""torchvision's operators: boxes, regions of interest, deformable convolution.

Source: torchvision/csrc/ops/cpu, whose rules for borders and rounding are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.grid import _linear, _Rows
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.data import nms_type
from gpujit.ops.rules.windows import box_iou_type, roi_type
from gpujit.ops.strided import shape_text
from gpujit.support.errors import DTypeError, ShapeError

# Elements gathered at once; more regions than that are done in turns.
GATHER_LIMIT = 1 << 23


# -------------------------------------------------------------------------------------------------------- boxes


@library("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", type_rule=nms_type)
def nms(xp: Any, boxes: Array, scores: Array, threshold: float) -> Array:
    """Indices of the boxes kept, best score first; a box that overlaps a better one beyond the threshold goes."""
    op = "torchvision::nms"
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ShapeError(f"{op}: dets {shape_text(boxes.shape)} must be [N, 4]")
    if scores.shape != boxes.shape[:1]:
        raise ShapeError(f"{op}: scores {shape_text(scores.shape)} must be [{boxes.shape[0]}], one for each box")
    order = (-scores if scores.dtype.kind == "f" else ~scores).argsort(kind="stable")
    x1, y1, x2, y2 = boxes.take(order, 0).T.copy()
    areas = (x2 - x1) * (y2 - y1)
    limit = boxes.dtype.type(threshold) if boxes.dtype.kind == "f" else threshold
    rest = xp.arange(order.shape[0])
    kept: list[int] = []
    while rest.shape[0]:
        i = int(rest[0])
        kept.append(i)
        rest = rest[1:]
        width = xp.minimum(x2[i], x2[rest]) - xp.maximum(x1[i], x1[rest])
        height = xp.minimum(y2[i], y2[rest]) - xp.maximum(y1[i], y1[rest])
        common = xp.maximum(width, 0) * xp.maximum(height, 0)
        rest = rest[~(common / (areas[i] + areas[rest] - common) > limit)]
    return order[kept].astype(np.int64) if kept else xp.empty(0, np.int64)


def _corners(xp: Any, boxes: Array) -> Array:
    """Corners ``[..., 4, 2]`` of boxes ``[..., 5]`` (centre, width, height, angle in degrees), going round."""
    theta = boxes[..., 4] * (np.pi / 180)
    cos, sin = xp.cos(theta) * 0.5, xp.sin(theta) * 0.5
    w, h = boxes[..., 2], boxes[..., 3]
    ax, ay = sin * h + cos * w, cos * h - sin * w
    bx, by = cos * w - sin * h, -cos * h - sin * w
    x, y = boxes[..., 0], boxes[..., 1]
    points = xp.empty((*boxes.shape[:-1], 4, 2), boxes.dtype)
    for k, (dx, dy) in enumerate(((-bx, -by), (ax, ay), (bx, by), (-ax, -ay))):
        points[..., k, 0], points[..., k, 1] = x + dx, y + dy
    return points


def _cross(a: Array, b: Array) -> Array:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(xp: Any, points: Array, box: Array) -> Array:
    # Projections on two edges that share a corner must fall within these edges.
    origin, ab, ad = box[..., :1, :], box[..., 1:2, :] - box[..., :1, :], box[..., 3:4, :] - box[..., :1, :]
    ap = points - origin
    u, v = (ap * ab).sum(-1), (ap * ad).sum(-1)
    slack = 1e-5
    return (u >= -slack) & (v >= -slack) & (u <= (ab * ab).sum(-1) + slack) & (v <= (ad * ad).sum(-1) + slack)


@library("torchvision::box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor", type_rule=box_iou_type)
def box_iou_rotated(xp: Any, boxes1: Array, boxes2: Array) -> Array:
    """Intersection over union ``[N, M]`` of rotated boxes ``[N, 5]`` and ``[M, 5]``."""
    op = "torchvision::box_iou_rotated"
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise ShapeError(f"{op}: {name} {shape_text(boxes.shape)} must be [N, 5]")
    n, m = boxes1.shape[0], boxes2.shape[0]
    if n * m == 0:
        return xp.zeros((n, m), np.float32)
    one = xp.broadcast_to(boxes1[:, None], (n, m, 5)).astype(np.float64)
    two = xp.broadcast_to(boxes2[None], (n, m, 5)).astype(np.float64)
    # Around the middle of the two centres, where little is lost to rounding.
    middle = (one[..., :2] + two[..., :2]) / 2
    one[..., :2] -= middle
    two[..., :2] -= middle
    p, q = _corners(xp, one), _corners(xp, two)
    dp, dq = xp.roll(p, -1, -2) - p, xp.roll(q, -1, -2) - q
    start = q[..., None, :, :] - p[..., :, None, :]
    a, b = xp.broadcast_to(dp[..., :, None, :], start.shape), xp.broadcast_to(dq[..., None, :, :], start.shape)
    det = _cross(b, a)
    parallel = abs(det) <= 1e-14
    safe = xp.where(parallel, 1, det)
    t, u = _cross(b, start) / safe, _cross(a, start) / safe
    met = ~parallel & (t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)
    crossings = (p[..., :, None, :] + a * t[..., None]).reshape(n, m, 16, 2)
    points = xp.concatenate((crossings, p, q), axis=2)
    valid = xp.concatenate((met.reshape(n, m, 16), _inside(xp, p, q), _inside(xp, q, p)), axis=2)
    common = _hull_area(xp, points, valid)
    area1, area2 = one[..., 2] * one[..., 3], two[..., 2] * two[..., 3]
    tiny = (area1 < 1e-14) | (area2 < 1e-14)
    total = xp.where(tiny, 1, area1 + area2 - common)
    return xp.where(tiny, 0, common / total).astype(np.float32)


def _hull_area(xp: Any, points: Array, valid: Array) -> Array:
    """Area of the convex polygon whose corners are the valid points, in any order, some of them twice."""
    count = valid.sum(-1)
    first = points[(*xp.ogrid[tuple(map(slice, count.shape))], valid.argmax(-1))]
    points = xp.where(valid[..., None], points, first[..., None, :])
    center = (points * valid[..., None]).sum(-2) / xp.maximum(count, 1)[..., None]
    points = points - center[..., None, :]
    order = xp.arctan2(points[..., 1], points[..., 0]).argsort(-1)
    points = points[(*xp.ogrid[tuple(map(slice, order.shape))][:2], order)]
    area = abs(_cross(points, xp.roll(points, -1, -2)).sum(-1)) / 2
    return xp.where(count > 2, area, 0)


# ------------------------------------------------------------------------------------------- regions of interest


def _check_rois(op: str, x: Array, rois: Array, height: int, width: int) -> None:
    if x.ndim != 4:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected 4")
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ShapeError(f"{op}: rois {shape_text(rois.shape)} must be [K, 5]")
    if x.dtype != rois.dtype:
        raise DTypeError(f"{op}: input is {x.dtype} and rois {rois.dtype}; they must have one dtype")
    if height < 1 or width < 1:
        raise ShapeError(f"{op}: the pooled size is {height} by {width}, expected at least 1 by 1")
    if rois.shape[0] and not 0 <= int(rois[:, 0].min()) <= int(rois[:, 0].max()) < x.shape[0]:
        raise ShapeError(
            f"{op}: rois name images {int(rois[:, 0].min())} to {int(rois[:, 0].max())}, input has {x.shape[0]}"
        )


def _samples(xp: Any, start: Array, step: Array, bins: int, grid: int, n: int) -> tuple[Array, Array, Array]:
    """Two places ``[K, bins, grid, 2]``, their weights, and whether a sample counts, for one dim of each region."""
    real = start.dtype
    at = start[:, None, None] + xp.arange(bins).astype(real)[:, None] * step[:, None, None]
    at = at + (xp.arange(grid).astype(real) + real.type(0.5)) * (step / grid)[:, None, None]
    good = (at >= -1) & (at <= n)
    at = xp.where(good, xp.maximum(at, 0), 0)
    low = at.astype(np.int64)
    edge = low >= n - 1
    low = xp.minimum(low, n - 1)
    part = xp.where(edge, 0, at - low).astype(real)
    shape = (*at.shape, 2)
    places, weights = xp.empty(shape, np.int64), xp.empty(shape, real)
    places[..., 0], places[..., 1] = low, xp.where(edge, low, low + 1)
    weights[..., 0], weights[..., 1] = 1 - part, part
    return places, weights, good


def _grids(xp: Any, sizes: Sequence[Array], bins: Sequence[int], ratio: int) -> Iterator[tuple[Any, int, int]]:
    """Regions that share a number of samples a bin, with these numbers."""
    count = sizes[0].shape[0]
    if ratio > 0:
        yield slice(None), ratio, ratio
        return
    rows, columns = (xp.ceil(s / b).astype(np.int64) for s, b in zip(sizes, bins, strict=True))
    for gh, gw in sorted(set(zip(rows.tolist(), columns.tolist(), strict=True))):
        chosen = xp.flatnonzero((rows == gh) & (columns == gw))
        yield (slice(None) if chosen.shape[0] == count else chosen), gh, gw


def _pixel_rows(xp: Any, x: Array) -> Array:
    """Pixels as rows of channels, a row of zeros behind them."""
    n, c, h, w = x.shape
    rows = xp.empty((n * h * w + 1, c), x.dtype)
    rows[:-1].reshape(n, h * w, c)[...] = x.reshape(n, c, h * w).transpose(0, 2, 1)
    rows[-1] = 0
    return rows


def _bin_taps(
    xp: Any,
    x: Array,
    image: Array,
    starts: Sequence[Array],
    steps: Sequence[Array],
    bins: Sequence[int],
    grid: Sequence[int],
) -> tuple[Array, Array]:
    """Row numbers ``[K, ph, pw, taps]`` of all pixels that the samples of a bin read, and their weights."""
    h, w = x.shape[2:]
    py, wy, gy = _samples(xp, starts[0], steps[0], bins[0], grid[0], h)
    px, wx, gx = _samples(xp, starts[1], steps[1], bins[1], grid[1], w)
    k, taps = image.shape[0], grid[0] * grid[1] * 4
    # [K, ph, pw, gh, gw, 2, 2]
    good = gy[:, :, None, :, None, None, None] & gx[:, None, :, None, :, None, None]
    index = (image[:, None, None, None, None, None, None] * h + py[:, :, None, :, None, :, None]) * w
    index = xp.where(good, index + px[:, None, :, None, :, None, :], x.shape[0] * h * w)
    weight = wy[:, :, None, :, None, :, None] * wx[:, None, :, None, :, None, :]
    return index.reshape(k, *bins, taps), weight.reshape(k, *bins, taps)


def _edges(rois: Array, scale: float, offset: float) -> tuple[list[Array], list[Array]]:
    real = rois.dtype.type
    x1, y1, x2, y2 = (rois[:, i] * real(scale) - real(offset) for i in (1, 2, 3, 4))
    return [y1, x1], [y2 - y1, x2 - x1]


@library(
    "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    type_rule=roi_type,
)
def roi_align(
    xp: Any, x: Array, rois: Array, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Array:
    """Means ``[K, C, height, width]`` of bilinear samples in the bins of each region."""
    _check_rois("torchvision::roi_align", x, rois, height, width)
    count, c = rois.shape[0], x.shape[1]
    y = xp.zeros((count, c, height, width), x.dtype)
    if not y.size:
        return y
    starts, sizes = _edges(rois, scale, 0.5 if aligned else 0.0)
    if not aligned:
        sizes = [xp.maximum(s, 1) for s in sizes]
    bins = (height, width)
    steps = [s / x.dtype.type(b) for s, b in zip(sizes, bins, strict=True)]
    image, rows = rois[:, 0].astype(np.int64), _pixel_rows(xp, x)
    for chosen, gh, gw in _grids(xp, sizes, bins, ratio):
        if gh < 1 or gw < 1:
            continue
        which = xp.arange(count)[chosen]
        turn = max(1, GATHER_LIMIT // (height * width * gh * gw * 4 * c))
        for a in range(0, which.shape[0], turn):
            part = which[a : a + turn]
            index, weight = _bin_taps(
                xp, x, image[part], [s[part] for s in starts], [s[part] for s in steps], bins, (gh, gw)
            )
            means = xp.matmul(weight[..., None, :], rows.take(index, 0))[..., 0, :]
            means /= gh * gw
            y[part] = means.transpose(0, 3, 1, 2)
    return y


def _channel_of_bin(xp: Any, op: str, x: Array, height: int, width: int) -> Array:
    """Input channels ``[C_out, ph, pw]``: a position-sensitive bin has channels of its own."""
    c = x.shape[1]
    if c % (height * width):
        raise ShapeError(
            f"{op}: input has {c} channels, bins of {height} by {width} need a multiple of {height * width}"
        )
    return xp.arange(c).reshape(-1, height, width)


@library(
    "torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)"
)
def ps_roi_align(
    xp: Any, x: Array, rois: Array, scale: float, height: int, width: int, ratio: int
) -> tuple[Array, Array]:
    """Means of bilinear samples, each bin from its own channels; and which channels these were."""
    op = "torchvision::ps_roi_align"
    _check_rois(op, x, rois, height, width)
    channels = _channel_of_bin(xp, op, x, height, width)
    count, bins = rois.shape[0], (height, width)
    y = xp.zeros((count, *channels.shape), x.dtype)
    mapping = xp.broadcast_to(channels.astype(np.int32), y.shape).copy()
    if not y.size:
        return y, mapping
    starts, sizes = _edges(rois, scale, 0.5)
    steps = [s / x.dtype.type(b) for s, b in zip(sizes, bins, strict=True)]
    image, rows = rois[:, 0].astype(np.int64), _pixel_rows(xp, x)
    for chosen, gh, gw in _grids(xp, sizes, bins, ratio):
        which = xp.arange(count)[chosen]
        if gh < 1 or gw < 1:
            # No samples: their sum is divided by their number all the same, as in torchvision.
            y[which] = xp.nan if gh * gw == 0 else 0
            continue
        turn = max(1, GATHER_LIMIT // (y[0].size * gh * gw * 4))
        for a in range(0, which.shape[0], turn):
            part = which[a : a + turn]
            index, weight = _bin_taps(
                xp, x, image[part], [s[part] for s in starts], [s[part] for s in steps], bins, (gh, gw)
            )
            taken = rows[index[:, None], channels[..., None]]
            y[part] = (taken * weight[:, None]).sum(-1) / (gh * gw)
    return y, mapping


def _round(xp: Any, x: Array) -> Array:
    # C's round: halves away from zero.
    return xp.where(x < 0, xp.ceil(x - 0.5), xp.floor(x + 0.5)).astype(np.int64)


def _bin_edges(xp: Any, low: Array, size: Array, bins: int, limit: int, real: Any) -> tuple[Array, Array]:
    step = (size.astype(real) / real.type(bins))[:, None]
    i = xp.arange(bins).astype(real)
    start = xp.floor(i * step).astype(np.int64) + low[:, None]
    end = xp.ceil((i + 1) * step).astype(np.int64) + low[:, None]
    return xp.clip(start, 0, limit), xp.clip(end, 0, limit)


def _bins(
    xp: Any, x: Array, rois: Array, scale: float, bins: Sequence[int], grow: int, limits: Sequence[int]
) -> list[tuple[Array, Array]]:
    x1, y1, x2, y2 = (_round(xp, rois[:, i] * rois.dtype.type(scale)) for i in (1, 2, 3, 4))
    out = []
    for low, high, count, limit in ((y1, y2, bins[0], limits[0]), (x1, x2, bins[1], limits[1])):
        out.append(_bin_edges(xp, low, xp.maximum(high - low + grow, 1), count, limit, x.dtype))
    return out


def _pixels_of_bins(
    xp: Any, edges: Sequence[tuple[Array, Array]], image: Array, sizes: Sequence[int]
) -> Iterator[tuple[Array, Array, Array]]:
    """For each offset within a bin: rows, places in the image, and which bins ``[K, ph, pw]`` reach that far."""
    (y0, y1), (x0, x1) = edges
    tall, wide = int((y1 - y0).max(initial=0)), int((x1 - x0).max(initial=0))
    base = image[:, None, None] * (sizes[0] * sizes[1])
    for dy in range(tall):
        in_y = (y0 + dy < y1)[:, :, None]
        for dx in range(wide):
            inside = in_y & (x0 + dx < x1)[:, None, :]
            place = xp.where(inside, (y0 + dy)[:, :, None] * sizes[1] + (x0 + dx)[:, None, :], 0)
            yield base + place, place, inside


@library(
    "torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) "
    "-> (Tensor, Tensor)"
)
def roi_pool(xp: Any, x: Array, rois: Array, scale: float, height: int, width: int) -> tuple[Array, Array]:
    """Maxima ``[K, C, height, width]`` over the bins of each region, and their places; 0 and -1 for empty bins."""
    _check_rois("torchvision::roi_pool", x, rois, height, width)
    shape = (rois.shape[0], height, width, x.shape[1])
    places = xp.full(shape, -1, np.int32)
    best = xp.full(shape, xp.finfo(x.dtype).min, x.dtype)
    if best.size:
        edges = _bins(xp, x, rois, scale, (height, width), 1, x.shape[2:])
        rows = _pixel_rows(xp, x)
        for index, place, inside in _pixels_of_bins(xp, edges, rois[:, 0].astype(np.int64), x.shape[2:]):
            taken = rows.take(index, 0)
            better = inside[..., None] & (taken > best)
            best = xp.where(better, taken, best)
            places = xp.where(better, place[..., None].astype(np.int32), places)
        (y0, y1), (x0, x1) = edges
        empty = (y1 <= y0)[:, :, None] | (x1 <= x0)[:, None, :]
        best = xp.where(empty[..., None], 0, best).astype(x.dtype)
    return xp.ascontiguousarray(best.transpose(0, 3, 1, 2)), xp.ascontiguousarray(places.transpose(0, 3, 1, 2))


@library(
    "torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) "
    "-> (Tensor, Tensor)"
)
def ps_roi_pool(xp: Any, x: Array, rois: Array, scale: float, height: int, width: int) -> tuple[Array, Array]:
    """Means over the bins of each region, each bin from its own channels; and which channels these were."""
    op = "torchvision::ps_roi_pool"
    _check_rois(op, x, rois, height, width)
    channels = _channel_of_bin(xp, op, x, height, width)
    y = xp.zeros((rois.shape[0], *channels.shape), x.dtype)
    mapping = xp.broadcast_to(channels.astype(np.int32), y.shape).copy()
    if y.size:
        # torchvision leaves the last row and column out.
        limits = [n - 1 for n in x.shape[2:]]
        edges = _bins(xp, x, rois, scale, (height, width), 0, limits)
        rows = _pixel_rows(xp, x)
        for index, _, inside in _pixels_of_bins(xp, edges, rois[:, 0].astype(np.int64), x.shape[2:]):
            y += xp.where(inside[:, None], rows[index[:, None], channels], 0)
        (y0, y1), (x0, x1) = edges
        area = (y1 - y0)[:, :, None] * (x1 - x0)[:, None, :]
        y /= xp.maximum(area, 1)[:, None].astype(x.dtype)
    return y, mapping


# ---------------------------------------------------------------------------------------- deformable convolution


@library(
    "torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, "
    "int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask) "
    "-> Tensor"
)
def deform_conv2d(
    xp: Any, x: Array, weight: Array, offset: Array, mask: Array, bias: Array, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Array:  # fmt: skip
    """Convolution whose taps are moved by ``offset`` (row, then column, for each tap) and weighted by ``mask``."""
    op = "torchvision::deform_conv2d"
    if x.ndim != 4 or weight.ndim != 4 or offset.ndim != 4:
        raise ShapeError(f"{op}: input has {x.ndim} dims, weight {weight.ndim}, offset {offset.ndim}; expected 4 each")
    (n, c, h, w), (o, depth, kh, kw) = x.shape, weight.shape
    if min(stride_h, stride_w, dilation_h, dilation_w, groups, offset_groups) < 1 or min(pad_h, pad_w) < 0:
        raise ShapeError(f"{op}: strides, dilations and groups must be at least 1, padding at least 0")
    if c != depth * groups or o % groups:
        raise ShapeError(
            f"{op}: input has {c} channels, weight {shape_text(weight.shape)} with groups={groups} "
            f"needs {depth * groups}"
        )
    if c % offset_groups:
        raise ShapeError(f"{op}: input has {c} channels, offset_groups={offset_groups} does not divide them")
    oh = (h + 2 * pad_h - dilation_h * (kh - 1) - 1) // stride_h + 1
    ow = (w + 2 * pad_w - dilation_w * (kw - 1) - 1) // stride_w + 1
    taps = kh * kw
    if oh < 1 or ow < 1:
        raise ShapeError(f"{op}: kernel {shape_text((kh, kw))} does not fit into input {shape_text(x.shape)}")
    if offset.shape != (n, 2 * taps * offset_groups, oh, ow):
        raise ShapeError(
            f"{op}: offset {shape_text(offset.shape)} must be [{n}, {2 * taps * offset_groups}, {oh}, {ow}]"
        )
    if use_mask and mask.shape != (n, taps * offset_groups, oh, ow):
        raise ShapeError(f"{op}: mask {shape_text(mask.shape)} must be [{n}, {taps * offset_groups}, {oh}, {ow}]")
    if n == 0:
        return xp.empty((0, o, oh, ow), x.dtype)
    moves = offset.reshape(n * offset_groups, taps, 2, oh, ow)
    rows = xp.arange(kh).repeat(kw)[:, None, None] * dilation_h + xp.arange(oh)[:, None] * stride_h - pad_h
    columns = (
        xp.arange(kw).reshape(1, -1).repeat(kh, 0).reshape(-1, 1, 1) * dilation_w + xp.arange(ow) * stride_w - pad_w
    )
    at = [
        (moves[:, :, i] + base.astype(x.dtype)).reshape(n * offset_groups, -1) for i, base in enumerate((rows, columns))
    ]
    # [N * offset_groups, taps * L, C / offset_groups]
    seen = _linear(xp, _Rows(xp, x.reshape(n * offset_groups, c // offset_groups, h, w)), at)
    if use_mask:
        seen *= mask.reshape(n * offset_groups, -1, 1)
    length = oh * ow
    matrix = (
        seen.reshape(n, offset_groups, taps, length, -1)
        .transpose(0, 1, 4, 2, 3)
        .reshape(n, groups, depth * taps, length)
    )
    y = xp.matmul(weight.reshape(groups, o // groups, depth * taps), matrix).reshape(n, o, oh, ow)
    if bias.size:
        y += bias.reshape(-1, 1, 1)
    return y


@prim("torchvision::_cuda_version() -> int")
def cuda_version() -> int:
    """-1: what torchvision built without CUDA answers."""
    return -1
