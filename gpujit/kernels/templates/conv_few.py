"""Convolutions with few pixels in the result: filters lie in the lanes, so that no lane is idle.

What each pixel reads is gathered first, tap by tap, so that it lies together; then it is a product with the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.gemm_weights import pack as pack_matrix
from gpujit.kernels.templates.planes import Window
from gpujit.kernels.vector import Vector

SLOTS = (
    "x", "out", "weights", "bias", "residual", "offsets",
    "images", "channels", "filters", "area", "pixels", "tap_count", "panels", "scratch", "scratch_bytes",
)  # fmt: skip


class FewSpec(NamedTuple):
    """``rows`` pixels by ``vectors`` of filters at once."""

    rows: int
    vectors: int
    lanes: int
    epilogue: Epilogue
    # Whether images are made by a producer.
    is_produced: bool = False

    @property
    def tile(self) -> int:
        return self.vectors * self.lanes


def pack(weights: np.ndarray, tile: int) -> np.ndarray:
    """Weights [K, C, kernel y, kernel x] as panels of filters, taps before channels."""
    return pack_matrix(weights.transpose(2, 3, 1, 0).reshape(-1, weights.shape[0]), tile)


def offsets(window: Window) -> np.ndarray:
    """int64 [pixels * taps]: where in a channel each tap of each pixel lies; -1 for the border of zeros."""
    places = []
    for axis, size in enumerate((window.height, window.width)):
        first = np.arange(window.output[axis]) * window.stride[axis] - window.padding[axis]
        at = first[:, None] + np.arange(window.kernel[axis]) * window.dilation[axis]
        places.append(np.where((at >= 0) & (at < size), at, -1))
    y, x = places[0][:, None, :, None], places[1][None, :, None, :]
    return np.where((y < 0) | (x < 0), -1, y * window.width + x).astype(np.int64).ravel()


def render(spec: FewSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template((*SLOTS, *(producer.SLOTS if spec.is_produced else ())), texts) as k:
        for name in SLOTS[6:-2]:
            k.word(name)
        low, high = k.share(k.word("panels"))
        if spec.is_produced:
            producer.begin(k)
        with k.builder.if_then((low < high).value), k.loop(0, k.word("images")) as image:
            gathered = k.scratch()
            _gather(k, spec, image, gathered)
            with k.loop(low, high) as panel:
                _write(k, spec, image, panel, gathered)
    return texts[0]


def _gather(k: TemplateBody, spec: FewSpec, image: Vector, target: ir.Value) -> None:
    """What the pixels read, as [pixels][taps][channels]."""
    channels, area = k.word("channels"), k.word("area")
    if spec.is_produced:
        source, row = producer.rows_at(k), image * channels
        producer.make(k, row, row + channels, 0, area, k.at(source, -(row * area)))
    else:
        source = k.at(k.array("x"), image * channels * area)
    zero = k.e.constant("float32", spec.lanes, 0.0)
    with k.loop(0, k.word("pixels") * k.word("tap_count")) as n:
        offset = k.e.load(k.array("offsets"), n.value, "int64", 1)
        to = k.at(target, n * channels)
        with k.builder.if_else((offset < 0).value) as (border, inside):
            with border:
                k.vector_loop(channels, spec.lanes, lambda i, mask: k.put(to, i, zero, mask))
            with inside:
                line = k.at(source, offset)
                with k.loop(0, channels) as c:
                    k.put(to, c, k.floats(line, c * area, 1))


def _write(k: TemplateBody, spec: FewSpec, image: Vector, panel: Vector, gathered: ir.Value) -> None:
    lanes, tile, pixels = spec.lanes, spec.tile, k.word("pixels")
    depth = k.word("channels") * k.word("tap_count")
    panel_at = k.at(k.array("weights"), panel * depth * tile)
    buffer = k.buffer(spec.rows * tile)
    with k.loop(0, pixels, spec.rows) as pixel:
        lines = [k.at(gathered, k.smaller(pixel + r, pixels - 1) * depth) for r in range(spec.rows)]
        sums = multiply_tile(
            k, spec.rows, spec.vectors, lanes, depth,
            lambda i, r: k.floats(lines[r], i, 1),
            lambda i, v: k.floats(panel_at, i * tile + v * lanes, lanes),
        )  # fmt: skip
        for r, row in enumerate(sums):
            for v, x in enumerate(row):
                k.put(buffer, r * tile + v * lanes, x)
        first = image * k.word("filters") * pixels + pixel
        given = [buffer, panel * tile, first, k.smaller(pixels - pixel, spec.rows)]
        k.outline("finish", given, lambda k, *given: _finish(k, spec, *given))


def _finish(k: TemplateBody, spec: FewSpec, buffer: ir.Value, first_filter: Vector, at: Vector, count: Vector) -> None:
    """``count`` pixels of a tile's filters through the epilogue to the result; the tile's first pixel is at ``at``."""
    e, pixels = k.e, k.word("pixels")
    with k.loop(0, count) as r:
        for v in range(spec.vectors):
            first = first_filter + v * spec.lanes
            mask = e.tail_mask(k.word("filters") - first, spec.lanes)
            place = (first * pixels + at + r).value
            x = k.floats(buffer, r * spec.tile + v * spec.lanes, spec.lanes)
            bias = k.floats(k.array("bias"), first, spec.lanes, mask) if spec.epilogue.bias else None
            residual = None
            if spec.epilogue.residual:
                residual = e.load(k.array("residual"), place, "float32", spec.lanes, mask, stride=pixels.value)
            x = spec.epilogue.apply(e, x, bias, residual)
            e.store(k.array("out"), place, x, spec.epilogue.result, mask=mask, stride=pixels.value)
