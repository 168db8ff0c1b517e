"""In which order the dims of an elementwise result lie in memory: that of its operands, by PyTorch's rule.

A result over dense operands that are all permuted alike lies as they do, so nothing is transposed. Groups follow their
nodes one by one, views in between included. What reads a result decides whether it may lie so: elementwise operators
and groups of them, views that are the same whatever the strides are, and the caller do not mind; for everything else
results are contiguous, so that nothing is refused, or copied, which would not be were they contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Fact
from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.tensors import is_tensor
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.ops.registry import Op
from gpujit.passes.analysis.effects import entry_of
from gpujit.static_runtime.places import LARGEST, Place, Strides, contiguous, facts_of, stand_in
from gpujit.support.errors import GpujitError

# MemoryFormat's number for an operand's own order.
_PRESERVE = 1
# What only holds what a graph returns.
_HOLDERS = ("prim::TupleConstruct", "prim::ListConstruct")


def dense_strides(shape: Sequence[int], itemsize: int, operands: Sequence[Strides]) -> Strides:
    """Strides of a new tensor without gaps whose dims are in the order of its operands' strides.

    The first operand to tell two dims apart decides; dims that none tells apart keep their order. Operands are strides
    along the dims of ``shape``, 0 where they are broadcast. Source: ``reorder_dimensions`` of PyTorch's TensorIterator.
    """
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            inner, outer = order[before], order[at]
            way = _compared(inner, outer, shape, operands)
            if way > 0:
                order[before], order[at] = outer, inner
                at = before
            elif way < 0:
                break
    found, step = [0] * len(shape), itemsize
    for d in order:
        found[d] = step
        step *= max(shape[d], 1)
    return tuple(found)


def _compared(a: int, b: int, shape: Sequence[int], operands: Sequence[Strides]) -> int:
    """Above 0 when dim a lies outside of dim b, below when inside, 0 when nothing says so."""
    for strides in operands:
        x, y = abs(strides[a]), abs(strides[b])
        if not x or not y:
            continue
        if x != y:
            return 1 if x > y else -1
        if shape[a] > shape[b]:
            return 1
    return 0


def strides_of(value: Value, place_of: Callable[[Value], Place | None]) -> Strides | None:
    """Strides of a node's result that lies in its operands' order; None when it is to be contiguous.

    Args:
        place_of: where tensors lie that are known already.
    """
    node, facts = value.node, facts_of(value)
    if facts is None or 0 in facts[0] or len(facts[0]) < 2:
        return None
    operands = [place_of(v) for v in node.inputs]
    is_mixed = any(p is not None and not p.lies_together for p in operands)
    inner = node.attributes.get(SUBGRAPH) if node.kind == FUSION_GROUP else None
    result = None
    if isinstance(inner, Graph):
        if is_mixed or _has_views(inner):
            result = _of_group(inner, operands)[value.index]
    elif is_mixed and is_elementwise(node):
        result = _of_node(node, operands)
    if result is None or result.lies_together or not _may_be_permuted(value):
        return None
    return result.strides


def is_elementwise(node: Node) -> bool:
    """Whether each element of a node's only result follows from one element of each operand, in no order of its own."""
    fact = Fact(node)
    op = fact.functional
    if op is None or fact.op is None or fact.op.form != "functional" or len(node.outputs) != 1:
        return False
    try:
        if op.kind != "pointwise" and (fact.rows is None or fact.axes):
            return False
        names = [a.name for a in fact.op.schema.arguments]
        formats = [x for name, x in zip(names, fact.arguments, strict=False) if name == "memory_format"]
    except NotFused:
        return False
    return all(x is None or x == _PRESERVE for x in formats)


# Through a node, and a group ------------------------------------------------------------------------------------------


def _of_node(node: Node, operands: Sequence[Place | None]) -> Place | None:
    """The result of an elementwise node; None when an operand's place is not known."""
    facts = facts_of(node.output)
    if facts is None or any(p is None and is_tensor(v) for v, p in zip(node.inputs, operands, strict=True)):
        return None
    shape, dtype = facts
    along = [_along(p, shape) for i, p in enumerate(operands) if p is not None and _is_read(node, i)]
    return Place(node.output, 0, dense_strides(shape, dtype.itemsize, along), shape, dtype)


def _is_read(node: Node, index: int) -> bool:
    """Whether an elementwise node reads an operand's elements: of some it asks for the dtype alone, which may be of any
    shape."""
    try:
        return index in Fact(node).template.leaves
    except NotFused:
        return True


def _along(operand: Place, shape: Sequence[int]) -> Strides:
    """An operand's strides along the dims of a result that it is broadcast to."""
    more = len(shape) - len(operand.shape)
    own = zip(operand.strides, operand.shape, shape[more:], strict=True)
    return (*(0,) * more, *(0 if k == 1 and n != 1 else s for s, k, n in own))


def _of_group(graph: Graph, operands: Sequence[Place | None]) -> list[Place | None]:
    """The results of a group of elementwise nodes and views; None for those that are to be contiguous."""
    places: dict[Value, Place] = {v: p for v, p in zip(graph.inputs, operands, strict=True) if p is not None}
    for node in graph.nodes:
        if not node.inputs and node.kind == "prim::Constant":
            array = node.attributes.get("value")
            if isinstance(array, np.ndarray):
                places[node.output] = Place(node.output, 0, array.strides, array.shape, array.dtype)
        elif node.kind in _HOLDERS:
            continue
        elif is_elementwise(node):
            found = _of_node(node, [places.get(v) for v in node.inputs])
            if found is None:
                return [None] * len(graph.outputs)
            places[node.output] = found
        else:
            seen = _seen(node, places.get(node.inputs[0])) if node.inputs else None
            if seen is None or len(seen[1]) != len(node.outputs):
                return [None] * len(graph.outputs)
            for value, y in zip(node.outputs, seen[1], strict=True):
                places[value] = Place(value, 0, y.strides, y.shape, y.dtype)
    return [places.get(v) for v in graph.outputs]


def _seen(node: Node, base: Place | None) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Memory that nobody fills for a view's operand, and its results, which may be copies; None when it is no view, or
    refuses the operand."""
    op = entry_of(node)
    if base is None or op is None or op.kind != "view" or op.form != "functional" or base.nbytes > LARGEST:
        return None
    memory, x = stand_in(base.shape, base.strides, base.dtype)
    try:
        found = op.kernel(np)(x, *_others(node, op))
    except (GpujitError, NotFused):
        return None
    return memory, list(found) if isinstance(found, (list, tuple)) else [found]


def _others(node: Node, op: Op) -> list[Any]:
    """What is behind a view's first argument, with stand-ins for tensors whose shape alone matters. Raises NotFused for
    others."""
    found = []
    for i, argument in enumerate(Fact(node).arguments[1:], 1):
        facts = facts_of(argument) if isinstance(argument, Value) else None
        if facts is not None and not op.asks_for_shape(i):
            raise NotFused(f"{op.full_name} reads the elements of an argument")
        found.append(argument if facts is None else np.broadcast_to(np.zeros((), facts[1]), facts[0]))
    return found


def _has_views(graph: Graph) -> bool:
    return any((op := entry_of(n)) is not None and op.kind == "view" for n in graph.nodes)


# Who reads a result ---------------------------------------------------------------------------------------------------


def _may_be_permuted(value: Value) -> bool:
    """Whether nobody who reads a tensor minds how it lies."""
    return all(_takes_any_order(use.node, value) for use in value.uses)


def _takes_any_order(node: Node, value: Value) -> bool:
    if node is node.graph.block.return_node:
        return True
    inner = node.attributes.get(SUBGRAPH) if node.kind == FUSION_GROUP else None
    if isinstance(inner, Graph):
        own = [n for n in inner.nodes if n.kind != "prim::Constant" and n.kind not in _HOLDERS]
        return all(is_elementwise(n) or _is_free(n) for n in own)
    if node.kind in _HOLDERS:
        return all(use.node is node.graph.block.return_node for use in node.output.uses)
    if is_elementwise(node):
        return True
    return node.inputs[0] is value and _is_free(node) and all(map(_may_be_permuted, node.outputs))


def _is_free(node: Node) -> bool:
    """Whether a node is a view of tensors that never copies or refuses one for its strides."""
    facts = facts_of(node.inputs[0]) if node.inputs else None
    if facts is None or not all(map(facts_of, node.outputs)):
        return False
    shape, dtype = facts
    apart = tuple(2 * s for s in contiguous(shape[::-1], dtype)[::-1])
    seen = _seen(node, Place(node.inputs[0], 0, apart, shape, dtype))
    return seen is not None and all(not y.size or np.may_share_memory(seen[0], y) for y in seen[1])
