"""Statements of the whole language, and with them whole functions of live Python code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from gpujit.frontend.emit import prune
from gpujit.frontend.script_flow import FLAGS, FlowEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Value
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError

_REFUSED: dict[type, str] = {
    ast.Try: "exceptions cannot be caught; test the condition with 'if' before",
    ast.Global: "globals cannot be assigned; pass values in and return them",
    ast.Nonlocal: "names of outer functions cannot be assigned; return the value",
    ast.FunctionDef: "define the function outside, where it is scripted when called",
    ast.AsyncFunctionDef: "use fork and wait", ast.ClassDef: "define the class outside",
    ast.AsyncFor: "use fork and wait", ast.AsyncWith: "use fork and wait",
    ast.Import: "import at the top of the file", ast.ImportFrom: "import at the top of the file",
}  # fmt: skip


class ScriptEmitter(FlowEmitter):
    """Emits the functions of live Python code and of source text given to ``define``."""

    def __init__(self, graph: Graph, block: Block, source: Source, resolver: Any, name: str) -> None:
        super().__init__(graph, block, source, resolver, name)
        self.original = {}
        # What names meant where the blocks around this point begin.
        self.frames: list[dict[str, Any]] = []
        self.declared: T.Type | None = None
        self.loop_depth = 0

    # ------------------------------------------------------------------------------------------------- functions

    def function_body(self, node: ast.FunctionDef, declared: T.Type | None) -> Value:
        """Emit a function's statements; the value it returns. ``declared`` is its annotated result type."""
        self.declared = declared
        body = node.body
        end = ast.copy_location(ast.Return(value=None), body[-1] if body else node)
        end.end_lineno = node.end_lineno
        implicit = ast.Expr(value=ast.Constant(value=Ellipsis))
        ast.copy_location(implicit, node)
        ast.copy_location(implicit.value, node)
        self.implicit_return = implicit
        self.statements([*body, implicit])
        result = self.scope.get("@result")
        if not isinstance(result, Value):
            # Every path raises.
            type_ = declared if declared is not None else T.NONE
            return self.constant(None, T.NONE, node) if type_ == T.NONE else self.filler(type_, node)
        return result

    def statements(self, statements: Sequence[ast.stmt]) -> bool:  # type: ignore[override]
        """Emit statements one after the other; whether they always leave the block."""
        for i, s in enumerate(statements):
            rest = statements[i + 1 :]
            try:
                left = self.branch(s, rest) if isinstance(s, ast.If) else self.statement(s) or None
            except SourceError as e:
                if e.where:
                    raise
                # A class that is named here cannot be compiled, and says so without a place.
                raise self.error(e.message, s) from None
            if left is not None:
                return left
            skip = self.scope.get("@skip")
            if isinstance(skip, Value):
                if skip.is_constant and skip.constant():
                    return True
                if rest and not skip.is_constant:
                    return self.guarded(skip, rest, s)
        return False

    def statement(self, s: ast.stmt) -> bool:  # type: ignore[override]
        """Emit a statement other than ``if``; whether it always leaves the block."""
        if s is self.implicit_return:
            return self.end_of_function(s)
        handler = _STATEMENTS.get(type(s))
        if handler is None:
            instead = _REFUSED.get(type(s), "")
            kind = type(s).__name__
            raise self.error(f"'{kind}' statements aren't supported" + (f"; {instead}" if instead else ""), s)
        return bool(handler(self, s))

    # -------------------------------------------------------------------------------------------------- leaving

    def end_of_function(self, s: ast.stmt) -> bool:
        if self.declared is not None and self.declared != T.NONE:
            raise self.error("Function was not annotated as having type None, but does not return along all paths", s)
        self.leave_function(self.constant(None, T.NONE, s), s)
        return True

    def return_(self, s: ast.Return) -> bool:
        wanted = self.declared
        if s.value is None:
            value = self.constant(None, T.NONE, s)
        else:
            hinted = None if wanted is None else self.tolist_as(wanted, s.value, s)
            value = hinted if hinted is not None else self.as_value(self.meaning(s.value, wanted), s.value)
        if wanted is not None:
            value = self.returned(value, wanted, s)
        self.leave_function(value, s)
        return True

    def returned(self, value: Value, wanted: T.Type, s: ast.AST) -> Value:
        """A returned value as the declared type; numbers and tensors convert as for arguments."""
        fitted = self.converted(value, wanted, s, implicit=True)
        if fitted is None:
            raise self.error(
                f"Return value was annotated as having type {wanted.annotation()} but is actually of type "
                f"{value.type.annotation()}",
                s,
            )
        return fitted

    def leave_function(self, value: Value, s: ast.AST) -> None:
        yes = self.constant(True, T.BOOL, s)
        self.scope.update({"@result": value, **dict.fromkeys(FLAGS, yes)})

    def break_(self, s: ast.stmt) -> bool:
        if not self.loop_depth:
            raise self.error(f"'{type(s).__name__.lower()}' outside of a loop, or in one that is unrolled", s)
        yes = self.constant(True, T.BOOL, s)
        self.scope["@skip"] = yes
        if isinstance(s, ast.Break):
            self.scope["@stop"] = yes
        return True

    def raise_(self, s: ast.Raise) -> bool:
        if s.exc is None:
            raise self.error("'raise' needs an exception", s)
        exc = s.exc
        arguments: list[ast.expr] = []
        callee = exc
        if isinstance(exc, ast.Call):
            callee, arguments = exc.func, exc.args
        name = self.exception_name(callee, s)
        values = [self.expression(a) for a in arguments]
        if len(values) > 1:
            values = [self.value_of("prim::TupleConstruct", values, T.TupleType(tuple(v.type for v in values)), s)]
        if not values:
            message = self.constant("", T.STR, s)
        else:
            message = values[0] if values[0].type == T.STR else self.cast("str", values[0], s)
        self.emit("prim::RaiseException", (message, self.constant(name, T.STR, s)), s)
        return True

    def assert_(self, s: ast.Assert) -> bool:
        c = self.condition_of(s.test)
        if c.known:
            return False

        def fails() -> bool:
            self.refine(c.no, s)
            text = self.constant("AssertionError: ", T.STR, s)
            if s.msg is not None:
                message = self.expression(s.msg)
                message = message if message.type == T.STR else self.cast("str", message, s)
                if message.is_constant:
                    text = self.constant(f"AssertionError: {message.constant()}", T.STR, s)
                else:
                    text = self.call_value("aten::add", [text, message], s)
            self.emit("prim::RaiseException", (text,), s)
            return True

        if c.value is None:
            return fails()
        self.fork_flow(c.value, lambda: False, fails, s)
        self.refine(c.yes, s)
        return False

    # --------------------------------------------------------------------------------------------------- with

    def with_statement(self, s: ast.With) -> bool:
        entered: list[Value] = []
        for item in s.items:
            manager = self.expression(item.context_expr)
            if not isinstance(manager.type, T.ClassType):
                raise self.error(f"With item expression must return an object; found {manager.type.annotation()}", s)
            for name, count in (("__enter__", 1), ("__exit__", 4)):
                if name not in self.method_names(manager.type):
                    raise self.error(f"Object returned by with item expression does not define {name}", s)
                method = self.resolver.method(manager.type, name, lambda text: self.error(text, s))
                if len(method.schema.arguments) != count:
                    raise self.error(f"{name} must have {count} arguments, self among them", s)
            returned = manager.type.methods["__enter__"].schema.returns[0].type
            value = self.value_of("prim::Enter", (manager,), returned, s)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, s)
            entered.append(manager)
        left = self.statements(s.body)
        for manager in reversed(entered):
            assert isinstance(manager.type, T.ClassType)
            self.value_of("prim::Exit", (manager,), manager.type.methods["__exit__"].schema.returns[0].type, s)
        return left

    # --------------------------------------------------------------------------------------------------- others

    def expression_statement(self, s: ast.Expr) -> bool:
        if not (isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)):
            self.meaning(s.value, None)
        return False

    def delete(self, s: ast.Delete) -> bool:
        for target in s.targets:
            if isinstance(target, ast.Name):
                if target.id not in self.scope:
                    raise self.error(f"undefined value {target.id}", target)
                del self.scope[target.id]
                continue
            if not isinstance(target, ast.Subscript):
                raise self.error("'del' takes names and elements of lists and dicts", s)
            owner = self.expression(target.value)
            if isinstance(target.slice, ast.Slice):
                raise self.error("del of a slice is not part of TorchScript", s)
            key = self.expression(target.slice)
            if self.has_method(owner, "__delitem__"):
                self.call_named(owner, "__delitem__", [key], s)
            else:
                self.call_operator("aten::Delete", [owner, key], {}, s)
        return False

    def finish(self) -> None:
        """Drop what nobody reads: results of ifs, and what conditions said about types in vain."""
        prune(self.graph)
        for node in reversed(list(self.graph.all_nodes())):
            if node.kind == "prim::unchecked_cast" and not node.output.uses:
                node.destroy()


_STATEMENTS: dict[type, Callable[[ScriptEmitter, Any], bool | None]] = {
    ast.Assign: ScriptEmitter.assign_statement, ast.AnnAssign: ScriptEmitter.annotated_statement,
    ast.AugAssign: ScriptEmitter.augmented_statement, ast.Expr: ScriptEmitter.expression_statement,
    ast.For: ScriptEmitter.for_statement, ast.While: ScriptEmitter.while_statement,
    ast.With: ScriptEmitter.with_statement, ast.Return: ScriptEmitter.return_, ast.Raise: ScriptEmitter.raise_,
    ast.Assert: ScriptEmitter.assert_, ast.Break: ScriptEmitter.break_, ast.Continue: ScriptEmitter.break_,
    ast.Pass: lambda emitter, s: False, ast.Delete: ScriptEmitter.delete,
}  # fmt: skip
