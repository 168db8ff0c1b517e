"""Loops: unrolled whole when the number of trips is known, in steps of several trips otherwise, first trip peeled off.

All of them need a loop that stops by its trip count alone, except whole unrolling, which also follows a condition as
long as it can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.passes.base import Edits, declined, graph_pass
from gpujit.passes.control.blocks import body_size, copy_before, nodes_of_kind
from gpujit.passes.fold import MISSING, Folder, repeated
from gpujit.passes.nodes import constant_before, insert_op


@dataclass(frozen=True, slots=True)
class Limits:
    """How much whole unrolling may add.

    Args:
        trips: of one loop.
        nodes: that the copies of one loop's body may have together, before what is known in them is computed.
        total: nodes that one walk over a graph may copy, for loops that turn out not to end as well.
    """

    trips: int = 1024
    nodes: int = 20_000
    total: int = 100_000


DEFAULT = Limits()
SHORT = Limits(trips=8, nodes=256)

# Trips that become one, and the largest body (in nodes) for which that is worth the size.
FACTOR = 8
MAX_BODY = 32
# The attribute of loops that came out of unrolling in steps, so that they are not unrolled again.
UNROLLED = "unrolled"


@graph_pass("unroll_constant_loops")
def unroll_constant_loops(graph: Graph) -> bool:
    """Unroll every loop whose trips are known before run time, up to the default limits; fold what becomes known."""
    return unroll_whole(graph)


@graph_pass("unroll_loops")
def unroll_loops(graph: Graph) -> bool:
    """Unroll loops of up to 8 known trips whole, and other counted loops with small bodies 8 trips at a time."""
    changed = False
    edits = Edits()
    while True:
        changed |= unroll_whole(graph, SHORT)
        found = False
        # Inner loops first: their copies then count in the size of the outer ones.
        for loop in reversed(nodes_of_kind(graph, ("prim::Loop",))):
            if edits.may_edit() and unroll_partly(loop):
                edits.count()
                found = True
        if not found:
            return changed
        changed = True


def unroll_whole(graph: Graph, limits: Limits = DEFAULT) -> bool:
    """Replace loops whose trips are known by one copy of the body a trip, folding as it goes; whether it changed.

    A loop with a condition is unrolled when each trip's condition can be computed from the trips before. Loops that do
    not end within the limits stay.
    """
    return repeated(lambda graph: _Unroller(graph, limits), graph)


class _Unroller(Folder):
    pass_name = "unroll_constant_loops"

    def __init__(self, graph: Graph, limits: Limits) -> None:
        super().__init__(graph)
        self.limits = limits
        self.left = limits.total

    def loop(self, node: Node) -> Node | None:
        following = node.next
        return following if self.unrolled(node) else super().loop(node)

    def unrolled(self, node: Node) -> bool:
        """Try to unroll a loop whole; what takes its place has been folded."""
        trips, condition = self.value_of(node.inputs[0]), self.value_of(node.inputs[1])
        if trips is MISSING or condition is not True or trips <= 1:
            return False
        body = node.blocks[0]
        size = max(body_size(body), 1)
        most = min(trips, self.limits.trips, min(self.limits.nodes, self.left) // size)
        if most < 1 or (most < trips and self.value_of(body.returns[0]) is True):
            declined(self.pass_name, node, f"{trips} trips of {size} nodes are over the limits")
            return False
        if not self.edits.may_edit():
            return False
        return self._copy_trips(node, trips, most, size)

    def _copy_trips(self, node: Node, trips: int, most: int, size: int) -> bool:
        body = node.blocks[0]
        saved = self.changed, self.restructured
        start = node.prev
        carried = list(node.inputs[2:])
        for trip in range(most):
            self.left -= size
            again, *carried = self._copy_trip(node, trip, carried)
            more = self.value_of(again)
            if more is False or trip + 1 == trips:
                self.may_edit()
                self.restructured = True
                for output, value in zip(node.outputs, carried, strict=True):
                    output.replace_all_uses_with(value)
                node.destroy()
                return True
            if more is not True:
                declined(self.pass_name, node, "its condition depends on more than constants")
                break
        else:
            declined(self.pass_name, node, f"it does not end within {most} trips of {body_size(body)} nodes")
        while (last := node.prev) is not start:
            assert last is not None
            last.destroy()
        self.changed, self.restructured = saved
        return False

    def _copy_trip(self, node: Node, trip: int, carried: list[Value]) -> list[Value]:
        """Put a folded copy of the body in front of the loop; returns what it returns."""
        body = node.blocks[0]
        known = dict(zip(body.params[1:], carried, strict=True))
        if body.params[0].uses:
            known[body.params[0]] = constant_before(node, trip)
        made = copy_before(body, node, known)
        for original, copied in known.items():
            if original.node is not body.param_node:
                self.origin[copied] = self.origin.get(original, original)
        # Folding replaces values; a node that reads the returned ones follows.
        reader = Node("prim::Return", [known.get(v, v) for v in body.returns]).insert_before(node)
        if made:
            self.range(made[0], reader)
        returned = list(reader.inputs)
        reader.destroy()
        return returned


def unroll_partly(loop: Node) -> bool:
    """Make ``FACTOR`` trips of a counted loop one, with a second loop for the trips that remain; whether it did.

    Declined for loops with a condition, with large bodies, and for those that came out of this.
    """
    reason = _why_not_partly(loop)
    if reason is not None:
        declined("unroll_loops", loop, reason)
        return False
    body = loop.blocks[0]
    factor = constant_before(loop, FACTOR)
    # A negative count would be rounded to a group of trips that are not to run.
    count = op_before(loop, "prim::max.int", (loop.inputs[0], constant_before(loop, 0)))
    groups = op_before(loop, "aten::floordiv.int", (count, factor))
    done = op_before(loop, "aten::mul.int", (groups, factor))
    rest = op_before(loop, "aten::sub.int", (count, done))
    loop.attributes[UNROLLED] = FACTOR
    main = Node("prim::Loop", (groups, *loop.inputs[1:]), dict(loop.attributes))
    main.source, main.call = loop.source, loop.call
    main.insert_before(loop)
    inner = main.add_block()
    index = inner.add_param(T.INT, body.params[0].name)
    carried = [inner.add_param(p.type, p.name) for p in body.params[1:]]
    reads_index = bool(body.params[0].uses)
    start = op_before(inner.return_node, "aten::mul.int", (index, factor)) if reads_index else index
    again = loop.inputs[1]
    for trip in range(FACTOR):
        here = start
        if reads_index and trip:
            here = op_before(inner.return_node, "aten::add.int", (start, constant_before(inner.return_node, trip)))
        known = dict(zip(body.params, (here, *carried), strict=True))
        copy_before(body, inner.return_node, known)
        carried = [known.get(v, v) for v in body.returns[1:]]
    for value in (again, *carried):
        inner.add_return(value)
    outputs = [main.add_output(v.type, v.name) for v in loop.outputs]
    loop.set_input(0, rest)
    for i, value in enumerate(outputs):
        loop.set_input(i + 2, value)
    if reads_index:
        _shift_index(body, done)
    return True


def op_before(before: Node, full_name: str, inputs: Sequence[Value]) -> Value:
    return insert_op(before, full_name, inputs, like=before)


def _shift_index(body: Block, by: Value) -> None:
    """Let the readers of a loop's index read it increased."""
    index = body.params[0]
    first = body.param_node.next
    assert first is not None
    uses = list(index.uses)
    shifted = op_before(first, "aten::add.int", (index, by))
    shifted.name = index.name
    for use in uses:
        use.node.set_input(use.index, shifted)


def _why_not_partly(loop: Node) -> str | None:
    body = loop.blocks[0]
    if not is_counted(loop):
        return "it may end before its trip count"
    size = body_size(body)
    if size > MAX_BODY:
        return f"its body has {size} nodes; up to {MAX_BODY} are repeated"
    trips = loop.inputs[0]
    if trips.is_constant and trips.constant() <= FACTOR:
        return f"it has {trips.constant()} trips"
    return "it is unrolled already" if UNROLLED in loop.attributes else None


def is_counted(loop: Node) -> bool:
    """Whether only the trip count ends a loop: its condition is True at the start and after every trip."""
    first, again = loop.inputs[1], loop.blocks[0].returns[0]
    if not first.is_constant or first.constant() is not True:
        return False
    return again is first or (again.is_constant and again.constant() is True)


def peel(loop: Node) -> Node | None:
    """Run a loop's first trip before the loop; returns the prim::If it is in, None when it certainly runs.

    What is known of the carried values before the loop then holds for that trip alone.
    """
    body = loop.blocks[0]
    trips, condition = loop.inputs[0], loop.inputs[1]
    zero, one = constant_before(loop, 0), constant_before(loop, 1)
    is_certain = trips.is_constant and trips.constant() > 0 and condition.is_constant and condition.constant() is True
    node: Node | None = None
    target = loop
    if not is_certain:
        enters = op_before(loop, "aten::gt.int", (trips, zero))
        both = op_before(loop, "aten::__and__.bool", (condition, enters))
        node = Node("prim::If", (both,))
        node.source, node.call = loop.source, loop.call
        node.insert_before(loop)
        target = node.add_block().return_node
        for value in loop.inputs[1:]:
            node_skips = node.blocks[1] if len(node.blocks) > 1 else node.add_block()
            node_skips.add_return(value)
    known = dict(zip(body.params, (zero, *loop.inputs[2:]), strict=True))
    copy_before(body, target, known)
    results = [known.get(v, v) for v in body.returns]
    if node is not None:
        for value, wanted in zip(results, (condition, *loop.outputs), strict=True):
            node.blocks[0].add_return(value)
            node.add_output(wanted.type, wanted.name)
        results = list(node.outputs)
    loop.set_input(0, op_before(loop, "aten::sub.int", (trips, one)))
    for i, value in enumerate(results):
        loop.set_input(i + 1, value)
    if body.params[0].uses:
        _shift_index(body, one)
    return node
