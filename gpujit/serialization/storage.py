"""Storages of an archive: the bytes that tensors look into, mapped, checked and brought to a device.

A storage is read once however many tensors share it, and only when the first of them is built. Tensors over it share
its memory, as they did in the program that was saved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from gpujit.ir.dtypes import SCALAR_TYPES, ScalarType
from gpujit.ir.values import Array, Device, parse_device
from gpujit.serialization.archive import Archive
from gpujit.serialization.unpickle import Malformed
from gpujit.serialization.zipindex import shown
from gpujit.support.errors import ArchiveError, DeviceError, GpujitError

MAX_DIMS = 64  # NumPy's own limit
_MAX_BYTES = (1 << 63) - 1

_COMPLEX32 = 8
# What NumPy holds a storage's elements in, where that is not the element type itself.
_HELD_AS: dict[int, np.dtype[Any]] = {
    _COMPLEX32: np.dtype(np.complex64),
    12: np.dtype(np.int8),
    13: np.dtype(np.uint8),
    14: np.dtype(np.int32),
}
STORAGE_TYPES: dict[str, ScalarType] = {f"torch.{s.ir_name}Storage": s for s in SCALAR_TYPES}

# Devices whose storages stay in host memory.
_HOST = ("cpu", "meta")

Place = Callable[[np.ndarray, Device], Array]
AsStrided = Callable[[Array, int, tuple[int, ...], tuple[int, ...]], Array]


def held_as(scalar: ScalarType) -> np.dtype[Any]:
    """The NumPy dtype of arrays over a storage of this type."""
    dtype = _HELD_AS.get(scalar.code, scalar.dtype)
    assert dtype is not None
    return dtype


class Storage:
    """One storage as a pickle names it: type, number of elements, device. Its bytes are read on first use."""

    __slots__ = ("_flat", "_variants", "device", "key", "member", "numel", "reader", "type")

    def __init__(self, reader: StorageReader, key: str, type_: ScalarType, device: str, numel: int) -> None:
        self.reader = reader
        self.key = key
        self.type = type_
        self.device = device
        self.numel = numel
        self.member = f"{reader.folder}/{key}"
        self._flat: np.ndarray | None = None
        self._variants: dict[tuple[bool, bool], Array] = {}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of arrays over the storage."""
        return held_as(self.type)

    def host(self) -> np.ndarray:
        """All elements as a flat array in host memory, writable and aligned; in the mapping itself where possible."""
        if self._flat is None:
            self._flat = self.reader.flat(self)
        return self._flat

    def placed(self, conj: bool = False, neg: bool = False) -> Array:
        """All elements on the device that map_location gives; with ``conj`` or ``neg`` a copy that has it applied."""
        found = self._variants.get((conj, neg))
        if found is None:
            flat = self.host()
            if conj:
                flat = np.conj(flat)
            if neg:
                flat = np.negative(flat)
            found = self._variants[conj, neg] = self.reader.bring(flat, self)
        return found

    def fail(self, message: str) -> NoReturn:
        """Raise the error for a tensor or id that does not fit the bytes."""
        raise ArchiveError(
            f"storage {shown(self.key)} ({self.type.name}): {message}",
            file=self.reader.archive.file,
            member=self.reader.full_name(self.member),
            code="storage-bounds",
        )


class StorageReader:
    """Storages of one folder of an archive, each made once.

    Args:
        folder: where the members lie: ``data``, ``constants``, or ``.data`` in a torch.package archive.
        map_location: as ``torch.jit.load`` takes it: None keeps the device a storage was saved from; a device or its
            text takes all storages; a dict maps texts of devices; a function of (flat array, text of the device) gives
            a device, None to keep it, or the array to use.
        place: brings a flat array in host memory to a device. Without it only host memory can be had.
        as_strided: a view of what ``place`` gave: (flat, offset, sizes, strides), in elements. Needed unless ``place``
            gives NumPy arrays.
    """

    def __init__(
        self,
        archive: Archive,
        folder: str,
        map_location: object = None,
        *,
        place: Place | None = None,
        as_strided: AsStrided | None = None,
    ) -> None:
        self.archive = archive
        self.folder = folder
        self.place = place
        self.as_strided = as_strided
        self._map_location = map_location
        # torch.device objects are callable, so what looks like a device comes first.
        if is_device(map_location) or not (
            map_location is None or isinstance(map_location, Mapping) or callable(map_location)
        ):
            self._map_location = _device(map_location)
        self._swapped = archive.byteorder != sys.byteorder
        self._storages: dict[tuple[str, int, int, str], Storage] = {}
        self._bytes: dict[str, np.ndarray] = {}
        self._flats: dict[tuple[str, int], np.ndarray] = {}

    def persistent(self, pid: object) -> Storage:
        """The storage of a persistent id ``('storage', type, key, device, numel)``. Raises Malformed, ArchiveError."""
        if type(pid) is not tuple or len(pid) < 5 or pid[0] != "storage":
            raise Malformed("expected ('storage', type, key, device, numel)")
        _, type_, key, device, numel = pid[:5]
        if type(type_) is not ScalarType or type(key) is not str or type(device) is not str or type(numel) is not int:
            raise Malformed("expected ('storage', type, key, device, numel)")
        found = self._storages.get((key, type_.code, numel, device))
        if found is None:
            found = Storage(self, key, type_, device, numel)
            size = self._itemsize(type_) * numel
            if numel < 0:
                found.fail(f"it is declared to have {numel} elements")
            if numel > 0:
                present = self.archive.size(found.member)
                if size > present:
                    found.fail(f"it is declared to have {numel} elements ({size} bytes), but {present} bytes are there")
            self._storages[key, type_.code, numel, device] = found
        return found

    @property
    def devices(self) -> set[str]:
        """Devices the storages named so far were saved from."""
        return {s.device for s in self._storages.values()}

    def full_name(self, member: str) -> str:
        """A member's name with the archive's top folder, fit for messages."""
        name = f"{self.archive.prefix}/{member}" if self.archive.prefix else member
        return name if name.isascii() and name.isprintable() else shown(name)

    def flat(self, storage: Storage) -> np.ndarray:
        """The storage's elements, flat; storages of one key and type are one memory, whatever number they declare."""
        if storage.numel == 0:
            return np.empty(0, storage.dtype)
        key = (storage.key, storage.type.code)
        whole = self._flats.get(key)
        if whole is None:
            whole = self._flats[key] = self._decode(self._raw(storage), storage.type)
        return whole[: storage.numel]

    def bring(self, flat: np.ndarray, storage: Storage) -> Array:
        """``flat`` on the device where map_location wants the storage. Raises DeviceError: it cannot be had."""
        device = self._target(flat, storage)
        if not isinstance(device, Device):
            return device
        if device.type in _HOST:
            return flat
        if self.place is None:
            raise DeviceError(
                f"the file's storage {shown(storage.key)} belongs on device '{device}', which is not available here; "
                "pass map_location='cpu' to load the model into host memory"
            )
        return self.place(flat, device)

    def _target(self, flat: np.ndarray, storage: Storage) -> Device | Array:
        where: Any = self._map_location
        if isinstance(where, Device):
            return where
        if isinstance(where, Mapping):
            where = where.get(storage.device)
        elif where is not None:
            try:
                where = where(flat, storage.device)
            except GpujitError:
                raise
            except Exception as error:
                raise DeviceError(f"map_location failed on device {shown(storage.device)}: {error!r}") from error
        if where is None:
            return parse_device(storage.device)
        if isinstance(where, np.ndarray):
            if where.shape != flat.shape or where.dtype != flat.dtype:
                raise DeviceError(
                    f"map_location gave {where.dtype}{list(where.shape)} for a storage of {flat.dtype}"
                    f"{list(flat.shape)}; it should give a device, None, or an array of the same size and dtype"
                )
            return where
        return _device(where)

    def _raw(self, storage: Storage) -> np.ndarray:
        """The member's bytes, writable, at an address that suits every element type."""
        raw = self._bytes.get(storage.key)
        if raw is None:
            raw = np.frombuffer(self.archive.view(storage.member), np.uint8)
            # Bytes given by the caller and inflated members are read-only; other writers than PyTorch may not align.
            if not raw.flags.writeable or raw.__array_interface__["data"][0] % 16:
                raw = raw.copy()
            self._bytes[storage.key] = raw
        return raw

    def _decode(self, raw: np.ndarray, type_: ScalarType) -> np.ndarray:
        itemsize = self._itemsize(type_)
        raw = raw[: raw.size // itemsize * itemsize]
        dtype = held_as(type_)
        if type_.code == _COMPLEX32:
            halves = raw.view(np.float16)
            if self._swapped:
                halves = halves.byteswap()
            return halves.astype(np.float32).view(np.complex64)
        if dtype.kind == "b" and bool((raw > 1).any()):
            # NumPy's fast paths take it that bools are 0 or 1 and may write out of bounds when they are not.
            return raw.astype(dtype)
        if self._swapped and itemsize > 1:
            unit = itemsize // 2 if dtype.kind == "c" else itemsize
            # Not through the dtype itself: not all of ml_dtypes' types can swap.
            return raw.view(f"u{unit}").byteswap().view(dtype)
        return raw.view(dtype)

    @staticmethod
    def _itemsize(type_: ScalarType) -> int:
        return 4 if type_.code == _COMPLEX32 else held_as(type_).itemsize


def is_device(where: object) -> bool:
    return isinstance(where, (str, Device)) or hasattr(where, "type")


def _device(where: object) -> Device:
    if isinstance(where, Device):
        return where
    if is_device(where):
        return parse_device(str(where))
    raise DeviceError(
        f"map_location is a {type(where).__name__}; pass None, a device such as 'cpu', a dict of devices, or a function"
    )


def rebuild_tensor(
    storage: Storage, offset: object, size: object, stride: object, *, conj: bool = False, neg: bool = False
) -> Array:
    """The array that looks into ``storage``; all numbers are checked first.

    Args:
        offset: first element.
        size: tuple of sizes; any zero makes the tensor empty, whatever the rest says.
        stride: tuple of strides, in elements.
        conj, neg: the tensor is the storage's conjugate or negative; such a tensor looks into a changed copy.
    Raises ArchiveError (``storage-bounds``): an element lies outside the storage. Malformed: not numbers at all.
    """
    if type(size) is not tuple or type(stride) is not tuple or type(offset) is not int or len(size) != len(stride):
        raise Malformed("expected an offset, a tuple of sizes and one of strides, as long as each other")
    if not {int}.issuperset(map(type, size)) or not {int}.issuperset(map(type, stride)):
        raise Malformed("a size or stride is not an integer")
    if len(size) > MAX_DIMS:
        storage.fail(f"a tensor over it has {len(size)} dimensions; the limit is {MAX_DIMS}")
    if offset < 0 or (size and (min(size) < 0 or min(stride) < 0)):
        storage.fail(f"a tensor over it has a negative number: offset {offset}, size {size}, stride {stride}")
    dtype = storage.dtype
    itemsize = dtype.itemsize
    extent, count = 1, itemsize
    for n, s in zip(size, stride, strict=True):
        extent += (n - 1) * s
        count *= n or 1
        if n > _MAX_BYTES or s * itemsize > _MAX_BYTES:
            storage.fail("a tensor over it has a size or stride beyond 64 bits")
    if count > _MAX_BYTES:
        storage.fail("a tensor over it has more bytes than 64 bits can count")
    is_empty = 0 in size
    if not is_empty and offset + extent > storage.numel:
        storage.fail(
            f"a tensor over it reaches element {offset + extent - 1} (offset {offset}, size {list(size)}, stride "
            f"{list(stride)}), but it has {storage.numel} elements"
        )
    if (conj and dtype.kind != "c") or (neg and dtype.kind in "biu"):
        raise Malformed(f"a tensor of {dtype} has its conjugate or negative bit set")
    flat = storage.placed(conj, neg)
    if not isinstance(flat, np.ndarray):
        if storage.reader.as_strided is None:
            raise DeviceError("the arrays that place() gives need as_strided() to look into them")
        return storage.reader.as_strided(flat, 0 if is_empty else offset, size, stride)
    if is_empty:
        return np.empty(size, dtype)
    # As bytes: NumPy gives no buffers of ml_dtypes' types.
    return np.ndarray(size, dtype, flat.view(np.uint8), offset * itemsize, tuple(s * itemsize for s in stride))
