"""Convolutions as native steps, and those that are left to the library."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates import packs
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph
from tests.static_runtime.help import f32
from tests.static_runtime.test_products import check, graph_of

SWITCHES = [False, False, True, True]


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
    kernel=pairs(1, 3),
    stride=pairs(1, 2),
    padding=pairs(0, 2),
    dilation=st.integers(1, 2),
    has_bias=st.booleans(),
)
@settings(max_examples=40)
def test_conv2d(sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: int, has_bias: bool) -> None:
    n, groups, channels, filters = sizes
    x = f32(n, groups * channels, 9, 7)
    w = f32(groups * filters, channels, *kernel, seed=1)
    bias = f32(groups * filters, seed=2) if has_bias else None
    rest = [list(stride), list(padding), [dilation, dilation], groups]
    assert check("aten::conv2d", [x, w, bias, *rest], {1, 2})


@pytest.mark.parametrize("bias", [None, f32(24, seed=2)])
def test_shapes_that_other_templates_take(bias: np.ndarray | None) -> None:
    for x, w, rest in (
        (f32(1, 16, 14, 14), f32(24, 16, 3, 3, seed=1) / 12, [[1, 1], [1, 1], [1, 1], 1]),
        (f32(2, 40, 7, 7), f32(24, 40, 1, 1, seed=1), [[1, 1], [0, 0], [1, 1], 1]),
        (f32(1, 24, 14, 14), f32(24, 1, 5, 5, seed=1), [[2, 2], [2, 2], [1, 1], 24]),
    ):
        assert check("aten::conv2d", [x, w, bias, *rest], {1, 2})


def test_conv1d_and_traced_ones() -> None:
    x, w, bias = f32(2, 6, 20), f32(8, 3, 5, seed=1), f32(8, seed=2)
    assert check("aten::conv1d", [x, w, bias, [2], [2], [1], 2], {1, 2})
    assert check("aten::_convolution", [x, w, bias, [1], [0], [2], False, [0], 2, *SWITCHES], {1, 2})
    y, v = f32(1, 3, 8, 8), f32(4, 3, 3, 3, seed=1)
    assert check("aten::_convolution", [y, v, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, *SWITCHES], {1, 2})


@pytest.mark.parametrize("name", ["aten::conv2d.padding", "aten::_convolution_mode"])
@pytest.mark.parametrize("taps", [(1, 1), (3, 5), (4, 3)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_and_valid(name: str, taps: tuple[int, int], dilation: int) -> None:
    x, w, bias = f32(2, 4, 11, 12), f32(6, 2, *taps, seed=1), f32(6, seed=2)
    assert check(name, [x, w, bias, [1, 1], "valid", [dilation] * 2, 2], {1, 2})
    assert check(name, [x, w, None, [2, 1], "valid", [dilation, 1], 2], {1, 2})
    # With an even number of taps there is a zero more behind than before.
    is_even = any((t - 1) * dilation % 2 for t in taps)
    assert check(name, [x, w, bias, [1, 1], "same", [dilation] * 2, 2], {1, 2}) is not is_even


def test_same_and_valid_of_one_dim() -> None:
    x, w = f32(2, 4, 11), f32(6, 4, 5, seed=1)
    for padding in ("same", "valid"):
        assert check("aten::conv1d.padding", [x, w, None, [1], padding, [1], 1], {1, 2})
        assert check("aten::_convolution_mode", [x, w, None, [1], padding, [1], 1], {1, 2})


def test_images_that_lie_otherwise_are_copied_first() -> None:
    x, w = f32(2, 3, 8, 8), f32(4, 3, 3, 3, seed=1)
    plain = [[1, 1], [1, 1], [1, 1], 1]
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert check("aten::conv2d", [turned, w, None, *plain], {1, 2})
    assert check("aten::conv2d", [f32(2, 3, 9, 16)[:, :, ::-1, ::2], w, None, *plain], {1, 2})


def test_what_is_left_to_the_library() -> None:
    x, w = f32(2, 3, 8, 8), f32(4, 3, 3, 3, seed=1)
    plain = [[1, 1], [1, 1], [1, 1], 1]
    assert check("aten::conv2d", [x, w, None, *plain], {1, 2})
    assert not check("aten::conv2d", [x, w, None, *plain], {2})
    assert not check("aten::conv2d", [x, w, f32(4), *plain], {1})
    assert not check("aten::conv2d", [x[0], w, None, *plain], {1, 2})
    assert not check("aten::conv2d", [x.astype(np.float64), w.astype(np.float64), None, *plain], {1, 2})
    across = [[1, 1], [0, 0], [1, 1], True, [0, 0], 1]
    assert not check("aten::_convolution", [f32(2, 4, 5, 5), w, None, *across, *SWITCHES], {1, 2})


def test_packed_weights_are_shared_and_go_with_the_weights() -> None:
    w = f32(16, 8, 3, 3)
    gc.collect()
    before = len(packs._packs)
    modules = []
    for images in (1, 2):
        graph, given = graph_of("aten::conv2d", [f32(images, 8, 6, 6), w, None, [1, 1], [0, 0], [1, 1], 1], {1, 2})
        modules.append((PlannedGraph(graph, {}, Lowerer(np)), given))
    owners: list[Any] = [m.plan(given).segments[0].steps[0].kernel.owner for m, given in modules]
    packed = [o.constants["weights"] for o in owners]
    assert packed[0] is packed[1]
    assert all(o.words[o.slots["weights"]] == packed[0].ctypes.data for o in owners)
    assert len(packs._packs) > before
    del w, modules, graph, owners, packed
    gc.collect()
    assert len(packs._packs) == before
