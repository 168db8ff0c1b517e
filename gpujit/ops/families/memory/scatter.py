"""Gathering and scattering along a dim: gather, scatter and its reductions, index_add, index_copy, index_fill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, INT64
from gpujit.ir.values import Array
from gpujit.ops.families.memory.create import filled
from gpujit.ops.families.memory.indexing import check_index, combine_rows, require_range, taken
from gpujit.ops.families.memory.views import broadcast_shape
from gpujit.ops.into import fits
from gpujit.ops.layout import cast, copy_preserved, expand_to, wrap_dim
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.data import gathered_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, OpError, ShapeError

# ------------------------------------------------------------------------------------------------ positions


def _check_gather(x: Array, dim: int, index: Array, op: str, source: Array | None = None) -> int:
    """Dim ``dim`` counted from the front. Raises when the index doesn't fit the tensor (or the source)."""
    d = wrap_dim(dim, x.ndim, op)
    if index.size == 0:
        return d
    if index.dtype != INT64 and index.dtype != np.int32:
        raise DTypeError(f"{op}: the index must be int64 or int32, found {index.dtype}")
    if max(index.ndim, 1) != max(x.ndim, 1) or (source is not None and max(source.ndim, 1) != max(index.ndim, 1)):
        raise ShapeError(f"{op}: the index has {index.ndim} dims, the tensor {x.ndim}; they must be as many")
    for e, n in enumerate(index.shape):
        if (e != d and n > (x.shape or (1,))[e]) or (source is not None and n > (source.shape or (1,))[e]):
            found = f"shape {list(x.shape)}" if source is None else f"shapes {list(x.shape)} and {list(source.shape)}"
            raise ShapeError(f"{op}: an index of shape {list(index.shape)} reaches outside {found} (dim {e})")
    size = x.shape[d] if x.ndim else 1
    if index.min() < 0 or index.max() >= size:
        require_range(index, size, d, op, 0)
    return d


def flat_positions(xp: Any, shape: tuple[int, ...], d: int, index: Array) -> Array:
    """Where in a contiguous tensor of ``shape`` the elements lie that ``index`` names along dim ``d``."""
    if len(shape) < 2:
        return index
    stride = 1
    total: Any = None
    for e in range(len(shape) - 1, -1, -1):
        if e == d:
            part = index if stride == 1 else index * stride
        else:
            part = xp.arange(0, index.shape[e] * stride, stride).reshape((-1,) + (1,) * (len(shape) - 1 - e))
        total = part if total is None else total + part
        stride *= shape[e]
    return total


def _within(source: Array, shape: tuple[int, ...]) -> Array:
    """The first part of ``source`` that an index of ``shape`` covers."""
    return source if source.shape == shape else source[tuple(slice(0, n) for n in shape)]


# ------------------------------------------------------------------------------------------------ gather


def _gather_into(xp: Any, out: Array, x: Array, dim: int, index: Array, sparse_grad: bool) -> Any:
    d = _check_gather(x, dim, index, "aten::gather")
    if index.size == 0 or not fits(out, index.shape, x.dtype):
        return NotImplemented
    return taken(out, x.reshape(-1), flat_positions(xp, x.shape, d, index), 0, 0)


@library(
    "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    half="native",
    out="out",
    type_rule=gathered_type,
    into=_gather_into,
)
def gather(xp: Any, x: Array, dim: int, index: Array, sparse_grad: bool) -> Array:
    """The elements of ``self`` at an index along ``dim``; the result has the shape of the index."""
    d = _check_gather(x, dim, index, "aten::gather")
    if index.size == 0:
        return xp.empty(index.shape, x.dtype)
    return xp.asarray(x.reshape(-1).take(flat_positions(xp, x.shape, d, index)))


def _take_along_into(xp: Any, out: Array, x: Array, indices: Array, dim: int | None) -> Any:
    return _gather_into(xp, out, *_along(xp, x, indices, dim), False)


@library(
    "aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
    half="native",
    out="out",
    into=_take_along_into,
)
def take_along_dim(xp: Any, x: Array, indices: Array, dim: int | None) -> Array:
    """The elements of ``self`` at indices along ``dim``, other dims broadcast; without ``dim``, of all in one row."""
    return gather(xp, *_along(xp, x, indices, dim), False)


def _along(xp: Any, x: Array, indices: Array, dim: int | None) -> tuple[Array, int, Array]:
    op = "aten::take_along_dim"
    if indices.dtype != INT64:
        raise DTypeError(f"{op}: indices must be int64, found {indices.dtype}")
    if dim is None:
        return x.reshape(-1), 0, indices.reshape(-1)
    if x.ndim != indices.ndim:
        raise ShapeError(f"{op}: indices have {indices.ndim} dims, the tensor {x.ndim}; they must be as many")
    d = wrap_dim(dim, x.ndim, op)
    if x.ndim:
        rest = broadcast_shape(
            ((*x.shape[:d], 1, *x.shape[d + 1 :]), (*indices.shape[:d], 1, *indices.shape[d + 1 :])), op
        )
        x = expand_to(xp, x, (*rest[:d], x.shape[d], *rest[d + 1 :]))
        indices = expand_to(xp, indices, (*rest[:d], indices.shape[d], *rest[d + 1 :]))
    if indices.size and indices.min() < 0:
        indices = xp.where(indices < 0, indices + (x.shape[d] if x.ndim else 1), indices)
    return x, d, indices


# ------------------------------------------------------------------------------------------------ scatter


def _in_flat(xp: Any, target: Array, wide: bool, write: Callable[[Array], Any]) -> Array:
    """``target`` after ``write`` has changed its elements, given as one row (``wide``: half types in float32)."""
    half = wide and target.dtype in HALF_TYPES
    if target.flags.c_contiguous and not half:
        write(target.reshape(-1))
        return target
    flat = target.reshape(-1)
    flat = flat.astype(FLOAT32) if half else flat.copy()
    write(flat)
    target[...] = cast(flat.reshape(target.shape), target.dtype)
    return target


_UFUNCS = {
    "sum": "add",
    "add": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "mean": "add",
    "amax": "maximum",
    "amin": "minimum",
}


def _identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    """What ``reduce`` starts from when the old values don't count."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if reduce == "amax" else info.max
    return float("-inf") if reduce == "amax" else float("inf")


def _reduce_name(reduce: str, allowed: tuple[str, ...], op: str) -> str:
    if reduce not in allowed:
        raise OpError(f"{op}: reduce must be one of {', '.join(allowed)}, found {reduce!r}")
    return reduce


def _divided(xp: Any, sums: Array, counts: Array) -> Array:
    """Sums by counts, rounding down for integers."""
    if sums.dtype.kind in "iu":
        return sums // counts.astype(sums.dtype)
    return sums / counts.astype(sums.real.dtype)


# What an operator writes to, made of its first argument once all arguments have been checked.
Own = Callable[[Array], Array]


def _in_place(op: str) -> Own:
    def own(x: Array) -> Array:
        check_writable(x, op)
        return x

    return own


def _into_copy(out: Array) -> Own:
    def own(x: Array) -> Array:
        out[...] = x
        return out

    return own


def _scatter(
    xp: Any, x: Array, dim: int, index: Array, source: Any, reduce: str | None, include_self: bool, op: str, own: Own
) -> Array:
    """``own(x)`` with source elements (or one number) stored or combined at an index along ``dim``."""
    is_array = hasattr(source, "dtype")
    if is_array and source.dtype != x.dtype:
        raise DTypeError(f"{op}: src of dtype {source.dtype} doesn't fit a tensor of dtype {x.dtype}; convert it")
    d = _check_gather(x, dim, index, op, source if is_array else None)
    if index.size == 0:
        return own(x)
    at = flat_positions(xp, x.shape, d, index).reshape(-1)
    if is_array:
        values = _within(source, index.shape).reshape(-1)
    else:
        values = filled(xp.empty((), x.dtype), source, op)

    def write(flat: Array) -> None:
        if reduce is None:
            flat[at] = values
            return
        ufunc = getattr(xp, _UFUNCS[reduce])
        if not include_self:
            flat[at] = _identity(reduce, flat.dtype)
        if is_array:
            combined = cast(values, flat.dtype)
        else:
            combined = xp.full(at.shape, values, dtype=flat.dtype)
        ufunc.at(flat, at, combined)
        if reduce == "mean":
            counts = xp.bincount(at, minlength=flat.size)
            counts += 1 if include_self else counts == 0
            flat[...] = _divided(xp, flat, counts)

    return _in_flat(xp, own(x), reduce is not None, write)


_TWO_ARGUMENT_REDUCES = ("add", "multiply")
_REDUCES = ("sum", "prod", "mean", "amax", "amin")


def _declare_scatters() -> None:
    head = "int dim, Tensor index, "
    kinds: tuple[tuple[str, str, str], ...] = (
        ("src", "Tensor src", "src_out"),
        ("value", "Scalar value", "value_out"),
        ("reduce", "Tensor src, *, str reduce", "reduce_out"),
        ("value_reduce", "Scalar value, *, str reduce", "value_reduce_out"),
    )

    def body(name: str, in_place: bool, fixed: str | None = None) -> Callable[..., Array]:
        op = f"aten::{name}"

        def scattered(xp: Any, x: Array, dim: int, index: Array, source: Any, reduce: str | None = fixed) -> Array:
            """``self`` (a copy of it without underscore) with source elements stored or combined at an index."""
            if reduce is not None and fixed is None:
                _reduce_name(reduce, _TWO_ARGUMENT_REDUCES, op)
            own = _in_place(op) if in_place else partial(copy_preserved, xp)
            return _scatter(xp, x, dim, index, source, reduce, True, op, own)

        return scattered

    def into(fixed: str | None = None) -> Callable[..., Any]:
        def scattered(
            xp: Any, out: Array, x: Array, dim: int, index: Array, source: Any, reduce: str | None = fixed
        ) -> Any:
            if not fits(out, x.shape, x.dtype) or reduce not in (None, *_TWO_ARGUMENT_REDUCES):
                return NotImplemented
            _scatter(xp, x, dim, index, source, reduce, True, "aten::scatter", _into_copy(out))
            return None

        return scattered

    # PyTorch lists value before src for the functional form, and the other way round for the in-place one.
    for kind, arguments, out in (kinds[1], kinds[0], *kinds[2:]):
        text = f"aten::scatter.{kind}(Tensor self, {head}{arguments}) -> Tensor"
        library(text, half="native", out=out, into=into(), type_rule=same_type)(body("scatter", False))
    for kind, arguments, _ in kinds:
        text = f"aten::scatter_.{kind}(Tensor(a!) self, {head}{arguments}) -> Tensor(a!)"
        library(text, half="native")(body("scatter_", True))
    library(
        f"aten::scatter_add(Tensor self, {head}Tensor src) -> Tensor",
        half="native",
        out="out",
        into=into("add"),
        type_rule=same_type,
    )(body("scatter_add", False, "add"))
    library(f"aten::scatter_add_(Tensor(a!) self, {head}Tensor src) -> Tensor(a!)", half="native")(
        body("scatter_add_", True, "add")
    )

    def reduced(name: str, in_place: bool) -> Callable[..., Array]:
        op = f"aten::{name}"

        def scattered(xp: Any, x: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool) -> Array:
            """``self`` (a copy of it without underscore) with source elements combined at an index."""
            _reduce_name(reduce, _REDUCES, op)
            own = _in_place(op) if in_place else partial(copy_preserved, xp)
            return _scatter(xp, x, dim, index, src, reduce, include_self, op, own)

        return scattered

    def reduced_into(
        xp: Any, out: Array, x: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
    ) -> Any:
        if not fits(out, x.shape, x.dtype) or reduce not in _REDUCES:
            return NotImplemented
        _scatter(xp, x, dim, index, src, reduce, include_self, "aten::scatter_reduce", _into_copy(out))
        return None

    rest = f"{head}Tensor src, str reduce, *, bool include_self=True"
    library(
        f"aten::scatter_reduce.two(Tensor self, {rest}) -> Tensor",
        half="native",
        out="two_out",
        into=reduced_into,
        type_rule=same_type,
    )(reduced("scatter_reduce", False))
    library(f"aten::scatter_reduce_.two(Tensor(a!) self, {rest}) -> Tensor(a!)", half="native")(
        reduced("scatter_reduce_", True)
    )


_declare_scatters()


# ------------------------------------------------------------------------------------------------ whole slices


def _slices(
    x: Array, dim: int, index: Array, source: Array | None, op: str, own: Own
) -> tuple[Array, Array, Array, Array | None]:
    """``own(x)``; it and ``source`` with dim ``dim`` in front, and the checked index."""
    index = check_index(index, op)
    if source is not None and source.dtype != x.dtype:
        raise DTypeError(f"{op}: source of dtype {source.dtype} doesn't fit a tensor of dtype {x.dtype}; convert it")
    d = wrap_dim(dim, x.ndim, op)
    shape = x.shape or (1,)
    if source is not None:
        source = source if source.ndim else source.reshape((1,) * len(shape))
        want = (*shape[:d], index.size, *shape[d + 1 :])
        if source.shape != want:
            raise ShapeError(f"{op}: source has shape {list(source.shape)}; the index and the tensor need {list(want)}")
    require_range(index, shape[d], d, op, 0)
    x = own(x)
    t = x if x.ndim else x.reshape(1)
    if d:
        order = (d, *range(d), *range(d + 1, t.ndim))
        t = t.transpose(order)
        source = None if source is None else source.transpose(order)
    return x, t, index, source


def _combine_slices(xp: Any, t: Array, index: Array, source: Array, ufunc: Any) -> None:
    if t.dtype in HALF_TYPES:
        wide = t.astype(FLOAT32)
        combine_rows(xp, wide, index, source.astype(FLOAT32), ufunc)
        t[...] = cast(wide, t.dtype)
    else:
        combine_rows(xp, t, index, source, ufunc)


def _index_add(xp: Any, x: Array, dim: int, index: Array, source: Array, alpha: Any, op: str, own: Own) -> Array:
    if alpha != 1 and isinstance(alpha, (float, complex)) and x.dtype.kind in "biu":
        raise DTypeError(f"{op}: alpha {alpha} must be an integer for a tensor of dtype {x.dtype}")
    factor = filled(xp.empty((), x.dtype), alpha, op)
    x, t, index, part = _slices(x, dim, index, source, op, own)
    assert part is not None
    if alpha != 1:
        part = part * factor
    _combine_slices(xp, t, index, part, xp.add)
    return x


def _index_copy(xp: Any, x: Array, dim: int, index: Array, source: Array, op: str, own: Own) -> Array:
    x, t, index, part = _slices(x, dim, index, source, op, own)
    t[index] = part
    return x


def _index_fill(xp: Any, x: Array, dim: int, index: Array, value: Any, op: str, own: Own) -> Array:
    if hasattr(value, "dtype"):
        if value.ndim:
            raise ShapeError(f"{op}: the value must be a 0-dim tensor, found shape {list(value.shape)}")
        value = value.item()
    number = filled(xp.empty((), x.dtype), value, op)
    x, t, index, _ = _slices(x, dim, index, None, op, own)
    t[index] = number
    return x


def _index_reduce(
    xp: Any, x: Array, dim: int, index: Array, source: Array, reduce: str, include_self: bool, op: str, own: Own
) -> Array:
    _reduce_name(reduce, _REDUCES[1:], op)
    x, t, index, part = _slices(x, dim, index, source, op, own)
    assert part is not None
    if not include_self:
        t[index] = _identity(reduce, t.dtype)
    _combine_slices(xp, t, index, part, getattr(xp, _UFUNCS[reduce]))
    if reduce == "mean":
        counts = xp.bincount(index, minlength=len(t))
        counts += 1 if include_self else counts == 0
        t[...] = cast(
            _divided(xp, cast(t, FLOAT32) if t.dtype in HALF_TYPES else t, counts.reshape((-1,) + (1,) * (t.ndim - 1))),
            t.dtype,
        )
    return x


def _declare_slices() -> None:
    def both(name: str, arguments: str, core: Callable[..., Array], out: str, overload: str = "") -> None:
        def functional(xp: Any, x: Array, *args: Any) -> Array:
            """A copy of ``self`` with the slices at an index changed."""
            return core(xp, x, *args, f"aten::{name}", partial(copy_preserved, xp))

        def into(xp: Any, out: Array, x: Array, *args: Any) -> Any:
            if not fits(out, x.shape, x.dtype):
                return NotImplemented
            core(xp, x, *args, f"aten::{name}", _into_copy(out))
            return None

        def in_place(xp: Any, x: Array, *args: Any) -> Array:
            """``self`` with the slices at an index changed."""
            return core(xp, x, *args, f"aten::{name}_", _in_place(f"aten::{name}_"))

        library(
            f"aten::{name}{overload}(Tensor self, {arguments}) -> Tensor",
            half="native",
            out=out,
            into=into,
            type_rule=same_type,
        )(functional)
        library(f"aten::{name}_{overload}(Tensor(a!) self, {arguments}) -> Tensor(a!)", half="native")(in_place)

    at = "int dim, Tensor index, "
    both("index_add", f"{at}Tensor source, *, Scalar alpha=1", _index_add, "out")
    both("index_copy", f"{at}Tensor source", _index_copy, "out")
    both("index_fill", f"{at}Tensor value", _index_fill, "int_Tensor_out", ".int_Tensor")
    both("index_fill", f"{at}Scalar value", _index_fill, "int_Scalar_out", ".int_Scalar")
    both("index_reduce", f"{at}Tensor source, str reduce, *, bool include_self=True", _index_reduce, "out")


_declare_slices()

__all__ = ["flat_positions", "gather"]
