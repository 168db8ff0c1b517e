"""Padding: constant, reflected, repeated and circular edges; negative amounts crop."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, isfinite
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.into import OfBody, by_parts, fits, longest
from gpujit.ops.layout import check_countable
from gpujit.ops.registry import library
from gpujit.ops.rules.pieces import pad_type
from gpujit.ops.strided import shape_text
from gpujit.support.errors import OpError, ShapeError

# The modes of aten::_pad_enum, in the order of their numbers.
MODES = ("constant", "reflect", "replicate", "circular")


def _crop(x: Array, pads: Sequence[int]) -> Array:
    """View of ``x`` without what negative amounts cut off; ``pads`` lists (low, high) from the last dim backwards."""
    index: list[Any] = [slice(None)] * x.ndim
    for i in range(0, len(pads), 2):
        low, high = pads[i], pads[i + 1]
        axis = x.ndim - 1 - i // 2
        n = x.shape[axis]
        index[axis] = slice(-low if low < 0 else 0, n + high if high < 0 else n)
    return x[tuple(index)]


def _check_fill(op: str, value: Any, dtype: Any, xp: Any) -> None:
    if dtype.kind not in "iu":
        return
    info = xp.iinfo(dtype)
    if not isfinite(value) or not info.min <= int(value) <= info.max:
        raise OpError(f"{op}: value {value} does not fit the input's dtype {dtype}")


def pad_constant(xp: Any, op: str, x: Array, pads: Sequence[int], value: Any) -> Array:
    """``x`` with its last dims grown by ``pads`` and the new elements equal to ``value``."""
    count = len(pads)
    if count % 2:
        raise ShapeError(f"{op}: pad has {count} numbers, expected an even number of them")
    if count > 2 * x.ndim:
        raise ShapeError(f"{op}: pad has {count} numbers, at most {2 * x.ndim} fit an input of {x.ndim} dims")
    shape = list(x.shape)
    inner: list[slice] = []
    axis = len(shape) - 1
    crops = False
    for i in range(0, count, 2):
        low, high, n = pads[i], pads[i + 1], shape[axis]
        crops = crops or low < 0 or high < 0
        size = n + low + high
        if size < 0:
            raise ShapeError(f"{op}: pad ({low}, {high}) takes more than the {n} elements of dim {axis}")
        shape[axis] = size
        inner.append(slice(max(low, 0), size - max(high, 0)))
        axis -= 1
    inner.reverse()
    if value == 0 and (not isinstance(value, float) or copysign(1, value) > 0):
        y = xp.zeros(shape, x.dtype)
    else:
        _check_fill(op, value, x.dtype, xp)
        y = xp.empty(shape, x.dtype)
        y.fill(value)
    y[(..., *inner)] = _crop(x, pads) if crops else x
    return y


def _reflect(y: Array, lead: tuple[Any, ...], low: int, n: int, high: int) -> None:
    if low:
        y[(*lead, slice(0, low))] = y[(*lead, slice(2 * low, low, -1))]
    if high:
        last = low + n - 2
        stop = last - high
        y[(*lead, slice(low + n, low + n + high))] = y[(*lead, slice(last, stop if stop >= 0 else None, -1))]


def _replicate(y: Array, lead: tuple[Any, ...], low: int, n: int, high: int) -> None:
    if low:
        y[(*lead, slice(0, low))] = y[(*lead, slice(low, low + 1))]
    if high:
        y[(*lead, slice(low + n, low + n + high))] = y[(*lead, slice(low + n - 1, low + n))]


def _wrap(y: Array, lead: tuple[Any, ...], low: int, n: int, high: int) -> None:
    if low:
        y[(*lead, slice(0, low))] = y[(*lead, slice(n, n + low))]
    if high:
        y[(*lead, slice(low + n, low + n + high))] = y[(*lead, slice(low, low + high))]


_FILL = {"reflect": _reflect, "replicate": _replicate, "circular": _wrap}


def pad_edges(xp: Any, op: str, x: Array, pads: Sequence[int], mode: str) -> Array:
    """``x`` with its last dims grown by copies of its own elements."""
    ndim = x.ndim
    if len(pads) == 2 and x.size and pads[0] >= 0 and pads[1] >= 0 and (ndim == 2 or ndim == 3):
        return _pad_last(xp, op, x, pads[0], pads[1], mode)
    rank = len(pads) // 2
    if ndim not in (rank + 1, rank + 2) or rank not in (1, 2, 3) or len(pads) % 2:
        raise ShapeError(
            f"{op}: input {shape_text(x.shape)} and {len(pads)} numbers of {mode} padding do not fit; "
            "an input of 2 or 3 dims takes 2 numbers, of 3 or 4 dims 4, of 4 or 5 dims 6"
        )
    shape = list(x.shape)
    if 0 in shape[(1 if ndim == rank + 2 else 0) :]:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has an empty dim besides the batch")
    if min(pads) < 0:
        return _pad_and_crop(xp, op, x, pads, mode)
    center: list[slice] = []
    for axis in range(ndim - rank, ndim):
        at = 2 * (ndim - 1 - axis)
        low, high, n = pads[at], pads[at + 1], shape[axis]
        limit = n - 1 if mode == "reflect" else n
        if mode != "replicate" and (low > limit or high > limit):
            raise ShapeError(
                f"{op}: padding ({low}, {high}) of dim {axis} is too large, {mode} padding of {n} elements "
                f"allows {limit}"
            )
        shape[axis] = low + n + high
        center.append(slice(low, low + n))
    y = xp.empty(shape, x.dtype)
    y[(..., *center)] = x
    fill = _FILL[mode]
    # The last dim first, inside the centre of the others; then each earlier dim over the whole width behind it.
    for i in range(0, len(pads), 2):
        low, high = pads[i], pads[i + 1]
        if low or high:
            axis = rank - 1 - i // 2
            view = y if axis == rank - 1 else y.swapaxes(-1, ndim - rank + axis)
            middle: tuple[Any, ...] = (..., *center[:axis])
            if axis < rank - 1:
                # swapaxes put the last dim where this one was; the dims between are complete already.
                middle = (..., *center[:axis], *(slice(None),) * (rank - 1 - axis))
            fill(view, middle, low, x.shape[ndim - rank + axis], high)
    return y


def _pad_last(xp: Any, op: str, x: Array, low: int, high: int, mode: str) -> Array:
    # One joining call is the quickest way for the small signals this is used on.
    n = x.shape[-1]
    if mode == "replicate":
        check_countable((low + n + high) * (x.size // n), x, op)
        before, after = x[..., :1].repeat(low, -1), x[..., -1:].repeat(high, -1)
        return xp.concatenate((before, x, after), -1)
    reflects = mode == "reflect"
    if (low if low > high else high) > n - reflects:
        raise ShapeError(
            f"{op}: padding ({low}, {high}) of dim {x.ndim - 1} is too large, {mode} padding of {n} elements "
            f"allows {n - reflects}"
        )
    parts = [x]
    if low:
        parts.insert(0, x[..., low:0:-1] if reflects else x[..., n - low :])
    if high:
        stop = n - 2 - high
        parts.append(x[..., n - 2 : stop if stop >= 0 else None : -1] if reflects else x[..., :high])
    return xp.concatenate(parts, -1)


def _pad_and_crop(xp: Any, op: str, x: Array, pads: Sequence[int], mode: str) -> Array:
    positive = [max(p, 0) for p in pads]
    for i in range(0, len(pads), 2):
        axis = x.ndim - 1 - i // 2
        if x.shape[axis] + pads[i] + pads[i + 1] < (1 if len(pads) == 2 else 0):
            raise ShapeError(
                f"{op}: padding ({pads[i]}, {pads[i + 1]}) leaves nothing of the {x.shape[axis]} elements of dim {axis}"
            )
    if mode == "circular":
        # Circular padding repeats what is left after cropping; the other modes look at the whole input.
        x = _crop(x, pads)
        return pad_edges(xp, op, x, positive, mode) if any(positive) else xp.ascontiguousarray(x)
    y = pad_edges(xp, op, x, positive, mode) if any(positive) else x
    return xp.ascontiguousarray(_crop(y, pads))


def pad_any(xp: Any, op: str, x: Array, pads: Sequence[int], mode: str, value: float | None) -> Array:
    """Padding in the mode of that name."""
    if mode == "constant":
        return pad_constant(xp, op, x, pads, 0 if value is None else value)
    if mode not in MODES:
        raise OpError(f"{op}: mode is {mode!r}, expected one of {', '.join(MODES)}")
    if value:
        raise OpError(f"{op}: mode {mode!r} takes no value, found {value}")
    return pad_edges(xp, op, x, pads, mode)


def _constant_into(xp: Any, out: Array, x: Array, pads: Sequence[int], value: Any) -> Any:
    count = len(pads)
    if count % 2 or count > 2 * x.ndim or out.ndim != x.ndim:
        return NotImplemented
    shape = list(x.shape)
    inner = [slice(None)] * x.ndim
    for i in range(0, count, 2):
        axis = x.ndim - 1 - i // 2
        low, high = pads[i], pads[i + 1]
        shape[axis] += low + high
        inner[axis] = slice(max(low, 0), shape[axis] - max(high, 0))
    if min(shape, default=0) < 0 or not fits(out, shape, x.dtype):
        return NotImplemented
    _check_fill("aten::pad", value, x.dtype, xp)
    out.fill(value)
    out[tuple(inner)] = _crop(x, pads)
    return None


def _outer_dim(x: Array, pads: Sequence[int], *rest: Any) -> int | None:
    return longest(x.shape[: x.ndim - len(pads) // 2])


def _pad_into(body: Any) -> Any:
    """The out-variant of padding in any mode."""
    parts = by_parts(_outer_dim).make(body)

    def into(xp: Any, out: Array, x: Array, pads: list[int], mode: Any, value: float | None) -> Any:
        if mode in ("constant", 0):
            return _constant_into(xp, out, x, pads, 0 if value is None else value)
        return parts(xp, out, x, pads, mode, value)

    return into


@library(
    'aten::pad(Tensor self, int[] pad, str mode="constant", float? value=None) -> Tensor',
    half="native",
    type_rule=pad_type,
    into=OfBody(_pad_into),
)
def pad(xp: Any, x: Array, pads: list[int], mode: str, value: float | None) -> Array:
    """The input with its last dims grown (or cropped) by pairs of numbers, last dim first."""
    return pad_any(xp, "aten::pad", x, pads, mode, value)


@library(
    "aten::_pad_enum(Tensor self, int[] pad, int mode, float? value=None) -> Tensor",
    half="native",
    type_rule=pad_type,
    into=OfBody(_pad_into),
)
def pad_enum(xp: Any, x: Array, pads: list[int], mode: int, value: float | None) -> Array:
    """As ``aten::pad``, with the mode as a number."""
    if not 0 <= mode < len(MODES):
        raise OpError(f"aten::_pad_enum: mode is {mode}, expected 0 to {len(MODES) - 1}")
    return pad_any(xp, "aten::_pad_enum", x, pads, MODES[mode], value)


@library(
    "aten::_pad_circular(Tensor self, int[] pad) -> Tensor",
    half="native",
    type_rule=pad_type,
    into=by_parts(_outer_dim),
)
def pad_circular(xp: Any, x: Array, pads: list[int]) -> Array:
    """The input with its last dims continued periodically."""
    return pad_edges(xp, "aten::_pad_circular", x, pads, "circular")


@library(
    "aten::constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor",
    half="native",
    out="out",
    type_rule=pad_type,
    into=_constant_into,
)
def constant_pad_nd(xp: Any, x: Array, pads: list[int], value: Any) -> Array:
    """The input with its last dims grown by elements equal to ``value``."""
    return pad_constant(xp, "aten::constant_pad_nd", x, pads, value)


def _edge_dim(x: Array, pads: Sequence[int]) -> int | None:
    return longest(x.shape[:1]) if x.ndim > len(pads) // 2 and len(pads) > 1 else None


def _declare(name: str, mode: str, rank: int) -> None:
    op = f"aten::{name}_pad{rank}d"

    @library(
        f"{op}(Tensor self, int[{2 * rank}] padding) -> Tensor",
        half="native",
        out="out",
        type_rule=pad_type,
        into=by_parts(_edge_dim),
    )
    def edges(xp: Any, x: Array, pads: list[int]) -> Array:
        """The input with its last dims grown by copies of its own elements."""
        if len(pads) != 2 * rank:
            if len(pads) != 1:
                raise ShapeError(f"{op}: padding has {len(pads)} numbers, expected {2 * rank}")
            pads = list(pads) * (2 * rank)
        return pad_edges(xp, op, x, pads, mode)


for _rank in (1, 2, 3):
    _declare("reflection", "reflect", _rank)
    _declare("replication", "replicate", _rank)
