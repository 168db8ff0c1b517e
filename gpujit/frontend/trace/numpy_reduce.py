"""NumPy's reductions and running sums: over any axes, with NumPy's dtypes, ``where=`` and ``initial=``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpujit.frontend.trace.numpy_calls import Call, records, since_numpy
from gpujit.frontend.trace.numpy_shape import axes_of

_UNSET: Any = np._NoValue


def dims_of(x: Any, axis: Any) -> list[int]:
    """The axes to reduce over; all of them for None."""
    return list(range(x._concrete.ndim)) if axis is None else axes_of(axis)


def given(option: Any) -> Any:
    """An option of NumPy's, None when it was left out."""
    return None if option is _UNSET else option


def counted(call: Call, x: Any, axis: Any) -> Any:
    """How many elements are reduced to one: an int of the graph."""
    return math.prod(x.shape[d] for d in dims_of(x, axis))


def masked(call: Call, x: Any, where: Any, neutral: Any) -> Any:
    """``x`` with ``neutral`` where ``where`` is false."""
    if given(where) is None or where is True:
        return x
    return call.op("where", call.tensor(where, bool), x, call.tensor(neutral, x._concrete.dtype))


def total(call: Call, x: Any, axis: Any, keepdims: Any, dtype: Any = None) -> Any:
    """The sum over axes."""
    if not x._concrete.ndim:
        return x if dtype is None else call.cast(x, dtype)
    if x._concrete.dtype.kind == "u" and x._concrete.dtype.itemsize > 1:
        x = call.cast(x, np.int64)
    options = {} if dtype is None or np.dtype(dtype).kind in "bu" else {"dtype": np.dtype(dtype)}
    return call.op("sum", x, dims_of(x, axis), bool(given(keepdims)), **options)


@records(np.sum)
def sum_(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
    initial: Any = _UNSET, where: Any = _UNSET,
) -> Any:  # fmt: skip
    target = call.expected.dtype
    x = masked(call, call.tensor(a), where, 0)
    found = total(call, x, axis, keepdims, target if target.kind != "b" else None)
    return found if given(initial) is None else call.op("add", call.cast(found, target), call.tensor(initial, target))


@records(np.prod)
def prod_(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
    initial: Any = _UNSET, where: Any = _UNSET,
) -> Any:  # fmt: skip
    target = call.expected.dtype
    work = np.dtype(np.int64) if target.kind in "bu" else target
    x = call.cast(masked(call, call.tensor(a), where, 1), work)
    for d in sorted((d % max(x._concrete.ndim, 1) for d in dims_of(x, axis)), reverse=True):
        x = call.op("prod", x, d, bool(given(keepdims)))
    return x if given(initial) is None else call.op("mul", x, call.tensor(initial, work))


def average(call: Call, x: Any, axis: Any, keepdims: Any, where: Any = _UNSET) -> Any:
    """The mean over axes, in the dtype of ``x``."""
    if given(where) is None or where is True:
        return call.op("mean", x, dims_of(x, axis), bool(given(keepdims))) if x._concrete.ndim else x
    mask = call.op("expand_as", call.tensor(where, bool), x)
    count = total(call, call.cast(mask, x._concrete.dtype), axis, keepdims)
    return call.op("div", total(call, masked(call, x, mask, 0), axis, keepdims), count)


def floating(call: Call, x: Any, dtype: Any = None) -> Any:
    """A tensor in the dtype that NumPy averages in."""
    if dtype is not None:
        return call.cast(x, dtype)
    return call.cast(x, np.float64) if x._concrete.dtype.kind in "iub" else x


@records(np.mean)
def mean(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET, *,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    return average(call, floating(call, call.tensor(a), dtype), axis, keepdims, where)


def variance(call: Call, x: Any, axis: Any, ddof: Any, keepdims: Any, where: Any = _UNSET) -> Any:
    """The variance over axes, around the mean, with ``ddof`` subtracted from the count."""
    if (given(where) is None or where is True) and x._concrete.dtype.kind != "c":
        return call.op("var", x, dims_of(x, axis), correction=ddof, keepdim=bool(given(keepdims)))
    apart = call.op("abs", call.op("sub", x, average(call, x, axis, True, where)))
    squares = call.op("square", apart)
    if given(where) is None or where is True:
        count = call.tensor(counted(call, x, axis), squares._concrete.dtype)
    else:
        mask = call.op("expand_as", call.tensor(where, bool), x)
        squares = masked(call, squares, mask, 0)
        count = total(call, call.cast(mask, squares._concrete.dtype), axis, keepdims)
    return call.op("div", total(call, squares, axis, keepdims), call.op("sub", count, ddof))


@records(np.var)
def var(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = _UNSET,
    *, where: Any = _UNSET, mean: Any = _UNSET, correction: Any = _UNSET,
) -> Any:  # fmt: skip
    ddof = ddof if given(correction) is None else correction
    return variance(call, floating(call, call.tensor(a), dtype), axis, ddof, keepdims, where)


@records(np.std)
def std(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = _UNSET,
    *, where: Any = _UNSET, mean: Any = _UNSET, correction: Any = _UNSET,
) -> Any:  # fmt: skip
    return call.op(
        "sqrt", var(call, a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


def extreme(call: Call, name: str, a: Any, axis: Any, keepdims: Any, initial: Any = _UNSET, where: Any = _UNSET) -> Any:
    """The largest or smallest element over axes: ``name`` is amax or amin."""
    x = call.tensor(a)
    dtype = x._concrete.dtype
    start = None if given(initial) is None else call.tensor(initial, dtype)
    if start is not None and given(where) is not None and where is not True:
        x = call.op("where", call.tensor(where, bool), x, start)
    found = call.op(name, x, dims_of(x, axis), bool(given(keepdims)))
    return found if start is None else call.op("maximum" if name == "amax" else "minimum", found, start)


@records(np.max, np.amax)
def max_(
    call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    return extreme(call, "amax", a, axis, keepdims, initial, where)


@records(np.min, np.amin)
def min_(
    call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    return extreme(call, "amin", a, axis, keepdims, initial, where)


@records(np.ptp)
def ptp(call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET) -> Any:
    return call.op("sub", extreme(call, "amax", a, axis, keepdims), extreme(call, "amin", a, axis, keepdims))


def truth(call: Call, name: str, a: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    """Whether ``all`` or ``any`` elements over axes are true."""
    x = call.tensor(a)
    x = x if x._concrete.dtype == bool else call.op("ne", x, 0)
    x = masked(call, x, where, name == "all")
    for d in sorted((d % max(x._concrete.ndim, 1) for d in dims_of(x, axis)), reverse=True):
        x = call.op(name, x, d, bool(given(keepdims)))
    return x


@records(np.all)
def all_(call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, *, where: Any = _UNSET) -> Any:
    return truth(call, "all", a, axis, keepdims, where)


@records(np.any)
def any_(call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, *, where: Any = _UNSET) -> Any:
    return truth(call, "any", a, axis, keepdims, where)


@records(np.count_nonzero, raw=True)
def count_nonzero(call: Call, a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    # Without an axis NumPy answers with Python's int.
    found = total(call, call.op("ne", call.tensor(a), 0), axis, keepdims, np.int64)
    return call.tracer.call("aten::Int", (found,)) if axis is None and not keepdims else found


def _arg(call: Call, name: str, a: Any, axis: Any, keepdims: Any) -> Any:
    x = call.tensor(a)
    x = call.cast(x, np.uint8) if x._concrete.dtype == bool else x
    if axis is None:
        found = call.op(name, call.op("reshape", x, [-1]), 0)
        return call.op("reshape", found, [1] * x._concrete.ndim) if given(keepdims) else found
    return call.op(name, x, int(axis), bool(given(keepdims)))


@records(np.argmax)
def argmax(call: Call, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _UNSET) -> Any:
    return _arg(call, "argmax", a, axis, keepdims)


@records(np.argmin)
def argmin(call: Call, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _UNSET) -> Any:
    return _arg(call, "argmin", a, axis, keepdims)


def _running(call: Call, name: str, a: Any, axis: Any) -> Any:
    x = call.tensor(a)
    target = call.expected.dtype
    if axis is None:
        x, axis = call.op("reshape", x, [-1]), 0
    work = np.dtype(np.int64) if target.kind in "bu" else target
    return call.op(name, call.cast(x, work), int(axis))


@records(np.cumsum)
def cumsum(call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _running(call, "cumsum", a, axis)


@records(np.cumprod)
def cumprod(call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _running(call, "cumprod", a, axis)


def _cumulative(call: Call, name: str, x: Any, axis: Any, include_initial: Any) -> Any:
    found = _running(call, name, x, 0 if axis is None else axis)
    if not include_initial:
        return found
    d = 0 if axis is None else int(axis)
    first = call.op("slice", call.op("zeros_like" if name == "cumsum" else "ones_like", found), d, 0, 1, 1)
    return call.op("cat", [first, found], d)


@records(*since_numpy("cumulative_sum"))
def cumulative_sum(
    call: Call, x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    return _cumulative(call, "cumsum", x, axis, include_initial)


@records(*since_numpy("cumulative_prod"))
def cumulative_prod(
    call: Call, x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    return _cumulative(call, "cumprod", x, axis, include_initial)


@records(np.nancumsum)
def nancumsum(call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _running(call, "cumsum", without_nan(call, call.tensor(a), 0), axis)


@records(np.nancumprod)
def nancumprod(call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _running(call, "cumprod", without_nan(call, call.tensor(a), 1), axis)


# ------------------------------------------------------------------------------------------------ without NaN


def present(call: Call, x: Any) -> Any:
    """Where elements are numbers."""
    return call.op("eq", x, x)


def without_nan(call: Call, x: Any, neutral: Any) -> Any:
    """``x`` with ``neutral`` in the place of NaN."""
    if x._concrete.dtype.kind not in "fc":
        return x
    return call.op("where", present(call, x), x, call.tensor(neutral, x._concrete.dtype))


@records(np.nansum)
def nansum(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
    initial: Any = _UNSET, where: Any = _UNSET,
) -> Any:  # fmt: skip
    return sum_(call, without_nan(call, call.tensor(a), 0), axis, dtype, None, keepdims, initial, where)


@records(np.nanprod)
def nanprod(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET,
    initial: Any = _UNSET, where: Any = _UNSET,
) -> Any:  # fmt: skip
    return prod_(call, without_nan(call, call.tensor(a), 1), axis, dtype, None, keepdims, initial, where)


@records(np.nanmean)
def nanmean(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _UNSET, *,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    x = floating(call, call.tensor(a), dtype)
    return average(call, x, axis, keepdims, _both(call, present(call, x), where))


def _both(call: Call, mask: Any, where: Any) -> Any:
    return mask if given(where) is None or where is True else call.op("logical_and", mask, call.tensor(where, bool))


@records(np.nanvar)
def nanvar(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = _UNSET,
    *, where: Any = _UNSET, mean: Any = _UNSET, correction: Any = _UNSET,
) -> Any:  # fmt: skip
    x = floating(call, call.tensor(a), dtype)
    ddof = ddof if given(correction) is None else correction
    return variance(call, x, axis, ddof, keepdims, _both(call, present(call, x), where))


@records(np.nanstd)
def nanstd(
    call: Call, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = _UNSET,
    *, where: Any = _UNSET, mean: Any = _UNSET, correction: Any = _UNSET,
) -> Any:  # fmt: skip
    return call.op("sqrt", nanvar(call, a, axis, dtype, None, ddof, keepdims, where=where, correction=correction))


def _nan_extreme(call: Call, name: str, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    x = call.tensor(a)
    if x._concrete.dtype.kind != "f":
        return extreme(call, name, x, axis, keepdims, initial, where)
    mask = _both(call, present(call, x), where)
    limit = call.tensor(-np.inf if name == "amax" else np.inf, x._concrete.dtype)
    found = extreme(call, name, call.op("where", mask, x, limit), axis, keepdims)
    if given(initial) is not None:
        start = call.tensor(initial, x._concrete.dtype)
        return call.op("maximum" if name == "amax" else "minimum", found, start)
    # Where there is no number at all NumPy answers NaN.
    some = truth(call, "any", mask, axis, keepdims, _UNSET)
    return call.op("where", some, found, call.tensor(np.nan, x._concrete.dtype))


@records(np.nanmax)
def nanmax(
    call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    return _nan_extreme(call, "amax", a, axis, keepdims, initial, where)


@records(np.nanmin)
def nanmin(
    call: Call, a: Any, axis: Any = None, out: Any = None, keepdims: Any = _UNSET, initial: Any = _UNSET,
    where: Any = _UNSET,
) -> Any:  # fmt: skip
    return _nan_extreme(call, "amin", a, axis, keepdims, initial, where)


@records(np.nanargmax)
def nanargmax(call: Call, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _UNSET) -> Any:
    return _arg(call, "argmax", without_nan(call, call.tensor(a), -np.inf), axis, keepdims)


@records(np.nanargmin)
def nanargmin(call: Call, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _UNSET) -> Any:
    return _arg(call, "argmin", without_nan(call, call.tensor(a), np.inf), axis, keepdims)
