"""Arithmetic identities, and where they are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpujit.ir.parser import parse_graph
from gpujit.passes.arithmetic import arithmetic, simplify_with_constants
from gpujit.testing import resolve_node
from tests.passes.peephole_help import check_declines, check_row, graph_text, run

_F = "%x : Float(6)"
_I = "%x : Long(3)"
_C = (
    "%i0 : int = prim::Constant[value=0](); %i1 : int = prim::Constant[value=1]();"
    "%i2 : int = prim::Constant[value=2]();"
    "%f0 : float = prim::Constant[value=0.](); %f1 : float = prim::Constant[value=1.]();"
    "%n0 : float = prim::Constant[value=-0.](); %f8 : float = prim::Constant[value=8.]();"
    "%h : float = prim::Constant[value=0.5](); %f3 : float = prim::Constant[value=3.]();"
)
_EDGES = [[np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)]]
_WHOLE = [[np.array([-3, 0, 2**62])]]


@pytest.mark.parametrize(
    ("inputs", "op"),
    [
        (_I, "add(%r, %i0, %i1)"),
        (_I, "sub(%r, %i0, %i1)"),
        (_I, "mul(%r, %i1)"),
        (_I, "pow(%r, %i1)"),
        (_I, "floor_divide(%r, %i1)"),
        (_F, "add(%r, %n0, %i1)"),
        (_F, "sub(%r, %f0, %i1)"),
        (_F, "sub(%r, %i0, %i1)"),
        (_F, "mul(%r, %f1)"),
        (_F, "mul(%r, %i1)"),
        (_F, "div(%r, %i1)"),
        (_F, "pow(%r, %f1)"),
    ],
)
def test_identities(inputs, op):
    samples = _EDGES if inputs == _F else _WHOLE
    t = inputs.partition(":")[2]
    start = f"{_C}%r : {t} = aten::neg(%x); "
    graph = check_row(arithmetic, inputs, f"{start}%y : {t} = aten::{op}", f"{start}return (%r)", samples)
    if inputs == _F:
        np.testing.assert_array_equal(np.signbit(run(graph, *_EDGES[0])), np.signbit(-_EDGES[0][0]))


@pytest.mark.parametrize(
    ("inputs", "result", "op", "reason"),
    [
        (_F, "Float(6)", "add(%r, %f0, %i1)", "-0.0 would become 0.0"),
        (_F, "Float(6)", "add(%r, %i0, %i1)", "-0.0 would become 0.0"),
        (_F, "Float(6)", "sub(%r, %n0, %i1)", "-0.0 would become 0.0"),
        (_I, "Float(3)", "add(%r, %f0, %i1)", "dtype goes from"),
        (_I, "Float(3)", "div(%r, %i1)", "dtype goes from"),
        ("%x : Bool(3)", "Long(3)", "mul(%r, %i1)", "dtype goes from"),
        (_F, "Float(6)", "floor_divide(%r, %i1)", "x may be no whole number"),
        (_F, "Float(6)", "mul(%r, %f8)", "not known to be one of"),
        ("%x : Tensor", "Tensor", "mul(%r, %f1)", "dtype goes from"),
        (_F, "Float(6)", "pow(%r, %h)", None),
    ],
)
def test_no_identities(inputs, result, op, reason, caplog):
    t = inputs.partition(":")[2]
    body = f"{_C}%r : {t} = aten::clone(%x, %none); %y : {result} = aten::{op}"
    check_declines(arithmetic, inputs, f"%none : NoneType = prim::Constant(); {body}", caplog, reason)


def test_squares_and_what_is_done_twice():
    check_row(
        arithmetic, _F, f"{_C}%y : Float(6) = aten::pow(%x, %i2)", f"{_C}%y : Float(6) = aten::mul(%x, %x)", _EDGES
    )
    check_row(
        arithmetic,
        _F,
        "%r : Float(6) = aten::relu(%x); %s : Float(6) = aten::relu(%r)",
        "%r : Float(6) = aten::relu(%x)",
        _EDGES,
    )
    check_row(
        arithmetic,
        _F,
        "%r : Float(6) = aten::relu(%x); %a : Float(6) = aten::neg(%r); %b : Float(6) = aten::neg(%a)",
        "%r : Float(6) = aten::relu(%x); return (%r)",
        _EDGES,
    )


def test_a_number_stored_as_a_tensor():
    body = "%one : Double() = prim::Constant[value=CONSTANTS.c0](); %r : Float(6) = aten::neg(%x); "
    check_row(
        arithmetic,
        _F,
        f"{body}%y : Float(6) = aten::mul(%r, %one)",
        f"{body}return (%r)",
        _EDGES,
        constants=[np.array(1.0)],
    )


def test_numbers():
    for op in ("add(%x, %i0)", "sub(%x, %i0)", "mul(%x, %i1)", "floordiv(%x, %i1)"):
        check_row(arithmetic, "%x : int", f"{_C}%y : int = aten::{op}", f"{_C}return (%x)", [[-3], [2**63 - 1]])
    check_row(arithmetic, "%x : float", f"{_C}%y : float = aten::mul(%x, %f1)", f"{_C}return (%x)", [[0.1]])


# ------------------------------------------------------------------------------------------ constants that are computed


def test_chains_of_whole_numbers():
    start = "%c2 : int = prim::Constant[value=2](); %c3 : int = prim::Constant[value=3](); "
    for chain, op, total in (
        ("%y = aten::add(%x, %c2); %z : int = aten::add(%y, %c3)", "add", 5),
        ("%y = aten::add(%c2, %x); %z : int = aten::sub(%y, %c3)", "add", -1),
        ("%y = aten::mul(%x, %c2); %z : int = aten::mul(%c3, %y)", "mul", 6),
    ):
        check_row(
            simplify_with_constants,
            "%x : int",
            start + chain.replace("%y =", "%y : int ="),
            f"{start}%c : int = prim::Constant[value={total}](); %z : int = aten::{op}(%x, %c)",
            [[0], [-5], [2**63 - 1], [-(2**63)]],
        )


def test_comparisons_that_always_hold():
    start = "%d : int = prim::Constant[value=0](); %n : int = aten::size(%x, %d); "
    for op, answer in (("ge(%n, %d)", 1), ("lt(%n, %d)", 0), ("eq(%n, %n)", 1), ("ne(%n, %n)", 0)):
        check_row(
            simplify_with_constants,
            "%x : Tensor",
            f"{start}%y : bool = aten::{op}",
            f"{start}%y : bool = prim::Constant[value={answer}]()",
            [[np.zeros(0)], [np.zeros(2)]],
        )


def test_comparisons_that_may_fail(caplog):
    start = "%d : int = prim::Constant[value=0](); %n : int = aten::size(%x, %d); "
    for op in ("gt(%n, %d)", "eq(%n, %d)", "le(%n, %d)", "ne(%n, %d)"):
        check_declines(simplify_with_constants, "%x : Tensor", f"{start}%y : bool = aten::{op}", caplog)


def test_division_by_a_power_of_two():
    check_row(
        simplify_with_constants,
        _F,
        "%c : float = prim::Constant[value=8.](); %y : Float(6) = aten::div(%x, %c)",
        "%c : float = prim::Constant[value=8.](); %d : float = prim::Constant[value=0.125]();"
        "%y : Float(6) = aten::mul(%x, %d)",
        _EDGES,
    )


def test_other_divisions_stay(caplog):
    for value, t in (
        (3.0, "Float(6)"),
        (0.0, "Float(6)"),
        (8.0, "Tensor"),
        (1e300, "Float(6)"),
        (2.0**-140, "Float(6)"),
    ):
        body = f"%c : float = prim::Constant[value={value!r}](); %y : {t} = aten::div(%x, %c)"
        check_declines(simplify_with_constants, f"%x : {t}", body, caplog)


@given(st.floats(width=32), st.integers(-100, 100))
def test_a_power_of_two_divides_exactly(x, exponent):
    text = graph_text(
        "%x : Float(1)", f"%c : float = prim::Constant[value={2.0**exponent!r}](); %y : Float(1) = aten::div(%x, %c)"
    )
    graph = parse_graph(text, resolve=resolve_node)
    inputs = np.array([x], np.float32)
    before = run(graph, inputs)
    assert simplify_with_constants(graph) == (exponent != 0)
    np.testing.assert_array_equal(run(graph, inputs), before)
