"""Type rules of operators whose result has sizes that depend on data, and of indexing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT64, INT64
from gpujit.ir.types import TensorType
from gpujit.ops.promotion import real_of
from gpujit.ops.rules.common import (
    INT64_CODE,
    ListOf,
    Shape,
    Size,
    Unknown,
    axis,
    broadcast,
    data_dependent,
    dtype_of,
    is_known,
    like,
    plus,
    replaced,
    same_size,
    shape_of,
    size_of,
    tensor,
    texts,
)
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import ShapeError

UINT8_CODE, BOOL_CODE = 0, 11

# ---------------------------------------------------------------------------------------------- counts found in data


@data_dependent
def nonzero_type(x: TensorType) -> TensorType:
    """One row of indices for each element that is not zero."""
    return tensor(INT64, (None, len(shape_of(x))))


@data_dependent
def nonzero_by_dim_type(x: TensorType) -> list[TensorType]:
    """The indices of the elements that are not zero, one vector for each dim (one for a 0-dim tensor)."""
    return [tensor(INT64, (None,))] * max(len(shape_of(x)), 1)


def nonzero_static_type(x: TensorType, *, size: Any) -> TensorType:
    """As many rows as asked for."""
    return tensor(INT64, (size_of(size), len(shape_of(x))))


@data_dependent
def masked_select_type(x: TensorType, mask: TensorType) -> TensorType:
    """A vector of the elements that a mask picks."""
    return like(x, (None,))


def masked_scatter_type(x: TensorType, mask: TensorType, *, op: str) -> TensorType:
    """The tensor and the mask broadcast."""
    return like(x, broadcast([shape_of(x), shape_of(mask)], op))


@data_dependent
def bincount_type(x: TensorType, weights: TensorType | None) -> TensorType:
    """A vector as long as the largest number: int64, or the sums of weights in double precision."""
    if weights is None:
        return tensor(INT64, (None,))
    dtype = dtype_of(weights)
    return tensor(None if dtype is None else dtype if dtype.itemsize == 4 and dtype.kind == "f" else FLOAT64, (None,))


@data_dependent
def unique_pair_type(x: TensorType, *, return_inverse: bool = True) -> tuple[TensorType, TensorType]:
    """The distinct elements; where each element of ``x`` went."""
    return like(x, (None,)), _inverse(x.shape, return_inverse)


def _inverse(shape: Shape | None, wanted: Any) -> TensorType:
    if isinstance(wanted, Unknown):
        return TensorType(INT64_CODE)
    return tensor(INT64, shape if wanted else (0,))


def _counts(wanted: Any) -> TensorType:
    return tensor(INT64, (None,) if isinstance(wanted, Unknown) or wanted else (0,))


@data_dependent
def unique_type(
    x: TensorType, *, return_inverse: Any = True, return_counts: Any = True
) -> tuple[TensorType, TensorType, TensorType]:
    """The distinct elements, where each element of ``x`` went, how often each appears; empty when not asked for."""
    return like(x, (None,)), _inverse(x.shape, return_inverse), _counts(return_counts)


@data_dependent
def unique_dim_type(x: TensorType, *, dim: Any, op: str) -> tuple[TensorType, TensorType, TensorType]:
    """The distinct slices along ``dim``, where each went, how often each appears."""
    shape = shape_of(x)
    at = axis(dim, len(shape), op)
    vector = TensorType(INT64_CODE, (None,))
    return like(x, replaced(shape, at, None) if shape else (None,)), vector, vector


@data_dependent
def unique_consecutive_type(
    x: TensorType, *, return_inverse: Any, return_counts: Any, dim: Any = None, op: str
) -> tuple[TensorType, TensorType, TensorType]:
    """Runs of equal elements, or of equal slices along ``dim``, made one."""
    if dim is None:
        return like(x, (None,)), _inverse(x.shape, return_inverse), _counts(return_counts)
    slices, inverse, counts = unique_dim_type(x, dim=dim, op=op)
    return slices, inverse, counts


@data_dependent
def repeat_interleave_type(repeats: TensorType, *, output_size: Any = None) -> TensorType:
    """The index of each count, as often as it says."""
    return tensor(INT64, (None if output_size is None else size_of(output_size),))


@data_dependent
def repeat_interleave_tensor_type(
    x: TensorType, repeats: TensorType, *, dim: Any = None, output_size: Any = None, op: str
) -> TensorType:
    """Each slice along ``dim`` (of the flat tensor, when None) as often as its count says."""
    n = None if output_size is None else size_of(output_size)
    if dim is None:
        return like(x, (n,))
    shape = shape_of(x)
    return like(x, replaced(shape, axis(dim, len(shape), op), n) if shape else (n,))


def repeat_interleave_int_type(x: TensorType, repeats: Any, *, dim: Any = None, op: str) -> TensorType:
    """Each slice along ``dim`` (of the flat tensor, when None) ``repeats`` times."""
    shape = shape_of(x)
    times = size_of(repeats)
    if dim is None or not shape:
        total: Size = 1
        for n in (*shape, times):
            total = None if total is None or n is None else total * n
        return like(x, (total,))
    at = axis(dim, len(shape), op)
    n = shape[at]
    return like(x, replaced(shape, at, None if n is None or times is None else n * times))


def segment_reduce_type(
    data: TensorType, *, lengths: TensorType | None, offsets: TensorType | None, axis: Any = 0
) -> TensorType:
    """One slice for each segment along ``axis``."""
    shape = shape_of(data)
    if lengths is not None:
        count = shape_of(lengths)[-1:] or (None,)
    elif offsets is not None:
        count = (plus((shape_of(offsets)[-1:] or (None,))[0], -1),)
    else:
        raise NotKnown
    return like(data, replaced(shape, axis, *count))


@data_dependent
def nms_type(dets: TensorType) -> TensorType:
    """The indices of the boxes that are kept."""
    return tensor(INT64, (None,))


@data_dependent
def one_hot_type(x: TensorType, num_classes: Any) -> TensorType:
    """A new last dim with one place for each class; as many as the largest number needs when -1."""
    n = size_of(num_classes)
    return tensor(INT64, (*shape_of(x), None if n is None or n < 0 else n))


@data_dependent
def tensor_split_type(x: TensorType, indices: TensorType, dim: Any, *, op: str) -> ListOf:
    """Parts along ``dim`` whose number and sizes are in a tensor."""
    shape = shape_of(x)
    return ListOf(like(x, replaced(shape, axis(dim, len(shape), op), None)))


@data_dependent
def packed_sequence_type(x: TensorType, lengths: TensorType, batch_first: Any) -> tuple[TensorType, TensorType]:
    """The steps of all sequences in one dim, and how many sequences each step has."""
    return like(x, (None, *shape_of(x)[2:])), tensor(INT64, (None,))


@data_dependent
def padded_sequence_type(
    data: TensorType, batch_sizes: TensorType, batch_first: Any, padding: Any, total_length: Any
) -> tuple[TensorType, TensorType]:
    """Sequences of equal length again, and how long each was."""
    steps = total_length if is_known(total_length) and total_length > 0 else shape_of(batch_sizes)[0]
    rest = shape_of(data)[1:]
    lengths = tensor(INT64, (None,))
    if isinstance(batch_first, Unknown):
        return like(data, (None, None, *rest)), lengths
    return like(data, (None, steps, *rest) if batch_first else (steps, None, *rest)), lengths


@data_dependent
def least_squares_type(
    x: TensorType, b: TensorType, *, op: str
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """Solutions; residuals (none when the rank is not full), ranks and singular values, whose sizes are not known."""
    shape, right = shape_of(x), shape_of(b)
    solution: Shape | None = None
    if len(shape) >= 2 and len(right) == len(shape):
        solution = (*broadcast([shape[:-2], right[:-2]], op), shape[-1], right[-1])
    real = dtype_of(x)
    residuals = tensor(None if real is None else real_of(real), None)
    return like(x, solution), residuals, TensorType(INT64_CODE), residuals


@data_dependent
def bags_type(
    weight: TensorType, indices: TensorType, offsets: TensorType, *, mode: Any, include_last_offset: Any
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """The bags; the bag of each index, the size of each bag, and for maxima (mode 2) their indices."""
    count = shape_of(offsets)[0]
    if include_last_offset:
        count = plus(count, -1)
    width = shape_of(weight)[1]
    of_each = (None,) if include_last_offset else shape_of(indices)
    return (
        like(weight, (count, width)),
        like(indices, of_each),
        like(indices, (count,)),
        like(indices, (count, width) if mode == 2 else (0,)),
    )


# ---------------------------------------------------------------------------------------------------------- index


@data_dependent
def indexed_type(x: TensorType, indices: Sequence[Any], *, op: str) -> TensorType:
    """``x[indices]``: masks stand for as many dims as they have, and pick an unknown number of elements."""
    if isinstance(indices, ListOf):
        raise NotKnown
    shape = shape_of(x)
    places: list[tuple[int, int, Shape]] = []
    at = 0
    for index in indices:
        if index is None:
            at += 1
            continue
        if index.dtype is None:
            raise NotKnown
        inner = shape_of(index)
        is_mask = index.dtype in (BOOL_CODE, UINT8_CODE)
        if is_mask:
            for have, want in zip(shape[at : at + len(inner)], inner, strict=False):
                same_size(
                    have, want, f"{op}: a mask of shape {texts(inner)} does not fit dims {at} on of {texts(shape)}"
                )
        width = len(inner) if is_mask else 1
        places.append((at, width, (None,) if is_mask else inner))
        at += width
    if at > len(shape):
        raise ShapeError(f"{op}: too many indices for a tensor of {len(shape)} dims")
    if not places:
        return like(x, shape)
    if not any(width for _, width, _ in places):
        # Masks without dims only: they take none and add one, in a place that the others decide.
        return like(x, (None,) * (len(shape) + 1))
    spread = broadcast([p[2] for p in places], op)
    used = {a + k for a, width, _ in places for k in range(width)}
    kept = [n for i, n in enumerate(shape) if i not in used]
    first, last = min(used), max(used)
    # Indices side by side leave their result where they stood; others put it first. A 0-dim mask takes no dim.
    together = last - first + 1 == len(used)
    where = sum(1 for i in range(first) if i not in used) if together else 0
    return like(x, (*kept[:where], *spread, *kept[where:]))


def index_select_type(x: TensorType, dim: Any, index: TensorType, *, op: str) -> TensorType:
    """The slices along ``dim`` that a vector names."""
    shape = shape_of(x)
    at = axis(dim, len(shape), op)
    names = shape_of(index)
    if len(names) > 1:
        raise ShapeError(f"{op}: index must be a vector, found shape {texts(names)}")
    return like(x, replaced(shape, at, names[0] if names else 1) if shape else ())


def gathered_type(x: TensorType, dim: Any, index: TensorType) -> TensorType:
    """The index's shape."""
    return like(x, index.shape)


def taken_type(x: TensorType, index: TensorType) -> TensorType:
    """The index's shape."""
    return like(x, index.shape)


def embedding_type(weight: TensorType, indices: TensorType) -> TensorType:
    """A row of ``weight`` for each index."""
    return like(weight, (*shape_of(indices), *shape_of(weight)[1:]))


def searched_type(sequence: Any, values: Any, *, out_int32: Any = False) -> TensorType:
    """A place for each value."""
    shape = values.shape if isinstance(values, TensorType) else ()
    return TensorType(None if isinstance(out_int32, Unknown) else 3 if out_int32 else INT64_CODE, shape)


def bucketed_type(values: Any, boundaries: TensorType, *, out_int32: Any = False) -> TensorType:
    """A place for each value."""
    return searched_type(boundaries, values, out_int32=out_int32)


def is_in_type(elements: Any) -> TensorType:
    """Whether each element is among others."""
    return tensor(BOOL_, elements.shape if isinstance(elements, TensorType) else ())
