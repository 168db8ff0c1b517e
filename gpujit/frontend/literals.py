"""Literals of serialized source, and the types of constants."""

from __future__ import annotations

import ast
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject, parse_device
from gpujit.ops.families.quantized.pack import class_of
from gpujit.support.errors import DeviceError


class _NotLiteral:
    pass


NOT_LITERAL = _NotLiteral()
NAMED_NUMBERS = {
    "inf": float("inf"), "nan": float("nan"), "infj": complex(0, float("inf")), "nanj": complex(0, float("nan")),
}  # fmt: skip
INT_MAX = (1 << 63) - 1


def literal(node: ast.expr, depth: int = 0) -> Any:
    """The Python value of a literal (numbers, strings, None, lists, tuples, dicts of them), or NOT_LITERAL."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float, complex, str, type(None))) else NOT_LITERAL
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand, depth + 1)
        return -value if isinstance(value, (int, float, complex)) else NOT_LITERAL
    if isinstance(node, ast.Name):
        return NAMED_NUMBERS.get(node.id, NOT_LITERAL)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        # Complex numbers are written '0.+3.j'.
        left, right = literal(node.left, depth + 1), literal(node.right, depth + 1)
        if isinstance(left, (int, float)) and isinstance(right, complex):
            return complex(left, right.imag if isinstance(node.op, ast.Add) else -right.imag)
        return NOT_LITERAL
    if isinstance(node, (ast.List, ast.Tuple)) and depth < 64:
        items = [literal(e, depth + 1) for e in node.elts]
        if any(i is NOT_LITERAL for i in items):
            return NOT_LITERAL
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) and depth < 64:
        keys = [NOT_LITERAL if k is None else literal(k, depth + 1) for k in node.keys]
        values = [literal(v, depth + 1) for v in node.values]
        if any(i is NOT_LITERAL for i in (*keys, *values)) or any(isinstance(k, (list, dict, tuple)) for k in keys):
            return NOT_LITERAL
        return dict(zip(keys, values, strict=True))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "annotate"
        and len(node.args) == 2
    ):
        return literal(node.args[1], depth + 1)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "device"
        and len(node.args) == 1
    ):
        text = literal(node.args[0], depth + 1)
        if isinstance(text, str):
            try:
                return parse_device(text)
            except DeviceError:
                return NOT_LITERAL
    return NOT_LITERAL


def type_of_constant(value: Any) -> T.Type | None:
    """The type of a constant's Python value, or None when it cannot be one."""
    if value is None:
        return T.NONE
    kind = type(value)
    simple = {bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STR, Device: T.DEVICE}.get(kind)
    if simple is not None:
        return simple
    if isinstance(value, EnumValue):
        return value.type
    if isinstance(value, ScriptObject):
        return value.type
    if (
        isinstance(value, QTensor)
        or hasattr(value, "__array_interface__")
        or hasattr(value, "__cuda_array_interface__")
    ):
        return T.TENSOR
    if isinstance(value, tuple):
        parts = [type_of_constant(v) for v in value]
        return None if any(p is None for p in parts) else T.TupleType(tuple(p for p in parts if p is not None))
    if isinstance(value, list):
        element: T.Type | None = None
        for v in value:
            t = type_of_constant(v)
            element = t if element is None or t is None else T.unify(element, t)
            if element is None:
                return None
        return T.ListType(T.TENSOR if element is None else element)
    if isinstance(value, dict) and value:
        keys, values = type_of_constant(list(value)), type_of_constant(list(value.values()))
        if isinstance(keys, T.ListType) and isinstance(values, T.ListType):
            return T.DictType(keys.element, values.element)
    return class_of(value)
