"""StaticModule and StaticRuntime: modules and graphs, arenas apart, results kept, times and memory, bad input."""

from __future__ import annotations

import gc
import textwrap
import threading
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit import StaticModule, StaticModuleOptions, StaticRuntime
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.support.errors import ArgumentError, LimitError
from gpujit.testing import assert_same_values, resolve_node
from tests.programs import archive, forward, module
from tests.static_runtime.help import CORPUS, f32, read_case
from tests.test_inference import LAYERS, X, layers, load, state, stateful

GRAPH = """
    graph(%x : Tensor, %w : Tensor, %n : int):
      %1 : Tensor = aten::mm(%x, %w)
      %2 : Tensor = aten::relu(%1)
      %3 : Tensor = aten::mm(%2, %w)
      %4 : Tensor = aten::mul(%3, %n)
      return (%4)"""
WEIGHT = f32(16, 16, seed=1) / 4


def graph() -> Graph:
    return parse_graph(textwrap.dedent(GRAPH).strip(), resolve=resolve_node)


def of_graph(x: np.ndarray, n: int = 2) -> np.ndarray:
    return np.maximum(x @ WEIGHT, 0) @ WEIGHT * n


def assert_close(got: Any, wanted: Any) -> None:
    assert_same_values(got, wanted, "result", rtol=1e-4, atol=1e-5)


# Running --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "containers", "lstm_script", "interface_state"])
def test_modules_give_what_the_interpreter_does(name: str) -> None:
    path = CORPUS / f"{name}.pt"
    plain, given, inputs = gpujit.load(path).eval(), gpujit.load(path).train(), read_case(path)
    modes = [m.training for m in given.modules() if "training" in dir(m)]
    static = StaticModule(given)
    # The module given stays as it was.
    assert [m.training for m in given.modules() if "training" in dir(m)] == modes
    runtime = static.runtime()
    for run in (static, static, runtime, lambda *a: static.run(a), lambda *a: runtime.run(a), runtime):
        assert_close(run(*inputs), plain(*inputs))
    assert static.plan_stats().interpreted == 0


def test_graphs_are_planned_for_the_inputs_they_meet() -> None:
    given = graph()
    static = StaticModule(given)
    before = str(given)
    for x in (f32(8, 16), f32(3, 16), f32(8, 16, seed=4), np.asfortranarray(f32(8, 16))):
        assert_close(static(x, WEIGHT, 2), of_graph(x))
        assert_close(static(x, w=WEIGHT, n=3), of_graph(x, 3))
        assert_close(static.run((x,), {"w": WEIGHT, "n": 2}), of_graph(x))
    assert str(given) == before == str(static.graph)
    assert static.plan_stats().made == 4
    # What is done to the graph later does not matter.
    given.add_output(given.inputs[0])
    assert_close(static(f32(7, 16), WEIGHT, 2), of_graph(f32(7, 16)))
    out = np.empty((8, 16), np.float32)
    assert static(f32(8, 16), WEIGHT, 2, out=out) is out
    assert_close(out, of_graph(f32(8, 16)))
    assert static.warmup([(f32(5, 16), WEIGHT, 2)]).made == 6


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X,), {}, "missing a value for input 'w'"),
        ((X, WEIGHT, 2, 3), {}, "expected 3 inputs but received 4"),
        ((X, WEIGHT), {"w": X, "n": 1}, "got input 'w' twice"),
        ((X, WEIGHT), {"m": 1}, "got input 'm' of no use"),
        ((X, WEIGHT, "x"), {}, "input 'n' of the graph is of type int; found str 'x'"),
        (("x", WEIGHT, 1), {}, "input 'x' of the graph is of type Tensor; found str 'x'"),
    ],
)
def test_inputs_of_graphs_are_checked(args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        StaticModule(graph())(*args, **kwargs)


def hooked() -> gpujit.ScriptModule:
    m = layers()
    m._object.type.forward_hooks = ("forward",)
    return m


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: StaticModule(None), "expects a ScriptModule, such as gpujit.load returns, or a graph; found NoneType"),
        (lambda: StaticModule(layers(), {}), "options are StaticModuleOptions; found dict"),
        (lambda: StaticModule(layers(), StaticModuleOptions(threads=0)), "threads is a number from 1"),
        (lambda: StaticModule(layers(), StaticModuleOptions(compile="now")), "compile is one of"),
        (lambda: StaticModule(hooked()), "runs forward alone, and .* has hooks around it: forward"),
        (lambda: StaticRuntime(layers()), "StaticRuntime expects a StaticModule"),
        (lambda: StaticModule(graph()).memory_report(), "there is no plan of memory for graph: it was not run yet"),
        (lambda: StaticModule(layers()).benchmark((X,), main_runs=0), "give at least 0 and 1"),
        (lambda: StaticModule(layers()).runtime().benchmark((X,), warmup_runs=-1), "give at least 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


@pytest.mark.parametrize(
    "options",
    [
        StaticModuleOptions(enable_out_variant=False),
        StaticModuleOptions(optimize_memory=False, reuse_operands=False, out_bytes=0),
        StaticModuleOptions(manage_output_tensors=True),
        StaticModuleOptions(threads=1, strict=True),
        StaticModuleOptions(compile="background"),
        StaticModuleOptions(compile="never"),
    ],
    ids=str,
)
def test_all_options_give_the_same_answers(options: StaticModuleOptions) -> None:
    plain, static = stateful(), StaticModule(stateful(), options)
    runtime = static.runtime()
    for k in range(20):
        run = runtime if k % 2 else static
        assert_close(run(X - k), plain(X - k))
    assert_close(state(gpujit.ScriptModule(static._target.object, static._target._program)), state(plain))


def test_memory_is_shared_as_the_options_say() -> None:
    x = f32(64, 16)
    sizes = {}
    more = "%4 : Tensor = aten::mm(%3, %w)\n  %5 : Tensor = aten::mm(%4, %w)\n  %6 : Tensor = aten::mul(%5, %n)\n"
    deep = textwrap.dedent(GRAPH).strip().replace("%4 : Tensor = aten::mul(%3, %n)\n", more).replace("(%4)", "(%6)")
    for shares in (True, False):
        options = StaticModuleOptions(optimize_memory=shares, reuse_operands=shares, out_bytes=0)
        static = StaticModule(parse_graph(deep, resolve=resolve_node), options)
        assert_close(static(x, WEIGHT, 2), (np.maximum(x @ WEIGHT, 0) @ WEIGHT @ WEIGHT @ WEIGHT) * 2)
        sizes[shares] = static.memory_report()
    assert sizes[True].arena < sizes[False].arena == sizes[False].separate


# Runtimes -------------------------------------------------------------------------------------------------------------


def test_runtimes_have_arenas_of_their_own() -> None:
    static = StaticModule(graph(), StaticModuleOptions(out_bytes=0))
    runtimes = [static.runtime() for _ in range(3)]
    inputs = [f32(8, 16, seed=k) for k in range(3)]
    faults: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(50):
                assert_close(runtimes[k](inputs[k], WEIGHT, 2), of_graph(inputs[k]))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    arenas = [next(iter(r._arenas.values())) for r in runtimes]
    assert len({id(a) for a in arenas}) == 3
    gone = weakref.ref(arenas[0])
    del arenas
    runtimes[0].release()
    gc.collect()
    assert gone() is None
    assert_close(runtimes[0](inputs[0], WEIGHT, 2), of_graph(inputs[0]))


def test_a_runtime_runs_one_call_at_a_time() -> None:
    runtime = StaticModule(graph()).runtime()
    with runtime._lock, pytest.raises(LimitError, match="one call at a time"):
        runtime(f32(8, 16), WEIGHT, 2)
    assert_close(runtime(f32(8, 16), WEIGHT, 2), of_graph(f32(8, 16)))


def test_results_may_be_kept_by_the_runtime() -> None:
    static = StaticModule(graph(), StaticModuleOptions(manage_output_tensors=True))
    runtime, x = static.runtime(), f32(8, 16)
    first = runtime(x, WEIGHT, 2)
    kept = first.copy()
    second = runtime(x + 1, WEIGHT, 2)
    assert second is first and not np.allclose(kept, second)
    assert_close(second, of_graph(x + 1))
    # Other inputs have other arrays; the caller's own are used when they are given.
    other = runtime(x[:3], WEIGHT, 2)
    assert not np.shares_memory(other, second)
    out = np.empty_like(kept)
    assert runtime(x, WEIGHT, 2, out=out) is out and not np.shares_memory(out, first)
    assert_close(first, of_graph(x + 1))
    # A module makes new ones: many threads may run it.
    assert static(x, WEIGHT, 2) is not static(x, WEIGHT, 2)
    # State is never the runtime's array.
    body = "y = torch.add(self.last, x)\nself.last = y\nreturn y"
    m = load(body, attributes="last : Tensor", values={"last": np.zeros((3, 4), np.float32)})
    runtime = StaticModule(m, StaticModuleOptions(manage_output_tensors=True)).runtime()
    for k in range(1, 6):
        result = runtime(X)
        assert_close(result, X * k)
        result[...] = np.nan


def test_an_error_leaves_a_runtime_usable() -> None:
    body = "if torch.gt(torch.item(torch.sum(x)), 100.):\n  ops.prim.RaiseException('too much')\n" + LAYERS
    m = load(body, attributes="w : Tensor", values={"w": np.eye(4, dtype=np.float32)})
    runtime = StaticModule(m, StaticModuleOptions(out_bytes=0)).runtime()
    wanted = np.tanh(np.maximum(X, 0))
    for _ in range(3):
        with pytest.raises(gpujit.Error, match="too much"):
            runtime(X + 100)
        assert_close(runtime(X), wanted)
        with pytest.raises(gpujit.GpujitError):
            runtime(np.ones((3, 5), np.float32))
        assert_close(runtime(X), wanted)


# Reports --------------------------------------------------------------------------------------------------------------


def test_benchmarks_time_runs_and_nodes_and_undo_what_they_write() -> None:
    static = StaticModule(stateful())
    before = state(gpujit.ScriptModule(static._target.object, static._target._program))
    for target in (static, static.runtime()):
        found = target.benchmark((X,), warmup_runs=2, main_runs=7)
        assert len(found.runs) == 7 and all(t > 0 for t in found.runs)
        assert min(found.runs) <= found.seconds <= max(found.runs) and found.mean > 0
        names = [n.name for n in found.nodes]
        assert any("matmul" in n for n in names) and any("tanh" in n for n in names)
        assert [n.seconds for n in found.nodes] == sorted((n.seconds for n in found.nodes), reverse=True)
        assert {n.tier for n in found.nodes} <= {"native", "out", "numpy", "interpreter"}
        assert sum(found.by_kind().values()) == pytest.approx(sum(n.seconds for n in found.nodes))
        assert "7 runs: median" in str(found) and "us" in str(found)
    assert_close(state(gpujit.ScriptModule(static._target.object, static._target._program)), before)


def test_times_of_native_steps_are_those_of_the_steps() -> None:
    text = """
        graph(%x : Tensor, %y : Tensor):
          %1 : Tensor = aten::exp(%x)
          %dims : int[] = prim::Constant[value=[1]]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %2 : Tensor = aten::sum(%1, %dims, %no, %none)
          %3 : Tensor = aten::tanh(%y)
          return (%2, %3)"""
    static = StaticModule(
        parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node), StaticModuleOptions(threads=1)
    )
    x, y = np.ones((1500, 1500), np.float32), np.ones((2, 2), np.float32)
    times = {t.name: t.seconds for t in static.runtime().profile((x, y), runs=5)}
    large, small = (next(s for n, s in times.items() if k in n) for k in ("exp", "tanh"))
    # Two million exponentials take a millisecond at least, four hyperbolic tangents nothing.
    assert large > 20 * small > 0


def test_memory_reports_say_where_everything_lies() -> None:
    path = CORPUS / "resnet_script.pt"
    static = StaticModule(gpujit.load(path), StaticModuleOptions(out_bytes=0))
    inputs = read_case(path)
    report = static.memory_report(*inputs)
    result = static(*inputs)
    assert report.bound <= report.arena <= 1.05 * report.bound <= report.separate
    assert report.outputs == (result.nbytes if isinstance(result, np.ndarray) else sum(r.nbytes for r in result))
    assert report.weights > 0 and report.packed > 0
    assert report.values and all(v.offset >= 0 and v.offset + v.nbytes <= report.arena for v in report.values)
    for v in report.values:
        assert v.nbytes == np.dtype(v.dtype).itemsize * int(np.prod(v.shape)) and v.first <= v.last
    for a in report.values:
        for b in report.values:
            apart = a.last < b.first or b.last < a.first
            # One that dies where the other begins may be written over.
            apart = apart or a.last == b.first or b.last == a.first
            assert a is b or apart or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    text = str(static.memory_report())
    assert "of the lower bound" in text and f"{report.arena:,}" in text and "steps" in text
    assert static.runtime().memory_report(*inputs).arena == report.arena


def test_explain_goes_through_all_plans() -> None:
    static = StaticModule(graph())
    assert "was not called yet" in static.explain()
    static(f32(8, 16), WEIGHT, 2)
    static(f32(4, 16), WEIGHT, 2)
    text = static.explain()
    assert text.count("graph for ") == 2 and "native template" in text


def test_outputs_that_are_no_tensors_have_no_arrays() -> None:
    source = module(forward("x: Tensor -> Tuple[Tensor, int]", "return (torch.relu(x), torch.size(x, 0))"))
    static = StaticModule(gpujit.load(archive(source)), StaticModuleOptions(manage_output_tensors=True))
    runtime = static.runtime()
    for _ in range(3):
        y, n = runtime(X)
        assert n == 3
        assert_close(y, np.maximum(X, 0))
    with pytest.raises(ArgumentError, match="the output is no tensor: int 3"):
        static(X, out=(np.empty_like(X), np.empty(())))
    assert static(X, out=(None, None))[1] == 3
