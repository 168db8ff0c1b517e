"""Operators as steps on a GPU beside the interpreter: which there are, and what they compute, through the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpujit.ir.dtypes import BFLOAT16
from gpujit.kernels.launches import Convolution, DeviceStep, Gemm, Launch
from gpujit.static_runtime import device_attentions, device_recurrent
from gpujit.static_runtime.device_makers import device_step
from tests.static_runtime.device_help import SIMULATED, can_run, graph_of, places_of, record_programs, run_step
from tests.static_runtime.help import f32, run_graph


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the simulator, tile programs run by the NumPy renderer."""
    record_programs(monkeypatch)


TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}


def step_for(
    name: str, arguments: list[Any], **options: Any
) -> tuple[DeviceStep, list[np.ndarray], list[np.ndarray], Any] | None:
    """The step of an operator, its operands, empty results, and what the interpreter gives."""
    graph, node, given = graph_of(name, arguments)
    places = places_of(graph, node, given)
    made = device_step(node, places.get, places[node.outputs[0]], **options)
    if made is None:
        return None
    step, values = made
    arrays = dict(zip(graph.inputs, given, strict=True))
    outs = [np.full(places[v].shape, 7, places[v].dtype) for v in node.outputs]
    return step, [arrays[v] for v in values], outs, run_graph(graph, given)


def check(name: str, arguments: list[Any], **options: Any) -> DeviceStep:
    """The operator's step; where kernels run, its results are the interpreter's."""
    found = step_for(name, arguments, **options)
    assert found is not None, f"{name} has no step"
    step, operands, outs, wanted = found
    if can_run(step):
        assert run_step(step, operands, outs) == ""
        for got, want in zip(outs, wanted if isinstance(wanted, (tuple, list)) else [wanted], strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            tolerance = TOLERANCE.get(want.dtype.name, 0)
            kind = np.float64 if want.dtype.kind in "fV" else want.dtype
            np.testing.assert_allclose(got.astype(kind), want.astype(kind), rtol=tolerance, atol=tolerance * 4)
    return step


def calls(step: DeviceStep) -> str:
    """A letter for each call."""
    return "".join({Launch: "l", Gemm: "g", Convolution: "c"}[type(c)] for c in step.calls)


def turned(x: np.ndarray, a: int = -1, b: int = -2) -> np.ndarray:
    """The same numbers with two dims exchanged in memory."""
    return np.ascontiguousarray(x.swapaxes(a, b)).swapaxes(a, b)


# ------------------------------------------------------------------------------------------------------- products

PRODUCTS: list[tuple[str, list[Any], str]] = [
    ("aten::linear", [f32(3, 5), f32(4, 5, seed=1), f32(4, seed=2)], "g"),
    ("aten::linear", [f32(2, 3, 5), f32(4, 5, seed=1), None], "g"),
    ("aten::linear", [turned(f32(2, 3, 5), 0, 1), f32(4, 5, seed=1), f32(4, seed=2)], "g"),
    ("aten::linear", [turned(f32(3, 5)), turned(f32(4, 5, seed=1)), f32(4, seed=2)], "g"),
    ("aten::linear", [f32(5), f32(4, 5, seed=1), f32(4, seed=2)], "g"),
    ("aten::linear", [f32(3, 10)[:, ::2], f32(4, 5, seed=1), None], "lg"),
    ("aten::mm", [f32(3, 5), f32(5, 4, seed=1)], "g"),
    ("aten::mm", [f32(3, 1), f32(1, 4, seed=1)], "g"),
    ("aten::mm", [f32(1, 10)[:, ::2], f32(5, 4, seed=1)], "g"),
    ("aten::mm", [np.broadcast_to(f32(1, 5), (3, 5)), f32(5, 4, seed=1)], "lg"),
    ("aten::mm", [f32(0, 5), f32(5, 4, seed=1)], ""),
    ("aten::mv", [f32(3, 5), f32(5, seed=1)], "g"),
    ("aten::dot", [f32(5), f32(5, seed=1)], "g"),
    ("aten::bmm", [f32(3, 2, 5), f32(3, 5, 4, seed=1)], "g"),
    ("aten::bmm", [turned(f32(3, 2, 5), 0, 1), turned(f32(3, 5, 4, seed=1))], "g"),
    ("aten::matmul", [f32(5), f32(5, seed=1)], "g"),
    ("aten::matmul", [f32(5), f32(2, 5, 4, seed=1)], "g"),
    ("aten::matmul", [f32(2, 3, 5), f32(5, seed=1)], "g"),
    ("aten::matmul", [f32(2, 3, 4, 5), f32(5, 6, seed=1)], "g"),
    ("aten::matmul", [f32(2, 1, 4, 5), f32(3, 5, 6, seed=1)], "gg"),
    ("aten::matmul", [f32(2, 4, 3, 5).transpose(0, 2, 1, 3), f32(2, 4, 3, 5, seed=1).transpose(0, 2, 3, 1)], "gg"),
    ("aten::matmul", [f32(20, 4, 21, 2).transpose(0, 2, 1, 3), f32(20, 4, 21, 2, seed=1).transpose(0, 2, 3, 1)], "llg"),
    ("aten::addmm", [f32(4), f32(3, 5), f32(5, 4, seed=1), 1, 1], "g"),
    ("aten::addmm", [f32(1, 4), f32(3, 5), f32(5, 4, seed=1), 1, 2], "g"),
    ("aten::addmm", [f32(3, 4), f32(3, 5), f32(5, 4, seed=1), 0.5, 2], "lg"),
    ("aten::addmm", [f32(3, 1), f32(3, 5), f32(5, 4, seed=1), 1, 1], "lg"),
    ("aten::addmm", [np.full((3, 4), np.nan, "f4"), f32(3, 5), f32(5, 4, seed=1), 0, 1], "g"),
    ("aten::addmv", [f32(3), f32(3, 5), f32(5, seed=1), 1, 1], "lg"),
    ("aten::baddbmm", [f32(2, 3, 4), f32(2, 3, 5), f32(2, 5, 4, seed=1), 1, 0.5], "lg"),
    ("aten::baddbmm", [f32(1, 1, 4), f32(2, 3, 5), f32(2, 5, 4, seed=1), 1, 1], "g"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_products(number: int) -> None:
    name, arguments, wanted = PRODUCTS[number]
    assert calls(check(name, arguments)) == wanted


@pytest.mark.parametrize("dtype", ["float64", "float16", BFLOAT16], ids=str)
def test_products_of_other_types(dtype: Any) -> None:
    step = check("aten::linear", [x.astype(dtype) for x in (f32(3, 5), f32(4, 5, seed=1), f32(4, seed=2))])
    assert isinstance(step.calls[0], Gemm) and step.calls[0].dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::mm", [np.ones((2, 3), np.int64), np.ones((3, 2), np.int64)]),
        ("aten::mm", [np.ones((2, 0), "f4"), np.ones((0, 2), "f4")]),
    ],
    ids=["integers", "nothing to sum"],
)
def test_products_that_have_no_step(name: str, arguments: list[Any]) -> None:
    assert step_for(name, arguments) is None


# --------------------------------------------------------------------------------------------------- convolutions

CONVOLUTIONS: list[tuple[str, list[Any], str]] = [
    ("aten::conv2d", [f32(1, 2, 4, 5), f32(3, 2, 3, 3, seed=1), None, [1, 1], [1, 1], [1, 1], 1], "lg"),
    ("aten::conv2d", [f32(2, 2, 5, 5), f32(3, 2, 3, 2, seed=1), f32(3, seed=2), [2, 1], [1, 0], [1, 2], 1], "llg"),
    ("aten::conv2d", [f32(2, 3, 2, 3), f32(4, 3, 1, 1, seed=1), None, [1, 1], [0, 0], [1, 1], 1], "g"),
    ("aten::conv2d", [f32(2, 4, 2, 3), f32(4, 2, 1, 1, seed=1), None, [1, 1], [0, 0], [1, 1], 2], "l"),
    ("aten::conv2d", [turned(f32(1, 3, 2, 3)), f32(4, 3, 1, 1, seed=1), None, [1, 1], [0, 0], [1, 1], 1], "lg"),
    ("aten::conv2d", [f32(1, 3, 3, 3), f32(3, 1, 3, 3, seed=1), f32(3, seed=2), [1, 1], [1, 1], [1, 1], 3], "l"),
    ("aten::conv2d", [f32(1, 2, 3, 3), f32(4, 1, 2, 2, seed=1), None, [1, 1], [1, 1], [1, 1], 2], "l"),
    ("aten::conv2d", [f32(2, 3, 4), f32(3, 2, 3, 3, seed=1), None, [1, 1], [1, 1], [1, 1], 1], "lg"),
    ("aten::conv2d.padding", [f32(1, 1, 3, 4), f32(2, 1, 2, 2, seed=1), None, [1, 1], "same", [1, 1], 1], "lg"),
    ("aten::conv2d.padding", [f32(1, 1, 3, 4), f32(2, 1, 2, 2, seed=1), None, [1, 1], "valid", [1, 1], 1], "lg"),
    ("aten::conv1d", [f32(1, 1, 20), f32(3, 1, 8, seed=1), None, [2], [0], [1], 1], "lg"),
    ("aten::conv1d", [f32(2, 34, 2), f32(2, 17, 5, seed=1), None, [1], [2], [1], 2], "lgg"),
    ("aten::conv3d", [f32(1, 1, 2, 3, 3), f32(2, 1, 2, 2, 2, seed=1), None, [1] * 3, [0] * 3, [1] * 3, 1], "lg"),
    ("aten::convolution", [f32(1, 2, 4), f32(2, 2, 3, seed=1), f32(2), [1], [1], [1], False, [0], 1], "llg"),
    ("aten::conv_transpose1d", [f32(1, 2, 3), f32(2, 2, 3, seed=1), f32(2), [2], [1], [1], 1, [1]], "gl"),
    ("aten::conv_transpose1d", [f32(2, 2, 4), f32(2, 1, 2, seed=1), None, [3], [0], [0], 2, [2]], "ggl"),
    (
        "aten::conv_transpose2d.input",
        [f32(1, 2, 2, 3), f32(2, 1, 3, 2, seed=1), f32(1), [2, 1], [1, 0], [0, 0], 1, [1, 2]],
        "gl",
    ),
    ("aten::convolution", [f32(1, 2, 3), f32(2, 1, 2, seed=1), None, [2], [0], [1], True, [0], 1], "gl"),
]


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions(number: int) -> None:
    name, arguments, wanted = CONVOLUTIONS[number]
    assert calls(check(name, arguments)) == wanted


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions_by_a_library(number: int) -> None:
    name, arguments, wanted = CONVOLUTIONS[number]
    is_even = "transpose" not in name and not any((isinstance(x, str) and x == "same") or x is True for x in arguments)
    found = calls(check(name, arguments, has_convolution=True))
    assert found.endswith("c") if is_even else found == wanted


# -------------------------------------------------------------------------------------------------------- pooling

POOLS: list[tuple[str, list[Any]]] = [
    ("aten::max_pool1d", [f32(1, 2, 7), [3], [2], [1], [1], False]),
    ("aten::max_pool2d", [f32(1, 2, 5, 6), [2, 2], [], [0], [1], False]),
    ("aten::max_pool2d", [f32(2, 5, 6), [3, 2], [2, 1], [1, 1], [1, 2], True]),
    ("aten::max_pool2d", [f32(1, 1, 9, 9), [8, 7], [1, 2], [4, 0], [1], False]),
    ("aten::max_pool3d", [f32(1, 1, 3, 4, 2), [2], [1], [1], [1], False]),
    ("aten::avg_pool1d", [f32(1, 2, 7), [3], [2], [1], False, True]),
    ("aten::avg_pool2d", [f32(1, 2, 5, 6), [2], [2], [0], False, True, None]),
    ("aten::avg_pool2d", [f32(1, 1, 5, 6), [3], [2], [1], True, True, None]),
    ("aten::avg_pool2d", [f32(1, 1, 5, 6), [3], [2], [1], True, False, None]),
    ("aten::avg_pool2d", [f32(1, 1, 5, 6), [3], [2], [1], False, False, 5]),
    ("aten::avg_pool2d", [f32(1, 1, 9, 9), [8], [3], [3], True, False, None]),
    ("aten::avg_pool2d", [turned(f32(1, 2, 4, 5), 1, 3), [2], [1], [0], False, True, None]),
    ("aten::adaptive_avg_pool1d", [f32(2, 2, 7), [3]]),
    ("aten::adaptive_avg_pool2d", [f32(1, 2, 4, 6), [1, 1]]),
    ("aten::adaptive_avg_pool2d", [f32(1, 4, 6), [2, 3]]),
    ("aten::adaptive_avg_pool2d", [f32(1, 1, 5, 7), [3, 4]]),
    ("aten::adaptive_avg_pool2d", [f32(1, 1, 2, 3), [3, 2]]),
    ("aten::adaptive_avg_pool3d", [f32(1, 1, 2, 3, 4), [1, 2, 2]]),
]


@pytest.mark.parametrize("number", range(len(POOLS)))
def test_pooling(number: int) -> None:
    name, arguments = POOLS[number]
    assert calls(check(name, arguments)) == "l"


def test_the_largest_of_a_window_with_nan_is_nan() -> None:
    x = f32(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    check("aten::max_pool2d", [x, [2, 2], [], [0], [1], False])
    check("aten::avg_pool2d", [x.astype(np.float16), [2], [2], [0], False, True, None])


# ------------------------------------------------------------------------------------------------ single operators

SINGLE: list[tuple[str, list[Any]]] = [
    ("aten::relu", [f32(3, 5)]),
    ("aten::softmax.int", [f32(3, 5), -1, None]),
    ("aten::embedding", [f32(5, 4), np.array([[0, 4], [2, 2]]), -1, False, False]),
    ("aten::cat", [[f32(2, 3), f32(2, 2, seed=1)], 1]),
    ("aten::stack", [[f32(2, 3), f32(2, 3, seed=1)], 1]),
    ("aten::arange", [5, 4, None, None, None]),
    ("aten::mean.dim", [f32(2, 3, 4), [1, 2], False, None]),
    ("aten::argmax", [f32(3, 7), 1, False]),
    ("aten::cumsum", [f32(3, 7), 1, None]),
]


@pytest.mark.parametrize("number", range(len(SINGLE)))
def test_single_operators(number: int) -> None:
    name, arguments = SINGLE[number]
    assert calls(check(name, arguments)) == "l"


# ------------------------------------------------------------------------------------------------------ attention

NO = [None, 0.0, False, None, False]
SEEN = np.array([[True, False, True, True], [False] * 4, [True] * 4])
ATTENTIONS: list[tuple[list[Any], list[Any]]] = [
    ([f32(1, 2, 3, 4), f32(1, 2, 4, 4, seed=1), f32(1, 2, 4, 5, seed=2)], NO),
    ([f32(2, 3, 4), f32(2, 3, 4, seed=1), f32(2, 3, 4, seed=2)], [None, 0.0, True, 0.3, False]),
    ([f32(3, 4), f32(4, 4, seed=1), f32(4, 4, seed=2)], [SEEN, 0.0, False, None, False]),
    ([f32(1, 2, 3, 4), f32(1, 1, 4, 4, seed=1), f32(1, 1, 4, 4, seed=2)], [None, 0.0, False, None, True]),
    ([f32(1, 2, 3, 4), f32(1, 2, 4, 4, seed=1), f32(1, 2, 4, 4, seed=2)], [f32(2, 1, 4, seed=3), 0.0, False, 1, False]),
    ([turned(f32(1, 2, 3, 4), 1, 2), f32(1, 2, 70, 4, seed=1), f32(1, 2, 70, 9, seed=2)], NO),
]


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("number", range(len(ATTENTIONS)))
def test_attention(number: int, is_fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, rest = ATTENTIONS[number]
    if not is_fused:
        monkeypatch.setattr(device_attentions, "FEW_SCORES", 0)
    step = check("aten::scaled_dot_product_attention", [*tensors, *rest])
    assert calls(step) == "l" if is_fused else calls(step).strip("g") == "l"


@pytest.mark.parametrize("few", [0, 1000])
def test_attention_of_half_types(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_attentions, "FEW_HALF_SCORES", few)
    tensors = [x.astype(np.float16) for x in (f32(1, 2, 3, 4), f32(1, 2, 4, 4, seed=1), f32(1, 2, 4, 4, seed=2))]
    check("aten::scaled_dot_product_attention", [*tensors, *NO])


def test_attention_of_long_rows_is_composed() -> None:
    tensors = [f32(1, 1, 2, 200), f32(1, 1, 3, 200, seed=1), f32(1, 1, 3, 4, seed=2)]
    assert calls(check("aten::scaled_dot_product_attention", [*tensors, *NO])) == "glg"


# ------------------------------------------------------------------------------------------------ recurrent layers

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def layer_arguments(
    kind: str,
    steps: int,
    batch: int,
    size: int,
    layers: int = 1,
    directions: int = 1,
    has_biases: bool = True,
    batch_first: bool = False,
) -> list[Any]:
    """What a recurrent layer is called with; inputs have 3 numbers."""
    shape = (batch, steps, 3) if batch_first else (steps, batch, 3)
    states = [f32(layers * directions, batch, size, seed=k) for k in range(2 if kind == "lstm" else 1)]
    weights, wide = [], GATES[kind] * size
    for k in range(layers * directions):
        inputs = 3 if k < directions else directions * size
        parts = [f32(wide, inputs, seed=k + 5), f32(wide, size, seed=k + 9), f32(wide, seed=k), f32(wide, seed=k + 1)]
        weights += parts[: 4 if has_biases else 2]
    rest = [has_biases, layers, 0.0, False, directions == 2, batch_first]
    return [f32(*shape), states if kind == "lstm" else states[0], weights, *rest]


@pytest.mark.parametrize("kind", list(GATES))
@pytest.mark.parametrize("few", [0, 8])
def test_layers(kind: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_recurrent, "FEW_SEQUENCES", few)
    step = check(f"aten::{kind}.input", layer_arguments(kind, 3, 2, 4))
    assert calls(step) == ("glll" if few else "gglglgl")


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 2, "directions": 2},
        {"has_biases": False, "batch_first": True},
        {"directions": 2, "batch_first": True},
    ],
    ids=str,
)
def test_layers_of_layers(options: dict[str, Any]) -> None:
    check("aten::lstm.input", layer_arguments("lstm", 2, 2, 3, **options))
    check("aten::gru.input", layer_arguments("gru", 2, 1, 3, **options))


@pytest.mark.parametrize("kind", list(GATES))
def test_cells(kind: str) -> None:
    x, states, weights, *_ = layer_arguments(kind, 1, 2, 4)
    given = [s[0] for s in states] if kind == "lstm" else states[0]
    assert calls(check(f"aten::{kind}_cell", [x[0], given, *weights])) == "gl"
    assert calls(check(f"aten::{kind}_cell", [x[0], given, *weights[:2], None, None])) == "gl"


# ----------------------------------------------------------------------------------------------- moved elements

MOVES: list[tuple[str, list[Any], str]] = [
    ("aten::upsample_nearest2d.vec", [f32(1, 2, 3, 4), None, [2.0, 2.0]], "l"),
    ("aten::upsample_nearest2d", [f32(1, 1, 3, 4), [5, 3], None, None], "l"),
    ("aten::upsample_nearest1d", [np.arange(6).reshape(1, 1, 6), [4], None], "l"),
    ("aten::upsample_bilinear2d.vec", [f32(1, 2, 3, 4), [5, 4], False, None], "l"),
    ("aten::upsample_bilinear2d", [f32(1, 1, 3, 4), [4, 6], True, None, None], "l"),
    ("aten::upsample_linear1d", [f32(1, 1, 3), [5], False, 1.7], "l"),
    ("aten::upsample_bicubic2d", [f32(1, 1, 3, 4), [4, 3], False, None, None], "l"),
    ("aten::_upsample_bilinear2d_aa", [f32(1, 1, 5, 6), [3, 4], False, None, None], "l"),
    ("aten::reflection_pad1d", [f32(2, 5), [2, 4]], "l"),
    ("aten::reflection_pad2d", [f32(1, 3, 4), [1, 2, 2, 0]], "l"),
    ("aten::replication_pad2d", [f32(1, 1, 2, 3), [1, 2, 3, 0]], "l"),
    ("aten::pad", [f32(1, 2, 4), [3, 4], "circular", None], "l"),
    ("aten::pad", [f32(2, 4), [1, 1], "constant", 2.0], "l"),
    ("aten::pixel_shuffle", [f32(1, 8, 2, 3), 2], "l"),
    ("aten::pixel_unshuffle", [f32(2, 4, 6), 2], "l"),
    ("aten::channel_shuffle", [f32(1, 6, 2), 3], "l"),
    ("aten::im2col", [f32(1, 2, 4, 5), [2, 3], [1, 2], [1, 0], [2, 1]], "l"),
    ("aten::select_scatter", [f32(3, 4), f32(3, seed=1), 1, -1], "ll"),
    ("aten::slice_scatter", [f32(3, 6), f32(3, 2, seed=1), 1, 1, 5, 2], "ll"),
    ("aten::slice_scatter", [np.arange(5), np.arange(3), 0, None, -2, 1], "ll"),
    ("aten::glu", [f32(2, 6, 3), 1], "l"),
]


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_moved_elements(number: int) -> None:
    name, arguments, wanted = MOVES[number]
    assert calls(check(name, arguments)) == wanted


def test_weights_of_windows_that_ended_do_not_meet_infinity() -> None:
    x = f32(1, 1, 7, 7)
    x[0, 0, 3, 3] = np.inf
    check("aten::_upsample_bilinear2d_aa", [x, [3, 3], False, None, None])


# ---------------------------------------------------------------------------------------------- other types, sizes


@pytest.mark.parametrize("dtype", ["float64", "float16", BFLOAT16], ids=str)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::conv2d", [f32(1, 2, 4, 5), f32(3, 2, 3, 3, seed=1), f32(3), [1, 1], [1, 1], [1, 1], 1]),
        ("aten::conv2d", [f32(1, 2, 3, 3), f32(2, 1, 3, 3, seed=1), f32(2), [1, 1], [1, 1], [1, 1], 2]),
        ("aten::conv_transpose1d", [f32(1, 2, 3), f32(2, 2, 3, seed=1), f32(2), [2], [1], [1], 1, [1]]),
        ("aten::max_pool2d", [f32(1, 2, 5, 6), [2, 2], [], [0], [1], False]),
        ("aten::adaptive_avg_pool2d", [f32(1, 1, 5, 7), [3, 4]]),
        ("aten::scaled_dot_product_attention", [f32(2, 3, 4), f32(2, 4, 4), f32(2, 4, 4), f32(3, 4), 0.0, *NO[2:]]),
        ("aten::lstm.input", layer_arguments("lstm", 2, 2, 3)),
        ("aten::gru.input", layer_arguments("gru", 2, 9, 3)),
        ("aten::upsample_bilinear2d.vec", [f32(1, 2, 3, 4), [5, 4], False, None]),
        ("aten::reflection_pad1d", [f32(2, 5), [2, 4]]),
        ("aten::glu", [f32(2, 6), 1]),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_other_types(name: str, arguments: list[Any], dtype: Any) -> None:
    def cast(x: Any) -> Any:
        return [cast(y) for y in x] if isinstance(x, list) else x.astype(dtype) if isinstance(x, np.ndarray) else x

    check(name, [cast(x) for x in arguments])


def laid_out(order: str, *shape: int, seed: int = 0) -> np.ndarray:
    """An array with memory of another order, expanded, or a part of a larger one."""
    x = f32(*shape, seed=seed)
    if order == "turned":
        return turned(x)
    if order == "outer":
        return turned(x, 0, -2)
    if order == "expanded":
        return np.broadcast_to(x[:1], shape)
    if order == "part":
        room = np.zeros((*shape[:-1], 2 * shape[-1] + 3), np.float32)
        room[..., 1:-2:2] = x
        return room[..., 1:-2:2]
    return x


LAYOUTS = st.sampled_from(["", "turned", "outer", "part", "expanded"])
SIZES = st.integers(1, 5)
without_simulator = pytest.mark.skipif(
    SIMULATED, reason="the simulator is slow, and the kernels are those of other tests"
)


@without_simulator
@given(st.lists(SIZES, max_size=2), SIZES, SIZES, SIZES, LAYOUTS, LAYOUTS, st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_products_over_layouts(
    batch: list[int], m: int, k: int, n: int, left: str, right: str, is_broadcast: bool, is_linear: bool
) -> None:
    x, y = laid_out(left, *batch, m, k), laid_out(right, *([] if is_broadcast else batch), k, n, seed=1)
    check("aten::matmul", [x, y])
    if is_linear:
        check("aten::linear", [x, laid_out(right, n, k, seed=1), f32(n, seed=2)])


@without_simulator
@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_convolutions_over_numbers(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    groups, images = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.integers(1, 2))
    channels, filters = groups * data.draw(st.integers(1, 2)), groups * data.draw(st.integers(1, 2))
    stride, padding, dilation, taps, image = (numbers(a, b) for a, b in ((1, 3), (0, 2), (1, 2), (1, 3), (4, 7)))
    x = laid_out(data.draw(st.sampled_from(["", "turned", "part"])), images, channels, *image)
    bias = f32(filters, seed=2) if data.draw(st.booleans()) else None
    if data.draw(st.booleans()):
        w = f32(channels, filters // groups, *taps, seed=1)
        more = [min(m, max(s, d) - 1) for m, s, d in zip(numbers(0, 1), stride, dilation, strict=True)]
        rest = zip(image, stride, padding, dilation, taps, more, strict=True)
        if any((n - 1) * s - 2 * p + d * (t - 1) + m < 0 for n, s, p, d, t, m in rest):
            return
        name = "aten::conv_transpose1d" if rank == 1 else "aten::conv_transpose2d.input"
        check(name, [x, w, bias, stride, padding, more, groups, dilation])
    else:
        w = f32(filters, channels // groups, *taps, seed=1)
        if any(n + 2 * p - d * (t - 1) < 1 for n, p, d, t in zip(image, padding, dilation, taps, strict=True)):
            return
        check(f"aten::conv{rank}d", [x, w, bias, stride, padding, dilation, groups])
