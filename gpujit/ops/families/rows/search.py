"""Searching: bucketize, searchsorted, isin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import HALF_TYPES, INT64, kind_of
from gpujit.ir.values import Array
from gpujit.ops.into import by_parts, longest
from gpujit.ops.layout import cast, out_forms
from gpujit.ops.promotion import result_type
from gpujit.ops.registry import library
from gpujit.ops.rules.data import bucketed_type, is_in_type, searched_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

INT32 = np.dtype(np.int32)


def _ordered(x: Array, op: str) -> Array:
    """The array in a dtype that NumPy can order."""
    if kind_of(x.dtype) == 3:
        raise DTypeError(f"{op}: complex numbers have no order, found {x.dtype}")
    return x.astype("float32") if x.dtype in HALF_TYPES else x


def row_search(xp: Any, rows: Array, values: Array, right: bool) -> Array:
    """For each row its own binary search, all in step. Rows [..., N], values [..., M]."""
    n = rows.shape[-1]
    flat = rows.reshape(-1)
    base = 0 if rows.ndim == 1 else (xp.arange(flat.size // n) * n).reshape(*rows.shape[:-1], 1)
    low = xp.zeros(values.shape, INT64)
    high = xp.full(values.shape, n, dtype=INT64)
    for _ in range(n.bit_length()):
        middle = (low + high) >> 1
        probe = flat.take(base + xp.minimum(middle, n - 1))
        # Written as "not on the other side" so that NaN sorts behind everything.
        go_right = ~(probe > values) if right else ~(probe >= values)
        go_right &= low < high
        low = xp.where(go_right, middle + 1, low)
        high = xp.where(go_right, high, middle)
    return low


def _search(xp: Any, boundaries: Array, values: Any, int32: bool, right: bool, sorter: Array | None, op: str) -> Array:
    is_number = not hasattr(values, "dtype")
    v = xp.asarray(values) if is_number else values
    if boundaries.ndim == 0:
        raise ShapeError(f"{op}: the sorted sequence must have at least one dim")
    if is_number:
        common = result_type(boundaries, values)
        boundaries, v = cast(boundaries, common), cast(v, common)
    elif v.dtype != boundaries.dtype:
        raise DTypeError(
            f"{op}: values of dtype {v.dtype} and boundaries of dtype {boundaries.dtype} must have one dtype"
        )
    if boundaries.ndim > 1 and boundaries.shape[:-1] != v.shape[:-1]:
        raise ShapeError(
            f"{op}: boundaries of shape {list(boundaries.shape)} and values of shape {list(v.shape)} must agree in all "
            "dims but the last, or boundaries must have one dim"
        )
    boundaries, v = _ordered(boundaries, op), _ordered(v, op)
    if v.size == 0:
        return xp.zeros(v.shape, INT32 if int32 else INT64)
    if sorter is not None:
        if sorter.shape != boundaries.shape or sorter.dtype != INT64:
            raise ShapeError(f"{op}: sorter must be an int64 tensor of shape {list(boundaries.shape)}")
        n = boundaries.shape[-1]
        if sorter.size and (sorter.min() < 0 or sorter.max() >= n):
            raise ShapeError(f"{op}: sorter holds an index outside 0 to {n - 1}")
        first = (xp.arange(boundaries.size // max(n, 1)) * n).reshape(*boundaries.shape[:-1], 1)
        boundaries = boundaries.reshape(-1).take(sorter + first)
    if boundaries.shape[-1] == 0:
        found = xp.zeros(v.shape, INT64)
    elif boundaries.ndim == 1 and not (v.dtype.kind == "f" and ((v != v).any() or (boundaries != boundaries).any())):
        # NumPy sorts NaN where PyTorch doesn't, so those go the other way.
        found = xp.asarray(boundaries.searchsorted(v, side="right" if right else "left"))
    else:
        found = row_search(xp, boundaries, v, right)
    return found.astype(INT32 if int32 else INT64, copy=False)


def _declare_bucketize() -> None:
    op = "aten::bucketize"
    for overload, kind in (("Tensor", "Tensor"), ("Scalar", "Scalar")):

        def bucketize(xp: Any, x: Any, boundaries: Array, out_int32: bool, right: bool) -> Array:
            """For each value the number of its bucket between rising boundaries; ``right``: open on the left."""
            if boundaries.ndim != 1:
                raise ShapeError(f"{op}: boundaries must have one dim, found shape {list(boundaries.shape)}")
            return _search(xp, boundaries, x, out_int32, right, None, op)

        arguments = f"{kind} self, Tensor boundaries, *, bool out_int32=False, bool right=False"
        library(f"{op}.{overload}({arguments}) -> Tensor", half="native", type_rule=bucketed_type)(bucketize)
        out_forms(f"{op}.{overload}_out({arguments}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.{overload}")


_declare_bucketize()


def _declare_searchsorted() -> None:
    op = "aten::searchsorted"
    rest = "bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None"
    for kind in ("Tensor", "Scalar"):

        def searchsorted(
            xp: Any, sequence: Array, x: Any, out_int32: bool, right: bool, side: str | None, sorter: Array | None
        ) -> Array:
            """For each value where it would go into the sorted last dim of ``sorted_sequence``."""
            if side is not None and side not in ("left", "right"):
                raise OpError(f"{op}: side must be 'left' or 'right', found {side!r}")
            if side == "left" and right:
                raise OpError(f"{op}: side 'left' and right=True contradict each other; give one of them")
            return _search(xp, sequence, x, out_int32, right or side == "right", sorter, op)

        arguments = f"Tensor sorted_sequence, {kind} self, *, {rest}"
        library(f"{op}.{kind}({arguments}) -> Tensor", half="native", type_rule=searched_type)(searchsorted)
        out_forms(f"{op}.{kind}_out({arguments}, Tensor(a!) out) -> Tensor(a!)", of=f"{op}.{kind}")


_declare_searchsorted()


def _element_axis(elements: Any, tests: Any, *options: Any) -> int | None:
    return longest(elements.shape) if hasattr(elements, "dtype") else None


def _declare_isin() -> None:
    op = "aten::isin"
    options = "*, bool assume_unique=False, bool invert=False"

    def isin(xp: Any, elements: Any, tests: Any, assume_unique: bool, invert: bool) -> Array:
        """For each element whether it is among the test elements; ``invert`` answers the opposite."""
        common = result_type(elements, tests)
        e = cast(xp.asarray(elements), common)
        t = cast(xp.asarray(tests), common).reshape(-1)
        if common in HALF_TYPES:
            e, t = e.astype("float32"), t.astype("float32")
        if t.size <= 16:
            found = (e[..., None] == t).any(axis=-1)
            return xp.asarray(~found if invert else found)
        return xp.asarray(xp.isin(e, t, invert=invert))

    bodies: tuple[tuple[str, str, Callable[..., Array]], ...] = (
        ("Tensor_Tensor", "Tensor elements, Tensor test_elements", isin),
        ("Tensor_Scalar", "Tensor elements, Scalar test_element", isin),
        ("Scalar_Tensor", "Scalar element, Tensor test_elements", isin),
    )
    for overload, arguments, body in bodies:
        library(
            f"{op}.{overload}({arguments}, {options}) -> Tensor",
            half="native",
            out=f"{overload}_out",
            into=by_parts(_element_axis) if body is isin and overload[0] == "T" else None,
            type_rule=is_in_type,
        )(body)


_declare_isin()
