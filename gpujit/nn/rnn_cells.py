"""One step of a recurrent layer: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gpujit import ops
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import Parameter, new
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class RNNCellBase(Module):
    """What cells have: ``weight_ih [gates * hidden, input]``, ``weight_hh [gates * hidden, hidden]`` and two biases."""

    __constants__: ClassVar[Sequence[str]] = ("input_size", "hidden_size", "bias")
    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(new((rows, input_size), dtype, device))
        self.weight_hh = Parameter(new((rows, hidden_size), dtype, device))
        self.register_parameter("bias_ih", new((rows,), dtype, device) if bias else None)
        self.register_parameter("bias_hh", new((rows,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _check_ranks(self, input: Tensor, hx: Tensor | None) -> None:
        if input.ndim != 1 and input.ndim != 2:
            raise LayerError(f"an input of 1 or 2 dimensions is needed, found {input.ndim}")
        if hx is not None and hx.ndim != input.ndim:
            raise LayerError(f"a hidden state of {input.ndim} dimensions, as the input has, is needed, found {hx.ndim}")

    def _start(self, x: Tensor) -> Tensor:
        """A hidden state of zeros for ``x [batch, input]``."""
        return ops.zeros([x.shape[0], self.hidden_size], dtype=x.dtype)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """``tanh(W_ih x + b_ih + W_hh h + b_hh)`` (or relu) of ``[batch, input]`` or ``[input]``."""

    __constants__ = ("input_size", "hidden_size", "bias", "nonlinearity")
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise LayerError(f"RNNCell: nonlinearity must be tanh or relu, found {nonlinearity!r}")
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check_ranks(input, hx)
        batched = input.ndim == 2
        x = input if batched else ops.unsqueeze(input, 0)
        if hx is None:
            h = self._start(x)
        else:
            h = hx if batched else ops.unsqueeze(hx, 0)
        if self.nonlinearity == "tanh":
            h = ops.rnn_tanh_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        else:
            h = ops.rnn_relu_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h if batched else ops.squeeze(h, 0)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class LSTMCell(RNNCellBase):
    """One step of long short-term memory: the new hidden and cell state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        batched = input.ndim == 2
        if hx is None:
            self._check_ranks(input, None)
            x = input if batched else ops.unsqueeze(input, 0)
            h, c = self._start(x), self._start(x)
        else:
            self._check_ranks(input, hx[0])
            self._check_ranks(input, hx[1])
            x = input if batched else ops.unsqueeze(input, 0)
            h = hx[0] if batched else ops.unsqueeze(hx[0], 0)
            c = hx[1] if batched else ops.unsqueeze(hx[1], 0)
        h, c = ops.lstm_cell(x, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return h, c
        return ops.squeeze(h, 0), ops.squeeze(c, 0)


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit: the new hidden state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check_ranks(input, hx)
        batched = input.ndim == 2
        x = input if batched else ops.unsqueeze(input, 0)
        if hx is None:
            h = self._start(x)
        else:
            h = hx if batched else ops.unsqueeze(hx, 0)
        h = ops.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h if batched else ops.squeeze(h, 0)
