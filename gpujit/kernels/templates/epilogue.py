"""What a template does to its sums before it stores them: scale, bias, residual, activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpujit.ir.dtypes import BFLOAT16, FLOAT16
from gpujit.kernels import math_quick
from gpujit.kernels.math import FUNCTIONS
from gpujit.kernels.vector import Emitter, Vector
from gpujit.support.errors import ArgumentError


class Epilogue(NamedTuple):
    """``activation(sum + bias + residual)``; with ``residual_last`` it is ``activation(sum + bias) + residual``.

    ``result`` is the element type that is stored; a half type rounds what is computed in float32.
    """

    bias: bool = False
    residual: bool = False
    activation: str | None = None
    residual_last: bool = False
    result: str = "float32"

    @property
    def dtypes(self) -> dict[str, type]:
        """The type of the array "out" when it is not float32."""
        return {"out": HALVES[self.result]} if self.result in HALVES else {}

    def check(self) -> None:
        """Raises ArgumentError for an activation, or a result, that there is no code for."""
        if self.result != "float32" and self.result not in HALVES:
            raise ArgumentError(f"results of {self.result}: there are float32, {', '.join(HALVES)}")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ArgumentError(f"activation {self.activation!r}: there are {', '.join(ACTIVATIONS)}")

    def apply(self, e: Emitter, x: Vector, bias: Vector | None, residual: Vector | None) -> Vector:
        """The finished values of a vector of sums."""
        if bias is not None:
            x = x + bias
        if residual is not None and not self.residual_last:
            x = x + residual
        if self.activation is not None:
            x = ACTIVATIONS[self.activation](e, x)
        if residual is not None and self.residual_last:
            x = x + residual
        return x


HALVES = {"float16": FLOAT16.type, "bfloat16": BFLOAT16.type}
ACTIVATIONS: dict[str, Callable[[Emitter, Vector], Vector]] = {
    "relu": lambda e, x: e.maximum(x, 0.0),
    "relu6": lambda e, x: e.clamp(x, 0.0, 6.0),
    "hardsigmoid": lambda e, x: e.clamp(x + 3.0, 0.0, 6.0) * (1 / 6),
    "hardswish": lambda e, x: x * e.clamp(x + 3.0, 0.0, 6.0) * (1 / 6),
    "gelu": lambda e, x: FUNCTIONS["gelu"](e, x),
    "gelu_tanh": math_quick.gelu_tanh,
    "silu": math_quick.silu,
    "sigmoid": math_quick.sigmoid,
    "tanh": lambda e, x: FUNCTIONS["tanh"](e, x),
}
