"""Which code a template runs: the quickest, or one that need not be compiled and takes little longer.

What is chosen from gives the same numbers, to the last bit: results must not depend on which kernels were at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from gpujit.kernels.templates.bound import Code

# How many times as long as the quickest code that may take which is at hand, and which serves more sizes.
LONGEST, LONGEST_NEW = 1.25, 1.15


# What a step takes beside its work, in multiplications.
STEP = 30_000


class Way(NamedTuple):
    """Code, what its work takes in multiplications, and for how many sizes it serves about as well."""

    cost: float
    code: Code
    serves: int = 0


# What chooses: given the quickest way, and all others that give the same numbers, if they are asked for.
Choose = Callable[[Way, Callable[[], Sequence[Way]]], Code]


def quickest(best: Way, others: Callable[[], Sequence[Way]]) -> Code:
    """The quickest code."""
    return best.code


class Thrifty:
    """Prefers code that is at hand, or that it chose before; of what must be compiled, code that serves more sizes."""

    def __init__(self) -> None:
        # Most of it is compiled later.
        self._chosen: set[Hashable] = set()
        # Whether there was quicker code than some that it chose.
        self.has_settled = False

    def __call__(self, best: Way, others: Callable[[], Sequence[Way]]) -> Code:
        found, taken = best, best.cost + STEP
        if not self._is_there(best.code):
            ways = sorted((best, *others()), key=lambda way: way.cost)
            near = [way for way in ways if way.cost + STEP <= LONGEST * taken]
            there = next((way for way in near if self._is_there(way.code)), None)
            new = [way for way in near if way.cost + STEP <= LONGEST_NEW * taken]
            found = there or max(new, key=lambda way: way.serves)
            self.has_settled |= found is not best
        self._chosen.add(found.code.key)
        return found.code

    def _is_there(self, code: Code) -> bool:
        return code.key in self._chosen or code.is_at_hand()


def share(tasks: int, threads: int) -> float:
    """How much more than its share of equal tasks the busiest of some threads does: 1 for an equal one."""
    return -(-tasks // threads) * threads / tasks
