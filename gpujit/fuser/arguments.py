"""What a node's operator is called with, as far as it is known before the program runs."""

from __future__ import annotations

from typing import Any

from gpujit.ir.graph import Node, Value
from gpujit.ir.types import TensorType
from gpujit.ops.registry import Op
from gpujit.passes.effects import entry_of


class NotKnown(Exception):
    """An argument that a kernel would have to know is only known at run time; the message names it."""


def is_tensor(value: Value) -> bool:
    """Whether a value is one tensor."""
    return isinstance(value.type, TensorType)


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of a tensor. Raises NotKnown when one is not known."""
    t = value.type
    if not isinstance(t, TensorType) or t.shape is None or not all(type(n) is int for n in t.shape):
        raise NotKnown(f"the shape of {value!r} is not known")
    return t.shape  # type: ignore[return-value]


def known(value: Value) -> Any:
    """A value that is no tensor: a constant, or a list or tuple of them. Raises NotKnown."""
    if value.is_constant:
        return value.constant()
    if value.node.kind in ("prim::ListConstruct", "prim::TupleConstruct"):
        items = [known(v) for v in value.node.inputs]
        return items if value.node.kind == "prim::ListConstruct" else tuple(items)
    raise NotKnown(f"{value!r}, an argument of the operator, is known only at run time")


def arguments_of(node: Node) -> tuple[Op, list[Any]]:
    """The entry of a node and its arguments in the schema's order: Values for tensors (in lists too), else what is known.

    Raises NotKnown: no entry, or an argument that is known only at run time.
    """
    op = entry_of(node)
    if op is None:
        raise NotKnown(f"{node.kind} is no operator of the table")
    found = [argument(value) for value in node.inputs]
    found += [a.default for a in op.schema.arguments[len(found) :]]
    return op, found


def argument(value: Value) -> Any:
    """A tensor as its Value, a list of tensors as a list of them, anything else as what is known of it."""
    if is_tensor(value) and not value.is_constant:
        return value
    if value.is_constant:
        constant = value.constant()
        return value if hasattr(constant, "dtype") and hasattr(constant, "strides") else constant
    if value.node.kind == "prim::ListConstruct" and value.node.inputs and all(map(is_tensor, value.node.inputs)):
        return list(value.node.inputs)
    return known(value)
