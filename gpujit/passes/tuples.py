"""Tuples taken apart: what is read from a tuple is read from where it was put in.

Ifs and loops hand on a tuple's elements one by one. What the graph takes and returns keeps its type.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import graph_pass
from gpujit.passes.nodes import constant_before, like


@graph_pass("lower_tuples")
def lower_tuples(graph: Graph) -> bool:
    """Read elements of tuples from where they come, and let ifs and loops hand on elements instead of tuples."""
    changed = False
    # Each round takes one level of nested tuples apart.
    while _round(graph):
        changed = True
    return changed


def _round(graph: Graph) -> bool:
    handed_on = _handed_on(graph)
    for node, k in handed_on:
        if node.kind == "prim::If":
            _split_if(node, k)
        else:
            _split_loop(node, k)
    changed = bool(handed_on)
    for node in list(graph.all_nodes()):
        if node.kind in _READERS:
            changed |= _READERS[node.kind](node)
    return changed


# -------------------------------------------------------------------------------------------------------- readers


def elements_of(value: Value, place: Node) -> Sequence[Value] | None:
    """What a tuple was made of, readable at ``place``; None when that is not known."""
    node = value.node
    if node.kind == "prim::TupleConstruct":
        return node.inputs
    if node.kind == "prim::Constant" and isinstance(value.type, T.TupleType):
        items = node.attributes.get("value")
        if isinstance(items, tuple):
            return [constant_before(place, x, t) for x, t in zip(items, value.type.elements, strict=True)]
    return None


def replace_value(old: Value, new: Value) -> None:
    """Make everyone read ``new``, the same run-time value: what is known of the type of ``old`` holds for it too."""
    both = isinstance(old.type, T.TensorType) and isinstance(new.type, T.TensorType)
    if both and new.type != old.type and T.is_subtype(old.type, new.type) and new not in new.node.graph.inputs:
        new.type = old.type
    old.replace_all_uses_with(new)


def _unpack(node: Node) -> bool:
    parts = elements_of(node.inputs[0], node)
    if parts is None:
        return False
    for output, part in zip(node.outputs, list(parts), strict=True):
        replace_value(output, part)
    node.destroy()
    return True


def _index(node: Node) -> bool:
    source, index = node.inputs
    if not isinstance(source.type, T.TupleType) or not index.is_constant:
        return False
    count = len(source.type.elements)
    if not -count <= index.constant() < count:
        return False
    parts = elements_of(source, node)
    if parts is None:
        return False
    replace_value(node.output, parts[index.constant()])
    node.destroy()
    return True


def _slice(node: Node) -> bool:
    parts = elements_of(node.inputs[0], node)
    if parts is None:
        return False
    chosen = list(parts)[node.attributes["beg"] : node.attributes["end"]]
    node.output.replace_all_uses_with(_make(chosen, node.output.type, node))
    node.destroy()
    return True


_READERS = {"prim::TupleUnpack": _unpack, "prim::TupleIndex": _index, "prim::TupleSlice": _slice}


def _make(parts: Sequence[Value], type_: T.Type, before: Node) -> Value:
    return like(Node("prim::TupleConstruct", parts), before).insert_before(before).add_output(type_)


# -------------------------------------------------------------------------------------------------- ifs and loops


def _handed_on(graph: Graph) -> list[tuple[Node, int]]:
    """Ifs and loops with positions of outputs that are tuples and may come apart; the last position of each first."""
    found: dict[Value, tuple[Node, int]] = {}
    given: dict[Value, list[Value]] = {}
    for node in graph.all_nodes():
        if node.kind not in ("prim::If", "prim::Loop"):
            continue
        for k in reversed(range(len(node.outputs))):
            out = node.outputs[k]
            if not isinstance(out.type, T.TupleType):
                continue
            if node.kind == "prim::If":
                given[out] = [block.returns[k] for block in node.blocks]
            else:
                (body,) = node.blocks
                param = body.params[k + 1]
                if param.type != out.type:
                    continue
                given[out] = [node.inputs[k + 2], body.returns[k + 1]]
                given[param] = [out]
            found[out] = (node, k)
    # All are thought to come apart until one is given what does not.
    while True:
        kept = {v: g for v, g in given.items() if all(x in given or _can_split(x) for x in g) and _same_class(v, g)}
        if len(kept) == len(given):
            return [found[v] for v in kept if v in found]
        given = kept


def _can_split(value: Value) -> bool:
    """Whether a value certainly holds elements: what an if or a loop hands on may not have been initialised."""
    node = value.node
    is_carried = node.kind == "prim::Param" and node.block is not None and node.block.owner is not None
    return node.kind not in ("prim::If", "prim::Loop") and not is_carried


def _same_class(value: Value, given: Sequence[Value]) -> bool:
    """Whether the values are tuples, or NamedTuples of just one class."""
    t = value.type
    assert isinstance(t, T.TupleType)
    return all(isinstance(v.type, T.TupleType) and (v.type.name, v.type.fields) == (t.name, t.fields) for v in given)


def _split_if(node: Node, k: int) -> None:
    out = node.outputs[k]
    assert isinstance(out.type, T.TupleType)
    for block in node.blocks:
        for part in _parts(block.returns[k], block.return_node):
            block.add_return(part)
        block.return_node.remove_input(k)
    _replace_by_tuple(out, [node.add_output(t) for t in out.type.elements], _following(node))
    node.remove_output(k)


def _split_loop(node: Node, k: int) -> None:
    (body,) = node.blocks
    out, param = node.outputs[k], body.params[k + 1]
    assert isinstance(out.type, T.TupleType)
    elements = out.type.elements
    for part in _parts(node.inputs[k + 2], node):
        node.add_input(part)
    node.remove_input(k + 2)
    params = [body.add_param(t) for t in elements]
    _replace_by_tuple(param, params, next(body.nodes, body.return_node))
    for part in _parts(body.returns[k + 1], body.return_node):
        body.add_return(part)
    body.return_node.remove_input(k + 1)
    body.param_node.remove_output(k + 1)
    _replace_by_tuple(out, [node.add_output(t) for t in elements], _following(node))
    node.remove_output(k)


def _following(node: Node) -> Node:
    assert node.next is not None
    return node.next


def _replace_by_tuple(old: Value, parts: Sequence[Value], before: Node) -> None:
    if old.uses:
        old.replace_all_uses_with(_make(parts, old.type, before))


def _parts(value: Value, place: Node) -> list[Value]:
    """The elements of a tuple, taken apart before ``place`` when they are not at hand."""
    assert isinstance(value.type, T.TupleType)
    found = elements_of(value, place)
    if found is not None:
        return list(found)
    if value.node.kind == "prim::Uninitialized":
        return [
            like(Node("prim::Uninitialized"), place).insert_before(place).add_output(t) for t in value.type.elements
        ]
    unpack = like(Node("prim::TupleUnpack", (value,)), place).insert_before(place)
    return [unpack.add_output(t) for t in value.type.elements]
