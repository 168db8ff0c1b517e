"""Live Python functions and source text to functions of the IR: the entry of scripting, and where names lead.

One Compiler serves the whole process: a function scripted twice is one function, and a class is one type.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpujit.frontend import python_names as names_
from gpujit.frontend.lang import (
    FunctionRef,
    Inline,
    Namespace,
    OperatorName,
    PythonValue,
    TypeRef,
    fail,
    parse_python,
    range_of,
)
from gpujit.frontend.literals import NOT_LITERAL, literal
from gpujit.frontend.script_classes import Classes
from gpujit.frontend.script_module import Modules
from gpujit.frontend.script_statements import ScriptEmitter
from gpujit.frontend.script_types import TypeReader
from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.source import Source
from gpujit.ir.values import EnumValue, is_int64
from gpujit.ops import table
from gpujit.ops.calls import PREFIXES
from gpujit.support.errors import SourceError

Where = Callable[[str], SourceError]
_MODIFIER = "_torchscript_modifier"
# Functions that are not compiled: Python runs them, or calling them raises.
_OUTSIDE = ("unused", "ignore", "drop")


class Names(Mapping[str, Any]):
    """The names a Python function sees: its closure, its module's globals, Python's builtins."""

    def __init__(self, *scopes: Mapping[str, Any]) -> None:
        self.scopes = scopes

    def __getitem__(self, name: str) -> Any:
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter({n for s in self.scopes for n in s})

    def __len__(self) -> int:
        return len(set(self))


def names_of(fn: types.FunctionType) -> Names:
    """The names a function sees. Free variables that have no value yet are left out."""
    free: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            free[name] = cell.cell_contents
        except ValueError:
            continue
    return Names(free, fn.__globals__, vars(builtins))


def modifier(fn: Any) -> str:
    """What a decorator said about a function: ``export``, ``ignore``, ``unused``, or ``""``."""
    text = getattr(fn, _MODIFIER, "")
    return str(text).split(" ")[0].strip("_") if isinstance(text, str) else ""


def parse_definition(text: str, name: str, first_line: int) -> tuple[Source, ast.Module]:
    """The source and syntax tree of Python text. Raises SourceError that shows the line when it does not parse."""
    source = Source(name, textwrap.dedent(text), first_line=first_line)
    try:
        try:
            tree = parse_python(source.text, type_comments=True)
        except SyntaxError:
            # A comment that only looks like a type.
            tree = parse_python(source.text)
    except SyntaxError as e:
        at = ast.Pass()
        at.lineno, at.col_offset = e.lineno or 1, max((e.offset or 1) - 1, 0)
        at.end_lineno, at.end_col_offset = at.lineno, at.col_offset + 1
        raise fail(f"this is no Python source: {e.msg}", source, at) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise SourceError(f"source of {name} cannot be parsed: {e}") from None
    return source, tree


def python_source(obj: Any) -> tuple[Source, ast.FunctionDef | ast.ClassDef]:
    """Source and syntax of a live function or class. Raises SourceError when its source is not to be had."""
    try:
        lines, first = inspect.getsourcelines(obj)
        filename = inspect.getsourcefile(obj) or "<unknown>"
    except (OSError, TypeError):
        raise SourceError(
            f"Can't get source for {obj!r}. TorchScript requires source access in order to carry out compilation; "
            "put the function in a file, or give its text to gpujit.CompilationUnit"
        ) from None
    source, tree = parse_definition("".join(lines), filename, first)
    found = tree.body[0] if tree.body else None
    if not isinstance(found, (ast.FunctionDef, ast.ClassDef)):
        raise SourceError(
            f"{getattr(obj, '__name__', obj)} is no function written with 'def'; lambdas and async functions are not "
            f'part of TorchScript\n  File "{filename}", line {first}'
        )
    return source, found


def python_function(obj: Any) -> Any:
    """The Python function behind a bound method or a function that torch scripted; anything else as it is."""
    if isinstance(obj, types.MethodType):
        return obj.__func__
    inner = getattr(obj, "_torchdynamo_inline", None)
    return inner if type(obj).__name__ == "ScriptFunction" and isinstance(inner, types.FunctionType) else obj


class Compiler:
    """Compiles functions, classes and modules; remembers what it compiled."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.overloads: dict[Any, Any] = {}
        self.functions: dict[Any, Function] = {}
        self.mine: dict[Function, None] = {}
        self.running: list[Function] = []
        self.taken: dict[str, int] = {}
        self.classes = Classes(self)
        self.modules = Modules(self)
        # Python overloads declared with ``_overload``, by qualified name.
        self.default_names = Names(names_.DEFAULT_NAMES)

    # ---------------------------------------------------------------------------------------------- names

    def qualified(self, obj: Any) -> str:
        """A name for a Python object under ``__torch__`` that nothing else has."""
        module = getattr(obj, "__module__", None) or ""
        module = "" if module == "__main__" else f".{module}"
        name = re.sub(r"\W", "_", getattr(obj, "__name__", type(obj).__name__))
        return self.unique(f"__torch__{module}", name)

    def unique(self, prefix: str, name: str) -> str:
        """``prefix.name``, or a mangled form of it when that is taken."""
        full = f"{prefix}.{name}"
        count = self.taken.get(full, 0)
        self.taken[full] = count + 1
        return full if count == 0 else f"{prefix}.___torch_mangle_{count - 1}.{name}"

    # ------------------------------------------------------------------------------------------- functions

    def function(self, fn: Any) -> Function:
        """The Function of a Python function; not compiled yet. Raises SourceError when there is no source."""
        fn = inspect.unwrap(fn) if not isinstance(fn, types.FunctionType) else fn
        known = self.functions.get(fn)
        if known is None:
            known = self.make(fn, self.qualified(fn), None)
            self.functions[fn] = known
        return known

    def make(self, fn: types.FunctionType, name: str, self_type: T.Type | None) -> Function:
        """A Function for a Python function or method, under a given name."""
        source, node = python_source(fn)
        if not isinstance(node, ast.FunctionDef):
            raise SourceError(f"{name} is no function")
        defaults = {}
        code = fn.__code__
        positional = code.co_varnames[: code.co_argcount]
        for argument, value in zip(reversed(positional), reversed(fn.__defaults__ or ()), strict=False):
            defaults[argument] = value
        defaults.update(fn.__kwdefaults__ or {})
        resolver = ScriptResolver(self, names_of(fn), source, name)
        return self.define(name, source, node, resolver, self_type, defaults, modifier(fn), fn)

    def define(
        self, name: str, source: Source, node: ast.FunctionDef, resolver: ScriptResolver, self_type: T.Type | None,
        defaults: dict[str, Any] | None, kind: str = "", python: Any = None,
    ) -> Function:  # fmt: skip
        """A Function for a definition's syntax.

        Args:
            defaults: the values of default arguments; None when they are written in the syntax only.
            kind: ``ignore`` for a function that Python runs, ``unused`` for one that raises when called.
        """
        body = _Definition(self, name, source, node, resolver, self_type, defaults, kind, python)
        function = Function(name, body.signature, body.graph, source=range_of(source, node))
        body.function = function
        self.mine[function] = None
        return function

    def compile(self, function: Function, where: Where | None = None) -> Function:
        """Compile a function now. Raises SourceError with the place of the fault and of the call, ``where``."""
        if function not in self.mine or function._graph is not None or not function.has_body:
            return function
        if function in self.running:
            text = (
                f"function '{function.short_name}' is called recursively. Recursive calls are not supported; "
                "write a loop"
            )
            raise where(text) if where is not None else SourceError(text)
        self.running.append(function)
        try:
            function.graph  # noqa: B018  # made when first asked for
        except SourceError as e:
            if where is not None:
                call = where("")
                e.where += f"\n'{function.short_name}' is being compiled since it was called from here\n{call.where}"
            raise
        finally:
            self.running.pop()
        return function

    def text_functions(
        self, text: str, name: str = "<string>", self_type: T.ClassType | None = None, prefix: str = "__torch__",
        names: Mapping[str, Any] | None = None,
    ) -> dict[str, Function]:  # fmt: skip
        """The functions that source text defines, by name; methods of ``self_type`` when one is given.

        Raises SourceError for anything but function definitions, and for what does not compile.
        """
        source, tree = parse_definition(text, name, 1)
        found: dict[str, Function] = {}
        inner: dict[str, Any] = {}
        scope = Names(inner, *([names] if names is not None else []), names_.DEFAULT_NAMES)
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                raise fail(f"'{type(node).__name__}' is not expected here; only functions are defined", source, node)
            if node.name in found:
                raise fail(f"{node.name!r} is defined twice", source, node)
            full = f"{self_type.name}.{node.name}" if self_type is not None else f"{prefix}.{node.name}"
            resolver = ScriptResolver(self, scope, source, full)
            function = self.define(full, source, node, resolver, self_type, None)
            found[node.name] = function
            if self_type is None:
                inner[node.name] = function
            else:
                self_type.methods[node.name] = function
        try:
            for function in found.values():
                self.compile(function)
        except SourceError:
            if self_type is not None:
                for key in found:
                    self_type.methods.pop(key, None)
            raise
        return found


def _broadcast(annotation: ast.expr | None) -> int | None:
    """N of an argument declared as ``BroadcastingListN[int]``, for which one number stands for N."""
    while isinstance(annotation, ast.Subscript):
        name = ast.unparse(annotation.value).rpartition(".")[2]
        if name.startswith("BroadcastingList"):
            return int(name.removeprefix("BroadcastingList") or 1)
        annotation = annotation.slice
    return None


class _Definition:
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


class ScriptResolver:
    """What names mean in one scripted function. See emit_base.Resolver for what emitters ask."""

    file = ""
    version: int | None = None
    map_device: Any = None

    def __init__(self, compiler: Compiler, names: Mapping[str, Any], source: Source, function: str) -> None:
        self.compiler = compiler
        self.names = names
        self.source = source
        self.function = function
        self.overloads = compiler.overloads
        self.types = TypeReader(
            self.names.__getitem__, compiler.classes.type_of_class,
            lambda message, node: fail(message, source, node, "", function),
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- names

    def lookup(self, name: str) -> Any:
        """What a global or free name means; None when there is none."""
        try:
            obj = self.names[name]
        except KeyError:
            return None
        return self.meaning(obj)

    def meaning(self, obj: Any) -> Any:
        """What a Python object means: a reference, or a PythonValue when it needs a place to mean something."""
        if isinstance(obj, Function):
            return FunctionRef(obj)
        inner = getattr(obj, "_gpujit_function", None)
        if isinstance(inner, Function):
            return FunctionRef(inner)
        found = names_.meaning_of(obj)
        if isinstance(found, PythonValue) and inspect.isclass(obj) and not issubclass(obj, BaseException):
            t = self.compiler.classes.type_of_class(obj, quiet=True)
            if t is not None:
                return TypeRef(t)
        if (isinstance(found, int) and not isinstance(found, bool)) or isinstance(found, float):
            return PythonValue(found)
        return found

    def value_of_object(self, emitter: Any, obj: Any, node: ast.AST) -> Value | None:
        """An object as a constant; None when it cannot be one."""
        if names_.is_enum_member(obj):
            t = self.compiler.classes.type_of_class(type(obj))
            assert isinstance(t, T.EnumType)
            value: Value = emitter.constant(EnumValue(t, obj.name, t.members[obj.name]), t, node)
            return value
        found = names_.constant_of(obj)
        if found is None:
            return None
        if isinstance(obj, int) and not isinstance(obj, bool) and not is_int64(obj):
            raise emitter.error("an integer constant is outside 64 bits", node)
        result: Value = emitter.constant_of_type(*found, node)
        return result

    def why_no_value(self, obj: Any) -> str:
        kind = type(obj).__name__
        if isinstance(obj, (list, dict, set)):
            return (
                f"python value of type '{kind}' cannot be used as a value. Perhaps it is a closed over global "
                "variable? If so, please consider passing it in as an argument or use a local variable instead."
            )
        if isinstance(obj, types.FunctionType):
            return f"function '{obj.__name__}' is not called; functions are no values in TorchScript"
        name = getattr(obj, "__name__", None) or repr(obj)[:60]
        return f"python value {name!r} of type '{kind}' cannot be used as a value"

    def python_attribute(self, emitter: Any, obj: Any, name: str, node: ast.AST) -> Any:
        """What ``obj.name`` means for a live object."""
        if names_.is_gpujit_ops(obj):
            found = names_.torch_meaning(name, names_.TorchPath(name))
            if name in PREFIXES:
                return PythonValue(names_.TorchPath(name))
            if found is None and any(op.name.startswith(f"{name}::") for op in table.registered()):
                return Namespace(name)
            if found is not None:
                return PythonValue(found) if isinstance(found, (int, float)) else found
            raise emitter.error(f"gpujit.ops has no operator {name!r}", node)
        try:
            value = getattr(obj, name)
        except AttributeError:
            owner = getattr(obj, "__name__", None) or repr(obj)[:60]
            raise emitter.error(f"module or object '{owner}' has no attribute '{name}'", node) from None
        if isinstance(value, types.BuiltinFunctionType) and (path := names_.torch_path(obj)) is not None:
            found = names_.torch_meaning(f"{path}.{name}".lstrip("."), value)
            if found is not None:
                return found
        return self.meaning(value)

    def callable_meaning(self, emitter: Any, obj: Any, node: ast.Call) -> Any:
        """What a live object that is called stands for. Raises SourceError when it cannot be compiled."""
        error = partial(emitter.error, node=node)
        dispatched = _boolean_dispatch(obj)
        if dispatched is not None:
            return Inline(lambda call: self.dispatch(emitter, dispatched, call))
        packet = getattr(obj, "_qualified_op_name", None)
        if isinstance(packet, str):
            return OperatorName(packet)
        obj = python_function(obj)
        if isinstance(obj, types.FunctionType):
            if modifier(obj) == "script_if_tracing" or hasattr(obj, "__original_fn"):
                obj = getattr(obj, "__original_fn", obj)
            wrapped = getattr(obj, "__wrapped__", None)
            if isinstance(wrapped, types.FunctionType) and getattr(obj, "__script_if_tracing_wrapper", False):
                obj = wrapped
            overloads = self.compiler.classes.overloads_of(obj)
            if overloads:
                return Inline(lambda call: self.overloaded(emitter, overloads, call))
            try:
                return FunctionRef(self.compiler.function(obj))
            except SourceError as e:
                raise error(e.message) from None
        if inspect.isclass(obj):
            substitute = self.compiler.classes.substitute(obj)
            t = self.compiler.classes.type_of_class(substitute or obj)
            if t is not None:
                return TypeRef(t)
        if isinstance(obj, names_.TorchPath):
            t = self.compiler.classes.type_of_path(obj)
            if t is not None:
                return TypeRef(t)
        if callable(obj) and not inspect.isclass(obj):
            if isinstance(inspect.getattr_static(type(obj), "__call__", None), types.FunctionType):
                raise error(
                    f"Python objects of class '{type(obj).__name__}' cannot be called; script the class, and make the "
                    "object inside"
                )
        name = getattr(obj, "__name__", None) or repr(obj)[:60]
        raise error(f"Python builtin or object {name!r} is not supported in TorchScript")

    def dispatch(self, emitter: Any, dispatched: dict[str, Any], call: ast.Call) -> Any:
        """A torch function that is one of two, as a constant argument says."""
        chosen: Any = None
        for k in call.keywords:
            if k.arg == dispatched["arg_name"]:
                chosen = k.value
        if chosen is None and len(call.args) > dispatched["index"]:
            chosen = call.args[dispatched["index"]]
        flag = dispatched["default"]
        if chosen is not None:
            value = emitter.expression(chosen)
            if not value.is_constant:
                raise emitter.error(f"argument {dispatched['arg_name']!r} must be a constant here", call)
            flag = value.constant()
        function = self.compiler.function(dispatched["if_true" if flag else "if_false"])
        return emitter.function_call(FunctionRef(function), call)

    def overloaded(self, emitter: Any, overloads: list[Function], call: ast.Call) -> Any:
        """A call of a function declared with overloads: the first whose signature fits."""
        reasons: list[SourceError] = []
        for function in overloads:
            try:
                return emitter.function_call(FunctionRef(function), call)
            except SourceError as e:
                reasons.append(e)
        lines = "\n".join(e.message for e in reasons)
        raise emitter.error(f"Arguments for call are not valid. The overloads are:\n{lines}", call)

    def member(self, path: str, name: str, where: Any) -> Any:
        raise where(f"no attribute {name!r} here")

    def constant_named(self, name: str, source: Source, node: ast.AST) -> Any:
        raise fail(f"CONSTANTS.{name} is known in archives only", source, node)

    def annotation(self, node: ast.expr, source: Source, depth: int = 0) -> T.Type:
        return self.types.read(node, depth)

    # ------------------------------------------------------------------------------------- classes and modules

    def compile(self, function: Function, where: Where) -> None:
        self.compiler.compile(function, where)

    def lazy_methods(self, t: T.Type) -> Any:
        return self.compiler.classes.method_names(t)

    def method(self, t: Any, name: str, where: Where) -> Function:
        """An object's method, compiled. Raises what ``where`` makes when there is none."""
        found: Function | None = t.methods.get(name)
        if found is None:
            found = self.compiler.classes.make_method(t, name, where)
        if found is None:
            raise where(self.missing_attribute(t, name))
        return self.compiler.compile(found, where)

    def method_overloads(self, t: Any, name: str) -> list[Function]:
        """The overloads of a module's method; empty when it has none."""
        info = self.compiler.modules.infos.get(t)
        fn = None if info is None else info.functions.get(name)
        return [] if fn is None else self.compiler.modules.overloads_of(t, name, fn)

    def static_method(self, t: T.ClassType, name: str) -> Function | None:
        return self.compiler.classes.static_method(t, name)

    def named_tuple_schema(self, t: T.TupleType) -> Schema:
        return self.compiler.classes.named_tuple_schema(t)

    def declared_attribute(self, t: T.ClassType, name: str) -> T.Type | None:
        return self.compiler.classes.declared_attribute(t, name)

    def ensure_attribute(self, t: T.ClassType, name: str, value: Value, function: str, where: Where) -> None:
        self.compiler.classes.ensure_attribute(t, name, value, function, where)

    def missing_attribute(self, t: Any, name: str) -> str:
        return self.compiler.modules.missing(t, name)

    def container_items(self, emitter: Any, value: Value, node: ast.AST) -> dict[str, Any] | None:
        return self.compiler.modules.items(emitter, value, node)

    def iterates_names(self, t: T.ClassType) -> bool:
        return self.compiler.modules.iterates_names(t)

    def object_member(self, emitter: Any, owner: Value, name: str, node: ast.AST) -> Any:
        return self.compiler.modules.member(self, emitter, owner, name, node)


def _boolean_dispatch(obj: Any) -> dict[str, Any] | None:
    if type(obj).__name__ == "BooleanDispatch":
        return {
            "arg_name": obj.argument, "index": obj.position, "default": obj.default, "if_true": obj.if_true,
            "if_false": obj.if_false,
        }  # fmt: skip
    table: Any = getattr(sys.modules.get("torch._jit_internal"), "boolean_dispatched", None)
    try:
        found: dict[str, Any] | None = None if table is None else table.get(obj)
    except TypeError:
        return None
    return found


COMPILER = Compiler()
