"""Which nodes of a block become one kernel: groups grow along the edges that save the most memory traffic.

Units are nodes that compute; what is between them (views, lists of operands, factories) belongs to whoever reads it.
Two units merge when the result is convex (no path leaves it and comes back), small enough, lies in one iteration space,
and computing elements again costs less than storing and reading them. First units merge with those they read, then
those that read the same, then small ones that share nothing. All follows from the graph; nothing is measured here.

Source: the greedy merging follows what XLA and Inductor describe (producers into consumers, largest savings first).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import networkx as nx

from gpujit.fuser import cost
from gpujit.fuser.convex import Reach
from gpujit.fuser.copies import chain_to_copy
from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Fact, Facts
from gpujit.fuser.lower import PLACES, Lowered, lower, require_places
from gpujit.fuser.order import order_edges, with_inner
from gpujit.fuser.space import Space
from gpujit.fuser.tensors import bytes_of, elements_of, is_tensor, shape_of
from gpujit.fuser.waits import is_turned, why_scalar, why_waits
from gpujit.ir.graph import Block, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import is_pure

# How often edges are tried again whose units were in each other's way.
_ROUNDS = 3
# How many units of one shape a small one is tried with.
_NEIGHBOURS = 4
CIRCLE = "a value leaves the group and comes back into it"


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
    """Groups in the order of the block, and every refusal with its reason."""

    groups: list[Group] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(eq=False)
class _Unit:
    """Nodes that are to be one kernel, in order; ``vertex`` is its number in the graph of units."""

    nodes: list[Node]
    vertex: int
    # At how many points each node is evaluated, when that was asked for.
    evaluated: dict[Node, int] | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """A tensor that a node reads, seen through what is between; ``path`` leads from the reader to it."""

    value: Value
    path: tuple[Node, ...]


def partition(
    block: Block, alias: AliasAnalysis, facts: Facts | None = None, min_nodes: int = 1, on_cores: bool = False
) -> Partition:
    """The groups of one block, inner blocks left alone.

    Args:
        alias: of the block's graph; what is written anywhere is not fused.
        facts: of the block's nodes, to share with others.
        min_nodes: groups of fewer computing nodes are dissolved.
        on_cores: kernels run on a processor's cores, and calling one costs next to nothing: see ``waits``.
    """
    return _Partitioner(block, alias, facts or Facts(), min_nodes, on_cores).run()


class _Partitioner:
    def __init__(self, block: Block, alias: AliasAnalysis, facts: Facts, min_nodes: int, on_cores: bool) -> None:
        self.block, self.alias, self.facts, self.min_nodes, self.on_cores = block, alias, facts, min_nodes, on_cores
        self.result = Partition()
        self.position = {node: i for i, node in enumerate(block.nodes)}
        self.unit_of: dict[Node, _Unit] = {}
        self.refused: dict[tuple[Node, Node], str] = {}
        self._between: dict[Node, bool] = {}
        self._reads: dict[Node, tuple[list[_Read], list[Node]]] = {}

    def run(self) -> Partition:
        for node, number in self.position.items():
            reason = self.why_not(node)
            if reason is None:
                self.unit_of[node] = _Unit([node], number)
            elif reason:
                self.result.refusals.append(Refusal(node, reason))
        if self.unit_of:
            graph: nx.DiGraph[int] = nx.DiGraph()
            graph.add_nodes_from(range(len(self.position)))
            graph.add_edges_from(self.dependences())
            self.reach = Reach(graph)
            self.merge_readers()
            self.merge_siblings()
            self.merge_small()
        for unit in self.units():
            self.finish(unit)
        self.report()
        return self.result

    def units(self) -> list[_Unit]:
        """All units, in the order of their last nodes."""
        return sorted(dict.fromkeys(self.unit_of.values()), key=lambda u: self.position[u.nodes[-1]])

    # Nodes

    def why_not(self, node: Node) -> str | None:
        """Why a node cannot be in a kernel; None when it can, '' when it is no operator that computes."""
        if node.kind == "prim::Constant" or node.blocks or self.is_between(node):
            return ""
        fact = self.facts.of(node)
        op, functional = fact.op, fact.functional
        if op is None or functional is None or not any(map(is_tensor, node.outputs)):
            return ""
        if functional.kind != "pointwise" and fact.move is None and fact.rows is None:
            if fact.view is not None:
                return f"{op.full_name} looks at memory that is written"
            return fact.why_no_view or f"{op.full_name} runs as a library operator"
        if any(a.is_write for a in op.schema.arguments):
            return f"{op.full_name} writes into its argument"
        if not is_pure(node):
            return f"{op.full_name} has an effect, or gives other numbers each time"
        for value in (*node.inputs, *node.outputs):
            if not value.is_constant and self.alias.is_written(value):
                return f"{op.full_name} reads or makes {value!r}, which is written"
        try:
            fact.require()
            for read in self.reads(node)[0]:
                bytes_of(read.value)
        except NotFused as fault:
            return str(fault)
        return None

    def is_between(self, node: Node) -> bool:
        """Whether a node belongs to whoever reads it: views, lists of operands, factories."""
        found = self._between.get(node)
        if found is None:
            found = self._between[node] = self._is_between(node)
        return found

    def _is_between(self, node: Node) -> bool:
        if node.kind == "prim::ListConstruct":
            if not any(map(is_tensor, node.inputs)):
                return False
        else:
            fact = self.facts.of(node)
            if fact.view is None and not fact.is_factory:
                return False
            try:
                if fact.is_factory:
                    fact.require()
            except NotFused:
                return False
        return not any(self.alias.is_written(v) for v in (*node.inputs, *node.outputs) if not v.is_constant)

    def reads(self, node: Node) -> tuple[list[_Read], list[Node]]:
        """Each tensor a node reads, seen through what is between; and all that is between."""
        found = self._reads.get(node)
        if found is not None:
            return found
        reads: list[_Read] = []
        between: dict[Node, None] = {}
        stack: list[tuple[Value, tuple[Node, ...]]] = [(v, ()) for v in node.inputs]
        while stack:
            value, path = stack.pop()
            inner = value.node
            if inner.block is self.block and self.is_between(inner):
                between[inner] = None
                if inner.kind == "prim::ListConstruct":
                    stack += [(v, (*path, inner)) for v in inner.inputs]
                elif not self.facts.of(inner).is_factory:
                    stack.append((inner.inputs[0], (*path, inner)))
            elif is_tensor(value):
                reads.append(_Read(value, path))
        found = self._reads[node] = reads, list(between)
        return found

    def dependences(self) -> Iterator[tuple[int, int]]:
        """Edges between nodes that are not between others, of what must run before what."""
        for node, number in self.position.items():
            if self.is_between(node) and node not in self.unit_of:
                continue
            seen: set[Node] = set()
            stack = [v.node for inner in with_inner(node) for v in inner.inputs]
            while stack:
                source = stack.pop()
                if source in seen or source is node or source not in self.position:
                    continue
                seen.add(source)
                if self.is_between(source):
                    stack += [v.node for v in source.inputs]
                else:
                    yield self.position[source], number
        acting = [n for n in self.position if n not in self.unit_of and not self.is_between(n)]
        for before, after in order_edges(acting, self.alias):
            yield self.position[before], self.position[after]

    # Merging

    def merge_readers(self) -> None:
        """Merge units with those they read, the largest tensors first."""
        edges = []
        for node in self.unit_of:
            for value in {r.value for r in self.reads(node)[0]}:
                if value.node in self.unit_of:
                    # Of equal size, those close to each other and late in the graph first.
                    edges.append((-bytes_of(value), -self.position[node], value.node, node))
        edges.sort(key=lambda e: e[:2])
        pairs = [(a, b) for _, _, a, b in edges]
        for _ in range(_ROUNDS):
            left = [(a, b) for a, b in pairs if self.tried(a, b) == CIRCLE]
            if len(left) == len(pairs):
                break
            pairs = left

    def merge_siblings(self) -> None:
        """Merge units that read the same tensor."""
        readers: dict[Value, list[Node]] = {}
        for node in self.unit_of:
            for read in self.reads(node)[0]:
                if not read.value.is_constant and elements_of(read.value) > 1:
                    readers.setdefault(read.value, []).append(node)
        for nodes in sorted(readers.values(), key=lambda nodes: self.position[nodes[0]]):
            for a, b in pairwise(nodes):
                first, second = self.unit_of[a], self.unit_of[b]
                if first is not second and self.points(first) == self.points(second):
                    self.tried(a, b, is_quiet=True)

    def merge_small(self) -> None:
        """Merge small units of one shape that share nothing."""
        before: dict[tuple[int, ...], list[_Unit]] = {}
        for unit in self.units():
            shape = max((shape_of(v) for n in unit.nodes for v in n.outputs if is_tensor(v)), key=len)
            if self.points(unit) > cost.SMALL or any(self.facts.of(n).reduces for n in unit.nodes):
                continue
            others = before.setdefault(shape, [])
            for other in others[-_NEIGHBOURS:]:
                if self.tried(other.nodes[0], unit.nodes[0], is_quiet=True) is None:
                    others.remove(other)
                    break
            others.append(self.unit_of[unit.nodes[0]])

    def tried(self, producer: Node, consumer: Node, *, is_quiet: bool = False) -> str | None:
        """Merge the units of two nodes; the reason when they cannot be."""
        a, b = self.unit_of[producer], self.unit_of[consumer]
        if a is b:
            return None
        reason = self.why_not_merged(a, b)
        if reason is None:
            self.merge(a, b)
        elif not is_quiet:
            self.refused[producer, consumer] = reason
        return reason

    def why_not_merged(self, a: _Unit, b: _Unit) -> str | None:
        if len(a.nodes) + len(b.nodes) > cost.MAX_NODES:
            return f"more than {cost.MAX_NODES} operators"
        if not self.reach.is_convex(a.vertex, b.vertex):
            return CIRCLE
        reason = self.computes_again(a, b) or self.computes_again(b, a)
        if reason is None and self.on_cores:
            reason = self.waits(a, b) or self.waits(b, a)
        if reason is not None:
            return reason
        together = self.together(a, b)
        nodes, outputs, inputs = self.assembled(together)
        if len(inputs) > cost.MAX_INPUTS or len(outputs) > cost.MAX_OUTPUTS:
            return f"{len(inputs)} inputs and {len(outputs)} outputs are too many"
        if not outputs:
            return None
        facts = list(map(self.facts.of, nodes))
        moves = any(f.move is not None or (f.view is not None and not f.keeps_all) for f in facts)
        try:
            if (moves and any(f.reduces for f in facts)) or self.ways_read(together, outputs) > PLACES:
                # Where rows are read, and at how many places anything is, shows when it is all pulled.
                require_places(nodes, outputs, self.facts)
            else:
                Space(nodes, outputs, self.facts)
        except NotFused as fault:
            return str(fault)
        return None

    def ways_read(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> int:
        """A bound of the places at which any node of a group is evaluated: a value that is read in several ways, as it
        is and through views, or by what copies elements, multiplies what is under it."""
        ways: dict[Value, set[tuple[Node, ...]]] = {v: {()} for v in outputs}
        count: dict[Value, int] = {}
        for node in nodes:
            is_plain = self.facts.of(node).move is None
            for read in self.reads(node)[0]:
                path = tuple(n for n in read.path if n.kind != "prim::ListConstruct")
                if is_plain:
                    ways.setdefault(read.value, set()).add(path)
                else:
                    # Under a mask, and perhaps on both sides of an edge.
                    count[read.value] = count.get(read.value, 0) + 2
        inside = set(nodes)
        return prod(len(ways.get(v, ())) + count.get(v, 0) for v in {**ways, **count} if v.node in inside)

    def waits(self, a: _Unit, b: _Unit) -> str | None:
        """Why a core would take longer for both than for ``a`` and its reader ``b`` one by one."""
        inside = set(a.nodes)
        read = [(node, each) for node in b.nodes for each in self.reads(node)[0] if each.value.node in inside]
        if not read:
            return None
        for node, each in read:
            seen = next((n for n in each.path if n.kind != "prim::ListConstruct"), None)
            as_seen = each.value if seen is None else seen.outputs[0]
            reason = why_scalar(a.nodes, each.value, as_seen, self.facts.of(node), self.facts.of)
            if reason is not None:
                return reason
        return why_waits(a.nodes, b.nodes, self.facts.of, self.is_across)

    def is_across(self, node: Node) -> bool:
        """Whether a node reads something through a view that lies otherwise in memory."""
        return any(is_turned(self.facts.of(view)) for read in self.reads(node)[0] for view in read.path)

    def computes_again(self, a: _Unit, b: _Unit) -> str | None:
        """Why the elements of ``a`` would be computed too often inside ``b``; None when they are not."""
        points = self.evaluated(b)
        inside = set(a.nodes)
        reduces = any(self.facts.of(n).reduces for n in a.nodes)
        dear = sum(self.facts.of(n).cost for n in a.nodes)
        read: dict[Value, int] = {}
        for node in b.nodes:
            fact = self.facts.of(node)
            for each in self.reads(node)[0]:
                if each.value.node not in inside:
                    continue
                times, is_part = self.times_read(fact, each, points[node])
                if reduces and is_part:
                    return f"only a part of a reduction's result is read by {fact.name}"
                read[each.value] = read.get(each.value, 0) + times if is_part else max(read.get(each.value, 0), times)
        for value, times in read.items():
            count = elements_of(value)
            if times > count and cost.again(times - count, dear) > cost.stored(bytes_of(value)):
                return f"{count} elements of {value!r} would be computed {times} times"
        return None

    def evaluated(self, unit: _Unit) -> dict[Node, int]:
        """At how many points each node of a unit is evaluated: more than it has when what reads it is spread."""
        if unit.evaluated is None:
            found = {n: self.facts.of(n).points for n in unit.nodes}
            for node in reversed(unit.nodes):
                for each in self.reads(node)[0]:
                    if each.value.node in found:
                        times, _ = self.times_read(self.facts.of(node), each, found[node])
                        found[each.value.node] = max(found[each.value.node], times)
            unit.evaluated = found
        return unit.evaluated

    def times_read(self, reader: Fact, read: _Read, points: int) -> tuple[int, bool]:
        """At how many points a value is computed for a reader, itself evaluated at ``points``, and whether those are
        others than a view of all."""
        if reader.move is not None and not reader.move.is_in_place:
            return points, True
        views = [n for n in read.path if n.kind != "prim::ListConstruct"]
        if any(not self.facts.of(v).keeps_all for v in views):
            return elements_of(views[0].outputs[0]), True
        count = elements_of(read.value)
        seen = views[0].outputs[0] if views else read.value
        return (points if count * 2 <= points and is_spread_in_row(seen) else count), False

    def points(self, unit: _Unit) -> int:
        return max(self.facts.of(n).points for n in unit.nodes)

    def together(self, a: _Unit, b: _Unit) -> list[Node]:
        return sorted((*a.nodes, *b.nodes), key=self.position.__getitem__)

    def merge(self, a: _Unit, b: _Unit) -> None:
        unit = _Unit(self.together(a, b), self.reach.merge(a.vertex, b.vertex))
        for node in unit.nodes:
            self.unit_of[node] = unit

    # Groups

    def assembled(self, computing: Sequence[Node]) -> tuple[list[Node], list[Value], list[Value]]:
        """All nodes of a group with what is between them, the values others read, and the tensors it reads."""
        inside = set(computing)
        between: set[Node] = set()
        inputs: dict[Value, None] = {}
        for node in computing:
            reads, inner = self.reads(node)
            between.update(inner)
            for read in reads:
                if read.value.node not in inside:
                    inputs[read.value] = None
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
        """Make a group of a unit when that is worth it; one that has no program after all falls apart."""
        nodes, outputs, _ = self.assembled(unit.nodes)
        if not outputs:
            return
        last = unit.nodes[-1]
        if len(unit.nodes) < self.min_nodes:
            self.result.refusals.append(Refusal(last, f"a group of fewer than {self.min_nodes} operators"))
            return
        move = self.facts.of(last).move
        if self.on_cores and len(unit.nodes) == 1 and move is not None and move.is_quick_alone:
            self.result.refusals.append(Refusal(last, "by itself a library's copies are quicker"))
            return
        try:
            nodes, outputs, lowered = self.lowered(nodes, outputs, set(unit.nodes))
        except NotFused as fault:
            self.result.refusals.append(Refusal(last, str(fault)))
            if len(unit.nodes) > 1:
                for node in unit.nodes:
                    self.unit_of[node] = _Unit([node], unit.vertex)
                    self.finish(self.unit_of[node])
            return
        apart = sum(cost.alone(self.facts.of(n)) for n in unit.nodes)
        whole = cost.fused(lowered)
        if whole >= apart:
            reason = f"a kernel would take {whole / 1000:.1f} us, by itself it takes {apart / 1000:.1f}"
            self.result.refusals.append(Refusal(last, reason))
            return
        self.result.groups.append(Group(tuple(nodes), tuple(outputs), lowered))

    def lowered(
        self, nodes: list[Node], outputs: list[Value], inside: set[Node]
    ) -> tuple[list[Node], list[Value], Lowered]:
        """The program, with results stored as the copies that others would make of them at once, where it can be."""

        def is_here(node: Node) -> bool:
            # What a loop or branch makes of a result is made there.
            return node in self.position and self.is_between(node)

        chains = {v: chain_to_copy(v, inside, self.facts, is_here) for v in outputs}
        if any(chains.values()):
            landed = [chain[-1].output if chain else v for v, chain in chains.items()]
            more = sorted({*nodes, *(n for c in chains.values() for n in c)}, key=self.position.__getitem__)
            try:
                found = lower(more, landed, self.facts)
                if not found.divisions:
                    return more, landed, found
            except NotFused:
                pass
        return nodes, outputs, lower(nodes, outputs, self.facts)

    def report(self) -> None:
        """Refusals of edges between units that are apart at the end, each pair of units once."""
        told: set[tuple[int, int]] = set()
        for (producer, consumer), reason in self.refused.items():
            a, b = self.unit_of[producer], self.unit_of[consumer]
            if a is not b and (id(a), id(b)) not in told:
                told.add((id(a), id(b)))
                name = self.facts.of(producer).name
                self.result.refusals.append(Refusal(consumer, f"not joined with {name}: {reason}"))


def is_spread_in_row(value: Value) -> bool:
    """Whether a value that is spread over a larger space has to be computed at each of its points."""
    shape = shape_of(value)
    return bool(shape) and shape[-1] != 1 and elements_of(value) > 1
