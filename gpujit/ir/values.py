"""Run-time values that are neither arrays nor Python's own: devices and what lies there, objects, enums, futures,
quantised tensors.

A tensor is a plain ``numpy.ndarray`` or ``cupy.ndarray``; a 0-dim tensor is a 0-dim array, never a scalar. int, float,
bool, complex, str, None, list, dict and tuple are Python's. A NamedTuple is a ``collections.namedtuple``.
"""

from __future__ import annotations

import re
from collections import namedtuple
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.types import ClassType, EnumType, TupleType
from gpujit.support.errors import DeviceError

# numpy.ndarray or cupy.ndarray; both are handled by duck typing so that neither has to be installed to read the code.
Array = Any


def is_int64(value: int) -> bool:
    """Whether a Python integer is a value of TorchScript's ``int``, which has 64 bits."""
    return -(1 << 63) <= value < 1 << 63


@dataclass(frozen=True, slots=True)
class Device:
    """``cpu``, ``cuda:1``, ``meta``; ``index`` is None when not given."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


_DEVICE = re.compile(r"([a-z]+)(?::(0|[1-9]\d{0,2}))?\Z")
_DEVICE_TYPES = ("cpu", "cuda", "meta", "mps", "xpu", "xla", "hip", "vulkan", "privateuseone")


@lru_cache(maxsize=256)
def parse_device(text: str) -> Device:
    """The device a text such as ``cuda:1`` names. Raises DeviceError for text that names none."""
    m = _DEVICE.match(text)
    if m is None or m.group(1) not in _DEVICE_TYPES:
        raise DeviceError(f"{text[:80]!r} is no device; use one such as 'cpu' or 'cuda:0'")
    return Device(m.group(1), None if m.group(2) is None else int(m.group(2)))


CPU = Device("cpu")


@dataclass(frozen=True, eq=False, slots=True)
class DeviceTensor:
    """A tensor in memory that the host does not read: its first element's address, strides in bytes.

    ``owner`` is what has to stay alive for as long as this does.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    owner: Any

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one behind the other, the last dim fastest."""
        step = self.dtype.itemsize
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != step and self.nbytes:
                return False
            step *= n
        return True


@dataclass(eq=False, slots=True)
class ScriptObject:
    """An instance of a class or module; ``slots`` holds attribute values in the order of ``type.attributes``."""

    type: ClassType
    slots: list[Any] = field(default_factory=list)

    def get(self, name: str) -> Any:
        """Value of an attribute. Raises KeyError when the class has none of that name."""
        return self.slots[self.type.slot_of[name]]

    def set(self, name: str, value: Any) -> None:
        """Store an attribute's value; the caller has checked its type."""
        self.slots[self.type.slot_of[name]] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptObject:
        # The class, with its code, stays one; an object may hold itself.
        made = memo[id(self)] = ScriptObject(self.type)
        made.slots = deepcopy(self.slots, memo)
        return made


@dataclass(frozen=True, slots=True)
class EnumValue:
    """A member of a scripted enum."""

    type: EnumType
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.type.name.rpartition('.')[2]}.{self.name}"


@dataclass(eq=False, slots=True)
class Future:
    """Result of a fork: a value, or the exception that ``wait`` raises."""

    value: Any = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class QTensor:
    """A quantised tensor: integers and the affine map ``real = (q - zero_point) * scale``.

    Per tensor ``scale`` and ``zero_point`` are numbers; per channel they are 1-d arrays along ``axis``.
    ``dtype`` is the ScalarType code (qint8 12, quint8 13, qint32 14).
    """

    values: Array
    dtype: int
    scale: Any
    zero_point: Any
    axis: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return int(self.values.ndim)


@dataclass(eq=False, slots=True)
class SparseTensor:
    """A sparse tensor as stored: ``layout`` 1 is COO (indices, values), 2 is CSR (crow, col, values)."""

    layout: int
    parts: tuple[Array, ...]
    shape: tuple[int, ...]


@cache
def namedtuple_class(type_: TupleType) -> type:
    """The Python class for a NamedTuple type; equal types share one class."""
    assert type_.name is not None and type_.fields is not None
    name = type_.name.rpartition(".")[2]
    return namedtuple(name if name.isidentifier() else "NamedTuple", type_.fields, rename=True)
