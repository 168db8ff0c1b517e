"""Arithmetic on Python numbers: 64-bit integers that wrap, C++'s rules for floats, complex numbers, bools.

Each family lists its overloads in PyTorch's order, which decides what a call means. Functions that Python's ``math``
refuses (``log(0)``, ``exp(1000)``) give what the C library gives: inf or nan.
Source: PyTorch's registrations of primitive operators; every quirk kept here was seen with torch 2.13.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ops.registry import prim
from gpujit.support.errors import OpError

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
_INF = math.inf
_NAN = math.nan
Number = Any
Binary = Callable[[Any, Any], Any]


# ---------------------------------------------------------------------------------------------------- shared rules


def wrap(n: int) -> int:
    """``n`` as a 64-bit integer in two's complement."""
    return n if INT_MIN <= n <= INT_MAX else ((n + 2**63) & (2**64 - 1)) - 2**63


def wrap32(n: int) -> int:
    """``n`` as a 32-bit integer in two's complement."""
    return ((n + 2**31) & (2**32 - 1)) - 2**31


def float32(x: float) -> float:
    """``x`` rounded to 32 bits."""
    return float(np.float32(x))


def to_int(x: float) -> int:
    """``x`` cut to an integer as a processor does: the least integer for what does not fit."""
    return int(x) if -9223372036854775808.0 <= x < 9223372036854775808.0 else INT_MIN


def divide(a: float, b: float) -> float:
    """``a / b`` by IEEE's rules: inf or nan when ``b`` is zero."""
    a, b = float(a), float(b)
    if b:
        return a / b
    if a == 0.0 or a != a:
        return _NAN
    return math.copysign(_INF, a) * math.copysign(1.0, b)


def divide_complex(a: complex, b: complex) -> complex:
    """``a / b``, scaled by the larger part of ``b``; inf or nan when ``b`` is zero. Source: Smith 1962, Algorithm 116."""
    c, d = b.real, b.imag
    if abs(c) >= abs(d):
        if c == 0.0 and d == 0.0:
            return complex(divide(a.real, abs(c)), divide(a.imag, abs(d)))
        ratio = divide(d, c)
        scale = divide(1.0, c + d * ratio)
        return complex((a.real + a.imag * ratio) * scale, (a.imag - a.real * ratio) * scale)
    ratio = divide(c, d)
    scale = divide(1.0, c * ratio + d)
    return complex((a.real * ratio + a.imag) * scale, (a.imag * ratio - a.real) * scale)


def fmod(a: float, b: float) -> float:
    """The remainder with the sign of ``a``; nan for an infinite ``a`` or a zero ``b``."""
    try:
        return math.fmod(a, b)
    except ValueError:
        return _NAN


def floor_float(x: float) -> float:
    """The largest whole number not above ``x``; infinities, nan and the sign of zero stay."""
    if not math.isfinite(x):
        return x
    return float(math.floor(x)) or math.copysign(0.0, x)


def _no_zero(op: str, b: Any) -> None:
    if b == 0:
        raise OpError(f"aten::{op}: division by 0; the divisor must be another integer")


def _declare(name: str, body: Callable[..., Any], *signatures: str) -> None:
    """Enter one body for several overloads of ``name``, each written ``overload(arguments) -> result``."""
    for signature in signatures:
        prim(f"{name}{'' if signature[0] == '(' else '.'}{signature}")(body)


def _mixed(name: str, body: Binary, result: str) -> None:
    """The two overloads for an int and a float, the int made a float as C++ does."""
    prim(f"{name}.int_float(int a, float b) -> {result}")(lambda a, b: body(float(a), b))
    prim(f"{name}.float_int(float a, int b) -> {result}")(lambda a, b: body(a, float(b)))


def _by_kind(ints: Binary, floats: Binary, complexes: Binary | None = None) -> Binary:
    """A body for two numbers of any kind: the wider kind decides."""

    def body(a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return ints(a, b)
        if complexes is not None and (isinstance(a, complex) or isinstance(b, complex)):
            return complexes(complex(a), complex(b))
        return floats(float(a), float(b))

    return body


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
    _declare(name, ints, "int(int a, int b) -> int")
    _declare(name, complexes, "complex(complex a, complex b) -> complex")
    _declare(name, floats, "float(float a, float b) -> float")
    _declare(name, left, "int_complex(int a, complex b) -> complex")
    _declare(name, right, "complex_int(complex a, int b) -> complex")
    _declare(name, left, "float_complex(float a, complex b) -> complex")
    _declare(name, right, "complex_float(complex a, float b) -> complex")
    _mixed(name, floats, "float")
    _declare(name, _by_kind(ints, floats, complexes), "(Scalar a, Scalar b) -> Scalar")


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

_declare("aten::div", divide, "int(int a, int b) -> float")
_declare("aten::div", divide_complex, "complex(complex a, complex b) -> complex")
_declare("aten::div", divide, "float(float a, float b) -> float")
_declare("aten::div", _by_kind(divide, divide, divide_complex), "(Scalar a, Scalar b) -> float")


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
    _declare(f"aten::{_name}", _ints, "int(int a, int b) -> int")
    _declare(f"aten::{_name}", _floats, "float(float a, float b) -> float")
    _mixed(f"aten::{_name}", _floats, "float")
    _declare(f"aten::{_name}", _by_kind(_ints, _floats), "(Scalar a, Scalar b) -> Scalar")


def _ieee_remainder(a: float, b: float) -> float:
    try:
        return math.remainder(a, b)
    except ValueError:
        return _NAN


for _name, _real in (
    ("fmod", fmod),
    ("copysign", math.copysign),
    ("mathremainder", _ieee_remainder),
    ("atan2", math.atan2),
):
    _declare(f"aten::{_name}", _real, "int(int a, int b) -> float", "float(float a, float b) -> float")
    _mixed(f"aten::{_name}", _real, "float")
    _declare(f"aten::{_name}", _real, f"{'Scalar_Scalar' if _name == 'atan2' else ''}(Scalar a, Scalar b) -> float")


def _power(a: float, b: float) -> float:
    a, b = float(a), float(b)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -_INF if a < 0 and b % 2 == 1 else _INF
    except ValueError:
        if a:
            return _NAN
        return math.copysign(_INF, a) if b % 2 == 1 else _INF


def power(a: float, b: float) -> float:
    """a to the power b as a float, for ints too. Raises OpError for a zero to a negative power."""
    if a == 0 and b < 0:
        raise OpError("aten::pow: 0.0 cannot be raised to a negative power; use a base other than zero")
    return _power(a, b)


def _power_complex(a: complex, b: complex) -> complex:
    try:
        return complex(a) ** complex(b)
    except (OverflowError, ZeroDivisionError):
        with np.errstate(all="ignore"):
            return complex(np.complex128(a) ** np.complex128(b))


_declare("aten::pow", power, "int(int a, int b) -> float")
_declare("aten::pow", _power_complex, "complex(complex a, complex b) -> complex")
_declare("aten::pow", power, "float(float a, float b) -> float")
_mixed("aten::pow", power, "float")
_declare(
    "aten::pow",
    _power_complex,
    "float_complex(float a, complex b) -> complex",
    "complex_float(complex a, float b) -> complex",
)
_declare("aten::pow", _by_kind(_power, _power, _power_complex), "Scalar_Scalar(Scalar a, Scalar b) -> float")
# PyTorch declares an int and returns a float; what a program sees is the float.
_declare("aten::pow", power, "int_to_int(int a, int b) -> int")


def _polar(length: float, angle: float) -> complex:
    with np.errstate(all="ignore"):
        return complex(length * _real_math("cos")(angle), length * _real_math("sin")(angle))


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
    # Computed in 32 bits, as PyTorch does.
    _no_float_zero(y)
    a, b = np.float32(x), np.float32(y)
    with np.errstate(all="ignore"):
        q = float(floor_int(float(a / b)))
        return q, float(a) - q * float(b)


def truncated_quotient(a: int, b: int) -> int:
    """a / b rounded towards zero. Raises OpError for a zero divisor."""
    _no_zero("__round_to_zero_floordiv", b)
    q = abs(a) // abs(b)
    return wrap(q if (a < 0) == (b < 0) else -q)


# ----------------------------------------------------------------------------------------------------- comparisons


def _comparison(name: str, compare: Binary) -> None:
    name = f"aten::{name}"
    _declare(name, compare, "int(int a, int b) -> bool")
    if compare in (operator.eq, operator.ne):
        _declare(name, compare, "complex(complex a, complex b) -> bool")
    _declare(name, compare, "float(float a, float b) -> bool")
    _mixed(name, compare, "bool")
    if compare in (operator.eq, operator.ne):
        _declare(
            name,
            compare,
            "float_complex(float a, complex b) -> bool",
            "complex_float(complex a, float b) -> bool",
        )
    _declare(name, _by_kind(compare, compare, compare), "(Scalar a, Scalar b) -> bool")
    _declare(name, compare, "str(str a, str b) -> bool")


for _name in ("eq", "ne"):
    _compare = getattr(operator, _name)
    _declare(f"aten::{_name}", _compare, "device(Device a, Device b) -> bool", "bool(bool a, bool b) -> bool")
    _declare(f"aten::{_name}", _compare, "enum(AnyEnumType a, AnyEnumType b) -> bool")
for _name in ("eq", "ne", "lt", "gt", "le", "ge"):
    _comparison(_name, getattr(operator, _name))


def least(a: Number, b: Number) -> Number:
    """The lesser of two numbers; the second when they do not compare (nan)."""
    return a if a < b else b


def greatest(a: Number, b: Number) -> Number:
    """The greater of two numbers; the second when they do not compare (nan)."""
    return a if a > b else b


for _name, _choose in (("min", least), ("max", greatest)):
    _declare(f"prim::{_name}", _choose, "int(int a, int b) -> int", "float(float a, float b) -> float")
    _mixed(f"prim::{_name}", _choose, "float")
    _declare(f"prim::{_name}", _by_kind(_choose, _choose), "(Scalar a, Scalar b) -> Scalar")


# ------------------------------------------------------------------------------------------------- bools and bits


@prim("aten::__not__(bool self) -> bool")
def logical_not(a: bool) -> bool:
    """The other truth value."""
    return not a


_PLAIN = frozenset((int, float, complex, bool))


@prim("aten::__is__(t1 self, t2 obj) -> bool")
def is_same(a: Any, b: Any) -> bool:
    """Whether two values are one object; numbers are when they are equal and of one type."""
    return a is b or (type(a) in _PLAIN and type(a) is type(b) and bool(a == b))


@prim("aten::__isnot__(t1 self, t2 obj) -> bool")
def is_not_same(a: Any, b: Any) -> bool:
    """Whether two values are different objects."""
    return not is_same(a, b)


for _name, _bits in (("__and__", operator.and_), ("__or__", operator.or_), ("__xor__", operator.xor)):
    _declare(f"aten::{_name}", _bits, "bool(bool a, bool b) -> bool", "int(int a, int b) -> int")
# The processor looks at the low six bits of the distance only.
_declare("aten::__lshift__", lambda a, b: wrap(a << (b & 63)), "int(int a, int b) -> int")
_declare("aten::__rshift__", lambda a, b: a >> (b & 63), "int(int a, int b) -> int")


# -------------------------------------------------------------------------------------------- functions of a number


def _real_math(name: str) -> Callable[[float], float]:
    """``math``'s function; where it raises, what C gives."""
    plain: Callable[[float], float] = getattr(math, name)
    other = getattr(np, {"acos": "arccos", "asin": "arcsin", "atanh": "arctanh", "acosh": "arccosh"}.get(name, name))

    def body(a: float) -> float:
        try:
            return plain(float(a))
        except (ValueError, OverflowError):
            with np.errstate(all="ignore"):
                return float(other(np.float64(a)))

    return body


def _complex_math(name: str) -> Callable[[complex], complex]:
    plain: Callable[[complex], complex] = getattr(cmath, name)
    other = getattr(np, {"acos": "arccos", "asin": "arcsin", "atanh": "arctanh", "acosh": "arccosh"}.get(name, name))

    def body(a: complex) -> complex:
        try:
            return plain(a)
        except (ValueError, OverflowError):
            with np.errstate(all="ignore"):
                return complex(other(np.complex128(a)))

    return body


def round_float(a: float) -> float:
    """The nearest whole number as a float; halves go to the even one."""
    return math.copysign(float(round(a)), a) if math.isfinite(a) else float(a)


def _as_integer(a: float, whole: Callable[[float], int], op: str) -> int:
    if not -9223372036854775808.0 <= a <= 9223372036854775808.0:
        raise OpError(f"aten::{op}: Cannot convert float {a:f} to integer; it lies outside 64 bits")
    return min(whole(a), INT_MAX)


def floor_int(a: float) -> int:
    """The largest integer not above ``a``. Raises OpError for nan and what 64 bits cannot hold."""
    return _as_integer(a, math.floor, "floor")


def ceil_int(a: float) -> int:
    """The smallest integer not below ``a``. Raises OpError for nan and what 64 bits cannot hold."""
    return _as_integer(a, math.ceil, "ceil")


def gamma(a: float) -> float:
    """The gamma function; inf at zero with its sign, nan at negative integers."""
    a = float(a)
    try:
        return math.gamma(a)
    except OverflowError:
        return _INF
    except ValueError:
        return math.copysign(_INF, a) if a == 0 else _NAN


def lgamma(a: float) -> float:
    """The logarithm of the gamma function's size; inf at its poles."""
    try:
        return math.lgamma(float(a))
    except (ValueError, OverflowError):
        return _INF


def _neg_int(a: int) -> int:
    return wrap(-a)


def _abs_int(a: int) -> int:
    return wrap(abs(a))


def _abs_complex(a: complex) -> float:
    try:
        return abs(a)
    except OverflowError:
        return _INF


def angle(a: Number) -> float:
    """0, or pi for a negative number."""
    return math.pi if math.copysign(1.0, a) < 0 else 0.0


def _unary(
    name: str,
    ints: Callable[[Any], Any],
    floats: Callable[[Any], Any],
    results: tuple[str, str],
    complexes: Callable[[Any], Any] | None = None,
    complex_result: str = "complex",
) -> None:
    """A function of one number; ``results`` are the types for an int and for a float.

    The overload for a number of unknown type returns 32-bit floats and ints, as PyTorch's does.
    """
    cut: dict[str, Callable[[Any], Any]] = {"int": wrap32, "float": float32, "complex": complex}
    after_int, after_float, after_complex = cut[results[0]], cut[results[1]], cut[complex_result]

    def scalar(a: Number) -> Number:
        if isinstance(a, int):
            return after_int(ints(a))
        if isinstance(a, complex) and complexes is not None:
            return after_complex(complexes(a))
        return after_float(floats(a))

    _declare(name, ints, f"int(int a) -> {results[0]}")
    _declare(name, floats, f"float(float a) -> {results[1]}")
    if complexes is not None:
        _declare(name, complexes, f"complex(complex a) -> {complex_result}")
    _declare(name, scalar, "Scalar(Scalar a) -> Scalar")


for _name in (
    "log", "exp", "log10", "sqrt", "acos", "asin", "atan", "cos", "sin", "tan", "asinh", "atanh", "acosh", "sinh",
    "cosh", "tanh",
):  # fmt: skip
    _unary(f"aten::{_name}", _real_math(_name), _real_math(_name), ("float", "float"), _complex_math(_name))
for _name, _function in (
    ("log1p", _real_math("log1p")),
    ("expm1", _real_math("expm1")),
    ("degrees", lambda a: a * (180.0 / math.pi)),
    ("radians", lambda a: a * (math.pi / 180.0)),
    ("gamma", gamma),
    ("lgamma", lgamma),
    ("erf", math.erf),
    ("erfc", math.erfc),
    ("fabs", math.fabs),
    ("round", round_float),
):
    _unary(f"aten::{_name}", _function, _function, ("float", "float"))
_unary("aten::floor", int, floor_int, ("int", "int"))
_unary("aten::ceil", int, ceil_int, ("int", "int"))
_unary("aten::neg", _neg_int, operator.neg, ("int", "float"), operator.neg)
_unary("aten::angle", angle, angle, ("float", "float"), lambda a: math.atan2(a.imag, a.real), "float")
_unary("prim::abs", _abs_int, abs, ("int", "float"), _abs_complex, "float")

for _name in ("isnan", "isfinite", "isinf"):
    _declare(f"aten::{_name}", getattr(math, _name), "float(float a) -> bool")
    _declare(f"aten::{_name}", getattr(cmath, _name), "complex(complex a) -> bool")

_log, _complex_log = _real_math("log"), _complex_math("log")


def _log_base(a: float, b: float) -> float:
    return divide(_log(a), _log(b))


def _complex_log_base(a: complex, b: complex) -> complex:
    return divide_complex(_complex_log(complex(a)), _complex_log(complex(b)))


_declare("aten::log", _log_base, "int_int(int a, int b) -> float", "float_float(float a, float b) -> float")
_declare("aten::log", _complex_log_base, "complex_complex(complex a, complex b) -> complex")
_mixed("aten::log", _log_base, "float")
_declare(
    "aten::log",
    _complex_log_base,
    "int_complex(int a, complex b) -> complex",
    "complex_int(complex a, int b) -> complex",
    "float_complex(float a, complex b) -> complex",
    "complex_float(complex a, float b) -> complex",
)
_declare("aten::log", _by_kind(_log_base, _log_base, _complex_log_base), "Scalar_Scalar(Scalar a, Scalar b) -> float")

_declare("aten::polar", _polar, "int(int a, int b) -> complex", "float(float a, float b) -> complex")
_mixed("aten::polar", _polar, "complex")
_declare("aten::polar", _polar, "Scalar_Scalar(Scalar a, Scalar b) -> Scalar")

_declare("aten::divmod", divmod_int, "int(int x, int y) -> (int, int)")
_declare("aten::divmod", divmod_float, "float(float x, float y) -> (float, float)")
_declare(
    "aten::divmod",
    _divmod_mixed,
    "int_float(int x, float y) -> (float, float)",
    "float_int(float x, int y) -> (float, float)",
)
_declare("aten::__round_to_zero_floordiv", truncated_quotient, "int(int a, int b) -> int")


@prim("aten::gcd.int(int a, int b) -> int")
def gcd(a: int, b: int) -> int:
    """The greatest common divisor, never negative (but for the least integer, whose size does not fit)."""
    return wrap(math.gcd(a, b))


@prim("aten::factorial.int(int a) -> int")
def factorial(a: int) -> int:
    """1 * 2 * ... * a, wrapped. Raises OpError for a negative number."""
    if a < 0:
        raise OpError(f"aten::factorial: factorial() not defined for negative values; found {a}")
    # From 66 on the product is a multiple of 2**64.
    return wrap(math.factorial(a)) if a < 66 else 0


@prim("aten::modf(float a) -> (float, float)")
def modf(a: float) -> tuple[float, float]:
    """Fraction and whole part, both with the sign of ``a``."""
    return math.modf(a)


@prim("aten::frexp(float a) -> (float, int)")
def frexp(a: float) -> tuple[float, int]:
    """Mantissa in [0.5, 1) and exponent of two."""
    return math.frexp(a)


@prim("aten::ldexp(float x, int i) -> float")
def ldexp(x: float, i: int) -> float:
    """x times two to the power i; inf when it overflows."""
    try:
        return math.ldexp(x, i)
    except OverflowError:
        return math.copysign(_INF, x)


@prim("aten::__range_length(int lo, int hi, int step) -> int")
def range_length(lo: int, hi: int, step: int) -> int:
    """How many numbers ``range(lo, hi, step)`` has. Raises OpError for a zero step."""
    if step == 0:
        raise OpError("aten::__range_length: range() arg 3 must not be zero; use a positive or negative step")
    return len(range(lo, hi, step))


@prim("aten::__derive_index(int index, int start, int step) -> int")
def derive_index(index: int, start: int, step: int) -> int:
    """The number at ``index`` in a range."""
    return wrap(start + index * step)
