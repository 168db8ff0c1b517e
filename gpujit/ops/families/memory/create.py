"""Factories: new tensors of a size, like another tensor, and from Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.dtypes import INT64
from gpujit.ir.values import Array, Device
from gpujit.ops import element_bodies
from gpujit.ops.into import fits
from gpujit.ops.layout import (
    cast,
    dtype_of,
    empty_format,
    empty_preserved,
    fit_number,
    module_for,
    on_device,
    out_forms,
    wrap_dims,
)
from gpujit.ops.promotion import COMPLEX64, DEFAULT_FLOAT, result_type
from gpujit.ops.registry import library
from gpujit.ops.rows import by_element
from gpujit.ops.rules.factories import cast_type, full_type, new_type, number_type, scalar_tensor_type, sized_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
_LIKE = f"{OPTIONS}, MemoryFormat? memory_format=None"

# ------------------------------------------------------------------------------------------------ of a size


def new_empty_array(
    xp: Any, size: Sequence[int], dtype: int | None, device: Device | None, op: str, default: Any = None
) -> Array:
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


def fills(out: Array, size: Sequence[int], dtype: Any, code: int | None, options: Sequence[Any]) -> bool:
    """Whether a new tensor of a size, of ``dtype`` unless a code is given, can be made in ``out``.

    ``options`` are its layout, device and what follows.
    """
    layout, device = options[:2]
    if layout or (device is not None and device.type != "cpu"):
        return False
    return fits(out, size, dtype if code is None else dtype_of(code, "aten::empty"))


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

        def into(xp: Any, out: Array, size: list[int], dtype: int | None, *options: Any, value: int = value) -> Any:
            if not fills(out, size, DEFAULT_FLOAT, dtype, options):
                return NotImplemented
            out.fill(value)
            return None

        library(f"aten::{name}(SymInt[] size, *, {OPTIONS}) -> Tensor", half="native", type_rule=sized_type, into=into)(
            sized
        )
        out_forms(f"aten::{name}.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_sized()


@library(f"aten::empty.memory_format(SymInt[] size, *, {_LIKE}) -> Tensor", half="native", type_rule=sized_type)
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


def _full_into(xp: Any, out: Array, size: list[int], fill_value: Any, dtype: int | None, *options: Any) -> Any:
    if not fills(out, size, _number_dtype(fill_value), dtype, options):
        return NotImplemented
    filled(out, fill_value, "aten::full")
    return None


@library(
    f"aten::full(SymInt[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=full_type,
    into=_full_into,
)
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


@library(f"aten::scalar_tensor(Scalar s, *, {OPTIONS}) -> Tensor", half="native", type_rule=scalar_tensor_type)
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


@library(
    f"aten::empty_strided(SymInt[] size, SymInt[] stride, *, {OPTIONS}) -> Tensor", half="native", type_rule=sized_type
)
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


@library(
    f"aten::empty_permuted(SymInt[] size, int[] physical_layout, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=sized_type,
)
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

        def into(xp: Any, out: Array, x: Array, dtype: int | None, *options: Any, value: int | None = value) -> Any:
            if not fills(out, x.shape, x.dtype, dtype, options):
                return NotImplemented
            if value is not None:
                out.fill(value)
            return None

        library(
            f"aten::{name}(Tensor self, *, {_LIKE}) -> Tensor",
            half="native",
            type_rule=cast_type,
            into=into,
            scalar=None if value is None else by_element(element_bodies.like(value, f"aten::{name}")),
        )(made)
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

        def new_into(
            xp: Any, out: Array, x: Array, size: list[int], dtype: int | None, *options: Any, value: int | None = value
        ) -> Any:
            if not fills(out, size, x.dtype, dtype, options):
                return NotImplemented
            if value is not None:
                out.fill(value)
            return None

        library(
            f"aten::{name}(Tensor self, SymInt[] size, *, {OPTIONS}) -> Tensor",
            half="native",
            type_rule=new_type,
            into=new_into,
        )(new)
        out_forms(f"aten::{name}.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)", of=f"aten::{name}")


_declare_like()


def _full_like_into(xp: Any, out: Array, x: Array, fill_value: Any, dtype: int | None, *options: Any) -> Any:
    if not fills(out, x.shape, x.dtype, dtype, options):
        return NotImplemented
    filled(out, fill_value, "aten::full_like")
    return None


def _new_full_into(
    xp: Any, out: Array, x: Array, size: list[int], fill_value: Any, dtype: int | None, *options: Any
) -> Any:
    if not fills(out, size, x.dtype, dtype, options):
        return NotImplemented
    filled(out, fill_value, "aten::new_full")
    return None


@library(
    f"aten::full_like(Tensor self, Scalar fill_value, *, {_LIKE}) -> Tensor",
    half="native",
    type_rule=cast_type,
    scalar=by_element(element_bodies.like(None, "aten::full_like")),
    into=_full_like_into,
)
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


@library(
    f"aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=new_type,
    into=_new_full_into,
)
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


@library(
    f"aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=new_type,
)
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
    "aten::full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None, "
    "Tensor(a!) out) -> Tensor(a!)",
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
            f"aten::tensor.{kind}({kind} t, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) "
            "-> Tensor",
            half="native",
            type_rule=number_type,
        )(of_number)
    library(
        "aten::tensor(t[] data, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
        half="native",
    )(of_list)
    for kind in kinds:
        library(
            f"aten::as_tensor.{kind}({kind} t, *, ScalarType? dtype=None, Device? device=None) -> Tensor",
            half="native",
            type_rule=number_type,
        )(of_number)
    library(
        "aten::as_tensor(Tensor(a) data, *, ScalarType? dtype=None, Device? device=None) -> Tensor(b|a)",
        half="native",
        type_rule=cast_type,
    )(of_tensor)
    library("aten::as_tensor.list(t[] data, *, ScalarType? dtype=None, Device? device=None) -> Tensor", half="native")(
        of_list
    )


_declare_tensors()


__all__ = ["OPTIONS", "check_layout", "filled", "like", "new_empty_array"]
