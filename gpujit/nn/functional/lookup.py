"""Rows of a table by index."""

from __future__ import annotations

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` that ``input`` names: ``[..., columns]``.

    With ``max_norm`` the rows that are longer are shortened to it, in place.
    """
    padding = -1
    if padding_idx is not None:
        rows = weight.shape[0]
        if padding_idx >= rows or padding_idx < -rows:
            raise LayerError(f"embedding: padding_idx {padding_idx} is outside a table of {rows} rows")
        padding = padding_idx if padding_idx >= 0 else padding_idx + rows
    if max_norm is not None:
        input = ops.contiguous(input)
        # PyTorch writes into no parameter that has gradients.
        ops.embedding_renorm_(ops.detach(weight), input, max_norm, norm_type)
    return ops.embedding(weight, input, padding, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or max of the rows that each bag names.

    Args:
        input: bags of equal length ``[bags, length]``, or all of them in a row, with ``offsets`` saying where each
            starts (and the last one ends, with ``include_last_offset``).
        per_sample_weights: of the shape of ``input``; each row is multiplied by its own. For mode sum only.
        padding_idx: an index that counts for nothing.
    Raises LayerError for shapes and settings that do not go together.
    """
    if mode == "sum":
        code = 0
    elif mode == "mean":
        code = 1
    elif mode == "max":
        code = 2
    else:
        raise LayerError(f"embedding_bag: mode must be sum, mean or max, found {mode}")
    if input.ndim == 2:
        if offsets is not None:
            raise LayerError("embedding_bag: a 2-dim input has bags of equal length, and takes no offsets")
        starts = ops.arange(0, ops.numel(input), input.shape[1], dtype=input.dtype)
        indices = ops.reshape(input, [-1])
    elif input.ndim == 1:
        if offsets is None:
            raise LayerError("embedding_bag: a 1-dim input needs offsets")
        if offsets.ndim != 1:
            raise LayerError(f"embedding_bag: offsets must have 1 dimension, found {offsets.ndim}")
        starts = offsets
        indices = input
    else:
        raise LayerError(f"embedding_bag: an input of 1 or 2 dimensions is needed, found {input.ndim}")
    weights = per_sample_weights
    if weights is not None:
        if mode != "sum":
            raise LayerError(f"embedding_bag: per_sample_weights go with mode sum only, found {mode}")
        if ops.size(input) != ops.size(weights):
            raise LayerError("embedding_bag: per_sample_weights must have the shape of the input")
        weights = ops.reshape(weights, [-1])
    if padding_idx is not None:
        rows = weight.shape[0]
        if padding_idx >= rows or padding_idx < -rows:
            raise LayerError(f"embedding_bag: padding_idx {padding_idx} is outside a table of {rows} rows")
        padding_idx = padding_idx if padding_idx >= 0 else padding_idx + rows
    if max_norm is not None:
        ops.embedding_renorm_(ops.detach(weight), indices, max_norm, norm_type)
    result, _, _, _ = ops.embedding_bag(
        weight, indices, starts, scale_grad_by_freq, code, sparse, weights, include_last_offset, padding_idx
    )
    return result
