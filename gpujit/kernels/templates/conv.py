"""Convolutions of NCHW arrays: which template and which tile, weights packed once, the kernel to call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpujit.kernels.target import host
from gpujit.kernels.templates import conv_dense, conv_few, conv_rows, gemm, producer, winograd
from gpujit.kernels.templates.body import parts_of_sum
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.templates.choice import Choose, Way, quickest, share
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.gemm_rows import kind_of
from gpujit.kernels.templates.gemm_weights import pack
from gpujit.kernels.templates.packs import kept
from gpujit.kernels.templates.planes import Window
from gpujit.kernels.templates.producer import Producer, Source
from gpujit.support.errors import ArgumentError
from gpujit.support.threads import thread_count

# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 200_000
# What a panel's pieces that are not there cost, as a share of the products with it.
MORE_SEGMENTS = 0.05


class Conv(NamedTuple):
    """A convolution of ``images`` images of ``channels`` channels with ``filters`` filters."""

    images: int
    channels: int
    filters: int
    window: Window
    groups: int = 1
    epilogue: Epilogue = Epilogue()

    @property
    def work(self) -> int:
        """Multiplications."""
        height, width = self.window.output
        taps = self.window.kernel[0] * self.window.kernel[1]
        return self.images * self.filters * height * width * (self.channels // self.groups) * taps

    def check(self) -> None:
        """Raises ArgumentError when there is no such convolution."""
        if min(self.window.output) < 1 or min(self.images, self.channels, self.filters) < 1:
            raise ArgumentError(f"a convolution with a result of {self.window.output} pixels has nothing to compute")
        if self.channels % self.groups or self.filters % self.groups:
            raise ArgumentError(f"{self.groups} groups do not divide {self.channels} channels, {self.filters} filters")
        self.epilogue.check()


def bind(
    conv: Conv,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    method: str | None = None,
    owner: np.ndarray | None = None,
    source: Source | None = None,
    choose: Choose = quickest,
) -> BoundTemplate:
    """The kernel to call with (x, out), and a residual last; weights are [K, C / groups, kernel y, kernel x].

    ``method`` is "dense", "rows", "pixels" (for 1x1), "few" (pixels), "winograd2" or "winograd4"; by default what is
    quicker. What is made of the weights is kept as long as ``owner`` is, an array that the weights are a view of; by
    default the weights themselves. With a ``source``, the images are what that makes, from arrays that take their place
    in a call. ``choose``: which of a template's tiles that round alike.
    Raises ArgumentError.
    """
    conv.check()
    expected = (conv.filters, conv.channels // conv.groups, *conv.window.kernel)
    if weights.shape != expected:
        raise ArgumentError(f"weights of shape {weights.shape} for a convolution that needs {expected}")
    if (bias is None) == conv.epilogue.bias:
        raise ArgumentError("a bias is given or promised, but not both")
    owner = weights if owner is None else owner
    weights = np.ascontiguousarray(weights, np.float32)
    method = method or method_of(conv)
    if method == "rows":
        return _bind_rows(conv, weights, bias, owner, source, choose)
    if method == "pixels":
        return _bind_pixels(conv, weights, bias, owner, source, choose)
    if method == "few":
        return _bind_few(conv, weights, bias, owner, source, choose)
    if method.startswith("winograd"):
        return _bind_winograd(conv, weights, bias, owner, int(method[-1]), source, choose)
    return bind_dense(conv, weights, bias, owner, source=source, choose=choose)


@lru_cache(maxsize=1024)
def method_of(conv: Conv) -> str:
    """Which template is quickest: unfolding pays when many filters read what was unfolded."""
    if conv.filters // conv.groups < 12:
        return "rows"
    if conv.groups == 1 and not conv.window.is_plain and _are_few(conv):
        return "few"
    if may_use_winograd(conv) and min(conv.channels, conv.filters) >= 16:
        costs = {f"winograd{m}": winograd_cost(conv, m) for m in (2, 4)}
        best = min(costs, key=costs.__getitem__)
        if costs[best] < 0.95 * conv.work:
            return best
    if conv.window.is_plain and conv.groups == 1:
        pixels, lanes = conv.window.output[0] * conv.window.output[1], host().width
        there = gemm.register_tile(pixels, conv.filters, lanes)
        here = dense_tile(conv.filters, pixels, lanes)
        # To turn the results costs some of what the better tile saves.
        turning = 1 if pixels == 1 else 1 + 150 / (there[0] * conv.channels)
        if turning * _padded(pixels, there[0]) * _padded(conv.filters, there[1] * lanes) < (
            _padded(conv.filters, here[0]) * _padded(pixels, here[1] * lanes)
        ):
            return "pixels"
    return "dense"


def _are_few(conv: Conv) -> bool:
    """Whether pixels would fill half a vector at most, and filters one."""
    lanes = host().width
    return 2 * conv.window.output[0] * conv.window.output[1] <= lanes <= conv.filters


def _padded(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def may_use_winograd(conv: Conv) -> bool:
    """Whether the algorithm fits at all."""
    window = conv.window
    return window.kernel == (3, 3) and window.stride == window.dilation == (1, 1) and conv.groups == 1


def _stride_kind(window: Window) -> int:
    return window.stride[1] if window.stride[1] <= 2 else 0


# Bytes of images that a producer makes at a time, to stay in the first-level cache.
LOT_BYTES = 1 << 14


def _images(conv: Conv, source: Source | None, at_once: int, sharing: int, parts: float = 1) -> Producer | None:
    """What makes ``at_once`` channels at a time, or as many as are a lot (0).

    Args:
        sharing: tasks that read the same.
        parts: how often a pixel is needed for all of these, on average.
    """
    if source is None:
        return None
    area = conv.window.height * conv.window.width
    if source.elements != conv.images * conv.channels * area:
        raise ArgumentError("the images are a part of what is made")
    lot = at_once or max(1, min(conv.channels // conv.groups, LOT_BYTES // (4 * area)))
    return Producer(
        source.rows(area, area, is_part=False), lot * area, _times(conv.images * conv.groups, sharing) * parts,
        conv.images * -(-conv.channels // lot), lot,
    )  # fmt: skip


def _times(alone: int, sharing: int) -> int:
    """How many threads make the same, which ``sharing`` tasks read; there are ``alone`` such tasks side by side."""
    return max(1, min(sharing, -(-thread_count() // alone)))


def _bound(
    code: Code,
    slots: tuple[str, ...],
    words: dict[str, int],
    conv: Conv,
    scratch: int,
    constants: dict[str, np.ndarray],
    made: Producer | None,
    is_small: bool,
) -> BoundTemplate:
    """The template, with what makes its images if something does."""
    if made is not None:
        slots, words, scratch = (*slots, *made.slots), words | made.words(scratch), made.scratch_bytes(scratch)
    return BoundTemplate(
        code,
        slots,
        words,
        [*producer.names(made, "x"), "out", *(["residual"] if conv.epilogue.residual else [])],
        scratch_bytes=scratch,
        constants=constants,
        is_small=is_small,
        dtypes=producer.array_types(made) | conv.epilogue.dtypes,
        producer=made,
    )


def _constants(conv: Conv, bias: np.ndarray | None) -> dict[str, np.ndarray]:
    return {} if bias is None else {"bias": np.ascontiguousarray(bias, np.float32)}


@lru_cache(maxsize=8192)
def dense_tile(filters: int, pixels: int, lanes: int) -> tuple[int, int]:
    """Filters and vectors of pixels of a register tile: those that compute least beyond the borders."""
    return min(DENSE_TILES[lanes >= 16], key=lambda tile: (_dense_cost(filters, pixels, tile, lanes), -tile[1]))


def _dense_cost(filters: int, pixels: int, tile: tuple[int, int], lanes: int) -> float:
    """What a register tile takes, in multiplications for each number that is added up."""
    rows, vectors = tile
    work = _padded(filters, rows) * _padded(pixels, vectors * lanes)
    # Each block of filters reads the panel again: many in one block read it seldom.
    return work * (1 + 0.8 / rows + 0.25 / vectors)


def _alike(best: tuple[int, int], tiles: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The tiles whose sums round as those of the best do."""
    return [tile for tile in tiles if parts_of_sum(tile[0] * tile[1]) == parts_of_sum(best[0] * best[1])]


# At most 26 sums of 32 vector registers, or 12 of 16.
DENSE_TILES = {
    True: [(r, v) for v, most in ((1, 24), (2, 13), (3, 8), (4, 6)) for r in range(1, most + 1)],
    False: [(r, v) for v, most in ((1, 12), (2, 6), (3, 4)) for r in range(1, most + 1)],
}


def bind_dense(
    conv: Conv,
    weights: np.ndarray,
    bias: np.ndarray | None,
    owner: np.ndarray,
    places: np.ndarray | None = None,
    out_area: int = 0,
    source: Source | None = None,
    choose: Choose = quickest,
) -> BoundTemplate:
    """The unfolding kernel; pixel ``p`` goes to ``places[p]`` of a channel of ``out_area`` pixels, if that is given."""
    window, lanes = conv.window, host().width
    pixels = window.output[0] * window.output[1]
    filters, channels = conv.filters // conv.groups, conv.channels // conv.groups
    spec = _plan_dense(conv, places is not None, source is not None, choose)
    rows, segments = spec.rows, spec.segments
    packed = kept(owner, ("dense", conv.groups, rows), lambda: conv_dense.pack(weights, conv.groups, rows))
    constants = _constants(conv, bias) | {"weights": packed}
    if segments:
        constants |= {"taps": window.taps, "pieces": conv_dense.pieces(window, lanes, spec.vectors, segments)}
    if places is not None:
        constants["places"] = places
    panels, blocks = -(-pixels // spec.tile), -(-filters // rows)
    tasks = conv.images * conv.groups * panels
    chunks = _chunks(tasks, blocks)
    chunk = -(-blocks // chunks)
    depth = channels * window.kernel[0] * window.kernel[1]
    words = window.words | {
        "images": conv.images, "groups": conv.groups, "channels": channels, "filters": filters,
        "tap_count": window.kernel[0] * window.kernel[1], "pixels": pixels, "panels": panels,
        "chunks": -(-blocks // chunk), "chunk": chunk, "blocks": blocks, "out_area": out_area,
    }  # fmt: skip
    if segments or source is None:
        made = _images(conv, source, 0, panels * words["chunks"])
    else:
        if source.elements != conv.images * conv.channels * pixels:
            raise ArgumentError("the images are a part of what is made")
        # Panels are made where they are read.
        made = Producer(
            source.rows(pixels, spec.tile, is_part=True), 0, _times(tasks, words["chunks"]),
            panels * conv.images * conv.groups, pieces=panels * conv.images * conv.channels,
        )  # fmt: skip
    return _bound(
        Code("conv_dense", spec, conv_dense.render), conv_dense.SLOTS, words, conv,
        4 * (depth * spec.tile + (channels * window.plane_size if segments else 0)), constants, made,
        conv.work < WORTH_A_TEAM,
    )  # fmt: skip


def _plan_dense(conv: Conv, is_scattered: bool, is_produced: bool, choose: Choose) -> conv_dense.DenseSpec:
    """The code for this machine, of a tile that ``choose`` takes of those that round alike."""
    window, lanes = conv.window, host().width
    pixels, filters = window.output[0] * window.output[1], conv.filters // conv.groups
    depth = conv.images * conv.channels * window.kernel[0] * window.kernel[1]

    def way(tile: tuple[int, int], more: int = 0) -> Way:
        segments = 0 if window.is_plain else conv_dense.segments(window, lanes, tile[1]) + more
        stride = 1 if window.is_plain else _stride_kind(window)
        spec = conv_dense.DenseSpec(*tile, lanes, segments, stride, conv.epilogue, is_scattered, is_produced)
        cost = depth * _dense_cost(filters, pixels, tile, lanes) * (1 + MORE_SEGMENTS * more)
        if conv.work >= WORTH_A_TEAM:
            tasks = conv.images * conv.groups * -(-pixels // spec.tile)
            cost *= share(tasks * _chunks(tasks, -(-filters // tile[0])), thread_count())
        return Way(cost, Code("conv_dense", spec, conv_dense.render))

    best = dense_tile(filters, pixels, lanes)
    tiles = _alike(best, DENSE_TILES[lanes >= 16])
    more = (0,) if window.is_plain else (0, 1, 2)
    found: conv_dense.DenseSpec = choose(way(best), lambda: [way(tile, m) for tile in tiles for m in more]).spec
    return found


def _chunks(tasks: int, blocks: int) -> int:
    """Parts that the blocks of filters of a panel come in."""
    return 1 if tasks >= 8 else min(blocks, -(-8 // tasks))


def _bind_few(
    conv: Conv, weights: np.ndarray, bias: np.ndarray | None, owner: np.ndarray, source: Source | None, choose: Choose
) -> BoundTemplate:
    """The kernel with filters in the lanes."""
    window, lanes = conv.window, host().width
    if conv.groups != 1:
        raise ArgumentError(f"a convolution of few pixels is in one group, not in {conv.groups}")
    pixels = window.output[0] * window.output[1]
    taps = window.kernel[0] * window.kernel[1]
    best = gemm.register_tile(pixels, conv.filters, lanes)

    def way(tile: tuple[int, int]) -> Way:
        spec = conv_few.FewSpec(*tile, lanes, conv.epilogue, source is not None)
        cost = conv.images * conv.channels * taps * gemm.tile_cost(pixels, conv.filters, tile, lanes)
        if conv.work >= WORTH_A_TEAM:
            cost *= share(-(-conv.filters // spec.tile), thread_count())
        return Way(cost, Code("conv_few", spec, conv_few.render), tile[0])

    spec: conv_few.FewSpec = choose(
        way(best), lambda: [way(tile) for tile in _alike(best, gemm.TILES[lanes >= 16])]
    ).spec
    words = {
        "images": conv.images, "channels": conv.channels, "filters": conv.filters, "area": window.height * window.width,
        "pixels": pixels, "tap_count": taps, "panels": -(-conv.filters // spec.tile),
    }  # fmt: skip
    turned = kept(owner, ("few", spec.tile), lambda: conv_few.pack(weights, spec.tile))
    packed = {"weights": turned, "offsets": conv_few.offsets(window)}
    return _bound(
        Code("conv_few", spec, conv_few.render), conv_few.SLOTS, words, conv,
        4 * pixels * taps * conv.channels, _constants(conv, bias) | packed,
        _images(conv, source, conv.channels, words["panels"]), conv.work < WORTH_A_TEAM or words["panels"] < 2,
    )  # fmt: skip


def _bind_pixels(
    conv: Conv, weights: np.ndarray, bias: np.ndarray | None, owner: np.ndarray, source: Source | None, choose: Choose
) -> BoundTemplate:
    """A 1x1 convolution as a product whose rows are pixels: no lane is idle in images of few pixels."""
    if not conv.window.is_plain or conv.groups != 1:
        raise ArgumentError(f"products over pixels are for windows of 1x1 in one group, not {conv.window}")
    pixels = conv.window.height * conv.window.width
    strides = (conv.filters * pixels, 0, 1, pixels)
    product = gemm.Gemm(
        pixels, conv.filters, conv.channels, (conv.channels * pixels, 0, 1, pixels), strides, r=strides,
        batch=conv.images, epilogue=conv.epilogue,
    )  # fmt: skip
    spec = gemm.plan(product, "" if source is None else kind_of(product), choose)
    matrix, tile = weights.reshape(conv.filters, conv.channels).T, spec.tile
    packed = kept(owner, ("pixels", tile), lambda: pack(matrix, tile))
    return gemm.bind(product, matrix, bias, packed, source, spec)


def _plan_rows(conv: Conv, is_produced: bool, choose: Choose) -> conv_rows.RowsSpec:
    """The code for this machine: filters, rows and vectors of a tile. Sums round alike in all of them."""
    window, lanes = conv.window, host().width
    (height, width), kernel_y = window.output, window.kernel[0]
    filters = conv.filters // conv.groups
    most, together = (20, min(filters, 4)) if lanes >= 16 else (8, min(filters, 2))

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        work = _padded(height, rows) * _padded(width, vectors * lanes)
        # Vectors that lie on two cache lines take a turn each; then there is what each tile and each weight takes.
        reads = (rows + kernel_y - 1) / (rows * kernel_y * together)
        return work * (max(0.5, reads) + 0.25 * reads + (2 / kernel_y + 0.5) / (rows * vectors))

    def way(tile: tuple[int, int]) -> Way:
        spec = conv_rows.RowsSpec(
            together, *tile, lanes, kernel_y, window.stride[0], window.dilation[0], _stride_kind(window),
            conv.epilogue, is_produced,
        )  # fmt: skip
        return Way(depth * cost(tile), Code("conv_rows", spec, conv_rows.render))

    depth = conv.images * conv.channels * filters * kernel_y * window.kernel[1]
    sums = most // together
    tiles = [(r, v) for r in range(1, sums + 1) for v in range(1, sums // r + 1)]
    best = min(tiles, key=lambda tile: (cost(tile), tile[0]))
    found: conv_rows.RowsSpec = choose(way(best), lambda: list(map(way, tiles))).spec
    return found


def _bind_rows(
    conv: Conv, weights: np.ndarray, bias: np.ndarray | None, owner: np.ndarray, source: Source | None, choose: Choose
) -> BoundTemplate:
    window, lanes = conv.window, host().width
    height, width = window.output
    filters, channels = conv.filters // conv.groups, conv.channels // conv.groups
    spec = _plan_rows(conv, source is not None, choose)
    together, lanes = spec.filters, spec.lanes
    columns = window.taps[: window.kernel[1]]

    def pack() -> np.ndarray:
        return conv_dense.pack(np.ascontiguousarray(weights.transpose(0, 1, 3, 2)), conv.groups, together)

    constants = _constants(conv, bias) | {
        "weights": kept(owner, ("rows", conv.groups, together), pack),
        "offsets": (np.arange(channels)[:, None] * window.plane_size + columns).astype(np.int64).ravel(),
    }
    tasks = conv.images * conv.groups
    words = window.words | {
        "images": conv.images, "groups": conv.groups, "channels": channels, "filters": filters,
        "depth": channels * window.kernel[1], "out_rows": height, "out_columns": width,
        "bands": 1 if tasks >= 8 else min(height, -(-8 // tasks)), "blocks": -(-filters // together),
    }  # fmt: skip
    # A tile may begin near the end of the last row, and reads rows that there are not.
    scratch = 4 * (channels * window.plane_size + spec.rows * window.plane[1] + spec.vectors * lanes)
    return _bound(
        Code("conv_rows", spec, conv_rows.render), conv_rows.SLOTS, words, conv, scratch, constants,
        _images(conv, source, 0, words["bands"]), conv.work < WORTH_A_TEAM,
    )  # fmt: skip


# What the products of a band may take of the second-level cache, in bytes.
BAND_BYTES = 1_500_000


class _Bands(NamedTuple):
    """How tiles are grouped: rows of tiles in a band, numbers of bands, the register tile, and a row's length."""

    rows: int
    number: int
    tile: tuple[int, int]
    padded: int


@lru_cache(maxsize=1024)
def _bands(conv: Conv, m: int, lanes: int, threads: int) -> _Bands:
    height, width = conv.window.output
    down, across = -(-height // m), -(-width // m)
    best: tuple[float, _Bands] | None = None
    for rows in range(1, down + 1):
        tile = dense_tile(conv.filters, rows * across, lanes)
        wide = tile[1] * lanes
        bands = _Bands(rows, -(-down // rows), tile, -(-rows * across // wide) * wide)
        bytes_ = 4 * (m + 2) ** 2 * (conv.channels + conv.filters) * (bands.padded + lanes)
        # Each band reads all weights again; what does not stay in the cache takes longer.
        each = (bands.padded + 4) * (1 + 0.15 * max(0.0, bytes_ / BAND_BYTES - 1))
        count = conv.images * bands.number
        # Threads that share a band all transform its inputs, which takes about half of the time.
        turns = -(-count // threads) if count >= threads else count * (0.5 + 0.5 / threads)
        cost = turns * each
        if best is None or cost < best[0]:
            best = cost, bands
    assert best is not None
    return best[1]


def winograd_cost(conv: Conv, m: int) -> float:
    """What the algorithm takes, in multiplications of the direct one."""
    lanes = host().width
    bands, side = _bands(conv, m, lanes, thread_count()), (m + 2) ** 2
    products = side * conv.images * bands.number * bands.padded * conv.channels * conv.filters
    # Weights come from far away once for each band; a float takes as long as a dozen multiplications.
    weights = side * conv.channels * conv.filters * bands.number * conv.images * 12
    # 36 numbers of a tile are more than registers hold.
    tiles = conv.images * bands.number * _padded(bands.rows * -(-conv.window.output[1] // m), lanes)
    turning = side * tiles * (conv.channels + conv.filters) * (9 if m == 2 else 16)
    return max(products, weights) * 1.05 + turning


def _bind_winograd(
    conv: Conv,
    weights: np.ndarray,
    bias: np.ndarray | None,
    owner: np.ndarray,
    m: int,
    source: Source | None,
    choose: Choose,
) -> BoundTemplate:
    if not may_use_winograd(conv):
        raise ArgumentError(f"Winograd's algorithm is for 3x3 windows of stride 1, not {conv.window}")
    window, lanes = conv.window, host().width
    bands = _bands(conv, m, lanes, thread_count())
    height, width = window.output
    tiles = bands.rows * -(-width // m)
    numbers = conv.images * bands.number * (m + 2) ** 2 * conv.channels

    def way(tile: tuple[int, int]) -> Way:
        spec = winograd.WinogradSpec(m, *tile, lanes, conv.epilogue, source is not None)
        cost = numbers * _dense_cost(conv.filters, tiles, tile, lanes)
        return Way(cost, Code("winograd", spec, winograd.render))

    spec: winograd.WinogradSpec = choose(
        way(bands.tile), lambda: [way(tile) for tile in _alike(bands.tile, DENSE_TILES[lanes >= 16])]
    ).spec
    rows = spec.rows
    bands = bands._replace(tile=(rows, spec.vectors), padded=_padded(tiles, spec.tile))
    columns = -(-width // m)
    stride = bands.padded + lanes
    blocks = -(-conv.filters // rows)
    chunks = 1 if conv.images * bands.number >= 4 else min(blocks, -(-4 // (conv.images * bands.number)))
    chunk = -(-blocks // chunks)
    # The last vector of tiles reads one of columns behind it, and its last rows are those of the row of tiles below.
    line = -(-(bands.padded + columns + 2 * lanes) * m // 16) * 16
    border = bands.padded + columns + 2 * lanes
    words = {
        "images": conv.images, "channels": conv.channels, "filters": conv.filters, "height": window.height,
        "width": window.width, "pad_y": window.padding[0], "pad_x": window.padding[1], "out_rows": height,
        "out_columns": width, "tile_rows": -(-height // m), "tile_columns": columns, "bands": bands.number,
        "band_rows": bands.rows, "stride": stride, "panels": bands.padded // spec.tile, "chunks": -(-blocks // chunk),
        "chunk": chunk, "blocks": blocks, "line": line, "border": border,
        "slab_in": winograd.slab(conv.channels * stride), "slab_out": winograd.slab(chunk * rows * stride),
        "plane_size": -(-m * (line + 2 * border) // 16) * 16,
    }  # fmt: skip
    packed = kept(owner, ("winograd", m, rows), lambda: winograd.pack(weights, m, rows))
    tables = {"lasts": winograd.lasts(columns, bands.padded // lanes, lanes)}
    floats = spec.side**2 * (words["slab_in"] + words["slab_out"]) + words["plane_size"] + m * m * stride + lanes
    # Bands share two rows of pixels with their neighbours.
    parts = 1 + 2 / (m * bands.rows) if bands.number > 1 else 1
    made = _images(conv, source, 0, words["chunks"], parts)
    if made is not None:
        made = replace(made, calls=made.calls * bands.number)
    return _bound(
        Code("winograd", spec, winograd.render), winograd.SLOTS, words, conv, 4 * floats,
        _constants(conv, bias) | tables | {"weights": packed}, made, conv.work < WORTH_A_TEAM,
    )  # fmt: skip
