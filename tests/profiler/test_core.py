"""``gpujit.profile_module``: everything about one method on given inputs, and nothing of it left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.profiler import core, groups, machine
from gpujit.profiler.assemble import MAX_EVENTS
from gpujit.profiler.data import Profile, profile_from_json
from gpujit.profiler.graphs import every_node, graph_of
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, OpError, ScriptRaised
from tests.profiler.test_machine import FOUND
from tests.programs import archive, forward, module
from tests.static_runtime.help import CORPUS, read_case

EXAMPLE = Path(__file__).parents[2] / "examples" / "classifier.pt"
IMAGE = np.linspace(-1, 1, 3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32)


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_known", {})
    monkeypatch.setattr(machine, "kept_ceilings", lambda identity, measure: FOUND)


@pytest.fixture(scope="module")
def found() -> Iterator[Profile]:
    patch = pytest.MonkeyPatch()
    patch.setattr(machine, "kept_ceilings", lambda identity, measure: FOUND)
    yield gpujit.profile_module(gpujit.load(EXAMPLE), (IMAGE,), rounds=4, interpreted=True, file="classifier.pt")
    patch.undo()


def load(tmp_path: Path, source: str, attributes: dict[str, Any] | None = None) -> gpujit.ScriptModule:
    (tmp_path / "m.pt").write_bytes(archive(source, attributes or {}))
    return gpujit.load(tmp_path / "m.pt")


def test_phases_are_apart(found: Profile) -> None:
    assert [p.name for p in found.phases] == ["optimise", "plan", "first call", "warm-up"]
    assert all(p.seconds > 0 for p in found.phases) and "calls" in found.phases[-1].note
    assert found.file == "classifier.pt" and found.method.endswith("Classifier.forward")
    assert [t.text for t in found.inputs] == ["float32[1, 3, 32, 32]", "1"]


def test_all_that_is_timed_has_as_many_rounds(found: Profile) -> None:
    assert found.steady.runs == found.watched.runs == 4
    assert found.fused is not None and found.unfused is not None and found.speedup is not None
    assert found.fused.runs == found.unfused.runs == found.speedup.rounds == 4
    assert found.interpreted is not None and found.interpreted.median > 0
    assert all(s.seconds.runs == 4 for s in found.steps)


def test_groups_are_timed_both_ways(found: Profile) -> None:
    assert [g.operators for g in found.groups] == [
        ("conv2d", "relu"), ("conv2d", "relu", "add"), ("conv2d", "relu", "add"), ("relu", "add", "mean"),
    ]  # fmt: skip
    for group in found.groups:
        assert group.fused is not None and group.unfused is not None and group.speedup is not None
        assert group.fused.runs == group.unfused.runs == 4 and group.unfused_tier == "native"
        assert len(group.places) == len(group.operators) and group.places[-1].archive
        kernel = found.kernel(group.kernel)
        assert kernel is not None and "define" in kernel.text
    image = 4 * 16 * 16 * 16
    assert [g.saved_bytes for g in found.groups] == [2 * image, 4 * image, 4 * image, 4 * image]
    assert {s.group for s in found.steps} == {None, 0, 1, 2, 3}


def test_steps_are_held_against_the_ceilings(found: Profile) -> None:
    native = [s for s in found.steps if s.tier.startswith("native")]
    assert all(s.fraction is not None and s.bound in ("memory", "compute", "overhead") for s in native)
    for s in native:
        assert s.bytes_moved is not None and s.flops is not None and s.fraction is not None
        least = max(s.bytes_moved / 2e10, s.flops / 1e11) if s.bytes_moved > 1000 else 0.0
        if s.bound != "overhead" and least:
            assert s.fraction == pytest.approx(least / s.seconds.median)


def test_graphs_can_be_read_back_with_their_modules(found: Profile) -> None:
    stages = {g.stage: graph_of(g) for g in found.graphs}
    assert list(stages) == ["frozen", "fused", "plan"]
    kinds = [n.kind for n in every_node(stages["fused"])]
    assert "prim::FusionGroup" in kinds and "aten::relu" in kinds
    modules = {n.call.module for n in every_node(stages["frozen"]) if n.call is not None}
    assert {"stem", "blocks.0.depthwise", "head"} <= modules


def test_refusals_have_reasons_and_lines(found: Profile) -> None:
    topk = next(r for r in found.refusals if r.label == "aten::topk")
    assert topk.reason and topk.place.archive.startswith("code/__torch__.py:")


def test_it_is_plain_data_with_a_timeline(found: Profile) -> None:
    assert profile_from_json(json.dumps(found.as_json(), allow_nan=False)) == found
    calls = [e for e in found.events if e.track == "calls"]
    steps = [e for e in found.events if e.track == "steps"]
    assert len(calls) == 4 and len(steps) == 4 * sum(s.tier != "call" for s in found.steps)
    assert found.dropped == 0 < len(found.events) <= MAX_EVENTS
    for e in steps:
        call = calls[e.call]
        assert call.start - 2e-6 <= e.start and e.start + e.seconds <= call.start + call.seconds + 2e-6
    assert "without fusion" in str(found)


STATE = """
def forward(self: __torch__.M, x: Tensor) -> Tensor:
  self.count = torch.add(self.count, 1)
  _0 = torch.add_(x, 1)
  return torch.mul(torch.add(_0, self.count), torch.rand_like(x))
"""


def test_state_inputs_and_random_numbers_are_as_before(tmp_path: Path) -> None:
    source = module(STATE, "count : Tensor")
    stateful = load(tmp_path, source, {"count": np.array(5.0, np.float32)})
    optimised = gpujit.optimize_for_inference(stateful)
    x = np.ones((2, 3), np.float32)
    gpujit.manual_seed(7)
    expected = gpujit.load(tmp_path / "m.pt")(x.copy())
    gpujit.manual_seed(7)
    gpujit.profile_module(optimised, (x,), rounds=3)
    assert (x == 1).all() and float(optimised.count) == 5.0
    assert np.allclose(optimised(x.copy()), expected)


def test_a_model_that_raises_says_so_and_is_as_before(tmp_path: Path) -> None:
    classifier = gpujit.optimize_for_inference(gpujit.load(EXAMPLE))
    with pytest.raises(ScriptRaised, match="4 dimensions"):
        gpujit.profile_module(classifier, (IMAGE[0],), rounds=2)
    assert np.array_equal(classifier(IMAGE)["scores"], gpujit.load(EXAMPLE)(IMAGE)["scores"])


def test_a_run_on_the_interpreter_is_told_with_its_reason() -> None:
    with config(disable=("static",)):
        found = gpujit.profile_module(gpujit.load(EXAMPLE), (IMAGE,), rounds=3)
    assert found.runner == "interpreter" and found.reason == "its memory is not planned"
    assert found.steady.runs == 3 and found.memory is None and found.groups == ()
    labels = [s.label for s in found.steps]
    assert labels.count("aten::conv2d") == 7 and "aten::topk" in labels and "prim::FusionGroup" in labels
    assert all(s.place.archive for s in found.steps if s.label == "aten::conv2d")
    assert found.total >= 0.95 * found.watched.median
    assert profile_from_json(found.as_json()) == found


def test_an_empty_model(tmp_path: Path) -> None:
    found = gpujit.profile_module(load(tmp_path, module(forward("x: Tensor", "return x"))), (IMAGE,), rounds=2)
    assert found.groups == () and profile_from_json(found.as_json()) == found
    assert str(found)


def test_other_methods(tmp_path: Path) -> None:
    source = module(
        forward("x: Tensor", "return x")
        + "def twice(self: __torch__.M, a: Tensor, n: int=2) -> Tensor:\n  return torch.relu(torch.mul(a, n))\n"
    )
    found = gpujit.profile_module(load(tmp_path, source), (IMAGE,), {"n": 3}, method="twice", rounds=2)
    assert found.method.endswith("twice") and any("mul" in s.operators for s in found.steps)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: gpujit.profile_module(m, (IMAGE,), rounds=0), "rounds is a number from 1"),
        (lambda m: gpujit.profile_module(m, (IMAGE,), rounds=True), "rounds is a number from 1"),
        (lambda m: gpujit.profile_module(m, (IMAGE,), method="other"), "no method 'other'; it has"),
        (lambda m: gpujit.profile_module(m, ()), "images"),
        (lambda m: gpujit.profile_module(m, (IMAGE,), threads=0), "threads"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(gpujit.load(EXAMPLE))


def test_what_is_not_wanted_is_not_measured() -> None:
    found = gpujit.profile_module(gpujit.load(EXAMPLE), (IMAGE,), rounds=2, unfused=False, groups=False, ceilings=False)
    assert found.unfused is found.speedup is found.interpreted is None
    assert found.groups and all(g.fused is None for g in found.groups)
    assert found.machine.peaks == () and all(s.fraction is None for s in found.steps)


@pytest.mark.parametrize("name", ["bert_trace", "mobilenet_trace", "nms_postprocess", "lstm_script"])
def test_both_sides_of_a_group_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[groups.Pair] = []
    measured = groups.measured

    def keeping(pairs: Any, *rest: Any) -> Any:
        kept.extend(pairs)
        return measured(pairs, *rest)

    monkeypatch.setattr(core, "measured", keeping)
    path = CORPUS / f"{name}.pt"
    found = gpujit.profile_module(gpujit.load(path), read_case(path), rounds=1, unfused=False)
    assert profile_from_json(found.as_json()) == found
    assert all(g.fused is not None for g in found.groups) and len(kept) == len(found.groups)
    for pair in kept:
        fused, unfused = pair.fused.run(pair.inputs), pair.unfused.run(pair.inputs)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (fused, unfused)), strict=True):
            assert a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-5)
        # One native step on one side; several on the other.
        steps = [[t.name for t in g.tiers() if t.name != "view"] for g in (pair.fused, pair.unfused)]
        assert len(steps[0]) == 1 < len(steps[1]) and steps[0][0].startswith("native")


def test_without_endings_a_template_does_its_operator_alone() -> None:
    assert Options().endings
    classifier = gpujit.StaticModule(gpujit.load(EXAMPLE), gpujit.StaticModuleOptions(endings=False))
    joined = gpujit.StaticModule(gpujit.load(EXAMPLE))
    assert np.allclose(classifier(IMAGE)["scores"], joined(IMAGE)["scores"], atol=1e-6)
    assert "conv2d+relu" in joined.explain() and "conv2d+relu" not in classifier.explain()


def test_errors_of_numbers_made_up_leave_a_group_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: groups.Pair) -> None:
        raise OpError("index 9 is out of range")

    monkeypatch.setattr(groups.Pair, "prepare", fails)
    found = gpujit.profile_module(gpujit.load(EXAMPLE), (IMAGE,), rounds=1, unfused=False)
    assert found.groups and all(g.fused is None and g.speedup is None for g in found.groups)
