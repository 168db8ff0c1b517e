"""Methods that freezing made. Apart from ``freeze``, so that loading a module loads no passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import Function, named_modules
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import ScriptObject


class FrozenFunction(Function):
    """A method made by freezing: it has a graph of its own and no source."""

    __slots__ = ()

    def __init__(self, function: Function, owner: T.ClassType, graph: Graph) -> None:
        schema = function.schema
        first = replace(schema.arguments[0], type=owner, text=str(owner))
        changed = replace(schema, arguments=(first, *schema.arguments[1:]))
        super().__init__(function.name, lambda: changed, lambda: graph)


def frozen_methods(root: ScriptObject) -> Iterator[tuple[T.ClassType, str, FrozenFunction]]:
    """Class, name and function of all methods below a module that freezing made."""
    for _, module in named_modules(root):
        for name, function in module.type.methods.items():
            if isinstance(function, FrozenFunction):
                yield module.type, name, function


def with_own_methods(root: ScriptObject, *, below: bool) -> None:
    """Give a copied module classes of its own, with copies of the methods that freezing made.

    What later edits those (``half``, ``run_frozen_optimizations``) then leaves the other module's alone. Constants in
    the graphs are shared: nothing writes into them.
    Args:
        below: do so for the modules below it too, which are copies as well.
    """
    objects = [module for _, module in named_modules(root)] if below else [root]
    new: dict[T.ClassType, T.ClassType] = {}
    for object_ in objects:
        old = object_.type
        if old not in new and any(isinstance(f, FrozenFunction) for f in old.methods.values()):
            new[old] = replace(
                old, attributes=dict(old.attributes), methods=dict(old.methods), slot_of=dict(old.slot_of)
            )
        object_.type = new.get(old, old)
    for cls in new.values():
        for name, t in cls.attributes.items():
            if isinstance(t, T.ClassType):
                cls.attributes[name] = new.get(t, t)
        for name, function in cls.methods.items():
            if isinstance(function, FrozenFunction):
                cls.methods[name] = FrozenFunction(function, cls, _retyped(function.graph, new))


def _retyped(graph: Graph, new: dict[T.ClassType, T.ClassType]) -> Graph:
    """A copy of a graph, its modules of the new classes."""
    graph = graph.copy()
    for value in [*graph.inputs, *(v for node in graph.all_nodes() for v in _made_by(node))]:
        if isinstance(value.type, T.ClassType):
            value.type = new.get(value.type, value.type)
    for node in graph.all_nodes():
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            node.attributes[SUBGRAPH] = _retyped(subgraph, new)
    return graph


def _made_by(node: Node) -> Iterator[Value]:
    yield from node.outputs
    for block in node.blocks:
        yield from block.params
