"""Moves and questions in a program whose tensors all lie on one device."""

from __future__ import annotations

import pytest

from gpujit.ir.parser import parse_graph
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
