"""Type rules of views: other sizes, other orders of dims, parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.types import TensorType
from gpujit.ops.promotion import real_of
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
from gpujit.ops.symbolic import NotKnown, is_live, slice_length
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
    shape = broadcast([shape_of(t) for t in listed(tensors)], op)
    return [like(t, shape) for t in tensors]


def listed(tensors: Any) -> Sequence[TensorType]:
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
        return [one(x) for x in listed(tensors)]

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


def cut_length(n: Size, start: Any, end: Any, step: Any) -> Size:
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
    return like(x, replaced(shape, at, cut_length(shape[at], start, end, step)))


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
