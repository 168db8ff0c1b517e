"""Short rows on a processor's core: what is worth fusing there, and what waits.

A kernel that normalises rows takes a row in runs that follow from each other: its sum, that of its squares, its
results. A core works on as many rows at a time as its window of instructions holds; the more is computed of a row, the
fewer they are, and a short row's few vectors don't hide that each of these steps waits for the one before. Two kernels
then take less than one: measured on 64 elements a row, layer norm and gelu together took twice as long as each by
itself. Longer rows hide it, and a GPU has other warps to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from gpujit.fuser.facts import Fact
from gpujit.fuser.tensors import elements_of, shape_of
from gpujit.ir.graph import Node, Value
from gpujit.ir.scalar import HEAVY_COST, ROW_OPS, walk

# Rows of fewer elements do not hide the waits of two normalisations, and of one with a function of many instructions.
SHORT_FOR_ROWS, SHORT_FOR_HEAVY = 256, 1024
# Shorter ones have lanes across rows, where a reduction waits for nothing.
ACROSS = 12
# With more elements than a core's own caches hold, what fusing saves of memory traffic is more, but for rows of FEW
# elements.
CACHED, FEW = 1 << 18, 64


# Rows of so many elements hide what is computed once for each; so many rows at least are worth a kernel of their own.
LONG, MANY = 512, 16
# So many rows at least are read in squares by a kernel that reads across rows and has none of its own.
SQUARE = 8


def why_waits(
    a: Sequence[Node], b: Sequence[Node], fact_of: Callable[[Node], Fact], is_across: Callable[[Node], bool]
) -> str | None:
    """Why two units of which one reads the other are no kernel for a core; None when they may be one.

    ``is_across`` says whether a node reads something along another dim than the last one.
    """
    facts = [[fact_of(n) for n in unit] for unit in (a, b)]
    length, points = _rows([*facts[0], *facts[1]])
    counts = [sum(map(_reductions, each)) for each in facts]
    for unit, each, count, other in zip((a, b), facts, counts, reversed(counts), strict=True):
        # What joins or cuts tensors is masked, which squares are not.
        is_plain = not count and all(f.move is None or f.move.is_in_place for f in each)
        if other and is_plain and points >= SQUARE * length and any(map(is_across, unit)):
            return "a row would be read across memory, which otherwise is read in squares"
    if max(counts) < 2 or length >= SHORT_FOR_HEAVY or (length > FEW and points > CACHED):
        return None
    if min(counts) > 1:
        if ACROSS <= length < SHORT_FOR_ROWS:
            return f"rows of {length} elements are too short to hide that one reduction waits for another"
        return None
    around = facts[counts.index(min(counts))]
    if any(f.cost >= HEAVY_COST and f.points * 2 >= points for f in around if not f.reduces):
        return f"rows of {length} elements are too short to hide that functions wait for reductions"
    return None


def why_scalar(
    a: Sequence[Node], value: Value, seen: Value, reader: Fact, fact_of: Callable[[Node], Fact]
) -> str | None:
    """Why a value is better made by a kernel of its own than once for each row of a reader that spreads it over its
    last dims; None when it is not, or is not spread so. ``seen`` is the value as the reader sees it, through views."""
    length = 1
    for here, there in zip(reversed(shape_of(seen)), reversed(shape_of(reader.node.outputs[0])), strict=False):
        if here != 1:
            break
        length *= there
    if not 1 < length < LONG or reader.move is not None or reader.reduces or elements_of(value) < MANY:
        return None
    facts = [fact_of(n) for n in a]
    if any(f.reduces for f in facts) or all(f.cost < HEAVY_COST for f in facts):
        return None
    return f"{value!r} would be computed number by number, once for each row of {length}"


def is_turned(view: Fact) -> bool:
    """Whether neighbours in a view's last dim lie apart in what it looks at, and others are neighbours there."""
    for geometry in view.view[1] if view.view is not None else ():
        if geometry.is_reshape or not geometry.moving():
            continue
        last = geometry.moving()[-1]
        inner = max((k for k, n in enumerate(geometry.operand) if n > 1), default=0)
        if any(last) and not last[inner] and any(row[inner] for row in geometry.moving()):
            return True
    return False


def _reductions(fact: Fact) -> int:
    """How many reductions over rows that lie in memory a node needs, one after the other or side by side."""
    if not fact.reduces or fact.move is not None or len(fact.shape) - 1 not in fact.axes:
        return 0
    return sum(x.op in ROW_OPS for x in walk(fact.template.results))


def _rows(facts: Iterable[Fact]) -> tuple[int, int]:
    """Elements of the shortest rows, and of all of them."""
    return min(((prod(f.shape[d] for d in f.axes), f.points) for f in facts if _reductions(f)), default=(0, 0))
