"""Convolutions with many channels: a panel of the unfolded image is packed, and multiplied by all weights.

NCHW in, NCHW out. Lanes are neighbouring pixels of the output, which may lie on several rows: a vector is gathered from
``segments`` pieces of the padded planes. Weights lie as [group][K / rows][C * taps][rows], and their numbers are
broadcast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.bound import aligned
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import SLOTS as PLANE_SLOTS
from gpujit.kernels.templates.planes import Window, unless_current, write_channels
from gpujit.kernels.vector import I32, I64, Vector

SLOTS = (
    "x", "weights", "bias", "residual", "out", "taps", "pieces", "places", "out_area",
    "images", "groups", "channels", "filters", "tap_count", "pixels", "panels", "chunks", "chunk", "blocks",
    *PLANE_SLOTS, "scratch", "scratch_bytes",
)  # fmt: skip
# Floats of weights ahead of which the next ones are asked for.
AHEAD = 1024


class DenseSpec(NamedTuple):
    """``rows`` filters by ``vectors`` of pixels in registers; ``segments`` is 0 where the image is read as it lies."""

    rows: int
    vectors: int
    lanes: int
    segments: int
    stride_x: int
    epilogue: Epilogue
    # Whether pixels go to the places that a table has for them.
    is_scattered: bool = False
    # Whether images are made by a producer.
    is_produced: bool = False

    @property
    def tile(self) -> int:
        return self.vectors * self.lanes


def pack(weights: np.ndarray, groups: int, rows: int) -> np.ndarray:
    """[K, C / groups, ...] as [groups][ceil(K / groups / rows)][C / groups * taps][rows], zeros beyond K."""
    filters = weights.shape[0] // groups
    depth = int(np.prod(weights.shape[1:]))
    blocks = -(-filters // rows)
    packed = aligned((groups, blocks, depth, rows))
    flat = weights.reshape(groups, filters, depth)
    for b in range(blocks):
        part = flat[:, b * rows : (b + 1) * rows]
        packed[:, b, :, : part.shape[1]] = part.transpose(0, 2, 1)
    return packed


def segments(window: Window, lanes: int, vectors: int) -> int:
    """Pieces that a vector of pixels comes in, at most."""
    width = window.output[1]
    first = np.arange(_vectors(window, lanes, vectors)) * lanes
    return int(((first + lanes - 1) // width - first // width).max()) + 1


def _vectors(window: Window, lanes: int, vectors: int) -> int:
    """Vectors of all panels."""
    return -(-window.output[0] * window.output[1] // (lanes * vectors)) * vectors


def pieces(window: Window, lanes: int, vectors: int, least: int = 1) -> np.ndarray:
    """int64 [panels * vectors, segments, 2]: where each piece of a vector of pixels lies, and the bits of its lanes.

    The first piece is read without a mask. There are as many as the image needs, and at least ``least``.
    """
    height, width = window.output
    count = height * width
    total = _vectors(window, lanes, vectors)
    pixel = np.arange(total * lanes).reshape(total, lanes)
    row, column = pixel // width, pixel % width
    first = row[:, :1]
    most = max(int((row[:, -1:] - first).max()) + 1, least)
    table = np.zeros((total, most, 2), np.int64)
    lane = np.arange(lanes)
    for s in range(most):
        # Rows past the image are not stored; they must only lie where reading is allowed.
        here = (row - first == s) & (pixel < count)
        start = (first + s) * window.plane[1] + (column - lane)[np.arange(total), here.argmax(1)][:, None]
        table[:, s, 0] = np.where(here.any(1), start[:, 0], table[:, 0, 0] if s else 0)
        table[:, s, 1] = (here << lane).sum(1)
    return table


def render(spec: DenseSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template((*SLOTS, *(producer.SLOTS if spec.is_produced else ())), texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: DenseSpec) -> None:
    for name in SLOTS[8:-2]:
        k.word(name)
    buffer = k.buffer(spec.rows * spec.tile)
    # What the planes and the panel hold: chunks of filters of one panel follow each other.
    current, packed = k.builder.alloca(I64), k.builder.alloca(I64)
    for slot in (current, packed):
        k.builder.store(ir.Constant(I64, -1), slot)
    channels, filters, pixels, blocks = (k.word(n) for n in ("channels", "filters", "pixels", "blocks"))
    groups, panels, chunks = k.word("groups"), k.word("panels"), k.word("chunks")
    x = k.array("x")
    area = k.word("height") * k.word("width")
    depth = channels * k.word("tap_count")
    panel_at = k.scratch()
    planes = k.at(panel_at, depth * spec.tile)
    low, high = k.share(k.word("images") * groups * panels * chunks)
    if spec.is_produced:
        producer.begin(k)
    with k.loop(low, high) as task:
        above = k.quotient(task, chunks)
        index = k.quotient(above, panels)
        panel = above - index * panels
        chunk = task - above * chunks
        group = k.rest(index, groups)
        source = k.at(x, index * channels * area)
        if spec.segments:
            with k.builder.if_then(unless_current(k, current, index)):
                k.outline(
                    "planes",
                    [source, planes, index * channels],
                    lambda k, source, target, row: write_channels(
                        k, source, target, spec.lanes, spec.stride_x, row if spec.is_produced else None
                    ),
                )
        is_new = unless_current(k, packed, above)
        if spec.segments:
            with k.builder.if_then(is_new):
                k.outline("pack", [planes, panel_at, panel], lambda k, *given: _pack_pieces(k, spec, *given))
        elif spec.is_produced:
            with k.builder.if_then(is_new):
                row, begin = index * channels, panel * spec.tile
                there = k.at(panel_at, -(row * spec.tile + begin))
                end = k.smaller(begin + spec.tile, pixels)
                k.outline(
                    "make",
                    [row, begin, end, there],
                    lambda k, row, begin, end, there: producer.make(
                        k, row, row + k.word("channels"), begin, end, there
                    ),
                )
        first = panel * spec.tile
        weights = k.at(k.array("weights"), group * blocks * depth * spec.rows)
        target = index * filters * pixels + first
        start = chunk * k.word("chunk")
        with k.loop(start, k.smaller(start + k.word("chunk"), blocks)) as block:
            w = k.at(weights, block * depth * spec.rows)
            if spec.segments or spec.is_produced:
                _multiply(k, spec, w, panel_at, buffer, depth)
            else:
                line = k.at(source, first)
                is_first = k.builder.and_(is_new, (block == start).value)
                with k.builder.if_else(is_first) as (then, otherwise):
                    with then:
                        _multiply(k, spec, w, panel_at, buffer, depth, line, pixels - first)
                    with otherwise:
                        # The image's next panel, whose lines lie far apart, comes nearer.
                        number = k.smaller(block - start, spec.vectors) - 1
                        ahead = k.at(line, number * spec.lanes + spec.tile)
                        _multiply(k, spec, w, panel_at, buffer, depth, ahead=ahead)
            filter_ = block * spec.rows
            given = [buffer, k.smaller(filters - filter_, spec.rows), target, filter_, pixels - first, group * filters]
            k.outline("finish", given, lambda k, *given: _finish(k, spec, *given))


def _multiply(
    k: TemplateBody,
    spec: DenseSpec,
    w: ir.Value,
    panel: ir.Value,
    buffer: ir.Value,
    depth: Vector,
    image: ir.Value | None = None,
    count: Vector | None = None,
    ahead: ir.Value | None = None,
) -> None:
    """A block of filters times the panel, to the buffer.

    With an ``image`` the panel is made on the way from what lies there, ``count`` pixels of each channel. Lines of the
    image ``ahead`` are asked for.
    """
    lanes, pixels = spec.lanes, k.word("pixels")
    masks = []
    if count is not None:
        masks = [k.e.tail_mask(k.larger(count - v * lanes, 0), lanes) for v in range(spec.vectors)]

    def right(i: Vector, v: int) -> Vector:
        if v == 0:
            k.e.prefetch(w, (i * spec.rows + AHEAD).value, "float32")
            if ahead is not None:
                k.fetch(ahead, i * pixels)
        place = i * spec.tile + v * lanes
        if image is None:
            return k.floats(panel, place, lanes)
        x = k.floats(image, i * pixels + v * lanes, lanes, masks[v])
        k.put(panel, place, x)
        return x

    sums = multiply_tile(
        k, spec.rows, spec.vectors, lanes, depth, lambda i, r: k.floats(w, i * spec.rows + r, 1), right
    )
    for r, row in enumerate(sums):
        for v, value in enumerate(row):
            k.put(buffer, r * spec.tile + v * lanes, value)


def _finish(
    k: TemplateBody,
    spec: DenseSpec,
    buffer: ir.Value,
    rows: Vector,
    target: Vector,
    first: Vector,
    count: Vector,
    group: Vector,
) -> None:
    """The buffer's filters, ``first`` and those behind it, to the result."""
    with k.loop(0, rows) as r:
        if spec.is_scattered:
            image = k.quotient(target, k.word("pixels"))
            _scatter_row(k, spec, k.at(buffer, r * spec.tile), image + first + r, count, group + first + r)
        else:
            at = target + (first + r) * k.word("pixels")
            finish_row(
                k, spec.epilogue, spec.lanes, spec.vectors, k.at(buffer, r * spec.tile), count, group + first + r, at
            )


def _scatter_row(
    k: TemplateBody, spec: DenseSpec, sums: ir.Value, channel: Vector, count: Vector, bias_at: Vector
) -> None:
    """As ``finish_row``, for pixels that lie apart in channel ``channel`` of all images' results."""
    lanes, epilogue = spec.lanes, spec.epilogue
    bias = k.e.broadcast(k.floats(k.array("bias"), bias_at, 1), lanes) if epilogue.bias else None
    base = channel * k.word("out_area")
    first = k.word("pixels") - count
    for v in range(spec.vectors):
        mask = k.e.tail_mask(count - v * lanes, lanes)
        at = k.e.load(k.array("places"), (first + v * lanes).value, "int64", lanes, mask)
        other = k.e.gather(k.at(k.array("residual"), base), at, "float32", mask) if epilogue.residual else None
        x = epilogue.apply(k.e, k.floats(sums, v * lanes, lanes), bias, other)
        k.e.scatter(k.at(k.array("out"), base, epilogue.result), at, x, epilogue.result, mask=mask)


def finish_row(
    k: TemplateBody,
    epilogue: Epilogue,
    lanes: int,
    vectors: int,
    sums: ir.Value,
    count: Vector,
    channel: Vector,
    at: Vector,
) -> None:
    """``vectors`` of sums through the epilogue, the first ``count`` numbers of them to ``out`` at ``at``."""
    out, residual = k.array("out"), k.array("residual")
    bias = k.e.broadcast(k.floats(k.array("bias"), channel, 1), lanes) if epilogue.bias else None
    for v in range(vectors):
        mask = k.e.tail_mask(count - v * lanes, lanes)
        other = k.floats(residual, at + v * lanes, lanes, mask) if epilogue.residual else None
        value = epilogue.apply(k.e, k.floats(sums, v * lanes, lanes), bias, other)
        k.put(out, at + v * lanes, value, mask, epilogue.result)


def _pack_pieces(k: TemplateBody, spec: DenseSpec, planes: ir.Value, panel_at: ir.Value, panel: Vector) -> None:
    taps, table, size = k.array("taps"), k.array("pieces"), k.word("plane_size")
    tap_count = k.word("tap_count")
    with k.loop(0, k.number(spec.vectors)) as v:
        row = (panel * spec.vectors + v) * (spec.segments * 2)
        places, masks = [], []
        for s in range(spec.segments):
            places.append(k.e.load(table, (row + s * 2).value, "int64", 1))
            bits = k.e.load(table, (row + s * 2 + 1).value, "int64", 1)
            masks.append(mask_of(k, bits, spec.lanes))
        with k.loop(0, k.word("channels")) as c:
            base = [k.at(planes, c * size + place) for place in places]
            to = k.at(panel_at, c * tap_count * spec.tile + v * spec.lanes)
            with k.loop(0, tap_count) as t:
                tap = k.e.load(taps, t.value, "int64", 1)
                x = k.floats(base[0], tap, spec.lanes)
                for s in range(1, spec.segments):
                    x = load_over(k, base[s], tap, masks[s], x)
                k.put(to, t * spec.tile, x)


def mask_of(k: TemplateBody, bits: Vector, lanes: int) -> Vector:
    """The low bits of an int64 as a mask."""
    if lanes == 1:
        return (bits & 1) != 0
    narrow = k.builder.trunc(bits.value, ir.IntType(lanes))
    return Vector(k.e, k.builder.bitcast(narrow, k.e.type("bool", lanes)), "bool", lanes)


def load_over(k: TemplateBody, base: ir.Value, index: Vector, mask: Vector, below: Vector) -> Vector:
    """Numbers from memory where the mask is set, those of ``below`` elsewhere."""
    if below.lanes == 1:
        return k.e.select(mask, k.e.load(base, index.value, "float32", 1, mask), below)
    name = f"llvm.masked.load.v{below.lanes}f32.p0"
    arguments = [k.at(base, index), ir.Constant(I32, 4), mask.value, below.value]
    return below._new(k.e.call(name, below.value.type, arguments))
