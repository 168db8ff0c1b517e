"""torchvision's operators against loops over boxes and, where it is installed, torchvision itself."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.layers.conv
import gpujit.ops.families.layers.vision  # noqa: F401  # importing declares the entries
from gpujit.ops.families.layers import vision
from gpujit.support.errors import DTypeError, ShapeError
from tests.ops.check import against_torch, assert_same, run

RNG = np.random.default_rng(0)


def against_torchvision(name: str, *args: Any, tolerance: float = 1e-4) -> None:
    """Compare with torchvision; skips without it."""
    pytest.importorskip("torchvision")
    against_torch(f"torchvision::{name}", *args, tolerance=tolerance)


def boxes(count: int, seed: int = 1) -> np.ndarray:
    """Boxes (x1, y1, x2, y2), some beyond a 12 by 10 image."""
    rng = np.random.default_rng(seed)
    low = rng.random((count, 2)) * 11 - 2
    return np.concatenate((low, low + rng.random((count, 2)) * 9), 1).astype(np.float32)


def regions(count: int) -> np.ndarray:
    """Boxes with the number of an image of two before them."""
    return np.concatenate((RNG.integers(0, 2, (count, 1)), boxes(count)), 1).astype(np.float32)


IMAGE = np.random.default_rng(5).standard_normal((2, 12, 10, 12)).astype(np.float32)


# ---------------------------------------------------------------------------------------------------------- nms


def test_nms_by_hand() -> None:
    """The better of two overlapping boxes stays; equal scores keep their order."""
    dets = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 5]], np.float32)
    scores = np.array([0.8, 0.9, 0.1, 0.8], np.float32)
    kept = run("torchvision::nms", dets, scores, 0.5)
    assert kept.tolist() == [1, 3, 2] and kept.dtype == np.int64
    assert run("torchvision::nms", dets, scores, 0.3).tolist() == [1, 2]
    assert run("torchvision::nms", dets, scores, 1.0).tolist() == [1, 0, 3, 2]
    assert run("torchvision::nms", dets[:0], scores[:0], 0.5).tolist() == []


@pytest.mark.parametrize("threshold", [0.1, 0.4, 0.7])
def test_nms_by_loop(threshold: float) -> None:
    """The definition, one pair at a time."""
    dets, scores = boxes(60), np.random.default_rng(2).random(60).astype(np.float32).round(1)

    def overlap(a: Any, b: Any) -> float:
        w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        common = max(w, 0) * max(h, 0)
        return float(common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common))

    kept: list[int] = []
    for i in sorted(range(60), key=lambda i: -scores[i]):
        if all(overlap(dets[i], dets[k]) <= threshold for k in kept):
            kept.append(i)
    assert run("torchvision::nms", dets, scores, threshold).tolist() == kept
    against_torchvision("nms", dets, scores, threshold)


# ----------------------------------------------------------------------------------------------- rotated boxes


def test_rotated_boxes_by_hand() -> None:
    """Equal, apart, turned by a right angle, turned by half of one."""
    unit = [0, 0, 2, 2, 0]
    one = np.array([unit], np.float32)
    two = np.array(
        [unit, [5, 0, 2, 2, 0], [1, 0, 2, 2, 90], [0, 0, 2, 2, 45], [0, 0, 4, 1, 0], [0, 0, 0, 0, 0]], np.float32
    )
    octagon = 8 * (math.sqrt(2) - 1)
    want = [[1, 0, 1 / 3, octagon / (8 - octagon), 2 / 6, 0]]
    assert_same(run("torchvision::box_iou_rotated", one, two), np.array(want, np.float32))
    assert run("torchvision::box_iou_rotated", one, two[:0]).shape == (1, 0)


def test_rotated_boxes_without_rotation() -> None:
    """Angle zero is the ordinary overlap; turning everything changes nothing."""
    rng = np.random.default_rng(3)
    a, b = (np.concatenate((rng.random((7, 2)) * 8, 1 + rng.random((7, 2)) * 6, np.zeros((7, 1))), 1) for _ in range(2))
    x1 = np.maximum((a[:, 0] - a[:, 2] / 2)[:, None], b[:, 0] - b[:, 2] / 2)
    x2 = np.minimum((a[:, 0] + a[:, 2] / 2)[:, None], b[:, 0] + b[:, 2] / 2)
    y1 = np.maximum((a[:, 1] - a[:, 3] / 2)[:, None], b[:, 1] - b[:, 3] / 2)
    y2 = np.minimum((a[:, 1] + a[:, 3] / 2)[:, None], b[:, 1] + b[:, 3] / 2)
    common = np.maximum(x2 - x1, 0) * np.maximum(y2 - y1, 0)
    want = (common / ((a[:, 2] * a[:, 3])[:, None] + b[:, 2] * b[:, 3] - common)).astype(np.float32)
    assert_same(run("torchvision::box_iou_rotated", a, b), want, 1e-4)
    theta = math.radians(30)
    turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    for c in (a, b):
        # Angles count clockwise in an image, where y points down.
        c[:, :2] = c[:, :2] @ turn.T
        c[:, 4] -= 30
    assert_same(run("torchvision::box_iou_rotated", a, b), want, 1e-4)
    against_torchvision("box_iou_rotated", a.astype(np.float32), b.astype(np.float32), tolerance=2e-3)


# ---------------------------------------------------------------------------------------------------- regions


def bilinear(plane: np.ndarray, y: float, x: float) -> float:
    """torchvision's sample: zero beyond one pixel outside, edges continued up to there."""
    h, w = plane.shape
    if y < -1 or y > h or x < -1 or x > w:
        return 0.0
    y, x = min(max(y, 0.0), h - 1), min(max(x, 0.0), w - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
    fy, fx = y - y0, x - x0
    top = plane[y0, x0] * (1 - fx) + plane[y0, x1] * fx
    return float(top * (1 - fy) + (plane[y1, x0] * (1 - fx) + plane[y1, x1] * fx) * fy)


def aligned_by_loop(
    rois: Any, scale: float, ph: int, pw: int, ratio: int, offset: float, at_least: float, own: bool
) -> Any:
    """RoIAlign one sample at a time; ``own``: every bin reads its own channels."""
    channels = IMAGE.shape[1] // (ph * pw if own else 1)
    y = np.zeros((len(rois), channels, ph, pw))
    for k, (image, x1, y1, x2, y2) in enumerate(rois.astype(np.float64)):
        left, top = x1 * scale - offset, y1 * scale - offset
        width, height = max(x2 * scale - offset - left, at_least), max(y2 * scale - offset - top, at_least)
        gh = ratio if ratio > 0 else math.ceil(height / ph)
        gw = ratio if ratio > 0 else math.ceil(width / pw)
        for c, i, j in product(range(channels), range(ph), range(pw)):
            plane = IMAGE[int(image), (c * ph + i) * pw + j if own else c]
            samples = [
                bilinear(plane, top + (i + (a + 0.5) / gh) * height / ph, left + (j + (b + 0.5) / gw) * width / pw)
                for a, b in product(range(gh), range(gw))
            ]
            y[k, c, i, j] = sum(samples) / max(len(samples), 1)
    return y.astype(np.float32)


@pytest.mark.parametrize("ratio", [-1, 0, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(aligned: bool, ratio: int) -> None:
    """By a loop over samples, and in turns."""
    rois = regions(6)
    for scale, ph, pw in ((1.0, 2, 3), (0.5, 3, 1)):
        want = aligned_by_loop(rois, scale, ph, pw, ratio, 0.5 if aligned else 0.0, 0.0 if aligned else 1.0, False)
        got = run("torchvision::roi_align", IMAGE, rois, scale, ph, pw, ratio, aligned)
        assert_same(got, want, 1e-4)
        against_torchvision("roi_align", IMAGE, rois, scale, ph, pw, ratio, aligned)


def test_roi_align_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on what is gathered at once changes nothing."""
    rois = regions(6)
    want = run("torchvision::roi_align", IMAGE, rois, 1.0, 2, 3, 2, True)
    monkeypatch.setattr(vision, "GATHER_LIMIT", 1)
    assert_same(run("torchvision::roi_align", IMAGE, rois, 1.0, 2, 3, 2, True), want)
    assert run("torchvision::roi_align", IMAGE, rois[:0], 1.0, 2, 3, 2, True).shape == (0, 12, 2, 3)


@pytest.mark.parametrize("ratio", [-1, 2])
def test_ps_roi_align(ratio: int) -> None:
    """As RoIAlign, each bin from its own channels."""
    rois = regions(5)
    got, mapping = run("torchvision::ps_roi_align", IMAGE, rois, 0.7, 2, 3, ratio)
    assert_same(got, aligned_by_loop(rois, 0.7, 2, 3, ratio, 0.5, -math.inf, True), 1e-4)
    assert mapping.dtype == np.int32 and mapping[4].reshape(-1).tolist() == list(range(12))
    against_torchvision("ps_roi_align", IMAGE, rois, 0.7, 2, 3, ratio)


def half_away(x: float) -> int:
    """C's rounding."""
    return math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5)


def bin_bounds(low: int, size: int, count: int, limit: int) -> list[tuple[int, int]]:
    """Pixels of each bin, cut at the image."""
    step = np.float32(size) / np.float32(count)
    ends = [(low + math.floor(i * step), low + math.ceil((i + 1) * step)) for i in range(count)]
    return [(min(max(a, 0), limit), min(max(b, 0), limit)) for a, b in ends]


def test_roi_pool() -> None:
    """By a loop over bins: maximum and place, 0 and -1 where a bin is empty."""
    rois = np.concatenate((regions(6), [[0, 40, 40, 44, 44]])).astype(np.float32)
    values, places = run("torchvision::roi_pool", IMAGE, rois, 0.5, 2, 3)
    for k, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (half_away(float(np.float32(v) * np.float32(0.5))) for v in box)
        rows, columns = bin_bounds(y1, max(y2 - y1 + 1, 1), 2, 10), bin_bounds(x1, max(x2 - x1 + 1, 1), 3, 12)
        for c, i, j in product(range(12), range(2), range(3)):
            part = IMAGE[int(image), c, slice(*rows[i]), slice(*columns[j])]
            assert values[k, c, i, j] == (part.max() if part.size else 0)
            at = places[k, c, i, j]
            assert (IMAGE[int(image), c].reshape(-1)[at] == part.max()) if part.size else at == -1
    assert (places[-1] == -1).all() and places.dtype == np.int32
    against_torchvision("roi_pool", IMAGE, rois, 0.5, 2, 3)


def test_ps_roi_pool() -> None:
    """By a loop over bins; the last row and column of the image never count."""
    rois = regions(6)
    values, mapping = run("torchvision::ps_roi_pool", IMAGE, rois, 1.0, 2, 3)
    for k, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (half_away(float(v)) for v in box)
        rows, columns = bin_bounds(y1, max(y2 - y1, 1), 2, 9), bin_bounds(x1, max(x2 - x1, 1), 3, 11)
        for c, i, j in product(range(2), range(2), range(3)):
            assert mapping[k, c, i, j] == (c * 2 + i) * 3 + j
            part = IMAGE[int(image), (c * 2 + i) * 3 + j, slice(*rows[i]), slice(*columns[j])]
            assert values[k, c, i, j] == pytest.approx(part.mean() if part.size else 0, abs=1e-5)
    against_torchvision("ps_roi_pool", IMAGE, rois, 1.0, 2, 3)


# ---------------------------------------------------------------------------------------- deformable convolution


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("use_mask", [False, True])
def test_deform_conv(groups: int, offset_groups: int, use_mask: bool) -> None:
    """Offsets of zero give conv2d, whole offsets a shifted one, fractions what torchvision gives."""
    x, w = IMAGE[:, :4], np.random.default_rng(6).standard_normal((6, 4 // groups, 3, 2)).astype(np.float32)
    bias = np.arange(6, dtype=np.float32)
    numbers = (1, 2, 1, 0, 1, 2, groups, offset_groups, use_mask)
    plain = run("aten::conv2d", x, w, bias, [1, 2], [1, 0], [1, 2], groups)
    taps, (oh, ow) = 6 * offset_groups, plain.shape[2:]
    offset = np.zeros((2, 2 * taps, oh, ow), np.float32)
    mask = np.full((2, taps, oh, ow), 1, np.float32)
    name = "torchvision::deform_conv2d"
    assert_same(run(name, x, w, offset, mask, bias, *numbers), plain, 1e-4)
    if use_mask:
        assert_same(run(name, x, w, offset, mask * 2, bias * 2, *numbers), plain * 2, 1e-4)
    offset[:, 0::2] = 1
    down = np.zeros_like(x)
    down[:, :, :-1] = x[:, :, 1:]
    moved = run("aten::conv2d", down, w, bias, [1, 2], [1, 0], [1, 2], groups)
    # The first row reads above the image before the shift, inside it after.
    assert_same(run(name, x, w, offset, mask, bias, *numbers)[:, :, 1:], moved[:, :, 1:], 1e-4)
    offset = (np.random.default_rng(7).standard_normal(offset.shape) * 3).astype(np.float32)
    against_torchvision("deform_conv2d", x, w, offset, mask * 0.5, bias, *numbers)


# ------------------------------------------------------------------------------------------------------ refusals

ROIS = np.zeros((2, 5), np.float32)
NUMBERS = (1, 1, 0, 0, 1, 1, 1, 1, False)
KERNEL, NONE = np.zeros((3, 12, 2, 2), np.float32), np.zeros(0, np.float32)


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("nms", (ROIS, np.zeros(2, np.float32), 0.5), ShapeError, r"dets \[2, 5\] must be \[N, 4\]"),
        ("nms", (ROIS[:, :4], np.zeros(3, np.float32), 0.5), ShapeError, r"scores \[3\] must be \[2\]"),
        ("box_iou_rotated", (ROIS, ROIS[:, :4]), ShapeError, r"boxes2 \[2, 4\] must be \[N, 5\]"),
        ("roi_align", (IMAGE[0], ROIS, 1.0, 2, 2, 2, True), ShapeError, "has 3 dims, expected 4"),
        ("roi_align", (IMAGE, ROIS[:, :4], 1.0, 2, 2, 2, True), ShapeError, r"rois \[2, 4\] must be \[K, 5\]"),
        ("roi_align", (IMAGE, ROIS + 2, 1.0, 2, 2, 2, True), ShapeError, "rois name images 2 to 2, input has 2"),
        ("roi_align", (IMAGE, ROIS.astype(float), 1.0, 2, 2, 2, True), DTypeError, "input is float32 and rois float64"),
        ("roi_pool", (IMAGE, ROIS, 1.0, 0, 2), ShapeError, "the pooled size is 0 by 2"),
        ("ps_roi_pool", (IMAGE, ROIS, 1.0, 5, 2), ShapeError, "12 channels, bins of 5 by 2 need a multiple of 10"),
        ("deform_conv2d", (IMAGE, KERNEL[:, :5], NONE, NONE, NONE, *NUMBERS), ShapeError, "offset 1; expected 4 each"),
        ("deform_conv2d", (IMAGE, KERNEL[:, :5], IMAGE, NONE, NONE, *NUMBERS), ShapeError, "groups=1 needs 5"),
        ("deform_conv2d", (IMAGE, KERNEL, IMAGE, NONE, NONE, *NUMBERS), ShapeError, r"must be \[2, 8, 9, 11\]"),
    ],
)
def test_refusals(name: str, args: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(error, match=message):
        run(f"torchvision::{name}", *args)


def test_no_cuda() -> None:
    """The version of CUDA torchvision was built with: none."""
    assert run("torchvision::_cuda_version") == -1
