"""Values of a CPU kernel at a place of its loops: instructions, index expressions, loads, stores and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llvmlite import ir

from gpujit.kernels.cpu_nest import ANY, EVALUATED, ONE, SAME, STEPS, Nest
from gpujit.kernels.cpu_ops import cast, compute, held
from gpujit.kernels.index import DIM, DIV, PARAM, SIZE, Atom, Index
from gpujit.kernels.math import EXP_BELOW, INVERSE, QUOTIENT, QUOTIENT_OF_LESS
from gpujit.kernels.schedule import moves
from gpujit.kernels.tile import (
    ArrayType,
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Load,
    NotRendered,
    Position,
    Store,
)
from gpujit.kernels.vector import Emitter, Vector


class Scope:
    """Values known at one place of the loops, those of the places around it included."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.values: dict[int, Vector] = {}

    def find(self, value: int) -> Vector | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.values.get(value)
            if found is not None:
                return found
            scope = scope.outer
        return None


class Point(Scope):
    """A place inside the lanes' loop: ``at`` is the first lane's place, ``mask`` is set for lanes that exist (or None).

    ``lanes`` is 1 for what happens once for all lanes.
    """

    def __init__(
        self, outer: Scope, lanes: int, at: Vector | None, mask: Vector | None, kept_at: Vector | None
    ) -> None:
        super().__init__(outer)
        self.lanes, self.at, self.mask, self.kept_at = lanes, at, mask, kept_at


def inverse_of(value: int) -> int:
    """The number under which a scope keeps the inverse of a divisor."""
    return -1 - value


class Values:
    """The arguments in a kernel's block, and what turns a program's instructions into LLVM's.

    The loops around (``cpu``) keep ``index``, the place along each dim but the lanes', and ``offsets``, those of
    accesses along the tasks' dims.
    """

    def __init__(self, nest: Nest, e: Emitter, block: ir.Value) -> None:
        self.nest, self.e, self.b, self.p = nest, e, e.builder, nest.program
        self.block = block
        slots = nest.slots
        self.sizes = [self.word(slots["sizes"] + d) for d in range(self.p.dims)]
        self.params = [self.word(slots["params"] + k) for k in range(self.p.params)]
        self.inputs = [e.pointer(self.word(slots["inputs"] + k).value) for k in range(len(self.p.inputs))]
        self.outputs = [e.pointer(self.word(slots["outputs"] + k).value) for k in range(len(self.p.outputs))]
        self.index: dict[int, Vector] = {}
        items = self.items = moves(self.p)
        # Equal loads share an instruction; an effect may equal another one, and has the same access then.
        self.access_of = {id(item): k for k, item in enumerate(items)}
        self.steps = [
            [self.step(k, d, slots["accesses"] + k * (1 + self.p.dims) + 1 + d) for d in range(self.p.dims)]
            for k in range(len(items))
        ]
        self.first = [self.word(slots["accesses"] + k * (1 + self.p.dims)) for k in range(len(items))]
        self.offsets: dict[int, Vector] = {}
        self.divisors = nest.divisors
        # Whether stores pass by the caches at this place.
        self.streaming = False
        # Only who evaluates an index multiplies by strides.
        evaluated = {
            (isinstance(i, Store), i.array)
            for i, kind in zip(items, nest.classes, strict=True)
            if kind.endswith((ANY, EVALUATED)) or kind[0] == ANY
        }
        self.input_strides = self.strides("input_strides", self.p.inputs, [k for s, k in evaluated if not s])
        self.output_strides = self.strides("output_strides", self.p.outputs, [k for s, k in evaluated if s])

    def scalar(self, value: ir.Value) -> Vector:
        return Vector(self.e, value, "int64", 1)

    def number(self, value: int) -> Vector:
        return self.e.constant("int64", 1, value)

    def word(self, slot: int) -> Vector:
        return self.e.load(self.block, slot, "int64", 1)

    def step(self, access: int, dim: int, slot: int) -> Vector:
        """How far an access moves along a dim. Along the lanes its class says so, unless it is the block's to say."""
        kind = self.nest.classes[access][0]
        return self.word(slot) if dim != self.nest.lane or kind == STEPS else self.number(int(kind == ONE))

    def strides(self, name: str, arrays: Sequence[ArrayType], used: Sequence[int]) -> list[list[Vector]]:
        """Strides of the arrays that are used; empty lists for the others."""
        at, found = self.nest.slots[name], []
        for number, a in enumerate(arrays):
            found.append([self.word(at + k) for k in range(a.rank)] if number in used else [])
            at += a.rank
        return found

    def product(self, numbers: Iterable[Vector]) -> Vector:
        total = self.number(1)
        for n in numbers:
            total = total * n
        return total

    def know(self, scope: Scope, v: int, found: Vector) -> None:
        """A value is known from here on, and its inverse if that is worth while."""
        scope.values[v] = found
        if v in self.divisors:
            scope.values[inverse_of(v)] = INVERSE(self.e, found)

    def wide(self, v: int, point: Point) -> Vector:
        """A value in every lane."""
        found = point.find(v)
        assert found is not None, f"%{v} is not known at this place"
        return self.e.broadcast(found, point.lanes)

    def operand(self, v: int, scope: Scope, lanes: int) -> Vector:
        found = scope.find(v)
        assert found is not None, f"%{v} is not known at this place"
        return self.e.broadcast(found, lanes)

    def emit(self, v: int, scope: Scope, lanes: int) -> Vector:
        """The value's instructions; all it needs is known in the scope."""
        item, e = self.p.body[v], self.e
        if isinstance(item, Const):
            return e.constant(held(item.dtype), lanes, item.value)
        if isinstance(item, Load):
            return self.load(item, scope, lanes)
        if isinstance(item, Compute):
            operands = [self.operand(u, scope, lanes) for u in item.operands]
            if item.op == "cast":
                return cast(e, operands[0], self.p.body[item.operands[0]].dtype, item.dtype)
            if item.op == "div" and lanes > 1:
                inverse = scope.outer.find(inverse_of(item.operands[1])) if scope.outer else None
                if inverse is not None:
                    by = self.p.body[item.operands[1]]
                    divide = QUOTIENT_OF_LESS if isinstance(by, Const) and 1 <= by.value <= 2.0**100 else QUOTIENT
                    return divide(e, *operands, e.broadcast(inverse, lanes))
            if v in self.nest.exponentials_below:
                return EXP_BELOW(e, *operands)
            return compute(e, item.op, operands)
        if isinstance(item, Count):
            count = self.product(self.sizes[d] for d in self.p.row_dims)
            return e.broadcast(e.cast(count, held(item.dtype)), lanes)
        if isinstance(item, Position):
            return self.evaluate(item.index, scope, lanes)
        if isinstance(item, Inside):
            holds = e.constant("bool", lanes, True)
            for bound in item.bounds:
                at = self.evaluate(bound.index, scope, lanes)
                holds = holds & (at >= self.evaluate(bound.low, scope, lanes))
                holds = holds & (at < self.evaluate(bound.high, scope, lanes))
            return holds
        if isinstance(item, Call):
            raise NotRendered(f"the function {item.name}")
        raise NotRendered(f"{item}")

    def evaluate(self, i: Index, scope: Scope, lanes: int) -> Vector:
        """An index as int64, one for each lane."""
        e = self.e
        # Products that are the same in all lanes are added up as scalars.
        uniform = self.number(0)
        total: Vector | None = None
        for product, factor in i.terms:
            term, varies = self.number(factor), False
            for atom in product:
                x = self.atom(atom, scope, lanes)
                if x.lanes > 1 and not varies:
                    term, varies = e.broadcast(term, lanes), True
                term = term * (e.broadcast(x, lanes) if varies else x)
            if varies:
                total = term if total is None else total + term
            else:
                uniform = uniform + term
        if total is None:
            return e.broadcast(uniform, lanes)
        return total + e.broadcast(uniform, lanes)

    def atom(self, atom: Atom, scope: Scope, lanes: int) -> Vector:
        e = self.e
        kind, number, args = atom.kind, atom.number, atom.args
        if args:
            a, b = (self.evaluate(arg, scope, lanes) for arg in args)
            safe = e.select(b == 0, 1, b)
            divide = self.b.udiv if kind == DIV else self.b.urem
            return a._new(divide(a.value, safe.value))
        if kind == DIM:
            if number != self.nest.lane:
                return self.index[number]
            point = self.point(scope)
            assert point is not None and point.at is not None
            if lanes == 1:
                return point.at
            return e.broadcast(point.at, lanes) + e.iota("int64", lanes)
        if kind == SIZE:
            return self.sizes[int(number)]
        if kind == PARAM:
            return self.params[int(number)]
        found = scope.find(number)
        assert found is not None
        return e.cast(found, "int64")

    def point(self, scope: Scope) -> Point | None:
        """The nearest point around a scope."""
        current: Scope | None = scope
        while current is not None and not isinstance(current, Point):
            current = current.outer
        return current

    def offset(self, k: int, item: Load | Store, scope: Scope) -> Vector:
        """The offset of access ``k`` in elements, for the first lane."""
        if self.nest.classes[k].endswith((ANY, EVALUATED)):
            strides = (self.output_strides if isinstance(item, Store) else self.input_strides)[item.array]
            total = self.number(0)
            for at, stride in zip(item.coords, strides, strict=True):
                total = total + self.evaluate(at, scope, 1) * stride
            return total
        start = self.offsets.get(k, self.first[k])
        named = frozenset().union(*(c.dims() for c in item.coords)) if item.coords else frozenset()
        for d in self.nest.nest_dims:
            if d in named:
                start = start + self.index[d] * self.steps[k][d]
        if self.nest.lane in named:
            point = self.point(scope)
            if point is not None and point.at is not None:
                step = self.nest.classes[k]
                if step == ONE:
                    start = start + point.at
                elif step == STEPS:
                    start = start + point.at * self.steps[k][self.nest.lane]
        return start

    def load(self, item: Load, scope: Scope, lanes: int) -> Vector:
        e, k = self.e, self.access_of[id(item)]
        dtype, address = item.dtype.name, self.inputs[item.array]
        held(item.dtype)
        point = self.point(scope)
        mask = None if item.mask is None else self.operand(item.mask, scope, lanes)
        if lanes > 1 and point is not None and point.mask is not None:
            mask = point.mask if mask is None else mask & point.mask
        other = 0 if item.other is None else item.other.value
        kind = self.nest.classes[k][0]
        if lanes > 1 and kind == ANY:
            return e.gather(address, self.places(item, scope, lanes), dtype, mask, other)
        at = self.offset(k, item, scope).value
        named = frozenset().union(*(c.dims() for c in item.coords)) if item.coords else frozenset()
        if lanes == 1:
            return e.load(address, at, dtype, 1, mask, other=other)
        if kind == SAME or self.nest.lane not in named:
            if item.mask is None:
                return e.broadcast(e.load(address, at, dtype, 1), lanes)
            assert mask is not None
            found = e.broadcast(e.load(address, at, dtype, 1, e.any(mask)), lanes)
            return e.select(mask, found, other)
        if kind == ONE:
            return e.load(address, at, dtype, lanes, mask, other=other)
        step = self.steps[k][self.nest.lane].value
        return e.load(address, at, dtype, lanes, mask, stride=step, other=other)

    def places(self, item: Load | Store, scope: Scope, lanes: int) -> Vector:
        """The offset of each lane."""
        strides = (self.output_strides if isinstance(item, Store) else self.input_strides)[item.array]
        total = self.e.constant("int64", lanes, 0)
        for at, stride in zip(item.coords, strides, strict=True):
            total = total + self.evaluate(at, scope, lanes) * self.e.broadcast(stride, lanes)
        return total

    def effect(self, effect: Effect, point: Point) -> None:
        e = self.e
        if isinstance(effect, Check):
            fails = ~self.wide(effect.value, point)
            if point.mask is not None:
                fails = fails & point.mask
            number = [c for c in self.p.effects if isinstance(c, Check)].index(effect)
            with self.b.if_then(e.any(fails).value, likely=False):
                flags = e.pointer(self.word(self.nest.slots["flags"]).value)
                e.store(flags, number, self.number(1))
            return
        k = self.access_of[id(effect)]
        address, dtype = self.outputs[effect.array], self.p.outputs[effect.array].dtype.name
        value = self.wide(effect.value, point)
        mask = None if effect.mask is None else self.wide(effect.mask, point)
        if point.mask is not None:
            mask = point.mask if mask is None else mask & point.mask
        kind = self.nest.classes[k][0]
        if point.lanes > 1 and kind == ANY:
            e.scatter(address, self.places(effect, point, point.lanes), value, dtype, mask)
            return
        at = self.offset(k, effect, point).value
        if point.lanes == 1 or kind == ONE:
            e.store(address, at, value, dtype, mask, stream=self.streaming)
        else:
            e.store(address, at, value, dtype, mask, stride=self.steps[k][self.nest.lane].value)
