"""Messages and arguments nobody reads."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from gpujit.passes.texts import join_texts
from gpujit.passes.unread import simplify_unread
from gpujit.testing import check_pass
from tests.passes.random_graphs import run_graph


def test_a_message_is_formatted_in_one_piece_where_it_is_raised() -> None:
    check_pass(
        join_texts,
        before="""
            graph(%n : int, %p : bool):
              %head : str = prim::Constant[value="ValueError: "]()
              %pattern : str = prim::Constant[value="found {}, not 4"]()
              %tail : str = prim::Constant[value="!"]()
              %text : str = aten::format(%pattern, %n)
              %r : str = prim::If(%p)
                block0():
                  %a : str = aten::add(%head, %text)
                  %b : str = aten::add(%a, %tail)
                  -> (%b)
                block1():
                  -> (%head)
              return (%r)""",
        after="""
            graph(%n : int, %p : bool):
              %head : str = prim::Constant[value="ValueError: "]()
              %pattern : str = prim::Constant[value="found {}, not 4"]()
              %tail : str = prim::Constant[value="!"]()
              %r : str = prim::If(%p)
                block0():
                  %one : str = prim::Constant[value="ValueError: found {}, not 4"]()
                  %whole : str = prim::Constant[value="ValueError: found {}, not 4!"]()
                  %b : str = aten::format(%whole, %n)
                  -> (%b)
                block1():
                  -> (%head)
              return (%r)""",
        samples=[(3, True), (3, False)],
        run=run_graph,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"a text": "a {} text"},  # a place of its own
        {"a text": "a {"},
        {'%head : str = prim::Constant[value="a text"]()': ""},  # not constant
        {"%n : int": "%n : Tensor"},  # may be written in between
        {"%n : int": "%n : int[]"},
        {"(%r)": "(%r, %text)"},  # read elsewhere too
        {"found {}": "found"},  # an argument that is not shown
        {"found {}": "found {} {}"},  # raises
    ],
)
def test_texts_stay_apart(changes: dict[str, str]) -> None:
    text = """
        graph(%n : int, %other : str):
          %head : str = prim::Constant[value="a text"]()
          %pattern : str = prim::Constant[value="found {}"]()
          %text : str = aten::format(%pattern, %n)
          %r : str = aten::add(%head, %text)
          return (%r)"""
    for old, new in changes.items():
        text = text.replace(old, new)
    if "%head :" not in text:
        text = text.replace("%head", "%other")
    check_pass(join_texts, before=text, after=text)


NORM = """
    graph(%x : Tensor, %w : Tensor, %b : Tensor, %m : Tensor, %v : Tensor):
      %training : bool = prim::Constant[value={}]()
      %true : bool = prim::Constant[value=1]()
      %momentum : float = prim::Constant[value=0.1]()
      %eps : float = prim::Constant[value=1e-05]()
      %y : Tensor = aten::batch_norm(%x, %w, %b, %m, %v, %training, {}, %eps, %true)
      return (%y)"""


def test_batch_norm_does_not_read_its_momentum() -> None:
    sample = [np.arange(2 * n, dtype=np.float32).reshape(2, -1) for n in (3,)] + [
        np.full(3, k, np.float32) for k in range(4)
    ]
    check_pass(
        simplify_unread,
        before=textwrap.dedent(NORM.format(0, "%momentum")),
        after=textwrap.dedent(NORM.format(0, "%eps")),
        samples=[sample],
        run=run_graph,
    )


def test_batch_norm_reads_its_momentum_in_training() -> None:
    text = textwrap.dedent(NORM.format(1, "%momentum"))
    check_pass(simplify_unread, before=text, after=text)
