"""Where an element of a view lies in what it is a view of, found by running the operator on an array nobody fills.

A view's body only computes strides, so it can be run on memory that was never touched. From the strides and the offset
of its result follows the map of places, whatever the operator is called; no operator is named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpujit.fuser.errors import NotFused
from gpujit.fuser.tensors import shape_of
from gpujit.ir.graph import Node, Value
from gpujit.kernels.index import Index, index
from gpujit.kernels.views import Coords, reshape
from gpujit.ops.registry import Op
from gpujit.support.errors import GpujitError

# An array of more elements is not made, even without touching it.
LARGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Geometry:
    """The map from a view's places to its operand's.

    ``steps[i][k]``: how far dim k of the operand moves from one place to the next along dim i of the view;
    ``start[k]``: where it begins. Both are None when the view has the same elements in the same order (a reshape).
    """

    operand: tuple[int, ...]
    result: tuple[int, ...]
    start: tuple[int, ...] | None
    steps: tuple[tuple[int, ...], ...] | None

    @property
    def is_reshape(self) -> bool:
        """Whether only the shape differs."""
        return self.steps is None

    @property
    def is_identity(self) -> bool:
        """Whether every element stays where it is."""
        return self.operand == self.result and self.steps == _unit(len(self.operand)) and not any(self.start or ())

    @property
    def is_bijective(self) -> bool:
        """Whether each element of the operand is met just once."""
        return self.is_reshape or (
            prod(self.operand) == prod(self.result)
            and all(sum(abs(s) for s in row) <= 1 for row in self.moving())
            and len({tuple(row) for row in self.moving()}) == len(self.moving())
        )

    def moving(self) -> list[tuple[int, ...]]:
        """The steps of dims that are longer than 1."""
        assert self.steps is not None
        return [row for row, n in zip(self.steps, self.result, strict=True) if n > 1]

    def place(self, coords: Coords) -> Coords:
        """The place in the operand of the view's place ``coords``."""
        if self.steps is None or self.start is None:
            return reshape(coords, self.result, self.operand, self.result, self.operand)
        found = []
        for k, first in enumerate(self.start):
            at = index(first)
            for i, row in enumerate(self.steps):
                if row[k] and self.result[i] > 1:
                    at = at + coords[i] * row[k]
            found.append(at)
        return tuple(found)

    def place_back(self, coords: Coords) -> Coords:
        """The place in the view of the operand's place ``coords``, for a view that is bijective."""
        if self.steps is None or self.start is None:
            return reshape(coords, self.operand, self.result, self.operand, self.result)
        found: list[Index] = []
        for i, row in enumerate(self.steps):
            k = next((k for k, s in enumerate(row) if s), None)
            if k is None or self.result[i] <= 1:
                found.append(index(0))
            else:
                found.append(coords[k] if row[k] > 0 else index(self.start[k]) - coords[k])
        return tuple(found)


def geometry_of(node: Node, op: Op, args: Sequence[Any]) -> tuple[Value, list[Geometry]]:
    """What a view node looks at, and the map of each of its results (several for splits); ``args`` by position.

    Raises NotFused when it is no view, or one that no such map describes.
    """
    if op.kind != "view" or not args or not isinstance(args[0], Value):
        raise NotFused(f"{op.full_name} is no view of one tensor")
    others = [_stand_in(op, i, a) for i, a in enumerate(args[1:], 1)]
    shape = shape_of(args[0])
    dtype = args[0].type.dtype  # type: ignore[attr-defined]
    for value in node.outputs:
        if getattr(value.type, "dtype", dtype) != dtype:
            raise NotFused(f"{op.full_name} changes the dtype")
    return args[0], list(_probe(op, shape, _Arguments(others)))


def _stand_in(op: Op, position: int, argument: Any) -> Any:
    """An argument, or what stands in for a tensor whose shape alone matters (view_as, expand_as)."""
    tensors = [v for v in argument if isinstance(v, Value)] if isinstance(argument, list) else [argument]
    if not any(isinstance(v, Value) for v in tensors):
        return argument
    if not isinstance(argument, Value) or not op.asks_for_shape(position):
        raise NotFused(f"{op.full_name} looks at what the elements of another tensor say")
    return np.broadcast_to(np.zeros((), np.int8), shape_of(argument))


class _Arguments:
    """Arguments of a probe, compared by their text: lists are none too long, arrays are stand-ins of a shape."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.text = repr([f"array{a.shape}" if isinstance(a, np.ndarray) else a for a in values])

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self.text == other.text


@lru_cache(maxsize=4096)
def _probe(op: Op, shape: tuple[int, ...], others: _Arguments) -> tuple[Geometry, ...]:
    count = prod(shape)
    if count > LARGEST:
        raise NotFused(f"{op.full_name}: a tensor of {count} elements")
    # Memory is reserved and never written, so the size costs nothing.
    x = np.empty(shape, np.int8)
    try:
        results = op.kernel(np)(x, *others.values)
    except GpujitError as fault:
        raise NotFused(f"{op.full_name}: {fault.message}") from None
    if not isinstance(results, (list, tuple)):
        results = [results]
    return tuple(_decoded(op, x, y) for y in results)


def _decoded(op: Op, x: np.ndarray, y: np.ndarray) -> Geometry:
    shape, result = x.shape, y.shape
    if y.size and not np.may_share_memory(x, y):
        raise NotFused(f"{op.full_name} copies")
    offset = y.__array_interface__["data"][0] - x.__array_interface__["data"][0] if y.size else 0
    if x.size == y.size and (not y.size or (not offset and y.flags.c_contiguous)):
        if shape == result:
            return Geometry(shape, result, tuple(0 for _ in shape), _unit(len(shape)))
        return Geometry(shape, result, None, None)
    strides = x.strides
    start = _digits(offset, strides, shape)
    steps = [_digits(s, strides, shape) if n > 1 else (0,) * len(shape) for s, n in zip(y.strides, result, strict=True)]
    if start is None or any(row is None for row in steps):
        raise NotFused(f"{op.full_name}: the map of its places is not seen from its strides")
    for k, n in enumerate(shape):
        # Within bounds along each dim the reading of the strides is the only one.
        low = start[k] + sum(min(0, row[k]) * (m - 1) for row, m in zip(steps, result, strict=True))  # type: ignore[index]
        high = start[k] + sum(max(0, row[k]) * (m - 1) for row, m in zip(steps, result, strict=True))  # type: ignore[index]
        if y.size and not 0 <= low <= high < n:
            raise NotFused(f"{op.full_name}: the map of its places is not seen from its strides")
    return Geometry(shape, result, start, tuple(steps))  # type: ignore[arg-type]


def _unit(rank: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(i == k) for k in range(rank)) for i in range(rank))


def _digits(distance: int, strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """A distance in a contiguous array as places along its dims."""
    sign, left = (-1, -distance) if distance < 0 else (1, distance)
    found = [0] * len(shape)
    for k, (stride, n) in enumerate(zip(strides, shape, strict=True)):
        if n > 1 and stride:
            found[k], left = sign * (left // stride), left % stride
    return None if left else tuple(found)
