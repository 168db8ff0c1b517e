"""Recurrent layers and cells whose weights are quantised or of half precision; activations stay float32.

The input of a layer is quantised once, by its range over all time steps; the hidden state at every step by its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir.values import Array, QTensor
from gpujit.ops.families.layers.rnn import (
    Spans,
    check_not_training,
    gru_pointwise,
    lstm_pointwise,
    packed_spans,
    rows_of,
    unrow,
)
from gpujit.ops.families.quantized.layers import LinearPackedParams, dynamic_linear, half_linear
from gpujit.ops.registry import library
from gpujit.ops.rules.layers import cell_type, lstm_cell_type, lstm_type, rnn_type
from gpujit.support.errors import OpError, ShapeError

_CELL = "__torch__.torch.classes.rnn.CellParamsBase"
_LINEAR = "__torch__.torch.classes.quantized.LinearPackedParamsBase"


@dataclass(eq=False)
class CellParams:
    """Packed weights of one direction of one layer, with their biases inside; ``kind`` as the archive names it."""

    kind: str
    w_ih: LinearPackedParams
    w_hh: LinearPackedParams
    biases: list[Array]
    reduce_range: bool = False

    @property
    def state(self) -> tuple[Any, ...]:
        """What an archive stores."""
        numbers = [int(self.reduce_range)] if self.kind == "quantized_dynamic" else []
        return self.kind, list(self.biases), [], numbers, [self.w_ih, self.w_hh]

    def linear(self, xp: Any, op: str, x: Array, p: LinearPackedParams) -> Array:
        """One of the two linear layers on float32 rows."""
        if type(p.weight) is QTensor:
            return dynamic_linear(xp, op, x, p, self.reduce_range)
        return half_linear(xp, op, x, p)


def _run_layer(xp: Any, op: str, x: Array, spans: Spans, cell: CellParams, h: Array, c: Array | None, y: Array) -> None:
    """One direction over all rows; the states are updated in place and hidden states written to ``y``."""
    inputs = cell.linear(xp, op, x, cell.w_ih)
    for start, count in spans:
        hb = h[:count]
        gates = cell.linear(xp, op, hb, cell.w_hh)
        part = inputs[start : start + count]
        if c is None:
            hb[...] = gru_pointwise(xp, part, gates, hb)
        else:
            gates += part
            hb[...], c[:count] = lstm_pointwise(xp, gates, c[:count])
        y[start : start + count] = hb


def _run(
    xp: Any, op: str, x: Array, spans: Spans, hx: Sequence[Array], params: Sequence[Any], layers: int, directions: int
) -> tuple[Array, list[Array]]:
    if len(params) != layers * directions or not all(isinstance(p, CellParams) for p in params):
        raise OpError(f"{op}: {layers} layers of {directions} directions need {layers * directions} packed cells")
    for s in hx:
        if s.ndim != 3 or s.shape[0] != layers * directions or s.shape[1] < max(n for _, n in spans):
            raise ShapeError(f"{op}: a state has shape {s.shape}, expected [{layers * directions}, batch, size]")
    final = [s.copy() for s in hx]
    h, c = final[0], final[1] if len(final) > 1 else None
    size = h.shape[2]
    for k in range(0, len(params), directions):
        y = xp.empty((x.shape[0], directions * size), x.dtype)
        for d in range(directions):
            state = None if c is None else c[k + d]
            order = spans[::-1] if d else spans
            _run_layer(xp, op, x, order, params[k + d], h[k + d], state, y[:, d * size : (d + 1) * size])
        x = y
    return x, final


@library(
    f"aten::quantized_lstm.input(Tensor input, Tensor[] hx, {_CELL}[] params, bool has_biases, int num_layers, "
    "float dropout, bool train, bool bidirectional, bool batch_first, *, ScalarType? dtype=None, "
    "bool use_dynamic=False)"
    " -> (Tensor, Tensor, Tensor)",
    type_rule=lstm_type,
)
def quantized_lstm_input(
    xp: Any,
    x: Array,
    hx: Sequence[Array],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    dtype: int | None,
    use_dynamic: bool,
) -> tuple[Array, Array, Array]:
    """Hidden states ``[T, B, D * H]``, final hidden and cell states of an LSTM with packed weights."""
    op = "aten::quantized_lstm.input"
    check_not_training(op, dropout, train, num_layers)
    rows, spans, t, b = rows_of(op, x, batch_first)
    y, (h, c) = _run(xp, op, rows, spans, hx, params, num_layers, 1 + bidirectional)
    return unrow(y, t, b, batch_first), h, c


@library(
    f"aten::quantized_lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, {_CELL}[] params, bool has_biases, "
    "int num_layers, float dropout, bool train, bool bidirectional, *, ScalarType? dtype=None, bool use_dynamic=False)"
    " -> (Tensor, Tensor, Tensor)",
    type_rule=lstm_type,
)
def quantized_lstm_data(
    xp: Any,
    data: Array,
    batch_sizes: Array,
    hx: Sequence[Array],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    dtype: int | None,
    use_dynamic: bool,
) -> tuple[Array, Array, Array]:
    """The same over a packed sequence."""
    op = "aten::quantized_lstm.data"
    check_not_training(op, dropout, train, num_layers)
    y, (h, c) = _run(xp, op, data, packed_spans(op, data, batch_sizes), hx, params, num_layers, 1 + bidirectional)
    return y, h, c


@library(
    f"aten::quantized_gru.input(Tensor input, Tensor hx, {_CELL}[] params, bool has_biases, int num_layers, "
    "float dropout, "
    "bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
    type_rule=rnn_type,
)
def quantized_gru_input(
    xp: Any,
    x: Array,
    hx: Array,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, Array]:
    """Hidden states ``[T, B, D * H]`` and final hidden states of a GRU with packed weights."""
    op = "aten::quantized_gru.input"
    check_not_training(op, dropout, train, num_layers)
    rows, spans, t, b = rows_of(op, x, batch_first)
    y, (h,) = _run(xp, op, rows, spans, (hx,), params, num_layers, 1 + bidirectional)
    return unrow(y, t, b, batch_first), h


@library(
    f"aten::quantized_gru.data(Tensor data, Tensor batch_sizes, Tensor hx, {_CELL}[] params, bool has_biases, "
    "int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
    type_rule=rnn_type,
)
def quantized_gru_data(
    xp: Any,
    data: Array,
    batch_sizes: Array,
    hx: Array,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Array, Array]:
    """The same over a packed sequence."""
    op = "aten::quantized_gru.data"
    check_not_training(op, dropout, train, num_layers)
    y, (h,) = _run(xp, op, data, packed_spans(op, data, batch_sizes), (hx,), params, num_layers, 1 + bidirectional)
    return y, h


# ------------------------------------------------------------------------------------------------- cells


@library(
    f"quantized::quantized_lstm_cell_dynamic(Tensor input, Tensor[] hx, {_LINEAR} w_ih, {_LINEAR} w_hh, "
    "Tensor bias_ih, "
    "Tensor bias_hh) -> (Tensor, Tensor)",
    type_rule=lstm_cell_type,
)
def quantized_lstm_cell_dynamic(
    xp: Any, x: Array, hx: Sequence[Array], w_ih: Any, w_hh: Any, b_ih: Array, b_hh: Array
) -> tuple[Array, Array]:
    """The next hidden and cell states; the biases are the packed ones."""
    op = "quantized::quantized_lstm_cell_dynamic"
    gates = dynamic_linear(xp, op, hx[0], w_hh, False)
    gates += dynamic_linear(xp, op, x, w_ih, False)
    return lstm_pointwise(xp, gates, hx[1])


@library(
    f"quantized::quantized_gru_cell_dynamic(Tensor input, Tensor hx, {_LINEAR} w_ih, {_LINEAR} w_hh, Tensor b_ih, "
    "Tensor b_hh) -> Tensor",
    type_rule=cell_type,
)
def quantized_gru_cell_dynamic(xp: Any, x: Array, h: Array, w_ih: Any, w_hh: Any, b_ih: Array, b_hh: Array) -> Array:
    """The next hidden state; the biases are the packed ones."""
    op = "quantized::quantized_gru_cell_dynamic"
    return gru_pointwise(xp, dynamic_linear(xp, op, x, w_ih, False), dynamic_linear(xp, op, h, w_hh, False), h)


def _declare_plain_cell(kind: str, activate: Callable[[Any, Array], Array]) -> None:
    op = f"quantized::quantized_rnn_{kind}_cell_dynamic"

    @library(
        f"{op}(Tensor input, Tensor hx, {_LINEAR} w_ih, {_LINEAR} w_hh, Tensor b_ih, Tensor b_hh) -> Tensor",
        type_rule=cell_type,
    )
    def cell(xp: Any, x: Array, h: Array, w_ih: Any, w_hh: Any, b_ih: Array, b_hh: Array) -> Array:
        """The next hidden state; the biases are the packed ones."""
        y = dynamic_linear(xp, op, x, w_ih, False)
        y += dynamic_linear(xp, op, h, w_hh, False)
        return activate(xp, y)


_declare_plain_cell("relu", lambda xp, y: xp.maximum(y, 0, out=y))
_declare_plain_cell("tanh", lambda xp, y: xp.tanh(y, out=y))


# ------------------------------------------------------------------------------------------------- packing


@library(
    f"quantized::make_quantized_cell_params_dynamic({_LINEAR} w_ih, {_LINEAR} w_hh, Tensor bias_ih, Tensor bias_hh, "
    f"bool reduce_range=False) -> {_CELL}",
    half="native",
)
def make_quantized_cell_params_dynamic(
    xp: Any, w_ih: Any, w_hh: Any, b_ih: Array, b_hh: Array, reduce_range: bool
) -> CellParams:
    """Packed parameters of a cell whose weights are quantised."""
    return CellParams("quantized_dynamic", w_ih, w_hh, [b_ih, b_hh], reduce_range)


@library(f"quantized::make_quantized_cell_params_fp16({_LINEAR} w_ih, {_LINEAR} w_hh) -> {_CELL}", half="native")
def make_quantized_cell_params_fp16(xp: Any, w_ih: Any, w_hh: Any) -> CellParams:
    """Packed parameters of a cell whose weights have half precision."""
    return CellParams("quantized_fp16", w_ih, w_hh, [])
