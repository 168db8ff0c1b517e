"""Subscripts: elements and slices of containers, and the whole of tensor indexing, read and written."""

from __future__ import annotations

import ast
from typing import Any

from gpujit.frontend.lang import Bounds, Given, Items, Special
from gpujit.frontend.literals import NOT_LITERAL, literal
from gpujit.frontend.script_operators import OperatorEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Value

_NUMBERS = (T.INT, T.FLOAT, T.COMPLEX, T.BOOL, T.NUMBER)


class IndexEmitter(OperatorEmitter):
    """Emits subscripts."""

    def with_slices(self, node: ast.Subscript) -> ast.Subscript:
        """A subscript with ``[a:b]`` in the place of ``slice`` objects."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        written = [self.slice_syntax(p) for p in parts]
        if all(w is p for w, p in zip(written, parts, strict=True)):
            return node
        key = ast.Tuple(written, ast.Load()) if isinstance(node.slice, ast.Tuple) else written[0]
        return ast.copy_location(ast.Subscript(node.value, ast.copy_location(key, node.slice), node.ctx), node)

    def slice_syntax(self, part: ast.expr) -> ast.expr:
        found = self.scope.get(part.id) if isinstance(part, ast.Name) else None
        if isinstance(found, Bounds):
            made = ast.Slice(*(Given(v, part) for v in found.parts))
        elif isinstance(part, ast.Call) and self.is_slice(part.func):
            made = ast.Slice(*self.slice_arguments(part))
        else:
            return part
        return ast.copy_location(made, part)

    def is_slice(self, callee: ast.expr) -> bool:
        """Whether a name is Python's ``slice``."""
        known = isinstance(callee, ast.Name) and callee.id not in self.scope
        return known and self.resolver.lookup(callee.id) == Special("slice")  # type: ignore[attr-defined]

    def slice_arguments(self, node: ast.Call) -> list[ast.expr | None]:
        """Start, stop and step as they are written; None for those that are not."""
        if not 1 <= len(node.args) <= 3 or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error("slice() takes one to three arguments: slice(stop), slice(start, stop, step)", node)
        given: list[ast.expr | None] = [None, *node.args] if len(node.args) == 1 else [*node.args]
        return [*given, None][:3]

    def slice_call(self, node: ast.Call, hint: T.Type | None = None) -> Bounds:
        """``slice(start, stop, step)``."""
        none = self.constant(None, T.NONE, node)
        start, stop, step = (none if a is None else self.expression(a) for a in self.slice_arguments(node))
        for part in (start, stop, step):
            if part.type not in (T.INT, T.NONE):
                raise self.error(f"slice() takes ints and None, found {part.type.annotation()}", node)
        return Bounds((start, stop, step))

    def subscript(self, node: ast.Subscript) -> Any:
        node = self.with_slices(node)
        owner = self.meaning(node.value, None)
        if isinstance(owner, Items):
            return self.item_of(owner, node)
        value = self.as_value(owner, node)
        t = value.type
        if isinstance(t, T.TensorType):
            return self.indexed(value, node)
        if isinstance(t, T.ClassType):
            items = self.resolver.container_items(self, value, node)
            if items is not None:
                return self.container_item(items, value, node)
            if self.has_method(value, "__getitem__"):
                return self.call_named(value, "__getitem__", [self.expression(node.slice)], node)
        if isinstance(t, T.OptionalType):
            raise self.error(f"{t.annotation()} cannot be subscripted; check that it is not None first", node)
        if isinstance(node.slice, ast.Slice):
            if isinstance(t, T.TupleType):
                return self.tuple_slice(value, t, node)
            if isinstance(t, (T.ListType, T.DictType)) or t == T.STR:
                return self.slice_of(value, node.slice, node)
        if isinstance(t, T.TupleType):
            return self.tuple_item(value, t, node)
        if not (isinstance(t, (T.ListType, T.DictType)) or t == T.STR):
            raise self.error(f"'{t.annotation()}' object is not subscriptable", node)
        return self.call_value("aten::__getitem__", [value, self.expression(node.slice)], node)

    def tuple_item(self, value: Value, t: T.TupleType, node: ast.Subscript) -> Value:
        index = literal(node.slice)
        if index is NOT_LITERAL:
            key = self.expression(node.slice)
            index = key.constant() if key.is_constant else NOT_LITERAL
        if not isinstance(index, int) or isinstance(index, bool):
            if index is NOT_LITERAL and t.elements and all(e == t.elements[0] for e in t.elements):
                return self.value_of("prim::TupleIndex", (value, key), t.elements[0], node)
            raise self.error("tuple indices must be integer constants", node)
        if not -len(t.elements) <= index < len(t.elements):
            raise self.error("Tuple index out of range", node)
        at = self.constant(index, T.INT, node)
        return self.value_of("prim::TupleIndex", (value, at), t.elements[index], node)

    def tuple_slice(self, owner: Value, t: T.TupleType, node: ast.Subscript) -> Value:
        assert isinstance(node.slice, ast.Slice)
        bounds = self.constant_slice(node.slice)
        chosen = range(len(t.elements))[bounds]
        if bounds.step in (None, 1):
            attributes = {"beg": chosen.start, "end": max(chosen.start, chosen.stop)}
            type_ = T.TupleType(tuple(t.elements[i] for i in chosen))
            return self.value_of("prim::TupleSlice", (owner,), type_, node, attributes)
        parts = [
            self.value_of("prim::TupleIndex", (owner, self.constant(i, T.INT, node)), t.elements[i], node)
            for i in chosen
        ]
        return self.value_of("prim::TupleConstruct", parts, T.TupleType(tuple(p.type for p in parts)), node)

    def constant_slice(self, s: ast.Slice) -> slice:
        """A slice whose bounds are known at compile time."""
        bounds: list[int | None] = []
        for part in (s.lower, s.upper, s.step):
            value = None if part is None else self.expression(part)
            if value is not None and not (value.is_constant and value.type in (T.INT, T.NONE)):
                raise self.error("bounds of this slice must be integer constants", s)
            bounds.append(None if value is None else value.constant())
        return slice(*bounds)

    def slice_of(self, value: Value, s: ast.Slice, node: ast.AST) -> Value:
        return self.call_value("aten::slice", [value, *self.bounds(s, node)], node)

    def bounds(self, s: ast.Slice, node: ast.AST) -> list[Value]:
        """Start, stop and step of a slice as values."""
        none = self.constant(None, T.NONE, node)
        start, stop, step = (none if p is None else self.expression(p) for p in (s.lower, s.upper, s.step))
        return [start, stop, self.constant(1, T.INT, node) if step.type == T.NONE else step]

    # ------------------------------------------------------------------------------------------ known sequences

    def item_of(self, owner: Items, node: ast.Subscript) -> Any:
        if isinstance(node.slice, ast.Slice):
            return Items(owner.values[self.constant_slice(node.slice)])
        key = self.expression(node.slice)
        if not key.is_constant or key.type != T.INT:
            raise self.error("the index must be an integer constant", node)
        if not -len(owner.values) <= key.constant() < len(owner.values):
            raise self.error("index out of range", node)
        return owner.values[key.constant()]

    def container_item(self, items: dict[str, Any], value: Value, node: ast.Subscript) -> Any:
        if isinstance(node.slice, ast.Slice):
            return Items(list(items.values())[self.constant_slice(node.slice)])
        key = self.expression(node.slice)
        if not key.is_constant or key.type not in (T.INT, T.STR):
            raise self.error(
                "Expected integer literal for index. ModuleList/Sequential indexing is only supported with integer "
                "literals. For example, 'i = 4; self.layers[i](x)' will fail because i is not a literal. "
                "Enumeration is supported, e.g. 'for index, v in enumerate(self): out = v(inp)'",
                node,
            )
        if key.type == T.STR:
            if key.constant() not in items:
                raise self.error(f"Key Error, {key.constant()}", node)
            return items[key.constant()]
        values = list(items.values())
        if not -len(values) <= key.constant() < len(values):
            raise self.error("Index out of range", node)
        return values[key.constant()]

    # ------------------------------------------------------------------------------------------------ tensors

    def indexed(self, tensor: Value, node: ast.Subscript) -> Value:
        viewed, indices = self.viewed(tensor, node)
        if indices is None:
            return viewed
        return self.call_value("aten::index", [viewed, indices], node)

    def viewed(self, tensor: Value, node: ast.Subscript) -> tuple[Value, Value | None]:
        """What integers, slices, None and ``...`` select of a tensor, and the list of index tensors on top of that."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        dots = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis]
        if len(dots) > 1:
            raise self.error("An index can only have one '...'", node)
        before = parts[: dots[0]] if dots else parts
        after = parts[dots[0] + 1 :] if dots else []
        found: dict[int, Value] = {}
        dim = 0
        for part in before:
            tensor, dim = self.index_part(tensor, dim, part, found, node, 1)
        dim = -1
        for part in reversed(after):
            known = len(found)
            tensor, dim = self.index_part(tensor, dim, part, found, node, -1)
            if len(found) > known:
                raise self.error(
                    "Ellipses followed by tensor indexing is currently not supported; write the slices out", node
                )
        if not found:
            return tensor, None
        none = self.constant(None, T.NONE, node)
        values = [found.get(i, none) for i in range(max(found) + 1)]
        return tensor, self.value_of("prim::ListConstruct", values, T.ListType(T.optional(T.TENSOR)), node)

    def index_part(
        self, tensor: Value, dim: int, part: ast.expr, found: dict[int, Value], node: ast.AST, step: int
    ) -> tuple[Value, int]:
        """Apply one entry of an index at ``dim``; the tensor and the dim of the next entry."""
        at = self.constant(dim, T.INT, node)
        if isinstance(part, ast.Slice):
            return self.call_value("aten::slice", [tensor, at, *self.bounds(part, node)], node), dim + step
        key = self.expression(part)
        t = key.type
        if t == T.NONE:
            return self.call_value("aten::unsqueeze", [tensor, at], node), dim + step
        if t == T.INT:
            return self.call_value("aten::select", [tensor, at, key], node), dim
        if isinstance(t, T.ListType):
            key = self.call_value("aten::tensor", [key], node)
        elif isinstance(t, T.OptionalType) and isinstance(t.element, T.TensorType):
            pass
        elif not isinstance(t, T.TensorType):
            raise self.error(
                f"Unsupported operation: indexing tensor with unsupported index type '{t.annotation()}'. Only ints, "
                "slices, lists and tensors are supported",
                node,
            )
        found[dim] = key
        return tensor, dim + step

    def as_tensor_like(self, value: Value, like: Value, node: ast.AST) -> Value:
        """A number as a tensor of another tensor's dtype and device."""
        if value.type not in _NUMBERS:
            return value
        dtype = self.call_value("prim::dtype", [like], node)
        device = self.call_value("prim::device", [like], node)
        keywords = {"dtype": dtype, "device": device}
        return self.as_value(self.call_operator("aten::tensor", [value], keywords, node), node)

    def store_item(self, target: ast.Subscript, value: Value, at: ast.AST) -> None:
        """``target[index] = value``."""
        target = self.with_slices(target)
        owner = self.expression(target.value)
        t = owner.type
        if isinstance(t, T.TensorType):
            viewed, indices = self.viewed(owner, target)
            filled = self.as_tensor_like(value, viewed, at)
            if indices is None:
                self.call_operator("aten::copy_", [viewed, filled], {}, at)
            else:
                self.call_operator("aten::index_put_", [viewed, indices, filled], {}, at)
            return
        if isinstance(target.slice, ast.Slice):
            raise self.error("assigning to a slice of a list is not part of TorchScript; build a new list", at)
        key = self.expression(target.slice)
        if self.has_method(owner, "__setitem__"):
            self.call_named(owner, "__setitem__", [key, value], at)
            return
        if not isinstance(t, (T.ListType, T.DictType)):
            raise self.error(f"'{t.annotation()}' object does not support item assignment", at)
        self.call_operator("aten::_set_item", [owner, key, value], {}, at)

    def augment_item(self, s: ast.AugAssign, target: ast.Subscript) -> None:
        """``target[index] op= value``: the element is read and written under one index."""
        target = self.with_slices(target)
        owner = self.expression(target.value)
        t = owner.type
        if isinstance(t, T.TensorType):
            viewed, indices = self.viewed(owner, target)
            if indices is None:
                changed = self.augmented(s, viewed, self.expression(s.value))
                if not (changed.node.schema is not None and changed.node.schema.is_mutable):
                    self.call_operator("aten::copy_", [viewed, changed], {}, s)
                return
            old = self.call_value("aten::index", [viewed, indices], s)
            new = self.augmented(s, old, self.expression(s.value))
            self.call_operator("aten::index_put_", [viewed, indices, new], {}, s)
            return
        if isinstance(target.slice, ast.Slice):
            raise self.error("augmented assignment to a slice is not part of TorchScript", s)
        key = self.expression(target.slice)
        if self.has_method(owner, "__getitem__"):
            old = self.call_named(owner, "__getitem__", [key], s)
            new = self.augmented(s, old, self.expression(s.value))
            self.call_named(owner, "__setitem__", [key, new], s)
            return
        old = self.call_value("aten::__getitem__", [owner, key], s)
        new = self.augmented(s, old, self.expression(s.value))
        self.call_operator("aten::_set_item", [owner, key, new], {}, s)

    def augmented(self, s: ast.AugAssign, old: Value, value: Value) -> Value:
        """``old op value``, in place for tensors and lists where the language says so."""
        raise NotImplementedError
