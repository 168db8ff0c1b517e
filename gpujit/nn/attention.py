"""Multi-head attention as a layer."""

from __future__ import annotations

from typing import Any

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn import init
from gpujit.nn.linear import NonDynamicallyQuantizableLinear
from gpujit.nn.module import Module
from gpujit.nn.parameter import Parameter, new
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class MultiheadAttention(Module):
    """Attention of several heads: query, key and value projected, attended, and projected again.

    ``in_proj_weight [3 * embed_dim, embed_dim]`` holds the three projections when key and value have as many features
    as the query; otherwise they are ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``.
    """

    __constants__ = ("batch_first",)
    embed_dim: int
    num_heads: int
    dropout: float
    batch_first: bool
    add_zero_attn: bool
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads != 0:
            raise LayerError(
                f"MultiheadAttention: embed_dim={embed_dim} must be positive and divisible by num_heads={num_heads}"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = float(dropout)
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self._qkv_same_embed_dim:
            self.register_parameter("in_proj_weight", new((3 * embed_dim, embed_dim), dtype, device))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.register_parameter("q_proj_weight", new((embed_dim, embed_dim), dtype, device))
            self.register_parameter("k_proj_weight", new((embed_dim, self.kdim), dtype, device))
            self.register_parameter("v_proj_weight", new((embed_dim, self.vdim), dtype, device))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", new((3 * embed_dim,), dtype, device) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        if add_bias_kv:
            self.bias_k = Parameter(new((1, 1, embed_dim), dtype, device))
            self.bias_v = Parameter(new((1, 1, embed_dim), dtype, device))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        swapped = self.batch_first and query.ndim == 3
        if swapped:
            # Equal inputs stay one tensor, so that they are projected in one product.
            if key is value:
                if query is key:
                    query = ops.transpose(query, 1, 0)
                    key = query
                    value = query
                else:
                    query = ops.transpose(query, 1, 0)
                    key = ops.transpose(key, 1, 0)
                    value = key
            else:
                query = ops.transpose(query, 1, 0)
                key = ops.transpose(key, 1, 0)
                value = ops.transpose(value, 1, 0)
        result, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        if swapped:
            return ops.transpose(result, 1, 0), weights
        return result, weights
