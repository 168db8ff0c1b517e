"""Every pipeline on the small models: results of first and later calls as interpreted, texts that parse back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from gpujit.passes import pipeline
from gpujit.passes.base import Pass
from gpujit.passes.specialise.main import key_of, specialise
from gpujit.runtime.values import bind_arguments
from tests.compare import assert_same
from tests.models import test_silero
from tests.models.speech import speech
from tests.models.test_corpus import FOLDER, NAMES, case
from tests.passes.random_graphs import Program, assert_equal, assert_keeps_meaning, programs, run_graph

# The encoder's 5000 nodes are one program for each of its paths; the sweep in bench/ covers them.
SMALL = [name for name in NAMES if name != "transformer_encoder"]
# What specialisation may leave, and why.
LEFT = {
    "containers": "an input is a dict: its contents are known, which of its values are the same object is not",
    "interface_state": "a loop whose condition is the number in a tensor",
    "nms_postprocess": "how many boxes are kept depends on their scores",
}


def run(module: gpujit.ScriptModule, graph: Graph, values: list[Any]) -> Any:
    """What a graph of the module gives, by the module's own interpreter."""
    with np.errstate(all="ignore"):
        return module._program.interpreter.run(module._program.lowerer.graph_code(graph), values)


def bound(module: gpujit.ScriptModule, inputs: list[Any]) -> list[Any]:
    function = module._object.type.methods["forward"]
    return [module._object, *bind_arguments(function.schema, tuple(copy.deepcopy(inputs)), {}, skip=1)]


def calls_of(name: str) -> Callable[[], tuple[gpujit.ScriptModule, list[list[Any]]]]:
    def load() -> tuple[gpujit.ScriptModule, list[list[Any]]]:
        module, inputs, _ = case(name)
        return module, [inputs, inputs]

    return load


def silero() -> tuple[gpujit.ScriptModule, list[list[Any]]]:
    audio = speech(16000, 1)[None]
    return gpujit.load(test_silero.PATH), [[audio[:, i * 512 : (i + 1) * 512], 16000] for i in range(3)]


MODELS = [
    *(pytest.param(calls_of(name), id=name) for name in SMALL),
    pytest.param(silero, id="silero", marks=pytest.mark.skipif(not test_silero.PATH.exists(), reason="not fetched")),
]


@contextmanager
def texts_checked() -> Iterator[None]:
    """After every pass that changed a graph it must verify, and its text must parse back."""
    call = Pass.__call__

    def checked(self: Pass, graph: Graph) -> bool:
        changed = call(self, graph)
        if changed:
            verify(graph)
            constants: list[Any] = []
            text = print_graph(graph, constants=constants)
            assert print_graph(parse_graph(text, constants=constants), constants=[]) == text, self.name
        return changed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pass, "__call__", checked)
        yield


@pytest.mark.parametrize("load", MODELS)
def test_every_pipeline_keeps_results_and_state(load: Callable[[], Any]) -> None:
    module, calls = load()
    graph = module.inlined_graph
    wanted = [copy.deepcopy(run(module, graph, bound(module, inputs))) for inputs in calls]
    state = module.state_dict()
    for name in pipeline.PIPELINES:
        module, calls = load()
        graph = module.inlined_graph
        with texts_checked():
            pipeline.run(graph, name)
        got = [copy.deepcopy(run(module, graph, bound(module, inputs))) for inputs in calls]
        compare = assert_equal if name in pipeline.EXACT else assert_same
        compare(got, wanted, name)
        compare(dict(module.state_dict()), dict(state), f"{name}: state")


@pytest.mark.parametrize("load", MODELS)
def test_frozen_and_specialised_models_keep_results(load: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    module, calls = load()
    wanted = [copy.deepcopy(run(module, module.inlined_graph, bound(module, inputs))) for inputs in calls]
    for numerics in (False, True):
        module, calls = load()
        with texts_checked():
            frozen = gpujit.freeze(module.eval(), optimize_numerics=numerics)
        assert_same([copy.deepcopy(run(frozen, frozen.graph, bound(frozen, inputs))) for inputs in calls], wanted)

    module, calls = load()
    graph = module.inlined_graph
    made: list[Any] = []
    got = []
    for inputs in calls:
        values = bound(module, inputs)
        found = next((f for f in made if f.check(values) is None), None)
        if found is None:
            found = specialise(graph, key_of(graph, values))
            with texts_checked():
                pipeline.run(found.graph, "specialised")
            made.append(found)
        got.append(copy.deepcopy(run(module, found.graph, values)))
    assert_same(got, wanted)
    name = request.node.callspec.id
    assert name in LEFT or not any(found.left for found in made), [f.left for f in made]
    if name == "silero":
        kinds = {node.kind for node in made[-1].graph.all_nodes()}
        assert not kinds & {"prim::If", "prim::Loop", "aten::size"}


def test_a_model_with_state_is_called_on_its_own_state() -> None:
    """Each load starts anew; a second call on one module is another one."""
    first, inputs, expected = case("interface_state")
    assert_same(first(*inputs), expected)
    later = first(*inputs)
    second, inputs, _ = case("interface_state")
    assert_same(second(*inputs), expected)
    assert_same(second(*inputs), later)


@pytest.mark.parametrize("name", sorted(pipeline.PIPELINES))
@settings(max_examples=30, deadline=None)
@given(program=programs(max_size=20))
def test_pipelines_keep_the_meaning_of_random_programs(name: str, program: Program) -> None:
    assert_keeps_meaning(lambda graph: pipeline.run(graph, name), program, exact=name in pipeline.EXACT, sharing=True)


@settings(max_examples=30, deadline=None)
@given(program=programs(max_size=20))
def test_specialised_random_programs_keep_their_meaning(program: Program) -> None:
    inputs = copy.deepcopy(program.inputs)
    wanted = run_graph(program.graph, *copy.deepcopy(inputs))
    found = specialise(program.graph, key_of(program.graph, inputs))
    if found.check(inputs) is None:
        pipeline.run(found.graph, "specialised")
        verify(found.graph)
        assert_equal(run_graph(found.graph, *inputs), wanted, "results", exact=False)


def test_models_are_there() -> None:
    assert FOLDER.exists() and len(SMALL) == 38
