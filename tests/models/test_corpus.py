"""Small archives of every kind - vision, text, audio, detection, quantised - against what PyTorch computed for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from tests.compare import assert_same, from_meta

FOLDER = Path(__file__).with_name("corpus")
NAMES = sorted(p.stem for p in FOLDER.glob("*.pt"))


def case(name: str) -> tuple[gpujit.ScriptModule, list[Any], Any]:
    """The module, its inputs and PyTorch's output."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        arrays = {k: stored[k] for k in stored.files if k != "meta"}
        meta = json.loads(str(stored["meta"]))
    module = gpujit.load(FOLDER / f"{name}.pt")
    return module, [from_meta(m, arrays) for m in meta["inputs"]], from_meta(meta["output"], arrays)


def test_the_corpus_is_all_there() -> None:
    assert len(NAMES) == 39


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_pytorch(name: str) -> None:
    module, inputs, expected = case(name)
    assert_same(module(*inputs), expected, name)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_verify_and_their_text_parses_back(name: str) -> None:
    module, _, _ = case(name)
    for method in module.methods.values():
        for graph in (method.graph, method.inlined_graph):
            verify(graph)
            constants: list[Any] = []
            text = print_graph(graph, constants=constants)
            again = parse_graph(text, constants=constants)
            verify(again)
            assert print_graph(again, constants=[]) == text


@pytest.mark.parametrize("name", ["resnet_trace", "bert_trace", "aliasing_script", "lstm_script"])
def test_inputs_and_weights_are_left_alone(name: str) -> None:
    """Running a model changes neither what it was given nor what it holds."""
    module, inputs, _ = case(name)
    before = [x.copy() for x in inputs]
    weights = {n: v.copy() for n, v in module.state_dict().items()}
    module(*inputs)
    for x, y in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(x, y)
    for n, v in module.state_dict().items():
        np.testing.assert_array_equal(v, weights[n], err_msg=n)
