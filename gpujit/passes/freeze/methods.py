"""Methods that freezing made. Apart from ``freeze``, so that loading a module loads no passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function, named_modules
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
