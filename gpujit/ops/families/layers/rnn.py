"""Recurrent layers and cells: LSTM, GRU and plain RNN, over padded batches and over packed sequences.

Both layouts run the same loop: rows of all time steps lie one after the other, and step ``t`` takes ``(start, count)``
of them. The input's part of the gates is one gemm for all steps; a step then does one small gemm and a few in-place
ufuncs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpujit.ir.dtypes import INT64
from gpujit.ir.values import Array
from gpujit.ops.families.layers.dropout import dropped
from gpujit.ops.registry import library
from gpujit.ops.rules.data import packed_sequence_type, padded_sequence_type
from gpujit.ops.rules.layers import cell_type, lstm_cell_type, lstm_type, rnn_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Weights:
    """One direction of one layer; ``w_hr`` projects an LSTM's hidden state."""

    w_ih: Array
    w_hh: Array
    b_ih: Array | None = None
    b_hh: Array | None = None
    w_hr: Array | None = None


# ------------------------------------------------------------------------------------------------- the time loops


def _input_part(x: Array, w: Weights, with_hidden_bias: bool) -> Array:
    gates: Array = x.dot(w.w_ih.T)
    if w.b_ih is not None:
        gates += w.b_ih + w.b_hh if with_hidden_bias else w.b_ih
    return gates


def _lstm_steps(xp: Any, x: Array, w: Weights, spans: Spans, h: Array, c: Array, y: Array) -> None:
    """Run an LSTM over the rows ``x``; states ``h`` and ``c`` are updated in place, hidden states written to ``y``.

    Gates are kept negated, which makes ``1 / (1 + exp(-z))`` three ufuncs and costs one sign in the cell's update.
    """
    n = w.w_hh.shape[0] // 4
    negated = _input_part(x, w, True)
    xp.negative(negated, out=negated)
    w_hh, dot, tanh, exp, multiply = w.w_hh.T, xp.dot, xp.tanh, xp.exp, xp.multiply
    w_hr = None if w.w_hr is None else w.w_hr.T
    gates, product, scratch = (xp.empty((c.shape[0], k * n), x.dtype) for k in (4, 4, 1))
    one = xp.ones((), x.dtype)
    last = -1
    for start, count in spans:
        if count != last:
            last = count
            hb, cb, gb, pb, tb = h[:count], c[:count], gates[:count], product[:count], scratch[:count]
            i, f, g, o = gb[:, :n], gb[:, n : 2 * n], gb[:, 2 * n : 3 * n], gb[:, 3 * n :]
        stop = start + count
        dot(hb, w_hh, pb)
        xp.subtract(negated[start:stop], pb, out=gb)
        tanh(g, out=tb)
        exp(gb, out=gb)
        xp.add(gb, one, out=gb)
        xp.reciprocal(gb, out=gb)
        multiply(cb, f, out=cb)
        multiply(tb, i, out=tb)
        xp.subtract(cb, tb, out=cb)
        tanh(cb, out=tb)
        if w_hr is None:
            multiply(tb, o, out=hb)
        else:
            multiply(tb, o, out=tb)
            dot(tb, w_hr, hb)
        y[start:stop] = hb


def _gru_steps(xp: Any, x: Array, w: Weights, spans: Spans, h: Array, c: Array, y: Array) -> None:
    """Run a GRU over the rows ``x``: reset, update and new gates in this order."""
    n = w.w_hh.shape[0] // 3
    inputs = _input_part(x, w, False)
    negated, new_part = inputs[:, : 2 * n], inputs[:, 2 * n :]
    xp.negative(negated, out=negated)
    w_hh, bias = w.w_hh.T, w.b_hh
    product, gates = (xp.empty((h.shape[0], k * n), x.dtype) for k in (3, 2))
    one = xp.ones((), x.dtype)
    last = -1
    for start, count in spans:
        if count != last:
            last = count
            hb, pb, gb = h[:count], product[:count], gates[:count]
            hidden, new, reset, update = pb[:, : 2 * n], pb[:, 2 * n :], gb[:, :n], gb[:, n:]
        stop = start + count
        xp.dot(hb, w_hh, pb)
        if bias is not None:
            xp.add(pb, bias, out=pb)
        xp.subtract(negated[start:stop], hidden, out=gb)
        xp.exp(gb, out=gb)
        xp.add(gb, one, out=gb)
        xp.reciprocal(gb, out=gb)
        xp.multiply(new, reset, out=new)
        xp.add(new, new_part[start:stop], out=new)
        xp.tanh(new, out=new)
        # (1 - z) * n + z * h, with one product less
        xp.subtract(hb, new, out=hb)
        xp.multiply(hb, update, out=hb)
        xp.add(hb, new, out=hb)
        y[start:stop] = hb


def _rnn_steps(activation: str) -> Callable[..., None]:
    def steps(xp: Any, x: Array, w: Weights, spans: Spans, h: Array, c: Array, y: Array) -> None:
        """Run a plain RNN over the rows ``x``."""
        inputs, w_hh = _input_part(x, w, True), w.w_hh.T
        product = xp.empty(h.shape, x.dtype)
        for start, count in spans:
            hb, pb, stop = h[:count], product[:count], start + count
            xp.dot(hb, w_hh, pb)
            xp.add(pb, inputs[start:stop], out=pb)
            if activation == "tanh":
                xp.tanh(pb, out=hb)
            else:
                xp.maximum(pb, 0, out=hb)
            y[start:stop] = hb

    return steps


# ------------------------------------------------------------------------------------------------- layers


def _group_params(
    op: str, params: Sequence[Array], has_biases: bool, projected: bool, layers: int, directions: int, gates: int
) -> list[Weights]:
    each = 2 + 2 * has_biases + projected
    if layers < 1 or len(params) != each * layers * directions:
        raise OpError(
            f"{op}: {layers} layers of {directions} directions need {each * layers * directions} parameters, "
            f"got {len(params)}"
        )
    groups = []
    for k in range(0, len(params), each):
        group = params[k : k + each]
        w_ih, w_hh = group[0], group[1]
        if w_ih.ndim != 2 or w_hh.ndim != 2 or w_ih.shape[0] != w_hh.shape[0] or w_ih.shape[0] % gates:
            raise ShapeError(f"{op}: weights of shapes {w_ih.shape} and {w_hh.shape} do not hold {gates} gates each")
        b_ih, b_hh = (group[2], group[3]) if has_biases else (None, None)
        groups.append(Weights(w_ih, w_hh, b_ih, b_hh, group[-1] if projected else None))
    return groups


def run_layers(
    xp: Any,
    op: str,
    steps: Callable[..., None],
    x: Array,
    spans: Spans,
    states: Sequence[Array],
    weights: Sequence[Weights],
    directions: int,
    dropout: float = 0.0,
) -> tuple[Array, list[Array]]:
    """Hidden states of the last layer for all rows, and the final states ``[layers * directions, B, H]``.

    What goes from one layer to the next is dropped with probability ``dropout``.
    """
    for s in states:
        if s.ndim != 3 or s.shape[0] != len(weights):
            raise ShapeError(f"{op}: a state has shape {s.shape}, expected [{len(weights)}, batch, size]")
        if s.dtype != x.dtype:
            raise DTypeError(f"{op}: input is {x.dtype}, a state {s.dtype}; cast them to one dtype")
    if spans and max(count for _, count in spans) > states[0].shape[1]:
        raise ShapeError(f"{op}: the states hold a batch of {states[0].shape[1]}, the input is larger")
    final = [s.copy() for s in states]
    h, c = final[0], final[-1]
    size = h.shape[2]
    backwards = spans[::-1]
    for k in range(0, len(weights), directions):
        y = xp.empty((x.shape[0], directions * size), x.dtype)
        for d in range(directions):
            w = weights[k + d]
            if w.w_ih.dtype != x.dtype:
                raise DTypeError(f"{op}: input is {x.dtype}, the weights {w.w_ih.dtype}; cast them to one dtype")
            if x.shape[1] != w.w_ih.shape[1]:
                raise ShapeError(
                    f"{op}: the input has {x.shape[1]} features, layer {k // directions} takes {w.w_ih.shape[1]}"
                )
            if size != w.w_hh.shape[1]:
                raise ShapeError(
                    f"{op}: the hidden state has {size} features, layer {k // directions} has {w.w_hh.shape[1]}"
                )
            steps(xp, x, w, backwards if d else spans, h[k + d], c[k + d], y[:, d * size : (d + 1) * size])
        x = y if k + directions == len(weights) else dropped(xp, y, dropout, op)
    return x, final


def check_not_training(op: str, dropout: float, train: bool, layers: int) -> None:
    """Refuse dropout between layers in training mode, for layers of integer weights. Raises OpError."""
    if train and dropout and layers > 1:
        raise OpError(
            f"{op}: dropout={dropout} with train=True is a training feature; call eval() before saving the model"
        )


def rows_of(op: str, x: Array, batch_first: bool) -> tuple[Array, Spans, int, int]:
    """All time steps of a padded batch as rows, their spans, the number of steps and the batch size."""
    if x.ndim != 3:
        raise ShapeError(f"{op}: input must have 3 dimensions, its shape is {x.shape}")
    if batch_first:
        x = x.transpose(1, 0, 2)
    t, b, features = x.shape
    if not t:
        raise ShapeError(f"{op}: expected sequence length to be larger than 0 in RNN")
    return x.reshape(t * b, features), [(i * b, b) for i in range(t)], t, b


def packed_spans(op: str, data: Array, batch_sizes: Array) -> Spans:
    """Spans of a packed sequence. Raises ShapeError when the sizes do not add up to its rows."""
    spans, start, before = [], 0, None
    for count in batch_sizes.tolist():
        if count <= 0 or (before is not None and count > before):
            raise ShapeError(f"{op}: batch_sizes must be positive and never grow, found {count} after {before}")
        spans.append((start, count))
        start += count
        before = count
    if start != data.shape[0]:
        raise ShapeError(f"{op}: batch_sizes add up to {start} rows, data has {data.shape[0]}")
    return spans


def unrow(y: Array, t: int, b: int, batch_first: bool) -> Array:
    """The rows of ``rows_of`` back as ``[T, B, H]``, or as its transpose ``[B, T, H]``."""
    y = y.reshape(t, b, y.shape[1])
    return y.transpose(1, 0, 2) if batch_first else y


def _lstm_weights(
    op: str, hx: Sequence[Array], params: Sequence[Array], has_biases: bool, layers: int, directions: int
) -> list[Weights]:
    if len(hx) != 2 or hx[0].ndim != 3 or hx[1].ndim != 3:
        raise OpError(f"{op}: hx must hold the hidden and the cell state, each of 3 dimensions")
    projected = hx[0].shape[2] != hx[1].shape[2]
    return _group_params(op, params, has_biases, projected, layers, directions, 4)


@library(
    "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
    "bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
    random=True,
    active_if=("train", "dropout"),
    type_rule=lstm_type,
)
def lstm_input(
    xp: Any,
    x: Array,
    hx: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, Array, Array]:
    """Hidden states of the last layer ``[T, B, D * H]``, final hidden and final cell states ``[layers * D, B, H]``."""
    op = "aten::lstm.input"
    weights = _lstm_weights(op, hx, params, has_biases, num_layers, 1 + bidirectional)
    rows, spans, t, b = rows_of(op, x, batch_first)
    y, (h, c) = run_layers(xp, op, _lstm_steps, rows, spans, hx, weights, 1 + bidirectional, dropout * train)
    return unrow(y, t, b, batch_first), h, c


@library(
    "aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
    "float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)",
    random=True,
    active_if=("train", "dropout"),
    type_rule=lstm_type,
)
def lstm_data(
    xp: Any,
    data: Array,
    batch_sizes: Array,
    hx: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Array, Array, Array]:
    """The LSTM over a packed sequence: packed hidden states, final hidden and final cell states."""
    op = "aten::lstm.data"
    weights = _lstm_weights(op, hx, params, has_biases, num_layers, 1 + bidirectional)
    spans = packed_spans(op, data, batch_sizes)
    y, (h, c) = run_layers(xp, op, _lstm_steps, data, spans, hx, weights, 1 + bidirectional, dropout * train)
    return y, h, c


def _declare_layers(name: str, steps: Callable[..., None], gates: int) -> None:
    @library(
        f"aten::{name}.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
        "bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
        random=True,
        active_if=("train", "dropout"),
        type_rule=rnn_type,
    )
    def over_batch(
        xp: Any,
        x: Array,
        hx: Array,
        params: Sequence[Array],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Array, Array]:
        """Hidden states of the last layer ``[T, B, D * H]`` and final hidden states ``[layers * D, B, H]``."""
        op = f"aten::{name}.input"
        weights = _group_params(op, params, has_biases, False, num_layers, 1 + bidirectional, gates)
        rows, spans, t, b = rows_of(op, x, batch_first)
        y, (h,) = run_layers(xp, op, steps, rows, spans, (hx,), weights, 1 + bidirectional, dropout * train)
        return unrow(y, t, b, batch_first), h

    @library(
        f"aten::{name}.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, "
        "int num_layers, "
        "float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        random=True,
        active_if=("train", "dropout"),
        type_rule=rnn_type,
    )
    def over_packed(
        xp: Any,
        data: Array,
        batch_sizes: Array,
        hx: Array,
        params: Sequence[Array],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Array, Array]:
        """The layers over a packed sequence: packed hidden states and final hidden states."""
        op = f"aten::{name}.data"
        weights = _group_params(op, params, has_biases, False, num_layers, 1 + bidirectional, gates)
        spans = packed_spans(op, data, batch_sizes)
        y, (h,) = run_layers(xp, op, steps, data, spans, (hx,), weights, 1 + bidirectional, dropout * train)
        return y, h


_declare_layers("gru", _gru_steps, 3)
_declare_layers("rnn_tanh", _rnn_steps("tanh"), 1)
_declare_layers("rnn_relu", _rnn_steps("relu"), 1)


# ------------------------------------------------------------------------------------------------- cells


def sigmoid_in_place(xp: Any, x: Array) -> None:
    """Replace ``x`` by ``1 / (1 + exp(-x))``."""
    xp.negative(x, out=x)
    xp.exp(x, out=x)
    x += 1
    xp.reciprocal(x, out=x)


def _cell_gates(op: str, x: Array, w: Array, b: Array | None, size: str) -> Array:
    if x.dtype is not w.dtype and x.dtype != w.dtype:
        raise DTypeError(f"{op}: {size} is {x.dtype}, its weight {w.dtype}; cast them to one dtype")
    try:
        gates: Array = x.dot(w.T)
    except ValueError:
        raise ShapeError(f"{op}: {size} of shape {x.shape} does not fit its weight of shape {w.shape}") from None
    if b is not None:
        gates += b
    return gates


def lstm_pointwise(xp: Any, gates: Array, c: Array) -> tuple[Array, Array]:
    """The new hidden and cell states from summed gates ``[B, 4 * H]`` (overwritten) and the cell state."""
    n = c.shape[-1]
    new = xp.tanh(gates[..., 2 * n : 3 * n])
    sigmoid_in_place(xp, gates)
    c = c * gates[..., n : 2 * n]
    new *= gates[..., :n]
    c += new
    h = xp.tanh(c)
    h *= gates[..., 3 * n :]
    return h, c


def gru_pointwise(xp: Any, inputs: Array, hidden: Array, h: Array) -> Array:
    """The new hidden state from the input's and the hidden state's gates ``[B, 3 * H]`` (both overwritten)."""
    n = h.shape[-1]
    gates = inputs[..., : 2 * n] + hidden[..., : 2 * n]
    sigmoid_in_place(xp, gates)
    new = hidden[..., 2 * n :]
    new *= gates[..., :n]
    new += inputs[..., 2 * n :]
    xp.tanh(new, out=new)
    y = h - new
    y *= gates[..., n:]
    y += new
    return y


@library(
    "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
    " -> (Tensor, Tensor)",
    type_rule=lstm_cell_type,
)
def lstm_cell(
    xp: Any, x: Array, hx: Sequence[Array], w_ih: Array, w_hh: Array, b_ih: Array | None, b_hh: Array | None
) -> tuple[Array, Array]:
    """The next hidden and cell states of one LSTM step."""
    if len(hx) != 2:
        raise OpError(f"aten::lstm_cell: hx must hold the hidden and the cell state, got {len(hx)} tensors")
    h, c = hx
    gates = _cell_gates("aten::lstm_cell", x, w_ih, b_ih, "input")
    gates += _cell_gates("aten::lstm_cell", h, w_hh, b_hh, "hx")
    return lstm_pointwise(xp, gates, c)


@library(
    "aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
    type_rule=cell_type,
)
def gru_cell(xp: Any, x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array | None, b_hh: Array | None) -> Array:
    """The next hidden state of one GRU step."""
    inputs = _cell_gates("aten::gru_cell", x, w_ih, b_ih, "input")
    return gru_pointwise(xp, inputs, _cell_gates("aten::gru_cell", h, w_hh, b_hh, "hx"), h)


@library(
    "aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, "
    "Tensor? b_hh=None) -> Tensor",
    type_rule=cell_type,
)
def rnn_tanh_cell(
    xp: Any, x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array | None, b_hh: Array | None
) -> Array:
    """The next hidden state of one plain step with tanh."""
    y = _cell_gates("aten::rnn_tanh_cell", x, w_ih, b_ih, "input")
    y += _cell_gates("aten::rnn_tanh_cell", h, w_hh, b_hh, "hx")
    return xp.tanh(y, out=y)


@library(
    "aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, "
    "Tensor? b_hh=None) -> Tensor",
    type_rule=cell_type,
)
def rnn_relu_cell(
    xp: Any, x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array | None, b_hh: Array | None
) -> Array:
    """The next hidden state of one plain step with relu."""
    y = _cell_gates("aten::rnn_relu_cell", x, w_ih, b_ih, "input")
    y += _cell_gates("aten::rnn_relu_cell", h, w_hh, b_hh, "hx")
    return xp.maximum(y, 0, out=y)


# ------------------------------------------------------------------------------------------------- packed sequences


@library(
    "aten::_pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor, Tensor)",
    half="native",
    type_rule=packed_sequence_type,
)
def pack_padded_sequence(xp: Any, x: Array, lengths: Array, batch_first: bool) -> tuple[Array, Array]:
    """The rows of a padded batch that lie within their sequence, time step by time step, and how many each step has.

    ``lengths`` must be positive and never grow. Raises ShapeError.
    """
    op = "aten::_pack_padded_sequence"
    if x.ndim < 2:
        raise ShapeError(f"{op}: input needs at least 2 dimensions, its shape is {x.shape}")
    if batch_first:
        x = x.swapaxes(0, 1)
    if lengths.shape != (x.shape[1],):
        raise ShapeError(f"{op}: expected {x.shape[1]} lengths for the batch, found shape {lengths.shape}")
    values = lengths.tolist()
    if not values or values[-1] <= 0:
        raise ShapeError(f"{op}: every length must be larger than 0, found {values[-1:]}")
    if any(a < b for a, b in pairwise(values)):
        raise ShapeError(f"{op}: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True")
    if values[0] > x.shape[0]:
        raise ShapeError(f"{op}: a length of {values[0]} exceeds the {x.shape[0]} time steps of the input")
    present = xp.arange(values[0])[:, None] < lengths
    return x[: values[0]][present], present.sum(axis=1).astype(INT64)


@library(
    "aten::_pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, "
    "int total_length)"
    " -> (Tensor, Tensor)",
    half="native",
    type_rule=padded_sequence_type,
)
def pad_packed_sequence(
    xp: Any, data: Array, batch_sizes: Array, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Array, Array]:
    """The padded batch ``[T, B, ...]`` (or ``[B, T, ...]``) of a packed sequence, and the lengths of its sequences."""
    op = "aten::_pad_packed_sequence"
    steps = batch_sizes.shape[0] if batch_sizes.ndim == 1 else 0
    if not steps:
        raise ShapeError(f"{op}: batch_sizes must be a vector that is not empty, its shape is {batch_sizes.shape}")
    packed_spans(op, data, batch_sizes)
    if total_length > 0:
        if total_length < steps:
            raise ShapeError(f"{op}: total_length {total_length} is shorter than the longest sequence, {steps}")
        steps = total_length
    batch = int(batch_sizes[0])
    y = xp.full((steps, batch, *data.shape[1:]), padding_value, data.dtype)
    y[: batch_sizes.shape[0]][xp.arange(batch) < batch_sizes[:, None]] = data
    lengths = (batch_sizes[:, None] > xp.arange(batch)).sum(axis=0).astype(INT64)
    return (y.swapaxes(0, 1) if batch_first else y), lengths
