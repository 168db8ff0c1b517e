"""Scripted programs over every construct of the language: what they compute, their errors, their graphs' text."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gpujit
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from tests.compare import assert_same, from_json

ARCHIVE = zipfile.ZipFile(Path(__file__).with_name("language.zip"))
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads(ARCHIVE.read("expected.json"))


def load(name: str) -> gpujit.ScriptModule:
    return gpujit.load(ARCHIVE.read(f"{name}.pt"))


@pytest.mark.parametrize("name", EXPECTED)
def test_results_are_those_of_pytorch(name: str) -> None:
    """Runs in the order they were made: state kept in attributes carries over."""
    module = load(name)
    for run in EXPECTED[name]:
        arguments = from_json(run["args"])
        if "error" in run:
            continue
        assert_same(module(*arguments), from_json(run["result"]), name)


@pytest.mark.parametrize("name", [n for n, runs in EXPECTED.items() if any("error" in r for r in runs)])
def test_failures_are_those_of_pytorch(name: str) -> None:
    """Where PyTorch raised, gpujit raises: the same text for what the program or a container raised, with its line."""
    for run in EXPECTED[name]:
        if "error" not in run:
            continue
        with pytest.raises(gpujit.GpujitError) as caught:
            load(name)(*from_json(run["args"]))
        text = str(caught.value)
        if name != "shape_error":
            assert run["error"].removeprefix("RuntimeError: ") in text
        assert "<--- HERE" in text and "in forward" in text


@pytest.mark.parametrize("name", EXPECTED)
def test_graphs_verify_and_their_text_parses_back(name: str) -> None:
    module = load(name)
    for method in module.methods.values():
        for graph in (method.graph, method.inlined_graph):
            verify(graph)
            constants: list[Any] = []
            text = print_graph(graph, constants=constants)
            again = parse_graph(text, constants=constants)
            assert print_graph(again, constants=[]) == text
            verify(again)


def test_named_tuples_and_enums_come_back_as_such() -> None:
    point, x, label = load("named_tuples")(3)
    assert (point._fields, point.x, point.label) == (("x", "label"), 4, "pq")
    assert (x, label) == (3, "pq")


def test_state_is_kept_reset_and_seen_from_outside() -> None:
    module = load("Stateful")
    run = EXPECTED["Stateful"][0]
    module(*from_json(run["args"]))
    module(*from_json(run["args"]))
    assert module.peek() == (2, [1, 2])
    assert module.count == 2
    module.reset()
    assert module.peek() == (0, [])
    module.count = 41
    module(*from_json(run["args"]))
    assert module.peek() == (42, [42])


def test_shared_parameters_stay_one_array() -> None:
    module = load("Shared")
    assert module.a.weight is module.b.weight
    assert [n for n, _ in module.named_parameters()] == ["a.weight"]
    assert sorted(module.state_dict()) == ["a.weight", "b.weight", "expanded", "view"]
    assert module.expanded.strides == (0,)


def test_calling_forward_skips_the_hooks_that_calling_the_module_runs() -> None:
    module = load("Hooked")
    (x,) = from_json(EXPECTED["Hooked"][0]["args"])
    assert float(module(x)[0]) == 10 + 1 + 10
    assert float(module.forward(x)[0]) == 1 + 1
