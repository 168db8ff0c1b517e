"""The machine kernels are compiled for: its name, its vector width, the special instructions worth using."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm

from gpujit.support.config import config
from gpujit.support.errors import ArgumentError

WIDTHS = (1, 4, 8, 16)
# Turns of a waiting loop before a thread inside a job gives its processor to another.
SPINS_BEFORE_YIELD = 2_000


class Target(NamedTuple):
    """``width`` is the number of float32 lanes in a vector; ``avx512`` tells whether its scalef and rcp14 are there."""

    triple: str
    cpu: str
    features: str
    width: int
    avx512: bool

    def lanes(self, bits: int) -> int:
        """How many elements of ``bits`` bits one vector register holds, at least one."""
        return max(self.width * 32 // bits, 1)


@cache
def _machine() -> tuple[str, str, str, int, bool]:
    flags = llvm.get_host_cpu_features()
    triple = llvm.get_process_triple()
    has = {name for name, present in flags.items() if present}
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= has:
        width = 16
    elif "avx2" in has:
        width = 8
    else:
        # SSE2 and NEON: 128 bits, which LLVM emulates where a machine has no vectors.
        width = 4
    return triple, llvm.get_host_cpu_name(), flags.flatten(), width, width == 16


def host() -> Target:
    """This machine, with the width that GPUJIT_SIMD_WIDTH asks for. Raises ArgumentError for a width there is not."""
    triple, cpu, features, width, avx512 = _machine()
    wanted = config.simd_width
    if wanted is not None:
        if wanted not in WIDTHS:
            raise ArgumentError(f"GPUJIT_SIMD_WIDTH={wanted}: a vector has {', '.join(map(str, WIDTHS))} floats")
        width = wanted
    return Target(triple, cpu, features, width, avx512)
