"""Numbers that traces pass through 0-dim tensors, read as numbers again."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.passes.scalars import numbers_instead_of_tensors
from tests.passes.peephole_help import check_declines, check_row, run

_C = "%one : int = prim::Constant[value=1](); %two : int = prim::Constant[value=2](); "
_A = "%t : Tensor = prim::NumToTensor(%a); %u : Tensor = prim::NumToTensor(%b); "
_INTS = [[7, 2], [-7, 2], [7, -2], [0, 3], [2**62, 4], [-(2**63), 1]]


def test_a_number_is_read_as_it_is():
    for reader, kind in (("Int", "int"), ("IntImplicit", "int")):
        check_row(
            numbers_instead_of_tensors,
            "%a : int",
            f"%t : Tensor = prim::NumToTensor(%a); %y : {kind} = aten::{reader}(%t)",
            "",
            [[5], [-1]],
        )
    check_row(
        numbers_instead_of_tensors,
        "%a : float",
        "%t : Tensor = prim::NumToTensor(%a); %y : float = aten::Float(%t)",
        "",
        [[0.1]],
    )


@pytest.mark.parametrize(
    ("tensors", "numbers"),
    [
        ("add(%t, %u, %one)", "add(%a, %b)"),
        ("sub(%t, %u, %one)", "sub(%a, %b)"),
        ("rsub(%t, %u, %one)", "sub(%b, %a)"),
        ("mul(%t, %u)", "mul(%a, %b)"),
        ("floor_divide(%t, %u)", "floordiv(%a, %b)"),
        ("remainder(%t, %u)", "remainder(%a, %b)"),
        ("maximum(%t, %u)", None),
    ],
)
def test_arithmetic_on_whole_numbers(tensors, numbers):
    made = f"aten::{numbers}" if numbers else "prim::max(%a, %b)"
    ones = _C if "%one" in tensors else ""
    check_row(
        numbers_instead_of_tensors,
        "%a : int, %b : int",
        f"{ones}{_A}%r : Tensor = aten::{tensors}; %y : int = aten::Int(%r)",
        f"{ones}%y : int = {made}",
        _INTS,
    )


@pytest.mark.parametrize(("mode", "made"), [("floor", "floordiv"), ("trunc", "__round_to_zero_floordiv")])
def test_quotients_that_are_rounded(mode, made):
    text = f'%m : str = prim::Constant[value="{mode}"](); '
    check_row(
        numbers_instead_of_tensors,
        "%a : int, %b : int",
        f"{text}{_A}%r : Tensor = aten::div(%t, %u, %m); %y : int = aten::Int(%r)",
        f"{text}%y : int = aten::{made}(%a, %b)",
        _INTS,
    )


def test_a_chain_with_constants():
    check_row(
        numbers_instead_of_tensors,
        "%x : Tensor",
        f"{_C}%n : int = aten::size(%x, %one); %t : Tensor = prim::NumToTensor(%n);"
        "%r : Tensor = aten::mul(%t, %two); %s : Tensor = aten::add(%r, %one, %one); %i : int = aten::Int(%s);"
        "%j : Scalar = aten::ScalarImplicit(%s); %y : int[] = prim::ListConstruct(%i, %n); return (%y, %j)",
        f"{_C}%n : int = aten::size(%x, %one); %r : int = aten::mul(%n, %two); %s : int = aten::add(%r, %one);"
        "%y : int[] = prim::ListConstruct(%s, %n); return (%y, %s)",
    )


def test_a_constant_tensor_is_a_number():
    check_row(
        numbers_instead_of_tensors,
        "%a : int",
        "%t : Tensor = prim::NumToTensor(%a); %c : Long() = prim::Constant[value=CONSTANTS.c0]();"
        "%r : Tensor = aten::floor_divide(%t, %c); %y : int = aten::Int(%r)",
        "%c : int = prim::Constant[value=8](); %y : int = aten::floordiv(%a, %c)",
        [[17], [-17]],
        constants=[np.array(8)],
    )


def test_comparisons_and_conversions():
    check_row(
        numbers_instead_of_tensors,
        "%a : int, %b : int",
        f"{_A}%r : Tensor = aten::lt(%t, %u); %y : bool = aten::Bool(%r)",
        "%y : bool = aten::lt(%a, %b)",
        _INTS,
    )
    check_row(
        numbers_instead_of_tensors,
        "%a : int",
        "%t : Tensor = prim::NumToTensor(%a); %y : float = aten::Float(%t)",
        "%y : float = aten::Float(%a)",
        [[3], [2**53 + 1]],
    )


def test_floats_stay_double():
    check_row(
        numbers_instead_of_tensors,
        "%a : float, %b : float",
        f"{_A}%r : Tensor = aten::div(%t, %u); %y : float = aten::Float(%r)",
        "%y : float = aten::div(%a, %b)",
        [[1.0, 3.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]],
    )


def test_what_goes_through_float32_or_is_unknown_stays(caplog):
    ints = "%a : int, %b : int"
    # True division of whole numbers gives float32.
    check_declines(
        numbers_instead_of_tensors,
        ints,
        f"{_A}%r : Tensor = aten::div(%t, %u); %y : int = aten::Int(%r)",
        caplog,
        samples=[[7, 2]],
        run=run,
    )
    check_declines(
        numbers_instead_of_tensors,
        "%a : int, %b : float",
        f"{_A}%r : Tensor = aten::mul(%t, %u); %y : float = aten::Float(%r)",
        caplog,
    )
    check_declines(numbers_instead_of_tensors, "%t : Tensor", "%y : int = aten::Int(%t)", caplog)
    check_declines(
        numbers_instead_of_tensors,
        ints,
        f"{_C}{_A}%r : Tensor = aten::add(%t, %u, %two); %y : int = aten::Int(%r)",
        caplog,
    )


def test_a_tensor_that_is_written_stays(caplog):
    check_declines(
        numbers_instead_of_tensors,
        "%a : int, %b : int",
        f"{_C}{_A}%w : Tensor = aten::add_(%t, %u, %one); %y : int = aten::Int(%t)",
        caplog,
    )


def test_half_a_chain_leaves_nothing_behind(caplog):
    """Numbers made for one operand vanish when the other one is unknown."""
    check_declines(
        numbers_instead_of_tensors,
        "%a : int, %b : int, %x : Tensor",
        f"{_C}{_A}%r : Tensor = aten::mul(%t, %u); %s : Tensor = aten::mul(%r, %x); %y : int = aten::Int(%s)",
        caplog,
    )


def test_the_tensor_stays_for_other_readers():
    check_row(
        numbers_instead_of_tensors,
        "%a : int, %b : int",
        f"{_A}%r : Tensor = aten::mul(%t, %u); %y : int = aten::Int(%r); return (%y, %r)",
        f"{_A}%y : int = aten::mul(%a, %b); %r : Tensor = aten::mul(%t, %u); return (%y, %r)",
        _INTS,
    )


def test_an_implicit_number_of_another_type_stays_for_its_error(caplog):
    check_declines(
        numbers_instead_of_tensors,
        "%a : float",
        "%t : Tensor = prim::NumToTensor(%a); %y : int = aten::IntImplicit(%t)",
        caplog,
        "is no number it may read",
    )
