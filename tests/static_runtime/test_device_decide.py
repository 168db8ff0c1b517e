"""Which nodes of a graph are steps on a GPU; no GPU and no simulator is needed to decide."""

from __future__ import annotations

import textwrap

import numpy as np

from gpujit.fuser.fuse import fuse
from gpujit.ir.parser import parse_graph
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.steps import Options
from gpujit.testing import resolve_node


def decided(text: str) -> DeviceDecisions:
    graph = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node)
    return DeviceDecisions(graph, fuse(graph).programs, Lowerer(np), Options())


def test_products_by_einsum_are_products_of_matrices() -> None:
    found = decided("""
        graph(%x : Float(2, 3, 4), %y : Float(2, 5, 4)):
          %equation : str = prim::Constant[value="bik,bjk->bij"]()
          %none : NoneType = prim::Constant()
          %both : Tensor[] = prim::ListConstruct(%x, %y)
          %z : Float(2, 3, 5) = aten::einsum(%equation, %both, %none)
          return (%z)""")
    assert not any(node.kind.startswith("aten::") for node in found.refusals)
    assert [node.kind for node in found.natives] == ["aten::matmul"]


def test_conversions_are_steps_and_views_of_bits_are_not() -> None:
    found = decided("""
        graph(%x : Float(2, 3), %y : Long(1)):
          %z : Long(2, 3) = aten::type_as(%x, %y)
          %int : int = prim::Constant[value=3]()
          %bits : Int(2, 3) = aten::view(%x, %int)
          return (%z, %bits)""")
    assert [node.kind for node in found.natives] == ["aten::type_as"]
    assert not any(node.kind == "aten::view" for node in found.natives)
