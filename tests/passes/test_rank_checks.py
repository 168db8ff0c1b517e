"""Checks of a tensor's rank: the first of a row stays, the others are answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.passes.rank_checks import use_rank_checks
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.support.errors import ScriptRaised
from gpujit.testing import check_pass

CHECK = """
              %{d} : int = aten::dim(%{x})
              %{c} : bool = aten::ne(%{d}, %four)
               = prim::If(%{c})
                block0():
                   = prim::RaiseException(%text)
                  -> ()
                block1():
                  -> ()"""
HEAD = """
            graph(%x : Tensor):
              %four : int = prim::Constant[value=4]()
              %text : str = prim::Constant[value="expected 4D input"]()"""


def check(x: str, number: int) -> str:
    return CHECK.format(x=x, d=f"d{number}", c=f"c{number}")


def run(graph: Graph, *inputs: Any) -> Any:
    lowerer = Lowerer(np)
    return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def test_a_second_check_is_answered_by_the_first() -> None:
    graph = check_pass(
        use_rank_checks,
        before=f"""{HEAD}{check("x", 1)}
              %y : Tensor = aten::relu(%x)
              %d2 : int = aten::dim(%y)
              %s : int[] = aten::size(%y)
              %n : int = aten::len(%s)
              %sum : int = aten::add(%d2, %n)
              return (%sum)""",
        after=f"""{HEAD}{check("x", 1)}
              %y : Tensor(*, *, *, *) = aten::relu(%x)
              %d2 : int = prim::Constant[value=4]()
              %s : int[] = aten::size(%y)
              %n : int = prim::Constant[value=4]()
              %sum : int = aten::add(%d2, %n)
              return (%sum)""",
        samples=[[np.zeros((1, 2, 3, 4), np.float32)]],
        run=run,
    )
    with pytest.raises(ScriptRaised, match="expected 4D input"):
        run(graph, np.zeros((2, 3, 4), np.float32))


def test_what_is_known_of_a_result_is_known_of_what_it_was_made_from() -> None:
    check_pass(
        use_rank_checks,
        before=f"""{HEAD}
              %y : Tensor = aten::relu(%x){check("y", 1)}
              %n : int = aten::dim(%x)
              %z : Tensor = aten::neg(%x)
              return (%n, %z)""",
        after=f"""{HEAD}
              %y : Tensor = aten::relu(%x){check("y", 1)}
              %n : int = prim::Constant[value=4]()
              %z : Tensor(*, *, *, *) = aten::neg(%x)
              return (%n, %z)""",
    )


def test_a_question_before_the_check_and_one_outside_its_block_stay() -> None:
    inner = check("x", 2).replace("\n", "\n    ")
    text = f"""{HEAD}
              %yes : bool = aten::is_floating_point(%x)
              %before : int = aten::dim(%x)
               = prim::If(%yes)
                block0():{inner}
                  -> ()
                block1():
                  -> ()
              %after : int = aten::dim(%x)
              %sum : int = aten::add(%before, %after)
              return (%sum)"""
    check_pass(use_rank_checks, before=text, after=text)


def test_a_check_that_only_warns_says_nothing() -> None:
    text = f"""{HEAD}{check("x", 1)}
              %n : int = aten::dim(%x)
              return (%n)""".replace(" = prim::RaiseException(%text)", " = aten::warn(%text, %four)")
    check_pass(use_rank_checks, before=text, after=text)


def test_nothing_is_concluded_where_a_shape_may_change_in_place() -> None:
    text = f"""{HEAD}{check("x", 1)}
              %u : Tensor = aten::unsqueeze_(%x, %four)
              %n : int = aten::dim(%x)
              return (%n)"""
    check_pass(use_rank_checks, before=text, after=text)


def test_a_comparison_that_every_possible_rank_passes_is_decided() -> None:
    """A convolution over two dims gives three or four: always more than two, not always four."""
    head = """
        graph(%x : Tensor, %w : Tensor, %one : int[]):
          %n : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %four : int = prim::Constant[value=4]()
          %none : NoneType = prim::Constant()
          %y : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %n)
          %z : Tensor = aten::relu(%y)
          %s : int[] = aten::size(%z)
          %l : int = aten::len(%s)
          %d : int = aten::dim(%z)"""
    check_pass(
        use_rank_checks,
        before=f"""{head}
          %a : bool = aten::gt(%l, %two)
          %b : bool = aten::eq(%d, %four)
          return (%a, %b)""",
        after=f"""{head}
          %a : bool = prim::Constant[value=1]()
          %b : bool = aten::eq(%d, %four)
          return (%a, %b)""",
    )
