"""From an archive to a module: constants, objects and the source they refer to. Nothing from the file is run, except
``__setstate__`` methods on the interpreter, and nothing is written anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np

from gpujit.frontend.resolve import ArchiveResolver
from gpujit.ir import types as T
from gpujit.ir.arrays import describe
from gpujit.ir.source import Source
from gpujit.ir.values import EnumValue, ScriptObject, is_int64, namedtuple_class, parse_device
from gpujit.runtime.values import has_type
from gpujit.serialization.archive import Archive
from gpujit.serialization.debug import DebugTable
from gpujit.serialization.package import layout_of, module_keys
from gpujit.serialization.storage import StorageReader, is_device
from gpujit.serialization.tensors import torch_unpickler
from gpujit.serialization.trainable import Trainable
from gpujit.serialization.unpickle import Malformed
from gpujit.serialization.zipindex import shown
from gpujit.support.errors import LoadError, PickleError, SourceError
from gpujit.support.progress import Stage

CUSTOM_CLASSES = "__torch__.torch.classes."
# Markers of operators on quantised tensors, which need other kernels.
_QUANTISED = ("quantized.", "quantize_per", "dequantize")


@dataclass(eq=False, slots=True)
class CustomObject:
    """Stands for an object of a C++ class while its pickle is read; ``value`` is what its state was unpacked to."""

    name: str
    value: Any = None


@dataclass(eq=False, slots=True)
class Loaded:
    """What ``read`` gives: the modules, their resolver, the format version, every source file's text.

    ``modules`` has one entry, but for torch.package archives. ``sources`` go by module path (``__torch__.torch.nn``).
    ``devices`` are those the storages were saved from; ``trainable`` tells which tensors require a gradient.
    """

    modules: dict[int | str, ScriptObject]
    resolver: ArchiveResolver
    archive: Archive
    version: int
    sources: dict[str, Source]
    uses_quantised: bool
    devices: set[str]
    trainable: Trainable


def read(
    source: Any,
    *,
    map_location: Any = None,
    extra_files: dict[str, Any] | None = None,
    run_method: Callable[[Any, list[Any]], Any],
    unpack_custom: Callable[[str, Any], Any],
    package: bool = False,
) -> Loaded:
    """Read a TorchScript archive.

    Args:
        source: path, bytes or readable file object.
        map_location: as in torch.jit.load; moves storages and rewrites device literals in code.
        extra_files: names are filled in with the content of ``extra/NAME`` (bytes where the value is bytes, else str).
        run_method: runs a method (for ``__setstate__``), given the Function and its arguments.
        unpack_custom: from a C++ class's name and pickled state to the object that stands for it.
        package: read every module of a torch.package archive; without it such an archive must hold just one.
    Raises LoadError and its subclasses; on an error nothing is kept.
    """
    archive = Archive(source)
    try:
        with Stage(f"load {os.path.basename(archive.file)}", archive.packed_bytes(), unit="bytes") as stage:
            archive.on_read = stage.advance
            return _read(archive, map_location, extra_files, run_method, unpack_custom, package)
    except LoadError as e:
        if not e.file:
            e.file = archive.file
        archive.close()
        raise
    except BaseException:
        archive.close()
        raise


def _read(
    archive: Archive,
    map_location: Any,
    extra_files: dict[str, Any] | None,
    run_method: Callable[[Any, list[Any]], Any],
    unpack_custom: Callable[[str, Any], Any],
    package: bool,
) -> Loaded:
    layout = layout_of(archive)
    if package and not layout.is_package:
        raise LoadError("the file is a TorchScript archive, not one of torch.package; open it with gpujit.load")
    keys = module_keys(archive) if package or len(layout.modules) > 1 else {n: n for n in layout.modules}
    if not package and len(keys) > 1:
        names = ", ".join(shown(k) if isinstance(k, str) else str(k) for k in list(keys.values())[:20])
        raise LoadError(
            f"the file is a torch.package archive with {len(keys)} TorchScript modules, and load() gives one: "
            f"gpujit.load_package(path) gives all of them by name ({names})"
        )
    version = archive.version
    sources = _open_sources(archive, layout.code)
    resolver = ArchiveResolver(sources.get, version=version, file=archive.file, map_device=_device_mapper(map_location))
    builder = _Builder(resolver, run_method, unpack_custom)
    for path in sources:
        resolver.source_file(path)
    # One reader a folder: modules of a package may share storages.
    storages = {folder: StorageReader(archive, folder, map_location) for folder in (layout.constants, layout.data)}
    for folder in layout.modules.values():
        constants = _unpickle(f"{folder}constants.pkl", storages[layout.constants], builder)
        if not isinstance(constants, (tuple, list)):
            _fail_content(archive, f"{folder}constants.pkl", "does not hold a tuple")
        # Modules of a package are written one after another, each with the constants of those before it and its own.
        if len(constants) > len(resolver.constants):
            resolver.constants = tuple(builder.plain(c) for c in constants)
    resolver.check_signatures()
    modules: dict[int | str, ScriptObject] = {}
    for number, folder in layout.modules.items():
        root = _unpickle(f"{folder}data.pkl", storages[layout.data], builder)
        if not isinstance(root, ScriptObject) or not root.type.is_module:
            _fail_content(archive, f"{folder}data.pkl", f"holds a {describe(root)}, not a TorchScript module")
        modules[keys[number]] = root
    if extra_files is not None:
        _read_extra(archive, extra_files)
    quantised = any(mark in s.text for s in sources.values() for mark in _QUANTISED)
    devices = set().union(*(s.devices for s in storages.values()))
    return Loaded(modules, resolver, archive, version, sources, quantised, devices, builder.trainable)


def _fail_content(archive: Archive, member: str, message: str) -> NoReturn:
    raise PickleError(f"{member} {message}", file=archive.file, member=member, code="pickle-arguments")


def _open_sources(archive: Archive, folder: str) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for name in archive.names():
        if name.startswith(folder) and name.endswith(".py"):
            try:
                text = archive.read(name).decode("utf-8")
            except UnicodeDecodeError as e:
                raise SourceError(
                    f"source is not UTF-8: {e.reason} at byte {e.start}", file=archive.file, member=name
                ) from None
            table = DebugTable(partial(_debug_bytes, archive, name + ".debug_pkl"), name + ".debug_pkl")
            path = name[len(folder) : -len(".py")].replace("/", ".")
            found[path] = Source(name, text, original=table.original)
    return found


def _debug_bytes(archive: Archive, name: str) -> bytes | None:
    return archive.read(name) if archive.has(name) else None


def _read_extra(archive: Archive, extra_files: dict[str, Any]) -> None:
    for name, value in list(extra_files.items()):
        member = f"extra/{name}"
        if archive.has(member):
            data = archive.read(member)
            extra_files[name] = data if isinstance(value, bytes) else data.decode("utf-8", "replace")


def _device_mapper(map_location: Any) -> Callable[[str], str] | None:
    """How device literals in code are rewritten: to the one device, by the dict, or as the function places no bytes."""
    if map_location is None:
        return None
    if callable(map_location) and not is_device(map_location):

        @cache
        def ask(text: str) -> str:
            where = map_location(np.empty(0, np.uint8), text)
            return text if where is None else "cpu" if isinstance(where, np.ndarray) else str(where)

        return ask
    if isinstance(map_location, Mapping):
        table = {str(k): str(v) for k, v in map_location.items()}
        return lambda text: table.get(text, text)
    target = str(map_location)
    return lambda text: text if text.startswith("meta") else target


def _unpickle(member: str, storages: StorageReader, builder: _Builder) -> Any:
    on_tensor = builder.trainable.note
    return torch_unpickler(storages, member, find_class=builder.find_class, on_tensor=on_tensor).load()


class _ModuleHandler:
    """Makes objects of one class."""

    def __init__(self, builder: _Builder, type_: T.ClassType) -> None:
        self.builder = builder
        self.type = type_

    def new(self) -> object:
        return ScriptObject(self.type, [None] * len(self.type.attributes))

    def build(self, obj: Any, state: Any) -> None:
        t = self.type
        setstate = t.methods.get("__setstate__")
        if setstate is not None and "__getstate__" in t.methods:
            wanted = setstate.schema.arguments[1].type
            self.builder.run_method(setstate, [obj, self.builder.adopt(state, wanted, f"the state of {t.name}")])
            return
        if not isinstance(state, dict):
            raise Malformed(
                f"the state of an object of {t.name} is a {type(state).__name__}, not a dict of its attributes"
            )
        # Attributes that may be None (such as hooks of later versions) may be left out by old writers.
        missing = [n for n, declared in t.attributes.items() if n not in state and not T.may_be_none(declared)]
        if missing:
            raise Malformed(f"an object of {t.name} lacks the attributes {missing[:8]}")
        for name, value in state.items():
            slot = t.slot_of.get(name)
            if slot is None:
                if name in t.constants:
                    continue
                raise Malformed(f"an object of {t.name} has an attribute {name!r} that its class does not declare")
            obj.slots[slot] = self.builder.adopt(value, t.attributes[name], f"attribute {name!r} of {t.name}")

    def reduce(self, arg: Any) -> object:
        raise Malformed(f"class {self.type.name} is called; only enums are made that way")


class _EnumHandler:
    """Makes members of one enum from their values."""

    def __init__(self, type_: T.EnumType) -> None:
        self.members = {v: EnumValue(type_, n, v) for n, v in type_.members.items()}
        self.name = type_.name

    def new(self) -> object:
        raise Malformed(f"{self.name} is an enum; its members are made by value")

    def build(self, obj: Any, state: Any) -> None:
        raise Malformed(f"{self.name} is an enum, which has no state")

    def reduce(self, arg: Any) -> object:
        value = arg[0] if isinstance(arg, tuple) and len(arg) == 1 else arg
        try:
            return self.members[value]
        except (KeyError, TypeError):
            raise Malformed(f"enum {self.name} has no member with the value {str(value)[:80]}") from None


class _CustomHandler:
    """Makes objects of a C++ class from their pickled state."""

    def __init__(self, builder: _Builder, name: str) -> None:
        self.builder = builder
        self.name = name

    def new(self) -> object:
        return CustomObject(self.name)

    def build(self, obj: Any, state: Any) -> None:
        obj.value = self.builder.unpack_custom(self.name, state)

    def reduce(self, arg: Any) -> object:
        raise Malformed(f"class {self.name} is called; its objects are made from a state")


class _Builder:
    """Turns pickled values into run-time values of their declared types."""

    def __init__(
        self,
        resolver: ArchiveResolver,
        run_method: Callable[[Any, list[Any]], Any],
        unpack_custom: Callable[[str, Any], Any],
    ) -> None:
        self.resolver = resolver
        self.run_method = run_method
        self.unpack_custom = unpack_custom
        self._handlers: dict[str, Any] = {}
        self.trainable = Trainable()

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in self._handlers:
            self._handlers[full] = self._make_handler(full)
        return self._handlers[full]

    def _make_handler(self, full: str) -> Any:
        if full.startswith(CUSTOM_CLASSES):
            return _CustomHandler(self, full)
        t = self.resolver.find_type(full)
        if isinstance(t, T.ClassType):
            return _ModuleHandler(self, t)
        return _EnumHandler(t) if isinstance(t, T.EnumType) else None

    def plain(self, value: Any) -> Any:
        """A constant as code sees it."""
        return value.value if isinstance(value, CustomObject) else value

    def adopt(self, value: Any, t: T.Type, what: str) -> Any:
        """The run-time value of type ``t`` for a pickled one; containers stay the same object. Raises Malformed."""
        adopted = self._adopt(value, t)
        if adopted is _MISFIT:
            raise Malformed(f"{what} is declared as {t.annotation()} but the file holds a {describe(value)}")
        return adopted

    def _adopt(self, value: Any, t: T.Type) -> Any:
        if isinstance(value, CustomObject):
            return value.value
        if isinstance(t, T.ClassType) and t.name.startswith(CUSTOM_CLASSES):
            return value
        if isinstance(t, T.OptionalType):
            return None if value is None else self._adopt(value, t.element)
        if isinstance(t, T.TupleType) and type(value) is tuple and len(value) == len(t.elements):
            items = [self._adopt(v, e) for v, e in zip(value, t.elements, strict=True)]
            if any(i is _MISFIT for i in items):
                return _MISFIT
            if t.name is not None:
                return namedtuple_class(t)(*items)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else tuple(items)
        if isinstance(t, T.ListType) and type(value) is list:
            for i, v in enumerate(value):
                new = self._adopt(v, t.element)
                if new is _MISFIT:
                    return _MISFIT
                value[i] = new
            return value
        if isinstance(t, T.DictType) and type(value) is dict:
            for k, v in list(value.items()):
                new = self._adopt(v, t.value)
                if new is _MISFIT or not has_type(k, t.key):
                    return _MISFIT
                value[k] = new
            return value
        if type(value) is int:
            if t == T.FLOAT:
                return float(value)
            if not is_int64(value):
                return _MISFIT
        if t == T.COMPLEX and type(value) in (int, float):
            return complex(value)
        if t == T.DEVICE and self.resolver.map_device is not None and has_type(value, t):
            return parse_device(self.resolver.map_device(str(value)))
        if t in (T.GENERATOR, T.STREAM, T.ANY):
            return value
        return value if has_type(value, t) else _MISFIT


_MISFIT = object()
