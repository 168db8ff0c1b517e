"""Alias analysis: never denies sharing or a write that happens, and does tell apart what it can."""

from __future__ import annotations

import copy
import time
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.parser import parse_graph
from gpujit.passes.alias import AliasAnalysis
from gpujit.passes.effects import resolve_node
from tests.passes.random_graphs import Program, arrays_in, lists_in, programs, run_graph, share_memory
from tests.passes.tracing import evaluate


def read(text: str, **options: Any) -> tuple[Graph, AliasAnalysis, dict[str, Value]]:
    """A graph, its analysis, and its values by name."""
    graph = parse_graph(text, resolve=resolve_node, **options)
    values = {v.name: v for v in graph.inputs}
    for node in graph.all_nodes():
        values.update((v.name, v) for v in node.outputs)
        for block in node.blocks:
            values.update((v.name, v) for v in block.params)
    return graph, AliasAnalysis(graph), values


def state(value: Any) -> Any:
    """What a value contains, to see whether it changed: bytes of arrays, which objects a list holds."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (list, tuple)):
        return [(id(v), state(v)) if isinstance(value, list) else state(v) for v in value]
    return value


# ---------------------------------------------------------------------------------------------------- soundness


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_denies_nothing_that_happens(program: Program) -> None:
    analysis = AliasAnalysis(program.graph)
    states: list[dict[Value, Any]] = []

    def before(node: Node, env: dict[Value, Any]) -> None:
        states.append({v: state(x) for v, x in env.items()})

    def after(node: Node, env: dict[Value, Any]) -> None:
        for value, old in states.pop().items():
            if value in node.outputs or (node.blocks and not is_visible(value, node)):
                continue
            if state(env[value]) != old:
                assert analysis.may_write(node, value), f"{node} wrote {value!r} in\n{program}"
                assert analysis.is_written(value) and analysis.writes(node)
        for output in node.outputs:
            for value, x in env.items():
                if value is not output and share_memory(env[output], x):
                    assert analysis.may_alias(output, value), f"{output!r} shares {value!r} in\n{program}"
                    if (
                        value in program.graph.inputs
                        and isinstance(x, np.ndarray)
                        and isinstance(env[output], np.ndarray)
                    ):
                        assert not analysis.is_fresh(output), f"{output!r} is not fresh in\n{program}"

    results = evaluate(program.graph, copy.deepcopy(program.inputs), before, after)
    for value, result in zip(program.graph.outputs, results, strict=True):
        assert not (arrays_in(result) or lists_in(result)) or analysis.escapes(value)
    plain = run_graph(program.graph, *copy.deepcopy(program.inputs))
    plain = list(plain) if len(results) != 1 else [plain]
    for got, wanted in zip(results, plain, strict=True):
        np.testing.assert_equal(got, wanted)


def is_visible(value: Value, node: Node) -> bool:
    """Whether a value is defined outside the node."""
    block = value.node.block
    while block is not None and block.owner is not None:
        if block.owner is node:
            return False
        block = block.owner.block
    return True
