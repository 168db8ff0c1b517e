"""Moving elements between space, channels and columns: pixel and channel shuffles, im2col and col2im."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.pieces import pixel_shuffle_type, pixel_unshuffle_type
from gpujit.ops.rules.windows import col2im_type, im2col_type
from gpujit.ops.strided import add_windows, expand_list, padded, shape_text, windows
from gpujit.support.errors import ShapeError


@library(
    "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
    half="native",
    out="out",
    type_rule=pixel_shuffle_type,
)
def pixel_shuffle(xp: Any, x: Array, factor: int) -> Array:
    """``[..., C * r * r, H, W]`` as ``[..., C, H * r, W * r]``."""
    op = "aten::pixel_shuffle"
    if x.ndim < 3:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected at least 3")
    if factor < 1:
        raise ShapeError(f"{op}: upscale_factor is {factor}, expected at least 1")
    *lead, c, h, w = x.shape
    if c % (factor * factor):
        raise ShapeError(f"{op}: input has {c} channels, upscale_factor={factor} needs a multiple of {factor * factor}")
    c //= factor * factor
    k = len(lead)
    order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
    y = x.reshape(*lead, c, factor, factor, h, w).transpose(order)
    return xp.array(y, order="C").reshape(*lead, c, h * factor, w * factor)


@library(
    "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
    half="native",
    out="out",
    type_rule=pixel_unshuffle_type,
)
def pixel_unshuffle(xp: Any, x: Array, factor: int) -> Array:
    """``[..., C, H * r, W * r]`` as ``[..., C * r * r, H, W]``."""
    op = "aten::pixel_unshuffle"
    if x.ndim < 3:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected at least 3")
    if factor < 1:
        raise ShapeError(f"{op}: downscale_factor is {factor}, expected at least 1")
    *lead, c, h, w = x.shape
    if not x.size:
        # PyTorch keeps the shape of an empty tensor here.
        return x.copy()
    if h % factor or w % factor:
        raise ShapeError(f"{op}: downscale_factor={factor} does not divide height {h} and width {w}")
    k = len(lead)
    order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
    y = x.reshape(*lead, c, h // factor, factor, w // factor, factor).transpose(order)
    return xp.array(y, order="C").reshape(*lead, c * factor * factor, h // factor, w // factor)


def _channel_shuffle(xp: Any, x: Array, groups: int) -> Array:
    op = "aten::channel_shuffle"
    if x.ndim < 3:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} has {x.ndim} dims, expected at least 3")
    n, c = x.shape[:2]
    if groups < 1 or c % groups:
        raise ShapeError(f"{op}: groups={groups} does not divide {c} channels")
    if not x.size:
        return x.copy()
    y = x.reshape(n, groups, c // groups, -1).transpose(0, 2, 1, 3)
    return xp.array(y, order="C").reshape(x.shape)


for _name, _out in (("channel_shuffle", "out"), ("native_channel_shuffle", None)):

    @library(f"aten::{_name}(Tensor self, int groups) -> Tensor", half="native", out=_out, type_rule=same_type)
    def channel_shuffle(xp: Any, x: Array, groups: int) -> Array:
        """The channels of the groups interleaved."""
        return _channel_shuffle(xp, x, groups)


def _column_numbers(op: str, *values: Sequence[int]) -> list[tuple[int, ...]]:
    names = ("kernel_size", "dilation", "padding", "stride")
    numbers = [expand_list(op, n, v, 2) for n, v in zip(names, values, strict=True)]
    for name, value in zip(names, numbers, strict=True):
        if min(value) < (0 if name == "padding" else 1):
            raise ShapeError(
                f"{op}: {name} is {list(value)}, every number must be at least {0 if name == 'padding' else 1}"
            )
    return numbers


def _positions(
    op: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[int]:
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(sizes, kernel, dilation, padding, stride, strict=True)
    ]
    if min(counts) < 1:
        raise ShapeError(
            f"{op}: windows {shape_text(kernel)} with dilation {list(dilation)} and padding {list(padding)} do not fit "
            f"into {shape_text(sizes)}"
        )
    return counts


@library(
    "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
    half="native",
    out="out",
    type_rule=im2col_type,
)
def im2col(
    xp: Any, x: Array, kernel_size: list[int], dilation_: list[int], padding_: list[int], stride_: list[int]
) -> Array:
    """The windows of ``x [N, C, H, W]`` as columns ``[N, C * kH * kW, L]``."""
    op = "aten::im2col"
    kernel, dilation, padding, stride = _column_numbers(op, kernel_size, dilation_, padding_, stride_)
    if x.ndim not in (3, 4) or 0 in x.shape[-3:]:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} must have 3 or 4 dims, none empty but the batch")
    sizes = _positions(op, x.shape[-2:], kernel, dilation, padding, stride)
    image = padded(xp, x if x.ndim == 4 else x[None], padding, padding)
    view = windows(xp, image, kernel, stride, dilation, sizes)
    rows = x.shape[-3] * prod(kernel)
    shape = (*x.shape[:-3], rows, prod(sizes))
    return xp.array(view, order="C").reshape(shape)


@library(
    "aten::col2im(Tensor self, int[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) "
    "-> Tensor",
    out="out",
    type_rule=col2im_type,
)
def col2im(
    xp: Any,
    x: Array,
    output: list[int],
    kernel_size: list[int],
    dilation_: list[int],
    padding_: list[int],
    stride_: list[int],
) -> Array:
    """Columns ``[N, C * kH * kW, L]`` summed where their windows lie in ``[N, C, *output]``."""
    op = "aten::col2im"
    kernel, dilation, padding, stride = _column_numbers(op, kernel_size, dilation_, padding_, stride_)
    sizes = expand_list(op, "output_size", output, 2)
    if x.ndim not in (2, 3) or 0 in x.shape[-2:]:
        raise ShapeError(f"{op}: input {shape_text(x.shape)} must have 2 or 3 dims, none empty but the batch")
    if x.shape[-2] % prod(kernel):
        raise ShapeError(
            f"{op}: input has {x.shape[-2]} rows, kernel {shape_text(kernel)} needs a multiple of {prod(kernel)}"
        )
    counts = _positions(op, sizes, kernel, dilation, padding, stride)
    if prod(counts) != x.shape[-1]:
        raise ShapeError(
            f"{op}: input has {x.shape[-1]} columns, output_size {list(sizes)} has {prod(counts)} windows "
            f"({counts[0]} by {counts[1]})"
        )
    channels = x.shape[-2] // prod(kernel)
    n = x.shape[0] if x.ndim == 3 else 1
    columns = x.reshape(n, channels, *kernel, *counts)
    y = add_windows(xp, columns, [m + 2 * p for m, p in zip(sizes, padding, strict=True)], stride, dilation)
    if any(padding):
        y = y[(..., *(slice(p, p + m) for p, m in zip(padding, sizes, strict=True)))]
    return xp.ascontiguousarray(y).reshape(*x.shape[:-2], channels, *sizes)
