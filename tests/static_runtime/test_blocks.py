"""Branches and loops in plans: their steps are native, their values in the arena, whichever way a run goes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpujit
from gpujit.fuser.fuse import fuse
from gpujit.ir.graph import Block, Node, Value
from gpujit.passes.infer.main import infer_types_pass
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime import decide
from gpujit.static_runtime.decide import Decisions
from gpujit.static_runtime.lifetime import owner_of
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import GpujitError, ScriptRaised
from tests.passes.random_graphs import Program, assert_equal, outcome, programs
from tests.programs import archive, forward, module
from tests.static_runtime.help import f32, from_graph, from_text

EVERYTHING = Options(out_bytes=0)
X, W = f32(8, 16), f32(16, 16, seed=1) / 4


def planned_in_blocks(static: PlannedGraph) -> int:
    assert static._plan is not None
    return sum(v.node.block is not v.node.graph.block for v in static._plan.values)


def _label(node: Node) -> str:
    inner = node.attributes.get("Subgraph")
    if inner is None:
        return node.kind
    return "+".join(n.kind.partition("::")[2] for n in inner.all_nodes() if not n.kind.startswith("prim::"))


def tiers(static: PlannedGraph) -> list[str]:
    plan = static._plan
    assert plan is not None
    return [f"{plan.kinds[n]} {_label(n)}" for n in plan.order if n.kind != RETURN]


# Branches -------------------------------------------------------------------------------------------------------------

BRANCH = """
    graph(%x : Float(8, 16), %w : Float(16, 16), %c : bool):
      %1 : Float(8, 16) = aten::mm(%x, %w)
      %2 : Float(8, 16) = prim::If(%c)
        block0():
          %3 : Float(8, 16) = aten::relu(%1)
          %4 : Float(8, 16) = aten::mm(%3, %w)
          -> (%4)
        block1():
          %5 : Float(8, 16) = aten::tanh(%1)
          %6 : Float(8, 16) = aten::neg(%5)
          -> (%6)
      %7 : Float(8, 16) = aten::mm(%2, %w)
      %8 : Float(8, 16) = aten::mm(%7, %w)
      %9 : Float(8, 16) = aten::sub(%8, %1, %one)
      return (%9)"""
BRANCH = BRANCH.replace("      %1 :", "      %one : int = prim::Constant[value=1]()\n      %1 :", 1)


def branch(x: np.ndarray, w: np.ndarray, c: bool) -> np.ndarray:
    y = x @ w
    z = np.maximum(y, 0) @ w if c else -np.tanh(y)
    return z @ w @ w - y


def test_both_ways_of_a_branch_are_planned() -> None:
    static = from_text(BRANCH, EVERYTHING)
    for check in (False, True):
        with config(check_plan=check):
            for c in (True, False, False, True):
                np.testing.assert_allclose(static.run([X, W, c]), branch(X, W, c), rtol=1e-4, atol=1e-5)
    assert tiers(static) == [
        "out aten::mm", "control prim::If", "native aten::relu", "out aten::mm", "native tanh+neg", "out aten::mm",
        "out aten::mm", "native aten::sub",
    ]  # fmt: skip
    # What comes out of the branch lives in the arena as well, and what only one way needs takes the other's room.
    assert planned_in_blocks(static) == 3
    memory = static.memory()
    assert memory.arena == memory.bound < memory.separate


def test_results_of_branches_are_arrays_of_their_own() -> None:
    text = """
        graph(%x : Float(8, 16), %c : bool):
          %2 : Float(8, 16) = prim::If(%c)
            block0():
              %3 : Float(8, 16) = aten::relu(%x)
              -> (%3)
            block1():
              -> (%x)
          return (%2)"""
    static = from_text(text, EVERYTHING)
    first, second = static.run([X, True]), static.run([X + 1, True])
    np.testing.assert_array_equal(first, np.maximum(X, 0))
    assert not np.shares_memory(first, second)
    assert static.run([X, False]) is X


# Loops ----------------------------------------------------------------------------------------------------------------

LOOP = """
    graph(%x : Float(8, 16), %w : Float(16, 16), %n : int):
      %true : bool = prim::Constant[value=1]()
      %one : int = prim::Constant[value=1]()
      %0 : Float(8, 16) = aten::mm(%x, %w)
      %1 : Float(8, 16) = aten::relu(%0)
      %2 : Float(8, 16) = prim::Loop(%n, %true, %1)
        block0(%i : int, %3 : Float(8, 16)):
          %4 : Float(8, 16) = aten::mm(%3, %w)
          %5 : Float(8, 16) = aten::tanh(%4)
          %6 : Float(8, 16) = aten::mm(%5, %w)
          %7 : Float(8, 16) = aten::add(%6, %1, %one)
          -> (%true, %7)
      %8 : Float(8, 16) = aten::neg(%2)
      return (%8)"""


def loop(x: np.ndarray, w: np.ndarray, n: int) -> np.ndarray:
    first = y = np.maximum(x @ w, 0)
    for _ in range(n):
        y = np.tanh(y @ w) @ w + first
    return -y


def test_steps_of_a_loop_are_planned() -> None:
    static = from_text(LOOP, EVERYTHING)
    kept = static.run([X, W, 3])
    wanted = loop(X, W, 3)
    for check in (False, True):
        with config(check_plan=check):
            for n in (3, 0, 1, 7, 3):
                np.testing.assert_allclose(static.run([X, W, n]), loop(X, W, n), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kept, wanted, rtol=1e-4, atol=1e-5)
    assert tiers(static)[2:9] == [
        "native aten::clone", "control prim::Loop", "out aten::mm", "native aten::tanh", "out aten::mm",
        "native aten::add", "native aten::copy_",
    ]  # fmt: skip
    assert planned_in_blocks(static) == 4
    assert static._plan is not None and not static._plan.is_straight


RNN = """
    graph(%xs : Float(5, 3, 8), %n : int, %w : Float(8, 8)):
      %true : bool = prim::Constant[value=1]()
      %zero : int = prim::Constant[value=0]()
      %one : int = prim::Constant[value=1]()
      %shape : int[] = prim::ListConstruct(%three, %eight)
      %0 : Float(3, 8) = aten::zeros(%shape, %none, %none, %none, %none)
      %c0 : Float(3, 8) = aten::ones(%shape, %none, %none, %none, %none)
      %hn : Float(3, 8), %cn : Float(3, 8) = prim::Loop(%n, %true, %0, %c0)
        block0(%i : int, %h : Float(3, 8), %c : Float(3, 8)):
          %x : Float(3, 8) = aten::select(%xs, %zero, %i)
          %1 : Float(3, 8) = aten::mm(%h, %w)
          %2 : Float(3, 8) = aten::add(%1, %x, %one)
          %last : Float(3) = aten::select(%c, %one, %zero)
          %3 : Float(3, 1) = aten::unsqueeze(%last, %one)
          %4 : Float(3, 8) = aten::mul(%2, %3)
          %5 : Float(3, 8) = aten::tanh(%4)
          %6 : Float(3, 8) = aten::sub(%c, %5, %one)
          -> (%true, %5, %6)
      %7 : (Float(3, 8), Float(3, 8)) = prim::TupleConstruct(%hn, %cn)
      return (%7)"""
RNN = RNN.replace("      %true :", "      %three : int = prim::Constant[value=3]()\n      %true :")
RNN = RNN.replace("      %true :", "      %eight : int = prim::Constant[value=8]()\n      %true :")
RNN = RNN.replace("      %true :", "      %none : NoneType = prim::Constant()\n      %true :")


def rnn(xs: np.ndarray, w: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    h, c = np.zeros((3, 8), np.float32), np.ones((3, 8), np.float32)
    for x in xs[:n]:
        h = np.tanh((h @ w + x) * c[:, :1])
        c = c - h
    return h, c


def test_states_that_go_round_have_a_place_of_their_own() -> None:
    static = from_text(RNN, EVERYTHING)
    xs, w = f32(5, 3, 8), f32(8, 8, seed=1) / 3
    kept = static.run([xs, 5, w])
    for check in (False, True):
        with config(check_plan=check):
            for n in (5, 0, 1, 4):
                for got, wanted in zip(static.run([xs, n, w]), rnn(xs, w, n), strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(kept, rnn(xs, w, 5), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert tiers(static).count("native aten::copy_") == 2
    out = [np.full((3, 8), np.nan, np.float32), None]
    assert static.run([xs, 2, w], out)[0] is out[0]
    np.testing.assert_allclose(out[0], rnn(xs, w, 2)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has", ["none", "no clone", "no copy"])
def test_loops_are_right_where_kernels_cannot_be_had(has: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = decide.compiled

    def some(requests: Any) -> list[Any]:
        # A copy into a place has that place's strides; what a loop begins with here is turned.
        turned = [r.inputs[0].strides[0] < r.inputs[0].strides[-1] for r in requests]
        wanted = [has != "none" and t == (has == "no copy") for t in turned]
        return [k if w else None for k, w in zip(real(requests), wanted, strict=True)]

    monkeypatch.setattr(decide, "compiled", some)
    text = """
        graph(%x : Float(4, 6), %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %0 : Float(6, 4) = aten::transpose(%x, %zero, %one)
          %1 : Float(6, 4) = prim::Loop(%n, %true, %0)
            block0(%i : int, %2 : Float(6, 4)):
              %3 : Float(6, 4) = aten::tanh(%2)
              %4 : Float(6, 4) = aten::add(%3, %0, %one)
              -> (%true, %4)
          %5 : Float(6, 4) = aten::neg(%1)
          return (%5)"""
    static, x = from_text(text, EVERYTHING), f32(4, 6)
    for n in (0, 1, 4):
        y = x.T
        for _ in range(n):
            y = np.tanh(y) + x.T
        for check in (False, True):
            with config(check_plan=check):
                np.testing.assert_allclose(static.run([x, n]), -y, rtol=1e-5)
    assert "native aten::copy_" not in tiers(static)
    assert ("native aten::clone" in tiers(static)) == (has == "no copy")


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_loop_that_may_return_what_it_was_given_does(trips: int) -> None:
    text = """
        graph(%x : Float(4), %n : int):
          %true : bool = prim::Constant[value=1]()
          %1 : Float(4) = prim::Loop(%n, %true, %x)
            block0(%i : int, %2 : Float(4)):
              %3 : Float(4) = aten::neg(%2)
              -> (%true, %3)
          return (%1)"""
    static, x = from_text(text, EVERYTHING), f32(4)
    for _ in range(3):
        got = static.run([x, trips])
        np.testing.assert_array_equal(got, x if trips % 2 == 0 else -x)
        assert (got is x) == (trips == 0)


@pytest.mark.parametrize("where", ["%3", "%2"])
def test_tensors_that_something_holds_on_to_are_carried_as_they_are(where: str) -> None:
    text = """
        graph(%x : Float(4), %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %0 : Float(4) = aten::exp(%x)
          %l : Tensor[] = prim::ListConstruct()
          %1 : Float(4) = prim::Loop(%n, %true, %0)
            block0(%i : int, %2 : Float(4)):
              %3 : Float(4) = aten::neg(%2)
              %4 : Tensor[] = aten::append(%l, WHERE)
              -> (%true, %3)
          %5 : Float(4) = aten::tanh(%1)
          %6 : Tensor[] = aten::append(%l, %5)
          %7 : Tensor = aten::stack(%l, %zero)
          return (%7)"""
    static = from_text(text.replace("WHERE", where), EVERYTHING)
    x = f32(4)
    y, rows = np.exp(x), []
    for _ in range(3):
        rows.append(-y if where == "%3" else y)
        y = -y
    for check in (True, False):
        with config(check_plan=check):
            np.testing.assert_allclose(static.run([x, 3]), np.stack([*rows, np.tanh(y)]), rtol=1e-5)
    assert "native aten::copy_" not in tiers(static)


def test_what_a_loop_reads_again_is_not_written_over() -> None:
    text = """
        graph(%x : Float(8, 16), %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %1 : Float(8, 16) = aten::relu(%x)
          %all : Float(8, 16) = aten::tanh(%x)
          %2 : Float(8, 16) = prim::Loop(%n, %true, %all)
            block0(%i : int, %3 : Float(8, 16)):
              %5 : Float(8, 16) = aten::cumsum(%3, %zero, %none)
              %4 : Float(8, 16) = aten::mul(%1, %5)
              %6 : Float(8, 16) = aten::cumsum(%4, %zero, %none)
              -> (%true, %6)
          return (%2)"""
    static = from_text(text.replace("%zero :", "%none : NoneType = prim::Constant()\n          %zero :", 1), EVERYTHING)
    y = np.tanh(X)
    for _ in range(4):
        y = np.cumsum(np.maximum(X, 0) * np.cumsum(y, 0), 0)
    for check in (True, False):
        with config(check_plan=check):
            np.testing.assert_allclose(static.run([X, 4]), y, rtol=1e-4)


def test_carried_values_may_change_places() -> None:
    text = """
        graph(%a : Float(4), %b : Float(4), %n : int):
          %true : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %2 : Float(4), %3 : Float(4) = prim::Loop(%n, %true, %a, %b)
            block0(%i : int, %4 : Float(4), %5 : Float(4)):
              %6 : Float(4) = aten::add(%4, %5, %one)
              -> (%true, %5, %6)
          %7 : (Float(4), Float(4)) = prim::TupleConstruct(%2, %3)
          return (%7)"""
    static = from_text(text, EVERYTHING)
    for n in (0, 1, 2, 9):
        a, b = f32(4), f32(4, seed=1)
        for check in (True, False):
            with config(check_plan=check):
                got = static.run([a, b, n])
            x, y = a, b
            for _ in range(n):
                x, y = y, x + y
            np.testing.assert_allclose(got[0], x, rtol=1e-6)
            np.testing.assert_allclose(got[1], y, rtol=1e-6)


def test_each_round_puts_memory_of_its_own_into_a_list() -> None:
    text = """
        graph(%x : Float(4), %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct()
          %3 : Float(4) = prim::Loop(%n, %true, %x)
            block0(%i : int, %2 : Float(4)):
              %4 : Float(4) = aten::neg(%2)
              %5 : Float(4) = aten::exp(%4)
              %6 : Tensor[] = aten::append(%l, %4)
              -> (%true, %5)
          %7 : Tensor = aten::stack(%l, %zero)
          return (%7)"""
    static = from_text(text, EVERYTHING)
    x = f32(4)
    rows, y = [], x
    for _ in range(5):
        rows.append(-y)
        y = np.exp(-y)
    for check in (True, False, False):
        with config(check_plan=check):
            np.testing.assert_allclose(static.run([x, 5]), np.stack(rows), rtol=1e-5)


def test_branches_in_loops_in_branches() -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16), %n : int, %c : bool):
          %true : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %0 : Float(8, 16) = aten::mm(%x, %w)
          %r : Float(8, 16) = prim::If(%c)
            block0():
              %2 : Float(8, 16) = prim::Loop(%n, %true, %0)
                block0(%i : int, %3 : Float(8, 16)):
                  %4 : Float(8, 16) = aten::mm(%3, %w)
                  %odd : bool = aten::eq(%i, %one)
                  %5 : Float(8, 16) = prim::If(%odd)
                    block0():
                      %6 : Float(8, 16) = aten::relu(%4)
                      %7 : Float(8, 16) = aten::mm(%6, %w)
                      -> (%7)
                    block1():
                      %8 : Float(8, 16) = aten::sigmoid(%4)
                      -> (%8)
                  %9 : Float(8, 16) = aten::mul(%5, %4)
                  -> (%true, %9)
              -> (%2)
            block1():
              %10 : Float(8, 16) = aten::tanh(%0)
              -> (%10)
          %11 : Float(8, 16) = aten::add(%r, %0, %one)
          return (%11)"""
    static = from_text(text, EVERYTHING)
    for check in (False, True, False):
        with config(check_plan=check):
            for n, c in ((3, True), (0, True), (2, False), (1, True)):
                y = x = X @ W
                for i in range(n if c else 0):
                    p = y @ W
                    y = p * (np.maximum(p, 0) @ W if i == 1 else 1 / (1 + np.exp(-p)))
                got = static.run([X, W, n, c])
                np.testing.assert_allclose(got, (y if c else np.tanh(x)) + x, rtol=1e-4, atol=1e-5)
    assert planned_in_blocks(static) >= 5
    assert tiers(static).count("control prim::If") == 2


def test_a_loop_whose_tensors_grow_is_right_and_says_so() -> None:
    loaded = gpujit.load(archive(module(forward("x: Tensor, n: Tensor -> Tensor", """
    y = x
    k = 0
    while torch.lt(k, int(n)):
      y = torch.cat([torch.relu(y), y], 0)
      k = torch.add(k, 1)
    return torch.neg(y)
    """))))  # fmt: skip
    fast = gpujit.optimize_for_inference(loaded)
    for n in (0, 1, 3, 2):
        count = np.array(n)
        for check in (False, True):
            with config(check_plan=check):
                np.testing.assert_array_equal(fast(X, count), loaded(X, count))
    assert "cat" in fast.explain() and "the shape of" in fast.explain()


def test_errors_in_a_loop_leave_everything_usable() -> None:
    text = """
        graph(%x : Float(8, 16), %i : Long(3), %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %1 : Float(8, 16) = aten::relu(%x)
          %2 : Float(8, 16) = prim::Loop(%n, %true, %1)
            block0(%k : int, %3 : Float(8, 16)):
              %4 : Float(8, 16) = aten::neg(%3)
              %5 : Float(3, 16) = aten::index_select(%4, %zero, %i)
              %6 : Float(16) = aten::select(%5, %zero, %k)
              %7 : Float(8, 16) = aten::mul(%4, %6)
              -> (%true, %7)
          return (%2)"""
    static = from_text(text, EVERYTHING)
    good, bad = np.array([0, 5, 7]), np.array([0, 5, 8])
    wanted = static.run([X, good, 3])
    for check in (False, True):
        with config(check_plan=check):
            for indices, n in ((bad, 1), (good, 4)):
                with pytest.raises(GpujitError):
                    static.run([X, indices, n])
                np.testing.assert_array_equal(static.run([X, good, 3]), wanted)


STATE = """
self.calls = torch.add(self.calls, 1)
y = torch.mul(x, 2.)
k = 0
while torch.lt(k, int(n)):
  y = torch.add(torch.tanh(y), self.last)
  if bool(torch.gt(torch.sum(y), 0.)):
    self.last = torch.neg(y)
  else:
    self.last = torch.mul(y, 0.5)
  k = torch.add(k, 1)
return torch.add(y, self.last)
"""


def test_attributes_are_written_in_order_inside_blocks() -> None:
    text = module(forward("x: Tensor, n: Tensor -> Tensor", STATE), attributes="calls : int\nlast : Tensor")
    plain, fast = (gpujit.load(archive(text, {"calls": 0, "last": np.zeros((8, 16), np.float32)})) for _ in range(2))
    fast = gpujit.optimize_for_inference(fast)
    for k in range(12):
        n = np.array(k % 4)
        with config(check_plan=k % 3 == 2):
            np.testing.assert_allclose(fast(X - k / 9, n), plain(X - k / 9, n), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fast.last, plain.last, rtol=1e-5, atol=1e-6)
        assert fast.calls == plain.calls == k + 1
    assert "native" in fast.explain()


RAISING = """
k = 0
y = torch.relu(x)
while torch.lt(k, int(n)):
  y = torch.add(torch.tanh(y), self.last)
  self.last = torch.neg(y)
  self.calls = torch.add(self.calls, 1)
  if bool(torch.gt(torch.max(y), 0.9)):
    ops.prim.RaiseException("too large")
  k = torch.add(k, 1)
return torch.mul(y, 2.)
"""


def test_what_was_written_before_an_error_stays_written() -> None:
    text = module(forward("x: Tensor, n: Tensor -> Tensor", RAISING), attributes="calls : int\nlast : Tensor")
    plain, fast = (gpujit.load(archive(text, {"calls": 0, "last": np.zeros((8, 16), np.float32)})) for _ in range(2))
    fast = gpujit.optimize_for_inference(fast)
    seen = set()
    for k, scale in enumerate((0.1, 3.0, 0.1, 3.0, 0.1, 0.1)):
        found: list[Any] = []
        for each in (plain, fast):
            with config(check_plan=k > 2):
                try:
                    found.append(each(X * np.float32(scale), np.array(3)))
                except ScriptRaised as fault:
                    found.append(fault.message)
        seen.add(type(found[0]))
        if isinstance(found[0], str):
            assert found[0] == found[1]
        else:
            np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)
        assert fast.calls == plain.calls
        np.testing.assert_allclose(fast.last, plain.last, rtol=1e-5, atol=1e-6)
    assert seen == {str, np.ndarray}


def test_tensors_in_dicts_and_tuples_live_as_long() -> None:
    text = """
        graph(%x : Float(8, 16), %w : Float(16, 16), %c : bool):
          %a : str = prim::Constant[value="a"]()
          %b : str = prim::Constant[value="b"]()
          %one : int = prim::Constant[value=1]()
          %1 : Float(8, 16) = aten::mm(%x, %w)
          %2 : Float(8, 16) = aten::mm(%1, %w)
          %p : (Float(8, 16), int) = prim::TupleConstruct(%2, %one)
          %d : Dict(str, Tensor) = prim::DictConstruct(%a, %1)
           = prim::If(%c)
            block0():
              %3 : Float(8, 16) = aten::tanh(%2)
               = aten::_set_item(%d, %b, %3)
              -> ()
            block1():
               = aten::_set_item(%d, %b, %1)
              -> ()
          %4 : Float(8, 16) = aten::mm(%2, %w)
          %5 : Float(8, 16) = aten::mm(%4, %w)
          %6 : Tensor = aten::__getitem__(%d, %a)
          %7 : Tensor = aten::__getitem__(%d, %b)
          %8 : Float(8, 16), %9 : int = prim::TupleUnpack(%p)
          %10 : Tensor = aten::mul(%6, %7)
          %11 : Tensor = aten::add(%10, %5, %one)
          %12 : Tensor = aten::sub(%11, %8, %9)
          return (%12)"""
    static = from_text(text, EVERYTHING)
    y = X @ W
    for check in (False, True, False):
        with config(check_plan=check):
            for c in (True, False, True):
                wanted = y * (np.tanh(y @ W) if c else y) + y @ W @ W @ W - y @ W
                np.testing.assert_allclose(static.run([X, W, c]), wanted, rtol=1e-3, atol=1e-4)
    assert planned_in_blocks(static) == 1


def test_native_blocks_turn_no_warnings_off() -> None:
    text = """
        graph(%x : Float(64), %c : bool):
          %2 : Float(64) = prim::If(%c)
            block0():
              %3 : Float(64) = aten::log(%x)
              -> (%3)
            block1():
              %4 : Float(64) = aten::exp(%x)
              -> (%4)
          return (%2)"""
    static = from_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(static.run([-np.ones(64, np.float32), True])).all()
    assert static._plan is not None and static._plan.is_quiet


# Lifetimes ------------------------------------------------------------------------------------------------------------


def walk(block: Block, ways: Iterator[bool]) -> Iterator[Node]:
    """The nodes a run meets that takes these branches, and each loop twice or not at all."""
    for node in block.nodes:
        yield node
        if node.kind == "prim::If":
            inner = node.blocks[0 if next(ways) else 1]
            yield from walk(inner, ways)
            yield inner.return_node
        elif node.kind == "prim::Loop" and next(ways):
            for _ in range(2):
                yield from walk(node.blocks[0], ways)
                yield node.blocks[0].return_node


def lives(found: Decisions, met: list[Node]) -> list[tuple[Value, int, int]]:
    """Each time a planned value is made in such a run, and the last time something may read it before it is remade."""
    memory = {v: found.alias.memory(v) for v in found.last}
    open_: dict[Value, tuple[int, int]] = {}
    done = []
    for t, node in enumerate(met):
        if node not in found.places.views and node.kind != "prim::Constant":
            read = 0
            for value in (*node.inputs, *found.operands.get(node, ())):
                place = found.places.of(value)
                read |= found.alias.memory(value if place is None else place.root)
            for v, (start, _) in open_.items():
                if read & memory[v]:
                    open_[v] = (start, t)
        for value in node.outputs:
            if value in found.last:
                if value in open_:
                    done.append((value, *open_[value]))
                open_[value] = (t, t)
    return done + [(v, *span) for v, span in open_.items()]


@given(programs(typed=True, max_size=24), st.booleans(), st.lists(st.booleans(), min_size=4, max_size=4), st.booleans())
@settings(max_examples=150)
def test_values_alive_together_share_no_bytes(program: Program, reuse: bool, ways: list[bool], other: bool) -> None:
    graph = program.graph.copy()
    infer_types_pass(graph)
    fused = fuse(graph)
    found = Decisions(graph, fused.programs, Lowerer(np), {}, Options(reuse_operands=reuse, out_bytes=0), None)

    def endless() -> Iterator[bool]:
        yield from ways
        while True:
            yield other

    met = [n for n in walk(found.graph.block, endless()) if n in found.kinds or n.kind == RETURN]
    spans = sorted(lives(found, met), key=lambda s: s[1])
    size = {v: facts.nbytes for v in found.last if (facts := found.places.of(v)) is not None}
    for i, (a, _, a_end) in enumerate(spans):
        for b, b_start, _ in spans[i + 1 :]:
            if b_start > a_end or a is b:
                continue
            start = max(found.offset[a], found.offset[b])
            shared = start < min(found.offset[a] + size[a], found.offset[b] + size[b])
            # A value may be written over what is read for the last time by the step that makes it.
            handed_on = b_start == a_end and owner_of(b, found.merged) is owner_of(a, found.merged)
            assert not shared or handed_on, f"{a!r} and {b!r} of\n{graph}"


@given(programs(typed=True, max_size=24))
@settings(max_examples=60)
def test_random_programs_with_blocks(program: Program) -> None:
    wanted = outcome(program.graph, program.inputs)
    graph = program.graph.copy()
    infer_types_pass(graph)
    static = from_graph(graph, EVERYTHING)
    for check in (True, False, True):
        values = copy.deepcopy(program.inputs)
        with np.errstate(all="ignore"), config(check_plan=check):
            result: Any = static.run(values)
        results = list(result) if len(graph.outputs) != 1 else [result]
        assert_equal(results, wanted["results"], f"results\n{graph}", exact=False)
        assert_equal(values, wanted["inputs"], f"inputs\n{graph}", exact=False)


AGAIN = """
    graph(%x : Float(8, 16), %w : Float(16, 16), %n : int):
      %true : bool = prim::Constant[value=1]()
      %one : int = prim::Constant[value=1]()
      %0 : Float(8, 16) = aten::mm(%x, %w)
      %2 : Float(8, 16) = prim::Loop(%n, %true, %x)
        block0(%i : int, %3 : Float(8, 16)):
          %4 : Float(8, 16) = aten::add(%3, %0, %one)
          %5 : Float(8, 16) = aten::mm(%4, %w)
          %6 : Float(8, 16) = aten::mm(%5, %w)
          -> (%true, %6)
      return (%2)"""


def test_poison_shows_a_lifetime_that_ends_with_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = X
    for _ in range(3):
        wanted = (wanted + X @ W) @ W @ W
    real = decide.last_steps

    def until_first_read(*given: Any) -> dict[Value, int]:
        position = {n: i for i, n in enumerate(given[0])}
        return {v: min(n, max(position[u.node] for u in v.uses)) for v, n in real(*given).items()}

    with config(check_plan=True):
        np.testing.assert_allclose(from_text(AGAIN, EVERYTHING).run([X, W, 3]), wanted, rtol=1e-4, atol=1e-5)
        monkeypatch.setattr(decide, "last_steps", until_first_read)
        np.testing.assert_allclose(from_text(AGAIN, EVERYTHING).run([X, W, 1]), (X + X @ W) @ W @ W, rtol=1e-4)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(from_text(AGAIN, EVERYTHING).run([X, W, 3]), wanted, rtol=1e-4, atol=1e-5)
