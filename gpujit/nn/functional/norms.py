"""Normalisations."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def check_batch(size: list[int]) -> None:
    """Raise LayerError when each channel has a single value, whose variance means nothing."""
    values = size[0]
    for i in range(len(size) - 2):
        values *= size[i + 2]
    if values == 1:
        raise LayerError(f"training needs more than one value per channel, found an input of size {size}")


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """x less the mean of its channel, over its deviation: the batch's in training, the running ones otherwise.

    In training the running mean and variance, if given, are moved towards the batch's, in place.
    """
    if training:
        check_batch(ops.size(input))
    return ops.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch norm of each sample by itself."""
    if use_input_stats:
        size = ops.size(input)
        values = 1
        for i in range(len(size) - 2):
            values *= size[i + 2]
        if values == 1:
            raise LayerError(f"training needs more than one value per channel, found an input of size {size}")
    return ops.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """x less its mean, over its deviation, along the last dimensions, whose sizes are ``normalized_shape``."""
    return ops.layer_norm(input, normalized_shape, weight, bias, eps, True)


def rms_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x over the root of its mean square along the last dimensions; ``eps`` None is that of the dtype."""
    return ops.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm over groups of channels."""
    if input.ndim < 2:
        raise LayerError(f"group_norm: at least 2 dimensions are needed, found {input.ndim}")
    size = ops.size(input)
    # The language has no starred elements in lists.
    check_batch([size[0] * size[1] // num_groups, num_groups] + size[2:])  # noqa: RUF005
    return ops.group_norm(input, num_groups, weight, bias, eps, True)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x over ``(k + alpha * mean of squares of size neighbouring channels) ** beta``."""
    if input.ndim < 3:
        raise LayerError(f"local_response_norm: at least 3 dimensions are needed, found {input.ndim}")
    if ops.numel(input) == 0:
        return input
    shape = ops.size(input)
    # Channels become rows of an image, so that pooling runs over them.
    squares = ops.reshape(ops.mul(input, input), [shape[0], 1, shape[1], shape[2], -1])
    padded = ops.pad(squares, [0, 0, 0, 0, size // 2, (size - 1) // 2])
    means = ops.reshape(ops.avg_pool3d(padded, [size, 1, 1], 1), shape)
    return ops.div(input, ops.pow(ops.add(ops.mul(means, alpha), k), beta))


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """x over its ``p``-norm along ``dim``, which is taken to be at least ``eps``; written into ``out`` if given."""
    norm = ops.clamp_min(ops.norm(input, p, [dim], True), eps)
    if out is None:
        return ops.div(input, ops.expand_as(norm, input))
    return ops.div(input, ops.expand_as(norm, input), out=out)
