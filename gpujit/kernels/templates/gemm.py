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
from gpujit.kernels.templates.bound import BoundTemplate, template_address
from gpujit.kernels.templates.epilogue import HALVES, Epilogue
from gpujit.kernels.templates.gemm_code import SLOTS, GemmSpec, render
from gpujit.kernels.templates.gemm_rows import production
from gpujit.kernels.templates.gemm_weights import WEIGHTS, Packed, pack_as
from gpujit.kernels.templates.producer import Source
from gpujit.support.errors import ArgumentError

# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000
# A product of fewer rows takes as long as one of so many: it waits for the other matrix.
WAITING_ROWS = 6


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

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        rows, vectors = tile
        width = vectors * lanes
        work = -(-m // rows) * rows * -(-n // width) * width
        # A small tile reads more for what it computes.
        return work * (1 + 0.25 / rows + 0.25 / vectors), -vectors

    return min(TILES[lanes >= 16], key=cost)


# More rows than 10 leave too few registers for their addresses, more sums than 28 too few for the rest; there are 32
# vector registers with AVX-512, else 16.
TILES = {
    True: [(r, v) for v, most in ((1, 10), (2, 10), (3, 8), (4, 6)) for r in range(1, most + 1)],
    False: [(r, v) for v, most in ((1, 8), (2, 5), (3, 4)) for r in range(1, most + 1)],
}


def plan(gemm: Gemm, produced: str = "") -> GemmSpec:
    """The register tile for this machine. Raises ArgumentError for an impossible product."""
    if min(gemm.m, gemm.n, gemm.k, gemm.batch) < 1:
        raise ArgumentError(f"a product of {gemm.m} x {gemm.k} and {gemm.k} x {gemm.n} has nothing to compute")
    gemm.epilogue.check()
    kept = WEIGHTS if gemm.b is None else ("float32", *HALVES)
    if gemm.right not in kept:
        raise ArgumentError(f"B has elements of {', '.join(kept)}; found {gemm.right!r}")
    lanes = host().width
    rows, vectors = register_tile(gemm.m, gemm.n, lanes)
    source = "packed" if gemm.b is None else "rows" if gemm.b[3] == 1 else "columns"
    if source == "rows" and gemm.n <= vectors * lanes:
        source = "place"
    if gemm.b is not None and gemm.b[2] != 1 and gemm.b[3] != 1:
        raise ArgumentError(f"B has strides {gemm.b[2]} and {gemm.b[3]}; one of the two must be 1")
    is_turned = gemm.c[3] != 1
    for strides in (gemm.c, gemm.r) if gemm.epilogue.residual else (gemm.c,):
        if strides[2 if is_turned else 3] != 1:
            raise ArgumentError(f"rows or columns of C, and of a residual alike, must lie together, not {strides}")
    # What is turned are squares of as many rows as a vector has lanes.
    rows = min(rows, lanes) if is_turned else rows
    # More rows leave no register for one more address: that would cost more than it brings.
    asks_ahead = source == "packed" and vectors == 4 and rows <= 6 and -(-gemm.m // rows) >= 2 * vectors
    is_scaled, asks_ahead = gemm.scale is not None, asks_ahead and gemm.right == "float32"
    return GemmSpec(rows, vectors, lanes, source, is_scaled, is_turned, gemm.epilogue, asks_ahead, produced, gemm.right)


def bind(
    gemm: Gemm,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    packed: np.ndarray | Packed | None = None,
    source: Source | None = None,
) -> BoundTemplate:
    """The kernel to call with (a, c), with b before c for a product of two arrays, and a residual last.

    ``weights`` is [K, N] of any strides; ``packed`` is what ``pack`` or ``pack_as`` made of them, when somebody has
    it. With a ``source``, A is what that makes, from arrays that take A's place in a call, and A's strides are those
    in its result. Raises ArgumentError.
    """
    made = None if source is None else production(gemm, plan(gemm), source)
    spec = plan(gemm, "" if made is None else made.kind)
    if (weights is None) != (gemm.b is not None) or (bias is None) == gemm.epilogue.bias:
        raise ArgumentError("weights, bias and the product's description do not fit each other")
    panels = -(-gemm.n // spec.tile)
    tiles = -(-gemm.m // spec.rows)
    # A chunk of rows shares a panel of B. A panel that is packed on the way should serve all rows.
    chunk = tiles if gemm.b is not None or panels * gemm.batch >= 8 else -(-tiles // 8)
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
        template_address(("gemm", spec), lambda: render(spec)),
        slots,
        words,
        arrays,
        scratch_bytes=scratch,
        constants=constants,
        is_small=gemm.batch * max(gemm.m, WAITING_ROWS) * gemm.n * gemm.k < WORTH_A_TEAM or tasks < 2,
        dtypes=dtypes,
        producer=maker,
    )
