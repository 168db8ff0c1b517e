"""Which values may share memory, who writes it, and what may therefore be moved, merged or removed.

``AliasAnalysis`` is built once for a graph and errs on the safe side: what it denies cannot happen, what it grants may.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.passes.analysis.effects import acts, has_effect, inner_nodes, is_deterministic, is_pure, may_raise
from gpujit.passes.analysis.points_to import Locations, PointsTo

__all__ = ["AliasAnalysis", "has_effect", "is_deterministic", "is_pure", "may_raise"]

# A node that writes: its position, and what it writes.
_Writer = tuple[int, Node, Locations]


class AliasAnalysis:
    """Answers about a graph as it was when this was built.

    Nodes added since are taken in when they are asked about; nodes destroyed since count no more. A pass that replaces
    a value by another one says so with ``replaced``. Other changes (moved nodes, other inputs) need a new analysis.

    Args:
        graph: the graph; subgraphs held by its nodes are looked into.
        frozen: inputs share no memory with attributes and constants, so writing an input leaves those alone.
    """

    def __init__(self, graph: Graph, frozen: bool = False) -> None:
        self.graph = graph
        self._memory = PointsTo(graph, frozen)
        # Locations that became one when values were replaced; groups do not overlap.
        self._merged: list[Locations] = []
        # New memory that a node's results took the place of.
        self._inherited: dict[Node, Locations] = {}
        self._first: dict[Node, int] = {}
        self._last: dict[Node, int] = {}
        self._owner: dict[Graph, Node] = {}
        self._number(graph.block, 0)
        self._reads: dict[Node, Locations] = {}
        self._writers: list[_Writer] | None = None
        self._visible: Locations | None = None

    # ---------------------------------------------------------------------------------------------- memory

    def may_alias(self, a: Value, b: Value) -> bool:
        """Whether two values may share memory; of containers, anything inside counts as well."""
        return bool(self._all_of(a) & self._all_of(b))

    def has_memory(self, value: Value) -> bool:
        """Whether the value is memory at all: ints, strings and None are not."""
        return bool(self._memory.of(value))

    def is_new(self, value: Value) -> bool:
        """Whether the node that defines the value made its memory, always: it is no view and no other value's."""
        mask = self._memory.of(value)
        own = self._memory.made_by(value.node) | self._inherited.get(value.node, 0)
        return bool(mask) and not self._widened(mask) & ~own

    def points_to_same(self, a: Value, b: Value) -> bool:
        """Whether two values may be the same memory and no other."""
        return self._own(a) == self._own(b)

    def is_fresh(self, value: Value) -> bool:
        """Whether the value is memory made in this graph and nothing else: no input, attribute or constant, nor
        anything that an unknown operator returned. What it contains is not asked about."""
        mask = self._own(value)
        return bool(mask) and not mask & self._memory.outside

    def memory(self, value: Value) -> Locations:
        """The value's memory and that of all it contains, as a set to intersect with others of this analysis."""
        return self._all_of(value)

    def memory_outside(self) -> Locations:
        """What was there before the graph ran, or is known to somebody else when it returns."""
        return self._reachable()

    def memory_written(self, node: Node) -> Locations:
        """What the node, inner ones included, may write."""
        return self._all_writes(node)

    def makes_escaping(self, node: Node) -> bool:
        """Whether memory that the node makes each time it runs may be reached from outside."""
        made = self._memory.made_by(node) & ~self._memory.tuples
        return bool(self._widened(made) & self._reachable())

    def escapes(self, value: Value) -> bool:
        """Whether the value's own memory may be reached from outside: from the graph's inputs and outputs, attributes,
        constants, or what an unknown operator was given. Of a tuple, no memory itself, what it holds counts."""
        mask = self._own(value)
        if mask & self._memory.tuples:
            mask = self._all_of(value) & ~self._memory.tuples
        return bool(mask & self._reachable())

    def is_written(self, value: Value) -> bool:
        """Whether any node may write memory of the value or of what it contains."""
        writers = self._all_writers()
        if not writers:
            return False
        mask = self._all_of(value)
        return bool(mask) and _is_hit(writers, mask)

    def writers(self, value: Value) -> list[Node]:
        """All nodes, inner ones included, that may write memory of the value or of what it contains, in order."""
        mask = self._all_of(value)
        if not mask:
            return []
        return [node for _, node, written in self._all_writers() if written & mask and node.block is not None]

    def writes(self, node: Node) -> bool:
        """Whether the node, or one inside it, may write memory that was there before or is seen after it."""
        return bool(self._all_writes(node))

    def may_write(self, node: Node, value: Value) -> bool:
        """Whether the node, or one inside it, may write memory of the value or of what it contains."""
        return bool(self._all_writes(node) & self._all_of(value))

    def is_written_between(self, value: Value, start: Node, end: Node) -> bool:
        """Whether memory of the value may be written after ``start`` ran and before ``end`` does.

        ``start`` comes first in the graph. Around a loop that holds only one of the two, all runs count.
        """
        mask = self._all_of(value)
        writers = self._all_writers()
        if not mask or not writers:
            return False
        low, high = self._end(start), self._begin(end)
        around_start, around_end = self._around(start), self._around(end)
        for loop in around_start:
            if loop.kind == "prim::Loop" and loop not in around_end:
                low = min(low, self._begin(loop))
        for loop in around_end:
            if loop.kind == "prim::Loop" and loop not in around_start and self._begin(loop) > self._begin(start):
                high = max(high, self._end(loop))
        first = bisect_right(writers, low, key=_position)
        last = bisect_left(writers, high, key=_position)
        return _is_hit(writers[first:last], mask, start, end)

    def is_written_after(self, value: Value, start: Node) -> bool:
        """Whether memory of the value may be written once ``start`` has run, until the graph returns."""
        mask = self._all_of(value)
        writers = self._all_writers()
        if not mask or not writers:
            return False
        low = self._end(start)
        for loop in self._around(start):
            if loop.kind == "prim::Loop":
                low = min(low, self._begin(loop))
        first = bisect_right(writers, low, key=_position)
        return _is_hit(writers[first:], mask, start)

    # ---------------------------------------------------------------------------------------------- movement

    def can_move_before(self, node: Node, other: Node) -> bool:
        """Whether the graph means the same with ``node`` just before ``other``, which comes before it: in its block,
        or in one around it (then the node is assumed to be run there once, and no less often)."""
        if node is other:
            return False
        if node.next is other:
            return True
        top = self._ancestor_in(node, other.block)
        if top is None or self._begin(other) > self._begin(node):
            return False
        limit = self._begin(other)
        inside = set(inner_nodes(node))
        for reader in (node, *inside):
            for value in reader.inputs:
                if value.node not in inside and value.node is not node and not self._is_before(value, other, limit):
                    return False
        return not self._conflicts(node, self._span(other, top), without=node)

    def can_move_after(self, node: Node, other: Node) -> bool:
        """Whether the graph means the same with ``node`` just after ``other``, which follows it in the same block."""
        if node is other or node.block is not other.block or self._begin(node) > self._begin(other):
            return False
        crossed = self._span(node, other)[1:]
        readers = {use.node for value in node.outputs for use in value.uses}
        for each in crossed:
            if readers and (each in readers or any(inner in readers for inner in _with_returns(each))):
                return False
        return not self._conflicts(node, crossed, without=node)

    def conflict(self, a: Node, b: Node) -> bool:
        """Whether the order of two nodes that do not read each other's results matters."""
        return self._conflicts(a, (b,), without=a)

    # ---------------------------------------------------------------------------------------------- changes

    def replaced(self, old: Value, new: Value) -> None:
        """Take note that all readers of ``old`` now read ``new``: their memory counts as one from now on."""
        mask = self._memory.of(old) | self._memory.of(new)
        if self.is_new(old) and self.is_new(new):
            self._inherited[new.node] = self._widened(mask)
        if mask & (mask - 1):
            for group in [g for g in self._merged if g & mask]:
                mask |= group
                self._merged.remove(group)
            self._merged.append(mask)
            self._visible = None
            self._reads.clear()
        if new.node not in self._first and old.node in self._first:
            self._place(new.node, old.node)

    def added(self, node: Node, like: Node) -> None:
        """Take in a new node, which stands where ``like`` stood when the analysis was built."""
        self._place(node, like)
        for value in node.outputs:
            self._memory.of(value)
        if node in self._memory.writes or any(n in self._memory.writes for n in inner_nodes(node)):
            self._writers = None

    # ---------------------------------------------------------------------------------------------- inside

    def _widened(self, mask: Locations) -> Locations:
        for group in self._merged:
            if mask & group:
                mask |= group
        return mask

    def _own(self, value: Value) -> Locations:
        mask = self._memory.of(value)
        return self._widened(mask) if self._merged and mask else mask

    def _all_of(self, value: Value) -> Locations:
        mask = self._memory.of(value)
        if not mask & self._memory.containers:
            return self._widened(mask) if self._merged and mask else mask
        if not self._merged:
            return self._memory.reach(mask)
        while True:
            wider = self._widened(self._memory.reach(mask))
            if wider == mask:
                return mask
            mask = wider

    def _reachable(self) -> Locations:
        if self._visible is None:
            memory = self._memory
            mask = memory.outside | memory.leaked
            for value in self.graph.outputs:
                mask |= self._all_of(value)
            for value in self.graph.inputs:
                mask |= self._all_of(value)
            self._visible = self._widened(memory.reach(mask))
        return self._visible

    def _written_by(self, node: Node) -> Locations:
        """What one node writes itself."""
        mask = self._memory.writes.get(node, 0)
        return self._widened(mask) if self._merged and mask else mask

    def _all_writes(self, node: Node) -> Locations:
        if node not in self._first:
            # New: its memory has to be met first.
            for value in node.outputs:
                self._memory.of(value)
        mask = self._written_by(node)
        if node.blocks or SUBGRAPH in node.attributes:
            for inner in inner_nodes(node):
                mask |= self._written_by(inner)
        return mask

    def _all_reads(self, node: Node) -> Locations:
        found = self._reads.get(node)
        if found is None:
            found = 0
            for each in (node, *inner_nodes(node)):
                for value in each.inputs:
                    found |= self._all_of(value)
                for block in each.blocks:
                    for value in block.returns:
                        found |= self._all_of(value)
            self._reads[node] = found
        return found

    def _conflicts(self, node: Node, crossed: Sequence[Node], without: Node) -> bool:
        writes = self._all_writes(node)
        touched = self._all_reads(node) | writes
        for value in node.outputs:
            touched |= self._all_of(value)
        effect = acts(node) or any(map(acts, inner_nodes(node)))
        for top in crossed:
            parts = [top, *inner_nodes(top)]
            if without in parts:
                kept = {without, *inner_nodes(without)}
                parts = [p for p in parts if p not in kept]
            for each in parts:
                written = self._written_by(each)
                if written & touched:
                    return True
                if writes:
                    reads = written
                    for value in (*each.inputs, *(v for b in each.blocks for v in b.returns)):
                        reads |= self._all_of(value)
                    if writes & reads:
                        return True
                if effect and acts(each):
                    return True
        return False

    def _all_writers(self) -> list[_Writer]:
        """The nodes that write something, in order; some may have been destroyed since."""
        if self._writers is None:
            found = ((self._begin(node), node, mask) for node, mask in self._memory.writes.items() if mask)
            self._writers = sorted(found, key=_position)
        return self._writers

    def _number(self, block: Block, count: int) -> int:
        self._first[block.param_node] = self._last[block.param_node] = count
        count += 1
        for node in block.nodes:
            self._first[node] = count
            count += 1
            for inner in node.blocks:
                count = self._number(inner, count)
            held = node.attributes.get(SUBGRAPH)
            if isinstance(held, Graph):
                self._owner[held] = node
                count = self._number(held.block, count)
            self._last[node] = count - 1
        self._first[block.return_node] = self._last[block.return_node] = count
        return count + 1

    def _place(self, node: Node, like: Node) -> None:
        self._first[node] = self._begin(like)
        self._last[node] = self._end(like)
        for inner in inner_nodes(node):
            self._first[inner], self._last[inner] = self._first[node], self._last[node]

    def _begin(self, node: Node) -> int:
        found = self._first.get(node)
        if found is None:
            # New and not announced: it stands where the next known node does.
            following = node.next
            while following is not None and following not in self._first:
                following = following.next
            found = self._first[node] = self._first[following] if following is not None else 0
            self._last.setdefault(node, found)
        return found

    def _end(self, node: Node) -> int:
        self._begin(node)
        return self._last[node]

    def _around(self, node: Node) -> list[Node]:
        """The nodes whose blocks or subgraphs hold the node, innermost first."""
        found: list[Node] = []
        block = node.block
        while block is not None:
            owner = block.owner if block.owner is not None else self._owner.get(block.graph)
            if owner is None:
                break
            found.append(owner)
            block = owner.block
        return found

    def _ancestor_in(self, node: Node, block: Block | None) -> Node | None:
        """The node itself or the one around it that lies in ``block``."""
        if node.block is block:
            return node
        return next((owner for owner in self._around(node) if owner.block is block), None)

    @staticmethod
    def _span(first: Node, last: Node) -> list[Node]:
        found = [first]
        while found[-1] is not last:
            following = found[-1].next
            if following is None or following is first:
                break
            found.append(following)
        return found

    def _is_before(self, value: Value, other: Node, limit: int) -> bool:
        """Whether ``value`` is defined when ``other`` runs."""
        block = value.node.block
        if self._begin(value.node) > limit or value.node is other:
            return False
        around = other.block
        while around is not None and around is not block:
            around = around.owner.block if around.owner is not None else None
        return around is block


def _position(item: _Writer) -> int:
    return item[0]


def _is_hit(writers: Sequence[_Writer], mask: Locations, *but: Node) -> bool:
    """Whether one of the writers writes into ``mask``, which holds merged groups as a whole."""
    return any(written & mask and node.block is not None and node not in but for _, node, written in writers)


def _with_returns(node: Node) -> list[Node]:
    """Inner nodes of a node, the Return nodes of its blocks included."""
    found: list[Node] = []
    stack = list(node.blocks)
    while stack:
        block = stack.pop()
        for inner in block.nodes:
            found.append(inner)
            stack += inner.blocks
        found.append(block.return_node)
    return found
