"""Equal computations and equal constants, each kept once."""

from __future__ import annotations

from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.types import is_subtype
from gpujit.ir.values import Device, EnumValue
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import is_pure
from gpujit.passes.base import declined, graph_pass, may_change, spend
from gpujit.passes.nodes import loop_around

_SIMPLE = (bool, int, str, type(None), Device, EnumValue)


@graph_pass("cse")
def eliminate_common_subexpressions(graph: Graph) -> bool:
    """Replace a node by an equal one that ran before it, in its block or in one around it.

    Equal are nodes of one operator with equal attributes and the same inputs (constants: of equal value). They are left
    alone when what they read is written in between, when one of the results is written, and when two results that
    somebody could tell apart would become one.
    """
    return _Merger(graph).run()


class _Merger:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changes = 0
        self.stopped = False
        self._alias: AliasAnalysis | None = None
        # Lists and tensors may be compared by identity; it is rare enough to leave such graphs alone.
        self.compares_identity = any(
            node.kind in ("aten::__is__", "aten::__isnot__")
            and T.NONE not in (node.inputs[0].type, node.inputs[1].type)
            for node in graph.all_nodes()
        )

    @property
    def alias(self) -> AliasAnalysis:
        if self._alias is None:
            self._alias = AliasAnalysis(self.graph)
        return self._alias

    def run(self) -> bool:
        self.block(self.graph.block, {})
        return self.changes > 0

    def block(self, block: Block, around: dict[Any, list[Node]]) -> None:
        # What was computed around the block can be used in it, not the other way round.
        known = dict(around)
        for node in block.nodes:
            if self.stopped:
                return
            if node.blocks:
                for inner in node.blocks:
                    self.block(inner, known)
                continue
            key = _key(node)
            if key is None:
                continue
            earlier = known.get(key, ())
            if not any(self.merge(other, node) for other in earlier):
                known[key] = [*earlier, node]

    def merge(self, first: Node, second: Node) -> bool:
        if not may_change(uncounted=min(self.changes, 1)):
            self.stopped = True
            return False
        reason = self.reason_against(first, second)
        if reason is not None:
            declined("cse", second, reason)
            return False
        if self.changes:
            spend()
        self.changes += 1
        for kept, dropped in zip(first.outputs, second.outputs, strict=True):
            if self._alias is not None:
                self._alias.replaced(dropped, kept)
            if first.block is second.block and is_subtype(dropped.type, kept.type):
                kept.type = dropped.type
            dropped.replace_all_uses_with(kept)
        second.destroy()
        return True

    def reason_against(self, first: Node, second: Node) -> str | None:
        for kept, dropped in zip(first.outputs, second.outputs, strict=True):
            narrows = first.block is second.block and is_subtype(dropped.type, kept.type)
            if not is_subtype(kept.type, dropped.type) and not narrows:
                return f"its type {dropped.type} is not that of the equal node, {kept.type}"
        alias = self.alias
        for value in first.inputs:
            if alias.is_written_between(value, first, second):
                return f"{value!r} may be written between it and an equal node"
        for kept, dropped in zip(first.outputs, second.outputs, strict=True):
            if not alias.has_memory(dropped):
                continue
            if self.compares_identity:
                return "the graph compares objects by identity"
            if alias.is_written_after(kept, first) or alias.is_written_after(dropped, second):
                return "its result or that of the equal node is written"
            if alias.makes_escaping(second) and (alias.escapes(kept) or loop_around(first) is not loop_around(second)):
                return "its result may leave the graph, as may that of the equal node"
        return None


def _key(node: Node) -> Any:
    """Equal for nodes that compute the same; None for those that are not to be merged."""
    if node.kind in ("prim::Constant", "prim::Uninitialized") or not node.outputs:
        return None
    attributes = []
    for name, value in sorted(node.attributes.items()):
        if not isinstance(value, _SIMPLE):
            return None
        attributes.append((name, type(value), value))
    if not is_pure(node):
        return None
    inputs = tuple(constant_key(v) if v.is_constant else v for v in node.inputs)
    named = node.outputs[0].type if node.kind in ("prim::ListConstruct", "prim::DictConstruct") else None
    # A schema cannot be hashed: defaults may be lists.
    overload = None if node.schema is None else node.schema.overload
    return (node.kind, overload, tuple(attributes), inputs, named)


def constant_key(value: Value) -> Any:
    """Equal for constants that nobody can tell apart; objects that can be changed are equal to themselves only."""
    return (value.type, _frozen(value.constant()))


@graph_pass("pool_constants")
def pool_constants(graph: Graph) -> bool:
    """Move all constants to the top of the graph and keep one of those that are equal, in the order of their first
    appearance. Arrays, lists and objects are equal to themselves only."""
    found = [node for node in graph.all_nodes() if node.kind == "prim::Constant"]
    known: dict[Any, Node] = {}
    changed = False
    for node in found:
        kept = known.setdefault(constant_key(node.output), node)
        if kept is not node:
            node.output.replace_all_uses_with(kept.output)
            node.destroy()
            changed = True
    place = graph.block.param_node.next
    assert place is not None
    for node in known.values():
        if node is place:
            assert place.next is not None
            place = place.next
        else:
            node.move_before(place)
            changed = True
    return changed


def _frozen(value: Any) -> Any:
    if isinstance(value, float):
        # 0.0 is not -0.0, and NaN is NaN.
        return (float, repr(value))
    if isinstance(value, complex):
        return (complex, repr(value))
    if isinstance(value, _SIMPLE):
        return (type(value), value)
    if isinstance(value, tuple):
        return (type(value), *map(_frozen, value))
    return _Same(value)


class _Same:
    """Equal to another one of the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
