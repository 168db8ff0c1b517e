"""Shapes and dtypes of values, as far as a kernel may count on them."""

from __future__ import annotations

from math import prod

import numpy as np

from gpujit.fuser.errors import NotFused
from gpujit.ir.dtypes import kind_of, numpy_dtype
from gpujit.ir.graph import Value
from gpujit.ir.types import TensorType


def is_tensor(value: Value) -> bool:
    """Whether a value is one tensor."""
    return isinstance(value.type, TensorType)


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of a tensor. Raises NotFused when one is not known."""
    shape = getattr(value.type, "shape", None)
    if shape is not None:
        for n in shape:
            if type(n) is not int:
                break
        else:
            return tuple(shape)
    raise NotFused(f"the shape of {value!r} is not known")


def dtype_of(value: Value) -> np.dtype:
    """The dtype of a tensor. Raises NotFused when it is not known, or none that kernels know."""
    code = getattr(value.type, "dtype", None)
    if code is None:
        raise NotFused(f"the dtype of {value!r} is not known")
    try:
        dtype = numpy_dtype(code)
    except TypeError:
        raise NotFused(f"{value!r} has a dtype that kernels do not know") from None
    if kind_of(dtype) == 3:
        raise NotFused(f"{value!r} has complex numbers, which kernels do not know")
    return dtype


def elements_of(value: Value) -> int:
    """How many elements a tensor has."""
    return prod(shape_of(value))


def bytes_of(value: Value) -> int:
    """Bytes of a tensor of known shape and dtype."""
    return elements_of(value) * dtype_of(value).itemsize
