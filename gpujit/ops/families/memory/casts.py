"""Conversions that return their input itself where nothing changes: to, contiguous, type_as, detach and relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES, INT64
from gpujit.ir.values import Array, Device
from gpujit.ops import element_bodies
from gpujit.ops.families.language.queries import device_of
from gpujit.ops.families.memory.create import OPTIONS, check_layout
from gpujit.ops.layout import cast, copy_format, copy_preserved, dtype_of, has_format, module_for, on_device, out_forms
from gpujit.ops.registry import library, view
from gpujit.ops.rows import by_element
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.factories import cast_as_type, cast_to_type, cast_type, full_precision_type, reduced_type
from gpujit.ops.rules.pieces import shape_as_tensor_type
from gpujit.support.errors import DTypeError, OpError


def converted(
    xp: Any, x: Array, dtype: int | None, device: Device | None, copy: bool, memory_format: int | None, op: str
) -> Array:
    """``x`` with another dtype, device or memory format; ``x`` itself when it has them and no copy is asked for."""
    y = x if device is None else on_device(xp, x, device, op)
    if dtype is not None:
        y = cast(y, dtype_of(dtype, op))
    if memory_format is not None and memory_format != 1 and not has_format(y, memory_format):
        return copy_format(module_for(xp, device, op), y, memory_format, op)
    if y is not x or not copy:
        return y
    return copy_format(xp, x, memory_format, op)


@view(
    "aten::to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor(a)",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::to", 2, 1, 5)),
)
def to_device(
    xp: Any, x: Array, device: Device, dtype: int, non_blocking: bool, copy: bool, memory_format: int | None
) -> Array:
    """The tensor on a device and with a dtype; itself when nothing changes."""
    return converted(xp, x, dtype, device, copy, memory_format, "aten::to")


@view(
    "aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor(a)",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::to", 1, None, 4)),
)
def to_dtype(xp: Any, x: Array, dtype: int, non_blocking: bool, copy: bool, memory_format: int | None) -> Array:
    """The tensor with a dtype; itself when nothing changes."""
    return converted(xp, x, dtype, None, copy, memory_format, "aten::to")


def _is_on(flags: tuple[bool, bool], x: Array) -> bool:
    """Whether casts are switched on, by flags for CUDA and for the CPU, where a tensor lies."""
    return flags[0] if flags[0] == flags[1] else flags[0 if device_of(x).type == "cuda" else 1]


@view(
    "aten::_autocast_to_reduced_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled, "
    "ScalarType cuda_dtype, ScalarType cpu_dtype) -> Tensor(a)",
    type_rule=reduced_type,
)
def autocast_to_reduced_precision(
    xp: Any, x: Array, cuda_enabled: bool, cpu_enabled: bool, cuda_dtype: int, cpu_dtype: int
) -> Array:
    """A float32 tensor in the dtype for its device; another, or where casts are off, itself."""
    if x.dtype != FLOAT32 or not _is_on((cuda_enabled, cpu_enabled), x):
        return x
    on_gpu = cuda_dtype != cpu_dtype and device_of(x).type == "cuda"
    return cast(x, dtype_of(cuda_dtype if on_gpu else cpu_dtype, "aten::_autocast_to_reduced_precision"))


@view(
    "aten::_autocast_to_full_precision(Tensor(a) self, bool cuda_enabled, bool cpu_enabled) -> Tensor(a)",
    type_rule=full_precision_type,
)
def autocast_to_full_precision(xp: Any, x: Array, cuda_enabled: bool, cpu_enabled: bool) -> Array:
    """A float16 or bfloat16 tensor in float32; another, or where casts are off, itself."""
    return cast(x, FLOAT32) if x.dtype in HALF_TYPES and _is_on((cuda_enabled, cpu_enabled), x) else x


def _beside(xp: Any, x: Array, other: Array) -> Array:
    """``x`` in the kind of memory ``other`` lies in."""
    if type(x) is type(other):
        return x
    return x.get() if hasattr(x, "get") else xp.asarray(x)


@view(
    "aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor(a)",
    type_rule=cast_as_type,
    scalar=by_element(element_bodies.cast_as),
    asked_for_shape=("other",),
)
def to_other(xp: Any, x: Array, other: Array, non_blocking: bool, copy: bool, memory_format: int | None) -> Array:
    """The tensor with the dtype and on the device of ``other``; itself when nothing changes."""
    y = cast(_beside(xp, x, other), other.dtype)
    if memory_format is not None and memory_format != 1 and not has_format(y, memory_format):
        return copy_format(xp, y, memory_format, "aten::to")
    return copy_format(xp, y, memory_format, "aten::to") if copy and y is x else y


@view(
    f"aten::to.dtype_layout(Tensor(a) self, *, {OPTIONS}, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor(a)",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::to", 1, 3, 7)),
)
def to_dtype_layout(
    xp: Any,
    x: Array,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
    non_blocking: bool,
    copy: bool,
    memory_format: int | None,
) -> Array:
    """The tensor with a dtype and on a device; itself when nothing changes."""
    check_layout(layout, "aten::to")
    return converted(xp, x, dtype, device, copy, memory_format, "aten::to")


@view(
    "aten::to.prim_Device(Tensor(a) self, Device? device, int? dtype=None, bool non_blocking=False, bool copy=False) "
    "-> Tensor(b|a)",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::to", 2, 1)),
)
def to_prim_device(
    xp: Any, x: Array, device: Device | None, dtype: int | None, non_blocking: bool, copy: bool
) -> Array:
    """The tensor on a device and with a dtype; itself when nothing changes."""
    return converted(xp, x, dtype, device, copy, None, "aten::to")


@view(
    "aten::to.prim_dtype(Tensor(a) self, int? dtype=None, bool non_blocking=False, bool copy=False) -> Tensor(b|a)",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::to", 1)),
)
def to_prim_dtype(xp: Any, x: Array, dtype: int | None, non_blocking: bool, copy: bool) -> Array:
    """The tensor with a dtype; itself when nothing changes."""
    return converted(xp, x, dtype, None, copy, None, "aten::to")


@view(
    "aten::to.prim_other(Tensor(a) self, bool non_blocking=False, bool copy=False) -> Tensor(b|a)", type_rule=cast_type
)
def to_prim_other(xp: Any, x: Array, non_blocking: bool, copy: bool) -> Array:
    """The tensor itself, or a copy."""
    return copy_preserved(xp, x) if copy else x


@library(
    f"aten::_to_copy(Tensor self, *, {OPTIONS}, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    half="native",
    type_rule=cast_type,
    scalar=by_element(element_bodies.cast_by("aten::_to_copy", 1, 3, 6)),
)
def to_copy(
    xp: Any,
    x: Array,
    dtype: int | None,
    layout: int | None,
    device: Device | None,
    pin_memory: bool | None,
    non_blocking: bool,
    memory_format: int | None,
) -> Array:
    """A copy with a dtype and on a device."""
    check_layout(layout, "aten::_to_copy")
    return converted(xp, x, dtype, device, True, memory_format, "aten::_to_copy")


@library(
    "aten::type_as(Tensor self, Tensor other) -> Tensor",
    half="native",
    scalar=by_element(element_bodies.cast_as),
    type_rule=cast_as_type,
    may_alias=True,
)
def type_as(xp: Any, x: Array, other: Array) -> Array:
    """The tensor with the dtype and on the device of ``other``; itself when nothing changes."""
    return cast(_beside(xp, x, other), other.dtype)


def _declare_casts() -> None:
    codes = {"Byte": 0, "Char": 1, "Short": 2, "Int": 3, "Long": 4, "Half": 5, "Float": 6, "Double": 7}
    for name, code in codes.items():

        def cast_to(
            xp: Any, x: Array, non_blocking: bool, *, code: int = code, op: str = f"aten::_cast_{name}"
        ) -> Array:
            """The tensor with a dtype; itself when it has it."""
            return cast(x, dtype_of(code, op))

        text = f"aten::_cast_{name}(Tensor self, bool non_blocking=False) -> Tensor"
        library(
            text,
            half="native",
            type_rule=cast_to_type(code),
            may_alias=True,
            scalar=by_element(element_bodies.cast_to(code, f"aten::_cast_{name}")),
        )(cast_to)


_declare_casts()


@view(
    "aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)",
    scalar=by_element(element_bodies.same("aten::contiguous", 1)),
    type_rule=same_type,
)
def contiguous(xp: Any, x: Array, memory_format: int) -> Array:
    """The tensor itself when it has the memory format, else a copy that has."""
    if memory_format == 0:
        return x if x.flags.c_contiguous else x.copy()
    if memory_format == 1:
        raise OpError("aten::contiguous: preserve_format says nothing here; use contiguous_format or channels_last")
    return x if has_format(x, memory_format) else copy_format(xp, x, memory_format, "aten::contiguous")


def _declare_identities() -> None:
    for text in (
        "aten::detach(Tensor(a) self) -> Tensor(a)",
        "aten::detach_(Tensor(a!) self) -> Tensor(a!)",
        "aten::alias(Tensor(a) self) -> Tensor(a)",
        "aten::lift_fresh(Tensor(a) self) -> Tensor(a)",
        # NumPy has no lazy conjugation or negation, so there is never one to resolve.
        "aten::resolve_conj(Tensor(a) self) -> Tensor(a)",
        "aten::resolve_neg(Tensor(a) self) -> Tensor(a)",
    ):

        def itself(xp: Any, x: Array) -> Array:
            """The tensor itself."""
            return x

        view(text, type_rule=same_type)(itself)
    for name in ("lift", "lift_fresh_copy"):

        def copied(xp: Any, x: Array) -> Array:
            """A copy."""
            return copy_preserved(xp, x)

        library(
            f"aten::{name}(Tensor self) -> Tensor",
            half="native",
            out="out",
            type_rule=same_type,
            scalar=by_element(element_bodies.same(name)),
        )(copied)


_declare_identities()


@view("aten::positive(Tensor(a) self) -> Tensor(a)", type_rule=same_type)
def positive(xp: Any, x: Array) -> Array:
    """The tensor itself. Raises DTypeError for bool."""
    if x.dtype == BOOL_:
        raise DTypeError("aten::positive: a bool tensor has no sign; convert it first")
    return x


def _declare_conjugates() -> None:
    def conjugate(xp: Any, x: Array) -> Array:
        """The conjugate: a copy for complex numbers, since NumPy has no lazy one; else the tensor itself."""
        return xp.asarray(x.conj()) if x.dtype.kind == "c" else x

    def negative(xp: Any, x: Array) -> Array:
        """The negative, as a copy, since NumPy has no lazy one."""
        return xp.asarray(-x)

    view("aten::_conj(Tensor(a) self) -> Tensor(a)", type_rule=same_type)(conjugate)
    view("aten::conj(Tensor(a) self) -> Tensor(a)", type_rule=same_type)(conjugate)
    view("aten::_neg_view(Tensor(a) self) -> Tensor(a)", type_rule=same_type)(negative)


_declare_conjugates()


@library("aten::_shape_as_tensor(Tensor self) -> Tensor", half="native", type_rule=shape_as_tensor_type)
def shape_as_tensor(xp: Any, x: Array) -> Array:
    """The sizes of all dims as an int64 tensor."""
    return np.array(x.shape, INT64)


out_forms(
    "aten::_to_copy.out(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, "
    "Tensor(a!) out) -> Tensor(a!)",
    of="aten::_to_copy",
)
