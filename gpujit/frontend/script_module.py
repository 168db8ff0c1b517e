"""Live modules as script objects: attributes, constants, submodules and methods of ``nn.Module`` instances.

A module is known by what it has (``_parameters``, ``_buffers``, ``_modules``, ``training``), so that those of PyTorch
and of gpujit are treated alike. Modules of one class whose attributes have the same types share one type.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

from gpujit.frontend import python_names as names_
from gpujit.frontend.lang import FunctionRef, Inline, Items, PythonValue
from gpujit.frontend.markers import declared_overloads
from gpujit.frontend.python_source import modifier, names_of, python_source
from gpujit.frontend.script_draft import (
    WALKERS,
    Draft,
    container_kind,
    functions_of,
    is_parameters,
    is_tensor,
    is_unimplemented,
)
from gpujit.frontend.script_resolver import ScriptResolver
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.values import EnumValue, ScriptObject, is_int64, namedtuple_class
from gpujit.support.errors import SourceError

if TYPE_CHECKING:
    from gpujit.frontend.script import Compiler

Where = Callable[[str], SourceError]
Convert = Callable[[Any, T.Type, str, str], Any]


@dataclasses.dataclass(slots=True)
class ModuleInfo:
    """What is known about a module type besides the type itself; ``example`` is one of its modules."""

    python: type
    example: Any
    functions: dict[str, Any]
    # Function-valued attributes, called by name.
    callables: dict[str, Any]
    # Attributes that have no type, with the reason.
    failed: dict[str, str]
    children: tuple[str, ...]


class Modules:
    """The types of modules met so far."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.infos: dict[T.Type, ModuleInfo] = {}
        self.shared: dict[Any, list[T.ClassType]] = {}

    # --------------------------------------------------------------------------------------------- instances

    def script(self, module: Any, convert: Convert) -> ScriptObject:
        """The script object of a live module, ``forward`` and exported methods compiled.

        Raises SourceError for code that does not compile; attributes without a type fail only where they are used.
        """
        done: dict[int, ScriptObject] = {}
        root: ScriptObject = self.object_of(module, convert, done, ())
        for made in done.values():
            self.compile_entry_points(made.type, made is root)
        return root

    def compile_entry_points(self, t: T.ClassType, is_root: bool) -> None:
        info = self.infos[t]
        for hook in (*t.forward_pre_hooks, *t.forward_hooks):
            self.compiler.compile(t.methods[hook])
        for name, fn in info.functions.items():
            exported = modifier(fn) == "export"
            is_forward = name == "forward" and not modifier(fn) and not is_unimplemented(fn)
            if exported or (is_forward):
                method = t.methods.get(name) or self.make_method(t, name, SourceError)
                if method is not None and (exported or is_root or not self.is_container(info)):
                    self.compiler.compile(method)

    def is_container(self, info: ModuleInfo) -> bool:
        return container_kind(info.python) is not None

    def object_of(self, module: Any, convert: Convert, done: dict[int, ScriptObject], above: tuple[int, ...]) -> Any:
        """The script object of a module; each live module has one."""
        known = done.get(id(module))
        if known is not None:
            return known
        inner = getattr(module, "_object", None)
        if isinstance(inner, ScriptObject):
            return inner
        if id(module) in above:
            raise SourceError(f"module {type(module).__name__} contains itself")
        for access in vars(type(module)).values():
            # Before its submodules, which make no sense without it.
            unsupported = getattr(getattr(access, "fget", None), "__script_unsupported", None)
            if isinstance(unsupported, str):
                raise SourceError(f"{type(module).__name__}: {unsupported}")
        children = {
            n: None if m is None else self.object_of(m, convert, done, (*above, id(module)))
            for n, m in module._modules.items()
        }
        t, values = self.type_of(module, children, convert)
        result = ScriptObject(t, values)
        done[id(module)] = result
        return result

    def type_of(self, module: Any, children: dict[str, Any], convert: Convert) -> tuple[T.ClassType, list[Any]]:
        """The type of a module, made or found, and its attributes' values in slot order."""
        cls = type(module)
        draft = Draft(self, module, children)
        key = (cls, draft.key())
        for t in self.shared.setdefault(key, []):
            return t, [convert(draft.values[n], a, cls.__name__, n) for n, a in t.attributes.items()]
        t = T.ClassType(self.compiler.qualified(cls), is_module=True)
        for name, type_ in draft.attributes.items():
            t.add_attribute(name, type_)
        t.constants.update(draft.constants)
        t.parameters, t.buffers = tuple(draft.parameters), tuple(draft.buffers)
        values = [convert(draft.values[n], a, cls.__name__, n) for n, a in t.attributes.items()]
        names = tuple(children) if children else tuple(module._parameters) if is_parameters(cls) else ()
        info = ModuleInfo(cls, module, functions_of(cls, module), draft.callables, draft.failed, names)
        self.infos[t] = info
        self.shared[key].append(t)
        self.add_hooks(t, module)
        return t, values

    def add_hooks(self, t: T.ClassType, module: Any) -> None:
        for table, kind in (("_forward_pre_hooks", "forward_pre_hooks"), ("_forward_hooks", "forward_hooks")):
            names: list[str] = []
            for fn in getattr(module, table, {}).values():
                if not isinstance(fn, types.FunctionType):
                    raise SourceError(
                        f"hook {fn!r} of {type(module).__name__} cannot be scripted; hooks are functions written with "
                        "'def'"
                    )
                name = fn.__name__
                if name not in t.methods:
                    t.methods[name] = self.compiler.make(fn, f"{t.name}.{name}", t)
                names.append(name)
            setattr(t, kind, tuple(names))

    # --------------------------------------------------------------------------------------------- attributes

    def infer(self, value: Any) -> T.Type | str:
        """The type of an attribute's value, or the reason why it has none."""
        simple = names_.constant_of(value)
        if simple is not None:
            if isinstance(value, int) and not is_int64(value):
                return "the integer is outside 64 bits"
            return simple[1]
        if is_tensor(value):
            return T.TENSOR
        if isinstance(value, enum.Enum):
            return self.compiler.classes.type_of_class(type(value)) or "it is no Enum of the language"
        inner = getattr(value, "_object", value)
        if isinstance(inner, ScriptObject):
            return inner.type
        if isinstance(value, tuple):
            if hasattr(value, "_fields"):
                found = self.compiler.classes.type_of_class(type(value))
                return found if found is not None else "its class is no NamedTuple of the language"
            parts = [self.infer(v) for v in value]
            bad = next((p for p in parts if isinstance(p, str)), None)
            return bad if bad is not None else T.TupleType(tuple(p for p in parts if not isinstance(p, str)))
        if isinstance(value, list):
            return self.common(value, "List trace inputs must have elements", T.ListType)
        if isinstance(value, dict):
            keys = self.common(list(value), "Dictionary inputs must have entries", T.ListType)
            items = self.common(list(value.values()), "Dictionary inputs must have entries", T.ListType)
            if isinstance(keys, T.ListType) and isinstance(items, T.ListType):
                return T.DictType(keys.element, items.element)
            return keys if isinstance(keys, str) else str(items)
        return (
            "(This attribute exists on the Python module, but we failed to convert Python type: "
            f"'{type(value).__name__}' to a TorchScript type.)"
        )

    def common(self, values: list[Any], empty: str, make: Callable[[T.Type], T.Type]) -> T.Type | str:
        if not values:
            return f"{empty}; annotate the type of an empty container"
        first = self.infer(values[0])
        for v in values[1:]:
            other = self.infer(v)
            if isinstance(first, str) or isinstance(other, str):
                break
            joint = T.unify(first, other)
            if joint is None:
                return f"its elements have types {first.annotation()} and {other.annotation()}"
            first = joint
        return first if isinstance(first, str) else make(first)

    def constant_value(self, value: Any, type_: T.Type) -> Any:
        """A Python value as a constant of a type; NotImplemented when it does not fit."""
        if value is None:
            return None if T.may_be_none(type_) else NotImplemented
        for t in T.members_of(type_):
            found = self.one_constant(value, t)
            if found is not NotImplemented:
                return found
        return NotImplemented

    def one_constant(self, value: Any, t: T.Type) -> Any:
        if isinstance(t, T.EnumType):
            if isinstance(value, enum.Enum) and self.compiler.classes.type_of_class(type(value)) is t:
                return EnumValue(t, value.name, t.members[value.name])
            return NotImplemented
        if t == T.FLOAT:
            return float(value) if type(value) in (int, float) else NotImplemented
        if t == T.COMPLEX:
            return complex(value) if type(value) in (int, float, complex) else NotImplemented
        if isinstance(t, T.ListType) and isinstance(value, (list, tuple)):
            parts = [self.constant_value(v, t.element) for v in value]
            return NotImplemented if any(p is NotImplemented for p in parts) else parts
        if isinstance(t, T.TupleType) and isinstance(value, tuple) and len(value) == len(t.elements):
            parts = [self.constant_value(v, e) for v, e in zip(value, t.elements, strict=True)]
            if any(p is NotImplemented for p in parts):
                return NotImplemented
            return tuple(parts) if t.name is None else namedtuple_class(t)(*parts)
        if isinstance(t, T.DictType) and isinstance(value, dict):
            pairs = {self.constant_value(k, t.key): self.constant_value(v, t.value) for k, v in value.items()}
            return NotImplemented if NotImplemented in (*pairs, *pairs.values()) else pairs
        if t in (T.NUMBER, T.ANY) and type(value) in (int, float, bool, complex, str):
            return value
        found = names_.constant_of(value)
        if found is None or found[1] != t:
            return NotImplemented
        return found[0]

    def check_interface(self, interface: T.InterfaceType, t: T.ClassType, name: str) -> None:
        """Compile the methods an interface asks of a module's type. Raises SourceError when one is missing."""
        for method in interface.methods:
            found = t.methods.get(method) or self.make_method(t, method, SourceError)
            if found is None:
                raise SourceError(
                    f"attribute {name!r}: {t.name} has no method {method!r}, which interface {interface.name} declares"
                )
            self.compiler.compile(found)

    # ------------------------------------------------------------------------------------------------ methods

    def method_names(self, t: T.Type) -> Iterable[str]:
        info = self.infos.get(t)
        return () if info is None else info.functions

    def make_method(self, t: Any, name: str, where: Where) -> Function | None:
        info = self.infos.get(t)
        fn = None if info is None else info.functions.get(name)
        if fn is None:
            return None
        if not isinstance(fn, types.FunctionType):
            raise where(f"{t.name}.{name} is no function written in Python")
        overloads = self.overloads_of(t, name, fn)
        function = overloads[0] if overloads else self.compiler.make(fn, f"{t.name}.{name}", t)
        t.methods[name] = function
        return function

    def overload(self, fn: Any, signature: Any, name: str, self_type: T.Type | None) -> Function:
        """A function with the signature of one definition and the body of another."""
        source, node = python_source(fn)
        _, declared = python_source(signature)
        assert isinstance(node, ast.FunctionDef) and isinstance(declared, ast.FunctionDef)
        node.args, node.returns, node.type_comment = declared.args, declared.returns, declared.type_comment
        resolver = ScriptResolver(self.compiler, names_of(fn), source, name)
        values = inspect.signature(signature).parameters
        defaults = {n: p.default for n, p in values.items() if p.default is not inspect.Parameter.empty}
        return self.compiler.define(name, source, node, resolver, self_type, defaults)

    def missing(self, t: Any, name: str) -> str:
        """What is wrong with an attribute that an object does not have."""
        info = self.infos.get(t)
        short = t.name.rpartition(".")[2]
        if info is None:
            return f"Tried to access nonexistent attribute or method '{name}' of type '{t.name}'"
        text = f"Module '{short}' has no attribute '{name}'"
        if name in info.failed:
            return f"{text} {info.failed[name]}"
        if hasattr(info.example, name):
            return (
                f"{text} (This attribute exists on the Python module; declare its type in the class body, or list it "
                "in __constants__)"
            )
        return text

    # ---------------------------------------------------------------------------------------------- containers

    def items(self, emitter: Any, value: Value, node: ast.AST) -> dict[str, Any] | None:
        """The members of a container of modules by name; None for any other object."""
        info = self.infos.get(value.type)
        if info is None or container_kind(info.python) is None:
            return None
        assert isinstance(value.type, T.ClassType)
        return {
            n: emitter.value_of("prim::GetAttr", (value,), value.type.attributes[n], node, {"name": n})
            for n in info.children
        }

    def iterates_names(self, t: T.Type) -> bool:
        info = self.infos.get(t)
        return info is not None and container_kind(info.python) == "mapping"

    def member(self, resolver: Any, emitter: Any, owner: Value, name: str, node: ast.AST) -> Any:
        """What ``module.name`` means when it is neither an attribute nor a method of the type."""
        t = owner.type
        info = self.infos.get(t)
        if info is None:
            return None
        if name in info.callables:
            return resolver.meaning(info.callables[name])
        kind = container_kind(info.python)
        if kind == "mapping" and name in ("keys", "values", "items"):
            return Inline(lambda call: self.mapping_view(emitter, owner, name, call))
        if name in WALKERS:
            return Inline(lambda call: self.walked(emitter, owner, name, call))
        if name == "__class__":
            return PythonValue(info.python)
        fn = info.functions.get(name)
        if fn is not None:
            overloads = self.overloads_of(t, name, fn)
            if overloads:
                return Inline(lambda call: self.call_overload(emitter, owner, overloads, call))
        static = inspect.getattr_static(info.python, name, None)
        if isinstance(static, staticmethod):
            return FunctionRef(self.compiler.function(static.__func__))
        if static is not None and not callable(static) and not isinstance(static, property):
            return resolver.value_of_object(emitter, static, node)
        return None

    def overloads_of(self, t: Any, name: str, fn: Any) -> list[Function]:
        declared = declared_overloads(fn)
        internal: Any = sys.modules.get("torch._jit_internal")
        if not declared and internal is not None:
            table = getattr(internal, "_overloaded_methods", {})
            qualified = internal._qualified_name(fn) if table else ""
            declared = list(table.get(qualified, {}).get(fn.__qualname__.rpartition(".")[0], ()))
        made: list[Function] = []
        for i, signature in enumerate(declared):
            full = f"{name}__{i}"
            if full not in t.methods:
                t.methods[full] = self.overload(fn, signature, f"{t.name}.{full}", t)
            made.append(t.methods[full])
        return made

    def call_overload(self, emitter: Any, owner: Value, overloads: list[Function], call: ast.Call) -> Any:
        reasons: dict[Function, str] = {}
        for convert, function in product((False, True), overloads):
            positional, keywords = emitter.arguments(call)
            try:
                inputs = emitter.match_function(function.schema, [owner, *positional], keywords, call, (convert,))
            except SourceError as e:
                reasons[function] = e.message
                continue
            self.compiler.compile(function, lambda text: emitter.error(text, call))
            returned = function.schema.returns[0].type
            return emitter.value_of("prim::CallMethod", inputs, returned, call, {"name": function.short_name})
        text = "\n".join(reasons.values())
        raise emitter.error(f"Arguments for call are not valid. The overloads are:\n{text}", call)

    def mapping_view(self, emitter: Any, owner: Value, name: str, call: ast.Call) -> Items:
        emitter.expect_arguments(call, 0)
        items = self.items(emitter, owner, call) or {}
        keys = [emitter.constant(k, T.STR, call) for k in items]
        if name == "keys":
            return Items(list(keys))
        if name == "values":
            return Items(list(items.values()))
        return Items([Items([k, v]) for k, v in zip(keys, items.values(), strict=True)])

    def walked(self, emitter: Any, owner: Value, name: str, call: ast.Call) -> Items:
        """``children()``, ``named_parameters()`` and their like, element by element."""
        emitter.expect_arguments(call, 0)
        found: list[tuple[str, Value]] = []
        kind = name.removeprefix("named_")

        def visit(value: Value, prefix: str, deep: bool) -> None:
            t = value.type
            assert isinstance(t, T.ClassType)
            if kind == "modules":
                found.append((prefix.rstrip("."), value))
            for n, a in t.attributes.items():
                is_child = isinstance(a, T.ClassType) and a.is_module
                wanted = n in (t.parameters if kind == "parameters" else t.buffers if kind == "buffers" else ())
                if not (is_child or (wanted and a != T.NONE)):
                    continue
                inner = emitter.value_of("prim::GetAttr", (value,), a, call, {"name": n})
                if is_child and kind != "children":
                    visit(inner, f"{prefix}{n}.", deep)
                else:
                    found.append((f"{prefix}{n}", inner))

        visit(owner, "", True)
        if not name.startswith("named_"):
            return Items([v for _, v in found])
        return Items([Items([emitter.constant(n, T.STR, call), v]) for n, v in found])
