"""One function to be scripted: its syntax, its signature, its graph."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from gpujit.frontend.lang import fail
from gpujit.frontend.literals import NOT_LITERAL, literal
from gpujit.frontend.script_statements import ScriptEmitter
from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.source import Source
from gpujit.support.errors import SourceError

if TYPE_CHECKING:
    from gpujit.frontend.script import Compiler
    from gpujit.frontend.script_resolver import ScriptResolver

# Functions that are not compiled: Python runs them, or calling them raises.
_OUTSIDE = ("unused", "ignore", "drop")


def _broadcast(annotation: ast.expr | None) -> int | None:
    """N of an argument declared as ``BroadcastingListN[int]``, for which one number stands for N."""
    for part in () if annotation is None else ast.walk(annotation):
        if isinstance(part, ast.Subscript):
            name = ast.unparse(part.value).rpartition(".")[2]
            if name.startswith("BroadcastingList"):
                return int(name.removeprefix("BroadcastingList") or 1)
    return None


class Definition:
    """A function's syntax with what compiling it needs."""

    def __init__(
        self, compiler: Compiler, name: str, source: Source, node: ast.FunctionDef, resolver: ScriptResolver,
        self_type: T.Type | None, defaults: dict[str, Any] | None, kind: str, python: Any,
    ) -> None:  # fmt: skip
        self.compiler = compiler
        self.name = name
        self.source = source
        self.node = node
        self.resolver = resolver
        self.self_type = self_type
        self.defaults = defaults
        self.kind = kind
        self.python = python
        self.function: Function | None = None
        self.inferred: T.Type | None = None
        self.read: tuple[Argument, ...] | None = None

    def error(self, message: str, node: ast.AST) -> SourceError:
        return fail(message, self.source, node, "", self.name)

    def comment(self) -> tuple[list[T.Type] | None, T.Type] | None:
        """Argument and result types of a ``# type: (int, Tensor) -> Tensor`` comment."""
        text = self.node.type_comment
        if not text:
            return None
        try:
            tree = ast.parse(text, mode="func_type")
        except SyntaxError:
            raise self.error(f"this type comment does not parse: {text[:100]!r}", self.node) from None
        for part in (*tree.argtypes, tree.returns):
            for inner in ast.walk(part):
                ast.copy_location(inner, self.node)
        read = self.resolver.types.read
        asked = tree.argtypes
        if len(asked) == 1 and isinstance(asked[0], ast.Constant) and asked[0].value is Ellipsis:
            # Each argument has a comment of its own.
            return None, read(tree.returns)
        return [read(a) for a in asked], read(tree.returns)

    def declared(self) -> T.Type | None:
        """The annotated result type; None when it is to be inferred."""
        if self.node.returns is not None:
            return self.resolver.types.read(self.node.returns)
        comment = self.comment()
        return None if comment is None else comment[1]

    def signature(self) -> Schema:
        arguments, returned = self.arguments(), self.result_type()
        return Schema(self.name, "", arguments, (Argument("", returned, str(returned)),))

    def result_type(self) -> T.Type:
        """The result's type: as annotated, else what the body returns."""
        declared = self.declared()
        if declared is not None:
            return declared
        if self.kind in _OUTSIDE:
            return T.TENSOR
        if self.inferred is None:
            assert self.function is not None
            self.compiler.compile(self.function)
        assert self.inferred is not None
        return self.inferred

    def arguments(self) -> tuple[Argument, ...]:
        """The declared arguments. Raises SourceError for kinds of arguments that the language has not."""
        if self.read is None:
            self.read = tuple(self.read_arguments())
        return self.read

    def read_arguments(self) -> list[Argument]:
        node, a = self.node, self.node.args
        if a.vararg or a.kwarg:
            raise self.error(
                "Compiled functions can't take variable number of arguments or use keyword-only arguments with "
                "defaults; write each argument out",
                node,
            )
        if any(d is not None for d in a.kw_defaults):
            raise self.error(
                "Compiled functions can't take variable number of arguments or use keyword-only arguments with "
                "defaults; make the argument an ordinary one, or leave its default away",
                node,
            )
        if a.posonlyargs:
            raise self.error("positional-only arguments are not part of TorchScript; remove the '/'", node)
        if self.self_type is not None and not a.args:
            raise self.error("a method's first argument is its object", node)
        comment = self.comment()
        arguments: list[Argument] = []
        formals = [*a.args, *a.kwonlyargs]
        skip = self.self_type is not None
        commented = None if comment is None else comment[0]
        if commented is not None and len(commented) not in (len(formals) - skip, len(formals)):
            raise self.error(
                f"Number of type annotations for this function ({len(commented)}) does not match the number of "
                f"parameters ({len(formals) - skip})",
                node,
            )
        missing = len(a.args) - len(a.defaults)
        for i, formal in enumerate(formals):
            if i == 0 and self.self_type is not None:
                arguments.append(Argument(formal.arg, self.self_type, str(self.self_type)))
                continue
            if commented is not None:
                type_ = commented[i - (len(formals) - len(commented))]
            elif formal.annotation is not None:
                type_ = self.resolver.types.read(formal.annotation)
            elif formal.type_comment:
                type_ = self.resolver.types.read(self.resolver.types.parse(formal.type_comment, formal))
            else:
                type_ = T.TENSOR
            written = a.defaults[i - missing] if missing <= i < len(a.args) else None
            value, given = None, written is not None
            length = _broadcast(formal.annotation)
            if written is not None:
                value = self.default(formal.arg, written, type_, length)
            arguments.append(Argument(formal.arg, type_, str(type_), value, given, i >= len(a.args), length))
        return arguments

    def default(self, name: str, written: ast.expr, type_: T.Type, length: int | None) -> Any:
        value: Any = literal(written)
        if self.defaults is not None and name in self.defaults:
            value = self.defaults[name]
        elif value is NOT_LITERAL:
            raise self.error(f"the default of {name!r} must be a literal", written)
        if length is not None and isinstance(value, (int, float)):
            value = (value,) * length
        if isinstance(value, (list, dict, set)):
            raise self.error(
                "Mutable default parameters are not supported because Python binds them to the function and they "
                "persist across function calls. As a workaround, make the default None and instantiate the mutable "
                f"parameter within the body of the function. Got {type(value)} on parameter {name}",
                written,
            )
        fitted = self.compiler.modules.constant_value(value, type_)
        if fitted is NotImplemented:
            raise self.error(f'Expected a default value of type {type_.annotation()} on parameter "{name}"', written)
        return fitted

    def graph(self) -> Graph:
        if self.kind in _OUTSIDE:
            return self.outside()
        assert self.function is not None
        declared = self.declared()
        graph = Graph(self.name)
        emitter = ScriptEmitter(graph, graph.block, self.source, self.resolver, self.name)
        seen: set[str] = set()
        for argument in self.arguments():
            if argument.name in seen:
                raise self.error(f"argument {argument.name!r} is given twice", self.node)
            seen.add(argument.name)
            emitter.scope[argument.name] = graph.add_input(argument.type, argument.name)
        try:
            result = emitter.function_body(self.node, declared)
        except RecursionError:
            raise self.error("the function is nested too deeply", self.node) from None
        graph.add_output(result)
        emitter.finish()
        self.inferred = result.type if declared is None else declared
        return graph

    def outside(self) -> Graph:
        """The body of a function that is not compiled: a call into Python, or an exception."""
        assert self.function is not None
        schema = self.function.schema
        graph = Graph(self.name)
        emitter = ScriptEmitter(graph, graph.block, self.source, self.resolver, self.name)
        inputs = [graph.add_input(a.type, a.name) for a in schema.arguments]
        type_ = schema.returns[0].type
        if self.kind == "ignore" and self.python is not None:
            node = emitter.emit("prim::PythonOp", inputs, self.node, {"call": self.python, "name": self.name})
            result = node.add_output(type_)
        else:
            text = "This Python function is annotated to be ignored and cannot be run"
            emitter.emit("prim::RaiseException", (emitter.constant(text, T.STR, self.node),), self.node)
            result = emitter.filler(type_, self.node)
        graph.add_output(result)
        return graph
