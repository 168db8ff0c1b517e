"""Operators: computed now when all that matters is known, else emitted with the type their rule gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.types import TensorType
from gpujit.ir.values import CPU
from gpujit.ops.infer import infer
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import ListOf, is_known
from gpujit.ops.symbolic import NotKnown
from gpujit.passes.analysis.effects import entry_of, is_pure
from gpujit.passes.specialise.evaluator import Evaluator, handles
from gpujit.passes.specialise.values import Abstract, Blank, Dyn, Known, Ref, Tup
from gpujit.support.errors import DTypeError, GpujitError, ShapeError

# Texts and lists beyond this are left to the run.
_LONGEST = 1 << 14
_NOTHING = object()


class Hidden:
    """A value handed to an operator's body that may move it about but not look at it: looking raises NotKnown."""

    __slots__ = ("value",)

    def __init__(self, value: Abstract) -> None:
        self.value = value

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotKnown

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __repr__ = __format__ = _refuse
    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __index__ = __int__ = __float__ = _refuse
    __add__ = __radd__ = __mul__ = __getattr__ = _refuse
    __hash__ = _refuse


@handles("")
def operator(ev: Evaluator, node: Node) -> None:
    """Any node that is no part of the language itself."""
    op = entry_of(node)
    values = [ev.get(v) for v in node.inputs]
    if op is None:
        unknown_operator(ev, node, values)
        return
    if op.kind == "prim" and by_body(ev, node, op, values):
        return
    if by_type(ev, node, op, values) or by_numbers(ev, node, op, values):
        return
    residual(ev, node, op, values)


# ------------------------------------------------------------------------------------------- on Python values


def by_body(ev: Evaluator, node: Node, op: Op, values: Sequence[Abstract]) -> bool:
    """Run the body of an operator on Python values with what is known; whether that worked.

    Elements of containers are handed over hidden, so that bodies that only move them about work on unknown ones too.
    """
    schema = op.schema
    if op.effects or op.random or (op.type_rule is not None and not any(r.type.has_var for r in schema.returns)):
        return False
    opened = _Opened(ev)
    try:
        arguments = [opened.argument(v, a.type) for v, a in zip(values, _formals(schema, len(values)), strict=True)]
        arguments += [a.default for a in schema.arguments[len(values) :]]
        if _is_expensive(op, arguments):
            return False
        result = op.body(*arguments)
    except (NotKnown, GpujitError):
        return False
    except Exception:  # what a body raises, it raises again when the graph runs
        return False
    if isinstance(result, (str, list, tuple, dict)) and len(result) > _LONGEST:
        return False
    # Changes are made to what exists at run time too.
    writes = [i for i, a in enumerate(schema.arguments) if a.is_write and i < len(values)]
    places = [v for i in writes if isinstance(v := values[i], Ref) and v in ev.state.places]
    if places:
        mirror(ev, node, schema, values)
    for i in writes:
        target = values[i]
        if isinstance(target, Ref):
            ev.state.contents[target] = opened.contents(arguments[i], target)
    if node.outputs:
        results = result if len(node.outputs) > 1 else (result,)
        for output, one in zip(node.outputs, results, strict=True):
            ev.bind(output, opened.result(one, output.type))
    return True


def _formals(schema: Schema, count: int) -> list[Argument]:
    extra = count - len(schema.arguments)
    return [*schema.arguments[:count], *[Argument("", T.ANY, "Any")] * extra]


class _Opened:
    """The Python objects made of containers for one call, so that what comes back is recognised."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.objects: dict[Ref, Any] = {}
        self.refs: dict[int, Ref] = {}
        self.hidden: dict[int, Hidden] = {}

    def argument(self, known: Abstract, formal: T.Type) -> Any:
        """What the body is given. Raises NotKnown when the body needs more than is known."""
        if isinstance(known, Known):
            if isinstance(formal, TensorType):
                raise NotKnown
            return known.value
        if isinstance(known, Ref) and known in self.ev.state.contents and _is_container(known.type):
            if isinstance(formal, T.VarType):
                return self.hide(known)
            return self.open(known)
        if isinstance(known, Tup) and not isinstance(formal, T.VarType):
            return tuple(self.element(v) for v in known.items)
        if isinstance(formal, T.VarType):
            return self.hide(known)
        raise NotKnown

    def hide(self, known: Abstract) -> Hidden:
        found = self.hidden.get(id(known))
        if found is None:
            found = self.hidden[id(known)] = Hidden(known)
        return found

    def open(self, ref: Ref) -> Any:
        if ref not in self.objects:
            contents = self.ev.state.contents[ref]
            made: Any
            if isinstance(ref.type, T.DictType):
                made = {k: self.element(v) for k, v in contents}
            else:
                made = [self.element(v) for v in contents]
            self.objects[ref] = made
            self.refs[id(made)] = ref
        return self.objects[ref]

    def element(self, known: Abstract) -> Any:
        if isinstance(known, Known):
            return known.value
        if isinstance(known, Tup):
            # Pairs are taken apart by the operators of dicts; their parts stay hidden.
            return tuple(map(self.element, known.items))
        return self.hide(known)

    def contents(self, made: Any, ref: Ref) -> tuple[Any, ...]:
        """What a container holds after the call."""
        if isinstance(made, dict):
            t = ref.type.value if isinstance(ref.type, T.DictType) else T.ANY
            return tuple((k, self.result(v, t)) for k, v in made.items())
        t = ref.type.element if isinstance(ref.type, T.ListType) else T.ANY
        return tuple(self.result(v, t) for v in made)

    def result(self, value: Any, t: T.Type) -> Abstract:
        """What the body returned, or left in a container."""
        if isinstance(value, Hidden):
            return value.value
        ref = self.refs.get(id(value))
        if ref is not None:
            return ref
        plain = t.element if isinstance(t, T.OptionalType) else t
        if isinstance(value, list):
            element = plain.element if isinstance(plain, T.ListType) else T.ANY
            return self.ev.new(tuple(self.result(v, element) for v in value), plain)
        if isinstance(value, dict):
            element = plain.value if isinstance(plain, T.DictType) else T.ANY
            return self.ev.new(tuple((k, self.result(v, element)) for k, v in value.items()), plain)
        if isinstance(value, tuple):
            if not isinstance(plain, T.TupleType):
                plain = T.TupleType((T.ANY,) * len(value))
            return Tup(tuple(map(self.result, value, plain.elements)), plain)
        return self.ev.wrap(value, t)


def _is_container(t: T.Type) -> bool:
    return isinstance(t, T.ListType) or (isinstance(t, T.DictType) and not isinstance(t.key, TensorType))


def _is_expensive(op: Op, arguments: Sequence[Any]) -> bool:
    """Whether the result may be far larger than the arguments (powers, shifts, repeated lists)."""
    big = any(type(a) is int and abs(a) > 64 for a in arguments)
    if not big:
        return False
    name = op.name.rpartition("::")[2]
    if name in ("pow", "factorial", "ldexp", "rangelist") or "shift" in name:
        return any(type(a) is int and abs(a) > _LONGEST for a in arguments)
    return (
        any(isinstance(a, (list, str)) for a in arguments)
        and any(
            type(a) is int and a * len(b) > _LONGEST for a in arguments for b in arguments if isinstance(b, (list, str))
        )
        and "mul" in name
    )


def mirror(ev: Evaluator, node: Node, schema: Schema, values: Sequence[Abstract]) -> None:
    """Emit a node whose effect on what is known was worked out already."""
    inputs = [
        _place_argument(ev, v, a, node, schema) for v, a in zip(values, _formals(schema, len(values)), strict=True)
    ]
    made = ev.emit(node.kind, inputs, node, dict(node.attributes))
    made.schema = schema
    for output in node.outputs:
        made.add_output(output.type)


# ------------------------------------------------------------------------------------- by types and by numbers


def by_type(ev: Evaluator, node: Node, op: Op, values: Sequence[Abstract]) -> bool:
    """Find a result that is no tensor from the types of the arguments alone; whether that worked."""
    schema = op.schema
    if op.effects or len(node.outputs) != 1 or schema.is_mutable or isinstance(node.output.type, TensorType):
        return False
    if schema.full_name == "prim::device" and isinstance(values[0], Dyn):
        # All arrays of this interpreter are NumPy's.
        ev.bind(node.output, Known(CPU, T.DEVICE))
        return True
    if op.type_rule is None or any(r.type.has_var for r in schema.returns):
        return False
    try:
        found = infer(op, arguments_of(ev, node, op, values))
    except (ShapeError, DTypeError):
        return False
    if isinstance(found, (TensorType, ListOf)) or not is_known(found) or _has_tensor(found):
        return False
    ev.bind(node.output, ev.wrap(found, node.output.type))
    return True


def _has_tensor(found: Any) -> bool:
    if isinstance(found, (list, tuple)):
        return any(map(_has_tensor, found))
    return isinstance(found, (TensorType, ListOf))


def by_numbers(ev: Evaluator, node: Node, op: Op, values: Sequence[Abstract]) -> bool:
    """Compute with tensors whose numbers are known. A result that is no tensor is then known; one that is, is emitted
    all the same and its numbers remembered."""
    if op.schema.is_mutable or not node.outputs or not is_pure(node) or len(node.outputs) != 1:
        return False
    try:
        arguments = [_numbers(ev, v) for v in values]
    except NotKnown:
        return False
    if not any(isinstance(v, np.ndarray) for v in _flat(arguments)) and not _is_factory(op, arguments):
        return False
    arguments = [_as_number(node, i, a) for i, a in enumerate(arguments)]
    try:
        with np.errstate(all="ignore"):
            result = op.kernel(np)(*arguments, *(a.default for a in op.schema.arguments[len(arguments) :]))
    except Exception:  # it is raised again when the graph runs
        return False
    if isinstance(result, (bool, int, float, complex)) or (isinstance(result, list) and not _any_array(result)):
        ev.commit(values)
        ev.bind(node.output, ev.wrap(result, node.output.type))
        return True
    residual(ev, node, op, values)
    made = ev.get(node.output)
    origins = ev.origins_of(values)
    if origins:
        for known in (made, *(ev.state.contents.get(made, ()) if isinstance(made, Ref) else ())):
            if isinstance(known, Dyn):
                ev.origins[known.value] = origins
    if isinstance(made, Dyn) and isinstance(result, np.ndarray):
        ev.note_array(made.value, result)
    elif isinstance(made, Ref) and isinstance(result, list):
        for item, array in zip(ev.state.contents.get(made, ()), result, strict=False):
            if isinstance(item, Dyn):
                ev.note_array(item.value, array)
    return True


def _any_array(result: list[Any]) -> bool:
    return any(isinstance(v, np.ndarray) or (isinstance(v, list) and _any_array(v)) for v in result)


def _flat(arguments: Sequence[Any]) -> list[Any]:
    found = []
    for a in arguments:
        found += _flat(a) if isinstance(a, list) else [a]
    return found


def _numbers(ev: Evaluator, known: Abstract) -> Any:
    if isinstance(known, Known):
        return known.value
    array = ev.array(known)
    if array is not None:
        return array
    if isinstance(known, Ref) and known in ev.state.contents and isinstance(known.type, T.ListType):
        return [_numbers(ev, v) for v in ev.state.contents[known]]
    raise NotKnown


def _is_factory(op: Op, arguments: Sequence[Any]) -> bool:
    """Whether an operator without tensor arguments makes a small tensor that only its arguments decide."""
    if op.random or (op.kind == "prim" and op.name != "prim::NumToTensor"):
        return False
    try:
        found = infer(op, arguments)
    except (ShapeError, DTypeError):
        return False
    if not isinstance(found, TensorType) or found.shape is None or found.dtype is None:
        return False
    size = 1
    for n in found.shape:
        if n is None:
            return False
        size *= n
    return size <= 1024


# --------------------------------------------------------------------------------------------------- at run time

_ARITHMETIC = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))


def _as_number(node: Node, index: int, value: Any) -> Any:
    """An argument as the interpreter takes it: a traced number, a constant 0-dim tensor, counts as a number."""
    if index == 1 and node.kind in _ARITHMETIC and node.inputs[1].is_constant and getattr(value, "ndim", None) == 0:
        return value.item() if value.dtype.kind != "b" else value
    return value


def arguments_of(ev: Evaluator, node: Node, op: Op, values: Sequence[Abstract]) -> list[Any]:
    """All arguments as ``ops.infer`` takes them."""
    found = [ev.argument(v) for v in values]
    if node.kind in _ARITHMETIC and len(node.inputs) > 1 and node.inputs[1].is_constant:
        found[1] = _as_number(node, 1, node.inputs[1].constant()) if isinstance(found[1], TensorType) else found[1]
        if isinstance(found[1], np.ndarray):
            found[1] = ev.argument(values[1])
    return found


def _place_argument(ev: Evaluator, known: Abstract, argument: Argument, node: Node, schema: Schema) -> Any:
    """An input of an emitted node. Lists that the operator only reads are made for it alone."""
    keep = (
        argument.alias is not None or argument.element_alias is not None or argument.type.has_var
    ) or schema.is_vararg
    if isinstance(known, Ref) and known in ev.state.contents and not keep and known not in ev.owners:
        place = ev.state.places.get(known)
        if place is not None and not isinstance(argument.type, (T.ListType, T.OptionalType)):
            return place
        if isinstance(known.type, T.ListType):
            return _fresh_list(ev, known, node)
    t = argument.type if not argument.type.has_var else None
    return ev.place(known, t, node, keep=keep)


def _place_arguments(ev: Evaluator, node: Node, schema: Schema, values: Sequence[Abstract]) -> list[Value]:
    formals = _formals(schema, len(values))
    return [_place_argument(ev, v, a, node, schema) for v, a in zip(values, formals, strict=True)]


def _fresh_list(ev: Evaluator, ref: Ref, node: Node) -> Any:
    contents = ev.state.contents[ref]
    if all(isinstance(v, Known) and isinstance(v.value, (bool, int, float, str)) for v in contents) and contents:
        return ev.constant([v.value for v in contents], ref.type)
    element = ref.type.element if isinstance(ref.type, T.ListType) else T.ANY
    inner = [ev.place(v, element, node, keep=False) for v in contents]
    return ev.emit("prim::ListConstruct", inner, node).add_output(ref.type)


def residual(ev: Evaluator, node: Node, op: Op, values: Sequence[Abstract]) -> None:
    """Emit the operator and say what its results are."""
    schema = op.schema
    if any(isinstance(v, Blank) for v in values):
        # Only code that is never run reads such a value.
        for output in node.outputs:
            ev.bind(output, Blank(output.type))
        return
    inputs = [
        _place_argument(ev, v, a, node, schema) for v, a in zip(values, _formals(schema, len(values)), strict=True)
    ]
    if op.may_alias:
        ev.exposed.update(v.value for v in values if isinstance(v, Dyn))
    if node.kind in _ARITHMETIC and len(inputs) > 1 and inputs[1].is_constant and not node.inputs[1].is_constant:
        if getattr(inputs[1].constant(), "ndim", None) == 0:
            # As a constant it would count as a number, which it was not.
            inputs[1] = ev.emit_op("aten::detach", [inputs[1]], node, inputs[1].type)
    made = ev.emit(node.kind, inputs, node, dict(node.attributes))
    made.schema = schema
    if not node.outputs:
        found: Any = ()
    else:
        try:
            found = infer(op, arguments_of(ev, node, op, values))
        except (ShapeError, DTypeError):
            found = None
        found = found if len(node.outputs) > 1 and isinstance(found, tuple) else (found,) * len(node.outputs)
    _forget_written(ev, op, values)
    for i, (output, result) in enumerate(zip(node.outputs, found, strict=True)):
        ev.bind(output, _result(ev, made, output.type, result, node))
        written = _written(schema, i)
        if written is not None and written < len(values):
            _same_object(ev, node, i, values[written])


def _result(ev: Evaluator, made: Node, declared: T.Type, result: Any, node: Node) -> Abstract:
    if isinstance(declared, TensorType):
        return Dyn(made.add_output(result if isinstance(result, TensorType) else T.TENSOR))
    value = made.add_output(declared)
    if (
        isinstance(result, list)
        and isinstance(declared, T.ListType)
        and isinstance(declared.element, TensorType)
        and all(isinstance(r, TensorType) for r in result)
        and made.schema is not None
        and made.schema.returns[value.index].alias is None
    ):
        # A new list of known length: read by its elements, nobody needs the list itself.
        unpack = ev.emit("prim::ListUnpack", [value], node)
        return ev.new(tuple(Dyn(unpack.add_output(r)) for r in result), declared)
    return Dyn(value)


def _written(schema: Schema, index: int) -> int | None:
    """The argument that a result is, for operators that return what they write into."""
    if index >= len(schema.returns):
        return None
    alias = schema.returns[index].alias
    if alias is None or not alias.is_write:
        return None
    at = [k for k, a in enumerate(schema.arguments) if a.is_write and a.alias == alias]
    return at[0] if len(at) == 1 else None


def _same_object(ev: Evaluator, node: Node, index: int, target: Abstract) -> None:
    """The result is the tensor written into: one value for both, and the new type for both if its shape was changed."""
    made = ev.get(node.outputs[index])
    if not isinstance(made, Dyn) or not isinstance(target, Dyn):
        return
    old, new = target.value.type, made.value.type
    if isinstance(old, TensorType) and isinstance(new, TensorType) and (old.shape, old.dtype) != (new.shape, new.dtype):
        for value, now in list(ev.state.renamed.items()):
            if now is target.value:
                ev.state.renamed[value] = made.value
        ev.state.renamed[target.value] = made.value
        return
    ev.bind(node.outputs[index], target)


def _forget_written(ev: Evaluator, op: Op, values: Sequence[Abstract]) -> None:
    """What an operator writes is no longer known."""
    schema = op.schema
    for i, argument in enumerate(schema.arguments[: len(values)]):
        known = values[i]
        if (
            argument.name in op.hidden_writes
            or argument.is_write
            or (argument.element_alias is not None and argument.element_alias.is_write)
        ):
            if isinstance(known, Dyn) and isinstance(known.type, TensorType):
                forget_array(ev, known)
            elif isinstance(known, Ref) and argument.element_alias is not None:
                for item in ev.state.contents.get(known, ()):
                    if isinstance(item, Dyn):
                        forget_array(ev, item)
            if argument.is_write and not isinstance(known.type, TensorType):
                if isinstance(known, Ref):
                    ev.state.contents.pop(known, None)
                ev.forget_containers(known.type)


def forget_array(ev: Evaluator, known: Dyn) -> None:
    """Forget the numbers of a tensor and of all that may share its memory."""
    arrays = ev.state.arrays
    array = arrays.pop(known.value, None)
    written = [array] if array is not None else [arrays[v] for v in ev.exposed if v in arrays]
    for value in [v for v, a in arrays.items() if any(np.may_share_memory(a, w) for w in written)]:
        del arrays[value]


def unknown_operator(ev: Evaluator, node: Node, values: Sequence[Abstract]) -> None:
    """Emit a node nobody knows anything about: it may keep and change whatever it can reach."""
    inputs = [ev.place(v, None, node) for v in values]
    made = ev.emit(node.kind, inputs, node, dict(node.attributes))
    made.schema = node.schema
    ev.forget_visible()
    for output in node.outputs:
        ev.bind(output, Dyn(made.add_output(output.type)))
    ev.reasons[made] = "an operator without an entry in the table"
