"""Arithmetic, unary functions, comparisons, bits and masks: values, promotion, in-place forms, refusals."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.elementwise.compare
import gpujit.ops.families.elementwise.pointwise
import gpujit.ops.families.elementwise.unary  # noqa: F401  # declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run, to_torch

BF16 = ml_dtypes.bfloat16
NAN, INF = math.nan, math.inf
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool", "float16", "bfloat16", "complex64")


def f32(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def of(dtype: str, values: Any = (0, 1, 2, 3, 5, 1)) -> np.ndarray:
    """Values of a dtype as a 2 x 3 array; signed kinds alternate in sign."""
    x = np.array(values)
    if dtype not in ("uint8", "bool"):
        x = x * np.array([1, -1] * 3)
    if dtype == "complex64":
        x = x + 1j * np.arange(len(x))
    return x.astype(BF16 if dtype == "bfloat16" else dtype).reshape(2, 3)


# ------------------------------------------------------------------------------------------- values by hand

I64 = np.array([7, -7, 0])
U8 = np.array([250, 3], dtype=np.uint8)
B = np.array([True, False, True])
C = np.array([3 + 4j, 0j], dtype=np.complex64)
MASK = np.array([True, False, True])

VALUES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::add.Tensor", (f32(1, 2), f32(3, 5)), f32(4, 7)),
    ("aten::add.Tensor", (f32(1, 2), f32(3, 5), 2), f32(7, 12)),
    ("aten::add.Scalar", (U8, 10), np.array([4, 13], np.uint8)),
    ("aten::add.Scalar", (U8, 300), np.array([38, 47], np.uint8)),
    ("aten::add.Tensor", (B, np.array([True, True, False])), np.array([True, True, True])),
    ("aten::add.Scalar", (I64, 1.5), f32(8.5, -5.5, 1.5)),
    ("aten::sub.Tensor", (I64, np.array([1, 1, 1]), 3), np.array([4, -10, -3])),
    ("aten::sub.Scalar", (U8, 251), np.array([255, 8], np.uint8)),
    ("aten::subtract.Tensor", (f32(1), f32(3)), f32(-2)),
    ("aten::rsub.Scalar", (f32(1, 2), 10, 3), f32(7, 4)),
    ("aten::rsub.Tensor", (f32(1, 2), f32(10, 10)), f32(9, 8)),
    ("aten::mul.Scalar", (f32(1, -2), 2.5), f32(2.5, -5)),
    ("aten::multiply.Tensor", (I64, I64), np.array([49, 49, 0])),
    ("aten::div.Tensor", (I64, np.array([2, 2, 2])), f32(3.5, -3.5, 0)),
    ("aten::div.Scalar", (f32(1, -1, 0), 0.0), f32(INF, -INF, NAN)),
    ("aten::div.Tensor_mode", (I64, np.array([2, 2, 2]), "trunc"), np.array([3, -3, 0])),
    ("aten::div.Tensor_mode", (I64, np.array([2, 2, 2]), "floor"), np.array([3, -4, 0])),
    ("aten::div.Scalar_mode", (I64, 2, None), f32(3.5, -3.5, 0)),
    ("aten::div.Scalar_mode", (f32(7, -7), 2.0, "trunc"), f32(3, -3)),
    ("aten::divide.Tensor", (f32(1), f32(4)), f32(0.25)),
    ("aten::true_divide.Scalar", (I64, 7), f32(1, -1, 0)),
    ("aten::floor_divide", (f32(7, -7, 7, -0.5), f32(2, 2, INF, INF)), f32(3, -4, 0, -1)),
    ("aten::floor_divide.Scalar", (I64, -2), np.array([-4, 3, 0])),
    ("aten::remainder.Scalar", (I64, 4), np.array([3, 1, 0])),
    ("aten::remainder.Tensor", (f32(-7, 7, -4), f32(4, -4, 2)), f32(1, -1, -0.0)),
    ("aten::remainder.Scalar_Tensor", (7, np.array([4, -4])), np.array([3, -1])),
    ("aten::fmod.Scalar", (I64, 4), np.array([3, -3, 0])),
    ("aten::pow.Tensor_Scalar", (f32(-3, 4), 2), f32(9, 16)),
    ("aten::pow.Tensor_Scalar", (f32(9, -INF, -0.0), 0.5), f32(3, NAN, -0.0)),
    ("aten::pow.Tensor_Scalar", (f32(2, -4), 3), f32(8, -64)),
    ("aten::pow.Tensor_Scalar", (f32(2, -4), -1), f32(0.5, -0.25)),
    ("aten::pow.Tensor_Scalar", (f32(2, -4), -2), f32(0.25, 0.0625)),
    (
        "aten::pow.Tensor_Scalar",
        (
            f32(
                4,
            ),
            -0.5,
        ),
        f32(0.5),
    ),
    ("aten::pow.Tensor_Scalar", (np.array([3], np.int8), 5), np.array([243 - 256], np.int8)),
    (
        "aten::pow.Tensor_Tensor",
        (np.array([2, 1, -1, -1, 0]), np.array([-1, -1, -1, -2, 3])),
        np.array([0, 1, -1, 1, 0]),
    ),
    ("aten::pow.Scalar", (2, np.array([-1, 3])), np.array([0, 8])),
    ("aten::pow.Scalar", (2.0, np.array([3, -1])), f32(8, 0.5)),
    ("aten::float_power.Tensor_Scalar", (U8, -1), np.array([1 / 250, 1 / 3])),
    ("aten::float_power.Tensor_Tensor", (I64, np.array([2, 2, 2])), np.array([49.0, 49.0, 0.0])),
    ("aten::addcmul", (f32(1, 2), f32(3, 3), f32(2, 4), 0.5), f32(4, 8)),
    ("aten::addcdiv", (f32(1, 2), f32(3, 3), f32(2, 4), 2), f32(4, 3.5)),
    ("aten::lerp.Scalar", (f32(0, 10), f32(10, 20), 0.25), f32(2.5, 12.5)),
    ("aten::lerp.Tensor", (f32(0, 10), f32(10, 20), f32(1, 0)), f32(10, 10)),
    ("aten::atan2", (f32(1, -1, 0), f32(0, 0, -1)), f32(math.pi / 2, -math.pi / 2, math.pi)),
    ("aten::arctan2", (f32(0), f32(1)), f32(0)),
    ("aten::hypot", (f32(3, 3e38), f32(4, 0)), f32(5, 3e38)),
    ("aten::nextafter", (np.array([1], np.float16), np.array([2], np.float16)), np.array([1 + 2**-10], np.float16)),
    ("aten::copysign.Scalar", (I64, -1), f32(-7, -7, -0.0)),
    ("aten::copysign.Tensor", (f32(1, 1), f32(-0.0, 2)), f32(-1, 1)),
    ("aten::logaddexp", (f32(1000, -INF), f32(1000, -INF)), f32(1000 + math.log(2), -INF)),
    ("aten::logaddexp2", (f32(3), f32(3)), f32(4)),
    ("aten::gcd", (np.array([-12, 0]), np.array([18, 5])), np.array([6, 5])),
    ("aten::lcm", (np.array([-4, 0]), np.array([6, 5])), np.array([12, 0])),
    ("aten::ldexp.Tensor", (f32(3), np.array([2])), f32(12)),
    ("aten::complex", (f32(1, NAN), f32(INF, 2)), np.array([complex(1, INF), complex(NAN, 2)], np.complex64)),
    ("aten::polar", (f32(2), f32(math.pi / 2)), np.array([2j], np.complex64)),
    ("aten::_add_relu.Tensor", (f32(1, -3), f32(1, 1), 2), f32(3, 0)),
    # One operand.
    ("aten::sigmoid", (f32(0, 1000, -1000, NAN),), f32(0.5, 1, 0, NAN)),
    ("aten::sigmoid", (I64 * 0,), f32(0.5, 0.5, 0.5)),
    ("aten::logit", (f32(0.5, 1, 2),), f32(0, INF, NAN)),
    ("aten::logit", (f32(0.0), 0.25), f32(math.log(1 / 3))),
    ("aten::rsqrt", (f32(4, 0, -1),), f32(0.5, INF, NAN)),
    ("aten::reciprocal", (np.array([2, 4]),), f32(0.5, 0.25)),
    ("aten::square", (B,), np.array([1, 0, 1])),
    ("aten::sinc", (f32(0, 1, 0.5),), f32(1, 0, 2 / math.pi)),
    ("aten::deg2rad", (np.array([180, 90]),), f32(math.pi, math.pi / 2)),
    ("aten::rad2deg", (f32(math.pi),), f32(180)),
    ("aten::round", (f32(0.5, 1.5, -2.5, 2.6),), f32(0, 2, -2, 3)),
    ("aten::round.decimals", (f32(1.25, -0.125), 1), f32(1.2, -0.1)),
    ("aten::round.decimals", (f32(1250, 1349), -2), f32(1200, 1300)),
    ("aten::special_round", (f32(2.5), 0), f32(2)),
    ("aten::floor", (f32(-1.5, 1.5),), f32(-2, 1)),
    ("aten::ceil", (I64,), I64),
    ("aten::trunc", (f32(-1.5, 1.5),), f32(-1, 1)),
    ("aten::fix", (f32(-1.5),), f32(-1)),
    ("aten::frac", (f32(-1.25, 3.5),), f32(-0.25, 0.5)),
    ("aten::neg", (U8,), np.array([6, 253], np.uint8)),
    ("aten::abs", (C,), f32(5, 0)),
    ("aten::absolute", (I64,), np.array([7, 7, 0])),
    ("aten::sign", (f32(NAN, -0.0, -3, 2),), f32(0, 0, -1, 1)),
    ("aten::sign", (B,), B),
    ("aten::sgn", (C,), np.array([0.6 + 0.8j, 0], np.complex64)),
    ("aten::signbit", (f32(-0.0, 0.0, -1),), np.array([True, False, True])),
    ("aten::signbit", (I64,), np.array([False, True, False])),
    ("aten::angle", (f32(1, -1, NAN),), f32(0, math.pi, NAN)),
    ("aten::angle", (np.array([1j, -1], np.complex64),), f32(math.pi / 2, math.pi)),
    ("aten::angle", (I64,), f32(0, math.pi, 0)),
    ("aten::conj_physical", (C,), np.array([3 - 4j, 0], np.complex64)),
    ("aten::_conj_physical", (C,), np.array([3 - 4j, 0], np.complex64)),
    ("aten::isreal", (C,), np.array([False, True])),
    ("aten::nan_to_num", (f32(NAN, INF, -INF, 1), 2.0, None, -5.0), f32(2, np.finfo(np.float32).max, -5, 1)),
    ("aten::nan_to_num", (np.array([INF, NAN], np.float16),), np.array([65504, 0], np.float16)),
    ("aten::nan_to_num", (I64,), I64),
    ("aten::nan_to_num", (np.array([complex(NAN, 2)]),), np.array([2j])),
    ("aten::frexp.Tensor", (f32(6, -0.5, 0),), (f32(0.75, -0.5, 0), np.array([3, 0, 0], np.int32))),
    ("static_runtime::signed_log1p", (f32(-1, 0),), f32(-math.log(2), 0)),
    # Comparisons and tests.
    ("aten::eq.Tensor", (f32(1, NAN), f32(1, NAN)), np.array([True, False])),
    ("aten::ne.Scalar", (f32(1, NAN), 1), np.array([False, True])),
    ("aten::gt.Scalar", (I64, 6.5), np.array([True, False, False])),
    ("aten::eq.Scalar", (np.array([44], np.uint8), 300), np.array([True])),
    ("aten::less_equal.Tensor", (np.array([1]), f32(1.5)), np.array([True])),
    ("aten::isnan", (f32(NAN, INF, 1),), np.array([True, False, False])),
    ("aten::isinf", (f32(NAN, -INF, 1),), np.array([False, True, False])),
    ("aten::isfinite", (I64,), np.array([True, True, True])),
    ("aten::isposinf", (f32(INF, -INF),), np.array([True, False])),
    ("aten::isneginf", (f32(INF, -INF),), np.array([False, True])),
    ("aten::isclose", (f32(1, INF, NAN, 1), f32(1.000001, INF, NAN, 2)), np.array([True, True, False, False])),
    ("aten::isclose", (f32(NAN, 1), f32(NAN, 1), 0.0, 0.0, True), np.array([True, True])),
    ("aten::isclose", (I64, I64 + 1, 0.5, 0.0), np.array([True, True, False])),
    ("aten::allclose", (f32(1, 2), f32(1, 2)), True),
    ("aten::allclose", (f32(1, 2), f32(1, 3)), False),
    ("aten::equal", (f32(1, 2), np.array([1, 2])), True),
    ("aten::equal", (f32(1, 2), f32(1, 2, 2)), False),
    ("aten::equal", (f32(NAN), f32(NAN)), False),
    # Logic and bits.
    ("aten::logical_and", (f32(2, 0, NAN), f32(1, 1, 1)), np.array([True, False, True])),
    ("aten::logical_or", (I64, np.array([0, 0, 0])), np.array([True, True, False])),
    ("aten::logical_xor", (B, f32(1, 1, 0)), np.array([False, True, True])),
    ("aten::logical_not", (C,), np.array([False, True])),
    ("aten::bitwise_and.Tensor", (np.array([6, 12]), np.array([3, 10])), np.array([2, 8])),
    ("aten::bitwise_or.Scalar", (np.array([6]), 1), np.array([7])),
    ("aten::bitwise_xor.Scalar_Tensor", (5, np.array([6])), np.array([3])),
    ("aten::__and__.Tensor", (B, np.array([True, True, False])), np.array([True, False, False])),
    ("aten::__or__.Scalar", (np.array([4]), 3), np.array([7])),
    ("aten::__xor__.Tensor", (B, B), np.array([False, False, False])),
    ("aten::bitwise_not", (np.array([0, 5], np.uint8),), np.array([255, 250], np.uint8)),
    ("aten::bitwise_not", (B,), ~B),
    ("aten::bitwise_left_shift.Tensor", (np.array([1, 1, 1]), np.array([3, 64, -1])), np.array([8, 0, 0])),
    ("aten::bitwise_right_shift.Tensor_Scalar", (np.array([-8, 8]), 70), np.array([-1, 0])),
    ("aten::bitwise_left_shift.Scalar_Tensor", (3, np.array([1])), np.array([6])),
    ("aten::__lshift__.Scalar", (np.array([1]), 4), np.array([16])),
    ("aten::__rshift__.Tensor", (np.array([-16]), np.array([2])), np.array([-4])),
    # Extremes and masks.
    ("aten::maximum", (f32(1, NAN), f32(2, 1)), f32(2, NAN)),
    ("aten::minimum", (I64, np.array([0, 0, 0], np.int32)), np.array([0, -7, 0])),
    ("aten::max.other", (I64, np.array([1, 1, 1])), np.array([7, 1, 1])),
    ("aten::min.other", (B, ~B), np.array([False, False, False])),
    ("aten::fmax", (f32(1, NAN), f32(NAN, NAN)), f32(1, NAN)),
    ("aten::fmin", (f32(1, 5), f32(NAN, 3)), f32(1, 3)),
    ("aten::clamp", (f32(-2, 0.5, 9, NAN), -1, 1), f32(-1, 0.5, 1, NAN)),
    ("aten::clamp", (I64, None, 0.5), f32(0.5, -7, 0)),
    ("aten::clamp", (f32(1, 2), 5, 0), f32(0, 0)),
    ("aten::clamp.Tensor", (f32(-2, 3), f32(-1, -1), None), f32(-1, 3)),
    ("aten::clip", (I64, -1, 1), np.array([1, -1, 0])),
    ("aten::clamp_min", (f32(-1, NAN), 0), f32(0, NAN)),
    ("aten::clamp_max.Tensor", (f32(1, 5), f32(3, 3)), f32(1, 3)),
    ("aten::where.self", (MASK, f32(1, 2, 3), np.array([9.0, 9.0, 9.0])), np.array([1.0, 9.0, 3.0])),
    ("aten::where.ScalarOther", (MASK, f32(1, 2, 3), 0.5), f32(1, 0.5, 3)),
    ("aten::where.ScalarSelf", (MASK, 2.5, np.array([1, 2, 3])), f32(2.5, 2, 2.5)),
    ("aten::where.Scalar", (MASK, 1, 2.5), f32(1, 2.5, 1)),
    ("aten::where.Scalar", (MASK, 1, 2), np.array([1, 2, 1])),
    ("aten::masked_fill.Scalar", (f32(1, 2, 3), MASK, -INF), f32(-INF, 2, -INF)),
    ("aten::masked_fill.Scalar", (np.array([1, 2, 3]), MASK, 1.9), np.array([1, 2, 1])),
    ("aten::masked_fill.Scalar", (U8[:1], np.array([[True], [False]]), -1), np.array([[255], [250]], np.uint8)),
    ("aten::masked_fill.Tensor", (f32(1, 2, 3), MASK, np.array(7)), f32(7, 2, 7)),
    ("aten::heaviside", (f32(-1, 0, 2, NAN), f32(5, 5, 5, 5)), f32(0, 5, 1, 0)),
    ("static_runtime::clamp_nan_to_num", (f32(NAN, 9), 0, 1, 3.0, None, None), f32(3, 1)),
]


@pytest.mark.parametrize(("name", "args", "want"), VALUES, ids=[f"{i}-{v[0]}" for i, v in enumerate(VALUES)])
def test_value(name: str, args: tuple[Any, ...], want: Any) -> None:
    assert_same(run(name, *args), want)


FUNCTIONS = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2", "log10": "log10",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "sqrt": "sqrt",
    "arcsin": "arcsin", "arccos": "arccos", "arctan": "arctan", "arcsinh": "arcsinh", "arccosh": "arccosh",
    "arctanh": "arctanh",
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_in_double(name: str) -> None:
    """Of float64 the array module's function, of integers the same in float32, in-place into the tensor itself."""
    x = np.array([[-0.5, 0.25, 0.75], [1.5, -2.0, 0.0]])
    with np.errstate(all="ignore"):
        want = getattr(np, FUNCTIONS[name])(x)
        whole = getattr(np, FUNCTIONS[name])(np.float32([0, 1, 2]))
    assert_same(run(f"aten::{name}", x), want)
    assert_same(run(f"aten::{name}", np.array([0, 1, 2])), whole)
    y = x.copy()
    assert run(f"aten::{name}_", y) is y
    assert_same(y, want)


# --------------------------------------------------------------------------------------------- against PyTorch

BINARY = (
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "remainder.Tensor", "fmod.Tensor", "pow.Tensor_Tensor",
    "atan2", "eq.Tensor", "lt.Tensor", "maximum", "fmin", "logical_xor", "bitwise_and.Tensor", "copysign.Tensor",
    "bitwise_left_shift.Tensor", "float_power.Tensor_Tensor", "rsub.Tensor", "floor_divide", "isclose",
)  # fmt: skip
UNARY = (
    "neg", "abs", "sign", "sgn", "floor", "round", "sqrt", "exp", "log2", "sigmoid", "square", "reciprocal", "angle",
    "isnan", "isfinite", "logical_not", "bitwise_not", "sinc", "nan_to_num", "signbit", "frac", "atanh", "rad2deg",
)  # fmt: skip


def agree(name: str, *args: Any) -> None:
    """Both compute the same, or both refuse."""
    torch = pytest.importorskip("torch")
    base, _, overload = name.partition("::")[2].partition(".")
    try:
        getattr(getattr(torch.ops.aten, base), overload or "default")(*[to_torch(a) for a in args])
    except RuntimeError:
        with pytest.raises(OpError):
            run(name, *args)
    else:
        against_torch(name, *args)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_agrees(name: str, dtype: str) -> None:
    x = of(dtype)
    for y in (x, x.T, x[:, ::2], x[:0], x[0, 1:2].reshape(())):
        agree(f"aten::{name}", y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_agrees(name: str, dtype: str) -> None:
    # No zero divisors, no negative integer powers: those have tests of their own.
    x, y = of(dtype), np.abs(of(dtype, (1, 2, 1, 3, 2, 1)).astype(np.complex64 if dtype == "complex64" else "float64"))
    y = y.astype(x.dtype)
    for a, b in ((x, y), (x.T, y.T), (x, y[:1]), (x, y[0, :1].reshape(())), (x[:0], y[:1])):
        agree(f"aten::{name}", a, b)


PAIRS = [("int32", "float16"), ("uint8", "int8"), ("float16", "bfloat16"), ("int64", "complex64"), ("bool", "uint8"),
         ("float32", "float64"), ("complex64", "float64"), ("bool", "float32")]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_promotion_of_two_dtypes(a: str, b: str) -> None:
    for name in ("aten::add.Tensor", "aten::mul.Tensor", "aten::div.Tensor", "aten::eq.Tensor", "aten::where.self"):
        x, y = of(a), of(b, (1, 2, 1, 3, 2, 1))
        for left, right in ((x, y), (x, y[0, :1].reshape(())), (x[0, :1].reshape(()), y)):
            agree(name, *((np.asarray(left > 0), left, right) if "where" in name else (left, right)))


@pytest.mark.parametrize("number", [2, -3, 0.5, True, 2j, 300, -0.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_with_a_number(dtype: str, number: Any) -> None:
    if dtype == "float16" and isinstance(number, complex):
        pytest.skip("NumPy has no complex32: gpujit gives complex64")
    x = of(dtype, (1, 2, 1, 3, 2, 1))
    for name in ("add.Scalar", "mul.Scalar", "rsub.Scalar", "eq.Scalar", "div.Scalar"):
        agree(f"aten::{name}", x, number)
        agree(f"aten::{name}", x[0, :1].reshape(()), number)


@pytest.mark.parametrize("value", [NAN, INF, -INF, -0.0, 0.0, 3.5])
def test_special_values(value: float) -> None:
    x = f32(value, value, value, value, value, value)
    y = f32(NAN, INF, -INF, 0.0, -0.0, 2.0)
    for name in (
        "remainder.Tensor",
        "fmod.Tensor",
        "floor_divide",
        "maximum",
        "fmax",
        "pow.Tensor_Tensor",
        "lt.Tensor",
    ):
        against_torch(f"aten::{name}", x, y)
    for number in (2, 3, 0.5, -0.5, -1, -2, 0, 1.5):
        against_torch("aten::pow.Tensor_Scalar", x, number)
    for name in ("sign", "sgn", "sigmoid", "round", "trunc", "frac", "signbit", "sinc", "angle", "logit"):
        against_torch(f"aten::{name}", x)


INPLACE: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::add_.Tensor", (f32(1, 2), np.array([3, 4]), 2)),
    ("aten::mul_.Scalar", (U8.copy(), 3)),
    ("aten::div_.Tensor_mode", (np.array([7, -7]), np.array([2, 2]), "floor")),
    ("aten::pow_.Scalar", (f32(2, 3), 2)),
    ("aten::pow_.Tensor", (f32(2, 3), f32(2, 2))),
    ("aten::floor_divide_.Tensor", (f32(7, 3), f32(2, 2))),
    ("aten::eq_.Scalar", (f32(1, 2), 1)),
    ("aten::__iand__.Scalar", (np.array([6, 5]), 3)),
    ("aten::__ilshift__.Tensor", (np.array([6, 5]), np.array([1, 2]))),
    ("aten::logical_not_", (f32(0, 2),)),
    ("aten::clamp_", (f32(-4, 4), -1, 1)),
    ("aten::masked_fill_.Scalar", (f32(1, 2, 3), MASK, 0)),
    ("aten::masked_fill_.Tensor", (np.zeros((2, 3)), MASK, np.array(4))),
    ("aten::lerp_.Scalar", (f32(0, 1), f32(1, 2), 0.5)),
    ("aten::addcmul_", (f32(0, 1), f32(1, 2), f32(3, 4))),
    ("aten::ldexp_", (f32(1, 2), np.array([1, 2]))),
    ("aten::round_.decimals", (f32(1.26, 2.5), 1)),
    ("aten::float_power_.Scalar", (np.array([2.0, 3.0]), 2)),
    ("aten::neg_", (np.zeros((2, 3), np.float32).T + 1,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), INPLACE, ids=[n for n, _ in INPLACE])
def test_in_place(name: str, args: tuple[Any, ...]) -> None:
    against_torch(name, *args)
    target = args[0].copy()
    assert run(name, target, *args[1:]) is target


def test_in_place_writes_through_a_view() -> None:
    base = np.zeros((3, 4), np.float32)
    run("aten::add_.Scalar", base[1:, ::2], 5)
    assert base.sum() == 20 and base[1, 0] == 5 and base[1, 1] == 0


def test_out_forms_write_into_their_last_argument() -> None:
    out = np.zeros(2)
    assert run("aten::add.out", f32(1, 2), f32(3, 4), 2, out) is out
    np.testing.assert_array_equal(out, [7, 10])
    run("aten::div.out_mode", f32(7, -7), f32(2, 2), "floor", out)
    np.testing.assert_array_equal(out, [3, -4])
    mantissa, exponent = np.zeros(1, np.float32), np.zeros(1, np.int32)
    run("aten::frexp.Tensor_out", f32(6), mantissa, exponent)
    assert mantissa[0] == 0.75 and exponent[0] == 3


def test_results_of_0_dim_tensors_are_arrays() -> None:
    for name, args in (
        ("add.Tensor", 2),
        ("mul.Scalar", 2),
        ("sigmoid", 1),
        ("rsqrt", 1),
        ("where.self", 3),
        ("eq.Scalar", 2),
    ):
        one = np.array(1.0, np.float32)
        operands: list[Any] = [one] * args
        if "Scalar" in name:
            operands[1] = 2.5
        if "where" in name:
            operands[0] = one > 0
        got = run(f"aten::{name}", *operands)
        assert type(got) is np.ndarray and got.shape == ()


def test_layout_of_a_channels_last_tensor_is_kept() -> None:
    x = np.zeros((2, 5, 6, 3), np.float32).transpose(0, 3, 1, 2)
    for name, args in (("mul.Scalar", (x, 2.0)), ("add.Tensor", (x, x)), ("sigmoid", (x,)), ("clamp", (x, 0, 6))):
        assert run(f"aten::{name}", *args).strides == x.strides


REFUSALS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::sub.Tensor", (B, B), DTypeError, "logical_xor"),
    ("aten::sub.Scalar", (f32(1), True), DTypeError, "logical_xor"),
    ("aten::rsub.Scalar", (B, 1), DTypeError, "logical_xor"),
    ("aten::neg", (B,), DTypeError, "logical_not"),
    ("aten::add.Tensor", (I64, I64, 1.5), DTypeError, "integer alpha"),
    ("aten::add.Tensor", (f32(1), f32(1), True), DTypeError, "alpha is a bool"),
    ("aten::add.Tensor", (f32(1), f32(1), 1j), DTypeError, "complex"),
    ("aten::add.Tensor", (f32(1, 2), f32(1, 2, 3)), ShapeError, r"\(2,\) and \(3,\) do not broadcast"),
    ("aten::add_.Scalar", (np.array([1]), 1.5), DTypeError, "can't be cast"),
    ("aten::add_.Tensor", (f32(1), f32(1, 2)), ShapeError, r"shape \(2,\)"),
    ("aten::add_.Scalar", (np.broadcast_to(f32(1), (3,)), 1), ShapeError, "share memory"),
    ("aten::floor_divide.Scalar", (I64, 0), OpError, "ZeroDivisionError"),
    ("aten::remainder.Tensor", (I64, I64), OpError, "ZeroDivisionError"),
    ("aten::fmod.Scalar", (U8, 0), OpError, "ZeroDivisionError"),
    ("aten::div.Tensor_mode", (I64, I64, "trunc"), OpError, "ZeroDivisionError"),
    ("aten::div.Tensor_mode", (I64, I64, "up"), OpError, "'floor' or 'trunc'"),
    ("aten::pow.Tensor_Scalar", (I64, -1), OpError, "negative power"),
    ("aten::addcdiv", (I64, I64, I64), DTypeError, "integer division"),
    ("aten::lt.Tensor", (C, C), DTypeError, "order"),
    ("aten::maximum", (C, C), DTypeError, "order"),
    ("aten::floor", (B,), DTypeError, "bool tensors are not supported"),
    ("aten::frac", (I64,), DTypeError, "floating dtype"),
    ("aten::bitwise_or.Tensor", (f32(1), f32(1)), DTypeError, "bits"),
    ("aten::bitwise_left_shift.Tensor", (B, B), DTypeError, "integer dtype"),
    ("aten::gcd", (f32(1), f32(1)), DTypeError, "integer dtype"),
    ("aten::clamp", (f32(1), None, None), OpError, "at least one"),
    ("aten::where.self", (I64, I64, I64), DTypeError, "bool"),
    ("aten::masked_fill.Scalar", (f32(1), np.array([1]), 0), DTypeError, "bool masks"),
    ("aten::masked_fill.Scalar", (U8, np.array([True, False]), 300), OpError, "does not fit uint8"),
    ("aten::masked_fill.Scalar", (I64, MASK, INF), OpError, "does not fit int64"),
    ("aten::masked_fill.Scalar", (f32(1), np.array([True]), 1j), OpError, "complex"),
    ("aten::masked_fill.Tensor", (f32(1), np.array([True]), f32(1)), ShapeError, "0-dim"),
    ("aten::isclose", (f32(1), f32(1), -1.0), OpError, "negative"),
    ("aten::allclose", (f32(1), I64), DTypeError, "one dtype"),
    ("aten::frexp.Tensor", (I64,), DTypeError, "floating dtype"),
    ("aten::nextafter", (I64, I64), DTypeError, "floating dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "error", "match"), REFUSALS, ids=[f"{r[0]}-{r[3]}" for r in REFUSALS])
def test_refusal(name: str, args: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        run(name, *args)


def test_a_refusal_writes_nothing() -> None:
    x = np.array([1, 2])
    with pytest.raises(DTypeError):
        run("aten::add_.Scalar", x, 0.5)
    np.testing.assert_array_equal(x, [1, 2])
