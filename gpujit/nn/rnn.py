"""Recurrent layers: RNN, LSTM and GRU, of several layers, in one direction or both."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from gpujit import ops
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import new
from gpujit.nn.typing import Tensor
from gpujit.nn.utils.rnn import PackedSequence
from gpujit.support.errors import LayerError

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What recurrent layers have: settings, and weights ``weight_ih_l0``, ``weight_hh_l0``, ``bias_ih_l0`` and so on.

    The number is the layer's; weights of the second direction end in ``_reverse``, and ``weight_hr`` projects the
    hidden state to ``proj_size``.
    """

    __constants__ = (
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "proj_size",
    )  # fmt: skip
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int
    # The weights in the operators' order: those of the first layer and direction, then of its second direction.
    _flat_weights: list[Tensor]

    def __init__(
        self,
        mode: str,
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
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_settings()
        weights: list[str] = []
        gates = _GATES[mode] * hidden_size
        output = proj_size or hidden_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                size = input_size if layer == 0 else output * (2 if bidirectional else 1)
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, size), "weight_hh": (gates, output)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(f"{name}_l{layer}{suffix}", new(shape, dtype, device))
                    weights.append(f"{name}_l{layer}{suffix}")
        self._flat_weights_names = weights
        self._gather()
        self.reset_parameters()

    def _check_settings(self) -> None:
        name = type(self).__name__
        if not isinstance(self.dropout, float) or not 0 <= self.dropout <= 1:
            raise LayerError(f"{name}: dropout must be a number from 0 to 1, found {self.dropout}")
        for what in ("hidden_size", "num_layers"):
            if not isinstance(getattr(self, what), int) or getattr(self, what) <= 0:
                raise LayerError(f"{name}: {what} must be a positive int, found {getattr(self, what)!r}")
        if self.mode not in _GATES:
            raise LayerError(f"{name}: mode must be one of {', '.join(_GATES)}, found {self.mode!r}")
        if self.proj_size < 0 or self.proj_size >= self.hidden_size:
            raise LayerError(f"{name}: proj_size must be below hidden_size and not negative, found {self.proj_size}")
        if self.proj_size > 0 and self.mode != "LSTM":
            raise LayerError(f"{name}: only LSTM has a proj_size")
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn(f"{name}: dropout={self.dropout} comes between layers, and there is one layer", stacklevel=3)

    def _gather(self) -> None:
        self._flat_weights = [self._parameters[name] for name in self._flat_weights_names]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("_flat_weights_names", ()):
            self._gather()

    def _replace_arrays(self, fn: Callable[[Tensor], Tensor]) -> None:
        super()._replace_arrays(fn)
        self._gather()

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction."""
        per = len(self._flat_weights) // (self.num_layers * (2 if self.bidirectional else 1))
        return [self._flat_weights[i : i + per] for i in range(0, len(self._flat_weights), per)]

    def flatten_parameters(self) -> None:
        """Nothing: it arranges weights for cuDNN, and there is none here."""

    def reset_parameters(self) -> None:
        """Draw new first values."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _start(self, x: Tensor, batch: int, size: int) -> Tensor:
        """A hidden state of zeros."""
        return ops.zeros([self.num_layers * (2 if self.bidirectional else 1), batch, size], dtype=x.dtype)

    def _check_input(self, input: Tensor) -> None:
        if input.ndim != 2 and input.ndim != 3:
            raise ValueError(f"an input of 2 or 3 dimensions is needed, found {input.ndim}")
        if input.shape[input.ndim - 1] != self.input_size:
            raise ValueError(f"an input of {self.input_size} features is needed, found {input.shape[input.ndim - 1]}")

    def _check_state(self, hx: Tensor, batch: int, size: int, name: str) -> None:
        wanted = [self.num_layers * (2 if self.bidirectional else 1), batch, size]
        if ops.size(hx) != wanted:
            raise ValueError(f"{name} of size {wanted} is needed, found {ops.size(hx)}")

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += f", bias={self.bias}"
        if self.batch_first:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional:
            text += f", bidirectional={self.bidirectional}"
        return text


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
