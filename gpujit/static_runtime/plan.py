"""Lifetimes and sizes to offsets in one arena: a pure function, no arrays and no graphs."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

# A plan this close to the lower bound is not worth another try.
CLOSE = 1.001
# With more values than this only the two best orders are tried.
MANY = 1500
# Placements in search of a better plan, in values: a hundred values are placed anew a hundred times.
SEARCH = 20_000


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value's first and last step, both inclusive, and its bytes."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """``offsets[i]`` belongs to ``lifetimes[i]``; the arena needs ``size`` bytes, and no plan can do with less than
    ``bound``."""

    offsets: tuple[int, ...]
    size: int
    bound: int


def plan_arena(lifetimes: Sequence[Lifetime], align: int = 64) -> Plan:
    """Offsets such that values alive at the same time never overlap.

    Greedy in several orders, the best result is kept: each value goes to the smallest gap that is free for its whole
    life. The same lifetimes always give the same plan.
    Args:
        lifetimes: one for each planned value. Values of no bytes get an offset too, and take no room.
        align: every offset is a multiple of this many bytes.
    Raises ValueError: a lifetime ends before it starts, or a size is negative.
    Source: Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", section 5.
    """
    for each in lifetimes:
        if each.last < each.first or each.size < 0:
            raise ValueError(f"no lifetime: from step {each.first} to {each.last}, {each.size} bytes")
    if align < 1:
        raise ValueError(f"no alignment: {align} bytes")
    rounded = [Lifetime(t.first, t.last, -(-t.size // align) * align) for t in lifetimes]
    bound = live_bytes(rounded)
    best: tuple[int, ...] = (0,) * len(rounded)
    size, chosen = -1, []
    for order in _orders(rounded):
        offsets = _place(rounded, order)
        needed = _size(rounded, offsets)
        if size < 0 or needed < size:
            best, size, chosen = tuple(offsets), needed, order
        if size <= bound * CLOSE:
            return Plan(best, size, bound)
    return _search(rounded, chosen, Plan(best, max(size, 0), bound))


def _size(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> int:
    return max((o + t.size for o, t in zip(offsets, lifetimes, strict=True)), default=0)


def _search(lifetimes: Sequence[Lifetime], order: list[int], plan: Plan) -> Plan:
    """A better plan, if one is found by placing those values earlier that lie at the arena's end, or beside one that
    does at the same time. Orders that give no larger plan are kept, so that it can leave a plateau."""
    if not order:
        return plan
    random = Random(len(lifetimes))
    best = plan
    offsets: Sequence[int] = plan.offsets
    size = plan.size
    for _ in range(max(SEARCH // len(lifetimes), 4)):
        top = [i for i, t in enumerate(lifetimes) if t.size and offsets[i] + t.size == size]
        i = random.choice(top)
        mine = lifetimes[i]
        beside = [k for k, t in enumerate(lifetimes) if t.first <= mine.last and mine.first <= t.last and t.size]
        moved = random.choice(top) if random.random() < 0.5 else random.choice(beside)
        trial = [k for k in order if k != moved]
        trial.insert(random.randint(0, order.index(moved)), moved)
        found = _place(lifetimes, trial)
        needed = _size(lifetimes, found)
        if needed <= size:
            order, offsets, size = trial, found, needed
        if needed < best.size:
            best = Plan(tuple(found), needed, plan.bound)
            if needed <= plan.bound * CLOSE:
                break
    return best


def live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive at one step: what every plan needs at least."""
    changes: dict[int, int] = {}
    for t in lifetimes:
        changes[t.first] = changes.get(t.first, 0) + t.size
        changes[t.last + 1] = changes.get(t.last + 1, 0) - t.size
    most = live = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


def overlaps(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> tuple[int, int] | None:
    """The numbers of two values that are alive at the same time and share bytes; None when there are none."""
    ends = sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].first)
    alive: list[int] = []
    for i in ends:
        mine = lifetimes[i]
        alive = [k for k in alive if lifetimes[k].last >= mine.first]
        for k in alive:
            start = max(offsets[i], offsets[k])
            if start < min(offsets[i] + mine.size, offsets[k] + lifetimes[k].size):
                return (k, i)
        alive.append(i)
    return None


def _orders(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    """Orders to place values in, each of them total."""
    peak = _peak_step(lifetimes)

    def spans_peak(t: Lifetime) -> bool:
        return t.first <= peak <= t.last

    keys: list[Callable[[Lifetime], tuple[int, ...]]] = [
        lambda t: (-t.size, t.first, -t.last),
        lambda t: (-t.size * (t.last - t.first + 1), t.first),
        lambda t: (-(t.last - t.first), -t.size, t.first),
        lambda t: (not spans_peak(t), -t.size, t.first),
        lambda t: (not spans_peak(t), t.first - t.last, -t.size),
        lambda t: (t.first, -t.size, -t.last),
        lambda t: (abs(t.first - peak) if t.first > peak else peak - t.last, -t.size, t.first),
    ]
    if len(lifetimes) > MANY:
        keys = keys[:2]
    return [sorted(range(len(lifetimes)), key=lambda i: (*key(lifetimes[i]), i)) for key in keys]


def _peak_step(lifetimes: Sequence[Lifetime]) -> int:
    """A step at which the most bytes are alive."""
    changes: dict[int, int] = {}
    for t in lifetimes:
        changes[t.first] = changes.get(t.first, 0) + t.size
        changes[t.last + 1] = changes.get(t.last + 1, 0) - t.size
    most, live, peak = -1, 0, 0
    for step in sorted(changes):
        live += changes[step]
        if live > most:
            most, peak = live, step
    return peak


def _place(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> list[int]:
    """Offsets when values are placed in this order."""
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []
    for i in order:
        t = lifetimes[i]
        if not t.size:
            continue
        first, last, size = t.first, t.last, t.size
        best, room = -1, -1
        end = 0
        for start, stop, from_step, to_step in placed:
            if to_step < first or from_step > last:
                continue
            gap = start - end
            if gap >= size and (best < 0 or gap < room):
                best, room = end, gap
            if stop > end:
                end = stop
        offsets[i] = best if best >= 0 else end
        insort(placed, (offsets[i], offsets[i] + size, first, last))
    return offsets
