"""Sorting as steps on a GPU beside the interpreter: order, ties, NaN, layouts, long rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.dtypes import BFLOAT16
from gpujit.kernels.cuda_templates import sort
from tests.static_runtime.device_help import calls, check, step_for, turned
from tests.static_runtime.help import f32

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1.0, -np.nan, 1e-40, -1e-40, 0.0, 2.0, -0.0]


def sample(dtype: Any, *shape: int) -> np.ndarray:
    """Numbers of which some are equal; of floats, all that are special."""
    dtype, count = np.dtype(dtype), int(np.prod(shape))
    rng = np.random.default_rng(count)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return rng.choice(np.array([low, high, 0, 1, 5, high - 1], dtype), shape)
    found = np.where(rng.random(count) < 0.5, rng.choice(SPECIAL, count), rng.standard_normal(count))
    return found.astype(dtype).reshape(shape)


TYPES = ["float32", "float64", "float16", BFLOAT16, "int64", "int32", "int16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sorts_of_all_types(dtype: Any) -> None:
    assert calls(check("aten::sort", [sample(dtype, 16), -1, len(str(dtype)) % 2 == 0])) == "l"


OPERATORS: list[tuple[str, list[Any], str]] = [
    ("aten::sort", [sample("f4", 3, 5, 2), 1, True], "l"),
    ("aten::sort.stable", [sample("f4", 9), True, 0, True], "l"),
    ("aten::sort", [turned(sample("f4", 4, 6)), 0, False], "ll"),
    ("aten::sort", [np.broadcast_to(sample("f4", 1, 6), (3, 6)), -1, False], "ll"),
    ("aten::sort", [sample("f4", 5, 1), 1, False], "l"),
    ("aten::sort", [np.array(3, np.float32), -1, False], "l"),
    ("aten::argsort", [sample("i8", 4, 9), -1, True], "l"),
    ("aten::argsort.stable", [sample("f2", 9), False, 0, False], "l"),
    ("aten::msort", [sample("f4", 9, 2)], "l"),
    ("aten::topk", [sample("f4", 2, 17), 17, 1, False, True], "l"),
    ("aten::topk", [sample("f4", 7, 3), 2, 0, True, False], "l"),
    ("aten::topk", [f32(4, 3), 0, 1, True, True], ""),
    ("aten::sort", [f32(0, 3), 1, True], ""),
    ("aten::sort", [f32(3, 0), 1, True], ""),
]


@pytest.mark.parametrize("number", range(len(OPERATORS)))
def test_operators_that_sort(number: int) -> None:
    name, arguments, wanted = OPERATORS[number]
    assert calls(check(name, arguments)) == wanted


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("n", [9, 20, 32])
def test_rows_of_several_tiles(dtype: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "MOST_TILE", 8)
    is_turned = n == 20
    x = sample(dtype, n, 2) if is_turned else sample(dtype, 2, n)
    assert set(calls(check("aten::topk", [x, n - 2, 0 if is_turned else 1, dtype == "int64", True]))) == {"l"}


def test_what_is_not_sorted_on_the_device() -> None:
    assert step_for("aten::sort", [np.broadcast_to(f32(1), (1 << 18) + 1), 0, False]) is None
