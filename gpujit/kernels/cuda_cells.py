"""Tile programs for one time step of recurrent layers: gates to states, with or behind the hidden state's product."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.scalar import Expr
from gpujit.kernels.cuda_windows import widened
from gpujit.kernels.index import dim
from gpujit.kernels.tile import TileProgram
from gpujit.kernels.tile_build import Builder

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@lru_cache(maxsize=64)
def step(kind: str, dtype: np.dtype, has_product: bool, has_bias: bool, copies: int) -> TileProgram:
    """One step for (sequences, units).

    Inputs: the input's part of the gates (sequences, gates, units) with its bias; the hidden state (sequences, units);
    the cells of an LSTM; and the hidden state's part of the gates. With ``has_product`` instead of that weights
    (gates, units, units) and ``has_bias`` (gates, units), and the space has rows of units. Outputs: the new hidden
    state, ``copies`` times, and the cells.
    """
    builder = Builder(3 if has_product else 2, int(has_product))
    b, u = dim(0), dim(1)
    gates, states = builder.input(dtype, 3), builder.input(dtype, 2)
    cells = builder.input(dtype, 2) if kind == "lstm" else None
    weights = builder.input(dtype, 3)
    biases = builder.input(dtype, 2) if has_bias and has_product else None

    def hidden(gate: int) -> Expr:
        if not has_product:
            return widened(builder.load(weights, [b, gate, u]))
        product = scalar.apply(
            "mul",
            widened(builder.load(states, [b, dim(2)])),
            widened(builder.load(weights, [gate, u, dim(2)])),
        )
        total = scalar.reduce("sum", product)
        if biases is None:
            return total
        return scalar.apply("add", total, widened(builder.load(biases, [gate, u])))

    def given(gate: int) -> Expr:
        return widened(builder.load(gates, [b, gate, u]))

    def both(gate: int) -> Expr:
        return scalar.apply("add", given(gate), hidden(gate))

    state = widened(builder.load(states, [b, u]))
    cell = None
    if kind == "lstm":
        assert cells is not None
        into, kept, shown = _sigmoid(both(0)), _sigmoid(both(1)), _sigmoid(both(3))
        new = scalar.apply("mul", into, scalar.apply("tanh", both(2)))
        cell = scalar.apply("add", scalar.apply("mul", kept, widened(builder.load(cells, [b, u]))), new)
        result = scalar.apply("mul", shown, scalar.apply("tanh", cell))
    elif kind == "gru":
        reset, update = _sigmoid(both(0)), _sigmoid(both(1))
        new = scalar.apply("tanh", scalar.apply("add", given(2), scalar.apply("mul", reset, hidden(2))))
        result = scalar.apply("add", scalar.apply("mul", scalar.apply("sub", state, new), update), new)
    elif kind == "rnn_tanh":
        result = scalar.apply("tanh", both(0))
    else:
        total = both(0)
        result = scalar.apply("maximum", total, scalar.const(0.0, total.dtype))
    for x in [*[result] * copies, *([] if cell is None else [cell])]:
        builder.store(builder.output(dtype, 2), [b, u], scalar.cast(x, dtype))
    return builder.finish()


def _sigmoid(x: Expr) -> Expr:
    one = scalar.const(1.0, x.dtype)
    return scalar.apply("div", one, scalar.apply("add", one, scalar.apply("exp", scalar.apply("neg", x))))
