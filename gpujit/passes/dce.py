"""Dead code: what nobody reads and nobody could miss is removed."""

from __future__ import annotations

from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import acts, has_own_effect, inner_nodes
from gpujit.passes.base import graph_pass


@graph_pass("dce")
def eliminate_dead_code(graph: Graph) -> bool:
    """Remove nodes without effects whose results nobody reads, outputs of ifs and loops that nobody reads, values that
    loops carry for nobody, and writes into memory that nobody looks at."""
    return _Sweeper(graph).run()


class _Sweeper:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.live_nodes: set[Node] = {graph.block.param_node, graph.block.return_node}
        self.live_values: set[Value] = set()
        self.alias: AliasAnalysis | None = None
        # Memory that somebody may look at, and the writes into what nobody has looked at so far.
        self.observed = 0
        self.writes: list[tuple[Node, int]] = []
        self._values: list[Value] = []

    def run(self) -> bool:
        self._find_live()
        changed = False
        nodes = list(self.graph.all_nodes())
        for node in nodes:
            if node in self.live_nodes:
                changed |= self._trim_inputs(node)
        for node in reversed(nodes):
            # The inner nodes of a dead node are gone with it.
            if node not in self.live_nodes and node.block is not None:
                if any(value.uses for value in node.outputs):
                    continue
                node.destroy()
                changed = True
        for node in nodes:
            if node in self.live_nodes:
                changed |= self._trim_outputs(node)
        return changed

    # ------------------------------------------------------------------------------------------------- marking

    def _find_live(self) -> None:
        pending: list[Node] = []
        for node in self.graph.all_nodes():
            if acts(node) or (SUBGRAPH in node.attributes and any(map(acts, inner_nodes(node)))):
                self._use(node)
            elif not node.blocks:
                pending.append(node)
        written = [n for n in pending if self._may_write(n)]
        if written:
            self.alias = AliasAnalysis(self.graph)
            self.observed = self.alias.memory_outside()
            self.writes = [(n, self.alias.memory_written(n)) for n in written]
        for value in self.graph.outputs:
            self._values.append(value)
        while True:
            while self._values:
                self._look_at(self._values.pop())
            found = [n for n, mask in self.writes if mask & self.observed]
            if not found:
                return
            self.writes = [(n, mask) for n, mask in self.writes if not mask & self.observed]
            for node in found:
                self._use(node)

    @staticmethod
    def _may_write(node: Node) -> bool:
        held = inner_nodes(node) if SUBGRAPH in node.attributes else ()
        return has_own_effect(node) or any(map(has_own_effect, held))

    def _use(self, node: Node) -> None:
        """The node has to run."""
        if node in self.live_nodes:
            return
        self.live_nodes.add(node)
        # Which results of an if or a loop are needed, its readers say.
        fixed = 1 if node.kind == "prim::If" else 2 if node.kind == "prim::Loop" else len(node.inputs)
        self._values += node.inputs[:fixed]
        if node.kind == "prim::Loop":
            self._values.append(node.blocks[0].returns[0])
        elif node.blocks and node.kind != "prim::If":
            for block in node.blocks:
                self._values += block.returns
        for block in node.blocks:
            self.live_nodes.update((block.param_node, block.return_node))
        owner = node.block.owner if node.block is not None else None
        if owner is not None:
            self._use(owner)

    def _look_at(self, value: Value) -> None:
        """Somebody needs the value."""
        if value in self.live_values:
            return
        self.live_values.add(value)
        if self.alias is not None:
            self.observed |= self.alias.memory(value)
        node = value.node
        if node.kind == "prim::Param":
            loop = node.block.owner if node.block is not None else None
            if loop is not None and loop.kind == "prim::Loop":
                self._use(loop)
                if value.index:
                    self._carry(loop, value.index - 1)
            elif loop is not None:
                self._use(loop)
            return
        self._use(node)
        if node.kind == "prim::If":
            self._values += [block.returns[value.index] for block in node.blocks]
        elif node.kind == "prim::Loop":
            self._carry(node, value.index)

    def _carry(self, loop: Node, index: int) -> None:
        (block,) = loop.blocks
        self._values += (
            loop.inputs[2 + index], block.params[1 + index], block.returns[1 + index], loop.outputs[index]
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ removing

    def _dead_outputs(self, node: Node) -> list[int]:
        if node.kind not in ("prim::If", "prim::Loop"):
            return []
        return [i for i, value in enumerate(node.outputs) if value not in self.live_values][::-1]

    def _trim_inputs(self, node: Node) -> bool:
        dead = self._dead_outputs(node)
        for i in dead:
            for block in node.blocks:
                block.return_node.remove_input(i + (node.kind == "prim::Loop"))
            if node.kind == "prim::Loop":
                node.remove_input(2 + i)
        return bool(dead)

    def _trim_outputs(self, node: Node) -> bool:
        dead = self._dead_outputs(node)
        for i in dead:
            node.remove_output(i)
            if node.kind == "prim::Loop":
                node.blocks[0].param_node.remove_output(1 + i)
        return bool(dead)
