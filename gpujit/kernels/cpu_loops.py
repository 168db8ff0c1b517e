"""The loops of a CPU kernel over tasks, runs over rows and vectors.

State that changes along loops lives in stack slots, which LLVM turns into registers. Values are computed in the
outermost place where they are known: once for a kernel's call, a task, a turn of the loops over row dims, or for each
vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from llvmlite import ir

from gpujit.kernels.cpu_nest import AHEAD, BLOCK, MAX_UNROLL, SEGMENTS, Nest
from gpujit.kernels.cpu_ops import compute, held
from gpujit.kernels.cpu_reduce import Accumulator, scanned, take
from gpujit.kernels.cpu_values import Point, Scope, Values
from gpujit.kernels.schedule import Pass
from gpujit.kernels.tile import Reduce, Store, operands_of
from gpujit.kernels.vector import I64, Emitter, Vector


class Loops(Values):
    """The loops of a kernel: tasks, passes over rows, vectors."""

    def __init__(self, nest: Nest, e: Emitter, block: ir.Value, part: ir.Value, parts: ir.Value) -> None:
        super().__init__(nest, e, block)
        self.part, self.parts = self.scalar(part), self.scalar(parts)
        self.entry = self.b.block
        self.kept = self.kept_places()
        # Whether whole vectors of all results are aligned from here on; None where they need not be.
        self.aligned: Vector | None = None

    def variable(self, start: Vector) -> ir.Value:
        """A stack slot, which is made where the function begins, so that loops do not make it again and again."""
        with self.b.goto_block(self.entry):
            first = self.entry.instructions[0] if self.entry.instructions else None
            if first is not None:
                self.b.position_before(first)
            slot = self.b.alloca(start.value.type)
        self.b.store(start.value, slot)
        return slot

    def read(self, slot: ir.Value, like: Vector) -> Vector:
        return like._new(self.b.load(slot, typ=like.value.type))

    @contextmanager
    def loop(self, start: Vector, stop: Vector, step: int = 1) -> Iterator[Vector]:
        b = self.b
        before = b.block
        body, done = b.append_basic_block("loop"), b.append_basic_block("done")
        b.cbranch((start < stop).value, body, done)
        b.position_at_end(body)
        phi = b.phi(I64)
        phi.add_incoming(start.value, before)
        yield self.scalar(phi)
        following = b.add(phi, self.number(step).value, flags=("nsw",))
        phi.add_incoming(following, b.block)
        b.cbranch((self.scalar(following) < stop).value, body, done)
        b.position_at_end(done)

    def kept_places(self) -> dict[int, ir.Value]:
        """Where this part keeps each kept value, but those that lie in a result; of cut rows, where the first is."""
        nest, e = self.nest, self.e
        scratch = [v for v in nest.kept if v not in nest.kept_in]
        if not scratch:
            return {}
        start = self.word(nest.slots["scratch"])
        others = self.product(self.sizes[d] for d in nest.nest_dims)
        if nest.segmented:
            others = self.product(self.sizes[d] for d in nest.task_dims)
            start = start + others * (8 * SEGMENTS * len(nest.reductions))
        elif not nest.ranged:
            start = start + self.word(nest.slots["scratch_bytes"]) * self.part
        lanes = nest.width * nest.unroll
        elements = others * lanes if nest.across_rows else others * (self.sizes[nest.lane] + lanes)
        found = {}
        for v in scratch:
            found[v] = e.pointer(start.value)
            start = start + elements * (8 if self.bits(v) == 64 else max(self.bits(v) // 8, 1))
        return found

    def bits(self, value: int) -> int:
        kind = held(self.p.body[value].dtype)
        return 8 if kind == "bool" else self.e.constant(kind, 1, 0).element.bits

    def write(self) -> None:
        nest, b = self.nest, self.b
        chunk = self.word(nest.slots["chunk"])
        dims = list(nest.task_dims)
        tasks = self.product(self.sizes[d] for d in dims)
        chunks = self.number(1)
        if nest.is_chunked and not nest.ranged:
            chunks = self.divided(self.sizes[nest.lane] + chunk - 1, chunk)
        total = tasks * chunks
        if nest.ranged:
            low, high = self.part, self.parts
        else:
            low = self.divided(total * self.part, self.parts)
            high = self.divided(total * (self.part + 1), self.parts)
        function = Scope()
        with b.if_then((low < high).value):
            # Not before: an empty space may have empty arrays.
            self.fill(function, self.ready_at_start(), lambda v: True, 1)
            slots = self.start(low, dims, tasks)
            with self.loop(low, high):
                for d in dims:
                    self.index[d] = self.read(slots[d], self.number(0))
                for k, slot in slots.items():
                    if k < 0:
                        self.offsets[-1 - k] = self.read(slot, self.number(0))
                if nest.is_chunked and nest.ranged:
                    first, last = chunk, self.word(nest.slots["ended"])
                elif nest.is_chunked:
                    first = self.read(slots[nest.lane], self.number(0)) * chunk
                    end = first + chunk
                    last = self.e.select(end < self.sizes[nest.lane], end, self.sizes[nest.lane])
                else:
                    first, last = self.number(0), self.sizes[nest.lane]
                self.task(Scope(function), first, last)
                self.advance(slots, dims)

    def divided(self, a: Vector, n: Vector) -> Vector:
        """a / n of numbers that are not negative; n may be 0 where a is."""
        safe = self.e.select(n == 0, 1, n)
        return self.scalar(self.b.udiv(a.value, safe.value))

    def start(self, low: Vector, dims: Sequence[int], tasks: Vector) -> dict[int, ir.Value]:
        """Slots for places along task dims, for the chunk (under the lanes' dim), for offsets (-1 - access)."""
        nest = self.nest
        slots: dict[int, ir.Value] = {}
        if nest.is_chunked:
            slots[nest.lane] = self.variable(self.divided(low, tasks))
            safe = self.e.select(tasks == 0, 1, tasks)
            low = self.scalar(self.b.urem(low.value, safe.value))
        for d in reversed(dims):
            n = self.sizes[d]
            above = self.divided(low, n)
            self.index[d] = low - above * n
            slots[d] = self.variable(self.index[d])
            low = above
        for k, steps in enumerate(self.steps):
            at = self.first[k]
            for d in dims:
                at = at + self.index[d] * steps[d]
            slots[-1 - k] = self.variable(at)
        return slots

    def advance(self, slots: dict[int, ir.Value], dims: Sequence[int]) -> None:
        """On to the next task: the last task dim counts, and carries."""
        nest, zero = self.nest, self.number(0)
        if not dims:
            if nest.is_chunked:
                self.b.store((self.read(slots[nest.lane], zero) + 1).value, slots[nest.lane])
            return

        def count(position: int) -> None:
            d = dims[position]
            following = self.index[d] + 1
            carry = following == self.sizes[d]
            wrapped = self.e.select(carry, 0, following)
            self.b.store(wrapped.value, slots[d])
            moved = wrapped - self.index[d]
            for k in range(len(self.steps)):
                slot = slots[-1 - k]
                self.b.store((self.read(slot, zero) + moved * self.steps[k][d]).value, slot)
            if position:
                with self.b.if_then(carry.value):
                    count(position - 1)
            elif nest.is_chunked:
                with self.b.if_then(carry.value):
                    self.b.store((self.read(slots[nest.lane], zero) + 1).value, slots[nest.lane])

        count(len(dims) - 1)

    def task(self, scope: Scope, first: Vector, last: Vector) -> None:
        if not self.nest.across_rows:
            self.passes(scope, first, last, None)
            return
        lanes = self.nest.width * self.nest.unroll
        whole = last - first >= lanes
        with self.b.if_else(whole.value) as (full, rest):
            with full:
                inner = Scope(scope)
                points = [self.place(inner, first, None, u) for u in range(self.nest.unroll)]
                self.passes(inner, first, last, points)
            with rest, self.loop(first, last, self.nest.width) as at:
                mask = self.e.tail_mask(last - at, self.nest.width)
                inner = Scope(scope)
                self.passes(inner, at, last, [self.place(inner, at, mask, 0)])

    def place(self, scope: Scope, first: Vector, mask: Vector | None, u: int) -> Point:
        return Point(scope, self.nest.width, first + u * self.nest.width, mask, self.number(u * self.nest.width))

    def passes(self, scope: Scope, first: Vector, last: Vector, points: list[Point] | None) -> None:
        items = self.nest.passes
        vectors = self.whole_row(scope, last) if self.nest.whole else []
        if self.nest.online:
            self.online(scope, first, last)
            items = items[2:]
        for item in items:
            if points is None:
                # Rows of no dims: all is computed at each point, but what is the same along the lanes.
                self.fill(scope, item.row, lambda v: True, 1)
                for effect in item.row_effects:
                    self.effect(effect, Point(scope, 1, None, None, None))
            else:
                self.fill(scope, item.row, lambda v: self.nest.lane not in self.p.varies[v], 1)
                for point in points:
                    self.fill(point, item.row, lambda v: self.nest.lane in self.p.varies[v], self.nest.width)
                    for effect in item.row_effects:
                        self.effect(effect, point)
            if not item.reduces and not item.effects:
                continue
            count = min(self.nest.unroll, MAX_UNROLL) if points is None else len(points)
            sums = {v: [self.accumulator(v) for _ in range(count)] for v in item.reduces}
            if points is None:
                self.fill(scope, item.full, lambda v: not self.p.varies[v] & self.inner_dims(), 1)
                if vectors:
                    scans = {v: self.scan_slot(v) for v in item.full if self.is_scan(v)}
                    for k in range(0, len(vectors), MAX_UNROLL):
                        self.vectors(item, vectors[k : k + MAX_UNROLL], sums, scans)
                else:
                    with self.nested(self.nest.nest_dims) as row:
                        self.row(item, scope, first, last, sums, row)
                for v, parts in sums.items():
                    self.know(scope, v, parts[0].across(parts[1:]))
            else:
                with self.nested(self.nest.nest_dims) as row:
                    self.column(item, scope, points, sums, row)
                for v, parts in sums.items():
                    if self.nest.lane not in self.p.varies[v]:
                        self.know(scope, v, self.e.lane(parts[0].result(), 0))
                        continue
                    for point, part in zip(points, parts, strict=True):
                        self.know(point, v, part.result())

    def whole_row(self, scope: Scope, length: Vector) -> list[Point]:
        """The vectors of a row that stays in registers: what one run computes of them the next ones find there."""
        width, count = self.nest.width, self.nest.unroll
        places = [self.number(u * width) for u in range(count)]
        cut = self.e.tail_mask(length - places[-1], width) if self.nest.whole == "cut" else None
        return [Point(scope, width, at, cut if at is places[-1] else None, at) for at in places]

    def online(self, scope: Scope, first: Vector, last: Vector) -> None:
        """The maximum of a row and the sum of exponentials below it: each block is read from memory once.

        When a block raises the maximum, the sum so far is scaled down to it.
        """
        e, (start, following) = self.e, self.nest.passes[:2]
        (top,), (total,) = start.reduces, following.reduces
        self.fill(scope, start.row, lambda v: True, 1)
        self.fill(scope, start.full, lambda v: not self.p.varies[v] & self.inner_dims(), 1)
        kind = held(self.p.body[top].dtype)
        least, nothing = e.constant(kind, 1, float("-inf")), e.constant(kind, 1, 0.0)
        top_slot, total_slot = self.variable(least), self.variable(nothing)
        with self.loop(first, last, BLOCK) as at:
            end = at + BLOCK
            end = e.select(end < last, end, last)
            parts = {top: [self.accumulator(top) for _ in range(self.nest.unroll)]}
            self.row(start, scope, at, end, parts, self.number(0))
            before = self.read(top_slot, least)
            highest = e.maximum(before, parts[top][0].across(parts[top][1:]))
            self.b.store(highest.value, top_slot)
            inner = Scope(scope)
            # Below nothing but -inf there is nothing to add; NaN is for the end to say.
            inner.values[top] = e.select(highest == float("-inf"), 0.0, highest)
            parts = {total: [self.accumulator(total) for _ in range(self.nest.unroll)]}
            self.row(following, inner, at, end, parts, self.number(0))
            scale = e.select(before == highest, 1.0, compute(e, "exp", [before - highest]))
            added = parts[total][0].across(parts[total][1:])
            self.b.store((self.read(total_slot, nothing) * scale + added).value, total_slot)
        highest, found = self.read(top_slot, least), self.read(total_slot, nothing)
        self.know(scope, top, highest)
        empty = (highest == float("-inf")) & (first < last)
        self.know(scope, total, e.select(empty, float("nan"), found))

    def inner_dims(self) -> frozenset[int]:
        """Dims of the loops inside a task, when lanes lie within rows."""
        return frozenset((*self.nest.nest_dims, self.nest.lane))

    def accumulator(self, v: int) -> Accumulator:
        item = self.reduction(v)
        return Accumulator(self.e, item, held(self.p.body[item.operand].dtype), self.nest.width, self.variable)

    @contextmanager
    def nested(self, dims: Sequence[int]) -> Iterator[Vector]:
        """Loops over row dims; gives how many turns came before."""
        if not dims:
            yield self.number(0)
            return
        *outer, d = dims
        with self.nested(outer) as before, self.loop(self.number(0), self.sizes[d]) as i:
            self.index[d] = i
            yield before * self.sizes[d] + i

    def row(
        self, item: Pass, scope: Scope, first: Vector, last: Vector, sums: dict[int, list[Accumulator]], turn: Vector
    ) -> None:
        """The lanes' loop of one pass: vectors side by side while there are enough elements, then one at a time."""
        nest, e = self.nest, self.e
        width, unroll = nest.width, nest.unroll
        inner = Scope(scope)
        full = item.full
        lane = nest.lane
        self.fill(inner, full, lambda v: lane not in self.p.varies[v], 1)
        scans = {v: self.scan_slot(v) for v in full if self.is_scan(v)}
        kept_row = turn * (self.sizes[lane] + width * unroll)
        if nest.streams:
            first = self.begin_streams(item, inner, first, last)
        count = last - first
        wide = count & -(width * unroll)
        if unroll > 1:
            with self.loop(first, first + wide, width * unroll) as start:
                places = [start + u * width for u in range(unroll)]
                self.vectors(item, [Point(inner, width, at, None, kept_row + at) for at in places], sums, scans)
            done = first + wide
        else:
            done = first + (count & -width)
            with self.loop(first, done, width) as at:
                self.vectors(item, [Point(inner, width, at, None, kept_row + at)], sums, scans)
        # Where one vector would wait for long chains, two of them do so together, though the second may be empty. Of a
        # row that is cut, it may be another part's.
        together = 2 if unroll > 1 and width > 1 and nest.is_heavy(item) and not nest.segmented else 1
        with self.loop(done, last, width * together) as start:
            points = []
            for at in [start, start + width][:together]:
                mask = e.tail_mask(last - at, width) if width > 1 else None
                points.append(Point(inner, width, at, mask, kept_row + at))
            self.vectors(item, points, sums, scans)

    def begin_streams(self, item: Pass, inner: Scope, first: Vector, last: Vector) -> Vector:
        """The elements before the first whole vector of the first result's memory, and where that one begins.

        From there on stores pass by the caches when all results are aligned.
        """
        e, width = self.e, self.nest.width
        stores = [(k, i) for k, i in enumerate(self.items) if isinstance(i, Store)]

        def places(at: Vector) -> Iterator[tuple[Vector, int, int]]:
            for k, store in stores:
                itemsize = self.p.outputs[store.array].dtype.itemsize
                offset = self.offset(k, store, Point(inner, width, at, None, None)) * itemsize
                yield self.scalar(self.b.ptrtoint(self.outputs[store.array], I64)) + offset, itemsize, width * itemsize

        address, itemsize, size = next(places(first))
        before = self.divided(-address & (size - 1), self.number(itemsize))
        before = e.select(before > last - first, last - first, before)
        with self.b.if_then((before > 0).value):
            self.vectors(item, [Point(inner, width, first, e.tail_mask(before, width), first)], {}, {})
        aligned = e.constant("bool", 1, True)
        for address, _, size in places(first + before):
            aligned = aligned & ((address & (size - 1)) == 0)
        self.aligned = aligned
        return first + before

    def column(
        self, item: Pass, scope: Scope, points: list[Point], sums: dict[int, list[Accumulator]], turn: Vector
    ) -> None:
        """One turn of the loops over rows, for vectors of rows."""
        inner = Scope(scope)
        lane = self.nest.lane
        self.fill(inner, item.full, lambda v: lane not in self.p.varies[v] and bool(self.p.varies[v]), 1)
        lanes = self.nest.width * self.nest.unroll
        inside = []
        for u, point in enumerate(points):
            inside.append(Point(point, point.lanes, point.at, point.mask, turn * lanes + u * self.nest.width))
            # What the row loops know is found through this scope as well.
            inside[-1].values.update(inner.values)
        self.vectors(item, inside, sums, {})

    def vectors(
        self, item: Pass, points: Sequence[Point], sums: dict[int, list[Accumulator]], scans: dict[int, ir.Value]
    ) -> None:
        """What a pass does at some vectors: value by value for all, so that one's work hides another's waits."""
        needed = self.nest.needed(item)
        if item is self.nest.fetching:
            self.fetch(points)
        for v in item.full:
            if v in needed:
                for point in points:
                    if point.find(v) is None:
                        point.values[v] = self.value(v, item, point, scans)
        for v, parts in sums.items():
            numbers = [self.wide(self.reduction(v).operand, point) for point in points]
            places = [partial(self.row_position, point) for point in points]
            take(parts, numbers, [point.mask for point in points], places, apart=self.nest.across_rows)
        if self.aligned is None or any(point.mask is not None for point in points):
            self.effects(item, points)
            return
        # One branch for all stores: LLVM moves what only a later one needs behind the branch of an earlier one.
        with self.b.if_else(self.aligned.value) as (past, usual):
            with past:
                self.streaming = True
                self.effects(item, points)
                self.streaming = False
            with usual:
                self.effects(item, points)

    def effects(self, item: Pass, points: Sequence[Point]) -> None:
        for effect in item.effects:
            for point in points:
                self.effect(effect, point)

    def fetch(self, points: Sequence[Point]) -> None:
        """Ask for what will be read after what is read at these places."""
        nest = self.nest
        d, ahead = (nest.nest_dims[-1], AHEAD) if nest.across_rows else (nest.task_dims[-1], 1)
        for k in nest.fetched:
            item = self.items[k]
            for point in points:
                at = self.offset(k, item, point) + self.steps[k][d] * ahead
                self.e.prefetch(self.inputs[item.array], at.value, self.p.inputs[item.array].dtype.name)
        for k in nest.written_later:
            item = self.items[k]
            for point in points:
                at = self.offset(k, item, point)
                self.e.prefetch(self.outputs[item.array], at.value, self.p.outputs[item.array].dtype.name, True)

    def value(self, v: int, item: Pass, point: Point, scans: dict[int, ir.Value]) -> Vector:
        """A value of a pass at a vector: computed, or read from where it was kept."""
        is_kept = v in self.nest.kept
        if is_kept and v in item.repeated:
            return self.read_kept(v, point)
        if v in scans:
            operand = self.wide(self.reduction(v).operand, point)
            found = scanned(self.e, self.reduction(v), operand, point.mask, scans[v])
        else:
            varies = self.nest.lane in self.p.varies[v] or self.nest.across_rows
            found = self.emit(v, point, point.lanes if varies else 1)
        if is_kept:
            self.keep(v, point, self.e.broadcast(found, point.lanes))
        return found

    def read_kept(self, v: int, point: Point) -> Vector:
        """A kept value at a vector."""
        address, at, mask = self.kept_place(v, point)
        return self.e.load(address, at, held(self.p.body[v].dtype), point.lanes, mask)

    def keep(self, v: int, point: Point, found: Vector) -> None:
        """Write a kept value for later passes."""
        address, at, mask = self.kept_place(v, point)
        self.e.store(address, at, found, held(self.p.body[v].dtype), mask)

    def kept_place(self, v: int, point: Point) -> tuple[ir.Value, ir.Value, Vector | None]:
        """Where the lanes of a kept value are: an address, elements behind it, and which lanes exist.

        Scratch memory has room for all lanes.
        """
        access = self.nest.kept_in.get(v)
        if access is None:
            assert point.kept_at is not None
            return self.kept[v], point.kept_at.value, None
        item = self.items[access]
        return self.outputs[item.array], self.offset(access, item, point).value, point.mask

    def reduction(self, v: int) -> Reduce:
        item = self.p.body[v]
        assert isinstance(item, Reduce)
        return item

    def is_scan(self, v: int) -> bool:
        item = self.p.body[v]
        return isinstance(item, Reduce) and item.is_scan

    def scan_slot(self, v: int) -> ir.Value:
        item = self.reduction(v)
        neutral = 0 if item.op == "cumsum" else 1
        return self.variable(self.e.constant(held(item.dtype), 1, neutral))

    def row_position(self, point: Point) -> Vector:
        """The place in the row (its dims in order) of each lane, as int64."""
        total = self.number(0)
        for d in self.p.row_dims:
            if d != self.nest.lane:
                total = total * self.sizes[d] + self.index[d]
            else:
                assert point.at is not None
                total = total * self.sizes[d] + point.at
        wide = self.e.broadcast(total, point.lanes)
        if self.nest.across_rows or point.lanes == 1:
            return wide
        step = self.product(self.sizes[d] for d in self.p.row_dims if d > self.nest.lane)
        return wide + self.e.iota("int64", point.lanes) * self.e.broadcast(step, point.lanes)

    def ready_at_start(self) -> list[int]:
        """Values that vary nowhere and can be computed before any task, since they need no row."""
        ready: list[bool] = []
        for item in self.p.body:
            ready.append(not isinstance(item, Reduce) and all(ready[u] for u in operands_of(item)))
        return [v for v, is_ready in enumerate(ready) if is_ready and not self.p.varies[v]]

    def fill(self, scope: Scope, values: Iterable[int], here: Callable[[int], bool], lanes: int) -> None:
        """Compute those of the values that belong here and are not known yet."""
        for v in values:
            if scope.find(v) is None and here(v) and not self.is_scan(v) and not self.waits(v, scope):
                self.know(scope, v, self.emit(v, scope, lanes))

    def waits(self, v: int, scope: Scope) -> bool:
        """Whether something the value needs is not known here yet."""
        return any(scope.find(u) is None for u in operands_of(self.p.body[v]))
