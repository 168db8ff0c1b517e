"""Constant propagation: what is known before run time is computed, branches not taken and loops not entered vanish.

Values are computed in one walk and written into the graph at its end: a list that is only read by nodes which are
themselves computed never becomes a constant. A value stays uncomputed where somebody may write into its memory, and is
not made a constant where a caller could come to hold the constant's memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, kind_of, numpy_dtype
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.values import Device, EnumValue
from gpujit.ir.verify import holds
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.decide import decided
from gpujit.passes.analysis.evaluate import evaluate, is_known_kind, is_mutable, is_number_to_arithmetic
from gpujit.passes.base import Edits, declined, graph_pass
from gpujit.passes.control.blocks import drop_output, negated, splice
from gpujit.passes.nodes import constant_before


@graph_pass("fold")
def fold(graph: Graph) -> bool:
    """Compute what depends on constants only, and take out branches never run and loops run not at all or once.

    Left as they are: nodes with effects, random numbers, results much larger than their inputs, results that are
    written into or handed out of the graph, quantised tensors, and what raises.
    """
    return repeated(Folder, graph)


def repeated(folder: Callable[[Graph], Folder], graph: Graph) -> bool:
    """Run walks over a graph until one takes out no more branches or loops; whether the graph changed.

    Where a branch that writes is gone, more is known of what it wrote into.
    """
    changed = False
    edits = Edits()
    for _ in range(_MAX_WALKS):
        walk = folder(graph)
        walk.edits = edits
        changed |= walk.run()
        if not walk.restructured:
            break
    return changed


_MAX_WALKS = 10
_MAX_REVISITS = 100


class _Missing:
    """Stands for "not known" where None is a value."""


MISSING = _Missing()


class Folder:
    """One walk over a graph. ``loop`` is the place where a pass that unrolls joins in."""

    pass_name = "fold"

    def __init__(self, graph: Graph, analysis: AliasAnalysis | None = None) -> None:
        self.graph = graph
        self.changed = False
        self.edits = Edits()
        # Whether a branch or a loop was taken out.
        self.restructured = False
        self.known: dict[Value, Any] = {}
        # Values of copied nodes, and those they are copies of: what the analysis says of these holds for them.
        self.origin: dict[Value, Value] = {}
        self._analysis = analysis
        self._computed: list[Node] = []
        self._revisits = 0

    @property
    def analysis(self) -> AliasAnalysis:
        """Built when it is first needed: most graphs without constants in them do not."""
        if self._analysis is None:
            self._analysis = AliasAnalysis(self.graph)
        return self._analysis

    def run(self) -> bool:
        """Fold the whole graph; whether it changed."""
        # The analysis describes the graph before any edit.
        _ = self.analysis
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.block(self.graph.block)
        self.write_constants()
        return self.changed

    # ---------------------------------------------------------------------------------------------- what is known

    def value_of(self, value: Value) -> Any:
        """The known value, MISSING when there is none."""
        found = self.known.get(value, MISSING)
        if found is MISSING and value.node.kind == "prim::Constant":
            held = value.node.attributes.get("value")
            if is_known_kind(held) and not (is_mutable(held) and self.is_written(value)):
                self.known[value] = held
                return held
        return found

    def is_written(self, value: Value) -> bool:
        return self.analysis.is_written(self.origin.get(value, value))

    def escapes(self, value: Value) -> bool:
        return self.analysis.escapes(self.origin.get(value, value))

    @contextmanager
    def assuming(self, condition: Value, answer: bool) -> Iterator[None]:
        """Inside an if's block its condition is known, and what was negated to get it."""
        added: list[Value] = []
        value = condition
        while value not in self.known and not value.is_constant:
            self.known[value] = answer
            added.append(value)
            if value.node.kind != "aten::__not__":
                break
            value, answer = value.node.inputs[0], not answer
        yield
        for value in added:
            del self.known[value]

    # ---------------------------------------------------------------------------------------------------- walking

    def block(self, block: Block) -> None:
        node = block.param_node.next
        while node is not block.return_node:
            assert node is not None
            following = node.next
            node = self.node(node) or following

    def range(self, first: Node, end: Node) -> None:
        """Walk over the nodes from ``first`` up to, without it, ``end`` of the same block."""
        node: Node | None = first
        while node is not end:
            assert node is not None
            following = node.next
            node = self.node(node) or following

    def node(self, node: Node) -> Node | None:
        """Look at one node; returns where to go on when that is not the node after it."""
        kind = node.kind
        if kind == "prim::Constant":
            return None
        if kind == "prim::If":
            return self.if_(node)
        if kind == "prim::Loop":
            return self.loop(node)
        args = [self.value_of(v) for v in node.inputs]
        if len(node.outputs) == 1 and (len(args) < 3 or kind == "prim::isinstance"):
            answer = decided(node)
            if answer is not None:
                self.compute(node, (answer,))
                return None
        if not node.outputs or not all(a is not MISSING for a in args) or kind in _NEVER:
            return None
        results = evaluate(node, args)
        if results is None:
            declined(self.pass_name, node, "computing it fails, has effects, gives too much or no plain value")
            return None
        if any(is_mutable(r) and self.is_written(v) for r, v in zip(results, node.outputs, strict=True)):
            declined(self.pass_name, node, "its result may be written into")
            return None
        self.compute(node, results)
        return None

    def compute(self, node: Node, results: Sequence[Any]) -> None:
        self.known.update(zip(node.outputs, results, strict=True))
        self._computed.append(node)

    def may_edit(self) -> bool:
        """Whether fuel is left for the edit that the caller then makes."""
        if not self.edits.may_edit():
            return False
        self.edits.count()
        self.changed = True
        return True

    def if_(self, node: Node) -> Node | None:
        condition = node.inputs[0]
        answer = self.value_of(condition)
        if answer is not MISSING and self.may_edit():
            return self.take(node, node.blocks[0 if answer else 1])
        found: list[list[Any]] = []
        for block, truth in zip(node.blocks, (True, False), strict=True):
            with self.assuming(condition, truth):
                self.block(block)
                found.append([self.value_of(v) for v in block.returns])
        for i in reversed(range(len(node.outputs))):
            self.output(node, i, found[0][i], found[1][i])
        if any(v in self.known for v in node.outputs):
            self._computed.append(node)
        return None

    def output(self, node: Node, index: int, yes: Any, no: Any) -> None:
        """Look at a result of an if whose branches give ``yes`` and ``no`` for it, where these are known."""
        output, condition = node.outputs[index], node.inputs[0]
        a, b = (block.returns[index] for block in node.blocks)
        if not output.uses:
            return
        if a is b:
            instead = a
        elif is_same_plain(yes, no):
            self.known[output] = yes
            return
        elif yes is True and no is False:
            instead = condition
        elif yes is False and no is True:
            instead = negated(condition, node)
        else:
            return
        if self.may_edit():
            output.replace_all_uses_with(instead)
            drop_output(node, index)

    def take(self, node: Node, block: Block, arguments: Sequence[Value] = ()) -> Node:
        """Put a block's nodes in the place of the if or loop it belongs to; returns where to go on."""
        for param, value in zip(block.params, arguments, strict=True):
            param.replace_all_uses_with(value)
        self.restructured = True
        following = node.next
        assert following is not None
        first = splice(block, node)
        results = block.returns if node.kind == "prim::If" else block.returns[1:]
        for output, value in zip(node.outputs, results, strict=True):
            output.replace_all_uses_with(value)
        node.destroy()
        return following if first is node else first

    def loop(self, node: Node) -> Node | None:
        """Fold inside a loop; take it out when it does not run, or just once."""
        trips, condition = self.value_of(node.inputs[0]), self.value_of(node.inputs[1])
        never = (trips is not MISSING and trips <= 0) or condition is False
        if never and self.may_edit():
            self.restructured = True
            following = node.next
            for output, value in zip(node.outputs, node.inputs[2:], strict=True):
                output.replace_all_uses_with(value)
            node.destroy()
            return following
        body = node.blocks[0]
        self._replace_invariants(node)
        if not self._runs_once(node, trips, condition):
            self.block(body)
            # Loops that turn out so late are walked over again; nested ones would cost twice for each level.
            if self._revisits >= _MAX_REVISITS or not self._runs_once(node, trips, condition):
                return None
            self._revisits += 1
        if not self.may_edit():
            return None
        index = constant_before(node, 0, T.INT) if body.params[0].uses else node.inputs[0]
        return self.take(node, body, (index, *node.inputs[2:]))

    def _runs_once(self, node: Node, trips: Any, condition: Any) -> bool:
        if condition is not True or trips is MISSING or trips < 1:
            return False
        return bool(trips == 1 or self.value_of(node.blocks[0].returns[0]) is False)

    def _replace_invariants(self, node: Node) -> None:
        """Let what a loop carries unchanged be read from outside."""
        body = node.blocks[0]
        for value, param, result, output in zip(
            node.inputs[2:], body.params[1:], body.returns[1:], node.outputs, strict=True
        ):
            start, end = self.value_of(value), self.value_of(result)
            if result is not param and result is not value:
                if not is_same_plain(start, end) or not (param.uses or output.uses):
                    continue
            elif not [u for u in param.uses if u.node is not body.return_node] and not output.uses:
                continue
            if self.may_edit():
                output.replace_all_uses_with(value)
                param.replace_all_uses_with(value)

    # ---------------------------------------------------------------------------------------------------- writing

    def write_constants(self) -> None:
        """Put constants in the place of computed nodes. Last ones first: what only they read is then unread."""
        for node in reversed(self._computed):
            if node.block is None:
                continue
            read = [v for v in node.outputs if v.uses and v in self.known]
            types = [self._constant_type(v) for v in read]
            if any(t is None for t in types) or not (read or not node.blocks) or not self.may_edit():
                continue
            for value, type_ in zip(read, types, strict=True):
                assert type_ is not None
                new = constant_before(node, self.known[value], type_)
                new.name = value.name
                value.replace_all_uses_with(new)
            if not node.blocks:
                node.destroy()
                continue
            for i in reversed(range(len(node.outputs))):
                if node.outputs[i] in read:
                    drop_output(node, i)

    def _constant_type(self, value: Value) -> T.Type | None:
        """The type of the constant to write for a value, None when there must not be one."""
        held = self.known[value]
        if is_mutable(held):
            if self.escapes(value):
                declined(self.pass_name, value.node, "its result may leave the graph, and callers may write into it")
                return None
            if isinstance(held, np.ndarray) and any(_misreads(u.node, u.index, held) for u in value.uses):
                declined(self.pass_name, value.node, "arithmetic would read the constant as a number")
                return None
        type_ = type_of_constant(held, value.type)
        return type_ if type_ is not None and holds(held, type_) else None


# A value that is never read may be anything, and an object is more than its attributes.
_NEVER = frozenset(("prim::Uninitialized", "prim::CreateObject", "prim::GetAttr"))


def is_same_plain(a: Any, b: Any) -> bool:
    """Whether two known values are the same number, string or None, to the last bit."""
    if a is MISSING or b is MISSING or type(a) is not type(b):
        return False
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    return isinstance(a, (bool, int, str, type(None), Device, EnumValue)) and bool(a == b)


def _misreads(node: Node, index: int, array: np.ndarray) -> bool:
    """Whether reading a 0-dim array as a number, as arithmetic does with constants, may give another dtype."""
    if array.ndim or array.dtype.kind == "b" or not is_number_to_arithmetic(node, index):
        return False
    other = node.inputs[0].type
    if isinstance(other, T.TensorType) and other.shape:
        if code_of(array.dtype) in _DEFAULTS:
            return False
        return other.dtype is None or kind_of(numpy_dtype(other.dtype)) < kind_of(array.dtype)
    return True


# What Python's int, float and complex become next to a tensor of a lower kind.
_DEFAULTS = (4, 6, 9)


def type_of_constant(value: Any, declared: T.Type) -> T.Type | None:
    """The type a constant of this value has where ``declared`` is known; None when no constant may hold it."""
    plain = _SIMPLE.get(type(value))
    if plain is not None:
        return plain
    if isinstance(value, np.ndarray):
        return T.TensorType(code_of(value.dtype), value.shape)
    if isinstance(value, EnumValue):
        return value.type
    options = [t for t in T.members_of(declared) if isinstance(t, (T.ListType, T.TupleType))]
    if len(options) != 1:
        return None
    (found,) = options
    if isinstance(found, T.ListType) and type(value) is list:
        return found if all(type(v) in _SIMPLE for v in value) else None
    if isinstance(found, T.TupleType) and type(value) is tuple:
        parts = [type_of_constant(v, t) for v, t in zip(value, found.elements, strict=True)]
        if any(p is None for p in parts) or any(map(is_mutable, value)):
            return None
        return found
    return None


_SIMPLE: dict[type, T.Type] = {
    int: T.INT,
    float: T.FLOAT,
    bool: T.BOOL,
    complex: T.COMPLEX,
    str: T.STR,
    type(None): T.NONE,
    Device: T.DEVICE,
}
