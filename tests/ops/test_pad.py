"""Padding against index formulas and PyTorch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpujit.ops.families.layers.pad  # noqa: F401  # importing declares the entries
from gpujit.support.errors import OpError, ShapeError
from tests.ops.check import against_torch, assert_same, run

ROW = np.array([[1, 2, 3, 4]], np.float32)
DTYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8, np.float16, ml_dtypes.bfloat16, np.complex64]
NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize(
    ("pads", "mode", "value", "want"),
    [
        ([1, 2], "constant", None, [0, 1, 2, 3, 4, 0, 0]),
        ([1, 2], "constant", 7.0, [7, 1, 2, 3, 4, 7, 7]),
        ([-1, 2], "constant", 7.0, [2, 3, 4, 7, 7]),
        ([-1, -2], "constant", None, [2]),
        ([2, 3], "reflect", None, [3, 2, 1, 2, 3, 4, 3, 2, 1]),
        ([0, 3], "reflect", None, [1, 2, 3, 4, 3, 2, 1]),
        ([-1, 2], "reflect", None, [2, 3, 4, 3, 2]),
        ([2, 1], "replicate", None, [1, 1, 1, 2, 3, 4, 4]),
        ([2, -3], "replicate", None, [1, 1, 1]),
        ([2, 1], "circular", None, [3, 4, 1, 2, 3, 4, 1]),
        ([4, 0], "circular", None, [1, 2, 3, 4, 1, 2, 3, 4]),
        ([-1, 2], "circular", None, [2, 3, 4, 2, 3]),
        ([0, 0], "reflect", None, [1, 2, 3, 4]),
    ],
)
def test_one_dim(pads: list[int], mode: str, value: float | None, want: list[float]) -> None:
    """Explicit rows; the result never shares memory with the input."""
    got = run("aten::pad", ROW, pads, mode, value)
    assert got.tolist() == [want]
    assert not np.shares_memory(got, ROW)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pads"), [((2, 3, 4, 5), [2, 1, 3, 0]), ((3, 4, 5), [0, 2, 1, 2]), ((2, 3, 4, 5, 3), [1, 2, 0, 3, 2, 2])]
)
def test_edges_follow_numpy(mode: str, shape: Any, pads: list[int]) -> None:
    """NumPy's pad is the oracle; each mode also has operators and a number of its own."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    rank = len(pads) // 2
    pairs = [(0, 0)] * (len(shape) - rank) + [(pads[2 * i], pads[2 * i + 1]) for i in reversed(range(rank))]
    want = np.pad(x, pairs, mode=NUMPY_MODES[mode])
    assert_same(run("aten::pad", x, pads, mode), want)
    number = ["constant", "reflect", "replicate", "circular"].index(mode)
    assert_same(run("aten::_pad_enum", x, pads, number), want)
    if mode == "circular":
        assert_same(run("aten::_pad_circular", x, pads), want)
    else:
        name = f"aten::{'reflection' if mode == 'reflect' else 'replication'}_pad{rank}d"
        assert_same(run(name, x, pads), want)
        target = np.empty_like(want)
        assert run(f"{name}.out", x, pads, target) is target
        assert_same(target, want)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.float16, ml_dtypes.bfloat16, np.complex64]
)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_against_torch(mode: str, dtype: Any) -> None:
    """Dtypes, ranks, views and an empty batch."""
    x = np.arange(120).reshape(2, 3, 4, 5).astype(dtype)
    for y, pads in ((x, [1, 2, 3, 0]), (x.swapaxes(1, 2), [1, 0, 2, 2]), (x[0, 0], [2, 3]), (x[:0], [1, 1, 1, 1])):
        against_torch("aten::pad", y, pads, mode)
    if mode != "circular":
        against_torch("aten::pad", x, [-1, 2, 1, -2], mode)


@pytest.mark.parametrize("value", [0, 3, -1.5, True, float("nan"), float("inf"), -0.0])
def test_constant_values(value: Any) -> None:
    """Any number, the sign of zero included; every rank."""
    for shape, pads in (((), []), ((3,), [1, 2]), ((2, 0, 3), [0, 1, 2, 0]), ((2, 3), [-1, -1, 1, 1])):
        x = np.ones(shape, np.float32)
        against_torch("aten::constant_pad_nd", x, pads, value)
        got = run("aten::constant_pad_nd", x, pads, value)
        assert got is not x and not np.shares_memory(got, x)
    assert np.signbit(run("aten::constant_pad_nd", ROW, [1, 0], -0.0)[0, 0])
    assert not np.signbit(run("aten::constant_pad_nd", ROW, [1, 0], 0.0)[0, 0])
    assert run("aten::constant_pad_nd", np.array([True]), [1, 0], 1).tolist() == [True, True]
    assert run("aten::constant_pad_nd", np.array([5]), [1, 0], 1.5).tolist() == [1, 5]


@pytest.mark.parametrize(
    ("x", "pads", "mode", "value", "error", "message"),
    [
        (
            ROW,
            [4, 0],
            "reflect",
            None,
            ShapeError,
            r"padding \(4, 0\) of dim 1 is too large, reflect padding of 4 elements allows 3",
        ),
        (ROW[None], [0, 5, 0, 0], "circular", None, ShapeError, "circular padding of 4 elements allows 4"),
        (ROW, [1], "constant", None, ShapeError, "pad has 1 numbers, expected an even number"),
        (ROW, [1] * 6, "constant", None, ShapeError, "pad has 6 numbers, at most 4 fit"),
        (ROW, [-3, -2], "constant", None, ShapeError, r"pad \(-3, -2\) takes more than the 4 elements of dim 1"),
        (ROW, [-3, -1], "reflect", None, ShapeError, "leaves nothing of the 4 elements"),
        (ROW, [1, 1, 1, 1], "reflect", None, ShapeError, r"input \[1, 4\] and 4 numbers of reflect padding do not fit"),
        (ROW[:, :0], [1, 1], "replicate", None, ShapeError, "has an empty dim besides the batch"),
        (ROW, [1, 1], "mirror", None, OpError, "mode is 'mirror', expected one of constant, reflect"),
        (ROW, [1, 1], "reflect", 2.0, OpError, "mode 'reflect' takes no value, found 2.0"),
        (
            ROW.astype(np.int32),
            [1, 1],
            "constant",
            float("inf"),
            OpError,
            "value inf does not fit the input's dtype int32",
        ),
        (ROW.astype(np.uint8), [1, 1], "constant", 256.0, OpError, "value 256.0 does not fit the input's dtype uint8"),
    ],
)
def test_refusals(x: Any, pads: Any, mode: str, value: Any, error: Any, message: str) -> None:
    """What does not fit is refused with the numbers found and allowed."""
    with pytest.raises(error, match=message):
        run("aten::pad", x, pads, mode, value)


def test_refused_numbers_of_modes() -> None:
    """Modes by number have a range; operators by rank a count."""
    with pytest.raises(OpError, match="mode is 4, expected 0 to 3"):
        run("aten::_pad_enum", ROW, [1, 1], 4)
    with pytest.raises(ShapeError, match="padding has 3 numbers, expected 4"):
        run("aten::reflection_pad2d", ROW[None], [1, 1, 1])
