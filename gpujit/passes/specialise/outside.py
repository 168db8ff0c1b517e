"""Values from outside the graph, inputs and attributes: what is known of them, and the guards that say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.values import ScriptObject
from gpujit.ops import table
from gpujit.passes.specialise.evaluator import Evaluator
from gpujit.passes.specialise.guards import (
    ContainerSpec,
    Guard,
    LargeSpec,
    NumbersSpec,
    ObjectSpec,
    SharingSpec,
    Spec,
    TensorSpec,
    ValueSpec,
)
from gpujit.passes.specialise.values import Abstract, Dyn, Ref, Tup

# Tensors in attributes whose numbers may be looked at have up to so many elements.
_FEW = 16


def may_be_looked_at(x: Any) -> bool:
    """Whether a tensor of an attribute is one on whose numbers plans may depend."""
    return bool(x.size <= _FEW) and x.dtype.kind in "biu"


@dataclass(frozen=True, slots=True)
class Outside:
    """Where a value comes from: its name, how to get at it when guards are checked, and what emits its reading."""

    path: str
    find: Callable[[Sequence[Any]], Any]
    place: Callable[[T.Type], Value]


def of_outside(
    ev: Evaluator, spec: Spec, t: T.Type, at: Outside, value: Any = None, *, guarded: bool = False
) -> Abstract:
    """What is known of a value from outside the graph.

    Args:
        value: the value itself, where there is one: lists and dicts are known again by it.
        guarded: whether a guard on a container around it holds already.
    """
    if isinstance(spec, ObjectSpec) and isinstance(spec.object, ScriptObject):
        return _object(ev, spec.object, t, at)
    if isinstance(spec, ObjectSpec):
        # Of objects of custom classes (packed weights) type rules may read sizes.
        ev.guards.setdefault(at.path, Guard(at.path, spec, at.find))
        held = at.place(t)
        ev.opaque[held] = spec.object
        return Dyn(held)
    if not guarded:
        ev.guards.setdefault(at.path, Guard(at.path, spec, at.find))
    if isinstance(spec, TensorSpec):
        found = at.place(spec.type)
        _note_top(ev, found)
        if value is not None and type(value) is np.ndarray and may_be_looked_at(value):
            # Its numbers may decide on shapes; a guard on them is needed only if they do.
            copied = value.copy()
            ev.note_array(found, copied)
            ev.exposed.add(found)
            ev.origins[found] = {at.path: Guard(at.path, NumbersSpec(copied), at.find)}
        return Dyn(found)
    if isinstance(spec, ValueSpec):
        return ev.wrap(spec.value, t)
    plain = t.element if isinstance(t, T.OptionalType) else t
    if isinstance(spec, LargeSpec):
        return _noted(ev, at, _large(ev, plain, at, value), value)
    if isinstance(spec, ContainerSpec) and isinstance(plain, T.TupleType):
        return _tuple(ev, spec, plain, at, value)
    if isinstance(spec, ContainerSpec) and isinstance(plain, (T.ListType, T.DictType)):
        return _noted(ev, at, _container(ev, spec, plain, at, value), value)
    return Dyn(at.place(t))


def _noted(ev: Evaluator, at: Outside, ref: Ref, value: Any) -> Ref:
    """Remember where a container was met; those of inputs are objects of their own."""
    ev.containers[at.path] = id(ref if value is None else value), at.find
    return ref


def sharing(ev: Evaluator) -> Guard | None:
    """Which containers from outside are one object, when there are several: what is done to one is done to it."""
    if len(ev.containers) < 2:
        return None
    objects = [identity for identity, _ in ev.containers.values()]
    finds = [find for _, find in ev.containers.values()]
    return Guard(
        f"the lists and dicts {', '.join(ev.containers)}",
        SharingSpec(tuple(map(objects.index, objects))),
        partial(_all_of, finds),
    )


def _all_of(finds: Sequence[Callable[[Sequence[Any]], Any]], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([find(values) for find in finds])


def _note_top(ev: Evaluator, value: Value) -> None:
    """Remember a value just made if it stands at the top of the graph."""
    if value.node.next is ev.anchor:
        ev.at_top.add(value)


def _object(ev: Evaluator, value: ScriptObject, t: T.Type, at: Outside) -> Ref:
    ref = ev.refs.get(id(value))
    if ref is None:
        ref = ev.refs[id(value)] = Ref(value.type, at.path)
        ev.owners[ref], ev.find[ref] = value, at.find
        ev.readers[ref] = partial(_placed, ev, at.place, value.type)
        if not value.type.is_module or not isinstance(t, T.ClassType):
            ev.guards.setdefault(at.path, Guard(at.path, ObjectSpec(value), at.find))
    ev.place(ref)
    return ref


def _placed(ev: Evaluator, place: Callable[[T.Type], Value], t: T.Type) -> Value:
    found = place(t)
    _note_top(ev, found)
    return found


def _tuple(ev: Evaluator, spec: ContainerSpec, t: T.TupleType, at: Outside, value: Any) -> Tup:
    taken = _Taken(ev, at.place, t, "prim::TupleUnpack", t.elements)
    items = []
    for i, (inner, element) in enumerate(zip(spec.items, t.elements, strict=True)):
        part = Outside(f"{at.path}[{i}]", partial(_item_of, at.find, i), partial(taken.item, i))
        items.append(of_outside(ev, inner, element, part, None if value is None else value[i], guarded=True))
    return Tup(tuple(items), t)


def _container(ev: Evaluator, spec: ContainerSpec, t: T.ListType | T.DictType, at: Outside, value: Any) -> Ref:
    ref = ev.refs.get(id(value)) if value is not None else None
    if ref is not None or type(t) in ev.state.spoiled:
        # One that was first met in a branch or loop may have been changed there.
        return _large(ev, t, at, value)
    ref = Ref(t, at.path)
    if value is not None:
        ev.refs[id(value)] = ref
    if isinstance(t, T.ListType):
        taken = _Taken(ev, at.place, t, "prim::ListUnpack", (t.element,) * len(spec.items))
        ev.state.places[ref] = taken.whole()
        items = []
        for i, inner in enumerate(spec.items):
            part = Outside(f"{at.path}[{i}]", partial(_item_of, at.find, i), partial(taken.item, i))
            items.append(of_outside(ev, inner, t.element, part, None if value is None else value[i], guarded=True))
        ev.state.contents[ref] = ev.met[ref] = tuple(items)
        return ref
    whole = ev.state.places[ref] = at.place(t)
    if any(not isinstance(k, (bool, int, float, str)) for k in spec.keys):
        return ref
    pairs = []
    for key, inner in zip(spec.keys, spec.items, strict=True):
        part = Outside(f"{at.path}[{key!r}]", partial(_item_of, at.find, key), partial(_dict_item, ev, whole, t, key))
        pairs.append((key, of_outside(ev, inner, t.value, part, None if value is None else value[key], guarded=True)))
    ev.state.contents[ref] = ev.met[ref] = tuple(pairs)
    return ref


def _large(ev: Evaluator, t: T.Type, at: Outside, value: Any) -> Ref:
    ref = ev.refs.get(id(value)) if value is not None else None
    if ref is None or ref not in ev.state.places:
        ref = Ref(t, at.path)
        if value is not None:
            ev.refs[id(value)] = ref
        ev.state.places[ref] = at.place(t)
    return ref


def _item_of(find: Callable[[Sequence[Any]], Any], key: Any, values: Sequence[Any]) -> Any:
    return find(values)[key]


def _dict_item(ev: Evaluator, whole: Value, t: T.DictType, key: Any, element: T.Type) -> Value:
    op = table.by_full_name(f"aten::__getitem__.Dict_{t.key}")
    assert op is not None
    node = ev.emit(op.name, [whole, ev.constant(key, t.key)], None)
    node.schema = op.schema
    return node.add_output(element)


class _Taken:
    """The parts of a tuple or list from outside, taken apart at run time when the first of them is read."""

    def __init__(
        self, ev: Evaluator, place: Callable[[T.Type], Value], t: T.Type, kind: str, elements: Sequence[T.Type]
    ) -> None:
        self.ev, self.place, self.type, self.kind, self.elements = ev, place, t, kind, elements
        self._whole: Value | None = None
        self._node: Node | None = None

    def whole(self) -> Value:
        """The container itself."""
        if self._whole is None:
            self._whole = self.place(self.type)
        return self._whole

    def item(self, index: int, t: T.Type) -> Value:
        """One part, of the type found."""
        if self._node is None:
            whole = self.whole()
            self._node = self.ev.emit(self.kind, [whole], None)
            for element in self.elements:
                self._node.add_output(element)
        value = self._node.outputs[index]
        value.type = t
        return value
