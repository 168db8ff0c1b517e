"""Seconds that steps take on a device: runs of them back to back, recorded as a graph where that can be done, so that
the host's part does not count."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpujit.kernels.launches import FLAGS, SCRATCH, DeviceKernel, DeviceStep
from gpujit.runtime.device import GpuDevice, Handle, Memory, OutOfMemory, bound, no_memory
from gpujit.support.errors import DeviceError

# Runs in a graph, replays of it between two looks at the clock, and how often that is done.
RUNS, REPLAYS, ROUNDS = 16, 8, 3


class DeviceTimer:
    """A device as ``cuda_autotune`` asks it. ``name``: the card and its driver. ``counts``: see RUNS, above."""

    def __init__(
        self,
        device: GpuDevice,
        clock: Callable[[], float] = time.perf_counter,
        counts: tuple[int, int, int] | None = None,
    ) -> None:
        self.device, self.name, self._clock = device, device.description, clock
        self._runs, self._replays, self._rounds = counts or (RUNS, REPLAYS, ROUNDS)

    def refused(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        """Compile kernels; those of them that cannot be."""
        return self.device.compile(kernels)

    def seconds(self, step: DeviceStep, nbytes: Sequence[int]) -> float:
        """The time of one run of a step on zeroed arrays of so many bytes, from its operands to its results.

        Raises DeviceError when there is no memory for them, or no library for a call.
        """
        device = self.device
        with device.here():
            stream = device.stream()
            work = _Work(device, step, nbytes, stream)
            work.run(stream)
            device.synchronise(stream)
            repeat = self._graph(work, stream) or partial(self._often, work, stream)
            repeat()
            device.synchronise(stream)
            best = float("inf")
            for _ in range(self._rounds):
                start = self._clock()
                for _ in range(self._replays):
                    repeat()
                device.synchronise(stream)
                best = min(best, self._clock() - start)
        return best / (self._replays * self._runs)

    def _graph(self, work: _Work, stream: Handle) -> Callable[[], None] | None:
        """What replays several runs; None where nothing can be recorded."""
        device = self.device
        if device.capture_refusal:
            return None
        capture = device.begin_capture()
        try:
            self._often(work, capture)
        finally:
            try:
                graph = device.end_capture(capture)
            except DeviceError:
                graph = None
        return None if graph is None else partial(device.replay, graph, stream)

    def _often(self, work: _Work, stream: Handle) -> None:
        for _ in range(self._runs):
            work.run(stream)


class _Work:
    """The calls of a step with memory of their own."""

    def __init__(self, device: GpuDevice, step: DeviceStep, nbytes: Sequence[int], stream: Handle) -> None:
        sizes = [*nbytes, *(x.nbytes for x in step.constants)]
        self._memory = [_allocated(device, n) for n in sizes]
        for memory in self._memory[: len(nbytes)]:
            if memory.nbytes:
                device.zero(memory.address, memory.nbytes, stream)
        for memory, constant in zip(self._memory[len(nbytes) :], step.constants, strict=True):
            if constant.nbytes:
                device.upload(memory.address, np.ascontiguousarray(constant), stream)
        own = {SCRATCH: max(step.scratch, 1), FLAGS: 4 * max(len(step.checks), 1)}
        self._own = {number: _allocated(device, n) for number, n in own.items()}
        device.zero(self._own[FLAGS].address, own[FLAGS], stream)
        self._workspace = _allocated(device, max(device.workspace, 1))
        self._calls = [bound(device, call, self._at, self._workspace.address) for call in step.calls]

    def _at(self, number: int) -> int:
        return (self._own[number] if number < 0 else self._memory[number]).address

    def run(self, stream: Handle) -> None:
        """Put the calls on a stream."""
        for call in self._calls:
            call(stream)


def _allocated(device: GpuDevice, nbytes: int) -> Memory:
    try:
        return device.allocate(nbytes)
    except OutOfMemory as fault:
        raise no_memory(device, fault, "arrays to measure a kernel on") from None
