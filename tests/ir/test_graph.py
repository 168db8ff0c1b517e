"""The graph's own operations: uses, lists of nodes, copies."""

from __future__ import annotations

import pytest

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Use, copy_node
from gpujit.ir.parser import parse_graph
from gpujit.ir.verify import verify
from gpujit.support.errors import InternalError

TEXT = """graph(%x : Tensor,
      %c : bool):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::add(%x, %x, %one)
  %z : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::relu(%y)
      -> (%a)
    block1():
      -> (%x)
  %w : Tensor = aten::mul(%z, %y)
  return (%w)
"""


@pytest.fixture
def graph() -> Graph:
    return parse_graph(TEXT)


def node_of(graph: Graph, kind: str) -> Node:
    return next(n for n in graph.all_nodes() if n.kind == kind)


def test_order_of_nodes(graph: Graph) -> None:
    kinds = ["prim::Constant", "aten::add", "prim::If", "aten::relu", "aten::mul"]
    assert [n.kind for n in graph.all_nodes()] == kinds
    assert [n.kind for n in graph.block.nodes_reversed] == ["aten::mul", "prim::If", "aten::add", "prim::Constant"]


def test_uses_follow_edits(graph: Graph) -> None:
    x, _ = graph.inputs
    add, mul = node_of(graph, "aten::add"), node_of(graph, "aten::mul")
    assert [(u.node.kind, u.index) for u in x.uses] == [("aten::add", 0), ("aten::add", 1), ("prim::Return", 0)]
    mul.set_input(1, x)
    assert Use(mul, 1) in x.uses
    add.remove_input(0)
    assert [v.name for v in add.inputs] == ["x", "one"]
    assert Use(add, 0) in x.uses
    assert Use(add, 1) not in x.uses
    mul.add_input(add.output)
    mul.remove_all_inputs()
    assert not mul.inputs
    verify(graph)


def test_replacing_all_uses(graph: Graph) -> None:
    x, _ = graph.inputs
    y = node_of(graph, "aten::add").output
    y.replace_all_uses_with(x)
    y.replace_all_uses_with(x)
    x.replace_all_uses_with(x)
    assert not y.uses
    assert node_of(graph, "aten::relu").inputs[0] is x
    verify(graph)
    y.node.destroy()
    verify(graph)


def test_nodes_move_and_go(graph: Graph) -> None:
    one, mul = node_of(graph, "prim::Constant"), node_of(graph, "aten::mul")
    extra = Node("prim::Print", [one.output]).insert_after(one)
    extra.move_before(mul)
    verify(graph)
    with pytest.raises(InternalError, match="is destroyed while"):
        one.destroy()
    extra.destroy()
    branch = node_of(graph, "prim::If")
    branch.output.replace_all_uses_with(graph.inputs[0])
    branch.destroy()
    assert [n.kind for n in graph.all_nodes()] == ["prim::Constant", "aten::add", "aten::mul"]
    verify(graph)


def test_a_node_may_be_destroyed_while_iterating(graph: Graph) -> None:
    for node in graph.block.nodes:
        if node.kind == "aten::mul":
            node.output.replace_all_uses_with(graph.inputs[0])
            node.destroy()
    assert "aten::mul" not in str(graph)


def test_outputs_come_and_go() -> None:
    graph = Graph()
    node = graph.block.append(Node("prim::Two"))
    a, b = node.add_output(name="a"), node.add_output(T.INT, "b")
    with pytest.raises(InternalError, match="2 outputs"):
        _ = node.output
    graph.add_output(b)
    with pytest.raises(InternalError, match="still read"):
        node.remove_output(1)
    node.remove_output(0)
    assert b.index == 0
    assert node.output is b
    assert a not in node.outputs
    verify(graph)


def test_constants() -> None:
    graph = Graph()
    value, none = graph.constant(3, T.INT), graph.constant(None, T.NONE)
    assert value.is_constant
    assert value.constant() == 3
    assert none.constant() is None
    assert none.node.attributes == {}
    with pytest.raises(InternalError, match="no constant"):
        graph.add_input(name="x").constant()


def test_a_copy_shares_nothing_that_changes(graph: Graph) -> None:
    other = graph.copy()
    assert str(other) == str(graph) == TEXT
    verify(other)
    node_of(other, "aten::mul").set_input(0, other.inputs[0])
    node_of(other, "prim::Constant").attributes["value"] = 2
    assert str(graph) == TEXT
    with pytest.raises(KeyError):
        copy_node(node_of(graph, "aten::mul"), other.block, {})
