"""LSTM and GRU over whole sequences, all layers and directions in one step.

Weights are packed once, so that a register tile holds all gates of as many hidden units as a vector has lanes: a cell's
update needs nothing but the tile. The input's part of the gates is one product for many time steps; a time step then
multiplies the hidden state and updates the cells. Sequences of a batch do not need each other: the team shares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from gpujit.kernels.math_exp import tanh
from gpujit.kernels.math_quick import sigmoid
from gpujit.kernels.target import host
from gpujit.kernels.templates.body import TemplateBody, multiply_tile, template
from gpujit.kernels.templates.bound import BoundTemplate, aligned, template_address
from gpujit.kernels.vector import Vector
from gpujit.support.errors import ArgumentError

GATES = {"lstm": 4, "gru": 3}
SLOTS = (
    "x", "h0", "c0", "y", "hn", "cn", "weights", "table",
    "steps", "batch", "layers", "directions", "size", "panels", "chunk",
    # In elements.
    "x_t", "x_b", "x_k", "y_t", "y_b", "h_l", "h_b", "c_l", "c_b",
    "gates_room", "rows_room", "scratch", "scratch_bytes",
)  # fmt: skip
# What the table says of a layer's direction: where parts begin in the packed weights, and the input's size.
_INPUT, _HIDDEN, _BIAS, _NEW_BIAS, _DEPTH, _ENTRIES = range(6)
# Floats of gates that are computed ahead of the time steps that use them: they should stay in the cache.
AHEAD = 1 << 16
# Rows that the input's product should have at least, since its weights are read anew for each lot of them.
FEWEST_ROWS = 24
# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000


class RnnSpec(NamedTuple):
    """The code of a recurrent layer: register tiles of ``rows`` (inputs) and ``batch_rows`` (hidden states) rows.

    ``has_sequence`` says whether the hidden states of all steps are a result, not only the last ones.
    """

    kind: str
    rows: int
    batch_rows: int
    lanes: int
    has_sequence: bool

    @property
    def tile(self) -> int:
        """Floats of all gates of a tile's hidden units."""
        return GATES[self.kind] * self.lanes


class Layer(NamedTuple):
    """One direction of one layer: ``[gates * size, inputs]``, ``[gates * size, size]``, biases ``[gates * size]``."""

    w_ih: np.ndarray
    w_hh: np.ndarray
    b_ih: np.ndarray | None = None
    b_hh: np.ndarray | None = None


class Rnn(NamedTuple):
    """Layers over ``steps`` inputs of ``batch`` sequences; strides in elements.

    Args:
        x: strides of steps, sequences, features.
        h: of the initial hidden state: layers' directions, sequences; units lie together. ``c`` alike.
        y: of the result: steps, sequences; None when only the last states are wanted.
    """

    kind: str
    steps: int
    batch: int
    size: int
    layers: int
    directions: int
    x: Sequence[int]
    h: Sequence[int]
    c: Sequence[int] = (0, 0)
    y: Sequence[int] | None = None


# Packed weights -------------------------------------------------------------------------------------------------------


def pack(kind: str, layers: Sequence[Layer], lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """All weights and biases in one array, and the table of where they are.

    Weights lie as [panels][depth][gates][lanes], with zeros for units beyond the last. Biases are added up, but for the
    GRU's new gate, whose hidden part gets its own.
    """
    parts: list[np.ndarray] = []
    table = np.zeros((len(layers), _ENTRIES), np.int64)
    end = 0

    def add(row: int, entry: int, part: np.ndarray) -> None:
        nonlocal end
        table[row, entry] = end
        parts.append(part.ravel())
        end += part.size

    for row, layer in enumerate(layers):
        table[row, _DEPTH] = layer.w_ih.shape[1]
        add(row, _INPUT, _panels(kind, layer.w_ih, lanes))
        add(row, _HIDDEN, _panels(kind, layer.w_hh, lanes))
        bias = np.zeros(layer.w_ih.shape[0], np.float32)
        new_bias = np.zeros(layer.w_hh.shape[1], np.float32)
        if layer.b_ih is not None:
            bias += layer.b_ih
        if layer.b_hh is not None:
            shared = layer.b_hh.size if kind == "lstm" else 2 * new_bias.size
            bias[:shared] += layer.b_hh[:shared]
            new_bias += layer.b_hh[shared:] if kind == "gru" else 0
        add(row, _BIAS, _panels(kind, bias[:, None], lanes))
        room = np.zeros(-(-new_bias.size // lanes) * lanes, np.float32)
        room[: new_bias.size] = new_bias
        add(row, _NEW_BIAS, room)
    packed = aligned(end)
    np.concatenate(parts, out=packed)
    return packed, table


def _panels(kind: str, w: np.ndarray, lanes: int) -> np.ndarray:
    gates = GATES[kind]
    size, depth = w.shape[0] // gates, w.shape[1]
    panels = -(-size // lanes)
    room = np.zeros((gates, panels * lanes, depth), np.float32)
    room[:, :size] = w.reshape(gates, size, depth)
    return np.ascontiguousarray(room.reshape(gates, panels, lanes, depth).transpose(1, 3, 0, 2))


# The kernel -----------------------------------------------------------------------------------------------------------


def render(spec: RnnSpec) -> str:
    """The kernel's LLVM IR."""
    texts: list[str] = []
    with template(SLOTS, texts) as k:
        for name in SLOTS[8:-2]:
            k.word(name)
        low, high = k.share(k.word("batch"))
        with k.builder.if_then((low < high).value):
            _Writer(k, spec, low, high - low).write()
    return texts[0]


class _Rows(NamedTuple):
    """Rows of floats in memory: the address of the first float, strides of steps and sequences."""

    at: ir.Value
    t: Vector
    b: Vector


class _Writer:
    """Writes the loops over ``count`` sequences from ``low`` on."""

    def __init__(self, k: TemplateBody, spec: RnnSpec, low: Vector, count: Vector) -> None:
        self.k, self.spec, self.low, self.count = k, spec, low, count
        self.steps, self.size, self.panels = k.word("steps"), k.word("size"), k.word("panels")
        self.width = self.panels * spec.tile
        self.gates = k.scratch()
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

    def direction(self, layer: Vector, direction: Vector, source: tuple[_Rows, Vector], target: _Rows) -> None:
        k, spec = self.k, self.spec
        number = layer * k.word("directions") + direction
        weights, row = k.array("weights"), number * _ENTRIES
        depth, *starts = (
            k.e.load(k.array("table"), (row + entry).value, "int64", 1)
            for entry in (_DEPTH, _INPUT, _HIDDEN, _BIAS, _NEW_BIAS)
        )
        w_ih, w_hh, bias, new_bias = (k.at(weights, start) for start in starts)
        target = target._replace(at=k.at(target.at, direction * self.size))
        # The sequences' first state, and where their last one goes.
        state = (number * k.word("batch") + self.low) * self.size
        h0 = k.at(k.array("h0"), number * k.word("h_l") + self.low * k.word("h_b"))
        cells = h0
        if spec.kind == "lstm":
            cells = k.at(k.array("cn"), state)
            c0 = k.at(k.array("c0"), number * k.word("c_l") + self.low * k.word("c_b"))
            self.copy(c0, k.word("c_b"), cells)
        backwards = direction != 0

        def time(step: Vector) -> Vector:
            return k.e.select(backwards, self.steps - 1 - step, step)

        chunk = k.word("chunk")
        with k.loop(0, k.quotient(self.steps + chunk - 1, chunk)) as lot:
            first = lot * chunk
            steps = k.smaller(chunk, self.steps - first)
            self.inputs(source, depth, w_ih, bias, steps, lambda step: time(first + step))
            with k.loop(0, steps) as step:
                now = first + step
                before = _Rows(k.at(target.at, time(now - 1) * target.t), target.t, target.b)
                before = self.chosen(now == 0, _Rows(h0, target.t, k.word("h_b")), before)
                after = target._replace(at=k.at(target.at, time(now) * target.t))
                gates = k.at(self.gates, step * self.count * self.width)
                self.step(before, after, gates, cells, w_hh, new_bias, (now & 1) != 0)
        self.copy(k.at(target.at, time(self.steps - 1) * target.t), target.b, k.at(k.array("hn"), state))

    def copy(self, source: ir.Value, stride: Vector, target: ir.Value) -> None:
        """The states of all sequences to where they lie together."""

        def write(k: TemplateBody, source: ir.Value, stride: Vector, target: ir.Value, count: Vector) -> None:
            size = k.word("size")
            with k.loop(0, count) as b:
                line, to = k.at(source, b * stride), k.at(target, b * size)
                k.vector_loop(
                    size, self.spec.lanes, lambda i, mask: k.put(to, i, k.floats(line, i, self.spec.lanes, mask), mask)
                )

        self.k.outline("copy", [source, stride, target, self.count], write)

    def inputs(
        self,
        source: tuple[_Rows, Vector],
        depth: Vector,
        weights: ir.Value,
        bias: ir.Value,
        steps: Vector,
        time: object,
    ) -> None:
        """The input's part of the gates of some time steps, biases added."""
        k, spec = self.k, self.spec
        rows, feature = source
        lanes, tile, vectors = spec.lanes, spec.tile, GATES[spec.kind]
        total = steps * self.count
        assert callable(time)
        with k.loop(0, self.panels) as panel:
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
        with k.loop(0, self.panels) as turn:
            panel = k.e.select(is_odd, self.panels - 1 - turn, turn)
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


# Choice ---------------------------------------------------------------------------------------------------------------


def plan(rnn: Rnn) -> RnnSpec:
    """The register tiles for this machine. Raises ArgumentError for an impossible layer."""
    if rnn.kind not in GATES:
        raise ArgumentError(f"a recurrent layer {rnn.kind!r}: there are {', '.join(GATES)}")
    if min(rnn.steps, rnn.batch, rnn.size, rnn.layers, rnn.directions) < 1 or rnn.directions > 2:
        raise ArgumentError(
            f"{rnn.steps} steps of {rnn.batch} sequences through {rnn.layers} layers of {rnn.size} units in "
            f"{rnn.directions} directions: nothing to compute"
        )
    width = host().width
    lanes = 4
    while lanes < min(width, rnn.size):
        lanes *= 2
    most = 6 if width >= 16 else 3
    total = rnn.steps * rnn.batch
    return RnnSpec(rnn.kind, _even(total, most), _even(rnn.batch, most), lanes, rnn.y is not None)


def _even(total: int, most: int) -> int:
    """Rows of a tile, at most so many, that leaves few rows over."""
    return -(-total // -(-total // most))


def bind(rnn: Rnn, layers: Sequence[Layer], packed: tuple[np.ndarray, np.ndarray] | None = None) -> BoundTemplate:
    """The kernel to call with (x, h0, c0, y, hn, cn): without c0 and cn for a GRU, without y when it is not wanted.

    ``layers`` are directions within layers; ``packed`` is what ``pack`` made of them, when somebody has it. ``hn`` and
    ``cn`` are contiguous [layers * directions, batch, size]. Raises ArgumentError.
    """
    spec = plan(rnn)
    gates, size = GATES[rnn.kind], rnn.size
    if len(layers) != rnn.layers * rnn.directions:
        raise ArgumentError(f"{len(layers)} layers' directions were given, {rnn.layers * rnn.directions} described")
    for number, layer in enumerate(layers):
        inputs = rnn.directions * size if number >= rnn.directions else layers[0].w_ih.shape[1]
        if layer.w_ih.shape != (gates * size, inputs) or layer.w_hh.shape != (gates * size, size) or not inputs:
            raise ArgumentError(
                f"weights of shapes {layer.w_ih.shape} and {layer.w_hh.shape}, where {(gates * size, inputs)} and "
                f"{(gates * size, size)} fit"
            )
        if any(b is not None and b.shape != (gates * size,) for b in (layer.b_ih, layer.b_hh)):
            raise ArgumentError(f"a bias does not have {gates * size} numbers")
    panels = -(-size // spec.lanes)
    row = rnn.batch * panels * spec.tile
    chunk = min(rnn.steps, max(1, AHEAD // row, -(-FEWEST_ROWS // rnn.batch)))
    rows_room = rnn.steps * rnn.batch * rnn.directions * size
    rooms = min(2, rnn.layers - (rnn.y is not None))
    weights, table = pack(rnn.kind, layers, spec.lanes) if packed is None else packed
    words = {
        "steps": rnn.steps, "batch": rnn.batch, "layers": rnn.layers, "directions": rnn.directions, "size": size,
        "panels": panels, "chunk": chunk, "gates_room": chunk * row, "rows_room": rows_room,
        **dict(zip(("x_t", "x_b", "x_k"), rnn.x, strict=True)), **dict(zip(("h_l", "h_b"), rnn.h, strict=True)),
        **dict(zip(("c_l", "c_b"), rnn.c, strict=True)), **dict(zip(("y_t", "y_b"), rnn.y or (0, 0), strict=True)),
    }  # fmt: skip
    is_lstm = rnn.kind == "lstm"
    arrays = ["x", "h0", *(["c0"] if is_lstm else []), *(["y"] if rnn.y is not None else []), "hn"]
    work = rnn.steps * rnn.batch * sum(layer.w_ih.size + layer.w_hh.size for layer in layers)
    return BoundTemplate(
        template_address(("rnn", spec), lambda: render(spec)),
        SLOTS,
        words,
        [*arrays, *(["cn"] if is_lstm else [])],
        scratch_bytes=4 * (chunk * row + rooms * rows_room),
        constants={"weights": weights, "table": table},
        is_small=rnn.batch < 2 * spec.batch_rows or work < WORTH_A_TEAM,
    )
