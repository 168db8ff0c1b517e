"""Graphs from text, specialised and compared with what they were made from."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from gpujit.passes.specialise.main import Specialised, key_of, specialise
from gpujit.testing import assert_same_graph, resolve_node
from tests.passes.random_graphs import assert_same_outcome, outcome


def f32(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.float32) - 2).reshape(shape)


def read(text: str, types: dict[str, T.Type] | None = None) -> Graph:
    """The graph of an indented text."""
    graph = parse_graph(textwrap.dedent(text).strip(), types=types, resolve=resolve_node)
    verify(graph)
    return graph


def check(text: str, *values: Any, types: dict[str, T.Type] | None = None, after: str | None = None) -> Specialised:
    """The specialised graph for these inputs, once it was seen to verify, to keep its text and to mean the same."""
    graph = read(text, types)
    found = specialise(graph, key_of(graph, values))
    verify(found.graph)
    assert found.check(values) is None
    assert str(graph) == str(read(text, types)), "the graph itself was changed"
    if types is None:
        printed = print_graph(found.graph, sources=False)
        assert print_graph(parse_graph(printed, resolve=resolve_node), sources=False) == printed
        assert_same_outcome(outcome(found.graph, values), outcome(graph, values))
    if after is not None:
        assert_same_graph(found.graph, read(after, types))
    return found


def kinds(graph: Graph) -> list[str]:
    """Kinds of all nodes but constants."""
    return [node.kind for node in graph.all_nodes() if node.kind != "prim::Constant"]
