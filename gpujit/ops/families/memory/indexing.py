"""Advanced indexing: index and index_put, index_select, take and put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES, INT64
from gpujit.ir.values import Array
from gpujit.ops.families.memory.create import filled
from gpujit.ops.into import copied, fits
from gpujit.ops.layout import ALL, cast, copy_preserved, expand_to, wrap_dim
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.data import index_select_type, indexed_type, taken_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, ShapeError

# ------------------------------------------------------------------------------------------------ index


def index_keys(x: Array, indices: Sequence[Array | None], op: str) -> tuple[Any, ...]:
    """NumPy's index for a list of index tensors; None takes a whole dim, bool and uint8 tensors are masks."""
    keys: list[Any] = []
    covered = 0
    for i in indices:
        if i is None:
            keys.append(ALL)
            covered += 1
            continue
        kind = i.dtype.kind
        if kind == "b" or i.dtype == np.uint8:
            at = x.shape[covered : covered + i.ndim]
            if i.shape != at:
                raise ShapeError(
                    f"{op}: a mask of shape {list(i.shape)} doesn't fit dims {list(at)} of shape {list(x.shape)}"
                )
            covered += i.ndim
            keys.append(i if kind == "b" else i.astype(BOOL_))
        elif i.dtype == INT64 or i.dtype == np.int32:
            covered += 1
            keys.append(i)
        else:
            raise DTypeError(f"{op}: tensors used as indices must be int64, int32, bool or uint8, found {i.dtype}")
    if covered > x.ndim:
        raise ShapeError(f"{op}: {covered} indices are too many for a tensor of {x.ndim} dims")
    return tuple(keys)


def _index_fault(x: Array, keys: Sequence[Any], op: str, why: Exception) -> ShapeError:
    """What is wrong with an index NumPy refused."""
    d = 0
    for k in keys:
        if k is ALL or k.dtype == BOOL_:
            d += 1 if k is ALL else k.ndim
            continue
        fault = out_of_range(k, x.shape[d], d, op)
        if fault is not None:
            return fault
        d += 1
    shapes = [list(k.shape) for k in keys if k is not ALL]
    return ShapeError(
        f"{op}: index tensors of shapes {shapes} don't fit together or a tensor of shape {list(x.shape)}: {why}"
    )


def out_of_range(index: Array, size: int, dim: int, op: str, low: int | None = None) -> ShapeError | None:
    """The error for the first index outside ``low`` (by default -size) to size - 1, or None."""
    low = -size if low is None else low
    bad = (index < low) | (index >= size)
    if not bad.any():
        return None
    return ShapeError(f"{op}: index {int(index[bad].reshape(-1)[0])} is out of range for dim {dim} of size {size}")


def require_range(index: Array, size: int, dim: int, op: str, low: int | None = None) -> None:
    """Raises ShapeError for the first index outside ``low`` (by default -size) to size - 1."""
    fault = out_of_range(index, size, dim, op, low)
    if fault is not None:
        raise fault


def _is_basic(keys: Sequence[Any]) -> bool:
    # NumPy takes 0-dim integers alone for basic indexing, which gives views and scalars.
    return all(k is ALL or (k.ndim == 0 and k.dtype != BOOL_) for k in keys)


def _indexed(xp: Any, x: Array, indices: Sequence[Array | None], op: str) -> Array:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == INT64 and x.ndim:
        keys: tuple[Any, ...] = (indices[0],)
        try:
            y = x.take(indices[0], axis=0)
            return y if type(y) is xp.ndarray else xp.asarray(y)
        except IndexError as e:
            raise _index_fault(x, keys, op, e) from None
    keys = index_keys(x, indices, op)
    try:
        return x[(*keys, ...)].copy() if _is_basic(keys) else x[keys]
    except IndexError as e:
        raise _index_fault(x, keys, op, e) from None


def taken(out: Array, x: Array, index: Array, axis: int, low: int) -> Any:
    """The slices of ``x`` at an index along a dim in ``out``; indices may reach from ``low`` up."""
    size = x.shape[axis]
    if not fits(out, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype):
        return NotImplemented
    if index.size and (index.min() < low or index.max() >= size):
        return NotImplemented
    if size:
        # With mode="raise" NumPy would fill a copy of out first. wrap takes negative indices, too.
        x.take(index, axis=axis, out=out, mode="wrap" if low else "clip")
    return None


def _indexed_into(xp: Any, out: Array, x: Array, indices: Sequence[Array | None]) -> Any:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype.kind == "i" and x.ndim:
        return taken(out, x, indices[0], 0, -x.shape[0])
    keys = index_keys(x, indices, "aten::index")
    if _is_basic(keys):
        return copied(out, x[(*keys, ...)])
    if len(keys) == 1 and keys[0].dtype == BOOL_ and x.flags.c_contiguous:
        rows = keys[0].reshape(-1).nonzero()[0]
        return taken(out, x.reshape(keys[0].size, *x.shape[keys[0].ndim :]), rows, 0, 0)
    if any(k is ALL or k.dtype == BOOL_ for k in keys) or not x.flags.c_contiguous or not x.size:
        return NotImplemented
    rows = 0
    for k, size in zip(keys, x.shape, strict=False):
        if k.size and (k.min() < -size or k.max() >= size):
            return NotImplemented
        rows = rows * size + xp.where(k < 0, k + size, k)
    return taken(out, x.reshape(-1, *x.shape[len(keys) :]), xp.asarray(rows), 0, 0)


def _accumulate_at(xp: Any, x: Array, keys: tuple[Any, ...], values: Array) -> None:
    """Add values at indices that may repeat."""
    if all(k is not ALL and k.dtype != BOOL_ for k in keys) and x.flags.c_contiguous and x.size:
        # Indices of the leading dims become one row number, so that rows are added as wholes.
        rows: Any = 0
        n = 1
        for k, size in zip(keys, x.shape, strict=False):
            n *= size
            rows = rows * size + xp.where(k < 0, k + size, k)
        target = x.reshape(n, *x.shape[len(keys) :])
        rows = xp.asarray(rows)
        values = values.reshape((1,) * max(0, rows.ndim + target.ndim - 1 - values.ndim) + values.shape)
        full = rows.shape + target.shape[1:]
        if values.shape != full:
            values = expand_to(xp, values, full)
        combine_rows(xp, target, rows.reshape(-1), values.reshape(-1, *target.shape[1:]), xp.add)
    else:
        xp.add.at(x, keys, values)


def combine_rows(xp: Any, target: Array, rows: Array, values: Array, ufunc: Any) -> None:
    """``target[rows[i]] = ufunc(target[rows[i]], values[i])`` for all i in turn; rows may repeat."""
    if target.ndim == 1:
        ufunc.at(target, rows, values)
        return
    if rows.size == 0 or target.size == 0:
        return
    order = rows.argsort(kind="stable")
    ordered = rows[order]
    first = xp.empty(ordered.shape, BOOL_)
    first[0] = True
    xp.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    if not first.all():
        starts = first.nonzero()[0]
        values = ufunc.reduceat(values[order], starts, axis=0, dtype=values.dtype)
        rows = ordered[starts]
    target[rows] = ufunc(target[rows], values)


def put_at(xp: Any, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool, op: str) -> Array:
    """``x`` with values stored (or added) at indices; values broadcast. Raises before anything is written."""
    if values.dtype != x.dtype:
        raise DTypeError(f"{op}: values of dtype {values.dtype} don't fit a tensor of dtype {x.dtype}; convert them")
    check_writable(x, op)
    keys = index_keys(x, indices, op)
    try:
        if not accumulate:
            x[keys or ...] = values
            return x
        wide = x.astype(FLOAT32) if x.dtype in HALF_TYPES else x
        for k, d in zip(keys, range(x.ndim), strict=False):
            if k is not ALL and k.dtype != BOOL_ and not any(j is ALL or j.dtype == BOOL_ for j in keys[:d]):
                require_range(k, x.shape[d], d, op)
        _accumulate_at(xp, wide, keys or (xp.ones((), BOOL_),), cast(values, wide.dtype))
        if wide is not x:
            x[...] = cast(wide, x.dtype)
        return x
    except IndexError as e:
        raise _index_fault(x, keys, op, e) from None
    except ValueError:
        raise ShapeError(
            f"{op}: values of shape {list(values.shape)} don't broadcast to what the indices select "
            f"from shape {list(x.shape)}"
        ) from None


def _put_into(xp: Any, out: Array, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool) -> Any:
    # What could be refused is refused before anything is written.
    if not fits(out, x.shape, x.dtype) or values.dtype != x.dtype or not indices:
        return NotImplemented
    if any(k is None or k.dtype.kind != "i" for k in indices) or len(indices) > x.ndim:
        return NotImplemented
    for k, size in zip(indices, x.shape, strict=False):
        if k is None or (k.size and (k.min() < -size or k.max() >= size)):
            return NotImplemented
    full = xp.broadcast_shapes(*(k.shape for k in indices if k is not None)) + x.shape[len(indices) :]
    if values.ndim > len(full) or xp.broadcast_shapes(values.shape, full) != full:
        return NotImplemented
    out[...] = x
    put_at(xp, out, indices, values, accumulate, "aten::index_put")
    return None


def _declare_index() -> None:
    for name, unsafe in (("index", False), ("_unsafe_index", True)):

        def index(xp: Any, x: Array, indices: Sequence[Array | None], *, op: str = f"aten::{name}") -> Array:
            """The elements at the indices, as a new tensor; indices broadcast, None takes a whole dim."""
            return _indexed(xp, x, indices, op)

        library(
            f"aten::{name}.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
            half="native",
            out=None if unsafe else "Tensor_out",
            into=_indexed_into,
            type_rule=indexed_type,
        )(index)
        library(
            f"aten::{name}.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor",
            half="native",
            into=_indexed_into,
            type_rule=indexed_type,
        )(index)
    for name, out in (("index_put", "out"), ("_unsafe_index_put", None)):

        def put(
            xp: Any,
            x: Array,
            indices: Sequence[Array | None],
            values: Array,
            accumulate: bool,
            *,
            op: str = f"aten::{name}",
        ) -> Array:
            """A copy of ``self`` with values stored, or added, at the indices."""
            return put_at(xp, copy_preserved(xp, x), indices, values, accumulate, op)

        text = "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"
        library(f"aten::{name}{text}", half="native", out=out, into=_put_into, type_rule=same_type)(put)
        library(
            f"aten::{name}.hacked_twin{text.replace('Tensor?', 'Tensor')}",
            half="native",
            into=_put_into,
            type_rule=same_type,
        )(put)
    for name, extra in (("index_put_", ""), ("_index_put_impl_", ", bool unsafe=False")):

        def put_in_place(
            xp: Any, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool, *rest: bool
        ) -> Array:
            """``self`` with values stored, or added, at the indices."""
            return put_at(xp, x, indices, values, accumulate, "aten::index_put_")

        text = f"(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False{extra}) -> Tensor(a!)"
        library(f"aten::{name}{text}", half="native")(put_in_place)
        library(f"aten::{name}.hacked_twin{text.replace('Tensor?', 'Tensor')}", half="native")(put_in_place)


_declare_index()


def _inside(xp: Any, mask: Array, indices: Sequence[Array | None]) -> list[Array | None]:
    return [None if i is None else xp.where(mask, i, xp.zeros((), i.dtype)) for i in indices]


@library(
    "aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor", half="native"
)
def unsafe_masked_index(xp: Any, x: Array, mask: Array, indices: Sequence[Array | None], fill: Any) -> Array:
    """The elements at the indices where the mask holds, a number elsewhere."""
    y = _indexed(xp, x, _inside(xp, mask, indices), "aten::_unsafe_masked_index")
    if mask.ndim < y.ndim and mask.ndim:
        mask = mask.reshape(mask.shape + (1,) * (y.ndim - mask.ndim))
    return xp.where(mask, y, filled(xp.empty((), x.dtype), fill, "aten::_unsafe_masked_index"))


@library(
    "aten::_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
    half="native",
)
def unsafe_masked_index_put(xp: Any, x: Array, mask: Array, indices: Sequence[Array | None], values: Array) -> Array:
    """A copy of ``self`` with the values the mask keeps added at the indices."""
    kept = xp.where(mask, values, xp.zeros((), values.dtype))
    op = "aten::_unsafe_masked_index_put_accumulate"
    return put_at(xp, copy_preserved(xp, x), _inside(xp, mask, indices), kept, True, op)


# ------------------------------------------------------------------------------------------------ along one dim


def check_index(index: Array, op: str) -> Array:
    """An index as a 1-dim tensor. Raises DTypeError or ShapeError."""
    if index.dtype != INT64 and index.dtype != np.int32:
        raise DTypeError(f"{op}: the index must be int64 or int32, found {index.dtype}")
    if index.ndim > 1:
        raise ShapeError(f"{op}: the index must have at most one dim, found shape {list(index.shape)}")
    return index if index.ndim else index.reshape(1)


def take_rows(x: Array, index: Array, d: int, op: str) -> Array:
    """The slices of ``x`` at an index along dim ``d``; negative indices are refused, as PyTorch does."""
    if index.size and index.min() < 0:
        require_range(index, x.shape[d], d, op, 0)
    try:
        return x.take(index, axis=d)
    except IndexError:
        require_range(index, x.shape[d], d, op, 0)
        raise


def _index_select_into(xp: Any, out: Array, x: Array, dim: int, index: Array) -> Any:
    if not x.ndim or index.ndim > 1 or index.dtype.kind != "i":
        return NotImplemented
    return taken(out, x, index if index.ndim else index.reshape(1), wrap_dim(dim, x.ndim, "aten::index_select"), 0)


@library(
    "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
    half="native",
    out="out",
    type_rule=index_select_type,
    into=_index_select_into,
)
def index_select(xp: Any, x: Array, dim: int, index: Array) -> Array:
    """The slices of ``self`` at an index along a dim."""
    op = "aten::index_select"
    d = wrap_dim(dim, x.ndim, op)
    index = check_index(index, op)
    if x.ndim == 0:
        if index.size != 1:
            raise ShapeError(f"{op}: a 0-dim tensor needs an index of one element, found {index.size}")
        take_rows(x.reshape(1), index, 0, op)
        return x.copy()
    return take_rows(x, index, d, op)


def _take_into(xp: Any, out: Array, x: Array, index: Array) -> Any:
    return taken(out, x.reshape(-1), index, 0, -x.size) if index.dtype == INT64 else NotImplemented


@library(
    "aten::take(Tensor self, Tensor index) -> Tensor", half="native", out="out", type_rule=taken_type, into=_take_into
)
def take(xp: Any, x: Array, index: Array) -> Array:
    """The elements of ``self``, seen as one row, at an index; negative ones count from the end."""
    if index.dtype != INT64:
        raise DTypeError(f"aten::take: the index must be int64, found {index.dtype}")
    try:
        return xp.asarray(x.reshape(-1).take(index))
    except IndexError as e:
        raise _index_fault(x.reshape(-1), (index,), "aten::take", e) from None


def _put(xp: Any, x: Array, index: Array, source: Array, accumulate: bool, op: str) -> Array:
    if index.dtype != INT64:
        raise DTypeError(f"{op}: the index must be int64, found {index.dtype}")
    if source.dtype != x.dtype:
        raise DTypeError(f"{op}: source of dtype {source.dtype} doesn't fit a tensor of dtype {x.dtype}; convert it")
    if index.size != source.size:
        raise ShapeError(f"{op}: {index.size} indices and {source.size} source elements must be as many")
    check_writable(x, op)
    require_range(index, x.size, 0, op)
    flat = x.reshape(-1)
    if accumulate:
        wide = flat.astype(FLOAT32) if x.dtype in HALF_TYPES else flat
        xp.add.at(wide, index.reshape(-1), cast(source.reshape(-1), wide.dtype))
        flat[...] = cast(wide, x.dtype)
    else:
        flat[index.reshape(-1)] = source.reshape(-1)
    if not x.flags.c_contiguous:
        x[...] = flat.reshape(x.shape)
    return x


@library(
    "aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    half="native",
    out="out",
    type_rule=same_type,
)
def put(xp: Any, x: Array, index: Array, source: Array, accumulate: bool) -> Array:
    """A copy of ``self`` with source elements stored, or added, at flat indices."""
    return _put(xp, copy_preserved(xp, x), index, source, accumulate, "aten::put")


@library("aten::put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False) -> Tensor(a!)", half="native")
def put_in_place(xp: Any, x: Array, index: Array, source: Array, accumulate: bool) -> Array:
    """``self`` with source elements stored, or added, at flat indices."""
    return _put(xp, x, index, source, accumulate, "aten::put_")
