"""Profiles of modules on a device: one that records, whose events count how many there were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.kernels import cuda_cache
from gpujit.modules import ScriptModule
from gpujit.profiler import charts, device_groups, device_machine
from gpujit.profiler.assemble import difference, kernels_asked
from gpujit.profiler.data import BUS, Ceiling, Peak, Profile, StepProfile, profile_from_json
from gpujit.profiler.device_groups import device_pairs
from gpujit.profiler.device_steps import device_timings
from gpujit.runtime.device_outputs import arguments
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime import device_clock, device_timer
from gpujit.static_runtime.device_clock import DeviceRecorder
from gpujit.static_runtime.device_module import DeviceGraph
from gpujit.support.errors import DeviceError, OpError
from tests.programs import archive, forward, module
from tests.runtime.recording_device import DeviceArray, RecordingDevice
from tests.static_runtime.test_device import placed, scripted

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)


class Small(nn.Module):
    """Two products, a group, and what the host has to do."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        y = (self.last(self.first(x).relu()).sigmoid() * 2).sum(1)
        return y, (y > 4).nonzero()


class Rounds(nn.Module):
    def forward(self, x, n):
        y = x
        for _ in range(int(n)):
            y = y.matmul(y).relu()
        return y


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture
def small(device: RecordingDevice) -> ScriptModule:
    gpujit.manual_seed(0)
    return placed(scripted(Small()), device)


def load(folder: Path, source: str) -> ScriptModule:
    (folder / "m.pt").write_bytes(archive(source))
    return gpujit.load(folder / "m.pt").eval()


def host(values: Any) -> list[np.ndarray]:
    return [v.get() if isinstance(v, DeviceArray) else v for v in values]


def test_each_step_has_its_time_its_place_and_its_source(small: ScriptModule) -> None:
    small(X)
    with gpujit.profile(ceilings=False) as p:
        for _ in range(3):
            small(X)
    (profile,) = p.profiles
    assert profile.runner == "device" and profile.reason == "cuda:0, a device that records"
    assert profile.watched.runs == 3 and profile.method.endswith("Small.forward")
    steps = {s.label: s for s in profile.steps if s.tier != "call"}
    first, group, found = steps["aten::linear+relu"], steps["sigmoid+mul+sum+gt"], steps["aten::nonzero"]
    # One look at the device's clock behind each step, and one for copies before and after them.
    assert first.seconds.median == group.seconds.median == pytest.approx(1e-9)
    assert steps["copies in and out"].seconds.median == pytest.approx(2e-9)
    assert first.tier == "device library" and first.operators == ("linear", "relu") and not first.kernel
    assert first.place.module == "first"
    assert (first.bytes_read, first.bytes_written) == (4 * (3 * 8 + 8 * 16 + 16), 4 * 3 * 16)
    assert first.flops == 2 * 3 * 8 * 16 + 3 * 16
    assert group.tier == "device kernel" and group.operators == ("sigmoid", "mul", "sum", "gt")
    assert (group.bytes_read, group.bytes_written) == (4 * 3 * 4, 4 * 3 + 3)
    assert "test_device.py" in group.place.archive
    source = profile.kernel(group.kernel)
    assert source is not None and source.language == "Numba CUDA" and "def kernel(" in source.text
    assert found.tier == "host" and found.seconds.median > 1e-9
    assert profile.groups[0].label == first.label and profile.groups[0].fused is None
    assert any(r.label == "aten::nonzero" for r in profile.refusals)
    assert [g.stage for g in profile.graphs] == ["frozen", "fused", "plan"]


def test_the_rows_add_up(small: ScriptModule) -> None:
    profile = gpujit.profile_module(small, (X,), rounds=5, ceilings=False)
    assert profile.watched.runs == profile.steady.runs == 5
    assert profile.total >= 0.9 * profile.watched.median
    assert not profile.machine.bandwidths and not profile.machine.peaks
    assert all(s.fraction is None for s in profile.steps)
    assert [p.name for p in profile.phases] == ["plan", "first call", "warm-up"]
    assert profile_from_json(json.dumps(profile.as_json())) == profile
    assert "runs on a device: cuda:0, a device that records" in str(profile)
    assert "[device library]" in str(profile)


def test_a_module_is_optimised_first_where_it_was_not(device: RecordingDevice) -> None:
    made = scripted(Small())
    made._program.place(device)
    profile = gpujit.profile_module(made, (X,), rounds=1)
    assert profile.phases[0].name == "optimise"
    assert any(s.label == "aten::linear+relu" for s in profile.steps)
    assert made._program.optimised is None


def test_memory_is_the_arena_on_the_device(small: ScriptModule) -> None:
    small(X)
    with gpujit.profile(ceilings=False) as p:
        small(X)
    memory = p.profile.memory
    assert memory is not None
    assert {v.kind: v.nbytes for v in memory.values}["aten::relu"] == 4 * 3 * 16
    assert all(v.offset + v.nbytes <= memory.arena for v in memory.values)
    assert memory.weights == 4 * (8 * 16 + 16 + 16 * 4 + 4)


def test_the_timeline_has_a_line_for_the_device_and_one_for_the_host(small: ScriptModule, tmp_path: Path) -> None:
    small(X)
    with gpujit.profile(ceilings=False) as p:
        small(X)
    tracks = {e.name: e.track for e in p.profile.events if e.step is not None}
    assert tracks["inputs to their places"] == tracks["results away from their places"] == "gpu"
    assert tracks["copies in and out"] == tracks["aten::linear"] == "gpu" and tracks["aten::nonzero"] == "steps"
    call = next(e for e in p.profile.events if e.track == "calls")
    assert all(call.start <= e.start <= e.start + e.seconds <= call.start + call.seconds for e in p.profile.events)
    p.save_trace(tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in found if e["name"] == "thread_name"} == {"calls", "steps", "gpu"}
    p.profile.save_html(tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert "Steps ran on" in page and "a device that records" in page


def test_results_and_graphs_stay_as_they_were(small: ScriptModule, device: RecordingDevice) -> None:
    want = host(small(X))
    small(X)
    before = small.plan_stats()
    assert before.captures == 1
    with gpujit.profile(ceilings=False) as p:
        got = [host(small(X)) for _ in range(2)]
    assert len(p.profiles) == 1
    again = host(small(X))
    assert all(np.array_equal(a, b) for result in (*got, again) for a, b in zip(result, want, strict=True))
    after = small.plan_stats()
    # Watched calls use no graph; the one there was is used by the call after them.
    assert (after.captures, after.replays, after.interpreted) == (1, before.replays + 1, 0)


def test_nothing_is_recorded_when_nobody_watches(small: ScriptModule, device: RecordingDevice) -> None:
    small(X)
    device.forget()
    for _ in range(2):
        small(X)
    assert not {"event", "record", "synchronise"} & set(device.kinds())
    with gpujit.profile(ceilings=False):
        small(X)
    assert {"event", "record", "synchronise"} <= set(device.kinds())
    device.forget()
    small(X)
    assert not {"event", "record", "synchronise"} & set(device.kinds())


def test_events_are_used_again(small: ScriptModule, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_clock, "MAX_EVENTS", 6)
    small(X)
    device.forget()
    with gpujit.profile(ceilings=False) as p:
        for _ in range(5):
            small(X)
    kinds = device.kinds()
    # Those of inputs and results have two each.
    assert kinds.count("record") == 5 * 10 and kinds.count("event") <= 10
    assert p.profile.watched.runs == 5
    (step,) = (s for s in p.profile.steps if s.label == "aten::linear")
    assert step.seconds.least == pytest.approx(1e-9) == step.seconds.high and step.seconds.runs == 5


def test_runs_that_raise_are_left_out(tmp_path: Path, device: RecordingDevice) -> None:
    source = module(forward("x: Tensor, i: Tensor", "return torch.relu(torch.index_select(torch.neg(x), 0, i))"))
    found = placed(load(tmp_path, source), device)
    good, bad = np.array([0, 2]), np.array([0, 7])
    want = found(X, good).get()
    with gpujit.profile(ceilings=False) as p:
        found(X, good)
        with pytest.raises(OpError, match="out of range"):
            found(X, bad)
        assert np.array_equal(found(X, good).get(), want)
    (profile,) = p.profiles
    assert profile.watched.runs == 2 and p.as_json()["failed"] == 1
    steps = [s for s in profile.steps if s.tier == "device kernel"]
    assert steps and all(s.seconds.runs == 2 and s.seconds.median == pytest.approx(1e-9) for s in steps)
    assert any(s.label == "checks of kernels" and s.tier == "host" for s in profile.steps)
    assert np.array_equal(found(X, good).get(), want)


def test_a_device_that_fails_between_steps_leaves_nothing_behind(
    small: ScriptModule, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = host(small(X))
    record, count = device.record, 0

    def fails_once(event: list[int], stream: Any) -> None:
        nonlocal count
        count += 1
        if count == 14:
            raise DeviceError("an illegal address was met")
        record(event, stream)

    monkeypatch.setattr(device, "record", fails_once)
    device.forget()
    with gpujit.profile(ceilings=False) as p:
        small(X)
        with pytest.raises(DeviceError, match="illegal address"):
            small(X)
        got = host(small(X))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    (profile,) = p.profiles
    assert profile.watched.runs == 2
    (step,) = (s for s in profile.steps if s.label == "aten::linear")
    assert step.seconds.runs == 2 and step.seconds.least == pytest.approx(1e-9) == step.seconds.high
    assert len([e for e in profile.events if e.name == "aten::linear"]) == 2
    # Ten for a run; the third one takes those of the second.
    assert device.kinds().count("event") <= 20


def test_a_module_that_an_operator_of_its_own_calls_is_a_part_of_that(tmp_path: Path, device: RecordingDevice) -> None:
    depth = 0

    @gpujit.op("profiled_device::again(Tensor x) -> Tensor")
    def again(xp: Any, x: np.ndarray) -> np.ndarray:
        nonlocal depth
        depth += 1
        try:
            return np.asarray(found(x).get()) if depth == 1 else x + 1
        finally:
            depth -= 1

    source = module(forward("x: Tensor", "return torch.neg(ops.profiled_device.again(torch.neg(x)))"))
    found = placed(load(tmp_path, source), device)
    want = found(X).get()
    with gpujit.profile(ceilings=False) as p:
        assert np.array_equal(found(X).get(), want)
    (profile,) = p.profiles
    assert profile.watched.runs == 1
    steps = [s for s in profile.steps if s.tier == "device kernel"]
    assert len(steps) == 2 and all(s.seconds.median == pytest.approx(1e-9) for s in steps)
    assert any(s.label == "profiled_device::again" and s.tier == "host" for s in profile.steps)


def test_rounds_of_a_loop_count_together(device: RecordingDevice) -> None:
    found = placed(scripted(Rounds()), device)
    square, five, three = np.eye(4, dtype=np.float32), np.array(5), np.array(3)
    found(square, five)
    with gpujit.profile(ceilings=False) as p:
        found(square, five)
        found(square, three)
    (profile,) = p.profiles
    (step,) = (s for s in profile.steps if s.label == "aten::matmul+relu")
    # The slower of both runs has five rounds, and the median lies between them.
    assert step.seconds.least == pytest.approx(3e-9) and step.seconds.median == pytest.approx(4e-9)
    assert len([e for e in profile.events if e.step == step.number]) == 5 + 3


def test_what_has_no_plan_is_timed_as_a_whole(tmp_path: Path, device: RecordingDevice) -> None:
    source = module(forward("x: Tensor", "return torch.add_(x, 1)"))
    found = placed(load(tmp_path, source), device)
    profile = gpujit.profile_module(found, (X.copy(),), rounds=2)
    assert profile.runner == "device" and "it writes into its input" in profile.reason
    assert [(s.label, s.tier) for s in profile.steps] == [("call on a device", "device")]
    with gpujit.profile(ceilings=False) as p:
        found(X.copy())
    assert p.profile.runner == "device" and p.profile.reason == profile.reason


def row(profile: Profile, label: str) -> StepProfile:
    (found,) = (s for s in profile.steps if s.label == label)
    return found


def test_copies_are_rows_with_what_they_move(small: ScriptModule, device: RecordingDevice) -> None:
    profile = gpujit.profile_module(small, (X,), rounds=2, ceilings=False, groups=False, unfused=False)
    inputs = row(profile, "inputs to their places")
    assert inputs.tier == "device copy from the host"
    assert (inputs.bytes_read, inputs.bytes_written) == (0, X.nbytes)
    assert inputs.seconds.median == pytest.approx(1e-9) and inputs.bandwidth == pytest.approx(X.nbytes / 1e-9)
    # The sums are a result; what the host reads it copies itself.
    between = row(profile, "copies in and out")
    assert between.bytes_written == between.bytes_read == 4 * 3
    profile = gpujit.profile_module(small, (device.of(X),), rounds=2, ceilings=False, groups=False, unfused=False)
    inputs = row(profile, "inputs to their places")
    assert (inputs.tier, inputs.bytes_read, inputs.bytes_written) == ("device copy", X.nbytes, X.nbytes)


def captured(device: RecordingDevice) -> list[list[str]]:
    """What went into each graph."""
    found: list[list[str]] = []
    is_open = False
    for kind in device.kinds():
        if kind in ("begin", "end"):
            is_open = kind == "begin"
            found += [[]] if is_open else []
        elif is_open:
            found[-1].append(kind)
    return found


def test_groups_are_timed_against_their_operators_on_the_device(
    small: ScriptModule, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_timer, "MOST_RUNS", 3)
    want = host(small(X))
    profile = gpujit.profile_module(small, (X,), rounds=4, ceilings=False, unfused=False)
    linear, pointwise = profile.groups
    assert (linear.label, pointwise.label) == ("aten::linear+relu", "sigmoid+mul+sum+gt")
    for group in profile.groups:
        assert group.unfused_tier == "device" and group.speedup is not None and group.speedup.rounds == 4
        assert group.fused is not None and group.fused.runs == 4
    # Graphs of three runs each: of one call, and of one for each operator.
    assert [len(g) for g in captured(device)[-4:]] == [3, 6, 3, 12]
    assert captured(device)[-4] == ["gemm"] * 3 and captured(device)[-3] == ["gemm", "launch"] * 3
    assert all(np.array_equal(a, b) for a, b in zip(host(small(X)), want, strict=True))


def test_an_operator_that_only_the_host_has_makes_a_group_mixed(
    small: ScriptModule, device: RecordingDevice
) -> None:
    device.refused = {"aten::sigmoid"}
    profile = gpujit.profile_module(small, (X,), rounds=2, ceilings=False)
    assert [g.unfused_tier for g in profile.groups] == ["device", "mixed"]
    group = profile.groups[1]
    assert group.fused is not None and group.unfused is not None
    # One step, and three with a call of the host's, whose time is not the recorder's.
    assert group.unfused.least > 1e-6 > group.fused.high


def test_groups_read_what_they_read_in_the_model(small: ScriptModule, device: RecordingDevice) -> None:
    profile = gpujit.profile_module(small, (X,), rounds=1, ceilings=False, groups=False, unfused=False)
    executor = small._program.executor(small.methods["forward"]._function)
    (plan,) = executor.plans()
    runner = plan.runner
    assert isinstance(runner, DeviceGraph)
    timings = device_timings(executor, plan, runner, DeviceRecorder(device, runner.plan()))
    values = [small._object, *arguments(device, [X])]
    pairs = list(device_pairs(timings.described, plan, runner, Lowerer(np, {}), values))
    assert [p.number for p in pairs] == [0, 1] and len(profile.groups) == 2
    sums = pairs[1]._graphs[0].run(pairs[1]._inputs)
    assert np.array_equal(device.view(pairs[0]._inputs[0]), X)
    for pair in pairs:
        fused, unfused = (graph.run(pair._inputs) for graph in pair._graphs)
        for a, b in zip(flat(fused), flat(unfused), strict=True):
            np.testing.assert_allclose(device.view(a), device.view(b), 1e-5, 1e-6)
    np.testing.assert_allclose(device.view(flat(sums)[0]), host(small(X))[0], 1e-5, 1e-6)


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def test_without_memory_for_what_groups_read_numbers_are_made_up(
    small: ScriptModule, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise DeviceError("there is no memory", code="device-memory")

    small(X)
    monkeypatch.setattr(device_groups.DeviceGraph, "run", fails)
    values = device_groups.DeviceValues
    executor = small._program.executor(small.methods["forward"]._function)
    (plan,) = executor.plans()
    found = values(plan, plan.runner, Lowerer(np, {}), [small._object, X], ["x"])
    (x,) = [v for v in plan.graph.inputs if v.name == "x"]
    made = found.of(x, "x")
    assert made is not None and made.shape == X.shape and np.all(np.isfinite(device.view(made)))


def test_the_whole_model_runs_without_fusion_too(small: ScriptModule, device: RecordingDevice) -> None:
    profile = gpujit.profile_module(small, (X,), rounds=4, ceilings=False, groups=False)
    assert profile.fused is not None and profile.unfused is not None and profile.speedup is not None
    assert profile.fused.runs == profile.unfused.runs == profile.speedup.rounds == 4
    # Its graph: linear, relu, linear, sigmoid, mul, sum, gt, each a call.
    assert captured(device)[-1] == ["gemm", "launch", "gemm", *["launch"] * 4]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", np.zeros(8, np.float32))

    def forward(self, x):
        self.n.add_((x * 2).relu())
        return self.n * 3


def test_what_plans_with_and_without_fusion_write_into_attributes_is_undone(device: RecordingDevice) -> None:
    found = scripted(Counts())
    found._program.place(device)
    x = np.ones(8, np.float32)
    found(x)
    profile = gpujit.profile_module(found, (x,), rounds=2, ceilings=False)
    assert profile.unfused is not None and any("into an attribute" in s.label for s in profile.steps)
    assert found.n.get().tolist() == [2] * 8 and found(x).get().tolist() == [12] * 8


def test_kernels_that_plans_ask_for_are_told(small: ScriptModule, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernels_asked()
    monkeypatch.setattr(cuda_cache.counters, "compiled", cuda_cache.counters.compiled + 3)
    assert difference(kernels_asked(), before).compiled == 3


# ---------------------------------------------------------------------------------------------------- ceilings


def test_steps_are_held_against_the_ceilings_of_the_device(
    small: ScriptModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandwidths = (Ceiling("100 B", 100, 4e12), Ceiling("memory", 10_000, 1e12), Ceiling(BUS, 10_000, 2e11))
    peaks = (Peak(1, 1e13), Peak(1, 8e13, "float16"))
    monkeypatch.setattr(device_machine, "kept_ceilings", lambda identity, measure: (bandwidths, peaks))
    profile = gpujit.profile_module(small, (X,), rounds=2, groups=False, unfused=False)
    assert profile.machine.device == "cuda:0, a device that records" and profile.machine.bandwidths == bandwidths
    # Each step takes a nanosecond there.
    first = row(profile, "aten::linear+relu")
    assert first.bytes_moved is not None
    assert (first.bound, first.fraction) == ("memory", pytest.approx(first.bytes_moved / 1e12 / 1e-9))
    inputs = row(profile, "inputs to their places")
    assert inputs.fraction == pytest.approx(X.nbytes / 2e11 / 1e-9)
    assert row(profile, "aten::nonzero").fraction is None
    text = str(profile)
    assert "the device reaches 100 B 4.00 TB/s, memory 1.00 TB/s, host to device 200 GB/s; 10.0 TFLOP/s" in text
    chart = charts.roofline(profile)
    assert chart is not None
    assert {line.label for line in chart.lines} >= {"memory: 1.00 TB/s", "10.0 TFLOP/s, float32"}
    assert not any(BUS in line.label for line in chart.lines)
