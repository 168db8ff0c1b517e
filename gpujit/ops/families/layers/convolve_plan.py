"""What follows from the shapes and numbers of a convolution alone, and its input cut up by phases of the stride."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from gpujit.ir.values import Array
from gpujit.ops.strided import expand_list, gather_index, padded, shape_text
from gpujit.support.errors import DTypeError, ShapeError

# Columns of one image up to this many elements are fetched by a cached index instead of a window view.
SMALL_COLUMNS = 6144
# Positions of the result from which on transforming the weights of a 3-wide kernel is worth it.
MANY_POSITIONS = 400


class Plan(NamedTuple):
    """What follows from the shapes and the numbers of a convolution alone."""

    batched: bool
    rank: int
    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    kernel: tuple[int, ...]
    outs: tuple[int, ...]
    channels: int
    out_channels: int
    path: str
    result: tuple[int, ...]
    index: Any
    transformed: bool = False


def _same_padding(op: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> tuple[Any, Any]:
    if any(s != 1 for s in stride):
        raise ShapeError(f"{op}: padding 'same' needs stride 1, found stride {list(stride)}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def check_common(op: str, x: tuple[int, ...], w: tuple[int, ...], rank: int, groups: int) -> bool:
    """Whether the input has a batch dim. Raises ShapeError for ranks or groups that cannot be."""
    if rank < 1 or len(w) != rank + 2:
        raise ShapeError(f"{op}: weight {shape_text(w)} has {len(w)} dims, expected {rank + 2}")
    if len(x) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: input {shape_text(x)} has {len(x)} dims, weight {shape_text(w)} needs {rank + 2}, "
            f"or {rank + 1} without a batch"
        )
    if groups < 1:
        raise ShapeError(f"{op}: groups is {groups}, expected at least 1")
    if min(w[2:]) < 1:
        raise ShapeError(f"{op}: weight {shape_text(w)} has an empty kernel")
    return len(x) == rank + 2


def check_numbers(op: str, stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int]) -> None:
    if min(stride) < 1:
        raise ShapeError(f"{op}: stride is {list(stride)}, every number must be at least 1")
    if min(dilation) < 1:
        raise ShapeError(f"{op}: dilation is {list(dilation)}, every number must be at least 1")
    if min(padding) < 0:
        raise ShapeError(f"{op}: padding is {list(padding)}, negative padding is not supported; slice the input")


@lru_cache(maxsize=1024)
def make_plan(
    op: str, x: tuple[int, ...], w: tuple[int, ...], stride_: tuple[int, ...], padding: tuple[int, ...] | str,
    dilation_: tuple[int, ...], groups: int, rank: int,
) -> Plan:  # fmt: skip
    """The plan of a convolution of ``x`` with ``w``. Raises ShapeError when they do not fit."""
    batched = check_common(op, x, w, rank, groups)
    if not batched:
        x = (1, *x)
    kernel, out_channels, channels = w[2:], w[0], x[1]
    stride = expand_list(op, "stride", stride_, rank)
    dilation = expand_list(op, "dilation", dilation_, rank)
    if not isinstance(padding, str):
        low = high = expand_list(op, "padding", padding, rank)
    elif padding == "same":
        low, high = _same_padding(op, kernel, stride, dilation)
    elif padding == "valid":
        low = high = (0,) * rank
    else:
        raise ShapeError(f"{op}: padding is {padding!r}, expected 'same', 'valid' or numbers")
    check_numbers(op, stride, dilation, low)
    if channels != w[1] * groups:
        raise ShapeError(
            f"{op}: input has {channels} channels, weight {shape_text(w)} with groups={groups} needs {w[1] * groups}"
        )
    if out_channels % groups:
        raise ShapeError(
            f"{op}: weight {shape_text(w)} makes {out_channels} channels, groups={groups} does not divide them"
        )
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    sizes = tuple(a + n + b for a, n, b in zip(low, x[2:], high, strict=True))
    if any(r > n for r, n in zip(reach, sizes, strict=True)):
        raise ShapeError(
            f"{op}: the kernel reaches over {shape_text(reach)}, more than the padded input {shape_text(sizes)}"
        )
    outs = tuple((n - r) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True))
    per_group = w[1]
    columns = channels * prod(kernel) * prod(outs)
    index = None
    if per_group == 1 and groups > 1:
        path = "depthwise"
    elif prod(kernel) == 1 and not any(low):
        path = "pointwise"
    elif x[0] == 1 and groups == 1 and columns <= SMALL_COLUMNS:
        path = "small"
        index = gather_index(x[2:], outs, stride, low, dilation, kernel, channels)
    else:
        path = "columns"
    result = (x[0], out_channels, *outs) if batched else (out_channels, *outs)
    transformed = (
        rank == 2 and groups == 1 and kernel[1] == 3 and max(stride) == max(dilation) == 1
        and prod(outs) >= MANY_POSITIONS and min(channels, out_channels) >= 48
    )  # fmt: skip
    return Plan(
        batched, rank, stride, low, high, dilation, groups, kernel, outs, channels, out_channels, path, result, index,
        transformed,
    )  # fmt: skip


def check_arrays(op: str, x: Array, w: Array, bias: Array | None, out_channels: int) -> None:
    dtype = x.dtype
    if w.dtype != dtype or (bias is not None and bias.dtype != dtype):
        found = "" if bias is None else f" and bias {bias.dtype}"
        raise DTypeError(f"{op}: input is {dtype}, weight {w.dtype}{found}; they must have one dtype")
    if dtype.kind == "b":
        raise DTypeError(f"{op}: input is bool; convert it to a number type first")
    if bias is not None and bias.shape != (out_channels,):
        raise ShapeError(f"{op}: bias is {shape_text(bias.shape)}, the weight makes {out_channels} channels")


def phases(xp: Any, x: Array, plan: Plan) -> Array:
    """``[*stride, N, C, *Q]``: the padded input, split so that windows a stride apart are neighbours."""
    rank, (n, c) = plan.rank, x.shape[:2]
    high = [b + -(a + m + b) % s for a, m, b, s in zip(plan.low, x.shape[2:], plan.high, plan.stride, strict=True)]
    x = padded(xp, x, plan.low, high)
    if max(plan.stride) == 1:
        return x.reshape((1,) * rank + x.shape)
    pairs = [size for m, s in zip(x.shape[2:], plan.stride, strict=True) for size in (m // s, s)]
    order = (*range(3, 3 + 2 * rank, 2), 0, 1, *range(2, 2 + 2 * rank, 2))
    return xp.ascontiguousarray(x.reshape(n, c, *pairs).transpose(order))
