"""Device functions as plain Python, for kernels in Numba's CUDA simulator.

Numbers are NumPy scalars of the very dtype a GPU's register would have, so rounding and wrapping are the same. Wide
loads and stores check the alignment that the hardware asks for, and ``Pointer`` checks that nothing outside an array is
touched.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from gpujit.kernels.reference import compute
from gpujit.kernels.tile import Compute

INF = math.inf
NAN = math.nan


class Pointer:
    """Elements of an array's memory by their distance from its first one, as CPointer arguments are used.

    ``first`` elements are added to every index. Half types are seen as their bits and bools as bytes.
    """

    def __init__(self, array: np.ndarray, first: int = 0) -> None:
        dtype: np.dtype = np.dtype(seen_as(array.dtype))
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        self.owner = array
        self.first = (array.ctypes.data - low) // dtype.itemsize + first
        self.start, self.itemsize = low, dtype.itemsize
        self.memory: Any = np.frombuffer(memoryview((ctypes.c_char * (high - low)).from_address(low)), dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.memory[self.at(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.memory[self.at(index)] = value

    def at(self, index: Any, count: int = 1) -> int:
        """The place in memory of an element. Raises IndexError when it, or one of ``count``, lies outside."""
        found: int = int(index) + self.first
        if found < 0 or found + count > len(self.memory):
            raise IndexError(
                f"element {index} (and {count - 1} more) of memory for {len(self.memory)}, {self.first} in"
            )
        return found

    def wide(self, index: Any, count: int) -> slice:
        """The place of ``count`` elements that are moved at once. Raises ValueError when they are not aligned."""
        found = self.at(index, count)
        if (self.start + found * self.itemsize) % min(16, count * self.itemsize):
            raise ValueError(f"{count} elements of {self.itemsize} bytes at {found}: not aligned")
        return slice(found, found + count)


def seen_as(dtype: np.dtype) -> Any:
    """The dtype as pointers to it are declared: bits of half types, bytes of bools."""
    if dtype == np.bool_:
        return np.uint8
    return np.uint16 if dtype.name in ("float16", "bfloat16") else dtype


# ------------------------------------------------------------------------------------------------------- numbers


def _type(dtype: Any) -> Callable[[Any], Any]:
    def cast(x: Any) -> Any:
        try:
            return dtype(x)
        except (OverflowError, ValueError):
            # Wraps, and takes NaN to something, as registers do.
            return np.asarray(x).astype(dtype)[()]

    return cast


int8, int16, int32, int64 = (_type(t) for t in (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = (_type(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
float32, float64 = np.float32, np.float64


def f16(bits: Any) -> Any:
    """A float16's bits as float32."""
    return np.float32(np.uint16(bits).view(np.float16))


def bf16(bits: Any) -> Any:
    """A bfloat16's bits as float32."""
    return (np.uint32(bits) << np.uint32(16)).view(np.float32)


def to_f16(x: Any) -> Any:
    """The bits of float32 ``x`` rounded to float16."""
    return np.float16(x).view(np.uint16)


def to_bf16(x: Any) -> Any:
    """The bits of float32 ``x`` rounded to bfloat16."""
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)[()]


def _loads(count: int, unpack: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    def load(pointer: Pointer, index: Any) -> tuple[Any, ...]:
        found = pointer.memory[pointer.wide(index, count)]
        return tuple(found) if unpack is None else tuple(unpack(x) for x in found)

    return load


def _stores(count: int, pack: Callable[[Any], Any] | None = None) -> Callable[..., None]:
    def store(pointer: Pointer, index: Any, *values: Any) -> None:
        assert len(values) == count
        pointer.memory[pointer.wide(index, count)] = values if pack is None else [pack(x) for x in values]

    return store


vload2, vload4, vload8 = (_loads(n) for n in (2, 4, 8))
vload2_f16, vload4_f16, vload8_f16 = (_loads(n, f16) for n in (2, 4, 8))
vload2_bf16, vload4_bf16, vload8_bf16 = (_loads(n, bf16) for n in (2, 4, 8))
vstore2, vstore4, vstore8 = (_stores(n) for n in (2, 4, 8))
vstore2_f16, vstore4_f16, vstore8_f16 = (_stores(n, to_f16) for n in (2, 4, 8))
vstore2_bf16, vstore4_bf16, vstore8_bf16 = (_stores(n, to_bf16) for n in (2, 4, 8))


# ---------------------------------------------------------------------------------------------------- arithmetic


def select(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``."""
    return a if condition else b


def udiv(a: Any, b: Any) -> Any:
    """a / b without its fraction, of indexes that are not negative; anything for b = 0."""
    return a // b if b else a


def urem(a: Any, b: Any) -> Any:
    """What ``udiv`` leaves."""
    return a % b if b else a


def _operation(name: str, result: Any = None) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        dtype = operands[0].dtype if result is None else np.dtype(result)
        with np.errstate(all="ignore"):
            return compute(Compute(name, (), dtype), operands)[()]

    return call


maximum, minimum, fmax, fmin = (_operation(n) for n in ("maximum", "minimum", "fmax", "fmin"))
floor_divide, remainder, fmod = (_operation(n) for n in ("floordiv", "mod", "fmod"))
power, gcd, lcm, shift_left, shift_right = (_operation(n) for n in ("pow", "gcd", "lcm", "shl", "shr"))
atan2, hypot, copysign = (_operation(n) for n in ("atan2", "hypot", "copysign"))
logaddexp, logaddexp2 = (_operation(n) for n in ("logaddexp", "logaddexp2"))
fabs, floor, ceil, trunc, rint = (_operation(n) for n in ("abs", "floor", "ceil", "trunc", "rint"))
exp, exp2, expm1, log, log1p, log2, log10 = (
    _operation(n) for n in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10")
)
sin, cos, tan, asin, acos, atan = (_operation(n) for n in ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = (_operation(n) for n in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
sqrt, erf, erfc, lgamma = (_operation(n) for n in ("sqrt", "erf", "erfc", "lgamma"))
isinf, isfinite, signbit = (_operation(n, np.bool_) for n in ("isinf", "isfinite", "signbit"))


# ---------------------------------------------------------------------------------------- between threads of a block


def _exchange(x: Any, source: Callable[[int], int]) -> Any:
    """Another thread's ``x``. All threads of the block must call, as those of a warp must on a GPU."""
    thread: Any = threading.current_thread()
    board = thread._manager.__dict__.setdefault("board", {})
    me = thread.thread_id
    board[me] = x
    thread.syncthreads()
    found = board.get(source(me), x)
    thread.syncthreads()
    return found


def shuffle_xor(x: Any, mask: Any) -> Any:
    """``x`` of the thread whose number differs in the bits of ``mask``."""
    return _exchange(x, lambda me: me ^ int(mask))


def shuffle_up(x: Any, distance: Any) -> Any:
    """``x`` of the thread ``distance`` before; unspecified for the first ones of a warp."""
    return _exchange(x, lambda me: me - int(distance))


def shuffle_last(x: Any, group: Any) -> Any:
    """``x`` of the last thread of each ``group`` of threads, a power of two."""
    return _exchange(x, lambda me: me | (int(group) - 1))
