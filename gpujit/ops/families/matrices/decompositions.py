"""Factorisations of matrices: LU, LDL, Cholesky, QR, eigenvalues, singular values.

NumPy's LAPACK does the work where it can, in double precision whatever the input; results come back in the input's
precision. What NumPy lacks is in ``factor``.
"""

from __future__ import annotations

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
from gpujit.ops.promotion import COMPLEX64, COMPLEX128, real_of
from gpujit.ops.registry import library
from gpujit.support.errors import OpError, ShapeError

_INT32 = np.dtype(np.int32)
_NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {} is not positive-definite)."
)


def complex_of(dtype: Any) -> Any:
    """The complex dtype of the same precision."""
    return COMPLEX64 if dtype.itemsize == 4 or dtype == COMPLEX64 else COMPLEX128


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


@library(
    "aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True)"
    " -> (Tensor LU, Tensor pivots, Tensor info)",
    half="native",
)
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
def lu_unpack(xp: Any, lu: Array, pivots: Array, unpack_data: bool, unpack_pivots: bool) -> tuple[Array, Array, Array]:
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


@library(
    "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
    out="out",
    half="native",
)
def linalg_lu_solve(xp: Any, lu: Array, pivots: Array, b: Array, left: bool, adjoint: bool) -> Array:
    """X with ``A @ X = B`` (or ``X @ A = B``, or A's adjoint) from A's factorisation."""
    return solve_from_lu(xp, "aten::linalg_lu_solve", lu, pivots, b, left, adjoint)


@library("aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", out="out", half="native")
def lu_solve(xp: Any, b: Array, lu: Array, pivots: Array) -> Array:
    """X with ``A @ X = B`` from A's factorisation."""
    return solve_from_lu(xp, "aten::lu_solve", lu, pivots, b, True, False)


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
    check_rows(op, ld, b, True)
    if pivots.shape != ld.shape[:-1]:
        raise ShapeError(f"{op}: pivots of shape {pivots.shape} do not fit LD of shape {ld.shape}")
    n = ld.shape[-1]
    if pivots.size and int(abs(pivots).max()) > n:
        raise ShapeError(f"{op}: pivots name row {int(abs(pivots).max())}, LD has rows 1 to {n}")
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
    check_rows(op, a, b, True)
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
    if (
        a.shape[-2] < a.shape[-1]
        or tau.ndim != a.ndim - 1
        or tau.shape[:-1] != a.shape[:-2]
        or tau.shape[-1] > a.shape[-1]
    ):
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
    if (
        other.shape[-2 if left else -1] != a.shape[-2]
        or other.shape[:-2] != a.shape[:-2]
        or tau.ndim != a.ndim - 1
        or tau.shape[:-1] != a.shape[:-2]
        or tau.shape[-1] > min(a.shape[-2:])
    ):
        raise ShapeError(
            f"{op}: input {a.shape}, tau {tau.shape} and other {other.shape} do not fit; tau holds one number for each "
            f"column of input, and other has {a.shape[-2]} {'rows' if left else 'columns'}"
        )
    return factor.reflect(xp, flat(a), flat(tau, 1), flat(other), left, transpose).reshape(other.shape)


# ------------------------------------------------------------------------------------------------- eigenvalues


@library("aten::linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)", half="native")
def linalg_eig(xp: Any, a: Array) -> tuple[Array, Array]:
    """Complex eigenvalues and eigenvectors of square matrices, in no order."""
    check_matrix("aten::linalg_eig", a, square=True)
    dtype = complex_of(a.dtype)
    values, vectors = lapack("aten::linalg_eig", xp.linalg.eig, a)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _eigvals(xp: Any, op: str, a: Array) -> Array:
    check_matrix(op, a, square=True)
    return lapack(op, xp.linalg.eigvals, a).astype(complex_of(a.dtype), copy=False)


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
    values, vectors = lapack(op, xp.linalg.eigh, a, UPLO=_check_uplo(op, uplo))
    return values.astype(real_of(a.dtype), copy=False), vectors.astype(a.dtype, copy=False)


def _eigvalsh(xp: Any, op: str, a: Array, uplo: str) -> Array:
    check_matrix(op, a, square=True)
    return lapack(op, xp.linalg.eigvalsh, a, UPLO=_check_uplo(op, uplo)).astype(real_of(a.dtype), copy=False)


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
    u, s, vh = lapack(op, xp.linalg.svd, a, full_matrices=full)
    return u.astype(a.dtype, copy=False), s.astype(real_of(a.dtype), copy=False), vh.astype(a.dtype, copy=False)


def singular_values(xp: Any, op: str, a: Array) -> Array:
    """Descending singular values."""
    check_matrix(op, a)
    if not a.size:
        return xp.zeros((*a.shape[:-2], min(a.shape[-2:])), real_of(a.dtype))
    return lapack(op, xp.linalg.svd, a, compute_uv=False).astype(real_of(a.dtype), copy=False)


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


@library(
    "aten::svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)", half="native"
)
def svd(xp: Any, a: Array, some: bool, compute_uv: bool) -> tuple[Array, Array, Array]:
    """U, descending S and V (not its adjoint); U and V are zeros when not asked for."""
    if compute_uv:
        u, s, vh = svd_of(xp, "aten::svd", a, not some)
        return u, s, adjoint(vh)
    s = singular_values(xp, "aten::svd", a)
    m, n = a.shape[-2:]
    return xp.zeros((*a.shape[:-2], m, m), a.dtype), s, xp.zeros((*a.shape[:-2], n, n), a.dtype)
