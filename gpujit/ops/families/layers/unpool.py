"""Pooling at pseudo-random places, and the inverse and the gradient of maximum pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.values import Array
from gpujit.ops.families.layers.pool import check_input, declare_pair, max_pool_shape
from gpujit.ops.registry import library, out_form
from gpujit.ops.strided import expand_list, shape_text
from gpujit.support.errors import DTypeError, ShapeError


def max_unpool(xp: Any, op: str, x: Array, places: Array, output: Sequence[int], rank: int) -> Array:
    """Zeros of size ``output`` with the elements of ``x`` at their flat places."""
    sizes = expand_list(op, "output_size", output, rank)
    if places.shape != x.shape:
        raise ShapeError(f"{op}: indices {shape_text(places.shape)} differ in shape from self {shape_text(x.shape)}")
    if places.dtype != np.int64:
        raise DTypeError(f"{op}: indices are {places.dtype}, expected int64")
    check_input(op, x.shape, rank)
    lead = x.shape[: x.ndim - rank]
    area, count = prod(sizes), prod(lead)
    flat = places.reshape(count, prod(x.shape[-rank:]))
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= area):
        raise ShapeError(f"{op}: indices reach from {int(flat.min())} to {int(flat.max())}, output of {area} elements")
    y = xp.zeros((count, area), x.dtype)
    y[xp.arange(count)[:, None], flat] = x.reshape(flat.shape)
    return y.reshape(*lead, *sizes)


def fractional_max_pool(
    xp: Any, op: str, x: Array, kernel_: Sequence[int], output_: Sequence[int], samples: Array, rank: int
) -> tuple[Array, Array]:
    """Maxima and places over windows whose starts follow from one random number for each channel and dim.

    Source: Graham 2014, "Fractional Max-Pooling", the pseudo-random variant as PyTorch computes it.
    """
    kernel, output = expand_list(op, "kernel_size", kernel_, rank), expand_list(op, "output_size", output_, rank)
    check_input(op, x.shape, rank)
    sizes, lead = x.shape[-rank:], x.shape[: x.ndim - rank]
    count = prod(lead)
    if samples.ndim != 3 or samples.shape[-1] != rank or samples.shape[0] * samples.shape[1] != count:
        raise ShapeError(f"{op}: _random_samples {shape_text(samples.shape)} do not fit input {shape_text(x.shape)}")
    flat = xp.ascontiguousarray(x).reshape(count, prod(sizes))
    rows = samples.reshape(count, rank).astype(x.dtype)
    starts = []
    for axis, (n, k, size) in enumerate(zip(sizes, kernel, output, strict=True)):
        if k < 1 or size < 1 or size + k - 1 > n - (rank == 3):
            raise ShapeError(
                f"{op}: output_size {list(output)} with kernel_size {list(kernel)} does not fit {shape_text(sizes)}"
            )
        # In two dims the first random number belongs to the width.
        sample = rows[:, 1 - axis if rank == 2 else axis][:, None]
        start = xp.full((count, size), n - k, np.int64)
        if size > 1:
            alpha = x.dtype.type((n - k) / (size - 1))
            steps = xp.arange(size - 1).astype(x.dtype)
            start[:, :-1] = ((steps + sample) * alpha).astype(np.int64) - (sample * alpha).astype(np.int64)
        starts.append(start.reshape(count, *(size if a == axis else 1 for a in range(rank))))
    base: Any = 0
    for n, start in zip(sizes, starts, strict=True):
        base = base * n + start
    plane = xp.arange(count).reshape(count, *(1,) * rank)
    y = flat[plane, base]
    places = xp.broadcast_to(base, y.shape).copy()
    for tap in np.ndindex(*kernel):
        offset = 0
        for n, t in zip(sizes, tap, strict=True):
            offset = offset * n + t
        at = base + offset
        part = flat[plane, at]
        better = (part > y) | (part != part)
        y, places = xp.where(better, part, y), xp.where(better, at, places)
    return y.reshape(*lead, *output), places.reshape(*lead, *output)


def _declare_fractional(rank: int) -> None:
    op = f"aten::fractional_max_pool{rank}d"

    def fractional(xp: Any, x: Array, kernel: list[int], output: list[int], samples: Array) -> tuple[Array, Array]:
        """Maxima over windows at pseudo-random starts, and their flat places."""
        return fractional_max_pool(xp, op, x, kernel, output, samples, rank)

    declare_pair(
        f"{op}(Tensor self, int[{rank}] kernel_size, int[{rank}] output_size, Tensor random_samples) "
        "-> (Tensor, Tensor)",
        "output output indices",
        fractional,
    )


for _rank in (2, 3):
    _declare_fractional(_rank)


@library("aten::max_unpool2d(Tensor self, Tensor indices, int[2] output_size) -> Tensor", out="out")
def max_unpool2d(xp: Any, x: Array, places: Array, output: list[int]) -> Array:
    """Zeros with the input's elements at their flat places."""
    return max_unpool(xp, "aten::max_unpool2d", x, places, output, 2)


@library(
    "aten::max_unpool3d(Tensor self, Tensor indices, int[3] output_size, int[3] stride, int[3] padding) -> Tensor",
    out="out",
)
def max_unpool3d(xp: Any, x: Array, places: Array, output: list[int], stride: list[int], padding: list[int]) -> Array:
    """Zeros with the input's elements at their flat places."""
    if min(expand_list("aten::max_unpool3d", "stride", stride, 3)) < 1:
        raise ShapeError(f"aten::max_unpool3d: stride is {list(stride)}, every number must be at least 1")
    return max_unpool(xp, "aten::max_unpool3d", x, places, output, 3)


def max_pool_backward(
    xp: Any, op: str, grad: Array, pooled: tuple[int, ...], x: Array, places: Array, rank: int
) -> Array:
    """The gradient of maximum pooling to shape ``pooled``: each element added at the place its maximum came from."""
    for name, array in (("grad_output", grad), ("indices", places)):
        if array.shape != pooled:
            raise ShapeError(
                f"{op}: {name} has shape {shape_text(array.shape)}, the pooled result has {shape_text(pooled)}"
            )
    if places.dtype != np.int64:
        raise DTypeError(f"{op}: indices are {places.dtype}, expected int64")
    if grad.dtype != x.dtype:
        raise DTypeError(f"{op}: grad_output is {grad.dtype}, self is {x.dtype}; they must be equal")
    area, count = prod(x.shape[-rank:]), prod(x.shape[: x.ndim - rank])
    if places.size and (int(places.min()) < 0 or int(places.max()) >= area):
        raise ShapeError(
            f"{op}: indices reach from {int(places.min())} to {int(places.max())}, expected 0 to {area - 1}"
        )
    y = xp.zeros(x.shape, x.dtype)
    flat = places.reshape(count, -1) + xp.arange(count)[:, None] * area
    xp.add.at(y.reshape(-1), flat.reshape(-1), grad.reshape(-1))
    return y


def _declare_backward(rank: int) -> None:
    op = f"aten::max_pool{rank}d_with_indices_backward"

    @library(
        f"{op}(Tensor grad_output, Tensor self, int[{rank}] kernel_size, int[{rank}] stride, int[{rank}] padding, "
        f"int[{rank}] dilation, bool ceil_mode, Tensor indices) -> Tensor"
    )
    def backward(
        xp: Any, grad: Array, x: Array, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int],
        ceil_mode: bool, places: Array,
    ) -> Array:  # fmt: skip
        """The gradient of maximum pooling with respect to its input."""
        pooled = max_pool_shape(op, x.shape, kernel, stride, padding, dilation, ceil_mode, rank)
        return max_pool_backward(xp, op, grad, pooled, x, places, rank)

    out_form(
        f"{op}.grad_input(Tensor grad_output, Tensor self, int[{rank}] kernel_size, int[{rank}] stride, "
        f"int[{rank}] padding, int[{rank}] dilation, bool ceil_mode, Tensor indices, *, Tensor(a!) grad_input) "
        "-> Tensor(a!)",
        op,
    )


for _rank in (2, 3):
    _declare_backward(_rank)
