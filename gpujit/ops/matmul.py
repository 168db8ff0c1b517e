"""Matrix products: ``mm``, ``matmul``, ``linear``, the add-and-multiply forms, outer products and their kin.

Operands are not promoted: PyTorch refuses a product of two dtypes, and so do these. Products of Python scalars follow
PyTorch: ``beta == 0`` leaves the added tensor out altogether, even where it holds NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from gpujit.ir.dtypes import BOOL_, HALF_TYPES, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.into import fits
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import by_full_name, library
from gpujit.ops.rules_products import (
    addbmm_type,
    added_product_type,
    addr_type,
    linear_type,
    matmul_type,
    outer_type,
    ranked_product_type,
)
from gpujit.support.errors import DTypeError, OpError, ShapeError


def check_same_dtype(op: str, **tensors: Array) -> None:
    """Refuse operands of unequal dtypes, and bools. Raises DTypeError naming each operand."""
    dtypes = {x.dtype for x in tensors.values()}
    if len(dtypes) > 1:
        found = ", ".join(f"{name} is {x.dtype}" for name, x in tensors.items())
        raise DTypeError(f"{op}: {found}; a matrix product promotes nothing, so cast them to one dtype")
    if BOOL_ in dtypes:
        raise DTypeError(f"{op}: {' and '.join(tensors)} are bool; cast them to a number type")


def check_ndim(op: str, ndim: int, **tensors: Array) -> None:
    """Refuse operands of another rank than ``ndim``. Raises ShapeError."""
    for name, x in tensors.items():
        if x.ndim != ndim:
            raise ShapeError(f"{op}: {name} must have {ndim} dimensions, it has shape {x.shape}")


def _shape_error(op: str, a: Array, b: Array) -> ShapeError:
    return ShapeError(f"{op}: shapes {a.shape} and {b.shape} cannot be multiplied")


def product(op: str, xp: Any, a: Array, b: Array) -> Array:
    """``a @ b`` under PyTorch's broadcasting; a folded batch goes through one gemm."""
    if a.dtype is not b.dtype or a.dtype is BOOL_:
        check_same_dtype(op, self=a, other=b)
    na, nb = a.ndim, b.ndim
    try:
        if na <= 2 and nb <= 2:
            if not na or not nb:
                raise ShapeError(f"{op}: both arguments need a dimension, their shapes are {a.shape} and {b.shape}")
            return a.dot(b)
        if nb <= 2 and nb and a.flags.c_contiguous:
            # One tall gemm costs less than one small gemm for each matrix of the batch.
            shape = a.shape
            return a.reshape(prod(shape[:-1]), shape[-1]).dot(b).reshape(shape[:-1] + b.shape[1:])
        return xp.matmul(a, b)
    except ValueError:
        if not na or not nb:
            raise ShapeError(
                f"{op}: both arguments need a dimension, their shapes are {a.shape} and {b.shape}"
            ) from None
        raise _shape_error(op, a, b) from None


def _product_shape(xp: Any, a: Array, b: Array) -> tuple[int, ...]:
    """The shape of ``a @ b``, when they fit."""
    if b.ndim == 1:
        return (*a.shape[:-1],)
    if a.ndim == 1:
        return (*b.shape[:-2], b.shape[-1])
    front: tuple[int, ...] = a.shape[:-2]
    back = b.shape[:-2]
    if back and front != back:
        front = xp.broadcast_shapes(front, back)
    return (*front, a.shape[-2], b.shape[-1])


def _is_gemm_target(out: Array) -> bool:
    # NumPy writes to others element by element, without BLAS.
    return out.flags.c_contiguous or (out.ndim > 1 and out.itemsize in out.strides[-2:] and min(out.strides) > 0)


def product_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    """``a @ b`` in ``out``, an out-variant."""
    na, nb = a.ndim, b.ndim
    if a.dtype != b.dtype or a.dtype == BOOL_ or not na or not nb or a.shape[-1] != b.shape[-2 if nb > 1 else 0]:
        return NotImplemented
    if not fits(out, _product_shape(xp, a, b), a.dtype) or not _is_gemm_target(out):
        return NotImplemented
    if not out.flags.c_contiguous or nb > 2 or (na > 2 and not a.flags.c_contiguous):
        xp.matmul(a, b, out=out)
    elif na <= 2:
        a.dot(b, out=out)
    else:
        rows = prod(a.shape[:-1])
        a.reshape(rows, a.shape[-1]).dot(b, out=out.reshape((rows, *b.shape[1:])))
    return None


def _ranked_into(na: int, nb: int) -> Any:
    """The out-variant of a product of operands of these ranks."""

    def into(xp: Any, out: Array, a: Array, b: Array) -> Any:
        if a.ndim != na or b.ndim != nb or a.shape[: na - 2] != b.shape[: nb - 2]:
            return NotImplemented
        return product_into(xp, out, a, b)

    return into


@library(
    "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    out="out",
    into=_ranked_into(2, 2),
    type_rule=ranked_product_type(2, 2),
)
def mm(xp: Any, a: Array, b: Array) -> Array:
    """The product of two matrices."""
    if a.ndim != 2 or b.ndim != 2:
        check_ndim("aten::mm", 2, self=a, mat2=b)
    if a.dtype is not b.dtype or a.dtype is BOOL_:
        check_same_dtype("aten::mm", self=a, mat2=b)
    try:
        return a.dot(b)
    except ValueError:
        raise _shape_error("aten::mm", a, b) from None


def _in_dtype_into(rank: int) -> Any:
    """The out-variant of a product computed in ``out_dtype``."""
    into = _ranked_into(rank, rank)

    def converted(xp: Any, out: Array, a: Array, b: Array, out_dtype: int) -> Any:
        dtype = numpy_dtype(out_dtype)
        if a.dtype != b.dtype or a.dtype == BOOL_ or dtype in HALF_TYPES:
            return NotImplemented
        return into(xp, out, a.astype(dtype, copy=False), b.astype(dtype, copy=False))

    return converted


@library(
    "aten::mm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor",
    half="native",
    out="dtype_out",
    into=_in_dtype_into(2),
    type_rule=ranked_product_type(2, 2),
)
def mm_dtype(xp: Any, a: Array, b: Array, out_dtype: int) -> Array:
    """The product of two matrices, computed and returned in ``out_dtype``."""
    check_same_dtype("aten::mm", self=a, mat2=b)
    dtype = numpy_dtype(out_dtype)
    return mm(xp, a.astype(dtype), b.astype(dtype))


@library(
    "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
    out="out",
    into=_ranked_into(3, 3),
    type_rule=ranked_product_type(3, 3),
)
def bmm(xp: Any, a: Array, b: Array) -> Array:
    """Products of the matrices of two batches of equal length."""
    if a.ndim != 3 or b.ndim != 3:
        check_ndim("aten::bmm", 3, self=a, mat2=b)
    if a.dtype is not b.dtype or a.dtype is BOOL_:
        check_same_dtype("aten::bmm", self=a, mat2=b)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise _shape_error("aten::bmm", a, b)
    return xp.matmul(a, b)


@library(
    "aten::bmm.dtype(Tensor self, Tensor mat2, ScalarType out_dtype) -> Tensor",
    half="native",
    out="dtype_out",
    into=_in_dtype_into(3),
    type_rule=ranked_product_type(3, 3),
)
def bmm_dtype(xp: Any, a: Array, b: Array, out_dtype: int) -> Array:
    """Products of two batches of matrices, computed and returned in ``out_dtype``."""
    check_same_dtype("aten::bmm", self=a, mat2=b)
    dtype = numpy_dtype(out_dtype)
    return bmm(xp, a.astype(dtype), b.astype(dtype))


@library(
    "aten::mv(Tensor self, Tensor vec) -> Tensor",
    out="out",
    into=_ranked_into(2, 1),
    type_rule=ranked_product_type(2, 1),
)
def mv(xp: Any, a: Array, v: Array) -> Array:
    """The product of a matrix and a vector."""
    check_ndim("aten::mv", 2, self=a)
    check_ndim("aten::mv", 1, vec=v)
    return product("aten::mv", xp, a, v)


def _dot(op: str, xp: Any, a: Array, b: Array) -> Array:
    check_ndim(op, 1, self=a, tensor=b)
    if a.shape != b.shape:
        raise ShapeError(f"{op}: the vectors have {a.shape[0]} and {b.shape[0]} elements; they need equally many")
    return product(op, xp, a, b)


@library(
    "aten::dot(Tensor self, Tensor tensor) -> Tensor",
    out="out",
    into=_ranked_into(1, 1),
    type_rule=ranked_product_type(1, 1),
)
def dot(xp: Any, a: Array, b: Array) -> Array:
    """The sum of products of two vectors; nothing is conjugated."""
    return _dot("aten::dot", xp, a, b)


def _vdot_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    return _ranked_into(1, 1)(xp, out, a.conj() if a.dtype.kind == "c" else a, b)


@library(
    "aten::vdot(Tensor self, Tensor other) -> Tensor", out="out", into=_vdot_into, type_rule=ranked_product_type(1, 1)
)
def vdot(xp: Any, a: Array, b: Array) -> Array:
    """The sum of products of two vectors, the first one conjugated."""
    return _dot("aten::vdot", xp, a.conj() if a.dtype.kind == "c" else a, b)


@library("aten::matmul(Tensor self, Tensor other) -> Tensor", out="out", into=product_into, type_rule=matmul_type)
def matmul(xp: Any, a: Array, b: Array) -> Array:
    """The product of two tensors of matrices or vectors, batch dimensions broadcast."""
    return product("aten::matmul", xp, a, b)


@library(
    "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor", out="out", into=product_into, type_rule=matmul_type
)
def linalg_matmul(xp: Any, a: Array, b: Array) -> Array:
    """The product of two tensors of matrices or vectors, batch dimensions broadcast."""
    return product("aten::linalg_matmul", xp, a, b)


def _linear_into(xp: Any, out: Array, x: Array, w: Array, bias: Array | None) -> Any:
    if w.ndim not in (1, 2) or (bias is not None and (bias.dtype != x.dtype or bias.shape != out.shape[-1:])):
        return NotImplemented
    if x.ndim > 2 and out.flags.c_contiguous:
        rows = prod(x.shape[:-1])
        if out.shape != x.shape[:-1] + w.shape[:-1]:
            return NotImplemented
        done = product_into(xp, out.reshape((rows, *w.shape[:-1])), x.reshape(rows, x.shape[-1]), w.T)
    else:
        done = product_into(xp, out, x, w.T)
    if done is None and bias is not None:
        out += bias
    return done


@library(
    "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    out="out",
    into=_linear_into,
    type_rule=linear_type,
)
def linear(xp: Any, x: Array, w: Array, bias: Array | None) -> Array:
    """``x @ w.T + bias`` for ``x [..., K]`` and ``w [N, K]`` (or ``w [K]``, which drops the last dimension)."""
    if x.dtype is not w.dtype or x.dtype is BOOL_:
        check_same_dtype("aten::linear", input=x, weight=w)
    try:
        if x.ndim <= 2:
            y = x.dot(w.T)
        else:
            shape = x.shape
            y = x.reshape(prod(shape[:-1]), shape[-1]).dot(w.T).reshape(shape[:-1] + w.shape[:-1])
    except ValueError:
        raise ShapeError(
            f"aten::linear: input of shape {x.shape} and weight of shape {w.shape} do not agree in their last dimension"
        ) from None
    if w.ndim > 2 or not x.ndim or not w.ndim:
        raise ShapeError(f"aten::linear: input needs a dimension and weight one or two, found {x.shape} and {w.shape}")
    if bias is None:
        return y
    if bias.dtype is not x.dtype:
        check_same_dtype("aten::linear", input=x, bias=bias)
    try:
        y += bias
    except ValueError:
        raise ShapeError(f"aten::linear: bias of shape {bias.shape} does not fit {w.shape[0]} outputs") from None
    return y


# -------------------------------------------------------------------------------------- products added to a tensor


def _scalar(value: Any, y: Array) -> Any:
    return int(value) if y.dtype.kind in "iu" else value


def add_product(op: str, self: Array, y: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * y``, written into the fresh array ``y``; ``self`` is broadcast to its shape."""
    if self.dtype is not y.dtype and self.dtype != y.dtype:
        raise DTypeError(f"{op}: self is {self.dtype}, the matrices are {y.dtype}; cast them to one dtype")
    if alpha != 1:
        y *= _scalar(alpha, y)
    if beta != 0:
        try:
            y += self if beta == 1 else self * _scalar(beta, y)
        except ValueError:
            raise ShapeError(
                f"{op}: self of shape {self.shape} does not broadcast to the product's {y.shape}"
            ) from None
    return y


def _fits_product(xp: Any, out: Array, self: Array, dtype: Any) -> bool:
    """Whether ``self`` can be added to a product in ``out``."""
    return bool(self.dtype == dtype) and (self.shape == out.shape or xp.broadcast(self, out).shape == out.shape)


def _added_into(na: int, nb: int) -> Any:
    """The out-variant of ``beta * self + alpha * (a @ b)`` for operands of these ranks."""
    into = _ranked_into(na, nb)

    def added(xp: Any, out: Array, self: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Any:
        if not _fits_product(xp, out, self, a.dtype) or into(xp, out, a, b) is NotImplemented:
            return NotImplemented
        add_product("", self, out, beta, alpha)
        return None

    return added


@library(
    "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_added_into(2, 2),
    type_rule=added_product_type(2, 2),
)
def addmm(xp: Any, self: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * (a @ b)`` for matrices."""
    if a.ndim != 2 or b.ndim != 2:
        check_ndim("aten::addmm", 2, mat1=a, mat2=b)
    return add_product("aten::addmm", self, product("aten::addmm", xp, a, b), beta, alpha)


@library(
    "aten::addmm.dtype(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1)"
    " -> Tensor",
    half="native",
    out="dtype_out",
    type_rule=added_product_type(2, 2),
)
def addmm_dtype(xp: Any, self: Array, a: Array, b: Array, out_dtype: int, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * (a @ b)``, computed and returned in ``out_dtype``."""
    dtype = numpy_dtype(out_dtype)
    return add_product("aten::addmm", self.astype(dtype), mm_dtype(xp, a, b, out_dtype), beta, alpha)


def _addmm_activation_into(
    xp: Any, out: Array, self: Array, a: Array, b: Array, beta: Any, alpha: Any, use_gelu: bool
) -> Any:
    if use_gelu or _added_into(2, 2)(xp, out, self, a, b, beta, alpha) is NotImplemented:
        return NotImplemented
    xp.maximum(out, 0, out=out)
    return None


@library(
    "aten::_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, "
    "bool use_gelu=False)"
    " -> Tensor",
    out="out",
    into=_addmm_activation_into,
    type_rule=added_product_type(2, 2),
)
def addmm_activation(xp: Any, self: Array, a: Array, b: Array, beta: Any, alpha: Any, use_gelu: bool) -> Array:
    """``addmm`` followed by relu, or by gelu when asked."""
    y = addmm(xp, self, a, b, beta, alpha)
    return gelu(xp, y) if use_gelu else xp.maximum(y, 0, out=y)


def gelu(xp: Any, x: Array) -> Array:
    """The exact gelu of the operator table's own entry. Raises OpError when the activations are not in the table."""
    op = by_full_name("aten::gelu")
    if op is None:
        raise OpError("aten::gelu: the operator is not in the table")
    y: Array = op.kernel(xp)(x, "none")
    return y


@library(
    "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_added_into(2, 1),
    type_rule=added_product_type(2, 1),
)
def addmv(xp: Any, self: Array, a: Array, v: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * (a @ v)`` for a matrix and a vector."""
    check_ndim("aten::addmv", 2, mat=a)
    check_ndim("aten::addmv", 1, vec=v)
    return add_product("aten::addmv", self, product("aten::addmv", xp, a, v), beta, alpha)


@library(
    "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_added_into(3, 3),
    type_rule=added_product_type(3, 3),
)
def baddbmm(xp: Any, self: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * (a @ b)`` for two batches of matrices."""
    return add_product("aten::baddbmm", self, bmm(xp, a, b), beta, alpha)


@library(
    "aten::baddbmm.dtype(Tensor self, Tensor batch1, Tensor batch2, ScalarType out_dtype, *, Scalar beta=1, "
    "Scalar alpha=1) -> Tensor",
    half="native",
    out="dtype_out",
    type_rule=added_product_type(3, 3),
)
def baddbmm_dtype(xp: Any, self: Array, a: Array, b: Array, out_dtype: int, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * (a @ b)`` for batches, computed and returned in ``out_dtype``."""
    dtype = numpy_dtype(out_dtype)
    return add_product("aten::baddbmm", self.astype(dtype), bmm_dtype(xp, a, b, out_dtype), beta, alpha)


def _addbmm_into(xp: Any, out: Array, self: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Any:
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return NotImplemented
    n, r, k = a.shape
    left, right = a.transpose(1, 0, 2).reshape(r, n * k), b.reshape(n * k, b.shape[2])
    if not _fits_product(xp, out, self, a.dtype) or product_into(xp, out, left, right) is NotImplemented:
        return NotImplemented
    add_product("", self, out, beta, alpha)
    return None


@library(
    "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_addbmm_into,
    type_rule=addbmm_type,
)
def addbmm(xp: Any, self: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * sum(a[i] @ b[i])``: one gemm over the batch and the inner dimension together."""
    check_ndim("aten::addbmm", 3, batch1=a, batch2=b)
    check_same_dtype("aten::addbmm", batch1=a, batch2=b)
    (n, r, k), (nb, kb, c) = a.shape, b.shape
    if n != nb or k != kb:
        raise _shape_error("aten::addbmm", a, b)
    y = a.transpose(1, 0, 2).reshape(r, n * k).dot(b.reshape(n * k, c))
    return add_product("aten::addbmm", self, y, beta, alpha)


def _addr_into(xp: Any, out: Array, self: Array, u: Array, v: Array, beta: Any, alpha: Any) -> Any:
    dtype = self.dtype
    if u.dtype != dtype or v.dtype != dtype or u.ndim != 1 or v.ndim != 1 or dtype == BOOL_:
        return NotImplemented
    if dtype.kind in "iu" and (isinstance(alpha, float) or isinstance(beta, float)):
        return NotImplemented
    if not fits(out, (u.shape[0], v.shape[0]), dtype) or not _fits_product(xp, out, self, dtype):
        return NotImplemented
    xp.multiply(u[:, None], v, out=out)
    add_product("", self, out, beta, alpha)
    return None


@library(
    "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_addr_into,
    type_rule=addr_type,
)
def addr(xp: Any, self: Array, u: Array, v: Array, beta: Any, alpha: Any) -> Array:
    """``beta * self + alpha * outer(u, v)``; unlike the matrix products it promotes its operands."""
    check_ndim("aten::addr", 1, vec1=u, vec2=v)
    dtype = result_type(self, u, v)
    if dtype.kind in "iub" and (isinstance(alpha, float) or isinstance(beta, float)):
        raise DTypeError(f"aten::addr: beta and alpha must not be floating point for {dtype} operands")
    y = u.astype(dtype)[:, None] * v.astype(dtype)
    if dtype is BOOL_:
        y &= bool(alpha)
        return y | self if beta else y
    return add_product("aten::addr", self.astype(dtype), y, beta, alpha)


# ----------------------------------------------------------------------------------- outer, inner, Kronecker, cross


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


@library("aten::matrix_power(Tensor self, int n) -> Tensor", out="out")
def matrix_power(xp: Any, a: Array, n: int) -> Array:
    """The n-th power of square matrices; of their inverses when ``n`` is negative."""
    return _matrix_power("aten::matrix_power", xp, a, n)


@library("aten::linalg_matrix_power(Tensor self, int n) -> Tensor", out="out")
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
        raise _shape_error("aten::_int_mm", a, b)
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
        raise _shape_error(op, a, b)
    if a.ndim == 3 and b.ndim == 3:
        if a.shape[0] != b.shape[0]:
            raise _shape_error(op, a, b)
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
