"""Matrix products: Linear, Bilinear, and Identity."""

from __future__ import annotations

import math
from typing import Any

from gpujit import ops
from gpujit.nn import init
from gpujit.nn.module import Module
from gpujit.nn.parameter import Parameter, new
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class Identity(Module):
    """The input itself; constructor arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``x @ weight.T + bias`` along the last dimension; ``weight [out_features, in_features]``."""

    __constants__ = ("in_features", "out_features")
    in_features: int
    out_features: int
    weight: Tensor

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(new((out_features, in_features), dtype, device))
        self.register_parameter("bias", new((out_features,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return ops.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch gives the last layer of its multi-head attention."""


class Bilinear(Module):
    """``x1 @ weight[k] @ x2 + bias[k]`` for each output feature k; ``weight [out, in1, in2]``."""

    __constants__ = ("in1_features", "in2_features", "out_features")
    in1_features: int
    in2_features: int
    out_features: int
    weight: Tensor

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise LayerError(f"Bilinear: in1_features must be positive, found {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(new((out_features, in1_features, in2_features), dtype, device))
        self.register_parameter("bias", new((out_features,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return ops.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
