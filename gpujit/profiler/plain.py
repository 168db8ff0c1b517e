"""Frozen dataclasses as types that JSON has, and back."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from gpujit.support.errors import ArgumentError


def as_plain(value: Any) -> Any:
    """A dataclass, a tuple or a list as dicts and lists, properties included."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: as_plain(getattr(value, f.name)) for f in fields(value)}
        found.update((name, as_plain(getattr(value, name))) for name in _properties(type(value)))
        return found
    if isinstance(value, (tuple, list)):
        return [as_plain(v) for v in value]
    return value


@cache
def _properties(kind: type) -> tuple[str, ...]:
    return tuple(name for name, found in vars(kind).items() if isinstance(found, property))


def from_plain(kind: Any, data: Any, where: str) -> Any:
    """A dataclass from a dict, whose other items do not count; what has a default may be absent.

    Raises ArgumentError that says where the fault lies.
    """
    if not isinstance(data, dict):
        raise ArgumentError(f"{where}: expected an object, found {type(data).__name__}")
    hints = _hints(kind)
    lacking = [f.name for f in fields(kind) if f.name not in data and f.default is MISSING]
    if lacking:
        raise ArgumentError(f"{where}: {', '.join(lacking)} is missing")
    return kind(**{n: _value(hint, data[n], f"{where}.{n}") for n, hint in hints.items() if n in data})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _value(hint: Any, data: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (types.UnionType, Union):
        if data is None:
            return None
        return _value(next(a for a in get_args(hint) if a is not type(None)), data, where)
    if origin is tuple:
        if not isinstance(data, (list, tuple)):
            raise ArgumentError(f"{where}: expected a list, found {type(data).__name__}")
        return tuple(_value(get_args(hint)[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    if is_dataclass(hint):
        return from_plain(hint, data, where)
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise ArgumentError(f"{where}: expected {hint.__name__}, found {type(data).__name__}")
    return data
