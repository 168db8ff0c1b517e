"""Quantised tensors against the affine map that defines them, and against PyTorch's FBGEMM kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpujit.ir.values import QTensor
from gpujit.ops import table
from gpujit.ops.families.quantized import main as quantized
from gpujit.ops.families.quantized.qtensor import STORED, choose_parameters, quantize
from gpujit.support.errors import DTypeError, OpError, PickleError, ShapeError
from tests.ops.check import against_torch, run

QINT8, QUINT8, QINT32 = 12, 13, 14
LINEAR = "__torch__.torch.classes.quantized.LinearPackedParamsBase"
CONV2D = "__torch__.torch.classes.quantized.Conv2dPackedParamsBase"
CONV3D = "__torch__.torch.classes.quantized.Conv3dPackedParamsBase"
CELL = "__torch__.torch.classes.rnn.CellParamsBase"
EMBEDDING = "__torch__.torch.classes.quantized.EmbeddingPackedParamsBase"


def make(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of about unit size."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def q(*shape: int, scale: float = 0.03, zero: int = 120, code: int = QUINT8, seed: int = 0) -> QTensor:
    """A quantised tensor of numbers of about unit size."""
    return quantize(np, make(*shape, seed=seed), scale, zero, code)


def per_channel(*shape: int, axis: int = 0, seed: int = 0, least: float = 0.01) -> QTensor:
    """A weight with one scale, of at least ``least``, for each output."""
    scales = np.random.default_rng(seed).random(shape[axis]) * 0.02 + least
    w: QTensor = run(
        "aten::quantize_per_channel", make(*shape, seed=seed), scales, np.zeros(shape[axis], np.int64), axis, QINT8
    )
    return w


def real(x: QTensor) -> Any:
    """The numbers a quantised tensor stands for, in float64 by the definition."""
    scale, zero = np.asarray(x.scale, np.float64), np.asarray(x.zero_point, np.float64)
    if x.axis is not None:
        shape = [1] * x.values.ndim
        shape[x.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (x.values.astype(np.float64) - zero) * scale


def near(got: QTensor, want: Any, scale: float, zero: int, low: int = 0, high: int = 255) -> None:
    """``got`` is ``want`` quantised, up to one step where two roundings may differ."""
    assert (got.scale, got.zero_point) == (scale, zero)
    expected = np.clip(np.rint(want / scale) + zero, low, high)
    assert got.values.shape == expected.shape
    assert np.abs(got.values.astype(int) - expected).max(initial=0) <= 1


# ------------------------------------------------------------------------------------------------- by definition


@pytest.mark.parametrize(("code", "zero"), [(QINT8, -3), (QUINT8, 120), (QINT32, 5)])
def test_quantising_is_rounding_and_clipping(code: int, zero: int) -> None:
    x = np.array([0, 0.05, 0.15, -0.26, 1e3, -1e3], np.float32)
    y = run("aten::quantize_per_tensor", x, 0.1, zero, code)
    info = np.iinfo(STORED[code])
    want = np.clip(np.array([0, 0, 2, -3, 10000, -10000]) + zero, info.min, info.max)
    assert y.dtype == code and y.values.dtype == STORED[code]
    np.testing.assert_allclose(y.values, want, atol=1)
    np.testing.assert_allclose(run("aten::dequantize.self", y), (y.values.astype(np.float64) - zero) * 0.1, rtol=1e-6)


def test_ties_round_to_even() -> None:
    y = run("aten::quantize_per_tensor", np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32), 1.0, 10, QUINT8)
    np.testing.assert_array_equal(y.values, [10, 12, 12, 10, 8])


def test_questions_about_a_tensor() -> None:
    x = q(2, 3)
    assert run("aten::q_scale", x) == 0.03 and run("aten::q_zero_point", x) == 120
    np.testing.assert_array_equal(run("aten::int_repr", x), x.values)
    w = per_channel(4, 3)
    assert run("aten::q_per_channel_axis", w) == 0
    assert run("aten::q_per_channel_scales", w).shape == (4,)
    assert run("aten::qscheme", x) != run("aten::qscheme", w)
    with pytest.raises(OpError, match="per tensor"):
        run("aten::q_scale", w)
    with pytest.raises(OpError, match="per channel"):
        run("aten::q_per_channel_scales", x)


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 3.0), (0.5, 2.0), (-3.0, -1.0), (0.0, 0.0), (-1e-7, 1e-7), (0.0, 1e-6)]
)
@pytest.mark.parametrize("reduce_range", [False, True])
def test_chosen_parameters_hold_zero_and_cover_the_range(low: float, high: float, reduce_range: bool) -> None:
    scale, zero = choose_parameters(low, high, 0, 255, reduce_range)
    top = 127 if reduce_range else 255
    assert scale > 0 and 0 <= zero <= top
    assert (0 - zero) * scale <= min(low, 0) + scale and (top - zero) * scale >= max(high, 0) - scale


@pytest.mark.parametrize("relu", ["", "_relu"])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(relu: str, channels: bool, bias: bool) -> None:
    x = q(2, 5, 40)
    w = per_channel(16, 40) if channels else q(16, 40, scale=0.02, zero=3, code=QINT8)
    b = make(16) if bias else None
    p = run("quantized::linear_prepack", w, b)
    want = real(x) @ real(w).T + (0 if b is None else b)
    want = np.maximum(want, 0) if relu else want
    near(run(f"quantized::linear{relu}", x, p, 0.07, 60), want, 0.07, 60)
    floats = make(2, 5, 40, seed=9)
    scale, zero = choose_parameters(float(floats.min()), float(floats.max()), 0, 255, False)
    want = (np.clip(np.rint(floats / scale) + zero, 0, 255) - zero) * scale @ real(w).T + (0 if b is None else b)
    y = run(f"quantized::linear{relu}_dynamic", floats, p)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, np.maximum(want, 0) if relu else want, atol=1e-4)
    unpacked = run("quantized::linear_unpack", p)
    assert unpacked[0] is w and unpacked[1] is b


def test_long_sums_stay_exact() -> None:
    """Sums beyond 2**24 have no exact float32; the last unit must survive."""
    k = 2000
    x = QTensor(np.full((1, k), 255, np.uint8), QUINT8, 1.0, 0)
    values = np.full((1, k), 127, np.int8)
    values[0, 0] = 126
    p = run(
        "quantized::linear_prepack",
        QTensor(values, QINT8, 1.0, 0),
        np.array([-float(255 * (127 * k - 1)) + 7], np.float32),
    )
    total = 255 * (127 * k - 1)
    assert total > 1 << 24
    y = run("quantized::linear", x, p, 1.0, 0)
    assert abs(int(y.values[0, 0]) - 7) <= 2


def test_half_precision_linear() -> None:
    w = make(4, 6)
    w[0, 0] = 1e6
    p = run("quantized::linear_prepack_fp16", w, make(4))
    x = make(3, 6)
    half = np.clip(w, -65504, 65504).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(run("quantized::linear_dynamic_fp16", x, p), x @ half.T + make(4), rtol=1e-5)
    np.testing.assert_array_equal(run("quantized::linear_unpack_fp16", p)[0], half)


def convolution(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    """A convolution over two dims by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    n, _, rows, columns = x.shape
    o, per, kh, kw = w.shape
    y = np.zeros((n, o, (rows - kh) // stride + 1, (columns - kw) // stride + 1))
    for i in range(y.shape[2]):
        for j in range(y.shape[3]):
            tile = x[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw].reshape(n, groups, per, kh, kw)
            y[:, :, i, j] = np.einsum("ngchw,gochw->ngo", tile, w.reshape(groups, o // groups, per, kh, kw)).reshape(
                n, o
            )
    return y


@pytest.mark.parametrize("relu", ["", "_relu"])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0)])
def test_convolution(relu: str, groups: int, stride: int, padding: int) -> None:
    x, w, b = q(2, 6, 7, 7), per_channel(12, 6 // groups, 3, 3), make(12)
    p = run("quantized::conv2d_prepack", w, b, [stride] * 2, [padding] * 2, [1, 1], groups)
    want = convolution(real(x), real(w), stride, padding, groups) + b[:, None, None]
    near(run(f"quantized::conv2d{relu}.new", x, p, 0.05, 100), np.maximum(want, 0) if relu else want, 0.05, 100)
    assert run("quantized::conv2d_stride", p) == [stride] * 2 and run("quantized::conv2d_groups", p) == groups
    assert run("quantized::conv2d_unpack", p)[0] is w


def test_convolutions_over_one_and_three_dims_agree_with_two() -> None:
    x, w, b = q(2, 4, 9), per_channel(6, 4, 3), make(6)
    p = run("quantized::conv1d_prepack", w, b, [2], [1], [1], 1)
    assert len(p.stride) == 2
    want = convolution(real(x)[:, :, None], real(w)[:, :, None], 1, 0, 1)
    y = run("quantized::conv1d", x, run("quantized::conv1d_prepack", w, None, [1], [0], [1], 1), 0.05, 100)
    near(y, want[:, :, 0], 0.05, 100)
    np.testing.assert_array_equal(run("quantized::conv1d_unpack", p)[0].values, w.values)
    cube = per_channel(6, 4, 1, 3, 3)
    y3 = run(
        "quantized::conv3d.new",
        q(2, 4, 1, 7, 7),
        run("quantized::conv3d_prepack", cube, b, [1] * 3, [0, 1, 1], [1] * 3, 1),
        0.05,
        100,
    )
    flat = QTensor(cube.values[:, :, 0], cube.dtype, cube.scale, cube.zero_point, 0)
    y2 = run(
        "quantized::conv2d.new",
        q(2, 4, 7, 7),
        run("quantized::conv2d_prepack", flat, b, [1] * 2, [1, 1], [1] * 2, 1),
        0.05,
        100,
    )
    assert y3.values.shape == (2, 6, 1, 7, 7) and y2.values.shape == (2, 6, 7, 7)


def test_sums_and_products() -> None:
    a, b = q(3, 40, scale=0.02, zero=100), q(3, 40, scale=0.015, zero=128, seed=1)
    for relu in ("", "_relu"):
        for name, want in (("add", real(a) + real(b)), ("mul", real(a) * real(b))):
            near(run(f"quantized::{name}{relu}", a, b, 0.03, 90), np.maximum(want, 0) if relu else want, 0.03, 90)
    near(run("quantized::cat", [a, b], 1, 0.03, 90), np.concatenate([real(a), real(b)], 1), 0.03, 90)
    near(run("quantized::matmul", a, q(40, 2), 0.2, 100), real(a) @ real(q(40, 2)), 0.2, 100)


@pytest.mark.parametrize("number", [0.5, -0.3, 3.0, -5.0, 0.0])
def test_numbers_move_the_scale_instead_of_the_integers(number: float) -> None:
    a = q(3, 7)
    np.testing.assert_allclose(real(run("quantized::add.Scalar", a, number)), real(a) + number, atol=0.03)
    np.testing.assert_allclose(real(run("quantized::mul.Scalar", a, number)), real(a) * number, atol=1e-6)
    np.testing.assert_allclose(
        real(run("quantized::mul_relu.Scalar", a, number)), np.maximum(real(a) * number, 0), atol=1e-6
    )


@pytest.mark.parametrize("size", [20, 2000])
def test_activations(size: int) -> None:
    x = q(size)
    r = real(x)
    sigmoid = 1 / (1 + np.exp(-r))
    for name, args, want in (
        ("sigmoid", (0.01, 3), sigmoid),
        ("hardswish", (0.02, 30), r * np.clip(r + 3, 0, 6) / 6),
        ("leaky_relu", (0.1, False, 0.02, 60), np.where(r > 0, r, 0.1 * r)),
        ("elu", (0.02, 60), np.where(r > 0, r, np.expm1(r))),
    ):
        near(run(f"quantized::{name}", x, *args), want, args[-2], args[-1])
    near(
        run("quantized::relu6", quantize(np, make(size) * 5, 0.1, 100, QUINT8)),
        np.clip(real(quantize(np, make(size) * 5, 0.1, 100, QUINT8)), 0, 6),
        0.1,
        100,
    )
    near(run("quantized::clamp", x, -0.5, 0.7), np.clip(r, -0.5, 0.7), 0.03, 120)
    near(run("quantized::threshold", x, 0.1, 0.3), np.where(r > 0.1, r, 0.3), 0.03, 120)


def test_normalisation() -> None:
    x, w, b, mean, var = q(2, 6, 5), make(6), make(6, seed=1), make(6, seed=2), abs(make(6, seed=3)) + 0.5
    want = (real(x) - mean[:, None]) / np.sqrt(var + 1e-5)[:, None] * w[:, None] + b[:, None]
    near(run("quantized::batch_norm1d", x, w, b, mean, var, 1e-5, 0.05, 100), want, 0.05, 100)
    near(run("quantized::batch_norm1d_relu", x, w, b, mean, var, 1e-5, 0.05, 100), np.maximum(want, 0), 0.05, 100)
    r = real(x)
    layer = (r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-5)
    near(run("quantized::layer_norm", x, [5], None, None, 1e-5, 0.03, 100), layer, 0.03, 100)


def rule(name: str, *args: Any) -> Any:
    """What the interpreter does with a quantised argument, defaults filled in."""
    op = table.by_full_name(name)
    assert op is not None
    return quantized.QTENSOR_RULES[name](np, *args, *(a.default for a in op.schema.arguments[len(args) :]))


def test_plain_operators_on_quantised_tensors() -> None:
    x = q(2, 6, 9, 9)
    near(rule("aten::relu", x), np.maximum(real(x), 0), 0.03, 120)
    near(rule("aten::mean.dim", x, [2, 3]), real(x).mean((2, 3)), 0.03, 120)
    near(rule("aten::adaptive_avg_pool2d", x, [1, 1]), real(x).mean((2, 3), keepdims=True), 0.03, 120)
    near(rule("aten::hardtanh", x, -0.5, 0.5), np.clip(real(x), -0.5, 0.5), 0.03, 120)
    near(rule("aten::sigmoid", x), 1 / (1 + np.exp(-real(x))), 1 / 256, 0)
    near(rule("aten::tanh", x), np.tanh(real(x)), 1 / 128, 128)
    near(rule("aten::cat", [x, x], 1), np.concatenate([real(x), real(x)], 1), 0.03, 120)
    np.testing.assert_array_equal(rule("aten::permute", x, [0, 2, 3, 1]).values, x.values.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(rule("aten::flatten.using_ints", x, 1).values, x.values.reshape(2, -1))
    first, second = rule("aten::chunk", x, 2, 1)
    np.testing.assert_array_equal(second.values, x.values[:, 3:])
    assert np.shares_memory(first.values, x.values)
    pooled = rule("aten::max_pool2d", x, [3, 3], [3, 3])
    np.testing.assert_array_equal(pooled.values, x.values.reshape(2, 6, 3, 3, 3, 3).max((3, 5)))
    assert rule("aten::relu_", x) is x and x.values.min() == 120


def test_averages_round_integers_to_even() -> None:
    x = QTensor(np.array([[[1, 2], [2, 2]], [[1, 0], [0, 1]]], np.uint8)[None], QUINT8, 0.1, 0)
    np.testing.assert_array_equal(rule("aten::avg_pool2d", x, [1, 2]).values[0, :, :, 0], [[2, 2], [0, 0]])


def test_rules_have_an_operator() -> None:
    for name in quantized.QTENSOR_RULES:
        assert table.by_full_name(name) is not None, name


def test_fake_quantisation() -> None:
    x = np.array([-10, -0.26, 0, 0.16, 0.26, 10], np.float32)
    y, mask = run("aten::fake_quantize_per_tensor_affine_cachemask", x, 0.1, 3, 0, 15)
    np.testing.assert_allclose(y, [-0.3, -0.3, 0, 0.2, 0.3, 1.2], rtol=1e-6)
    np.testing.assert_array_equal(mask, [False, True, True, True, True, False])
    y = run(
        "aten::fake_quantize_per_channel_affine",
        np.stack([x, x]),
        np.array([0.1, 1.0], np.float32),
        np.array([3, 0], np.int32),
        0,
        0,
        15,
    )
    np.testing.assert_allclose(y, [[-0.3, -0.3, 0, 0.2, 0.3, 1.2], [0, 0, 0, 0, 0, 10]], rtol=1e-6)
    for args in ((0.1, 3, 0, 15), (0.03, 0, -128, 127)):
        against_torch("aten::fake_quantize_per_tensor_affine", make(40), *args)
        against_torch("aten::fake_quantize_per_tensor_affine_cachemask", make(40), *args)
    scales, zeros = np.array([0.1, 0.2, 0.03], np.float32), np.array([1, 2, 3], np.int32)
    against_torch("aten::fake_quantize_per_channel_affine", make(2, 3, 4), scales, zeros, 1, 0, 15)
    against_torch("aten::fake_quantize_per_channel_affine", make(2, 3, 4), scales, zeros.astype(np.float32), 1, 0, 15)
    against_torch(
        "aten::_fake_quantize_learnable_per_tensor_affine", make(40), scales[:1], np.array([1.6], np.float32), 0, 15
    )


@pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("4bit", 4), ("2bit", 2)])
def test_rowwise_tables(kind: str, bits: int) -> None:
    w = make(10, 16)
    packed = run(f"quantized::embedding_bag_{kind}_prepack", w)
    assert packed.shape == (10, 16 * bits // 8 + (8 if bits == 8 else 4))
    back = run(f"quantized::embedding_bag_{kind}_unpack", packed)
    step = (w.max(1) - w.min(1)) / ((1 << bits) - 1)
    assert (np.abs(back - w) <= step[:, None] * 0.51 + 2e-3).all()
    indices, offsets = np.array([1, 2, 3, 9, 0]), np.array([0, 2, 2])
    want = np.stack([back[[1, 2]].sum(0), np.zeros(16), back[[3, 9, 0]].sum(0)])
    name = f"quantized::embedding_bag_{kind}_rowwise_offsets"
    np.testing.assert_allclose(run(name, packed, indices, offsets), want, atol=1e-5)
    for op, args in ((f"quantized::embedding_bag_{kind}_prepack", (w,)), (name, (packed, indices, offsets))):
        against_torch(op, *args)
    with pytest.raises(OpError, match="outside the table"):
        run(name, packed, np.array([10]), np.array([0]))


# ------------------------------------------------------------------------------------------------- archives


def test_states_of_archives() -> None:
    w, b = per_channel(4, 6), make(4)
    linear: Any = quantized.unpack_state(LINEAR, (w, b))
    assert linear.weight is w and linear.bias is b and linear.state == (w, b)
    half: Any = quantized.unpack_state(LINEAR, (make(4, 6), None))
    assert half.weight.dtype == np.float32 and half.bias is None
    weight = per_channel(4, 2, 3, 3)
    numbers = np.array([2, 2, 1, 1, 0, 1, 1, 0, 0, 1, 0], np.int16)
    conv: Any = quantized.unpack_state(CONV2D, ("2", [numbers, weight], [b]))
    assert (conv.stride, conv.padding, conv.dilation, conv.groups, conv.transpose) == ((2, 1), (1, 0), (1, 1), 1, False)
    np.testing.assert_array_equal(conv.state[1][0], numbers)
    third: Any = quantized.unpack_state(CONV2D, (3, numbers.tolist(), [None, weight, None]))
    assert third.bias is None and third.stride == (2, 1)
    cell: Any = quantized.unpack_state(CELL, ("quantized_dynamic", [b, b], [], [1], [linear, linear]))
    assert cell.reduce_range and cell.w_ih is linear and cell.state[0] == "quantized_dynamic"
    rows: Any = quantized.unpack_state(EMBEDDING, (1, [per_channel(5, 8)], [], [8]))
    np.testing.assert_allclose(
        run("quantized::embedding_byte", rows, np.array([[1, 4]])), real(per_channel(5, 8))[[[1, 4]]], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        (LINEAR, (), "pair"),
        (LINEAR, None, "pair"),
        (LINEAR, (per_channel(4, 6, 2), None), "no matrix"),
        (LINEAR, (per_channel(4, 6), np.zeros(3, np.float32)), "bias"),
        (LINEAR, (7, None), "no matrix"),
        (CONV2D, ("2", [], []), "tensors"),
        (CONV2D, ("9", [1], [2]), "version '9'"),
        (CONV2D, ("2", [np.zeros(11, np.int16), per_channel(4, 2, 3, 3)], [None]), "two|2 dims"),
        (CONV2D, ("2", [np.array([2, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0]), per_channel(4, 2, 3, 3)], [None]), "out of range"),
        (CONV3D, ("2", [np.array([2, 2, 1, 1, 0, 1, 1, 0, 0, 1, 0]), per_channel(4, 2, 3, 3)], [None]), "3 dims"),
        (CELL, ("quantized", [], [], [], [None, None]), "packed linear"),
        (EMBEDDING, (1, [], [], [8]), "version"),
        (EMBEDDING, (1, [q(3, 4)], [], [8]), "by rows"),
        ("__torch__.torch.classes.xnnpack.LinearOpContext", (), "not supported"),
    ],
)
def test_states_that_do_not_fit(name: str, state: Any, text: str) -> None:
    with pytest.raises(PickleError, match=text):
        quantized.unpack_state(name, state)


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        ("aten::quantize_per_tensor", (make(3).astype(np.float64), 0.1, 0, QINT8), DTypeError, "float32"),
        ("aten::quantize_per_tensor", (make(3), 0.1, 0, 6), DTypeError, "no quantised dtype"),
        ("aten::quantize_per_tensor", (make(3), 0.1, 300, QUINT8), OpError, "zero_point 300"),
        ("aten::quantize_per_channel", (make(3, 2), make(2), make(2), 0, QINT8), ShapeError, "do not fit"),
        ("aten::int_repr", (make(3),), DTypeError, "quantised tensor"),
        ("quantized::add", (make(3), q(3), 0.1, 0), DTypeError, "qa must be a quantised"),
        ("quantized::add", (q(3), q(4), 0.1, 0), ShapeError, "broadcast"),
        ("quantized::add", (q(3), q(3, code=QINT8, zero=0), 0.1, 0), OpError, "one quantised dtype"),
        ("quantized::cat", ([], 0, None, None), OpError, "at least one"),
        ("quantized::linear", (q(2, 3), 7, 0.1, 0), OpError, "W_prepack"),
        (
            "quantized::linear",
            (q(2, 3), quantized.LinearPackedParams(per_channel(4, 6)), 0.1, 0),
            ShapeError,
            "does not fit",
        ),
        (
            "quantized::linear_dynamic",
            (q(2, 6), quantized.LinearPackedParams(per_channel(4, 6))),
            DTypeError,
            "float32",
        ),
        ("quantized::linear_prepack", (make(2, 3),), DTypeError, "W must be"),
        ("quantized::conv2d.new", (q(1, 2, 5, 5), 7, 0.1, 0), OpError, "packed_weight"),
        ("quantized::conv2d_prepack", (per_channel(4, 2, 3, 3), None, [1], [1, 1], [1, 1], 1), ShapeError, "stride"),
        ("aten::fake_quantize_per_tensor_affine", (make(3), 0.1, 0, 5, 1), OpError, "must not exceed"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)


def test_rules_refuse_what_one_scale_cannot_say() -> None:
    with pytest.raises(OpError, match="per channel along dim 0"):
        rule("aten::permute", per_channel(4, 2), [1, 0])
    with pytest.raises(OpError, match="dequantize first"):
        rule("aten::to.dtype", q(2), 6)


# ------------------------------------------------------------------------------------------------- against PyTorch


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    module = pytest.importorskip("torch")
    if "fbgemm" not in module.backends.quantized.supported_engines:
        pytest.skip("this build of PyTorch lacks FBGEMM")
    before = module.backends.quantized.engine
    module.backends.quantized.engine = "fbgemm"
    yield module
    module.backends.quantized.engine = before


def theirs(torch: Any, x: Any) -> Any:
    """The same argument for PyTorch."""
    if isinstance(x, list):
        return [theirs(torch, v) for v in x]
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x.copy())
    if type(x) is not QTensor:
        return x
    values = torch.from_numpy(x.values.copy())
    if x.axis is None:
        return torch._make_per_tensor_quantized_tensor(values, x.scale, x.zero_point)
    scale, zero = torch.from_numpy(np.asarray(x.scale)), torch.from_numpy(np.asarray(x.zero_point))
    return torch._make_per_channel_quantized_tensor(values, scale, zero, x.axis)


def compare(got: Any, want: Any, steps: int = 0, atol: float = 1e-5) -> None:
    """Same integers (up to ``steps``), scale and zero point; same numbers where not quantised."""
    if isinstance(got, (list, tuple)):
        for g, w in zip(got, want, strict=True):
            compare(g, w, steps, atol)
    elif want.is_quantized:
        np.testing.assert_allclose(got.scale, want.q_scale(), rtol=1e-9)
        assert got.zero_point == want.q_zero_point()
        np.testing.assert_allclose(got.values.astype(int), want.int_repr().numpy().astype(int), atol=steps)
    else:
        np.testing.assert_allclose(got, want.detach().numpy(), atol=atol)


def call(torch: Any, name: str, *args: Any) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    return packet(*(theirs(torch, a) for a in args))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "args", "steps"),
    [
        ("quantized::add", (q(3, 40), q(3, 40, scale=0.015, zero=128, seed=1), 0.03, 90), 1),
        ("quantized::add_relu", (q(3, 40), q(3, 40, scale=0.015, zero=128, seed=1), 0.03, 90), 1),
        ("quantized::mul", (q(3, 40), q(3, 40, scale=0.015, zero=128, seed=1), 0.03, 90), 0),
        ("quantized::mul_relu", (q(3, 40), q(3, 40, scale=0.015, zero=128, seed=1), 0.03, 90), 0),
        ("quantized::cat", ([q(3, 40), q(3, 40, scale=0.015, zero=128, seed=1)], 1, 0.03, 90), 0),
        ("quantized::add.Scalar", (q(3, 40), 0.3), 0),
        ("quantized::mul.Scalar", (q(3, 40), -0.3), 0),
        ("quantized::sigmoid", (q(3, 40), 0.01, 3), 0),
        ("quantized::hardswish", (q(3, 40), 0.01, 30), 1),
        ("quantized::elu", (q(3, 40), 0.01, 100), 0),
        ("quantized::celu", (q(3, 40), 0.01, 100), 0),
        ("quantized::leaky_relu", (q(3, 40), 0.1, False, 0.01, 100), 1),
        ("quantized::softmax", (q(3, 40), 1, 0.004, 0), 0),
        ("quantized::relu6", (q(3, 40),), 0),
        ("quantized::layer_norm", (q(3, 40), [40], make(40), make(40), 1e-5, 0.03, 100), 1),
        ("quantized::group_norm", (q(2, 6, 5, 5), 3, make(6), make(6), 1e-5, 0.03, 100), 1),
        ("quantized::instance_norm", (q(2, 6, 5, 5), make(6), make(6), 1e-5, 0.03, 100), 1),
        ("quantized::batch_norm2d", (q(2, 6, 5, 5), make(6), make(6), make(6), abs(make(6)) + 0.5, 1e-5, 0.03, 100), 1),
        ("quantized::max_pool2d", (q(2, 6, 9, 9), [3, 3], [2, 2], [1, 1], [1, 1], False), 0),
    ],
)
def test_operators_against_torch(torch: Any, name: str, args: tuple[Any, ...], steps: int) -> None:
    compare(run(name, *args), call(torch, name, *args), steps)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "args", "steps"),
    [
        ("aten::avg_pool2d", ([2, 2],), 0),
        ("aten::avg_pool2d", ([3, 3], [2, 2], [1, 1]), 0),
        ("aten::adaptive_avg_pool2d", ([3, 4],), 0),
        ("aten::max_pool2d", ([3, 3], [2, 2], [1, 1]), 0),
        ("aten::mean.dim", ([2, 3],), 1),
        ("aten::sigmoid", (), 0),
        ("aten::tanh", (), 0),
        ("aten::clamp", (-0.5, 0.5), 0),
        ("aten::leaky_relu", (0.1,), 1),
        ("aten::chunk", (2, 1), 0),
        ("aten::upsample_nearest2d", ([18, 18],), 0),
        ("aten::upsample_bilinear2d", ([18, 18], False), 1),
    ],
)
def test_rules_against_torch(torch: Any, name: str, args: tuple[Any, ...], steps: int) -> None:
    x = q(2, 6, 9, 9)
    compare(rule(name, x, *args), call(torch, name, x, *args), steps)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("relu", ["", "_relu"])
@pytest.mark.parametrize("channels", [False, True])
def test_layers_against_torch(torch: Any, relu: str, channels: bool) -> None:
    x, b = q(5, 40), make(16)
    # Weights up to 64: without VNNI, PyTorch adds two products of bytes up in 16 bits, and cuts off what does not fit.
    w = per_channel(16, 40, least=0.06) if channels else q(16, 40, scale=0.06, zero=0, code=QINT8)
    assert np.abs(w.values.astype(int)).max() <= 64
    ours, packed = run("quantized::linear_prepack", w, b), call(torch, "quantized::linear_prepack", w, b)
    compare(
        run(f"quantized::linear{relu}", x, ours, 0.07, 60), call(torch, f"quantized::linear{relu}", x, packed, 0.07, 60)
    )
    for reduce_range in (False, True):
        args = make(5, 40, seed=4), ours, reduce_range
        want = call(torch, f"quantized::linear{relu}_dynamic", args[0], packed, reduce_range)
        compare(run(f"quantized::linear{relu}_dynamic", *args), want)
    for groups in (1, 2, 6):
        w4 = (
            per_channel(12, 6 // groups, 3, 3, least=0.06)
            if channels
            else q(12, 6 // groups, 3, 3, scale=0.06, zero=0, code=QINT8)
        )
        numbers = [2, 1], [1, 1], [1, 1], groups
        ours = run("quantized::conv2d_prepack", w4, make(12), *numbers)
        packed = call(torch, "quantized::conv2d_prepack", w4, make(12), *numbers)
        image = q(2, 6, 9, 9)
        want = call(torch, f"quantized::conv2d{relu}.new", image, packed, 0.05, 100)
        compare(run(f"quantized::conv2d{relu}.new", image, ours, 0.05, 100), want)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("half", [False, True])
def test_recurrent_layers_against_torch(torch: Any, kind: str, half: bool) -> None:
    gates = 4 if kind == "lstm" else 3
    ours, packed = [], []
    for d in range(2):
        w, b = (make(gates * 6, 5 if i == 0 else 6, seed=d) * 0.3 for i in (0, 1)), make(gates * 6, seed=d) * 0.3
        pair = []
        for v in w:
            if half:
                pair.append(
                    (run("quantized::linear_prepack_fp16", v, b), call(torch, "quantized::linear_prepack_fp16", v, b))
                )
            else:
                s = quantize(np, v, 0.01, 0, QINT8)
                pair.append((run("quantized::linear_prepack", s, b), call(torch, "quantized::linear_prepack", s, b)))
        make_cell = (
            "quantized::make_quantized_cell_params_fp16" if half else "quantized::make_quantized_cell_params_dynamic"
        )
        rest = () if half else (b, b, True)
        ours.append(run(make_cell, pair[0][0], pair[1][0], *rest))
        packed.append(call(torch, make_cell, pair[0][1], pair[1][1], *rest))
    x, h, c = make(7, 3, 5), make(2, 3, 6), make(2, 3, 6, seed=1)
    options = True, 1, 0.0, False, True, False
    if kind == "lstm":
        got = run("aten::quantized_lstm.input", x, [h, c], ours, *options)
        tensors = [torch.from_numpy(v) for v in (x, h, c)]
        want = torch.quantized_lstm(tensors[0], tensors[1:], packed, *options, dtype=torch.qint8, use_dynamic=True)
    else:
        got = run("aten::quantized_gru.input", x, h, ours, *options)
        want = torch.quantized_gru(torch.from_numpy(x), torch.from_numpy(h), packed, *options)
    compare(got, want, atol=2e-3)
