"""Indexing, scattering, embeddings and searching: values, broadcasting, writes in place, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.embedding  # declares the entries
import gpujit.ops.families.memory.indexing
import gpujit.ops.families.memory.scatter
import gpujit.ops.families.rows.search  # noqa: F401
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run

BF16 = ml_dtypes.bfloat16
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
M = np.arange(6, dtype=np.float32).reshape(2, 3)
INDEX = np.array([1, 0, -1])
MASK = X % 3 == 1
NC = X.transpose(2, 0, 1)
RNG = np.random.RandomState(0)


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# name, arguments, values that must come back
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::index.Tensor", (M, [ids(1, -2)]), [[3, 4, 5], [0, 1, 2]]),
    ("aten::index.Tensor", (M, [None, ids(2)]), [[2], [5]]),
    ("aten::index.Tensor", (M, [M > 3]), [4, 5]),
    ("aten::index.Tensor", (M, [np.array(1)]), [3, 4, 5]),
    ("aten::index.Tensor", (M, [np.array(1), np.array(2)]), 5),
    ("aten::index.Tensor", (M, [np.array([1, 0], np.uint8)]), [[0, 1, 2]]),
    ("aten::index_put", (M, [ids(0)], np.array(9, np.float32)), [[9, 9, 9], [3, 4, 5]]),
    ("aten::index_put", (M, [ids(0, 0)], np.ones(3, np.float32), True), [[2, 3, 4], [3, 4, 5]]),
    ("aten::index_put", (M, [None, ids(1, 1)], np.ones((2, 2), np.float32), True), [[0, 3, 2], [3, 6, 5]]),
    ("aten::index_put", (M, [M > 4], np.ones(1, np.float32), True), [[0, 1, 2], [3, 4, 6]]),
    ("aten::index_select", (M, 1, ids(2, 0)), [[2, 0], [5, 3]]),
    ("aten::index_select", (M, 0, np.array(1)), [[3, 4, 5]]),
    ("aten::gather", (M, 1, ids(2, 1, 0, 0).reshape(2, 2)), [[2, 1], [3, 3]]),
    ("aten::gather", (M, 0, ids(1, 0).reshape(1, 2)), [[3, 1]]),
    ("aten::scatter.src", (M, 1, ids(2, 0).reshape(2, 1), -np.ones((2, 3), np.float32)), [[0, 1, -1], [-1, 4, 5]]),
    ("aten::scatter.value", (M, 0, ids(0, 1, 0).reshape(1, 3), 7), [[7, 1, 7], [3, 7, 5]]),
    ("aten::scatter.reduce", (M, 1, ids(1, 1).reshape(2, 1), M, "multiply"), [[0, 0, 2], [3, 12, 5]]),
    ("aten::scatter.value_reduce", (M, 1, ids(0, 0, 0, 0).reshape(2, 2), 2, "add"), [[4, 1, 2], [7, 4, 5]]),
    ("aten::scatter_add", (M, 1, ids(0, 0, 0, 1, 1, 1).reshape(2, 3), M), [[3, 1, 2], [3, 16, 5]]),
    ("aten::scatter_reduce.two", (ids(1, 2, 3), 0, ids(0, 0, 2), ids(5, 4, 1), "amax", False), [5, 2, 1]),
    ("aten::scatter_reduce.two", (ids(1, 2, 3), 0, ids(0, 0), ids(5, 4), "mean", True), [3, 2, 3]),
    ("aten::scatter_reduce.two", (ids(1, 2, 3), 0, ids(0, 0), ids(5, 4), "prod", True), [20, 2, 3]),
    (
        "aten::index_add",
        (
            M,
            0,
            ids(1, 1),
            M,
        ),
        [[0, 1, 2], [6, 9, 12]],
    ),
    ("aten::index_copy", (M, 1, ids(2), -np.ones((2, 1), np.float32)), [[0, 1, -1], [3, 4, -1]]),
    ("aten::index_fill.int_Scalar", (M, 1, ids(0), 8), [[8, 1, 2], [8, 4, 5]]),
    ("aten::index_fill.int_Tensor", (M, 0, ids(1), np.array(8)), [[0, 1, 2], [8, 8, 8]]),
    ("aten::index_reduce", (M, 0, ids(1, 1), M, "amin"), [[0, 1, 2], [0, 1, 2]]),
    (
        "aten::index_reduce",
        (
            M,
            0,
            ids(1, 1),
            M,
            "mean",
        ),
        [[0, 1, 2], [2, 3, 4]],
    ),
    ("aten::take", (M, ids(-1, 0)), [5, 0]),
    ("aten::take_along_dim", (M, ids(2, 0).reshape(2, 1), 1), [[2], [3]]),
    ("aten::take_along_dim", (M, ids(4), None), [4]),
    ("aten::put", (M, ids(0, -1), np.array([9, 8], np.float32)), [[9, 1, 2], [3, 4, 8]]),
    ("aten::put", (M, ids(0, 0), np.array([9, 8], np.float32), True), [[17, 1, 2], [3, 4, 5]]),
    ("aten::masked_select", (M, np.array([True, False, True])), [0, 2, 3, 5]),
    (
        "aten::masked_scatter",
        (M, np.array([True, False, True]), ids(9, 8, 7, 6, 5).astype(np.float32)),
        [[9, 1, 8], [7, 4, 6]],
    ),
    ("aten::nonzero", (np.array([[0, 2], [3, 0]]),), [[0, 1], [1, 0]]),
    ("aten::argwhere", (np.array([np.nan, 0.0, -0.0]),), [[0]]),
    ("aten::nonzero_static", (ids(0, 1, 1), 3, -1), [[1], [2], [-1]]),
    ("aten::select_scatter", (M, np.zeros(3, np.float32), 0, -1), [[0, 1, 2], [0, 0, 0]]),
    ("aten::slice_scatter", (M, np.zeros((2, 2), np.float32), 1, 0, None, 2), [[0, 1, 0], [0, 4, 0]]),
    ("aten::diagonal_scatter", (M, np.array([9, 9], np.float32), 1), [[0, 9, 2], [3, 4, 9]]),
    ("aten::as_strided_scatter", (M, np.array([9, 9], np.float32), [2], [5]), [[9, 1, 2], [3, 4, 9]]),
    ("aten::embedding", (M, ids(1, 1, 0).reshape(3, 1)), [[[3, 4, 5]], [[3, 4, 5]], [[0, 1, 2]]]),
    ("aten::bucketize.Tensor", (ids(0, 3, 4, 9), ids(1, 3, 5)), [0, 1, 2, 3]),
    ("aten::bucketize.Tensor", (ids(0, 3, 4, 9), ids(1, 3, 5), False, True), [0, 2, 2, 3]),
    ("aten::bucketize.Scalar", (3, ids(1, 3, 5)), 1),
    (
        "aten::searchsorted.Tensor",
        (ids(1, 3, 5, 2, 4, 6).reshape(2, 3), ids(3, 6, 3, 6).reshape(2, 2)),
        [[1, 3], [1, 2]],
    ),
    ("aten::searchsorted.Tensor", (ids(5, 1, 3), ids(3), False, False, "right", ids(1, 2, 0)), [2]),
    ("aten::isin.Tensor_Tensor", (ids(1, 2, 3), ids(2, 5)), [False, True, False]),
    ("aten::isin.Tensor_Scalar", (ids(1, 2, 3), 3, False, True), [True, True, False]),
    ("aten::isin.Scalar_Tensor", (7, np.arange(30)), True),
]


@pytest.mark.parametrize(("name", "args", "want"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_values(name: str, args: tuple[Any, ...], want: Any) -> None:
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    got = run(name, *args)
    assert type(got) is np.ndarray and got.tolist() == want
    assert not np.shares_memory(got, args[0]) if isinstance(args[0], np.ndarray) else True
    for a, b in zip(args, before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
    against_torch(name, *args)


def test_where_gives_one_index_for_each_dim() -> None:
    for name in ("aten::where", "aten::nonzero_numpy"):
        assert [i.tolist() for i in run(name, np.array([[0, 1], [1, 0]]))] == [[0, 1], [1, 0]]
        against_torch(name, np.array(True))


def _scattered(
    name: str, *rest: Any, dtype: Any = np.float32, index: np.ndarray | None = None
) -> tuple[str, tuple[Any, ...]]:
    index = RNG.randint(0, 2, (2, 3, 4)) if index is None else index
    return name, ((X % 7 - 3).astype(dtype), 0, index, (X % 5 - 2).astype(dtype), *rest)


TORCH: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::index.Tensor", (X, [ids(1, 0), None, ids(3, -1)])),
    ("aten::index.Tensor", (X, [None, ids(1, 0).reshape(2, 1), ids(3, 2, 1)])),
    ("aten::index.Tensor", (X, [None, np.array([True, False, True]), ids(0, 3)])),
    ("aten::index.Tensor", (X, [MASK[:, :, 0], None])),
    ("aten::index.Tensor", (NC, [ids(3, 1).reshape(1, 2)])),
    ("aten::index.Tensor", (NC, [np.array(1), None, np.array(0)])),
    ("aten::index.Tensor", (X, [np.empty(0, np.int64)])),
    ("aten::index.Tensor", (X.astype(BF16), [ids(1), ids(2)])),
    ("aten::_unsafe_index.Tensor", (X > 3, [None, np.array([1, 2], np.int32)])),
    ("aten::index_put_", (X.copy(), [ids(1), None, ids(2)], np.array([[5, 6, 7]], np.float32))),
    ("aten::index_put_", (NC.copy(order="K"), [ids(1, 1), ids(0, 0)], np.ones(3, np.float32), True)),
    ("aten::index_put_", (X.astype(np.float16), [ids(1, 1)], np.full((3, 4), 0.1, np.float16), True)),
    ("aten::index_put_", (X.astype(BF16), [MASK], np.zeros((), BF16))),
    ("aten::index_put_", (ids(0, 0, 0), [ids(-1, -1)], ids(2, 3), True)),
    ("aten::_index_put_impl_", (X.copy(), [MASK], np.zeros(1, np.float32), True)),
    ("aten::index_select", (np.array(3.0), 0, ids(0))),
    ("aten::index_select", (NC, -1, np.array([2, 2], np.int32))),
    ("aten::gather", (NC, 1, ids(1, 0, 1, 1).reshape(2, 1, 2))),
    ("aten::gather", (np.array(3.0), 0, ids(0, 0))),
    ("aten::gather", (X, 2, np.empty((2, 0, 4), np.int64))),
    ("aten::scatter_.src", (NC.copy(order="K"), 2, ids(2, 0, 1, 1).reshape(2, 2, 1), NC)),
    ("aten::scatter_.value", (X.astype(np.uint8), 1, ids(1, 2).reshape(1, 2, 1), 300 - 45)),
    ("aten::scatter_.reduce", (X.copy(), 1, ids(1, 2).reshape(1, 2, 1), X, "add")),
    ("aten::scatter_add_", (NC.copy(order="K"), 2, ids(2, 2).reshape(1, 1, 2), NC)),
    _scattered("aten::scatter_add", dtype=BF16),
    _scattered("aten::scatter_add", dtype=np.bool_, index=np.zeros((1, 3, 4), np.int64)),
    *[
        _scattered("aten::scatter_reduce.two", how, keep)
        for how in ("sum", "prod", "mean", "amax", "amin")
        for keep in (True, False)
    ],
    *[_scattered("aten::scatter_reduce.two", how, True, dtype=np.int64) for how in ("mean", "amin")],
    _scattered("aten::scatter_reduce_.two", "prod", False, dtype=np.float16),
    *[
        ("aten::index_reduce", (X, 1, ids(2, 0, 2), X + 1, how, keep))
        for how in ("prod", "mean", "amax", "amin")
        for keep in (True, False)
    ],
    ("aten::index_add_", (NC.copy(order="K"), 0, ids(3, 3, 1), X.transpose(2, 0, 1)[:3], 2)),
    ("aten::index_add", (X.astype(BF16), 1, ids(0, 0), X[:, :2].astype(BF16))),
    ("aten::index_add", (np.array(1.0), 0, ids(0), np.array(2.0))),
    ("aten::index_add", (ids(1, 2, 3), 0, ids(0, 0), ids(5, 6), 3)),
    ("aten::index_copy_", (X.copy(), -1, ids(3, 0), X[..., :2])),
    ("aten::index_fill_.int_Scalar", (X.copy(), 1, ids(0, 2), 0.5)),
    ("aten::take", (NC, ids(5, -24).reshape(1, 2))),
    ("aten::take_along_dim", (X, ids(1, 0, 1).reshape(1, 3, 1), 0)),
    ("aten::put_", (NC.copy(order="K"), ids(5, 2), np.array([1, 2], np.float32))),
    ("aten::masked_select", (X, MASK[:1])),
    ("aten::masked_select", (np.array(2.0), np.array([True, True]))),
    ("aten::masked_scatter_", (X.copy(), MASK, X)),
    ("aten::nonzero", (np.array(2.0),)),
    ("aten::nonzero", (X.astype(BF16) > 4,)),
    ("aten::nonzero_static", (MASK, 2)),
    ("aten::embedding", (M.astype(np.float16), np.array(1, np.int32))),
    ("aten::embedding_renorm_", (X[0].copy(), ids(2, 1, 2), 5.0, 2.0)),
    ("aten::embedding_renorm_", (X[0].copy(), ids(0), 2.0, float("inf"))),
    ("aten::bucketize.Tensor", (np.array([np.nan, np.inf, -np.inf, 1.0]), np.array([0.0, 1.0, 2.0]), True)),
    ("aten::bucketize.Tensor", (np.array([np.nan, 1.5]), np.array([0.0, 1.0, np.nan]))),
    ("aten::searchsorted.Tensor", (np.sort(X, -1), X[..., :2] + 0.5, False, True)),
    ("aten::searchsorted.Tensor", (np.array([[0.0, np.nan], [1.0, 2.0]]), np.array([[np.nan, 0.0], [np.nan, 3.0]]))),
    ("aten::searchsorted.Scalar", (np.array([0.0, 1.0]), 1)),
    ("aten::isin.Tensor_Tensor", (np.array([np.nan, 1.0]), np.array([np.nan, 1.0, *range(20)]))),
]


@pytest.mark.parametrize(("name", "args"), TORCH, ids=lambda v: v if isinstance(v, str) else "")
def test_against_torch(name: str, args: tuple[Any, ...]) -> None:
    against_torch(name, *args)


def test_strided_targets_are_written_through() -> None:
    base = np.zeros((3, 4), np.float32)
    for name, args in (
        ("aten::scatter_.value", (0, ids(1, 2).reshape(2, 1), 1.0)),
        ("aten::index_add_", (1, ids(0, 0), np.ones((4, 2), np.float32))),
        ("aten::index_put_", ([ids(3)], np.full(3, 5, np.float32))),
        ("aten::put_", (ids(1), np.full(1, 8, np.float32))),
    ):
        t = base.T
        assert run(name, t, *args) is t
    assert base.tolist() == [[2, 3, 3, 5], [8, 0, 0, 5], [0, 0, 0, 5]]


def test_indexing_matches_numpy_for_random_indices() -> None:
    x = RNG.rand(4, 5, 6)
    for _ in range(50):
        keys: list[np.ndarray | None] = [
            None if RNG.rand() < 0.3 else RNG.randint(-n, n, (3,) if RNG.rand() < 0.5 else (2, 1)) for n in x.shape
        ]
        want = x[tuple(slice(None) if k is None else k for k in keys)]
        np.testing.assert_array_equal(run("aten::index.Tensor", x, keys), want)
        values = RNG.rand(*want.shape)
        ours, theirs = x.copy(), x.copy()
        run("aten::index_put_", ours, keys, values, True)
        np.add.at(theirs, tuple(slice(None) if k is None else k for k in keys), values)
        np.testing.assert_allclose(ours, theirs)


# ------------------------------------------------------------------------------------------------ bags

W = RNG.rand(6, 3).astype(np.float32)
BAG = ids(1, 2, 4, 5, 4, 3, 2)


def loop_bags(
    mode: int, offsets: np.ndarray, padding: int | None = None, weights: np.ndarray | None = None
) -> np.ndarray:
    out = np.zeros((len(offsets), 3), np.float32)
    for i, start in enumerate(offsets):
        end = offsets[i + 1] if i + 1 < len(offsets) else len(BAG)
        picked = [(W[BAG[j]] * (1 if weights is None else weights[j])) for j in range(start, end) if BAG[j] != padding]
        if picked:
            out[i] = (np.sum(picked, 0), np.mean(picked, 0), np.max(picked, 0))[mode]
    return out


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("offsets", [ids(0, 3, 3, 5), ids(0), ids(0, 7), ids(0, 0)], ids=str)
def test_embedding_bag(mode: int, offsets: np.ndarray) -> None:
    got = run("aten::embedding_bag", W, BAG, offsets, False, mode)
    np.testing.assert_allclose(got[0], loop_bags(mode, offsets), rtol=1e-6)
    padded = run("aten::embedding_bag.padding_idx", W, BAG, offsets, False, mode, False, None, False, 4)
    np.testing.assert_allclose(padded[0], loop_bags(mode, offsets, 4), rtol=1e-6)
    torch = pytest.importorskip("torch")
    t = torch.from_numpy
    want = torch.ops.aten.embedding_bag(t(W), t(BAG), t(offsets), False, mode)
    np.testing.assert_allclose(got[0], want[0].numpy(), rtol=1e-6)
    if mode == 2:
        np.testing.assert_array_equal(got[3], want[3].numpy())
    half = run("aten::embedding_bag", W.astype(np.float16), BAG, offsets, False, mode)[0]
    assert half.dtype == np.float16


def test_embedding_bag_weights_and_last_offset() -> None:
    weights = RNG.rand(7).astype(np.float32)
    got = run("aten::embedding_bag", W, BAG, ids(0, 3), False, 0, False, weights)[0]
    np.testing.assert_allclose(got, loop_bags(0, ids(0, 3), None, weights), rtol=1e-6)
    last = run("aten::embedding_bag", W, BAG, ids(0, 3, 7), False, 0, False, None, True)[0]
    np.testing.assert_allclose(last, loop_bags(0, ids(0, 3)), rtol=1e-6)
    assert run("aten::_embedding_bag", W, np.empty(0, np.int64), ids(0))[0].tolist() == [[0, 0, 0]]


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::index.Tensor", (M, [ids(2)]), ShapeError, "aten::index: index 2 is out of range for dim 0 of size 2"),
    ("aten::index.Tensor", (M, [None, ids(0, -4)]), ShapeError, "index -4 is out of range for dim 1 of size 3"),
    ("aten::index.Tensor", (M, [ids(0, 1), ids(0, 1, 2)]), ShapeError, "don't fit together"),
    ("aten::index.Tensor", (M, [np.array([True])]), ShapeError, r"mask of shape \[1\]"),
    ("aten::index.Tensor", (M, [np.array([1.0])]), DTypeError, "int64, int32, bool or uint8"),
    ("aten::index.Tensor", (M, [ids(0)] * 3), ShapeError, "too many"),
    ("aten::index_put_", (M.copy(), [ids(0)], np.ones(3)), DTypeError, "values of dtype float64"),
    ("aten::index_put_", (M.copy(), [ids(0)], np.ones(2, np.float32)), ShapeError, "don't broadcast"),
    ("aten::index_put_", (M.copy(), [ids(5)], np.ones(3, np.float32), True), ShapeError, "index 5 is out of range"),
    (
        "aten::index_select",
        (M, 1, ids(3)),
        ShapeError,
        "aten::index_select: index 3 is out of range for dim 1 of size 3",
    ),
    ("aten::index_select", (M, 1, ids(-1)), ShapeError, "index -1 is out of range"),
    ("aten::embedding", (M, ids(0, 2)), ShapeError, "aten::embedding: index 2 is out of range for dim 0 of size 2"),
    ("aten::embedding", (M, ids(-1)), ShapeError, "index -1"),
    ("aten::embedding", (M, np.array([1.0])), DTypeError, "int64 or int32"),
    ("aten::gather", (M, 1, ids(3).reshape(1, 1)), ShapeError, "index 3 is out of range for dim 1 of size 3"),
    ("aten::gather", (M, 1, np.zeros((3, 1), np.int64)), ShapeError, "reaches outside shape"),
    ("aten::gather", (M, 1, ids(0)), ShapeError, "index has 1 dims, the tensor 2"),
    ("aten::scatter_.src", (M.copy(), 1, np.zeros((2, 2), np.int64), M[:, :1]), ShapeError, "reaches outside"),
    ("aten::scatter_.src", (M.copy(), 1, np.zeros((2, 2), np.int64), M.astype(np.float64)), DTypeError, "src of dtype"),
    ("aten::scatter.reduce", (M, 1, np.zeros((1, 1), np.int64), M, "max"), OpError, "one of add, multiply"),
    ("aten::scatter_reduce.two", (M, 1, np.zeros((1, 1), np.int64), M, "max"), OpError, "amax"),
    ("aten::index_add", (M, 0, ids(0), M), ShapeError, "source has shape"),
    ("aten::index_add", (M, 0, ids(2), M[:1]), ShapeError, "index 2 is out of range"),
    ("aten::index_copy", (M, 0, ids(0), M[:1].astype(np.float64)), DTypeError, "source of dtype"),
    ("aten::take", (M, ids(6)), ShapeError, "index 6"),
    ("aten::put", (M, ids(0), np.ones(2, np.float32)), ShapeError, "as many"),
    ("aten::masked_select", (M, ids(1)), DTypeError, "mask must be bool"),
    ("aten::masked_scatter", (M, M > -1, np.ones(2, np.float32)), ShapeError, "needs 6 elements, the source has 2"),
    ("aten::select_scatter", (M, M, 0, 0), ShapeError, "src has shape"),
    ("aten::bucketize.Tensor", (M, M), ShapeError, "one dim"),
    ("aten::searchsorted.Tensor", (M, np.ones((3, 1), np.float32)), ShapeError, "agree in all dims"),
    ("aten::searchsorted.Tensor", (M[0], ids(1)), DTypeError, "must have one dtype"),
    ("aten::searchsorted.Tensor", (M[0], M, False, True, "left"), OpError, "contradict"),
    ("aten::embedding_bag", (W, BAG, ids(1)), ShapeError, "first offset must be 0"),
    ("aten::embedding_bag", (W, BAG, ids(0, 9)), ShapeError, "exceeds"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    before = args[0].copy()
    with pytest.raises(error, match=message):
        run(name, *args)
    np.testing.assert_array_equal(args[0], before)
