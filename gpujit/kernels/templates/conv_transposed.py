"""Transposed convolutions of NCHW arrays: one ordinary convolution for each phase of the strides.

Pixels of the result whose places agree modulo the stride read the same taps. They are the result of a convolution of
stride 1 with those taps in reverse order, and lie a stride apart. No zero is multiplied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.kernels.templates.conv import Conv, bind_dense
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.planes import Window
from gpujit.support.errors import ArgumentError


class TransposedConv(NamedTuple):
    """Pairs are (y, x); ``more`` is what PyTorch calls output padding."""

    images: int
    channels: int
    filters: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    more: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    epilogue: Epilogue = Epilogue()

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result."""
        y, x = (
            (n - 1) * s - 2 * p + d * (t - 1) + m + 1
            for n, s, p, d, t, m in zip(self.size, self.stride, self.padding, self.dilation, self.kernel, self.more)
        )
        return y, x


class _Phase(NamedTuple):
    """Along one axis: which taps a phase reads, in the order of the input; their distance there; the first one's
    place.
    """

    taps: list[int]
    distance: int
    first: int


def _phase(phase: int, kernel: int, stride: int, padding: int, dilation: int) -> _Phase:
    taps = [t for t in range(kernel) if (phase + padding - t * dilation) % stride == 0][::-1]
    places = [(phase + padding - t * dilation) // stride for t in taps]
    distance = places[1] - places[0] if len(places) > 1 else 1
    return _Phase(taps, distance, places[0] if places else 0)


def bind(conv: TransposedConv, weights: np.ndarray, bias: np.ndarray | None = None) -> list[BoundTemplate]:
    """Kernels to call one after the other with (x, out), and a residual last; each writes its own part of the result.

    Weights are [C, K / groups, kernel y, kernel x]. Raises ArgumentError.
    """
    height, width = conv.output
    expected = (conv.channels, conv.filters // conv.groups, *conv.kernel)
    if min(height, width, conv.images, *conv.size) < 1:
        raise ArgumentError(f"a transposed convolution with a result of {conv.output} pixels has nothing to compute")
    if weights.shape != expected or conv.channels % conv.groups or conv.filters % conv.groups:
        raise ArgumentError(f"weights of shape {weights.shape} for a transposed convolution that needs {expected}")
    if (bias is None) == conv.epilogue.bias:
        raise ArgumentError("a bias is given or promised, but not both")
    conv.epilogue.check()
    # [groups, C / groups, K / groups, ...] to [K, C / groups, ...]
    split = weights.reshape(conv.groups, conv.channels // conv.groups, *expected[1:]).swapaxes(1, 2)
    turned = np.ascontiguousarray(split, np.float32).reshape(conv.filters, -1, *conv.kernel)
    found = []
    for ry in range(min(conv.stride[0], height)):
        for rx in range(min(conv.stride[1], width)):
            found.append(_bind_phase(conv, turned, bias, (ry, rx)))
    return found


def _bind_phase(
    conv: TransposedConv, weights: np.ndarray, bias: np.ndarray | None, phase: tuple[int, int]
) -> BoundTemplate:
    y, x = (_phase(*one) for one in zip(phase, conv.kernel, conv.stride, conv.padding, conv.dilation))
    rows, columns = (np.arange(r, size, s) for r, size, s in zip(phase, conv.output, conv.stride))
    part = weights[:, :, y.taps][:, :, :, x.taps]
    if not part.size:
        # No tap reaches these pixels: they are what the epilogue makes of zero.
        part, y, x = np.zeros((*part.shape[:2], 1, 1), np.float32), _Phase([0], 1, 0), _Phase([0], 1, 0)
    more = tuple(
        len(out) - 1 + (len(axis.taps) - 1) * axis.distance + 1 - size + 2 * axis.first
        for out, axis, size in zip((rows, columns), (y, x), conv.size)
    )
    window = Window(
        *conv.size, (len(y.taps), len(x.taps)), (1, 1), (-y.first, -x.first), (y.distance, x.distance),
        (more[0], more[1]),
    )  # fmt: skip
    places = (rows[:, None] * conv.output[1] + columns).astype(np.int64).ravel()
    problem = Conv(conv.images, conv.channels, conv.filters, window, conv.groups, conv.epilogue)
    part = np.ascontiguousarray(part)
    return bind_dense(problem, part, bias, part, places, conv.output[0] * conv.output[1])
