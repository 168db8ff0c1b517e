"""Constants as serialized source writes them: literals, or places in the archive's table of constants."""

from __future__ import annotations

import math
from typing import Any

from gpujit.frontend.literals import type_of_constant
from gpujit.ir import types as T
from gpujit.ir.module import Function
from gpujit.ir.values import Device, EnumValue
from gpujit.serialization.naming import CUSTOM_CLASSES, TypeNames
from gpujit.support.errors import SaveError

_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def quoted(text: str) -> str:
    """A string literal of ASCII text."""
    parts = []
    for c in text:
        parts.append(_ESCAPES.get(c) or (c if " " <= c <= "~" else f"\\{ord(c):03o}"))
    return '"' + "".join(parts) + '"'


def number(value: float) -> str:
    """A float literal; infinities and NaN have names."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text[:-1] if text.endswith(".0") else text


class Literals:
    """Writes constants, and collects those that have no literal: tensors, texts beyond ASCII, objects."""

    def __init__(self, names: TypeNames) -> None:
        self.names = names
        self.values: list[Any] = []
        self.types: list[T.Type] = []
        self._places: dict[Any, int] = {}

    def text(self, value: Any, type_: T.Type) -> str:
        """The expression for a constant of a type. Raises SaveError for what no constant can be."""
        if value is None:
            return "None" if type_ in (T.NONE, T.ANY) else f"annotate({self.names.text(type_)}, None)"
        if isinstance(value, bool):
            return str(value)
        if isinstance(value, int):
            return f"{value}." if type_ == T.FLOAT else str(value)
        if isinstance(value, float):
            return number(value)
        if isinstance(value, complex):
            return _complex(value)
        if isinstance(value, str):
            return quoted(value) if value.isascii() else self.stored(value, T.STR)
        if isinstance(value, Device):
            return f'torch.device("{value}")'
        if isinstance(value, EnumValue):
            return f"{self.names.name(value.type)}.{value.name}"
        if isinstance(value, Function):
            return self.names.name(value)
        if isinstance(value, (list, tuple, dict)):
            return self._container(value, type_)
        found = type_of_constant(value)
        if found is not None:
            return self.stored(value, found)
        if isinstance(type_, T.ClassType) and type_.name.startswith(CUSTOM_CLASSES):
            return self.stored(value, type_)
        raise SaveError(
            f"a constant of type {type_} holds a {type(value).__module__}.{type(value).__qualname__}, which cannot "
            "be saved",
            code="save-value",
        )

    def stored(self, value: Any, type_: T.Type) -> str:
        """The name of a value in the table of constants; one object has one place."""
        key = value if isinstance(value, str) else id(value)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.values)
            self.values.append(value)
            self.types.append(type_)
            # What the table of constants holds must be defined as well.
            self.names.text(type_)
        return f"CONSTANTS.c{place}"

    def _container(self, value: Any, type_: T.Type) -> str:
        members = [m for m in T.members_of(type_) if m != T.NONE]
        t = members[0] if len(members) == 1 else type_of_constant(value)
        if isinstance(value, list) and isinstance(t, T.ListType):
            text = "[" + ", ".join(self.text(v, _plain(v, t.element)) for v in value) + "]"
            found = type_of_constant(value)
            plain = bool(value) and isinstance(found, T.ListType) and self._same(found.element, t.element)
            return text if plain or (not value and t.element == T.TENSOR) else f"annotate({self.names.text(t)}, {text})"
        if isinstance(value, dict) and isinstance(t, T.DictType):
            pairs = (
                f"{self.text(k, t.key)}: {self.text(v, _plain(v, t.value))}" for k, v in value.items()
            )
            text = "{" + ", ".join(pairs) + "}"
            found = type_of_constant(value)
            return text if found is not None and self._same(found, t) else f"annotate({self.names.text(t)}, {text})"
        if isinstance(value, tuple) and isinstance(t, T.TupleType) and len(t.elements) == len(value):
            items = [self.text(v, _plain(v, e)) for v, e in zip(value, t.elements, strict=True)]
            if t.name is not None:
                return f"{self.names.name(t)}({', '.join(items)})"
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        raise SaveError(f"a constant declared as {type_} holds a {type(value).__name__}", code="save-value")

    def _same(self, a: T.Type, b: T.Type) -> bool:
        return self.names.text(a) == self.names.text(b)


def _plain(value: Any, t: T.Type) -> T.Type:
    """The type of an item: without what the container adds to it."""
    return T.NONE if value is None else t


def _complex(value: complex) -> str:
    real, imaginary = number(value.real), number(value.imag)
    sign = "" if imaginary.startswith("-") else "+"
    # 'infj' and 'nanj' are names of their own.
    return f"{real}{sign}{imaginary}j"
