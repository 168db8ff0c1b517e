"""Multi-head attention."""

from __future__ import annotations

import math

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def additive_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask to be added to scores: a bool mask becomes minus infinity where it is true, of the dtype of ``like``."""
    if mask is None:
        return None
    if ops.is_floating_point(mask):
        return mask
    return ops.masked_fill(ops.zeros_like(mask, dtype=like.dtype), mask, float("-inf"))


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, num_heads: int
) -> bool:
    """Whether there is a batch dimension. Raises LayerError for ranks that do not go together."""
    if query.ndim != 2 and query.ndim != 3:
        raise LayerError(f"attention: a query of 2 or 3 dimensions is needed, found {query.ndim}")
    batched = query.ndim == 3
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise LayerError(f"attention: query has {query.ndim} dimensions, key {key.ndim} and value {value.ndim}")
    if key_padding_mask is not None:
        if key_padding_mask.ndim != query.ndim - 1:
            raise LayerError(
                f"attention: key_padding_mask needs {query.ndim - 1} dimensions, found {key_padding_mask.ndim}"
            )
    if attn_mask is not None:
        if attn_mask.ndim != 2 and attn_mask.ndim != 3:
            raise LayerError(f"attention: attn_mask needs 2 or 3 dimensions, found {attn_mask.ndim}")
        if attn_mask.ndim == 3 and not batched:
            wanted = [num_heads, query.shape[0], key.shape[0]]
            if ops.size(attn_mask) != wanted:
                raise LayerError(f"attention: attn_mask needs size {wanted}, found {ops.size(attn_mask)}")
    return batched


def _project_packed(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value projected by a weight that holds the three matrices; equal inputs in one product."""
    size = query.shape[query.ndim - 1]
    if key is value:
        if query is key:
            both = ops.linear(query, weight, bias)
            q, k, v = ops.split(both, size, -1)
            return q, k, v
        query_weight, rest_weight = ops.split_with_sizes(weight, [size, size * 2])
        if bias is None:
            q = ops.linear(query, query_weight)
            both = ops.linear(key, rest_weight)
        else:
            query_bias, rest_bias = ops.split_with_sizes(bias, [size, size * 2])
            q = ops.linear(query, query_weight, query_bias)
            both = ops.linear(key, rest_weight, rest_bias)
        k, v = ops.split(both, size, -1)
        return q, k, v
    w_q, w_k, w_v = ops.chunk(weight, 3)
    return _project(query, key, value, w_q, w_k, w_v, bias)


def _project(
    query: Tensor, key: Tensor, value: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value projected by a matrix each."""
    if bias is None:
        return ops.linear(query, w_q), ops.linear(key, w_k), ops.linear(value, w_v)
    b_q, b_k, b_v = ops.chunk(bias, 3)
    return ops.linear(query, w_q, b_q), ops.linear(key, w_k, b_k), ops.linear(value, w_v, b_v)


def _heads_first(x: Tensor, rows: int, head_dim: int) -> Tensor:
    """``[length, batch, size]`` as ``[batch * heads, length, head_dim]``."""
    return ops.transpose(ops.reshape(x, [x.shape[0], rows, head_dim]), 0, 1)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads with its projections: the result, and the weights with ``need_weights``.

    Args:
        query, key, value: ``[length, batch, size]``, or without the batch dimension.
        key_padding_mask: ``[batch, source]``, true (or minus infinity) at keys that are padding.
        attn_mask: ``[target, source]`` or ``[batch * heads, target, source]``, true (or minus infinity) where a query
            must not look; added to the scores if it is floating.
        is_causal: a hint that ``attn_mask`` is the causal mask.
    Returns: ``[target, batch, size]``, and ``[batch, target, source]`` weights, per head
    ``[batch, heads, target, source]`` unless ``average_attn_weights``; without the batch dimension as the query.
    Raises LayerError for sizes and settings that do not go together.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query = ops.unsqueeze(query, 1)
        key = ops.unsqueeze(key, 1)
        value = ops.unsqueeze(value, 1)
        if key_padding_mask is not None:
            key_padding_mask = ops.unsqueeze(key_padding_mask, 0)
    target = query.shape[0]
    batch = query.shape[1]
    size = query.shape[2]
    if is_causal and attn_mask is None:
        raise LayerError("attention: is_causal is a hint about attn_mask, which is missing")
    if size != embed_dim_to_check:
        raise LayerError(f"attention: a query of {embed_dim_to_check} features is needed, found {size}")
    # It is the weights' size, not the input's, that a trace is to hold.
    size = embed_dim_to_check
    head_dim = size // num_heads
    if head_dim * num_heads != size:
        raise LayerError(f"attention: {size} features cannot be divided among {num_heads} heads")
    rows = batch * num_heads

    padding = additive_mask(key_padding_mask, query)
    causal = is_causal and padding is None and not need_weights
    mask = additive_mask(attn_mask, query)
    if causal:
        mask = None

    # Whether weights are there is known when a module is compiled, so it is asked first.
    if (
        q_proj_weight is not None
        and k_proj_weight is not None
        and v_proj_weight is not None
        and use_separate_proj_weight
    ):
        q, k, v = _project(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias)
    elif in_proj_weight is not None and not use_separate_proj_weight:
        if key.shape != value.shape:
            raise LayerError(f"attention: key has size {ops.size(key)}, value {ops.size(value)}; they must be equal")
        q, k, v = _project_packed(query, key, value, in_proj_weight, in_proj_bias)
    else:
        raise LayerError("attention: the weights of the projections are missing")

    if mask is not None:
        wanted = [target, key.shape[0]] if mask.ndim == 2 else [rows, target, key.shape[0]]
        if ops.size(mask) != wanted:
            raise LayerError(f"attention: attn_mask needs size {wanted}, found {ops.size(mask)}")
        if mask.ndim == 2:
            mask = ops.unsqueeze(mask, 0)

    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise LayerError("attention: bias_k and bias_v do not go with static_k and static_v")
        k = ops.cat([k, ops.repeat(bias_k, [1, batch, 1])])
        v = ops.cat([v, ops.repeat(bias_v, [1, batch, 1])])
        if mask is not None:
            mask = ops.pad(mask, [0, 1])
        if padding is not None:
            padding = ops.pad(padding, [0, 1])

    q = _heads_first(q, rows, head_dim)
    if static_k is None:
        k = _heads_first(k, rows, head_dim)
    else:
        k = static_k
    if static_v is None:
        v = _heads_first(v, rows, head_dim)
    else:
        v = static_v

    if add_zero_attn:
        zero = ops.zeros([rows, 1, head_dim], dtype=k.dtype)
        k = ops.cat([k, zero], 1)
        v = ops.cat([v, zero], 1)
        if mask is not None:
            mask = ops.pad(mask, [0, 1])
        if padding is not None:
            padding = ops.pad(padding, [0, 1])
    source = k.shape[1]

    if padding is not None:
        if ops.size(padding) != [batch, source]:
            raise LayerError(f"attention: key_padding_mask needs size {[batch, source]}, found {ops.size(padding)}")
        spread = ops.expand(ops.view(padding, [batch, 1, 1, source]), [-1, num_heads, -1, -1])
        spread = ops.reshape(spread, [rows, 1, source])
        if mask is None:
            mask = spread
        else:
            mask = ops.add(mask, spread)

    p = dropout_p if training else 0.0
    if need_weights:
        scaled = ops.mul(q, math.sqrt(1.0 / float(head_dim)))
        if mask is None:
            scores = ops.bmm(scaled, ops.transpose(k, -2, -1))
        else:
            scores = ops.baddbmm(mask, scaled, ops.transpose(k, -2, -1))
        weights = ops.softmax(scores, -1)
        if p > 0.0:
            weights = ops.dropout(weights, p, True)
        result = ops.reshape(ops.transpose(ops.bmm(weights, v), 0, 1), [target * batch, size])
        result = ops.linear(result, out_proj_weight, out_proj_bias)
        result = ops.view(result, [target, batch, result.shape[1]])
        weights = ops.view(weights, [batch, num_heads, target, source])
        if average_attn_weights:
            weights = ops.mean(weights, [1])
        if not batched:
            return ops.squeeze(result, 1), ops.squeeze(weights, 0)
        return result, weights
    if mask is not None:
        if mask.shape[0] == 1:
            mask = ops.unsqueeze(mask, 0)
        else:
            mask = ops.view(mask, [batch, num_heads, -1, source])
    attended = ops.scaled_dot_product_attention(
        ops.view(q, [batch, num_heads, target, head_dim]),
        ops.view(k, [batch, num_heads, source, head_dim]),
        ops.view(v, [batch, num_heads, source, head_dim]),
        mask,
        p,
        causal,
    )
    result = ops.reshape(ops.permute(attended, [2, 0, 1, 3]), [batch * target, size])
    result = ops.linear(result, out_proj_weight, out_proj_bias)
    result = ops.view(result, [target, batch, result.shape[1]])
    if not batched:
        return ops.squeeze(result, 1), None
    return result, None
