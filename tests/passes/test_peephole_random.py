"""Random programs with needless nodes put in at random: local passes keep results, writes and shared memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.arithmetic import arithmetic, simplify_with_constants
from gpujit.passes.nodes import constant_before, insert_op
from gpujit.passes.peephole.device import on_cpu
from gpujit.passes.peephole.main import peephole
from gpujit.passes.peephole.permutes import join_permutes
from gpujit.passes.peephole.queries import answer_queries
from gpujit.passes.scalars import numbers_instead_of_tensors
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs


def _ints(before: Node, numbers: Any) -> Value:
    made = Node("prim::ListConstruct", [constant_before(before, n, T.INT) for n in numbers])
    return made.insert_before(before).add_output(T.ListType(T.INT))


def _op(name: str, *constants: Any) -> Any:
    def make(before: Node, x: Value) -> Value:
        values = [
            _ints(before, c) if isinstance(c, list) else constant_before(before, c, T.NONE if c is None else None)
            for c in constants
        ]
        return insert_op(before, name, (x, *values), before)

    return make


def _chain(*steps: Any) -> Any:
    def make(before: Node, x: Value) -> Value:
        for step in steps:
            x = step(before, x)
        return x

    return make


def _cat(before: Node, x: Value) -> Value:
    made = Node("prim::ListConstruct", [x]).insert_before(before)
    listed = made.add_output(T.ListType(T.TENSOR))
    return insert_op(before, "aten::cat", (listed, constant_before(before, 0, T.INT)), before)


def _same_shape(name: str) -> Any:
    def make(before: Node, x: Value) -> Value:
        assert isinstance(x.type, T.TensorType) and x.type.shape is not None
        return insert_op(before, name, (x, _ints(before, x.type.shape)), before)

    return make


# None of these changes a value; some copy it, some give other views of it.
NEEDLESS = {
    "to": _op("aten::to.dtype", 6, False, False, None),
    "wide": _chain(_op("aten::to.dtype", 7, False, False, None), _op("aten::to.dtype", 6, False, False, None)),
    "detach": _op("aten::detach"),
    "contiguous": _chain(_op("aten::contiguous", 0), _op("aten::contiguous", 0)),
    "dropout": _op("aten::dropout", 0.5, False),
    "one": _op("aten::mul.Scalar", 1),
    "nothing": _op("aten::sub.Scalar", 0, 1),
    "neg": _chain(_op("aten::neg"), _op("aten::neg")),
    "squeeze": _chain(_op("aten::unsqueeze", 0), _op("aten::squeeze.dim", 0)),
    "clone": _op("aten::clone", None),
    "view": _same_shape("aten::view"),
    "reshape": _same_shape("aten::reshape"),
    "expand": _same_shape("aten::expand"),
}
# These need a dimension.
MORE = {
    "cat": _cat,
    "slice": _op("aten::slice.Tensor", 0, 0, 2**63 - 1, 1),
    "transpose": _chain(_op("aten::transpose.int", 0, -1), _op("aten::transpose.int", 0, -1)),
    "flat": _chain(_op("aten::flatten.using_ints", 0, -1), _op("aten::unsqueeze", 0), _op("aten::squeeze.dim", 0)),
}


@st.composite
def with_needless_nodes(draw: Any, mutation: bool) -> Program:
    """A program in which some readers read a value through a node that does nothing."""
    program = draw(programs(mutation=mutation, typed=True))
    graph: Graph = program.graph
    for node in [*graph.all_nodes(), graph.block.return_node]:
        for index, value in enumerate(node.inputs):
            t = value.type
            if node.kind in ("prim::Loop", "prim::If") or not isinstance(t, T.TensorType) or t.shape is None:
                continue
            # What is written or returned may be told apart, so that is where most can go wrong.
            if draw(st.integers(0, 2)):
                continue
            options = {**NEEDLESS, **MORE} if t.shape else NEEDLESS
            name = draw(st.sampled_from(sorted(options)))
            if name == "flat" and len(t.shape) > 1:
                continue
            value.name = value.name or ""
            new = options[name](node, value)
            assert isinstance(new.type, T.TensorType) and new.type.shape == t.shape, (name, new.type, t)
            node.set_input(index, new)
    return program


PASSES = (
    peephole,
    arithmetic,
    simplify_with_constants,
    join_permutes,
    answer_queries,
    numbers_instead_of_tensors,
    on_cpu,
)


def all_of_them(graph: Graph) -> bool:
    """The local passes until none changes anything."""
    changed = False
    again = True
    while again:
        again = False
        for each in PASSES:
            again |= each(graph)
        changed |= again
    return changed


@pytest.mark.parametrize("mutation", [True, False])
def test_local_passes_keep_meaning(mutation):
    @given(with_needless_nodes(mutation))
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def check(program):
        assert_keeps_meaning(all_of_them, program)

    check()


@pytest.mark.parametrize("each", PASSES, ids=lambda p: p.name)
@given(program=with_needless_nodes(True))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_pass_keeps_meaning(each, program):
    assert_keeps_meaning(each, program)
