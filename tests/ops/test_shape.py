"""Joining, repeating and rearranging: values, promotion, layout, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.memory.shape  # noqa: F401  # declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run

BF16 = ml_dtypes.bfloat16
M = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.array([1, 2])
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
NC = X.transpose(2, 0, 1)
CL = np.ascontiguousarray(np.arange(120, dtype=np.float32).reshape(2, 4, 5, 3)).transpose(0, 3, 1, 2)

VALUES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten::cat", ([V, V],), [1, 2, 1, 2]),
    ("aten::cat", ([M, M[:, :1]], -1), [[0, 1, 2, 0], [3, 4, 5, 3]]),
    ("aten::concat", ([V, V],), [1, 2, 1, 2]),
    ("aten::concatenate", ([V, V],), [1, 2, 1, 2]),
    ("aten::stack", ([V, V], 1), [[1, 1], [2, 2]]),
    ("aten::stack", ([np.array(1), np.array(2)],), [1, 2]),
    ("aten::hstack", ([V, V],), [1, 2, 1, 2]),
    ("aten::hstack", ([M, M[:, :1]],), [[0, 1, 2, 0], [3, 4, 5, 3]]),
    ("aten::vstack", ([V, V],), [[1, 2], [1, 2]]),
    ("aten::row_stack", ([V, V],), [[1, 2], [1, 2]]),
    ("aten::dstack", ([V, V],), [[[1, 1], [2, 2]]]),
    ("aten::column_stack", ([V, V],), [[1, 1], [2, 2]]),
    ("aten::repeat", (V, [2, 2]), [[1, 2, 1, 2], [1, 2, 1, 2]]),
    ("aten::tile", (M, [2]), [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]]),
    ("aten::repeat_interleave.Tensor", (np.array([1, 0, 2]),), [0, 2, 2]),
    ("aten::repeat_interleave.self_int", (V, 2), [1, 1, 2, 2]),
    ("aten::repeat_interleave.self_Tensor", (M, np.array([2, 1]), 0), [[0, 1, 2], [0, 1, 2], [3, 4, 5]]),
    ("aten::roll", (M, [1], [1]), [[2, 0, 1], [5, 3, 4]]),
    ("aten::roll", (M, [2]), [[4, 5, 0], [1, 2, 3]]),
    ("aten::flip", (M, [0, -1]), [[5, 4, 3], [2, 1, 0]]),
    ("aten::fliplr", (M,), [[2, 1, 0], [5, 4, 3]]),
    ("aten::flipud", (M,), [[3, 4, 5], [0, 1, 2]]),
    ("aten::rot90", (M,), [[2, 5], [1, 4], [0, 3]]),
    ("aten::rot90", (M, -1), [[3, 0], [4, 1], [5, 2]]),
    ("aten::_chunk_cat", ([np.array([1, 2, 3]), np.array([4])], 0, 2), [[1, 2, 4], [3, 0, 0]]),
]


@pytest.mark.parametrize(("name", "args", "want"), VALUES, ids=lambda v: v if isinstance(v, str) else "")
def test_values(name: str, args: tuple[Any, ...], want: Any) -> None:
    got = run(name, *args)
    assert type(got) is np.ndarray and got.tolist() == want
    against_torch(name, *args)


TORCH: list[tuple[str, tuple[Any, ...]]] = [
    ("aten::cat", ([M, np.array([], np.float32), M.astype(np.float64)], 0)),
    ("aten::cat", ([np.array([True]), np.array([2], np.uint8), np.array([-3], np.int8)],)),
    ("aten::cat", ([np.array([1.5], np.float16), np.array([2.5], BF16)],)),
    ("aten::cat", ([np.array([1], np.int64), np.array([2.5], BF16)],)),
    ("aten::cat", ([NC, NC], 1)),
    ("aten::cat", ([CL, CL], 1)),
    ("aten::cat", ([CL, np.ascontiguousarray(CL)], 1)),
    ("aten::cat", ([np.empty((0, 3), np.float32), M],)),
    ("aten::cat", ([np.empty((0,), np.float32)],)),
    ("aten::stack", ([NC, NC], -1)),
    ("aten::stack", ([np.array(1), np.array(2.5, BF16)],)),
    ("aten::dstack", ([np.array(1), np.array(2)],)),
    ("aten::dstack", ([M, M],)),
    ("aten::column_stack", ([V, M.astype(np.int64)],)),
    ("aten::hstack", ([np.array(1), np.array(2)],)),
    ("aten::repeat", (np.array(3), [2])),
    ("aten::repeat", (NC, [1, 2, 0, 2][1:])),
    ("aten::repeat", (M.astype(BF16), [1, 1])),
    ("aten::repeat", (np.array(3), [])),
    ("aten::tile", (X, [2, 1, 1, 2])),
    ("aten::repeat_interleave.self_int", (X, 2, -2)),
    ("aten::repeat_interleave.self_Tensor", (X, np.array([2]), 1)),
    ("aten::repeat_interleave.self_Tensor", (X, np.array(3), None)),
    ("aten::roll", (X, [1, -5], [0, 2])),
    ("aten::roll", (CL, [1, 1], [2, 3])),
    ("aten::roll", (np.empty((0, 2)), [1], [0])),
    ("aten::roll", (NC, [0], [1])),
    ("aten::flip", (CL, [2])),
    ("aten::flip", (NC, [])),
    ("aten::flip", (np.array(2.0), [0])),
    ("aten::flip", (X.astype(BF16), [1])),
    ("aten::rot90", (X, 2, [0, 2])),
    ("aten::rot90", (X, 3, [1, 2])),
    ("aten::rot90", (X, 4, [1, 2])),
    ("aten::_chunk_cat", ([X, X[:, :, :1]], 1, 2)),
    *(
        ("aten::pad_sequence", ([X, X[:1], X[:0]], batch_first, -1.5, side))
        for batch_first in (False, True)
        for side in ("left", "right")
    ),
]


@pytest.mark.parametrize(("name", "args"), TORCH, ids=lambda v: v if isinstance(v, str) else "")
def test_against_torch(name: str, args: tuple[Any, ...]) -> None:
    against_torch(
        name, *args, strides=name in ("aten::cat", "aten::stack", "aten::flip", "aten::repeat") and got_size(name, args)
    )


def got_size(name: str, args: tuple[Any, ...]) -> bool:
    """Strides of empty tensors say nothing."""
    return bool(run(name, *args).size)


def test_nothing_returned_shares_memory() -> None:
    for name, args in (
        ("aten::cat", ([M],)),
        ("aten::repeat", (M, [1, 1])),
        ("aten::tile", (M, [])),
        ("aten::roll", (M, [0], [0])),
        ("aten::rot90", (M, 0)),
        ("aten::flip", (M, [])),
    ):
        assert not np.shares_memory(run(name, *args), M), name


def test_out_form() -> None:
    out = np.empty((4, 3), np.float64)
    assert run("aten::cat.out", [M, M], 0, out) is out and out[2].tolist() == [0, 1, 2]


ERRORS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("aten::cat", ([],), ShapeError, "aten::cat: at least one tensor"),
    ("aten::cat", ([np.array(1)],), ShapeError, "0-dim tensors can't be joined"),
    ("aten::cat", ([M, X],), ShapeError, "must agree in all dims but dim 0"),
    ("aten::cat", ([M, M[:, :2]],), ShapeError, "must agree"),
    ("aten::cat", ([M], 2), ShapeError, "dim 2 is out of range"),
    ("aten::stack", ([M, V],), ShapeError, "must have one shape"),
    ("aten::vstack", ([],), ShapeError, "aten::vstack: at least one"),
    ("aten::repeat", (M, [2]), ShapeError, "fewer than the 2 dims"),
    ("aten::repeat", (M, [-1, 1]), ShapeError, "must not be negative"),
    ("aten::repeat_interleave.self_int", (M, -1), ShapeError, "negative"),
    (
        "aten::repeat_interleave.self_Tensor",
        (M, np.array([1, 2, 3]), 0),
        ShapeError,
        "3 repeats don't fit dim 0 of size 2",
    ),
    ("aten::repeat_interleave.self_Tensor", (M, np.array([1.0, 2.0]), 0), DTypeError, "int32 or int64"),
    ("aten::repeat_interleave.self_int", (M, 2, 0, 5), ShapeError, "output_size 5 is not 4"),
    ("aten::roll", (M, [1, 1], [0]), ShapeError, "must have one length"),
    ("aten::flip", (M, [0, 0]), ShapeError, "name a dim twice"),
    ("aten::fliplr", (V,), ShapeError, "at least 2 dims"),
    ("aten::rot90", (M, 1, [0, 0]), ShapeError, "name a dim twice"),
    ("aten::pad_sequence", ([], False, 0.0, "right"), ShapeError, "at least one sequence"),
    ("aten::pad_sequence", ([X, X[:, :1]], False, 0.0, "right"), ShapeError, "may differ in their first size alone"),
    ("aten::pad_sequence", ([X], False, 0.0, "top"), OpError, "expected 'left' or 'right'"),
]


@pytest.mark.parametrize(("name", "args", "error", "message"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(name, *args)
