"""LSTM and GRU over whole sequences, all layers and directions in one step.

Weights are packed once, so that a register tile holds all gates of as many hidden units as a vector has lanes: a cell's
update needs nothing but the tile. The input's part of the gates is one product for many time steps; a time step then
multiplies the hidden state and updates the cells. Sequences of a batch do not need each other: the team shares them.
Few sequences are divided otherwise: the team shares the hidden units, in a round for each time step and for each
product of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpujit.kernels.target import host
from gpujit.kernels.templates.body import parts_of_sum
from gpujit.kernels.templates.bound import BoundTemplate, Code, aligned
from gpujit.kernels.templates.choice import Choose, Way, quickest
from gpujit.kernels.templates.rnn_code import (
    BIAS,
    DEPTH,
    ENTRIES,
    GATES,
    HIDDEN,
    INPUT,
    NEW_BIAS,
    SLOTS,
    RnnSpec,
    render,
)
from gpujit.support.errors import ArgumentError

# Floats of gates that are computed ahead of the time steps that use them: they should stay in the cache.
AHEAD = 1 << 16
# Rows that the input's product should have at least, since its weights are read anew for each lot of them.
FEWEST_ROWS = 24
# Operations below which one thread is as quick as the team.
WORTH_A_TEAM = 400_000
# Multiplications of a time step that are worth a round of the team; and time steps that may have rounds of their own,
# each of which takes a block of arguments.
WORTH_A_ROUND, MOST_ROUNDS = 60_000, 4096


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
    table = np.zeros((len(layers), ENTRIES), np.int64)
    end = 0

    def add(row: int, entry: int, part: np.ndarray) -> None:
        nonlocal end
        table[row, entry] = end
        parts.append(part.ravel())
        end += part.size

    for row, layer in enumerate(layers):
        table[row, DEPTH] = layer.w_ih.shape[1]
        add(row, INPUT, _panels(kind, layer.w_ih, lanes))
        add(row, HIDDEN, _panels(kind, layer.w_hh, lanes))
        bias = np.zeros(layer.w_ih.shape[0], np.float32)
        new_bias = np.zeros(layer.w_hh.shape[1], np.float32)
        if layer.b_ih is not None:
            bias += layer.b_ih
        if layer.b_hh is not None:
            shared = layer.b_hh.size if kind == "lstm" else 2 * new_bias.size
            bias[:shared] += layer.b_hh[:shared]
            new_bias += layer.b_hh[shared:] if kind == "gru" else 0
        add(row, BIAS, _panels(kind, bias[:, None], lanes))
        room = np.zeros(-(-new_bias.size // lanes) * lanes, np.float32)
        room[: new_bias.size] = new_bias
        add(row, NEW_BIAS, room)
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


# Choice ---------------------------------------------------------------------------------------------------------------


def plan(rnn: Rnn, threads: int = 1, choose: Choose = quickest) -> RnnSpec:
    """The register tiles for this machine, and how a team divides the work.

    ``choose``: which of the tiles that round alike. Raises ArgumentError for an impossible layer.
    """
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
    total, rows = rnn.steps * rnn.batch, _even(rnn.batch, most)
    is_divided = (
        threads > 1
        and rnn.batch < 2 * rows
        and -(-rnn.size // lanes) >= 2 * threads
        and rnn.batch * GATES[rnn.kind] * rnn.size * rnn.size >= WORTH_A_ROUND
        and rnn.steps * rnn.layers * rnn.directions <= MOST_ROUNDS
    )
    spec = RnnSpec(rnn.kind, _even(total, most), rows, lanes, rnn.y is not None, is_divided)
    found: RnnSpec = choose(_way(rnn, spec), lambda: _ways(rnn, spec, most)).spec
    return found


def _ways(rnn: Rnn, best: RnnSpec, most: int) -> list[Way]:
    """All code that rounds as the best does."""
    gates = GATES[rnn.kind]

    def alike(rows: int) -> list[int]:
        return [n for n in range(1, most + 1) if parts_of_sum(n * gates) == parts_of_sum(rows * gates)]

    return [
        _way(rnn, best._replace(rows=rows, batch_rows=batch_rows))
        for rows in alike(best.rows)
        for batch_rows in alike(best.batch_rows)
    ]


def _way(rnn: Rnn, spec: RnnSpec) -> Way:
    """The code with what it takes for the rows of the inputs' product and of the hidden state's."""

    def computed(count: int, rows: int) -> int:
        # A row alone waits for the weights as long as two would.
        return -(-count // rows) * max(rows, 2)

    rows = computed(rnn.steps * rnn.batch, spec.rows) + rnn.steps * computed(rnn.batch, spec.batch_rows)
    work = rows * rnn.layers * rnn.directions * GATES[rnn.kind] * rnn.size**2
    return Way(work, Code("rnn", spec, render), spec.rows + spec.batch_rows)


def _even(total: int, most: int) -> int:
    """Rows of a tile, at most so many, that leaves few rows over."""
    return -(-total // -(-total // most))


def bind(
    rnn: Rnn,
    layers: Sequence[Layer],
    packed: tuple[np.ndarray, np.ndarray] | None = None,
    threads: int = 1,
    choose: Choose = quickest,
) -> BoundTemplate:
    """The kernel to call with (x, h0, c0, y, hn, cn): without c0 and cn for a GRU, without y when it is not wanted.

    ``layers`` are directions within layers; ``packed`` is what ``pack`` made of them, when somebody has it. ``hn`` and
    ``cn`` are contiguous [layers * directions, batch, size]. ``threads`` will run it, more or fewer can. For
    ``choose`` see ``plan``. Raises ArgumentError.
    """
    spec = plan(rnn, threads, choose)
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
        Code("rnn", spec, render),
        SLOTS,
        words,
        [*arrays, *(["cn"] if is_lstm else [])],
        scratch_bytes=4 * (chunk * row + rooms * rows_room),
        constants={"weights": weights, "table": table},
        is_small=not spec.is_divided and (rnn.batch < 2 * spec.batch_rows or work < WORTH_A_TEAM),
        rounds=_rounds(rnn, chunk) if spec.is_divided else (),
    )


def _rounds(rnn: Rnn, chunk: int) -> list[dict[str, int]]:
    """The rounds of a divided kernel, in order."""
    found = []
    for layer in range(rnn.layers):
        for direction in range(rnn.directions):
            for step in range(rnn.steps):
                if step % chunk == 0:
                    found.append({"layer": layer, "direction": direction, "round": -1 - step // chunk})
                found.append({"layer": layer, "direction": direction, "round": step})
    return found
