# ruff: noqa: E501
"""Graphs before and after: what becomes one kernel, what does not, and in which order all of it runs."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.fuser.fuse import fuse, program_of
from gpujit.ir.printer import print_graph
from tests.fuser.help import array, check, fuse_free, groups_of, operators_in, read, run, shape_of_fusion

ONE = "  %one : int = prim::Constant[value=1]()\n  %zero : int = prim::Constant[value=0]()\n"
FLAGS = "  %no : bool = prim::Constant[value=0]()\n  %yes : bool = prim::Constant[value=1]()\n"
NONE = "  %none : NoneType = prim::Constant()\n"


def test_a_chain_becomes_one_group_with_its_operators_inside() -> None:
    graph = check(
        f"graph(%x : Float(3, 4), %y : Float(4)):\n{ONE}"
        "  %a = aten::add(%x, %y, %one)\n  %b = aten::mul(%a, %x)\n  %c = aten::sigmoid(%b)\n  return (%c)",
        array(3, 4),
        array(4),
    )
    wanted = """\
        graph(%x : Float(3, 4),
              %y : Float(4)):
          %c : Float(3, 4) = prim::FusionGroup_0(%x, %y)
          return (%c)
        with prim::FusionGroup_0 = graph(%x : Float(3, 4),
              %y : Float(4)):
          %one : int = prim::Constant[value=1]()
          %a : Float(3, 4) = aten::add(%x, %y, %one)
          %b : Float(3, 4) = aten::mul(%a, %x)
          %c : Float(3, 4) = aten::sigmoid(%b)
          return (%c)
        """
    assert print_graph(graph) == textwrap.dedent(wanted)
    assert fuse(graph).programs == {}


def test_a_library_operator_separates_groups() -> None:
    graph = check(
        "graph(%x : Float(4, 4)):\n  %a = aten::neg(%x)\n  %b = aten::exp(%a)\n  %m = aten::mm(%b, %b)\n"
        "  %c = aten::tanh(%m)\n  %d = aten::mul(%c, %b)\n  return (%d)",
        array(4, 4),
        groups=2,
    )
    assert shape_of_fusion(graph) == [["neg", "exp"], "mm", ["tanh", "mul"]]


def test_what_leaves_a_group_and_comes_back_is_not_in_it() -> None:
    graph = read(
        "graph(%x : Float(4, 4)):\n  %a = aten::exp(%x)\n  %m = aten::mm(%a, %a)\n  %b = aten::mul(%a, %m)\n  return (%b)"
    )
    found = fuse_free(graph)
    assert shape_of_fusion(graph) == [["exp"], "mm", ["mul"]]
    reasons = {(r.node.kind, r.reason) for r in found.refusals}
    assert ("aten::mul", "not joined with aten::exp: a value leaves the group and comes back into it") in reasons
    assert ("aten::mm", "aten::mm runs as a library operator") in reasons
    assert len(reasons) == len(found.refusals)


def test_several_results_and_siblings() -> None:
    graph = check(
        "graph(%x : Float(6)):\n  %a = aten::exp(%x)\n  %b = aten::neg(%a)\n  %c = aten::relu(%x)\n  return (%a, %b, %c)",
        array(6),
    )
    assert sorted(operators_in(groups_of(graph)[0])) == ["exp", "neg", "relu"]


def test_small_operators_that_share_nothing_run_together() -> None:
    check(
        "graph(%x : Float(6), %y : Float(6)):\n  %a = aten::exp(%x)\n  %b = aten::neg(%y)\n  return (%a, %b)",
        array(6),
        array(6, seed=1),
    )


def test_large_ones_do_not() -> None:
    n = 100_000
    check(
        f"graph(%x : Float({n}), %y : Float({n})):\n  %a = aten::exp(%x)\n  %b = aten::exp(%y)\n  return (%a, %b)",
        array(n),
        array(n),
        groups=2,
    )


def test_one_cheap_operator_stays_alone() -> None:
    graph = read("graph(%x : Float(6)):\n  %a = aten::neg(%x)\n  return (%a)")
    found = fuse(graph)
    assert shape_of_fusion(graph) == ["neg"]
    assert [r.reason.startswith("a kernel would take") for r in found.refusals] == [True]


def test_views_between_are_index_maps() -> None:
    graph = check(
        f"graph(%x : Float(2, 6)):\n{ONE}  %a = aten::neg(%x)\n  %t = aten::transpose(%a, %zero, %one)\n"
        "  %b = aten::exp(%t)\n  return (%b)",
        array(2, 6),
    )
    assert operators_in(groups_of(graph)[0]) == ["neg", "transpose", "exp"]


@pytest.mark.parametrize("heads", [2, 3])
def test_a_split_dim_needs_no_division(heads: int) -> None:
    width = 4 * heads
    text = f"""graph(%x : Float(2, 5, {width})):
{ONE}  %two : int = prim::Constant[value=2]()
  %a = aten::neg(%x)
  %shape : int[] = prim::Constant[value=[2, 5, {heads}, 4]]()
  %v = aten::view(%a, %shape)
  %t = aten::transpose(%v, %one, %two)
  %b = aten::exp(%t)
  return (%a, %b)"""
    graph = check(text, array(2, 5, width))
    assert program_of(groups_of(graph)[0]).divisions == 0


def test_a_group_keeps_its_place_among_writes() -> None:
    text = f"""graph(%x : Float(4), %y : Float(4)):
{ONE}  %a = aten::exp(%x)
  %b = aten::neg(%a)
  %w = aten::add_(%y, %b, %one)
  %c = aten::mul(%y, %b)
  %w2 = aten::add_(%y, %c, %one)
  %d = aten::tanh(%b)
  %e = aten::neg(%d)
  return (%y, %e)"""
    graph = check(text, array(4), array(4, seed=3), groups=1)
    # The inputs may share memory, so what reads them stays where it is.
    assert shape_of_fusion(graph) == ["exp", ["neg", "tanh", "neg"], "add_", "mul", "add_"]


def test_a_list_of_what_is_written_is_not_read_later() -> None:
    text = f"""graph(%x : Float(4), %y : Float(4)):
{ONE}  %l : Tensor[] = prim::ListConstruct(%x, %y)
  %c = aten::cat(%l, %zero)
  %w = aten::add_(%y, %x, %one)
  %e = aten::neg(%c)
  %f = aten::exp(%e)
  return (%f, %y)"""
    graph = check(text, array(4), array(4, seed=3))
    assert shape_of_fusion(graph)[0] == "cat"


def test_blocks_are_fused_too() -> None:
    text = """graph(%x : Float(4), %c : bool):
  %r : Float(4) = prim::If(%c)
    block0():
      %a : Float(4) = aten::exp(%x)
      %b : Float(4) = aten::neg(%a)
      -> (%b)
    block1():
      -> (%x)
  return (%r)"""
    for flag in (True, False):
        check(text, array(4), flag)


def test_rows_and_what_is_made_of_them() -> None:
    text = f"""graph(%x : Float(3, 5), %w : Float(5)):
{ONE}{FLAGS}{NONE}  %last : int = prim::Constant[value=-1]()
  %d : int[] = prim::Constant[value=[-1]]()
  %m = aten::mean(%x, %d, %yes, %none)
  %c = aten::sub(%x, %m, %one)
  %p = aten::mul(%c, %c)
  %v = aten::mean(%p, %d, %no, %none)
  %s = aten::softmax(%c, %last, %none)
  %y = aten::mul(%s, %w)
  return (%y, %v)"""
    check(text, array(3, 5), array(5))


def test_two_reductions_of_other_dims_are_two_groups() -> None:
    text = f"""graph(%x : Float(3, 5)):
{FLAGS}{NONE}  %d0 : int[] = prim::Constant[value=[0]]()
  %d1 : int[] = prim::Constant[value=[1]]()
  %e = aten::exp(%x)
  %a = aten::sum(%e, %d0, %no, %none)
  %b = aten::sum(%e, %d1, %no, %none)
  return (%a, %b)"""
    graph = read(text)
    found = fuse_free(graph)
    assert len(groups_of(graph)) == 2
    assert any("are not the group's rows" in r.reason for r in found.refusals)
    np.testing.assert_allclose(run(graph, found, [array(3, 5)])[1], np.exp(array(3, 5)).sum(1), rtol=1e-5)


def test_argmax_of_turned_rows_counts_in_their_own_order() -> None:
    text = f"""graph(%x : Float(3, 4)):
{ONE}{FLAGS}{NONE}  %a = aten::neg(%x)
  %m = aten::max(%a)
  %t = aten::transpose(%a, %zero, %one)
  %i = aten::argmax(%t, %none, %no)
  %b = aten::sub(%a, %m, %one)
  return (%i, %b)"""
    graph = read(text)
    found = fuse_free(graph)
    x = array(3, 4)
    index, _ = run(graph, found, [x])
    assert index == np.argmax(-x.T)


def test_results_of_one_node() -> None:
    text = f"""graph(%x : Float(3, 5)):
{ONE}{FLAGS}  %e = aten::exp(%x)
  %m, %i = aten::max(%e, %one, %no)
  %n = aten::neg(%m)
  return (%n, %i)"""
    check(text, array(3, 5))


def test_a_dear_value_is_not_computed_for_everyone_who_reads_it() -> None:
    n = 300
    text = f"""graph(%x : Float({n}), %y : Float({n}, {n})):
{ONE}  %a = aten::erf(%x)
  %b = aten::exp(%a)
  %c = aten::lgamma(%b)
  %d = aten::add(%y, %c, %one)
  %e = aten::neg(%d)
  return (%e)"""
    graph = read(text)
    found = fuse(graph)
    assert [operators_in(n) for n in groups_of(graph)] == [["erf", "exp", "lgamma"], ["add", "neg"]]
    assert any("would be computed" in r.reason for r in found.refusals)


@pytest.mark.parametrize("dtype", ["Half", "BFloat16", "Double", "Long", "Int", "Bool"])
def test_dtypes(dtype: str) -> None:
    names = {"Half": "float16", "Double": "float64", "Long": "int64", "Int": "int32", "Bool": "bool"}
    x = array(3, 5, dtype=names[dtype]) if dtype in names else array(3, 5).astype("bfloat16")
    if dtype == "Bool":
        body = "  %a = aten::logical_not(%x)\n  %b = aten::bitwise_and(%a, %x)\n"
    else:
        body = "  %a = aten::mul(%x, %x)\n  %b = aten::add(%a, %x, %one)\n"
    check(f"graph(%x : {dtype}(3, 5)):\n{ONE}{body}  return (%b)", x)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1)])
def test_empty_and_0_dim(shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    check(
        f"graph(%x : Float({dims})):\n{ONE}  %a = aten::exp(%x)\n  %b = aten::add(%a, %x, %one)\n  return (%b)",
        array(*shape),
        groups=0 if 0 in shape else 1,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("graph(%x : Tensor):\n  %a = aten::neg(%x)\n  return (%a)", "the shape of %x : Tensor is not known"),
        ("graph(%x : Float(3)):\n  %a = aten::sort(%x)\n  return (%a)", None),
        ("graph(%x : Float(3)):\n  %n : NoneType = prim::Constant()\n  %a = aten::rand_like(%x, %n, %n, %n, %n, %n)\n  return (%a)", "aten::rand_like runs as a library operator"),
        ("graph(%x : Float(3)):\n  %a = aten::relu_(%x)\n  return (%a)", "aten::relu_ writes into its argument"),
        ("graph(%x : ComplexFloat(3)):\n  %a = aten::neg(%x)\n  return (%a)", "%x : ComplexFloat(3) has complex numbers, which kernels do not know"),
        ("graph(%x : Float()):\n  %n : NoneType = prim::Constant()\n  %a = aten::sum(%x, %n)\n  return (%a)", "aten::sum reduces a 0-dim tensor"),
        ("graph(%x : Float(3), %s : float):\n  %a = aten::mul(%x, %s)\n  return (%a)", "%s : float, an argument of the operator, is known only at run time"),
    ],
)  # fmt: skip
def test_reasons(text: str, reason: str | None) -> None:
    graph = read(text)
    found = fuse_free(graph)
    assert not found.programs
    if reason is not None:
        assert [r.reason for r in found.refusals] == [reason]


@pytest.mark.parametrize("end", ["%c = aten::contiguous(%t, %zero)", "%c = aten::reshape(%t, %s)"])
def test_a_copy_into_another_layout_is_how_the_result_is_stored(end: str) -> None:
    text = f"""graph(%x : Float(3, 4), %w : Float(12)):
{ONE}  %s : int[] = prim::Constant[value=[12]]()
  %a = aten::neg(%x)
  %b = aten::exp(%a)
  %t = aten::transpose(%b, %zero, %one)
  {end}
  %f = aten::reshape(%c, %s)
  %d = aten::dot(%f, %w)
  return (%d)"""
    graph = check(text, array(3, 4), array(12))
    name = end.partition("::")[2].partition("(")[0]
    rest = ["reshape", "dot"] if name == "contiguous" else ["dot"]
    inner = operators_in(groups_of(graph)[0])
    assert inner[:4] == ["neg", "exp", "transpose", name]
    assert [k for k in shape_of_fusion(graph) if isinstance(k, str)] in (rest, ["reshape", "dot"], ["dot"])


def test_a_view_that_copies_nothing_stays_outside() -> None:
    text = f"""graph(%x : Float(3, 4), %w : Float(3, 5)):
{ONE}  %a = aten::neg(%x)
  %b = aten::exp(%a)
  %t = aten::transpose(%b, %zero, %one)
  %d = aten::mm(%t, %w)
  return (%d)"""
    graph = check(text, array(3, 4), array(3, 5))
    assert shape_of_fusion(graph) == [["neg", "exp"], "transpose", "mm"]


def test_what_a_loop_makes_of_a_result_stays_in_the_loop() -> None:
    graph = check(
        f"graph(%x : Float(2, 3), %n : int, %y : Float(6)):\n{ONE}{FLAGS}"
        "  %six : int = prim::Constant[value=6]()\n  %all : int[] = prim::ListConstruct(%six)\n"
        "  %a : Float(2, 3) = aten::neg(%x)\n  %b : Float(2, 3) = aten::exp(%a)\n"
        "  %l : Float(6) = prim::Loop(%n, %yes, %y)\n    block0(%i : int, %c : Float(6)):\n"
        "      %d : Float(3, 2) = aten::transpose(%b, %zero, %one)\n      %e : Float(6) = aten::reshape(%d, %all)\n"
        "      -> (%yes, %e)\n  return (%l)",
        array(2, 3), 2, array(6),
    )  # fmt: skip
    assert shape_of_fusion(graph)[0] == ["neg", "exp"]
