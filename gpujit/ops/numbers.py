"""C++'s rules for numbers that differ from Python's, and how operators on numbers are declared.

Source: PyTorch's registrations of primitive operators; every quirk kept here was seen with torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ops.registry import prim
from gpujit.support.errors import OpError

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
Number = Any
Binary = Callable[[Any, Any], Any]


def wrap(n: int) -> int:
    """``n`` as a 64-bit integer in two's complement."""
    return n if INT_MIN <= n <= INT_MAX else ((n + 2**63) & (2**64 - 1)) - 2**63


def wrap32(n: int) -> int:
    """``n`` as a 32-bit integer in two's complement."""
    return ((n + 2**31) & (2**32 - 1)) - 2**31


def float32(x: float) -> float:
    """``x`` rounded to 32 bits."""
    with np.errstate(over="ignore"):
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
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def divide_complex(a: complex, b: complex) -> complex:
    """``a / b``, scaled by the larger part of ``b``; inf or nan when ``b`` is zero.

    Source: Smith 1962, "Algorithm 116: Complex division".
    """
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
        return math.nan


def floor_float(x: float) -> float:
    """The largest whole number not above ``x``; infinities, nan and the sign of zero stay."""
    if not math.isfinite(x):
        return x
    return float(math.floor(x)) or math.copysign(0.0, x)


def _as_integer(a: float, whole: Callable[[float], int], op: str) -> int:
    a = float(a)
    if not -9223372036854775808.0 <= a <= 9223372036854775808.0:
        raise OpError(f"aten::{op}: Cannot convert float {a:f} to integer; it lies outside 64 bits")
    return wrap(whole(a))


def floor_int(a: float) -> int:
    """The largest integer not above ``a``. Raises OpError for nan and what 64 bits cannot hold."""
    return _as_integer(a, math.floor, "floor")


def ceil_int(a: float) -> int:
    """The smallest integer not below ``a``. Raises OpError for nan and what 64 bits cannot hold."""
    return _as_integer(a, math.ceil, "ceil")


def declare(name: str, body: Callable[..., Any], *signatures: str, never_raises: bool = False) -> None:
    """Enter one body for several overloads of ``name``, each written ``overload(arguments) -> result``."""
    for signature in signatures:
        prim(f"{name}{'' if signature[0] == '(' else '.'}{signature}", never_raises=never_raises)(body)


def mixed(name: str, body: Binary, result: str, *, never_raises: bool = False) -> None:
    """The two overloads for an int and a float, the int made a float as C++ does."""
    first, second = (lambda a, b: body(float(a), b)), (lambda a, b: body(a, float(b)))
    prim(f"{name}.int_float(int a, float b) -> {result}", never_raises=never_raises)(first)
    prim(f"{name}.float_int(float a, int b) -> {result}", never_raises=never_raises)(second)


def by_kind(ints: Binary, floats: Binary, complexes: Binary | None = None) -> Binary:
    """A body for two numbers of any kind: the wider kind decides."""

    def body(a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return ints(a, b)
        if complexes is not None and (isinstance(a, complex) or isinstance(b, complex)):
            return complexes(complex(a), complex(b))
        return floats(float(a), float(b))

    return body
