"""Type rules of operators that see, cut, join or move the elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gpujit.ir.dtypes import FLOAT32, INT64
from gpujit.ir.types import TensorType
from gpujit.ops.promotion import COMPLEX64, COMPLEX128, DEFAULT_FLOAT, real_of
from gpujit.ops.rules.common import (
    ListOf,
    Shape,
    Size,
    Unknown,
    axis,
    broadcast,
    cast,
    dtype_of,
    is_known,
    like,
    need_rank,
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
from gpujit.ops.symbolic import NotKnown, greatest, is_live, slice_length
from gpujit.support.errors import ShapeError

# ------------------------------------------------------------------------------------------------------ new shapes


def _filled_in(sizes: Sequence[Any], total: Size, op: str) -> Shape:
    """Sizes with -1, or the one that is not known, replaced by what the number of elements leaves for it."""
    found = [size_of(n) for n in sizes]
    blanks = [i for i, n in enumerate(found) if n == -1]
    if len(blanks) > 1 or any(n is not None and n < -1 for n in found):
        raise ShapeError(f"{op}: shape {texts(tuple(found))} must have sizes from 0 up, and -1 once at most")
    if blanks:
        rest = times(n for i, n in enumerate(found) if i != blanks[0])
        found[blanks[0]] = None
        if rest == 0 or (total is not None and rest is not None and total % rest):
            raise ShapeError(f"{op}: {total} elements can't be seen as shape {[size_of(n) for n in sizes]}")
        if total is not None and rest is not None:
            found[blanks[0]] = total // rest
        return tuple(found)
    if total is None:
        return tuple(found)
    unknown = [i for i, n in enumerate(found) if n is None]
    if not unknown and times(found) != total:
        raise ShapeError(f"{op}: {total} elements can't be seen as shape {texts(tuple(found))}")
    if len(unknown) == 1:
        rest = times(n for n in found if n is not None)
        if rest and total % rest == 0:
            found[unknown[0]] = total // rest
    return tuple(found)


def view_type(x: TensorType, size: Any, *, op: str) -> TensorType:
    """The same elements under other sizes; -1 stands for what is left."""
    return like(x, _filled_in(size, None if x.shape is None else times(x.shape), op))


def view_dtype_type(x: TensorType, dtype: Any) -> TensorType:
    """The same bytes as numbers of another dtype: the last size changes with the width of an element."""
    to = cast(x, dtype)
    before, after = dtype_of(x), dtype_of(to)
    if before is None or after is None:
        return TensorType(to.dtype)
    shape = shape_of(x)
    if before.itemsize == after.itemsize or not shape:
        return to
    n = shape[-1]
    return like(to, (*shape[:-1], None if n is None else n * before.itemsize // after.itemsize))


def as_other_type(x: TensorType, other: TensorType) -> TensorType:
    """The first argument in the shape of the second."""
    return like(x, other.shape)


def flatten_type(x: TensorType, start: Any, end: Any, *, op: str) -> TensorType:
    """Neighbouring dims made one."""
    shape = shape_of(x)
    if not shape:
        return like(x, (1,))
    a, b = axis(start, len(shape), op), axis(end, len(shape), op)
    if a > b:
        raise ShapeError(f"{op}: start_dim {start} comes after end_dim {end}")
    return like(x, (*shape[:a], times(shape[a : b + 1]), *shape[b + 1 :]))


def ravel_type(x: TensorType) -> TensorType:
    """All elements in one dim."""
    return like(x, (None if x.shape is None else times(x.shape),))


def unflatten_type(x: TensorType, dim: Any, sizes: Any, *, op: str) -> TensorType:
    """One dim made several."""
    shape = shape_of(x)
    at = axis(dim, len(shape), op)
    if not shape:
        raise NotKnown
    return like(x, replaced(shape, at, *_filled_in(sizes, shape[at], op)))


def expand_type(x: TensorType, size: Any, *, op: str) -> TensorType:
    """Dims of size 1 repeated; -1 keeps a size."""
    wanted = [size_of(n) for n in size]
    shape = shape_of(x)
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise ShapeError(f"{op}: shape {texts(shape)} can't be expanded to fewer dims, {texts(tuple(wanted))}")
    for i, n in enumerate(shape, lead):
        if wanted[i] == -1:
            wanted[i] = n
        elif n != 1:
            message = f"{op}: shape {texts(shape)} can't be expanded to {texts(tuple(wanted))}; only sizes of 1 grow"
            # An unknown size is 1 or the one asked for; an unknown wish for a size above 1 can only be that size.
            wanted[i] = same_size(n, wanted[i], message)
    if any(n is not None and n < 0 for n in wanted[:lead]):
        raise ShapeError(f"{op}: -1 can't stand for a new dim, found {texts(tuple(wanted))}")
    return like(x, wanted)


def broadcast_tensors_type(tensors: Any, *, op: str) -> list[TensorType]:
    """Every tensor in the shape of all together."""
    shape = broadcast([shape_of(t) for t in _listed(tensors)], op)
    return [like(t, shape) for t in tensors]


def _listed(tensors: Any) -> Sequence[TensorType]:
    if isinstance(tensors, (ListOf, Unknown)):
        raise NotKnown
    return tensors  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------- order of dims


def permute_type(x: TensorType, dims: Any, *, op: str) -> TensorType:
    """The dims in another order."""
    if x.shape is None:
        return like(x, (None,) * len(dims))
    order = [axis(d, len(x.shape), op) for d in dims]
    if sorted(order) != list(range(len(x.shape))):
        raise ShapeError(f"{op}: dims {list(dims)} are no order of {len(x.shape)} dims")
    return like(x, (x.shape[d] for d in order))


def transpose_type(x: TensorType, dim0: Any, dim1: Any, *, op: str) -> TensorType:
    """Two dims exchanged."""
    shape = list(shape_of(x))
    if not is_known([dim0, dim1]):
        return like(x, (shape[0] if len(set(shape)) == 1 else None,) * len(shape))
    a, b = axis(dim0, len(shape), op), axis(dim1, len(shape), op)
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return like(x, shape)


def t_type(x: TensorType, *, op: str) -> TensorType:
    """A matrix with its dims exchanged; fewer dims stay."""
    return like(x, need_rank(x, (0, 1, 2), op, "self")[::-1])


def reversed_type(x: TensorType) -> TensorType:
    """All dims in reverse order."""
    return like(x, shape_of(x)[::-1])


def matrix_t_type(x: TensorType) -> TensorType:
    """The last two dims exchanged."""
    shape = shape_of(x)
    return like(x, (*shape[:-2], *shape[-2:][::-1]))


def movedim_type(x: TensorType, source: Any, destination: Any, *, op: str) -> TensorType:
    """Dims moved to other places, the others in their order."""
    shape = shape_of(x)
    if not is_known([source, destination]):
        raise NotKnown
    froms = [axis(d, len(shape), op) for d in ([source] if isinstance(source, int) else source)]
    tos = [axis(d, len(shape), op) for d in ([destination] if isinstance(destination, int) else destination)]
    if len(froms) != len(tos) or len(set(froms)) != len(froms) or len(set(tos)) != len(tos):
        raise ShapeError(f"{op}: source {source} and destination {destination} must name as many different dims")
    if not shape:
        return same_type(x)
    rest = iter([i for i in range(len(shape)) if i not in froms])
    moved = dict(zip(tos, froms, strict=True))
    return like(x, (shape[moved[i] if i in moved else next(rest)] for i in range(len(shape))))


def unsqueeze_type(x: TensorType, dim: Any, *, op: str) -> TensorType:
    """A new dim of size 1."""
    shape = shape_of(x)
    if isinstance(dim, Unknown):
        return like(x, (None,) * (len(shape) + 1))
    at = axis(dim, len(shape) + 1, op)
    return like(x, (*shape[:at], 1, *shape[at:]))


def squeeze_type(x: TensorType) -> TensorType:
    """Dims of size 1 taken away."""
    shape = shape_of(x)
    return like(x, None if None in shape else (n for n in shape if n != 1))


def squeeze_dims_type(x: TensorType, dims: Any, *, op: str) -> TensorType:
    """Those of the named dims taken away that have size 1."""
    shape = shape_of(x)
    chosen = {axis(d, len(shape), op) for d in ([dims] if isinstance(dims, (int, Unknown)) else dims)}
    if any(i in chosen and n is None for i, n in enumerate(shape)):
        return like(x, None)
    return like(x, (n for i, n in enumerate(shape) if i not in chosen or n != 1))


def at_least_type(rank: int) -> Any:
    """A rule: dims of size 1 added until there are ``rank``."""

    def rule(x: TensorType) -> TensorType:
        """The tensor with at least so many dims."""
        shape = shape_of(x)
        if rank == 3:
            grown = {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}.get(len(shape), shape)
        else:
            grown = (1,) * (rank - len(shape)) + shape
        return like(x, grown)

    return rule


def each_at_least_type(rank: int) -> Any:
    """A rule: dims of size 1 added to every tensor until it has ``rank``."""
    one = at_least_type(rank)

    def rule(tensors: Any) -> list[TensorType]:
        """The tensors with at least so many dims."""
        return [one(x) for x in _listed(tensors)]

    return rule


# ------------------------------------------------------------------------------------------------------------ parts


def select_type(x: TensorType, dim: Any, index: Any, *, op: str) -> TensorType:
    """One slice along a dim, which goes away."""
    shape = shape_of(x)
    if isinstance(dim, Unknown):
        return like(x, (None,) * (len(shape) - 1))
    if not shape:
        raise ShapeError(f"{op}: a 0-dim tensor has no dim to select from")
    at = axis(dim, len(shape), op)
    n = shape[at]
    if n is not None and isinstance(index, int) and not -n <= index < n:
        raise ShapeError(f"{op}: index {index} is out of range for dim {dim} of size {n}")
    return like(x, replaced(shape, at))


def _length(n: Size, start: Any, end: Any, step: Any) -> Size:
    if n is None or not is_known([start, end, step]):
        untouched = step == 1 and start in (None, 0) and end is None if is_known([start, end, step]) else False
        return n if untouched else None
    if is_live([n, start, end]):
        return slice_length(n, start, end, step)  # type: ignore[no-any-return]
    return len(range(n)[slice(start, end, step)])


def slice_type(x: TensorType, dim: Any, start: Any, end: Any, step: Any, *, op: str) -> TensorType:
    """Every ``step``-th slice along a dim, from ``start`` to before ``end``."""
    shape = shape_of(x)
    if isinstance(dim, Unknown):
        return like(x, (None,) * len(shape))
    if not shape:
        raise ShapeError(f"{op}: a 0-dim tensor has no dim to slice")
    at = axis(dim, len(shape), op)
    if isinstance(step, int) and step < 1:
        raise ShapeError(f"{op}: step must be positive, found {step}")
    return like(x, replaced(shape, at, _length(shape[at], start, end, step)))


def narrow_type(x: TensorType, dim: Any, start: Any, length: Any, *, op: str) -> TensorType:
    """``length`` slices along a dim."""
    shape = shape_of(x)
    if not shape:
        raise ShapeError(f"{op}: a 0-dim tensor has no dim to narrow")
    at, n, count = axis(dim, len(shape), op), None, size_of(length)
    n = shape[at]
    if count is not None and (count < 0 or (n is not None and count > n)):
        raise ShapeError(f"{op}: length {count} does not fit dim {dim} of size {n}")
    return like(x, replaced(shape, at, count))


def unfold_type(x: TensorType, dim: Any, size: Any, step: Any, *, op: str) -> TensorType:
    """Windows along a dim; their elements in a new last dim."""
    shape = shape_of(x)
    if not shape:
        return like(x, (size_of(size),))
    at = axis(dim, len(shape), op)
    n, width = shape[at], size_of(size)
    if width is not None and n is not None and not 0 <= width <= n:
        raise ShapeError(f"{op}: windows of {width} elements do not fit dim {dim} of size {n}")
    count = None if n is None or width is None or isinstance(step, Unknown) else (n - width) // step + 1
    return like(x, (*replaced(shape, at, count), width))


def as_strided_type(x: TensorType, size: Any, *, op: str) -> TensorType:
    """The given sizes."""
    return like(x, sizes_of(size, op))


def diagonal_length(rows: Size, columns: Size, offset: int | Unknown) -> Size:
    """How many elements a diagonal has."""
    if rows is None or columns is None or isinstance(offset, Unknown):
        return None
    return max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)


def diagonal_type(x: TensorType, *, offset: Any, dim1: Any, dim2: Any, op: str) -> TensorType:
    """The diagonal of two dims as a new last one."""
    shape = shape_of(x)
    a, b = axis(dim1, len(shape), op), axis(dim2, len(shape), op)
    if a == b:
        raise ShapeError(f"{op}: dims {dim1} and {dim2} of a tensor of {len(shape)} dims must be two different ones")
    kept = [n for i, n in enumerate(shape) if i not in (a, b)]
    return like(x, (*kept, diagonal_length(shape[a], shape[b], offset)))


def diag_type(x: TensorType, offset: Any, *, op: str) -> TensorType:
    """The diagonal of a matrix, or the matrix of a diagonal."""
    shape = need_rank(x, (1, 2), op, "self")
    if len(shape) == 2:
        return like(x, (diagonal_length(*shape, offset),))
    n = None if isinstance(offset, Unknown) else plus(shape[0], abs(offset))
    return like(x, (n, n))


def diagflat_type(x: TensorType, offset: Any) -> TensorType:
    """A square matrix with all elements on a diagonal."""
    n = None if isinstance(offset, Unknown) else plus(times(shape_of(x)), abs(offset))
    return like(x, (n, n))


def diag_embed_type(x: TensorType, offset: Any, dim1: Any, dim2: Any, *, op: str) -> TensorType:
    """The last dim as the diagonal of two new ones."""
    shape = shape_of(x)
    rank = len(shape) + 1
    a, b = sorted((axis(dim1, rank, op), axis(dim2, rank, op)))
    n = None if isinstance(offset, Unknown) else plus(shape[-1], abs(offset))
    found = list(shape[:-1])
    found.insert(a, n)
    found.insert(b, n)
    return like(x, found)


def real_part_type(x: TensorType) -> TensorType:
    """The same shape in the dtype of real parts."""
    dtype = dtype_of(x)
    return tensor(None if dtype is None else real_of(dtype), x.shape)


def view_as_real_type(x: TensorType) -> TensorType:
    """A new last dim with the real and the imaginary part."""
    return like(real_part_type(x), (*shape_of(x), 2))


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
    sizes = [_length(shape[at], a, b, 1) for a, b in pairwise(bounds)]
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
    parts = _listed(tensors)
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
    parts = _listed(tensors)
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
        parts = [grown(t) for t in _listed(tensors)]
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
    parts = _listed(tensors)
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


# ---------------------------------------------------------------------------------------------------------- factories


def sized_type(size: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, sizes_of(size, op)), dtype)


def full_type(size: Any, value: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes; the number decides the dtype unless one is given."""
    return cast(tensor(promoted(value), sizes_of(size, op)), dtype)


def number_type(value: Any, *, dtype: Any) -> TensorType:
    """A 0-dim tensor in the dtype of a number, unless one is given."""
    return cast(tensor(promoted(value), ()), dtype)


def scalar_tensor_type(value: Any, *, dtype: Any) -> TensorType:
    """A 0-dim tensor; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, ()), dtype)


def cast_type(x: TensorType, *, dtype: Any = None) -> TensorType:
    """The first argument in another dtype; in its own when None."""
    return cast(x, dtype)


def cast_as_type(x: TensorType, other: TensorType) -> TensorType:
    """The first argument in the dtype of the second."""
    return TensorType(other.dtype, x.shape)


def cast_to_type(dtype: int) -> Any:
    """A rule: the first argument in that dtype."""

    def rule(x: TensorType) -> TensorType:
        """The tensor in another dtype."""
        return cast(x, dtype)

    return rule


def new_type(x: TensorType, size: Any, *, dtype: Any, op: str) -> TensorType:
    """The given sizes in the first argument's dtype, unless one is given."""
    return cast(like(x, sizes_of(size, op)), dtype)


def second_sized_type(first: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the second argument; int64 unless a dtype is given."""
    return cast(tensor(INT64, sizes_of(size, op)), dtype)


def third_sized_type(first: Any, second: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the third argument; int64 unless a dtype is given."""
    return cast(tensor(INT64, sizes_of(size, op)), dtype)


def normal_sized_type(mean: Any, std: Any, size: Any, *, dtype: Any, op: str) -> TensorType:
    """Sizes in the third argument; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, sizes_of(size, op)), dtype)


def normal_type(mean: Any, std: Any, *, op: str) -> TensorType:
    """A draw for each mean and standard deviation."""
    tensors = [x for x in (mean, std) if isinstance(x, TensorType)]
    return tensor(promoted(*tensors), broadcast([shape_of(x) for x in tensors], op))


def permutation_type(n: Any, *, dtype: Any) -> TensorType:
    """A vector of ``n`` numbers; int64 unless a dtype is given."""
    return cast(tensor(INT64, (size_of(n),)), dtype)


def closed_range_type(start: Any, end: Any, *, step: Any = 1, dtype: Any) -> TensorType:
    """The numbers from ``start`` up to and including ``end``; float32 unless a dtype is given."""
    count = int((end - start) / step) + 1 if is_known([start, end, step]) and step else None
    return cast(tensor(DEFAULT_FLOAT, (count,)), dtype)


def arange_count(start: Any, end: Any, step: Any, exact: bool) -> Size:
    """How many numbers lead from ``start`` to before ``end``; None when a bound is not known."""
    if not is_known([start, end, step]):
        return None
    if is_live([start, end]):
        if type(step) is not int or step < 1:
            return None
        return greatest((end - start + (step - 1)) // step, 0)  # type: ignore[no-any-return]
    if exact:
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        return None
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return max(-((start - end) // step) if step > 0 else -((end - start) // -step), 0)
    width = (float(end) - float(start)) / float(step)
    if width != width or abs(width) > 1 << 62:
        return None
    return max(-int(-width // 1), 0)


def _range_type(start: Any, end: Any, step: Any, dtype: Any) -> TensorType:
    bounds = (start, end, step)
    if dtype is None:
        kinds = [v.type if isinstance(v, Unknown) else int if is_live(v) else type(v) for v in bounds]
        if None in kinds:
            found: Any = FLOAT32 if float in kinds else None
        else:
            found = INT64 if all(k in (int, bool) for k in kinds) else DEFAULT_FLOAT
    else:
        found = dtype_of(cast(TensorType(), dtype))
    exact = found is not None and found == INT64
    return tensor(found, (arange_count(start, end, step, exact),))


def arange_type(end: Any, *, dtype: Any) -> TensorType:
    """The numbers from 0 to before ``end``; int64 for an integer, else float32."""
    return _range_type(0, end, 1, dtype)


def arange_start_type(start: Any, end: Any, *, step: Any = 1, dtype: Any) -> TensorType:
    """The numbers from ``start`` to before ``end``; int64 for integers, else float32."""
    return _range_type(start, end, step, dtype)


def spaced_type(start: Any, end: Any, steps: Any, *, dtype: Any) -> TensorType:
    """``steps`` numbers; float32 (complex64 for complex bounds) unless a dtype is given."""
    count = size_of(steps)
    if isinstance(start, (int, float)) and isinstance(end, (int, float)):
        return cast(tensor(DEFAULT_FLOAT, (count,)), dtype)
    if isinstance(start, TensorType) or isinstance(end, TensorType):
        kinds = [dtype_of(v) if isinstance(v, TensorType) else None for v in (start, end)]
        real = all(not isinstance(v, complex) for v in (start, end)) and all(
            k is not None and k.kind != "c"
            for k, v in zip(kinds, (start, end), strict=True)
            if isinstance(v, TensorType)
        )
        return cast(tensor(DEFAULT_FLOAT if real else None, (count,)), dtype)
    return cast(tensor(None, (count,)), dtype)


def eye_type(n: Any, m: Any = None, *, dtype: Any) -> TensorType:
    """A square matrix; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(n), size_of(n))), dtype)


def eye_m_type(n: Any, m: Any, *, dtype: Any) -> TensorType:
    """A matrix; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(n), size_of(m))), dtype)


def triangle_indices_type(row: Any, col: Any, offset: Any, *, dtype: Any, op: str) -> TensorType:
    """Row and column of every element of a triangle."""
    count: Size = None
    if is_known([row, col, offset]) and min(row, col) >= 0:
        below = sum(min(max(offset + i + 1, 0), col) for i in range(row)) if row < 1 << 16 else None
        if below is not None:
            if op.startswith("aten::triu"):
                above = sum(min(max(offset + i, 0), col) for i in range(row))
                count = row * col - above
            else:
                count = below
    return cast(tensor(INT64, (2, count)), dtype)


def window_type(length: Any, *, dtype: Any) -> TensorType:
    """A vector of ``length`` numbers; float32 unless a dtype is given."""
    return cast(tensor(DEFAULT_FLOAT, (size_of(length),)), dtype)
