"""Dtypes and shapes pushed forward through a whole graph, sizes followed as numbers or symbolic expressions.

What holds for every run is written into the types of values; ``Facts`` holds what types cannot say: ints, lists of ints
and flags that are known, and the numbers in traced 0-dim tensors. Ifs join what both blocks give, loops are repeated until
what they carry no longer changes. Sizes that differ become unknown, so that this ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.ir import symbols
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.symbols import Sym
from gpujit.ir.types import TensorType
from gpujit.ir.values import QTensor, ScriptObject, SparseTensor
from gpujit.ops.infer import infer, join, type_of
from gpujit.ops.registry import Op
from gpujit.ops.rules import UNKNOWN, ListOf, Unknown
from gpujit.ops.symbolic import Live
from gpujit.passes.alias import AliasAnalysis
from gpujit.passes.base import graph_pass
from gpujit.passes.effects import entry_of, resolve_node
from gpujit.support.errors import ArgumentError, DTypeError, GpujitError, ShapeError

# Rounds of a loop after which everything it carries counts as unknown.
MAX_ROUNDS = 16
# Constant lists up to this long are followed element by element.
_LONGEST = 256


@dataclass(slots=True)
class Facts:
    """What is known of values besides their types.

    ``known`` holds, by value, what ``ops.infer`` takes and returns: a TensorType, a Python value or UNKNOWN, a list of
    these or a ListOf, a tuple of these; sizes may be symbolic. ``numbers`` holds the number in a 0-dim integer tensor.
    """

    known: dict[Value, Any] = field(default_factory=dict)
    numbers: dict[Value, Any] = field(default_factory=dict)

    def of(self, value: Value) -> Any:
        """What is known of a value; UNKNOWN when nothing is."""
        return self.known.get(value, UNKNOWN)

    def size(self, value: Value) -> int | Sym | None:
        """An int as a number or expression; None when it is not known."""
        found = self.of(value)
        return found if type(found) is int or isinstance(found, Sym) else None

    def constant(self, value: Value) -> tuple[bool, Any]:
        """Whether an int, float, bool, str, None, or list of these is surely one value in every run, and that value."""
        found = self.of(value)
        return (True, found) if _is_constant(found) else (False, None)


def infer_types(graph: Graph, inputs: Sequence[Any] | None = None) -> Facts:
    """What holds of the graph's values whenever its inputs are as said; types of values are refined in place.

    Args:
        inputs: for each input a TensorType (sizes may be Sym), a number or other value, a list or tuple of these, or
            UNKNOWN; a module stands for itself, its tensors for their types. By default the types on the graph.
    Raises ArgumentError when the inputs are fewer or more than the graph's, or of other types.
    """
    engine = _Engine(graph)
    given = [from_type(v.type) for v in graph.inputs] if inputs is None else list(inputs)
    if len(given) != len(graph.inputs):
        raise ArgumentError(f"{graph.name or 'the graph'} has {len(graph.inputs)} inputs, found {len(given)} types")
    while True:
        for value, known in zip(graph.inputs, given, strict=True):
            engine.set(value, _checked(value, known))
        engine.block(graph.block)
        if not engine.found_reshaped():
            break
    engine.write_types()
    return engine.facts


@graph_pass("infer_types")
def infer_types_pass(graph: Graph) -> bool:
    """Refine the types of all values by those already on the graph's inputs and constants."""
    engine = _Engine(graph)
    while True:
        for value in graph.inputs:
            engine.set(value, from_type(value.type))
        engine.block(graph.block)
        if not engine.found_reshaped():
            break
    return engine.write_types()


def symbolic_inputs(inputs: Sequence[Any], dims: dict[tuple[int, int], int | Sym]) -> list[Any]:
    """Example types with some sizes replaced: ``dims`` maps (input, dim) to a symbol or expression."""
    found = []
    for i, given in enumerate(inputs):
        if isinstance(given, TensorType) and given.shape is not None:
            shape = tuple(dims.get((i, k), n) for k, n in enumerate(given.shape))
            given = TensorType(given.dtype, shape)
        found.append(given)
    return found


def from_type(t: T.Type) -> Any:
    """What a declared type says of a value."""
    if isinstance(t, TensorType):
        return TensorType(t.dtype, t.shape)
    if t == T.NONE:
        return None
    if isinstance(t, T.TupleType):
        return tuple(map(from_type, t.elements))
    if isinstance(t, T.ListType) and isinstance(t.element, TensorType):
        return ListOf(TensorType(t.element.dtype, t.element.shape))
    return _UNKNOWN_OF.get(t, UNKNOWN)


_UNKNOWN_OF: dict[T.Type, Unknown] = {
    T.INT: Unknown(int), T.FLOAT: Unknown(float), T.BOOL: Unknown(bool), T.COMPLEX: Unknown(complex), T.STR: Unknown(str),
}  # fmt: skip


def _checked(value: Value, known: Any) -> Any:
    """What is said of an input, with what its type says. Raises ArgumentError when these contradict."""
    t = value.type
    if isinstance(t, TensorType):
        if not isinstance(known, TensorType):
            if isinstance(known, Unknown):
                return from_type(t)
            raise ArgumentError(f"input {value.name or '?'} is a {t}; give a TensorType, not {known!r}")
        merged = _refined(t, known)
        if merged is None:
            raise ArgumentError(f"input {value.name or '?'} is a {t}, which {known} contradicts")
        return TensorType(merged.dtype, merged.shape)
    return known


def _refined(declared: TensorType, found: TensorType) -> TensorType | None:
    """What both types say together; None when they contradict."""
    dtype = declared.dtype if found.dtype is None else found.dtype
    if declared.dtype is not None and dtype != declared.dtype:
        return None
    shape = found.shape
    if shape is None:
        shape = declared.shape
    elif declared.shape is not None:
        if len(declared.shape) != len(shape):
            return None
        sizes = []
        for a, b in zip(declared.shape, shape, strict=True):
            if type(a) is int and type(b) is int and a != b:
                return None
            sizes.append(a if b is None or type(a) is int else b)
        shape = tuple(sizes)
    same = shape == declared.shape
    strides = declared.strides if same else None
    return TensorType(dtype, shape, strides, declared.device, declared.requires_grad)


def _is_constant(found: Any) -> bool:
    if type(found) is list:
        return all(map(_is_constant, found))
    return found is None or type(found) in (int, float, bool, str)


class _Engine:
    """One inference over a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.facts = Facts()
        self.known = self.facts.known
        self.numbers = self.facts.numbers
        self._alias: AliasAnalysis | None = None
        # Tensors whose shape is changed in place, with all that may be the same tensor: their shapes are not known.
        self.reshaped: set[Value] = set()
        self._new_reshaped: set[Value] = set()
        self._written: set[tuple[T.Type, str]] = set()
        self._all_written = False
        for node in graph.all_nodes():
            if node.kind == "prim::SetAttr":
                self._written.add((node.inputs[0].type, node.attributes["name"]))
            elif node.kind in ("prim::CallMethod", "prim::CallFunction", "prim::Enter", "prim::fork"):
                self._all_written = True

    @property
    def alias(self) -> AliasAnalysis:
        """Made when first asked for: most graphs write no lists."""
        if self._alias is None:
            self._alias = AliasAnalysis(self.graph)
        return self._alias

    # --------------------------------------------------------------------------------------------------- values

    def set(self, value: Value, known: Any) -> None:
        """Note what is known of a value."""
        if value in self.reshaped and isinstance(known, TensorType):
            known = TensorType(known.dtype)
        self.known[value] = known

    def get(self, value: Value) -> Any:
        """What is known of a value."""
        return self.known.get(value, UNKNOWN)

    def found_reshaped(self) -> bool:
        """Whether a shape turned out to be changed in place: then all starts again, those shapes left open."""
        if not self._new_reshaped:
            return False
        roots, self._new_reshaped = self._new_reshaped, set()
        for value in list(self.known):
            if value not in self.reshaped and any(value is r or self.alias.may_alias(value, r) for r in roots):
                self.reshaped.add(value)
        self.reshaped |= roots
        self.known.clear()
        self.numbers.clear()
        return True

    def write_types(self) -> bool:
        """Refine the types of values by what was found; whether any became narrower."""
        changed = False
        for value, known in self.known.items():
            t = value.type
            if not isinstance(t, TensorType) or not isinstance(known, TensorType):
                continue
            if value.node.kind in ("prim::Constant", "prim::GetAttr") and not isinstance(known, TensorType):
                continue
            merged = _refined(t, known)
            if merged is not None and merged != t and not (value in self.reshaped and t.shape is not None):
                value.type = merged
                changed = True
        return changed

    # ---------------------------------------------------------------------------------------------------- nodes

    def block(self, block: Block) -> None:
        """Infer the nodes of a block whose parameters are set."""
        for node in block.nodes:
            handler = _HANDLERS.get(node.kind)
            if handler is not None:
                handler(self, node)
            else:
                self.operator(node)

    def operator(self, node: Node) -> None:
        """A node with an entry in the table; of others nothing but the declared types is known."""
        op = entry_of(node) if node.schema is not None or resolve_node(node) is not None else None
        if op is None or not node.outputs:
            self.unknown(node)
            return
        args = [self._argument(v) for v in node.inputs]
        self._as_numbers(node, args)
        try:
            results = infer(op, args)
        except (ShapeError, DTypeError):
            # It raises when it runs.
            self.unknown(node)
            return
        if len(node.outputs) == 1:
            results = (results,)
        if not isinstance(results, tuple) or len(results) != len(node.outputs):
            self.unknown(node)
            return
        if op.form == "inplace":
            # The tensor written into, whose type does not change.
            results = (args[0], *results[1:])
        for value, result in zip(node.outputs, results, strict=True):
            if isinstance(result, list) and not self.is_settled(value):
                result = UNKNOWN
            if isinstance(result, Unknown):
                result = from_type(value.type)
            self.set(value, result)
        if op.schema.is_mutable:
            self._note_reshaped(node, op)
        self._follow_number(node, op)

    def _argument(self, value: Value) -> Any:
        known = self.get(value)
        if isinstance(known, Unknown) and (isinstance(known, _Blank) or isinstance(value.type, TensorType)):
            return from_type(_plain(value.type))
        return known

    def unknown(self, node: Node) -> None:
        """Results of which only the declared types are known."""
        for value in node.outputs:
            t = value.type
            # A type on the graph may be what an earlier, less careful, run of the model had.
            self.set(value, T.TENSOR if isinstance(t, TensorType) else from_type(t))

    def is_settled(self, value: Value) -> bool:
        """Whether nothing ever changes the list, so that its elements are known wherever it is read."""
        return not any(_may_change(use.node, use.index) for use in value.uses) or not self.alias.is_written(value)

    def _as_numbers(self, node: Node, args: list[Any]) -> None:
        # A traced number, stored as a constant 0-dim tensor, has the place of a number in promotion.
        if node.kind in _ARITHMETIC and len(args) > 1 and node.inputs[1].is_constant:
            other = node.inputs[1].constant()
            if getattr(other, "ndim", None) == 0 and other.dtype.kind != "b":
                args[1] = other.item()

    def _note_reshaped(self, node: Node, op: Op) -> None:
        for i, argument in enumerate(op.schema.arguments[: len(node.inputs)]):
            if not argument.is_write or not node.outputs:
                continue
            before, after = self.get(node.inputs[i]), self.get(node.outputs[0])
            if (
                op.form == "functional"
                and op.type_rule is not None
                and isinstance(before, TensorType)
                and isinstance(after, TensorType)
                and before.shape != after.shape
                and node.inputs[i] not in self.reshaped
                and argument.alias == op.schema.returns[0].alias
            ):
                self._new_reshaped.update((node.inputs[i], node.outputs[0]))
            # The number in a tensor that is written is no longer known.
            self._forget_numbers(node.inputs[i])

    def _forget_numbers(self, value: Value) -> None:
        for other in [v for v in self.numbers if v is value or self.alias.may_alias(v, value)]:
            del self.numbers[other]

    # ----------------------------------------------------------------------- numbers in traced 0-dim tensors

    def _number(self, value: Value) -> Any:
        found = self.numbers.get(value)
        if found is None:
            known = self.get(value)
            if type(known) is int or isinstance(known, Sym):
                return known
            if value.is_constant:
                array = value.constant()
                if isinstance(array, np.ndarray) and array.ndim == 0 and array.dtype.kind in "iu":
                    return int(array)
        return found

    def _follow_number(self, node: Node, op: Op) -> None:
        """Compute with the numbers of 0-dim integer tensors, as traces do for sizes."""
        (value, *rest) = node.outputs
        if rest or op.effects or op.schema.is_mutable:
            return
        known = self.get(value)
        if isinstance(known, TensorType):
            if known.shape != () or known.dtype != 4 or op.kind not in ("pointwise", "prim", "library"):
                return
        elif not (isinstance(known, Unknown) and value.type in (T.INT, T.NUMBER)):
            return
        found = [self._number(v) for v in node.inputs]
        if not node.inputs or found[0] is None or isinstance(found[0], bool):
            return
        number = _computed(op, found, [self.get(v) for v in node.inputs])
        if number is None:
            return
        if isinstance(known, TensorType):
            self.numbers[value] = number
        else:
            self.set(value, number)


def _computed(op: Op, numbers: Sequence[Any], known: Sequence[Any]) -> Any:
    """What an operator on numbers gives: its body run on them. None when that cannot be said."""
    arguments: list[Any] = []
    for i, (number, other) in enumerate(zip(numbers, known, strict=True)):
        if number is not None:
            arguments.append(_Number(number) if i < 2 else number)
        elif other is None or type(other) in (bool, str):
            arguments.append(other)
        else:
            return None
    try:
        missing = [a.default for a in op.schema.arguments[len(arguments) :]]
        if op.kind == "pointwise":
            result = op.body(_Integers, *arguments, *missing)
        elif len(arguments) == len(op.schema.arguments) == 1 and _is_identity(op):
            result = numbers[0]
        else:
            return None
    except (GpujitError, symbols.TooLong, Exception):
        return None
    if isinstance(result, Live):
        result = result.size
    if isinstance(result, Sym):
        return result
    return result if type(result) is int and abs(result) < 1 << 62 else None


_identities: dict[Op, bool] = {}


def _is_identity(op: Op) -> bool:
    """Whether an operator of one argument only brings a whole number from one form to another (Int, item, NumToTensor).

    Found by asking it for some numbers.
    """
    found = _identities.get(op)
    if found is None:
        from_tensor = isinstance(op.schema.arguments[0].type, TensorType)
        found = _identities[op] = all(_gives_back(op, n, from_tensor) for n in (-3, 0, 1, 2, 5, 1 << 40))
    return found


def _gives_back(op: Op, n: int, from_tensor: bool) -> bool:
    try:
        result = op.kernel(np)(np.array(n) if from_tensor else n)
    except Exception:  # whatever it is, it is no identity
        return False
    if isinstance(result, np.ndarray):
        return result.shape == () and result.dtype == np.int64 and int(result) == n
    return type(result) is int and result == n


class _Number(Live):
    """The number in a 0-dim int64 tensor, as bodies of operators on tensors take it."""

    __slots__ = ()
    dtype = np.dtype(np.int64)
    ndim = 0

    def all(self) -> bool:
        """Whether it is not zero."""
        return self != 0


class _Integers:
    """The functions of a body's module that whole numbers have exact answers for."""

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        """a + b."""
        return a + b

    @staticmethod
    def subtract(a: Any, b: Any) -> Any:
        """a - b."""
        return a - b

    @staticmethod
    def multiply(a: Any, b: Any) -> Any:
        """a * b."""
        return a * b

    @staticmethod
    def floor_divide(a: Any, b: Any) -> Any:
        """a // b."""
        return a // b

    @staticmethod
    def mod(a: Any, b: Any) -> Any:
        """a % b."""
        return a % b

    @staticmethod
    def negative(a: Any) -> Any:
        """-a."""
        return -a


_ARITHMETIC = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))


def _may_change(node: Node, index: int) -> bool:
    """Whether reading a list as that input may lead to its being changed."""
    schema = node.schema
    if schema is None:
        return node.kind not in ("prim::ListUnpack", "prim::Return")
    if index >= len(schema.arguments):
        return schema.is_mutable
    argument = schema.arguments[index]
    return argument.alias is not None


# ------------------------------------------------------------------------------------------------- kinds of the language


def _constant(engine: _Engine, node: Node) -> None:
    engine.set(node.output, _of_value(node.attributes.get("value"), node.output.type))


def _of_value(value: Any, t: T.Type) -> Any:
    if isinstance(value, (np.ndarray, QTensor, SparseTensor)):
        return type_of(value)
    if isinstance(value, (list, tuple)) and len(value) <= _LONGEST:
        return type(value)(_of_value(v, T.ANY) for v in value) if type(value) in (list, tuple) else UNKNOWN
    if value is None or isinstance(value, (bool, int, float, complex, str, ScriptObject)):
        return value
    return from_type(t)


def _get_attribute(engine: _Engine, node: Node) -> None:
    owner, name = engine.get(node.inputs[0]), node.attributes["name"]
    t = node.output.type
    declared = from_type(t)
    if (
        isinstance(owner, ScriptObject)
        and not engine._all_written
        and (node.inputs[0].type, name) not in engine._written
    ):
        if name in owner.type.slot_of:
            value = owner.get(name)
            if value is None:
                declared = None
            elif isinstance(value, (np.ndarray, QTensor, ScriptObject)):
                declared = type_of(value) if not isinstance(value, ScriptObject) else value
        elif name in owner.type.constants:
            declared = _of_value(owner.type.constants[name][1], t)
    engine.set(node.output, declared)


def _make_list(engine: _Engine, node: Node) -> None:
    items = [engine.get(v) for v in node.inputs]
    engine.set(node.output, items if engine.is_settled(node.output) else from_type(node.output.type))


def _make_tuple(engine: _Engine, node: Node) -> None:
    engine.set(node.output, tuple(engine.get(v) for v in node.inputs))


def _unpack(engine: _Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    if isinstance(held, (list, tuple)) and len(held) == len(node.outputs):
        for value, item in zip(node.outputs, held, strict=True):
            engine.set(value, item)
    elif isinstance(held, ListOf):
        for value in node.outputs:
            engine.set(value, held.element)
    else:
        engine.unknown(node)


def _tuple_index(engine: _Engine, node: Node) -> None:
    held, index = (engine.get(v) for v in node.inputs)
    if isinstance(held, tuple) and type(index) is int and -len(held) <= index < len(held):
        engine.set(node.output, held[index])
    else:
        engine.unknown(node)


def _tuple_slice(engine: _Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    if isinstance(held, tuple):
        engine.set(node.output, held[node.attributes["beg"] : node.attributes["end"]])
    else:
        engine.unknown(node)


def _same(engine: _Engine, node: Node) -> None:
    held = engine.get(node.inputs[0])
    engine.set(node.output, from_type(node.output.type) if isinstance(held, Unknown) or held is None else held)
    if node.inputs[0] in engine.numbers:
        engine.numbers[node.output] = engine.numbers[node.inputs[0]]


class _Blank(Unknown):
    """What no run reads: joins with anything."""


_NEVER = _Blank()


def _uninitialized(engine: _Engine, node: Node) -> None:
    engine.set(node.output, _NEVER)


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, _Blank):
        return b
    if isinstance(b, _Blank):
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(_joined, a, b))
    if isinstance(a, ScriptObject) or isinstance(b, ScriptObject):
        return a if a is b else UNKNOWN
    if isinstance(a, Sym) or isinstance(b, Sym):
        return a if a == b else Unknown(int) if {type(a), type(b)} <= {int, Sym} else UNKNOWN
    if isinstance(a, Unknown) and isinstance(b, Unknown) and a.type is b.type:
        return a
    return join(a, b)


def _if(engine: _Engine, node: Node) -> None:
    condition = engine.get(node.inputs[0])
    before = dict(engine.numbers)
    ends = []
    for block in node.blocks:
        engine.numbers.update(before)
        engine.block(block)
        ends.append([engine.get(v) for v in block.returns])
        before = {v: n for v, n in before.items() if v in engine.numbers}
    for v in [v for v in engine.numbers if v not in before]:
        del engine.numbers[v]
    for i, value in enumerate(node.outputs):
        a, b = ends[0][i], ends[1][i]
        if type(condition) is bool:
            found = a if condition else b
        else:
            found = _joined(a, b)
        if isinstance(found, Unknown) and not isinstance(found, _Blank):
            found = from_type(_plain(value.type))
        engine.set(value, found)


def _plain(t: T.Type) -> T.Type:
    return T.TENSOR if isinstance(t, TensorType) else t


def _loop(engine: _Engine, node: Node) -> None:
    _, _, *carried = node.inputs
    (block,) = node.blocks
    state = [engine.get(v) for v in carried]
    engine.set(block.params[0], Unknown(int))
    # A number known before the loop may be written in it.
    engine.numbers.clear()
    for rounds in range(MAX_ROUNDS + 1):
        if rounds == MAX_ROUNDS:
            state = [from_type(_plain(v.type)) for v in block.params[1:]]
        for value, known in zip(block.params[1:], state, strict=True):
            if isinstance(known, Unknown) and not isinstance(known, _Blank):
                known = from_type(_plain(value.type))
            engine.set(value, known)
        engine.numbers.clear()
        engine.block(block)
        after = [_joined(known, engine.get(v)) for known, v in zip(state, block.returns[1:], strict=True)]
        if rounds == MAX_ROUNDS or all(map(_same_fact, state, after)):
            break
        state = after
    engine.numbers.clear()
    for value, known in zip(node.outputs, state, strict=True):
        if isinstance(known, Unknown) and not isinstance(known, _Blank):
            known = from_type(_plain(value.type))
        engine.set(value, known)


def _same_fact(a: Any, b: Any) -> bool:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return isinstance(a, Unknown) and isinstance(b, Unknown) and type(a) is type(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same_fact, a, b))
    return bool(repr(a) == repr(b)) if isinstance(a, float) else bool(a == b)


def _isinstance(engine: _Engine, node: Node) -> None:
    engine.set(node.output, Unknown(bool))


_HANDLERS = {
    "prim::Constant": _constant, "prim::GetAttr": _get_attribute, "prim::ListConstruct": _make_list,
    "prim::TupleConstruct": _make_tuple, "prim::TupleUnpack": _unpack, "prim::ListUnpack": _unpack,
    "prim::TupleIndex": _tuple_index, "prim::TupleSlice": _tuple_slice, "prim::unchecked_cast": _same,
    "prim::Uninitialized": _uninitialized, "prim::If": _if, "prim::Loop": _loop, "prim::isinstance": _isinstance,
}  # fmt: skip
