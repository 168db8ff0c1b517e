"""Operations and bytes of steps, against numbers worked out by hand."""

from __future__ import annotations

import textwrap
from math import prod

import pytest

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.passes.infer.main import infer_types
from gpujit.profiler.costs import bytes_of, flops_of
from gpujit.testing import resolve_node


def graph(inputs: str, *lines: str, result: str = "r") -> Graph:
    body = "\n".join(f"          {line}" for line in lines)
    text = f"""
        graph({inputs}):
          %none : NoneType = prim::Constant()
          %no : bool = prim::Constant[value=0]()
          %yes : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %ones : int[] = prim::Constant[value=[1, 1]]()
          %zeros : int[] = prim::Constant[value=[0, 0]]()
          %twos : int[] = prim::Constant[value=[2, 2]]()
{body}
          return (%{result})"""
    found = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node)
    infer_types(found)
    return found


def cost(inputs: str, *lines: str) -> tuple[int | None, tuple[int, int] | None]:
    """Operations and bytes of the nodes that follow the constants."""
    found = graph(inputs, *lines)
    nodes = [n for n in found.nodes if n.kind not in ("prim::Constant", "prim::ListConstruct")]
    made = {v for n in nodes for v in n.outputs}
    outside = [v for n in nodes for v in n.inputs if v not in made]
    return flops_of(nodes), bytes_of(outside, found.outputs, nodes)


@pytest.mark.parametrize(
    ("inputs", "lines", "flops", "read", "written"),
    [
        ("%x : Float(4, 8)", ["%r = aten::relu(%x)"], 32, 128, 128),
        ("%x : Float(4, 8), %y : Float(8)", ["%r = aten::mul(%x, %y)"], 32, 128 + 32, 128),
        ("%x : Float(4, 8), %y : Float(8, 3)", ["%r = aten::mm(%x, %y)"], 2 * 4 * 8 * 3, 128 + 96, 48),
        ("%x : Float(2, 4, 8), %y : Float(2, 8, 3)", ["%r = aten::bmm(%x, %y)"], 2 * 2 * 4 * 8 * 3, 256 + 192, 96),
        (
            "%x : Float(4, 8), %w : Float(3, 8), %b : Float(3)",
            ["%r = aten::linear(%x, %w, %b)"], 2 * 4 * 8 * 3, 128 + 96 + 12, 48,
        ),
        (
            "%c : Float(3), %x : Float(4, 8), %y : Float(8, 3)",
            ["%r = aten::addmm(%c, %x, %y, %one, %one)"], 2 * 4 * 8 * 3, 12 + 128 + 96, 48,
        ),
        (
            "%x : Float(1, 4, 8, 8), %w : Float(6, 2, 3, 3)",
            ["%groups : int = prim::Constant[value=2]()",
             "%r = aten::conv2d(%x, %w, %none, %ones, %zeros, %ones, %groups)"],
            2 * prod((1, 6, 6, 6)) * 2 * 9, 4 * (256 + 108), 4 * 216,
        ),
        (
            "%q : Float(1, 2, 5, 4), %k : Float(1, 2, 7, 4), %v : Float(1, 2, 7, 6)",
            ["%p : float = prim::Constant[value=0.]()",
             "%r = aten::scaled_dot_product_attention(%q, %k, %v, %none, %p, %no, %none, %no)"],
            2 * 2 * 5 * 7 * (4 + 6), 4 * (40 + 56 + 84), 4 * 60,
        ),
        (
            "%x : Float(1, 3, 8, 8)", ["%r = aten::max_pool2d(%x, %twos, %twos, %zeros, %ones, %no)"],
            3 * 16 * 4, 768, 192,
        ),
        # Choosing and moving are no arithmetic.
        ("%x : Float(4, 8)", ["%r = aten::clone(%x, %none)"], 0, 128, 128),
        # A view is no work, and of what it shows no more is read than there is.
        (
            "%x : Float(1, 8), %y : Float(4, 8)",
            ["%size : int[] = prim::Constant[value=[4, 8]]()",
             "%e = aten::expand(%x, %size, %no)", "%r = aten::add(%e, %y, %one)"],
            32, 32 + 128, 128,
        ),
        # Rows that are picked are read, the others are not.
        (
            "%w : Float(1000, 8), %i : Long(3)",
            ["%minus : int = prim::Constant[value=-1]()", "%r = aten::embedding(%w, %i, %minus, %no, %no)"],
            0, 96 + 24, 96,
        ),
    ],
)  # fmt: skip
def test_costs(inputs: str, lines: list[str], flops: int, read: int, written: int) -> None:
    assert cost(inputs, *lines) == (flops, (read, written))


def test_sums_count_an_addition_each() -> None:
    found, moved = cost(
        "%x : Float(4, 8)", "%d : int[] = prim::Constant[value=[1]]()", "%r = aten::sum(%x, %d, %no, %none)"
    )
    assert found == 32 and moved == (128, 16)


def test_a_softmax_counts_what_it_computes_of_each_element() -> None:
    found, _ = cost("%x : Float(4, 8)", "%r = aten::softmax(%x, %one, %none)")
    # A maximum, a difference, an exponential, a sum and a quotient.
    assert found is not None and 4 * 32 <= found <= 6 * 32


def test_what_only_a_run_tells_is_unknown() -> None:
    assert cost("%x : Tensor", "%r = aten::relu(%x)") == (None, None)


def test_lists_are_what_is_in_them() -> None:
    _, moved = cost(
        "%x : Float(4, 8), %y : Float(4, 8)", "%l : Tensor[] = prim::ListConstruct(%x, %y)", "%r = aten::cat(%l, %one)"
    )
    assert moved == (256, 256)
