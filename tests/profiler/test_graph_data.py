"""Pictures as the page's data: scopes before what lies in them, no long lists, groups told before fusion."""

from __future__ import annotations

from typing import Any

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.source import CallSite
from gpujit.pictures.build import picture_of
from gpujit.profiler.data import GroupProfile, Place
from gpujit.profiler.graph_data import MAX_CHILDREN, MAX_DEPTH, drawing, groups_before
from tests.profiler.samples import GROUP_TEXT, chain


def data_of(graph: Graph) -> dict[str, Any]:
    found = drawing(picture_of(graph), "fused", "After fusion", str)
    check(found.data)
    return found.data


def check(data: dict[str, Any]) -> None:
    """What the page relies on."""
    scopes, nodes = data["scopes"], data["nodes"]
    assert scopes[0]["p"] == -1
    assert all(0 <= s["p"] < i for i, s in enumerate(scopes) if i)
    assert all(0 <= n["p"] < len(scopes) for n in nodes)
    assert all(0 <= a < len(nodes) and 0 <= b < len(nodes) and a != b for a, b, _ in data["edges"])
    sizes = [0] * len(scopes)
    for each in (*scopes[1:], *nodes):
        sizes[each["p"]] += 1
    assert max(sizes) <= MAX_CHILDREN
    assert min(sizes[1:], default=1) > 0


def modules(graph: Graph, paths: dict[str, str]) -> Graph:
    for node in graph.all_nodes():
        if node.kind in paths:
            node.call = CallSite("forward", None, None, paths[node.kind])
    return graph


def test_a_group_is_a_scope_with_its_number() -> None:
    data = data_of(parse_graph(GROUP_TEXT))
    (group,) = [i for i, s in enumerate(data["scopes"]) if s["k"] == "fusion group"]
    assert data["scopes"][group]["l"] == "group 0: relu+tanh" and data["scopes"][group]["g"] == 0
    inside = {n["l"] for n in data["nodes"] if n["p"] == group}
    assert inside == {"relu", "tanh"}
    names = [n["l"] for n in data["nodes"]]
    edges = {(names[a], names[b], text) for a, b, text in data["edges"]}
    assert {("x", "relu", "float32[4, 8]"), ("relu", "tanh", "float32[4, 8]")} <= edges
    assert ("tanh", "softmax", "float32[4, 8]") in edges


def test_modules_are_scopes_inside_one_another() -> None:
    graph = modules(parse_graph(chain(4)), {"aten::relu": "encoder.0", "aten::tanh": "encoder.1"})
    data = data_of(graph)
    labels = [s["l"] for s in data["scopes"]]
    zero = data["scopes"][labels.index("0")]
    assert labels[zero["p"]] == "encoder" and zero["k"] == "module"


def test_long_lists_come_in_stretches() -> None:
    data = data_of(parse_graph(chain(5000)))
    assert {s["k"] for s in data["scopes"][1:]} == {"stretch"}
    assert len(data["nodes"]) == 5002


def test_deep_modules_end_in_one_scope() -> None:
    graph = modules(parse_graph(chain(3)), {"aten::relu": ".".join("a" * 200)})
    data = data_of(graph)
    assert len(data["scopes"]) <= MAX_DEPTH + 2


def test_branches_and_loops() -> None:
    graph = parse_graph(
        """graph(%x : Tensor, %c : bool):
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::relu(%x)
      -> (%a)
    block1():
      -> (%x)
  return (%y)
"""
    )
    data = data_of(graph)
    assert "if" in {s["k"] for s in data["scopes"]}
    assert "relu" in {n["l"] for n in data["nodes"]}


def group(number: int, *places: tuple[str, Place]) -> GroupProfile:
    return GroupProfile(number, "", tuple(p[0] for p in places), tuple(p[1] for p in places), 0, "", "")


def test_nodes_of_one_line_belong_to_groups_by_module_and_order() -> None:
    text = """graph(%x : Tensor):
  %a : Tensor = aten::relu(%x) # f.py:3:0
  %b : Tensor = aten::relu(%a) # f.py:3:0
  %c : Tensor = aten::tanh(%b) # f.py:4:0
  %d : Tensor = aten::tanh(%c) # f.py:4:0
  return (%d)
"""
    graph = parse_graph(text)
    a, b, c, d = graph.nodes
    line, other = Place("f.py:3"), Place("f.py:4", module="m")
    # Both lines that compute relu are in groups; of those that compute tanh, one is, and modules tell which.
    d.call = CallSite("forward", None, None, "m")
    found = groups_before(graph, [group(0, ("relu", line)), group(1, ("relu", line), ("tanh", other))])
    assert found == {a: 0, b: 1, d: 1}
    # Which of two is in a group cannot be told.
    assert groups_before(graph, [group(0, ("relu", line))]) == {}
    assert c not in found
