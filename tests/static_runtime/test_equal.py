"""Planned equals interpreted: the corpus, random graphs, many threads, changing shapes and strides, poisoned arenas."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
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
from tests.static_runtime.help import CORPUS, DEFAULT, Pair, from_graph, own, pair, read_case, run_graph

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
    for number in range(2, 11):
        result = case.planned(given)
        if number in (2, 10):
            assert_close(result, wanted, f"call {number}")
    # Later runs write nothing into earlier results, nor do two results share memory (unless they are an input).
    assert_same_values(first, kept, "the first result, later")
    for a in arrays(first):
        if not any(np.shares_memory(a, b) for b in arrays(given)):
            assert not any(np.shares_memory(a, b) for b in arrays(result))
    memory = case.static.memory()
    assert memory.arena <= 1.05 * memory.bound


@pytest.mark.parametrize(
    "name", ["BertModel_trace", "ConvNextModel_trace", "nms_postprocess", "loop_rnn", "resnet_script"]
)
def test_four_threads_at_once(name: str) -> None:
    case = load(CORPUS / f"{name}.pt")
    wanted = case.interpreted(own(case.values))
    faults: list[BaseException] = []
    start = threading.Barrier(4)

    def work(check: bool) -> None:
        try:
            given = own(case.values)
            start.wait()
            with config(check_plan=check):
                for _ in range(8):
                    assert_close(case.planned(given), wanted)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i == 3,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    assert 1 <= case.static.memory().runtimes <= 4


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
def test_a_model_with_state_carries_it() -> None:
    module, judge = gpujit.load(SILERO), gpujit.load(SILERO)
    module.reset_states()
    judge.reset_states()
    audio = speech(16000, 3)[None]
    cases: list[Pair] = []
    got, wanted = [], []
    for i in range(0, audio.shape[1] - 511, 512):
        chunk = audio[:, i : i + 512]
        wanted.append(judge(chunk, 16000)[0, 0])
        values = [module._object, chunk, 16000]
        found = next((c for c in cases if c.specialised.check(values) is None), None)
        if found is None:
            found = pair(module, [chunk, 16000])
            cases.append(found)
        got.append(found.planned(values)[0, 0])
    assert len(cases) == 2
    assert np.ptp(wanted) > 0.5
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=0)
    np.testing.assert_allclose(module._state, judge._state, atol=1e-3, rtol=1e-4)
