"""Device functions as plain Python, for kernels in Numba's CUDA simulator.

Numbers are NumPy scalars of the very dtype a GPU's register would have, so rounding and wrapping are the same. Wide loads
and stores check the alignment that the hardware asks for, and ``Pointer`` checks that nothing outside an array is touched.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

INF = math.inf
NAN = math.nan


class Pointer:
    """Elements of an array's memory by their distance from its first one, as CPointer arguments are used.

    ``first`` elements are added to every index. Half types are seen as their bits and bools as bytes.
    """

    def __init__(self, array: np.ndarray, first: int = 0) -> None:
        seen = array.view(_seen_as(array.dtype))
        low, high = np.lib.array_utils.byte_bounds(seen)
        start = seen.__array_interface__["data"][0]
        self.first = (start - low) // seen.itemsize + first
        self.start, self.itemsize = low, seen.itemsize
        count = (high - low) // seen.itemsize if seen.size else 0
        self.memory = np.lib.stride_tricks.as_strided(
            seen[tuple(slice(None, None, -1) if s < 0 else slice(None) for s in seen.strides)].reshape(-1)[:0]
            if not count
            else np.ndarray((), seen.dtype, _Memory(seen, low, high)),
            (count,),
            (seen.itemsize,),
        )

    def __getitem__(self, index: Any) -> Any:
        return self.memory[self.at(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.memory[self.at(index)] = value

    def at(self, index: Any, count: int = 1) -> int:
        """The place in memory of an element. Raises IndexError when it, or one of ``count``, lies outside."""
        found = int(index) + self.first
        if found < 0 or found + count > len(self.memory):
            raise IndexError(f"element {index} (and {count - 1} more) of memory for {len(self.memory)}, {self.first} in")
        return found

    def wide(self, index: Any, count: int) -> int:
        """The place of ``count`` elements that are moved at once. Raises ValueError when they are not aligned."""
        found = self.at(index, count)
        if (self.start + found * self.itemsize) % min(16, count * self.itemsize):
            raise ValueError(f"{count} elements of {self.itemsize} bytes at {found}: not aligned")
        return found


class _Memory:
    """The bytes between two addresses of an array, as an object that NumPy reads in place."""

    def __init__(self, owner: np.ndarray, low: int, high: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (low, False), "shape": (high - low,), "typestr": "|u1", "version": 3}

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(np.asarray(self))


def _seen_as(dtype: np.dtype) -> Any:
    if dtype == np.bool_:
        return np.uint8
    return np.uint16 if dtype.name in ("float16", "bfloat16") else dtype
