"""Normalisation layers against formulas and PyTorch, and what training writes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.norms  # noqa: F401  # importing declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

BFLOAT16 = ml_dtypes.bfloat16
EPS = 1e-5


def tensor(shape: Any, dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    """Numbers of about unit size."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * 1.5 + 0.5).astype(dtype)


def positive(n: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(n) * 0.3 + 0.7).astype(dtype)


def normalised(x: np.ndarray, axes: tuple[int, ...], eps: float = EPS) -> Any:
    """The definition, in float64."""
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + eps)


def channels(v: np.ndarray, ndim: int) -> Any:
    return v.reshape(-1, *(1,) * (ndim - 2))


IMAGE = tensor((2, 6, 4, 5))
W, B = positive(6), -positive(6)


def test_layer_norm_is_its_formula() -> None:
    w, b = positive(20).reshape(4, 5), tensor((4, 5), seed=3)
    want = normalised(IMAGE, (2, 3)) * w + b
    got = run("aten::layer_norm", IMAGE, [4, 5], w, b)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    y, mean, rstd = run("aten::native_layer_norm", IMAGE, [4, 5], w, b, EPS)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean, IMAGE.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(IMAGE.var((2, 3), keepdims=True) + EPS), rtol=1e-5)


def test_group_norm_is_its_formula() -> None:
    want = normalised(IMAGE.reshape(2, 3, 40), (2,)).reshape(IMAGE.shape) * channels(W, 4) + channels(B, 4)
    np.testing.assert_allclose(run("aten::group_norm", IMAGE, 3, W, B), want, rtol=1e-5, atol=1e-5)
    y, mean, rstd = run("aten::native_group_norm", IMAGE, W, B, 2, 6, 20, 3, EPS)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    assert mean.shape == rstd.shape == (2, 3)
    np.testing.assert_allclose(mean, IMAGE.reshape(2, 3, 40).mean(2), rtol=1e-5, atol=1e-6)


def test_instance_norm_is_its_formula() -> None:
    want = normalised(IMAGE, (2, 3)) * channels(W, 4) + channels(B, 4)
    got = run("aten::instance_norm", IMAGE, W, B, None, None, True, 0.1, EPS, False)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_rms_norm_is_its_formula() -> None:
    want = IMAGE / np.sqrt((IMAGE.astype(np.float64) ** 2).mean(3, keepdims=True) + 1e-6) * positive(5)
    np.testing.assert_allclose(run("aten::rms_norm", IMAGE, [5], positive(5), 1e-6), want, rtol=1e-5)
    y, rstd = run("aten::_fused_rms_norm", IMAGE, [5], positive(5), 1e-6)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    assert rstd.shape == (2, 6, 4, 1)
    # Without an epsilon it is the dtype's own.
    tiny = np.array([1e-4, 0.0], np.float32)
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(run("aten::rms_norm", tiny, [2])[0], 1e-4 / math.sqrt(5e-9 + eps), rtol=1e-5)


def test_weight_norm_is_its_formula() -> None:
    v, g = tensor((3, 2, 4)), positive(3).reshape(3, 1, 1)
    norms = np.sqrt((v**2).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(run("aten::_weight_norm", v, g, 0), v * g / norms, rtol=1e-5)
    w, found = run("aten::_weight_norm_interface", v, g, 0)
    np.testing.assert_allclose(w, v * g / norms, rtol=1e-5)
    np.testing.assert_allclose(found, norms, rtol=1e-5)


def test_batch_norm_out_of_training_is_scale_and_shift() -> None:
    mean, var = tensor(6, seed=4), positive(6)
    want = (IMAGE - channels(mean, 4)) / np.sqrt(channels(var, 4) + EPS) * channels(W, 4) + channels(B, 4)
    kept = mean.copy(), var.copy()
    got = run("aten::batch_norm", IMAGE, W, B, mean, var, False, 0.1, EPS, False)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert_same((mean, var), kept, 0)
    y, m, s = run("aten::_native_batch_norm_legit_no_training", IMAGE, W, B, mean, var, 0.1, EPS)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    assert m.shape == s.shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BFLOAT16])
def test_batch_norm_in_training_updates_running_statistics(dtype: Any) -> None:
    x = IMAGE.astype(dtype)
    mean, var = np.zeros(6, dtype), np.ones(6, dtype)
    wide = x.astype(np.float64)
    want_mean = 0.25 * wide.mean((0, 2, 3))
    want_var = 0.75 + 0.25 * wide.var((0, 2, 3), ddof=1)
    y = run("aten::batch_norm", x, None, None, mean, var, True, 0.25, EPS, False)
    tolerance = 1e-2 if np.dtype(dtype).itemsize == 2 else 1e-5
    assert y.dtype == mean.dtype == dtype
    np.testing.assert_allclose(mean.astype(np.float64), want_mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(var.astype(np.float64), want_var, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(y.astype(np.float64), normalised(x, (0, 2, 3)), rtol=2 * tolerance, atol=2 * tolerance)


def test_instance_norm_updates_running_statistics_with_the_mean_over_samples() -> None:
    mean, var = np.zeros(6, np.float32), np.ones(6, np.float32)
    run("aten::instance_norm", IMAGE, None, None, mean, var, True, 0.5, EPS, False)
    np.testing.assert_allclose(mean, 0.5 * IMAGE.mean((2, 3)).mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var, 0.5 + 0.5 * IMAGE.var((2, 3), ddof=1).mean(0), rtol=1e-5)


def test_large_means_do_not_cost_digits_in_training() -> None:
    x = tensor((64, 3, 50)) + 1000
    y = run("aten::batch_norm", x, None, None, None, None, True, 0.1, EPS, False)
    np.testing.assert_allclose(y, normalised(x, (0, 2)), atol=2e-3)
    np.testing.assert_allclose(run("aten::layer_norm", x, [50]), normalised(x, (2,)), atol=2e-3)


def test_channels_last_layout_is_kept() -> None:
    x = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    y = run("aten::batch_norm", x, W, B, tensor(6), positive(6), False, 0.1, EPS, False)
    assert y.strides == x.strides
    same = run("aten::batch_norm", IMAGE, W, B, tensor(6), positive(6), False, 0.1, EPS, False)
    np.testing.assert_array_equal(y, same)


def test_out_forms_write_all_results() -> None:
    y, mean, rstd = np.empty_like(IMAGE), np.empty((2, 6, 4, 1), np.float32), np.empty((2, 6, 4, 1), np.float32)
    got = run("aten::native_layer_norm.out", IMAGE, [5], None, None, EPS, y, mean, rstd)
    assert got[0] is y and got[1] is mean and got[2] is rstd
    np.testing.assert_allclose(y, normalised(IMAGE, (3,)), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------- PyTorch is the judge

FLOATS = (np.float32, np.float64, np.float16, BFLOAT16)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("affine", [False, True])
def test_layers_agree_with_torch(dtype: Any, affine: bool) -> None:
    for shape in ((2, 6), (3, 6, 4), (2, 6, 3, 5), (1, 6, 2, 2, 3), (0, 6, 2)):
        x = tensor(shape, dtype)
        w, b = (positive(6, dtype), -positive(6, dtype)) if affine else (None, None)
        mean, var = tensor(6, dtype, seed=5), positive(6, dtype)
        against_torch("aten::batch_norm", x, w, b, mean, var, False, 0.1, EPS, False)
        half = np.dtype(dtype).itemsize == 2
        if shape[0] > 1 and not (half and x.size < 60):
            # In training PyTorch rounds the statistics of half types on the way, which few values make worse.
            loose = 0.05 if half else None
            against_torch("aten::batch_norm", x, w, b, mean, var, True, 0.1, EPS, False, tolerance=loose)
            against_torch("aten::native_batch_norm", x, w, b, mean, var, True, 0.1, EPS, tolerance=loose)
            against_torch("aten::_native_batch_norm_legit", x, w, b, mean, var, True, 0.1, EPS, tolerance=loose)
            against_torch("aten::_native_batch_norm_legit.no_stats", x, w, b, True, 0.1, EPS, tolerance=loose)
        if shape[0]:
            against_torch("aten::group_norm", x, 3, w, b)
        last = list(shape[-1:])
        lw = positive(last[0], dtype) if affine else None
        against_torch("aten::layer_norm", x, last, lw, lw)
        against_torch("aten::native_layer_norm", x, last, lw, lw, EPS)
        against_torch("aten::rms_norm", x, last, lw)


@pytest.mark.torch
def test_less_usual_forms_agree_with_torch() -> None:
    mean, var = tensor(6, seed=5), positive(6)
    against_torch("aten::instance_norm", IMAGE, W, B, mean, var, True, 0.1, EPS, False)
    against_torch("aten::instance_norm", IMAGE, W, None, mean, var, False, 0.1, EPS, False)
    against_torch("aten::_batch_norm_with_update", IMAGE, W, B, mean, var, 0.1, EPS)
    against_torch("aten::_batch_norm_no_update", IMAGE, W, B, mean, var, 0.1, EPS)
    against_torch("aten::_batch_norm_with_update_functional", IMAGE, W, B, mean, var, 0.1, EPS)
    against_torch("aten::_batch_norm_impl_index", IMAGE, W, B, mean, var, False, 0.1, EPS, False)
    against_torch("aten::native_group_norm", IMAGE, W, B, 2, 6, 20, 2, EPS)
    against_torch("aten::_fused_rms_norm", IMAGE, [4, 5], None, None)
    against_torch("aten::_weight_norm_interface", tensor((3, 2, 4)), positive(4).reshape(1, 1, 4), 2)
    against_torch("aten::layer_norm", np.zeros((0, 3), np.float32), [3])
    # Half data with float32 parameters keeps its statistics in float32.
    x = tensor((4, 6), BFLOAT16)
    against_torch("aten::native_layer_norm", x, [6], W, B, EPS)
    against_torch("aten::batch_norm", x, W, B, mean, var, False, 0.1, EPS, False)
    odd = IMAGE.copy()
    odd[0, 0, 0, 0], odd[1, 2, 3, 4] = math.nan, math.inf
    against_torch("aten::layer_norm", odd, [5])
    against_torch("aten::batch_norm", odd, W, B, mean, var, False, 0.1, EPS, False)


ERRORS: list[tuple[str, tuple[Any, ...], type, str]] = [
    ("aten::layer_norm", (IMAGE, [4]), ShapeError, r"aten::layer_norm: normalized_shape \[4\]"),
    ("aten::layer_norm", (IMAGE, [5], positive(4)), ShapeError, "weight has shape"),
    ("aten::layer_norm", (np.ones((2, 3), np.int64), [3]), DTypeError, "expected a floating tensor"),
    ("aten::group_norm", (IMAGE, 4), ShapeError, "aten::group_norm: .* into 4 groups"),
    ("aten::group_norm", (IMAGE, 3, positive(5)), ShapeError, "weight has shape"),
    (
        "aten::batch_norm",
        (IMAGE, None, None, None, None, False, 0.1, EPS, False),
        OpError,
        "running_mean and running_var",
    ),
    ("aten::batch_norm", (IMAGE, positive(5), None, W, W, False, 0.1, EPS, False), ShapeError, "weight has 5 elements"),
    (
        "aten::batch_norm",
        (IMAGE, W.astype(np.float64), None, W, W, False, 0.1, EPS, False),
        DTypeError,
        "weight is float64",
    ),
    ("aten::batch_norm", (W, None, None, W, W, False, 0.1, EPS, False), ShapeError, "at least 2 dims"),
    ("aten::native_group_norm", (IMAGE, None, None, 2, 6, 21, 3, EPS), ShapeError, "HxW=21"),
    ("aten::rms_norm", (IMAGE, [4]), ShapeError, "aten::rms_norm: normalized_shape"),
    ("aten::_weight_norm", (IMAGE, W, 4), ShapeError, "dim 4 is out of range"),
]


@pytest.mark.parametrize("name, args, error, text", ERRORS, ids=[f"{e[0]}-{k}" for k, e in enumerate(ERRORS)])
def test_refused(name: str, args: tuple[Any, ...], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)


def test_large_inputs_are_normalised_in_blocks() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 70, 300)).astype(np.float32)
    x[1, 2] += 1000
    weight, bias = rng.standard_normal((2, 300)).astype(np.float32)
    for affine in ((weight, bias), (weight, None), (None, bias), (None, None)):
        wide = x.astype(np.float64)
        want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        want = want * (1 if affine[0] is None else affine[0]) + (0 if affine[1] is None else affine[1])
        y = run("aten::layer_norm", x, [300], *affine)
        # A row far from zero has fewer digits left of what it is normalised to.
        assert_same(y, want.astype(np.float32), 5e-4)
        assert_same(y[0], want[0].astype(np.float32), 1e-5)
    x[2, 5, 7] = np.nan
    assert (np.isnan(run("aten::layer_norm", x, [300])).sum(-1) == np.where(np.isnan(x).any(-1), 300, 0)).all()
