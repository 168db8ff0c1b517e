"""What a live module holds, told apart: attributes with types, constants, callables, submodules, methods."""

from __future__ import annotations

import ast
import inspect
import types
from typing import TYPE_CHECKING, Any

from gpujit.frontend import python_names as names_
from gpujit.frontend.lang import OperatorName, words
from gpujit.frontend.script_types import is_final
from gpujit.ir import types as T
from gpujit.ir.module import Function
from gpujit.nn.parameter import is_uninitialized
from gpujit.support.errors import SourceError

if TYPE_CHECKING:
    from gpujit.frontend.script_module import Modules

# Classes whose instances hold a sequence or mapping of modules, by name: they are subclassed under other names.
_SEQUENCES = ("ModuleList", "Sequential", "ParameterList")
_MAPPINGS = ("ModuleDict", "ParameterDict")
# What nn.Module keeps for itself.
INTERNAL = frozenset(
    words(
        "_parameters _buffers _modules _non_persistent_buffers_set _backward_pre_hooks _backward_hooks _forward_hooks "
        "_forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks _forward_pre_hooks_with_kwargs "
        "_state_dict_hooks _state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks _version "
        "dump_patches __dict__ __annotations__ _compiled_call_impl call_super_init"
    )
)
WALKERS = ("children", "named_children", "modules", "named_modules", "parameters", "named_parameters", "buffers",
            "named_buffers")  # fmt: skip


class Draft:
    """The attributes of one module, before it is known whether their types make an old type or a new one."""

    def __init__(self, owner: Modules, module: Any, children: dict[str, Any]) -> None:
        self.owner = owner
        self.module = module
        self.attributes: dict[str, T.Type] = {}
        self.values: dict[str, Any] = {}
        self.constants: dict[str, tuple[T.Type, Any]] = {}
        self.callables: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self.parameters: list[str] = []
        self.buffers: list[str] = []
        cls = type(module)
        self.annotations = annotations_of(cls)
        self.reader_class = cls
        ignored = set(getattr(module, "__jit_ignored_attributes__", ())) | set(
            getattr(module, "__jit_unused_properties__", ())
        )
        for table, names in ((module._parameters, self.parameters), (module._buffers, self.buffers)):
            for name, value in table.items():
                if is_uninitialized(value):
                    raise SourceError(
                        f"{cls.__name__}: {name!r} has no values yet; call the lazy module once before it is scripted"
                    )
                names.append(name)
                self.add(name, value, T.NONE if value is None else T.TENSOR)
        constants = set(getattr(module, "__constants__", ()))
        for name, value in vars(module).items():
            if name in INTERNAL or name in ignored or name in self.attributes:
                continue
            final = is_final(self.annotations.get(name))
            if name in constants or final:
                self.add_constant(name, value, final)
            else:
                self.add(name, value, None)
        for name in constants:
            if name not in self.constants and name not in self.attributes and name not in children:
                if hasattr(cls, name) and name not in self.failed:
                    self.add_constant(name, getattr(module, name), False)
        for name, annotation in self.annotations.items():
            if is_final(annotation) and name not in self.constants and hasattr(cls, name):
                self.add_constant(name, getattr(cls, name), True)
        for name, child in children.items():
            if child is None:
                self.add(name, None, T.NONE)
                continue
            declared = self.declared(name)
            self.attributes[name] = declared if isinstance(declared, T.InterfaceType) else child.type
            self.values[name] = child
            if isinstance(declared, T.InterfaceType):
                self.owner.check_interface(declared, child.type, name)

    def declared(self, name: str) -> T.Type | None:
        """The type a class body declares; None when it declares none."""
        annotation = self.annotations.get(name)
        if annotation is None or is_final(annotation):
            return None
        at = ast.Pass()
        at.lineno, at.col_offset, at.end_lineno, at.end_col_offset = 1, 0, 1, 1
        reader = self.owner.compiler.classes.reader(declaring(self.reader_class, name))
        try:
            found: T.Type = reader.of_object(annotation, at)
        except SourceError:
            return None
        return found

    def add(self, name: str, value: Any, type_: T.Type | None) -> None:
        wrapped = attribute_wrapper(value)
        declared = self.declared(name)
        if wrapped is not None:
            value, annotation = wrapped
            at = ast.Pass()
            at.lineno, at.col_offset, at.end_lineno, at.end_col_offset = 1, 0, 1, 1
            declared = self.owner.compiler.classes.reader(self.reader_class).of_object(annotation, at)
        if declared is not None:
            self.attributes[name], self.values[name] = declared, value
            return
        found = type_ if type_ is not None else self.owner.infer(value)
        if isinstance(found, str):
            fn = getattr(value, "_gpujit_function", value)
            plain = isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) or isinstance(fn, Function)
            plain = plain or isinstance(names_.meaning_of(value), OperatorName)
            if plain:
                self.callables[name] = value
            else:
                self.failed[name] = found
            return
        self.attributes[name], self.values[name] = found, value

    def add_constant(self, name: str, value: Any, final: bool) -> None:
        annotation = self.annotations.get(name)
        type_: T.Type | str | None = None
        args = getattr(annotation, "__args__", ())
        if final and args:
            at = ast.Pass()
            at.lineno, at.col_offset, at.end_lineno, at.end_col_offset = 1, 0, 1, 1
            reader = self.owner.compiler.classes.reader(declaring(self.reader_class, name))
            type_ = reader.of_object(args[0], at)
        if is_tensor(value) or (value is None and name in self.attributes):
            self.add(name, value, None)
            return
        if type_ is None:
            type_ = self.owner.infer(value)
        if isinstance(type_, str):
            if callable(value):
                self.callables[name] = value
            else:
                self.failed[name] = type_
            return
        fitted = self.owner.constant_value(value, type_)
        if fitted is NotImplemented:
            self.failed[name] = f"(its value {value!r} is not of the declared type {type_.annotation()})"
            return
        self.constants[name] = (type_, fitted)

    def key(self) -> Any:
        return (
            tuple(self.attributes.items()),
            tuple((n, t, repr(v)) for n, (t, v) in self.constants.items()),
            tuple((n, id(v)) for n, v in self.callables.items()),
            tuple(self.failed.items()),
            tuple(self.parameters),
            tuple(self.buffers),
            self.hooks(),
        )

    def hooks(self) -> Any:
        return tuple(
            tuple(getattr(self.module, table, {}).values()) for table in ("_forward_pre_hooks", "_forward_hooks")
        )


def annotations_of(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ in ("torch.nn.modules.module",) or base is object:
            continue
        found.update(vars(base).get("__annotations__", {}))
    return found


def declaring(cls: type, name: str) -> type:
    """The class of the bases that declares an attribute."""
    return next((b for b in cls.__mro__ if name in vars(b).get("__annotations__", {})), cls)


def attribute_wrapper(value: Any) -> tuple[Any, Any] | None:
    """Value and type of an ``Attribute(value, type)``."""
    if type(value).__name__ == "Attribute" and isinstance(value, tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def functions_of(cls: type, module: Any) -> dict[str, Any]:
    """The methods of a module's class, those of its bases included, and getters and setters of its properties."""
    unused = set(getattr(module, "__jit_unused_properties__", ()))
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, types.FunctionType):
                found[name] = member
            elif isinstance(member, property) and name not in unused and base.__name__ != "Module":
                if member.fget is not None:
                    found[f"__{name}_getter"] = member.fget
                if member.fset is not None:
                    found[f"__{name}_setter"] = member.fset
    for name, member in vars(module).items():
        if isinstance(member, types.MethodType) and member.__self__ is module:
            found[name] = member.__func__
    for name in (*INTERNAL, *WALKERS, "__call__", "__init__", "__setattr__", "__getattr__", "__dir__", "__repr__",
                 "__setstate__", "__delattr__"):  # fmt: skip
        found.pop(name, None)
    if container_kind(cls) is not None:
        for name in ("__len__", "__getitem__", "__iter__", "__contains__", "__setitem__", "keys", "items", "values",
                     "append", "extend", "insert", "__delitem__", "__add__", "__iadd__", "__bool__"):  # fmt: skip
            found.pop(name, None)
    return found


def container_kind(cls: type) -> str | None:
    """``sequence`` or ``mapping`` for containers of modules, None for other classes."""
    for base in cls.__mro__:
        if base.__name__ in _SEQUENCES and hasattr(base, "named_parameters"):
            return "sequence"
        if base.__name__ in _MAPPINGS and hasattr(base, "named_parameters"):
            return "mapping"
    return None


def is_parameters(cls: type) -> bool:
    return any(b.__name__ in ("ParameterList", "ParameterDict") for b in cls.__mro__)


def is_unimplemented(fn: Any) -> bool:
    return getattr(fn, "__name__", "") == "_forward_unimplemented"


def is_tensor(value: Any) -> bool:
    """Whether a live object is a tensor: an array, or what says it is one."""
    if inspect.isclass(value) or isinstance(value, names_.TorchPath):
        return False
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")
