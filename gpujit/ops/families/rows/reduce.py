"""Rows to one value: sums, products, means, variances, truth."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import BOOL_, HALF_TYPES, INT64, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import (
    axes_of,
    in_dtype,
    need_floating,
    need_real,
    reduced_count,
    reduced_shape,
    sum_squares,
    to_asked,
    total,
)
from gpujit.ops.into import fits
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, all_dims, dims_at, flag_at, listed_dims_at
from gpujit.ops.rules.reduce import reduced_dims_type, reduced_pair_type, reduced_type, sum_to_size_type
from gpujit.support.errors import DTypeError, ShapeError

# ------------------------------------------------------------------------------------------------- sum, product


def _sum(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool, code: int | None) -> Array:
    if code is None:
        if x.dtype.kind in "bui":
            return m.add.reduce(x, axes, INT64, None, keepdim)
        return total(m, x, axes, keepdim)
    x, half = to_asked(x, code)
    if x.dtype.kind in "bui":
        return m.add.reduce(x, axes, x.dtype, None, keepdim)
    return in_dtype(total(m, x, axes, keepdim), half)


def _sum_into(m: Any, out: Array, x: Array, dim: list[int] | None, keepdim: bool, code: int | None) -> Any:
    axes = axes_of(x.ndim, dim, "aten::sum")
    integers = x.dtype.kind in "bui"
    if code is not None and numpy_dtype(code) != x.dtype:
        return NotImplemented
    if not fits(out, reduced_shape(x.shape, axes, keepdim), INT64 if integers and code is None else x.dtype):
        return NotImplemented
    if integers:
        m.add.reduce(x, axes, out.dtype, out, keepdim)
    else:
        total(m, x, axes, keepdim, out)
    return None


def _sum_all_into(m: Any, out: Array, x: Array, code: int | None) -> Any:
    return _sum_into(m, out, x, None, False, code)


@reduction(
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    out="IntList_out",
    type_rule=reduced_type("sum"),
    into=_sum_into,
    scalar=Rows(dims_at(1, "aten::sum"), row_bodies.summed("sum", 3), flag_at(2)),
)
def sum_dim(m: Any, x: Array, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """Sum over ``dim`` (all dims when None or empty); integers and bools sum to int64."""
    return _sum(m, x, axes_of(x.ndim, dim, "aten::sum"), keepdim, dtype)


@reduction(
    "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    out="out",
    type_rule=reduced_type("sum"),
    into=_sum_all_into,
    scalar=Rows(all_dims, row_bodies.summed("sum", 1)),
)
def sum_all(m: Any, x: Array, dtype: int | None) -> Array:
    """Sum of all elements; integers and bools sum to int64."""
    return _sum(m, x, None, False, dtype)


@reduction(
    "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    out="out",
    type_rule=reduced_type("sum"),
    scalar=Rows(dims_at(1, "aten::nansum"), row_bodies.nansum, flag_at(2)),
)
def nansum(m: Any, x: Array, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """Sum over ``dim`` with NaN taken as zero."""
    need_real(x, "aten::nansum")
    if x.dtype.kind not in "bui":
        x = m.where(m.isnan(x), x.dtype.type(0), x)
    return _sum(m, x, axes_of(x.ndim, dim, "aten::nansum"), keepdim, dtype)


def _prod(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool, code: int | None) -> Array:
    x, half = to_asked(x, code)
    dtype = INT64 if code is None and x.dtype.kind in "bui" else x.dtype
    return in_dtype(m.multiply.reduce(x, axes, dtype, None, keepdim), half)


def _prod_into(m: Any, out: Array, x: Array, dim: int | None, keepdim: bool, code: int | None) -> Any:
    axes = axes_of(x.ndim, dim, "aten::prod")
    dtype = INT64 if code is None and x.dtype.kind in "bui" else x.dtype
    if (code is not None and numpy_dtype(code) != dtype) or dtype in HALF_TYPES:
        return NotImplemented
    if not fits(out, reduced_shape(x.shape, axes, keepdim), dtype):
        return NotImplemented
    m.multiply.reduce(x, axes, dtype, out, keepdim)
    return None


def _prod_all_into(m: Any, out: Array, x: Array, code: int | None) -> Any:
    return _prod_into(m, out, x, None, False, code)


@reduction(
    "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    type_rule=reduced_type("sum"),
    into=_prod_all_into,
    scalar=Rows(all_dims, row_bodies.summed("prod", 1)),
)
def prod_all(m: Any, x: Array, dtype: int | None) -> Array:
    """Product of all elements; integers and bools multiply to int64."""
    return _prod(m, x, None, False, dtype)


@reduction(
    "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    out="int_out",
    type_rule=reduced_type("sum"),
    into=_prod_into,
    scalar=Rows(dims_at(1, "aten::prod"), row_bodies.summed("prod", 3), flag_at(2)),
)
def prod_dim(m: Any, x: Array, dim: int, keepdim: bool, dtype: int | None) -> Array:
    """Product along ``dim``; integers and bools multiply to int64."""
    return _prod(m, x, axes_of(x.ndim, dim, "aten::prod"), keepdim, dtype)


out_form("aten::prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)", "aten::prod")


# ---------------------------------------------------------------------------------------------------------- mean


def _mean(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool, code: int | None) -> Array:
    half = None
    if code is not None:
        x, half = to_asked(x, code)
    if x.dtype.kind in "bui":
        need_floating(x, "aten::mean")
    y = total(m, x, axes, keepdim) / reduced_count(x.shape, axes)
    return y if half is None else y.astype(half)


def _mean_into(m: Any, out: Array, x: Array, dim: list[int] | None, keepdim: bool, code: int | None) -> Any:
    axes = axes_of(x.ndim, dim, "aten::mean")
    if x.dtype.kind in "bui" or (code is not None and numpy_dtype(code) != x.dtype):
        return NotImplemented
    if not fits(out, reduced_shape(x.shape, axes, keepdim), x.dtype):
        return NotImplemented
    total(m, x, axes, keepdim, out)
    m.true_divide(out, reduced_count(x.shape, axes), out=out)
    return None


def _mean_all_into(m: Any, out: Array, x: Array, code: int | None) -> Any:
    return _mean_into(m, out, x, None, False, code)


@reduction(
    "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    type_rule=reduced_type("same"),
    into=_mean_all_into,
    scalar=Rows(all_dims, row_bodies.mean(1, "aten::mean")),
)
def mean_all(m: Any, x: Array, dtype: int | None) -> Array:
    """Mean of all elements; NaN when there are none."""
    return _mean(m, x, None, False, dtype)


@reduction(
    "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    out="out",
    type_rule=reduced_type("same"),
    into=_mean_into,
    scalar=Rows(dims_at(1, "aten::mean"), row_bodies.mean(3, "aten::mean"), flag_at(2)),
)
def mean_dim(m: Any, x: Array, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """Mean over ``dim`` (all dims when None or empty)."""
    return _mean(m, x, axes_of(x.ndim, dim, "aten::mean"), keepdim, dtype)


out_form("aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)", "aten::mean")


@reduction(
    "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    out="out",
    type_rule=reduced_type("same"),
)
def nanmean(m: Any, x: Array, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """Mean over ``dim`` of the elements that are not NaN; NaN when there are none."""
    need_floating(x, "aten::nanmean")
    axes = axes_of(x.ndim, dim, "aten::nanmean")
    there = ~m.isnan(x)
    x, half = to_asked(m.where(there, x, x.dtype.type(0)), dtype)
    y = total(m, x, axes, keepdim)
    return in_dtype((y / m.add.reduce(there, axes, None, None, keepdim)).astype(y.dtype), half)


# ------------------------------------------------------------------------------------------------------ variance


def moments(
    m: Any,
    x: Array,
    axes: tuple[int, ...] | None,
    correction: float,
    keepdim: bool,
    op: str,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """Variance and mean over ``axes``; the divisor is the count less ``correction``, never below zero."""
    need_floating(x, op)
    n = reduced_count(x.shape, axes)
    mean = total(m, x, axes, True) / n
    d = x - mean
    if d.dtype.kind == "c":
        squares = total(m, d.real * d.real + d.imag * d.imag, axes, keepdim)
    else:
        squares = sum_squares(m, d, axes, keepdim)
    var = m.true_divide(squares, squares.dtype.type(max(n - correction, 0)), out=out)
    if not keepdim:
        mean = mean.reshape(var.shape)
    return var, mean


def _declare_variances(name: str, root: bool, with_mean: bool) -> None:
    """Declare the three overloads of var, std, var_mean or std_mean and their out= forms."""
    op = f"aten::{name}"
    returns = "(Tensor, Tensor)" if with_mean else "Tensor"

    def into(m: Any, out: Any, x: Array, axes: tuple[int, ...] | None, correction: float, keepdim: bool) -> Any:
        var, mean = out if with_mean else (out, None)
        shape = reduced_shape(x.shape, axes, keepdim)
        if x.dtype.kind != "f" or not fits(var, shape, x.dtype) or not (mean is None or fits(mean, shape, x.dtype)):
            return NotImplemented
        _, centre = moments(m, x, axes, correction, keepdim, op, var)
        if root:
            m.sqrt(var, out=var)
        if mean is not None:
            mean[...] = centre
        return None

    def all_into(m: Any, out: Any, x: Array, unbiased: bool) -> Any:
        return into(m, out, x, None, 1 if unbiased else 0, False)

    def dim_into(m: Any, out: Any, x: Array, dim: list[int] | None, unbiased: bool, keepdim: bool) -> Any:
        return into(m, out, x, axes_of(x.ndim, dim, op), 1 if unbiased else 0, keepdim)

    def correction_into(
        m: Any, out: Any, x: Array, dim: list[int] | None, correction: float | None, keepdim: bool
    ) -> Any:
        return into(m, out, x, axes_of(x.ndim, dim, op), 1 if correction is None else correction, keepdim)

    def finish(m: Any, x: Array, axes: tuple[int, ...] | None, correction: float, keepdim: bool) -> Any:
        var, mean = moments(m, x, axes, correction, keepdim, op)
        if root:
            var = m.sqrt(var)
        return (var, mean) if with_mean else var

    rule = reduced_pair_type("real", "same") if with_mean else reduced_type("real")

    def recorded(axes: Any, correction: Any, keeps: Any) -> Rows:
        return Rows(axes, row_bodies.variance(root, with_mean, correction, op), keeps)

    @reduction(
        f"{op}(Tensor self, bool unbiased=True) -> {returns}",
        type_rule=rule,
        into=all_into,
        scalar=recorded(all_dims, lambda unbiased: 1 if unbiased else 0, lambda args: False),
    )
    def over_all(m: Any, x: Array, unbiased: bool) -> Any:
        """The spread of all elements, with the count less one as divisor when ``unbiased``."""
        return finish(m, x, None, 1 if unbiased else 0, False)

    @reduction(
        f"{op}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> {returns}",
        type_rule=rule,
        into=dim_into,
        scalar=recorded(dims_at(1, op), lambda dim, unbiased, keepdim: 1 if unbiased else 0, flag_at(3)),
    )
    def over_dim(m: Any, x: Array, dim: list[int] | None, unbiased: bool, keepdim: bool) -> Any:
        """The spread over ``dim``, with the count less one as divisor when ``unbiased``."""
        return finish(m, x, axes_of(x.ndim, dim, op), 1 if unbiased else 0, keepdim)

    head = "Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False"

    @reduction(
        f"{op}.correction({head}) -> {returns}",
        type_rule=rule,
        into=correction_into,
        scalar=recorded(
            dims_at(1, op), lambda dim, correction, keepdim: 1 if correction is None else correction, flag_at(3)
        ),
    )
    def with_correction(m: Any, x: Array, dim: list[int] | None, correction: float | None, keepdim: bool) -> Any:
        """The spread over ``dim``, with the count less ``correction`` (1 when None) as divisor."""
        return finish(m, x, axes_of(x.ndim, dim, op), 1 if correction is None else correction, keepdim)

    if with_mean:
        out_form(
            f"{op}.correction_out({head}, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))",
            f"{op}.correction",
        )
    else:
        out_form(f"{op}.correction_out({head}, Tensor(a!) out) -> Tensor(a!)", f"{op}.correction")
        out_form(
            f"{op}.out(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False, *, Tensor(a!) out) -> "
            "Tensor(a!)",
            f"{op}.dim",
        )


_declare_variances("var", root=False, with_mean=False)
_declare_variances("std", root=True, with_mean=False)
_declare_variances("var_mean", root=False, with_mean=True)
_declare_variances("std_mean", root=True, with_mean=True)


# --------------------------------------------------------------------------------------------------------- truth


def _declare_truth(name: str) -> None:
    """Declare the overloads of any or all; a uint8 tensor gives uint8, every other bool."""
    op = f"aten::{name}"
    every = name == "all"

    def truth(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool) -> Array:
        y = x.all(axis=axes, keepdims=keepdim) if every else x.any(axis=axes, keepdims=keepdim)
        return y if x.dtype.char != "B" else y.astype(x.dtype)

    def truth_into(m: Any, out: Array, x: Array, axes: tuple[int, ...] | None, keepdim: bool) -> Any:
        if x.dtype.char == "B" or not fits(out, reduced_shape(x.shape, axes, keepdim), BOOL_):
            return NotImplemented
        (x.all if every else x.any)(axis=axes, out=out, keepdims=keepdim)
        return None

    def all_into(m: Any, out: Array, x: Array) -> Any:
        return truth_into(m, out, x, None, False)

    def dims_into(m: Any, out: Array, x: Array, dim: Any, keepdim: bool) -> Any:
        axes = axes_of(x.ndim, dim, op)
        whole = axes is None and isinstance(dim, list) and not dim
        return NotImplemented if whole else truth_into(m, out, x, axes, keepdim)

    recorded = row_bodies.truth(name)

    @reduction(
        f"{op}(Tensor self) -> Tensor",
        type_rule=reduced_type("truth"),
        into=all_into,
        scalar=Rows(all_dims, recorded),
    )
    def over_all(m: Any, x: Array) -> Array:
        """Whether any (all) of the elements are true; NaN is true."""
        return truth(m, x, None, False)

    @reduction(
        f"{op}.dim(Tensor self, int dim, bool keepdim=False) -> Tensor",
        out="out",
        type_rule=reduced_type("truth"),
        into=dims_into,
        scalar=Rows(dims_at(1, op), recorded, flag_at(2)),
    )
    def over_dim(m: Any, x: Array, dim: int, keepdim: bool) -> Array:
        """Whether any (all) of the elements along ``dim`` are true."""
        return truth(m, x, axes_of(x.ndim, dim, op), keepdim)

    @reduction(
        f"{op}.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        out="dims_out",
        type_rule=reduced_dims_type,
        into=dims_into,
        scalar=Rows(listed_dims_at(1, op), recorded, flag_at(2)),
    )
    def over_dims(m: Any, x: Array, dim: list[int] | None, keepdim: bool) -> Array:
        """Whether any (all) of the elements over ``dim`` are true; an empty list reduces nothing, None everything."""
        axes = axes_of(x.ndim, dim, op)
        return truth(m, x, () if axes is None and dim is not None and not dim else axes, keepdim)

    out_form(f"{op}.all_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", op)


_declare_truth("any")
_declare_truth("all")


def _need_bool(x: Array, op: str) -> None:
    if x.dtype != BOOL_:
        raise DTypeError(f"{op}: expected a bool tensor, found {x.dtype}; compare it with something first")


@reduction("aten::_is_all_true(Tensor self) -> Tensor")
def is_all_true(m: Any, x: Array) -> Array:
    """Whether every element of a bool tensor is true."""
    _need_bool(x, "aten::_is_all_true")
    return x.all()


@reduction("aten::_is_any_true(Tensor self) -> Tensor")
def is_any_true(m: Any, x: Array) -> Array:
    """Whether some element of a bool tensor is true."""
    _need_bool(x, "aten::_is_any_true")
    return x.any()


# ------------------------------------------------------------------------------------------------------- counting


def _count(m: Any, x: Array, axes: tuple[int, ...] | None) -> Array:
    return m.add.reduce(x if x.dtype == BOOL_ else x != 0, axes, INT64)


def _count_into(m: Any, out: Array, x: Array, dim: Any) -> Any:
    axes = axes_of(x.ndim, dim, "aten::count_nonzero")
    if not fits(out, reduced_shape(x.shape, axes, False), INT64):
        return NotImplemented
    m.add.reduce(x if x.dtype == BOOL_ else x != 0, axes, INT64, out)
    return None


@reduction(
    "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor",
    type_rule=reduced_type("index"),
    into=_count_into,
    scalar=Rows(dims_at(1, "aten::count_nonzero"), row_bodies.count_nonzero),
)
def count_nonzero(m: Any, x: Array, dim: int | None) -> Array:
    """How many elements along ``dim`` (of all, when None) are not zero, int64."""
    return _count(m, x, axes_of(x.ndim, dim, "aten::count_nonzero"))


@reduction(
    "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
    out="dim_IntList_out",
    type_rule=reduced_type("index"),
    into=_count_into,
    scalar=Rows(dims_at(1, "aten::count_nonzero"), row_bodies.count_nonzero),
)
def count_nonzero_dims(m: Any, x: Array, dim: list[int]) -> Array:
    """How many elements over ``dim`` are not zero, int64; NaN counts."""
    return _count(m, x, axes_of(x.ndim, dim, "aten::count_nonzero"))


out_form("aten::count_nonzero.out(Tensor self, int? dim=None, *, Tensor(a!) out) -> Tensor(a!)", "aten::count_nonzero")


@reduction("aten::trace(Tensor self) -> Tensor", out="out")
def trace(m: Any, x: Array) -> Array:
    """Sum of the diagonal of a matrix; integers sum to int64."""
    if x.ndim != 2:
        raise ShapeError(f"aten::trace: expected a matrix, found a tensor of shape {x.shape}")
    if x.dtype == BOOL_:
        raise DTypeError("aten::trace: bool matrices have no trace; cast to an integer dtype first")
    return _sum(m, x.diagonal(), None, False, None)


@reduction("aten::sum_to_size(Tensor self, int[] size) -> Tensor", type_rule=sum_to_size_type)
def sum_to_size(m: Any, x: Array, size: list[int]) -> Array:
    """``x`` summed down to ``size``, the reverse of broadcasting; a copy when nothing has to be summed."""
    lead = x.ndim - len(size)
    if lead < 0 or any(s not in (1, x.shape[lead + i]) for i, s in enumerate(size)):
        raise ShapeError(f"aten::sum_to_size: a tensor of shape {x.shape} is no broadcast of {list(size)}")
    axes = tuple(range(lead)) + tuple(lead + i for i, s in enumerate(size) if s == 1 and x.shape[lead + i] != 1)
    if not axes and size:
        return x.copy()
    return _sum(m, x, axes, False, None).reshape(size)


@reduction(
    "aten::hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor",
    half="native",
    out="out",
)
def hash_tensor(m: Any, x: Array, dim: list[int], keepdim: bool, mode: int) -> Array:
    """Exclusive or, over ``dim``, of the elements' bits (floats as float64) as uint64."""
    if mode != 0:
        raise DTypeError(f"aten::hash_tensor: mode {mode} is unknown; only 0 (exclusive or) exists")
    floating = x.dtype.kind not in "bui"
    bits = x.astype(m.float64).view(m.uint64) if floating else x.astype(INT64).view(m.uint64)
    return m.bitwise_xor.reduce(bits, axes_of(x.ndim, dim, "aten::hash_tensor"), None, None, keepdim)
