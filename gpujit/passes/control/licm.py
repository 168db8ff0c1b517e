"""Loop-invariant code: what every run of a loop computes anew from the same inputs is computed before it."""

from __future__ import annotations

from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import has_effect, is_pure, may_raise
from gpujit.passes.base import declined, graph_pass, may_change, spend


@graph_pass("licm")
def hoist_loop_invariants(graph: Graph) -> bool:
    """Move nodes out of loops when their inputs come from outside and stay unwritten, nobody writes their results, and
    they cannot fail or are sure to run."""
    return _Hoister(graph).run()


class _Hoister:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changes = 0
        self._alias: AliasAnalysis | None = None

    @property
    def alias(self) -> AliasAnalysis:
        if self._alias is None:
            self._alias = AliasAnalysis(self.graph)
        return self._alias

    def run(self) -> bool:
        loops = [node for node in self.graph.all_nodes() if node.kind == "prim::Loop"]
        # Inner loops first: what leaves one may leave the next as well.
        for loop in reversed(loops):
            self.loop(loop)
        return self.changes > 0

    def loop(self, loop: Node) -> None:
        (block,) = loop.blocks
        runs = _runs_at_least_once(loop)
        inside: set[Value] = set(block.params)
        for node in block.nodes:
            if not may_change(uncounted=min(self.changes, 1)):
                return
            if node.kind == "prim::Constant":
                # Moved along with the first node that reads it from outside.
                continue
            reason = self.reason_against(node, loop, runs, inside)
            if reason is None:
                self.hoist(node, loop)
                continue
            inside.update(node.outputs)
            # What comes after an effect must not fail before it.
            runs = runs and not has_effect(node)
            if is_pure(node) and not any(v in inside for v in node.inputs):
                declined("licm", node, reason)

    def reason_against(self, node: Node, loop: Node, runs: bool, inside: set[Value]) -> str | None:
        if node.blocks or not node.outputs or not is_pure(node):
            return "it is not a pure operation"
        if any(v in inside for v in node.inputs):
            return "it reads what the loop computes"
        if not runs and may_raise(node):
            return "it may fail, and the loop may not run it"
        for value in node.inputs:
            if self.alias.may_write(loop, value):
                return f"the loop may write {value!r}"
        for value in node.outputs:
            if self.alias.is_written(value):
                return f"{value!r} is written"
        if self.alias.makes_escaping(node):
            return "each run makes a result of its own, which may leave the graph"
        return None

    def hoist(self, node: Node, loop: Node) -> None:
        if self.changes:
            spend()
        self.changes += 1
        for value in node.inputs:
            if value.is_constant and value.node.block is node.block:
                value.node.move_before(loop)
        node.move_before(loop)


def _runs_at_least_once(loop: Node) -> bool:
    trips, condition = loop.inputs[:2]
    return trips.is_constant and trips.constant() > 0 and condition.is_constant and bool(condition.constant())
