"""Scripted by gpujit = scripted by PyTorch: the snippets of language_*.py, run on the same inputs."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from tests.frontend import language, language_beyond

SNIPPETS = {s.name: s for s in language.all_snippets()}
BEYOND = {s.name: s for s in language_beyond.SNIPPETS}
EXPECTED = language.expected()


def outcome(snippet: language.Snippet, torch: Any) -> Any:
    """What gpujit makes of a snippet, in the form of the expected outcomes."""
    try:
        scripted = gpujit.script(language.load(snippet, torch).f)
    except gpujit.GpujitError as e:
        return {"refused": str(e)}
    runs: list[Any] = []
    for values in snippet.inputs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                run: Any = {"value": language.plain(scripted(*language.arguments(values, np.asarray)))}
            except gpujit.GpujitError as e:
                run = {"raised": str(e)}
        runs.append({**run, "printed": printed.getvalue()})
    return runs


def check(got: Any, want: Any) -> None:
    """Both refuse, or each run gives the same value and text, or both raise."""
    if isinstance(want, dict):
        assert isinstance(got, dict), f"PyTorch refuses it: {want['refused']}"
        return
    assert not isinstance(got, dict), got["refused"]
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if "raised" in w:
            assert "raised" in g, f"PyTorch raises {w['raised']}; got {g}"
        else:
            assert language.same(g, w), f"{g}\nis not\n{w}"


def test_there_are_at_least_four_hundred_and_each_has_an_outcome() -> None:
    assert len(SNIPPETS) >= 400
    assert list(EXPECTED) == list(SNIPPETS)


@pytest.mark.parametrize("name", SNIPPETS)
def test_outcomes_are_those_of_pytorch(name: str) -> None:
    check(outcome(SNIPPETS[name], language.TorchAlias()), EXPECTED[name])


@pytest.mark.parametrize("name", [n for n, o in EXPECTED.items() if isinstance(o, dict)])
def test_refusals_name_the_line_and_the_reason(name: str) -> None:
    got = outcome(SNIPPETS[name], language.TorchAlias())
    first = got["refused"].split("\n")[0]
    assert len(first) > 10 and 'File "' in got["refused"], got["refused"]


@pytest.mark.parametrize("name", [n for n, o in EXPECTED.items() if isinstance(o, list)])
def test_graphs_verify_and_their_text_parses_back(name: str) -> None:
    scripted = gpujit.script(language.load(SNIPPETS[name], language.TorchAlias()).f)
    for graph in (scripted.graph, scripted.inlined_graph):
        verify(graph)
        if any(n.kind == "prim::PythonOp" for n in graph.all_nodes()):
            continue  # a Python function has no text
        constants: list[Any] = []
        text = print_graph(graph, constants=constants)
        again = parse_graph(text, constants=constants)
        assert print_graph(again, constants=[]) == text


def runs_of(module: Any, snippet: language.Snippet, convert: Any, raised: tuple[type[Exception], ...]) -> Any:
    """The runs of a loaded program, in the form of the expected outcomes."""
    runs: list[Any] = []
    for values in snippet.inputs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                run: Any = {"value": language.plain(module(*language.arguments(values, convert)))}
            except raised as e:
                run = {"raised": str(e)}
        runs.append({**run, "printed": printed.getvalue()})
    return runs


SAVED = [n for n, o in EXPECTED.items() if isinstance(o, list) and not n.startswith("ignored")]


@pytest.mark.parametrize("name", SAVED)
def test_programs_saved_and_loaded_again(name: str) -> None:
    snippet = SNIPPETS[name]
    data = gpujit.script(language.load(snippet, language.TorchAlias()).f).save_to_buffer()
    check(runs_of(gpujit.load(data), snippet, np.asarray, (gpujit.GpujitError,)), EXPECTED[name])


@pytest.mark.torch
@pytest.mark.parametrize("name", SAVED)
def test_programs_saved_and_loaded_by_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    snippet = SNIPPETS[name]
    data = gpujit.script(language.load(snippet, language.TorchAlias()).f).save_to_buffer()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(io.BytesIO(data))
        got = runs_of(loaded, snippet, torch.from_numpy, (RuntimeError, torch.jit.Error))
    check(got, EXPECTED[name])


@pytest.mark.parametrize("name", BEYOND)
def test_what_pytorch_refuses_means_what_python_means(name: str) -> None:
    snippet = BEYOND[name]
    module = language.load(snippet, language.TorchAlias())
    scripted = gpujit.script(module.f)
    for values in snippet.inputs:
        want = module.f(*language.arguments(values, np.asarray))
        got = scripted(*language.arguments(values, np.asarray))
        assert language.same(language.plain(got), language.plain(want)), (got, want)


@pytest.mark.torch
@pytest.mark.parametrize("name", SNIPPETS)
def test_programs_written_with_torch_itself(name: str) -> None:
    """The same through the names of the real torch, and PyTorch's outcome today against the recorded one."""
    torch = pytest.importorskip("torch")
    from tests.frontend import make_language_expected

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = make_language_expected.outcome(SNIPPETS[name])
        got = outcome(SNIPPETS[name], torch)
    assert isinstance(want, dict) == isinstance(EXPECTED[name], dict)
    check(got, want)
