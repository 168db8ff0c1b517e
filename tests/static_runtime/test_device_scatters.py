"""Elements put or added at places on a GPU beside the interpreter: dtypes, repeated places, layouts, bad indexes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.dtypes import BFLOAT16
from gpujit.static_runtime import device_scatters
from tests.static_runtime.device_help import SIMULATED, calls, check, record_programs, run_step, step_for, turned
from tests.static_runtime.help import f32


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the simulator, tile programs run by the NumPy renderer."""
    record_programs(monkeypatch)


def ints(*numbers: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.array(numbers, dtype)


X = f32(4, 3)
ALONG = ints([3, 0, 1], [3, 1, 1])

OPERATORS: list[tuple[str, list[Any]]] = [
    ("aten::scatter_add", [X, 0, ALONG, f32(2, 3, seed=1)]),
    ("aten::scatter_add", [X, -1, ints([2, 2], [0, 2]), f32(3, 5, seed=1)[:, ::2]]),
    ("aten::scatter_add", [turned(X), 0, ALONG.astype(np.int32), turned(f32(3, 3, seed=1))]),
    ("aten::scatter_add", [f32(5), 0, ints(4, 4, 0, 4), f32(4, seed=1)]),
    ("aten::scatter_add", [X, 0, np.zeros((0, 3), np.int64), f32(0, 3)]),
    ("aten::scatter.src", [X, 0, ALONG, f32(2, 3, seed=1)]),
    ("aten::scatter.src", [f32(2, 3, 2), 1, np.zeros((2, 2, 1), np.int64), f32(2, 2, 1, seed=1)]),
    ("aten::scatter.value", [X, 0, ALONG, -1.5]),
    ("aten::scatter.value", [ints(1, 2, 3), 0, ints(2), 7]),
    ("aten::scatter.reduce", [X, 0, ALONG, f32(2, 3, seed=1), "add"]),
    ("aten::scatter.value_reduce", [X, 0, ALONG, 2.0, "add"]),
    ("aten::index_add", [X, 0, ints(3, 0, 3), f32(3, 3, seed=1), 1]),
    ("aten::index_add", [X, 1, ints(2, 2, dtype=np.int32), turned(f32(4, 2, seed=1)), -0.5]),
    ("aten::index_add", [f32(3), 0, ints(1, 1), f32(2, seed=1), 2]),
    ("aten::index_add", [X, 0, np.zeros(0, np.int64), f32(0, 3), 1]),
    ("aten::index_copy", [X, 0, ints(1, 1), f32(2, 3, seed=1)]),
    ("aten::index_fill.int_Scalar", [X, 1, ints(2, 0), 4]),
    ("aten::index_fill.int_Tensor", [X, 1, ints(2, 0), np.array(4, np.float32)]),
    ("aten::index_put", [X, [ints(3, -1, 0)], f32(3, 3, seed=1), True]),
    ("aten::index_put", [X, [ints([3, 0], [3, 3]), ints(0, 1)], f32(1, seed=1), True]),
    ("aten::index_put", [f32(2, 4, 3), [None, ints(3, -1)], f32(2, 2, 3, seed=1), False]),
    ("aten::index_put", [f32(2, 4, 3), [None, ints(3, 3)], f32(2, 1, 1, seed=1), True]),
    ("aten::index_put", [f32(1, 4, 2, 3), [None, ints(0, 3, 0), ints(1, 0, 1)], f32(3, 3, seed=1), False]),
    ("aten::index_put", [X, [None, ints([2], [0])], np.array(4, np.float32), False]),
    ("aten::one_hot", [ints([0, 3], [4, 0]), 5]),
    ("aten::one_hot", [np.array(2, np.int64), 3]),
]


@pytest.mark.parametrize("number", range(len(OPERATORS)))
def test_operators(number: int) -> None:
    name, arguments = OPERATORS[number]
    assert set(calls(check(name, arguments))) == {"l"}


@pytest.mark.parametrize("dtype", ["float64", "float16", BFLOAT16, "int64", "int32", "uint8", "bool"], ids=str)
def test_sums_of_other_types(dtype: Any) -> None:
    x, source = (f32(4, 2, seed=k) * 3 for k in (1, 2))
    if np.dtype(dtype).kind in "iub":
        x, source = np.abs(x) > 2 if dtype == "bool" else x.astype("i8") + 250, source.astype("i8") + 100
    check("aten::index_add", [x.astype(dtype), 0, ints(2, 2, 0, 2), source.astype(dtype), 1])
    check("aten::scatter.src", [x.astype(dtype), 1, ints([1, 1]), source.astype(dtype)])


def test_numbers_that_are_special() -> None:
    source = np.array([[np.nan, np.inf], [1.0, -np.inf], [-0.0, 1.0]], np.float32)
    check("aten::index_add", [np.zeros((2, 2), np.float32), 0, ints(1, 1, 0), source, 1])
    check("aten::index_copy", [np.zeros((2, 2), np.float32), 0, ints(1, 1, 0), source])


BAG = ints(3, 0, 4, 4, 1)
TABLE = f32(5, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        [TABLE, BAG, ints(0, 2, 2), False, 0, False, None, False, None],
        [TABLE, BAG, ints(0, 2, 5), False, 1, False, None, False, 4],
        [turned(TABLE), BAG, ints(0, 1, dtype=np.int32), False, 0, False, f32(5, seed=1), False, -1],
        [TABLE.astype("f2"), BAG, ints(0), False, 1, False, None, False, -2],
    ],
)
def test_bags(arguments: list[Any]) -> None:
    assert set(calls(check("aten::embedding_bag.padding_idx", arguments))) == {"l"}


@pytest.mark.skipif(not SIMULATED, reason="kernels that are no tile programs run in the simulator")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::scatter_add", [f32(3), 0, ints(0, 3), f32(2)]),
        ("aten::index_add", [f32(3), 0, ints(-1), f32(1), 1]),
        ("aten::index_put", [f32(3), [ints(-4)], f32(1), True]),
        ("aten::one_hot", [ints(0, 5), 5]),
        ("aten::one_hot", [ints(0, -1), 5]),
        ("aten::embedding_bag", [TABLE, ints(0, 5), ints(0), False, 0, False, None, False]),
    ],
)
def test_indexes_out_of_range(name: str, arguments: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.static_runtime.device_help.run_graph", lambda graph, given: None)
    found = step_for(name, arguments)
    assert found is not None
    step, operands, outs, _ = found
    assert run_step(step, operands, outs) == f"{name}: an index is out of range"


@pytest.mark.skipif(not SIMULATED, reason="kernels that are no tile programs run in the simulator")
@pytest.mark.parametrize("first", [[1, 2], [0, 3], [0, -1]])
def test_bags_that_are_none(first: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.static_runtime.device_help.run_graph", lambda graph, given: None)
    name = "aten::embedding_bag"
    found = step_for(name, [TABLE, ints(0, 1), np.array(first), False, 0, False, None, False])
    assert found is not None
    assert run_step(*found[:3]) == f"{name}: offsets do not fit the indices"


def test_what_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_scatters, "MOST_IN_LINE", 3)
    assert step_for("aten::index_add", [X, 0, ints(1, 1, 2, 0), f32(4, 3), 1]) is None
    assert step_for("aten::embedding_bag", [TABLE, BAG, ints(0), False, 2, False, None, False]) is None
    assert step_for("aten::scatter.reduce", [X, 0, ALONG, f32(2, 3), "multiply"]) is None
    assert step_for("aten::index_add", [X.astype("f2"), 0, ints(1), f32(1, 3).astype("f2"), 2.0]) is None
