"""Resampling, and pieces of images as columns."""

from __future__ import annotations

import math

from gpujit import ops
from gpujit.nn.typing import BroadcastingList2, Tensor, overloads
from gpujit.support.errors import LayerError


# What a call of interpolate may give for sizes and factors.
def _by_int_or_list(
    input: Tensor,
    size: int | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    raise NotImplementedError


def _by_lists(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    raise NotImplementedError


def _by_numbers(
    input: Tensor,
    size: int | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    raise NotImplementedError


def _by_list_or_number(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    raise NotImplementedError


@overloads(_by_int_or_list, _by_lists, _by_numbers, _by_list_or_number)
def interpolate(
    input: Tensor,
    size: int | list[int] | None = None,
    scale_factor: float | list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The input ``[N, C, spatial...]`` resampled to a size, or by a factor.

    Args:
        size, scale_factor: one of the two; a number for each spatial dimension, or one for all.
        mode: nearest, nearest-exact, area; linear, bilinear, bicubic, trilinear by the number of dimensions; lanczos.
        align_corners: whether the corner points of input and output lie on each other; not for nearest and area.
        recompute_scale_factor: take the factor from the sizes, rounded down.
        antialias: smooth before shrinking; bilinear, bicubic and lanczos only.
    Raises LayerError for settings that do not go together.
    """
    spatial = input.ndim - 2
    plain = mode == "nearest" or mode == "nearest-exact" or mode == "area"
    if plain and align_corners is not None:
        raise LayerError(f"interpolate: align_corners has no meaning for mode {mode}")
    corners = False
    if align_corners is not None:
        corners = align_corners
    if size is not None and scale_factor is not None:
        raise LayerError("interpolate: give size or scale_factor, not both")
    output_size: list[int] | None = None
    factors: list[float] | None = None
    if size is not None:
        if isinstance(size, int):
            output_size = [size for _ in range(spatial)]
        else:
            output_size = list(size)
        if len(output_size) != spatial:
            raise LayerError(f"interpolate: size needs {spatial} numbers, found {len(output_size)}")
        if recompute_scale_factor is not None and recompute_scale_factor:
            raise LayerError("interpolate: with a size there is no scale_factor to recompute")
    elif scale_factor is not None:
        if isinstance(scale_factor, (float, int)):
            given = [float(scale_factor) for _ in range(spatial)]
        else:
            given = [float(factor) for factor in scale_factor]
        if len(given) != spatial:
            raise LayerError(f"interpolate: scale_factor needs {spatial} numbers, found {len(given)}")
        recompute = mode == "area"
        if recompute_scale_factor is not None and recompute_scale_factor:
            recompute = True
        if recompute:
            output_size = [math.floor(float(input.shape[i + 2]) * given[i]) for i in range(spatial)]
        else:
            factors = given
    else:
        raise LayerError("interpolate: size or scale_factor is needed")
    if antialias and not (input.ndim == 4 and (mode == "bilinear" or mode == "bicubic" or mode == "lanczos")):
        raise LayerError("interpolate: antialias is for 4-dim inputs and modes bilinear, bicubic and lanczos")

    if mode == "nearest":
        if spatial == 1:
            return ops.upsample_nearest1d(input, output_size, factors)
        if spatial == 2:
            return ops.upsample_nearest2d(input, output_size, factors)
        if spatial == 3:
            return ops.upsample_nearest3d(input, output_size, factors)
    elif mode == "nearest-exact":
        if spatial == 1:
            return ops._upsample_nearest_exact1d(input, output_size, factors)
        if spatial == 2:
            return ops._upsample_nearest_exact2d(input, output_size, factors)
        if spatial == 3:
            return ops._upsample_nearest_exact3d(input, output_size, factors)
    elif mode == "area":
        assert output_size is not None
        if spatial == 1:
            return ops.adaptive_avg_pool1d(input, output_size)
        if spatial == 2:
            return ops.adaptive_avg_pool2d(input, output_size)
        if spatial == 3:
            return ops.adaptive_avg_pool3d(input, output_size)
    elif mode == "linear" and spatial == 1:
        return ops.upsample_linear1d(input, output_size, corners, factors)
    elif mode == "bilinear" and spatial == 2:
        if antialias:
            return ops._upsample_bilinear2d_aa(input, output_size, corners, factors)
        return ops.upsample_bilinear2d(input, output_size, corners, factors)
    elif mode == "bicubic" and spatial == 2:
        if antialias:
            return ops._upsample_bicubic2d_aa(input, output_size, corners, factors)
        return ops.upsample_bicubic2d(input, output_size, corners, factors)
    elif mode == "trilinear" and spatial == 3:
        return ops.upsample_trilinear3d(input, output_size, corners, factors)
    elif mode == "lanczos" and antialias:
        return ops._upsample_lanczos2d_aa(input, output_size, corners, factors)
    raise LayerError(f"interpolate: mode {mode} does not go with an input of {input.ndim} dimensions")


def upsample(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: list[int] | None = None, scale_factor: list[float] | None = None) -> Tensor:
    """Each pixel repeated; an older name of ``interpolate`` in mode nearest."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: list[int] | None = None, scale_factor: list[float] | None = None) -> Tensor:
    """Bilinear with corners on each other; an older name of ``interpolate`` in that mode."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The input's values at the points of ``grid``, whose last dimension holds x, y (and z) from -1 to 1.

    Raises LayerError for unknown modes: bilinear, nearest, bicubic; zeros, border, reflection.
    """
    if mode == "bilinear":
        interpolation = 0
    elif mode == "nearest":
        interpolation = 1
    elif mode == "bicubic":
        interpolation = 2
    else:
        raise LayerError(f"grid_sample: mode must be bilinear, nearest or bicubic, found {mode}")
    if padding_mode == "zeros":
        padding = 0
    elif padding_mode == "border":
        padding = 1
    elif padding_mode == "reflection":
        padding = 2
    else:
        raise LayerError(f"grid_sample: padding_mode must be zeros, border or reflection, found {padding_mode}")
    corners = False
    if align_corners is not None:
        corners = align_corners
    return ops.grid_sampler(input, grid, interpolation, padding, corners)


def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    """The points that ``grid_sample`` takes for affine maps ``[N, 2, 3]`` (or ``[N, 3, 4]``) and an output size."""
    corners = False
    if align_corners is not None:
        corners = align_corners
    return ops.affine_grid_generator(theta, size, corners)


def fold(
    input: Tensor,
    output_size: BroadcastingList2[int],
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    """Blocks ``[N, C * kernel, blocks]`` added up at their places in images ``[N, C, H, W]``."""
    return ops.col2im(input, output_size, kernel_size, dilation, padding, stride)


def unfold(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    """The windows of images ``[N, C, H, W]`` as columns ``[N, C * kernel, windows]``."""
    return ops.im2col(input, kernel_size, dilation, padding, stride)


def pad(input: Tensor, pad: list[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The input with margins: ``pad`` has two numbers (before, after) for each dimension, the last one's first.

    ``mode`` is constant (``value``, or 0), reflect, replicate or circular.
    """
    return ops.pad(input, pad, mode, value)
