"""Tensors of a step on a GPU while it is put together: addresses with shapes and strides, and products of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from gpujit.ir.graph import Value
from gpujit.kernels.cuda_steps import Laid, StepBuilder
from gpujit.kernels.launches import Address, Gemm, Matrix
from gpujit.static_runtime.device_tiles import PlaceOf
from gpujit.static_runtime.native import copy_program
from gpujit.static_runtime.places import Place, Strides

# What matrix products take.
PRODUCT_TYPES = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)
# Calls for one product of matrices that lie in no even order; above so many they are copied first.
MOST_CALLS = 16


class View(NamedTuple):
    """A tensor's elements; strides are in elements."""

    at: Address
    shape: tuple[int, ...]
    steps: Strides
    dtype: np.dtype

    @property
    def turned(self) -> View:
        """Rows and columns exchanged."""
        return self._replace(
            shape=(*self.shape[:-2], *self.shape[:-3:-1]), steps=(*self.steps[:-2], *self.steps[:-3:-1])
        )

    @property
    def laid(self) -> Laid:
        return Laid(self.at, self.steps)

    @property
    def lies_together(self) -> bool:
        """Whether the elements lie as in a contiguous array."""
        wanted = together(self.shape)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.steps, wanted, strict=True))

    def part(self, dim: int, first: int, count: int) -> View:
        """``count`` places along a dim."""
        shape = (*self.shape[:dim], count, *self.shape[dim + 1 :])
        return self._replace(at=self.behind(first * self.steps[dim]), shape=shape)

    def split(self, dim: int, groups: int) -> View:
        """A dim as groups and what each of them has."""
        each = self.shape[dim] // groups
        shape = (*self.shape[:dim], groups, each, *self.shape[dim + 1 :])
        return self._replace(shape=shape, steps=(*self.steps[:dim], each * self.steps[dim], *self.steps[dim:]))

    def behind(self, elements: int) -> Address:
        """The address so many elements further on."""
        return Address(self.at.array, self.at.offset + elements * self.dtype.itemsize)


def together(shape: Sequence[int]) -> Strides:
    """Strides of a contiguous array, in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def view_of(place: Place, at: Address) -> View | None:
    """A place as a view from an address on; None when its strides split elements."""
    steps = place.steps
    if steps is None or place.offset % place.dtype.itemsize:
        return None
    return View(at, place.shape, steps, place.dtype)


def started(
    operands: Sequence[Value], place_of: PlaceOf, result: Place, same: int | None = None
) -> tuple[StepBuilder, list[View], View] | None:
    """A step under construction, and its operands and result as views; None when one of them is none.

    Args:
        same: how many operands, the first ones, must be of the result's dtype; by default all.
    """
    places = [p for v in operands if (p := place_of(v)) is not None]
    if len(places) != len(operands) or any(p.dtype != result.dtype for p in places[:same]):
        return None
    build = StepBuilder([p.offset for p in places], [result.offset])
    views = [v for k, p in enumerate(places) if (v := view_of(p, build.operand(k))) is not None]
    out = view_of(result, build.result())
    return None if out is None or len(views) != len(places) else (build, views, out)


def scratch_view(build: StepBuilder, shape: Sequence[int], dtype: np.dtype) -> View:
    """A contiguous tensor in the step's own memory."""
    return View(build.scratch(prod(shape) * dtype.itemsize), tuple(shape), together(shape), dtype)


def copied(build: StepBuilder, x: View) -> View:
    """A copy whose elements lie together; dims along which all elements are the same ones stay so."""
    shape = tuple(1 if s == 0 else n for n, s in zip(x.shape, x.steps, strict=True))
    target = scratch_view(build, shape, x.dtype)
    copy(build, x._replace(shape=shape), target)
    steps = tuple(0 if s == 0 else t for s, t in zip(x.steps, target.steps, strict=True))
    return x._replace(at=target.at, steps=steps)


def copy(build: StepBuilder, source: View, target: View) -> None:
    """Write a tensor's elements, broadcast, into another of its dtype."""
    missing = len(target.shape) - len(source.shape)
    steps = (*[0] * missing, *(0 if n == 1 else s for n, s in zip(source.shape, source.steps, strict=True)))
    build.tile(
        copy_program(source.dtype, len(target.shape)), [Laid(source.at, steps)], [target.laid], target.shape,
        label="copy",
    )  # fmt: skip


def restate(build: StepBuilder, x: View, out: View) -> None:
    """Copy a step's first operand, parts of which are then written and which it does not read otherwise."""
    first = build.count
    copy(build, x, out)
    if x.shape == out.shape and all(n == 1 or a == b for n, a, b in zip(x.shape, x.steps, out.steps, strict=True)):
        build.restated(first)


# Matrix products ------------------------------------------------------------------------------------------------------


def _matrix_steps(x: View) -> tuple[int, int] | None:
    """Strides of rows and columns as libraries take them, one of them 1; None when they cannot."""
    (rows, columns), (row, column) = x.shape[-2:], x.steps[-2:]
    if rows == 1 and (column == 1 or columns == 1):
        return columns, 1
    if columns == 1 and row == 1:
        return 1, rows
    if column == 1 or columns == 1:
        # A single column may be seen as rows of one element.
        return (row, 1) if row >= columns else None
    return (1, column) if (row == 1 or rows == 1) and column >= rows else None


def _spread(x: View, batch: tuple[int, ...]) -> View:
    """The matrices broadcast over more dims."""
    missing = len(batch) + 2 - len(x.shape)
    steps = [0 if n == 1 else s for n, s in zip(x.shape[:-2], x.steps[:-2], strict=True)]
    return x._replace(shape=(*batch, *x.shape[-2:]), steps=(*[0] * missing, *steps, *x.steps[-2:]))


def _folded(left: View, right: View, out: View) -> tuple[View, View, View]:
    """Batches of the left side's rows as more rows, where one right matrix serves them all and they lie evenly."""
    while len(out.shape) > 2:
        count, rows = out.shape[-3:-1]
        if right.steps[-3] != 0 and count != 1:
            break
        found = []
        for x in (left, out):
            outer, row = x.steps[-3:-1]
            if count == 1:
                step = row
            elif rows == 1:
                step = outer
            elif outer == row * rows:
                step = row
            else:
                break
            shape = (*x.shape[:-3], count * rows, x.shape[-1])
            found.append(x._replace(shape=shape, steps=(*x.steps[:-3], step, x.steps[-1])))
        if len(found) != 2:
            break
        left, out = found
        right = right._replace(
            shape=(*right.shape[:-3], *right.shape[-2:]), steps=(*right.steps[:-3], *right.steps[-2:])
        )
    return left, right, out


def _batches(views: Sequence[View]) -> list[tuple[int, tuple[int, ...]]]:
    """Batch dims as (size, stride of each view), those that lie as one merged."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(views[-1].shape[:-2]):
        if n == 1:
            continue
        steps = tuple(x.steps[d] for x in views)
        if found and all(a == b * n for a, b in zip(found[-1][1], steps, strict=True)):
            found[-1] = (found[-1][0] * n, steps)
        else:
            found.append((n, steps))
    return found


def multiply(
    build: StepBuilder,
    left: View,
    right: View,
    out: View,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Address | None = None,
    ending: str = "",
) -> bool:
    """Calls for ``out = alpha * left @ right + beta * out + bias``, whose batch dims are those of ``out``.

    Operands that libraries do not take as they lie are copied first. False, and nothing is added, when there are no
    numbers to sum or ``out`` cannot be written so.
    """
    batch = out.shape[:-2]
    depth = left.shape[-1]
    if not depth or right.shape[-2] != depth or out.shape[-2:] != (left.shape[-2], right.shape[-1]):
        return False
    if not prod(out.shape):
        return True
    left, right, out = _folded(_spread(left, batch), _spread(right, batch), out)
    if _matrix_steps(out) is None:
        return False
    left, right = (x if _matrix_steps(x) else _written_out(build, x) for x in (left, right))
    dims = _batches((left, right, out))
    if prod([n for n, _ in dims]) > MOST_CALLS * max((n for n, _ in dims), default=1):
        left, right = (x if _is_even(x) else copied(build, x) for x in (left, right))
        dims = _batches((left, right, out))
    inner = max(dims, key=lambda d: d[0], default=(1, (0, 0, 0)))
    outer = [d for d in dims if d is not inner]
    for place in product(*(range(n) for n, _ in outer)):
        a, b, c = (
            _matrix(x, sum(i * steps[k] for i, (_, steps) in zip(place, outer, strict=True)), inner[1][k])
            for k, x in enumerate((left, right, out))
        )
        build.add(Gemm(a, b, c, inner[0], out.dtype, float(alpha), float(beta), bias, ending))
    return True


def _matrix(x: View, first: int, batch: int) -> Matrix:
    row, column = _matrix_steps(x) or (0, 0)
    return Matrix(x.behind(first), x.shape[-2], x.shape[-1], row, column, batch)


def _is_even(x: View) -> bool:
    """Whether all batches that differ are one stride apart."""
    shape = [1 if s == 0 else n for n, s in zip(x.shape, x.steps, strict=True)]
    return len(_batches([x._replace(shape=(*shape[:-2], *x.shape[-2:]))])) < 2


def _written_out(build: StepBuilder, x: View) -> View:
    """A copy in which rows and columns that were the same ones are there as often as they are read."""
    shape = (*(1 if s == 0 else n for n, s in zip(x.shape[:-2], x.steps[:-2], strict=True)), *x.shape[-2:])
    target = scratch_view(build, shape, x.dtype)
    copy(build, x._replace(shape=shape), target)
    steps = tuple(0 if s == 0 else t for s, t in zip(x.steps[:-2], target.steps[:-2], strict=True))
    return x._replace(at=target.at, steps=(*steps, *target.steps[-2:]))
