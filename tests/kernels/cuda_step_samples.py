"""Operators with the shapes of real layers, whose steps' kernels are compiled and looked at without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.dtypes import BFLOAT16, BOOL_, FLOAT16, FLOAT32
from gpujit.kernels.launches import DeviceKernel, Launch
from gpujit.static_runtime.device_makers import device_step
from tests.static_runtime.device_help import graph_of, places_of


def empty(*shape: int, dtype: np.dtype = FLOAT32) -> np.ndarray:
    """An array that nobody reads."""
    return np.empty(shape, dtype)


def _attention(dtype: np.dtype, depth: int, mask: Any = None, is_causal: bool = False) -> tuple[str, list[Any]]:
    tensors = [empty(8, 12, 64, depth, dtype=dtype) for _ in range(3)]
    return "aten::scaled_dot_product_attention", [*tensors, mask, 0.0, is_causal, None, False]


def _layer(dtype: np.dtype, gates: int, states: int, batch: int) -> list[Any]:
    sizes = [(gates * 128, 64), (gates * 128, 128), (gates * 128,), (gates * 128,)]
    given = [empty(1, batch, 128, dtype=dtype) for _ in range(states)]
    weights = [empty(*s, dtype=dtype) for s in sizes]
    return [empty(2, batch, 64, dtype=dtype), given if states == 2 else given[0], weights, True, 1, 0.0, *[False] * 3]


STEPS: dict[str, tuple[str, list[Any]]] = {
    "columns": ("aten::conv2d", [empty(1, 64, 56, 56), empty(64, 64, 3, 3), None, [1, 1], [1, 1], [1, 1], 1]),
    "whole_filters": ("aten::conv1d", [empty(1, 128, 4), empty(64, 128, 3), empty(64), [2], [1], [1], 1]),
    "depthwise": ("aten::conv2d", [empty(1, 64, 56, 56), empty(64, 1, 3, 3), empty(64), [1, 1], [1, 1], [1, 1], 64]),
    "depthwise_half": (
        "aten::conv2d",
        [empty(1, 64, 56, 56, dtype=FLOAT16), empty(64, 1, 3, 3, dtype=FLOAT16), None, [2, 2], [1, 1], [1, 1], 64],
    ),
    "spread_sums": (
        "aten::conv_transpose2d.input",
        [empty(1, 64, 28, 28), empty(64, 32, 2, 2), empty(32), [2, 2], [0, 0], [0, 0], 1, [1, 1]],
    ),
    "max_pool": ("aten::max_pool2d", [empty(1, 64, 112, 112), [3, 3], [2, 2], [1, 1], [1, 1], False]),
    "max_pool_places": (
        "aten::max_pool2d_with_indices",
        [empty(1, 64, 112, 112), [3, 3], [2, 2], [1, 1], [1, 1], False],
    ),
    "adaptive_max_half": ("aten::adaptive_max_pool2d", [empty(1, 64, 13, 13, dtype=FLOAT16), [6, 6]]),
    "avg_pool": ("aten::avg_pool2d", [empty(1, 64, 56, 56), [3, 3], [1, 1], [1, 1], False, False, None]),
    "global_pool": ("aten::adaptive_avg_pool2d", [empty(1, 512, 8, 8), [1, 1]]),
    "adaptive_pool": ("aten::adaptive_avg_pool2d", [empty(1, 64, 13, 13), [6, 6]]),
    "bilinear": ("aten::upsample_bilinear2d.vec", [empty(1, 64, 28, 28), [56, 56], False, None]),
    "nearest_half": ("aten::upsample_nearest2d.vec", [empty(1, 64, 28, 28, dtype=FLOAT16), None, [2.0, 2.0]]),
    "reflection": ("aten::reflection_pad2d", [empty(1, 64, 28, 28), [1, 1, 1, 1]]),
    "index_put": ("aten::index_put", [empty(64, 64, 64), [np.zeros(8, np.int64)] * 2, empty(8, 64), False]),
    "scatter_add": ("aten::scatter_add", [empty(64, 64), 0, np.zeros((32, 64), np.int64), empty(32, 64)]),
    "index_add_half": (
        "aten::index_add",
        [empty(64, 64, dtype=FLOAT16), 0, np.zeros(32, np.int64), empty(32, 64, dtype=FLOAT16), 1],
    ),
    "index_put_add": ("aten::index_put", [empty(64, 64, 64), [np.zeros(8, np.int64)] * 2, empty(8, 64), True]),
    "embedding_bag": (
        "aten::embedding_bag.padding_idx",
        [empty(64, 128), np.zeros(32, np.int64), np.zeros(8, np.int64), False, 1, False, None, False, None],
    ),
    "one_hot": ("aten::one_hot", [np.zeros((8, 64), np.int64), 100]),
    "sort": ("aten::sort", [empty(64, 1000), -1, True]),
    "sort_wide": ("aten::sort", [empty(4, 1 << 14, dtype=np.dtype("i8")), -1, False]),
    "topk_half": ("aten::topk", [empty(8, 512, 16, dtype=FLOAT16), 5, 1, True, True]),
    "topk_long": ("aten::topk", [empty(4, 1 << 14), 100, -1, True, True]),
    "softmax_split": ("aten::softmax.int", [empty(4, 1 << 20), -1, None]),
    "mean_split": ("aten::mean.dim", [empty(1 << 22, 3), [0], False, None]),
    "attention": _attention(FLOAT32, 64),
    "attention_causal": _attention(FLOAT32, 64, None, True),
    "attention_wide": _attention(FLOAT32, 128),
    "attention_half": _attention(FLOAT16, 64, empty(64, 64, dtype=BOOL_)),
    "attention_bfloat16": _attention(BFLOAT16, 64, empty(8, 1, 1, 64, dtype=BFLOAT16)),
    "lstm": ("aten::lstm.input", _layer(FLOAT32, 4, 2, 1)),
    "lstm_half": ("aten::lstm.input", _layer(FLOAT16, 4, 2, 64)),
    "gru": ("aten::gru.input", _layer(FLOAT32, 3, 1, 1)),
    "attention_composed": (
        "aten::scaled_dot_product_attention",
        [*(empty(8, 12, 512, 64, dtype=FLOAT16) for _ in range(3)), None, 0.0, True, None, False],
    ),
}


def kernels_of(name: str) -> list[DeviceKernel]:
    """The kernels of a sample's step."""
    op, arguments = STEPS[name]
    graph, node, given = graph_of(op, arguments)
    places = places_of(graph, node, given)
    made = device_step(node, places.get, places[node.outputs[0]])
    assert made is not None, name
    found = [call.kernel for call in made[0].calls if isinstance(call, Launch)]
    return list(dict.fromkeys(found))
