"""Syntax trees to IR: one emitter for the code inside archives; only the resolver knows where names come from.

Values are built in SSA form directly: an ``if`` returns the names both of its sides changed, a loop carries the names
its body assigns. The language is that of serialized TorchScript (no infix operators, one return at the end).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from gpujit.frontend.emit_base import Resolver
from gpujit.frontend.emit_expressions import ExpressionEmitter
from gpujit.frontend.lang import Closure, fail
from gpujit.frontend.literals import INT_MAX
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Value
from gpujit.ir.module import Function
from gpujit.ir.source import Source


def emit_function(function: Function, node: ast.FunctionDef, source: Source, resolver: Resolver) -> Graph:
    """The graph of a function's syntax tree. Raises SourceError with the line that does not compile."""
    schema = function.schema
    graph = Graph(function.name)
    emitter = Emitter(graph, graph.block, source, resolver, function.name)
    for argument in schema.arguments:
        emitter.scope[argument.name] = graph.add_input(argument.type, argument.name)
    try:
        result = emitter.body(node.body, schema.returns[0].type)
    except RecursionError:
        raise fail("the function is nested too deeply", source, node, resolver.file, function.name) from None
    graph.add_output(result)
    prune(graph)
    return graph


def prune(graph: Graph) -> None:
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


class Emitter(ExpressionEmitter):
    """Emits statements, and with them whole functions."""

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
            if isinstance(type_, T.UnionType) and value.type != type_:
                # Another branch may give the name another member's value.
                value = self.value_of("prim::unchecked_cast", (value,), type_, s)
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
        trips = self.constant(INT_MAX, T.INT, s)
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

    def fork(self, name: str, node: ast.Call) -> Value:
        if not node.args:
            raise self.error(f"{name} needs a function", node)
        closure = self.meaning(node.args[0], None)
        if not isinstance(closure, Closure):
            raise self.error(f"{name} needs a function defined in place", node)
        graph = Graph(f"{self.name}.{closure.node.name}")
        inner = type(self)(graph, graph.block, self.source, self.resolver, f"{self.name}.{closure.node.name}")
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
        prune(graph)
        type_ = result.type if returned == T.ANY else returned
        box = T.BoxType("Future" if name == "fork" else "Await", type_)
        kind = "prim::fork" if name == "fork" else "prim::awaitable"
        return self.value_of(kind, list(inner.captured), box, node, {"Subgraph": graph})
