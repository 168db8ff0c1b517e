"""Specialisation: what it removes, what it keeps and why, what it assumes, and that results stay the same."""

from __future__ import annotations

import copy
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from bench.corpus import read_case
from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.values import EnumValue, ScriptObject
from gpujit.ir.verify import verify
from gpujit.passes.specialise.guards import Key, TensorSpec, ValueSpec
from gpujit.passes.specialise.main import Specialised, key_of, specialise
from gpujit.runtime.values import bind_arguments
from gpujit.support.errors import ArgumentError, ScriptRaised
from gpujit.testing import assert_same_graph, assert_same_values, resolve_node
from tests.passes.random_graphs import Program, assert_same_outcome, outcome, programs, run_graph

MODELS = Path(__file__).resolve().parents[1] / "models" / "corpus"
# Models that keep control flow or reads of containers, each for the reason that `left` gives.
KEPT = {"containers", "interface_state", "nms_postprocess"}


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


# ------------------------------------------------------------------------------------------------- what is known now


def test_sizes_lists_and_known_branches_are_gone():
    found = check(
        """
        graph(%x : Tensor, %flag : bool):
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %minus : int = prim::Constant[value=-1]()
          %n : int = aten::size(%x, %0)
          %sizes : int[] = prim::ListConstruct(%n)
          %l : int[] = aten::append(%sizes, %minus)
          %big : bool = aten::gt(%n, %1)
          %both : bool = aten::__and__(%big, %flag)
          %y : Tensor = prim::If(%both)
            block0():
              %v : Tensor = aten::reshape(%x, %sizes)
              -> (%v)
            block1():
              -> (%x)
          return (%y)""",
        f32(2, 3, 4), True,
        after="""
            graph(%x : Float(2, 3, 4), %flag : bool):
              %sizes : int[] = prim::Constant[value=[2, -1]]()
              %v : Float(2, 12) = aten::reshape(%x, %sizes)
              return (%v)""",
    )  # fmt: skip
    assert not found.left


def test_counted_loops_are_unrolled_and_lists_of_tensors_become_arguments():
    found = check(
        """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %true : bool = prim::Constant[value=1]()
          %n : int = aten::size(%x, %0)
          %rows : Tensor[] = prim::ListConstruct()
          %last : Tensor = prim::Loop(%n, %true, %x)
            block0(%i : int, %before : Tensor):
              %row : Tensor = aten::select(%x, %0, %i)
              %y : Tensor = aten::relu(%row)
              %l : Tensor[] = aten::append(%rows, %y)
              -> (%true, %y)
          %all : Tensor = aten::stack(%rows, %0)
          return (%all, %last)""",
        f32(3, 2),
    )
    assert kinds(found.graph) == ["aten::select", "aten::relu"] * 3 + ["prim::ListConstruct", "aten::stack"]
    assert found.graph.outputs[0].type == T.TensorType(6, (3, 2))


def test_a_loop_too_large_to_unroll_stays_and_says_so():
    text = """
        graph(%x : Tensor):
          %n : int = prim::Constant[value=50]()
          %true : bool = prim::Constant[value=1]()
          %y : Tensor = prim::Loop(%n, %true, %x)
            block0(%i : int, %a : Tensor):
              %b : Tensor = aten::tanh(%a)
              -> (%true, %b)
          return (%y)"""
    graph = read(text)
    found = specialise(graph, key_of(graph, [f32(2)]), unroll_limit=20)
    verify(found.graph)
    assert [left.node.kind for left in found.left] == ["prim::Loop"]
    assert "more than 20 nodes" in found.left[0].reason
    assert found.graph.outputs[0].type == T.TensorType(6, (2,))
    assert_same_outcome(outcome(found.graph, [f32(2)]), outcome(graph, [f32(2)]))
    assert not check(text, f32(2)).left


def test_texts_dicts_and_tuples_are_worked_out():
    found = check(
        """
        graph(%x : Tensor, %name : str):
          %a : str = prim::Constant[value="a"]()
          %form : str = prim::Constant[value="{}-{}"]()
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %n : int = aten::size(%x, %0)
          %key : str = aten::format(%form, %name, %n)
          %y : Tensor = aten::relu(%x)
          %d : Dict(str, Tensor) = prim::DictConstruct(%a, %x)
           = aten::_set_item(%d, %key, %y)
          %has : bool = aten::__contains__(%d, %key)
          %keys : str[] = aten::keys(%d)
          %second : str = aten::__getitem__(%keys, %1)
          %z : Tensor = aten::__getitem__(%d, %second)
          %count : int = aten::len(%d)
          %t : (Tensor, bool) = prim::TupleConstruct(%z, %has)
          %p : Tensor, %q : bool = prim::TupleUnpack(%t)
          return (%p, %q, %key, %count)""",
        f32(3), "k",
        after="""
            graph(%x : Float(3), %name : str):
              %true : bool = prim::Constant[value=1]()
              %key : str = prim::Constant[value="k-3"]()
              %2 : int = prim::Constant[value=2]()
              %y : Float(3) = aten::relu(%x)
              return (%y, %true, %key, %2)""",
    )  # fmt: skip
    assert not found.left


def test_traced_numbers_are_computed():
    found = check(
        """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %f : bool = prim::Constant[value=0]()
          %n : int = aten::size(%x, %1)
          %t : Tensor = prim::NumToTensor(%n)
          %u : Tensor = aten::mul(%t, %t)
          %m : int = aten::Int(%u)
          %sizes : int[] = prim::ListConstruct(%m, %m)
          %y : Tensor = aten::expand(%x, %sizes, %f)
          return (%y)""",
        f32(1, 1),
    )
    assert kinds(found.graph) == ["aten::expand"]


def test_numbers_written_in_place_are_not_taken_for_known():
    found = check(
        """
        graph(%x : Tensor):
          %1 : int = prim::Constant[value=1]()
          %3 : int = prim::Constant[value=3]()
          %t : Tensor = prim::NumToTensor(%3)
          %v : Tensor = aten::detach(%t)
          %w : Tensor = aten::add_(%v, %x, %1)
          %m : int = aten::Int(%t)
          return (%m)""",
        np.array(4),
    )
    assert "aten::Int" in kinds(found.graph)
    assert run_graph(found.graph, np.array(5)) == 8


# ------------------------------------------------------------------------------------------------- what depends on data


def test_a_branch_on_data_stays_and_is_specialised_inside():
    found = check(
        """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %2 : int = prim::Constant[value=2]()
          %f : NoneType = prim::Constant()
          %s : Tensor = aten::sum(%x, %f)
          %n : int = aten::size(%x, %0)
          %c : bool = aten::is_nonzero(%s)
          %list : Tensor[] = prim::ListConstruct(%x)
          %k : int, %y : Tensor, %same : int = prim::If(%c)
            block0():
              %two : bool = aten::eq(%n, %2)
              %a : Tensor = prim::If(%two)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%r)
                block1():
                  -> (%x)
              %l : Tensor[] = aten::append(%list, %a)
              -> (%0, %a, %2)
            block1():
              %b : Tensor = aten::neg(%x)
              %m : Tensor[] = aten::append(%list, %b)
              -> (%2, %b, %2)
          %all : Tensor = aten::cat(%list, %0)
          return (%all, %k, %y, %same)""",
        f32(2, 2),
    )
    assert [left.reason for left in found.left] == ["its condition depends on data"]
    assert kinds(found.graph).count("prim::If") == 1
    # The lists are alike in both branches, so what they hold is known after them, and what is the same is no result.
    assert "aten::append" not in kinds(found.graph)
    assert found.graph.outputs[0].type == T.TensorType(6, (4, 2))
    assert found.graph.outputs[3].constant() == 2
    assert run_graph(found.graph, -f32(2, 2))[1] == 0


def test_lists_that_branches_change_differently_are_made_at_run_time():
    text = """
        graph(%x : Tensor, %n : int):
          %list : Tensor[] = prim::ListConstruct(%x)
          %c : bool = aten::is_nonzero(%x)
           = prim::If(%c)
            block0():
              %l : Tensor[] = aten::append(%list, %x)
              -> ()
            block1():
              -> ()
          %k : int = aten::len(%list)
          return (%k, %list)"""
    found = check(text, np.array(1.0), 1)
    check(text, np.array(0.0), 1)
    assert {left.node.kind for left in found.left} == {"prim::If", "aten::append", "aten::len"}
    assert run_graph(found.graph, np.array(0.0), 1)[0] == 1
    assert run_graph(found.graph, np.array(2.0), 1)[0] == 2


def test_a_loop_on_data_carries_what_changes_only():
    text = """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %1 : int = prim::Constant[value=1]()
          %max : int = prim::Constant[value=100]()
          %true : bool = prim::Constant[value=1]()
          %start : (int, Tensor) = prim::TupleConstruct(%1, %x)
          %list : int[] = prim::ListConstruct(%1)
          %y : Tensor, %k : int, %same : int, %pair : (int, Tensor) = prim::Loop(%max, %true, %x, %0, %1, %start)
            block0(%i : int, %a : Tensor, %b : int, %c : int, %p : (int, Tensor)):
              %first : int, %z : Tensor = prim::TupleUnpack(%p)
              %half : Tensor = aten::sub(%a, %1, %1)
              %more : Tensor = aten::relu(%half)
              %go : bool = aten::is_nonzero(%more)
              %l : int[] = aten::append(%list, %i)
              %q : (int, Tensor) = prim::TupleConstruct(%first, %half)
              -> (%go, %more, %i, %c, %q)
          %count : int = aten::len(%list)
          return (%y, %k, %same, %count, %pair)"""
    found = check(text, np.array(4.0, np.float32))
    assert found.graph.outputs[2].constant() == 1
    assert found.graph.outputs[0].type == T.TensorType(6, ())
    loop = next(node for node in found.graph.all_nodes() if node.kind == "prim::Loop")
    # y, k and the tensor of the pair; what stays the same is carried by nobody.
    assert len(loop.outputs) == 3
    assert run_graph(found.graph, np.array(7.0, np.float32))[3] == run_graph(read(text), np.array(7.0, np.float32))[3]


def test_sizes_that_change_in_a_loop_on_data_are_unknown():
    found = check(
        """
        graph(%x : Tensor, %n : Tensor):
          %0 : int = prim::Constant[value=0]()
          %true : bool = prim::Constant[value=1]()
          %m : int = aten::Int(%n)
          %y : Tensor = prim::Loop(%m, %true, %x)
            block0(%i : int, %a : Tensor):
              %both : Tensor[] = prim::ListConstruct(%a, %x)
              %b : Tensor = aten::cat(%both, %0)
              -> (%true, %b)
          %k : int = aten::size(%y, %0)
          return (%y, %k)""",
        f32(2, 3), np.array(3),
    )  # fmt: skip
    assert found.graph.outputs[0].type == T.TensorType(6, (None, 3))
    assert {left.node.kind for left in found.left} == {"prim::Loop", "aten::size"}


RAISING = """
    graph(%x : Tensor, %n : int):
      %0 : int = prim::Constant[value=0]()
      %text : str = prim::Constant[value="too small"]()
      %kind : str = prim::Constant[value="ValueError"]()
      %bad : bool = aten::lt(%n, %0)
      %k : int = prim::If(%bad)
        block0():
           = prim::RaiseException(%text, %kind)
          %u : int = prim::Uninitialized()
          -> (%u)
        block1():
          -> (%n)
      %zero : bool = aten::is_nonzero(%x)
      %y : int = prim::If(%zero)
        block0():
          -> (%k)
        block1():
           = prim::RaiseException(%text, %kind)
          %v : int = prim::Uninitialized()
          -> (%v)
      return (%y)"""


def test_what_surely_raises_raises_and_what_may_raise_is_kept():
    graph = read(RAISING)
    found = check(RAISING, np.array(1.0), 3)
    assert kinds(found.graph) == ["aten::is_nonzero", "prim::If", "prim::RaiseException"]
    assert found.graph.outputs[0].constant() == 3
    with pytest.raises(ScriptRaised, match="too small"):
        run_graph(found.graph, np.array(0.0), 3)
    always = specialise(graph, key_of(graph, [np.array(1.0), -1]))
    verify(always.graph)
    assert kinds(always.graph)[0] == "prim::RaiseException"
    with pytest.raises(ScriptRaised, match="too small"):
        run_graph(always.graph, np.array(1.0), -1)


def test_an_input_list_is_changed_at_run_time_too():
    found = check(
        """
        graph(%list : Tensor[], %x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %l : Tensor[] = aten::append(%list, %x)
          %n : int = aten::len(%list)
          %last : Tensor = aten::pop(%list, %0)
          return (%last, %n)""",
        [f32(2), f32(3)], f32(1),
    )  # fmt: skip
    assert [k for k in kinds(found.graph) if k != "prim::ListUnpack"] == ["aten::append", "aten::pop"]
    assert found.graph.outputs[1].constant() == 3


def test_a_shape_changed_in_place_is_known_by_all_names_of_the_tensor():
    found = check(
        """
        graph(%x : Tensor):
          %0 : int = prim::Constant[value=0]()
          %y : Tensor = aten::relu(%x)
          %list : Tensor[] = prim::ListConstruct(%y)
          %z : Tensor = aten::unsqueeze_(%y, %0)
          %same : Tensor = aten::__getitem__(%list, %0)
          %n : int = aten::dim(%same)
          return (%n, %same)""",
        f32(2, 3),
    )
    assert found.graph.outputs[0].constant() == 3


# ---------------------------------------------------------------------------------------------- modules and their state


def module_type() -> T.ClassType:
    t = T.ClassType("__torch__.M", is_module=True)
    for name, declared in (
        ("weight", T.TENSOR), ("count", T.INT), ("state", T.TENSOR), ("sizes", T.ListType(T.INT)), ("steps", T.TENSOR),
    ):  # fmt: skip
        t.add_attribute(name, declared)
    return t


COUNTER = """
    graph(%self : __torch__.M, %x : Tensor):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %none : NoneType = prim::Constant()
      %count : int = prim::GetAttr[name="count"](%self)
      %fresh : bool = aten::eq(%count, %0)
      %state : Tensor = prim::If(%fresh)
        block0():
          %z : Tensor = aten::zeros_like(%x, %none, %none, %none, %none, %none)
           = prim::SetAttr[name="state"](%self, %z)
          -> (%z)
        block1():
          %s : Tensor = prim::GetAttr[name="state"](%self)
          -> (%s)
      %y : Tensor = aten::add(%state, %x, %1)
       = prim::SetAttr[name="state"](%self, %y)
      %next : int = aten::add(%count, %1)
       = prim::SetAttr[name="count"](%self, %next)
      %again : int = prim::GetAttr[name="count"](%self)
      %w : Tensor = prim::GetAttr[name="weight"](%self)
      %out : Tensor = aten::mul(%y, %w)
      return (%out, %again)"""


def counter(count: int = 0) -> tuple[dict[str, T.Type], ScriptObject]:
    t = module_type()
    return {"__torch__.M": t}, ScriptObject(t, [f32(3), count, f32(3), [1, 2], np.array(2)])


def test_attributes_decide_now_and_guards_say_so():
    types, module = counter()
    graph = read(COUNTER, types)
    x = f32(3)
    found = specialise(graph, key_of(graph, [module, x]))
    verify(found.graph)
    assert not found.left
    assert [str(g) for g in found.guards] == [
        "input x is float32[3]", "self.count is 0", "self.weight is float32[3]",
    ]  # fmt: skip
    assert found.check([x], module) is None and found.check([module, x]) is None
    other = copy.deepcopy(module)
    other.type = module.type
    got = run_graph(found.graph, module, x)
    assert_same_values(got, run_graph(graph, other, x))
    assert_same_values(module.slots, other.slots)
    # The state moved on, so the graph serves no more.
    assert found.check([x], module) == "self.count is 1, the graph was specialised for 0"
    assert found.check([f32(4)], module) == "input x is float32[4], the graph was specialised for float32[3]"
    second = specialise(graph, key_of(graph, [module, x]))
    assert "self.state is float32[3]" in [str(g) for g in second.guards]
    assert_same_values(run_graph(second.graph, module, x), run_graph(graph, other, x))
    assert_same_values(module.slots, other.slots)


def test_writes_stay_in_order_and_reads_see_them():
    types, module = counter()
    graph = read(COUNTER, types)
    found = specialise(graph, key_of(graph, [module, f32(3)]))
    names = [node.attributes["name"] for node in found.graph.all_nodes() if node.kind == "prim::SetAttr"]
    assert names == ["state", "state", "count"]
    assert [n.attributes["name"] for n in found.graph.all_nodes() if n.kind == "prim::GetAttr"] == ["weight"]
    assert found.graph.outputs[1].constant() == 1


def test_an_attribute_written_in_one_branch_on_data_is_read_again():
    types, module = counter()
    graph = read(
        """
        graph(%self : __torch__.M, %x : Tensor):
          %7 : int = prim::Constant[value=7]()
          %before : int = prim::GetAttr[name="count"](%self)
          %c : bool = aten::is_nonzero(%x)
           = prim::If(%c)
            block0():
               = prim::SetAttr[name="count"](%self, %7)
              -> ()
            block1():
              -> ()
          %after : int = prim::GetAttr[name="count"](%self)
          return (%before, %after)""",
        types,
    )
    found = specialise(graph, key_of(graph, [module, np.array(1.0)]))
    verify(found.graph)
    assert run_graph(found.graph, copy.copy(module), np.array(0.0)) == (0, 0)
    assert run_graph(found.graph, module, np.array(1.0)) == (0, 7)


def test_an_attribute_written_in_a_loop_on_data_is_read_each_time():
    types, module = counter()
    text = """
        graph(%self : __torch__.M, %n : Tensor):
          %1 : int = prim::Constant[value=1]()
          %true : bool = prim::Constant[value=1]()
          %before : int = prim::GetAttr[name="count"](%self)
          %m : int = aten::Int(%n)
           = prim::Loop(%m, %true)
            block0(%i : int):
              %now : int = prim::GetAttr[name="count"](%self)
              %next : int = aten::add(%now, %1)
               = prim::SetAttr[name="count"](%self, %next)
              -> (%true)
          %after : int = prim::GetAttr[name="count"](%self)
          return (%before, %after)"""
    graph = read(text, types)
    found = specialise(graph, key_of(graph, [module, np.array(3)]))
    verify(found.graph)
    assert run_graph(found.graph, module, np.array(4)) == (0, 4)


def test_lists_in_attributes_are_known_and_changed_where_they_are():
    types, module = counter()
    graph = read(
        """
        graph(%self : __torch__.M, %x : Tensor):
          %5 : int = prim::Constant[value=5]()
          %list : int[] = prim::GetAttr[name="sizes"](%self)
          %same : int[] = aten::append(%list, %5)
          %n : int = aten::len(%list)
          return (%n)""",
        types,
    )
    found = specialise(graph, key_of(graph, [module, f32(1)]))
    assert "self.sizes is [1, 2]" in [str(g) for g in found.guards]
    assert run_graph(found.graph, module, f32(1)) == 3
    assert module.get("sizes") == [1, 2, 5]
    assert "self.sizes is [1, 2, 5]" in str(found.check([f32(1)], module))


def test_numbers_in_an_attribute_are_guarded_only_when_they_decide():
    types, module = counter()
    text = """
        graph(%self : __torch__.M, %x : Tensor):
          %1 : int = prim::Constant[value=1]()
          %steps : Tensor = prim::GetAttr[name="steps"](%self)
          %more : Tensor = aten::add(%steps, %x, %1)
          {}
          return (%more)"""
    graph = read(text.format(""), types)
    found = specialise(graph, key_of(graph, [module, np.array(1)]))
    assert [str(g) for g in found.guards] == ["input x is int64[]", "self.steps is int64[]"]
    deciding = """%n : int = aten::Int(%steps)
          %list : int[] = prim::ListConstruct(%n, %n)
          %none : NoneType = prim::Constant()
          %z : Tensor = aten::zeros(%list, %none, %none, %none, %none)
          %sum : Tensor = aten::add_(%z, %more, %1)"""
    graph = read(text.format(deciding), types)
    found = specialise(graph, key_of(graph, [module, np.array(1)]))
    assert "self.steps is int64 2" in [str(g) for g in found.guards]
    module.set("steps", np.array(3))
    assert found.check([np.array(1)], module) == "self.steps is int64 3, the graph was specialised for int64 2"


def test_large_containers_are_not_looked_into():
    text = """
        graph(%d : Dict(str, int), %key : str):
          %n : int = aten::__getitem__(%d, %key)
          return (%n)"""
    found = check(text, {str(k): k for k in range(2000)}, "7")
    assert str(found.guards[0]) == "input d is a dict of more than 1000 elements"
    assert kinds(found.graph) == ["aten::__getitem__"]
    assert found.check([{"7": 1}, "7"]) is not None
    graph = read(text)
    small = specialise(graph, key_of(graph, [{"7": 8}, "7"]))
    assert small.graph.outputs[0].constant() == 8


def test_new_objects_are_made_only_when_they_get_out():
    point = T.ClassType("__torch__.Point")
    point.add_attribute("x", T.TENSOR)
    text = """
        graph(%x : Tensor):
          %p : __torch__.Point = prim::CreateObject()
           = prim::SetAttr[name="x"](%p, %x)
          %got : Tensor = prim::GetAttr[name="x"](%p)
          %y : Tensor = aten::relu(%got)
           = prim::SetAttr[name="x"](%p, %y)
          %z : Tensor = prim::GetAttr[name="x"](%p)
          return ({})"""
    types = {"__torch__.Point": point}
    inside = check(text.format("%z"), f32(2), types=types)
    assert kinds(inside.graph) == ["aten::relu"]
    outside = check(text.format("%p"), f32(2), types=types)
    made = run_graph(outside.graph, f32(2))
    assert_same_values(made.slots, [np.maximum(f32(2), 0)])


def test_members_of_enums_are_known():
    colour = T.EnumType("__torch__.Colour", T.INT, {"RED": 1, "BLUE": 2})
    graph = read(
        """
        graph(%c : Enum<__torch__.Colour>):
          %1 : int = prim::Constant[value=1]()
          %n : int = prim::EnumValue(%c)
          %m : int = aten::add(%n, %1)
          return (%m)""",
        {"__torch__.Colour": colour},
    )
    found = specialise(graph, key_of(graph, [EnumValue(colour, "BLUE", 2)]))
    assert found.graph.outputs[0].constant() == 3


# ------------------------------------------------------------------------------------------------------ keys and errors


SIMPLE = "graph(%x : Tensor, %n : int):\n  %y : Tensor = aten::add(%x, %n, %n)\n  return (%y)"


def test_keys_are_equal_for_inputs_that_one_graph_serves():
    graph = read(SIMPLE)
    key = key_of(graph, [f32(2), 3])
    assert key == key_of(graph, [f32(2) + 1, 3]) and hash(key) == hash(key_of(graph, [f32(2), 3]))
    for other in ([f32(3), 3], [f32(2).astype(np.float64), 3], [f32(2), 4]):
        assert key != key_of(graph, other)
    assert key != Key((TensorSpec(T.TensorType(6, (2,))), ValueSpec(3.0)))


@pytest.mark.parametrize(
    "values, message",
    [
        ([f32(2)], "has 2 inputs, found 1 values"),
        ([f32(2), f32(2)], r"input 1 \(n\): float32\[2\] does not fit int"),
        ([f32(2), True], r"input 1 \(n\): True does not fit int"),
        ([[f32(2)], 1], r"input 0 \(x\): \[float32\[2\]\] does not fit Tensor"),
    ],
)
def test_inputs_that_do_not_match_the_signature_are_refused(values, message):
    with pytest.raises(ArgumentError, match=message):
        key_of(read(SIMPLE), values)
    graph = read(SIMPLE)
    with pytest.raises(ArgumentError):
        specialise(graph, Key((ValueSpec(1), ValueSpec(2))))


def test_one_list_in_two_places_is_refused_by_the_guards():
    text = "graph(%a : int[], %b : int[]):\n  %n : int = aten::len(%a)\n  return (%n)"
    graph = read(text)
    found = specialise(graph, key_of(graph, [[1], [1]]))
    shared = [1]
    assert found.check([[1], [1]]) is None
    assert found.check([shared, shared]) == "one list is given in two places"


# ------------------------------------------------------------------------------------------- models and random programs


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.pt")), ids=lambda p: p.stem)
def test_models_give_the_same_on_every_call(path):
    inputs, _ = read_case(path)
    module, other = gpujit.load(path), gpujit.load(path)
    function = module._object.type.methods["forward"]
    program = module._program
    found = None
    for _ in range(3):
        values = bind_arguments(function.schema, copy.deepcopy(tuple(inputs)), {}, skip=1)
        wanted = other._program.run(
            other._object.type.methods["forward"],
            [other._object, *bind_arguments(function.schema, copy.deepcopy(tuple(inputs)), {}, skip=1)],
        )
        if found is None or found.check(values, module._object) is not None:
            found = specialise(module.graph, key_of(module.graph, [module._object, *values]))
            verify(found.graph)
            code = program.lowerer.graph_code(found.graph)
            assert found.check(values, module._object) is None
        with np.errstate(all="ignore"):
            got = program.interpreter.run(code, [module._object, *values])
        assert_same_values(got, wanted)
    assert found is not None
    assert bool(found.left) == (path.stem in KEPT), [(left.node, left.reason) for left in found.left]


@given(programs())
@settings(max_examples=150)
def test_random_programs_mean_the_same(program: Program):
    found = specialise(program.graph, key_of(program.graph, program.inputs))
    verify(found.graph)
    assert found.check(program.inputs) is None
    assert_same_outcome(outcome(found.graph, program.inputs), outcome(program.graph, program.inputs))
