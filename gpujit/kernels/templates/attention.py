"""Attention: softmax(scale * Q K^T + mask) V without the whole matrix of scores, one block of keys after the other.

A tile of queries keeps its largest score, its sum and its result so far; each block of keys may raise the largest
one, and what came before is scaled down then. Source: Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018; Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.math_exp import exp_normal
from gpujit.kernels.target import host
from gpujit.kernels.templates.body import MOST_PARTS, TemplateBody, multiply_tile, parts_of_sum, template
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.templates.choice import Choose, Way, quickest, share
from gpujit.kernels.templates.gemm_code import pack_columns
from gpujit.kernels.templates.planes import unless_current
from gpujit.kernels.vector import I64, Vector
from gpujit.support.errors import ArgumentError
from gpujit.support.threads import thread_count

SLOTS = (
    "q", "k", "v", "mask", "out",
    # ``shared`` heads of queries use one head of keys.
    "batch", "heads", "shared", "queries", "keys", "depth", "columns", "tiles",
    "q_outer", "q_inner", "q_row", "k_outer", "k_inner", "k_row", "v_outer", "v_inner", "v_row",
    "mask_outer", "mask_inner", "mask_row", "out_outer", "out_inner", "out_row",
    "scale", "scratch", "scratch_bytes",
)  # fmt: skip


class AttentionSpec(NamedTuple):
    """``rows`` queries by ``vectors`` of keys (or of the result's columns) in registers."""

    rows: int
    vectors: int
    lanes: int
    is_causal: bool
    mask: str | None

    @property
    def has_mask(self) -> bool:
        """Whether there is a mask: float32 to be added, or bool, which hides keys where it is False."""
        return self.mask is not None

    @property
    def tile(self) -> int:
        return self.vectors * self.lanes

    @property
    def span(self) -> int:
        """Keys of a block: their scores for a tile of queries stay in the first-level cache."""
        return self.tile * max(1, 512 // self.tile)


class Attention(NamedTuple):
    """Sizes and strides (batch, head, row) in elements of arrays whose rows lie together; a mask's may be 0.

    Causal: query i sees keys up to i. ``shared`` heads of queries in a row use one head of keys and values. A mask is
    added to the scores; with ``is_mask_bool`` it hides keys where it is False.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    columns: int
    q: Sequence[int]
    k: Sequence[int]
    v: Sequence[int]
    out: Sequence[int]
    scale: float
    mask: Sequence[int] | None = None
    is_causal: bool = False
    shared: int = 1
    is_mask_bool: bool = False


def render(spec: AttentionSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(SLOTS, texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: AttentionSpec) -> None:
    for name in SLOTS[5:-3]:
        k.word(name)
    tile, rows, lanes = spec.tile, spec.rows, spec.lanes
    scores = k.buffer(rows * spec.span)
    # For each row: the largest score, the sum of exponentials, and what the last block scaled the ones before with.
    state = k.buffer(rows * 3)
    current = k.builder.alloca(I64)
    k.builder.store(ir.Constant(I64, -1), current)
    tiles, heads, queries, keys, depth = (k.word(n) for n in ("tiles", "heads", "queries", "keys", "depth"))
    width = (k.word("columns") + (lanes - 1)) & -lanes
    blocks = k.quotient(keys + (tile - 1), k.number(tile))
    result = k.scratch()
    turned = k.at(result, width * rows)
    low, high = k.share(k.word("batch") * heads * tiles)
    with k.loop(low, high) as task:
        index = k.quotient(task, tiles)
        outer = k.quotient(index, heads)
        head = index - outer * heads
        shared = k.quotient(head, k.word("shared"))
        first = (task - index * tiles) * rows

        def place(name: str, inner: Vector) -> ir.Value:
            at = outer * k.word(f"{name}_outer") + inner * k.word(f"{name}_inner")
            return k.e.at(k.array(name), at.value, (spec.mask or "float32") if name == "mask" else "float32")

        with k.builder.if_then(unless_current(k, current, outer * heads + shared)):
            k.outline("keys", [place("k", shared), turned, blocks], lambda k, *given: _turn_keys(k, spec, *given))
        k.outline("start", [state, result, width], lambda k, *given: _start(k, spec, *given))
        q, v = place("q", head), place("v", shared)
        lines = [k.at(q, k.smaller(first + r, queries - 1) * k.word("q_row")) for r in range(rows)]
        mask = place("mask", head) if spec.has_mask else q
        seen = keys
        if spec.is_causal:
            # A whole number of the parts in which sums are added up: else what a query gets would depend on how many
            # others are in its tile. Keys that are too many for it count as nothing.
            seen = k.smaller(keys, (first + (rows + MOST_PARTS - 1)) & -MOST_PARTS)
        with k.loop(0, seen, spec.span) as start:
            count = k.smaller(seen - start, spec.span)
            with k.loop(0, count, tile) as part:
                panel = k.at(turned, (start + part) * depth)
                sums = multiply_tile(
                    k, rows, spec.vectors, lanes, depth,
                    lambda i, r: k.floats(lines[r], i, 1),
                    lambda i, w: k.floats(panel, i * tile + w * lanes, lanes),
                )  # fmt: skip
                at = k.at(scores, part)
                for r, row in enumerate(sums):
                    for w, x in enumerate(row):
                        k.put(at, r * spec.span + w * lanes, x)
            given = [scores, state, mask, first, start, count]
            k.outline("weigh", given, lambda k, *given: _weigh(k, spec, *given))
            values = k.at(v, start * k.word("v_row"))
            with k.loop(0, k.word("columns"), tile) as column:
                _add_values(k, spec, scores, state, k.at(values, column), k.at(result, column), count, width, column)
        given = [state, result, width, place("out", head), first]
        k.outline("finish", given, lambda k, *given: _finish(k, spec, *given))


def _turn_keys(k: TemplateBody, spec: AttentionSpec, source: ir.Value, target: ir.Value, blocks: Vector) -> None:
    """All keys of a head, in blocks [depth][tile]."""
    keys, depth, step = k.word("keys"), k.word("depth"), k.word("k_row")
    with k.loop(0, blocks) as block:
        first = block * spec.tile
        columns = k.smaller(keys - first, spec.tile)
        to = k.at(target, first * depth)
        pack_columns(k, spec.vectors, spec.lanes, depth, step, k.at(source, first * step), to, columns)


def _start(k: TemplateBody, spec: AttentionSpec, state: ir.Value, result: ir.Value, width: Vector) -> None:
    for r in range(spec.rows):
        k.put(state, 3 * r, k.e.constant("float32", 1, float("-inf")))
        k.put(state, 3 * r + 1, k.e.constant("float32", 1, 0.0))
    with k.loop(0, width * spec.rows, spec.lanes) as i:
        k.put(result, i, k.e.constant("float32", spec.lanes, 0.0))


def _weigh(
    k: TemplateBody,
    spec: AttentionSpec,
    scores: ir.Value,
    state: ir.Value,
    mask: ir.Value,
    first: Vector,
    start: Vector,
    count: Vector,
) -> None:
    """``count`` scores of each query to their exponentials, relative to the largest so far."""
    e, lanes = k.e, spec.lanes
    scale = e.broadcast(e.cast(k.float(k.slots["scale"]), "float32"), lanes)
    with k.loop(0, k.number(spec.rows)) as r:
        query = k.smaller(first + r, k.word("queries") - 1)
        line = k.at(scores, r * spec.span)
        visible = k.larger(k.smaller(count, query + 1 - start), 0) if spec.is_causal else count
        with k.carried_loop(0, count, lanes, [e.constant("float32", lanes, float("-inf"))]) as highest:
            i = highest.index
            here = e.tail_mask(k.larger(visible - i, 0), lanes)
            x = k.floats(line, i, lanes) * scale
            if spec.mask is not None:
                given = e.load(mask, (query * k.word("mask_row") + start + i).value, spec.mask, lanes, here)
                if spec.mask == "bool":
                    here = here & given
                else:
                    x = x + given
            x = e.select(here, x, float("-inf"))
            k.put(line, i, x)
            # NaN is passed over here, and makes NaN of the sum of exponentials.
            highest.following = [e.larger(x, highest.now[0])]
        before = k.floats(state, r * 3, 1)
        largest = e.larger(before, e.reduce(highest.now[0], e.larger))
        # While all is -inf there is nothing to be relative to.
        base = e.select(largest == float("-inf"), 0.0, largest)
        base_lanes = e.broadcast(base, lanes)
        with k.carried_loop(0, count, lanes, [e.constant("float32", lanes, 0.0)]) as total:
            x = exp_normal(e, k.floats(line, total.index, lanes) - base_lanes)
            k.put(line, total.index, x)
            total.following = [total.now[0] + x]
        kept = exp_normal(e, before - base)
        k.put(state, r * 3, largest)
        k.put(state, r * 3 + 1, k.floats(state, r * 3 + 1, 1) * kept + e.sum(total.now[0]))
        k.put(state, r * 3 + 2, kept)


def _add_values(
    k: TemplateBody,
    spec: AttentionSpec,
    scores: ir.Value,
    state: ir.Value,
    values: ir.Value,
    result: ir.Value,
    count: Vector,
    width: Vector,
    column: Vector,
) -> None:
    """One tile's columns of the result: what there was, scaled, and this block's values."""
    lanes, columns = spec.lanes, k.word("columns")
    step = k.word("v_row")
    masks = [k.e.tail_mask(k.larger(columns - column - w * lanes, 0), lanes) for w in range(spec.vectors)]
    sums = multiply_tile(
        k, spec.rows, spec.vectors, lanes, count,
        lambda i, r: k.floats(scores, i + r * spec.span, 1),
        lambda i, w: k.floats(values, i * step + w * lanes, lanes, masks[w]),
    )  # fmt: skip
    for r, row in enumerate(sums):
        kept = k.e.broadcast(k.floats(state, 3 * r + 2, 1), lanes)
        for w, x in enumerate(row):
            at = width * r + w * lanes
            k.put(result, at, k.e.fma(k.floats(result, at, lanes, masks[w]), kept, x), masks[w])


def _finish(
    k: TemplateBody, spec: AttentionSpec, state: ir.Value, result: ir.Value, width: Vector, out: ir.Value, first: Vector
) -> None:
    """Results divided by the sums of exponentials; zeros for a query whose keys are all hidden."""
    lanes, columns = spec.lanes, k.word("columns")
    with k.loop(0, k.smaller(k.word("queries") - first, spec.rows)) as r:
        total = k.e.broadcast(k.floats(state, r * 3 + 1, 1), lanes)
        if spec.has_mask or spec.is_causal:
            total = k.e.select(total == 0.0, 1.0, total)
        with k.loop(0, columns, lanes) as i:
            mask = k.e.tail_mask(columns - i, lanes)
            x = k.floats(result, r * width + i, lanes) / total
            k.put(out, (first + r) * k.word("out_row") + i, x, mask)


# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000


def tile_cost(attention: Attention, tile: tuple[int, int], lanes: int) -> float:
    """What a tile of queries and vectors of keys takes: the more, the more it computes beyond the borders."""
    a = attention
    rows, width = tile[0], tile[1] * lanes

    def padded(size: int, tile: int) -> int:
        return -(-size // tile) * tile

    products = padded(a.keys, width) * a.depth + a.keys * padded(a.columns, width)
    # An exponential takes as long as a score of a couple of dozen numbers.
    exponentials = padded(a.keys, width) * 24
    return padded(a.queries, rows) * (products * (1 + 0.4 / rows + 0.25 / tile[1]) + exponentials)


def plan(attention: Attention, choose: Choose = quickest) -> AttentionSpec:
    """The code for this machine. ``choose``: which of the tiles that round alike."""
    a, lanes = attention, host().width
    mask = None if a.mask is None else "bool" if a.is_mask_bool else "float32"

    def way(tile: tuple[int, int]) -> Way:
        cost = a.batch * a.heads * tile_cost(a, tile, lanes)
        if not _is_small(a):
            cost *= share(a.batch * a.heads * -(-a.queries // tile[0]), thread_count())
        spec = AttentionSpec(*tile, lanes, a.is_causal, mask)
        return Way(cost, Code("attention", spec, render), tile[0] if a.queries < most else 0)

    tiles = TILES[lanes >= 16]
    most = max(rows for rows, _ in tiles)
    best = min(tiles, key=lambda tile: tile_cost(a, tile, lanes))
    # Blocks of keys must be alike, too: what came before is scaled where the next one begins.
    alike = [
        way(tile)
        for tile in tiles
        if parts_of_sum(tile[0] * tile[1]) == parts_of_sum(best[0] * best[1])
        and AttentionSpec(*tile, lanes, a.is_causal, mask).span == AttentionSpec(*best, lanes, a.is_causal, mask).span
    ]
    found: AttentionSpec = choose(way(best), lambda: alike).spec
    return found


def _is_small(a: Attention) -> bool:
    return a.batch * a.heads * a.queries * a.keys * (a.depth + a.columns) < WORTH_A_TEAM


TILES = {
    True: [(r, v) for v, most in ((1, 10), (2, 10), (4, 6)) for r in range(1, most + 1)],
    False: [(r, v) for v, most in ((1, 10), (2, 5)) for r in range(1, most + 1)],
}


def bind(attention: Attention, choose: Choose = quickest) -> BoundTemplate:
    """The kernel to call with (q, k, v, out), and the mask last if there is one; ``choose``: see ``plan``.

    Raises ArgumentError.
    """
    a, lanes = attention, host().width
    if min(a.batch, a.heads, a.queries, a.keys, a.depth, a.columns) < 1 or a.heads % a.shared:
        raise ArgumentError(f"attention of {a.heads} heads, {a.queries} queries and {a.keys} keys: nothing to compute")
    spec = plan(a, choose)
    words = {
        "batch": a.batch, "heads": a.heads, "shared": a.shared, "queries": a.queries, "keys": a.keys,
        "depth": a.depth, "columns": a.columns, "tiles": -(-a.queries // spec.rows),
        "scale": int(np.float64(a.scale).view(np.int64)),
    }  # fmt: skip
    for name, strides in (("q", a.q), ("k", a.k), ("v", a.v), ("mask", a.mask or (0, 0, 0)), ("out", a.out)):
        words |= {f"{name}_{part}": s for part, s in zip(("outer", "inner", "row"), strides, strict=True)}
    padded_keys, padded_columns = -(-a.keys // spec.tile) * spec.tile, -(-a.columns // lanes) * lanes
    return BoundTemplate(
        Code("attention", spec, render),
        SLOTS,
        words,
        ["q", "k", "v", "out", *(["mask"] if spec.has_mask else [])],
        scratch_bytes=4 * (padded_keys * a.depth + padded_columns * spec.rows),
        dtypes={"mask": np.bool_} if spec.mask == "bool" else None,
        is_small=_is_small(a),
    )
