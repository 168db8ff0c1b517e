"""Making nodes inside a pass: overload, types, source and call set, constants put where they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.parser import type_of_constant
from gpujit.ir.schema import Argument, Schema
from gpujit.ops import table
from gpujit.ops.infer import infer
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import UNKNOWN, ListOf, Unknown
from gpujit.passes.analysis.effects import entry_of, resolve_node
from gpujit.support.errors import DTypeError, InternalError, ShapeError

__all__ = [
    "constant_before",
    "infer_types",
    "insert_node",
    "insert_op",
    "ints_before",
    "known",
    "like",
    "loop_around",
    "replace_node",
    "resolve_node",
]


def loop_around(node: Node) -> Node | None:
    """The innermost loop the node is in."""
    block = node.block
    while block is not None and block.owner is not None:
        if block.owner.kind == "prim::Loop":
            return block.owner
        block = block.owner.block
    return None


_PYTHON_TYPES: dict[T.Type, type] = {T.INT: int, T.FLOAT: float, T.BOOL: bool, T.STR: str, T.COMPLEX: complex}


def like(node: Node, model: Node) -> Node:
    """The node, with source and call of ``model``."""
    node.source, node.call = model.source, model.call
    return node


def constant_before(node: Node, value: Any, type: T.Type | None = None) -> Value:
    """A new constant before ``node``, of the type that the value has by itself unless one is given."""
    constant = Node("prim::Constant", (), {} if value is None else {"value": value})
    output = constant.add_output(type_of_constant(value) if type is None else type)
    like(constant, node).insert_before(node)
    return output


def ints_before(node: Node, numbers: Sequence[int]) -> Value:
    """A new list of constant ints before ``node``."""
    listed = Node("prim::ListConstruct", [constant_before(node, n, T.INT) for n in numbers])
    return like(listed, node).insert_before(node).add_output(T.ListType(T.INT))


def insert_node(
    before: Node, full_name: str, inputs: Sequence[Value], like: Node, outputs: Sequence[T.Type] | None = None
) -> Node:
    """A new node of the operator ``aten::add.Tensor`` before ``before``, with the source and call of ``like``.

    Trailing arguments that have defaults may be left out; constants are made for them. ``outputs`` are the types of its
    results; by default they are inferred.
    Raises InternalError when there is no such operator or an argument is missing.
    """
    op = table.by_full_name(full_name)
    if op is None:
        raise InternalError(f"there is no operator {full_name}")
    arguments = op.schema.arguments
    given = list(inputs)
    for argument in arguments[len(given) :]:
        if not argument.has_default:
            raise InternalError(f"{full_name}: argument {argument.name} is missing")
        given.append(constant_before(before, argument.default, _type_of_default(argument)))
    node = Node(op.name, given)
    node.schema = op.schema
    node.source, node.call = like.source, like.call
    node.insert_before(before)
    for t in infer_types(node, op) if outputs is None else outputs:
        node.add_output(t)
    return node


def insert_op(before: Node, full_name: str, inputs: Sequence[Value], like: Node) -> Value:
    """The result of a new node of the operator ``aten::add.Tensor``; see ``insert_node``."""
    return insert_node(before, full_name, inputs, like).output


def replace_node(node: Node, values: Sequence[Value]) -> None:
    """Make everyone who reads the node's results read ``values`` instead, and destroy the node.

    Raises InternalError when there are more or fewer values than results.
    """
    if len(values) != len(node.outputs):
        raise InternalError(f"{node!r} has {len(node.outputs)} results, given are {len(values)}")
    for output, value in zip(node.outputs, values, strict=True):
        output.replace_all_uses_with(value)
    node.destroy()


def _type_of_default(argument: Argument) -> T.Type:
    if argument.default is None:
        return T.NONE
    t = argument.type.element if isinstance(argument.type, T.OptionalType) else argument.type
    return type_of_constant(argument.default) if t == T.NUMBER else t


def known(value: Value) -> Any:
    """What is known of a value, as ``ops.infer`` takes it: a tensor's type, a constant, a list of what is known of its
    elements, or UNKNOWN."""
    if value.is_constant:
        constant = value.constant()
        return value.type if isinstance(value.type, T.TensorType) else constant
    t = value.type
    if isinstance(t, T.TensorType):
        return t
    if value.node.kind == "prim::ListConstruct" and _is_only_read(value):
        return [known(v) for v in value.node.inputs]
    if isinstance(t, T.ListType) and isinstance(t.element, T.TensorType):
        return ListOf(t.element)
    return Unknown(_PYTHON_TYPES[t]) if t in _PYTHON_TYPES else UNKNOWN


def elements_of(value: Value) -> list[Value] | None:
    """The elements of a list that is made where it stands and that nobody changes; None for other values."""
    if value.is_constant or value.node.kind != "prim::ListConstruct" or not isinstance(known(value), list):
        return None
    return list(value.node.inputs)


def _is_only_read(value: Value) -> bool:
    """Whether no reader writes the list or keeps it."""
    for node, index in value.uses:
        schema = _schema_of(node)
        if schema is None or index >= len(schema.arguments) or schema.arguments[index].alias is not None:
            return False
    return True


def _schema_of(node: Node) -> Schema | None:
    if node.schema is not None:
        return node.schema
    op = entry_of(node)
    return None if op is None else op.schema


def infer_types(node: Node, op: Op | None = None) -> list[T.Type]:
    """The types of the node's results, as far as its inputs tell; what its schema says where they do not."""
    op = op or entry_of(node)
    if op is None:
        return [v.type for v in node.outputs]
    try:
        found = infer(op, [known(v) for v in node.inputs])
    except (ShapeError, DTypeError):
        # It will be raised when the program runs, if the node does.
        found = UNKNOWN
    returns = op.schema.returns
    results = found if len(returns) > 1 and isinstance(found, tuple) else [found] * len(returns)
    return [_declared(node, op.schema, r.type, x) for r, x in zip(returns, results, strict=True)]


def _declared(node: Node, schema: Schema, t: T.Type, found: Any) -> T.Type:
    if isinstance(t, T.TensorType):
        return T.TensorType(found.dtype, found.shape) if isinstance(found, T.TensorType) else t
    if not t.has_var:
        return t
    binding: dict[str, T.Type] = {}
    for argument, value in zip(schema.arguments, node.inputs, strict=False):
        _bind(argument.type, value.type, binding)
    return T.substitute(t, binding)


def _bind(formal: T.Type, actual: T.Type, binding: dict[str, T.Type]) -> None:
    if isinstance(formal, T.VarType):
        binding.setdefault(formal.name, actual)
    elif formal.has_var:
        if isinstance(formal, T.OptionalType) and not isinstance(actual, T.OptionalType):
            _bind(formal.element, actual, binding)
            return
        for f, a in zip(formal.children(), actual.children(), strict=False):
            _bind(f, a, binding)
