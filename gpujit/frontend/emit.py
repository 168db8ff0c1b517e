"""Syntax trees to IR: one emitter for the code inside archives; only the resolver knows where names come from.

Values are built in SSA form directly: an ``if`` returns the names both of its sides changed, a loop carries the names
its body assigns. The language is that of serialized TorchScript (no infix operators, one return at the end).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Protocol

from gpujit.frontend.lang import (
    ClassMethodRef,
    Closure,
    FunctionRef,
    Meaning,
    MethodRef,
    Namespace,
    OperatorName,
    Path,
    Special,
    TypeRef,
    fail,
    range_of,
)
from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.values import Device, EnumValue, QTensor, ScriptObject, parse_device
from gpujit.ops import overloads
from gpujit.support.errors import DeviceError, SourceError


class _NotLiteral:
    pass


NOT_LITERAL = _NotLiteral()
_NAMED_NUMBERS = {
    "inf": float("inf"), "nan": float("nan"), "infj": complex(0, float("inf")), "nanj": complex(0, float("nan")),
}  # fmt: skip
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1


def literal(node: ast.expr, depth: int = 0) -> Any:
    """The Python value of a literal (numbers, strings, None, lists, tuples, dicts of them), or NOT_LITERAL."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float, complex, str, type(None))) else NOT_LITERAL
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand, depth + 1)
        return -value if isinstance(value, (int, float, complex)) else NOT_LITERAL
    if isinstance(node, ast.Name):
        return _NAMED_NUMBERS.get(node.id, NOT_LITERAL)
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


class Resolver(Protocol):
    """What an emitter asks about names. See ArchiveResolver."""

    file: str
    version: int | None
    overloads: dict[Any, overloads.Match]

    def lookup(self, name: str) -> Meaning | None: ...

    def member(self, path: str, name: str, where: Any) -> Meaning: ...

    def annotation(self, node: ast.expr, source: Source, depth: int = 0) -> T.Type: ...

    def constant_named(self, name: str, source: Source, node: ast.AST) -> Any: ...

    @property
    def map_device(self) -> Any: ...


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
    return None


def emit_function(function: Function, node: ast.FunctionDef, source: Source, resolver: Resolver) -> Graph:
    """The graph of a function's syntax tree. Raises SourceError with the line that does not compile."""
    schema = function.schema
    graph = Graph(function.name)
    emitter = _Emitter(graph, graph.block, source, resolver, function.name)
    for argument in schema.arguments:
        emitter.scope[argument.name] = graph.add_input(argument.type, argument.name)
    try:
        result = emitter.body(node.body, schema.returns[0].type)
    except RecursionError:
        raise fail("the function is nested too deeply", source, node, resolver.file, function.name) from None
    graph.add_output(result)
    _prune(graph)
    return graph


def _prune(graph: Graph) -> None:
    """Drop results of ifs that nobody reads, innermost last so that what they read goes too."""
    for node in reversed(list(graph.all_nodes())):
        if node.kind == "prim::If":
            for i in range(len(node.outputs) - 1, -1, -1):
                if not node.outputs[i].uses:
                    node.remove_output(i)
                    for block in node.blocks:
                        block.return_node.remove_input(i)
        elif node.kind in ("prim::Constant", "prim::Uninitialized") and not node.output.uses:
            node.destroy()


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    """Names a list of statements assigns, in order of first assignment, inner blocks included."""
    found: dict[str, None] = {}

    def target(node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            found[node.id] = None
        elif isinstance(node, (ast.Tuple, ast.List)):
            for e in node.elts:
                target(e)

    stack: list[ast.stmt] = list(reversed(body))
    while stack:
        s = stack.pop()
        if isinstance(s, ast.Assign):
            for t in s.targets:
                target(t)
        elif isinstance(s, ast.AnnAssign):
            target(s.target)
        elif isinstance(s, ast.If):
            stack.extend(reversed((*s.body, *s.orelse)))
        elif isinstance(s, (ast.For, ast.While)):
            if isinstance(s, ast.For):
                target(s.target)
            stack.extend(reversed(s.body))
        elif isinstance(s, ast.With):
            for item in s.items:
                if item.optional_vars is not None:
                    target(item.optional_vars)
            stack.extend(reversed(s.body))
    return list(found)


class _Emitter:
    """Emits one graph. ``scope`` maps names to what they mean at this point of the program."""

    def __init__(self, graph: Graph, block: Block, source: Source, resolver: Resolver, name: str) -> None:
        self.graph = graph
        self.block = block
        self.source = source
        self.resolver = resolver
        self.name = name
        self.scope: dict[str, Any] = {}
        self.undefined: dict[str, str] = {}
        self.constants: dict[Any, Value] = {}
        self.last_constant: Node = graph.block.param_node
        # A closure reads values of the function around it: they become inputs of its graph.
        self.outer: _Emitter | None = None
        self.captured: dict[Value, Value] = {}

    # ----------------------------------------------------------------------------------------------- helpers

    def error(self, message: str, node: ast.AST) -> SourceError:
        return fail(message, self.source, node, self.resolver.file, self.name)

    def range(self, node: ast.AST) -> SourceRange:
        return range_of(self.source, node)

    def emit(self, kind: str, inputs: Sequence[Value], at: ast.AST, attributes: dict[str, Any] | None = None) -> Node:
        node = Node(kind, inputs, attributes)
        node.source = self.range(at)
        return self.block.append(node)

    def value_of(
        self, kind: str, inputs: Sequence[Value], type_: T.Type, at: ast.AST, attributes: dict[str, Any] | None = None
    ) -> Value:
        return self.emit(kind, inputs, at, attributes).add_output(type_)

    def constant(self, value: Any, type_: T.Type, at: ast.AST) -> Value:
        """A constant, kept at the top of the graph so that it is seen everywhere; equal ones are one."""
        key: Any
        if isinstance(value, (bool, int, str, type(None), Device)):
            key = (type_, type(value), value)
        elif isinstance(value, (float, complex)):
            key = (type_, type(value), repr(value))
        else:
            key = (type_, id(value))
        found = self.constants.get(key)
        if found is None:
            node = Node("prim::Constant", (), {} if value is None else {"value": value})
            node.source = self.range(at)
            node.insert_after(self.last_constant)
            self.last_constant = node
            found = self.constants[key] = node.add_output(type_)
        return found

    # -------------------------------------------------------------------------------------------- statements

    def body(self, statements: Sequence[ast.stmt], returned: T.Type) -> Value:
        """Emit a function's statements; the value it returns."""
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                if i + 1 != len(statements):
                    raise self.error("nothing may follow 'return' in serialized code", statements[i + 1])
                if statement.value is None:
                    return self.constant(None, T.NONE, statement)
                value = self.expression(statement.value, returned)
                return self.fit(value, returned, statement, "the return value")
            self.statement(statement)
        last = statements[-1] if statements else ast.Pass()
        if not T.may_be_none(returned):
            raise self.error(f"the function is declared to return {returned.annotation()} but has no return", last)
        return self.constant(None, T.NONE, last)

    def statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Assign):
            if len(s.targets) != 1:
                raise self.error("chained assignment is not part of serialized TorchScript", s)
            self.assign(s.targets[0], s.value, s)
        elif isinstance(s, ast.Expr):
            if not (isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)):
                self.meaning(s.value, None)
        elif isinstance(s, ast.If):
            self.if_(s)
        elif isinstance(s, ast.For):
            self.for_(s)
        elif isinstance(s, ast.While):
            self.while_(s)
        elif isinstance(s, ast.Pass):
            pass
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            type_ = self.resolver.annotation(s.annotation, self.source)
            value = self.annotated(type_, s.value, s)
            self.store(s.target, value, s)
        elif isinstance(s, ast.With):
            self.with_(s)
        elif isinstance(s, ast.FunctionDef):
            self.scope[s.name] = Closure(s, dict(self.scope))
        elif isinstance(s, ast.Return):
            raise self.error("'return' is only expected at the end of a function in serialized code", s)
        else:
            raise self.error(f"'{type(s).__name__}' is not expected here in serialized TorchScript", s)

    def assign(self, target: ast.expr, source: ast.expr, at: ast.stmt) -> None:
        if isinstance(target, ast.Tuple) and isinstance(source, ast.Tuple) and len(target.elts) == len(source.elts):
            # All right sides are evaluated before any name changes.
            values = [self.meaning(e, None) for e in source.elts]
            for t, v in zip(target.elts, values, strict=True):
                self.store(t, v, at)
            return
        if isinstance(target, ast.Tuple):
            unknown = len(target.elts)
            value = self.as_value(self.meaning(source, None, unpack=unknown), source)
            self.unpack(target, value, at)
            return
        self.store(target, self.meaning(source, None), at)

    def unpack(self, target: ast.Tuple, value: Value, at: ast.stmt) -> None:
        count = len(target.elts)
        if isinstance(value.type, T.TupleType):
            if len(value.type.elements) != count:
                raise self.error(f"cannot unpack {value.type} into {count} names", at)
            node = self.emit("prim::TupleUnpack", (value,), at)
            outputs = [node.add_output(t) for t in value.type.elements]
        elif isinstance(value.type, T.ListType):
            node = self.emit("prim::ListUnpack", (value,), at)
            outputs = [node.add_output(value.type.element) for _ in range(count)]
        elif value.type == T.UNKNOWN:
            node = self.emit("prim::TupleUnpack", (value,), at)
            outputs = [node.add_output(T.UNKNOWN) for _ in range(count)]
        else:
            raise self.error(f"a value of type {value.type} cannot be unpacked", at)
        for t, output in zip(target.elts, outputs, strict=True):
            self.store(t, output, at)

    def store(self, target: ast.expr, value: Any, at: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            if isinstance(value, Value) and not value.name and not value.is_constant:
                value.name = target.id
            self.scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.expression(target.value)
            owner_type = owner.type
            if not isinstance(owner_type, T.ClassType) or target.attr not in owner_type.attributes:
                raise self.error(f"{owner_type} has no attribute {target.attr!r} to assign to", at)
            wanted = owner_type.attributes[target.attr]
            fitted = self.fit(self.as_value(value, at), wanted, at, f"attribute '{target.attr}'")
            self.emit("prim::SetAttr", (owner, fitted), at, {"name": target.attr})
        elif isinstance(target, ast.Subscript):
            owner, key = self.expression(target.value), self.expression(target.slice)
            self.call_operator("aten::_set_item", [owner, key, self.as_value(value, at)], {}, at)
        else:
            raise self.error(f"cannot assign to '{type(target).__name__}'", at)

    def inner(self, block: Block) -> tuple[Block, dict[str, Any]]:
        """Start emitting into ``block``; gives what ``outer_again`` needs to come back."""
        saved = self.block, self.scope
        self.block, self.scope = block, dict(self.scope)
        return saved

    def if_(self, s: ast.If) -> None:
        condition = self.condition(s.test)
        node = self.emit("prim::If", (condition,), s)
        before = self.scope
        sides: list[dict[str, Any]] = []
        for statements in (s.body, s.orelse):
            saved = self.inner(node.add_block())
            self.statements(statements)
            sides.append(self.scope)
            self.block, self.scope = saved
        yes, no = sides
        for name in dict.fromkeys((*_assigned(s.body), *_assigned(s.orelse))):
            a, b = yes.get(name), no.get(name)
            if a is b:
                if a is not None:
                    before[name] = a
                continue
            if not isinstance(a, Value) or not isinstance(b, Value):
                # Known on one side only, or two different functions: nothing may read it from here on.
                before.pop(name, None)
                self.undefined[name] = f"{name!r} is not defined on both sides of the 'if'"
                continue
            joint = T.unify(a.type, b.type)
            if joint is None:
                before.pop(name, None)
                self.undefined[name] = f"{name!r} has type {a.type} on one side of the 'if' and {b.type} on the other"
                continue
            node.blocks[0].add_return(a)
            node.blocks[1].add_return(b)
            before[name] = node.add_output(joint, name)

    def for_(self, s: ast.For) -> None:
        if s.orelse:
            raise self.error("'else' of a loop is not part of TorchScript", s)
        call = s.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not is_range or not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
            raise self.error("serialized loops are written 'for i in range(n)'", s)
        if not isinstance(s.target, ast.Name):
            raise self.error("a loop over range has one loop variable", s)
        trips = self.fit(self.expression(call.args[0]), T.INT, s, "the number of iterations")
        condition = self.constant(True, T.BOOL, s)
        self.loop(s, trips, condition, s.target.id, None)

    def while_(self, s: ast.While) -> None:
        if s.orelse:
            raise self.error("'else' of a loop is not part of TorchScript", s)
        trips = self.constant(_INT_MAX, T.INT, s)
        self.loop(s, trips, self.condition(s.test), None, s.test)

    def loop(
        self, s: ast.For | ast.While, trips: Value, condition: Value, index: str | None, test: ast.expr | None
    ) -> None:
        names = [n for n in _assigned(s.body) if n != index and isinstance(self.scope.get(n), Value)]
        types: dict[str, T.Type] = {n: self.scope[n].type for n in names}
        before = self.scope
        # The carried types are those before the loop, widened once if the body makes them wider.
        for attempt in range(3):
            node = self.emit("prim::Loop", (trips, condition, *(before[n] for n in names)), s)
            block = node.add_block()
            self.scope = before
            saved = self.inner(block)
            i = block.add_param(T.INT, index or "")
            if index is not None:
                self.scope[index] = i
            for n in names:
                self.scope[n] = block.add_param(types[n], n)
            self.statements(s.body)
            again = condition if test is None else self.condition(test)
            block.add_return(again)
            after = self.scope
            self.block, self.scope = saved
            wider: dict[str, T.Type] = {}
            for n in names:
                value = after.get(n)
                if not isinstance(value, Value):
                    raise self.error(self.undefined.get(n, f"{n!r} is not defined at the end of the loop"), s)
                if not T.is_subtype(value.type, types[n]):
                    joint = T.unify(types[n], value.type)
                    if joint is None or attempt == 2:
                        raise self.error(
                            f"{n!r} has type {types[n]} before the loop and {value.type} after its body", s
                        )
                    wider[n] = joint
                block.add_return(value)
            if not wider:
                break
            types.update(wider)
            node.destroy()
        for n in names:
            before[n] = node.add_output(types[n], n)
        for n in _assigned(s.body):
            if n not in names and n != index:
                before.pop(n, None)
                self.undefined[n] = f"{n!r} is only defined inside the loop"

    def with_(self, s: ast.With) -> None:
        entered: list[Value] = []
        for item in s.items:
            manager = self.expression(item.context_expr)
            if not isinstance(manager.type, T.ClassType) or not {"__enter__", "__exit__"} <= set(manager.type.methods):
                raise self.error(f"{manager.type} has no __enter__ and __exit__", s)
            returned = manager.type.methods["__enter__"].schema.returns[0].type
            value = self.value_of("prim::Enter", (manager,), returned, s)
            if item.optional_vars is not None:
                self.store(item.optional_vars, value, s)
            entered.append(manager)
        self.statements(s.body)
        for manager in reversed(entered):
            assert isinstance(manager.type, T.ClassType)
            returned = manager.type.methods["__exit__"].schema.returns[0].type
            self.value_of("prim::Exit", (manager,), returned, s)

    # ------------------------------------------------------------------------------------------- expressions

    def condition(self, node: ast.expr) -> Value:
        value = self.expression(node)
        if value.type == T.BOOL:
            return value
        return self.cast("bool", value, node)

    def expression(self, node: ast.expr, hint: T.Type | None = None) -> Value:
        """The value of an expression; ``hint`` is the type the place wants, used for literals only."""
        return self.as_value(self.meaning(node, hint), node)

    def as_value(self, meaning: Any, node: ast.AST) -> Value:
        if isinstance(meaning, Value):
            return meaning
        if isinstance(meaning, FunctionRef):
            return self.constant(meaning.function, T.FUNCTION, node)
        if isinstance(meaning, Path):
            raise self.error(f"{meaning.name!r} is not defined in the archive's source", node)
        raise self.error("this name is not a value", node)

    def meaning(self, node: ast.expr, hint: T.Type | None, unpack: int = 0) -> Any:
        kind = type(node)
        if kind is ast.Name:
            return self.name_(node)  # type: ignore[arg-type]
        if kind is ast.Call:
            return self.call(node, hint, unpack)  # type: ignore[arg-type]
        if kind is ast.Constant or kind is ast.UnaryOp or kind is ast.BinOp:
            value = literal(node)
            if value is NOT_LITERAL and isinstance(node, ast.UnaryOp):
                return self.call_operator("aten::neg", [self.expression(node.operand)], {}, node)
            type_ = None if value is NOT_LITERAL else type_of_constant(value)
            if type_ is None:
                what = "this literal" if kind is ast.Constant else "an infix operator"
                raise self.error(f"{what} is not part of serialized TorchScript", node)
            if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
                raise self.error("an integer literal is outside 64 bits", node)
            if value is None and hint is not None and T.may_be_none(hint):
                type_ = T.NONE
            return self.constant(value, type_, node)
        if kind is ast.Attribute:
            return self.attribute(node)  # type: ignore[arg-type]
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
            if node.id in _NAMED_NUMBERS:
                number = _NAMED_NUMBERS[node.id]
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

    # -------------------------------------------------------------------------------------------- attributes

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

    def constant_of_type(self, value: Any, type_: T.Type, node: ast.AST) -> Value:
        """A constant whose Python value may be of a mutable kind: lists are built anew where they are used."""
        if isinstance(value, list) and isinstance(type_, T.ListType):
            items = [self.constant_of_type(v, type_.element, node) for v in value]
            return self.value_of("prim::ListConstruct", items, type_, node)
        if isinstance(value, tuple) and isinstance(type_, T.TupleType):
            items = [self.constant_of_type(v, t, node) for v, t in zip(value, type_.elements, strict=True)]
            return self.value_of("prim::TupleConstruct", items, type_, node)
        if isinstance(value, dict) and isinstance(type_, T.DictType):
            pairs = [
                x
                for k, v in value.items()
                for x in (self.constant(k, type_.key, node), self.constant_of_type(v, type_.value, node))
            ]
            return self.value_of("prim::DictConstruct", pairs, type_, node)
        if isinstance(type_, T.OptionalType) and value is not None:
            type_ = type_.element
        if isinstance(value, int) and not isinstance(value, bool) and type_ == T.FLOAT:
            value = float(value)
        return self.constant(value, type_ if value is not None else T.NONE, node)

    # ------------------------------------------------------------------------------------------------- calls

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
            raise self.error(f"{callee.type.name}.{callee.name} cannot be called without an object", node)
        if isinstance(callee, Value) and callee.type == T.FUNCTION and callee.is_constant:
            function = callee.constant()
            inputs = self.match_function(function.schema, *self.arguments(node), node)
            return self.value_of("prim::CallFunction", (callee, *inputs), function.schema.returns[0].type, node)
        if isinstance(callee, Path):
            raise self.error(f"{callee.name!r} is not defined in the archive's source", node)
        raise self.error("this is not something that can be called", node)

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

    def call_operator(
        self, name: str, positional: list[Value], keywords: dict[str, Value], node: ast.AST, unpack: int = 0
    ) -> Any:
        """The result of an operator call: a value, or the constant None when it returns nothing."""
        candidates = overloads.candidates_for(name, self.resolver.version)
        if not candidates:
            return self.unknown_operator(name, positional, keywords, node, unpack)
        types = {k: v.type for k, v in keywords.items()}
        match = overloads.resolve(candidates, (v.type for v in positional), types, self.resolver.overloads)
        if not isinstance(match, overloads.Match):
            lines = [f"Arguments for call to {name} are not valid. These variants are available:"]
            for schema, reason in match[:12]:
                lines += [f"  {schema}", f"    {reason}"]
            raise self.error("\n".join(lines), node)
        inputs = self.apply(match, (*positional, *keywords.values()), node)
        out = self.emit(match.schema.name, inputs, node)
        out.schema = match.schema
        return self.results(out, match.results, node)

    def results(self, node: Node, types: Sequence[T.Type], at: ast.AST) -> Value:
        """One value for all results of a node: itself, a tuple of them, or None."""
        if len(types) == 1:
            return node.add_output(types[0])
        if not types:
            return self.constant(None, T.NONE, at)
        outputs = [node.add_output(t) for t in types]
        return self.value_of("prim::TupleConstruct", outputs, T.TupleType(tuple(types)), at)

    def unknown_operator(
        self, name: str, positional: list[Value], keywords: dict[str, Value], node: ast.AST, unpack: int
    ) -> Value:
        """A call that raises when it is reached; until then its result fits everywhere."""
        out = self.emit(name, (*positional, *keywords.values()), node)
        return self.results(out, [T.UNKNOWN] * max(unpack, 1), node)

    def apply(self, match: overloads.Match, values: Sequence[Value], node: ast.AST) -> list[Value]:
        """The node inputs a match asks for, conversions emitted."""
        inputs: list[Value] = []
        for step in match.steps:
            kind = step.kind
            if kind == "value":
                inputs.append(values[step.index])
            elif kind == "default":
                inputs.append(self.default(step.default, step.type, node))
            elif kind == "convert":
                inputs.append(self.convert(values[step.index], step.op, node))
            elif kind == "repeat":
                inputs.append(self.value_of("prim::ListConstruct", [values[step.index]] * step.count, step.type, node))
            elif kind == "pack":
                packed = values[step.index : step.index + step.count]
                inputs.append(self.value_of("prim::ListConstruct", packed, step.type, node))
            else:
                value = values[step.index]
                assert isinstance(value.type, T.TupleType)
                unpack = self.emit("prim::TupleUnpack", (value,), node)
                parts = [unpack.add_output(t) for t in value.type.elements]
                inputs.append(self.value_of("prim::ListConstruct", parts, step.type, node))
        return inputs

    def default(self, value: Any, type_: T.Type, node: ast.AST) -> Value:
        plain = type_.element if isinstance(type_, T.OptionalType) else type_
        if isinstance(value, list) and isinstance(plain, T.ListType):
            return self.constant_of_type(value, plain, node)
        if isinstance(value, str) and plain == T.INT:
            # A dtype default is written by name in schemas.
            value = BY_NAME[value].code if value in BY_NAME else 4
        if plain == T.NUMBER and value is not None:
            plain = T.INT if isinstance(value, int) else T.FLOAT
        return self.constant_of_type(value, plain, node)

    def convert(self, value: Value, op: str, node: ast.AST) -> Value:
        from gpujit.ops import table

        entry = table.by_full_name(op)
        if entry is None:
            raise self.error(f"the conversion {op} is missing from the operator table", node)
        out = self.emit(entry.name, (value,), node)
        out.schema = entry.schema
        return out.add_output(entry.schema.returns[0].type)

    def match_function(
        self, schema: Schema, positional: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> list[Value]:
        """Inputs for a call of a function or method (its object, if any, is the first positional argument)."""
        types, named = [v.type for v in positional], {k: v.type for k, v in keywords.items()}
        for convert in (False, True):
            match = overloads.match_schema(schema, types, named, convert)
            if isinstance(match, overloads.Match):
                return self.apply(match, (*positional, *keywords.values()), node)
        raise self.error(f"Arguments for call are not valid: {match}\n  {schema}", node)

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

    def fit(self, value: Value, wanted: T.Type, node: ast.AST, what: str) -> Value:
        """The value where type ``wanted`` is needed: as it is when its type allows, else converted, else an error."""
        if T.is_subtype(value.type, wanted):
            return value
        plain = wanted.element if isinstance(wanted, T.OptionalType) else wanted
        if (
            isinstance(value.type, T.TupleType)
            and isinstance(plain, T.TupleType)
            and value.node.kind == "prim::TupleConstruct"
        ):
            if len(value.type.elements) == len(plain.elements):
                if plain.name is None or all(map(T.is_subtype, value.type.elements, plain.elements)):
                    items = [self.fit(v, t, node, what) for v, t in zip(value.node.inputs, plain.elements, strict=True)]
                    return self.value_of("prim::TupleConstruct", items, plain, node)
        if (
            isinstance(value.type, T.ListType)
            and value.node.kind == "prim::ListConstruct"
            and isinstance(plain, T.ListType)
        ):
            if not value.node.inputs or all(T.is_subtype(v.type, plain.element) for v in value.node.inputs):
                return self.value_of("prim::ListConstruct", list(value.node.inputs), plain, node)
        if value.type == T.ANY:
            return self.value_of("prim::unchecked_cast", (value,), wanted, node)
        for op, kinds in (("aten::Float.Scalar", (T.FLOAT,)), ("aten::Int.Scalar", (T.INT,))):
            if value.type == T.NUMBER and plain in kinds:
                return self.convert(value, op, node)
        raise self.error(f"Expected a value of type '{wanted}' for {what} but instead found type '{value.type}'.", node)

    # ----------------------------------------------------------------------------------------------- specials

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

    def cast(self, name: str, value: Value, node: ast.AST) -> Value:
        wanted = {"int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX, "str": T.STR}[name]
        if value.type == wanted:
            return value
        op = {
            "int": "aten::Int",
            "float": "aten::Float",
            "bool": "aten::Bool",
            "complex": "aten::Complex",
            "str": "aten::str",
        }[name]
        if name == "bool" and isinstance(value.type, (T.ListType, T.DictType)):
            length = self.as_value(self.call_operator("aten::len", [value], {}, node), node)
            return self.as_value(self.call_operator("aten::Bool", [length], {}, node), node)
        return self.as_value(self.call_operator(op, [value], {}, node), node)

    def fork(self, name: str, node: ast.Call) -> Value:
        if not node.args:
            raise self.error(f"{name} needs a function", node)
        closure = self.meaning(node.args[0], None)
        if not isinstance(closure, Closure):
            raise self.error(f"{name} needs a function defined in place", node)
        graph = Graph(f"{self.name}.{closure.node.name}")
        inner = _Emitter(graph, graph.block, self.source, self.resolver, f"{self.name}.{closure.node.name}")
        inner.outer = self
        saved = self.scope
        self.scope = closure.scope
        try:
            statements = closure.node.body
            returned: T.Type = T.ANY
            if closure.node.returns is not None:
                returned = self.resolver.annotation(closure.node.returns, self.source)
            result = inner.body(statements, returned)
        finally:
            self.scope = saved
        graph.add_output(result)
        _prune(graph)
        type_ = result.type if returned == T.ANY else returned
        box = T.BoxType("Future" if name == "fork" else "Await", type_)
        kind = "prim::fork" if name == "fork" else "prim::awaitable"
        return self.value_of(kind, list(inner.captured), box, node, {"Subgraph": graph})
