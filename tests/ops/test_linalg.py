"""Linear algebra by the properties that define it, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.matrices.linalg
import gpujit.ops.families.matrices.linalg_norms  # noqa: F401  declares the entries
from gpujit.ops.registry import by_full_name
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
INF = float("inf")


def make(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    """Numbers of about unit size."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def regular(*shape: int, dtype: Any = np.float64) -> Any:
    """Well-conditioned square matrices."""
    return make(*shape, dtype=dtype) + 4 * np.eye(shape[-1], dtype=dtype)


def positive(*shape: int, dtype: Any = np.float64) -> Any:
    """Hermitian positive-definite matrices."""
    a = make(*shape, dtype=dtype)
    return (a @ h(a) + np.eye(shape[-1])).astype(dtype)


def h(a: Any) -> Any:
    return np.swapaxes(a, -1, -2).conj()


def tolerance(dtype: Any) -> float:
    return 2e-4 if np.dtype(dtype).itemsize == (8 if np.dtype(dtype).kind == "c" else 4) else 1e-9


def close(got: Any, want: Any, dtype: Any = np.float64) -> None:
    np.testing.assert_allclose(got, want, atol=tolerance(dtype), rtol=tolerance(dtype))


# ------------------------------------------------------------------------------------------------- by definition


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverse_solve_and_determinant(dtype: Any) -> None:
    a, b, eye = regular(2, 4, 4, dtype=dtype), make(2, 4, 3, dtype=dtype), np.broadcast_to(np.eye(4), (2, 4, 4))
    for name in ("linalg_inv", "inverse"):
        y = run(f"aten::{name}", a)
        assert y.dtype == dtype
        close(y @ a, eye, dtype)
    close(a @ run("aten::linalg_solve", a, b), b, dtype)
    close(run("aten::linalg_solve", a, h(b), False) @ a, h(b), dtype)
    close(a @ run("aten::linalg_solve_ex", a, b)[0], b, dtype)
    sign, log = run("aten::linalg_slogdet", a)
    close(sign * np.exp(log), run("aten::linalg_det", a), dtype)
    lower = np.tril(a)
    close(run("aten::det", lower), np.prod(np.diagonal(lower, 0, -2, -1), -1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5)])
def test_factorisations_multiply_back(shape: tuple[int, ...], dtype: Any) -> None:
    a = make(*shape, dtype=dtype)
    m, n = shape[-2:]
    p, lower, upper = run("aten::linalg_lu", a)
    close(p @ lower @ upper, a, dtype)
    assert np.array_equal(lower, np.tril(lower)) and np.array_equal(upper, np.triu(upper))
    lu, pivots, info = run("aten::linalg_lu_factor_ex", a)
    assert pivots.dtype == info.dtype == np.int32 and not info.any()
    assert_same(run("aten::lu_unpack", lu, pivots), (p, lower, upper))
    for mode in ("reduced", "complete"):
        q, r = run("aten::linalg_qr", a, mode)
        close(q @ r, a, dtype)
        close(h(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), h(q).shape[:-1] + q.shape[-1:]), dtype)
    for full in (False, True):
        u, s, vh = run("aten::linalg_svd", a, full)
        k = min(m, n)
        assert s.dtype == np.zeros(1, dtype).real.dtype
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, dtype)
    u, s, v = run("aten::svd", a)
    close((u * s[..., None, :]) @ h(v), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues(dtype: Any) -> None:
    a = make(2, 4, 4, dtype=dtype)
    values, vectors = run("aten::linalg_eig", a)
    close(a @ vectors, vectors * values[..., None, :], dtype)
    close(np.sort(np.abs(run("aten::linalg_eigvals", a))), np.sort(np.abs(values)), dtype)
    s = positive(2, 4, 4, dtype=dtype)
    values, vectors = run("aten::linalg_eigh", s)
    assert values.dtype == np.zeros(1, dtype).real.dtype
    np.testing.assert_allclose(s @ vectors, vectors * values[..., None, :], atol=10 * tolerance(dtype))
    np.testing.assert_allclose(run("aten::linalg_eigvalsh", np.triu(s), "U"), values, atol=10 * tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(dtype: Any) -> None:
    a, b = positive(2, 4, 4, dtype=dtype), make(2, 4, 2, dtype=dtype)
    for upper in (False, True):
        y = run("aten::linalg_cholesky", a, upper)
        close(h(y) @ y if upper else y @ h(y), a, dtype)
        x = run("aten::cholesky_solve", b, y, upper)
        np.testing.assert_allclose(a @ x, b, atol=20 * tolerance(dtype))
        np.testing.assert_allclose(
            run("aten::cholesky_inverse", y, upper) @ a, np.broadcast_to(np.eye(4), a.shape), atol=20 * tolerance(dtype)
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solves_read_one_triangle(dtype: Any, upper: bool, left: bool, unit: bool) -> None:
    a, b = regular(2, 4, 4, dtype=dtype), make(4, 4, dtype=dtype)
    x = run("aten::linalg_solve_triangular", a, b, upper, left, unit)
    t = np.triu(a, 1) if upper else np.tril(a, -1)
    t = t + (np.eye(4) if unit else a * np.eye(4))
    np.testing.assert_allclose(t @ x if left else x @ t, np.broadcast_to(b, x.shape), atol=50 * tolerance(dtype))


def test_a_zero_on_the_diagonal_gives_infinity() -> None:
    x = run("aten::linalg_solve_triangular", np.array([[0.0]]), np.array([[1.0]]), True)
    assert np.isinf(x[0, 0])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_solves_from_lu(left: bool, adjoint: bool) -> None:
    a, b = regular(2, 4, 4, dtype=np.complex128), make(4, 4, dtype=np.complex128)
    lu, pivots = run("aten::linalg_lu_factor", a)
    x = run("aten::linalg_lu_solve", lu, pivots, b, left, adjoint)
    m = h(a) if adjoint else a
    close(m @ x if left else x @ m, np.broadcast_to(b, x.shape))


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("hollow", [False, True])
def test_ldl_solves_indefinite_systems(hermitian: bool, hollow: bool) -> None:
    a = make(3, 5, 5, dtype=np.complex128)
    a = a + (h(a) if hermitian else np.swapaxes(a, -1, -2))
    if hollow:
        a[:, range(5), range(5)] = 0
    ld, pivots = run("aten::linalg_ldl_factor", a, hermitian)
    b = make(3, 5, 2, dtype=np.complex128)
    close(a @ run("aten::linalg_ldl_solve", ld, pivots, b, hermitian), b)
    assert not hollow or (pivots < 0).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors_make_q(dtype: Any) -> None:
    a = make(2, 5, 3, dtype=dtype)
    packed, tau = run("aten::geqrf", a)
    q = run("aten::linalg_householder_product", packed, tau)
    close(q @ np.triu(packed[..., :3, :]), a, dtype)
    full = run("aten::ormqr", packed, tau, np.broadcast_to(np.eye(5, dtype=dtype), (2, 5, 5)).copy())
    close(full[..., :3], q, dtype)
    other = make(2, 5, 5, dtype=dtype)
    for transpose, m in ((False, full), (True, h(full))):
        close(run("aten::ormqr", packed, tau, other, True, transpose), m @ other, dtype)
        close(run("aten::ormqr", packed, tau, other, False, transpose), other @ m, dtype)
    close(run("aten::orgqr", packed, tau), q, dtype)


@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss"])
@pytest.mark.parametrize(("a", "b"), [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5)), ((5, 3), (5,))])
def test_least_squares(driver: str | None, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = make(*a), make(*b)
    solution = run("aten::linalg_lstsq", x, y, None, driver)[0]
    columns = y if y.ndim == x.ndim else y[..., None]
    want = np.linalg.pinv(x) @ columns
    close(solution, want if y.ndim == x.ndim else want[..., 0])
    against_torch("aten::linalg_lstsq", x, y, None, driver)


def test_exponential_of_a_rotation_generator() -> None:
    a = np.array([[0.0, -1], [1, 0]])
    for angle in (1e-3, 1.0, 30.0):
        want = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        close(run("aten::linalg_matrix_exp", a * angle), want)
    close(
        run("aten::matrix_exp", np.array([[[0.0, 1], [0, 0]], [[1, 0], [0, 2]]])),
        [[[1, 1], [0, 1]], np.diag(np.exp([1, 2]))],
    )


def test_norms_of_a_known_matrix() -> None:
    a = np.array([[3.0, 0], [4, 5]])
    s = np.linalg.svd(a, compute_uv=False)
    for order, want in ((1, 7), (-1, 5), (INF, 9), (-INF, 3), (2, s[0]), (-2, s[1])):
        close(run("aten::linalg_matrix_norm", a, order), want)
        close(run("aten::linalg_norm", a, order), want)
    close(run("aten::linalg_matrix_norm.str_ord", a), np.sqrt(50))
    close(run("aten::linalg_norm.ord_str", a, "nuc"), s.sum())
    close(run("aten::nuclear_norm", a), s.sum())
    close(run("aten::linalg_norm", a), np.sqrt(50))
    close(run("aten::linalg_norm", a, 1, [1]), [3, 9])
    close(run("aten::linalg_cond", a), s[0] / s[1])
    close(run("aten::linalg_cond.p_str", a, "fro"), np.sqrt(50) * np.linalg.norm(np.linalg.inv(a)))
    close(run("aten::linalg__powsum", a, 2), 50)


def test_rank_and_pseudo_inverse() -> None:
    a = np.diag([3.0, 1, 1e-3])
    assert run("aten::linalg_matrix_rank", a, 0.1) == 2
    assert run("aten::linalg_matrix_rank.atol_rtol_float", a) == 3
    assert run("aten::linalg_matrix_rank.atol_rtol_float", a, None, 0.4) == 1
    assert run("aten::linalg_matrix_rank.tol_tensor", a, np.array(2.0), True) == 1
    close(run("aten::linalg_pinv", a, 0.01), np.diag([1 / 3, 1, 0]))
    close(run("aten::linalg_pinv.atol_rtol_float", -a, 2.0, None, True), np.diag([-1 / 3, 0, 0]))
    close(run("aten::pinverse", make(3, 2)), np.linalg.pinv(make(3, 2)))


def test_views_and_tables() -> None:
    a = np.arange(6.0).reshape(2, 3)
    y = run("aten::linalg_diagonal", a)
    y[1] = -1
    assert a[1, 1] == -1
    np.testing.assert_array_equal(run("aten::linalg_vander", np.array([2, 3]), 4), [[1, 2, 4, 8], [1, 3, 9, 27]])
    np.testing.assert_array_equal(run("aten::linalg_vander", np.array(2.0), 3), [[1, 2, 4]])


def test_out_forms_write_every_result() -> None:
    a = regular(3, 3)
    q, r = np.empty((3, 3)), np.empty((3, 3))
    op = by_full_name("aten::linalg_qr.out")
    assert op is not None
    got = op.kernel(np)(a, "reduced", q, r)
    assert got[0] is q and got[1] is r
    close(q @ r, a)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("left", [False, True])
def test_solves_with_their_factors_against_torch(dtype: Any, left: bool) -> None:
    a, b = regular(2, 3, 3, dtype=dtype), make(3, 3, dtype=dtype)
    for name in ("_linalg_solve_ex", "linalg_solve_ex"):
        against_torch(f"aten::{name}", a, b, left)
        against_torch(f"aten::{name}", a.swapaxes(-1, -2), b, left)
        against_torch(f"aten::{name}", SINGULAR.astype(dtype)[1], b, left)


def test_tensors_as_matrices() -> None:
    a = regular(6, 6).reshape(2, 3, 6)
    close(np.tensordot(run("aten::linalg_tensorinv", a), a, 2), np.eye(6))
    b = make(2, 3)
    close(np.tensordot(a, run("aten::linalg_tensorsolve", a, b), 1), b)


# ------------------------------------------------------------------------------------------------- against PyTorch

SQUARE = [
    "linalg_inv", "linalg_inv_ex", "linalg_det", "_linalg_det", "linalg_slogdet", "_linalg_slogdet", "logdet",
    "linalg_lu_factor_ex",
    "linalg_lu", "linalg_ldl_factor_ex", "linalg_matrix_exp", "linalg_cond", "linalg_matrix_rank.atol_rtol_float",
    "linalg_pinv.atol_rtol_float", "linalg_svdvals", "linalg_norm", "linalg_matrix_norm.str_ord", "nuclear_norm",
    "geqrf",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices_against_torch(name: str, dtype: Any) -> None:
    a = regular(4, 4, dtype=dtype)
    against_torch(f"aten::{name}", a if name != "linalg_ldl_factor_ex" else (a + a.T), tolerance=20 * tolerance(dtype))
    if name != "nuclear_norm":
        against_torch(f"aten::{name}", regular(2, 3, 3, dtype=dtype).swapaxes(-1, -2), tolerance=20 * tolerance(dtype))


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
@pytest.mark.parametrize("name", [n for n in SQUARE if n not in ("nuclear_norm", "linalg_norm")])
def test_empty_matrices_against_torch(name: str, shape: tuple[int, ...]) -> None:
    against_torch(f"aten::{name}", np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    "name",
    ["linalg_svd", "linalg_svdvals", "linalg_qr", "linalg_pinv.atol_rtol_float", "linalg_matrix_rank.atol_rtol_float"],
)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_oblongs_against_torch(name: str, shape: tuple[int, ...]) -> None:
    against_torch(f"aten::{name}", np.zeros(shape, np.float32))


SINGULAR = np.zeros((2, 3, 3), np.float32)
SINGULAR[1] = np.eye(3)


@pytest.mark.parametrize(
    "name",
    ["linalg_det", "linalg_slogdet", "logdet", "linalg_lu_factor_ex", "linalg_lu", "linalg_cholesky_ex",
     "linalg_ldl_factor_ex",
     "linalg_matrix_rank.atol_rtol_float", "linalg_cond"],
)  # fmt: skip
def test_singular_matrices_against_torch(name: str) -> None:
    against_torch(f"aten::{name}", SINGULAR)


@pytest.mark.parametrize("order", [1, -1, 2, -2, INF, -INF, "fro", "nuc"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_against_torch(order: Any, dtype: Any, keepdim: bool) -> None:
    a = make(2, 3, 4, dtype=dtype)
    text = isinstance(order, str)
    for dim in ([-2, -1], [0, 2], [2, 0]):
        against_torch("aten::linalg_matrix_norm" + (".str_ord" if text else ""), a, order, dim, keepdim)
    against_torch("aten::linalg_norm" + (".ord_str" if text else ""), a, order, [1, 2], keepdim)
    square = regular(2, 3, 3, dtype=dtype)
    if order != -INF:
        against_torch("aten::linalg_cond" + (".p_str" if text else ""), square, order, tolerance=1e-3)
    if not text:
        against_torch("aten::linalg_norm", a, order, [1], keepdim)
        against_torch("aten::linalg_norm", a[0, 0], order, None, keepdim)
        against_torch("aten::linalg_matrix_norm", a.real, order, [0, 1], keepdim, 7)


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("linalg_inv", (SINGULAR,), OpError, "Batch element 0.*diagonal element 1 is zero"),
        ("linalg_inv", (SINGULAR[0],), OpError, "inv: The diagonal element 1"),
        ("linalg_inv", (make(2, 3),), ShapeError, "square"),
        ("linalg_inv", (make(3),), ShapeError, "at least 2"),
        ("linalg_inv", (np.ones((2, 2), int),), DTypeError, "int64"),
        ("linalg_inv", (np.ones((2, 2), np.float16),), DTypeError, "float16"),
        ("linalg_solve", (SINGULAR[0], make(3, 1, dtype=np.float32)), OpError, "singular"),
        ("linalg_solve", (make(3, 3), make(4, 1)), ShapeError, "Incompatible shapes"),
        ("linalg_solve", (make(2, 3, 3), make(4, 3, 1)), ShapeError, "do not broadcast"),
        ("linalg_solve", (make(3, 3), make(3, 1, dtype=np.float32)), DTypeError, "same dtype"),
        ("linalg_solve", (make(3, 3), make(3), False), ShapeError, "left=False"),
        ("linalg_cholesky", (-np.eye(2),), OpError, "minor of order 1 is not positive-definite"),
        ("linalg_lu_factor", (SINGULAR[0],), OpError, r"U\[1,1\] is zero"),
        ("linalg_lu_factor", (make(3, 3), False), OpError, "without pivoting"),
        ("linalg_lu_solve", (make(3, 3), np.array([1, 2, 4], np.int32), make(3, 1)), OpError, "at most 3"),
        ("linalg_lu_solve", (make(3, 3), np.array([1, 2, 3]), make(3, 1)), DTypeError, "int32"),
        ("linalg_qr", (make(2, 2), "full"), OpError, "unrecognized mode"),
        ("linalg_eigh", (make(2, 2), "X"), OpError, "'L' or 'U'"),
        ("linalg_eig", (np.full((2, 2), np.nan),), OpError, "linalg_eig"),
        ("linalg_svd", (make(2, 2), True, "gesvd"), OpError, "driver"),
        ("linalg_lstsq", (make(3, 2), make(3, 1), None, "qr"), OpError, "driver"),
        ("linalg_lstsq", (make(3, 2), make(4, 1)), ShapeError, "should match"),
        ("linalg_matrix_norm", (make(2, 2), 3), OpError, "Order 3"),
        ("linalg_matrix_norm", (make(2, 2), 1, [0, 0]), ShapeError, "different"),
        ("linalg_matrix_norm", (np.ones((2, 2), int), 1), DTypeError, "int64"),
        ("linalg_matrix_norm.str_ord", (make(2, 2), "max"), OpError, "Order max"),
        ("linalg_norm", (make(2, 2, 2), 1), ShapeError, "1D or 2D"),
        ("linalg_householder_product", (make(2, 3), make(3)), ShapeError, "reflectors"),
        ("linalg_tensorinv", (make(2, 3), 1), ShapeError, "as many elements"),
        ("linalg_vander", (make(3), 1), ShapeError, "greater than 1"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(f"aten::{name}", *args)
