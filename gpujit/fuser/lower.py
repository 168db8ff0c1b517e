"""One group of nodes as one tile program: operators' bodies are recorded, views become index maps.

The program is found by pulling: an output's value at a place of the iteration space is what its node computes from its
operands' values at the places that follow, and so on down to what the group reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.fuser.errors import NotFused
from gpujit.fuser.facts import Fact, Facts
from gpujit.fuser.moves import Pull
from gpujit.fuser.places import Sized
from gpujit.fuser.space import Space
from gpujit.fuser.tensors import dtype_of, shape_of
from gpujit.ir import scalar
from gpujit.ir.graph import Node, Value
from gpujit.ir.scalar import Expr, RecordError
from gpujit.kernels.index import DIV, MOD, Atom, Index, index
from gpujit.kernels.tile import Bound, TileError, TileProgram
from gpujit.kernels.tile_build import Builder
from gpujit.kernels.views import Coords, expand
from gpujit.ops.rows import Rows
from gpujit.support.errors import OpError

# How often the space is made finer, for views of views.
_ROUNDS = 4
# At how many places each node is evaluated at most, on average. What reads an operand at two places doubles all that
# is under it: a chain of such nodes would be a program too large to compile.
PLACES = 8
# How many divisions may be needed to find a place. Each reshape that a place goes through divides what those before it
# came to, several times.
DIVISIONS = 16


@dataclass(frozen=True, slots=True)
class Lowered:
    """A group's program with the numbers of its call.

    ``inputs`` are the values to pass, in order; ``outputs`` the values it makes, each in a fresh contiguous array of
    its type's shape and dtype; sizes and params are those of the shapes in the graph. ``divisions``: how many of its
    accesses divide to find an element.
    """

    program: TileProgram
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[int, ...]
    params: tuple[int, ...]
    divisions: int


def lower(nodes: Sequence[Node], outputs: Sequence[Value], facts: Facts | None = None) -> Lowered:
    """The program of some nodes of a block, in their order; ``outputs`` are the results that others read.

    Raises NotFused.
    """
    facts = facts or Facts()
    parts = None
    for node in nodes:
        facts.of(node).require_elements()
    try:
        for _ in range(_ROUNDS):
            space = Space(nodes, outputs, facts, parts)
            parts = space.without_idle()
            if parts is not None:
                space = Space(nodes, outputs, facts, parts)
            lowering = _Lowering(space, nodes, outputs, facts)
            found = lowering.run()
            parts = lowering.space.finer(lowering.used)
            if parts is None:
                break
    except (RecordError, TileError, OpError) as fault:
        raise NotFused(fault.message) from fault
    return found


def require_places(nodes: Sequence[Node], outputs: Sequence[Value], facts: Facts) -> None:
    """Raise NotFused when ``lower`` would because of where nodes are read: rows elsewhere than they are computed, or
    anything at too many places."""
    try:
        _Lowering(Space(nodes, outputs, facts), nodes, outputs, facts).stores()
    except (RecordError, OpError) as fault:
        raise NotFused(fault.message) from fault


class _Lowering(Pull):
    def __init__(self, space: Space, nodes: Sequence[Node], outputs: Sequence[Value], facts: Facts) -> None:
        self.space, self.outputs, self.facts = space, outputs, facts
        self.inside = set(nodes)
        self.places_left = PLACES * len(self.inside)
        self.builder = Builder(len(space.sizes), len(space.row_dims))
        self.used: list[Index] = []
        self.divisions = 0
        self._done: dict[Any, Expr] = {}
        self._results: dict[Any, tuple[Expr, ...]] = {}
        self._bounds: dict[Any, Expr] = {}
        self._numbers: dict[Value, int] = {}
        self._params: dict[int, Index] = {}
        self._generic: dict[Atom, Atom] = {}
        self._sized = Sized(space.sizes)

    def stores(self) -> None:
        """Pull all outputs."""
        for value in self.outputs:
            at = self.space.places[value]
            x = self.pull(value, at, None)
            self.builder.store(self.builder.output(dtype_of(value), len(at)), self.access(at), x)

    def run(self) -> Lowered:
        self.stores()
        program = self.builder.finish()
        inputs, outputs = tuple(self._numbers), tuple(self.outputs)
        return Lowered(program, inputs, outputs, self.space.sizes, tuple(self._params), self.divisions)

    # Pulling

    def pull(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        at = tuple(map(self._sized.simplified, at))
        if any(c.divisions > DIVISIONS for c in at):
            raise NotFused(f"places would take more than {DIVISIONS} divisions to find")
        key = (value, at, mask)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = self._pulled(value, at, mask)
        return found

    def _pulled(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        node = value.node
        if value.is_constant and value.constant().size == 1 and value.constant().dtype.kind in "bifu":
            return scalar.const(value.constant().item(), value.constant().dtype)
        if node not in self.inside:
            return self._load(value, at, mask)
        self.places_left -= 1
        if self.places_left < 0:
            raise NotFused(f"operators would be computed at more than {PLACES} places each")
        fact = self.facts.of(node)
        if fact.view is not None:
            base, maps = fact.view
            return self.pull(base, maps[value.index].place(at), mask)
        if fact.move is not None:
            return fact.move.element(self, value, fact.arguments, at, mask)
        if fact.axes:
            return self._over_rows(fact, value, at, mask)
        return self._computed(fact, at, mask)[value.index]

    def _load(self, value: Value, at: Coords, mask: Expr | None) -> Expr:
        """An element of what the group reads."""
        shape, dtype = shape_of(value), dtype_of(value)
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = self.builder.input(dtype, len(shape))
        at = tuple(index(0) if n == 1 else c for c, n in zip(at, shape, strict=True))
        return self.builder.load(number, self.access(at), mask)

    def _over_rows(self, fact: Fact, value: Value, at: Coords, mask: Expr | None) -> Expr:
        if mask is not None:
            raise NotFused(f"{fact.name} reduces a part of a tensor")
        place = self.space.require_rows(fact)
        if self.space.places.get(value) != at:
            raise NotFused(f"{fact.name} is read in another order than it is computed in")
        return self._computed(fact, place, None)[value.index]

    def _computed(self, fact: Fact, at: Coords, mask: Expr | None) -> tuple[Expr, ...]:
        """The results of a recorded operator for operands at (or, broadcast, below) a place."""
        key = (fact.node, at, mask)
        found = self._results.get(key)
        if found is None:
            operands = {i: self.pull(x, place, mask) for i, x, place in self._operands(fact, at)}
            found, checks = fact.template.filled(operands)
            for condition, message in checks:
                self.require(condition, message, mask)
            self._results[key] = found
        return found

    def _operands(self, fact: Fact, at: Coords) -> Iterator[tuple[int, Value, Coords]]:
        """Tensors among the arguments and where each is read: beside a dim of the first one, or broadcast."""
        assert fact.op is not None and fact.functional is not None
        rows = fact.functional.scalar
        aligned: Mapping[str, int] = rows.aligned if isinstance(rows, Rows) else {}
        for i in fact.template.leaves:
            x = fact.arguments[i]
            shape = shape_of(x)
            first = aligned.get(fact.op.schema.arguments[i].name)
            place = at
            if first is not None:
                place = at[first : first + len(shape)] if len(at) >= first + len(shape) else (index(0),) * len(shape)
            yield i, x, expand(place, [n == 1 for n in shape])

    # What moves need

    def require(self, condition: Expr, message: str, mask: Expr | None) -> None:
        if mask is not None:
            condition = scalar.apply("or", condition, scalar.apply("not", mask))
        self.builder.check(condition, message)

    def position(self, i: Index) -> Expr:
        return self.builder.position(self.generic(i))

    def inside_of(self, bounds: Sequence[Bound], mask: Expr | None) -> Expr:
        key = (tuple(bounds), mask)
        found = self._bounds.get(key)
        if found is None:
            self.used.extend(b.index for b in bounds)
            found = self.builder.inside(
                *(Bound(self.generic(b.low), self.generic(b.index), self.generic(b.high)) for b in bounds)
            )
            if mask is not None:
                found = scalar.apply("and", found, mask)
            self._bounds[key] = found
        return found

    # Numbers of this call become parameters, so that other sizes run the same program

    def access(self, at: Sequence[Index]) -> Coords:
        """The place of a load or store."""
        self.used.extend(at)
        self.divisions += any(a.kind in (DIV, MOD) for i in at for a in i.atoms())
        return tuple(map(self.generic, at))

    def generic(self, i: Index) -> Index:
        """The index with its factors and summands, but 0 and 1, as parameters."""
        total = index(0)
        for product, factor in i.terms:
            term = Index(((tuple(map(self._generic_atom, product)), 1),)) if product else index(1)
            size = abs(factor)
            if size != 1 or not product:
                term = term * self._parameter(size)
            total = total + (term if factor > 0 else -term)
        return total

    def _generic_atom(self, atom: Atom) -> Atom:
        if not atom.args:
            return atom
        found = self._generic.get(atom)
        if found is None:
            found = self._generic[atom] = Atom(atom.kind, atom.number, tuple(map(self.generic, atom.args)))
        return found

    def _parameter(self, number: int) -> Index:
        found = self._params.get(number)
        if found is None:
            found = self._params[number] = self.builder.param()
        return found
