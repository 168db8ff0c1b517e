"""Recurrent layers and cells as native steps, beside the interpreter; those that are left to it; shared weights."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpujit
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.types import NONE, TENSOR, ListType, TensorType
from gpujit.ops import table
from gpujit.passes.nodes import infer_types
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime import recurrent
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.config import config
from gpujit.support.errors import OpError
from tests.static_runtime.help import CORPUS, f32, pair, read_case, run_graph

CODES = {"float32": 6, "float64": 7}


def graph_of(name: str, arguments: list[Any], constants: set[int]) -> tuple[Graph, list[np.ndarray]]:
    """A graph of one operator, lists of arrays made inside; arrays are inputs unless their argument is constant."""
    op = table.by_full_name(name)
    assert op is not None
    graph, given = Graph("recurrent"), []

    def tensor(x: np.ndarray, position: int) -> Value:
        t = TensorType(CODES[str(x.dtype)], x.shape)
        if position in constants:
            return graph.constant(x, t)
        given.append(x)
        return graph.add_input(t)

    inputs = []
    for k, x in enumerate(arguments):
        if isinstance(x, list) and isinstance(x[0], np.ndarray):
            node = Node("prim::ListConstruct", [tensor(each, k) for each in x])
            graph.block.append(node)
            inputs.append(node.add_output(ListType(TENSOR)))
        elif isinstance(x, np.ndarray):
            inputs.append(tensor(x, k))
        else:
            inputs.append(graph.constant(x, NONE if x is None else op.schema.arguments[k].type))
    node = Node(op.name, inputs)
    node.schema = op.schema
    graph.block.append(node)
    outputs = [node.add_output(TENSOR) for _ in op.schema.returns]
    for value, t in zip(outputs, infer_types(node, op), strict=True):
        value.type = t
        graph.add_output(value)
    return graph, given


def check(name: str, arguments: list[Any], constants: set[int]) -> bool:
    """Whether the node is a native step; either way its results are the interpreter's, twice."""
    graph, given = graph_of(name, arguments, constants)
    wanted = run_graph(graph, given)
    module = PlannedGraph(graph, {}, Lowerer(np))
    for _ in range(2):
        with config(check_plan=True):
            got = module.run(given)
        for y, x in zip(*([v] if isinstance(v, np.ndarray) else v for v in (got, wanted)), strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
            assert (y.dtype, y.shape) == (x.dtype, x.shape)
    kinds = {t.name.split()[0] for t in module.tiers() if t.label == name.split(".")[0]}
    assert len(kinds) == 1
    return kinds == {"native"}


def layer(
    kind: str, steps: int, batch: int, inputs: int, size: int, count: int, both: bool, has_biases: bool, first: bool
) -> list[Any]:
    """Arguments of ``aten::lstm.input`` or ``aten::gru.input``."""
    directions, gates = 1 + both, 4 if kind == "lstm" else 3
    params = []
    for k in range(count * directions):
        depth = inputs if k < directions else directions * size
        shapes = [(gates * size, depth), (gates * size, size), *[(gates * size,)] * (2 * has_biases)]
        params += [f32(*s, seed=9 * k + i) / np.float32(size**0.5) for i, s in enumerate(shapes)]
    x = f32(*((batch, steps) if first else (steps, batch)), inputs, seed=100)
    states = [f32(count * directions, batch, size, seed=s) for s in (101, 102)]
    return [x, states if kind == "lstm" else states[0], params, has_biases, count, 0.0, False, both, first]


@given(
    st.sampled_from(["lstm", "gru"]), st.tuples(*[st.integers(1, n) for n in (5, 4, 7, 9, 3)]), st.booleans(),
    st.booleans(), st.booleans(),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_layers(kind: str, sizes: tuple[int, int, int, int, int], both: bool, has_biases: bool, first: bool) -> None:
    assert check(f"aten::{kind}.input", layer(kind, *sizes, both, has_biases, first), {2})


@pytest.mark.parametrize("biases", [(True, True), (False, False), (True, False), (False, True)])
def test_cells(biases: tuple[bool, bool]) -> None:
    h, c = f32(3, 8, seed=1), f32(3, 8, seed=2)
    for kind, rows, state in (("lstm", 32, [h, c]), ("gru", 24, h)):
        given = [f32(rows, seed=5 + k) if has else None for k, has in enumerate(biases)]
        arguments = [f32(3, 6), state, f32(rows, 6, seed=3), f32(rows, 8, seed=4), *given]
        assert check(f"aten::{kind}_cell", arguments, {2, 3, 4, 5})
        assert check(f"aten::{kind}_cell", arguments, {1, 2, 3, 4, 5})


def test_layouts() -> None:
    x, state, *rest = layer("lstm", 5, 3, 6, 8, 1, False, True, False)
    turned = np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert check("aten::lstm.input", [turned, state, *rest], {2})
    room = f32(1, 3, 2, 8)
    assert check("aten::lstm.input", [x, [room[:, :, 0], room[:, :, 1]], *rest], {2})
    across = np.ascontiguousarray(state[0].transpose(0, 2, 1)).transpose(0, 2, 1)
    assert not check("aten::lstm.input", [x, [across, state[1]], *rest], {2})


def test_what_is_left_to_the_interpreter() -> None:
    x, state, params, *rest = layer("lstm", 4, 3, 6, 8, 2, False, True, False)
    assert check("aten::lstm.input", [x, state, params, *rest], {2})
    assert not check("aten::lstm.input", [x, state, params, *rest], set())
    assert not check("aten::lstm.input", [x[:, :0], [s[:, :0] for s in state], params, *rest], {2})
    as64 = [[a.astype(np.float64) for a in group] for group in (state, params)]
    assert not check("aten::lstm.input", [x.astype(np.float64), *as64, *rest], {2})
    # Projections: the hidden state is smaller than the cells.
    group = [f32(32, 6), f32(32, 5), f32(5, 8)]
    small = [f32(1, 3, 5), f32(1, 3, 8)]
    assert not check("aten::lstm.input", [x, small, group, False, 1, 0.0, False, False, False], {2})
    cell = [f32(6), f32(8), f32(24, 6), f32(24, 8), None, None]
    assert not check("aten::gru_cell", cell, {2, 3})


def test_dropout_in_training_is_left_to_the_operator() -> None:
    x, state, params, *rest = layer("gru", 4, 3, 6, 8, 2, False, True, False)
    rest[2:4] = [0.5, True]
    graph, given = graph_of("aten::gru.input", [x, state, params, *rest], {2})
    op = table.by_full_name("aten::gru.input")
    assert op is not None
    gpujit.manual_seed(1)
    want = op.kernel(np)(x, state, params, *rest)
    gpujit.manual_seed(1)
    got = PlannedGraph(graph, {}, Lowerer(np)).run(given)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    rest[2] = -0.5
    graph, given = graph_of("aten::gru.input", [x, state, params, *rest], {2})
    with pytest.raises(OpError, match="dropout"):
        PlannedGraph(graph, {}, Lowerer(np)).run(given)


def test_packed_weights_are_shared_and_go_with_the_weights() -> None:
    _, states, params, *rest = layer("lstm", 4, 3, 6, 8, 2, True, True, False)
    gc.collect()
    before = len(recurrent._packs)
    modules = []
    for steps, batch in ((4, 3), (7, 1)):
        state = [np.ascontiguousarray(s[:, :batch]) for s in states]
        graph, given = graph_of("aten::lstm.input", [f32(steps, batch, 6), state, params, *rest], {2})
        modules.append(PlannedGraph(graph, {}, Lowerer(np)))
        modules[-1].run(given)
    assert len(recurrent._packs) == before + 1
    del modules, graph, params
    gc.collect()
    assert len(recurrent._packs) == before


@pytest.mark.parametrize("name", ["lstm_script", "lstm_trace", "gru_script", "gru_trace", "loop_rnn"])
def test_models_run_their_layers_natively(name: str) -> None:
    path: Path = CORPUS / f"{name}.pt"
    case = pair(gpujit.freeze(gpujit.load(path).eval()), read_case(path))
    for _ in range(2):
        got, wanted = case.planned(case.values), case.interpreted(case.values)
        for y, x in zip(flat(got), flat(wanted), strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
    kinds = {t.name for t in case.static.tiers() if t.label in ("aten::lstm", "aten::gru", "aten::lstm_cell")}
    assert kinds == {"native template"}


def flat(value: Any) -> list[np.ndarray]:
    """The arrays in nested tuples and lists."""
    if isinstance(value, np.ndarray):
        return [value]
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else []


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_divided_layer_among_other_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rounds are steps of the run, with the results of steps before and behind it."""
    monkeypatch.setattr(recurrent.rnn, "WORTH_A_ROUND", 0)
    layer = (gpujit.nn.LSTM if kind == "lstm" else gpujit.nn.GRU)(24, 40, 2, batch_first=True)
    net = gpujit.nn.Sequential(gpujit.nn.Linear(8, 24), layer)
    with config(threads=2, simd_width=4):
        module = gpujit.StaticModule(gpujit.script(net.eval()))
        x = f32(1, 7, 8)
        with config(check_plan=True):
            y, states = module(x)
        (plan,) = module._executor.plans()
        assert isinstance(plan.runner, PlannedGraph)
        steps = [s for g in plan.runner.plan([None, x]).segments for s in g.steps if s.kernel.rounds]
        assert len(steps) == 2 * (7 + 1)
        times = module.benchmark((x,), None, 1, 2)
    wanted, last = gpujit.script(net)(x)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
    for got, exact in zip(*(s if isinstance(s, tuple) else [s] for s in (states, last)), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)
    assert sum(n.name.startswith(f"aten::{kind}") for n in times.nodes) == 1
