"""Text tests of the local rules on casts, copies, shapes and numbers."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.passes.peephole.main import peephole
from gpujit.passes.peephole.permutes import join_permutes
from gpujit.passes.peephole.queries import answer_queries
from tests.passes.peephole_help import check_declines, check_row, floats, run

_X = "%x : Float(2, 3)"
_C = (
    "%f : bool = prim::Constant[value=0](); %t : bool = prim::Constant[value=1](); %n : NoneType = prim::Constant();"
    "%i0 : int = prim::Constant[value=0](); %i1 : int = prim::Constant[value=1]();"
    "%i2 : int = prim::Constant[value=2](); %i6 : int = prim::Constant[value=6]();"
    "%i7 : int = prim::Constant[value=7](); %m1 : int = prim::Constant[value=-1]();"
    "%max : int = prim::Constant[value=9223372036854775807](); %i3 : int = prim::Constant[value=3]();"
)
_RELU = "%r : Float(2, 3) = aten::relu(%x); "


def _same(body: str, inputs: str = _X, before: str = "") -> tuple[str, str, str]:
    """A row whose result is what ``aten::relu`` returned."""
    return inputs, f"{_C}{_RELU}{before}{body}", f"{_C}{_RELU}{before}return (%r)"


IDENTITIES = {
    "to dtype": "%y : Float(2, 3) = aten::to(%r, %i6, %f, %f, %n)",
    "to prim dtype": "%y : Float(2, 3) = aten::to(%r, %i6, %f, %f)",
    "to no dtype": "%y : Float(2, 3) = aten::to(%r, %n, %n, %n, %n, %f, %f, %n)",
    "to other": "%y : Float(2, 3) = aten::to(%r, %x, %f, %f, %n)",
    "type_as": "%y : Float(2, 3) = aten::type_as(%r, %x)",
    "detach": "%y : Float(2, 3) = aten::detach(%r)",
    "expand_as": "%y : Float(2, 3) = aten::expand_as(%r, %x)",
    "view_as": "%y : Float(2, 3) = aten::view_as(%r, %x)",
    "reshape_as": "%y : Float(2, 3) = aten::reshape_as(%r, %x)",
    "flatten": "%y : Float(2, 3) = aten::flatten(%r, %i1, %m1)",
    "squeeze": "%y : Float(2, 3) = aten::squeeze(%r)",
    "squeeze dim": "%y : Float(2, 3) = aten::squeeze(%r, %i1)",
    "slice": "%y : Float(2, 3) = aten::slice(%r, %i1, %i0, %max, %i1)",
    "slice end": "%y : Tensor = aten::slice(%r, %i1, %i0, %i7, %i1)",
    "narrow": "%y : Float(2, 3) = aten::narrow(%r, %i1, %i0, %i3)",
    "squeeze of unsqueeze": "%u : Float(2, 1, 3) = aten::unsqueeze(%r, %i1); %y : Float(2, 3) = aten::squeeze(%u, %i1)",
    "squeeze at the end": "%u : Float(2, 3, 1) = aten::unsqueeze(%r, %m1); %y : Float(2, 3) = aten::squeeze(%u, %i2)",
    "transpose twice": "%u : Tensor = aten::transpose(%r, %i0, %i1); %y : Tensor = aten::transpose(%u, %i1, %i0)",
    "t twice": "%u : Float(3, 2) = aten::t(%r); %y : Float(2, 3) = aten::t(%u)",
    "cat": "%l : Tensor[] = prim::ListConstruct(%r); %y : Float(2, 3) = aten::cat(%l, %i0)",
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_changes_nothing_is_dropped(name):
    check_row(peephole, *_same(IDENTITIES[name]), [[floats(2, 3)]])


@pytest.mark.parametrize("split", ["chunk(%r, %i1, %i0)", "split(%r, %i7, %i0)"])
def test_one_part_is_the_whole(split):
    check_row(
        peephole,
        _X,
        f"{_C}{_RELU}%l : Tensor[] = aten::{split}; %y : Float(2, 3) = prim::ListUnpack(%l);"
        "%z : Float(2, 3) = aten::neg(%y)",
        f"{_C}{_RELU}%z : Float(2, 3) = aten::neg(%r)",
        [[floats(2, 3)]],
    )


SIZES = {
    "expand": "%y : Float(2, 3) = aten::expand(%r, %s, %f)",
    "broadcast_to": "%y : Float(2, 3) = aten::broadcast_to(%r, %s)",
    "view": "%y : Float(2, 3) = aten::view(%r, %s)",
    "reshape": "%y : Float(2, 3) = aten::reshape(%r, %s)",
}


@pytest.mark.parametrize("name", SIZES)
def test_the_same_shape_needs_no_view(name):
    made = "%s : int[] = prim::ListConstruct(%i2, %m1); "
    check_row(peephole, *_same(SIZES[name], before=made), [[floats(2, 3)]])


def test_repeat_and_pad_of_nothing():
    ones = "%s : int[] = prim::ListConstruct(%i1, %i1); "
    check_row(peephole, *_same("%y : Float(2, 3) = aten::repeat(%r, %s)", before=ones), [[floats(2, 3)]])
    none = '%s : int[] = prim::ListConstruct(%i0, %i0); %c : str = prim::Constant[value="constant"](); '
    check_row(peephole, *_same("%y : Float(2, 3) = aten::pad(%r, %s, %c, %n)", before=none), [[floats(2, 3)]])
    shift = '%s : int[] = prim::ListConstruct(%i1, %m1); %c : str = prim::Constant[value="constant"](); '
    kept = f"{_C}{_RELU}{shift}%y : Float(2, 3) = aten::pad(%r, %s, %c, %n)"
    check_row(peephole, _X, kept, kept, [[floats(2, 3)]])


@pytest.mark.parametrize("op", ["dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropout_outside_training(op, caplog):
    p = "%p : float = prim::Constant[value=0.5](); "
    check_row(peephole, *_same(f"%y : Float(2, 3) = aten::{op}(%r, %p, %f)", before=p), [[floats(2, 3)]])
    check_declines(peephole, _X, f"{_C}{p}%y : Float(2, 3) = aten::{op}(%x, %p, %t)", caplog)


DECLINED = {
    "another dtype": ("%y : Double(2, 3) = aten::to(%r, %i7, %f, %f, %n)", "dtype goes from"),
    "a copy": ("%y : Float(2, 3) = aten::to(%r, %i6, %f, %t, %n)", "a copy may be asked for"),
    "a format": ("%y : Float(2, 3) = aten::to(%r, %i6, %f, %f, %i2)", "the memory format may change"),
    "unknown dtype": ("%q : Tensor = aten::relu(%r); %y : Tensor = aten::to(%q, %i6, %f, %f, %n)", "dtype goes from"),
    "half and back": (
        "%h : Half(2, 3) = aten::to(%r, %five, %f, %f, %n); %y : Float(2, 3) = aten::to(%h, %i6, %f, %f, %n)",
        "float16 does not hold all numbers of float32",
    ),
    "a part": ("%y : Float(2, 2) = aten::slice(%r, %i1, %i0, %i2, %i1)", "it may leave something out"),
    "a step": ("%y : Float(2, 2) = aten::slice(%r, %i1, %i0, %max, %i2)", "the step may be"),
    "unknown end": ("%y : Tensor = aten::slice(%r, %i1, %i0, %k, %i1)", "it may leave something out"),
    "another squeeze": (
        "%u : Tensor = aten::unsqueeze(%r, %i1); %y : Tensor = aten::squeeze(%u, %i0)",
        "the dimensions may differ",
    ),
    "two chunks": ("%l : Tensor[] = aten::chunk(%r, %k, %i0); %y : Tensor = prim::ListUnpack(%l)", "shape goes from"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_what_may_change_something_stays(name, caplog):
    body, reason = DECLINED[name]
    five = "%five : int = prim::Constant[value=5](); "
    check_declines(peephole, f"{_X}, %k : int", f"{_C}{five}{_RELU}{body}", caplog, reason)


def test_a_copy_that_is_written_stays(caplog):
    body = f"{_C}%l : Tensor[] = prim::ListConstruct(%x); %y : Float(2, 3) = aten::cat(%l, %i0); "
    check_declines(peephole, _X, f"{body}%z : Float(2, 3) = aten::relu_(%y)", caplog, "is written later")
    caplog.clear()
    check_declines(peephole, _X, f"{body}return (%y)", caplog, "may leave the graph")
    caplog.clear()
    written = f"{body}%o : Float(2, 3) = aten::relu_(%x); %z : Float(2, 3) = aten::neg(%y)"
    check_declines(peephole, _X, written, caplog, "is written later")


def test_contiguous_before_a_view():
    x = "%x : Float(2, 3, 4)"
    sizes = "%s : int[] = prim::ListConstruct(%i2, %m1); %t0 : Float(2, 4, 3) = aten::transpose(%x, %i1, %i2); "
    check_row(
        peephole,
        x,
        f"{_C}{sizes}%c : Float(2, 4, 3) = aten::contiguous(%t0, %i0); %y : Float(2, 12) = aten::view(%c, %s);"
        "%z : Float(2, 12) = aten::relu(%y)",
        f"{_C}{sizes}%y : Float(2, 12) = aten::reshape(%t0, %s); %z : Float(2, 12) = aten::relu(%y)",
        [[floats(2, 3, 4)]],
    )
    check_row(
        peephole,
        x,
        f"{_C}%c : Float(2, 3, 4) = aten::contiguous(%x, %i0); %d : Float(2, 3, 4) = aten::contiguous(%c, %i0)",
        f"{_C}%c : Float(2, 3, 4) = aten::contiguous(%x, %i0)",
    )


def test_channels_last_before_a_view_stays(caplog):
    body = (
        f"{_C}%s : int[] = prim::ListConstruct(%m1); %c : Float(2, 3, 4, 5) = aten::contiguous(%x, %i2);"
        "%y : Float(120) = aten::reshape(%c, %s)"
    )
    check_declines(peephole, "%x : Float(2, 3, 4, 5)", body, caplog, "another than the plain one")


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("view(%x, %s)", "view(%v, %u)", "view(%x, %u)"),
        ("view(%x, %s)", "reshape(%v, %u)", "reshape(%x, %u)"),
        ("reshape(%x, %s)", "view(%v, %u)", "reshape(%x, %u)"),
        ("flatten(%x, %i0, %m1)", "reshape(%v, %u)", "reshape(%x, %u)"),
        ("unsqueeze(%x, %i0)", "view(%v, %u)", "view(%x, %u)"),
    ],
)
def test_views_of_views(first, second, joined):
    sizes = "%s : int[] = prim::ListConstruct(%i3, %i2); %u : int[] = prim::ListConstruct(%i6, %m1); "
    end = "%z : Float(6, 1) = aten::relu(%y)"
    check_row(
        peephole,
        _X,
        f"{_C}{sizes}%v : Tensor = aten::{first}; %y : Float(6, 1) = aten::{second}; {end}",
        f"{_C}{sizes}%y : Float(6, 1) = aten::{joined}; {end}",
        [[floats(2, 3)]],
    )


def test_stack_of_one_is_unsqueeze():
    check_row(
        peephole,
        _X,
        f"{_C}{_RELU}%l : Tensor[] = prim::ListConstruct(%r); %y : Float(2, 1, 3) = aten::stack(%l, %i1)",
        f"{_C}{_RELU}%y : Float(2, 1, 3) = aten::unsqueeze(%r, %i1)",
        [[floats(2, 3)]],
    )


def test_numbers():
    check_row(peephole, "%x : int", "%y : int = aten::Int(%x)", "return (%x)")
    check_row(peephole, "%x : float", "%y : float = aten::Float(%x)", "return (%x)")
    check_row(peephole, "%x : bool", "%a : bool = aten::__not__(%x); %y : bool = aten::__not__(%a)", "return (%x)")
    check_row(
        peephole,
        "%a : int, %b : int",
        "%c : bool = aten::lt(%a, %b); %y : bool = aten::__not__(%c)",
        "%y : bool = aten::ge(%a, %b)",
        [[1, 2], [2, 2], [3, 2]],
    )
    check_row(
        peephole,
        "%a : Tensor?",
        "%n : NoneType = prim::Constant(); %c : bool = aten::__is__(%a, %n); %y : bool = aten::__not__(%c)",
        "%n : NoneType = prim::Constant(); %y : bool = aten::__isnot__(%a, %n)",
        [[None], [floats(2)]],
    )


def test_comparisons_of_floats_are_not_turned_round(caplog):
    # NaN is neither less than 1 nor at least 1.
    body = "%c : bool = aten::lt(%a, %b); %y : bool = aten::__not__(%c)"
    check_declines(peephole, "%a : float, %b : float", body, caplog)


# ------------------------------------------------------------------------------------------------------------ queries


def test_sizes_and_ranks_are_answered_by_types():
    x = "%x : Float(2, 3, 4)"
    samples = [[floats(2, 3, 4)]]
    for query, answer in (("size(%x, %m1)", 4), ("dim(%x)", 3), ("numel(%x)", 24), ("len(%x)", 2)):
        used = "%m1" in query
        start = "%m1 : int = prim::Constant[value=-1](); " if used else ""
        check_row(
            answer_queries,
            x,
            f"{start}%y : int = aten::{query}",
            f"{start}%y : int = prim::Constant[value={answer}]()",
            samples,
        )
    check_row(
        answer_queries,
        x,
        "%y : int[] = aten::size(%x)",
        "%a : int = prim::Constant[value=2](); %b : int = prim::Constant[value=3]();"
        "%c : int = prim::Constant[value=4](); %y : int[] = prim::ListConstruct(%a, %b, %c)",
        samples,
    )
    check_row(answer_queries, x, "%y : int = prim::dtype(%x)", "%y : int = prim::Constant[value=6]()", samples)
    check_row(
        answer_queries, x, "%y : bool = aten::is_floating_point(%x)", "%y : bool = prim::Constant[value=1]()", samples
    )


def test_devices_are_answered_by_types():
    x = "%x : Float(2, device=cpu)"
    check_row(answer_queries, x, "%y : bool = prim::is_cuda(%x)", "%y : bool = prim::Constant[value=0]()")
    check_row(answer_queries, x, "%y : Device = prim::device(%x)", '%y : Device = prim::Constant[value="cpu"]()')


def test_what_types_do_not_tell_is_asked_at_run_time(caplog):
    start = "%m1 : int = prim::Constant[value=-1](); "
    check_declines(answer_queries, "%x : Float(2, *)", f"{start}%y : int = aten::size(%x, %m1)", caplog)
    check_declines(answer_queries, "%x : Tensor", "%y : int = aten::dim(%x)", caplog)
    check_declines(answer_queries, "%x : Float(2, 3)", "%y : bool = prim::is_cuda(%x)", caplog)


def test_a_geometry_that_is_changed_in_place_is_asked_at_run_time(caplog):
    body = "%c : int = prim::Constant[value=0](); %u : Tensor = aten::unsqueeze_(%x, %c); %y : int = aten::dim(%x)"
    check_declines(answer_queries, "%x : Float(2, 3)", body, caplog, "geometry may be changed in place")
    check_row(
        answer_queries,
        "%x : Float(2, 3)",
        "%u : Tensor = aten::relu_(%x); %y : int = aten::dim(%x)",
        "%u : Tensor = aten::relu_(%x); %y : int = prim::Constant[value=2]()",
    )


# ----------------------------------------------------------------------------------------------------------- permutes

_P = "%x : Float(2, 3, 4)"
_D = "%i0 : int = prim::Constant[value=0](); %i1 : int = prim::Constant[value=1]();"
_D += "%i2 : int = prim::Constant[value=2](); "


def test_orders_that_cancel():
    check_row(
        join_permutes,
        _P,
        f"{_D}%p : int[] = prim::ListConstruct(%i1, %i2, %i0); %a : Float(3, 4, 2) = aten::permute(%x, %p);"
        "%q : int[] = prim::ListConstruct(%i2, %i0, %i1); %b : Float(2, 3, 4) = aten::permute(%a, %q);"
        "%y : Float(2, 3, 4) = aten::relu(%b)",
        f"{_D}%p : int[] = prim::ListConstruct(%i1, %i2, %i0); %q : int[] = prim::ListConstruct(%i2, %i0, %i1);"
        "%y : Float(2, 3, 4) = aten::relu(%x)",
        [[floats(2, 3, 4)]],
    )


def test_orders_that_are_one_swap():
    check_row(
        join_permutes,
        _P,
        f"{_D}%p : int[] = prim::ListConstruct(%i1, %i2, %i0); %a : Float(3, 4, 2) = aten::permute(%x, %p);"
        "%b : Float(2, 4, 3) = aten::transpose(%a, %i0, %i2); %y : Float(2, 4, 3) = aten::relu(%b)",
        f"{_D}%p : int[] = prim::ListConstruct(%i1, %i2, %i0); %d1 : int = prim::Constant[value=1]();"
        "%d2 : int = prim::Constant[value=2](); %b : Float(2, 4, 3) = aten::transpose(%x, %d1, %d2);"
        "%y : Float(2, 4, 3) = aten::relu(%b)",
        [[floats(2, 3, 4)]],
    )


def test_orders_that_are_another_order():
    check_row(
        join_permutes,
        _P,
        f"{_D}%a : Float(3, 2, 4) = aten::transpose(%x, %i0, %i1); %b : Float(3, 4, 2) = aten::transpose(%a, %i1, %i2)",
        f"{_D}%d1 : int = prim::Constant[value=1](); %d2 : int = prim::Constant[value=2]();"
        "%d0 : int = prim::Constant[value=0](); %p : int[] = prim::ListConstruct(%d1, %d2, %d0);"
        "%b : Float(3, 4, 2) = aten::permute(%x, %p)",
        [[floats(2, 3, 4)]],
    )


def test_orders_of_unknown_rank_or_written_tensors_stay(caplog):
    body = f"{_D}%a : Tensor = aten::transpose(%x, %i0, %i1); %b : Tensor = aten::transpose(%a, %i1, %i2)"
    check_declines(join_permutes, "%x : Tensor", body, caplog)
    body = f"{_D}%a : Float(3, 2, 4) = aten::transpose(%x, %i0, %i1); %w : Tensor = aten::transpose_(%a, %i0, %i2);"
    body += "%b : Tensor = aten::transpose(%a, %i1, %i2)"
    check_declines(join_permutes, _P, body, caplog, "may be written")


def test_a_cast_of_an_input_returned_is_the_input():
    x = "%x : Float(2, 3)"
    body = f"{_C}%y : Float(2, 3) = aten::to(%x, %i6, %f, %f, %n)"
    graph = check_row(peephole, x, body, f"{_C}return (%x)", [[np.ones((2, 3), "f")]])
    assert graph.outputs[0] is graph.inputs[0]


def test_products_read_any_layout():
    start = f"{_C}%t0 : Float(3, 2) = aten::t(%x); "
    linear = "aten::linear(%c, %w, %n)"
    check_row(
        peephole,
        "%x : Float(2, 3), %w : Float(4, 2)",
        f"{start}%c : Float(3, 2) = aten::contiguous(%t0, %i0);"
        f"%y : Float(3, 4) = {linear}; %z : Float(3, 4) = {linear};"
        "return (%y, %z)",
        f"{start}%y : Float(3, 4) = {linear.replace('%c', '%t0')}; %z : Float(3, 4) = {linear.replace('%c', '%t0')};"
        "return (%y, %z)",
        [[floats(2, 3), floats(4, 2)]],
    )
    check_row(
        peephole,
        "%x : Float(2, 3)",
        f"{start}%c : Float(3, 2) = aten::contiguous(%t0, %i0); %y : Float(2, 2) = aten::matmul(%x, %c)",
        f"{start}%y : Float(2, 2) = aten::matmul(%x, %t0)",
        [[floats(2, 3)]],
    )


@pytest.mark.parametrize("op", ["resolve_conj", "resolve_neg", "lift_fresh"])
def test_what_numpy_never_delays(op, caplog):
    check_row(peephole, *_same(f"%y : Float(2, 3) = aten::{op}(%r)"), [[floats(2, 3)]])
    if op != "lift_fresh":
        check_declines(peephole, "%x : Tensor", f"%y : Tensor = aten::{op}(%x)", caplog, "it may be complex")


def test_a_cast_there_and_back(caplog):
    start = (
        f"{_C}{_RELU}%w : Double(2, 3) = aten::to(%r, %i7, %f, %f, %n);"
        "%y : Float(2, 3) = aten::to(%w, %i6, %f, %f, %n); "
    )
    end = "%z : Float(2, 3) = aten::neg("
    check_row(peephole, _X, f"{start}{end}%y)", f"{_C}{_RELU}{end}%r)", [[floats(2, 3)]])
    # Both are returned, as memory of their own.
    check_declines(peephole, _X, f"{start}return (%y, %r)", caplog, "may leave the graph")


def test_a_copy_that_is_returned_does_not_become_a_view(caplog):
    body = (
        f"{_C}%t0 : Float(3, 2) = aten::t(%x); %c : Float(3, 2) = aten::contiguous(%t0, %i0);"
        "%s : int[] = prim::ListConstruct(%i3, %i2, %i1); %y : Float(3, 2, 1) = aten::view(%c, %s)"
    )
    check_declines(peephole, _X, body, caplog, "may leave the graph")


def test_what_is_asked_of_a_list_of_sizes():
    samples = [[floats(2, 3)], [floats(2, 3, 1)]]
    sizes = "%s : int[] = aten::size(%x); "
    check_row(peephole, "%x : Tensor", f"{sizes}%n : int = aten::len(%s)", "%n : int = aten::dim(%x)", samples)
    start = "%i : int = prim::Constant[value=-1](); "
    check_row(
        peephole,
        "%x : Tensor",
        f"{start}{sizes}%n : int = aten::__getitem__(%s, %i); %m : int = aten::__getitem__(%s, %i); return (%n, %m)",
        f"{start}%n : int = aten::size(%x, %i); %m : int = aten::size(%x, %i); return (%n, %m)",
        samples,
    )


def test_a_list_of_sizes_that_is_changed(caplog):
    body = (
        "%i : int = prim::Constant[value=0](); %s : int[] = aten::size(%x); %c : int[] = aten::append(%s, %i);"
        "%n : int = aten::len(%s)"
    )
    check_declines(peephole, "%x : Tensor", body, caplog, "may be written")


def test_a_copy_that_a_view_needs_stays(caplog):
    """The view of a transposed or expanded tensor fails, that of its copy does not."""
    start = f"{_C}%t0 : Float(3, 2) = aten::t(%x); %l : Tensor[] = prim::ListConstruct(%t0);"
    start += "%y : Float(3, 2) = aten::cat(%l, %i0); %r : Float(3, 2) = aten::relu(%y); "
    flat = "%s : int[] = prim::ListConstruct(%m1); %v : Float(6) = aten::view(%r, %s)"
    check_declines(peephole, _X, start + flat, caplog, "memory layout", samples=[[floats(2, 3)]], run=run)
    check_row(
        peephole,
        _X,
        f"{start}%v : Float(3, 2) = aten::neg(%r)",
        f"{_C}%t0 : Float(3, 2) = aten::t(%x); %r : Float(3, 2) = aten::relu(%t0); %v : Float(3, 2) = aten::neg(%r)",
        [[floats(2, 3)]],
    )
