"""Other products: outer, inner, Kronecker, cross, chains, powers, integer and grouped ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from gpujit.ir.dtypes import BOOL_, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.families.matrices.matmul import check_ndim, check_same_dtype, product_into, product_shape_error
from gpujit.ops.into import fits
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import library
from gpujit.ops.rules.products import outer_type
from gpujit.support.errors import DTypeError, OpError, ShapeError


def _outer(op: str, xp: Any, u: Array, v: Array) -> Array:
    check_ndim(op, 1, self=u, vec2=v)
    if u.dtype is not v.dtype:
        dtype = result_type(u, v)
        u, v = u.astype(dtype), v.astype(dtype)
    return u[:, None] * v


def _outer_into(xp: Any, out: Array, u: Array, v: Array) -> Any:
    if u.ndim != 1 or v.ndim != 1 or u.dtype != v.dtype or not fits(out, (u.shape[0], v.shape[0]), u.dtype):
        return NotImplemented
    xp.multiply(u[:, None], v, out=out)
    return None


@library("aten::outer(Tensor self, Tensor vec2) -> Tensor", out="out", into=_outer_into, type_rule=outer_type)
def outer(xp: Any, u: Array, v: Array) -> Array:
    """All products of the elements of two vectors, as a matrix."""
    return _outer("aten::outer", xp, u, v)


@library("aten::ger(Tensor self, Tensor vec2) -> Tensor", out="out", into=_outer_into, type_rule=outer_type)
def ger(xp: Any, u: Array, v: Array) -> Array:
    """All products of the elements of two vectors, as a matrix (old name of ``outer``)."""
    return _outer("aten::ger", xp, u, v)


def _inner_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    if not a.ndim or not b.ndim or out.shape != a.shape[:-1] + b.shape[:-1] or not out.flags.c_contiguous:
        return NotImplemented
    k, rows, columns = a.shape[-1], prod(a.shape[:-1]), prod(b.shape[:-1])
    if b.shape[-1] != k:
        return NotImplemented
    return product_into(xp, out.reshape(rows, columns), a.reshape(rows, k), b.reshape(columns, k).T)


@library("aten::inner(Tensor self, Tensor other) -> Tensor", out="out", into=_inner_into)
def inner(xp: Any, a: Array, b: Array) -> Array:
    """Sums of products over the last dimensions; a 0-dim operand scales the other."""
    if not a.ndim or not b.ndim:
        dtype = result_type(a, b)
        return xp.multiply(a.astype(dtype), b.astype(dtype))
    check_same_dtype("aten::inner", self=a, other=b)
    k = a.shape[-1]
    if k != b.shape[-1]:
        raise ShapeError(f"aten::inner: the last dimensions differ: {a.shape} and {b.shape}")
    rows, columns = a.shape[:-1], b.shape[:-1]
    return a.reshape(prod(rows), k).dot(b.reshape(prod(columns), k).T).reshape(rows + columns)


def _interleaved(a: Array, b: Array) -> tuple[Array, Array, list[int]]:
    """``a`` and ``b`` in one dtype with their dims side by side, and the shape of their Kronecker product."""
    dtype = result_type(a, b)
    n = max(a.ndim, b.ndim)
    left, right = (1,) * (n - a.ndim) + a.shape, (1,) * (n - b.ndim) + b.shape
    a = a.astype(dtype, copy=False).reshape([s for d in left for s in (d, 1)])
    b = b.astype(dtype, copy=False).reshape([s for d in right for s in (1, d)])
    return a, b, [p * q for p, q in zip(left, right, strict=True)]


def _kron_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    a, b, shape = _interleaved(a, b)
    if not fits(out, shape, a.dtype) or not out.flags.c_contiguous:
        return NotImplemented
    xp.multiply(a, b, out=out.reshape([p * q for p, q in zip(a.shape, b.shape, strict=True)]))
    return None


@library("aten::kron(Tensor self, Tensor other) -> Tensor", out="out", into=_kron_into)
def kron(xp: Any, a: Array, b: Array) -> Array:
    """The Kronecker product: each element of ``a`` times all of ``b``, in place of it."""
    a, b, shape = _interleaved(a, b)
    return xp.multiply(a, b).reshape(shape)


def _cross(op: str, xp: Any, a: Array, b: Array, dim: int) -> Array:
    check_same_dtype(op, self=a, other=b)
    if a.ndim != b.ndim:
        raise ShapeError(f"{op}: both tensors need the same number of dimensions, found {a.ndim} and {b.ndim}")
    if not -a.ndim <= dim < a.ndim:
        raise ShapeError(f"{op}: dim {dim} is outside a tensor of {a.ndim} dimensions")
    dim %= a.ndim
    if a.shape[dim] != 3 or b.shape[dim] != 3:
        raise ShapeError(f"{op}: dim {dim} must have 3 elements, found {a.shape[dim]} and {b.shape[dim]}")
    before = (slice(None),) * dim
    (a0, a1, a2), (b0, b1, b2) = ([x[(*before, i)] for i in range(3)] for x in (a, b))
    try:
        first = a1 * b2 - a2 * b1
    except ValueError:
        raise ShapeError(f"{op}: shapes {a.shape} and {b.shape} do not broadcast") from None
    shape = first.shape
    y = xp.empty((*shape[:dim], 3, *shape[dim:]), a.dtype)
    y[(*before, 0)] = first
    y[(*before, 1)] = a2 * b0 - a0 * b2
    y[(*before, 2)] = a0 * b1 - a1 * b0
    return y


def _cross_into(xp: Any, out: Array, a: Array, b: Array, dim: int | None) -> Any:
    if dim is None:
        dim = next((i for i, n in enumerate(a.shape) if n == 3), 0)
    if a.dtype != b.dtype or a.dtype == BOOL_ or a.shape != b.shape or not a.ndim or a.shape[dim] != 3:
        return NotImplemented
    if not fits(out, a.shape, a.dtype):
        return NotImplemented
    before = (slice(None),) * (dim % a.ndim)
    (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = ([x[(*before, i, ...)] for i in range(3)] for x in (a, b, out))
    for c, p, q, r, s in ((c0, a1, b2, a2, b1), (c1, a2, b0, a0, b2), (c2, a0, b1, a1, b0)):
        xp.multiply(p, q, out=c)
        c -= r * s
    return None


@library("aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", out="out", into=_cross_into)
def linalg_cross(xp: Any, a: Array, b: Array, dim: int) -> Array:
    """The cross product of vectors of three elements along ``dim``."""
    return _cross("aten::linalg_cross", xp, a, b, dim)


@library("aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor", out="out", into=_cross_into)
def cross(xp: Any, a: Array, b: Array, dim: int | None) -> Array:
    """The cross product along ``dim``, by default the first dimension of three elements."""
    if dim is None:
        dim = next((i for i, n in enumerate(a.shape) if n == 3), None)
        if dim is None:
            raise ShapeError(f"aten::cross: no dimension of self has 3 elements, its shape is {a.shape}")
    return _cross("aten::cross", xp, a, b, dim)


@library("aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", out="out")
def linalg_vecdot(xp: Any, x: Array, y: Array, dim: int) -> Array:
    """Sums of ``conj(x) * y`` along ``dim``, other dimensions broadcast."""
    check_same_dtype("aten::linalg_vecdot", x=x, y=y)
    if x.dtype.kind not in "fcV":
        raise DTypeError(f"aten::linalg_vecdot: x and y must be floating point or complex, they are {x.dtype}")
    try:
        return xp.asarray((x.conj() * y).sum(axis=dim))
    except ValueError:
        raise ShapeError(
            f"aten::linalg_vecdot: shapes {x.shape} and {y.shape} do not broadcast, or have no dim {dim}"
        ) from None


# ----------------------------------------------------------------------------------------------- chains and powers


def _chain_order(dims: Sequence[int]) -> list[list[int]]:
    """Where to split each sub-chain of matrices ``dims[i] x dims[i + 1]`` so that the fewest products are needed.

    Source: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", 15.2.
    """
    n = len(dims) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + dims[i] * dims[k + 1] * dims[j + 1], k) for k in range(i, j)
            )
    return split


def _multiply_chain(op: str, matrices: Sequence[Array]) -> Array:
    for i, (a, b) in enumerate(pairwise(matrices)):
        if a.shape[1] != b.shape[0]:
            raise ShapeError(f"{op}: tensors {i} and {i + 1} of shapes {a.shape} and {b.shape} cannot be multiplied")
    split = _chain_order([m.shape[0] for m in matrices] + [matrices[-1].shape[1]])

    def multiply(i: int, j: int) -> Array:
        if i == j:
            return matrices[i]
        k = split[i][j]
        return multiply(i, k).dot(multiply(k + 1, j))

    return multiply(0, len(matrices) - 1)


@library("aten::linalg_multi_dot(Tensor[] tensors) -> Tensor", out="out")
def linalg_multi_dot(xp: Any, tensors: Sequence[Array]) -> Array:
    """The product of two or more matrices in the cheapest order; the first and the last may be vectors."""
    op = "aten::linalg_multi_dot"
    if len(tensors) < 2:
        raise OpError(f"{op}: needs at least 2 tensors, got {len(tensors)}")
    check_same_dtype(op, **{f"tensor {i}": t for i, t in enumerate(tensors)})
    matrices = list(tensors)
    first, last = matrices[0].ndim, matrices[-1].ndim
    if first == 1:
        matrices[0] = matrices[0][None]
    if last == 1:
        matrices[-1] = matrices[-1][:, None]
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ShapeError(
                f"{op}: tensor {i} must be a matrix (the first and last may be vectors), its shape is {m.shape}"
            )
    y = _multiply_chain(op, matrices)
    if first == 1:
        y = y[0]
    return y[..., 0] if last == 1 else y


@library("aten::chain_matmul(Tensor[] matrices) -> Tensor", out="out")
def chain_matmul(xp: Any, matrices: Sequence[Array]) -> Array:
    """The product of one or more matrices in the cheapest order."""
    if not matrices:
        raise OpError("aten::chain_matmul: needs at least one matrix")
    check_same_dtype("aten::chain_matmul", **{f"matrix {i}": m for i, m in enumerate(matrices)})
    check_ndim("aten::chain_matmul", 2, **{f"matrix {i}": m for i, m in enumerate(matrices)})
    return _multiply_chain("aten::chain_matmul", matrices) if len(matrices) > 1 else matrices[0].copy()


def _matrix_power(op: str, xp: Any, a: Array, n: int) -> Array:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{op}: self must be square matrices, its shape is {a.shape}")
    if a.dtype is BOOL_:
        check_same_dtype(op, self=a)
    if n == 1:
        return a.copy()
    if n < 0 and a.dtype.kind in "iu":
        raise DTypeError(f"{op}: a negative power needs a floating point or complex matrix, self is {a.dtype}")
    if not a.size:
        return a.copy()
    if abs(n) >= 1 << 62:
        raise OpError(f"{op}: n is {n}, expected a number between -(2 ** 62) and 2 ** 62")
    try:
        return xp.linalg.matrix_power(a, n)
    except ValueError:  # numpy.linalg.LinAlgError is one
        raise OpError(f"{op}: the matrix is singular and has no power {n}") from None


def _power_into(xp: Any, out: Array, a: Array, n: int) -> Any:
    """The small powers, whose last product goes into ``out``."""
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or a.dtype.kind not in "fc" or not fits(out, a.shape, a.dtype):
        return NotImplemented
    if n not in (2, 3):
        return NotImplemented
    xp.matmul(a if n == 2 else xp.matmul(a, a), a, out=out)
    return None


@library("aten::matrix_power(Tensor self, int n) -> Tensor", out="out", into=_power_into)
def matrix_power(xp: Any, a: Array, n: int) -> Array:
    """The n-th power of square matrices; of their inverses when ``n`` is negative."""
    return _matrix_power("aten::matrix_power", xp, a, n)


@library("aten::linalg_matrix_power(Tensor self, int n) -> Tensor", out="out", into=_power_into)
def linalg_matrix_power(xp: Any, a: Array, n: int) -> Array:
    """The n-th power of square matrices; of their inverses when ``n`` is negative."""
    return _matrix_power("aten::linalg_matrix_power", xp, a, n)


# -------------------------------------------------------------------------------------- integer and grouped products


@library("aten::_int_mm(Tensor self, Tensor mat2) -> Tensor", out="out")
def int_mm(xp: Any, a: Array, b: Array) -> Array:
    """The int32 product of two int8 matrices."""
    check_ndim("aten::_int_mm", 2, self=a, mat2=b)
    if a.dtype != "int8" or b.dtype != "int8":
        raise DTypeError(f"aten::_int_mm: self and mat2 must be int8, they are {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        raise product_shape_error("aten::_int_mm", a, b)
    # Sums of int8 products stay below 2**53, so a float64 gemm is exact, and it runs on BLAS.
    return a.astype("float64").dot(b.astype("float64")).astype("int32")


@library("aten::_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor")
def weight_int8pack_mm(xp: Any, x: Array, w: Array, scales: Array) -> Array:
    """``x @ (w * scales).T`` for int8 rows ``w [N, K]`` and one scale a row."""
    check_ndim("aten::_weight_int8pack_mm", 2, self=x, mat2=w)
    if w.dtype != "int8" or x.shape[1] != w.shape[1] or scales.shape != w.shape[:1]:
        raise ShapeError(
            f"aten::_weight_int8pack_mm: self {x.shape} needs int8 weights [N, {x.shape[1]}] and N scales, "
            f"found {w.dtype} {w.shape} and {scales.shape}"
        )
    return x.dot(w.T.astype(x.dtype)) * scales


@library(
    "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
    "ScalarType? out_dtype=None) -> Tensor"
)
def grouped_mm(xp: Any, a: Array, b: Array, offs: Array | None, bias: Array | None, out_dtype: int | None) -> Array:
    """One product a group: ``offs`` holds the end of each group along the dimension the two operands share groups in.

    ``a [M, K]`` with ``b [G, K, N]`` groups rows of ``a``; ``a [G, M, K]`` with ``b [K, N]`` columns of ``b``; two
    matrices group the inner dimension and give ``[G, M, N]``; two batches need no offsets.
    """
    op = "aten::_grouped_mm"
    check_same_dtype(op, self=a, mat2=b)
    if a.ndim not in (2, 3) or b.ndim not in (2, 3) or a.shape[-1] != b.shape[-2]:
        raise product_shape_error(op, a, b)
    if a.ndim == 3 and b.ndim == 3:
        if a.shape[0] != b.shape[0]:
            raise product_shape_error(op, a, b)
        y = xp.matmul(a, b)
    else:
        if offs is None:
            raise OpError(f"{op}: two operands of {a.ndim} and {b.ndim} dimensions need offs")
        ends = [int(e) for e in offs.tolist()]
        spans = list(zip([0, *ends], ends, strict=False))
        groups = b.shape[0] if b.ndim == 3 else a.shape[0] if a.ndim == 3 else len(ends)
        if len(ends) != groups:
            raise ShapeError(f"{op}: offs holds {len(ends)} ends for {groups} groups")
        if a.ndim == 2 and b.ndim == 2:
            y = xp.zeros((groups, a.shape[0], b.shape[1]), a.dtype)
            for g, (start, stop) in enumerate(spans):
                y[g] = a[:, start:stop].dot(b[start:stop])
        else:
            y = xp.zeros((a.shape[-2], b.shape[-1]), a.dtype)
            for g, (start, stop) in enumerate(spans):
                if b.ndim == 3:
                    y[start:stop] = a[start:stop].dot(b[g])
                else:
                    y[:, start:stop] = a[g].dot(b[:, start:stop])
    if bias is not None:
        y += bias
    return y if out_dtype is None else y.astype(numpy_dtype(out_dtype), copy=False)
