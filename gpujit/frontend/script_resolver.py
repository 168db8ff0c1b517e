"""What names mean in live Python code: the resolver that the emitter of scripted functions asks."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gpujit.frontend import python_names as names_
from gpujit.frontend.lang import FunctionRef, Inline, OperatorName, PythonValue, TypeRef, fail
from gpujit.frontend.python_source import is_module_class, modifier, python_function
from gpujit.frontend.script_types import TypeReader
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.ir.source import Source
from gpujit.ir.values import EnumValue, is_int64
from gpujit.support.errors import SourceError

if TYPE_CHECKING:
    from gpujit.frontend.script import Compiler

Where = Callable[[str], SourceError]


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
        try:
            value = getattr(obj, name)
        except AttributeError as e:
            owner = getattr(obj, "__name__", None) or repr(obj)[:60]
            # That of gpujit says what to use instead.
            text = str(e) if owner == "gpujit" else f"module or object '{owner}' has no attribute '{name}'"
            raise emitter.error(text, node) from None
        if inspect.isclass(obj) and is_module_class(obj) and inspect.isfunction(inspect.getattr_static(obj, name)):
            raise emitter.error(
                f"{obj.__name__}.{name} is not supported: methods are called through an object. If the class of 'self' "
                "defines it again, give the method of the base class another name",
                node,
            )
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
        path = names_.torch_path(obj)
        if path is not None and path.startswith("distributed"):
            raise error(names_.why_not(obj))
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
        raise error(names_.why_not(obj))

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
        """A call of a function declared with overloads: the first whose signature fits, as it is before with values
        converted."""
        reasons: dict[Function, str] = {}
        for convert in (False, True):
            for function in overloads:
                try:
                    return emitter.function_call(FunctionRef(function), call, (convert,))
                except SourceError as e:
                    reasons[function] = e.message
        lines = "\n".join(reasons.values())
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
