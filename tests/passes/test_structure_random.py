"""Passes over the structure of programs keep the meaning of random ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from gpujit.ir.graph import Graph
from gpujit.ir.verify import verify
from gpujit.passes.base import Pass
from gpujit.passes.control.blocks import nodes_of_kind
from gpujit.passes.control.exits import simplify_exits
from gpujit.passes.control.if_conversion import convert_ifs
from gpujit.passes.control.ifs import simplify_ifs
from gpujit.passes.control.loops import peel, unroll_constant_loops, unroll_loops
from gpujit.passes.fold import fold
from gpujit.passes.inline import inline
from tests.passes.flow_graphs import flows, trace
from tests.passes.random_graphs import Program, assert_keeps_meaning, assert_same_outcome, outcome, programs

PASSES = (inline, fold, simplify_ifs, simplify_exits, unroll_constant_loops, unroll_loops, convert_ifs)


@pytest.mark.parametrize("pass_", PASSES, ids=lambda p: p.name)
@settings(max_examples=40)
@given(program=programs())
def test_each_pass_keeps_meaning(pass_: Pass, program: Program) -> None:
    assert_keeps_meaning(pass_, program)


@settings(max_examples=40)
@given(programs())
def test_all_passes_one_after_another_keep_meaning(program: Program) -> None:
    graph = program.graph.copy()
    wanted = outcome(program.graph, program.inputs)
    for _ in range(2):
        for pass_ in PASSES:
            pass_(graph)
            verify(graph)
    assert_same_outcome(outcome(graph, program.inputs), wanted)


@settings(max_examples=40)
@given(programs())
def test_peeled_loops_keep_meaning(program: Program) -> None:
    graph = program.graph.copy()
    for loop in nodes_of_kind(graph, ("prim::Loop",)):
        peel(loop)
        verify(graph)
    assert_same_outcome(outcome(graph, program.inputs), outcome(program.graph, program.inputs))


@pytest.mark.parametrize("pass_", PASSES, ids=lambda p: p.name)
@settings(max_examples=12)
@given(graph=flows())
def test_each_pass_keeps_results_errors_and_effects_of_control_flow(pass_: Pass, graph: Graph) -> None:
    wanted, before = trace(graph), str(graph)
    changed = pass_(graph)
    verify(graph)
    after = str(graph)
    assert changed == (after != before)
    assert trace(graph) == wanted
    assert not pass_(graph), f"a second run changed\n{after}\nto\n{graph}"


@settings(max_examples=12)
@given(flows())
def test_all_passes_keep_results_errors_and_effects_of_control_flow(graph: Graph) -> None:
    wanted = trace(graph)
    for _ in range(2):
        for pass_ in PASSES:
            pass_(graph)
            verify(graph)
            assert trace(graph) == wanted, pass_.name


@settings(max_examples=12)
@given(flows())
def test_peeled_loops_keep_results_errors_and_effects(graph: Graph) -> None:
    wanted = trace(graph)
    for loop in nodes_of_kind(graph, ("prim::Loop",)):
        peel(loop)
    verify(graph)
    assert trace(graph) == wanted
