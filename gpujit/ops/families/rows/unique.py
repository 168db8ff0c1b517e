"""Distinct elements and slices, in rising order or one for each run. NaN equals nothing, not even itself."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import BOOL_, HALF_TYPES, INT64
from gpujit.ir.values import Array
from gpujit.ops.layout import out_forms, wrap_dim
from gpujit.ops.registry import library
from gpujit.ops.rules.data import unique_consecutive_type, unique_dim_type, unique_pair_type, unique_type
from gpujit.support.errors import DTypeError, ShapeError


def _runs(xp: Any, different: Array, n: int) -> tuple[Array, Array, Array]:
    """Where runs start, which run each element is in, and how long runs are; ``different[i]`` parts i and i + 1."""
    first = xp.empty(n, BOOL_)
    if n:
        first[0] = True
        first[1:] = different
    starts = first.nonzero()[0]
    bounds = xp.empty(starts.size + 1, INT64)
    bounds[:-1] = starts
    bounds[-1] = n
    return starts, xp.cumsum(first, dtype=INT64) - 1, bounds[1:] - bounds[:-1]


def _key(x: Array, op: str) -> Array:
    if x.dtype.kind == "c":
        raise DTypeError(f"{op}: complex numbers have no order, found {x.dtype}")
    return x.astype("float32") if x.dtype in HALF_TYPES else x


def _no_result(xp: Any) -> Array:
    return xp.empty(0, INT64)


def distinct(xp: Any, x: Array, with_inverse: bool, with_counts: bool, op: str) -> tuple[Array, Array, Array]:
    """Distinct elements in rising order, the place of each element among them, and how often each occurs."""
    flat = x.reshape(-1)
    key = _key(flat, op)
    if with_inverse:
        order = key.argsort(kind="stable")
        key = key[order]
    else:
        order = None
        key = key.copy() if key is flat else key
        key.sort()
    starts, run_of, counts = _runs(xp, key[1:] != key[:-1], key.size)
    inverse = _no_result(xp)
    if order is not None:
        inverse = xp.empty(x.shape, INT64)
        inverse.reshape(-1)[order] = run_of
    return key[starts].astype(x.dtype, copy=False), inverse, counts if with_counts else _no_result(xp)


@library(
    "aten::_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)",
    half="native",
    type_rule=unique_pair_type,
)
def unique_pair(xp: Any, x: Array, in_order: bool, return_inverse: bool) -> tuple[Array, Array]:
    """Distinct elements in rising order, and the place of each element among them."""
    return distinct(xp, x, return_inverse, False, "aten::_unique")[:2]


@library(
    "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
    type_rule=unique_type,
)
def unique(xp: Any, x: Array, in_order: bool, return_inverse: bool, return_counts: bool) -> tuple[Array, Array, Array]:
    """Distinct elements in rising order, the place of each element among them, and how often each occurs."""
    return distinct(xp, x, return_inverse, return_counts, "aten::_unique2")


def _slices(xp: Any, x: Array, dim: int, op: str) -> tuple[int, Array]:
    """The dim, and the slices along it as rows."""
    d = wrap_dim(dim, x.ndim, op)
    if x.ndim == 0:
        raise ShapeError(f"{op}: a 0-dim tensor has no slices")
    n = x.shape[d]
    if x.size == 0 and (n or sum(1 for s in x.shape if s == 0) != 1):
        raise ShapeError(f"{op}: slices of shape {list(x.shape)} along dim {dim} are empty and can't be told apart")
    moved = x if d == 0 else x.transpose((d, *range(d), *range(d + 1, x.ndim)))
    return d, moved.reshape(n, -1) if n else moved.reshape(0, 1)


def _slice_runs(xp: Any, x: Array, d: int, rows: Array, order: Array | None) -> tuple[Array, Array, Array]:
    """Distinct slices, the run of each slice and lengths of runs; PyTorch gives the last two unasked."""
    ordered = rows if order is None else rows[order]
    different = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts, run_of, counts = _runs(xp, different, len(rows))
    if order is None:
        return x.take(starts, axis=d), run_of, counts
    inverse = xp.empty(len(rows), INT64)
    inverse[order] = run_of
    return x.take(order[starts], axis=d), inverse, counts


@library(
    "aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
    type_rule=unique_dim_type,
)
def unique_dim(
    xp: Any, x: Array, dim: int, in_order: bool, return_inverse: bool, return_counts: bool
) -> tuple[Array, Array, Array]:
    """Distinct slices along a dim in rising order, the place of each slice among them, and how often each occurs."""
    d, rows = _slices(xp, x, dim, "aten::unique_dim")
    key = _key(rows, "aten::unique_dim")
    order = xp.lexsort(key.T[::-1]) if key.shape[1] else xp.arange(len(key))
    return _slice_runs(xp, x, d, key, order)


@library(
    "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
    type_rule=unique_consecutive_type,
)
def unique_consecutive(
    xp: Any, x: Array, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Array, Array, Array]:
    """One element (or slice along a dim) for each run of equal ones, the run of each, and lengths of runs."""
    if dim is not None:
        d, rows = _slices(xp, x, dim, "aten::unique_consecutive")
        return _slice_runs(xp, x, d, rows, None)
    flat = x.reshape(-1)
    starts, run_of, counts = _runs(xp, flat[1:] != flat[:-1], flat.size)
    inverse = run_of.reshape(x.shape) if return_inverse else _no_result(xp)
    return flat[starts], inverse, counts if return_counts else _no_result(xp)


@library(
    "aten::unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
    type_rule=unique_dim_type,
)
def unique_dim_consecutive(
    xp: Any, x: Array, dim: int, return_inverse: bool, return_counts: bool
) -> tuple[Array, Array, Array]:
    """One slice along a dim for each run of equal ones, the run of each slice, and lengths of runs."""
    d, rows = _slices(xp, x, dim, "aten::unique_dim_consecutive")
    return _slice_runs(xp, x, d, rows, None)


def _declare_outs() -> None:
    three = "*, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
    inverse, counts = "bool return_inverse=False", "bool return_counts=False"
    out_forms(
        f"aten::_unique.out(Tensor self, bool sorted=True, {inverse}, *, Tensor(a!) out0, Tensor(b!) out1) "
        "-> (Tensor(a!), Tensor(b!))",
        f"aten::_unique2.out(Tensor self, bool sorted=True, {inverse}, {counts}, {three}",
        f"aten::unique_dim.out(Tensor self, int dim, bool sorted=True, {inverse}, {counts}, {three}",
        f"aten::unique_consecutive.out(Tensor self, {inverse}, {counts}, int? dim=None, {three}",
        f"aten::unique_dim_consecutive.out(Tensor self, int dim, {inverse}, {counts}, {three}",
        of=(
            "aten::_unique",
            "aten::_unique2",
            "aten::unique_dim",
            "aten::unique_consecutive",
            "aten::unique_dim_consecutive",
        ),
    )


_declare_outs()
