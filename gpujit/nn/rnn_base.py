"""What recurrent layers have in common: settings, weights, checks."""

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
            raise LayerError(f"an input of 2 or 3 dimensions is needed, found {input.ndim}")
        if input.shape[input.ndim - 1] != self.input_size:
            raise LayerError(f"an input of {self.input_size} features is needed, found {input.shape[input.ndim - 1]}")

    def _check_state(self, hx: Tensor, batch: int, size: int, name: str) -> None:
        wanted = [self.num_layers * (2 if self.bidirectional else 1), batch, size]
        if ops.size(hx) != wanted:
            raise LayerError(f"{name} of size {wanted} is needed, found {ops.size(hx)}")

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
