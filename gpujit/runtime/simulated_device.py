"""A CUDA device in host memory: kernels run in Numba's simulator, calls of libraries through NumPy.

All is done at once, so that streams are numbers without a meaning; a graph is a list of the calls that were recorded.
Addresses are those of host memory, which is written and read within allocations only.
"""

from __future__ import annotations

import bisect
import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from gpujit.ir.values import DeviceTensor
from gpujit.kernels.cuda_launch import simulated
from gpujit.kernels.cuda_tile import Limits
from gpujit.kernels.launches import (
    Address,
    Attention,
    Convolution,
    DeviceKernel,
    Gemm,
    Launch,
    LibraryCall,
    Matrix,
)
from gpujit.ops import table
from gpujit.runtime.device import ALIGN, At, Call, Handle
from gpujit.support.errors import DeviceError, InternalError

# A thread of the simulator takes a third of a millisecond.
LIMITS = Limits(block=16, row_block=16, warp=4, kept=8, busy=64, split=1)
BLOCKS = 2
# The simulator puts a module of its own into the kernel's for as long as that runs.
_running = threading.Lock()


class HostMemory:
    """Memory of a device that is none."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._room = np.full(nbytes + ALIGN, 0xC5, np.uint8)
        start = -self._room.ctypes.data % ALIGN
        self.bytes = self._room[start : start + max(nbytes, 1)]
        self.address = int(self.bytes.ctypes.data)


class HostBacked:
    """Host memory behind the methods of GpuDevice that move data, and NumPy behind those of libraries."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._memory: dict[int, weakref.ref[HostMemory]] = {}
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> HostMemory:
        """See GpuDevice."""
        found = HostMemory(nbytes)
        with self._lock:
            bisect.insort(self._starts, found.address)
            self._memory[found.address] = weakref.ref(found, partial(self._gone, found.address))
        return found

    def _gone(self, address: int, ref: weakref.ref[HostMemory]) -> None:
        with self._lock:
            if self._memory.get(address) is ref:
                del self._memory[address]
                self._starts.remove(address)

    def memory_at(self, address: int) -> tuple[np.ndarray, int]:
        """The bytes of the allocation that an address lies in, and the place in it. Raises InternalError."""
        with self._lock:
            k = bisect.bisect_right(self._starts, address) - 1
            found = self._memory[self._starts[k]]() if k >= 0 else None
        if found is None or address > found.address + found.nbytes:
            raise InternalError(f"address {address:#x} is in no allocation of the device")
        return found.bytes, address - found.address

    def elements(self, address: int, dtype: Any, offset: int = 0) -> tuple[np.ndarray, int]:
        """The allocation around an address as elements, and the number of the one ``offset`` bytes behind it."""
        memory, start = self.memory_at(address)
        size = np.dtype(dtype).itemsize
        shift = (start + offset) % size
        whole = memory[shift : shift + (len(memory) - shift) // size * size]
        return whole.view(dtype), (start + offset - shift) // size

    def view(self, x: DeviceTensor) -> np.ndarray:
        """A tensor's memory as an array."""
        if not x.nbytes:
            return np.empty(x.shape, x.dtype)
        memory, start = self.memory_at(x.address)
        return np.ndarray(x.shape, x.dtype, memory, start, x.strides)

    def copy_in(self, address: int, array: np.ndarray) -> None:
        """Host to device."""
        memory, start = self.memory_at(address)
        memory[start : start + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def copy_out(self, address: int, array: np.ndarray) -> None:
        """Device to host."""
        memory, start = self.memory_at(address)
        array[...] = np.frombuffer(memory[start : start + array.nbytes].tobytes(), array.dtype).reshape(array.shape)

    def fill(self, address: int, nbytes: int) -> None:
        """Zeros."""
        memory, start = self.memory_at(address)
        memory[start : start + nbytes] = 0

    # Libraries

    def product(self, call: Gemm, at: At) -> Callable[[], None]:
        """A Gemm through NumPy, sums of half types in float32."""
        wide: Any = np.float64 if call.dtype == np.float64 else np.float32
        a, b, out = (self._matrix(m, call, at) for m in (call.a, call.b, call.out))
        bias = None
        if call.bias is not None:
            flat, first = self.elements(at(call.bias.array), call.dtype, call.bias.offset)
            bias = flat[first : first + call.out.columns]
        gelu = table.by_full_name("aten::gelu")
        assert gelu is not None

        def run() -> None:
            with np.errstate(all="ignore"):
                found: Any = np.matmul(a.astype(wide), b.astype(wide)) * wide(call.alpha)
                if call.beta:
                    found = found + out.astype(wide) * wide(call.beta)
                if bias is not None:
                    found = found + bias.astype(wide)
                if call.ending == "relu":
                    found = np.maximum(found, 0)
                elif call.ending == "gelu":
                    found = gelu.kernel(np)(found, "none")
                out[...] = found.astype(call.dtype)

        return run

    def _matrix(self, m: Matrix, call: Gemm, at: At) -> np.ndarray:
        flat, first = self.elements(at(m.at.array), call.dtype, m.at.offset)
        size = call.dtype.itemsize
        last = first + (call.batches - 1) * m.batch + (m.rows - 1) * m.row + (m.columns - 1) * m.column
        if not 0 <= first <= last < len(flat):
            raise InternalError(f"a matrix leaves its memory: {m}")
        shape = (call.batches, m.rows, m.columns)
        return np.ndarray(shape, call.dtype, flat, first * size, (m.batch * size, m.row * size, m.column * size))

    def done(self, call: LibraryCall, at: At) -> Callable[[], None]:
        """A library's call through NumPy."""
        work = call.work
        size = work.dtype.itemsize
        arrays = [
            self.view(DeviceTensor(at(p.array) + p.offset, x.shape, tuple(s * size for s in x.steps), work.dtype, None))
            for p, x in zip(call.arrays, work.layouts, strict=True)
        ]

        def run() -> None:
            with np.errstate(all="ignore"):
                do_work(work, arrays)

        return run

    def pointers(self, call: Launch, at: At, pointer: Callable[..., Any]) -> list[Any]:
        """The arguments of a launch for the simulator."""
        found: list[Any] = []
        for x, kind in zip(call.arguments, call.kernel.arguments, strict=True):
            if isinstance(x, Address):
                flat, first = self.elements(at(x.array), np.dtype(kind[1:]), x.offset % np.dtype(kind[1:]).itemsize)
                found.append(pointer(flat, first + x.offset // np.dtype(kind[1:]).itemsize))
            else:
                found.append(np.dtype(kind).type(x.value))
        return found


def do_work(work: Convolution | Attention, arrays: Sequence[np.ndarray]) -> None:
    """What a library does, on arrays as ``work.layouts`` tells of them."""
    *operands, out = arrays
    if isinstance(work, Convolution):
        op = table.by_full_name(f"aten::conv{len(work.stride)}d")
        assert op is not None
        x, weight, bias = operands[0], operands[1], operands[2] if work.has_bias else None
        around = [(0, 0), (0, 0), *zip(work.before, work.after, strict=True)]
        numbers = [list(work.stride), [0] * len(work.stride), list(work.dilation), work.groups]
        out[...] = op.kernel(np)(np.pad(x, around), weight, None if bias is None else bias.ravel(), *numbers)
        return
    op = table.by_full_name("aten::scaled_dot_product_attention")
    assert op is not None
    q, k, v = operands[:3]
    added = None if work.bias is None else operands[3]
    out[...] = op.kernel(np)(q, k, v, added, 0.0, work.is_causal, work.scale, q.shape[1] != k.shape[1])


class SimulatedDevice(HostBacked):
    """A GpuDevice for which Numba's simulator runs the kernels."""

    limits = LIMITS
    capture_refusal = ""
    workspace = 0

    def __init__(self, index: int) -> None:
        super().__init__()
        self.name, self.pid = f"cuda:{index}", os.getpid()
        self.description = "Numba's CUDA simulator, in host memory"
        self._pointer = importlib.import_module("gpujit.kernels.cuda_simulated").Pointer
        # Calls recorded by each thread that captures, None for those that do not.
        self._recorded = threading.local()

    def here(self) -> AbstractContextManager[None]:
        """See GpuDevice."""
        return nullcontext()

    def compile(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        """See GpuDevice."""
        return set()

    def tensor(self, value: Any) -> DeviceTensor | None:
        """See GpuDevice; arrays of the simulator are host arrays."""
        if hasattr(value, "__cuda_array_interface__"):
            raise DeviceError(f"an array on a GPU, while {self.name} is {self.description}; copy it to the host first")
        return None

    def array(self, tensor: DeviceTensor) -> Any:
        """See GpuDevice: an array of NumPy's."""
        return self.view(tensor)

    def upload(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """See GpuDevice."""
        self.copy_in(address, array)

    def download(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """See GpuDevice."""
        self.copy_out(address, array)

    def copy(self, target: DeviceTensor, source: DeviceTensor, stream: Handle) -> None:
        """See GpuDevice."""
        self.view(target)[...] = self.view(source)

    def zero(self, address: int, nbytes: int, stream: Handle) -> None:
        """See GpuDevice."""
        self.fill(address, nbytes)

    def launch(self, launch: Launch, at: At) -> Call:
        """See GpuDevice."""
        function: Any = simulated(launch.kernel.source)
        arguments = self.pointers(launch, at, self._pointer)
        shape = (min(launch.grid, BLOCKS), launch.kernel.block)

        def work() -> None:
            with _running:
                function[shape](*arguments)

        return self._call(work)

    def gemm(self, gemm: Gemm, at: At, workspace: int) -> Call:
        """See GpuDevice."""
        return self._call(self.product(gemm, at))

    def room(self, work: Convolution | Attention) -> int | str:
        """See GpuDevice: own kernels are what there is to try."""
        return "the simulator has no cuDNN"

    def library(self, call: LibraryCall, at: At) -> Call:
        """See GpuDevice."""
        return self._call(self.done(call, at))

    def _call(self, work: Callable[[], None]) -> Call:
        """Work that is done, or recorded while the thread captures."""

        def call(stream: Handle) -> None:
            recorded = getattr(self._recorded, "calls", None)
            if recorded is None:
                work()
            else:
                recorded.append(work)

        return call

    def stream(self) -> Handle:
        """See GpuDevice."""
        return 0

    def follow(self, stream: Handle, before: Handle) -> None:
        """See GpuDevice."""

    def synchronise(self, stream: Handle) -> None:
        """See GpuDevice."""

    def event(self) -> Handle:
        """See GpuDevice: a place for a time of the host's clock, since all is done at once."""
        return [0]

    def record(self, event: Handle, stream: Handle) -> None:
        """See GpuDevice."""
        event[0] = time.perf_counter_ns()

    def elapsed(self, start: Handle, end: Handle) -> float:
        """See GpuDevice."""
        return float(end[0] - start[0])

    def begin_capture(self) -> Handle:
        """See GpuDevice."""
        self._recorded.calls = []
        return 1

    def end_capture(self, stream: Handle) -> Handle:
        """See GpuDevice: the calls."""
        calls, self._recorded.calls = self._recorded.calls, None
        return calls

    def replay(self, graph: Handle, stream: Handle) -> None:
        """See GpuDevice."""
        for work in graph:
            work()


def open(index: int) -> SimulatedDevice:
    """The simulated device of a number. Raises DeviceError where Numba has no simulator."""
    try:
        is_there = importlib.import_module("gpujit.kernels.cuda_device").SIMULATED
    except ImportError as fault:
        raise DeviceError(
            f"NUMBA_ENABLE_CUDASIM asks for Numba's CUDA simulator, which cannot be imported: {fault}; "
            "pip install 'gpujit[cuda]'"
        ) from None
    if not is_there:
        raise DeviceError("NUMBA_ENABLE_CUDASIM was set after Numba was imported: set it before the process starts")
    return SimulatedDevice(index)
