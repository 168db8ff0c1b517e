"""What ``break``, ``continue`` and early ``return`` leave behind: values nobody reads, flags that say nothing new.

A program in structured form hands a value over from branches in which it does not exist. There it is uninitialised:
no path reads it, so it may be anything, and in particular what the other branch hands over.
"""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import Edits, graph_pass
from gpujit.passes.control.blocks import drop_carried, drop_output, is_within, nodes_of_kind

UNINITIALISED = "prim::Uninitialized"


@graph_pass("exits")
def simplify_exits(graph: Graph) -> bool:
    """Let results of ifs and loops that are uninitialised on one side be what they are on the other, where that is
    known outside; drop what loops carry for nobody."""
    changed = False
    edits = Edits()
    while True:
        found = False
        for node in reversed(nodes_of_kind(graph, ("prim::If", "prim::Loop"))):
            if not edits.may_edit():
                return changed or found
            if _simplify_if(node) if node.kind == "prim::If" else _simplify_loop(node):
                edits.count()
                found = True
        for node in nodes_of_kind(graph, (UNINITIALISED,)):
            if not node.output.uses:
                node.destroy()
                found = True
        if not found:
            return changed
        changed = True


def _simplify_if(node: Node) -> bool:
    changed = False
    for i in reversed(range(len(node.outputs))):
        instead = _either(node, *(block.returns[i] for block in node.blocks))
        if instead is None or not T.is_subtype(instead.type, node.outputs[i].type):
            continue
        node.outputs[i].replace_all_uses_with(instead)
        drop_output(node, i)
        changed = True
    return changed


def _either(node: Node, yes: Value, no: Value) -> Value | None:
    """The value to read in place of a result that one of the branches leaves open; None when both count."""
    if yes.node.kind == no.node.kind == UNINITIALISED:
        for value in (yes, no):
            if not any(is_within(value.node, block) for block in node.blocks):
                return value
        yes.node.move_before(node)
        return yes
    for value, other in ((yes, no), (no, yes)):
        if other.node.kind == UNINITIALISED and not any(is_within(value.node, block) for block in node.blocks):
            return value
        if other.node.kind == UNINITIALISED and value.is_constant:
            value.node.move_before(node)
            return value
    return None


def _simplify_loop(node: Node) -> bool:
    body = node.blocks[0]
    changed = False
    for i in reversed(range(len(node.outputs))):
        start, param, result, output = node.inputs[i + 2], body.params[i + 1], body.returns[i + 1], node.outputs[i]
        if output.uses or any(use.node is not body.return_node or use.index != i + 1 for use in param.uses):
            # Carried unchanged: it is what it was before the loop.
            if result is param and param.uses:
                output.replace_all_uses_with(start)
                param.replace_all_uses_with(start)
                body.return_node.set_input(i + 1, start)
            else:
                continue
        body.return_node.set_input(i + 1, start)
        drop_carried(node, i)
        changed = True
    return changed
