"""Norms of matrices and what is read from singular values: condition, rank, pseudo-inverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.families.matrices.decompositions import singular_values, svd_of
from gpujit.ops.families.matrices.distance import vector_norm, vector_norm_into
from gpujit.ops.families.matrices.factor import adjoint, check_matrix
from gpujit.ops.promotion import real_of
from gpujit.ops.registry import library, out_form
from gpujit.support.errors import DTypeError, OpError, ShapeError


def _two_dims(op: str, a: Array, dim: Sequence[int]) -> tuple[int, int]:
    if len(dim) != 2:
        raise ShapeError(f"{op}: dim must be a 2-tuple. Got {list(dim)}")
    if a.ndim < 2 or any(not -a.ndim <= d < a.ndim for d in dim):
        raise ShapeError(
            f"{op}: The input tensor A must have at least 2 dimensions holding dims {list(dim)}, it is {a.shape}"
        )
    i, j = dim[0] % a.ndim, dim[1] % a.ndim
    if i == j:
        raise ShapeError(f"{op}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return i, j


def _in_dtype(op: str, a: Array, dtype: int | None) -> Array:
    if dtype is not None:
        a = a.astype(numpy_dtype(dtype), copy=False)
    if a.dtype.kind not in "fcV":
        raise DTypeError(f"{op}: Expected a floating point or complex tensor as input, got {a.dtype}")
    return a


def _restore(y: Array, i: int, j: int, keepdim: bool) -> Array:
    if not keepdim:
        return y
    first, second = min(i, j), max(i, j)
    return y.reshape((*y.shape[:first], 1, *y.shape[first : second - 1], 1, *y.shape[second - 1 :]))


def _spectral(xp: Any, op: str, a: Array, kind: str, i: int, j: int, keepdim: bool) -> Array:
    rest = [d for d in range(a.ndim) if d not in (i, j)]
    s = singular_values(xp, op, a.transpose((*rest, i, j)))
    if kind != "nuc" and not s.shape[-1]:
        raise ShapeError(f"{op}: the norm of an empty matrix of shape {a.shape} has no singular value")
    y = s.sum(axis=-1) if kind == "nuc" else s.max(axis=-1) if kind == "2" else s.min(axis=-1)
    return _restore(xp.asarray(y, dtype=s.dtype), i, j, keepdim)


def _sums(xp: Any, op: str, a: Array, order: float, i: int, j: int, keepdim: bool) -> Array:
    added, picked = (j, i) if abs(order) == float("inf") else (i, j)
    y = xp.asarray(abs(a).sum(axis=added, keepdims=True))
    if not y.shape[picked]:
        raise ShapeError(f"{op}: the norm of order {order} of an empty matrix of shape {a.shape} does not exist")
    y = y.max(axis=picked, keepdims=True) if order > 0 else y.min(axis=picked, keepdims=True)
    return y if keepdim else y.reshape([n for d, n in enumerate(y.shape) if d not in (i, j)])


def matrix_norm(xp: Any, op: str, a: Array, order: Any, dim: Sequence[int], keepdim: bool, dtype: int | None) -> Array:
    """A norm over two dims: ``fro``, ``nuc``, or 1, -1, 2, -2, inf, -inf."""
    i, j = _two_dims(op, a, dim)
    a = _in_dtype(op, a, dtype)
    if order == "fro":
        return vector_norm(xp, a, 2.0, tuple(sorted((i, j))), keepdim, None, op)
    if order == "nuc":
        return _spectral(xp, op, a, "nuc", i, j, keepdim)
    if isinstance(order, str):
        raise OpError(f"{op}: Order {order} not supported.")
    order = float(order)
    if abs(order) == 2:
        return _spectral(xp, op, a, "2" if order > 0 else "-2", i, j, keepdim)
    if abs(order) in (1.0, float("inf")):
        return _sums(xp, op, a, order, i, j, keepdim)
    raise OpError(f"{op}: Order {order} not supported.")


_TAIL = "bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"


@library(f"aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], {_TAIL}", out="out")
def linalg_matrix_norm(xp: Any, a: Array, order: Any, dim: Sequence[int], keepdim: bool, dtype: int | None) -> Array:
    """A norm of matrices by its number."""
    return matrix_norm(xp, "aten::linalg_matrix_norm", a, order, dim, keepdim, dtype)


@library(f'aten::linalg_matrix_norm.str_ord(Tensor self, str ord="fro", int[] dim=[-2, -1], {_TAIL}', out="str_ord_out")
def linalg_matrix_norm_by_name(
    xp: Any, a: Array, order: str, dim: Sequence[int], keepdim: bool, dtype: int | None
) -> Array:
    """The Frobenius or the nuclear norm of matrices."""
    return matrix_norm(xp, "aten::linalg_matrix_norm", a, order, dim, keepdim, dtype)


def _norm_into(
    xp: Any, out: Array, a: Array, order: Any, dim: Sequence[int] | None, keepdim: bool, dtype: int | None
) -> Any:
    """Of vectors."""
    if order is not None and (a.ndim != 1 if dim is None else len(dim) != 1):
        return NotImplemented
    return vector_norm_into(xp, out, a, 2 if order is None else order, dim, keepdim, dtype)


@library(f"aten::linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, {_TAIL}", out="out", into=_norm_into)
def linalg_norm(xp: Any, a: Array, order: Any, dim: Sequence[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """A norm of vectors (over one dim) or of matrices (over two); of everything when no dim is named."""
    op = "aten::linalg_norm"
    if order is None:
        axes = None if dim is None else tuple(sorted(d % max(a.ndim, 1) for d in dim))
        return vector_norm(xp, a, 2.0, axes if a.ndim else None, keepdim, dtype, op)
    if dim is None:
        if a.ndim not in (1, 2):
            raise ShapeError(f"{op}: If dim is not specified but ord is, the input must be 1D or 2D. Got {a.ndim}D.")
        dim = [0] if a.ndim == 1 else [0, 1]
    if len(dim) == 1:
        return vector_norm(xp, a, float(order), (dim[0] % max(a.ndim, 1),) if a.ndim else None, keepdim, dtype, op)
    if len(dim) != 2:
        raise ShapeError(f"{op}: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    return matrix_norm(xp, op, a, order, dim, keepdim, dtype)


@library(f"aten::linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, {_TAIL}", out="ord_str_out")
def linalg_norm_by_name(
    xp: Any, a: Array, order: str, dim: Sequence[int] | None, keepdim: bool, dtype: int | None
) -> Array:
    """The Frobenius or the nuclear norm of matrices."""
    op = "aten::linalg_norm"
    if dim is None:
        if a.ndim != 2:
            raise ShapeError(f"{op}: the norm {order!r} needs a matrix when dim is not specified, found {a.ndim} dims")
        dim = [0, 1]
    return matrix_norm(xp, op, a, order, dim, keepdim, dtype)


@library("aten::nuclear_norm(Tensor self, bool keepdim=False) -> Tensor", out="out")
def nuclear_norm(xp: Any, a: Array, keepdim: bool) -> Array:
    """The sum of a matrix's singular values."""
    return matrix_norm(xp, "aten::nuclear_norm", a, "nuc", (-2, -1), keepdim, None)


@library("aten::nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor", out="dim_out")
def nuclear_norm_over(xp: Any, a: Array, dim: Sequence[int], keepdim: bool) -> Array:
    """The sums of singular values of the matrices over two dims."""
    return matrix_norm(xp, "aten::nuclear_norm", a, "nuc", dim, keepdim, None)


@library(
    "aten::linalg__powsum(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor"
)
def linalg_powsum(xp: Any, a: Array, order: Any, dim: Any, keepdim: bool, dtype: int | None) -> Array:
    """The sum of ``|x| ** ord`` over ``dim``."""
    a = _in_dtype("aten::linalg__powsum", a, dtype)
    axes = None if dim is None or not a.ndim else tuple(d % a.ndim for d in dim)
    return xp.asarray((abs(a) ** real_of(a.dtype).type(order)).sum(axis=axes, keepdims=keepdim))


# ------------------------------------------------------------------------------------------------- condition


def _condition(xp: Any, a: Array, p: Any) -> Array:
    op = "aten::linalg_cond"
    check_matrix(op, a)
    real = real_of(a.dtype)
    if p is None or (not isinstance(p, str) and abs(float(p)) == 2):
        s = singular_values(xp, op, a)
        if not s.shape[-1]:
            return xp.zeros(a.shape[:-2], real)
        low, high = s[..., -1], s[..., 0]
        return xp.asarray(high / low if p is None or float(p) > 0 else low / high, dtype=real)
    check_matrix(op, a, square=True)
    if not a.size:
        return xp.zeros(a.shape[:-2], real)
    norm = matrix_norm(xp, op, a, p, (-2, -1), False, None)
    if not isinstance(p, str) and float(p) not in (1.0, -1.0, float("inf"), float("-inf")):
        raise OpError(f"{op}: got an invalid norm type: {p}")
    singular = None
    try:
        inverse = xp.linalg.inv(a)
    except ValueError:  # numpy.linalg.LinAlgError is one
        singular = xp.asarray(xp.linalg.det(a) == 0)
        safe = xp.where(singular[..., None, None], xp.eye(a.shape[-1], dtype=a.dtype), a)
        inverse = xp.linalg.inv(safe)
    y = norm * matrix_norm(xp, op, inverse.astype(a.dtype, copy=False), p, (-2, -1), False, None)
    return y if singular is None else xp.where(singular, real.type(xp.inf), y)


@library("aten::linalg_cond(Tensor self, Scalar? p=None) -> Tensor", out="out", half="native")
def linalg_cond(xp: Any, a: Array, p: Any) -> Array:
    """The condition numbers of matrices in a norm (by default the spectral one); infinite for singular ones."""
    return _condition(xp, a, p)


@library("aten::linalg_cond.p_str(Tensor self, str p) -> Tensor", out="p_str_out", half="native")
def linalg_cond_by_name(xp: Any, a: Array, p: str) -> Array:
    """The condition numbers of matrices in the Frobenius or the nuclear norm."""
    return _condition(xp, a, p)


# ------------------------------------------------------------------------------------------------- rank, pseudo-inverse


def _hermitian_parts(xp: Any, op: str, a: Array) -> tuple[Array, Array]:
    check_matrix(op, a, square=True)
    values, vectors = xp.linalg.eigh(a)
    return values.astype(real_of(a.dtype)), vectors.astype(a.dtype)


def _cut(xp: Any, a: Array, largest: Array, atol: Any, rtol: Any) -> Array:
    """What a singular value must exceed to count; tolerances are numbers, arrays over the batch, or None."""
    real = real_of(a.dtype)
    if rtol is None:
        # A positive absolute tolerance replaces the default relative one.
        default = real.type(np.finfo(a.dtype).eps * max(a.shape[-2:]))
        rtol = default if atol is None else xp.where(xp.asarray(atol) > 0, real.type(0), default)
    absolute = xp.asarray(0.0 if atol is None else atol, dtype=real)
    return xp.maximum(absolute, xp.asarray(rtol, dtype=real) * largest)


def _rank(xp: Any, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    op = "aten::linalg_matrix_rank"
    for name, t in (("atol", atol), ("rtol", rtol)):
        if getattr(getattr(t, "dtype", None), "kind", "f") == "c":
            raise DTypeError(f"{op}: {name} tensor of complex type is not supported.")
    s = abs(_hermitian_parts(xp, op, a)[0]) if hermitian else singular_values(xp, op, a)
    if not s.shape[-1]:
        return xp.zeros(a.shape[:-2], np.int64)
    cut = _cut(xp, a, s.max(axis=-1), atol, rtol)
    return xp.asarray((s > cut[..., None]).sum(axis=-1), dtype=np.int64)


_RANK = "aten::linalg_matrix_rank"


@library(f"{_RANK}(Tensor self, float tol, bool hermitian=False) -> Tensor", half="native")
def linalg_matrix_rank(xp: Any, a: Array, tol: float, hermitian: bool) -> Array:
    """The number of singular values above ``tol``."""
    return _rank(xp, a, tol, 0.0, hermitian)


@library(f"{_RANK}.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor", half="native")
def linalg_matrix_rank_by_tensor(xp: Any, a: Array, tol: Array, hermitian: bool) -> Array:
    """The number of singular values above ``tol``, one for each matrix."""
    return _rank(xp, a, tol, 0.0, hermitian)


@library(
    f"{_RANK}.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
    half="native",
)
def linalg_matrix_rank_tensors(xp: Any, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    """The number of singular values above the larger of two tolerances."""
    return _rank(xp, a, atol, rtol, hermitian)


@library(
    f"{_RANK}.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
    half="native",
)
def linalg_matrix_rank_floats(xp: Any, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    """The number of singular values above the larger of two tolerances."""
    return _rank(xp, a, atol, rtol, hermitian)


def _pseudo_inverse(xp: Any, op: str, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    check_matrix(op, a, square=hermitian)
    if not a.size:
        return xp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, left = _hermitian_parts(xp, op, a)
        sizes, right = abs(values), adjoint(left)
    else:
        left, values, right = svd_of(xp, op, a, False)
        sizes = values
    keep = sizes > _cut(xp, a, sizes.max(axis=-1), atol, rtol)[..., None]
    inverse = xp.where(keep, 1 / xp.where(keep, values, 1), values.dtype.type(0)).astype(values.dtype)
    return xp.matmul(adjoint(right) * inverse[..., None, :], adjoint(left))


_PINV = "aten::linalg_pinv"


@library(f"{_PINV}(Tensor self, float rcond, bool hermitian=False) -> Tensor", half="native")
def linalg_pinv(xp: Any, a: Array, rcond: float, hermitian: bool) -> Array:
    """The pseudo-inverse, without singular values of at most ``rcond`` times the largest."""
    return _pseudo_inverse(xp, _PINV, a, 0.0, rcond, hermitian)


@library(
    f"{_PINV}.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
    half="native",
)
def linalg_pinv_floats(xp: Any, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    """The pseudo-inverse, without singular values up to the larger of two tolerances."""
    return _pseudo_inverse(xp, _PINV, a, atol, rtol, hermitian)


@library(
    f"{_PINV}.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
    half="native",
)
def linalg_pinv_tensors(xp: Any, a: Array, atol: Any, rtol: Any, hermitian: bool) -> Array:
    """The pseudo-inverse, without singular values up to the larger of two tolerances."""
    return _pseudo_inverse(xp, _PINV, a, atol, rtol, hermitian)


@library(f"{_PINV}.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor", half="native")
def linalg_pinv_by_tensor(xp: Any, a: Array, rcond: Array, hermitian: bool) -> Array:
    """The pseudo-inverse, with one ``rcond`` for each matrix."""
    return _pseudo_inverse(xp, _PINV, a, 0.0, rcond, hermitian)


@library("aten::pinverse(Tensor self, float rcond=1.0000000000000001e-15) -> Tensor", half="native")
def pinverse(xp: Any, a: Array, rcond: float) -> Array:
    """The pseudo-inverse (old name)."""
    return _pseudo_inverse(xp, "aten::pinverse", a, 0.0, rcond, False)


for _text, _functional in (
    (
        "{r}.atol_rtol_tensor_out(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False",
        "atol_rtol_tensor",
    ),
    (
        "{r}.atol_rtol_float_out(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False",
        "atol_rtol_float",
    ),
    ("{r}.out(Tensor self, float tol, bool hermitian=False, *", ""),
    ("{r}.out_tol_tensor(Tensor input, Tensor tol, bool hermitian=False, *", "tol_tensor"),
    (
        "{p}.atol_rtol_tensor_out(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False",
        "atol_rtol_tensor",
    ),
    (
        "{p}.atol_rtol_float_out(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False",
        "atol_rtol_float",
    ),
    ("{p}.out(Tensor self, float rcond, bool hermitian=False, *", ""),
    ("{p}.out_rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False, *", "rcond_tensor"),
):
    _base = _RANK if "{r}" in _text else _PINV
    _head = _text.replace("{r}", _RANK).replace("{p}", _PINV)
    out_form(f"{_head}, Tensor(a!) out) -> Tensor(a!)", f"{_base}.{_functional}" if _functional else _base)
