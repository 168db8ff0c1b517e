"""One level of a layered drawing: items in rows, an order within rows that crosses few lines, and places in x.

Items are numbers from 0. Lines go from one row to the next one; longer ones have been cut at items that stand for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

# Sweeps down and up through the rows: to order them, and to place them.
ORDER_SWEEPS = 6
PLACE_SWEEPS = 6
# Above so many lines, fewer sweeps.
MANY = 20_000


@dataclass(slots=True)
class Line:
    """From item ``upper`` to item ``lower`` in the next row, at these distances from their left sides."""

    upper: int
    lower: int
    start: float
    end: float
    weight: float = 1.0


@dataclass(slots=True)
class Rows:
    """Items by row, from left to right; their widths, the room to leave between them; and the lines."""

    rows: list[list[int]]
    widths: list[float]
    gaps: list[float]
    lines: list[Line]
    x: list[float] = field(default_factory=list)


def ranks(count: int, links: Sequence[tuple[int, int]], top: Sequence[bool]) -> list[int]:
    """The row of each item: below all it is linked from, and no further up from its first reader than needed.

    Args:
        links: from one item to another; without cycles.
        top: whether an item without links to it stays in the first row.
    """
    below: list[list[int]] = [[] for _ in range(count)]
    above: list[list[int]] = [[] for _ in range(count)]
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    missing = [len(a) for a in above]
    found = [0] * count
    ready = [i for i in range(count) if not missing[i]]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        for j in below[i]:
            found[j] = max(found[j], found[i] + 1)
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    if len(order) < count:
        raise ValueError("what is drawn in layers has no cycles")
    for i in order:
        if not above[i] and below[i] and not top[i]:
            found[i] = max(min(found[j] for j in below[i]) - 1, 0)
    return found


def arrange(level: Rows) -> None:
    """Order the rows and set ``x``, the left side of each item; the leftmost is at 0."""
    size = len(level.widths)
    if not size:
        return
    ups: list[list[Line]] = [[] for _ in range(size)]
    downs: list[list[Line]] = [[] for _ in range(size)]
    for line in level.lines:
        ups[line.lower].append(line)
        downs[line.upper].append(line)
    sweeps = ORDER_SWEEPS if len(level.lines) < MANY else 2
    _order(level, ups, downs, sweeps)
    x = [0.0] * size
    for row in level.rows:
        _pack(row, level, x)
    for sweep in range(PLACE_SWEEPS if len(level.lines) < MANY else 3):
        is_down = sweep % 2 == 0
        for row in level.rows if is_down else reversed(level.rows):
            _settle(row, level, x, ups if is_down else downs, downs if is_down else ups, is_down)
    left = min(x)
    level.x = [v - left for v in x]


def _order(level: Rows, ups: list[list[Line]], downs: list[list[Line]], sweeps: int) -> None:
    """Sort rows by the mean place of what their items are linked with, and keep the order with the fewest crossings."""
    rows = level.rows
    if all(len(row) < 2 for row in rows):
        return
    x = [0.0] * len(level.widths)
    for row in rows:
        _pack(row, level, x)
    best = [list(row) for row in rows]
    least = _crossings(rows, downs)
    for sweep in range(sweeps):
        if not least:
            break
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            if len(row) < 2:
                _pack(row, level, x)
                continue
            keys = {}
            for i in row:
                lines = ups[i] if is_down else downs[i]
                if not lines:
                    keys[i] = x[i] + level.widths[i] / 2
                elif is_down:
                    keys[i] = sum([x[n.upper] + n.start for n in lines]) / len(lines)
                else:
                    keys[i] = sum([x[n.lower] + n.end for n in lines]) / len(lines)
            row.sort(key=keys.__getitem__)
            _pack(row, level, x)
        count = _crossings(rows, downs)
        if count < least:
            least, best = count, [list(row) for row in rows]
    level.rows = best


def _crossings(rows: Sequence[Sequence[int]], downs: Sequence[Sequence[Line]]) -> int:
    """How many pairs of lines cross."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {i: k for k, i in enumerate(lower)}
        ends: list[int] = []
        for i in upper:
            found = downs[i]
            if len(found) == 1:
                ends.append(place[found[0].lower])
            elif found:
                ends += [place[n.lower] for n in sorted(found, key=lambda n: (n.start, place[n.lower]))]
        total += _inversions(ends, len(lower))
    return total


def _inversions(ends: Sequence[int], size: int) -> int:
    """How many pairs stand in the wrong order, counted with a tree of sums (Fenwick)."""
    if all(a <= b for a, b in pairwise(ends)):
        return 0
    tree = [0] * (size + 1)
    total = 0
    for seen, end in enumerate(ends):
        k, before = end + 1, 0
        while k:
            before += tree[k]
            k -= k & -k
        total += seen - before
        k = end + 1
        while k <= size:
            tree[k] += 1
            k += k & -k
    return total


def _pack(row: Sequence[int], level: Rows, x: list[float]) -> None:
    """Put a row's items side by side, its middle at 0."""
    at = 0.0
    for i in row:
        x[i] = at
        at += level.widths[i] + level.gaps[i]
    if row:
        half = (at - level.gaps[row[-1]]) / 2
        for i in row:
            x[i] -= half


def _settle(
    row: Sequence[int],
    level: Rows,
    x: list[float],
    lines: Sequence[Sequence[Line]],
    others: Sequence[Sequence[Line]],
    is_down: bool,
) -> None:
    """Move a row's items as near as can be to where their lines are straight, none over another.

    The least squares under an order, by pooling neighbours that would overlap (isotonic regression).
    """
    wanted: list[tuple[float, float]] = []
    offset = 0.0
    for i in row:
        total = weight = 0.0
        for n in lines[i]:
            other = x[n.upper] + n.start - n.end if is_down else x[n.lower] + n.end - n.start
            total += other * n.weight
            weight += n.weight
        if not weight:
            # Nothing on this side: what is on the other one pulls a little.
            weight = 0.1
            total = x[i] * weight
            for n in others[i]:
                other = x[n.lower] + n.end - n.start if is_down else x[n.upper] + n.start - n.end
                total += other * 0.1
                weight += 0.1
        wanted.append((total / weight - offset, weight))
        offset += level.widths[i] + level.gaps[i]
    means: list[float] = []
    weights: list[float] = []
    counts: list[int] = []
    for value, weight in wanted:
        count = 1
        while means and means[-1] > value:
            old, much = means.pop(), weights.pop()
            value = (value * weight + old * much) / (weight + much)
            weight += much
            count += counts.pop()
        means.append(value)
        weights.append(weight)
        counts.append(count)
    k, offset = 0, 0.0
    for value, count in zip(means, counts, strict=True):
        for _ in range(count):
            i = row[k]
            x[i] = value + offset
            offset += level.widths[i] + level.gaps[i]
            k += 1
