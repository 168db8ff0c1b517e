"""The convolution templates against float64: every stride, dilation, padding, group and tail, NaN round the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.conv import Conv, bind, method_of
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import Window
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError
from tests.kernels.templates.test_gemm import REFERENCE, close, numbers


def reference(x: np.ndarray, w: np.ndarray, conv: Conv) -> np.ndarray:
    window, groups = conv.window, conv.groups
    (py, px), (sy, sx), (dy, dx), (oh, ow) = window.padding, window.stride, window.dilation, window.output
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (py, py), (px, px)))
    n, c = x.shape[:2]
    split = padded.reshape(n, groups, c // groups, *padded.shape[2:])
    kernels = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    out = np.zeros((n, groups, kernels.shape[1], oh, ow))
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            tap = split[..., i * dy : i * dy + (oh - 1) * sy + 1 : sy, j * dx : j * dx + (ow - 1) * sx + 1 : sx]
            out += np.einsum("ngchw,gkc->ngkhw", tap, kernels[..., i, j])
    return out.reshape(n, -1, oh, ow)


def check(conv: Conv, method: str | None, seed: int = 0, accuracy: int = 1, alone: bool = True) -> None:
    rng = np.random.default_rng(seed)
    window, epilogue = conv.window, conv.epilogue
    x = numbers(rng, conv.images, conv.channels, window.height, window.width)
    w = numbers(rng, conv.filters, conv.channels // conv.groups, *window.kernel)
    bias = numbers(rng, conv.filters)
    want = reference(x, w, conv)
    residual = numbers(rng, *want.shape)
    if epilogue.bias:
        want += bias[:, None, None]
    if epilogue.residual and not epilogue.residual_last:
        want += residual
    want = REFERENCE[epilogue.activation](want)
    if epilogue.residual and epilogue.residual_last:
        want += residual
    # NaN before and behind the result shows whether anything is written outside, and behind the input what is read.
    room = np.full(want.size + 64, np.nan, np.float32)
    out = room[32:-32].reshape(want.shape)
    image = np.full(x.size + 64, np.nan, np.float32)
    image[32:-32] = x.ravel()
    kernel = bind(conv, w, bias if epilogue.bias else None, method)
    kernel.is_small = alone
    kernel(image[32:-32], out, *([residual] if epilogue.residual else []))
    close(out, want, accuracy * conv.channels // conv.groups * w.shape[2] * w.shape[3])
    out[...] = np.nan
    assert np.isnan(room).all()


pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=35, deadline=None)
@given(
    images=st.integers(1, 2),
    groups=st.integers(1, 3),
    channels=st.integers(1, 4),
    filters=st.integers(1, 9),
    size=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=pair,
    dilation=pair,
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    method=st.sampled_from(["dense", "rows", "few"]),
)
def test_any_geometry(
    images: int, groups: int, channels: int, filters: int, size: tuple[int, int], kernel: tuple[int, int],
    stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, int], method: str,
) -> None:  # fmt: skip
    window = Window(*size, kernel, stride, padding, dilation)
    assume(min(window.output) > 0)
    groups = 1 if method == "few" else groups
    check(Conv(images, channels * groups, filters * groups, window, groups, Epilogue(bias=True)), method)


@settings(max_examples=18, deadline=None)
@given(
    images=st.integers(1, 2),
    channels=st.integers(1, 20),
    filters=st.integers(1, 20),
    size=st.tuples(st.integers(1, 40), st.integers(1, 90)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    method=st.sampled_from(["winograd2", "winograd4"]),
)
def test_winograd_on_any_image(
    images: int, channels: int, filters: int, size: tuple[int, int], padding: tuple[int, int], method: str
) -> None:
    window = Window(*size, (3, 3), (1, 1), padding)
    assume(min(window.output) > 0)
    # Its transforms amplify what rounding loses.
    check(Conv(images, channels, filters, window, 1, Epilogue(bias=True)), method, accuracy=25)


@pytest.mark.parametrize("method", ["winograd2", "winograd4"])
def test_winograd_in_several_bands_and_chunks(method: str) -> None:
    window = Window(33, 47, (3, 3), (1, 1), (1, 1))
    check(Conv(2, 150, 130, window, 1, Epilogue(True, True, "relu")), method, accuracy=25)


@pytest.mark.parametrize(
    ("method", "limit"), [("dense", 3e-6), ("rows", 3e-6), ("winograd2", 3e-6), ("winograd4", 3e-5)]
)
def test_largest_error_relative_to_the_largest_number(method: str, limit: float) -> None:
    rng = np.random.default_rng(0)
    conv = Conv(1, 128, 64, Window(14, 14, (3, 3), (1, 1), (1, 1)))
    x, w = numbers(rng, 1, 128, 14, 14), numbers(rng, 64, 128, 3, 3)
    out = np.empty((1, 64, 14, 14), np.float32)
    bind(conv, w, method=method)(x, out)
    want = reference(x, w, conv)
    assert np.abs(out - want).max() < limit * np.abs(want).max()


def test_winograd_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match="for 3x3 windows of stride 1"):
        bind(Conv(1, 2, 2, Window(5, 5, (5, 5))), np.zeros((2, 2, 5, 5), np.float32), method="winograd4")


@pytest.mark.parametrize("method", ["dense", "rows", "few"])
@pytest.mark.parametrize("activation", ["relu", "silu", "hardswish"])
@pytest.mark.parametrize("last", [False, True])
def test_epilogues(method: str, activation: str, last: bool) -> None:
    window = Window(9, 17, (3, 3), (1, 1), (1, 1))
    check(Conv(2, 5, 7, window, 1, Epilogue(True, True, activation, last)), method)


@pytest.mark.parametrize("size", [1, 5, 7, 14, 28, 33])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_depthwise(size: int, stride: int, kernel: int) -> None:
    window = Window(size, size, (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2))
    check(Conv(1, 6, 6, window, 6, Epilogue(True, False, "hardswish")), None)


@pytest.mark.parametrize("pixels", [1, 7, 14, 31])
def test_pointwise(pixels: int) -> None:
    check(Conv(2, 13, 29, Window(pixels, pixels, (1, 1)), 1, Epilogue(True, True, "relu")), None)


@pytest.mark.parametrize("size", [(7, 7), (1, 3), (14, 14), (1, 1)])
def test_pointwise_by_pixels(size: tuple[int, int]) -> None:
    check(Conv(2, 70, 75, Window(*size, (1, 1)), 1, Epilogue(True, True, "relu")), "pixels")


@pytest.mark.parametrize("method", ["dense", "rows", "few", "winograd2", "winograd4"])
@pytest.mark.parametrize("threads", [2, 3])
def test_parts_of_a_team_together_make_the_whole(method: str, threads: int) -> None:
    with config(threads=threads):
        check(Conv(3, 6, 16, Window(21, 18, (3, 3), (1, 1), (1, 1)), 1, Epilogue(True)), method, 0, 25, alone=False)
        check(Conv(1, 6, 50, Window(21, 18, (3, 3), (1, 1), (1, 1)), 1, Epilogue(True)), method, 0, 25, alone=False)


@pytest.mark.parametrize("method", ["dense", "rows", "few", "winograd2", "winograd4"])
@pytest.mark.parametrize("width", [1, 4, 8])
def test_narrow_vectors(method: str, width: int) -> None:
    with config(simd_width=width):
        check(Conv(1, 5, 17, Window(13, 19, (3, 3), (1, 1), (1, 1)), 1, Epilogue(True, True, "silu")), method, 0, 25)


@pytest.mark.parametrize("width", [1, 4, 8])
def test_strides_with_narrow_vectors(width: int) -> None:
    with config(simd_width=width):
        for method in ("dense", "rows"):
            check(Conv(1, 3, 5, Window(13, 19, (3, 3), (2, 2), (1, 1)), 1), method)
        check(Conv(1, 30, 40, Window(5, 5, (1, 1))), "pixels")


def test_which_method_is_chosen() -> None:
    def chosen(channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        window = Window(size, size, (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2))
        with config(simd_width=16):
            return method_of(Conv(1, channels, filters, window, groups))

    assert chosen(96, 28, 96, 5, 2, 96) == "rows"
    assert chosen(128, 28, 128, 3, 1, 32) == "rows"
    assert chosen(64, 56, 64, 3) == "winograd4"
    # Of four tiles of 4x4 a vector would be mostly empty.
    assert chosen(512, 7, 512, 3) == "winograd2"
    assert chosen(64, 56, 128, 3, 2) == chosen(3, 32, 64, 3) == chosen(64, 56, 256, 1) == "dense"
    assert chosen(2048, 7, 512, 1) == chosen(240, 1, 64, 1) == "pixels"


def test_one_dimension_is_a_row() -> None:
    check(Conv(1, 4, 20, Window(1, 50, (1, 5), (1, 2), (0, 2)), 1), None)


def test_what_cannot_be_computed_is_refused() -> None:
    w = np.zeros((4, 2, 3, 3), np.float32)
    with pytest.raises(ArgumentError, match="nothing to compute"):
        bind(Conv(1, 2, 4, Window(2, 2, (3, 3))), w)
    with pytest.raises(ArgumentError, match="do not divide"):
        bind(Conv(1, 3, 4, Window(5, 5, (3, 3)), 2), w)
    with pytest.raises(ArgumentError, match="needs"):
        bind(Conv(1, 3, 4, Window(5, 5, (3, 3))), w)


def test_few_pixels_have_their_filters_in_the_lanes() -> None:
    with config(simd_width=8):
        assert method_of(Conv(1, 128, 64, Window(1, 4, (1, 3), (1, 2), (0, 1)))) == "few"
        assert method_of(Conv(1, 128, 64, Window(1, 40, (1, 3), (1, 2), (0, 1)))) == "dense"
        assert method_of(Conv(1, 128, 64, Window(1, 4, (1, 3), (1, 2), (0, 1)), 2)) == "dense"
        for images in (1, 3):
            conv = Conv(images, 19, 37, Window(5, 5, (3, 3), (2, 2), (1, 1)), 1, Epilogue(True, True, "relu", True))
            check(conv, "few", alone=False)
    with pytest.raises(ArgumentError, match="in one group, not in 2"):
        bind(Conv(1, 4, 4, Window(3, 3, (3, 3)), 2), np.zeros((4, 2, 3, 3), np.float32), method="few")
