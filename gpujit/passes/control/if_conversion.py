"""Ifs on the number in a tensor, with a little pointwise work on each side, become a choice between two tensors.

Both sides are then computed, so this is for programs that are to be fused; what is not known to be safe stays an if.
"""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops.infer import infer
from gpujit.ops.registry import Op
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of, is_pure, may_raise
from gpujit.passes.base import Edits, declined, graph_pass
from gpujit.passes.control.blocks import body_size, nodes_of_kind, splice
from gpujit.passes.nodes import insert_op, known
from gpujit.support.errors import DTypeError, ShapeError

# Nodes on one side, besides constants.
MAX_SIDE = 4
_BOOL = 11


@graph_pass("if_conversion")
def convert_ifs(graph: Graph) -> bool:
    """Replace ifs whose condition is a bool tensor of one element, and whose results are tensors of equal known dtype
    and shape on both sides, by ``aten::where``.

    Declined when a side may fail, has effects or is not cheap, and when a result may be written or shares memory with
    something a caller sees.
    """
    changed = False
    edits = Edits()
    analysis: AliasAnalysis | None = None
    for node in reversed(nodes_of_kind(graph, ("prim::If",))):
        if node.inputs[0].node.kind != "aten::Bool" or not node.outputs:
            continue
        analysis = analysis or AliasAnalysis(graph)
        reason = _why_not(node, analysis)
        if reason is not None:
            declined("if_conversion", node, reason)
            continue
        if not edits.may_edit():
            break
        edits.count()
        _convert(node)
        changed = True
        analysis = None
    return changed


def _convert(node: Node) -> None:
    condition = node.inputs[0].node.inputs[0]
    for block in node.blocks:
        splice(block, node)
    for output in node.outputs:
        yes, no = (block.returns[output.index] for block in node.blocks)
        chosen = insert_op(node, "aten::where.self", (condition, yes, no), like=node)
        chosen.name = output.name
        output.replace_all_uses_with(chosen)
    node.destroy()


def _why_not(node: Node, analysis: AliasAnalysis) -> str | None:
    condition = node.inputs[0].node.inputs[0].type
    if not isinstance(condition, T.TensorType) or condition.dtype != _BOOL or condition.shape is None:
        return "its condition is not known to come from a bool tensor"
    if any(size != 1 for size in condition.shape):
        return "its condition is not known to come from one element"
    for block in node.blocks:
        reason = _why_not_side(block)
        if reason is not None:
            return reason
    for output in node.outputs:
        sides = [block.returns[output.index] for block in node.blocks]
        if not _are_alike(sides, len(condition.shape)):
            return f"the dtypes and shapes of {output!r} are not known to be equal on both sides"
        if analysis.is_written(output):
            return f"{output!r} may be written into"
        if analysis.escapes(output) and not analysis.is_fresh(output):
            return f"{output!r} may share memory with something seen outside"
    return None


def _why_not_side(block: Block) -> str | None:
    if body_size(block) > MAX_SIDE:
        return f"a side has more than {MAX_SIDE} nodes"
    for node in block.nodes:
        if node.kind == "prim::Constant":
            continue
        entry = entry_of(node)
        if entry is None or not is_pure(node) or not _is_safe(node, entry):
            return f"{node.kind} on one side may fail, has effects or is not cheap"
    return None


def _is_safe(node: Node, entry: Op) -> bool:
    """Whether computing a node that would not have run costs little and cannot fail."""
    if entry.kind == "prim":
        return not may_raise(node)
    if entry.kind != "pointwise" or entry.form != "functional":
        return False
    try:
        # Checks shapes and dtypes as the operator would.
        found = infer(entry, [known(v) for v in node.inputs])
    except (ShapeError, DTypeError):
        return False
    # On integers an operator may fail for single numbers (divisors, exponents).
    return (
        isinstance(found, T.TensorType)
        and found.dtype in _FLOATING
        and found.shape is not None
        and None not in found.shape
        and all(_is_complete(v.type) for v in node.inputs)
    )


def _is_complete(t: T.Type) -> bool:
    return not isinstance(t, T.TensorType) or (t.dtype is not None and t.shape is not None and None not in t.shape)


_FLOATING = (5, 6, 7, 15)


def _are_alike(sides: list[Value], rank: int) -> bool:
    first, second = (value.type for value in sides)
    if not isinstance(first, T.TensorType) or not isinstance(second, T.TensorType):
        return False
    if first.dtype is None or first.shape is None or None in first.shape or len(first.shape) < rank:
        return False
    return (first.dtype, first.shape) == (second.dtype, second.shape)
