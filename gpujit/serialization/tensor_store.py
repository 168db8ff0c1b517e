"""Tensors to storages: which arrays share memory, and what each storage holds.

Views of one buffer stay views of one storage; a buffer that is mostly unused is not dragged along. Views of another
element type get a storage of their own: PyTorch's reader gives all tensors over a storage the type it met first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BY_CODE, ScalarType, code_of, is_tensor_dtype
from gpujit.support.errors import SaveError

# A storage may hold this many times the bytes of the tensors over it; beyond, tensors that do not overlap are parted.
_WASTE = 2


@dataclass(slots=True)
class View:
    """A tensor as a pickle writes it, in elements of its type."""

    key: str
    numel: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    type: ScalarType


class _Storage:
    """Bytes from ``low`` to ``high`` in memory, and the arrays in them."""

    __slots__ = ("arrays", "high", "key", "low")

    def __init__(self, low: int, high: int, arrays: list[np.ndarray]) -> None:
        self.low, self.high, self.arrays = low, high, arrays
        self.key = ""


class TensorStore:
    """The tensors of one pickle. All are shown to ``view`` once, then ``settle`` decides, then ``view`` is right.

    Args:
        folder: where the storages' members lie: ``data`` or ``constants``.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # By the id of the array asked for: the array as it is written, and where it went.
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}
        self._placed: dict[int, _Storage] = {}
        self._storages: list[_Storage] = []

    def view(self, array: Any, code: int | None = None) -> View:
        """How a tensor is written. ``code`` is its ScalarType where the dtype does not tell (quantised tensors).

        Raises SaveError for an array that PyTorch has no tensor for.
        """
        found = self._arrays.get(id(array))
        if found is None:
            found = self._arrays[id(array)] = (array, _writable_form(array))
        written = found[1]
        type_ = BY_CODE[code_of(written.dtype) if code is None else code]
        size = tuple(map(int, written.shape))
        itemsize = written.itemsize
        strides = written.strides if written.size else np.empty(size, np.uint8).strides
        stride = tuple(int(s) // (itemsize if written.size else 1) for s in strides)
        storage = self._placed.get(id(array))
        if storage is None:
            return View("", 0, 0, size, stride, type_)
        if not written.size:
            return View(storage.key, 0, 0, size, stride, type_)
        offset = _low(written) - storage.low
        return View(storage.key, (storage.high - storage.low) // itemsize, offset // itemsize, size, stride, type_)

    def settle(self) -> None:
        """Decide which tensors share a storage, and number the storages in the order in which tensors came."""
        roots: dict[tuple[int, np.dtype], list[int]] = {}
        empty: dict[np.dtype, _Storage] = {}
        for name, (_, written) in self._arrays.items():
            if written.size:
                roots.setdefault((_root(written), written.dtype), []).append(name)
            else:
                storage = empty.setdefault(written.dtype, _Storage(0, 0, [written]))
                self._placed[name] = storage
        for names in roots.values():
            self._share(names)
        self._merge_overlaps()
        for name in self._arrays:
            storage = self._placed[name]
            if not storage.key:
                storage.key = str(len(self._storages))
                self._storages.append(storage)

    def _share(self, names: list[int]) -> None:
        """One storage for the arrays of one buffer, or, when they leave most of it unused, one for each."""
        arrays = [self._arrays[n][1] for n in names]
        low, high = min(map(_low, arrays)), max(map(_high, arrays))
        if _aligned(low, high, arrays) and high - low <= _WASTE * sum(_high(a) - _low(a) for a in arrays):
            together = _Storage(low, high, arrays)
            self._placed.update((n, together) for n in names)
            return
        for name, array in zip(names, arrays, strict=True):
            self._placed[name] = _Storage(_low(array), _high(array), [array])

    def _merge_overlaps(self) -> None:
        """Join storages of one element type that look into the same memory."""
        last: dict[np.dtype, _Storage] = {}
        joined: dict[int, _Storage] = {}
        filled = {id(s): s for s in self._placed.values() if s.high}
        for storage in sorted(filled.values(), key=lambda s: (s.low, s.high)):
            dtype = storage.arrays[0].dtype
            before = last.get(dtype)
            if before is not None and storage.low < before.high:
                high, arrays = max(before.high, storage.high), before.arrays + storage.arrays
                if _aligned(before.low, high, arrays):
                    before.high, before.arrays = high, arrays
                    joined[id(storage)] = before
                    continue
            last[dtype] = storage
        for name, storage in self._placed.items():
            self._placed[name] = joined.get(id(storage), storage)

    def members(self) -> Iterator[tuple[str, memoryview]]:
        """Name and bytes of each storage's member; memory is handed out as it is where one array fills the storage."""
        for storage in self._storages:
            yield f"{self.folder}/{storage.key}", _bytes_of(storage)


def _writable_form(array: Any) -> np.ndarray:
    """The array, or a copy of it where its layout is one that tensors cannot have."""
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    found: np.ndarray = array
    if not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    if not is_tensor_dtype(found.dtype):
        raise SaveError(f"is an array of dtype {found.dtype}, which tensors cannot have")
    if any(s < 0 or s % found.itemsize for s in found.strides):
        found = np.ascontiguousarray(found)
    return found


def _low(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _high(array: np.ndarray) -> int:
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return _low(array) + int(reach) + array.itemsize


def _aligned(low: int, high: int, arrays: list[np.ndarray]) -> bool:
    """Whether all arrays start a whole number of elements after ``low``."""
    return all((_low(a) - low) % a.itemsize == 0 == (high - low) % a.itemsize for a in arrays)


def _root(array: np.ndarray) -> int:
    """Which buffer an array looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def _bytes_of(storage: _Storage) -> memoryview:
    size = storage.high - storage.low
    first = storage.arrays[0]
    if first.flags.c_contiguous and first.nbytes == size:
        # As bytes: NumPy gives no buffers of ml_dtypes' types.
        return first.reshape(-1).view(np.uint8).data
    held = np.zeros(size, np.uint8)
    for array in storage.arrays:
        if array.size:
            np.ndarray(array.shape, array.dtype, held, _low(array) - storage.low, array.strides)[...] = array
    return held.data
