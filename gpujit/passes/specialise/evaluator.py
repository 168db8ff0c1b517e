"""The evaluator: walks a graph, keeps what is known, and emits into a new graph what only a run can compute.

What to do with each kind of node is in ``HANDLERS``, filled by the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.module_path import dotted, joined, object_path
from gpujit.ir.source import CallSite
from gpujit.ir.types import TensorType
from gpujit.ir.values import ScriptObject
from gpujit.ops import table
from gpujit.ops.infer_cases import join as join_types
from gpujit.ops.infer_cases import type_of
from gpujit.ops.rules.common import UNKNOWN, ListOf, Unknown
from gpujit.passes.specialise.guards import Guard, is_sparse
from gpujit.passes.specialise.values import (
    Abstract,
    Blank,
    Dyn,
    Known,
    Ref,
    State,
    Task,
    Tup,
    constant_key,
    type_of_constant,
)
from gpujit.support.errors import InternalError, LimitError

# Calls within calls; each costs a few frames of Python's.
MAX_DEPTH = 200
# Tensors up to this many elements are followed by value when they are whole numbers.
SMALL = 1024


class Unreachable(Exception):
    """The code just met always raises: nothing after it in its block is run."""


class TooLarge(Exception):
    """More nodes than allowed were emitted by an unrolled loop, or its condition is only known at run time."""


class Evaluator:
    """The work on one graph.

    Args:
        limit: nodes after which no loop is unrolled any further.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.graph = Graph(name)
        self.block: Block = self.graph.block
        self.limit = limit
        self.count = 0
        self.env: dict[Value, Abstract] = {}
        self.state = State()
        self.call: CallSite | None = None
        self.depth = 0
        # Dynamic blocks around the place of emission.
        self.nesting = 0
        self.guards: dict[str, Guard] = {}
        self.find: dict[Ref, Callable[[Sequence[Any]], Any]] = {}
        # Objects that exist outside the graph, by identity; ``owners`` keeps them alive and tells what they hold.
        self.refs: dict[int, Ref] = {}
        self.owners: dict[Ref, ScriptObject] = {}
        self.readers: dict[Ref, Callable[[], Value]] = {}
        self.written: set[tuple[T.Type, str]] = set()
        self.all_written = False
        # Attributes, by the paths of their guards, whose values are not taken as they are now.
        self.volatile: frozenset[str] = frozenset()
        # Lists and dicts from outside: which object it is and how guards get at it, by the path it was met at.
        self.containers: dict[str, tuple[int, Callable[[Sequence[Any]], Any]]] = {}
        # What they held when they were met.
        self.met: dict[Ref, tuple[Any, ...]] = {}
        self.reasons: dict[Node, str] = {}
        # Tensors with known numbers that may be reached, or shared, by others whose numbers are not known.
        self.exposed: set[Value] = set()
        # The attributes that known numbers come from, with their guards, until a decision is made on them.
        self.origins: dict[Value, dict[str, Guard]] = {}
        # Objects that only operators look into, by the value that holds them.
        self.opaque: dict[Value, Any] = {}
        # Values defined before ``anchor``, besides constants.
        self.at_top: set[Value] = set()
        self._constants: dict[Any, Value] = {}
        self._kept: list[Any] = []
        # Constants and reads of attributes that never change stand before this node.
        self.anchor = self.block.append(Node("prim::Constant"))
        self.anchor.add_output(T.NONE)

    # -------------------------------------------------------------------------------------------------- values

    def get(self, value: Value) -> Abstract:
        """What is known of a value of the old graph."""
        found = self.env[value]
        if isinstance(found, Dyn) and found.value in self.state.renamed:
            return Dyn(self.state.renamed[found.value])
        return found

    def bind(self, value: Value, known: Abstract) -> None:
        """Say what a value of the old graph is."""
        self.env[value] = known

    def wrap(self, value: Any, t: T.Type) -> Abstract:
        """A Python value, with Abstract parts or without, as an Abstract."""
        if isinstance(value, (Known, Tup, Ref, Dyn, Task, Blank)):
            return value
        plain = t.element if isinstance(t, T.OptionalType) else t
        if isinstance(value, tuple):
            if not isinstance(plain, T.TupleType):
                plain = T.TupleType((T.ANY,) * len(value))
            return Tup(tuple(map(self.wrap, value, plain.elements)), plain)
        if isinstance(value, list):
            element = plain.element if isinstance(plain, T.ListType) else T.ANY
            return self.new(tuple(self.wrap(v, element) for v in value), plain)
        if isinstance(value, dict):
            element = plain.value if isinstance(plain, T.DictType) else T.ANY
            return self.new(tuple((k, self.wrap(v, element)) for k, v in value.items()), plain)
        return Known(value, type_of_constant(value, plain))

    def new(self, contents: tuple[Any, ...], t: T.Type) -> Ref:
        """A new list or dict."""
        ref = Ref(t)
        self.state.contents[ref] = contents
        return ref

    def type_of(self, known: Abstract) -> T.Type:
        """The type of a value; for a tensor all that is known of it."""
        return known.type

    # ------------------------------------------------------------------------------------------------ emission

    def emit(
        self, kind: str, inputs: Sequence[Value], like: Node | None, attributes: dict[str, Any] | None = None
    ) -> Node:
        """A new node at the place of emission, without outputs. ``like`` gives its place in the source."""
        node = Node(kind, inputs, attributes)
        if like is not None:
            node.source, node.call = like.source, self.call_of(like)
            if like.kind == kind:
                node.schema = like.schema
        self.block.append(node)
        self.count += 1
        return node

    def call_of(self, node: Node) -> CallSite | None:
        """The calls around a node of the old graph: those it was inlined through, then those followed here."""
        return joined(node.call, self.call)

    def emit_op(self, name: str, inputs: Sequence[Value], like: Node, t: T.Type) -> Value:
        """The result of an operator by its full name."""
        op = table.by_full_name(name)
        if op is None:
            raise InternalError(f"operator {name} has no entry")
        node = self.emit(op.name, inputs, like)
        node.schema = op.schema
        return node.add_output(t)

    def constant(self, value: Any, t: T.Type) -> Value:
        """A constant at the top of the graph, one for all equal values."""
        inner = constant_key(value)
        key = (t, inner) if inner is not None else (t, id(value))
        found = self._constants.get(key)
        if found is None:
            node = Node("prim::Constant", (), {} if value is None else {"value": value})
            node.insert_before(self.anchor)
            found = self._constants[key] = node.add_output(t)
            self._kept.append(value)
        return found

    def place(self, known: Abstract, t: T.Type | None = None, like: Node | None = None, *, keep: bool = True) -> Value:
        """A value of the new graph that holds ``known``, of a type that fits ``t``.

        ``keep``: whoever gets it may keep or change the object; if not, it only looks at it while it runs.
        """
        if isinstance(known, Dyn):
            if keep and known.value in self.state.arrays:
                self.exposed.add(known.value)
            return self.state.renamed.get(known.value, known.value)
        if isinstance(known, Known):
            return self.constant(known.value, T.NONE if known.value is None else known.type)
        if isinstance(known, Blank):
            node = self.emit("prim::Uninitialized", (), like)
            return node.add_output(t or known.type)
        if isinstance(known, Tup):
            inner = [
                self.place(item, e, like, keep=keep) for item, e in zip(known.items, known.type.elements, strict=True)
            ]
            node = self.emit("prim::TupleConstruct", inner, like)
            return node.add_output(known.type)
        if isinstance(known, Task):
            raise InternalError("a future was let out of the evaluator")
        return self._place_ref(known, like, keep)

    def _place_ref(self, ref: Ref, like: Node | None, keep: bool) -> Value:
        found = self.state.places.get(ref)
        if found is not None:
            return found
        if ref in self.readers:
            found = self.state.places[ref] = self.readers[ref]()
            return found
        if isinstance(ref.type, T.ClassType):
            return self._place_object(ref, ref.type, like)
        contents = self.state.contents[ref]
        if isinstance(ref.type, T.DictType):
            inner = []
            for key, value in contents:
                inner += [self.constant(key, ref.type.key), self.place(value, ref.type.value, like, keep=keep)]
            kind = "prim::DictConstruct"
        else:
            element = ref.type.element if isinstance(ref.type, T.ListType) else T.ANY
            numbers = self._plain_list(contents) if not keep else None
            if numbers is not None:
                return self.constant(numbers, ref.type)
            inner = [self.place(value, element, like, keep=keep) for value in contents]
            kind = "prim::ListConstruct"
        made = self.emit(kind, inner, like).add_output(ref.type)
        if keep:
            self.state.places[ref] = made
        return made

    def untyped(self, value: Value) -> Value:
        """The same tensor under a type that says nothing of its shape."""
        return self.emit("prim::unchecked_cast", [value], None).add_output(T.TENSOR)

    def _plain_list(self, contents: tuple[Any, ...]) -> list[Any] | None:
        if all(isinstance(v, Known) and isinstance(v.value, (bool, int, float, str)) for v in contents):
            return [v.value for v in contents]
        return None

    def _place_object(self, ref: Ref, t: T.ClassType, like: Node | None) -> Value:
        made = self.emit("prim::CreateObject", (), like).add_output(t)
        self.state.places[ref] = made
        for name, declared in t.attributes.items():
            value = self.state.attributes.get((ref, name))
            if value is not None:
                self.emit("prim::SetAttr", [made, self.place(value, declared, like)], like, {"name": name})
        return made

    # ----------------------------------------------------------------------------------------------- inference

    def argument(self, known: Abstract) -> Any:
        """A value as ``ops.infer`` takes it."""
        if isinstance(known, Known):
            return known.value
        if isinstance(known, Dyn):
            if known.value in self.opaque:
                return self.opaque[known.value]
            t = self.state.renamed.get(known.value, known.value).type
            if isinstance(t, TensorType):
                return TensorType(t.dtype, t.shape)
            if isinstance(t, T.ListType) and isinstance(t.element, TensorType):
                return ListOf(T.TENSOR)
            return _UNKNOWN_OF.get(t, UNKNOWN)
        if isinstance(known, Tup):
            return tuple(map(self.argument, known.items))
        if isinstance(known, Ref):
            contents = self.state.contents.get(known)
            if isinstance(known.type, T.ListType):
                if contents is not None:
                    return list(map(self.argument, contents))
                if isinstance(known.type.element, TensorType):
                    return ListOf(T.TENSOR)
                return UNKNOWN
            return _OBJECT
        return UNKNOWN

    def join(self, a: T.Type, b: T.Type) -> T.Type:
        """The type that holds values of both; of two tensor types what both agree on."""
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            joined = join_types(TensorType(a.dtype, a.shape), TensorType(b.dtype, b.shape))
            assert isinstance(joined, TensorType)
            return joined
        found = T.unify(plain_type(a), plain_type(b), default_to_union=True)
        return T.ANY if found is None else found

    def note_array(self, value: Value, array: Any) -> None:
        """Remember the numbers of a small tensor."""
        if isinstance(array, np.ndarray) and is_followed(array):
            self.state.arrays[value] = array

    def array(self, known: Abstract) -> Any:
        """The numbers of a tensor, None when they are not known."""
        return self.state.arrays.get(known.value) if isinstance(known, Dyn) else None

    def commit(self, values: Sequence[Abstract]) -> None:
        """A decision was made on the numbers of these tensors: the attributes they come from are guarded."""
        for known in values:
            if isinstance(known, Dyn):
                for path, guard in self.origins.get(known.value, {}).items():
                    self.guards[f"numbers of {path}"] = guard
            elif isinstance(known, Ref):
                self.commit(self.state.contents.get(known, ()))

    def origins_of(self, values: Sequence[Abstract]) -> dict[str, Guard]:
        """The attributes whose numbers these values were computed from."""
        found: dict[str, Guard] = {}
        for known in values:
            if isinstance(known, Dyn):
                found.update(self.origins.get(known.value, {}))
            elif isinstance(known, Ref):
                found.update(self.origins_of(self.state.contents.get(known, ())))
        return found

    def constant_tensor(self, value: Any, t: T.Type) -> Dyn:
        """A tensor that the graph holds as a constant."""
        found = self.constant(value, t if is_sparse(value) else type_of(value))
        self.note_array(found, value)
        return Dyn(found)

    # --------------------------------------------------------------------------------------------------- running

    def run(self, block: Block) -> list[Abstract]:
        """What a block of the old graph returns, its nodes evaluated at the place of emission."""
        for node in block.nodes:
            handler = HANDLERS.get(node.kind, HANDLERS[""])
            handler(self, node)
        return [self.get(v) for v in block.returns]

    def run_graph(self, graph: Graph, arguments: Sequence[Abstract], site: CallSite | None) -> list[Abstract]:
        """What a called graph returns."""
        if self.depth >= MAX_DEPTH:
            raise LimitError(f"calls of {graph.name} are nested more than {MAX_DEPTH} deep")
        env, call = self.env, self.call
        self.env, self.call = dict(zip(graph.inputs, arguments, strict=True)), site
        self.depth += 1
        try:
            return self.run(graph.block)
        finally:
            self.depth -= 1
            self.env, self.call = env, call

    def call_function(self, function: Function, arguments: Sequence[Abstract], node: Node) -> Abstract:
        """What a call returns."""
        around, module = self.call_of(node), None
        if node.kind == "prim::CallMethod" and (found := object_path(node.inputs[0])) is not None:
            module = dotted("" if self.call is None else self.call.module, found)
        if module is None:
            module = "" if around is None else around.module
        site = CallSite(function.name, node.source, around, module)
        return self.run_graph(function.graph, arguments, site)[0]

    # ------------------------------------------------------------------------------------------------- unknown code

    def forget_visible(self) -> None:
        """Code nobody looks into has run: it may have changed everything that exists at run time."""
        state = self.state
        state.spoiled = frozenset((T.ListType, T.DictType))
        for ref in state.places:
            state.contents.pop(ref, None)
        for ref, name in list(state.attributes):
            if ref in state.places and not is_module_attribute(ref, name):
                self.forget_attribute(ref, name)
        for ref, owner in self.owners.items():
            for name in owner.type.attributes:
                if not is_module_attribute(ref, name):
                    self.forget_attribute(ref, name)
        state.arrays.clear()

    def forget_containers(self, t: T.Type) -> None:
        """A list or dict reached at run time was changed: any that exists then may be the one."""
        self.state.spoiled |= {type(t)}
        for ref in self.state.places:
            if ref in self.state.contents and type(ref.type) is type(t):
                del self.state.contents[ref]

    def forget_attribute(self, ref: Ref, name: str) -> None:
        """The attribute may have another value by now: it is read again."""
        t = ref.type
        declared = t.attributes[name] if isinstance(t, T.ClassType) and name in t.attributes else T.ANY
        self.state.attributes.pop((ref, name), None)
        self.state.stale[ref, name] = declared


def is_module_attribute(ref: Ref, name: str) -> bool:
    """Whether an attribute holds a module, which no program replaces."""
    t = ref.type
    declared = t.attributes.get(name) if isinstance(t, T.ClassType) else None
    return isinstance(declared, T.ClassType) and declared.is_module


def is_followed(array: Any) -> bool:
    """Whether a tensor's numbers are worth knowing: a few whole numbers, or a single number."""
    if array.ndim == 0:
        return True
    return array.size <= SMALL and array.dtype.kind in "biu"


def plain_type(t: T.Type) -> T.Type:
    """The type without what is known of tensors."""
    if isinstance(t, TensorType):
        return T.TENSOR
    if isinstance(t, T.TupleType):
        return T.TupleType(tuple(map(plain_type, t.elements)), t.name, t.fields)
    return t


# Stands for a dict or object, of which rules need to know at most that it is not None.
_OBJECT = object()
_UNKNOWN_OF: dict[T.Type, Unknown] = {
    T.INT: Unknown(int), T.FLOAT: Unknown(float), T.BOOL: Unknown(bool), T.COMPLEX: Unknown(complex),
    T.STR: Unknown(str),
}  # fmt: skip

Handler = Callable[[Evaluator, Node], None]
HANDLERS: dict[str, Handler] = {}


def handles(*kinds: str) -> Callable[[Handler], Handler]:
    """Name the kinds of nodes a function evaluates; '' stands for all others."""

    def add(handler: Handler) -> Handler:
        for kind in kinds:
            HANDLERS[kind] = handler
        return handler

    return add
