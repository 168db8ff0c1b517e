"""Calls like the last one, which go straight to native code, and those that must not."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.runtime.executor import Executor
from gpujit.static_runtime import enter
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from tests.static_runtime.help import f32

pytestmark = pytest.mark.skipif(not enter.READS_ARRAYS, reason="array objects are not read here")


class Sums(nn.Module):
    """A product of two inputs' difference."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 24)

    def forward(self, x, y):
        return nn.functional.relu(self.inner(x - y))


class Counts(nn.Module):
    """Keeps how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", np.zeros((), np.float32))

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.calls


PLAIN = gpujit.script(Sums().eval())


def optimised(**options: Any) -> gpujit.ScriptModule:
    """The module, after calls that showed that the next ones may be quick."""
    module = gpujit.optimize_for_inference(PLAIN, **options)
    for seed in range(3):
        module(f32(4, 16, seed=seed), f32(4, 16))
    return module


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The values of calls that looked for their plan."""
    found: list[list[Any]] = []
    plan_for = Executor.plan_for

    def noted(self: Executor, values: list[Any]) -> Any:
        found.append(values)
        return plan_for(self, values)

    monkeypatch.setattr(Executor, "plan_for", noted)
    return found


def check(module: gpujit.ScriptModule, x: Any, y: Any) -> np.ndarray:
    found = module(x, y)
    np.testing.assert_allclose(found, PLAIN(x, y), rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"threads": 1}, {"compile": "never"}], ids=str)
def test_the_same_again(options: dict[str, Any], slow: list) -> None:
    # With its kernels at hand.
    optimised()
    module = optimised(**options)
    slow.clear()
    before = module.plan_stats().hits
    results = [check(module, f32(4, 16, seed=seed), f32(4, 16, seed=9)) for seed in range(5)]
    assert not slow and module.plan_stats().hits == before + 5
    assert not any(np.shares_memory(results[0], r) for r in results[1:])


def test_large_work_is_shared_by_a_team(slow: list) -> None:
    plain = gpujit.script(nn.Linear(512, 512).eval())
    module = gpujit.optimize_for_inference(plain, threads=2)
    for seed in range(6):
        x = f32(64, 512, seed=seed)
        np.testing.assert_allclose(module(x), plain(x), rtol=1e-4, atol=1e-5)
    assert len(slow) <= 3


OTHERS = {
    "other shapes": (f32(5, 16), f32(5, 16)),
    "other strides": (f32(16, 4).T, f32(8, 16)[::2]),
    "broadcast": (f32(4, 16), f32(16)),
    "a list": (f32(4, 16), f32(4, 16).tolist()),
    "a subclass": (f32(4, 16).view(np.recarray), f32(4, 16)),
    "another type": (f32(4, 16).astype(np.float64), f32(4, 16)),
    "elements that share memory": (np.broadcast_to(np.float32(2), (4, 16)), f32(4, 16)),
    "rows that share memory": (np.lib.stride_tricks.as_strided(f32(19), (4, 16), (4, 4)), f32(4, 16)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_take_another_look(name: str) -> None:
    module, (x, y) = optimised(), OTHERS[name]
    wanted = _outcome(PLAIN, x, y)
    for _ in range(3):
        found = _outcome(module, x, y)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        check(module, f32(4, 16, seed=3), f32(4, 16))


def _outcome(module: gpujit.ScriptModule, x: Any, y: Any) -> Any:
    try:
        return module(x, y)
    except Exception as fault:
        return type(fault).__name__


def test_too_few_and_too_many_arguments() -> None:
    module, x = optimised(), f32(4, 16)
    for given in ((), (x,), (x, x, x)):
        with pytest.raises(ArgumentError):
            module(*given)


def test_names_and_given_results() -> None:
    module, x, y = optimised(), f32(4, 16, seed=1), f32(4, 16)
    wanted = check(module, x, y)
    out = np.empty_like(wanted)
    assert module(x, y, out=out) is out and out.tobytes() == wanted.tobytes()
    assert module(y=y, x=x).tobytes() == wanted.tobytes()


def test_switches_are_looked_at(slow: list, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, y = optimised(), f32(4, 16, seed=1), f32(4, 16)
    runs: list[int] = []
    run = PlannedGraph._run_quickly
    monkeypatch.setattr(PlannedGraph, "_run_quickly", lambda self, given: runs.append(1) or run(self, given))
    with config(check_plan=True):
        for _ in range(4):
            check(module, x, y)
    assert not runs
    for _ in range(4):
        check(module, x, y)
    assert runs


def test_a_profile_sees_every_call(slow: list) -> None:
    module, x, y = optimised(), f32(4, 16), f32(4, 16)
    with gpujit.profile(ceilings=False) as profile:
        for _ in range(5):
            module(x, y)
    assert sum(p.watched.runs for p in profile.profiles) == 5


def test_attributes_that_are_written() -> None:
    plain = gpujit.script(Counts().eval())
    module = gpujit.optimize_for_inference(plain)
    x = f32(3, 5)
    for n in range(1, 6):
        np.testing.assert_array_equal(module(x), x * np.float32(n))
    module.calls = np.float32(10)
    np.testing.assert_array_equal(module(x), x * np.float32(11))


def test_modules_and_shapes_in_turns(slow: list) -> None:
    modules = [optimised(), optimised()]
    for n in range(12):
        shape = (4 + n % 3, 16)
        check(modules[n % 2], f32(*shape, seed=n), f32(*shape))


def test_many_threads() -> None:
    module = optimised()
    inputs = [(f32(4, 16, seed=n), f32(4, 16, seed=n + 1)) for n in range(4)]
    wanted = [module(*given).tobytes() for given in inputs]
    faults: list[int] = []

    def work(n: int) -> None:
        faults.extend(n for _ in range(300) if module(*inputs[n]).tobytes() != wanted[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
