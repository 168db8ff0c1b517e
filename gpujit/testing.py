"""Helpers for tests, ours and those of people who add operators or passes."""

from __future__ import annotations

import copy
import difflib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.ir.parser import TypeLookup, parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.schema import Schema
from gpujit.ir.verify import verify
from gpujit.passes.analysis.effects import resolve_node as resolve_node


def assert_same_graph(a: Graph, b: Graph, *, constants: Sequence[Any] = ()) -> None:
    """Check that two graphs are equal up to names and places; the message shows both texts as a diff.

    ``constants`` are numbered first, so that ``CONSTANTS.cN`` means the same on both sides.
    """
    _assert_same_text(_canonical(a, constants), _canonical(b, constants), "graphs differ")


def check_pass(
    pass_fn: Callable[[Graph], bool],
    before: str,
    after: str,
    samples: Iterable[Sequence[Any]] | None = None,
    run: Callable[..., Any] | None = None,
    *,
    types: TypeLookup | None = None,
    constants: Sequence[Any] = (),
    functions: Mapping[str, Function] | None = None,
    resolve: Callable[[Node], Schema | None] | None = None,
) -> Graph:
    """The graph after the pass, once everything a pass promises has been checked.

    The pass turns ``before`` into ``after`` (up to names), says truly whether it changed something, changes nothing
    when run again, and leaves a graph that verifies and survives print and parse.
    Args:
        samples: inputs for which the graphs before and after must compute the same.
        run: ``run(graph, *inputs)`` gives a graph's outputs; needed with ``samples``.
        types, constants, functions: see ``parse_graph``.
        resolve: gives the overload of a node of the text; by default ``resolve_node``.
    Raises AssertionError, ParseError or VerifyError.
    """

    def read(text: str) -> Graph:
        graph = parse_graph(
            textwrap.dedent(text).strip(),
            types=types,
            constants=constants,
            functions=functions,
            resolve=resolve or resolve_node,
        )
        verify(graph)
        return graph

    graph, wanted = read(before), read(after)
    for each in (graph, wanted):
        _check_round_trip(each, read, constants)
    start = _canonical(graph, constants)
    changed = pass_fn(graph)
    verify(graph)
    result = _canonical(graph, constants)
    _assert_same_text(result, _canonical(wanted, constants), "the pass gave another graph than expected")
    assert isinstance(changed, bool), f"the pass returned {changed!r} instead of whether it changed the graph"
    assert changed == (result != start), f"the pass returned {changed}, but the graph {_says(result != start)}"
    _check_round_trip(graph, read, constants)
    again = pass_fn(graph)
    _assert_same_text(_canonical(graph, constants), result, "a second run changed the graph again")
    assert not again, "a second run says it changed the graph, but it did not"
    if samples is not None:
        assert run is not None, "samples need run(graph, *inputs)"
        for number, inputs in enumerate(samples):
            # Graphs may write into their inputs.
            expected = run(read(before), *copy.deepcopy(tuple(inputs)))
            assert_same_values(run(graph, *copy.deepcopy(tuple(inputs))), expected, f"sample {number}")
    return graph


def assert_same_values(got: Any, wanted: Any, where: str = "result", *, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Check that run-time values are equal: exactly for ints, bools and strings, to a tolerance for floats."""
    if isinstance(wanted, (list, tuple)):
        assert isinstance(got, type(wanted)) and len(got) == len(wanted), f"{where}: {got!r} instead of {wanted!r}"
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
            assert_same_values(a, b, f"{where}[{i}]", rtol=rtol, atol=atol)
    elif isinstance(wanted, dict):
        assert isinstance(got, dict) and list(got) == list(wanted), f"{where}: {got!r} instead of {wanted!r}"
        for key in wanted:
            assert_same_values(got[key], wanted[key], f"{where}[{key!r}]", rtol=rtol, atol=atol)
    elif isinstance(wanted, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got).__name__} instead of an array"
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), (
            f"{where}: {got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        )
        if wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(got, wanted, err_msg=where)
        else:
            wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol, err_msg=where)
    elif isinstance(wanted, (float, complex)):
        assert type(got) is type(wanted), f"{where}: {got!r} instead of {wanted!r}"
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=where)
    else:
        assert type(got) is type(wanted) and got == wanted, f"{where}: {got!r} instead of {wanted!r}"


def _canonical(graph: Graph, constants: Sequence[Any]) -> str:
    return print_graph(graph, constants=list(constants), canonical=True)


def _check_round_trip(graph: Graph, read: Callable[[str], Graph], constants: Sequence[Any]) -> None:
    text = print_graph(graph, constants=list(constants))
    back = print_graph(read(text), constants=list(constants))
    _assert_same_text(back, text, "the text does not survive parse and print")


def _assert_same_text(got: str, wanted: str, what: str) -> None:
    if got != wanted:
        lines = difflib.unified_diff(wanted.splitlines(), got.splitlines(), "expected", "found", lineterm="", n=1000)
        raise AssertionError("\n".join([what, *lines]))


def _says(is_changed: bool) -> str:
    return "changed" if is_changed else "did not change"
