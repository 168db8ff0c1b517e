"""Arithmetic between tensors and numbers: sums, products, quotients, remainders and powers.

Bodies get their operands in the dtype PyTorch computes in; a Python number stays one, and NumPy gives it that dtype.
Stacked decorators declare from the bottom up: the overload nearest to the body is tried first.
"""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import kind_of
from gpujit.ir.recorded import Recorded
from gpujit.ir.values import Array
from gpujit.ops.aliases import alias, inplace_form
from gpujit.ops.into import fits
from gpujit.ops.kernels import wrap_number
from gpujit.ops.numeric import any_of
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import library, pointwise
from gpujit.ops.rules.common import elementwise_type
from gpujit.support.errors import DTypeError, OpError

CAST_TO_FLOAT = "cast to a floating dtype first"
REAL_ONLY = {"complex": "only real dtypes have an order; take abs(), real or imag first"}
NO_BOOL = {"bool": "cast to an integer dtype first"}
FLOAT_ONLY = {"bool": CAST_TO_FLOAT, "integer": CAST_TO_FLOAT, "complex": "take real or imag first"}
FLOAT_OR_COMPLEX = {"bool": CAST_TO_FLOAT, "integer": CAST_TO_FLOAT}
_NO_BOOL_DIFFERENCE = {"bool operand": "use `^` or logical_xor for a difference of masks"}


# ------------------------------------------------------------------------------------------ sums and differences


def scaled(m: Any, op: str, x: Any, dtype: Any, alpha: Any) -> Any:
    """``x * alpha`` for results of ``dtype``. Raises DTypeError when the kind of ``alpha`` does not fit it."""
    kind = dtype.kind
    if isinstance(alpha, bool) and kind != "b":
        raise DTypeError(f"{op}: alpha is a bool, which only bool results take; got a result of {dtype}")
    if kind in "biu" and isinstance(alpha, (float, complex)):
        raise DTypeError(f"{op}: alpha={alpha} with a result of {dtype}; integer tensors take an integer alpha only")
    if kind != "c" and isinstance(alpha, complex):
        raise DTypeError(f"{op}: alpha={alpha} is complex, the result is {dtype}")
    if alpha == 1:
        return x
    if not hasattr(x, "dtype"):
        return wrap_number(x * alpha, dtype, m)
    return x * (bool(alpha) if kind == "b" else wrap_number(alpha, dtype, m))


def _dtype_of(a: Any, b: Any) -> Any:
    return a.dtype if hasattr(a, "dtype") else b.dtype


@pointwise(
    "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", inplace=True, out="Scalar_out", into=True
)
@pointwise(
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    onnx="Add",
    into=True,
)
def add(m: Any, a: Array, b: Any, alpha: Any) -> Array:
    """a + alpha * b; of bools their disjunction."""
    if alpha is not True and alpha == 1:
        return m.add(a, b)
    return m.add(a, scaled(m, "aten::add", b, _dtype_of(a, b), alpha))


@pointwise(
    "aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    refuse=_NO_BOOL_DIFFERENCE, inplace=True, out="Scalar_out", into=True,
)  # fmt: skip
@pointwise(
    "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    refuse=_NO_BOOL_DIFFERENCE, inplace=True, out="out", onnx="Sub", into=True,
)  # fmt: skip
def sub(m: Any, a: Array, b: Any, alpha: Any) -> Array:
    """a - alpha * b."""
    if alpha is not True and alpha == 1:
        return m.subtract(a, b)
    return m.subtract(a, scaled(m, "aten::sub", b, _dtype_of(a, b), alpha))


@pointwise(
    "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    refuse=_NO_BOOL_DIFFERENCE, out="Scalar_out", into=True,
)  # fmt: skip
@pointwise(
    "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    refuse=_NO_BOOL_DIFFERENCE, out="Tensor_out", into=True,
)  # fmt: skip
def rsub(m: Any, a: Array, b: Any, alpha: Any) -> Array:
    """b - alpha * a."""
    if alpha is not True and alpha == 1:
        return m.subtract(b, a)
    return m.subtract(b, scaled(m, "aten::rsub", a, _dtype_of(a, b), alpha))


alias("aten::subtract", "aten::sub", without=("Scalar_out",))


# --------------------------------------------------------------------------------------- products and quotients


@pointwise("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", inplace=True, out="Scalar_out", into=True)
@pointwise("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", inplace=True, out="out", onnx="Mul", into=True)
def mul(m: Any, a: Array, b: Any) -> Array:
    """a * b; of bools their conjunction."""
    return m.multiply(a, b)


@pointwise("aten::div.Scalar(Tensor self, Scalar other) -> Tensor", result="float", out="Scalar_out", into=True)
@pointwise("aten::div.Tensor(Tensor self, Tensor other) -> Tensor", result="float", out="out", onnx="Div", into=True)
def div(m: Any, a: Array, b: Any) -> Array:
    """a / b in floating point, whatever the operands are."""
    if b.__class__ is float and b == 0:
        # A Python number divides like the tensor it stands for, and NumPy must not see a bare zero as an error.
        return m.divide(a, m.asarray(b, dtype=a.dtype))
    return m.divide(a, b)


def _has_zero(b: Any) -> bool:
    return not b.all() if hasattr(b, "dtype") else b == 0


def _check_divisor(m: Any, op: str, a: Any, b: Any) -> bool:
    """Whether the operands are integers. Raises OpError when they are and a divisor is zero."""
    integers = _dtype_of(a, b).kind in "biu"
    if integers and isinstance(b, Recorded):
        m.check(b != 0, f"{op}: integer division by zero (ZeroDivisionError)")
    elif integers and _has_zero(b) and (not hasattr(a, "dtype") or a.size):
        raise OpError(f"{op}: integer division by zero (ZeroDivisionError)")
    return integers


def floor_quotient(m: Any, op: str, a: Any, b: Any) -> Any:
    """The largest whole number not above a / b."""
    _check_divisor(m, op, a, b)
    return m.floor_divide(a, b)


def truncated_quotient(m: Any, op: str, a: Any, b: Any) -> Any:
    """a / b without its fraction. For integers: the remainder with the sign of ``a`` goes first."""
    if _check_divisor(m, op, a, b):
        return m.floor_divide(a - m.fmod(a, b), b)
    return m.trunc(m.divide(a, b))


def _div_mode_into(m: Any, out: Array, a: Array, b: Any, rounding_mode: str | None) -> Any:
    """Of floats; others have their own rules."""
    is_number = not hasattr(b, "dtype")
    if a.dtype.char not in "fd" or (isinstance(b, complex) if is_number else b.dtype != a.dtype):
        return NotImplemented
    shape = a.shape if is_number else m.broadcast_shapes(a.shape, b.shape)
    if rounding_mode not in (None, "floor", "trunc") or not fits(out, shape, a.dtype):
        return NotImplemented
    b = wrap_number(b, a.dtype, m) if is_number else b
    (m.floor_divide if rounding_mode == "floor" else m.divide)(a, b, out=out)
    if rounding_mode == "trunc":
        m.trunc(out, out=out)
    return None


@pointwise(
    "aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
    result="any", out="Scalar_mode_out", into=_div_mode_into,
)  # fmt: skip
@pointwise(
    "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
    result="any", out="out_mode", into=_div_mode_into,
)  # fmt: skip
def div_mode(m: Any, a: Array, b: Any, rounding_mode: str | None) -> Array:
    """a / b: as it is, towards zero (``trunc``) or down (``floor``); only the first turns integers into floats."""
    dtype = _dtype_of(a, b)
    if rounding_mode is None:
        return m.divide(a, b, dtype=m.float32) if dtype.kind in "biu" else m.divide(a, b)
    if rounding_mode not in ("floor", "trunc"):
        raise OpError(f"aten::div: rounding_mode is {rounding_mode!r}; it must be None, 'floor' or 'trunc'")
    if dtype.kind in "bc":
        raise DTypeError(f"aten::div: rounding_mode={rounding_mode!r} is not defined for {dtype}; leave it out")
    return (floor_quotient if rounding_mode == "floor" else truncated_quotient)(m, "aten::div", a, b)


# In the order PyTorch tries them.
for _parameters, _overload in (
    ("Tensor other", "Tensor"),
    ("Tensor other, *, str? rounding_mode", "Tensor_mode"),
    ("Scalar other", "Scalar"),
    ("Scalar other, *, str? rounding_mode", "Scalar_mode"),
):
    inplace_form(f"aten::div_.{_overload}(Tensor(a!) self, {_parameters}) -> Tensor(a!)", f"aten::div.{_overload}")

_NO_FLOOR = {"bool": "use & for masks", "complex": "complex numbers have no floor"}


@pointwise(
    "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", refuse=_NO_FLOOR, out="Scalar_out", into=True
)
@pointwise("aten::floor_divide(Tensor self, Tensor other) -> Tensor", refuse=_NO_FLOOR, out="out", into=True)
def floor_divide(m: Any, a: Array, b: Any) -> Array:
    """The largest whole number not above a / b, in the promoted dtype."""
    return floor_quotient(m, "aten::floor_divide", a, b)


inplace_form("aten::floor_divide_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten::floor_divide")
inplace_form("aten::floor_divide_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", "aten::floor_divide.Scalar")
alias("aten::multiply", "aten::mul", without=("Scalar_out",))
alias("aten::divide", "aten::div", without=("Scalar_out", "Scalar_mode_out"))
alias(
    "aten::true_divide",
    "aten::div",
    without=("Scalar_out", "Tensor_mode", "Scalar_mode", "out_mode", "Scalar_mode_out"),
)


@pointwise(
    "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor", refuse=_NO_FLOOR, out="Scalar_Tensor_out"
)
@pointwise(
    "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor", refuse=_NO_FLOOR, inplace=True, out="Scalar_out"
)
@pointwise(
    "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor", refuse=_NO_FLOOR, inplace=True, out="Tensor_out"
)
def remainder(m: Any, a: Any, b: Any) -> Array:
    """What floor division leaves: a number with the sign of the divisor."""
    if _check_divisor(m, "aten::remainder", a, b):
        return m.remainder(a, b)
    y = m.remainder(a, b)
    zero = y == 0
    # NumPy gives a zero the divisor's sign, PyTorch the dividend's.
    return m.where(zero, m.copysign(y, a), y) if any_of(zero) else y


@pointwise(
    "aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor",
    refuse=_NO_FLOOR,
    inplace=True,
    out="Scalar_out",
    into=True,
)
@pointwise(
    "aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor",
    refuse=_NO_FLOOR,
    inplace=True,
    out="Tensor_out",
    onnx="Mod",
    into=True,
)
def fmod(m: Any, a: Array, b: Any) -> Array:
    """What truncating division leaves: a number with the sign of the dividend."""
    _check_divisor(m, "aten::fmod", a, b)
    return m.fmod(a, b)


def _addcmul_into(m: Any, out: Array, x: Array, a: Array, b: Array, value: Any) -> None:
    # Where out is x, its old values are still needed.
    y = m.multiply(a, b, out=None if out is x else out)
    if value != 1:
        y = m.multiply(y, wrap_number(value, x.dtype, m), out=y if y.ndim else None)
    m.add(x, y, out=out)


def _addcdiv_into(m: Any, out: Array, x: Array, a: Array, b: Array, value: Any) -> None:
    y = m.divide(a, b, out=None if out is x else out)
    m.add(x, y if value == 1 else m.multiply(y, value, out=y if y.ndim else None), out=out)


@pointwise(
    "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    refuse=NO_BOOL, inplace=True, out="out", into=_addcmul_into,
)  # fmt: skip
def addcmul(m: Any, x: Array, a: Array, b: Array, value: Any) -> Array:
    """x + value * a * b."""
    y = a * b
    if value != 1:
        y = y * wrap_number(value, x.dtype, m)
    return m.add(x, y)


@pointwise(
    "aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    refuse=dict.fromkeys(("bool", "integer"), "it would be an integer division; " + CAST_TO_FLOAT),
    inplace=True, out="out", into=_addcdiv_into,
)  # fmt: skip
def addcdiv(m: Any, x: Array, a: Array, b: Array, value: Any) -> Array:
    """x + value * a / b."""
    y = a / b
    return m.add(x, y if value == 1 else y * value)


# ------------------------------------------------------------------------------------------------------- powers


def _integer_power(m: Any, a: Any, b: Any) -> Any:
    """a ** b of integers, wrapped; below exponent zero 1 and -1 keep their powers and all other bases give 0."""
    if not hasattr(b, "dtype"):
        b = m.asarray(b, dtype=a.dtype)
    negative = b < 0
    if not any_of(negative):
        return m.power(a, b)
    y = m.power(a, m.where(negative, 0, b))
    odd = m.where(b & 1, a, 1)
    return m.where(negative, m.where(a == 1, 1, m.where(a == -1, odd, 0)), y).astype(b.dtype)


def _pow_into(m: Any, out: Array, a: Array, b: Array) -> Any:
    # Integers need the old values again.
    if a.dtype.kind in "iu":
        return NotImplemented
    m.power(a, b, out=out)
    return None


@pointwise(
    "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
    operands=("self", "exponent"), refuse=NO_BOOL, out="Tensor_Tensor_out", onnx="Pow", into=_pow_into,
)  # fmt: skip
def pow_tensor(m: Any, a: Array, b: Array) -> Array:
    """a ** b, element by element."""
    return _integer_power(m, a, b) if a.dtype.kind in "iu" else m.power(a, b)


@pointwise(
    "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
    operands=("self", "exponent"), out="Tensor_Scalar_out", into=True,
)  # fmt: skip
def pow_number(m: Any, a: Array, b: Any) -> Array:
    """a ** b for one exponent; small whole ones by multiplication, a half by square root."""
    if b == 2:
        return m.multiply(a, a)
    if a.dtype.kind in "biu":
        if b < 0:
            raise OpError(
                f"aten::pow: integers to a negative power ({b}) are not integers; cast the tensor to a floating dtype"
            )
        if a.dtype.kind == "b":
            # The result is a new tensor even where nothing is left to compute.
            return m.logical_and(a, a) if b else m.ones_like(a)
        return m.power(a, b)
    if b == 0.5:
        return m.sqrt(a)
    if b == 3:
        return a * a * a
    if b == -1:
        return m.divide(1, a)
    if b == -0.5:
        return m.divide(1, m.sqrt(a))
    if b == -2:
        return m.divide(1, a * a)
    return m.power(a, b)


@pointwise(
    "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor",
    operands=("self", "exponent"), refuse=NO_BOOL, out="Scalar_out",
)  # fmt: skip
def pow_base(m: Any, a: Any, b: Array) -> Array:
    """a ** b for one base."""
    if b.dtype.kind in "iu":
        return _integer_power(m, m.asarray(a, dtype=b.dtype), b)
    return m.exp2(b) if a == 2 and b.dtype.kind == "f" else m.power(a, b)


inplace_form("aten::pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)", "aten::pow.Tensor_Scalar")
inplace_form("aten::pow_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)", "aten::pow.Tensor_Tensor")


def _float_power(text: str, out: str, operands: tuple[str, ...]) -> None:
    @pointwise(text, operands=operands, result="any", out=out)
    def float_power(m: Any, a: Any, b: Any) -> Array:
        """a ** b in float64, or complex128 when an operand is complex."""
        complex_ = any(x.dtype.kind == "c" if hasattr(x, "dtype") else isinstance(x, complex) for x in (a, b))
        wide = m.complex128 if complex_ else m.float64
        base = m.asarray(a, dtype=wide)
        return m.power(base, m.asarray(b, dtype=wide)) if hasattr(b, "dtype") else pow_number(m, base, b)


# A number does not take part in promotion: next to uint8 it would wrap.
_float_power(
    "aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", "Tensor_Tensor_out", ("self", "exponent")
)
_float_power("aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", "Tensor_Scalar_out", ("self",))
_float_power("aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor", "Scalar_out", ("exponent",))
inplace_form(
    "aten::float_power_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)", "aten::float_power.Tensor_Tensor"
)
inplace_form(
    "aten::float_power_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)", "aten::float_power.Tensor_Scalar"
)


# ---------------------------------------------------------------------------------------- two operands, no number


@pointwise(
    "aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
    refuse=FLOAT_OR_COMPLEX, inplace=True, out="Tensor_out",
)  # fmt: skip
@pointwise(
    "aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
    refuse=FLOAT_OR_COMPLEX, inplace=True, out="Scalar_out",
)  # fmt: skip
def lerp(m: Any, start: Array, end: Array, weight: Any) -> Array:
    """start + weight * (end - start), from whichever end is nearer, so that weight 1 gives ``end`` exactly."""
    step = end - start
    near_start = abs(weight) < 0.5
    if near_start is True:
        return m.add(start, weight * step)
    from_end = end - step * (1 - weight)
    return from_end if near_start is False else m.where(near_start, start + weight * step, from_end)


@pointwise(
    "aten::atan2(Tensor self, Tensor other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    inplace=True,
    out="out",
    into=True,
)
def atan2(m: Any, y: Array, x: Array) -> Array:
    """The angle of the point (x, y), from -pi to pi."""
    return m.arctan2(y, x)


@pointwise("aten::hypot(Tensor self, Tensor other) -> Tensor", refuse=FLOAT_ONLY, inplace=True, out="out", into=True)
def hypot(m: Any, a: Array, b: Array) -> Array:
    """The length of (a, b), without overflow on the way."""
    return m.hypot(a, b)


def _nextafter_into(xp: Any, out: Array, a: Array, b: Array) -> Any:
    if a.dtype != b.dtype or kind_of(a.dtype) != 2 or not fits(out, xp.broadcast(a, b).shape, a.dtype):
        return NotImplemented
    xp.nextafter(a, b, out=out)
    return None


@library(
    "aten::nextafter(Tensor self, Tensor other) -> Tensor",
    half="native",
    inplace=True,
    out="out",
    type_rule=elementwise_type,
    into=_nextafter_into,
)
def nextafter(xp: Any, a: Array, b: Array) -> Array:
    """The floating-point number next to ``a`` in the direction of ``b``, in their own precision."""
    dtype = a.dtype if a.dtype == b.dtype else result_type(a, b)
    if kind_of(dtype) != 2:
        raise DTypeError(f"aten::nextafter: {dtype} tensors are not supported; {CAST_TO_FLOAT}")
    return xp.nextafter(a.astype(dtype), b.astype(dtype))


@pointwise(
    "aten::copysign.Scalar(Tensor self, Scalar other) -> Tensor",
    result="float", refuse=REAL_ONLY, inplace=True, out="Scalar_out", into=True,
)  # fmt: skip
@pointwise(
    "aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor",
    result="float",
    refuse=REAL_ONLY,
    inplace=True,
    out="out",
    into=True,
)
def copysign(m: Any, a: Array, b: Any) -> Array:
    """The magnitude of ``a`` with the sign of ``b``."""
    return m.copysign(a, b)


@pointwise("aten::logaddexp(Tensor self, Tensor other) -> Tensor", refuse=FLOAT_OR_COMPLEX, out="out", into=True)
def logaddexp(m: Any, a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) without overflow."""
    if a.dtype.kind == "c":
        low = a.real < b.real
        high, low = m.where(low, b, a), m.where(low, a, b)
        return high + m.log1p(m.exp(low - high))
    return m.logaddexp(a, b)


@pointwise("aten::logaddexp2(Tensor self, Tensor other) -> Tensor", refuse=FLOAT_ONLY, out="out", into=True)
def logaddexp2(m: Any, a: Array, b: Array) -> Array:
    """log2(2**a + 2**b) without overflow."""
    return m.logaddexp2(a, b)


_INTEGERS_ONLY = {"bool": "cast to an integer dtype first", "floating": "cast to an integer dtype first",
                  "complex": "cast to an integer dtype first"}  # fmt: skip


@pointwise("aten::gcd(Tensor self, Tensor other) -> Tensor", refuse=_INTEGERS_ONLY, inplace=True, out="out", into=True)
def gcd(m: Any, a: Array, b: Array) -> Array:
    """The greatest common divisor, never negative."""
    return m.gcd(a, b)


@pointwise("aten::lcm(Tensor self, Tensor other) -> Tensor", refuse=_INTEGERS_ONLY, inplace=True, out="out", into=True)
def lcm(m: Any, a: Array, b: Array) -> Array:
    """The least common multiple, never negative; 0 beside 0."""
    return m.lcm(a, b)


def _ldexp_into(m: Any, out: Array, a: Array, b: Array) -> None:
    m.multiply(a, m.exp2(b, out=None if out is a else out), out=out)


@pointwise("aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor", result="float", out="out", into=_ldexp_into)
def ldexp(m: Any, a: Array, b: Array) -> Array:
    """a * 2**b."""
    return a * m.exp2(b)


inplace_form("aten::ldexp_(Tensor(a!) self, Tensor other) -> Tensor(a!)", "aten::ldexp.Tensor")


def _takes_complex(m: Any, out: Array, a: Array, b: Array) -> bool:
    """Whether complex numbers of two real tensors can be made in ``out``."""
    if a.dtype != b.dtype or a.dtype.char not in "fd":
        return False
    return fits(out, m.broadcast_shapes(a.shape, b.shape), m.complex64 if a.dtype.itemsize == 4 else m.complex128)


def _polar_into(m: Any, out: Array, length: Array, angle: Array) -> Any:
    if not _takes_complex(m, out, length, angle):
        return NotImplemented
    for part, turn in ((out.real, m.cos), (out.imag, m.sin)):
        m.multiply(length, turn(angle), out=part)
    return None


def _complex_into(m: Any, out: Array, real: Array, imag: Array) -> Any:
    if not _takes_complex(m, out, real, imag):
        return NotImplemented
    out.real[...], out.imag[...] = real, imag
    return None


@pointwise(
    "aten::polar(Tensor abs, Tensor angle) -> Tensor", result="any", refuse=FLOAT_ONLY, out="out", into=_polar_into
)
def polar(m: Any, length: Array, angle: Array) -> Array:
    """The complex number of that length and angle."""
    return _complex(m, length * m.cos(angle), length * m.sin(angle))


@pointwise(
    "aten::complex(Tensor real, Tensor imag) -> Tensor", result="any", refuse=FLOAT_ONLY, out="out", into=_complex_into
)
def complex_(m: Any, real: Array, imag: Array) -> Array:
    """real + imag * 1j; infinities and NaN stay in their part."""
    return _complex(m, real, imag)


def _complex(m: Any, real: Any, imag: Any) -> Any:
    real, imag = m.broadcast_arrays(real, imag)
    y = m.empty(real.shape, dtype=m.complex64 if real.dtype.itemsize <= 4 else m.complex128)
    y.real = real
    y.imag = imag
    return y


# --------------------------------------------------------------------------------------------- sum and relu in one


def _add_relu_into(m: Any, out: Array, a: Array, b: Any, alpha: Any) -> None:
    m.add(a, b if alpha == 1 else b * wrap_number(alpha, _dtype_of(a, b), m), out=out)
    m.fmax(out, 0, out=out)


@pointwise(
    "aten::_add_relu.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="Scalar_out",
    into=_add_relu_into,
)
@pointwise(
    "aten::_add_relu.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    inplace=True,
    out="out",
    into=_add_relu_into,
)
def add_relu(m: Any, a: Array, b: Any, alpha: Any) -> Array:
    """max(a + alpha * b, 0); NaN gives 0."""
    return m.fmax(m.add(a, b * wrap_number(alpha, _dtype_of(a, b), m)), 0)


alias("aten::arctan2", "aten::atan2")
