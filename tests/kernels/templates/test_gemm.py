"""The GEMM template against float64 products: every tail, both layouts of B, batches, epilogues."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.epilogue import ACTIVATIONS, Epilogue
from gpujit.kernels.templates.gemm import Gemm, bind, plan
from gpujit.kernels.templates.gemm_code import render
from gpujit.kernels.templates.gemm_weights import pack
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError

erf = np.vectorize(math.erf)
REFERENCE = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def close(got: np.ndarray, want: np.ndarray, depth: int) -> None:
    assert got.dtype == np.float32
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * scale * math.sqrt(depth))


def linear(m: int, n: int, k: int, epilogue: Epilogue, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    a, w, bias, residual = numbers(rng, m, k), numbers(rng, k, n), numbers(rng, n), numbers(rng, m, n)
    want = a.astype(np.float64) @ w
    if epilogue.bias:
        want += bias
    if epilogue.residual and not epilogue.residual_last:
        want += residual
    want = REFERENCE[epilogue.activation](want)
    if epilogue.residual and epilogue.residual_last:
        want += residual
    # A border of NaN round the result shows whether anything is written outside.
    room = np.full((m + 2, n + 3), np.nan, np.float32)
    c = room[1:-1, 1:-2]
    gemm = Gemm(m, n, k, (0, 0, k, 1), (0, 0, n + 3, 1), r=(0, 0, n, 1), epilogue=epilogue)
    kernel = bind(gemm, w, bias if epilogue.bias else None)
    kernel(a, c, *([residual] if epilogue.residual else []))
    close(c, want, k)
    room[1:-1, 1:-2] = np.nan
    assert np.isnan(room).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 150), st.integers(1, 40), st.booleans(), st.booleans(), st.booleans())
def test_packed_weights_of_any_size(m: int, n: int, k: int, bias: bool, residual: bool, last: bool) -> None:
    linear(m, n, k, Epilogue(bias, residual, None, last), seed=m * n * k)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation: str) -> None:
    linear(5, 37, 11, Epilogue(True, True, activation, True))
    linear(1, 19, 24, Epilogue(True, True, activation, False))


@pytest.mark.parametrize("sizes", [(49, 40, 12), (1, 3, 2), (13, 70, 5), (30, 16, 9)])
def test_results_that_lie_by_columns(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(2)
    a, w, bias, residual = numbers(rng, 2, k, m), numbers(rng, k, n), numbers(rng, n), numbers(rng, 2, n, m)
    room = np.full((2, n + 1, m), np.nan, np.float32)
    gemm = Gemm(
        m, n, k, (k * m, 0, 1, m), ((n + 1) * m, 0, 1, m), r=(n * m, 0, 1, m), batch=2,
        epilogue=Epilogue(True, True, "relu"),
    )  # fmt: skip
    bind(gemm, w, bias)(a, room, residual)
    want = np.einsum("bkm,kn->bnm", a.astype(np.float64), w) + bias[:, None] + residual
    close(room[:, :n], np.maximum(want, 0), k)
    assert np.isnan(room[:, n]).all()


@pytest.mark.parametrize("width", [1, 4, 8])
def test_narrow_vectors(width: int) -> None:
    with config(simd_width=width):
        linear(13, 41, 9, Epilogue(True, True, "gelu"))
        rng = np.random.default_rng(3)
        a, b, c = numbers(rng, 7, 9), numbers(rng, 11, 9), np.full((7, 11), np.nan, np.float32)
        bind(Gemm(7, 11, 9, (0, 0, 9, 1), (0, 0, 11, 1), (0, 0, 1, 9)))(a, b, c)
        close(c, a.astype(np.float64) @ b.T, 9)


def test_parts_of_a_team_together_make_the_whole() -> None:
    rng = np.random.default_rng(4)
    a, w, c = numbers(rng, 61, 20), numbers(rng, 20, 200), np.full((61, 200), np.nan, np.float32)
    with config(threads=3):
        kernel = bind(Gemm(61, 200, 20, (0, 0, 20, 1), (0, 0, 200, 1)), w)
        kernel.is_small = False
        kernel(a, c)
    close(c, a.astype(np.float64) @ w, 20)


def test_one_row_reads_all_of_a_large_matrix() -> None:
    linear(1, 333, 517, Epilogue())


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 2, 9, 150, 20), (3, 2, 5, 7, 9), (1, 1, 33, 70, 40), (2, 3, 17, 64, 16), (1, 2, 1, 1, 1)]
)
def test_products_of_two_arrays_in_heads(columns: bool, sizes: tuple[int, ...]) -> None:
    outer, inner, m, n, k = sizes
    rng = np.random.default_rng(1)
    a = numbers(rng, outer, m, inner, k).transpose(0, 2, 1, 3)
    b = numbers(rng, outer, n, inner, k).transpose(0, 2, 3, 1) if columns else numbers(rng, outer, inner, k, n)
    c = np.full((outer, m, inner, n), np.nan, np.float32).transpose(0, 2, 1, 3)

    def strides(x: np.ndarray) -> tuple[int, ...]:
        return tuple(s // 4 for s in x.strides)

    gemm = Gemm(
        m, n, k, strides(a), strides(c), strides(b), batch=outer * inner, inner=inner, scale=0.5,
    )  # fmt: skip
    assert plan(gemm).source in (("columns",) if columns and strides(b)[3] != 1 else ("rows", "place"))
    bind(gemm)(a, b, c)
    close(c, 0.5 * (a.astype(np.float64) @ b), k)


def test_infinities_and_nan_go_their_way() -> None:
    a = np.array([[np.inf, 1], [np.nan, 1], [0, -np.inf]], np.float32)
    w = np.array([[1, -1], [1, 1]], np.float32)
    c = np.empty((3, 2), np.float32)
    bind(Gemm(3, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1), epilogue=Epilogue(activation="relu")), w)(a, c)
    np.testing.assert_array_equal(c, [[np.inf, 0], [np.nan, np.nan], [0, 0]])


def test_packed_panels_begin_on_cache_lines_and_end_in_zeros() -> None:
    packed = pack(np.ones((3, 10), np.float32), 8)
    assert packed.shape == (2, 3, 8) and packed.ctypes.data % 64 == 0
    assert packed[1].sum() == 6


def test_equal_specs_give_equal_text() -> None:
    spec = plan(Gemm(40, 64, 8, (0, 0, 8, 1), (0, 0, 64, 1)))
    assert render(spec) == render(spec)


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nothing to compute"):
        plan(Gemm(0, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1)))
    with pytest.raises(ArgumentError, match="float32 got float64"):
        bind(Gemm(2, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1)), np.ones((2, 2), np.float32))(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="one of the two must be 1"):
        plan(Gemm(2, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1), (0, 0, 4, 2)))
    with pytest.raises(ArgumentError, match="there are relu"):
        plan(Gemm(2, 2, 2, (0, 0, 2, 1), (0, 0, 2, 1), epilogue=Epilogue(activation="mish")))
