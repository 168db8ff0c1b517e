"""NumPy's functions that choose, sort and look up: where, clip, take, sort, unique, searchsorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.frontend.trace.numpy_calls import Call, records, store
from gpujit.frontend.trace.numpy_shape import sizes_of, unbound
from gpujit.frontend.trace.numpy_ufuncs import compose
from gpujit.frontend.trace.state import Traced


@records(np.where)
def where(call: Call, condition: Any, x: Any = None, y: Any = None, /) -> Any:
    mask = _mask(call, condition)
    if x is None and y is None:
        return call.op("nonzero_numpy", mask)
    return call.op("where", mask, call.tensor(x, call.dtype), call.tensor(y, call.dtype))


def _mask(call: Call, condition: Any) -> Any:
    mask = call.tensor(condition)
    return mask if mask._concrete.dtype == bool else call.op("ne", mask, 0)


@records(np.select)
def select(call: Call, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    found = call.tensor(default, call.dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = call.op("where", _mask(call, condition), call.tensor(choice, call.dtype), found)
    return found


@records(np.choose)
def choose(call: Call, a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    at = call.tensor(a, np.int64)
    options = [call.tensor(c, call.dtype) for c in choices]
    if mode == "clip":
        at = call.op("clamp", at, 0, len(options) - 1)
    elif mode == "wrap":
        at = call.op("remainder", at, len(options))
    found = call.op("broadcast_tensors", [at, *options])[1]
    for i, option in enumerate(options[1:], 1):
        found = call.op("where", call.op("eq", at, i), option, found)
    return found


@records(np.clip)
def clip(
    call: Call, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None,
    dtype: Any = None,
) -> Any:  # fmt: skip
    low, high = a_min if min is None else min, a_max if max is None else max
    x = call.tensor(a)
    if low is None and high is None:
        return call.op("clone", x)
    if all(v is None or type(v) in (int, float) for v in (low, high)):
        return call.op("clamp", call.cast(x, call.dtype), low, high)
    for bound, function in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            x = compose(call, function, [x, bound], {})
    return x


@records(np.take)
def take(call: Call, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    x, at = call.tensor(a), call.tensor(indices, np.int64)
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    d = int(axis) % x._concrete.ndim
    size = x.shape[d]
    if mode == "clip":
        at = call.op("minimum", call.op("clamp_min", at, 0), call.tensor(size - 1))
    elif mode == "wrap":
        at = call.op("remainder", at, size)
    return call.op("index", x, [None] * d + [at])


@records(np.take_along_axis)
def take_along_axis(call: Call, arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, at = call.tensor(arr), call.tensor(indices, np.int64)
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    return call.op("take_along_dim", x, _from_start(call, at, x.shape[int(axis)]), int(axis))


def _from_start(call: Call, at: Any, size: Any) -> Any:
    return call.op("where", call.op("lt", at, 0), call.op("add", at, size), at)


@records(np.put_along_axis, raw=True)
def put_along_axis(call: Call, arr: Any, indices: Any, values: Any, axis: Any) -> None:
    if not isinstance(arr, Traced):
        raise call.refuse("the target is no part of the trace; make it inside the traced function")
    at = call.tensor(indices, np.int64)
    at = _from_start(call, at, arr.shape[int(axis)])  # type: ignore[attr-defined]
    value = call.op("expand_as", call.tensor(values, arr._concrete.dtype), at)
    store(call.tracer, arr, call.op("scatter", arr, int(axis), at, value))
    np.put_along_axis(*call.tracer.concrete([arr, indices, values, axis]))


@records(np.putmask, np.place, raw=True)
def putmask(call: Call, a: Any, mask: Any, values: Any) -> None:
    value = call.tensor(values)
    if value._concrete.size != 1 or not isinstance(a, Traced):
        raise call.refuse("only one value can be put into a traced array; use a subscript")
    value = call.cast(call.op("reshape", value, []), a._concrete.dtype)
    store(call.tracer, a, call.op("where", _mask(call, mask), value, a))
    np.putmask(*call.tracer.concrete([a, mask, values]))


@records(np.compress)
def compress(call: Call, condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    x = call.tensor(a)
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    d = int(axis) % x._concrete.ndim
    mask = _mask(call, condition)
    call.tracer.lost("data-size", "the result of a boolean mask")
    found = call.op("reshape", call.op("nonzero", mask), [-1])
    return call.op("index_select", x, d, found)


@records(np.extract)
def extract(call: Call, condition: Any, arr: Any) -> Any:
    return compress(call, call.op("reshape", _mask(call, condition), [-1]), arr)


@records(np.nonzero)
def nonzero(call: Call, a: Any) -> Any:
    return call.op("nonzero_numpy", call.tensor(a))


@records(np.argwhere)
def argwhere(call: Call, a: Any) -> Any:
    return call.op("nonzero", call.tensor(a))


@records(np.flatnonzero)
def flatnonzero(call: Call, a: Any) -> Any:
    return call.op("reshape", call.op("nonzero", call.op("reshape", call.tensor(a), [-1])), [-1])


# ----------------------------------------------------------------------------------------------------- sorting


def _sortable(call: Call, a: Any, axis: Any) -> tuple[Any, int]:
    x = call.tensor(a)
    if axis is None:
        return call.op("reshape", x, [-1]), 0
    return x, int(axis)


def _is_stable(kind: Any, stable: Any) -> bool:
    return bool(stable) or kind in ("stable", "mergesort")


@records(np.sort)
def sort(call: Call, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, d = _sortable(call, a, axis)
    return call.op("sort", x, dim=d, stable=_is_stable(kind, stable), descending=False)[0]


@records(np.argsort)
def argsort(call: Call, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    # Equal elements keep their order: of NumPy's kinds only the stable ones promise an order.
    x, d = _sortable(call, a, axis)
    return call.op("sort", x, dim=d, stable=True, descending=False)[1]


@records(np.partition)
def partition(call: Call, a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    # Sorted, it is partitioned around every place.
    x, d = _sortable(call, a, axis)
    call.expected = np.sort(call.expected, axis=d)
    return call.op("sort", x, dim=d, stable=False, descending=False)[0]


@records(np.argpartition)
def argpartition(call: Call, a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    x, d = _sortable(call, a, axis)
    call.expected = np.argsort(call.tracer.concrete(x), axis=d, kind="stable")
    return call.op("sort", x, dim=d, stable=True, descending=False)[1]


def tensors_of(call: Call, keys: Any) -> list[Any]:
    """Keys to sort by, given as a list or as the rows of an array."""
    return list(unbound(call, keys)) if isinstance(keys, Traced) else [call.tensor(k) for k in keys]


@records(np.lexsort)
def lexsort(call: Call, keys: Any, axis: Any = -1) -> Any:
    found = None
    rows = tensors_of(call, keys)
    for key in rows:
        ordered = key if found is None else call.op("take_along_dim", key, found, int(axis))
        order = call.op("sort", ordered, dim=int(axis), stable=True, descending=False)[1]
        found = order if found is None else call.op("take_along_dim", found, order, int(axis))
    return found


@records(np.searchsorted)
def searchsorted(call: Call, a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    x, y = call.tensor(a), call.tensor(v)
    dtype = np.result_type(x._concrete.dtype, y._concrete.dtype)
    x, y = call.cast(x, dtype), call.cast(y, dtype)
    order = None if sorter is None else call.tensor(sorter, np.int64)
    return call.op("searchsorted", x, y, right=side == "right", sorter=order)


@records(np.digitize)
def digitize(call: Call, x: Any, bins: Any, right: Any = False) -> Any:
    edges = call.tensor(bins)
    plain = edges._concrete
    if plain.size > 1 and plain[0] > plain[-1]:
        # Falling edges, counted from the other end.
        found = searchsorted(call, call.op("flip", edges, [0]), x, "left" if not right else "right")
        return call.op("rsub", found, edges.shape[0])
    return searchsorted(call, edges, x, "left" if right else "right")


@records(np.unique)
def unique(
    call: Call, ar: Any, return_index: Any = False, return_inverse: Any = False, return_counts: Any = False,
    axis: Any = None, *, equal_nan: Any = True, sorted: Any = True,
) -> Any:  # fmt: skip
    x = call.tensor(ar)
    if axis is not None:
        if return_index:
            raise call.refuse("return_index=True with axis=")
        values, inverse, counts = call.op("unique_dim", x, int(axis), True, True, True)
    else:
        values, inverse, counts = call.op("_unique2", x, True, True, True)
    found = [values]
    if return_index:
        # The first place of each value: where sorting in a stable way puts the first of its kind.
        order = call.op("sort", call.op("reshape", inverse, [-1]), dim=0, stable=True, descending=False)[1]
        starts = call.op("sub", call.op("cumsum", counts, 0), counts)
        found.append(call.op("index_select", order, 0, starts))
    if return_inverse:
        found.append(inverse)
    if return_counts:
        found.append(counts)
    return tuple(found) if len(found) > 1 else values


@records(np.unique_values)
def unique_values(call: Call, x: Any) -> Any:
    if np.__version__ >= "2.3":
        # NumPy gives them in no particular order; sorted is one.
        call.expected = np.sort(call.expected)
    return unique(call, x)


@records(np.unique_counts)
def unique_counts(call: Call, x: Any) -> Any:
    return unique(call, x, return_counts=True)


@records(np.unique_inverse)
def unique_inverse(call: Call, x: Any) -> Any:
    return unique(call, x, return_inverse=True)


@records(np.isin)
def isin(
    call: Call, element: Any, test_elements: Any, assume_unique: Any = False, invert: Any = False, *, kind: Any = None
) -> Any:
    x, y = call.tensor(element), call.tensor(test_elements)
    dtype = np.result_type(x._concrete.dtype, y._concrete.dtype)
    dtype = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    return call.op("isin", call.cast(x, dtype), call.cast(y, dtype), invert=bool(invert))


@records(np.unique_all)
def unique_all(call: Call, x: Any) -> Any:
    return unique(call, x, return_index=True, return_inverse=True, return_counts=True)


@records(np.union1d, raw=True)
def union1d(call: Call, ar1: Any, ar2: Any) -> Any:
    return np.unique(np.concatenate((call.tensor(ar1), call.tensor(ar2)), axis=None))


@records(np.intersect1d, raw=True)
def intersect1d(call: Call, ar1: Any, ar2: Any, assume_unique: Any = False, return_indices: Any = False) -> Any:
    if return_indices:
        raise call.refuse("return_indices=True")
    both = np.concatenate((np.unique(call.tensor(ar1)), np.unique(call.tensor(ar2))))
    values, counts = np.unique(both, return_counts=True)
    return values[counts == 2]


@records(np.setdiff1d, raw=True)
def setdiff1d(call: Call, ar1: Any, ar2: Any, assume_unique: Any = False) -> Any:
    values = np.ravel(call.tensor(ar1)) if assume_unique else np.unique(call.tensor(ar1))
    return values[np.isin(values, call.tensor(ar2), invert=True)]


@records(np.setxor1d, raw=True)
def setxor1d(call: Call, ar1: Any, ar2: Any, assume_unique: Any = False) -> Any:
    both = np.concatenate((np.unique(call.tensor(ar1)), np.unique(call.tensor(ar2))))
    values, counts = np.unique(both, return_counts=True)
    return values[counts == 1]


@records(np.array_equiv, raw=True)
def array_equiv(call: Call, a1: Any, a2: Any) -> Any:
    return call.tracer.call("aten::Bool", (np.all(call.tensor(a1) == call.tensor(a2)),))


@records(np.ix_)
def ix_(call: Call, *args: Any) -> Any:
    found = []
    for d, a in enumerate(args):
        x = call.tensor(a)
        if x._concrete.dtype.kind == "b":
            call.tracer.lost("data-size", "the places of a boolean mask")
            x = call.op("reshape", call.op("nonzero", x), [-1])
        found.append(call.op("reshape", x, [-1 if i == d else 1 for i in range(len(args))]))
    return tuple(found)


@records(np.unravel_index)
def unravel_index(call: Call, indices: Any, shape: Any, order: Any = "C") -> Any:
    at = call.tensor(indices, np.int64)
    found = []
    for size in reversed(sizes_of(shape)):
        found.append(call.op("remainder", at, size))
        at = call.op("floor_divide", at, size)
    return tuple(reversed(found))


@records(np.ravel_multi_index)
def ravel_multi_index(call: Call, multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    found: Any = None
    for index, size in zip(multi_index, sizes_of(dims), strict=True):
        at = call.tensor(index, np.int64)
        found = at if found is None else call.op("add", call.op("mul", found, size), at)
    return found


# ------------------------------------------------------------------------------------------ by element, not ufuncs


@records(np.round, np.around)
def round_(call: Call, a: Any, decimals: Any = 0, out: Any = None) -> Any:
    x = call.tensor(a)
    if x._concrete.dtype.kind in "iub":
        if int(decimals) < 0:
            raise call.refuse("tens and hundreds of integers")
        return call.op("clone", x)
    if int(decimals) == 0:
        return compose(call, np.rint, [x], {})
    factor = 10.0 ** abs(int(decimals))
    there, back = ("mul", "div") if int(decimals) > 0 else ("div", "mul")
    return call.op(back, call.op("round", call.op(there, x, factor)), factor)


@records(np.fix)
def fix(call: Call, x: Any, out: Any = None) -> Any:
    return call.op("trunc", call.tensor(x))


@records(np.nan_to_num)
def nan_to_num(call: Call, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if not copy:
        raise call.refuse("copy=False")
    a = call.tensor(x)
    return call.op("clone", a) if a._concrete.dtype.kind in "iub" else call.op("nan_to_num", a, nan, posinf, neginf)


@records(np.real)
def real(call: Call, val: Any) -> Any:
    x = call.tensor(val)
    return call.op("real", x) if x._concrete.dtype.kind == "c" else x


@records(np.imag)
def imag(call: Call, val: Any) -> Any:
    x = call.tensor(val)
    return call.op("imag", x) if x._concrete.dtype.kind == "c" else call.op("zeros_like", x)


@records(np.angle)
def angle(call: Call, z: Any, deg: Any = False) -> Any:
    x = call.tensor(z)
    x = call.cast(x, np.float64) if x._concrete.dtype.kind in "iub" else x
    found = call.op("angle", x)
    return call.op("rad2deg", found) if deg else found


@records(np.sinc)
def sinc(call: Call, x: Any) -> Any:
    a = call.tensor(x)
    return call.op("sinc", call.cast(a, np.float64) if a._concrete.dtype.kind in "iub" else a)


@records(np.i0)
def i0(call: Call, x: Any) -> Any:
    return call.op("i0", call.tensor(x, call.dtype))


@records(np.isclose)
def isclose(call: Call, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False) -> Any:
    x, y = call.tensor(a), call.tensor(b)
    dtype = np.result_type(x._concrete.dtype, y._concrete.dtype)
    dtype = np.dtype(np.float64) if dtype.kind in "iub" else dtype
    return call.op("isclose", call.cast(x, dtype), call.cast(y, dtype), float(rtol), float(atol), bool(equal_nan))


@records(np.allclose, raw=True)
def allclose(call: Call, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False) -> Any:
    return call.tracer.call("aten::Bool", (np.all(np.isclose(a, b, rtol, atol, equal_nan)),))


@records(np.array_equal, raw=True)
def array_equal(call: Call, a1: Any, a2: Any, equal_nan: Any = False) -> Any:
    a, b = call.tensor(a1), call.tensor(a2)
    dtype = np.result_type(a._concrete.dtype, b._concrete.dtype)
    if equal_nan:
        raise call.refuse("equal_nan=True")
    return call.op("equal", call.cast(a, dtype), call.cast(b, dtype))


@records(np.isneginf)
def isneginf(call: Call, x: Any, out: Any = None) -> Any:
    return call.op("isneginf", call.tensor(x))


@records(np.isposinf)
def isposinf(call: Call, x: Any, out: Any = None) -> Any:
    return call.op("isposinf", call.tensor(x))


@records(np.isreal)
def isreal(call: Call, x: Any) -> Any:
    return call.op("isreal", call.tensor(x))


@records(np.iscomplex)
def iscomplex(call: Call, x: Any) -> Any:
    return call.op("logical_not", call.op("isreal", call.tensor(x)))


@records(np.unwrap)
def unwrap(call: Call, p: Any, discont: Any = None, axis: Any = -1, *, period: Any = 2 * np.pi) -> Any:
    x = call.tensor(p, call.dtype)
    if x._concrete.dtype.kind in "iu" or not isinstance(period, float):
        raise call.refuse("integers")
    d = int(axis)
    steps = call.op("diff", x, 1, d)
    half = period / 2
    moved = call.op("sub", call.op("remainder", call.op("add", steps, half), period), half)
    ends = call.op("logical_and", call.op("eq", moved, -half), call.op("gt", steps, 0))
    moved = call.op("where", ends, call.tensor(half, x._concrete.dtype), moved)
    least = half if discont is None else max(float(discont), half)
    change = call.op("where", call.op("lt", call.op("abs", steps), least), 0.0, call.op("sub", moved, steps))
    first = call.op("slice", x, d, 0, 1, 1)
    rest = call.op("add", call.op("slice", x, d, 1, None, 1), call.op("cumsum", change, d))
    return call.op("cat", [first, rest], d)
