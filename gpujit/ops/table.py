"""The whole operator table: importing this module declares every family.

The order of families is part of overload resolution: overloads of one name are tried in the order they were declared,
tensors before numbers, strings and containers.
"""

# ruff: noqa: F401, I001  # imported for their declarations, in this order

from __future__ import annotations

from gpujit.ops.families.memory import (
    casts,
    create,
    fills,
    grids,
    indexing,
    masks,
    parts,
    ranges,
    scatter,
    shape,
    splits,
    views,
)
from gpujit.ops.families.elementwise import (
    activations,
    activations_backward,
    bessel,
    compare,
    gamma,
    pointwise,
    polynomials,
    special,
    unary,
)
from gpujit.ops.families.layers import (
    attention,
    batch_norm,
    class_losses,
    conv,
    dropout,
    embedding,
    grid,
    losses,
    norms,
    pad,
    pool,
    rearrange,
    resample,
    rnn,
    softmax,
    unpool,
    vision,
)
from gpujit.ops.families.matrices import addmm, decompositions, distance, einsum, linalg, linalg_norms, matmul, products
from gpujit.ops.families.quantized import (
    main as quantized,
    embedding as quantized_embedding,
    layers as quantized_layers,
    arithmetic as quantized_math,
    rnn as quantized_rnn,
)
from gpujit.ops.families.random import distributions, draws, random
from gpujit.ops.families.rows import extremes, reduce, scan, search, segments, sorting, statistics, unique
from gpujit.ops.families.signal import spectral, stft, windows
from gpujit.ops import aliases

# After the tensors.
from gpujit.ops.families.language import strings, containers, scalar, scalar_math, convert, environment, queries

from gpujit.ops.registry import Op, by_full_name, by_name, registered
from gpujit.ops.upgraders import historic

__all__ = ["Op", "by_full_name", "by_name", "historic", "registered"]
