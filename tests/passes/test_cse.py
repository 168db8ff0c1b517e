"""Equal computations and constants: what becomes one, and what must stay two."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import changes_made
from gpujit.passes.cse import eliminate_common_subexpressions, pool_constants
from gpujit.support.config import config
from gpujit.testing import check_pass
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs


def becomes(before: str, after: str) -> None:
    check_pass(eliminate_common_subexpressions, before, after)


def stays(text: str) -> None:
    check_pass(eliminate_common_subexpressions, text, text)


def test_equal_nodes_become_one() -> None:
    becomes(
        """
        graph(%x : Tensor):
          %one : int = prim::Constant[value=1]()
          %uno : int = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::relu(%x)
          %c : Tensor = aten::add(%a, %x, %one)
          %d : Tensor = aten::add(%b, %x, %uno)
          %e : Tensor = aten::mul(%c, %d)
          return (%e)""",
        """
        graph(%x : Tensor):
          %one : int = prim::Constant[value=1]()
          %uno : int = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %c : Tensor = aten::add(%a, %x, %one)
          %e : Tensor = aten::mul(%c, %c)
          return (%e)""",
    )


def test_results_from_around_a_block_are_used_inside_it() -> None:
    becomes(
        """
        graph(%x : Tensor, %c : bool):
          %a : Tensor = aten::relu(%x)
          %r : Tensor = prim::If(%c)
            block0():
              %b : Tensor = aten::relu(%x)
              %p : Tensor = aten::neg(%b)
              -> (%p)
            block1():
              %q : Tensor = aten::neg(%a)
              -> (%q)
          %s : Tensor = aten::neg(%a)
          %t : Tensor = aten::mul(%r, %s)
          return (%t)""",
        """
        graph(%x : Tensor, %c : bool):
          %a : Tensor = aten::relu(%x)
          %r : Tensor = prim::If(%c)
            block0():
              %p : Tensor = aten::neg(%a)
              -> (%p)
            block1():
              %q : Tensor = aten::neg(%a)
              -> (%q)
          %s : Tensor = aten::neg(%a)
          %t : Tensor = aten::mul(%r, %s)
          return (%t)""",
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten::add(%x, %y, %one)", "aten::add(%x, %y, %two)"),
        ("aten::add(%x, %y, %one)", "aten::add(%y, %x, %one)"),
        ("aten::add(%x, %y, %one)", "aten::sub(%x, %y, %one)"),
        ("aten::mul(%x, %zero)", "aten::mul(%x, %minus)"),
        ("aten::dropout(%x, %half, %true)", "aten::dropout(%x, %half, %true)"),
        ("custom::op(%x)", "custom::op(%x)"),
    ],
)
def test_different_nodes_stay(one: str, other: str) -> None:
    stays(
        f"""
        graph(%x : Tensor, %y : Tensor):
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %zero : float = prim::Constant[value=0.]()
          %minus : float = prim::Constant[value=-0.]()
          %half : float = prim::Constant[value=0.5]()
          %true : bool = prim::Constant[value=1]()
          %a : Tensor = {one}
          %b : Tensor = {other}
          %c : Tensor = aten::mul(%a, %b)
          return (%c)"""
    )


def test_random_numbers_that_are_switched_off_become_one() -> None:
    becomes(
        """
        graph(%x : Tensor):
          %half : float = prim::Constant[value=0.5]()
          %false : bool = prim::Constant[value=0]()
          %a : Tensor = aten::dropout(%x, %half, %false)
          %b : Tensor = aten::dropout(%x, %half, %false)
          %c : Tensor = aten::mul(%a, %b)
          return (%c)""",
        """
        graph(%x : Tensor):
          %half : float = prim::Constant[value=0.5]()
          %false : bool = prim::Constant[value=0]()
          %a : Tensor = aten::dropout(%x, %half, %false)
          %c : Tensor = aten::mul(%a, %a)
          return (%c)""",
    )


def test_attributes_of_nodes_count() -> None:
    text = """
        graph(%p : (Tensor, Tensor, Tensor)):
          %a : (Tensor, Tensor) = prim::TupleSlice[beg=0, end=2](%p)
          %b : (Tensor, Tensor) = prim::TupleSlice[beg={}, end={}](%p)
          %r : ((Tensor, Tensor), (Tensor, Tensor)) = prim::TupleConstruct(%a, %{})
          return (%r)"""
    stays(text.format(1, 3, "b"))
    before, after = text.format(0, 2, "b"), text.format(0, 2, "a")
    becomes(before, "\n".join(line for line in after.splitlines() if "%b :" not in line))


@pytest.mark.parametrize("written", ["%x", "%a", "%b"])
def test_writes_keep_them_apart(written: str, caplog: pytest.LogCaptureFixture) -> None:
    text = f"""
        graph(%x : Tensor):
          %one : int = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          {"%w : Tensor = aten::neg_(%x)" if written == "%x" else ""}
          %b : Tensor = aten::relu(%x)
          {"" if written == "%x" else f"%w : Tensor = aten::neg_({written})"}
          %c : Tensor = aten::add(%a, %b, %one)
          return (%c)"""
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        stays(text)
    assert "written" in caplog.text


def test_queries_around_a_write_of_numbers_only_still_decline() -> None:
    # transpose_ is a write as well, and changes sizes.
    stays(
        """
        graph(%x : Tensor):
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %a : int = aten::size(%x, %zero)
          %w : Tensor = aten::transpose_(%x, %zero, %one)
          %b : int = aten::size(%x, %zero)
          %c : int = aten::add(%a, %b)
          return (%c)"""
    )


def test_lists_that_grow_stay_apart() -> None:
    stays(
        """
        graph(%x : Tensor):
          %a : Tensor[] = prim::ListConstruct(%x)
          %b : Tensor[] = prim::ListConstruct(%x)
          %w : Tensor[] = aten::append(%a, %x)
          %c : Tensor[] = aten::add(%a, %b)
          return (%c)"""
    )


def test_two_results_of_the_graph_stay_two() -> None:
    text = """
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::relu(%x)
          return (%a, {})"""
    stays(text.format("%b"))
    becomes(
        text.format("%n").replace("  return", "  %n : int = aten::dim(%b)\n          return"),
        """
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %n : int = aten::dim(%a)
          return (%a, %n)""",
    )


def test_a_list_of_new_tensors_keeps_them_new() -> None:
    stays(
        """
        graph(%x : Tensor):
          %three : int = prim::Constant[value=3]()
          %true : bool = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %n : int = aten::dim(%a)
          %l : Tensor[] = prim::ListConstruct()
           = prim::Loop(%three, %true)
            block0(%i : int):
              %b : Tensor = aten::relu(%x)
              %w : Tensor[] = aten::append(%l, %b)
              -> (%true)
          return (%l, %n)"""
    )


def test_comparing_identity_keeps_objects_apart() -> None:
    stays(
        """
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::relu(%x)
          %c : bool = aten::__is__(%a, %b)
          return (%c)"""
    )


def test_fuel_counts_merges() -> None:
    text = "graph(%x : Tensor):\n  %s0 : Tensor = aten::relu(%x)\n" + "".join(
        f"  %s{i} : Tensor = aten::relu(%x)\n  %n{i} : int = aten::dim(%s{i})\n" for i in range(1, 4)
    )
    text += "  return (%n1, %n2, %n3)"
    for limit in range(6):
        graph = parse_graph(text, resolve=resolve_node)
        start = changes_made()
        with config(pass_limit=start + limit):
            eliminate_common_subexpressions(graph)
        assert changes_made() - start == min(limit, 5)
        assert len(list(graph.nodes)) == 7 - min(limit, 5)


# ---------------------------------------------------------------------------------------------------- constants


def test_constants_move_to_the_top_and_become_one() -> None:
    check_pass(
        pool_constants,
        """
        graph(%x : Tensor, %c : bool):
          %one : int = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %none : NoneType = prim::Constant()
          %r : Tensor = prim::If(%c)
            block0():
              %uno : int = prim::Constant[value=1]()
              %half : float = prim::Constant[value=1.]()
              %b : Tensor = aten::add(%a, %half, %uno)
              -> (%b)
            block1():
              %true : bool = prim::Constant[value=1]()
              %p : float = prim::Constant[value=1.]()
              %d : Tensor = aten::dropout(%a, %p, %true)
              -> (%d)
          %e : Tensor = aten::clone(%r, %none)
          return (%e)""",
        """
        graph(%x : Tensor, %c : bool):
          %one : int = prim::Constant[value=1]()
          %none : NoneType = prim::Constant()
          %half : float = prim::Constant[value=1.]()
          %true : bool = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %r : Tensor = prim::If(%c)
            block0():
              %b : Tensor = aten::add(%a, %half, %one)
              -> (%b)
            block1():
              %d : Tensor = aten::dropout(%a, %half, %true)
              -> (%d)
          %e : Tensor = aten::clone(%r, %none)
          return (%e)""",
    )


def test_numbers_that_only_compare_equal_stay_apart() -> None:
    text = """
        graph():
          %a : float = prim::Constant[value=0.]()
          %b : float = prim::Constant[value=-0.]()
          %c : int = prim::Constant[value=0]()
          %d : bool = prim::Constant[value=0]()
          %e : float? = prim::Constant[value=0.]()
          return (%a, %b, %c, %d, %e)"""
    check_pass(pool_constants, text, text)


def test_arrays_are_one_when_they_are_one_object() -> None:
    a, b = np.zeros(3, np.float32), np.zeros(3, np.float32)
    check_pass(
        pool_constants,
        """
        graph():
          %a : Float(3) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(3) = prim::Constant[value=CONSTANTS.c1]()
          %c : Float(3) = prim::Constant[value=CONSTANTS.c0]()
          return (%a, %b, %c)""",
        """
        graph():
          %a : Float(3) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(3) = prim::Constant[value=CONSTANTS.c1]()
          return (%a, %b, %a)""",
        constants=[a, b],
    )


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_keeps_the_meaning(program: Program) -> None:
    assert_keeps_meaning(eliminate_common_subexpressions, program)
    assert_keeps_meaning(pool_constants, program)
