"""Parts that a cut lists, each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir.parser import parse_graph
from gpujit.ir.verify import verify
from gpujit.passes.decompose.main import decompose_moves
from gpujit.passes.infer.main import infer_types_pass
from gpujit.passes.nodes import resolve_node
from gpujit.passes.peephole.parts import name_parts
from tests.passes.peephole_help import check_declines, check_row, floats, graph_text, run

_C = (
    "%i0 : int = prim::Constant[value=0](); %i1 : int = prim::Constant[value=1]();"
    "%i2 : int = prim::Constant[value=2](); %i3 : int = prim::Constant[value=3]();"
    "%m1 : int = prim::Constant[value=-1](); %s : int[] = prim::Constant[value=[1, 4]]();"
    "%at : int[] = prim::Constant[value=[1]]();"
)
_X = "%x : Float(2, 5)"


def _slices(*ends: int) -> str:
    lines, start = _C, 0
    for k, end in enumerate(ends):
        lines += (
            f"%d{k} : int = prim::Constant[value=1](); %b{k} : int = prim::Constant[value={start}]();"
            f"%e{k} : int = prim::Constant[value={end}](); %t{k} : int = prim::Constant[value=1]();"
            f"%p{k} : Float(2, {end - start}) = aten::slice(%x, %d{k}, %b{k}, %e{k}, %t{k});"
        )
        start = end
    return lines


@pytest.mark.parametrize(
    ("cut", "ends"),
    [
        ("chunk(%x, %i2, %m1)", (3, 5)),
        ("chunk(%x, %i3, %i1)", (2, 4, 5)),
        ("split(%x, %i3, %i1)", (3, 5)),
        ("split(%x, %s, %i1)", (1, 5)),
        ("split_with_sizes(%x, %s, %m1)", (1, 5)),
        ("tensor_split(%x, %i2, %i1)", (3, 5)),
        ("tensor_split(%x, %at, %i1)", (1, 5)),
    ],
)
def test_parts_become_slices(cut, ends):
    sizes = [end - start for start, end in zip((0, *ends), ends, strict=False)]
    names = ", ".join(f"%q{k} : Float(2, {n})" for k, n in enumerate(sizes))
    read = "".join(f"%r{k} : Float(2, {n}) = aten::neg(%{{}}{k});" for k, n in enumerate(sizes))
    results = ", ".join(f"%r{k}" for k in range(len(sizes)))
    done = f"{read}%y : Tensor[] = prim::ListConstruct({results})"
    check_row(
        name_parts,
        _X,
        f"{_C}%l : Tensor[] = aten::{cut}; {names} = prim::ListUnpack(%l); {done.format(*'q' * len(sizes))}",
        f"{_slices(*ends)}{done.format(*'p' * len(sizes))}",
        [[floats(2, 5)]],
    )


def test_rows_become_selections():
    check_row(
        name_parts,
        _X,
        f"{_C}%l : Tensor[] = aten::unbind(%x, %i0); %a : Float(5), %b : Float(5) = prim::ListUnpack(%l);"
        "%y : Float(5) = aten::mul(%a, %b)",
        f"{_C}%d : int = prim::Constant[value=0](); %k : int = prim::Constant[value=0]();"
        "%a : Float(5) = aten::select(%x, %d, %k);"
        "%e : int = prim::Constant[value=0](); %m : int = prim::Constant[value=1]();"
        "%b : Float(5) = aten::select(%x, %e, %m);"
        "%y : Float(5) = aten::mul(%a, %b)",
        [[floats(2, 5)]],
    )


def test_left_alone(caplog):
    unpack = "%a : Float(2, 3), %b : Float(2, 2) = prim::ListUnpack(%l); %y : Float(2, 3) = aten::neg(%a)"
    cut = "%l : Tensor[] = aten::chunk(%x, %i2, %i1);"
    check_declines(name_parts, _X, f"{_C}{cut}{unpack}; return (%y, %l)", caplog, "has other readers")
    check_declines(name_parts, f"{_X}, %d : int", f"{_C}{cut.replace('%i1', '%d')}{unpack}", caplog, "is not known")
    check_declines(name_parts, "%x : Float(2, *)", f"{_C}{cut}{unpack}", caplog, "are not known")
    unknown = "%a : Tensor, %b : Tensor = prim::ListUnpack(%l); %y : Tensor = aten::neg(%a)"
    check_declines(name_parts, "%x : Tensor", f"{_C}{cut}{unknown}", caplog, "is not known")
    # A part less than there is raises, as it did.
    rows = "%l : Tensor[] = aten::unbind(%x, %i0); %a : Float(5) = prim::ListUnpack(%l); %y : Float(5) = aten::neg(%a)"
    check_declines(name_parts, _X, f"{_C}{rows}", caplog, "are not known")


_G = "%g : int = prim::Constant[value={}]();"


def test_shuffled_channels():
    numbers = "".join(f"%n{i} : int = prim::Constant[value={n}]();" for i, n in enumerate((2, 2, 3, 4)))
    order = "".join(f"%o{i} : int = prim::Constant[value={n}]();" for i, n in enumerate((0, 2, 1, 3)))
    sizes = "".join(f"%z{i} : int = prim::Constant[value={n}]();" for i, n in enumerate((2, 6, 4)))
    check_row(
        decompose_moves,
        "%x : Float(2, 6, 4)",
        f"{_G.format(2)}%y : Float(2, 6, 4) = aten::channel_shuffle(%x, %g)",
        f"{_G.format(2)}{numbers}%n : int[] = prim::ListConstruct(%n0, %n1, %n2, %n3);"
        "%a : Float(2, 2, 3, 4) = aten::reshape(%x, %n);"
        f"{order}%o : int[] = prim::ListConstruct(%o0, %o1, %o2, %o3);"
        "%b : Float(2, 3, 2, 4) = aten::permute(%a, %o);"
        f"{sizes}%z : int[] = prim::ListConstruct(%z0, %z1, %z2);"
        "%y : Float(2, 6, 4) = aten::reshape(%b, %z)",
        [[floats(2, 6, 4)]],
    )


@pytest.mark.parametrize(
    ("shape", "groups", "reason"),
    [
        ("2, 6, 4", 1, "nothing moves"),
        ("2, 6, 4", 6, "nothing moves"),
        ("2, 0, 4", 2, "nothing moves"),
        ("2, 6, 4", 4, "refuses"),
        ("2, 6", 2, "refuses"),
        ("2, 6, *", 2, "not known"),
    ],
)
def test_channels_left_alone(shape, groups, reason, caplog):
    x = f"Float({shape})"
    body = f"{_G.format(groups)}%y : {x} = aten::channel_shuffle(%x, %g)"
    check_declines(decompose_moves, f"%x : {x}", body, caplog, reason)


def test_a_gate_becomes_two_slices():
    x = floats(2, 6)
    text = graph_text("%x : Float(2, 6)", "%d : int = prim::Constant[value=1](); %y : Float(2, 3) = aten::glu(%x, %d)")
    graph = parse_graph(text, resolve=resolve_node)
    want = run(graph, x)
    assert decompose_moves(graph) and infer_types_pass(graph) and name_parts(graph)
    verify(graph)
    kinds = [n.kind for n in graph.all_nodes() if n.kind[:4] == "aten"]
    assert kinds == ["aten::slice", "aten::slice", "aten::sigmoid", "aten::mul"]
    np.testing.assert_allclose(run(graph, x), want, rtol=1e-6)
