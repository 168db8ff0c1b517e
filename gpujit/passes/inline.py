"""Calls and forks replaced by the bodies of what they run; nodes keep the call stack they came through.

The hooks of submodules need nothing of their own: serialized code calls them by name, as it calls any method.
"""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.module_path import joined, module_path, object_path
from gpujit.ir.source import CallSite
from gpujit.passes.base import declined, graph_pass
from gpujit.support.errors import LimitError

# Nodes after which inlining stops: files can be written whose full inlining is exponential.
MAX_NODES = 200_000
MAX_DEPTH = 200

_WAITS = {"prim::fork": ("aten::wait",), "prim::awaitable": ("prim::awaitable_wait", "aten::wait")}


def inlined(graph: Graph) -> Graph:
    """A copy of the graph with every call of a known function or method replaced by its body.

    Calls through an interface stay. Raises LimitError when the result would be too large or the calls recurse, and
    SourceError when a callee does not compile.
    """
    compile_callees(graph)
    result = Graph(graph.name)
    try:
        _Inliner(graph.name).body(graph.block, result.block, {}, None, 0)
    except RecursionError:
        raise LimitError(f"calls and blocks of {graph.name} are nested too deeply to be inlined") from None
    return result


@graph_pass("inline")
def inline(graph: Graph) -> bool:
    """Replace calls of known functions and methods, and forks that are certainly waited for, by their bodies.

    What stays and is logged: calls through an interface, and futures that are kept or waited for on one path only.
    A fork's body then runs where the fork stands, as the interpreter runs it, and raises there. Raises as ``inlined``.
    """
    compile_callees(graph)
    inliner = _Inliner(graph.name)
    changed = False
    try:
        for node in graph.all_nodes():
            function = callee(node)
            if function is not None:
                assert node.block is not None
                inliner.call(node, function, {v: v for v in node.inputs}, node, node.call, 0)
                changed = True
            elif node.kind == "prim::CallMethod":
                declined("inline", node, f"which method runs is not known before an object of {node.inputs[0].type}")
        # Calls inside what stays deferred are inlined too; the graph may be shared, so a new one takes its place.
        while _inline_all_deferred(graph, inliner):
            changed = True
    except RecursionError:
        raise LimitError(f"calls and blocks of {graph.name} are nested too deeply to be inlined") from None
    return changed


def _inline_all_deferred(graph: Graph, inliner: _Inliner) -> bool:
    changed = False
    for node in list(graph.all_nodes()):
        changed |= _inline_deferred(node, inliner)
    return changed


def _inline_deferred(node: Node, inliner: _Inliner) -> bool:
    if node.kind == "prim::awaitable_nowait":
        return _forward_nowait(node)
    subgraph = node.attributes.get("Subgraph")
    if not isinstance(subgraph, Graph):
        return False
    reason = _why_deferred(node)
    if reason is None:
        inner = dict(zip(subgraph.inputs, node.inputs, strict=True))
        site = CallSite(subgraph.name, node.source, node.call, module_path(node))
        inliner.copy_nodes(subgraph.block, node, inner, site, 0)
        for use in list(node.output.uses):
            use.node.output.replace_all_uses_with(inner[subgraph.outputs[0]])
            use.node.destroy()
        node.destroy()
        return True
    declined("inline", node, reason)
    if any(callee(n) is not None or isinstance(n.attributes.get("Subgraph"), Graph) for n in subgraph.all_nodes()):
        copied = subgraph.copy()
        changed = inline.run(copied)
        if changed:
            node.attributes["Subgraph"] = copied
        return changed
    return False


def _forward_nowait(node: Node) -> bool:
    """Replace waits for a value that was wrapped without being deferred."""
    changed = False
    for use in list(node.output.uses):
        if use.node.kind in _WAITS["prim::awaitable"]:
            use.node.output.replace_all_uses_with(node.inputs[0])
            use.node.destroy()
            changed = True
    if not node.output.uses:
        node.destroy()
        changed = True
    return changed


def _why_deferred(node: Node) -> str | None:
    """Why a fork has to stay, None when its body may run in its place."""
    waits = _WAITS.get(node.kind)
    if waits is None:
        return f"{node.kind} is not known to run its subgraph once"
    uses = node.output.uses
    other = next((use.node for use in uses if use.node.kind not in waits), None)
    if other is not None:
        return f"its future is given to {other.kind}"
    # What a body raises is raised by ``wait``: without one, or with one that may not be reached, nothing is raised.
    if not any(use.node.block is node.block for use in uses):
        return "nothing in its own block waits for it"
    return None


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
    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0

    def body(self, source: Block, target: Block, known: dict[Value, Value], call: CallSite | None, depth: int) -> None:
        for param in source.params:
            if param not in known:
                known[param] = target.add_param(param.type, param.name)
        self.copy_nodes(source, target.return_node, known, call, depth)
        for value in source.returns:
            target.add_return(known[value])

    def copy_nodes(
        self, source: Block, before: Node, known: dict[Value, Value], call: CallSite | None, depth: int
    ) -> None:
        """Put copies of a block's nodes, calls inlined, in front of ``before``."""
        for node in source.nodes:
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise LimitError(f"inlining {self.name} gives more than {MAX_NODES} nodes")
            function = callee(node)
            if function is not None:
                self.call(node, function, known, before, call, depth)
            elif node.kind == "prim::Constant" and node.output.type == T.FUNCTION and _only_called(node):
                continue
            else:
                new = Node(node.kind, [known[v] for v in node.inputs], dict(node.attributes))
                new.schema, new.source = node.schema, node.source
                new.call = joined(node.call, call)
                new.insert_before(before)
                for block in node.blocks:
                    self.body(block, new.add_block(), known, call, depth)
                for value in node.outputs:
                    known[value] = new.add_output(value.type, value.name)

    def call(
        self,
        node: Node,
        function: Function,
        known: dict[Value, Value],
        before: Node,
        call: CallSite | None,
        depth: int,
    ) -> None:
        """Put the body of ``function`` in front of ``before``; ``known`` gets the result.

        When ``node`` itself is ``before`` (a call in the graph being changed), it is removed.
        """
        if depth >= MAX_DEPTH:
            raise LimitError(f"calls of {function.name} are nested more than {MAX_DEPTH} deep")
        is_function = node.kind == "prim::CallFunction"
        arguments = node.inputs[1:] if is_function else node.inputs
        graph = function.graph
        inner = dict(zip(graph.inputs, (known[v] for v in arguments), strict=True))
        # A path in the graph that is made: there all arguments lead back to its own object.
        module = None if is_function or not arguments else object_path(inner[graph.inputs[0]])
        if module is None:
            module = "" if call is None else call.module
        site = CallSite(function.name, node.source, call, module)
        self.copy_nodes(graph.block, before, inner, site, depth + 1)
        result = inner[graph.outputs[0]]
        if node is not before:
            known[node.output] = result
            return
        node.output.replace_all_uses_with(result)
        target = node.inputs[0].node
        node.destroy()
        if is_function and not target.output.uses:
            target.destroy()


def _only_called(node: Node) -> bool:
    return all(use.node.kind == "prim::CallFunction" and use.index == 0 for use in node.output.uses)
