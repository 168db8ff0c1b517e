"""Convolutions with few channels in a group, depthwise ones first of all: NCHW in, NCHW out, no unfolding.

A tile is ``rows`` rows by ``vectors`` of pixels for ``filters`` filters of one group, its sums in registers; each tap reads the
padded planes where they lie. Weights lie as [group][K / filters][C * taps][filters].
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.conv_dense import finish_row
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import SLOTS as PLANE_SLOTS
from gpujit.kernels.templates.planes import unless_current, write_planes
from gpujit.kernels.vector import I64, Vector

SLOTS = (
    "x", "weights", "bias", "residual", "out", "offsets",
    "images", "groups", "channels", "filters", "depth", "out_rows", "out_columns", "bands", "blocks",
    *PLANE_SLOTS, "scratch", "scratch_bytes",
)  # fmt: skip


class RowsSpec(NamedTuple):
    """The tile, and the stride along x that planes are split for (0: any)."""

    filters: int
    rows: int
    vectors: int
    lanes: int
    stride_x: int
    epilogue: Epilogue


def render(spec: RowsSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(SLOTS, texts) as k:
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
    x, out, residual, offsets = (k.array(n) for n in ("x", "out", "residual", "offsets"))
    area, size = k.word("height") * k.word("width"), k.word("plane_size")
    planes = k.scratch()
    bands = k.word("bands")
    low, high = k.share(k.word("images") * k.word("groups") * bands)
    with k.loop(low, high) as task:
        index = k.quotient(task, bands)
        group = k.rest(index, k.word("groups"))
        band = task - index * bands
        with k.builder.if_then(unless_current(k, current, index)), k.loop(0, channels) as c:
            write_planes(
                k, k.at(x, (index * channels + c) * area), k.at(planes, c * size), lanes, spec.stride_x
            )
        weights = k.at(k.array("weights"), group * blocks * depth * spec.filters)
        first, last = (k.quotient(out_rows * n, bands) for n in (band, band + 1))
        with k.loop(0, blocks) as block, k.loop(first, last, spec.rows) as y, k.loop(0, out_columns, wide) as column:
            w = k.at(weights, block * depth * spec.filters)
            # Rows beyond the last are the last one again; they are not stored.
            lines = [k.at(planes, k.smaller(y + r, out_rows - 1) * pitch + column) for r in range(spec.rows)]
            found: dict[str, Vector] = {}

            def right(i: Vector, v: int) -> Vector:
                if v == 0:
                    found["offset"] = k.e.load(offsets, i.value, "int64", 1)
                row, vector = divmod(v, spec.vectors)
                return k.floats(k.at(lines[row], found["offset"]), vector * lanes, lanes)

            sums = multiply_tile(
                k, spec.filters, spec.rows * spec.vectors, lanes, depth,
                lambda i, f: k.floats(w, i * spec.filters + f, 1), right,
            )  # fmt: skip
            for f, tile in enumerate(sums):
                for v, value in enumerate(tile):
                    k.put(buffer, f * spec.rows * wide + v * lanes, value)
            filter_ = block * spec.filters
            with k.loop(0, k.smaller(filters - filter_, spec.filters)) as f:
                channel = group * filters + filter_ + f
                image = (index * filters + filter_ + f) * out_rows
                with k.loop(0, k.smaller(last - y, spec.rows)) as r:
                    at = (image + y + r) * out_columns + column
                    sums_at = k.at(buffer, (f * spec.rows + r) * wide)
                    finish_row(
                        k, spec.epilogue, lanes, spec.vectors, sums_at, out_columns - column, channel, at, out, residual
                    )
