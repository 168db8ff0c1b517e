"""The recorder: a graph under construction, and the values in it that the running function holds.

The function runs on concrete arrays. Each traced value pairs one with the graph's value; an operator is run on the
former and recorded on the latter. Everything goes into one flat graph; ``methods`` makes submodules' methods of it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpujit.frontend.trace.places import Places, is_guard
from gpujit.frontend.trace.report import QUIET, Diagnostic, TraceReport
from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, is_tensor_dtype
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.source import SourceRange
from gpujit.ir.values import Device, QTensor, ScriptObject, SparseTensor, is_int64
from gpujit.ops import calls, overloads, table
from gpujit.support.errors import InternalError, TraceError, TracerWarning

_SCALARS: dict[type, T.Type] = {
    bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STR, type(None): T.NONE, Device: T.DEVICE,
}  # fmt: skip
# Stands in the flat graph for reading an array of a compiled module; ``methods`` makes prim::GetAttr of it.
READ_ATTRIBUTE = "trace::read_attribute"
# Answers that follow from dtype and rank alone, which a trace fixes as it does everywhere: plain Python values.
_FIXED = frozenset(
    (
        "aten::is_floating_point", "aten::is_complex", "aten::is_signed", "aten::dim", "aten::element_size",
        "prim::dtype", "prim::device", "prim::layout", "prim::is_cuda", "prim::requires_grad",
    )
)  # fmt: skip


class Traced:
    """A value of the running function that the graph knows.

    ``_concrete`` is what it is in this run: an array, or a Python number; ``_value`` its value in the graph.
    """

    __slots__ = ("__weakref__", "_concrete", "_place", "_tracer", "_value")

    def __init__(self, tracer: Tracer, concrete: Any, value: Value) -> None:
        self._tracer = tracer
        self._concrete = concrete
        self._value = value
        self._place = value.node.source
        tracer.alive.append(weakref.ref(self))


class Tracer:
    """Records one function or method.

    Args:
        name: of the graph.
        strict: raise TraceError at the first place where something is lost.
        warn: warn with TracerWarning at each such place.
    """

    def __init__(self, name: str = "", *, strict: bool = False, warn: bool = True) -> None:
        from gpujit.frontend.trace.numbers import NUMBERS
        from gpujit.frontend.trace.tensor import TracedTensor

        self.graph = Graph(name)
        self.report = TraceReport()
        self.places = Places()
        self.strict, self.warn = strict, warn
        self.closed = False
        self.alive: list[weakref.ref[Traced]] = []
        # The module that is traced, and the call of a part of it that is going on.
        self.tree: Any = None
        self.scope: Any = None
        self.scope_of: dict[Node, Any] = {}
        self._tensor = TracedTensor
        self._numbers = NUMBERS
        self._scalars: dict[Any, Value] = {}
        # Arrays from outside by identity: the array, its copy in the graph, and the value.
        self._arrays: dict[int, list[tuple[Any, Any, Value]]] = {}
        # Memory that belongs to the caller, and what NumPy shows of some memory while the graph has a copy.
        self._inputs: dict[int, Any] = {}
        # Parameters and buffers, which modules may hold elsewhere as well.
        self.attributes: dict[int, tuple[Any, Value]] = {}
        # Arrays that the function made of literals: no more of a loss than the literals themselves.
        self.literals: dict[int, Any] = {}
        self._detached: list[tuple[Any, weakref.ref[Traced]]] = []
        self._clones: list[tuple[Node, Any]] = []
        # Whether anything is, or may be, written into a tensor's memory.
        self.has_writes = False
        # Memory of what the function returned.
        self.returned: list[Any] = []

    # ------------------------------------------------------------------------------------------ diagnostics

    def lost(self, kind: str, what: str, place: SourceRange | None = None) -> None:
        """List a place, the current one by default. Raises TraceError when tracing is strict and it is no note."""
        here, function = self.places.here()
        if kind in ("branch", "number") and is_guard(place or here):
            return
        diagnostic = Diagnostic(kind, what, place or here, function if place is None else "")
        if not self.report.add(diagnostic):
            return
        if self.strict and not diagnostic.is_note:
            raise TraceError(f"strict tracing: {diagnostic}")
        if self.warn and kind not in QUIET:
            warnings.warn(str(diagnostic), TracerWarning, stacklevel=_depth())

    def error(self, message: str) -> TraceError:
        """A TraceError at the current place."""
        place, function = self.places.here()
        if place is None:
            return TraceError(message)
        return TraceError(message, where=f"  {place.source.name}:{place.shown_line} in {function}\n{place.highlight()}")

    # ---------------------------------------------------------------------------------------------- values

    def add_input(self, concrete: Any, type_: T.Type, name: str) -> Any:
        """A new input of the graph as the function sees it; an array in it is copied first."""
        return self.wrap(concrete, self.graph.add_input(type_, name), type_)

    def own_input(self, array: Any) -> None:
        """Writes into this array's memory are writes into an input."""
        base = root(array)
        self._inputs[id(base)] = base

    def concrete(self, value: Any) -> Any:
        """A value with what it is in this run in place of everything traced."""
        if isinstance(value, Traced):
            self.check(value)
            return value._concrete
        kind = type(value)
        if kind in (list, tuple):
            return kind(map(self.concrete, value))
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return value._make(map(self.concrete, value))
        if kind is dict:
            return {k: self.concrete(v) for k, v in value.items()}
        if kind is slice:
            return slice(self.concrete(value.start), self.concrete(value.stop), self.concrete(value.step))
        return value

    def check(self, value: Traced) -> None:
        """Raises TraceError for a traced value of another trace, or of one that is over."""
        if value._tracer is self and not self.closed:
            return
        made = "" if value._place is None else f" (made at {value._place.source.name}:{value._place.shown_line})"
        raise self.error(f"a traced value{made} was kept after its trace was over; it is of no use here")

    def wrap(self, concrete: Any, value: Value, type_: T.Type) -> Any:
        """An operator's result as the function sees it."""
        if isinstance(type_, T.TensorType):
            if isinstance(concrete, np.generic):
                concrete = np.asarray(concrete)
            return self._tensor(self, concrete, value)
        kind = type(concrete)
        if kind in self._numbers:
            return self._numbers[kind](self, concrete, self._of_number(value, type_, kind))
        if isinstance(type_, T.OptionalType):
            return self._of_optional(concrete, value, type_)
        if kind is list and isinstance(type_, T.ListType):
            if not concrete:
                self.lost("number", "the length of a list, here 0")
            node = self.node("prim::ListUnpack", [value])
            return [self.wrap(c, node.add_output(type_.element), type_.element) for c in concrete]
        if isinstance(concrete, tuple) and isinstance(type_, T.TupleType):
            node = self.node("prim::TupleUnpack", [value])
            items = [self.wrap(c, node.add_output(t), t) for c, t in zip(concrete, type_.elements, strict=True)]
            return concrete._make(items) if hasattr(concrete, "_make") else tuple(items)
        if kind is dict and isinstance(type_, T.DictType):
            return {k: self.wrap(c, self.entry(value, k, type_), type_.value) for k, c in concrete.items()}
        return concrete

    def _of_optional(self, concrete: Any, value: Value, type_: T.OptionalType) -> Any:
        if concrete is None:
            self.lost("branch", "a result that may be None, here None")
            return None
        # It raises where it is None in another run.
        return self.wrap(concrete, self._op("aten::_unwrap_optional", [value], type_.element), type_.element)

    def entry(self, items: Value, key: Any, type_: T.DictType) -> Value:
        """The value of a key in a dict of the graph. Raises TraceError for a key that is no int or str."""
        kind = {str: "str", int: "int"}.get(type(key))
        if kind is None:
            raise self.error(f"a dict with the key {key!r} cannot be in a trace; keys are int or str")
        return self._op(f"aten::__getitem__.Dict_{kind}", [items, self.scalar(key)], type_.value)

    def _of_number(self, value: Value, type_: T.Type, kind: type) -> Value:
        if type_ != T.NUMBER:
            return value
        name = {int: "aten::Int.Scalar", float: "aten::Float.Scalar", bool: "aten::Bool.int"}.get(kind)
        if name is None:
            return value
        if kind is bool:
            value = self._op("aten::Int.Scalar", [value], T.INT)
        return self._op(str(name), [value], _SCALARS[kind])

    def value(self, item: Any, type_: T.Type | None = None) -> Value:
        """The graph's value of an argument: traced, constant, or a list or tuple of both.

        ``type_`` is what it is wanted as, which decides what an empty list is a list of.
        """
        if isinstance(item, Traced):
            self.check(item)
            return item._value
        kind = type(item)
        plain = type_.element if isinstance(type_, T.OptionalType) else type_
        if kind is list or (kind is tuple and isinstance(plain, T.ListType)):
            element = plain.element if isinstance(plain, T.ListType) else None
            parts = [self.value(v, element) for v in item]
            if element is None or element.has_var or element in (T.ANY, T.NUMBER):
                element = _joint([v.type for v in parts])
            return self.node("prim::ListConstruct", parts).add_output(T.ListType(element))
        if isinstance(item, tuple):
            wanted = plain.elements if isinstance(plain, T.TupleType) and len(plain.elements) == len(item) else None
            parts = [self.value(v, t) for v, t in zip(item, wanted or [None] * len(item), strict=True)]
            made = plain if wanted is not None and isinstance(plain, T.TupleType) and plain.name else None
            return self.node("prim::TupleConstruct", parts).add_output(
                made or T.TupleType(tuple(v.type for v in parts))
            )
        if kind is dict and isinstance(plain, T.DictType):
            entries = [v for k, x in item.items() for v in (self.scalar(k), self.value(x, plain.value))]
            return self.node("prim::DictConstruct", entries).add_output(plain)
        if kind is np.ndarray or isinstance(item, (QTensor, SparseTensor)):
            return self.array(item)
        if isinstance(item, (np.ndarray, np.generic)) or hasattr(item, "__array__"):
            return self.array(np.asarray(item))
        return self.scalar(item)

    def scalar(self, item: Any) -> Value:
        """A constant number, string, device or None; equal ones are one node."""
        type_ = _SCALARS.get(type(item))
        if type(item) is int and not is_int64(item):
            raise self.error(f"{item} does not fit the 64 bits of a graph's int")
        if type_ is None:
            raise self.error(f"a {type(item).__name__} cannot be in a graph")
        key = (type_, repr(item) if isinstance(item, (float, complex)) else item)
        found = self._scalars.get(key)
        if found is None:
            found = self._scalars[key] = self._constant(item, type_)
        return found

    def _constant(self, item: Any, type_: T.Type) -> Value:
        node = Node("prim::Constant", (), {} if item is None else {"value": item})
        node.source = self.places.here()[0]
        self.graph.block.append(node)
        return node.add_output(type_)

    def function(self, function: Function) -> Value:
        """A compiled function, to be called."""
        return self._constant(function, T.FUNCTION)

    def array(self, item: Any, *, silent: bool = False) -> Value:
        """A constant array: a copy of it as it is now. It is listed as a loss unless ``silent``."""
        attribute = self.attributes.get(id(item))
        if attribute is not None:
            return attribute[1]
        known = self._arrays.setdefault(id(item), [])
        for original, copy, value in known:
            if original is item and _same(item, copy):
                return value
        if not silent and id(item) not in self.literals:
            self.lost("constant", f"{item.dtype}{list(item.shape)}")
        copy = item
        if isinstance(item, np.ndarray):
            dtype = item.dtype.newbyteorder("=")
            if not is_tensor_dtype(dtype):
                raise self.error(f"an array of dtype {item.dtype} cannot be a tensor")
            copy = np.array(item, dtype, order="C", subok=False)
        value = self._constant(copy, T.TENSOR)
        known.append((item, copy, value))
        return value

    # ------------------------------------------------------------------------------------ compiled modules

    def has_part(self, module: ScriptObject) -> bool:
        """Whether a compiled module is below what is traced."""
        return self.tree is not None and self.tree.part_of(module) is not None

    def read_attribute(self, module: ScriptObject, name: str, value: Any) -> Any:
        """An array that a compiled module holds, as the function sees it: traced, when the module is below."""
        if not self.has_part(module):
            return value
        node = self.node(READ_ATTRIBUTE, [], {"part": self.tree.part_of(module), "name": name})
        return self.wrap(value, node.add_output(T.TENSOR), T.TENSOR)

    # ------------------------------------------------------------------------------------------- recording

    def node(self, kind: str, inputs: Sequence[Value], attributes: dict[str, Any] | None = None) -> Node:
        """A new node at the end, which knows its line and its module's scope."""
        node = Node(kind, inputs, attributes)
        node.source = self.places.here()[0]
        self.graph.block.append(node)
        if self.scope is not None:
            self.scope_of[node] = self.scope
        return node

    def _op(self, full_name: str, inputs: Sequence[Value], type_: T.Type) -> Value:
        op = table.by_full_name(full_name)
        if op is None:
            raise InternalError(f"tracing needs the operator {full_name}")
        node = self.node(op.name, inputs)
        node.schema = op.schema
        return node.add_output(type_)

    def call(self, name: str, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Run an operator on this run's values and record it; what comes back is traced. Raises as ``calls.call``."""
        values = [calls.plain(self.concrete(v)) for v in args]
        named = {k: calls.keyword(k, self.concrete(v)) for k, v in (kwargs or {}).items()}
        if name in _FIXED:
            return calls.run(name, values, named)
        op, match = calls.find(name, values, named)
        concrete = [*values, *named.values()]
        given = [*map(_graph_argument, args, values), *map(_graph_argument, (kwargs or {}).values(), named.values())]
        inputs = [self._input(step, given) for step in match.steps]
        node = self.node(op.name, inputs)
        node.schema = match.schema
        arguments = [calls.step_value(step, concrete) for step in match.steps]
        with np.errstate(all="ignore"):
            result = op.kernel(np)(*arguments)
        if op.data_dependent:
            self.lost("data-size", f"the result of {op.name}")
        for step, argument in zip(match.steps, op.schema.arguments, strict=False):
            if argument.is_write and step.kind == "value":
                self.wrote(given[step.index])
        types = match.results
        if len(types) == 1:
            return self.wrap(result, node.add_output(types[0]), types[0])
        if not types:
            return None
        outputs = [node.add_output(t) for t in types]
        return tuple(self.wrap(c, v, t) for c, v, t in zip(result, outputs, types, strict=True))

    def _input(self, step: overloads.Step, given: Sequence[Any]) -> Value:
        """The value one parameter gets."""
        if step.kind == "default":
            return self.value(calls.step_value(step, []), step.type)
        item = given[step.index]
        if step.kind == "convert":
            op = table.by_full_name(step.op)
            assert op is not None
            return self._op(step.op, [self.value(item)], op.schema.returns[0].type)
        if step.kind == "repeat":
            value = self.value(item, step.element)
            return self.node("prim::ListConstruct", [value] * step.count).add_output(step.type)
        if step.kind == "pack":
            item = list(given[step.index : step.index + step.count])
        return self.value(list(item) if step.kind == "unpack" else item, step.type)

    # --------------------------------------------------------------------------------------------- memory

    def wrote(self, target: Any) -> None:
        """Something was written into a tensor's memory."""
        self.has_writes = True
        array = target._concrete if isinstance(target, Traced) else target
        if not isinstance(array, np.ndarray):
            return
        base = root(array)
        if id(base) in self._inputs:
            self.lost("input-write", f"{array.dtype}{list(array.shape)}")
        for other, reference in self._detached:
            shown = reference()
            if other is base and shown is not None:
                if shown is target:
                    raise self.error("what NumPy shows here as a view is a copy in the graph, and cannot be written")
                if np.may_share_memory(shown._concrete, array):
                    self.lost("view", "a write into memory of which an earlier result is a view")

    def detach(self, shown: Traced, base: Any) -> None:
        """NumPy's result is a view of ``base`` while the graph's is a copy."""
        self._detached.append((base, weakref.ref(shown)))

    def protect(self, tensor: Any, array: Any) -> Any:
        """A copy of a tensor, ``array`` in this run, that ``close`` drops if it makes no difference: when nothing is
        written, and the array is not returned."""
        copy = self.call("aten::clone", (tensor,))
        self._clones.append((copy._value.node, root(array) if isinstance(array, np.ndarray) else None))
        return copy

    # -------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """No traced value of this trace is of use any more."""
        self.closed = True
        returned = {id(base) for base in self.returned}
        for node, base in self._clones:
            leaves = id(base) in returned or any(use.node.kind == "prim::Return" for use in node.output.uses)
            if not self.has_writes and not leaves:
                node.output.replace_all_uses_with(node.inputs[0])
                node.destroy()
        self.returned.clear()
        self._arrays.clear()
        self.literals.clear()
        self.attributes.clear()
        self._detached.clear()

    def leaked(self) -> list[Traced]:
        """Traced values that somebody still holds."""
        return [found for reference in self.alive if (found := reference()) is not None]


def holds_traced(item: Any) -> bool:
    """Whether a nested list, tuple or dict holds a traced value."""
    if isinstance(item, Traced):
        return True
    if isinstance(item, dict):
        return any(map(holds_traced, item.values()))
    if isinstance(item, slice):
        return any(isinstance(v, Traced) for v in (item.start, item.stop, item.step))
    return isinstance(item, (list, tuple)) and any(map(holds_traced, item))


def root(array: Any) -> Any:
    """The array that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _graph_argument(given: Any, plain: Any) -> Any:
    """What an argument is in the graph: dtypes become their codes; what is traced stays."""
    if isinstance(given, Traced):
        return given
    if type(given) in (list, tuple):
        return type(given)(map(_graph_argument, given, plain))
    return given if isinstance(given, np.ndarray) and type(given) is np.ndarray else plain


def _joint(types: Iterable[T.Type]) -> T.Type:
    """The type of a list's elements."""
    joint: T.Type | None = None
    for t in types:
        joint = t if joint is None else T.unify(joint, t)
        if joint is None:
            return T.ANY
    return T.TENSOR if joint is None else joint


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray):
        return a is b
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def _depth() -> int:
    """How many frames up the user's code is, for a warning's place."""
    import sys

    from gpujit.frontend.trace.places import user_frame

    wanted = user_frame()
    frame, depth = sys._getframe(1), 1
    while frame is not None and frame is not wanted:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


def dtype_code(dtype: Any) -> int:
    """TorchScript's code of a NumPy dtype. Raises KeyError for one that tensors cannot have."""
    return code_of(np.dtype(dtype))
