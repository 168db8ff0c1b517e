"""Running sums, products and extremes; differences, areas and slopes along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT32, FLOAT64, INT64, kind_of, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import axes_of, in_dtype, need_floating, need_real, one_axis, to_asked
from gpujit.ops.into import fits
from gpujit.ops.promotion import result_type, to_floating
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, dims_at
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import diff_type, scanned_pair_type, scanned_type
from gpujit.ops.writes import check_writable
from gpujit.support.errors import DTypeError, OpError, ShapeError

# PyTorch keeps running sums of floats in the wider type.
_WIDE = {"f": "d", "F": "D"}


def _running(m: Any, step: Any, x: Array, dim: int, code: int | None, op: str) -> Array:
    axis = one_axis(x.ndim, dim, op)
    x, half = to_asked(x, code)
    if code is None and x.dtype.kind in "bui":
        dtype = INT64
    else:
        dtype = x.dtype
    if x.ndim == 0:
        return in_dtype(x.astype(dtype), half)
    y = step(x, axis, _WIDE.get(dtype.char, dtype))
    return y.astype(dtype if half is None else half) if y.dtype != dtype or half is not None else y


# Elements of the wider copy of one piece.
_PIECE = 1 << 15


def _running_wide(m: Any, ufunc: Any, out: Array, x: Array, axis: int, wide: Any) -> None:
    """A running sum or the like in the dtype ``wide``, some slices at a time; ``out`` has the dtype of ``x``."""
    n = x.shape[axis]
    step = max(1, _PIECE * n // max(x.size, 1))
    lead = (slice(None),) * axis
    carried = None
    for i in range(0, n, step):
        at = (*lead, slice(i, i + step))
        piece = x[at].astype(wide)
        if carried is not None:
            first = (*lead, slice(0, 1))
            piece[first] = ufunc(carried, piece[first])
        ufunc.accumulate(piece, axis, None, piece)
        carried = piece[(*lead, slice(-1, None))].copy()
        out[at] = piece


def _running_into(m: Any, ufunc: Any, out: Array, x: Array, dim: int, code: int | None) -> Any:
    axis = one_axis(x.ndim, dim, "aten::cumsum")
    dtype = INT64 if code is None and x.dtype.kind in "bui" else x.dtype
    if x.ndim == 0 or (code is not None and numpy_dtype(code) != dtype) or not fits(out, x.shape, dtype):
        return NotImplemented
    if dtype.char in _WIDE:
        _running_wide(m, ufunc, out, x, axis, _WIDE[dtype.char])
    else:
        ufunc.accumulate(x, axis, dtype, out)
    return None


def _cumsum_into(m: Any, out: Array, x: Array, dim: int, dtype: int | None) -> Any:
    return _running_into(m, m.add, out, x, dim, dtype)


def _cumprod_into(m: Any, out: Array, x: Array, dim: int, dtype: int | None) -> Any:
    return _running_into(m, m.multiply, out, x, dim, dtype)


@reduction(
    "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    inplace=True,
    out="out",
    type_rule=scanned_type,
    into=_cumsum_into,
    scalar=Rows(dims_at(1, "aten::cumsum"), row_bodies.summed("cumsum", 2)),
)
def cumsum(m: Any, x: Array, dim: int, dtype: int | None) -> Array:
    """Running sum along ``dim``; integers and bools sum to int64."""
    return _running(m, m.add.accumulate, x, dim, dtype, "aten::cumsum")


@reduction(
    "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    inplace=True,
    out="out",
    type_rule=scanned_type,
    into=_cumprod_into,
    scalar=Rows(dims_at(1, "aten::cumprod"), row_bodies.summed("cumprod", 2)),
)
def cumprod(m: Any, x: Array, dim: int, dtype: int | None) -> Array:
    """Running product along ``dim``; integers and bools multiply to int64."""
    return _running(m, m.multiply.accumulate, x, dim, dtype, "aten::cumprod")


def _running_extreme(m: Any, step: Any, x: Array, dim: int, op: str) -> tuple[Array, Array]:
    need_real(x, op)
    axis = one_axis(x.ndim, dim, op)
    if x.ndim == 0:
        return x.copy(), m.zeros((), dtype=INT64)
    values = step(x, axis)
    found = x == values
    if kind_of(x.dtype) == 2:
        found |= x != x
    n = x.shape[axis]
    places = m.arange(n).reshape((n,) + (1,) * (x.ndim - axis - 1))
    return values, m.maximum.accumulate(found * places, axis)


def _running_extreme_into(m: Any, ufunc: Any, out: tuple[Array, Array], x: Array, dim: int) -> Any:
    axis = one_axis(x.ndim, dim, "aten::cummax")
    values, indices = out
    if x.ndim == 0 or x.dtype.kind == "c":
        return NotImplemented
    if not fits(values, x.shape, x.dtype) or not fits(indices, x.shape, INT64):
        return NotImplemented
    ufunc.accumulate(x, axis, None, values)
    found = x == values
    if kind_of(x.dtype) == 2:
        found |= x != x
    n = x.shape[axis]
    m.multiply(found, m.arange(n).reshape((n,) + (1,) * (x.ndim - axis - 1)), out=indices)
    m.maximum.accumulate(indices, axis, None, indices)
    return None


def _cummax_into(m: Any, out: tuple[Array, Array], x: Array, dim: int) -> Any:
    return _running_extreme_into(m, m.maximum, out, x, dim)


def _cummin_into(m: Any, out: tuple[Array, Array], x: Array, dim: int) -> Any:
    return _running_extreme_into(m, m.minimum, out, x, dim)


@reduction(
    "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    type_rule=scanned_pair_type,
    into=_cummax_into,
)
def cummax(m: Any, x: Array, dim: int) -> tuple[Array, Array]:
    """Running maximum along ``dim`` and the last place it was met; NaN stays."""
    return _running_extreme(m, m.maximum.accumulate, x, dim, "aten::cummax")


@reduction(
    "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    type_rule=scanned_pair_type,
    into=_cummin_into,
)
def cummin(m: Any, x: Array, dim: int) -> tuple[Array, Array]:
    """Running minimum along ``dim`` and the last place it was met; NaN stays."""
    return _running_extreme(m, m.minimum.accumulate, x, dim, "aten::cummin")


for _name in ("cummax", "cummin"):
    out_form(
        f"aten::{_name}.out(Tensor self, int dim, *, Tensor(a!) values, Tensor(b!) indices) "
        "-> (Tensor(a!) values, Tensor(b!) indices)",
        f"aten::{_name}",
    )


def _declare_helper(name: str) -> None:
    """Declare the helper that writes values and indices into given tensors."""
    op = f"aten::_{name}_helper"

    @reduction(f"{op}(Tensor self, Tensor(a!) values, Tensor(b!) indices, int dim) -> ()", half="native")
    def helper(m: Any, x: Array, values: Array, indices: Array, dim: int) -> tuple[()]:
        """Nothing; running extremes and their places are written into ``values`` and ``indices``."""
        step = m.maximum.accumulate if name == "cummax" else m.minimum.accumulate
        v, i = _running_extreme(m, step, x, dim, op)
        if values.shape != v.shape or indices.shape != i.shape:
            raise ShapeError(f"{op}: results of shape {v.shape} do not fit {values.shape} and {indices.shape}")
        check_writable(values, op)
        check_writable(indices, op)
        values[...] = v
        indices[...] = i
        return ()


_declare_helper("cummax")
_declare_helper("cummin")


def _complex_logcumsumexp(m: Any, x: Array, axis: int) -> Array:
    # Step by step, since every logarithm keeps the winding of the larger operand.
    y = x.copy()
    lead = (slice(None),) * axis
    for k in range(1, x.shape[axis]):
        a, b = y[(*lead, k - 1)], x[(*lead, k)]
        swap = a.real > b.real
        low, high = m.where(swap, b, a), m.where(swap, a, b)
        both = m.isinf(low.real) & (low.real == high.real)
        sums = m.where(both & (low.real > 0), m.log(m.exp(low) + m.exp(high)), m.log(m.exp(low - high) + 1) + high)
        sums = m.where(both & (low.real < 0), low, sums)
        y[(*lead, k)] = m.where(m.isnan(low) | m.isnan(high), x.dtype.type(complex(m.nan, m.nan)), sums)
    return y


def _running_logsumexp(m: Any, x: Array, dim: int) -> Array:
    need_floating(x, "aten::logcumsumexp")
    axis = one_axis(x.ndim, dim, "aten::logcumsumexp")
    if x.ndim == 0:
        return x.copy()
    if x.dtype.kind == "c":
        return _complex_logcumsumexp(m, x, axis)
    return m.logaddexp.accumulate(x, axis, FLOAT64).astype(x.dtype)


def _logcumsumexp_into(m: Any, out: Array, x: Array, dim: int) -> Any:
    axis = one_axis(x.ndim, dim, "aten::logcumsumexp")
    if x.ndim == 0 or x.dtype.char not in "fd" or not fits(out, x.shape, x.dtype):
        return NotImplemented
    _running_wide(m, m.logaddexp, out, x, axis, FLOAT64)
    return None


@reduction(
    "aten::logcumsumexp(Tensor self, int dim) -> Tensor", out="out", type_rule=same_type, into=_logcumsumexp_into
)
def logcumsumexp(m: Any, x: Array, dim: int) -> Array:
    """Logarithm of the running sum of exponentials along ``dim``, without overflow."""
    return _running_logsumexp(m, x, dim)


@reduction(
    "aten::_logcumsumexp(Tensor self, int dim) -> Tensor", out="out", type_rule=same_type, into=_logcumsumexp_into
)
def logcumsumexp_plain(m: Any, x: Array, dim: int) -> Array:
    """Logarithm of the running sum of exponentials along ``dim``, without overflow."""
    return _running_logsumexp(m, x, dim)


# -------------------------------------------------------------------------------------------------- differences


def _part(x: Array, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Array:
    return x[(slice(None),) * axis + (slice(start, stop, step),)]


def _diff_into(m: Any, out: Array, x: Array, n: int, dim: int, prepend: Array | None, append: Array | None) -> Any:
    if n != 1 or prepend is not None or append is not None or not x.ndim:
        return NotImplemented
    axis = one_axis(x.ndim, dim, "aten::diff")
    head, tail = _part(x, axis, None, -1), _part(x, axis, 1, None)
    if not fits(out, head.shape, x.dtype):
        return NotImplemented
    (m.not_equal if x.dtype == BOOL_ else m.subtract)(tail, head, out=out)
    return None


@reduction(
    "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
    out="out",
    half="promote",
    type_rule=diff_type,
    into=_diff_into,
    may_alias=True,
)
def diff(m: Any, x: Array, n: int, dim: int, prepend: Array | None, append: Array | None) -> Array:
    """The ``n``-th difference of neighbours along ``dim``; for bools, whether they differ."""
    if x.ndim == 0:
        raise ShapeError("aten::diff: the input must have at least one dim, found a 0-dim tensor")
    axis = one_axis(x.ndim, dim, "aten::diff")
    if n < 0:
        raise ShapeError(f"aten::diff: n is {n}; it must not be negative")
    if n and (prepend is not None or append is not None):
        parts = [p for p in (prepend, x, append) if p is not None]
        for p in parts:
            if p.ndim != x.ndim or any(p.shape[i] != s for i, s in enumerate(x.shape) if i != axis):
                raise ShapeError(f"aten::diff: a part of shape {p.shape} can't be joined to {x.shape} along dim {dim}")
        dtype = result_type(*[p if p.ndim else p.reshape(1) for p in parts])
        x = m.concatenate([p.astype(dtype) for p in parts], axis)
    if n == 0:
        return x.copy()
    for _ in range(min(n, x.shape[axis])):
        head, tail = _part(x, axis, None, -1), _part(x, axis, 1, None)
        x = tail != head if x.dtype == BOOL_ else tail - head
    return x


# -------------------------------------------------------------------------------------------------------- areas


def _widths(m: Any, y: Array, x: Array, dim: int, op: str) -> tuple[Array, Array, int]:
    """``y``, the steps of ``x`` lined up with its dims, and the axis."""
    if y.ndim == 0 or x.ndim == 0:
        raise ShapeError(f"{op}: y and x must have at least one dim, found shapes {y.shape} and {x.shape}")
    axis = one_axis(y.ndim, dim, op)
    if y.dtype == BOOL_ or x.dtype == BOOL_:
        raise DTypeError(f"{op}: bool tensors are not taken; cast them first")
    if x.ndim == 1 or (x.ndim < y.ndim and x.ndim):
        if x.ndim == 1:
            if x.shape[0] != y.shape[axis]:
                raise ShapeError(f"{op}: x has {x.shape[0]} points, y has {y.shape[axis]} along dim {dim}")
            x = x.reshape((-1,) + (1,) * (y.ndim - axis - 1))
        x = x.reshape((1,) * (y.ndim - x.ndim) + x.shape)
    dtype = result_type(y, x)
    y, x = y.astype(dtype), x.astype(dtype)
    along = axis if x.ndim == y.ndim else one_axis(x.ndim, dim, op)
    return y, _part(x, along, 1, None) - _part(x, along, None, -1), axis


def _areas(m: Any, y: Array, width: Any, axis: int) -> Array:
    both = _part(y, axis, None, -1) + _part(y, axis, 1, None)
    return both if isinstance(width, int) and width == 1 else both * width


def _halved(s: Array) -> Array:
    return s.astype(FLOAT32) / 2 if s.dtype.kind in "iu" else s / 2


def _trapezoid_x(m: Any, y: Array, x: Array, dim: int, op: str) -> Array:
    if y.ndim and y.shape[one_axis(y.ndim, dim, op)] == 0:
        return m.zeros([n for i, n in enumerate(y.shape) if i != one_axis(y.ndim, dim, op)], dtype=y.dtype)
    y, width, axis = _widths(m, y, x, dim, op)
    areas = _areas(m, y, width, axis)
    return _halved(m.add.reduce(areas, axis, INT64 if areas.dtype.kind in "iu" else None))


def _trapezoid_dx(m: Any, y: Array, dx: float, dim: int, op: str) -> Array:
    if y.ndim == 0:
        raise ShapeError(f"{op}: y must have at least one dim, found a 0-dim tensor")
    axis = one_axis(y.ndim, dim, op)
    if y.shape[axis] == 0:
        return m.zeros([n for i, n in enumerate(y.shape) if i != axis], dtype=y.dtype)
    if y.dtype == BOOL_:
        raise DTypeError(f"{op}: bool tensors are not taken; cast them first")
    wide = y.astype(FLOAT64) if y.dtype.kind in "iu" else y
    ends = _part(wide, axis, 0, 1) + _part(wide, axis, -1, None)
    s = (m.add.reduce(wide, axis) - ends.squeeze(axis) * 0.5) * dx
    return s.astype(FLOAT32) if y.dtype.kind in "iu" and not isinstance(dx, complex) else s


def _declare_areas(name: str, dx: str) -> None:
    op = f"aten::{name}"

    @reduction(f"{op}.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor")
    def over_x(m: Any, y: Array, x: Array, dim: int) -> Array:
        """Area under ``y`` along ``dim``, sampled at ``x``, by the trapezoid rule."""
        return _trapezoid_x(m, y, x, dim, op)

    @reduction(f"{op}.dx(Tensor y, *, {dx}, int dim=-1) -> Tensor")
    def over_dx(m: Any, y: Array, dx: float, dim: int) -> Array:
        """Area under ``y`` along ``dim``, sampled every ``dx``, by the trapezoid rule."""
        return _trapezoid_dx(m, y, dx, dim, op)


_declare_areas("trapezoid", "Scalar dx=1")
_declare_areas("trapz", "float dx=1.")


@reduction("aten::cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor")
def cumulative_trapezoid_x(m: Any, y: Array, x: Array, dim: int) -> Array:
    """Running area under ``y`` along ``dim``, sampled at ``x``, by the trapezoid rule."""
    y, width, axis = _widths(m, y, x, dim, "aten::cumulative_trapezoid")
    areas = _areas(m, y, width, axis)
    return _halved(m.add.accumulate(areas, axis, INT64 if areas.dtype.kind in "iu" else None))


@reduction("aten::cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor")
def cumulative_trapezoid_dx(m: Any, y: Array, dx: float, dim: int) -> Array:
    """Running area under ``y`` along ``dim``, sampled every ``dx``, by the trapezoid rule."""
    if y.ndim == 0:
        raise ShapeError("aten::cumulative_trapezoid: y must have at least one dim, found a 0-dim tensor")
    axis = one_axis(y.ndim, dim, "aten::cumulative_trapezoid")
    if y.dtype == BOOL_:
        raise DTypeError("aten::cumulative_trapezoid: bool tensors are not taken; cast them first")
    both = _part(y, axis, None, -1) + _part(y, axis, 1, None)
    # Halving comes first, as a number, so that integers become floats before they are summed.
    step = (both.astype(to_floating(both.dtype))) * (dx / 2.0)
    return m.add.accumulate(step, axis)


# ------------------------------------------------------------------------------------------------------- slopes


def _slope(m: Any, x: Array, axis: int, step: Any, edge_order: int) -> Array:
    """Central differences along ``axis``; ``step`` is a number or the 1-d array of the points' coordinates."""
    n = x.shape[axis]
    if n <= edge_order:
        raise ShapeError(f"aten::gradient: dim {axis} has {n} elements, edge_order {edge_order} needs more")
    dtype = to_floating(x.dtype)
    uniform = not hasattr(step, "dtype")
    if not uniform:
        if step.ndim != 1 or step.shape[0] != n:
            raise ShapeError(f"aten::gradient: the coordinates have shape {step.shape}, dim {axis} has {n} elements")
        dtype = to_floating(result_type(x, step))
    x = x.astype(dtype)
    y = m.empty(x.shape, dtype=dtype)
    lead = (slice(None),) * axis

    def at(i: int) -> Array:
        return x[(*lead, i)]

    def put(where: Any, value: Array) -> None:
        y[(*lead, where)] = value

    tail = (1,) * (x.ndim - axis - 1)
    if uniform:
        put(slice(1, -1), (_part(x, axis, 2, None) - _part(x, axis, None, -2)) / (2 * step))
        if edge_order == 1:
            put(0, (at(1) - at(0)) / step)
            put(-1, (at(-1) - at(-2)) / step)
        else:
            put(0, (at(0) * -1.5 + at(1) * 2 + at(2) * -0.5) / step)
            put(-1, (at(-1) * 1.5 + at(-2) * -2 + at(-3) * 0.5) / step)
        return y
    h = (step[1:] - step[:-1]).astype(dtype)
    a, b = h[:-1].reshape(-1, *tail), h[1:].reshape(-1, *tail)
    inner = -b / (a * (a + b)) * _part(x, axis, None, -2)
    inner += (b - a) / (a * b) * _part(x, axis, 1, -1)
    inner += a / (b * (a + b)) * _part(x, axis, 2, None)
    put(slice(1, -1), inner)
    if edge_order == 1:
        put(0, (at(1) - at(0)) / h[0])
        put(-1, (at(-1) - at(-2)) / h[-1])
    else:
        p, q = h[0], h[1]
        put(0, -(2 * p + q) / (p * (p + q)) * at(0) + (p + q) / (p * q) * at(1) - p / (q * (p + q)) * at(2))
        p, q = h[-2], h[-1]
        put(-1, q / (p * (p + q)) * at(-3) - (q + p) / (p * q) * at(-2) + (2 * q + p) / (q * (p + q)) * at(-1))
    return y


def _slopes(m: Any, x: Array, dims: list[int] | int | None, spacing: Any, edge_order: int) -> list[Array]:
    if edge_order not in (1, 2):
        raise OpError(f"aten::gradient: edge_order is {edge_order}; only 1 and 2 exist")
    axes = axes_of(x.ndim, dims, "aten::gradient")
    # The order of dims is the order of results.
    if isinstance(dims, Sequence) and dims:
        order = [one_axis(x.ndim, d, "aten::gradient") for d in dims]
    else:
        order = list(range(x.ndim)) if axes is None else list(axes)
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(order)
    if len(steps) == 1 and len(order) > 1 and not isinstance(spacing, (list, tuple)):
        steps = steps * len(order)
    if len(steps) != len(order):
        raise ShapeError(f"aten::gradient: {len(steps)} spacings for {len(order)} dims; give one each")
    return [_slope(m, x, a, s, edge_order) for a, s in zip(order, steps, strict=True)]


@reduction(
    "aten::gradient.scalarint(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]"
)
def gradient_scalar(m: Any, x: Array, spacing: float | None, dim: int | None, edge_order: int) -> list[Array]:
    """The slope along ``dim`` (one per dim, when None) by central differences of samples ``spacing`` apart."""
    return _slopes(m, x, dim, 1 if spacing is None else spacing, edge_order)


@reduction("aten::gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]")
def gradient_scalar_dims(m: Any, x: Array, spacing: float, dim: list[int], edge_order: int) -> list[Array]:
    """The slopes along each of ``dim`` of samples ``spacing`` apart."""
    return _slopes(m, x, dim, spacing, edge_order)


@reduction("aten::gradient.array(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]")
def gradient_dims(m: Any, x: Array, dim: list[int], edge_order: int) -> list[Array]:
    """The slopes along each of ``dim`` of samples one apart."""
    return _slopes(m, x, dim, 1, edge_order)


def _declare_slopes(overload: str, spacing: str, dim: str) -> None:
    @reduction(f"aten::gradient.{overload}(Tensor self, *, {spacing} spacing, {dim}, int edge_order=1) -> Tensor[]")
    def slopes(m: Any, x: Array, spacing: list[Any], dim: Any, edge_order: int) -> list[Array]:
        """The slopes along ``dim``, with a spacing (a number, or the coordinates) for each."""
        return _slopes(m, x, dim, spacing, edge_order)


_declare_slopes("scalarrayint", "Scalar[]", "int? dim=None")
_declare_slopes("scalarrayarray", "Scalar[]", "int[] dim")
_declare_slopes("tensorarrayint", "Tensor[]", "int? dim=None")
_declare_slopes("tensorarray", "Tensor[]", "int[] dim")
