"""Views share memory and take PyTorch's shapes; conversions return their input itself where nothing changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.memory.casts  # declares the entries
import gpujit.ops.families.memory.parts
import gpujit.ops.families.memory.splits
import gpujit.ops.families.memory.views  # noqa: F401
from gpujit.ir.dtypes import BY_CODE
from gpujit.ir.values import Device
from gpujit.support.errors import DeviceError, DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, from_torch, run, to_torch


def ramp(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


X = ramp(2, 3, 4)
NC = ramp(4, 3, 2).transpose(2, 1, 0)  # not contiguous
ONES = ramp(1, 3, 1)
ZERO_DIM = np.array(5.0, np.float32)
EMPTY = np.empty((0, 3), np.float32)

# name, arguments, and the shape that must come back
VIEWS: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("aten::view", (X, [6, -1]), (6, 4)),
    ("aten::view", (EMPTY, [3, 0]), (3, 0)),
    ("aten::view", (ZERO_DIM, [1, 1]), (1, 1)),
    ("aten::reshape", (X, [4, 6]), (4, 6)),
    ("aten::view_as", (X, ramp(6, 4)), (6, 4)),
    ("aten::reshape_as", (X, ramp(24)), (24,)),
    ("aten::flatten.using_ints", (X, 1, -1), (2, 12)),
    ("aten::flatten.using_ints", (ZERO_DIM, 0, -1), (1,)),
    ("aten::unflatten.int", (X, -1, [2, -1]), (2, 3, 2, 2)),
    ("aten::ravel", (X,), (24,)),
    ("aten::expand", (ONES, [5, -1, 3, 2]), (5, 1, 3, 2)),
    ("aten::expand", (ZERO_DIM, [2, 3]), (2, 3)),
    ("aten::expand", (NC, [2, -1, 4]), (2, 3, 4)),
    ("aten::expand_as", (ONES, X), (2, 3, 4)),
    ("aten::broadcast_to", (ONES, [2, 3, 4]), (2, 3, 4)),
    ("aten::permute", (X, [-1, 0, 1]), (4, 2, 3)),
    ("aten::permute", (ZERO_DIM, []), ()),
    ("aten::transpose.int", (X, 0, -1), (4, 3, 2)),
    ("aten::transpose.int", (ramp(2, 3), 1, 0), (3, 2)),
    ("aten::transpose.int", (ramp(2, 3), 1, 1), (2, 3)),
    ("aten::swapaxes", (X, 0, 1), (3, 2, 4)),
    ("aten::swapdims", (X, 0, 2), (4, 3, 2)),
    ("aten::t", (ramp(2, 3),), (3, 2)),
    ("aten::numpy_T", (X,), (4, 3, 2)),
    ("aten::mT", (X,), (2, 4, 3)),
    ("aten::mH", (X,), (2, 4, 3)),
    ("aten::adjoint", (X,), (2, 4, 3)),
    ("aten::movedim.int", (X, 0, -1), (3, 4, 2)),
    ("aten::movedim.intlist", (X, [0, 1], [2, 0]), (3, 4, 2)),
    ("aten::moveaxis.int", (X, 2, 0), (4, 2, 3)),
    ("aten::unsqueeze", (X, -1), (2, 3, 4, 1)),
    ("aten::unsqueeze", (ZERO_DIM, 0), (1,)),
    ("aten::squeeze", (ONES,), (3,)),
    ("aten::squeeze.dim", (ONES, -1), (1, 3)),
    ("aten::squeeze.dim", (ONES, 1), (1, 3, 1)),
    ("aten::squeeze.dims", (ONES, [0, 1, 2]), (3,)),
    ("aten::select.int", (X, 1, -1), (2, 4)),
    ("aten::select.int", (ramp(3), 0, 1), ()),
    ("aten::slice.Tensor", (X, 2, 1, 9223372036854775807, 2), (2, 3, 2)),
    ("aten::slice.Tensor", (X, -2, -2, None, 1), (2, 2, 4)),
    ("aten::slice.Tensor", (X, 0, 5, 2, 1), (0, 3, 4)),
    ("aten::narrow", (X, 2, -3, 2), (2, 3, 2)),
    ("aten::narrow.Tensor", (X, 2, np.array(1), 2), (2, 3, 2)),
    ("aten::diagonal", (X, 1, 0, 2), (3, 2)),
    ("aten::diagonal", (X, -7, 1, 2), (2, 0)),
    ("aten::unfold", (X, 2, 3, 1), (2, 3, 2, 3)),
    ("aten::unfold", (NC, 0, 2, 1), (1, 3, 4, 2)),
    ("aten::as_strided", (X, [2, 2], [1, 5], None), (2, 2)),
    ("aten::as_strided", (X, [3], [2], 4), (3,)),
    ("aten::real", (X.astype(np.complex64),), (2, 3, 4)),
    ("aten::imag", (X.astype(np.complex64),), (2, 3, 4)),
    ("aten::view_as_real", (NC.astype(np.complex64),), (2, 3, 4, 2)),
    ("aten::view_as_complex", (ramp(3, 2),), (3,)),
    ("aten::atleast_3d", (ramp(3),), (1, 3, 1)),
    ("aten::view.dtype", (ramp(2, 4), 0), (2, 16)),
]


@pytest.mark.parametrize(("name", "args", "shape"), VIEWS, ids=lambda v: v if isinstance(v, str) else "")
def test_views_share_memory_and_agree_with_torch(name: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    y = run(name, *args)
    assert type(y) is np.ndarray and y.shape == shape
    if y.size:
        assert np.shares_memory(y, args[0])
        assert y.flags.writeable
    against_torch(name, *args)


def test_values_of_views_without_torch() -> None:
    assert run("aten::permute", X, [2, 0, 1])[3, 1, 2] == X[1, 2, 3]
    assert run("aten::select.int", X, 1, -1).tolist() == X[:, 2].tolist()
    assert run("aten::unfold", ramp(6), 0, 3, 2).tolist() == [[0, 1, 2], [2, 3, 4]]
    assert run("aten::diagonal", ramp(3, 3), 1, 0, 1).tolist() == [1, 5]
    assert run("aten::as_strided", ramp(9), [2, 2], [3, 1], 4).tolist() == [[4, 5], [7, 8]]
    assert run("aten::expand", ramp(2, 1), [2, 3], False).strides == (4, 0)
    assert run("aten::slice.Tensor", ramp(5), 0, 1, -1, 2).tolist() == [1, 3]
    assert run("aten::unflatten.int", ramp(6), 0, [-1, 2]).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_writing_through_a_view_changes_the_base() -> None:
    x = ramp(3, 3)
    run("aten::diagonal", x, 0, 0, 1)[...] = -1
    run("aten::select.int", x, 0, 0)[2] = 9
    assert x.tolist() == [[-1, 1, 9], [3, -1, 5], [6, 7, -1]]


def test_select_of_a_vector_is_an_array_that_shares_memory() -> None:
    x = ramp(3)
    run("aten::select.int", x, 0, 1)[...] = 7
    assert x.tolist() == [0, 7, 2]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.bool_, np.uint8, np.complex64])
def test_strided_views_of_every_element_size(dtype: Any) -> None:
    x = ramp(2, 3).astype(dtype)
    assert run("aten::expand", x[:, :1], [2, 4], False).shape == (2, 4)
    assert run("aten::unfold", x, 1, 2, 1)[1, 1, 0] == x[1, 1]


SPLITS: list[tuple[str, tuple[Any, ...], list[list[float]]]] = [
    ("aten::split.Tensor", (ramp(5), 2, 0), [[0, 1], [2, 3], [4]]),
    ("aten::split.sizes", (ramp(5), [1, 4], 0), [[0], [1, 2, 3, 4]]),
    ("aten::split", (ramp(5), [5, 0], -1), [[0, 1, 2, 3, 4], []]),
    ("aten::split_with_sizes", (ramp(3), [1, 2], 0), [[0], [1, 2]]),
    ("aten::chunk", (ramp(5), 4, 0), [[0, 1], [2, 3], [4]]),
    ("aten::tensor_split.sections", (ramp(5), 3, 0), [[0, 1], [2, 3], [4]]),
    ("aten::tensor_split.indices", (ramp(5), [1, 3], 0), [[0], [1, 2], [3, 4]]),
    ("aten::tensor_split.tensor_indices_or_sections", (ramp(4), np.array(2), 0), [[0, 1], [2, 3]]),
    ("aten::hsplit.int", (ramp(4), 2), [[0, 1], [2, 3]]),
    ("aten::hsplit.array", (ramp(4), [1]), [[0], [1, 2, 3]]),
    ("aten::unbind.int", (ramp(2, 2), 1), [[0, 2], [1, 3]]),
    ("aten::unsafe_chunk", (ramp(3), 2, 0), [[0, 1], [2]]),
    ("aten::unsafe_split.Tensor", (ramp(3), 2, 0), [[0, 1], [2]]),
    ("aten::unsafe_split_with_sizes", (ramp(3), [2, 1], 0), [[0, 1], [2]]),
    ("aten::unbind_copy.int", (ramp(2, 2), 0), [[0, 1], [2, 3]]),
    ("aten::split_copy.Tensor", (ramp(3), 2, 0), [[0, 1], [2]]),
]


@pytest.mark.parametrize(("name", "args", "want"), SPLITS, ids=lambda v: v if isinstance(v, str) else "")
def test_splits(name: str, args: tuple[Any, ...], want: list[list[float]]) -> None:
    got = run(name, *args)
    assert [p.tolist() for p in got] == want
    assert all(np.shares_memory(p, args[0]) != ("_copy" in name) for p in got if p.size)
    against_torch(name, *args)


def test_more_splits_agree_with_torch() -> None:
    for name, args in (
        ("aten::chunk", (np.empty((0, 2), np.float32), 3, 0)),
        ("aten::split.Tensor", (np.empty((0, 2), np.float32), 3, 0)),
        ("aten::split.Tensor", (X, 2, -1)),
        ("aten::tensor_split.indices", (X, [3, 1, -1], 2)),
        ("aten::vsplit.int", (X, 2)),
        ("aten::dsplit.array", (X, [1, 2])),
        ("aten::unbind.int", (NC, -1)),
    ):
        against_torch(name, *args)


COPIES: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::view_copy", (X, [4, 6])),
    ("aten::select_copy.int", (X, 1, 0)),
    ("aten::slice_copy.Tensor", (X, 1, 0, 2, 1)),
    ("aten::narrow_copy", (X, 1, 0, 2)),
    ("aten::permute_copy", (X, [2, 1, 0])),
    ("aten::expand_copy", (ONES, [2, 3, 4])),
    ("aten::transpose_copy.int", (X, 0, 1)),
    ("aten::t_copy", (ramp(2, 3),)),
    ("aten::unsqueeze_copy", (X, 0)),
    ("aten::squeeze_copy", (ONES,)),
    ("aten::squeeze_copy.dim", (ONES, 0)),
    ("aten::squeeze_copy.dims", (ONES, [0])),
    ("aten::unfold_copy", (X, 1, 2, 1)),
    ("aten::alias_copy", (X,)),
    ("aten::detach_copy", (X,)),
    ("aten::diagonal_copy", (X,)),
    ("aten::as_strided_copy", (X, [2], [1])),
    ("aten::view_as_real_copy", (X.astype(np.complex64),)),
    ("aten::view_as_complex_copy", (ramp(3, 2),)),
]


@pytest.mark.parametrize(("name", "args"), COPIES, ids=lambda v: v if isinstance(v, str) else "")
def test_copies_own_their_memory(name: str, args: tuple[Any, ...]) -> None:
    assert not np.shares_memory(run(name, *args), args[0])
    against_torch(name, *args)


IN_PLACE: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("aten::transpose_", (0, 1), (3, 2)),
    ("aten::swapdims_", (-1, 0), (3, 2)),
    ("aten::t_", (), (3, 2)),
    ("aten::unsqueeze_", (1,), (2, 1, 3)),
    ("aten::as_strided_", ([3, 2], [1, 3], None), (3, 2)),
]


@pytest.mark.parametrize(("name", "args", "shape"), IN_PLACE)
@pytest.mark.parametrize("base", [ramp(2, 3), ramp(4, 3)[::2]], ids=["contiguous", "strided"])
def test_geometry_changes_in_place(name: str, args: tuple[Any, ...], shape: tuple[int, ...], base: np.ndarray) -> None:
    if name == "aten::as_strided_" and not base.flags.c_contiguous:
        args = ([3, 2], [1, 6], None)
    x = base[...]
    expected = run(name[:-1] + (".int" if name == "aten::transpose_" else ""), x, *args)
    y = run(name, x, *args)
    assert y is x and x.shape == shape and np.shares_memory(x, base)
    np.testing.assert_array_equal(x, expected)


def test_an_array_that_owns_its_memory_changes_too() -> None:
    for x in (ramp(2, 3).copy(), np.asfortranarray(ramp(2, 3))):
        assert x.base is None
        assert run("aten::t_", x) is x and x.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_squeeze_in_place() -> None:
    for name, args, shape in (("", (), (3,)), (".dim", (0,), (3, 1)), (".dims", ([2],), (1, 3))):
        x = ramp(1, 3, 1)
        assert run(f"aten::squeeze_{name}", x, *args) is x and x.shape == shape


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::view", (NC, [6, 4]), ShapeError, "aten::view: strides .* without a copy; call reshape"),
    ("aten::view", (X, [5, -1]), ShapeError, "24 elements and can't have the shape"),
    ("aten::expand", (X, [2, 3, 5]), ShapeError, "aten::expand: .*only dims of size 1 can grow"),
    ("aten::expand", (X, [-1, 2, 3, 4]), ShapeError, "aten::expand"),
    ("aten::permute", (X, [0, 0, 1]), ShapeError, "no permutation of the 3 dims"),
    ("aten::transpose.int", (X, 0, 3), ShapeError, "dim 3 is out of range for a tensor of 3 dims"),
    ("aten::t", (X,), ShapeError, "at most 2 dims"),
    ("aten::select.int", (X, 1, 3), ShapeError, "index 3 is out of range for dim 1 .* use -3 to 2"),
    ("aten::select.int", (ZERO_DIM, 0, 0), ShapeError, "0-dim"),
    ("aten::slice.Tensor", (X, 0, 0, 1, 0), ShapeError, "step 0 must be positive"),
    ("aten::narrow", (X, 0, 1, 2), ShapeError, "start 1 and length 2 don't fit dim 0 of size 2"),
    ("aten::unflatten.int", (X, 0, [3, -1]), ShapeError, "don't multiply to 2"),
    ("aten::unfold", (X, 0, 3, 1), ShapeError, "size 3 and step 1"),
    ("aten::as_strided", (X, [25], [1], None), ShapeError, "reach element 24; there are 24"),
    ("aten::diagonal", (X, 0, 1, 1), ShapeError, "two different"),
    ("aten::imag", (X,), DTypeError, "no imaginary part"),
    ("aten::view_as_complex", (X,), ShapeError, "size 2 and stride 1"),
    ("aten::split.Tensor", (X, 0, 0), ShapeError, "split size 0"),
    ("aten::split_with_sizes", (X, [1, 2], 0), ShapeError, "must add up to 2"),
    ("aten::chunk", (X, 0, 0), ShapeError, "number of chunks"),
    ("aten::unbind.int", (ZERO_DIM, 0), ShapeError, "0-dim"),
    ("aten::hsplit.int", (ramp(5), 2), ShapeError, "don't divide"),
    ("aten::movedim.intlist", (X, [0, 0], [1, 2]), ShapeError, "name a dim twice"),
    ("aten::broadcast_tensors", ([X, ramp(5)],), ShapeError, "don't broadcast"),
    ("aten::to.dtype", (X, 8), DTypeError, "complex32"),
    ("aten::to.device", (X, Device("cuda", 0), 6), DeviceError, "cuda:0 is not available"),
    ("aten::contiguous", (X, 2), ShapeError, "needs 4 dims"),
    ("aten::as_strided_", (ramp(2, 3), [2], [1], None), OpError, "number of elements"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(name, *args)


# ------------------------------------------------------------------------------------------------ conversions

F = np.array([0.5, -1.5, 300.7, -300.2, np.nan, np.inf, -np.inf, 1e10, -0.0], np.float32)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 15])
@pytest.mark.parametrize(
    "x",
    [
        F,
        F.astype(np.float64),
        F.astype(np.float16),
        F.astype(ml_dtypes.bfloat16),
        np.array([-1, 300, 70000, 2**40 + 1, 16777217], np.int64),
        np.array([True, False]),
        np.array([1.5 + 2j, 0, -1j], np.complex64),
        np.array([1 + 2**-11 + 2**-26, 65519.99999, 1.0019531250001], np.float64),
    ],
    ids=["f32", "f64", "f16", "bf16", "i64", "bool", "c64", "double rounding"],
)
def test_casts_agree_with_torch(x: np.ndarray, code: int) -> None:
    torch = pytest.importorskip("torch")
    want = from_torch(to_torch(x).to(getattr(torch, BY_CODE[code].name)))
    assert_same(run("aten::to.dtype", x, code), want, 0.0)


def test_casts_wrap_as_in_c() -> None:
    assert run("aten::to.dtype", np.array([-1.5, 300.0, 255.9], np.float32), 0).tolist() == [255, 44, 255]
    assert run("aten::to.dtype", np.array([np.nan], np.float32), 3).tolist() == [-(2**31)]
    assert run("aten::to.dtype", np.array([2 + 3j], np.complex64), 6).tolist() == [2.0]
    assert run("aten::to.dtype", np.array([3j], np.complex64), 11).tolist() == [True]


def test_conversions_return_the_tensor_itself_where_nothing_changes() -> None:
    x = ramp(2, 3)
    for name, args in (
        ("aten::to.dtype", (6,)),
        ("aten::to.device", (Device("cpu"), 6)),
        ("aten::to.other", (ramp(1),)),
        ("aten::to.dtype_layout", ()),
        ("aten::to.prim_Device", (None,)),
        ("aten::to.prim_dtype", (6,)),
        ("aten::to.prim_other", ()),
        ("aten::type_as", (ramp(1),)),
        ("aten::contiguous", ()),
        ("aten::detach", ()),
        ("aten::alias", ()),
        ("aten::lift_fresh", ()),
        ("aten::resolve_conj", ()),
        ("aten::resolve_neg", ()),
        ("aten::_cast_Float", ()),
        ("aten::flatten.using_ints", (1, 1)),
        ("aten::real", ()),
    ):
        assert run(name, x, *args) is x, name
    for name, args in (
        ("aten::to.dtype", (6, False, True)),
        ("aten::to.prim_other", (False, True)),
        ("aten::_to_copy", ()),
        ("aten::lift_fresh_copy", ()),
    ):
        y = run(name, x, *args)
        assert not np.shares_memory(x, y) and (y == x).all(), name


def test_conjugates_and_signs() -> None:
    z = np.array([1 + 2j, -1j], np.complex64)
    assert run("aten::conj", z).tolist() == [1 - 2j, 1j] and run("aten::_conj", z).tolist() == [1 - 2j, 1j]
    assert run("aten::_neg_view", z).tolist() == [-1 - 2j, 1j]
    assert run("aten::mH", z.reshape(1, 2)).tolist() == [[1 - 2j], [1j]]
    assert run("aten::matrix_H", z.reshape(1, 2)).tolist() == [[1 - 2j], [1j]]
    for name in ("aten::conj", "aten::_neg_view", "aten::matrix_H"):
        assert type(run(name, np.array(1j))) is np.ndarray
    assert run("aten::conj", X) is X and run("aten::positive", X) is X
    assert run("aten::_shape_as_tensor", X).tolist() == [2, 3, 4]
    with pytest.raises(DTypeError, match="bool"):
        run("aten::positive", np.array(True))


def test_memory_formats() -> None:
    x = ramp(2, 3, 4, 5)
    last = run("aten::contiguous", x, 2)
    assert last.strides == (240, 4, 60, 12) and (last == x).all()
    assert run("aten::contiguous", last, 2) is last
    assert run("aten::contiguous", last).flags.c_contiguous
    assert run("aten::to.dtype", last, 7).strides == (480, 8, 120, 24)
    assert run("aten::to.dtype", x, 6, False, False, 2).strides == last.strides
    assert run("aten::_to_copy", last[:, :, ::2]).strides == (120, 4, 60, 12)
    against_torch("aten::contiguous", last.transpose(0, 2, 1, 3), strides=True)
