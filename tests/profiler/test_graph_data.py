"""Pictures as the page's data: scopes before what lies in them, no long lists, groups told before fusion."""

from __future__ import annotations

from typing import Any

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.source import CallSite
from gpujit.pictures.build import picture_of
from gpujit.profiler.data import GroupProfile, Place
from gpujit.profiler.graph_data import MAX_CHILDREN, MAX_DEPTH, drawing, mark_of, steps_of
from tests.profiler.samples import GROUP_TEXT, chain, profile, step


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


def test_a_group_is_a_scope() -> None:
    data = data_of(parse_graph(GROUP_TEXT))
    (group,) = [i for i, s in enumerate(data["scopes"]) if s["k"] == "fusion group"]
    assert data["scopes"][group]["l"] == "relu+tanh"
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


def test_nodes_belong_to_steps_by_line_module_and_order() -> None:
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
    d.call = CallSite("forward", None, None, "m")
    first = step(0, "relu", 1e-6, place=line)
    second = step(1, "relu+tanh", 1e-6, place=line, group=5)
    group = GroupProfile(5, "relu+tanh", ("relu", "tanh"), (line, other), 0, "", "")
    # Of the lines that compute tanh one belongs to the group: that of its module.
    found = steps_of(graph, profile(steps=(first, second), groups=(group,)))
    assert found == {a: first, b: second, d: second}
    assert c not in found
    # Which of two is the only step cannot be told.
    assert steps_of(graph, profile(steps=(first,))) == {}


def test_groups_are_numbered_as_the_profile_does() -> None:
    graph = parse_graph(GROUP_TEXT)
    places = (Place("code/__torch__.py:20"), Place("code/__torch__.py:21"))
    found = profile(
        steps=(step(0, "relu+tanh", 1e-6, group=7),),
        groups=(GroupProfile(7, "relu+tanh", ("relu", "tanh"), places, 0, "", ""),),
    )
    marks = {n: mark_of(s) for n, s in steps_of(graph, found).items()}
    data = drawing(picture_of(graph, marks=marks), "fused", "After fusion", str).data
    (group,) = [s for s in data["scopes"] if s["k"] == "fusion group"]
    assert group["l"] == "group 7: relu+tanh" and group["g"] == 7
    assert sorted(n["l"] for n in data["nodes"] if n["g"] == 7) == ["relu", "tanh"]
    (relu,) = [n for n in data["nodes"] if n["l"] == "relu"]
    assert ["runs on", "native kernel"] in relu["f"] and ["its step takes", "1.00 µs"] in relu["f"]
