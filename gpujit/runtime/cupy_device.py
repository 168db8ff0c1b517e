"""A CUDA device: CuPy's memory and arrays, kernels through ``cuda.core``, products through cuBLASLt, convolutions and
attention through cuDNN.

The one module that imports CuPy and NVIDIA's packages, and it is imported when such a device is asked for. Not run
without a GPU: ``ci/gpu.sh`` checks it on one.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import util
from typing import Any

import cupy
import numpy as np
from cuda import core as found_core

from gpujit.ir.values import DeviceTensor
from gpujit.kernels import cuda_cache
from gpujit.kernels.cuda_launch import BLOCKS_EACH
from gpujit.kernels.cuda_tile import limits_of
from gpujit.kernels.launches import Address, Attention, Convolution, DeviceKernel, Gemm, Launch, LibraryCall, Matrix
from gpujit.runtime.cublas import Products
from gpujit.runtime.cudnn import Plan, Plans, open_plans, short
from gpujit.runtime.device import At, Call, Handle, OutOfMemory
from gpujit.support.config import config
from gpujit.support.errors import DeviceError, InternalError

# Before the first version of cuda.core its names were in another module.
core: Any = found_core if hasattr(found_core, "launch") else importlib.import_module("cuda.core.experimental")
_CudaError = cupy.cuda.runtime.CUDARuntimeError
# What cuda.core and nvmath-python raise.
_NAMES = ("CUDAError", "NVRTCError", "NvJitLinkError", "cuBLASLtError")
# DLPack's numbers of kinds of memory: CUDA and CUDA's managed.
_ON_CUDA = (2, 13)
# Bytes that cuBLAS wants to work in, as NVIDIA recommends them.
_WORKSPACE, _WORKSPACE_HOPPER = 4 << 20, 32 << 20


class _Known:
    """A stream of CuPy's as ``cuda.core`` takes it; CuPy's own have that only from version 14 on."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.ptr)


class CupyMemory:
    """Memory of CuPy's pool, which gets it back when nobody holds this any more."""

    def __init__(self, pointer: Any, nbytes: int) -> None:
        self.pointer, self.nbytes = pointer, nbytes
        self.address = int(pointer.ptr)


class CupyDevice:
    """A GpuDevice. ``capability`` is the compute capability."""

    def __init__(self, index: int, card: str, capability: tuple[int, int], driver: str) -> None:
        self.index, self.capability = index, capability
        self.name, self.pid = f"cuda:{index}", os.getpid()
        self.description = f"{card}, compute capability {capability[0]}.{capability[1]}, {driver}"
        self._device = cupy.cuda.Device(index)
        with self._device:
            core.Device(index).set_current()
            processors = int(self._device.attributes["MultiProcessorCount"])
            # Captures need a stream of their own: the default one cannot be captured.
            self._capturing = cupy.cuda.Stream(non_blocking=True)
        self.most_blocks = BLOCKS_EACH * processors
        self.limits = limits_of(capability)
        self._kernels: dict[DeviceKernel, tuple[Any, Any]] = {}
        self._lock = threading.RLock()
        self._capture = threading.Lock()
        # What has plans of cuDNN, or why it is not to be had; None before that is asked.
        self._plans: Plans | str | None = None
        with self._device:
            self._products, self.capture_refusal = _products()
        self.workspace = _WORKSPACE_HOPPER if capability[0] >= 9 else _WORKSPACE
        if self._products is None:
            self.workspace = 0

    @contextmanager
    def here(self) -> Iterator[None]:
        """See GpuDevice."""
        with self._device:
            try:
                yield
            except cupy.cuda.memory.OutOfMemoryError as fault:
                raise _no_memory(self.name, fault) from None
            except Exception as fault:
                if not isinstance(fault, _CudaError) and type(fault).__name__ not in _NAMES:
                    raise
                raise _error(self.name, fault) from None

    # Memory

    def allocate(self, nbytes: int) -> CupyMemory:
        """See GpuDevice."""
        try:
            return CupyMemory(cupy.cuda.alloc(max(nbytes, 1)), nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            pass
        try:
            # Other pools of the process may hold what nobody uses.
            cupy.get_default_memory_pool().free_all_blocks()
            return CupyMemory(cupy.cuda.alloc(max(nbytes, 1)), nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            free, total = cupy.cuda.runtime.memGetInfo()
            raise OutOfMemory(nbytes, int(free), int(total)) from None

    def tensor(self, value: Any) -> DeviceTensor | None:
        """See GpuDevice: arrays of CuPy, PyTorch, Numba and whatever has one of their protocols."""
        array = value
        if not isinstance(value, cupy.ndarray):
            if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
                if not hasattr(value, "__cuda_array_interface__"):
                    return None
                array = self._taken(value, cupy.asarray)
            elif int(value.__dlpack_device__()[0]) in _ON_CUDA:
                # PyTorch gives no tensors away that it may have to differentiate.
                array = self._taken(value.detach() if hasattr(value, "detach") else value, cupy.from_dlpack)
            else:
                return None
        if int(array.device.id) != self.index:
            raise DeviceError(
                f"an array on cuda:{array.device.id}, while the module is on {self.name}; copy it there first"
            )
        return DeviceTensor(int(array.data.ptr), array.shape, array.strides, array.dtype, array)

    def _taken(self, value: Any, take: Callable[[Any], Any]) -> Any:
        try:
            with self._device:
                return take(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as fault:
            text = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
            raise DeviceError(f"a {type(value).__name__} that cannot be used on {self.name}: {text}") from None

    def array(self, tensor: DeviceTensor) -> Any:
        """See GpuDevice: an array of CuPy's."""
        memory = tensor.owner
        if isinstance(memory, CupyMemory):
            pointer = memory.pointer + (tensor.address - memory.address)
        elif isinstance(memory, cupy.ndarray):
            pointer = memory.data + (tensor.address - int(memory.data.ptr))
        else:
            whole = cupy.cuda.UnownedMemory(tensor.address, max(tensor.nbytes, 1), memory, self.index)
            pointer = cupy.cuda.MemoryPointer(whole, 0)
        return cupy.ndarray(tensor.shape, tensor.dtype, pointer, tensor.strides)

    def upload(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """See GpuDevice."""
        runtime, source = cupy.cuda.runtime, array.ctypes.data
        runtime.memcpyAsync(address, source, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        if runtime.pointerGetAttributes(source).type:
            # Memory that CUDA knows is read later; all other was copied aside.
            stream.synchronize()

    def download(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """See GpuDevice."""
        kind = cupy.cuda.runtime.memcpyDeviceToHost
        cupy.cuda.runtime.memcpyAsync(array.ctypes.data, address, array.nbytes, kind, stream.ptr)
        stream.synchronize()

    def copy(self, target: DeviceTensor, source: DeviceTensor, stream: Handle) -> None:
        """See GpuDevice."""
        if target.is_contiguous and source.is_contiguous:
            kind = cupy.cuda.runtime.memcpyDeviceToDevice
            cupy.cuda.runtime.memcpyAsync(target.address, source.address, target.nbytes, kind, stream.ptr)
            return
        with stream:
            self.array(target)[...] = self.array(source)

    def zero(self, address: int, nbytes: int, stream: Handle) -> None:
        """See GpuDevice."""
        cupy.cuda.runtime.memsetAsync(address, 0, nbytes, stream.ptr)

    # Kernels

    def compile(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        """See GpuDevice."""
        found = cuda_cache.prepare([(k, self.capability) for k in kernels])
        return {k for k, made in zip(kernels, found, strict=True) if isinstance(made, Exception)}

    def _loaded(self, kernel: DeviceKernel) -> Any:
        with self._lock:
            found = self._kernels.get(kernel)
            if found is None:
                compiled = cuda_cache.cubin(kernel, self.capability)
                code = core.ObjectCode.from_cubin(compiled.cubin, name=compiled.name)
                # The object keeps the code loaded for as long as it lives.
                found = self._kernels[kernel] = code, code.get_kernel(compiled.name)
            return found[1]

    def launch(self, launch: Launch, at: At) -> Call:
        """See GpuDevice."""
        kernel = self._loaded(launch.kernel)
        shape = core.LaunchConfig(grid=min(launch.grid, self.most_blocks), block=launch.kernel.block)
        arguments: list[Any] = []
        for x, kind in zip(launch.arguments, launch.kernel.arguments, strict=True):
            arguments.append(at(x.array) + x.offset if isinstance(x, Address) else np.dtype(kind).type(x.value))
        put = core.launch

        def call(stream: Handle) -> None:
            put(stream if hasattr(stream, "__cuda_stream__") else _Known(stream), shape, kernel, *arguments)

        return call

    # Libraries

    def gemm(self, gemm: Gemm, at: At, workspace: int) -> Call:
        """See GpuDevice."""
        if self._products is None:
            return self._cupy_product(gemm, at)
        addresses = (_address(gemm.a.at, at), _address(gemm.b.at, at), _address(gemm.out.at, at))
        bias = 0 if gemm.bias is None else _address(gemm.bias, at)
        try:
            product = self._products.product(gemm, (*addresses, bias), workspace, self.workspace, config.tf32)
        except InternalError:
            # One that the library does not do; a graph cannot be had then, and says so.
            return self._cupy_product(gemm, at)

        def call(stream: Handle) -> None:
            product(stream.ptr)

        return call

    def _cupy_product(self, gemm: Gemm, at: At) -> Call:
        a, b, out = (self._matrices(m, gemm, at) for m in (gemm.a, gemm.b, gemm.out))
        bias = None
        if gemm.bias is not None:
            place = _address(gemm.bias, at)
            bias = self.array(DeviceTensor(place, (gemm.out.columns,), (gemm.dtype.itemsize,), gemm.dtype, None))
        if gemm.ending not in ("", "relu"):
            raise DeviceError(f"a product on {self.name} cannot end with {gemm.ending}")

        def call(stream: Handle) -> None:
            with stream:
                found = cupy.matmul(a, b)
                if gemm.alpha != 1:
                    found *= found.dtype.type(gemm.alpha)
                if gemm.beta:
                    found += found.dtype.type(gemm.beta) * out
                if bias is not None:
                    found += bias
                out[...] = cupy.maximum(found, 0) if gemm.ending else found

        return call

    def _matrices(self, m: Matrix, gemm: Gemm, at: At) -> Any:
        size = gemm.dtype.itemsize
        strides = (m.batch * size, m.row * size, m.column * size)
        shape = (gemm.batches, m.rows, m.columns)
        return self.array(DeviceTensor(_address(m.at, at), shape, strides, gemm.dtype, None))

    def room(self, work: Convolution | Attention) -> int | str:
        """See GpuDevice."""
        with self._device:
            plans = self._cudnn()
            found = plans if isinstance(plans, str) else plans.found(work)
        return found.room if isinstance(found, Plan) else found

    def library(self, call: LibraryCall, at: At) -> Call:
        """See GpuDevice."""
        plans = self._cudnn()
        if isinstance(plans, str):
            raise DeviceError(plans)
        with self._device:
            put = plans.call(call, at)

        def run(stream: Handle) -> None:
            put(stream.ptr)

        return run

    def _cudnn(self) -> Plans | str:
        with self._lock:
            if self._plans is None:
                self._plans = _plans(self.description)
            return self._plans

    # Streams and graphs

    def stream(self) -> Handle:
        """See GpuDevice: CuPy's current stream."""
        return cupy.cuda.get_current_stream(self.index)

    def follow(self, stream: Handle, before: Handle) -> None:
        """See GpuDevice."""
        try:
            stream.wait_event(before.record())
        except _CudaError:
            # A stream that was destroyed: whatever it had may still be running.
            self._device.synchronize()

    def synchronise(self, stream: Handle) -> None:
        """See GpuDevice."""
        try:
            stream.synchronize()
        except _CudaError:
            self._device.synchronize()

    def event(self) -> Handle:
        """See GpuDevice: an event of CuPy's, which keeps the time unless told otherwise."""
        return cupy.cuda.Event()

    def record(self, event: Handle, stream: Handle) -> None:
        """See GpuDevice."""
        event.record(stream)

    def elapsed(self, start: Handle, end: Handle) -> float:
        """See GpuDevice."""
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e6

    def begin_capture(self) -> Handle:
        """See GpuDevice."""
        self._capture.acquire()
        try:
            self._capturing.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        except BaseException:
            self._capture.release()
            raise
        return self._capturing

    def end_capture(self, stream: Handle) -> Handle:
        """See GpuDevice."""
        try:
            return stream.end_capture()
        finally:
            self._capture.release()

    def replay(self, graph: Handle, stream: Handle) -> None:
        """See GpuDevice."""
        graph.launch(stream)


def _products() -> tuple[Products | None, str]:
    """What makes products on the current device, or why CuPy has to and they cannot be captured."""
    reason = "products go through CuPy, whose calls of cuBLAS cannot be captured"
    if util.find_spec("nvmath") is None:
        return None, f"{reason}: pip install 'nvmath-python[cu13]'"
    try:
        return Products(importlib.import_module("nvmath.bindings.cublasLt")), ""
    except Exception as fault:
        # The bindings have a class for each thing that may be missing.
        return None, f"{reason}: cuBLASLt is not to be had ({type(fault).__name__}: {fault})"


def _plans(description: str) -> Plans | str:
    """What has plans of cuDNN on the current device, or why there are none."""
    if util.find_spec("cudnn") is None:
        return "cuDNN's front end is not installed: pip install 'gpujit[cudnn]'"
    try:
        cudnn = importlib.import_module("cudnn")
    except Exception as fault:
        return f"cuDNN's front end cannot be imported ({type(fault).__name__}: {short(fault)})"
    return open_plans(cudnn, description)


def _address(place: Address, at: At) -> int:
    return at(place.array) + place.offset


def _no_memory(name: str, fault: Exception) -> DeviceError:
    """The error for memory that CUDA and its libraries wanted themselves."""
    free, total = cupy.cuda.runtime.memGetInfo()
    return DeviceError(
        f"there is no memory on {name}: {fault}; {int(free):,} of {int(total):,} bytes are free. Free arrays, use a "
        "smaller batch, or run on device='cpu'",
        code="device-memory",
    )


def _error(name: str, fault: Exception) -> DeviceError:
    text = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
    if "MemoryAllocation" in text or "OUT_OF_MEMORY" in text:
        return _no_memory(name, fault)
    if "InvalidResourceHandle" in text or "INVALID_HANDLE" in text or "ContextIsDestroyed" in text:
        return DeviceError(f"{name}: the current stream was destroyed, or belongs to another device ({text})")
    return DeviceError(f"{name}: {text}")
