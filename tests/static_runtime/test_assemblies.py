"""Tensors put together by native steps, and frames of a signal; what is left to the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.config import config
from tests.static_runtime.help import f32, run_graph
from tests.static_runtime.test_recurrent import graph_of


def check(name: str, arguments: list[Any], constants: set[int] = frozenset()) -> bool:  # type: ignore[assignment]
    """Whether the node is a native step; either way its result is exactly (a product: nearly) the interpreter's."""
    graph, given = graph_of(name, arguments, constants)
    wanted = run_graph(graph, given)
    module = PlannedGraph(graph, {}, Lowerer(np))
    with config(check_plan=True):
        got = module.run(given)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if name == "aten::conv1d":
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(got, wanted)
    (kind,) = {t.name.split()[0] for t in module.tiers() if t.label == name}
    return kind == "native"


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(SHAPES, st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
@settings(max_examples=40, deadline=None)
def test_cat_and_stack(shape: list[int], sizes: list[int], data: Any) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for k, n in enumerate(sizes):
        own = list(shape)
        own[dim] = n
        parts.append(f32(*own, seed=k))
    assert check("aten::cat", [parts, dim])
    dim = data.draw(st.integers(-len(shape) - 1, len(shape)))
    assert check("aten::stack", [[f32(*shape, seed=k) for k in range(len(sizes))], dim])


def test_layouts() -> None:
    x, turned = f32(4, 6), f32(6, 4).T
    assert check("aten::cat", [[x, x[:, ::2]], 1])
    assert check("aten::cat", [[x, f32(8, 6)[::2]], 1])
    assert check("aten::stack", [[x[:, 2], x[:, 0]], 0])
    # Within one run of the result, elements of the second lie at two strides.
    assert not check("aten::cat", [[x, turned], 0])
    assert check("aten::cat", [[turned, x], 1])


def test_joined_tensors_that_are_left_to_the_interpreter() -> None:
    large = f32(300, 200)
    assert not check("aten::cat", [[large, large], 0])
    assert not check("aten::cat", [[f32(3), f32(3).astype(np.float64)], 0])
    assert not check("aten::cat", [[f32(2).astype(np.float64)] * 2, 0])
    assert not check("aten::cat", [[f32(0), f32(2, 3)], 0])
    assert not check("aten::stack", [[f32(2)] * 17, 0])


@given(st.lists(st.integers(1, 4), max_size=2), st.integers(1, 30), st.data())
@settings(max_examples=30, deadline=None)
def test_mirrored_borders(lead: list[int], length: int, data: Any) -> None:
    sides = [data.draw(st.integers(0, length - 1)) for _ in range(2)]
    x = f32(*lead, 1, length)
    assert check("aten::reflection_pad1d", [x[0] if len(lead) == 2 else x, sides]) or len(lead) == 0


def test_pad_by_mode() -> None:
    x = f32(2, 3, 9)
    assert check("aten::pad", [x, [4, 2], "reflect", None])
    assert check("aten::pad", [f32(9, 3, 2).T, [4, 2], "reflect", None]) is False
    assert not check("aten::pad", [x, [4, 2], "replicate", None])
    assert not check("aten::pad", [f32(1, 2, 3, 9), [4, 2, 1, 1], "reflect", None])


@pytest.mark.parametrize("bias", [None, f32(20, seed=2)])
@pytest.mark.parametrize("numbers", [(1, 1), (7, 1), (16, 2)])
def test_frames_of_a_signal(bias: np.ndarray | None, numbers: tuple[int, int]) -> None:
    stride, dilation = numbers
    w = f32(20, 1, 24, seed=1)
    for x in (f32(2, 1, 130), f32(130, 1, 2).T, f32(3, 1, 260)[:, :, ::2]):
        assert check("aten::conv1d", [x, w, bias, [stride], [0], [dilation], 1], {1, 2})
