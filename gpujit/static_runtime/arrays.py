"""Arrays and their addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.static_runtime import enter

ALIGN = 64
_word_at = ctypes.c_int64.from_address


def _slow_address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _quick_address(x: np.ndarray) -> int:
    return int(_word_at(id(x) + enter.DATA).value)


address_of: Callable[[np.ndarray], int] = _quick_address if enter.READS_ARRAYS else _slow_address


def words_at(address: int, count: int) -> list[int]:
    """So many int64 words of memory."""
    return list((ctypes.c_int64 * count).from_address(address))


def aligned(
    shape: tuple[int, ...], dtype: np.dtype, size: int, strides: tuple[int, ...] | None = None
) -> np.ndarray:
    """A new dense array of ``size`` bytes that begins at a multiple of ALIGN; contiguous without strides."""
    memory = np.empty(size + ALIGN, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGN, strides)


def arrays_in(value: Any) -> list[np.ndarray]:
    """The arrays in a value, at any depth."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in arrays_in(v)] if isinstance(value, (list, tuple)) else []
