"""Rows of a table by index: embedding, embedding_renorm_ and the bags of embedding_bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, INT64
from gpujit.ir.values import Array
from gpujit.ops.families.memory.indexing import require_range, take_rows, taken
from gpujit.ops.layout import cast, out_forms
from gpujit.ops.registry import library
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.data import bags_type, embedding_type
from gpujit.support.errors import DTypeError, OpError, ShapeError


def _check_indices(indices: Array, op: str) -> None:
    if indices.dtype != INT64 and indices.dtype != np.int32:
        raise DTypeError(f"{op}: indices must be int64 or int32, found {indices.dtype}")


def _embedding_into(xp: Any, out: Array, weight: Array, indices: Array, *options: Any) -> Any:
    if weight.ndim != 2 or indices.dtype.kind != "i":
        return NotImplemented
    return taken(out, weight, indices, 0, 0)


@library(
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False) -> Tensor",
    half="native",
    out="out",
    type_rule=embedding_type,
    into=_embedding_into,
)
def embedding(
    xp: Any, weight: Array, indices: Array, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Array:
    """The rows of ``weight [N, ...]`` at each index: the shape of ``indices`` followed by that of a row."""
    op = "aten::embedding"
    _check_indices(indices, op)
    if weight.ndim != 2:
        raise ShapeError(f"{op}: weight must be a matrix, found shape {list(weight.shape)}")
    return take_rows(weight, indices, 0, op)


@library(
    "aten::embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)",
    half="native",
)
def embedding_renorm_in_place(xp: Any, weight: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """``self`` with those of the named rows scaled down whose norm exceeds ``max_norm``."""
    op = "aten::embedding_renorm_"
    _check_indices(indices, op)
    require_range(indices, weight.shape[0], 0, op, 0)
    used = xp.unique(indices)
    rows = weight[used]
    rows = rows.astype(FLOAT32) if rows.dtype in HALF_TYPES else rows
    if norm_type == float("inf"):
        norms = abs(rows).max(axis=1) if rows.size else xp.zeros(len(rows))
    else:
        norms = (abs(rows) ** norm_type).sum(axis=1) ** (1.0 / norm_type)
    large = norms > max_norm
    # The small number keeps the norm below the limit after rounding, as in PyTorch.
    scale = (max_norm / (norms[large] + 1e-7)).astype(rows.dtype)
    weight[used[large]] = cast(rows[large] * scale[:, None], weight.dtype)
    return weight


@library(
    "aten::embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
    half="native",
    out="out",
    type_rule=same_type,
)
def embedding_renorm(xp: Any, weight: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """A copy of ``self`` with those of the named rows scaled down whose norm exceeds ``max_norm``."""
    return embedding_renorm_in_place(xp, weight.copy(), indices, max_norm, norm_type)


_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_starts(offsets: Array, count: int, include_last: bool, op: str) -> Array:
    """Bounds of the bags, one more than there are bags. Raises ShapeError."""
    if offsets.ndim != 1:
        raise ShapeError(f"{op}: offsets must have one dim, found shape {list(offsets.shape)}")
    if include_last and offsets.size == 0:
        raise ShapeError(f"{op}: include_last_offset needs at least one offset")
    if offsets.size:
        if int(offsets[0]) != 0:
            raise ShapeError(f"{op}: the first offset must be 0, found {int(offsets[0])}")
        if int(offsets[-1]) > count:
            raise ShapeError(f"{op}: the last offset {int(offsets[-1])} exceeds the {count} indices")
        if (offsets[1:] < offsets[:-1]).any():
            raise ShapeError(f"{op}: offsets must not fall")
    bounds = np.empty(offsets.size + (0 if include_last else 1), INT64)
    bounds[: offsets.size] = offsets if isinstance(offsets, np.ndarray) else offsets.get()
    if not include_last:
        bounds[-1] = count
    return bounds


def bags(
    xp: Any,
    weight: Array,
    indices: Array,
    offsets: Array,
    mode: int,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int | None,
    op: str,
) -> tuple[Array, Array, Array, Array]:
    """Sum, mean (1) or maximum (2) of the rows in each bag; the bag of each index, bag sizes, indices of maxima.

    A bag is ``indices[offsets[i]:offsets[i + 1]]``; indices equal to ``padding_idx`` don't count.
    Empty bags give zeros.
    """
    _check_indices(indices, op)
    if weight.ndim != 2:
        raise ShapeError(f"{op}: weight must be a matrix, found shape {list(weight.shape)}")
    if weight.dtype.kind in "biuc":
        raise DTypeError(f"{op}: weight must be float16, bfloat16, float32 or float64, found {weight.dtype}")
    if indices.ndim != 1:
        raise ShapeError(f"{op}: indices must have one dim, found shape {list(indices.shape)}")
    if mode not in (_SUM, _MEAN, _MAX):
        raise OpError(f"{op}: mode must be 0 (sum), 1 (mean) or 2 (max), found {mode}")
    if per_sample_weights is not None and (mode != _SUM or per_sample_weights.shape != indices.shape):
        raise OpError(f"{op}: per_sample_weights need mode sum and the shape of indices {list(indices.shape)}")
    bounds = xp.asarray(_bag_starts(offsets, indices.size, include_last_offset, op))
    count = bounds.size - 1
    rows = take_rows(weight, indices, 0, op)
    rows = rows.astype(FLOAT32) if rows.dtype in HALF_TYPES else rows
    bag_of = xp.repeat(xp.arange(count), bounds[1:] - bounds[:-1])
    rows = rows[: bag_of.size]
    used = indices[: bag_of.size]
    if per_sample_weights is not None:
        rows = rows * cast(per_sample_weights[: bag_of.size], rows.dtype)[:, None]
    if padding_idx is not None and padding_idx >= 0:
        kept = used != padding_idx
        rows, used, kept_bag = rows[kept], used[kept], bag_of[kept]
    else:
        kept_bag = bag_of
    sizes = xp.bincount(kept_bag, minlength=count).astype(INT64)
    y = xp.zeros((count, weight.shape[1]), rows.dtype)
    filled_bags = sizes.nonzero()[0]
    starts = (xp.cumsum(sizes) - sizes)[filled_bags]
    largest = xp.zeros((count, weight.shape[1]), indices.dtype) if mode == _MAX else xp.zeros(0, indices.dtype)
    if filled_bags.size:
        if mode == _MAX:
            top = xp.maximum.reduceat(rows, starts, axis=0)
            y[filled_bags] = top
            # The first row of a bag that reaches the maximum: the lowest position among those that do.
            reached = rows == y[kept_bag]
            position = xp.where(reached, xp.arange(len(rows))[:, None], len(rows) - 1)
            largest[filled_bags] = used[xp.minimum.reduceat(position, starts, axis=0)]
        else:
            y[filled_bags] = xp.add.reduceat(rows, starts, axis=0)
            if mode == _MEAN:
                y /= xp.maximum(sizes, 1)[:, None].astype(y.dtype)
    return cast(y, weight.dtype), bag_of.astype(indices.dtype), sizes.astype(indices.dtype), largest


def _declare_bags() -> None:
    tail = "bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, "
    head = "Tensor weight, Tensor indices, Tensor offsets, "
    returns = "(Tensor, Tensor, Tensor, Tensor)"

    def body(op: str) -> Callable[..., tuple[Array, ...]]:
        def bagged(
            xp: Any,
            weight: Array,
            indices: Array,
            offsets: Array,
            scale_grad_by_freq: bool,
            mode: int,
            sparse: bool,
            per_sample_weights: Array | None,
            include_last_offset: bool,
            padding_idx: int | None = None,
        ) -> tuple[Array, ...]:
            """The bags, and for each index its bag, for each bag its size and the indices of its maxima."""
            if padding_idx is not None and padding_idx < 0 and op == "aten::embedding_bag":
                padding_idx += weight.shape[0]
            return bags(xp, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx, op)

        return bagged

    library(
        f"aten::embedding_bag({head}{tail}bool include_last_offset=False) -> {returns}",
        half="native",
        type_rule=bags_type,
    )(body("aten::embedding_bag"))
    library(
        f"aten::embedding_bag.padding_idx({head}bool scale_grad_by_freq, int mode, bool sparse, "
        f"Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> {returns}",
        half="native",
        type_rule=bags_type,
    )(body("aten::embedding_bag"))
    outs = "*, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3"
    for name in ("_embedding_bag", "_embedding_bag_forward_only"):
        arguments = f"{head}{tail}bool include_last_offset=False, int padding_idx=-1"
        library(f"aten::{name}({arguments}) -> {returns}", half="native", type_rule=bags_type)(body(f"aten::{name}"))
        out_forms(
            f"aten::{name}.out({arguments}, {outs}) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
            of=f"aten::{name}",
        )


_declare_bags()
