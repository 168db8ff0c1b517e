"""Factories, windows, fills, copies and triangles: values, dtypes, strides and refusals."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.memory.create  # declares the entries
import gpujit.ops.families.memory.fills
import gpujit.ops.families.memory.grids
import gpujit.ops.families.memory.ranges
import gpujit.ops.families.signal.windows  # noqa: F401
from gpujit.ir.dtypes import BY_CODE
from gpujit.ir.values import Device
from gpujit.support.errors import DeviceError, DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, from_torch, run, to_torch

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CL = np.zeros((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2)  # channels_last
I64, F32 = "int64", "float32"

# name, arguments, dtype and values that must come back
CASES: list[tuple[str, tuple[Any, ...], str, Any]] = [
    ("aten::zeros", ([2, 2],), F32, [[0, 0], [0, 0]]),
    ("aten::zeros", ([],), F32, 0),
    ("aten::ones", ([2], 4), I64, [1, 1]),
    ("aten::full", ([2], 3), I64, [3, 3]),
    ("aten::full", ([2], 1.5), F32, [1.5, 1.5]),
    ("aten::full", ([1], True), "bool", [True]),
    ("aten::full", ([1], 1j), "complex64", [1j]),
    ("aten::full", ([1], -1, 0), "uint8", [255]),
    ("aten::full", ([1], 2.9, 4), I64, [2]),
    ("aten::scalar_tensor", (3,), F32, 3),
    ("aten::zeros_like", (X,), F32, [[0] * 3] * 2),
    ("aten::ones_like", (X, 4), I64, [[1] * 3] * 2),
    ("aten::full_like", (X, 7), F32, [[7] * 3] * 2),
    ("aten::new_zeros", (X.astype(np.int32), [2]), "int32", [0, 0]),
    ("aten::new_ones", (X, [2], 11), "bool", [True, True]),
    ("aten::new_full", (X, [2], 4), F32, [4, 4]),
    ("aten::arange", (3,), I64, [0, 1, 2]),
    ("aten::arange", (2.5,), F32, [0, 1, 2]),
    ("aten::arange.start", (1, 4), I64, [1, 2, 3]),
    ("aten::arange.start_step", (5, 0, -2), I64, [5, 3, 1]),
    ("aten::arange.start_step", (0, 1, 0.25), F32, [0, 0.25, 0.5, 0.75]),
    ("aten::arange.start_step", (1, 1, 1), I64, []),
    ("aten::range.step", (1, 7, 3), F32, [1, 4, 7]),
    ("aten::linspace", (0, 1, 5), F32, [0, 0.25, 0.5, 0.75, 1]),
    ("aten::linspace", (3, 4, 1), F32, [3]),
    ("aten::linspace", (0, 1, 0), F32, []),
    ("aten::linspace", (0, 10, 4, 4), I64, [0, 3, 6, 10]),
    ("aten::linspace.Tensor_Scalar", (np.array(2.0), 4, 2), F32, [2, 4]),
    ("aten::logspace", (0, 2, 3), F32, [1, 10, 100]),
    ("aten::logspace", (0, 3, 4, 2.0), F32, [1, 2, 4, 8]),
    ("aten::eye", (2,), F32, [[1, 0], [0, 1]]),
    ("aten::eye.m", (3, 2, 4), I64, [[1, 0], [0, 1], [0, 0]]),
    ("aten::tensor.int", (3,), I64, 3),
    ("aten::tensor.bool", (True,), "bool", True),
    ("aten::tensor.float", (0.5, 7), "float64", 0.5),
    ("aten::tensor.complex", (1 + 1j,), "complex64", 1 + 1j),
    ("aten::tensor", ([[1, 2], [3, 4]],), I64, [[1, 2], [3, 4]]),
    ("aten::tensor", ([1.5, 2.5],), F32, [1.5, 2.5]),
    ("aten::tensor", ([True, False],), "bool", [True, False]),
    ("aten::tensor", ([1, 2], 6), F32, [1, 2]),
    ("aten::as_tensor.list", ([1, 2],), I64, [1, 2]),
    ("aten::as_tensor.int", (4,), I64, 4),
    ("aten::tril_indices", (2, 3, 0), I64, [[0, 1, 1], [0, 0, 1]]),
    ("aten::triu_indices", (2, 3, 1), I64, [[0, 0, 1], [1, 2, 2]]),
    ("aten::cartesian_prod", ([np.array([1, 2]), np.array([3, 4])],), I64, [[1, 3], [1, 4], [2, 3], [2, 4]]),
    ("aten::combinations", (np.array([1, 2, 3]),), I64, [[1, 2], [1, 3], [2, 3]]),
    ("aten::combinations", (np.array([1, 2]), 2, True), I64, [[1, 1], [1, 2], [2, 2]]),
    ("aten::vander", (np.array([2, 3]),), I64, [[2, 1], [3, 1]]),
    ("aten::block_diag", ([np.ones((1, 2), np.float32), np.array(5.0, np.float32)],), F32, [[1, 1, 0], [0, 0, 5]]),
    ("aten::one_hot", (np.array([1, 0]), 3), I64, [[0, 1, 0], [1, 0, 0]]),
    ("aten::one_hot", (np.array(2),), I64, [0, 0, 1]),
    ("aten::hann_window", (4,), F32, [0, 0.5, 1, 0.5]),
    ("aten::hann_window.periodic", (3, False), F32, [0, 1, 0]),
    ("aten::hamming_window.periodic_alpha_beta", (2, True, 0.5, 0.25), F32, [0.25, 0.75]),
    ("aten::bartlett_window", (4,), F32, [0, 0.5, 1, 0.5]),
    ("aten::fill.Scalar", (X, 2), F32, [[2] * 3] * 2),
    ("aten::fill.Tensor", (X, np.array(3)), F32, [[3] * 3] * 2),
    ("aten::zero", (X,), F32, [[0] * 3] * 2),
    ("aten::copy", (np.zeros(2, np.int32), np.array([1.7, -1.7])), "int32", [1, -1]),
    ("aten::clone", (X,), F32, [[0, 1, 2], [3, 4, 5]]),
    ("aten::tril", (X,), F32, [[0, 0, 0], [3, 4, 0]]),
    ("aten::triu", (X, 1), F32, [[0, 1, 2], [0, 0, 5]]),
    ("aten::diag", (np.array([1, 2]), 1), I64, [[0, 1, 0], [0, 0, 2], [0, 0, 0]]),
    ("aten::diag", (X,), F32, [0, 4]),
    ("aten::diag_embed", (np.array([[1, 2]]), -1), I64, [[[0, 0, 0], [1, 0, 0], [0, 2, 0]]]),
    ("aten::diagflat", (np.array([[1], [2]]),), I64, [[1, 0], [0, 2]]),
]


@pytest.mark.parametrize(("name", "args", "dtype", "values"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_values_and_dtypes(name: str, args: tuple[Any, ...], dtype: str, values: Any) -> None:
    got = run(name, *args)
    assert type(got) is np.ndarray and str(got.dtype) == dtype
    np.testing.assert_allclose(got, np.array(values, got.dtype).reshape(got.shape), rtol=1e-6, atol=1e-7)
    assert got.shape == np.shape(values)


SIZES = {
    "aten::empty.memory_format": ([2, 3],),
    "aten::empty_strided": ([2, 3], [1, 2]),
    "aten::empty_permuted": ([2, 3, 4], [2, 0, 1]),
    "aten::empty_like": (CL,),
    "aten::new_empty": (X, [4]),
    "aten::new_empty_strided": (X, [2, 2], [3, 1]),
}


@pytest.mark.parametrize("name", SIZES)
def test_unset_tensors_have_the_right_geometry(name: str) -> None:
    torch = pytest.importorskip("torch")
    got = run(name, *SIZES[name])
    base, _, overload = name[6:].partition(".")
    want = getattr(getattr(torch.ops.aten, base), overload or "default")(*[to_torch(a) for a in SIZES[name]])
    assert got.shape == tuple(want.shape) and str(got.dtype) == "float32"
    assert [s // 4 for s in got.strides] == list(want.stride())


TORCH: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::arange.start_step", (-1.5, 3.2, 0.3)),
    ("aten::arange.start_step", (3, -3, -0.7)),
    ("aten::linspace", (-3.3, 7.1, 11)),
    ("aten::logspace", (-1.5, 1.5, 7)),
    ("aten::linspace", (0, 1 + 2j, 4)),
    ("aten::meshgrid", ([np.arange(3), np.arange(2)],)),
    ("aten::meshgrid.indexing", ([np.arange(3), np.arange(2), np.array(7)], "xy")),
    ("aten::combinations", (np.arange(5), 3)),
    ("aten::combinations", (np.arange(4), 1, True)),
    ("aten::vander", (X[0], 4, True)),
    ("aten::block_diag", ([X, np.array([1, 2]), np.array(True)],)),
    ("aten::blackman_window", (7,)),
    ("aten::hamming_window", (7,)),
    ("aten::hann_window", (1,)),
    ("aten::bartlett_window.periodic", (6, False)),
    ("aten::kaiser_window", (9,)),
    ("aten::kaiser_window.beta", (9, False, 3.0)),
    ("aten::tril", (np.arange(24).reshape(2, 3, 4), 1)),
    ("aten::triu", (X.astype(ml_dtypes.bfloat16), -1)),
    ("aten::tril", (np.array([[np.nan, np.inf], [np.nan, -0.0]]),)),
    ("aten::tril_", (np.arange(9.0).reshape(3, 3), -1)),
    ("aten::triu_", (np.arange(24).reshape(2, 4, 3).transpose(0, 2, 1),)),
    ("aten::diag_embed", (np.arange(12).reshape(3, 2, 2), 1, 0, 2)),
    ("aten::diag_embed", (np.empty((2, 0), np.float32), -2, -1, 0)),
    ("aten::diag", (np.arange(6).reshape(2, 3), -1)),
    ("aten::fill_.Scalar", (np.zeros((2, 2), np.int32), 3.7)),
    ("aten::fill_.Tensor", (np.zeros(3, np.uint8), np.array(-1))),
    ("aten::zero_", (np.ones((2, 2), np.float16).T,)),
    ("aten::copy_", (np.zeros((2, 3), np.int64), np.array([[1.9], [-1.9]], np.float32))),
    ("aten::copy_", (np.zeros((2, 3), ml_dtypes.bfloat16), X)),
    ("aten::copy_", (np.zeros((3, 2), np.float32).T, X)),
    ("aten::fill_diagonal_", (np.zeros((5, 2)), 3)),
    ("aten::fill_diagonal_", (np.zeros((7, 2)), 3, True)),
    ("aten::fill_diagonal_", (np.zeros((2, 2, 2)), 3)),
    ("aten::one_hot", (np.array([[0, 2], [1, 1]]),)),
    ("aten::clone", (CL,)),
    ("aten::clone", (X.T, 0)),
    ("aten::clone", (np.ascontiguousarray(CL), 2)),
    ("aten::clone", (np.broadcast_to(X[:, None], (2, 4, 3)),)),
    ("aten::clone", (np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)[::2],)),
    ("aten::zeros_like", (CL,)),
    ("aten::full_like", (X.T, 2.0)),
]


@pytest.mark.parametrize(("name", "args"), TORCH, ids=lambda v: v if isinstance(v, str) else "")
def test_against_torch(name: str, args: tuple[Any, ...]) -> None:
    against_torch(name, *args, strides=name in ("aten::clone", "aten::zeros_like", "aten::full_like"))


@pytest.mark.parametrize("code", [0, 1, 3, 4, 5, 6, 7, 9, 11, 15])
def test_dtypes_of_factories_agree_with_torch(code: int) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, BY_CODE[code].name)
    assert_same(run("aten::zeros", [2], code), from_torch(torch.zeros(2, dtype=dtype)))
    assert_same(run("aten::full", [2], 1, code), from_torch(torch.full((2,), 1, dtype=dtype)))
    assert_same(run("aten::eye", 2, code), from_torch(torch.eye(2, dtype=dtype)))
    assert_same(run("aten::tensor", [[0, 1], [1, 1]], code), from_torch(torch.tensor([[0, 1], [1, 1]], dtype=dtype)))
    if code not in (9, 11):
        assert_same(run("aten::arange", 7, code), from_torch(torch.arange(7, dtype=dtype)))
        assert_same(run("aten::linspace", 1, 9, 5, code), from_torch(torch.linspace(1, 9, 5, dtype=dtype)))


def test_windows_follow_their_formulas() -> None:
    n = np.arange(10) / 10
    np.testing.assert_allclose(
        run("aten::blackman_window", 10), 0.42 - 0.5 * np.cos(2 * np.pi * n) + 0.08 * np.cos(4 * np.pi * n), atol=1e-6
    )
    assert run("aten::hamming_window", 0).shape == (0,)
    assert run("aten::kaiser_window", 1).tolist() == [1.0]


def test_copies_keep_layout_and_own_memory() -> None:
    y = run("aten::clone", CL)
    assert y.strides == CL.strides and not np.shares_memory(y, CL)
    x = np.arange(3)
    assert run("aten::as_tensor", x) is x
    assert run("aten::copy_", x, np.array(7)) is x and x.tolist() == [7, 7, 7]
    assert run("aten::copy_.int", x, 5).tolist() == [5, 5, 5]


def test_out_forms_write_and_return_out() -> None:
    out = np.empty(3, np.float64)
    assert run("aten::zeros.out", [3], out) is out and out.tolist() == [0, 0, 0]
    assert run("aten::arange.start_out", 1, 7, 2, out) is out and out.tolist() == [1, 3, 5]
    assert run("aten::full.out", [3], 2.5, out).tolist() == [2.5] * 3
    assert run("aten::clone.out", np.arange(3.0), None, out).tolist() == [0, 1, 2]
    with pytest.raises(ShapeError, match=r"zeros.out: the result has shape \(2,\)"):
        run("aten::zeros.out", [2], out)


def test_resize_in_place() -> None:
    x = np.arange(6)
    assert run("aten::resize_", x, [2, 3]) is x and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert run("aten::resize_as_", x, np.zeros((3, 2))) is x and x.shape == (3, 2)
    assert run("aten::set_.source_Tensor", x, x) is x
    with pytest.raises(OpError, match="can't take the shape"):
        run("aten::resize_", x, [7])


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::zeros", ([-1],), ShapeError, "aten::zeros: size"),
    ("aten::zeros", ([1], 8), DTypeError, "complex32"),
    ("aten::zeros", ([1], None, 1), OpError, "layout 1"),
    ("aten::zeros", ([1], None, None, Device("cuda")), DeviceError, "cuda is not available"),
    ("aten::full", ([1], 300, 0), OpError, "300 can't be converted to uint8"),
    ("aten::full", ([1], math.nan, 4), OpError, "without overflow"),
    ("aten::full", ([1], 1e300, 6), OpError, "without overflow"),
    ("aten::fill_.Scalar", (np.zeros(1), 1j), OpError, "imaginary"),
    ("aten::arange.start_step", (0, 1, 0), OpError, "step must not be zero"),
    ("aten::arange.start", (3, 1), OpError, "wrong side"),
    ("aten::linspace", (0, 1, -1), ShapeError, "number of steps"),
    ("aten::tensor", ([[1, 2], [3]],), ShapeError, "differ in length"),
    ("aten::one_hot", (np.array([3]), 3), ShapeError, "class 3 is not below num_classes 3"),
    ("aten::one_hot", (np.array([-1]), 3), ShapeError, "class -1 is negative"),
    ("aten::one_hot", (np.array([1.0]), 3), DTypeError, "int64"),
    ("aten::meshgrid", ([X],), ShapeError, "at most one dim"),
    ("aten::meshgrid.indexing", ([np.arange(2)], "yx"), OpError, "'ij' or 'xy'"),
    ("aten::hann_window", (-1,), ShapeError, "length"),
    ("aten::hann_window", (3, 4), DTypeError, "floating"),
    ("aten::tril", (np.arange(3),), ShapeError, "at least 2 dims"),
    ("aten::copy_", (np.zeros(2), np.zeros(3)), ShapeError, "can't be expanded"),
    ("aten::fill_.Scalar", (np.broadcast_to(np.zeros(1), (3,)), 1), ShapeError, "share memory"),
    ("aten::fill_.Tensor", (np.zeros(2), np.zeros(2)), ShapeError, "0-dim"),
    ("aten::eye", (-2,), ShapeError, "aten::eye"),
    ("aten::empty_strided", ([2], [-1]), ShapeError, "don't describe"),
    ("aten::diag_embed", (X, 0, 1, 1), ShapeError, "two different"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(name, *args)
