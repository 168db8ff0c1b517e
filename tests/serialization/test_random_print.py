"""Random programs as source and back: results, effects and their order, sharing; PyTorch reads them too."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpujit
from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.serialization.placeholder import placeholder_module
from gpujit.serialization.writer import save_to_bytes
from gpujit.support.errors import GpujitError
from tests.passes.flow_graphs import INPUTS, flows, trace
from tests.passes.random_graphs import Program, assert_equal, assert_same_outcome, outcome, programs


def saved(graph: Graph) -> bytes:
    """An archive of a module whose ``forward`` is the graph, after ``self``."""
    results = [v.type for v in graph.outputs]
    returned = results[0] if len(results) == 1 else T.TupleType(tuple(results))
    arguments = tuple(Argument(f"a{i}", v.type, str(v.type)) for i, v in enumerate(graph.inputs))
    schema = Schema("__torch__.f", "", arguments, (Argument("", returned, str(returned)),))
    function = Function("__torch__.f", lambda: schema, lambda: graph)
    return save_to_bytes(placeholder_module(function), run_method=_nothing)


def _nothing(function: Any, arguments: list[Any]) -> Any:
    raise AssertionError("no method is run")


def reloaded(data: bytes) -> Graph:
    """The graph of ``forward``, without ``self``."""
    graph = gpujit.load(data).forward.graph.copy()
    graph.block.param_node.remove_output(0)
    return graph


@settings(max_examples=100)
@given(programs())
def test_programs_with_views_and_writes_mean_the_same(program: Program) -> None:
    data = saved(program.graph)
    again = reloaded(data)
    wanted = outcome(program.graph, program.inputs)
    if len(program.graph.outputs) != 1:
        # Several results come back as one tuple.
        got = outcome(again, program.inputs)
        assert_equal(list(got["results"][0]), wanted["results"], "results")
        assert_equal(got["inputs"], wanted["inputs"], "inputs")
    else:
        assert_same_outcome(outcome(again, program.inputs), wanted)
    second = gpujit.load(data).save_to_buffer()
    assert gpujit.load(second).save_to_buffer() == second


@settings(max_examples=100)
@given(flows())
def test_effects_come_in_their_order(graph: Graph) -> None:
    assert trace(reloaded(saved(graph))) == trace(graph)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40)
@given(flows())
def test_effects_come_in_their_order_in_pytorch(graph: Graph) -> None:
    torch = pytest.importorskip("torch")
    whole = graph.copy()
    # A list handed over from Python is copied: what was logged is looked at in what is returned.
    whole.add_output(whole.inputs[0])
    module = torch.jit.load(io.BytesIO(saved(whole)))
    for inputs, (wanted, log) in zip(INPUTS, trace(graph), strict=True):
        try:
            result = module([], *inputs)
        except (RuntimeError, torch.jit.Error):
            assert isinstance(wanted, type) and issubclass(wanted, GpujitError)
            continue
        # PyTorch leaves out operators whose results nobody reads, also those that would fail.
        if not isinstance(wanted, type):
            assert (result[:-1], result[-1]) == (wanted, log)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40)
@given(programs())
def test_programs_with_views_and_writes_mean_the_same_in_pytorch(program: Program) -> None:
    torch = pytest.importorskip("torch")
    module = torch.jit.load(io.BytesIO(saved(program.graph)))
    # Inputs that share memory do so as tensors too.
    inputs = _tensors(copy.deepcopy(program.inputs), torch)
    try:
        result = module(*inputs)
    except RuntimeError as error:
        # PyTorch refuses some writes between views of one memory, which NumPy carries out.
        assert "single memory location" in str(error)
        return
    wanted = outcome(program.graph, program.inputs)["results"]
    results = list(result) if len(wanted) != 1 else [result]
    assert_equal(_arrays(results), wanted, "results", exact=False)


def _tensors(value: Any, torch: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(v, torch) for v in value)
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_arrays(v) for v in value)
    return value.numpy() if hasattr(value, "numpy") else value
