"""Arithmetic on 0-dim tensors made of Python numbers, as traces record it, turned back into arithmetic on numbers.

A trace stores ``x.size(0) * 2`` as ``NumToTensor``, ``mul`` of tensors and ``Int``. Where every step is one whose
result on numbers is the same to the last bit (64-bit integers wrap in both, floats are float64 in both), the reader of
the number reads the number. Steps that go through float32 (true division of integers) stay.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, remove_unread

_INT64, _FLOAT64, _BOOL = 4, 7, 11
_CODES: dict[T.Type, int] = {T.INT: _INT64, T.FLOAT: _FLOAT64, T.BOOL: _BOOL}


@graph_pass("scalars")
def numbers_instead_of_tensors(graph: Graph) -> bool:
    """Let readers of a number take it from scalar arithmetic instead of from 0-dim tensors."""
    readers = [node for node in graph.all_nodes() if full_name(node) in _READERS]
    if not readers:
        return False
    twins = _Twins(AliasAnalysis(graph))
    changed = False
    for node in readers:
        tensor = node.inputs[0]
        number = twins.of(tensor)
        if number is None:
            continue
        value = _READERS[full_name(node)](node, number)
        if value is None:
            declined("scalars", node, f"a {number.type} is no number it may read")
            continue
        replace_node(node, [value])
        changed = True
    remove_unread(twins.added)
    if changed:
        remove_unread(twins.passed)
    return changed


# ------------------------------------------------------------------------------------------------ numbers of tensors

Step = Callable[["_Twins", Node], "Value | None"]


class _Twins:
    """For each 0-dim tensor that is known to hold a number: the value that is this number."""

    def __init__(self, alias: AliasAnalysis) -> None:
        self.alias = alias
        self.known: dict[Value, Value | None] = {}
        # Tensor nodes that may have lost their readers, and nodes on numbers that may have found none.
        self.passed: list[Node] = []
        self.added: list[Node] = []

    def of(self, tensor: Value) -> Value | None:
        """The number (int, float or bool) that a tensor holds, None when it is not known to be one."""
        # Chains are as long as a traced program makes them, so they are not followed by recursion.
        stack = [tensor]
        while stack:
            value = stack[-1]
            if value in self.known:
                stack.pop()
                continue
            step = _STEPS.get(full_name(value.node))
            needed = [v for v in value.node.inputs if isinstance(v.type, T.TensorType)] if step else []
            missing = [v for v in needed if v not in self.known]
            if missing:
                stack += missing
                continue
            self.known[value] = self._made(value, step)
            stack.pop()
        return self.known[tensor]

    def _made(self, value: Value, step: Step | None) -> Value | None:
        if value.is_constant:
            return self._of_constant(value)
        if step is None or self.alias.is_written(value):
            return None
        number = step(self, value.node)
        if number is not None:
            self.passed.append(value.node)
        return number

    def _of_constant(self, value: Value) -> Value | None:
        array = value.constant()
        if not isinstance(array, np.ndarray) or array.ndim or self.alias.is_written(value):
            return None
        for dtype, type_ in ((np.int64, T.INT), (np.float64, T.FLOAT), (np.bool_, T.BOOL)):
            if array.dtype == dtype:
                following = value.node.next
                assert following is not None
                number = constant_before(following, array.item(), type_)
                self.passed.append(value.node)
                self.added.append(number.node)
                return number
        return None

    def applied(self, node: Node, name: str, *numbers: Value) -> Value:
        """The result of a new node on numbers, in the place of ``node``."""
        result = insert_op(node, name, numbers, node)
        self.added.append(result.node)
        return result

    def operand(self, value: Value) -> Value | None:
        """The number an operand is: itself, or what the tensor holds."""
        return self.known.get(value) if isinstance(value.type, T.TensorType) else value


def _number(twins: _Twins, node: Node) -> Value | None:
    return node.inputs[0] if node.inputs[0].type in _CODES else None


def _same(twins: _Twins, node: Node) -> Value | None:
    return twins.known[node.inputs[0]]


def _cast(twins: _Twins, node: Node) -> Value | None:
    number = twins.known[node.inputs[0]]
    at = [a.name for a in node.schema.arguments].index("dtype") if node.schema is not None else 0
    if number is None:
        return None
    wanted = constant_of(node.inputs[at])
    return number if wanted is None or wanted == _CODES[number.type] else None


def _from_number(twins: _Twins, node: Node) -> Value | None:
    """``aten::tensor`` and ``aten::scalar_tensor`` of a number in the number's own dtype."""
    number, dtype = node.inputs[0], constant_of(node.inputs[1])
    code = _CODES.get(number.type)
    # Without a dtype a float becomes float32, and scalar_tensor makes everything float32.
    as_is = dtype is None and code in (_INT64, _BOOL) and node.kind == "aten::tensor"
    return number if as_is or (code is not None and dtype == code) else None


def _binary(ints: str | None, floats: str | None = None) -> Step:
    """A step of two numbers of one type."""

    def step(twins: _Twins, node: Node) -> Value | None:
        a, b = (twins.operand(v) for v in node.inputs[:2])
        if a is None or b is None:
            return None
        return _applied(twins, node, ints, floats, a, b)

    return step


def _applied(twins: _Twins, node: Node, ints: str | None, floats: str | None, a: Value, b: Value) -> Value | None:
    name = ints if a.type == b.type == T.INT else floats if a.type == b.type == T.FLOAT else None
    return None if name is None else twins.applied(node, name, a, b)


def _scaled(name: str, swap: bool = False) -> Step:
    """add, sub and rsub: the other operand times alpha."""

    def step(twins: _Twins, node: Node) -> Value | None:
        a, b = (twins.operand(v) for v in node.inputs[:2])
        if a is None or b is None or (constant_of(node.inputs[2]), type(constant_of(node.inputs[2]))) != (1, int):
            return None
        if swap:
            a, b = b, a
        return _applied(twins, node, f"aten::{name}.int", f"aten::{name}.float", a, b)

    return step


def _divided(twins: _Twins, node: Node) -> Value | None:
    a, b = (twins.operand(v) for v in node.inputs[:2])
    name = {"floor": "aten::floordiv.int", "trunc": "aten::__round_to_zero_floordiv.int"}.get(
        constant_of(node.inputs[2])
    )
    return None if a is None or b is None or name is None else _applied(twins, node, name, None, a, b)


def _negated(twins: _Twins, node: Node) -> Value | None:
    number = twins.known[node.inputs[0]]
    if number is None or number.type not in (T.INT, T.FLOAT):
        return None
    return twins.applied(node, f"aten::neg.{number.type}", number)


_STEPS: dict[str | None, Step] = {
    "prim::NumToTensor.Scalar": _number,
    "prim::NumToTensor.bool": _number,
    "aten::tensor.int": _from_number,
    "aten::tensor.float": _from_number,
    "aten::tensor.bool": _from_number,
    "aten::scalar_tensor": _from_number,
    "aten::detach": _same,
    "aten::clone": _same,
    "aten::alias": _same,
    "aten::contiguous": _same,
    "aten::to.dtype": _cast,
    "aten::to.prim_dtype": _cast,
    "aten::neg": _negated,
    "aten::div.Tensor_mode": _divided,
    "aten::div.Scalar_mode": _divided,
    "aten::rsub.Tensor": _scaled("sub", swap=True),
    "aten::rsub.Scalar": _scaled("sub", swap=True),
    "aten::floor_divide": _binary("aten::floordiv.int"),
    "aten::floor_divide.Scalar": _binary("aten::floordiv.int"),
    "aten::minimum": _binary("prim::min.int"),
    "aten::maximum": _binary("prim::max.int"),
}
for _form in ("Tensor", "Scalar"):
    _STEPS[f"aten::add.{_form}"] = _scaled("add")
    _STEPS[f"aten::sub.{_form}"] = _scaled("sub")
    _STEPS[f"aten::mul.{_form}"] = _binary("aten::mul.int", "aten::mul.float")
    # Float remainders are computed in another way for numbers than for tensors.
    _STEPS[f"aten::remainder.{_form}"] = _binary("aten::remainder.int")
    for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
        _STEPS[f"aten::{_name}.{_form}"] = _binary(f"aten::{_name}.int", f"aten::{_name}.float")
# A number divided by a number is a float64 as that of two float64 tensors; of two integers it would be a float32.
_STEPS["aten::div.Tensor"] = _binary(None, "aten::div.float")
_STEPS["aten::div.Scalar"] = _STEPS["aten::div.Tensor"]


# ----------------------------------------------------------------------------------------------- readers of a number


def _read_as(wanted: T.Type, conversions: dict[T.Type, str]) -> Callable[[Node, Value], Value | None]:
    def read(node: Node, number: Value) -> Value | None:
        if number.type == wanted:
            return number
        name = conversions.get(number.type)
        return None if name is None else insert_op(node, name, (number,), node)

    return read


def _read_any(node: Node, number: Value) -> Value | None:
    return number


_READERS: dict[str | None, Callable[[Node, Value], Value | None]] = {
    "aten::Int.Tensor": _read_as(T.INT, {T.BOOL: "aten::Int.bool"}),
    "aten::Float.Tensor": _read_as(T.FLOAT, {T.INT: "aten::Float.int", T.BOOL: "aten::Float.bool"}),
    "aten::Bool.Tensor": _read_as(T.BOOL, {T.INT: "aten::Bool.int", T.FLOAT: "aten::Bool.float"}),
    # The implicit forms refuse tensors of another type, which then stay for the error.
    "aten::IntImplicit": _read_as(T.INT, {}),
    "aten::FloatImplicit": _read_as(T.FLOAT, {}),
    "aten::ScalarImplicit": _read_any,
    "aten::item": _read_any,
}
