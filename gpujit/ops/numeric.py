"""Tools of bodies that need more than one array call: polynomials, pieces by range, blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpujit.ir.recorded import Recorded
from gpujit.ir.values import Array

# Elements of one block: a few float32 temporaries of this size stay in a second-level cache.
BLOCK = 32768


def horner(x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial whose highest coefficient comes first, at ``x``."""
    y = x * coefficients[0]
    y += coefficients[1]
    for c in coefficients[2:]:
        y *= x
        y += c
    return y


def monic(x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial with a leading coefficient 1 that ``coefficients`` leave out."""
    y = x + coefficients[0]
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


def chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """A Chebyshev series on [-2, 2], highest order first, the last term halved (Clenshaw's recurrence)."""
    b2: Any = 0.0
    b1: Any = 0.0
    b0: Any = coefficients[0]
    for c in coefficients[1:]:
        b2, b1 = b1, b0
        b0 = x * b1 - b2 + c
    return 0.5 * (b0 - b2)


def any_of(mask: Any) -> bool:
    """Whether any element holds; True where that is not known, as when a body is recorded."""
    return True if isinstance(mask, Recorded) else bool(mask.any())


def piecewise(m: Any, x: Any, pieces: Sequence[tuple[Any, Callable[[Any], Any]]], other: float = float("nan")) -> Any:
    """A new array of floats: where a mask holds, its function of just these elements; ``other`` elsewhere."""
    y = m.full_like(x, other)
    if isinstance(x, Recorded):
        for mask, function in pieces:
            y = m.where(mask, function(x), y)
        return y
    for mask, function in pieces:
        if mask.any():
            y[mask] = function(x[mask])
    return y


def blocks_into(m: Any, out: Array, function: Callable[[Any, Any], Any], x: Array) -> Any:
    """``in_blocks`` into ``out``, an out-variant: it leaves arrays that lie differently in memory to others."""
    if not (x.flags.c_contiguous and out.flags.c_contiguous) and x.strides != out.strides:
        return NotImplemented
    source, target = x.ravel(order="K"), out.ravel(order="K")
    if out.size and not m.may_share_memory(target, out):
        return NotImplemented
    step = BLOCK if m.__name__ == "numpy" else max(x.size, 1)
    for i in range(0, x.size, step):
        target[i : i + step] = function(m, source[i : i + step])
    return None


def in_blocks(m: Any, function: Callable[[Any, Any], Any], x: Array) -> Array:
    """``function(m, x)`` of an elementwise function that takes and gives one-dim arrays, in the layout of ``x``.

    On the CPU it goes block by block: a chain of array calls over a large array would fetch its temporaries from memory
    again and again.
    """
    if isinstance(x, Recorded):
        return function(m, x)
    size = x.size
    if x.flags.c_contiguous and (size <= 2 * BLOCK or m.__name__ != "numpy"):
        return function(m, x.reshape(-1)).reshape(x.shape)
    y = m.empty_like(x)
    # Both in the order of memory, which empty_like took over; that of y is a view of it.
    source, target = x.ravel(order="K"), y.ravel(order="K")
    step = BLOCK if m.__name__ == "numpy" else max(size, 1)
    for i in range(0, size, step):
        target[i : i + step] = function(m, source[i : i + step])
    return y


# A function that leaves its result for the second argument in the third, an array of the same shape and dtype.
Fill = Callable[[Any, Any, Any], Any]


def filled(m: Any, fill: Fill, x: Array) -> Array:
    """``in_blocks`` for a chain of array calls that writes its result itself, which saves copying it."""
    y = m.empty_like(x)
    if isinstance(x, Recorded) or x.size <= 2 * BLOCK:
        fill(m, x, y)
        return y
    _fill_blocks(m, fill, x.ravel(order="K"), y.ravel(order="K"))
    return y


def _fill_blocks(m: Any, fill: Fill, source: Any, target: Any) -> None:
    step = BLOCK if m.__name__ == "numpy" else max(source.size, 1)
    for i in range(0, source.size, step):
        fill(m, source[i : i + step], target[i : i + step])


def filled_into(m: Any, out: Array, fill: Fill, x: Array) -> Any:
    """``filled`` into ``out``, an out-variant, which may be ``x`` itself."""
    if not (x.flags.c_contiguous and out.flags.c_contiguous) and x.strides != out.strides:
        return NotImplemented
    source, target = x.ravel(order="K"), out.ravel(order="K")
    if out.size and not m.may_share_memory(target, out):
        return NotImplemented
    if out is not x:
        _fill_blocks(m, fill, source, target)
        return None
    step = BLOCK if m.__name__ == "numpy" else max(x.size, 1)
    scratch = m.empty(min(step, x.size), x.dtype)
    for i in range(0, x.size, step):
        part = source[i : i + step]
        fill(m, part, scratch[: part.size])
        target[i : i + step] = scratch[: part.size]
    return None


# Elements from which clip, whose call costs more, is faster than a maximum and a minimum.
_CLIPPED = 8192


def between(m: Any, x: Array, low: Any, high: Any) -> Array:
    """min(max(x, low), high) for numbers or arrays."""
    if isinstance(x, Recorded):
        return m.clip(x, low, high)
    if x.size >= _CLIPPED and x.dtype.kind == "f" and type(low) in (int, float) and type(high) in (int, float):
        return m.clip(x, low, high)
    return m.minimum(m.maximum(x, low), high)


def between_into(m: Any, out: Array, x: Array, low: Any, high: Any) -> None:
    """``between`` into ``out``, which may be ``x`` itself."""
    if x.size >= _CLIPPED and x.dtype.kind == "f" and type(low) in (int, float) and type(high) in (int, float):
        m.clip(x, low, high, out=out)
    else:
        m.minimum(m.maximum(x, low, out=out), high, out=out)
