"""Convolutions as steps on a GPU: by a library, or as a matrix product of the images' windows; transposed ones too.

Without a library, windows are written out as columns, some images at a time, unless a filter has one tap. Groups of few
channels, depthwise ones among them, are a kernel of their own.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node
from gpujit.kernels.cuda_steps import ALIGNED, StepBuilder
from gpujit.kernels.cuda_windows import Sizes, Windows, columns, for_dims, small_filters, spread_sums, whole_filters
from gpujit.kernels.launches import Address, Convolution
from gpujit.static_runtime.convolution_nodes import Arguments, convolution_of
from gpujit.static_runtime.device_libraries import Asked, add_call
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf
from gpujit.static_runtime.device_views import (
    PRODUCT_TYPES,
    View,
    copy,
    multiply,
    scratch_view,
    started,
)
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.places import Place
from gpujit.support.config import config

# Bytes of columns written at one time, and taps up to which each has its own code.
MOST_COLUMNS, MOST_TAPS = 64 << 20, 64
# Multiplications that take no longer than the launches of a product.
FEW_PRODUCTS = 1 << 21


class Work(NamedTuple):
    """A convolution of a batch of images, all numbers checked."""

    x: View
    weights: View
    bias: View | None
    out: View
    windows: Windows
    # Padding after the images; before them it is that of the windows.
    after: Sizes
    groups: int
    ending: str

    @property
    def taps(self) -> Sizes:
        return self.weights.shape[2:]


def device_convolution(
    node: Node, place_of: PlaceOf, result: Place, ending: Ending = NO_ENDING, asked: Asked | None = None
) -> MadeStep | None:
    """The step of a convolution of floating-point images; None for other nodes.

    Of endings only relu is done, and not by the library that is ``asked``.
    """
    found = convolution_of(node)
    if found is None or result.dtype not in PRODUCT_TYPES or ending.operands or ending.activation not in (None, "relu"):
        return None
    has_bias = not (found.bias.is_constant and found.bias.constant() is None)
    operands = [found.x, found.weights, *([found.bias] if has_bias else [])]
    begun = started(operands, place_of, result)
    if begun is None:
        return None
    build, views, out = begun
    if not all(prod(v.shape) for v in (*views, out)):
        return None
    x, weights = views[:2]
    if not weights.lies_together or not out.lies_together or any(not v.lies_together for v in views[2:]):
        return None
    work = _checked(x, weights, views[2] if has_bias else None, out, found, ending.activation or "")
    if work is None:
        return None
    if found.transposed:
        done = not work.ending and _transposed(build, work)
    elif asked is not None and not work.ending and _by_library(build, work, asked):
        done = True
    elif work.groups > 1 and prod(weights.shape[1:]) <= MOST_TAPS:
        done = _small(build, work)
    elif prod(work.out.shape) * prod(weights.shape[1:]) <= FEW_PRODUCTS and not _is_one_product(work):
        done = _whole(build, work)
    else:
        done = _product(build, work)
    return (build.finish(), operands) if done else None


def _checked(x: View, weights: View, bias: View | None, out: View, found: Arguments, ending: str) -> Work | None:
    """The work; None where the operator raises an error, or its numbers are not known."""
    rank = len(weights.shape) - 2
    if rank not in (1, 2, 3) or type(found.groups) is not int or found.groups < 1:
        return None
    if len(x.shape) == rank + 1 and len(out.shape) == rank + 1:
        x, out = (v._replace(shape=(1, *v.shape), steps=(prod(v.shape), *v.steps)) for v in (x, out))
    if len(x.shape) != rank + 2 or len(out.shape) != rank + 2 or type(found.transposed) is not bool:
        return None
    taps, image = weights.shape[2:], x.shape[2:]
    stride, dilation = for_dims(found.stride, rank, 1), for_dims(found.dilation, rank, 1)
    if stride is None or dilation is None:
        return None
    reach = [(t - 1) * d for t, d in zip(taps, dilation, strict=True)]
    if found.padding == "valid":
        before = after = (0,) * rank
    elif found.padding == "same":
        before = tuple(r // 2 for r in reach)
        after = tuple(r - r // 2 for r in reach)
    else:
        numbers = for_dims(found.padding, rank, 0)
        if numbers is None:
            return None
        before = after = numbers
    if found.transposed:
        more = for_dims(found.output_padding, rank, 0)
        if more is None:
            return None
        wanted = tuple(
            (n - 1) * s - 2 * p + r + e + 1 for n, s, p, r, e in zip(image, stride, before, reach, more, strict=True)
        )
        channels, filters = weights.shape[0], weights.shape[1] * found.groups
    else:
        wanted = tuple(
            (n + p + q - r - 1) // s + 1 for n, p, q, r, s in zip(image, before, after, reach, stride, strict=True)
        )
        channels, filters = weights.shape[1] * found.groups, weights.shape[0]
    if x.shape[1] != channels or filters % found.groups or out.shape != (x.shape[0], filters, *wanted):
        return None
    if bias is not None and bias.shape != (filters,):
        return None
    windows = Windows(image, stride, before, dilation)
    return Work(x, weights, bias, out, windows, after, found.groups, ending)


# Ways ----------------------------------------------------------------------------------------------------------------


def _by_library(build: StepBuilder, work: Work, asked: Asked) -> bool:
    if work.weights.shape[1] == 1 < work.groups and prod(work.taps) <= MOST_TAPS:
        asked.refuse("filters of one channel and few taps have a kernel of their own")
        return False
    x, windows = work.x, work.windows
    description = Convolution(
        x.shape, work.weights.shape, work.out.shape, work.bias is not None, windows.stride, windows.padding, work.after,
        windows.dilation, work.groups, x.dtype, config.tf32 and x.dtype == FLOAT32,
    )  # fmt: skip
    others = [work.weights.at, *([] if work.bias is None else [work.bias.at]), work.out.at]
    room = asked.room(description, others)
    if room is None:
        return False
    add_call(build, description, [_aligned(build, x), *others], room)
    return True


def _aligned(build: StepBuilder, x: View) -> Address:
    """Where a tensor's elements lie together, at an address that libraries take: its own, or that of a copy."""
    return (x if x.lies_together and not x.at.offset % ALIGNED else _written_out(build, x)).at


def _written_out(build: StepBuilder, x: View) -> View:
    target = scratch_view(build, x.shape, x.dtype)
    copy(build, x, target)
    return target


def _small(build: StepBuilder, work: Work) -> bool:
    """Each number of the result as a sum over few taps and channels."""
    channels = work.weights.shape[1]
    program = small_filters(work.x.dtype, work.taps, channels, work.bias is not None, work.ending)
    x, out = work.x.split(1, work.groups), work.out.split(1, work.groups)
    inputs = [x, work.weights.split(0, work.groups)]
    if work.bias is not None:
        inputs.append(work.bias.split(0, work.groups))
    build.tile(program, [v.laid for v in inputs], [out.laid], out.shape, work.windows.numbers, label="small filters")
    return True


def _whole(build: StepBuilder, work: Work) -> bool:
    """Each number of the result as a sum that threads share: one launch, but weights are read anew for each pixel."""
    x, out, weights = work.x.split(1, work.groups), work.out.split(1, work.groups), work.weights.split(0, work.groups)
    inputs = [x, weights, *([] if work.bias is None else [work.bias.split(0, work.groups)])]
    program = whole_filters(x.dtype, len(work.taps), work.bias is not None, work.ending)
    sizes = (*out.shape, *weights.shape[2:])
    build.tile(program, [v.laid for v in inputs], [out.laid], sizes, work.windows.numbers, label="whole filters")
    return True


def _is_plain(work: Work) -> bool:
    """Whether filters have one tap, so that pixels are columns as they are."""
    is_same = all(t == 1 for t in work.taps) and work.out.shape[2:] == work.x.shape[2:]
    return is_same and not any(work.windows.padding) and all(s == 1 for s in work.windows.stride)


def _is_one_product(work: Work) -> bool:
    """Whether a product is all there is to do."""
    return work.bias is None and _is_plain(work) and _is_flat(work.x)


def _product(build: StepBuilder, work: Work) -> bool:
    """Filters times columns of pixels, for some images at a time."""
    x, out = work.x, work.out
    images, filters, places = out.shape[0], out.shape[1], prod(out.shape[2:])
    depth = prod(work.weights.shape[1:])
    rank = len(work.taps)
    # (groups, numbers of a window, filters): the weights turned, so that pixels are rows and filters columns.
    each = filters // work.groups
    right = work.weights._replace(shape=(work.groups, depth, each), steps=(each * depth, 1, depth))
    beta = 0.0
    if work.bias is not None:
        # A library adds a bias along the columns of row-major results only, which these are not.
        spread = work.bias._replace(shape=(filters, *[1] * rank), steps=(1, *[0] * rank))
        copy(build, spread, out)
        beta = 1.0
    is_plain = _is_plain(work)
    if is_plain:
        x = x if _is_flat(x) else _written_out(build, x)
        at_once, step = images, (x.steps[0], x.steps[1])
    else:
        needed = work.groups * depth * places
        at_once = max(1, min(images, MOST_COLUMNS // (needed * x.dtype.itemsize)))
        kept = scratch_view(build, (at_once, x.shape[1], *work.taps, *out.shape[2:]), x.dtype)
        step = (needed, places)
    for first in range(0, images, at_once):
        count = min(at_once, images - first)
        source, target = x.part(0, first, count), out.part(0, first, count)
        if not is_plain:
            wanted = kept.part(0, 0, count)
            build.tile(
                columns(x.dtype, rank),
                [source.laid],
                [wanted.laid],
                wanted.shape,
                work.windows.numbers,
                label="columns",
            )
            source = wanted
        left = View(source.at, (count, work.groups, places, depth), (step[0], depth * step[1], 1, step[1]), x.dtype)
        result = View(
            target.at, (count, work.groups, places, each), (filters * places, each * places, 1, places), x.dtype
        )
        if not multiply(build, left, right, result, 1.0, beta, None, work.ending):
            return False
    return True


def _is_flat(x: View) -> bool:
    """Whether the pixels of each channel lie together."""
    return x._replace(shape=x.shape[2:], steps=x.steps[2:]).lies_together


def _transposed(build: StepBuilder, work: Work) -> bool:
    """What each pixel puts on its window, as a product; then the sums of what windows put on each pixel."""
    x, out, groups = work.x, work.out, work.groups
    taps = work.taps
    channels, each = x.shape[1] // groups, work.weights.shape[1]
    if prod(taps) > MOST_TAPS:
        return False
    x = x if _is_flat(x) else _written_out(build, x)
    pixels, wide = prod(x.shape[2:]), each * prod(taps)
    kept = scratch_view(build, (x.shape[0], out.shape[1], *taps, *x.shape[2:]), x.dtype)
    left = View(
        x.at, (x.shape[0], groups, pixels, channels), (x.steps[0], channels * x.steps[1], 1, x.steps[1]), x.dtype
    )
    right = work.weights._replace(shape=(groups, channels, wide), steps=(channels * wide, wide, 1))
    result = View(
        kept.at, (x.shape[0], groups, pixels, wide), (groups * wide * pixels, wide * pixels, 1, pixels), x.dtype
    )
    if not multiply(build, left, right, result):
        return False
    inputs = [kept.laid, *([] if work.bias is None else [work.bias.laid])]
    windows = work.windows._replace(image=x.shape[2:])
    build.tile(
        spread_sums(x.dtype, taps, work.bias is not None),
        inputs,
        [out.laid],
        out.shape,
        windows.numbers,
        label="spread sums",
    )
    return True
