"""LSTM, GRU and plain recurrent layers and cells as steps on a GPU.

The input's part of all gates is one product. A time step is one launch, in which rows of weights are multiplied and the
states updated, where sequences are few; else a product and a launch. Left to the host are projections, dropout in
training and packed sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_cells import GATES, step
from gpujit.kernels.cuda_steps import StepBuilder
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import PRODUCT_TYPES, View, multiply, scratch_view, together, view_of
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.recurrent_nodes import Array, Layers, recurrent_of

# Sequences whose hidden states are multiplied row by row: weights are read anew for each of them.
FEW_SEQUENCES = 8
# Time steps of all layers in one step.
MOST_STEPS = 4096


class Direction(NamedTuple):
    """One direction of one layer, weights as ``[gates * size, inputs]`` and ``[gates * size, size]``."""

    w_ih: View
    w_hh: View
    b_ih: View | None
    b_hh: View | None


def device_recurrent(node: Node, place_of: PlaceOf, result: Place) -> MadeStep | None:
    """The step of a recurrent layer or cell of floating-point tensors; None for other nodes."""
    found = recurrent_of(node)
    if found is None or result.dtype not in PRODUCT_TYPES:
        return None
    parameters = [w for layer in found.weights for w in layer if isinstance(w, Value)]
    operands = list(dict.fromkeys([found.x, *found.states, *parameters]))
    places = [p for v in operands if (p := place_of(v)) is not None]
    results = [p for v in node.outputs if (p := place_of(v)) is not None]
    if len(places) != len(operands) or len(results) != len(node.outputs):
        return None
    if any(p.dtype != result.dtype for p in (*places, *results)):
        return None
    build = StepBuilder([p.offset for p in places], [p.offset for p in results])
    views = {v: w for k, (v, p) in enumerate(zip(operands, places, strict=True)) if (w := view_of(p, build.operand(k)))}
    outs = [w for k, p in enumerate(results) if (w := view_of(p, build.result(k))) is not None]
    if len(views) != len(operands) or len(outs) != len(results) or not prod(outs[0].shape):
        return None
    directions = [_direction(build, layer, views, result.dtype) for layer in found.weights]
    if any(d is None for d in directions):
        return None
    work = _Work(build, found, [d for d in directions if d is not None])
    done = work.run(views[found.x], [views[s] for s in found.states], outs)
    return (build.finish(), operands) if done else None


def _direction(
    build: StepBuilder, weights: Sequence[Array | None], views: dict[Value, View], dtype: np.dtype
) -> Direction | None:
    found: list[View | None] = []
    for w in weights:
        if isinstance(w, np.ndarray):
            if w.dtype != dtype:
                return None
            found.append(View(build.constant(w), w.shape, together(w.shape), w.dtype))
        else:
            found.append(None if w is None else views[w])
    w_ih, w_hh, b_ih, b_hh = found
    if w_ih is None or w_hh is None or len(w_ih.shape) != 2 or len(w_hh.shape) != 2:
        return None
    if any(b is not None and (len(b.shape) != 1 or not b.lies_together) for b in (b_ih, b_hh)):
        return None
    return Direction(w_ih, w_hh, b_ih, b_hh)


class _Work:
    """The calls of a node under construction."""

    def __init__(self, build: StepBuilder, found: Layers, directions: Sequence[Direction]) -> None:
        self.build, self.found, self.directions = build, found, directions
        self.gates = GATES[found.kind]
        self.size = directions[0].w_hh.shape[1]

    def run(self, x: View, states: Sequence[View], outs: Sequence[View]) -> bool:
        """Whether all calls could be made."""
        found, size, is_cell = self.found, self.size, self.found.is_cell
        count = len(states)
        if len(outs) != count + (not is_cell) or len(x.shape) != (2 if is_cell else 3):
            return False
        if is_cell:
            # One time step: (1, sequences, numbers), as one layer with states (1, sequences, units).
            x, *rest = (v._replace(shape=(1, *v.shape), steps=(0, *v.steps)) for v in (x, *states, *outs))
            states, outs = rest[:count], [rest[count], *rest[count:]]
        time = 1 if found.batch_first else 0
        steps, batch = x.shape[time], x.shape[1 - time]
        layers = len(self.directions) // found.directions
        wanted = (len(self.directions), batch, size)
        if any(v.shape != wanted for v in (*states, *outs[1:])) or steps * len(self.directions) > MOST_STEPS:
            return False
        if not steps or outs[0].shape != (*x.shape[:2], found.directions * size):
            return False
        for layer in range(layers):
            is_last = layer == layers - 1
            y = outs[0] if is_last else scratch_view(self.build, outs[0].shape, x.dtype)
            for direction in range(found.directions):
                k = layer * found.directions + direction
                part = y.part(2, direction * size, size)
                if not self.layer(self.directions[k], x, part, [_at(v, 0, k) for v in states], outs[1:], k, direction):
                    return False
            x = y
        return True

    def layer(
        self,
        weights: Direction,
        x: View,
        y: View,
        states: Sequence[View],
        lasts: Sequence[View],
        number: int,
        is_backward: int,
    ) -> bool:
        build, size, wide = self.build, self.size, self.gates * self.size
        shapes = weights.w_ih.shape == (wide, x.shape[2]) and weights.w_hh.shape == (wide, size)
        if not shapes or any(b is not None and b.shape != (wide,) for b in weights[2:]):
            return False
        time = 1 if self.found.batch_first else 0
        steps, batch = x.shape[time], x.shape[1 - time]
        gates = scratch_view(build, (*x.shape[:2], wide), x.dtype)
        bias = None if weights.b_ih is None else weights.b_ih.at
        if not multiply(build, x, weights.w_ih.turned, gates, bias=bias):
            return False
        has_product = batch <= FEW_SEQUENCES
        product = None if has_product else scratch_view(build, (batch, wide), x.dtype)
        cells = scratch_view(build, (batch, size), x.dtype) if len(states) == 2 and steps > 1 else None
        state, cell = states[0], states[1] if len(states) == 2 else None
        for k in range(steps):
            t = steps - 1 - k if is_backward else k
            is_last = k == steps - 1
            # A cell's result is its state.
            hidden = [_at(y, time, t)]
            if is_last and not self.found.is_cell:
                hidden.append(_at(lasts[0], 0, number))
            following = _at(lasts[1], 0, number) if cell is not None and is_last else cells
            if product is not None:
                bias = None if weights.b_hh is None else weights.b_hh.at
                if not multiply(build, state, weights.w_hh.turned, product, bias=bias):
                    return False
            after = [*hidden, *([] if following is None else [following])]
            self.step(weights, _at(gates, time, t), state, cell, product, after)
            state, cell = hidden[0], following
        return True

    def step(
        self, weights: Direction, gates: View, state: View, cell: View | None, product: View | None, outs: list[View]
    ) -> None:
        """The launch of one time step."""
        inputs = [gates.split(1, self.gates), state, *([] if cell is None else [cell])]
        has_bias = weights.b_hh is not None
        if product is None:
            inputs.append(weights.w_hh.split(0, self.gates))
            if weights.b_hh is not None:
                inputs.append(weights.b_hh.split(0, self.gates))
        else:
            inputs.append(product.split(1, self.gates))
        copies = len(outs) - (cell is not None)
        program = step(self.found.kind, gates.dtype, product is None, has_bias and product is None, copies)
        sizes = (*state.shape, self.size) if product is None else state.shape
        self.build.tile(program, [v.laid for v in inputs], [v.laid for v in outs], sizes, label=self.found.kind)


def _at(x: View, dim: int, k: int) -> View:
    """The part at a place along a dim, without that dim."""
    shape, steps = x.shape, x.steps
    return x._replace(
        at=x.behind(k * steps[dim]), shape=(*shape[:dim], *shape[dim + 1 :]), steps=(*steps[:dim], *steps[dim + 1 :])
    )
