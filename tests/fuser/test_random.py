"""Random graphs: fused they compute what they did before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from gpujit.fuser.fuse import fuse
from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.verify import verify
from gpujit.ops import table
from gpujit.passes.infer.main import infer_types
from tests.fuser.help import assert_close, fuse_free, run
from tests.passes.random_graphs import Program, programs


@settings(max_examples=60)
@given(programs(typed=True), st.booleans())
def test_programs_with_views_writes_lists_and_branches(program: Program, free: bool) -> None:
    graph = program.graph.copy()
    infer_types(graph)
    result = fuse_free(graph) if free else fuse(graph)
    verify(graph)
    want_inputs, got_inputs = _copies(program.inputs), _copies(program.inputs)
    want = run(program.graph, None, want_inputs)
    got = run(graph, result, got_inputs)
    assert_close(got, want, str(graph))
    assert_close(got_inputs, want_inputs, str(graph))


def _copies(inputs: list[Any]) -> list[Any]:
    # Inputs that share memory go on sharing it.
    known: dict[int, np.ndarray] = {}

    def copied(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return [copied(v) for v in x] if isinstance(x, list) else x
        if x.base is not None and isinstance(x.base, np.ndarray):
            base = known.setdefault(id(x.base), x.base.copy())
            offset = x.__array_interface__["data"][0] - x.base.__array_interface__["data"][0]
            return np.ndarray(x.shape, x.dtype, base, offset, x.strides)
        return known.setdefault(id(x), x.copy())

    return [copied(x) for x in inputs]


SHAPES = ((2, 3), (3,), (2, 1), (4, 2, 3), (1, 3))
UNARY = ("neg", "exp", "relu", "tanh", "abs", "sigmoid", "square")
BINARY = ("mul.Tensor", "maximum", "minimum", "atan2")
INTEGER_UNARY = ("neg", "abs", "square", "bitwise_not")
INTEGER_BINARY = ("mul.Tensor", "maximum", "minimum", "bitwise_xor.Tensor")


class _Drawn:
    """A graph grown operator by operator; values keep the shapes that NumPy found."""

    def __init__(self, draw: Any, is_integer: bool) -> None:
        self.draw, self.is_integer = draw, is_integer
        self.graph = Graph("drawn")
        self.values: list[tuple[Value, tuple[int, ...]]] = []

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def node(self, name: str, *arguments: Any) -> list[Value]:
        op = table.by_full_name(f"aten::{name}")
        assert op is not None, name
        inputs = []
        given = [*arguments, *(a.default for a in op.schema.arguments[len(arguments) :])]
        for argument, x in zip(op.schema.arguments, given, strict=True):
            inputs.append(
                x if isinstance(x, Value) else self.graph.constant(x, argument.type if x is not None else T.NONE)
            )
        node = Node(op.name, inputs)
        node.schema = op.schema
        self.graph.block.append(node)
        return [node.add_output(r.type) for r in op.schema.returns]

    def add(self, value: Value, shape: tuple[int, ...]) -> None:
        self.values.append((value, shape))

    def step(self) -> None:
        x, shape = self.pick(self.values)
        kind = self.pick(["unary", "binary", "binary", "view", "move", "reduce", "rows"])
        rank = len(shape)
        if kind == "unary":
            self.add(self.node(self.pick(INTEGER_UNARY if self.is_integer else UNARY), x)[0], shape)
        elif kind == "binary":
            y, other = self.pick(self.values)
            try:
                found = np.broadcast_shapes(shape, other)
            except ValueError:
                return
            self.add(self.node(self.pick(INTEGER_BINARY if self.is_integer else BINARY), x, y)[0], found)
        elif kind == "view" and rank:
            self.view(x, shape)
        elif kind == "move" and rank:
            self.move(x, shape)
        elif kind == "reduce" and rank and np.prod(shape):
            d = self.draw(st.integers(0, rank - 1))
            keep = self.draw(st.booleans())
            found = tuple(1 if i == d else n for i, n in enumerate(shape) if keep or i != d)
            name = self.pick(["sum.dim_IntList", "amax", "amin"])
            self.add(self.node(name, x, [d], keep)[0], found)
        elif kind == "rows" and rank and np.prod(shape):
            d = self.draw(st.integers(0, rank - 1))
            if self.is_integer:
                self.add(self.node("cumsum", x, d)[0], shape)
            else:
                self.add(self.node(self.pick(["softmax.int", "log_softmax.int"]), x, d)[0], shape)

    def view(self, x: Value, shape: tuple[int, ...]) -> None:
        rank = len(shape)
        what = self.pick(["transpose", "reshape", "slice", "select", "unsqueeze", "expand"])
        d = self.draw(st.integers(0, rank - 1))
        if what == "transpose":
            e = self.draw(st.integers(0, rank - 1))
            found = list(shape)
            found[d], found[e] = found[e], found[d]
            self.add(self.node("transpose.int", x, d, e)[0], tuple(found))
        elif what == "reshape":
            count = int(np.prod(shape))
            n = self.pick([k for k in (1, 2, 3, 4, 6) if count % k == 0])
            self.add(self.node("reshape", x, [n, count // n])[0], (n, count // n))
        elif what == "slice" and shape[d] > 1:
            step = self.pick([1, 2])
            n = len(range(1, shape[d], step))
            self.add(self.node("slice.Tensor", x, d, 1, 999, step)[0], (*shape[:d], n, *shape[d + 1 :]))
        elif what == "select":
            self.add(self.node("select.int", x, d, -1)[0], (*shape[:d], *shape[d + 1 :]))
        elif what == "unsqueeze":
            self.add(self.node("unsqueeze", x, d)[0], (*shape[:d], 1, *shape[d:]))
        elif what == "expand":
            self.add(self.node("expand", x, [2, *shape], False)[0], (2, *shape))

    def move(self, x: Value, shape: tuple[int, ...]) -> None:
        d = self.draw(st.integers(0, len(shape) - 1))
        what = self.pick(["flip", "roll", "repeat", "pad", "cat", "tril"])
        if what == "flip":
            self.add(self.node("flip", x, [d])[0], shape)
        elif what == "roll":
            self.add(self.node("roll", x, [1], [d])[0], shape)
        elif what == "repeat":
            self.add(self.node("repeat", x, [2] * len(shape))[0], tuple(2 * n for n in shape))
        elif what == "pad":
            self.add(self.node("constant_pad_nd", x, [1, 2], 3)[0], (*shape[:-1], shape[-1] + 3))
        elif what == "tril" and len(shape) > 1:
            self.add(self.node("tril", x, 0)[0], shape)
        elif what == "cat":
            y = self.node("neg", x)[0]
            pair = Node("prim::ListConstruct", [x, y])
            self.graph.block.append(pair)
            both = pair.add_output(T.ListType(T.TENSOR))
            self.add(self.node("cat", both, d)[0], (*shape[:d], 2 * shape[d], *shape[d + 1 :]))


@st.composite
def graphs(draw: Any) -> tuple[Graph, list[np.ndarray]]:
    dtype = draw(st.sampled_from(["float32", "float32", "float64", "float16", "bfloat16", "int64", "int32"]))
    is_integer = dtype.startswith("int")
    drawn = _Drawn(draw, is_integer)
    code = {"float32": 6, "float64": 7, "float16": 5, "bfloat16": 15, "int64": 4, "int32": 3}[dtype]
    inputs = []
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(SHAPES))
        drawn.add(drawn.graph.add_input(T.TensorType(code, shape)), shape)
        x = rng.integers(-3, 4, shape) if is_integer else rng.standard_normal(shape)
        inputs.append(x.astype(dtype))
    for _ in range(draw(st.integers(1, 14))):
        # Sizes double with each repeat.
        if np.prod(drawn.values[-1][1]) < 300:
            drawn.step()
    for value, _ in drawn.values[-3:]:
        drawn.graph.add_output(value)
    infer_types(drawn.graph)
    return drawn.graph, inputs


@settings(max_examples=120)
@given(graphs(), st.booleans())
def test_operators_of_all_kinds(case: tuple[Graph, list[np.ndarray]], turned: bool) -> None:
    graph, inputs = case
    if turned:
        inputs = [np.asfortranarray(x) for x in inputs]
    before = graph.copy()
    result = fuse_free(graph)
    verify(graph)
    want = run(before, None, inputs)
    got = run(graph, result, inputs)
    text = "\n".join([str(graph), *(str(p.program) for p in result.programs.values())])
    assert_close(got, want, text)
