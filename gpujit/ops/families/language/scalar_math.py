"""Functions of Python numbers: powers, logarithms, trigonometry, rounding.

Functions that Python's ``math`` refuses (``log(0)``, ``exp(1000)``) give what the C library gives: inf or nan.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ops.numbers import (
    Number,
    by_kind,
    ceil_int,
    declare,
    divide,
    divide_complex,
    float32,
    floor_int,
    mixed,
    wrap,
    wrap32,
)
from gpujit.ops.registry import prim
from gpujit.support.errors import OpError

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


def gamma(a: float) -> float:
    """The gamma function; inf at zero with its sign, nan at negative integers."""
    a = float(a)
    try:
        return math.gamma(a)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.copysign(math.inf, a) if a == 0 else math.nan


def lgamma(a: float) -> float:
    """The logarithm of the gamma function's size; inf at its poles."""
    try:
        return math.lgamma(float(a))
    except (ValueError, OverflowError):
        return math.inf


def _neg_int(a: int) -> int:
    return wrap(-a)


def _abs_int(a: int) -> int:
    return wrap(abs(a))


def _abs_complex(a: complex) -> float:
    try:
        return abs(a)
    except OverflowError:
        return math.inf


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

    declare(name, ints, f"int(int a) -> {results[0]}")
    declare(name, floats, f"float(float a) -> {results[1]}")
    if complexes is not None:
        declare(name, complexes, f"complex(complex a) -> {complex_result}")
    declare(name, scalar, "Scalar(Scalar a) -> Scalar")


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
_unary("aten::floor", floor_int, floor_int, ("int", "int"))
_unary("aten::ceil", ceil_int, ceil_int, ("int", "int"))
_unary("aten::neg", _neg_int, operator.neg, ("int", "float"), operator.neg)
_unary("aten::angle", angle, angle, ("float", "float"), lambda a: math.atan2(a.imag, a.real), "float")
_unary("prim::abs", _abs_int, abs, ("int", "float"), _abs_complex, "float")

for _name in ("isnan", "isfinite", "isinf"):
    declare(f"aten::{_name}", getattr(math, _name), "float(float a) -> bool")
    declare(f"aten::{_name}", getattr(cmath, _name), "complex(complex a) -> bool")

_log, _exp, _complex_log = _real_math("log"), _real_math("exp"), _complex_math("log")


def _log_base(a: float, b: float) -> float:
    return divide(_log(a), _log(b))


def _complex_log_base(a: Number, b: Number) -> complex:
    # A real operand has a real logarithm: nan when it is negative.
    p = _complex_log(a) if isinstance(a, complex) else complex(_log(a))
    if isinstance(b, complex):
        return divide_complex(p, _complex_log(b))
    q = _log(b)
    return complex(divide(p.real, q), divide(p.imag, q))


declare("aten::log", _log_base, "int_int(int a, int b) -> float", "float_float(float a, float b) -> float")
declare("aten::log", _complex_log_base, "complex_complex(complex a, complex b) -> complex")
mixed("aten::log", _log_base, "float")
declare(
    "aten::log",
    _complex_log_base,
    "int_complex(int a, complex b) -> complex",
    "complex_int(complex a, int b) -> complex",
    "float_complex(float a, complex b) -> complex",
    "complex_float(complex a, float b) -> complex",
)
declare("aten::log", by_kind(_log_base, _log_base, _complex_log_base), "Scalar_Scalar(Scalar a, Scalar b) -> float")


# ---------------------------------------------------------------------------------------------- powers and polar form


def _power(a: float, b: float) -> float:
    a, b = float(a), float(b)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a:
            return math.nan
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def power(a: float, b: float) -> float:
    """a to the power b as a float, for ints too. Raises OpError for a zero to a negative power."""
    if a == 0 and b < 0:
        raise OpError("aten::pow: 0.0 cannot be raised to a negative power; use a base other than zero")
    return _power(a, b)


def _power_complex(a: complex, b: complex) -> complex:
    a, b = complex(a), complex(b)
    try:
        if a and cmath.isfinite(a) and cmath.isfinite(b):
            return cmath.exp(b * cmath.log(a))
    except (OverflowError, ValueError):
        pass
    with np.errstate(all="ignore"):
        return complex(np.exp(np.complex128(b) * np.log(np.complex128(a))))


def _power_of_float(a: float, b: complex) -> complex:
    if a > 0:
        return _polar(_power(a, b.real), b.imag * _log(a))
    return _power_complex(a, b)


def _power_to_float(a: complex, b: float) -> complex:
    if a.imag == 0 and a.real > 0:
        return complex(_power(a.real, b))
    t = _complex_log(a)
    return _polar(_exp(b * t.real), b * t.imag)


declare("aten::pow", power, "int(int a, int b) -> float")
declare("aten::pow", _power_complex, "complex(complex a, complex b) -> complex")
declare("aten::pow", power, "float(float a, float b) -> float")
mixed("aten::pow", power, "float")
declare("aten::pow", _power_of_float, "float_complex(float a, complex b) -> complex")
declare("aten::pow", _power_to_float, "complex_float(complex a, float b) -> complex")
declare("aten::pow", by_kind(_power, _power, _power_complex), "Scalar_Scalar(Scalar a, Scalar b) -> float")
# PyTorch declares an int and returns a float; what a program sees is the float.
declare("aten::pow", power, "int_to_int(int a, int b) -> int")

_cos, _sin = _real_math("cos"), _real_math("sin")


def _polar(length: float, angle: float) -> complex:
    return complex(length * _cos(angle), length * _sin(angle))


declare("aten::polar", _polar, "int(int a, int b) -> complex", "float(float a, float b) -> complex")
mixed("aten::polar", _polar, "complex")
declare("aten::polar", _polar, "Scalar_Scalar(Scalar a, Scalar b) -> Scalar")


# ------------------------------------------------------------------------------------------------ integers and parts


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
        return math.ldexp(x, wrap32(i))
    except OverflowError:
        return math.copysign(math.inf, x)
