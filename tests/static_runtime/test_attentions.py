"""Attention as a native step, over masks and layouts; what is left to the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.support.errors import GpujitError
from tests.static_runtime.help import f32
from tests.static_runtime.test_products import check, laid_out

SDPA = "aten::scaled_dot_product_attention"


@given(
    lead=st.sampled_from([(1,), (3,), (2, 3)]),
    sizes=st.tuples(*[st.integers(1, 20)] * 4),
    order=st.sampled_from(["", "outer", "part"]),
    masked=st.sampled_from([None, (), (0,), (0, 1), (1,)]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.3, 1.0]),
    is_bool=st.booleans(),
)
@settings(max_examples=80)
def test_any_size(
    lead: Any, sizes: Any, order: str, masked: Any, causal: bool, scale: float | None, is_bool: bool
) -> None:
    queries, keys, depth, columns = sizes
    q, k = laid_out(order, *lead, queries, depth), laid_out(order, *lead, keys, depth, seed=1)
    v = laid_out(order, *lead, keys, columns, seed=2)
    mask = None
    if masked is not None:
        causal = False
        # One for all heads, batches or queries.
        mask = f32(*(1 if d in masked else n for d, n in enumerate((*lead, queries))), keys, seed=3)
        mask[f32(*mask.shape, seed=4) > 0.5] = -np.inf
        mask = mask > -1 if is_bool else mask
    assert check(SDPA, [q, k, v, mask, 0.0, causal, scale, False])


@pytest.mark.parametrize("shape", [(7,), (1, 7), (5, 7), (2, 1, 1, 7), (3, 5, 7)])
def test_masks_of_fewer_dims(shape: tuple[int, ...]) -> None:
    q, k = f32(2, 3, 5, 4), f32(2, 3, 7, 4, seed=1)
    assert check(SDPA, [q, k, f32(2, 3, 7, 6), f32(*shape), 0.0, False, None, False]) is (len(shape) > 1)


def test_a_query_whose_keys_are_all_hidden() -> None:
    q, mask = f32(1, 2, 3, 4), np.zeros((3, 3), np.float32)
    mask[1] = -np.inf
    assert check(SDPA, [q, q, q, mask, 0.0, False, None, False])
    assert check(SDPA, [q, q, q, mask == 0, 0.0, False, None, False])


def test_heads_that_share_keys() -> None:
    q, k, v = f32(2, 6, 5, 4), f32(2, 2, 7, 4, seed=1), f32(2, 2, 7, 3, seed=2)
    assert check(SDPA, [q, k, v, None, 0.0, True, None, True])
    assert check(SDPA, [q, k, v, f32(5, 7), 0.0, False, None, True])
    assert check(SDPA, [q, k, v, f32(2, 6, 1, 7) > 0, 0.0, False, None, True])


def test_heads_are_read_where_they_lie() -> None:
    q, k, v = (f32(2, 7, 3, 5, seed=s).transpose(0, 2, 1, 3) for s in (0, 1, 2))
    assert check(SDPA, [q, k, v, None, 0.0, False, None, False])


def test_what_is_left_to_the_library() -> None:
    q = f32(2, 3, 5, 4)
    rest = [0.0, False, None, False]
    assert check(SDPA, [q, q, q, None, *rest])
    assert not check(SDPA, [q, q, q, np.zeros((5, 1), np.float32), *rest])
    assert not check(SDPA, [q, q, q[:1], None, *rest])
    assert not check(SDPA, [laid_out("turned", 2, 3, 5, 4), q, q, None, *rest])
    assert not check(SDPA, [q[0, 0], q[0, 0], q[0, 0], None, *rest])
    assert not check(SDPA, [f32(2, 2, 3, 5, 4)] * 3 + [None, *rest])
    wide = q.astype(np.float64)
    assert not check(SDPA, [wide, wide, wide, None, *rest])


def test_errors_of_the_operator() -> None:
    q = f32(1, 2, 3, 4)
    with pytest.raises(GpujitError, match="exclude each other"):
        check(SDPA, [q, q, q, f32(3, 3), 0.0, True, None, False])
    with pytest.raises(GpujitError, match="dropout"):
        check(SDPA, [q, q, q, None, 1.5, False, None, False])
