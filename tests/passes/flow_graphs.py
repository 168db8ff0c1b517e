"""Random programs of numbers, ifs and loops, valid by construction, with effects whose order can be seen.

``flows()`` is a hypothesis strategy of graphs (int[] log, int a, int b, bool p, bool q) -> (int, bool, int). Programs
append to ``log``, may divide by zero, and leave loops and hand over uninitialised values as ``break`` and early
``return`` do.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops import table
from gpujit.support.errors import GpujitError
from tests.passes.random_graphs import run_graph

INPUTS = ((0, 0, False, True), (3, -2, True, True), (1, 5, True, False), (-4, 2, False, False))
_INT = ("aten::add.int", "aten::sub.int", "aten::mul.int", "aten::floordiv.int", "prim::max.int")
_COMPARE = ("aten::lt.int", "aten::eq.int", "aten::ge.int")
_LOGIC = ("aten::__and__.bool", "aten::__or__.bool")


class _Writer:
    def __init__(self, draw: st.DrawFn, graph: Graph) -> None:
        self.draw = draw
        self.graph = graph
        self.left = 30

    def pick(self, values: list[Value], type_: T.Type, block: Block) -> Value:
        found = [v for v in values if v.type == type_]
        if self.draw(st.integers(0, 3)) == 0:
            value: Any = self.draw(st.booleans() if type_ == T.BOOL else st.integers(-1, 4))
            return self.graph.constant(value, type_, block)
        return found[self.draw(st.integers(0, len(found) - 1))]

    def true_or_picked(self, values: list[Value], block: Block) -> Value:
        if self.draw(st.booleans()):
            return self.graph.constant(True, T.BOOL, block)
        return self.pick(values, T.BOOL, block)

    def op(self, name: str, inputs: list[Value], block: Block) -> Value:
        entry = table.by_full_name(name)
        assert entry is not None
        node = Node(entry.name, inputs)
        node.schema = entry.schema
        block.append(node)
        returned = entry.schema.returns[0].type
        return node.add_output(inputs[0].type if returned.has_var else returned)

    def number(self, block: Block, values: list[Value]) -> None:
        a, b = (self.pick(values, T.INT, block) for _ in range(2))
        values.append(self.op(self.draw(st.sampled_from(_INT)), [a, b], block))

    def truth(self, block: Block, values: list[Value]) -> None:
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            values.append(self.op("aten::__not__", [self.pick(values, T.BOOL, block)], block))
        elif kind == 1:
            a, b = (self.pick(values, T.BOOL, block) for _ in range(2))
            values.append(self.op(self.draw(st.sampled_from(_LOGIC)), [a, b], block))
        else:
            a, b = (self.pick(values, T.INT, block) for _ in range(2))
            values.append(self.op(self.draw(st.sampled_from(_COMPARE)), [a, b], block))

    def log(self, block: Block, values: list[Value]) -> None:
        self.op("aten::append.t", [self.graph.inputs[0], self.pick(values, T.INT, block)], block)

    def if_(self, block: Block, values: list[Value]) -> None:
        node = block.append(Node("prim::If", [self.pick(values, T.BOOL, block)]))
        types = self.draw(st.lists(st.sampled_from((T.INT, T.BOOL)), max_size=3))
        for _ in range(2):
            inner, known = node.add_block(), list(values)
            self.body(inner, known, 3)
            for t in types:
                inner.add_return(self.pick(known, t, inner))
        values.extend(node.add_output(t) for t in types)

    def exit(self, block: Block, values: list[Value]) -> None:
        """An early return: a flag, a value that is there when the flag is set, and an if that asks for the flag."""
        open_value = block.append(Node("prim::Uninitialized")).add_output(T.INT)
        node = block.append(Node("prim::If", [self.pick(values, T.BOOL, block)]))
        for leaves in self.draw(st.permutations((True, False))):
            inner, known = node.add_block(), list(values)
            self.body(inner, known, 2)
            inner.add_return(self.graph.constant(leaves, T.BOOL, inner))
            there = self.pick(known, T.INT, inner)
            for value in (there, open_value) if leaves else (open_value, there):
                inner.add_return(value)
        flag, given, kept = (node.add_output(t) for t in (T.BOOL, T.INT, T.INT))
        following = block.append(Node("prim::If", [flag]))
        following.add_block().add_return(given)
        other = following.add_block()
        known = [*values, kept]
        self.body(other, known, 2)
        other.add_return(self.pick(known, T.INT, other))
        values.append(following.add_output(T.INT))

    def loop(self, block: Block, values: list[Value]) -> None:
        trips = self.graph.constant(self.draw(st.integers(-1, 4)), T.INT, block)
        if self.draw(st.booleans()):
            few = self.graph.constant(3, T.INT, block)
            trips = self.op("prim::min.int", [self.pick(values, T.INT, block), few], block)
        start = (
            self.graph.constant(True, T.BOOL, block) if self.draw(st.booleans()) else self.pick(values, T.BOOL, block)
        )
        types = self.draw(st.lists(st.sampled_from((T.INT, T.BOOL)), max_size=3))
        node = block.append(Node("prim::Loop", [trips, start, *(self.pick(values, t, block) for t in types)]))
        inner = node.add_block()
        known = [*values, inner.add_param(T.INT), *(inner.add_param(t) for t in types)]
        self.body(inner, known, 3)
        again = (
            self.graph.constant(True, T.BOOL, inner) if self.draw(st.booleans()) else self.pick(known, T.BOOL, inner)
        )
        inner.add_return(again)
        for t in types:
            inner.add_return(self.pick(known, t, inner))
        values.extend(node.add_output(t) for t in types)

    def body(self, block: Block, values: list[Value], most: int) -> None:
        steps = (self.number, self.truth, self.log, self.if_, self.exit, self.loop)
        for _ in range(self.draw(st.integers(0, most))):
            self.left -= 1
            # Small programs end: nothing nests once the budget is spent.
            self.draw(st.sampled_from(steps if self.left > 0 else steps[:3]))(block, values)


@st.composite
def flows(draw: st.DrawFn) -> Graph:
    """A program."""
    graph = Graph("flow")
    graph.add_input(T.ListType(T.INT), "log")
    values = [graph.add_input(t, n) for n, t in (("a", T.INT), ("b", T.INT), ("p", T.BOOL), ("q", T.BOOL))]
    writer = _Writer(draw, graph)
    writer.body(graph.block, values, 8)
    for t in (T.INT, T.BOOL, T.INT):
        graph.add_output(writer.pick(values, t, graph.block))
    return graph


def trace(graph: Graph) -> list[tuple[Any, list[int]]]:
    """What the program returns or raises, and what it logged until then, for each of ``INPUTS``."""
    found: list[tuple[Any, list[int]]] = []
    for inputs in INPUTS:
        log: list[int] = []
        try:
            result: Any = run_graph(graph, log, *inputs)
        except GpujitError as error:
            result = type(error)
        found.append((result, log))
    return found
