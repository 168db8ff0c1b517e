"""Windows over padded arrays: the view that convolution, pooling and column operators share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.support.errors import ShapeError


def shape_text(shape: Sequence[int]) -> str:
    """``[2, 3]``: a shape in an error message."""
    return "[" + ", ".join(map(str, shape)) + "]"


def strided(xp: Any, base: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Array:
    """A view of the contiguous array ``base`` with this shape, byte strides and byte offset."""
    if xp is np:
        return np.ndarray(shape, base.dtype, base, offset, strides)
    return xp.lib.stride_tricks.as_strided(base.reshape(-1)[offset // base.itemsize :], shape, strides)


def windows(
    xp: Any, x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], sizes: Sequence[int]
) -> Array:
    """View ``[N, C, *kernel, *sizes]`` of contiguous ``x [N, C, *spatial]``: tap first, then position of the window."""
    steps = x.strides[2:]
    taps = tuple(s * d for s, d in zip(steps, dilation, strict=True))
    moves = tuple(s * t for s, t in zip(steps, stride, strict=True))
    return strided(xp, x, (*x.shape[:2], *kernel, *sizes), (*x.strides[:2], *taps, *moves))


def padded(xp: Any, x: Array, low: Sequence[int], high: Sequence[int], value: Any = 0) -> Array:
    """A contiguous copy of ``x`` with its last ``len(low)`` dims grown by ``low`` before and ``high`` after.

    Returns ``x`` itself when it is contiguous and nothing grows.
    """
    if not any(low) and not any(high):
        return x if x.flags.c_contiguous else xp.ascontiguousarray(x)
    lead = x.ndim - len(low)
    shape = x.shape[:lead] + tuple(a + n + b for a, n, b in zip(low, x.shape[lead:], high, strict=True))
    # zeros() gets its memory from the system already cleared.
    y = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
    y[(..., *(slice(a, a + n) for a, n in zip(low, x.shape[lead:], strict=True)))] = x
    return y


def expand_list(op: str, name: str, values: Sequence[int], rank: int) -> tuple[int, ...]:
    """``values`` as a tuple of ``rank`` numbers; one number stands for all. Raises ShapeError for any other length."""
    n = len(values)
    if n == rank:
        return tuple(values)
    if n == 1:
        return (values[0],) * rank
    raise ShapeError(f"{op}: {name} is {list(values)}, expected one number or {rank} of them")


def tap_slices(offsets: Sequence[int], stride: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    """Index of all input elements that one tap of a window meets, for ``sizes`` positions of the window."""
    return (
        ...,
        *(slice(o, o + (n - 1) * s + 1 if n else o, s) for o, s, n in zip(offsets, stride, sizes, strict=True)),
    )


def add_windows(xp: Any, columns: Array, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """Sum of ``columns [N, C, *kernel, *positions]`` at the places ``[N, C, *sizes]`` their windows were taken from."""
    rank = len(sizes)
    kernel, positions = columns.shape[2 : 2 + rank], columns.shape[2 + rank :]
    y = xp.zeros((*columns.shape[:2], *sizes), columns.dtype)
    for tap in product(*(range(k) for k in kernel)):
        offsets = [t * d for t, d in zip(tap, dilation, strict=True)]
        y[tap_slices(offsets, stride, positions)] += columns[(slice(None), slice(None), *tap)]
    return y


def _index_windows(
    sizes: tuple[int, ...], outs: tuple[int, ...], stride: tuple[int, ...], low: tuple[int, ...],
    dilation: tuple[int, ...], kernel: tuple[int, ...], channels: int,
) -> Any:  # fmt: skip
    total = channels
    for n in sizes:
        total *= n
    rank = len(sizes)
    index = np.arange(channels).reshape((channels,) + (1,) * (2 * rank))
    inside = np.ones((1,) * (2 * rank + 1), np.bool_)
    for axis, n in enumerate(sizes):
        tap = np.arange(kernel[axis]) * dilation[axis] - low[axis]
        at = tap[:, None] + np.arange(outs[axis]) * stride[axis]
        shape = [1] * (2 * rank + 1)
        shape[1 + axis], shape[1 + rank + axis] = at.shape
        at = at.reshape(shape)
        index = index * n + at
        inside = inside & (at >= 0) & (at < n)
    # Every place outside points at one more element that the caller puts behind the last.
    return np.where(inside, index, total)


@lru_cache(maxsize=256)
def gather_index(
    sizes: tuple[int, ...], outs: tuple[int, ...], stride: tuple[int, ...], low: tuple[int, ...],
    dilation: tuple[int, ...], kernel: tuple[int, ...], channels: int,
) -> Any:  # fmt: skip
    """Flat indices ``[channels * kernel, outs]`` into one image with a padding element appended, for small images."""
    index = _index_windows(sizes, outs, stride, low, dilation, kernel, channels)
    taps = channels
    for k in kernel:
        taps *= k
    return np.ascontiguousarray(index.reshape(taps, -1), dtype=np.intp)
