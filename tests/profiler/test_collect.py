"""``gpujit.profile()``: what ran in a block, in its thread, and nothing of it left behind."""

from __future__ import annotations

import json
import threading
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.profiler import collect
from gpujit.profiler.collect import Profiler
from gpujit.profiler.data import profile_from_json
from gpujit.profiler.steps import Described, timed
from gpujit.static import StaticModule, StaticModuleOptions
from gpujit.static_runtime.clock import Taken
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.run import TimedArena
from gpujit.support import background
from gpujit.support.errors import ArgumentError, ScriptRaised
from gpujit.support.watch import entering, running
from tests.profiler.samples import profile as profile_of_nothing
from tests.profiler.samples import step
from tests.programs import archive, forward, module

EXAMPLE = Path(__file__).parents[2] / "examples" / "classifier.pt"
IMAGE = np.linspace(-1, 1, 3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32)


@pytest.fixture(scope="module")
def classifier() -> gpujit.ScriptModule:
    found = gpujit.optimize_for_inference(gpujit.load(EXAMPLE))
    for _ in range(3):
        found(IMAGE)
    return found


def load(tmp_path: Path, source: str) -> gpujit.ScriptModule:
    (tmp_path / "m.pt").write_bytes(archive(source, {}))
    return gpujit.load(tmp_path / "m.pt")


def watched(call: Any, times: int = 5, **options: Any) -> Profiler:
    with Profiler(ceilings=False, **options) as p:
        for _ in range(times):
            call()
    return p


def idle_arenas(found: gpujit.ScriptModule) -> list[Any]:
    plans = [p for e in found._program.executors() for p in e.plans()]
    return [a for p in plans if isinstance(p.runner, PlannedGraph) for a in list(p.runner._idle)]


def test_steps_make_up_the_whole_of_each_call(classifier: gpujit.ScriptModule) -> None:
    p = watched(lambda: classifier(IMAGE))
    (profile,) = p.profiles
    assert (profile.runner, profile.watched.runs, len(p.calls)) == ("static", 5, 5)
    labels = [s.label for s in profile.steps]
    assert labels[:2] == ["arguments, plan", "arrays in, results made"]
    assert [n for n in labels if n != "interruptions"][-2:] == ["between steps", "results out"]
    assert {"conv2d+relu", "aten::topk", "softmax"} <= set(labels)
    assert profile.total >= 0.95 * profile.watched.median
    assert [s.number for s in profile.steps] == list(range(len(profile.steps)))


def test_what_hits_one_step_here_and_another_there_is_a_row_of_its_own() -> None:
    runs = np.array([[0.0, 1e5], [2e5, 3e5], [4e5, 5e5]])
    # Nanoseconds of a run and seconds of its steps: each run has another step that took long.
    seconds = np.array([[8e-5, 1e-5], [1e-5, 8e-5], [1e-5, 1e-5]])
    none = np.zeros(3)
    taken = Taken(runs, (0, 1), seconds, np.full(3, 1e-6), none, 0)
    place = Described(0, (), step(0, "a", 1.0)), Described(1, (), step(1, "b", 1.0))
    rows, number = timed(place, taken, np.zeros((3, 2)), profile_of_nothing().machine)
    assert rows[-1].label == "interruptions" and number == {0: 1, 1: 2}
    assert sum(r.seconds.median for r in rows) == pytest.approx(1e-4)


def test_every_row_of_every_run_adds_up(classifier: gpujit.ScriptModule) -> None:
    with Profiler(ceilings=False) as p:
        for _ in range(8):
            classifier(IMAGE)
    ((graph, arenas),) = p._arenas.items()
    assert p.arenas(graph) == arenas
    taken = arenas[0].recorder.taken()
    whole = (taken.runs[:, 1] - taken.runs[:, 0]) / 1e9
    parts = taken.entering + taken.seconds.sum(axis=1) + taken.between + taken.leaving
    # Two clocks are read, which differ by less than a microsecond.
    assert np.allclose(parts, whole, rtol=0.02, atol=1e-6)


def test_steps_know_where_they_come_from(classifier: gpujit.ScriptModule) -> None:
    (profile,) = watched(lambda: classifier(IMAGE)).profiles
    stem = next(s for s in profile.steps if s.label == "conv2d+relu")
    assert stem.place.module == "stem" and stem.place.archive.startswith("code/__torch__")
    assert stem.operators == ("conv2d", "relu") and stem.group == 0 and stem.tier == "native template"
    assert stem.flops == 2 * 16 * 16 * 16 * 27 + 16 * 16 * 16
    assert [t.text for t in stem.outputs] == ["float32[1, 16, 16, 16]"]
    source = profile.kernel(stem.kernel)
    assert source is not None and "define" in source.text and "conv" in source.text
    assert profile.memory is not None and {v.first for v in profile.memory.values} <= {
        s.position for s in profile.steps
    }
    assert [g.stage for g in profile.graphs] == ["frozen", "fused", "plan"]


def test_a_profile_is_plain_data(classifier: gpujit.ScriptModule, tmp_path: Path) -> None:
    p = watched(lambda: classifier(IMAGE), 2)
    assert profile_from_json(json.dumps(p.profile.as_json())) == p.profile
    p.save_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(e.get("cat") == "calls" for e in events) == 2
    steps = [e for e in events if e.get("cat") == "steps"]
    calls = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "calls")
    assert len(steps) == 2 * len([s for s in p.profile.steps if s.tier != "call"])
    for e in steps:
        start, end = calls[e["args"]["call"]]
        assert start - 2 <= e["ts"] and e["ts"] + e["dur"] <= end + 2
    p.save_json(tmp_path / "p.json")
    found = json.loads((tmp_path / "p.json").read_text())
    assert (found["format"], found["calls"], found["failed"], len(found["profiles"])) == ("gpujit-profiles", 2, 0, 1)
    assert "conv2d+relu" in str(p)


def test_results_are_the_same(classifier: gpujit.ScriptModule) -> None:
    plain = classifier(IMAGE)
    with Profiler(ceilings=False):
        seen = classifier(IMAGE)
    assert np.array_equal(plain["scores"], seen["scores"])


def test_nothing_is_left_behind(classifier: gpujit.ScriptModule) -> None:
    watched(lambda: classifier(IMAGE))
    assert entering.get() is None and running.get() is None
    classifier(IMAGE)
    assert idle_arenas(classifier) and not any(isinstance(a, TimedArena) for a in idle_arenas(classifier))


def test_a_model_that_raises_midway_ends_the_block_as_usual(classifier: gpujit.ScriptModule) -> None:
    with pytest.raises(ScriptRaised, match="4 dimensions"), Profiler(ceilings=False) as p:
        classifier(IMAGE)
        classifier(IMAGE[0])
    assert entering.get() is None and running.get() is None
    assert [c.failed for c in p.calls] == [False, True]
    assert p.profile.watched.runs == 1 and p.as_json()["failed"] == 1
    classifier(IMAGE)
    assert len(p.calls) == 2


def test_a_run_that_raises_in_a_step_is_no_run(tmp_path: Path) -> None:
    source = module(forward("x: Tensor, i: Tensor", "return torch.relu(torch.index_select(torch.neg(x), 0, i))"))
    found = gpujit.optimize_for_inference(load(tmp_path, source))
    x, good, bad = np.ones((4, 3), np.float32), np.array([0, 1]), np.array([0, 9])
    found(x, good)
    with Profiler(ceilings=False) as p:
        for i in (good, bad, good):
            try:
                found(x, i)
            except gpujit.GpujitError:
                continue
    assert [c.failed for c in p.calls] == [False, True, False]
    assert p.profile.watched.runs == 2
    assert all(s.seconds.runs == 2 for s in p.profile.steps)


def test_modules_on_the_interpreter_have_their_calls_timed() -> None:
    plain = gpujit.load(EXAMPLE)
    p = watched(lambda: plain(IMAGE), 3)
    (profile,) = p.profiles
    assert profile.runner == "interpreter" and "optimize_for_inference was not called" in profile.reason
    assert profile.watched.runs == 3 and profile.total == pytest.approx(profile.watched.median)
    assert [s.tier for s in profile.steps] == ["interpreter"]
    assert profile_from_json(profile.as_json()) == profile


def test_an_empty_graph_is_profiled(tmp_path: Path) -> None:
    same = load(tmp_path, module(forward("x: Tensor", "return x")))
    p = watched(lambda: gpujit.optimize_for_inference(same)(IMAGE), 2)
    for profile in p.profiles:
        assert all(s.tier == "call" for s in profile.steps) and profile.groups == ()
        assert profile_from_json(profile.as_json()) == profile
    assert p.profiles


def test_a_block_in_which_nothing_runs() -> None:
    with gpujit.profile(ceilings=False) as p:
        assert "0 calls so far" in str(p)
        with pytest.raises(ArgumentError, match="after its block"):
            _ = p.profiles
    assert p.profiles == () and str(p) == "nothing was profiled"
    with pytest.raises(ArgumentError, match="no module was called"):
        _ = p.profile


def test_a_profiler_is_for_one_block(classifier: gpujit.ScriptModule) -> None:
    p = watched(lambda: classifier(IMAGE), 1)
    with pytest.raises(ArgumentError, match="one block"):
        p.__enter__()


def test_the_inner_of_two_blocks_sees_what_is_called_in_it(classifier: gpujit.ScriptModule) -> None:
    with Profiler(ceilings=False) as outer:
        classifier(IMAGE)
        with Profiler(ceilings=False) as inner:
            classifier(IMAGE)
            classifier(IMAGE)
        classifier(IMAGE)
    assert (len(outer.calls), len(inner.calls)) == (2, 2)
    assert outer.profile.watched.runs == inner.profile.watched.runs == 2


def test_other_threads_are_not_seen(classifier: gpujit.ScriptModule) -> None:
    with Profiler(ceilings=False) as p:
        thread = threading.Thread(target=lambda: [classifier(IMAGE) for _ in range(3)])
        thread.start()
        classifier(IMAGE)
        thread.join()
    assert len(p.calls) == 1


def test_threads_have_profilers_of_their_own(classifier: gpujit.ScriptModule) -> None:
    counts: list[int] = []

    def work(times: int) -> None:
        counts.append(watched(lambda: classifier(IMAGE), times).profile.watched.runs)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(counts) == [3, 5]


def test_static_modules_and_runtimes_are_seen() -> None:
    static = StaticModule(gpujit.load(EXAMPLE))
    kept = StaticModule(gpujit.load(EXAMPLE), StaticModuleOptions(manage_output_tensors=True)).runtime()
    runtime = static.runtime()
    for call in (static, runtime, kept):
        call(IMAGE)
    plain = kept(IMAGE)["scores"].copy()
    with Profiler(ceilings=False) as p:
        static(IMAGE)
        static.run((IMAGE,))
        runtime(IMAGE)
        runtime.run((IMAGE,))
        assert np.array_equal(kept(IMAGE)["scores"], plain)
    assert len(p.calls) == 5 and sorted(f.watched.runs for f in p.profiles) == [1, 4]
    assert not any(isinstance(a, TimedArena) for a in runtime._arenas.values())
    runtime(IMAGE)


def test_rounds_of_a_loop_are_one_step(tmp_path: Path) -> None:
    lines = (
        "for i in range(torch.size(x, 0)):",
        "  if bool(torch.sum(x)):",
        "    x = torch.add(torch.tanh(x), i)",
        "return x",
    )
    body = "\n".join(lines)
    found = gpujit.optimize_for_inference(load(tmp_path, module(forward("x: Tensor", body))))
    x = np.ones((3, 4), np.float32)
    want = found(x)
    with Profiler(ceilings=False) as p:
        for _ in range(4):
            assert np.array_equal(found(x), want)
    assert p.profile.watched.runs == 4
    assert {s.seconds.runs for s in p.profile.steps} == {4}


def test_a_call_that_makes_its_plan_has_that_in_its_time() -> None:
    fresh = gpujit.optimize_for_inference(gpujit.load(EXAMPLE))
    profiles = watched(lambda: fresh(IMAGE), 1).profiles
    assert profiles[0].steps[0].label == "arguments, plan"
    assert profiles[0].steps[0].seconds.median > profiles[0].total / 2


def test_some_of_many_short_calls_are_passed_over(
    classifier: gpujit.ScriptModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "_cost_of_seeing", lambda: 1e9)
    p = watched(lambda: classifier(IMAGE), 100)
    assert len(p.calls) == collect.ALL_SEEN and p.count == 100
    assert p.profile.watched.runs == collect.ALL_SEEN
    monkeypatch.setattr(collect, "_cost_of_seeing", lambda: 0.0)
    assert len(watched(lambda: classifier(IMAGE), 100).calls) == 100


def test_calls_that_are_too_many_are_counted(classifier: gpujit.ScriptModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_CALLS", 3)
    p = watched(lambda: classifier(IMAGE), 6, samples=False)
    assert len(p.calls) == 3 and p.count == 6
    assert p.profile.watched.runs == 6


def test_tasks_that_outlive_the_block_or_run_elsewhere_are_not_seen(classifier: gpujit.ScriptModule) -> None:
    with Profiler(ceilings=False) as p:
        context = copy_context()
        classifier(IMAGE)
        thread = threading.Thread(target=context.run, args=(classifier, IMAGE))
        thread.start()
        thread.join()
    want = classifier(IMAGE)["scores"]
    assert np.array_equal(context.run(classifier, IMAGE)["scores"], want)
    assert len(p.calls) == 1 and p.profile.watched.runs == 1
    assert not any(isinstance(a, TimedArena) for a in idle_arenas(classifier))


def test_plans_made_in_the_background_are_not_watched() -> None:
    seen: list[Any] = []
    with Profiler(ceilings=False) as p:
        running.set(p)
        try:
            job = background.submit(lambda: seen.append((entering.get(), running.get())))
        finally:
            running.set(None)
        assert job.wait(10)
    assert seen == [(None, None)]
