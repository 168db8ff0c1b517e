"""Python classes as types of scripted code: plain classes, NamedTuples, Enums, dataclasses, interfaces."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gpujit.frontend import script_contexts
from gpujit.frontend.markers import declared_overloads
from gpujit.frontend.python_names import TorchPath, torch_path
from gpujit.frontend.python_source import Names, is_module_class, parse_definition, signatures_in_source
from gpujit.frontend.script_resolver import ScriptResolver
from gpujit.frontend.script_types import TypeReader
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.support.errors import SourceError

if TYPE_CHECKING:
    from gpujit.frontend.script import Compiler

Where = Callable[[str], SourceError]
_REFUSED_BASES = "TorchScript classes does not support inheritance yet. Please directly inherit from 'object'."


@dataclasses.dataclass(slots=True)
class ClassInfo:
    """What is known about a class besides its type."""

    python: type
    # Functions of the class by the name of their method.
    functions: dict[str, Any]
    statics: dict[str, Any]
    annotations: dict[str, Any]
    # Whether __init__ is being compiled: assignments there declare attributes.
    defining: bool = False
    fields: dict[str, T.Type] = dataclasses.field(default_factory=dict)


class Classes:
    """The types of Python classes met so far."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.types: dict[type, T.Type] = {}
        self.infos: dict[T.Type, ClassInfo] = {}
        self.defaults: dict[str | None, dict[str, Any]] = {}
        self.broken: dict[type, SourceError] = {}

    def type_of_class(self, cls: type, quiet: bool = False) -> T.Type | None:
        """The type of a Python class; None for one that is none of the language's (int, a Module).

        Raises SourceError for a class that does not compile; with ``quiet`` None for what is no candidate.
        """
        if cls in self.types:
            return self.types[cls]
        if cls.__module__ == "builtins" or issubclass(cls, BaseException):
            return None
        made = getattr(cls, "_gpujit_type", None)
        if isinstance(made, T.Type):
            return made
        if issubclass(cls, enum.Enum):
            return self.enum_type(cls)
        if issubclass(cls, tuple):
            return self.named_tuple(cls) if hasattr(cls, "_fields") else None
        if is_interface(cls):
            return self.interface(cls)
        path = torch_path(cls)
        substitute = self.substitute(cls)
        if substitute is not None:
            return self.type_of_class(substitute)
        if is_module_class(cls) or (path is not None and not getattr(cls, "_gpujit_script", False)):
            return None
        if cls.__module__.split(".")[0] in ("numpy", "typing", "collections"):
            return None
        return self.plain_class(cls)

    def type_of_path(self, path: TorchPath) -> T.Type | None:
        """The type of a class of torch that is known without torch (``torch.no_grad``)."""
        cls = script_contexts.BY_PATH.get(repr(path).removeprefix("torch."))
        return None if cls is None else self.type_of_class(cls)

    def substitute(self, cls: type) -> type | None:
        """The class that stands for one of torch's context managers."""
        path = torch_path(cls)
        return None if path is None else script_contexts.BY_PATH.get(path)

    # ------------------------------------------------------------------------------------------ simple kinds

    def enum_type(self, cls: type[enum.Enum]) -> T.Type:
        members = {m.name: m.value for m in cls}
        kinds = {type(v) for v in members.values()}
        names = {int: T.INT, float: T.FLOAT, str: T.STR}
        if len(kinds) != 1 or next(iter(kinds)) not in names:
            raise SourceError(
                f"Enum class '{cls.__name__}' cannot be scripted: its values must be all int, all float or all str, "
                f"found {sorted(k.__name__ for k in kinds)}"
            )
        result = T.EnumType(self.compiler.qualified(cls), names[kinds.pop()], members)
        self.types[cls] = result
        return result

    def named_tuple(self, cls: Any) -> T.Type:
        annotations = getattr(cls, "__annotations__", {})
        reader = self.reader(cls)
        at = ast.Pass()
        at.lineno, at.col_offset, at.end_lineno, at.end_col_offset = 1, 0, 1, 1
        fields = [reader.of_object(annotations[f], at) if f in annotations else T.TENSOR for f in cls._fields]
        result = T.TupleType(tuple(fields), self.compiler.qualified(cls), tuple(cls._fields))
        self.types[cls] = result
        self.defaults[result.name] = dict(getattr(cls, "_field_defaults", {}))
        return result

    def named_tuple_schema(self, t: T.TupleType) -> Schema:
        """The signature of a NamedTuple's constructor."""
        assert t.fields is not None and t.name is not None
        defaults = self.defaults.get(t.name, {})
        arguments = tuple(
            Argument(f, e, str(e), defaults.get(f), f in defaults) for f, e in zip(t.fields, t.elements, strict=True)
        )
        return Schema(t.name, "", arguments, (Argument("", t, str(t)),))

    def interface(self, cls: type) -> T.Type:
        is_module = is_module_class(cls)
        result = T.InterfaceType(self.compiler.qualified(cls), is_module=is_module)
        self.types[cls] = result
        for name, fn in vars(cls).items():
            if isinstance(fn, types.FunctionType) and not (name.startswith("__") and name != "__call__"):
                full = f"{result.name}.{name}"
                whole = self.compiler.make(fn, full, result)
                declared = Function(full, _declared(whole, fn), None, whole.source)
                result.methods[name] = declared
        return result

    def reader(self, cls: type) -> Any:
        """Reads the annotations of a class in the names its module has."""
        module = sys.modules.get(cls.__module__)
        scopes = [vars(builtins)] if module is None else [vars(module), vars(builtins)]
        local = getattr(cls, "_gpujit_names", None)
        names = Names(*([local] if local is not None else []), {cls.__name__: cls}, *scopes)
        for fn in vars(cls).values():
            if isinstance(fn, types.FunctionType):
                names = Names({cls.__name__: cls}, fn.__globals__, *scopes)
                break

        def error(message: str, node: ast.AST) -> SourceError:
            return SourceError(f"{message} (in class {cls.__qualname__})")

        return TypeReader(names.__getitem__, self.type_of_class, error)

    # ------------------------------------------------------------------------------------------ plain classes

    def plain_class(self, cls: type) -> T.Type:
        if cls in self.broken:
            raise self.broken[cls]
        if len([b for b in cls.__mro__ if b.__module__ != "typing"]) > 2:
            raise SourceError(f"class {cls.__name__}: {_REFUSED_BASES}")
        result = T.ClassType(self.compiler.qualified(cls))
        self.types[cls] = result
        functions: dict[str, Any] = {}
        statics: dict[str, Any] = {}
        generated = _dataclass_methods(cls) if dataclasses.is_dataclass(cls) else {}
        for name, member in vars(cls).items():
            if isinstance(member, types.FunctionType):
                if name in generated or (dataclasses.is_dataclass(cls) and name in ("__repr__", "__replace__")):
                    continue
                functions[name] = member
            elif isinstance(member, staticmethod):
                statics[name] = member.__func__
            elif isinstance(member, classmethod):
                statics[name] = member
            elif isinstance(member, property):
                if member.fget is not None:
                    functions[f"__{name}_getter"] = member.fget
                if member.fset is not None:
                    functions[f"__{name}_setter"] = member.fset
        functions.update(generated)
        info = ClassInfo(cls, functions, statics, dict(getattr(cls, "__annotations__", {})))
        self.infos[result] = info
        try:
            self.define_attributes(result, info)
            # Known by name from now on: whether a class fits an interface is asked of its type.
            for name in functions:
                if name not in result.methods:
                    self.make_method(result, name, SourceError)
        except SourceError as e:
            del self.types[cls]
            self.broken[cls] = e
            raise
        return result

    def define_attributes(self, t: T.ClassType, info: ClassInfo) -> None:
        """Compile ``__init__``, whose assignments say which attributes there are."""
        if "__init__" not in info.functions:
            return
        info.defining = True
        try:
            method = self.make_method(t, "__init__", SourceError)
            assert method is not None
            self.compiler.compile(method)
        finally:
            info.defining = False

    def method_names(self, t: T.Type) -> Iterable[str]:
        info = self.infos.get(t)
        if info is not None:
            return info.functions
        return self.compiler.modules.method_names(t)

    def make_method(self, t: Any, name: str, where: Where) -> Function | None:
        """The method of a class, made and entered into its type; not compiled yet."""
        info = self.infos.get(t)
        if info is None:
            return self.compiler.modules.make_method(t, name, where)
        found = info.functions.get(name)
        if found is None:
            return None
        full = f"{t.name}.{name}"
        if isinstance(found, _Generated):
            function = found.make(self.compiler, full, t, info)
        else:
            function = self.compiler.make(found, full, t)
        t.methods[name] = function
        return function

    def static_method(self, t: T.ClassType, name: str) -> Function | None:
        info = self.infos.get(t)
        fn = None if info is None else info.statics.get(name)
        if fn is None:
            return None
        if isinstance(fn, classmethod):
            raise SourceError(f"{t.name}.{name}: classmethods are not part of TorchScript; use a staticmethod")
        return self.compiler.compile(self.compiler.function(fn))

    def declared_attribute(self, t: T.ClassType, name: str) -> T.Type | None:
        """The type a class body declares for an attribute."""
        info = self.infos.get(t)
        if info is None or name not in info.annotations:
            return None
        if name not in info.fields:
            at = ast.Pass()
            at.lineno, at.col_offset, at.end_lineno, at.end_col_offset = 1, 0, 1, 1
            info.fields[name] = self.reader(info.python).of_object(info.annotations[name], at)
        return info.fields[name]

    def ensure_attribute(self, t: T.ClassType, name: str, value: Value, function: str, where: Where) -> None:
        """Declare an attribute that ``__init__`` assigns for the first time."""
        info = self.infos.get(t)
        if info is None or name in t.attributes or not info.defining or function != f"{t.name}.__init__":
            return
        if f"__{name}_setter" in info.functions:
            return
        if name in info.functions:
            raise where(f"attribute {name!r} has the name of a method")
        t.add_attribute(name, self.declared_attribute(t, name) or value.type)

    def overloads_of(self, fn: Any) -> list[Function]:
        """Functions for the signatures declared with ``_overload``; empty when there are none."""
        declared: list[Any] = declared_overloads(fn)
        internal: Any = sys.modules.get("torch._jit_internal")
        if not declared and internal is not None:
            declared = list(internal._get_fn_overloads(_torch_qualified(fn)) or ())
            # Torch forgets signatures once it has scripted a function, and keeps that it did.
            if not declared and fn in sys.modules["torch.jit._state"]._jit_function_overload_caching:
                declared = signatures_in_source(fn)
        found: list[Function] = []
        for i, signature in enumerate(declared):
            key = (fn, i)
            known = self.compiler.functions.get(key)
            if known is None:
                known = self.compiler.modules.overload(fn, signature, f"{self.compiler.qualified(fn)}__{i}", None)
                self.compiler.functions[key] = known
            found.append(known)
        return found


def _torch_qualified(fn: Any) -> str:
    return f"__torch__.{fn.__module__}.{fn.__name__}" if fn.__module__ != "__main__" else f"__torch__.{fn.__name__}"


def _declared(whole: Function, fn: Any) -> Callable[[], Schema]:
    """The signature of an interface's method: what is annotated, without looking at its body."""

    def signature() -> Schema:
        if "return" not in getattr(fn, "__annotations__", {}):
            whole._graph = None
        return whole.schema

    return signature


def is_interface(cls: type) -> bool:
    """Whether a class was declared with ``interface``."""
    return "__torch_script_interface__" in vars(cls) or bool(vars(cls).get("_gpujit_interface"))


@dataclasses.dataclass(slots=True)
class _Generated:
    """A method that a dataclass has without writing it."""

    text: str
    names: dict[str, Any]

    def make(self, compiler: Compiler, full: str, t: T.ClassType, info: ClassInfo) -> Function:
        source, tree = parse_definition(self.text, f"<dataclass {info.python.__name__}>", 1)
        node = tree.body[0]
        assert isinstance(node, ast.FunctionDef)
        reader = compiler.classes.reader(info.python)
        names = Names(self.names, _Lazy(reader.find))
        resolver = ScriptResolver(compiler, names, source, full)
        return compiler.define(full, source, node, resolver, t, self.names)


class _Lazy(dict[str, Any]):
    def __init__(self, find: Callable[[str], Any]) -> None:
        self.find = find

    def __contains__(self, name: object) -> bool:
        try:
            self.find(str(name))
        except KeyError:
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        return self.find(name)


def _dataclass_methods(cls: type) -> dict[str, Any]:
    """``__init__`` and comparisons of a dataclass as source text."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_self_type": cls}
    parts, lines = [], []
    for f in fields:
        if f.kw_only or f.default_factory is not dataclasses.MISSING:
            raise SourceError(
                f"dataclass {cls.__name__}, field {f.name!r}: keyword-only fields and default factories are not part "
                "of TorchScript; give the value when the object is made"
            )
        names[f"_type_{f.name}"] = f.type
        default = ""
        if f.default is not dataclasses.MISSING:
            names[f.name] = f.default
            default = " = _default"
        if f.init:
            parts.append(f"{f.name}: _type_{f.name}{default}")
            lines.append(f"    self.{f.name} = {f.name}")
    if "__post_init__" in vars(cls):
        lines.append("    self.__post_init__()")
    params: Any = cls.__dataclass_params__  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    if params.init:
        text = f"def __init__(self, {', '.join(parts)}) -> None:\n" + "\n".join(lines or ["    pass"]) + "\n"
        found["__init__"] = _Generated(text, names)
    if params.eq:
        both = " and ".join(f"self.{f.name} == other.{f.name}" for f in fields if f.compare) or "True"
        found["__eq__"] = _Generated(f"def __eq__(self, other: _self_type) -> bool:\n    return {both}\n", names)
        found["__ne__"] = _Generated(
            "def __ne__(self, other: _self_type) -> bool:\n    return not self == other\n", names
        )
    if params.order:
        for method, op, equal in (("__lt__", "<", "False"), ("__le__", "<", "True"), ("__gt__", ">", "False"),
                                  ("__ge__", ">", "True")):  # fmt: skip
            steps = "".join(
                f"    if self.{f.name} != other.{f.name}:\n        return self.{f.name} {op} other.{f.name}\n"
                for f in fields
                if f.compare
            )
            text = f"def {method}(self, other: _self_type) -> bool:\n{steps}    return {equal}\n"
            found[method] = _Generated(text, names)
    return found
