from __future__ import annotations

import numpy as np
import pytest

from gpujit.ir import types as T
from gpujit.ir.parser import parse_graph
from gpujit.passes.analysis.decide import is_instance
from gpujit.passes.base import changes_made
from gpujit.passes.fold import fold
from gpujit.support.config import config
from gpujit.testing import check_pass, resolve_node
from tests.passes.random_graphs import run_graph as run

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def unchanged(text: str, reason: str | None, caplog: pytest.LogCaptureFixture, **options: object) -> None:
    with caplog.at_level("DEBUG", "gpujit.passes"):
        check_pass(fold, text, text, run=run, **options)  # type: ignore[arg-type]
    assert reason is None or reason in caplog.text


def test_numbers_lists_and_strings_are_computed_and_what_only_they_read_goes() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor):
              %two : int = prim::Constant[value=2]()
              %three : int = prim::Constant[value=3]()
              %six : int = aten::mul(%two, %three)
              %shape : int[] = prim::ListConstruct(%six)
              %n : int = aten::len(%shape)
              %y : Tensor = aten::reshape(%x, %shape)
              %z : Tensor = aten::add(%y, %n, %n)
              return (%z)""",
        after="""
            graph(%x : Tensor):
              %two : int = prim::Constant[value=2]()
              %three : int = prim::Constant[value=3]()
              %shape : int[] = prim::Constant[value=[6]]()
              %n : int = prim::Constant[value=1]()
              %y : Tensor = aten::reshape(%x, %shape)
              %z : Tensor = aten::add(%y, %n, %n)
              return (%z)""",
        samples=[(X,)],
        run=run,
    )


def test_tensors_made_of_constants_become_constants_with_their_type() -> None:
    weight = np.ones((3, 2), np.float32)
    text = """
        graph(%x : Tensor):
          %w : Float(3, 2) = prim::Constant[value=CONSTANTS.c0]()
          %t : Tensor = aten::t(%w)
          %s : Tensor = aten::neg(%t)
          %y : Tensor = aten::mul(%x, %s)
          return (%y)"""
    graph = parse_graph(text, constants=(weight,), resolve=resolve_node)
    assert fold(graph)
    assert [n.kind for n in graph.nodes] == ["prim::Constant", "prim::Constant", "aten::mul"]
    folded = next(graph.nodes).next
    assert folded is not None and folded.output.type == T.TensorType(6, (2, 3))
    np.testing.assert_array_equal(folded.output.constant(), -weight.T)


def test_the_branch_taken_replaces_an_if_and_the_condition_is_known_inside_its_branches() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %c : bool):
              %yes : bool = prim::Constant[value=1]()
              %y : Tensor = prim::If(%yes)
                block0():
                  %z : Tensor = prim::If(%c)
                    block0():
                      %n : bool = aten::__not__(%c)
                      %w : Tensor = prim::If(%n)
                        block0():
                          %r : Tensor = aten::relu(%x)
                          -> (%r)
                        block1():
                          %s : Tensor = aten::neg(%x)
                          -> (%s)
                      -> (%w)
                    block1():
                      -> (%x)
                  -> (%z)
                block1():
                  -> (%x)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %yes : bool = prim::Constant[value=1]()
              %z : Tensor = prim::If(%c)
                block0():
                  %s : Tensor = aten::neg(%x)
                  -> (%s)
                block1():
                  -> (%x)
              return (%z)""",
        samples=[(X, True), (X, False)],
        run=run,
    )


def test_results_equal_on_both_sides_are_read_from_outside() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %c : bool):
              %one : int = prim::Constant[value=1]()
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %a : Tensor, %b : int, %p : bool, %q : bool = prim::If(%c)
                block0():
                  %uno : int = prim::Constant[value=1]()
                  -> (%x, %uno, %t, %f)
                block1():
                  -> (%x, %one, %f, %t)
              return (%a, %b, %p, %q)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %one : int = prim::Constant[value=1]()
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %q : bool = aten::__not__(%c)
              %b : int = prim::Constant[value=1]()
               = prim::If(%c)
                block0():
                  %uno : int = prim::Constant[value=1]()
                  -> ()
                block1():
                  -> ()
              return (%x, %b, %c, %q)""",
        samples=[(X, True), (X, False)],
        run=run,
    )


def test_tests_on_types_are_decided() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %o : Tensor?, %l : int[]):
              %none : NoneType = prim::Constant()
              %a : bool = aten::__is__(%x, %none)
              %b : bool = aten::__isnot__(%x, %none)
              %c : bool = aten::__is__(%o, %none)
              %d : bool = prim::isinstance[types=[Tensor]](%x)
              %e : bool = prim::isinstance[types=[float, str]](%l)
              %f : bool = prim::isinstance[types=[float[]]](%l)
              %g : bool = prim::isinstance[types=[Tensor]](%o)
              %r : bool[] = prim::ListConstruct(%a, %b, %c, %d, %e, %f, %g)
              return (%r)""",
        after="""
            graph(%x : Tensor, %o : Tensor?, %l : int[]):
              %none : NoneType = prim::Constant()
              %a : bool = prim::Constant[value=0]()
              %b : bool = prim::Constant[value=1]()
              %c : bool = aten::__is__(%o, %none)
              %d : bool = prim::Constant[value=1]()
              %e : bool = prim::Constant[value=0]()
              %f : bool = prim::isinstance[types=[float[]]](%l)
              %g : bool = prim::isinstance[types=[Tensor]](%o)
              %r : bool[] = prim::ListConstruct(%a, %b, %c, %d, %e, %f, %g)
              return (%r)""",
        samples=[(X, None, [1]), (X, X, [])],
        run=run,
    )


@pytest.mark.parametrize(
    ("actual", "wanted", "answer"),
    [
        (T.INT, [T.FLOAT], False),
        (T.optional(T.INT), [T.INT], None),
        (T.optional(T.INT), [T.INT, T.NONE], True),
        (T.ListType(T.TENSOR), [T.ANY_LIST], None),
        (T.TupleType((T.INT,)), [T.ListType(T.INT)], False),
        (T.ANY, [T.INT], None),
        (T.TensorType(6, (2,)), [T.TENSOR], True),
        (T.NUMBER, [T.INT], None),
        (T.ClassType("A"), [T.ClassType("B")], None),
    ],
)
def test_is_instance(actual: T.Type, wanted: list[T.Type], answer: bool | None) -> None:
    assert is_instance(actual, wanted) is answer


def test_loops_that_do_not_run_and_loops_that_run_once() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %n : int, %c : bool):
              %zero : int = prim::Constant[value=0]()
              %one : int = prim::Constant[value=1]()
              %many : int = prim::Constant[value=100]()
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %a : Tensor = prim::Loop(%zero, %c, %x)
                block0(%i : int, %v : Tensor):
                  %w : Tensor = aten::relu(%v)
                  -> (%t, %w)
              %b : Tensor = prim::Loop(%n, %f, %a)
                block0(%i2 : int, %v2 : Tensor):
                  %w2 : Tensor = aten::relu(%v2)
                  -> (%t, %w2)
              %d : Tensor = prim::Loop(%one, %t, %b)
                block0(%i3 : int, %v3 : Tensor):
                  %w3 : Tensor = aten::add(%v3, %i3, %one)
                  -> (%c, %w3)
              %e : Tensor = prim::Loop(%many, %t, %d)
                block0(%i4 : int, %v4 : Tensor):
                  %w4 : Tensor = aten::neg(%v4)
                  -> (%f, %w4)
              return (%e)""",
        after="""
            graph(%x : Tensor, %n : int, %c : bool):
              %zero : int = prim::Constant[value=0]()
              %one : int = prim::Constant[value=1]()
              %many : int = prim::Constant[value=100]()
              %t : bool = prim::Constant[value=1]()
              %f : bool = prim::Constant[value=0]()
              %i : int = prim::Constant[value=0]()
              %w : Tensor = aten::add(%x, %i, %one)
              %e : Tensor = aten::neg(%w)
              return (%e)""",
        samples=[(X, 3, True)],
        run=run,
    )


def test_what_a_loop_carries_unchanged_is_read_from_outside() -> None:
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %n : int):
              %t : bool = prim::Constant[value=1]()
              %two : int = prim::Constant[value=2]()
              %a : Tensor, %b : Tensor, %k : int = prim::Loop(%n, %t, %x, %x, %two)
                block0(%i : int, %v : Tensor, %u : Tensor, %m : int):
                  %w : Tensor = aten::mul(%v, %u)
                  %s : Tensor = aten::mul(%w, %m)
                  %zwei : int = prim::Constant[value=2]()
                  -> (%t, %s, %u, %zwei)
              %y : Tensor = aten::mul(%a, %k)
              return (%y, %b)""",
        after="""
            graph(%x : Tensor, %n : int):
              %t : bool = prim::Constant[value=1]()
              %two : int = prim::Constant[value=2]()
              %a : Tensor, %b : Tensor, %k : int = prim::Loop(%n, %t, %x, %x, %two)
                block0(%i : int, %v : Tensor, %u : Tensor, %m : int):
                  %w : Tensor = aten::mul(%v, %x)
                  %s : Tensor = aten::mul(%w, %two)
                  %zwei : int = prim::Constant[value=2]()
                  -> (%t, %s, %x, %zwei)
              %y : Tensor = aten::mul(%a, %two)
              return (%y, %x)""",
        samples=[(X, 0), (X, 2)],
        run=run,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            """
            graph(%x : int):
              %one : int = prim::Constant[value=1]()
              %l : int[] = prim::ListConstruct(%one)
              %m : int[] = aten::append(%l, %x)
              %n : int = aten::len(%l)
              return (%n)""",
            "its result may be written into",
        ),
        (
            """
            graph(%x : int):
              %one : int = prim::Constant[value=1]()
              %l : int[] = prim::ListConstruct(%one)
              return (%l)""",
            "its result may leave the graph",
        ),
        (
            """
            graph(%x : int):
              %one : int = prim::Constant[value=1]()
              %zero : int = prim::Constant[value=0]()
              %y : int = aten::floordiv(%one, %zero)
              return (%x)""",
            "computing it fails",
        ),
        (
            """
            graph(%x : Tensor):
              %big : int[] = prim::Constant[value=[4096, 4096]]()
              %none : NoneType = prim::Constant()
              %one : int = prim::Constant[value=1]()
              %z : Tensor = aten::zeros(%big, %none, %none, %none, %none)
              %y : Tensor = aten::add(%x, %z, %one)
              return (%y)""",
            "gives too much",
        ),
        (
            """
            graph(%x : Tensor):
              %small : int[] = prim::Constant[value=[2]]()
              %none : NoneType = prim::Constant()
              %z : Tensor = aten::rand(%small, %none, %none, %none, %none)
              %y : Tensor = aten::mul(%x, %z)
              return (%y)""",
            "has effects",
        ),
        (
            # A 0-dim float64 tensor makes ints float64, a number makes them float32.
            """
            graph(%x : Tensor):
              %half : float = prim::Constant[value=0.5]()
              %t : Tensor = prim::NumToTensor(%half)
              %y : Tensor = aten::mul(%x, %t)
              return (%y)""",
            "arithmetic would read the constant as a number",
        ),
    ],
)
def test_declined(text: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    unchanged(text, reason, caplog)


def test_a_constant_that_is_written_into_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    text = """
        graph(%x : Tensor):
          %one : int = prim::Constant[value=1]()
          %w : Float(2) = prim::Constant[value=CONSTANTS.c0]()
          %n : Tensor = aten::neg(%w)
          %u : Tensor = aten::add_(%w, %x, %one)
          %y : Tensor = aten::mul(%n, %x)
          return (%y)"""
    unchanged(text, None, caplog, constants=(np.ones(2, np.float32),))


def test_0_dim_tensors_are_folded_where_no_arithmetic_takes_them_for_numbers() -> None:
    text = """
        graph(%x : Tensor):
          %half : float = prim::Constant[value=0.5]()
          %t : Tensor = prim::NumToTensor(%half)
          %u : Tensor = aten::mul(%t, %t)
          %y : Tensor = aten::maximum(%x, %u)
          return (%y)"""
    graph = parse_graph(text, resolve=resolve_node)
    wanted = run(graph, X.astype(int))
    assert fold(graph)
    assert [n.kind for n in graph.nodes] == ["prim::Constant", "prim::Constant", "aten::maximum"]
    got = run(graph, X.astype(int))
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_a_cast_that_would_not_hold_stays() -> None:
    # The branch is never taken, but that is not known.
    check_pass(
        fold,
        before="""
            graph(%x : Tensor, %c : bool):
              %none : Tensor? = prim::Constant()
              %y : Tensor = prim::If(%c)
                block0():
                  %w : Tensor = prim::unchecked_cast(%none)
                  %r : Tensor = aten::relu(%w)
                  -> (%r)
                block1():
                  %n : Tensor? = prim::unchecked_cast(%none)
                  %is : bool = aten::__is__(%n, %none)
                  %s : Tensor = aten::mul(%x, %is)
                  -> (%s)
              return (%y)""",
        after="""
            graph(%x : Tensor, %c : bool):
              %none : Tensor? = prim::Constant()
              %y : Tensor = prim::If(%c)
                block0():
                  %w : Tensor = prim::unchecked_cast(%none)
                  %r : Tensor = aten::relu(%w)
                  -> (%r)
                block1():
                  %is : bool = prim::Constant[value=1]()
                  %s : Tensor = aten::mul(%x, %is)
                  -> (%s)
              return (%y)""",
        samples=[(X, False)],
        run=run,
    )


def test_fuel_ends_folding_at_one_edit() -> None:
    text = """
        graph(%x : Tensor, %c : bool):
          %t : bool = prim::Constant[value=1]()
          %a : Tensor = prim::If(%t)
            block0():
              %r : Tensor = aten::relu(%x)
              -> (%r)
            block1():
              -> (%x)
          %b : Tensor = prim::If(%t)
            block0():
              -> (%a)
            block1():
              -> (%x)
          return (%b)"""
    left = []
    for fuel in range(3):
        graph = parse_graph(text, resolve=resolve_node)
        with config(pass_limit=changes_made() + fuel):
            assert fold(graph) is (fuel > 0)
        left.append(sum(n.kind == "prim::If" for n in graph.all_nodes()))
    assert left == [2, 1, 0]
