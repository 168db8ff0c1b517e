"""Dead code: what goes, and what has to stay."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.passes.analysis.effects import has_effect
from gpujit.passes.dce import eliminate_dead_code
from gpujit.testing import check_pass
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs


def becomes(before: str, after: str) -> None:
    check_pass(eliminate_dead_code, before, after)


def stays(text: str) -> None:
    check_pass(eliminate_dead_code, text, text)


def test_chains_that_nobody_reads_are_removed() -> None:
    becomes(
        """
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %b : Tensor = aten::neg(%a)
          %c : int = aten::dim(%b)
          %y : Tensor = aten::neg(%x)
          return (%y)""",
        "graph(%x : Tensor):\n  %y : Tensor = aten::neg(%x)\n  return (%y)",
    )


def test_unknown_operators_and_what_they_read_stay() -> None:
    becomes(
        """
        graph(%x : Tensor, %n : int[]):
          %a : Tensor = aten::relu(%x)
          %v : Tensor = aten::view(%x, %n)
          %w : Tensor = custom::log(%v)
          return (%x)""",
        """
        graph(%x : Tensor, %n : int[]):
          %v : Tensor = aten::view(%x, %n)
          %w : Tensor = custom::log(%v)
          return (%x)""",
    )


@pytest.mark.parametrize(
    "node",
    [
        " = prim::Print(%s, %x)",
        " = prim::RaiseException(%s)",
        "%r : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)",
        "%r : Tensor = aten::relu_(%x)",
        "%r : Tensor = aten::dropout(%x, %half, %true)",
        "%r : Tensor = aten::batch_norm(%x, %none, %none, %x, %x, %true, %half, %half, %true)",
        "%r : Tensor[] = aten::append(%l, %x)",
    ],
)
def test_effects_stay(node: str) -> None:
    text = f"""
        graph(%x : Tensor, %l : Tensor[]):
          %s : str = prim::Constant[value="text"]()
          %none : NoneType = prim::Constant()
          %half : float = prim::Constant[value=0.5]()
          %true : bool = prim::Constant[value=1]()
          {node}
          return (%x)"""
    used = [line for line in text.splitlines() if "Constant" not in line or line.split(":")[0].strip() in node]
    becomes(text, "\n".join(used))


@pytest.mark.parametrize(
    "node",
    [
        "%r : Tensor = aten::dropout(%x, %half, %false)",
        "%r : Tensor = aten::batch_norm(%x, %none, %none, %x, %x, %false, %half, %half, %true)",
    ],
)
def test_effects_switched_off_do_not_count(node: str) -> None:
    becomes(
        f"""
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %half : float = prim::Constant[value=0.5]()
          %true : bool = prim::Constant[value=1]()
          %false : bool = prim::Constant[value=0]()
          {node}
          return (%x)""",
        "graph(%x : Tensor):\n  return (%x)",
    )


def test_writes_into_memory_nobody_looks_at_are_removed() -> None:
    becomes(
        """
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %v : Tensor = aten::t(%a)
          %w : Tensor = aten::neg_(%v)
          %l : Tensor[] = prim::ListConstruct(%x)
          %m : Tensor[] = aten::append(%l, %a)
          %y : Tensor = aten::neg(%x)
          return (%y)""",
        "graph(%x : Tensor):\n  %y : Tensor = aten::neg(%x)\n  return (%y)",
    )


@pytest.mark.parametrize("read", ["%a", "%v", "%l"])
def test_writes_that_somebody_sees_stay(read: str) -> None:
    kind = "Tensor[]" if read == "%l" else "Tensor"
    text = f"""
        graph(%x : Tensor):
          %a : Tensor = aten::relu(%x)
          %v : Tensor = aten::t(%a)
          %l : {kind if read == "%l" else "Tensor[]"} = prim::ListConstruct(%v)
          %w : Tensor = aten::neg_(%a)
          return ({read})"""
    lines = text.splitlines()
    if read == "%a":
        lines = [line for line in lines if "%v" not in line]
    elif read == "%v":
        lines = [line for line in lines if "%l" not in line]
    becomes(text, "\n".join(lines))


def test_a_write_through_an_input_list_stays() -> None:
    stays(
        """
        graph(%l : Tensor[]):
          %zero : int = prim::Constant[value=0]()
          %a : Tensor = aten::__getitem__(%l, %zero)
          %w : Tensor = aten::relu_(%a)
          return (%zero)"""
    )


def test_ifs_lose_outputs_and_go_when_nothing_is_left() -> None:
    becomes(
        """
        graph(%x : Tensor, %c : bool):
          %a : Tensor, %b : Tensor = prim::If(%c)
            block0():
              %p : Tensor = aten::relu(%x)
              %q : Tensor = aten::neg(%x)
              -> (%p, %q)
            block1():
              %r : Tensor = aten::tanh(%x)
              -> (%r, %x)
          %d : Tensor = prim::If(%c)
            block0():
              -> (%a)
            block1():
              -> (%x)
          return (%b)""",
        """
        graph(%x : Tensor, %c : bool):
          %b : Tensor = prim::If(%c)
            block0():
              %q : Tensor = aten::neg(%x)
              -> (%q)
            block1():
              -> (%x)
          return (%b)""",
    )


def test_loops_lose_what_is_carried_for_nobody() -> None:
    becomes(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %one : int = prim::Constant[value=1]()
          %a : Tensor, %b : Tensor, %k : int = prim::Loop(%n, %true, %x, %x, %one)
            block0(%i : int, %p : Tensor, %q : Tensor, %m : int):
              %r : Tensor = aten::relu(%p)
              %s : Tensor = aten::neg(%q)
              %t : int = aten::add(%m, %i)
              -> (%true, %r, %s, %t)
          return (%b)""",
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %b : Tensor = prim::Loop(%n, %true, %x)
            block0(%i : int, %q : Tensor):
              %s : Tensor = aten::neg(%q)
              -> (%true, %s)
          return (%b)""",
    )


def test_a_value_that_feeds_the_condition_is_carried_on() -> None:
    stays(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %k : int, %b : Tensor = prim::Loop(%n, %true, %n, %x)
            block0(%i : int, %m : int, %q : Tensor):
              %t : int = aten::sub(%m, %i)
              %go : bool = aten::gt(%t, %i)
              %s : Tensor = aten::neg(%q)
              -> (%go, %t, %s)
          return (%b)"""
    )


def test_a_loop_with_an_effect_stays_without_its_results() -> None:
    becomes(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %b : Tensor = prim::Loop(%n, %true, %x)
            block0(%i : int, %q : Tensor):
              %s : Tensor = aten::neg(%q)
               = prim::Print(%i)
              -> (%true, %s)
          return (%x)""",
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
           = prim::Loop(%n, %true)
            block0(%i : int):
               = prim::Print(%i)
              -> (%true)
          return (%x)""",
    )


def test_a_write_in_a_loop_into_what_is_read_outside_stays() -> None:
    stays(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %a : Tensor = aten::relu(%x)
           = prim::Loop(%n, %true)
            block0(%i : int):
              %w : Tensor = aten::neg_(%a)
              -> (%true)
          return (%a)"""
    )


def test_forks_go_when_they_do_nothing_else() -> None:
    text = """
        graph(%x : Tensor):
          %f : Future(Tensor) = prim::fork_0(%x)
          return (%x)
        with prim::fork_0 = graph(%y : Tensor):
          {}
          return (%z)"""
    becomes(text.format("%z : Tensor = aten::relu(%y)"), "graph(%x : Tensor):\n  return (%x)")
    stays(text.format("%z : Tensor = aten::relu_(%y)"))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_keeps_the_meaning(program: Program) -> None:
    graph = assert_keeps_meaning(eliminate_dead_code, program)
    # Whatever has no effect is read by somebody.
    assert all(has_effect(n) or any(v.uses for v in n.outputs) for n in graph.all_nodes())
