"""Locations of memory and inclusion constraints between sets of them, solved to a fixed point.

A set of locations is an int with a bit for each. Containers are locations too; what they hold is kept by field: the
position in a tuple, the attribute's name in an object, None (any) in lists and dicts. What comes from outside (inputs,
attributes, results of unknown calls) has a location for each type.
Source: Andersen 1994, "Program Analysis and Specialization for the C Programming Language", chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gpujit.ir import types as T

Locations = int
Field = int | str | None

# What a location can be. "any" passes every filter.
CATEGORIES = ("tensor", "list", "dict", "tuple", "object", "box", "other", "any")
_CONTAINERS = ("list", "dict", "tuple", "object", "box", "any")

_IMMUTABLE = frozenset(
    (
        T.INT, T.FLOAT, T.COMPLEX, T.BOOL, T.NUMBER, T.STR, T.NONE, T.DEVICE, T.FUNCTION, T.QSCHEME, T.ANY_ENUM,
    )
)  # fmt: skip
_SPECIAL: dict[T.Type, tuple[str, ...]] = {
    T.ANY: CATEGORIES, T.UNKNOWN: CATEGORIES, T.ANY_LIST: ("list",), T.ANY_TUPLE: ("tuple",),
    T.ANY_CLASS: ("object",),
}  # fmt: skip
# Their values are those of other types.
_NO_LOCATION = (T.OptionalType, T.UnionType, T.InterfaceType, T.VarType)


def bits(mask: Locations) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Copy(NamedTuple):
    target: int
    source: int
    allowed: Locations


class _Load(NamedTuple):
    target: int
    source: int
    field: Field
    allowed: Locations
    # What is read out of containers that come from outside: of inputs, and of the program's own attributes.
    given: Locations
    held: Locations


class _Store(NamedTuple):
    container: int
    source: int
    field: Field


class _Leak(NamedTuple):
    source: int


class _Arrive(NamedTuple):
    """The result of an unknown call: anything from outside, and whatever was given away."""

    target: int
    allowed: Locations


_Constraint = _Copy | _Load | _Store | _Leak | _Arrive


class Solver:
    """Variables that hold sets of locations, and the constraints on them.

    Args:
        frozen: attributes and constants share no memory with inputs.
    """

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen
        self.outside: Locations = 0
        # What the outside world got hold of: stored in its containers, or given to unknown calls.
        self.leaked: Locations = 0
        self.containers: Locations = 0
        self.contents: list[dict[Field, Locations]] = []
        self._category: dict[str, Locations] = dict.fromkeys(CATEGORIES, 0)
        self._categories_of: dict[T.Type, tuple[str, ...]] = {}
        self._from_outside: dict[tuple[Any, ...], int] = {}
        self._outside_types: dict[int, T.Type] = {}
        self._given: Locations = 0
        self._held: Locations = 0
        self._constant_locations: dict[int, int] = {}
        self._sets: list[Locations] = []
        self._constraints: list[_Constraint] = []
        self._pending: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._has_unknown = False

    @property
    def tuples(self) -> Locations:
        """Locations of tuples, which nothing can change or tell apart: only what they hold matters."""
        return self._category["tuple"]

    def reach(self, mask: Locations) -> Locations:
        """The locations and all they contain, at any depth."""
        todo = mask & self.containers
        while todo:
            found = 0
            for location in bits(todo):
                for held in self.contents[location].values():
                    found |= held
                kind = self._outside_types.get(location)
                if kind is not None:
                    found |= self._inside(kind)
            if self._has_unknown and todo & (self.outside | self.leaked):
                found |= self.outside | self.leaked
            todo = found & ~mask & self.containers
            mask |= found
        return mask

    def categories(self, t: T.Type) -> tuple[str, ...]:
        """What values of the type can be; empty when nothing in them can be changed or shared."""
        found = self._categories_of.get(t)
        if found is None:
            found = self._categories_of[t] = _categories(t)
        return found

    def outside_of(self, t: T.Type, origin: str) -> Locations:
        """Locations of what comes from outside as a value of the type."""
        mask = 0
        for member in T.members_of(t):
            categories = self.categories(member)
            if not categories:
                continue
            if member in _SPECIAL or isinstance(member, (T.InterfaceType, T.VarType)):
                whole = self.outside if not self.frozen else self._given if origin == "given" else self._held
                mask |= whole & self._allowed(member)
            else:
                mask |= 1 << self._outside_location(member, origin)
        if self.frozen and origin == "held" and "tensor" in self.categories(t):
            # An attribute that became a constant may still be read as an attribute.
            for location in self._constant_locations.values():
                mask |= 1 << location
        return mask

    # ----------------------------------------------------------------------------------------- locations, sets

    def _location(self, category: str) -> int:
        location = len(self.contents)
        bit = 1 << location
        self.contents.append({})
        self._category[category] |= bit
        if category in _CONTAINERS:
            self.containers |= bit
        return location

    def _outside_location(self, t: T.Type, origin: str) -> int:
        if not self.frozen:
            origin = ""
        key = (_key(t), origin)
        found = self._from_outside.get(key)
        if found is None:
            (category, *_) = self.categories(t)
            found = self._from_outside[key] = self._location(category)
            self._outside_types[found] = t
            self.outside |= 1 << found
            if origin == "given":
                self._given |= 1 << found
            elif origin == "held":
                self._held |= 1 << found
        return found

    def _inside(self, t: T.Type) -> Locations:
        """What a container from outside holds of the outside world."""
        children = t.children()
        if not children and self.categories(t) != ("tensor",):
            return self.outside | self.leaked
        mask = 0
        for child in children:
            mask |= self.outside_of(child, "given") | self.outside_of(child, "held")
        return mask

    def _allowed(self, t: T.Type) -> Locations:
        """All locations that a value of the type may point to."""
        mask = self._category["any"]
        for category in self.categories(t):
            mask |= self._category[category]
        return mask

    def _new_variable(self, locations: Locations = 0) -> int:
        self._sets.append(locations)
        return len(self._sets) - 1

    # --------------------------------------------------------------------------------------------- constraints

    def _copy(self, target: int, source: int, t: T.Type) -> None:
        self._pending.append((self._add_copy, (target, source, t)))

    def _add_copy(self, target: int, source: int, t: T.Type) -> None:
        self._constraints.append(_Copy(target, source, self._allowed(t)))

    def _load(self, target: int, source: int, field: Field, t: T.Type) -> None:
        self._pending.append((self._add_load, (target, source, field, t)))

    def _add_load(self, target: int, source: int, field: Field, t: T.Type) -> None:
        given, held = self.outside_of(t, "given"), self.outside_of(t, "held")
        self._constraints.append(_Load(target, source, field, self._allowed(t), given, held))

    def _store(self, container: int, source: int, field: Field) -> None:
        self._constraints.append(_Store(container, source, field))

    def _pass_through(self, target: int, source: int, t: T.Type) -> None:
        """``target`` may be ``source`` or anything directly inside it, as far as the type allows."""
        self._copy(target, source, t)
        self._load(target, source, None, t)

    def _solve(self, constraints: Sequence[_Constraint]) -> None:
        # Filters are taken once all locations are there.
        for add, arguments in self._pending:
            add(*arguments)
        self._pending.clear()
        sets, contents = self._sets, self.contents
        changed = True
        while changed:
            changed = False
            for c in constraints:
                if isinstance(c, _Copy):
                    new = sets[c.source] & c.allowed & ~sets[c.target]
                    if new:
                        sets[c.target] |= new
                        changed = True
                elif isinstance(c, _Load):
                    new = self._loaded(c) & ~sets[c.target]
                    if new:
                        sets[c.target] |= new
                        changed = True
                elif isinstance(c, _Store):
                    held, into = sets[c.source], sets[c.container] & self.containers
                    if not held:
                        continue
                    for location in bits(into):
                        fields = contents[location]
                        old = fields.get(c.field, 0)
                        if held & ~old:
                            fields[c.field] = old | held
                            changed = True
                    if into & (self.outside | self.leaked):
                        changed |= self._leak(held)
                elif isinstance(c, _Leak):
                    changed |= self._leak(sets[c.source])
                else:
                    new = (self.outside | self.leaked) & c.allowed & ~sets[c.target]
                    if new:
                        sets[c.target] |= new
                        changed = True
            if self.leaked:
                changed |= self._leak(self.leaked)

    def _loaded(self, c: _Load) -> Locations:
        source = self._sets[c.source] & self.containers
        if not source:
            return 0
        found = 0
        for location in bits(source):
            fields = self.contents[location]
            if not fields:
                continue
            if c.field is None:
                for held in fields.values():
                    found |= held
            else:
                found |= fields.get(c.field, 0) | fields.get(None, 0)
        if source & self.outside:
            if not self.frozen:
                found |= c.given
            else:
                if source & self._given:
                    found |= c.given
                if source & self._held:
                    found |= c.held
        if self._has_unknown and source & (self.outside | self.leaked):
            found |= self.outside | self.leaked
        return found & c.allowed

    def _leak(self, mask: Locations) -> bool:
        new = self.reach(mask) & ~self.leaked & ~self.outside
        self.leaked |= new
        return bool(new)

    def _give_away(self, source: int) -> None:
        self._constraints.append(_Leak(source))

    def _arrive(self, target: int, t: T.Type) -> None:
        self._pending.append((self._add_arrive, (target, t)))

    def _add_arrive(self, target: int, t: T.Type) -> None:
        self._constraints.append(_Arrive(target, self._allowed(t)))


def _categories(t: T.Type) -> tuple[str, ...]:
    if t in _IMMUTABLE or isinstance(t, T.EnumType):
        return ()
    special = _SPECIAL.get(t)
    if special is not None:
        return special
    if isinstance(t, T.TensorType):
        return ("tensor",)
    if isinstance(t, T.ListType):
        return ("list",)
    if isinstance(t, T.DictType):
        return ("dict",)
    if isinstance(t, T.TupleType):
        # A tuple cannot be changed; without anything changeable inside it is a plain value.
        return ("tuple",) if any(map(_categories, t.elements)) else ()
    if isinstance(t, (T.ClassType, T.InterfaceType)):
        return ("object",)
    if isinstance(t, T.BoxType):
        return ("box",)
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return tuple(dict.fromkeys(c for m in t.children() for c in _categories(m)))
    return CATEGORIES if isinstance(t, T.VarType) else ("other",)


def has_location(t: T.Type) -> bool:
    """Whether what comes from outside as a value of the type has a location of its own: not when it is a value of one
    of several other types."""
    return bool(_categories(t)) and t not in _SPECIAL and not isinstance(t, _NO_LOCATION)


def _key(t: T.Type) -> Any:
    """Equal for types whose values may be one object: what is known of tensors does not matter."""
    if isinstance(t, T.TensorType):
        return "tensor"
    if isinstance(t, T.TupleType):
        return ("tuple", *map(_key, t.elements))
    children = t.children()
    if children:
        return (type(t), *map(_key, children))
    return t
