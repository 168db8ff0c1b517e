"""Nodes put before one that they are to replace, with constants made of plain numbers and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of
from gpujit.ir.graph import Node, Value
from gpujit.passes.nodes import constant_before, insert_op, ints_before, like
from gpujit.passes.peephole.facts import constant_of, dtype_of


class Writer:
    """Puts nodes before ``node``: ``write("add.Tensor", x, 1)`` is the result of ``aten::add.Tensor``."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __call__(self, what: str | np.ndarray, *arguments: Any) -> Value:
        """An operator's result, or a constant tensor."""
        if isinstance(what, np.ndarray):
            return self._value(what)
        return insert_op(self._node, f"aten::{what}", [self._value(a) for a in arguments], self._node)

    def tensors(self, *items: Value) -> Value:
        """A list of tensors."""
        listed = like(Node("prim::ListConstruct", items), self._node).insert_before(self._node)
        return listed.add_output(T.ListType(T.TENSOR))

    def product(self, a: Value | float, b: Value | float) -> Value:
        """The product of a tensor and a tensor or number, or of two numbers, as a tensor."""
        if isinstance(a, Value) and isinstance(b, Value):
            return self("mul.Tensor", a, b)
        if isinstance(a, Value) or isinstance(b, Value):
            return self("mul.Scalar", a, b) if isinstance(a, Value) else self("mul.Scalar", b, a)
        return self(np.asarray(a * b))

    def constant(self, x: Any) -> Value:
        """A constant."""
        return self._value(x)

    def _value(self, x: Any) -> Value:
        if isinstance(x, Value):
            return x
        if isinstance(x, np.ndarray):
            return constant_before(self._node, x, T.TensorType(code_of(x.dtype), x.shape))
        if isinstance(x, list):
            return ints_before(self._node, x)
        return constant_before(self._node, x)


def known_dtype(*values: Value) -> np.dtype | None:
    """The one dtype of tensors; None when they differ, or one is not known."""
    found = {dtype_of(v) for v in values}
    return found.pop() if len(found) == 1 else None


def numbers_of(value: Value) -> list[int] | None:
    """A list of constant ints; None for others."""
    found = constant_of(value)
    return found if isinstance(found, list) and all(type(n) is int for n in found) else None
