"""NumPy's statistics and signals: medians, quantiles, histograms, differences, interpolation, convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.frontend.trace.numpy_calls import Call, records
from gpujit.frontend.trace.numpy_linalg import pair
from gpujit.frontend.trace.numpy_reduce import _UNSET, dims_of, floating, given, total
from gpujit.frontend.trace.numpy_search import searchsorted
from gpujit.frontend.trace.numpy_shape import axes_of
from gpujit.frontend.trace.state import Traced


def _rows(call: Call, x: Any, axis: Any) -> tuple[Any, list[int]]:
    """``x`` with the axes to reduce as its last one."""
    n = x._concrete.ndim
    dims = sorted(d % max(n, 1) for d in dims_of(x, axis))
    if not n:
        return call.op("reshape", x, [1]), []
    rest = [d for d in range(n) if d not in dims]
    moved = call.op("permute", x, [*rest, *dims])
    return call.op("flatten", moved, len(rest), -1), dims


def _kept(call: Call, found: Any, dims: list[int], keepdims: Any, lead: int = 0) -> Any:
    for d in dims if given(keepdims) else ():
        found = call.op("unsqueeze", found, d + lead)
    return found


def _quantiles(call: Call, a: Any, q: Any, axis: Any, keepdims: Any, method: Any, *, skips_nan: bool) -> Any:
    x = floating(call, call.tensor(a))
    work = x._concrete.dtype if x._concrete.dtype.itemsize > 2 else np.dtype(np.float32)
    x = call.cast(x, work)
    points = call.tensor(q, work)
    if method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise call.refuse(f"method={method!r}; linear, lower, higher, midpoint and nearest can")
    rows, dims = _rows(call, x, axis)
    flat = call.op("reshape", points, [-1])
    name = "nanquantile" if skips_nan else "quantile"
    found = call.op(name, rows, flat, -1, False, interpolation=str(method))
    # One axis of points becomes those of q.
    shape = list(points.shape)
    found = call.op("unflatten", found, 0, shape) if shape else call.op("squeeze", found, 0)
    return _kept(call, found, dims, keepdims, len(shape))


@records(np.quantile)
def quantile(
    call: Call, a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, method: Any = "linear",
    keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    return _quantiles(call, a, q, axis, keepdims, method, skips_nan=False)


@records(np.percentile)
def percentile(
    call: Call, a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, method: Any = "linear",
    keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    return _quantiles(
        call, a, call.op("div", call.tensor(q, np.float64), 100.0), axis, keepdims, method, skips_nan=False
    )


@records(np.nanquantile)
def nanquantile(
    call: Call, a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, method: Any = "linear",
    keepdims: Any = _UNSET, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    return _quantiles(call, a, q, axis, keepdims, method, skips_nan=True)


@records(np.nanpercentile)
def nanpercentile(
    call: Call, a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, method: Any = "linear",
    keepdims: Any = _UNSET, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    return _quantiles(
        call, a, call.op("div", call.tensor(q, np.float64), 100.0), axis, keepdims, method, skips_nan=True
    )


@records(np.median)
def median(
    call: Call, a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = False
) -> Any:
    return _quantiles(call, a, 0.5, axis, keepdims, "midpoint", skips_nan=False)


@records(np.nanmedian)
def nanmedian(
    call: Call, a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = _UNSET
) -> Any:
    return _quantiles(call, a, 0.5, axis, keepdims, "midpoint", skips_nan=True)


@records(np.average)
def average(
    call: Call, a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = _UNSET
) -> Any:
    x = floating(call, call.tensor(a))
    if weights is None:
        found = call.op("mean", x, dims_of(x, axis), bool(given(keepdims)))
        if not returned:
            return found
        count = total(call, call.op("ones_like", x), axis, keepdims)
        return found, count
    w = call.tensor(weights)
    dtype = call.dtype
    if w._concrete.ndim != x._concrete.ndim and axis is not None:
        shape = [1] * x._concrete.ndim
        for d, s in zip(axes_of(axis), w.shape, strict=True):
            shape[d] = s
        w = call.op("reshape", w, shape)
    x, w = call.cast(x, dtype), call.op("expand_as", call.cast(w, dtype), x)
    scale = total(call, w, axis, keepdims)
    found = call.op("div", total(call, call.op("mul", x, w), axis, keepdims), scale)
    return (found, scale) if returned else found


@records(np.cov)
def cov(
    call: Call, m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    if y is not None:
        raise call.refuse("y=; stack it below m")
    x = call.tensor(m, call.expected.dtype)
    if not rowvar and x._concrete.ndim == 2:
        x = call.op("transpose", x, 0, 1)
    correction = (0 if bias else 1) if ddof is None else int(ddof)
    counts = None if fweights is None else call.tensor(fweights, np.int64)
    weights = None if aweights is None else call.tensor(aweights, np.float64)
    return call.op("cov", x, correction=correction, fweights=counts, aweights=weights)


@records(np.corrcoef)
def corrcoef(call: Call, x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    if y is not None:
        a, b = pair(call, x, y)
        rows = [call.op("atleast_2d", v) for v in (a, b)]
        found = call.op("cat", rows, 0)
    else:
        found = call.tensor(x)
    found = call.cast(found, call.expected.dtype)
    return call.op("corrcoef", found if rowvar else call.op("transpose", found, 0, 1))


# ------------------------------------------------------------------------------------------------- counting


@records(np.bincount)
def bincount(call: Call, x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    w = None if weights is None else call.tensor(weights, np.float64)
    return call.op("bincount", call.tensor(x, np.int64), w, minlength)


@records(np.histogram)
def histogram(call: Call, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    x = call.op("reshape", call.tensor(a), [-1])
    edges = histogram_bin_edges(call, x, bins, range)
    return _counted(call, x, edges, density, weights), edges


def _counted(call: Call, x: Any, edges: Any, density: Any, weights: Any) -> Any:
    dtype = np.result_type(x._concrete.dtype, edges._concrete.dtype)
    x = call.cast(x, dtype)
    edges = call.cast(edges, dtype)
    count = edges.shape[0] - 1
    last = call.op("select", edges, 0, -1)
    place = call.op("sub", searchsorted(call, edges, x, "right"), 1)
    # The last bin is closed on both sides.
    place = call.op("where", call.op("eq", x, last), call.tensor(count - 1), place)
    outside = call.op("logical_or", call.op("lt", place, 0), call.op("ge", place, count))
    outside = call.op("logical_or", outside, call.op("ne", x, x)) if dtype.kind == "f" else outside
    # One bin more takes what lies outside.
    place = call.op("where", outside, call.tensor(count), place)
    w = None if weights is None else call.op("reshape", call.tensor(weights, np.float64), [-1])
    found = call.op("slice", call.op("bincount", place, w, count + 1), 0, 0, count, 1)
    if density:
        widths = call.op("diff", edges)
        found = call.cast(found, np.float64)
        found = call.op("div", call.op("div", found, call.cast(widths, np.float64)), call.op("sum", found))
    return found


@records(np.histogram_bin_edges)
def histogram_bin_edges(call: Call, a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    if isinstance(bins, str):
        raise call.refuse(f"bins={bins!r}; give a number or the edges")
    if not isinstance(bins, (int, np.integer)):
        return call.tensor(bins)
    x = call.op("reshape", call.tensor(a), [-1])
    if range is None:
        low, high = (call.cast(call.op(name, x, [0]), np.float64) for name in ("amin", "amax"))
        equal = call.op("eq", low, high)
        low = call.op("where", equal, call.op("sub", low, 0.5), low)
        high = call.op("where", equal, call.op("add", high, 0.5), high)
    else:
        low, high = (call.tensor(v, np.float64) for v in range)
    count = int(bins)
    at = call.op("arange", count, dtype=np.float64)
    step = call.op("div", call.op("sub", high, low), count)
    inner = call.op("add", call.op("mul", at, step), low)
    return call.op("cat", [inner, call.op("reshape", high, [1])], 0)


# --------------------------------------------------------------------------------------- differences and signals


@records(np.diff)
def diff(call: Call, a: Any, n: Any = 1, axis: Any = -1, prepend: Any = _UNSET, append: Any = _UNSET) -> Any:
    x = call.tensor(a)
    d = int(axis)
    ends: list[Any] = []
    for end in (prepend, append):
        if given(end) is None:
            ends.append(None)
            continue
        y = call.tensor(end, x._concrete.dtype)
        if not y._concrete.ndim:
            sizes = list(x.shape)
            sizes[d] = 1
            y = call.op("expand", y, sizes)
        ends.append(y)
    return call.op("diff", x, int(n), d, *ends)


@records(np.ediff1d)
def ediff1d(call: Call, ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = call.op("reshape", call.tensor(ary), [-1])
    parts = [call.op("diff", x)]
    if to_begin is not None:
        parts.insert(0, call.op("reshape", call.tensor(to_begin, x._concrete.dtype), [-1]))
    if to_end is not None:
        parts.append(call.op("reshape", call.tensor(to_end, x._concrete.dtype), [-1]))
    return call.op("cat", parts, 0)


@records(np.gradient)
def gradient(call: Call, f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    x = floating(call, call.tensor(f))
    dims = dims_of(x, axis)
    if int(edge_order) != 1 or any(isinstance(v, (Traced, np.ndarray, list)) for v in varargs):
        raise call.refuse("edge_order=2 and uneven steps")
    steps = [float(v) for v in varargs] or [1.0]
    steps = steps * len(dims) if len(steps) == 1 else steps
    found = []
    for d, h in zip(dims, steps, strict=True):
        inner = call.op("sub", call.op("slice", x, d, 2, None, 1), call.op("slice", x, d, 0, -2, 1))
        first = call.op("sub", call.op("slice", x, d, 1, 2, 1), call.op("slice", x, d, 0, 1, 1))
        last = call.op("sub", call.op("slice", x, d, -1, None, 1), call.op("slice", x, d, -2, -1, 1))
        parts = [call.op("div", first, h), call.op("div", inner, 2.0 * h), call.op("div", last, h)]
        found.append(call.op("cat", parts, d))
    return found[0] if len(found) == 1 else tuple(found)


@records(np.trapezoid)
def trapezoid(call: Call, y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    a = floating(call, call.tensor(y))
    if x is None:
        return call.op("trapezoid", a, dx=dx, dim=int(axis))
    return call.op("trapezoid", *pair(call, a, x), dim=int(axis))


@records(np.convolve)
def convolve(call: Call, a: Any, v: Any, mode: Any = "full") -> Any:
    x, kernel = pair(call, a, v)
    if x._concrete.size < kernel._concrete.size:
        x, kernel = kernel, x
    return _slid(call, x, call.op("flip", kernel, [0]), mode)


@records(np.correlate)
def correlate(call: Call, a: Any, v: Any, mode: Any = "valid") -> Any:
    x, kernel = pair(call, a, v)
    if kernel._concrete.dtype.kind == "c":
        raise call.refuse("complex numbers")
    if x._concrete.size < kernel._concrete.size:
        return call.op("flip", _slid(call, kernel, x, mode), [0])
    return _slid(call, x, kernel, mode)


def _slid(call: Call, x: Any, kernel: Any, mode: Any) -> Any:
    """Products of a kernel with every stretch of ``x``."""
    dtype = x._concrete.dtype
    # Convolutions of integers are exact in float64 as far as float64 holds the sums.
    work = np.dtype(np.float64) if dtype.kind in "iub" else dtype
    x, kernel = call.cast(x, work), call.cast(kernel, work)
    size = kernel.shape[0]
    before, after = {
        "full": (size - 1, size - 1),
        "valid": (0, 0),
        "same": (size // 2, (size - 1) // 2),
    }[mode]
    x = call.op("constant_pad_nd", x, [before, after], 0.0)
    found = call.op("matmul", call.op("unfold", x, 0, size, 1), kernel)
    if dtype.kind == "b":
        return call.op("ne", found, 0)
    return call.cast(call.op("round", found), dtype) if dtype.kind in "iu" else found


@records(np.interp)
def interp(call: Call, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        raise call.refuse("period=")
    at, points, values = (call.tensor(v, np.float64) for v in (x, xp, fp))
    count = points.shape[0]
    place = searchsorted(call, points, at, "right")
    low = call.op("minimum", call.op("clamp_min", call.op("sub", place, 1), 0), call.tensor(count - 2))
    x0, x1 = (call.op("index", points, [i]) for i in (low, call.op("add", low, 1)))
    y0, y1 = (call.op("index", values, [i]) for i in (low, call.op("add", low, 1)))
    slope = call.op("div", call.op("sub", y1, y0), call.op("sub", x1, x0))
    found = call.op("add", call.op("mul", slope, call.op("sub", at, x0)), y0)
    first, last = call.op("select", points, 0, 0), call.op("select", points, 0, -1)
    below = call.op("select", values, 0, 0) if left is None else call.tensor(left, np.float64)
    above = call.op("select", values, 0, -1) if right is None else call.tensor(right, np.float64)
    found = call.op("where", call.op("lt", at, first), below, found)
    found = call.op("where", call.op("gt", at, last), above, found)
    return call.op("where", call.op("eq", at, last), call.op("select", values, 0, -1), found)


@records(np.polyval)
def polyval(call: Call, p: Any, x: Any) -> Any:
    terms, at = pair(call, p, x)
    found = call.op("zeros_like", at)
    if isinstance(p, Traced):
        call.tracer.lost("loop", f"{call.name} took the terms of an array")
    for i in range(terms._concrete.shape[0]):
        found = call.op("add", call.op("mul", found, at), call.op("select", terms, 0, i))
    return found
