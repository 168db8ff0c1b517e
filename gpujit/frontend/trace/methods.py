"""The flat graph of a trace as methods: each call of a submodule becomes a method of its class, as torch.jit.trace has
it. What a method reads from outside becomes its arguments, what is read of it outside its results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpujit.frontend.trace.compiled import CALL_METHOD
from gpujit.frontend.trace.modules import ATTRIBUTE, SET_ATTRIBUTE, ModuleTree, Part, Scope
from gpujit.frontend.trace.state import READ_ATTRIBUTE
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value, copy_node
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.ops import table
from gpujit.passes.cse import pool_constants
from gpujit.passes.dce import eliminate_dead_code

# Kinds that are kept although nobody reads them: what compiled code does is looked into later.
_EFFECTS = (SET_ATTRIBUTE, CALL_METHOD, "prim::CallFunction")
# Kinds that name a module in the tree, which must be below the method that has them.
_OF_MODULES = (SET_ATTRIBUTE, CALL_METHOD, READ_ATTRIBUTE)


def drop_unread(graph: Graph) -> None:
    """Remove nodes without effects that nobody reads, in one walk from the end."""
    for node in graph.block.nodes_reversed:
        if any(v.uses for v in node.outputs) or node.kind in _EFFECTS:
            continue
        if node.schema is not None:
            op = table.by_full_name(node.schema.full_name)
            if op is None or op.effects or node.schema.is_mutable or op.hidden_writes:
                continue
        node.destroy()


def tidy(graph: Graph) -> None:
    """The passes that every traced graph gets."""
    eliminate_dead_code(graph)
    pool_constants(graph)


def function_of(graph: Graph, name: str) -> Function:
    """A function whose body is the graph; for a method the first input is the module."""
    arguments = tuple(Argument(_plain_name(v, i), v.type, v.type.annotation()) for i, v in enumerate(graph.inputs))
    returned = graph.outputs[0].type
    schema = Schema(name, "", arguments, (Argument("", returned, returned.annotation()),))
    return Function(name, lambda: schema, lambda: graph)


def _plain_name(value: Value, index: int) -> str:
    return value.name or f"argument_{index}"


@dataclass
class _Group:
    """The nodes of one call, those of calls within it as groups of their own."""

    scope: Scope | None
    items: list[Node | _Group] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        found: list[Node] = []
        for item in self.items:
            found += [item] if isinstance(item, Node) else item.nodes()
        return found


def make_method(flat: Graph, scope_of: dict[Node, Any], tree: ModuleTree, name: str) -> Function:
    """Add the traced method to the root's class, and those of the submodules that it calls to theirs."""
    top = _grouped(flat, scope_of)
    graph = Graph(name)
    self_value = graph.add_input(tree.root.object.type, "self")
    values: dict[Value, Value] = {}
    for value in flat.inputs:
        values[value] = graph.add_input(value.type, value.name)
    emitter = _Emitter(graph, tree.root, self_value, values, set(flat.outputs))
    emitter.items(top)
    for value in flat.outputs:
        graph.add_output(emitter.value(value))
    tidy(graph)
    return _add(tree.root, graph, name)


def _add(part: Part, graph: Graph, wanted: str) -> Function:
    owner = part.object.type
    name, number = wanted, 0
    while name in owner.methods:
        number += 1
        name = f"{wanted}{number}"
    graph.name = name
    function = owner.methods[name] = function_of(graph, f"{owner.name}.{name}")
    return function


def _grouped(flat: Graph, scope_of: dict[Node, Any]) -> _Group:
    top = _Group(None)
    groups: dict[Scope, _Group] = {}
    for node in flat.nodes:
        if node.kind in ("prim::Constant", ATTRIBUTE):
            continue
        scope = scope_of.get(node)
        chain: list[Scope] = []
        while scope is not None and scope.parent is not None:
            chain.append(scope)
            scope = scope.parent
        group = top
        for inner in reversed(chain):
            if inner not in groups:
                groups[inner] = _Group(inner)
                group.items.append(groups[inner])
            group = groups[inner]
        group.items.append(node)
    return top


class _Emitter:
    """Writes one method. ``values`` maps values of the flat graph to those of the method."""

    def __init__(
        self, graph: Graph, part: Part, self_value: Value, values: dict[Value, Value], returned: set[Value]
    ) -> None:
        self.graph = graph
        self.block: Block = graph.block
        self.part = part
        self.self_value = self_value
        self.values = values
        self.returned = returned

    def items(self, group: _Group) -> None:
        for item in group.items:
            if isinstance(item, _Group):
                self.call(item)
            elif item.kind == SET_ATTRIBUTE:
                self.set_attribute(item)
            elif item.kind == CALL_METHOD:
                owner = self.module(item.attributes["part"], item)
                self.values[item.output] = self.call_node(owner, item.attributes["name"], item.inputs, item)
            elif item.kind == READ_ATTRIBUTE:
                owner = self.module(item.attributes["part"], item)
                self.values[item.output] = self.get(owner, item.attributes["name"], T.TENSOR, item)
            else:
                for value in item.inputs:
                    self.value(value)
                copy_node(item, self.block, self.values)

    def value(self, value: Value) -> Value:
        """A value of the flat graph here; constants and attributes are made when first asked for."""
        found = self.values.get(value)
        if found is None:
            node = value.node
            if node.kind == ATTRIBUTE:
                owner = self.module(node.attributes["part"], node)
                found = self.get(owner, node.attributes["name"], T.TENSOR, node)
            else:
                copy_node(node, self.block, self.values)
                found = self.values[value]
            self.values[value] = found
        return found

    def get(self, owner: Value, name: str, type_: T.Type, at: Node) -> Value:
        node = Node("prim::GetAttr", [owner], {"name": name})
        node.source = at.source
        return self.block.append(node).add_output(type_, name)

    def module(self, part: Part, at: Node) -> Value:
        """A module below this one."""
        path = self.part.path_to(part)
        assert path is not None
        owner, current = self.self_value, self.part
        for name in path:
            current = current.children[name]
            owner = self.get(owner, name, current.object.type, at)
        return owner

    def set_attribute(self, node: Node) -> None:
        owner = self.module(node.attributes["part"], node)
        new = Node("prim::SetAttr", [owner, self.value(node.inputs[0])], {"name": node.attributes["name"]})
        new.source = node.source
        self.block.append(new)

    def call_node(
        self, owner: Value, name: str, given: Iterable[Value], at: Node, type_: T.Type | None = None
    ) -> Value:
        """The result of a method of a module; its type is that of ``at``'s result unless it is given."""
        node = Node("prim::CallMethod", [owner, *map(self.value, given)], {"name": name})
        node.source = at.source
        return self.block.append(node).add_output(at.output.type if type_ is None else type_)

    def call(self, group: _Group) -> None:
        """A call of a submodule; one that is not below this module, or uses modules that are not below it, is written
        out here instead."""
        assert group.scope is not None
        part = group.scope.part
        nodes = group.nodes()
        used = [n.attributes["part"] for n in nodes if n.kind in _OF_MODULES]
        if self.part.path_to(part) is None or any(part.path_to(p) is None for p in used):
            self.items(group)
            return
        inside = {v for n in nodes for v in n.outputs}
        members = set(nodes)
        read = [v for n in nodes for v in n.inputs if v not in inside]
        given = [v for v in dict.fromkeys(read) if not self._is_made_inside(v, part)]
        results = [
            v for n in nodes for v in n.outputs if v in self.returned or any(use.node not in members for use in v.uses)
        ]
        graph = Graph()
        self_value = graph.add_input(part.object.type, "self")
        values = {v: graph.add_input(v.type, v.name or f"argument_{i}") for i, v in enumerate(given, 1)}
        inner = _Emitter(graph, part, self_value, values, self.returned)
        inner.items(group)
        outputs = [inner.value(v) for v in results]
        graph.add_output(_joined(graph, outputs))
        tidy(graph)
        function = _add(part, graph, "forward")
        owner = self.module(part, nodes[0])
        result = self.call_node(owner, function.short_name, given, nodes[0], graph.outputs[0].type)
        if len(results) == 1:
            self.values[results[0]] = result
        elif results:
            unpack = self.block.append(Node("prim::TupleUnpack", [result]))
            for v in results:
                self.values[v] = unpack.add_output(v.type)

    def _is_made_inside(self, value: Value, part: Part) -> bool:
        """Whether a submodule's method makes a value itself that is defined outside of it."""
        node = value.node
        if node.kind == "prim::Constant":
            return True
        return node.kind == ATTRIBUTE and part.path_to(node.attributes["part"]) is not None


def _joined(graph: Graph, outputs: list[Value]) -> Value:
    """One value for all that a method returns."""
    if len(outputs) == 1:
        return outputs[0]
    if not outputs:
        return graph.constant(None, T.NONE)
    node = graph.block.append(Node("prim::TupleConstruct", outputs))
    return node.add_output(T.TupleType(tuple(v.type for v in outputs)))
