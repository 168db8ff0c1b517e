"""The kinds of the language that hold no blocks: constants, containers, type tests, attributes, objects, enums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.types import TensorType
from gpujit.ir.values import EnumValue, ScriptObject
from gpujit.passes.specialise.evaluator import HANDLERS, Evaluator, Unreachable, handles, is_module_attribute
from gpujit.passes.specialise.guards import LargeSpec, is_array, spec_of
from gpujit.passes.specialise.outside import Outside, of_outside
from gpujit.passes.specialise.values import Abstract, Blank, Dyn, Known, Ref, Tup

# ------------------------------------------------------------------------------------------- constants and containers


@handles("prim::Constant")
def constant(ev: Evaluator, node: Node) -> None:
    """A constant: a list or dict becomes one whose elements are known."""
    ev.bind(node.output, of_constant(ev, node.attributes.get("value"), node.output.type))


def of_constant(ev: Evaluator, value: Any, t: T.Type) -> Abstract:
    """A constant's value. Tensors stay constants of the new graph."""
    if is_array(value):
        return ev.constant_tensor(value, t)
    if isinstance(value, (list, dict)):
        # One object for every read, as in the old graph.
        found = ev.constant(value, t)
        ref = ev.refs.get(id(value))
        if ref is None:
            ref = ev.refs[id(value)] = Ref(t)
            element = t.element if isinstance(t, T.ListType) else t.value if isinstance(t, T.DictType) else T.ANY
            if isinstance(value, list):
                ev.state.contents[ref] = tuple(of_constant(ev, v, element) for v in value)
            else:
                ev.state.contents[ref] = tuple((k, of_constant(ev, v, element)) for k, v in value.items())
            ev.state.places[ref] = found
        return ref
    if isinstance(value, tuple) and isinstance(t, T.TupleType):
        return Tup(tuple(of_constant(ev, v, e) for v, e in zip(value, t.elements, strict=True)), t)
    if isinstance(value, ScriptObject):
        return Dyn(ev.constant(value, t))
    return ev.wrap(value, t)


@handles("prim::ListConstruct")
def list_construct(ev: Evaluator, node: Node) -> None:
    """A new list."""
    ev.bind(node.output, ev.new(tuple(ev.get(v) for v in node.inputs), node.output.type))


@handles("prim::DictConstruct")
def dict_construct(ev: Evaluator, node: Node) -> None:
    """A new dict; one whose keys are not known, or tensors, is made at run time."""
    values = [ev.get(v) for v in node.inputs]
    keys = values[::2]
    if all(isinstance(k, Known) for k in keys):
        pairs = {k.value: v for k, v in zip(keys, values[1::2], strict=True) if isinstance(k, Known)}
        ev.bind(node.output, ev.new(tuple(pairs.items()), node.output.type))
        return
    made = ev.emit("prim::DictConstruct", [ev.place(v, None, node) for v in values], node)
    ev.bind(node.output, Dyn(made.add_output(node.output.type)))


@handles("aten::__is__", "aten::__isnot__")
def identity(ev: Evaluator, node: Node) -> None:
    """Whether two are one: a tensor is itself."""
    a, b = (ev.get(v) for v in node.inputs)
    if isinstance(a, Dyn) and isinstance(b, Dyn) and a.value is b.value and isinstance(a.type, TensorType):
        ev.bind(node.output, Known(node.kind == "aten::__is__", T.BOOL))
        return
    HANDLERS[""](ev, node)


@handles("prim::TupleConstruct")
def tuple_construct(ev: Evaluator, node: Node) -> None:
    """A tuple."""
    t = node.output.type
    assert isinstance(t, T.TupleType)
    ev.bind(node.output, Tup(tuple(ev.get(v) for v in node.inputs), t))


@handles("prim::TupleUnpack", "prim::ListUnpack")
def unpack(ev: Evaluator, node: Node) -> None:
    """The elements of a tuple or list."""
    held = ev.get(node.inputs[0])
    items: Sequence[Abstract] | None = None
    if isinstance(held, Tup):
        items = held.items
    elif isinstance(held, Ref):
        items = ev.state.contents.get(held)
    if items is not None and len(items) == len(node.outputs):
        for output, item in zip(node.outputs, items, strict=True):
            ev.bind(output, item)
        return
    as_it_is(ev, node)


@handles("prim::TupleIndex")
def tuple_index(ev: Evaluator, node: Node) -> None:
    """One element of a tuple."""
    held, index = (ev.get(v) for v in node.inputs)
    if isinstance(held, Tup) and isinstance(index, Known) and -len(held.items) <= index.value < len(held.items):
        ev.bind(node.output, held.items[index.value])
        return
    as_it_is(ev, node)


@handles("prim::TupleSlice")
def tuple_slice(ev: Evaluator, node: Node) -> None:
    """A part of a tuple."""
    held, t = ev.get(node.inputs[0]), node.output.type
    if isinstance(held, Tup) and isinstance(t, T.TupleType):
        ev.bind(node.output, Tup(held.items[node.attributes["beg"] : node.attributes["end"]], t))
        return
    as_it_is(ev, node)


def as_it_is(ev: Evaluator, node: Node) -> None:
    """Emit the node with what it has; its results are read at run time."""
    values = [ev.get(v) for v in node.inputs]
    if any(isinstance(v, Blank) for v in values):
        for output in node.outputs:
            ev.bind(output, Blank(output.type))
        return
    made = ev.emit(node.kind, [ev.place(v, None, node) for v in values], node, dict(node.attributes))
    for output in node.outputs:
        ev.bind(output, Dyn(made.add_output(output.type)))


# ----------------------------------------------------------------------------------------------------------- types


@handles("prim::Uninitialized")
def uninitialized(ev: Evaluator, node: Node) -> None:
    """What no run reads."""
    ev.bind(node.output, Blank(node.output.type))


@handles("prim::unchecked_cast")
def unchecked_cast(ev: Evaluator, node: Node) -> None:
    """The same value; of one only known at run time the type is narrower from here on."""
    held = ev.get(node.inputs[0])
    wanted = node.output.type
    if isinstance(held, Dyn) and not T.is_subtype(held.type, wanted):
        made = ev.emit(node.kind, [ev.place(held)], node).add_output(wanted)
        held = Dyn(made)
    ev.bind(node.output, held)


@handles("prim::isinstance")
def is_instance(ev: Evaluator, node: Node) -> None:
    """Whether a value is of one of the types: known where the type of the value is."""
    held = ev.get(node.inputs[0])
    answers = [has_type(ev, held, t) for t in node.attributes["types"]]
    if any(answers):
        ev.bind(node.output, Known(True, T.BOOL))
    elif None not in answers:
        ev.bind(node.output, Known(False, T.BOOL))
    else:
        as_it_is(ev, node)


def has_type(ev: Evaluator, known: Abstract, t: T.Type) -> bool | None:
    """Whether a value belongs to a type at run time; None when only the run can say."""
    if t == T.ANY:
        return True
    if isinstance(t, (T.OptionalType, T.UnionType)):
        answers = [has_type(ev, known, m) for m in T.members_of(t)]
        return True if any(answers) else None if None in answers else False
    if isinstance(known, Known):
        return _constant_has_type(known.value, t)
    if isinstance(known, Tup):
        if t == T.ANY_TUPLE:
            return True
        if not isinstance(t, T.TupleType) or len(t.elements) != len(known.items):
            return False
        if t.name is not None and t != known.type:
            return None if known.type.name is not None else False
        return _all_of([has_type(ev, v, e) for v, e in zip(known.items, t.elements, strict=True)])
    if isinstance(known, Ref) and isinstance(known.type, (T.ListType, T.DictType)):
        contents = ev.state.contents.get(known)
        if contents is None:
            return None
        if isinstance(known.type, T.ListType):
            if t == T.ANY_LIST:
                return True
            return isinstance(t, T.ListType) and _all_of([has_type(ev, v, t.element) for v in contents])
        if not isinstance(t, T.DictType):
            return False
        return _all_of(
            [_constant_has_type(k, t.key) for k, _ in contents] + [has_type(ev, v, t.value) for _, v in contents]
        )
    return _declared_has_type(known.type, t)


def _all_of(answers: Sequence[bool | None]) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True


def _declared_has_type(declared: T.Type, t: T.Type) -> bool | None:
    if isinstance(declared, TensorType):
        return isinstance(t, TensorType)
    if declared in _EXACT:
        return declared == t or (t == T.NUMBER and declared in (T.INT, T.FLOAT, T.COMPLEX))
    if isinstance(declared, T.ClassType):
        return declared is t or t == T.ANY_CLASS or (isinstance(t, T.InterfaceType) and T.is_subtype(declared, t))
    return None


_EXACT = (T.INT, T.FLOAT, T.BOOL, T.COMPLEX, T.STR, T.NONE, T.DEVICE)
_CLASSES: dict[T.Type, type | tuple[type, ...]] = {
    T.INT: int, T.FLOAT: float, T.BOOL: bool, T.COMPLEX: complex, T.STR: str, T.NONE: type(None),
    T.NUMBER: (int, float, complex), T.ANY_ENUM: EnumValue,
}  # fmt: skip


def _constant_has_type(value: Any, t: T.Type) -> bool | None:
    wanted = _CLASSES.get(t)
    if wanted is not None:
        return isinstance(value, wanted) and not (isinstance(value, bool) and t in (T.INT, T.NUMBER))
    if isinstance(t, T.EnumType):
        return isinstance(value, EnumValue) and value.type == t
    return None if t == T.DEVICE else False


@handles("prim::EnumName", "prim::EnumValue")
def enum_attribute(ev: Evaluator, node: Node) -> None:
    """The name or value of an enum's member."""
    held = ev.get(node.inputs[0])
    if isinstance(held, Known) and isinstance(held.value, EnumValue):
        found = held.value.name if node.kind == "prim::EnumName" else held.value.value
        ev.bind(node.output, ev.wrap(found, node.output.type))
        return
    as_it_is(ev, node)


@handles("prim::RaiseException")
def raise_exception(ev: Evaluator, node: Node) -> None:
    """Emitted; nothing after it in its block is run."""
    inputs = [ev.place(ev.get(v), v.type, node) for v in node.inputs]
    ev.emit(node.kind, inputs, node, dict(node.attributes))
    raise Unreachable


@handles("prim::tolist")
def to_list(ev: Evaluator, node: Node) -> None:
    """A tensor's numbers as a list: known when the tensor's are."""
    held = ev.get(node.inputs[0])
    array = ev.array(held)
    wanted = node.attributes.get("type", node.output.type)
    rank, element = 0, wanted
    while isinstance(element, T.ListType):
        rank, element = rank + 1, element.element
    kinds = {T.INT: "iu", T.FLOAT: "f", T.BOOL: "b"}
    if array is not None and array.ndim == rank and array.dtype.kind in kinds.get(element, ""):
        ev.commit([held])
        ev.bind(node.output, ev.wrap(array.tolist(), wanted))
        return
    as_it_is(ev, node)


# ------------------------------------------------------------------------------------------------------- attributes


@handles("prim::CreateObject")
def create_object(ev: Evaluator, node: Node) -> None:
    """A new object; it is made at run time only if the program lets it out."""
    ref = Ref(node.output.type, "a new object")
    ev.state.contents[ref] = ()
    ev.bind(node.output, ref)


@handles("prim::GetAttr")
def get_attribute(ev: Evaluator, node: Node) -> None:
    """An attribute: what was last written, else what the object holds now, which a guard then states."""
    owner, name = ev.get(node.inputs[0]), node.attributes["name"]
    if not isinstance(owner, Ref):
        as_it_is(ev, node)
        return
    key = (owner, name)
    found = ev.state.attributes.get(key)
    if found is None:
        found = _read(ev, owner, name, node)
        ev.state.attributes[key] = found
    ev.bind(node.output, found)


def _read(ev: Evaluator, owner: Ref, name: str, node: Node) -> Abstract:
    t = owner.type
    assert isinstance(t, T.ClassType)
    stale = ev.state.stale.get((owner, name))
    held = ev.owners.get(owner)
    if held is not None and name not in t.slot_of and name in t.constants:
        return of_constant(ev, t.constants[name][1], t.constants[name][0])
    if stale is not None or held is None:
        if owner not in ev.state.places:
            return Blank(node.output.type)
        made = ev.emit("prim::GetAttr", [ev.place(owner)], node, {"name": name})
        return Dyn(made.add_output(stale if stale is not None else node.output.type))
    value = held.get(name)
    path = f"{owner.path}.{name}"
    is_volatile = path in ev.volatile
    if is_volatile and not isinstance(value, (list, dict)):
        return Dyn(_emit_read(ev, owner, name, node, t.attributes[name]))
    found = Outside(
        path,
        partial(_attribute_of, ev.find[owner], t.slot_of[name]),
        partial(_emit_read, ev, owner, name, node),
    )
    # Of a container that changes too often its kind alone is assumed.
    spec = LargeSpec(type(value), -1) if is_volatile else spec_of(value)
    return of_outside(ev, spec, t.attributes[name], found, value)


def _attribute_of(find: Callable[[Sequence[Any]], Any], slot: int, values: Sequence[Any]) -> Any:
    return find(values).slots[slot]


def _emit_read(ev: Evaluator, owner: Ref, name: str, node: Node, t: T.Type) -> Value:
    """The attribute read at run time: at the top of the graph when nothing ever writes it."""
    place = ev.place(owner)
    made = Node("prim::GetAttr", [place], {"name": name})
    made.source, made.call = node.source, ev.call_of(node)
    never_written = is_module_attribute(owner, name) or not (ev.all_written or (owner.type, name) in ev.written)
    if never_written and is_before_anchor(ev, place):
        made.insert_before(ev.anchor)
        return made.add_output(t)
    ev.block.append(made)
    return made.add_output(t)


def is_before_anchor(ev: Evaluator, value: Value) -> bool:
    """Whether a value is an input of the graph or was placed at its top."""
    return value.node is ev.graph.block.param_node or value in ev.at_top


@handles("prim::SetAttr")
def set_attribute(ev: Evaluator, node: Node) -> None:
    """Remembered, and emitted when the object exists at run time."""
    owner, value = (ev.get(v) for v in node.inputs)
    name = node.attributes["name"]
    t = node.inputs[0].type
    declared = t.attributes.get(name) if isinstance(t, T.ClassType) else None
    if not isinstance(owner, Ref):
        for ref, other in list(ev.state.attributes):
            if other == name and ref.type == t:
                ev.forget_attribute(ref, name)
        for ref in ev.owners:
            if ref.type == t:
                ev.forget_attribute(ref, name)
        ev.emit(node.kind, [ev.place(owner), ev.place(value, declared, node)], node, {"name": name})
        return
    if owner in ev.state.places:
        ev.emit(node.kind, [ev.place(owner), ev.place(value, declared, node)], node, {"name": name})
        ev.state.stale[owner, name] = value.type if isinstance(value.type, TensorType) else declared or T.ANY
    ev.state.attributes[owner, name] = value
