"""Filling, copying and cloning, triangles and diagonals of matrices, and changes of size in place."""

from __future__ import annotations

from typing import Any

from gpujit.ir.values import Array
from gpujit.ops import element_bodies
from gpujit.ops.families.memory.create import filled
from gpujit.ops.families.memory.views import diagonal, expanded_shape
from gpujit.ops.into import copied, fits
from gpujit.ops.layout import cast, copy_format, empty_preserved, normal_size, out_forms, set_geometry, wrap_dim
from gpujit.ops.registry import library
from gpujit.ops.rows import by_element
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.views import as_other_type, as_strided_type, diag_embed_type, diag_type, diagflat_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import OpError, ShapeError

# ------------------------------------------------------------------------------------------------ fill and copy


def _fill_into(xp: Any, out: Array, x: Array, value: Any) -> Any:
    if not fits(out, x.shape, x.dtype) or (hasattr(value, "dtype") and value.ndim):
        return NotImplemented
    if hasattr(value, "dtype"):
        out[...] = cast(value, x.dtype)
    else:
        filled(out, value, "aten::fill")
    return None


def _zero_into(xp: Any, out: Array, x: Array) -> Any:
    return _fill_into(xp, out, x, 0)


@library(
    "aten::fill.Scalar(Tensor self, Scalar value) -> Tensor",
    half="native",
    out="Scalar_out",
    type_rule=same_type,
    scalar=by_element(element_bodies.fill(1, "aten::fill")),
    into=_fill_into,
)
def fill_scalar(xp: Any, x: Array, value: Any) -> Array:
    """A tensor like ``self`` with every element a number."""
    return filled(empty_preserved(xp, x), value, "aten::fill")


def _single(value: Array, op: str) -> Array:
    if value.ndim:
        raise ShapeError(f"{op}: the value must be a 0-dim tensor, found shape {list(value.shape)}")
    return value


@library(
    "aten::fill.Tensor(Tensor self, Tensor value) -> Tensor",
    half="native",
    out="Tensor_out",
    type_rule=same_type,
    scalar=by_element(element_bodies.fill(1, "aten::fill")),
    into=_fill_into,
)
def fill_tensor(xp: Any, x: Array, value: Array) -> Array:
    """A tensor like ``self`` with every element that of a 0-dim tensor."""
    y = empty_preserved(xp, x)
    y[...] = cast(_single(value, "aten::fill"), x.dtype)
    return y


@library("aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)", half="native")
def fill_scalar_in_place(xp: Any, x: Array, value: Any) -> Array:
    """``self`` with every element a number."""
    check_writable(x, "aten::fill_")
    return filled(x, value, "aten::fill_")


@library("aten::fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)", half="native")
def fill_tensor_in_place(xp: Any, x: Array, value: Array) -> Array:
    """``self`` with every element that of a 0-dim tensor."""
    check_writable(x, "aten::fill_")
    x[...] = cast(_single(value, "aten::fill_"), x.dtype)
    return x


@library(
    "aten::zero(Tensor self) -> Tensor",
    half="native",
    out="out",
    scalar=by_element(element_bodies.fill(None, "aten::zero")),
    type_rule=same_type,
    into=_zero_into,
)
def zero(xp: Any, x: Array) -> Array:
    """A tensor like ``self`` of zeros."""
    y = empty_preserved(xp, x)
    y.fill(0)
    return y


@library("aten::zero_(Tensor(a!) self) -> Tensor(a!)", half="native")
def zero_in_place(xp: Any, x: Array) -> Array:
    """``self`` with every element zero."""
    check_writable(x, "aten::zero_")
    x.fill(0)
    return x


def store(target: Array, source: Array, op: str) -> Array:
    """``target`` with the elements of ``source``, converted and broadcast."""
    if source.shape != target.shape:
        expanded_shape(source, target.shape, op)
    check_writable(target, op)
    target[...] = source if source.dtype == target.dtype else cast(source, target.dtype)
    return target


def _copy_into(xp: Any, out: Array, x: Array, src: Array, non_blocking: bool) -> Any:
    if not fits(out, x.shape, x.dtype) or src.dtype != x.dtype:
        return NotImplemented
    store(out, src, "aten::copy")
    return None


def _clone_into(xp: Any, out: Array, x: Array, memory_format: int | None) -> Any:
    return copied(out, x)


@library(
    "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
    half="native",
    out="out",
    type_rule=same_type,
    scalar=by_element(lambda m, x, source, non_blocking: cast(source, x.dtype)),
    into=_copy_into,
)
def copy(xp: Any, x: Array, src: Array, non_blocking: bool) -> Array:
    """A tensor like ``self`` with the elements of ``src``."""
    return store(empty_preserved(xp, x), src, "aten::copy")


@library("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", half="native")
def copy_in_place(xp: Any, x: Array, src: Array, non_blocking: bool) -> Array:
    """``self`` with the elements of ``src``, converted to its dtype and broadcast to its shape."""
    return store(x, src, "aten::copy_")


@library("aten::copy_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", half="native")
def copy_tensor_in_place(xp: Any, x: Array, other: Array) -> Array:
    """``self`` with the elements of ``other``."""
    return store(x, other, "aten::copy_")


def _declare_number_copies() -> None:
    for kind in ("int", "float"):

        def copy_number(xp: Any, x: Array, other: Any) -> Array:
            """``self`` with every element a number, converted as a tensor of it would be."""
            check_writable(x, "aten::copy_")
            x[...] = cast(xp.asarray(other), x.dtype)
            return x

        library(f"aten::copy_.{kind}(Tensor(a!) self, {kind} other) -> Tensor(a!)", half="native")(copy_number)


_declare_number_copies()


@library(
    "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    half="native",
    type_rule=same_type,
    scalar=by_element(element_bodies.same("aten::clone", 1)),
    into=_clone_into,
)
def clone(xp: Any, x: Array, memory_format: int | None) -> Array:
    """A copy, in the memory order of ``self`` unless a format is given."""
    return copy_format(xp, x, memory_format, "aten::clone")


out_forms(
    "aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
    of="aten::clone",
)


@library("aten::fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)", half="native")
def fill_diagonal_in_place(xp: Any, x: Array, fill_value: Any, wrap: bool) -> Array:
    """``self`` with a number along its main diagonal; ``wrap`` goes on below a tall matrix's square part."""
    op = "aten::fill_diagonal_"
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(f"{op}: a matrix, or a tensor whose dims all have one size, is needed; found {list(x.shape)}")
    check_writable(x, op)
    holder = xp.empty((), x.dtype)
    value = filled(holder, fill_value, op)
    if x.ndim == 2 and wrap and x.shape[0] > x.shape[1] + 1:
        rows = xp.arange(0, x.size, x.shape[1] + 1)
        x[rows // x.shape[1], rows % x.shape[1]] = value
    else:
        i = xp.arange(min(x.shape))
        x[(i,) * x.ndim] = value
    return x


# ------------------------------------------------------------------------------------------------ triangles


def _triangle(xp: Any, x: Array, k: int, lower: bool, op: str) -> Array:
    """The mask of what stays, over the last two dims."""
    if x.ndim < 2:
        raise ShapeError(f"{op}: at least 2 dims are needed, shape {list(x.shape)} has {x.ndim}")
    rows, columns = x.shape[-2:]
    difference = xp.arange(columns) - xp.arange(rows)[:, None]
    return difference <= k if lower else difference >= k


def _declare_triangles() -> None:
    for name, lower in (("tril", True), ("triu", False)):
        op = f"aten::{name}"

        def part(xp: Any, x: Array, diagonal: int, *, op: str = op, lower: bool = lower) -> Array:
            """The part of each matrix on one side of a diagonal, zeros elsewhere."""
            return xp.where(_triangle(xp, x, diagonal, lower, op), x, xp.zeros((), x.dtype))

        def part_into(xp: Any, out: Array, x: Array, diagonal: int, *, op: str = op, lower: bool = lower) -> Any:
            outside = ~_triangle(xp, x, diagonal, lower, op)
            if copied(out, x) is NotImplemented:
                return NotImplemented
            xp.copyto(out, 0, where=outside)
            return None

        def part_in_place(xp: Any, x: Array, diagonal: int, *, op: str = f"{op}_", lower: bool = lower) -> Array:
            """``self`` with zeros on the other side of a diagonal."""
            outside = ~_triangle(xp, x, diagonal, lower, op)
            check_writable(x, op)
            x[..., outside] = 0
            return x

        library(
            f"{op}(Tensor self, SymInt diagonal=0) -> Tensor",
            half="native",
            out="out",
            type_rule=same_type,
            into=part_into,
        )(part)
        library(f"{op}_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)", half="native")(part_in_place)


_declare_triangles()


def _diag_embed_into(xp: Any, out: Array, x: Array, offset: int, dim1: int, dim2: int) -> Any:
    n = x.ndim + 1
    a, b = wrap_dim(dim1, n, "aten::diag_embed"), wrap_dim(dim2, n, "aten::diag_embed")
    if x.ndim == 0 or a == b:
        return NotImplemented
    shape = list(x.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, x.shape[-1] + abs(offset))
    if not fits(out, shape, x.dtype):
        return NotImplemented
    out.fill(0)
    diagonal(xp, out, offset, a, b)[...] = x
    return None


def _diag_into(xp: Any, out: Array, x: Array, k: int) -> Any:
    if x.ndim == 1:
        return _diag_embed_into(xp, out, x, k, 0, 1)
    return copied(out, diagonal(xp, x, k, 0, 1)) if x.ndim == 2 else NotImplemented


def _diagflat_into(xp: Any, out: Array, x: Array, offset: int) -> Any:
    return _diag_embed_into(xp, out, x.reshape(-1), offset, 0, 1)


@library(
    "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    half="native",
    out="out",
    type_rule=diag_embed_type,
    into=_diag_embed_into,
)
def diag_embed(xp: Any, x: Array, offset: int, dim1: int, dim2: int) -> Array:
    """Matrices over two new dims with the last dim of ``self`` along a diagonal, zeros elsewhere."""
    op = "aten::diag_embed"
    n = x.ndim + 1
    if x.ndim == 0:
        raise ShapeError(f"{op}: a tensor of at least one dim is needed")
    a, b = wrap_dim(dim1, n, op), wrap_dim(dim2, n, op)
    if a == b:
        raise ShapeError(f"{op}: dims {dim1} and {dim2} must be two different ones")
    side = x.shape[-1] + abs(offset)
    y = xp.zeros((*x.shape[:-1], side, side), x.dtype)
    first = max(-offset, 0) * side + max(offset, 0)
    y.reshape(*x.shape[:-1], side * side)[..., first : first + x.shape[-1] * (side + 1) : side + 1][
        ..., : x.shape[-1]
    ] = x
    order = list(range(n - 2))
    for at, d in sorted(((a, n - 2), (b, n - 1))):
        order.insert(at, d)
    return y.transpose(order)


@library(
    "aten::diag(Tensor self, int diagonal=0) -> Tensor", half="native", out="out", type_rule=diag_type, into=_diag_into
)
def diag(xp: Any, x: Array, k: int) -> Array:
    """The diagonal of a matrix, or a matrix with a 1-dim tensor on its diagonal."""
    if x.ndim == 1:
        return diag_embed(xp, x, k, 0, 1)
    if x.ndim != 2:
        raise ShapeError(f"aten::diag: a tensor of 1 or 2 dims is needed, shape {list(x.shape)} has {x.ndim}")
    return diagonal(xp, x, k, 0, 1).copy()


@library(
    "aten::diagflat(Tensor self, int offset=0) -> Tensor", half="native", type_rule=diagflat_type, into=_diagflat_into
)
def diagflat(xp: Any, x: Array, offset: int) -> Array:
    """A matrix with all elements of ``self`` on a diagonal."""
    return diag_embed(xp, x.reshape(-1), offset, 0, 1)


# ------------------------------------------------------------------------------------------------ size in place


def _resize(x: Array, size: list[int], memory_format: int | None, op: str) -> Array:
    shape = normal_size(size, op)
    if shape == x.shape and (memory_format is None or memory_format in (0, 1)):
        return x
    count = 1
    for n in shape:
        count *= n
    if count != x.size or not x.flags.c_contiguous or (memory_format or 0) > 1:
        raise OpError(
            f"{op}: an array of shape {list(x.shape)} can't take the shape {list(shape)} in place; only a contiguous "
            "one can change its shape, and not its number of elements"
        )
    return set_geometry(x, shape, x.reshape(shape).strides, op)


@library(
    "aten::resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    half="native",
    type_rule=as_strided_type,
)
def resize_in_place(xp: Any, x: Array, size: list[int], memory_format: int | None) -> Array:
    """``self`` under another shape of as many elements. Raises OpError where memory would have to move."""
    return _resize(x, size, memory_format, "aten::resize_")


@library(
    "aten::resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    half="native",
    type_rule=as_other_type,
)
def resize_as_in_place(xp: Any, x: Array, the_template: Array, memory_format: int | None) -> Array:
    """``self`` under the shape of another tensor of as many elements."""
    return _resize(x, list(the_template.shape), memory_format, "aten::resize_as_")


@library("aten::set_.source_Tensor(Tensor(a!) self, Tensor source) -> Tensor(a!)", half="native", may_alias=True)
def set_source(xp: Any, x: Array, source: Array) -> Array:
    """``self`` when it already is ``source``'s memory. Raises OpError else: an array can't move to other memory."""
    if x is source or (x.shape == source.shape and x.strides == source.strides and xp.may_share_memory(x, source)):
        return x
    raise OpError("aten::set_: an array can't be pointed at other memory; assign the other tensor instead")


__all__ = ["clone", "store"]
