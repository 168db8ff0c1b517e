"""TorchScript archives written from source text and Python values, without PyTorch. PyTorch loads them too."""

from __future__ import annotations

import struct
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tests.serialization import archives as a
from tests.serialization.archives import Entry

_STORAGES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


@dataclass(eq=False)
class Obj:
    """An object of a scripted class, with its attributes (or the state its __setstate__ takes)."""

    cls: str
    attributes: Any = field(default_factory=dict)


@dataclass(eq=False)
class Member:
    """A member of an enum, by value."""

    cls: str
    value: Any


@dataclass(eq=False)
class Typed:
    """A list or dict with its type written beside it, such as ``List[str]``."""

    value: Any
    type: str


@dataclass(eq=False)
class View:
    """A tensor over a flat array's storage; numbers in elements. Views of one array object share the storage."""

    flat: np.ndarray
    size: Sequence[int]
    stride: Sequence[int]
    offset: int = 0
    device: str = "cpu"


@dataclass(eq=False)
class Place:
    """``torch.device(text)``."""

    text: str


class _Pickler:
    """Opcodes of Python values; arrays and objects met twice are referred to, as PyTorch's pickler does."""

    def __init__(self, byteorder: str) -> None:
        self.storages: dict[str, bytes] = {}
        self._byteorder = byteorder
        self._keys: dict[int, str] = {}
        self._memo: dict[int, int] = {}
        self._kept: list[Any] = []

    def remember(self, value: Any) -> bytes:
        self._memo[id(value)] = len(self._memo)
        self._kept.append(value)
        return b"r" + struct.pack("<I", self._memo[id(value)])

    def value(self, v: Any) -> bytes:
        if id(v) in self._memo:
            return b"j" + struct.pack("<I", self._memo[id(v)])
        if v is None:
            return b"N"
        if isinstance(v, bool):
            return b"\x88" if v else b"\x89"
        if isinstance(v, int):
            return a.integer(v)
        if isinstance(v, float):
            return b"G" + struct.pack(">d", v)
        if isinstance(v, complex):
            return a.name("builtins", "complex") + a.tuple_of(self.value(v.real), self.value(v.imag)) + b"R"
        if isinstance(v, str):
            return a.text(v)
        if isinstance(v, tuple):
            return a.tuple_of(*map(self.value, v))
        if isinstance(v, list):
            return self.list_(v)
        if isinstance(v, dict):
            return b"}(" + b"".join(self.value(k) + self.value(x) for k, x in v.items()) + b"u"
        if isinstance(v, np.ndarray):
            strides = tuple(s // v.itemsize for s in v.strides)
            return self.tensor(View(v, v.shape, strides)) + self.remember(v)
        if isinstance(v, View):
            return self.tensor(v) + self.remember(v)
        if isinstance(v, Obj):
            new = a.name(*v.cls.rsplit(".", 1)) + b")\x81" + self.remember(v)
            return new + self.value(v.attributes) + b"b"
        if isinstance(v, Member):
            return a.name(*v.cls.rsplit(".", 1)) + self.value(v.value) + b"R"
        if isinstance(v, Typed):
            plain = (
                b"](" + b"".join(map(self.value, v.value)) + b"e" if isinstance(v.value, list) else self.value(v.value)
            )
            return (
                a.name("torch.jit._pickle", "restore_type_tag")
                + a.tuple_of(plain, a.text(v.type))
                + b"R"
                + self.remember(v)
            )
        if isinstance(v, Place):
            return a.name("torch", "device") + a.tuple_of(a.text(v.text)) + b"R"
        raise TypeError(type(v))

    def list_(self, v: list[Any]) -> bytes:
        items = b"](" + b"".join(map(self.value, v)) + b"e"
        kinds = {type(x) for x in v}
        builders = {bool: "boollist", int: "intlist", float: "doublelist", np.ndarray: "tensorlist"}
        if len(kinds) != 1 or (kind := kinds.pop()) not in builders:
            return items
        return a.name("torch.jit._pickle", "build_" + builders[kind]) + a.tuple_of(items) + b"R"

    def tensor(self, v: View) -> bytes:
        kind = _STORAGES["bfloat16" if v.flat.dtype == ml_dtypes.bfloat16 else v.flat.dtype.name]
        key = self._keys.get(id(v.flat))
        if key is None:
            key = self._keys[id(v.flat)] = str(len(self._keys))
            self._kept.append(v.flat)
            data = v.flat if self._byteorder == "little" else v.flat.byteswap()
            self.storages[key] = data.tobytes("A")
        return a.tensor(a.storage(key, kind, v.flat.size, v.device), v.size, v.stride, v.offset)


def archive_entries(
    source: str | Mapping[str, str],
    attributes: Any = None,
    *,
    version: int = 3,
    constants: Sequence[Any] = (),
    extra: Mapping[str, bytes | str] | None = None,
    debug: Mapping[str, bytes] | None = None,
    name: str = "m",
    byteorder: str = "little",
    root: str = "__torch__.M",
) -> list[Entry]:
    """The members of ``archive``'s file, to be changed before ``write_zip``."""
    files = {"__torch__.py": source} if isinstance(source, str) else source
    data, fixed = _Pickler(byteorder), _Pickler(byteorder)
    entries = [
        Entry(f"{name}/data.pkl", a.pickled(data.value(Obj(root, attributes or {})))),
        Entry(f"{name}/constants.pkl", a.pickled(fixed.value(tuple(constants)))),
    ]
    entries += [Entry(f"{name}/code/{path}", text.encode(), deflate=True) for path, text in files.items()]
    entries += [Entry(f"{name}/code/{path}.debug_pkl", raw) for path, raw in (debug or {}).items()]
    entries += [Entry(f"{name}/data/{key}", raw) for key, raw in data.storages.items()]
    entries += [Entry(f"{name}/constants/{key}", raw) for key, raw in fixed.storages.items()]
    entries += [
        Entry(f"{name}/extra/{key}", raw.encode() if isinstance(raw, str) else raw)
        for key, raw in (extra or {}).items()
    ]
    return [*entries, Entry(f"{name}/version", b"%d\n" % version), Entry(f"{name}/byteorder", byteorder.encode())]


def archive(source: str | Mapping[str, str], attributes: Any = None, **options: Any) -> bytes:
    """A TorchScript file.

    Args:
        source: text of code/__torch__.py, or texts by path below code/.
        attributes: of the root module, an object of ``__torch__.M``: ints, floats, strings, None, tuples, lists, dicts,
            arrays (each object one storage), and the classes of this file, nested as you like.
        options: version, constants, extra (files by name), debug (tables by path), name (of the top folder),
            byteorder, root.
    """
    return a.write_zip(archive_entries(source, attributes, **options))


def module(methods: str, attributes: str = "", *, parameters: Sequence[str] = (), buffers: Sequence[str] = ()) -> str:
    """The source of class ``M``: its attributes (lines ``name : type``) and methods."""
    head = ["class M(Module):", f"  __parameters__ = {_names(parameters)}", f"  __buffers__ = {_names(buffers)}"]
    body = [textwrap.indent(textwrap.dedent(text).strip("\n"), "  ") for text in (attributes, methods) if text.strip()]
    return "\n".join([*head, *body]) + "\n"


def _names(names: Sequence[str]) -> str:
    return "[" + "".join(f'"{n}", ' for n in names) + "]"


def forward(signature: str, body: str) -> str:
    """A ``forward`` method: ``forward("x: Tensor, n: int -> int", "return n")``; without an arrow it gives a Tensor."""
    arguments, arrow, returned = signature.partition("->")
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")
    parts = ", ".join(p for p in ("self: __torch__.M", arguments.strip()) if p)
    return f"def forward({parts}) -> {returned.strip() if arrow else 'Tensor'}:\n{lines}\n"
