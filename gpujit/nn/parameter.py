"""Arrays of a module: how a parameter is marked, how new ones are made, how foreign tensors come in."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.arrays import Misfit, as_array
from gpujit.ir.dtypes import BY_NAME, FLOAT32, is_tensor_dtype
from gpujit.ir.values import Device, parse_device
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError, DeviceError, LayerError


class _Marked:
    """An array with a mark, which passes for the array where operators and NumPy are concerned."""

    def __init__(self, data: Any) -> None:
        self.data: Tensor = np.empty(0, FLOAT32) if data is None else to_array(data, type(self).__name__)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.data, dtype=dtype, copy=copy)

    def __getattr__(self, name: str) -> Any:
        if name == "data":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.data, name)

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = value

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"


class Parameter(_Marked):
    """Marks an array as a parameter: ``self.weight = Parameter(array)`` registers it, and stores the plain array.

    ``requires_grad`` is accepted, and has no effect: gpujit computes no gradients.
    """

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        super().__init__(data)


class Buffer(_Marked):
    """Marks an array as a buffer: ``self.mean = Buffer(array)`` registers it, and stores the plain array."""

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        super().__init__(data)
        self.persistent = persistent


class Uninitialized:
    """Stands in a lazy layer for an array whose shape the first input decides; it has a dtype alone."""

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        check_device(device)
        self.dtype = to_dtype(dtype)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> Tensor:
        """A new array, not filled, to be set in the place of this."""
        return new(shape, self.dtype if dtype is None else dtype, device)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The same for an array of another dtype."""
        return type(self)(dtype=dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise LayerError(f"{self!r} has no values yet; call the lazy module once, which makes them")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(Uninitialized):
    """A parameter of a lazy layer before its first call."""


class UninitializedBuffer(Uninitialized):
    """A buffer of a lazy layer before its first call."""

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        super().__init__(requires_grad, device, dtype)
        self.persistent = persistent

    def astype(self, dtype: Any, copy: bool = True) -> UninitializedBuffer:
        return UninitializedBuffer(dtype=dtype, persistent=self.persistent)


def is_uninitialized(value: Any) -> bool:
    """Whether a value stands for an array that is not made yet, here or in PyTorch."""
    return isinstance(value, Uninitialized) or type(value).__name__ in ("UninitializedParameter", "UninitializedBuffer")


def to_array(value: Any, place: str) -> Tensor:
    """The plain array of a tensor of any kind: NumPy's, PyTorch's, ``__array__``, ``__dlpack__``; no copy if possible.

    Raises ArgumentError, which starts with ``place``, for what is no tensor.
    """
    if isinstance(value, _Marked):
        return value.data
    try:
        return as_array(value)
    except Misfit as e:
        raise ArgumentError(f"{place}: a tensor is needed, found {e}") from None


def is_array(value: Any) -> bool:
    """Whether a value passes for a tensor: NumPy's and PyTorch's, and what stands for one while a call is recorded."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type)


def to_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype of a name (``"bfloat16"``), a NumPy or PyTorch dtype; float32, PyTorch's default, for None.

    Raises ArgumentError for what is none, or one that tensors cannot have.
    """
    if dtype is None or dtype is float:
        return FLOAT32
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    known = BY_NAME.get(name)
    if known is not None and known.dtype is not None:
        return known.dtype
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(f"dtype={dtype!r} is no dtype; known are {', '.join(BY_NAME)}") from None
    if not is_tensor_dtype(found):
        raise ArgumentError(f"tensors cannot have the dtype {found}")
    return found


def check_device(device: Any) -> None:
    """Raise DeviceError unless a device is the CPU, where modules live. None means the CPU."""
    if device is None:
        return
    found = device if isinstance(device, Device) else parse_device(str(device))
    if found.type != "cpu":
        raise DeviceError(f"device={str(device)!r}: modules of gpujit.nn live on the CPU")


def new(shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A parameter's array, not yet filled."""
    check_device(device)
    return np.empty(tuple(shape), to_dtype(dtype))


def zeros(shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    check_device(device)
    return np.zeros(tuple(shape), to_dtype(dtype))


def ones(shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    check_device(device)
    return np.ones(tuple(shape), to_dtype(dtype))


def sizes(value: Any, length: int, place: str) -> tuple[Any, ...]:
    """``value`` for each of ``length`` dimensions: a lone number is meant for all of them.

    Raises ArgumentError, which starts with ``place``, when there are more or fewer.
    """
    if isinstance(value, (list, tuple)):
        if len(value) != length:
            raise ArgumentError(f"{place}: {length} numbers are needed, found {len(value)}")
        return tuple(value)
    return (value,) * length
