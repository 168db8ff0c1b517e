"""Type rules of operators over windows: convolution, pooling, resampling, columns, regions of interest."""

from __future__ import annotations

import re
from typing import Any

from gpujit.ir.types import TensorType
from gpujit.ops.rules.common import (
    FLOAT32_CODE,
    INT64_CODE,
    Size,
    Unknown,
    is_known,
    like,
    need_rank,
    same_size,
    shape_of,
    size_of,
    tensor,
    texts,
    times,
)
from gpujit.ops.rules.products import _one_dtype
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import ShapeError

# -------------------------------------------------------------------------------------------------------- convolution


def _rank_of(op: str) -> int:
    """The number of spatial dims in an operator's name: 2 of ``max_pool2d``."""
    digits = re.findall(r"([123])d", op)
    if not digits:
        raise NotKnown
    return int(digits[-1])


def _spread(values: Any, rank: int, op: str, name: str) -> list[Size]:
    if isinstance(values, Unknown):
        return [None] * rank
    found = [size_of(v) for v in ([values] if isinstance(values, int) else values)]
    if len(found) == 1:
        return found * rank
    if len(found) != rank:
        raise ShapeError(f"{op}: {name} is {found}, expected one number or {rank} of them")
    return found


def window_count(n: Size, k: Size, stride: Size, low: Size, dilation: Size, ceil_mode: Any = False) -> Size:
    """How many windows of ``k`` elements fit in ``n`` padded by ``low`` on both sides; None when unknown."""
    if n is None or k is None or stride is None or low is None or dilation is None or isinstance(ceil_mode, Unknown):
        return None
    if stride < 1:
        return None
    room = n + 2 * low - dilation * (k - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    # A last window has to start inside the input or its left padding.
    if ceil_mode and (count - 1) * stride >= n + low:
        count -= 1
    return count


def convolved(
    x: TensorType, w: TensorType, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, rank: int, op: str
) -> TensorType:
    """The result of a convolution over the last ``rank`` dims. Raises ShapeError, DTypeError."""
    if rank < 1:
        raise ShapeError(f"{op}: weight has {rank + 2} dims, expected at least 3")
    shape, kernel = need_rank(x, (rank + 1, rank + 2), op), need_rank(w, (rank + 2,), op, "weight")
    dtype = _one_dtype(op, x, w)
    channels = shape[-rank - 1]
    if is_known(groups) and kernel[1] is not None and channels is not None and channels != kernel[1] * groups:
        wanted = kernel[1] * groups
        raise ShapeError(
            f"{op}: input has {channels} channels, weight {texts(kernel)} with groups={groups} needs {wanted}"
        )
    if isinstance(bias, TensorType) and bias.shape is not None:
        if len(bias.shape) != 1:
            raise ShapeError(f"{op}: bias must be a vector, found shape {texts(bias.shape)}")
        same_size(
            bias.shape[0], kernel[0], f"{op}: bias has {bias.shape[0]} numbers, weight {texts(kernel)} needs as many"
        )
    steps, spread = _spread(stride, rank, op, "stride"), _spread(dilation, rank, op, "dilation")
    if isinstance(padding, str):
        if padding == "same":
            sizes: list[Size] = list(shape[-rank:])
            return tensor(dtype, (*shape[: -rank - 1], kernel[0], *sizes))
        padding = [0]
    pads = _spread(padding, rank, op, "padding")
    rows = zip(shape[-rank:], kernel[2:], steps, pads, spread, strict=True)
    sizes = [window_count(*row) for row in rows]
    if any(n is not None and n < 0 for n in sizes):
        raise ShapeError(f"{op}: kernel of weight {texts(kernel)} is larger than the padded input {texts(shape)}")
    return tensor(dtype, (*shape[: -rank - 1], kernel[0], *sizes))


def convolved_transposed(
    x: TensorType, w: TensorType, stride: Any, padding: Any, more: Any, groups: Any, dilation: Any, rank: int, op: str
) -> TensorType:
    """The result of a transposed convolution over the last ``rank`` dims. Raises ShapeError, DTypeError."""
    shape, kernel = need_rank(x, (rank + 1, rank + 2), op), need_rank(w, (rank + 2,), op, "weight")
    dtype = _one_dtype(op, x, w)
    message = f"{op}: input {texts(shape)} and weight {texts(kernel)} differ in the number of channels"
    same_size(shape[-rank - 1], kernel[0], message)
    sizes: list[Size] = []
    lists = (
        _spread(v, rank, op, name)
        for v, name in ((stride, "stride"), (padding, "padding"), (more, "output_padding"), (dilation, "dilation"))
    )
    for n, k, s, p, o, d in zip(shape[-rank:], kernel[2:], *lists, strict=True):
        if n is None or k is None or s is None or p is None or o is None or d is None:
            sizes.append(None)
        else:
            sizes.append((n - 1) * s - 2 * p + d * (k - 1) + o + 1)
    outputs = None if isinstance(groups, Unknown) else times((kernel[1], groups))
    return tensor(dtype, (*shape[: -rank - 1], outputs, *sizes))


def conv_type(
    x: TensorType,
    weight: TensorType,
    *,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: Any = 1,
    op: str,
) -> TensorType:
    """Convolution of as many dims as the weight has less two."""
    return convolved(x, weight, bias, stride, padding, dilation, groups, _convolved_dims(weight, op), op)


def conv_transpose_type(
    x: TensorType,
    weight: TensorType,
    *,
    stride: Any = (1,),
    padding: Any = (0,),
    output_padding: Any = (0,),
    groups: Any = 1,
    dilation: Any = (1,),
    op: str,
) -> TensorType:
    """Transposed convolution of as many dims as the weight has less two."""
    rank = _convolved_dims(weight, op)
    return convolved_transposed(x, weight, stride, padding, output_padding, groups, dilation, rank, op)


def _convolved_dims(weight: TensorType, op: str) -> int:
    """Dims that a convolution with this weight runs over. Raises ShapeError."""
    shape = shape_of(weight)
    if len(shape) < 3:
        raise ShapeError(f"{op}: weight {texts(shape)} has {len(shape)} dims, expected 3 to 5")
    return len(shape) - 2


def convolution_type(
    x: TensorType,
    weight: TensorType,
    *,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    op: str,
) -> TensorType:
    """Convolution, plain or transposed."""
    rank = _convolved_dims(weight, op)
    if transposed:
        return convolved_transposed(x, weight, stride, padding, output_padding, groups, dilation, rank, op)
    return convolved(x, weight, bias, stride, padding, dilation, groups, rank, op)


def depthwise_type(
    x: TensorType, weight: TensorType, *, bias: Any, stride: Any, padding: Any, dilation: Any, op: str
) -> TensorType:
    """Convolution with a kernel of its own for each output channel."""
    w = shape_of(weight)
    return convolved(x, like(weight, (w[0], None, *w[2:])), bias, stride, padding, dilation, UNGROUPED, len(w) - 2, op)


UNGROUPED = Unknown(int)


def conv_tbc_type(x: TensorType, weight: TensorType, bias: TensorType, pad: Any, *, op: str) -> TensorType:
    """Convolution over the first dim."""
    (t, b, c), (k, i, o) = need_rank(x, (3,), op), need_rank(weight, (3,), op, "weight")
    same_size(c, i, f"{op}: input has {c} channels, the weight {i}")
    p = size_of(pad)
    length = None if t is None or k is None or p is None else t + 2 * p - k + 1
    return tensor(_one_dtype(op, x, weight), (length, b, o))


# ------------------------------------------------------------------------------------------------------------ windows


def _pooled(
    x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, op: str
) -> TensorType:
    rank = _rank_of(op)
    shape = need_rank(x, (rank + 1, rank + 2), op)
    window = _spread(kernel, rank, op, "kernel_size")
    steps = window if not isinstance(stride, Unknown) and not stride else _spread(stride, rank, op, "stride")
    pads, spread = _spread(padding, rank, op, "padding"), _spread(dilation, rank, op, "dilation")
    sizes = [
        window_count(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(shape[-rank:], window, steps, pads, spread, strict=True)
    ]
    if any(n is not None and n < 1 for n in sizes):
        raise ShapeError(f"{op}: windows of {window} do not fit the padded input {texts(shape)}")
    return like(x, (*shape[:-rank], *sizes))


def pooled_type(
    x: TensorType,
    *,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: Any = False,
    op: str,
) -> TensorType:
    """One number for each window."""
    return _pooled(x, kernel_size, stride, padding, dilation, ceil_mode, op)


def pooled_pair_type(
    x: TensorType,
    *,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: Any = False,
    op: str,
) -> tuple[TensorType, TensorType]:
    """One number for each window, and where it was."""
    found = _pooled(x, kernel_size, stride, padding, dilation, ceil_mode, op)
    return found, TensorType(INT64_CODE, found.shape)


def adaptive_type(x: TensorType, output_size: Any, *, op: str) -> TensorType:
    """The last dims in the sizes asked for."""
    rank = _rank_of(op)
    shape = need_rank(x, (rank + 1, rank + 2), op)
    sizes = _spread(output_size, rank, op, "output_size")
    if any(n is not None and n < 0 for n in sizes):
        raise ShapeError(f"{op}: output_size {sizes} has a negative entry")
    return like(x, (*shape[:-rank], *sizes))


def adaptive_pair_type(x: TensorType, *, output_size: Any, op: str) -> tuple[TensorType, TensorType]:
    """The last dims in the sizes asked for, and where each number was."""
    found = adaptive_type(x, output_size, op=op)
    return found, TensorType(INT64_CODE, found.shape)


def upsampled_type(x: TensorType, output_size: Any, *, scale_factors: Any = None, op: str) -> TensorType:
    """The spatial dims in the sizes asked for, or scaled by factors (rounded down)."""
    rank = _rank_of(op)
    shape = need_rank(x, (rank + 2,), op)
    if output_size is not None:
        return like(x, (*shape[:2], *_spread(output_size, rank, op, "output_size")))
    if isinstance(scale_factors, Unknown):
        return like(x, (*shape[:2], *(None,) * rank))
    if scale_factors is None or len(scale_factors) != rank:
        raise ShapeError(f"{op}: {rank} output sizes or scale factors are needed, found {scale_factors}")
    sizes = (
        None if n is None or isinstance(f, Unknown) else int(n * f)
        for n, f in zip(shape[2:], scale_factors, strict=True)
    )
    return like(x, (*shape[:2], *sizes))


def interpolated_type(x: TensorType, size: Any = None, scale_factor: Any = None, *, op: str) -> TensorType:
    """The spatial dims in the sizes asked for, or scaled by factors (rounded down)."""
    shape = shape_of(x)
    rank = len(shape) - 2
    if size is not None:
        return like(x, (*shape[:2], *_spread(size, rank, op, "size")))
    if scale_factor is None:
        raise NotKnown
    factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * rank
    if isinstance(scale_factor, Unknown):
        return like(x, (*shape[:2], *(None,) * rank))
    factors = list(factors) * rank if len(factors) == 1 else factors
    sizes = (
        None if n is None or isinstance(f, Unknown) else int(n * f) for n, f in zip(shape[2:], factors, strict=True)
    )
    return like(x, (*shape[:2], *sizes))


def grid_sample_type(x: TensorType, grid: TensorType) -> TensorType:
    """The channels of the input at the places of the grid."""
    shape, places = shape_of(x), shape_of(grid)
    return like(x, (*shape[:2], *places[1:-1]))


def im2col_type(x: TensorType, *, kernel_size: Any, dilation: Any, padding: Any, stride: Any, op: str) -> TensorType:
    """A column of elements for each window."""
    shape = need_rank(x, (3, 4), op)
    lists = [_spread(v, 2, op, "argument") for v in (kernel_size, stride, padding, dilation)]
    counts = [window_count(n, k, s, p, d) for n, k, s, p, d in zip(shape[-2:], *lists, strict=True)]
    return like(x, (*shape[:-3], times((shape[-3], *lists[0])), times(counts)))


def col2im_type(x: TensorType, output_size: Any, kernel_size: Any, *, op: str) -> TensorType:
    """The image that columns of elements were taken from."""
    shape = need_rank(x, (2, 3), op)
    kernel = times(_spread(kernel_size, 2, op, "kernel_size"))
    channels = None if not kernel or shape[-2] is None else shape[-2] // kernel
    return like(x, (*shape[:-2], channels, *_spread(output_size, 2, op, "output_size")))


def roi_type(x: TensorType, rois: TensorType, *, pooled_height: Any, pooled_width: Any) -> TensorType:
    """The channels of every region in one size."""
    return like(x, (shape_of(rois)[0], shape_of(x)[1], size_of(pooled_height), size_of(pooled_width)))


def box_iou_type(a: TensorType, b: TensorType) -> TensorType:
    """A matrix of overlaps."""
    return TensorType(FLOAT32_CODE, (shape_of(a)[0], shape_of(b)[0]))
