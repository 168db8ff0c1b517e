"""Largest, smallest, median, most frequent, k-th: values picked from rows, and where they were found."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import BOOL_, INT64, kind_of
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import axes_of, need_real, one_axis, reduced_count, reduced_shape
from gpujit.ops.into import fits
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, all_dims, dims_at, flag_at
from gpujit.ops.rules.reduce import quantile_type, reduced_pair_type, reduced_type
from gpujit.support.errors import DTypeError, ShapeError

Picked = tuple[Array, Array]


def _need_elements(x: Array, axes: tuple[int, ...] | None, op: str) -> None:
    if reduced_count(x.shape, axes) == 0:
        if axes is None:
            raise ShapeError(f"{op}: the tensor of shape {x.shape} has no elements; name a dim that has some")
        raise ShapeError(f"{op}: dims {list(axes)} of a tensor of shape {x.shape} hold no elements to choose from")


def _row_axis(x: Array, dim: int, op: str) -> tuple[Array, int, bool]:
    """``x`` with at least one dim, the axis ``dim`` names, and whether ``x`` was 0-dim; refuses an empty axis."""
    axis = one_axis(x.ndim, dim, op)
    if x.ndim == 0:
        return x.reshape(1), 0, True
    if x.shape[axis] == 0:
        raise ShapeError(f"{op}: dim {dim} of a tensor of shape {x.shape} holds no elements to choose from")
    return x, axis, False


# ------------------------------------------------------------------------------------------------- max and min


def _extreme_into(m: Any, out: Array, x: Array, axes: tuple[int, ...] | None, keepdim: bool, largest: bool) -> Any:
    if x.size == 0 or x.dtype.kind == "c" or not fits(out, reduced_shape(x.shape, axes, keepdim), x.dtype):
        return NotImplemented
    (m.maximum if largest else m.minimum).reduce(x, axes, None, out, keepdim)
    return None


def _place_into(m: Any, out: Array, x: Array, dim: int | None, keepdim: bool, largest: bool) -> Any:
    axes = axes_of(x.ndim, dim, "aten::argmax")
    if x.size == 0 or x.dtype.kind == "c" or not fits(out, reduced_shape(x.shape, axes, keepdim), INT64):
        return NotImplemented
    if axes is None:
        # 0-dim, or one element in all.
        out[...] = x.argmax() if largest else x.argmin()
    else:
        (x.argmax if largest else x.argmin)(axes[0], out=out, keepdims=keepdim)
    return None


def _declare_extreme(name: str, second: tuple[str, str]) -> None:
    """Declare max or min of everything and along a dim; ``second`` names the written arguments of the out= form."""
    op = f"aten::{name}"
    largest = name == "max"

    def all_into(m: Any, out: Array, x: Array) -> Any:
        return _extreme_into(m, out, x, None, False, largest)

    def dim_into(m: Any, out: tuple[Array, Array], x: Array, dim: int, keepdim: bool) -> Any:
        axes = axes_of(x.ndim, dim, op)
        values, indices = out
        if not fits(indices, values.shape, INT64):
            return NotImplemented
        if _extreme_into(m, values, x, axes, keepdim, largest) is NotImplemented:
            return NotImplemented
        return _place_into(m, indices, x, dim, keepdim, largest)

    def dims_into(m: Any, out: Array, x: Array, dim: list[int], keepdim: bool) -> Any:
        return _extreme_into(m, out, x, axes_of(x.ndim, dim, f"aten::a{name}"), keepdim, largest)

    def place_into(m: Any, out: Array, x: Array, dim: int | None, keepdim: bool) -> Any:
        return NotImplemented if x.dtype == BOOL_ else _place_into(m, out, x, dim, keepdim, largest)

    @reduction(
        f"{op}(Tensor self) -> Tensor",
        out="unary_out",
        type_rule=reduced_type("same"),
        into=all_into,
        scalar=Rows(all_dims, row_bodies.extremes(name, op=op)),
    )
    def over_all(m: Any, x: Array) -> Array:
        """The largest (smallest) element; NaN when there is one."""
        need_real(x, op)
        if x.size == 0:
            _need_elements(x, None, op)
        return x.max() if largest else x.min()

    @reduction(
        f"{op}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        type_rule=reduced_pair_type("same", "index"),
        into=dim_into,
        scalar=Rows(dims_at(1, op), row_bodies.extremes(name, f"arg{name}", op=op), flag_at(2)),
    )
    def over_dim(m: Any, x: Array, dim: int, keepdim: bool) -> Picked:
        """The largest (smallest) elements along ``dim`` and the first place of each; NaN wins."""
        need_real(x, op)
        x, axis, scalar = _row_axis(x, dim, op)
        keepdim = keepdim and not scalar
        if largest:
            return x.max(axis, keepdims=keepdim), x.argmax(axis, keepdims=keepdim)
        return x.min(axis, keepdims=keepdim), x.argmin(axis, keepdims=keepdim)

    one, two = second
    out_form(
        f"{op}.dim_{name}(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) {one}, Tensor(b!) {two}) "
        "-> (Tensor(a!) values, Tensor(b!) indices)",
        f"{op}.dim",
    )

    @reduction(
        f"aten::a{name}(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
        out="out",
        type_rule=reduced_type("same"),
        into=dims_into,
        scalar=Rows(dims_at(1, f"aten::a{name}"), row_bodies.extremes(name, op=f"aten::a{name}"), flag_at(2)),
    )
    def over_dims(m: Any, x: Array, dim: list[int], keepdim: bool) -> Array:
        """The largest (smallest) elements over ``dim``, over everything when it is empty; NaN wins."""
        need_real(x, f"aten::a{name}")
        axes = axes_of(x.ndim, dim, f"aten::a{name}")
        if x.size == 0:
            _need_elements(x, axes, f"aten::a{name}")
        return x.max(axes, keepdims=keepdim) if largest else x.min(axes, keepdims=keepdim)

    @reduction(
        f"aten::arg{name}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
        out="out",
        type_rule=reduced_type("index"),
        into=place_into,
        scalar=Rows(
            dims_at(1, f"aten::arg{name}"), row_bodies.extremes(f"arg{name}", op=f"aten::arg{name}"), flag_at(2)
        ),
    )
    def place(m: Any, x: Array, dim: int | None, keepdim: bool) -> Array:
        """Where the first largest (smallest) element stands along ``dim``, or in the flattened tensor; NaN wins."""
        need_real(x, f"aten::arg{name}")
        if x.dtype == BOOL_:
            raise DTypeError(f"aten::arg{name}: bool tensors are not taken; cast to an integer dtype first")
        if dim is None:
            if x.size == 0:
                _need_elements(x, None, f"aten::arg{name}")
            y = x.argmax() if largest else x.argmin()
            return m.asarray(y, dtype=INT64).reshape((1,) * x.ndim) if keepdim else y
        x, axis, scalar = _row_axis(x, dim, f"aten::arg{name}")
        keepdim = keepdim and not scalar
        return x.argmax(axis, keepdims=keepdim) if largest else x.argmin(axis, keepdims=keepdim)


_declare_extreme("max", ("max", "max_values"))
_declare_extreme("min", ("min", "min_indices"))


def _aminmax_into(m: Any, out: tuple[Array, Array], x: Array, dim: int | None, keepdim: bool) -> Any:
    axes = axes_of(x.ndim, dim, "aten::aminmax")
    low, high = out
    if not fits(low, high.shape, high.dtype) or _extreme_into(m, low, x, axes, keepdim, False) is NotImplemented:
        return NotImplemented
    return _extreme_into(m, high, x, axes, keepdim, True)


@reduction(
    "aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
    type_rule=reduced_pair_type("same", "same"),
    into=_aminmax_into,
    scalar=Rows(dims_at(1, "aten::aminmax"), row_bodies.extremes("min", "max", op="aten::aminmax"), flag_at(2)),
)
def aminmax(m: Any, x: Array, dim: int | None, keepdim: bool) -> Picked:
    """Smallest and largest elements along ``dim`` (of all, when None); NaN wins in both."""
    return _aminmax(x, dim, keepdim)


def _aminmax(x: Array, dim: int | None, keepdim: bool) -> Picked:
    need_real(x, "aten::aminmax")
    axes = axes_of(x.ndim, dim, "aten::aminmax")
    if x.size == 0:
        _need_elements(x, axes, "aten::aminmax")
    return x.min(axes, keepdims=keepdim), x.max(axes, keepdims=keepdim)


out_form(
    "aten::aminmax.out(Tensor self, *, int? dim=None, bool keepdim=False, Tensor(a!) min, Tensor(b!) max) "
    "-> (Tensor(a!) min, Tensor(b!) max)",
    "aten::aminmax",
)


def _aminmax_all_into(m: Any, out: tuple[Array, Array], x: Array) -> Any:
    return _aminmax_into(m, out, x, None, False)


@reduction(
    "aten::_aminmax(Tensor self) -> (Tensor, Tensor)",
    type_rule=reduced_pair_type("same", "same"),
    into=_aminmax_all_into,
)
def aminmax_all(m: Any, x: Array) -> Picked:
    """Smallest and largest element."""
    return _aminmax(x, None, False)


@reduction(
    "aten::_aminmax.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)",
    type_rule=reduced_pair_type("same", "same"),
    into=_aminmax_into,
)
def aminmax_dim(m: Any, x: Array, dim: int, keepdim: bool) -> Picked:
    """Smallest and largest elements along ``dim``."""
    return _aminmax(x, dim, keepdim)


out_form(
    "aten::_aminmax.out(Tensor self, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))", "aten::_aminmax"
)
out_form(
    "aten::_aminmax.dim_out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out0, Tensor(b!) out1) "
    "-> (Tensor(a!), Tensor(b!))",
    "aten::_aminmax.dim",
)


# ----------------------------------------------------------------------------------------- median, k-th, mode


def _picked(m: Any, x: Array, values: Array, axis: int, keepdim: bool, scalar: bool) -> Picked:
    """``values`` (size 1 along ``axis``) and the first place of each in ``x``."""
    found = x == values
    if _has_nan(x):
        found |= m.isnan(x) & m.isnan(values)
    index = found.argmax(axis=axis, keepdims=True)
    if scalar:
        return values.reshape(()), index.reshape(())
    if keepdim:
        return values, index
    return values.squeeze(axis), index.squeeze(axis)


def _ranked(m: Any, x: Array, axis: int, k: int) -> Array:
    """The ``k``-th smallest elements, counted from 0, with size 1 along ``axis``; NaN is largest."""
    return m.partition(x, k, axis)[(slice(None),) * axis + (slice(k, k + 1),)]


def _has_nan(x: Array) -> bool:
    return kind_of(x.dtype) == 2


def _median(m: Any, x: Array, axis: int, skip_nan: bool) -> Array:
    k = (x.shape[axis] - 1) // 2
    if not _has_nan(x):
        return _ranked(m, x, axis, k)
    nan = m.isnan(x)
    if not skip_nan:
        return m.where(nan.any(axis=axis, keepdims=True), x.dtype.type(m.nan), _ranked(m, x, axis, k))
    there = m.add.reduce(~nan, axis, INT64, None, True)
    return m.take_along_axis(m.sort(x, axis), m.maximum(there - 1, 0) // 2, axis)


def _declare_median(name: str) -> None:
    """Declare the overloads of median or nanmedian."""
    op = f"aten::{name}"
    skip_nan = name == "nanmedian"

    @reduction(f"{op}(Tensor self) -> Tensor", type_rule=reduced_type("same"))
    def over_all(m: Any, x: Array) -> Array:
        """The lower median of all elements; NaN when there are none."""
        need_real(x, op)
        x = x.reshape(-1)
        if skip_nan and _has_nan(x):
            x = x[~m.isnan(x)] if x.size else x
        if x.size == 0:
            return m.asarray(m.nan if _has_nan(x) else m.iinfo(x.dtype).min, dtype=x.dtype)
        k = (x.size - 1) // 2
        y = m.partition(x, (k, x.size - 1))
        # NaN sorts last, so the largest slot tells whether there is one.
        return y[-1] if y[-1] != y[-1] else y[k]

    @reduction(
        f"{op}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        type_rule=reduced_pair_type("same", "index"),
    )
    def over_dim(m: Any, x: Array, dim: int, keepdim: bool) -> Picked:
        """The lower medians along ``dim`` and where they stand."""
        need_real(x, op)
        x, axis, scalar = _row_axis(x, dim, op)
        return _picked(m, x, _median(m, x, axis, skip_nan), axis, keepdim, scalar)

    out_form(
        f"{op}.dim_values(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) "
        "-> (Tensor(a!) values, Tensor(b!) indices)",
        f"{op}.dim",
    )
    out_form(f"{op}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", op)


_declare_median("median")
_declare_median("nanmedian")


@reduction(
    "aten::kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    type_rule=reduced_pair_type("same", "index"),
)
def kthvalue(m: Any, x: Array, k: int, dim: int, keepdim: bool) -> Picked:
    """The ``k``-th smallest elements (counted from 1) along ``dim`` and where they stand; NaN is largest."""
    need_real(x, "aten::kthvalue")
    x, axis, scalar = _row_axis(x, dim, "aten::kthvalue")
    if not 1 <= k <= x.shape[axis]:
        raise ShapeError(f"aten::kthvalue: k is {k}; dim {dim} has {x.shape[axis]} elements, counted from 1")
    return _picked(m, x, _ranked(m, x, axis, k - 1), axis, keepdim, scalar)


out_form(
    "aten::kthvalue.values(Tensor self, int k, int dim=-1, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) "
    "indices) "
    "-> (Tensor(a!) values, Tensor(b!) indices)",
    "aten::kthvalue",
)


@reduction(
    "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    type_rule=reduced_pair_type("same", "index"),
)
def mode(m: Any, x: Array, dim: int, keepdim: bool) -> Picked:
    """The most frequent elements along ``dim``, the smallest of equals, and the last place of each."""
    need_real(x, "aten::mode")
    x, axis, scalar = _row_axis(x, dim, "aten::mode")
    order = x.argsort(axis=axis, kind="stable")
    ranked = m.take_along_axis(x, order, axis)
    n = x.shape[axis]
    places = m.arange(n).reshape((n,) + (1,) * (x.ndim - axis - 1))
    lead = (slice(None),) * axis
    fresh = m.zeros(x.shape, dtype=INT64)
    changes = ranked[(*lead, slice(1, None))] != ranked[(*lead, slice(None, -1))]
    fresh[(*lead, slice(1, None))] = changes * places[1:]
    # Length of the run so far; its first maximum ends the first longest run, at the value's last place.
    length = places - m.maximum.accumulate(fresh, axis)
    index = m.take_along_axis(order, length.argmax(axis=axis, keepdims=True), axis)
    values = m.take_along_axis(x, index, axis)
    if scalar:
        return values.reshape(()), index.reshape(())
    return (values, index) if keepdim else (values.squeeze(axis), index.squeeze(axis))


out_form(
    "aten::mode.values(Tensor self, int dim=-1, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices) "
    "-> (Tensor(a!) values, Tensor(b!) indices)",
    "aten::mode",
)


# --------------------------------------------------------------------------------------------------- quantiles

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(
    m: Any, x: Array, q: Array, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool, op: str
) -> Array:
    if x.dtype.char not in "fd":
        raise DTypeError(f"{op}: the input must be float32 or float64, found {x.dtype}")
    if q.dtype != x.dtype:
        raise DTypeError(f"{op}: q has dtype {q.dtype}, the input {x.dtype}; they must be the same")
    if q.ndim > 1:
        raise ShapeError(f"{op}: q must be a number or a list of numbers, found shape {q.shape}")
    if interpolation not in _INTERPOLATIONS:
        raise ShapeError(f"{op}: interpolation {interpolation!r} is unknown; use one of {', '.join(_INTERPOLATIONS)}")
    if x.size == 0:
        raise ShapeError(f"{op}: the input of shape {x.shape} has no elements")
    if not ((q >= 0) & (q <= 1)).all():
        raise ShapeError(f"{op}: q must lie between 0 and 1, found {q.tolist()}")
    if dim is None:
        rows, kept, shape = x.reshape(1, -1), (1,) * x.ndim, ()
    else:
        axis = one_axis(x.ndim, dim, op)
        rows = x.reshape(1) if x.ndim == 0 else x.swapaxes(axis, -1)
        # The reduced axis ends last; the other one returns to its place after the pick.
        front = rows.shape[:-1]
        kept = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
        shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
        if x.ndim and axis != x.ndim - 1:
            rows = m.moveaxis(x, axis, -1)
            front = rows.shape[:-1]
        rows = rows.reshape(*(front or (1,)), x.shape[axis] if x.ndim else 1)
        rows = rows.reshape(-1, rows.shape[-1])
    ranked = m.sort(rows, axis=-1)
    n = rows.shape[1]
    nan = m.isnan(ranked)
    points = q.reshape(1, -1)
    if skip_nan:
        rank = points * m.maximum((~nan).sum(axis=-1, keepdims=True) - 1, 0).astype(x.dtype)
    else:
        # One NaN in a row makes its quantiles NaN, and NaN stands last.
        rank = m.where(nan[:, -1:], x.dtype.type(n - 1), points * x.dtype.type(n - 1))
    if interpolation == "lower":
        rank = m.floor(rank)
    elif interpolation == "higher":
        rank = m.ceil(rank)
    elif interpolation == "nearest":
        rank = m.rint(rank)
    below = rank.astype(INT64)
    y = m.take_along_axis(ranked, below, 1)
    if interpolation in ("linear", "midpoint"):
        weight = rank - below.astype(x.dtype) if interpolation == "linear" else x.dtype.type(0.5)
        above = m.take_along_axis(ranked, m.ceil(rank).astype(INT64), 1)
        # The same two-sided form as torch.lerp.
        y = m.where(weight < 0.5, y + weight * (above - y), above - (above - y) * (1 - weight))
    y = y.T.reshape((*q.shape, *(kept if keepdim else shape)))
    return y if y.flags.c_contiguous else m.ascontiguousarray(y)


def _declare_quantile(name: str) -> None:
    """Declare the overloads of quantile or nanquantile."""
    op = f"aten::{name}"
    skip_nan = name == "nanquantile"
    rest = 'int? dim=None, bool keepdim=False, *, str interpolation="linear"'

    @reduction(f"{op}(Tensor self, Tensor q, {rest}) -> Tensor", half="native", type_rule=quantile_type)
    def of_tensor(m: Any, x: Array, q: Array, dim: int | None, keepdim: bool, interpolation: str) -> Array:
        """The quantiles ``q`` along ``dim`` (of all elements, when None), one more leading dim when ``q`` is a list."""
        return _quantile(m, x, q, dim, keepdim, interpolation, skip_nan, op)

    @reduction(f"{op}.scalar(Tensor self, float q, {rest}) -> Tensor", half="native", type_rule=quantile_type)
    def of_number(m: Any, x: Array, q: float, dim: int | None, keepdim: bool, interpolation: str) -> Array:
        """The quantile ``q`` along ``dim`` (of all elements, when None)."""
        return _quantile(m, x, m.asarray(q, dtype=x.dtype), dim, keepdim, interpolation, skip_nan, op)

    out_form(f"{op}.out(Tensor self, Tensor q, {rest}, Tensor(a!) out) -> Tensor(a!)", op)
    out_form(f"{op}.scalar_out(Tensor self, float q, {rest}, Tensor(a!) out) -> Tensor(a!)", f"{op}.scalar")


_declare_quantile("quantile")
_declare_quantile("nanquantile")
