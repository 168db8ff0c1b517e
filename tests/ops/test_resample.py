"""Upsampling against weight formulas and PyTorch."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.resample  # noqa: F401  # importing declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

NAN, INF = math.nan, math.inf
NEAREST = [f"{p}{r}d" for p in ("upsample_nearest", "_upsample_nearest_exact") for r in (1, 2, 3)]
SMOOTH = [
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
]  # fmt: skip


def rank_of(name: str) -> int:
    """The number in the operator's name."""
    return int(next(c for c in name if c.isdigit()))


def numbers(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """Numbers of about unit size; bytes for uint8."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, shape).astype(dtype) if dtype == np.uint8 else rng.standard_normal(shape).astype(dtype)


def cubic(x: float, a: float) -> float:
    """The kernel of cubic convolution."""
    x = abs(x)
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


FILTERS = {
    "bilinear": (1, lambda x: max(0.0, 1 - abs(x))),
    "bicubic": (2, lambda x: cubic(x, -0.5)),
    "lanczos": (3, lambda x: float(np.sinc(x) * np.sinc(x / 3)) if abs(x) < 3 else 0.0),
}


def matrix(name: str, n: int, size: int, align: bool) -> np.ndarray:
    """Weights ``[size, n]`` of one dim, written out from the definition."""
    m = np.zeros((size, n))
    step = ((n - 1) / (size - 1) if size > 1 else 0.0) if align else n / size
    for i in range(size):
        at = i * step if align else (i + 0.5) * step - 0.5
        if "nearest" in name:
            m[i, min(int((i + 0.5) * step) if "exact" in name else int(i * step), n - 1)] = 1
        elif name.endswith("_aa"):
            width, function = next(f for k, f in FILTERS.items() if k in name)
            grow, center = max(step, 1.0), (i + 0.5) * step
            low = max(int(center - width * grow + 0.5), 0)
            high = min(int(center + width * grow + 0.5), n)
            weights = np.array([function((j + 0.5 - center) / grow) for j in range(low, high)])
            m[i, low:high] = weights / weights.sum()
        elif "cubic" in name:
            low = math.floor(at)
            for j in range(low - 1, low + 3):
                m[i, min(max(j, 0), n - 1)] += cubic(at - j, -0.75)
        else:
            at = max(at, 0.0)
            low = min(int(at), n - 1)
            m[i, low] += 1 - (at - low)
            m[i, min(low + 1, n - 1)] += at - low
    return m


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("sizes", [(8, 10, 6), (3, 4, 2), (7, 15, 9), (4, 5, 3), (12, 3, 1)])
@pytest.mark.parametrize("name", NEAREST + SMOOTH)
def test_weights_by_definition(name: str, sizes: Any, align: bool) -> None:
    """Every dim is a product with the matrix of the definition."""
    rank = rank_of(name)
    x = numbers((2, 3, 4, 5, 3)[: 2 + rank], np.float64)
    want = x
    for axis in range(rank):
        m = matrix(name, x.shape[2 + axis], sizes[axis], align and name in SMOOTH)
        want = np.moveaxis(np.tensordot(m, want, (1, 2 + axis)), 0, 2 + axis)
    options = [align] if name in SMOOTH else []
    got = run(f"aten::{name}", x, list(sizes[:rank]), *options)
    assert_same(got, np.ascontiguousarray(want))
    assert got is not x and not np.shares_memory(got, x)
    assert_same(run(f"aten::{name}.vec", x, list(sizes[:rank]), *options, None), got)
    target = np.empty_like(want)
    scales = [None] * rank
    assert run(f"aten::{name}.out", x, list(sizes[:rank]), *options, *scales, target) is target
    assert_same(target, got)


def test_explicit_rows() -> None:
    """Small rows by hand."""
    row = np.array([[[0, 4, 8]]], np.float32)
    assert run("aten::upsample_nearest1d", row, [6]).tolist() == [[[0, 0, 4, 4, 8, 8]]]
    assert run("aten::upsample_nearest1d", row, [4]).tolist() == [[[0, 0, 4, 8]]]
    assert run("aten::_upsample_nearest_exact1d", row, [2]).tolist() == [[[0, 8]]]
    assert run("aten::upsample_linear1d", row, [5], True).tolist() == [[[0, 2, 4, 6, 8]]]
    assert run("aten::upsample_linear1d", row, [6], False).tolist() == [[[0, 1, 3, 5, 7, 8]]]
    assert run("aten::upsample_linear1d.vec", row, None, False, [2.0]).tolist() == [[[0, 1, 3, 5, 7, 8]]]
    # A factor sets the coordinates too, besides the size (rounded towards zero).
    assert run("aten::upsample_nearest1d.vec", row, None, [1.5]).tolist() == [[[0, 0, 4, 8]]]
    assert run("aten::upsample_nearest1d.vec", row, None, [1.9]).shape == (1, 1, 5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("name", NEAREST)
def test_nearest_against_torch(name: str, dtype: Any) -> None:
    """Sizes, factors, given scales, views, infinities, an empty batch."""
    rank = rank_of(name)
    x = numbers((2, 3, 5, 7, 4)[: 2 + rank], dtype)
    if dtype != np.uint8:
        x.reshape(-1)[::9] = INF
    for y in (x, x.swapaxes(0, 1), x.swapaxes(1, -1), x[:0]):
        against_torch(f"aten::{name}", y, [9, 10, 8][:rank])
    against_torch(f"aten::{name}", x, [9, 14, 8][:rank], *[1.7, 1.3, 2.3][:rank])
    for factors in ([2.0, 3.0, 2.0], [0.5, 0.73, 1.37], [2.3, 1.5, 1.0]):
        against_torch(f"aten::{name}.vec", x, None, factors[:rank])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_against_torch(name: str, dtype: Any, align: bool) -> None:
    """Sizes, factors, given scales, views, NaN, an empty batch."""
    if dtype == np.float16 and name.endswith("_aa"):
        # PyTorch's filters take no half precision on CPU.
        dtype = np.float32
    rank = rank_of(name)
    tolerance = {np.float16: 1e-2, np.float32: 1e-4, np.float64: 1e-9}[dtype]
    x = numbers((2, 3, 5, 7, 4)[: 2 + rank], dtype)
    for y in (x, x.swapaxes(0, 1), x.swapaxes(1, -1), x[:0]):
        against_torch(f"aten::{name}", y, [9, 10, 8][:rank], align, tolerance=tolerance)
    if not name.endswith("_aa"):
        against_torch(f"aten::{name}", x, [9, 14, 4][:rank], align, *[1.7, 1.3, 2.3][:rank], tolerance=tolerance)
    for factors in ([2.0, 3.0, 2.0], [0.5, 0.73, 1.37], [2.3, 1.5, 1.0]):
        against_torch(f"aten::{name}.vec", x, None, align, factors[:rank], tolerance=tolerance)
    x.reshape(-1)[::9] = NAN
    against_torch(f"aten::{name}", x, [9, 10, 8][:rank], align, tolerance=tolerance)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    "name", ["upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
)
def test_bytes_are_exact(name: str, align: bool) -> None:
    """uint8 uses PyTorch's fixed-point arithmetic, so that every byte agrees."""
    x = numbers((2, 3, 11, 8), np.uint8)
    for output in ([23, 17], [5, 3], [11, 20]):
        against_torch(f"aten::{name}", x, output, align)
    flat = np.full((1, 1, 4, 4), 200, np.uint8)
    assert (run(f"aten::{name}", flat, [7, 3], align) == 200).all()


def test_filters_do_not_spread_infinity() -> None:
    """An infinite element reaches only the windows that hold it."""
    x = np.zeros((1, 1, 1, 12), np.float32)
    x[..., 0] = INF
    y = run("aten::_upsample_bilinear2d_aa", x, [1, 4], False)
    assert np.isinf(y[0, 0, 0, 0]) and np.isfinite(y[0, 0, 0, 2:]).all()


def test_builtins_follow_interpolate() -> None:
    """``__interpolate`` and the older names compute what functional.interpolate does."""
    torch = pytest.importorskip("torch")
    x = numbers((2, 3, 6, 8))
    function = torch.nn.functional.interpolate
    for size, factor, mode, align, recompute, smooth in (
        (None, 2.0, "nearest", None, None, False),
        (None, 1.7, "nearest", None, True, False),
        (None, [1.3, 0.6], "nearest-exact", None, None, False),
        ([3, 5], None, "bilinear", True, None, False),
        (4, None, "bilinear", False, None, True),
        (None, 1.6, "bicubic", False, None, False),
        (None, 0.6, "bicubic", None, True, True),
        ([3, 5], None, "area", None, None, False),
        (None, 0.5, "area", None, None, False),
    ):
        overload = {(0, 0): "", (1, 0): ".size_list", (0, 1): ".scale_list"}[
            (int(isinstance(size, list)), int(isinstance(factor, list)))
        ]
        got = run(f"aten::__interpolate{overload}", x, size, factor, mode, align, recompute, smooth)
        want = function(torch.from_numpy(x), size, factor, mode, align, recompute, smooth).numpy()
        assert_same(got, want, 1e-4)
    for y, mode in ((x[:, :, 0], "linear"), (x[..., None], "trilinear")):
        got = run("aten::__interpolate", y, 5, None, mode, False)
        assert_same(got, function(torch.from_numpy(y), 5, mode=mode, align_corners=False).numpy(), 1e-4)
    doubled = run("aten::__upsample_nearest", x, None, 2)
    assert_same(doubled, x.repeat(2, 2).repeat(2, 3))
    assert_same(run("aten::__upsample", x, None, 2), doubled)
    assert_same(run("aten::__upsample.size_list", x, [12, 16]), doubled)
    want = function(torch.from_numpy(x), scale_factor=2, mode="bilinear", align_corners=True).numpy()
    assert_same(run("aten::__upsample_bilinear", x, None, 2), want, 1e-4)
    assert_same(run("aten::__upsample_bilinear.size_list_scale_list", x, [12, 16]), want, 1e-4)


X = np.zeros((1, 3, 5, 5), np.float32)


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("upsample_nearest2d", (X[0], [4, 4]), ShapeError, r"input \[3, 5, 5\] has 3 dims, expected 4"),
        ("upsample_nearest2d", (X, [4, 4, 4]), ShapeError, r"output_size is \[4, 4, 4\], expected 2 numbers"),
        ("upsample_nearest2d", (X, [4, 0]), ShapeError, "must be greater than 0"),
        ("upsample_nearest2d", (X[:, :, :0], [4, 4]), ShapeError, "must be greater than 0"),
        (
            "upsample_bilinear2d",
            (X.astype(np.int64), [4, 4], True),
            DTypeError,
            "input is int64, expected a floating dtype or uint8",
        ),
        ("upsample_nearest2d.vec", (X, None, None), OpError, "exactly one of output_size and scale_factors"),
        ("upsample_nearest2d.vec", (X, [4, 4], [2.0, 2.0]), OpError, "exactly one of output_size and scale_factors"),
        ("upsample_nearest2d.vec", (X, None, [2.0]), ShapeError, r"scale_factors is \[2.0\], expected 2 numbers"),
        ("__interpolate", (X, 4, 2.0), OpError, "exactly one of size and scale_factor"),
        ("__interpolate", (X, None, 2.0, "linear"), OpError, "mode 'linear' does not go with an input of 4 dims"),
        ("__interpolate", (X, None, 2.0, "nearest", True), OpError, "align_corners has no meaning in mode 'nearest'"),
        ("__interpolate", (X, 4, None, "nearest", None, True), OpError, "recompute_scale_factor has no meaning"),
        ("__interpolate", (X[..., None], 4, None, "trilinear", None, None, True), OpError, "antialias needs 4 dims"),
        ("__interpolate.size_list", (X, [4], None), ShapeError, "one number or 2 of them"),
        ("__interpolate", (X[0, 0], 4), ShapeError, r"input \[5, 5\] has 2 dims, expected 3 to 5"),
    ],
)
def test_refusals(name: str, args: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and wanted."""
    with pytest.raises(error, match=message):
        run(f"aten::{name}", *args)
