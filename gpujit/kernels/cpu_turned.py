"""CPU kernels that turn squares of an array in registers, so that memory lines are read and written whole."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from gpujit.kernels.cpu_loops import Loops
from gpujit.kernels.cpu_nest import STEPS
from gpujit.kernels.cpu_values import Point, Scope
from gpujit.kernels.tile import Load, Store
from gpujit.kernels.vector import I64, Emitter, Vector


class Turned(Loops):
    """Pointwise programs some of whose loads are contiguous along another dim, the band, than the stores.

    A task is a strip of as many places along the lanes as a vector has. Squares of it are loaded along the band, a
    vector for each lane, and turned. The strip is followed along the band, so that what is read lies in as many
    streams as there are lanes, which processors foresee; what is written fills a memory line at each step.
    """

    def write(self) -> None:
        nest, width = self.nest, self.nest.width
        band = nest.turned
        assert band is not None
        others = [d for d in nest.task_dims if d != band]
        before = self.before(band, others)
        # The strip that begins before the first lane, if there is one, comes first.
        shift = self.e.select(before > 0, before - width, 0)
        lanes = self.sizes[nest.lane]
        strips = self.divided(lanes - shift + (width - 1), self.number(width))
        total = self.product(self.sizes[d] for d in others) * strips
        low = self.divided(total * self.part, self.parts)
        high = self.divided(total * (self.part + 1), self.parts)
        function = Scope()
        with self.b.if_then((low < high).value):
            self.fill(function, self.ready_at_start(), lambda v: True, 1)
            with self.loop(low, high) as task:
                left = self.divided(task, strips)
                start = shift + (task - left * strips) * width
                for d in reversed(others):
                    above = self.divided(left, self.sizes[d])
                    self.index[d] = left - above * self.sizes[d]
                    left = above
                self.strip(Scope(function), band, others, start)

    def before(self, band: int, others: Sequence[int]) -> Vector:
        """Lanes before the first whole vector of the first result's memory; 0 where rows are aligned in several ways.

        Says as well whether from there on all results are aligned, so that stores may pass by the caches.
        """
        e, width = self.e, self.nest.width
        stores = [(k, i) for k, i in enumerate(self.items) if isinstance(i, Store)]
        aligned, before = e.constant("bool", 1, True), self.number(0)
        for n, (k, store) in enumerate(stores):
            itemsize = self.p.outputs[store.array].dtype.itemsize
            mask = width * itemsize - 1
            even = e.constant("bool", 1, True)
            for d in (band, *others):
                even = even & (((self.steps[k][d] * itemsize) & mask) == 0)
            address = self.scalar(self.b.ptrtoint(self.outputs[store.array], I64)) + self.first[k] * itemsize
            if not n:
                before = e.select(even, self.divided(-address & mask, self.number(itemsize)), 0)
            aligned = aligned & even & (((address + before * itemsize) & mask) == 0)
        if self.nest.streams:
            self.aligned = aligned
        return before

    def strip(self, scope: Scope, band: int, others: Sequence[int], start: Vector) -> None:
        """The lanes from ``start`` on: squares, then single rows. Where it is cut off only some lanes are written."""
        e, width, size, lanes = self.e, self.nest.width, self.sizes[band], self.sizes[self.nest.lane]
        first = []
        for place, steps in zip(self.first, self.steps, strict=True):
            for d in others:
                place = place + self.index[d] * steps[d]
            first.append(place)
        self.offsets = dict(enumerate(first))
        both = {band, self.nest.lane}
        self.fill(scope, self.nest.passes[0].full, lambda v: not self.p.varies[v] & both, 1)
        whole = size & -width
        end = start + width
        low, high = e.select(start < 0, 0, start), e.select(end > lanes, lanes, end)
        with self.b.if_else((high - low == width).value) as (full, cut):
            with full, self.loop(self.number(0), whole, width) as j:
                self.square(Scope(scope), band, j, first, start, None)
            with cut:
                # As many lanes as ever are read, from where there are so many.
                at = e.select(low > lanes - width, lanes - width, low)
                mask = e.tail_mask(high - at, width) & ~e.tail_mask(low - at, width)
                with self.loop(self.number(0), whole, width) as j:
                    self.square(Scope(scope), band, j, first, at, mask)
        self.rows(scope, band, whole, first, low, high)

    def rows(
        self, scope: Scope, band: int, start: Vector, first: Sequence[Vector], lanes_from: Vector, lanes_to: Vector
    ) -> None:
        """Rows of a strip, one after the other, from a place along the band on."""
        with self.loop(start, self.sizes[band]) as j:
            self.index[band] = j
            self.offsets = {k: at + j * self.steps[k][band] for k, at in enumerate(first)}
            self.passes(Scope(scope), lanes_from, lanes_to, None)

    def square(
        self, scope: Scope, band: int, start: Vector, first: Sequence[Vector], at: Vector, mask: Vector | None
    ) -> None:
        """A square of a strip: ``start`` is its place along the band, ``at`` the first lane's; all lanes exist."""
        e, width, lane = self.e, self.nest.width, self.nest.lane
        first = [place + start * self.steps[k][band] for k, place in enumerate(first)]
        turned: dict[int, list[Vector]] = {}
        for v, item in enumerate(self.p.body):
            if isinstance(item, Load) and self.nest.classes[self.access_of[id(item)]] == STEPS:
                k = self.access_of[id(item)]
                places = [first[k] + (at + j) * self.steps[k][lane] for j in range(width)]
                columns = [e.load(self.inputs[item.array], x.value, item.dtype.name, width) for x in places]
                turned[v] = transposed(e, columns)
        for j in range(width):
            self.index[band] = start + j
            self.offsets = {k: x + self.steps[k][band] * j for k, x in enumerate(first)}
            point = Point(scope, width, at, mask, None)
            point.values.update({v: rows[j] for v, rows in turned.items()})
            self.vectors(self.nest.passes[0], [point], {}, {})


def transposed(e: Emitter, rows: Sequence[Vector]) -> list[Vector]:
    """As many vectors as each has lanes, with lane j of vector i become lane i of vector j."""
    found, count, distance = list(rows), len(rows), 1
    i32 = ir.IntType(32)
    while distance < count:
        # Blocks of ``distance`` lanes change places between vectors that are so far apart.
        low = [i if not i & distance else count + i - distance for i in range(count)]
        high = [i + distance if not i & distance else count + i for i in range(count)]
        orders = [ir.Constant(ir.VectorType(i32, count), order) for order in (low, high)]
        for i in range(count):
            if not i & distance:
                a, b = found[i], found[i + distance]
                found[i], found[i + distance] = (
                    a._new(e.builder.shuffle_vector(a.value, b.value, order)) for order in orders
                )
        distance *= 2
    return found
