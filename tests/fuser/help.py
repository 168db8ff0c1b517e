"""Graphs to fuse, from text, and both ways to run them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.fuser import cost
from gpujit.fuser.fuse import FUSION_GROUP, Fused, fuse
from gpujit.ir.graph import Graph, Node
from gpujit.ir.parser import parse_graph
from gpujit.ir.verify import verify
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.infer.main import infer_types
from gpujit.runtime.fused import FusedStep
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter

TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}


def read(text: str, constants: Sequence[Any] = ()) -> Graph:
    """A graph from text, with the types that follow from those of its inputs."""
    graph = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node, constants=constants)
    infer_types(graph)
    return graph


def groups_of(graph: Graph) -> list[Node]:
    """The graph's groups, in order."""
    return [n for n in graph.all_nodes() if n.kind == FUSION_GROUP]


def operators_in(node: Node) -> list[str]:
    """Names of a group's operators, in order."""
    return [n.kind.partition("::")[2] for n in node.attributes["Subgraph"].nodes if n.kind.startswith("aten::")]


def shape_of_fusion(graph: Graph) -> list[Any]:
    """What the top block runs: operators by name, groups as lists of their operators' names."""
    found: list[Any] = []
    for node in graph.nodes:
        if node.kind == FUSION_GROUP:
            found.append(operators_in(node))
        elif node.kind.startswith("aten::"):
            found.append(node.kind.partition("::")[2])
    return found


def run(graph: Graph, fused: Fused | None, inputs: Sequence[Any], strict: bool = True) -> Any:
    """The graph's results, its groups run by their kernels."""
    lowerer = Lowerer(np)
    if fused is not None:

        def refuse(*operands: Any) -> Any:
            raise AssertionError("a group ran unfused")

        lowerer.fused = {n: FusedStep(p, refuse, n, strict) for n, p in fused.programs.items()}
    with np.errstate(all="ignore"):
        return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def assert_close(got: Any, want: Any, where: str = "") -> None:
    """Check that results have one structure, shapes and dtypes, and equal numbers (nearly, for floats)."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, where)
        return
    if not isinstance(want, np.ndarray):
        assert got == want, where
        return
    assert got.shape == want.shape and got.dtype == want.dtype, (
        f"{got.dtype}{got.shape} {want.dtype}{want.shape}\n{where}"
    )
    limit = TOLERANCE.get(str(want.dtype))
    if limit is None:
        np.testing.assert_array_equal(got, want, err_msg=where)
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit, equal_nan=True, err_msg=where)


def check(text: str, *inputs: Any, groups: int = 1, constants: Sequence[Any] = (), free: bool = True) -> Graph:
    """The fused graph, once it was seen to compute what it did before.

    ``free``: as if calls of operators cost very much, so that small tests fuse what large graphs do.
    """
    graph = read(text, constants)
    want = run(graph, None, [np.array(x) if isinstance(x, np.ndarray) else x for x in inputs])
    result = fuse_free(graph) if free else fuse(graph)
    verify(graph)
    got = run(graph, result, [np.array(x) if isinstance(x, np.ndarray) else x for x in inputs])
    told = "\n".join(
        [str(graph), *(r.reason for r in result.refusals), *(str(p.program) for p in result.programs.values())]
    )
    assert_close(got, want, told)
    assert len(groups_of(graph)) == groups, told
    return graph


def fuse_free(graph: Graph) -> Fused:
    """Fuse as if calls of operators cost very much."""
    before = cost.OPERATOR
    cost.OPERATOR = 1e9
    try:
        return fuse(graph)
    finally:
        cost.OPERATOR = before


def array(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Numbers around 0."""
    rng = np.random.default_rng(seed + sum(shape))
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
