"""What the operators that are recurrent layers and cells are called with, whatever runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gpujit.ir.graph import Node, Value
from gpujit.kernels.cuda_cells import GATES
from gpujit.passes.nodes import elements_of, known

Array = Value | np.ndarray


class Layers(NamedTuple):
    """What a node computes: its input, its first states (hidden, and an LSTM's cells), the weights by direction."""

    kind: str
    x: Value
    states: Sequence[Value]
    weights: list[list[Array | None]]
    directions: int
    batch_first: bool
    is_cell: bool


def recurrent_of(node: Node) -> Layers | None:
    """What a node computes that is a recurrent layer without projections, or a cell; None for other nodes."""
    name = None if node.schema is None else node.schema.full_name
    reader = _READERS.get(name or "")
    found = None if reader is None else reader(node)
    # Hidden states, and an LSTM's cells.
    return None if found is None or len(found.states) != 1 + (found.kind == "lstm") else found


def _parameters(value: Value) -> Sequence[Array] | None:
    if not value.is_constant:
        return elements_of(value)
    found = value.constant()
    return found if isinstance(found, list) and all(type(x) is np.ndarray for x in found) else None


def _layers(kind: str, node: Node) -> Layers | None:
    x, hx, params, *rest = node.inputs
    has_biases, count, dropout, train, bidirectional, batch_first = map(known, rest)
    if any(type(v) is not bool for v in (has_biases, train, bidirectional, batch_first)) or type(count) is not int:
        return None
    if not isinstance(dropout, float | int) or (train and dropout and count > 1):
        return None
    states = elements_of(hx) if kind == "lstm" else [hx]
    arrays = _parameters(params)
    each, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    # Projections come with a matrix more for each layer.
    if states is None or arrays is None or count < 1 or len(arrays) != each * count * directions:
        return None
    weights = [[*arrays[k : k + each], *[None] * (4 - each)] for k in range(0, len(arrays), each)]
    return Layers(kind, x, states, weights, directions, batch_first, False)


def _cell(kind: str, node: Node) -> Layers | None:
    x, hx, *rest = node.inputs
    states = elements_of(hx) if kind == "lstm" else [hx]
    if states is None or len(rest) != 4:
        return None
    weights: list[Array | None] = [None if v.is_constant and v.constant() is None else v for v in rest]
    return Layers(kind, x, states, [weights], 1, False, True)


_Reader = Callable[[Node], Layers | None]


def _reader(read: Callable[[str, Node], Layers | None], kind: str) -> _Reader:
    return lambda node: read(kind, node)


_READERS: dict[str, _Reader] = {
    **{f"aten::{kind}.input": _reader(_layers, kind) for kind in GATES},
    **{f"aten::{kind}_cell": _reader(_cell, kind) for kind in GATES},
}
