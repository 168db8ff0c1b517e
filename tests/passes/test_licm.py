"""Loop-invariant code: what leaves a loop, and what must stay in it."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import changes_made
from gpujit.passes.control.licm import hoist_loop_invariants
from gpujit.support.config import config
from gpujit.testing import check_pass
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs, run_graph


def loop(body: str, trips: str = "%three", before: str = "", returned: str = "%r", yields: str = "%d") -> str:
    """A graph with a loop that carries a tensor ``%c``."""
    return f"""
        graph(%x : Tensor, %n : int, %k : int, %t : bool):
          %three : int = prim::Constant[value=3]()
          %true : bool = prim::Constant[value=1]()
          {before}
          %r : Tensor = prim::Loop({trips}, %true, %x)
            block0(%i : int, %c : Tensor):
              {body}
              -> (%true, {yields})
          return ({returned})"""


def moves(body: str, left: str, before: str, **options: str) -> None:
    check_pass(hoist_loop_invariants, loop(body, **options), loop(left, before=before, **options))


def stays(body: str, **options: str) -> None:
    check_pass(hoist_loop_invariants, loop(body, **options), loop(body, **options))


def test_moves_what_does_not_change() -> None:
    moves(
        "%a : Tensor = aten::relu(%x)\n%b : Tensor = aten::neg(%a)\n%d : Tensor = aten::mul(%c, %b)",
        "%d : Tensor = aten::mul(%c, %b)",
        "%a : Tensor = aten::relu(%x)\n%b : Tensor = aten::neg(%a)",
    )


def test_constants_move_along() -> None:
    moves(
        "%two : int = prim::Constant[value=2]()\n%a : int = aten::add(%k, %two)\n%d : Tensor = aten::mul(%c, %a)",
        "%d : Tensor = aten::mul(%c, %a)",
        "%two : int = prim::Constant[value=2]()\n%a : int = aten::add(%k, %two)",
    )


def test_leaves_several_loops_at_once() -> None:
    text = """
        graph(%x : Tensor):
          %two : int = prim::Constant[value=2]()
          %true : bool = prim::Constant[value=1]()
          {}
          %r : Tensor = prim::Loop(%two, %true, %x)
            block0(%i : int, %c : Tensor):
              %s : Tensor = prim::Loop(%two, %true, %c)
                block0(%j : int, %e : Tensor):
                  {}
                  %d : Tensor = aten::mul(%e, %a)
                  -> (%true, %d)
              -> (%true, %s)
          return (%r)"""
    node = "%a : Tensor = aten::relu(%x)"
    check_pass(hoist_loop_invariants, text.format("", node), text.format(node, ""))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%a : Tensor = aten::relu(%c)\n%d : Tensor = aten::mul(%c, %a)", ""),
        ("%a : Tensor = aten::mul(%x, %i)\n%d : Tensor = aten::mul(%c, %a)", ""),
        (
            "%a : Tensor = aten::relu(%x)\n%w : Tensor = aten::neg_(%x)\n%d : Tensor = aten::mul(%c, %a)",
            "the loop may write",
        ),
        ("%a : Tensor = aten::relu(%x)\n%w : Tensor = aten::neg_(%a)\n%d : Tensor = aten::mul(%c, %a)", "is written"),
        ("%a : Tensor = aten::relu(%x)\n%d : Tensor = aten::mul(%c, %a)\n%w : Tensor = aten::relu_(%c)", "may write"),
        ("%h : float = prim::Constant[value=0.5]()\n%a : Tensor = aten::dropout(%x, %h, %true)\n"
         "%d : Tensor = aten::mul(%c, %a)", ""),
    ],
)  # fmt: skip
def test_stays_when_the_loop_changes_it(body: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        stays(body)
    assert reason in caplog.text


def test_what_may_fail_stays_in_a_loop_that_may_not_run() -> None:
    body = "%a : Tensor = aten::mm(%x, %x)\n%d : Tensor = aten::mul(%c, %a)"
    stays(body, trips="%n")
    moves(body, "%d : Tensor = aten::mul(%c, %a)", "%a : Tensor = aten::mm(%x, %x)")
    zero = loop(body).replace("value=3", "value=0")
    check_pass(hoist_loop_invariants, zero, zero)


def test_what_cannot_fail_leaves_any_loop() -> None:
    text = """
        graph(%x : Float(2, 3), %n : int):
          %true : bool = prim::Constant[value=1]()
          {}
          %r : Float(2, 3) = prim::Loop(%n, %true, %x)
            block0(%i : int, %c : Float(2, 3)):
              {}
              %d : Float(2, 3) = aten::mul(%c, %a)
              -> (%true, %d)
          return (%r)"""
    node = "%a : Float(2, 3) = aten::relu(%x)"
    check_pass(hoist_loop_invariants, text.format("", node), text.format(node, ""))


def test_nothing_that_may_fail_passes_an_effect() -> None:
    stays(" = prim::Print(%i)\n%a : Tensor = aten::mm(%x, %x)\n%d : Tensor = aten::mul(%c, %a)")


def test_each_run_keeps_a_tensor_of_its_own() -> None:
    stays(
        "%a : Tensor = aten::relu(%x)\n%w : Tensor[] = aten::append(%l, %a)\n%d : Tensor = aten::neg(%c)",
        before="%l : Tensor[] = prim::ListConstruct()",
        returned="%l",
    )


def test_fuel_counts_nodes() -> None:
    text = loop("\n".join(f"%a{i} : Tensor = aten::relu(%x)" for i in range(4)), yields="%a3")
    for limit in range(6):
        graph = parse_graph(text, resolve=resolve_node)
        start = changes_made()
        with config(pass_limit=start + limit):
            hoist_loop_invariants(graph)
        # The last one leaves the graph, and is made anew each time.
        assert changes_made() - start == min(limit, 3)
        assert sum(n.kind == "aten::relu" for n in graph.nodes) == min(limit, 3)
        assert run_graph(graph, -np.ones(2, np.float32), 1, 1, True).tolist() == [0.0, 0.0]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_keeps_the_meaning(program: Program) -> None:
    assert_keeps_meaning(hoist_loop_invariants, program)
