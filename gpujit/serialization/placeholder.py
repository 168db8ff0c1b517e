"""Functions as modules, since archives hold modules: what ``torch.jit.save`` makes of a scripted function."""

from __future__ import annotations

from dataclasses import replace

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument
from gpujit.ir.values import ScriptObject


def placeholder_module(function: Function) -> ScriptObject:
    """A module of class ``PlaceholderModule`` whose ``forward`` does what the function does. Raises SourceError."""
    cls = T.ClassType("__torch__.PlaceholderModule", is_module=True)
    cls.add_attribute("training", T.BOOL)
    schema = function.schema
    arguments = (Argument("self", cls, str(cls)), *schema.arguments)
    declared = replace(schema, name=f"{cls.name}.forward", arguments=arguments)
    graph = _with_self(function.graph, cls)
    cls.methods["forward"] = Function(declared.name, lambda: declared, lambda: graph)
    return ScriptObject(cls, [True])


def _with_self(graph: Graph, cls: T.ClassType) -> Graph:
    whole = graph.copy()
    params = whole.block.param_node.outputs
    whole.add_input(cls, "self")
    params.insert(0, params.pop())
    for i, value in enumerate(params):
        value.index = i
    return whole
