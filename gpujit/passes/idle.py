"""Nodes that hand on what they were given: casts that types have made needless, in-place dropout outside training."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.passes.base import Edits, graph_pass
from gpujit.passes.nodes import replace_node
from gpujit.passes.peephole.facts import constant_of, full_name

_DROPOUTS = ("aten::dropout_", "aten::alpha_dropout_", "aten::feature_dropout_", "aten::feature_alpha_dropout_")


@graph_pass("idle")
def remove_idle(graph: Graph) -> bool:
    """Let readers of a node that hands on its input read the input itself."""
    changed = False
    edits = Edits()
    for node in list(graph.all_nodes()):
        if not _is_idle(node):
            continue
        if not edits.may_edit():
            break
        edits.count()
        replace_node(node, node.inputs[:1])
        changed = True
    return changed


def _is_idle(node: Node) -> bool:
    if node.kind == "prim::unchecked_cast":
        given = node.inputs[0].type
        return given != T.NONE and T.is_subtype(given, node.output.type)
    if full_name(node) not in _DROPOUTS or constant_of(node.inputs[2]) is not False:
        return False
    # The operator refuses other probabilities also when it does nothing.
    probability = constant_of(node.inputs[1])
    is_number = isinstance(probability, (int, float)) and 0 <= probability <= 1
    return is_number and T.is_subtype(node.inputs[0].type, node.output.type)
