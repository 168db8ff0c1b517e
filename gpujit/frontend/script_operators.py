"""Operators of the language: infix and prefix operators, comparisons, f-strings, literals, comprehensions."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gpujit.frontend.emit import Emitter
from gpujit.frontend.emit_base import Resolver
from gpujit.frontend.lang import Given, Items, Walk
from gpujit.frontend.literals import type_of_constant
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.ir.values import is_int64
from gpujit.support.errors import SourceError

BINARY: dict[type, tuple[str, str]] = {
    ast.Add: ("aten::add", "__add__"), ast.Sub: ("aten::sub", "__sub__"), ast.Mult: ("aten::mul", "__mul__"),
    ast.Div: ("aten::div", "__truediv__"), ast.FloorDiv: ("aten::floordiv", "__floordiv__"),
    ast.Mod: ("aten::remainder", "__mod__"), ast.Pow: ("aten::pow", "__pow__"),
    ast.MatMult: ("aten::matmul", "__matmul__"), ast.BitAnd: ("aten::__and__", "__and__"),
    ast.BitOr: ("aten::__or__", "__or__"), ast.BitXor: ("aten::__xor__", "__xor__"),
    ast.LShift: ("aten::__lshift__", "__lshift__"), ast.RShift: ("aten::__rshift__", "__rshift__"),
}  # fmt: skip
_COMPARE: dict[type, tuple[str, str]] = {
    ast.Eq: ("aten::eq", "__eq__"), ast.NotEq: ("aten::ne", "__ne__"), ast.Lt: ("aten::lt", "__lt__"),
    ast.LtE: ("aten::le", "__le__"), ast.Gt: ("aten::gt", "__gt__"), ast.GtE: ("aten::ge", "__ge__"),
}  # fmt: skip
# number OP tensor, where the table has the operator the other way round only.
_MIRRORED = {
    "aten::eq": "aten::eq", "aten::ne": "aten::ne", "aten::lt": "aten::gt", "aten::le": "aten::ge",
    "aten::gt": "aten::lt", "aten::ge": "aten::le", "aten::add": "aten::add", "aten::mul": "aten::mul",
}  # fmt: skip
_NUMBERS = (T.INT, T.FLOAT, T.COMPLEX, T.BOOL, T.NUMBER)
# What no infix operator on other operands is spelled as, by the kind of syntax.
_INSTEAD = {
    ast.Lambda: "define a function with 'def' outside and call it", ast.SetComp: "use a list or a dict",
    ast.Set: "use a list, or a dict with its elements as keys",
    ast.NamedExpr: "assign in a statement of its own", ast.Await: "use fork and wait", ast.Yield: "return a list",
    ast.YieldFrom: "return a list",
}  # fmt: skip


class ScriptNames(Resolver, Protocol):
    """What the emitter of live code asks about names besides. See ScriptResolver, which says what each gives."""

    compiler: Any
    types: Any

    def value_of_object(self, emitter: Any, obj: Any, node: ast.AST) -> Value | None: ...

    def why_no_value(self, obj: Any) -> str: ...

    def python_attribute(self, emitter: Any, obj: Any, name: str, node: ast.AST) -> Any: ...

    def callable_meaning(self, emitter: Any, obj: Any, node: ast.Call) -> Any: ...

    def compile(self, function: Function, where: Callable[[str], SourceError]) -> None: ...

    def lazy_methods(self, t: T.Type) -> Iterable[str]: ...

    def method(self, t: Any, name: str, where: Callable[[str], SourceError]) -> Function: ...

    def method_overloads(self, t: Any, name: str) -> list[Function]: ...

    def static_method(self, t: T.ClassType, name: str) -> Function | None: ...

    def named_tuple_schema(self, t: T.TupleType) -> Schema: ...

    def declared_attribute(self, t: T.ClassType, name: str) -> T.Type | None: ...

    def ensure_attribute(
        self, t: T.ClassType, name: str, value: Value, function: str, where: Callable[[str], SourceError]
    ) -> None: ...

    def missing_attribute(self, t: Any, name: str) -> str: ...

    def container_items(self, emitter: Any, value: Value, node: ast.AST) -> dict[str, Any] | None: ...

    def iterates_names(self, t: T.ClassType) -> bool: ...

    def object_member(self, emitter: Any, owner: Value, name: str, node: ast.AST) -> Any: ...


class OperatorEmitter(Emitter):
    """Emits operators. ``original`` maps values narrowed by a condition to what they were."""

    original: dict[Value, Value]
    resolver: ScriptNames

    def meaning(self, node: ast.expr, hint: T.Type | None, unpack: int = 0) -> Any:
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node, hint)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Dict, ast.Subscript)):
            return super().meaning(node, hint, unpack)
        instead = _INSTEAD.get(type(node))
        raise self.error(
            f"'{type(node).__name__}' is not part of TorchScript" + (f"; {instead}" if instead else ""), node
        )

    # ---------------------------------------------------------------------------------------------- helpers

    def call_value(self, name: str, inputs: Iterable[Value], node: ast.AST) -> Value:
        """The result of an operator on positional inputs."""
        return self.as_value(self.call_operator(name, list(inputs), {}, node), node)

    def method_names(self, t: T.ClassType | T.InterfaceType) -> set[str]:
        """The methods an object of the type has, compiled or not."""
        return {*t.methods, *self.resolver.lazy_methods(t)}

    def call_named(self, owner: Value, name: str, inputs: list[Value], node: ast.AST) -> Value:
        """A call of an object's method by name."""
        assert isinstance(owner.type, (T.ClassType, T.InterfaceType))
        method = self.resolver.method(owner.type, name, lambda text: self.error(text, node))
        fitted = self.match_function(method.schema, [owner, *inputs], {}, node)
        return self.value_of("prim::CallMethod", fitted, method.schema.returns[0].type, node, {"name": name})

    def has_method(self, value: Value, name: str) -> bool:
        return isinstance(value.type, (T.ClassType, T.InterfaceType)) and name in self.method_names(value.type)

    # ---------------------------------------------------------------------------------------------- literals

    def constant_(self, node: ast.Constant, hint: T.Type | None) -> Value:
        value = node.value
        if isinstance(value, bytes) or value is Ellipsis:
            raise self.error(f"{type(value).__name__} is not a value in TorchScript", node)
        if isinstance(value, int) and not is_int64(value):
            raise self.error("an integer literal is outside 64 bits", node)
        type_ = type_of_constant(value)
        assert type_ is not None
        return self.constant(value, type_, node)

    def tuple_(self, node: ast.Tuple, hint: T.Type | None) -> Any:
        wanted = hint.elements if isinstance(hint, T.TupleType) and len(hint.elements) == len(node.elts) else None
        items: list[Value] = []
        for i, e in enumerate(node.elts):
            if isinstance(e, ast.Starred):
                items += self.spread(e)
            else:
                items.append(self.expression(e, None if wanted is None else wanted[i]))
        return self.value_of("prim::TupleConstruct", items, T.TupleType(tuple(v.type for v in items)), node)

    def spread(self, node: ast.Starred) -> list[Value]:
        """The elements of ``*xs``, whose number has to be known."""
        meaning = self.meaning(node.value, None)
        if isinstance(meaning, Items):
            return [self.as_value(m, node) for m in meaning.values]
        value = self.as_value(meaning, node)
        if not isinstance(value.type, T.TupleType):
            raise self.error(f"'*' needs a tuple, whose length is known at compile time; found {value.type}", node)
        unpack = self.emit("prim::TupleUnpack", (value,), node)
        return [unpack.add_output(t) for t in value.type.elements]

    def list_(self, node: ast.List, hint: T.Type | None) -> Value:
        if any(isinstance(e, ast.Starred) for e in node.elts):
            raise self.error("'*' in a list is not part of TorchScript; use list + list", node)
        plain = _list_hint(hint)
        if plain is None:
            return super().list_(node, None)
        items = [self.expression(e, plain) for e in node.elts]
        for v in items:
            if not T.is_subtype(v.type, plain):
                raise self.error(
                    f"List type annotation 'List[{plain.annotation()}]' did not match the types of the given list "
                    f"elements, which have type {v.type.annotation()}",
                    node,
                )
        return self.value_of("prim::ListConstruct", items, T.ListType(plain), node)

    def joined(self, node: ast.JoinedStr, hint: T.Type | None) -> Value:
        """An f-string: ``aten::format`` of the text between the values."""
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if part.conversion != -1 or part.format_spec is not None:
                    raise self.error("conversions and formats in f-strings are not part of TorchScript", node)
                text += "{}"
                values.append(self.expression(part.value))
        return self.call_value("aten::format", [self.constant(text, T.STR, node), *values], node)

    # ---------------------------------------------------------------------------------------------- operators

    def unary(self, node: ast.UnaryOp, hint: T.Type | None) -> Value:
        if isinstance(node.op, ast.Not):
            return self.condition(node)
        operand = node.operand
        if isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant):
            if isinstance(operand.value, (int, float, complex)) and not isinstance(operand.value, bool):
                if isinstance(operand.value, int) and not is_int64(operand.value):
                    raise self.error("an integer literal is outside 64 bits", node)
                folded = ast.copy_location(ast.Constant(-operand.value), node)
                return self.constant_(folded, hint)
        value = self.expression(operand)
        if isinstance(node.op, ast.UAdd):
            raise self.error("unary '+' is not part of TorchScript; leave it away", node)
        name, method = (
            ("aten::neg", "__neg__") if isinstance(node.op, ast.USub) else ("aten::bitwise_not", "__invert__")
        )
        if self.has_method(value, method):
            return self.call_named(value, method, [], node)
        return self.call_value(name, [value], node)

    def binary(self, node: ast.BinOp, hint: T.Type | None) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        return self.operate(type(node.op), left, right, node)

    def operate(self, op: type, left: Value, right: Value, node: ast.AST) -> Value:
        """``left op right`` for the operator of a syntax class."""
        name, method = BINARY[op]
        if self.has_method(left, method):
            return self.call_named(left, method, [right], node)
        if isinstance(left.type, T.TupleType) and isinstance(right.type, T.TupleType) and op is ast.Add:
            parts: list[Value] = []
            for side in (left, right):
                unpack = self.emit("prim::TupleUnpack", (side,), node)
                assert isinstance(side.type, T.TupleType)
                parts += [unpack.add_output(t) for t in side.type.elements]
            return self.value_of("prim::TupleConstruct", parts, T.TupleType(tuple(p.type for p in parts)), node)
        if op is ast.Mod and left.type == T.STR:
            return self.call_value("aten::percentFormat", [left, right], node)
        if isinstance(right.type, T.TensorType) and left.type in _NUMBERS:
            return self.number_and_tensor(name, left, right, node)
        if op is ast.FloorDiv and isinstance(left.type, T.TensorType):
            return self.call_value("aten::floor_divide", [left, right], node)
        return self.call_value(name, [left, right], node)

    def number_and_tensor(self, name: str, left: Value, right: Value, node: ast.AST) -> Value:
        """A number on the left of a tensor, where most operators have the tensor first."""
        if name in _MIRRORED:
            return self.call_value(_MIRRORED[name], [right, left], node)
        if name == "aten::sub":
            return self.call_value("aten::add", [self.call_value("aten::neg", [right], node), left], node)
        if name == "aten::div":
            return self.call_value("aten::mul", [self.call_value("aten::reciprocal", [right], node), left], node)
        if name == "aten::floordiv":
            name = "aten::floor_divide"
        return self.call_value(name, [left, right], node)

    def compare(self, node: ast.Compare, hint: T.Type | None) -> Any:
        if len(node.ops) == 1:
            return self.compared(node.ops[0], self.expression(node.left), node.comparators[0], node)
        # a < b < c: each operand is evaluated once, and the rest only while the answer is open.
        middle = self.expression(node.comparators[0])
        first = self.relate(node.ops[0], self.expression(node.left), middle, node)
        return self.chain(first, middle, node.ops[1:], node.comparators[1:], node)

    def chain(self, so_far: Value, left: Value, ops: list[ast.cmpop], rest: list[ast.expr], node: ast.Compare) -> Value:
        def more() -> Value:
            right = self.expression(rest[0])
            value = self.relate(ops[0], left, right, node)
            return value if len(ops) == 1 else self.chain(value, right, ops[1:], rest[1:], node)

        return self.choose(self.truth(so_far, node), more, lambda: self.constant(False, T.BOOL, node), node)

    def compared(self, op: ast.cmpop, left: Value, right: ast.expr, node: ast.Compare) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self.condition(node)
        return self.relate(op, left, self.expression(right), node)

    def relate(self, op: ast.cmpop, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(op, (ast.In, ast.NotIn)):
            if self.has_method(right, "__contains__"):
                found = self.call_named(right, "__contains__", [left], node)
            else:
                found = self.contains(right, left, node)
            return found if isinstance(op, ast.In) else self.call_value("aten::__not__", [found], node)
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self.call_value("aten::__is__" if isinstance(op, ast.Is) else "aten::__isnot__", [left, right], node)
        name, method = _COMPARE[type(op)]
        if self.has_method(left, method):
            return self.call_named(left, method, [right], node)
        if isinstance(right.type, T.TensorType) and left.type in _NUMBERS:
            return self.number_and_tensor(name, left, right, node)
        return self.call_value(name, [left, right], node)

    def contains(self, container: Value, item: Value, node: ast.AST) -> Value:
        if container.type == T.STR:
            position = self.call_value("aten::find", [container, item], node)
            return self.call_value("aten::ne", [position, self.constant(-1, T.INT, node)], node)
        return self.call_value("aten::__contains__", [container, item], node)

    def ternary(self, node: ast.IfExp, hint: T.Type | None) -> Any:
        c = self.condition_of(node.test)
        saved = dict(self.scope)
        if c.known is not None:
            self.refine(c.yes if c.known else c.no, node)
            result = self.meaning(node.body if c.known else node.orelse, hint)
            self.scope = saved
            return result
        assert c.value is not None

        def side(expression: ast.expr, types: dict[str, T.Type]) -> Callable[[], Value]:
            def emit() -> Value:
                self.refine(types, node)
                return self.expression(expression, hint)

            return emit

        result = self.choose(c.value, side(node.body, c.yes), side(node.orelse, c.no), node)
        self.scope = saved
        return result

    # ------------------------------------------------------------------------------------------- comprehensions

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, hint: T.Type | None) -> Any:
        if len(node.generators) != 1:
            raise self.error("Only a single generator is currently supported; nest loops instead", node)
        generator = node.generators[0]
        if generator.ifs:
            raise self.error("Comprehension ifs are not supported yet; write a loop with an 'if' inside", node)
        walk = self.walk(self.meaning(generator.iter, None), generator.iter)
        saved = dict(self.scope)
        plain = hint.element if isinstance(hint, T.OptionalType) else hint
        if walk.items is not None:
            if isinstance(node, ast.DictComp):
                raise self.error("dict comprehensions over modules and tuples are not part of TorchScript", node)
            values = []
            for item in walk.items:
                self.bind(generator.target, item, node)
                values.append(self.meaning(node.elt, _list_hint(hint)))
            self.scope = saved
            if not all(isinstance(v, Value) for v in values):
                return Items(values)
            element = _list_hint(hint) or (values[0].type if values else T.TENSOR)
            fitted = [self.fit(v, element, node, "a list element") for v in values]
            return self.value_of("prim::ListConstruct", fitted, T.ListType(element), node)
        kind = "prim::DictConstruct" if isinstance(node, ast.DictComp) else "prim::ListConstruct"
        result = self.value_of(kind, (), plain or T.ListType(T.TENSOR), node)

        def body() -> None:
            if isinstance(node, ast.DictComp):
                key, value = self.expression(node.key), self.expression(node.value)
                result.type = T.DictType(key.type, value.type) if plain is None else plain
                self.call_operator("aten::_set_item", [result, key, value], {}, node)
            else:
                value = self.expression(node.elt, _list_hint(hint))
                if plain is None:
                    result.type = T.ListType(T.TENSOR if isinstance(value.type, T.TensorType) else value.type)
                self.call_operator("aten::append", [result, value], {}, node)

        self.simple_loop(walk, generator.target, body, node)
        self.scope = saved
        return result

    def simple_loop(self, walk: Walk, target: ast.expr, body: Callable[[], None], node: ast.AST) -> None:
        """A loop whose body assigns no names but the target."""
        assert walk.length is not None
        again = self.constant(True, T.BOOL, node)
        loop = self.emit("prim::Loop", (walk.length, again), node)
        block = loop.add_block()
        saved = self.inner(block)
        self.bind(target, walk.at(block.add_param(T.INT)), node)
        body()
        block.add_return(again)
        self.block, self.scope = saved

    @abstractmethod
    def walk(self, meaning: Any, node: ast.AST) -> Walk:
        """How a loop goes over something."""

    @abstractmethod
    def bind(self, target: ast.expr, meaning: Any, node: ast.AST) -> None:
        """Assign to a loop's target."""

    @abstractmethod
    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value], node: ast.AST) -> Value: ...

    @abstractmethod
    def condition_of(self, node: ast.expr) -> Any: ...

    @abstractmethod
    def refine(self, types: dict[str, T.Type], at: ast.AST) -> None: ...

    @abstractmethod
    def has_attribute(self, node: ast.Call) -> bool: ...

    @abstractmethod
    def truth(self, value: Value, node: ast.AST) -> Value: ...


def _list_hint(hint: T.Type | None) -> T.Type | None:
    """The element type a place wants of a list."""
    found = [m for m in T.members_of(hint) if isinstance(m, T.ListType)] if hint is not None else []
    return found[0].element if len(found) == 1 else None


_HANDLERS: dict[type, Callable[..., Any]] = {
    ast.Constant: OperatorEmitter.constant_, ast.Tuple: OperatorEmitter.tuple_, ast.JoinedStr: OperatorEmitter.joined,
    ast.List: lambda self, node, hint: self.list_(node, hint), ast.UnaryOp: OperatorEmitter.unary,
    ast.BinOp: OperatorEmitter.binary, ast.Compare: OperatorEmitter.compare, ast.IfExp: OperatorEmitter.ternary,
    ast.BoolOp: lambda self, node, hint: self.condition(node), ast.ListComp: OperatorEmitter.comprehension,
    ast.DictComp: OperatorEmitter.comprehension, ast.GeneratorExp: OperatorEmitter.comprehension,
    Given: lambda self, node, hint: node.value,
}  # fmt: skip
