"""Optimised modules through the public API: compiling, threads, warming up, given arrays, state, bad input."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.kernels import team as teams
from gpujit.runtime import executor
from gpujit.static_runtime import arrays, native_run, run
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, LimitError, ScriptRaised, ShapeError
from gpujit.testing import assert_same_values
from tests.models.speech import speech
from tests.programs import archive, forward, module
from tests.static_runtime.test_equal import SILERO, read_case

CORPUS = Path(__file__).parent / "models" / "corpus"
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def load(body: str, arguments: str = "x: Tensor", attributes: str = "", values: Any = None) -> gpujit.ScriptModule:
    result = "" if "->" in arguments else " -> Tensor"
    return gpujit.load(archive(module(forward(arguments + result, body), attributes), values or {}))


# A product, which NumPy or a template does, between groups; sums are kept as state.
LAYERS = "return torch.tanh(torch.matmul(torch.relu(x), self.w))"
STATE = """
self.calls = torch.add(self.calls, 1)
y = torch.add(torch.matmul(torch.relu(x), self.w), self.last)
if torch.gt(self.calls, 3):
  z = torch.mul(y, 0.5)
else:
  z = torch.neg(y)
_ = torch.add_(self.total, torch.sum(z))
self.last = torch.mean(z, [0], True)
_1 = torch.append(self.sizes, torch.size(x, 0))
if torch.gt(torch.size(x, 0), 50):
  ops.prim.RaiseException("too many rows")
return torch.tanh(z)
"""


def layers(**attributes: Any) -> gpujit.ScriptModule:
    return load(LAYERS, attributes="w : Tensor", values={"w": W, **attributes})


def stateful() -> gpujit.ScriptModule:
    values = {
        "w": W, "calls": 0, "last": np.zeros((1, 4), np.float32), "total": np.zeros((), np.float32), "sizes": [0],
        "training": False,
    }  # fmt: skip
    names = "w : Tensor\ncalls : int\nlast : Tensor\ntotal : Tensor\nsizes : List[int]\ntraining : bool"
    return load(STATE, attributes=names, values=values)


def state(m: gpujit.ScriptModule) -> list[Any]:
    return [m.calls, m.last.copy(), m.total.copy(), list(m.sizes)]


def assert_close(got: Any, wanted: Any) -> None:
    assert_same_values(got, wanted, "result", rtol=1e-5, atol=1e-6)


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": 0}, "threads is a number from 1 to 1024, or None; found int 0"),
        ({"threads": 5000}, "threads is a number from 1"),
        ({"threads": 2.0}, "found float 2.0"),
        ({"threads": True}, "found bool True"),
        ({"compile": "later"}, "compile is one of 'ahead', 'background', 'never'; found str 'later'"),
        ({"compile": None}, "compile is one of"),
        ({"strict": 1}, "strict is a bool; found int 1"),
        ({"example_inputs": X}, r"a tuple with a value for each argument, found float32\[3, 4\]; write \(x,\)"),
        ({"example_inputs": ()}, "missing value for argument 'x'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    plain = layers()
    with pytest.raises(ArgumentError, match=text):
        gpujit.optimize_for_inference(plain, **options)
    np.testing.assert_allclose(plain(X), np.tanh(np.maximum(X, 0) @ W), rtol=1e-5)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match="optimize_for_inference expects a ScriptModule"):
        gpujit.optimize_for_inference(lambda x: x)  # type: ignore[arg-type]


# When kernels compile -------------------------------------------------------------------------------------------------


def until_planned(m: gpujit.ScriptModule, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while m.plan_stats().pending:
        assert time.monotonic() < end, "no plan came"
        time.sleep(0.01)


def test_background_calls_are_interpreted_until_there_is_a_plan() -> None:
    wanted = layers()(X)
    fast = gpujit.optimize_for_inference(layers(), compile="background")
    hold, began = threading.Event(), threading.Event()
    run = fast._program.executor(fast._object.type.methods["forward"])
    prepare = run.prepare

    def slow(values: list[Any]) -> Any:
        began.set()
        assert hold.wait(60)
        return prepare(values)

    run.prepare = slow
    for _ in range(3):
        assert_close(fast(X), wanted)
    assert began.wait(60)
    stats = fast.plan_stats()
    assert (stats.pending, stats.interpreted, stats.kept) == (1, 3, 0)
    assert "runs on the interpreter while 1 plans are made" in fast.explain()
    hold.set()
    until_planned(fast)
    for _ in range(3):
        assert_close(fast(X), wanted)
    stats = fast.plan_stats()
    assert (stats.pending, stats.interpreted, stats.hits, stats.made) == (0, 3, 3, 1)
    assert "native" in fast.explain()


def test_background_modules_carry_their_state() -> None:
    plain, fast = stateful(), gpujit.optimize_for_inference(stateful(), compile="background")
    for k in range(120):
        assert_close(fast(X - k), plain(X - k))
        if k % 4 == 3:
            until_planned(fast)
    assert_close(state(fast), state(plain))
    # Once plans read what changed too often, one serves all calls.
    assert fast.plan_stats().hits > 60


def test_background_faults_leave_calls_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = gpujit.optimize_for_inference(layers(), compile="background")
    run = fast._program.executor(fast._object.type.methods["forward"])
    tries: list[int] = []

    def fail(values: Any) -> Any:
        tries.append(1)
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(run, "prepare", fail)
    for _ in range(6):
        assert_close(fast(X), layers()(X))
        until_planned(fast)
    assert len(tries) == executor.MAX_TRIES
    assert "runs on the interpreter: RuntimeError: dictionary changed size" in fast.explain()
    run.strict = True
    with pytest.raises(gpujit.GpujitError, match="dictionary changed size"):
        fast(X)


def test_background_from_many_threads_at_once() -> None:
    fast = gpujit.optimize_for_inference(layers(), compile="background")
    inputs = [X[: 1 + k % 3] + k for k in range(8)]
    wanted = [layers()(x) for x in inputs]
    faults: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(100):
                assert_close(fast(inputs[k]), wanted[k])
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until_planned(fast)
    assert not faults, faults[0]
    assert fast.plan_stats().made == 3


LEAVING = """
import sys
import numpy as np
import gpujit
fast = gpujit.optimize_for_inference(gpujit.load("examples/classifier.pt"), compile="background")
for n in range(1, 12):
    fast(np.ones((1, 3, 20 + n, 20 + n), np.float32))
print(fast.plan_stats().pending > 8, flush=True)
"""


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"GPUJIT_CACHE_DIR": str(cache)}


def test_background_threads_do_not_outlive_the_program(tmp_path: Path) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=120, env=environment(tmp_path)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert time.monotonic() - start < 60


NEVER = """
import sys, warnings
import numpy as np
import gpujit
warnings.simplefilter("error")
plain = gpujit.load("examples/classifier.pt")
x = np.linspace(-1, 1, 2 * 3 * 16 * 16, dtype=np.float32).reshape(2, 3, 16, 16)
if sys.argv[1] == "fill":
    gpujit.optimize_for_inference(plain, example_inputs=[x])
else:
    wanted = plain(x)["scores"]
    fast = gpujit.optimize_for_inference(plain, compile="never")
    for _ in range(4):
        np.testing.assert_allclose(fast(x)["scores"], wanted, atol=1e-6)
    fast.warmup([x])
    from gpujit.kernels import supply
    found = supply.counters
    print(found.compiled, found.loaded > 0, fast.plan_stats().interpreted, "native" in fast.explain())
"""


def test_never_runs_numpy_until_kernels_are_at_hand(tmp_path: Path) -> None:
    def run(what: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", NEVER, what], capture_output=True, text=True, timeout=120, env=environment(tmp_path)
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout

    assert run("try") == "0 False 0 False\n"
    run("fill")
    assert run("try") == "0 True 0 True\n"


# Threads --------------------------------------------------------------------------------------------------------------


def large() -> tuple[gpujit.ScriptModule, np.ndarray]:
    """A module with a step that is worth a team, and its input."""
    return load("return torch.softmax(torch.mul(x, 2.), -1)"), np.random.default_rng(0).random((700, 700), np.float32)


def test_threads_are_the_modules_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, x = large()
    sizes: list[int] = []

    def team() -> teams.Team:
        found = teams.team()
        sizes.append(found.size)
        return found

    monkeypatch.setattr(native_run, "team", team)
    wanted = plain(x)
    ones, threes = (gpujit.optimize_for_inference(plain, threads=n) for n in (1, 3))
    for fast, n in ((ones, 1), (threes, 3), (ones, 1), (threes, 3)):
        sizes.clear()
        with config(threads=2):
            assert_close(fast(x), wanted)
            assert config.threads == 2
        assert sizes and set(sizes) == {n}
    with config(threads=1):
        one = teams.team()
    with config(threads=3):
        three = teams.team()
    assert (one.size, three.size) == (1, 3)
    assert_close(ones(x), wanted)
    with config(threads=1):
        assert teams.team() is one


def test_a_process_keeps_few_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teams, "_teams", {})
    fast, x = large()
    fast = gpujit.optimize_for_inference(fast)
    wanted = fast(x)
    for threads in range(1, teams.MAX_TEAMS + 4):
        with config(threads=threads):
            assert_close(fast(x), wanted)
    assert list(teams._teams) == list(range(4, teams.MAX_TEAMS + 4))
    for team in teams._teams.values():
        team.close()


# Warming up -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [X, (3, 4), [3, 4], (X,), ((3, 4),), [[3, 4]], ((3, 4), "float32"), {"x": X}, {"x": (3, 4)}, (((3, 4), "f4"),)],
    ids=range(10),
)
def test_a_warm_module_makes_no_plan(entry: Any) -> None:
    fast = gpujit.optimize_for_inference(layers())
    if type(entry) is tuple and entry[1:] == ("float32",):
        # As a tuple for all arguments it has one too many.
        with pytest.raises(ArgumentError, match="entry 0: 2 values for 1 arguments"):
            fast.warmup([entry])
        return
    stats = fast.warmup([entry])
    assert stats.made == 1 and stats == fast.plan_stats() == fast.forward.plan_stats()
    with config(disable=("compile",)):
        assert_close(fast(X), layers()(X))
    assert fast.plan_stats().made == 1 and fast.plan_stats().interpreted == 0


def test_warming_up_leaves_state_inputs_and_random_numbers_alone() -> None:
    plain, fast = stateful(), gpujit.optimize_for_inference(stateful())
    before = state(fast)
    last, sizes = fast._object.get("last"), fast._object.get("sizes")
    stats = fast.warmup([X, (2, 4)])
    assert_close(state(fast), before)
    assert fast._object.get("last") is last and fast._object.get("sizes") is sizes
    # Plans for later calls, when the count of calls is no longer assumed, are there too.
    assert stats.made > 3
    for k in range(10):
        x = X - k if k % 3 else X[:2] + k
        assert_close(fast(x), plain(x))
    assert_close(state(fast), state(plain))

    noisy = load("return torch.add_(x, torch.rand_like(x))")
    fast = gpujit.optimize_for_inference(noisy)
    gpujit.manual_seed(5)
    first = noisy(np.zeros(4, np.float32))
    gpujit.manual_seed(5)
    x = np.zeros(4, np.float32)
    fast.warmup([x])
    assert (x == 0).all()
    np.testing.assert_array_equal(fast(x), first)


def test_example_inputs_change_nothing() -> None:
    for compile in ("ahead", "background", "never"):
        fast = gpujit.optimize_for_inference(stateful(), example_inputs=[X], compile=compile)
        assert_close(state(fast), state(stateful()))
        until_planned(fast)
        assert fast.plan_stats().made > 0
        made = fast.plan_stats().made
        fast(X)
        assert compile == "background" or fast.plan_stats().made == made


def test_inputs_that_cannot_be_told_apart_are_interpreted_with_the_reason() -> None:
    fast = gpujit.optimize_for_inference(layers())
    run = fast._program.executor(fast._object.type.methods["forward"])
    run.interpret = lambda values: "interpreted"
    assert run([fast._object, {1, 2}]) == "interpreted"
    assert "its inputs cannot be told apart: unhashable type: 'set'" in fast.explain()
    run.strict = True
    with pytest.raises(ArgumentError, match="cannot be told apart"):
        run([fast._object, {1, 2}])


def test_warming_up_in_the_background_mode_is_done_at_once() -> None:
    fast = gpujit.optimize_for_inference(layers(), compile="background")
    stats = fast.warmup([X, X[:2]])
    assert (stats.made, stats.pending, stats.interpreted) == (2, 0, 0)
    fast(X[:1])
    assert fast.plan_stats().pending + fast.plan_stats().made == 3


def test_warming_up_with_all_kinds_of_arguments() -> None:
    body = "y = torch.mul(x, n)\nif flag:\n  y = torch.neg(y)\nreturn torch.add(y, torch.cat(xs, 0))"
    fast = gpujit.optimize_for_inference(load(body, "x: Tensor, n: int, xs: List[Tensor], flag: bool=False"))
    fast.warmup([((4, 4), 2, [(1, 4), X]), {"x": ((4, 4), "int64"), "n": 3, "xs": [(4, 4)], "flag": True}])
    assert fast.plan_stats().made == 2
    fast(np.ones((4, 4), np.float32), 2, [X[:1], X])
    fast(np.ones((4, 4), np.int64), 3, [np.ones((4, 4), np.float32)], flag=True)
    assert fast.plan_stats().made == 2


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (X, r"a list with an entry for each kind of inputs, found float32\[3, 4\]"),
        ([((3, -1),)], r"entry 0: \[3, -1\] is no shape"),
        ([X, (((3, 4), "float99"),)], "entry 1: 'float99' is no dtype"),
        ([(((3, 4), "M8[s]"),)], r"entry 0: tensors cannot have the dtype datetime64\[s\]"),
        ([(X, X)], "entry 0: 2 values for 1 arguments"),
        ([{"y": X}], "missing value for argument 'x'"),
        ([("x",)], "but found str 'x'"),
        ([3], "but found int 3"),
    ],
)
def test_entries_are_checked(inputs: Any, text: str) -> None:
    fast = gpujit.optimize_for_inference(layers())
    with pytest.raises(ArgumentError, match=text):
        fast.warmup(inputs)
    assert_close(fast(X), layers()(X))


def test_what_a_call_raises_while_warming_up_is_raised_and_undone() -> None:
    fast = gpujit.optimize_for_inference(stateful())
    before = state(fast)
    with pytest.raises(ScriptRaised, match="too many rows"):
        fast.warmup([(60, 4)])
    assert_close(state(fast), before)


def test_plain_modules_cannot_be_warmed_up() -> None:
    with pytest.raises(ArgumentError, match=r"call gpujit\.optimize_for_inference"):
        layers().warmup([X])
    assert layers().plan_stats() == layers().forward.plan_stats()
    assert "0 plans" in str(layers().plan_stats())


def test_other_methods_have_plans_and_counts_of_their_own() -> None:
    text = module(forward("x: Tensor", "return torch.relu(x)")) + (
        "  def twice(self, x: Tensor, out: int=0) -> Tensor:\n    return torch.mul(torch.add(x, x), out)\n"
    )
    fast = gpujit.optimize_for_inference(gpujit.load(archive(text)), ["twice"])
    fast.twice.warmup([{"x": (3, 4), "out": 2}])
    assert fast.twice.plan_stats().made == 1 and fast.forward.plan_stats().made == 0
    # Its own argument of that name.
    assert_close(fast.twice(X, out=2), X * 4)
    assert (fast.twice.plan_stats().hits, fast.plan_stats().hits) == (2, 2) or fast.twice.plan_stats().hits == 1


# Given arrays ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["plain", "planned", "background"])
def make(request: pytest.FixtureRequest) -> Callable[[gpujit.ScriptModule], gpujit.ScriptModule]:
    if request.param == "plain":
        return lambda m: m
    return lambda m: gpujit.optimize_for_inference(m, compile="ahead" if request.param == "planned" else "background")


def test_results_go_into_given_arrays(make: Any) -> None:
    m, wanted = make(layers()), np.tanh(np.maximum(X, 0) @ W)
    out = np.empty((3, 4), np.float32)
    for call in (m, m.forward):
        for target in (out, (out,), [out]):
            out[...] = np.nan
            assert call(X, out=target) is out
            assert_close(out, wanted)
    strided = np.empty((4, 9), np.float32)[:, ::3].T
    assert m(X, out=strided) is strided
    assert_close(strided, wanted)


def test_given_arrays_may_overlap_inputs_weights_and_results(make: Any) -> None:
    m = make(load("y = torch.tanh(torch.matmul(x, self.w))\nreturn (y, torch.t(x), y)",
                  "x: Tensor -> Tuple[Tensor, Tensor, Tensor]", "w : Tensor", {"w": W}))  # fmt: skip
    for _ in range(3):
        x = np.ascontiguousarray(np.vstack([X, X[:1]]))
        before, y = x.copy(), np.tanh(x @ W)
        other = np.empty((4, 4), np.float32)
        found = m(x, out=(x, other, None))
        assert found[0] is x and found[1] is other
        assert_close(list(found), [y, before.T, y])
        buffer = np.zeros((6, 4), np.float32)
        x = buffer[:4]
        x[...] = before
        found = m(x, out=(buffer[2:], None, None))
        assert_close(found[0], y)
        # One memory for two results: the later one is there.
        twice = np.empty((4, 4), np.float32)
        m(before, out=(twice, twice, None))
        assert_close(twice, before.T)


def test_given_arrays_that_do_not_fit_are_refused_and_the_module_is_usable(make: Any) -> None:
    m = make(layers())
    for out, text in (
        (np.empty((3, 4)), r"out\[0\] is float64\[3, 4\], the output is float32\[3, 4\]"),
        (np.empty((4, 3), np.float32), r"out\[0\] is float32\[4, 3\], the output is float32\[3, 4\]"),
        ((np.empty(3), None), "out has 2 arrays for 1 outputs"),
        ("x", "out is a str 'x'"),
        ([3], r"out\[0\] is a int 3"),
    ):
        with pytest.raises(ArgumentError, match=text):
            m(X, out=out)
        assert_close(m(X), layers()(X))


def test_a_given_array_that_does_not_fit_stops_a_plan_before_it_runs() -> None:
    fast = gpujit.optimize_for_inference(stateful())
    fast.warmup([X])
    before = state(fast)
    with pytest.raises(ArgumentError, match=r"out\[0\] is float32\[2, 2\]"):
        fast(X, out=np.empty((2, 2), np.float32))
    assert_close(state(fast), before)


def test_results_that_become_state_are_not_the_callers_arrays(make: Any) -> None:
    m = make(load("y = torch.add(self.last, x)\nself.last = y\nreturn y", attributes="last : Tensor",
                  values={"last": np.zeros((3, 4), np.float32)}))  # fmt: skip
    out = np.empty((3, 4), np.float32)
    for k in range(5):
        assert_close(m(X, out=out), X * (k + 1))
        out[...] = np.nan
    assert_close(m.last, X * 5)


def test_results_pass_hooks_before_they_are_written(make: Any) -> None:
    source = module(forward("x: Tensor", "return torch.relu(x)")).replace(
        "class M(Module):\n", 'class M(Module):\n  __forward_hooks__ = ["after", ]\n'
    )
    source += (
        "  def after(self, inputs: Tuple[Tensor], result: Tensor) -> Tensor:\n    return torch.add(result, inputs[0])\n"
    )
    m = gpujit.load(archive(source))
    if not m._object.type.forward_hooks:
        pytest.skip("this archive has no hooks")
    m = make(m)
    out = np.empty_like(X)
    assert m(X, out=out) is out
    assert_close(out, np.maximum(X, 0) + X)


# State and errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", ["ahead", "background", "never"])
def test_a_hundred_calls_with_state_equal_the_interpreters(compile: str) -> None:
    plain, fast = stateful(), gpujit.optimize_for_inference(stateful(), compile=compile)
    kinds = [X, X[:2], X, X[:1]]
    for k in range(100):
        x = kinds[k // 25] + np.float32(k % 7)
        assert_close(fast(x), plain(x))
        assert_close(state(fast), state(plain))


def test_lists_and_caches_that_grow_do_not_need_a_plan_for_each_call() -> None:
    body = """
    k = torch.cat([self.k, x], 0)
    self.k = k
    _ = torch.append(self.sizes, torch.size(k, 0))
    self.text = torch.add(self.text, "x")
    return torch.matmul(torch.softmax(torch.matmul(x, torch.t(k)), -1), k)
    """

    def made() -> gpujit.ScriptModule:
        values = {"k": np.zeros((1, 4), np.float32), "sizes": [0], "text": ""}
        return load(body, attributes="k : Tensor\nsizes : List[int]\ntext : str", values=values)

    plain, fast = made(), gpujit.optimize_for_inference(made())
    for k in range(60):
        x = X[:1] * np.float32(0.1) + np.float32(k % 5)
        assert_close(fast(x), plain(x))
    assert (fast.text, list(fast.sizes)) == (plain.text, list(plain.sizes))
    assert_close(fast.k, plain.k)
    assert fast.plan_stats().made < 20 and fast.plan_stats().interpreted == 0


def test_lists_that_become_one_are_seen_as_one() -> None:
    body = "_ = torch.append(self.a, 1)\nreturn torch.len(self.b)"
    text = module(forward("x: Tensor -> int", body), "a : List[int]\nb : List[int]")
    text += "  def tie(self) -> NoneType:\n    self.b = self.a\n"
    text += "  def cut(self) -> NoneType:\n    self.a = [1]\n    self.b = [1]\n"
    plain = gpujit.load(archive(text, {"a": [1], "b": [1]}))
    fast = gpujit.optimize_for_inference(gpujit.load(archive(text, {"a": [1], "b": [1]})), ["tie", "cut"])
    for _ in range(3):
        for m in (plain, fast):
            m.cut()
            apart = m(X)
            m.cut()
            m.tie()
            assert (apart, m(X)) == (1, 2)


def test_what_a_model_raises_leaves_state_as_the_interpreter_does() -> None:
    plain, fast = stateful(), gpujit.optimize_for_inference(stateful())
    many = np.ones((60, 4), np.float32)
    for k in range(12):
        for m in (plain, fast):
            if k % 3 == 1:
                with pytest.raises(ScriptRaised, match="too many rows"):
                    m(many)
                m.last = np.zeros((1, 4), np.float32)
        assert_close(fast(X + k), plain(X + k))
        assert_close(state(fast), state(plain))


def test_the_same_answer_at_calls_1_and_100() -> None:
    for name in ("mlp", "lstm_script", "resnet_script", "interface_state"):
        path = CORPUS / f"{name}.pt"
        plain = gpujit.load(path).eval()
        inputs = read_case(path)
        fast = gpujit.optimize_for_inference(gpujit.load(path))
        for number in range(1, 101):
            # Some have state, and give another answer each time.
            result, wanted = fast(*inputs), plain(*inputs)
            assert_same_values(result, wanted, f"{name}, call {number}", rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not SILERO.exists(), reason="silero_vad.jit is not there; ci/fetch_models.sh gets it")
@pytest.mark.parametrize("compile", ["ahead", "background"])
def test_a_voice_detector_carries_its_state(compile: str) -> None:
    plain = gpujit.load(SILERO)
    fast = gpujit.optimize_for_inference(gpujit.load(SILERO), ["reset_states"], compile=compile)
    before = fast._state.copy()
    fast.warmup([((1, 512), 16000), ((1, 256), 8000)])
    np.testing.assert_array_equal(fast._state, before)
    for rate, size in ((16000, 512), (8000, 256), (16000, 512)):
        plain.reset_states()
        fast.reset_states()
        audio = speech(rate, 2)[None]
        pairs = [
            (fast(audio[:, i : i + size], rate), plain(audio[:, i : i + size], rate))
            for i in range(0, audio.shape[1] - size + 1, size)
        ]
        for got, wanted in pairs:
            np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=0)
        np.testing.assert_allclose(fast._state, plain._state, atol=1e-3, rtol=1e-4)


# Bad input ------------------------------------------------------------------------------------------------------------


def memory_orders(x: np.ndarray) -> Iterator[np.ndarray]:
    """The same numbers, lying otherwise."""
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    yield np.repeat(x, 3, 1)[:, ::3]
    yield np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    yield x.astype(x.dtype.newbyteorder())
    fixed = x.copy()
    fixed.flags.writeable = False
    yield fixed
    record = np.zeros(x.shape, [("a", "u1"), ("b", x.dtype)])
    record["b"] = x
    yield record["b"]


def test_any_layout_gives_the_same_answer() -> None:
    plain, fast = layers(), gpujit.optimize_for_inference(layers())
    for dtype in (np.float32, np.float64):
        m = plain if dtype is np.float32 else None
        x = X.astype(dtype)
        for y in (x, *memory_orders(x), x, *memory_orders(x)):
            before = y.copy()
            if m is None:
                with pytest.raises(gpujit.OpError):
                    fast(y)
            else:
                assert_close(fast(y), m(x))
            np.testing.assert_array_equal(y, before)
    rows = np.broadcast_to(X[:1], (3, 4))
    assert_close(fast(rows), plain(np.ascontiguousarray(rows)))


def test_any_shape_and_dtype_gives_the_interpreters_answer_or_error() -> None:
    body = "y = torch.relu(torch.add(x, 1))\nreturn torch.sum(torch.mul(y, x), -1)"
    plain, fast = load(body), gpujit.optimize_for_inference(load(body))
    rng = np.random.default_rng(1)
    shapes = [(3, 4), (4,), (), (0,), (3, 0), (0, 4), (1, 1), (2, 3, 4), (1,) * 9]
    dtypes = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "?", "c8", "c16"]
    for _ in range(2):
        for shape in shapes:
            for dtype in dtypes:
                x = (rng.standard_normal(shape) * 4).astype(dtype)
                outcome = []
                for m in (plain, fast):
                    try:
                        outcome.append(m(x))
                    except gpujit.GpujitError as fault:
                        outcome.append((type(fault), fault.message))
                if isinstance(outcome[0], tuple):
                    assert outcome[1] == outcome[0]
                else:
                    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == "f2" else {"rtol": 1e-5, "atol": 1e-5}
                    assert_same_values(outcome[1], outcome[0], f"{dtype}{shape}", **tolerance)


@pytest.mark.parametrize(
    "bad",
    ["x", None, 3, [1.0, 2.0], X.astype(object), np.array(["a"]), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f4")]),
     object(), lambda: X],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_wrong_types_are_refused(bad: Any) -> None:
    fast = gpujit.optimize_for_inference(layers())
    for _ in range(2):
        with pytest.raises(ArgumentError, match="argument 'x'"):
            fast(bad)
    assert fast.plan_stats().made == 0
    assert_close(fast(X), layers()(X))


def test_arrays_on_a_gpu_are_refused() -> None:
    class Elsewhere:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (3, 4), "typestr": "<f4", "data": (0, False), "version": 3}

    with pytest.raises(ArgumentError, match="an array on a GPU"):
        gpujit.optimize_for_inference(layers())(Elsewhere())


def test_inputs_that_overlap_and_are_written() -> None:
    body = "z = torch.add_(x, 1.)\nreturn torch.add(torch.mul(x, 2.), torch.relu(y))"
    plain, fast = (f(load(body, "x: Tensor, y: Tensor")) for f in (lambda m: m, gpujit.optimize_for_inference))
    for start in (0, 2, 5, 6):
        results = []
        for m in (plain, fast, fast):
            memory = np.arange(12, dtype=np.float32)
            results.append((m(memory[:6].reshape(2, 3), memory[start : start + 6].reshape(2, 3)), memory))
        for found in results[1:]:
            assert_close(list(found), list(results[0]))


def test_inputs_that_cannot_be_written_raise_and_stay() -> None:
    plain = load("return torch.relu(torch.add_(x, 1.))")
    fast = gpujit.optimize_for_inference(plain)
    fixed = X.copy()
    fixed.flags.writeable = False
    for m in (plain, fast, fast):
        with pytest.raises(gpujit.GpujitError, match="read-only"):
            m(fixed)
        np.testing.assert_array_equal(fixed, X)
        rows = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
        with pytest.raises(ShapeError, match="share memory"):
            m(rows)
        assert not rows.any()
        assert_close(m(X.copy()), np.maximum(X + 1, 0))


def test_no_memory_is_an_error_with_the_arenas_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> gpujit.ScriptModule:
        body = "y = torch.matmul(torch.relu(x), self.w)\nreturn torch.softmax(torch.matmul(y, self.v), -1)"
        values = {"w": np.eye(64, dtype=np.float32), "v": np.ones((64, 8), np.float32)}
        return gpujit.optimize_for_inference(load(body, attributes="w : Tensor\nv : Tensor", values=values))

    fast = made()
    x = np.ones((100, 64), np.float32)
    real = np.empty

    def without(least: int, most: int = 1 << 60) -> Any:
        def empty(shape: Any, *more: Any, **named: Any) -> np.ndarray:
            if isinstance(shape, int) and least <= shape <= most:
                raise MemoryError
            return real(shape, *more, **named)

        return empty

    with monkeypatch.context() as patch:
        patch.setattr(run.np, "empty", without(x.nbytes))
        for _ in range(2):
            with pytest.raises(LimitError, match=r"no memory for an arena of \d+ bytes"):
                fast(x)
    wanted = fast(x)
    (plan,) = fast._program.executor(fast._object.type.methods["forward"]).plans()
    assert plan.runner.memory().arena >= x.nbytes
    # The arena is there; results are not.
    fast = made()
    size = wanted.nbytes + arrays.ALIGN
    with monkeypatch.context() as patch:
        patch.setattr(run.np, "empty", without(size, size))
        for _ in range(2):
            with pytest.raises(gpujit.GpujitError, match="memory"):
                fast(x)
        # This runtime was made while there was no memory; others are free to be.
        fast.plan_stats()
    assert_close(made()(x), wanted)


def test_plans_used_least_recently_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MAX_PLANS", 4)
    plain, fast = layers(), gpujit.optimize_for_inference(layers())
    ones = np.ones((20, 4), np.float32)
    for n in range(1, 12):
        assert_close(fast(ones[:n]), plain(ones[:n]))
        assert_close(fast(X), plain(X))
    stats = fast.plan_stats()
    assert (stats.kept, stats.dropped) == (4, stats.made - 4)
    # The plan of X was used all the time; three rows have it as well.
    assert stats.made == 11
    # Inputs without a plan are not remembered without end either.
    bad = fast._program.executor(fast._object.type.methods["forward"])
    monkeypatch.setattr(bad, "prepare", lambda values: (_ for _ in ()).throw(ArgumentError("no plan")))
    for n in range(12, 20):
        fast(ones[:n])
    assert len(bad._entries) == 4


@pytest.mark.slow
def test_memory_stays_over_500_sizes() -> None:
    fast = gpujit.optimize_for_inference(load("return torch.softmax(torch.mul(torch.relu(x), 2.), -1)"))

    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    sizes = [(100 + k, 500 + 3 * k) for k in range(500)]
    at: list[int] = []
    for k, size in enumerate(sizes):
        fast(np.ones(size, np.float32))
        if k in (150, 499):
            at.append(resident())
    assert at[1] - at[0] < 32 << 20
    assert fast.plan_stats().kept == executor.MAX_PLANS


# Reports --------------------------------------------------------------------------------------------------------------


def test_explain_says_what_runs_each_node_and_why() -> None:
    body = """
    y = torch.relu(torch.matmul(x, self.w))
    z = torch.cumsum(torch.t(y), 0)
    a, b = torch.sort(z, 0)
    if torch.gt(torch.item(torch.sum(b)), 100000.):
      c = torch.neg(a)
    else:
      c = a
    return c
    """
    fast = gpujit.optimize_for_inference(load(body, attributes="w : Tensor", values={"w": W}))
    for _ in range(2):
        fast(X)
    lines = fast.explain().splitlines()

    def line(text: str) -> str:
        (found,) = [s for s in lines if text in s and s.split()[0] not in ("not", "group")]
        return found

    assert "group 0: relu" in fast.explain()
    assert line("aten::sort").startswith("numpy") and line("aten::sort").count(": ") >= 1
    assert line("prim::If").startswith("control")
    assert line("matmul").startswith("native template") and ".py:" in line("matmul")
    # Without planned memory the interpreter runs the plan.
    with config(disable=("static",)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(X[:2])
    last = fast.explain().split("\n\n")[-1]
    assert "fused kernel" in last and "numpy           aten::sort" in last


def test_optimising_again_takes_the_new_options() -> None:
    frozen = gpujit.freeze(layers())
    gpujit.optimize_for_inference(frozen, example_inputs=(X,))
    assert frozen.plan_stats().made == 1
    again = gpujit.optimize_for_inference(frozen, compile="background", threads=1)
    assert again is frozen and frozen.plan_stats().made == 0
    frozen(X)
    assert frozen.plan_stats().interpreted == 1
    until_planned(frozen)
