"""Which nodes of a block become one kernel: groups grow along the edges that save the most memory traffic.

Units are nodes that compute; views and lists between them belong to whoever reads them. Two units that share a tensor
merge when the result is convex (no path leaves it and comes back), small enough, lies in one iteration space, and does
not compute anything dear again and again. Everything follows from the graph; nothing is measured here.

Source: the greedy merging follows what XLA and Inductor describe (producers into consumers, largest savings first).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import networkx as nx

from gpujit.fuser import cost
from gpujit.fuser.arguments import NotKnown, is_tensor, shape_of
from gpujit.fuser.geometry import geometry_of
from gpujit.fuser.lower import Lowered, NotFused, lower, plan, recordable, reduces
from gpujit.fuser.moves import MOVES
from gpujit.ir.graph import Block, Node, Value
from gpujit.passes.alias import AliasAnalysis
from gpujit.passes.effects import entry_of, is_pure


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that run as one kernel, in order, with the program they make. ``outputs`` are results that others read."""

    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    lowered: Lowered


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node, or the edge into it, was not fused."""

    node: Node
    reason: str


@dataclass
class Partition:
    """Groups in the order they can run in, and every refusal with its reason."""

    groups: list[Group] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(eq=False)
class _Unit:
    """Nodes that are to be one kernel."""

    nodes: list[Node]
    number: int

    def __hash__(self) -> int:
        return id(self)


def partition(block: Block, alias: AliasAnalysis, min_nodes: int = 1) -> Partition:
    """The groups of one block, inner blocks left alone.

    Args:
        alias: of the block's graph; what is written anywhere is not fused.
        min_nodes: groups of fewer computing nodes are dissolved.
    """
    return _Partitioner(block, alias, min_nodes).run()


class _Partitioner:
    def __init__(self, block: Block, alias: AliasAnalysis, min_nodes: int) -> None:
        self.block, self.alias, self.min_nodes = block, alias, min_nodes
        self.result = Partition()
        self.position = {node: i for i, node in enumerate(block.nodes)}
        self.unit_of: dict[Node, _Unit] = {}
        self.views: dict[Node, bool] = {}

    def run(self) -> Partition:
        for node in self.block.nodes:
            reason = self.why_not(node)
            if reason is None:
                self.unit_of[node] = _Unit([node], self.position[node])
            elif reason:
                self.result.refusals.append(Refusal(node, reason))
        self.build()
        for _, producer, consumer in self.edges():
            a, b = self.unit_of[producer], self.unit_of[consumer]
            if a is not b:
                reason = self.why_not_merged(a, b, producer, consumer)
                if reason is None:
                    self.merge(a, b)
                else:
                    self.result.refusals.append(Refusal(consumer, f"not joined with {producer.kind}: {reason}"))
        for unit in sorted(set(self.unit_of.values()), key=lambda u: u.number):
            self.finish(unit)
        return self.result

    # Nodes

    def why_not(self, node: Node) -> str | None:
        """Why a node cannot be in a kernel; None when it can, '' when it is no operator that computes."""
        if node.kind == "prim::Constant" or node.blocks:
            return ""
        op = entry_of(node)
        if op is None or self.is_view(node):
            return ""
        functional = op.derived_from or op
        if not any(map(is_tensor, node.outputs)):
            return ""
        if functional.kind != "pointwise" and functional.full_name not in MOVES and not reduces(node):
            return f"{op.full_name} runs as a library operator"
        if any(a.is_write for a in op.schema.arguments):
            return f"{op.full_name} writes into its argument"
        if not is_pure(node):
            return f"{op.full_name} has an effect, or gives other numbers each time"
        for value in (*node.inputs, *node.outputs):
            if is_tensor(value) and self.alias.is_written(value):
                return f"{value!r} is written"
        try:
            for value in (*node.inputs, *node.outputs):
                if is_tensor(value):
                    shape_of(value)
            recordable(node)
        except (NotKnown, NotFused) as fault:
            return str(fault)
        return None

    def is_view(self, node: Node) -> bool:
        """Whether a node is a view whose map of places is known."""
        found = self.views.get(node)
        if found is None:
            found = False
            op = entry_of(node)
            if op is not None and op.kind == "view":
                try:
                    geometry_of(node)
                    found = not any(self.alias.is_written(v) for v in (*node.inputs[:1], *node.outputs))
                except NotKnown:
                    pass
            self.views[node] = found
        return found

    def is_between(self, node: Node) -> bool:
        """Whether a node belongs to whoever reads it: views, and lists of operands."""
        return (node.kind == "prim::ListConstruct" and any(map(is_tensor, node.inputs))) or self.is_view(node)

    def sources(self, node: Node) -> Iterator[tuple[Value, list[Node]]]:
        """Each tensor a node reads, seen through what is between: the value, and the nodes between."""
        stack = [(v, []) for v in node.inputs]
        while stack:
            value, path = stack.pop()
            inner = value.node
            if inner.block is self.block and self.is_between(inner):
                below = inner.inputs if inner.kind == "prim::ListConstruct" else inner.inputs[:1]
                stack += [(v, [*path, inner]) for v in below]
            elif is_tensor(value):
                yield value, path

    def build(self) -> None:
        """The graph of units and of the nodes that stay what they are."""
        graph: nx.DiGraph[Any] = nx.DiGraph()
        self.graph = graph
        for node in self.block.nodes:
            graph.add_node(self.vertex(node))
        for node in self.block.nodes:
            for inner in _with_inner(node):
                for value in inner.inputs:
                    source = value.node
                    if source.block is self.block and source in self.position and source is not node:
                        graph.add_edge(self.vertex(source), self.vertex(node))
        free = set(self.unit_of)
        for before, after in order_edges([n for n in self.block.nodes if n not in free], self.alias):
            graph.add_edge(self.vertex(before), self.vertex(after))

    def vertex(self, node: Node) -> Any:
        return self.unit_of.get(node, node)

    def first(self, vertex: Any) -> int:
        return vertex.number if isinstance(vertex, _Unit) else self.position[vertex]

    # Merging

    def edges(self) -> list[tuple[int, Node, Node]]:
        """Pairs of computing nodes of which the second reads the first, the largest tensors first."""
        found = []
        for node in self.unit_of:
            for value, _ in self.sources(node):
                if value.node in self.unit_of:
                    # Of equal size, those close to each other and late in the graph first.
                    found.append((cost.bytes_of(value), self.position[node], value.node, node))
        found.sort(key=lambda e: (-e[0], -e[1]))
        return [(size, a, b) for size, _, a, b in found]

    def why_not_merged(self, a: _Unit, b: _Unit, producer: Node, consumer: Node) -> str | None:
        if len(a.nodes) + len(b.nodes) > cost.MAX_NODES:
            return f"more than {cost.MAX_NODES} operators"
        if self.has_other_path(a, b):
            return "a value leaves the group and comes back into it"
        together = sorted({*a.nodes, *b.nodes}, key=self.position.__getitem__)
        reason = self.computes_again(a, b, producer)
        if reason is not None:
            return reason
        nodes, outputs, inputs = self.assembled(together)
        if len(inputs) > cost.MAX_INPUTS or len(outputs) > cost.MAX_OUTPUTS:
            return f"{len(inputs)} inputs and {len(outputs)} outputs are too many"
        try:
            plan(nodes, outputs)
        except NotFused as fault:
            return str(fault)
        return None

    def has_other_path(self, a: _Unit, b: _Unit) -> bool:
        """Whether a path from one to the other goes through something else; merging would make a circle of it."""
        graph = self.graph
        for start, goal in ((a, b), (b, a)):
            seen = {goal}
            stack = [v for v in graph.successors(start) if v is not goal]
            while stack:
                vertex = stack.pop()
                if vertex in seen:
                    continue
                seen.add(vertex)
                for following in graph.successors(vertex):
                    if following is goal:
                        return True
                    if following is not start:
                        stack.append(following)
        return False

    def computes_again(self, a: _Unit, b: _Unit, producer: Node) -> str | None:
        """Why the elements of ``a`` would be computed too often inside ``b``; None when they are not."""
        space = max(self.points(n) for n in (*a.nodes, *b.nodes))
        light = len(a.nodes) <= cost.LIGHT_NODES and not any(map(cost.is_heavy, a.nodes))
        light = light and not any(map(reduces, a.nodes))
        for node in b.nodes:
            for value, path in self.sources(node):
                if value.node not in a.nodes:
                    continue
                if node.kind in ("aten::cat", "aten::concat", "aten::stack") and not light:
                    return f"every part of {node.kind} would be computed for all of it"
                count = prod(shape_of(value))
                partial = [v for v in path if v.kind != "prim::ListConstruct" and not _keeps_all(v)]
                if partial:
                    if any(map(reduces, a.nodes)):
                        return "only a part of a reduction's result is read"
                    read = self.read_through_parts(value, b)
                    if read > 1.25 * count and not light:
                        return f"{read} elements are read of a tensor of {count}"
                elif count * 2 <= space and not light and not any(map(reduces, a.nodes)):
                    shape = shape_of(value)
                    if shape and shape[-1] != 1 and count > 1:
                        return f"a tensor of {list(shape)} is spread over {space} elements"
        return None

    def read_through_parts(self, value: Value, unit: _Unit) -> int:
        """Elements of ``value`` that the nodes of a unit read, through views."""
        total = 0
        for node in unit.nodes:
            for source, path in self.sources(node):
                if source is value:
                    views = [v for v in path if v.kind != "prim::ListConstruct"]
                    total += prod(shape_of(views[0].outputs[0])) if views else prod(shape_of(value))
        return total

    def points(self, node: Node) -> int:
        tensors = [v for v in node.outputs if is_tensor(v)]
        if reduces(node):
            tensors += [v for v in node.inputs[:1] if is_tensor(v)]
        return max((prod(shape_of(v)) for v in tensors), default=1)

    def merge(self, a: _Unit, b: _Unit) -> None:
        graph = self.graph
        for vertex in list(graph.predecessors(a)):
            if vertex is not b:
                graph.add_edge(vertex, b)
        for vertex in list(graph.successors(a)):
            if vertex is not b:
                graph.add_edge(b, vertex)
        graph.remove_node(a)
        b.nodes = sorted({*a.nodes, *b.nodes}, key=self.position.__getitem__)
        b.number = max(a.number, b.number)
        for node in a.nodes:
            self.unit_of[node] = b

    # Groups

    def assembled(self, computing: Sequence[Node]) -> tuple[list[Node], list[Value], list[Value]]:
        """All nodes of a group with what is between them, the values others read, and the tensors it reads."""
        inside = set(computing)
        between: set[Node] = set()
        inputs: dict[Value, None] = {}
        for node in computing:
            for value, path in self.sources(node):
                between.update(path)
                if value.node not in inside:
                    inputs[value] = None
        nodes = sorted(inside | between, key=self.position.__getitem__)
        outputs = [v for node in computing for v in node.outputs if v.uses and self.is_read_outside(v, inside)]
        return nodes, outputs, list(inputs)

    def is_read_outside(self, value: Value, inside: set[Node]) -> bool:
        """Whether anybody but the group's nodes reads a value, through views or not."""
        for use in value.uses:
            if use.node in inside:
                continue
            if use.node.block is not self.block or not self.is_between(use.node):
                return True
            if use.node.kind != "prim::ListConstruct" and use.index != 0:
                return True
            if any(self.is_read_outside(v, inside) for v in use.node.outputs):
                return True
        return False

    def finish(self, unit: _Unit) -> None:
        nodes, outputs, _ = self.assembled(unit.nodes)
        if not outputs:
            return
        if len(unit.nodes) < self.min_nodes or all(
            (op := entry_of(n)) is not None and op.full_name in MOVES for n in unit.nodes
        ):
            self.result.refusals.append(Refusal(unit.nodes[-1], "a group of its own would save nothing"))
            return
        try:
            lowered = lower(nodes, outputs)
        except NotFused as fault:
            self.result.refusals.append(Refusal(unit.nodes[-1], str(fault)))
            return
        self.result.groups.append(Group(tuple(nodes), tuple(outputs), lowered))


def _keeps_all(node: Node) -> bool:
    """Whether a view has each element of its operand just once."""
    _, maps = geometry_of(node)
    return len(maps) == 1 and maps[0].is_bijective


def _with_inner(node: Node) -> Iterator[Node]:
    """A node and all nodes in its blocks, their returns included."""
    yield node
    for block in node.blocks:
        yield block.return_node
        for inner in block.nodes:
            yield from _with_inner(inner)


def order_edges(nodes: Sequence[Node], alias: AliasAnalysis) -> list[tuple[Node, Node]]:
    """Pairs of nodes, given in order, whose order must stay beyond what their values say: what acts keeps its order, and
    what touches memory that is written keeps its place among what acts."""
    found: list[tuple[Node, Node]] = []
    last: Node | None = None
    waiting: list[Node] = []
    for node in nodes:
        if node.kind == "prim::Constant":
            continue
        if not is_pure(node):
            found += [(n, node) for n in waiting]
            if last is not None:
                found.append((last, node))
            last, waiting = node, []
        elif any(alias.is_written(v) for v in (*node.inputs, *node.outputs)):
            if last is not None:
                found.append((last, node))
            waiting.append(node)
    return found


def ordered(vertices: Sequence[Any], edges: Sequence[tuple[Any, Any]], key: Any) -> list[Any]:
    """A topological order, the smallest key first among those that may come next."""
    following: dict[Any, list[Any]] = {v: [] for v in vertices}
    waiting = dict.fromkeys(vertices, 0)
    for a, b in edges:
        following[a].append(b)
        waiting[b] += 1
    ready = [(key(v), i, v) for i, v in enumerate(vertices) if not waiting[v]]
    heapq.heapify(ready)
    found = []
    count = len(vertices)
    while ready:
        _, _, vertex = heapq.heappop(ready)
        found.append(vertex)
        for after in following[vertex]:
            waiting[after] -= 1
            if not waiting[after]:
                count += 1
                heapq.heappush(ready, (key(after), count, after))
    return found

