"""Graphs in a profile: texts, and beside them what the text does not hold."""

from __future__ import annotations

from collections.abc import Iterator

from gpujit.ir.graph import Graph, Node
from gpujit.ir.module_path import module_path
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.source import CallSite
from gpujit.passes.analysis.effects import resolve_node
from gpujit.profiler.data import GraphText


def graph_text(stage: str, graph: Graph) -> GraphText:
    """A graph at a stage."""
    return GraphText(stage, str(graph), tuple(module_path(n) for n in every_node(graph)))


def graph_of(text: GraphText) -> Graph:
    """The graph, whose nodes know the modules they come from. Raises ParseError."""
    graph = parse_graph(text.text, resolve=resolve_node)
    for node, module in zip(every_node(graph), text.modules, strict=False):
        if module:
            node.call = CallSite("", None, None, module)
    return graph


def every_node(graph: Graph) -> Iterator[Node]:
    """All nodes, those of a group's subgraph behind the group."""
    for node in graph.all_nodes():
        yield node
        inner = node.attributes.get(SUBGRAPH)
        if isinstance(inner, Graph):
            yield from every_node(inner)
