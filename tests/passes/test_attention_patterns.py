"""Attention written out in parts, in the forms that libraries of models write, and masks that must not be taken."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gpujit.ir.parser import parse_graph
from gpujit.passes.decompose.attention import fuse_attention
from gpujit.passes.decompose.main import decompose
from gpujit.testing import assert_same_values, resolve_node
from tests.passes.peephole_help import check_declines, check_row, floats, graph_text, run

_QKV = "%q : Float(2, 3, 5, 8), %k : Float(2, 3, 7, 8), %v : Float(2, 3, 7, 4)"
_T = "Float(2, 3, 5, 7)"
_C = (
    "%m1 : int = prim::Constant[value=-1](); %m2 : int = prim::Constant[value=-2](); %n : NoneType = prim::Constant();"
    "%c : float = prim::Constant[value=0.25](); %f : bool = prim::Constant[value=0]();"
    "%p : float = prim::Constant[value=0.1](); %one : int = prim::Constant[value=1]();"
    "%six : int = prim::Constant[value=6](); %four : float = prim::Constant[value=4.](); "
)
_KT = "%kt : Float(2, 3, 8, 7) = aten::transpose(%k, %m2, %m1); "
_SCORES = f"{_KT}%s0 : {_T} = aten::matmul(%q, %kt); "
_SCALE = f"%s : {_T} = aten::mul(%s0, %c); "
_SOFTMAX = f"%w : {_T} = aten::softmax(%a, %m1, %n); "
_END = "%y : Float(2, 3, 5, 4) = aten::matmul(%w, %v)"
_LOWEST = float(np.finfo(np.float32).min)


def _samples(*more):
    return [[floats(2, 3, 5, 8), floats(2, 3, 7, 8, seed=1), floats(2, 3, 7, 4, seed=2), *more]]


def fused(inputs, body, samples, constants=()):
    """The attention's node, once the pass made one of the body's and it computes the same."""
    text = graph_text(inputs, body)
    graph = parse_graph(text, resolve=resolve_node, constants=constants)
    wanted = [run(graph, *sample) for sample in samples]
    assert fuse_attention(graph), str(graph)
    assert not fuse_attention(graph)
    for sample, each in zip(samples, wanted, strict=True):
        assert_same_values(run(graph, *sample), each)
    (node,) = [n for n in graph.all_nodes() if n.kind == "aten::scaled_dot_product_attention"]
    assert not any(n.kind in ("aten::softmax", "aten::matmul", "aten::bmm") for n in graph.all_nodes())
    return node


def test_the_new_text():
    check_row(
        fuse_attention,
        _QKV,
        f"{_C}{_SCORES}{_SCALE.replace('%s :', '%a :')}{_SOFTMAX}{_END}",
        f"{_C}{_KT}%none : NoneType = prim::Constant(); %zero : float = prim::Constant[value=0.]();"
        "%no : bool = prim::Constant[value=0](); %scale : float = prim::Constant[value=0.25]();"
        "%gqa : bool = prim::Constant[value=0]();"
        "%y : Float(2, 3, 5, 4) = "
        "aten::scaled_dot_product_attention(%q, %k, %v, %none, %zero, %no, %scale, %gqa)",
        _samples(),
    )


_SCALES = {
    "none": (f"{_KT}%s : {_T} = aten::matmul(%q, %kt); ", 1.0),
    "mul": (f"{_SCORES}{_SCALE}", 0.25),
    "div": (f"{_SCORES}%s : {_T} = aten::div(%s0, %four); ", 0.25),
    "query": (f"%q1 : Float(2, 3, 5, 8) = aten::mul(%q, %c); {_KT}%s : {_T} = aten::matmul(%q1, %kt); ", 0.25),
    "both": (
        "%q1 : Float(2, 3, 5, 8) = aten::mul(%q, %c); %k1 : Float(2, 3, 7, 8) = aten::div(%k, %four);"
        f"%kt : Float(2, 3, 8, 7) = aten::transpose(%k1, %m1, %m2); %s : {_T} = aten::matmul(%q1, %kt); ",
        0.0625,
    ),
    "key after": (f"{_KT}%k1 : Float(2, 3, 8, 7) = aten::mul(%kt, %c); %s : {_T} = aten::matmul(%q, %k1); ", 0.25),
    "not transposed": (f"%kt : Float(2, 3, 8, 7) = aten::contiguous(%kt0); %s : {_T} = aten::matmul(%q, %kt); ", 1.0),
}
_BETWEEN = {
    "plain": _SOFTMAX,
    "dropout": f"%w0 : {_T} = aten::softmax(%a, %m1, %n); %w : {_T} = aten::dropout(%w0, %p, %f); ",
    "casts": f"%b : {_T} = aten::to(%a, %six, %f, %f, %n); %w0 : {_T} = aten::softmax(%b, %m1, %six);"
    f"%w : {_T} = aten::to(%w0, %six, %f, %f, %n); ",
}


@pytest.mark.parametrize(("scale", "between"), itertools.product(["none", "mul", "div", "query", "both"], _BETWEEN))
def test_forms_without_a_mask(scale, between):
    body, wanted = _SCALES[scale]
    node = fused(_QKV, f"{_C}{body.replace('%s :', '%a :')}{_BETWEEN[between]}{_END}", _samples())
    assert node.inputs[6].constant() == wanted
    assert [v.name for v in node.inputs[:3]] == ["q", "k", "v"]


def test_a_scale_on_the_transposed_key_and_a_key_that_is_no_transpose():
    node = fused(_QKV, f"{_C}{_SCALES['key after'][0].replace('%s :', '%a :')}{_SOFTMAX}{_END}", _samples())
    assert node.inputs[6].constant() == 0.25
    inputs = "%q : Float(2, 3, 5, 8), %kt : Float(2, 3, 8, 7), %v : Float(2, 3, 7, 4)"
    body = f"{_C}%a : {_T} = aten::matmul(%q, %kt); {_SOFTMAX}{_END}"
    node = fused(inputs, body, [[floats(2, 3, 5, 8), floats(2, 3, 8, 7, seed=1), floats(2, 3, 7, 4, seed=2)]])
    assert node.inputs[1].node.kind == "aten::transpose"


def test_batches_of_matrices():
    inputs = "%q : Float(6, 5, 8), %k : Float(6, 7, 8), %v : Float(6, 7, 4)"
    samples = [[floats(6, 5, 8), floats(6, 7, 8, seed=1), floats(6, 7, 4, seed=2)]]
    start = f"{_C}%kt : Float(6, 8, 7) = aten::transpose(%k, %m1, %m2); "
    end = "%w : Float(6, 5, 7) = aten::softmax(%a, %m1, %n); %y : Float(6, 5, 4) = aten::bmm(%w, %v)"
    node = fused(inputs, f"{start}%a : Float(6, 5, 7) = aten::bmm(%q, %kt); {end}", samples)
    assert node.inputs[6].constant() == 1.0
    zero = "%z : int = prim::Constant[value=0](); %e : Float(6, 5, 7) = prim::Constant[value=CONSTANTS.c0](); "
    body = f"{start}{zero}%a : Float(6, 5, 7) = aten::baddbmm(%e, %q, %kt, %z, %c); {end}"
    # With beta=0 what is added counts for nothing.
    node = fused(inputs, body, samples, [np.full((6, 5, 7), np.nan, np.float32)])
    assert node.inputs[6].constant() == 0.25 and node.inputs[3].constant() is None
    body = f"{start}{zero}%a : Float(6, 5, 7) = aten::baddbmm(%e, %q, %kt, %one, %c); {end}"
    node = fused(inputs, body, samples, [floats(6, 5, 7)])
    assert node.inputs[3].name == "e"


# -------------------------------------------------------------------------------------------------------------- masks

_FINITE = np.where(np.tri(5, 7, dtype=bool), 0, _LOWEST).astype(np.float32)


@pytest.mark.parametrize("swap", [False, True])
def test_an_added_constant(swap):
    add = "aten::add(%m, %s, %one)" if swap else "aten::add(%s, %m, %one)"
    body = (
        f"{_C}%m : Float(5, 7) = prim::Constant[value=CONSTANTS.c0](); {_SCORES}{_SCALE}%a : {_T} = {add}; {_SOFTMAX}"
    )
    node = fused(_QKV, body + _END, _samples(), [_FINITE])
    assert node.inputs[3].name == "m" and node.inputs[6].constant() == 0.25


def test_a_mask_made_of_zeros_and_ones():
    """``(1 - mask) * lowest``, the form of BERT and its relatives."""
    inputs = f"{_QKV}, %i : Bool(2, 1, 1, 7)"
    made = (
        "%g : Float(2, 1, 1, 7) = aten::to(%i, %six, %f, %f, %n); %r : Float(2, 1, 1, 7) = aten::rsub(%g, %one, %one);"
        f"%low : float = prim::Constant[value={_LOWEST!r}](); %m : Float(2, 1, 1, 7) = aten::mul(%r, %low); "
    )
    keep = np.ones((2, 1, 1, 7), bool)
    keep[0, ..., 3:] = False
    samples = [_samples(keep)[0], _samples(np.zeros((2, 1, 1, 7), bool))[0]]
    fused(inputs, f"{_C}{made}{_SCORES}{_SCALE}%a : {_T} = aten::add(%s, %m, %one); {_SOFTMAX}{_END}", samples)


@pytest.mark.parametrize("fill", [-math.inf, _LOWEST])
@pytest.mark.parametrize("form", ["masked_fill", "where"])
def test_a_constant_that_hides(form, fill):
    keep = np.tri(5, 7, dtype=bool)
    start = (
        f"{_C}%m : Bool(5, 7) = prim::Constant[value=CONSTANTS.c0](); %l : float = prim::Constant[value={fill!r}](); "
    )
    if form == "masked_fill":
        hidden, op = ~keep, "masked_fill(%s, %m, %l)"
    else:
        hidden, op = keep, "where(%m, %s, %l)"
    node = fused(_QKV, f"{start}{_SCORES}{_SCALE}%a : {_T} = aten::{op}; {_SOFTMAX}{_END}", _samples(), [hidden])
    assert (node.inputs[3].node.kind == "aten::logical_not") == (form == "masked_fill")


def test_a_mask_that_hides_with_the_lowest_number():
    """Whole rows may be hidden: all their weights are then the same, in both forms."""
    inputs = f"{_QKV}, %m : Bool(2, 1, 5, 7)"
    keep = np.random.default_rng(0).random((2, 1, 5, 7)) < 0.5
    samples = [_samples(keep)[0], _samples(np.ones((2, 1, 5, 7), bool))[0], _samples(np.zeros((2, 1, 5, 7), bool))[0]]
    low = f"%l : float = prim::Constant[value={_LOWEST!r}](); "
    fused(inputs, f"{_C}{low}{_SCORES}{_SCALE}%a : {_T} = aten::masked_fill(%s, %m, %l); {_SOFTMAX}{_END}", samples)


_MASKED = f"{_SCORES}{_SCALE}%a : {_T} = aten::add(%s, %m, %one); {_SOFTMAX}{_END}"
_HIDDEN = np.array([[0.0] * 7] * 4 + [[-np.inf] * 7], np.float32)
DECLINED = {
    "given mask": ("%m : Float(5, 7)", _MASKED, "may hide all keys of a row", ()),
    "infinite mask": (
        "",
        f"%m : Float(5, 7) = prim::Constant[value=CONSTANTS.c0](); {_MASKED}",
        "may hide all keys of a row",
        (_HIDDEN,),
    ),
    "hidden row": (
        "",
        "%m : Bool(5, 7) = prim::Constant[value=CONSTANTS.c0](); %l : float = prim::Constant[value=-inf]();"
        f"{_SCORES}%a : {_T} = aten::masked_fill(%s0, %m, %l); {_SOFTMAX}{_END}",
        "may hide all keys of a row",
        (_HIDDEN < 0,),
    ),
    "fill not the lowest": (
        "%m : Bool(5, 7)",
        "%l : float = prim::Constant[value=-10000.]();"
        f"{_SCORES}%a : {_T} = aten::masked_fill(%s0, %m, %l); {_SOFTMAX}{_END}",
        "may be more than another score",
        (),
    ),
    "wider mask": (
        "",
        f"%m : Float(4, 1, 1, 1, 7) = prim::Constant[value=CONSTANTS.c0](); {_MASKED}",
        "its shape has to be known",
        (np.zeros((4, 1, 1, 1, 7), np.float32),),
    ),
    "scaled mask": (
        "",
        f"%m : Float(5, 7) = prim::Constant[value=CONSTANTS.c0](); {_SCORES}%s : {_T} = aten::add(%s0, %m, %one);"
        f"%a : {_T} = aten::mul(%s, %c); {_SOFTMAX}{_END}",
        "the mask is scaled as well",
        (_FINITE,),
    ),
    "two masks": (
        "",
        f"%m : Float(5, 7) = prim::Constant[value=CONSTANTS.c0](); {_SCORES}%s : {_T} = aten::add(%s0, %m, %one);"
        f"%a : {_T} = aten::add(%s, %m, %one); {_SOFTMAX}{_END}",
        "the masks together may hide",
        (_FINITE,),
    ),
    "another dim": ("", f"{_SCORES}%w : {_T} = aten::softmax(%s0, %m2, %n); {_END}", "not over the last dim", ()),
    "training": (
        "%t : bool",
        f"{_SCORES}%w0 : {_T} = aten::softmax(%s0, %m1, %n); %w : {_T} = aten::dropout(%w0, %p, %t); {_END}",
        "may be in training",
        (),
    ),
    "weights returned": (
        "",
        f"{_SCORES}%w : {_T} = aten::softmax(%s0, %m1, %n); {_END}; return (%y, %w)",
        "readers",
        (),
    ),
    "scores written": (
        "",
        f"{_SCORES}%a : {_T} = aten::relu_(%s0); {_SOFTMAX}{_END}",
        "",
        (),
    ),
}


@pytest.mark.parametrize("name", DECLINED)
def test_what_is_not_the_same_stays(name, caplog):
    more, body, reason, constants = DECLINED[name]
    inputs = f"{_QKV}, {more}" if more else _QKV
    check_declines(fuse_attention, inputs, f"{_C}{body}", caplog, reason, constants=constants)


def test_unknown_types_stay(caplog):
    body = f"{_C}{_SCORES}%w : {_T} = aten::softmax(%s0, %m1, %n); {_END}"
    for name in ("Float(2, 3, 5, 8)", "Float(2, 3, 7, 4)"):
        check_declines(fuse_attention, _QKV.replace(name, "Tensor"), body, caplog)
    check_declines(fuse_attention, _QKV, body.replace(_T, "Tensor"), caplog, "dtype")


def test_attention_by_einsum():
    """Written out, the products of four-dimensional tensors are matmuls, which are recognised."""
    inputs = "%q : Float(2, 5, 3, 8), %k : Float(2, 7, 3, 8), %v : Float(2, 7, 3, 4)"
    body = (
        '%e : str = prim::Constant[value="bihd,bjhd->bhij"](); %g : str = prim::Constant[value="bhij,bjhd->bihd"]();'
        f"{_C}%l : Tensor[] = prim::ListConstruct(%q, %k); %s : {_T} = aten::einsum(%e, %l, %n);"
        f"%a : {_T} = aten::mul(%s, %c); {_SOFTMAX}%o : Tensor[] = prim::ListConstruct(%w, %v);"
        "%y : Float(2, 5, 3, 4) = aten::einsum(%g, %o, %n)"
    )
    graph = parse_graph(graph_text(inputs, body), resolve=resolve_node)
    sample = [floats(2, 5, 3, 8), floats(2, 7, 3, 8, seed=1), floats(2, 7, 3, 4, seed=2)]
    wanted = run(graph, *sample)
    assert decompose(graph, ["einsum"]) and fuse_attention(graph)
    assert "aten::softmax" not in {n.kind for n in graph.all_nodes()}
    assert_same_values(run(graph, *sample), wanted)


def test_a_scale_for_each_head_goes_to_the_query(caplog):
    inputs = f"{_QKV}, %h : Float(3, 1, 1)"
    samples = _samples(floats(3, 1, 1, seed=7))
    body = f"{_C}{_SCORES}%a : {_T} = aten::mul(%s0, %h); {_SOFTMAX}{_END}"
    node = fused(inputs, body, samples)
    assert node.inputs[0].node.kind == "aten::mul" and node.inputs[0].node.inputs[1].name == "h"
    wide = body.replace("%h)", "%g)")
    check_declines(fuse_attention, f"{_QKV}, %g : Float(7)", wide, caplog, "one number for each row")
    check_declines(fuse_attention, f"{_QKV}, %g : Float(4, 1, 1, 5, 1)", wide, caplog, "one number for each row")


@pytest.mark.parametrize("form", ["masked_fill(%b, %m, %l)", "where(%m, %b, %l)"])
@pytest.mark.parametrize("first", ["add", "hide"])
def test_a_mask_added_and_one_that_hides(first, form):
    """The form of GPT-2: a causal constant, and numbers from a mask of whole numbers."""
    inputs = f"{_QKV}, %i : Long(2, 1, 1, 7)"
    hidden = np.triu(np.ones((5, 7), bool), 1)
    start = (
        f"{_C}%m : Bool(5, 7) = prim::Constant[value=CONSTANTS.c0](); %l : float = prim::Constant[value=-inf]();"
        "%g : Float(2, 1, 1, 7) = aten::to(%i, %six, %f, %f, %n); %r : Float(2, 1, 1, 7) = aten::rsub(%g, %one, %one);"
        f"%low : float = prim::Constant[value=-10000.](); %d : Float(2, 1, 1, 7) = aten::mul(%r, %low);"
        f"{_SCORES}{_SCALE}"
    )
    if first == "add":
        body = f"%b : {_T} = aten::add(%s, %d, %one); %a : {_T} = aten::{form}; "
    else:
        body = f"%b0 : {_T} = aten::{form.replace('%b', '%s')}; %a : {_T} = aten::add(%b0, %d, %one); "
    keep = np.ones((2, 1, 1, 7), np.int64)
    keep[0, ..., 2:] = 0
    samples = [_samples(keep)[0], _samples(np.zeros((2, 1, 1, 7), np.int64))[0]]
    constant = hidden if "masked" in form else ~hidden
    node = fused(inputs, f"{start}{body}{_SOFTMAX}{_END}", samples, [constant])
    assert node.inputs[3].node.kind == "aten::where"


@pytest.mark.parametrize("windows", [6, 3, 1])
def test_masks_of_windows(windows):
    """The form of Swin: a bias for each head, and a mask for each window, between views that split the windows off."""
    images, seen = 6 // windows, f"Float({6 // windows}, {windows}, 2, 5, 5)"
    scores = "Float(6, 2, 5, 5)"
    inputs = "%q : Float(6, 2, 5, 8), %k : Float(6, 2, 5, 8), %v : Float(6, 2, 5, 8)"
    body = (
        f"{_C}%kt : Float(6, 2, 8, 5) = aten::transpose(%k, %m2, %m1); %s0 : {scores} = aten::matmul(%q, %kt);"
        f"%b : Float(1, 2, 5, 5) = prim::Constant[value=CONSTANTS.c0](); %s1 : {scores} = aten::add(%s0, %b, %one);"
        f"%l1 : int[] = prim::Constant[value=[{images}, {windows}, 2, 5, 5]]();"
        f"%s2 : {seen} = aten::view(%s1, %l1);"
        f"%m : Float(1, {windows}, 1, 5, 5) = prim::Constant[value=CONSTANTS.c1]();"
        f"%s3 : {seen} = aten::add(%s2, %m, %one); %l2 : int[] = prim::Constant[value=[-1, 2, 5, 5]]();"
        f"%a : {scores} = aten::view(%s3, %l2); %w : {scores} = aten::softmax(%a, %m1, %n);"
        "%y : Float(6, 2, 5, 8) = aten::matmul(%w, %v)"
    )
    mask = np.where(np.random.default_rng(1).random((1, windows, 1, 5, 5)) < 0.4, -100, 0).astype(np.float32)
    fused(inputs, body, [[floats(6, 2, 5, 8, seed=i) for i in range(3)]], [floats(1, 2, 5, 5, seed=9), mask])


def test_views_that_mix_queries_and_keys_stay(caplog):
    body = (
        f"{_C}{_SCORES}%l : int[] = prim::Constant[value=[2, 3, 7, 5]](); %b : Float(2, 3, 7, 5) = aten::view(%s0, %l);"
        f"%k2 : int[] = prim::Constant[value=[2, 3, 5, 7]](); %a : {_T} = aten::view(%b, %k2); {_SOFTMAX}{_END}"
    )
    check_declines(fuse_attention, _QKV, body, caplog, "the scores are viewed from")


def test_a_mask_added_to_lowest_numbers_stays(caplog):
    body = (
        f"{_C}%m : Bool(5, 7) = prim::Constant[value=CONSTANTS.c0]();"
        "%d : Float(5, 7) = prim::Constant[value=CONSTANTS.c1]();"
        f"%l : float = prim::Constant[value={_LOWEST!r}](); {_SCORES}%b : {_T} = aten::masked_fill(%s0, %m, %l);"
        f"%a : {_T} = aten::add(%b, %d, %one); {_SOFTMAX}{_END}"
    )
    constants = [np.triu(np.ones((5, 7), bool), 1), _FINITE]
    check_declines(fuse_attention, _QKV, body, caplog, "another mask is added", constants=constants)
