"""Recurrent layers: RNN, LSTM and GRU, of several layers, in one direction or both."""

from __future__ import annotations

from typing import Any

from gpujit import ops
from gpujit.nn.rnn_base import RNNBase
from gpujit.nn.typing import Tensor
from gpujit.nn.utils.rnn import PackedSequence
from gpujit.support.errors import LayerError


def _reordered(hx: Tensor, order: Tensor | None) -> Tensor:
    """A hidden state with its sequences in another order."""
    return hx if order is None else ops.index_select(hx, 1, order)


class _OneState(RNNBase):
    """RNN and GRU, which have one hidden state."""

    def _run(self, x: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _run_packed(self, input: PackedSequence, hx: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _forward_packed(self, input: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        batch = int(input.batch_sizes[0])
        if hx is None:
            state = self._start(input.data, batch, self.hidden_size)
        else:
            self._check_state(hx, batch, self.hidden_size, "hx")
            state = _reordered(hx, input.sorted_indices)
        data, state = self._run_packed(input, state)
        return input._replace(data=data), _reordered(state, input.unsorted_indices)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # A compiler of this source knows that a Tensor is no PackedSequence, and leaves the branch out.
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_input(input)
        batched = input.ndim == 3
        batch_dim = 0 if self.batch_first else 1
        x = input if batched else ops.unsqueeze(input, batch_dim)
        batch = x.shape[batch_dim]
        if hx is None:
            state = self._start(x, batch, self.hidden_size)
        elif batched:
            state = hx
        else:
            state = ops.unsqueeze(hx, 1)
        self._check_state(state, batch, self.hidden_size, "hx")
        y, last = self._run(x, state)
        if batched:
            return y, last
        return ops.squeeze(y, batch_dim), ops.squeeze(last, 1)


class RNN(_OneState):
    """``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`` (or relu), step by step.

    ``[length, batch, input_size]`` (or batch first, or without batch) to outputs ``[length, batch, hidden_size]`` and
    the last hidden state ``[layers * directions, batch, hidden_size]``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise LayerError(f"RNN: nonlinearity must be tanh or relu, found {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity

    def _run(self, x: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        if self.mode == "RNN_TANH":
            return ops.rnn_tanh(
                x,
                hx,
                self._flat_weights,
                self.bias,
                self.num_layers,
                self.dropout,
                self.training,
                self.bidirectional,
                self.batch_first,
            )
        return ops.rnn_relu(
            x,
            hx,
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
        )

    def _run_packed(self, input: PackedSequence, hx: Tensor) -> tuple[Tensor, Tensor]:
        run = ops.rnn_tanh if self.mode == "RNN_TANH" else ops.rnn_relu
        return run(
            input.data,
            input.batch_sizes,
            hx,
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )


class GRU(_OneState):
    """Gated recurrent units, step by step; shapes as of ``RNN``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _run(self, x: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        return ops.gru(
            x,
            hx,
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
        )

    def _run_packed(self, input: PackedSequence, hx: Tensor) -> tuple[Tensor, Tensor]:
        return ops.gru(
            input.data,
            input.batch_sizes,
            hx,
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )


class LSTM(RNNBase):
    """Long short-term memory, step by step.

    ``[length, batch, input_size]`` (or batch first, or without batch) to outputs ``[length, batch, output]`` and the
    last states ``h [layers * directions, batch, output]`` and ``c [layers * directions, batch, hidden_size]``, where
    output is ``proj_size`` if given, else ``hidden_size``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    def _forward_packed(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
        batch = int(input.batch_sizes[0])
        size = self.proj_size if self.proj_size > 0 else self.hidden_size
        if hx is None:
            h, c = self._start(input.data, batch, size), self._start(input.data, batch, self.hidden_size)
        else:
            self._check_state(hx[0], batch, size, "hx[0]")
            self._check_state(hx[1], batch, self.hidden_size, "hx[1]")
            h, c = _reordered(hx[0], input.sorted_indices), _reordered(hx[1], input.sorted_indices)
        data, h, c = ops.lstm(
            input.data,
            input.batch_sizes,
            [h, c],
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )
        last = (_reordered(h, input.unsorted_indices), _reordered(c, input.unsorted_indices))
        return input._replace(data=data), last

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # A compiler of this source knows that a Tensor is no PackedSequence, and leaves the branch out.
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        self._check_input(input)
        batched = input.ndim == 3
        batch_dim = 0 if self.batch_first else 1
        x = input if batched else ops.unsqueeze(input, batch_dim)
        batch = x.shape[batch_dim]
        size = self.proj_size if self.proj_size > 0 else self.hidden_size
        if hx is None:
            h, c = self._start(x, batch, size), self._start(x, batch, self.hidden_size)
        elif batched:
            h, c = hx[0], hx[1]
        else:
            h, c = ops.unsqueeze(hx[0], 1), ops.unsqueeze(hx[1], 1)
        self._check_state(h, batch, size, "hx[0]")
        self._check_state(c, batch, self.hidden_size, "hx[1]")
        y, h, c = ops.lstm(
            x,
            [h, c],
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
        )
        if batched:
            return y, (h, c)
        return ops.squeeze(y, batch_dim), (ops.squeeze(h, 1), ops.squeeze(c, 1))
