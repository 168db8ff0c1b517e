"""Calls replaced by the bodies of what they call; nodes keep the call stack they came through."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value, copy_node
from gpujit.ir.module import Function
from gpujit.ir.source import CallSite
from gpujit.support.errors import LimitError

# Nodes after which inlining stops: files can be written whose full inlining is exponential.
MAX_NODES = 200_000
MAX_DEPTH = 200


def inlined(graph: Graph) -> Graph:
    """A copy of the graph with every call of a known function or method replaced by its body.

    Calls through an interface stay. Raises LimitError when the result would be too large or the calls recurse, and
    SourceError when a callee does not compile.
    """
    compile_callees(graph)
    result = Graph(graph.name)
    try:
        _Inliner().body(graph.block, result.block, {}, None, 0)
    except RecursionError:
        raise LimitError(f"calls and blocks of {graph.name} are nested too deeply to be inlined") from None
    return result


def compile_callees(graph: Graph) -> None:
    """Make the graphs of all functions the graph may call, near ones first, so that none is made deep in a recursion.

    Raises SourceError when one does not compile.
    """
    seen: set[Function] = set()
    graphs = [graph]
    for current in graphs:
        for node in current.all_nodes():
            function = callee(node)
            if function is not None and function not in seen:
                seen.add(function)
                graphs.append(function.graph)
            subgraph = node.attributes.get("Subgraph")
            if isinstance(subgraph, Graph):
                graphs.append(subgraph)


def callee(node: Node) -> Function | None:
    """The function a call node calls, when it is known before run time."""
    if node.kind == "prim::CallFunction" and node.inputs[0].is_constant:
        function = node.inputs[0].constant()
        return function if isinstance(function, Function) else None
    if node.kind == "prim::CallMethod" and isinstance(node.inputs[0].type, T.ClassType):
        return node.inputs[0].type.methods.get(node.attributes["name"])
    return None


class _Inliner:
    def __init__(self) -> None:
        self.nodes = 0

    def body(self, source: Block, target: Block, known: dict[Value, Value], call: CallSite | None, depth: int) -> None:
        for param in source.params:
            if param not in known:
                known[param] = target.add_param(param.type, param.name)
        self.copy_nodes(source, target, known, call, depth)
        for value in source.returns:
            target.add_return(known[value])

    def copy_nodes(
        self, source: Block, target: Block, known: dict[Value, Value], call: CallSite | None, depth: int
    ) -> None:
        for node in source.nodes:
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise LimitError(f"inlining {target.graph.name} gives more than {MAX_NODES} nodes")
            function = callee(node)
            if function is not None:
                if depth >= MAX_DEPTH:
                    raise LimitError(f"calls of {function.name} are nested more than {MAX_DEPTH} deep")
                arguments = node.inputs[1:] if node.kind == "prim::CallFunction" else node.inputs
                graph = function.graph
                inner = dict(zip(graph.inputs, (known[v] for v in arguments), strict=True))
                self.copy_nodes(graph.block, target, inner, CallSite(function.name, node.source, call), depth + 1)
                known[node.output] = inner[graph.outputs[0]]
            elif node.blocks:
                new = Node(node.kind, [known[v] for v in node.inputs], dict(node.attributes))
                new.schema, new.source, new.call = node.schema, node.source, call
                target.append(new)
                for block in node.blocks:
                    self.body(block, new.add_block(), known, call, depth)
                for value in node.outputs:
                    known[value] = new.add_output(value.type, value.name)
            elif node.kind == "prim::Constant" and node.output.type == T.FUNCTION and self.only_called(node):
                continue
            else:
                copy_node(node, target, known).call = call

    @staticmethod
    def only_called(node: Node) -> bool:
        return all(use.node.kind == "prim::CallFunction" and use.index == 0 for use in node.output.uses)
