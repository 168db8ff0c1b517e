"""``einsum`` is written out where a softmax stands beside it, so that attention is found; elsewhere it stays."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.decompose.einsum import write_out_attention_products
from gpujit.passes.pipeline import run
from tests.passes.random_graphs import assert_equal, run_graph
from tests.passes.specialise_help import kinds

TEXT = """
graph(%q : Float(1, 2, 5, 4), %k : Float(1, 2, 5, 4), %v : Float(1, 2, 5, 4)):
  %none : NoneType = prim::Constant()
  %half : float = prim::Constant[value=0.5]()
  %last : int = prim::Constant[value=-1]()
  %to : str = prim::Constant[value="bhid,bhjd->bhij"]()
  %back : str = prim::Constant[value="bhij,bhjd->bhid"]()
  %qk : Tensor[] = prim::ListConstruct(%q, %k)
  %s : Float(1, 2, 5, 5) = aten::einsum(%to, %qk, %none)
  %t : Float(1, 2, 5, 5) = aten::mul(%s, %half)
  %p : Float(1, 2, 5, 5) = aten::softmax(%t, %last, %none)
  %pv : Tensor[] = prim::ListConstruct(%p, %v)
  %y : Float(1, 2, 5, 4) = aten::einsum(%back, %pv, %none)
  return (%y)"""


def read(text: str) -> Graph:
    return parse_graph(text, resolve=resolve_node)


@pytest.mark.parametrize("name", ["optimize", "specialised"])
def test_attention_in_einsum_is_found(name: str) -> None:
    graph = read(TEXT)
    assert run(graph, name)
    assert "aten::scaled_dot_product_attention" in kinds(graph) and "aten::einsum" not in kinds(graph)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(3)]
    assert_equal(run_graph(graph, *inputs), run_graph(read(TEXT), *inputs), name, exact=False)


def test_products_without_a_softmax_stay() -> None:
    graph = read(TEXT.replace("aten::softmax(%t, %last, %none)", "aten::relu(%t)"))
    before = str(graph)
    assert not write_out_attention_products(graph)
    assert str(graph) == before
