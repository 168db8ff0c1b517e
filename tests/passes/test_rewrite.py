"""Text rules: what they match, what they leave alone, and why."""

from __future__ import annotations

import logging
import textwrap

import pytest

from gpujit.ir import types as T
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.base import Pass
from gpujit.passes.rewrite import Match, Rule, apply_rules
from gpujit.testing import check_pass


def of(*rules: Rule, name: str = "test_rules") -> Pass:
    """A pass of these rules that is not kept among the named ones."""
    return Pass(name, lambda graph: apply_rules(name, graph, rules))


def may_promote(m: Match) -> str | None:
    """Adding an int 0 to a bool tensor makes it an int tensor."""
    before, after = m["x"].type, m["y"].type
    assert isinstance(before, T.TensorType) and isinstance(after, T.TensorType)
    if before.dtype is None or before.dtype != after.dtype:
        return f"dtype goes from {before.dtype} to {after.dtype}"
    return None


ADD_ZERO = Rule(
    "add-zero",
    before="""
        graph(%x, %alpha):
          %zero : int = prim::Constant[value=0]()
          %y = aten::add(%x, %zero, %alpha)
          return (%y)""",
    after="graph(%x):\n  return (%x)",
    unless=may_promote,
)
DOUBLE_T = Rule(
    "t-of-t",
    before="""
        graph(%x):
          %y = aten::t(%x)
          %z = aten::t(%y)
          return (%z)""",
    after="graph(%x):\n  return (%x)",
    same_memory=True,
)
ADDCMUL = Rule(
    "addcmul",
    before="""
        graph(%x, %y, %z):
          %one : int = prim::Constant[value=1]()
          %m = aten::mul.Tensor(%x, %y)
          %s = aten::add.Tensor(%z, %m, %one)
          return (%s)""",
    after="""
        graph(%x, %y, %z, %one):
          %s = aten::addcmul(%z, %x, %y, %one)
          return (%s)""",
)
CLONE = Rule(
    "clone",
    before="""
        graph(%x, %format):
          %y = aten::clone(%x, %format)
          return (%y)""",
    after="graph(%x):\n  return (%x)",
)


def unchanged(rewriter: Pass, text: str) -> None:
    check_pass(rewriter, text, text)


def test_rewrites_where_the_rule_allows_it() -> None:
    check_pass(
        of(ADD_ZERO),
        """
        graph(%x : Float(2), %k : int):
          %zero : int = prim::Constant[value=0]()
          %y : Float(2) = aten::add(%x, %zero, %k)
          %z : Float(2) = aten::neg(%y)
          return (%z)""",
        """
        graph(%x : Float(2), %k : int):
          %z : Float(2) = aten::neg(%x)
          return (%z)""",
    )


@pytest.mark.parametrize(
    ("zero", "result", "why"),
    [
        ("int = prim::Constant[value=0]()", "Long(2)", "another dtype"),
        ("int = prim::Constant[value=1]()", "Float(2)", "another number"),
        ("float = prim::Constant[value=0.]()", "Float(2)", "a float, the rule says int"),
        ("int = aten::dim(%x)", "Float(2)", "no constant"),
    ],
)
def test_leaves_alone_what_does_not_fit(zero: str, result: str, why: str) -> None:
    unchanged(
        of(ADD_ZERO),
        f"""
        graph(%x : Float(2), %k : int):
          %zero : {zero}
          %y : {result} = aten::add(%x, %zero, %k)
          %z : Tensor = aten::neg(%y)
          return (%z)""",
    )


def test_reason_of_unless_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    text = """
        graph(%x : Bool(2), %k : int):
          %zero : int = prim::Constant[value=0]()
          %y : Long(2) = aten::add(%x, %zero, %k)
          return (%y)"""
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        unchanged(of(ADD_ZERO, name="peep"), text)
    assert "peep: add-zero" in caplog.text and "dtype goes from 11 to 4" in caplog.text


def test_written_types_are_conditions() -> None:
    rule = Rule(
        "only-floats",
        before="""
            graph(%x : Float(*, *)):
              %y = aten::neg(%x)
              %z = aten::neg(%y)
              return (%z)""",
        after="graph(%x):\n  return (%x)",
    )
    text = """
        graph(%x : {}):
          %y : Tensor = aten::neg(%x)
          %z : Tensor = aten::neg(%y)
          %r : Tensor = aten::relu(%z)
          return (%r)"""
    unchanged(of(rule), text.format("Tensor"))
    unchanged(of(rule), text.format("Double(2, 3)"))
    check_pass(
        of(rule),
        text.format("Float(2, 3)"),
        "graph(%x : Float(2, 3)):\n  %r : Tensor = aten::relu(%x)\n  return (%r)",
    )


def test_a_full_name_matches_that_overload_only() -> None:
    text = """
        graph(%x : Tensor, %z : Tensor, %k : {}):
          %one : int = prim::Constant[value=1]()
          %m : Tensor = aten::mul(%x, %k)
          %s : Tensor = aten::add(%z, %m, %one)
          return (%s)"""
    unchanged(of(ADDCMUL), text.format("float"))
    graph = check_pass(
        of(ADDCMUL),
        text.format("Tensor"),
        """
        graph(%x : Tensor, %z : Tensor, %k : Tensor):
          %one : int = prim::Constant[value=1]()
          %s : Tensor = aten::addcmul(%z, %x, %k, %one)
          return (%s)""",
    )
    (node,) = (n for n in graph.nodes if n.kind == "aten::addcmul")
    assert node.schema is not None and node.schema.full_name == "aten::addcmul"


def test_new_nodes_have_types_source_and_call() -> None:
    graph = parse_graph(
        textwrap.dedent("""
            graph(%x : Float(2, 1), %y : Float(1, 3), %z : Float(3)):
              %one : int = prim::Constant[value=1]()
              %m : Float(2, 3) = aten::mul(%x, %y)
              %s : Float(2, 3) = aten::add(%z, %m, %one) # model.py:7:4
              return (%s)""").strip(),
        resolve=resolve_node,
    )
    assert of(ADDCMUL)(graph)
    node = graph.outputs[0].node
    assert node.kind == "aten::addcmul" and node.output.type == T.TensorType(6, (2, 3))
    assert str(node.source) == "model.py:7:4" or (node.source is not None and node.source.shown_line == 7)


def test_a_type_that_is_known_is_kept() -> None:
    # The rule's own result cannot be inferred, but what it replaces was known.
    check_pass(
        of(ADDCMUL),
        """
        graph(%x : Tensor, %y : Tensor, %z : Tensor):
          %one : int = prim::Constant[value=1]()
          %m : Tensor = aten::mul(%x, %y)
          %s : Float(2, 3) = aten::add(%z, %m, %one)
          return (%s)""",
        """
        graph(%x : Tensor, %y : Tensor, %z : Tensor):
          %one : int = prim::Constant[value=1]()
          %s : Float(2, 3) = aten::addcmul(%z, %x, %y, %one)
          return (%s)""",
    )


# ------------------------------------------------------------------------------------------ readers in between


def test_intermediate_results_with_other_readers_are_left_alone() -> None:
    unchanged(
        of(ADDCMUL),
        """
        graph(%x : Tensor, %y : Tensor, %z : Tensor):
          %one : int = prim::Constant[value=1]()
          %m : Tensor = aten::mul(%x, %y)
          %s : Tensor = aten::add(%z, %m, %one)
          return (%s, %m)""",
    )


def test_a_rule_that_computes_nothing_does_not_mind_other_readers() -> None:
    check_pass(
        of(DOUBLE_T),
        """
        graph(%x : Tensor):
          %y : Tensor = aten::t(%x)
          %z : Tensor = aten::t(%y)
          %r : Tensor = aten::relu(%z)
          return (%r, %y)""",
        """
        graph(%x : Tensor):
          %y : Tensor = aten::t(%x)
          %r : Tensor = aten::relu(%x)
          return (%r, %y)""",
    )


def test_what_after_takes_is_kept_and_may_have_other_readers() -> None:
    rule = Rule(
        "negated",
        before="""
            graph(%x):
              %r = aten::relu(%x)
              %n = aten::neg(%r)
              %s = aten::abs(%n)
              return (%s)""",
        after="""
            graph(%r):
              %s = aten::abs(%r)
              return (%s)""",
    )
    check_pass(
        of(rule),
        """
        graph(%x : Tensor):
          %r : Tensor = aten::relu(%x)
          %n : Tensor = aten::neg(%r)
          %s : Tensor = aten::abs(%n)
          return (%s, %r)""",
        """
        graph(%x : Tensor):
          %r : Tensor = aten::relu(%x)
          %s : Tensor = aten::abs(%r)
          return (%s, %r)""",
    )


def test_several_results() -> None:
    rule = Rule(
        "swap",
        before="""
            graph(%a, %b):
              %p = prim::TupleConstruct(%a, %b)
              %x, %y = prim::TupleUnpack(%p)
              return (%x, %y)""",
        after="graph(%a, %b):\n  return (%a, %b)",
        same_memory=True,
    )
    check_pass(
        of(rule),
        """
        graph(%a : Tensor, %b : int):
          %p : (Tensor, int) = prim::TupleConstruct(%a, %b)
          %x : Tensor, %y : int = prim::TupleUnpack(%p)
          return (%y, %x)""",
        "graph(%a : Tensor, %b : int):\n  return (%b, %a)",
    )


def test_one_name_is_one_value() -> None:
    rule = Rule(
        "minus-itself",
        before="""
            graph(%x : int):
              %y = aten::sub(%x, %x)
              return (%y)""",
        after="graph():\n  %y : int = prim::Constant[value=0]()\n  return (%y)",
    )
    check_pass(
        of(rule),
        "graph(%x : int, %k : int):\n  %y : int = aten::sub(%x, %x)\n  %z : int = aten::sub(%y, %k)\n  return (%z)",
        """
        graph(%x : int, %k : int):
          %y : int = prim::Constant[value=0]()
          %z : int = aten::sub(%y, %k)
          return (%z)""",
    )


def test_does_not_move_work_into_a_loop() -> None:
    unchanged(
        of(ADDCMUL),
        """
        graph(%x : Tensor, %y : Tensor, %z : Tensor, %n : int):
          %one : int = prim::Constant[value=1]()
          %true : bool = prim::Constant[value=1]()
          %m : Tensor = aten::mul(%x, %y)
          %r : Tensor = prim::Loop(%n, %true, %z)
            block0(%i : int, %c : Tensor):
              %s : Tensor = aten::add(%c, %m, %one)
              -> (%true, %s)
          return (%r)""",
    )


# ------------------------------------------------------------------------------------------------ memory


def test_declines_when_something_is_written_on_the_way(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        unchanged(
            of(ADDCMUL),
            """
            graph(%x : Tensor, %y : Tensor, %z : Tensor):
              %one : int = prim::Constant[value=1]()
              %m : Tensor = aten::mul(%x, %y)
              %w : Tensor = aten::relu_(%x)
              %s : Tensor = aten::add(%z, %m, %one)
              return (%s)""",
        )
    assert "may be written between aten::mul and aten::add" in caplog.text


def test_a_write_elsewhere_does_no_harm() -> None:
    text = """
        graph(%x : Tensor, %y : Tensor, %z : Tensor):
          %one : int = prim::Constant[value=1]()
          %w : Tensor = aten::relu_(%x)
          %f : Tensor = aten::neg(%z)
          {}
          %g : Tensor = aten::relu_(%f)
          {}
          return (%s, %g)"""
    check_pass(
        of(ADDCMUL),
        text.format("%m : Tensor = aten::mul(%x, %y)", "%s : Tensor = aten::add(%z, %m, %one)"),
        text.format("", "%s : Tensor = aten::addcmul(%z, %x, %y, %one)"),
    )


def test_declines_to_return_an_input(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gpujit.passes"):
        unchanged(
            of(CLONE),
            """
            graph(%x : Tensor):
              %none : NoneType = prim::Constant()
              %y : Tensor = aten::clone(%x, %none)
              return (%y)""",
        )
    assert "may leave the graph" in caplog.text


def test_new_memory_may_be_returned_in_place_of_new_memory_once() -> None:
    check_pass(
        of(CLONE),
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %r : Tensor = aten::relu(%x)
          %y : Tensor = aten::clone(%r, %none)
          %z : Tensor = aten::clone(%r, %none)
          return (%y, %z)""",
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %r : Tensor = aten::relu(%x)
          %z : Tensor = aten::clone(%r, %none)
          return (%r, %z)""",
    )


@pytest.mark.parametrize("written", ["y", "r"])
def test_declines_when_a_copy_or_its_source_is_written_later(written: str) -> None:
    unchanged(
        of(CLONE),
        f"""
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %r : Tensor = aten::relu(%x)
          %y : Tensor = aten::clone(%r, %none)
          %w : Tensor = aten::relu_(%{written})
          %one : int = prim::Constant[value=1]()
          %s : Tensor = aten::add(%r, %y, %one)
          return (%s)""",
    )


def test_new_results_may_be_written_later() -> None:
    text = """
        graph(%x : Tensor, %y : Tensor, %z : Tensor):
          %one : int = prim::Constant[value=1]()
          {}
          %w : Tensor = aten::relu_(%s)
          return (%w)"""
    check_pass(
        of(ADDCMUL),
        text.format("%m : Tensor = aten::mul(%x, %y)\n  %s : Tensor = aten::add(%z, %m, %one)"),
        text.format("%s : Tensor = aten::addcmul(%z, %x, %y, %one)"),
    )


def test_declines_to_return_one_tensor_for_many() -> None:
    # The list would hold one tensor three times instead of three copies.
    unchanged(
        of(CLONE),
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %three : int = prim::Constant[value=3]()
          %true : bool = prim::Constant[value=1]()
          %r : Tensor = aten::relu(%x)
          %l : Tensor[] = prim::ListConstruct()
           = prim::Loop(%three, %true)
            block0(%i : int):
              %y : Tensor = aten::clone(%r, %none)
              %a : Tensor[] = aten::append(%l, %y)
              -> (%true)
          return (%l)""",
    )


def test_declines_nodes_with_effects() -> None:
    rule = Rule(
        "dropped",
        before="""
            graph(%x, %p, %train):
              %y = aten::dropout(%x, %p, %train)
              return (%y)""",
        after="graph(%x):\n  return (%x)",
        same_memory=True,
    )
    text = """
        graph(%x : Tensor):
          %p : float = prim::Constant[value=0.5]()
          %train : bool = prim::Constant[value={}]()
          %y : Tensor = aten::dropout(%x, %p, %train)
          return (%y)"""
    unchanged(of(rule), text.format(1))
    check_pass(
        of(rule),
        text.format(0),
        """
        graph(%x : Tensor):
          %p : float = prim::Constant[value=0.5]()
          %train : bool = prim::Constant[value=0]()
          return (%x)""",
    )


def test_declines_to_lose_a_type() -> None:
    rule = Rule(
        "wrap",
        before="graph(%x):\n  %y : int = aten::Int(%x)\n  return (%y)",
        after="graph(%x):\n  return (%x)",
    )
    unchanged(of(rule), "graph(%x : Scalar):\n  %y : int = aten::Int(%x)\n  return (%y)")
