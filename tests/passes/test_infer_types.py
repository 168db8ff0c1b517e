"""Type inference through whole graphs: golden types, what stays unknown, and types against what a run gives."""

from __future__ import annotations

import copy
import textwrap
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.symbols import Sym, evaluate, mul, symbol
from gpujit.ir.types import TENSOR, TensorType
from gpujit.ir.values import QTensor
from gpujit.ir.verify import verify
from gpujit.ops.infer_cases import type_of
from gpujit.ops.infer_check import admits
from gpujit.ops.rules.common import UNKNOWN
from gpujit.passes.infer.main import Facts, infer_types, infer_types_pass, symbolic_inputs
from gpujit.runtime import bytecode
from gpujit.runtime.lower import Lowerer, _FunctionLowerer
from gpujit.runtime.values import bind_arguments
from gpujit.runtime.vm import Interpreter
from gpujit.support.errors import ArgumentError
from gpujit.testing import check_pass, resolve_node
from tests.passes.corpus_models import MODELS, inputs_of
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs

S = symbol(1)


def read(text: str) -> Graph:
    """The graph of an indented text."""
    return parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node)


def named(graph: Graph, name: str) -> Value:
    """The value of a name."""
    for node in (graph.block.param_node, *graph.all_nodes()):
        for value in (*node.outputs, *(p for b in node.blocks for p in b.params)):
            if value.name == name:
                return value
    raise KeyError(name)


def text_after(text: str, *inputs: Any) -> str:
    """The graph's text with types inferred from the inputs' types; it must parse back to the same text."""
    graph = read(text)
    infer_types(graph, inputs)
    verify(graph)
    found = print_graph(graph, sources=False)
    assert print_graph(parse_graph(found, resolve=resolve_node), sources=False) == found
    return found


# ---------------------------------------------------------------------------------------------------------- golden


def test_shapes_and_dtypes_are_pushed_forward():
    check_pass(
        infer_types_pass,
        before="""
            graph(%x : Float(2, 3), %w : Half(4, 3)):
              %0 : int = prim::Constant[value=0]()
              %1 : int = prim::Constant[value=1]()
              %none : NoneType = prim::Constant()
              %t : Tensor = aten::transpose(%x, %0, %1)
              %y : Tensor = aten::relu(%t)
              %m : Tensor = aten::gt(%y, %0)
              %s : Tensor = aten::unsqueeze(%w, %0)
              return (%y, %m, %s)""",
        after="""
            graph(%x : Float(2, 3), %w : Half(4, 3)):
              %0 : int = prim::Constant[value=0]()
              %1 : int = prim::Constant[value=1]()
              %none : NoneType = prim::Constant()
              %t : Float(3, 2) = aten::transpose(%x, %0, %1)
              %y : Float(3, 2) = aten::relu(%t)
              %m : Bool(3, 2) = aten::gt(%y, %0)
              %s : Half(1, 4, 3) = aten::unsqueeze(%w, %0)
              return (%y, %m, %s)""",
    )


def test_nothing_is_changed_where_nothing_is_known():
    text = """
        graph(%x : Tensor, %n : int):
          %y : Tensor = aten::select(%x, %n, %n)
          %z : Tensor = custom::op(%y)
          return (%z)"""
    check_pass(infer_types_pass, before=text, after=text)


SIZES = """
    graph(%x : Tensor):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %2 : int = prim::Constant[value=2]()
      %minus : int = prim::Constant[value=-1]()
      %n : int = aten::size(%x, %0)
      %double : int = aten::mul(%n, %2)
      %sizes : int[] = prim::ListConstruct(%double, %minus)
      %y : Tensor = aten::view(%x, %sizes)
      return (%y)"""


def test_sizes_in_the_graph_are_followed_as_expressions():
    found = text_after(SIZES, TensorType(6, (S, 4, 6)))
    assert "%x : Float(SS(-1), 4, 6)" in found
    assert "%y : Float(2*SS(-1), 12) = aten::view" in found
    graph = read(SIZES)
    facts = infer_types(graph, [TensorType(6, (S, 4, 6))])
    assert facts.size(named(graph, "double")) == mul(2, S)
    assert facts.constant(named(graph, "double")) == (False, None)
    assert facts.constant(named(graph, "minus")) == (True, -1)


def test_sizes_with_numbers_are_constants():
    graph = read(SIZES)
    facts = infer_types(graph, [TensorType(6, (3, 4, 6))])
    assert facts.constant(named(graph, "sizes")) == (True, [6, -1])
    assert named(graph, "y").type == TensorType(6, (6, 12))


def test_a_list_that_is_changed_is_not_known():
    graph = read(
        """
        graph(%x : Float(3, 4)):
          %0 : int = prim::Constant[value=0]()
          %n : int = aten::size(%x, %0)
          %sizes : int[] = prim::ListConstruct(%n)
          %same : int[] = aten::append(%sizes, %n)
          %y : Tensor = aten::reshape(%x, %sizes)
          return (%y)"""
    )
    facts = infer_types(graph)
    assert facts.constant(named(graph, "sizes")) == (False, None)
    assert named(graph, "y").type == TensorType(6)


def test_traced_arithmetic_on_sizes_is_followed():
    text = """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %none : NoneType = prim::Constant()
          %n : int = aten::size(%x, %0)
          %t : Tensor = prim::NumToTensor(%n)
          %one : Tensor = prim::NumToTensor(%1)
          %more : Tensor = aten::add(%t, %one, %1)
          %size : int = aten::Int(%more)
          %sizes : int[] = prim::ListConstruct(%size)
          %y : Tensor = aten::zeros(%sizes, %none, %none, %none, %none)
          return (%y)"""
    found = text_after(text, TensorType(6, (S, 4)))
    assert "%y : Float(SS(-1)+1) = aten::zeros" in found


def test_an_if_joins_its_blocks():
    found = text_after(
        """
        graph(%x : Tensor, %c : bool):
          %0 : int = prim::Constant[value=0]()
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::relu(%x)
              -> (%a)
            block1():
              %b : Tensor = aten::transpose(%x, %0, %0)
              %d : Tensor = aten::unsqueeze(%x, %0)
              %e : Tensor = aten::squeeze(%d)
              -> (%b)
          return (%y)""",
        TensorType(6, (S, 4)), UNKNOWN,
    )  # fmt: skip
    assert "%y : Float(SS(-1), 4) = prim::If" in found


def test_sizes_that_differ_between_blocks_are_unknown():
    found = text_after(
        """
        graph(%x : Tensor, %z : Tensor, %c : bool):
          %y : Tensor = prim::If(%c)
            block0():
              -> (%x)
            block1():
              -> (%z)
          return (%y)""",
        TensorType(6, (S, 4)), TensorType(6, (2, 4)), UNKNOWN,
    )  # fmt: skip
    assert "%y : Float(*, 4) = prim::If" in found


LOOP = """
    graph(%x : Tensor, %n : int):
      %true : bool = prim::Constant[value=1]()
      %0 : int = prim::Constant[value=0]()
      %kept : Tensor, %grown : Tensor, %k : int = prim::Loop(%n, %true, %x, %x, %0)
        block0(%i : int, %a : Tensor, %b : Tensor, %j : int):
          %c : Tensor = aten::relu(%a)
          %both : Tensor[] = prim::ListConstruct(%b, %c)
          %d : Tensor = aten::cat(%both, %0)
          -> (%true, %c, %d, %i)
      return (%kept, %grown, %k)"""


def test_loops_are_repeated_until_nothing_changes():
    graph = read(LOOP)
    facts = infer_types(graph, [TensorType(6, (S, 4)), UNKNOWN])
    verify(graph)
    assert named(graph, "kept").type == TensorType(6, (S, 4))
    assert named(graph, "a").type == TensorType(6, (S, 4))
    assert named(graph, "grown").type == TensorType(6, (None, 4))
    assert named(graph, "b").type == TensorType(6, (None, 4))
    assert facts.size(named(graph, "k")) is None


def test_a_shape_changed_in_place_is_unknown_before_and_after():
    graph = read(
        """
        graph(%x : Float(2, 3)):
          %0 : int = prim::Constant[value=0]()
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::unsqueeze_(%a, %0)
          %c : Tensor = aten::relu(%a)
          %d : Tensor = aten::relu(%x)
          return (%b, %c, %d)"""
    )
    infer_types(graph)
    assert named(graph, "c").type.shape is None
    assert named(graph, "d").type == TensorType(6, (2, 3))


def test_an_operator_that_will_raise_is_left_alone():
    found = text_after(
        """
        graph(%x : Tensor, %y : Tensor):
          %1 : int = prim::Constant[value=1]()
          %z : Tensor = aten::add(%x, %y, %1)
          return (%z)""",
        TensorType(6, (3,)), TensorType(6, (4,)),
    )  # fmt: skip
    assert "%z : Tensor = aten::add" in found


def test_inputs_that_contradict_the_graph_are_refused():
    graph = read("graph(%x : Float(2, 3)):\n  return (%x)")
    with pytest.raises(ArgumentError, match="1 inputs, found 0"):
        infer_types(graph, [])
    with pytest.raises(ArgumentError, match="contradicts"):
        infer_types(graph, [TensorType(6, (2, 4))])
    with pytest.raises(ArgumentError, match="give a TensorType"):
        infer_types(graph, [3])


def test_symbolic_inputs_replace_sizes():
    found = symbolic_inputs([TensorType(6, (2, 3)), 5], {(0, 0): S})
    assert found == [TensorType(6, (S, 3)), 5]


# --------------------------------------------------------------------------------------------- against what a run gives


def concrete(fact: Any, sizes: dict[int, int]) -> Any:
    """A fact with numbers in place of symbols."""
    if isinstance(fact, Sym):
        return evaluate(fact, sizes)
    if isinstance(fact, TensorType):
        shape = None if fact.shape is None else tuple(concrete(n, sizes) for n in fact.shape)
        return TensorType(fact.dtype, shape)
    if type(fact) in (list, tuple):
        return type(fact)(concrete(v, sizes) for v in fact)
    return fact


class Watched(_FunctionLowerer):
    """Lowers a graph with a look at every value after the node that gives it."""

    def __init__(self, graph: Graph, facts: Facts, sizes: dict[int, int], lowerer: Lowerer) -> None:
        super().__init__(lowerer, graph.name)
        self.facts, self.sizes = facts, sizes
        self.wrong: list[str] = []
        self.seen = 0

    def node(self, node: Node, dying: Sequence[Value]) -> None:
        super().node(node, dying)
        if node.kind in ("prim::Constant", "prim::GetAttr", "prim::Uninitialized"):
            return
        for value in node.outputs:
            register = self.registers.get(value)
            if register is not None and value not in dying and value not in self.parts:
                self.add(node, bytecode.OP1, self.look(value), register, self.new_register(), ())

    def look(self, value: Value) -> Any:
        fact = concrete(self.facts.of(value), self.sizes)
        number = concrete(self.facts.numbers.get(value), self.sizes)
        t = value.type
        declared = concrete(t, self.sizes) if isinstance(t, TensorType) else TENSOR

        def call(found: Any) -> None:
            self.seen += 1
            right = hasattr(fact, "slots") or admits(fact, found)
            right = right and (declared == TENSOR or admits(declared, found))
            if not right or (number is not None and int(found) != number):
                self.wrong.append(f"{value!r}: {fact}, {declared}, {number} but {type_of(found)!r:.200}")

        return call


def wrong_facts(
    graph: Graph, facts: Facts, values: Sequence[Any], sizes: dict[int, int], lowerer: Lowerer
) -> list[str]:
    """What a run of the graph shows to be wrong."""
    watched = Watched(graph, facts, sizes, lowerer)
    code = watched.graph(graph)
    with np.errstate(all="ignore"):
        Interpreter(lowerer).run(code, values)
    return watched.wrong


def seed(value: Any, size: int | None) -> Any:
    """What is said of an input: with ``size``, a first dim of that size is the symbol."""
    if isinstance(value, (np.ndarray, QTensor)):
        t = type_of(value)
        if t.shape and t.shape[0] == size:
            return TensorType(t.dtype, (S, *t.shape[1:]))
        return t
    if isinstance(value, tuple):
        return tuple(seed(v, size) for v in value)
    return value if value is None or isinstance(value, (bool, int, float)) else UNKNOWN


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_models_have_the_types_that_were_inferred(path):
    inputs = inputs_of(path)
    module = gpujit.load(path)
    function = module._object.type.methods["forward"]
    first = next((x.shape[0] for x in inputs if isinstance(x, np.ndarray) and x.ndim), None)
    lowerer = module._program.lowerer
    for symbolic, batch in ((False, first), (True, 3)):
        values = bind_arguments(function.schema, copy.deepcopy(tuple(inputs)), {}, skip=1)
        graph = module.inlined_graph
        facts = infer_types(graph, [module._object, *(seed(v, first if symbolic else None) for v in values)])
        verify(graph)
        if batch != first:
            values = [
                np.resize(v, (batch, *v.shape[1:]))
                if isinstance(v, np.ndarray) and v.ndim and v.shape[0] == first
                else v
                for v in values
            ]
        try:
            wrong = wrong_facts(graph, facts, [module._object, *values], {1: batch or 1}, lowerer)
        except gpujit.GpujitError:
            # Not every model takes another batch size.
            assert batch != first
            values = bind_arguments(function.schema, copy.deepcopy(tuple(inputs)), {}, skip=1)
            wrong = wrong_facts(graph, facts, [module._object, *values], {1: first or 1}, lowerer)
        assert not wrong


@given(programs())
@settings(max_examples=60)
def test_random_programs_have_the_types_that_were_inferred(program: Program):
    graph = program.graph.copy()
    facts = infer_types(graph, [seed(v, None) for v in program.inputs])
    verify(graph)
    assert not wrong_facts(graph, facts, copy.deepcopy(program.inputs), {}, Lowerer(np))
    assert_keeps_meaning(infer_types_pass, program)


def test_two_thousand_nodes_take_little_time():
    lines = ["graph(%x0 : Tensor):", "  %1 : int = prim::Constant[value=1]()"]
    lines += [f"  %x{k + 1} : Tensor = aten::add(%x{k}, %x{k // 2}, %1)" for k in range(2000)]
    graph = read("\n".join([*lines, "  return (%x2000)"]))
    start = time.process_time()
    infer_types(graph, [TensorType(6, (S, 8))])
    # A bound far above the usual 0.1 s, to find what is no longer linear.
    assert time.process_time() - start < 3
    assert named(graph, "x2000").type == TensorType(6, (S, 8))
