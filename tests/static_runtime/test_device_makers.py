"""Operators as steps on a GPU beside the interpreter: products, convolutions, pooling and tile programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpujit.ir.dtypes import BFLOAT16
from gpujit.kernels.launches import Gemm
from gpujit.static_runtime import device_convolutions
from gpujit.static_runtime.device_libraries import Asked
from gpujit.static_runtime.endings import Ending
from tests.static_runtime.device_help import SIMULATED, calls, check, record_programs, run_step, step_for, turned
from tests.static_runtime.help import f32


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the simulator, tile programs run by the NumPy renderer."""
    record_programs(monkeypatch)


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
def test_convolutions(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments, wanted = CONVOLUTIONS[number]
    monkeypatch.setattr(device_convolutions, "FEW_PRODUCTS", 0)
    assert calls(check(name, arguments)) == wanted


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_small_convolutions(number: int) -> None:
    name, arguments, wanted = CONVOLUTIONS[number]
    is_turned = "transpose" in name or any(x is True for x in arguments)
    assert calls(check(name, arguments)) == (wanted if is_turned or wanted == "g" else "l")


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions_by_a_library(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments, wanted = CONVOLUTIONS[number]
    monkeypatch.setattr(device_convolutions, "FEW_PRODUCTS", 0)
    is_turned = "transpose" in name or any(x is True for x in arguments)
    asked = Asked(lambda work: 100)
    found = calls(check(name, arguments, asked=asked))
    # Filters of one channel have a kernel of their own.
    has_own = arguments[1].shape[1] == 1 < arguments[6] if not is_turned else False
    assert found == wanted if is_turned or has_own else found.endswith("c")
    assert bool(asked.refusal) is has_own


def test_relu_at_the_end() -> None:
    numbers = [[1], [1], [1], 1]
    for few, name, arguments in (
        (0, "aten::linear", [f32(3, 5), f32(4, 5, seed=1), f32(4, seed=2)]),
        (0, "aten::conv1d", [f32(1, 2, 6), f32(3, 2, 3, seed=1), f32(3, seed=2), *numbers]),
        (1 << 21, "aten::conv1d", [f32(1, 2, 6), f32(3, 2, 3, seed=1), None, *numbers]),
        (0, "aten::conv1d", [f32(1, 2, 6), f32(2, 1, 3, seed=1), f32(2, seed=2), *numbers[:3], 2]),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device_convolutions, "FEW_PRODUCTS", few)
            found = step_for(name, arguments, ending=Ending("relu"))
        assert found is not None
        step, operands, outs, want = found
        assert run_step(step, operands, outs) == ""
        np.testing.assert_allclose(outs[0], np.maximum(want, 0), rtol=1e-5, atol=1e-5)


def test_endings_that_nobody_does_have_no_step() -> None:
    arguments = [f32(1, 2, 6), f32(3, 2, 3, seed=1), None, [1], [1], [1], 1]
    assert step_for("aten::conv1d", arguments, ending=Ending("gelu")) is None
    assert step_for("aten::conv1d", arguments, ending=Ending("gelu"), asked=Asked(lambda work: 0)) is None
    assert step_for("aten::relu", [f32(3)], ending=Ending("relu")) is None


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


def with_nan(*shape: int) -> np.ndarray:
    """Numbers some of which are equal, NaN or infinite."""
    x = np.round(f32(*shape))
    x.reshape(-1)[::5], x.reshape(-1)[3::7] = np.nan, -np.inf
    return x


PLACES: list[tuple[str, list[Any]]] = [
    ("aten::max_pool1d_with_indices", [with_nan(2, 9), [3], [2], [1], [1], False]),
    ("aten::max_pool2d_with_indices", [with_nan(1, 2, 5, 6), [2, 3], [], [0, 1], [1, 1], False]),
    ("aten::max_pool2d_with_indices", [turned(f32(2, 5, 6)), [3, 2], [2, 1], [1, 1], [1, 2], True]),
    ("aten::max_pool2d_with_indices", [np.full((1, 3, 3), -np.inf, "f4"), [2], [1], [1], [1], False]),
    ("aten::max_pool2d_with_indices", [with_nan(1, 1, 4, 4).astype("f2"), [2], [2], [0], [1], False]),
    ("aten::max_pool3d_with_indices", [with_nan(1, 1, 3, 4, 2), [2], [1], [1], [1], False]),
    ("aten::adaptive_max_pool1d", [with_nan(1, 2, 7), [3]]),
    ("aten::adaptive_max_pool2d", [with_nan(1, 1, 5, 7), [3, 4]]),
    ("aten::adaptive_max_pool2d", [f32(2, 4, 4)[:, ::2].astype("f8"), [1, 2]]),
    ("aten::adaptive_max_pool3d", [f32(1, 2, 3, 4), [1, 2, 2]]),
]


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_pooling_with_places(number: int) -> None:
    name, arguments = PLACES[number]
    assert calls(check(name, arguments)) == "l"


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
    ("aten::to.dtype", [f32(3, 7), 5, False, False, None]),
    ("aten::type_as", [turned(f32(3, 7)), np.ones(1, np.int64)]),
]


def test_what_is_seen_as_another_type_is_no_conversion() -> None:
    assert step_for("aten::to.dtype", [f32(3, 7), 6, False, False, None]) is None
    assert step_for("aten::view.dtype", [f32(3, 7), 3]) is None


@pytest.mark.parametrize("number", range(len(SINGLE)))
def test_single_operators(number: int) -> None:
    name, arguments = SINGLE[number]
    assert calls(check(name, arguments)) == "l"


# ------------------------------------------------------------------------------------------- layouts and numbers


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
@given(st.data(), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_convolutions_over_numbers(data: st.DataObject, is_small: bool) -> None:
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
        with pytest.MonkeyPatch.context() as patch:
            if not is_small:
                patch.setattr(device_convolutions, "FEW_PRODUCTS", 0)
            check(f"aten::conv{rank}d", [x, w, bias, stride, padding, dilation, groups])
