"""Out-variants: results computed in given arrays equal the functional ones, and need no memory of their size."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ir import types as T
from gpujit.ops import into, table
from gpujit.ops.out_variants import COPIED
from gpujit.ops.registry import Op
from gpujit.support.errors import DTypeError, InternalError, OpError, ShapeError
from tests.ops.check import assert_same, run

FLOAT32, INT64 = 6, 4


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng([5, *shape]).uniform(0.1, 0.9, shape).astype(dtype)


def whole(*shape: int, high: int = 3) -> Any:
    return np.random.default_rng([7, *shape]).integers(0, high, shape)


A, B, V = floats(4, 5), floats(5, 3), floats(5)
X3, Y3 = floats(2, 4, 5), floats(2, 5, 3)
MASK = A > 0.5
IMAGE, KERNEL = floats(3, 4, 6, 6), floats(5, 4, 3, 3)
C64 = A.astype(np.complex64)

# Arguments of entries that are not pointwise; what is missing at the end takes its default.
SAMPLES: dict[str, list[tuple[Any, ...]]] = {
    "aten::angle": [(A - 0.5,), (C64 * (1 - 2j),), (np.array([[np.nan, -0.0, -1, np.inf]], np.float32),)],
    "aten::complex": [(A, V), (A.astype(np.float64), A.astype(np.float64))],
    "aten::polar": [(A, V), (V, A)],
    "aten::div.Tensor_mode": [(A - 0.5, V, None), (A - 0.5, V, "floor"), (A - 0.5, V, "trunc"), (whole(5), V, None)],
    "aten::div.Scalar_mode": [(A - 0.5, 0.25, None), (A - 0.5, 2, "trunc"), (A - 0.5, -0.25, "floor")],
    "aten::fft_fft": [(A,), (C64, 8, 0, "ortho"), (A.astype(np.float64), 3)],
    "aten::fft_ifft": [(C64,), (A, 8, 0, "forward")],
    "aten::fft_rfft": [(A,), (A, 8, 0, "ortho"), (A.T, 3)],
    "aten::fft_irfft": [(C64,), (C64, 9, 0), (A, None, -1, "forward")],
    "aten::fft_hfft": [(C64 * (1 - 2j),), (C64, 9, 0), (A, None, -1, "ortho")],
    "aten::fft_ihfft": [(A,), (A, 8, 0, "ortho")],
    "aten::linalg_norm": [(A,), (A, None, [1], True), (A, 2, [0]), (V, 2), (A, 3.0, [0]), (A, 1)],
    "aten::matrix_power": [(A[:, :4], 2), (X3[:, :, :4], 3), (A[:, :4], 0), (A[:, :4], 5)],
    "aten::linalg_matrix_power": [(A[:, :4], 3)],
    "aten::mm": [(A, B), (A.T, A), (whole(2, 3), whole(3, 2)), (floats(0, 5), B)],
    "aten::mm.dtype": [(A, B, FLOAT32)],
    "aten::bmm": [(X3, Y3), (whole(2, 4, 5), whole(2, 5, 3))],
    "aten::bmm.dtype": [(X3, Y3, FLOAT32)],
    "aten::mv": [(A, V)],
    "aten::dot": [(V, V)],
    "aten::vdot": [(V, V), (C64[0], C64[1])],
    "aten::matmul": [(A, B), (A, V), (V, B), (X3, Y3), (X3, B), (A, Y3), (V, V), (floats(2, 1, 4, 5), Y3)],
    "aten::linalg_matmul": [(X3, Y3)],
    "aten::linear": [(A, B.T.copy(), floats(3)), (X3, B.T.copy(), floats(3)), (V, B.T.copy()), (X3, V)],
    "aten::addmm": [(floats(3), A, B), (floats(4, 3), A, B, 0.5, 2), (floats(4, 3), A, B, 0, 1)],
    "aten::_addmm_activation": [(floats(3), A, B)],
    "aten::addmv": [(floats(4), A, V, 2, 3)],
    "aten::baddbmm": [(floats(2, 4, 3), X3, Y3, 1, 0.5)],
    "aten::addbmm": [(floats(4, 3), X3, Y3, 2, 1)],
    "aten::addr": [(floats(5, 3), V, floats(3), 1, 2)],
    "aten::outer": [(V, floats(3))],
    "aten::ger": [(V, floats(3))],
    "aten::inner": [(A, B.T.copy())],
    "aten::kron": [(A, floats(2, 2)), (V, A)],
    "aten::cross": [(floats(4, 3), floats(3, 4).T)],
    "aten::linalg_cross": [(floats(4, 3), floats(3, 4).T)],
    "aten::cat": [([A, A], 0), ([A, A, A], -1), ([A, np.empty(0, np.float32)], 0), ([whole(2, 2), whole(1, 2)], 0)],
    "aten::concat": [([A, A], 1)],
    "aten::concatenate": [([A, A], 1)],
    "aten::stack": [([A, A], 0), ([A, A], -1), ([A, A], 1)],
    "aten::hstack": [([A, A],), ([V, V],)],
    "aten::vstack": [([A, V],)],
    "aten::row_stack": [([A, V],)],
    "aten::dstack": [([A, A],)],
    "aten::column_stack": [([V, V],)],
    "aten::repeat": [(A, [2, 3]), (A, [2, 1, 2]), (V, [0])],
    "aten::tile": [(A, [2])],
    "aten::repeat_interleave.self_int": [(A, 3, 1), (A, 2, None)],
    "aten::roll": [(A, [1], [0]), (A, [1, -2], [0, 1]), (A, [3])],
    "aten::flip": [(A, [0]), (A, [0, 1])],
    "aten::fliplr": [(A,)],
    "aten::flipud": [(A,)],
    "aten::rot90": [(A, 1, [0, 1]), (A, 2, [0, 1]), (A, -1, [0, 1]), (A, 4, [0, 1])],
    "aten::view_copy": [(A, [5, 4])],
    "aten::view_copy.dtype": [(A, 3)],
    "aten::select_copy.int": [(A, 0, 1)],
    "aten::slice_copy.Tensor": [(A, 1, 1, 4, 2)],
    "aten::narrow_copy": [(A, 1, 1, 2)],
    "aten::permute_copy": [(X3, [2, 0, 1])],
    "aten::expand_copy": [(V, [4, 5])],
    "aten::transpose_copy.int": [(A, 0, 1)],
    "aten::t_copy": [(A,)],
    "aten::unsqueeze_copy": [(A, 1)],
    "aten::squeeze_copy": [(A[:1],)],
    "aten::squeeze_copy.dim": [(A[:1], 0)],
    "aten::squeeze_copy.dims": [(A[:1], [0])],
    "aten::unfold_copy": [(V, 0, 3, 1)],
    "aten::alias_copy": [(A,)],
    "aten::detach_copy": [(A,)],
    "aten::diagonal_copy": [(A, 1)],
    "aten::as_strided_copy": [(A, [2, 2], [1, 2])],
    "aten::view_as_real_copy": [(C64,)],
    "aten::view_as_complex_copy": [(floats(4, 2),)],
    "aten::split_copy.Tensor": [(A, 2)],
    "aten::split_with_sizes_copy": [(A, [1, 3])],
    "aten::unbind_copy.int": [(A, 1)],
    "aten::index.Tensor": [(A, [whole(7)]), (A, [MASK]), (A, [whole(3), whole(3)]), (A, [np.array(1), np.array(2)])],
    "aten::_unsafe_index.Tensor": [(A, [-whole(2, 3)])],
    "aten::index.Tensor_hacked_twin": [(A, [whole(7)])],
    "aten::_unsafe_index.Tensor_hacked_twin": [(A, [whole(7)])],
    "aten::index_put": [(A, [whole(3)], floats(3, 5)), (A, [whole(3), whole(3)], V[0], True)],
    "aten::index_put.hacked_twin": [(A, [whole(3)], V)],
    "aten::_unsafe_index_put": [(A, [whole(3)], V)],
    "aten::_unsafe_index_put.hacked_twin": [(A, [whole(3)], V)],
    "aten::index_select": [(A, 1, whole(4)), (A, 0, np.array(2))],
    "aten::take": [(A, whole(2, 3)), (A, -whole(2, 3) - 1)],
    "aten::masked_select": [(A, MASK)],
    "aten::nonzero": [(MASK,)],
    "aten::argwhere": [(MASK,)],
    "aten::select_scatter": [(A, V, 0, 1)],
    "aten::slice_scatter": [(A, A[:2], 0, 1, 3)],
    "aten::diagonal_scatter": [(A, floats(4))],
    "aten::embedding": [(A, whole(2, 3))],
    "aten::gather": [(A, 1, whole(4, 2)), (A, 0, whole(2, 5))],
    "aten::take_along_dim": [(A, whole(4, 2), 1), (A, whole(6), None)],
    "aten::scatter.src": [(A, 1, np.array([[0, 2], [1, 3]]), floats(2, 2))],
    "aten::scatter.value": [(A, 1, np.array([[0, 2], [1, 3]]), 2.5)],
    "aten::scatter.reduce": [(A, 1, whole(4, 5), A, "add")],
    "aten::scatter.value_reduce": [(A, 1, whole(4, 5), 2.0, "multiply")],
    "aten::scatter_add": [(A, 0, whole(4, 5), A)],
    "aten::scatter_reduce.two": [(A, 0, whole(4, 5), A, "amax"), (A, 0, whole(4, 5), A, "mean", False)],
    "aten::index_add": [(A, 0, whole(3), floats(3, 5), 2)],
    "aten::index_copy": [(A, 1, np.array([0, 3]), floats(4, 2))],
    "aten::index_fill.int_Scalar": [(A, 1, whole(2), 7.0)],
    "aten::index_fill.int_Tensor": [(A, 1, whole(2), np.array(7.0, np.float32))],
    "aten::index_reduce": [(A, 0, whole(3), floats(3, 5), "prod")],
    "aten::sort": [(A, 1), (A, 0, True), (whole(6), 0)],
    "aten::sort.stable": [(A, True, 1)],
    "aten::argsort": [(A, 1), (A, 0, True)],
    "aten::argsort.stable": [(A, True, 1)],
    "aten::msort": [(A,)],
    "aten::zeros": [([2, 3],)],
    "aten::ones": [([2, 3], INT64)],
    "aten::_efficientzerotensor": [([2],)],
    "aten::full": [([2, 3], 7), ([2], 1.5)],
    "aten::zeros_like": [(A,)],
    "aten::ones_like": [(A, INT64)],
    "aten::new_zeros": [(A, [3])],
    "aten::new_ones": [(A, [3])],
    "aten::full_like": [(A, 2)],
    "aten::new_full": [(A, [3], 2)],
    "aten::fill.Scalar": [(A, 3)],
    "aten::fill.Tensor": [(A, np.array(3.0))],
    "aten::zero": [(A,)],
    "aten::copy": [(A, V)],
    "aten::clone": [(A,), (A.T,)],
    "aten::tril": [(A, 1), (X3, -1)],
    "aten::triu": [(A, 1)],
    "aten::diag_embed": [(A, 1), (A, -2, 0, 1)],
    "aten::diag": [(V, 1), (A, 1)],
    "aten::diagflat": [(A, 1)],
    "aten::arange": [(7,), (7.5,)],
    "aten::arange.start": [(2, 9), (2, 9, FLOAT32)],
    "aten::arange.start_step": [(9, 1, -2), (0.5, 3.0, 0.25), (0, 100, 30, 0)],
    "aten::eye": [(4,)],
    "aten::eye.m": [(3, 5), (5, 3, INT64)],
    "aten::cumsum": [(A, 1), (A, 0), (whole(3, 4), 0), (A.astype(np.float64), 1)],
    "aten::cumprod": [(A, 1)],
    "aten::cummax": [(A, 1)],
    "aten::cummin": [(A, 0)],
    "aten::logcumsumexp": [(A, 1)],
    "aten::_logcumsumexp": [(A, 0)],
    "aten::diff": [(A,), (MASK, 1, 0)],
    "aten::sum": [(A,), (MASK,)],
    "aten::sum.dim_IntList": [(A, [0]), (A, [1], True), (whole(3, 4), [0]), (A, None), (floats(300, 40), [0])],
    "aten::prod": [(A,)],
    "aten::prod.dim_int": [(A, 1), (whole(3, 4), 0, True)],
    "aten::mean": [(A,)],
    "aten::mean.dim": [(A, [0]), (A, [-1], True), (floats(40, 300), [1]), (floats(0, 3), [0])],
    "aten::any": [(MASK,)],
    "aten::any.dim": [(A, 1)],
    "aten::any.dims": [(A, [0, 1])],
    "aten::all": [(MASK,)],
    "aten::all.dim": [(MASK, 1, True)],
    "aten::all.dims": [(MASK, [0])],
    "aten::count_nonzero": [(A, 1)],
    "aten::count_nonzero.dim_IntList": [(MASK, [0])],
    "aten::max": [(A,)],
    "aten::min": [(whole(5),)],
    "aten::max.dim": [(A, 1), (A, 0, True)],
    "aten::min.dim": [(A, 1)],
    "aten::amax": [(A, [1]), (A, [])],
    "aten::amin": [(A, [0], True)],
    "aten::argmax": [(A, 1), (A, 0, True)],
    "aten::argmin": [(A, 1)],
    "aten::aminmax": [(A, 1)],
    "aten::_aminmax": [(A,)],
    "aten::_aminmax.dim": [(A, 1)],
    "aten::linalg_vector_norm": [(A, 2, [1])],
    "aten::norm.Scalar": [(A,)],
    "aten::norm.ScalarOpt_dim": [(A, None, [1])],
    "aten::native_norm": [(A,)],
    "aten::frobenius_norm.dim": [(A, [0], True)],
    "aten::renorm": [(A, 2, 0, 0.5)],
    "aten::softmax.int": [(A, 1), (X3, 0), (A, 1, FLOAT32)],
    "aten::_softmax": [(A, 1, False)],
    "aten::special_softmax": [(A, 0)],
    "aten::log_softmax.int": [(A, 1)],
    "aten::_log_softmax": [(A, 1, False)],
    "aten::special_log_softmax": [(A, 0)],
    "aten::_softmax_backward_data": [(A, A, 1, FLOAT32)],
    "aten::_log_softmax_backward_data": [(A, A, 0, FLOAT32)],
    "aten::layer_norm": [(A, [5], V, V), (X3, [4, 5]), (X3, [5])],
    "aten::group_norm": [(IMAGE, 2, floats(4), floats(4)), (IMAGE, 1)],
    "aten::rms_norm": [(A, [5], V)],
    "aten::batch_norm": [(IMAGE, floats(4), floats(4), floats(4), floats(4), False, 0.1, 1e-5, True)],
    "aten::conv2d": [
        (IMAGE, KERNEL, floats(5)),
        (IMAGE, floats(5, 4, 1, 1), floats(5)),
        (IMAGE, floats(4, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], 4),
    ],
    "aten::conv2d.padding": [(IMAGE, KERNEL, None, [1, 1], "same")],
    "aten::conv1d": [(floats(2, 4, 6), floats(3, 4, 3))],
    "aten::conv1d.padding": [(floats(2, 4, 6), floats(3, 4, 1))],
    "aten::conv3d": [(floats(2, 2, 3, 4, 4), floats(3, 2, 2, 2, 2))],
    "aten::conv3d.padding": [(floats(2, 2, 3, 4, 4), floats(3, 2, 1, 1, 1))],
    "aten::conv_transpose1d": [(floats(2, 4, 6), floats(4, 3, 3))],
    "aten::conv_transpose2d.input": [(IMAGE, floats(4, 2, 3, 3), floats(2))],
    "aten::conv_transpose3d.input": [(floats(2, 2, 3, 4, 4), floats(2, 3, 2, 2, 2))],
    "aten::_convolution": [
        (IMAGE, floats(5, 4, 1, 1), floats(5), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, *[False] * 4)
    ],
    "aten::_convolution.deprecated": [(IMAGE, KERNEL, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, *[False] * 3)],
    "aten::convolution": [(IMAGE, KERNEL, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)],
    "aten::convolution_overrideable": [(IMAGE, KERNEL, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)],
    "aten::_convolution_mode": [(IMAGE, KERNEL, None, [1, 1], "valid", [1, 1], 1)],
    "aten::max_pool1d": [(floats(2, 3, 6), [2])],
    "aten::max_pool2d": [(IMAGE, [2, 2])],
    "aten::max_pool3d": [(floats(2, 2, 3, 4, 4), [2, 2, 2])],
    "aten::avg_pool1d": [(floats(2, 3, 6), [2])],
    "aten::avg_pool2d": [(IMAGE, [3, 3], [1, 1], [1, 1])],
    "aten::avg_pool3d": [(floats(2, 2, 3, 4, 4), [2, 2, 2])],
    "aten::adaptive_avg_pool1d": [(floats(2, 3, 6), [4])],
    "aten::adaptive_avg_pool2d": [(IMAGE, [4, 4])],
    "aten::_adaptive_avg_pool2d": [(IMAGE, [4, 4])],
    "aten::adaptive_avg_pool3d": [(floats(2, 2, 3, 4, 4), [2, 2, 2])],
    "aten::_adaptive_avg_pool3d": [(floats(2, 2, 3, 4, 4), [2, 2, 2])],
    "aten::pad": [(A, [1, 2]), (IMAGE, [1, 1, 2, 2], "reflect"), (A, [-1, 2], "constant", 3.0)],
    "aten::_pad_enum": [(IMAGE, [1, 1, 2, 2], 2)],
    "aten::_pad_circular": [(IMAGE, [1, 1, 2, 2])],
    "aten::constant_pad_nd": [(A, [1, 2, 0, 1], 2.0)],
    "aten::dropout": [(A, 0.5, False)],
    "aten::feature_dropout": [(A, 0.5, False)],
    "aten::alpha_dropout": [(A, 0.5, False)],
    "aten::feature_alpha_dropout": [(A, 0.5, False)],
    "aten::glu": [(floats(3, 6),), (floats(4, 3), 0)],
    "aten::nan_to_num": [(np.array([[1, np.nan], [np.inf, 2]], np.float32),)],
    "aten::nextafter": [(A, V)],
    "aten::scaled_dot_product_attention": [(X3, X3, X3), (X3, X3, X3, floats(4, 4)), (X3, X3, X3, floats(2, 4, 4))],
    "aten::isin.Tensor_Tensor": [(whole(4, 5), whole(3))],
    "aten::isin.Tensor_Scalar": [(whole(4, 5), 1)],
}  # fmt: skip
for _name in ("var", "std", "var_mean", "std_mean"):
    SAMPLES[f"aten::{_name}"] = [(A,)]
    SAMPLES[f"aten::{_name}.dim"] = [(A, [1])]
    SAMPLES[f"aten::{_name}.correction"] = [(A, [0], 2, True)]
for _name in ("clamp", "clip"):
    SAMPLES[f"aten::{_name}"] = [(A, 0.2, 0.6), (A, None, 0.5), (whole(4, 5), 1)]
    SAMPLES[f"aten::{_name}.Tensor"] = [(A, V, A)]
for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
    SAMPLES[f"aten::{_name}"] = [(A, A[::-1].copy(), 0)]
for _mode, _kind in (("reflection", 1), ("replication", 1)):
    for _rank in (1, 2, 3):
        SAMPLES[f"aten::{_mode}_pad{_rank}d"] = [(floats(2, 3, *(4,) * _rank), [1] * (2 * _rank))]


def _upsampling() -> Iterator[tuple[str, tuple[Any, ...]]]:
    for op in table.registered():
        if op.into is None or "upsample" not in op.name or op.name.startswith("aten::__") or op.form != "functional":
            continue
        names = [a.name for a in op.schema.arguments]
        rank = int(op.name.rpartition("d")[0][-1])
        x = floats(2, 3, *(4,) * rank)
        args = [{"output_size": [6] * rank, "align_corners": False}.get(n) for n in names[1:]]
        yield op.full_name, (x, *args)


for _name, _args in _upsampling():
    SAMPLES[_name] = [_args]

# What is left unset has no value to compare.
UNSET = {"aten::empty_like", "aten::new_empty"}


def _pointwise_args(op: Op) -> tuple[Any, ...]:
    """Arguments of a pointwise entry that it takes: floats if it can, else integers, else bools."""
    for dtype in (np.float32, np.int64, np.bool_):
        values: list[Any] = []
        tensors = 0
        for a in op.schema.arguments:
            plain = a.type.element if isinstance(a.type, T.OptionalType) else a.type
            if plain == T.TENSOR:
                masks = a.name in ("condition", "mask")
                single = a.name == "value"
                shape = () if single else (4, 5) if tensors == 0 else (5,)
                x = floats(*shape)
                values.append(x > 0.5 if masks else x if dtype is np.float32 else (10 * x).astype(dtype))
                tensors += 1
            elif a.has_default:
                values.append(a.default)
            elif plain == T.STR:
                values.append("floor")
            else:
                values.append({T.INT: 2, T.FLOAT: 0.5, T.BOOL: False}.get(plain, 2))
        if op.name == "aten::prelu":
            values[1] = floats(5)
        try:
            run(op.full_name, *values)
        except (DTypeError, OpError):
            continue
        return tuple(values)
    raise AssertionError(f"no arguments for {op.full_name}")


ENTRIES = [op for op in table.registered() if op.into is not None and op.form == "functional" and op.name[:4] == "aten"]
SMALL_PART = 3


def cases() -> Iterator[Any]:
    for op in ENTRIES:
        if op.full_name not in UNSET:
            yield pytest.param(op, id=op.full_name)


def samples_of(op: Op) -> list[tuple[Any, ...]]:
    found = SAMPLES.get(op.full_name)
    if found is None:
        assert op.kind == "pointwise", f"add arguments of {op.full_name} to SAMPLES"
        found = [_pointwise_args(op)]
    arguments = op.schema.arguments
    return [(*args, *(a.default for a in arguments[len(args) :])) for args in found]


def copy_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    return [copy_of(v) for v in value] if isinstance(value, list) else value


def spaced(y: Any) -> Any:
    """An array of that shape with other elements between its own."""
    if not y.ndim:
        return np.zeros(3, y.dtype)[1:2].reshape(())
    return np.zeros(tuple(2 * n + 1 for n in y.shape), y.dtype)[tuple(slice(1, None, 2) for _ in y.shape)]


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda y: np.zeros(y.shape, y.dtype),
    "spaced": spaced,
    "transposed": lambda y: np.zeros(y.shape[::-1], y.dtype).T,
}


def filled(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    with np.errstate(all="ignore"):
        return op.out_kernel(np)(out, *args)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(into, "PART", SMALL_PART)
    monkeypatch.setattr(into, "SMALL", -1)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("op", cases())
def test_computes_in_the_given_arrays_what_it_returns(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    original, done = op.into, []
    assert original is not None

    def watched(*args: Any) -> Any:
        done.append(original(*args))
        return done[-1]

    monkeypatch.setattr(op, "into", watched)
    monkeypatch.setattr(op, "_kernels", {})
    for args in samples_of(op):
        want = run(op.full_name, *copy_of(list(args)))
        several = isinstance(want, (tuple, list))
        for layout in LAYOUTS.values():
            out = [layout(y) for y in want] if several else layout(want)
            given = copy_of(list(args))
            assert filled(op, tuple(given), out) is out
            assert_same(out, list(want) if several else want)
            assert_same(given, list(args), 0, "arguments")
    assert None in done, "no sample went through the out-variant"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("op", cases())
def test_out_may_be_an_argument(op: Op) -> None:
    for args in samples_of(op):
        want = run(op.full_name, *copy_of(list(args)))
        if not isinstance(want, np.ndarray):
            continue
        for i, x in enumerate(args):
            if isinstance(x, np.ndarray) and (x.shape, x.dtype) == (want.shape, want.dtype):
                given = copy_of(list(args))
                assert filled(op, tuple(given), given[i]) is given[i]
                assert_same(given[i], want)
                # And a view that is one element behind.
                base = np.zeros(x.size + 1, x.dtype)
                base[1:] = x.reshape(-1)
                given[i] = base[1:].reshape(x.shape)
                out = base[:-1].reshape(x.shape)
                filled(op, tuple(given), out)
                assert_same(out, want)


@pytest.mark.parametrize("op", cases())
def test_refuses_before_it_writes(op: Op) -> None:
    args = samples_of(op)[0]
    want = run(op.full_name, *copy_of(list(args)))
    several = isinstance(want, (tuple, list))
    first = want[0] if several else want
    wrong = [(np.full((*first.shape, 2), 1, first.dtype), ShapeError)]
    lower = {"f": np.int64, "c": np.float32, "i": np.bool_, "u": np.bool_}.get(first.dtype.kind)
    if lower is not None:
        wrong.append((np.full(first.shape, 1, lower), DTypeError))
    for target, error in wrong:
        before = target.copy()
        others = [np.zeros(y.shape, y.dtype) for y in want[1:]] if several else []
        with pytest.raises(error, match=op.name.replace("aten::", "")):
            filled(op, args, [target, *others] if several else target)
        np.testing.assert_array_equal(target, before)
        assert not any(o.any() for o in others)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_types(dtype: Any) -> None:
    def half(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            return value.astype(dtype)
        return [half(v) for v in value] if isinstance(value, list) else value

    seen = 0
    for op in ENTRIES:
        if op.full_name in UNSET:
            continue
        args = tuple(half(v) for v in samples_of(op)[0])
        try:
            want = run(op.full_name, *args)
        except (OpError, DTypeError, InternalError):
            continue
        if isinstance(want, np.ndarray):
            seen += 1
            assert_same(filled(op, args, np.zeros(want.shape, want.dtype)), want, where=op.full_name)
    assert seen > 300


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_without_dims_and_without_elements(shape: tuple[int, ...]) -> None:
    for op in ENTRIES:
        if op.kind != "pointwise" or op.full_name in SAMPLES or op.name == "aten::prelu":
            continue
        args = tuple(np.resize(v, shape) if isinstance(v, np.ndarray) and v.ndim else v for v in samples_of(op)[0])
        want = run(op.full_name, *args)
        assert_same(filled(op, args, np.zeros(want.shape, want.dtype)), want, where=op.full_name)


def test_wider_dtypes_take_results_too() -> None:
    out = np.zeros((4, 3))
    run_out = table.by_full_name("aten::mm.out")
    assert run_out is not None and run_out.has_out_variant
    assert run_out.kernel(np)(A, B, out) is out
    assert_same(out.astype(np.float32), A @ B)


def test_forms_that_write_use_the_out_variant() -> None:
    x = A.copy()
    relu_ = table.by_full_name("aten::relu_")
    assert relu_ is not None and relu_.has_out_variant
    tracemalloc.start()
    large = np.ones((1000, 1000), np.float32)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    assert relu_.kernel(np)(large) is large
    assert tracemalloc.get_traced_memory()[1] - held < large.nbytes // 2
    tracemalloc.stop()
    assert run("aten::add_.Tensor", x, x, 2) is x
    assert_same(x, A * 3)
    with pytest.raises(ShapeError):
        run("aten::add_.Tensor", V.copy(), A, 1)
    values, indices = np.zeros((4, 5), np.float32), np.zeros((4, 5), np.int64)
    got = run("aten::sort.values", A, 1, False, values, indices)
    assert got[0] is values and got[1] is indices
    assert_same((values, indices), run("aten::sort", A, 1, False))


def test_expanded_targets_are_refused() -> None:
    with pytest.raises(ShapeError, match="expanded"):
        filled(table.by_full_name("aten::relu"), (A,), np.broadcast_to(np.zeros(5, np.float32), (4, 5)))  # type: ignore[arg-type]


def test_entries_without_a_variant_copy() -> None:
    op = table.by_full_name("aten::topk")
    assert op is not None and not op.has_out_variant
    out = [np.zeros((4, 2), np.float32), np.zeros((4, 2), np.int64)]
    assert filled(op, (A, 2, 1, True, True), out) is out
    assert_same(tuple(out), run("aten::topk", A, 2, 1, True, True))
    with pytest.raises(InternalError):
        table.by_full_name("aten::item").out_kernel(np)  # type: ignore[union-attr]


# What PyTorch's static runtime computes in given arrays.
UPSTREAM = """
_add_relu _addmm_activation _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _log_softmax
_log_softmax_backward_data _logcumsumexp _softmax _softmax_backward_data abs absolute acos acosh
adaptive_max_pool2d_backward adaptive_max_pool3d_backward addbmm addcdiv addcmul addmm addmv addr angle arccos
arcsin arcsinh arctan arctan2 arctanh argmax argmin asin asinh atan atan2 atanh baddbmm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm cat ceil cholesky_inverse
cholesky_solve clamp clamp_max clamp_min clip clone complex copysign cos cosh cross cumprod cumsum deg2rad diff
digamma div divide dot elu elu_backward eq erf erfc erfinv exp exp2 expm1 fft_fft fft_hfft fft_ifft fft_ihfft
fft_irfft fft_rfft fix floor fmax fmin frac full full_like gather gcd ge gelu gelu_backward glu gt hardshrink
hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardtanh heaviside histc hypot i0 igamma igammac
index index_add index_copy index_select inner inverse isin isneginf isposinf kron layer_norm lcm ldexp le
leaky_relu leaky_relu_backward lerp lgamma linalg_cond linalg_cross linalg_det linalg_eigvals linalg_inv
linalg_matmul linalg_matrix_power linalg_norm linalg_solve linalg_solve_triangular linalg_tensorinv linear log
log10 log1p log2 log_sigmoid logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor
logit lt masked_select matmul matrix_power max maximum mean min minimum mish mm mse_loss msort mul
multi_margin_loss multilabel_margin_loss multiply mv mvlgamma nan_to_num nanquantile narrow_copy ne neg negative
nextafter nonzero norm nuclear_norm ones ones_like orgqr ormqr outer polar polygamma pow prod quantile rad2deg
reciprocal relu remainder renorm repeat round rsqrt scatter scatter_add scatter_reduce sgn sigmoid
sigmoid_backward sign signbit silu silu_backward sin sinc sinh soft_margin_loss softmax softplus
softplus_backward softshrink softshrink_backward special_digamma special_entr special_erf special_erfc
special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc special_gammaincc
special_gammaln special_i0 special_i0e special_i1 special_i1e special_log1p special_log_ndtr
special_multigammaln special_ndtr special_ndtri special_polygamma special_psi special_round special_sinc
special_xlog1py special_xlogy special_zeta sqrt square stack sub subtract sum take take_along_dim tan tanh
tanh_backward threshold threshold_backward tril triu true_divide trunc vdot where xlogy zeros
"""
UPSTREAM_QUANTISED = """
embedding_bag_4bit_rowwise_offsets embedding_bag_byte_prepack embedding_bag_byte_rowwise_offsets
embedding_bag_byte_unpack linear linear_dynamic_fp16 linear_relu_dynamic_fp16
"""
# Autograd and sparse tensors, for which there are no operators at all.
ABSENT = {
    "aten::_convert_indices_from_coo_to_csr", "aten::_convert_indices_from_csr_to_coo",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward",
}  # fmt: skip


def overloads(name: str) -> list[Op]:
    """Those that make new tensors."""
    found = [op for op in table.by_name(name) if op.form == "functional" and op.kind != "prim"]
    return [
        op for op in found if any(r.type == T.TENSOR for r in op.schema.returns) and not op.overload.endswith("out")
    ]


@pytest.mark.parametrize("name", [f"aten::{n}" for n in UPSTREAM.split()])
def test_every_operator_of_static_runtime_has_a_variant_or_a_reason(name: str) -> None:
    found = overloads(name)
    assert bool(found) == (name not in ABSENT), f"{name} is no operator of the table, or has become one"
    without = [op.full_name for op in found if not op.has_out_variant]
    if name in COPIED:
        # A reason that has gone out of date is taken off the list.
        assert len(without) == len(found) and COPIED[name]
    elif found:
        assert any(op.has_out_variant for op in found), f"{name} has neither an out-variant nor a reason"


def test_reasons_are_for_operators_that_need_one() -> None:
    assert {n.removeprefix("aten::") for n in COPIED} <= set(UPSTREAM.split())


@pytest.mark.parametrize("name", [f"quantized::{n}" for n in UPSTREAM_QUANTISED.split()])
def test_quantised_operators_hold_scales_beside_their_numbers(name: str) -> None:
    # A quantised tensor or packed table is an object of its own, no array that could lie in an arena; and NumPy's
    # products of what is packed are made anew.
    assert not any(op.has_out_variant for op in table.by_name(name))


N = 1 << 20
L = floats(1024, 1024)
LARGE: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::mm", (L, L)),
    ("aten::linear", (L, L, L[0].copy())),
    ("aten::addmm", (L, L, L)),
    ("aten::bmm", (floats(64, 128, 128), floats(64, 128, 128))),
    ("aten::cat", ([L, L], 0)),
    ("aten::stack", ([L, L], 1)),
    ("aten::repeat", (L, [2, 2])),
    ("aten::index_select", (L, 0, whole(1024, high=1024))),
    ("aten::embedding", (L, whole(1024, high=1024))),
    ("aten::add.Tensor", (L, L, 1)),
    ("aten::mul.Scalar", (L, 2.5)),
    ("aten::where.self", (L > 0.5, L, L)),
    ("aten::gelu", (L, "none")),
    ("aten::sigmoid", (L,)),
    ("aten::lerp.Tensor", (L, L, L)),
    ("aten::full", ([N], 2.0)),
    ("aten::arange", (float(N),)),
    ("aten::cumsum", (L, 0)),
    ("aten::softmax.int", (L, 1)),
    ("aten::log_softmax.int", (L, 1)),
    ("aten::layer_norm", (L, [1024], L[0].copy(), L[0].copy())),
    ("aten::batch_norm", (floats(16, 16, 64, 64), *(floats(16),) * 4, False, 0.1, 1e-5, True)),
    ("aten::flip", (L, [0])),
    ("aten::permute_copy", (L, [1, 0])),
    ("aten::scatter.value", (L, 0, whole(1, 1024), 1.0)),
    ("aten::max_pool2d", (floats(16, 16, 128, 128), [2, 2])),
    ("aten::constant_pad_nd", (L, [1, 1], 1.0)),
]


@pytest.mark.parametrize(("name", "args"), LARGE, ids=[name for name, _ in LARGE])
def test_needs_no_memory_of_the_size_of_its_result(name: str, args: tuple[Any, ...]) -> None:
    op = table.by_full_name(name)
    assert op is not None
    args = (*args, *(a.default for a in op.schema.arguments[len(args) :]))
    want = run(name, *args)
    out = np.zeros(want.shape, want.dtype)
    filled(op, args, out)
    tracemalloc.start()
    filled(op, args, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < out.nbytes / 2
    assert_same(out, want)
