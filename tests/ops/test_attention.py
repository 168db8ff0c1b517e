"""Attention against a plain softmax(q k / sqrt(d)) v, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit.ops.families.elementwise.activations
import gpujit.ops.families.layers.attention  # noqa: F401  declares the entries
from gpujit.support.errors import DTypeError, OpError, ShapeError
from tests.ops.check import against_torch, run

SDPA = "aten::scaled_dot_product_attention"
MATH = "aten::_scaled_dot_product_attention_math"
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
MHA = "aten::_native_multi_head_attention"
LAYER = "aten::_transformer_encoder_layer_fwd"


def make(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers of about half unit size."""
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * 0.5).astype(dtype)


def oracle(q: Any, k: Any, v: Any, added: Any, scale: float) -> Any:
    """Attention in float64 by its definition; rows of -inf give zeros."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * scale + added
    weights = np.exp(scores)
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


@pytest.mark.parametrize("kind", ["none", "bool", "float", "causal", "scale"])
def test_definition(kind: str) -> None:
    q, k, v = make(2, 3, 4, 8), make(2, 3, 5, 8, seed=1), make(2, 3, 5, 6, seed=2)
    keep = np.random.default_rng(0).random((4, 5)) > 0.4
    keep[1] = False
    added: Any = 0.0
    args: dict[str, tuple[Any, ...]] = {
        "none": (),
        "bool": (keep,),
        "float": (make(4, 5),),
        "causal": (None, 0.0, True),
        "scale": (None, 0.0, False, 0.1),
    }
    if kind == "bool":
        added = np.where(keep, 0, -np.inf)
    elif kind == "float":
        added = make(4, 5)
    elif kind == "causal":
        added = np.where(np.tri(4, 5), 0, -np.inf)
    got = run(SDPA, q, k, v, *args[kind])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, oracle(q, k, v, added, 0.1 if kind == "scale" else 8**-0.5), atol=1e-5)


def test_a_row_that_sees_no_key_is_zero() -> None:
    q = make(1, 2, 4)
    y = run(SDPA, q, q, q, np.array([[True, True], [False, False]]))
    np.testing.assert_array_equal(y[0, 1], np.zeros(4))
    y = run(SDPA, q, q, q, np.array([[0, 0], [-np.inf, -np.inf]], np.float32))
    np.testing.assert_array_equal(y[0, 1], np.zeros(4))


def test_grouped_queries_share_heads() -> None:
    q, k, v = make(1, 4, 3, 8), make(1, 2, 5, 8), make(1, 2, 5, 8, seed=3)
    y = run(SDPA, q, k, v, None, 0.0, False, None, True)
    np.testing.assert_allclose(y, oracle(q, k.repeat(2, 1), v.repeat(2, 1), 0.0, 8**-0.5), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "shapes", [((2, 4, 5, 8), (2, 4, 7, 8)), ((4, 5, 8), (4, 7, 8)), ((5, 8), (7, 8)), ((0, 2, 3, 4), (0, 2, 3, 4))]
)
@pytest.mark.parametrize("options", [(), (None, 0.0, True), (None, 0.0, False, 0.3)])
def test_against_torch(shapes: tuple[tuple[int, ...], ...], dtype: Any, options: tuple[Any, ...]) -> None:
    q, k = make(*shapes[0], dtype=dtype), make(*shapes[1], dtype=dtype, seed=1)
    against_torch(SDPA, q, k, k[..., ::-1], *options, tolerance=3e-3 if dtype == np.float16 else None)


@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 1, 7), (2, 4, 5, 7), (1, 4, 1, 7)])
@pytest.mark.parametrize("kind", ["bool", "float", "inf"])
def test_masks_against_torch(shape: tuple[int, ...], kind: str) -> None:
    keep = np.random.default_rng(3).random(shape) > 0.4
    mask = {"bool": keep, "float": make(*shape), "inf": np.where(keep, 0, -np.inf).astype(np.float32)}[kind]
    against_torch(SDPA, make(2, 4, 5, 8), make(2, 4, 7, 8), make(2, 4, 7, 8, seed=1), mask)
    if kind != "bool":
        against_torch(FLASH, make(2, 4, 5, 8), make(2, 4, 7, 8), make(2, 4, 7, 8, seed=1), 0.0, False, mask)
    against_torch(MATH, make(2, 4, 5, 8), make(2, 4, 7, 8), make(2, 4, 7, 8, seed=1), mask)


def test_no_keys_and_no_queries() -> None:
    assert run(SDPA, make(1, 2, 0, 4), make(1, 2, 3, 4), make(1, 2, 3, 4)).shape == (1, 2, 0, 4)
    np.testing.assert_array_equal(
        run(SDPA, make(1, 2, 3, 4), make(1, 2, 0, 4), make(1, 2, 0, 4)), np.zeros((1, 2, 3, 4))
    )


def weights(d: int) -> tuple[Any, ...]:
    return make(3 * d, d), make(3 * d), make(d, d, seed=5), make(d)


def masks() -> list[tuple[Any, Any]]:
    padding = np.zeros((2, 5), bool)
    padding[1, 3:] = True
    causal = np.triu(np.ones((5, 5), bool), 1)
    both = np.broadcast_to(causal, (2, 2, 5, 5)) | padding[:, None, None]
    return [(None, None), (padding, 1), (causal, 0), (both, 2)]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("average", [False, True])
def test_multi_head_against_torch(which: int, average: bool) -> None:
    x = make(2, 5, 8)
    against_torch(MHA, x, x, x, 8, 2, *weights(8), *masks()[which][:1], True, average, masks()[which][1])


def test_multi_head_weights_are_left_out_when_not_needed() -> None:
    x = make(2, 5, 8)
    y, none = run(MHA, x, x, x, 8, 2, *weights(8), None, False)
    assert none is None
    np.testing.assert_allclose(y, run(MHA, x, x.copy(), x.copy(), 8, 2, *weights(8))[0], atol=1e-6)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_against_torch(which: int, gelu: bool, norm_first: bool) -> None:
    d = 8
    rest = (
        make(d),
        make(d, seed=1),
        make(d, seed=2),
        make(d, seed=3),
        make(16, d),
        make(16),
        make(d, 16),
        make(d, seed=4),
    )
    mask, mask_type = masks()[which]
    against_torch(LAYER, make(2, 5, d), d, 2, *weights(d), gelu, norm_first, 1e-5, *rest, mask, mask_type)


def test_projection_is_cut_into_heads() -> None:
    qkv = make(1, 2, 6)
    q, k, v = run("aten::_transform_bias_rescale_qkv", qkv, np.zeros(6, np.float32), 2)
    np.testing.assert_allclose(q[0, 1], qkv[0, :, 1:2], rtol=1e-6)
    np.testing.assert_array_equal(v[0, 0], qkv[0, :, 4:5])
    against_torch("aten::_transform_bias_rescale_qkv", make(2, 5, 24), make(24), 2)
    assert k.shape == (1, 2, 2, 1)


@pytest.mark.parametrize(("rows", "want"), [([[1, 1, 0], [1, 0, 0]], True), ([[1, 0, 1], [1, 1, 1]], False)])
def test_left_aligned_masks(rows: Any, want: bool) -> None:
    assert run("aten::_nested_tensor_from_mask_left_aligned", make(2, 3, 4), np.array(rows, bool)) is want


@pytest.mark.parametrize(
    ("name", "args", "error", "text"),
    [
        (SDPA, (make(2, 3), make(2, 3, dtype=np.float64), make(2, 3)), DTypeError, "float64"),
        (SDPA, (make(1, 2, 3), make(1, 2, 4), make(1, 2, 4)), ShapeError, "do not broadcast"),
        (SDPA, (make(2, 3), make(2, 4), make(2, 4)), ShapeError, "last dim"),
        (SDPA, (make(1, 2, 3),) * 3 + (np.ones((2, 2), bool), 0.0, True), OpError, "exclude each other"),
        (SDPA, (make(1, 2, 3),) * 3 + (np.ones((2, 2), int),), DTypeError, "attn_mask"),
        (SDPA, (make(1, 2, 3),) * 3 + (np.ones((2, 5), bool),), ShapeError, "broadcast"),
        (MHA, (make(2, 5, 8),) * 3 + (8, 3, *weights(8)), ShapeError, "divide evenly"),
        (MHA, (make(2, 5, 8),) * 3 + (8, 2, *weights(8), np.ones((3, 3), bool), True, True, 1), ShapeError, "mask"),
        ("aten::_nested_tensor_from_mask", (make(2, 3, 4), np.ones((2, 3), bool)), OpError, "padded tensors"),
    ],
)
def test_errors(name: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(name, *args)
