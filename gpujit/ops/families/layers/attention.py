"""Attention: scaled dot products, the multi-head layer and the fused encoder layer.

Scores are kept in one buffer that is scaled, masked and normalised in place. Where every key of a row is masked PyTorch
gives zeros, and so does this.
"""

from __future__ import annotations

from math import inf, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from gpujit.ir.dtypes import BOOL_
from gpujit.ir.values import Array
from gpujit.ops.families.layers.dropout import dropped
from gpujit.ops.families.matrices.addmm import gelu
from gpujit.ops.families.matrices.matmul import check_same_dtype, linear
from gpujit.ops.into import OfBody, by_parts
from gpujit.ops.registry import library
from gpujit.ops.rules.layers import attention_pair_type, attention_type, flash_attention_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_SDPA = "aten::scaled_dot_product_attention"


def softmax_rows(xp: Any, scores: Array, safe: bool) -> Array:
    """Softmax over the last dim, written into ``scores``. ``safe``: rows of only -inf become zeros instead of NaN."""
    if not scores.size:
        return scores
    top = xp.maximum.reduce(scores, -1, None, None, True)
    if safe:
        # -inf - -inf is NaN; a finite shift leaves such a row at exp(-inf) = 0.
        top[top == -xp.inf] = 0
    scores -= top
    xp.exp(scores, out=scores)
    total = xp.add.reduce(scores, -1, None, None, True)
    if safe:
        total[total == 0] = 1
    scores /= total
    return scores


def _causal(xp: Any, rows: int, columns: int) -> Array:
    return xp.arange(columns) > xp.arange(rows)[:, None]


def _check_attention(op: str, q: Array, k: Array, v: Array, mask: Array | None, is_causal: bool) -> None:
    check_same_dtype(op, query=q, key=k, value=v)
    if q.ndim < 2 or k.ndim < 2 or v.ndim < 2:
        raise ShapeError(
            f"{op}: query, key and value need at least 2 dimensions, found {q.shape}, {k.shape}, {v.shape}"
        )
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{op}: query {q.shape} and key {k.shape} must agree in their last dim, "
            f"key and value {v.shape} in the one before"
        )
    if mask is not None:
        if is_causal:
            raise OpError(f"{op}: attn_mask and is_causal=True exclude each other; pass one of them")
        if mask.dtype is not BOOL_ and mask.dtype != q.dtype and mask.dtype.kind not in "fV":
            raise DTypeError(f"{op}: attn_mask must be bool or floating point like query, it is {mask.dtype}")


def _share_heads(op: str, q: Array, x: Array) -> Array:
    """``x`` with each head repeated until there are as many as in ``q`` (grouped-query attention)."""
    if q.ndim < 3 or x.ndim < 3 or not x.shape[-3] or q.shape[-3] % x.shape[-3]:
        raise ShapeError(f"{op}: enable_gqa needs a number of query heads that key and value heads divide")
    return x if q.shape[-3] == x.shape[-3] else x.repeat(q.shape[-3] // x.shape[-3], axis=-3)


class Dropout(NamedTuple):
    """Which probabilities become 0: each with probability ``p``, or where ``mask`` is False. The rest is scaled up."""

    p: float = 0.0
    mask: Array | None = None


NO_DROPOUT = Dropout()


def attend(
    xp: Any,
    op: str,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    is_causal: bool,
    scale: float | None,
    gqa: bool,
    dropout: Dropout = NO_DROPOUT,
) -> tuple[Array, Array]:
    """``softmax(q @ k.T * scale + mask) @ v`` and the probabilities."""
    if gqa:
        k, v = _share_heads(op, q, k), _share_heads(op, q, v)
    factor = 1.0 / sqrt(q.shape[-1]) if scale is None and q.shape[-1] else 1.0 if scale is None else scale
    try:
        # Scaling the query costs L * E products, scaling the scores L * S of them.
        scores = xp.matmul(q * q.dtype.type(factor), k.swapaxes(-1, -2))
        if is_causal:
            scores[..., _causal(xp, q.shape[-2], k.shape[-2])] = -xp.inf
        elif mask is not None:
            if mask.dtype is BOOL_:
                xp.copyto(scores, -xp.inf, where=~mask)
            else:
                scores += mask
        weights = softmax_rows(xp, scores, mask is not None or is_causal)
        if dropout.mask is not None and dropout.p:
            # As in PyTorch, what is left of the probabilities is scaled with the values, so they come back as they are.
            weights = xp.where(dropout.mask, weights, weights.dtype.type(0))
            scaled = v * v.dtype.type(inf if dropout.p == 1 else 1 / (1 - dropout.p))
            return xp.matmul(weights, scaled), weights
        weights = dropped(xp, weights, dropout.p, op)
        return xp.matmul(weights, v), weights
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in (q, k, v) + (() if mask is None else (mask,)))
        raise ShapeError(f"{op}: query, key, value (and mask) of shapes {shapes} do not broadcast") from None


# Scores from which attention goes by blocks of heads, and scores of one block.
SMALL, BLOCK = 4096, 65536
# A row whose largest weight is less than this beside the block's largest is computed with a maximum of its own.
FAINT = 1e-6


def _attend_blocks(q: Array, k: Array, v: Array, mask: Array | None, safe: bool) -> Array:
    """``softmax(q @ k.T + mask) @ v`` on the CPU, a few heads at a time, whose scores stay in the cache.

    ``mask [L or 1, S]`` is added, or where bool hides keys. Weights are divided by their sum after the product with
    ``v``, which is smaller, and share one maximum, which is cheaper, unless that leaves a row with too few digits.
    """
    lead, rows, columns = q.shape[:-2], q.shape[-2], k.shape[-2]
    n = prod(lead)
    q, k, v = q.reshape(n, rows, -1), k.reshape(n, columns, -1).swapaxes(1, 2), v.reshape(n, columns, -1)
    y = np.empty((n, rows, v.shape[2]), q.dtype)
    ones = np.ones(columns, q.dtype)
    step = max(1, BLOCK // (rows * columns))
    shared = True
    for i in range(0, n, step):
        scores = np.matmul(q[i : i + step], k[i : i + step])
        if mask is None:
            pass
        elif mask.dtype is BOOL_:
            np.copyto(scores, -np.inf, where=mask)
        else:
            scores += mask
        part = v[i : i + step]
        if shared:
            e = np.subtract(scores, np.maximum.reduce(scores, None))
            sums = np.matmul(np.exp(e, out=e), ones)
            # False for NaN as well.
            shared = bool(np.minimum.reduce(sums, None) > FAINT)
            if shared:
                np.divide(np.matmul(e, part), sums[..., None], out=y[i : i + step])
                continue
        np.matmul(softmax_rows(np, scores, safe), part, out=y[i : i + step])
    return y.reshape(*lead, rows, -1)


def attention_of(
    xp: Any, op: str, q: Array, k: Array, v: Array, mask: Array | None, is_causal: bool, scale: float | None, gqa: bool
) -> Array:
    """``softmax(q @ k.T * scale + mask) @ v``."""
    lead = q.shape[:-2]
    if (
        xp is np
        and lead
        and not gqa
        and lead == k.shape[:-2] == v.shape[:-2]
        and q.dtype.char in "fd"
        and q.size
        and v.size
        and prod(lead) * q.shape[-2] * k.shape[-2] > SMALL
    ):
        rows, columns = q.shape[-2], k.shape[-2]
        hidden = mask
        if is_causal:
            hidden = _causal(xp, rows, columns)
        elif mask is not None:
            hidden = mask.reshape(mask.shape[-2:]) if mask.ndim > 1 and mask.size == prod(mask.shape[-2:]) else None
            fits = hidden is not None and hidden.shape in ((rows, columns), (1, columns)) and mask.ndim <= q.ndim
            if not fits or hidden is None:
                return attend(xp, op, q, k, v, mask, is_causal, scale, gqa)[0]
            if hidden.dtype is BOOL_:
                hidden = ~hidden
        factor = 1.0 / sqrt(q.shape[-1]) if scale is None else scale
        return _attend_blocks(q * q.dtype.type(factor), k, v, hidden, hidden is not None)
    return attend(xp, op, q, k, v, mask, is_causal, scale, gqa)[0]


def _attention_into(body: Any) -> Any:
    """The out-variant of attention: one batch entry or head after the other."""

    def into(
        xp: Any, out: Array, q: Array, k: Array, v: Array, mask: Array | None, dropout_p: float, *rest: Any
    ) -> Any:
        shared = [d for d in range(q.ndim - 2) if q.ndim == k.ndim == v.ndim and q.shape[d] == k.shape[d] == v.shape[d]]
        if not shared or dropout_p:
            return NotImplemented
        axis = max(shared, key=lambda d: q.shape[d])
        sliced: tuple[int, ...] = (0, 1, 2)
        behind = q.ndim - axis
        if mask is not None and mask.ndim >= behind and mask.shape[-behind] != 1:
            if mask.ndim != q.ndim:
                return NotImplemented
            sliced = (*sliced, 3)
        return by_parts(lambda *args: axis, sliced).make(body)(xp, out, q, k, v, mask, dropout_p, *rest)

    return into


@library(
    "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
    "float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
    random=True,
    active_if=("dropout_p",),
    type_rule=attention_type,
    into=OfBody(_attention_into),
)
def scaled_dot_product_attention(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Array:
    """Attention of ``query [..., L, E]`` over ``key [..., S, E]`` and ``value [..., S, V]``: ``[..., L, V]``.

    ``attn_mask`` is added to the scores, or, when bool, keeps the keys where it is True. ``dropout_p`` drops
    probabilities, whether in training or not. Memory order follows PyTorch's
    CPU kernel only in shape: the result is contiguous.
    """
    if q.dtype is not k.dtype or q.dtype is not v.dtype or dropout_p or mask is not None or q.ndim < 3:
        _check_attention(_SDPA, q, k, v, mask, is_causal)
    if dropout_p:
        return attend(xp, _SDPA, q, k, v, mask, is_causal, scale, enable_gqa, Dropout(dropout_p))[0]
    return attention_of(xp, _SDPA, q, k, v, mask, is_causal, scale, enable_gqa)


@library(
    "aten::_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
    "float dropout_p=0., bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, bool enable_gqa=False)"
    " -> (Tensor, Tensor)",
    random=True,
    active_if=("dropout_p",),
    type_rule=attention_pair_type,
)
def scaled_dot_product_attention_math(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    dropout_mask: Array | None,
    scale: float | None,
    enable_gqa: bool,
) -> tuple[Array, Array]:
    """Attention, and the probabilities ``[..., L, S]``."""
    op = "aten::_scaled_dot_product_attention_math"
    _check_attention(op, q, k, v, mask, is_causal)
    if mask is not None and mask.dtype is BOOL_:
        # This inner operator adds its mask whatever the dtype; only the public one reads True as "keep".
        mask = mask.astype(q.dtype)
    return attend(xp, op, q, k, v, mask, is_causal, scale, enable_gqa, Dropout(dropout_p, dropout_mask))


@library(
    "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., "
    "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
    type_rule=flash_attention_type,
)
def flash_attention_for_cpu(
    xp: Any,
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float,
    is_causal: bool,
    mask: Array | None,
    scale: float | None,
) -> tuple[Array, Array]:
    """Attention of ``[N, H, L, E]`` tensors, and the logarithm of each row's sum of exponentials ``[N, H, L]``."""
    op = "aten::_scaled_dot_product_flash_attention_for_cpu"
    _check_attention(op, q, k, v, mask, False)
    if dropout_p:
        raise OpError(f"{op}: dropout_p must be 0 as in PyTorch, found {dropout_p}; call scaled_dot_product_attention")
    factor = (1.0 / sqrt(q.shape[-1])) if scale is None else scale
    scores = xp.matmul(q * q.dtype.type(factor), k.swapaxes(-1, -2))
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf) if mask.dtype is BOOL_ else scores + mask
    if is_causal:
        scores[..., _causal(xp, q.shape[-2], k.shape[-2])] = -xp.inf
    top = scores.max(axis=-1, keepdims=True)
    top[top == -xp.inf] = 0
    logsumexp = xp.log(xp.exp(scores - top).sum(axis=-1)) + top[..., 0]
    y = xp.matmul(softmax_rows(xp, scores, True), v)
    return y, logsumexp


# ------------------------------------------------------------------------------------------------ multi-head layers


def _place_mask(op: str, shape: tuple[int, ...], mask: Array, mask_type: int | None) -> Array:
    if mask_type == 1 and mask.ndim == 2 and len(shape) == 4 and mask.shape == (shape[0], shape[3]):
        return mask[:, None, None, :]
    if mask.shape == shape or (mask_type == 0 and mask.shape == shape[-2:]):
        return mask
    raise ShapeError(
        f"{op}: a mask of shape {mask.shape} and mask_type {mask_type} does not fit scores of shape {shape}"
    )


@library(
    "aten::_transform_bias_rescale_qkv(Tensor qkv, Tensor qkv_bias, int num_heads) -> (Tensor, Tensor, Tensor)",
)
def transform_bias_rescale_qkv(xp: Any, qkv: Array, bias: Array, num_heads: int) -> tuple[Array, Array, Array]:
    """Query (scaled by ``1 / sqrt(head)``), key and value ``[B, H, T, head]`` from one projection ``[B, T, 3 * D]``."""
    op = "aten::_transform_bias_rescale_qkv"
    if qkv.ndim != 3 or qkv.shape[2] % (3 * num_heads) or bias.shape != qkv.shape[2:]:
        raise ShapeError(f"{op}: qkv {qkv.shape} and bias {bias.shape} do not hold {num_heads} heads of q, k and v")
    b, t, width = qkv.shape
    head = width // (3 * num_heads)
    x = (qkv + bias).reshape(b, t, 3, num_heads, head).transpose(2, 0, 3, 1, 4).copy()
    x[0] *= x.dtype.type(1.0 / sqrt(head))
    return x[0], x[1], x[2]


def _layer_norm(xp: Any, x: Array, weight: Array, bias: Array, eps: float) -> Array:
    y = x - x.mean(axis=-1, keepdims=True)
    variance = xp.square(y).mean(axis=-1, keepdims=True)
    variance += x.dtype.type(eps)
    y /= xp.sqrt(variance, out=variance)
    y *= weight
    y += bias
    return y


def _check_heads(op: str, query: Array, embed_dim: int, num_head: int, qkv_weight: Array) -> None:
    if query.ndim != 3:
        raise ShapeError(f"{op}: expected 3-D `query`, got {query.ndim}-D tensor")
    if num_head <= 0 or embed_dim % num_head:
        raise ShapeError(f"{op}: `embed_dim` {embed_dim} must divide evenly by `num_heads` {num_head}")
    if query.shape[2] != embed_dim or qkv_weight.shape != (3 * embed_dim, embed_dim):
        raise ShapeError(
            f"{op}: embed_dim {embed_dim} needs query [B, T, {embed_dim}] and weight [{3 * embed_dim}, {embed_dim}], "
            f"found {query.shape} and {qkv_weight.shape}"
        )


def multi_head(
    xp: Any,
    op: str,
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    num_head: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    mask: Array | None,
    mask_type: int | None,
) -> tuple[Array, Array]:
    """Attention of ``[B, T, D]`` tensors in ``num_head`` heads, and the probabilities ``[B, H, T, S]``."""
    _check_heads(op, query, embed_dim, num_head, qkv_weight)
    head = embed_dim // num_head
    if key is query and value is query:
        b, t = query.shape[:2]
        q, k, v = linear(xp, query, qkv_weight, qkv_bias).reshape(b, t, 3, num_head, head).transpose(2, 0, 3, 1, 4)
    else:
        parts = []
        for i, x in enumerate((query, key, value)):
            rows = slice(i * embed_dim, (i + 1) * embed_dim)
            y = linear(xp, x, qkv_weight[rows], qkv_bias[rows])
            parts.append(y.reshape(*y.shape[:2], num_head, head).transpose(0, 2, 1, 3))
        q, k, v = parts
    scores = xp.matmul(q * q.dtype.type(1.0 / sqrt(head)), k.swapaxes(-1, -2))
    if mask is not None:
        if mask.dtype is BOOL_:
            xp.copyto(scores, -xp.inf, where=_place_mask(op, scores.shape, mask, mask_type))
        else:
            scores += mask
    weights = softmax_rows(xp, scores, mask is not None)
    y = xp.matmul(weights, v).transpose(0, 2, 1, 3).reshape(query.shape[0], query.shape[1], embed_dim)
    return linear(xp, y, proj_weight, proj_bias), weights


@library(
    "aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, "
    "Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, "
    "bool need_weights=True, "
    "bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)"
)
def native_multi_head_attention(
    xp: Any,
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    num_head: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    mask: Array | None,
    need_weights: bool,
    average_attn_weights: bool,
    mask_type: int | None,
) -> tuple[Array, Any]:
    """Multi-head attention, and its probabilities (their mean over heads when asked; None when not needed)."""
    y, weights = multi_head(
        xp, "aten::_native_multi_head_attention", query, key, value, embed_dim, num_head,
        qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type,
    )  # fmt: skip
    if not need_weights:
        return y, None
    return y, weights.mean(axis=1) if average_attn_weights else weights


@library(
    "aten::_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, "
    "Tensor qkv_bias, "
    "Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, float eps, Tensor norm_weight_1, "
    "Tensor norm_bias_1, Tensor norm_weight_2, Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, "
    "Tensor ffn_weight_2, Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
    out="out",
)
def transformer_encoder_layer_fwd(
    xp: Any,
    src: Array,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Array,
    norm_bias_1: Array,
    norm_weight_2: Array,
    norm_bias_2: Array,
    ffn_weight_1: Array,
    ffn_bias_1: Array,
    ffn_weight_2: Array,
    ffn_bias_2: Array,
    mask: Array | None,
    mask_type: int | None,
) -> Array:
    """An encoder layer of ``src [B, T, D]``: self-attention, then a two-layer network, each with residual and norm."""
    op = "aten::_transformer_encoder_layer_fwd"
    x = _layer_norm(xp, src, norm_weight_1, norm_bias_1, eps) if norm_first else src
    y = multi_head(
        xp, op, x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
    )[0]  # fmt: skip
    y += src
    if not norm_first:
        y = _layer_norm(xp, y, norm_weight_1, norm_bias_1, eps)
    residual = y
    if norm_first:
        y = _layer_norm(xp, y, norm_weight_2, norm_bias_2, eps)
    y = linear(xp, y, ffn_weight_1, ffn_bias_1)
    y = gelu(xp, y) if use_gelu else xp.maximum(y, 0, out=y)
    y = linear(xp, y, ffn_weight_2, ffn_bias_2)
    y += residual
    return y if norm_first else _layer_norm(xp, y, norm_weight_2, norm_bias_2, eps)


# ---------------------------------------------------------------------------------------------------- nested tensors


@library("aten::_nested_tensor_from_mask_left_aligned(Tensor t, Tensor mask) -> bool")
def nested_tensor_from_mask_left_aligned(xp: Any, t: Array, mask: Array) -> bool:
    """Whether every row of the mask is a run of True followed by False only, so that rows could be cut to length."""
    if mask.dtype is not BOOL_ or mask.ndim != 2 or mask.shape != t.shape[:2]:
        raise ShapeError(
            f"aten::_nested_tensor_from_mask_left_aligned: a mask of {mask.dtype} {mask.shape} does not fit {t.shape}"
        )
    return not bool((mask[:, 1:] & ~mask[:, :-1]).any())


def _declare_nested(text: str) -> None:
    name = text.partition("(")[0]

    @library(text, half="native")
    def refuse(xp: Any, *args: Any) -> Any:
        """Nothing: ragged batches are not supported. Raises OpError."""
        raise OpError(f"{name}: nested tensors are not supported; pass padded tensors with a mask instead")


for _text in (
    "aten::_nested_tensor_from_mask(Tensor t, Tensor mask, bool mask_check=True) -> Tensor",
    (
        "aten::_nested_tensor_from_tensor_list(Tensor[] list, ScalarType? dtype=None, Layout? layout=None, "
        "Device? device=None, bool? pin_memory=None) -> Tensor"
    ),
    "aten::_nested_tensor_size(Tensor self) -> Tensor",
    "aten::_nested_tensor_strides(Tensor self) -> Tensor",
    "aten::_nested_tensor_softmax_with_shape(Tensor self, Tensor query) -> Tensor",
    "aten::_nested_from_padded(Tensor padded, Tensor cpu_nested_shape_example, "
    "bool fuse_transform_0213=False) -> Tensor",
    "aten::nested_to_padded_tensor(Tensor self, float padding, int[]? output_size=None) -> Tensor",
    "aten::to_padded_tensor(Tensor self, float padding, int[]? output_size=None) -> Tensor",
):
    _declare_nested(_text)
