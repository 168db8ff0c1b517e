"""Tensors in attributes of modules on a GPU: they lie in device memory, where they stay between calls.

As in PyTorch, what is on the device is the attribute. It is copied there once, all of a module's at the same time, so
that those that share memory do so there too; from then on the object holds a DeviceTensor, seen as an array
on the device. Small tensors of integers stay host arrays, as plans may depend on their numbers, and so do tensors in
lists, tuples and dicts.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpujit.ir.values import DeviceTensor, ScriptObject
from gpujit.passes.analysis.attributes import reachable
from gpujit.passes.specialise.outside import may_be_looked_at
from gpujit.runtime.device import GpuDevice, Handle, allocate, contiguous_copy, raise_ours, require_process, to_host


@dataclass(eq=False)
class Resident:
    """The memory of attributes, and the owner of their tensors.

    ``memory`` keeps it alive. ``stream``: that on which it was written last, when nobody waited for that.
    ``is_shared``: callers have arrays of it, which they may write.
    """

    device: GpuDevice
    memory: Any
    address: int
    nbytes: int
    stream: Handle = None
    is_shared: bool = False
    _copies: dict[Any, np.ndarray] = field(default_factory=dict)

    def follow(self, stream: Handle) -> None:
        """Have a stream wait for what wrote this."""
        if self.stream is not None and self.stream != stream:
            self.device.follow(stream, self.stream)

    def host(self, x: DeviceTensor, stream: Handle) -> np.ndarray:
        """A tensor here as a host array, which nobody may write: it is kept for as long as none but a program can
        change the tensor."""
        if self.is_shared:
            return to_host(self.device, x, stream)
        key = x.address, x.shape, x.strides, x.dtype
        found = self._copies.get(key)
        if found is None:
            found = self._copies[key] = to_host(self.device, x, stream)
        return found

    def bytes(self, stream: Handle) -> np.ndarray:
        """A copy of all of it on the host."""
        found = np.empty(self.nbytes, np.uint8)
        if self.nbytes:
            self.follow(stream)
            self.device.download(self.address, found, stream)
        return found

    def write(self, found: np.ndarray, stream: Handle) -> None:
        """Bytes in the place of those it has."""
        self._copies.clear()
        if self.nbytes:
            self.follow(stream)
            self.device.upload(self.address, found, stream)
            self.device.synchronise(stream)

    def written(self, stream: Handle) -> None:
        """A stream wrote it, without anybody waiting for that."""
        self._copies.clear()
        self.stream = stream

    def share(self) -> None:
        """Callers get arrays of it from now on."""
        self.is_shared = True
        self._copies.clear()

    def saved(self) -> Callable[[], None]:
        """What brings back the numbers that it has now."""
        with self.device.here():
            before = self.bytes(self.device.stream())

        def restore() -> None:
            with self.device.here():
                stream = self.device.stream()
                if not np.array_equal(self.bytes(stream), before):
                    self.write(before, stream)

        return restore


def belongs(value: Any) -> bool:
    """Whether a value of an attribute is a host array that has its place on the device."""
    return type(value) is np.ndarray and not may_be_looked_at(value)


def kept(device: GpuDevice, x: DeviceTensor, stream: Handle) -> Any:
    """A tensor as an attribute holds it: with memory that nobody else has, or on the host if it belongs there."""
    if may_be_looked_at(x):
        return to_host(device, x, stream)
    if type(x.owner) is Resident:
        return x
    found = contiguous_copy(device, x, stream)
    return replace(found, owner=Resident(device, found.owner, found.address, found.nbytes, stream))


def _bounds(x: np.ndarray | DeviceTensor, first: int) -> tuple[int, int]:
    """The memory from an array's first byte to behind its last; ``first`` is its first element's address."""
    if not x.size:
        return first, first
    spans = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    return first + sum(s for s in spans if s < 0), first + sum(s for s in spans if s > 0) + x.dtype.itemsize


def uploaded(device: GpuDevice, arrays: Sequence[np.ndarray], stream: Handle) -> list[DeviceTensor]:
    """Copies of arrays on the device, with their strides; those that share memory do so there. They are there when
    this returns. Raises DeviceError when there is no memory for them."""
    each = {id(x): x for x in arrays}
    spans = sorted(((*_bounds(x, x.ctypes.data), x) for x in each.values()), key=lambda s: s[:2])
    made: dict[int, DeviceTensor] = {}
    k = 0
    while k < len(spans):
        low, high, _ = spans[k]
        group = [spans[k]]
        while k + len(group) < len(spans) and spans[k + len(group)][0] < high:
            group.append(spans[k + len(group)])
            high = max(high, group[-1][1])
        k += len(group)
        first = group[0][2]
        memory = allocate(device, high - low, f"an attribute {first.dtype}{list(first.shape)}")
        resident = Resident(device, memory, memory.address, high - low)
        if high > low:
            device.upload(memory.address, _memory(low, high), stream)
        for _, _, x in group:
            address = memory.address + x.ctypes.data - low if x.size else memory.address
            made[id(x)] = DeviceTensor(address, x.shape, x.strides, x.dtype, resident)
    # Plans on other streams read them, too.
    device.synchronise(stream)
    return [made[id(x)] for x in arrays]


def _memory(low: int, high: int) -> np.ndarray:
    """The host's memory between two addresses."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def settle(device: GpuDevice, places: Iterable[tuple[ScriptObject, int]]) -> None:
    """Have host arrays that are in slots of objects on the device. Raises DeviceError when there is no memory."""
    stored = [(o, k, o.slots[k]) for o, k in places if belongs(o.slots[k])]
    if not stored:
        return
    tensors = uploaded(device, [x for _, _, x in stored], device.stream())
    for (owner, slot, x), tensor in zip(stored, tensors, strict=True):
        # A program may have replaced it meanwhile.
        if owner.slots[slot] is x:
            owner.slots[slot] = tensor


def residents_of(root: ScriptObject) -> list[Resident]:
    """The memory of all attributes of an object, and of those below it."""
    found = {
        id(x.owner): x.owner
        for o in reachable([root])
        for x in o.slots
        if type(x) is DeviceTensor and type(x.owner) is Resident
    }
    return list(found.values())


def within(x: DeviceTensor, residents: Sequence[Resident]) -> DeviceTensor | None:
    """A caller's tensor as one in the memory of attributes; None when it is not there."""
    low, high = _bounds(x, x.address)
    for each in residents:
        if low < high and each.address <= low and high <= each.address + each.nbytes:
            return replace(x, owner=each)
    return None


class _Mirror:
    """Host copies of device memory, each piece once, so that tensors that share memory do so in their copies."""

    def __init__(self, device: GpuDevice, stream: Handle) -> None:
        self.device, self.stream = device, stream
        self.pieces: dict[int, tuple[Resident, np.ndarray]] = {}
        self._arrays: dict[int, tuple[DeviceTensor, np.ndarray]] = {}

    def array(self, x: DeviceTensor) -> np.ndarray:
        """A tensor's copy: one array for one tensor."""
        found = self._arrays.get(id(x))
        if found is None:
            found = self._arrays[id(x)] = x, self._copied(x)
        return found[1]

    def _copied(self, x: DeviceTensor) -> np.ndarray:
        resident = x.owner
        if type(resident) is not Resident or not x.nbytes:
            return to_host(self.device, x, self.stream)
        piece = self.piece(resident)
        return np.ndarray(x.shape, x.dtype, piece, x.address - resident.address, x.strides)

    def piece(self, resident: Resident) -> np.ndarray:
        """The copy of all of a piece of memory."""
        found = self.pieces.get(id(resident))
        if found is None:
            found = self.pieces[id(resident)] = resident, resident.bytes(self.stream)
        return found[1]

    def tensor(self, x: np.ndarray) -> DeviceTensor | None:
        """The tensor whose copy an array is, or a view of; None for other arrays."""
        if not x.size:
            return None
        low, high = _bounds(x, x.ctypes.data)
        for resident, piece in self.pieces.values():
            start = piece.ctypes.data
            if start <= low and high <= start + piece.nbytes:
                address = resident.address + x.ctypes.data - start
                return DeviceTensor(address, x.shape, x.strides, x.dtype, resident)
        return None


def _with_arrays(value: Any, copied: Callable[[DeviceTensor], np.ndarray]) -> Any:
    """A value whose tensors are host arrays; lists and dicts, which others may hold too, are changed themselves."""
    if isinstance(value, DeviceTensor):
        return copied(value)
    if isinstance(value, list):
        value[:] = [_with_arrays(v, copied) for v in value]
    elif isinstance(value, dict):
        for k, v in value.items():
            value[k] = _with_arrays(v, copied)
    elif isinstance(value, tuple):
        items = [_with_arrays(v, copied) for v in value]
        if any(a is not b for a, b in zip(items, value, strict=True)):
            return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value


class HostRun(_Mirror):
    """A run of a function on the host: what it reads of attributes are copies, and what it writes into these is
    written to the device at the end."""

    def __init__(self, device: GpuDevice, stream: Handle) -> None:
        super().__init__(device, stream)
        self._before: dict[int, np.ndarray] = {}
        self.stored: list[tuple[ScriptObject, int]] = []

    def piece(self, resident: Resident) -> np.ndarray:
        """The copy of all of a piece of memory, which may be written."""
        found = super().piece(resident)
        if id(resident) not in self._before:
            self._before[id(resident)] = found.copy()
        return found

    def get(self, slot: int, owner: ScriptObject) -> Any:
        """An attribute's value."""
        value = owner.slots[slot]
        if type(value) is not DeviceTensor:
            return value
        try:
            return self.array(value)
        except Exception as fault:
            raise_ours(self.device, fault)

    def set(self, slot: int, owner: ScriptObject, value: Any) -> None:
        """Store a value in an attribute."""
        known = self.tensor(value) if type(value) is np.ndarray else None
        owner.slots[slot] = value if known is None else known
        self.stored.append((owner, slot))

    def write_back(self) -> None:
        """Have on the device what was written."""
        for key, (resident, piece) in self.pieces.items():
            if not np.array_equal(piece, self._before[key]):
                resident.write(piece, self.stream)


class Attributes:
    """The attributes of a program's objects on a device.

    ``roots`` are the program's modules; all of one are moved together. Threads may call it at the same time.
    """

    def __init__(self, device: GpuDevice, roots: dict[int, ScriptObject]) -> None:
        self.device, self._roots = device, roots
        self._moved: dict[int, ScriptObject] = {}
        self._lock = threading.RLock()

    def move(self, root: ScriptObject) -> None:
        """Have the attributes of an object, and of all below it, on the device. Raises DeviceError when there is no
        memory for them; then they are where they were."""
        if id(root) in self._moved:
            return
        with self._lock, self.device.here():
            roots = {**self._roots, id(root): root}
            objects = reachable(roots.values())
            settle(self.device, [(o, k) for o in objects for k in range(len(o.slots))])
            # Other objects come and go; there is nothing to be remembered of them.
            self._moved.update({k: o for k, o in roots.items() if o.type.is_module})

    def has(self, root: ScriptObject) -> bool:
        """Whether the attributes of an object were moved."""
        return id(root) in self._moved

    def read(self, owner: ScriptObject, slot: int) -> Any:
        """An attribute for callers, who may write into it."""
        self._require_process(owner.slots[slot])
        if belongs(owner.slots[slot]):
            self.move(owner)
            with self.device.here():
                settle(self.device, [(owner, slot)])
        value = owner.slots[slot]
        if type(value) is DeviceTensor and type(value.owner) is Resident:
            value.owner.share()
            with self.device.here():
                value.owner.follow(self.device.stream())
        return value

    def taken(self, value: Any) -> Any:
        """A caller's value as an attribute holds it: arrays on the device are shared with the caller, others copied."""
        device = self.device
        self._require_process(value)
        if type(value) is DeviceTensor:
            with device.here():
                if may_be_looked_at(value):
                    return to_host(device, value, device.stream())
            low, high = _bounds(value, value.address)
            return replace(value, owner=Resident(device, value.owner, low, high - low, is_shared=True))
        if belongs(value):
            with device.here():
                (value,) = uploaded(device, [value], device.stream())
        return value

    # Back to the host

    def bring_back(self) -> None:
        """Have all that was moved on the host again. Raises DeviceError, with nothing done, when it cannot be read."""
        with self._lock:
            if not self._moved:
                return
            for owner, slot, _, host in self._copies(self._moved.values()):
                owner.slots[slot] = host
            self._moved.clear()

    @contextmanager
    def on_host(self, root: ScriptObject) -> Iterator[None]:
        """A block in which an object, and all below it, has copies on the host, which nobody may write. What is in
        lists, tuples and dicts stays there."""
        copies = self._copies([root])
        for owner, slot, _, host in copies:
            owner.slots[slot] = host
        try:
            yield
        finally:
            for owner, slot, tensor, host in copies:
                if owner.slots[slot] is host:
                    owner.slots[slot] = tensor

    def _require_process(self, value: Any) -> None:
        """Raises DeviceError in a forked process for what is, or has its place, on the device."""
        if type(value) is DeviceTensor or belongs(value):
            require_process(self.device)

    def _copies(self, roots: Iterable[ScriptObject]) -> list[tuple[ScriptObject, int, DeviceTensor, np.ndarray]]:
        require_process(self.device)
        with self.device.here():
            mirror = _Mirror(self.device, self.device.stream())
            objects = [(o, k, x) for o in reachable(roots) for k, x in enumerate(o.slots)]
            found = [(o, k, x, mirror.array(x)) for o, k, x in objects if type(x) is DeviceTensor]
            for owner, slot, x in objects:
                if isinstance(x, (list, tuple, dict)):
                    owner.slots[slot] = _with_arrays(x, mirror.array)
            return found
