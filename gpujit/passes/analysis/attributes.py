"""What a module's methods do with its attributes: which they assign, which they write in place, which objects get away.

Objects are followed from ``self`` through ``prim::GetAttr``. An object used in any other way (put into a list,
returned, chosen by an if) has got away: somebody unseen may read or write all it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Use, Value, copy_node
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import QTensor, ScriptObject, SparseTensor
from gpujit.passes.analysis.alias import AliasAnalysis

GET, SET = "prim::GetAttr", "prim::SetAttr"
CUSTOM_CLASSES = "__torch__.torch.classes."
# An attribute of one object, the object by identity.
Key = tuple[int, str]

_IMMUTABLE = (T.INT, T.FLOAT, T.BOOL, T.COMPLEX, T.NUMBER, T.STR, T.NONE, T.DEVICE, T.QSCHEME, T.FUNCTION)


@dataclass(eq=False)
class Scope:
    """A graph, or the body of a fork in it, and the values in it that hold a known object."""

    graph: Graph
    objects: dict[Value, ScriptObject]


@dataclass(eq=False)
class AttributeFacts:
    """What all methods together do. ``kept`` are attributes to be left as they are for any of these reasons.

    ``assigned``: by SetAttr. ``written``: in place, or they share memory with one that is. ``escaped``: objects by id.
    """

    scopes: list[Scope] = field(default_factory=list)
    assigned: set[Key] = field(default_factory=set)
    written: set[Key] = field(default_factory=set)
    escaped: dict[int, ScriptObject] = field(default_factory=dict)

    def is_kept(self, owner: ScriptObject, name: str) -> bool:
        """Whether the attribute may change while a method runs."""
        key = (id(owner), name)
        return id(owner) in self.escaped or key in self.assigned or key in self.written


def is_mutable(t: T.Type) -> bool:
    """Whether a value of the type can be written in place."""
    if t in _IMMUTABLE or isinstance(t, T.EnumType) or is_custom(t):
        return False
    if isinstance(t, (T.OptionalType, T.UnionType, T.TupleType)):
        return any(is_mutable(c) for c in t.children())
    return True


def is_custom(t: T.Type) -> bool:
    """Whether it is a class written in C++, such as packed weights, whose objects operators only read."""
    return isinstance(t, T.ClassType) and t.name.startswith(CUSTOM_CLASSES)


def scopes_of(owner: ScriptObject, graph: Graph, assigned: set[Key]) -> list[Scope]:
    """The graph of a method of ``owner`` and the bodies of its forks, each with the objects it is known to hold.

    ``assigned``: attributes whose object may be another one by the time they are read.
    """
    return _follow(graph, {graph.inputs[0]: owner}, assigned)


def _follow(graph: Graph, objects: dict[Value, ScriptObject], assigned: set[Key]) -> list[Scope]:
    scopes = [Scope(graph, objects)]
    for node in graph.all_nodes():
        if node.kind == GET:
            owner, name = objects.get(node.inputs[0]), node.attributes["name"]
            if owner is not None and (id(owner), name) not in assigned and name in owner.type.slot_of:
                value = owner.get(name)
                if isinstance(value, ScriptObject):
                    objects[node.output] = value
        elif node.kind == "prim::unchecked_cast" and node.inputs[0] in objects:
            objects[node.output] = objects[node.inputs[0]]
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            pairs = zip(subgraph.inputs, node.inputs, strict=True)
            scopes += _follow(subgraph, {p: objects[v] for p, v in pairs if v in objects}, assigned)
    return scopes


def attribute_facts(
    root: ScriptObject, methods: Sequence[tuple[ScriptObject, Graph]], *, in_place: bool = True
) -> AttributeFacts:
    """What the methods, inlined, do with the attributes of all objects below ``root``.

    ``in_place=False`` leaves out the search for writes through aliases; then only immutable attributes may be trusted.
    """
    facts = AttributeFacts()
    while True:
        facts.scopes = [s for owner, graph in methods for s in scopes_of(owner, graph, facts.assigned)]
        found = {
            (id(scope.objects[node.inputs[0]]), node.attributes["name"])
            for scope in facts.scopes
            for node in scope.graph.all_nodes()
            if node.kind == SET and node.inputs[0] in scope.objects
        }
        if found <= facts.assigned:
            break
        facts.assigned |= found
    everything = {id(o): o for o in reachable([root])}
    _find_escapes(facts, methods, everything)
    if in_place:
        _find_writes(facts, everything)
    return facts


def reachable(values: Iterable[Any]) -> Iterator[ScriptObject]:
    """All objects among the values and below them, through attributes and containers, each once.

    Lists and dicts may hold themselves.
    """
    seen: set[int] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if not isinstance(value, (list, tuple, dict, ScriptObject)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, ScriptObject):
            yield value
            stack.extend(value.slots)
        else:
            stack.extend(value.values() if isinstance(value, dict) else value)


# --------------------------------------------------------------------------------------------------------- escapes


def answer_about_object(node: Node, position: int, object_: ScriptObject) -> bool | None:
    """What a node that only asks about an object answers, None for any other node."""
    if node.kind == "prim::isinstance":
        return any(T.is_subtype(object_.type, t) for t in node.attributes["types"])
    if node.kind in ("aten::__is__", "aten::__isnot__") and node.inputs[1 - position].type == T.NONE:
        return node.kind == "aten::__isnot__"
    return None


def _stays(use: Use, object_: ScriptObject) -> bool:
    node = use.node
    if node.kind in (GET, SET):
        return use.index == 0
    if node.kind == "prim::unchecked_cast" or isinstance(node.attributes.get(SUBGRAPH), Graph):
        return True
    return answer_about_object(node, use.index, object_) is not None


def _find_escapes(
    facts: AttributeFacts, methods: Sequence[tuple[ScriptObject, Graph]], everything: dict[int, ScriptObject]
) -> None:
    loose: list[Any] = []
    for scope in facts.scopes:
        for value, object_ in scope.objects.items():
            if not all(_stays(use, object_) for use in value.uses):
                loose.append(object_)
        for node in scope.graph.all_nodes():
            # An object in a list, or one that an assignment replaces, is not followed.
            if node.kind == GET and node.output not in scope.objects and node.inputs[0] in scope.objects:
                owner, name = scope.objects[node.inputs[0]], node.attributes["name"]
                if name in owner.type.slot_of:
                    loose.append(owner.get(name))
    for _, graph in methods:
        for parameter in graph.inputs[1:]:
            classes = [t for t in T.walk(parameter.type) if isinstance(t, (T.ClassType, T.InterfaceType))]
            if classes:
                # A caller may hand over one of the module's own objects.
                loose += [o for o in everything.values() if any(T.is_subtype(o.type, t) for t in classes)]
    facts.escaped = {id(o): o for o in reachable(loose)}


# ---------------------------------------------------------------------------------------------------------- writes


class _Writes:
    """What one graph writes, with memory of its own for each attribute.

    The analysis keeps attributes apart by type only. So it is given a copy of the graph in which each attribute is read
    once, as something made there. ``known`` are the attributes read, ``values`` all values that stand for one, parts
    of containers included; ``new`` maps values of the graph to those of the copy.
    """

    def __init__(self, scope: Scope) -> None:
        self.graph = Graph(scope.graph.name)
        self.new: dict[Value, Value] = {}
        self.values: dict[Key, list[Value]] = {}
        first = self.graph.block
        for parameter in scope.graph.inputs:
            self.new[parameter] = first.add_param(parameter.type, parameter.name)
        for node in scope.graph.nodes:
            copy_node(node, first, self.new)
        for value in scope.graph.outputs:
            first.add_return(self.new[value])
        start = next(self.graph.nodes, first.return_node)
        self.unknown: list[Node] = []
        for node in scope.graph.all_nodes():
            if node.kind != GET or not is_mutable(node.output.type) or node.output in scope.objects:
                continue
            owner = scope.objects.get(node.inputs[0])
            if owner is None:
                self.unknown.append(node)
                continue
            key = (id(owner), node.attributes["name"])
            if key not in self.values:
                self.values[key] = []
                made = self.made(owner.type.attributes[key[1]], start, self.values[key])
                if made is None:
                    # Nobody knows what may be in it.
                    del self.values[key]
                    self.unknown.append(node)
                    continue
            read = self.new[node.output]
            self.new[node.output] = self.values[key][-1]
            read.replace_all_uses_with(self.values[key][-1])
        self.aliases = AliasAnalysis(self.graph, frozen=True)

    def made(self, t: T.Type, before: Node, parts: list[Value]) -> Value | None:
        """A value that stands for something of type ``t``; it and all its parts are added to ``parts``, it last."""
        if isinstance(t, T.OptionalType):
            return self.made(t.element, before, parts)
        node: Node
        if isinstance(t, T.TensorType):
            node = Node("prim::Constant", (), {"value": np.zeros(1, np.uint8)})
        elif isinstance(t, (T.ListType, T.TupleType, T.DictType)):
            inner = [self.made(c, before, parts) for c in t.children()]
            if any(v is None for v in inner):
                return None
            node = Node(_CONSTRUCT[type(t)], [v for v in inner if v is not None])
        elif not is_mutable(t):
            node = Node("prim::Uninitialized")
        else:
            return None
        node.insert_before(before)
        parts.append(node.add_output(t))
        return parts[-1]

    def is_written(self, key: Key) -> bool:
        """Whether the graph writes into the attribute's value or anything in it."""
        return any(self.aliases.is_written(v) for v in self.values[key] if is_mutable(v.type))

    def sharing(self, value: Value) -> set[Key]:
        """Attributes that a value of the graph may share memory with."""
        if not is_mutable(value.type):
            return set()
        other = self.new[value]
        found = {key for key, parts in self.values.items() if any(v is other for v in parts)}
        return found | {key for key, parts in self.values.items() if self.aliases.may_alias(parts[-1], other)}


_CONSTRUCT: dict[type, str] = {
    T.ListType: "prim::ListConstruct",
    T.TupleType: "prim::TupleConstruct",
    T.DictType: "prim::DictConstruct",
}


def _find_writes(facts: AttributeFacts, everything: dict[int, ScriptObject]) -> None:
    written: set[Key] = set()
    # Assignments of values that an attribute may share: (attribute or None, attributes).
    stores: list[tuple[Key | None, set[Key]]] = []
    for scope in facts.scopes:
        if not any(n.kind == GET and is_mutable(n.output.type) for n in scope.graph.all_nodes()):
            continue
        graph = _Writes(scope)
        written |= {key for key in graph.values if graph.is_written(key)}
        for node in graph.unknown:
            owner, name = scope.objects.get(node.inputs[0]), node.attributes["name"]
            if owner is not None:
                written.add((id(owner), name))
            elif graph.aliases.is_written(graph.new[node.output]):
                written |= {(i, name) for i, o in facts.escaped.items() if name in o.type.slot_of}
        for node in scope.graph.all_nodes():
            subgraph = node.attributes.get(SUBGRAPH)
            if node.kind == SET:
                target = scope.objects.get(node.inputs[0])
                key = None if target is None else (id(target), node.attributes["name"])
                stores.append((key, graph.sharing(node.inputs[1])))
            elif isinstance(subgraph, Graph):
                inner = AliasAnalysis(subgraph, frozen=True)
                for parameter, value in zip(subgraph.inputs, node.inputs, strict=True):
                    if is_mutable(value.type) and value not in scope.objects and inner.is_written(parameter):
                        written |= graph.sharing(value)
    while True:
        found = _sharing_memory(written, everything) | written
        for target_key, shared in stores:
            # What an unseen object holds may be written by anyone.
            if target_key is None or target_key in found:
                found |= shared
        if found == written:
            break
        written = found
    facts.written = written


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """The arrays in a value, those of quantised and sparse tensors and of containers included; not those of objects."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, QTensor):
        yield value.values
    elif isinstance(value, SparseTensor):
        yield from value.parts
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from arrays_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from arrays_in(v)


def span(array: np.ndarray) -> tuple[int, int]:
    """First address of an array's memory and the one after its last."""
    return np.lib.array_utils.byte_bounds(array)


def _containers_in(value: Any) -> Iterator[int]:
    if isinstance(value, (list, dict)):
        yield id(value)
    if isinstance(value, (list, tuple, dict)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from _containers_in(v)


def _sharing_memory(keys: set[Key], everything: dict[int, ScriptObject]) -> set[Key]:
    """Attributes that share memory with one of ``keys``."""
    spans: list[tuple[int, int]] = []
    containers: set[int] = set()
    for i, name in keys:
        owner = everything.get(i)
        if owner is not None and name in owner.type.slot_of:
            spans += [span(a) for a in arrays_in(owner.get(name)) if a.size]
            containers.update(_containers_in(owner.get(name)))
    if not spans and not containers:
        return set()
    return {
        (i, name)
        for i, owner in everything.items()
        for name, value in zip(owner.type.attributes, owner.slots, strict=True)
        if any(lo < b and a < hi for x in arrays_in(value) if x.size for lo, hi in (span(x),) for a, b in spans)
        or not containers.isdisjoint(_containers_in(value))
    }
