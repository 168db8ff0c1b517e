"""Groups become nodes: ``prim::FusionGroup`` holds the group as a subgraph, and stands where the group can run.

A group's node is an operator like others to every pass that knows nothing of it: pure, with tensors in and tensors out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Facts
from gpujit.fuser.lower import Lowered, lower
from gpujit.fuser.order import order_edges, ordered, with_inner
from gpujit.fuser.partition import Group, Refusal, partition
from gpujit.ir.graph import Block, Graph, Node, Value, copy_node
from gpujit.ir.printer import SUBGRAPH
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.dce import eliminate_dead_code

FUSION_GROUP = "prim::FusionGroup"


@dataclass
class Fused:
    """What ``fuse`` did: the program of each group's node, and every refusal."""

    programs: dict[Node, Lowered] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)


def fuse(graph: Graph, min_nodes: int = 1, on_cores: bool = False) -> Fused:
    """Put groups in place of their nodes, in all blocks of the graph; returns what was made of them.

    ``on_cores`` is for kernels that run on a processor's cores as steps of a plan: joins that would wait are refused.

    Shapes and dtypes must be on the values' types (``infer_types``, ``specialise``); what has none stays as it is.
    """
    result = Fused()
    alias: AliasAnalysis | None = None
    for block in list(_blocks(graph.block)):
        alias = alias or AliasAnalysis(graph)
        found = partition(block, alias, Facts(), min_nodes, on_cores)
        result.refusals += found.refusals
        if found.groups:
            _rebuild(block, found.groups, alias, result)
            alias = None
    if result.programs:
        eliminate_dead_code(graph)
        result.programs = {n: p for n, p in result.programs.items() if n.block is not None}
    return result


def program_of(node: Node) -> Lowered:
    """The program of a group's node, from its subgraph. Raises NotFused."""
    graph = node.attributes.get(SUBGRAPH)
    if not isinstance(graph, Graph):
        raise NotFused("the group has no subgraph")
    return lower(list(graph.nodes), list(graph.outputs))


def _blocks(block: Block) -> Iterator[Block]:
    for node in block.nodes:
        for inner in node.blocks:
            yield from _blocks(inner)
    yield block


def _rebuild(block: Block, groups: Sequence[Group], alias: AliasAnalysis, result: Fused) -> None:
    """The block with the groups' nodes, in an order in which all is defined before it is read."""
    replaced: set[Node] = set()
    new_of: dict[Value, Value] = {}
    for group in groups:
        node = _node_of(group, new_of)
        node.insert_after(group.nodes[-1])
        for old, new in zip(group.outputs, node.outputs, strict=True):
            old.replace_all_uses_with(new)
            new_of[old] = new
        result.programs[node] = group.lowered
        replaced.update(group.nodes)
    # A view may serve several groups and others; it goes when nobody reads it.
    for node in block.nodes_reversed:
        if node in replaced and not any(v.uses for v in node.outputs):
            node.destroy()
    _sort(block, alias)


def _node_of(group: Group, new_of: Mapping[Value, Value]) -> Node:
    """The node of a group; ``new_of``: the results of groups that have taken others' place already."""
    subgraph = Graph("")
    known: dict[Value, Value] = {}
    # Operands that no expression needs come behind those that the program reads.
    inputs = [new_of.get(value, value) for value in group.lowered.inputs]
    for value in inputs:
        known[value] = subgraph.add_input(value.type, value.name)
    inside = set(group.nodes)
    for node in group.nodes:
        for value in node.inputs:
            if value not in known and value.node not in inside and not _copied(value, subgraph, known):
                inputs.append(value)
                known[value] = subgraph.add_input(value.type, value.name)
        copy_node(node, subgraph.block, known)
    node = Node(FUSION_GROUP, inputs, {SUBGRAPH: subgraph})
    last = group.nodes[-1]
    node.source, node.call = last.source, last.call
    for value in group.outputs:
        subgraph.add_output(known[value])
        node.add_output(value.type, value.name)
    return node


def _copied(value: Value, subgraph: Graph, known: dict[Value, Value]) -> bool:
    """Whether a value is a constant, or a list of constants, which the subgraph then holds itself."""
    if value.node.kind not in ("prim::Constant", "prim::ListConstruct"):
        return False
    if not all(inner in known or _copied(inner, subgraph, known) for inner in value.node.inputs):
        return False
    copy_node(value.node, subgraph.block, known)
    return True


def _sort(block: Block, alias: AliasAnalysis) -> None:
    """Put the nodes into an order in which values are defined before they are read, near the one they had."""
    nodes = list(block.nodes)
    position = {node: i for i, node in enumerate(nodes)}
    edges = []
    for node in nodes:
        for inner in with_inner(node):
            for value in inner.inputs:
                if value.node in position and value.node is not node:
                    edges.append((value.node, node))
    edges += order_edges([n for n in nodes if n.kind != FUSION_GROUP], alias)
    for node in ordered(nodes, edges, position.__getitem__):
        node.unlink()
        block.append(node)
