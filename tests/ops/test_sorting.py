"""Sorting, top values and distinct values: order, ties, NaN, dims, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.rows.sorting  # declares the entries
import gpujit.ops.families.rows.unique  # noqa: F401
from gpujit.support.errors import DTypeError, ShapeError
from tests.ops.check import against_torch, run

RNG = np.random.RandomState(0)
X = RNG.permutation(60).reshape(3, 4, 5).astype(np.float32)
NAN = np.array([2.0, np.nan, -np.inf, np.inf, -1.0, np.nan, 0.0])
TIES = np.array([2, 1, 2, 1, 2])

VALUES: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("aten::sort", (TIES,), [[1, 1, 2, 2, 2], [1, 3, 0, 2, 4]]),
    ("aten::sort", (TIES, 0, True), [[2, 2, 2, 1, 1], [0, 2, 4, 1, 3]]),
    ("aten::sort.stable", (TIES, True, -1, True), [[2, 2, 2, 1, 1], [0, 2, 4, 1, 3]]),
    ("aten::sort", (np.array(3.0),), [3.0, 0]),
    ("aten::topk", (np.array([3, 9, 5]), 2), [[9, 5], [1, 2]]),
    ("aten::topk", (np.array([3, 9, 5]), 1, 0, False), [[3], [0]]),
    ("aten::topk", (np.array([3, 9, 5]), 0), [[], []]),
    ("aten::_unique2", (TIES, True, True, True), [[1, 2], [1, 0, 1, 0, 1], [2, 3]]),
    ("aten::_unique2", (TIES,), [[1, 2], [], []]),
    ("aten::_unique", (TIES, True, True), [[1, 2], [1, 0, 1, 0, 1]]),
    ("aten::unique_consecutive", (np.array([1, 1, 2, 1]), True, True), [[1, 2, 1], [0, 0, 1, 2], [2, 1, 1]]),
    (
        "aten::unique_dim",
        (np.array([[1, 2], [0, 5], [1, 2]]), 0, True, True, True),
        [[[0, 5], [1, 2]], [1, 0, 1], [1, 2]],
    ),
    ("aten::unique_dim_consecutive", (np.array([[1, 1, 2]]), 1, True, True), [[[1, 2]], [0, 0, 1], [2, 1]]),
]


@pytest.mark.parametrize(("name", "more"), [("sort", (1, True)), ("argsort", (1,)), ("topk", (0, 1)), ("msort", ())])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 3, 0)])
def test_rows_without_elements(name: str, more: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    if name == "topk" and shape[1]:
        more = (2, 1)
    against_torch(f"aten::{name}", np.zeros(shape, np.float32), *more)


@pytest.mark.parametrize(("name", "args", "want"), VALUES, ids=lambda v: v if isinstance(v, str) else "")
def test_values(name: str, args: tuple[Any, ...], want: list[Any]) -> None:
    got = run(name, *args)
    assert [g.tolist() for g in got] == want
    assert all(type(g) is np.ndarray for g in got) and all(g.dtype == np.int64 for g in got[1:])
    if name != "aten::sort.stable":
        against_torch(name, *args)


def test_argsort_and_msort() -> None:
    assert run("aten::argsort", TIES).tolist() == [1, 3, 0, 2, 4]
    assert run("aten::argsort.stable", TIES, True, 0, True).tolist() == [0, 2, 4, 1, 3]
    assert run("aten::msort", np.array([[3, 0], [1, 2]])).tolist() == [[1, 0], [3, 2]]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.float16, ml_dtypes.bfloat16]
)
def test_sort_agrees_with_torch(dtype: Any, dim: int, descending: bool) -> None:
    against_torch("aten::sort", X.astype(dtype), dim, descending)
    against_torch("aten::sort", X.astype(dtype).transpose(2, 0, 1), dim, descending)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_the_largest_and_ties_keep_their_order(descending: bool) -> None:
    torch = pytest.importorskip("torch")
    want = torch.sort(torch.from_numpy(NAN), stable=True, descending=descending)
    values, order = run("aten::sort.stable", NAN, True, -1, descending)
    np.testing.assert_array_equal(values, want[0].numpy())
    np.testing.assert_array_equal(order, want[1].numpy())
    bools = RNG.rand(100) > 0.5
    want = torch.sort(torch.from_numpy(bools), stable=True, descending=descending)
    np.testing.assert_array_equal(run("aten::sort", bools, -1, descending)[1], want[1].numpy())


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16])
def test_topk_agrees_with_torch(dtype: Any, largest: bool) -> None:
    for dim in (0, 1, -1):
        against_torch("aten::topk", X.astype(dtype), 2, dim, largest)
    big = RNG.permutation(2000).reshape(2, 1000)[:, ::2].astype(np.float32)
    against_torch("aten::topk", big, 5, -1, largest)
    against_torch("aten::topk", big.T, 5, 0, largest)
    spoiled = big[0].copy()
    spoiled[[3, 77]] = np.nan
    assert np.isnan(run("aten::topk", spoiled, 5, -1, largest)[0]).tolist() == (
        [True] * 2 + [False] * 3 if largest else [False] * 5
    )


def test_topk_of_ties_picks_values_that_belong_to_their_indices() -> None:
    x = RNG.randint(0, 5, (3, 500))
    values, order = run("aten::topk", x, 40, -1, True, True)
    np.testing.assert_array_equal(values, -np.sort(-x, axis=-1)[:, :40])
    np.testing.assert_array_equal(np.take_along_axis(x, order, -1), values)
    assert all(len(set(row)) == 40 for row in order.tolist())


UNIQUE: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::_unique2", (RNG.randint(0, 4, (3, 5)), True, True, True)),
    ("aten::_unique2", (NAN, True, True, True)),
    ("aten::_unique2", (np.array([], np.float32), True, True, True)),
    ("aten::_unique2", (np.array(3), True, True, True)),
    ("aten::_unique2", (np.array([True, False, True]), True, True, True)),
    ("aten::_unique2", (np.array([1, 1, 0.5], ml_dtypes.bfloat16), True, True, True)),
    ("aten::unique_dim", (RNG.randint(0, 2, (4, 3, 2)), 0, True, True, True)),
    ("aten::unique_dim", (RNG.randint(0, 2, (2, 6, 2)), 1, True, True, True)),
    ("aten::unique_dim", (RNG.randint(0, 2, (2, 2, 9)).astype(np.float32), -1)),
    ("aten::unique_dim", (np.empty((0, 2)), 0, True, True, True)),
    ("aten::unique_consecutive", (RNG.randint(0, 2, (2, 7)), True, True)),
    ("aten::unique_consecutive", (RNG.randint(0, 2, (2, 7)), True, True, 1)),
    ("aten::unique_consecutive", (np.array([np.nan, np.nan, 1, 1]), True, True)),
]


@pytest.mark.parametrize(("name", "args"), UNIQUE, ids=lambda v: v if isinstance(v, str) else "")
def test_unique_agrees_with_torch(name: str, args: tuple[Any, ...]) -> None:
    against_torch(name, *args)


def test_out_forms_fill_every_output() -> None:
    values, order = np.empty(3), np.empty(3, np.int64)
    got = run("aten::sort.values", np.array([3.0, 1.0, 2.0]), -1, False, values, order)
    assert got[0] is values and got[1] is order
    assert values.tolist() == [1, 2, 3] and order.tolist() == [1, 2, 0]
    got = run("aten::topk.values", np.array([3.0, 1.0, 2.0]), 3, -1, True, True, values, order)
    assert values.tolist() == [3, 2, 1] and got[1].tolist() == [0, 2, 1]
    run("aten::sort.values_stable", np.array([3.0, 1.0, 2.0]), True, -1, False, values, order)
    assert order.tolist() == [1, 2, 0]


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::sort", (X, 3), ShapeError, "aten::sort: dim 3 is out of range"),
    ("aten::sort", (X.astype(np.complex64),), DTypeError, "no order"),
    ("aten::topk", (X, 6), ShapeError, "k 6 is out of range for dim -1 of size 5"),
    ("aten::topk", (X, -1), ShapeError, "k -1"),
    ("aten::_unique2", (X.astype(np.complex64),), DTypeError, "no order"),
    ("aten::unique_dim", (np.array(1), 0), ShapeError, "no slices"),
    ("aten::unique_dim", (np.empty((2, 0)), 0), ShapeError, "can't be told apart"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(name, *args)
