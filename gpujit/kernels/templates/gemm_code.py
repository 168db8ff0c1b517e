"""The code of matrix products: register tiles of rows by columns of panels, epilogues, and panels packed on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llvmlite import ir

from gpujit.kernels.templates import producer
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import unless_current
from gpujit.kernels.vector import I32, I64, Vector

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
