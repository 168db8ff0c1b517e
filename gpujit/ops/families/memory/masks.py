"""Elements chosen by a mask, the places of those that are not zero, and copies of a tensor with a part replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, INT64
from gpujit.ir.values import Array
from gpujit.ops.families.memory.indexing import taken
from gpujit.ops.families.memory.parts import select, slice_tensor, strided_view
from gpujit.ops.families.memory.views import broadcast_shape, diagonal, expanded_shape
from gpujit.ops.into import copied, fits
from gpujit.ops.layout import cast, copy_preserved, expand_to
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.data import (
    masked_scatter_type,
    masked_select_type,
    nonzero_by_dim_type,
    nonzero_static_type,
    nonzero_type,
)
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, ShapeError

# ------------------------------------------------------------------------------------------------ masks


def _check_mask(mask: Array, op: str) -> Array:
    if mask.dtype == BOOL_:
        return mask
    if mask.dtype == np.uint8:
        return mask.astype(BOOL_)
    raise DTypeError(f"{op}: the mask must be bool, found {mask.dtype}")


def _masked_select_into(xp: Any, out: Array, x: Array, mask: Array) -> Any:
    if mask.dtype != BOOL_ or mask.shape != x.shape:
        return NotImplemented
    return taken(out, x.reshape(-1), mask.reshape(-1).nonzero()[0], 0, 0)


@library(
    "aten::masked_select(Tensor self, Tensor mask) -> Tensor",
    half="native",
    out="out",
    type_rule=masked_select_type,
    into=_masked_select_into,
)
def masked_select(xp: Any, x: Array, mask: Array) -> Array:
    """The elements where the mask holds, in order, in one dim; both broadcast."""
    mask = _check_mask(mask, "aten::masked_select")
    if x.shape != mask.shape:
        shape = broadcast_shape((x.shape, mask.shape), "aten::masked_select")
        x = x if x.shape == shape else expand_to(xp, x, shape)
        mask = mask if mask.shape == shape else expand_to(xp, mask, shape)
    return x[mask]


def _masked_scatter(xp: Any, x: Array, mask: Array, source: Array, op: str) -> Array:
    mask = _check_mask(mask, op)
    if source.dtype != x.dtype:
        raise DTypeError(f"{op}: source of dtype {source.dtype} doesn't fit a tensor of dtype {x.dtype}; convert it")
    check_writable(x, op)
    if mask.shape != x.shape:
        mask = expand_to(xp, mask, expanded_shape(mask, x.shape, op))
    need = int(mask.sum())
    if source.size < need:
        raise ShapeError(f"{op}: the mask needs {need} elements, the source has {source.size}")
    x[mask] = source.reshape(-1)[:need]
    return x


@library(
    "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
    half="native",
    out="out",
    type_rule=masked_scatter_type,
)
def masked_scatter(xp: Any, x: Array, mask: Array, source: Array) -> Array:
    """A copy of ``self`` with source elements, in order, where the mask holds; both broadcast."""
    shape = broadcast_shape((x.shape, mask.shape), "aten::masked_scatter")
    x = copy_preserved(xp, x) if x.shape == shape else expand_to(xp, x, shape).copy()
    return _masked_scatter(xp, x, mask, source, "aten::masked_scatter")


@library("aten::masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)", half="native")
def masked_scatter_in_place(xp: Any, x: Array, mask: Array, source: Array) -> Array:
    """``self`` with source elements, in order, where the mask holds."""
    return _masked_scatter(xp, x, mask, source, "aten::masked_scatter_")


# ------------------------------------------------------------------------------------------------ nonzero


def _nonzero(xp: Any, x: Array) -> Array:
    if x.ndim == 0:
        return xp.empty((1 if x else 0, 0), INT64)
    found = x.nonzero()
    # One row of memory for each dim, as in PyTorch.
    y = xp.empty((x.ndim, found[0].size), INT64)
    for i, f in enumerate(found):
        y[i] = f
    return y.T


def _declare_nonzero() -> None:
    def nonzero(xp: Any, x: Array) -> Array:
        """The indices of all elements that are not zero, one row each, in order."""
        return _nonzero(xp, x)

    def nonzero_into(xp: Any, out: Array, x: Array) -> Any:
        found = x.nonzero() if x.ndim else ()
        if not found or not fits(out, (found[0].size, x.ndim), INT64):
            return NotImplemented
        for i, places in enumerate(found):
            out[:, i] = places
        return None

    def by_dim(xp: Any, x: Array) -> list[Array]:
        """For each dim the indices along it of all elements that are not zero."""
        return list(_nonzero(xp, x if x.ndim else x.reshape(1)).T)

    library(
        "aten::nonzero(Tensor self) -> Tensor", half="native", out="out", type_rule=nonzero_type, into=nonzero_into
    )(nonzero)
    library("aten::argwhere(Tensor self) -> Tensor", half="native", type_rule=nonzero_type, into=nonzero_into)(nonzero)
    library("aten::nonzero_numpy(Tensor self) -> Tensor[]", half="native", type_rule=nonzero_by_dim_type)(by_dim)
    library("aten::where(Tensor condition) -> Tensor[]", half="native", type_rule=nonzero_by_dim_type)(by_dim)


_declare_nonzero()


@library(
    "aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor",
    half="native",
    out="out",
    type_rule=nonzero_static_type,
)
def nonzero_static(xp: Any, x: Array, size: int, fill_value: int) -> Array:
    """As nonzero with exactly ``size`` rows: cut off, or filled up with a number."""
    if size < 0:
        raise ShapeError(f"aten::nonzero_static: size must not be negative, found {size}")
    found = _nonzero(xp, x)
    y = xp.full((size, x.ndim), fill_value, dtype=INT64)
    n = min(size, len(found))
    y[:n] = found[:n]
    return y


# ------------------------------------------------------------------------------------------------ views written


def _declare_view_scatters() -> None:
    table: tuple[tuple[str, str, Callable[..., Array]], ...] = (
        ("select_scatter", "int dim, SymInt index", select),
        ("slice_scatter", "int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1", slice_tensor),
        ("diagonal_scatter", "int offset=0, int dim1=0, int dim2=1", diagonal),
    )

    def stored(part: Array, src: Array, op: str) -> None:
        if src.shape != part.shape:
            raise ShapeError(f"{op}: src has shape {list(src.shape)}, the part it replaces has {list(part.shape)}")
        part[...] = cast(src, part.dtype)

    for name, arguments, view_of in table:

        def scattered(
            xp: Any,
            x: Array,
            src: Array,
            *args: Any,
            op: str = f"aten::{name}",
            view_of: Callable[..., Array] = view_of,
        ) -> Array:
            """A copy of ``self`` in which what the view would show is replaced by ``src``."""
            y = copy_preserved(xp, x)
            stored(view_of(xp, y, *args), src, op)
            return y

        def scattered_into(
            xp: Any, out: Array, x: Array, src: Array, *args: Any, view_of: Callable[..., Array] = view_of
        ) -> Any:
            part = view_of(xp, out, *args) if out.shape == x.shape else None
            if part is None or src.shape != part.shape or src.dtype != x.dtype or copied(out, x) is NotImplemented:
                return NotImplemented
            part[...] = src
            return None

        library(
            f"aten::{name}(Tensor self, Tensor src, {arguments}) -> Tensor",
            half="native",
            out="out",
            into=scattered_into,
            type_rule=same_type,
        )(scattered)

    def strided_scattered(
        xp: Any, x: Array, src: Array, size: list[int], stride: list[int], offset: int | None
    ) -> Array:
        """A copy of ``self`` in which what the strided view would show is replaced by ``src``."""
        y = copy_preserved(xp, x)
        stored(strided_view(xp, y, size, stride, offset, "aten::as_strided_scatter"), src, "aten::as_strided_scatter")
        return y

    arguments = "SymInt[] size, SymInt[] stride, SymInt? storage_offset=None"
    library(
        f"aten::as_strided_scatter(Tensor self, Tensor src, {arguments}) -> Tensor",
        half="native",
        out="out",
        type_rule=same_type,
    )(strided_scattered)


_declare_view_scatters()
