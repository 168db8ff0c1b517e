"""Seconds that steps take on a device: runs of them back to back, recorded as a graph where that can be done, so that
the host's part does not count. A DeviceTimer looks at the host's clock, a CallTimer at events on the stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpujit.kernels.launches import FLAGS, SCRATCH, DeviceKernel, DeviceStep
from gpujit.runtime.device import Call, GpuDevice, Handle, Memory, OutOfMemory, bound, no_memory
from gpujit.support.config import config
from gpujit.support.errors import DeviceError

# Runs in a graph, replays of it between two looks at the clock, and how often that is done.
RUNS, REPLAYS, ROUNDS = 16, 8, 3
# Seconds that runs between two events take at least, and how many runs and calls these are at most.
LEAST, MOST_RUNS, MOST_CALLS = 2e-4, 64, 1024


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
            work = StepWork(device, step, nbytes, stream)
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

    def _graph(self, work: StepWork, stream: Handle) -> Callable[[], None] | None:
        """What replays several runs; None where nothing can be recorded."""
        graph = recorded(self.device, partial(self._often, work))
        return None if graph is None else partial(self.device.replay, graph, stream)

    def _often(self, work: StepWork, stream: Handle) -> None:
        for _ in range(self._runs):
            work.run(stream)


def recorded(device: GpuDevice, put: Callable[[Handle], None]) -> Handle | None:
    """The graph of what is put on a stream; None where nothing can be recorded."""
    if device.capture_refusal or "graphs" in config.disable:
        return None
    capture = device.begin_capture()
    try:
        put(capture)
    finally:
        try:
            graph = device.end_capture(capture)
        except DeviceError:
            graph = None
    return graph


class CallTimer:
    """Seconds of some calls by events: of runs that come right behind others, so that the device does not wait."""

    def __init__(self, device: GpuDevice, calls: Sequence[Call], is_recorded: bool = True) -> None:
        """Runs the calls a few times; in a graph unless ``is_recorded`` is False. Raises DeviceError."""
        self.device, self._calls, self._runs = device, calls, 1
        self._graph: Handle | None = None
        stream = device.stream()
        self._first, self._last = device.event(), device.event()
        for _ in range(2):
            # The first run may do what is done once.
            seconds = self.seconds()
        most = max(min(MOST_RUNS, MOST_CALLS // max(len(calls), 1)), 1)
        self._runs = max(min(most, int(LEAST / max(seconds, 1e-9))), 1)
        self._graph = recorded(device, self._often) if is_recorded else None
        device.synchronise(stream)

    def seconds(self) -> float:
        """What one run takes now."""
        device = self.device
        stream = device.stream()
        self._repeat(stream)
        device.record(self._first, stream)
        self._repeat(stream)
        device.record(self._last, stream)
        device.synchronise(stream)
        return device.elapsed(self._first, self._last) / 1e9 / self._runs

    def _repeat(self, stream: Handle) -> None:
        if self._graph is None:
            self._often(stream)
        else:
            self.device.replay(self._graph, stream)

    def _often(self, stream: Handle) -> None:
        for _ in range(self._runs):
            for call in self._calls:
                call(stream)


class StepWork:
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
        self.calls = [bound(device, call, self._at, self._workspace.address) for call in step.calls]

    def _at(self, number: int) -> int:
        return (self._own[number] if number < 0 else self._memory[number]).address

    def run(self, stream: Handle) -> None:
        """Put the calls on a stream."""
        for call in self.calls:
            call(stream)


def _allocated(device: GpuDevice, nbytes: int) -> Memory:
    try:
        return device.allocate(nbytes)
    except OutOfMemory as fault:
        raise no_memory(device, fault, "arrays to measure a kernel on") from None
