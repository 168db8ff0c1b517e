"""CPU kernels that turn squares of an array in registers, so that memory lines are read and written whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir

from gpujit.kernels.cpu_loops import Loops
from gpujit.kernels.cpu_nest import ACROSS, ALONG, STEPS
from gpujit.kernels.cpu_values import Point, Scope
from gpujit.kernels.tile import Load, Store
from gpujit.kernels.vector import I64, Emitter, Vector


class Turned(Loops):
    """Pointwise programs some of whose loads are contiguous along another dim, the band, than the stores.

    A task is a block: a few vectors along the lanes by a few along the band. Squares of it are loaded along the band, a
    vector for each lane, and turned. The next square is the one beside it along the lanes, so that what is written, and
    what is read in its order, are several neighbouring lines of each row: single lines of rows that lie far apart (and,
    at steps of a power of two, in the same places of a cache) take twice as long.
    """

    def write(self) -> None:
        nest, width = self.nest, self.nest.width
        band = nest.turned
        assert band is not None
        others = [d for d in nest.task_dims if d != band]
        before = self.before(band, others)
        # The strip that begins before the first lane, if there is one, comes first.
        shift = self.e.select(before > 0, before - width, 0)
        side, depth = self.number(ACROSS * width), self.number(ALONG * width)
        across = self.divided(self.sizes[nest.lane] - shift + (ACROSS * width - 1), side)
        along = self.divided(self.sizes[band] + (ALONG * width - 1), depth)
        total = self.product(self.sizes[d] for d in others) * across * along
        low = self.divided(total * self.part, self.parts)
        high = self.divided(total * (self.part + 1), self.parts)
        function = Scope()
        with self.b.if_then((low < high).value):
            self.fill(function, self.ready_at_start(), lambda v: True, 1)
            with self.loop(low, high) as task:
                left = self.divided(task, across)
                start = shift + (task - left * across) * side
                task, left = left, self.divided(left, along)
                place = (task - left * along) * depth
                for d in reversed(others):
                    above = self.divided(left, self.sizes[d])
                    self.index[d] = left - above * self.sizes[d]
                    left = above
                self.block_at(Scope(function), band, others, start, place)

    def turned_loads(self) -> Iterator[tuple[int, Load, int]]:
        """Values that are turned, with their loads and the numbers of their accesses."""
        for v, item in enumerate(self.p.body):
            if isinstance(item, Load) and self.nest.classes[self.access_of[id(item)]] == STEPS:
                yield v, item, self.access_of[id(item)]

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

    def block_at(self, scope: Scope, band: int, others: Sequence[int], start: Vector, low: Vector) -> None:
        """The block whose first lane is ``start`` and first place along the band ``low``."""
        e, width, size, lanes = self.e, self.nest.width, self.sizes[band], self.sizes[self.nest.lane]
        first = []
        for place, steps in zip(self.first, self.steps, strict=True):
            for d in others:
                place = place + self.index[d] * steps[d]
            first.append(place)
        self.offsets = dict(enumerate(first))
        both = {band, self.nest.lane}
        self.fill(scope, self.nest.passes[0].full, lambda v: not self.p.varies[v] & both, 1)
        high, stop = low + ALONG * width, start + ACROSS * width
        high, stop = e.select(high > size, size, high), e.select(stop > lanes, lanes, stop)
        whole = low + ((high - low) & -width)
        # Lanes of whole vectors; before and behind them only some exist.
        begin = e.select(start < 0, start + width, start)
        end = begin + ((stop - begin) & -width)
        with self.loop(low, whole, width) as j, self.loop(begin, end, width) as at:
            self.square(Scope(scope), band, j, first, at)
        with self.loop(start, stop, width) as strip:
            left, right = e.select(strip < 0, 0, strip), strip + width
            right = e.select(right > lanes, lanes, right)
            with self.b.if_then((right - left < width).value):
                # As many lanes as ever are read, from where there are so many.
                at = e.select(left > lanes - width, lanes - width, left)
                mask = e.tail_mask(right - at, width) & ~e.tail_mask(left - at, width)
                with self.loop(low, whole, width) as j:
                    self.square(Scope(scope), band, j, first, at, mask)
            self.rows(scope, band, whole, high, first, left, right)

    def rows(
        self, scope: Scope, band: int, low: Vector, high: Vector, first: Sequence[Vector], left: Vector, right: Vector
    ) -> None:
        """Rows of a strip, one after the other, for places along the band."""
        with self.loop(low, high) as j:
            self.index[band] = j
            self.offsets = {k: at + j * self.steps[k][band] for k, at in enumerate(first)}
            self.passes(Scope(scope), left, right, None)

    def square(
        self, scope: Scope, band: int, start: Vector, first: Sequence[Vector], at: Vector, mask: Vector | None = None
    ) -> None:
        """A square of a strip: ``start`` is its place along the band, ``at`` the first lane's; all lanes exist."""
        e, width, lane = self.e, self.nest.width, self.nest.lane
        first = [place + start * self.steps[k][band] for k, place in enumerate(first)]
        turned: dict[int, list[Vector]] = {}
        for v, item, k in self.turned_loads():
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
