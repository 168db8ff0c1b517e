"""Tuples taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.passes.tuples import lower_tuples
from gpujit.testing import check_pass
from tests.passes.peephole_help import run
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
POINT = T.TupleType((T.TENSOR, T.INT), "__torch__.Point", ("x", "n"))


def check(before: str, after: str, *samples: Any) -> Graph:
    def types(name: str) -> T.Type | None:
        return POINT if name == "__torch__.Point" else None

    return check_pass(lower_tuples, before, after, samples or None, run, types=types)


def test_readers_of_a_tuple_read_its_elements() -> None:
    check(
        """
        graph(%x : Tensor, %n : int):
          %one : int = prim::Constant[value=1]()
          %last : int = prim::Constant[value=-1]()
          %t : (Tensor, int, Tensor) = prim::TupleConstruct(%x, %n, %x)
          %a : Tensor, %b : int, %c : Tensor = prim::TupleUnpack(%t)
          %d : int = prim::TupleIndex(%t, %one)
          %e : Tensor = prim::TupleIndex(%t, %last)
          %s : (int, Tensor) = prim::TupleSlice[beg=1, end=3](%t)
          %f : int, %g : Tensor = prim::TupleUnpack(%s)
          return (%a, %b, %c, %d, %e, %f, %g)""",
        """
        graph(%x : Tensor, %n : int):
          %one : int = prim::Constant[value=1]()
          %last : int = prim::Constant[value=-1]()
          %t : (Tensor, int, Tensor) = prim::TupleConstruct(%x, %n, %x)
          %s : (int, Tensor) = prim::TupleConstruct(%n, %x)
          return (%x, %n, %x, %n, %x, %n, %x)""",
        [FLOATS, 3],
    )


def test_nested_tuples_come_apart() -> None:
    check(
        """
        graph(%x : Tensor, %n : int):
          %t : (Tensor, int) = prim::TupleConstruct(%x, %n)
          %u : ((Tensor, int), int) = prim::TupleConstruct(%t, %n)
          %v : (Tensor, int), %a : int = prim::TupleUnpack(%u)
          %b : Tensor, %c : int = prim::TupleUnpack(%v)
          return (%b, %a, %c)""",
        """
        graph(%x : Tensor, %n : int):
          %t : (Tensor, int) = prim::TupleConstruct(%x, %n)
          %u : ((Tensor, int), int) = prim::TupleConstruct(%t, %n)
          return (%x, %n, %n)""",
        [FLOATS, 3],
    )


def test_a_constant_tuple() -> None:
    check(
        """
        graph():
          %t : (int, str) = prim::Constant[value=(3, "a")]()
          %a : int, %b : str = prim::TupleUnpack(%t)
          return (%a, %b)""",
        """
        graph():
          %t : (int, str) = prim::Constant[value=(3, "a")]()
          %a : int = prim::Constant[value=3]()
          %b : str = prim::Constant[value="a"]()
          return (%a, %b)""",
        [],
    )


def test_an_if_hands_on_elements() -> None:
    check(
        """
        graph(%x : Tensor, %c : bool, %given : (Tensor, int)):
          %one : int = prim::Constant[value=1]()
          %t : (Tensor, int) = prim::If(%c)
            block0():
              %y : Tensor = aten::neg(%x)
              %a : (Tensor, int) = prim::TupleConstruct(%y, %one)
              -> (%a)
            block1():
              -> (%given)
          %p : Tensor, %q : int = prim::TupleUnpack(%t)
          return (%p, %q)""",
        """
        graph(%x : Tensor, %c : bool, %given : (Tensor, int)):
          %one : int = prim::Constant[value=1]()
          %p : Tensor, %q : int = prim::If(%c)
            block0():
              %y : Tensor = aten::neg(%x)
              %a : (Tensor, int) = prim::TupleConstruct(%y, %one)
              -> (%y, %one)
            block1():
              %g : Tensor, %h : int = prim::TupleUnpack(%given)
              -> (%g, %h)
          %t : (Tensor, int) = prim::TupleConstruct(%p, %q)
          return (%p, %q)""",
        [FLOATS, True, (FLOATS, 2)],
        [FLOATS, False, (FLOATS, 2)],
    )


def test_a_side_that_raises_is_not_initialised() -> None:
    check(
        """
        graph(%x : Tensor, %c : bool):
          %one : int = prim::Constant[value=1]()
          %m : str = prim::Constant[value="no"]()
          %t : (Tensor, int) = prim::If(%c)
            block0():
              %a : (Tensor, int) = prim::TupleConstruct(%x, %one)
              -> (%a)
            block1():
              %u : (Tensor, int) = prim::Uninitialized()
               = prim::RaiseException(%m)
              -> (%u)
          %p : Tensor, %q : int = prim::TupleUnpack(%t)
          return (%p, %q)""",
        """
        graph(%x : Tensor, %c : bool):
          %one : int = prim::Constant[value=1]()
          %m : str = prim::Constant[value="no"]()
          %p : Tensor, %q : int = prim::If(%c)
            block0():
              %a : (Tensor, int) = prim::TupleConstruct(%x, %one)
              -> (%x, %one)
            block1():
              %u : (Tensor, int) = prim::Uninitialized()
               = prim::RaiseException(%m)
              %v : Tensor = prim::Uninitialized()
              %w : int = prim::Uninitialized()
              -> (%v, %w)
          %t : (Tensor, int) = prim::TupleConstruct(%p, %q)
          return (%p, %q)""",
        [FLOATS, True],
    )


def test_a_state_carried_through_ifs_in_a_loop() -> None:
    """The loop and the if inside hand the tuple on to each other: both come apart or neither."""
    check(
        """
        graph(%x : Tensor, %n : int, %c : bool):
          %true : bool = prim::Constant[value=1]()
          %s : (Tensor, int) = prim::TupleConstruct(%x, %n)
          %r : (Tensor, int) = prim::Loop(%n, %true, %s)
            block0(%i : int, %p : (Tensor, int)):
              %a : Tensor, %b : int = prim::TupleUnpack(%p)
              %t : (Tensor, int) = prim::If(%c)
                block0():
                  %d : Tensor = aten::neg(%a)
                  %e : (Tensor, int) = prim::TupleConstruct(%d, %i)
                  -> (%e)
                block1():
                  -> (%p)
              -> (%true, %t)
          return (%r)""",
        """
        graph(%x : Tensor, %n : int, %c : bool):
          %true : bool = prim::Constant[value=1]()
          %s : (Tensor, int) = prim::TupleConstruct(%x, %n)
          %u : Tensor, %v : int = prim::Loop(%n, %true, %x, %n)
            block0(%i : int, %a : Tensor, %b : int):
              %p : (Tensor, int) = prim::TupleConstruct(%a, %b)
              %f : Tensor, %g : int = prim::If(%c)
                block0():
                  %d : Tensor = aten::neg(%a)
                  %e : (Tensor, int) = prim::TupleConstruct(%d, %i)
                  -> (%d, %i)
                block1():
                  -> (%a, %b)
              %t : (Tensor, int) = prim::TupleConstruct(%f, %g)
              -> (%true, %f, %g)
          %r : (Tensor, int) = prim::TupleConstruct(%u, %v)
          return (%r)""",
        [FLOATS, 3, True],
        [FLOATS, 0, False],
    )


def test_what_the_graph_takes_and_returns_keeps_its_type() -> None:
    text = """
        graph(%t : (Tensor, int)):
          %a : Tensor, %b : int = prim::TupleUnpack(%t)
          %r : (int, Tensor) = prim::TupleConstruct(%b, %a)
          return (%r)"""
    check(text, text, [(FLOATS, 2)])


def test_named_tuples() -> None:
    check(
        """
        graph(%x : Tensor, %n : int, %c : bool):
          %a : __torch__.Point = prim::TupleConstruct(%x, %n)
          %t : __torch__.Point = prim::If(%c)
            block0():
              -> (%a)
            block1():
              %y : Tensor = aten::neg(%x)
              %b : __torch__.Point = prim::TupleConstruct(%y, %n)
              -> (%b)
          return (%t)""",
        """
        graph(%x : Tensor, %n : int, %c : bool):
          %a : __torch__.Point = prim::TupleConstruct(%x, %n)
          %u : Tensor, %v : int = prim::If(%c)
            block0():
              -> (%x, %n)
            block1():
              %y : Tensor = aten::neg(%x)
              %b : __torch__.Point = prim::TupleConstruct(%y, %n)
              -> (%y, %n)
          %t : __torch__.Point = prim::TupleConstruct(%u, %v)
          return (%t)""",
        [FLOATS, 3, True],
        [FLOATS, 3, False],
    )


def test_a_named_tuple_that_becomes_a_plain_one_stays() -> None:
    """Its class would be lost."""
    text = """
        graph(%x : Tensor, %n : int, %c : bool):
          %a : __torch__.Point = prim::TupleConstruct(%x, %n)
          %b : (Tensor, int) = prim::TupleConstruct(%x, %n)
          %t : (Tensor, int) = prim::If(%c)
            block0():
              -> (%a)
            block1():
              -> (%b)
          return (%t)"""
    check(text, text, [FLOATS, 3, True])


def test_optional_tuples_and_unknown_indices_stay() -> None:
    text = """
        graph(%x : Tensor, %n : int, %c : bool):
          %none : NoneType = prim::Constant()
          %far : int = prim::Constant[value=2]()
          %a : (Tensor, Tensor) = prim::TupleConstruct(%x, %x)
          %t : (Tensor, Tensor)? = prim::If(%c)
            block0():
              -> (%a)
            block1():
              -> (%none)
          %e : Tensor = prim::TupleIndex(%a, %n)
          %f : Tensor = prim::TupleIndex(%a, %far)
          return (%t, %e)"""
    check(text, text)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_the_pass_keeps_meaning(program: Program) -> None:
    assert_keeps_meaning(lower_tuples, program)
