"""Pooling over windows: maximum and mean, fixed and adaptive, with and without the places of the maxima.

Every window here is a box, so each dim is reduced on its own: values from the first dim to the last, which keeps runs
of memory long; places from the last to the first, which keeps PyTorch's choice among equal maxima (first in row order).
No padded copy is made: each tap is combined with the output positions whose windows have it inside the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.axes import total
from gpujit.ops.into import by_parts, longest
from gpujit.ops.registry import library
from gpujit.ops.rules.windows import adaptive_pair_type, adaptive_type, pooled_pair_type, pooled_type
from gpujit.ops.strided import expand_list, shape_text
from gpujit.ops.writes import write_into
from gpujit.support.errors import DTypeError, OpError, ShapeError


class Tap(NamedTuple):
    """Output positions of one dim, and the input positions that one tap of their windows meets."""

    target: Any
    source: Any
    positions: Any


class Axis(NamedTuple):
    """The windows of one dim. ``whole`` is the tap that all windows have inside the input, None when there is none."""

    size: int
    taps: tuple[Tap, ...]
    whole: int | None
    first: Any
    counts: tuple[int, ...]
    full_counts: tuple[int, ...]


def _whole(taps: Sequence[Tap], size: int) -> int | None:
    for i, tap in enumerate(taps):
        if tap.positions.size == size:
            return i
    return None


@lru_cache(maxsize=512)
def _window_axis(n: int, size: int, k: int, s: int, p: int, d: int) -> Axis:
    taps = []
    for t in range(k):
        offset = t * d - p
        low = max(0, -(offset // s)) if offset < 0 else 0
        high = min(size, (n - 1 - offset) // s + 1)
        if low < high:
            start = low * s + offset
            source = slice(start, (high - 1) * s + offset + 1, s)
            taps.append(Tap(slice(low, high), source, np.arange(low, high) * s + offset))
    starts = np.arange(size) * s - p
    ends = np.minimum(starts + k, n + p)
    full = tuple((ends - starts).tolist())
    first = np.where(starts < 0, starts + -(starts // d) * d, starts)
    inside = tuple(np.maximum(np.minimum(ends, n) - np.maximum(starts, 0), 0).tolist())
    return Axis(size, tuple(taps), _whole(taps, size), first, inside, full)


@lru_cache(maxsize=512)
def _adaptive_axis(n: int, size: int) -> Axis:
    if size and n % size == 0:
        return _window_axis(n, size, n // size, n // size, 0, 1)
    i = np.arange(size)
    starts, ends = i * n // size, -(-(i + 1) * n // size)
    taps = []
    for t in range(int((ends - starts).max()) if size else 0):
        has = np.flatnonzero(starts + t < ends)
        places = starts[has] + t
        taps.append(Tap(slice(None) if has.size == size else has, places, places))
    counts = tuple((ends - starts).tolist())
    return Axis(size, tuple(taps), 0, starts, counts, counts)


def _key(index: Any, axis: int, rank: int, xp: Any) -> tuple[Any, ...]:
    if xp is not np and not isinstance(index, slice):
        index = xp.asarray(index)
    return (..., index, *(slice(None),) * (rank - 1 - axis))


def _fold(xp: Any, combine: Any, x: Array, plan: Axis, axis: int, rank: int) -> Array:
    """``x`` with one dim reduced to the windows' totals under ``combine`` (maximum or add)."""
    if plan.whole is None:
        at = axis - rank
        if combine is xp.add:
            y = xp.zeros((*x.shape[:at], plan.size, *x.shape[at:][1:]), x.dtype)
        else:
            y = _first_elements(xp, x, plan, axis, rank)
    else:
        y = x[_key(plan.taps[plan.whole].source, axis, rank, xp)]
        if len(plan.taps) == 1:
            return y
        others = plan.taps[: plan.whole] + plan.taps[plan.whole + 1 :]
        if others[0].positions.size == plan.size:
            y = combine(y, x[_key(others[0].source, axis, rank, xp)])
            others = others[1:]
        else:
            y = y.copy()
        return _fold_rest(xp, combine, x, y, others, axis, rank)
    return _fold_rest(xp, combine, x, y, plan.taps, axis, rank)


def _first_elements(xp: Any, x: Array, plan: Axis, axis: int, rank: int) -> Array:
    """For each window its first element inside the input; the dtype's lowest value where it has none."""
    n = x.shape[axis - rank]
    y = x[_key(np.minimum(plan.first, n - 1), axis, rank, xp)]
    outside = np.flatnonzero(plan.first >= n)
    if outside.size:
        y[_key(outside, axis, rank, xp)] = -xp.inf if x.dtype.kind == "f" else xp.iinfo(x.dtype).min
    return y


def _fold_rest(xp: Any, combine: Any, x: Array, y: Array, taps: Sequence[Tap], axis: int, rank: int) -> Array:
    for tap in taps:
        key = _key(tap.target, axis, rank, xp)
        part = y[key]
        combine(part, x[_key(tap.source, axis, rank, xp)], out=part)
        if not isinstance(tap.target, slice):
            # An index array gave a copy.
            y[key] = part
    return y


def _fold_places(xp: Any, x: Array, places: Array | None, plan: Axis, axis: int, rank: int) -> tuple[Array, Array]:
    """As ``_fold`` with maximum, and with the flat place of each maximum within the dims reduced so far."""
    shape = [1] * (rank - axis)
    shape[0] = -1
    y = _first_elements(xp, x, plan, axis, rank)
    found = xp.broadcast_to(xp.asarray(plan.first).reshape(shape), y.shape).copy()
    carried = None
    if places is not None:
        carried = places[_key(np.minimum(plan.first, x.shape[axis - rank] - 1), axis, rank, xp)]
    nan = x.dtype.kind in "fc"
    for tap in plan.taps:
        target = _key(tap.target, axis, rank, xp)
        source = _key(tap.source, axis, rank, xp)
        part, old = x[source], y[target]
        # A later NaN replaces an earlier one, as in PyTorch's loop.
        better = part > old
        if nan:
            better |= part != part
        y[target] = xp.where(better, part, old)
        at = xp.asarray(tap.positions).reshape(shape)
        found[target] = xp.where(better, at, found[target])
        if carried is not None and places is not None:
            carried[target] = xp.where(better, places[source], carried[target])
    return y, found if carried is None else (found, carried)


def _max_with_places(xp: Any, x: Array, axes: Sequence[Axis]) -> tuple[Array, Array]:
    rank = len(axes)
    sizes = x.shape[-rank:]
    places = None
    scale = 1
    for axis in reversed(range(rank)):
        x, result = _fold_places(xp, x, places, axes[axis], axis, rank)
        if places is None:
            places = result
        else:
            rows, carried = result
            places = rows * scale + carried
        scale *= sizes[axis]
    assert places is not None
    return x, places.astype(np.int64, copy=False)


# ------------------------------------------------------------------------------------------------ fixed windows


class Windows(NamedTuple):
    """The windows of a pooling call; ``uniform`` when all hold as many elements, padding included."""

    axes: tuple[Axis, ...]
    kernel: tuple[int, ...]
    uniform: bool


def check_input(op: str, shape: Sequence[int], rank: int, filled_from: int | None = None) -> None:
    """Raise ShapeError for another number of dims, and for empty ones from ``filled_from`` (all but a batch) on."""
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: input {shape_text(shape)} has {len(shape)} dims, expected {rank + 1}, or {rank + 2} with a batch"
        )
    if 0 in shape[len(shape) - rank - 1 if filled_from is None else filled_from :]:
        raise ShapeError(f"{op}: input {shape_text(shape)} has an empty dim besides the batch")


@lru_cache(maxsize=512)
def _windows(
    op: str, shape: tuple[int, ...], kernel_: tuple[int, ...], stride_: tuple[int, ...], padding_: tuple[int, ...],
    dilation_: tuple[int, ...], ceil_mode: bool, rank: int,
) -> Windows:  # fmt: skip
    check_input(op, shape, rank)
    kernel = expand_list(op, "kernel_size", kernel_, rank)
    stride = expand_list(op, "stride", stride_, rank) if stride_ else kernel
    padding = expand_list(op, "padding", padding_, rank)
    dilation = expand_list(op, "dilation", dilation_, rank)
    for name, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            raise ShapeError(f"{op}: {name} is {list(values)}, every number must be at least 1")
    axes = []
    for n, k, s, p, d in zip(shape[-rank:], kernel, stride, padding, dilation, strict=True):
        if p < 0 or p > ((k - 1) * d + 1) // 2:
            raise ShapeError(
                f"{op}: padding is {list(padding)}, at most half of the window {shape_text(kernel)} can be padding"
            )
        size = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (size - 1) * s >= n + p:
            # The last window must start inside the input or the padding before it.
            size -= 1
        if size < 1:
            raise ShapeError(
                f"{op}: windows {shape_text(kernel)} with dilation {list(dilation)} and padding {list(padding)} do not "
                f"fit into input {shape_text(shape)}"
            )
        axes.append(_window_axis(n, size, k, s, p, d))
    full = all(set(a.full_counts) == {k} for a, k in zip(axes, kernel, strict=True))
    return Windows(tuple(axes), kernel, full)


def max_pool(
    xp: Any, op: str, x: Array, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, rank: int,
) -> Array:  # fmt: skip
    """The largest element of each window; NaN when it holds one."""
    plan = _windows(op, x.shape, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, rank)
    _check_dtype(op, x)
    y = x
    for axis in range(rank):
        y = _fold(xp, xp.maximum, y, plan.axes[axis], axis, rank)
    return _fresh(xp, y, x)


def max_pool_places(
    xp: Any, op: str, x: Array, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, rank: int,
) -> tuple[Array, Array]:  # fmt: skip
    """The largest element of each window and its flat place among the input's windowed dims."""
    plan = _windows(op, x.shape, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, rank)
    _check_dtype(op, x)
    return _max_with_places(xp, x, plan.axes)


def max_pool_shape(
    op: str, shape: tuple[int, ...], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, rank: int,
) -> tuple[int, ...]:  # fmt: skip
    """The shape of pooling an input of ``shape``."""
    plan = _windows(op, shape, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, rank)
    return (*shape[: len(shape) - rank], *(axis.size for axis in plan.axes))


def _check_dtype(op: str, x: Array) -> None:
    if x.dtype.kind in "bc":
        raise DTypeError(f"{op}: input is {x.dtype}, expected a real number type")


def _fresh(xp: Any, y: Array, x: Array) -> Array:
    # Windows of one element leave a view of the input behind.
    return y.copy() if xp.may_share_memory(y, x) else xp.ascontiguousarray(y)


def _divide(xp: Any, y: Array, divisor: Any) -> Array:
    if y.dtype.kind in "iu":
        # C's division of integers, which rounds towards zero.
        whole = abs(y) // abs(divisor)
        return xp.where((y < 0) == (divisor > 0), -whole, whole)
    y /= divisor
    return y


def _counts(xp: Any, columns: Sequence[tuple[int, ...]], dtype: Any) -> Array:
    rank = len(columns)
    total = xp.ones((1,) * rank, dtype)
    for axis, column in enumerate(columns):
        total = total * xp.asarray(column, dtype).reshape((-1, *(1,) * (rank - 1 - axis)))
    return total


def avg_pool(
    xp: Any, op: str, x: Array, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool,
    include_pad: bool, divisor: int | None, rank: int,
) -> Array:  # fmt: skip
    """The mean of each window, padding counted as zeros or left out."""
    plan = _windows(op, x.shape, tuple(kernel), tuple(stride), tuple(padding), (1,), ceil_mode, rank)
    _check_dtype(op, x)
    if rank == 3 and any(n < k for n, k in zip(x.shape[-3:], plan.kernel, strict=True)):
        raise ShapeError(f"{op}: windows {shape_text(plan.kernel)} are larger than input {shape_text(x.shape)}")
    if divisor == 0:
        raise OpError(f"{op}: divisor_override is 0")
    y = _sums(xp, x, plan.axes)
    if divisor is not None:
        return _divide(xp, y, divisor)
    if plan.uniform and include_pad:
        return _divide(xp, y, prod(plan.kernel))
    columns = [a.full_counts if include_pad else a.counts for a in plan.axes]
    return _divide(xp, y, xp.maximum(_counts(xp, columns, y.dtype), 1))


def _sums(xp: Any, x: Array, axes: Sequence[Axis]) -> Array:
    rank = len(axes)
    y = x
    for axis in range(rank):
        plan = axes[axis]
        if plan.size == 1 and plan.whole is not None and len(plan.taps) == y.shape[axis - rank] > 4:
            y = xp.add.reduce(y, axis=axis - rank, keepdims=True)
        else:
            y = _fold(xp, xp.add, y, plan, axis, rank)
    return _fresh(xp, y, x)


# -------------------------------------------------------------------------------------------- adaptive windows


def _adaptive_axes(op: str, x: Array, output: Sequence[int], rank: int, filled_from: int) -> list[Axis]:
    sizes = expand_list(op, "output_size", output, rank)
    check_input(op, x.shape, rank, filled_from)
    if min(sizes) < 0:
        raise ShapeError(f"{op}: output_size is {list(sizes)}, expected no negative numbers")
    return [_adaptive_axis(n, size) for n, size in zip(x.shape[-rank:], sizes, strict=True)]


def adaptive_avg_pool(xp: Any, op: str, x: Array, output: Sequence[int], rank: int) -> Array:
    """Means over windows that divide the input into ``output`` parts."""
    _check_dtype(op, x)
    if x.dtype.kind in "iu":
        raise DTypeError(f"{op}: input is {x.dtype}, the mean needs a floating dtype")
    if output and all(size == 1 for size in output) and x.ndim in (rank + 1, rank + 2) and x.size:
        lead = x.shape[: x.ndim - rank]
        y = total(xp, x.reshape(*lead, -1), (len(lead),))
        y /= prod(x.shape[-rank:])
        return y.reshape(*lead, *(1,) * rank)
    # What may be empty is PyTorch's: the batch or the channels, the former alone of volumes and for maxima.
    axes = _adaptive_axes(op, x, output, rank, 1 if rank == 3 else -rank)
    if 0 in [a.size for a in axes] or not x.size:
        return xp.empty((*x.shape[: x.ndim - rank], *(a.size for a in axes)), x.dtype)
    y = _sums(xp, x, axes)
    y /= _counts(xp, [a.counts for a in axes], y.dtype)
    return y


def adaptive_max_pool(xp: Any, op: str, x: Array, output: Sequence[int], rank: int) -> tuple[Array, Array]:
    """Maxima, and their flat places, over windows that divide the input into ``output`` parts."""
    _check_dtype(op, x)
    axes = _adaptive_axes(op, x, output, rank, 1)
    if 0 in [a.size for a in axes] or not x.size:
        shape = (*x.shape[: x.ndim - rank], *(a.size for a in axes))
        return xp.empty(shape, x.dtype), xp.empty(shape, np.int64)
    return _max_with_places(xp, x, axes)


# ---------------------------------------------------------------------------------------------------- operators


def _outer_dim(rank: int) -> Any:
    """Images or channels, whichever are more: pooling treats each on its own."""

    def axis_of(x: Array, *rest: Any) -> int | None:
        return longest(x.shape[:-rank]) if x.ndim > rank else None

    return axis_of


def declare_pair(text: str, out: str, body: Any) -> None:
    """An operator of two results, and its out= form when ``out`` names the overload and the two arguments."""
    library(text, type_rule=pooled_pair_type if "dilation" in text else adaptive_pair_type)(body)
    if not out:
        return
    overload, first, second = out.split()
    head, _, rest = text.partition("(")
    parameters = rest.rpartition(" -> ")[0][:-1]
    op = f"{head}.{overload}"

    def into(xp: Any, *args: Any) -> tuple[Array, Array]:
        """The two results, written into the arrays given."""
        values, places = body(xp, *args[:-2])
        return write_into(args[-2], values, op), write_into(args[-1], places, op)

    library(f"{op}({parameters}, *, Tensor(a!) {first}, Tensor(b!) {second}) -> (Tensor(a!), Tensor(b!))")(into)


def _declare(rank: int) -> None:
    zeros, ones = ("[0]", "[1]") if rank == 1 else ("0", "1")
    numbers = f"Tensor self, int[{rank}] kernel_size, int[{rank}] stride=[], int[{rank}] padding={zeros}"
    op = f"aten::max_pool{rank}d"

    @library(
        f"{op}({numbers}, int[{rank}] dilation={ones}, bool ceil_mode=False) -> Tensor",
        into=by_parts(_outer_dim(rank)),
        type_rule=pooled_type,
    )
    def maximum(
        xp: Any,
        x: Array,
        kernel: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        ceil_mode: bool,
    ) -> Array:
        """The largest element of each window."""
        return max_pool(xp, op, x, kernel, stride, padding, dilation, ceil_mode, rank)

    def with_indices(
        xp: Any,
        x: Array,
        kernel: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        ceil_mode: bool,
    ) -> tuple[Array, Array]:
        """The largest element of each window and its flat place."""
        return max_pool_places(xp, f"{op}_with_indices", x, kernel, stride, padding, dilation, ceil_mode, rank)

    declare_pair(
        f"{op}_with_indices({numbers}, int[{rank}] dilation={ones}, bool ceil_mode=False) -> (Tensor, Tensor)",
        "" if rank == 1 else "out out indices",
        with_indices,
    )
    mean_op = f"aten::avg_pool{rank}d"
    last = "" if rank == 1 else ", int? divisor_override=None"

    @library(
        f"{mean_op}({numbers}, bool ceil_mode=False, bool count_include_pad=True{last}) -> Tensor",
        out="out",
        into=by_parts(_outer_dim(rank)),
        type_rule=pooled_type,
    )
    def mean(
        xp: Any, x: Array, kernel: list[int], stride: list[int], padding: list[int], ceil_mode: bool, include_pad: bool,
        divisor: int | None = None,
    ) -> Array:  # fmt: skip
        """The mean of each window."""
        return avg_pool(xp, mean_op, x, kernel, stride, padding, ceil_mode, include_pad, divisor, rank)

    for name in (f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")[: 1 if rank == 1 else 2]:
        _declare_adaptive(f"aten::{name}", rank)

    def adaptive_max(xp: Any, x: Array, output: list[int]) -> tuple[Array, Array]:
        """Maxima over a given number of windows, and their flat places."""
        return adaptive_max_pool(xp, f"aten::adaptive_max_pool{rank}d", x, output, rank)

    declare_pair(
        f"aten::adaptive_max_pool{rank}d(Tensor self, int[{rank}] output_size) -> (Tensor, Tensor)",
        "" if rank == 1 else "out out indices",
        adaptive_max,
    )


def _declare_adaptive(op: str, rank: int) -> None:
    @library(
        f"{op}(Tensor self, int[{rank}] output_size) -> Tensor",
        out="out",
        into=by_parts(_outer_dim(rank)),
        type_rule=adaptive_type,
    )
    def adaptive_mean(xp: Any, x: Array, output: list[int]) -> Array:
        """Means over a given number of windows."""
        return adaptive_avg_pool(xp, op, x, output, rank)


for _rank in (1, 2, 3):
    _declare(_rank)
