"""A plain evaluator of graphs that lets a test look at every value after every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops import table
from gpujit.passes.analysis.effects import entry_of

Look = Callable[[Node, dict[Value, Any]], None]


def evaluate(graph: Graph, inputs: Sequence[Any], before: Look, after: Look) -> list[Any]:
    """The graph's results; ``before`` and ``after`` are called around each node with the latest value of everything.

    A node with blocks is looked at as well, around all that runs inside it.
    """
    env: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    _block(graph.block, env, before, after)
    return [env[v] for v in graph.outputs]


def _block(block: Block, env: dict[Value, Any], before: Look, after: Look) -> None:
    for node in block.nodes:
        before(node, env)
        results = _node(node, env, before, after)
        env.update(zip(node.outputs, results, strict=True))
        after(node, env)


def _node(node: Node, env: dict[Value, Any], before: Look, after: Look) -> Sequence[Any]:
    args = [env[v] for v in node.inputs]
    kind = node.kind
    if kind == "prim::Constant":
        return [node.attributes.get("value")]
    if kind == "prim::ListConstruct":
        return [list(args)]
    if kind == "prim::TupleConstruct":
        return [tuple(args)]
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(args[0])
    if kind == "prim::If":
        block = node.blocks[0 if args[0] else 1]
        _block(block, env, before, after)
        return [env[v] for v in block.returns]
    if kind == "prim::Loop":
        trips, running, *carried = args
        (block,) = node.blocks
        for i in range(trips):
            if not running:
                break
            env.update(zip(block.params, [i, *carried], strict=True))
            _block(block, env, before, after)
            running, *carried = [env[v] for v in block.returns]
        return carried
    op = entry_of(node)
    assert op is not None and op is table.by_full_name(op.full_name), kind
    result = op.kernel(np)(*args)
    if not node.outputs:
        return []
    return [result] if len(node.outputs) == 1 else list(result)
