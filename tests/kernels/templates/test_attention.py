"""Attention against float64: odd sizes, masks, causal, shared heads, rows that see nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.attention import Attention, bind
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from tests.kernels.templates.test_gemm import numbers


def strides(x: np.ndarray) -> tuple[int, ...]:
    return tuple(s // 4 for s in x.strides[:3])


def check(
    sizes: tuple[int, int, int, int, int, int], is_causal: bool = False, masked: bool = False, shared: int = 1,
    alone: bool = True, amount: float = 1.0,
) -> None:  # fmt: skip
    batch, heads, queries, keys, depth, columns = sizes
    rng = np.random.default_rng(sum(sizes))
    # [batch, row, head, depth] in memory, as projections leave them.
    q = numbers(rng, batch, queries, heads, depth).transpose(0, 2, 1, 3) * np.float32(amount)
    k = numbers(rng, batch, keys, heads // shared, depth).transpose(0, 2, 1, 3)
    v = numbers(rng, batch, heads // shared, keys, columns)
    q = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    mask = numbers(rng, batch, 1, queries, keys)
    mask[rng.random(mask.shape) < 0.3] = -np.inf
    mask[..., 0] = 0
    out = np.full((batch, queries + 1, heads, columns), np.nan, np.float32).transpose(0, 2, 1, 3)
    problem = Attention(
        batch, heads, queries, keys, depth, columns, strides(q), strides(k), strides(v), strides(out), depth**-0.5,
        (strides(mask)[0], 0, strides(mask)[2]) if masked else None, is_causal, shared,
    )  # fmt: skip
    kernel = bind(problem)
    kernel.is_small = alone
    kernel(q, k, v, out, *([mask] if masked else []))
    wide_k, wide_v = (np.repeat(x.astype(np.float64), shared, 1) for x in (k, v))
    scores = q.astype(np.float64) @ wide_k.swapaxes(2, 3) * depth**-0.5
    if masked:
        scores = scores + mask
    if is_causal:
        scores = np.where(np.tril(np.ones((queries, keys), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ wide_v
    np.testing.assert_allclose(out[:, :, :queries], want, rtol=1e-4, atol=2e-5)
    assert np.isnan(out[:, :, queries]).all()


@settings(max_examples=18, deadline=None)
@given(
    st.tuples(*(st.integers(1, n) for n in (2, 3, 20, 150, 40, 70))), st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_size(sizes: tuple[int, int, int, int, int, int], is_causal: bool, masked: bool) -> None:
    check(sizes, is_causal, masked)


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_heads_of_keys_that_several_share(shared: int) -> None:
    check((2, 4, 9, 70, 16, 64), shared=shared)
    check((2, 4, 9, 70, 16, 64), True, True, shared, alone=False)


def test_more_keys_than_a_block_has() -> None:
    check((1, 2, 15, 1100, 8, 24), masked=True)
    check((1, 1, 600, 700, 8, 8), is_causal=True)


def test_large_scores_overflow_nothing() -> None:
    check((1, 2, 8, 200, 64, 64), amount=100.0)


@pytest.mark.parametrize("width", [1, 4, 8])
def test_narrow_vectors(width: int) -> None:
    with config(simd_width=width, threads=3):
        check((1, 3, 13, 50, 12, 20), True, True, alone=False)


@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_bool_masks_hide_keys(width: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (numbers(rng, 1, 2, n, 8) for n in (5, 70, 70))
    seen = rng.random((1, 1, 5, 70)) < 0.6
    seen[..., 3, :] = False
    problem = Attention(1, 2, 5, 70, 8, 8, *map(strides, (q, k, v, q)), 0.4, (0, 0, 70))
    with config(simd_width=width):
        out, want = np.empty_like(q), np.empty_like(q)
        bind(problem._replace(is_mask_bool=True))(q, k, v, out, seen)
        bind(problem)(q, k, v, want, np.where(seen, np.float32(0), np.float32(-np.inf)))
        np.testing.assert_array_equal(out, want)
        with pytest.raises(ArgumentError, match="for bool got float32"):
            bind(problem._replace(is_mask_bool=True))(q, k, v, out, np.ones((5, 70), np.float32))


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    q = np.ones((1, 1, 2, 4), np.float32)
    mask = np.array([[0, 0, 0], [-np.inf] * 3], np.float32)
    out = np.zeros((1, 1, 2, 4), np.float32)
    k = np.ones((1, 1, 3, 4), np.float32)
    bind(Attention(1, 1, 2, 3, 4, 4, (0, 0, 4), (0, 0, 4), (0, 0, 4), (0, 0, 4), 1.0, (0, 0, 3)))(q, k, k, out, mask)
    np.testing.assert_allclose(out[0, 0, 0], 1)
    assert not out[0, 0, 1].any()


@pytest.mark.parametrize("width", [1, 4, 16])
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("at", [0, 5, 63, 500, 1099])
def test_nan_is_passed_on_to_who_sees_it(at: int, is_causal: bool, width: int) -> None:
    rng = np.random.default_rng(at)
    n = 1100 if at > 63 else 70
    q, k, v = (numbers(rng, 1, 1, n, 8) for _ in range(3))
    k[0, 0, at, 3] = np.nan
    q[0, 0, [2, n - 1], 1] = np.nan, np.inf
    out = np.empty_like(q)
    with config(simd_width=width):
        bind(Attention(1, 1, n, n, 8, 8, *map(strides, (q, k, v, q)), 0.4, None, is_causal))(q, k, v, out)
    with np.errstate(invalid="ignore"):
        scores = q.astype(np.float64) @ k.swapaxes(2, 3) * 0.4
        if is_causal:
            scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=2e-5)
    assert np.isnan(out).any()


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nothing to compute"):
        bind(Attention(1, 1, 2, 0, 4, 4, (0, 0, 4), (0, 0, 4), (0, 0, 4), (0, 0, 4), 1.0))
