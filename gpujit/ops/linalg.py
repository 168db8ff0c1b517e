"""Linear algebra: determinants, inverses, solves, factorisations, eigenvalues, singular values.

NumPy's LAPACK does the work where it can, in double precision whatever the input; results come back in the input's
precision. What NumPy lacks is in ``factor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops import factor
from gpujit.ops.factor import adjoint, broadcast_batches, check_matrix, check_pair, flat, transposed
from gpujit.ops.promotion import COMPLEX64, COMPLEX128, real_of
from gpujit.ops.registry import library, out_form, view
from gpujit.ops.views import diagonal
from gpujit.support.errors import DTypeError, OpError, ShapeError

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


def complex_of(dtype: Any) -> Any:
    """The complex dtype of the same precision."""
    return COMPLEX64 if dtype.itemsize == 4 or dtype == COMPLEX64 else COMPLEX128


def check_info(op: str, info: Array, what: str) -> None:
    """Raise OpError for the first matrix of a batch that failed; ``what`` has a place for the number reported."""
    if not info.any():
        return
    bad = int(np.flatnonzero(info.reshape(-1))[0])
    where = f"(Batch element {bad}): " if info.ndim else ""
    raise OpError(f"{op}: {where}{what.format(int(info.reshape(-1)[bad]))}")


_SINGULAR = "The solver failed because the input matrix is singular."
_NO_INVERSE = "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."
_NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {} is not positive-definite)."
)


# ------------------------------------------------------------------------------------------------- inverse, determinant


def _lu_either_way(xp: Any, a: Array) -> tuple[Array, Array, Array, bool]:
    """The LU factorisation of ``a`` or of its transpose, and whether it is the latter.

    PyTorch factors the transpose of a real matrix that lies row by row, which LAPACK reads without a copy.
    """
    turned = a.flags.c_contiguous and a.dtype.kind == "f"
    return *factor.lu_factor(xp, transposed(a) if turned else a), turned


def _inverse(xp: Any, op: str, a: Array, check: bool) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    info = np.zeros(a.shape[:-2], _INT32)
    try:
        return xp.linalg.inv(a).astype(a.dtype, copy=False), info
    except ValueError:  # numpy.linalg.LinAlgError is one
        lu, pivots, info, turned = _lu_either_way(xp, a)
    if check:
        check_info(op, info, _NO_INVERSE)
    eye = xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return factor.lu_solve(xp, flat(lu), flat(pivots, 1), flat(eye), turned).reshape(a.shape), info


def _declare_inverse(name: str, argument: str) -> None:
    op = f"aten::{name}"

    @library(f"{op}(Tensor {argument}) -> Tensor", out="out", half="native")
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


def _det(xp: Any, op: str, a: Array) -> Array:
    check_matrix(op, a, square=True)
    return xp.asarray(xp.linalg.det(a), dtype=a.dtype)


@library("aten::linalg_det(Tensor A) -> Tensor", out="out", half="native")
def linalg_det(xp: Any, a: Array) -> Array:
    """The determinants of square matrices."""
    return _det(xp, "aten::linalg_det", a)


@library("aten::det(Tensor self) -> Tensor", half="native")
def det(xp: Any, a: Array) -> Array:
    """The determinants of square matrices."""
    return _det(xp, "aten::linalg_det", a)


@library("aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", half="native")
def linalg_det_lu(xp: Any, a: Array) -> tuple[Array, Array, Array]:
    """The determinants, and the LU factorisation they are read from."""
    y = _det(xp, "aten::_linalg_det", a)
    lu, pivots, _, _ = _lu_either_way(xp, a)
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
    lu, pivots, _, _ = _lu_either_way(xp, a)
    return sign, log, lu, pivots


@library("aten::logdet(Tensor self) -> Tensor", half="native")
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


def _check_rows(op: str, a: Array, b: Array, left: bool) -> None:
    have = b.shape[-2] if left else b.shape[-1]
    if have != a.shape[-1]:
        raise ShapeError(f"{op}: Incompatible shapes of A and B for the equation: {a.shape} and {b.shape}")


def _solve(xp: Any, op: str, a: Array, b: Array, left: bool, check: bool) -> tuple[Array, Array, Array, Array]:
    """Solution, LU, pivots and report."""
    check_matrix(op, a, square=True)
    b, vector = _as_columns(op, a, b)
    if vector and not left:
        raise ShapeError(f"{op}: Vector broadcasting of the left hand side is not supported for left=False")
    _check_rows(op, a, b, left)
    lu, pivots, info, turned = _lu_either_way(xp, a)
    if check:
        check_info(op, info, _SINGULAR)
    y = _lu_solve(xp, op, lu, pivots, b, left, turned)
    return (y[..., 0] if vector else y), lu, pivots, info


@library("aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", out="out", half="native")
def linalg_solve(xp: Any, a: Array, b: Array, left: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``). Raises OpError for a singular matrix."""
    op = "aten::linalg_solve"
    check_matrix(op, a, square=True)
    columns, vector = _as_columns(op, a, b)
    if vector and not left:
        raise ShapeError(f"{op}: Vector broadcasting of the left hand side is not supported for left=False")
    _check_rows(op, a, columns, left)
    try:
        np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    except ValueError:
        raise ShapeError(f"{op}: batch dims of shapes {a.shape} and {b.shape} do not broadcast") from None
    try:
        x = xp.linalg.solve(a, columns) if left else transposed(xp.linalg.solve(transposed(a), transposed(columns)))
    except ValueError:  # numpy.linalg.LinAlgError is one
        check_info(op, _lu_either_way(xp, a)[2], _SINGULAR)
        raise OpError(f"{op}: {_SINGULAR}") from None
    x = x.astype(a.dtype, copy=False)
    return x[..., 0] if vector else x


@library(
    "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
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
    _check_rows(op, a, b, left)
    fa, fb, batch = broadcast_batches(op, xp, a, b)
    if left:
        x = factor.solve_triangular(xp, fa, fb, upper, unit)
    else:
        x = transposed(factor.solve_triangular(xp, transposed(fa), transposed(fb), not upper, unit))
    return x.reshape((*batch, *b.shape[-2:]))


@library(
    "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
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
        a = xp.moveaxis(a, list(dims), range(a.ndim - len(dims), a.ndim))
    shape = a.shape[b.ndim :]
    if prod(shape) != prod(b.shape):
        raise ShapeError(f"{op}: A of shape {a.shape} and B of shape {b.shape} do not make a square system")
    return linalg_solve(xp, a.reshape(prod(shape), prod(shape)), b.reshape(-1), True).reshape(shape)


# ------------------------------------------------------------------------------------------------- LU


def _no_pivot(op: str, pivot: bool) -> None:
    if not pivot:
        raise OpError(f"{op}: LU without pivoting is not implemented on the CPU")


@library(
    "aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)"
    " -> (Tensor LU, Tensor pivots, Tensor info)",
    half="native",
)
def linalg_lu_factor_ex(xp: Any, a: Array, pivot: bool, check_errors: bool) -> tuple[Array, Array, Array]:
    """L and U in one array, the rows swapped (from 1), and the first step without a pivot (0: none)."""
    op = "aten::linalg_lu_factor_ex"
    check_matrix(op, a)
    _no_pivot(op, pivot)
    lu, pivots, info = factor.lu_factor(xp, a)
    if check_errors:
        check_info(op, info, "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.")
    return lu, pivots, info


@library("aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", half="native")
def linalg_lu_factor(xp: Any, a: Array, pivot: bool) -> tuple[Array, Array]:
    """L and U in one array, and the rows swapped (from 1). Raises OpError for a singular matrix."""
    op = "aten::linalg_lu_factor"
    check_matrix(op, a)
    _no_pivot(op, pivot)
    lu, pivots, info = factor.lu_factor(xp, a)
    check_info(op, info, "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.")
    return lu, pivots


@library("aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots, Tensor info)",
         half="native")  # fmt: skip
def lu_with_info(xp: Any, a: Array, pivot: bool, check_errors: bool) -> tuple[Array, Array, Array]:
    """L and U in one array, the rows swapped, and the report (old name)."""
    lu, pivots, info = linalg_lu_factor_ex(xp, a, pivot, check_errors)
    return lu, pivots, info


@library("aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", half="native")
def linalg_lu(xp: Any, a: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """P, L and U with ``P @ L @ U = A``."""
    check_matrix("aten::linalg_lu", a)
    _no_pivot("aten::linalg_lu", pivot)
    lu, pivots, _ = factor.lu_factor(xp, a)
    return factor.lu_unpack(xp, lu, pivots)


@library(
    "aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True)"
    " -> (Tensor P, Tensor L, Tensor U)",
    half="native",
)
def lu_unpack(
    xp: Any, lu: Array, pivots: Array, unpack_data: bool, unpack_pivots: bool
) -> tuple[Array, Array, Array]:
    """P, L and U of a factorisation; what is not asked for is empty."""
    op = "aten::lu_unpack"
    check_matrix(op, lu, "LU_data")
    nothing = xp.empty((0,), lu.dtype)
    if unpack_pivots:
        factor.check_pivots(op, lu, pivots)
        p, lower, upper = factor.lu_unpack(xp, lu, pivots)
    else:
        k = min(lu.shape[-2:])
        first = xp.broadcast_to(xp.arange(1, k + 1, dtype=_INT32), (*lu.shape[:-2], k))
        p, lower, upper = factor.lu_unpack(xp, lu, first)
    return (p if unpack_pivots else nothing), (lower if unpack_data else nothing), (upper if unpack_data else nothing)


def _lu_solve(xp: Any, op: str, lu: Array, pivots: Array, b: Array, left: bool, adjoint_: bool) -> Array:
    check_matrix(op, lu, "LU", square=True)
    check_matrix(op, b, "B")
    check_pair(op, lu, b)
    factor.check_pivots(op, lu, pivots)
    _check_rows(op, lu, b, left)
    fl, fb, batch = broadcast_batches(op, xp, lu, b)
    fp = flat(xp.broadcast_to(pivots, (*batch, pivots.shape[-1])), 1)
    if left:
        return factor.lu_solve(xp, fl, fp, fb, adjoint_).reshape((*batch, *b.shape[-2:]))
    # X @ A = B is A's adjoint times X's adjoint.
    return adjoint(factor.lu_solve(xp, fl, fp, adjoint(fb), not adjoint_)).reshape((*batch, *b.shape[-2:]))


@library(
    "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
    out="out",
    half="native",
)
def linalg_lu_solve(xp: Any, lu: Array, pivots: Array, b: Array, left: bool, adjoint: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``, or A's adjoint) from A's factorisation."""
    return _lu_solve(xp, "aten::linalg_lu_solve", lu, pivots, b, left, adjoint)


@library("aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", out="out", half="native")
def lu_solve(xp: Any, b: Array, lu: Array, pivots: Array) -> Array:
    """X with ``A @ X = B`` from A's factorisation."""
    return _lu_solve(xp, "aten::lu_solve", lu, pivots, b, True, False)


# ------------------------------------------------------------------------------------------------- LDL


@library(
    "aten::linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False)"
    " -> (Tensor LD, Tensor pivots, Tensor info)",
    half="native",
)
def linalg_ldl_factor_ex(xp: Any, a: Array, hermitian: bool, check_errors: bool) -> tuple[Array, Array, Array]:
    """L and D in one array, pivots as LAPACK counts them, and the first step without a pivot (0: none)."""
    op = "aten::linalg_ldl_factor_ex"
    check_matrix(op, a, square=True)
    ld, pivots, info = factor.ldl_factor(xp, xp.tril(flat(a)), hermitian and a.dtype.kind == "c")
    info = info.reshape(a.shape[:-2])
    if check_errors:
        check_info(op, info, "D[{0},{0}] is zero and using it on ldl_solve would result in a division by zero.")
    return ld.reshape(a.shape), pivots.reshape(a.shape[:-1]), info


@library("aten::linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)", half="native")
def linalg_ldl_factor(xp: Any, a: Array, hermitian: bool) -> tuple[Array, Array]:
    """L and D in one array, and pivots as LAPACK counts them."""
    ld, pivots, _ = linalg_ldl_factor_ex(xp, a, hermitian, True)
    return ld, pivots


@library(
    "aten::linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
    out="out",
    half="native",
)
def linalg_ldl_solve(xp: Any, ld: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """X with ``A @ X = B`` from A's factorisation by ``linalg_ldl_factor``."""
    op = "aten::linalg_ldl_solve"
    check_matrix(op, ld, "LD", square=True)
    check_matrix(op, b, "B")
    check_pair(op, ld, b)
    _check_rows(op, ld, b, True)
    if pivots.shape != ld.shape[:-1]:
        raise ShapeError(f"{op}: pivots of shape {pivots.shape} do not fit LD of shape {ld.shape}")
    fl, fb, batch = broadcast_batches(op, xp, ld, b)
    fp = flat(xp.broadcast_to(pivots, (*batch, pivots.shape[-1])), 1)
    x = factor.ldl_solve(xp, fl, fp, fb, hermitian and ld.dtype.kind == "c")
    return x.reshape((*batch, *b.shape[-2:]))


# ------------------------------------------------------------------------------------------------- Cholesky


def _cholesky(xp: Any, op: str, a: Array, upper: bool, check: bool) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    lower, info = factor.cholesky(xp, flat(adjoint(a) if upper else a))
    info = info.reshape(a.shape[:-2])
    if check:
        check_info(op, info, _NOT_POSITIVE)
    y = lower.astype(a.dtype, copy=False).reshape(a.shape)
    return (adjoint(y) if upper else y), info


@library("aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", out="out", half="native")
def linalg_cholesky(xp: Any, a: Array, upper: bool) -> Array:
    """Lower factors L with ``L @ L.mH = A`` (or upper ones). Raises OpError when A is not positive-definite."""
    return _cholesky(xp, "aten::linalg_cholesky", a, upper, True)[0]


@library("aten::cholesky(Tensor self, bool upper=False) -> Tensor", out="out", half="native")
def cholesky(xp: Any, a: Array, upper: bool) -> Array:
    """Lower factors L with ``L @ L.mH = A`` (or upper ones). Raises OpError when A is not positive-definite."""
    return _cholesky(xp, "aten::cholesky", a, upper, True)[0]


@library(
    "aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
    half="native",
)
def linalg_cholesky_ex(xp: Any, a: Array, upper: bool, check_errors: bool) -> tuple[Array, Array]:
    """Cholesky factors, and for each matrix the order of the first minor that is not positive (0: all are)."""
    return _cholesky(xp, "aten::linalg_cholesky_ex", a, upper, check_errors)


def _cholesky_solve(xp: Any, op: str, b: Array, a: Array, upper: bool) -> Array:
    check_matrix(op, a, square=True)
    check_matrix(op, b, "B")
    check_pair(op, a, b)
    _check_rows(op, a, b, True)
    fa, fb, batch = broadcast_batches(op, xp, a, b)
    first = adjoint(fa) if upper else fa
    x = factor.solve_triangular(xp, first, fb, False, False)
    return factor.solve_triangular(xp, adjoint(first), x, True, False).reshape((*batch, *b.shape[-2:]))


@library("aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor", out="out", half="native")
def cholesky_solve(xp: Any, b: Array, a: Array, upper: bool) -> Array:
    """X with ``A @ X = B``, given A's Cholesky factor."""
    return _cholesky_solve(xp, "aten::cholesky_solve", b, a, upper)


@library("aten::_cholesky_solve_helper(Tensor self, Tensor A, bool upper) -> Tensor", out="out", half="native")
def cholesky_solve_helper(xp: Any, b: Array, a: Array, upper: bool) -> Array:
    """X with ``A @ X = B``, given A's Cholesky factor."""
    return _cholesky_solve(xp, "aten::_cholesky_solve_helper", b, a, upper)


@library("aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor", out="out", half="native")
def cholesky_inverse(xp: Any, a: Array, upper: bool) -> Array:
    """The inverses of the matrices whose Cholesky factors these are."""
    check_matrix("aten::cholesky_inverse", a, square=True)
    eye = xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _cholesky_solve(xp, "aten::cholesky_inverse", eye, a, upper)


# ------------------------------------------------------------------------------------------------- QR


def _qr(xp: Any, op: str, a: Array, mode: str) -> tuple[Array, Array]:
    check_matrix(op, a)
    if mode not in ("reduced", "complete", "r"):
        raise OpError(f"{op}: received unrecognized mode '{mode}' but expected one of 'reduced', 'r', or 'complete'")
    m, n = a.shape[-2:]
    if not a.size:
        k = m if mode == "complete" else min(m, n)
        q = xp.zeros((*a.shape[:-2], m, k), a.dtype)
        if mode == "complete":
            q[..., xp.arange(m), xp.arange(m)] = 1
        r = xp.zeros((*a.shape[:-2], k, n), a.dtype)
        return (xp.empty((0,), a.dtype) if mode == "r" else q), r
    if mode == "r":
        return xp.empty((0,), a.dtype), xp.linalg.qr(a, mode="r").astype(a.dtype, copy=False)
    q, r = xp.linalg.qr(a, mode=mode)
    return q.astype(a.dtype, copy=False), r.astype(a.dtype, copy=False)


@library('aten::linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)', half="native")
def linalg_qr(xp: Any, a: Array, mode: str) -> tuple[Array, Array]:
    """Q with orthonormal columns and upper triangular R with ``Q @ R = A``; mode ``r`` leaves Q empty."""
    return _qr(xp, "aten::linalg_qr", a, mode)


@library("aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)", half="native")
def qr(xp: Any, a: Array, some: bool) -> tuple[Array, Array]:
    """Q and R with ``Q @ R = A``; Q is square unless ``some``."""
    return _qr(xp, "aten::qr", a, "reduced" if some else "complete")


@library("aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)", half="native")
def geqrf(xp: Any, a: Array) -> tuple[Array, Array]:
    """R above, and the reflectors that make Q below the diagonal, with their factors."""
    check_matrix("aten::geqrf", a, "input")
    if not a.size:
        return a.copy(), xp.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    h, tau = xp.linalg.qr(a, mode="raw")
    return transposed(h).astype(a.dtype), tau.astype(a.dtype)


def _check_reflectors(op: str, a: Array, tau: Array) -> None:
    check_matrix(op, a, "input")
    check_pair(op, a, tau)
    if a.shape[-2] < a.shape[-1] or tau.ndim != a.ndim - 1 or tau.shape[:-1] != a.shape[:-2] or tau.shape[-1] > a.shape[-1]:
        raise ShapeError(f"{op}: input of shape {a.shape} and tau of shape {tau.shape} do not hold reflectors")


def _householder(xp: Any, op: str, a: Array, tau: Array) -> Array:
    _check_reflectors(op, a, tau)
    m, n = a.shape[-2:]
    fa = flat(a)
    eye = xp.broadcast_to(xp.eye(m, n, dtype=a.dtype), fa.shape)
    return factor.reflect(xp, fa, flat(tau, 1), eye, True, False).reshape(a.shape)


@library("aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor", out="out", half="native")
def linalg_householder_product(xp: Any, a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors."""
    return _householder(xp, "aten::linalg_householder_product", a, tau)


@library("aten::orgqr(Tensor self, Tensor input2) -> Tensor", out="out", half="native")
def orgqr(xp: Any, a: Array, tau: Array) -> Array:
    """The first columns of the product of reflectors (old name)."""
    return _householder(xp, "aten::orgqr", a, tau)


@library(
    "aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
    out="out",
    half="native",
)
def ormqr(xp: Any, a: Array, tau: Array, other: Array, left: bool, transpose: bool) -> Array:
    """``Q @ other`` or ``other @ Q`` (or with Q's adjoint), Q the product of reflectors."""
    op = "aten::ormqr"
    check_matrix(op, a, "input")
    check_matrix(op, other, "other")
    if other.shape[-2 if left else -1] != a.shape[-2] or other.shape[:-2] != a.shape[:-2] or tau.shape[:-1] != a.shape[:-2]:
        raise ShapeError(f"{op}: shapes {a.shape}, {tau.shape} and {other.shape} do not fit")
    return factor.reflect(xp, flat(a), flat(tau, 1), flat(other), left, transpose).reshape(other.shape)


# ------------------------------------------------------------------------------------------------- eigenvalues


@library("aten::linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)", half="native")
def linalg_eig(xp: Any, a: Array) -> tuple[Array, Array]:
    """Complex eigenvalues and eigenvectors of square matrices, in no order."""
    check_matrix("aten::linalg_eig", a, square=True)
    dtype = complex_of(a.dtype)
    values, vectors = _lapack("aten::linalg_eig", xp.linalg.eig, a)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _lapack(op: str, routine: Any, *args: Any, **options: Any) -> Any:
    try:
        return routine(*args, **options)
    except ValueError as e:  # numpy.linalg.LinAlgError is one
        raise OpError(f"{op}: {e}") from None


def _eigvals(xp: Any, op: str, a: Array) -> Array:
    check_matrix(op, a, square=True)
    return _lapack(op, xp.linalg.eigvals, a).astype(complex_of(a.dtype), copy=False)


@library("aten::linalg_eigvals(Tensor self) -> Tensor", out="out", half="native")
def linalg_eigvals(xp: Any, a: Array) -> Array:
    """Complex eigenvalues of square matrices, in no order."""
    return _eigvals(xp, "aten::linalg_eigvals", a)


@library("aten::_linalg_eigvals(Tensor self) -> Tensor", half="native")
def linalg_eigvals_inner(xp: Any, a: Array) -> Array:
    """Complex eigenvalues of square matrices, in no order."""
    return _eigvals(xp, "aten::linalg_eigvals", a)


def _check_uplo(op: str, uplo: str) -> str:
    if uplo.upper() not in ("L", "U"):
        raise OpError(f"{op}: Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    return uplo.upper()


def _eigh(xp: Any, op: str, a: Array, uplo: str) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    values, vectors = _lapack(op, xp.linalg.eigh, a, UPLO=_check_uplo(op, uplo))
    return values.astype(real_of(a.dtype), copy=False), vectors.astype(a.dtype, copy=False)


def _eigvalsh(xp: Any, op: str, a: Array, uplo: str) -> Array:
    check_matrix(op, a, square=True)
    return _lapack(op, xp.linalg.eigvalsh, a, UPLO=_check_uplo(op, uplo)).astype(real_of(a.dtype), copy=False)


@library('aten::linalg_eigh(Tensor self, str UPLO="L") -> (Tensor eigenvalues, Tensor eigenvectors)', half="native")
def linalg_eigh(xp: Any, a: Array, uplo: str) -> tuple[Array, Array]:
    """Ascending eigenvalues and eigenvectors of Hermitian matrices, read from one triangle."""
    return _eigh(xp, "aten::linalg_eigh", a, uplo)


@library(
    'aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)',
    half="native",
)
def linalg_eigh_inner(xp: Any, a: Array, uplo: str, compute_v: bool) -> tuple[Array, Array]:
    """Ascending eigenvalues, and eigenvectors unless they are not asked for."""
    if compute_v:
        return _eigh(xp, "aten::linalg_eigh", a, uplo)
    return _eigvalsh(xp, "aten::linalg_eigh", a, uplo), xp.empty((0,), a.dtype)


@library('aten::linalg_eigvalsh(Tensor self, str UPLO="L") -> Tensor', out="out", half="native")
def linalg_eigvalsh(xp: Any, a: Array, uplo: str) -> Array:
    """Ascending eigenvalues of Hermitian matrices, read from one triangle."""
    return _eigvalsh(xp, "aten::linalg_eigvalsh", a, uplo)


# ------------------------------------------------------------------------------------------------- singular values


def svd_of(xp: Any, op: str, a: Array, full: bool) -> tuple[Array, Array, Array]:
    """U, S and V's adjoint, in the input's precision."""
    check_matrix(op, a)
    m, n = a.shape[-2:]
    if not a.size:
        k = min(m, n)
        u = xp.zeros((*a.shape[:-2], m, m if full else k), a.dtype)
        vh = xp.zeros((*a.shape[:-2], n if full else k, n), a.dtype)
        for x in (u, vh):
            d = xp.arange(min(x.shape[-2:]))
            x[..., d, d] = 1
        return u, xp.zeros((*a.shape[:-2], k), real_of(a.dtype)), vh
    u, s, vh = _lapack(op, xp.linalg.svd, a, full_matrices=full)
    return u.astype(a.dtype, copy=False), s.astype(real_of(a.dtype), copy=False), vh.astype(a.dtype, copy=False)


def singular_values(xp: Any, op: str, a: Array) -> Array:
    """Descending singular values."""
    check_matrix(op, a)
    if not a.size:
        return xp.zeros((*a.shape[:-2], min(a.shape[-2:])), real_of(a.dtype))
    return _lapack(op, xp.linalg.svd, a, compute_uv=False).astype(real_of(a.dtype), copy=False)


def _check_driver(op: str, driver: str | None) -> None:
    if driver is not None:
        raise OpError(f"{op}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend")


@library(
    "aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
    half="native",
)
def linalg_svd(xp: Any, a: Array, full_matrices: bool, driver: str | None) -> tuple[Array, Array, Array]:
    """U, descending S and V's adjoint with ``U @ diag(S) @ Vh = A``."""
    _check_driver("aten::linalg_svd", driver)
    return svd_of(xp, "aten::linalg_svd", a, full_matrices)


@library(
    "aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None)"
    " -> (Tensor U, Tensor S, Tensor Vh)",
    half="native",
)
def linalg_svd_inner(
    xp: Any, a: Array, full_matrices: bool, compute_uv: bool, driver: str | None
) -> tuple[Array, Array, Array]:
    """U, S and Vh; U and Vh are empty when not asked for."""
    _check_driver("aten::linalg_svd", driver)
    if compute_uv:
        return svd_of(xp, "aten::linalg_svd", a, full_matrices)
    nothing = xp.empty((0,), a.dtype)
    return nothing, singular_values(xp, "aten::linalg_svd", a), nothing.copy()


@library("aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor", out="out", half="native")
def linalg_svdvals(xp: Any, a: Array, driver: str | None) -> Array:
    """Descending singular values."""
    _check_driver("aten::linalg_svdvals", driver)
    return singular_values(xp, "aten::linalg_svdvals", a)


@library("aten::svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)", half="native")
def svd(xp: Any, a: Array, some: bool, compute_uv: bool) -> tuple[Array, Array, Array]:
    """U, descending S and V (not its adjoint); U and V are zeros when not asked for."""
    if compute_uv:
        u, s, vh = svd_of(xp, "aten::svd", a, not some)
        return u, s, adjoint(vh)
    s = singular_values(xp, "aten::svd", a)
    m, n = a.shape[-2:]
    return xp.zeros((*a.shape[:-2], m, m), a.dtype), s, xp.zeros((*a.shape[:-2], n, n), a.dtype)


# ------------------------------------------------------------------------------------------------- least squares


@library(
    "aten::linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None)"
    " -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
    half="native",
)
def linalg_lstsq(
    xp: Any, a: Array, b: Array, rcond: float | None, driver: str | None
) -> tuple[Array, Array, Array, Array]:
    """Solutions of least norm, sums of squared residuals, ranks and singular values, as far as the driver gives them."""
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
        u, s, vh = _lapack(op, xp.linalg.svd, fa.astype(np.result_type(fa.dtype, np.float64)), full_matrices=False)
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


# ------------------------------------------------------------------------------------------------- functions of matrices

# Coefficients of the [13/13] Pade approximant of exp, and the 1-norm up to which it is accurate in double precision.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM = 5.371920351148152


def _matrix_exp(xp: Any, op: str, a: Array) -> Array:
    """Scaling and squaring. Source: Higham 2005, "The scaling and squaring method for the matrix exponential revisited"."""
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
    y = _lapack(op, xp.linalg.solve, even - odd, even + odd)
    for i in range(int(squarings.max(initial=0))):
        more = squarings > i
        y[more] = xp.matmul(y[more], y[more])
    return y.astype(a.dtype).reshape(a.shape)


@library("aten::linalg_matrix_exp(Tensor self) -> Tensor", half="native")
def linalg_matrix_exp(xp: Any, a: Array) -> Array:
    """The exponentials of square matrices."""
    return _matrix_exp(xp, "aten::linalg_matrix_exp", a)


@library("aten::matrix_exp(Tensor self) -> Tensor", half="native")
def matrix_exp(xp: Any, a: Array) -> Array:
    """The exponentials of square matrices."""
    return _matrix_exp(xp, "aten::matrix_exp", a)


@library("aten::linalg_vander(Tensor x, *, int? N=None) -> Tensor")
def linalg_vander(xp: Any, x: Array, n: int | None) -> Array:
    """The powers 0 to ``N - 1`` of each element, along a new last dim."""
    op = "aten::linalg_vander"
    if x.dtype.kind == "b":
        raise DTypeError(f"{op}: x must be a number tensor, it is bool")
    count = (x.shape[-1] if x.ndim else 1) if n is None else n
    if count <= 1 and n is not None:
        raise ShapeError(f"{op}: N must be greater than 1, found {count}")
    dtype = _INT64 if x.dtype.kind in "iu" else x.dtype
    y = xp.empty((*x.shape, count), dtype)
    if count:
        y[..., 0] = 1
    for i in range(1, count):
        xp.multiply(y[..., i - 1], x, out=y[..., i])
    return y


@view("aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)")
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
            "triangular_solve.X(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False, *",
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
