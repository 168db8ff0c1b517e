"""The whole operator table: importing this module declares every family.

The order of families is part of overload resolution: overloads of one name are tried in the order they were declared,
tensors before numbers, strings and containers.
"""

# ruff: noqa: F401, I001  # imported for their declarations, in this order

from __future__ import annotations

from gpujit.ops import (
    activations,
    activations_backward,
    aliases,
    attention,
    bessel,
    casts,
    class_losses,
    compare,
    conv,
    create,
    distance,
    dropout,
    einsum,
    embedding,
    extremes,
    fills,
    gamma,
    grid,
    indexing,
    layout,
    losses,
    matmul,
    norms,
    pad,
    pointwise,
    polynomials,
    pool,
    quantized,
    quantized_embedding,
    quantized_layers,
    quantized_math,
    quantized_rnn,
    random,
    rearrange,
    reduce,
    resample,
    rnn,
    scan,
    scatter,
    search,
    segments,
    shape,
    softmax,
    sorting,
    special,
    spectral,
    splits,
    statistics,
    stft,
    unary,
    unique,
    unpool,
    views,
    vision,
    windows,
    containers,
    scalar,
    scalar_math,
    strings,
    numbers,
    convert,
    queries,
)
from gpujit.ops.registry import Op, by_full_name, by_name, registered
from gpujit.ops.upgraders import historic

__all__ = ["Op", "by_full_name", "by_name", "historic", "registered"]
