"""Dims, sums that stay accurate, and dtypes: what every operator over rows shares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import isqrt
from typing import Any

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, numpy_dtype
from gpujit.ir.values import Array
from gpujit.support.errors import DTypeError, ShapeError

# Below this many elements a running float32 sum is accurate enough as it is.
_SMALL = 4096


def one_axis(ndim: int, dim: int, op: str) -> int:
    """``dim`` counted from the front; a 0-dim tensor has the dims 0 and -1. Raises ShapeError when out of range."""
    n = ndim or 1
    if -n <= dim < n:
        return dim + n if dim < 0 else dim
    raise ShapeError(f"{op}: dim {dim} is out of range for a tensor of {ndim} dims; use {-n} to {n - 1}")


def axes_of(ndim: int, dims: Sequence[int] | int | None, op: str) -> tuple[int, ...] | None:
    """The axes to reduce, in order; None stands for all of them (no dims, an empty list, a 0-dim tensor).

    Raises ShapeError: a dim out of range, or named twice.
    """
    if dims is None:
        return None
    if isinstance(dims, int):
        dims = (dims,)
    if len(dims) == 1 and ndim:
        return (one_axis(ndim, dims[0], op),)
    axes = sorted([one_axis(ndim, d, op) for d in dims])
    for a, b in pairwise(axes):
        if a == b:
            raise ShapeError(f"{op}: dim {a} appears twice in the list of dims {list(dims)}")
    return tuple(axes) if axes and ndim else None


def reduced_count(shape: Sequence[int], axes: tuple[int, ...] | None) -> int:
    """How many elements one result is made of."""
    n = 1
    for a in range(len(shape)) if axes is None else axes:
        n *= shape[a]
    return n


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...] | None, keepdim: bool) -> tuple[int, ...]:
    """The shape of a reduction over ``axes`` (None: all)."""
    if keepdim:
        return _kept(shape, axes)
    return () if axes is None else tuple(n for a, n in enumerate(shape) if a not in axes)


def total(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool = False, out: Array | None = None) -> Array:
    """Sum over ``axes`` in the dtype of ``x``, in ``out`` when there is one of that dtype and the right shape.

    NumPy sums pairwise along the innermost axis only; along any other a float32 sum would lose digits with its length,
    so those are summed in blocks. Neighbouring axes of contiguous memory are summed by a product with ones, several
    times as fast as NumPy's loops.
    """
    if x.size <= _SMALL:
        return m.add.reduce(x, axes, None, out, keepdim)
    if x.dtype.char in "fd" and x.flags.c_contiguous:
        y = _by_product(m, x, axes, out if out is not None and out.flags.c_contiguous else None)
        if y is not None:
            if out is None:
                return y.reshape(_kept(x.shape, axes)) if keepdim else y
            if not m.may_share_memory(y, out):
                out[...] = y.reshape(out.shape)
            return out
    if x.dtype.char in "fF" and axes is not None and axes[-1] != x.ndim - 1:
        return _blocked(m, x, axes, keepdim, out)
    if x.dtype.char in "fF" and not x.flags.c_contiguous:
        return _blocked(m, x, tuple(range(x.ndim)) if axes is None else axes, keepdim, out)
    return m.add.reduce(x, axes, None, out, keepdim)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(1 if axes is None or a in axes else n for a, n in enumerate(shape))


# Longer rows are summed in pieces of this many elements, which keeps the digits of float32.
_PIECE = 1024


def _by_product(m: Any, x: Array, axes: tuple[int, ...] | None, out: Array | None) -> Array | None:
    """Sum over neighbouring axes of a contiguous ``x`` seen as ``[before, n, after]``; None where that does not pay.

    ``out`` is contiguous, and used for all but single numbers.
    """
    if axes is None:
        flat = x.reshape(-1)
        whole = flat.shape[0] - flat.shape[0] % _PIECE
        y = m.add.reduce(m.matmul(flat[:whole].reshape(-1, _PIECE), _ones(m, _PIECE, x.dtype)))
        return y + m.add.reduce(flat[whole:]) if whole < flat.shape[0] else y
    first, last = axes[0], axes[-1]
    if last - first + 1 != len(axes):
        return None
    shape = x.shape
    before, n, after = 1, 1, 1
    for size in shape[:first]:
        before *= size
    for size in shape[first : last + 1]:
        n *= size
    for size in shape[last + 1 :]:
        after *= size
    left = shape[:first] + shape[last + 1 :]
    if n < 8 or n > 4 * _PIECE:
        return None
    if after == 1:
        if before < 8:
            return None
        target = None if out is None else out.reshape(before)
        return m.matmul(x.reshape(before, n), _ones(m, n, x.dtype), out=target).reshape(left)
    if n * after < 512 or after < 8:
        return None
    target = None if out is None else out.reshape(before, after)
    return m.matmul(_ones(m, n, x.dtype), x.reshape(before, n, after), out=target).reshape(left)


def sum_squares(
    m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool = False, out: Array | None = None
) -> Array:
    """Sum of squares over ``axes`` of a real ``x``, in ``out`` when there is one of that dtype and the right shape."""
    if x.size > _SMALL and x.flags.c_contiguous and hasattr(m, "vecdot"):
        if axes is None:
            flat = x.reshape(-1)
            whole = flat.shape[0] - flat.shape[0] % _PIECE
            rows = flat[:whole].reshape(-1, _PIECE)
            y = m.add.reduce(m.vecdot(rows, rows)) + m.dot(flat[whole:], flat[whole:])
            if out is not None:
                out[...] = y
                return out
            return y.reshape((1,) * x.ndim) if keepdim else y
        if axes[0] == x.ndim - len(axes):
            n = reduced_count(x.shape, axes)
            if 64 <= n <= 8 * _PIECE:
                rows = x.reshape(-1, n)
                if out is not None and out.flags.c_contiguous:
                    m.vecdot(rows, rows, out=out.reshape(-1))
                    return out
                y = m.vecdot(rows, rows).reshape(_kept(x.shape, axes) if keepdim else x.shape[: axes[0]])
                if out is not None:
                    out[...] = y
                return y
    return total(m, m.multiply(x, x), axes, keepdim, out)


@lru_cache(maxsize=64)
def _ones(m: Any, n: int, dtype: Any) -> Array:
    return m.ones(n, dtype=dtype)


def _blocked(m: Any, x: Array, axes: tuple[int, ...], keepdim: bool, out: Array | None) -> Array:
    shape = x.shape
    a = max(axes, key=lambda i: shape[i])
    n = shape[a]
    if n < 256:
        return m.add.reduce(x, axes, None, out, keepdim)
    width = isqrt(n)
    whole = n - n % width
    lead = (slice(None),) * a
    head = x[(*lead, slice(0, whole))].reshape(*shape[:a], whole // width, width, *shape[a + 1 :])
    y = m.add.reduce(m.add.reduce(head, a + 1), axes, None, out, keepdim)
    if whole < n:
        y = m.add(y, m.add.reduce(x[(*lead, slice(whole, n))], axes, None, None, keepdim), out=out)
    return y


def to_asked(x: Array, code: int | None) -> tuple[Array, Any]:
    """``x`` cast as a ``dtype=`` argument says, and the half type to return in (None: what it is computed in)."""
    if code is None:
        return x, None
    dtype = numpy_dtype(code)
    if dtype in HALF_TYPES:
        return x.astype(dtype).astype(FLOAT32), dtype
    return (x if x.dtype == dtype else x.astype(dtype)), None


def in_dtype(y: Array, dtype: Any) -> Array:
    """``y`` in ``dtype``; as it is when that is None."""
    return y if dtype is None else y.astype(dtype)


def need_floating(x: Array, op: str) -> None:
    """Raise DTypeError when ``x`` is neither floating nor complex."""
    if x.dtype.kind in "bui":
        raise DTypeError(f"{op}: expected a floating or complex tensor, found {x.dtype}; cast it first, or pass dtype=")


def need_real(x: Array, op: str) -> None:
    """Raise DTypeError for a complex ``x``, which has no order."""
    if x.dtype.kind == "c":
        raise DTypeError(f"{op}: complex numbers have no order, found {x.dtype}; take abs() or real first")
