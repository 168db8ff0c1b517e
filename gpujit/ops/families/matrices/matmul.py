"""Matrix products: ``mm``, ``matmul``, ``linear``, the add-and-multiply forms, outer products and their kin.

Operands are not promoted: PyTorch refuses a product of two dtypes, and so do these. Products of Python scalars follow
PyTorch: ``beta == 0`` leaves the added tensor out altogether, even where it holds NaN.
"""

from __future__ import annotations

from math import prod
from typing import Any

from gpujit.ir.dtypes import BOOL_, HALF_TYPES, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops.into import fits
from gpujit.ops.registry import library
from gpujit.ops.rules.products import linear_type, matmul_type, ranked_product_type
from gpujit.support.errors import DTypeError, ShapeError


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


def product_shape_error(op: str, a: Array, b: Array) -> ShapeError:
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
        raise product_shape_error(op, a, b) from None


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


def ranked_into(na: int, nb: int) -> Any:
    """The out-variant of a product of operands of these ranks."""

    def into(xp: Any, out: Array, a: Array, b: Array) -> Any:
        if a.ndim != na or b.ndim != nb or a.shape[: na - 2] != b.shape[: nb - 2]:
            return NotImplemented
        return product_into(xp, out, a, b)

    return into


@library(
    "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    out="out",
    into=ranked_into(2, 2),
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
        raise product_shape_error("aten::mm", a, b) from None


def _in_dtype_into(rank: int) -> Any:
    """The out-variant of a product computed in ``out_dtype``."""
    into = ranked_into(rank, rank)

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
    into=ranked_into(3, 3),
    type_rule=ranked_product_type(3, 3),
)
def bmm(xp: Any, a: Array, b: Array) -> Array:
    """Products of the matrices of two batches of equal length."""
    if a.ndim != 3 or b.ndim != 3:
        check_ndim("aten::bmm", 3, self=a, mat2=b)
    if a.dtype is not b.dtype or a.dtype is BOOL_:
        check_same_dtype("aten::bmm", self=a, mat2=b)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise product_shape_error("aten::bmm", a, b)
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
    into=ranked_into(2, 1),
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
    into=ranked_into(1, 1),
    type_rule=ranked_product_type(1, 1),
)
def dot(xp: Any, a: Array, b: Array) -> Array:
    """The sum of products of two vectors; nothing is conjugated."""
    return _dot("aten::dot", xp, a, b)


def _vdot_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    return ranked_into(1, 1)(xp, out, a.conj() if a.dtype.kind == "c" else a, b)


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
