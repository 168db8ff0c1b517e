"""Nodes that hand on their input."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.passes.idle import remove_idle
from gpujit.testing import check_pass
from tests.passes.random_graphs import run_graph

DROPOUT = """
    graph(%x : Tensor):
      %p : float = prim::Constant[value={}]()
      %training : bool = prim::Constant[value={}]()
      %one : int = prim::Constant[value=1]()
      %y : Tensor = aten::dropout_(%x, %p, %training)
      %z : Tensor = aten::add_(%y, %x, %one)
      return (%z)"""


def test_a_cast_to_what_a_value_is_goes() -> None:
    check_pass(
        remove_idle,
        before="""
            graph(%n : int, %x : Float(2, 3)):
              %a : int = prim::unchecked_cast(%n)
              %b : Tensor = prim::unchecked_cast(%x)
              return (%a, %b)""",
        after="""
            graph(%n : int, %x : Float(2, 3)):
              return (%n, %x)""",
    )


def test_a_cast_to_a_narrower_type_stays() -> None:
    text = """
        graph(%n : int?, %x : Tensor):
          %a : int = prim::unchecked_cast(%n)
          %b : Float(2, 3) = prim::unchecked_cast(%x)
          return (%a, %b)"""
    check_pass(remove_idle, before=text, after=text)


def test_dropout_in_place_outside_training_goes() -> None:
    text = DROPOUT.format(0.25, 0)
    after = text.replace("%y : Tensor = aten::dropout_(%x, %p, %training)\n", "\n").replace("(%y, %x", "(%x, %x")
    sample = (np.arange(4, dtype=np.float32),)
    check_pass(remove_idle, before=text, after=after, samples=[sample], run=run_graph)


@pytest.mark.parametrize(("probability", "training"), [(0.25, 1), (1.5, 0)])
def test_dropout_in_training_and_one_that_fails_stay(probability: float, training: int) -> None:
    text = DROPOUT.format(probability, training)
    check_pass(remove_idle, before=text, after=text)
