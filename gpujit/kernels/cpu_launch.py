"""Calling CPU kernels: compiled once for each nest, run on arrays by the worker team."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.autotune import tuned
from gpujit.kernels.cpu_nest import BY_RULE, Geometry, NestCall
from gpujit.kernels.cpu_plan import WORTH_A_TEAM, plan_nest
from gpujit.kernels.target import host
from gpujit.kernels.team import READS_OBJECTS, alone, caller, team
from gpujit.kernels.tile import Check, TileProgram
from gpujit.support.config import config
from gpujit.support.errors import InternalError, OpError

MAX_PLANNED = 512


# What ``prepare`` has planned, by the program's identity and the rest; bound kernels take it from here.
_planned: dict[Any, tuple[Geometry, NestCall]] = {}


def plan(geometry: Geometry) -> NestCall:
    """How this machine runs a program on arrays of such strides. Raises NotRendered."""
    found = _planned.pop((id(geometry.program), *geometry[1:], host().width), None)
    if found is not None:
        return found[1]
    return plan_nest(*geometry, host().width, tuned(geometry) if config.autotune else BY_RULE)


def prepare(geometries: Iterable[Geometry]) -> None:
    """Have the kernels of a plan ready: loaded from one file, or compiled side by side.

    What cannot be compiled is left out; binding it says why.
    """
    nests = []
    for geometry in geometries:
        try:
            call = plan(geometry)
        except InternalError:
            continue
        if len(_planned) >= MAX_PLANNED:
            _planned.clear()
        # With the geometry, so that the program and its identity stay.
        _planned[(id(geometry.program), *geometry[1:], host().width)] = geometry, call
        nests.append(call.nest)
    supply.prepare(nests)


def strides_of(x: np.ndarray) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // x.itemsize for s in x.strides)


class BoundKernel:
    """A program for arrays of certain strides and sizes, ready to be called with other arrays of the same geometry.

    Threads may call one at the same time.
    """

    def __init__(
        self,
        program: TileProgram,
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        sizes: Sequence[int],
        params: Sequence[int] = (),
    ) -> None:
        self.call = plan(
            Geometry(program, tuple(map(tuple, inputs)), tuple(map(tuple, outputs)), tuple(sizes), tuple(params))
        )
        nest = self.call.nest
        self.address = supply.address(nest)
        self.words = self.call.words
        self.arrays = len(program.inputs) + len(program.outputs)
        self.scratch = self.words[nest.slots["scratch_bytes"]]
        self.checks = [c for c in nest.program.effects if isinstance(c, Check)]
        self.is_small = self.call.work < WORTH_A_TEAM or self.call.tasks < 2
        self._scratch_slot, self._flags_slot = nest.slots["scratch"], nest.slots["flags"]
        self._call, self._alone = caller(), alone()
        self._block = ctypes.c_int64 * len(self.words)
        # Blocks that no call uses just now, with their addresses.
        self._free: list[tuple[Any, int]] = []

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Run on the arrays, inputs first. Raises OpError with the message of a check that fails."""
        try:
            block, address = self._free.pop()
        except IndexError:
            block = self._block(*self.words)
            address = ctypes.addressof(block)
        k = 0
        for x in arrays:
            block[k] = id(x) if READS_OBJECTS else x.ctypes.data
            k += 1
        parts, workers = 1, self._alone
        if not self.is_small:
            threads = team()
            parts, workers = threads.size, threads.address
        flags = scratch = None
        if self.scratch:
            scratch = np.empty(self.scratch * parts, np.uint8)
            block[self._scratch_slot] = scratch.ctypes.data
        if self.checks:
            flags = np.zeros(len(self.checks), np.int64)
            block[self._flags_slot] = flags.ctypes.data
        self._call(workers, self.address, address, k if READS_OBJECTS else 0)
        self._free.append((block, address))
        if flags is not None and flags.any():
            raise OpError(self.checks[int(flags.argmax())].message)


def run(
    program: TileProgram,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    sizes: Sequence[int],
    params: Sequence[int] = (),
) -> None:
    """Run a program on arrays, as ``kernels.reference.run`` does."""
    bound = BoundKernel(program, [strides_of(x) for x in inputs], [strides_of(x) for x in outputs], sizes, params)
    bound([*inputs, *outputs])
