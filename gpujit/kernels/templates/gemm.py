"""Matrix products: C[b] = epilogue(scale * A[b] @ B[b]), B packed once (weights) or on the way (two arrays of a run).

B lies in panels [N / tile][K][tile], zeros beyond N, so that the inner loop reads it in order; rows of A are read in
place, one number at a time for all columns of a register tile. The register tile is chosen for the number of rows.

Packed weights may be kept as bfloat16, or as int8 with a float32 factor for each column; sums are float32 all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.target import host
from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.bound import BoundTemplate, template_address
from gpujit.kernels.templates.epilogue import HALVES, Epilogue
from gpujit.kernels.templates.gemm_rows import production
from gpujit.kernels.templates.gemm_weights import WEIGHTS, Packed, pack_as
from gpujit.kernels.templates.planes import unless_current
from gpujit.kernels.templates.producer import Source
from gpujit.kernels.vector import I32, I64, Vector
from gpujit.support.errors import ArgumentError

SLOTS = (
    "a", "b", "c", "bias", "residual",
    "batch", "inner", "m", "n", "k", "panels", "chunks", "chunk",
    # In elements. A batch has two levels (batch / inner, inner), such as sequences and heads.
    "a_outer", "a_inner", "a_m", "a_k", "b_outer", "b_inner", "b_k", "b_n", "c_outer", "c_inner", "c_m", "c_n",
    "r_outer", "r_inner", "r_m", "r_n", "scale",
    # Of a producer: register tiles of rows, parts that panels come in, and the rows of its that a batch lies apart.
    "tiles", "splits", "p_outer", "p_inner", "scratch", "scratch_bytes",
    # Of int8 weights: a factor for each column.
    "factors",
)  # fmt: skip
# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000
# A product of fewer rows takes as long as one of so many: it waits for the other matrix.
WAITING_ROWS = 6
# Floats of B, of a panel, ahead of which the next ones are asked for.
AHEAD = 1024


class GemmSpec(NamedTuple):
    """The code of a product: a register tile of ``rows`` by ``vectors``, and how B lies.

    ``source`` of B: "packed"; "rows" (b_n is 1) or "columns" (b_k is 1), which are packed on the way; "place" for few
    columns in rows that are read where they lie. ``is_turned`` when columns of C are what lies
    together in memory (c_m is 1).
    """

    rows: int
    vectors: int
    lanes: int
    source: str
    is_scaled: bool
    is_turned: bool
    epilogue: Epilogue
    # Whether the next panel is asked for while the rows are multiplied by one.
    asks_ahead: bool = False
    # Where A comes from: "" for memory; else a producer makes "rows" or "columns" of it.
    produced: str = ""
    # The element type of B; of packed weights, what they are kept as.
    right: str = "float32"

    @property
    def tile(self) -> int:
        return self.vectors * self.lanes


def render(spec: GemmSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template((*SLOTS, *(producer.SLOTS if spec.produced else ())), texts) as k:
        _write(k, spec)
    return texts[0]


def _write(k: TemplateBody, spec: GemmSpec) -> None:
    for name in SLOTS[5:-3]:
        k.word(name)
    panels, chunks, inner, tile = k.word("panels"), k.word("chunks"), k.word("inner"), spec.tile
    b, c, residual = (k.array(name) for name in ("b", "c", "residual"))
    buffer = k.buffer((spec.lanes if spec.is_turned else spec.rows) * tile)

    def at_place(array: ir.Value, name: str, outer: Vector, within: Vector, more: Vector, dtype: str) -> ir.Value:
        return k.at(array, outer * k.word(f"{name}_outer") + within * k.word(f"{name}_inner") + more, dtype)

    def multiply(outer: Vector, within: Vector, panel: Vector, start: Vector, stop: Vector, a_at: ir.Value) -> None:
        first = panel * tile
        columns = k.smaller(k.word("n") - first, tile)
        b_at = k.at(b, panel * k.word("k") * tile, spec.right)
        if spec.source != "packed":
            b_at = at_place(b, "b", outer, within, first * k.word("b_n"), spec.right)
        c_at = at_place(c, "c", outer, within, first * k.word("c_n"), spec.epilogue.result)
        r_at = at_place(residual, "r", outer, within, first * k.word("r_n"), "float32")
        _multiply(k, spec, buffer, panel, columns, start, stop, a_at, b_at, c_at, r_at)

    if spec.produced:
        _write_produced(k, spec, multiply)
        return
    low, high = k.share(k.word("batch") * panels * chunks)
    with k.loop(low, high) as task:
        above = k.quotient(task, chunks)
        index = k.quotient(above, panels)
        panel = above - index * panels
        outer = k.quotient(index, inner)
        within = index - outer * inner
        start = (task - above * chunks) * k.word("chunk")
        stop = k.smaller(start + k.word("chunk"), k.word("m"))
        a_at = at_place(k.array("a"), "a", outer, within, k.number(0), "float32")
        multiply(outer, within, panel, start, stop, a_at)


def _write_produced(k: TemplateBody, spec: GemmSpec, multiply: Callable[..., None]) -> None:
    """Chunks of rows are made, and then multiplied by all panels, or by a part of them."""
    for name in producer.SLOTS:
        k.word(name)
    panels, chunks, inner, splits = k.word("panels"), k.word("chunks"), k.word("inner"), k.word("splits")
    current = k.builder.alloca(I64)
    k.builder.store(ir.Constant(I64, -1), current)
    low, high = k.share(k.word("batch") * chunks * splits)
    with k.builder.if_then((low < high).value):
        producer.begin(k)
        with k.loop(low, high) as task:
            above = k.quotient(task, splits)
            index = k.quotient(above, chunks)
            split = task - above * splits
            outer = k.quotient(index, inner)
            within = index - outer * inner
            chunk = above - index * chunks
            start, end = (k.quotient(k.word("tiles") * n, chunks) * spec.rows for n in (chunk, chunk + 1))
            stop = k.smaller(end, k.word("m"))
            with k.builder.if_then(unless_current(k, current, above)):
                first = outer * k.word("p_outer") + within * k.word("p_inner")
                k.outline("make", [first, start, stop], lambda k, *given: _make_rows(k, spec, *given))
            a_at = k.at(producer.rows_at(k), -(start * k.word("a_m")))
            before, behind = (k.quotient(panels * n, splits) for n in (split, split + 1))
            with k.loop(before, behind) as panel:
                multiply(outer, within, panel, start, stop, a_at)


def _make_rows(k: TemplateBody, spec: GemmSpec, first: Vector, start: Vector, stop: Vector) -> None:
    """Rows of A from ``start`` up to ``stop``; the matrix begins at row ``first`` of what the producer makes."""
    room, depth = producer.rows_at(k), k.word("k")
    if spec.produced == "rows":
        target = k.at(room, -((first + start) * k.word("a_m")))
        producer.make(k, first + start, first + stop, 0, depth, target)
    else:
        # A row that is produced is a column of A.
        target = k.at(room, -(first * k.word("a_k") + start))
        producer.make(k, first, first + depth, start, stop, target)


def _multiply(
    k: TemplateBody,
    spec: GemmSpec,
    buffer: ir.Value,
    panel: Vector,
    columns: Vector,
    start: Vector,
    stop: Vector,
    a_at: ir.Value,
    b_at: ir.Value,
    c_at: ir.Value,
    r_at: ir.Value,
) -> None:
    """Rows of A from ``start`` up to ``stop`` times a panel of B."""
    depth, tile = k.word("k"), spec.tile
    pitch, masks, panel_at = k.number(tile), [], b_at
    if spec.source == "place":
        pitch = k.word("b_k")
        masks = [k.e.tail_mask(k.larger(columns - v * spec.lanes, 0), spec.lanes) for v in range(spec.vectors)]
    elif spec.source != "packed":
        panel_at = k.scratch()
        k.outline("pack", [b_at, panel_at, columns], lambda k, *given: _pack_panel(k, spec, *given))
    with k.loop(start, stop, spec.rows) as m:
        last = stop - 1
        # Rows beyond the last are the last one again; they are not stored.
        rows = [k.at(a_at, k.smaller(m + r, last) * k.word("a_m")) for r in range(spec.rows)]

        # Each lot of rows asks for a part of the next panel, which may be far away.
        part = k.smaller(k.quotient(m - start, k.number(spec.rows)), spec.vectors - 1)
        ahead = k.at(panel_at, depth * tile + part * (depth * spec.lanes))

        def right(i: Vector, v: int, ahead: ir.Value = ahead) -> Vector:
            if spec.asks_ahead and v == 0:
                k.fetch(ahead, i * spec.lanes)
            elif spec.source == "packed" and not spec.asks_ahead:
                k.e.prefetch(panel_at, (i * tile + (AHEAD + v * spec.lanes)).value, spec.right)
            mask = masks[v] if masks else None
            dtype = spec.right if spec.source in ("place", "packed") else "float32"
            return k.e.cast(k.floats(panel_at, i * pitch + v * spec.lanes, spec.lanes, mask, dtype), "float32")

        step = k.word("a_k")
        sums = multiply_tile(
            k, spec.rows, spec.vectors, spec.lanes, depth, lambda i, r: k.floats(rows[r], i * step, 1), right
        )
        count = k.smaller(stop - m, spec.rows)

        def finish() -> None:
            for r, row in enumerate(sums):
                for v, x in enumerate(row):
                    k.put(buffer, r * tile + v * spec.lanes, x)
            given = [buffer, m, count, columns, panel * tile, c_at, r_at]
            k.outline("finish", given, lambda k, *given: _finish_tile(k, spec, *given))

        if spec.epilogue != Epilogue(result=spec.epilogue.result) or spec.is_turned or spec.right == "int8":
            finish()
        else:
            # Whole tiles that nothing is done to go where they belong at once.
            is_whole = k.builder.and_((count == spec.rows).value, (columns == tile).value)
            with k.builder.if_else(is_whole) as (whole, partial):
                with whole:
                    line = k.at(c_at, m * k.word("c_m"), spec.epilogue.result)
                    for row in sums:
                        for v, x in enumerate(row):
                            k.put(line, v * spec.lanes, _scaled(k, spec, x), dtype=spec.epilogue.result)
                        line = k.at(line, k.word("c_m"), spec.epilogue.result)
                with partial:
                    finish()


def _finish_tile(
    k: TemplateBody,
    spec: GemmSpec,
    buffer: ir.Value,
    m: Vector,
    count: Vector,
    columns: Vector,
    first: Vector,
    c_at: ir.Value,
    r_at: ir.Value,
) -> None:
    """The buffer's first rows, ``count`` of them, to rows ``m`` and on of C."""
    if not spec.is_turned:
        with k.loop(0, count) as r:
            _finish(k, spec, buffer, r, m + r, columns, first, c_at, r_at)
        return
    lanes = spec.lanes
    turned = k.buffer(lanes * spec.tile)
    with k.loop(0, k.number(spec.vectors)) as v:
        square = [k.floats(buffer, v * lanes + r * spec.tile, lanes) for r in range(lanes)]
        for q, x in enumerate(transposed(square, k)):
            k.put(turned, (v * lanes + q) * lanes, x)
    with k.loop(0, columns) as n:
        _finish_column(k, spec, k.at(turned, n * lanes), n, m, count, first + n, c_at, r_at)


def _finish(
    k: TemplateBody,
    spec: GemmSpec,
    buffer: ir.Value,
    r: Vector,
    m: Vector,
    columns: Vector,
    first: Vector,
    c_at: ir.Value,
    r_at: ir.Value,
) -> None:
    """Row ``r`` of the buffer through the epilogue to row ``m`` of C."""
    masks = [k.e.tail_mask(columns - v * spec.lanes, spec.lanes) for v in range(spec.vectors)]
    for v, mask in enumerate(masks):
        at = v * spec.lanes
        x = k.floats(buffer, r * spec.tile + at, spec.lanes)
        if spec.right == "int8":
            x = x * k.floats(k.array("factors"), first + at, spec.lanes)
        x = _scaled(k, spec, x)
        bias = k.floats(k.array("bias"), first + at, spec.lanes, mask) if spec.epilogue.bias else None
        other = k.floats(r_at, m * k.word("r_m") + at, spec.lanes, mask) if spec.epilogue.residual else None
        k.put(c_at, m * k.word("c_m") + at, spec.epilogue.apply(k.e, x, bias, other), mask, spec.epilogue.result)


def _scaled(k: TemplateBody, spec: GemmSpec, x: Vector) -> Vector:
    if not spec.is_scaled:
        return x
    return x * k.e.broadcast(k.e.cast(k.float(k.slots["scale"]), "float32"), spec.lanes)


def _finish_column(
    k: TemplateBody,
    spec: GemmSpec,
    sums: ir.Value,
    n: Vector,
    m: Vector,
    count: Vector,
    column: Vector,
    c_at: ir.Value,
    r_at: ir.Value,
) -> None:
    """``count`` numbers of a column through the epilogue to where the column of C goes on at row ``m``."""
    mask = k.e.tail_mask(count, spec.lanes)
    x = k.floats(sums, 0, spec.lanes)
    if spec.right == "int8":
        x = x * k.e.broadcast(k.floats(k.array("factors"), column, 1), spec.lanes)
    x = _scaled(k, spec, x)
    bias = k.e.broadcast(k.floats(k.array("bias"), column, 1), spec.lanes) if spec.epilogue.bias else None
    other = k.floats(r_at, n * k.word("r_n") + m, spec.lanes, mask) if spec.epilogue.residual else None
    k.put(c_at, n * k.word("c_n") + m, spec.epilogue.apply(k.e, x, bias, other), mask, spec.epilogue.result)


def _pack_panel(k: TemplateBody, spec: GemmSpec, source: ir.Value, panel: ir.Value, columns: Vector) -> None:
    """One panel of B, with zeros beyond the last column."""
    lanes = spec.lanes
    masks = [k.e.tail_mask(columns - v * lanes, lanes) for v in range(spec.vectors)]
    if spec.source == "rows":
        with k.loop(0, k.word("k")) as i:
            for v, mask in enumerate(masks):
                x = k.floats(source, i * k.word("b_k") + v * lanes, lanes, mask, spec.right)
                k.put(panel, i * spec.tile + v * lanes, x)
        return
    pack_columns(k, spec.vectors, lanes, k.word("k"), k.word("b_n"), source, panel, columns, spec.right)


def pack_columns(
    k: TemplateBody,
    vectors: int,
    lanes: int,
    depth: Vector,
    step: Vector,
    source: ir.Value,
    panel: ir.Value,
    columns: Vector,
    dtype: str = "float32",
) -> None:
    """``columns`` rows of ``depth`` numbers in memory, ``step`` apart, as the columns of a panel [depth][tile].

    Columns beyond hold numbers of others, if there is room for more of them.
    """
    tile = vectors * lanes
    last = k.larger(columns - 1, 0)
    whole = depth & -lanes
    # Squares are read along the rows and turned.
    with k.loop(0, k.number(vectors)) as v:
        first = v * lanes
        places = [k.at(source, k.smaller(first + lane, last) * step, dtype) for lane in range(lanes)]
        mask = k.e.tail_mask(k.larger(columns - first, 0), lanes)
        with k.loop(0, whole, lanes) as i:
            for q, x in enumerate(transposed([k.floats(p, i, lanes, dtype=dtype) for p in places], k)):
                k.put(panel, (i + q) * tile + first, x)
        stride = k.e.iota("int64", lanes) * k.e.broadcast(step, lanes)
        with k.loop(whole, depth) as i:
            x = k.e.gather(k.at(source, first * step + i, dtype), stride, dtype, mask)
            k.put(panel, i * tile + first, x)


def transposed(rows: Sequence[Vector], k: TemplateBody) -> list[Vector]:
    """The columns of a square of vectors, by exchanging halves of ever smaller blocks."""
    rows = list(rows)
    n = len(rows)
    block = n // 2
    while block:
        low = [q if q & block == 0 else n + q - block for q in range(n)]
        high = [q + block if q & block == 0 else n + q for q in range(n)]
        orders = [ir.Constant(ir.VectorType(I32, n), order) for order in (low, high)]
        made = list(rows)
        for q in range(n):
            if q & block == 0:
                x, y = rows[q], rows[q + block]
                made[q] = x._new(k.builder.shuffle_vector(x.value, y.value, orders[0]))
                made[q + block] = x._new(k.builder.shuffle_vector(x.value, y.value, orders[1]))
        rows = made
        block //= 2
    return rows


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
