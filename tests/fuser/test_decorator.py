# ruff: noqa: E501
"""``gpujit.fuse``: what NumPy computes, in NumPy's dtypes and shapes, by one kernel."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

import gpujit
from gpujit.ir.scalar import RecordError
from gpujit.support.errors import FusionWarning, OpError

TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-10}


def check(function: Any, *args: Any, **options: Any) -> Any:
    fused = gpujit.fuse(function)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = function(*args, **options)
    for _ in range(2):
        got = fused(*args, **options)
        same(got, want)
    return fused


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    a, b = np.asarray(got), np.asarray(want)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    limit = TOLERANCE.get(str(b.dtype), 0)
    np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=limit, atol=limit, equal_nan=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def normalised(x: Any, eps: float = 1e-5) -> Any:
    return (x - np.mean(x, axis=-1, keepdims=True)) / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)


def mixed(x: Any, y: Any, s: Any) -> Any:
    return np.where(x > y, np.clip(x * s, -1, 2), np.abs(y) - 0.5) + np.logical_and(x > 0, y > 0)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize("x", [X, X.T, X[::-1, ::2], X.astype("f8"), X.astype("f2"), (X * 5).astype("i4")])
def test_arrays_of_all_sorts(x: np.ndarray) -> None:
    check(softmax, x)
    check(normalised, x, eps=0.1)
    check(mixed, x, x[:1], 2.0)
    check(mixed, x, x[0], 3)
    check(lambda a: (a.sum(axis=0), a.max(0), np.argmin(a, axis=0), a.any(0)), x)
    check(lambda a: (a.mean(), a.std(ddof=1), np.argmax(a), a.prod(keepdims=True)), x)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1), (2, 3, 4)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    check(lambda a, b: np.exp(a) * b + 1, x, np.float32(2))
    check(lambda a: [a + 1, a > 0], x)
    if x.ndim:
        check(lambda a: a.sum(axis=-1), x)


DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
BINARY = [np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, np.less, np.equal, np.power,
          np.floor_divide, np.remainder, np.hypot, np.arctan2, np.logical_or, np.bitwise_and, np.left_shift]  # fmt: skip


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda f: f.__name__)
@settings(max_examples=25)
@given(st.sampled_from(DTYPES), st.sampled_from([*DTYPES, "int", "float"]))
def test_promotion_is_numpys(ufunc: Any, first: str, second: str) -> None:
    a = np.array([1, 2, 3, 0, 5]).astype(first)
    b: Any = 3 if second == "int" else 2.5 if second == "float" else np.array([2, 1, 1, 3, 2]).astype(second)

    def function(x: Any, y: Any) -> Any:
        return ufunc(x, y)

    try:
        function(a, b)
    except (TypeError, ValueError) as fault:
        with pytest.raises(type(fault)):
            gpujit.fuse(function)(a, b)
        return
    check(function, a, b)
    # A number in the function's text promotes as one that is handed in.
    if isinstance(b, (int, float)):
        check(lambda x: ufunc(x, b), a)


UNARY = [np.exp, np.log1p, np.sqrt, np.tanh, np.sin, np.negative, np.abs, np.floor, np.rint, np.sign, np.square,
         np.isnan, np.reciprocal, np.deg2rad, np.logical_not, np.positive]  # fmt: skip


@pytest.mark.parametrize("ufunc", UNARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_array(ufunc: Any, dtype: str) -> None:
    a = np.array([1, 2, 3, 1, 5]).astype(dtype)
    try:
        ufunc(a)
    except TypeError:
        with pytest.raises(TypeError):
            gpujit.fuse(lambda x: ufunc(x))(a)
        return
    if ufunc is np.reciprocal and not dtype.startswith("float"):
        with pytest.raises(RecordError, match=r"np\.reciprocal of integers"):
            gpujit.fuse(lambda x: ufunc(x))(a)
        return
    check(lambda x: ufunc(x), a)


def test_numbers_give_numbers() -> None:
    check(lambda a, b: a * b + 1, 2, 3)
    check(lambda a, b: a / b, 2, 3)
    check(lambda a: np.exp(a), np.float32(2))


def test_what_the_function_makes_it_may_write_into() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        z = y
        y += 1
        np.add(y, x, out=z)
        y[...] = y * 2
        return y, z

    check(function, X)
    with pytest.raises(TypeError, match="cannot cast"):
        gpujit.fuse(lambda x: (x * 2).__iadd__(0.5))((X * 5).astype("i4"))


def test_arguments_and_constants_come_back_as_they_are() -> None:
    fused = gpujit.fuse(lambda x, name: (x, name, x + 1))
    same_x, name, _ = fused(X, "a")
    assert same_x is X and name == "a"


def _adds(x: Any) -> Any:
    x += 1
    return x


def _branches(x: Any) -> Any:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_adds, "fuse _adds: it writes into an argument"),
        (_branches, "choose with np.where"),
        (lambda x: x[0], "a part of an array cannot be a part of a kernel"),
        (lambda x: np.sort(x), "np.sort cannot be"),
        (lambda x: x.reshape(-1), "'reshape' of an array"),
        (lambda x: np.cbrt(x), "np.cbrt of float32"),
        (lambda x: np.add.accumulate(x), "np.add.accumulate"),
        (lambda x: (x.sum(0), x.sum(1)), r"it reduces \[1\] of \[4, 6\] and \[0\] of \[4, 6\]|it reduces"),
        (lambda x: x * (1 + 2j), "complex128"),
        (lambda x: x + X, "which is no argument"),
        (lambda x: x.sum(0) + x, "another order|it reduces|broadcast"),
    ],
)
def test_what_is_refused(function: Any, message: str) -> None:
    if message.startswith("another"):
        square = X[:4, :4]
        check(lambda x: x.sum(0) + x, square)
        with pytest.raises(RecordError, match="another order"):
            gpujit.fuse(lambda x: x.sum(1) + x)(square)
        return
    with pytest.raises(RecordError, match=message):
        gpujit.fuse(function)(X)


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(RecordError, match="neither an array nor a number"):
        gpujit.fuse(lambda x: x)([1, 2])
    with pytest.raises(RecordError, match="argument 0 is complex64"):
        gpujit.fuse(lambda x: x + 1)(X.astype("c8"))
    with pytest.raises(ValueError, match="broadcast"):
        gpujit.fuse(lambda x, y: x + y)(X, X[:, :4])


def test_not_strict_runs_as_it_is_with_one_warning() -> None:
    fused = gpujit.fuse(strict=False)(_branches)
    with pytest.warns(FusionWarning, match="fuse _branches: a decision"):
        same(fused(X), _branches(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(fused(X), _branches(X))


def test_negative_powers_of_integers_fail_as_in_numpy() -> None:
    fused = gpujit.fuse(lambda x, y: x**y)
    with pytest.raises(OpError, match="negative integer powers"):
        fused(np.array([2, 3]), np.array([1, -1]))


def test_other_sizes_share_the_kernel() -> None:
    from gpujit.kernels import supply

    fused = gpujit.fuse(lambda x: np.tanh(x * 0.37) + x)
    fused(RNG.standard_normal(1000))
    compiled = supply.counters.compiled + supply.counters.loaded
    fused(RNG.standard_normal(2000))
    assert supply.counters.compiled + supply.counters.loaded == compiled


def test_threads() -> None:
    fused = gpujit.fuse(softmax)
    arrays = [RNG.standard_normal((8, n)) for n in range(1, 9)]
    results: list[Any] = [None] * 8

    def work(i: int) -> None:
        for _ in range(20):
            results[i] = fused(arrays[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x, y in zip(arrays, results, strict=True):
        same(y, softmax(x))
