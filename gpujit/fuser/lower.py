"""One group of nodes as one tile program: operators' bodies are recorded, views become index maps.

The program is found by pulling: an output's value at a place of the iteration space is what its node computes from its
operands' values at the places that follow, and so on down to what the group reads. One value of the group, the anchor,
gives the space: the operand of a reduction, whose reduced dims are the rows, or the largest result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpujit.fuser.arguments import NotKnown, arguments_of, is_tensor, shape_of
from gpujit.fuser.geometry import Geometry, geometry_of
from gpujit.fuser.moves import MOVES, Pull
from gpujit.ir import scalar
from gpujit.ir.dtypes import numpy_dtype
from gpujit.ir.graph import Node, Value
from gpujit.ir.recorded import Recorded
from gpujit.ir.scalar import Expr, RecordError
from gpujit.kernels.index import Index, dim, index
from gpujit.kernels.tile import Bound, TileError, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.views import Coords, expand
from gpujit.ops.record import can_record, record
from gpujit.ops.registry import Op
from gpujit.ops.rows import OPAQUE, Rows
from gpujit.passes.effects import entry_of
from gpujit.support.errors import OpError


class NotFused(Exception):
    """Nodes that cannot be one program; the message says why."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A group's program with the numbers of its call.

    ``inputs`` are the values to pass, in order; ``outputs`` the values it makes, each in a fresh contiguous array of its
    type's shape and dtype; sizes and params are those of the shapes in the graph.
    """

    program: TileProgram
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...]


def lower(nodes: Sequence[Node], outputs: Sequence[Value]) -> Lowered:
    """The program of some nodes of a block, in their order; ``outputs`` are the results that others read.

    Raises NotFused.
    """
    try:
        return _Lowering(nodes, outputs).run()
    except (NotKnown, RecordError, TileError, OpError) as fault:
        raise NotFused(str(fault)) from fault


def plan(nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
    """Raises NotFused when the nodes do not share an iteration space that all outputs lie in; nothing is recorded."""
    try:
        _Lowering(nodes, outputs).plan()
    except NotKnown as fault:
        raise NotFused(str(fault)) from fault


def view_of(node: Node) -> tuple[Value, list[Geometry]] | None:
    """What a node looks at and through which maps; None when it is no view, or one that copies here."""
    op = entry_of(node)
    if op is None or op.kind != "view":
        return None
    try:
        return geometry_of(node)
    except NotKnown:
        return None


def recordable(node: Node) -> None:
    """Raises NotFused when a node's operator has no expression for these dtypes and arguments."""
    op, args = arguments_of(node)
    functional = op.derived_from or op
    if functional.full_name in MOVES:
        return
    if not can_record(op) or functional.scalar is OPAQUE:
        raise NotFused(f"{op.full_name} has no expression for one element")
    leaves = [_leaf(a) for a in args]
    if isinstance(functional.scalar, Rows):
        # Whether its rows are the group's shows when a group is planned.
        return
    try:
        record(op, leaves)
    except (RecordError, OpError) as fault:
        raise NotFused(str(fault)) from fault


def _leaf(argument: Any) -> Any:
    if not isinstance(argument, Value):
        return argument
    code = getattr(argument.type, "dtype", None)
    if code is None:
        raise NotFused(f"the dtype of {argument!r} is not known")
    try:
        dtype = numpy_dtype(code)
    except TypeError:
        raise NotFused(f"{argument!r} has a dtype that kernels do not know") from None
    return Recorded(Expr("input", (), dtype), len(shape_of(argument)))


class _Lowering(Pull):
    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
        self.nodes, self.outputs = list(nodes), list(outputs)
        self.inside = set(nodes)
        self.memo: dict[Any, Expr] = {}
        self.numbers: dict[Value, int] = {}
        self.params: dict[int, Index] = {}
        self.recorded: dict[Any, tuple[Expr, ...]] = {}
        self.checked: set[tuple[str, str]] = set()

    def plan(self) -> None:
        """Choose the space and see that all of the group lies in it."""
        self.find_space()
        self.find_places()
        for value in self.outputs:
            if value not in self.places:
                raise NotFused(f"{value!r} does not lie in the group's iteration space of {list(self.frame)}")
        for node, op, args, _ in self.rows_nodes():
            axes = self.axes_of(node)
            place = self.places.get(args[0])
            if axes and (place is None or not self.lies_in_rows(node, place, axes)):
                raise NotFused(f"{op.full_name} reduces dims {list(axes)} of {args[0]!r}, not the group's rows")

    def run(self) -> Lowered:
        self.plan()
        for value in self.outputs:
            at = self.places[value]
            x = self.pull(value, at, None)
            self.builder.store(self.builder.output(self.dtype(value), len(at)), self.generic_all(at), x)
        program = self.builder.finish()
        return Lowered(program, tuple(self.numbers), tuple(self.outputs), self.sizes, tuple(self.params))

    # The space

    def rows_nodes(self) -> Iterator[tuple[Node, Op, list[Any], Rows]]:
        """Nodes that work over rows."""
        for node in self.nodes:
            op = entry_of(node)
            functional = None if op is None else op.derived_from or op
            if functional is not None and functional.kind != "pointwise" and isinstance(functional.scalar, Rows):
                yield node, functional, arguments_of(node)[1], functional.scalar

    def find_space(self) -> None:
        """Choose the anchor; set ``frame`` (its shape), ``axes`` (its dims that make up rows) and the builder."""
        self.groups: int | None = None
        self.axes: tuple[int, ...] = ()
        self.anchor: Value | None = None
        for _, _, args, rows in self.rows_nodes():
            shape = shape_of(args[0])
            groups = rows.groups(args) if rows.groups else None
            rank = len(shape) + (groups is not None)
            axes = rows.axes(rank, args) if rank else None
            axes = tuple(range(rank)) if axes is None else tuple(axes)
            if not shape:
                raise NotFused("a reduction of a 0-dim tensor")
            if not axes and self.anchor is not None:
                continue
            self.anchor, self.axes, self.groups = args[0], axes, groups
            self.frame = shape if groups is None else (shape[0], groups, shape[1] // groups, *shape[2:])
            if axes:
                break
        if self.anchor is None:
            largest = max(prod(shape_of(v)) for v in self.outputs)
            inner = [v for node in self.nodes for v in node.outputs if is_tensor(v)]
            best = [v for v in inner if prod(shape_of(v)) == largest]
            self.anchor = max(best, key=lambda v: len(shape_of(v)))
            self.frame = shape_of(self.anchor)
        order = [d for d in range(len(self.frame)) if d not in self.axes] + sorted(self.axes)
        self.order = order
        self.sizes = tuple(self.frame[d] for d in order)
        self.builder = Builder(len(order), len(self.axes))
        self.frame_coords: Coords = tuple(dim(order.index(d)) for d in range(len(order)))
        self.row_dims = frozenset(range(len(order) - len(self.axes), len(order)))

    def find_places(self) -> None:
        """``places``: for values whose elements lie one to one in the space (or, one for each row, in its outer part),
        the place of the element that a point makes."""
        assert self.anchor is not None
        coords = self.frame_coords
        if self.groups is not None:
            coords = (coords[0], coords[1] * self.frame[2] + coords[2], *coords[3:])
        self.places: dict[Value, Coords] = {self.anchor: coords}
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                changed |= self.spread(node)

    def spread(self, node: Node) -> bool:
        """Take places over from one side of a node to the other; whether any is new."""
        before = len(self.places)
        op = entry_of(node)
        if op is None:
            return False
        functional = op.derived_from or op
        seen = view_of(node)
        if seen is not None:
            base, maps = seen
            for value, m in zip(node.outputs, maps, strict=False):
                if m.is_bijective:
                    self.share(base, value, m)
        elif functional.kind == "pointwise" or (functional.scalar is not None and not self.axes_of(node)):
            shape = shape_of(node.outputs[0])
            same = [v for v in (*node.inputs, *node.outputs) if is_tensor(v) and shape_of(v) == shape]
            at = next((self.places[v] for v in same if v in self.places), None)
            if at is not None:
                for v in same:
                    self.places.setdefault(v, at)
        elif isinstance(functional.scalar, Rows):
            args = arguments_of(node)[1]
            shape = shape_of(args[0])
            full = [v for v in (args[0], *node.outputs) if isinstance(v, Value) and shape_of(v) == shape]
            at = next((self.places[v] for v in full if v in self.places), None)
            if at is not None:
                self.places.setdefault(args[0], at)
                for v in node.outputs:
                    self.places.setdefault(v, self.result_place(node, v, at))
        return len(self.places) > before

    def share(self, base: Value, value: Value, m: Geometry) -> None:
        if base in self.places and value not in self.places:
            self.places[value] = m.place_back(self.places[base])
        elif value in self.places and base not in self.places:
            self.places[base] = m.place(self.places[value])

    def axes_of(self, node: Node) -> tuple[int, ...]:
        """The dims of the first operand (with a group's split) that a node reduces."""
        op, args = arguments_of(node)
        rows = (op.derived_from or op).scalar
        if not isinstance(rows, Rows):
            return ()
        rank = len(shape_of(args[0])) + (rows.groups is not None)
        axes = rows.axes(rank, args)
        return tuple(range(rank)) if axes is None else tuple(axes)

    def result_place(self, node: Node, value: Value, at: Coords) -> Coords:
        """The place of a result, from that of the operand: full, or without the reduced dims."""
        op, args = arguments_of(node)
        rows = (op.derived_from or op).scalar
        assert isinstance(rows, Rows)
        shape, found = shape_of(args[0]), shape_of(value)
        axes = self.axes_of(node)
        if len(found) == len(shape):
            if found == shape and not (rows.keeps(args) and all(shape[d] == 1 for d in axes)):
                return at
            return tuple(index(0) if d in axes else c for d, c in enumerate(at))
        if rows.groups is not None:
            return self.frame_coords[: len(found)]
        return tuple(c for d, c in enumerate(at) if d not in axes)

    # Pulling

    def dtype(self, value: Value) -> np.dtype:
        code = getattr(value.type, "dtype", None)
        if code is None:
            raise NotFused(f"the dtype of {value!r} is not known")
        return numpy_dtype(code)

    def pull(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        """The expression of one element; nothing is read where the mask is false."""
        key = (value, tuple(map(str, at)), id(mask))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._pull(value, at, mask)
        return found

    def _pull(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        node = value.node
        if value.is_constant and value.constant().size == 1 and value.constant().dtype.kind in "bifu":
            return scalar.const(value.constant().item(), value.constant().dtype)
        if node not in self.inside:
            return self.load(value, at, mask)
        op, args = arguments_of(node)
        functional = op.derived_from or op
        seen = view_of(node)
        if seen is not None:
            base, maps = seen
            return self.pull(base, maps[value.index].place(at), mask)
        move = MOVES.get(functional.full_name)
        if move is not None:
            return move(self, value, args, at, mask)
        if functional.kind == "pointwise":
            return self.pointwise(op, args, at, mask)
        if isinstance(functional.scalar, Rows):
            return self.over_rows(node, op, args, value, at, mask)
        raise NotFused(f"{op.full_name} has no expression")

    def load(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        """An element of what the group reads."""
        shape, dtype = shape_of(value), self.dtype(value)
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = self.builder.input(dtype, len(shape))
        at = tuple(index(0) if n == 1 else c for c, n in zip(at, shape, strict=True))
        return self.builder.load(number, self.generic_all(at), mask)

    def operand(self, x: Any, at: Coords, mask: Expr | None) -> Any:
        """An argument as a body takes it; a tensor broadcasts to the result's place."""
        if not isinstance(x, Value):
            if isinstance(x, list) and any(isinstance(v, Value) for v in x):
                raise NotFused("a list of tensors as an operand")
            return x
        shape = shape_of(x)
        return Recorded(self.pull(x, expand(at, [n == 1 for n in shape]), mask), len(shape))

    def pointwise(self, op: Op, args: Sequence[Any], at: Coords, mask: Expr | None) -> Expr:
        rows = (op.derived_from or op).scalar
        if isinstance(rows, Rows):
            values = [self.row_operand(x, a.name, rows, at, mask) for x, a in self.named(op, args)]
        else:
            values = [self.operand(x, at, mask) for x in args]
        recording = record(op, values)
        self.check(recording.checks, mask)
        return recording.results[0]

    def over_rows(self, node: Node, op: Op, args: Sequence[Any], value: Value, at: Coords, mask: Expr | None) -> Expr:
        functional = op.derived_from or op
        rows = functional.scalar
        assert isinstance(rows, Rows)
        axes = self.axes_of(node)
        if mask is not None and axes:
            raise NotFused(f"{op.full_name} reduces a part of a tensor")
        first = args[0]
        place = self.places.get(first)
        if axes and (place is None or not self.lies_in_rows(node, place, axes)):
            raise NotFused(f"{op.full_name} reduces dims {list(axes)} of {first!r}, which are not the group's rows")
        full = at if not axes else place
        assert full is not None
        if axes and value in self.places and self.places[value] != at:
            raise NotFused(f"{op.full_name} is read in another order than it is computed in")
        key = (node, tuple(map(str, full)), id(mask))
        results = self.recorded.get(key)
        if results is None:
            values = [self.row_operand(x, a.name, rows, full, mask) for x, a in self.named(op, args)]
            recording = record(op, values)
            self.check(recording.checks, mask)
            results = self.recorded[key] = recording.results
        return results[value.index]

    def named(self, op: Op, args: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        return zip(args, op.schema.arguments, strict=True)

    def row_operand(self, x: Any, name: str, rows: Rows, full: Coords, mask: Expr | None) -> Any:
        """An argument of an operator over rows: aligned with a dim of the first one, or broadcast."""
        if not isinstance(x, Value):
            return x
        shape = shape_of(x)
        if name in rows.aligned:
            first = rows.aligned[name]
            at = full[first : first + len(shape)] if len(full) >= first + len(shape) else (index(0),) * len(shape)
            at = expand(at, [n == 1 for n in shape])
        else:
            at = expand(full, [n == 1 for n in shape])
        return Recorded(self.pull(x, at, mask), len(shape))

    def lies_in_rows(self, node: Node, place: Coords, axes: Sequence[int]) -> bool:
        """Whether the reduced dims of an operand are the group's rows, all of them and nothing else."""
        if self.groups is not None or (entry_of(node) is not None and self.is_grouped(node)):
            return place == self.places.get(self.anchor) and self.groups is not None and self.is_grouped(node)  # type: ignore[arg-type]
        inner = frozenset().union(*(place[d].dims() for d in axes)) if axes else frozenset()
        outer = frozenset().union(*(c.dims() for d, c in enumerate(place) if d not in axes), frozenset())
        long = frozenset(d for d in self.row_dims if self.sizes[d] != 1)
        return long <= inner <= self.row_dims and not outer & long

    def is_grouped(self, node: Node) -> bool:
        op, _ = arguments_of(node)
        rows = (op.derived_from or op).scalar
        return isinstance(rows, Rows) and rows.groups is not None

    def check(self, checks: Sequence[tuple[Expr, str]], mask: Expr | None) -> None:
        for condition, message in checks:
            if mask is not None:
                condition = scalar.apply("or", condition, scalar.apply("not", mask))
            self.builder.check(condition, message)

    # Numbers of this call become parameters, so that other sizes run the same program

    def generic_all(self, at: Sequence[Index]) -> Coords:
        return tuple(map(self.generic, at))

    def generic(self, i: Index) -> Index:
        """The index with its factors and summands, but 0 and 1, as parameters."""
        total = index(0)
        for product, factor in i.terms:
            term = Index(((tuple(self._generic_atom(a) for a in product), 1),)) if product else index(1)
            size = abs(factor)
            if size != 1 or not product:
                term = term * self.parameter(size)
            total = total + (term if factor > 0 else -term)
        return total

    def _generic_atom(self, atom: Any) -> Any:
        if not atom.args:
            return atom
        return type(atom)(atom.kind, atom.number, tuple(self.generic(a) for a in atom.args))

    def parameter(self, number: int) -> Index:
        """The parameter that holds a number."""
        found = self.params.get(number)
        if found is None:
            found = self.params[number] = self.builder.param()
        return found

    def inside_of(self, bounds: Sequence[Bound], mask: Expr | None) -> Expr:
        """Whether a place lies within bounds, and the mask holds."""
        generic = [Bound(self.generic(b.low), self.generic(b.index), self.generic(b.high)) for b in bounds]
        holds = self.builder.inside(*generic)
        return holds if mask is None else scalar.apply("and", holds, mask)


def reduces(node: Node) -> bool:
    """Whether a node of the table works over rows of its first operand."""
    op = entry_of(node)
    return op is not None and op.kind != "pointwise" and isinstance((op.derived_from or op).scalar, Rows)
