"""Transposed convolutions against float64: strides, dilation, phases that no tap reaches, groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpujit.kernels.templates.conv_transposed import TransposedConv, bind
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.support.errors import ArgumentError
from tests.kernels.templates.test_gemm import close, numbers


def reference(x: np.ndarray, w: np.ndarray, conv: TransposedConv) -> np.ndarray:
    (sy, sx), (py, px), (dy, dx), (h, v) = conv.stride, conv.padding, conv.dilation, conv.size
    height, width = conv.output
    room = np.zeros((conv.images, conv.filters, height + 2 * py + 64, width + 2 * px + 64))
    per = conv.channels // conv.groups
    for c in range(conv.channels):
        group = c // per
        filters = slice(group * w.shape[1], (group + 1) * w.shape[1])
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                rows = slice(i * dy, i * dy + (h - 1) * sy + 1, sy)
                columns = slice(j * dx, j * dx + (v - 1) * sx + 1, sx)
                room[:, filters, rows, columns] += x[:, c, None].astype(np.float64) * w[c, :, i, j][:, None, None]
    return room[:, :, py : py + height, px : px + width]


def check(conv: TransposedConv) -> None:
    rng = np.random.default_rng(0)
    x = numbers(rng, conv.images, conv.channels, *conv.size)
    w = numbers(rng, conv.channels, conv.filters // conv.groups, *conv.kernel)
    bias = numbers(rng, conv.filters)
    want = reference(x, w, conv)
    residual = numbers(rng, *want.shape)
    if conv.epilogue.bias:
        want += bias[:, None, None]
    if conv.epilogue.residual:
        want += residual
    if conv.epilogue.activation:
        want = np.maximum(want, 0)
    room = np.full(want.size + 64, np.nan, np.float32)
    out = room[32:-32].reshape(want.shape)
    for kernel in bind(conv, w, bias if conv.epilogue.bias else None):
        kernel(x, out, *([residual] if conv.epilogue.residual else []))
    close(out, want, conv.channels * w.shape[2] * w.shape[3])
    out[...] = np.nan
    assert np.isnan(room).all()


@settings(max_examples=20, deadline=None)
@given(
    images=st.integers(1, 2),
    groups=st.integers(1, 2),
    channels=st.integers(1, 3),
    filters=st.integers(1, 5),
    size=st.tuples(st.integers(1, 9), st.integers(1, 20)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    more=st.integers(0, 1),
)
def test_any_geometry(
    images: int, groups: int, channels: int, filters: int, size: tuple[int, int], kernel: tuple[int, int],
    stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], more: int,
) -> None:  # fmt: skip
    extra = (min(more, max(stride[0], dilation[0]) - 1), min(more, max(stride[1], dilation[1]) - 1))
    conv = TransposedConv(
        images, channels * groups, filters * groups, size, kernel, stride, padding, extra, dilation, groups,
        Epilogue(bias=True),
    )  # fmt: skip
    assume(min(conv.output) > 0)
    check(conv)


def test_doubling_with_a_residual() -> None:
    check(TransposedConv(1, 12, 20, (7, 9), (4, 4), (2, 2), (1, 1), epilogue=Epilogue(True, True, "relu")))


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ArgumentError, match="needs"):
        bind(TransposedConv(1, 2, 3, (4, 4), (3, 3)), np.zeros((2, 2, 3, 3), np.float32))
    with pytest.raises(ArgumentError, match="nothing to compute"):
        bind(TransposedConv(1, 2, 3, (1, 1), (1, 1), padding=(1, 1)), np.zeros((2, 3, 1, 1), np.float32))
