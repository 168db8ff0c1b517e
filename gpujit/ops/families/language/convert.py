"""Casts between numbers, strings and one-element tensors.

A cast from a tensor refuses numbers that the target cannot hold; the ``Implicit`` forms, which the compiler inserts
where a number is wanted, also refuse tensors that have dimensions.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from gpujit.ir.dtypes import IR_NAMES, code_of
from gpujit.ir.values import Array
from gpujit.ops.numbers import to_int
from gpujit.ops.registry import library, prim
from gpujit.ops.rules.values import number_tensor_type
from gpujit.ops.text import as_bytes
from gpujit.support.errors import DTypeError, OpError, ShapeError

Number = Any


# ------------------------------------------------------------------------------------------------- tensor to number


def item_of(x: Array, op: str) -> Number:
    """The one element of a tensor as a Python number. Raises ShapeError when it has another number of elements."""
    if x.size != 1:
        raise ShapeError(
            f"{op}: a Tensor with {x.size} elements cannot be converted to Scalar; its shape is {tuple(x.shape)}, "
            "select one element first"
        )
    value = x.item()
    return value if type(value) in _NUMBERS else float(value)


_NUMBERS = frozenset((bool, int, float, complex))


def _real(value: Number, op: str, wanted: str) -> Number:
    if type(value) is complex:
        if value.imag:
            raise DTypeError(f"{op}: value cannot be converted to type {wanted} without overflow: {value} is not real")
        return value.real
    return value


def int_of(x: Array, op: str) -> int:
    """The one element of a tensor, cut to an integer. Raises DTypeError when 64 bits cannot hold it."""
    value = _real(item_of(x, op), op, "int64_t")
    # The bounds are those of the check in C++, where the upper one is rounded up to 2**63.
    if type(value) is float and not -9223372036854775808.0 <= value <= 9223372036854775808.0:
        raise DTypeError(f"{op}: value cannot be converted to type int64_t without overflow; found {value}")
    return to_int(value) if type(value) is float else int(value)


def float_of(x: Array, op: str) -> float:
    """The one element of a tensor as a float. Raises DTypeError when it has an imaginary part."""
    return float(_real(item_of(x, op), op, "double"))


def truth_of(x: Array, op: str) -> bool:
    """Whether the one element of a tensor differs from zero. Raises ShapeError when it does not have one element."""
    if x.size != 1:
        found = "no values" if x.size == 0 else "more than one value"
        raise ShapeError(
            f"{op}: Boolean value of Tensor with {found} is ambiguous; its shape is {tuple(x.shape)}, reduce it with "
            "any() or all()"
        )
    return bool(x.item())


@prim("aten::item(Tensor self) -> Scalar")
def item(x: Array) -> Number:
    """The one element of a tensor as a number."""
    return item_of(x, "aten::item")


@prim("aten::_local_scalar_dense(Tensor self) -> Scalar")
def local_scalar(x: Array) -> Number:
    """The one element of a tensor as a number."""
    return item_of(x, "aten::_local_scalar_dense")


@prim("aten::is_nonzero(Tensor self) -> bool")
def is_nonzero(x: Array) -> bool:
    """Whether the one element of a tensor differs from zero."""
    return truth_of(x, "aten::is_nonzero")


@prim("aten::_assert_async(Tensor self) -> ()", effects=True)
def assert_async(x: Array) -> None:
    """Nothing. Raises OpError when the one element of the tensor is zero."""
    if not truth_of(x, "aten::_assert_async"):
        raise OpError("aten::_assert_async: Expected Tensor with single nonzero value, but got zero")


@prim("aten::_assert_async.msg(Tensor self, str assert_msg) -> ()", effects=True)
def assert_async_msg(x: Array, message: str) -> None:
    """Nothing. Raises OpError with the message when the one element of the tensor is zero."""
    if not truth_of(x, "aten::_assert_async"):
        raise OpError(message)


def _check_implicit(x: Array, op: str) -> None:
    if x.ndim:
        raise ShapeError(
            f"{op}: Cannot input a tensor of dimension other than 0 as a scalar argument; its shape is {tuple(x.shape)}"
        )


@prim("aten::IntImplicit(Tensor a) -> int")
def int_implicit(x: Array) -> int:
    """The element of a 0-dim integer tensor."""
    _check_implicit(x, "aten::IntImplicit")
    if x.dtype.kind not in "iu":
        raise DTypeError(
            f"aten::IntImplicit: Cannot input a tensor of type {IR_NAMES[code_of(x.dtype)]} as an integral argument; "
            "call int() on it"
        )
    return int(x.item())


@prim("aten::FloatImplicit(Tensor a) -> float")
def float_implicit(x: Array) -> float:
    """The element of a 0-dim tensor as a float."""
    _check_implicit(x, "aten::FloatImplicit")
    return float_of(x, "aten::FloatImplicit")


@prim("aten::ComplexImplicit(Tensor a) -> complex")
def complex_implicit(x: Array) -> complex:
    """The element of a 0-dim tensor as a complex number."""
    _check_implicit(x, "aten::ComplexImplicit")
    return complex(item_of(x, "aten::ComplexImplicit"))


@prim("aten::ScalarImplicit(Tensor a) -> Scalar")
def scalar_implicit(x: Array) -> Number:
    """The element of a 0-dim tensor as a number."""
    _check_implicit(x, "aten::ScalarImplicit")
    return item_of(x, "aten::ScalarImplicit")


# --------------------------------------------------------------------------------------------------------- to bool


@prim("aten::Bool.Tensor(Tensor a) -> bool")
def bool_tensor(x: Array) -> bool:
    """Whether the one element of a tensor differs from zero."""
    return truth_of(x, "aten::Bool")


prim("aten::Bool.int(int a) -> bool")(bool)
prim("aten::Bool.float(float a) -> bool")(bool)


# ---------------------------------------------------------------------------------------------------------- to int


@prim("aten::Int.Tensor(Tensor a) -> int")
def int_tensor(x: Array) -> int:
    """The one element of a tensor, cut to an integer."""
    if x.size == 1 and type(value := x.item()) is int:
        return value
    return int_of(x, "aten::Int")


prim("aten::Int.bool(bool a) -> int")(int)
prim("aten::Int.float(float a) -> int")(to_int)


@prim("aten::Int.Scalar(Scalar a) -> int")
def int_scalar(a: Number) -> int:
    """The number, cut to an integer. Raises DTypeError for a float beyond 32 bits, as PyTorch does."""
    if isinstance(a, int):
        return int(a)
    value = _real(a, "aten::Int", "int")
    if not -(2**31) <= value < 2**31:
        raise DTypeError(f"aten::Int: value cannot be converted to type int without overflow; found {value}")
    return int(value)


# What strtoll and strtod read, leading blanks included.
_INT_TEXT = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")
_FLOAT_TEXT = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)(?:(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(inf(?:inity)?)|(nan(?:\(\w*\))?))",
    re.IGNORECASE | re.ASCII,
)


@prim("aten::Int.str(str a) -> int")
def int_str(a: str) -> int:
    """The integer a text spells in base 10; leading blanks are skipped. Raises OpError for other text."""
    m = _INT_TEXT.match(a)
    if m is None:
        raise OpError(f"aten::Int: stoll: {a!r} does not begin with an integer")
    value = int(m.group(1)) if len(m.group(1)) < 4000 else 2**63
    if not -(2**63) <= value < 2**63:
        raise OpError(f"aten::Int: stoll: {a[:40]!r} does not fit in 64 bits")
    if m.end() != len(a):
        raise OpError(f"aten::Int: invalid literal for int() with base 10: '{a}'")
    return value


# -------------------------------------------------------------------------------------------------------- to float


@prim("aten::Float.Tensor(Tensor a) -> float")
def float_tensor(x: Array) -> float:
    """The one element of a tensor as a float."""
    return float_of(x, "aten::Float")


@prim("aten::Float.Scalar(Scalar a) -> float")
def float_scalar(a: Number) -> float:
    """The number as a float; of a complex one its real part."""
    return a.real if type(a) is complex else float(a)


@prim("aten::Float.int(int a) -> float")
def float_int(a: int) -> float:
    """The integer as a float, rounded to 32 bits as PyTorch does."""
    return float(a) if -16777216 <= a <= 16777216 else float(np.float32(a))


prim("aten::Float.bool(bool a) -> float")(float)


@prim("aten::Float.str(str a) -> float")
def float_str(a: str) -> float:
    """The float a text spells, decimal or hexadecimal; leading blanks are skipped. Raises OpError for other text."""
    m = _FLOAT_TEXT.match(a)
    if m is None:
        raise OpError(f"aten::Float: stod: {a!r} does not begin with a number")
    sign, hexadecimal, decimal, infinite, _ = m.groups()
    if decimal:
        value = float(decimal)
        lost = math.isinf(value) or (value == 0 and any(c in "123456789" for c in re.split("[eE]", decimal)[0]))
    elif hexadecimal:
        try:
            value, lost = float.fromhex(hexadecimal), False
        except OverflowError:
            value, lost = math.inf, True
    else:
        value, lost = math.inf if infinite else math.nan, False
    if lost:
        raise OpError(f"aten::Float: stod: {a[:40]!r} lies outside what a float can hold")
    if m.end() != len(a):
        raise OpError(f"aten::Float: could not convert string to float: '{a}'")
    return -value if sign == "-" else value


# ------------------------------------------------------------------------------------------------------ to complex


@prim("aten::Complex.Scalar(Scalar a) -> complex")
def complex_scalar(a: Number) -> complex:
    """The number as a complex one."""
    return complex(a)


def _part(a: Any) -> float:
    if isinstance(a, float):
        return a
    if isinstance(a, int):
        # PyTorch reads ints through a 32-bit variable here.
        return float(((a + 2**31) & (2**32 - 1)) - 2**31)
    return float_of(a, "aten::Complex")


def complex_parts(x: Any, y: Any) -> complex:
    """The complex number of a real and an imaginary part, each a number or a one-element tensor."""
    return complex(_part(x), _part(y))


prim("aten::Complex.Tensor_Tensor(Tensor a, Tensor b) -> complex")(complex_parts)
for _x, _y in (
    ("int", "bool"), ("bool", "int"), ("float", "bool"), ("bool", "float"), ("float", "int"), ("int", "float"),
    ("int", "int"), ("bool", "bool"), ("float", "float"), ("Tensor", "float"), ("float", "Tensor"),
    ("Tensor", "int"), ("int", "Tensor"), ("Tensor", "bool"), ("bool", "Tensor"),
):  # fmt: skip
    prim(f"aten::Complex.{_x}_{_y}({_x} x, {_y} y) -> complex")(complex_parts)


# ------------------------------------------------------------------------------------------------- number to tensor


@library("prim::NumToTensor.Scalar(Scalar a) -> Tensor", half="native", type_rule=number_tensor_type)
def number_to_tensor(xp: Any, a: Number) -> Array:
    """A 0-dim tensor of the number: int64, float64, complex128 or bool."""
    return xp.array(a)


@library("prim::NumToTensor.bool(bool a) -> Tensor", half="native")
def bool_to_tensor(xp: Any, a: bool) -> Array:
    """A 0-dim bool tensor."""
    return xp.array(a)


@library("aten::_list_to_tensor(int[] self) -> Tensor", half="native")
def list_to_tensor(xp: Any, values: list[int]) -> Array:
    """A 1-d int32 tensor of the numbers, wrapped."""
    return xp.asarray(values, dtype="int64").astype("int32")


@prim("aten::_tensor_to_list(Tensor self) -> int[]")
def tensor_to_list(x: Array) -> list[int]:
    """The elements of a 1-d int32 tensor."""
    if x.ndim != 1 or str(x.dtype) != "int32":
        raise DTypeError(
            f"aten::_tensor_to_list: expected a 1-d tensor of scalar type Int, found shape {tuple(x.shape)} and dtype "
            f"{x.dtype}"
        )
    return x.tolist()  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------- to string


@prim("aten::chr(int i) -> str")
def chr_(i: int) -> str:
    """The string of the one byte ``i`` modulo 256. Raises OpError outside the range of Unicode."""
    if not 0 <= i < 1114111:
        raise OpError(f"aten::chr: chr() arg not in range(0x110000), found {i}")
    i &= 255
    return chr(i) if i < 128 else bytes((i,)).decode("utf-8", "surrogateescape")


@prim("aten::ord(str string) -> int")
def ord_(text: str) -> int:
    """The value of the one byte of a string. Raises OpError when it has more or fewer bytes."""
    data = text if text.isascii() else as_bytes(text)
    if len(data) != 1:
        raise OpError(f"aten::ord: String for ord() must be 1 character, found {len(data)}")
    return ord(data)


prim("aten::hex(int i) -> str")(hex)
prim("aten::oct(int i) -> str")(oct)
prim("aten::bin(int i) -> str")(bin)


# ------------------------------------------------------------------------------------------------------------ hash

_MASK = 2**64 - 1
_MULTIPLIER = 0xC6A4A7935BD1E995


def hash_bytes(data: bytes, seed: int = 0xC70F6907) -> int:
    """64-bit MurmurHash2, which libstdc++ hashes strings and floats with. Source: A. Appleby, MurmurHash64A."""
    n = len(data)
    h = seed ^ (n * _MULTIPLIER & _MASK)
    whole = n & ~7
    for i in range(0, whole, 8):
        k = int.from_bytes(data[i : i + 8], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 47) * _MULTIPLIER & _MASK
        h = (h ^ k) * _MULTIPLIER & _MASK
    if n & 7:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 47) * _MULTIPLIER & _MASK
    return h ^ h >> 47


@prim("aten::hash.generic(t value) -> int")
def hash_(value: Any) -> int:
    """PyTorch's hash of a value: the same in every process. Raises OpError for lists, dicts and complex numbers."""
    h = _hash(value)
    return h - 2**64 if h >= 2**63 else h


def _hash(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & _MASK
    if isinstance(value, float):
        return hash_bytes(np.float64(value).tobytes()) if value else 0
    if isinstance(value, str):
        return hash_bytes(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, tuple):
        h = 0
        for v in value:
            h ^= (_hash(v) + 0x9E3779B9 + (h << 6) + (h >> 2)) & _MASK
        return h
    if isinstance(value, (list, dict, complex)):
        raise OpError(f"aten::hash: unhashable type: '{type(value).__name__}'")
    # Tensors and objects hash by identity.
    return hash(value) & _MASK if type(value).__hash__ is not None else id(value)
