"""CPU kernels in which threads share a row: they take parts of it, run after run.

Each run over a row (``schedule.Pass``) has SEGMENTS tasks, always the same ones, in the order of memory. Tasks are
numbered through all runs over the first row, then those over the next one; a thread draws the next number, waits until
all tasks of the runs before are done, and does it. Those before were drawn by somebody who is at work, so nobody waits
for a task that has no thread, even when one thread does all parts. What a run needs of those before it, each thread
puts together itself, in the order of segments: no result depends on the number of threads, or on who was first.

What segments give, and values kept for later runs, lie in the first part's scratch memory.
"""

from __future__ import annotations

import platform

from llvmlite import ir

from gpujit.kernels.cpu_loops import Loops
from gpujit.kernels.cpu_nest import SEGMENTS
from gpujit.kernels.cpu_ops import compute, held
from gpujit.kernels.cpu_reduce import Accumulator
from gpujit.kernels.cpu_values import Point, Scope
from gpujit.kernels.schedule import Pass
from gpujit.kernels.target import SPINS_BEFORE_YIELD
from gpujit.kernels.vector import I32, I64, Vector

# Words behind the block's ``ended``: parts that left, tasks drawn, tasks done.
LEFT, DRAWN, DONE = 0, 1, 2


class Segments(Loops):
    """Rows that are cut."""

    def write(self) -> None:
        b, nest = self.b, self.nest
        rows = self.product(self.sizes[d] for d in nest.task_dims)
        self.segments = self.number(SEGMENTS)
        # Segments of all rows, and runs; the first two are one where they are taken together.
        self.total = rows * self.segments
        runs = [p for k, p in enumerate(nest.passes) if not (nest.online and k == 1)]
        all_tasks = self.total * len(runs)
        function = Scope()
        # The row and run that this thread has put together what was before for, and that.
        self.current = self.variable(self.number(-1))
        self.found = {v: self.variable(self.nothing(v)) for v in nest.reductions}
        with b.if_then((rows > 0).value):
            self.fill(function, self.ready_at_start(), lambda v: True, 1)
            draw, done = b.append_basic_block("draw"), b.append_basic_block("drawn")
            b.branch(draw)
            b.position_at_end(draw)
            number = self.count(DRAWN)
            work = b.append_basic_block("work")
            b.cbranch((number < all_tasks).value, work, done)
            b.position_at_end(work)
            turn = self.divided(number, self.segments)
            self.wait(turn * self.segments)
            row = self.divided(turn, self.number(len(runs)))
            run = turn - row * len(runs)
            self.go_to(row)
            is_new = self.read(self.current, turn) != turn
            b.store(turn.value, self.current)
            for k, item in enumerate(runs):
                with b.if_then((run == k).value):
                    self.segment(Scope(function), item, row, number - turn * self.segments, is_new)
            self.count(DONE)
            b.branch(draw)
            b.position_at_end(done)
            self.leave()

    def counter(self, which: int) -> ir.Value:
        """The address of one of the words that threads share."""
        return self.e.at(self.block, self.nest.slots["ended"] + which, "int64")

    def count(self, which: int) -> Vector:
        """One more; what it was before."""
        b, place, one = self.b, self.counter(which), self.number(1)
        with b.if_else((self.parts == 1).value) as (alone, together):
            with alone:
                # An atomic step would wait for all that is still being read.
                own = self.e.load(place, 0, "int64", 1)
                self.e.store(place, 0, own + one)
                here = b.block
            with together:
                shared = b.atomic_rmw("add", place, one.value, "acq_rel")
                there = b.block
        found = b.phi(I64)
        found.add_incoming(own.value, here)
        found.add_incoming(shared, there)
        return self.scalar(found)

    def wait(self, tasks: Vector) -> None:
        """Until so many tasks are done."""
        b, before = self.b, self.b.block
        look, spin, done = (b.append_basic_block(name) for name in ("look", "spin", "ready"))
        b.branch(look)
        b.position_at_end(look)
        spins = b.phi(I64)
        spins.add_incoming(ir.Constant(I64, 0), before)
        found = self.scalar(b.load_atomic(self.counter(DONE), "acquire", 8, typ=I64))
        b.cbranch((found < tasks).value, spin, done)
        b.position_at_end(spin)
        if platform.machine() in ("x86_64", "AMD64"):
            self.e.call("llvm.x86.sse2.pause", ir.VoidType(), [])
        with b.if_then((self.scalar(spins) > SPINS_BEFORE_YIELD).value, likely=False):
            # Who has the task that is waited for may need this processor.
            self.e.call("sched_yield", I32, [])
        spins.add_incoming(b.add(spins, ir.Constant(I64, 1)), b.block)
        b.branch(look)
        b.position_at_end(done)

    def leave(self) -> None:
        """The last part to leave makes the block ready for the next call."""
        left = self.count(LEFT)
        with self.b.if_then((left + 1 == self.parts).value):
            for which in (LEFT, DRAWN, DONE):
                self.e.store(self.counter(which), 0, self.number(0))

    def go_to(self, row: Vector) -> None:
        """The place along the dims of tasks."""
        for v, place in self.kept_places().items():
            size = (self.sizes[self.nest.lane] + self.nest.width * self.nest.unroll) * (self.bits(v) // 8)
            self.kept[v] = self.e.at(place, (row * size).value, "uint8")
        for d in reversed(self.nest.task_dims):
            above = self.divided(row, self.sizes[d])
            self.index[d] = row - above * self.sizes[d]
            row = above
        for k, steps in enumerate(self.steps):
            self.offsets[k] = self.first[k]
            for d in self.nest.task_dims:
                self.offsets[k] = self.offsets[k] + self.index[d] * steps[d]

    def nothing(self, v: int) -> Vector:
        """The start of a number of a reduction's type."""
        return self.e.constant(held(self.p.body[v].dtype), 1, 0)

    def segment(self, scope: Scope, item: Pass, row: Vector, number: Vector, is_new: Vector) -> None:
        """A segment of a run, and what happens once before that run, which is the first segment's to do."""
        nest, size = self.nest, self.sizes[self.nest.lane]
        # Whole vectors but at the row's end.
        first = self.divided(size * number, self.segments) & -nest.width
        following = self.divided(size * (number + 1), self.segments) & -nest.width
        last = self.e.select(number == SEGMENTS - 1, size, following)
        for before in nest.passes[: nest.passes.index(item)]:
            self.fill(scope, before.row, lambda v: True, 1)
            with self.b.if_then(is_new.value):
                for v, x in self.together(scope, before, row * self.segments).items():
                    self.b.store(x.value, self.found[v])
            for v in before.reduces:
                self.know(scope, v, self.read(self.found[v], self.nothing(v)))
        task = row * self.segments + number
        if nest.online and item is nest.passes[0]:
            self.online(scope, first, last)
            for run in nest.passes[:2]:
                for v in run.reduces:
                    self.e.store(self.place_of(v, task), 0, scope.values[v])
            return
        self.fill(scope, item.row, lambda v: True, 1)
        if item.row_effects:
            with self.b.if_then((number == 0).value):
                for effect in item.row_effects:
                    self.effect(effect, Point(scope, 1, None, None, None))
        if not item.reduces and not item.effects:
            return
        self.fill(scope, item.full, lambda v: not self.p.varies[v] & self.inner_dims(), 1)
        sums = {v: [self.accumulator(v) for _ in range(nest.unroll)] for v in item.reduces}
        self.row(item, scope, first, last, sums, self.number(0))
        for v, parts in sums.items():
            self.e.store(self.place_of(v, task), 0, parts[0].across(parts[1:]))

    def together(self, scope: Scope, item: Pass, first: Vector) -> dict[int, Vector]:
        """What a run gave for a row, of its segments in order; ``first`` is the number of the first one."""
        if self.nest.online and item is self.nest.passes[1]:
            return self.sum_below(scope, first)
        result = {}
        for v in item.reduces:
            kind = held(self.p.body[v].dtype)
            found = Accumulator(self.e, self.reduction(v), kind, 1, self.variable)
            with self.loop(self.number(0), self.segments) as k:
                found.put_in(self.e.load(self.place_of(v, first + k), 0, kind, 1))
            result[v] = found.result()
        return result

    def sum_below(self, scope: Scope, first: Vector) -> dict[int, Vector]:
        """The sum of exponentials below a row's maximum, of the sums below each segment's own one."""
        e, (start, following) = self.e, self.nest.passes[:2]
        (top,), (total,) = start.reduces, following.reduces
        kind = held(self.p.body[top].dtype)
        highest, nothing = scope.values[top], e.constant(kind, 1, 0.0)
        slot = self.variable(nothing)
        with self.loop(self.number(0), self.segments) as k:
            own = e.load(self.place_of(top, first + k), 0, kind, 1)
            part = e.load(self.place_of(total, first + k), 0, kind, 1) * compute(e, "exp", [own - highest])
            # There is nothing to add below -inf; NaN is for the end to say.
            added = e.select(own == float("-inf"), 0.0, part)
            self.b.store((self.read(slot, nothing) + added).value, slot)
        empty = (highest == float("-inf")) & (self.sizes[self.nest.lane] > 0)
        return {total: e.select(empty, float("nan"), self.read(slot, nothing))}

    def place_of(self, reduction: int, task: Vector) -> ir.Value:
        """Where what a task gives for a reduction lies."""
        number = self.nest.reductions.index(reduction)
        scratch = self.e.pointer(self.word(self.nest.slots["scratch"]).value)
        return self.e.at(scratch, (self.total * number + task).value, "int64")
