"""A GpuDevice in host memory that notes what is asked of it, and runs kernels thread by thread in plain Python.

Its arrays are no NumPy arrays, so that nothing is taken to be on the host unasked. Allocations fail while it captures.
It needs neither Numba nor its simulator; kernels whose threads talk to each other cannot run on it, so its limits leave
every row to one thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpujit.ir.values import DeviceTensor
from gpujit.kernels import cuda_simulated
from gpujit.kernels.cuda_tile import Limits
from gpujit.kernels.launches import Attention, Convolution, DeviceKernel, Gemm, Launch, LibraryCall
from gpujit.kernels.numba_cuda import DEVICE_NAMES
from gpujit.runtime.device import At, Call, OutOfMemory
from gpujit.runtime.simulated_device import HostBacked, HostMemory
from gpujit.support.errors import DeviceError

LIMITS = Limits(block=1, row_block=1, warp=1, kept=4, busy=1, split=1 << 20)
DEFAULT_STREAM, CAPTURING = 0, 100


class DeviceArray:
    """An array of the device's, as callers see it: ``get`` copies it to the host."""

    def __init__(self, device: RecordingDevice, tensor: DeviceTensor) -> None:
        self.device, self.tensor = device, tensor
        self.shape, self.strides, self.dtype = tensor.shape, tensor.strides, tensor.dtype
        self.owner = tensor.owner

    def get(self) -> np.ndarray:
        """A copy in host memory."""
        return self.device.view(self.tensor).copy()


class RecordingDevice(HostBacked):
    """``events`` are tuples: what was done, on which stream, and what tells it from others of its kind."""

    limits = LIMITS
    workspace = 512

    def __init__(self, name: str = "cuda:0") -> None:
        super().__init__()
        self.name, self.pid = name, os.getpid()
        self.description = "a device that records"
        self.capture_refusal = ""
        self.events: list[tuple[Any, ...]] = []
        self.current = DEFAULT_STREAM
        self.destroyed: set[int] = set()
        # Allocations above so many bytes fail; and captures end so.
        self.most_bytes = 1 << 40
        # Allocations fail beyond so many bytes in all.
        self.capacity = 1 << 40
        self.capture_fault = ""
        # Bytes that a library works in, or why there is none; and what its calls end so.
        self.library_room: int | str = "no library is installed"
        self.library_fault = ""
        self.refused: set[str] = set()
        self._recorded: list[Callable[[], None]] | None = None
        # Events recorded so far: the device's clock.
        self.ticks = 0

    def of(self, x: np.ndarray) -> DeviceArray:
        """A copy of a host array on the device, with its very strides."""
        low, high = np.lib.array_utils.byte_bounds(x) if x.size else (0, 0)
        first = x.__array_interface__["data"][0] - low if x.size else 0
        memory = super().allocate(high - low + 1)
        tensor = DeviceTensor(memory.address + first, x.shape, x.strides, x.dtype, memory)
        if x.size:
            self.view(tensor)[...] = x
        return DeviceArray(self, tensor)

    def used(self) -> int:
        """Bytes that are allocated."""
        return sum(m.nbytes for m in (ref() for ref in list(self._memory.values())) if m is not None)

    def kinds(self) -> list[str]:
        """What was done, in order."""
        return [e[0] for e in self.events]

    def forget(self) -> None:
        """Begin with an empty list."""
        self.events.clear()

    def note(self, what: str, stream: Any, *more: Any) -> None:
        """Write down what is asked for on a stream. Raises DeviceError when that was destroyed."""
        self.events.append((what, stream, *more))
        if stream in self.destroyed:
            raise DeviceError(f"{self.name}: the current stream was destroyed")

    # GpuDevice

    @contextmanager
    def here(self) -> Iterator[None]:
        yield

    def allocate(self, nbytes: int) -> HostMemory:
        assert self._recorded is None, "an allocation while a graph is captured"
        self.note("allocate", None, nbytes)
        if nbytes > self.most_bytes or nbytes + self.used() > self.capacity:
            raise OutOfMemory(nbytes, self.most_bytes, 2 * self.most_bytes)
        return super().allocate(nbytes)

    def tensor(self, value: Any) -> DeviceTensor | None:
        if not isinstance(value, DeviceArray):
            return None
        if value.device is not self:
            raise DeviceError(
                f"an array on {value.device.name}, while the module is on {self.name}; copy it there first"
            )
        return value.tensor

    def array(self, tensor: DeviceTensor) -> DeviceArray:
        return DeviceArray(self, tensor)

    def upload(self, address: int, array: np.ndarray, stream: Any) -> None:
        assert self._recorded is None
        self.note("upload", stream, array.nbytes)
        self.copy_in(address, array)

    def download(self, address: int, array: np.ndarray, stream: Any) -> None:
        assert self._recorded is None
        self.note("download", stream, array.nbytes)
        self.copy_out(address, array)

    def copy(self, target: DeviceTensor, source: DeviceTensor, stream: Any) -> None:
        assert (target.shape, target.dtype) == (source.shape, source.dtype)
        self.note("copy", stream, target.nbytes)
        self.view(target)[...] = self.view(source)

    def zero(self, address: int, nbytes: int, stream: Any) -> None:
        self.note("zero", stream, nbytes)
        self.fill(address, nbytes)

    def compile(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        self.note("compile", None, len(kernels))
        return {k for k in kernels if k.label in self.refused}

    def launch(self, launch: Launch, at: At) -> Call:
        arguments = self.pointers(launch, at, cuda_simulated.Pointer)
        run = run_source(launch.kernel.source, launch.grid, launch.kernel.block, arguments)
        return self._call("launch", run, launch.kernel.label, *[at(x.array) for x in launch.arguments[:1]])  # type: ignore[union-attr]

    def gemm(self, gemm: Gemm, at: At, workspace: int) -> Call:
        assert workspace
        return self._call("gemm", self.product(gemm, at), gemm.dtype.name, at(gemm.out.at.array))

    def room(self, work: Convolution | Attention) -> int | str:
        self.note("room", None, work)
        return self.library_room

    def library(self, call: LibraryCall, at: At) -> Call:
        assert isinstance(self.library_room, int), "a library is called that has said that it does not do it"
        assert call.room == self.library_room
        workspace = at(call.workspace.array) + call.workspace.offset
        memory, start = self.memory_at(workspace)
        assert start + self.library_room <= len(memory) and workspace % 16 == 0
        work = self.done(call, at)

        def run() -> None:
            if self.library_fault:
                raise DeviceError(self.library_fault)
            # What it works in is its own.
            memory[start : start + self.library_room] = 0xA5
            work()

        return self._call("library", run, call.work, workspace)

    def _call(self, what: str, work: Callable[[], None], *more: Any) -> Call:
        def call(stream: Any) -> None:
            self.note(what, stream, *more)
            if self._recorded is None:
                assert stream != CAPTURING
                work()
            else:
                assert stream == CAPTURING
                self._recorded.append(work)

        return call

    def stream(self) -> int:
        return self.current

    def follow(self, stream: Any, before: Any) -> None:
        self.note("follow", stream, before)

    def synchronise(self, stream: Any) -> None:
        self.note("synchronise", stream)

    def event(self) -> list[int]:
        self.note("event", None)
        return [-1]

    def record(self, event: list[int], stream: Any) -> None:
        assert self._recorded is None, "an event's time is not taken in a graph"
        self.note("record", stream)
        self.ticks += 1
        event[0] = self.ticks

    def elapsed(self, start: list[int], end: list[int]) -> float:
        """Nanoseconds: one for each event that was recorded in between."""
        assert start[0] >= 0 and end[0] >= 0, "an event that was not recorded"
        return float(end[0] - start[0])

    def begin_capture(self) -> int:
        self.note("begin", CAPTURING)
        self._recorded = []
        return CAPTURING

    def end_capture(self, stream: Any) -> Any:
        self.note("end", stream)
        graph, self._recorded = self._recorded, None
        if self.capture_fault:
            raise DeviceError(self.capture_fault)
        return graph

    def replay(self, graph: Any, stream: Any) -> None:
        self.note("replay", stream)
        for work in graph:
            work()


def transfers(device: RecordingDevice) -> list[tuple[str, int]]:
    """What was copied between the host and the device, with the bytes."""
    return [(e[0], e[2]) for e in device.events if e[0] in ("upload", "download")]


def run_source(source: str, grid: int, block: int, arguments: list[Any]) -> Callable[[], None]:
    """A kernel's threads one behind the other, which must not wait for each other."""
    cuda = SimpleNamespace(
        jit=lambda f: f,
        threadIdx=SimpleNamespace(x=0),
        blockIdx=SimpleNamespace(x=0),
        gridDim=SimpleNamespace(x=grid),
        blockDim=SimpleNamespace(x=block),
    )
    names: dict[str, Any] = {name: getattr(cuda_simulated, name) for name in DEVICE_NAMES} | {"cuda": cuda}
    body = re.sub(r"^from .*? import (\((?s:.*?)\)|.*)$", "", source, flags=re.MULTILINE)
    exec(compile(body, "<kernel>", "exec"), names)

    def run() -> None:
        with np.errstate(all="ignore"):
            for cuda.blockIdx.x in range(grid):
                for cuda.threadIdx.x in range(block):
                    names["kernel"](*arguments)

    return run
