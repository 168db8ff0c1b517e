"""Planned equals interpreted: the corpus, random graphs, many threads, changing shapes and strides, poisoned arenas."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from gpujit.ir.types import TensorType
from gpujit.passes.infer.main import infer_types_pass
from gpujit.static_runtime.steps import Options
from gpujit.support.config import config
from gpujit.testing import assert_same_values
from tests.models.speech import speech
from tests.passes.random_graphs import Program, assert_equal, outcome, programs
from tests.static_runtime.help import CORPUS, DEFAULT, Pair, from_graph, from_text, own, pair, read_case, run_graph

# Transformers take a second each; two of them stand for the others in a plain run.
_QUICK = ("BertModel_trace", "GPT2LMHeadModel_trace")
CASES = [
    pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem[0].isupper() and p.stem not in _QUICK else [])
    for p in sorted(CORPUS.glob("*.pt"))
]
SILERO = Path(os.environ.get("GPUJIT_TEST_MODELS", ".")) / "silero_vad.jit"


def load(path: Path, options: Options = DEFAULT) -> Pair:
    module = gpujit.load(path)
    # Those that write their attributes cannot be frozen.
    with suppress(gpujit.GpujitError):
        module = gpujit.freeze(module.eval())
    return pair(module, read_case(path), options)


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        yield from arrays(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from arrays(v)


def assert_close(got: Any, wanted: Any, where: str = "result") -> None:
    """Equal up to what another order of summing products allows."""
    assert_same_values(got, wanted, where, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", CASES)
def test_planned_equals_interpreted(path: Path) -> None:
    # Small results too are written into the arena.
    case = load(path, Options(out_bytes=0))
    given = own(case.values)
    wanted = case.interpreted(own(case.values))
    first = case.planned(given)
    assert_close(first, wanted)
    assert_same_values(given[1:], case.values[1:], "inputs")
    kept = copy.deepcopy(first)
    with config(check_plan=True):
        assert_close(case.planned(given), wanted, "poisoned")
        assert_close(case.planned(given), wanted, "poisoned again")
    for number in range(2, 101):
        result = case.planned(given)
        if number in (2, 100):
            assert_close(result, wanted, f"call {number}")
    # Later runs write nothing into earlier results, nor do two results share memory (unless they are an input).
    assert_same_values(first, kept, "the first result, later")
    for a in arrays(first):
        if not any(np.shares_memory(a, b) for b in arrays(given)):
            assert not any(np.shares_memory(a, b) for b in arrays(result))
    memory = case.static.memory()
    assert memory.arena <= 1.05 * memory.bound


@pytest.mark.parametrize(
    "name",
    ["BertModel_trace", "ConvNextModel_trace", "nms_postprocess", "loop_rnn", "interface_state", "resnet_script"],
)
def test_eight_threads_at_once(name: str) -> None:
    case = load(CORPUS / f"{name}.pt")
    wanted = case.interpreted(own(case.values))
    faults: list[BaseException] = []
    start = threading.Barrier(8)

    def work(check: bool) -> None:
        try:
            given = own(case.values)
            start.wait()
            with config(check_plan=check):
                for _ in range(8):
                    assert_close(case.planned(given), wanted)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i % 4 == 3,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    assert 1 <= case.static.memory().runtimes <= 8


@pytest.mark.parametrize("threads", [1, 2])
def test_plans_that_run_at_once_share_the_processors(threads: int) -> None:
    module = gpujit.freeze(gpujit.load(CORPUS / "resnet_script.pt").eval())
    # Large enough for its steps to be shared by the team.
    inputs = [
        np.repeat(x, 8, axis=0) if isinstance(x, np.ndarray) else x for x in read_case(CORPUS / "resnet_script.pt")
    ]
    cases = [pair(module, inputs) for _ in range(2)]
    runs = [0, 0]
    start = threading.Barrier(2)

    def work(k: int) -> None:
        with config(threads=threads):
            cases[k].planned(cases[k].values)
            start.wait()
            end = perf_counter() + 0.7
            while perf_counter() < end:
                cases[k].planned(cases[k].values)
                runs[k] += 1

    both = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    # Whoever has the team must not wait for workers that have no processor.
    assert min(runs) > 0.2 * max(runs), runs


@pytest.mark.parametrize("name", ["mlp", "convs_script", "lstm_script", "bert_trace"])
def test_other_shapes_and_back(name: str) -> None:
    module = gpujit.freeze(gpujit.load(CORPUS / f"{name}.pt").eval())
    small = read_case(CORPUS / f"{name}.pt")
    large = [np.concatenate([x, x, x]) if isinstance(x, np.ndarray) else x for x in small]
    pairs = [pair(module, small), pair(module, large)]
    wanted = [p.interpreted(own(p.values)) for p in pairs]
    for turn in (0, 1, 0, 1, 1, 0):
        assert_close(pairs[turn].planned(pairs[turn].values), wanted[turn])


def test_inputs_with_other_strides() -> None:
    case = load(CORPUS / "convs_script.pt")
    wanted = case.interpreted(own(case.values))
    x = case.values[1]
    others = [
        np.asfortranarray(x),
        np.repeat(x, 2, axis=-1)[..., ::2],
        np.ascontiguousarray(x[..., ::-1])[..., ::-1],
        np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    ]
    for y in (x, *others, x, *others):
        given = [case.values[0], y, *case.values[2:]]
        before = y.copy()
        assert_close(case.planned(given), wanted)
        np.testing.assert_array_equal(y, before)


def test_what_is_a_copy_or_not_by_its_strides_and_written() -> None:
    text = """
        graph(%x : Float(2, 3)):
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %1 : Float(2, 3) = aten::neg(%x)
          %2 : Float(2) = aten::select(%1, %one, %zero)
          %3 : Float(2) = aten::add_(%2, %2, %one)
          %4 : Float(2) = aten::contiguous(%3, %zero)
          %5 : Float(2) = aten::add_(%4, %4, %one)
          %6 : Float(2) = aten::relu(%4)
          return (%6)"""
    x = -np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    for y in (x, np.asfortranarray(x), x):
        np.testing.assert_array_equal(from_text(text, Options(out_bytes=0)).run([y]), [4, 16])


def fully_typed(program: Program) -> bool:
    return all(not isinstance(v.type, TensorType) or v.type.shape is not None for v in program.graph.inputs)


@given(programs(typed=True))
@settings(max_examples=60)
def test_random_graphs(program: Program) -> None:
    assert fully_typed(program)
    wanted = outcome(program.graph, program.inputs)
    graph = program.graph.copy()
    infer_types_pass(graph)
    static = from_graph(graph, Options(out_bytes=0))
    for check in (False, True, False):
        values = copy.deepcopy(program.inputs)
        with np.errstate(all="ignore"), config(check_plan=check):
            result = static.run(values)
        results = list(result) if len(graph.outputs) != 1 else [result]
        assert_equal(results, wanted["results"], f"results\n{graph}", exact=False)
        assert_equal(values, wanted["inputs"], f"inputs\n{graph}", exact=False)


@given(programs(typed=True, mutation=False, max_size=30))
@settings(max_examples=20)
def test_random_graphs_without_writes_under_all_options(program: Program) -> None:
    graph = program.graph.copy()
    infer_types_pass(graph)
    wanted = run_graph(graph, copy.deepcopy(program.inputs))
    for options in (Options(False), Options(True, False), Options(True, True, False), Options(out_bytes=0)):
        static = from_graph(graph.copy(), options)
        with np.errstate(all="ignore"), config(check_plan=True):
            assert_equal(static.run(copy.deepcopy(program.inputs)), wanted, f"{options}\n{graph}", exact=False)


@pytest.mark.skipif(not SILERO.exists(), reason="silero_vad.jit is not there; ci/fetch_models.sh gets it")
@pytest.mark.parametrize(("rate", "size"), [(16000, 512), (8000, 256)])
def test_a_model_with_state_carries_it(rate: int, size: int) -> None:
    module, judge = gpujit.load(SILERO), gpujit.load(SILERO)
    module.reset_states()
    judge.reset_states()
    audio = speech(rate, 4)[None]
    cases: list[Pair] = []
    got, wanted = [], []
    for i in range(0, audio.shape[1] - size + 1, size):
        chunk = audio[:, i : i + size]
        wanted.append(judge(chunk, rate)[0, 0])
        values = [module._object, chunk, rate]
        found = next((c for c in cases if c.specialised.check(values) is None), None)
        if found is None:
            found = pair(module, [chunk, rate])
            cases.append(found)
        # A poisoned arena changes nothing, whether the state is new or carried.
        with config(check_plan=len(got) % 3 == 1):
            got.append(found.planned(values)[0, 0])
    assert len(cases) == 2 and len(got) > 100
    assert np.ptp(wanted) > 0.5
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=0)
    np.testing.assert_allclose(module._state, judge._state, atol=1e-3, rtol=1e-4)


@pytest.mark.skipif(not SILERO.exists(), reason="silero_vad.jit is not there; ci/fetch_models.sh gets it")
def test_a_model_with_state_after_other_shapes() -> None:
    fast, judge = gpujit.optimize_for_inference(gpujit.load(SILERO)), gpujit.load(SILERO)
    for turn, (rate, size, rows) in enumerate(3 * [(16000, 512, 1), (8000, 256, 1), (16000, 512, 3), (8000, 256, 2)]):
        audio = np.stack([speech(rate, 1)[k * size : (k + 4) * size] for k in range(rows)])
        for i in range(0, 4 * size, size):
            chunk = audio[:, i : i + size]
            with config(check_plan=turn % 3 == 2):
                got = fast(chunk, rate)
            np.testing.assert_allclose(got, judge(chunk, rate), atol=1e-5, rtol=0)


def enlarged(inputs: list[Any]) -> list[Any]:
    """Inputs with twice the rows."""
    return [np.concatenate([x, x]) if isinstance(x, np.ndarray) and x.ndim > 1 else x for x in inputs]


@pytest.mark.parametrize("path", CASES)
def test_executors_change_shapes_and_back(path: Path) -> None:
    module, judge = gpujit.load(path).eval(), gpujit.load(path).eval()
    fast = gpujit.optimize_for_inference(module)
    kinds = [read_case(path)]
    with suppress(gpujit.GpujitError):
        gpujit.load(path).eval()(*enlarged(kinds[0]))
        kinds.append(enlarged(kinds[0]))
    for turn, check in ((0, False), (-1, False), (0, True), (-1, True), (0, False), (-1, False)):
        given = copy.deepcopy(kinds[turn])
        with config(check_plan=check):
            assert_close(fast(*given), judge(*copy.deepcopy(kinds[turn])), f"turn {turn}, check {check}")
