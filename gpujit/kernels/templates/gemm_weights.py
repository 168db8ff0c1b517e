"""Constant weights as the gemm template reads them: in panels, float32 or narrower.

Narrow weights take less memory, and less time where a product waits for memory: a half, or a quarter. They are made
float32 when they are read, and sums are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpujit.ir.dtypes import WEIGHT_TYPES
from gpujit.kernels.templates.bound import aligned
from gpujit.support.errors import ArgumentError

# Dtypes that packed weights may be kept in.
WEIGHTS: dict[str, type] = {dtype.name: dtype.type for dtype in WEIGHT_TYPES}
# The largest number of int8 weights; -128 is not used, so that both signs are alike.
INT8_LIMIT = 127
# Factors below this have no inverse in float32.
TINY = float(np.finfo(np.float32).tiny)


class Packed(NamedTuple):
    """Weights in panels, and the factor of each column of int8 weights."""

    panels: np.ndarray
    factors: np.ndarray | None = None


def pack(weights: np.ndarray, tile: int, dtype: type = np.float32) -> np.ndarray:
    """[K, N] as panels [ceil(N / tile)][K][tile]."""
    k, n = weights.shape
    panels = -(-n // tile)
    packed = aligned((panels, k, tile), dtype)
    for p in range(panels):
        part = weights[:, p * tile : (p + 1) * tile]
        packed[p, :, : part.shape[1]] = part
    return packed


def pack_as(weights: np.ndarray, tile: int, dtype: str) -> Packed:
    """[K, N] in panels of a dtype of WEIGHTS.

    int8 weights are rounded to 127ths of the largest magnitude in their column, both signs alike. Raises ArgumentError
    for those that are infinite or NaN.
    """
    if dtype != "int8":
        return Packed(pack(weights, tile, WEIGHTS[dtype]))
    n = weights.shape[1]
    weights = weights.astype(np.float32, copy=False)
    largest = np.abs(weights).max(axis=0, initial=0)
    if not np.isfinite(largest).all():
        raise ArgumentError("weights that are infinite or NaN cannot be kept as int8")
    factors = aligned(-(-n // tile) * tile)
    factors[:n] = largest / np.float32(INT8_LIMIT)
    inverse = np.divide(1, factors[:n], out=np.zeros(n, np.float32), where=factors[:n] >= TINY)
    return Packed(pack(np.rint(weights * inverse).clip(-INT8_LIMIT, INT8_LIMIT), tile, np.int8), factors)
