"""check_pass and its relatives find what they are there to find."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.parser import parse_graph
from gpujit.ir.schema import parse_schema
from gpujit.ops import table
from gpujit.support.errors import VerifyError
from gpujit.testing import assert_same_graph, assert_same_values, check_pass, resolve_node

BEFORE = """
    graph(%x : Tensor):
      %dead : int = prim::Constant[value=1]()
      %y : Tensor = aten::relu(%x)
      return (%y)"""
AFTER = """
    graph(%input : Tensor):
      %result : Tensor = aten::relu(%input)
      return (%result)"""


def drop_dead(graph: Graph) -> bool:
    changed = False
    for node in graph.block.nodes_reversed:
        if not any(v.uses for v in node.outputs):
            node.destroy()
            changed = True
    return changed


def run_relu(graph: Graph, x: np.ndarray) -> list[np.ndarray]:
    values = {graph.inputs[0]: x}
    for node in graph.nodes:
        if node.kind == "aten::relu":
            values[node.output] = np.maximum(values[node.inputs[0]], 0)
    return [values[v] for v in graph.outputs]


def test_a_good_pass_passes() -> None:
    samples = [(np.array([-1.0, 2.0]),), (np.zeros((2, 0)),)]
    graph = check_pass(drop_dead, BEFORE, AFTER, samples, run_relu)
    assert [n.kind for n in graph.nodes] == ["aten::relu"]
    check_pass(drop_dead, AFTER, AFTER)


def lies(answer: object) -> Callable[[Graph], bool]:
    def run(graph: Graph) -> bool:
        drop_dead(graph)
        return answer  # type: ignore[return-value]

    return run


def adds_forever(graph: Graph) -> bool:
    graph.constant(1, T.INT)
    return True


def breaks(graph: Graph) -> bool:
    graph.outputs[0].uses.clear()
    return True


def swaps_the_result(graph: Graph) -> bool:
    if graph.outputs[0] is graph.inputs[0]:
        return False
    graph.outputs[0].replace_all_uses_with(graph.inputs[0])
    drop_dead(graph)
    return True


def rewrites_once_more(graph: Graph) -> bool:
    if not drop_dead(graph):
        relu = next(graph.nodes)
        new = Node("aten::relu", [relu.output]).insert_after(relu)
        graph.block.return_node.set_input(0, new.add_output())
    return True


@pytest.mark.parametrize(
    ("pass_fn", "after", "message"),
    [
        (lambda g: False, AFTER, "the pass gave another graph than expected"),
        (lies(False), AFTER, "the pass returned False, but the graph changed"),
        (lies(True), AFTER, "a second run says it changed the graph, but it did not"),
        (lies(None), AFTER, "the pass returned None instead of whether"),
        (lambda g: True, BEFORE, "the pass returned True, but the graph did not change"),
        (adds_forever, BEFORE.replace("return", "%t : int = prim::Constant[value=1]()\n      return"), "a second run"),
        (rewrites_once_more, AFTER, "a second run changed the graph again"),
    ],
)
def test_a_pass_that_breaks_its_promises(pass_fn: Callable[[Graph], bool], after: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_pass(pass_fn, BEFORE, after)


def test_a_pass_that_breaks_the_graph() -> None:
    with pytest.raises(VerifyError, match="lists 0 uses and is read 1 times"):
        check_pass(breaks, BEFORE, AFTER)


def test_a_pass_that_changes_results() -> None:
    with pytest.raises(AssertionError, match="sample 0"):
        check_pass(swaps_the_result, BEFORE, "graph(%x):\n  return (%x)", [(np.array([-1.0]),)], run_relu)


def test_new_constants_survive() -> None:
    def fold(graph: Graph) -> bool:
        node = next(graph.nodes)
        if node.kind != "aten::ones":
            return False
        new = graph.constant(np.ones(2), T.TENSOR)
        node.output.replace_all_uses_with(new)
        node.destroy()
        return True

    known = [np.zeros(3)]
    graph = check_pass(
        fold,
        "graph():\n  %a = aten::ones()\n  %b = prim::Constant[value=CONSTANTS.c0]()\n  return (%a, %b)",
        "graph():\n  %b = prim::Constant[value=CONSTANTS.c0]()\n  %a = prim::Constant[value=CONSTANTS.c1]()\n"
        "  return (%a, %b)",
        constants=known,
    )
    assert graph.outputs[1].constant() is known[0]


def test_overloads_are_found_by_types(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        "aten::add.int(int a, int b) -> int",
    )
    ops = [SimpleNamespace(schema=parse_schema(text)) for text in texts]
    monkeypatch.setattr(table, "by_name", lambda name: ops if name == "aten::add" else ())
    graph = parse_graph(
        """graph(%x, %n : int, %s : str):
          %a = aten::add(%x, %n, %n)
          %b = aten::add(%x, %x, %n)
          %c : int = aten::add(%n, %n)
          %d = aten::add(%s, %n)
          %e = aten::other(%s)
          return ()""",
        resolve=resolve_node,
    )
    assert [n.schema and n.schema.overload for n in graph.nodes] == ["Scalar", "Tensor", "int", None, None]


def test_graphs_are_the_same_up_to_names() -> None:
    assert_same_graph(parse_graph("graph(%a):\n  return (%a) # x.py:1:2"), parse_graph("graph(%b):\n  return (%b)"))
    with pytest.raises(AssertionError, match=r"graphs differ(.|\n)*-graph\(%0 : int\):\n\+graph\(%0 : Tensor\):"):
        assert_same_graph(parse_graph("graph(%a):\n  return (%a)"), parse_graph("graph(%b : int):\n  return (%b)"))


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (1, True), (1.0, 1), (1.0, 1.1), ([1], (1,)), ([1], [1, 2]), ({"a": 1}, {"b": 1}), ("a", "b"),
        (np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(2, np.float32)), (np.array([1]), np.array([2])),
        (0.0, np.zeros(())), (None, 0), (np.array([1.0]), np.array([1.001])),
    ],
)  # fmt: skip
def test_values_that_differ(got: object, wanted: object) -> None:
    with pytest.raises(AssertionError):
        assert_same_values(got, wanted)


def test_values_that_are_the_same() -> None:
    value = [1, "a", None, {"k": (np.array([np.nan, 1.0]), 2j)}, float("nan"), np.array([True])]
    near = [1, "a", None, {"k": (np.array([np.nan, 1.0 + 1e-9]), 2j)}, float("nan"), np.array([True])]
    assert_same_values(near, value)
