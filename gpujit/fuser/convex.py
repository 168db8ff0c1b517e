"""Which vertices of a graph without circles can be reached from which, kept up to date while vertices merge.

Vertices are numbered; sets of them are the bits of a Python integer, so that the question "does a path leave these two
and come back" takes one operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx


class Reach:
    """Made of a graph whose vertices are numbered 0, 1, .. and whose edges lead from one to a later one."""

    def __init__(self, graph: nx.DiGraph[int]) -> None:
        count = graph.number_of_nodes()
        self._own = [1 << v for v in range(count)]
        self._after = [0] * count
        self._before = [0] * count
        # A merged vertex is known by one of its numbers; the others lead to it.
        self._name = list(range(count))
        for a in range(count - 1, -1, -1):
            for b in graph.successors(a):
                self._after[a] |= self._after[b] | 1 << b
        for a in range(count):
            for b in graph.successors(a):
                self._before[b] |= self._before[a] | 1 << a

    def name(self, vertex: int) -> int:
        """The number that a vertex, or what it was merged into, has now."""
        while self._name[vertex] != vertex:
            vertex = self._name[vertex]
        return vertex

    def is_convex(self, a: int, b: int) -> bool:
        """Whether no path leads from one to the other through something else."""
        a, b = self.name(a), self.name(b)
        between = (self._after[a] & self._before[b]) | (self._after[b] & self._before[a])
        return not between & ~(self._own[a] | self._own[b])

    def is_independent(self, a: int, b: int) -> bool:
        """Whether no path leads from one to the other."""
        a, b = self.name(a), self.name(b)
        return not self._after[a] & self._own[b] and not self._after[b] & self._own[a]

    def merge(self, a: int, b: int) -> int:
        """Make two vertices one; they must be convex. Returns its number, that of ``b``."""
        a, b = self.name(a), self.name(b)
        own = self._own[a] | self._own[b]
        after = (self._after[a] | self._after[b]) & ~own
        before = (self._before[a] | self._before[b]) & ~own
        new_before, new_after = before, after
        # What comes before the first of two that depend on each other knew already of all that comes after both.
        if self._after[a] & self._own[b]:
            new_before &= ~self._before[a]
            new_after &= ~self._after[b]
        elif self._after[b] & self._own[a]:
            new_before &= ~self._before[b]
            new_after &= ~self._after[a]
        self._name[a] = b
        self._own[b], self._after[b], self._before[b] = own, after, before
        for vertex in self._members(new_before):
            self._after[vertex] |= after | own
        for vertex in self._members(new_after):
            self._before[vertex] |= before | own
        return b

    def _members(self, bits: int) -> Iterator[int]:
        """Vertices among the bits, merged ones once."""
        while bits:
            vertex = self.name((bits & -bits).bit_length() - 1)
            bits &= ~self._own[vertex]
            yield vertex
