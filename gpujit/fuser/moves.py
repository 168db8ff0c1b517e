"""Operators that copy elements to other places: cat, parts put in, pad, roll, flip, lookups, factories. As index maps
they cost nothing.

Each function gives the expression of one element of its result from those of its operands; its ``Need`` says for which
arguments that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpujit.fuser.errors import NotFused
from gpujit.fuser.tensors import dtype_of, elements_of, shape_of
from gpujit.ir import scalar
from gpujit.ir.dtypes import INT64, kind_of
from gpujit.ir.graph import Value
from gpujit.ir.scalar import Expr
from gpujit.kernels import views
from gpujit.kernels.index import Index, div, index, mod
from gpujit.kernels.index import value as index_value
from gpujit.kernels.tile import Bound
from gpujit.kernels.views import Coords


class Pull(Protocol):
    """What a move needs of the lowering."""

    def pull(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        """The element of a value at a place; nothing is read where the mask does not hold."""

    def inside_of(self, bounds: Sequence[Bound], mask: Expr | None) -> Expr:
        """Whether a place lies within bounds, and the mask holds."""

    def require(self, condition: Expr, message: str, mask: Expr | None) -> None:
        """Let the run fail where the condition does not hold."""

    def position(self, i: Index) -> Expr:
        """An index as an int64 number."""


@dataclass(frozen=True, slots=True)
class Move:
    """How an operator copies elements.

    ``element(low, result, args, at, mask)`` is the element of its result at ``at``. ``need`` raises NotFused for
    arguments that make no index map. ``is_factory``: it reads no tensor.
    """

    element: Callable[[Pull, Value, Sequence[Any], Coords, Expr | None], Expr]
    need: Callable[[Sequence[Any]], None] | None = None
    is_factory: bool = False
    # Elements of several operands are computed at each point, and all but one thrown away.
    is_joining: bool = False
    # Each element of the result comes from the same place of an operand of its shape.
    is_in_place: bool = False
    # By itself a library copies as quickly as memory allows, and a kernel on a processor's cores does not.
    is_quick_alone: bool = False

    def require(self, args: Sequence[Any]) -> None:
        """Raise NotFused for arguments that make no index map."""
        if self.need is not None:
            self.need(args)


MOVES: dict[str, Move] = {}
Element = Callable[[Pull, Value, Sequence[Any], Coords, "Expr | None"], Expr]


def _move(*names: str, **facts: Any) -> Callable[[Element], Element]:
    def declare(fn: Element) -> Element:
        MOVES.update(dict.fromkeys(names, Move(fn, **facts)))
        return fn

    return declare


def _dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _and(a: Expr, b: Expr | None) -> Expr:
    return a if b is None else scalar.apply("and", a, b)


# ------------------------------------------------------------------------------------------------ side by side


def _joined(
    low: Pull, result: Value, operands: Sequence[Value], places: Sequence[views.Place], mask: Expr | None
) -> Expr:
    """The operand whose bounds hold."""
    dtype = dtype_of(result)
    parts = []
    for operand, (at, bounds) in zip(operands, places, strict=True):
        x = low.pull(operand, at, low.inside_of(bounds, mask))
        parts.append((low.inside_of(bounds, None), scalar.cast(x, dtype)))
    total = parts[-1][1]
    for holds, x in reversed(parts[:-1]):
        total = scalar.where(holds, x, total)
    return total


@_move("aten::cat", "aten::concat", is_joining=True)
def cat(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Operands one after the other along a dim."""
    tensors, d = args
    rank = len(shape_of(result))
    d = _dim(d, rank)
    parts = [v for v in tensors if (shape_of(v) != (0,) or rank == 1) and shape_of(v)[d]] or tensors[:1]
    return _joined(low, result, parts, views.cat(at, d, [shape_of(v)[d] for v in parts]), mask)


@_move("aten::stack", is_joining=True)
def stack(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Operands side by side along a new dim."""
    tensors, d = args
    return _joined(low, result, tensors, views.stack(at, _dim(d, len(shape_of(result))), len(tensors)), mask)


# ------------------------------------------------------------------------------------------------ parts put in

# Elements of a tensor above which rows that are cut where a part ends take longer than two plain kernels.
MOST_CUT = 1 << 15


def _fits_part(op: str, args: Sequence[Any], d: int, part: tuple[int, ...]) -> None:
    """Raise NotFused where a part does not replace what it should, or costs more than it saves."""
    if shape_of(args[1]) != part:
        raise NotFused(f"{op} of a part of another shape")
    if d == len(shape_of(args[0])) - 1 and elements_of(args[0]) > MOST_CUT:
        raise NotFused(f"{op} along the last dim would cut each row in two")


def _slice(args: Sequence[Any]) -> tuple[int, range]:
    """The dim of a slice, and its places."""
    shape = shape_of(args[0])
    d = _dim(args[2], len(shape))
    return d, range(*slice(args[3], args[4], args[5]).indices(shape[d]))


def _slices(args: Sequence[Any]) -> None:
    shape = shape_of(args[0])
    if not shape or args[5] != 1:
        raise NotFused("aten::slice_scatter of places that are no neighbours")
    d, places = _slice(args)
    _fits_part("aten::slice_scatter", args, d, (*shape[:d], len(places), *shape[d + 1 :]))


@_move("aten::slice_scatter", need=_slices, is_joining=True, is_quick_alone=True)
def slice_scatter(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand with neighbouring places along a dim from another one."""
    d, places = _slice(args)
    if not places:
        return low.pull(args[0], at, mask)
    here = at[d] - places.start
    place = (*at[:d], here, *at[d + 1 :])
    return _put_in(low, result, args, at, place, Bound(index(0), here, index(len(places))), mask)


def _selects(args: Sequence[Any]) -> None:
    shape = shape_of(args[0])
    d = _dim(args[2], len(shape))
    if not shape or not -shape[d] <= args[3] < shape[d]:
        raise NotFused("aten::select_scatter beyond the tensor")
    _fits_part("aten::select_scatter", args, d, (*shape[:d], *shape[d + 1 :]))


@_move("aten::select_scatter", need=_selects, is_joining=True, is_quick_alone=True)
def select_scatter(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand with one place along a dim from another one."""
    shape = shape_of(args[0])
    d = _dim(args[2], len(shape))
    k = args[3] % shape[d]
    return _put_in(low, result, args, at, views.unsqueeze(at, d), Bound(index(k), at[d], index(k + 1)), mask)


def _put_in(
    low: Pull, result: Value, args: Sequence[Any], at: Coords, place: Coords, bound: Bound, mask: Expr | None
) -> Expr:
    """The element of the second operand where the bound holds, of the first one elsewhere."""
    inside = low.inside_of([bound], None)
    new = low.pull(args[1], place, _and(inside, mask))
    old = low.pull(args[0], at, _and(scalar.apply("not", inside), mask))
    return scalar.where(inside, scalar.cast(new, dtype_of(result)), old)


# ------------------------------------------------------------------------------------------------ other places


def _pads(args: Sequence[Any]) -> None:
    if len(args) == 4 and args[2] != "constant":
        raise NotFused(f"aten::pad in mode {args[2]} is no index map")


@_move("aten::constant_pad_nd", "aten::pad", need=_pads)
def pad(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """A number around an operand."""
    x, pads, fill = args[0], args[1], args[-1] or 0
    shape = shape_of(x)
    grown = []
    for k in range(len(pads) // 2):
        d = len(shape) - 1 - k
        if pads[2 * k] or pads[2 * k + 1]:
            grown.append((d, pads[2 * k], shape[d]))
    if not grown:
        return low.pull(x, at, mask)
    place, bounds = views.pad(at, grown)
    inside = low.pull(x, place, low.inside_of(bounds, mask))
    return scalar.where(low.inside_of(bounds, None), inside, _number(fill, dtype_of(result)))


def _number(number: Any, dtype: np.dtype) -> Expr:
    """A number as assigning it to an array of the dtype makes it."""
    return scalar.const(np.asarray(number).astype(dtype).item(), dtype)


def _rolls(args: Sequence[Any]) -> None:
    if not args[2]:
        raise NotFused("aten::roll of the flat tensor is no index map")


@_move("aten::roll", need=_rolls)
def roll(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand moved round along dims. Parts of it one after the other, so that neighbours stay neighbours."""
    x, shifts, dims = args
    shape = shape_of(x)
    steps: dict[int, int] = {}
    for shift, d in zip(shifts, dims, strict=True):
        d = _dim(d, len(shape))
        steps[d] = (steps.get(d, 0) + shift) % max(shape[d], 1)
    return _rolled(low, x, [(d, s) for d, s in steps.items() if s], at, mask)


def _rolled(low: Pull, x: Value, steps: Sequence[tuple[int, int]], at: Coords, mask: Expr | None) -> Expr:
    if not steps:
        return low.pull(x, at, mask)
    (d, s), rest = steps[0], steps[1:]
    n = shape_of(x)[d]
    # The first s places hold the operand's last ones.
    is_first = low.inside_of([Bound(index(0), at[d], index(s))], None)
    is_later = low.inside_of([Bound(index(s), at[d], index(n))], None)
    first = _rolled(low, x, rest, (*at[:d], at[d] + (n - s), *at[d + 1 :]), _and(is_first, mask))
    later = _rolled(low, x, rest, (*at[:d], at[d] - s, *at[d + 1 :]), _and(is_later, mask))
    return scalar.where(is_first, first, later)


@_move("aten::flip")
def flip(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand turned round along dims."""
    x, dims = args
    shape = shape_of(x)
    dims = [_dim(d, len(shape)) for d in dims]
    return low.pull(x, views.flip(at, dims, [shape[d] for d in dims]), mask)


@_move("aten::repeat", "aten::tile")
def repeat(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand again and again along its dims."""
    x = args[0]
    shape, out = shape_of(x), shape_of(result)
    more = len(out) - len(shape)
    place = tuple(c if n == m else mod(c, n) for c, n, m in zip(at[more:], shape, out[more:], strict=True))
    return low.pull(x, place, mask)


@_move("aten::repeat_interleave.self_int")
def repeat_each(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Each place along a dim (of the flat tensor, without one) several times."""
    x, times, d = args[:3]
    shape = shape_of(x)
    if d is None:
        count = elements_of(x)
        return low.pull(x, views.reshape((div(at[0], times),), (count,), shape, (count,), shape), mask)
    d = _dim(d, len(shape))
    return low.pull(x, (*at[:d], div(at[d], times), *at[d + 1 :]) if shape else (), mask)


# ------------------------------------------------------------------------------------------------ triangles


def _triangle(low: Pull, args: Sequence[Any], at: Coords, is_lower: bool) -> Expr:
    rows, columns = shape_of(args[0])[-2:]
    # How far a place is above the lowest diagonal that is left out, counted so that it is at least 0 where it is kept.
    over = at[-2] - at[-1] + args[1] if is_lower else at[-1] - at[-2] - args[1]
    return low.inside_of([Bound(index(0), over, index(rows + columns + abs(args[1])))], None)


@_move("aten::tril", is_in_place=True)
def tril(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand on and below a diagonal, 0 above it."""
    kept = _triangle(low, args, at, True)
    return scalar.where(kept, low.pull(args[0], at, _and(kept, mask)), _number(0, dtype_of(result)))


@_move("aten::triu", is_in_place=True)
def triu(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """An operand on and above a diagonal, 0 below it."""
    kept = _triangle(low, args, at, False)
    return scalar.where(kept, low.pull(args[0], at, _and(kept, mask)), _number(0, dtype_of(result)))


# ------------------------------------------------------------------------------------------------ lookups


def _looked_up(
    low: Pull, table: Value, at: Coords, numbers: dict[int, Expr], mask: Expr | None, op: str, wraps: bool = False
) -> Expr:
    """The element of ``table`` whose places along some dims are numbers; one out of range makes the run fail."""
    shape = shape_of(table)
    place = list(at)
    bounds = []
    for d, number in numbers.items():
        number = scalar.cast(number, INT64)
        if wraps:
            size = low.position(index(shape[d]))
            is_negative = scalar.apply("lt", number, scalar.const(0, INT64))
            number = scalar.where(is_negative, scalar.apply("add", number, size), number)
        place[d] = index_value(number)
        bounds.append(Bound(index(0), place[d], index(shape[d])))
    holds = low.inside_of(bounds, None)
    dims = " and ".join(map(str, numbers))
    low.require(holds, f"{op}: an index is out of range for dim {dims} of shape {list(shape)}", mask)
    return low.pull(table, tuple(place), _and(holds, mask))


@_move("aten::embedding")
def embedding(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Rows of a table by number."""
    table, numbers = args[:2]
    rank = len(shape_of(numbers))
    number = low.pull(numbers, at[:rank], mask)
    return _looked_up(low, table, (index(0), *at[rank:]), {0: number}, mask, "aten::embedding")


def _of_dims(args: Sequence[Any]) -> None:
    if not shape_of(args[0]) or any(isinstance(a, Value) and not shape_of(a) for a in args[1:]):
        raise NotFused("a lookup in a 0-dim tensor, or with a 0-dim index")


@_move("aten::index_select", need=_of_dims)
def index_select(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Places along a dim by number."""
    x, d, numbers = args
    d = _dim(d, len(shape_of(x)))
    return _looked_up(low, x, at, {d: low.pull(numbers, (at[d],), mask)}, mask, "aten::index_select")


@_move("aten::gather", need=_of_dims)
def gather(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Places along a dim by a number for each element."""
    x, d, numbers = args[:3]
    d = _dim(d, len(shape_of(x)))
    return _looked_up(low, x, at, {d: low.pull(numbers, at, mask)}, mask, "aten::gather")


def _along(args: Sequence[Any]) -> None:
    _of_dims(args[:2])
    if args[2] is None:
        raise NotFused("aten::take_along_dim of the flat tensor")


@_move("aten::take_along_dim", need=_along)
def take_along_dim(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Places along a dim by a number for each element; both broadcast along the other dims."""
    x, numbers, d = args
    shape = shape_of(x)
    d = _dim(d, len(shape))
    number = low.pull(numbers, views.expand(at, [n == 1 for n in shape_of(numbers)]), mask)
    place = views.expand(at, [n == 1 and k != d for k, n in enumerate(shape)])
    return _looked_up(low, x, place, {d: number}, mask, "aten::take_along_dim", wraps=True)


def _takes(args: Sequence[Any]) -> None:
    if not elements_of(args[0]):
        raise NotFused("aten::take from an empty tensor")


@_move("aten::take", need=_takes)
def take(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Elements by their place in the flat tensor; negative numbers count from the end."""
    x, numbers = args
    count = elements_of(x)
    number = scalar.cast(low.pull(numbers, at, mask), INT64)
    wrapped = scalar.apply("add", number, low.position(index(count)))
    number = scalar.where(scalar.apply("lt", number, scalar.const(0, INT64)), wrapped, number)
    flat = index_value(number)
    holds = low.inside_of([Bound(index(0), flat, index(count))], None)
    low.require(holds, f"aten::take: an index is out of range for a tensor with {count} elements", mask)
    shape = shape_of(x)
    return low.pull(x, views.reshape((flat,), (count,), shape, (count,), shape), _and(holds, mask))


def _indexes(args: Sequence[Any]) -> None:
    if not isinstance(args[1], list):
        raise NotFused("aten::index.Tensor: its indexes are known only at run time")
    for v in args[1]:
        if isinstance(v, Value) and kind_of(dtype_of(v)) != 1:
            raise NotFused(f"aten::index.Tensor by {dtype_of(v)}: how many elements it gives depends on the numbers")
        if isinstance(v, Value) and dtype_of(v) == np.uint8:
            raise NotFused("aten::index.Tensor by a mask of uint8")


@_move("aten::index.Tensor", need=_indexes)
def index_tensor(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Elements by a number along each dim that has an index; indexes broadcast."""
    x, given = args
    by_dim = {d: v for d, v in enumerate(given) if isinstance(v, Value)}
    if not by_dim:
        return low.pull(x, at, mask)
    dims = list(by_dim)
    rank = max(len(shape_of(v)) for v in by_dim.values())
    # Where the indexes' dims are in the result: in place of theirs when those are neighbours, else first.
    first = dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0
    inner = at[first : first + rank]
    rest = [*at[:first], *at[first + rank :]]
    place = tuple(index(0) if d in by_dim else rest.pop(0) for d in range(len(shape_of(x))))
    numbers = {}
    for d, v in by_dim.items():
        numbers[d] = low.pull(v, views.expand(inner, [n == 1 for n in shape_of(v)]), mask)
    return _looked_up(low, x, place, numbers, mask, "aten::index", wraps=True)


def _classes(args: Sequence[Any]) -> None:
    if args[1] < 1 or dtype_of(args[0]) != INT64:
        raise NotFused("aten::one_hot of classes that only the numbers tell")


@_move("aten::one_hot", need=_classes)
def one_hot(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """1 at the place of a class, 0 at all others; a number that is no class makes the run fail."""
    number = low.pull(args[0], at[:-1], mask)
    zero, one, classes = (scalar.const(n, INT64) for n in (0, 1, args[1]))
    holds = scalar.apply("and", scalar.apply("le", zero, number), scalar.apply("lt", number, classes))
    low.require(holds, f"aten::one_hot: a class is not from 0 to {args[1] - 1}", mask)
    return scalar.where(scalar.apply("eq", number, low.position(at[-1])), one, zero)


# ------------------------------------------------------------------------------------------------ out of nothing


def _made_by(value: Any) -> Element:
    def made(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
        return _number(value(args), dtype_of(result))

    return made


_move("aten::zeros", "aten::new_zeros", is_factory=True)(_made_by(lambda args: 0))
_move("aten::ones", "aten::new_ones", is_factory=True)(_made_by(lambda args: 1))
_move("aten::full", is_factory=True)(_made_by(lambda args: args[1]))
_move("aten::new_full", is_factory=True)(_made_by(lambda args: args[2]))
_move("aten::scalar_tensor", is_factory=True)(_made_by(lambda args: args[0]))


@_move("aten::eye", "aten::eye.m", is_factory=True)
def eye(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """1 on the diagonal, 0 beside it."""
    dtype = dtype_of(result)
    on = low.inside_of([Bound(at[0], at[1], at[0] + 1)], None)
    return scalar.where(on, _number(1, dtype), _number(0, dtype))


def _whole_steps(args: Sequence[Any]) -> None:
    if any(type(n) is not int for n in _steps(args)):
        raise NotFused("aten::arange in steps that are no whole numbers")


def _steps(args: Sequence[Any]) -> tuple[Any, Any]:
    """Where an arange begins and its step; the last four arguments are its options."""
    numbers = args[:-4]
    return (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)


@_move("aten::arange", "aten::arange.start", "aten::arange.start_step", need=_whole_steps, is_factory=True)
def arange(low: Pull, result: Value, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
    """Numbers in even steps."""
    start, step = _steps(args)
    return scalar.cast(low.position(at[0] * step + start), dtype_of(result))
