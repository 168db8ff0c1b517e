"""Choosing a kernel's tile by measuring: several nests of one program are compiled, run on memory of the call's shape,
and the fastest is kept, on disk as well. Off unless the switch ``autotune`` is on; the rules choose otherwise.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from gpujit.ir.dtypes import kind_of
from gpujit.kernels import cache, supply
from gpujit.kernels.cpu_nest import ANY, BY_RULE, Geometry, NestCall, Tile
from gpujit.kernels.cpu_plan import plan_nest
from gpujit.kernels.native import host_key
from gpujit.kernels.schedule import moves
from gpujit.kernels.target import host
from gpujit.kernels.tile import Store
from gpujit.support.progress import Stage

# Rounds over all candidates, and the seconds one candidate runs in a round at least.
ROUNDS, SHORTEST = 5, 0.002
# A tile must be this much faster than what the rules choose, so that noise decides nothing.
WORTH = 0.97
# Bytes above which a call is not measured.
LARGEST = 1 << 30


def tuned(geometry: Geometry) -> Tile:
    """The fastest tile for a call of this geometry: from the cache, or measured now.

    The rules' own choice (``BY_RULE``) when no other is clearly faster, or when a call cannot be made up (indexes that
    come from data). Raises NotRendered.
    """
    text = f"tile {geometry[1:]} {host().width}\n{geometry.program.text}"
    key = cache.key_of(text, host_key())
    store = cache.store()
    kept = None if store is None else store.get(key, cache.TUNED)
    if kept is not None:
        return Tile(*json.loads(kept))
    found, measured = _fastest(geometry)
    if store is not None:
        image = json.dumps([found.lane, found.unroll, found.chunk]).encode()
        store.put(key, image, f"{text}\n{measured}", cache.TUNED)
    return found


def _candidates(usual: NestCall) -> Iterator[Tile]:
    nest = usual.nest
    lanes = [nest.lane] if nest.program.rows and not nest.across_rows else list(range(nest.program.dims))
    lanes = [d for d in lanes if nest.across_rows == (d not in nest.program.row_dims and bool(nest.program.rows))]
    for lane in dict.fromkeys([nest.lane, *(d for d in lanes if usual.sizes[d] >= nest.width)]):
        for unroll in (1, 2, 4, 8):
            if unroll > 1 and unroll * nest.width > usual.sizes[lane]:
                break
            if nest.is_chunked and not nest.across_rows:
                for chunk in (64, 512, 4096, 16_384):
                    if chunk >= unroll * nest.width:
                        yield Tile(lane, unroll, chunk)
            else:
                yield Tile(lane, unroll, None)


def _fastest(geometry: Geometry) -> tuple[Tile, str]:
    """The tile to take and a text of what was measured."""
    usual = plan_nest(*geometry, host().width)
    memory = _memory(geometry, usual)
    if memory is None:
        return BY_RULE, "not measured"
    runs = {BY_RULE: _Run(usual, memory)}
    tiles = list(_candidates(usual))
    with Stage("measure tiles", len(tiles) + ROUNDS) as stage:
        for tile in tiles:
            runs[tile] = _Run(plan_nest(*geometry, host().width, tile), memory)
            stage.advance()
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(ROUNDS):
            for tile, run in runs.items():
                best[tile] = min(best[tile], run.seconds())
            stage.advance()
    winner = min(best, key=best.__getitem__)
    if best[winner] > WORTH * best[BY_RULE]:
        winner = BY_RULE
    lines = [f"{seconds * 1e6:10.2f} us  {tile}" for tile, seconds in sorted(best.items(), key=lambda item: item[1])]
    return winner, "\n".join(lines)


def _memory(geometry: Geometry, call: NestCall) -> list[np.ndarray] | None:
    """An array for each of the call's, filled with harmless numbers; None when no call can be made up."""
    program = call.nest.program
    if any(c.startswith(ANY) for c in call.nest.classes) or any(n == 0 for n in call.sizes):
        return None
    slots, words = call.nest.slots, call.words
    width = 1 + program.dims
    counts = [1] * (len(program.inputs) + len(program.outputs))
    for k, item in enumerate(moves(program)):
        at = slots["accesses"] + k * width
        first, steps = words[at], words[at + 1 : at + width]
        if first < 0 or any(s < 0 for s in steps):
            return None
        place = item.array + (len(program.inputs) if isinstance(item, Store) else 0)
        reach = first + sum(s * (n - 1) for s, n in zip(steps, call.sizes, strict=True))
        counts[place] = max(counts[place], reach + 1)
    types = [a.dtype for a in (*program.inputs, *program.outputs)]
    if sum(n * t.itemsize for n, t in zip(counts, types, strict=True)) > LARGEST:
        return None
    random = np.random.default_rng(0)
    return [
        random.standard_normal(n, np.float32).astype(t) if kind_of(t) == 2 else np.ones(n, t)
        for n, t in zip(counts, types, strict=True)
    ]


class _Run:
    """A nest with the memory of its call."""

    def __init__(self, call: NestCall, memory: list[np.ndarray]) -> None:
        nest = call.nest
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(supply.address(nest))
        block = np.array(call.words, np.int64)
        block[: len(memory)] = [x.ctypes.data for x in memory]
        scratch = np.empty(max(nest.scratch_bytes(call.sizes), 1), np.uint8)
        flags = np.zeros(max(len(nest.program.effects), 1), np.int64)
        block[nest.slots["scratch"]], block[nest.slots["flags"]] = scratch.ctypes.data, flags.ctypes.data
        self._kept = (memory, block, scratch, flags)
        self._call = partial(kernel, block.ctypes.data, 0, 1)
        self._call()
        start = time.perf_counter()
        self._call()
        self._count = max(1, int(SHORTEST / max(time.perf_counter() - start, 1e-7)))

    def seconds(self) -> float:
        """Seconds of one call, on one thread."""
        start = time.perf_counter()
        for _ in range(self._count):
            self._call()
        return (time.perf_counter() - start) / self._count
