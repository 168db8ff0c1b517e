"""Type rules of operators that cut tensors into several, and that join, repeat and rearrange them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gpujit.ir.dtypes import INT64
from gpujit.ir.types import TensorType
from gpujit.ops.promotion import COMPLEX64, COMPLEX128
from gpujit.ops.rules.common import (
    ListOf,
    Shape,
    Size,
    Unknown,
    axis,
    dtype_of,
    like,
    plus,
    promoted,
    replaced,
    same_size,
    same_type,
    shape_of,
    size_of,
    sizes_of,
    tensor,
    texts,
    times,
)
from gpujit.ops.rules.views import at_least_type, cut_length, listed
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import ShapeError

# ----------------------------------------------------------------------------------------------------------- splits


def _dim_to_split(x: TensorType, dim: Any, op: str) -> tuple[Shape, int]:
    shape = shape_of(x)
    if not shape:
        raise ShapeError(f"{op}: a 0-dim tensor can't be split")
    return shape, axis(dim, len(shape), op)


def _pieces(x: TensorType, shape: Shape, at: int, sizes: Sequence[Size]) -> list[TensorType]:
    return [like(x, replaced(shape, at, n)) for n in sizes]


def split_type(x: TensorType, size: Any, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """Pieces of one size, the last of what is left."""
    shape, at = _dim_to_split(x, dim, op)
    n = shape[at]
    if n is None or isinstance(size, Unknown):
        return ListOf(like(x, replaced(shape, at, None)))
    if size < 0 or (size == 0 and n):
        raise ShapeError(f"{op}: split_size must be positive, found {size}")
    if size == 0 or n == 0:
        return _pieces(x, shape, at, [n])
    return _pieces(x, shape, at, [min(size, n - i) for i in range(0, n, size)])


def split_sizes_type(x: TensorType, sizes: Any, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """Pieces of the given sizes."""
    shape, at = _dim_to_split(x, dim, op)
    if isinstance(sizes, Unknown):
        return ListOf(like(x, replaced(shape, at, None)))
    found = sizes_of(sizes, op)
    total = plus(*found)
    if total is not None and shape[at] is not None and total != shape[at]:
        raise ShapeError(f"{op}: sizes {list(found)} sum to {total}, dim {dim} has {shape[at]}")
    return _pieces(x, shape, at, found)


def chunk_type(x: TensorType, chunks: Any, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """At most so many pieces of one size."""
    shape, at = _dim_to_split(x, dim, op)
    n = shape[at]
    if isinstance(chunks, Unknown):
        return ListOf(like(x, replaced(shape, at, None)))
    if chunks < 1:
        raise ShapeError(f"{op}: the number of chunks must be positive, found {chunks}")
    if n is None:
        return ListOf(like(x, replaced(shape, at, None)))
    if n == 0:
        return _pieces(x, shape, at, [0] * chunks)
    size = -(-n // chunks)
    return _pieces(x, shape, at, [min(size, n - i) for i in range(0, n, size)])


def _sections(n: Size, count: int) -> list[Size]:
    return [None if n is None else n // count + (i < n % count) for i in range(count)]


def tensor_split_sections_type(x: TensorType, sections: Any, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """Just so many pieces, the first ones longer by one where it does not divide."""
    shape, at = _dim_to_split(x, dim, op)
    if isinstance(sections, Unknown):
        return ListOf(like(x, replaced(shape, at, None)))
    if sections < 1:
        raise ShapeError(f"{op}: the number of sections must be positive, found {sections}")
    return _pieces(x, shape, at, _sections(shape[at], sections))


def tensor_split_indices_type(x: TensorType, indices: Any, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """Pieces between successive indices."""
    shape, at = _dim_to_split(x, dim, op)
    if isinstance(indices, Unknown):
        return ListOf(like(x, replaced(shape, at, None)))
    bounds = [0, *indices, None]
    sizes = [cut_length(shape[at], a, b, 1) for a, b in pairwise(bounds)]
    return _pieces(x, shape, at, sizes)


def unbind_type(x: TensorType, dim: Any, *, op: str) -> list[TensorType] | ListOf:
    """Each slice along a dim, which goes away."""
    shape, at = _dim_to_split(x, dim, op)
    n = shape[at]
    one = like(x, replaced(shape, at))
    return ListOf(one) if n is None else [one] * n


# -------------------------------------------------------------------------------------------------------------- joins


def cat_type(tensors: Any, dim: Any, *, op: str) -> TensorType:
    """Tensors one after the other along a dim; vectors of no elements may stand beside any shape."""
    parts = listed(tensors)
    if not parts:
        raise ShapeError(f"{op}: at least one tensor is needed")
    dtype = promoted(*parts)
    shapes = [shape_of(t) for t in parts]
    maybe_empty = [s for s in shapes if len(s) == 1 and s[0] in (0, None)]
    full = [s for s in shapes if s != (0,)]
    if not full:
        return tensor(dtype, (0,))
    rank = max(map(len, full))
    if rank == 0:
        raise ShapeError(f"{op}: 0-dim tensors can't be joined; stack makes a new dim")
    at = axis(dim, rank, op)
    found: list[Size] = [None] * rank
    found[at] = 0
    for shape in full:
        if len(shape) != rank:
            if shape in maybe_empty:
                continue
            raise ShapeError(f"{op}: shapes {' and '.join(map(texts, shapes))} have different numbers of dims")
        for i, n in enumerate(shape):
            if i == at:
                found[at] = plus(found[at], n)
            else:
                message = f"{op}: shapes {' and '.join(map(texts, shapes))} differ outside dim {dim}"
                found[i] = same_size(found[i], n, message)
    return tensor(dtype, found)


def stack_type(tensors: Any, dim: Any, *, op: str) -> TensorType:
    """Tensors of one shape side by side along a new dim."""
    parts = listed(tensors)
    if not parts:
        raise ShapeError(f"{op}: at least one tensor is needed")
    shape = shape_of(parts[0])
    for other in parts[1:]:
        s = shape_of(other)
        message = f"{op}: shapes {texts(shape)} and {texts(s)} differ"
        if len(s) != len(shape):
            raise ShapeError(message)
        shape = tuple(same_size(m, n, message) for m, n in zip(shape, s, strict=True))
    at = axis(dim, len(shape) + 1, op)
    return tensor(promoted(*parts), (*shape[:at], len(parts), *shape[at:]))


def stacked_type(name: str) -> Any:
    """A rule: hstack, vstack (row_stack), dstack or column_stack."""
    rank, dim = {"hstack": (1, 1), "dstack": (3, 2), "column_stack": (1, 1)}.get(name, (2, 0))
    grow = at_least_type(rank)

    def grown(x: TensorType) -> TensorType:
        found: TensorType = grow(x)
        shape = shape_of(found)
        return like(x, (*shape, 1)) if name == "column_stack" and len(shape) == 1 else found

    def rule(tensors: Any, *, op: str) -> TensorType:
        """The tensors, dims of size 1 added, joined."""
        parts = [grown(t) for t in listed(tensors)]
        flat = name == "hstack" and parts and len(shape_of(parts[0])) == 1
        return cat_type(parts, 0 if flat else dim, op=op)

    return rule


def repeat_type(x: TensorType, repeats: Any, *, op: str) -> TensorType:
    """Copies side by side along every dim."""
    return _repeated(x, sizes_of(repeats, op), op)


def _repeated(x: TensorType, counts: Sequence[Size], op: str) -> TensorType:
    shape = shape_of(x)
    if len(counts) < len(shape):
        raise ShapeError(f"{op}: {len(counts)} repeats for a tensor of {len(shape)} dims; there must be as many")
    grown = (1,) * (len(counts) - len(shape)) + shape
    return like(x, (times(pair) for pair in zip(grown, counts, strict=True)))


def tile_type(x: TensorType, dims: Any, *, op: str) -> TensorType:
    """Copies side by side; missing counts are 1."""
    counts = sizes_of(dims, op)
    return _repeated(x, [1] * (len(shape_of(x)) - len(counts)) + list(counts), op)


def rot90_type(x: TensorType, k: Any, dims: Any, *, op: str) -> TensorType:
    """Two dims turned."""
    shape = list(shape_of(x))
    a, b = (axis(d, len(shape), op) for d in dims)
    if isinstance(k, Unknown):
        shape[a] = shape[b] = shape[a] if shape[a] == shape[b] else None
    elif k % 2:
        shape[a], shape[b] = shape[b], shape[a]
    return like(x, shape)


def pad_type(x: TensorType, pad: Any, *, op: str) -> TensorType:
    """The last dims grown by pairs of numbers, the last dim's first."""
    shape = list(shape_of(x))
    amounts = [size_of(n) for n in pad]
    if len(amounts) % 2 or len(amounts) // 2 > len(shape):
        raise ShapeError(f"{op}: {len(amounts)} padding numbers do not fit a tensor of {len(shape)} dims")
    for i in range(len(amounts) // 2):
        n = plus(shape[-1 - i], amounts[2 * i], amounts[2 * i + 1])
        if n is not None and n < 0:
            raise ShapeError(f"{op}: padding {list(pad)} leaves a negative size for {texts(tuple(shape))}")
        shape[-1 - i] = n
    return like(x, shape)


def pixel_shuffle_type(x: TensorType, factor: Any, *, op: str) -> TensorType:
    """Channels spread over the pixels of a larger image."""
    *lead, c, h, w = shape_of(x)
    if len(lead) + 3 < 3:
        raise NotKnown
    f = size_of(factor)
    if c is not None and f is not None and f > 0 and c % (f * f):
        raise ShapeError(f"{op}: {c} channels are not divisible by the square of the factor {f}")
    down = None if c is None or not f else c // (f * f)
    return like(x, (*lead, down, times((h, f)), times((w, f))))


def pixel_unshuffle_type(x: TensorType, factor: Any, *, op: str) -> TensorType:
    """Pixels of an image gathered in channels."""
    shape = shape_of(x)
    *lead, c, h, w = shape
    f = size_of(factor)
    if 0 in shape:
        # What is empty comes back as it is.
        return same_type(x)
    if f is None or f < 1:
        return like(x, (*lead, None, None, None))
    if any(n is not None and n % f for n in (h, w)):
        raise ShapeError(f"{op}: sizes {texts((h, w))} are not divisible by the factor {f}")
    down = (None if n is None else n // f for n in (h, w))
    return like(x, (*lead, times((c, f, f)), *down))


def meshgrid_type(tensors: Any, *, indexing: Any = "ij") -> list[TensorType]:
    """Every vector spread over a grid of all."""
    parts = listed(tensors)
    shape = [(shape_of(t) or (1,))[0] for t in parts]
    if isinstance(indexing, Unknown):
        return [like(t, (None,) * len(shape)) for t in parts]
    if indexing == "xy" and len(shape) > 1:
        shape[0], shape[1] = shape[1], shape[0]
    return [like(t, shape) for t in parts]


def view_as_complex_type(x: TensorType, *, op: str) -> TensorType:
    """Pairs of real numbers in the last dim as complex ones."""
    shape, dtype = shape_of(x), dtype_of(x)
    if not shape or shape[-1] not in (2, None):
        raise ShapeError(f"{op}: the last dim must have size 2, found shape {texts(shape)}")
    wide = None if dtype is None else COMPLEX128 if dtype.itemsize == 8 else COMPLEX64
    return tensor(wide, shape[:-1])


def glu_type(x: TensorType, dim: Any, *, op: str) -> TensorType:
    """Half of a dim."""
    shape = shape_of(x)
    at = axis(dim, len(shape), op)
    n = shape[at] if shape else None
    if not shape or (n is not None and n % 2):
        raise ShapeError(f"{op}: dim {dim} must have an even size, found shape {texts(shape)}")
    return like(x, replaced(shape, at, None if n is None else n // 2))


def shape_as_tensor_type(x: TensorType) -> TensorType:
    """A vector of the sizes."""
    return tensor(INT64, (None if x.shape is None else len(x.shape),))
