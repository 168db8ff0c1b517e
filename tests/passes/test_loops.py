from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir.parser import parse_graph
from gpujit.ir.verify import verify
from gpujit.passes.control.blocks import nodes_of_kind
from gpujit.passes.control.loops import Limits, peel, unroll_constant_loops, unroll_loops, unroll_whole
from gpujit.testing import check_pass, resolve_node
from tests.passes.random_graphs import run_graph as run

X = np.arange(3, dtype=np.float32)


def kinds(text: str) -> list[str]:
    graph = parse_graph(text, resolve=resolve_node)
    unroll_constant_loops(graph)
    verify(graph)
    return [n.kind for n in graph.all_nodes() if n.kind != "prim::Constant"]


def test_a_loop_of_known_trips_becomes_its_trips_and_what_they_compute_is_folded() -> None:
    check_pass(
        unroll_constant_loops,
        before="""
            graph(%x : Tensor):
              %n : int = prim::Constant[value=3]()
              %t : bool = prim::Constant[value=1]()
              %one : int = prim::Constant[value=1]()
              %a : Tensor, %k : int = prim::Loop(%n, %t, %x, %one)
                block0(%i : int, %v : Tensor, %m : int):
                  %c : bool = aten::eq(%i, %one)
                  %w : Tensor = prim::If(%c)
                    block0():
                      %r : Tensor = aten::relu(%v)
                      -> (%r)
                    block1():
                      %s : Tensor = aten::mul(%v, %m)
                      -> (%s)
                  %m2 : int = aten::add(%m, %m)
                  -> (%t, %w, %m2)
              %y : Tensor = aten::mul(%a, %k)
              return (%y)""",
        after="""
            graph(%x : Tensor):
              %n : int = prim::Constant[value=3]()
              %t : bool = prim::Constant[value=1]()
              %one : int = prim::Constant[value=1]()
              %i0 : int = prim::Constant[value=0]()
              %s : Tensor = aten::mul(%x, %one)
              %i1 : int = prim::Constant[value=1]()
              %r : Tensor = aten::relu(%s)
              %four : int = prim::Constant[value=4]()
              %i2 : int = prim::Constant[value=2]()
              %u : Tensor = aten::mul(%r, %four)
              %eight : int = prim::Constant[value=8]()
              %y : Tensor = aten::mul(%u, %eight)
              return (%y)""",
        samples=[(X,)],
        run=run,
    )


def test_a_condition_is_followed_as_long_as_it_can_be_computed() -> None:
    text = """
        graph(%x : Tensor):
          %most : int = prim::Constant[value=9223372036854775807]()
          %t : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %five : int = prim::Constant[value=5]()
          %a : Tensor, %k : int = prim::Loop(%most, %t, %x, %zero)
            block0(%i : int, %v : Tensor, %m : int):
              %w : Tensor = aten::relu(%v)
              %next : int = aten::add(%m, %one)
              %more : bool = aten::lt(%next, %five)
              -> (%more, %w, %next)
          return (%a)"""
    assert kinds(text) == ["aten::relu"] * 5


def test_nested_loops_and_a_loop_that_ends_in_an_unrolled_one() -> None:
    text = """
        graph(%x : Tensor):
          %n : int = prim::Constant[value=3]()
          %t : bool = prim::Constant[value=1]()
          %a : Tensor = prim::Loop(%n, %t, %x)
            block0(%i : int, %v : Tensor):
              %b : Tensor = prim::Loop(%i, %t, %v)
                block0(%j : int, %u : Tensor):
                  %w : Tensor = aten::relu(%u)
                  -> (%t, %w)
              -> (%t, %b)
          return (%a)"""
    assert kinds(text) == ["aten::relu"] * 3


@pytest.mark.parametrize(
    ("trips", "more", "reason"),
    [
        ("%most", "%t", "are over the limits"),
        ("%three", "%c", "its condition depends on more than constants"),
        ("%n", "%t", None),
    ],
)
def test_loops_that_stay(trips: str, more: str, reason: str | None, caplog: pytest.LogCaptureFixture) -> None:
    text = f"""
        graph(%x : Tensor, %n : int, %d : Tensor):
          %most : int = prim::Constant[value=100000]()
          %three : int = prim::Constant[value=3]()
          %t : bool = prim::Constant[value=1]()
          %a : Tensor = prim::Loop({trips}, %t, %x)
            block0(%i : int, %v : Tensor):
              %c : bool = aten::Bool(%d)
              %w : Tensor = aten::relu(%v)
              -> ({more}, %w)
          return (%a)"""
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(unroll_constant_loops, text, text)
    assert reason is None or reason in caplog.text


def test_a_loop_without_end_is_given_up_and_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    text = """
        graph(%x : Tensor):
          %most : int = prim::Constant[value=9223372036854775807]()
          %t : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %a : Tensor, %k : int = prim::Loop(%most, %t, %x, %one)
            block0(%i : int, %v : Tensor, %m : int):
              %w : Tensor = aten::relu(%v)
              %next : int = aten::add(%m, %one)
              %more : bool = aten::gt(%next, %zero)
              -> (%more, %w, %next)
          return (%a)"""
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(lambda g: unroll_whole(g, Limits(trips=20)), text, text)
    assert "it does not end within 20 trips" in caplog.text


STEPS = """
    graph(%x : Tensor, %n : int):
      %t : bool = prim::Constant[value=1]()
      %one : int = prim::Constant[value=1]()
      %a : Tensor = prim::Loop(%n, %t, %x)
        block0(%i : int, %v : Tensor):
          %w : Tensor = aten::add(%v, %i, %one)
          -> (%t, %w)
      return (%a)"""


def test_other_counted_loops_are_unrolled_in_steps() -> None:
    graph = parse_graph(STEPS, resolve=resolve_node)
    assert unroll_loops(graph)
    verify(graph)
    main, rest = nodes_of_kind(graph, ("prim::Loop",))
    adds = [
        sum(n.kind == "aten::add" and n.outputs[0].type.__class__.__name__ == "TensorType" for n in b.nodes)
        for b in (*main.blocks, *rest.blocks)
    ]
    assert adds == [8, 1]
    for n in (-9, -1, 0, 1, 7, 8, 9, 16, 23):
        np.testing.assert_array_equal(run(graph, X, n), X + sum(range(n)))
    assert not unroll_loops(graph)


def test_loops_with_a_condition_or_a_large_body_are_not_unrolled_in_steps(caplog: pytest.LogCaptureFixture) -> None:
    body = "\n".join(f"          %w{i + 1} : Tensor = aten::relu(%w{i})" for i in range(33))
    large = f"""
    graph(%x : Tensor, %n : int):
      %t : bool = prim::Constant[value=1]()
      %a : Tensor = prim::Loop(%n, %t, %x)
        block0(%i : int, %w0 : Tensor):
{body}
          -> (%t, %w33)
      return (%a)"""
    ends = """
    graph(%x : Tensor, %n : int, %c : bool):
      %a : Tensor = prim::Loop(%n, %c, %x)
        block0(%i : int, %v : Tensor):
          %w : Tensor = aten::relu(%v)
          -> (%c, %w)
      return (%a)"""
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(unroll_loops, large, large)
        check_pass(unroll_loops, ends, ends)
    assert "its body has 33 nodes; up to 32" in caplog.text and "it may end before its trip count" in caplog.text


def test_short_loops_are_unrolled_whole() -> None:
    graph = parse_graph(
        STEPS.replace("%n : int):", "):\n      %n : int = prim::Constant[value=8]()").replace("Tensor, )", "Tensor)"),
        resolve=resolve_node,
    )
    assert unroll_loops(graph)
    assert not nodes_of_kind(graph, ("prim::Loop",))
    np.testing.assert_array_equal(run(graph, X), X + 28)


def test_the_first_trip_is_peeled_off() -> None:
    graph = parse_graph(STEPS, resolve=resolve_node)
    (loop,) = nodes_of_kind(graph, ("prim::Loop",))
    first = peel(loop)
    verify(graph)
    assert first is not None and [n.kind for n in first.blocks[0].nodes] == ["aten::add"]
    for n in (-1, 0, 1, 2, 5):
        np.testing.assert_array_equal(run(graph, X, n), X + sum(range(n)))
