"""Copies of weights in device memory: one for each host array, shared by all plans that read it."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from gpujit.runtime.device import ALIGN, GpuDevice, Handle, allocate


class Weight:
    """An array's memory on the device; ``address`` is that of its first element."""

    def __init__(self, device: GpuDevice, array: np.ndarray, stream: Handle) -> None:
        # The array is held, so that its memory names it for as long as this is alive.
        self.array = array
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
        first = array.__array_interface__["data"][0] - low if array.size else 0
        # The first element lies where addresses are aligned, whatever comes before it.
        room = -(-first // ALIGN) * ALIGN
        nbytes = room - first + high - low + 1
        self.memory = allocate(device, nbytes, f"a weight {array.dtype}{list(array.shape)}")
        self.address = self.memory.address + room
        self.nbytes = high - low
        if array.size:
            device.upload(self.address - first, _span(array, low, high), stream)
            # Plans on other streams read it, too.
            device.synchronise(stream)


def _span(array: np.ndarray, low: int, high: int) -> np.ndarray:
    """The bytes that an array's elements lie in."""
    size = array.itemsize
    first = array.__array_interface__["data"][0]
    whole: Any = np.lib.stride_tricks.as_strided(array, (1,) * array.ndim, array.strides)
    flat = whole.reshape(1).view(np.uint8)
    if first == low:
        return np.lib.stride_tricks.as_strided(flat, (high - low,), (1,))
    # Elements before the first one: the array is turned round, which lies the other way.
    turned = array[tuple(slice(None, None, -1) if s < 0 else slice(None) for s in array.strides)]
    whole = np.lib.stride_tricks.as_strided(turned, (1,) * turned.ndim, turned.strides)
    flat = whole.reshape(1).view(np.uint8)
    assert flat.size == size
    return np.lib.stride_tricks.as_strided(flat, (high - low,), (1,))


class Weights:
    """The weights of one device. Threads may call it at the same time."""

    def __init__(self, device: GpuDevice) -> None:
        self.device = device
        self._known: weakref.WeakValueDictionary[Any, Weight] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, array: np.ndarray, stream: Handle) -> Weight:
        """An array's copy, made when there is none. Raises DeviceError when there is no memory for it."""
        key = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = Weight(self.device, array, stream)
            return found
