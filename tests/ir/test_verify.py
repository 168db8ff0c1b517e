"""Every invariant: graphs that keep it, and one that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Use, Value
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import OpaqueConstant, print_graph
from gpujit.ir.schema import Schema, parse_schema
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject
from gpujit.ir.verify import holds, verify
from gpujit.support.errors import VerifyError

TEXT = """graph(%x : Tensor,
      %c : bool,
      %n : int):
  %y : Tensor = aten::relu(%x)
  %z : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::relu(%y)
      -> (%a)
    block1():
      %b : Tensor = aten::neg(%y)
      -> (%b)
  %w : Tensor = prim::Loop(%n, %c, %z)
    block0(%i : int, %t : Tensor):
      %u : Tensor = aten::mul(%t, %y)
      -> (%c, %u)
  %r : Tensor = aten::add(%w, %y)
  return (%r)
"""

A_CLASS = T.ClassType("__torch__.A")
AN_ENUM = T.EnumType("__torch__.E", T.INT)


class Named:
    """A graph and its values and nodes by name."""

    def __init__(self, text: str = TEXT) -> None:
        self.graph = parse_graph(text)
        self.nodes = list(self.graph.all_nodes())
        blocks = [self.graph.block, *(b for n in self.nodes for b in n.blocks)]
        values = [v for b in blocks for v in b.params] + [v for n in self.nodes for v in n.outputs]
        self.values = {v.name: v for v in values}

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def node(self, name: str) -> Node:
        return self.values[name].node


def _swap_in(name: str, index: int, other: str) -> Callable[[Named], None]:
    return lambda g: g.node(name).set_input(index, g[other])


def _drop_use(g: Named) -> None:
    g["y"].uses.pop()


def _foreign_input(g: Named) -> None:
    g.node("r").set_input(0, Named()["w"])


def _uses_of_a_removed_node(g: Named) -> None:
    g["y"].uses.append(Use(Node("aten::gone"), 0))


def _second_graph(g: Named) -> None:
    g.node("z").blocks[0].graph = Graph()


def _set(name: str, attribute: str, value: Any) -> Callable[[Named], None]:
    return lambda g: setattr(g[name], attribute, value)


MUTATIONS: list[tuple[str, Callable[[Named], Any], str]] = [
    ("scope", _swap_in("r", 1, "a"), "input 1, %a, is defined in block0 of %z : Tensor = prim::If(%c)"),
    ("scope", _swap_in("b", 0, "a"), "input 0, %a, is defined in block0"),
    ("scope", _swap_in("a", 0, "z"), "input 0, %z, is read before it is defined"),
    ("scope", _swap_in("y", 0, "r"), "input 0, %r, is read before it is defined"),
    ("scope", _swap_in("y", 0, "y"), "input 0, %y, is read before it is defined"),
    ("scope", _swap_in("r", 0, "i"), "input 0, %i, is defined in block0 of %w"),
    ("scope", _foreign_input, "input 0, %w, is no value of this graph"),
    ("scope", lambda g: g.node("w").blocks[0].return_node.set_input(1, g["r"]), "%r, is read before it is defined"),
    ("scope", lambda g: g.node("y").move_before(g.graph.block.return_node), "%y, is read before it is defined"),
    ("uses", _drop_use, "%y lists 3 uses and is read 4 times"),
    ("uses", lambda g: g["y"].uses.append(g["y"].uses[0]), "%y lists a use twice"),
    ("uses", lambda g: g["x"].uses.append(g["y"].uses[0]), "%x is said to be input 0, but is not"),
    ("uses", _uses_of_a_removed_node, "%y lists a use by aten::gone, which is not in the graph"),
    ("links", lambda g: setattr(g.node("r"), "block", None), "the node points to another block"),
    ("links", lambda g: setattr(g.node("z"), "prev", g.node("r")), "the next node does not point back"),
    ("links", lambda g: setattr(g.node("y"), "next", g.node("y")), "the next node does not point back"),
    ("links", lambda g: setattr(g.node("y"), "next", None), "the next node does not point back"),
    ("links", lambda g: setattr(g.graph.block.return_node, "next", g.node("y")), "the ring does not close"),
    ("links", lambda g: setattr(g.node("z").blocks[0], "owner", g.node("w")), "one of its blocks has another owner"),
    ("links", _second_graph, "the block points to another graph"),
    ("links", _set("y", "index", 1), "output 0 does not know"),
    ("links", lambda g: setattr(g.graph.block, "owner", g.node("y")), "a graph's own block has an owner"),
    ("links", lambda g: g.graph.block.return_node.add_output(), "prim::Return outputs"),
    ("links", lambda g: setattr(g.graph.block.param_node, "kind", "prim::Blah"), "expected prim::Param"),
    ("if", _swap_in("z", 0, "n"), "takes one bool, found (int)"),
    ("if", lambda g: g.node("z").add_block(), "has 3 blocks instead of 2"),
    ("if", lambda g: g.node("z").blocks[0].add_param(), "block0 has parameters"),
    ("if", lambda g: g.node("z").blocks[1].add_return(g["x"]), "block1: 2 values for 1"),
    ("if", _set("a", "type", T.INT), "block0: value 0 is int, which does not fit Tensor"),
    ("loop", _swap_in("w", 0, "c"), "takes an int, a bool and carried values, found (bool, bool, Tensor)"),
    ("loop", lambda g: g.node("w").add_block(), "has 2 blocks instead of 1"),
    ("loop", _set("i", "type", T.FLOAT), "the block's first parameter is the int trip, found (float, Tensor)"),
    ("loop", lambda g: g.node("w").add_input(g["x"]), "the carried values, given to the block's parameters,: 2 values"),
    ("loop", lambda g: g.node("w").blocks[0].return_node.set_input(0, g["u"]), "first returns the bool condition"),
    ("loop", lambda g: g.node("w").blocks[0].add_return(g["u"]), "the block's results, given to its parameters,: 2"),
    ("loop", _set("w", "type", T.TensorType(6)), "the carried values: value 0 is Tensor, which does not fit Float"),
    ("loop", lambda g: g.node("w").add_output(), "the carried values: 1 values for 2"),
]


@pytest.mark.parametrize(("invariant", "mutate", "message"), MUTATIONS)
def test_each_mutation_is_caught(invariant: str, mutate: Callable[[Named], Any], message: str) -> None:
    g = Named()
    verify(g.graph)
    mutate(g)
    with pytest.raises(VerifyError) as caught:
        verify(g.graph)
    assert caught.value.message.startswith(f"{invariant}: ")
    assert message in caught.value.message


def test_the_message_shows_node_block_and_source() -> None:
    g = Named()
    g["y"].name = ""
    g.node("a").source = SourceRange(Source("model.py", ""), 3, 4, 3, 4)
    g.node("a").set_input(0, g["r"])
    with pytest.raises(VerifyError) as caught:
        verify(g.graph)
    assert str(caught.value) == (
        "scope: input 0, %r, is read before it is defined\n"
        "  node   %a : Tensor = aten::relu(%r)\n"
        "  block  block0 of %z : Tensor = prim::If(%c)\n"
        "  source model.py:3:4"
    )


# Text that parses and breaks an invariant.
BROKEN = [
    ("constant", "%a : int = prim::Constant[value=1.5]()", "a float does not fit int"),
    ("constant", "%a : int = prim::Constant[value=True]()", "a bool does not fit int"),
    ("constant", "%a : int = prim::Constant()", "a NoneType does not fit int"),
    ("constant", "%a : NoneType = prim::Constant[value=1]()", "a int does not fit NoneType"),
    ("constant", "%a : int[] = prim::Constant[value=[1, 2.]]()", "a list does not fit int[]"),
    ("constant", "%a : (int, str) = prim::Constant[value=(1, 2)]()", "a tuple does not fit (int, str)"),
    ("constant", "%a : int = prim::Constant[value=1](%x)", "neither inputs nor blocks"),
    ("containers", "%a : int[] = prim::ListConstruct(%n, %x)", "value 1 is Tensor, int[] needs int"),
    ("containers", "%a : Tensor = prim::ListConstruct(%x)", "1 values for Tensor"),
    ("containers", "%a : (int, int) = prim::TupleConstruct(%n)", "1 values for (int, int)"),
    ("containers", "%a : (int, int) = prim::TupleConstruct(%n, %x)", "value 1 is Tensor, (int, int) needs int"),
    ("containers", "%a : int, %b : int = prim::TupleUnpack(%t)", "2 values for (int, str, Tensor)"),
    ("containers", "%a : int, %b : int, %c : Tensor = prim::TupleUnpack(%t)", "value 1 is int"),
    ("containers", "%a : int, %b : int = prim::TupleUnpack(%t, %t)", "has 2 inputs instead of 1"),
    ("containers", "%a : Dict(str, int) = prim::DictConstruct(%s)", "1 values for Dict(str, int)"),
    ("containers", "%a : Dict(str, int) = prim::DictConstruct(%s, %s)", "value 1 is str"),
    ("attributes", "%a : int = prim::GetAttr[name=\"b\"](%m)", "__torch__.M has no attribute b; it has w, k"),
    ("attributes", "%a : int = prim::GetAttr[name=\"w\"](%m)", "attribute w of __torch__.M is Tensor, found int"),
    ("attributes", "%a : int = prim::GetAttr(%m)", "has no attribute 'name'"),
    ("attributes", "%a : int = prim::GetAttr[name=\"w\"](%m, %m)", "takes an object"),
    ("attributes", "%a : int = prim::GetAttr[name=\"w\"](%x)", "reads from a class, found Tensor"),
    ("attributes", "= prim::SetAttr[name=\"k\"](%m, %x)", "attribute k of __torch__.M is int, found Tensor"),
    ("attributes", "= prim::SetAttr[name=\"size\"](%m, %n)", "has no attribute size"),
]  # fmt: skip
HEAD = "graph(%x : Tensor, %n : int, %s : str, %t : (int, str, Tensor), %m : __torch__.M, %p : __torch__.P):\n  "


def module_type() -> T.ClassType:
    m = T.ClassType("__torch__.M", is_module=True)
    m.add_attribute("w", T.TENSOR)
    m.add_attribute("k", T.INT)
    m.constants["size"] = (T.INT, 3)
    return m


@pytest.mark.parametrize(("invariant", "line", "message"), BROKEN, ids=[b[1] for b in BROKEN])
def test_broken_nodes(invariant: str, line: str, message: str) -> None:
    graph = parse_graph(f"{HEAD}{line}\n  return ()", types={"__torch__.M": module_type()})
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert caught.value.message.startswith(f"{invariant}: ")
    assert message in caught.value.message


GOOD = """
%a : Tensor = prim::GetAttr[name="w"](%m)
%a : Float(2) = prim::GetAttr[name="w"](%m)
%a : int = prim::GetAttr[name="size"](%m)
%a : int = prim::GetAttr[name="anything"](%p)
= prim::SetAttr[name="k"](%m, %n)
%a : Tensor?[] = prim::ListConstruct(%x, %x)
%a : int[] = prim::ListConstruct()
%a : (Scalar, Tensor?) = prim::TupleConstruct(%n, %x)
%a : __torch__.Point = prim::TupleConstruct(%n, %x)
%a : int, %b : str, %c : Tensor = prim::TupleUnpack(%t)
%a : int?, %b : str, %c : Float(2) = prim::TupleUnpack(%t)
%a : Dict(str, Scalar) = prim::DictConstruct(%s, %n, %s, %n)
%a : Float(2) = prim::Constant[value=<Tensor>]()
%a : int? = prim::Constant()
%a : Union[int, str] = prim::Constant[value="a"]()
%a : Any = prim::Constant()
""".strip().split("\n")


@pytest.mark.parametrize("line", GOOD)
def test_good_nodes(line: str) -> None:
    verify(parse_graph(f"{HEAD}{line}\n  return ()", types={"__torch__.M": module_type()}))


SCHEMAS = [
    ("aten::relu(Tensor self) -> Tensor", "%a : Tensor = aten::relu(%x)", None),
    ("aten::relu(Tensor self) -> Tensor", "%a : Float(2) = aten::relu(%x)", None),
    ("aten::relu(Tensor self) -> Tensor", "%a : Tensor = aten::relu(%n)", "argument self of"),
    ("aten::relu(Tensor self) -> Tensor", "%a : Tensor = aten::relu(%x, %x)", "takes 1 arguments, found 2"),
    ("aten::relu(Tensor self) -> Tensor", "%a : Tensor = aten::relu()", "takes 1 arguments, found 0"),
    ("aten::relu(Tensor self) -> Tensor", "= aten::relu(%x)", "returns 1 values, found 0"),
    ("aten::relu(Tensor self) -> Tensor", "%a : int = aten::relu(%x)", "output 0 of"),
    ("aten::mul(Tensor self, Scalar o) -> Tensor", "%a : Tensor = aten::mul(%x, %n)", None),
    ("aten::item(Tensor self) -> Scalar", "%a : Scalar = aten::item(%x)", None),
    ("aten::item(Tensor self) -> Scalar", "%a : int = aten::item(%x)", None),
    ("aten::pool(Tensor self, int[2] k) -> Tensor", "%a : Tensor = aten::pool(%x, %n)", None),
    ("aten::pool(Tensor self, int[2]? k) -> Tensor", "%a : Tensor = aten::pool(%x, %n)", None),
    ("aten::pool(Tensor self, int[2] k) -> Tensor", "%a : Tensor = aten::pool(%x, %s)", "argument k of"),
    ("aten::pool(Tensor self, int[] k) -> Tensor", "%a : Tensor = aten::pool(%x, %n)", "argument k of"),
    ("aten::format(str self, ...) -> str", "%a : str = aten::format(%s, %n, %x)", None),
    ("aten::format(str self, ...) -> str", "%a : str = aten::format()", "takes 1 arguments, found 0"),
    ("aten::unpack(Any t) -> ...", "%a : int, %b : str = aten::unpack(%t)", None),
    ("aten::append(t[](a!) self, t(c -> *) el) -> t[](a!)", "%a : int[] = aten::append(%l, %n)", None),
    ("aten::append(t[](a!) self, t(c -> *) el) -> t[](a!)", "%a : int[] = aten::append(%l, %x)", "argument el of"),
    ("aten::append(t[](a!) self, t(c -> *) el) -> t[](a!)", "%a : str[] = aten::append(%l, %n)", "output 0 of"),
    ("aten::append(t[](a!) self, t(c -> *) el) -> t[](a!)", "%a : int[] = aten::append(%x, %n)", "argument self of"),
    ("aten::append(t[](a!) self, t(c -> *) el) -> t[](a!)", "%a : int[] = aten::append(%l, %on)", "argument self of"),
    ("aten::make(Tensor x) -> Dict(str, t)", "%a : Dict(str, int) = aten::make(%x)", None),
    ("aten::make(Tensor x) -> Dict(str, t)", "%a : Dict(int, int) = aten::make(%x)", "output 0 of"),
    ("aten::maybe(t? x) -> t", "%a : Tensor = aten::maybe(%none)", None),
    ("aten::get(Dict(str, t) self, str key) -> t(*)", "%a : int = aten::get(%d, %s)", None),
    ("aten::get(Dict(int, t) self, str key) -> t(*)", "%a : int = aten::get(%d, %s)", "argument self of"),
    ("aten::unwrap(t(a)? self) -> t(a)", "%a : Tensor = aten::unwrap(%o)", None),
    ("aten::unwrap(t(a)? self) -> t(a)", "%a : Tensor = aten::unwrap(%x)", None),
    ("aten::pair(t a, t b) -> t", "%a : Tensor = aten::pair(%x, %f)", None),
    ("aten::wait(Future(t) self) -> t", "%a : int = aten::wait(%w)", None),
    ("aten::wait(RRef(t) self) -> t", "%a : int = aten::wait(%w)", "argument self of"),
]
SCHEMA_HEAD = (
    "graph(%x : Tensor, %n : int, %s : str, %t : (int, str), %l : int[], %d : Dict(str, int), %o : Tensor?, "
    "%f : Float(2), %w : Future(int), %on : int?, %none : NoneType):\n  "
)


@pytest.mark.parametrize(("schema", "line", "message"), SCHEMAS)
def test_schemas(schema: str, line: str, message: str | None) -> None:
    parsed = parse_schema(schema)

    def resolve(node: Node) -> Schema | None:
        return parsed

    graph = parse_graph(f"{SCHEMA_HEAD}{line}\n  return ()", resolve=resolve)
    if message is None:
        verify(graph)
        return
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert caught.value.message.startswith("schema: ")
    assert message in caught.value.message


SUB = "\n  return ()\nwith prim::fork_0 = graph(%a : Tensor):\n  return (%a, %a)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph(%x):\n  %f : Future(Tensor) = prim::fork_0(%x)" + SUB, None),
        ("graph(%x):\n  %f : Future(Tensor) = prim::fork_0(%x, %x)" + SUB, "gives 2 values to a subgraph of 1"),
        (
            "graph(%x : int):\n  %f : Future(Tensor) = prim::fork_0(%x)" + SUB,
            "input 0 is int, the subgraph takes Tensor",
        ),
        ("graph(%x):\n  %f, %g = prim::fork_0(%x)" + SUB, "has 2 outputs instead of 1"),
        ("graph(%x):\n  %f, %g = prim::Group_0(%x)" + SUB.replace("fork", "Group"), None),
        ("graph(%x):\n  %f = prim::Group_0(%x)" + SUB.replace("fork", "Group"), "has 1 outputs instead of 2"),
    ],
)
def test_subgraphs(text: str, message: str | None) -> None:
    graph = parse_graph(text)
    if message is None:
        verify(graph)
        return
    with pytest.raises(VerifyError, match="subgraphs: "):
        verify(graph)


def test_subgraphs_are_verified_themselves() -> None:
    graph = parse_graph("graph(%x):\n  %f = prim::fork_0(%x)" + SUB)
    subgraph = next(graph.nodes).attributes["Subgraph"]
    subgraph.constant(1, T.FLOAT)
    with pytest.raises(VerifyError, match="constant: a int does not fit float"):
        verify(graph)


@pytest.mark.parametrize(
    ("value", "t", "expected"),
    [
        (np.zeros((2, 3), np.float32), T.TENSOR, True),
        (np.zeros((2, 3), np.float32), T.TensorType(6, (2, None)), True),
        (np.zeros((2, 3), np.float32), T.TensorType(7), False),
        (np.zeros((2, 3), np.float32), T.TensorType(6, (3, 2)), False),
        (np.zeros(2), T.optional(T.TENSOR), True),
        (np.float32(1), T.TENSOR, False),
        (np.array("text"), T.TENSOR, False),
        (1.0, T.TENSOR, False),
        (QTensor(np.zeros(2, np.int8), 12, 1.0, 0), T.TensorType(12, (2,)), True),
        (QTensor(np.zeros(2, np.int8), 12, 1.0, 0), T.TensorType(6), False),
        ([np.zeros(2)], T.ListType(T.TENSOR), True),
        (OpaqueConstant("<Tensor>"), T.TENSOR, True),
        (OpaqueConstant("<Tensor>"), T.INT, False),
        (True, T.NUMBER, False),
        (1j, T.NUMBER, True),
        (Device("cpu"), T.DEVICE, True),
        ("cpu", T.DEVICE, False),
        ({"a": 1}, T.DictType(T.STR, T.INT), True),
        ({"a": 1}, T.DictType(T.INT, T.INT), False),
        (EnumValue(AN_ENUM, "X", 1), AN_ENUM, True),
        (1, AN_ENUM, False),
        (ScriptObject(A_CLASS), A_CLASS, True),
        (ScriptObject(A_CLASS), T.ClassType("__torch__.B"), False),
        # Another file may define another class of that name.
        (ScriptObject(A_CLASS), T.ClassType("__torch__.A"), False),
        ([1], T.ANY_LIST, True),
        (None, T.GENERATOR, False),
    ],
)
def test_what_values_a_type_holds(value: Any, t: T.Type, expected: bool) -> None:
    assert holds(value, t) is expected


# -- random graphs ---------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of ints, bools and tensors with nested ifs and loops; some values have names."""
    graph = Graph()
    counter = iter(range(10_000))

    def name() -> str:
        return f"v.{next(counter)}" if draw(st.booleans()) else ""

    def fill(block: Block, scope: list[Value], depth: int) -> None:
        for _ in range(draw(st.integers(0, 4))):
            ints, bools, tensors = ([v for v in scope if v.type == t] for t in (T.INT, T.BOOL, T.TENSOR))
            choice = draw(st.sampled_from(["op", "constant", "if", "loop"] if depth < 3 else ["op", "constant"]))
            if choice == "op":
                node = block.append(Node("aten::add", [draw(st.sampled_from(tensors)) for _ in range(2)]))
                scope.append(node.add_output(T.TENSOR, name()))
            elif choice == "constant":
                value, t = draw(st.sampled_from([(1, T.INT), (True, T.BOOL), (None, T.NONE), ("é", T.STR)]))
                value_ = graph.constant(value, t, block)
                value_.name = name()
                scope.append(value_)
            elif choice == "if":
                node = block.append(Node("prim::If", [draw(st.sampled_from(bools))]))
                for _ in range(2):
                    inner = list(scope)
                    fill(node.add_block(), inner, depth + 1)
                    node.blocks[-1].add_return(draw(st.sampled_from([v for v in inner if v.type == T.TENSOR])))
                scope.append(node.add_output(T.TENSOR, name()))
            else:
                start = draw(st.sampled_from(tensors))
                node = block.append(
                    Node("prim::Loop", [draw(st.sampled_from(ints)), draw(st.sampled_from(bools)), start])
                )
                body = node.add_block()
                inner = [*scope, body.add_param(T.INT, name()), body.add_param(T.TENSOR, name())]
                fill(body, inner, depth + 1)
                body.add_return(draw(st.sampled_from([v for v in inner if v.type == T.BOOL])))
                body.add_return(draw(st.sampled_from([v for v in inner if v.type == T.TENSOR])))
                scope.append(node.add_output(T.TENSOR, name()))

    scope = [graph.add_input(T.TENSOR, name()), graph.add_input(T.BOOL, name()), graph.add_input(T.INT, name())]
    fill(graph.block, scope, 0)
    graph.add_output(draw(st.sampled_from(scope)))
    return graph


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_random_graphs_verify_and_survive_their_text(graph: Graph) -> None:
    verify(graph)
    text = print_graph(graph)
    back = parse_graph(text)
    verify(back)
    assert print_graph(back) == text
    assert print_graph(back, canonical=True) == print_graph(graph, canonical=True)
    copied = graph.copy()
    verify(copied)
    assert print_graph(copied) == text


@given(graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_random_damage_is_caught(graph: Graph, data: st.DataObject) -> None:
    nodes = list(graph.all_nodes())
    readers = [n for n in [*nodes, graph.block.return_node] if n.inputs]
    node = data.draw(st.sampled_from(readers))
    index = data.draw(st.integers(0, len(node.inputs) - 1))
    value = node.inputs[index]
    kind = data.draw(st.sampled_from(["drop", "extra", "foreign", "silent", "unlink"]))
    if kind == "drop":
        value.uses.remove(Use(node, index))
    elif kind == "extra":
        value.uses.append(Use(node, len(node.inputs)))
    elif kind == "foreign":
        node.set_input(index, Graph().add_input(value.type))
    elif kind == "silent":
        node._inputs[index] = graph.add_input(value.type)
    else:
        node.block = None
    with pytest.raises(VerifyError):
        verify(graph)
