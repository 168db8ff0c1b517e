"""Pieces of out-variants: what functions declared as ``into=`` are made of; ``out_variants`` says what they promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpujit.ir.values import Array

# Elements of the result that are computed at once where that takes memory of their own.
PART = 1 << 16
# Up to this many elements a pointwise result is computed and copied, which is quicker than to prepare for more.
SMALL = 1 << 11


def fits(out: Array, shape: Sequence[int], dtype: Any) -> bool:
    """Whether a result of this shape and dtype can be computed in ``out``."""
    return out.shape == tuple(shape) and bool(out.dtype == dtype)


def copied(out: Array, source: Array) -> Any:
    """``source``, a view of an argument, copied into ``out``: the out-variant of what only moves elements."""
    if not fits(out, source.shape, source.dtype):
        return NotImplemented
    out[...] = source
    return None


def copied_all(outs: Sequence[Array], sources: Sequence[Array]) -> Any:
    """Several views copied into an array each."""
    if len(outs) != len(sources):
        return NotImplemented
    if not all(fits(o, s.shape, s.dtype) for o, s in zip(outs, sources, strict=True)):
        return NotImplemented
    for o, s in zip(outs, sources, strict=True):
        o[...] = s
    return None


class _Bound:
    """An array module whose ufuncs write into one array."""

    __slots__ = ("_out", "_xp")

    def __init__(self, xp: Any, out: Array) -> None:
        self._xp = xp
        self._out = out

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._xp, name)
        return partial(found, out=self._out) if isinstance(found, self._xp.ufunc) else found


def by_body(body: Callable[..., Any]) -> Callable[..., Any]:
    """The out-variant of a body that is a chain of ufuncs: the body itself, with a module that writes into ``out``."""

    def into(m: Any, out: Array, *args: Any) -> None:
        y = body(_Bound(m, out), *args)
        # Some bodies copy where there is nothing to compute.
        if y is not out:
            out[...] = y

    return into


def longest(shape: Sequence[int], but: Sequence[int] = ()) -> int | None:
    """The dim of the largest size, of those not in ``but``; None when there is none."""
    return max((d for d in range(len(shape)) if d not in but), key=lambda d: shape[d], default=None)


def elementwise(body: Callable[..., Any]) -> Callable[..., Any]:
    """The out-variant of any pointwise body: it runs on one part of the result after the other."""

    def into(m: Any, out: Array, *args: Any) -> Any:
        if any(getattr(a, "dtype", out.dtype).kind in "iu" for a in args):
            # Some refuse certain integers, and must have seen all before anything is written.
            return NotImplemented
        return _parts(m, body, out, args, longest(out.shape), lambda a: hasattr(a, "dtype"), True)

    return into


@dataclass(frozen=True, slots=True)
class OfBody:
    """An out-variant that is made of the body it is declared with."""

    make: Callable[[Callable[..., Any]], Callable[..., Any]]


def by_parts(axis_of: Callable[..., int | None], sliced: Sequence[int] = (0,)) -> OfBody:
    """The out-variant of a body that treats slices along a dim independently: it runs on one part after the other.

    Args:
        axis_of: that dim, the same in the result, from the arguments of the body; None when there is none.
        sliced: positions of the arguments that have the dim; None among them is left alone.
    """

    def make(body: Callable[..., Any]) -> Callable[..., Any]:
        def into(m: Any, out: Array, *args: Any) -> Any:
            axis = axis_of(*args)
            cut = [args[i] for i in sliced if args[i] is not None]
            if axis is None or any(a.ndim != out.ndim or a.shape[axis] != out.shape[axis] for a in cut):
                return NotImplemented
            chosen = {id(a) for a in cut}
            return _parts(m, body, out, args, axis, lambda a: id(a) in chosen, False)

        return into

    return OfBody(make)


def _parts(
    m: Any,
    body: Callable[..., Any],
    out: Array,
    args: Sequence[Any],
    axis: int | None,
    is_cut: Callable[[Any], bool],
    casts: bool,
) -> Any:
    if axis is None or out.size <= PART or out.shape[axis] < 2:
        # What is computed in one piece is as well computed and copied.
        return NotImplemented
    n, behind = out.shape[axis], out.ndim - axis
    step = max(1, PART * n // out.size)
    for i in range(0, n, step):
        stop = min(i + step, n)
        values = []
        for a in args:
            if is_cut(a) and a is not None and a.ndim >= behind and a.shape[-behind] == n:
                a = a[(..., slice(i, stop), *(slice(None),) * (behind - 1))]
            values.append(a)
        y = body(m, *values)
        target = out[(..., slice(i, stop), *(slice(None),) * (behind - 1))]
        if not i and not fits(target, y.shape, out.dtype if casts else y.dtype):
            return NotImplemented
        target[...] = y
    return None
