"""Orders of dimensions that follow one another, made one or none: ``transpose``, ``permute``, ``t`` and relatives."""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, ints_before, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, rank_of, remove_unread

_SWAPS = ("aten::transpose.int", "aten::swapaxes", "aten::swapdims")


@graph_pass("peephole_permutes")
def join_permutes(graph: Graph) -> bool:
    """Make one reordering of dimensions out of two, and none where they cancel.

    All of them are views, so the result shares memory with the same tensor as before.
    """
    orders = [(node, _order(node)) for node in graph.all_nodes()]
    found = [(node, order) for node, order in orders if order is not None]
    alias: AliasAnalysis | None = None
    changed = False
    for node, order in found:
        source, whole, inner = node.inputs[0], order, node.inputs[0].node
        previous = _order(inner)
        if previous is not None:
            source, whole = inner.inputs[0], tuple(previous[d] for d in order)
        elif order != tuple(range(len(order))):
            continue
        alias = alias or AliasAnalysis(graph)
        tensors = [v for v in (source, node.inputs[0], node.output) if alias.is_written(v)]
        if tensors:
            # A writer may change the order of dimensions in place.
            declined("peephole_permutes", node, f"{tensors[0]!r} may be written")
            continue
        result = _reordered(node, source, whole)
        alias.replaced(node.output, result)
        replace_node(node, [result])
        if previous is not None:
            remove_unread([inner])
        changed = True
    return changed


def _order(node: Node) -> tuple[int, ...] | None:
    """The input's dimension that each dimension of the result is; None for other operators and unknown ranks."""
    name = full_name(node)
    if name not in _KINDS:
        return None
    rank = rank_of(node.inputs[0])
    if rank is None:
        # Each of these tells nothing about the rank but permute, whose list is as long.
        listed = constant_of(node.inputs[1]) if name == "aten::permute" else None
        rank = len(listed) if isinstance(listed, list) else None
        if rank is None:
            return None
    order = list(range(rank))
    if name == "aten::permute":
        wanted = constant_of(node.inputs[1])
        if not isinstance(wanted, list) or not rank or not _are_dims(wanted, rank):
            return None
        found = tuple(d % rank for d in wanted)
        return found if sorted(found) == order else None
    if name in _SWAPS:
        pair = [constant_of(v) for v in node.inputs[1:3]]
        if not rank or not _are_dims(pair, rank):
            return None
        a, b = (d % rank for d in pair)
    elif name == "aten::t" and rank == 2:
        a, b = 0, 1
    elif name == "aten::mT" and rank >= 2:
        a, b = rank - 2, rank - 1
    elif name == "aten::numpy_T" and rank:
        return tuple(reversed(order))
    else:
        return None
    order[a], order[b] = order[b], order[a]
    return tuple(order)


_KINDS = frozenset(("aten::permute", "aten::t", "aten::mT", "aten::numpy_T", *_SWAPS))


def _are_dims(dims: Sequence[object], rank: int) -> bool:
    return all(type(d) is int and -rank <= d < rank for d in dims)


def _reordered(node: Node, source: Value, order: tuple[int, ...]) -> Value:
    """``source`` with its dimensions in that order, in the place of ``node``."""
    moved = [d for d, e in enumerate(order) if d != e]
    if not moved:
        return source
    if len(moved) == 2:
        dims = [constant_before(node, d, T.INT) for d in moved]
        return insert_op(node, "aten::transpose.int", (source, *dims), node)
    return insert_op(node, "aten::permute", (source, ints_before(node, order)), node)
