"""NumPy's functions that arrange elements: reshape, transpose, join, split, repeat, pad, roll."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.frontend.trace.numbers import TracedNumber
from gpujit.frontend.trace.numpy_calls import Call, records, since_numpy, store
from gpujit.frontend.trace.state import Traced, holds_traced

_DEFAULT: Any = np._NoValue


def sizes_of(shape: Any) -> list[Any]:
    """A shape argument, an int or a sequence of them, as a list."""
    items = list(shape) if isinstance(shape, (tuple, list, np.ndarray)) else [shape]
    return [_size(s) for s in items]


def _size(item: Any) -> Any:
    """One size; that of an array's element is read by the graph."""
    if isinstance(item, Traced):
        return item if isinstance(item, TracedNumber) else item._tracer.call("aten::Int", (item,))
    return int(item)


def axes_of(axis: Any) -> list[int]:
    """An axis argument as a list of Python's ints."""
    return [int(a) for a in axis] if isinstance(axis, (tuple, list)) else [int(axis)]


def tensors(call: Call, arrays: Any, dtype: Any = None) -> list[Any]:
    """Arrays of one dtype, the one they promote to unless it is given."""
    if isinstance(arrays, Traced):
        arrays = list(unbound(call, arrays))
    found = [call.tensor(a) for a in arrays]
    dtype = np.result_type(*(f._concrete.dtype for f in found)) if dtype is None else dtype
    return [call.cast(f, dtype) for f in found]


def unbound(call: Call, x: Any) -> Sequence[Any]:
    """The rows of a traced array."""
    call.tracer.lost("loop", f"{call.name} took the rows of an array")
    return [call.op("select", x, 0, i) for i in range(x._concrete.shape[0])]


def check_order(call: Call, order: Any) -> None:
    """Refuse Fortran's order of elements."""
    if order not in ("C", "K", "A", None):
        raise call.refuse(f"order={order!r}; transpose before and after")


@records(np.reshape)
def reshape(
    call: Call, a: Any, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    check_order(call, order)
    return call.op("reshape", call.tensor(a), sizes_of(newshape if shape is None else shape))


@records(np.ravel)
def ravel(call: Call, a: Any, order: Any = "C") -> Any:
    check_order(call, order)
    return call.op("reshape", call.tensor(a), [-1])


@records(np.copy)
def copy(call: Call, a: Any, order: Any = "K", subok: Any = False) -> Any:
    return call.op("clone", call.tensor(a))


@records(*since_numpy("astype"))
def astype(call: Call, x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    return call.cast(x, call.dtype)


@records(np.transpose, *([np.permute_dims] if np.permute_dims is not np.transpose else []))
def transpose(call: Call, a: Any, axes: Any = None) -> Any:
    a = call.tensor(a)
    dims = list(reversed(range(a._concrete.ndim))) if axes is None else axes_of(axes)
    return call.op("permute", a, dims) if dims else a


@records(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(call: Call, x: Any, /) -> Any:
    return call.op("transpose", call.tensor(x), -2, -1)


@records(np.swapaxes)
def swapaxes(call: Call, a: Any, axis1: Any, axis2: Any) -> Any:
    return call.op("transpose", call.tensor(a), int(axis1), int(axis2))


@records(np.moveaxis)
def moveaxis(call: Call, a: Any, source: Any, destination: Any) -> Any:
    return call.op("movedim", call.tensor(a), axes_of(source), axes_of(destination))


@records(np.rollaxis)
def rollaxis(call: Call, a: Any, axis: Any, start: Any = 0) -> Any:
    n = a._concrete.ndim
    axis, start = int(axis) % n, int(start) + (n if start < 0 else 0)
    return call.op("movedim", call.tensor(a), [axis], [start - (axis < start)])


@records(np.expand_dims)
def expand_dims(call: Call, a: Any, axis: Any) -> Any:
    a = call.tensor(a)
    axes = axes_of(axis)
    for d in sorted(d % (a._concrete.ndim + len(axes)) for d in axes):
        a = call.op("unsqueeze", a, d)
    return a


@records(np.squeeze)
def squeeze(call: Call, a: Any, axis: Any = None) -> Any:
    a = call.tensor(a)
    if axis is None:
        return call.op("squeeze", a)
    dims = sorted((d % max(a._concrete.ndim, 1) for d in axes_of(axis)), reverse=True)
    for d in dims:
        a = call.op("squeeze", a, d)
    return a


@records(np.broadcast_to)
def broadcast_to(call: Call, array: Any, shape: Any, subok: Any = False) -> Any:
    return call.op("expand", call.tensor(array), sizes_of(shape))


@records(np.broadcast_arrays)
def broadcast_arrays(call: Call, *args: Any, subok: Any = False) -> Any:
    return call.op("broadcast_tensors", [call.tensor(a) for a in args])


@records(np.atleast_1d)
def atleast_1d(call: Call, *arys: Any) -> Any:
    found = [_padded(call, call.tensor(a), 1) for a in arys]
    return found if len(found) > 1 else found[0]


@records(np.atleast_2d)
def atleast_2d(call: Call, *arys: Any) -> Any:
    found = [_padded(call, call.tensor(a), 2) for a in arys]
    return found if len(found) > 1 else found[0]


@records(np.atleast_3d)
def atleast_3d(call: Call, *arys: Any) -> Any:
    found = []
    for a in arys:
        x = _padded(call, call.tensor(a), 2)
        found.append(call.op("unsqueeze", x, -1) if x._concrete.ndim == 2 else x)
    return found if len(found) > 1 else found[0]


def _padded(call: Call, x: Any, ndim: int) -> Any:
    while x._concrete.ndim < ndim:
        x = call.op("unsqueeze", x, 0)
    return x


@records(np.concatenate)
def concatenate(
    call: Call, arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = ""
) -> Any:
    parts = tensors(call, arrays, call.dtype)
    if axis is None:
        return call.op("cat", [call.op("reshape", p, [-1]) for p in parts], 0)
    return call.op("cat", parts, int(axis))


@records(np.stack)
def stack(call: Call, arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "") -> Any:
    return call.op("stack", tensors(call, arrays, call.dtype), int(axis))


@records(np.vstack)
def vstack(call: Call, tup: Any, *, dtype: Any = None, casting: Any = "") -> Any:
    return call.op("cat", [_padded(call, p, 2) for p in tensors(call, tup, call.dtype)], 0)


@records(np.hstack)
def hstack(call: Call, tup: Any, *, dtype: Any = None, casting: Any = "") -> Any:
    parts = [_padded(call, p, 1) for p in tensors(call, tup, call.dtype)]
    return call.op("cat", parts, 0 if parts[0]._concrete.ndim == 1 else 1)


@records(np.dstack)
def dstack(call: Call, tup: Any) -> Any:
    parts = [_padded(call, p, 2) for p in tensors(call, tup, call.dtype)]
    return call.op("cat", [call.op("unsqueeze", p, 2) if p._concrete.ndim == 2 else p for p in parts], 2)


@records(np.column_stack)
def column_stack(call: Call, tup: Any) -> Any:
    parts = tensors(call, tup, call.dtype)
    return call.op("cat", [call.op("unsqueeze", p, 1) if p._concrete.ndim < 2 else p for p in parts], 1)


@records(np.block)
def block(call: Call, arrays: Any) -> Any:
    depth = _depth(arrays)
    ndim = max(depth, call.expected.ndim)

    def joined(item: Any, level: int) -> Any:
        if not isinstance(item, list):
            return _padded(call, call.tensor(item, call.dtype), ndim)
        return call.op("cat", [joined(v, level + 1) for v in item], ndim - depth + level)

    return joined(arrays, 0)


def _depth(item: Any) -> int:
    return 1 + max(map(_depth, item)) if isinstance(item, list) else 0


@records(np.append)
def append(call: Call, arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate(call, [arr, values], axis)


@records(*since_numpy("unstack"))
def unstack(call: Call, x: Any, /, *, axis: Any = 0) -> Any:
    x = call.tensor(x)
    call.tracer.lost("loop", f"{call.name} took the slices of an array")
    return tuple(call.op("select", x, int(axis), i) for i in range(x._concrete.shape[int(axis)]))


@records(np.split, np.array_split)
def split(call: Call, ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    return _split(call, call.tensor(ary), indices_or_sections, int(axis))


@records(np.vsplit)
def vsplit(call: Call, ary: Any, indices_or_sections: Any) -> Any:
    return _split(call, call.tensor(ary), indices_or_sections, 0)


@records(np.hsplit)
def hsplit(call: Call, ary: Any, indices_or_sections: Any) -> Any:
    return _split(call, call.tensor(ary), indices_or_sections, 0 if ary.ndim == 1 else 1)


@records(np.dsplit)
def dsplit(call: Call, ary: Any, indices_or_sections: Any) -> Any:
    return _split(call, call.tensor(ary), indices_or_sections, 2)


def _split(call: Call, x: Any, sections: Any, dim: int) -> list[Any]:
    if not isinstance(sections, (list, tuple, np.ndarray)):
        pieces = sections if isinstance(sections, Traced) else int(sections)
        found = call.op("tensor_split", x, pieces, dim)
        return list(found)
    bounds = [b if isinstance(b, Traced) else int(b) for b in sections]
    starts, ends = [0, *bounds], [*bounds, None]
    return [call.op("slice", x, dim, s, e, 1) for s, e in zip(starts, ends, strict=True)]


@records(np.tile)
def tile(call: Call, A: Any, reps: Any) -> Any:
    return call.op("tile", call.tensor(A), sizes_of(reps))


@records(np.repeat)
def repeat(call: Call, a: Any, repeats: Any, axis: Any = None) -> Any:
    a = call.tensor(a)
    if axis is None:
        a, axis = call.op("reshape", a, [-1]), 0
    if isinstance(repeats, (list, tuple, np.ndarray)) or (
        isinstance(repeats, Traced) and not isinstance(repeats, TracedNumber)
    ):
        repeats = call.tensor(repeats, np.int64)
        if repeats._concrete.size == 1:
            repeats = call.op("expand", call.op("reshape", repeats, [1]), [a.shape[int(axis)]])
    elif not isinstance(repeats, Traced):
        repeats = int(repeats)
    return call.op("repeat_interleave", a, repeats, int(axis))


@records(np.flip)
def flip(call: Call, m: Any, axis: Any = None) -> Any:
    m = call.tensor(m)
    return call.op("flip", m, list(range(m._concrete.ndim)) if axis is None else axes_of(axis))


@records(np.fliplr)
def fliplr(call: Call, m: Any) -> Any:
    return call.op("flip", call.tensor(m), [1])


@records(np.flipud)
def flipud(call: Call, m: Any) -> Any:
    return call.op("flip", call.tensor(m), [0])


@records(np.rot90)
def rot90(call: Call, m: Any, k: Any = 1, axes: Any = (0, 1)) -> Any:
    return call.op("rot90", call.tensor(m), int(k), axes_of(axes))


@records(np.roll)
def roll(call: Call, a: Any, shift: Any, axis: Any = None) -> Any:
    a = call.tensor(a)
    shifts = sizes_of(shift)
    if axis is None:
        return call.op("roll", a, [sum(shifts[1:], shifts[0])], [])
    axes = axes_of(axis)
    count = max(len(shifts), len(axes))
    shifts, axes = (v * count if len(v) == 1 else v for v in (shifts, axes))
    for s, d in zip(shifts, axes, strict=True):
        a = call.op("roll", a, [s], [d])
    return a


@records(np.pad)
def pad(call: Call, array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = call.tensor(array)
    widths = _widths(call, pad_width, x._concrete.ndim)
    if mode == "constant":
        values = kwargs.get("constant_values", 0)
        flat: list[Any] = [w for pair in reversed(widths) for w in pair]
        if not isinstance(values, (list, tuple, np.ndarray, Traced)):
            number = np.asarray(values).astype(x._concrete.dtype).item()
            return call.op("constant_pad_nd", x, flat, number)
        raise call.refuse("constant_values that differ by side")
    if mode not in ("edge", "reflect", "symmetric", "wrap") or kwargs:
        raise call.refuse(f"mode={mode!r} with {sorted(kwargs)}; constant, edge, reflect, symmetric and wrap can")
    for d, (before, after) in enumerate(widths):
        if call.tracer.concrete(before) or call.tracer.concrete(after):
            x = call.op("index_select", x, d, _sources(call, x, d, before, after, mode))
    return x


def _sources(call: Call, x: Any, dim: int, before: Any, after: Any, mode: str) -> Any:
    """For each place along a padded axis, where its element comes from."""
    size = x.shape[dim]
    at = call.op("arange", 0 - before, size + after)
    if mode == "edge":
        return call.op("minimum", call.op("clamp_min", at, 0), call.tensor(size - 1))
    if mode == "wrap":
        return call.op("remainder", at, size)
    if mode == "symmetric":
        turn = call.op("remainder", at, size * 2)
        return call.op("minimum", turn, call.op("rsub", turn, size * 2 - 1))
    period = size * 2 - 2
    if call.tracer.concrete(period) == 0:
        return call.op("mul", at, 0)
    turn = call.op("remainder", at, period)
    return call.op("minimum", turn, call.op("rsub", turn, period))


def _widths(call: Call, given: Any, ndim: int) -> list[list[Any]]:
    """How much is added before and after each axis."""
    if isinstance(given, dict):
        pairs = [[0, 0] for _ in range(ndim)]
        for d, w in given.items():
            pairs[d] = list(w) if isinstance(w, (tuple, list)) else [w, w]
        return pairs
    if not holds_traced(given):
        return [[int(a), int(b)] for a, b in np.broadcast_to(np.asarray(given), (ndim, 2))]
    if isinstance(given, Traced):
        return [[given, given]] * ndim
    items = list(given)
    if not any(isinstance(i, (tuple, list)) for i in items):
        return [items * 2 if len(items) == 1 else items] * ndim
    pairs = [list(i) if isinstance(i, (tuple, list)) else [i, i] for i in items]
    return pairs * ndim if len(pairs) == 1 else pairs


@records(np.resize)
def resize(call: Call, a: Any, new_shape: Any) -> Any:
    flat = call.op("reshape", call.tensor(a), [-1])
    sizes = sizes_of(new_shape)
    at = call.op("remainder", call.op("arange", math.prod(sizes)), flat.shape[0])
    return call.op("reshape", call.op("index_select", flat, 0, at), sizes)


@records(np.insert)
def insert(call: Call, arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = call.tensor(arr)
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    if not isinstance(obj, (int, np.integer)) or isinstance(obj, bool):
        raise call.refuse("more than one place at a time")
    d = int(axis) % x._concrete.ndim
    value = call.tensor(values, x._concrete.dtype)
    value = _padded(call, value, x._concrete.ndim - 1)
    if value._concrete.ndim < x._concrete.ndim:
        value = call.op("unsqueeze", value, d) if x._concrete.ndim > 1 else call.op("reshape", value, [-1])
    elif x._concrete.ndim > 1:
        # NumPy lays the values' first axis along the one that grows.
        value = call.op("movedim", value, [0], [d])
    sizes = list(x.shape)
    sizes[d] = value.shape[d]
    value = call.op("expand", value, sizes)
    place = int(obj)
    head, tail = call.op("slice", x, d, 0, place, 1), call.op("slice", x, d, place, None, 1)
    return call.op("cat", [head, value, tail], d)


@records(np.delete)
def delete(call: Call, arr: Any, obj: Any, axis: Any = None) -> Any:
    x = call.tensor(arr)
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    if not isinstance(obj, (int, np.integer)) or isinstance(obj, bool):
        raise call.refuse("more than one place at a time; use a subscript")
    d, place = int(axis), int(obj)
    tail = call.op("slice", x, d, place + 1, None, 1) if place != -1 else None
    head = call.op("slice", x, d, 0, place, 1)
    return head if tail is None else call.op("cat", [head, tail], d)


@records(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    call: Call, x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Any:
    x = call.tensor(x)
    windows = [int(w) for w in sizes_of(window_shape)]
    axes = list(range(x._concrete.ndim)) if axis is None else axes_of(axis)
    for d, w in zip([a % x._concrete.ndim for a in axes], windows, strict=True):
        x = call.op("unfold", x, d, w, 1)
    return x


@records(np.meshgrid)
def meshgrid(call: Call, *xi: Any, copy: Any = True, sparse: Any = False, indexing: Any = "xy") -> Any:
    vectors = [call.op("reshape", call.tensor(v), [-1]) for v in xi]
    n = len(vectors)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[:2] = [1, 0]
    shaped = []
    for i, v in enumerate(vectors):
        shape: list[Any] = [1] * n
        shape[order.index(i)] = -1
        shaped.append(call.op("reshape", v, shape))
    if not sparse:
        sizes = [vectors[i].shape[0] for i in order]
        shaped = [call.op("expand", s, sizes) for s in shaped]
    return [call.op("clone", s) for s in shaped] if copy else shaped


# ---------------------------------------------------------------------------------------------- answers


@records(np.shape, raw=True)
def shape(call: Call, a: Any) -> Any:
    return a.shape


@records(np.ndim, raw=True)
def ndim(call: Call, a: Any) -> int:
    return int(a.ndim)


@records(np.size, raw=True)
def size(call: Call, a: Any, axis: Any = None) -> Any:
    return a.size if axis is None else a.shape[axis]


@records(np.iscomplexobj, raw=True)
def iscomplexobj(call: Call, x: Any) -> bool:
    return bool(x.dtype.kind == "c")


@records(np.isrealobj, raw=True)
def isrealobj(call: Call, x: Any) -> bool:
    return bool(x.dtype.kind != "c")


@records(np.result_type, raw=True)
def result_type(call: Call, *arrays_and_dtypes: Any) -> Any:
    return np.result_type(*call.tracer.concrete(arrays_and_dtypes))


@records(np.can_cast, raw=True)
def can_cast(call: Call, from_: Any, to: Any, casting: Any = "safe") -> bool:
    return bool(np.can_cast(call.tracer.concrete(from_), to, casting))


@records(np.min_scalar_type, raw=True)
def min_scalar_type(call: Call, a: Any) -> Any:
    return np.min_scalar_type(call.tracer.concrete(a))


@records(np.shares_memory, np.may_share_memory, raw=True)
def shares_memory(call: Call, a: Any, b: Any, max_work: Any = None) -> bool:
    return bool(np.may_share_memory(*call.tracer.concrete([a, b])))


@records(np.copyto, raw=True)
def copyto(call: Call, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Traced):
        raise call.refuse("the target is no part of the trace; make it inside the traced function")
    value = call.tensor(src, dst._concrete.dtype)
    if where is not True:
        value = call.op("where", call.tensor(where), value, dst)
    store(call.tracer, dst, value)
    plain, given = call.tracer.concrete([dst, src])
    np.copyto(plain, given, casting=casting, where=call.tracer.concrete(where))
