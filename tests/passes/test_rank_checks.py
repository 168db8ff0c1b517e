"""Checks of a tensor's rank: the first of a row stays, the others are answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.passes.control.rank_checks import use_rank_checks
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


def test_parts_of_a_tensor_and_what_is_joined_of_them_have_its_rank() -> None:
    check_pass(
        use_rank_checks,
        before=f"""{HEAD}
              %two : int = prim::Constant[value=2]()
              %one : int = prim::Constant[value=1]()
              %zero : int = prim::Constant[value=0](){check("x", 1)}
              %parts : Tensor[] = aten::chunk(%x, %two, %one)
              %a : Tensor, %b : Tensor = prim::ListUnpack(%parts)
              %c : Tensor = aten::__getitem__(%parts, %zero)
              %list : Tensor[] = prim::ListConstruct(%a, %b, %c)
              %y : Tensor = aten::cat(%list, %one)
              %z : Tensor = aten::stack(%list, %one)
              %d2 : int = aten::dim(%y)
              %d3 : int = aten::dim(%z)
              %sum : int = aten::add(%d2, %d3)
              return (%sum)""",
        after=f"""{HEAD}
              %two : int = prim::Constant[value=2]()
              %one : int = prim::Constant[value=1]()
              %zero : int = prim::Constant[value=0](){check("x", 1)}
              %parts : Tensor[] = aten::chunk(%x, %two, %one)
              %a : Tensor(*, *, *, *), %b : Tensor(*, *, *, *) = prim::ListUnpack(%parts)
              %c : Tensor(*, *, *, *) = aten::__getitem__(%parts, %zero)
              %list : Tensor[] = prim::ListConstruct(%a, %b, %c)
              %y : Tensor(*, *, *, *) = aten::cat(%list, %one)
              %z : Tensor(*, 3, *, *, *) = aten::stack(%list, %one)
              %four.1 : int = prim::Constant[value=4]()
              %five : int = prim::Constant[value=5]()
              %sum : int = aten::add(%four.1, %five)
              return (%sum)""",
        samples=[(np.zeros((2, 4, 2, 2), np.float32),)],
        run=run,
    )


@pytest.mark.parametrize(
    "write", ["%w : Tensor[] = aten::append(%list, %other)", "%w : Tensor[] = aten::append(%parts, %other)"]
)
def test_a_list_that_changes_says_nothing_of_its_parts(write: str) -> None:
    text = f"""
            graph(%x : Tensor(*, *, *, *), %other : Tensor):
              %two : int = prim::Constant[value=2]()
              %one : int = prim::Constant[value=1]()
              %zero : int = prim::Constant[value=0]()
              %parts : Tensor[] = aten::chunk(%x, %two, %one)
              %list : Tensor[] = prim::ListConstruct(%x, %x)
              {write}
              %a : Tensor = aten::__getitem__({"%parts" if "parts" in write else "%w"}, %zero)
              %y : Tensor = aten::cat({"%list" if "%list" in write else "%parts"}, %one)
              return (%a, %y)"""
    check_pass(use_rank_checks, before=text, after=text)


def test_results_of_an_if_have_the_rank_that_both_sides_have() -> None:
    before = """
            graph(%p : bool, %x : Tensor(*, *), %y : Tensor(*, *), %z : Tensor(*)):
              %a : Tensor, %b : Tensor = prim::If(%p)
                block0():
                  -> (%x, %x)
                block1():
                  -> (%y, %z)
              return (%a, %b)"""
    check_pass(use_rank_checks, before=before, after=before.replace("%a : Tensor,", "%a : Tensor(*, *),"))
