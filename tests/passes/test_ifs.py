from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.passes.control.exits import simplify_exits
from gpujit.passes.control.if_conversion import convert_ifs
from gpujit.passes.control.ifs import simplify_ifs
from gpujit.testing import check_pass
from tests.passes.random_graphs import run_graph as run

X = np.arange(3, dtype=np.float32) - 1
BOTH = [(X, True), (X, False)]


def test_an_if_on_a_negation_is_turned_round() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool):
              %n : bool = aten::__not__(%c)
              %y : Tensor = prim::If(%n)
                block0():
                  %a : Tensor = aten::relu(%x)
                  -> (%a)
                block1():
                  -> (%x)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %y : Tensor = prim::If(%c)
                block0():
                  -> (%x)
                block1():
                  %a : Tensor = aten::relu(%x)
                  -> (%a)
              return (%y)""",
        samples=BOTH,
        run=run,
    )


def test_unread_results_and_empty_ifs_go() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool):
              %a : Tensor, %b : Tensor = prim::If(%c)
                block0():
                  -> (%x, %x)
                block1():
                  -> (%x, %x)
              return (%a)""",
        after="""
            graph(%x : Tensor, %c : bool):
              return (%x)""",
        samples=BOTH,
        run=run,
    )


def test_pure_work_of_both_branches_is_done_once() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool):
              %y : Tensor = prim::If(%c)
                block0():
                  %two : int = prim::Constant[value=2]()
                  %a : Tensor = aten::mul(%x, %two)
                  %r : Tensor = aten::relu(%a)
                  -> (%r)
                block1():
                  %zwei : int = prim::Constant[value=2]()
                  %b : Tensor = aten::mul(%x, %zwei)
                  %s : Tensor = aten::neg(%b)
                  -> (%s)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %two : int = prim::Constant[value=2]()
              %a : Tensor = aten::mul(%x, %two)
              %y : Tensor = prim::If(%c)
                block0():
                  %r : Tensor = aten::relu(%a)
                  -> (%r)
                block1():
                  %s : Tensor = aten::neg(%a)
                  -> (%s)
              return (%y)""",
        samples=BOTH,
        run=run,
    )


def test_ifs_on_one_condition_are_merged_and_hand_values_over() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool):
              %a : Tensor = prim::If(%c)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%r)
                block1():
                  %s : Tensor = aten::neg(%x)
                  -> (%s)
              %y : Tensor = prim::If(%c)
                block0():
                  %t : Tensor = aten::tanh(%a)
                  -> (%t)
                block1():
                  -> (%a)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %y : Tensor = prim::If(%c)
                block0():
                  %r : Tensor = aten::relu(%x)
                  %t : Tensor = aten::tanh(%r)
                  -> (%t)
                block1():
                  %s : Tensor = aten::neg(%x)
                  -> (%s)
              return (%y)""",
        samples=BOTH,
        run=run,
    )


def test_bool_results_become_logic() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%c : bool, %n : int):
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %zero : int = prim::Constant[value=0]()
              %a : bool, %b : bool = prim::If(%c)
                block0():
                  %p : bool = aten::gt(%n, %zero)
                  -> (%p, %t)
                block1():
                  %q : bool = aten::lt(%n, %zero)
                  -> (%f, %q)
              %r : (bool, bool) = prim::TupleConstruct(%a, %b)
              return (%r)""",
        after="""
            graph(%c : bool, %n : int):
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %zero : int = prim::Constant[value=0]()
              %p : bool = aten::gt(%n, %zero)
              %q : bool = aten::lt(%n, %zero)
              %b : bool = aten::__or__(%c, %q)
              %a : bool = aten::__and__(%c, %p)
              %r : (bool, bool) = prim::TupleConstruct(%a, %b)
              return (%r)""",
        samples=[(c, n) for c in (True, False) for n in (-1, 0, 1)],
        run=run,
    )


def test_nested_ifs_with_one_other_side_become_one() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool, %d : bool):
              %y : Tensor = prim::If(%c)
                block0():
                  %z : Tensor = prim::If(%d)
                    block0():
                      %r : Tensor = aten::relu(%x)
                      -> (%r)
                    block1():
                      -> (%x)
                  -> (%z)
                block1():
                  -> (%x)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool, %d : bool):
              %both : bool = aten::__and__(%c, %d)
              %y : Tensor = prim::If(%both)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%r)
                block1():
                  -> (%x)
              return (%y)""",
        samples=[(X, c, d) for c in (True, False) for d in (True, False)],
        run=run,
    )


def test_a_flag_moves_the_next_if_into_the_branch_that_does_not_know_it() -> None:
    check_pass(
        simplify_ifs,
        before="""
            graph(%x : Tensor, %c : bool, %d : Tensor):
              %t : bool = prim::Constant[value=1]()
              %flag : bool, %v : Tensor = prim::If(%c)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%t, %r)
                block1():
                  %e : bool = aten::Bool(%d)
                  -> (%e, %x)
              %y : Tensor = prim::If(%flag)
                block0():
                  -> (%v)
                block1():
                  %s : Tensor = aten::neg(%v)
                  -> (%s)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool, %d : Tensor):
              %t : bool = prim::Constant[value=1]()
              %y : Tensor = prim::If(%c)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%r)
                block1():
                  %e : bool = aten::Bool(%d)
                  %z : Tensor = prim::If(%e)
                    block0():
                      -> (%x)
                    block1():
                      %s : Tensor = aten::neg(%x)
                      -> (%s)
                  -> (%z)
              return (%y)""",
        samples=[(X, c, np.array(d)) for c in (True, False) for d in (True, False)],
        run=run,
    )


@pytest.mark.parametrize(
    "body",
    [
        # What is written in between counts.
        """
          %y : Tensor = prim::If(%c)
            block0():
              %w : Tensor = aten::relu_(%x)
              %a : Tensor = aten::neg(%x)
              -> (%a)
            block1():
              %b : Tensor = aten::neg(%x)
              -> (%b)
          return (%y)""",
        # The second part of an 'and' may fail.
        """
          %f : bool = prim::Constant[value=0]()
          %y : bool = prim::If(%c)
            block0():
              %a : bool = aten::Bool(%x)
              -> (%a)
            block1():
              -> (%f)
          return (%y)""",
        # Something happens between two ifs on one condition.
        """
          %a : Tensor = prim::If(%c)
            block0():
              %r : Tensor = aten::relu(%x)
              -> (%r)
            block1():
              -> (%x)
          %u : Tensor = aten::relu_(%x)
          %y : Tensor = prim::If(%c)
            block0():
              %t : Tensor = aten::tanh(%a)
              -> (%t)
            block1():
              -> (%a)
          return (%y)""",
        # Other sides that differ.
        """
          %y : Tensor = prim::If(%c)
            block0():
              %d : bool = aten::Bool(%x)
              %z : Tensor = prim::If(%d)
                block0():
                  %r : Tensor = aten::relu(%x)
                  -> (%r)
                block1():
                  -> (%x)
              -> (%z)
            block1():
              -> (%x)
          return (%y)""",
    ],
)
def test_ifs_that_stay(body: str) -> None:
    text = f"graph(%x : Tensor, %c : bool):{body}"
    check_pass(simplify_ifs, text, text)


# ------------------------------------------------------------------------------------------------------------ exits


def test_an_uninitialised_side_is_what_the_other_side_is() -> None:
    check_pass(
        simplify_exits,
        before="""
            graph(%x : Tensor, %c : bool):
              %u : Tensor = prim::Uninitialized()
              %two : int = prim::Constant[value=2]()
              %flag : bool, %v : Tensor, %w : Tensor = prim::If(%c)
                block0():
                  %t : bool = prim::Constant[value=1]()
                  -> (%t, %x, %u)
                block1():
                  %f : bool = prim::Constant[value=0]()
                  %r : Tensor = aten::mul(%x, %two)
                  -> (%f, %u, %r)
              %y : Tensor = prim::If(%flag)
                block0():
                  -> (%v)
                block1():
                  -> (%w)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %u : Tensor = prim::Uninitialized()
              %two : int = prim::Constant[value=2]()
              %flag : bool, %w : Tensor = prim::If(%c)
                block0():
                  %t : bool = prim::Constant[value=1]()
                  -> (%t, %u)
                block1():
                  %f : bool = prim::Constant[value=0]()
                  %r : Tensor = aten::mul(%x, %two)
                  -> (%f, %r)
              %y : Tensor = prim::If(%flag)
                block0():
                  -> (%x)
                block1():
                  -> (%w)
              return (%y)""",
        samples=BOTH,
        run=run,
    )


def test_what_a_loop_carries_for_nobody_goes() -> None:
    check_pass(
        simplify_exits,
        before="""
            graph(%x : Tensor, %n : int):
              %t : bool = prim::Constant[value=1]()
              %u : int = prim::Uninitialized()
              %a : Tensor, %b : int, %d : Tensor = prim::Loop(%n, %t, %x, %u, %x)
                block0(%i : int, %v : Tensor, %k : int, %e : Tensor):
                  %w : Tensor = aten::add(%v, %e, %i)
                  -> (%t, %w, %i, %e)
              return (%a)""",
        after="""
            graph(%x : Tensor, %n : int):
              %t : bool = prim::Constant[value=1]()
              %a : Tensor = prim::Loop(%n, %t, %x)
                block0(%i : int, %v : Tensor):
                  %w : Tensor = aten::add(%v, %x, %i)
                  -> (%t, %w)
              return (%a)""",
        samples=[(X, 0), (X, 3)],
        run=run,
    )


# ---------------------------------------------------------------------------------------------------- if conversion

WHERE = """
    graph(%x : Float(3), %p : {condition}):
      %c : bool = aten::Bool(%p)
      %y : {result} = prim::If(%c)
        block0():
          %a : {result} = aten::{op}(%x)
          -> (%a)
        block1():
          %b : Float(3) = aten::neg(%x)
          -> (%b)
      return (%y)"""


def test_a_choice_between_two_cheap_tensors_becomes_where() -> None:
    check_pass(
        convert_ifs,
        before=WHERE.format(condition="Bool()", result="Float(3)", op="relu"),
        after="""
            graph(%x : Float(3), %p : Bool()):
              %c : bool = aten::Bool(%p)
              %a : Float(3) = aten::relu(%x)
              %b : Float(3) = aten::neg(%x)
              %y : Float(3) = aten::where(%p, %a, %b)
              return (%y)""",
        samples=[(X, np.array(True)), (X, np.array(False))],
        run=run,
    )


@pytest.mark.parametrize(
    ("condition", "result", "op", "reason"),
    [
        ("Float()", "Float(3)", "relu", "not known to come from a bool tensor"),
        ("Bool(2)", "Float(3)", "relu", "not known to come from one element"),
        ("Bool(1, 1)", "Float(3)", "relu", "are not known to be equal on both sides"),
        ("Bool()", "Tensor", "relu", "are not known to be equal on both sides"),
        ("Bool()", "Float(3)", "relu_", "may fail, has effects or is not cheap"),
        ("Bool()", "Float(3)", "cholesky", "may fail, has effects or is not cheap"),
    ],
)
def test_choices_that_stay(condition: str, result: str, op: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    text = WHERE.format(condition=condition, result=result, op=op)
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(convert_ifs, text, text)
    assert reason in caplog.text


@pytest.mark.parametrize("pass_", [simplify_ifs, simplify_exits, convert_ifs])
def test_a_graph_without_ifs_is_left_alone(pass_: Callable[[Graph], bool]) -> None:
    text = "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)"
    check_pass(pass_, text, text)
