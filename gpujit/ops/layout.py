"""Shared by the operators that move data: dims, dtypes and casts, memory formats and strides, devices, out= forms.

Memory formats are TorchScript's codes: contiguous 0, preserve 1, channels_last 2, channels_last_3d 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, BOOL_, BY_CODE, FLOAT8_TYPES, FLOAT16, FLOAT32, HALF_TYPES, code_of, numpy_dtype
from gpujit.ir.schema import Schema, parse_schema
from gpujit.ir.types import ListType
from gpujit.ir.values import Array, Device
from gpujit.ops.out_variants import out_kernel
from gpujit.ops.registry import by_full_name, library
from gpujit.support.errors import DeviceError, DTypeError, InternalError, OpError, ShapeError

ALL = slice(None)
# Index prefixes: BEFORE[d] + (key,) applies key to dim d.
BEFORE: tuple[tuple[slice, ...], ...] = tuple((ALL,) * d for d in range(65))
_MEMORY_ORDER = {2: (0, 2, 3, 1), 3: (0, 2, 3, 4, 1)}
_INVERSE_ORDER = {2: (0, 3, 1, 2), 3: (0, 4, 1, 2, 3)}


# ------------------------------------------------------------------------------------------------------- dims


def wrap_dim(dim: int, ndim: int, op: str) -> int:
    """``dim`` counted from the front; a 0-dim tensor counts as one dim. Raises ShapeError when out of range."""
    n = ndim or 1
    if not -n <= dim < n:
        raise ShapeError(f"{op}: dim {dim} is out of range for a tensor of {ndim} dims; use {-n} to {n - 1}")
    return dim + n if dim < 0 else dim


def wrap_dims(dims: Sequence[int], ndim: int, op: str) -> list[int]:
    """All of ``dims`` counted from the front. Raises ShapeError when one is out of range or appears twice."""
    wrapped = [wrap_dim(d, ndim, op) for d in dims]
    if len(set(wrapped)) != len(wrapped):
        raise ShapeError(f"{op}: dims {list(dims)} name a dim twice")
    return wrapped


def normal_size(size: Sequence[int], op: str) -> tuple[int, ...]:
    """``size`` as a tuple. Raises ShapeError for a negative entry."""
    shape = tuple(size)
    if shape and min(shape) < 0:
        raise ShapeError(f"{op}: size {list(shape)} has a negative entry")
    return shape


def check_countable(count: int, x: Array, op: str) -> None:
    """Refuse a result of ``count`` elements of the dtype of ``x`` whose bytes no integer of the machine can count.

    NumPy checks this when it makes an array of a shape, but not in ``repeat``, which then writes past its memory.
    """
    if count * x.itemsize > 1 << 62:
        raise OpError(
            f"{op}: the result would have {count} elements of {x.dtype}, too many for any memory; use smaller numbers",
            code="memory",
        )


# ----------------------------------------------------------------------------------------------------- dtypes


def dtype_of(code: int, op: str) -> np.dtype[Any]:
    """The NumPy dtype of a ScalarType code. Raises DTypeError when NumPy has none."""
    try:
        return numpy_dtype(code)
    except (KeyError, TypeError):
        name = BY_CODE[code].name if code in BY_CODE else f"code {code}"
        raise DTypeError(f"{op}: dtype {name} is not supported for dense arrays; use another one") from None


@cache
def _cast_steps(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
    """The chain of dtypes a cast goes through so that it rounds and wraps as PyTorch's does."""
    steps: list[np.dtype[Any]] = []
    narrow = HALF_TYPES | FLOAT8_TYPES
    if source in narrow and source != FLOAT16:
        steps.append(FLOAT32)
    elif (target in narrow or (source in narrow and target.kind in "iuc")) and source != FLOAT32 and source.kind != "c":
        # PyTorch's half types convert through float32, which rounds twice.
        steps.append(FLOAT32)
    elif source.kind == "c" and target in narrow:
        steps.append(FLOAT32)
    last = steps[-1] if steps else source
    if target == np.uint8 and last.kind == "f":
        steps.append(np.dtype(np.int64))
    if not steps or steps[-1] != target:
        steps.append(target)
    return tuple(steps)


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` in another dtype as PyTorch converts it (integers wrap, imaginary parts are lost); else ``x`` itself."""
    source = x.dtype
    if source == dtype:
        return x
    if source.kind == "c" and dtype.kind != "c" and dtype != BOOL_:
        x = x.real
        source = x.dtype
    for step in _cast_steps(source, dtype):
        x = x.astype(step)
    return x


def fit_number(value: Any, dtype: np.dtype[Any], op: str) -> Any:
    """A Python number converted to what ``dtype`` holds. Raises OpError when it does not fit, as PyTorch does."""
    kind = dtype.kind
    if kind == "b":
        return bool(value)
    if kind == "c":
        return complex(value)
    if isinstance(value, complex):
        if value.imag:
            raise OpError(
                f"{op}: the number {value} can't be converted to {dtype} without overflow; it has an imaginary part"
            )
        value = value.real
    if kind in "iu":
        if value != value or value in (float("inf"), float("-inf")):
            raise OpError(f"{op}: the number {value} can't be converted to {dtype} without overflow")
        info = np.iinfo(dtype)
        value = int(value)
        if not (info.min if kind == "i" else -int(info.max)) <= value <= info.max:
            raise OpError(f"{op}: the number {value} can't be converted to {dtype} without overflow")
        return value & int(info.max) if value < 0 and kind == "u" else value
    value = float(value)
    if dtype in (FLOAT32, FLOAT16, BFLOAT16) and abs(value) != float("inf"):
        largest = 65504.0 if dtype == FLOAT16 else 3.3895313892515355e38 if dtype == BFLOAT16 else 3.4028234663852886e38
        if abs(value) > largest:
            raise OpError(f"{op}: the number {value} can't be converted to {dtype} without overflow")
    return value


# ---------------------------------------------------------------------------------------------------- devices


def module_for(xp: Any, device: Device | None, op: str) -> Any:
    """The array module that makes arrays on ``device``; ``xp`` when no device is given. Raises DeviceError."""
    if device is None or (device.type == "cpu") == (xp is np):
        if device is None or device.type in ("cpu", "cuda"):
            return xp
    elif device.type == "cpu":
        return np
    raise DeviceError(f"{op}: device {device} is not available here; use {'cpu' if xp is np else 'cuda'}")


def on_device(xp: Any, x: Array, device: Device | None, op: str) -> Array:
    """``x`` on ``device``: itself when it is there already. Raises DeviceError when there is no such device."""
    if device is None:
        return x
    is_numpy = isinstance(x, np.ndarray)
    if device.type == "cpu":
        return x if is_numpy else x.get()
    if device.type == "cuda" and not is_numpy:
        return x
    if device.type == "cuda" and xp is not np:
        return xp.asarray(x)
    raise DeviceError(f"{op}: device {device} is not available here; use {'cpu' if xp is np else 'cuda'}")


# ----------------------------------------------------------------------------------------------------- layout


def is_channels_last(x: Array, memory_format: int = 2) -> bool:
    """Whether ``x`` has the strides of channels_last (2) or channels_last_3d (3); dims of size 1 may have any."""
    order = _MEMORY_ORDER[memory_format]
    return x.ndim == len(order) and bool(x.transpose(order).flags.c_contiguous)


def has_format(x: Array, memory_format: int) -> bool:
    """Whether ``x`` already has the strides of a memory format."""
    if memory_format in _MEMORY_ORDER:
        return is_channels_last(x, memory_format)
    return memory_format == 1 or bool(x.flags.c_contiguous)


def empty_format(xp: Any, shape: tuple[int, ...], dtype: Any, memory_format: int | None, op: str) -> Array:
    """A new array with the strides of a memory format (None and preserve: contiguous)."""
    order = _MEMORY_ORDER.get(memory_format or 0)
    if order is None:
        return xp.empty(shape, dtype)
    if len(shape) != len(order):
        raise ShapeError(
            f"{op}: this channels_last format needs {len(order)} dims, the shape {list(shape)} has {len(shape)}"
        )
    assert memory_format is not None
    return xp.empty([shape[d] for d in order], dtype).transpose(_INVERSE_ORDER[memory_format])


def _inferred_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Dims from innermost to outermost as PyTorch reads them from strides; zero strides say nothing.

    Source: ATen/ExpandUtils.cpp, infer_dense_strides.
    """
    perm = list(range(len(shape) - 1, -1, -1))

    def should_swap(a: int, b: int) -> int:
        if strides[a] == 0 or strides[b] == 0:
            return 0
        if strides[a] != strides[b]:
            return 1 if strides[a] > strides[b] else -1
        return 1 if shape[a] > shape[b] else 0

    for i in range(1, len(perm)):
        at = i
        for below in range(i - 1, -1, -1):
            order = should_swap(perm[below], perm[at])
            if order > 0:
                perm[at], perm[below] = perm[below], perm[at]
                at = below
            elif order < 0:
                break
    return perm


def empty_preserved(xp: Any, x: Array, dtype: Any = None) -> Array:
    """A new array of the shape of ``x`` whose dims lie in memory in the order those of ``x`` do."""
    dtype = x.dtype if dtype is None else dtype
    if x.flags.c_contiguous or x.ndim < 2:
        return xp.empty(x.shape, dtype)
    if x.flags.f_contiguous and x.ndim == 2:
        return xp.empty(x.shape, dtype, order="F")
    order = _inferred_order(x.shape, x.strides)[::-1]
    y = xp.empty([x.shape[d] for d in order], dtype)
    back = [0] * len(order)
    for i, d in enumerate(order):
        back[d] = i
    return y.transpose(back)


def copy_preserved(xp: Any, x: Array) -> Array:
    """A copy of ``x`` in its own memory order."""
    if x.flags.c_contiguous:
        return x.copy()
    y = empty_preserved(xp, x)
    y[...] = x
    return y


def copy_format(xp: Any, x: Array, memory_format: int | None, op: str) -> Array:
    """A copy of ``x`` in a memory format; None and preserve keep its own order."""
    if memory_format is None or memory_format == 1:
        return copy_preserved(xp, x)
    if memory_format == 0:
        return x.copy()
    y = empty_format(xp, x.shape, x.dtype, memory_format, op)
    y[...] = x
    return y


def strided(xp: Any, x: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of the memory that starts at the first element of ``x``; the caller has checked that it stays inside."""
    if xp is np:
        if x.flags.c_contiguous and x.size:
            return np.ndarray(shape, x.dtype, x, 0, strides)
        return np.lib.stride_tricks.as_strided(x, shape, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def expand_to(xp: Any, x: Array, shape: tuple[int, ...]) -> Array:
    """``x`` seen under a larger shape with stride 0 along the new extents; the caller has checked that it fits."""
    old, old_strides = x.shape, x.strides
    lead = len(shape) - len(old)
    strides = [0] * lead
    for i, st in enumerate(old_strides):
        strides.append(st if old[i] == shape[lead + i] else 0)
    return strided(xp, x, shape, tuple(strides))


def set_geometry(x: Array, shape: tuple[int, ...], strides: tuple[int, ...], op: str) -> Array:
    """``x`` itself with another shape (of as many elements) and other strides over the same memory.

    Raises OpError when the array module does not let an existing array change.
    """
    try:
        with warnings.catch_warnings():
            # The setters still work but are deprecated; nothing else changes an array object in place.
            warnings.simplefilter("ignore", DeprecationWarning)
            if isinstance(x.base, type(x)):
                # With all strides zero every shape of the same size is allowed, whatever the strides were.
                x.strides = (0,) * x.ndim
            elif not x.flags.c_contiguous:
                # An array that owns its memory is bounded by its own extent, so it must stay dense.
                x.strides = [x.itemsize * prod(x.shape[d + 1 :]) for d in range(x.ndim)]
            x.shape = shape
            x.strides = strides
    except (AttributeError, ValueError, TypeError) as e:
        raise OpError(
            f"{op}: this array's shape can't be changed in place ({e}); use the operator without underscore"
        ) from None
    return x


# --------------------------------------------------------------------------------------------- out= forms


def out_forms(*texts: str, of: str | Sequence[str]) -> None:
    """Declare out= forms of functional entries.

    ``of`` names the functional entry (one for all, or one for each text). Arguments are matched by name; a ``dtype``
    that the out= form lacks is the dtype of the first output, any other missing one has its default.
    """
    names = [of] * len(texts) if isinstance(of, str) else of
    for text, name in zip(texts, names, strict=True):
        library(text, half="native", effects=True)(_out_body(text, name))


def _out_body(text: str, functional: str) -> Callable[..., Any]:
    plan: list[tuple[int, Schema, list[Any]]] = []
    kernels: dict[Any, Callable[..., Any]] = {}

    def make_plan() -> tuple[int, Schema, list[Any]]:
        op = by_full_name(functional)
        if op is None:
            raise InternalError(f"{text}: there is no functional entry {functional}")
        form = parse_schema(text)
        positions = {a.name: i for i, a in enumerate(form.arguments) if not (a.is_write and a.kwarg_only)}
        sources: list[Any] = []
        for a in op.schema.arguments:
            sources.append(
                (positions[a.name], None) if a.name in positions else (-1 if a.name == "dtype" else -2, a.default)
            )
        first = sum(1 for a in form.arguments if not (a.is_write and a.kwarg_only))
        return first, form, sources

    def call(xp: Any, *args: Any) -> Any:
        """The outputs given, filled."""
        if not plan:
            plan.append(make_plan())
        first, form, sources = plan[0]
        outs = args[first:]
        op = by_full_name(functional)
        assert op is not None
        values = [args[i] if i >= 0 else code_of(outs[0].dtype) if i == -1 else default for i, default in sources]
        # What is given last may be one list of outputs.
        listed = isinstance(form.arguments[-1].type, ListType)
        kernel = kernels.get(xp)
        if kernel is None:
            kernel = kernels[xp] = out_kernel(op, xp, form.full_name)
        kernel(outs[0] if listed or len(outs) == 1 else outs, *values)
        return None if listed else outs[0] if len(outs) == 1 else outs

    return call
