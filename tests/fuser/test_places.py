"""Index expressions over known sizes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpujit.fuser.places import bounds, breaks, flat, simplified
from gpujit.kernels.index import DIM, Index, dim, div, index, mod

SIZES = (3, 4, 6)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    total = index(draw(st.integers(0, 5)))
    for d in range(3):
        total = total + dim(d) * draw(st.integers(0, 6))
    for _ in range(draw(st.integers(0, 3))):
        make = draw(st.sampled_from([div, mod]))
        total = make(total, draw(st.integers(1, 12))) * draw(st.integers(1, 3)) + dim(draw(st.integers(0, 2)))
    return total


@given(indexes())
def test_simplified_is_equal_and_within_bounds(i: Index) -> None:
    simple = simplified(i, SIZES)
    low, high = bounds(i, SIZES)
    for point in product(*map(range, SIZES)):
        known = {(DIM, d): n for d, n in enumerate(point)}
        assert simple.evaluate(known) == i.evaluate(known)
        assert low <= i.evaluate(known) <= high


@pytest.mark.parametrize(
    ("i", "text"),
    [
        (div(dim(0) * 4 + dim(1), 4), "d0"),
        (mod(dim(0) * 4 + dim(1), 4), "d1"),
        (mod(dim(0) * 24 + dim(1) * 6 + dim(2), 6), "d2"),
        (div(mod(dim(0) * 24 + dim(1) * 6 + dim(2), 24), 6), "d1"),
        (mod(dim(2), 4), "mod(d2, 4)"),
    ],
)
def test_what_is_seen(i: Index, text: str) -> None:
    assert str(simplified(i, SIZES)) == text


def test_where_a_dim_would_have_to_be_split() -> None:
    assert list(breaks(mod(dim(2), 3), SIZES)) == [(2, 3)]
    assert list(breaks(div(dim(2) * 2 + dim(0), 4), SIZES)) == [(2, 2)]
    assert list(breaks(mod(dim(2), 4), SIZES)) == []


def test_flat() -> None:
    assert str(flat([dim(0), dim(1), dim(2)], (9, 4, 6))) == "d0*24 + d1*6 + d2"
