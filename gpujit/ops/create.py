"""Factories: new tensors from sizes, numbers and lists. Windows, triangles and fills are in ``windows.py`` and ``fills.py``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, INT64
from gpujit.ir.values import Array, Device
from gpujit.ops.layout import (
    cast,
    dtype_of,
    empty_format,
    empty_preserved,
    expand_to,
    fit_number,
    module_for,
    on_device,
    out_forms,
    wrap_dims,
)
from gpujit.ops.promotion import COMPLEX64, DEFAULT_FLOAT, result_type
from gpujit.ops.registry import library
from gpujit.support.errors import DTypeError, OpError, ShapeError

OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
_LIKE = f"{OPTIONS}, MemoryFormat? memory_format=None"

# ------------------------------------------------------------------------------------------------ of a size


def new_empty_array(xp: Any, size: Sequence[int], dtype: int | None, device: Device | None, op: str, default: Any = None) -> Array:
    """A new array with unset elements; ``default`` is the dtype when none is given (float32)."""
    target = (default or DEFAULT_FLOAT) if dtype is None else dtype_of(dtype, op)
    module = xp if device is None else module_for(xp, device, op)
    try:
        return module.empty(size, target)
    except ValueError as e:
        raise ShapeError(f"{op}: size {list(size)} can't be allocated: {e}") from None


def check_layout(layout: int | None, op: str) -> None:
    """Refuse sparse layouts. Raises OpError."""
    if layout:
        raise OpError(f"{op}: layout {layout} is not supported; only strided (0) is")


def filled(array: Array, value: Any, op: str) -> Array:
    """``array`` with every element set to a Python number."""
    array.fill(fit_number(value, array.dtype, op))
    return array


def _declare_sized() -> None:
    for name, value in (("zeros", 0), ("ones", 1), ("_efficientzerotensor", 0)):

        def sized(
            xp: Any,
            size: list[int],
            dtype: int | None,
            layout: int | None,
            device: Device | None,
            pin_memory: bool | None,
            *,
            op: str = f"aten::{name}",
            value: int = value,
        ) -> Array:
            """A new tensor of one value; float32 unless a dtype is given."""
            check_layout(layout, op)
            y = new_empty_array(xp, size, dtype, device, op)
            y.fill(value)
            return y

        library(f"aten::{name}(SymInt[] size, *, {OPTIONS}) -> Tensor", half="native")(sized)
        out_forms(f"aten::{name}.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_sized()


@library(f"aten::empty.memory_format(SymInt[] size, *, {_LIKE}) -> Tensor", half="native")
def empty(
    xp: Any,
    size: list[int],
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
    memory_format: int | None,
) -> Array:
    """A new tensor with unset elements."""
    check_layout(layout, "aten::empty")
    if memory_format is None or memory_format == 0:
        return new_empty_array(xp, size, dtype, device, "aten::empty")
    target = DEFAULT_FLOAT if dtype is None else dtype_of(dtype, "aten::empty")
    return empty_format(module_for(xp, device, "aten::empty"), tuple(size), target, memory_format, "aten::empty")


def _number_dtype(value: Any) -> np.dtype[Any]:
    return result_type(value)


@library(f"aten::full(SymInt[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor", half="native")
def full(
    xp: Any,
    size: list[int],
    fill_value: Any,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """A new tensor of one number, which also decides the dtype when none is given."""
    check_layout(layout, "aten::full")
    y = new_empty_array(xp, size, dtype, device, "aten::full", _number_dtype(fill_value))
    return filled(y, fill_value, "aten::full")


@library(f"aten::scalar_tensor(Scalar s, *, {OPTIONS}) -> Tensor", half="native")
def scalar_tensor(
    xp: Any, s: Any, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """A 0-dim tensor of a number; float32 unless a dtype is given."""
    y = new_empty_array(xp, (), dtype, device, "aten::scalar_tensor")
    return filled(y, s, "aten::scalar_tensor")


def strided_empty(xp: Any, size: Sequence[int], stride: Sequence[int], dtype: Any, op: str) -> Array:
    """A new array with unset elements and given strides (in elements)."""
    if len(size) != len(stride) or any(n < 0 for n in size) or any(s < 0 for s in stride):
        raise ShapeError(f"{op}: size {list(size)} and stride {list(stride)} don't describe a tensor")
    if 0 in size:
        return xp.empty(size, dtype)
    need = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if need > 1 << 48:
        raise ShapeError(f"{op}: size {list(size)} and stride {list(stride)} need {need} elements of memory")
    flat = xp.empty(need, dtype)
    return xp.lib.stride_tricks.as_strided(flat, size, [s * flat.itemsize for s in stride])


@library(f"aten::empty_strided(SymInt[] size, SymInt[] stride, *, {OPTIONS}) -> Tensor", half="native")
def empty_strided(
    xp: Any,
    size: list[int],
    stride: list[int],
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """A new tensor with unset elements and the given strides."""
    target = DEFAULT_FLOAT if dtype is None else dtype_of(dtype, "aten::empty_strided")
    return strided_empty(module_for(xp, device, "aten::empty_strided"), size, stride, target, "aten::empty_strided")


@library(f"aten::empty_permuted(SymInt[] size, int[] physical_layout, *, {OPTIONS}) -> Tensor", half="native")
def empty_permuted(
    xp: Any,
    size: list[int],
    physical_layout: list[int],
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """A new tensor with unset elements whose dims lie in memory in the given order, outermost first."""
    op = "aten::empty_permuted"
    order = wrap_dims(physical_layout, len(size), op)
    if len(order) != len(size):
        raise ShapeError(f"{op}: physical_layout {physical_layout} is no permutation of {len(size)} dims")
    y = new_empty_array(xp, [size[d] for d in order], dtype, device, op)
    return y.transpose([order.index(d) for d in range(len(order))])


# ------------------------------------------------------------------------------------------------ like another tensor


def like(
    xp: Any, x: Array, dtype: int | None, layout: int | None, device: Device | None, memory_format: int | None, op: str
) -> Array:
    """A new array of the shape, and unless given the dtype and memory order, of ``x``."""
    check_layout(layout, op)
    module = xp if device is None else module_for(xp, device, op)
    target = x.dtype if dtype is None else dtype_of(dtype, op)
    if memory_format is None or memory_format == 1:
        return empty_preserved(module, x, target)
    return empty_format(module, x.shape, target, memory_format, op)


def _declare_like() -> None:
    for name, value in (("zeros_like", 0), ("ones_like", 1), ("empty_like", None)):

        def made(
            xp: Any,
            x: Array,
            dtype: int | None,
            layout: int | None,
            device: Device | None,
            pin_memory: bool | None,
            memory_format: int | None,
            *,
            op: str = f"aten::{name}",
            value: int | None = value,
        ) -> Array:
            """A new tensor of the shape of ``self``."""
            y = like(xp, x, dtype, layout, device, memory_format, op)
            if value is not None:
                y.fill(value)
            return y

        library(f"aten::{name}(Tensor self, *, {_LIKE}) -> Tensor", half="native")(made)
        out_forms(
            f"aten::{name}.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
            of=f"aten::{name}",
        )
    for name, value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):

        def new(
            xp: Any,
            x: Array,
            size: list[int],
            dtype: int | None,
            layout: int | None,
            device: Device | None,
            pin_memory: bool | None,
            *,
            op: str = f"aten::{name}",
            value: int | None = value,
        ) -> Array:
            """A new tensor of a size, with the dtype of ``self`` unless one is given."""
            check_layout(layout, op)
            y = new_empty_array(xp, size, dtype, device, op, x.dtype)
            if value is not None:
                y.fill(value)
            return y

        library(f"aten::{name}(Tensor self, SymInt[] size, *, {OPTIONS}) -> Tensor", half="native")(new)
        out_forms(f"aten::{name}.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_like()


@library(f"aten::full_like(Tensor self, Scalar fill_value, *, {_LIKE}) -> Tensor", half="native")
def full_like(
    xp: Any,
    x: Array,
    fill_value: Any,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
    memory_format: int | None,
) -> Array:
    """A new tensor of one number, with the shape and dtype of ``self``."""
    return filled(like(xp, x, dtype, layout, device, memory_format, "aten::full_like"), fill_value, "aten::full_like")


@library(f"aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor", half="native")
def new_full(
    xp: Any,
    x: Array,
    size: list[int],
    fill_value: Any,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """A new tensor of a size and one number, with the dtype of ``self`` unless one is given."""
    check_layout(layout, "aten::new_full")
    return filled(new_empty_array(xp, size, dtype, device, "aten::new_full", x.dtype), fill_value, "aten::new_full")


@library(f"aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, {OPTIONS}) -> Tensor", half="native")
def new_empty_strided(
    xp: Any,
    x: Array,
    size: list[int],
    stride: list[int],
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """A new tensor with unset elements and given strides, with the dtype of ``self`` unless one is given."""
    op = "aten::new_empty_strided"
    target = x.dtype if dtype is None else dtype_of(dtype, op)
    return strided_empty(module_for(xp, device, op), size, stride, target, op)


out_forms(
    "aten::empty.out(SymInt[] size, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
    "aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)",
    "aten::new_full.out(Tensor self, SymInt[] size, Scalar fill_value, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::new_empty_strided.out(Tensor self, SymInt[] size, SymInt[] stride, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::empty_strided.out(SymInt[] size, SymInt[] stride, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::empty_permuted.out(SymInt[] size, int[] physical_layout, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::scalar_tensor.out(Scalar s, *, Tensor(a!) out) -> Tensor(a!)",
    of=(
        "aten::empty.memory_format",
        "aten::full",
        "aten::full_like",
        "aten::new_full",
        "aten::new_empty_strided",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::scalar_tensor",
    ),
)


# ------------------------------------------------------------------------------------------------ sequences


def _progression(xp: Any, start: Any, count: int, step: Any, dtype: np.dtype[Any]) -> Array:
    """``count`` numbers from ``start`` on, computed exactly for integers and in double precision else."""
    if dtype.kind in "iu":
        if count and not isinstance(start, int):
            start, step = int(start), int(step)
        return cast(xp.arange(count, dtype=INT64) * step + start, dtype)
    values = xp.arange(count, dtype="float64")
    values *= step
    values += start
    return cast(values, dtype)


def _ranged(xp: Any, start: Any, end: Any, step: Any, dtype: int | None, device: Device | None, op: str) -> Array:
    if dtype is None:
        target = INT64 if all(isinstance(v, int) for v in (start, end, step)) else DEFAULT_FLOAT
    else:
        target = dtype_of(dtype, op)
    module = xp if device is None else module_for(xp, device, op)
    exact = target.kind in "iu"
    if exact and target == INT64:
        # PyTorch truncates the bounds to the dtype first.
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise OpError(f"{op}: step must not be zero")
    if start != start or end != end or abs(start) == float("inf") or abs(end) == float("inf"):
        raise OpError(f"{op}: the range {start} to {end} is not finite")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise OpError(f"{op}: end {end} lies on the wrong side of start {start} for step {step}")
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        count = -((start - end) // step) if step > 0 else -((end - start) // -step)
        if exact and -(1 << 62) < end < 1 << 62:
            return cast(module.arange(start, end, step, dtype=INT64), target)
    else:
        count = ceil((float(end) - float(start)) / float(step))
    return _progression(module, start, count, step, target)


@library(f"aten::arange(Scalar end, *, {OPTIONS}) -> Tensor", half="native")
def arange(xp: Any, end: Any, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None) -> Array:
    """0, 1, 2, ... up to before ``end``; int64 for an integer ``end``, else float32."""
    return _ranged(xp, 0, end, 1, dtype, device, "aten::arange")


@library(f"aten::arange.start(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor", half="native")
def arange_start(
    xp: Any, start: Any, end: Any, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """``start``, ``start + 1``, ... up to before ``end``."""
    return _ranged(xp, start, end, 1, dtype, device, "aten::arange")


@library(f"aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor", half="native")
def arange_step(
    xp: Any,
    start: Any,
    end: Any,
    step: Any,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
) -> Array:
    """``start``, ``start + step``, ... up to before ``end``."""
    return _ranged(xp, start, end, step, dtype, device, "aten::arange")


def _declare_closed_range() -> None:
    def closed(
        xp: Any,
        start: Any,
        end: Any,
        step: Any,
        dtype: int | None,
        layout: int | None,
        device: Device | None,
        pin_memory: bool | None,
    ) -> Array:
        """``start``, ``start + step``, ... up to and including ``end``; float32 unless a dtype is given."""
        target = DEFAULT_FLOAT if dtype is None else dtype_of(dtype, "aten::range")
        if step == 0 or (end - start) * (1 if step > 0 else -1) < 0:
            raise OpError(f"aten::range: step {step} does not lead from {start} to {end}")
        count = int((end - start) / step) + 1
        return _progression(module_for(xp, device, "aten::range"), start, count, step, target)

    def closed_by_one(xp: Any, start: Any, end: Any, *options: Any) -> Array:
        """``start``, ``start + 1``, ... up to and including ``end``."""
        return closed(xp, start, end, 1, *options)

    library(f"aten::range.step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor", half="native")(closed)
    library(f"aten::range(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor", half="native")(closed_by_one)


_declare_closed_range()


def _lin(xp: Any, start: Any, end: Any, steps: int, target: np.dtype[Any], op: str) -> Array:
    """``steps`` numbers evenly from ``start`` to ``end``, counted from the nearer end as PyTorch does."""
    if steps < 0:
        raise ShapeError(f"{op}: the number of steps must not be negative, found {steps}")
    wide = "complex128" if target.kind == "c" else "float64"
    if target.kind != "c" and (isinstance(start, complex) or isinstance(end, complex)):
        raise DTypeError(f"{op}: complex bounds need a complex dtype, found {target}")
    if target.kind in "iu":
        start, end = int(start), int(end)
    if steps == 1:
        return xp.full(1, start, dtype=wide)
    i = xp.arange(steps, dtype=wide)
    step = (end - start) / (steps - 1) if steps > 1 else 0
    half = steps // 2
    i[half:] -= steps - 1
    i *= step
    i[:half] += start
    i[half:] += end
    return i


def _declare_spaces() -> None:
    kinds = (
        ("Tensor_Tensor", "Tensor start, Tensor end"),
        ("Tensor_Scalar", "Tensor start, Scalar end"),
        ("Scalar_Tensor", "Scalar start, Tensor end"),
        ("", "Scalar start, Scalar end"),
    )

    def number(v: Any, op: str) -> Any:
        if not hasattr(v, "dtype"):
            return v
        if v.ndim:
            raise ShapeError(f"{op}: start and end must be 0-dim tensors, found shape {list(v.shape)}")
        return v.item()

    def spaced(xp: Any, start: Any, end: Any, steps: int, dtype: int | None, device: Device | None, base: float | None) -> Array:
        op = "aten::linspace" if base is None else "aten::logspace"
        start, end = number(start, op), number(end, op)
        complex_bounds = isinstance(start, complex) or isinstance(end, complex)
        target = (COMPLEX64 if complex_bounds else DEFAULT_FLOAT) if dtype is None else dtype_of(dtype, op)
        xp = module_for(xp, device, op)
        values = _lin(xp, start, end, steps, target, op)
        if base is not None:
            values = xp.power(base, values)
        return cast(values, target)

    def lin(xp: Any, start: Any, end: Any, steps: int, dtype: int | None, layout: Any, device: Any, pin: Any) -> Array:
        """``steps`` numbers evenly from ``start`` to ``end``, both included."""
        return spaced(xp, start, end, steps, dtype, device, None)

    def log(xp: Any, start: Any, end: Any, steps: int, base: float, dtype: int | None, layout: Any, device: Any, pin: Any) -> Array:
        """``base`` to the power of ``steps`` numbers evenly from ``start`` to ``end``."""
        return spaced(xp, start, end, steps, dtype, device, base)

    for name, body, extra in (("linspace", lin, ""), ("logspace", log, ", float base=10.")):
        for overload, bounds in kinds:
            dot = f".{overload}" if overload else ""
            library(f"aten::{name}{dot}({bounds}, int steps{extra}, *, {OPTIONS}) -> Tensor", half="native")(body)
        for overload, bounds in kinds[3:] + kinds[:3]:
            full_name = f"aten::{name}.{overload}" if overload else f"aten::{name}"
            out = f"{overload}_out" if overload else "out"
            out_forms(f"aten::{name}.{out}({bounds}, int steps{extra}, *, Tensor(a!) out) -> Tensor(a!)", of=full_name)


_declare_spaces()


@library(f"aten::eye(SymInt n, *, {OPTIONS}) -> Tensor", half="native")
def eye(xp: Any, n: int, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None) -> Array:
    """The identity matrix of ``n`` rows."""
    return eye_m(xp, n, n, dtype, layout, device, pin_memory)


@library(f"aten::eye.m(SymInt n, SymInt m, *, {OPTIONS}) -> Tensor", half="native")
def eye_m(
    xp: Any, n: int, m: int, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """A matrix of ``n`` rows and ``m`` columns with ones on its diagonal."""
    y = new_empty_array(xp, (n, m), dtype, device, "aten::eye")
    y.fill(0)
    y.reshape(-1)[: min(n, m) * m : m + 1] = 1
    return y


out_forms(
    "aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::arange.out(Scalar end, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::range.out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::range.out_(Scalar start, Scalar end, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::eye.out(SymInt n, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::eye.m_out(SymInt n, SymInt m, *, Tensor(a!) out) -> Tensor(a!)",
    of=("aten::arange.start_step", "aten::arange", "aten::range.step", "aten::range", "aten::eye", "aten::eye.m"),
)


# ------------------------------------------------------------------------------------------------ from Python values


def _declare_tensors() -> None:
    def of_number(xp: Any, t: Any, dtype: int | None, device: Device | None, *rest: Any) -> Array:
        """A 0-dim tensor of a number; its dtype follows the number when none is given."""
        target = _number_dtype(t) if dtype is None else dtype_of(dtype, "aten::tensor")
        y = module_for(xp, device, "aten::tensor").empty((), target)
        return filled(y, t, "aten::tensor")

    def of_list(xp: Any, data: list[Any], dtype: int | None, device: Device | None, *rest: Any) -> Array:
        """A tensor of a nested list; bool, int64, float32 or complex64 when no dtype is given."""
        try:
            values = np.array([v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for v in data])
        except ValueError as e:
            raise ShapeError(f"aten::tensor: the lists differ in length or depth: {e}") from None
        except OverflowError as e:
            raise OpError(f"aten::tensor: {e}") from None
        if values.dtype.kind not in "biufc":
            raise DTypeError("aten::tensor: a list must hold numbers only")
        if dtype is not None:
            target = dtype_of(dtype, "aten::tensor")
        elif not values.size:
            target = DEFAULT_FLOAT
        else:
            target = {"b": values.dtype, "f": DEFAULT_FLOAT, "c": COMPLEX64}.get(values.dtype.kind, INT64)
        if values.dtype.kind == "c" and target.kind != "c":
            raise DTypeError(f"aten::tensor: complex numbers can't become {target}")
        return module_for(xp, device, "aten::tensor").asarray(cast(values, target))

    def of_tensor(xp: Any, data: Array, dtype: int | None, device: Device | None) -> Array:
        """The tensor with a dtype and on a device; itself when nothing changes."""
        y = on_device(xp, data, device, "aten::as_tensor")
        return y if dtype is None else cast(y, dtype_of(dtype, "aten::as_tensor"))

    kinds = ("bool", "float", "int", "complex")
    for kind in kinds:
        library(
            f"aten::tensor.{kind}({kind} t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
            half="native",
        )(of_number)
    library(
        "aten::tensor(t[] data, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
        half="native",
    )(of_list)
    for kind in kinds:
        library(f"aten::as_tensor.{kind}({kind} t, *, ScalarType? dtype=None, Device? device=None) -> Tensor", half="native")(
            of_number
        )
    library(
        "aten::as_tensor(Tensor(a) data, *, ScalarType? dtype=None, Device? device=None) -> Tensor(b|a)", half="native"
    )(of_tensor)
    library("aten::as_tensor.list(t[] data, *, ScalarType? dtype=None, Device? device=None) -> Tensor", half="native")(of_list)


_declare_tensors()


# ------------------------------------------------------------------------------------------------ grids


def _grids(xp: Any, tensors: list[Array], indexing: str, op: str) -> list[Array]:
    if indexing not in ("ij", "xy"):
        raise OpError(f"{op}: indexing must be 'ij' or 'xy', found {indexing!r}")
    for t in tensors:
        if t.ndim > 1:
            raise ShapeError(f"{op}: tensors of at most one dim are needed, found shape {list(t.shape)}")
        if t.dtype != tensors[0].dtype:
            raise DTypeError(f"{op}: all tensors must have one dtype, found {tensors[0].dtype} and {t.dtype}")
    flat = [t.reshape(-1) for t in tensors]
    swap = indexing == "xy" and len(flat) > 1
    if swap:
        flat[0], flat[1] = flat[1], flat[0]
    shape = tuple(t.size for t in flat)
    n = len(shape)
    grids = [expand_to(xp, t.reshape([-1 if d == i else 1 for d in range(n)]), shape) for i, t in enumerate(flat)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return grids


@library("aten::meshgrid(Tensor[] tensors) -> Tensor[]", half="native")
def meshgrid(xp: Any, tensors: list[Array]) -> list[Array]:
    """For each tensor its values along a dim of their own, expanded over those of the others."""
    return _grids(xp, tensors, "ij", "aten::meshgrid")


@library("aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", half="native")
def meshgrid_indexing(xp: Any, tensors: list[Array], indexing: str) -> list[Array]:
    """As meshgrid; ``xy`` exchanges the first two dims."""
    return _grids(xp, tensors, indexing, "aten::meshgrid")


@library("aten::cartesian_prod(Tensor[] tensors) -> Tensor", half="native")
def cartesian_prod(xp: Any, tensors: list[Array]) -> Array:
    """All combinations of one element from each 1-dim tensor, as rows."""
    for t in tensors:
        if t.ndim != 1:
            raise ShapeError(f"aten::cartesian_prod: 1-dim tensors are needed, found shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    grids = _grids(xp, tensors, "ij", "aten::cartesian_prod")
    y = xp.empty((*grids[0].shape, len(grids)), tensors[0].dtype)
    for i, g in enumerate(grids):
        y[..., i] = g
    return y.reshape(-1, len(grids))


@library("aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", half="native")
def combinations(xp: Any, x: Array, r: int, with_replacement: bool) -> Array:
    """All combinations of ``r`` elements of a 1-dim tensor, in order, as rows."""
    if x.ndim != 1 or r < 0:
        raise ShapeError(f"aten::combinations: a 1-dim tensor and r >= 0 are needed, found shape {list(x.shape)} and r {r}")
    if r == 0:
        return xp.empty(0, x.dtype)
    n = x.size
    index = xp.arange(n)[:, None]
    for _ in range(r - 1):
        # Each row grows by every index after (or from) its last one.
        last = index[:, -1]
        counts = n - last - (0 if with_replacement else 1)
        rows = xp.repeat(xp.arange(len(index)), counts)
        first = xp.cumsum(counts) - counts
        step = xp.arange(rows.size) - first[rows] + last[rows] + (0 if with_replacement else 1)
        index = xp.concatenate((index[rows], step[:, None]), axis=1)
    return x[index]


@library("aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor", half="native")
def vander(xp: Any, x: Array, n: int | None, increasing: bool) -> Array:
    """Powers of a 1-dim tensor as columns, falling unless ``increasing``."""
    if x.ndim != 1:
        raise ShapeError(f"aten::vander: a 1-dim tensor is needed, found shape {list(x.shape)}")
    columns = x.size if n is None else n
    if columns < 0:
        raise ShapeError(f"aten::vander: N must not be negative, found {columns}")
    target = INT64 if x.dtype.kind in "biu" else x.dtype
    y = xp.empty((x.size, columns), FLOAT32 if x.dtype.kind not in "biufc" or x.itemsize == 2 and target != INT64 else target)
    if columns:
        y[:, 0] = 1
        y[:, 1:] = x[:, None]
        y[:, 1:] = xp.cumprod(y[:, 1:], axis=1)
    return cast(y if increasing else y[:, ::-1].copy(), target)


@library("aten::block_diag(Tensor[] tensors) -> Tensor", half="native")
def block_diag(xp: Any, tensors: list[Array]) -> Array:
    """A matrix with the tensors as blocks along its diagonal; 0- and 1-dim ones count as one row."""
    if not tensors:
        return xp.empty((1, 0), DEFAULT_FLOAT)
    for t in tensors:
        if t.ndim > 2:
            raise ShapeError(f"aten::block_diag: tensors of at most 2 dims are needed, found shape {list(t.shape)}")
    blocks = [t if t.ndim == 2 else t.reshape(1, -1) for t in tensors]
    dtype = blocks[0].dtype
    for b in blocks[1:]:
        dtype = result_type(xp.empty(1, dtype), xp.empty(1, b.dtype))
    rows = [0, *accumulate(b.shape[0] for b in blocks)]
    columns = [0, *accumulate(b.shape[1] for b in blocks)]
    y = xp.zeros((rows[-1], columns[-1]), dtype)
    for b, r, c in zip(blocks, rows, columns, strict=False):
        y[r : r + b.shape[0], c : c + b.shape[1]] = cast(b, dtype)
    return y


@library("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", half="native")
def one_hot(xp: Any, x: Array, num_classes: int) -> Array:
    """int64 rows of zeros with a one at each class; ``num_classes`` -1 takes the largest class."""
    op = "aten::one_hot"
    if x.dtype != INT64:
        raise DTypeError(f"{op}: an int64 tensor is needed, found {x.dtype}")
    if x.size == 0:
        if num_classes <= 0:
            raise ShapeError(f"{op}: the number of classes can't be read from an empty tensor; give num_classes")
        return xp.zeros((*x.shape, num_classes), INT64)
    low, high = int(x.min()), int(x.max())
    if low < 0:
        raise ShapeError(f"{op}: class {low} is negative")
    if num_classes == -1:
        num_classes = high + 1
    elif num_classes < 1 or high >= num_classes:
        raise ShapeError(f"{op}: class {high} is not below num_classes {num_classes}")
    y = xp.zeros((x.size, num_classes), INT64)
    y.reshape(-1)[xp.arange(0, x.size * num_classes, num_classes) + x.reshape(-1)] = 1
    return y.reshape(*x.shape, num_classes)


out_forms("aten::block_diag.out(Tensor[] tensors, *, Tensor(a!) out) -> Tensor(a!)", of="aten::block_diag")


def _declare_triangle_indices() -> None:
    for name, lower in (("tril_indices", True), ("triu_indices", False)):

        def indices(
            xp: Any,
            row: int,
            col: int,
            offset: int,
            dtype: int | None,
            layout: int | None,
            device: Device | None,
            pin_memory: bool | None,
            *,
            op: str = f"aten::{name}",
            lower: bool = lower,
        ) -> Array:
            """Row and column numbers of a triangle, as two rows, in row order."""
            if row < 0 or col < 0:
                raise ShapeError(f"{op}: sizes {row} and {col} must not be negative")
            target = INT64 if dtype is None else dtype_of(dtype, op)
            module = module_for(xp, device, op)
            r, c = module.arange(row)[:, None], module.arange(col)
            inside = (c - r <= offset) if lower else (c - r >= offset)
            found = inside.nonzero()
            y = module.empty((2, found[0].size), target)
            y[0], y[1] = found
            return y

        arguments = "int row, int col, int offset=0"
        options = OPTIONS.replace("dtype=None", "dtype=4")
        library(f"aten::{name}({arguments}, *, {options}) -> Tensor", half="native")(indices)
        out_forms(f"aten::{name}.out({arguments}, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_triangle_indices()

__all__ = ["OPTIONS", "check_layout", "filled", "like", "new_empty_array"]
