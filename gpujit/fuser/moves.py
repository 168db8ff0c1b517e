"""Operators that copy elements to other places: cat, stack, pad, roll, flip, lookups. As index maps they cost nothing.

Each function gives the expression of one element of its result from those of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gpujit.fuser.arguments import NotKnown, shape_of
from gpujit.ir import scalar
from gpujit.ir.graph import Value
from gpujit.ir.scalar import Expr
from gpujit.kernels import views
from gpujit.kernels.index import Index, index, mod
from gpujit.kernels.index import value as index_value
from gpujit.kernels.tile import Bound
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.views import Coords


class Pull(Protocol):
    """What a move needs of the lowering."""

    builder: Builder

    def pull(self, value: Value, at: Coords, mask: Expr | None) -> Expr: ...

    def inside_of(self, bounds: Sequence[Bound], mask: Expr | None) -> Expr: ...

    def dtype(self, value: Value) -> Any: ...

    def generic(self, i: Index) -> Index: ...


Move = Callable[[Pull, Value, Sequence[Any], Coords, Expr | None], Expr]
MOVES: dict[str, Move] = {}


def _move(*names: str) -> Callable[[Move], Move]:
    def declare(fn: Move) -> Move:
        MOVES.update(dict.fromkeys(names, fn))
        return fn

    return declare


def _dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _joined(
    low: Pull, result: Value, operands: Sequence[Value], places: Sequence[views.Place], mask: Expr | None
) -> Expr:
    """The operand whose bounds hold."""
    total: Expr | None = None
    dtype = low.dtype(result)
    for operand, (at, bounds) in zip(reversed(operands), reversed(places), strict=True):
        holds = low.inside_of(bounds, mask)
        x = scalar.cast(low.pull(operand, at, holds), dtype)
        total = x if total is None else scalar.where(low.inside_of(bounds, None), x, total)
    assert total is not None
    return total


@_move("aten::cat", "aten::concat")
def cat(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Operands one after the other along a dim."""
    tensors, d = args
    rank = len(shape_of(result))
    parts = [v for v in tensors if shape_of(v) != (0,) or rank == 1]
    d = _dim(d, rank)
    return _joined(low, result, parts, views.cat(at, d, [shape_of(v)[d] for v in parts]), mask)


@_move("aten::stack")
def stack(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Operands side by side along a new dim."""
    tensors, d = args
    d = _dim(d, len(shape_of(result)))
    return _joined(low, result, tensors, views.stack(at, d, len(tensors)), mask)


def _padded(low: Pull, result: Value, x: Value, pads: Sequence[int], fill: Any, at: Coords, mask: Expr | None) -> Expr:
    shape = shape_of(x)
    grown = []
    for k in range(len(pads) // 2):
        before, after = pads[2 * k], pads[2 * k + 1]
        d = len(shape) - 1 - k
        if before or after:
            grown.append((d, before, shape[d]))
    if not grown:
        return low.pull(x, at, mask)
    place, bounds = views.pad(at, grown)
    holds = low.inside_of(bounds, mask)
    dtype = low.dtype(result)
    return scalar.where(low.inside_of(bounds, None), low.pull(x, place, holds), scalar.const(fill, dtype))


@_move("aten::constant_pad_nd")
def constant_pad(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """A number around an operand."""
    x, pads, fill = args
    return _padded(low, result, x, pads, fill, at, mask)


@_move("aten::pad")
def pad(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """A number around an operand; the other modes stay operators."""
    x, pads, mode, fill = args
    if mode != "constant":
        raise NotKnown(f"aten::pad in mode {mode} is no index map")
    return _padded(low, result, x, pads, fill or 0, at, mask)


@_move("aten::roll")
def roll(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand moved round along dims: two parts of it one after the other."""
    x, shifts, dims = args
    shape = shape_of(x)
    if not dims:
        raise NotKnown("aten::roll of the flat tensor")
    for shift, d in zip(shifts, dims, strict=True):
        d = _dim(d, len(shape))
        n = shape[d]
        if n and shift % n:
            at = views.roll(at, d, (-shift) % n, n)
    return low.pull(x, at, mask)


@_move("aten::flip")
def flip(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand turned round along dims."""
    x, dims = args
    shape = shape_of(x)
    dims = [_dim(d, len(shape)) for d in dims]
    return low.pull(x, views.flip(at, dims, [shape[d] for d in dims]), mask)


@_move("aten::repeat")
def repeat(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand again and again along its dims."""
    x, _ = args
    shape = shape_of(x)
    kept = at[len(at) - len(shape) :]
    out = shape_of(result)[len(at) - len(shape) :]
    place = tuple(c if n == m else mod(c, n) for c, n, m in zip(kept, shape, out, strict=True))
    return low.pull(x, place, mask)


def _looked_up(low: Pull, table: Value, d: int, at: Coords, place: Expr, mask: Expr | None, op: str) -> Expr:
    """The element of ``table`` at ``place`` along dim d; an index out of range makes the run fail."""
    n = shape_of(table)[d]
    number = scalar.cast(place, scalar.INT64)
    i = index_value(number)
    holds = low.builder.inside(Bound(index(0), i, low.generic(index(n))))
    fine = holds if mask is None else scalar.apply("or", holds, scalar.apply("not", mask))
    low.builder.check(fine, f"{op}: an index is out of range for dim {d} of shape {list(shape_of(table))}")
    return low.pull(table, (*at[:d], i, *at[d + 1 :]), holds if mask is None else scalar.apply("and", holds, mask))


@_move("aten::embedding")
def embedding(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Rows of a table by number."""
    table, numbers = args[:2]
    rank = len(shape_of(numbers))
    place = low.pull(numbers, at[:rank], mask)
    return _looked_up(low, table, 0, (index(0), *at[rank:]), place, mask, "aten::embedding")


@_move("aten::index_select")
def index_select(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Places along a dim by number."""
    x, d, numbers = args
    if not shape_of(x):
        raise NotKnown("aten::index_select of a 0-dim tensor")
    d = _dim(d, len(shape_of(x)))
    place = low.pull(numbers, (at[d],) if shape_of(numbers) else (), mask)
    return _looked_up(low, x, d, at, place, mask, "aten::index_select")
