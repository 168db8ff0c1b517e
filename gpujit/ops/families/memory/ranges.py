"""Sequences of numbers: arange, range, linspace, logspace, and the identity matrix."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from gpujit.ir.dtypes import INT64
from gpujit.ir.values import Array, Device
from gpujit.ops.families.memory.create import OPTIONS, fills, new_empty_array
from gpujit.ops.layout import cast, dtype_of, module_for, out_forms
from gpujit.ops.promotion import COMPLEX64, DEFAULT_FLOAT
from gpujit.ops.registry import library
from gpujit.ops.rules.factories import (
    arange_start_type,
    arange_type,
    closed_range_type,
    eye_m_type,
    eye_type,
    spaced_type,
)
from gpujit.support.errors import DTypeError, OpError, ShapeError


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


# Elements of one block of a sequence that is computed in double precision and stored in another.
_BLOCK = 16384


def _blocks_into(xp: Any, out: Array, start: Any, step: Any) -> None:
    """``start``, ``start + step``, ... in ``out``, with the numbers ``_progression`` gives."""
    for i in range(0, out.shape[0], _BLOCK):
        stop = min(i + _BLOCK, out.shape[0])
        if out.dtype.kind in "iu":
            values = xp.arange(i, stop, dtype=INT64)
        else:
            values = xp.arange(i, stop, dtype="float64")
        values *= step
        values += start
        out[i:stop] = cast(values, out.dtype)


def _ranged_into(xp: Any, out: Array, start: Any, end: Any, step: Any, dtype: int | None, *options: Any) -> Any:
    integers = all(isinstance(v, int) for v in (start, end, step))
    target = dtype_of(dtype, "aten::arange") if dtype is not None else INT64 if integers else DEFAULT_FLOAT
    if out.ndim != 1 or not fills(out, out.shape, target, dtype, options) or target.kind not in "iuf" or not step:
        return NotImplemented
    if target == INT64:
        start, end, step = int(start), int(end), int(step)
    elif target.kind in "iu" and not integers:
        return NotImplemented
    if not step or (end - start) * (1 if step > 0 else -1) < 0 or max(abs(start), abs(end)) >= 1 << 62:
        return NotImplemented
    if all(isinstance(v, int) for v in (start, end, step)):
        count = -((start - end) // step) if step > 0 else -((end - start) // -step)
    else:
        count = ceil((float(end) - float(start)) / float(step))
    if out.shape[0] != count:
        return NotImplemented
    _blocks_into(xp, out, start, step)
    return None


def _arange_into(xp: Any, out: Array, end: Any, *options: Any) -> Any:
    return _ranged_into(xp, out, 0, end, 1, *options)


def _arange_start_into(xp: Any, out: Array, start: Any, end: Any, *options: Any) -> Any:
    return _ranged_into(xp, out, start, end, 1, *options)


@library(f"aten::arange(Scalar end, *, {OPTIONS}) -> Tensor", half="native", type_rule=arange_type, into=_arange_into)
def arange(
    xp: Any, end: Any, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """0, 1, 2, ... up to before ``end``; int64 for an integer ``end``, else float32."""
    return _ranged(xp, 0, end, 1, dtype, device, "aten::arange")


@library(
    f"aten::arange.start(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=arange_start_type,
    into=_arange_start_into,
)
def arange_start(
    xp: Any, start: Any, end: Any, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """``start``, ``start + 1``, ... up to before ``end``."""
    return _ranged(xp, start, end, 1, dtype, device, "aten::arange")


@library(
    f"aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor",
    half="native",
    type_rule=arange_start_type,
    into=_ranged_into,
)
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

    library(
        f"aten::range.step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor",
        half="native",
        type_rule=closed_range_type,
    )(closed)
    library(
        f"aten::range(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor", half="native", type_rule=closed_range_type
    )(closed_by_one)


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

    def spaced(
        xp: Any, start: Any, end: Any, steps: int, dtype: int | None, device: Device | None, base: float | None
    ) -> Array:
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

    def log(
        xp: Any, start: Any, end: Any, steps: int, base: float, dtype: int | None, layout: Any, device: Any, pin: Any
    ) -> Array:
        """``base`` to the power of ``steps`` numbers evenly from ``start`` to ``end``."""
        return spaced(xp, start, end, steps, dtype, device, base)

    for name, body, extra in (("linspace", lin, ""), ("logspace", log, ", float base=10.")):
        for overload, bounds in kinds:
            dot = f".{overload}" if overload else ""
            library(
                f"aten::{name}{dot}({bounds}, int steps{extra}, *, {OPTIONS}) -> Tensor",
                half="native",
                type_rule=spaced_type,
            )(body)
        for overload, bounds in kinds[3:] + kinds[:3]:
            full_name = f"aten::{name}.{overload}" if overload else f"aten::{name}"
            out = f"{overload}_out" if overload else "out"
            out_forms(f"aten::{name}.{out}({bounds}, int steps{extra}, *, Tensor(a!) out) -> Tensor(a!)", of=full_name)


_declare_spaces()


def _eye_into(xp: Any, out: Array, n: int, m: int, dtype: int | None, *options: Any) -> Any:
    if not fills(out, (n, m), DEFAULT_FLOAT, dtype, options):
        return NotImplemented
    out.fill(0)
    i = xp.arange(min(n, m))
    out[i, i] = 1
    return None


def _square_eye_into(xp: Any, out: Array, n: int, *options: Any) -> Any:
    return _eye_into(xp, out, n, n, *options)


@library(f"aten::eye(SymInt n, *, {OPTIONS}) -> Tensor", half="native", type_rule=eye_type, into=_square_eye_into)
def eye(
    xp: Any, n: int, dtype: int | None, layout: int | None, device: Device | None, pin_memory: bool | None
) -> Array:
    """The identity matrix of ``n`` rows."""
    return eye_m(xp, n, n, dtype, layout, device, pin_memory)


@library(
    f"aten::eye.m(SymInt n, SymInt m, *, {OPTIONS}) -> Tensor", half="native", type_rule=eye_m_type, into=_eye_into
)
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
