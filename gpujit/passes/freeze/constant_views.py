"""Views of constants become constants themselves; they share the memory of what they are views of."""

from __future__ import annotations

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Graph, Node
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, replace_node
from gpujit.support.errors import GpujitError

NAME = "constant_views"


@graph_pass(NAME)
def fold_constant_views(graph: Graph) -> bool:
    """Replace views of constant tensors (transposed weights, reshaped biases) that nobody writes by constants."""
    # A view of a view is found once the inner one is a constant: nodes come in order.
    alias: AliasAnalysis | None = None
    changed = False
    for node in list(graph.all_nodes()):
        if not _is_view_of_constant(node):
            continue
        alias = alias or AliasAnalysis(graph)
        if alias.is_written(node.output):
            declined(NAME, node, "it is written, or may be")
            continue
        made = _computed(node)
        if isinstance(made, str):
            declined(NAME, node, made)
            continue
        constant = constant_before(node, made, T.TensorType(code_of(made.dtype), made.shape))
        alias.replaced(node.output, constant)
        replace_node(node, [constant])
        changed = True
    return changed


def _is_view_of_constant(node: Node) -> bool:
    op = entry_of(node)
    if op is None or op.kind != "view" or op.form != "functional" or len(node.outputs) != 1:
        return False
    if not isinstance(node.output.type, T.TensorType) or not all(v.is_constant for v in node.inputs):
        return False
    return isinstance(node.inputs[0].constant(), np.ndarray)


def _computed(node: Node) -> np.ndarray | str:
    op = entry_of(node)
    assert op is not None
    try:
        made = op.kernel(np)(*(v.constant() for v in node.inputs))
    except GpujitError as error:
        return f"it fails: {error.message}"
    if not isinstance(made, np.ndarray) or not np.may_share_memory(made, node.inputs[0].constant()):
        return "it is no view"
    # A constant without dimensions may be read as a number.
    return made if made.ndim else "it has no dimensions"
