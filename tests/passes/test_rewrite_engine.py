"""The engine behind text rules: chains, fuel, faults, speed, and random programs."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import PASSES, Pass, changes_made
from gpujit.passes.rewrite import Rule, constant_before, insert_node, insert_op, rewrite_pass
from gpujit.support.config import config
from gpujit.support.errors import InternalError
from gpujit.testing import check_pass
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs
from tests.passes.test_rewrite import ADD_ZERO, ADDCMUL, CLONE, DOUBLE_T, of


def test_rules_chain_until_none_fits() -> None:
    check_pass(
        of(ADD_ZERO, DOUBLE_T, ADDCMUL),
        """
        graph(%x : Float(2, 2)):
          %one : int = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %a : Float(2, 2) = aten::t(%x)
          %y : Float(2, 2) = aten::add(%a, %zero, %one)
          %b : Float(2, 2) = aten::t(%y)
          %m : Float(2, 2) = aten::mul(%b, %x)
          %s : Float(2, 2) = aten::add(%x, %m, %one)
          return (%s)""",
        """
        graph(%x : Float(2, 2)):
          %one : int = prim::Constant[value=1]()
          %s : Float(2, 2) = aten::addcmul(%x, %x, %x, %one)
          return (%s)""",
    )


def test_fuel_counts_single_rewrites() -> None:
    text = "graph(%x : Tensor):\n" + "".join(
        f"  %a{i} : Tensor = aten::t({'%x' if i == 0 else f'%b{i - 1}'})\n  %b{i} : Tensor = aten::t(%a{i})\n"
        for i in range(4)
    )
    text += "  %r : Tensor = aten::relu(%b3)\n  return (%r)"
    for limit in range(5):
        graph = parse_graph(text, resolve=resolve_node)
        start = changes_made()
        with config(pass_limit=start + limit):
            assert of(DOUBLE_T)(graph) == (limit > 0)
        assert changes_made() == start + limit
        assert sum(n.kind == "aten::t" for n in graph.nodes) == 2 * (4 - limit)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("graph(%x):\n  return (%x)", "graph(%x):\n  return (%x)", "nothing to look for"),
        (
            "graph(%x):\n  %y = aten::neg(%x)\n  %z = aten::relu(%x)\n  return (%z)",
            "graph(%x):\n  return (%x)",
            "not every node is read",
        ),
        ("graph(%x):\n  %y = aten::neg(%x)\n  return (%y)", "graph(%z):\n  return (%z)", "%z of after is no value"),
        ("graph(%x):\n  %y = aten::neg(%x)\n  return (%y)", "graph(%x):\n  return (%x, %x)", "different numbers"),
        ("graph(%x, %k):\n  %y = aten::neg(%x)\n  return (%y)", "graph(%x):\n  return (%x)", "reads %k"),
    ],
)
def test_faulty_rules_say_what_is_wrong(before: str, after: str, fault: str) -> None:
    with pytest.raises(InternalError, match=fault):
        _ = Rule("faulty", before, after).pattern


def test_rules_without_end_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpujit.passes.rewrite.MAX_SWEEPS", 5)
    flip = "graph(%x, %y):\n  %z = aten::maximum(%x, %y)\n  return (%z)"
    rule = Rule("flip", flip, "graph(%x, %y):\n  %z = aten::maximum(%y, %x)\n  return (%z)")
    graph = parse_graph(flip, resolve=resolve_node)
    with pytest.raises(InternalError, match="test_rules: the rules still change the graph after 5 sweeps"):
        of(rule)(graph)


def test_many_rules_over_a_large_graph_are_quick() -> None:
    rules = [
        Rule(
            f"r{i}",
            before=f"""
                graph(%x, %y):
                  %one : int = prim::Constant[value={i + 2}]()
                  %m = aten::mul(%x, %y)
                  %s = aten::{"add" if i % 2 else "sub"}(%m, %m, %one)
                  return (%s)""",
            after="graph(%x):\n  return (%x)",
        )
        for i in range(50)
    ]
    graph = Graph()
    x = graph.add_input()
    one = graph.constant(1, T.INT)
    for _ in range(2500):
        m = graph.block.append(Node("aten::mul", [x, x])).add_output()
        x = graph.block.append(Node("aten::add", [m, x, one])).add_output()
    graph.add_output(x)
    rewriter = of(*rules)
    rewriter.run(graph)
    best = min(_seconds(rewriter, graph) for _ in range(3))
    assert best < 0.5


def _seconds(rewriter: Pass, graph: Graph) -> float:
    start = time.perf_counter()
    assert not rewriter.run(graph)
    return time.perf_counter() - start


def test_a_pass_of_rules_has_a_name() -> None:
    made = rewrite_pass("test_named_rules", (DOUBLE_T,))
    try:
        assert PASSES["test_named_rules"] is made
        check_pass(
            made,
            "graph(%x : Tensor):\n  %y : Tensor = aten::t(%x)\n  %z : Tensor = aten::t(%y)\n  return (%z)",
            "graph(%x : Tensor):\n  return (%x)",
        )
    finally:
        del PASSES["test_named_rules"]


def test_inserted_operators_fill_in_defaults() -> None:
    graph = parse_graph("graph(%x : Float(2), %y : Float(2)):\n  %z : Tensor = aten::relu(%x)\n  return (%z)")
    (relu,) = graph.nodes
    x, y = graph.inputs
    total = insert_op(relu, "aten::add.Tensor", [x, y], like=relu)
    assert total.node.inputs[2].constant() == 1 and total.type == T.TensorType(6, (2,))
    two = constant_before(relu, 2.5)
    assert two.type == T.FLOAT and two.constant() == 2.5
    node = insert_node(relu, "aten::split.Tensor", [x, constant_before(relu, 1)], like=relu)
    assert node.output.type == T.ListType(T.TENSOR)
    with pytest.raises(InternalError, match="argument other is missing"):
        insert_op(relu, "aten::add.Tensor", [x], like=relu)


RULES = (
    CLONE,
    Rule("relu-relu", "graph(%x):\n  %y = aten::relu(%x)\n  %z = aten::relu(%y)\n  return (%z)",
         "graph(%x):\n  %y = aten::relu(%x)\n  return (%y)"),
    Rule("neg-neg", "graph(%x):\n  %y = aten::neg(%x)\n  %z = aten::neg(%y)\n  return (%z)",
         "graph(%x):\n  return (%x)"),
    Rule("detach", "graph(%x):\n  %y = aten::detach(%x)\n  return (%y)", "graph(%x):\n  return (%x)",
         same_memory=True),
    Rule("alias-alias", "graph(%x):\n  %y = aten::alias(%x)\n  return (%y)", "graph(%x):\n  return (%x)"),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_rewriting_keeps_the_meaning(program: Program) -> None:
    # detach and alias give new arrays over the same memory, which is what the outcome compares.
    assert_keeps_meaning(of(*RULES), program)
