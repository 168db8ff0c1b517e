"""Samplers: draws of one distribution as a flat NumPy array, with PyTorch's values for equal seeds.

Each takes the generator, how many numbers, the dtype they end in, whether that array is contiguous, and parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, BOOL_, FLOAT16, FLOAT32, FLOAT64, HALF_TYPES
from gpujit.ops.generator import BLOCK, Generator

Sampler = Callable[..., Any]

# How many integers from 0 on a floating dtype holds without gaps, as a power of two.
DIGITS = {FLOAT16: 11, BFLOAT16: 8, FLOAT32: 24, FLOAT64: 53}


def uniform_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, low: float, high: float) -> Any:
    """Uniform from ``low`` to below ``high``."""
    u = g.doubles(n) if dtype == FLOAT64 else g.floats(n)
    if low == 0 and high == 1:
        return u
    kind = u.dtype.type
    return fused_multiply_add(u, kind(high) - kind(low), kind(low))


def fused_multiply_add(x: Any, factor: Any, term: Any) -> Any:
    """``x * factor + term`` rounded once, as the instruction that PyTorch's loops use; x from 0 to below 1."""
    if x.dtype == FLOAT32:
        return (x.astype(FLOAT64) * np.float64(factor) + np.float64(term)).astype(FLOAT32)
    # The rounding errors of product and sum (Dekker 1971, Knuth 1969), added at the end.
    high, low = _halves(x)
    factor_high, factor_low = _halves(np.asarray(factor))
    product = x * factor
    lost = ((high * factor_high - product) + high * factor_low + low * factor_high) + low * factor_low
    total = product + term
    added = total - product
    lost += (product - (total - added)) + (term - added)
    return total + lost


def _halves(x: Any) -> tuple[Any, Any]:
    """Two float64 numbers of 26 bits each that add up to ``x``."""
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high


def normal_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, mean: float, std: float) -> Any:
    """Normal of a mean and standard deviation."""
    if n >= BLOCK and contiguous:
        z = g.normal_blocks(n, dtype == FLOAT64, dtype not in HALF_TYPES)
    else:
        z = g.normals(n)
    if std != 1:
        z *= z.dtype.type(std)
    if mean != 0:
        z += z.dtype.type(mean)
    return z


def integer_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, low: int, high: int) -> Any:
    """Integers from ``low`` to below ``high``."""
    span = (high - low) & ((1 << 64) - 1)
    # Wide ranges take two words, so that the remainder stays even.
    if span >= 1 << 28:
        found = (g.words64(n) % np.uint64(span)).view(np.int64)
    else:
        found = (g.words(n) % np.uint32(span)).astype(np.int64)
    return found + np.int64(low) if low else found


def any_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool) -> Any:
    """Integers over all values a dtype can hold without gaps and sign."""
    if dtype in DIGITS:
        digits = DIGITS[dtype]
        words = g.words64(n) if digits > 32 else g.words(n)
        return (words % words.dtype.type((1 << digits) + 1)).astype(np.float64)
    if dtype == BOOL_:
        return g.words(n) & np.uint32(1)
    if dtype.itemsize == 8:
        return g.words64(n) & np.uint64(np.iinfo(dtype).max)
    return g.words(n) & np.uint32(np.iinfo(dtype).max)


def bernoulli_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, p: float) -> Any:
    """1 with probability ``p``, else 0."""
    return g.doubles(n) < p


def exponential_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, rate: float) -> Any:
    """Exponential of a rate."""
    return -1.0 / rate * np.log1p(-g.doubles(n))


def geometric_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, p: float) -> Any:
    """How many trials of probability ``p`` it takes to succeed."""
    return np.ceil(np.log(g.doubles(n)) / np.log1p(-p))


def log_normal_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, mean: float, std: float) -> Any:
    """The exponential of normal numbers."""
    return np.exp(g.normals(n) * std + mean)


def cauchy_numbers(g: Generator, n: int, dtype: np.dtype[Any], contiguous: bool, median: float, sigma: float) -> Any:
    """Cauchy of a median and width."""
    return median + sigma * np.tan(np.pi * (g.doubles(n) - 0.5))
