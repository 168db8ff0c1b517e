"""Calling CPU kernels: compiled once for each nest, run on arrays by the worker team."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.kernels.cpu import render
from gpujit.kernels.cpu_nest import Nest, NestCall, plan_nest
from gpujit.kernels.native import TIDY, Library, compile_ir
from gpujit.kernels.target import host
from gpujit.kernels.team import team
from gpujit.kernels.tile import Check, TileProgram
from gpujit.support.errors import OpError

# Elements times instructions below which a kernel runs on the caller's thread: waking the team costs about as much.
WORTH_A_TEAM = 60_000
LIMIT = 4096

_kernels: OrderedDict[str, tuple[int, Library]] = OrderedDict()
_lock = threading.Lock()


def kernel_address(nest: Nest) -> int:
    """The address of the nest's kernel, compiled when it is new. Raises NotRendered."""
    key = nest.key
    with _lock:
        found = _kernels.get(key)
    if found is None:
        library = Library(compile_ir([render(nest)], optimise=TIDY))
        found = (library.address("kernel"), library)
        with _lock:
            found = _kernels.setdefault(key, found)
    return found[0]


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
        self.call: NestCall = plan_nest(program, inputs, outputs, sizes, params, host().width)
        nest = self.call.nest
        self.address = kernel_address(nest)
        self.words = np.array(self.call.words, np.int64)
        self.arrays = len(program.inputs) + len(program.outputs)
        self.scratch = self.words[nest.slots["scratch_bytes"]].item()
        self.checks = [c for c in nest.program.effects if isinstance(c, Check)]
        self.is_small = self.call.work < WORTH_A_TEAM or self.call.tasks < 2
        self._function = np.array([self.address], np.int64)
        self._slots = nest.slots

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Run on the arrays, inputs first. Raises OpError with the message of a check that fails."""
        block = self.words.copy()
        for k, x in enumerate(arrays):
            block[k] = x.__array_interface__["data"][0]
        flags = scratch = None
        parts = team()
        if self.scratch:
            scratch = np.empty(self.scratch * parts.size, np.uint8)
            block[self._slots["scratch"]] = scratch.ctypes.data
        if self.checks:
            flags = np.zeros(len(self.checks), np.int64)
            block[self._slots["flags"]] = flags.ctypes.data
        parts.launch(self._function, block, alone=self.is_small)
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
