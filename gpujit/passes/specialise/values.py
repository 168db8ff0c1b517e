"""What is known of a value while a graph is specialised, and the state of everything that programs can change.

A value is ``Known`` (a number, text, None, device, enum member, function), a ``Tup`` of values, a ``Ref`` to a list,
dict or object, a ``Dyn`` (read at run time from a value of the new graph), a ``Task`` (a fork's result) or ``Blank``
(what no run reads). What a Ref points to is kept in ``State``, whose dicts hold nothing that changes: a copy of them is
a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.values import Array


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A value that cannot change and is known now."""

    value: Any
    type: T.Type


@dataclass(frozen=True, slots=True, eq=False)
class Tup:
    """A tuple or NamedTuple."""

    items: tuple[Abstract, ...]
    type: T.TupleType


@dataclass(slots=True, eq=False)
class Ref:
    """One list, dict or object; two Refs are two of them. ``path`` names it in guards."""

    type: T.Type
    path: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Dyn:
    """What a value of the new graph holds at run time."""

    value: Value

    @property
    def type(self) -> T.Type:
        """The type of that value."""
        return self.value.type


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A future or awaitable whose work is done already."""

    value: Abstract
    type: T.Type


@dataclass(frozen=True, slots=True, eq=False)
class Blank:
    """What no run reads: ``prim::Uninitialized``, results of code that is never reached."""

    type: T.Type


Abstract = Known | Tup | Ref | Dyn | Task | Blank


@dataclass(slots=True)
class State:
    """What programs can change.

    Args:
        contents: elements of lists; pairs of key and value for dicts. A Ref that is missing has contents nobody knows,
            and is then in ``places``.
        places: the value of the new graph that holds the object itself, for those that exist at run time: from outside,
            or because the program let them out. Every change is made there too.
        attributes: by object and name, as last read or written.
        stale: attributes that no longer have the value they had when the graph was specialised.
        arrays: small tensors whose numbers are known, by the value that holds them.
        renamed: a tensor whose shape was changed in place, and the value that has its new type.
        spoiled: kinds of containers of which any that was not met so far may have been changed.
    """

    contents: dict[Ref, tuple[Any, ...]] = field(default_factory=dict)
    places: dict[Ref, Value] = field(default_factory=dict)
    attributes: dict[tuple[Ref, str], Abstract] = field(default_factory=dict)
    stale: dict[tuple[Ref, str], T.Type] = field(default_factory=dict)
    arrays: dict[Value, Array] = field(default_factory=dict)
    renamed: dict[Value, Value] = field(default_factory=dict)
    spoiled: frozenset[type] = frozenset()

    def copy(self) -> State:
        """A snapshot."""
        return State(
            dict(self.contents), dict(self.places), dict(self.attributes),
            dict(self.stale), dict(self.arrays), dict(self.renamed), self.spoiled,
        )  # fmt: skip


def same(a: Abstract, b: Abstract) -> bool:
    """Whether two values are surely one and the same."""
    if a is b:
        return True
    if isinstance(a, Known) and isinstance(b, Known):
        return same_constant(a.value, b.value)
    if isinstance(a, Dyn) and isinstance(b, Dyn):
        return a.value is b.value
    if isinstance(a, Tup) and isinstance(b, Tup):
        return a.type == b.type and len(a.items) == len(b.items) and all(map(same, a.items, b.items))
    return False


def same_constant(a: Any, b: Any) -> bool:
    """Whether two Python values are the same: 1, 1.0 and True differ, as do 0.0 and -0.0; NaN is NaN."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return repr(a) == repr(b) if isinstance(a, (float, complex)) else bool(a == b)


def constant_key(value: Any) -> Any:
    """What is equal for values that are the same; None when the value can only be told by identity."""
    if isinstance(value, (bool, int, str, type(None))):
        return (type(value), value)
    if isinstance(value, (float, complex)):
        return (type(value), repr(value))
    if isinstance(value, (list, tuple)):
        keys = tuple(map(constant_key, value))
        return None if None in keys else (type(value), keys)
    try:
        hash(value)
    except TypeError:
        return None
    return (type(value), value)


def parts(value: Abstract) -> Iterator[Abstract]:
    """The value and, through tuples, all its parts."""
    yield value
    if isinstance(value, Tup):
        for item in value.items:
            yield from parts(item)


def is_within(value: Value, node: Node) -> bool:
    """Whether a value is defined inside a block of ``node``."""
    block = value.node.block
    while block is not None and block.owner is not None:
        if block.owner is node:
            return True
        block = block.owner.block
    return False


# What the type of a Python value is when no annotation says it.
_TYPES: dict[type, T.Type] = {
    bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STR, type(None): T.NONE,
}  # fmt: skip


def type_of_constant(value: Any, declared: T.Type) -> T.Type:
    """The type of a Python value: its own where Python's class says it, else the declared one."""
    return _TYPES.get(type(value), declared)
