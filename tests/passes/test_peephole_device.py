"""Moves and questions in a program whose tensors all lie on one device."""

from __future__ import annotations

import pytest

from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.peephole.device import on_cpu, on_device
from gpujit.support.errors import DeviceError
from tests.passes.peephole_help import check_declines, check_row, floats, graph_text

_C = (
    '%d : Device = prim::Constant[value="cpu"](); %f : bool = prim::Constant[value=0]();'
    "%n : NoneType = prim::Constant(); %i6 : int = prim::Constant[value=6](); %z : int = prim::Constant[value=0]();"
)


@pytest.mark.parametrize(
    ("move", "cast"),
    [
        ("to(%x, %d, %i6, %f, %f, %n)", "to(%x, %i6, %f, %f, %n)"),
        ("to(%x, %i6, %z, %d, %n, %f, %f, %n)", "to(%x, %i6, %f, %f, %n)"),
        ("to(%x, %n, %n, %d, %n, %f, %f, %n)", "alias(%x)"),
        ("to(%x, %d, %n, %f, %f)", "alias(%x)"),
    ],
)
def test_a_move_to_the_device_is_a_cast(move, cast):
    check_row(
        on_cpu, "%x : Float(3)", f"{_C}%y : Float(3) = aten::{move}", f"{_C}%y : Float(3) = aten::{cast}", [[floats(3)]]
    )


_CASTS = "%on : bool = prim::Constant[value=1](); %i15 : int = prim::Constant[value=15]();"


@pytest.mark.parametrize(
    ("dtype", "cast", "expected"),
    [
        ("Float", "_autocast_to_reduced_precision(%x, %f, %on, %i6, %i15)", "to 15"),
        ("Float", "_autocast_to_reduced_precision(%x, %on, %f, %i6, %i15)", "alias"),
        ("Double", "_autocast_to_reduced_precision(%x, %f, %on, %i6, %i15)", "alias"),
        ("Float", "_autocast_to_full_precision(%x, %on, %on)", "alias"),
        ("Half", "_autocast_to_full_precision(%x, %on, %on)", "to 6"),
        ("BFloat16", "_autocast_to_full_precision(%x, %f, %on)", "to 6"),
        ("BFloat16", "_autocast_to_full_precision(%x, %on, %f)", "alias"),
    ],
)
def test_automatic_casts_are_casts_or_nothing_once_the_dtype_is_known(dtype, cast, expected):
    graph = parse_graph(graph_text(f"%x : {dtype}(3)", f"{_C}{_CASTS}%y : Tensor = aten::{cast}"), resolve=resolve_node)
    assert on_cpu(graph) and not on_cpu(graph)
    (node,) = (n for n in graph.nodes if n.kind.startswith("aten::"))
    kind, _, made = expected.partition(" ")
    assert node.kind == f"aten::{kind}"
    assert not made or node.inputs[1].constant() == int(made)


def test_automatic_casts_stay_while_the_dtype_is_not_known(caplog):
    for cast in ("_autocast_to_reduced_precision(%x, %f, %on, %i6, %i15)", "_autocast_to_full_precision(%x, %on, %on)"):
        check_declines(on_cpu, "%x : Tensor", f"{_C}{_CASTS}%y : Tensor = aten::{cast}", caplog)


def test_questions_are_answered():
    check_row(
        on_cpu, "%x : Tensor", "%y : bool = prim::is_cuda(%x)", "%y : bool = prim::Constant[value=0]()", [[floats(3)]]
    )
    check_row(on_cpu, "%x : Tensor", "%y : Device = prim::device(%x)", '%y : Device = prim::Constant[value="cpu"]()')


def test_moves_that_copy_or_go_elsewhere_stay(caplog):
    copied = f"{_C}%t : bool = prim::Constant[value=1](); %y : Float(3) = aten::to(%x, %n, %n, %d, %n, %f, %t, %n)"
    check_declines(on_cpu, "%x : Float(3)", copied, caplog)
    moved = (
        '%d : Device = prim::Constant[value="cuda:0"](); %f : bool = prim::Constant[value=0]();'
        "%n : NoneType = prim::Constant(); %i6 : int = prim::Constant[value=6]();"
        "%y : Float(3) = aten::to(%x, %d, %i6, %f, %f, %n); %z : bool = prim::is_cuda(%y)"
    )
    check_declines(on_cpu, "%x : Float(3)", moved, caplog, "it names cuda:0")
    with pytest.raises(DeviceError):
        on_device(parse_graph(graph_text("%x : Tensor", "return (%x)")), "nowhere:x")
