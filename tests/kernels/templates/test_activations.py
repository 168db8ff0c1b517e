"""Activations behind a template's sums, number by number: a product with 1 leaves the sums as they are."""

from __future__ import annotations

import numpy as np
import pytest

from gpujit.kernels.templates import gemm
from gpujit.kernels.templates.epilogue import ACTIVATIONS, Epilogue
from gpujit.support.config import config


def _sigmoid(x):
    return np.where(x > 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


_EXACT = {
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "gelu_tanh": lambda x: x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
}


def _apply(name: str, x: np.ndarray) -> np.ndarray:
    described = gemm.Gemm(1, x.size, 1, (0, 0, 1, 1), (0, 0, x.size, 1), epilogue=Epilogue(activation=name))
    out = np.empty_like(x)
    gemm.bind(described, x[None], None)(np.ones((1, 1), np.float32), out)
    return out


@pytest.mark.parametrize("width", [1, 4, None])
@pytest.mark.parametrize("name", _EXACT)
def test_moderate_numbers(name, width):
    x = np.concatenate([np.linspace(-80, 80, 100_001), np.geomspace(1e-30, 1, 5_000)]).astype(np.float32)
    with config(simd_width=width):
        got = _apply(name, x)
    want = _EXACT[name](x.astype(np.float64))
    error = np.abs(got - want) / np.maximum(np.spacing(np.abs(want).astype(np.float32)), 2.0**-126)
    # In gelu_tanh the argument of exp is rounded, and it is large.
    near = np.abs(x) < 10
    limit = {"tanh": 3, "gelu_tanh": 160}.get(name, 5)
    assert error[near].max() <= limit, (name, x[near][error[near].argmax()], error[near].max())
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-35)


@pytest.mark.parametrize("name", _EXACT)
def test_extremes(name):
    x = np.array([0.0, -0.0, 1e4, -1e4, 3e38, -3e38, np.inf, -np.inf, np.nan, 90, -90, -104], np.float32)
    got = _apply(name, x)
    with np.errstate(all="ignore"):
        want = _EXACT[name](x.astype(np.float64))
    if name == "gelu_tanh":
        # PyTorch's formula gives NaN here as well: minus infinity times 0.
        want[7] = np.nan
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-34)


def test_all_are_looked_at():
    plain = {"relu", "relu6", "hardsigmoid", "hardswish", "gelu"}
    assert set(ACTIVATIONS) == plain | set(_EXACT)
