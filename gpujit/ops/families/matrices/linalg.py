"""Linear algebra: determinants, inverses, solves, least squares, and functions of matrices.

NumPy's LAPACK does the work where it can, in double precision whatever the input; results come back in the input's
precision. What NumPy lacks is in ``factor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.matrices import factor
from gpujit.ops.families.matrices.factor import (
    adjoint,
    broadcast_batches,
    check_info,
    check_matrix,
    check_pair,
    check_rows,
    flat,
    lapack,
    solve_from_lu,
    transposed,
)
from gpujit.ops.families.memory.views import diagonal
from gpujit.ops.layout import wrap_dims
from gpujit.ops.promotion import real_of
from gpujit.ops.registry import library, out_form, view
from gpujit.ops.rules.data import least_squares_type
from gpujit.ops.rules.products import determinant_type, inverse_type
from gpujit.ops.rules.views import diagonal_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_SINGULAR = "The solver failed because the input matrix is singular."
_NO_INVERSE = (
    "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."
)


# ------------------------------------------------------------------------------------------------- inverse, determinant


def _inverse(xp: Any, op: str, a: Array, check: bool) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    info = np.zeros(a.shape[:-2], _INT32)
    try:
        return xp.linalg.inv(a).astype(a.dtype, copy=False), info
    except ValueError:  # numpy.linalg.LinAlgError is one
        lu, pivots, info = factor.lu_factor(xp, a)
    if check:
        check_info(op, info, _NO_INVERSE)
    eye = xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return factor.lu_solve(xp, flat(lu), flat(pivots, 1), flat(eye), False).reshape(a.shape), info


def _declare_inverse(name: str, argument: str) -> None:
    op = f"aten::{name}"

    @library(f"{op}(Tensor {argument}) -> Tensor", out="out", half="native", type_rule=inverse_type)
    def inverse(xp: Any, a: Array) -> Array:
        """The inverses of square matrices. Raises OpError for a singular one."""
        return _inverse(xp, "aten::linalg_inv", a, True)[0]


_declare_inverse("linalg_inv", "A")
_declare_inverse("inverse", "self")


@library("aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", half="native")
def linalg_inv_ex(xp: Any, a: Array, check_errors: bool) -> tuple[Array, Array]:
    """The inverses of square matrices, and for each the step that found no pivot (0: none)."""
    return _inverse(xp, "aten::linalg_inv_ex", a, check_errors)


def _slogdet(xp: Any, op: str, a: Array) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    sign, log = xp.linalg.slogdet(a)
    return xp.asarray(sign, dtype=a.dtype), xp.asarray(log, dtype=real_of(a.dtype))


def _lu_of_determinant(xp: Any, a: Array) -> tuple[Array, Array]:
    """L and U in one array, and the rows swapped.

    PyTorch factors the transpose of a real matrix that lies row by row, which LAPACK reads without a copy.
    """
    turned = a.flags.c_contiguous and a.dtype.kind == "f"
    lu, pivots, _ = factor.lu_factor(xp, transposed(a) if turned else a)
    return lu, pivots


def _det(xp: Any, op: str, a: Array) -> Array:
    check_matrix(op, a, square=True)
    return xp.asarray(xp.linalg.det(a), dtype=a.dtype)


@library("aten::linalg_det(Tensor A) -> Tensor", out="out", half="native", type_rule=determinant_type)
def linalg_det(xp: Any, a: Array) -> Array:
    """The determinants of square matrices."""
    return _det(xp, "aten::linalg_det", a)


@library("aten::det(Tensor self) -> Tensor", half="native", type_rule=determinant_type)
def det(xp: Any, a: Array) -> Array:
    """The determinants of square matrices."""
    return _det(xp, "aten::linalg_det", a)


@library("aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", half="native")
def linalg_det_lu(xp: Any, a: Array) -> tuple[Array, Array, Array]:
    """The determinants, and the LU factorisation they are read from."""
    y = _det(xp, "aten::_linalg_det", a)
    lu, pivots = _lu_of_determinant(xp, a)
    return y, lu, pivots


@library("aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", half="native")
def linalg_slogdet(xp: Any, a: Array) -> tuple[Array, Array]:
    """Signs of determinants and logarithms of their sizes."""
    return _slogdet(xp, "aten::linalg_slogdet", a)


@library("aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", half="native")
def slogdet(xp: Any, a: Array) -> tuple[Array, Array]:
    """Signs of determinants and logarithms of their sizes."""
    return _slogdet(xp, "aten::linalg_slogdet", a)


@library("aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)", half="native")
def linalg_slogdet_lu(xp: Any, a: Array) -> tuple[Array, Array, Array, Array]:
    """Signs and logarithms of determinants, and the LU factorisation they are read from."""
    sign, log = _slogdet(xp, "aten::_linalg_slogdet", a)
    lu, pivots = _lu_of_determinant(xp, a)
    return sign, log, lu, pivots


@library("aten::logdet(Tensor self) -> Tensor", half="native", type_rule=determinant_type)
def logdet(xp: Any, a: Array) -> Array:
    """Logarithms of determinants; NaN where a real one is negative."""
    sign, log = _slogdet(xp, "aten::linalg_slogdet", a)
    if a.dtype.kind == "c":
        return xp.log(sign) + log
    return xp.where(sign == -1, log.dtype.type(xp.nan), log)


# ------------------------------------------------------------------------------------------------- solves


def _as_columns(op: str, a: Array, b: Array) -> tuple[Array, bool]:
    """``b`` as matrices, and whether it was a batch of vectors."""
    check_pair(op, a, b)
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    if not vector and b.ndim < 2:
        raise ShapeError(f"{op}: B of shape {b.shape} is neither a vector nor matrices")
    return (b[..., None] if vector else b), vector


def _solve(xp: Any, op: str, a: Array, b: Array, left: bool, check: bool) -> tuple[Array, Array, Array, Array]:
    """Solution, LU, pivots and report."""
    check_matrix(op, a, square=True)
    b, vector = _as_columns(op, a, b)
    if vector and not left:
        raise ShapeError(f"{op}: Vector broadcasting of the left hand side is not supported for left=False")
    check_rows(op, a, b, left)
    lu, pivots, info = factor.lu_factor(xp, a)
    if check:
        check_info(op, info, _SINGULAR)
    y = solve_from_lu(xp, op, lu, pivots, b, left, False)
    return (y[..., 0] if vector else y), lu, pivots, info


@library("aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", out="out", half="native")
def linalg_solve(xp: Any, a: Array, b: Array, left: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``). Raises OpError for a singular matrix."""
    op = "aten::linalg_solve"
    check_matrix(op, a, square=True)
    columns, vector = _as_columns(op, a, b)
    if vector and not left:
        raise ShapeError(f"{op}: Vector broadcasting of the left hand side is not supported for left=False")
    check_rows(op, a, columns, left)
    try:
        np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    except ValueError:
        raise ShapeError(f"{op}: batch dims of shapes {a.shape} and {b.shape} do not broadcast") from None
    try:
        x = xp.linalg.solve(a, columns) if left else transposed(xp.linalg.solve(transposed(a), transposed(columns)))
    except ValueError:  # numpy.linalg.LinAlgError is one
        check_info(op, factor.lu_factor(xp, a)[2], _SINGULAR)
        raise OpError(f"{op}: {_SINGULAR}") from None
    x = x.astype(a.dtype, copy=False)
    return x[..., 0] if vector else x


@library(
    "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)"
    " -> (Tensor result, Tensor info)",
    half="native",
)
def linalg_solve_ex(xp: Any, a: Array, b: Array, left: bool, check_errors: bool) -> tuple[Array, Array]:
    """Solutions, and for each matrix the step that found no pivot (0: none)."""
    x, _, _, info = _solve(xp, "aten::linalg_solve_ex", a, b, left, check_errors)
    return x, info


@library(
    "aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)"
    " -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)",
    half="native",
)
def linalg_solve_ex_lu(
    xp: Any, a: Array, b: Array, left: bool, check_errors: bool
) -> tuple[Array, Array, Array, Array]:
    """Solutions, the LU factorisation they come from, and its report."""
    return _solve(xp, "aten::_linalg_solve_ex", a, b, left, check_errors)


def _triangular(xp: Any, op: str, a: Array, b: Array, upper: bool, left: bool, unit: bool) -> Array:
    check_matrix(op, a, square=True)
    check_matrix(op, b, "B")
    check_pair(op, a, b)
    check_rows(op, a, b, left)
    fa, fb, batch = broadcast_batches(op, xp, a, b)
    if left:
        x = factor.solve_triangular(xp, fa, fb, upper, unit)
    else:
        x = transposed(factor.solve_triangular(xp, transposed(fa), transposed(fb), not upper, unit))
    return x.reshape((*batch, *b.shape[-2:]))


@library(
    "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, "
    "bool unitriangular=False) -> Tensor",
    out="out",
    half="native",
)
def linalg_solve_triangular(xp: Any, a: Array, b: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``), reading one triangle of A."""
    return _triangular(xp, "aten::linalg_solve_triangular", a, b, upper, left, unitriangular)


@library(
    "aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)"
    " -> (Tensor solution, Tensor cloned_coefficient)",
    half="native",
)
def triangular_solve(
    xp: Any, b: Array, a: Array, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Array, Array]:
    """X with ``A @ X = B`` (or with A transposed), and a copy of A broadcast like X."""
    op = "aten::triangular_solve"
    check_matrix(op, a, square=True)
    upper, used = (not upper, transposed(a)) if transpose else (upper, a)
    x = _triangular(xp, op, used, b, upper, True, unitriangular)
    return x, xp.broadcast_to(a, (*x.shape[:-2], *a.shape[-2:])).copy()


@library("aten::linalg_tensorinv(Tensor self, int ind=2) -> Tensor", out="out", half="native")
def linalg_tensorinv(xp: Any, a: Array, ind: int) -> Array:
    """The inverse of a tensor seen as a matrix from its first ``ind`` dims to the rest."""
    op = "aten::linalg_tensorinv"
    if ind <= 0:
        raise ShapeError(f"{op}: Expected a strictly positive integer for 'ind', found {ind}")
    front, back = a.shape[:ind], a.shape[ind:]
    if prod(front) != prod(back):
        raise ShapeError(f"{op}: the first {ind} dims of {a.shape} must hold as many elements as the others")
    return _inverse(xp, op, a.reshape(prod(front), prod(back)), True)[0].reshape(back + front)


@library("aten::linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor", out="out", half="native")
def linalg_tensorsolve(xp: Any, a: Array, b: Array, dims: Sequence[int] | None) -> Array:
    """X with ``tensordot(A, X, X.ndim) = B``; ``dims`` of A are moved to its end first."""
    op = "aten::linalg_tensorsolve"
    if dims is not None:
        order = wrap_dims(dims, a.ndim, op)
        a = a.transpose([*(d for d in range(a.ndim) if d not in order), *order])
    shape = a.shape[b.ndim :]
    if prod(shape) != prod(b.shape) or prod(a.shape[: b.ndim]) != prod(shape):
        raise ShapeError(f"{op}: A of shape {a.shape} and B of shape {b.shape} do not make a square system")
    return linalg_solve(xp, a.reshape(prod(shape), prod(shape)), b.reshape(-1), True).reshape(shape)


# ------------------------------------------------------------------------------------------------- least squares


@library(
    "aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None)"
    " -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
    half="native",
    type_rule=least_squares_type,
)
def linalg_lstsq(
    xp: Any, a: Array, b: Array, rcond: float | None, driver: str | None
) -> tuple[Array, Array, Array, Array]:
    """Solutions of least norm, squared residuals, ranks and singular values, as far as the driver gives them."""
    op = "aten::linalg_lstsq"
    check_matrix(op, a, "input")
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise OpError(f"{op}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), it is {driver!r}")
    check_pair(op, a, b)
    m, n = a.shape[-2:]
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    if vector:
        b = b[..., None]
    if b.ndim < 2 or b.shape[-2] != m:
        raise ShapeError(f"{op}: input.size(-2) should match other.size(-2), found shapes {a.shape} and {b.shape}")
    fa, fb, batch = broadcast_batches(op, xp, a, b)
    epsilon = float(np.finfo(a.dtype).eps)
    cut = epsilon * max(m, n) if rcond is None else rcond if rcond >= 0 else epsilon
    if a.size:
        u, s, vh = lapack(op, xp.linalg.svd, fa.astype(np.result_type(fa.dtype, np.float64)), full_matrices=False)
        keep = s > cut * s[:, :1] if driver != "gels" else s > 0
        weights = xp.where(keep, 1 / xp.where(keep, s, 1), 0)
        x = xp.matmul(adjoint(vh), weights[..., None] * xp.matmul(adjoint(u), fb))
        rank = keep.sum(axis=1)
    else:
        s = xp.zeros((fa.shape[0], min(m, n)), real_of(a.dtype))
        x = xp.zeros((fa.shape[0], n, b.shape[-1]), a.dtype)
        rank = xp.zeros(fa.shape[0], _INT64)
    full_rank = driver == "gels" or bool((rank == n).all())
    residuals = xp.empty((0,), real_of(a.dtype))
    if m > n and driver != "gelsy" and full_rank:
        rest = fb - xp.matmul(fa, x)
        residuals = (rest * rest.conj()).real.sum(axis=1).reshape((*batch, b.shape[-1])).astype(real_of(a.dtype))
    y = x.reshape((*batch, n, b.shape[-1])).astype(a.dtype, copy=False)
    ranks = xp.empty((0,), _INT64) if driver == "gels" else rank.reshape(batch).astype(_INT64)
    values = s.reshape((*batch, min(m, n))) if driver in ("gelsd", "gelss") else xp.empty((0,))
    return (y[..., 0] if vector else y), residuals, ranks, values.astype(real_of(a.dtype))


# ------------------------------------------------------------------------------------------ functions of matrices

# Coefficients of the [13/13] Pade approximant of exp, and the 1-norm up to which it is accurate in double precision.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM = 5.371920351148152


def _matrix_exp(xp: Any, op: str, a: Array) -> Array:
    """The exponentials of square matrices, by scaling and squaring.

    Source: Higham 2005, "The scaling and squaring method for the matrix exponential revisited".
    """
    check_matrix(op, a, square=True)
    if not a.size:
        return a.copy()
    x = flat(a).astype(np.result_type(a.dtype, np.float64))
    norm = abs(x).sum(axis=1).max(axis=1)
    with np.errstate(all="ignore"):
        powers = np.ceil(np.log2(norm / _PADE_NORM))
    squarings = np.where(np.isfinite(powers), np.maximum(powers, 0), 0).astype(np.int64)
    x = x * (0.5**squarings)[:, None, None]
    eye = xp.eye(x.shape[-1], dtype=x.dtype)
    x2 = xp.matmul(x, x)
    x4 = xp.matmul(x2, x2)
    x6 = xp.matmul(x4, x2)
    c = _PADE
    odd = xp.matmul(x6, c[13] * x6 + c[11] * x4 + c[9] * x2) + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * eye
    odd = xp.matmul(x, odd)
    even = xp.matmul(x6, c[12] * x6 + c[10] * x4 + c[8] * x2) + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * eye
    y = lapack(op, xp.linalg.solve, even - odd, even + odd)
    for i in range(int(squarings.max(initial=0))):
        more = squarings > i
        y[more] = xp.matmul(y[more], y[more])
    return y.astype(a.dtype).reshape(a.shape)


@library("aten::linalg_matrix_exp(Tensor self) -> Tensor", half="native", type_rule=inverse_type)
def linalg_matrix_exp(xp: Any, a: Array) -> Array:
    """The exponentials of square matrices."""
    return _matrix_exp(xp, "aten::linalg_matrix_exp", a)


@library("aten::matrix_exp(Tensor self) -> Tensor", half="native", type_rule=inverse_type)
def matrix_exp(xp: Any, a: Array) -> Array:
    """The exponentials of square matrices."""
    return _matrix_exp(xp, "aten::matrix_exp", a)


@library("aten::linalg_vander(Tensor x, *, int? N=None) -> Tensor")
def linalg_vander(xp: Any, x: Array, n: int | None) -> Array:
    """The powers 0 to ``N - 1`` of each element, along a new last dim."""
    op = "aten::linalg_vander"
    if x.dtype.kind == "b":
        raise DTypeError(f"{op}: x must be a number tensor, it is bool")
    if not x.ndim:
        x = x.reshape(1)
    count = x.shape[-1] if n is None else n
    if count <= 1 and n is not None:
        raise ShapeError(f"{op}: N must be greater than 1, found {count}")
    dtype = _INT64 if x.dtype.kind in "iu" else x.dtype
    y = xp.empty((*x.shape, count), dtype)
    if count:
        y[..., 0] = 1
    for i in range(1, count):
        xp.multiply(y[..., i - 1], x, out=y[..., i])
    return y


@view(
    "aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
    type_rule=diagonal_type,
)
def linalg_diagonal(xp: Any, a: Array, offset: int, dim1: int, dim2: int) -> Array:
    """A view of the diagonals of matrices."""
    return diagonal(xp, a, offset, dim1, dim2)


def _declare_out_forms() -> None:
    """The out= forms of operators with several results; the written arguments bear the results' names or their own."""
    rows = (
        ("linalg_inv_ex.inverse(Tensor A, *, bool check_errors=False", "linalg_inv_ex", ("inverse", "info"), None),
        ("_linalg_det.result(Tensor A, *", "_linalg_det", ("result", "LU", "pivots"), None),
        ("linalg_slogdet.out(Tensor A, *", "linalg_slogdet", ("sign", "logabsdet"), None),
        ("slogdet.out(Tensor self, *", "slogdet", ("sign", "logabsdet"), None),
        ("_linalg_slogdet.sign(Tensor A, *", "_linalg_slogdet", ("sign", "logabsdet", "LU", "pivots"), None),
        (
            "linalg_solve_ex.out(Tensor A, Tensor B, *, bool left=True, bool check_errors=False",
            "linalg_solve_ex", ("result", "info"), None,
        ),
        (
            "_linalg_solve_ex.result(Tensor A, Tensor B, *, bool left=True, bool check_errors=False",
            "_linalg_solve_ex", ("result", "LU", "pivots", "info"), None,
        ),
        (
            "triangular_solve.X(Tensor self, Tensor A, bool upper=True, bool transpose=False, "
            "bool unitriangular=False, *",
            "triangular_solve", ("X", "M"), ("solution", "cloned_coefficient"),
        ),
        (
            "linalg_lu_factor_ex.out(Tensor A, *, bool pivot=True, bool check_errors=False",
            "linalg_lu_factor_ex", ("LU", "pivots", "info"), None,
        ),
        ("linalg_lu_factor.out(Tensor A, *, bool pivot=True", "linalg_lu_factor", ("LU", "pivots"), None),
        ("linalg_lu.out(Tensor A, *, bool pivot=True", "linalg_lu", ("P", "L", "U"), None),
        (
            "lu_unpack.out(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True, *",
            "lu_unpack", ("P", "L", "U"), None,
        ),
        (
            "linalg_ldl_factor_ex.out(Tensor self, *, bool hermitian=False, bool check_errors=False",
            "linalg_ldl_factor_ex", ("LD", "pivots", "info"), None,
        ),
        ("linalg_ldl_factor.out(Tensor self, *, bool hermitian=False", "linalg_ldl_factor", ("LD", "pivots"), None),
        (
            "linalg_cholesky_ex.L(Tensor self, *, bool upper=False, bool check_errors=False",
            "linalg_cholesky_ex", ("L", "info"), None,
        ),
        ('linalg_qr.out(Tensor A, str mode="reduced", *', "linalg_qr", ("Q", "R"), None),
        ("qr.Q(Tensor self, bool some=True, *", "qr", ("Q", "R"), None),
        ("geqrf.a(Tensor self, *", "geqrf", ("a", "tau"), None),
        ("linalg_eig.out(Tensor self, *", "linalg_eig", ("eigenvalues", "eigenvectors"), None),
        (
            'linalg_eigh.eigvals(Tensor self, str UPLO="L", *', "linalg_eigh", ("eigvals", "eigvecs"),
            ("eigenvalues", "eigenvectors"),
        ),
        (
            '_linalg_eigh.eigenvalues(Tensor A, str UPLO="L", bool compute_v=True, *', "_linalg_eigh",
            ("eigenvalues", "eigenvectors"), None,
        ),
        (
            "linalg_svd.U(Tensor A, bool full_matrices=True, *, str? driver=None", "linalg_svd", ("U", "S", "Vh"), None,
        ),
        (
            "_linalg_svd.U(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None",
            "_linalg_svd", ("U", "S", "Vh"), None,
        ),
        ("svd.U(Tensor self, bool some=True, bool compute_uv=True, *", "svd", ("U", "S", "V"), None),
        (
            "linalg_lstsq.out(Tensor self, Tensor b, float? rcond=None, *, str? driver=None",
            "linalg_lstsq", ("solution", "residuals", "rank", "singular_values"), None,
        ),
    )  # fmt: skip
    for head, functional, written, names in rows:
        marks = "abcd"
        outs = ", ".join(f"Tensor({m}!) {w}" for m, w in zip(marks, written))
        returns = ", ".join(f"Tensor({m}!) {w}" for m, w in zip(marks, names or written))
        out_form(f"aten::{head}, {outs}) -> ({returns})", f"aten::{functional}")
    out_form("aten::linalg_matrix_exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten::linalg_matrix_exp")


_declare_out_forms()
