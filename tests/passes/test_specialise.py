"""Specialisation: what it removes, what it keeps and why, what it assumes, and that results stay the same."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from gpujit.ir import types as T
from gpujit.ir.verify import verify
from gpujit.passes.specialise.guards import Key, TensorSpec, ValueSpec
from gpujit.passes.specialise.main import key_of, specialise
from gpujit.runtime.values import bind_arguments
from gpujit.support.errors import ArgumentError, ScriptRaised
from gpujit.testing import assert_same_values
from tests.passes.corpus_models import MODELS, inputs_of
from tests.passes.random_graphs import Program, assert_same_outcome, outcome, programs, run_graph
from tests.passes.specialise_help import check, f32, kinds, read

# Models that keep control flow or reads of containers, each for the reason that `left` gives.
KEPT = {"containers", "interface_state", "nms_postprocess"}


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


def test_a_tensor_is_itself():
    check(
        """
        graph(%x : Tensor, %y : Tensor):
          %1 : bool = aten::__is__(%x, %x)
          %2 : bool = aten::__isnot__(%x, %x)
          %3 : bool = aten::__is__(%x, %y)
          return (%1, %2, %3)""",
        f32(2),
        f32(2),
        after="""
        graph(%x : Float(2), %y : Float(2)):
          %a : bool = prim::Constant[value=1]()
          %b : bool = prim::Constant[value=0]()
          %c : bool = aten::__is__(%x, %y)
          return (%a, %b, %c)""",
    )


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


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_models_give_the_same_on_every_call(path):
    inputs = inputs_of(path)
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
@settings(max_examples=100)
def test_random_programs_mean_the_same(program: Program):
    found = specialise(program.graph, key_of(program.graph, program.inputs))
    verify(found.graph)
    assert found.check(program.inputs) is None
    assert_same_outcome(outcome(found.graph, program.inputs), outcome(program.graph, program.inputs))
