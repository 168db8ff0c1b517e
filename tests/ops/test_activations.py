"""Activation functions and their gradients: values by hand, formulas, agreement, blocks, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.elementwise.activations
import gpujit.ops.families.elementwise.activations_backward  # noqa: F401  # declares the entries
from gpujit.ops.numeric import BLOCK
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

NAN, INF = math.nan, math.inf
BF16 = ml_dtypes.bfloat16


def f32(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.float32)


VALUES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::relu", (f32(-1, 2, NAN),), f32(0, 2, NAN)),
    ("aten::relu", (np.array([-3, 3]),), np.array([0, 3])),
    ("aten::relu6", (f32(-1, 2, 9),), f32(0, 2, 6)),
    ("aten::hardtanh", (f32(-3, 0.5, 3), -2, 1), f32(-2, 0.5, 1)),
    ("aten::hardtanh", (np.array([-3, 3]),), np.array([-1, 1])),
    ("aten::leaky_relu", (f32(-2, 2, INF, -INF), 0.5), f32(-1, 2, INF, -INF)),
    ("aten::leaky_relu", (f32(-2, INF), 0.0), f32(0, INF)),
    ("aten::leaky_relu", (f32(-2, 2), 3.0), f32(-6, 2)),
    ("aten::threshold", (f32(0.1, 0.6, NAN), 0.5, 9.0), f32(9, 0.6, NAN)),
    ("aten::threshold", (np.array([1, 2]), 1.5, 7.5), np.array([7, 2])),
    ("aten::hardshrink", (f32(-1, 0.5, 2, NAN),), f32(-1, 0, 2, NAN)),
    ("aten::softshrink", (f32(-1, 0.25, 2), 0.5), f32(-0.5, 0, 1.5)),
    ("aten::hardsigmoid", (f32(-4, 0, 1.5, 4),), f32(0, 0.5, 0.75, 1)),
    ("aten::hardswish", (f32(-4, 0, 1.5, 4),), f32(0, 0, 1.125, 4)),
    ("aten::prelu", (f32(-2, 2), f32(0.25)), f32(-0.5, 2)),
    ("aten::prelu", (np.float32([[-1, -1], [1, -2]]), f32(0.5, 2)), np.float32([[-0.5, -2], [1, -4]])),
    ("aten::_prelu_kernel", (f32(-1, -1), f32(0.5, 2)), f32(-0.5, -2)),
    ("aten::rrelu", (f32(-4, 4), 0.25, 0.75, False, None), f32(-2, 4)),
    ("aten::elu", (f32(0, 2, -INF), 2, 3, 1), f32(0, 6, -6)),
    ("aten::celu", (f32(3, -INF), 2.0), f32(3, -2)),
    ("aten::selu", (f32(1, -INF),), f32(1.0507009873554805, -1.7580993408473766)),
    ("aten::softplus", (f32(0, 100, -INF),), f32(math.log(2), 100, 0)),
    ("aten::softplus", (f32(0), 2, 20), f32(math.log(2) / 2)),
    ("aten::log_sigmoid", (f32(0, -1000, 1000),), f32(-math.log(2), -1000, 0)),
    ("aten::log_sigmoid_forward", (f32(0),), (f32(-math.log(2)), f32(1))),
    ("aten::silu", (f32(0, 1, 1000),), f32(0, 1 / (1 + math.exp(-1)), 1000)),
    ("aten::mish", (f32(0, 1000),), f32(0, 1000)),
    ("aten::gelu", (f32(0, 1, -1, 100),), f32(0, 0.8413447460685429, -0.15865525393145707, 100)),
    ("aten::gelu", (f32(0, 1, 100), "tanh"), f32(0, 0.8411919906082768, 100)),
    ("aten::glu", (f32(2, 4, 0, 1000),), f32(1, 4)),
    ("aten::glu", (np.float32([[2, 4], [0, 0]]), 0), np.float32([[1, 2]])),
]


@pytest.mark.parametrize(("name", "args", "want"), VALUES, ids=[f"{i}-{v[0]}" for i, v in enumerate(VALUES)])
def test_value(name: str, args: tuple[Any, ...], want: Any) -> None:
    assert_same(run(name, *args), want)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# What each function is in float64, for its gradient by differences.
FORMULAS: dict[str, tuple[tuple[Any, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "leaky_relu": ((0.1,), lambda x: np.where(x > 0, x, 0.1 * x)),
    "hardswish": ((), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardsigmoid": ((), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "silu": ((), lambda x: x * _sigmoid(x)),
    "mish": ((), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "gelu": (("none",), lambda x: x * np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)))(x)),
    "softplus": ((2, 20), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "elu": ((1.5, 1, 1), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "hardtanh": ((-1, 1), lambda x: np.clip(x, -1, 1)),
    "softshrink": ((0.5,), lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hardshrink": ((0.5,), lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "sigmoid": ((), _sigmoid),
    "tanh": ((), np.tanh),
}
POINTS = np.array([[-3.7, -2.1, -0.9, -0.3], [0.2, 0.8, 1.6, 3.4]])


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name: str) -> None:
    args, formula = FORMULAS[name]
    np.testing.assert_allclose(run(f"aten::{name}", POINTS, *args), formula(POINTS), rtol=1e-13, atol=1e-15)
    y = POINTS.copy()
    if name not in ("softplus", "softshrink", "hardshrink"):
        assert run(f"aten::{name}_", y, *args) is y
        np.testing.assert_allclose(y, formula(POINTS), rtol=1e-13, atol=1e-15)
    out = np.empty(POINTS.shape)
    assert run(f"aten::{name}.out", POINTS, *args, out) is out
    np.testing.assert_allclose(out, formula(POINTS), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradient_is_the_slope(name: str) -> None:
    args, formula = FORMULAS[name]
    step = 1e-6
    slope = 2 * (formula(POINTS + step) - formula(POINTS - step)) / (2 * step)
    grad = np.full(POINTS.shape, 2.0)
    if name in ("sigmoid", "tanh"):
        inputs: tuple[Any, ...] = (grad, formula(POINTS))
    elif name == "elu":
        inputs = (grad, *args, False, POINTS)
    elif name == "leaky_relu":
        inputs = (grad, POINTS, *args, False)
    else:
        inputs = (grad, POINTS, *args)
    np.testing.assert_allclose(run(f"aten::{name}_backward", *inputs), slope, rtol=1e-6, atol=1e-8)


NAMES: list[tuple[str, tuple[Any, ...]]] = [
    ("relu", ()), ("relu6", ()), ("leaky_relu", (0.2,)), ("elu", ()), ("elu", (2, 1.5, 0.5)), ("celu", (1.5,)),
    ("selu", ()),
    ("gelu", ("none",)), ("gelu", ("tanh",)), ("silu", ()), ("mish", ()), ("hardswish", ()), ("hardsigmoid", ()),
    ("hardtanh", ()), ("hardshrink", ()), ("softshrink", ()), ("softplus", ()), ("softplus", (0.5, 3)),
    ("log_sigmoid", ()),
    ("threshold", (0.5, 3)), ("sigmoid", ()), ("tanh", ()),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "args"), NAMES, ids=[n for n, _ in NAMES])
def test_agrees(name: str, args: tuple[Any, ...], dtype: str) -> None:
    x = np.array([[-7, -2.5, -0.6, -0.5, -0.0], [0.3, 0.5, 1.25, 3, 30]]).astype(BF16 if dtype == "bfloat16" else dtype)
    for y in (x, x.T, x[:, ::2], x[:0], x[0, :1].reshape(())):
        against_torch(f"aten::{name}", y, *args)


@pytest.mark.parametrize(("name", "args"), NAMES, ids=[n for n, _ in NAMES])
def test_agrees_at_the_edges(name: str, args: tuple[Any, ...]) -> None:
    against_torch(f"aten::{name}", np.array([NAN, INF, 1e30, -1e30, 1e-30]), *args)


@pytest.mark.parametrize("name", ["relu", "hardtanh", "threshold", "relu6"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
def test_integers_agree(name: str, dtype: str) -> None:
    against_torch(f"aten::{name}", np.array([[-9, 0, 1], [5, 6, 7]], dtype), *((2, 3) if name == "threshold" else ()))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_agrees(dtype: str) -> None:
    x = np.array([1 + 2j, -0.5 - 1j, 0], dtype)
    for name in ("silu", "sigmoid", "tanh"):
        against_torch(f"aten::{name}", x)
    against_torch("aten::sigmoid_backward", x, x * 2)
    against_torch("aten::tanh_backward", x, x * 2)


GRADIENTS: list[tuple[str, tuple[Any, ...]]] = [
    ("gelu_backward", ("tanh",)), ("threshold_backward", (0.5,)),
    ("log_sigmoid_backward", (np.float32([[0.1, 0.5, 0.9]]),)),
    ("logit_backward", (0.25,)), ("logit_backward", (None,)), ("leaky_relu_backward", (0.2, True)),
    ("glu_backward", (1,)),
    ("rrelu_with_noise_backward", (np.float32([[0.2, 0.2, 1]]), 0.1, 0.5, True, False)),
    ("rrelu_with_noise_backward", (np.float32([[0.2, 0.2, 1]]), 0.1, 0.5, False, False)), ("hardswish_backward", ()),
    ("_prelu_kernel_backward", (np.float32([[0.25]]),)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), GRADIENTS, ids=[n for n, _ in GRADIENTS])
def test_gradient_agrees(name: str, args: tuple[Any, ...]) -> None:
    x = np.float32([[-4, 0.3, 0.5], [0.9, 4, 0.25]])
    wide = np.concatenate((x, x + 1), axis=1) if name == "glu_backward" else x
    against_torch(f"aten::{name}", x * 2 + 1, wide, *args)


def test_elu_gradient_from_the_result() -> None:
    x = np.array([-1.0, 2.0])
    y = run("aten::elu", x, 2, 1, 1)
    got = run("aten::elu_backward", np.ones(2), 2, 1, 1, True, y)
    np.testing.assert_allclose(got, [2 * math.exp(-1), 1])


def test_gradients_write_into_grad_input() -> None:
    out = np.empty(2)
    assert run("aten::sigmoid_backward.grad_input", np.ones(2), np.array([0.5, 1]), out) is out
    np.testing.assert_array_equal(out, [0.25, 0])


@pytest.mark.parametrize("name", ["sigmoid", "silu", "gelu", "mish", "hardswish", "hardsigmoid", "erf"])
def test_blocks_change_nothing(name: str) -> None:
    """A large array gives what its rows give, in any layout, and keeps that layout."""
    x = np.random.default_rng(0).normal(size=(5, 7, BLOCK // 16)).astype(np.float32)
    assert x.size > 2 * BLOCK
    args = ("none",) if name == "gelu" else ()
    want = np.stack([run(f"aten::{name}", row, *args) for row in x])
    for y, w in ((x, want), (x.transpose(2, 0, 1), want.transpose(2, 0, 1)), (x[:, ::-1], want[:, ::-1])):
        got = run(f"aten::{name}", y, *args)
        np.testing.assert_allclose(got, w, rtol=1e-6, atol=1e-7)
    assert run(f"aten::{name}", x.transpose(2, 0, 1), *args).strides == x.transpose(2, 0, 1).strides


REFUSALS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::relu", (np.array([True]),), DTypeError, "bool"),
    ("aten::relu", (np.array([1j]),), DTypeError, "complex"),
    ("aten::gelu", (np.array([1]), "none"), DTypeError, "floating dtype"),
    ("aten::gelu", (f32(1), "fast"), OpError, "'none' or 'tanh'"),
    ("aten::gelu_backward", (f32(1), f32(1), "fast"), OpError, "'none' or 'tanh'"),
    ("aten::softshrink", (f32(1), -1), OpError, "negative"),
    ("aten::celu", (f32(1), 0.0), OpError, "ZeroDivisionError"),
    ("aten::hardtanh", (np.array([1], np.uint8),), OpError, "negative"),
    ("aten::prelu", (np.zeros((2, 3), np.float32), f32(1, 2)), ShapeError, "3 channels"),
    ("aten::rrelu", (f32(1), 0.3, 0.1, True, None), OpError, "must not exceed"),
    ("aten::glu", (np.zeros((2, 3), np.float32),), ShapeError, "must be even"),
    ("aten::glu", (np.zeros((2, 2), np.float32), 2), ShapeError, "range"),
    ("aten::glu", (f32(1).reshape(()),), ShapeError, "no dim"),
    ("aten::glu", (np.array([1, 2]),), DTypeError, "floating"),
    ("aten::leaky_relu_backward", (f32(1), f32(1), -0.5, True), OpError, "undone"),
    ("aten::elu_backward", (f32(1), -1, 1, 1, True, f32(1)), OpError, "undone"),
    ("aten::glu_backward", (f32(1), f32(1, 2, 3), 0), ShapeError, "even"),
    ("aten::log_sigmoid_forward", (np.array([1]),), DTypeError, "floating"),
]


@pytest.mark.parametrize(("name", "args", "error", "match"), REFUSALS, ids=[f"{r[0]}-{r[3]}" for r in REFUSALS])
def test_refusal(name: str, args: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        run(name, *args)
