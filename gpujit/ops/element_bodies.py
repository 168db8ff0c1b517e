"""What copies, casts and fills do to one element, for a Recorder: their own bodies allocate and choose layouts instead.

Half types arrive as they are. What a kernel does not decide (another device, a memory format) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES
from gpujit.ir.scalar import RecordError
from gpujit.ir.values import Device
from gpujit.ops.layout import cast, dtype_of, fit_number

Body = Callable[..., Any]
# Of MemoryFormat: contiguous, preserve.
_PLAIN = (None, 0, 1)


def _plain(op: str, device: Device | None = None, layout: int | None = None, memory_format: int | None = None) -> None:
    """Raise RecordError for anything but a dense tensor where it already is."""
    if device is not None and device.type != "cpu":
        raise RecordError(f"{op}: a move to {device} is no kernel; it runs unfused")
    if layout not in (None, 0) or memory_format not in _PLAIN:
        raise RecordError(f"{op}: layout {layout} and memory format {memory_format} are not chosen by kernels")


def cast_by(op: str, dtype: int | None = None, device: int | None = None, memory_format: int | None = None) -> Body:
    """A cast; the numbers are positions of arguments, None for those that are not there."""

    def body(m: Any, *args: Any) -> Any:
        def at(position: int | None) -> Any:
            return None if position is None else args[position]

        _plain(op, at(device), None, at(memory_format))
        code = at(dtype)
        return args[0].copy() if code is None else cast(args[0], dtype_of(code, op))

    return body


def cast_to(code: int, op: str) -> Body:
    """A cast to one dtype."""
    return lambda m, x, *rest: cast(x, dtype_of(code, op))


def cast_as(m: Any, x: Any, other: Any, *rest: Any) -> Any:
    """A cast to the dtype of another tensor."""
    _plain("aten::to", None, None, rest[-1] if len(rest) == 3 else None)
    return cast(x, other.dtype)


def same(op: str, memory_format: int | None = None) -> Body:
    """A copy; the position of a memory format, when there is one."""

    def body(m: Any, x: Any, *rest: Any) -> Any:
        _plain(op, None, None, None if memory_format is None else rest[memory_format - 1])
        return x.copy()

    return body


def undropped(op: str) -> Body:
    """Dropout outside training, which changes nothing."""

    def body(m: Any, x: Any, p: float, train: bool) -> Any:
        if train and p:
            raise RecordError(f"{op}: random numbers are not drawn in kernels; it runs unfused")
        return x.copy()

    return body


def fill(value_at: int | None, op: str) -> Body:
    """A number, or a 0-dim tensor, at every element; a zero when it has no position."""

    def body(m: Any, x: Any, *rest: Any) -> Any:
        value: Any = 0 if value_at is None else rest[value_at - 1]
        if hasattr(value, "dtype"):
            if value.ndim:
                raise RecordError(f"{op}: the value has {value.ndim} dims; it must be a 0-dim tensor")
            return cast(value, x.dtype)
        return m.full_like(x, fit_number(value, x.dtype, op))

    return body


def like(value: float | None, op: str) -> Body:
    """A tensor of one number (an argument, when None), in the dtype asked for or that of the first tensor."""

    def body(m: Any, x: Any, *rest: Any) -> Any:
        number, options = (value, rest) if value is not None else (rest[0], rest[1:])
        code, layout, device, _, memory_format = options
        _plain(op, device, layout, memory_format)
        dtype = x.dtype if code is None else dtype_of(code, op)
        return m.full_like(x, fit_number(number, dtype, op), dtype)

    return body


def nan_to_num(largest: Any) -> Body:
    """NaN and the infinities replaced; ``largest`` holds the largest number of dtypes NumPy's finfo does not know."""

    def body(m: Any, x: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
        dtype = x.dtype
        if dtype.kind in "biu":
            return x.copy()
        top = largest[dtype] if dtype in largest else float(m.finfo(dtype).max)
        wide = x.astype(FLOAT32) if dtype in HALF_TYPES else x
        y = m.where(m.isnan(wide), 0.0 if nan is None else nan, x)
        y = m.where(wide == math.inf, top if posinf is None else posinf, y)
        return m.where(wide == -math.inf, -top if neginf is None else neginf, y)

    return body
