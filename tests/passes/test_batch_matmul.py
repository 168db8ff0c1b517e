"""Products of one tensor with several constant weights become one, where that is a gain and nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir.parser import parse_graph
from gpujit.passes.freeze.batch_matmul import group_products
from gpujit.testing import assert_same_values, resolve_node
from tests.passes.peephole_help import check_declines, floats, graph_text, run

_X = "%x : Float(2, 3, 8)"
_WEIGHTS = [floats(4, 8), floats(6, 8, seed=1), floats(4, 8, seed=2)]
_BIASES = [floats(4, seed=3), floats(6, seed=4), floats(4, seed=5)]
_CONSTANTS = [*_WEIGHTS, *_BIASES]
_START = "".join(
    f"%w{i} : Float({len(w)}, 8) = prim::Constant[value=CONSTANTS.c{i}]();"
    f"%b{i} : Float({len(w)}) = prim::Constant[value=CONSTANTS.c{i + 3}]();"
    for i, w in enumerate(_WEIGHTS)
)
_NONE = "%n : NoneType = prim::Constant(); %one : int = prim::Constant[value=1](); "


def grouped(inputs, body, samples, constants):
    """The graph, once its products became one and it computes the same."""
    graph = parse_graph(graph_text(inputs, body), resolve=resolve_node, constants=constants)
    wanted = [run(graph, *sample) for sample in samples]
    assert group_products(graph), str(graph)
    assert not group_products(graph)
    for sample, each in zip(samples, wanted, strict=True):
        assert_same_values(run(graph, *sample), each)
    return graph


def kinds(graph):
    return [n.kind for n in graph.all_nodes() if n.kind not in ("prim::Constant", "prim::ListConstruct")]


@pytest.mark.parametrize("bias", [True, False])
def test_query_key_and_value(bias):
    lines = "".join(
        f"%l{i} : Float(2, 3, {len(w)}) = aten::linear(%x, %w{i}, {f'%b{i}' if bias else '%n'});"
        f"%r{i} : Float(2, 3, {len(w)}) = aten::relu(%l{i});"
        for i, w in enumerate(_WEIGHTS)
    )
    graph = grouped(_X, f"{_START}{_NONE}{lines} return (%r0, %r1, %r2)", [[floats(2, 3, 8)]], _CONSTANTS)
    wanted = ["aten::linear", "aten::split_with_sizes", "prim::ListUnpack", "aten::relu", "aten::relu", "aten::relu"]
    assert kinds(graph) == wanted
    arrays = [n.attributes["value"] for n in graph.nodes if isinstance(n.attributes.get("value"), np.ndarray)]
    # Nothing of the old weights is left; a bias that nobody read before is.
    assert sum(a.size for a in arrays if a.ndim == 2) == sum(w.size for w in _WEIGHTS)


def test_matrices_in_other_forms():
    a, b = floats(8, 4), floats(8, 6, seed=1)
    start = "%v : Float(8, 4) = prim::Constant[value=CONSTANTS.c0]();"
    start += "%w : Float(8, 6) = prim::Constant[value=CONSTANTS.c1]();"
    for op in ("mm", "matmul"):
        body = f"{start}%p = aten::{op}(%x, %v); %q = aten::{op}(%x, %w); %r = aten::relu(%p); %s = aten::relu(%q);"
        graph = grouped("%x : Float(5, 8)", f"{body} return (%r, %s)", [[floats(5, 8)]], [a, b])
        assert kinds(graph).count(f"aten::{op}") == 1
    biases = (
        "%c : Float(4) = prim::Constant[value=CONSTANTS.c2](); %d : Float(6) = prim::Constant[value=CONSTANTS.c3]();"
    )
    body = f"{start}{biases}{_NONE}%p = aten::addmm(%c, %x, %v, %one, %one); %q = aten::addmm(%d, %x, %w, %one, %one);"
    body += "%r = aten::relu(%p); %s = aten::relu(%q); return (%r, %s)"
    graph = grouped("%x : Float(5, 8)", body, [[floats(5, 8)]], [a, b, floats(4, seed=2), floats(6, seed=3)])
    assert kinds(graph).count("aten::addmm") == 1


def test_a_view_that_would_refuse_to_copy_becomes_a_reshape():
    sizes = "%i2 : int = prim::Constant[value=2](); %m1 : int = prim::Constant[value=-1](); "
    sizes += "%z : int[] = prim::ListConstruct(%i2, %m1); "
    lines = "%p = aten::linear(%x, %w0, %b0); %q = aten::linear(%x, %w2, %b2); "
    lines += "%s = aten::view(%p, %z); %t = aten::view(%q, %z); %y = aten::add(%s, %t, %one)"
    graph = grouped(_X, f"{_START}{_NONE}{sizes}{lines}", [[floats(2, 3, 8)]], _CONSTANTS)
    assert kinds(graph).count("aten::reshape") == 2 and "aten::view" not in kinds(graph)


_PAIR = "%p = aten::linear(%x, %w0, %b0); %q = aten::linear(%x, %w1, %b1); "
_STRIDED = (
    "%z : int[] = prim::Constant[value=[2, 3, 2, 3]](); %o : int[] = prim::Constant[value=[18, 6, 3, 1]](); "
    "%v = aten::view(%p, %z); %g = aten::as_strided(%v, %z, %o, %n); "
)
_READ = "%r = aten::relu(%p); %s = aten::relu(%q); return (%r, %s)"


@pytest.mark.parametrize(
    ("inputs", "body", "reason"),
    [
        (_X, f"{_PAIR}return (%p, %q)", "has to be memory of its own"),
        (_X, f"{_PAIR}%o = aten::relu_(%p); {_READ}", "may be written"),
        (
            _X,
            f"%p = aten::linear(%x, %w0, %b0); %o = aten::relu_(%x); %q = aten::linear(%x, %w1, %b1); {_READ}",
            "may be written",
        ),
        (_X, f"{_PAIR}%e = aten::linear(%u, %w0, %b0); %f = aten::relu(%e); {_READ}", "kept twice"),
        (
            _X,
            f"{_PAIR}{_STRIDED}%h = aten::relu(%g); %s = aten::relu(%q); return (%h, %s)",
            "memory layout",
        ),
        (_X, f"{_PAIR}%k : int[] = aten::stride(%p); {_READ.replace('%s)', '%s, %k)')}", "memory layout"),
        (_X, f"%p = aten::linear(%x, %w0, %b0); %q = aten::linear(%u, %w1, %b1); {_READ}", None),
        (_X, f"%p = aten::linear(%x, %w0, %b0); %q = aten::linear(%x, %w1, %n); {_READ}", None),
        (f"{_X}, %w : Float(6, 8)", f"%p = aten::linear(%x, %w0, %b0); %q = aten::linear(%x, %w, %b1); {_READ}", None),
    ],
)
def test_what_is_no_gain_or_could_be_told_stays(inputs, body, reason, caplog):
    check_declines(
        group_products, f"{inputs}, %u : Float(2, 3, 8)", f"{_START}{_NONE}{body}", caplog, reason, constants=_CONSTANTS
    )
