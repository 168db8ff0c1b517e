"""Attributes that are read between native steps: in one run with both of them, and after what was written before."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpujit
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.config import config
from tests.static_runtime.help import CORPUS, f32

FLOAT = 6


def loaded() -> Any:
    """An object with tensors ``w`` [6, 4] and ``wt`` [4, 6]."""
    return gpujit.load(CORPUS / "aliasing_script.pt")._object


def emit(graph: Graph, name: str, inputs: list[Value], shape: tuple[int, ...]) -> Value:
    op = table.by_full_name(name)
    assert op is not None
    node = Node(op.name, inputs)
    node.schema = op.schema
    graph.block.append(node)
    return node.add_output(TensorType(FLOAT, shape))


def read(graph: Graph, owner: Value, name: str, shape: tuple[int, ...]) -> Value:
    node = Node("prim::GetAttr", [owner], {"name": name})
    graph.block.append(node)
    return node.add_output(TensorType(FLOAT, shape))


def test_reading_does_not_cut_a_run() -> None:
    module = loaded()
    graph = Graph("reading")
    owner, x = graph.add_input(module.type), graph.add_input(TensorType(FLOAT, (3, 4)))
    y = emit(graph, "aten::mm", [x, read(graph, owner, "wt", (4, 6))], (3, 6))
    graph.add_output(emit(graph, "aten::mm", [y, read(graph, owner, "w", (6, 4))], (3, 4)))
    static = PlannedGraph(graph, {}, Lowerer(np))
    given = f32(3, 4)
    values = [module, given]
    for check in (True, False):
        with config(check_plan=check):
            got = static.run(values)
    assert len(static.plan(values).segments) == 1
    np.testing.assert_allclose(got, given @ attribute(module, "wt") @ attribute(module, "w"), rtol=1e-4, atol=1e-5)


def test_what_was_written_is_read() -> None:
    module = loaded()
    graph = Graph("writing")
    owner, x = graph.add_input(module.type), graph.add_input(TensorType(FLOAT, (6, 4)))
    new = emit(graph, "aten::relu", [x], (6, 4))
    before = emit(graph, "aten::relu", [read(graph, owner, "w", (6, 4))], (6, 4))
    node = Node("prim::SetAttr", [owner, new], {"name": "w"})
    graph.block.append(node)
    after = emit(graph, "aten::neg", [read(graph, owner, "w", (6, 4))], (6, 4))
    graph.add_output(before)
    graph.add_output(after)
    static = PlannedGraph(graph, {}, Lowerer(np))
    old = attribute(module, "w").copy()
    for k in range(3):
        given = f32(6, 4, seed=k)
        first, second = static.run([module, given])
        np.testing.assert_array_equal(first, np.maximum(old, 0))
        np.testing.assert_array_equal(second, -np.maximum(given, 0))
        old = np.maximum(given, 0)


def attribute(owner: Any, name: str) -> np.ndarray:
    return np.asarray(owner.slots[list(owner.type.attributes).index(name)])
