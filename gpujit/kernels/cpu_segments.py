"""CPU kernels in which threads share a row: each takes parts of it, and one puts the parts' numbers together."""

from __future__ import annotations

from llvmlite import ir

from gpujit.kernels.cpu_loops import Loops
from gpujit.kernels.cpu_nest import SEGMENTS
from gpujit.kernels.cpu_ops import held
from gpujit.kernels.cpu_reduce import Accumulator
from gpujit.kernels.cpu_values import Point, Scope
from gpujit.kernels.vector import Vector


class Segments(Loops):
    """Rows that are cut: each task takes a segment's numbers together, and who ends the last task the segments'.

    What segments give lies in the first part's scratch memory, 8 bytes each.
    """

    def write(self) -> None:
        b, dims = self.b, self.nest.task_dims
        rows = self.product(self.sizes[d] for d in dims)
        segments = self.number(SEGMENTS)
        total = rows * segments
        low = self.divided(total * self.part, self.parts)
        high = self.divided(total * (self.part + 1), self.parts)
        with b.if_then((low < high).value):
            function = Scope()
            self.fill(function, self.ready_at_start(), lambda v: True, 1)
            with self.loop(low, high) as task:
                row = self.divided(task, segments)
                self.go_to(row)
                self.segment(Scope(function), task, task - row * segments, total)
            ended = self.e.at(self.block, self.nest.slots["ended"], "int64")
            before = self.scalar(b.atomic_rmw("add", ended, (high - low).value, "acq_rel"))
            with b.if_then((before + (high - low) == total).value):
                self.e.store(ended, 0, self.number(0))
                with self.loop(self.number(0), rows) as row:
                    self.go_to(row)
                    self.together(Scope(function), row * segments, total)

    def go_to(self, row: Vector) -> None:
        """The place along the dims of tasks."""
        for d in reversed(self.nest.task_dims):
            above = self.divided(row, self.sizes[d])
            self.index[d] = row - above * self.sizes[d]
            row = above
        for k, steps in enumerate(self.steps):
            self.offsets[k] = self.first[k]
            for d in self.nest.task_dims:
                self.offsets[k] = self.offsets[k] + self.index[d] * steps[d]

    def segment(self, scope: Scope, task: Vector, number: Vector, total: Vector) -> None:
        """What a segment gives."""
        item, size = self.nest.passes[0], self.sizes[self.nest.lane]
        # Whole vectors but at the row's end.
        first = self.divided(size * number, self.number(SEGMENTS)) & -self.nest.width
        following = self.divided(size * (number + 1), self.number(SEGMENTS)) & -self.nest.width
        last = self.e.select(number == SEGMENTS - 1, size, following)
        self.fill(scope, item.row, lambda v: True, 1)
        self.fill(scope, item.full, lambda v: not self.p.varies[v] & self.inner_dims(), 1)
        sums = {v: [self.accumulator(v) for _ in range(self.nest.unroll)] for v in item.reduces}
        self.row(item, scope, first, last, sums, self.number(0))
        for n, parts in enumerate(sums.values()):
            self.e.store(self.place_of(total * n + task), 0, parts[0].across(parts[1:]))

    def together(self, scope: Scope, first: Vector, total: Vector) -> None:
        """A row's results, of those of its segments in order, and what follows from them."""
        start, item = self.nest.passes
        self.fill(scope, start.row, lambda v: True, 1)
        for n, v in enumerate(start.reduces):
            found = Accumulator(self.e, self.reduction(v), held(self.p.body[v].dtype), 1, self.variable)
            with self.loop(self.number(0), self.number(SEGMENTS)) as k:
                found.put_in(self.e.load(self.place_of(total * n + first + k), 0, held(self.p.body[v].dtype), 1))
            self.know(scope, v, found.value())
        self.fill(scope, item.row, lambda v: True, 1)
        for effect in item.row_effects:
            self.effect(effect, Point(scope, 1, None, None, None))

    def place_of(self, number: Vector) -> ir.Value:
        """Where a segment's number lies."""
        scratch = self.e.pointer(self.word(self.nest.slots["scratch"]).value)
        return self.e.at(scratch, number.value, "int64")
