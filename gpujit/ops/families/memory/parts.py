"""Views of a part: select, slice, diagonal, unfold, as_strided, real and imaginary parts; and copies of views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, FLOAT64
from gpujit.ir.values import Array
from gpujit.ops.families.memory.views import (
    diagonal,
    expand,
    permute,
    squeeze,
    squeeze_dim,
    squeeze_dims,
    t,
    transposed,
    unsqueeze,
    view_dtype,
    view_size,
)
from gpujit.ops.into import copied as view_copied
from gpujit.ops.layout import BEFORE, normal_size, set_geometry, strided, wrap_dim
from gpujit.ops.registry import library, type_rule_of, view
from gpujit.ops.rules.pieces import view_as_complex_type
from gpujit.ops.rules.views import (
    as_strided_type,
    narrow_type,
    real_part_type,
    select_type,
    slice_type,
    unfold_type,
    view_as_real_type,
)
from gpujit.support.errors import DTypeError, OpError, ShapeError


@view("aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", type_rule=select_type)
def select(xp: Any, x: Array, dim: int, index: int) -> Array:
    """A view of the slice at ``index`` of ``dim``, without that dim."""
    n = x.ndim
    if n == 0:
        raise ShapeError("aten::select: a 0-dim tensor has no dim to select from")
    d = dim if 0 <= dim < n else wrap_dim(dim, n, "aten::select")
    try:
        return x[(*BEFORE[d], index, ...)]
    except IndexError:
        raise ShapeError(
            f"aten::select: index {index} is out of range for dim {dim} of shape {list(x.shape)}; "
            f"use {-x.shape[d]} to {x.shape[d] - 1}"
        ) from None


@view(
    "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
    type_rule=slice_type,
)
def slice_tensor(xp: Any, x: Array, dim: int, start: int | None, end: int | None, step: int) -> Array:
    """A view of every ``step``-th index of ``dim`` from ``start`` to before ``end``; both are clamped."""
    n = x.ndim
    if step <= 0 or n == 0:
        raise ShapeError(
            "aten::slice: a 0-dim tensor can't be sliced"
            if n == 0
            else f"aten::slice: step {step} must be positive; use flip"
        )
    if dim == 0:
        return x[start:end:step]
    d = dim if 0 < dim < n else wrap_dim(dim, n, "aten::slice")
    return x[(*BEFORE[d], slice(start, end, step))]


def _narrowed(x: Array, dim: int, start: int, length: int, op: str) -> Array:
    if x.ndim == 0:
        raise ShapeError(f"{op}: a 0-dim tensor can't be narrowed")
    d = wrap_dim(dim, x.ndim, op)
    size = x.shape[d]
    first = start + size if start < 0 else start
    if length < 0 or first < 0 or first + length > size:
        raise ShapeError(f"{op}: start {start} and length {length} don't fit dim {dim} of size {size}")
    return x[(*BEFORE[d], slice(first, first + length))]


@view("aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", type_rule=narrow_type)
def narrow(xp: Any, x: Array, dim: int, start: int, length: int) -> Array:
    """A view of ``length`` indices of ``dim`` from ``start`` on."""
    return _narrowed(x, dim, start, length, "aten::narrow")


@view("aten::narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)", type_rule=narrow_type)
def narrow_tensor(xp: Any, x: Array, dim: int, start: Array, length: int) -> Array:
    """A view of ``length`` indices of ``dim`` from ``start``, an integer 0-dim tensor, on."""
    if start.ndim or start.dtype.kind not in "iu":
        raise ShapeError(
            f"aten::narrow: start must be a 0-dim integer tensor, found {start.dtype} of shape {list(start.shape)}"
        )
    return _narrowed(x, dim, int(start), length, "aten::narrow")


@view("aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", type_rule=unfold_type)
def unfold(xp: Any, x: Array, dimension: int, size: int, step: int) -> Array:
    """A view of all windows of ``size`` along a dim, ``step`` apart; positions in a window are a new last dim."""
    d = wrap_dim(dimension, x.ndim, "aten::unfold")
    length = x.shape[d] if x.ndim else 1
    if not 0 <= size <= length or step <= 0:
        raise ShapeError(f"aten::unfold: size {size} and step {step} don't fit dim {dimension} of size {length}")
    if x.ndim == 0:
        return x.reshape(1)[:size]
    shape, strides = x.shape, x.strides
    count = (length - size) // step + 1
    return strided(
        xp,
        x,
        (*shape[:d], count, *shape[d + 1 :], size),
        (*strides[:d], strides[d] * step, *strides[d + 1 :], strides[d]),
    )


def _storage(x: Array) -> Array:
    """The array that owns the memory of ``x``, as far as it has the same dtype."""
    owner = x
    while isinstance(owner.base, type(x)) and owner.base.dtype == x.dtype:
        owner = owner.base
    return owner


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0]) if isinstance(x, np.ndarray) else int(x.data.ptr)


def strided_view(xp: Any, x: Array, size: Sequence[int], stride: Sequence[int], offset: int | None, op: str) -> Array:
    """A view by explicit strides over the memory that ``x`` is part of. Raises ShapeError when it would leave it."""
    shape = normal_size(size, op)
    if len(stride) != len(shape) or any(s < 0 for s in stride) or (offset is not None and offset < 0):
        raise ShapeError(f"{op}: size {list(size)}, stride {list(stride)} and offset {offset} don't describe a view")
    owner = _storage(x)
    # An owner that is itself strided (a slice of foreign memory) bounds the view by its own first and last element.
    span = (
        sum((n - 1) * abs(st) for n, st in zip(owner.shape, owner.strides, strict=True)) // x.itemsize + 1
        if owner.size
        else 0
    )
    first = (_address(x) - _address(owner)) // x.itemsize if offset is None else offset
    last = first + sum((n - 1) * st for n, st in zip(shape, stride, strict=True)) if 0 not in shape else first - 1
    if last >= span:
        raise ShapeError(
            f"{op}: size {list(size)}, stride {list(stride)} and offset {first} reach element {last}; there are {span}"
        )
    strides = tuple(s * x.itemsize for s in stride)
    if 0 in shape:
        return xp.empty(shape, x.dtype)
    if owner.flags.c_contiguous:
        flat = owner.reshape(-1)[first:]
    elif owner.flags.f_contiguous:
        flat = owner.T.reshape(-1)[first:]
    elif first == 0:
        flat = owner
    else:
        raise OpError(f"{op}: an offset into memory that isn't contiguous can't be followed; make it contiguous first")
    return strided(xp, flat, shape, strides)


@view(
    "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
    type_rule=as_strided_type,
)
def as_strided(xp: Any, x: Array, size: list[int], stride: list[int], storage_offset: int | None) -> Array:
    """A view by explicit size, stride and offset (in elements, from the start of the owning array)."""
    return strided_view(xp, x, size, stride, storage_offset, "aten::as_strided")


@view(
    "aten::as_strided_(Tensor(a!) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a!)",
    type_rule=as_strided_type,
)
def as_strided_in_place(xp: Any, x: Array, size: list[int], stride: list[int], storage_offset: int | None) -> Array:
    """``x`` itself under another size and stride; only for as many elements and the same start."""
    y = strided_view(xp, x, size, stride, storage_offset, "aten::as_strided_")
    if y.size != x.size or _address(y) != _address(x):
        raise OpError(
            "aten::as_strided_: an array can't change its number of elements or its start in place; use as_strided"
        )
    return set_geometry(x, y.shape, y.strides, "aten::as_strided_")


# ------------------------------------------------------------------------------------------------ complex parts


@view("aten::real(Tensor(a) self) -> Tensor(a)", type_rule=real_part_type)
def real(xp: Any, x: Array) -> Array:
    """A view of the real parts; a real tensor itself."""
    return x.real if x.dtype.kind == "c" else x


@view("aten::imag(Tensor(a) self) -> Tensor(a)", type_rule=real_part_type)
def imag(xp: Any, x: Array) -> Array:
    """A view of the imaginary parts. Raises DTypeError for a real tensor."""
    if x.dtype.kind != "c":
        raise DTypeError(f"aten::imag: a tensor of dtype {x.dtype} has no imaginary part; a complex one is needed")
    return x.imag


@view("aten::view_as_real(Tensor(a) self) -> Tensor(a)", type_rule=view_as_real_type)
def view_as_real(xp: Any, x: Array) -> Array:
    """A view of complex numbers as pairs in a new last dim."""
    if x.dtype.kind != "c":
        raise DTypeError(f"aten::view_as_real: a complex tensor is needed, found {x.dtype}")
    return x[..., None].view(FLOAT32 if x.itemsize == 8 else FLOAT64)


@view("aten::view_as_complex(Tensor(a) self) -> Tensor(a)", type_rule=view_as_complex_type)
def view_as_complex(xp: Any, x: Array) -> Array:
    """A view of pairs along the last dim as complex numbers."""
    if x.dtype not in (FLOAT32, FLOAT64):
        raise DTypeError(f"aten::view_as_complex: a float32 or float64 tensor is needed, found {x.dtype}")
    if x.ndim == 0 or x.shape[-1] != 2 or x.strides[-1] != x.itemsize:
        raise ShapeError(f"aten::view_as_complex: the last dim of shape {list(x.shape)} must have size 2 and stride 1")
    if any(st % (2 * x.itemsize) for st, n in zip(x.strides[:-1], x.shape[:-1], strict=True) if n > 1):
        raise ShapeError("aten::view_as_complex: all strides but the last must be even; make the tensor contiguous")
    return x.view("complex64" if x.dtype == FLOAT32 else "complex128")[..., 0]


# ------------------------------------------------------------------------------------------------ copies of views


def _declare_copies() -> None:
    table: tuple[tuple[str, str, Callable[..., Any], str], ...] = (
        ("view_copy", "SymInt[] size", view_size, "out"),
        ("view_copy.dtype", "ScalarType dtype", view_dtype, "dtype_out"),
        ("select_copy.int", "int dim, SymInt index", select, "int_out"),
        (
            "slice_copy.Tensor",
            "int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1",
            slice_tensor,
            "Tensor_out",
        ),
        ("narrow_copy", "int dim, SymInt start, SymInt length", narrow, "out"),
        ("permute_copy", "int[] dims", permute, "out"),
        ("expand_copy", "SymInt[] size, *, bool implicit=False", expand, "out"),
        (
            "transpose_copy.int",
            "int dim0, int dim1",
            lambda xp, x, a, b: transposed(x, a, b, "aten::transpose_copy"),
            "int_out",
        ),
        ("t_copy", "", t, "out"),
        ("unsqueeze_copy", "int dim", unsqueeze, "out"),
        ("squeeze_copy", "", squeeze, "out"),
        ("squeeze_copy.dim", "int dim", squeeze_dim, "dim_out"),
        ("squeeze_copy.dims", "int[] dim", squeeze_dims, "dims_out"),
        ("unfold_copy", "int dimension, int size, int step", unfold, "out"),
        ("alias_copy", "", lambda xp, x: x, "out"),
        ("detach_copy", "", lambda xp, x: x, "out"),
        ("diagonal_copy", "int offset=0, int dim1=0, int dim2=1", diagonal, "out"),
        ("as_strided_copy", "SymInt[] size, SymInt[] stride, SymInt? storage_offset=None", as_strided, "out"),
        ("view_as_real_copy", "", view_as_real, "out"),
        ("view_as_complex_copy", "", view_as_complex, "out"),
    )
    for name, arguments, of, out in table:

        def copied(xp: Any, *args: Any, of: Callable[..., Any] = of) -> Array:
            """A contiguous copy of what the view shows."""
            return of(xp, *args).copy()

        def into(xp: Any, out: Array, *args: Any, of: Callable[..., Any] = of) -> Any:
            return view_copied(out, of(xp, *args))

        text = f"aten::{name}(Tensor self{', ' if arguments else ''}{arguments}) -> Tensor"
        rule = type_rule_of(f"aten::{name.replace('_copy', '')}")
        library(text, half="native", out=out, into=into, type_rule=rule)(copied)


_declare_copies()
