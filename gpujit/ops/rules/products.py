"""Type rules of products and windows: matrices, convolution, pooling, resampling, attention, recurrence, spectra."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpujit.ir.types import TensorType
from gpujit.ops.promotion import COMPLEX64, COMPLEX128, real_of
from gpujit.ops.rules.common import (
    FLOAT32_CODE,
    INT64_CODE,
    DType,
    ListOf,
    Rule,
    Shape,
    Size,
    Unknown,
    axis,
    broadcast,
    cast,
    dtype_of,
    floating,
    is_known,
    like,
    need_rank,
    promoted,
    replaced,
    same_dtype,
    same_size,
    shape_of,
    size_of,
    tensor,
    texts,
    times,
)
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import DTypeError, ShapeError

# --------------------------------------------------------------------------------------------------------- matrices


def _one_dtype(op: str, *tensors: TensorType | None) -> DType | None:
    """The dtype operands share. Raises DTypeError when two are known and differ."""
    known = [d for t in tensors if t is not None and (d := dtype_of(t)) is not None]
    if len(set(known)) > 1:
        raise DTypeError(f"{op}: operands have dtypes {' and '.join(map(str, known))}; cast them to one dtype")
    return known[0] if known and all(t is None or t.dtype is not None for t in tensors) else None


def product_shape(a: Shape, b: Shape, op: str) -> Shape:
    """The shape of a matrix product: vectors lose their dim, batch dims broadcast. Raises ShapeError."""
    if not a or not b:
        raise ShapeError(f"{op}: both tensors need at least 1 dim, found {len(a)} and {len(b)}")
    message = f"{op}: shapes {texts(a)} and {texts(b)} can't be multiplied; the inner sizes differ"
    same_size(a[-1], b[-2] if len(b) > 1 else b[0], message)
    batch = broadcast([a[:-2], b[:-2]], op)
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


def matmul_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """The product of matrices or vectors, batch dims broadcast."""
    return tensor(_one_dtype(op, a, b), product_shape(shape_of(a), shape_of(b), op))


def ranked_product_type(left: int, right: int) -> Rule:
    """A rule: the product of operands of these ranks, batches alike."""

    def rule(a: TensorType, b: TensorType, *, out_dtype: Any = None, op: str) -> TensorType:
        """The product."""
        dtype = _one_dtype(op, a, b)
        x = shape_of(a) if a.shape is not None else (None,) * left
        y = shape_of(b) if b.shape is not None else (None,) * right
        if len(x) != left or len(y) != right:
            raise ShapeError(f"{op}: expected {left} and {right} dims, found {len(x)} and {len(y)}")
        if left == 3:
            message = f"{op}: batches of shapes {texts(x)} and {texts(y)} can't be multiplied"
            batch = same_size(x[0], y[0], message)
            same_size(x[2], y[1], message)
            return cast(tensor(dtype, (batch, x[1], y[2])), out_dtype)
        return cast(tensor(dtype, product_shape(x, y, op)), out_dtype)

    return rule


def added_product_type(left: int, right: int) -> Rule:
    """A rule: the product of the second and third argument, to which the first is added."""
    product = ranked_product_type(left, right)

    def rule(x: TensorType, a: TensorType, b: TensorType, *, out_dtype: Any = None, op: str) -> TensorType:
        """The product plus something."""
        found: TensorType = product(a, b, out_dtype=out_dtype, op=op)
        if x.shape is not None and found.shape is not None and broadcast([x.shape, found.shape], op) != found.shape:
            known = None not in x.shape and None not in found.shape
            if known:
                raise ShapeError(f"{op}: self of shape {texts(x.shape)} does not broadcast to {texts(found.shape)}")
        return found

    return rule


def addbmm_type(x: TensorType, a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """The sum of a batch of products, plus something."""
    found: TensorType = ranked_product_type(3, 3)(a, b, op=op)
    return like(found, shape_of(found)[1:])


def linear_type(x: TensorType, weight: TensorType, bias: TensorType | None = None, *, op: str) -> TensorType:
    """Rows of ``x`` times the transposed weight: the last size becomes the number of outputs."""
    dtype = _one_dtype(op, x, weight, bias)
    shape, w = shape_of(x), need_rank(weight, (1, 2), op, "weight")
    if not shape:
        raise ShapeError(f"{op}: the input needs at least one dim")
    message = f"{op}: input {texts(shape)} and weight {texts(w)} do not agree in their last size"
    same_size(shape[-1], w[-1], message)
    return tensor(dtype, (*shape[:-1], *w[:-1]))


def outer_type(a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """All products of two vectors."""
    return tensor(promoted(a, b), (*need_rank(a, (1,), op), *need_rank(b, (1,), op)))


def addr_type(x: TensorType, a: TensorType, b: TensorType, *, op: str) -> TensorType:
    """All products of two vectors, plus something."""
    return tensor(promoted(x, a, b), (*need_rank(a, (1,), op), *need_rank(b, (1,), op)))


def einsum_type(equation: Any, tensors: Any, *, op: str) -> TensorType:
    """The sizes that the letters of an equation have."""
    if isinstance(equation, Unknown) or isinstance(tensors, (Unknown, ListOf)):
        raise NotKnown
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ShapeError(f"{op}: {equation!r} has {len(terms)} operands, {len(tensors)} tensors were given")
    sizes: dict[str, Size] = {}
    spread: list[Shape] = []
    for term, x in zip(terms, tensors, strict=True):
        shape = shape_of(x)
        before, dots, after = term.partition("...")
        width = len(shape) - len(before) - len(after)
        if width < 0 or (width and not dots):
            raise ShapeError(f"{op}: {term!r} of {equation!r} does not fit a tensor of {len(shape)} dims")
        if dots:
            spread.append(shape[len(before) : len(before) + width])
        rest = shape[len(before) + width :] if after else ()
        for letter, n in (*zip(before, shape, strict=False), *zip(after, rest, strict=True)):
            if letter in sizes:
                sizes[letter] = broadcast([(sizes[letter],), (n,)], op)[0]
            else:
                sizes[letter] = n
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if spread else "") + "".join(sorted(c for c in sizes if letters.count(c) == 1))
    found: list[Size] = []
    for part in re.findall(r"\.\.\.|.", right):
        if part == "...":
            found += broadcast(spread, op)
        elif part in sizes:
            found.append(sizes[part])
        else:
            raise ShapeError(f"{op}: {part!r} in the result of {equation!r} is in no operand")
    return tensor(same_dtype(*tensors), found)


def bilinear_type(a: TensorType, b: TensorType, weight: TensorType) -> TensorType:
    """The leading sizes, and one output for each slice of the weight."""
    return tensor(same_dtype(a, b, weight), (*shape_of(a)[:-1], shape_of(weight)[0]))


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


# --------------------------------------------------------------------------------------- attention, recurrent layers


def attention_type(query: TensorType, key: TensorType, value: TensorType, *, op: str) -> TensorType:
    """One row of values for each query."""
    q, k, v = shape_of(query), shape_of(key), shape_of(value)
    if min(len(q), len(k), len(v)) < 2:
        raise ShapeError(f"{op}: query, key and value need at least 2 dims, found {len(q)}, {len(k)} and {len(v)}")
    same_size(q[-1], k[-1], f"{op}: query {texts(q)} and key {texts(k)} differ in their last size")
    same_size(k[-2], v[-2], f"{op}: key {texts(k)} and value {texts(v)} differ in their number of rows")
    if len(q) == len(k) == len(v) and len(q) > 3:
        # Heads of keys and values may be fewer, and are then repeated.
        batch = (*broadcast([q[:-3], k[:-3], v[:-3]], op), q[-3])
    else:
        batch = broadcast([q[:-2], k[:-2], v[:-2]], op)
    return tensor(same_dtype(query, key, value), (*batch, q[-2], v[-1]))


def attention_pair_type(
    query: TensorType, key: TensorType, value: TensorType, *, op: str
) -> tuple[TensorType, TensorType]:
    """One row of values for each query, and its weights of the keys."""
    found = attention_type(query, key, value, op=op)
    shape = shape_of(found)
    return found, like(found, (*shape[:-1], shape_of(key)[-2]))


def flash_attention_type(
    query: TensorType, key: TensorType, value: TensorType, *, op: str
) -> tuple[TensorType, TensorType]:
    """One row of values for each query, and the logarithm of the sum of its weights."""
    found = attention_type(query, key, value, op=op)
    return found, TensorType(None, shape_of(found)[:-1])


def _lead(x: TensorType) -> Shape:
    return shape_of(x)[:-1]


def _directions(bidirectional: Any) -> Size:
    return None if isinstance(bidirectional, Unknown) else 2 if bidirectional else 1


def lstm_type(x: TensorType, *, hx: Any, bidirectional: Any) -> tuple[TensorType, TensorType, TensorType]:
    """The outputs of every step, and the last hidden and cell states."""
    if isinstance(hx, (Unknown, ListOf)):
        raise NotKnown
    h, c = hx
    return (
        like(x, (*_lead(x), times((shape_of(h)[-1], _directions(bidirectional))))),
        like(x, h.shape),
        like(x, c.shape),
    )


def rnn_type(x: TensorType, *, hx: TensorType, bidirectional: Any) -> tuple[TensorType, TensorType]:
    """The outputs of every step, and the last hidden state."""
    width = times((shape_of(hx)[-1], _directions(bidirectional)))
    return like(x, (*_lead(x), width)), like(x, hx.shape)


def lstm_cell_type(x: TensorType, hx: Any) -> tuple[TensorType, TensorType]:
    """The next hidden and cell state."""
    if isinstance(hx, (Unknown, ListOf)):
        raise NotKnown
    return like(x, hx[0].shape), like(x, hx[1].shape)


def cell_type(x: TensorType, hx: TensorType) -> TensorType:
    """The next hidden state."""
    return like(x, hx.shape)


# ----------------------------------------------------------------------------------------------------------- spectra


def _complex_of(x: TensorType) -> DType | None:
    dtype = floating(dtype_of(x))
    if dtype is None:
        return None
    return dtype if dtype.kind == "c" else COMPLEX128 if dtype.itemsize == 8 else COMPLEX64


def _real_of(x: TensorType) -> DType | None:
    dtype = _complex_of(x)
    return None if dtype is None else real_of(dtype)


def fourier_type(kind: str) -> Rule:
    """A rule: a transform along one dim.

    ``full``: to complex numbers; ``half``: to one side of them; ``real``: from one side to real numbers.
    """

    def rule(x: TensorType, n: Any, dim: Any, *, op: str) -> TensorType:
        """The transformed dim in its new size."""
        shape = shape_of(x)
        at = axis(dim, len(shape), op)
        size = shape[at] if n is None else size_of(n)
        if kind == "full":
            return tensor(_complex_of(x), replaced(shape, at, size))
        if kind == "half":
            return tensor(_complex_of(x), replaced(shape, at, None if size is None else size // 2 + 1))
        given = shape[at]
        out = size_of(n) if n is not None else None if given is None else 2 * (given - 1)
        return tensor(_real_of(x), replaced(shape, at, out))

    return rule


def stft_type(
    x: TensorType,
    n_fft: Any,
    *,
    hop_length: Any = None,
    win_length: Any = None,
    window: TensorType | None = None,
    center: Any = False,
    onesided: Any = None,
    return_complex: Any = None,
    align_to_window: Any = None,
    op: str,
) -> TensorType:
    """A spectrum for each frame of a signal."""
    shape = need_rank(x, (1, 2), op)
    dtypes = [dtype_of(t) for t in (x, window) if t is not None]
    if None in dtypes:
        raise NotKnown
    is_complex = any(d is not None and d.kind == "c" for d in dtypes)
    n, width = shape[-1], size_of(n_fft)
    hop = size_of(hop_length) if hop_length is not None else None if width is None else width // 4
    one_side = not is_complex if onesided is None else onesided
    rows = None if width is None or isinstance(one_side, Unknown) else width // 2 + 1 if one_side else width
    frames: Size = None
    # Frames may be as long as the window or as the transform.
    span = win_length if win_length is not None and align_to_window else n_fft
    if n is not None and width is not None and hop and is_known([center, span]):
        room = n + (2 * (width // 2) if center else 0) - span
        if room < 0:
            raise ShapeError(f"{op}: frames of {span} samples are longer than the signal of {n}")
        frames = 1 + room // hop
    spectra = (*shape[:-1], rows, frames)
    real = _real_of(tensor(promoted(*(t for t in (x, window) if t is not None)), ()))
    if return_complex if return_complex is not None else is_complex:
        return tensor(COMPLEX128 if real is not None and real.itemsize == 8 else COMPLEX64, spectra)
    return tensor(real, (*spectra, 2))


# ------------------------------------------------------------------------------------------------ matrices, factored


def inverse_type(x: TensorType, *, op: str) -> TensorType:
    """Square matrices."""
    _square(x, op)
    return TensorType(x.dtype, x.shape)


def _square(x: TensorType, op: str) -> Shape:
    shape = shape_of(x)
    if len(shape) < 2:
        raise ShapeError(f"{op}: at least 2 dims are needed, found shape {texts(shape)}")
    same_size(shape[-1], shape[-2], f"{op}: the matrices must be square, found shape {texts(shape)}")
    return shape


def determinant_type(x: TensorType, *, op: str) -> TensorType:
    """One number for each square matrix."""
    return like(x, _square(x, op)[:-2])


def frequencies_type(n: Any, *, dtype: Any, op: str) -> TensorType:
    """Frequencies of a transform of ``n`` samples (half of them for ``rfft``)."""
    size = size_of(n)
    if "rfft" in op and size is not None:
        size = size // 2 + 1
    return cast(tensor(np.dtype(np.float32), (size,)), dtype)
