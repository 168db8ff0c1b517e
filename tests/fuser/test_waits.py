"""Joins that are refused on a processor's cores, since a kernel would wait or read rows across memory."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.fuser import cost
from gpujit.fuser.fuse import Fused, fuse
from gpujit.fuser.waits import CACHED
from gpujit.ir.graph import Graph
from tests.fuser.help import array, assert_close, read, run, shape_of_fusion

REDUCTIONS = "elements are too short to hide that one reduction waits for another"
FUNCTIONS = "elements are too short to hide that functions wait for reductions"
ACROSS = "a row would be read across memory, which otherwise is read in squares"
CONSTANTS = """\
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %last : int = prim::Constant[value=-1]()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %tanh : str = prim::Constant[value="tanh"]()
  %eps : float = prim::Constant[value=0.001]()
  %axes : int[] = prim::ListConstruct(%last)
"""
NORM = "aten::layer_norm({}, %sizes, %w, %b, %eps, %no)"
SOFTMAX = "aten::softmax({}, %last, %none)"


def graph_of(rows: int, length: int, *lines: str) -> Graph:
    """Lines that turn %x of ``rows`` by ``length``, %y of the same shape and %t, which lies the other way, into %o."""
    body = "".join(f"  {line}\n" for line in lines)
    return read(
        f"graph(%x : Float({rows}, {length}), %y : Float({rows}, {length}), %t : Float({length}, {rows}), "
        f"%w : Float({length}), %b : Float({length})):\n{CONSTANTS}"
        f"  %n : int = prim::Constant[value={length}]()\n  %sizes : int[] = prim::ListConstruct(%n)\n{body}"
        "  return (%o)"
    )


def fuse_on_cores(graph: Graph, monkeypatch: pytest.MonkeyPatch, on_cores: bool = True) -> Fused:
    """Fused as if a call of an operator cost very much."""
    monkeypatch.setattr(cost, "OPERATOR", 1e9)
    return fuse(graph, on_cores=on_cores)


def reasons(found: Fused) -> list[str]:
    return [r.reason.partition(": ")[2] for r in found.refusals if r.reason.startswith("not joined")]


NORM_TWICE = (f"%a = {NORM.format('%x')}", f"%o = {NORM.format('%a')}")
GELU_THEN_NORM = ("%a = aten::gelu(%x, %tanh)", f"%o = {NORM.format('%a')}")
NORM_THEN_GELU = (f"%a = {NORM.format('%x')}", "%o = aten::gelu(%a, %tanh)")
TANH_SOFTMAX = ("%a = aten::tanh(%x)", "%c = aten::add(%a, %y, %one)", f"%o = {SOFTMAX.format('%c')}")
ADD_NORM = ("%a = aten::add(%x, %y, %one)", f"%o = {NORM.format('%a')}")
TURNED = ("%v = aten::transpose(%t, %zero, %one)", "%a = aten::add(%v, %y, %one)", f"%o = {NORM.format('%a')}")
TURNED_AFTER = (f"%a = {NORM.format('%x')}", "%v = aten::transpose(%t, %zero, %one)", "%o = aten::add(%a, %v, %one)")
TURNED_SUM = (*TURNED[:2], "%s = aten::sum(%a, %axes, %yes, %none)", "%o = aten::sub(%a, %s, %one)")
GELU_SUM = ("%a = aten::gelu(%x, %tanh)", "%s = aten::sum(%a, %axes, %yes, %none)", "%o = aten::sub(%a, %s, %one)")


@pytest.mark.parametrize(
    ("lines", "rows", "length", "groups", "reason"),
    [
        (NORM_TWICE, 9, 64, [["layer_norm"], ["layer_norm"]], f"rows of 64 {REDUCTIONS}"),
        (NORM_TWICE, 9, 255, [["layer_norm"], ["layer_norm"]], f"rows of 255 {REDUCTIONS}"),
        (NORM_TWICE, 9, 256, [["layer_norm", "layer_norm"]], None),
        # Lanes lie across such rows.
        (NORM_TWICE, 9, 8, [["layer_norm", "layer_norm"]], None),
        # What does not fit the caches is better read once, but for very short rows.
        (NORM_TWICE, CACHED // 64, 64, [["layer_norm"], ["layer_norm"]], f"rows of 64 {REDUCTIONS}"),
        (NORM_TWICE, CACHED // 100, 128, [["layer_norm", "layer_norm"]], None),
        (GELU_THEN_NORM, 9, 32, [["gelu"], ["layer_norm"]], f"rows of 32 {FUNCTIONS}"),
        (NORM_THEN_GELU, 9, 32, [["layer_norm"], ["gelu"]], f"rows of 32 {FUNCTIONS}"),
        (NORM_THEN_GELU, 9, 1024, [["layer_norm", "gelu"]], None),
        (TANH_SOFTMAX, 9, 12, [["tanh"], ["add", "softmax"]], f"rows of 12 {FUNCTIONS}"),
        (ADD_NORM, 9, 32, [["add", "layer_norm"]], None),
        # One run gives the sum: nothing waits for it but what little follows.
        (GELU_SUM, 9, 32, [["gelu", "sum", "sub"]], None),
        (TURNED, 9, 1000, [["transpose", "add"], ["layer_norm"]], ACROSS),
        (TURNED_AFTER, 9, 1000, [["layer_norm"], ["transpose", "add"]], ACROSS),
        (TURNED_SUM, 9, 1000, [["transpose", "add"], ["sum", "sub"]], ACROSS),
        # Too few rows for a square.
        (TURNED, 7, 1000, [["transpose", "add", "layer_norm"]], None),
    ],
)  # fmt: skip
def test_what_is_joined(
    lines: tuple[str, ...], rows: int, length: int, groups: list[list[str]], reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    graph = graph_of(rows, length, *lines)
    found = fuse_on_cores(graph, monkeypatch)
    assert shape_of_fusion(graph) == groups
    assert reasons(found) == ([] if reason is None else [reason])


def test_elsewhere_all_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (NORM_TWICE, NORM_THEN_GELU, TURNED):
        graph = graph_of(9, 64, *lines)
        assert not reasons(fuse_on_cores(graph, monkeypatch, on_cores=False))
        assert len(shape_of_fusion(graph)) == 1


def test_a_view_that_keeps_the_last_dim_does_not_read_across(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read(
        f"graph(%x : Float(4, 9, 64), %y : Float(9, 4, 64)):\n{CONSTANTS}"
        "  %v = aten::transpose(%x, %zero, %one)\n  %a = aten::add(%v, %y, %one)\n"
        f"  %o = {SOFTMAX.format('%a')}\n  return (%o)"
    )
    assert not reasons(fuse_on_cores(graph, monkeypatch))
    assert shape_of_fusion(graph) == [["transpose", "add", "softmax"]]


@pytest.mark.parametrize(
    ("count", "length", "function", "is_apart"),
    [
        (16, 8, "exp", True),
        (16, 511, "exp", True),
        (16, 512, "exp", False),
        (15, 8, "exp", False),
        (16, 8, "neg", False),
    ],
)
def test_a_function_is_not_computed_number_by_number(
    count: int, length: int, function: str, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = read(
        f"graph(%x : Float({count}), %y : Float({count}, {length})):\n{CONSTANTS}"
        f"  %a = aten::{function}(%x)\n  %u = aten::unsqueeze(%a, %last)\n  %o = aten::mul(%u, %y)\n  return (%o)"
    )
    inputs = [array(count), array(count, length, seed=1)]
    want = run(graph, None, [np.array(x) for x in inputs])
    found = fuse_on_cores(graph, monkeypatch)
    apart = f"%a : Float({count}) would be computed number by number, once for each row of {length}"
    assert reasons(found) == ([apart] if is_apart else [])
    assert len(found.programs) == 1 + is_apart
    assert_close(run(graph, found, inputs), want)


def test_a_row_may_be_several_dims(monkeypatch: pytest.MonkeyPatch) -> None:
    for side, is_joined in ((24, True), (8, False)):
        graph = read(
            f"graph(%x : Float(1, 96, 1, 1), %y : Float(1, 96, {side}, {side})):\n"
            "  %a = aten::sigmoid(%x)\n  %o = aten::mul(%a, %y)\n  return (%o)"
        )
        assert (not reasons(fuse_on_cores(graph, monkeypatch))) == is_joined


def test_rows_across_memory_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(64, 64, "%a = aten::tanh(%x)", "%o = aten::softmax(%a, %zero, %none)")
    assert not reasons(fuse_on_cores(graph, monkeypatch))
    assert shape_of_fusion(graph) == [["tanh", "softmax"]]


@pytest.mark.parametrize("lines", [NORM_TWICE, NORM_THEN_GELU, TANH_SOFTMAX, TURNED, TURNED_AFTER, TURNED_SUM])
def test_apart_gives_the_same(lines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(9, 33, *lines)
    inputs = [array(9, 33), array(9, 33, seed=1), array(33, 9, seed=2), array(33, seed=3), array(33, seed=4)]
    want = run(graph, None, [np.array(x) for x in inputs])
    found = fuse_on_cores(graph, monkeypatch)
    assert len(found.programs) == 2
    assert_close(run(graph, found, inputs), want)
