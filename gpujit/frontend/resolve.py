"""Names of serialized source: from ``__torch__.a.b.Name`` to a class, function, enum or interface, read when needed.

One file holds one module path; the order inside a file is not dependency order, so a file is indexed first and its
definitions are filled in lazily. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from gpujit.frontend import emit
from gpujit.frontend.lang import (
    FunctionRef,
    Meaning,
    Namespace,
    Path,
    Special,
    TypeRef,
    fail,
    parse_python,
    parse_source,
    range_of,
)
from gpujit.frontend.literals import NOT_LITERAL, literal, type_of_constant
from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.source import Source
from gpujit.ir.values import Device, EnumValue, is_int64, parse_device
from gpujit.support.errors import SourceError

_SIMPLE: dict[str, T.Type] = {
    "Tensor": T.TENSOR, "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX, "str": T.STR,
    "NoneType": T.NONE, "Any": T.ANY, "number": T.NUMBER, "Device": T.DEVICE, "Generator": T.GENERATOR,
    "Stream": T.STREAM, "list": T.ANY_LIST, "tuple": T.ANY_TUPLE, "AnyEnumType": T.ANY_ENUM, "Layout": T.INT,
    "ScalarType": T.INT, "AnyClassType": T.ANY_CLASS, "Storage": T.STORAGE, "QScheme": T.QSCHEME, "Capsule": T.CAPSULE,
}  # fmt: skip
_MODULE_BASES = ("Module", "ModuleInterface", "Interface", "NamedTuple", "Enum", "object")
_SPECIALS = frozenset(
    ("annotate", "uninitialized", "unchecked_cast", "isinstance", "int", "float", "bool", "complex", "str", "getattr",
     "fork", "awaitable", "awaitable_nowait", "awaitable_wait", "print", "range", "sorted",
     "rpc_async", "rpc_sync", "rpc_remote", "hasattr",
     "list", "dict", "len", "min", "max", "abs", "hash")
)  # fmt: skip
_MAX_TYPE_DEPTH = 64


class SourceFile:
    """One parsed file: its top-level definitions by name."""

    def __init__(self, source: Source, tree: ast.Module, file: str) -> None:
        self.source = source
        self.definitions: dict[str, ast.ClassDef | ast.FunctionDef] = {}
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                if node.name in self.definitions:
                    raise fail(f"{node.name!r} is defined twice in one file", source, node, file)
                self.definitions[node.name] = node
            elif isinstance(node, ast.Import) or _is_version_line(node):
                # Old files start with 'op_version_set = 1' and imports; neither carries meaning any more.
                continue
            else:
                raise fail(f"'{type(node).__name__}' is not expected outside a class or function", source, node, file)


def _is_version_line(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "op_version_set"
    )


class ArchiveResolver:
    """Finds what names in an archive's source mean.

    Args:
        open_source: gives the source of a module path such as ``__torch__.torch.nn``, or None when there is no file.
        constants: the tuple ``CONSTANTS.cN`` refers to.
        version: the archive's format version, which decides what old operators mean.
        file: the archive's name, for messages.
        map_device: rewrites device literals in code (``map_location``); None leaves them.
    """

    def __init__(
        self,
        open_source: Callable[[str], Source | None],
        constants: tuple[Any, ...] = (),
        version: int | None = None,
        file: str = "",
        map_device: Callable[[str], str] | None = None,
    ) -> None:
        self.open_source = open_source
        self.constants = constants
        self.version = version
        self.file = file
        self.map_device = map_device
        # Overloads chosen so far. Kept with the file: its classes are types, and must not outlive it.
        self.overloads: dict[Any, Any] = {}
        self._files: dict[str, SourceFile | None] = {}
        self._types: dict[str, T.Type] = {}
        self._functions: dict[str, Function] = {}
        self._unfilled: list[tuple[T.Type, SourceFile, ast.ClassDef]] = []
        self._filling = False

    # ------------------------------------------------------------------------------------------- looking up

    def source_file(self, path: str) -> SourceFile | None:
        """The parsed file of a module path. Raises SourceError when it is not in the language."""
        if path not in self._files:
            source = self.open_source(path)
            self._files[path] = (
                None if source is None else SourceFile(source, parse_source(source, self.file), self.file)
            )
        return self._files[path]

    def definition(self, name: str) -> tuple[SourceFile, ast.ClassDef | ast.FunctionDef] | None:
        """The file and syntax of a qualified name."""
        path, _, last = name.rpartition(".")
        found = self.source_file(path) if path else None
        if found is None or last not in found.definitions:
            return None
        return found, found.definitions[last]

    def find_type(self, name: str) -> T.Type | None:
        """The class, enum, interface or NamedTuple of a qualified name; its contents are filled in."""
        found = self._declare(name, 0)
        self._fill()
        return found

    def find_function(self, name: str) -> Function | None:
        """The free function of a qualified name."""
        if name not in self._functions:
            found = self.definition(name)
            if found is None or not isinstance(found[1], ast.FunctionDef):
                return None
            self._functions[name] = self._function(name, found[0], found[1], None)
        return self._functions[name]

    def check_signatures(self) -> None:
        """Resolve the attributes, fields and signatures of all definitions read so far, reached or not.

        Raises SourceError: one names a type that is not there, a constant of another type than declared, and so on.
        """
        for path, file in list(self._files.items()):
            for name, node in [] if file is None else file.definitions.items():
                if isinstance(node, ast.FunctionDef):
                    found = self.find_function(f"{path}.{name}")
                    methods = {} if found is None else {name: found}
                else:
                    methods = getattr(self.find_type(f"{path}.{name}"), "methods", {})
                for function in methods.values():
                    function.schema  # noqa: B018  # made when first asked for

    def lookup(self, name: str) -> Meaning | None:
        """What a global name means in serialized source."""
        if name in ("torch",):
            return Namespace("aten")
        if name == "ops":
            return Path("ops")
        if name in ("__torch__", "CONSTANTS"):
            return Path(name)
        if name in _SPECIALS:
            return Special(name)
        if name in _SIMPLE:
            return TypeRef(_SIMPLE[name])
        return None

    def member(self, path: str, name: str, where: Callable[[str], SourceError]) -> Meaning:
        """What ``path.name`` means for an unfinished path."""
        if path == "ops":
            return Namespace(name)
        full = f"{path}.{name}"
        found = self.definition(full)
        if found is not None:
            if isinstance(found[1], ast.FunctionDef):
                function = self.find_function(full)
                assert function is not None
                return FunctionRef(function)
            type_ = self.find_type(full)
            assert type_ is not None
            return TypeRef(type_)
        if full.startswith("__torch__.torch.classes.") and full.count(".") >= 4:
            return TypeRef(T.custom_class(full))
        if full.count(".") > 64:
            raise where(f"name {full[:120]!r} has too many parts")
        return Path(full)

    # ------------------------------------------------------------------------------------------------ types

    def _declare(self, name: str, depth: int) -> T.Type | None:
        if name in self._types:
            return self._types[name]
        if name.startswith("__torch__.torch.classes."):
            return T.custom_class(name)
        found = self.definition(name)
        if found is None or not isinstance(found[1], ast.ClassDef):
            return None
        file, node = found[0], found[1]
        bases = [b.id if isinstance(b, ast.Name) else "?" for b in node.bases]
        if node.keywords or len(bases) > 1 or any(b not in _MODULE_BASES for b in bases):
            raise fail(
                f"class {node.name} has bases that serialized TorchScript does not know", file.source, node, self.file
            )
        base = bases[0] if bases else ""
        result: T.Type
        if base == "NamedTuple":
            if depth > _MAX_TYPE_DEPTH:
                raise fail("NamedTuples are nested too deeply", file.source, node, self.file)
            fields: dict[str, T.Type] = {}
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    if statement.target.id in fields:
                        raise fail(
                            f"field {statement.target.id!r} is declared twice", file.source, statement, self.file
                        )
                    fields[statement.target.id] = self.annotation(statement.annotation, file.source, depth + 1)
                elif not isinstance(statement, ast.Pass):
                    raise fail("a NamedTuple holds 'name : Type' lines only", file.source, statement, self.file)
            result = T.TupleType(tuple(fields.values()), name, tuple(fields))
            self._types[name] = result
            return result
        if base == "Enum":
            members: dict[str, Any] = {}
            for statement in node.body:
                if not (
                    isinstance(statement, ast.Assign)
                    and isinstance(statement.targets[0], ast.Name)
                    and isinstance(value := literal(statement.value), (int, float, str))
                ):
                    raise fail("an Enum holds 'NAME = literal' lines only", file.source, statement, self.file)
                members[statement.targets[0].id] = value
            kinds = {type(v) for v in members.values()}
            if len(kinds) != 1:
                raise fail("members of an Enum must have values of one type", file.source, node, self.file)
            value_type = {int: T.INT, float: T.FLOAT, str: T.STR, bool: T.BOOL}[kinds.pop()]
            result = T.EnumType(name, value_type, members)
            self._types[name] = result
            return result
        if base in ("ModuleInterface", "Interface"):
            result = T.InterfaceType(name, is_module=base == "ModuleInterface")
        else:
            result = T.ClassType(name, is_module=base == "Module")
        # The shell is entered first: classes may refer to each other in circles.
        self._types[name] = result
        self._unfilled.append((result, file, node))
        return result

    def _fill(self) -> None:
        if self._filling:
            return
        self._filling = True
        try:
            while self._unfilled:
                type_, file, node = self._unfilled.pop()
                if isinstance(type_, T.InterfaceType):
                    self._fill_interface(type_, file, node)
                elif isinstance(type_, T.ClassType):
                    self._fill_class(type_, file, node)
        finally:
            self._filling = False

    def _fill_interface(self, type_: T.InterfaceType, file: SourceFile, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                full = f"{type_.name}.{statement.name}"
                signature = partial(self._signature, full, file, statement, type_)
                type_.methods[statement.name] = Function(full, signature)
            elif not isinstance(statement, ast.Pass):
                raise fail("an interface holds methods only", file.source, statement, self.file)

    def _fill_class(self, type_: T.ClassType, file: SourceFile, node: ast.ClassDef) -> None:
        source = file.source
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                if statement.name in type_.methods:
                    raise fail(f"method {statement.name!r} is defined twice", source, statement, self.file)
                full = f"{type_.name}.{statement.name}"
                type_.methods[statement.name] = self._function(full, file, statement, type_)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self._declare_attribute(type_, statement.target.id, statement.annotation, statement.value, file)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._class_assignment(type_, statement, statement.targets[0], file)
            elif not isinstance(statement, ast.Pass):
                raise fail(f"'{type(statement).__name__}' is not expected in a class", source, statement, self.file)
        for hook in (*type_.forward_pre_hooks, *type_.forward_hooks):
            if hook not in type_.methods:
                raise fail(f"the class names the hook {hook!r}, which is none of its methods", source, node, self.file)

    def _class_assignment(self, type_: T.ClassType, statement: ast.Assign, target: ast.expr, file: SourceFile) -> None:
        if isinstance(target, ast.Subscript):
            key = literal(target.slice)
            if isinstance(target.value, ast.Name) and target.value.id == "__annotations__" and isinstance(key, str):
                self._declare_attribute(type_, key, statement.value, None, file)
                return
        elif isinstance(target, ast.Name):
            if target.id == "__annotations__":
                return
            value = literal(statement.value)
            if isinstance(value, list) and all(isinstance(v, str) for v in value):
                names = tuple(value)
                if target.id == "__parameters__":
                    type_.parameters = names
                    return
                if target.id == "__buffers__":
                    type_.buffers = names
                    return
                if target.id == "__forward_pre_hooks__":
                    type_.forward_pre_hooks = names
                    return
                if target.id == "__forward_hooks__":
                    type_.forward_hooks = names
                    return
        raise fail("this line is not expected in a class of serialized TorchScript", file.source, statement, self.file)

    def _declare_attribute(
        self, type_: T.ClassType, name: str, annotation: ast.expr, value: ast.expr | None, file: SourceFile
    ) -> None:
        if name in type_.slot_of or name in type_.constants:
            raise fail(f"attribute {name!r} is declared twice", file.source, annotation, self.file)
        is_final = (
            isinstance(annotation, ast.Subscript)
            and isinstance(annotation.value, ast.Name)
            and annotation.value.id == "Final"
        )
        if is_final:
            assert isinstance(annotation, ast.Subscript)
            inner = self.annotation(annotation.slice, file.source)
            if value is None:
                raise fail(f"constant {name!r} has no value", file.source, annotation, self.file)
            type_.constants[name] = (inner, self._constant(value, inner, file, f"constant {name!r}"))
        elif value is not None:
            raise fail("only Final attributes have a value in source", file.source, annotation, self.file)
        else:
            type_.add_attribute(name, self.annotation(annotation, file.source))

    def _constant(self, node: ast.expr, type_: T.Type, file: SourceFile, what: str) -> Any:
        """The value of a constant or default: a literal, ``CONSTANTS.cN`` or an enum's member, of the declared type."""
        value = literal(node)
        if value is NOT_LITERAL:
            name = dotted(node)
            owner, _, member = (name or "").rpartition(".")
            if owner == "CONSTANTS":
                value = self.constant_named(member, file.source, node)
            elif owner:
                enum = self.find_type(owner)
                if isinstance(enum, T.EnumType) and member in enum.members:
                    value = EnumValue(enum, member, enum.members[member])
        if value is NOT_LITERAL:
            raise fail(f"the value of {what} must be a literal", file.source, node, self.file)
        if isinstance(value, Device) and self.map_device is not None:
            value = parse_device(self.map_device(str(value)))
        if not _admits(type_, value):
            raise fail(
                f"{what} is declared as {type_.annotation()}; this value is not of that type",
                file.source,
                node,
                self.file,
            )
        return value

    def constant_named(self, name: str, source: Source, node: ast.AST) -> Any:
        """The value of ``CONSTANTS.cN``. Raises SourceError when there is none."""
        if name.startswith("c") and name[1:].isdigit() and int(name[1:]) < len(self.constants):
            return self.constants[int(name[1:])]
        raise fail(
            f"CONSTANTS.{name} is not in constants.pkl, which holds {len(self.constants)} values",
            source,
            node,
            self.file,
        )

    def annotation(self, node: ast.expr, source: Source, depth: int = 0) -> T.Type:
        """The type an annotation names. Raises SourceError for an unknown one."""
        if depth > _MAX_TYPE_DEPTH:
            raise fail("a type is nested too deeply", source, node, self.file)
        top = depth == 0
        result = self._annotation(node, source, depth)
        if top:
            self._fill()
        return result

    def _annotation(self, node: ast.expr, source: Source, depth: int) -> T.Type:
        if isinstance(node, ast.Name):
            if node.id in _SIMPLE:
                return _SIMPLE[node.id]
        elif isinstance(node, ast.Constant):
            if node.value is None:
                return T.NONE
            if isinstance(node.value, str):
                try:
                    (statement,) = parse_python(node.value).body
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    statement = ast.Pass()
                if not isinstance(statement, ast.Expr):
                    raise fail(f"{node.value[:80]!r} is no type", source, node, self.file)
                inner = statement.value
                for part in ast.walk(inner):
                    # Places in the inner text are none of the file's.
                    ast.copy_location(part, node)
                return self._nested(inner, source, depth)
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name is not None and name.startswith("__torch__."):
                found = self._declare(name, depth)
                if found is not None:
                    return found
                raise fail(f"unknown type {name}: the archive's source does not define it", source, node, self.file)
            if name is not None and name.startswith("torch.") and name.split(".")[-1] in _SIMPLE:
                return _SIMPLE[name.split(".")[-1]]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
            kind = node.value.id
            if kind == "Tuple" and isinstance(node.slice, ast.Tuple) and not parts:
                return T.TupleType(())
            if len(parts) > 4096:
                raise fail("a type has too many parts", source, node, self.file)
            inner_types = [self._nested(p, source, depth) for p in parts]
            if kind == "Tuple":
                return T.TupleType(tuple(inner_types))
            if kind == "Union" and inner_types:
                return T.union(inner_types)
            if kind == "Dict" and len(inner_types) == 2:
                return T.DictType(*inner_types)
            if len(inner_types) == 1:
                if kind == "List":
                    return T.ListType(inner_types[0])
                if kind == "Optional":
                    return T.optional(inner_types[0])
                if kind in ("Future", "RRef", "Await"):
                    return T.BoxType(kind, inner_types[0])
                if kind == "Final":
                    return inner_types[0]
        try:
            text = ast.unparse(node)
        except RecursionError:
            text = type(node).__name__
        raise fail(f"unknown type {text[:120]!r}", source, node, self.file)

    def _nested(self, node: ast.expr, source: Source, depth: int) -> T.Type:
        if depth > _MAX_TYPE_DEPTH:
            raise fail("a type is nested too deeply", source, node, self.file)
        return self._annotation(node, source, depth + 1)

    # -------------------------------------------------------------------------------------------- functions

    def _function(self, name: str, file: SourceFile, node: ast.FunctionDef, self_type: T.Type | None) -> Function:
        function = Function(
            name, partial(self._signature, name, file, node, self_type), source=range_of(file.source, node)
        )
        function._body = partial(self._emit, function, file, node)
        return function

    def _emit(self, function: Function, file: SourceFile, node: ast.FunctionDef) -> Graph:
        return emit.emit_function(function, node, file.source, self)

    def _signature(self, name: str, file: SourceFile, node: ast.FunctionDef, self_type: T.Type | None) -> Schema:
        arguments: list[Argument] = []
        a = node.args
        if a.vararg or a.kwarg or a.posonlyargs:
            raise fail("star arguments are not part of serialized TorchScript", file.source, node, self.file)
        if self_type is not None and not a.args:
            raise fail("a method's first argument is its object", file.source, node, self.file)
        missing = len(a.args) - len(a.defaults)
        for i, arg in enumerate((*a.args, *a.kwonlyargs)):
            kwarg_only = i >= len(a.args)
            if kwarg_only:
                default = a.kw_defaults[i - len(a.args)]
            else:
                default = a.defaults[i - missing] if i >= missing else None
            if arg.annotation is not None:
                type_ = self.annotation(arg.annotation, file.source)
            elif i == 0 and self_type is not None:
                type_ = self_type
            else:
                type_ = T.TENSOR
            value = None
            if default is not None:
                value = self._constant(default, type_, file, f"the default of {arg.arg!r}")
            arguments.append(Argument(arg.arg, type_, str(type_), value, default is not None, kwarg_only))
        returned = T.NONE if node.returns is None else self.annotation(node.returns, file.source)
        return Schema(name, "", tuple(arguments), (Argument("", returned, str(returned)),))


_NUMBERS: dict[T.Type, tuple[type, ...]] = {
    T.INT: (int,), T.FLOAT: (int, float), T.COMPLEX: (int, float, complex), T.NUMBER: (int, float, complex, bool),
    T.BOOL: (bool,), T.STR: (str,), T.NONE: (type(None),), T.DEVICE: (Device,),
}  # fmt: skip


def _admits(t: T.Type, value: Any) -> bool:
    """Whether a constant's Python value may stand where type ``t`` is declared."""
    kinds = _NUMBERS.get(t)
    if kinds is not None:
        return type(value) in kinds and (type(value) is not int or is_int64(value))
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return any(_admits(m, value) for m in T.members_of(t))
    if isinstance(t, T.ListType):
        return type(value) is list and all(_admits(t.element, v) for v in value)
    if isinstance(t, T.TupleType):
        return isinstance(value, tuple) and len(value) == len(t.elements) and all(map(_admits, t.elements, value))
    if isinstance(t, T.DictType):
        return type(value) is dict and all(_admits(t.key, k) and _admits(t.value, v) for k, v in value.items())
    if isinstance(t, T.EnumType):
        return isinstance(value, EnumValue) and value.type is t
    found = type_of_constant(value)
    return found is not None and T.is_subtype(found, t)


def dotted(node: ast.expr, limit: int = 64) -> str | None:
    """``a.b.c`` as text, or None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) <= limit:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))
