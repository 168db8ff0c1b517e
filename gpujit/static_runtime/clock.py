"""Taking the time between native steps: a step that notes it, run before each of them and after the last."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.native import TIDY, Library
from gpujit.static_runtime.arrays import address_of

_NAME = "gpujit_clock"
# Seconds and nanoseconds.
_WORDS = 2


def _clock_ir() -> str:
    return f"""
declare i32 @clock_gettime(i32, ptr)

; A step whose block gets the time. One thread of the team looks at the clock.
define void @{_NAME}(ptr %block, i64 %part, i64 %parts) {{
  %first = icmp eq i64 %part, 0
  br i1 %first, label %look, label %out
look:
  %failed = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %block)
  br label %out
out:
  ret void
}}
"""


@cache
def _library() -> Library:
    code = _clock_ir()
    return supply.module(code, lambda: code, TIDY)


class Timed:
    """Steps with the clock's step between them: ``functions``, ``blocks`` and ``count`` are what to run instead.

    Args:
        functions, blocks: addresses of the steps' functions and blocks.
    """

    def __init__(self, functions: Sequence[int], blocks: Sequence[int]) -> None:
        steps = len(functions)
        self.count = 2 * steps + 1
        self._times = np.zeros((steps + 1, _WORDS), np.int64)
        self._functions, self._blocks = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        self._functions[0::2], self._functions[1::2] = _library().address(_NAME), functions
        first = address_of(self._times)
        self._blocks[0::2] = [first + 8 * _WORDS * k for k in range(steps + 1)]
        self._blocks[1::2] = blocks
        self.functions, self.blocks = address_of(self._functions), address_of(self._blocks)

    def seconds(self) -> list[float]:
        """What each step took in the last run."""
        elapsed = np.diff(self._times, axis=0)
        return [float(s) for s in elapsed[:, 0] + elapsed[:, 1] * 1e-9]


def words_at(address: int, count: int) -> list[int]:
    """So many int64 words of memory."""
    return list((ctypes.c_int64 * count).from_address(address))
