"""Sorting along a dim: sort, argsort, msort, topk. NaN counts as the largest value; equal values keep their order."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import HALF_TYPES, INT64
from gpujit.ir.values import Array
from gpujit.ops.into import fits
from gpujit.ops.layout import out_forms, wrap_dim
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import order_type, sorted_type, topk_type
from gpujit.support.errors import DTypeError, ShapeError

# Below this size a full stable sort costs less than partitioning and sorting the parts.
_SMALL = 64


def _key(x: Array, op: str) -> Array:
    """The values in a dtype that NumPy can order."""
    if x.dtype.kind == "c":
        raise DTypeError(f"{op}: complex numbers have no order, found {x.dtype}")
    return x.astype("float32") if x.dtype in HALF_TYPES else x


def _order(key: Array, descending: bool) -> Array:
    """Stable order along the last dim; NaN last, or first when descending."""
    if not descending:
        return key.argsort(axis=-1, kind="stable")
    # Sorting the reversed row and reading it backwards keeps equal values in their order.
    backwards = key[..., ::-1].argsort(axis=-1, kind="stable")[..., ::-1]
    return key.shape[-1] - 1 - backwards


def pick_last(xp: Any, x: Array, order: Array) -> Array:
    """The elements of each row (last dim) at indices."""
    if not x.size:
        return xp.empty(order.shape, x.dtype)
    if x.ndim == 1:
        return x.take(order)
    n = x.shape[-1]
    first = (xp.arange(x.size // n) * n).reshape(*x.shape[:-1], 1)
    return x.reshape(-1).take(order + first)


def sorted_along(xp: Any, x: Array, dim: int, descending: bool, op: str) -> tuple[Array, Array]:
    """Sorted values along ``dim`` and where they came from."""
    d = wrap_dim(dim, x.ndim, op)
    if x.ndim == 0:
        _key(x, op)
        return x.copy(), xp.zeros((), INT64)
    last = d == x.ndim - 1
    rows = x if last else x.swapaxes(d, -1)
    order = _order(_key(rows, op), descending)
    values = pick_last(xp, rows, order)
    if not last:
        values, order = values.swapaxes(d, -1), order.swapaxes(d, -1)
    order = order.astype(INT64, copy=False)
    return (values if last else values.copy()), (order if order.flags.c_contiguous else order.copy())


def _sorted_into(xp: Any, values: Array | None, indices: Array | None, x: Array, dim: int, descending: bool) -> Any:
    """Sorted values, or where they came from, or both, in given arrays."""
    d = wrap_dim(dim, x.ndim, "aten::sort")
    if x.ndim == 0 or (values is not None and not fits(values, x.shape, x.dtype)):
        return NotImplemented
    if indices is not None and not fits(indices, x.shape, INT64):
        return NotImplemented
    rows = x.swapaxes(d, -1)
    order = _order(_key(rows, "aten::sort"), descending)
    if indices is not None:
        indices.swapaxes(d, -1)[...] = order
    if values is not None:
        if d == x.ndim - 1 and x.size and x.flags.c_contiguous and order.dtype == INT64:
            n = x.shape[d]
            order += (xp.arange(x.size // n) * n).reshape(*x.shape[:-1], 1)
            x.reshape(-1).take(order, out=values, mode="clip")
        else:
            values.swapaxes(d, -1)[...] = pick_last(xp, rows, order)
    return None


def _sort_into(xp: Any, out: tuple[Array, Array], x: Array, dim: int, descending: bool) -> Any:
    return _sorted_into(xp, *out, x, dim, descending)


def _sort_stable_into(
    xp: Any, out: tuple[Array, Array], x: Array, stable: bool | None, dim: int, descending: bool
) -> Any:
    return _sorted_into(xp, *out, x, dim, descending)


def _argsort_into(xp: Any, out: Array, x: Array, dim: int, descending: bool) -> Any:
    return _sorted_into(xp, None, out, x, dim, descending)


def _argsort_stable_into(xp: Any, out: Array, x: Array, stable: bool, dim: int, descending: bool) -> Any:
    return _sorted_into(xp, None, out, x, dim, descending)


def _msort_into(xp: Any, out: Array, x: Array) -> Any:
    return _sorted_into(xp, out, None, x, 0, False)


def _declare_sort() -> None:
    def sort(xp: Any, x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
        """Sorted values and their indices."""
        return sorted_along(xp, x, dim, descending, "aten::sort")

    def sort_stable(xp: Any, x: Array, stable: bool | None, dim: int, descending: bool) -> tuple[Array, Array]:
        """Sorted values and their indices; the sort is always stable."""
        return sorted_along(xp, x, dim, descending, "aten::sort")

    def argsort(xp: Any, x: Array, dim: int, descending: bool) -> Array:
        """The indices that sort the tensor."""
        return sorted_along(xp, x, dim, descending, "aten::argsort")[1]

    def argsort_stable(xp: Any, x: Array, stable: bool, dim: int, descending: bool) -> Array:
        """The indices that sort the tensor; the sort is always stable."""
        return sorted_along(xp, x, dim, descending, "aten::argsort")[1]

    plain, stable = (
        "Tensor self, int dim=-1, bool descending=False",
        "Tensor self, *, bool? stable, int dim=-1, bool descending=False",
    )
    results, outs = "(Tensor values, Tensor indices)", "Tensor(a!) values, Tensor(b!) indices"
    written = "(Tensor(a!) values, Tensor(b!) indices)"
    library(f"aten::sort({plain}) -> {results}", half="native", type_rule=sorted_type, into=_sort_into)(sort)
    library(f"aten::sort.stable({stable}) -> {results}", half="native", type_rule=sorted_type, into=_sort_stable_into)(
        sort_stable
    )
    out_forms(f"aten::sort.values_stable({stable}, {outs}) -> {written}", of="aten::sort.stable")
    out_forms(f"aten::sort.values({plain}, *, {outs}) -> {written}", of="aten::sort")
    library(f"aten::argsort({plain}) -> Tensor", half="native", type_rule=order_type, into=_argsort_into)(argsort)
    library(
        f"aten::argsort.stable({stable.replace('bool?', 'bool')}) -> Tensor",
        half="native",
        out="stable_out",
        type_rule=order_type,
        into=_argsort_stable_into,
    )(argsort_stable)


_declare_sort()


@library("aten::msort(Tensor self) -> Tensor", half="native", out="out", type_rule=same_type, into=_msort_into)
def msort(xp: Any, x: Array) -> Array:
    """The values sorted along the first dim."""
    return sorted_along(xp, x, 0, False, "aten::msort")[0]


@library(
    "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) "
    "-> (Tensor values, Tensor indices)",
    half="native",
    type_rule=topk_type,
)
def topk(xp: Any, x: Array, k: int, dim: int, largest: bool, in_order: bool) -> tuple[Array, Array]:
    """The ``k`` largest (or smallest) values along a dim, best first, and their indices."""
    op = "aten::topk"
    d = wrap_dim(dim, x.ndim, op)
    n = x.shape[d] if x.ndim else 1
    if not 0 <= k <= n:
        raise ShapeError(f"{op}: k {k} is out of range for dim {dim} of size {n}")
    if x.ndim == 0:
        return x.copy(), xp.zeros((), INT64)
    last = d == x.ndim - 1
    rows = x if last else x.swapaxes(d, -1)
    key = _key(rows, op)
    if n <= _SMALL or k * 4 >= n:
        order = _order(key, largest)[..., :k]
    else:
        # NaN partitions to the end, so it is among the largest, as it should be.
        part = key.argpartition(n - k, axis=-1)[..., n - k :] if largest else key.argpartition(k - 1, axis=-1)[..., :k]
        part.sort(axis=-1)
        order = pick_last(xp, part, _order(pick_last(xp, key, part), largest))
    values = pick_last(xp, rows, order)
    if not last:
        values, order = values.swapaxes(d, -1).copy(), order.swapaxes(d, -1)
    order = order.astype(INT64, copy=False)
    return values, (order if order.flags.c_contiguous else order.copy())


out_forms(
    "aten::topk.values(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True, *, Tensor(a!) values, "
    "Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)",
    of="aten::topk",
)
