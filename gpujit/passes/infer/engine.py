"""What type inference knows, and the walk that finds it out; ``infer_types`` is its way in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.symbols import Sym
from gpujit.ir.types import TensorType
from gpujit.ops.infer import infer
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import UNKNOWN, ListOf, Unknown
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.infer.traced_numbers import computed
from gpujit.support.errors import DTypeError, ShapeError


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
    T.INT: Unknown(int), T.FLOAT: Unknown(float), T.BOOL: Unknown(bool), T.COMPLEX: Unknown(complex),
    T.STR: Unknown(str),
}  # fmt: skip


def plain(t: T.Type) -> T.Type:
    """The type without what is known of a tensor."""
    return T.TENSOR if isinstance(t, TensorType) else t


class Blank(Unknown):
    """What no run reads: joins with anything."""


def refined(declared: TensorType, found: TensorType) -> TensorType | None:
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


class Engine:
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
        self.written: set[tuple[T.Type, str]] = set()
        self.all_written = False
        for node in graph.all_nodes():
            if node.kind == "prim::SetAttr":
                self.written.add((node.inputs[0].type, node.attributes["name"]))
            elif node.kind in ("prim::CallMethod", "prim::CallFunction", "prim::Enter", "prim::fork"):
                self.all_written = True

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
        before = {value: value.type for value in self.known}
        self._write_candidates()
        # What blocks return must fit the results: knowing which branch is taken is no reason to say more of them.
        flows = [node for node in self.graph.all_nodes() if node.blocks]
        changing = True
        while changing:
            changing = False
            for node in reversed(flows):
                changing |= self._relaxed(node, before)
        return any(value.type is not t and value.type != t for value, t in before.items())

    def _relaxed(self, node: Node, before: dict[Value, T.Type]) -> bool:
        """Take back types of a branch's or loop's results that do not hold what is given to them; whether any was."""
        taken_back = False
        for target, given in _flows(node):
            if T.is_subtype(given.type, target.type):
                continue
            if given.node.kind == "prim::Uninitialized" and len(given.uses) == 1:
                before.setdefault(given, given.type)
                given.type = target.type
            elif target.type != before.get(target, target.type):
                target.type = before[target]
                taken_back = True
        return taken_back

    def _write_candidates(self) -> None:
        for value, known in self.known.items():
            t = value.type
            if isinstance(t, TensorType) and isinstance(known, TensorType):
                merged = refined(t, known)
                if merged is not None and not (value in self.reshaped and t.shape is not None):
                    value.type = merged

    # ---------------------------------------------------------------------------------------------------- nodes

    def block(self, block: Block) -> None:
        """Infer the nodes of a block whose parameters are set."""
        for node in block.nodes:
            handler = HANDLERS.get(node.kind)
            if handler is not None:
                handler(self, node)
            else:
                self.operator(node)

    def operator(self, node: Node) -> None:
        """A node with an entry in the table; of others nothing but the declared types is known."""
        op = entry_of(node)
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
        if isinstance(known, Unknown) and (isinstance(known, Blank) or isinstance(value.type, TensorType)):
            return from_type(plain(value.type))
        return known

    def unknown(self, node: Node) -> None:
        """Results of which only the declared types are known."""
        for value in node.outputs:
            t = value.type
            # A type on the graph may be what an earlier, less careful, run of the model had.
            self.set(value, T.TENSOR if isinstance(t, TensorType) else from_type(t))

    def is_settled(self, value: Value) -> bool:
        """Whether nothing ever changes the list, so that its elements are known wherever it is read."""
        return not any(may_change(use.node, use.index) for use in value.uses) or not self.alias.is_written(value)

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
        number = computed(op, found, [self.get(v) for v in node.inputs])
        if number is None:
            return
        if isinstance(known, TensorType):
            self.numbers[value] = number
        else:
            self.set(value, number)


_ARITHMETIC = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))


def _flows(node: Node) -> Iterator[tuple[Value, Value]]:
    """The results and block parameters of a branch or loop, each with what is given to it."""
    if node.kind == "prim::If":
        for block in node.blocks:
            yield from zip(node.outputs, block.returns, strict=True)
    elif node.kind == "prim::Loop":
        (block,) = node.blocks
        for given in (node.inputs[2:], block.returns[1:]):
            yield from zip(block.params[1:], given, strict=True)
            yield from zip(node.outputs, given, strict=True)


def may_change(node: Node, index: int) -> bool:
    """Whether reading a list as that input may lead to its being changed."""
    schema = node.schema
    if schema is None:
        return node.kind not in ("prim::ListUnpack", "prim::Return")
    if index >= len(schema.arguments):
        return schema.is_mutable
    argument = schema.arguments[index]
    return argument.alias is not None


Handler = Callable[[Engine, Node], None]
# What to do with kinds of nodes that are no operators; filled by ``infer_kinds``.
HANDLERS: dict[str, Handler] = {}
