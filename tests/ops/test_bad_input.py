"""Input that does not fit, for every family: a sentence that names the operator, what was found and what fits.

Nothing may have been written to any argument when the error comes out.
"""

from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit
from gpujit.ir.values import Device
from gpujit.support.errors import DeviceError, DTypeError, OpError, ShapeError
from tests.ops.check import run
from tests.programs import archive, forward, module

HUGE = 1 << 62
FLOAT, INT64, COMPLEX64 = 6, 4, 9


def f(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def b(*shape: int) -> np.ndarray:
    return np.zeros(shape, bool)


def c(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.complex64)


# Operator, arguments, class of the error, what its text says besides the operator's name.
CASES: list[tuple[str, list[Any], type[OpError], str]] = [
    # elementwise: shapes
    ("aten::add.Tensor", [f(2), f(3), 1], ShapeError, "(2,) and (3,) do not broadcast"),
    ("aten::mul.Tensor", [f(2, 3), f(2)], ShapeError, "(2, 3) and (2,) do not broadcast"),
    ("aten::maximum", [f(4), f(3)], ShapeError, "do not broadcast"),
    ("aten::lerp.Tensor", [f(2), f(2), f(3)], ShapeError, "do not broadcast"),
    ("aten::where.self", [b(2), f(3), f(2)], ShapeError, "(3,)"),
    ("aten::addcmul", [f(2), f(3), f(2), 1], ShapeError, "do not broadcast"),
    ("aten::atan2", [f(2), f(5)], ShapeError, "do not broadcast"),
    ("aten::eq.Tensor", [f(2), f(5)], ShapeError, "do not broadcast"),
    ("aten::add_.Tensor", [f(1), f(3), 1], ShapeError, "(3,)"),
    ("aten::mul_.Tensor", [f(3), f(2, 3)], ShapeError, "(2, 3)"),
    ("aten::add.out", [f(2), f(2), 1, f(3)], ShapeError, "(3,)"),
    # elementwise: dtypes
    ("aten::sub.Tensor", [b(2), b(2), 1], DTypeError, "bool"),
    ("aten::neg", [b(2)], DTypeError, "bool"),
    ("aten::bitwise_and.Tensor", [f(2), f(2)], DTypeError, "float32"),
    ("aten::bitwise_not", [f(2)], DTypeError, "float32"),
    ("aten::lt.Tensor", [c(2), c(2)], DTypeError, "complex64"),
    ("aten::maximum", [c(2), c(2)], DTypeError, "complex64"),
    ("aten::floor", [c(2)], DTypeError, "complex64"),
    ("aten::relu", [c(2)], DTypeError, "complex64"),
    ("aten::gelu", [i(1, 2), "none"], DTypeError, "int64"),
    ("aten::gelu", [f(2), "cubic"], OpError, "'cubic'"),
    ("aten::add_.Tensor", [i(1, 2), f(2), 1], DTypeError, "int64"),
    ("aten::div_.Tensor", [i(1, 2), i(1, 2)], DTypeError, "int64"),
    ("aten::sqrt_", [i(1, 2)], DTypeError, "int64"),
    ("aten::exp.out", [f(2), i(0, 0)], DTypeError, "int64"),
    ("aten::div.Tensor_mode", [f(2), f(2), "round"], OpError, "'round'"),
    ("aten::clamp", [f(2), None, None], OpError, "min"),
    ("aten::floor_divide", [i(1), i(0)], OpError, "zero"),
    ("aten::remainder.Tensor", [i(1), i(0)], OpError, "zero"),
    # reductions
    ("aten::sum.dim_IntList", [f(2, 3), [2], False, None], ShapeError, "-2 to 1"),
    ("aten::sum.dim_IntList", [f(2, 3), [0, 0], False, None], ShapeError, "0"),
    ("aten::mean", [i(1, 2), None], DTypeError, "int64"),
    ("aten::mean.dim", [f(2), [1], False, None], ShapeError, "dim 1"),
    ("aten::max.dim", [f(2), 3, False], ShapeError, "dim 3"),
    ("aten::max", [f(0)], OpError, "no elements"),
    ("aten::amax", [f(0, 2), [0], False], OpError, "0"),
    ("aten::argmax", [f(2), 4, False], ShapeError, "dim 4"),
    ("aten::argmin", [c(2), 0, False], DTypeError, "complex64"),
    ("aten::var.correction", [i(1, 2), [0], 1, False], DTypeError, "int64"),
    ("aten::median", [c(2)], DTypeError, "complex64"),
    ("aten::norm.ScalarOpt_dim", [f(2), 2, [1], False], ShapeError, "dim"),
    ("aten::all.dim", [f(2), 5, False], ShapeError, "dim 5"),
    ("aten::prod.dim_int", [f(2), 2, False, None], ShapeError, "dim 2"),
    ("aten::logsumexp", [f(2), [1], False], ShapeError, "dim 1"),
    ("aten::softmax.int", [f(2), 1, None], ShapeError, "dim 1"),
    ("aten::softmax.int", [f(2), 0, 100], DTypeError, "100"),
    ("aten::log_softmax.int", [i(1, 2), 0, None], DTypeError, "int64"),
    ("aten::_softmax_backward_data", [f(2), f(3), 0, FLOAT], ShapeError, "(3,)"),
    ("aten::cumsum", [f(2), 1, None], ShapeError, "dim 1"),
    ("aten::cumprod", [f(2), -2, None], ShapeError, "dim -2"),
    ("aten::diff", [f(2), -1, -1, None, None], OpError, "-1"),
    ("aten::quantile.scalar", [f(2), 1.5, None, False, "linear"], OpError, "1.5"),
    ("aten::trapezoid.x", [f(2), f(3), -1], ShapeError, "3"),
    ("aten::histc", [f(2), 0, 0, 1], OpError, "0"),
    ("aten::histogram.bin_ct", [f(2), -3, None, None, False], ShapeError, "-3"),
    ("aten::bincount", [i(1, -1), None, 0], OpError, "-1"),
    ("aten::segment_reduce", [f(3), "sum", i(1, 1), None, None, 0, False, None], ShapeError, "sum to 3"),
    # normalisation
    ("aten::layer_norm", [f(2, 3), [4], None, None, 1e-5, True], ShapeError, "4"),
    ("aten::batch_norm", [f(2, 3), f(2), None, f(3), f(3), False, 0.1, 1e-5, True], ShapeError, "3"),
    ("aten::group_norm", [f(2, 3), 2, None, None, 1e-5, True], ShapeError, "2"),
    ("aten::instance_norm", [f(3), None, None, None, None, True, 0.1, 1e-5, True], ShapeError, "3"),
    # shapes of views
    ("aten::view", [f(2, 3), [4]], ShapeError, "6 elements"),
    ("aten::view", [f(2, 3), [-1, -1]], ShapeError, "[-1, -1]"),
    ("aten::view", [f(2, 3), [-5, 2]], ShapeError, "negative"),
    ("aten::view", [f(2, 3).T, [6]], ShapeError, "call reshape"),
    ("aten::reshape", [f(2, 3), [4, -1]], ShapeError, "6 elements"),
    ("aten::reshape", [f(2, 3), [HUGE, HUGE]], ShapeError, "6 elements"),
    ("aten::permute", [f(2, 3), [0, 0]], ShapeError, "[0, 0]"),
    ("aten::permute", [f(2, 3), [0]], ShapeError, "[0]"),
    ("aten::transpose.int", [f(2), 0, 1], ShapeError, "dim 1"),
    ("aten::t", [f(1, 2, 3)], ShapeError, "at most 2 dims"),
    ("aten::expand", [f(2), [3], False], ShapeError, "only dims of size 1"),
    ("aten::expand", [f(2, 3), [3], False], ShapeError, "[3]"),
    ("aten::squeeze.dim", [f(2), 3], ShapeError, "dim 3"),
    ("aten::unsqueeze", [f(2), 3], ShapeError, "dim 3"),
    ("aten::flatten.using_ints", [f(2, 3), 1, 0], ShapeError, "1"),
    ("aten::unflatten.int", [f(6), 0, [4, 2]], ShapeError, "[4, 2]"),
    ("aten::select.int", [f(2), 0, 2], ShapeError, "index 2"),
    ("aten::select.int", [f(2), 1, 0], ShapeError, "dim 1"),
    ("aten::slice.Tensor", [f(2), 0, 0, 2, 0], OpError, "step"),
    ("aten::narrow", [f(3), 0, 2, 2], ShapeError, "2"),
    ("aten::diagonal", [f(2, 2), 0, 0, 0], ShapeError, "0"),
    ("aten::unfold", [f(3), 0, 4, 1], ShapeError, "4"),
    ("aten::as_strided", [f(4), [5], [1], 0], ShapeError, "4"),
    ("aten::as_strided", [f(4), [2], [1, 1], 0], ShapeError, "[1, 1]"),
    ("aten::movedim.int", [f(2), 0, 2], ShapeError, "dim 2"),
    # joining, splitting, repeating, padding
    ("aten::cat", [[f(2, 3), f(2, 4)], 0], ShapeError, "[2, 4]"),
    ("aten::cat", [[], 0], OpError, "empty"),
    ("aten::stack", [[f(2), f(3)], 0], ShapeError, "[3]"),
    ("aten::split.Tensor", [f(4), -1, 0], ShapeError, "-1"),
    ("aten::split_with_sizes", [f(4), [1, 1], 0], ShapeError, "add up to 4"),
    ("aten::chunk", [f(4), 0, 0], OpError, "0"),
    ("aten::tensor_split.sections", [f(4), 0, 0], OpError, "0"),
    ("aten::repeat", [f(2, 3), [2]], ShapeError, "2 dims"),
    ("aten::repeat", [f(2), [-1]], ShapeError, "negative"),
    ("aten::repeat_interleave.self_Tensor", [f(2), i(1, -1), 0, None], ShapeError, "-1"),
    ("aten::repeat_interleave.self_Tensor", [f(2), i(1, 2, 3), 0, None], ShapeError, "3 repeats"),
    ("aten::constant_pad_nd", [f(2), [1], 0], ShapeError, "1 numbers"),
    ("aten::constant_pad_nd", [f(2), [-2, -1], 0], ShapeError, "-1"),
    ("aten::reflection_pad1d", [f(1, 3), [3, 0]], ShapeError, "too large"),
    ("aten::roll", [f(2), [1, 2], [0]], ShapeError, "[1, 2]"),
    ("aten::flip", [f(2), [1]], ShapeError, "dim 1"),
    ("aten::rot90", [f(2), 1, [0, 1]], ShapeError, "2"),
    ("aten::pixel_shuffle", [f(1, 3, 2, 2), 2], ShapeError, "3"),
    ("aten::meshgrid.indexing", [[f(2), f(2, 2)], "ij"], ShapeError, "[2, 2]"),
    ("aten::cartesian_prod", [[]], ShapeError, "at least one"),
    ("aten::combinations", [f(70), 65, False], OpError, "65"),
    # indices
    ("aten::index_select", [f(3), 0, i(3)], ShapeError, "3"),
    ("aten::index_select", [f(3), 0, f(1)], DTypeError, "float32"),
    ("aten::gather", [f(2, 2), 0, i([2, 0]), False], ShapeError, "2"),
    ("aten::gather", [f(2, 2), 0, i(0), False], ShapeError, "1"),
    ("aten::take", [f(3), i(5)], ShapeError, "5"),
    ("aten::index.Tensor", [f(3), [i(3)]], ShapeError, "3"),
    ("aten::index.Tensor", [f(3), [i(0), i(0)]], ShapeError, "2"),
    ("aten::index.Tensor", [f(3), [b(2)]], ShapeError, "2"),
    ("aten::index_put_", [f(3), [i(0, 3)], f(2), False], ShapeError, "3"),
    ("aten::index_put_", [f(3), [i(0, 1)], f(3), False], ShapeError, "3"),
    ("aten::index_put_", [f(3), [i(0)], i(1), False], DTypeError, "int64"),
    ("aten::index_add_", [f(3), 0, i(0, 7), f(2), 1], ShapeError, "7"),
    ("aten::index_copy_", [f(3), 0, i(0, -4), f(2)], ShapeError, "-4"),
    ("aten::index_fill_.int_Scalar", [f(3), 0, i(1, 9), 1.0], ShapeError, "9"),
    ("aten::scatter_.src", [f(3), 0, i(0, 3), f(2)], ShapeError, "3"),
    ("aten::scatter_add_", [f(3), 0, i(0, 1, 2, 0), f(3)], ShapeError, "4"),
    ("aten::scatter_reduce_.two", [f(3), 0, i(0), f(1), "median", True], OpError, "median"),
    ("aten::masked_fill_.Scalar", [f(3), b(2), 0.0], ShapeError, "2"),
    ("aten::masked_fill_.Scalar", [f(3), f(3), 0.0], DTypeError, "float32"),
    ("aten::masked_scatter_", [f(3), np.ones(3, bool), f(2)], OpError, "2"),
    ("aten::masked_select", [f(3), f(3)], DTypeError, "float32"),
    ("aten::embedding", [f(3, 2), i(0, 3), -1, False, False], ShapeError, "3"),
    ("aten::embedding", [f(3, 2), f(2), -1, False, False], DTypeError, "float32"),
    ("aten::one_hot", [i(0, 3), 3], OpError, "3"),
    ("aten::topk", [f(3), 4, -1, True, True], ShapeError, "k 4"),
    ("aten::sort", [c(3), -1, False], DTypeError, "complex64"),
    ("aten::sort", [f(3), 1, False], ShapeError, "dim 1"),
    ("aten::kthvalue", [f(3), 4, -1, False], OpError, "4"),
    ("aten::searchsorted.Tensor", [f(2, 3), f(3, 3), False, False, None, None], ShapeError, "3"),
    ("aten::copy_", [f(3), f(2), False], ShapeError, "[2]"),
    # matrices
    ("aten::mm", [f(2, 3), f(2, 3)], ShapeError, "(2, 3) and (2, 3)"),
    ("aten::mm", [f(2, 3), f(3)], ShapeError, "(3,)"),
    ("aten::matmul", [f(2, 3), f(4)], ShapeError, "(4,)"),
    ("aten::matmul", [f(), f(4)], ShapeError, "()"),
    ("aten::matmul", [f(2, 2), i([1, 2], [3, 4])], DTypeError, "int64"),
    ("aten::bmm", [f(2, 3, 4), f(3, 4, 3)], ShapeError, "(3, 4, 3)"),
    ("aten::addmm", [f(5), f(2, 3), f(3, 2), 1, 1], ShapeError, "5"),
    ("aten::linear", [f(2, 3), f(4, 2), None], ShapeError, "(4, 2)"),
    ("aten::dot", [f(2), f(3)], ShapeError, "3"),
    ("aten::einsum", ["ij,jk->ik", [f(2, 3), f(2, 3)], None], ShapeError, "j"),
    ("aten::einsum", ["ij->k", [f(2, 3)], None], OpError, "k"),
    ("aten::tensordot", [f(2, 3), f(2, 3), [0], [1]], ShapeError, "3"),
    ("aten::bilinear", [f(2), f(), f(1, 2, 2), None], ShapeError, "()"),
    ("aten::cross", [f(2), f(2), -1], ShapeError, "3"),
    ("aten::linalg_solve", [f(2, 3), f(2), True], ShapeError, "(2, 3)"),
    ("aten::linalg_inv", [np.zeros((2, 2), np.float32)], OpError, "singular"),
    ("aten::linalg_inv", [i([1, 2], [3, 4])], DTypeError, "int64"),
    ("aten::linalg_cholesky", [np.zeros((2, 2), np.float32), False], OpError, "positive"),
    ("aten::ormqr", [f(3, 3), f(4), f(3, 3), True, False], ShapeError, "(4,)"),
    ("aten::trace", [f(2)], ShapeError, "(2,)"),
    ("aten::tril", [f(2), 0], ShapeError, "2"),
    # convolution, pooling, resampling
    ("aten::conv2d", [f(1, 3, 4, 4), f(8, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], 1], ShapeError, "3 channels"),
    ("aten::conv2d", [f(1, 3, 2, 2), f(8, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], 1], ShapeError, "[2, 2]"),
    ("aten::conv2d", [f(1, 3, 4, 4), f(8, 3, 3, 3), None, [0, 1], [0, 0], [1, 1], 1], ShapeError, "stride"),
    ("aten::conv2d", [f(1, 3, 4, 4), f(8, 3, 3, 3), f(3), [1, 1], [0, 0], [1, 1], 1], ShapeError, "bias"),
    ("aten::conv2d", [f(1, 3, 4, 4), f(8, 3, 3, 3), None, [1, 1], [-1, 0], [1, 1], 1], ShapeError, "padding"),
    ("aten::conv1d", [f(2, 3), f(2, 2, 2, 2), None, [1], [0], [1], 1], ShapeError, "[2, 2, 2, 2]"),
    ("aten::conv2d", [f(1, 1, 4, 4), i([[[1]]]), None, [1, 1], [0, 0], [1, 1], 1], DTypeError, "int64"),
    ("aten::conv_transpose1d", [f(1, 2, 4), f(3, 1, 2), None, [1], [0], [0], 1, [1]], ShapeError, "2"),
    ("aten::max_pool2d", [f(1, 2, 2), [3, 3], [], [0, 0], [1, 1], False], ShapeError, "do not fit"),
    ("aten::max_pool2d", [f(1, 4, 4), [2, 2], [], [2, 2], [1, 1], False], ShapeError, "half"),
    ("aten::max_pool2d", [f(4, 4), [2, 2], [], [0, 0], [1, 1], False], ShapeError, "2 dims"),
    ("aten::avg_pool2d", [f(1, 4, 4), [2, 2, 2], [], [0, 0], False, True, None], ShapeError, "[2, 2, 2]"),
    ("aten::adaptive_avg_pool2d", [f(1, 4, 4), []], ShapeError, "output_size"),
    ("aten::adaptive_avg_pool2d", [f(1, 4, 4), [-1, 2]], ShapeError, "[-1, 2]"),
    ("aten::upsample_nearest2d", [f(1, 1, 2, 2), [0, 2], None, None], ShapeError, "[0, 2]"),
    ("aten::upsample_bilinear2d", [i([[[1]]]), [2, 2], False, None, None], OpError, "4"),
    ("aten::grid_sampler_2d", [f(1, 1, 2, 2), f(1, 2, 2, 3), 0, 0, False], ShapeError, "3"),
    ("aten::im2col", [f(1, 1, 2, 2), [3, 3], [1, 1], [0, 0], [1, 1]], ShapeError, "do not fit"),
    ("aten::max_unpool2d", [f(1, 1, 1), i([[9]]), [2, 2]], ShapeError, "9"),
    ("aten::max_pool2d_with_indices_backward",
     [f(1, 1, 1), f(1, 2, 2), [2, 2], [2, 2], [0, 0], [1, 1], False, i([[4]])], ShapeError, "0 to 3"),
    # losses
    ("aten::mse_loss", [f(2), f(3), 1], ShapeError, "(3,)"),
    ("aten::nll_loss_nd", [f(2, 3), i(0, 3), None, 1, -100], OpError, "3"),
    ("aten::cross_entropy_loss", [f(2, 3), i(0), None, 1, -100, 0.0], ShapeError, "1"),
    ("aten::multi_margin_loss", [f(2, 3), f(2), 1, 1, None, 1], DTypeError, "float32"),
    ("aten::binary_cross_entropy", [f(2), f(3), None, 1], ShapeError, "(3,)"),
    ("aten::ctc_loss.IntList", [f(2, 1, 3), i([1]), [5], [1], 0, 1, False], OpError, "5"),
    # attention, recurrent layers, spectra
    ("aten::scaled_dot_product_attention", [f(1, 2, 4), f(1, 2, 3), f(1, 2, 4), None, 0.0, False, None, False],
     ShapeError, "3"),
    ("aten::lstm.input", [f(2, 1, 3), [f(1, 1, 4)] * 2, [f(16, 2), f(16, 4)], False, 1, 0.0, False, False, False],
     ShapeError, "3"),
    ("aten::fft_fft", [f(4), 0, -1, None], OpError, "0"),
    ("aten::fft_fft", [f(4), None, 2, None], ShapeError, "dim 2"),
    ("aten::fft_rfft", [c(4), None, -1, None], DTypeError, "complex64"),
    ("aten::fft_fft", [f(4), None, -1, "unit"], OpError, "unit"),
    ("aten::stft", [f(4), 8, None, None, None, False, True, True, None], OpError, "8"),
    # creation
    ("aten::zeros", [[-1], None, None, None, None], ShapeError, "[-1]"),
    ("aten::zeros", [[2], 31, None, None, None], DTypeError, "31"),
    ("aten::empty.memory_format", [[2], None, None, Device("cuda", 0), None, None], DeviceError, "cuda:0"),
    ("aten::arange.start_step", [0, 5, 0, None, None, None, None], OpError, "zero"),
    ("aten::arange", [-1, None, None, None, None], OpError, "-1"),
    ("aten::linspace", [0, 1, -1, None, None, None, None], OpError, "-1"),
    ("aten::eye", [-1, None, None, None, None], OpError, "-1"),
    ("aten::full", [[-2], 1, None, None, None, None], ShapeError, "[-2]"),
    ("aten::randint", [0, [2], None, None, None, None], OpError, "0"),
    ("aten::randperm", [-1, None, None, None, None], OpError, "-1"),
    ("aten::multinomial", [f(2), 3, False, None], OpError, "3"),
    ("aten::dropout", [f(2), 1.5, True], OpError, "1.5"),
    ("aten::to.dtype", [f(2), 99, False, False, None], DTypeError, "99"),
    ("aten::item", [f(2)], OpError, "2"),
    # too large for memory
    ("aten::zeros", [[HUGE], None, None, None, None], OpError, str(HUGE)),
    ("aten::empty.memory_format", [[HUGE, HUGE], None, None, None, None, None], OpError, str(HUGE)),
    ("aten::ones", [[1 << 50], None, None, None, None], OpError, str(1 << 50)),
    ("aten::full", [[1 << 50], 1.0, None, None, None, None], OpError, str(1 << 50)),
    ("aten::repeat", [f(2), [1 << 50]], OpError, str(1 << 50)),
    ("aten::tile", [f(2), [HUGE]], OpError, str(HUGE)),
    ("aten::repeat_interleave.self_int", [f(2), HUGE, None, None], OpError, "elements"),
    ("aten::repeat_interleave.self_int", [f(2), 1 << 50, None, None], OpError, str(1 << 50)),
    ("aten::repeat_interleave.Tensor", [i(HUGE, HUGE), None], OpError, "elements"),
    ("aten::arange", [1 << 50, None, None, None, None], OpError, str(1 << 50)),
    ("aten::linspace", [0, 1, 1 << 50, None, None, None, None], OpError, str(1 << 50)),
    ("aten::eye", [1 << 30, None, None, None, None], OpError, str(1 << 30)),
    ("aten::rand", [[1 << 50], None, None, None, None], OpError, str(1 << 50)),
    ("aten::constant_pad_nd", [f(2), [0, HUGE], 0], OpError, str(HUGE)),
    ("aten::replication_pad1d", [f(1, 2), [0, HUGE]], OpError, "too many"),
    ("aten::one_hot", [i(1 << 50), -1], OpError, "memory"),
    ("aten::upsample_nearest1d", [f(1, 1, 2), [1 << 50], None], OpError, str(1 << 50)),
    ("aten::tril_indices", [1 << 40, 1 << 40, 0, None, None, None, None], OpError, str(1 << 40)),
    ("aten::mul.left_t", [[1], HUGE], OpError, str(HUGE)),
    ("prim::rangelist", [HUGE], OpError, str(HUGE)),
    ("aten::zfill", ["1", HUGE], OpError, str(HUGE)),
]  # fmt: skip


def _same(a: Any, z: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.shape == z.shape and a.strides == z.strides and a.tobytes() == z.tobytes()
    return len(a) == len(z) and all(map(_same, a, z)) if isinstance(a, list) else a == z


@pytest.mark.parametrize(("name", "args", "error", "words"), CASES, ids=[f"{k}-{n}" for k, (n, *_) in enumerate(CASES)])
def test_input_that_does_not_fit(name: str, args: list[Any], error: type[OpError], words: str) -> None:
    args = copy.deepcopy(args)
    before = copy.deepcopy(args)
    with pytest.raises(error) as caught:
        run(name, *args)
    text = str(caught.value)
    assert "::" in text and words in text, text
    assert "Error" not in text.split("(")[0], text
    assert len(text.split()) >= 5, text
    assert all(map(_same, args, before))


def test_an_expanded_tensor_is_not_written_to() -> None:
    one = f(1)
    for name, args in (("aten::add_.Tensor", [f(3), 1]), ("aten::copy_", [f(3), False]), ("aten::zero_", [])):
        with pytest.raises(ShapeError, match="clone it first"):
            run(name, np.broadcast_to(one, (3,)), *args)
    assert one.tolist() == [1]


def test_nothing_is_written_when_one_of_several_outputs_does_not_fit() -> None:
    values, indices = np.zeros(2, np.float32), np.zeros(3, np.int64)
    calls: list[tuple[str, list[Any]]] = [
        ("aten::max.dim_max", [f(2, 3), 1, False]),
        ("aten::topk.values", [f(2), 2, -1, True, True]),
    ]
    for name, args in calls:
        with pytest.raises(ShapeError, match=r"\(3,\)|\[3\]"):
            run(name, *args, values, indices)
    assert not values.any() and not indices.any()


def test_an_index_out_of_range_leaves_the_target_as_it_was() -> None:
    """The bad index comes last: those before it must not have been stored."""
    index = i(0, 1, 7)
    for name, args in (
        ("aten::index_put_", [[index], f(3), False]),
        ("aten::index_put_", [[index], f(3), True]),
        ("aten::index_add_", [0, index, f(3), 1]),
        ("aten::index_copy_", [0, index, f(3)]),
        ("aten::index_fill_.int_Scalar", [0, index, 9.0]),
        ("aten::scatter_.src", [0, index, f(3)]),
        ("aten::scatter_add_", [0, index, f(3)]),
        ("aten::put_", [index, f(3), False]),
    ):
        target = np.zeros(3, np.float32)
        with pytest.raises(ShapeError, match="7"):
            run(name, target, *args)
        assert not target.any(), name


def test_half_types_and_numbers_are_described_as_they_were_given() -> None:
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\)"):
        run("aten::add.Tensor", f(2).astype(ml_dtypes.bfloat16), f(3).astype(ml_dtypes.bfloat16), 1)
    with pytest.raises(OpError, match=r"self bfloat16\[2\], repeats \[1125899906842624\]"):
        run("aten::repeat", f(2).astype(ml_dtypes.bfloat16), [1 << 50])


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("return torch.add(x, torch.ones([3]))", ShapeError, "do not broadcast"),
        ("return torch.add_(x, torch.ones([3]))", ShapeError, "aten::add_"),
        ("return torch.narrow_copy(x, 0, 1, 5)", ShapeError, "aten::narrow_copy"),
        ("return torch.zeros([4611686018427387904])", OpError, "4611686018427387904"),
        ("return torch.select(x, 0, 2)", ShapeError, "index 2"),
        ("return torch.conv1d(x, x)", ShapeError, "aten::conv1d"),
        ("return torch.tensor(torch.mul([1], 4611686018427387904))", OpError, "4611686018427387904"),
    ],
)
def test_the_models_line_is_shown(body: str, error: type[OpError], words: str) -> None:
    model = gpujit.load(archive(module(forward("x: Tensor", body))))
    x = f(2)
    with pytest.raises(error) as caught:
        model(x)
    text = str(caught.value)
    assert words in text.split("\n")[0]
    assert body in text and "<--- HERE" in text
    assert x.tolist() == [1, 2]


def test_memory_errors_have_a_code_of_their_own() -> None:
    with pytest.raises(OpError) as caught:
        run("aten::ones", [1 << 50])
    assert caught.value.code == "memory"
