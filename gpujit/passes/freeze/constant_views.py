"""Views of constants become constants themselves; they share the memory of what they are views of.

Operators that may give a view give a copy of some constants: casts to another dtype, another order in memory. These
become copies by name, which ``fold`` computes where nobody can tell.
"""

from __future__ import annotations

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Graph, Node
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.analysis.evaluate import GROWTH
from gpujit.passes.analysis.placement import depends_on_place
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.support.errors import GpujitError

NAME = "constant_views"


@graph_pass(NAME)
def fold_constant_views(graph: Graph) -> bool:
    """Replace views of constant tensors (transposed weights, reshaped biases) that nobody writes by constants.

    What is no view is replaced by a copy of a constant.
    """
    # A view of a view is found once the inner one is a constant: nodes come in order.
    alias: AliasAnalysis | None = None
    changed = False
    for node in list(graph.all_nodes()):
        if not _is_view_of_constant(node):
            continue
        alias = alias or AliasAnalysis(graph)
        made = _computed(node)
        if isinstance(made, str):
            declined(NAME, node, made)
            continue
        operand = node.inputs[0].constant()
        is_view = np.may_share_memory(made, operand)
        if alias.is_written(node.output):
            declined(NAME, node, "it is written, or may be")
            continue
        if not is_view and made.nbytes > GROWTH * _held(operand):
            declined(NAME, node, "it is a copy larger than what it is made from")
            continue
        constant = constant_before(node, made, T.TensorType(code_of(made.dtype), made.shape))
        if not is_view:
            constant = insert_op(node, "aten::clone", (constant, constant_before(node, None)), node)
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
    if depends_on_place(node):
        return False
    return isinstance(node.inputs[0].constant(), np.ndarray)


def _computed(node: Node) -> np.ndarray | str:
    op = entry_of(node)
    assert op is not None
    try:
        made = op.kernel(np)(*(v.constant() for v in node.inputs))
    except GpujitError as error:
        return f"it fails: {error.message}"
    if not isinstance(made, np.ndarray):
        return "it is no tensor of numbers"
    # A constant without dimensions may be read as a number.
    return made if made.ndim else "it has no dimensions"


def _held(operand: np.ndarray) -> int:
    """The bytes of an array's elements, those that a dimension repeats counted once."""
    counted = (n for n, stride in zip(operand.shape, operand.strides, strict=True) if stride)
    return int(np.prod([operand.itemsize, *counted], dtype=np.int64))
