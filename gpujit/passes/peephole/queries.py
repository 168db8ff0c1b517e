"""Questions about tensors that their types answer: sizes, ranks, dtypes, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.types import TensorType
from gpujit.ir.values import parse_device
from gpujit.ops.infer import infer
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, ints_before, known, replace_node
from gpujit.passes.peephole.facts import NOT_CONSTANT
from gpujit.support.errors import GpujitError

_KINDS: dict[type, T.Type] = {int: T.INT, float: T.FLOAT, bool: T.BOOL, str: T.STR}


@graph_pass("peephole_queries")
def answer_queries(graph: Graph) -> bool:
    """Put constants in the place of what the types of tensors answer."""
    asked = [node for node in graph.all_nodes() if len(node.outputs) == 1 and _is_query(node)]
    answers = [(node, _answer(node)) for node in asked]
    answers = [(node, answer) for node, answer in answers if answer is not NOT_CONSTANT]
    if not answers:
        return False
    alias = AliasAnalysis(graph)
    changed = False
    for node, answer in answers:
        if any(_may_change_geometry(alias, v) for v in node.inputs if isinstance(v.type, TensorType)):
            declined("peephole_queries", node, "its tensor's geometry may be changed in place")
            continue
        replace_node(node, [_constant(node, answer)])
        changed = True
    return changed


def _is_query(node: Node) -> bool:
    """Whether a node tells a number, a string, a device or sizes of tensors."""
    t = node.output.type
    if t not in _KINDS.values() and t != T.DEVICE and t != T.ListType(T.INT):
        return False
    op = entry_of(node)
    return (
        op is not None
        and op.kind == "prim"
        and not op.effects
        and (op.type_rule is not None or op.name in _BY_TYPE)
        and any(isinstance(v.type, TensorType) for v in node.inputs)
    )


def _answer(node: Node) -> Any:
    op = entry_of(node)
    assert op is not None
    rule = _BY_TYPE.get(op.name)
    if rule is not None:
        t = node.inputs[0].type
        return rule(t) if isinstance(t, TensorType) else NOT_CONSTANT
    try:
        found = infer(op, [known(v) for v in node.inputs])
    except GpujitError:
        # It raises when it is run, and has to.
        return NOT_CONSTANT
    if isinstance(found, (list, tuple)):
        return list(found) if all(type(n) is int for n in found) else NOT_CONSTANT
    return found if type(found) in _KINDS else NOT_CONSTANT


def _device(t: TensorType) -> Any:
    return NOT_CONSTANT if t.device is None else parse_device(t.device)


def _is_cuda(t: TensorType) -> Any:
    return NOT_CONSTANT if t.device is None else parse_device(t.device).type == "cuda"


def _is_cpu(t: TensorType) -> Any:
    return NOT_CONSTANT if t.device is None else parse_device(t.device).type == "cpu"


def _requires_grad(t: TensorType) -> Any:
    return NOT_CONSTANT if t.requires_grad is None else t.requires_grad


# Answered by fields of a type that operators' rules neither read nor fill in.
_BY_TYPE = {
    "prim::device": _device,
    "prim::is_cuda": _is_cuda,
    "prim::is_cpu": _is_cpu,
    "prim::requires_grad": _requires_grad,
}


def _may_change_geometry(alias: AliasAnalysis, tensor: Value) -> bool:
    """Whether anybody may give the tensor another shape or dtype: all writers must be known to leave those alone."""
    return any(_writes_geometry(node) for node in alias.writers(tensor))


def _writes_geometry(node: Node) -> bool:
    op = entry_of(node)
    if op is None or op.kind == "view":
        return True
    written = [v.type for v, a in zip(node.inputs, op.schema.arguments, strict=False) if a.is_write]
    if op.form == "inplace" or not written:
        # The in-place form of an operator refuses results of another shape.
        return op.form != "inplace"
    try:
        found = infer(op, [known(v) for v in node.inputs])
    except GpujitError:
        return True
    results: Sequence[Any] = found if isinstance(found, tuple) else (found,)
    return len(written) != 1 or not all(
        isinstance(r, TensorType)
        and isinstance(w, TensorType)
        and r.shape is not None
        and (r.dtype, r.shape) == (w.dtype, w.shape)
        for r, w in zip(results, written, strict=False)
    )


def _constant(node: Node, answer: Any) -> Value:
    if not isinstance(answer, list):
        return constant_before(node, answer, _KINDS.get(type(answer), T.DEVICE))
    return ints_before(node, answer)
