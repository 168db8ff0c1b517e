"""The seam between plans and a GPU: memory, copies, launches, calls of libraries, streams and graphs, and nothing more.

``open_device`` gives what serves a name such as ``cuda:0``: CuPy and NVIDIA's packages, or, where Numba runs its
simulator (NUMBA_ENABLE_CUDASIM=1), host memory. Nothing of either is imported before a device is asked for.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from gpujit.ir.values import Device, DeviceTensor, parse_device
from gpujit.kernels.launches import Gemm, Launch
from gpujit.support.errors import DeviceError

if TYPE_CHECKING:
    from gpujit.kernels.cuda_tile import Limits
    from gpujit.kernels.launches import Attention, Convolution, DeviceKernel, LibraryCall

log = logging.getLogger("gpujit.device")

# The device's own handle of a stream, an event or a graph.
Handle = Any
# The address of an array of a step, by its number there.
At = Callable[[int], int]
# Puts one call on a stream.
Call = Callable[[Handle], None]
# The code of DeviceErrors that say why a function has no plan, and runs on the host.
NO_PLAN = "no-plan"
# Every allocation begins at a multiple of this.
ALIGN = 256


class OutOfMemory(Exception):
    """An allocation failed. ``free`` and ``total``: the device's bytes, -1 when they are not known."""

    def __init__(self, nbytes: int, free: int = -1, total: int = -1) -> None:
        self.nbytes, self.free, self.total = nbytes, free, total
        super().__init__(f"{nbytes} bytes")


class SharedMemory(Exception):
    """An attribute that a plan writes on the device shares memory with another tensor: this call is not the plan's."""


class Memory(Protocol):
    """Device memory, given back when nobody holds this any more."""

    @property
    def address(self) -> int:
        """Where it begins."""

    @property
    def nbytes(self) -> int:
        """Its size."""


class GpuDevice(Protocol):
    """What plans need of a GPU. Threads may call all methods at the same time.

    ``name``: as in ``cuda:0``. ``description``: the card and its driver, for people. ``pid``: the process whose device
    this is. ``limits``: what kernels may use. ``capture_refusal``: why work cannot be recorded as graphs; empty when it
    can. ``workspace``: bytes that products work in.
    """

    name: str
    description: str
    pid: int
    limits: Limits
    capture_refusal: str
    workspace: int

    def here(self) -> AbstractContextManager[None]:
        """A block in which the device is the thread's current one, and what it raises are DeviceErrors."""

    def allocate(self, nbytes: int) -> Memory:
        """New memory that begins at a multiple of ALIGN. Raises OutOfMemory."""

    def tensor(self, value: Any) -> DeviceTensor | None:
        """A caller's array as a tensor, without a copy; None for what is not in device memory.

        Raises DeviceError for an array on another device.
        """

    def array(self, tensor: DeviceTensor) -> Any:
        """A tensor as callers see it, without a copy."""

    def upload(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """Copy a contiguous host array to an address. It may change as soon as this returns."""

    def download(self, address: int, array: np.ndarray, stream: Handle) -> None:
        """Copy to a contiguous host array, which is there when this returns."""

    def copy(self, target: DeviceTensor, source: DeviceTensor, stream: Handle) -> None:
        """Copy between tensors of one shape and dtype in device memory."""

    def zero(self, address: int, nbytes: int, stream: Handle) -> None:
        """Fill memory with zeros."""

    def compile(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        """Have the code of kernels, and say which of them cannot be had. Raises NotCompiled where it may not be made,
        DeviceError without a compiler."""

    def launch(self, launch: Launch, at: At) -> Call:
        """A launch of a kernel, which is loaded now."""

    def gemm(self, gemm: Gemm, at: At, workspace: int) -> Call:
        """A product of matrices, for which all is prepared now. Calls with one workspace do not run side by side."""

    def room(self, work: Convolution | Attention) -> int | str:
        """Bytes that a library needs to do this in, for which all is prepared now and kept; or why none does it."""

    def library(self, call: LibraryCall, at: At) -> Call:
        """A call of a library for work that ``room`` has found it to do. What is called raises DeviceError."""

    def stream(self) -> Handle:
        """The stream that the caller's work goes to now. Raises DeviceError when it was destroyed."""

    def follow(self, stream: Handle, before: Handle) -> None:
        """Have what comes to a stream wait for what another stream has so far."""

    def synchronise(self, stream: Handle) -> None:
        """Wait for all work of a stream, or of the device when the stream was destroyed."""

    def event(self) -> Handle:
        """A new event, which can take down when a stream gets to it."""

    def record(self, event: Handle, stream: Handle) -> None:
        """Have an event take down when what a stream has so far is done; it may be recorded again later."""

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Nanoseconds between two events, both recorded, and their streams synchronised since."""

    def begin_capture(self) -> Handle:
        """A stream whose work is recorded, not done."""

    def end_capture(self, stream: Handle) -> Handle:
        """The graph of what was put on the stream. Raises DeviceError when that could not be recorded."""

    def replay(self, graph: Handle, stream: Handle) -> None:
        """Do a graph's work."""


def bound(device: GpuDevice, call: Launch | Gemm | LibraryCall, at: At, workspace: int) -> Call:
    """A call of a step with its addresses; products work in ``workspace``."""
    if isinstance(call, Launch):
        return device.launch(call, at)
    return device.gemm(call, at, workspace) if isinstance(call, Gemm) else device.library(call, at)


def require_process(device: GpuDevice) -> None:
    """Raises DeviceError in a process forked from the one that opened the device."""
    if os.getpid() != device.pid:
        raise DeviceError(
            f"{device.name} was opened by process {device.pid}, and CUDA does not work in processes forked from it; "
            "start workers with multiprocessing's 'spawn', or load the module after the fork"
        )


def raise_ours(device: GpuDevice, fault: Exception) -> NoReturn:
    """Raise a fault of CUDA's as a DeviceError, and any other as it is. The interpreter, through which it comes, knows
    no faults of a device; entering ``here`` before there is one would cost each run some time."""
    with device.here():
        raise fault


def no_memory(device: GpuDevice, fault: OutOfMemory, what: str) -> DeviceError:
    """The error for an allocation that failed."""
    free = f"; {fault.free:,} of {fault.total:,} bytes are free" if fault.total >= 0 else ""
    return DeviceError(
        f"there is no memory on {device.name} for {what}: {fault.nbytes:,} bytes are needed{free}. Free arrays, use a "
        "smaller batch, or run on device='cpu'",
        code="device-memory",
    )


# ------------------------------------------------------------------------------------------------------------- tensors


# What gives memory back that is kept for later calls; each says whether there was any.
reclaimers: list[Callable[[GpuDevice], bool]] = []


def allocate(device: GpuDevice, nbytes: int, what: str) -> Memory:
    """Memory for ``what``. Raises DeviceError when there is none, even after what is kept was given back."""
    try:
        return device.allocate(nbytes)
    except OutOfMemory as fault:
        given_back = [reclaim(device) for reclaim in reclaimers]
        if not any(given_back):
            raise no_memory(device, fault, what) from None
    try:
        return device.allocate(nbytes)
    except OutOfMemory as fault:
        raise no_memory(device, fault, what) from None


def new_tensor(device: GpuDevice, shape: tuple[int, ...], dtype: np.dtype) -> DeviceTensor:
    """A new contiguous tensor. Raises DeviceError when there is no memory for it."""
    memory = allocate(device, prod(shape) * dtype.itemsize, f"a tensor {dtype}{list(shape)}")
    return DeviceTensor(memory.address, shape, contiguous(shape, dtype), dtype, memory)


def contiguous(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    """Strides in bytes of a contiguous array."""
    found, step = [], dtype.itemsize
    for n in reversed(shape):
        found.append(step)
        step *= max(n, 1)
    return tuple(reversed(found))


def to_device(device: GpuDevice, x: np.ndarray, stream: Handle) -> DeviceTensor:
    """A copy of a host array on the device."""
    found = new_tensor(device, x.shape, x.dtype)
    if x.nbytes:
        device.upload(found.address, np.ascontiguousarray(x), stream)
    return found


def to_host(device: GpuDevice, x: DeviceTensor, stream: Handle) -> np.ndarray:
    """A copy of a tensor in host memory."""
    found = np.empty(x.shape, x.dtype)
    if x.nbytes:
        if not x.is_contiguous:
            x = contiguous_copy(device, x, stream)
        device.download(x.address, found, stream)
    return found


def contiguous_copy(device: GpuDevice, x: DeviceTensor, stream: Handle) -> DeviceTensor:
    """A copy of a tensor in memory of its own."""
    found = new_tensor(device, x.shape, x.dtype)
    if x.nbytes:
        device.copy(found, x, stream)
    return found


def mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A value in which ``change`` was made of each ``kind``, at any depth; itself when there is none."""
    if isinstance(value, kind):
        return change(value)
    if type(value) is list or isinstance(value, tuple):
        items = [mapped(v, kind, change) for v in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    if type(value) is dict:
        found = {k: mapped(v, kind, change) for k, v in value.items()}
        return value if all(found[k] is v for k, v in value.items()) else found
    return value


# ------------------------------------------------------------------------------------------------------------- devices

_open: dict[str, GpuDevice] = {}
_lock = threading.Lock()


def is_simulated() -> bool:
    """Whether this process has Numba's CUDA simulator in the place of GPUs."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def open_device(place: Device | str) -> GpuDevice:
    """What serves a CUDA device; ``cuda`` is the current one, which is number 0 where nothing else was chosen.

    Raises DeviceError that says what is missing and what to do.
    """
    place = parse_device(place) if isinstance(place, str) else place
    if place.type != "cuda":
        raise DeviceError(f"modules run on 'cpu' and on CUDA devices such as 'cuda:0'; {place} is neither")
    with _lock:
        known = _open.get(str(place))
        if known is not None:
            require_process(known)
            return known
        if is_simulated():
            found = importlib.import_module("gpujit.runtime.simulated_device").open(place.index or 0)
        else:
            found = importlib.import_module("gpujit.runtime.cuda_check").open(place.index)
        log.info("%s: %s", place, found.description)
        opened: GpuDevice = _open.setdefault(found.name, found)
        if place.index is not None:
            _open[str(place)] = opened
        return opened


def choose() -> tuple[Device, str]:
    """What ``auto`` stands for: the first CUDA device, or the CPU; and why."""
    try:
        device = open_device("cuda")
    except DeviceError as fault:
        return Device("cpu"), f"auto chose the CPU: {fault.message}"
    return parse_device(device.name), f"auto chose {device.name}: {device.description}"
