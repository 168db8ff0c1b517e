"""What is known once all tensors of a program lie on one device: moves to it are none, questions for it are answered.

A program that NumPy runs has all its tensors on the CPU; traces nevertheless name the device in most casts.
"""

from __future__ import annotations

from typing import Any

from gpujit.ir import types as T
from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, code_of, numpy_dtype
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.values import Device, parse_device
from gpujit.passes.analysis.placement import FULL, REDUCED
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name


@graph_pass("on_cpu")
def on_cpu(graph: Graph) -> bool:
    """Use that all tensors lie on the CPU."""
    return on_device(graph, "cpu")


def on_device(graph: Graph, device: str) -> bool:
    """Use that all tensors of the graph, inputs and attributes included, lie on ``device``; whether the graph changed.

    Moves to other devices stay (with what they raise), and so does everything else in a graph that has some.
    Raises DeviceError for text that names no device.
    """
    place = parse_device(device)
    nodes = list(graph.all_nodes())
    for node in nodes:
        for value in node.inputs:
            if value.type == T.DEVICE and value.is_constant and value.constant() != place:
                declined("on_device", node, f"it names {value.constant()}, so not all tensors may lie on {place}")
                return False
    changed = False
    for node in nodes:
        known = _known(node, place)
        if known is not None:
            replace_node(node, [known])
            changed = True
    return changed


def _known(node: Node, place: Device) -> Value | None:
    name = full_name(node)
    rule = _ANSWERS.get(name or "")
    if rule is not None and isinstance(node.inputs[0].type, T.TensorType):
        answer = rule(place)
        return constant_before(node, answer, T.BOOL if isinstance(answer, bool) else T.DEVICE)
    if name in (REDUCED, FULL):
        return _automatic_cast(node, place)
    at = _MOVES.get(name or "")
    if at is None:
        return None
    device = node.inputs[at["device"]]
    # None asks for the device the tensor lies on.
    if device.type != T.NONE and not (device.is_constant and device.constant() == place):
        return None
    if any(constant_of(node.inputs[i]) not in (None, 0, False) for i in at["rest"]):
        return None
    dtype, copy = node.inputs[at["dtype"]], node.inputs[at["copy"]]
    form = [node.inputs[at["memory_format"]]] if "memory_format" in at else []
    if dtype.type == T.INT:
        inputs = (node.inputs[0], dtype, node.inputs[at["non_blocking"]], copy, *form)
        return insert_op(node, "aten::to.dtype", inputs, node)
    # Preserving the memory format is what a tensor that stays does anyway.
    if dtype.type == T.NONE and constant_of(copy) is False and all(constant_of(f) in (None, 1) for f in form):
        return insert_op(node, "aten::alias", (node.inputs[0],), node)
    return None


def _automatic_cast(node: Node, place: Device) -> Value | None:
    """An automatic cast as a cast, or as its operand where nothing changes, once the operand's dtype is known."""
    settled = [constant_of(v) for v in node.inputs[1:]]
    here = 0 if place.type == "cuda" else 1
    operand = node.inputs[0]
    dtype = operand.type.dtype if isinstance(operand.type, T.TensorType) else None
    if settled[here] is False or (settled[here] is True and dtype is not None and not _is_cast(node.kind, dtype)):
        return insert_op(node, "aten::alias", (operand,), node)
    to = code_of(FLOAT32) if node.kind == FULL else settled[2 + here]
    if settled[here] is not True or dtype is None or type(to) is not int:
        return None
    no = constant_before(node, False)
    return insert_op(node, "aten::to.dtype", (operand, constant_before(node, to), no, no), node)


def _is_cast(kind: str, dtype: int) -> bool:
    return dtype == code_of(FLOAT32) if kind == REDUCED else numpy_dtype(dtype) in HALF_TYPES


_ANSWERS: dict[str, Any] = {
    "prim::device": lambda place: place,
    "prim::is_cuda": lambda place: place.type == "cuda",
    "prim::is_cpu": lambda place: place.type == "cpu",
}
# Where an overload keeps its arguments; those in "rest" (layout, pinned memory) must ask for nothing special.
_MOVES: dict[str, Any] = {
    "aten::to.device": {"device": 1, "dtype": 2, "non_blocking": 3, "copy": 4, "memory_format": 5, "rest": ()},
    "aten::to.dtype_layout": {
        "dtype": 1, "device": 3, "non_blocking": 5, "copy": 6, "memory_format": 7, "rest": (2, 4),
    },
    "aten::to.prim_Device": {"device": 1, "dtype": 2, "non_blocking": 3, "copy": 4, "rest": ()},
}  # fmt: skip
