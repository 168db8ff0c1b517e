"""Reductions over rows on vectors: accumulators, their combination across lanes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from gpujit.kernels.tile import Reduce
from gpujit.kernels.vector import ELEMENTS, I32, Emitter, Vector

_COMBINE: dict[str, Callable[[Emitter, Vector, Vector], Vector]] = {
    "sum": lambda e, x, y: x + y,
    "prod": lambda e, x, y: x * y,
    "max": lambda e, x, y: e.maximum(x, y) if x.dtype != "bool" else x | y,
    "min": lambda e, x, y: e.minimum(x, y) if x.dtype != "bool" else x & y,
    "any": lambda e, x, y: x | y,
    "all": lambda e, x, y: x & y,
    "cumsum": lambda e, x, y: x + y,
    "cumprod": lambda e, x, y: x * y,
}


def neutral(op: str, dtype: str) -> float | int | bool:
    """What changes nothing when it is combined."""
    element = ELEMENTS[dtype]
    if op in ("sum", "any", "cumsum"):
        return 0
    if op in ("prod", "all", "cumprod"):
        return 1
    largest = op in ("min", "argmin")
    if element.kind == "f":
        return float("inf") if largest else float("-inf")
    if element.kind == "b":
        return largest
    info = np.iinfo(dtype)
    return int(info.max if largest else info.min)


class Accumulator:
    """What one reduction has so far, one in each lane."""

    def __init__(
        self, e: Emitter, item: Reduce, dtype: str, lanes: int, variable: Callable[[Vector], ir.Value]
    ) -> None:
        self.e, self.op, self.dtype, self.lanes = e, item.op, dtype, lanes
        self.is_place = item.op in ("argmax", "argmin")
        self.start = e.constant(dtype, lanes, neutral(item.op, dtype))
        self.slot = variable(self.start)
        # -1: nothing was taken yet, so that a row of the neutral number alone has its place too.
        self.at_start = e.constant("int64", lanes, -1)
        self.at_slot = variable(self.at_start) if self.is_place else None
        # The larger or smaller of two numbers forgets NaN: whether there was one is kept beside it.
        self.forgets = item.op in ("max", "min") and self.start.element.kind == "f"
        self.unspoilt = e.constant(dtype, lanes, 0)
        self.spoilt_slot = variable(self.unspoilt) if self.forgets else None

    def value(self) -> Vector:
        """The number in each lane."""
        return self.start._new(self.e.builder.load(self.slot, typ=self.start.value.type))

    def place(self) -> Vector:
        """The place in each lane, of argmax and argmin."""
        assert self.at_slot is not None
        return self.at_start._new(self.e.builder.load(self.at_slot, typ=self.at_start.value.type))

    def spoilt(self) -> Vector:
        """NaN where that was among the numbers, else 0; of maxima and minima of floats."""
        assert self.spoilt_slot is not None
        return self.unspoilt._new(self.e.builder.load(self.spoilt_slot, typ=self.unspoilt.value.type))

    def spoil(self, where: Vector) -> None:
        """There was NaN in these lanes."""
        assert self.spoilt_slot is not None
        self.e.builder.store(self.e.select(where, math.nan, self.spoilt()).value, self.spoilt_slot)

    def combined(self, x: Vector, y: Vector) -> Vector:
        """Two numbers in one; of maxima and minima of floats NaN may be forgotten."""
        if self.forgets:
            return self.e.larger(y, x) if self.op == "max" else self.e.smaller(y, x)
        return _COMBINE[self.op](self.e, x, y)

    def take(self, x: Vector, mask: Vector | None, position: Callable[[], Vector]) -> None:
        """Take in a number in each lane that the mask sets."""
        e, b = self.e, self.e.builder
        before = self.value()
        if self.is_place:
            at_before = self.place()
            wins = self._wins(x, before) | (at_before < 0)
            if mask is not None:
                wins = wins & mask
            b.store(e.select(wins, x, before).value, self.slot)
            b.store(e.select(wins, position(), at_before).value, self.at_slot)
            return
        after = self.combined(before, x)
        if mask is not None:
            after = e.select(mask, after, before)
        b.store(after.value, self.slot)

    def _wins(self, x: Vector, y: Vector) -> Vector:
        """Whether ``x`` takes the place of ``y``, which came first."""
        if x.dtype == "bool":
            return x & ~y if self.op == "argmax" else ~x & y
        wins = x > y if self.op == "argmax" else x < y
        return wins | ((x != x) & (y == y)) if x.element.kind == "f" else wins

    def result(self) -> Vector:
        """The result for each lane."""
        if self.forgets:
            spoilt = self.spoilt()
            return self.e.select(spoilt != spoilt, math.nan, self.value())
        return self.place() if self.is_place else self.value()

    def put_in(self, x: Vector) -> None:
        """Take in one number that is a result of others."""
        if self.forgets:
            self.spoil(x != x)
        self.e.builder.store(self.combined(self.value(), x).value, self.slot)

    def across(self, others: Sequence[Accumulator]) -> Vector:
        """The result over all lanes of this accumulator and others, as a scalar."""
        e = self.e
        if not self.is_place:
            total = self.value()
            values = [total, *(o.value() for o in others)]
            found = e.reduce(_by_twos(values, self.combined), self.combined)
            if not self.forgets:
                return found
            spoilt = _by_twos([part.spoilt() for part in (self, *others)], lambda x, y: x + y)
            return e.select(e.any(spoilt != spoilt), math.nan, found)
        best: tuple[Vector, Vector] | None = None
        for part in (self, *others):
            value, place = part.value(), part.place()
            for lane in range(self.lanes):
                x, at = e.lane(value, lane), e.lane(place, lane)
                if best is None:
                    best = (x, at)
                    continue
                y, best_at = best
                equal = ~self._wins(x, y) & ~self._wins(y, x)
                wins = (self._wins(x, y) | (equal & (at < best_at)) | (best_at < 0)) & (at >= 0)
                best = (e.select(wins, x, y), e.select(wins, at, best_at))
        assert best is not None
        return best[1]


def _by_twos(values: list[Vector], combine: Callable[[Vector, Vector], Vector]) -> Vector:
    """All in one, neighbours first."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return values[0]


def take(
    parts: Sequence[Accumulator],
    numbers: Sequence[Vector],
    masks: Sequence[Vector | None],
    positions: Sequence[Callable[[], Vector]],
    apart: bool,
) -> None:
    """Accumulators take in a number each, in the lanes that its mask sets; ``apart``: each has a result of its own."""
    for part, x, mask, position in zip(parts, numbers, masks, positions, strict=False):
        part.take(x, mask, position)
    if not parts[0].forgets:
        return
    e = parts[0].e
    # One comparison tells of two numbers whether either is NaN.
    step = 1 if apart else 2
    known = [x if mask is None else e.select(mask, x, 0.0) for x, mask in zip(numbers, masks, strict=True)]
    for k in range(0, len(known), step):
        parts[k].spoil(e.unordered(known[k], known[k + step - 1] if k + step <= len(known) else known[k]))


def scanned(e: Emitter, item: Reduce, x: Vector, mask: Vector | None, slot: ir.Value) -> Vector:
    """The running number at each lane, of the lanes before and of what ``slot`` (a scalar) holds; ``slot`` moves on."""
    combine = _COMBINE[item.op]
    idle = x.like(neutral(item.op, x.dtype))
    if mask is not None:
        x = e.select(mask, x, idle)
    step = 1
    while step < x.lanes:
        # Lane i takes lane i - step; the first ones take the neutral number.
        order = ir.Constant(ir.VectorType(I32, x.lanes), [i - step if i >= step else x.lanes for i in range(x.lanes)])
        x = combine(e, x._new(e.builder.shuffle_vector(x.value, idle.value, order)), x)
        step *= 2
    scalar = e.lane(x, 0)
    carry = scalar._new(e.builder.load(slot, typ=scalar.value.type))
    x = combine(e, e.broadcast(carry, x.lanes), x)
    e.builder.store(e.lane(x, x.lanes - 1).value, slot)
    return x
