"""Softmax and its kin as layers."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn.module import Module
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class _Softmax(Module):
    __constants__ = ("dim",)
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Softmax):
    """exp(x) over its sum along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_Softmax):
    """Softmax of -x."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_Softmax):
    """The logarithm of softmax."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 3 and input.ndim != 4:
            raise LayerError(f"Softmax2d: an input of 3 or 4 dimensions is needed, found {input.ndim}")
        return ops.softmax(input, -3)
