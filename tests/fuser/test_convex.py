"""Reachability while vertices merge, against networkx."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from gpujit.fuser.convex import Reach


@st.composite
def merges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    count = draw(st.integers(2, 9))
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] != p[1])
    edges = [(min(p), max(p)) for p in draw(st.lists(pair, max_size=20))]
    return count, edges, draw(st.lists(pair, max_size=8))


@given(merges())
def test_against_networkx(case: tuple[int, list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    count, edges, pairs = case
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    reach = Reach(graph)
    for a, b in pairs:
        a, b = reach.name(a), reach.name(b)
        if a == b:
            continue
        assert reach.is_independent(a, b) == (not nx.has_path(graph, a, b) and not nx.has_path(graph, b, a))
        merged = nx.contracted_nodes(graph, b, a, self_loops=False, copy=True)
        assert reach.is_convex(a, b) == nx.is_directed_acyclic_graph(merged)
        if reach.is_convex(a, b):
            assert reach.merge(a, b) == b
            graph = merged
