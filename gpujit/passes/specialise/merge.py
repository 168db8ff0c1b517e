"""What is known after a branch or loop that stays: what both ways agree on, and results of the node for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.types import TensorType
from gpujit.passes.specialise.evaluator import Evaluator, plain_type
from gpujit.passes.specialise.values import Abstract, Blank, Dyn, Ref, State, Task, Tup, is_within, same


class Conflict(Exception):
    """These objects were changed in different ways: they have to exist at run time before the branch."""

    def __init__(self, refs: Sequence[Ref]) -> None:
        super().__init__()
        self.refs = refs


class Merge:
    """The state after a ``prim::If`` whose two blocks were emitted.

    Args:
        made: the node; results are added to it.
        base: the state before it.
        ends: for each block what it returned, None when it always raises, and the state at its end.
    """

    def __init__(
        self, ev: Evaluator, made: Node, base: State, ends: Sequence[tuple[list[Abstract] | None, State]]
    ) -> None:
        self.ev, self.made, self.base = ev, made, base
        self.results = [results for results, _ in ends]
        self.states = [state for _, state in ends]
        self.reached = [results is not None for results in self.results]
        self.after = State()
        self.conflicts: dict[Ref, None] = {}
        self._pairs: dict[tuple[Any, Any], Abstract] = {}

    def run(self, types: Sequence[T.Type]) -> list[Abstract]:
        """The results of the branch; ``ev.state`` is then the merged state. Raises Conflict."""
        self._find_conflicts()
        if self.conflicts:
            raise Conflict(list(self.conflicts))
        self._simple_state()
        outputs = [self.value(self._result(0, i), self._result(1, i), t) for i, t in enumerate(types)]
        self._contents()
        self._attributes()
        if self.conflicts:
            raise Conflict(list(self.conflicts))
        self.ev.state = self.after
        return outputs

    def _result(self, side: int, index: int) -> Abstract | None:
        results = self.results[side]
        return None if results is None else results[index]

    # --------------------------------------------------------------------------------------------------- state

    def _live(self) -> list[State]:
        return [s for s, reached in zip(self.states, self.reached, strict=True) if reached]

    def _find_conflicts(self) -> None:
        base = self.base
        for state in self._live():
            for ref in state.places:
                if ref not in base.places and ref not in self.ev.owners and self._existed(ref):
                    self.conflicts[ref] = None
        live = self._live()
        if len(live) < 2:
            return
        for ref in base.contents:
            a, b = (state.contents.get(ref) for state in live)
            if a is not b and ref not in base.places and not self._alike(a, b):
                self.conflicts[ref] = None

    def _existed(self, ref: Ref) -> bool:
        return ref in self.base.contents or ref in self.base.places

    @staticmethod
    def _alike(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
        """Whether two contents have the same length and keys."""
        if a is None or b is None or len(a) != len(b):
            return False
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, tuple)]
        return all(type(x[0]) is type(y[0]) and x[0] == y[0] for x, y in pairs)

    def _simple_state(self) -> None:
        live = self._live() or [self.base]
        self.after.places = dict(self.base.places)
        self.after.arrays = {
            value: array for value, array in live[0].arrays.items() if all(s.arrays.get(value) is array for s in live)
        }
        self.after.renamed = dict(self.base.renamed)
        self.after.spoiled = self.base.spoiled.union(*(state.spoiled for state in live))
        for state in live:
            for old, new in state.renamed.items():
                if self.base.renamed.get(old) is not new and not is_within(old, self.made):
                    # Its shape was changed in one of the blocks.
                    self.after.renamed[old] = self.ev.untyped(old)

    def _contents(self) -> None:
        live = self._live()
        for ref in self.base.contents:
            found = [state.contents.get(ref) for state in live]
            if not found:
                continue
            if any(c is None for c in found):
                continue
            if len(found) == 1 or self._alike(found[0], found[1]):
                self.after.contents[ref] = self._merged(ref, found)

    def _merged(self, ref: Ref, found: Sequence[tuple[Any, ...] | None]) -> tuple[Any, ...]:
        sides: list[Any] = [None, None]
        at = iter(found)
        for side in (0, 1):
            if self.reached[side]:
                sides[side] = next(at)
        if sides[0] is sides[1]:
            return sides[0]  # type: ignore[no-any-return]
        first = sides[0] if sides[0] is not None else sides[1]
        a = sides[0] if sides[0] is not None else (None,) * len(first)
        b = sides[1] if sides[1] is not None else (None,) * len(first)
        if isinstance(ref.type, T.DictType):
            t = ref.type.value
            return tuple(
                (key, self.value(None if x is None else x[1], None if y is None else y[1], t))
                for (key, _), x, y in zip(first, a, b, strict=True)
            )
        t = ref.type.element if isinstance(ref.type, T.ListType) else T.ANY
        return tuple(self.value(x, y, t) for x, y in zip(a, b, strict=True))

    def _attributes(self) -> None:
        live = self._live()
        if not live:
            self.after.attributes, self.after.stale = dict(self.base.attributes), dict(self.base.stale)
            return
        for key in dict.fromkeys(k for state in live for k in (*state.attributes, *state.stale)):
            ref, _ = key
            visible = ref in self.base.places or ref in self.ev.owners
            values = [state.attributes.get(key) for state in live]
            stale = [state.stale.get(key) for state in live]
            before = self.base.attributes.get(key)
            if all(v is before for v in values) and before is not None:
                self.after.attributes[key] = before
                if key in self.base.stale:
                    self.after.stale[key] = self.base.stale[key]
                continue
            if visible:
                if all(s is None for s in stale):
                    continue  # read for the first time inside; read again when it is needed
                self.after.stale[key] = self._joined_type(key, live)
                continue
            if not self._existed(ref):
                if len(live) == 1 and values[0] is not None:
                    self.after.attributes[key] = self._of_sides(values[0], None, self._declared(key))
                continue
            a = self.states[0].attributes.get(key) if self.reached[0] else None
            b = self.states[1].attributes.get(key) if self.reached[1] else None
            if any(v is None for v in values):
                self.conflicts[ref] = None
                continue
            self.after.attributes[key] = self.value(a, b, self._declared(key))

    def _of_sides(self, value: Abstract, other: None, t: T.Type) -> Abstract:
        return self.value(value, other, t) if self.reached[0] else self.value(other, value, t)

    @staticmethod
    def _declared(key: tuple[Ref, str]) -> T.Type:
        t = key[0].type
        return t.attributes.get(key[1], T.ANY) if isinstance(t, T.ClassType) else T.ANY

    def _joined_type(self, key: tuple[Ref, str], live: Sequence[State]) -> T.Type:
        declared = self._declared(key)
        if not isinstance(declared, TensorType):
            return declared
        found: T.Type | None = None
        for state in live:
            known = state.attributes.get(key)
            t = known.type if known is not None else state.stale.get(key, T.TENSOR)
            if not isinstance(t, TensorType):
                return declared
            found = t if found is None else self.ev.join(found, t)
        return found or declared

    # -------------------------------------------------------------------------------------------------- values

    def value(self, a: Abstract | None, b: Abstract | None, t: T.Type) -> Abstract:
        """One value for what each block gives; None stands for a block that does not get there."""
        if isinstance(a, Blank):
            a = None
        if isinstance(b, Blank):
            b = None
        if a is None and b is None:
            return Blank(t)
        if a is not None and b is not None and same(a, b):
            return self._outside(a, t)
        key = (self._identity(a), self._identity(b))
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = self._merge(a, b, t)
        return found

    @staticmethod
    def _identity(known: Abstract | None) -> Any:
        return known.value if isinstance(known, Dyn) else id(known)

    def _outside(self, known: Abstract, t: T.Type) -> Abstract:
        """A value both blocks give, and which was there before."""
        return known

    def _merge(self, a: Abstract | None, b: Abstract | None, t: T.Type) -> Abstract:
        one = a if a is not None else b
        assert one is not None
        if (a is None or b is None) and self._is_outside(one):
            return one
        if isinstance(one, Tup) and all(
            x is None or (isinstance(x, Tup) and plain_type(x.type) == plain_type(one.type)) for x in (a, b)
        ):
            parts = [
                self.value(a.items[i] if isinstance(a, Tup) else None, b.items[i] if isinstance(b, Tup) else None, e)
                for i, e in enumerate(one.type.elements)
            ]
            return Tup(tuple(parts), one.type)
        if isinstance(one, Ref) and all(x is None or self._is_fresh(x, side) for side, x in enumerate((a, b))):
            contents = [
                None if x is None else self.states[side].contents.get(x)  # type: ignore[arg-type]
                for side, x in enumerate((a, b))
            ]
            known = [c for c in contents if c is not None]
            if len(known) == sum(x is not None for x in (a, b)) and (len(known) == 1 or self._alike(*known)):
                ref = Ref(one.type)
                self._pairs[self._identity(a), self._identity(b)] = ref
                self.after.contents[ref] = self._merged(ref, known)
                return ref
        if isinstance(a, Task) or isinstance(b, Task):
            raise Conflict(())
        return self._result_of_node(a, b, t)

    def _is_outside(self, known: Abstract) -> bool:
        if isinstance(known, Dyn):
            return not is_within(known.value, self.made)
        if isinstance(known, Tup):
            return all(map(self._is_outside, known.items))
        if isinstance(known, Ref):
            return known in self.base.contents or known in self.base.places
        return True

    def _is_fresh(self, known: Abstract, side: int) -> bool:
        """Whether a list or dict was made in the block and nothing outside can have it."""
        return (
            isinstance(known, Ref)
            and isinstance(known.type, (T.ListType, T.DictType))
            and known not in self.base.contents
            and known not in self.base.places
            and known not in self.states[side].places
        )

    def _result_of_node(self, a: Abstract | None, b: Abstract | None, t: T.Type) -> Abstract:
        ev = self.ev
        values: list[Value] = []
        for side, known in enumerate((a, b)):
            block = self.made.blocks[side]
            outer, state = ev.block, ev.state
            ev.block, ev.state = block, self.states[side]
            try:
                values.append(ev.place(known if known is not None else Blank(t), t))
            finally:
                ev.block, ev.state = outer, state
            for ref in self.states[side].places:
                if ref not in self.base.places and ref not in ev.owners and self._existed(ref):
                    self.conflicts[ref] = None
        types = [v.type for v, known in zip(values, (a, b), strict=True) if known is not None]
        found = types[0] if len(types) == 1 else ev.join(types[0], types[1])
        if not T.is_subtype(found, t) or not isinstance(found, TensorType):
            found = t if all(T.is_subtype(x, t) for x in types) else found
        for side, (value, known) in enumerate(zip(values, (a, b), strict=True)):
            if known is None:
                value.type = found
            self.made.blocks[side].add_return(value)
        return Dyn(self.made.add_output(found))


class Template:
    """What a loop carries: values that stay the same, and holes for those that each turn may change.

    Holes are numbered through tuples; ``types`` are theirs.
    """

    def __init__(self, carried: Sequence[Abstract]) -> None:
        self.shape: list[Any] = [_Kept(v) for v in carried]
        self.types: list[T.Type] = []

    def holes(self, values: Sequence[Abstract]) -> list[Abstract]:
        """The parts of ``values`` that stand where the holes are."""
        return [part for shape, value in zip(self.shape, values, strict=True) for part in _cut(shape, value)]

    def fill(self, values: Sequence[Abstract]) -> list[Abstract]:
        """What is carried, with ``values`` in the holes."""
        source = iter(values)
        return [_filled(shape, source) for shape in self.shape]

    def widen(self, ev: Evaluator, results: Sequence[Abstract], declared: Sequence[T.Type]) -> bool:
        """Make holes of what a turn changed, and their types hold what it gives; whether nothing had to change."""
        before = (repr(self.shape), [str(t) for t in self.types])
        self.shape = [_widened(ev, s, r, d) for s, r, d in zip(self.shape, results, declared, strict=True)]
        self.types = [hole.type for shape in self.shape for hole in _holes(shape)]
        return (repr(self.shape), [str(t) for t in self.types]) == before


class _Kept:
    def __init__(self, value: Abstract) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "kept"


class _Hole:
    def __init__(self, t: T.Type) -> None:
        self.type = t

    def __repr__(self) -> str:
        return "hole"


class _Parts:
    def __init__(self, items: list[Any], t: T.TupleType) -> None:
        self.items, self.type = items, t

    def __repr__(self) -> str:
        return repr(self.items)


def _holes(shape: Any) -> Iterator[_Hole]:
    if isinstance(shape, _Hole):
        yield shape
    elif isinstance(shape, _Parts):
        for item in shape.items:
            yield from _holes(item)


def _cut(shape: Any, value: Abstract) -> Iterator[Abstract]:
    if isinstance(shape, _Hole):
        yield value
    elif isinstance(shape, _Parts):
        assert isinstance(value, Tup)
        for item, part in zip(shape.items, value.items, strict=True):
            yield from _cut(item, part)


def _filled(shape: Any, values: Iterator[Abstract]) -> Abstract:
    if isinstance(shape, _Hole):
        return next(values)
    if isinstance(shape, _Parts):
        return Tup(tuple(_filled(item, values) for item in shape.items), shape.type)
    assert isinstance(shape, _Kept)
    return shape.value


def _widened(ev: Evaluator, shape: Any, result: Abstract, declared: T.Type) -> Any:
    if isinstance(shape, _Kept):
        if isinstance(result, Blank) or same(shape.value, result):
            return shape
        start = shape.value
        if isinstance(start, Tup) and isinstance(result, Tup) and len(start.items) == len(result.items):
            items = [
                _widened(ev, _Kept(x), y, e)
                for x, y, e in zip(start.items, result.items, start.type.elements, strict=True)
            ]
            return _Parts(items, start.type)
        if isinstance(start, Blank):
            return _Hole(_held(ev, result.type, result.type, declared))
        return _Hole(_held(ev, start.type, result.type, declared))
    if isinstance(shape, _Parts):
        if isinstance(result, Tup) and len(result.items) == len(shape.items):
            return _Parts(
                [_widened(ev, s, y, e) for s, y, e in zip(shape.items, result.items, shape.type.elements, strict=True)],
                shape.type,
            )
        return _Hole(declared)
    if isinstance(result, Blank):
        return shape
    return _Hole(_held(ev, shape.type, result.type, declared))


def _held(ev: Evaluator, a: T.Type, b: T.Type, declared: T.Type) -> T.Type:
    found = ev.join(a, b)
    return found if isinstance(found, TensorType) or not T.is_subtype(found, declared) else declared
