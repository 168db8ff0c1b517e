"""Lists and dicts whose changes and reads are done beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gpujit.ir.graph import Graph
from gpujit.passes.base import changes_made
from gpujit.passes.containers import MAX_ELEMENTS, lower_containers
from gpujit.passes.tuples import lower_tuples
from gpujit.passes.unmutate.main import remove_tensor_mutation
from gpujit.support.config import config
from gpujit.testing import check_pass
from tests.passes.peephole_help import run
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def check(before: str, after: str, *samples: Any) -> Graph:
    return check_pass(lower_containers, before, after, samples or None, run)


def in_order(lines: str, result: str, elements: str) -> Graph:
    """``lines`` change the list %l of %a and %b; what is returned is made of ``elements``."""
    head = """
        graph(%a : Tensor, %b : Tensor, %c : Tensor):
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %last : int = prim::Constant[value=-1]()
          %none : NoneType = prim::Constant()
"""
    body = "".join(f"          {line}\n" for line in lines.split("; "))
    return check(
        f"{head}          %l : Tensor[] = prim::ListConstruct(%a, %b)\n{body}          return ({result})",
        f"{head}          %r : Tensor[] = prim::ListConstruct({elements})\n          return (%r)",
        [FLOATS, FLOATS + 1, FLOATS + 2],
    )


@pytest.mark.parametrize(
    ("lines", "elements"),
    [
        ("%r : Tensor[] = aten::append(%l, %c)", "%a, %b, %c"),
        ("%r : Tensor[] = aten::append(%l, %c); %s : Tensor[] = aten::append(%r, %a)", "%a, %b, %c, %a"),
        (" = aten::extend(%l, %l)", "%a, %b, %a, %b"),
        (" = aten::insert(%l, %one, %c)", "%a, %c, %b"),
        (" = aten::insert(%l, %last, %c)", "%a, %c, %b"),
        ("%r : Tensor = aten::pop(%l, %last)", "%a"),
        (" = aten::Delete(%l, %zero)", "%b"),
        (" = aten::reverse(%l)", "%b, %a"),
        (" = aten::clear(%l)", ""),
        ("%r : Tensor[] = aten::_set_item(%l, %last, %c)", "%a, %c"),
        ("%r : Tensor[] = aten::add_(%l, %l)", "%a, %b, %a, %b"),
        ("%r : Tensor[] = aten::mul_(%l, %two)", "%a, %b, %a, %b"),
    ],
)
def test_changes(lines: str, elements: str) -> None:
    in_order(lines, "%l", elements)


@pytest.mark.parametrize(
    ("lines", "elements"),
    [
        ("%r : Tensor[] = aten::add(%l, %l)", "%a, %b, %a, %b"),
        ("%r : Tensor[] = aten::mul(%l, %two)", "%a, %b, %a, %b"),
        ("%r : Tensor[] = aten::slice(%l, %one, %none, %one)", "%b"),
        ("%r : Tensor[] = aten::slice(%l, %none, %none, %last)", "%b, %a"),
        ("%r : Tensor[] = aten::list(%l)", "%a, %b"),
        ("%m : Tensor[] = aten::copy(%l); %r : Tensor[] = aten::append(%m, %c)", "%a, %b, %c"),
    ],
)
def test_new_lists(lines: str, elements: str) -> None:
    in_order(lines, "%r", elements)


def test_elements_and_lengths() -> None:
    check(
        """
        graph(%a : Tensor, %b : Tensor):
          %last : int = prim::Constant[value=-1]()
          %l : Tensor[] = prim::ListConstruct(%a)
          %n : int = aten::len(%l)
          %m : Tensor[] = aten::append(%l, %b)
          %x : Tensor = aten::__getitem__(%l, %last)
          %y : Tensor, %z : Tensor = prim::ListUnpack(%l)
          %k : int = aten::len(%m)
          return (%n, %x, %y, %k)""",
        """
        graph(%a : Tensor, %b : Tensor):
          %last : int = prim::Constant[value=-1]()
          %n : int = prim::Constant[value=1]()
          %k : int = prim::Constant[value=2]()
          return (%n, %b, %a, %k)""",
        [FLOATS, FLOATS + 1],
    )


def test_each_reader_gets_the_list_of_its_time() -> None:
    check(
        """
        graph(%a : Tensor, %b : Tensor):
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct(%a)
          %x : Tensor = aten::cat(%l, %zero)
          %m : Tensor[] = aten::append(%l, %b)
          %y : Tensor = aten::cat(%m, %zero)
          return (%x, %y)""",
        """
        graph(%a : Tensor, %b : Tensor):
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct(%a)
          %x : Tensor = aten::cat(%l, %zero)
          %m : Tensor[] = prim::ListConstruct(%a, %b)
          %y : Tensor = aten::cat(%m, %zero)
          return (%x, %y)""",
        [FLOATS, FLOATS + 1],
    )


def test_lists_of_constants_are_compared_and_searched() -> None:
    check(
        """
        graph():
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %l : int[] = prim::ListConstruct(%two, %one)
          %m : int[] = prim::ListConstruct(%one, %two)
           = aten::sort(%l, %f)
          %e : bool = aten::eq(%l, %m)
          %i : bool = aten::__contains__(%m, %one)
          return (%e, %i)""".replace("graph():", "graph():\n          %f : bool = prim::Constant[value=0]()"),
        """
        graph():
          %f : bool = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %s : int = prim::Constant[value=1]()
          %t : int = prim::Constant[value=2]()
          %e : bool = prim::Constant[value=1]()
          %i : bool = prim::Constant[value=1]()
          return (%e, %i)""",
        [],
    )


def test_reads_in_branches_and_loops() -> None:
    check(
        """
        graph(%a : Tensor, %b : Tensor, %c : bool):
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct(%a)
          %m : Tensor[] = aten::append(%l, %b)
          %r : Tensor = prim::If(%c)
            block0():
              %x : Tensor = aten::__getitem__(%l, %zero)
              -> (%x)
            block1():
              %y : Tensor = aten::cat(%l, %zero)
              -> (%y)
          return (%r)""",
        """
        graph(%a : Tensor, %b : Tensor, %c : bool):
          %zero : int = prim::Constant[value=0]()
          %m : Tensor[] = prim::ListConstruct(%a, %b)
          %r : Tensor = prim::If(%c)
            block0():
              -> (%a)
            block1():
              %y : Tensor = aten::cat(%m, %zero)
              -> (%y)
          return (%r)""",
        [FLOATS, FLOATS + 1, True],
        [FLOATS, FLOATS + 1, False],
    )


DICT_HEAD = """
        graph(%a : Tensor, %b : Tensor, %k : str):
          %x : str = prim::Constant[value="x"]()
          %y : str = prim::Constant[value="y"]()
"""


def in_dict(before: str, after: str) -> Graph:
    def text(body: str) -> str:
        return DICT_HEAD + "".join(f"          {line}\n" for line in body.split("; "))

    return check(text(before), text(after), [FLOATS, FLOATS + 1, "x"])


def test_dicts_are_filled() -> None:
    in_dict(
        "%d : Dict(str, Tensor) = prim::DictConstruct(%x, %a);  = aten::_set_item(%d, %y, %b); "
        " = aten::_set_item(%d, %x, %b); return (%d)",
        '%p : str = prim::Constant[value="x"](); %q : str = prim::Constant[value="y"](); '
        "%d : Dict(str, Tensor) = prim::DictConstruct(%p, %b, %q, %b); return (%d)",
    )


def test_dicts_are_read() -> None:
    in_dict(
        "%d : Dict(str, Tensor) = prim::DictConstruct(%x, %a, %y, %b); %r : Tensor = aten::__getitem__(%d, %y); "
        "%s : bool = aten::__contains__(%d, %x); %n : int = aten::len(%d); %o : Tensor? = aten::get(%d, %x); "
        "%p : Tensor = aten::pop(%d, %y); %m : int = aten::len(%d); return (%r, %s, %n, %o, %p, %m)",
        "%s : bool = prim::Constant[value=1](); %n : int = prim::Constant[value=2](); "
        "%m : int = prim::Constant[value=1](); return (%b, %s, %n, %a, %b, %m)",
    )


def test_keys_values_and_items_are_lists() -> None:
    in_dict(
        "%d : Dict(str, Tensor) = prim::DictConstruct(%x, %a, %y, %b); %r : str[] = aten::keys(%d); "
        "%s : Tensor[] = aten::values(%d); %i : (str, Tensor)[] = aten::items(%d); return (%r, %s, %i)",
        '%p : str = prim::Constant[value="x"](); %q : str = prim::Constant[value="y"](); '
        "%r : str[] = prim::ListConstruct(%p, %q); %s : Tensor[] = prim::ListConstruct(%a, %b); "
        '%t : str = prim::Constant[value="x"](); %u : (str, Tensor) = prim::TupleConstruct(%t, %a); '
        '%v : str = prim::Constant[value="y"](); %w : (str, Tensor) = prim::TupleConstruct(%v, %b); '
        "%i : (str, Tensor)[] = prim::ListConstruct(%u, %w); return (%r, %s, %i)",
    )


def test_an_empty_dict_is_made_and_filled() -> None:
    in_dict(
        "%d : Dict(str, Tensor) = aten::dict();  = aten::_set_item(%d, %x, %a); return (%d)",
        '%p : str = prim::Constant[value="x"](); %d : Dict(str, Tensor) = prim::DictConstruct(%p, %a); return (%d)',
    )


# ------------------------------------------------------------------------------------------------------- what stays


@pytest.mark.parametrize(
    "lines",
    [
        # The index is not known, or there is no such element.
        "%r : Tensor = aten::__getitem__(%l, %n)",
        "%r : Tensor = aten::__getitem__(%l, %far)",
        "%r : Tensor[] = aten::_set_item(%l, %n, %a)",
        "%e : Tensor[] = prim::ListConstruct(); %r : Tensor = aten::pop(%e, %zero)",
        # Lists from elsewhere.
        "%r : Tensor[] = aten::append(%given, %a)",
        " = aten::extend(%l, %given)",
        # Others keep the list.
        "%t : (Tensor[], int) = prim::TupleConstruct(%l, %n); %r : Tensor[] = aten::append(%l, %a)",
        "%o : Tensor[][] = prim::ListConstruct(%l); %r : Tensor[] = aten::append(%l, %a); "
        "%s : Tensor = custom::look(%o)",
        "%q : Tensor = custom::keep(%l); %r : Tensor[] = aten::append(%l, %a)",
        # Longer than anybody would want to read.
        "%r : Tensor[] = aten::mul(%l, %many)",
    ],
)
def test_what_stays(lines: str) -> None:
    body = "".join(f"          {line}\n" for line in lines.split("; "))
    text = f"""
        graph(%a : Tensor, %n : int, %given : Tensor[]):
          %zero : int = prim::Constant[value=0]()
          %far : int = prim::Constant[value=5]()
          %many : int = prim::Constant[value={MAX_ELEMENTS + 1}]()
          %l : Tensor[] = prim::ListConstruct(%a)
{body}          return (%l)"""
    check(text, text)


def test_a_change_in_a_branch_stays() -> None:
    text = """
        graph(%a : Tensor, %c : bool):
          %l : Tensor[] = prim::ListConstruct(%a)
           = prim::If(%c)
            block0():
              %m : Tensor[] = aten::append(%l, %a)
              -> ()
            block1():
              -> ()
          %n : int = aten::len(%l)
          return (%n)"""
    check(text, text, [FLOATS, True], [FLOATS, False])


def test_a_list_that_is_kept_is_made_before_and_changed_after() -> None:
    check(
        """
        graph(%a : Tensor, %b : Tensor):
          %l : Tensor[] = prim::ListConstruct(%a)
          %m : Tensor[] = aten::append(%l, %b)
          %t : (Tensor[], Tensor) = prim::TupleConstruct(%l, %a)
          %n : Tensor[] = aten::append(%l, %a)
          return (%t)""",
        """
        graph(%a : Tensor, %b : Tensor):
          %m : Tensor[] = prim::ListConstruct(%a, %b)
          %t : (Tensor[], Tensor) = prim::TupleConstruct(%m, %a)
          %n : Tensor[] = aten::append(%m, %a)
          return (%t)""",
        [FLOATS, FLOATS + 1],
    )


def test_a_list_that_others_hold_but_never_change_is_read() -> None:
    check(
        """
        graph(%a : Tensor, %b : Tensor):
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct(%a, %b)
          %t : (Tensor[], Tensor) = prim::TupleConstruct(%l, %a)
          %r : Tensor = aten::__getitem__(%l, %zero)
          return (%t, %r)""",
        """
        graph(%a : Tensor, %b : Tensor):
          %zero : int = prim::Constant[value=0]()
          %l : Tensor[] = prim::ListConstruct(%a, %b)
          %t : (Tensor[], Tensor) = prim::TupleConstruct(%l, %a)
          return (%t, %a)""",
        [FLOATS, FLOATS + 1],
    )


def test_fuel_ends_between_two_changes() -> None:
    text = """
        graph(%a : Tensor):
          %l : Tensor[] = prim::ListConstruct(%a)
          %m : Tensor[] = aten::append(%l, %a)
          %n : Tensor[] = aten::append(%m, %a)
          return (%n)"""
    with config(pass_limit=changes_made() + 1):
        check(
            text,
            """
        graph(%a : Tensor):
          %m : Tensor[] = prim::ListConstruct(%a, %a)
          %n : Tensor[] = aten::append(%m, %a)
          return (%n)""",
        )


# ------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_the_pass_keeps_meaning(program: Program) -> None:
    assert_keeps_meaning(lower_containers, program)


def all_three(graph: Graph) -> bool:
    """Tuples, containers and tensors, until nothing changes."""
    rounds = -1
    changed = True
    while changed:
        changed = False
        for each in (lower_tuples, lower_containers, remove_tensor_mutation):
            changed |= each(graph)
        rounds += 1
    return rounds > 0


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_size=20))
def test_together_the_passes_keep_meaning(program: Program) -> None:
    assert_keeps_meaning(all_three, program, sharing=False)
