"""Arrays put together from parts of others, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.pieces import MOST, Piece, bind
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def room(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory of NaN, and an array in it with some of them on both sides."""
    size = int(np.prod(shape))
    memory = np.full(size + 8, np.nan, np.float32)
    return memory, memory[4:-4].reshape(shape)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 40), min_size=1, max_size=MOST), st.sampled_from([1, 3]))
def test_rows_side_by_side(rows: int, lengths: list[int], threads: int) -> None:
    arrays = [numbers(rows, n, seed=k) for k, n in enumerate(lengths)]
    memory, out = room(rows, sum(lengths))
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    parts = [Piece(k, rows, n, 0, n, 1, starts[k], sum(lengths)) for k, n in enumerate(lengths)]
    with config(threads=threads):
        kernel = bind(parts, len(arrays))
        kernel.is_small = False
        kernel(*arrays, out)
    np.testing.assert_array_equal(out, np.concatenate(arrays, 1))
    assert np.isnan(memory[:4]).all() and np.isnan(memory[-4:]).all()


@pytest.mark.parametrize("step", [-1, 2, 0])
def test_runs_with_another_stride(step: int) -> None:
    x = numbers(3, 70)
    memory, out = room(3, 20)
    bind([Piece(0, 3, 20, 25, 70, step, 0, 20)], 1)(x, out)
    np.testing.assert_array_equal(out, x[:, 25 + step * np.arange(20)])
    assert np.isnan(memory[:4]).all() and np.isnan(memory[-4:]).all()


def test_impossible_pieces() -> None:
    part = Piece(0, 1, 1, 0, 1, 1, 0, 1)
    with pytest.raises(ArgumentError, match="0 pieces of 1 arrays"):
        bind([], 1)
    with pytest.raises(ArgumentError, match=f"from 1 to {MOST} arrays"):
        bind([part], MOST + 1)
    with pytest.raises(ArgumentError, match="of none of 1 arrays"):
        bind([part._replace(source=1)], 1)
