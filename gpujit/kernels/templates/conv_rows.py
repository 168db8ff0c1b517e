"""Convolutions with few channels in a group, depthwise ones first of all: NCHW in, NCHW out, no unfolding.

A tile is ``rows`` rows by ``vectors`` of pixels for ``filters`` filters of one group, its sums in registers; taps
read the padded planes where they lie. A vector of a row is read once for all taps of a column, which different rows
of the tile take it for. Weights lie as [group][K / filters][C][kernel x][kernel y][filters].
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, template
from gpujit.kernels.templates.conv_dense import finish_row
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import SLOTS as PLANE_SLOTS
from gpujit.kernels.templates.planes import unless_current, write_channels
from gpujit.kernels.vector import I64, Vector

SLOTS = (
    "x", "weights", "bias", "residual", "out", "offsets",
    "images", "groups", "channels", "filters", "depth", "out_rows", "out_columns", "bands", "blocks",
    *PLANE_SLOTS, "scratch", "scratch_bytes",
)  # fmt: skip


class RowsSpec(NamedTuple):
    """The tile, what the window does along y, and the stride along x that planes are split for (0: any)."""

    filters: int
    rows: int
    vectors: int
    lanes: int
    kernel_y: int
    stride_y: int
    dilation_y: int
    stride_x: int
    epilogue: Epilogue
    # Whether images are made by a producer.
    is_produced: bool = False


def render(spec: RowsSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template((*SLOTS, *(producer.SLOTS if spec.is_produced else ())), texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: RowsSpec) -> None:
    for name in SLOTS[6:-2]:
        k.word(name)
    lanes, wide = spec.lanes, spec.vectors * spec.lanes
    buffer = k.buffer(spec.filters * spec.rows * wide)
    current = k.builder.alloca(I64)
    k.builder.store(ir.Constant(I64, -1), current)
    channels, filters, depth, blocks = (k.word(n) for n in ("channels", "filters", "depth", "blocks"))
    out_rows, out_columns, pitch = k.word("out_rows"), k.word("out_columns"), k.word("pitch")
    x, offsets = k.array("x"), k.array("offsets")
    area = k.word("height") * k.word("width")
    planes = k.scratch()
    bands = k.word("bands")
    low, high = k.share(k.word("images") * k.word("groups") * bands)
    if spec.is_produced:
        producer.begin(k)
    with k.loop(low, high) as task:
        index = k.quotient(task, bands)
        group = k.rest(index, k.word("groups"))
        band = task - index * bands
        with k.builder.if_then(unless_current(k, current, index)):
            source = k.at(x, index * channels * area)
            k.outline(
                "planes",
                [source, planes, index * channels],
                lambda k, source, target, row: write_channels(
                    k, source, target, lanes, spec.stride_x, row if spec.is_produced else None
                ),
            )
        weights = k.at(k.array("weights"), group * blocks * depth * (spec.kernel_y * spec.filters))
        first, last = (k.quotient(out_rows * n, bands) for n in (band, band + 1))
        with k.loop(0, blocks) as block, k.loop(first, last, spec.rows) as y, k.loop(0, out_columns, wide) as column:
            w = k.at(weights, block * depth * (spec.kernel_y * spec.filters))
            sums = _sums(k, spec, w, k.at(planes, y * pitch + column), offsets)
            for q, value in enumerate(sums):
                k.put(buffer, q * lanes, value)
            filter_ = block * spec.filters
            images = index * filters + filter_
            given = [
                buffer, k.smaller(filters - filter_, spec.filters), k.smaller(last - y, spec.rows), y, column,
                group * filters + filter_, images,
            ]  # fmt: skip
            k.outline("finish", given, lambda k, *given: _finish(k, spec, *given))


def _sums(k: TemplateBody, spec: RowsSpec, w: ir.Value, planes: ir.Value, offsets: ir.Value) -> list[Vector]:
    """The tile's sums: by filter, row and vector."""
    lanes, height = spec.lanes, spec.kernel_y
    pitch = k.word("pitch")
    # Taps along y by their phase of the stride: (row of the plane, tap).
    phases: dict[int, list[tuple[int, int]]] = {}
    for tap in range(height):
        shift, phase = divmod(tap * spec.dilation_y, spec.stride_y)
        phases.setdefault(phase, []).append((shift, tap))
    apart = k.word("phases_x") * k.word("plane_rows") * pitch
    zero = k.e.constant("float32", lanes, 0.0)
    with k.repeat(k.word("depth"), [zero] * (spec.filters * spec.rows * spec.vectors)) as turn:
        sums = list(turn.now)
        column = k.at(planes, k.e.load(offsets, turn.index.value, "int64", 1))
        first = turn.index * (height * spec.filters)
        scalars = [k.e.broadcast(k.floats(w, first + q, 1), lanes) for q in range(height * spec.filters)]
        for phase, taps in phases.items():
            line = k.at(column, apart * phase) if phase else column
            for row in range(taps[-1][0] + spec.rows):
                # The rows of the tile that read this row of the plane, and by which tap.
                readers = [(row - shift, tap) for shift, tap in taps if 0 <= row - shift < spec.rows]
                if readers:
                    for v in range(spec.vectors):
                        x = k.floats(line, v * lanes, lanes)
                        for r, tap in readers:
                            for f in range(spec.filters):
                                q = (f * spec.rows + r) * spec.vectors + v
                                sums[q] = k.e.fma(scalars[tap * spec.filters + f], x, sums[q])
                line = k.at(line, pitch)
        turn.following = sums
    return turn.now


def _finish(
    k: TemplateBody,
    spec: RowsSpec,
    buffer: ir.Value,
    filters: Vector,
    rows: Vector,
    y: Vector,
    column: Vector,
    channel: Vector,
    image: Vector,
) -> None:
    """The buffer's rows of pixels to the result."""
    wide = spec.vectors * spec.lanes
    height, width = k.word("out_rows"), k.word("out_columns")
    with k.loop(0, filters) as f, k.loop(0, rows) as r:
        at = ((image + f) * height + y + r) * width + column
        sums = k.at(buffer, (f * spec.rows + r) * wide)
        finish_row(k, spec.epilogue, spec.lanes, spec.vectors, sums, width - column, channel + f, at)
