"""Comparisons, logic and bits; the smaller and the larger of two; choices by a mask.

Stacked decorators declare from the bottom up: the overload nearest to the body is tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gpujit.ir.scalar import RecordError
from gpujit.ir.values import Array
from gpujit.ops.aliases import alias, inplace_form, same_as
from gpujit.ops.families.elementwise.pointwise import NO_BOOL, REAL_ONLY
from gpujit.ops.numeric import between, between_into
from gpujit.ops.registry import library, pointwise
from gpujit.support.errors import DTypeError, OpError, ShapeError

# ------------------------------------------------------------------------------------------------- comparisons

_COMPARISONS = {
    "eq": ("equal", "Equal"), "ne": ("not_equal", None), "lt": ("less", "Less"), "le": ("less_equal", "LessOrEqual"),
    "gt": ("greater", "Greater"), "ge": ("greater_equal", "GreaterOrEqual"),
}  # fmt: skip


def _declare_comparison(name: str, function: str, onnx: str | None) -> None:
    refuse = {} if name in ("eq", "ne") else REAL_ONLY

    @pointwise(
        f"aten::{name}.Scalar(Tensor self, Scalar other) -> Tensor",
        result="bool",
        refuse=refuse,
        out="Scalar_out",
        into=True,
    )
    @pointwise(
        f"aten::{name}.Tensor(Tensor self, Tensor other) -> Tensor",
        result="bool", refuse=refuse, out="Tensor_out", onnx=onnx, into=True,
    )  # fmt: skip
    def body(m: Any, a: Array, b: Any) -> Array:
        """That comparison of every pair, as bools; beside NaN only ``ne`` holds."""
        return getattr(m, function)(a, b)

    for other in ("Scalar", "Tensor"):
        text = f"aten::{name}_.{other}(Tensor(a!) self, {other} other) -> Tensor(a!)"
        inplace_form(text, f"aten::{name}.{other}")


for _name, (_function, _onnx) in _COMPARISONS.items():
    _declare_comparison(_name, _function, _onnx)
for _long, _short in (
    ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"), ("greater_equal", "ge")
):  # fmt: skip
    alias(f"aten::{_long}", f"aten::{_short}")


def _declare_test(name: str, function: str, out: str | None) -> None:
    @pointwise(f"aten::{name}(Tensor self) -> Tensor", result="bool", out=out, into=True)
    def body(m: Any, x: Array) -> Array:
        """That property of every element, as bools."""
        return getattr(m, function)(x)


for _name, _out in (("isnan", "out"), ("isinf", "out"), ("isfinite", None)):
    _declare_test(_name, _name, _out)


def _infinite(positive: bool) -> Callable[[Any, Any], Any]:
    return lambda m, x: m.isinf(x) & (x > 0 if positive else x < 0)


def _equals_into(number: float) -> Callable[..., None]:
    def into(m: Any, out: Array, x: Array) -> None:
        m.equal(x, number, out=out)

    return into


@pointwise(
    "aten::isposinf(Tensor self) -> Tensor",
    result="bool", refuse=REAL_ONLY, out="out", into=_equals_into(math.inf), scalar=_infinite(True),
)  # fmt: skip
def isposinf(m: Any, x: Array) -> Array:
    """Whether an element is +inf."""
    return x == math.inf


@pointwise(
    "aten::isneginf(Tensor self) -> Tensor",
    result="bool", refuse=REAL_ONLY, out="out", into=_equals_into(-math.inf), scalar=_infinite(False),
)  # fmt: skip
def isneginf(m: Any, x: Array) -> Array:
    """Whether an element is -inf."""
    return x == -math.inf


@pointwise(
    "aten::isclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, float atol=1e-08, "
    "bool equal_nan=False) -> Tensor",
    result="bool",
)
def isclose(m: Any, a: Array, b: Array, rtol: float, atol: float, equal_nan: bool) -> Array:
    """Whether |a - b| <= atol + rtol * |b|; infinities are close to themselves only, NaN to NaN when asked for."""
    if rtol < 0 or atol < 0:
        raise OpError(f"aten::isclose: rtol={rtol} and atol={atol} must not be negative")
    close = a == b
    if equal_nan:
        close = close | (m.isnan(a) & m.isnan(b))
    if rtol == 0 and atol == 0:
        return close
    if b.dtype.kind in "biu":
        a, b = a.astype(m.float32), b.astype(m.float32)
    distance = m.absolute(a - b)
    return close | (m.isfinite(distance) & (distance <= atol + m.absolute(rtol * b)))


@library(
    "aten::allclose(Tensor self, Tensor other, float rtol=1.0000000000000001e-05, float atol=1e-08, "
    "bool equal_nan=False) -> bool"
)
def allclose(xp: Any, a: Array, b: Array, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Whether all elements are close, as ``isclose`` has it."""
    if a.dtype != b.dtype:
        raise DTypeError(f"aten::allclose: self is {a.dtype}, other is {b.dtype}; both must have one dtype")
    return bool(isclose(xp, a, b, rtol, atol, equal_nan).all())


@library("aten::equal(Tensor self, Tensor other) -> bool")
def equal(xp: Any, a: Array, b: Array) -> bool:
    """Whether shapes and all elements are equal; NaN equals nothing."""
    return a.shape == b.shape and bool((a == b).all())


# ---------------------------------------------------------------------------------------------- logic and bits


def _declare_logic(name: str) -> None:
    @pointwise(f"aten::{name}(Tensor self, Tensor other) -> Tensor", result="bool", inplace=True, out="out", into=True)
    def body(m: Any, a: Array, b: Array) -> Array:
        """That connective of the truth of both elements, as bools; everything but zero is true."""
        return getattr(m, name)(a, b)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _declare_logic(_name)


@pointwise("aten::logical_not(Tensor self) -> Tensor", result="bool", inplace=True, out="out", onnx="Not", into=True)
def logical_not(m: Any, x: Array) -> Array:
    """Whether an element is zero."""
    return m.logical_not(x)


_BITS_ONLY = dict.fromkeys(("floating", "complex"), "bits are those of integers and bools; cast first")
_SHIFTS_ONLY = {**_BITS_ONLY, **NO_BOOL}


def _declare_bits(name: str) -> None:
    @pointwise(
        f"aten::bitwise_{name}.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
        refuse=_BITS_ONLY,
        out="Scalar_Tensor_out",
        into=True,
    )
    @pointwise(
        f"aten::bitwise_{name}.Scalar(Tensor self, Scalar other) -> Tensor",
        refuse=_BITS_ONLY,
        inplace=True,
        out="Scalar_out",
        into=True,
    )
    @pointwise(
        f"aten::bitwise_{name}.Tensor(Tensor self, Tensor other) -> Tensor",
        refuse=_BITS_ONLY,
        inplace=True,
        out="Tensor_out",
        into=True,
    )
    def body(m: Any, a: Any, b: Any) -> Array:
        """That connective of the bits of both; of bools their logic."""
        return getattr(m, f"bitwise_{name}")(a, b)

    # PyTorch tries the number first for `and` only.
    for other in ("Scalar", "Tensor") if name == "and" else ("Tensor", "Scalar"):
        same_as(f"aten::__{name}__.{other}(Tensor self, {other} other) -> Tensor", f"aten::bitwise_{name}.{other}")
    for other in ("Tensor", "Scalar"):
        text = f"aten::__i{name}__.{other}(Tensor(a!) self, {other} other) -> Tensor(a!)"
        inplace_form(text, f"aten::bitwise_{name}.{other}")


for _name in ("and", "or", "xor"):
    _declare_bits(_name)


@pointwise("aten::bitwise_not(Tensor self) -> Tensor", refuse=_BITS_ONLY, inplace=True, out="out", into=True)
def bitwise_not(m: Any, x: Array) -> Array:
    """All bits turned over; of bools the opposite."""
    return m.invert(x)


def _declare_shift(direction: str) -> None:
    name, function = f"bitwise_{direction}_shift", f"{direction}_shift"

    @pointwise(
        f"aten::{name}.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
        refuse=_SHIFTS_ONLY,
        out="Scalar_Tensor_out",
        into=True,
    )
    @pointwise(
        f"aten::{name}.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
        refuse=_SHIFTS_ONLY,
        out="Tensor_Scalar_out",
        into=True,
    )
    @pointwise(
        f"aten::{name}.Tensor(Tensor self, Tensor other) -> Tensor", refuse=_SHIFTS_ONLY, out="Tensor_out", into=True
    )
    def body(m: Any, a: Any, b: Any) -> Array:
        """Bits moved by ``b`` places; by a negative or too large number all of them leave, but the sign stays."""
        return getattr(m, function)(a, b)

    short = "lshift" if direction == "left" else "rshift"
    for other, of in (("Scalar", "Tensor_Scalar"), ("Tensor", "Tensor")):
        inplace_form(f"aten::{name}_.{of}(Tensor(a!) self, {other} other) -> Tensor(a!)", f"aten::{name}.{of}")
    for other, of in (("Tensor", "Tensor"), ("Scalar", "Tensor_Scalar")):
        parameters = f"Tensor self, {other} other"
        same_as(f"aten::__{short}__.{other}({parameters}) -> Tensor", f"aten::{name}.{of}")
        same_as(
            f"aten::__{short}__.{other}_out({parameters}, *, Tensor(a!) out) -> Tensor(a!)", f"aten::{name}.{of}_out"
        )
        inplace_form(f"aten::__i{short}__.{other}(Tensor(a!) self, {other} other) -> Tensor(a!)", f"aten::{name}.{of}")


_declare_shift("left")
_declare_shift("right")


# --------------------------------------------------------------------------------------- the smaller and the larger


def _declare_extremum(name: str, function: str, onnx: str | None = None) -> None:
    @pointwise(f"aten::{name}(Tensor self, Tensor other) -> Tensor", refuse=REAL_ONLY, out="out", onnx=onnx, into=True)
    def body(m: Any, a: Array, b: Array) -> Array:
        """The smaller or larger of both; NaN wins, but in ``fmin`` and ``fmax``, which take the other."""
        return getattr(m, function)(a, b)


for _name, _function, _onnx in (
    ("maximum", "maximum", "Max"), ("minimum", "minimum", "Min"), ("max.other", "maximum", "Max"),
    ("min.other", "minimum", "Min"), ("fmax", "fmax", None), ("fmin", "fmin", None)
):  # fmt: skip
    _declare_extremum(_name, _function, _onnx)

_NO_CLAMP = {**NO_BOOL, **REAL_ONLY}


def _clamp_into(m: Any, out: Array, x: Array, low: Any, high: Any) -> Any:
    if low is None and high is None:
        return NotImplemented
    if low is None:
        m.minimum(x, high, out=out)
    elif high is None:
        m.maximum(x, low, out=out)
    else:
        between_into(m, out, x, low, high)
    return None


@pointwise(
    "aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
    operands=("self", "min", "max"), refuse=REAL_ONLY, inplace=True, out="Tensor_out", into=_clamp_into,
)  # fmt: skip
@pointwise(
    "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
    operands=("self", "min", "max"), refuse=_NO_CLAMP, inplace=True, out="out", into=_clamp_into,
)  # fmt: skip
def clamp(m: Any, x: Array, low: Any, high: Any) -> Array:
    """min(max(x, low), high): ``high`` wins where the bounds cross, NaN anywhere gives NaN."""
    if low is None:
        if high is None:
            raise OpError("aten::clamp: min and max are both None; give at least one")
        return m.minimum(x, high)
    return m.maximum(x, low) if high is None else between(m, x, low, high)


alias("aten::clip", "aten::clamp")


@pointwise(
    "aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor",
    refuse=REAL_ONLY,
    inplace=True,
    out="Tensor_out",
    into=True,
)
@pointwise(
    "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
    operands=("self", "min"), refuse=_NO_CLAMP, inplace=True, out="out", into=True,
)  # fmt: skip
def clamp_min(m: Any, x: Array, low: Any) -> Array:
    """max(x, low)."""
    return m.maximum(x, low)


@pointwise(
    "aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor",
    refuse=REAL_ONLY,
    inplace=True,
    out="Tensor_out",
    into=True,
)
@pointwise(
    "aten::clamp_max(Tensor self, Scalar max) -> Tensor",
    operands=("self", "max"), refuse=_NO_CLAMP, inplace=True, out="out", into=True,
)  # fmt: skip
def clamp_max(m: Any, x: Array, high: Any) -> Array:
    """min(x, high)."""
    return m.minimum(x, high)


# ------------------------------------------------------------------------------------------- choices by a mask


def _check_condition(condition: Any) -> None:
    if condition.dtype.kind != "b" and condition.dtype != "uint8":
        raise DTypeError(
            f"aten::where: condition is {condition.dtype}; it must be a bool tensor, compare it with something"
        )


def _where_into(m: Any, out: Array, condition: Array, a: Any, b: Any) -> Any:
    if condition.dtype.kind != "b":
        return NotImplemented
    m.copyto(out, b)
    m.copyto(out, a, where=condition)
    return None


@pointwise(
    "aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
    operands=("self", "other"),
    into=_where_into,
)
@pointwise(
    "aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
    operands=("self", "other"),
    into=_where_into,
)
@pointwise(
    "aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
    operands=("self", "other"),
    into=_where_into,
)
@pointwise(
    "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor",
    operands=("self", "other"), out="self_out", onnx="Where", into=_where_into,
)  # fmt: skip
def where(m: Any, condition: Array, a: Any, b: Any) -> Array:
    """``a`` where the condition holds, ``b`` elsewhere."""
    if condition.dtype.kind != "b":
        _check_condition(condition)
    return m.where(condition, a, b)


def fill_value(op: str, value: Any, dtype: Any, m: Any) -> Any:
    """``value`` as a number of ``dtype``: fractions are cut off. Raises OpError when it does not fit."""
    kind = dtype.kind
    if kind == "c":
        return value
    if kind == "b":
        return bool(value)
    if isinstance(value, complex):
        raise OpError(f"{op}: value={value} is complex, the tensor is {dtype}")
    if kind not in "iu":
        return float(value)
    if math.isnan(value) or math.isinf(value):
        raise OpError(f"{op}: value={value} does not fit {dtype}")
    info, number = m.iinfo(dtype), int(value)
    if kind == "u" and -info.max <= number < 0:
        # As in C, a negative number wraps into an unsigned type.
        number += info.max + 1
    if not info.min <= number <= info.max:
        raise OpError(f"{op}: value={value} does not fit {dtype}, which ranges from {info.min} to {info.max}")
    return number


def _check_mask(mask: Any) -> None:
    if mask.dtype.kind != "b":
        raise DTypeError(
            f"aten::masked_fill: mask is {mask.dtype}; only bool masks are taken, compare it with something"
        )


def _masked_fill_into(m: Any, out: Array, x: Array, mask: Array, value: Any) -> Any:
    if mask.dtype.kind != "b" or getattr(value, "ndim", 0):
        return NotImplemented
    number = fill_value("aten::masked_fill", value.item() if hasattr(value, "dtype") else value, x.dtype, m)
    if out is not x:
        m.copyto(out, x)
    m.copyto(out, number, where=mask)
    return None


@pointwise(
    "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
    result="first", operands=("self",), inplace=True, out="Scalar_out", into=_masked_fill_into,
)  # fmt: skip
def masked_fill(m: Any, x: Array, mask: Array, value: Any) -> Array:
    """``value`` where the mask holds, ``x`` elsewhere, in the dtype of ``x``."""
    _check_mask(mask)
    return m.where(mask, fill_value("aten::masked_fill", value, x.dtype, m), x)


def _masked_fill_scalar(m: Any, x: Any, mask: Any, value: Any) -> Any:
    _check_mask(mask)
    if value.dtype.kind != x.dtype.kind and x.dtype.kind in "biu":
        # Whether the number fits has to be seen first.
        raise RecordError(f"aten::masked_fill: a value of {value.dtype} for {x.dtype}: kernels do not check its range")
    return m.where(mask, value.astype(x.dtype), x)


@pointwise(
    "aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
    result="first", operands=("self",), inplace=True, out="Tensor_out", into=_masked_fill_into,
    scalar=_masked_fill_scalar,
)  # fmt: skip
def masked_fill_tensor(m: Any, x: Array, mask: Array, value: Array) -> Array:
    """The one number in ``value`` where the mask holds, ``x`` elsewhere, in the dtype of ``x``."""
    _check_mask(mask)
    if value.ndim:
        raise ShapeError(f"aten::masked_fill: value has shape {value.shape}; it must be a 0-dim tensor")
    return m.where(mask, fill_value("aten::masked_fill", value.item(), x.dtype, m), x)


@pointwise("aten::heaviside(Tensor self, Tensor values) -> Tensor", refuse=REAL_ONLY, inplace=True, out="out")
def heaviside(m: Any, x: Array, values: Array) -> Array:
    """0 below zero, 1 above it, ``values`` at it; NaN gives 0."""
    return m.where(x == 0, values, x > 0)


@pointwise(
    "static_runtime::clamp_nan_to_num(Tensor input, Scalar? min, Scalar? max, float? nan, float? posinf, "
    "float? posinf) -> Tensor",
    operands=("input",),
)
def clamp_nan_to_num(m: Any, x: Array, low: Any, high: Any, nan: float | None, posinf: Any, neginf: Any) -> Array:
    """``x`` within the bounds, and ``nan`` (0 by default) for NaN."""
    return m.where(m.isnan(x), 0 if nan is None else nan, clamp(m, x, low, high))
