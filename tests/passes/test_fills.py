"""``new_zeros`` and its relatives without the tensor whose dtype they take."""

from __future__ import annotations

import pytest

from gpujit.passes.peephole.fills import fill_by_dtype
from tests.passes.peephole_help import check_declines, check_row, floats

_REST = (
    "%n : NoneType = prim::Constant(); %f : bool = prim::Constant[value=0]();"
    "%size : int[] = prim::Constant[value=[2, 3]](); "
)


@pytest.mark.parametrize(("name", "wanted"), [("new_zeros", "zeros"), ("new_ones", "ones")])
def test_filled_with_zeros_or_ones(name, wanted):
    check_row(
        fill_by_dtype,
        "%x : Half(4)",
        f"{_REST}%y : Half(2, 3) = aten::{name}(%x, %size, %n, %n, %n, %f)",
        f"{_REST}%d : int = prim::Constant[value=5](); %y : Half(2, 3) = aten::{wanted}(%size, %d, %n, %n, %f)",
        [[floats(4).astype("float16")]],
    )


def test_filled_with_a_number_and_a_dtype_that_is_given():
    start = f"{_REST}%v : float = prim::Constant[value=1.5](); %d : int = prim::Constant[value=7](); "
    check_row(
        fill_by_dtype,
        "%x : Float(4)",
        f"{start}%y : Double(2, 3) = aten::new_full(%x, %size, %v, %d, %n, %n, %f)",
        f"{start}%y : Double(2, 3) = aten::full(%size, %v, %d, %n, %n, %f)",
        [[floats(4)]],
    )


def test_left_alone(caplog):
    body = f"{_REST}%y : Tensor = aten::new_zeros(%x, %size, %n, %n, %n, %f)"
    check_declines(fill_by_dtype, "%x : Tensor", body, caplog)
    device = '%c : Device = prim::Constant[value="cpu"]();'
    body = f"{_REST}{device}%y : Float(2, 3) = aten::new_zeros(%x, %size, %n, %n, %c, %f)"
    check_declines(fill_by_dtype, "%x : Float(4)", body, caplog)
