"""Products of weights kept as bfloat16 and int8, against products of the very numbers that were kept."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.gemm import Gemm, bind, plan
from gpujit.kernels.templates.gemm_code import render
from gpujit.kernels.templates.gemm_weights import INT8_LIMIT, pack_as
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from tests.kernels.templates.test_gemm import close, numbers

NARROW = ("bfloat16", "int8")


def rounded(w: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that are kept, in float64."""
    if dtype == "bfloat16":
        return w.astype(ml_dtypes.bfloat16).astype(np.float64)
    step = np.abs(w).max(axis=0, initial=0).astype(np.float64) / INT8_LIMIT
    return np.rint(np.divide(w, step, out=np.zeros(w.shape), where=step > 0)) * step


NOTHING = Epilogue()


def product(m: int, n: int, k: int, dtype: str, epilogue: Epilogue = NOTHING, by_columns: bool = False) -> None:
    rng = np.random.default_rng(m * n + k)
    a, w, bias, residual = numbers(rng, m, k), numbers(rng, k, n), numbers(rng, n), numbers(rng, m, n)
    want = a.astype(np.float64) @ rounded(w, dtype)
    if epilogue.bias:
        want += bias
    if epilogue.residual:
        want += residual
    want = np.maximum(want, 0) if epilogue.activation else want
    room = np.full((n + 2, m + 3) if by_columns else (m + 2, n + 3), np.nan, np.float32)
    c = room[1:-1, 1:-2]
    strides = (0, 0, 1, m + 3) if by_columns else (0, 0, n + 3, 1)
    r = (0, 0, 1, m) if by_columns else (0, 0, n, 1)
    gemm = Gemm(m, n, k, (0, 0, k, 1), strides, r=r, epilogue=epilogue, right=dtype)
    given: list[Any] = [np.ascontiguousarray(residual.T) if by_columns else residual] if epilogue.residual else []
    bind(gemm, w, bias if epilogue.bias else None)(a, c, *given)
    # A product near a half of a step may be rounded the other way.
    slack = 0.51 * np.abs(a).sum(axis=1, keepdims=True) * np.abs(w).max(axis=0) / INT8_LIMIT * 1e-3
    got = c.T if by_columns else c
    if dtype == "int8":
        np.testing.assert_array_less(np.abs(got - want), slack + 1e-5 * math.sqrt(k) * max(1.0, np.abs(want).max()))
    else:
        close(got, want, k)
    room[1:-1, 1:-2] = np.nan
    assert np.isnan(room).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(1, 150), st.integers(1, 40), st.sampled_from(NARROW), st.booleans())
def test_products_of_any_size(m: int, n: int, k: int, dtype: str, bias: bool) -> None:
    product(m, n, k, dtype, Epilogue(bias))


@pytest.mark.parametrize("dtype", NARROW)
def test_what_follows_the_sums(dtype: str) -> None:
    product(5, 37, 11, dtype, Epilogue(True, True, "relu"))
    product(1, 70, 64, dtype, Epilogue(True, False, "relu"))
    product(9, 20, 7, dtype, by_columns=True)
    product(33, 40, 12, dtype, Epilogue(True, True, "relu"), by_columns=True)


@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", NARROW)
def test_every_width_has_code(width: int, dtype: str) -> None:
    with config(simd_width=width):
        spec = plan(Gemm(3, 20, 5, (0, 0, 5, 1), (0, 0, 20, 1), right=dtype))
        assert spec.right == dtype and "define" in render(spec)


def test_special_weights() -> None:
    w = np.array([[0, 1e-45, 3e38, -0.0], [0, -1e-45, -3e38, 2.0]], np.float32)
    packed = pack_as(w, 4, "int8")
    assert packed.factors is not None and np.isfinite(packed.factors).all()
    back = packed.panels[0].astype(np.float64) * packed.factors[:4]
    np.testing.assert_allclose(back, [[0, 0, 3e38, 0], [0, 0, -3e38, 2]], rtol=1e-6, atol=2e-45)
    half = pack_as(np.full((1, 1), np.nan, np.float32), 4, "bfloat16").panels
    assert np.isnan(half[0, 0, 0]) and half[0, 0, 1] == 0
    for bad in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match="cannot be kept as int8"):
            pack_as(np.full((2, 2), bad, np.float32), 4, "int8")


def test_only_packed_weights_are_narrow() -> None:
    with pytest.raises(ArgumentError, match="B has elements of float32, float16, bfloat16; found 'int8'"):
        plan(Gemm(2, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1), b=(0, 0, 2, 1), right="int8"))
    with pytest.raises(ArgumentError, match="found 'int4'"):
        plan(Gemm(2, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1), right="int4"))
