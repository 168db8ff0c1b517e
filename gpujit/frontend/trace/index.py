"""Subscripts of traced arrays: NumPy's rules as slice, select, unsqueeze, index and index_put_.

What takes a view in NumPy is a view in the graph: slices with a positive step, integers, new axes. An integer beside an
index array is one more index array, as NumPy has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.frontend.trace.numbers import TracedInt, TracedNumber
from gpujit.frontend.trace.numpy_calls import Call, attach, store
from gpujit.frontend.trace.state import Traced, holds_traced
from gpujit.ops import calls


def get(call: Call, x: Any, key: Any) -> Any:
    """``x[key]``."""
    tracer = call.tracer
    expected = x._concrete[tracer.concrete(key)]
    basic, advanced, flips = _split(call, x, key)
    if advanced is not None:
        if any(_is_mask(a) for a in advanced):
            tracer.lost("data-size", "the result of a boolean mask")
        basic = call.op("index", basic, advanced)
    # A step that is negative was taken as a positive one from the other end.
    if flips:
        basic = call.op("flip", basic, flips)
    return attach(call, basic, expected, [x])


def put(call: Call, x: Any, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    tracer = call.tracer
    # What NumPy refuses, NumPy refuses itself.
    shape, dtype = x._concrete[tracer.concrete(key)].shape, x._concrete.dtype
    target, advanced, flips = _split(call, x, key)
    source = call.tensor(value, dtype)
    while source._concrete.ndim > len(shape):
        # NumPy drops leading axes of one; others it refuses below.
        source = call.op("squeeze", source, 0)
    if flips:
        source = call.op("flip", call.op("expand_as", source, target), flips)
    if advanced is None:
        store(tracer, target, source)
    else:
        _index_put(call, target, advanced, source, accumulate=False)
    x._concrete[tracer.concrete(key)] = tracer.concrete(value)


def scatter(call: Call, x: Any, key: Any, value: Any) -> None:
    """Record ``numpy.add.at(x, key, value)``; NumPy has still to add."""
    target, advanced, flips = _split(call, x, key)
    source = call.tensor(1 if value is None else value, x._concrete.dtype)
    if flips:
        raise call.refuse("a negative step in what is added to")
    if advanced is None:
        store(call.tracer, target, call.op("add", target, source))
        return
    _index_put(call, target, advanced, source, accumulate=True)


def _index_put(call: Call, target: Any, indices: list[Any], source: Any, *, accumulate: bool) -> None:
    """Record ``aten::index_put_`` without running it: NumPy writes into this run's array."""
    from gpujit.ir import types as T

    tracer = call.tracer
    given = [target, indices, source, accumulate]
    _, match = calls.find("aten::index_put_", calls.plain(tracer.concrete(given)), {})
    node = tracer.node("aten::index_put_", [tracer.value(v, s.type) for v, s in zip(given, match.steps, strict=True)])
    node.schema = match.schema
    node.add_output(T.TENSOR)
    tracer.wrote(target)


def _is_mask(index: Any) -> bool:
    return index is not None and index._concrete.dtype.kind == "b"


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer, TracedInt)) and not isinstance(item, (bool, np.bool_))


def _is_scalar_tensor(item: Any) -> bool:
    """A traced integer array without axes, which NumPy takes as an integer."""
    if not isinstance(item, Traced) or isinstance(item, TracedNumber):
        return False
    return not item._concrete.ndim and item._concrete.dtype.kind in "iu"


def _expanded(call: Call, x: Any, key: Any) -> tuple[list[Any], bool]:
    """The subscript with the ellipsis replaced: one item for each axis, None for new ones; and whether NumPy puts the
    axes of the index arrays first, as it does when something else stands between two of them."""
    items = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(i, (bool, np.bool_)) for i in items):
        raise call.refuse("a single truth value as a subscript")
    taken = 0
    for i in items:
        if i is None or i is Ellipsis:
            continue
        plain = call.tracer.concrete(i)
        is_mask = isinstance(plain, (list, np.ndarray)) and np.asarray(plain).dtype == bool
        taken += np.asarray(plain).ndim if is_mask else 1
    # Arrays compare element by element, so the ellipsis is looked for by identity.
    advanced = [n for n, i in enumerate(items) if i is not None and i is not Ellipsis and not isinstance(i, slice)]
    apart = bool(advanced) and advanced[-1] - advanced[0] >= len(advanced)
    rest = [slice(None)] * (x._concrete.ndim - taken)
    at = next((n for n, i in enumerate(items) if i is Ellipsis), len(items))
    return [*items[:at], *rest, *items[at + 1 :]], apart


def _split(call: Call, x: Any, key: Any) -> tuple[Any, list[Any] | None, list[int]]:
    """The view that the basic parts of a subscript take, index arrays for it (None without any), and axes that are to
    be flipped in the end."""
    items, apart = _expanded(call, x, key)
    if all(i is None or isinstance(i, slice) or _is_integer(i) or _is_scalar_tensor(i) for i in items):
        return _basic(call, x, items)
    indices: list[Any] = []
    flips: list[int] = []
    dim = 0
    for item in items:
        if item is None:
            x = call.op("unsqueeze", x, dim)
            indices.append(None)
        elif isinstance(item, slice):
            x, flipped = _slice(call, x, dim, item)
            flips += [dim] if flipped else []
            indices.append(None)
        else:
            index = _index_array(call, item)
            indices.append(index)
            dim += max(index._concrete.ndim, 1) - 1 if index._concrete.dtype.kind == "b" else 0
        dim += 1
    if flips:
        # Which axis of the result is the flipped one depends on where the index arrays stand: flip before.
        x = call.op("flip", x, flips)
    if apart:
        x, indices = _indexed_first(call, x, indices)
    while indices[-1] is None:
        indices.pop()
    return x, indices, []


def _basic(call: Call, x: Any, items: list[Any]) -> tuple[Any, None, list[int]]:
    """``_split`` without index arrays."""
    flips: list[int] = []
    dim = 0
    for item in items:
        if item is None:
            x = call.op("unsqueeze", x, dim)
        elif isinstance(item, slice):
            x, flipped = _slice(call, x, dim, item)
            flips += [dim] if flipped else []
        elif _is_integer(item):
            x = call.op("select", x, dim, item if isinstance(item, Traced) else int(item))
            continue
        else:
            index = _positive(call, x, dim, call.cast(item, np.int64))
            x = call.op("squeeze", call.op("index_select", x, dim, index), dim)
            continue
        dim += 1
    return x, None, flips


def _index_array(call: Call, item: Any) -> Any:
    """An index array as a tensor, of int64 unless it is a mask."""
    if isinstance(item, list) and not holds_traced(item):
        item = np.asarray(item, np.int64 if not item else None)
    index = call.tensor(item)
    kind = index._concrete.dtype.kind
    if kind not in "biu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return index if kind == "b" else call.cast(index, np.int64)


def _indexed_first(call: Call, x: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
    """``x`` with the axes that index arrays take before all others."""
    first: list[int] = []
    rest: list[int] = []
    dim = 0
    for index in indices:
        taken = 1 if index is None or index._concrete.dtype.kind != "b" else index._concrete.ndim
        (rest if index is None else first).extend(range(dim, dim + taken))
        dim += taken
    rest += range(dim, x._concrete.ndim)
    return call.op("permute", x, [*first, *rest]), [i for i in indices if i is not None]


def _positive(call: Call, x: Any, dim: int, index: Any) -> Any:
    """An index tensor of one element that counts from the start, as index_select wants it."""
    size = call.op("size", x, dim)
    moved = call.op("where", call.op("lt", index, 0), call.op("add", index, size), index)
    return call.op("reshape", moved, [1])


def _slice(call: Call, x: Any, dim: int, item: slice) -> tuple[Any, bool]:
    """A slice of one axis, and whether it is to be flipped."""
    start, stop, step = item.start, item.stop, item.step
    if start is None and stop is None and step is None:
        return x, False
    concrete_step = 1 if step is None else call.tracer.concrete(step)
    bounds = [None if v is None else v if isinstance(v, Traced) else int(v) for v in (start, stop)]
    if concrete_step > 0:
        if bounds == [None, None] and concrete_step == 1:
            return x, False
        return call.op("slice", x, dim, *bounds, 1 if step is None else step), False
    if bounds == [None, None]:
        # x[::-1] is all of it, backwards; with longer steps it begins at the end.
        if concrete_step == -1:
            return x, True
        size = call.op("size", x, dim)
        first = (size - 1) % -concrete_step
        return call.op("slice", x, dim, first, None, -concrete_step), True
    # In sizes that the graph knows: the last element that is taken, the one before the first, and how many there are.
    size = call.op("size", x, dim)
    last = _clamped(size - 1 if start is None else _from_start(bounds[0], size), -1, size - 1)
    end = -1 if stop is None else _clamped(_from_start(bounds[1], size), -1, size - 1)
    count = _clamped((last - end + (-concrete_step) - 1) // -concrete_step, 0, size)
    first = last - (count - 1) * -concrete_step
    return call.op("slice", x, dim, first, last + 1, -concrete_step), True


def _from_start(bound: Any, size: Any) -> Any:
    """A bound that counts from the end, when it is negative, as one that counts from the start."""
    if isinstance(bound, Traced) and not isinstance(bound, TracedNumber):
        bound = bound._tracer.call("aten::Int", (bound,))
    if isinstance(bound, TracedNumber):
        return bound + size * (bound < 0)  # type: ignore[operator]
    return bound + size if bound < 0 else bound


def _clamped(value: Any, low: Any, high: Any) -> Any:
    """A bound as NumPy clips it, by the graph's own min and max."""
    for other, name in ((low, "prim::max"), (high, "prim::min")):
        tracer = value._tracer if isinstance(value, Traced) else other._tracer if isinstance(other, Traced) else None
        if tracer is None:
            value = max(value, other) if name == "prim::max" else min(value, other)
        else:
            value = tracer.call(name, (value, other))
    return value
