"""Matrix products and contractions, against formulas of their own and against PyTorch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.ops.registry import by_full_name
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "complex64", "float16", "bfloat16"]


def make(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Small whole numbers, so that every dtype holds products exactly."""
    values = np.random.default_rng([seed, *shape]).integers(0, 4, shape)
    if dtype == "bfloat16":
        return values.astype(np.float32).astype(ml_dtypes.bfloat16)
    if dtype == "complex64":
        return np.asarray(values + 1j * (3 - values), dtype)
    return values.astype(dtype)


A, B, X = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]]), np.array([1.0, -1])


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("aten::mm", (A, B), [[19, 22], [43, 50]]),
        ("aten::bmm", (A[None], B[None]), [[[19, 22], [43, 50]]]),
        ("aten::mv", (A, X), [-1, -1]),
        ("aten::dot", (X, np.array([2.0, 5])), -3),
        ("aten::vdot", (np.array([1 + 2j]), np.array([3 + 1j])), 5 - 5j),
        ("aten::matmul", (A, X), [-1, -1]),
        ("aten::matmul", (X, X), 2),
        ("aten::linalg_matmul", (A, B), [[19, 22], [43, 50]]),
        ("aten::linear", (X, A, np.array([10.0, 20])), [9, 19]),
        ("aten::addmm", (X, A, B, 2, 3), [[59, 64], [131, 148]]),
        ("aten::addmv", (X, A, X, 1, 2), [-1, -3]),
        ("aten::baddbmm", (X, A[None], B[None], 0, 1), [[[19, 22], [43, 50]]]),
        ("aten::addbmm", (X, np.stack([A, A]), np.stack([B, B])), [[39, 43], [87, 99]]),
        ("aten::addr", (A, X, X), [[2, 1], [2, 5]]),
        ("aten::outer", (X, X), [[1, -1], [-1, 1]]),
        ("aten::ger", (X, X), [[1, -1], [-1, 1]]),
        ("aten::inner", (A, B), [[17, 23], [39, 53]]),
        ("aten::kron", (X, np.array([2.0, 3])), [2, 3, -2, -3]),
        ("aten::cross", (np.array([1.0, 0, 0]), np.array([0.0, 1, 0])), [0, 0, 1]),
        ("aten::linalg_cross", (np.array([0.0, 1, 0]), np.array([0.0, 0, 1])), [1, 0, 0]),
        ("aten::linalg_vecdot", (np.array([1j, 1]), np.array([1j, 2])), 3),
        ("aten::linalg_multi_dot", ([X, A, B],), [-24, -28]),
        ("aten::chain_matmul", ([A, B, A],), [[85, 126], [193, 286]]),
        ("aten::matrix_power", (A, 3), [[37, 54], [81, 118]]),
        ("aten::linalg_matrix_power", (A, -1), [[-2, 1], [1.5, -0.5]]),
        ("aten::_int_mm", (np.full((2, 3), 100, np.int8), np.full((3, 1), -100, np.int8)), [[-30000], [-30000]]),
        ("aten::_weight_int8pack_mm", (A, np.array([[1, 2]], np.int8), np.array([0.5])), [[2.5], [5.5]]),
        ("aten::_addmm_activation", (X, -A, B), [[0, 0], [0, 0]]),
        ("aten::einsum", ("ij,jk", [A, B]), [[19, 22], [43, 50]]),
        ("aten::einsum", ("ii", [A]), 5),
        ("aten::einsum", ("...j->j...", [A]), [[1, 3], [2, 4]]),
        ("aten::einsum", ("ij,ij,j->i", [A, B, X]), [-7, -11]),
        ("aten::tensordot", (A, B, [0], [1]), [[23, 31], [34, 46]]),
        ("aten::bilinear", (X, X, A[None], None), [0]),
    ],
)
def test_values(name: str, args: tuple[Any, ...], want: Any) -> None:
    got = run(name, *args)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_results_are_arrays_even_without_dims() -> None:
    y = run("aten::dot", X, X)
    assert type(y) is np.ndarray and y.shape == ()


def test_integer_products_wrap() -> None:
    a = np.full((1, 2), 100, np.int8)
    np.testing.assert_array_equal(run("aten::mm", a, a.T), [[32]])


def test_beta_zero_ignores_nan() -> None:
    y = run("aten::addmm", np.full((2, 2), np.nan), A, B, 0, 1)
    np.testing.assert_array_equal(y, A @ B)


def test_in_place_forms_write_through() -> None:
    target = np.zeros((2, 2))
    assert run("aten::addmm_", target, A, B) is target
    np.testing.assert_array_equal(target, A @ B)
    out = np.empty((2, 2))
    op = by_full_name("aten::mm.out")
    assert op is not None and op.kernel(np)(A, B, out) is out
    np.testing.assert_array_equal(out, A @ B)


def test_grouped_products_take_rows_by_offset() -> None:
    x, w = make(5, 3), make(2, 3, 4)
    y = run("aten::_grouped_mm", x, w, np.array([2, 5], np.int32))
    np.testing.assert_array_equal(y, np.concatenate([x[:2] @ w[0], x[2:] @ w[1]]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", [(2, 3), (3, 4)]),
        ("aten::mm", [(0, 3), (3, 4)]),
        ("aten::mm", [(2, 0), (0, 4)]),
        ("aten::bmm", [(2, 2, 3), (2, 3, 4)]),
        ("aten::mv", [(2, 3), (3,)]),
        ("aten::matmul", [(3,), (2, 3, 4)]),
        ("aten::matmul", [(2, 3), (3,)]),
        ("aten::matmul", [(2, 1, 2, 3), (4, 3, 2)]),
        ("aten::matmul", [(2, 2, 3), (3, 2)]),
        ("aten::matmul", [(2, 2, 3), (3,)]),
        ("aten::linear", [(3,), (4, 3), (4,)]),
        ("aten::linear", [(2, 3), (4, 3), (4,)]),
        ("aten::linear", [(2, 2, 3), (4, 3)]),
        ("aten::linear", [(2, 0, 3), (4, 3), (4,)]),
        ("aten::addmm", [(4,), (2, 3), (3, 4)]),
        ("aten::addmm", [(), (2, 3), (3, 4)]),
        ("aten::addmv", [(2,), (2, 3), (3,)]),
        ("aten::baddbmm", [(2, 1, 4), (2, 2, 3), (2, 3, 4)]),
        ("aten::addbmm", [(2, 4), (2, 2, 3), (2, 3, 4)]),
        ("aten::addr", [(2, 3), (2,), (3,)]),
        ("aten::outer", [(2,), (3,)]),
        ("aten::inner", [(2, 3), (4, 3)]),
        ("aten::inner", [(), (4, 3)]),
        ("aten::kron", [(2, 3), (4,)]),
        ("aten::linalg_cross", [(2, 3), (1, 3)]),
    ],
)
def test_against_torch(name: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    against_torch(name, *(make(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("name", ["aten::mm", "aten::matmul", "aten::linear"])
def test_strided_operands(name: str, dtype: str) -> None:
    a = make(6, 8, dtype=dtype)[::2, ::-2]
    b = make(4, 3, dtype=dtype).T[:, :].T if name != "aten::linear" else make(4, 3, dtype=dtype).T
    against_torch(name, a, np.broadcast_to(b[:1], b.shape) if name == "aten::matmul" else b)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16", "int64"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk", [(2, 2, 3), (2, 3, 4)]),
        ("...ij,...jk->...ik", [(2, 1, 2, 3), (2, 3, 4)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ij,kj->", [(2, 3), (4, 3)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("i,j->ji", [(2,), (3,)]),
        ("ii->i", [(3, 3)]),
        ("iij,j->i", [(2, 2, 3), (3,)]),
        ("ijk->kj", [(2, 3, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]),
        ("bn,anm,bm->ba", [(2, 3), (4, 3, 2), (2, 2)]),
        (" i j , j -> i ", [(2, 3), (3,)]),
        ("Aj,jk", [(2, 3), (3, 2)]),
    ],
)
def test_einsum_against_torch(equation: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    against_torch("aten::einsum", equation, [make(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)])


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::tensordot", (make(2, 3, 4), make(4, 3, 5), [1, -1], [1, 0])),
        ("aten::tensordot", (make(2, 1), make(3, 2), [1], [0])),
        ("aten::bilinear", (make(2, 2, 3), make(2, 2, 4), make(5, 3, 4), make(5))),
        ("aten::_trilinear", (make(2, 3), make(4, 3), make(2, 4), [1], [0], [2], [2])),
        ("aten::kron", (make(2, 3), make(2, 2, dtype="int64"))),
        ("aten::addr", (make(2, 2, dtype="bool"), make(2, dtype="bool"), make(2, dtype="bool"))),
        ("aten::addr", (make(2, 2, dtype="int64"), make(2), make(2, dtype="int64"))),
        ("aten::addmm", (make(2, 2, dtype="int64"), make(2, 2, dtype="int64"), make(2, 2, dtype="int64"), 1, 1.5)),
        ("aten::addmm_", (make(2, 2), make(2, 3), make(3, 2))),
        ("aten::cross", (make(3, 4, dtype="int64"), make(3, 4, dtype="int64"))),
        ("aten::linalg_vecdot", (make(2, 3), make(4, 2, 3))),
        ("aten::linalg_multi_dot", ([make(2, 3), make(3, 4), make(4, 5), make(5, 1), make(1)],)),
        ("aten::matrix_power", (make(2, 2, dtype="int64"), 0)),
        ("aten::matrix_power", (make(2, 2, dtype="int32"), 5)),
        ("aten::linalg_matrix_power", (make(3, 2, 2) + 3 * np.eye(2, dtype=np.float32), -3)),
        ("aten::_int_mm", (make(17, 8, dtype="int8"), make(8, 8, dtype="int8"))),
        ("aten::_addmm_activation", (make(4), make(2, 3) - 2, make(3, 4))),
    ],
)
def test_other_forms_against_torch(name: str, args: tuple[Any, ...]) -> None:
    against_torch(name, *args)


def test_infinities_and_nan_reach_the_result() -> None:
    x = np.array([[np.inf, 1], [np.nan, 0]], np.float32)
    for name in ("aten::mm", "aten::matmul", "aten::linear"):
        against_torch(name, x, make(2, 2))


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("aten::mm", (A, B.astype(np.float32)), DTypeError, "promotes nothing"),
        ("aten::mm", (A > 2, A > 2), DTypeError, "bool"),
        ("aten::mm", (A, make(3, 2, dtype="float64")), ShapeError, "cannot be multiplied"),
        ("aten::mm", (X, A), ShapeError, "self must have 2 dimensions"),
        ("aten::bmm", (A[None], make(2, 2, 2, dtype="float64")), ShapeError, "cannot be multiplied"),
        ("aten::dot", (X, np.ones(3)), ShapeError, "2 and 3 elements"),
        ("aten::matmul", (np.array(1.0), X), ShapeError, "need a dimension"),
        ("aten::linear", (np.ones((2, 3)), A), ShapeError, "last dimension"),
        ("aten::linear", (X, A, np.ones(3)), ShapeError, "bias"),
        ("aten::linear", (X, A, np.ones(2, np.float32)), DTypeError, "bias"),
        ("aten::addmm", (np.ones((3, 2)), A, B), ShapeError, "does not broadcast"),
        ("aten::addmm", (np.ones(2, int), A, B), DTypeError, "self is int64"),
        ("aten::inner", (A, np.ones((2, 2), int)), DTypeError, "float64"),
        ("aten::cross", (A, B), ShapeError, "3 elements"),
        ("aten::linalg_vecdot", (np.ones(2, int), np.ones(2, int)), DTypeError, "floating"),
        ("aten::linalg_multi_dot", ([A],), OpError, "at least 2"),
        ("aten::matrix_power", (np.zeros((2, 2)), -1), OpError, "singular"),
        ("aten::matrix_power", (np.ones((2, 2), int), -1), DTypeError, "negative power"),
        ("aten::einsum", ("ij,jk", [A]), OpError, "names 2 operands"),
        ("aten::einsum", ("ij->ik", [A]), OpError, "'k' of the result"),
        ("aten::einsum", ("ij->ii", [A]), OpError, "twice"),
        ("aten::einsum", ("ijk", [A]), ShapeError, "name 3 dims"),
        ("aten::einsum", ("i,i", [X, np.ones(3)]), ShapeError, "2 and for 3"),
        ("aten::einsum", ("i$,i", [A, X]), OpError, "must be letters"),
        ("aten::tensordot", (A, np.ones((3, 2)), [0], [0]), ShapeError, "2 elements"),
        ("aten::_grouped_mm", (A, B[None], np.array([1, 2])), ShapeError, "1 groups"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)
