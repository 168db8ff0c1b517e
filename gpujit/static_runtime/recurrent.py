"""LSTM and GRU layers and cells as native steps, with constant weights that are packed once for all plans.

Left to the interpreter are projections, dropout in training, packed sequences and what is not float32.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates import rnn
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.kernels.templates.rnn_code import GATES
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.recurrent_nodes import Array, Layers, recurrent_of
from gpujit.support.errors import ArgumentError, InternalError
from gpujit.support.threads import thread_count


def native_recurrent(
    node: Node, place_of: Callable[[Value], Place | None], result: Place, choose: Choose = quickest
) -> Made | None:
    """The native step of a recurrent layer or cell; None for other nodes and for layers that it does not take."""
    found = recurrent_of(node)
    if found is None or found.kind not in GATES:
        return None
    layers = [layer for weights in found.weights if (layer := _constants(weights)) is not None]
    if len(layers) != len(found.weights) or not all(map(_fits, layers)):
        return None
    places = [place_of(v) for v in (found.x, *found.states, *node.outputs)]
    # A layer's results are its sequence and its last states, a cell's are the states.
    if len(places) != 1 + 2 * len(found.states) + (not found.is_cell):
        return None
    known_places = [p for p in places if p is not None and p.dtype == FLOAT32 and p.steps is not None]
    if len(known_places) != len(places):
        return None
    try:
        bound = _bound(found, layers, known_places, choose)
    except (ArgumentError, InternalError):
        return None
    return None if bound is None else (of_template(bound, results=len(node.outputs)), [found.x, *found.states])


def _bound(found: Layers, layers: Sequence[rnn.Layer], places: Sequence[Place], choose: Choose) -> Any:
    count = len(found.states)
    x, states, results = places[0], places[1 : 1 + count], places[1 + count :]
    size, number = layers[0].w_hh.shape[1], len(layers)
    if found.is_cell:
        if len(x.shape) != 2:
            return None
        steps, batch = 1, x.shape[0]
        x_steps = (0, *_steps(x))
        shape: tuple[int, ...] = (batch, size)
        strides = [(0, s[0]) for s in map(_steps, states)]
        y = None
    else:
        if len(x.shape) != 3 or layers[0].w_ih.shape[1] != x.shape[2]:
            return None
        at_t, at_b = (1, 0) if found.batch_first else (0, 1)
        steps, batch = x.shape[at_t], x.shape[at_b]
        x_steps = (_steps(x)[at_t], _steps(x)[at_b], _steps(x)[2])
        shape = (number, batch, size)
        strides = [(s[0], s[1]) for s in map(_steps, states) if len(s) == 3]
        width = found.directions * size
        y = (_steps(results[0])[at_t], _steps(results[0])[at_b])
        if results[0].shape != (*x.shape[:2], width):
            return None
    if any(p.shape != shape or (size > 1 and _steps(p)[-1] != 1) for p in (*states, *results[len(results) - count :])):
        return None
    if found.is_cell and layers[0].w_ih.shape[1] != x.shape[1]:
        return None
    described = rnn.Rnn(
        found.kind, steps, batch, size, number // found.directions, found.directions, x_steps, strides[0],
        strides[-1] if found.kind == "lstm" else (0, 0), y,
    )  # fmt: skip
    lanes = rnn.plan(described).lanes
    return rnn.bind(described, layers, _packed(found.kind, layers, lanes), thread_count(), choose)


def _steps(place: Place) -> tuple[int, ...]:
    assert place.steps is not None
    return place.steps


def _fits(layer: rnn.Layer) -> bool:
    """Whether all arrays of a layer are of the type and rank that the template reads."""
    biases = [b for b in (layer.b_ih, layer.b_hh) if b is not None]
    return all(w.dtype == FLOAT32 and w.ndim == 2 for w in layer[:2]) and all(
        b.dtype == FLOAT32 and b.ndim == 1 for b in biases
    )


def _constants(weights: Sequence[Array | None]) -> rnn.Layer | None:
    """A layer of constant arrays; None when some are no constants."""
    found: list[np.ndarray | None] = []
    for w in weights:
        if isinstance(w, Value):
            w = w.constant() if w.is_constant else None
            if type(w) is not np.ndarray:
                return None
        found.append(w)
    w_ih, w_hh, b_ih, b_hh = found
    return None if w_ih is None or w_hh is None else rnn.Layer(w_ih, w_hh, b_ih, b_hh)


# Packed weights -------------------------------------------------------------------------------------------------------

_packs: dict[tuple[Any, ...], tuple[list[weakref.ref[np.ndarray]], tuple[np.ndarray, np.ndarray]]] = {}
_lock = threading.Lock()


def _packed(kind: str, layers: Sequence[rnn.Layer], lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights as the template reads them, kept as long as the weights are."""
    arrays = [x for layer in layers for x in layer if x is not None]
    key = (kind, lanes, *(id(x) if x is not None else None for layer in layers for x in layer))
    with _lock:
        found = _packs.get(key)
    if found is not None and all(ref() is x for ref, x in zip(found[0], arrays, strict=True)):
        return found[1]
    packed = rnn.pack(kind, layers, lanes)
    with _lock:
        _packs[key] = [weakref.ref(x, lambda _: _packs.pop(key, None)) for x in arrays], packed
    return packed
