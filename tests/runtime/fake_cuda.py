"""CuPy and ``cuda.core`` in host memory, as far as ``runtime/cupy_device.py`` uses them, with their rules.

Addresses are the host's. Streams do at once what is put on them, or record it; what is not allowed while a thread
captures (allocating anew, waiting, copies between host and device) raises as CUDA does.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpujit.kernels import cuda_simulated
from gpujit.kernels.launches import DeviceKernel
from gpujit.runtime.simulated_device import HostBacked
from tests.runtime.recording_device import run_source


class CUDARuntimeError(RuntimeError):
    """CuPy's."""


class CUDAError(Exception):
    """cuda.core's."""


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class Machine:
    """One host and its devices; ``modules`` are what is imported from there."""

    def __init__(self, devices: int = 1) -> None:
        self.memory = HostBacked()
        self.devices, self.current = devices, 0
        self.most_bytes = 1 << 30
        self.freed = 0
        # Addresses of host memory that CUDA knows.
        self.pinned: set[int] = set()
        self.streams: dict[int, Stream] = {}
        self.null = Stream(self)
        self.stream = self.null
        self.loaded: list[str] = []
        self.log: list[tuple[Any, ...]] = []

    @property
    def capturing(self) -> Stream | None:
        return next((s for s in self.streams.values() if s.recorded is not None), None)

    def submit(self, pointer: int, work: Callable[[], None]) -> None:
        stream = self.streams.get(pointer)
        if stream is None:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        if stream.recorded is None:
            work()
        else:
            stream.recorded.append(work)

    def waits(self, what: str) -> None:
        if self.capturing is not None:
            raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what} while a stream is captured")

    def modules(self) -> dict[str, Any]:
        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            streamCaptureModeThreadLocal=1,
            memGetInfo=lambda: (self.most_bytes, 2 * self.most_bytes),
            memcpyAsync=self.memcpy,
            pointerGetAttributes=lambda at: SimpleNamespace(type=int(at in self.pinned)),
            memsetAsync=lambda at, value, n, s: self.submit(s, lambda: ctypes.memset(at, value, n)),
        )
        cuda = SimpleNamespace(
            runtime=runtime,
            Device=lambda index: Device(self, index),
            Stream=lambda non_blocking: Stream(self),
            get_current_stream=lambda index: self.stream,
            alloc=self.alloc,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            UnownedMemory=lambda at, nbytes, owner, index: (at, owner),
            MemoryPointer=lambda memory, offset: Pointer(memory[0] + offset, memory[1]),
        )
        machine = self

        class Bound(ndarray):
            home = machine

        cupy = SimpleNamespace(
            cuda=cuda,
            ndarray=Bound,
            asarray=lambda x: Bound(x.shape, x.dtype, Pointer(x.__cuda_array_interface__["data"][0], x), x.strides),
            from_dlpack=lambda x: x.handed_over(Bound),
            matmul=lambda a, b: Loose(self, np.matmul(a.host().astype("f4"), b.host().astype("f4")).astype(a.dtype)),
            maximum=lambda a, b: Loose(self, np.maximum(a.array, b)),
            get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=self.free),
        )
        core = SimpleNamespace(
            Device=lambda index: SimpleNamespace(set_current=lambda: None),
            LaunchConfig=lambda grid, block: (grid, block),
            ObjectCode=SimpleNamespace(from_cubin=self.load),
            launch=self.launch,
        )
        return {"cupy": cupy, "cuda": SimpleNamespace(core=core), "cuda.core": core}

    def free(self) -> None:
        self.freed += 1

    def alloc(self, nbytes: int) -> Pointer:
        self.waits("allocating")
        if nbytes > self.most_bytes:
            raise OutOfMemoryError(nbytes)
        memory = self.memory.allocate(nbytes)
        return Pointer(memory.address, memory)

    def memcpy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        if kind != 3:
            self.waits("copying from or to the host")
        self.log.append(("memcpy", kind, nbytes, stream))
        self.submit(stream, lambda: ctypes.memmove(target, source, nbytes) and None)

    # Kernels: what stands for machine code is the source

    def compiled(self, kernel: DeviceKernel, capability: tuple[int, int]) -> Any:
        return SimpleNamespace(name=f"entry_{kernel.label}", cubin=pickle.dumps((kernel.source, kernel.arguments)))

    def load(self, cubin: bytes, name: str) -> Any:
        self.loaded.append(name)
        found = pickle.loads(cubin)

        def get_kernel(wanted: str) -> Any:
            assert wanted == name
            return found

        return SimpleNamespace(get_kernel=get_kernel)

    def launch(self, stream: Stream, config: tuple[int, int], kernel: Any, *arguments: Any) -> None:
        source, types = kernel
        values: list[Any] = []
        for x, kind in zip(arguments, types, strict=True):
            if kind.startswith("*"):
                assert type(x) is int
                values.append(cuda_simulated.Pointer(*self.memory.elements(x, np.dtype(kind[1:]))))
            else:
                assert x.dtype == np.dtype(kind)
                values.append(x)
        self.log.append(("launch", config, stream.ptr))
        if stream.ptr not in self.streams:
            raise CUDAError("CUDA_ERROR_INVALID_HANDLE: a resource handle passed to the call was not valid")
        self.submit(stream.ptr, run_source(source, *config, values))


class Device:
    """A device as a context manager."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.machine, self.id = machine, index
        self.attributes = {"MultiProcessorCount": 4}
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(self.machine.current)
        self.machine.current = self.id
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.current = self._before.pop()

    def synchronize(self) -> None:
        self.machine.waits("waiting")
        self.machine.log.append(("synchronize", self.id))


class Stream:
    """A stream; ``destroy`` makes its handle invalid."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ptr = 4096 + 16 * len(machine.streams)
        self.recorded: list[Callable[[], None]] | None = None
        self._before: list[Stream] = []
        machine.streams[self.ptr] = self

    def __enter__(self) -> Stream:
        self._before.append(self.machine.stream)
        self.machine.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.stream = self._before.pop()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def destroy(self) -> None:
        del self.machine.streams[self.ptr]

    def _check(self) -> None:
        self.machine.submit(self.ptr, lambda: None)

    def record(self) -> Any:
        self._check()
        return self

    def wait_event(self, event: Stream) -> None:
        self._check()
        self.machine.log.append(("wait", self.ptr, event.ptr))

    def synchronize(self) -> None:
        self.machine.waits("waiting")
        self._check()
        self.machine.log.append(("synchronize", self.ptr))

    def begin_capture(self, mode: int) -> None:
        assert mode == 1 and self is not self.machine.null
        self.recorded = []

    def end_capture(self) -> Any:
        calls, self.recorded = self.recorded, None
        assert calls is not None

        def launch(stream: Stream) -> None:
            self.machine.log.append(("graph", stream.ptr))
            for call in calls:
                self.machine.submit(stream.ptr, call)

        return SimpleNamespace(launch=launch)


class Pointer:
    """A MemoryPointer."""

    def __init__(self, ptr: int, owner: Any) -> None:
        self.ptr, self.owner = ptr, owner

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.ptr + offset, self.owner)


class ndarray:  # noqa: N801  # CuPy's name
    """An array of CuPy's."""

    home: Machine

    def __init__(self, shape: Any, dtype: Any, memptr: Pointer, strides: Any, index: int = 0) -> None:
        self.shape, self.dtype, self.strides = tuple(shape), np.dtype(dtype), tuple(strides)
        self.data, self.device = memptr, SimpleNamespace(id=index)

    def host(self) -> np.ndarray:
        """Its memory as NumPy sees it."""
        if not np.prod(self.shape):
            return np.empty(self.shape, self.dtype)
        memory, start = self.home.memory.memory_at(self.data.ptr)
        return np.ndarray(self.shape, self.dtype, memory, start, self.strides)

    def get(self) -> np.ndarray:
        return self.host().copy()

    def __setitem__(self, where: Any, value: Any) -> None:
        source = value.array if isinstance(value, Loose) else value.host()
        self.home.submit(self.home.stream.ptr, lambda: self.host().__setitem__(where, source))


class Loose:
    """What CuPy's functions return here."""

    def __init__(self, machine: Machine, array: np.ndarray) -> None:
        machine.waits("a call of cuBLAS")
        self.array, self.dtype = array, array.dtype

    def __imul__(self, other: Any) -> Loose:
        self.array = self.array * other
        return self

    def __iadd__(self, other: Any) -> Loose:
        other = other.host() if isinstance(other, ndarray) else other
        self.array = self.array + (other.array if isinstance(other, Loose) else other)
        return self


@contextmanager
def cupy_device(machine: Machine, monkeypatch: Any) -> Iterator[Any]:
    """The module ``cupy_device`` as it is imported on this machine."""
    import importlib
    import sys

    for name, found in machine.modules().items():
        monkeypatch.setitem(sys.modules, name, found)
    monkeypatch.delitem(sys.modules, "gpujit.runtime.cupy_device", raising=False)
    module = importlib.import_module("gpujit.runtime.cupy_device")
    monkeypatch.setattr(module.cuda_cache, "cubin", machine.compiled)
    monkeypatch.setattr(module.cuda_cache, "prepare", lambda wanted: [machine.compiled(*w) for w in wanted])
    try:
        yield module
    finally:
        sys.modules.pop("gpujit.runtime.cupy_device", None)
