"""Graphs as text: layout, names, every kind of attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import describe, print_graph, print_node
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject

COLOR = T.EnumType("__torch__.Color", T.INT, {"RED": 1})
POINT = T.TupleType((T.INT, T.STR), "__torch__.Point", ("x", "y"))


def constant_text(value: Any, t: T.Type) -> str:
    """The text between brackets of a constant."""
    graph = Graph()
    graph.constant(value, t)
    line = str(graph).split("\n")[1]
    return line.partition("prim::Constant[value=")[2].rpartition("]()")[0]


GOLDEN = r"""graph(%x : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu),
      %y.1 : Tensor?):
  %8 : int = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %12 : bool = aten::__is__(%y.1, %none) # model.py:3:7
  %16 : Tensor, %k : int = prim::If(%12) # model.py:3:4
    block0():
      -> (%x, %8)
    block1():
      %17 : Tensor = prim::unchecked_cast(%y.1)
      %t : bool = prim::Constant[value=1]()
      %acc : Tensor = prim::Loop(%8, %t, %17)
        block0(%i : int, %a : Tensor):
          %b : Tensor = aten::relu(%a)
           = prim::Print(%i, %b)
          -> (%t, %b)
      -> (%acc, %8)
   = prim::If(%12)
    block0():
      -> ()
    block1():
      -> ()
  %is : bool = prim::isinstance[types=[int, Tensor?, (int, str)]](%16)
  return (%16, %k)
"""


def test_the_layout_is_that_of_torch() -> None:
    assert str(parse_graph(GOLDEN)) == GOLDEN


def test_empty_graph() -> None:
    assert str(Graph()) == "graph():\n  return ()\n"


def test_names_are_kept_and_made_unique() -> None:
    graph = Graph()
    names = ["x", "x", "", "0", "a b", "a_b", "2", "", "x.1", "%", "self.layer.weight", "x"]
    for name in names:
        graph.add_input(T.INT, name)
    text = str(graph)
    shown = [line.partition("%")[2].partition(" ")[0] for line in text.split("\n")[: len(names)]]
    assert shown == ["x", "x.2", "1", "0", "a_b.1", "a_b", "2", "3", "x.1", "_", "self.layer.weight", "x.3"]
    assert str(parse_graph(text)) == text


def test_canonical_text_numbers_values_and_hides_places() -> None:
    text = "graph(%a : int):\n  %b : int = aten::neg(%a) # f.py:1:2\n  return (%b)\n"
    assert print_graph(parse_graph(text), canonical=True) == (
        "graph(%0 : int):\n  %1 : int = aten::neg(%0)\n  return (%1)\n"
    )
    assert "f.py" not in print_graph(parse_graph(text), sources=False)


def test_places_are_one_line() -> None:
    graph = Graph()
    node = graph.block.append(Node("prim::Print"))
    node.source = SourceRange(Source("my  dir/a\nb #1.py", "text", first_line=10), 3, 4, 3, 9)
    assert str(graph).split("\n")[1] == "   = prim::Print() # my dir/a b #1.py:12:4"
    assert str(parse_graph(str(graph))) == str(graph)


@pytest.mark.parametrize(
    ("value", "t", "text"),
    [
        (3, T.INT, "3"),
        (-(2**63), T.INT, "-9223372036854775808"),
        (True, T.BOOL, "1"),
        (False, T.BOOL, "0"),
        (1.0, T.FLOAT, "1."),
        (1e-30, T.FLOAT, "1.0000000000000001e-30"),
        (float("-inf"), T.FLOAT, "-inf"),
        (float("nan"), T.FLOAT, "nan"),
        (-0.0, T.FLOAT, "-0."),
        (1 + 2j, T.COMPLEX, "1.+2.j"),
        (complex(-0.5, float("-inf")), T.COMPLEX, "-0.5-infj"),
        ("a\"b\\c\n\té\x01\u20ac\U0001f600", T.STR, r'"a\"b\\c\n\t\xe9\x01\u20ac\U0001f600"'),
        ([1, 2], T.ListType(T.INT), "[1, 2]"),
        ([], T.ListType(T.FLOAT), "[]"),
        ([[True], []], T.ListType(T.ListType(T.BOOL)), "[[1], []]"),
        ((1, None), T.TupleType((T.INT, T.NONE)), "(1, None)"),
        ((True,), T.TupleType((T.BOOL,)), "(1,)"),
        ((True, 1), T.ANY, "(True, 1)"),
        ({"a": True}, T.DictType(T.STR, T.BOOL), '{"a": 1}'),
        ({}, T.DictType(T.STR, T.INT), "{}"),
        (Device("cuda", 1), T.DEVICE, '"cuda:1"'),
        (Device("cuda", 1), T.optional(T.DEVICE), '"cuda:1"'),
        (Device("cpu"), T.ANY, 'Device("cpu")'),
        (EnumValue(COLOR, "RED", 1), COLOR, "__torch__.Color.RED"),
        ([EnumValue(COLOR, "RED", 1)], T.ANY, "[Enum<__torch__.Color>.RED]"),
        ([None, [1]], T.ListType(T.optional(T.ListType(T.INT))), "[None, [1]]"),
    ],
)  # fmt: skip
def test_constants(value: Any, t: T.Type, text: str) -> None:
    assert constant_text(value, t) == text
    graph = Graph()
    graph.add_output(graph.constant(value, t))
    back = parse_graph(str(graph), types={COLOR.name: COLOR})
    assert str(back) == str(graph)
    again = back.outputs[0].constant()
    assert repr(again) == repr(value)
    assert back.outputs[0].type == t


def test_named_tuples_come_back_as_their_class() -> None:
    graph = parse_graph(
        'graph():\n  %p : __torch__.Point = prim::Constant[value=(1, "a")]()\n  return (%p)\n',
        types={"__torch__.Point": POINT},
    )
    assert graph.outputs[0].constant().x == 1


def test_values_without_text_go_to_a_list() -> None:
    array, other = np.zeros((2, 3), np.float32), ScriptObject(T.ClassType("__torch__.M"))
    graph = Graph()
    for value, t in (
        (array, T.TENSOR),
        (other, other.type),
        (array, T.TENSOR),
        ([array, array[0]], T.ListType(T.TENSOR)),
    ):
        graph.constant(value, t)
    found: list[Any] = []
    text = print_graph(graph, constants=found)
    assert text == (
        "graph():\n"
        "  %0 : Tensor = prim::Constant[value=CONSTANTS.c0]() # float32[2, 3]\n"
        "  %1 : __torch__.M = prim::Constant[value=CONSTANTS.c1]() # ScriptObject\n"
        "  %2 : Tensor = prim::Constant[value=CONSTANTS.c0]() # float32[2, 3]\n"
        "  %3 : Tensor[] = prim::Constant[value=[CONSTANTS.c0, CONSTANTS.c2]]() # float32[2, 3]; float32[3]\n"
        "  return ()\n"
    )
    assert [found[0] is array, found[1] is other, len(found)] == [True, True, 3]
    assert print_graph(graph) == text
    assert print_graph(parse_graph(text)) == text
    back = parse_graph(text, constants=found)
    assert next(back.nodes).output.constant() is array
    assert print_graph(back, constants=found) == text
    assert "#" not in print_graph(graph, canonical=True)


def test_constants_and_places_share_the_comment() -> None:
    graph = Graph()
    node = graph.constant(np.ones(2), T.TENSOR).node
    node.source = SourceRange(Source("m.py", ""), 1, 2, 1, 2)
    text = str(graph)
    assert "[value=CONSTANTS.c0]() # float64[2] # m.py:1:2\n" in text
    assert str(parse_graph(text)) == text
    bare = text.replace(" # float64[2]", "")
    assert str(next(parse_graph(bare).nodes).source) == "m.py:1:2"


def test_descriptions() -> None:
    assert describe(np.zeros(())) == "float64[]"
    assert describe(QTensor(np.zeros(3, np.int8), 12, 0.5, 0)) == "qint8[3]"
    assert describe(object()) == "object"


def test_functions_are_named() -> None:
    f = Function("__torch__.helper", lambda: None)  # type: ignore[arg-type, return-value]
    graph = Graph()
    graph.add_output(graph.constant(f, T.FUNCTION))
    text = str(graph)
    assert '%0 : Function = prim::Constant[name="__torch__.helper"]()' in text
    assert parse_graph(text, functions={f.name: f}).outputs[0].constant() is f
    assert str(parse_graph(text)) == text


def test_attributes_of_any_node() -> None:
    text = (
        "graph(%x : __torch__.M):\n"
        '  %a : Tensor = prim::GetAttr[name="a"](%x)\n'
        '   = aten::warn[warn_id=0, flag=True, t=__torch__.N[], u=Type((int, str)), d=Device("cpu"), n=None](%a)\n'
        "  return (%a)\n"
    )
    graph = parse_graph(text)
    assert str(graph) == text
    node = list(graph.nodes)[1]
    assert node.attributes["flag"] is True
    assert node.attributes["u"] == T.TupleType((T.INT, T.STR))
    assert node.attributes["d"] == Device("cpu")


SUBGRAPHS = """graph(%x : Tensor):
  %0 : Future(Tensor) = prim::fork_0(%x)
  %1 : Tensor = prim::Group_1[fast=1](%x)
   = prim::Other[body=graph_2]()
  return (%0, %1)
with prim::fork_0 = graph(%x : Tensor):
  %0 : Future(Tensor) = prim::fork_0(%x)
  %1 : Tensor = aten::wait(%0)
  return (%1)
with prim::fork_0 = graph(%x : Tensor):
  return (%x)
with prim::Group_1 = graph(%x : Tensor):
  return (%x)
with graph_2 = graph():
  return ()
"""


def test_subgraphs_follow_the_graph_that_holds_them() -> None:
    graph = parse_graph(SUBGRAPHS)
    assert [n.kind for n in graph.nodes] == ["prim::fork", "prim::Group", "prim::Other"]
    assert str(graph) == SUBGRAPHS


def test_one_node_for_messages() -> None:
    graph = parse_graph(GOLDEN)
    node = next(n for n in graph.nodes if n.kind == "prim::If")
    assert print_node(node) == "%16 : Tensor, %k : int = prim::If(%12)"
    node.outputs[0].name = ""
    assert print_node(node) == "%? : Tensor, %k : int = prim::If(%12)"
    assert print_node(node, graph) == "%0 : Tensor, %k : int = prim::If(%12)"


PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PAYLOADS)
@settings(max_examples=200, deadline=None)
def test_any_plain_payload_survives(value: Any) -> None:
    graph = Graph()
    graph.add_output(graph.constant(value, T.ANY))
    back = parse_graph(str(graph))
    assert str(back) == str(graph)
    assert repr(back.outputs[0].constant()) == repr(value)


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_name_prints(name: str) -> None:
    graph = Graph()
    graph.add_output(graph.add_input(T.INT, name))
    graph.add_input(T.INT, name)
    assert str(parse_graph(str(graph))) == str(graph)
