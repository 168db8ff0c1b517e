"""Sizes that come back get the quickest kernels in the background: the same numbers, and no call waits."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.kernels import supply
from gpujit.kernels.templates import bound
from gpujit.support import background
from gpujit.support.config import config
from gpujit.support.errors import InternalError
from tests.static_runtime.help import f32

# Rows of the first call, and of one for which code that serves more sizes is compiled than what is quickest.
FIRST, LATER = 3, 22
WAITS, DONE = "compiled in the background once it is used", "have taken the first ones' place"


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bound, "_kernels", {})
    with config(cache=False, threads=1):
        yield


def perceptron(compile: str = "background") -> gpujit.ScriptModule:
    gpujit.manual_seed(5)
    plain = nn.Sequential(nn.Linear(96, 130), nn.ReLU(), nn.Linear(130, 10))
    return gpujit.optimize_for_inference(gpujit.script(plain.eval()), compile=compile)


def settled() -> None:
    """Wait for all work in the background."""
    assert background.submit_idle(lambda: None).wait(60)


@contextmanager
def held() -> Iterator[None]:
    """The background does nothing that is handed over in this block, until it ends."""
    go, is_there = threading.Event(), threading.Event()

    def hold() -> None:
        is_there.set()
        go.wait(60)

    background.submit(hold)
    assert is_there.wait(60)
    try:
        yield
    finally:
        go.set()


def with_plans(module: gpujit.ScriptModule) -> None:
    """Have the plans of both sizes made, without running the second one."""
    for rows in (FIRST, LATER):
        module(f32(rows, 96))
        settled()
    assert module.plan_stats().kept == 2


def functions(module: gpujit.ScriptModule, k: int) -> list[int]:
    (executor,) = module._program.executors()
    return list(executor.plans()[k].runner.plan([]).functions)


def test_a_size_that_comes_back_gets_the_quickest_kernels_and_no_call_waits() -> None:
    module, x = perceptron(), f32(LATER, 96)
    with_plans(module)
    # Nobody has run it yet.
    assert module.plan_stats().quickened == 0 and WAITS in module.explain()
    with held():
        compiled, threads = supply.counters.compiled, threading.active_count()
        results = [module(x).tobytes() for _ in range(5)]
        assert (supply.counters.compiled, threading.active_count()) == (compiled, threads)
        assert module.plan_stats().quickened == 0 and WAITS in module.explain()
        before = functions(module, 1)
    settled()
    assert supply.counters.compiled > compiled
    assert module.plan_stats().quickened == 1 and "1 of them with quicker kernels" in str(module.plan_stats())
    assert DONE in module.explain() and WAITS not in module.explain()
    results += [module(x).tobytes() for _ in range(5)]
    # Those of a first plan for these sizes.
    ahead = perceptron("ahead")
    assert {ahead(x).tobytes(), *results} == {results[0]}
    assert functions(module, 1) == functions(ahead, 0) != before
    settled()
    assert module.plan_stats().quickened == 1 and module.plan_stats().made == 2


def test_calls_of_many_threads_while_plans_are_exchanged() -> None:
    module, x = perceptron(), f32(LATER, 96)
    with_plans(module)
    expected, found = module(x).tobytes(), set[bytes]()
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            found.add(module(x).tobytes())

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    settled()
    found.add(module(x).tobytes())
    is_over.set()
    for thread in threads:
        thread.join()
    assert found == {expected} and module.plan_stats().quickened == 1


def test_other_modes_and_first_plans_keep_what_they_have() -> None:
    ahead = perceptron("ahead")
    for rows in (FIRST, LATER, LATER):
        ahead(f32(rows, 96))
    module = perceptron()
    for _ in range(3):
        module(f32(FIRST, 96))
        settled()
    for each in (ahead, module):
        assert each.plan_stats().quickened == 0 and WAITS not in each.explain() and DONE not in each.explain()


def test_a_plan_that_is_gone_gets_nothing() -> None:
    module = perceptron()
    with_plans(module)
    with held():
        module(f32(LATER, 96))
        compiled = supply.counters.compiled
        del module
        gc.collect()
    settled()
    assert supply.counters.compiled == compiled


def test_where_the_quickest_cannot_be_had_the_first_plan_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = perceptron(), f32(LATER, 96)
    with_plans(module)

    def fail(*args: object) -> None:
        raise InternalError("no more code")

    with held():
        expected = module(x)
        monkeypatch.setattr(supply, "module", fail)
    settled()
    np.testing.assert_array_equal(module(x), expected)
    assert module.plan_stats().quickened == 0 and "cannot be had" in module.explain()


def test_plans_are_made_before_others_are_exchanged() -> None:
    module = perceptron()
    with_plans(module)
    with held():
        module(f32(LATER, 96))
        module(f32(17, 96))
        done: list[int] = []
        background.submit(lambda: done.append(module.plan_stats().quickened))
    settled()
    assert done == [0] and module.plan_stats().kept == 3 and module.plan_stats().quickened == 1
