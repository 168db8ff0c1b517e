"""Calls: operators, functions, methods, constructors, and the forms with a syntax of their own."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from gpujit.frontend.emit_base import BaseEmitter
from gpujit.frontend.lang import (
    ClassMethodRef,
    FunctionRef,
    MethodRef,
    OperatorName,
    Path,
    Special,
    TypeRef,
)
from gpujit.frontend.literals import literal
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.values import parse_device
from gpujit.ops import overloads
from gpujit.support.errors import DeviceError


class CallEmitter(BaseEmitter):
    """Emits calls."""

    def call(self, node: ast.Call, hint: T.Type | None, unpack: int) -> Any:
        callee = self.meaning(node.func, None)
        if isinstance(callee, Special):
            return self.special(callee.name, node, hint)
        if isinstance(callee, OperatorName):
            return self.operator_call(callee.name, node, unpack)
        if isinstance(callee, MethodRef):
            return self.method_call(callee, node)
        if isinstance(callee, FunctionRef):
            inputs = self.match_function(callee.function.schema, *self.arguments(node), node)
            target = self.constant(callee.function, T.FUNCTION, node)
            returned = callee.function.schema.returns[0].type
            return self.value_of("prim::CallFunction", (target, *inputs), returned, node)
        if isinstance(callee, TypeRef):
            return self.construct(callee.type, node)
        if isinstance(callee, ClassMethodRef):
            if callee.name == "__new__":
                return self.value_of("prim::CreateObject", (), callee.type, node)
            return self.unbound_call(callee, node)
        if isinstance(callee, Value) and callee.type == T.FUNCTION and callee.is_constant:
            function = callee.constant()
            inputs = self.match_function(function.schema, *self.arguments(node), node)
            return self.value_of("prim::CallFunction", (callee, *inputs), function.schema.returns[0].type, node)
        if isinstance(callee, Path):
            raise self.error(f"{callee.name!r} is not defined in the archive's source", node)
        raise self.error("this is not something that can be called", node)

    def unbound_call(self, callee: ClassMethodRef, node: ast.Call) -> Value:
        """A call of ``Class.method(object, ...)``, which is how the hooks of a submodule are written."""
        positional, keywords = self.arguments(node)
        if not positional or positional[0].type != callee.type or callee.name not in callee.type.methods:
            raise self.error(f"{callee.type.name}.{callee.name} cannot be called without an object", node)
        schema = callee.type.methods[callee.name].schema
        inputs = self.match_function(schema, positional, keywords, node)
        return self.value_of("prim::CallMethod", inputs, schema.returns[0].type, node, {"name": callee.name})

    def arguments(self, node: ast.Call, hints: Sequence[T.Type | None] = ()) -> tuple[list[Value], dict[str, Value]]:
        positional: list[Value] = []
        for i, a in enumerate(node.args):
            if isinstance(a, ast.Starred):
                raise self.error("star arguments are not part of serialized TorchScript", node)
            positional.append(self.expression(a, hints[i] if i < len(hints) else None))
        keywords: dict[str, Value] = {}
        for k in node.keywords:
            if k.arg is None:
                raise self.error("star arguments are not part of serialized TorchScript", node)
            if k.arg in keywords:
                raise self.error("keyword arguments must have distinct names", node)
            keywords[k.arg] = self.expression(k.value)
        return positional, keywords

    def operator_call(self, name: str, node: ast.Call, unpack: int) -> Any:
        if name == "prim::RaiseException":
            positional, keywords = self.arguments(node)
            inputs = [self.fit(v, T.STR, node, "the message") for v in (*positional, *keywords.values())]
            if not 1 <= len(inputs) <= 2:
                raise self.error("RaiseException takes a message and a class name", node)
            self.emit("prim::RaiseException", inputs, node)
            return self.constant(None, T.NONE, node)
        if name == "aten::wait":
            positional, _ = self.arguments(node)
            if len(positional) == 1 and isinstance(positional[0].type, T.BoxType):
                return self.value_of("aten::wait", positional, positional[0].type.element, node)
            raise self.error("wait takes one Future", node)
        if name == "aten::device" and len(node.args) == 1 and isinstance(text := literal(node.args[0]), str):
            return self.device(text, node)
        positional, keywords = self.arguments(node)
        return self.call_operator(name, positional, keywords, node, unpack)

    def device(self, text: str, node: ast.AST) -> Value:
        if self.resolver.map_device is not None:
            text = self.resolver.map_device(text)
        try:
            return self.constant(parse_device(text), T.DEVICE, node)
        except DeviceError as e:
            raise self.error(e.message, node) from None

    def method_call(self, callee: MethodRef, node: ast.Call) -> Any:
        owner, name = callee.object, callee.name
        t = owner.type
        if isinstance(t, (T.ClassType, T.InterfaceType)):
            method = t.methods.get(name)
            if method is None:
                positional, keywords = self.arguments(node)
                out = self.emit("prim::CallMethod", (owner, *positional, *keywords.values()), node, {"name": name})
                return out.add_output(T.ANY)
            schema = method.schema
            positional, keywords = self.arguments(node, [a.type for a in schema.arguments[1:]])
            inputs = self.match_function(schema, [owner, *positional], keywords, node)
            return self.value_of("prim::CallMethod", inputs, schema.returns[0].type, node, {"name": name})
        if name == "tolist" and isinstance(t, T.TensorType):
            raise self.error("tolist() needs its result's type: annotate(List[...], x.tolist())", node)
        positional, keywords = self.arguments(node)
        return self.call_operator(f"aten::{name}", [owner, *positional], keywords, node)

    def construct(self, t: T.Type, node: ast.Call) -> Value:
        positional, keywords = self.arguments(node)
        if isinstance(t, T.TupleType) and t.name is not None and not keywords:
            if len(positional) != len(t.elements):
                raise self.error(f"{t.name} has {len(t.elements)} fields, {len(positional)} values are given", node)
            items = [self.fit(v, e, node, "a field") for v, e in zip(positional, t.elements, strict=True)]
            return self.value_of("prim::TupleConstruct", items, t, node)
        if isinstance(t, T.ClassType):
            created = self.value_of("prim::CreateObject", (), t, node)
            if "__init__" in t.methods:
                schema = t.methods["__init__"].schema
                inputs = self.match_function(schema, [created, *positional], keywords, node)
                self.value_of("prim::CallMethod", inputs, T.NONE, node, {"name": "__init__"})
            return created
        raise self.error(f"{t.annotation()} cannot be called", node)

    def special(self, name: str, node: ast.Call, hint: T.Type | None) -> Any:
        if name in ("annotate", "unchecked_cast"):
            self.expect_arguments(node, 2)
            type_ = self.resolver.annotation(node.args[0], self.source)
            if name == "annotate":
                return self.annotated(type_, node.args[1], node)
            value = self.expression(node.args[1])
            return self.value_of("prim::unchecked_cast", (value,), type_, node)
        if name == "uninitialized":
            self.expect_arguments(node, 1)
            type_ = self.resolver.annotation(node.args[0], self.source)
            return self.value_of("prim::Uninitialized", (), type_, node)
        if name == "isinstance":
            self.expect_arguments(node, 2)
            value = self.expression(node.args[0])
            asked = node.args[1]
            parts = asked.elts if isinstance(asked, (ast.Tuple, ast.List)) else [asked]
            types = [self.resolver.annotation(p, self.source) for p in parts]
            return self.value_of("prim::isinstance", (value,), T.BOOL, node, {"types": types})
        if name in ("int", "float", "bool", "complex", "str") and len(node.args) == 1 and not node.keywords:
            return self.cast(name, self.expression(node.args[0]), node)
        if name == "getattr":
            self.expect_arguments(node, 2)
            attribute = literal(node.args[1])
            if not isinstance(attribute, str):
                raise self.error("getattr needs a literal name", node)
            return self.value_attribute(self.expression(node.args[0]), attribute, node)
        if name in ("fork", "awaitable"):
            return self.fork(name, node)
        if name == "awaitable_wait" and len(node.args) == 1:
            value = self.expression(node.args[0])
            if isinstance(value.type, T.BoxType):
                return self.value_of("prim::awaitable_wait", (value,), value.type.element, node)
        if name == "awaitable_nowait" and len(node.args) == 1:
            value = self.expression(node.args[0])
            return self.value_of("prim::awaitable_nowait", (value,), T.BoxType("Await", value.type), node)
        if name == "print":
            positional, _ = self.arguments(node)
            self.emit("prim::Print", positional, node)
            return self.constant(None, T.NONE, node)
        if name == "range":
            raise self.error("range is only expected in 'for i in range(n)'", node)
        if name in ("sorted", "list", "dict", "len", "hash"):
            positional, keywords = self.arguments(node)
            return self.call_operator(f"aten::{name}", positional, keywords, node)
        if name in ("min", "max", "abs"):
            positional, keywords = self.arguments(node)
            return self.call_operator(f"prim::{name}", positional, keywords, node)
        raise self.error(f"{name!r} is not supported in serialized code", node)

    def expect_arguments(self, node: ast.Call, count: int) -> None:
        if len(node.args) != count or node.keywords:
            raise self.error(f"expected {count} positional arguments", node)

    def annotated(self, type_: T.Type, node: ast.expr, at: ast.AST) -> Value:
        """``annotate(type_, node)``: a typed literal, an implicit conversion of a tensor, or a checked value."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "tolist"
            and not node.args
        ):
            owner = self.meaning(node.func.value, None)
            if isinstance(owner, Value):
                return self.value_of("prim::tolist", (owner,), type_, at, {"type": type_})
        value = self.as_value(self.meaning(node, type_), node)
        if isinstance(value.type, T.TensorType):
            implicit = overloads.FROM_TENSOR.get(type_)
            if implicit is not None:
                return self.convert(value, implicit, at)
        return self.fit(value, type_, at, "an annotated value")

    @abstractmethod
    def value_attribute(self, owner: Value, name: str, node: ast.AST) -> Any:
        """What ``owner.name`` means."""

    @abstractmethod
    def fork(self, name: str, node: ast.Call) -> Value:
        """``fork(f)`` or ``awaitable(f)`` of a function defined in place."""
