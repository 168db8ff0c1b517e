"""Padded planes: a channel of an image in scratch memory with its border, one plane for each phase of the strides.

Pixel (y, x) of the output reads row ``y + row_shift`` and column ``x + column_shift`` of a tap's plane: whatever
stride and dilation are, neighbours in the output are neighbours in a plane, and vectors are read as they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody
from gpujit.kernels.vector import I32, Number, Vector

SLOTS = (
    "height", "width", "stride_y", "stride_x", "pad_y", "pad_x", "plane_rows", "pitch", "phases_y", "phases_x",
    "plane_size",
)  # fmt: skip
# Floats behind the last row that a vector may read and write.
SLACK = 64


class Window(NamedTuple):
    """How a kernel moves over images of ``height`` x ``width``; pairs are (y, x), ``padding`` is before and after."""

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    # More zeros below and to the right, as rounding up asks for in pooling.
    more: tuple[int, int] = (0, 0)

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result."""
        y, x = (
            (size + 2 * p + m - d * (t - 1) - 1) // s + 1
            for size, p, m, d, t, s in zip(
                (self.height, self.width), self.padding, self.more, self.dilation, self.kernel, self.stride
            )
        )
        return y, x

    @property
    def is_plain(self) -> bool:
        """Whether output pixels are the input's own: no plane is needed."""
        return self.kernel == self.stride == (1, 1) and self.padding == self.more == (0, 0)

    @property
    def phases(self) -> tuple[int, int]:
        """How many planes there are along y and along x."""
        y, x = (max(i * d % s for i in range(t)) + 1 for t, d, s in zip(self.kernel, self.dilation, self.stride))
        return y, x

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of a plane."""
        y, x = (o + (t - 1) * d // s for o, t, d, s in zip(self.output, self.kernel, self.dilation, self.stride))
        return y, x

    @property
    def plane_size(self) -> int:
        """Floats of one channel's planes."""
        (py, px), (rows, pitch) = self.phases, self.plane
        size = -(-(py * px * rows * pitch + SLACK) // 16) * 16
        # Planes a power of two apart would share few sets of the cache.
        return size + 16 if size % 256 == 0 else size

    @property
    def taps(self) -> np.ndarray:
        """int64 [kernel y * kernel x]: where in a channel's planes each tap of output pixel (0, 0) lies."""
        (dy, dx), (sy, sx), (rows, pitch) = self.dilation, self.stride, self.plane
        found = []
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                plane = (i * dy % sy) * self.phases[1] + j * dx % sx
                found.append(plane * rows * pitch + (i * dy // sy) * pitch + j * dx // sx)
        return np.array(found, np.int64)

    @property
    def words(self) -> dict[str, int]:
        """The block's words for SLOTS."""
        values = (
            self.height, self.width, *self.stride, *self.padding, *self.plane, *self.phases, self.plane_size,
        )  # fmt: skip
        return dict(zip(SLOTS, values, strict=True))


def write_planes(
    k: TemplateBody, source: ir.Value, target: ir.Value, lanes: int, stride_x: int, fill: Number = 0.0
) -> None:
    """One channel's planes from its image; ``fill`` outside of it. ``stride_x`` is 1, 2, or 0 for others."""
    e, b = k.e, k.builder
    height, width, pitch = k.word("height"), k.word("width"), k.word("pitch")
    phases_x, rows = k.word("phases_x"), k.word("plane_rows")
    outside = e.constant("float32", lanes, fill)
    with k.loop(0, k.word("phases_y") * phases_x) as plane:
        phase_y = k.quotient(plane, phases_x)
        phase_x = plane - phase_y * phases_x
        first = phase_x - k.word("pad_x")
        with k.loop(0, rows) as row:
            y = row * k.word("stride_y") + phase_y - k.word("pad_y")
            # Rows follow each other, so what a vector writes beyond its row's end is written over.
            at = k.at(target, (plane * rows + row) * pitch)
            with b.if_else(((y >= 0) & (y < height)).value) as (inside, beyond):
                with inside:
                    line = k.at(source, y * width)
                    with k.loop(0, pitch, lanes) as x:
                        k.put(at, x, padded_columns(k, line, x, first, lanes, stride_x, fill))
                with beyond, k.loop(0, pitch, lanes) as x:
                    k.put(at, x, outside)


def write_channels(
    k: TemplateBody, source: ir.Value, target: ir.Value, lanes: int, stride_x: int, row: Vector | None = None
) -> None:
    """The planes of as many channels as the word ``channels`` says, one after the other.

    With ``row`` the images' rows from that one on, a channel each, are made by a producer.
    """
    area, channels = k.word("height") * k.word("width"), k.word("channels")

    def write(c: Vector, line: ir.Value) -> None:
        write_planes(k, line, k.at(target, c * k.word("plane_size")), lanes, stride_x)

    if row is None:
        with k.loop(0, channels) as c:
            write(c, k.at(source, c * area))
    else:
        each_channel(k, row, k.number(0), area, write)


def each_channel(
    k: TemplateBody, row: Vector, first: Vector, last: Vector, write: Callable[[Vector, ir.Value], None]
) -> None:
    """Calls ``write(channel, its pixels)`` for channels that a producer makes, whose pixels from ``first`` up to
    ``last`` are there."""
    area, channels, lot = k.word("height") * k.word("width"), k.word("channels"), k.word("producer_lot")
    room = producer.rows_at(k)
    with k.loop(0, k.quotient(channels + lot - 1, lot)) as number:
        low = number * lot
        high = k.smaller(low + lot, channels)
        producer.make(k, row + low, row + high, first, last, k.at(room, -((row + low) * area)))
        with k.loop(low, high) as c:
            write(c, k.at(room, (c - low) * area))


def padded_columns(
    k: TemplateBody, line: ir.Value, x: Vector, first: Vector, lanes: int, stride_x: int, fill: Number
) -> Vector:
    """Columns ``(x + lane) * stride + first`` of a row."""
    e = k.e
    wide = lanes * max(stride_x, 1)
    step = k.word("stride_x") if stride_x == 0 else k.number(stride_x)
    start = x * step + first
    columns = e.iota("int32", wide)
    if stride_x == 0:
        columns = columns * e.broadcast(e.cast(step, "int32"), wide)
    columns = columns + e.broadcast(e.cast(start, "int32"), wide)
    mask = (columns >= 0) & (columns < e.broadcast(e.cast(k.word("width"), "int32"), wide))
    if stride_x == 0:
        return e.gather(line, e.cast(columns, "int64"), "float32", mask, fill)
    loaded = e.load(line, start.value, "float32", wide, mask, other=fill)
    return loaded if stride_x == 1 else split_lanes(k, [e.half(loaded, 0), e.half(loaded, 1)])[0]


def split_lanes(k: TemplateBody, vectors: Sequence[Vector]) -> list[Vector]:
    """The numbers of a row of 2 or 4 vectors as that many vectors: number i of the row goes to vector i % count."""
    if len(vectors) == 1:
        return list(vectors)
    lanes = vectors[0].lanes
    halves = []
    for first in (0, 1):
        order = [first + 2 * q for q in range(lanes)]
        halves.append([shuffled(k, x, y, order) for x, y in zip(vectors[::2], vectors[1::2], strict=True)])
    even, odd = (split_lanes(k, half) for half in halves)
    return [x for both in zip(even, odd, strict=True) for x in both]


def join_lanes(k: TemplateBody, vectors: Sequence[Vector]) -> list[Vector]:
    """What ``split_lanes`` takes apart: lane 0 of each of 2 or 4 vectors, then lane 1 of each, and so on."""
    if len(vectors) == 1:
        return list(vectors)
    lanes = vectors[0].lanes
    even, odd = join_lanes(k, vectors[::2]), join_lanes(k, vectors[1::2])
    made = []
    if lanes == 1:
        return [x for both in zip(even, odd, strict=True) for x in both]
    for x, y in zip(even, odd, strict=True):
        for first in (0, lanes // 2):
            made.append(shuffled(k, x, y, [first + q // 2 + q % 2 * lanes for q in range(lanes)]))
    return made


def shuffled(k: TemplateBody, x: Vector, y: Vector, order: Sequence[int]) -> Vector:
    """Lanes of two vectors by number, those of ``y`` after those of ``x``; as many as each has."""
    lanes = x.lanes
    if lanes == 1:
        return (x, y)[order[0]]
    chosen = ir.Constant(ir.VectorType(I32, lanes), list(order))
    return x._new(k.builder.shuffle_vector(x.value, y.value, chosen))


def unless_current(k: TemplateBody, slot: ir.Value, index: Vector) -> ir.Value:
    """The condition that ``slot`` held another number; it holds ``index`` from now on."""
    before = Vector(k.e, k.builder.load(slot, typ=index.value.type), "int64", 1)
    k.builder.store(index.value, slot)
    return (before != index).value
