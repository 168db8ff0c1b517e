"""Dropout: elements or whole channels set to zero at random while training."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def check_probability(p: float, name: str) -> None:
    """Raise LayerError unless ``p`` is a probability."""
    if p < 0.0 or p > 1.0:
        raise LayerError(f"{name}: the probability must be from 0 to 1, found {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """x with each element zero with probability ``p``, the others divided by 1 - p; x itself unless training."""
    check_probability(p, "dropout")
    if inplace:
        return ops.dropout_(input, p, training)
    return ops.dropout(input, p, training)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of what SELU gives."""
    check_probability(p, "alpha_dropout")
    if inplace:
        return ops.alpha_dropout_(input, p, training)
    return ops.alpha_dropout(input, p, training)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels."""
    check_probability(p, "feature_alpha_dropout")
    if inplace:
        return ops.feature_alpha_dropout_(input, p, training)
    return ops.feature_alpha_dropout(input, p, training)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of ``[N, C, L]`` or ``[C, L]``."""
    return _channels(input, p, training, inplace, 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of ``[N, C, H, W]``; of three dimensions, the first is the batch."""
    check_probability(p, "dropout2d")
    if inplace:
        return ops.feature_dropout_(input, p, training)
    return ops.feature_dropout(input, p, training)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    return _channels(input, p, training, inplace, 3)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, spatial: int) -> Tensor:
    check_probability(p, "dropout")
    if input.ndim != spatial + 1 and input.ndim != spatial + 2:
        raise LayerError(f"dropout{spatial}d: {spatial + 1} or {spatial + 2} dimensions are needed, found {input.ndim}")
    batched = input.ndim == spatial + 2
    x = input if batched else ops.unsqueeze(input, 0)
    if inplace:
        y = ops.feature_dropout_(x, p, training)
    else:
        y = ops.feature_dropout(x, p, training)
    if batched:
        return y
    return ops.squeeze(y, 0)
