"""Writes through views, and views that are read after a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpujit.ir import types as T
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ops import table
from gpujit.passes.analysis.effects import resolve_node
from gpujit.passes.unmutate.main import remove_tensor_mutation
from gpujit.passes.unmutate.views import UNPACK, VIEWS
from gpujit.testing import assert_same_values
from tests.passes import random_graphs
from tests.passes.peephole_help import run
from tests.passes.random_graphs import Known, Program, Scope, assert_keeps_meaning, fits_into
from tests.passes.test_unmutate import check, check_stays, in_place

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9

HEAD = """graph(%x : Tensor, %v : Tensor):
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %last : int = prim::Constant[value=-1]()
  %d012 : int[] = prim::ListConstruct(%zero, %one, %two)
  %d120 : int[] = prim::ListConstruct(%one, %two, %zero)
  %y : Tensor = aten::clone(%x, %none)
  %before : Tensor = aten::select(%y, %zero, %one)
"""
TAIL = """
  %f : Tensor = aten::mul_(%w, %two)
  %k : Tensor = aten::select(%w, %zero, %zero)
  %g : Tensor = aten::copy_(%k, %v, %no)
  return (%y, %before, %w)"""


def both(lines: str, *inputs: Any) -> Graph:
    """The graph made functional, which must give what the graph as it was does."""
    text = HEAD + "\n".join("  " + line for line in lines.split("; ")) + TAIL
    before, after = (parse_graph(text, resolve=resolve_node) for _ in range(2))
    assert remove_tensor_mutation(after)
    assert not in_place(after)
    assert_same_values(run(after, *inputs), run(before, *inputs))
    return after


@pytest.mark.parametrize(
    "lines",
    [
        "%w : Tensor = aten::select(%y, %one, %last)",
        "%w : Tensor = aten::slice(%y, %two, %one, %none, %two)",
        "%w : Tensor = aten::slice(%y, %one, %last, %none, %one)",
        "%w : Tensor = aten::narrow(%y, %two, %one, %two)",
        "%w : Tensor = aten::transpose(%y, %zero, %last)",
        "%w : Tensor = aten::swapaxes(%y, %zero, %one)",
        "%w : Tensor = aten::permute(%y, %d120)",
        "%w : Tensor = aten::movedim(%y, %zero, %two)",
        "%w : Tensor = aten::moveaxis(%y, %d012, %d120)",
        "%w : Tensor = aten::mT(%y)",
        "%w : Tensor = aten::numpy_T(%y)",
        "%w : Tensor = aten::unsqueeze(%y, %last)",
        "%u : Tensor = aten::unsqueeze(%y, %one); %w : Tensor = aten::squeeze(%u, %one)",
        "%u : Tensor = aten::unsqueeze(%y, %one); %w : Tensor = aten::squeeze(%u)",
        "%w : Tensor = aten::diagonal(%y, %one, %zero, %last)",
        "%m : int[] = prim::ListConstruct(%last, %two); %w : Tensor = aten::view(%y, %m)",
        "%m : int[] = prim::ListConstruct(%two, %last); %w : Tensor = aten::unflatten(%y, %two, %m)",
        "%w : Tensor = aten::view_as(%y, %x)",
        "%w : Tensor = aten::alias(%y)",
        "%w : Tensor = aten::detach(%y)",
        "%u : Tensor = aten::select(%y, %zero, %one); %t : Tensor = aten::t(%u); "
        "%w : Tensor = aten::slice(%t, %zero, %one, %none, %one)",
        "%l : Tensor[] = aten::chunk(%y, %two, %last); %w : Tensor, %o : Tensor = prim::ListUnpack(%l)",
        "%l : Tensor[] = aten::split(%y, %two, %two); %o : Tensor, %w : Tensor = prim::ListUnpack(%l)",
        "%l : Tensor[] = aten::unbind(%y, %zero); %o : Tensor, %w : Tensor = prim::ListUnpack(%l)",
        "%m : int[] = prim::ListConstruct(%one, %two); %l : Tensor[] = aten::split_with_sizes(%y, %m, %one); "
        "%o : Tensor, %w : Tensor = prim::ListUnpack(%l)",
        "%l : Tensor[] = aten::tensor_split(%y, %two, %two); %o : Tensor, %w : Tensor = prim::ListUnpack(%l)",
    ],
)
def test_what_is_written_through_a_view(lines: str) -> None:
    both(lines, CUBE, np.float32(7) * np.ones((), np.float32))


def test_a_row_is_written_and_an_older_view_read() -> None:
    check(
        """
        graph(%x : Tensor, %v : Tensor):
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %no : bool = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %t : Tensor = aten::t(%y)
          %row : Tensor = aten::select(%y, %zero, %one)
          %z : Tensor = aten::copy_(%row, %v, %no)
          %r : Tensor = aten::exp(%t)
          return (%r, %z)""",
        """
        graph(%x : Tensor, %v : Tensor):
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %no : bool = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %t : Tensor = aten::t(%y)
          %row : Tensor = aten::select(%y, %zero, %one)
          %z : Tensor = aten::copy(%row, %v, %no)
          %w : Tensor = aten::select_scatter(%y, %z, %zero, %one)
          %again : Tensor = aten::t(%w)
          %r : Tensor = aten::exp(%again)
          return (%r, %z)""",
        [FLOATS, np.ones(3, np.float32)],
    )


def test_window_masks() -> None:
    """``mask[:, a:b, :] = i`` for several parts, as shifted windows number them."""
    check(
        """
        graph(%n : int):
          %none : NoneType = prim::Constant()
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %size : int[] = prim::ListConstruct(%two, %n)
          %mask : Tensor = aten::zeros(%size, %none, %none, %none, %none)
          %a : Tensor = aten::slice(%mask, %zero, %zero, %one, %one)
          %b : Tensor = aten::slice(%a, %one, %zero, %two, %one)
          %c : Tensor = aten::fill_(%b, %one)
          %d : Tensor = aten::slice(%mask, %zero, %one, %none, %one)
          %e : Tensor = aten::fill_(%d, %two)
          return (%mask)""",
        """
        graph(%n : int):
          %none : NoneType = prim::Constant()
          %zero : int = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %two : int = prim::Constant[value=2]()
          %size : int[] = prim::ListConstruct(%two, %n)
          %mask : Tensor = aten::zeros(%size, %none, %none, %none, %none)
          %a : Tensor = aten::slice(%mask, %zero, %zero, %one, %one)
          %b : Tensor = aten::slice(%a, %one, %zero, %two, %one)
          %c : Tensor = aten::fill(%b, %one)
          %a1 : Tensor = aten::slice_scatter(%a, %c, %one, %zero, %two, %one)
          %m1 : Tensor = aten::slice_scatter(%mask, %a1, %zero, %zero, %one, %one)
          %d : Tensor = aten::slice(%m1, %zero, %one, %none, %one)
          %e : Tensor = aten::fill(%d, %two)
          %m2 : Tensor = aten::slice_scatter(%m1, %e, %zero, %one, %none, %one)
          return (%m2)""",
        [4],
    )


def test_indices_on_the_left() -> None:
    check(
        """
        graph(%x : Tensor, %i : Tensor, %v : Tensor):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %y : Tensor = aten::clone(%x, %none)
          %row : Tensor = aten::select(%y, %zero, %zero)
          %l : Tensor?[] = prim::ListConstruct(%i)
          %z : Tensor = aten::index_put_(%row, %l, %v, %no)
          return (%y)""",
        """
        graph(%x : Tensor, %i : Tensor, %v : Tensor):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %y : Tensor = aten::clone(%x, %none)
          %row : Tensor = aten::select(%y, %zero, %zero)
          %l : Tensor?[] = prim::ListConstruct(%i)
          %z : Tensor = aten::index_put(%row, %l, %v, %no)
          %w : Tensor = aten::select_scatter(%y, %z, %zero, %zero)
          return (%w)""",
        [FLOATS, np.array([0, 2]), np.ones(2, np.float32)],
    )


def test_one_piece_is_written_and_the_others_read() -> None:
    """The other pieces are read as they were; what puts all together is for whoever reads the whole."""
    check(
        """
        graph(%x : Tensor):
          %two : int = prim::Constant[value=2]()
          %one : int = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %l : Tensor[] = aten::chunk(%y, %two, %one)
          %a : Tensor, %b : Tensor = prim::ListUnpack(%l)
          %c : Tensor = aten::silu_(%a)
          %r : Tensor = aten::mul(%c, %b)
          return (%r)""",
        """
        graph(%x : Tensor):
          %two : int = prim::Constant[value=2]()
          %one : int = prim::Constant[value=1]()
          %y : Tensor = aten::neg(%x)
          %l : Tensor[] = aten::chunk(%y, %two, %one)
          %a : Tensor, %b : Tensor = prim::ListUnpack(%l)
          %c : Tensor = aten::silu(%a)
          %m : Tensor[] = prim::ListConstruct(%c, %b)
          %w : Tensor = aten::cat(%m, %one)
          %r : Tensor = aten::mul(%c, %b)
          return (%r)""",
        [np.concatenate([FLOATS, FLOATS], 1)],
    )


def test_a_list_that_is_only_read_is_made_again() -> None:
    check(
        """
        graph(%x : Tensor):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %l : Tensor[] = prim::ListConstruct(%y, %x)
          %a : Tensor = aten::cat(%l, %zero)
          %z : Tensor = aten::relu_(%y)
          %b : Tensor = aten::cat(%l, %zero)
          return (%a, %b)""",
        """
        graph(%x : Tensor):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %l : Tensor[] = prim::ListConstruct(%y, %x)
          %a : Tensor = aten::cat(%l, %zero)
          %z : Tensor = aten::relu(%y)
          %m : Tensor[] = prim::ListConstruct(%z, %x)
          %b : Tensor = aten::cat(%m, %zero)
          return (%a, %b)""",
        [FLOATS],
    )


def test_a_view_of_memory_in_another_order_may_copy() -> None:
    """The sum of two tensors may be in the order of either, which view does not take."""
    check(
        """
        graph(%x : Tensor, %o : Tensor, %n : int[]):
          %one : int = prim::Constant[value=1]()
          %none : NoneType = prim::Constant()
          %y : Tensor = aten::clone(%x, %none)
          %z : Tensor = aten::maximum(%y, %y)
          %m : Tensor = aten::sub_(%z, %o, %one)
          %v : Tensor = aten::view(%z, %n)
          return (%v)""",
        """
        graph(%x : Tensor, %o : Tensor, %n : int[]):
          %one : int = prim::Constant[value=1]()
          %none : NoneType = prim::Constant()
          %y : Tensor = aten::clone(%x, %none)
          %z : Tensor = aten::maximum(%y, %y)
          %m : Tensor = aten::sub(%z, %o, %one)
          %c : Tensor = aten::type_as(%m, %z)
          %v : Tensor = aten::reshape(%c, %n)
          return (%v)""",
        [FLOATS, FLOATS[::-1], [6]],
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%v : Tensor = aten::narrow(%y, %zero, %n, %zero)", "start of a narrowed part"),
        ("%v : Tensor = aten::permute(%y, %dims)", "dims of a permutation"),
        ("%v : Tensor = aten::expand(%y, %dims, %no)", "writes through aten::expand"),
        ("%v : Tensor = aten::unfold(%y, %zero, %n, %n)", "writes through aten::unfold"),
    ],
)
def test_views_that_are_not_written_through(line: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    check_stays(
        f"""
        graph(%x : Tensor, %n : int, %dims : int[]):
          %zero : int = prim::Constant[value=0]()
          %no : bool = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          {line}
          %z : Tensor = aten::relu_(%v)
          return (%y)""",
        reason,
        caplog,
    )


def test_as_strided_depends_on_the_memory_order(caplog: pytest.LogCaptureFixture) -> None:
    check_stays(
        """
        graph(%x : Tensor, %s : int[]):
          %zero : int = prim::Constant[value=0]()
          %y : Tensor = aten::neg(%x)
          %v : Tensor = aten::as_strided(%y, %s, %s, %zero)
          %z : Tensor = aten::relu_(%v)
          return (%y)""",
        "read later",
        caplog,
    )


class Builder(random_graphs.Builder):
    """Programs that cut tensors into pieces and write at indices as well."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        super().__init__(draw, typed=draw(st.booleans()), mutation=True, control=True, lists=False)
        self.statements += [self.pieces, self.pieces, self.write_at, self.write_where]

    def pieces(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor", lambda k: bool(k.shape))
        if x is None:
            return False
        dim = self.number_up_to(len(x.shape) - 1)
        rest = (*x.shape[:dim], *x.shape[dim + 1 :])
        listed = T.ListType(T.TENSOR)
        if self.number_up_to(1):
            cut = self.op(scope, "aten::unbind.int", x.value, dim, output=listed)
            shapes = [rest] * x.shape[dim]
        else:
            cut = self.op(scope, "aten::split.Tensor", x.value, 2, dim, output=listed)
            sizes = [min(2, x.shape[dim] - i) for i in range(0, x.shape[dim], 2)]
            shapes = [(*x.shape[:dim], n, *x.shape[dim + 1 :]) for n in sizes]
        node = self.node(scope, "prim::ListUnpack", [cut.output], [self.tensor_type(s) for s in shapes])
        for value, shape in zip(node.outputs, shapes, strict=True):
            scope.known.append(Known(value, "tensor", shape, writable=x.writable))
        return True

    def write_at(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor", lambda k: k.writable and bool(k.shape))
        y = None if x is None else self.some(scope, "tensor", lambda k: fits_into(k.shape, x.shape[1:]))
        if x is None or y is None:
            return False
        rows = self.constant(scope, np.array([x.shape[0] - 1, 0]), T.TENSOR)
        indices = self.node(scope, "prim::ListConstruct", [rows], [T.ListType(T.TENSOR)]).output
        return self.tensor(scope, "aten::index_put_.hacked_twin", x.value, indices, y.value, False, shape=x.shape)

    def write_where(self, scope: Scope) -> bool:
        x = self.some(scope, "tensor", lambda k: k.writable)
        if x is None:
            return False
        mask = self.op(scope, "aten::gt.Scalar", x.value, 0, output=T.TENSOR).output
        return self.tensor(scope, "aten::masked_fill_.Scalar", x.value, mask, -0.5, shape=x.shape)


@st.composite
def cut_programs(draw: Callable[[Any], Any]) -> Program:
    return Builder(draw).program(draw(st.integers(1, 20)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cut_programs())
def test_pieces_and_indices_keep_meaning(program: Program) -> None:
    assert_keeps_meaning(remove_tensor_mutation, program, sharing=False)


def test_every_view_of_the_table_is_an_operator_that_shares_memory() -> None:
    for name in VIEWS:
        if name.startswith("aten::"):
            op = table.by_full_name(name)
            assert op is not None and len(op.schema.returns) == 1, name
            returned = op.schema.returns[0]
            assert returned.alias is not None or returned.element_alias is not None, name
    assert UNPACK in VIEWS
