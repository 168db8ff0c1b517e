"""Times of steps taken down while they run: native runs, instructions, loops, kernels of several rounds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.passes.infer.main import infer_types
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime import clock
from gpujit.static_runtime.clock import Recorder, Taken
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.testing import resolve_node

CHAIN = """graph(%x : Float(64, 64)):
  %n : int = prim::Constant[value=1]()
  %a : Float(64, 64) = aten::relu(%x)
  %b : Float(64, 64) = aten::cumprod(%a, %n, %none)
  %c : Float(64, 64) = aten::tanh(%b)
  return (%c)
""".replace("  %a :", "  %none : NoneType = prim::Constant()\n  %a :")


def graph(text: str) -> Graph:
    found = parse_graph(text, resolve=resolve_node)
    infer_types(found)
    return found


def planned(text: str) -> PlannedGraph:
    return PlannedGraph(graph(text), {}, Lowerer(np), Options(out_bytes=0))


def taken(arena: TimedArena) -> Taken:
    return arena.recorder.taken()


def test_each_run_has_a_row_and_each_step_a_column() -> None:
    x = np.ones((64, 64), np.float32)
    runner = planned(CHAIN)
    arena = TimedArena(runner.plan([x]))
    before = time.perf_counter_ns()
    for _ in range(3):
        arena.run([x])
    after = time.perf_counter_ns()
    found = taken(arena)
    order = arena.plan.order
    kinds = [order[n].kind if n >= 0 else arena.plan.code.kinds[-1 - n] for n in found.numbers]
    assert kinds == ["aten::relu", "aten::cumprod", "aten::tanh"]
    assert found.seconds.shape == (3, 3) and (found.seconds > 0).all() and found.lost == 0
    assert before <= found.runs[0, 0] and found.runs[-1, 1] <= after
    assert (np.diff(found.runs.reshape(-1)) >= 0).all()
    for parts in (found.entering, found.leaving, found.between):
        assert parts.shape == (3,) and (parts >= 0).all()
    spans = list(arena.recorder.spans())
    assert [s.number for s in spans] == list(found.numbers) * 3
    assert all(s.start <= s.end for s in spans)
    assert [s.end - s.start for s in spans[:3]] == pytest.approx(found.seconds[0] * 1e9, abs=1)


def test_a_recorder_forgets() -> None:
    x = np.ones((64, 64), np.float32)
    arena = TimedArena(planned(CHAIN).plan([x]))
    assert len(taken(arena).runs) == 0 and list(arena.recorder.spans()) == []
    arena.run([x])
    arena.recorder.clear()
    assert len(taken(arena).runs) == 0 and taken(arena).seconds.shape[0] == 0
    arena.run([x])
    assert len(taken(arena).runs) == 1


def test_runs_beyond_what_there_is_room_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "ROW_BYTES", 0)
    x = np.ones((64, 64), np.float32)
    arena = TimedArena(planned(CHAIN).plan([x]))
    want = arena.run([x])
    for _ in range(5):
        assert np.array_equal(arena.run([x]), want)
    found = taken(arena)
    # Two rows: one is kept, the other is written over.
    assert found.lost + len(found.runs) == 6 and len(found.runs) <= 1
    assert (found.seconds > 0).all()


def test_only_so_many_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "MAX_RUNS", 4)
    x = np.ones((64, 64), np.float32)
    arena = TimedArena(planned(CHAIN).plan([x]))
    for _ in range(7):
        arena.run([x])
    found = taken(arena)
    assert (len(found.runs), found.lost) == (4, 3) and (found.seconds > 0).all()


def test_what_is_lent_for_checks_is_checked_and_timed() -> None:
    x = np.ones((64, 64), np.float32)
    runner = planned(CHAIN)
    want = runner.run([x])
    arena = TimedArena(runner.plan([x]), check=True)
    assert np.array_equal(arena.run([x]), want)
    assert len(taken(arena).runs) == 1


def test_rounds_of_one_kernel_are_one_step() -> None:
    text = """graph(%x : Float(40, 1, 64)):
  %n : int = prim::Constant[value=1]()
  %p : float = prim::Constant[value=0.]()
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %h : Float(1, 1, 512) = prim::Constant[value=CONSTANTS.c0]()
  %a : Float(2048, 64) = prim::Constant[value=CONSTANTS.c1]()
  %b : Float(2048, 512) = prim::Constant[value=CONSTANTS.c2]()
  %hx : Tensor[] = prim::ListConstruct(%h, %h)
  %w : Tensor[] = prim::ListConstruct(%a, %b)
  %y, %s, %t = aten::lstm(%x, %hx, %w, %no, %n, %p, %no, %no, %no)
  return (%y)
"""
    arrays = [np.ones((1, 1, 512), np.float32), *(np.full((2048, k), 0.01, np.float32) for k in (64, 512))]
    found = parse_graph(text, constants=arrays, resolve=resolve_node)
    infer_types(found)
    x = np.ones((40, 1, 64), np.float32)
    with config(threads=2):
        runner = PlannedGraph(found, {}, Lowerer(np), Options(threads=2))
        plan = runner.plan([x])
        arena = TimedArena(plan)
        arena.run([x])
        arena.run([x])
    steps = [s for g in plan.segments for s in g.steps]
    times = taken(arena)
    positions = list(dict.fromkeys(s.position for s in steps))
    assert list(times.numbers) == positions
    assert times.seconds.shape == (2, len(positions)) and (times.seconds > 0).all()
    assert [s.number for s in arena.recorder.spans()] == positions * 2
    # If templates of recurrent layers stop being divided into rounds, this test has nothing to show.
    assert len(steps) > len(positions)


def test_calls_that_raise_leave_no_times() -> None:
    recorder = Recorder(planned(CHAIN).plan([np.ones((64, 64), np.float32)]).code)

    def fails(x: int) -> int:
        if x:
            raise ValueError
        return x

    timed = recorder.timed(-1, fails)
    with pytest.raises(ValueError):
        timed(1)
    assert recorder.calls[-1] == [] and timed(0) == 0 and len(recorder.calls[-1]) == 2
