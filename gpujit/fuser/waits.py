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
from gpujit.ir.graph import Node
from gpujit.ir.scalar import HEAVY_COST, ROW_OPS, walk

# Rows of fewer elements do not hide the waits of two normalisations, and of one with a function of many instructions.
SHORT_FOR_ROWS, SHORT_FOR_HEAVY = 256, 512
# Shorter ones have lanes across rows, where a reduction waits for nothing.
ACROSS = 12
# With more elements than a core's own caches hold, what fusing saves of memory traffic is more, but for rows of FEW
# elements.
CACHED, FEW = 1 << 18, 64


def why_waits(a: Sequence[Node], b: Sequence[Node], fact_of: Callable[[Node], Fact]) -> str | None:
    """Why two units of which one reads the other are no kernel for a core; None when they may be one."""
    facts = [[fact_of(n) for n in unit] for unit in (a, b)]
    (length, points), normalises = _rows([*facts[0], *facts[1]]), [_normalises(each) for each in facts]
    if not any(normalises) or length >= SHORT_FOR_HEAVY or (length > FEW and points > CACHED):
        return None
    if all(normalises):
        if ACROSS <= length < SHORT_FOR_ROWS:
            return f"rows of {length} elements are too short to hide that one reduction waits for another"
        return None
    (other,) = (each for each, is_row in zip(facts, normalises, strict=True) if not is_row)
    if any(f.cost >= HEAVY_COST and f.points * 2 >= points for f in other if not f.reduces):
        return f"rows of {length} elements are too short to hide that functions wait for reductions"
    return None


def _normalises(facts: Iterable[Fact]) -> bool:
    """Whether a unit goes over rows that lie in memory more than once before it has results."""
    return sum(_reductions(f) for f in facts) > 1


def _reductions(fact: Fact) -> int:
    if not fact.reduces or fact.move is not None or len(fact.shape) - 1 not in fact.axes:
        return 0
    return sum(x.op in ROW_OPS for x in walk(fact.template.results))


def _rows(facts: Iterable[Fact]) -> tuple[int, int]:
    """Elements of the shortest rows, and of all of them."""
    return min(((prod(f.shape[d] for d in f.axes), f.points) for f in facts if _reductions(f)), default=(0, 0))
