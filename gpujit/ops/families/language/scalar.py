"""Arithmetic on Python numbers: 64-bit integers that wrap, C++'s rules for floats, complex numbers, bools.

Each family lists its overloads in PyTorch's order, which decides what a call means.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from gpujit.ops.numbers import (
    INT_MAX,
    INT_MIN,
    Binary,
    Number,
    by_kind,
    declare,
    divide,
    divide_complex,
    float32,
    floor_float,
    floor_int,
    fmod,
    mixed,
    wrap,
    wrap32,
)
from gpujit.ops.registry import prim
from gpujit.ops.rules.values import identity_type, no_identity_type
from gpujit.support.errors import OpError


def _no_zero(op: str, b: Any) -> None:
    if b == 0:
        raise OpError(f"aten::{op}: division by 0; the divisor must be another integer")


# ------------------------------------------------------------------------------------------------------ arithmetic


def add_int(a: int, b: int) -> int:
    """a + b, wrapped."""
    n = a + b
    return n if INT_MIN <= n <= INT_MAX else wrap(n)


def sub_int(a: int, b: int) -> int:
    """a - b, wrapped."""
    n = a - b
    return n if INT_MIN <= n <= INT_MAX else wrap(n)


def mul_int(a: int, b: int) -> int:
    """a * b, wrapped."""
    n = a * b
    return n if INT_MIN <= n <= INT_MAX else wrap(n)


def _complex_product(a: complex, b: complex) -> complex:
    return complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _arithmetic(name: str, ints: Binary, floats: Binary, complexes: Binary, left: Binary, right: Binary) -> None:
    """add, sub or mul; ``left`` takes a real number and a complex one, ``right`` a complex one and a real one."""
    name = f"aten::{name}"
    declare(name, ints, "int(int a, int b) -> int", never_raises=True)
    declare(name, complexes, "complex(complex a, complex b) -> complex")
    declare(name, floats, "float(float a, float b) -> float", never_raises=True)
    declare(name, left, "int_complex(int a, complex b) -> complex")
    declare(name, right, "complex_int(complex a, int b) -> complex")
    declare(name, left, "float_complex(float a, complex b) -> complex")
    declare(name, right, "complex_float(complex a, float b) -> complex")
    mixed(name, floats, "float", never_raises=True)
    declare(name, by_kind(ints, floats, complexes), "(Scalar a, Scalar b) -> Scalar")


# A real operand is added to the real part alone, which keeps the sign of a zero imaginary part.
_arithmetic(
    "add", add_int, operator.add, operator.add,
    lambda a, b: complex(a + b.real, b.imag), lambda a, b: complex(a.real + b, a.imag),
)  # fmt: skip
_arithmetic(
    "sub", sub_int, operator.sub, operator.sub,
    lambda a, b: complex(a - b.real, 0.0 - b.imag), lambda a, b: complex(a.real - b, a.imag),
)  # fmt: skip
_arithmetic(
    "mul", mul_int, operator.mul, _complex_product,
    lambda a, b: complex(a * b.real, a * b.imag), lambda a, b: complex(a.real * b, a.imag * b),
)  # fmt: skip

declare("aten::div", divide, "int(int a, int b) -> float")
declare("aten::div", divide_complex, "complex(complex a, complex b) -> complex")
declare("aten::div", divide, "float(float a, float b) -> float")
declare("aten::div", by_kind(divide, divide, divide_complex), "(Scalar a, Scalar b) -> float")


def floordiv_int(a: int, b: int) -> int:
    """a / b rounded down, wrapped. Raises OpError for a zero divisor."""
    if b == 0:
        _no_zero("floordiv", b)
    n = a // b
    return n if n <= INT_MAX else wrap(n)


def _floordiv_float(a: float, b: float) -> float:
    return floor_float(divide(a, b))


def remainder_int(a: int, b: int) -> int:
    """The remainder with the sign of ``b``. Raises OpError for a zero divisor."""
    if b == 0:
        _no_zero("remainder", b)
    return a % b


def _remainder_float(a: float, b: float) -> float:
    return fmod(b + fmod(a, b), b)


for _name, _ints, _floats in (
    ("floordiv", floordiv_int, _floordiv_float),
    ("remainder", remainder_int, _remainder_float),
):
    declare(f"aten::{_name}", _ints, "int(int a, int b) -> int")
    declare(f"aten::{_name}", _floats, "float(float a, float b) -> float")
    mixed(f"aten::{_name}", _floats, "float")
    declare(f"aten::{_name}", by_kind(_ints, _floats), "(Scalar a, Scalar b) -> Scalar")


def _ieee_remainder(a: float, b: float) -> float:
    try:
        return math.remainder(a, b)
    except ValueError:
        return math.nan


for _name, _real in (
    ("fmod", fmod),
    ("copysign", math.copysign),
    ("mathremainder", _ieee_remainder),
    ("atan2", math.atan2),
):
    declare(f"aten::{_name}", _real, "int(int a, int b) -> float", "float(float a, float b) -> float")
    mixed(f"aten::{_name}", _real, "float")
    declare(f"aten::{_name}", _real, f"{'Scalar_Scalar' if _name == 'atan2' else ''}(Scalar a, Scalar b) -> float")


def divmod_int(x: int, y: int) -> tuple[int, int]:
    """Quotient rounded down, and remainder. Raises OpError for a zero divisor."""
    if y == 0:
        raise OpError("aten::divmod: ZeroDivisionError: integer division or modulo by zero; the divisor must not be 0")
    q, r = divmod(x, y)
    return wrap(q), r


def _no_float_zero(y: float) -> None:
    if y == 0:
        raise OpError("aten::divmod: ZeroDivisionError: float divmod(); the divisor must not be 0")


def divmod_float(x: float, y: float) -> tuple[float, float]:
    """Quotient and remainder with the sign of ``y``. Raises OpError for a zero divisor."""
    _no_float_zero(y)
    r = fmod(x, y)
    if r and (x < 0) != (y < 0):
        r += y
    return divide(x - r, y), r


def _divmod_mixed(x: float, y: float) -> tuple[float, float]:
    # PyTorch reads both through 32-bit variables and divides in 32 bits.
    a, b = (wrap32(v) if isinstance(v, int) else float32(v) for v in (x, y))
    _no_float_zero(b)
    with np.errstate(all="ignore"):
        q = float(floor_int(float(np.float32(a) / np.float32(b))))
    return q, a - q * b


def truncated_quotient(a: int, b: int) -> int:
    """a / b rounded towards zero. Raises OpError for a zero divisor."""
    _no_zero("__round_to_zero_floordiv", b)
    q = abs(a) // abs(b)
    return wrap(q if (a < 0) == (b < 0) else -q)


declare("aten::divmod", divmod_int, "int(int x, int y) -> (int, int)")
declare("aten::divmod", divmod_float, "float(float x, float y) -> (float, float)")
declare(
    "aten::divmod",
    _divmod_mixed,
    "int_float(int x, float y) -> (float, float)",
    "float_int(float x, int y) -> (float, float)",
)
declare("aten::__round_to_zero_floordiv", truncated_quotient, "int(int a, int b) -> int")


# ----------------------------------------------------------------------------------------------------- comparisons


def _comparison(name: str, compare: Binary) -> None:
    name = f"aten::{name}"
    declare(name, compare, "int(int a, int b) -> bool", never_raises=True)
    if compare in (operator.eq, operator.ne):
        declare(name, compare, "complex(complex a, complex b) -> bool")
    declare(name, compare, "float(float a, float b) -> bool", never_raises=True)
    mixed(name, compare, "bool", never_raises=True)
    if compare in (operator.eq, operator.ne):
        declare(
            name,
            compare,
            "float_complex(float a, complex b) -> bool",
            "complex_float(complex a, float b) -> bool",
        )
    declare(name, by_kind(compare, compare, compare), "(Scalar a, Scalar b) -> bool")
    declare(name, compare, "str(str a, str b) -> bool", never_raises=True)


for _name in ("eq", "ne"):
    _compare = getattr(operator, _name)
    _device, _bool = "device(Device a, Device b) -> bool", "bool(bool a, bool b) -> bool"
    declare(f"aten::{_name}", _compare, _device, _bool, never_raises=True)
    declare(f"aten::{_name}", _compare, "enum(AnyEnumType a, AnyEnumType b) -> bool")
for _name in ("eq", "ne", "lt", "gt", "le", "ge"):
    _comparison(_name, getattr(operator, _name))


def least(a: Number, b: Number) -> Number:
    """The lesser of two numbers; the second when they do not compare (nan)."""
    return a if a < b else b


def greatest(a: Number, b: Number) -> Number:
    """The greater of two numbers; the second when they do not compare (nan)."""
    return a if a > b else b


for _name, _choose in (("min", least), ("max", greatest)):
    _of_ints, _of_floats = "int(int a, int b) -> int", "float(float a, float b) -> float"
    declare(f"prim::{_name}", _choose, _of_ints, _of_floats, never_raises=True)
    mixed(f"prim::{_name}", _choose, "float")
    declare(f"prim::{_name}", by_kind(_choose, _choose), "(Scalar a, Scalar b) -> Scalar")


# ------------------------------------------------------------------------------------------------- bools and bits


@prim("aten::__not__(bool self) -> bool", never_raises=True)
def logical_not(a: bool) -> bool:
    """The other truth value."""
    return not a


_PLAIN = frozenset((int, float, complex, bool))


@prim("aten::__is__(t1 self, t2 obj) -> bool", type_rule=identity_type, never_raises=True)
def is_same(a: Any, b: Any) -> bool:
    """Whether two values are one object; numbers are when they are equal and of one type."""
    return a is b or (type(a) in _PLAIN and type(a) is type(b) and bool(a == b))


@prim("aten::__isnot__(t1 self, t2 obj) -> bool", type_rule=no_identity_type, never_raises=True)
def is_not_same(a: Any, b: Any) -> bool:
    """Whether two values are different objects."""
    return not is_same(a, b)


for _name, _bits in (("__and__", operator.and_), ("__or__", operator.or_), ("__xor__", operator.xor)):
    _bools, _integers = "bool(bool a, bool b) -> bool", "int(int a, int b) -> int"
    declare(f"aten::{_name}", _bits, _bools, _integers, never_raises=True)
# The processor looks at the low six bits of the distance only.
declare("aten::__lshift__", lambda a, b: wrap(a << (b & 63)), "int(int a, int b) -> int")
declare("aten::__rshift__", lambda a, b: a >> (b & 63), "int(int a, int b) -> int")


@prim("aten::__range_length(int lo, int hi, int step) -> int")
def range_length(lo: int, hi: int, step: int) -> int:
    """How many numbers ``range(lo, hi, step)`` has. Raises OpError for a zero step."""
    if step == 0:
        raise OpError("aten::__range_length: range() arg 3 must not be zero; use a positive or negative step")
    if step > 0:
        return wrap(1 + (hi - 1 - lo) // step) if lo < hi else 0
    return wrap(1 + (lo - 1 - hi) // -step) if lo > hi else 0


@prim("aten::__derive_index(int index, int start, int step) -> int")
def derive_index(index: int, start: int, step: int) -> int:
    """The number at ``index`` in a range."""
    return wrap(start + index * step)
