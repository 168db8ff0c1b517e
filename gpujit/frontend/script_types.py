"""Types of scripted code: from annotations, type comments and the objects they name."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.frontend.lang import parse_python
from gpujit.frontend.python_names import TorchPath, torch_path
from gpujit.ir import types as T
from gpujit.support.errors import SourceError

_MAX_DEPTH = 64
_TORCH_TYPES: dict[str, T.Type] = {
    "Tensor": T.TENSOR, "_tensor.Tensor": T.TENSOR, "_C.TensorBase": T.TENSOR, "nn.parameter.Parameter": T.TENSOR,
    "nn.Parameter": T.TENSOR, "device": T.DEVICE, "dtype": T.INT, "layout": T.INT, "memory_format": T.INT,
    "Generator": T.GENERATOR, "_C.Generator": T.GENERATOR, "Size": T.ListType(T.INT), "number": T.NUMBER,
    "types.Number": T.NUMBER, "Stream": T.STREAM, "LongTensor": T.TENSOR, "FloatTensor": T.TENSOR,
    "SymInt": T.INT, "SymFloat": T.FLOAT, "SymBool": T.BOOL,
    "IntTensor": T.TENSOR, "BoolTensor": T.TENSOR, "DoubleTensor": T.TENSOR, "HalfTensor": T.TENSOR,
}  # fmt: skip
_SIMPLE: dict[Any, T.Type] = {
    int: T.INT, float: T.FLOAT, bool: T.BOOL, str: T.STR, complex: T.COMPLEX, None: T.NONE, type(None): T.NONE,
    typing.Any: T.ANY, np.ndarray: T.TENSOR,
}  # fmt: skip
_BOXES = ("Future", "Await", "RRef", "_Await")


class TypeReader:
    """Reads the types that annotations name.

    Args:
        find: gives the Python object of a name, or raises KeyError.
        class_type: gives the type of a Python class, or None when it is none of the language's.
        error: makes the error for a message and the syntax it belongs to.
    """

    def __init__(
        self,
        find: Callable[[str], Any],
        class_type: Callable[[type], T.Type | None],
        error: Callable[[str, ast.AST], SourceError],
    ) -> None:
        self.find = find
        self.class_type = class_type
        self.error = error

    def read(self, node: ast.expr, depth: int = 0) -> T.Type:
        """The type an annotation's syntax names."""
        if depth > _MAX_DEPTH:
            raise self.error("a type is nested too deeply", node)
        if isinstance(node, ast.Constant):
            if node.value is None:
                return T.NONE
            if isinstance(node.value, str):
                return self.read(self.parse(node.value, node), depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return T.union((self.read(node.left, depth + 1), self.read(node.right, depth + 1)))
        if isinstance(node, ast.Subscript):
            base = self.object_of(node.value)
            parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self.generic(base, parts, node, depth)
        return self.of_object(self.object_of(node), node)

    def parse(self, text: str, node: ast.AST) -> ast.expr:
        try:
            (statement,) = parse_python(text.strip()).body
        except (SyntaxError, ValueError):
            statement = ast.Pass()
        if not isinstance(statement, ast.Expr):
            raise self.error(f"{text[:80]!r} is no type", node)
        for part in ast.walk(statement.value):
            ast.copy_location(part, node)
        return statement.value

    def object_of(self, node: ast.expr) -> Any:
        """The Python object a dotted name of an annotation stands for."""
        if isinstance(node, ast.Name):
            try:
                return self.find(node.id)
            except KeyError:
                raise self.error(f"Unknown type name '{node.id}'", node) from None
        if isinstance(node, ast.Attribute):
            owner = self.object_of(node.value)
            try:
                return getattr(owner, node.attr)
            except AttributeError:
                raise self.error(f"Unknown type name '{ast.unparse(node)}'", node) from None
        raise self.error(f"Unknown type constructor '{ast.unparse(node)[:80]}'", node)

    def generic(self, base: Any, parts: list[ast.expr], node: ast.AST, depth: int) -> T.Type:
        kind = _generic_kind(base)
        if kind == "Tuple" and len(parts) == 1 and isinstance(parts[0], ast.Tuple) and not parts[0].elts:
            return T.TupleType(())
        if kind == "Tuple" and not parts:
            return T.TupleType(())
        if kind == "Literal":
            raise self.error("Literal types are not part of TorchScript; use str or int", node)
        return self.build(kind, [self.read(p, depth + 1) for p in parts], node, base)

    def build(self, kind: str | None, inner: list[T.Type], node: ast.AST, base: Any) -> T.Type:
        if kind == "Tuple":
            return T.TupleType(tuple(inner))
        if kind == "Union" and inner:
            return T.union(inner)
        if kind == "Dict" and len(inner) == 2:
            if inner[0] not in (T.STR, T.INT, T.FLOAT, T.BOOL, T.COMPLEX) and not isinstance(inner[0], T.TensorType):
                raise self.error(
                    f"Cannot create dict for key type '{inner[0].annotation()}', only int, float, complex, Tensor, "
                    "device and string keys are supported",
                    node,
                )
            return T.DictType(*inner)
        if len(inner) == 1:
            if kind == "List":
                return T.ListType(inner[0])
            if kind == "Optional":
                return T.optional(inner[0])
            if kind == "Final":
                return inner[0]
            if kind in _BOXES:
                return T.BoxType(kind.strip("_"), inner[0])
        raise self.error(f"Unknown type constructor {base!r}", node)

    def of_object(self, obj: Any, node: ast.AST) -> T.Type:
        """The type a Python object of an annotation stands for (``int``, ``List[int]``, a class)."""
        if isinstance(obj, str):
            return self.read(self.parse(obj, node), 1)
        if isinstance(obj, typing.ForwardRef):
            return self.read(self.parse(obj.__forward_arg__, node), 1)
        try:
            simple = _SIMPLE.get(obj)
        except TypeError:
            simple = None
        if simple is not None:
            return simple
        if obj in (list, dict, tuple, typing.Optional, typing.Union, list, dict, tuple):
            name = getattr(obj, "_name", None) or getattr(obj, "__name__", None) or str(obj)
            raise self.error(f"Attempted to use {name} without a contained type. Please add a contained type", node)
        marker = getattr(obj, "_gpujit_type", None)
        if isinstance(marker, T.Type):
            return marker
        path = torch_path(obj)
        if path is not None and path in _TORCH_TYPES:
            return _TORCH_TYPES[path]
        origin = typing.get_origin(obj)
        if origin is not None:
            args = typing.get_args(obj)
            if origin is tuple and args == ((),):
                args = ()
            return self.build(_generic_kind(origin), [self.of_object(a, node) for a in args], node, obj)
        if isinstance(obj, types.UnionType):
            return T.union(self.of_object(a, node) for a in typing.get_args(obj))
        if inspect.isclass(obj):
            try:
                found = self.class_type(obj)
            except SourceError as e:
                if e.where:
                    raise
                raise self.error(e.message, node) from None
            if found is not None:
                return found
        name = getattr(obj, "__name__", None) or repr(obj)
        raise self.error(f"Unknown type name '{name}'", node)


def _generic_kind(base: Any) -> str | None:
    """The constructor a generic's base names: ``List``, ``Dict`` and so on."""
    if base in (list, list):
        return "List"
    if base in (dict, dict):
        return "Dict"
    if base in (tuple, tuple):
        return "Tuple"
    if base in (typing.Union, types.UnionType):
        return "Union"
    if base is typing.Optional:
        return "Optional"
    if base is typing.Literal:
        return "Literal"
    if base is typing.Final or getattr(base, "_gpujit_final", False):
        return "Final"
    if type(base).__name__ in ("BroadcastingListCls", "BroadcastingList"):
        return "List"
    if isinstance(base, TorchPath):
        return base._path.rpartition(".")[2]
    name = getattr(base, "__name__", None)
    return name if isinstance(name, str) else None


def is_final(annotation: Any) -> bool:
    """Whether a class annotation declares a constant (``Final[int]``, ``torch.jit.Final[int]``)."""
    if isinstance(annotation, str):
        return annotation.split("[")[0].rpartition(".")[2] == "Final"
    return annotation is typing.Final or typing.get_origin(annotation) is typing.Final
