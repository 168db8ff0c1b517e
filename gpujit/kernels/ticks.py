"""Taking the time between native steps, inside the loop that runs them: a count of the processor's clock for each.

``run_address`` is that of the team's ``run`` with a look at the clock after each step. The two words before the blocks
it is given are addresses in a table of int64: where rows of times end, and where the next row goes. A row has a count
for the start and one after each step. When there is no room for another row, the last one is written over.

Off costs nothing: these are functions of their own, compiled when a profile is first taken.
"""

from __future__ import annotations

import ctypes
import platform
import time
from functools import cache
from pathlib import Path

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.native import Library
from gpujit.kernels.team_code import declarations, run_ir, steps_ir

_CPUINFO = Path("/proc/cpuinfo")
# Words before the blocks.
LIMIT, CURSOR, WORDS = 0, 1, 2
# Nanoseconds between two looks at both clocks that make an error of one look not matter.
_LEAST_DISTANCE = 20_000_000


def has_steady_counter(cpuinfo: str) -> bool:
    """Whether the processor counts at one rate, in sleep as well; the system's clock is asked where it does not."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return {"constant_tsc", "nonstop_tsc"} <= set(flags)


@cache
def _counts() -> bool:
    try:
        return has_steady_counter(_CPUINFO.read_text())
    except OSError:
        return False


def ticks_ir(counts: bool) -> str:
    """LLVM IR of ``gpujit_ticks()`` and ``gpujit_team_run_timed``; ``counts``: by the processor's counter."""
    look = "call i64 @llvm.readcyclecounter()" if counts else "call i64 @now()"
    return f"""{declarations()}
declare i64 @llvm.readcyclecounter()

define i64 @gpujit_ticks() {{
  %t = {look}
  ret i64 %t
}}

define internal void @note(ptr %row, i64 %n) alwaysinline {{
  %at = getelementptr i64, ptr %row, i64 %n
  %t = {look}
  store i64 %t, ptr %at
  ret void
}}

define internal ptr @begin_row(ptr %blocks) alwaysinline {{
  %cursor = getelementptr ptr, ptr %blocks, i64 {CURSOR - WORDS}
  %row = load ptr, ptr %cursor
  ret ptr %row
}}

define internal void @end_row(ptr %blocks, i64 %count) alwaysinline {{
  %cursor = getelementptr ptr, ptr %blocks, i64 {CURSOR - WORDS}
  %limit.at = getelementptr ptr, ptr %blocks, i64 {LIMIT - WORDS}
  %row = load ptr, ptr %cursor
  %limit = load ptr, ptr %limit.at
  %words = add i64 %count, 1
  %next = getelementptr i64, ptr %row, i64 %words
  %fits = icmp ult ptr %next, %limit
  %new = select i1 %fits, ptr %next, ptr %row
  store ptr %new, ptr %cursor
  ret void
}}
{steps_ir(is_timed=True)}
{run_ir("gpujit_team_run_timed", is_timed=True)}
"""


@cache
def _library() -> Library:
    code = ticks_ir(_counts())
    return supply.module(f"timed worker team\n{code}", lambda: code, optimise=1)


def run_address() -> int:
    """The address of the timed ``run``."""
    return _library().address("gpujit_team_run_timed")


_TICKS = ctypes.CFUNCTYPE(ctypes.c_int64)


class Ticks:
    """Counts of the clock as nanoseconds of ``time.perf_counter_ns``."""

    def __init__(self) -> None:
        self._look = _TICKS(_library().address("gpujit_ticks"))
        self._first = self._both()

    def _both(self) -> tuple[int, int]:
        """Both clocks at the same time, as nearly as can be had."""
        best = None
        for _ in range(8):
            before = time.perf_counter_ns()
            count = self._look()
            after = time.perf_counter_ns()
            if best is None or after - before < best[0]:
                best = (after - before, count, (before + after) // 2)
        assert best is not None
        return best[1], best[2]

    def nanoseconds(self, counts: np.ndarray) -> np.ndarray:
        """Times of counts, as float64 nanoseconds."""
        count, now = self._both()
        if now - self._first[1] < _LEAST_DISTANCE:
            time.sleep((_LEAST_DISTANCE - now + self._first[1]) / 1e9)
            count, now = self._both()
        rate = (now - self._first[1]) / (count - self._first[0])
        return self._first[1] + (counts - self._first[0]) * rate


@cache
def ticks() -> Ticks:
    """The process's clock."""
    return Ticks()
