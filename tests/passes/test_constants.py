"""Equal constants pooled, views of constants folded."""

from __future__ import annotations

import textwrap

import numpy as np

from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.fold import fold
from gpujit.passes.freeze.constant_views import fold_constant_views
from gpujit.passes.freeze.pool_equal import MAX_BYTES, pool_equal
from gpujit.testing import check_pass
from tests.passes.peephole_help import run

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_equal_lists_that_are_only_read_become_one() -> None:
    check_pass(
        pool_equal,
        before="""
            graph(%x : Tensor):
              %a : int[] = prim::Constant[value=[2, 3]]()
              %b : int[] = prim::Constant[value=[2, 3]]()
              %c : int[] = prim::Constant[value=[3, 2]]()
              %f : float[] = prim::Constant[value=[2., 3.]]()
              %kept : int[] = prim::Constant[value=[2, 3]]()
              %y : Tensor = aten::reshape(%x, %a)
              %z : Tensor = aten::reshape(%y, %b)
              %w : Tensor = aten::reshape(%z, %c)
              return (%w, %f, %kept)""",
        after="""
            graph(%x : Tensor):
              %a : int[] = prim::Constant[value=[2, 3]]()
              %c : int[] = prim::Constant[value=[3, 2]]()
              %f : float[] = prim::Constant[value=[2., 3.]]()
              %kept : int[] = prim::Constant[value=[2, 3]]()
              %y : Tensor = aten::reshape(%x, %a)
              %z : Tensor = aten::reshape(%y, %a)
              %w : Tensor = aten::reshape(%z, %c)
              return (%w, %f, %kept)""",
    )


def test_equal_small_tensors_that_are_only_read_become_one() -> None:
    text = """
        graph(%x : Tensor, %n : int):
          %a : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(2, 3) = prim::Constant[value=CONSTANTS.c1]()
          %other : Float(2, 3) = prim::Constant[value=CONSTANTS.c2]()
          %y : Tensor = aten::mul(%x, %a)
          %z : Tensor = aten::mul(%y, %b)
          %w : Tensor = aten::mul(%z, %other)
          return (%w)"""
    check_pass(
        pool_equal,
        before=text,
        after="""
        graph(%x : Tensor, %n : int):
          %a : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %other : Float(2, 3) = prim::Constant[value=CONSTANTS.c2]()
          %y : Tensor = aten::mul(%x, %a)
          %z : Tensor = aten::mul(%y, %a)
          %w : Tensor = aten::mul(%z, %other)
          return (%w)""",
        constants=[W, W.copy(), W + 1],
    )
    for constants in ([W, np.asfortranarray(W), W + 1], [W, np.where(W == 0, np.float32(-0.0), W), W + 1]):
        check_pass(pool_equal, before=text, after=text, constants=constants)
    large = np.zeros((2, MAX_BYTES), np.float32)
    text = text.replace("(2, 3)", f"(2, {MAX_BYTES})")
    check_pass(pool_equal, before=text, after=text, constants=[large, large.copy(), large.copy()])


def test_equal_tensors_that_leave_the_graph_stay_two() -> None:
    text = """
        graph(%x : Tensor):
          %a : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(2, 3) = prim::Constant[value=CONSTANTS.c1]()
          return (%a, %b)"""
    check_pass(pool_equal, before=text, after=text, constants=[W, W.copy()])


def test_views_of_constants_become_constants_that_share_their_memory() -> None:
    graph = check_pass(
        fold_constant_views,
        before="""
            graph(%x : Tensor):
              %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
              %n : int[] = prim::Constant[value=[1, 3, 2]]()
              %t : Tensor = aten::t(%w)
              %u : Tensor = aten::view(%w, %n)
              %y : Tensor = aten::matmul(%x, %t)
              %z : Tensor = aten::mul(%y, %u)
              return (%z)""",
        after="""
            graph(%x : Tensor):
              %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
              %n : int[] = prim::Constant[value=[1, 3, 2]]()
              %t : Float(3, 2) = prim::Constant[value=CONSTANTS.c1]()
              %u : Float(1, 3, 2) = prim::Constant[value=CONSTANTS.c2]()
              %y : Tensor = aten::matmul(%x, %t)
              %z : Tensor = aten::mul(%y, %u)
              return (%z)""",
        constants=[W],
    )
    arrays = [n.attributes["value"] for n in graph.nodes if isinstance(n.attributes.get("value"), np.ndarray)]
    assert all(np.shares_memory(a, W) for a in arrays)


def test_views_that_are_written_that_fail_or_that_lose_all_dimensions_stay() -> None:
    text = """
        graph(%x : Tensor):
          %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %b : Float(3) = prim::Constant[value=CONSTANTS.c1]()
          %n : int[] = prim::Constant[value=[4]]()
          %i : int = prim::Constant[value=1]()
          %t : Tensor = aten::t(%w)
          %v : Tensor = aten::zero_(%t)
          %u : Tensor = aten::view(%b, %n)
          %s : Tensor = aten::select(%b, %i, %i)
          return (%v, %u, %s)"""
    check_pass(fold_constant_views, before=text, after=text, constants=[W.copy(), W[0].copy()])


def test_copies_of_constants_become_copies_by_name_which_folding_computes() -> None:
    """Casts, other orders in memory: nothing shares memory with the result, so that it can be known."""
    before = """
        graph(%x : Tensor):
          %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %i : int = prim::Constant[value=5]()
          %f : bool = prim::Constant[value=0]()
          %n : NoneType = prim::Constant()
          %h : Tensor = aten::to(%w, %i, %f, %f, %n)
          %t : Tensor = aten::t(%w)
          %c : Tensor = aten::contiguous(%t, %m)
          %y : Tensor = aten::matmul(%x, %c)
          %z : Tensor = aten::mul(%y, %h)
          return (%z)"""
    before = before.replace("%h :", "%m : int = prim::Constant[value=0]()\n          %h :")
    graph = check_pass(
        fold_constant_views,
        before=before,
        after="""
            graph(%x : Tensor):
              %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
              %i : int = prim::Constant[value=5]()
              %f : bool = prim::Constant[value=0]()
              %n : NoneType = prim::Constant()
              %m : int = prim::Constant[value=0]()
              %hc : Half(2, 3) = prim::Constant[value=CONSTANTS.c1]()
              %n1 : NoneType = prim::Constant()
              %h : Half(2, 3) = aten::clone(%hc, %n1)
              %t : Float(3, 2) = prim::Constant[value=CONSTANTS.c2]()
              %cc : Float(3, 2) = prim::Constant[value=CONSTANTS.c3]()
              %n2 : NoneType = prim::Constant()
              %c : Float(3, 2) = aten::clone(%cc, %n2)
              %y : Tensor = aten::matmul(%x, %c)
              %z : Tensor = aten::mul(%y, %h)
              return (%z)""",
        constants=[W],
    )
    assert fold(graph) and not any(n.kind == "aten::clone" for n in graph.nodes)


def test_copies_that_are_written_or_leave_the_graph_are_made_in_each_run() -> None:
    """What a run gives away or writes into is no constant afterwards."""
    text = """
        graph(%x : Tensor):
          %w : Float(2, 3) = prim::Constant[value=CONSTANTS.c0]()
          %i : int = prim::Constant[value=5]()
          %f : bool = prim::Constant[value=0]()
          %n : NoneType = prim::Constant()
          %h : Tensor = aten::to(%w, %i, %f, %f, %n)
          %v : Tensor = {}
          return (%h)"""
    written = text.format("aten::add_(%h, %x, %i)")
    check_pass(fold_constant_views, before=written, after=written, constants=[W.copy()])
    kept = textwrap.dedent(text.format("aten::neg(%h)")).strip()
    graph = parse_graph(kept, constants=[W.copy()], resolve=resolve_node)
    while fold_constant_views(graph) or fold(graph):
        pass
    first = run(graph, W)
    first[...] = 7
    assert np.array_equal(run(graph, W), W.astype(np.float16))


def test_copies_larger_than_what_they_are_made_from_stay() -> None:
    text = """
        graph(%x : Tensor):
          %w : Float(1, 3) = prim::Constant[value=CONSTANTS.c0]()
          %n : int[] = prim::Constant[value=[100, 3]]()
          %m : int = prim::Constant[value=0]()
          %e : Float(100, 3) = aten::expand(%w, %n, %f)
          %c : Tensor = aten::contiguous(%e, %m)
          %y : Tensor = aten::mul(%x, %c)
          return (%y)""".replace("%e :", "%f : bool = prim::Constant[value=0]()\n          %e :")
    graph = parse_graph(textwrap.dedent(text).strip(), constants=[W[:1].copy()], resolve=resolve_node)
    fold_constant_views(graph)
    assert [n.kind for n in graph.nodes if n.kind.startswith("aten::")] == ["aten::contiguous", "aten::mul"]
