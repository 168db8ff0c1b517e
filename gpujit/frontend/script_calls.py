"""Names, attributes and calls of live Python code: what an object of the program means where it is used."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from gpujit.frontend.lang import (
    Bounds,
    ClassMethodRef,
    FunctionRef,
    Inline,
    Items,
    MethodRef,
    Namespace,
    OperatorName,
    PythonValue,
    Special,
    TypeRef,
    Walk,
)
from gpujit.frontend.literals import literal
from gpujit.frontend.script_builtins import TENSOR_CASTS, BuiltinEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.schema import Schema
from gpujit.ir.values import EnumValue
from gpujit.ops import overloads, table

# Attributes of tensors that operators compute.
_TENSOR_PROPERTIES: dict[str, str] = {
    "shape": "aten::size", "T": "aten::numpy_T", "H": "aten::matrix_H", "mT": "aten::mT", "mH": "aten::mH",
    "dtype": "prim::dtype", "device": "prim::device", "layout": "prim::layout", "is_cuda": "prim::is_cuda",
    "is_cpu": "prim::is_cpu", "is_quantized": "prim::is_quantized", "is_sparse": "prim::is_sparse",
    "is_sparse_csr": "prim::is_sparse_csr", "is_leaf": "aten::is_leaf", "requires_grad": "prim::requires_grad",
    "grad": "prim::grad", "data": "prim::data", "ndim": "aten::dim", "real": "aten::real", "imag": "aten::imag",
    "itemsize": "prim::itemsize", "nbytes": "prim::nbytes",
    "name": "prim::name",
}  # fmt: skip
# What no tensor of gpujit is.
_NEVER = frozenset(("is_nested", "is_mkldnn", "is_meta", "is_xpu", "is_mps", "is_vulkan", "is_xla", "is_hpu", "is_ipu"))
_DEVICE_PROPERTIES = {"type": "prim::type", "index": "prim::index"}


class ScriptCallEmitter(BuiltinEmitter):
    """Emits names, attributes and calls."""

    def name_(self, node: ast.Name) -> Any:
        found = self.scope.get(node.id)
        if found is None:
            if node.id not in self.undefined:
                found = self.resolver.lookup(node.id)
            if found is None:
                reason = self.undefined.get(node.id)
                raise self.error(f"undefined value {node.id}" + (f": {reason}" if reason else ""), node)
        return found

    def as_value(self, meaning: Any, node: ast.AST) -> Value:
        if isinstance(meaning, Value):
            return meaning
        if isinstance(meaning, Items):
            values = [self.as_value(m, node) for m in meaning.values]
            return self.value_of("prim::TupleConstruct", values, T.TupleType(tuple(v.type for v in values)), node)
        if isinstance(meaning, TypeRef) and isinstance(meaning.type, T.EnumType):
            t = meaning.type
            values = [self.constant(EnumValue(t, n, v), t, node) for n, v in t.members.items()]
            return self.value_of("prim::ListConstruct", values, T.ListType(t), node)
        if isinstance(meaning, Bounds):
            raise self.error("a slice object is no value; subscript with it, x[s], or write x[a:b]", node)
        if isinstance(meaning, Walk):
            raise self.error("an iterator is no value; loop over it, or make a list of it", node)
        if isinstance(meaning, PythonValue):
            constant: Value | None = self.resolver.value_of_object(self, meaning.object, node)
            if constant is not None:
                return constant
            raise self.error(self.resolver.why_no_value(meaning.object), node)
        if isinstance(meaning, MethodRef):
            raise self.error(f"method '{meaning.name}' is not called; TorchScript has no bound methods as values", node)
        return super().as_value(meaning, node)

    # ------------------------------------------------------------------------------------------------ attributes

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.meaning(node.value, None)
        return self.attribute_of(owner, node.attr, node)

    def attribute_of(self, owner: Any, name: str, node: ast.AST) -> Any:
        """What ``owner.name`` means."""
        if isinstance(owner, Value):
            return self.value_attribute(owner, name, node)
        if isinstance(owner, Namespace):
            return OperatorName(f"{owner.prefix}::{name}")
        if isinstance(owner, PythonValue):
            return self.resolver.python_attribute(self, owner.object, name, node)
        if isinstance(owner, TypeRef):
            t = owner.type
            if isinstance(t, T.EnumType):
                if name not in t.members:
                    raise self.error(f"type object '{t.name}' has no attribute '{name}'", node)
                return self.constant(EnumValue(t, name, t.members[name]), t, node)
            if isinstance(t, T.ClassType):
                found = self.resolver.static_method(t, name)
                return FunctionRef(found) if found is not None else ClassMethodRef(t, name)
        raise self.error(f"there is no attribute {name!r} here", node)

    def value_attribute(self, owner: Value, name: str, node: ast.AST) -> Any:
        t = owner.type
        if isinstance(t, T.TensorType):
            operator = _TENSOR_PROPERTIES.get(name)
            if name in _NEVER:
                return self.constant(False, T.BOOL, node)
            if operator is not None:
                return self.call_value(operator, [owner], node)
            if not table.by_name(f"aten::{name}") and name != "tolist" and name not in TENSOR_CASTS:
                raise self.error(f"'Tensor' object has no attribute or method '{name}'", node)
            return MethodRef(owner, name)
        if isinstance(t, T.ClassType):
            return self.object_attribute(owner, t, name, node)
        if isinstance(t, T.InterfaceType):
            if name in self.method_names(t):
                return MethodRef(owner, name)
            raise self.error(f"interface {t.name} has no method {name!r}", node)
        if t == T.DEVICE and name in _DEVICE_PROPERTIES:
            return self.call_value(_DEVICE_PROPERTIES[name], [owner], node)
        if t == T.COMPLEX and name in ("real", "imag"):
            return self.call_value(f"aten::{name}", [owner], node)
        if isinstance(t, T.OptionalType):
            raise self.error(
                f"'{t.annotation()}' object has no attribute or method '{name}'; check that it is not None first", node
            )
        if isinstance(t, T.TupleType) and name not in (t.fields or ()):
            raise self.error(f"'{t.annotation()}' object has no attribute or method '{name}'", node)
        return super().value_attribute(owner, name, node)

    def object_attribute(self, owner: Value, t: T.ClassType, name: str, node: ast.AST) -> Any:
        if name in t.attributes:
            return self.value_of("prim::GetAttr", (owner,), t.attributes[name], node, {"name": name})
        if f"__{name}_getter" in self.method_names(t):
            return self.call_named(owner, f"__{name}_getter", [], node)
        if name in t.constants:
            type_, value = t.constants[name]
            return self.constant_of_type(value, type_, node)
        special = self.resolver.object_member(self, owner, name, node)
        if special is not None:
            return special
        if name in self.method_names(t):
            return MethodRef(owner, name)
        if t.name.startswith("__torch__.torch.classes."):
            return MethodRef(owner, name)
        raise self.error(self.resolver.missing_attribute(t, name), node)

    # ----------------------------------------------------------------------------------------------------- calls

    def results(self, node: Node, types: Sequence[T.Type], at: ast.AST) -> Value:
        if len(types) < 2 or node.schema is None:
            return super().results(node, types, at)
        # Results that have names are reached by them: x.max(0).values.
        names = tuple(r.name for r in node.schema.returns)
        outputs = [node.add_output(t) for t in types]
        fields = names if all(names) and len(names) == len(types) else None
        return self.value_of("prim::TupleConstruct", outputs, T.TupleType(tuple(types), None, fields), at)

    def call(self, node: ast.Call, hint: T.Type | None, unpack: int) -> Any:
        callee = self.meaning(node.func, None)
        return self.call_meaning(callee, node, hint)

    def call_meaning(self, callee: Any, node: ast.Call, hint: T.Type | None) -> Any:
        """The result of calling what ``callee`` means with the arguments of ``node``."""
        if isinstance(callee, Special):
            return self.special(callee.name, node, hint)
        if isinstance(callee, Inline):
            return callee.emit(node)
        if isinstance(callee, OperatorName):
            return self.operator_call(callee.name, node, 0)
        if isinstance(callee, MethodRef):
            return self.method_call(callee, node)
        if isinstance(callee, TypeRef):
            return self.construct(callee.type, node)
        if isinstance(callee, ClassMethodRef):
            return self.class_method_call(callee, node)
        if isinstance(callee, PythonValue):
            callee = self.resolver.callable_meaning(self, callee.object, node)
            if not isinstance(callee, FunctionRef):
                return self.call_meaning(callee, node, hint)
        if isinstance(callee, FunctionRef):
            return self.function_call(callee, node)
        if isinstance(callee, Value):
            t = callee.type
            if isinstance(t, T.ClassType) and t.is_module:
                return self.module_call(callee, t, node)
            if self.has_method(callee, "__call__"):
                return self.method_call(MethodRef(callee, "__call__"), node)
            if isinstance(t, T.InterfaceType) and t.is_module:
                return self.method_call(MethodRef(callee, "forward"), node)
            raise self.error(f"'{t.annotation()}' object is not callable", node)
        raise self.error("this is not something that can be called", node)

    def function_call(self, callee: FunctionRef, node: ast.Call, converting: Sequence[bool] = (False, True)) -> Value:
        """A call; ``converting``: as in ``match_function``."""
        function = callee.function
        self.resolver.compile(function, lambda text: self.error(text, node))
        schema = function.schema
        positional, keywords = self.arguments(node, schema)
        inputs = self.match_function(schema, positional, keywords, node, converting)
        target = self.constant(function, T.FUNCTION, node)
        return self.value_of("prim::CallFunction", (target, *inputs), schema.returns[0].type, node)

    def arguments(  # type: ignore[override]
        self, node: ast.Call, schema: Schema | None = None, skip: int = 0
    ) -> tuple[list[Value], dict[str, Value]]:
        """The values of a call's arguments; list and dict literals take the types the schema wants."""
        wanted: dict[Any, T.Type] = {}
        if schema is not None:
            formal = schema.arguments[skip:]
            wanted = {i: a.type for i, a in enumerate(formal)} | {a.name: a.type for a in formal}
        positional: list[Value] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                positional += self.spread(a)
            else:
                positional.append(self.argument(a, wanted.get(len(positional))))
        keywords: dict[str, Value] = {}
        for k in node.keywords:
            if k.arg is None:
                raise self.error("'**' arguments are not part of TorchScript; write the keywords out", node)
            keywords[k.arg] = self.argument(k.value, wanted.get(k.arg))
        return positional, keywords

    def argument(self, node: ast.expr, wanted: T.Type | None) -> Value:
        if wanted is not None and isinstance(node, (ast.List, ast.Dict, ast.Tuple)) and not _fits_literal(node, wanted):
            wanted = None
        return self.expression(node, wanted)

    def match_function(
        self,
        schema: Schema,
        positional: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        converting: Sequence[bool] = (False, True),
    ) -> list[Value]:
        """The inputs of a call. ``converting``: whether values are converted (a tensor to a number), in the order in
        which that is tried."""
        types, named = [v.type for v in positional], {k: v.type for k, v in keywords.items()}
        reason: Any = ""
        for convert in converting:
            match = overloads.match_schema(schema, types, named, convert)
            if isinstance(match, overloads.Match):
                return self.apply(match, (*positional, *keywords.values()), node)
            reason = match
        raise self.error(f"{schema}:\n{reason}", node)

    def method_call(self, callee: MethodRef, node: ast.Call) -> Any:
        owner, name = callee.object, callee.name
        t = owner.type
        if isinstance(t, T.ClassType) and t.name.startswith("__torch__.torch.classes."):
            return super().method_call(callee, node)
        if isinstance(t, (T.ClassType, T.InterfaceType)):
            method = self.resolver.method(t, name, lambda text: self.error(text, node))
            positional, keywords = self.arguments(node, method.schema, 1)
            inputs = self.match_function(method.schema, [owner, *positional], keywords, node)
            name = method.short_name
            return self.value_of("prim::CallMethod", inputs, method.schema.returns[0].type, node, {"name": name})
        return self.builtin_method(owner, name, node)

    def module_call(self, owner: Value, t: T.ClassType, node: ast.Call) -> Any:
        """``module(x)``: forward with the module's hooks around it."""
        overloads = self.resolver.method_overloads(t, "forward")
        if overloads:
            return self.resolver.compiler.modules.call_overload(self, owner, overloads, node)
        method = self.resolver.method(t, "forward", lambda text: self.error(text, node))
        positional, keywords = self.arguments(node, method.schema, 1)
        inputs = self.match_function(method.schema, [owner, *positional], keywords, node)
        if not t.forward_pre_hooks and not t.forward_hooks:
            return self.value_of("prim::CallMethod", inputs, method.schema.returns[0].type, node, {"name": "forward"})
        given = inputs[1:]

        def packed(values: Sequence[Value]) -> Value:
            return self.value_of("prim::TupleConstruct", values, T.TupleType(tuple(v.type for v in values)), node)

        for hook in t.forward_pre_hooks:
            result = self.call_named(owner, hook, [packed(given)], node)
            if isinstance(result.type, T.TupleType):
                unpack = self.emit("prim::TupleUnpack", (result,), node)
                given = [unpack.add_output(e) for e in result.type.elements]
            elif result.type != T.NONE:
                given = [result]
        fitted = self.match_function(method.schema, [owner, *given], {}, node)
        returned = method.schema.returns[0].type
        output = self.value_of("prim::CallMethod", fitted, returned, node, {"name": "forward"})
        for hook in t.forward_hooks:
            result = self.call_named(owner, hook, [packed(given), output], node)
            output = output if result.type == T.NONE else result
        return output

    def class_method_call(self, callee: ClassMethodRef, node: ast.Call) -> Any:
        if callee.name not in self.method_names(callee.type):
            raise self.error(f"type object '{callee.type.name}' has no attribute '{callee.name}'", node)
        method = self.resolver.method(callee.type, callee.name, lambda text: self.error(text, node))
        positional, keywords = self.arguments(node, method.schema)
        inputs = self.match_function(method.schema, positional, keywords, node)
        return self.value_of("prim::CallMethod", inputs, method.schema.returns[0].type, node, {"name": callee.name})

    def construct(self, t: T.Type, node: ast.Call) -> Value:
        if isinstance(t, T.TupleType) and t.name is not None:
            schema = self.resolver.named_tuple_schema(t)
            positional, keywords = self.arguments(node, schema)
            items = self.match_function(schema, positional, keywords, node)
            return self.value_of("prim::TupleConstruct", items, t, node)
        if isinstance(t, T.ClassType):
            init = "__init__" if "__init__" in self.method_names(t) else None
            method = None if init is None else self.resolver.method(t, init, lambda text: self.error(text, node))
            created = self.value_of("prim::CreateObject", (), t, node)
            positional, keywords = self.arguments(node, None if method is None else method.schema, 1)
            if method is not None:
                inputs = self.match_function(method.schema, [created, *positional], keywords, node)
                self.value_of("prim::CallMethod", inputs, T.NONE, node, {"name": "__init__"})
            elif positional or keywords:
                raise self.error(f"{t.name} takes no arguments", node)
            return created
        if isinstance(t, T.EnumType):
            raise self.error("members of an Enum cannot be made from their values in TorchScript", node)
        raise self.error(f"{t.annotation()} cannot be called", node)

    def exception_name(self, node: ast.expr, s: ast.AST) -> str:
        """The qualified Python name of an exception class that is raised."""
        meaning = self.meaning(node, None)
        found = meaning.object if isinstance(meaning, PythonValue) else None
        if not (isinstance(found, type) and issubclass(found, BaseException)):
            raise self.error("exceptions must be written as a class or a call of one", s)
        return f"{found.__module__}.{found.__qualname__}"

    # ------------------------------------------------------------------------------------------------ conversions

    def implicit_conversion(self, found: T.Type, wanted: T.Type) -> str | None:
        """The operator that converts where the language converts by itself; None when it does not."""
        plain = wanted.element if isinstance(wanted, T.OptionalType) else wanted
        if isinstance(found, T.TensorType):
            return overloads.FROM_TENSOR.get(plain)
        numbers: dict[T.Type, str] = {T.FLOAT: "aten::Float.Scalar", T.INT: "aten::Int.Scalar"}
        return numbers.get(plain) if found == T.NUMBER else None

    def converted(self, value: Value, wanted: T.Type, node: ast.AST, *, implicit: bool = False) -> Value | None:
        """The value as its place wants it: tuples element by element, a tuple as a list; None when it does not fit.

        With ``implicit``, tensors and numbers become what they become as arguments.
        """
        if T.is_subtype(value.type, wanted):
            return value
        plain = wanted.element if isinstance(wanted, T.OptionalType) else wanted
        if isinstance(value.type, T.TupleType):
            if isinstance(plain, T.ListType) and value.type.elements:
                if all(T.is_subtype(e, plain.element) for e in value.type.elements):
                    unpack = self.emit("prim::TupleUnpack", (value,), node)
                    parts = [unpack.add_output(e) for e in value.type.elements]
                    return self.value_of("prim::ListConstruct", parts, plain, node)
            if isinstance(plain, T.TupleType) and plain.name is None:
                if len(plain.elements) == len(value.type.elements):
                    unpack = self.emit("prim::TupleUnpack", (value,), node)
                    found: list[Value] = []
                    for e, t in zip(value.type.elements, plain.elements, strict=True):
                        part = self.converted(unpack.add_output(e), t, node, implicit=implicit)
                        if part is None:
                            return None
                        found.append(part)
                    return self.value_of("prim::TupleConstruct", found, plain, node)
        op = self.implicit_conversion(value.type, wanted) if implicit else None
        return None if op is None else self.convert(value, op, node)

    def tolist_as(self, type_: T.Type, source: ast.expr, node: ast.AST) -> Value | None:
        """``x.tolist()`` where its type is declared; None for any other expression."""
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "tolist":
            owner = self.meaning(source.func.value, None)
            if isinstance(owner, Value) and isinstance(owner.type, T.TensorType) and not source.args:
                return self.value_of("prim::tolist", (owner,), type_, node, {"type": type_})
        return None

    def get_attribute(self, node: ast.Call) -> Any:
        """``getattr(x, "name")``, with or without a default."""
        if len(node.args) not in (2, 3) or node.keywords:
            raise self.error("getattr takes an object, a literal name and perhaps a default", node)
        name = literal(node.args[1])
        if not isinstance(name, str):
            raise self.error("getattr's second argument must be a string literal", node)
        owner = self.meaning(node.args[0], None)
        if len(node.args) == 3 and not self.attribute_exists(owner, name):
            return self.meaning(node.args[2], None)
        return self.attribute_of(owner, name, node)

    def has_attribute(self, node: ast.Call) -> bool:
        self.expect_arguments(node, 2)
        name = literal(node.args[1])
        if not isinstance(name, str):
            raise self.error("hasattr's second argument must be a string literal", node)
        return self.attribute_exists(self.meaning(node.args[0], None), name)

    def attribute_exists(self, owner: Any, name: str) -> bool:
        if isinstance(owner, PythonValue):
            return hasattr(owner.object, name)
        if not isinstance(owner, Value):
            return False
        t = owner.type
        if isinstance(t, T.ClassType):
            return name in t.attributes or name in t.constants or name in self.method_names(t)
        if isinstance(t, T.TupleType):
            return name in (t.fields or ())
        if isinstance(t, T.TensorType):
            return name in _TENSOR_PROPERTIES or bool(table.by_name(f"aten::{name}"))
        return False


def _fits_literal(node: ast.expr, wanted: T.Type) -> bool:
    """Whether a literal may be of the type its parameter has, so that its parts take their types from it."""
    kind = {ast.List: T.ListType, ast.Dict: T.DictType, ast.Tuple: T.TupleType}[type(node)]
    return not wanted.has_var and any(isinstance(m, kind) for m in T.members_of(wanted))
