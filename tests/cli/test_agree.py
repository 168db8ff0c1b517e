"""What counts as the same: rounding does, anything else is named."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpujit.cli.agree import Bounds, called, difference_table, differences, problems
from gpujit.ir.values import QTensor, SparseTensor

F = np.float32


def one(got: Any, wanted: Any, **bounds: float) -> Any:
    (found,) = differences(got, wanted, Bounds(**bounds))
    return found


def test_distances() -> None:
    d = one(np.array([1.0, 2.0, 0.5], F), np.array([1.0, 2.5, 0.0], F))
    assert (d.output, d.dtype, d.shape, d.max_abs, d.of_largest) == ("out", "float32", "3", 0.5, 0.2)
    assert d.max_relative == float("inf")
    assert d.problem == "2 of 3 numbers, first out[1]: 2.0 and 2.5"


@pytest.mark.parametrize(
    ("got", "wanted", "is_fine"),
    [
        (np.array([1.0, 1e-4], F), np.array([1.0, 0.0], F), True),
        (np.array([1.0, 1e-2], F), np.array([1.0, 0.0], F), False),
        (np.array([np.nan, np.inf, -np.inf], F), np.array([np.nan, np.inf, -np.inf], F), True),
        (np.array([np.nan], F), np.array([1.0], F), False),
        (np.array([np.inf], F), np.array([-np.inf], F), False),
        (np.array([1.0], F), np.array([np.inf], F), False),
        (np.array([1], np.int64), np.array([1], np.int64), True),
        (np.array([10**6], np.int64), np.array([10**6 + 1], np.int64), False),
        (np.array([2**62], np.int64), np.array([2**62 + 1], np.int64), False),
        (np.array([True]), np.array([False]), False),
        (np.array([1.0]), np.array([1.0 + 1e-6]), False),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16), True),
        (np.array([1 + 1j]), np.array([1 + 1.001j]), False),
        (np.zeros((0, 2), F), np.zeros((0, 2), F), True),
        (np.array(1.0, F), np.array([1.0], F), False),
        (np.array([1.0], F), np.array([1.0]), False),
        (1.0, 1.0, True),
        (1.0, 1.1, False),
        (1, True, False),
        ("a", "a", True),
        ("a", "b", False),
        (None, None, True),
        (None, np.zeros(1), False),
    ],
)
def test_what_agrees(got: Any, wanted: Any, is_fine: bool) -> None:
    assert one(got, wanted).is_fine is is_fine, one(got, wanted).problem


def test_bounds_may_be_given() -> None:
    got, wanted = np.array([1.1, 100.0], F), np.array([1.0, 100.0], F)
    assert not one(got, wanted, rtol=1e-3, atol=0.0).is_fine
    assert one(got, wanted, rtol=0.11, atol=0.0).is_fine
    assert one(got, wanted, rtol=0.0, atol=0.11).is_fine
    assert one(np.array([1]), np.array([3]), atol=2.0).is_fine
    # Without a bound of its own, a share of the largest number.
    assert one(got, wanted, rtol=1.1e-3).is_fine


def test_mismatches_are_named() -> None:
    assert one(np.zeros((2, 3), F), np.zeros((3, 2), F)).problem == "shapes 2x3 and 3x2"
    assert one(np.zeros(2, np.float16), np.zeros(2, F)).problem == "dtypes float16 and float32"
    assert one([1], [1]).output == "out[0]"
    names = [(d.output, d.problem) for d in differences({"a": 1, "b": 2}, {"a": 1, "c": 2})]
    assert names == [
        ("out['a']", ""),
        ("out['c']", "only one of the two has it"),
        ("out['b']", "only one of the two has it"),
    ]


def test_quantised_and_sparse_tensors() -> None:
    a = QTensor(np.array([1, 2], np.int8), 12, 0.5, 0)
    assert one(a, QTensor(np.array([1, 2], np.int8), 12, 0.5, 0)).is_fine
    assert one(a, QTensor(np.array([1, 2], np.int8), 12, 0.25, 0)).problem == "scales or zero points differ"
    assert not one(a, QTensor(np.array([1, 3], np.int8), 12, 0.5, 0)).is_fine
    s = SparseTensor(1, (np.zeros((1, 1), np.int64), np.ones(1, F)), (3,))
    assert one(s, SparseTensor(1, (np.zeros((1, 1), np.int64), np.ones(1, F)), (3,))).is_fine
    assert not one(s, SparseTensor(1, (np.zeros((1, 1), np.int64), np.full(1, 2, F)), (3,))).is_fine


def test_inputs_are_not_written_into() -> None:
    given = [np.zeros(2, F), [np.zeros(1, F)]]

    def write(x: Any, parts: Any) -> Any:
        x += 1
        parts[0] += 1
        return x

    assert called(write, given, 0)[0] == 1 and given[0][0] == 0 and given[1][0] == 0


def test_for_people() -> None:
    found = differences((np.ones(1, F), "\x1b"), (np.zeros(1, F), "b"))
    lines = difference_table(found).split("\n")
    assert lines[0].split() == ["output", "dtype", "shape", "max", "abs", "max", "rel"]
    assert lines[1].split() == ["out[0]", "float32", "1", "1", "inf", "MISMATCH"]
    assert problems(found)[1] == "out[1]: '\\x1b' and 'b'"
