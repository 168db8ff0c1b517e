"""Pooling as native steps, and what is left to the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.planes import Window
from gpujit.kernels.templates.pool import Pool, bind
from gpujit.support.errors import GpujitError
from tests.static_runtime.help import f32
from tests.static_runtime.test_products import check


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@given(kernel=pairs(1, 4), stride=pairs(1, 3), dilation=pairs(1, 2), part=st.floats(0, 0.5), ceil=st.booleans())
@settings(max_examples=60)
def test_max_pool2d(kernel: Any, stride: Any, dilation: Any, part: float, ceil: bool) -> None:
    padding = [int(part * ((k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True)]
    x = f32(2, 3, 11, 9)
    assert check("aten::max_pool2d", [x, list(kernel), list(stride), padding, list(dilation), ceil])


@given(
    kernel=pairs(1, 4),
    stride=pairs(1, 3),
    part=st.floats(0, 0.5),
    ceil=st.booleans(),
    counts=st.booleans(),
    divisor=st.sampled_from([None, 3, -2]),
)
@settings(max_examples=60)
def test_avg_pool2d(kernel: Any, stride: Any, part: float, ceil: bool, counts: bool, divisor: int | None) -> None:
    padding = [int(part * k) for k in kernel]
    assert check("aten::avg_pool2d", [f32(2, 3, 10, 9), list(kernel), list(stride), padding, ceil, counts, divisor])


@given(st.integers(1, 20), st.integers(1, 20), pairs(1, 8))
@settings(max_examples=30)
def test_adaptive_avg_pool2d(height: int, width: int, output: Any) -> None:
    assert check("aten::adaptive_avg_pool2d", [f32(2, 3, height, width), list(output)])
    assert check("aten::_adaptive_avg_pool2d", [f32(3, height, width), [1, 1]])


def test_images_of_one_dim_and_stride_by_default() -> None:
    assert check("aten::max_pool1d", [f32(2, 3, 17), [3], [2], [1], [1], True])
    assert check("aten::avg_pool1d", [f32(2, 3, 17), [4], [], [1], False, False])
    assert check("aten::adaptive_avg_pool1d", [f32(2, 3, 17), [5]])
    assert check("aten::max_pool2d", [f32(3, 9, 9), [2], [], [0], [1], False])


@given(
    size=pairs(1, 5), kernel=pairs(1, 40), stride=pairs(1, 40), part=st.floats(0, 0.5), ceil=st.booleans(),
    counts=st.booleans(), dilation=pairs(1, 3),
)  # fmt: skip
@settings(max_examples=80)
def test_windows_larger_than_the_image(
    size: Any, kernel: Any, stride: Any, part: float, ceil: bool, counts: bool, dilation: Any
) -> None:
    x = f32(2, 3, *size)
    padding = [int(part * k) for k in kernel]
    mean = [x, list(kernel), list(stride), padding, ceil, counts, None]
    largest = [x, list(kernel), list(stride), padding, list(dilation), ceil]
    for name, arguments in (("aten::avg_pool2d", mean), ("aten::max_pool2d", largest)):
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation if "max" in name else (1, 1), strict=True)]
        spare = (n + 2 * p - r + (s - 1) * ceil for n, p, r, s in zip(size, padding, reach, stride, strict=True))
        if min(spare) >= 0:
            assert check(name, arguments)


def test_windows_are_no_larger_than_the_image_they_read() -> None:
    bound = bind(Pool("mean", 3, Window(2, 3, (2560, 2560), (2560, 2560), (0, 0), (1, 1), (2558, 2557))))
    assert bound.words[bound.slots["tap_count"]] == 6


def test_nan_is_the_largest() -> None:
    x = f32(1, 2, 6, 6)
    x[0, 1, 3, 3] = np.nan
    x[0, 0, :3] = -np.inf
    assert check("aten::max_pool2d", [x, [3, 3], [1, 1], [1, 1], [1, 1], False])


def test_what_is_left_to_the_library() -> None:
    x = f32(2, 3, 8, 8)
    plain: list[Any] = [[2, 2], [2, 2], [0, 0], [1, 1], False]
    assert check("aten::max_pool2d", [x, *plain])
    assert check("aten::max_pool2d", [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2), *plain])
    assert not check("aten::max_pool2d", [x.astype(np.float64), *plain])
    assert not check("aten::max_pool2d", [f32(0, 3, 8, 8), *plain])
    assert not check("aten::adaptive_avg_pool2d", [x.astype(np.float64), [2, 2]])


@pytest.mark.parametrize("rest", [[[2, 2], [0, 1]], [[2, 2], [1, 1], [2, 2]]])
def test_errors_of_the_operator(rest: list[Any]) -> None:
    with pytest.raises(GpujitError, match="max_pool2d"):
        check("aten::max_pool2d", [f32(1, 1, 8, 8), *rest, *[[0, 0], [1, 1]][len(rest) - 2 :], False])
