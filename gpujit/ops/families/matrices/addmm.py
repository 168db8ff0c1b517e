"""Matrix products added to a tensor: addmm, addmv, baddbmm and their kin."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import BOOL_, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.families.matrices.matmul import (
    bmm,
    bmm_dtype,
    check_ndim,
    check_same_dtype,
    mm_dtype,
    product,
    product_into,
    product_shape_error,
    ranked_into,
)
from gpujit.ops.into import fits
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import by_full_name, library
from gpujit.ops.rules.products import addbmm_type, added_product_type, addr_type
from gpujit.support.errors import DTypeError, OpError, ShapeError


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
    into = ranked_into(na, nb)

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
        raise product_shape_error("aten::addbmm", a, b)
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
