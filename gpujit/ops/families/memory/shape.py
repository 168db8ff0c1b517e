"""Joining, repeating and rearranging: cat and stack, repeat and tile, roll, flip, rot90."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.into import copied, fits
from gpujit.ops.layout import (
    BEFORE,
    cast,
    check_countable,
    empty_format,
    empty_preserved,
    is_channels_last,
    out_forms,
    wrap_dim,
    wrap_dims,
)
from gpujit.ops.promotion import promote
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.data import repeat_interleave_int_type, repeat_interleave_tensor_type, repeat_interleave_type
from gpujit.ops.rules.pieces import cat_type, repeat_type, rot90_type, stack_type, stacked_type, tile_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

# ------------------------------------------------------------------------------------------------ joining


def _one_dtype(tensors: Sequence[Array]) -> tuple[np.dtype[Any], Sequence[Array]]:
    """The dtype all tensors promote to (a 0-dim one counts as much as any other), and the tensors in it."""
    dtype = tensors[0].dtype
    mixed = False
    for t in tensors:
        if t.dtype != dtype:
            mixed = True
            dtype = promote(dtype, t.dtype)
    return dtype, [cast(t, dtype) for t in tensors] if mixed else tensors


def concatenated(xp: Any, tensors: Sequence[Array], dim: int, op: str) -> Array:
    """The tensors joined along an existing dim; dtypes promote, empty 1-dim tensors are left out."""
    if not tensors:
        raise ShapeError(f"{op}: at least one tensor is needed, the list is empty")
    dtype, parts = _one_dtype(tensors)
    # A legacy: an empty tensor of one dim joins with anything.
    kept = [t for t in parts if t.ndim != 1 or t.shape[0]] or list(parts[:1])
    first = kept[0]
    n = first.ndim
    if n == 0 or any(t.ndim == 0 for t in kept):
        raise ShapeError(f"{op}: 0-dim tensors can't be joined; stack joins them along a new dim")
    d = dim if 0 <= dim < n else wrap_dim(dim, n, op)
    try:
        if n in (4, 5) and not first.flags.c_contiguous and all(is_channels_last(t, n - 2) for t in kept):
            shape = (*first.shape[:d], sum(t.shape[d] for t in kept), *first.shape[d + 1 :])
            return xp.concatenate(kept, axis=d, out=empty_format(xp, shape, dtype, n - 2, op))
        y = xp.concatenate(kept, axis=d)
    except ValueError:
        raise ShapeError(
            f"{op}: shapes {', '.join(str(list(t.shape)) for t in kept[:8])} must agree in all dims but dim {dim}"
        ) from None
    return y if y.flags.c_contiguous else y.copy()


def _concatenated_into(xp: Any, out: Array, tensors: Sequence[Array], dim: int) -> Any:
    n = out.ndim
    kept = [t for t in tensors if t.ndim != 1 or t.shape[0]]
    if not n or not kept or not -n <= dim < n or any(t.dtype != out.dtype for t in tensors):
        return NotImplemented
    xp.concatenate(kept, axis=dim, out=out)
    return None


def _stacked_into(xp: Any, out: Array, tensors: Sequence[Array], dim: int) -> Any:
    if not tensors or not -out.ndim <= dim < out.ndim or any(t.dtype != out.dtype for t in tensors):
        return NotImplemented
    key = (*BEFORE[dim % out.ndim], None, ...)
    xp.concatenate([t[key] for t in tensors], axis=dim, out=out)
    return None


def _stacked(xp: Any, tensors: Sequence[Array], dim: int, op: str) -> Array:
    if not tensors:
        raise ShapeError(f"{op}: at least one tensor is needed, the list is empty")
    shape = tensors[0].shape
    for t in tensors:
        if t.shape != shape:
            raise ShapeError(f"{op}: all tensors must have one shape, found {list(shape)} and {list(t.shape)}")
    d = wrap_dim(dim, len(shape) + 1, op)
    dtype, parts = _one_dtype(tensors)
    y = xp.empty((*shape[:d], len(parts), *shape[d:]), dtype)
    key = (*BEFORE[d], None, ...)
    return xp.concatenate([t[key] for t in parts], axis=d, out=y)


def _declare_joins() -> None:
    for name in ("cat", "concat", "concatenate"):

        def cat(xp: Any, tensors: list[Array], dim: int, *, op: str = f"aten::{name}") -> Array:
            """The tensors joined along ``dim``."""
            return concatenated(xp, tensors, dim, op)

        library(
            f"aten::{name}(Tensor[] tensors, int dim=0) -> Tensor",
            half="native",
            out="out",
            type_rule=cat_type,
            into=_concatenated_into,
        )(cat)

    def stack(xp: Any, tensors: list[Array], dim: int) -> Array:
        """The tensors joined along a new dim."""
        return _stacked(xp, tensors, dim, "aten::stack")

    library(
        "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
        half="native",
        out="out",
        type_rule=stack_type,
        into=_stacked_into,
    )(stack)

    @library(
        "aten::pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., "
        'str padding_side="right") -> Tensor',
        half="native",
    )
    def pad_sequence(xp: Any, sequences: list[Array], batch_first: bool, value: float, side: str) -> Array:
        """Sequences [length, ...] side by side, the shorter ones filled up: [longest, batch, ...]."""
        op = "aten::pad_sequence"
        if side not in ("left", "right"):
            raise OpError(f"{op}: padding_side is {side!r}, expected 'left' or 'right'")
        if not sequences or sequences[0].ndim == 0:
            raise ShapeError(f"{op}: at least one sequence is needed, and each has a dim of its length")
        rest, longest = sequences[0].shape[1:], max(s.shape[0] if s.ndim else 0 for s in sequences)
        y = xp.full((len(sequences), longest, *rest), value, sequences[0].dtype)
        for row, s in zip(y, sequences, strict=True):
            if s.ndim == 0 or s.shape[1:] != rest:
                raise ShapeError(
                    f"{op}: sequences may differ in their first size alone, found {list(sequences[0].shape)} and "
                    f"{list(s.shape)}"
                )
            first = longest - s.shape[0] if side == "left" else 0
            row[first : first + s.shape[0]] = s
        return y if batch_first else xp.ascontiguousarray(y.swapaxes(0, 1))

    def as_row(t: Array) -> Array:
        return t.reshape(1, -1) if t.ndim < 2 else t

    def as_column(t: Array) -> Array:
        return t.reshape(-1, 1) if t.ndim < 2 else t

    def as_slab(t: Array) -> Array:
        return t.reshape(1, -1, 1) if t.ndim < 2 else t[:, :, None] if t.ndim == 2 else t

    def as_vector(t: Array) -> Array:
        return t.reshape(1) if t.ndim == 0 else t

    def stacked_by(name: str, shaped: Callable[[Array], Array], axis: int) -> Callable[[Any, list[Array]], Array]:
        def joined(xp: Any, tensors: list[Array]) -> Array:
            """The tensors, dims of size 1 added where they lack them, joined along a fixed dim."""
            if not tensors:
                raise ShapeError(f"aten::{name}: at least one tensor is needed, the list is empty")
            parts = [shaped(t) for t in tensors]
            return concatenated(xp, parts, 0 if name == "hstack" and parts[0].ndim == 1 else axis, f"aten::{name}")

        return joined

    def stacked_into(name: str, shaped: Callable[[Array], Array], axis: int) -> Callable[..., Any]:
        def into(xp: Any, out: Array, tensors: list[Array]) -> Any:
            parts = [shaped(t) for t in tensors]
            return _concatenated_into(xp, out, parts, 0 if name == "hstack" and out.ndim == 1 else axis)

        return into

    for name, shaped, axis in (
        ("hstack", as_vector, 1),
        ("vstack", as_row, 0),
        ("row_stack", as_row, 0),
        ("dstack", as_slab, 2),
        ("column_stack", as_column, 1),
    ):
        library(
            f"aten::{name}(Tensor[] tensors) -> Tensor",
            half="native",
            out="out",
            type_rule=stacked_type(name),
            into=stacked_into(name, shaped, axis),
        )(stacked_by(name, shaped, axis))


_declare_joins()


@library("aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor", half="native", out="out")
def chunk_cat(xp: Any, tensors: list[Array], dim: int, num_chunks: int) -> Array:
    """Each tensor padded with zeros to ``num_chunks`` chunks along ``dim`` and flattened behind it; side by side."""
    op = "aten::_chunk_cat"
    if not tensors or num_chunks < 1:
        raise ShapeError(f"{op}: at least one tensor and one chunk are needed")
    d = wrap_dim(dim, tensors[0].ndim, op)
    for t in tensors:
        if t.ndim <= d or t.shape[:d] != tensors[0].shape[:d]:
            raise ShapeError(
                f"{op}: tensors of shapes {[list(t.shape) for t in tensors]} must have equal sizes before dim {d}"
            )
    dtype, parts = _one_dtype(tensors)
    pieces = []
    for t in parts:
        size = -(-t.shape[d] // num_chunks) * num_chunks
        padded = t
        if size != t.shape[d]:
            padded = xp.zeros((*t.shape[:d], size, *t.shape[d + 1 :]), dtype)
            padded[(*BEFORE[d], slice(0, t.shape[d]))] = t
        pieces.append(padded.reshape(*t.shape[:d], num_chunks, -1))
    return xp.concatenate(pieces, axis=d + 1)


# ------------------------------------------------------------------------------------------------ repeating


def _repeated(xp: Any, x: Array, repeats: Sequence[int], op: str, out: Array | None = None) -> Array:
    lead = len(repeats) - x.ndim
    if lead < 0:
        raise ShapeError(f"{op}: {len(repeats)} repeats are fewer than the {x.ndim} dims of shape {list(x.shape)}")
    if repeats and min(repeats) < 0:
        raise ShapeError(f"{op}: repeats {list(repeats)} must not be negative")
    shape = (1,) * lead + x.shape
    # Old extents and repeats side by side: (r0, s0, r1, s1, ...) flattens to what is wanted.
    split: list[int] = []
    grown: list[int] = []
    for r, s in zip(repeats, shape, strict=True):
        split += (1, s)
        grown += (r, s)
    y = xp.empty([r * s for r, s in zip(repeats, shape, strict=True)], x.dtype) if out is None else out
    y.reshape(grown)[...] = x.reshape(split)
    return y


def _repeated_into(xp: Any, out: Array, x: Array, repeats: Sequence[int]) -> Any:
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    if len(repeats) < x.ndim or min(repeats, default=0) < 0 or not out.flags.c_contiguous:
        return NotImplemented
    if not fits(out, [r * s for r, s in zip(repeats, shape, strict=True)], x.dtype):
        return NotImplemented
    _repeated(xp, x, repeats, "", out)
    return None


def _tile_into(xp: Any, out: Array, x: Array, dims: Sequence[int]) -> Any:
    return _repeated_into(xp, out, x, [1] * (x.ndim - len(dims)) + list(dims))


@library(
    "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor",
    half="native",
    out="out",
    type_rule=repeat_type,
    into=_repeated_into,
)
def repeat(xp: Any, x: Array, repeats: list[int]) -> Array:
    """The tensor repeated along each dim; more repeats than dims add dims in front."""
    return _repeated(xp, x, repeats, "aten::repeat")


@library("aten::tile(Tensor self, SymInt[] dims) -> Tensor", half="native", type_rule=tile_type, into=_tile_into)
def tile(xp: Any, x: Array, dims: list[int]) -> Array:
    """The tensor repeated along each dim; missing repeats in front count as 1."""
    return _repeated(xp, x, [1] * (x.ndim - len(dims)) + list(dims), "aten::tile")


def _check_repeats(repeats: Array, op: str) -> None:
    if repeats.dtype.kind not in "iu" or repeats.itemsize < 4:
        raise DTypeError(f"{op}: repeats must be int32 or int64, found {repeats.dtype}")
    if repeats.ndim > 1:
        raise ShapeError(f"{op}: repeats must have at most one dim, found shape {list(repeats.shape)}")
    if repeats.size and int(repeats.min()) < 0:
        raise ShapeError(f"{op}: repeats must not be negative, found {int(repeats.min())}")


@library(
    "aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
    half="native",
    type_rule=repeat_interleave_type,
)
def repeat_interleave(xp: Any, repeats: Array, output_size: int | None) -> Array:
    """Index i repeated ``repeats[i]`` times."""
    op = "aten::repeat_interleave"
    _check_repeats(repeats, op)
    if repeats.ndim != 1:
        raise ShapeError(f"{op}: repeats must have one dim, found shape {list(repeats.shape)}")
    check_countable(int(repeats.sum(dtype="float64")), repeats, op)
    y = xp.repeat(xp.arange(repeats.size, dtype=repeats.dtype), repeats)
    if output_size is not None and output_size != y.size:
        raise ShapeError(f"{op}: output_size {output_size} is not {y.size}, the sum of repeats")
    return y


def _interleaved(xp: Any, x: Array, repeats: Any, dim: int | None, output_size: int | None, op: str) -> Array:
    if dim is None:
        x, d = x.reshape(-1), 0
    else:
        d = wrap_dim(dim, x.ndim, op)
        if x.ndim == 0:
            x = x.reshape(1)
    if hasattr(repeats, "dtype") and repeats.size not in (1, x.shape[d]):
        raise ShapeError(f"{op}: {repeats.size} repeats don't fit dim {dim} of size {x.shape[d]}")
    total = int(repeats.sum(dtype="float64")) if hasattr(repeats, "dtype") else repeats
    if not hasattr(repeats, "dtype") or repeats.size == 1:
        total *= x.shape[d]
    check_countable(total * (x.size // max(x.shape[d], 1)), x, op)
    y = xp.repeat(x, repeats, axis=d)
    if output_size is not None and output_size != y.shape[d]:
        raise ShapeError(f"{op}: output_size {output_size} is not {y.shape[d]}, the sum of repeats")
    return y


@library(
    "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) "
    "-> Tensor",
    half="native",
    type_rule=repeat_interleave_tensor_type,
)
def repeat_interleave_tensor(xp: Any, x: Array, repeats: Array, dim: int | None, output_size: int | None) -> Array:
    """Each slice along ``dim`` (each element without one) repeated as often as ``repeats`` says."""
    _check_repeats(repeats, "aten::repeat_interleave")
    return _interleaved(xp, x, repeats, dim, output_size, "aten::repeat_interleave")


def _interleave_into(xp: Any, out: Array, x: Array, repeats: int, dim: int | None, output_size: int | None) -> Any:
    if dim is None:
        x, dim = x.reshape(-1), 0
    if not -x.ndim <= dim < x.ndim or repeats < 0 or not out.flags.c_contiguous:
        return NotImplemented
    d = dim % x.ndim
    n = x.shape[d] * repeats
    if not fits(out, (*x.shape[:d], n, *x.shape[d + 1 :]), x.dtype) or output_size not in (None, n):
        return NotImplemented
    out.reshape(*x.shape[: d + 1], repeats, *x.shape[d + 1 :])[...] = x[(*BEFORE[d + 1], None)]
    return None


@library(
    "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) "
    "-> Tensor",
    half="native",
    type_rule=repeat_interleave_int_type,
    into=_interleave_into,
)
def repeat_interleave_int(xp: Any, x: Array, repeats: int, dim: int | None, output_size: int | None) -> Array:
    """Each slice along ``dim`` (each element without one) repeated ``repeats`` times."""
    if repeats < 0:
        raise ShapeError(f"aten::repeat_interleave: repeats must not be negative, found {repeats}")
    return _interleaved(xp, x, repeats, dim, output_size, "aten::repeat_interleave")


out_forms(
    "aten::repeat_interleave.Tensor_out(Tensor repeats, *, SymInt? output_size=None, Tensor(a!) out) -> Tensor(a!)",
    of="aten::repeat_interleave.Tensor",
)


# ------------------------------------------------------------------------------------------------ rearranging


def _rolled_into(xp: Any, out: Array, x: Array, shifts: Sequence[int], dims: Sequence[int]) -> Any:
    if not fits(out, x.shape, x.dtype) or (not dims and not out.flags.c_contiguous):
        return NotImplemented
    if not dims:
        x, out, dims = x.reshape(-1), out.reshape(-1), [0]
    if len(dims) != len(shifts) or x.size == 0 or len({d % x.ndim for d in dims}) != len(dims):
        return NotImplemented
    pieces: list[list[tuple[slice, slice]]] = [[(slice(None), slice(None))] for _ in range(x.ndim)]
    for shift, d in zip(shifts, dims, strict=True):
        at = wrap_dim(d, x.ndim, "aten::roll")
        n = x.shape[at]
        k = shift % n
        pieces[at] = [(slice(k, n), slice(0, n - k)), (slice(0, k), slice(n - k, n))]
    for piece in product(*pieces):
        out[tuple(to for to, _ in piece)] = x[tuple(of for _, of in piece)]
    return None


@library(
    "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
    half="native",
    out="out",
    type_rule=same_type,
    into=_rolled_into,
)
def roll(xp: Any, x: Array, shifts: list[int], dims: list[int]) -> Array:
    """The tensor shifted around along dims; without dims, along all elements in order."""
    op = "aten::roll"
    if not dims and len(shifts) == 1:
        return roll(xp, x.reshape(-1), shifts, [0]).reshape(x.shape)
    if len(dims) != len(shifts) or not dims:
        raise ShapeError(f"{op}: shifts {shifts} and dims {dims} must have one length")
    if x.size == 0:
        return x.copy()
    y = x
    for shift, dim in zip(shifts, dims, strict=True):
        d = wrap_dim(dim, x.ndim, op)
        start = -shift % y.shape[d]
        if start:
            before = BEFORE[d]
            y = xp.concatenate((y[(*before, slice(start, None))], y[(*before, slice(0, start))]), axis=d)
    return y if y is not x and y.flags.c_contiguous else y.copy()


def _backwards(x: Array, dims: Sequence[int], op: str) -> Array:
    """A view with some dims in reverse order."""
    key = [slice(None)] * x.ndim
    for d in wrap_dims(dims, x.ndim, op):
        if x.ndim:
            key[d] = slice(None, None, -1)
    return x[(*key, ...)]


def _flipped(xp: Any, x: Array, dims: Sequence[int], op: str) -> Array:
    y = empty_preserved(xp, x)
    y[...] = _backwards(x, dims, op)
    return y


def _flip_into(xp: Any, out: Array, x: Array, dims: Sequence[int]) -> Any:
    return copied(out, _backwards(x, dims, "aten::flip"))


def _fliplr_into(xp: Any, out: Array, x: Array) -> Any:
    return copied(out, x[:, ::-1]) if x.ndim > 1 else NotImplemented


def _flipud_into(xp: Any, out: Array, x: Array) -> Any:
    return copied(out, x[::-1]) if x.ndim else NotImplemented


@library(
    "aten::flip(Tensor self, int[] dims) -> Tensor", half="native", out="out", type_rule=same_type, into=_flip_into
)
def flip(xp: Any, x: Array, dims: list[int]) -> Array:
    """The tensor with some dims in reverse order."""
    return _flipped(xp, x, dims, "aten::flip")


@library("aten::fliplr(Tensor self) -> Tensor", half="native", type_rule=same_type, into=_fliplr_into)
def fliplr(xp: Any, x: Array) -> Array:
    """The tensor with dim 1 in reverse order."""
    if x.ndim < 2:
        raise ShapeError(f"aten::fliplr: at least 2 dims are needed, shape {list(x.shape)} has {x.ndim}")
    return _flipped(xp, x, (1,), "aten::fliplr")


@library("aten::flipud(Tensor self) -> Tensor", half="native", type_rule=same_type, into=_flipud_into)
def flipud(xp: Any, x: Array) -> Array:
    """The tensor with dim 0 in reverse order."""
    if x.ndim < 1:
        raise ShapeError("aten::flipud: at least one dim is needed, a 0-dim tensor has none")
    return _flipped(xp, x, (0,), "aten::flipud")


def _rot90_into(xp: Any, out: Array, x: Array, k: int, dims: Sequence[int]) -> Any:
    if len(dims) != 2 or x.ndim < 2:
        return NotImplemented
    a, b = wrap_dims(dims, x.ndim, "aten::rot90")
    planes: dict[int, tuple[int, ...]] = {1: (b,), 2: (a, b), 3: (a,)}
    turned = _backwards(x, planes.get(k % 4, ()), "aten::rot90")
    return copied(out, turned.swapaxes(a, b) if k % 2 else turned)


@library(
    "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
    half="native",
    out="out",
    type_rule=rot90_type,
    into=_rot90_into,
)
def rot90(xp: Any, x: Array, k: int, dims: list[int]) -> Array:
    """The tensor turned by ``k`` times 90 degrees in the plane of two dims, from the first towards the second."""
    op = "aten::rot90"
    if len(dims) != 2 or x.ndim < 2:
        raise ShapeError(f"{op}: two dims are needed, found dims {dims} and shape {list(x.shape)}")
    a, b = wrap_dims(dims, x.ndim, op)
    turns = k % 4
    if turns == 1:
        return _flipped(xp, x, (b,), op).swapaxes(a, b)
    if turns == 2:
        return _flipped(xp, x, (a, b), op)
    if turns == 3:
        return _flipped(xp, x, (a,), op).swapaxes(a, b)
    return x.copy()
