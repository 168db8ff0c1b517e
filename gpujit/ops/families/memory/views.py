"""Views: operators whose result is another way to see all of the memory of their input.

Parts are in ``parts.py``, pieces in ``splits.py``, conversions in ``casts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.layout import BEFORE, dtype_of, expand_to, out_forms, set_geometry, wrap_dim, wrap_dims
from gpujit.ops.registry import library, view
from gpujit.ops.rules.views import (
    as_other_type,
    at_least_type,
    broadcast_tensors_type,
    diagonal_type,
    each_at_least_type,
    expand_type,
    flatten_type,
    matrix_t_type,
    movedim_type,
    permute_type,
    ravel_type,
    reversed_type,
    squeeze_dims_type,
    squeeze_type,
    t_type,
    transpose_type,
    unflatten_type,
    unsqueeze_type,
    view_dtype_type,
    view_type,
)
from gpujit.support.errors import ShapeError

# ------------------------------------------------------------------------------------------------ reshaping


def _reshaped(x: Array, size: Sequence[int], op: str) -> Array:
    try:
        if min(size, default=0) >= -1:
            return x.reshape(size)
        # NumPy takes any negative number for -1.
        raise ShapeError(f"{op}: size {list(size)} has a negative entry; only one -1 is allowed")
    except (ValueError, OverflowError):
        raise ShapeError(
            f"{op}: a tensor of shape {list(x.shape)} has {x.size} elements and can't have the shape {list(size)}"
        ) from None


def _seen_as(x: Array, size: Sequence[int], op: str) -> Array:
    y = _reshaped(x, size, op)
    # NumPy copies when strides do not fit; then the result's memory belongs to neither x nor the owner of x.
    if not x.flags.c_contiguous and y.size and y.base is not x and (y.base is None or y.base is not x.base):
        raise ShapeError(
            f"{op}: strides {[s // x.itemsize for s in x.strides]} of shape {list(x.shape)} can't be seen as "
            f"{list(size)} without a copy; call reshape"
        )
    return y


@view("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", type_rule=view_type)
def view_size(xp: Any, x: Array, size: list[int]) -> Array:
    """The same memory under another shape; one entry may be -1. Raises ShapeError where a copy would be needed."""
    return _seen_as(x, size, "aten::view")


@view("aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)", type_rule=view_dtype_type)
def view_dtype(xp: Any, x: Array, dtype: int) -> Array:
    """The same memory read as another dtype; the last dim grows or shrinks with the element size."""
    target = dtype_of(dtype, "aten::view")
    if target.itemsize == x.itemsize:
        return x.view(target)
    if x.ndim == 0:
        raise ShapeError("aten::view: a 0-dim tensor can only be seen as a dtype of the same element size")
    try:
        return x.view(target)
    except ValueError as e:
        raise ShapeError(f"aten::view: shape {list(x.shape)} of {x.dtype} can't be seen as {target}: {e}") from None


@view("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", type_rule=view_type)
def reshape(xp: Any, x: Array, shape: list[int]) -> Array:
    """The same elements under another shape: a view where strides allow, else a copy."""
    return _reshaped(x, shape, "aten::reshape")


@view("aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)", type_rule=view_type)
def reshape_alias(xp: Any, x: Array, size: list[int], stride: list[int]) -> Array:
    """The same memory under a shape the caller knows to be possible."""
    return _reshaped(x, size, "aten::_reshape_alias")


@library("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", half="native", type_rule=view_type, may_alias=True)
def unsafe_view(xp: Any, x: Array, size: list[int]) -> Array:
    """As view; the schema says that nobody else keeps ``self``."""
    return _seen_as(x, size, "aten::_unsafe_view")


@view("aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)", type_rule=as_other_type, asked_for_shape=("other",))
def view_as(xp: Any, x: Array, other: Array) -> Array:
    """The same memory under the shape of ``other``."""
    return _seen_as(x, other.shape, "aten::view_as")


@view(
    "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", type_rule=as_other_type, asked_for_shape=("other",)
)
def reshape_as(xp: Any, x: Array, other: Array) -> Array:
    """The same elements under the shape of ``other``."""
    return _reshaped(x, other.shape, "aten::reshape_as")


@view("aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)", type_rule=flatten_type)
def flatten(xp: Any, x: Array, start_dim: int, end_dim: int) -> Array:
    """Dims ``start_dim`` to ``end_dim`` merged into one; a 0-dim tensor becomes 1-dim."""
    shape = x.shape
    n = len(shape)
    start, end = wrap_dim(start_dim, n, "aten::flatten"), wrap_dim(end_dim, n, "aten::flatten")
    if start > end:
        raise ShapeError(f"aten::flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    if n == 0:
        return x.reshape(1)
    if start == end:
        return x
    return x.reshape(*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])


@view("aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", type_rule=unflatten_type)
def unflatten(xp: Any, x: Array, dim: int, sizes: list[int]) -> Array:
    """Dim ``dim`` split into ``sizes``, of which one may be -1."""
    d = wrap_dim(dim, x.ndim, "aten::unflatten")
    if not sizes:
        raise ShapeError("aten::unflatten: sizes is empty; give at least one size")
    size = x.shape[d] if x.ndim else 1
    known = prod(s for s in sizes if s != -1)
    if sizes.count(-1) > 1 or (known != size if -1 not in sizes else not known or size % known):
        raise ShapeError(f"aten::unflatten: sizes {sizes} don't multiply to {size}, the size of dim {dim}")
    full = [size // known if s == -1 else s for s in sizes]
    return _seen_as(x, (*x.shape[:d], *full, *x.shape[d + 1 :]), "aten::unflatten")


@view("aten::ravel(Tensor(a) self) -> Tensor(a)", type_rule=ravel_type)
def ravel(xp: Any, x: Array) -> Array:
    """All elements in one dim: a view when contiguous, else a copy."""
    return x.reshape(-1)


# ------------------------------------------------------------------------------------------------ expanding


def expanded_shape(x: Array, size: Sequence[int], op: str) -> tuple[int, ...]:
    """The shape ``x`` is expanded to by ``size``, whose -1 entries keep a dim. Raises ShapeError."""
    shape = x.shape
    lead = len(size) - len(shape)
    bad = lead < 0
    result = list(size)
    for i, s in enumerate(result):
        old = shape[i - lead] if i >= lead else None
        if s == -1 and old is not None:
            result[i] = old
        elif s < 0 or (old is not None and old != s and old != 1):
            bad = True
    if bad:
        raise ShapeError(
            f"{op}: a tensor of shape {list(shape)} can't be expanded to {list(size)}; only dims of size 1 can grow"
        )
    return tuple(result)


@view("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", type_rule=expand_type)
def expand(xp: Any, x: Array, size: list[int], implicit: bool) -> Array:
    """A view with dims of size 1 repeated to ``size`` (stride 0); -1 keeps a dim, new dims come first."""
    shape = expanded_shape(x, size, "aten::expand")
    return x[...] if shape == x.shape else expand_to(xp, x, shape)


@view("aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", type_rule=as_other_type, asked_for_shape=("other",))
def expand_as(xp: Any, x: Array, other: Array) -> Array:
    """A view of the shape of ``other``."""
    shape = expanded_shape(x, other.shape, "aten::expand_as")
    return x[...] if shape == x.shape else expand_to(xp, x, shape)


@view("aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", type_rule=expand_type)
def broadcast_to(xp: Any, x: Array, size: list[int]) -> Array:
    """A view with dims of size 1 repeated to ``size``."""
    shape = expanded_shape(x, size, "aten::broadcast_to")
    return x[...] if shape == x.shape else expand_to(xp, x, shape)


def broadcast_shape(shapes: Sequence[tuple[int, ...]], op: str) -> tuple[int, ...]:
    """The common shape of ``shapes``. Raises ShapeError when they don't broadcast."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{op}: shapes {' and '.join(str(list(s)) for s in shapes)} don't broadcast") from None


@library(
    "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]",
    half="native",
    type_rule=broadcast_tensors_type,
    may_alias=True,
)
def broadcast_tensors(xp: Any, tensors: list[Array]) -> list[Array]:
    """Views of all tensors under their common shape."""
    shape = broadcast_shape([t.shape for t in tensors], "aten::broadcast_tensors")
    return [t[...] if t.shape == shape else expand_to(xp, t, shape) for t in tensors]


# ------------------------------------------------------------------------------------------------ order of dims


@view("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", type_rule=permute_type)
def permute(xp: Any, x: Array, dims: list[int]) -> Array:
    """A view with dims in the order ``dims``."""
    try:
        return x.transpose(dims) if dims else _reshaped(x, (), "aten::permute")
    except ValueError:
        raise ShapeError(
            f"aten::permute: dims {dims} are no permutation of the {x.ndim} dims of shape {list(x.shape)}"
        ) from None


def transposed(x: Array, dim0: int, dim1: int, op: str) -> Array:
    n = x.ndim
    if n == 2 and dim0 != dim1 and 0 <= dim0 < 2 and 0 <= dim1 < 2:
        return x.T
    a, b = wrap_dim(dim0, n, op), wrap_dim(dim1, n, op)
    return x.swapaxes(a, b) if n else x[...]


def _declare_transposes() -> None:
    for name, a, b in (("transpose.int", "dim0", "dim1"), ("swapaxes", "axis0", "axis1"), ("swapdims", "dim0", "dim1")):
        full = f"aten::{name.partition('.')[0]}"

        def swapped(xp: Any, x: Array, dim0: int, dim1: int, *, op: str = full) -> Array:
            """A view with two dims exchanged."""
            return transposed(x, dim0, dim1, op)

        def swapped_in_place(xp: Any, x: Array, dim0: int, dim1: int, *, op: str = full) -> Array:
            """``x`` itself with two dims exchanged."""
            y = transposed(x, dim0, dim1, f"{op}_")
            return set_geometry(x, y.shape, y.strides, f"{op}_")

        view(f"aten::{name}(Tensor(a) self, int {a}, int {b}) -> Tensor(a)", type_rule=transpose_type)(swapped)
        view(f"{full}_(Tensor(a!) self, int {a}, int {b}) -> Tensor(a!)", type_rule=transpose_type)(swapped_in_place)


_declare_transposes()


@view("aten::t(Tensor(a) self) -> Tensor(a)", type_rule=t_type)
def t(xp: Any, x: Array) -> Array:
    """A matrix transposed; tensors of fewer dims as they are."""
    if x.ndim > 2:
        raise ShapeError(
            f"aten::t: a tensor of at most 2 dims is needed, shape {list(x.shape)} has {x.ndim}; use transpose"
        )
    return x.T


@view("aten::t_(Tensor(a!) self) -> Tensor(a!)", type_rule=t_type)
def t_in_place(xp: Any, x: Array) -> Array:
    """The matrix itself, transposed."""
    if x.ndim > 2:
        raise ShapeError(
            f"aten::t_: a tensor of at most 2 dims is needed, shape {list(x.shape)} has {x.ndim}; use transpose_"
        )
    return set_geometry(x, x.shape[::-1], x.strides[::-1], "aten::t_")


def _swap_last(x: Array, op: str) -> Array:
    if x.ndim < 2:
        raise ShapeError(f"{op}: at least 2 dims are needed, shape {list(x.shape)} has {x.ndim}")
    return x.swapaxes(-1, -2)


def _declare_attribute_transposes() -> None:
    def numpy_t(xp: Any, x: Array) -> Array:
        """A view with all dims reversed."""
        return x.T

    def m_t(xp: Any, x: Array) -> Array:
        """A view with the last two dims exchanged."""
        return _swap_last(x, "aten::mT")

    def conjugate_transpose(name: str) -> Callable[..., Array]:
        def h(xp: Any, x: Array) -> Array:
            """The last two dims exchanged, conjugated when complex (then a copy)."""
            if name == "matrix_H" and x.ndim != 2 and x.ndim != 0:
                raise ShapeError(f"aten::matrix_H: a matrix is needed, shape {list(x.shape)} has {x.ndim} dims")
            y = x[...] if name == "matrix_H" and x.ndim == 0 else _swap_last(x, f"aten::{name}")
            return xp.asarray(y.conj()) if y.dtype.kind == "c" else y

        return h

    for name, body in (
        ("numpy_T", numpy_t),
        ("mT", m_t),
        ("mH", conjugate_transpose("mH")),
        ("matrix_H", conjugate_transpose("matrix_H")),
    ):
        # Two overloads of one meaning: the method and the attribute.
        for overload in ("", ".a"):
            rule = reversed_type if name == "numpy_T" else matrix_t_type
            view(f"aten::{name}{overload}(Tensor(a) self) -> Tensor(a)", type_rule=rule)(body)
    view("aten::adjoint(Tensor(a) self) -> Tensor(a)", type_rule=matrix_t_type)(conjugate_transpose("adjoint"))


_declare_attribute_transposes()


def _moved(x: Array, source: list[int], destination: list[int], op: str) -> Array:
    if len(source) != len(destination):
        raise ShapeError(f"{op}: source {source} and destination {destination} differ in length")
    n = x.ndim
    source, destination = wrap_dims(source, n, op), wrap_dims(destination, n, op)
    if n == 0:
        return x[...]
    order = [-1] * n
    for s, d in zip(source, destination, strict=True):
        order[d] = s
    rest = iter([d for d in range(n) if d not in source])
    return x.transpose([next(rest) if d < 0 else d for d in order])


def _declare_moves() -> None:
    for name in ("movedim", "moveaxis"):

        def move_one(xp: Any, x: Array, source: int, destination: int, *, op: str = f"aten::{name}") -> Array:
            """A view with one dim moved to another place."""
            return _moved(x, [source], [destination], op)

        def move_some(
            xp: Any, x: Array, source: list[int], destination: list[int], *, op: str = f"aten::{name}"
        ) -> Array:
            """A view with dims moved to other places; the rest keep their order."""
            return _moved(x, source, destination, op)

        one = (f"aten::{name}.int(Tensor(a) self, int source, int destination) -> Tensor(a)", move_one)
        some = (f"aten::{name}.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", move_some)
        # PyTorch lists the overloads of the two names in opposite orders.
        for text, body in (one, some) if name == "movedim" else (some, one):
            view(text, type_rule=movedim_type)(body)


_declare_moves()


@view("aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)", type_rule=diagonal_type)
def diagonal(xp: Any, x: Array, offset: int, dim1: int, dim2: int) -> Array:
    """A view of a diagonal over two dims, as last dim; ``offset`` above 0 lies above the main one."""
    n = x.ndim
    a, b = wrap_dim(dim1, n, "aten::diagonal"), wrap_dim(dim2, n, "aten::diagonal")
    if a == b or n < 2:
        raise ShapeError(f"aten::diagonal: dims {dim1} and {dim2} of a tensor of {n} dims must be two different ones")
    y = x.diagonal(offset, a, b)
    if xp is np and x.flags.writeable:
        # NumPy hands diagonals out read-only, as a warning against old code.
        y.setflags(write=True)
    return y


# ------------------------------------------------------------------------------------------------ dims of size 1


@view("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", type_rule=unsqueeze_type)
def unsqueeze(xp: Any, x: Array, dim: int) -> Array:
    """A view with a new dim of size 1 at ``dim``."""
    n = x.ndim + 1
    if not -n <= dim < n:
        raise ShapeError(
            f"aten::unsqueeze: dim {dim} is out of range for a tensor of {n - 1} dims; use {-n} to {n - 1}"
        )
    # The ellipsis keeps a 0-dim input an array.
    return x[(*BEFORE[dim if dim >= 0 else dim + n], None, ...)]


@view("aten::unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)", type_rule=unsqueeze_type)
def unsqueeze_in_place(xp: Any, x: Array, dim: int) -> Array:
    """``x`` itself with a new dim of size 1."""
    y = x[(*BEFORE[wrap_dim(dim, x.ndim + 1, "aten::unsqueeze_")], None, ...)]
    return set_geometry(x, y.shape, y.strides, "aten::unsqueeze_")


def _squeezed(x: Array, dims: Sequence[int], op: str) -> Array:
    shape = x.shape
    wrapped = wrap_dims(dims, len(shape), op)
    ones = tuple(d for d in wrapped if shape and shape[d] == 1)
    return x.squeeze(ones) if ones else x[...]


@view("aten::squeeze(Tensor(a) self) -> Tensor(a)", type_rule=squeeze_type)
def squeeze(xp: Any, x: Array) -> Array:
    """A view without the dims of size 1."""
    return x.squeeze()


@view("aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", type_rule=squeeze_dims_type)
def squeeze_dim(xp: Any, x: Array, dim: int) -> Array:
    """A view without ``dim`` if its size is 1."""
    return _squeezed(x, (dim,), "aten::squeeze")


@view("aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", type_rule=squeeze_dims_type)
def squeeze_dims(xp: Any, x: Array, dim: list[int]) -> Array:
    """A view without those of the dims whose size is 1."""
    return _squeezed(x, dim, "aten::squeeze")


@view("aten::squeeze_(Tensor(a!) self) -> Tensor(a!)", type_rule=squeeze_type)
def squeeze_in_place(xp: Any, x: Array) -> Array:
    """``x`` itself without the dims of size 1."""
    y = x.squeeze()
    return set_geometry(x, y.shape, y.strides, "aten::squeeze_")


@view("aten::squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)", type_rule=squeeze_dims_type)
def squeeze_dim_in_place(xp: Any, x: Array, dim: int) -> Array:
    """``x`` itself without ``dim`` if its size is 1."""
    y = _squeezed(x, (dim,), "aten::squeeze_")
    return set_geometry(x, y.shape, y.strides, "aten::squeeze_")


@view("aten::squeeze_.dims(Tensor(a!) self, int[] dim) -> Tensor(a!)", type_rule=squeeze_dims_type)
def squeeze_dims_in_place(xp: Any, x: Array, dim: list[int]) -> Array:
    """``x`` itself without those of the dims whose size is 1."""
    y = _squeezed(x, dim, "aten::squeeze_")
    return set_geometry(x, y.shape, y.strides, "aten::squeeze_")


def _declare_atleast() -> None:
    def at_least(n: int) -> Callable[[Any, Array], Array]:
        def grown(xp: Any, x: Array) -> Array:
            """The tensor with dims of size 1 added until it has enough; itself when it has."""
            if x.ndim >= n:
                return x
            if x.ndim == 0:
                return x.reshape((1,) * n)
            if n == 2:
                return x[None, :]
            return x[None, :, None] if x.ndim == 1 else x[:, :, None]

        return grown

    for n in (1, 2, 3):
        one = at_least(n)

        def many(xp: Any, tensors: list[Array], *, one: Callable[[Any, Array], Array] = one) -> list[Array]:
            """Each tensor with dims of size 1 added until it has enough."""
            return [one(xp, t) for t in tensors]

        rule, each_rule = at_least_type(n), each_at_least_type(n)
        library(f"aten::atleast_{n}d(Tensor self) -> Tensor", half="native", type_rule=rule, may_alias=True)(one)
        text = f"aten::atleast_{n}d.Sequence(Tensor[] tensors) -> Tensor[]"
        library(text, half="native", type_rule=each_rule, may_alias=True)(many)


_declare_atleast()


out_forms(
    "aten::_unsafe_view.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", of="aten::_unsafe_view"
)
