"""Pooling of NCHW arrays: the largest number or the mean of windows, and of the uneven windows of adaptive pooling.

Windows of fixed size read padded planes, with neighbouring pixels of the result in the lanes. Adaptive windows are
reduced one after the other, along their rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.target import host
from gpujit.kernels.templates.body import TemplateBody, template
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.templates.choice import Choose, Way, quickest
from gpujit.kernels.templates.planes import SLOTS as PLANE_SLOTS
from gpujit.kernels.templates.planes import Window, write_planes
from gpujit.kernels.vector import Vector
from gpujit.support.errors import ArgumentError

KINDS = ("max", "mean")
SLOTS = (
    "x", "scales", "out", "taps",
    "images", "tap_count", "out_rows", "out_columns", *PLANE_SLOTS, "scratch", "scratch_bytes",
)  # fmt: skip
ADAPTIVE_SLOTS = ("x", "out", "images", "height", "width", "out_rows", "out_columns")
# Numbers read below which one thread is as quick as the team.
WORTH_A_TEAM = 100_000


class PoolSpec(NamedTuple):
    """``rows`` rows by ``vectors`` of pixels at once; ``stride_x`` as planes are split for it."""

    kind: str
    rows: int
    vectors: int
    lanes: int
    stride_x: int


def _combined(k: TemplateBody, kind: str) -> tuple[float, Callable[[Vector, Vector], Vector]]:
    """What a reduction begins with, and what it does."""
    if kind == "max":
        return float("-inf"), k.e.maximum
    return 0.0, lambda x, y: x + y


def render(spec: PoolSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(SLOTS, texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: PoolSpec) -> None:
    for name in SLOTS[4:-2]:
        k.word(name)
    lanes, wide = spec.lanes, spec.vectors * spec.lanes
    height, width, pitch = k.word("out_rows"), k.word("out_columns"), k.word("pitch")
    taps, out, planes = k.array("taps"), k.array("out"), k.scratch()
    area = k.word("height") * k.word("width")
    fill, combine = _combined(k, spec.kind)
    low, high = k.share(k.word("images"))
    with k.loop(low, high) as image:
        source = k.at(k.array("x"), image * area)
        k.outline(
            "planes", [source, planes], lambda k, source, to: write_planes(k, source, to, lanes, spec.stride_x, fill)
        )
        with k.loop(0, height, spec.rows) as y, k.loop(0, width, wide) as column:
            # Rows beyond the last are the last one again; they are not stored.
            lines = [k.at(planes, k.smaller(y + r, height - 1) * pitch + column) for r in range(spec.rows)]
            start = k.e.constant("float32", lanes, fill)
            with k.repeat(k.word("tap_count"), [start] * (spec.rows * spec.vectors)) as turn:
                tap = k.e.load(taps, turn.index.value, "int64", 1)
                turn.following = [
                    combine(found, k.floats(k.at(lines[q // spec.vectors], tap), q % spec.vectors * lanes, lanes))
                    for q, found in enumerate(turn.now)
                ]
            for r in range(spec.rows):
                with k.builder.if_then((y + r < height).value):
                    for v in range(spec.vectors):
                        first = column + v * lanes
                        mask = k.e.tail_mask(width - first, lanes)
                        at = (y + r) * width + first
                        x = turn.now[r * spec.vectors + v]
                        if spec.kind == "mean":
                            x = x * k.floats(k.array("scales"), at, lanes, mask)
                        k.put(out, image * height * width + at, x, mask)


class Pool(NamedTuple):
    """Pooling of ``images`` planes (batch times channels). ``divisor`` is a mean's; without it, it is the window's
    size.

    ``counts_padding`` says whether zeros of the padding count in the window's size.
    """

    kind: str
    images: int
    window: Window
    counts_padding: bool = True
    divisor: int | None = None


def _plan(pool: Pool, choose: Choose) -> PoolSpec:
    window, lanes = pool.window, host().width
    height, width = window.output

    def way(rows: int, vectors: int) -> Way:
        spec = PoolSpec(pool.kind, rows, vectors, lanes, window.stride[1] if window.stride[1] <= 2 else 0)
        cost = work * -(-height // rows) * rows * -(-width // (vectors * lanes)) * vectors * (1 + 2 / (rows * vectors))
        return Way(cost, Code("pool", spec, render), rows * vectors)

    work = pool.images * window.kernel[0] * window.kernel[1] * lanes
    vectors = min(-(-width // lanes), 4)
    found: PoolSpec = choose(
        way(max(1, min(8 // vectors, height)), vectors),
        lambda: [way(rows, v) for v in range(1, 5) for rows in range(1, 8 // v + 1)],
    ).spec
    return found


def bind(pool: Pool, choose: Choose = quickest) -> BoundTemplate:
    """The kernel to call with (x, out); ``choose``: which of the tiles. Raises ArgumentError."""
    window, lanes = _within(pool.window), host().width
    height, width = window.output
    if pool.kind not in KINDS:
        raise ArgumentError(f"pooling by {pool.kind!r}: there are {', '.join(KINDS)}")
    if min(pool.images, height, width) < 1:
        raise ArgumentError(f"pooling with a result of {window.output} pixels has nothing to compute")
    spec = _plan(pool._replace(window=window), choose)
    words = window.words | {
        "images": pool.images, "tap_count": window.kernel[0] * window.kernel[1], "out_rows": height,
        "out_columns": width,
    }  # fmt: skip
    constants = {"taps": window.taps}
    if pool.kind == "mean":
        constants["scales"] = scales(pool)
    return BoundTemplate(
        Code("pool", spec, render),
        SLOTS,
        words,
        ("x", "out"),
        scratch_bytes=4 * (window.plane_size + spec.vectors * lanes),
        constants=constants,
        is_small=pool.images * height * width * words["tap_count"] < WORTH_A_TEAM,
    )


def _within(window: Window) -> Window:
    """The windows without the taps that lie beside the image for every pixel of the result: what a mean of all of an
    image asks for may be a thousand times as large as the image."""
    kernel, padding, more = list(window.kernel), list(window.padding), list(window.more)
    for i, (size, out) in enumerate(zip((window.height, window.width), window.output, strict=True)):
        taps, stride, step, before = window.kernel[i], window.stride[i], window.dilation[i], window.padding[i]
        if out < 1:
            return window
        first = max(0, before - (out - 1) * stride) // step
        last = min(taps - 1, (size - 1 + before) // step)
        first = min(first, last)
        kernel[i], padding[i] = last - first + 1, before - first * step
        # The result keeps its size; fewer than no zeros mean that the last numbers are not reached.
        more[i] = (out - 1) * stride + (kernel[i] - 1) * step + 1 - size - 2 * padding[i]
    if tuple(kernel) == window.kernel:
        return window
    return window._replace(kernel=(kernel[0], kernel[1]), padding=(padding[0], padding[1]), more=(more[0], more[1]))


def scales(pool: Pool) -> np.ndarray:
    """float32 [rows, columns] of the result: what each sum is multiplied by."""
    window = pool.window
    sizes = []
    for size, out, taps, stride, padding in zip(
        (window.height, window.width), window.output, window.kernel, window.stride, window.padding
    ):
        first = np.arange(out) * stride - padding
        last = np.minimum(first + taps, size + padding)
        if not pool.counts_padding:
            first, last = np.maximum(first, 0), np.minimum(last, size)
        sizes.append(last - first)
    counts = sizes[0][:, None] * sizes[1]
    if pool.divisor is not None:
        counts = np.full_like(counts, pool.divisor)
    return (1 / counts).astype(np.float32)


class AdaptiveSpec(NamedTuple):
    """Windows whose sizes differ by one."""

    kind: str
    lanes: int


def render_adaptive(spec: AdaptiveSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(ADAPTIVE_SLOTS, texts) as k:
        _write_adaptive(k, spec)
    return texts[0]


def _write_adaptive(k: TemplateBody, spec: AdaptiveSpec) -> None:
    height, width, rows, columns = (k.word(n) for n in ("height", "width", "out_rows", "out_columns"))
    fill, combine = _combined(k, spec.kind)
    low, high = k.share(k.word("images") * rows)
    with k.loop(low, high) as task:
        image = k.quotient(task, rows)
        top, bottom = _range(k, task - image * rows, height, rows)
        source = k.at(k.array("x"), image * height * width)
        with k.loop(0, columns) as column:
            left, right = _range(k, column, width, columns)
            x = _reduced(k, spec, k.at(source, top * width + left), bottom - top, right - left, width, fill, combine)
            if spec.kind == "mean":
                x = x / k.e.cast((bottom - top) * (right - left), "float32")
            k.put(k.array("out"), task * columns + column, x)


def _range(k: TemplateBody, index: Vector, size: Vector, count: Vector) -> tuple[Vector, Vector]:
    """Where window ``index`` of ``count`` begins and ends."""
    return k.quotient(index * size, count), k.quotient((index + 1) * size + count - 1, count)


def _reduced(
    k: TemplateBody,
    spec: AdaptiveSpec,
    source: ir.Value,
    rows: Vector,
    columns: Vector,
    pitch: Vector,
    fill: float,
    combine: Callable[[Vector, Vector], Vector],
) -> Vector:
    """All numbers of a window as one."""
    lanes = spec.lanes
    start = k.e.constant("float32", lanes, fill)
    # Four vectors at a time: each waits for the one before.
    wide, whole = columns & -(4 * lanes), columns & -lanes
    with k.carried_loop(0, rows, 1, [start] * 4) as line:
        at = k.at(source, line.index * pitch)
        with k.carried_loop(0, wide, 4 * lanes, line.now) as four:
            four.following = [combine(x, k.floats(at, four.index + v * lanes, lanes)) for v, x in enumerate(four.now)]
        with k.carried_loop(wide, whole, lanes, four.now[:1]) as one:
            one.following = [combine(one.now[0], k.floats(at, one.index, lanes))]
        mask = k.e.tail_mask(columns - whole, lanes)
        rest = k.e.load(at, whole.value, "float32", lanes, mask, other=fill)
        line.following = [combine(one.now[0], rest), *four.now[1:]]
    a, b, c, d = line.now
    return k.e.reduce(combine(combine(a, b), combine(c, d)), combine)


def bind_adaptive(kind: str, images: int, size: tuple[int, int], output: tuple[int, int]) -> BoundTemplate:
    """The kernel to call with (x, out): windows such that the result has the size ``output``. Raises ArgumentError."""
    if kind not in KINDS:
        raise ArgumentError(f"pooling by {kind!r}: there are {', '.join(KINDS)}")
    if min(images, *size, *output) < 1:
        raise ArgumentError(f"pooling {size} to {output} has nothing to compute")
    if output == (1, 1):
        # All of an image lies in one row.
        size = 1, size[0] * size[1]
    spec = AdaptiveSpec(kind, host().width)
    words = {
        "images": images, "height": size[0], "width": size[1], "out_rows": output[0], "out_columns": output[1],
    }  # fmt: skip
    return BoundTemplate(
        Code("adaptive", spec, render_adaptive),
        ADAPTIVE_SLOTS,
        words,
        ("x", "out"),
        is_small=images * size[0] * size[1] < WORTH_A_TEAM,
    )
