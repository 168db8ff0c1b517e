"""Sums, means, variances, extremes, scans, softmax, distances and histograms against NumPy formulas and PyTorch."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.softmax
import gpujit.ops.families.matrices.distance
import gpujit.ops.families.rows.extremes
import gpujit.ops.families.rows.reduce
import gpujit.ops.families.rows.scan
import gpujit.ops.families.rows.segments
import gpujit.ops.families.rows.statistics  # noqa: F401  # importing declares the entries
from gpujit.ops.axes import total
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

RNG = np.random.default_rng(0)
NAN, INF = math.nan, math.inf
FLOAT16, FLOAT64, INT64 = 5, 7, 4
BFLOAT16 = ml_dtypes.bfloat16


def tensor(shape: Any, dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    """Numbers of about unit size; small integers for integer types, some zeros among them."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        values: Any = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    elif dtype == np.bool_:
        values = rng.random(shape) < 0.6
    elif dtype.kind in "ui":
        values = rng.integers(0 if dtype.kind == "u" else -4, 5, shape)
    else:
        values = rng.standard_normal(shape)
    return np.asarray(values).astype(dtype)


X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], dtype=np.float32)
ODD = np.array([[1.0, NAN, 3.0], [-INF, 5.0, -0.0]], dtype=np.float32)
I32 = np.array([[3, 1, 2], [9, -7, 9]], dtype=np.int32)
U8 = np.array([200, 100, 0], dtype=np.uint8)
FLAGS = np.array([[True, False], [True, True]])


def f(*values: Any) -> Any:
    return np.array(values if len(values) > 1 else values[0], dtype=np.float32)


def i(*values: Any) -> Any:
    return np.array(values if len(values) > 1 else values[0], dtype=np.int64)


EXPECTED: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::sum", (X,), f(5.0)),
    ("aten::sum", (I32,), i(17)),
    ("aten::sum", (U8,), i(300)),
    ("aten::sum", (FLAGS,), i(3)),
    ("aten::sum", (f(1.7, 2.7), INT64), i(3)),
    ("aten::sum", (f(1.5, 2.0), FLOAT16), np.array(3.5, np.float16)),
    ("aten::sum", (f([]),), f(0.0)),
    ("aten::sum.dim_IntList", (X, [-1]), f(2.0, 3.0)),
    ("aten::sum.dim_IntList", (X, [0], True), f([[5.0, 3.0, -3.0]])),
    ("aten::sum.dim_IntList", (X, []), f(5.0)),
    ("aten::sum.dim_IntList", (X, None, True), f([[5.0]])),
    ("aten::sum.dim_IntList", (f(2.0), [0]), f(2.0)),
    ("aten::nansum", (ODD, [1]), f(4.0, -INF)),
    ("aten::mean", (X,), f(5 / 6)),
    ("aten::mean.dim", (X, [0, 1]), f(5 / 6)),
    ("aten::mean.dim", (I32, [0], False, FLOAT64), np.array([6.0, -3.0, 5.5])),
    ("aten::mean", (f([]),), f(NAN)),
    ("aten::nanmean", (ODD, [0]), f(-INF, 5.0, 1.5)),
    ("aten::prod", (X,), f(720.0)),
    ("aten::prod", (I32,), i(3 * 2 * 9 * -7 * 9)),
    ("aten::prod", (f([]),), f(1.0)),
    ("aten::prod.dim_int", (X, -1), f(-6.0, -120.0)),
    ("aten::any", (U8,), np.array(1, np.uint8)),
    ("aten::any.dim", (FLAGS, 1), np.array([True, True])),
    ("aten::any", (f(NAN),), np.array(True)),
    ("aten::all", (FLAGS,), np.array(False)),
    ("aten::all.dim", (FLAGS, 0), np.array([True, False])),
    ("aten::all.dims", (FLAGS, []), FLAGS),
    ("aten::all.dims", (FLAGS, None), np.array(False)),
    ("aten::all", (f([]),), np.array(True)),
    ("aten::_is_all_true", (FLAGS,), np.array(False)),
    ("aten::_is_any_true", (FLAGS,), np.array(True)),
    ("aten::count_nonzero", (ODD,), i(5)),
    ("aten::count_nonzero", (ODD, 0), i(2, 2, 1)),
    ("aten::count_nonzero.dim_IntList", (ODD, [1]), i(3, 2)),
    ("aten::var", (X,), f(X.var(ddof=1))),
    ("aten::var", (f(3.0),), f(NAN)),
    ("aten::var.dim", (X, [1], False), f(38 / 9, 74 / 3)),
    ("aten::var.correction", (X, [0], 0, True), f([[2.25, 12.25, 20.25]])),
    ("aten::std.correction", (f(3.0, 4.0), None, 5), f(INF)),
    ("aten::std", (f(1.0, 3.0), False), f(1.0)),
    ("aten::var_mean.dim", (X, [0]), (f(4.5, 24.5, 40.5), f(2.5, 1.5, -1.5))),
    ("aten::std_mean.correction", (X, [0], 0), (f(1.5, 3.5, 4.5), f(2.5, 1.5, -1.5))),
    ("aten::trace", (I32[:, :2],), i(-4)),
    ("aten::sum_to_size", (X, [2, 1]), f([[2.0], [3.0]])),
    ("aten::sum_to_size", (X, [3]), f(5.0, 3.0, -3.0)),
    ("aten::max", (ODD,), f(NAN)),
    ("aten::max", (FLAGS,), np.array(True)),
    ("aten::min", (I32,), np.array(-7, np.int32)),
    ("aten::max.dim", (ODD, 1), (f(NAN, 5.0), i(1, 1))),
    ("aten::max.dim", (i(3, 1, 3), 0), (i(3), i(0))),
    ("aten::min.dim", (I32, -1, True), (np.array([[1], [-7]], np.int32), i([[1], [1]]))),
    ("aten::max.dim", (f(2.0), 0, True), (f(2.0), i(0))),
    ("aten::amax", (X, [0]), f(4.0, 5.0, 3.0)),
    ("aten::amin", (X, [0, 1], True), f([[-6.0]])),
    ("aten::amin", (X,), f(-6.0)),
    ("aten::argmax", (I32,), i(3)),
    ("aten::argmax", (ODD, 0), i(0, 0, 0)),
    ("aten::argmin", (X, None, True), i([[5]])),
    ("aten::argmin", (X, 1), i(1, 2)),
    ("aten::aminmax", (X, 0), (f(1.0, -2.0, -6.0), f(4.0, 5.0, 3.0))),
    ("aten::_aminmax", (X,), (f(-6.0), f(5.0))),
    ("aten::median", (i(3, 1, 2, 4),), i(2)),
    ("aten::median", (ODD,), f(NAN)),
    ("aten::median", (f([]),), f(NAN)),
    ("aten::median.dim", (f(3.0, NAN, 2.0, 4.0), 0), (f(NAN), i(1))),
    ("aten::nanmedian", (f(3.0, NAN, 2.0, 4.0),), f(3.0)),
    ("aten::nanmedian.dim", (f([[3.0, NAN, 2.0, 4.0], [NAN] * 4]), 1), (f(3.0, NAN), i(0, 0))),
    ("aten::kthvalue", (f(2.0, NAN, 1.0, NAN), 3, 0), (f(NAN), i(1))),
    ("aten::kthvalue", (X, 2), (f(1.0, 4.0), i(0, 0))),
    ("aten::mode", (i(2, 2, 1, 1, 3),), (i(1), i(3))),
    ("aten::mode", (f(1.0, NAN, NAN),), (f(1.0), i(0))),
    ("aten::quantile.scalar", (X, 0.5), f(2.0)),
    ("aten::quantile", (X, f(0.5, 0.1), None, False, "nearest"), f(1.0, -6.0)),
    ("aten::quantile", (X, f(0.0, 1.0), 1), f([[-2.0, -6.0], [3.0, 5.0]])),
    ("aten::quantile.scalar", (X, 0.75, 0, True, "midpoint"), f([[2.5, 1.5, -1.5]])),
    ("aten::quantile.scalar", (ODD, 0.5, 1), f(NAN, 0.0)),
    ("aten::nanquantile.scalar", (ODD, 0.5, 1), f(2.0, 0.0)),
    ("aten::cumsum", (I32, 1), i([[3, 4, 6], [9, 2, 11]])),
    ("aten::cumsum", (f(3.0), 0), f(3.0)),
    ("aten::cumsum", (FLAGS, 0, FLOAT64), np.array([[1.0, 0.0], [2.0, 1.0]])),
    ("aten::cumprod", (X, -1), f([[1.0, -2.0, -6.0], [4.0, 20.0, -120.0]])),
    ("aten::cummax", (f(1.0, NAN, 3.0, NAN), 0), (f(1.0, NAN, NAN, NAN), i(0, 1, 1, 3))),
    ("aten::cummin", (i(2, 1, 1, 3), 0), (i(2, 1, 1, 1), i(0, 1, 2, 2))),
    ("aten::logcumsumexp", (f(0.0, 0.0, -INF), 0), f(0.0, math.log(2), math.log(2))),
    ("aten::_logcumsumexp", (f(1000.0, 1000.0), 0), f(1000.0, 1000.0 + math.log(2))),
    ("aten::diff", (X,), f([[-3.0, 5.0], [1.0, -11.0]])),
    ("aten::diff", (FLAGS, 1, 0), np.array([[False, True]])),
    ("aten::diff", (i(1, 4), 1, 0, i(0, 0), i([9])), i(0, 1, 3, 5)),
    ("aten::diff", (i(1, 4), 0, 0, i(0, 0), i([9])), i(1, 4)),
    ("aten::diff", (f(1.0, 2.0), 3), f([])),
    ("aten::trapezoid.dx", (X, 2.0), f(0.0, 8.0)),
    ("aten::trapezoid.x", (X, f(0.0, 1.0, 3.0)), f(0.5, 3.5)),
    ("aten::trapezoid.dx", (i(1, 2, 3),), f(4.0)),
    ("aten::trapz.dx", (X, 1.0, 0), f(2.5, 1.5, -1.5)),
    ("aten::trapz.x", (X, f(0.0, 2.0), 0), f(5.0, 3.0, -3.0)),
    ("aten::cumulative_trapezoid.dx", (X,), f([[-0.5, 0.0], [4.5, 4.0]])),
    ("aten::cumulative_trapezoid.x", (X, f(0.0, 1.0, 3.0)), f([[-0.5, 0.5], [4.5, 3.5]])),
    ("aten::gradient.scalarint", (f(1.0, 4.0, 9.0), 2.0), [f(1.5, 2.0, 2.5)]),
    ("aten::gradient.array", (X, [1, 0]), [f([[-3.0, 1.0, 5.0], [1.0, -5.0, -11.0]]), f([[3.0, 7.0, -9.0]] * 2)]),
    ("aten::gradient.tensorarrayint", (f(0.0, 1.0, 9.0), [f(0.0, 1.0, 3.0)], 0), [f(1.0, 2.0, 4.0)]),
    ("aten::softmax.int", (f(0.0, math.log(3.0)), 0), f(0.25, 0.75)),
    ("aten::softmax.int", (f([[-INF, -INF], [-INF, 0.0]]), 1), f([[NAN, NAN], [0.0, 1.0]])),
    ("aten::softmax.int", (i(7, 7), -1, FLOAT64), np.array([0.5, 0.5])),
    ("aten::softmax.int", (f(5.0), 0), f(1.0)),
    ("aten::_softmax", (f(1000.0, 1000.0), 0, False), f(0.5, 0.5)),
    ("aten::special_softmax", (f(0.0, 0.0), 0), f(0.5, 0.5)),
    ("aten::log_softmax.int", (f(0.0, math.log(3.0)), 0), f(math.log(0.25), math.log(0.75))),
    ("aten::_log_softmax", (f(-1000.0, -1000.0), 0, False), f(-math.log(2), -math.log(2))),
    ("aten::special_log_softmax", (f([[3.0]]), 1), f([[0.0]])),
    ("aten::_safe_softmax", (f([[-INF, -INF], [-INF, 0.0]]), 1), f([[0.0, 0.0], [0.0, 1.0]])),
    (
        "aten::_masked_softmax",
        (f([[0.0, 0.0]] * 2), np.array([[True, False], [True, True]])),
        f([[0.0, 1.0], [NAN, NAN]]),
    ),
    ("aten::_softmax_backward_data", (f(1.0, 0.0), f(0.25, 0.75), 0, 6), f(0.1875, -0.1875)),
    ("aten::_log_softmax_backward_data", (f(1.0, 0.0), f(math.log(0.25), math.log(0.75)), 0, 6), f(0.75, -0.75)),
    ("aten::logsumexp", (f([[1000.0, 1000.0], [-INF, -INF]]), [1]), f(1000 + math.log(2), -INF)),
    ("aten::logsumexp", (f(INF, 1.0), [0], True), f([INF])),
    ("aten::special_logsumexp", (i(0, 0), [0]), f(math.log(2))),
    ("aten::linalg_vector_norm", (f(3.0, 4.0),), f(5.0)),
    ("aten::linalg_vector_norm", (X, INF, [1]), f(3.0, 6.0)),
    ("aten::linalg_vector_norm", (X, -INF, [1], True), f([[1.0], [4.0]])),
    ("aten::linalg_vector_norm", (f(0.0, 3.0, NAN), 0), f(2.0)),
    ("aten::linalg_vector_norm", (f(1.0, 2.0, 2.0), 3), f(17 ** (1 / 3))),
    ("aten::linalg_vector_norm", (np.array([3 + 4j, 0], np.complex64),), f(5.0)),
    ("aten::linalg_vector_norm", (f(3.0, 4.0), 1, None, False, FLOAT64), np.array(7.0)),
    ("aten::norm.Scalar", (f(3.0, -4.0), 1), f(7.0)),
    ("aten::norm.ScalarOpt_dim", (X, None, [0]), f(17**0.5, 29**0.5, 45**0.5)),
    ("aten::norm.ScalarOpt_dim_dtype", (X, 0, [0], False, FLOAT64), np.array([2.0, 2.0, 2.0])),
    ("aten::norm.ScalarOpt_dtype", (f(3.0, 4.0), None, FLOAT64), np.array(5.0)),
    ("aten::native_norm", (f(3.0, 4.0),), f(5.0)),
    ("aten::native_norm.ScalarOpt_dim_dtype", (X, 1, [1], True, None), f([[6.0], [15.0]])),
    ("aten::frobenius_norm.dim", (X, [0, 1]), f(91**0.5)),
    ("aten::norm_except_dim", (X, 2, 0), f([[14**0.5], [77**0.5]])),
    ("aten::norm_except_dim", (X, 2, -1), f(91**0.5)),
    ("aten::renorm", (f([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0), f([[0.6, 0.8], [0.3, 0.4]])),
    ("aten::dist", (f(1.0, 2.0), f([[1.0, 5.0]]), 2), f(3.0)),
    ("aten::dist", (f(1.0, 2.0), f(1.0, 5.0), 0), f(1.0)),
    ("aten::cosine_similarity", (f([[3.0, 4.0]]), f([[4.0, 3.0]])), f([0.96])),
    ("aten::cosine_similarity", (X, np.zeros_like(X), 0), f(0.0, 0.0, 0.0)),
    ("aten::pairwise_distance", (f([[3.0, 0.0]]), f([[0.0, 4.0]]), 2.0, 0.0, True), f([[5.0]])),
    ("aten::cdist", (f([[0.0, 0.0], [3.0, 4.0]]), f([[3.0, 0.0]])), f([[3.0], [4.0]])),
    ("aten::cdist", (f([[0.0, 0.0], [3.0, 4.0]]), f([[3.0, 1.0]]), INF), f([[3.0], [3.0]])),
    ("aten::cdist", (np.zeros((0, 3), np.float32), X), np.zeros((0, 2), np.float32)),
    ("aten::_cdist_forward", (X, X, 1.0, None), f([[0.0, 19.0], [19.0, 0.0]])),
    ("aten::_euclidean_dist", (f([[3.0, 4.0]]), f([[0.0, 0.0]])), f([[5.0]])),
    ("aten::pdist", (f([[0.0], [1.0], [3.0]]),), f(1.0, 3.0, 2.0)),
    ("aten::_pdist_forward", (f([[0.0], [1.0], [3.0]]), 0.0), f(1.0, 1.0, 1.0)),
    ("aten::cov", (X,), f([[19 / 3, -13.0], [-13.0, 37.0]])),
    ("aten::cov", (i([[1, 2], [3, 5]]),), f([[0.5, 1.0], [1.0, 2.0]])),
    ("aten::corrcoef", (f([[1.0, 2.0], [3.0, 1.0]]),), f([[1.0, -1.0], [-1.0, 1.0]])),
    ("aten::bincount", (i(1, 2, 2), None, 5), i(0, 1, 2, 0, 0)),
    ("aten::bincount", (i(1, 2, 2), i(1, 2, 3)), np.array([0.0, 1.0, 5.0])),
    ("aten::histc", (f(1.0, 2.0, 3.0), 4), f(1.0, 0.0, 1.0, 1.0)),
    ("aten::histc", (f(2.0, 2.0), 4), f(0.0, 0.0, 2.0, 0.0)),
    ("aten::histc", (f(-1.0, 0.5, 1.0, 7.0), 2, 0, 1), f(0.0, 2.0)),
    ("aten::histogram.bin_ct", (f(0.0, 1.0, 2.0), 2), (f(1.0, 2.0), f(0.0, 1.0, 2.0))),
    ("aten::histogram.bin_ct", (f(0.0, 1.0, 5.0), 2, [0.0, 4.0]), (f(2.0, 0.0), f(0.0, 2.0, 4.0))),
    (
        "aten::histogram.bins_tensor",
        (f(0.0, 1.0, 3.0), f(0.0, 1.0, 3.0), None, True),
        (f(1 / 3, 1 / 3), f(0.0, 1.0, 3.0)),
    ),
    ("aten::histogramdd", (f([[0.0, 0.0], [1.0, 1.0]]), [2, 1]), (f([[1.0], [1.0]]), [f(0.0, 0.5, 1.0), f(0.0, 1.0)])),
    ("aten::histogramdd.int_bins", (f([[0.0, 0.0], [1.0, 1.0]]), 1), (f([[2.0]]), [f(0.0, 1.0), f(0.0, 1.0)])),
    ("aten::histogramdd.TensorList_bins", (f([[0.5]]), [f(0.0, 1.0)]), (f([1.0]), [f(0.0, 1.0)])),
    ("aten::_histogramdd_bin_edges", (f([[0.0], [1.0]]), [2]), [f(0.0, 0.5, 1.0)]),
    ("aten::_histogramdd_from_bin_cts", (f([[0.0], [1.0]]), [2]), f(1.0, 1.0)),
    ("aten::_histogramdd_from_bin_tensors", (f([[0.0], [1.0]]), [f(0.0, 0.2, 1.0)]), f(1.0, 1.0)),
    ("aten::segment_reduce", (f(1.0, 2.0, 3.0), "max", i(1, 0, 2)), f(1.0, -INF, 3.0)),
    ("aten::segment_reduce", (X, "sum", None, None, i(0, 2)), f([[5.0, 3.0, -3.0]])),
    ("aten::segment_reduce", (X, "mean", i([[1, 2], [3, 0]]), None, None, 1), f([[1.0, 0.5], [1.0, NAN]])),
    ("aten::hash_tensor", (i(1, 2, 4),), np.array(7, np.uint64)),
]


@pytest.mark.parametrize("name, args, want", EXPECTED, ids=[f"{n}-{k}" for k, (n, _, _) in enumerate(EXPECTED)])
def test_expected_value(name: str, args: tuple[Any, ...], want: Any) -> None:
    assert_same(run(name, *args), want)


# ------------------------------------------------------------------------------------------- PyTorch is the judge

FLOATS = (np.float32, np.float64, np.float16, BFLOAT16)
WHOLES = (np.int64, np.int32, np.uint8, np.bool_)
SHAPES = ((2, 3, 4), (5,), (), (2, 0), (3, 1, 2))

EVERYTHING = [
    ("aten::sum", (*FLOATS, *WHOLES, np.complex64)),
    ("aten::prod", (*FLOATS, *WHOLES, np.complex64)),
    ("aten::nansum", (*FLOATS, *WHOLES)),
    ("aten::mean", (*FLOATS, np.complex64)),
    ("aten::nanmean", FLOATS),
    ("aten::var", (*FLOATS, np.complex64)),
    ("aten::std", FLOATS),
    ("aten::var_mean", FLOATS),
    ("aten::std_mean", (*FLOATS, np.complex64)),
    ("aten::any", (*FLOATS, *WHOLES, np.complex64)),
    ("aten::all", (*FLOATS, *WHOLES)),
    ("aten::count_nonzero", (*FLOATS, *WHOLES)),
    ("aten::linalg_vector_norm", (*FLOATS, np.complex64)),
]


@pytest.mark.torch
@pytest.mark.parametrize("name, dtypes", EVERYTHING, ids=[n for n, _ in EVERYTHING])
def test_over_everything(name: str, dtypes: Any) -> None:
    for dtype in dtypes:
        for shape in SHAPES:
            against_torch(name, tensor(shape, dtype))


ALONG = [
    ("aten::sum.dim_IntList", (*FLOATS, *WHOLES), [([-1],), ([0], True), ([],)]),
    ("aten::mean.dim", FLOATS, [([-1],), ([0], True)]),
    ("aten::nansum", (*FLOATS, np.int32), [([-1],), ([0], True)]),
    ("aten::prod.dim_int", (*FLOATS, *WHOLES), [(-1,), (0, True)]),
    ("aten::var.correction", FLOATS, [([-1], 1), ([0], 0, True), (None, 2)]),
    ("aten::any.dim", (*FLOATS, *WHOLES), [(-1,), (0, True)]),
    ("aten::all.dims", (*FLOATS, *WHOLES), [([-1],), ([0], True), ([],), (None, True)]),
    ("aten::cumsum", (*FLOATS, *WHOLES, np.complex64), [(-1,), (0,), (0, FLOAT64)]),
    ("aten::cumprod", (*FLOATS, *WHOLES), [(-1,), (0,)]),
    ("aten::logcumsumexp", (*FLOATS, np.complex64), [(-1,), (0,)]),
    ("aten::softmax.int", FLOATS, [(-1,), (0,), (0, FLOAT64)]),
    ("aten::log_softmax.int", FLOATS, [(-1,), (0,), (0, FLOAT64)]),
    ("aten::logsumexp", (*FLOATS, np.int64, np.complex64), [([-1],), ([0], True)]),
    ("aten::norm.ScalarOpt_dim", FLOATS, [(2, [-1]), (1, [0], True), (3.5, [0]), (0, [0])]),
]


@pytest.mark.torch
@pytest.mark.parametrize("name, dtypes, rests", ALONG, ids=[n for n, _, _ in ALONG])
def test_along_dims(name: str, dtypes: Any, rests: Any) -> None:
    for dtype in dtypes:
        for shape in ((2, 3, 4), (5,), (), (2, 0)):
            for rest in rests:
                against_torch(name, tensor(shape, dtype), *rest)


CHOOSING = [
    ("aten::max.dim", WHOLES, [(-1,), (0, True)]),
    ("aten::min.dim", WHOLES, [(-1,), (0, True)]),
    ("aten::amax", WHOLES, [([],), ([-1],), ([0], True)]),
    ("aten::amin", WHOLES, [([],), ([-1],), ([0], True)]),
    ("aten::argmax", (np.int64, np.uint8), [(), (-1,), (0, True), (None, True)]),
    ("aten::argmin", (np.int64, np.uint8), [(), (-1,), (0, True), (None, True)]),
    ("aten::aminmax", WHOLES, [(), (-1,), (0, True)]),
    ("aten::median", (np.int64, np.uint8), [()]),
    ("aten::median.dim", (), [(-1,), (0, True)]),
    ("aten::nanmedian.dim", (), [(-1,), (0, True)]),
    ("aten::kthvalue", (), [(1, -1), (2, -1, True)]),
    ("aten::mode", WHOLES, [(-1,), (0, True)]),
    ("aten::cummax", WHOLES, [(-1,), (0,)]),
    ("aten::cummin", WHOLES, [(-1,), (0,)]),
]


@pytest.mark.torch
@pytest.mark.parametrize("name, wholes, rests", CHOOSING, ids=[n for n, _, _ in CHOOSING])
def test_choosing(name: str, wholes: Any, rests: Any) -> None:
    # Float data has no ties, so that places are compared too.
    for dtype in (*FLOATS, *wholes):
        for shape in ((2, 3, 4), (5,)):
            for rest in rests:
                against_torch(name, tensor(shape, dtype), *rest)
    for rest in rests:
        if not (name == "aten::kthvalue" and rest[0] > 1):
            against_torch(name, tensor(()), *rest)
        if name not in ("aten::kthvalue", "aten::mode"):
            odd = tensor((3, 4))
            odd[1, 2], odd[2, 0] = NAN, INF
            against_torch(name, odd, *rest)


@pytest.mark.torch
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles(name: str, interpolation: str) -> None:
    x = tensor((3, 4, 5), np.float64)
    x[1, 2, 3] = NAN
    q = np.array([0.0, 0.31, 0.5, 1.0])
    for dim in (None, 0, 1, -1):
        for keepdim in (False, True):
            against_torch(f"aten::{name}", x, q, dim, keepdim, interpolation)
            against_torch(f"aten::{name}.scalar", x, 0.3, dim, keepdim, interpolation)
    against_torch(f"aten::{name}", np.array(2.0), q, 0, True, interpolation)


@pytest.mark.torch
def test_strided_inputs() -> None:
    x = tensor((4, 6, 5)).transpose(2, 0, 1)[:, ::2, 1:]
    for name, rest in [
        ("aten::sum.dim_IntList", ([1],)),
        ("aten::mean.dim", ([0, 2], True)),
        ("aten::var.dim", ([1],)),
        ("aten::max.dim", (0,)),
        ("aten::cumsum", (1,)),
        ("aten::softmax.int", (0,)),
        ("aten::median.dim", (1,)),
        ("aten::logsumexp", ([0, 1],)),
    ]:
        against_torch(name, x, *rest)


@pytest.mark.torch
@pytest.mark.parametrize("p", [0.0, 0.7, 1.0, 2.0, 3.0, INF])
def test_distances(p: float) -> None:
    a, b = tensor((2, 5, 3), np.float64), tensor((1, 4, 3), np.float64, seed=2)
    against_torch("aten::cdist", a, b, p)
    against_torch("aten::pdist", a[0], p)
    against_torch("aten::dist", a[0], b[0, :1], p)
    against_torch("aten::pairwise_distance", a, b[:, :1], p)
    if p:
        against_torch("aten::renorm", a, p, 1, 0.5)


@pytest.mark.torch
def test_distances_by_product() -> None:
    a, b = tensor((40, 3), np.float64), tensor((30, 3), np.float64, seed=2)
    for mode in (None, 1, 2):
        against_torch("aten::cdist", a, b, 2.0, mode, tolerance=1e-6)
    against_torch("aten::cosine_similarity", a[:30], b, 1)
    against_torch("aten::cosine_similarity", a[:30], b[0], 0)


@pytest.mark.torch
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms(weighted: bool) -> None:
    x = tensor((7, 2), np.float64)
    w = np.abs(tensor((7,), np.float64, seed=3)) if weighted else None
    for density in (False, True):
        against_torch("aten::histogram.bin_ct", x[:, 0].copy(), 4, None, w, density)
        against_torch("aten::histogram.bins_tensor", x[:, 0].copy(), np.array([-1.0, 0.0, 0.5]), w, density)
        against_torch("aten::histogramdd", x, [3, 2], [-1.0, 1.0, -2.0, 2.0], w, density)
    against_torch("aten::histc", x, 5, -1, 1.5)
    against_torch("aten::cov", x.T.copy(), correction(weighted), None, w)


def correction(weighted: bool) -> int:
    return 0 if weighted else 1


# --------------------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize(
    "shape, axes", [((300_000, 4), (0,)), ((3, 100_000, 2), (1,)), ((300_000, 4), (0, 1)), ((500, 700), (1,))]
)
def test_long_float32_sums_keep_their_digits(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    got = total(np, x, axes, True)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, x.sum(axis=axes, keepdims=True, dtype=np.float64), rtol=1e-6)


def test_sum_of_strided_columns_is_blocked_with_a_remainder() -> None:
    x = np.random.default_rng(0).random((10_007, 3)).astype(np.float32)
    np.testing.assert_allclose(run("aten::sum.dim_IntList", x, [0]), x.astype(np.float64).sum(0), rtol=1e-6)
    np.testing.assert_allclose(
        run("aten::sum.dim_IntList", x[::2, ::2], [0]), x[::2, ::2].astype(np.float64).sum(0), rtol=1e-6
    )


def test_in_place_and_out_forms_write_through() -> None:
    x = X.copy()
    assert run("aten::cumsum_", x, 0) is x
    np.testing.assert_array_equal(x, np.cumsum(X, 0))
    values, places = np.empty(2, np.float32), np.empty(2, np.int64)
    got = run("aten::max.dim_max", X, 1, False, values, places)
    assert got[0] is values and got[1] is places
    assert values.tolist() == [3.0, 5.0] and places.tolist() == [2, 1]
    out = np.empty((), np.float64)
    assert run("aten::sum.out", X, None, out) is out and out == 5.0
    run("aten::_cummax_helper", X, x, (where := np.empty((2, 3), np.int64)), 1)
    assert x.tolist() == [[1, 1, 3], [4, 5, 5]] and where.tolist() == [[0, 0, 2], [0, 1, 1]]


def test_half_types_are_summed_in_float32() -> None:
    x = np.full(5000, 0.1, np.float16)
    got = run("aten::sum", x)
    assert got.dtype == np.float16 and abs(float(got) - 5000 * float(x[0])) < 0.5


ERRORS: list[tuple[str, tuple[Any, ...], type, str]] = [
    ("aten::sum.dim_IntList", (X, [2]), ShapeError, "aten::sum: dim 2 is out of range"),
    ("aten::sum.dim_IntList", (X, [0, -2]), ShapeError, "dim 0 appears twice"),
    ("aten::mean", (I32,), DTypeError, "aten::mean: expected a floating"),
    ("aten::var", (I32,), DTypeError, "aten::var: expected a floating"),
    ("aten::nansum", (tensor(3, np.complex64),), DTypeError, "aten::nansum: complex"),
    ("aten::max", (f([]),), ShapeError, "aten::max: .* no elements"),
    ("aten::max.dim", (np.zeros((0, 3), np.float32), 0), ShapeError, "aten::max: dim 0 .* no elements"),
    ("aten::amin", (np.zeros((0, 3), np.float32), [0]), ShapeError, "aten::amin: dims"),
    ("aten::argmax", (FLAGS,), DTypeError, "aten::argmax: bool"),
    ("aten::max", (tensor(3, np.complex64),), DTypeError, "have no order"),
    ("aten::kthvalue", (X, 4, 1), ShapeError, "aten::kthvalue: k is 4"),
    ("aten::quantile.scalar", (X, 1.5), ShapeError, "aten::quantile: q must lie"),
    ("aten::quantile", (X, np.array([0.5])), DTypeError, "q has dtype float64"),
    ("aten::softmax.int", (I32, 0), DTypeError, "aten::softmax: expected a floating"),
    ("aten::softmax.int", (X, 2), ShapeError, "aten::softmax: dim 2"),
    ("aten::_masked_softmax", (X, X), DTypeError, "mask must be bool"),
    ("aten::cumsum", (X, 5), ShapeError, "aten::cumsum: dim 5"),
    ("aten::diff", (f(1.0),), ShapeError, "aten::diff: the input must have"),
    ("aten::trapezoid.x", (X, f(0.0, 1.0)), ShapeError, "x has 2 points"),
    ("aten::gradient.scalarint", (f([1.0]),), ShapeError, "aten::gradient: dim 0 has 1 elements"),
    ("aten::linalg_vector_norm", (I32,), DTypeError, "aten::linalg_vector_norm: expected a floating"),
    ("aten::linalg_vector_norm", (f([]), INF), ShapeError, "a norm of order inf needs elements"),
    ("aten::linalg_vector_norm", (X, 2, None, False, FLOAT16 - 1), DTypeError, "can't have a norm in int64"),
    ("aten::dist", (X, f(1.0, 2.0)), ShapeError, "aten::dist: shapes .* do not broadcast"),
    ("aten::cdist", (X, f([[1.0]])), ShapeError, "aten::cdist: expected x1"),
    ("aten::cdist", (X, X, -1.0), OpError, "aten::cdist: p must not"),
    ("aten::trace", (f(1.0, 2.0),), ShapeError, "aten::trace: expected a matrix"),
    ("aten::bincount", (i(-1, 2),), ShapeError, "aten::bincount: expected integers"),
    ("aten::histc", (f(1.0, NAN), 4), OpError, "aten::histc: the range"),
    ("aten::histc", (I32, 4), DTypeError, "aten::histc: expected a floating"),
    ("aten::segment_reduce", (X, "sum", i(1, 3)), ShapeError, "lengths must not"),
    ("aten::sum_to_size", (X, [4]), ShapeError, "is no broadcast of"),
    ("aten::_is_all_true", (X,), DTypeError, "expected a bool tensor"),
]


@pytest.mark.parametrize("name, args, error, text", ERRORS, ids=[f"{e[0]}-{k}" for k, e in enumerate(ERRORS)])
def test_refused(name: str, args: tuple[Any, ...], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)


def test_softmax_of_rows_that_differ_much() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((500, 200)).astype(np.float32)
    for change in ("none", "far", "masked", "nan"):
        if change == "far":
            x[::3] += 200
            x[1::3] -= 300
        elif change == "masked":
            x[7] = -np.inf
            x[400, 50:] = -np.inf
        elif change == "nan":
            x[3, 3], x[480, 1] = np.nan, np.inf
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            e = np.exp(wide - wide.max(-1, keepdims=True))
            want = (e / e.sum(-1, keepdims=True)).astype(np.float32)
        got = run("aten::softmax.int", x, -1)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-37)
