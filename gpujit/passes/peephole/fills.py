"""Tensors filled with one number after the model of another, when all that is asked of that one is its dtype."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.passes.base import graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.facts import code_of, constant_of, full_name

# The operator that fills by itself, the position of dtype, and how many arguments come before it.
_FILLS = {
    "aten::new_zeros": ("aten::zeros", 2),
    "aten::new_ones": ("aten::ones", 2),
    "aten::new_full": ("aten::full", 3),
}


@graph_pass("fills")
def fill_by_dtype(graph: Graph) -> bool:
    """``x.new_zeros(sizes)`` becomes ``zeros(sizes, dtype=...)``, which waits for nothing and may be folded.

    Left as they are: those of a tensor whose dtype is not known, and those that a device, a layout or pinned memory is
    asked for.
    """
    changed = False
    for node in list(graph.all_nodes()):
        changed |= _freed(node)
    return changed


def _freed(node: Node) -> bool:
    found = _FILLS.get(full_name(node) or "")
    if found is None:
        return False
    name, at = found
    dtype = node.inputs[at]
    if any(constant_of(v) not in (None, False) for v in node.inputs[at + 1 :]):
        return False
    if constant_of(dtype) is None:
        code = code_of(node.inputs[0])
        if code is None:
            return False
        dtype = constant_before(node, code, T.INT)
    replace_node(node, [insert_op(node, name, (*node.inputs[1:at], dtype, *node.inputs[at + 1 :]), node)])
    return True
