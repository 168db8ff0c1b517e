"""The order in which nodes of a block must run, and a new one that keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import networkx as nx

from gpujit.ir.graph import Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import is_pure

T = TypeVar("T")


def with_inner(node: Node) -> Iterator[Node]:
    """A node and all nodes in its blocks, their returns included."""
    yield node
    for block in node.blocks:
        yield block.return_node
        for inner in block.nodes:
            yield from with_inner(inner)


def order_edges(nodes: Sequence[Node], alias: AliasAnalysis) -> list[tuple[Node, Node]]:
    """Pairs of nodes, given in order, whose order must stay beyond what their values say.

    What acts keeps its order, and what touches memory that is written keeps its place among what acts.
    """
    acting = {n for n in nodes if n.kind != "prim::Constant" and not is_pure(n)}
    found: list[tuple[Node, Node]] = []
    if not acting:
        return found
    # Asked once for each value: what a module holds takes long to find.
    written: dict[Value, bool] = {}

    def is_written(value: Value) -> bool:
        if value not in written:
            written[value] = not value.is_constant and alias.is_written(value)
        return written[value]

    last: Node | None = None
    waiting: list[Node] = []
    for node in nodes:
        if node.kind == "prim::Constant":
            continue
        if node in acting:
            found += [(n, node) for n in waiting]
            if last is not None:
                found.append((last, node))
            last, waiting = node, []
        elif any(map(is_written, (*node.inputs, *node.outputs))):
            if last is not None:
                found.append((last, node))
            waiting.append(node)
    return found


def ordered(vertices: Sequence[T], edges: Iterable[tuple[T, T]], key: Callable[[T], int]) -> list[T]:
    """A topological order, the smallest key first among those that may come next."""
    graph: nx.DiGraph[T] = nx.DiGraph()
    graph.add_nodes_from(vertices)
    graph.add_edges_from(edges)
    return list(nx.lexicographical_topological_sort(graph, key=key))
