"""``channel_shuffle`` written out in views, which a fuser sees through.

Shuffles of pixels and images enlarged by whole factors could be written out too, but run faster in one piece: the
innermost loop of such a kernel would be as short as the factor.
"""

from __future__ import annotations

from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import declined
from gpujit.passes.nodes import insert_op, ints_before, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, known_shape


def write_out_moves(graph: Graph) -> bool:
    """Write out ``channel_shuffle`` of tensors of known shapes; returns whether the graph changed."""
    changed = False
    for node in list(graph.all_nodes()):
        if full_name(node) != "aten::channel_shuffle":
            continue
        result = _channel_shuffle(node)
        if isinstance(result, str):
            declined("decompose: moves", node, result)
            continue
        replace_node(node, [result])
        changed = True
    return changed


def _channel_shuffle(node: Node) -> Value | str:
    x, groups = node.inputs[0], constant_of(node.inputs[1])
    shape = known_shape(x)
    if shape is None or type(groups) is not int:
        return "shape or number of groups is not known"
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        return "the operator refuses it"
    batch, channels, *image = shape
    if groups in (1, channels) or 0 in shape:
        # The operator's result is a tensor of its own, that of the views would be its input.
        return "nothing moves"
    x = insert_op(node, "aten::reshape", (x, ints_before(node, [batch, groups, channels // groups, *image])), node)
    order = [0, 2, 1, *range(3, 3 + len(image))]
    x = insert_op(node, "aten::permute", (x, ints_before(node, order)), node)
    return insert_op(node, "aten::reshape", (x, ints_before(node, shape)), node)
