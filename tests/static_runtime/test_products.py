"""Matrix products as native steps, over layouts and constants; what is left to the library."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir.graph import Graph, Node
from gpujit.ir.types import NONE, TensorType
from gpujit.kernels.templates import packs
from gpujit.ops import table
from gpujit.passes.nodes import infer_types
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.config import config
from tests.static_runtime.help import f32, run_graph

CODES = {"float32": 6, "float64": 7, "bool": 11}


def graph_of(name: str, arguments: list[Any], constants: set[int] = frozenset()) -> tuple[Graph, list[Any]]:  # type: ignore[assignment]
    """A graph of one operator; arrays are its inputs unless their position is among ``constants``."""
    op = table.by_full_name(name)
    assert op is not None
    graph = Graph("product")
    inputs, given = [], []
    for k, x in enumerate(arguments):
        if isinstance(x, np.ndarray):
            t = TensorType(CODES[str(x.dtype)], x.shape)
            if k in constants:
                inputs.append(graph.constant(x, t))
            else:
                inputs.append(graph.add_input(t))
                given.append(x)
        else:
            inputs.append(graph.constant(x, NONE if x is None else op.schema.arguments[k].type))
    node = Node(op.name, inputs)
    node.schema = op.schema
    graph.block.append(node)
    node.add_output(infer_types_of(node))
    graph.add_output(node.output)
    return graph, given


def infer_types_of(node: Node) -> Any:
    op = table.by_full_name(node.schema.full_name)  # type: ignore[union-attr]
    node.add_output()
    (found,) = infer_types(node, op)
    node.remove_output(0)
    return found


def check(name: str, arguments: list[Any], constants: set[int] = frozenset()) -> bool:  # type: ignore[assignment]
    """Whether the product is a native step; either way its result is the interpreter's."""
    graph, given = graph_of(name, arguments, constants)
    wanted = run_graph(graph, given)
    module = PlannedGraph(graph, {}, Lowerer(np))
    with config(check_plan=True):
        got = module.run(given)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    return module.explain().splitlines()[-1].startswith("native")


def laid_out(order: str, *shape: int, seed: int = 0) -> np.ndarray:
    """An array with memory of another order, or a part of a larger one."""
    x = f32(*shape, seed=seed)
    if order == "turned":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if order == "outer":
        return np.ascontiguousarray(x.swapaxes(0, -2)).swapaxes(0, -2)
    if order == "part":
        room = np.zeros((*shape[:-1], shape[-1] + 3), np.float32)
        room[..., 1:-2] = x
        return room[..., 1:-2]
    return x


LAYOUTS = st.sampled_from(["", "turned", "outer", "part"])
SIZES = st.integers(1, 9)


@given(st.lists(SIZES, min_size=1, max_size=3), SIZES, SIZES, LAYOUTS, LAYOUTS, st.booleans(), st.booleans())
@settings(max_examples=60)
def test_linear(rows: list[int], k: int, n: int, left: str, right: str, has_bias: bool, constant: bool) -> None:
    x = laid_out(left, *rows, k) if len(rows) > 1 or left != "outer" else f32(*rows, k)
    w = laid_out(right, n, k, seed=1)
    bias = f32(n, seed=2) if has_bias else None
    is_native = check("aten::linear", [x, w, bias], {1, 2} if constant else {2})
    assert is_native or not constant or len(rows) == 3


@given(st.sampled_from([(), (3,), (2, 3)]), SIZES, SIZES, SIZES, LAYOUTS, LAYOUTS)
@settings(max_examples=60)
def test_matmul_of_pairs(batch: tuple[int, ...], m: int, k: int, n: int, left: str, right: str) -> None:
    check("aten::matmul", [laid_out(left, *batch, m, k), laid_out(right, *batch, k, n, seed=1)])


def test_attention_reads_heads_where_they_lie() -> None:
    # [batch, tokens, heads, size], seen as [batch, heads, tokens, size].
    q, k = (f32(2, 7, 3, 5, seed=s).transpose(0, 2, 1, 3) for s in (0, 1))
    assert check("aten::matmul", [q, k.transpose(0, 1, 3, 2)])
    assert check("aten::matmul", [f32(2, 3, 7, 7), k])


@pytest.mark.parametrize("weights", [set(), {1}])
def test_one_matrix_for_a_batch(weights: set[int]) -> None:
    assert check("aten::matmul", [f32(4, 6, 5), f32(5, 7, seed=1)], weights)
    assert check("aten::matmul", [laid_out("outer", 4, 6, 5), f32(5, 7, seed=1)], weights)


def test_bmm_and_mm() -> None:
    assert check("aten::bmm", [f32(4, 6, 5), f32(4, 5, 7, seed=1)])
    assert check("aten::mm", [f32(6, 5), f32(5, 7, seed=1)], {1})
    assert check("aten::mm", [f32(6, 5), f32(5, 7, seed=1)], {0})


def test_addmm() -> None:
    x, w, bias = f32(6, 5), f32(5, 7, seed=1), f32(7, seed=2)
    assert check("aten::addmm", [bias, x, w, 1, 1], {0, 2})
    assert not check("aten::addmm", [bias, x, w, 1, 2], {0, 2})
    assert not check("aten::addmm", [bias, x, w, 0, 1], {0, 2})
    assert not check("aten::addmm", [f32(6, 7, seed=2), x, w, 1, 1], {0, 2})
    assert not check("aten::addmm", [bias, x, w, 1, 1], {2})


def test_what_is_left_to_the_library() -> None:
    assert not check("aten::mm", [f32(6, 5).astype(np.float64), f32(5, 7).astype(np.float64)])
    assert not check("aten::mm", [f32(0, 5), f32(5, 7)])
    assert not check("aten::mm", [f32(6, 0), f32(0, 7)])
    assert not check("aten::matmul", [f32(5), f32(5, 7)])
    assert not check("aten::matmul", [f32(2, 4, 5), f32(1, 5, 7)])
    assert not check("aten::mm", [f32(1, 300), f32(300, 400)])
    assert check("aten::mm", [f32(1, 300), f32(300, 400)], {1})
    assert not check("aten::mm", [f32(6, 10)[:, ::2], f32(10, 14)[::2, ::2]])


def test_packed_weights_are_shared_and_go_with_the_weights() -> None:
    w = f32(64, 48)
    gc.collect()
    before = len(packs._packs)
    for rows in (3, 300):
        graph, given = graph_of("aten::linear", [f32(rows, 48), w, None], {1})
        first, second = PlannedGraph(graph, {}, Lowerer(np)), PlannedGraph(graph, {}, Lowerer(np))
        np.testing.assert_array_equal(first.run(given), second.run(given))
        packed = [s.kernel.owner.constants["b"] for m in (first, second) for s in m.plan(given).segments[0].steps]  # type: ignore[attr-defined]
        assert packed[0] is packed[1]
    assert len(packs._packs) > before
    del graph, first, second, w, packed
    gc.collect()
    assert len(packs._packs) == before
