"""Executors: plans for the inputs they meet, guards on what they assumed, the same answers as the interpreter's."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.runtime.executor import MAX_CHANGES, Executor
from gpujit.runtime.lower import Lowerer
from gpujit.support.errors import ScriptRaised
from tests.programs import archive, forward, module

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def executor(body: str, arguments: str = "x: Tensor", result: str = "Tensor") -> tuple[gpujit.ScriptModule, Executor]:
    """A module of one method, optimised, and what runs it."""
    loaded = gpujit.load(archive(module(forward(f"{arguments} -> {result}", body))))
    fast = gpujit.optimize_for_inference(loaded)
    return fast, fast._program.executor(fast._object.type.methods["forward"])


def test_one_plan_serves_inputs_of_one_kind() -> None:
    fast, run = executor("return torch.sigmoid(torch.mul(torch.relu(x), 2.))")
    for x in (X, X + 1, X[:, :2], X.astype(np.float64), X * 2):
        want = 1 / (1 + np.exp(-np.maximum(x, 0) * 2))
        np.testing.assert_allclose(fast(x), want, rtol=1e-6)
    assert (run.counters.made, run.counters.hits) == (3, 2)


def test_numbers_are_part_of_what_a_plan_is_for() -> None:
    fast, run = executor("return torch.mul(x, n)", "x: Tensor, n: float")
    for n in (2.0, -0.0, 0.0, 2.0):
        np.testing.assert_array_equal(np.signbit(fast(X, n)), np.signbit(X * np.float32(n)))
    assert run.counters.made == 3


def test_control_flow_on_sizes_is_decided_for_each_size() -> None:
    body = """
    if torch.gt(torch.size(x, 0), 2):
      y = torch.relu(x)
    else:
      y = torch.neg(x)
    return y
    """
    fast, _ = executor(body)
    np.testing.assert_array_equal(fast(X), np.maximum(X, 0))
    np.testing.assert_array_equal(fast(X[:2]), -X[:2])


def test_what_the_program_raises_is_raised_by_a_plan_too() -> None:
    fast, _ = executor("""
    if torch.gt(torch.size(x, 0), 2):
      ops.prim.RaiseException("too many rows")
    return torch.neg(x)
    """)
    np.testing.assert_array_equal(fast(X[:1]), -X[:1])
    for _ in range(2):
        with pytest.raises(ScriptRaised, match="too many rows"):
            fast(X)


STATE = """
self.calls = torch.add(self.calls, 1)
y = torch.add(torch.mul(x, 2.), self.last)
if torch.gt(self.calls, 2):
  z = torch.relu(y)
else:
  z = torch.neg(y)
self.last = z
return z
"""


def stateful() -> gpujit.ScriptModule:
    source = module(forward("x: Tensor", STATE), "calls : int\nlast : Tensor\ntraining : bool")
    values = {"calls": 0, "last": np.zeros((3, 4), np.float32), "training": False}
    return gpujit.load(archive(source, values))


def test_state_is_carried_as_the_interpreter_carries_it() -> None:
    plain, fast = stateful(), gpujit.optimize_for_inference(stateful())
    run = fast._program.executor(fast._object.type.methods["forward"])
    for k in range(12):
        np.testing.assert_allclose(fast(X - k), plain(X - k), rtol=1e-6, err_msg=f"call {k}")
    assert fast.calls == plain.calls
    # The first counts are assumed to stay; then plans read the count, and the branch on it is taken at run time.
    assert run.counters.made == MAX_CHANGES + 1 and not run.reasons()


def test_threads_share_plans() -> None:
    fast, run = executor("return torch.tanh(torch.add(x, 1.))")
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not np.allclose(fast(X + k), np.tanh(X + k + 1), rtol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(run.plans()) <= 4


def test_what_cannot_be_planned_is_interpreted_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, run = executor("return torch.relu(x)")

    def fail(values: Any) -> Any:
        raise gpujit.ArgumentError("no plan for this")

    monkeypatch.setattr(run, "prepare", fail)
    np.testing.assert_array_equal(fast(X), np.maximum(X, 0))
    np.testing.assert_array_equal(fast(X), np.maximum(X, 0))
    assert run.counters.interpreted == 2 and run.reasons() == ["no plan for this"]
    assert "runs on the interpreter: no plan for this" in fast.explain()
    run.strict = True
    with pytest.raises(gpujit.ArgumentError, match="no plan for this"):
        fast(X[:1])


def test_explain_names_groups_lines_and_refusals() -> None:
    fast, _ = executor("return torch.matmul(torch.sigmoid(torch.relu(x)), torch.t(x))")
    assert "was not called yet" in fast.explain()
    fast(X)
    text = fast.explain()
    assert "float32[3, 4]" in text.splitlines()[0] or "Float(3, 4)" in text.splitlines()[0]
    assert "group 0: relu, sigmoid" in text and "bytes of memory traffic saved" in text
    assert "not fused: aten::matmul" in text and ".py" in text


def test_plain_modules_say_how_to_be_optimised() -> None:
    loaded = gpujit.load(archive(module(forward("x: Tensor", "return torch.relu(x)"))))
    assert "optimize_for_inference" in loaded.explain()


def test_bytecode_is_made_only_where_the_interpreter_runs_a_plan() -> None:
    fast, run = executor("return torch.sigmoid(torch.mul(torch.relu(x), 2.))")
    fast(X)
    plain = Executor(run.function, {}, lambda values: None, strict=True)
    values = [fast._object, X]
    np.testing.assert_allclose(plain(values), fast(X), rtol=1e-6)
    assert [p.code is None for p in run.plans()] == [True] and [p.runner is None for p in run.plans()] == [False]
    assert [p.code is None for p in plain.plans()] == [False] and [p.runner is None for p in plain.plans()] == [True]


def test_a_group_without_a_kernel_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, run = executor("return torch.sigmoid(torch.mul(torch.relu(x), 2.))")
    plan = Executor(run.function, {}, lambda values: None, strict=True).prepare([fast._object, X])
    (step,) = plan.steps.values()
    lowered = []
    lower = Lowerer.graph_code
    monkeypatch.setattr(Lowerer, "graph_code", lambda self, graph: lowered.append(graph) or lower(self, graph))
    for x in (X, X + 1, X + 2):
        np.testing.assert_allclose(step.unfused(x), 1 / (1 + np.exp(-np.maximum(x, 0) * 2)), rtol=1e-6)
    assert len(lowered) == 1
