"""Layers as steps on a GPU beside the interpreter: attention, recurrent layers, moved elements; other types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpujit.ir.dtypes import BFLOAT16
from gpujit.static_runtime import device_attentions, device_recurrent
from tests.static_runtime.device_help import SIMULATED, calls, check, record_programs, run_step, step_for, turned
from tests.static_runtime.help import f32


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the simulator, tile programs run by the NumPy renderer."""
    record_programs(monkeypatch)


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


PUTS: list[tuple[np.ndarray, list[np.ndarray], np.ndarray]] = [
    (f32(4, 5), [np.array([2, 0])], f32(2, 5, seed=1)),
    (f32(4, 5), [np.array([2, -1]), np.array([[0], [3]], np.int32)], f32(2, 1, seed=1)),
    (np.arange(20).reshape(4, 5), [np.array(1)], np.array([7])),
    (f32(2, 3) > 0, [np.array([1]), np.array([2])], np.array([True])),
]


@pytest.mark.parametrize("number", range(len(PUTS)))
def test_values_put_at_places(number: int) -> None:
    x, indexes, values = PUTS[number]
    assert calls(check("aten::index_put", [x, indexes, values, False])).endswith("l")


def test_places_outside_fail_the_check() -> None:
    found = step_for("aten::index_put", [f32(4, 5), [np.array([2, 3])], f32(5), False])
    assert found is not None
    step, operands, outs, _ = found
    if SIMULATED:
        assert run_step(step, [*operands[:2], np.array([2, 4])], outs) == "aten::index_put: an index is out of range"
    assert len(step.checks) == 1


def test_one_value_put_where_a_mask_holds() -> None:
    x = f32(3, 4)
    assert calls(check("aten::index_put", [x, [x > 0], np.array(2.0, "f4"), False])) == "l"


@pytest.mark.parametrize(
    ("repeats", "dim", "count"), [(np.array(2), 1, 6), (np.array([1, 0, 3]), 1, 4), (np.array([2]), None, 12)]
)
def test_elements_repeated_as_constants_say(repeats: np.ndarray, dim: int | None, count: int) -> None:
    step = check("aten::repeat_interleave.self_Tensor", [f32(2, 3), repeats, dim, count], {1})
    assert calls(step) == "l" and len(step.constants) == 1


def test_weights_of_products_that_are_constants_are_operands() -> None:
    assert not check("aten::linear", [f32(3, 5), f32(4, 5, seed=1), f32(4, seed=2)], {1, 2}).constants


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
