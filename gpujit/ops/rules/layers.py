"""Type rules of attention and recurrent layers, and of Fourier transforms."""

from __future__ import annotations

from typing import Any

from gpujit.ir.types import TensorType
from gpujit.ops.promotion import COMPLEX64, COMPLEX128, real_of
from gpujit.ops.rules.common import (
    DType,
    ListOf,
    Rule,
    Shape,
    Size,
    Unknown,
    axis,
    broadcast,
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
from gpujit.support.errors import ShapeError

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
