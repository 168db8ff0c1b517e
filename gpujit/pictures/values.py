"""Types and constants as short text: what stands on edges, and the arguments that an operator's label shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_CODE
from gpujit.ir.graph import Node, Value
from gpujit.ir.module_path import object_path
from gpujit.ir.printer import describe, quote
from gpujit.ir.values import Device, EnumValue

_ARRAY_ITEMS = 4
_ITEMS = 8
_TEXT = 200
# What a list is made by; where nobody else reads it, it is part of its reader's arguments.
HOLDERS = ("prim::ListConstruct", "prim::TupleConstruct")


def type_text(t: T.Type) -> str:
    """dtype and shape of a tensor: ``float32[1, 64, 56, 56]``; the type's name for anything else."""
    if isinstance(t, T.TensorType):
        dtype = "" if t.dtype is None else BY_CODE[t.dtype].name if t.dtype in BY_CODE else str(t.dtype)
        if t.shape is None:
            return dtype or "Tensor"
        return f"{dtype}[{', '.join('*' if s is None else str(s) for s in t.shape)}]"
    return str(t)


def constant_text(value: Any, declared: str = "") -> str:
    """A constant in a few words; ``declared`` is the type as the operator's schema writes it."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        is_dtype = declared.startswith("ScalarType") and value in BY_CODE
        return BY_CODE[value].name if is_dtype else int.__repr__(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return quote(value if len(value) <= _TEXT else value[:_TEXT]) + ("..." if len(value) > _TEXT else "")
    if isinstance(value, (list, tuple)):
        items = [constant_text(v) for v in value[:_ITEMS]] + (["..."] if len(value) > _ITEMS else [])
        return f"[{', '.join(items)}]" if isinstance(value, list) else f"({', '.join(items)})"
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())
    if isinstance(value, np.ndarray) and value.size <= _ARRAY_ITEMS and value.dtype.kind in "biu":
        return str(value.tolist())
    if isinstance(value, (complex, Device, EnumValue)):
        return str(value)
    return describe(value)


def is_folded(node: Node) -> bool:
    """Whether a node is shown as an argument of its readers instead of on its own: constants, weights and modules that
    are read, and lists that have one reader."""
    if node.kind == "prim::Constant":
        return True
    if node.kind == "prim::GetAttr":
        owner, output = node.inputs[0].type, node.output.type
        if not isinstance(owner, T.ClassType):
            return False
        if isinstance(output, (T.ClassType, T.InterfaceType)):
            return True
        return node.attributes.get("name") in (*owner.parameters, *owner.buffers)
    return node.kind in HOLDERS and len(node.outputs) == 1 and len(node.output.uses) == 1


def value_text(value: Value, declared: str = "") -> str | None:
    """A folded value's text; None for what a node of the picture makes, in whole or in part."""
    node = value.node
    if not is_folded(node):
        return None
    if node.kind == "prim::Constant":
        return constant_text(node.attributes.get("value"), declared)
    if node.kind == "prim::GetAttr":
        path = object_path(value)
        return str(node.attributes["name"]) if path is None else f"self.{path}"
    items = [value_text(v) for v in node.inputs]
    if None in items:
        return None
    return ("[{}]" if node.kind == "prim::ListConstruct" else "({})").format(", ".join(map(str, items)))


def arguments(node: Node) -> dict[str, str]:
    """Names and texts of a node's arguments that are folded, those with their default value left out."""
    found: dict[str, str] = {}
    declared = () if node.schema is None else node.schema.arguments
    for i, value in enumerate(node.inputs):
        argument = declared[i] if i < len(declared) else None
        if isinstance(value.type, (T.ClassType, T.InterfaceType)) or value.type in (T.NONE, T.FUNCTION):
            continue
        if argument is not None and argument.has_default and value.is_constant:
            constant = value.constant()
            if type(constant) in (int, float, bool, str, list, type(None)) and constant == argument.default:
                continue
        text = value_text(value, "" if argument is None else argument.text)
        if text is not None and text != "None":
            found[f"argument {i}" if argument is None or not argument.name else argument.name] = text
    for name, attribute in node.attributes.items():
        if name in ("name", "Subgraph", "value") or isinstance(attribute, (list, tuple, dict)):
            continue
        found[name] = constant_text(attribute)
    return found
