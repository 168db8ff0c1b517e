"""3x3 convolutions of stride 1 by Winograd's algorithm: fewer multiplications, NCHW in, NCHW out.

Tiles of ``m`` x ``m`` outputs (m is 2 or 4) are transformed with neighbouring tiles in the lanes, which may lie on
several rows of tiles; then each of the (m + 2)^2 numbers of a tile is a matrix product over the channels; then results
are transformed back. Tiles are handled in groups of tile rows, such that what lies between stays in the second-level
cache.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.bound import aligned
from gpujit.kernels.templates.conv_dense import finish_row, mask_of
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import (
    each_channel,
    join_lanes,
    padded_columns,
    shuffled,
    split_lanes,
    unless_current,
)
from gpujit.kernels.vector import I64, Vector

SLOTS = (
    "x", "weights", "bias", "residual", "out", "lasts",
    "images", "channels", "filters", "height", "width", "pad_y", "pad_x", "out_rows", "out_columns",
    "tile_rows", "tile_columns", "bands", "band_rows", "stride", "panels", "chunks", "chunk", "blocks",
    "line", "border", "slab_in", "slab_out", "plane_size", "scratch", "scratch_bytes",
)  # fmt: skip

# Floats of weights ahead of which the next ones are asked for.
AHEAD = 1024
# For each m, the transform of weights (G), as in the source. Those of inputs and outputs are spelled out below.
WEIGHTS = {
    2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    4: np.array(
        [
            [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
        ]
    ),
}  # fmt: skip


class WinogradSpec(NamedTuple):
    """Tiles of ``m`` x ``m``; the products' register tile is ``rows`` filters by ``vectors`` of tiles."""

    m: int
    rows: int
    vectors: int
    lanes: int
    epilogue: Epilogue
    # Whether images are made by a producer.
    is_produced: bool = False

    @property
    def side(self) -> int:
        return self.m + 2

    @property
    def tile(self) -> int:
        return self.vectors * self.lanes


def pack(weights: np.ndarray, m: int, rows: int) -> np.ndarray:
    """[K, C, 3, 3] as [(m + 2)^2][ceil(K / rows)][C][rows], transformed in float64."""
    filters, channels = weights.shape[:2]
    blocks, side = -(-filters // rows), m + 2
    # G w G^T of all numbers of a filter at once.
    both = np.kron(WEIGHTS[m], WEIGHTS[m]).T
    packed = aligned((side**2, blocks, channels, rows))
    for b in range(blocks):
        part = weights[b * rows : (b + 1) * rows].astype(np.float64).reshape(-1, channels, 9) @ both
        packed[:, b, :, : len(part)] = part.transpose(2, 1, 0)
    return packed


def lasts(columns: int, vectors: int, lanes: int) -> np.ndarray:
    """int64 [vectors]: the bits of lanes whose tile is the last one of its row, for vectors of neighbouring tiles."""
    is_last = np.arange(vectors * lanes).reshape(vectors, lanes) % columns == columns - 1
    bits: np.ndarray = (is_last.astype(np.int64) << np.arange(lanes)).sum(1)
    return bits


def slab(numbers: int) -> int:
    """At least so many floats, such that the same number of many slabs does not share few sets of a cache."""
    lines = -(-numbers // 16)
    return 16 * (lines + 1 - lines % 2)


def inward(m: int, d: Sequence[Vector]) -> list[Vector]:
    """B^T d of one row or column."""
    if m == 2:
        return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    a, b, c, d_, e, f = d
    outer, inner, difference = e - c, d_ - b, c * 4.0
    return [
        a * 4.0 - c * 5.0 + e,
        (d_ + e) - (b * 4.0 + difference),
        (e - d_) + (b * 4.0 - difference),
        outer + inner * 2.0,
        outer - inner * 2.0,
        b * 4.0 - d_ * 5.0 + f,
    ]


def outward(m: int, q: Sequence[Vector]) -> list[Vector]:
    """A^T q of one row or column."""
    if m == 2:
        return [q[0] + q[1] + q[2], q[1] - q[2] - q[3]]
    a, b, c, d, e, f = q
    s, t, u, v = b + c, b - c, d + e, d - e
    return [a + s + u, t + v * 2.0, s + u * 4.0, t + v * 8.0 + f]


def render(spec: WinogradSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template((*SLOTS, *(producer.SLOTS if spec.is_produced else ())), texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: WinogradSpec) -> None:
    for name in SLOTS[6:-2]:
        k.word(name)
    current = k.builder.alloca(I64)
    k.builder.store(ir.Constant(I64, -1), current)
    bands, chunks, channels = (k.word(n) for n in ("bands", "chunks", "channels"))
    plane = k.scratch()
    turned = k.at(plane, k.word("plane_size"))
    products = k.at(turned, k.word("slab_in") * spec.side**2)
    low, high = k.share(k.word("images") * bands * chunks)
    if spec.is_produced:
        producer.begin(k)
    with k.loop(low, high) as task:
        index = k.quotient(task, chunks)
        image = k.quotient(index, bands)
        chunk = (task - index * chunks) * k.word("chunk")
        first = (index - image * bands) * k.word("band_rows")
        rows = k.smaller(k.word("tile_rows") - first, k.word("band_rows"))
        source = k.at(k.array("x"), image * channels * k.word("height") * k.word("width"))
        with k.builder.if_then(unless_current(k, current, index)):
            given = [source, plane, turned, first, rows, image * channels]
            k.outline("inward", given, lambda k, *given: _channels(k, spec, *given))
        last = k.smaller(chunk + k.word("chunk"), k.word("blocks"))
        _products(k, spec, turned, products, chunk, last)
        filters = k.smaller(last * spec.rows, k.word("filters"))
        given = [products, chunk * spec.rows, filters, image, first, rows]
        k.outline("outward", given, lambda k, *given: _filters(k, spec, *given))


def _channels(
    k: TemplateBody,
    spec: WinogradSpec,
    source: ir.Value,
    plane: ir.Value,
    turned: ir.Value,
    first: Vector,
    rows: Vector,
    channel: Vector,
) -> None:
    height, width = k.word("height"), k.word("width")

    def write(c: Vector, pixels: ir.Value) -> None:
        _plane(k, spec, pixels, plane, first, rows)
        _turn_in(k, spec, plane, k.at(turned, c * k.word("stride")))

    if spec.is_produced:
        # Of each channel the rows of pixels that the tiles read.
        top = first * spec.m - k.word("pad_y")
        bottom = k.smaller(top + rows * spec.m + 2, height)
        each_channel(k, channel, k.larger(top, 0) * width, k.larger(bottom, 0) * width, write)
        return
    with k.loop(0, k.word("channels")) as c:
        write(c, k.at(source, c * height * width))


def _filters(
    k: TemplateBody,
    spec: WinogradSpec,
    products: ir.Value,
    start: Vector,
    stop: Vector,
    image: Vector,
    first: Vector,
    rows: Vector,
) -> None:
    buffer = k.at(products, k.word("slab_out") * spec.side**2)
    with k.loop(start, stop) as f:
        _turn_out(k, spec, k.at(products, (f - start) * k.word("stride")), buffer, image, f, first, rows)


def _plane(k: TemplateBody, spec: WinogradSpec, source: ir.Value, plane: ir.Value, first: Vector, rows: Vector) -> None:
    """One channel's rows under ``rows`` rows of tiles, padded: row r of it lies in line r % m, behind row r - m.

    So neighbouring tiles, of one row of tiles and the next, have their numbers side by side. A row has just the columns
    that its tiles begin in; the two on the right of them lie at the last tile's place in two border lines.
    """
    m, lanes = spec.m, spec.lanes
    line, border, columns = k.word("line"), k.word("border"), k.word("tile_columns")
    width = columns * m
    zero = k.e.constant("float32", lanes, 0.0)
    # Tiles behind the last one have numbers too: what lay there before might be slow to compute with.
    with k.loop(0, k.number(m)) as phase, k.loop(rows * width, line - (lanes - 1), lanes) as x:
        k.put(k.at(plane, phase * line), x, zero)
    with k.loop(0, k.number(2 * m)) as number, k.loop(rows * columns, border - (lanes - 1), lanes) as x:
        k.put(k.at(plane, line * m + number * border), x, zero)
    top, left = first * m - k.word("pad_y"), -k.word("pad_x")
    with k.loop(0, rows * m + 2) as row:
        y = top + row
        number = k.quotient(row, k.number(m))
        phase = row - number * m
        at = k.at(plane, phase * line + number * width)
        beside = k.at(plane, line * m + phase * border * 2 + number * columns + columns - 1)
        with k.builder.if_else(((y >= 0) & (y < k.word("height"))).value) as (inside, beyond):
            with inside:
                pixels = k.at(source, y * k.word("width"))
                with k.loop(0, width, lanes) as x:
                    k.put(at, x, padded_columns(k, pixels, x, left, lanes, 1, 0.0))
                for q in range(2):
                    k.put(beside, border * q, padded_columns(k, pixels, width + q, left, 1, 1, 0.0))
            with beyond:
                with k.loop(0, width, lanes) as x:
                    k.put(at, x, zero)
                for q in range(2):
                    k.put(beside, border * q, k.e.constant("float32", 1, 0.0))


def _turn_in(k: TemplateBody, spec: WinogradSpec, plane: ir.Value, target: ir.Value) -> None:
    """All tiles of a channel: number (a, b) of tile t to ``target[(a * side + b) * slab_in + t]``."""
    m, side, lanes = spec.m, spec.side, spec.lanes
    columns, line, border = k.word("tile_columns"), k.word("line"), k.word("border")
    apart = k.word("slab_in")
    below = apart * side
    with k.loop(0, k.word("panels") * spec.vectors) as number:
        t = number * lanes
        is_last = mask_of(k, k.e.load(k.array("lasts"), number.value, "int64", 1), lanes)
        grid = []
        for i in range(side):
            # The last two rows of a tile are the first two of the tile below.
            tile = t + columns * (i // m)
            at = k.at(plane, line * (i % m) + tile * m)
            beside = k.at(plane, line * m + border * (2 * (i % m)) + tile)
            numbers = split_lanes(k, [k.floats(at, q * lanes, lanes) for q in range(m)])
            # The first two columns of the tile on the right are the last two of this one.
            beyond = k.floats(at, m * lanes, lanes)
            for q in range(2):
                if lanes == 1:
                    right = k.floats(at, m + q, 1)
                else:
                    right = shuffled(k, numbers[q], beyond, [*range(1, lanes), lanes + q])
                numbers.append(k.e.select(is_last, k.floats(beside, border * q, lanes), right))
            grid.append(inward(m, numbers))
        column = k.at(target, t)
        for b in range(side):
            at = column
            for x in inward(m, [grid[i][b] for i in range(side)]):
                k.put(at, 0, x)
                at = k.at(at, below)
            column = k.at(column, apart)


def _products(
    k: TemplateBody, spec: WinogradSpec, turned: ir.Value, products: ir.Value, first: Vector, last: Vector
) -> None:
    """For each number of the tiles, all filters of a chunk: a matrix product over the channels."""
    channels, stride, blocks = k.word("channels"), k.word("stride"), k.word("blocks")
    with k.loop(0, k.number(spec.side**2)) as p:
        inputs, outputs = k.at(turned, p * k.word("slab_in")), k.at(products, p * k.word("slab_out"))
        with k.loop(first, last) as block:
            w = k.at(k.array("weights"), (p * blocks + block) * channels * spec.rows)
            with k.loop(0, k.word("panels")) as panel:
                right = k.at(inputs, panel * spec.tile)

                def number(i: Vector, v: int, right: ir.Value = right, w: ir.Value = w) -> Vector:
                    # Few products for each weight: they come from far away, one line after the other.
                    if v == 0 and spec.vectors <= 2:
                        k.e.prefetch(w, (i * spec.rows + AHEAD).value, "float32")
                    return k.floats(right, i * stride + v * spec.lanes, spec.lanes)

                sums = multiply_tile(
                    k, spec.rows, spec.vectors, spec.lanes, channels,
                    lambda i, r: k.floats(w, i * spec.rows + r, 1), number,
                )  # fmt: skip
                at = k.at(outputs, (block - first) * spec.rows * stride + panel * spec.tile)
                for r, row in enumerate(sums):
                    for v, x in enumerate(row):
                        k.put(at, stride * r + v * spec.lanes, x)


def _turn_out(
    k: TemplateBody,
    spec: WinogradSpec,
    products: ir.Value,
    buffer: ir.Value,
    image: Vector,
    channel: Vector,
    first: Vector,
    rows: Vector,
) -> None:
    """All tiles of one filter to the result."""
    m, side, lanes = spec.m, spec.side, spec.lanes
    columns, apart = k.word("tile_columns"), k.word("slab_out")
    height, width, line = k.word("out_rows"), k.word("out_columns"), k.word("stride") * m
    with k.loop(0, rows * columns, lanes) as t:
        at = k.at(products, t)
        grid = []
        for _ in range(side):
            numbers = []
            for _ in range(side):
                numbers.append(k.floats(at, 0, lanes))
                at = k.at(at, apart)
            grid.append(outward(m, numbers))
        finished = [outward(m, [grid[a][j] for a in range(side)]) for j in range(m)]
        for i in range(m):
            for v, x in enumerate(join_lanes(k, [finished[j][i] for j in range(m)])):
                k.put(buffer, line * i + t * m + v * lanes, x)
    base = (image * k.word("filters") + channel) * height
    top = first * m
    with k.loop(0, k.smaller(height - top, rows * m)) as row:
        number = k.quotient(row, k.number(m))
        sums = k.at(buffer, (row - number * m) * line + number * columns * m)
        place = (base + top + row) * width
        with k.loop(0, width, lanes) as x:
            finish_row(k, spec.epilogue, lanes, 1, k.at(sums, x), width - x, channel, place + x)
