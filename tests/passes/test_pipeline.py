"""Pipelines: order, rounds, an end."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import gpujit.passes
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import PASSES, Pass, changes_made
from gpujit.passes.pipeline import PIPELINES, named, run
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, InternalError
from gpujit.testing import assert_same_graph
from tests.models.test_corpus import case
from tests.passes.random_graphs import Program, assert_equal, assert_keeps_meaning, programs, run_graph

EMPTY = "graph(%x : Tensor):\n  return (%x)"


def counted(name: str, changes: int, calls: list[str]) -> Pass:
    """A pass that says so many times that it changed the graph."""
    left = [changes]

    def body(graph: Graph) -> bool:
        calls.append(name)
        left[0] -= 1
        return left[0] >= 0

    return Pass(name, body)


def test_runs_in_order_until_nothing_changes() -> None:
    calls: list[str] = []
    passes = (counted("a", 2, calls), counted("b", 1, calls))
    assert run(parse_graph(EMPTY), passes)
    # After the second change of a, both have looked at the graph and found nothing.
    assert calls == ["a", "b", "a", "b", "a"]
    assert not run(parse_graph(EMPTY), passes)


def test_rounds_can_be_limited() -> None:
    calls: list[str] = []
    assert run(parse_graph(EMPTY), (counted("a", 10, calls),), rounds=1)
    assert calls == ["a"]


def test_passes_that_undo_each_other_are_named() -> None:
    calls: list[str] = []
    with pytest.raises(InternalError, match="still change the graph: there, back"):
        run(parse_graph(EMPTY), (counted("there", 10**9, calls), counted("back", 10**9, calls)))


def test_fuel_stops_a_pipeline() -> None:
    calls: list[str] = []
    start = changes_made()
    with config(pass_limit=start + 3):
        assert run(parse_graph(EMPTY), (counted("a", 10, calls), counted("b", 10, calls)))
    assert calls == ["a", "b", "a"] and changes_made() == start + 3


def test_names() -> None:
    assert named("cleanup") is PIPELINES["cleanup"]
    with pytest.raises(ArgumentError, match=r"no pipeline 'cleanu'; there are .*cleanup"):
        run(parse_graph(EMPTY), "cleanu")


def test_cleanup_leaves_what_is_needed() -> None:
    graph = parse_graph(
        """
        graph(%x : Tensor, %n : int):
          %three : int = prim::Constant[value=3]()
          %true : bool = prim::Constant[value=1]()
          %r : Tensor, %u : Tensor = prim::Loop(%three, %true, %x, %x)
            block0(%i : int, %c : Tensor, %v : Tensor):
              %one : int = prim::Constant[value=1]()
              %a : Tensor = aten::relu(%x)
              %b : Tensor = aten::relu(%x)
              %m : Tensor = aten::mul(%a, %b)
              %d : Tensor = aten::add(%c, %m, %one)
              %e : Tensor = aten::sub(%v, %m, %one)
              -> (%true, %d, %e)
          return (%r)""",
        resolve=resolve_node,
    )
    assert run(graph, "cleanup")
    wanted = """
        graph(%x : Tensor, %n : int):
          %three : int = prim::Constant[value=3]()
          %true : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
          %m : Tensor = aten::mul(%a, %a)
          %r : Tensor = prim::Loop(%three, %true, %x)
            block0(%i : int, %c : Tensor):
              %d : Tensor = aten::add(%c, %m, %one)
              -> (%true, %d)
          return (%r)"""
    assert_same_graph(graph, parse_graph(wanted, resolve=resolve_node))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_cleanup_keeps_the_meaning(program: Program) -> None:
    assert_keeps_meaning(lambda graph: run(graph, "cleanup"), program)


@pytest.mark.parametrize("name", ["aliasing_script", "containers", "loop_rnn", "lstm_script", "nms_postprocess"])
def test_cleanup_keeps_what_models_compute(name: str) -> None:
    module, inputs, _ = case(name)
    wanted = module(*copy.deepcopy(inputs))
    graph = module.inlined_graph.copy()
    before = sum(n.kind != "prim::Constant" for n in graph.all_nodes())
    assert run(graph, "cleanup")
    assert sum(n.kind != "prim::Constant" for n in graph.all_nodes()) < before
    got = run_graph(graph, module._object, *copy.deepcopy(inputs))
    assert_equal(got, wanted, name)


def test_the_documentation_names_every_pass_and_where_it_runs() -> None:
    for module in pkgutil.walk_packages(gpujit.passes.__path__, "gpujit.passes."):
        importlib.import_module(module.name)
    page = (Path(__file__).resolve().parents[2] / "docs" / "passes.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert set(PIPELINES) <= {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    where = {name: row.split("|")[3] for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    own = {name: p for name, p in PASSES.items() if p.run.__module__.startswith("gpujit.")}
    for name in own:
        assert name in where, f"{name} is not in docs/passes.md"
        told = where[name].strip().replace("; freezing", "")
        runs = [pipeline for pipeline, passes in PIPELINES.items() if name in {p.name for p in passes}]
        if told.startswith("all"):
            left_out = told.removeprefix("all but ").split(", ") if "but" in told else []
            wanted = [pipeline for pipeline in PIPELINES if pipeline not in left_out]
        else:
            wanted = [] if told.startswith("freezing") else [n for n in told.split(", ") if n]
        assert sorted(runs) == sorted(wanted), f"{name} runs in {runs}"
