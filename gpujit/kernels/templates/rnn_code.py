"""The code of recurrent layers: products of inputs, time steps, the cells' update."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from gpujit.kernels.math_exp import tanh
from gpujit.kernels.math_quick import sigmoid
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.vector import Vector

GATES = {"lstm": 4, "gru": 3}
SLOTS = (
    "x", "h0", "c0", "y", "hn", "cn", "weights", "table",
    "steps", "batch", "layers", "directions", "size", "panels", "chunk",
    # In elements.
    "x_t", "x_b", "x_k", "y_t", "y_b", "h_l", "h_b", "c_l", "c_b",
    "gates_room", "rows_room", "scratch", "scratch_bytes",
    # Of a round: the layer, its direction, and the time step, or -1 - the number of the product of inputs.
    "layer", "direction", "round",
)  # fmt: skip
# What the table says of a layer's direction: where parts begin in the packed weights, and the input's size.
INPUT, HIDDEN, BIAS, NEW_BIAS, DEPTH, ENTRIES = range(6)


class RnnSpec(NamedTuple):
    """The code of a recurrent layer: register tiles of ``rows`` (inputs) and ``batch_rows`` (hidden states) rows.

    ``has_sequence`` says whether the hidden states of all steps are a result, not only the last ones; ``is_divided``
    whether the team shares the hidden units of a round.
    """

    kind: str
    rows: int
    batch_rows: int
    lanes: int
    has_sequence: bool
    is_divided: bool = False

    @property
    def tile(self) -> int:
        """Floats of all gates of a tile's hidden units."""
        return GATES[self.kind] * self.lanes


def render(spec: RnnSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(SLOTS, texts) as k:
        for name in SLOTS[8:-5]:
            k.word(name)
        panels = k.word("panels")
        low, high = k.share(panels if spec.is_divided else k.word("batch"))
        with k.builder.if_then((low < high).value):
            if spec.is_divided:
                _Writer(k, spec, panels * 0, k.word("batch"), low, high).write_round()
            else:
                _Writer(k, spec, low, high - low, panels * 0, panels).write()
    return texts[0]


class _Rows(NamedTuple):
    """Rows of floats in memory: the address of the first float, strides of steps and sequences."""

    at: ir.Value
    t: Vector
    b: Vector


class _Part(NamedTuple):
    """One direction of a layer: its inputs' size, addresses of its weights and states, where its results go."""

    depth: Vector
    w_ih: ir.Value
    w_hh: ir.Value
    bias: ir.Value
    new_bias: ir.Value
    target: _Rows
    h0: ir.Value
    c0: ir.Value | None
    hn: ir.Value
    cells: ir.Value
    is_backwards: Vector


class _Writer:
    """Writes the loops over ``count`` sequences from ``low`` on, and the units of the panels ``first`` to ``end``."""

    def __init__(self, k: TemplateBody, spec: RnnSpec, low: Vector, count: Vector, first: Vector, end: Vector) -> None:
        self.k, self.spec, self.low, self.count = k, spec, low, count
        self.first, self.end = first, end
        self.steps, self.size, self.panels = k.word("steps"), k.word("size"), k.word("panels")
        self.width = self.panels * spec.tile
        # What all parts of a round work on lies in the memory of the first one.
        self.gates = k.e.pointer(k.word("scratch").value) if spec.is_divided else k.scratch()
        self.buffer = k.buffer(spec.batch_rows * spec.tile)

    def write(self) -> None:
        k = self.k
        with k.loop(0, k.word("layers")) as layer:
            source, target = self.source(layer), self.target(layer)
            with k.loop(0, k.word("directions")) as direction:
                self.direction(layer, direction, source, target)

    def between(self, layer: Vector) -> _Rows:
        """The memory of what a layer hands to the next: two of them take turns."""
        k = self.k
        row = k.word("directions") * self.size
        at = k.at(self.gates, k.word("gates_room") + (layer & 1) * k.word("rows_room"))
        return _Rows(k.at(at, self.low * row), row * k.word("batch"), row)

    def source(self, layer: Vector) -> tuple[_Rows, Vector]:
        """What a layer reads, and the stride of its features."""
        k = self.k
        x = _Rows(k.at(k.array("x"), self.low * k.word("x_b")), k.word("x_t"), k.word("x_b"))
        is_first = layer == 0
        found = self.chosen(is_first, x, self.between(layer + 1))
        return found, k.e.select(is_first, k.word("x_k"), 1)

    def target(self, layer: Vector) -> _Rows:
        """Where a layer's hidden states go."""
        k = self.k
        if not self.spec.has_sequence:
            return self.between(layer)
        y = _Rows(k.at(k.array("y"), self.low * k.word("y_b")), k.word("y_t"), k.word("y_b"))
        return self.chosen(layer + 1 == k.word("layers"), y, self.between(layer))

    def chosen(self, which: Vector, yes: _Rows, no: _Rows) -> _Rows:
        e = self.k.e
        at = self.k.builder.select(which.value, yes.at, no.at)
        return _Rows(at, e.select(which, yes.t, no.t), e.select(which, yes.b, no.b))

    def part(self, layer: Vector, direction: Vector, target: _Rows) -> _Part:
        """Where everything of a layer's direction is."""
        k = self.k
        number = layer * k.word("directions") + direction
        weights, row = k.array("weights"), number * ENTRIES
        depth, *starts = (
            k.e.load(k.array("table"), (row + entry).value, "int64", 1)
            for entry in (DEPTH, INPUT, HIDDEN, BIAS, NEW_BIAS)
        )
        state = (number * k.word("batch") + self.low) * self.size
        h0 = k.at(k.array("h0"), number * k.word("h_l") + self.low * k.word("h_b"))
        c0, cells = None, h0
        if self.spec.kind == "lstm":
            c0 = k.at(k.array("c0"), number * k.word("c_l") + self.low * k.word("c_b"))
            cells = k.at(k.array("cn"), state)
        target = target._replace(at=k.at(target.at, direction * self.size))
        w_ih, w_hh, bias, new_bias = (k.at(weights, start) for start in starts)
        hn = k.at(k.array("hn"), state)
        return _Part(depth, w_ih, w_hh, bias, new_bias, target, h0, c0, hn, cells, direction != 0)

    def time(self, part: _Part, step: Vector) -> Vector:
        return self.k.e.select(part.is_backwards, self.steps - 1 - step, step)

    def direction(self, layer: Vector, direction: Vector, source: tuple[_Rows, Vector], target: _Rows) -> None:
        k = self.k
        part = self.part(layer, direction, target)
        self.begin(part)
        chunk = k.word("chunk")
        with k.loop(0, k.quotient(self.steps + chunk - 1, chunk)) as lot:
            first = lot * chunk
            steps = self.lot(part, source, lot)
            with k.loop(0, steps) as step:
                self.one(part, first + step, step)
        self.finish(part)

    def write_round(self) -> None:
        """A product of inputs, or a time step."""
        k = self.k
        layer, which = k.word("layer"), k.word("round")
        source, target = self.source(layer), self.target(layer)
        part = self.part(layer, k.word("direction"), target)
        with k.builder.if_else((which < 0).value) as (product, step):
            with product:
                self.lot(part, source, -1 - which)
            with step:
                with k.builder.if_then((which == 0).value):
                    self.begin(part)
                self.one(part, which, k.rest(which, k.word("chunk")))
                with k.builder.if_then((which + 1 == self.steps).value):
                    self.finish(part)

    def begin(self, part: _Part) -> None:
        """The cells' first values to where they are worked on."""
        if part.c0 is not None:
            self.copy(part.c0, self.k.word("c_b"), part.cells)

    def finish(self, part: _Part) -> None:
        """The last hidden states to where they are a result."""
        last = self.time(part, self.steps - 1)
        self.copy(self.k.at(part.target.at, last * part.target.t), part.target.b, part.hn)

    def lot(self, part: _Part, source: tuple[_Rows, Vector], number: Vector) -> Vector:
        """The inputs' part of the gates of a chunk of time steps; how many these are."""
        k = self.k
        first = number * k.word("chunk")
        steps = k.smaller(k.word("chunk"), self.steps - first)
        self.inputs(source, part.depth, part.w_ih, part.bias, steps, lambda step: self.time(part, first + step))
        return steps

    def one(self, part: _Part, now: Vector, step: Vector) -> None:
        """Time step ``now``, which is number ``step`` of its chunk."""
        k, target = self.k, part.target
        before = _Rows(k.at(target.at, self.time(part, now - 1) * target.t), target.t, target.b)
        before = self.chosen(now == 0, _Rows(part.h0, target.t, k.word("h_b")), before)
        after = target._replace(at=k.at(target.at, self.time(part, now) * target.t))
        gates = k.at(self.gates, step * self.count * self.width)
        self.step(before, after, gates, part.cells, part.w_hh, part.new_bias, (now & 1) != 0)

    def copy(self, source: ir.Value, stride: Vector, target: ir.Value) -> None:
        """The states of all sequences to where they lie together, as far as they are this part's units."""
        lanes = self.spec.lanes

        def write(
            k: TemplateBody, source: ir.Value, stride: Vector, target: ir.Value, count: Vector, *units: Vector
        ) -> None:
            size, (first, end) = k.word("size"), units
            with k.loop(0, count) as b:
                line, to = k.at(source, b * stride + first), k.at(target, b * size + first)
                k.vector_loop(end - first, lanes, lambda i, mask: k.put(to, i, k.floats(line, i, lanes, mask), mask))

        k = self.k
        units = [self.first * lanes, k.smaller(self.end * lanes, self.size)]
        k.outline("copy", [source, stride, target, self.count, *units], write)

    def inputs(
        self,
        source: tuple[_Rows, Vector],
        depth: Vector,
        weights: ir.Value,
        bias: ir.Value,
        steps: Vector,
        time: Callable[[Vector], Vector],
    ) -> None:
        """The input's part of the gates of some time steps, biases added."""
        k, spec = self.k, self.spec
        rows, feature = source
        lanes, tile, vectors = spec.lanes, spec.tile, GATES[spec.kind]
        total = steps * self.count
        with k.loop(self.first, self.end) as panel:
            panel_at, bias_at = k.at(weights, panel * depth * tile), k.at(bias, panel * tile)
            with k.loop(0, total, spec.rows) as row:
                # Rows beyond the last are the last one again, and stored as often.
                numbers = [k.smaller(row + r, total - 1) for r in range(spec.rows)]
                lines = []
                for n in numbers:
                    step = k.quotient(n, self.count)
                    lines.append(k.at(rows.at, time(step) * rows.t + (n - step * self.count) * rows.b))
                sums = multiply_tile(
                    k, spec.rows, vectors, lanes, depth,
                    lambda i, r: k.floats(lines[r], i * feature, 1),
                    lambda i, v: k.floats(panel_at, i * tile + v * lanes, lanes),
                )  # fmt: skip
                biases = [k.floats(bias_at, v * lanes, lanes) for v in range(vectors)]
                for n, line in zip(numbers, sums, strict=True):
                    to = k.at(self.gates, n * self.width + panel * tile)
                    for v, x in enumerate(line):
                        k.put(to, v * lanes, x + biases[v])

    def step(
        self,
        before: _Rows,
        after: _Rows,
        gates: ir.Value,
        cells: ir.Value,
        weights: ir.Value,
        new_bias: ir.Value,
        is_odd: Vector,
    ) -> None:
        """One time step of all sequences.

        Every other one goes through the weights from their end: what it meets first was read last, and is still in the
        cache when not all of them are.
        """
        k, spec = self.k, self.spec
        lanes, tile = spec.lanes, spec.tile
        with k.loop(self.first, self.end) as turn:
            panel = k.e.select(is_odd, self.first + self.end - 1 - turn, turn)
            panel_at, unit = k.at(weights, panel * self.size * tile), panel * lanes
            with k.loop(0, self.count, spec.batch_rows) as b:
                last = self.count - 1
                lines = [k.at(before.at, k.smaller(b + r, last) * before.b) for r in range(spec.batch_rows)]
                sums = multiply_tile(
                    k, spec.batch_rows, GATES[spec.kind], lanes, self.size,
                    lambda i, r: k.floats(lines[r], i, 1),
                    lambda i, v: k.floats(panel_at, i * tile + v * lanes, lanes),
                )  # fmt: skip
                for r, row in enumerate(sums):
                    for v, x in enumerate(row):
                        k.put(self.buffer, r * tile + v * lanes, x)
                given = [
                    self.buffer, k.at(gates, b * self.width + panel * tile), k.smaller(self.count - b, spec.batch_rows),
                    self.size - unit, k.at(cells, b * self.size + unit), k.at(before.at, b * before.b + unit), before.b,
                    k.at(after.at, b * after.b + unit), after.b, k.at(new_bias, unit),
                ]  # fmt: skip
                k.outline("cells", given, lambda k, *given: _update(k, spec, *given))


def _update(
    k: TemplateBody,
    spec: RnnSpec,
    sums: ir.Value,
    gates: ir.Value,
    count: Vector,
    units: Vector,
    cells: ir.Value,
    before: ir.Value,
    before_stride: Vector,
    after: ir.Value,
    after_stride: Vector,
    new_bias: ir.Value,
) -> None:
    """New states of a tile's units, of ``count`` sequences, from the hidden and the input's part of their gates."""
    e, lanes = k.e, spec.lanes
    mask = e.tail_mask(units, lanes)
    with k.loop(0, count) as r:
        line = k.at(gates, r * k.word("panels") * spec.tile)
        hidden = [k.floats(sums, r * spec.tile + v * lanes, lanes) for v in range(GATES[spec.kind])]
        given = [k.floats(line, v * lanes, lanes) for v in range(GATES[spec.kind])]
        if spec.kind == "lstm":
            i, f, g, o = (x + y for x, y in zip(hidden, given, strict=True))
            at = r * k.word("size")
            cell = sigmoid(e, f) * k.floats(cells, at, lanes, mask) + sigmoid(e, i) * tanh(e, g)
            k.put(cells, at, cell, mask)
            new = sigmoid(e, o) * tanh(e, cell)
        else:
            reset, update = (sigmoid(e, x + y) for x, y in zip(hidden[:2], given[:2], strict=True))
            fresh = tanh(e, e.fma(reset, hidden[2] + k.floats(new_bias, 0, lanes), given[2]))
            new = e.fma(update, k.floats(before, r * before_stride, lanes, mask) - fresh, fresh)
        k.put(after, r * after_stride, new, mask)
