"""Matrix products: C[b] = epilogue(scale * A[b] @ B[b]), B packed once (weights) or on the way (two arrays of a run).

B lies in panels [N / tile][K][tile], zeros beyond N, so that the inner loop reads it in order; rows of A are read in
place, one number at a time for all columns of a register tile. The register tile is chosen for the number of rows.

Packed weights may be kept as bfloat16, or as int8 with a float32 factor for each column; sums are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpujit.kernels.target import host
from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import parts_of_sum
from gpujit.kernels.templates.bound import BoundTemplate, Code
from gpujit.kernels.templates.choice import Choose, Way, quickest, share
from gpujit.kernels.templates.epilogue import HALVES, Epilogue
from gpujit.kernels.templates.gemm_code import SLOTS, GemmSpec, render
from gpujit.kernels.templates.gemm_rows import kind_of, production
from gpujit.kernels.templates.gemm_weights import WEIGHTS, Packed, pack_as
from gpujit.kernels.templates.producer import Source
from gpujit.support.errors import ArgumentError
from gpujit.support.threads import thread_count

# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000
# A product of fewer rows takes as long as one of so many: it waits for the other matrix.
WAITING_ROWS = 6
# What a tile takes that asks for the next panel where it should not, or does not where it should.
OTHERWISE_ASKED = 1.03


class Gemm(NamedTuple):
    """A product of M rows, N columns, depth K for ``batch`` pairs; strides in elements, as the slots have them.

    Batch index ``q`` lies at ``q // inner * outer stride + q % inner * inner stride``. ``b`` is None for packed
    weights.
    """

    m: int
    n: int
    k: int
    a: Sequence[int]  # outer, inner, m, k
    c: Sequence[int]  # outer, inner, m, n
    b: Sequence[int] | None = None  # outer, inner, k, n
    r: Sequence[int] = (0, 0, 0, 0)  # outer, inner, m, n; of the two last one is 1, the same as in c
    batch: int = 1
    inner: int = 1
    scale: float | None = None
    epilogue: Epilogue = Epilogue()
    # The element type of B; of packed weights, what they are kept as.
    right: str = "float32"


def register_tile(m: int, n: int, lanes: int) -> tuple[int, int]:
    """Rows and vectors of a register tile: those that compute least beyond the product's borders."""
    if m == 1:
        # A vector of B is read for each sum, and the sums are split: see multiply_tile.
        return 1, 2
    return min(TILES[lanes >= 16], key=lambda tile: (tile_cost(m, n, tile, lanes), -tile[1]))


def tile_cost(m: int, n: int, tile: tuple[int, int], lanes: int) -> float:
    """What a product takes with a register tile, in multiplications for each k."""
    rows, vectors = tile
    # A small tile reads more for what it computes.
    each = rows * (1 + 0.25 / rows + 0.25 / vectors)
    first, more = (max(each, lanes * read) for read in (FIRST_READ, MORE_READ))
    return _padded(n, vectors * lanes) * (first + (-(-m // rows) - 1) * more)


def _padded(size: int, tile: int) -> int:
    return -(-size // tile) * tile


# How many rows are multiplied, for each lane of a vector, while a panel of B is read for the first time, and again:
# fewer rows wait for it (measured with 16 lanes: 2 to 4 rows take equally long).
FIRST_READ, MORE_READ = 5 / 16, 3.4 / 16

# More rows than 10 leave too few registers for their addresses, more sums than 28 too few for the rest; there are 32
# vector registers with AVX-512, else 16.
TILES = {
    True: [(r, v) for v, most in ((1, 10), (2, 10), (3, 8), (4, 6)) for r in range(1, most + 1)],
    False: [(r, v) for v, most in ((1, 8), (2, 5), (3, 4)) for r in range(1, most + 1)],
}


def plan(gemm: Gemm, produced: str = "", choose: Choose = quickest) -> GemmSpec:
    """The code for this machine. Raises ArgumentError for an impossible product.

    Args:
        produced: "rows" or "columns" where A is made on the way (see ``gemm_rows.kind_of``).
        choose: which of the tiles that round alike.
    """
    if min(gemm.m, gemm.n, gemm.k, gemm.batch) < 1:
        raise ArgumentError(f"a product of {gemm.m} x {gemm.k} and {gemm.k} x {gemm.n} has nothing to compute")
    gemm.epilogue.check()
    kept = WEIGHTS if gemm.b is None else ("float32", *HALVES)
    if gemm.right not in kept:
        raise ArgumentError(f"B has elements of {', '.join(kept)}; found {gemm.right!r}")
    if gemm.b is not None and gemm.b[2] != 1 and gemm.b[3] != 1:
        raise ArgumentError(f"B has strides {gemm.b[2]} and {gemm.b[3]}; one of the two must be 1")
    for strides in (gemm.c, gemm.r) if gemm.epilogue.residual else (gemm.c,):
        if strides[2 if gemm.c[3] != 1 else 3] != 1:
            raise ArgumentError(f"rows or columns of C, and of a residual alike, must lie together, not {strides}")
    lanes = host().width
    best = register_tile(gemm.m, gemm.n, lanes)
    spec = _spec(gemm, best, lanes, produced)
    found: GemmSpec = choose(_way(gemm, spec), lambda: _ways(gemm, spec)).spec
    return found


def _ways(gemm: Gemm, best: GemmSpec) -> list[Way]:
    """All code that rounds as the best does."""
    if gemm.m == 1:
        return []
    parts = parts_of_sum(best.rows * best.vectors)
    found = []
    for tile in TILES[best.lanes >= 16]:
        spec = _spec(gemm, tile, best.lanes, best.produced)
        if parts_of_sum(spec.rows * spec.vectors) == parts:
            found += [_way(gemm, spec)]
            if _may_ask_ahead(spec):
                found += [_way(gemm, spec._replace(asks_ahead=not spec.asks_ahead), OTHERWISE_ASKED)]
    return found


def _way(gemm: Gemm, spec: GemmSpec, more: float = 1) -> Way:
    cost = more * gemm.batch * gemm.k * tile_cost(gemm.m, gemm.n, (spec.rows, spec.vectors), spec.lanes)
    if not _is_small(gemm):
        panels, tiles = -(-gemm.n // spec.tile), -(-gemm.m // spec.rows)
        cost *= share(panels * gemm.batch * -(-tiles // _chunk(gemm, panels, tiles)), thread_count())
    # Rows that a tile has in vain cost nothing while others are waited for.
    return Way(cost, Code("gemm", spec, render), spec.rows if gemm.m < WAITING_ROWS + 2 else 0)


def _chunk(gemm: Gemm, panels: int, tiles: int) -> int:
    """Tiles of rows that share a panel of B. A panel that is packed on the way should serve all rows."""
    return tiles if gemm.b is not None or panels * gemm.batch >= 8 else -(-tiles // 8)


def _is_small(gemm: Gemm) -> bool:
    return gemm.batch * max(gemm.m, WAITING_ROWS) * gemm.n * gemm.k < WORTH_A_TEAM


def _may_ask_ahead(spec: GemmSpec) -> bool:
    # More rows leave no register for one more address: that would cost more than it brings.
    return spec.source == "packed" and spec.vectors == 4 and spec.rows <= 6 and spec.right == "float32"


def _spec(gemm: Gemm, tile: tuple[int, int], lanes: int, produced: str) -> GemmSpec:
    """The code with a register tile."""
    rows, vectors = tile
    source = "packed" if gemm.b is None else "rows" if gemm.b[3] == 1 else "columns"
    if source == "rows" and gemm.n <= vectors * lanes:
        source = "place"
    is_turned = gemm.c[3] != 1
    # What is turned are squares of as many rows as a vector has lanes.
    rows = min(rows, lanes) if is_turned else rows
    is_scaled = gemm.scale is not None
    spec = GemmSpec(rows, vectors, lanes, source, is_scaled, is_turned, gemm.epilogue, False, produced, gemm.right)
    return spec._replace(asks_ahead=_may_ask_ahead(spec) and -(-gemm.m // rows) >= 2 * vectors)


def bind(
    gemm: Gemm,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    packed: np.ndarray | Packed | None = None,
    source: Source | None = None,
    spec: GemmSpec | None = None,
) -> BoundTemplate:
    """The kernel to call with (a, c), with b before c for a product of two arrays, and a residual last.

    ``weights`` is [K, N] of any strides; ``packed`` is what ``pack`` or ``pack_as`` made of them, when somebody has
    it. With a ``source``, A is what that makes, from arrays that take A's place in a call, and A's strides are those
    in its result. ``spec`` is what ``plan`` chose, where that is known. Raises ArgumentError.
    """
    if spec is None:
        spec = plan(gemm, "" if source is None else kind_of(gemm))
    made = None if source is None else production(gemm, spec, source)
    if (weights is None) != (gemm.b is not None) or (bias is None) == gemm.epilogue.bias:
        raise ArgumentError("weights, bias and the product's description do not fit each other")
    panels = -(-gemm.n // spec.tile)
    tiles = -(-gemm.m // spec.rows)
    chunk = _chunk(gemm, panels, tiles)
    words = {
        "batch": gemm.batch, "inner": gemm.inner, "m": gemm.m, "n": gemm.n, "k": gemm.k, "panels": panels,
        "chunks": -(-tiles // chunk), "chunk": chunk * spec.rows,
    }  # fmt: skip
    names = {
        "a": ("outer", "inner", "m", "k"),
        "b": ("outer", "inner", "k", "n"),
        "c": ("outer", "inner", "m", "n"),
        "r": ("outer", "inner", "m", "n"),
    }
    if made is not None:
        words |= {"chunks": made.chunks, "tiles": tiles, "splits": made.splits}
        words |= {"p_outer": made.first[0], "p_inner": made.first[1]}
    for array, strides in (
        ("a", gemm.a if made is None else (0, 0, *made.strides)),
        ("b", gemm.b or ()),
        ("c", gemm.c),
        ("r", gemm.r),
    ):
        words |= {f"{array}_{name}": stride for name, stride in zip(names[array], strides)}
    if gemm.scale is not None:
        words["scale"] = int(np.float64(gemm.scale).view(np.int64))
    constants = {}
    if weights is not None:
        packed = pack_as(weights, spec.tile, spec.right) if packed is None else packed
        packed = packed if isinstance(packed, Packed) else Packed(packed)
        constants["b"] = packed.panels
        if packed.factors is not None:
            constants["factors"] = packed.factors
    if bias is not None:
        constants["bias"] = np.ascontiguousarray(bias, np.float32)
    maker = None if made is None else made.producer
    arrays = [
        *producer.names(maker, "a"), *(["b"] if gemm.b is not None else []), "c",
        *(["residual"] if gemm.epilogue.residual else []),
    ]  # fmt: skip
    scratch = gemm.k * spec.tile * 4 if spec.source in ("rows", "columns") else 0
    slots: tuple[str, ...] = SLOTS
    if maker is not None:
        slots = (*SLOTS, *maker.slots)
        words |= maker.words(scratch)
        scratch = maker.scratch_bytes(scratch)
    tasks = panels * gemm.batch * words["chunks"] if made is None else gemm.batch * made.chunks * made.splits
    dtypes = producer.array_types(maker)
    if "out" in gemm.epilogue.dtypes:
        dtypes["c"] = gemm.epilogue.dtypes["out"]
    if gemm.right in HALVES:
        dtypes["b"] = HALVES[gemm.right]
    return BoundTemplate(
        Code("gemm", spec, render),
        slots,
        words,
        arrays,
        scratch_bytes=scratch,
        constants=constants,
        is_small=_is_small(gemm) or tasks < 2,
        dtypes=dtypes,
        producer=maker,
    )
