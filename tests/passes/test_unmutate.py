"""In-place operators made functional, and when they stay."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.types import TensorType
from gpujit.ops import table
from gpujit.passes.analysis.effects import entry_of, resolve_node
from gpujit.passes.base import changes_made
from gpujit.passes.nodes import insert_op
from gpujit.passes.unmutate.main import remove_tensor_mutation
from gpujit.passes.unmutate.operators import pure_op
from gpujit.support.config import config
from gpujit.testing import check_pass
from tests.passes.peephole_help import run
from tests.passes.random_graphs import Program, assert_keeps_meaning, programs

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def check(before: str, after: str, *samples: Any) -> Graph:
    return check_pass(remove_tensor_mutation, before, after, samples or None, run)


def check_stays(text: str, reason: str, caplog: pytest.LogCaptureFixture, *samples: Any) -> None:
    with caplog.at_level("DEBUG", logger="gpujit.passes"):
        check(text, text, *samples)
    assert reason in caplog.text


def in_place(graph: Graph) -> list[str]:
    """Names of operators that write tensors."""
    ops = [(node.kind, entry_of(node)) for node in graph.all_nodes()]
    return [kind for kind, op in ops if op is not None and op.schema.is_mutable]


# ----------------------------------------------------------------------------------------------------- whole tensors


def test_an_activation_in_place() -> None:
    check(
        """
        graph(%x : Tensor):
          %y : Tensor = aten::neg(%x)
          %z : Tensor = aten::relu_(%y)
          %s : Tensor = aten::exp(%y)
          return (%z, %s)""",
        """
        graph(%x : Tensor):
          %y : Tensor = aten::neg(%x)
          %z : Tensor = aten::relu(%y)
          %s : Tensor = aten::exp(%z)
          return (%z, %s)""",
        [FLOATS],
    )


def test_a_sum_of_unknown_dtype_is_cast_back() -> None:
    check(
        """
        graph(%x : Tensor, %o : Tensor):
          %one : int = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %z : Tensor = aten::add_(%y, %o, %one)
          return (%y)""",
        """
        graph(%x : Tensor, %o : Tensor):
          %one : int = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %z : Tensor = aten::add(%y, %o, %one)
          %w : Tensor = aten::type_as(%z, %y)
          return (%w)""",
        [FLOATS, FLOATS * 2],
        [FLOATS, np.float64(0.1) + np.zeros(3)],
        [FLOATS.astype(np.float16), FLOATS],
    )


def test_a_sum_of_known_dtypes_is_cast_only_where_it_promotes() -> None:
    check(
        """
        graph(%x : Half(2, 3), %o : Float(2, 3), %p : Half(2, 3)):
          %one : int = prim::Constant[value=1]()
          %y : Half(2, 3) = aten::neg(%x)
          %z : Half(2, 3) = aten::add_(%y, %o, %one)
          %w : Half(2, 3) = aten::add_(%y, %p, %one)
          return (%w)""",
        """
        graph(%x : Half(2, 3), %o : Float(2, 3), %p : Half(2, 3)):
          %one : int = prim::Constant[value=1]()
          %y : Half(2, 3) = aten::neg(%x)
          %z : Tensor(2, 3) = aten::add(%y, %o, %one)
          %dtype : int = prim::Constant[value=5]()
          %non_blocking : bool = prim::Constant[value=0]()
          %copy : bool = prim::Constant[value=0]()
          %format : NoneType = prim::Constant()
          %c : Half(2, 3) = aten::to(%z, %dtype, %non_blocking, %copy, %format)
          %w : Half(2, 3) = aten::add(%c, %p, %one)
          return (%w)""",
        [FLOATS.astype(np.float16), FLOATS, FLOATS.astype(np.float16)],
    )


def test_a_comparison_in_place_keeps_the_dtype() -> None:
    check(
        """
        graph(%x : Float(2, 3)):
          %zero : int = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Float(2, 3) = aten::gt_(%y, %zero)
          return (%z)""",
        """
        graph(%x : Float(2, 3)):
          %zero : int = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Tensor(2, 3) = aten::gt(%y, %zero)
          %dtype : int = prim::Constant[value=6]()
          %non_blocking : bool = prim::Constant[value=0]()
          %copy : bool = prim::Constant[value=0]()
          %format : NoneType = prim::Constant()
          %c : Float(2, 3) = aten::to(%z, %dtype, %non_blocking, %copy, %format)
          return (%c)""",
        [FLOATS],
    )


def test_operators_that_are_declared_in_place_only() -> None:
    check(
        """
        graph(%x : Tensor, %m : Tensor, %i : Tensor):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %a : Tensor = aten::masked_fill_(%y, %m, %zero)
          %l : Tensor[] = prim::ListConstruct(%i)
          %b : Tensor = aten::index_put_(%y, %l, %x, %no)
          %c : Tensor = aten::zero_(%y)
          %d : Tensor = aten::detach_(%y)
          return (%a, %d)""",
        """
        graph(%x : Tensor, %m : Tensor, %i : Tensor):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %a : Tensor = aten::masked_fill(%y, %m, %zero)
          %l : Tensor[] = prim::ListConstruct(%i)
          %b : Tensor = aten::index_put(%a, %l, %x, %no)
          %c : Tensor = aten::zero(%b)
          %d : Tensor = aten::detach(%c)
          return (%d, %d)""",
        [FLOATS, FLOATS > 0, np.array([1, 0])],
    )


def test_an_out_form() -> None:
    check(
        """
        graph(%x : Float(2, 3)):
          %one : int = prim::Constant[value=1]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Float(2, 3) = aten::add(%x, %x, %one, %y)
          return (%y)""",
        """
        graph(%x : Float(2, 3)):
          %one : int = prim::Constant[value=1]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Float(2, 3) = aten::add(%x, %x, %one)
          return (%z)""",
        [FLOATS],
    )


def test_a_copy_of_another_fresh_tensor_is_that_tensor() -> None:
    check(
        """
        graph(%x : Float(2, 3)):
          %no : bool = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %e : Float(2, 3) = aten::exp(%x)
          %z : Float(2, 3) = aten::copy_(%y, %e, %no)
          return (%y)""",
        """
        graph(%x : Float(2, 3)):
          %no : bool = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %e : Float(2, 3) = aten::exp(%x)
          return (%e)""",
        [FLOATS],
    )


def test_a_copy_of_what_others_see_is_a_copy() -> None:
    text = """
        graph(%x : Float(2, 3), %l : Tensor[]):
          %no : bool = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %e : Float(2, 3) = aten::exp(%x)
          %z : Float(2, 3) = aten::copy_(%y, %e, %no)
          %m : Tensor[] = aten::append(%l, %e)
          return (%z)"""
    check(text, text.replace("copy_", "copy"), [FLOATS, []])


def test_a_copy_of_an_input_is_a_copy() -> None:
    check(
        """
        graph(%x : Float(2, 3)):
          %no : bool = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Float(2, 3) = aten::copy_(%y, %x, %no)
          return (%y)""",
        """
        graph(%x : Float(2, 3)):
          %no : bool = prim::Constant[value=0]()
          %y : Float(2, 3) = aten::neg(%x)
          %z : Float(2, 3) = aten::copy(%y, %x, %no)
          return (%z)""",
        [FLOATS],
    )


def test_another_shape_in_place() -> None:
    check(
        """
        graph(%x : Tensor):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %a : Tensor = aten::unsqueeze_(%y, %zero)
          %s : int[] = aten::size(%y)
          %b : Tensor = aten::relu_(%y)
          %c : Tensor = aten::squeeze_(%a)
          %d : Tensor = aten::t_(%y)
          return (%s, %d)""",
        """
        graph(%x : Tensor):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %a : Tensor = aten::unsqueeze(%y, %zero)
          %s : int[] = aten::size(%a)
          %b : Tensor = aten::relu(%a)
          %c : Tensor = aten::squeeze(%b)
          %d : Tensor = aten::t(%c)
          return (%s, %d)""",
        [FLOATS],
    )


# ------------------------------------------------------------------------------------------------------ control flow


def test_a_write_in_a_branch_is_handed_out() -> None:
    check(
        """
        graph(%x : Tensor, %c : bool):
          %y : Tensor = aten::neg(%x)
           = prim::If(%c)
            block0():
              %z : Tensor = aten::relu_(%y)
              -> ()
            block1():
              -> ()
          return (%y)""",
        """
        graph(%x : Tensor, %c : bool):
          %y : Tensor = aten::neg(%x)
          %o : Tensor = prim::If(%c)
            block0():
              %z : Tensor = aten::relu(%y)
              -> (%z)
            block1():
              -> (%y)
          return (%o)""",
        [FLOATS, True],
        [FLOATS, False],
    )


def test_a_write_in_a_loop_is_carried() -> None:
    check(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %row : Tensor = aten::select(%y, %zero, %zero)
           = prim::Loop(%n, %true)
            block0(%i : int):
              %s : Tensor = aten::exp(%row)
              %z : Tensor = aten::add_(%y, %i, %i)
              -> (%true)
          return (%y, %row)""",
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %row : Tensor = aten::select(%y, %zero, %zero)
          %o : Tensor = prim::Loop(%n, %true, %y)
            block0(%i : int, %p : Tensor):
              %again : Tensor = aten::select(%p, %zero, %zero)
              %s : Tensor = aten::exp(%again)
              %z : Tensor = aten::add(%p, %i, %i)
              -> (%true, %z)
          %last : Tensor = aten::select(%o, %zero, %zero)
          return (%o, %last)""",
        [FLOATS, 3],
        [FLOATS, 0],
    )


def test_a_carried_tensor_that_nobody_else_reads_any_more() -> None:
    check(
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %o : Tensor = prim::Loop(%n, %true, %y)
            block0(%i : int, %p : Tensor):
              %z : Tensor = aten::add_(%p, %i, %i)
              -> (%true, %z)
          %r : Tensor = aten::relu_(%o)
          return (%r)""",
        """
        graph(%x : Tensor, %n : int):
          %true : bool = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %o : Tensor = prim::Loop(%n, %true, %y)
            block0(%i : int, %p : Tensor):
              %z : Tensor = aten::add(%p, %i, %i)
              -> (%true, %z)
          %r : Tensor = aten::relu(%o)
          return (%r)""",
        [FLOATS, 2],
    )


def test_either_of_two_tensors_is_written(caplog: pytest.LogCaptureFixture) -> None:
    text = """
        graph(%x : Tensor, %c : bool):
          %a : Tensor = aten::neg(%x)
          %b : Tensor = aten::exp(%x)
          %o : Tensor = prim::If(%c)
            block0():
              -> (%a)
            block1():
              -> (%b)
          %r : Tensor = aten::relu_(%o)
          return (%r{})"""
    check(text.format(""), text.format("").replace("relu_", "relu"), [FLOATS, True], [FLOATS, False])
    check_stays(text.format(", %a"), "read later", caplog, [FLOATS, True], [FLOATS, False])


def test_what_may_be_a_copy_is_written(caplog: pytest.LogCaptureFixture) -> None:
    """After reshape, which may copy, only the result may be read."""
    text = """
        graph(%x : Tensor, %n : int[]):
          %a : Tensor = aten::neg(%x)
          %o : Tensor = aten::reshape(%a, %n)
          %r : Tensor = aten::relu_(%o)
          {}return (%r{})"""
    check(text.format("", ""), text.format("", "").replace("relu_", "relu"), [FLOATS, [3, 2]])
    check_stays(text.format("", ", %a"), "read later", caplog, [FLOATS, [3, 2]])
    sizes = text.format("%s : int[] = aten::size(%a)\n          ", ", %s")
    check(sizes, sizes.replace("relu_", "relu"), [FLOATS, [3, 2]])


# ------------------------------------------------------------------------------------------------------ what stays


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("%r : Tensor = aten::relu_(%x)", "others see the tensor"),
        ("%v : Tensor = aten::t(%x)\n%r : Tensor = aten::relu_(%v)", "others see the tensor"),
        ("%l : Tensor[] = prim::ListConstruct(%y)\n%e : Tensor = aten::__getitem__(%l, %zero)\n"
         "%r : Tensor = aten::relu_(%y)\n%s : Tensor = aten::exp(%e)", "after others may see it"),
        ("%l : Tensor[] = prim::ListConstruct(%y)\n%r : Tensor = aten::relu_(%y)\n%m : Tensor[] = aten::append(%l, %x)",
         "after others may see it"),
        ("%l : Tensor[] = prim::ListConstruct()\n%m : Tensor[] = prim::ListConstruct(%y)\n = aten::extend(%l, %m)\n"
         "%r : Tensor = aten::relu_(%y)\n%e : Tensor = aten::__getitem__(%l, %zero)", "after others may see it"),
        ("%r : Tensor = custom::keep(%y)\n%s : Tensor = aten::relu_(%y)", "after others may see it"),
        ("%e : Tensor = aten::expand(%y, %n, %no)\n%r : Tensor = aten::relu_(%e)", "writes through aten::expand"),
        ("%r : Tensor = aten::normal_(%y, %half, %half, %none)", "no functional form"),
        ("%v : Tensor = aten::neg(%y)\n%w : Tensor = aten::detach(%y)\n%r : Tensor = aten::t_(%y)", "other names"),
        ("%r : Tensor = aten::set_(%y, %x)", "no functional form"),
        ("%r : Tensor = aten::fill_diagonal_(%y, %zero, %no)", "no functional form"),
    ],
)  # fmt: skip
def test_what_stays(lines: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    body = "\n          ".join(lines.split("\n"))
    check_stays(
        f"""
        graph(%x : Tensor, %n : int[]):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %half : float = prim::Constant[value=0.5]()
          %y : Tensor = aten::neg(%x)
          {body}
          return (%r)""",
        reason,
        caplog,
    )


@pytest.mark.parametrize(
    ("other", "reason"),
    [("Float(4, 2, 3)", "does not fit"), ("Double(2, 3)", "is not cast"), ("Float(4)", "it fails")],
)
def test_a_write_that_fails_stays(other: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    target = "Long(2, 3)" if "Double" in other else "Float(2, 3)"
    check_stays(
        f"""
        graph(%x : {target}, %o : {other}):
          %one : int = prim::Constant[value=1]()
          %y : {target} = aten::neg(%x)
          %r : {target} = aten::add_(%y, %o, %one)
          return (%r)""",
        reason,
        caplog,
    )


def test_writes_before_others_see_the_tensor_are_made_functional() -> None:
    check(
        """
        graph(%x : Tensor, %l : Tensor[]):
          %y : Tensor = aten::neg(%x)
          %r : Tensor = aten::relu_(%y)
          %m : Tensor[] = aten::append(%l, %y)
          return (%y)""",
        """
        graph(%x : Tensor, %l : Tensor[]):
          %y : Tensor = aten::neg(%x)
          %r : Tensor = aten::relu(%y)
          %m : Tensor[] = aten::append(%l, %r)
          return (%r)""",
        [FLOATS, []],
    )


def test_others_may_write_what_they_see(caplog: pytest.LogCaptureFixture) -> None:
    check_stays(
        """
        graph(%x : Tensor, %l : Tensor[]):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %r : Tensor = aten::relu_(%y)
          %m : Tensor[] = aten::append(%l, %y)
          %e : Tensor = aten::__getitem__(%l, %zero)
          %w : Tensor = aten::exp_(%e)
          return (%y)""",
        "others may write it",
        caplog,
        [FLOATS, []],
    )


def test_fuel_ends_between_two_tensors() -> None:
    text = """
        graph(%x : Tensor):
          %a : Tensor = aten::neg(%x)
          %b : Tensor = aten::relu_(%a)
          %c : Tensor = aten::exp(%x)
          %d : Tensor = aten::relu_(%c)
          return (%a, %c)"""
    graph = parse_graph(textwrap.dedent(text).strip(), resolve=resolve_node)
    with config(pass_limit=changes_made() + 1):
        assert remove_tensor_mutation(graph)
        assert in_place(graph) == ["aten::relu_"]
        assert not remove_tensor_mutation(graph)
    assert remove_tensor_mutation(graph)
    assert not in_place(graph)


# --------------------------------------------------------------------------------------------------- all operators


def test_every_derived_in_place_form_has_a_functional_one() -> None:
    missing = [
        op.full_name
        for op in table.registered()
        if op.form == "inplace" and op.derived_from is not None and pure_op(op) is not op.derived_from
    ]
    assert not missing


@pytest.mark.parametrize(
    ("name", "pure"),
    [
        ("aten::add_.Tensor", "aten::add.Tensor"),
        ("aten::copy_", "aten::copy"),
        ("aten::index_put_.hacked_twin", "aten::index_put.hacked_twin"),
        ("aten::scatter_.value_reduce", "aten::scatter.value_reduce"),
        ("aten::index_add_", "aten::index_add"),
        ("aten::dropout_", "aten::dropout"),
        ("aten::sort.values", "aten::sort"),
        ("aten::topk.values", "aten::topk"),
        ("aten::add.out", "aten::add.Tensor"),
        ("aten::uniform_", "aten::uniform"),
        ("aten::resize_", None),
        ("aten::unsqueeze_", "aten::unsqueeze"),
        ("aten::_native_batch_norm_legit", None),
    ],
)
def test_functional_forms(name: str, pure: str | None) -> None:
    op = table.by_full_name(name)
    assert op is not None
    found = pure_op(op)
    assert (None if found is None else found.full_name) == pure


# -------------------------------------------------------------------------------------------------------- properties


def quick(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


MAY_COPY = ("aten::reshape", "aten::flatten", "aten::contiguous", "aten::expand")


@quick(60)
@given(programs(max_size=20))
def test_the_pass_keeps_meaning(program: Program) -> None:
    # Two results may have been one tensor; being equal is what counts.
    assert_keeps_meaning(remove_tensor_mutation, program, sharing=False)


@quick(25)
@given(programs(max_size=20, lists=False, control=False))
def test_nothing_in_place_is_left_where_all_tensors_are_new(program: Program) -> None:
    assume(not any(node.kind in MAY_COPY for node in program.graph.all_nodes()))
    copy_inputs(program.graph)
    graph = assert_keeps_meaning(remove_tensor_mutation, program, sharing=False)
    assert not in_place(graph)


def copy_inputs(graph: Graph) -> None:
    """Let the graph work on copies of its inputs."""
    first = next(graph.nodes, graph.block.return_node)
    for value in graph.inputs:
        if isinstance(value.type, TensorType):
            uses = list(value.uses)
            copied = insert_op(first, "aten::clone", (value,), like=first)
            for use in uses:
                use.node.set_input(use.index, copied)
