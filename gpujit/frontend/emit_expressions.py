"""Expressions: names, literals, containers, attributes and subscripts."""

from __future__ import annotations

import ast
from typing import Any

from gpujit.frontend.emit_calls import CallEmitter
from gpujit.frontend.lang import (
    ClassMethodRef,
    MethodRef,
    Namespace,
    OperatorName,
    Path,
    TypeRef,
)
from gpujit.frontend.literals import NAMED_NUMBERS, NOT_LITERAL, literal, type_of_constant
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.values import EnumValue, is_int64


class ExpressionEmitter(CallEmitter):
    """Emits expressions. ``outer`` emits the function around a closure, whose names the closure may read."""

    outer: ExpressionEmitter | None = None

    def condition(self, node: ast.expr) -> Value:
        value = self.expression(node)
        if value.type == T.BOOL:
            return value
        return self.cast("bool", value, node)

    def meaning(self, node: ast.expr, hint: T.Type | None, unpack: int = 0) -> Any:
        kind = type(node)
        if isinstance(node, ast.Name):
            return self.name_(node)
        if isinstance(node, ast.Call):
            return self.call(node, hint, unpack)
        if kind is ast.Constant or kind is ast.UnaryOp or kind is ast.BinOp:
            value = literal(node)
            if value is NOT_LITERAL and isinstance(node, ast.UnaryOp):
                return self.call_operator("aten::neg", [self.expression(node.operand)], {}, node)
            type_ = None if value is NOT_LITERAL else type_of_constant(value)
            if type_ is None:
                what = "this literal" if kind is ast.Constant else "an infix operator"
                raise self.error(f"{what} is not part of serialized TorchScript", node)
            if isinstance(value, int) and not is_int64(value):
                raise self.error("an integer literal is outside 64 bits", node)
            if value is None and hint is not None and T.may_be_none(hint):
                type_ = T.NONE
            return self.constant(value, type_, node)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.List):
            return self.list_(node, hint)
        if isinstance(node, ast.Tuple):
            wanted = hint.elements if isinstance(hint, T.TupleType) and len(hint.elements) == len(node.elts) else None
            items = [self.expression(e, None if wanted is None else wanted[i]) for i, e in enumerate(node.elts)]
            type_ = T.TupleType(tuple(v.type for v in items))
            return self.value_of("prim::TupleConstruct", items, type_, node)
        if isinstance(node, ast.Dict):
            return self.dict_(node, hint)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        raise self.error(f"'{kind.__name__}' is not expected here in serialized TorchScript", node)

    def name_(self, node: ast.Name) -> Any:
        found = self.scope.get(node.id)
        if found is None:
            if self.outer is not None:
                captured = self.outer_name(node)
                if captured is not None:
                    return captured
            if node.id in NAMED_NUMBERS:
                number = NAMED_NUMBERS[node.id]
                return self.constant(number, T.FLOAT if isinstance(number, float) else T.COMPLEX, node)
            found = self.resolver.lookup(node.id)
            if found is None:
                reason = self.undefined.get(node.id)
                raise self.error(f"undefined name {node.id!r}" + (f": {reason}" if reason else ""), node)
        return found

    def outer_name(self, node: ast.Name) -> Any:
        """A name of the function around a closure; values become inputs of the closure's graph."""
        assert self.outer is not None
        found = self.outer.scope.get(node.id)
        if found is None and self.outer.outer is not None:
            found = self.outer.outer_name(node)
        if not isinstance(found, Value):
            return found
        if found.is_constant:
            return self.constant(found.constant(), found.type, node)
        inside = self.captured.get(found)
        if inside is None:
            inside = self.captured[found] = self.graph.add_input(found.type, found.name)
        return inside

    def list_(self, node: ast.List, hint: T.Type | None) -> Value:
        plain = hint.element if isinstance(hint, T.OptionalType) else hint
        element = plain.element if isinstance(plain, T.ListType) else None
        items = [self.expression(e, element) for e in node.elts]
        if element is None:
            joint: T.Type | None = T.TENSOR
            for i, v in enumerate(items):
                joint = v.type if i == 0 else T.unify(joint, v.type) if joint is not None else None
            if joint is None:
                joint = T.union(v.type for v in items)
            element = T.TENSOR if isinstance(joint, T.TensorType) else joint
        items = [self.fit(v, element, node, "a list element") for v in items]
        return self.value_of("prim::ListConstruct", items, T.ListType(element), node)

    def dict_(self, node: ast.Dict, hint: T.Type | None) -> Value:
        plain = hint.element if isinstance(hint, T.OptionalType) else hint
        wanted = plain if isinstance(plain, T.DictType) else None
        items: list[Value] = []
        key_type: T.Type | None = wanted.key if wanted else None
        value_type: T.Type | None = wanted.value if wanted else None
        for k, v in zip(node.keys, node.values, strict=True):
            if k is None:
                raise self.error("'**' is not part of TorchScript", node)
            key, value = self.expression(k, key_type), self.expression(v, value_type)
            if wanted is None:
                key_type = key.type if key_type is None else T.unify(key_type, key.type)
                value_type = (
                    value.type if value_type is None else T.unify(value_type, value.type, default_to_union=True)
                )
                if key_type is None:
                    raise self.error("keys of a dict must have one type", node)
            items += (key, value)
        type_ = T.DictType(key_type or T.STR, value_type or T.TENSOR)
        return self.value_of("prim::DictConstruct", items, type_, node)

    def subscript(self, node: ast.Subscript) -> Value:
        owner = self.expression(node.value)
        t = owner.type
        if isinstance(t, T.TupleType):
            if isinstance(node.slice, ast.Slice):
                return self.tuple_slice(owner, t, node)
            index = literal(node.slice)
            if isinstance(index, int) and not isinstance(index, bool):
                if not -len(t.elements) <= index < len(t.elements):
                    raise self.error(f"index {index} is outside {t}", node)
                at = self.constant(index, T.INT, node)
                return self.value_of("prim::TupleIndex", (owner, at), t.elements[index], node)
            position = self.fit(self.expression(node.slice), T.INT, node, "a tuple's index")
            joint = T.union(t.elements)
            return self.value_of("prim::TupleIndex", (owner, position), joint, node)
        if isinstance(node.slice, ast.Slice):
            parts = [
                self.constant(None, T.NONE, node) if p is None else self.expression(p)
                for p in (node.slice.lower, node.slice.upper)
            ]
            step = self.constant(1, T.INT, node) if node.slice.step is None else self.expression(node.slice.step)
            return self.as_value(self.call_operator("aten::slice", [owner, *parts, step], {}, node), node)
        key = self.expression(node.slice)
        return self.as_value(self.call_operator("aten::__getitem__", [owner, key], {}, node), node)

    def tuple_slice(self, owner: Value, t: T.TupleType, node: ast.Subscript) -> Value:
        s = node.slice
        assert isinstance(s, ast.Slice)
        bounds = [None if p is None else literal(p) for p in (s.lower, s.upper)]
        if s.step is not None or any(b is not None and (not isinstance(b, int) or isinstance(b, bool)) for b in bounds):
            raise self.error("a tuple's slice needs constant bounds and no step", node)
        start, stop, _ = slice(*bounds).indices(len(t.elements))
        stop = max(start, stop)
        attributes = {"beg": start, "end": stop}
        return self.value_of("prim::TupleSlice", (owner,), T.TupleType(t.elements[start:stop]), node, attributes)

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.meaning(node.value, None)
        name = node.attr
        if isinstance(owner, Value):
            return self.value_attribute(owner, name, node)
        if isinstance(owner, Namespace):
            return OperatorName(f"{owner.prefix}::{name}")
        if isinstance(owner, Path):
            if owner.name == "CONSTANTS":
                value = self.resolver.constant_named(name, self.source, node)
                type_ = type_of_constant(value)
                if type_ is None:
                    raise self.error(f"CONSTANTS.{name} holds a {type(value).__name__}, which code cannot use", node)
                return self.constant(value, type_, node)
            return self.resolver.member(owner.name, name, lambda text: self.error(text, node))
        if isinstance(owner, TypeRef):
            t = owner.type
            if isinstance(t, T.EnumType):
                if name not in t.members:
                    raise self.error(f"{t.name} has no member {name!r}", node)
                return self.constant(EnumValue(t, name, t.members[name]), t, node)
            if isinstance(t, T.ClassType):
                return ClassMethodRef(t, name)
        raise self.error(f"no attribute {name!r} here", node)

    def value_attribute(self, owner: Value, name: str, node: ast.AST) -> Any:
        t = owner.type
        if isinstance(t, T.ClassType):
            if name in t.attributes:
                return self.value_of("prim::GetAttr", (owner,), t.attributes[name], node, {"name": name})
            if name in t.methods:
                return MethodRef(owner, name)
            if name in t.constants:
                type_, value = t.constants[name]
                return self.constant_of_type(value, type_, node)
            if t.name.startswith("__torch__.torch.classes."):
                return MethodRef(owner, name)
            raise self.error(f"{t.name} has no attribute or method {name!r}", node)
        if isinstance(t, T.InterfaceType):
            if name in t.methods:
                return MethodRef(owner, name)
            raise self.error(f"interface {t.name} has no method {name!r}", node)
        if isinstance(t, T.TupleType) and t.fields is not None and name in t.fields:
            index = t.fields.index(name)
            at = self.constant(index, T.INT, node)
            return self.value_of("prim::TupleIndex", (owner, at), t.elements[index], node)
        if isinstance(t, T.EnumType) and name in ("value", "name"):
            kind = "prim::EnumValue" if name == "value" else "prim::EnumName"
            return self.value_of(kind, (owner,), t.value_type if name == "value" else T.STR, node)
        return MethodRef(owner, name)
