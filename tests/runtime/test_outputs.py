"""Results written into given arrays: what fits, what is refused, arrays that overlap."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from gpujit.runtime.outputs import put, targets_of
from gpujit.support.errors import ArgumentError

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3)
Pair = namedtuple("Pair", "first second")


def test_results_keep_their_structure() -> None:
    a, b = np.empty_like(A), np.empty_like(B)
    assert put(A, targets_of(a)) is a
    assert put(A, targets_of((a,))) is a
    found = put((A, B), targets_of((a, b)))
    assert type(found) is tuple and found[0] is a and found[1] is b
    found = put(Pair(A, B), targets_of([None, b]))
    assert type(found) is Pair and found.first is A and found.second is b
    found = put([A, 3], targets_of((a, None)))
    assert type(found) is list and found[0] is a and found[1] == 3
    np.testing.assert_array_equal(a, A)
    np.testing.assert_array_equal(b, B)


@pytest.mark.parametrize(
    ("result", "out", "text"),
    [
        (A, (np.empty(3),) * 2, "out has 2 arrays for 1 outputs"),
        ((A, B), np.empty(3), "out has 1 arrays for 2 outputs"),
        (A, np.empty((2, 3)), r"out\[0\] is float64\[2, 3\], the output is float32\[2, 3\]"),
        (A, np.empty((3, 2), np.float32), r"out\[0\] is float32\[3, 2\], the output is float32\[2, 3\]"),
        ({"a": A}, np.empty(3), r"out\[0\] is float64\[3\], the output is no tensor: dict"),
        (5, np.empty(()), r"the output is no tensor: int 5"),
    ],
)
def test_what_does_not_fit_is_refused(result: Any, out: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        put(result, targets_of(out))


def test_nothing_is_written_when_one_does_not_fit() -> None:
    a = np.full_like(A, -1)
    with pytest.raises(ArgumentError, match=r"out\[1\]"):
        put((A, B), targets_of((a, np.empty(4, B.dtype))))
    assert (a == -1).all()


def read_only() -> np.ndarray:
    x = np.empty((2, 3), np.float32)
    x.flags.writeable = False
    return x


WINDOWS = np.lib.stride_tricks.as_strided(np.empty(8, np.float32), (2, 3), (8, 4))


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ([[1.0, 2.0]], r"out\[0\] is a list"),
        ("x", "out is a str 'x'"),
        (3, "out is a int 3"),
        (np.ma.masked_array(A), "out is a float32"),
        (read_only(), "out is read-only"),
        ((None, read_only()), r"out\[1\] is read-only"),
        (np.lib.stride_tricks.as_strided(np.empty(3, np.float32), (2, 3), (0, 4)), "several elements at one place"),
        (WINDOWS, "several elements at one place"),
    ],
)
def test_arrays_that_cannot_be_written_are_refused(out: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        targets_of(out)


def test_all_plain_arrays_can_be_written() -> None:
    base = np.empty((4, 6, 8), np.float32)
    moved = base.transpose(1, 0, 2)
    for x in (base, base[::2, 1:3, ::-1], base.T, base[:0], base[0, :1], moved[::-2], base[2, 3, 4:5]):
        assert targets_of(x)[0] is x


def test_results_that_are_views_of_other_targets_are_read_first() -> None:
    x = np.arange(4, dtype=np.float32)
    # The second result is what the first is written into.
    out = np.empty(4, np.float32)
    found = put((np.full(4, 7, np.float32), x[::-1]), targets_of((x, out)))
    assert found[0] is x and (x == 7).all()
    np.testing.assert_array_equal(out, [3, 2, 1, 0])
    # They change places.
    a, b = np.zeros(3), np.ones(3)
    put((b, a), targets_of((a, b)))
    assert (a == 1).all() and (b == 0).all()
    # A result that is returned as it is does not change either.
    x = np.arange(4, dtype=np.float32)
    found = put((np.full(4, 7, np.float32), x[1:]), targets_of((x, None)))
    np.testing.assert_array_equal(found[1], [1, 2, 3])
