"""PyTorch's dtype promotion, in one place: type rules, interpreter, fuser and exporters all ask here.

Operands fall into three categories: tensors with dimensions, 0-dim tensors, Python numbers. An operand of a lower
category raises the result only when its kind (bool < integer < floating < complex) is higher.
Source: PyTorch documentation, "Tensor Attributes: type promotion"; checked against torch 2.13 in tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64, HALF_TYPES, INT64, kind_of

COMPLEX64 = np.dtype(np.complex64)
COMPLEX128 = np.dtype(np.complex128)
# What a Python float becomes next to integers, and what integer division gives.
DEFAULT_FLOAT = FLOAT32
DEFAULT_COMPLEX = COMPLEX64
_FLOAT_RANK = {FLOAT32: 1, FLOAT64: 2}


@cache
def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The dtype of two operands of the same category.

    Differs from PyTorch in one place: float16 with a complex number is complex64, since NumPy has no complex32.
    """
    if a == b:
        return a
    kind_a, kind_b = kind_of(a), kind_of(b)
    if kind_a != kind_b:
        low, high = (a, b) if kind_a < kind_b else (b, a)
        if kind_of(high) < 3:
            return high
        return COMPLEX128 if low == FLOAT64 else high
    if kind_a == 2:
        if a in _FLOAT_RANK or b in _FLOAT_RANK:
            return max((a, b), key=lambda d: _FLOAT_RANK.get(d, 0))
        return FLOAT32
    return np.promote_types(a, b) if kind_a in (0, 1, 3) else FLOAT32


_PYTHON_DTYPES: dict[type, np.dtype] = {bool: BOOL_, int: INT64, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}


def _python_dtype(value: Any) -> np.dtype:
    found = _PYTHON_DTYPES.get(type(value))
    if found is None:
        # A subclass, such as an IntEnum or numpy's float64, which is a float.
        found = next(d for t, d in _PYTHON_DTYPES.items() if isinstance(value, t))
    return found


@cache
def _combine(tensors: np.dtype | None, zero_dim: np.dtype | None, numbers: np.dtype | None) -> np.dtype:
    result = tensors
    for lower in (zero_dim, numbers):
        if lower is None:
            continue
        if result is None:
            result = lower
        elif kind_of(lower) > kind_of(result):
            # A higher kind wins with its own width, except that a complex number keeps the width of the floats.
            if kind_of(lower) == 3 and kind_of(result) == 2:
                result = COMPLEX128 if FLOAT64 in (result,) else COMPLEX64
            else:
                result = _default_of(lower) if lower is numbers else lower
    assert result is not None
    return result


def _default_of(number: np.dtype) -> np.dtype:
    return DEFAULT_FLOAT if kind_of(number) == 2 else number


def result_type(*operands: Any) -> np.dtype:
    """The dtype PyTorch computes in for these operands: arrays, Python numbers, or None (skipped)."""
    tensors: np.dtype | None = None
    zero_dim: np.dtype | None = None
    numbers: np.dtype | None = None
    for x in operands:
        if x is None:
            continue
        dtype = getattr(x, "dtype", None)
        if dtype is None:
            d = _python_dtype(x)
            numbers = d if numbers is None else promote(numbers, d)
        elif x.ndim:
            tensors = dtype if tensors is None else promote(tensors, dtype)
        else:
            zero_dim = dtype if zero_dim is None else promote(zero_dim, dtype)
    return _combine(tensors, zero_dim, numbers)


@cache
def to_floating(dtype: np.dtype) -> np.dtype:
    """``dtype``, or the default float for integers and bools (what ``sqrt`` or ``/`` compute in)."""
    return DEFAULT_FLOAT if kind_of(dtype) < 2 else dtype


@cache
def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of real and imaginary parts."""
    return {COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}.get(dtype, dtype)


@cache
def compute_type(dtype: np.dtype) -> np.dtype:
    """The dtype a body runs in: float32 for half types, the dtype itself otherwise."""
    return FLOAT32 if dtype in HALF_TYPES else dtype


@cache
def can_cast(source: np.dtype, target: np.dtype) -> bool:
    """Whether a result of dtype ``source`` may be stored into an existing tensor of ``target`` (by kind)."""
    return kind_of(source) <= kind_of(target)
