"""Distances between vectors."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.module import Module
from gpujit.nn.typing import Tensor


class PairwiseDistance(Module):
    """The ``p``-norm of the difference along the last dimension, to which ``eps`` is added."""

    __constants__ = ("norm", "eps", "keepdim")
    norm: float
    eps: float
    keepdim: bool

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle along ``dim``; norms are taken to be at least ``eps``."""

    __constants__ = ("dim", "eps")
    dim: int
    eps: float

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.cosine_similarity(x1, x2, self.dim, self.eps)
