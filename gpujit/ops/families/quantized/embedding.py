"""Embedding tables quantised row by row: packed parameters, the row-wise byte format, lookups and bags.

A row in the byte format holds its integers and then, as two float32 (two float16 for 4 and 2 bits), the step and the
smallest value: ``real = q * step + smallest``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.values import Array, QTensor
from gpujit.ops.families.quantized.qtensor import check_quantised, dequantize
from gpujit.ops.registry import library
from gpujit.support.errors import DTypeError, OpError, ShapeError

_PACKED = "__torch__.torch.classes.quantized.EmbeddingPackedParamsBase"
_BAG_TAIL = (
    "Tensor? offsets=None, bool scale_grad_by_freq=False, int mode=0, bool pruned_weights=False, "
    "Tensor? per_sample_weights=None, Tensor? compressed_indices_mapping=None, "
    "bool include_last_offset=False) -> Tensor"
)


@dataclass(eq=False)
class EmbeddingPackedParams:
    """A table quantised by rows; ``bits`` is 8 or 4."""

    weight: QTensor
    bits: int = 8

    # What programs call on such objects.
    script_methods: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "unpack": lambda p: p.weight, "bit_rate": lambda p: p.bits, "version": lambda p: 1,
    }  # fmt: skip

    @property
    def state(self) -> tuple[Any, ...]:
        """What an archive stores."""
        return 1, [self.weight], [], [self.bits]


# ------------------------------------------------------------------------------------------------- the byte format


def _encode(xp: Any, op: str, weight: Array, bits: int) -> Array:
    if getattr(weight, "dtype", None) != FLOAT32 or weight.ndim < 2:
        raise DTypeError(f"{op}: weight must be a float32 tensor of at least 2 dims")
    levels = (1 << bits) - 1
    low = weight.min(axis=-1, keepdims=True)
    span = weight.max(axis=-1, keepdims=True) - low
    if bits == 8:
        # The step is kept away from zero, so that a constant row does not divide by it.
        inverse = np.float32(255) / (span + np.float32(1e-8))
        q = xp.rint((weight - low) * inverse).astype("uint8")
        tail = xp.concatenate([span / np.float32(255), low], axis=-1).astype(FLOAT32)
        return xp.concatenate([q, tail.view("uint8")], axis=-1)
    low = low.astype("float16").astype(FLOAT32)
    top = weight.max(axis=-1, keepdims=True)
    step = ((top - low) / np.float32(levels)).astype("float16").astype(FLOAT32)
    step[step == 0] = 1
    q = xp.rint((weight - low) * (np.float32(1) / step)).clip(0, levels).astype("uint8")
    each = 8 // bits
    if weight.shape[-1] % each:
        raise ShapeError(f"{op}: rows of {weight.shape[-1]} elements do not fill bytes of {each}")
    packed = sum(q[..., i::each] << (bits * i) for i in range(each)).astype("uint8")
    tail = xp.concatenate([step, low], axis=-1).astype("float16")
    return xp.concatenate([packed, tail.view("uint8")], axis=-1)


def _decode(xp: Any, op: str, rows: Array, bits: int) -> Array:
    """The float32 rows that bytes stand for."""
    if rows.dtype != np.uint8 or not rows.ndim:
        raise DTypeError(f"{op}: the packed weight must be uint8, it is {rows.dtype}")
    width = 8 if bits == 8 else 4
    if rows.shape[-1] <= width:
        raise ShapeError(f"{op}: rows of {rows.shape[-1]} bytes are too short")
    q = rows[..., :-width]
    tail = xp.ascontiguousarray(rows[..., -width:]).view("float32" if bits == 8 else "float16").astype(FLOAT32)
    if bits != 8:
        each = 8 // bits
        wide = xp.empty((*q.shape[:-1], q.shape[-1] * each), "uint8")
        for i in range(each):
            wide[..., i::each] = (q >> (bits * i)) & ((1 << bits) - 1)
        q = wide
    return q.astype(FLOAT32) * tail[..., :1] + tail[..., 1:]


# ------------------------------------------------------------------------------------------------- bags


def _check_indices(op: str, indices: Array, rows: int) -> None:
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"{op}: indices must be integers, they are {indices.dtype}")
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= rows):
        raise OpError(f"{op}: an index is outside the table of {rows} rows")


def _bag(
    xp: Any, op: str, rows: Any, count: int, indices: Array, offsets: Any, mode: int, weights: Any, last: bool
) -> Array:
    """Sums (mode 0) or means (mode 1) of rows; ``rows`` gives the float rows at indices."""
    if mode not in (0, 1):
        raise OpError(f"{op}: mode {mode} is not supported; use 0 (sum) or 1 (mean)")
    _check_indices(op, indices, count)
    if indices.ndim == 2:
        if offsets is not None:
            raise ShapeError(f"{op}: two-dimensional indices are bags already; pass no offsets")
        starts = xp.arange(indices.shape[0]) * indices.shape[1]
        sizes = xp.full(indices.shape[0], indices.shape[1])
        indices = indices.reshape(-1)
        weights = None if weights is None else weights.reshape(-1)
    else:
        if offsets is None:
            raise ShapeError(f"{op}: one-dimensional indices need offsets")
        starts = offsets[:-1] if last else offsets
        ends = xp.concatenate([offsets[1:], xp.asarray([indices.shape[0]], dtype=offsets.dtype)])
        sizes = (ends[: starts.shape[0]] if not last else offsets[1:]) - starts
    picked = rows(indices)
    if weights is not None:
        picked = picked * weights[:, None].astype(FLOAT32)
    y = xp.zeros((starts.shape[0], picked.shape[1]), FLOAT32)
    bags = xp.repeat(xp.arange(starts.shape[0]), sizes)
    xp.add.at(y, bags, picked[: bags.shape[0]])
    if mode == 1:
        y /= xp.maximum(sizes, 1)[:, None].astype(FLOAT32)
    return y


def _declare_rowwise(kind: str, bits: int) -> None:
    name = f"quantized::embedding_bag_{kind}"
    extra = "" if bits == 8 else ", bool optimized_qparams=False, int nbins=200, float ratio=0.16"

    @library(f"{name}_prepack(Tensor weight{extra}) -> Tensor", half="native")
    def prepack(xp: Any, weight: Array, *options: Any) -> Array:
        """The table in the row-wise byte format."""
        if options and options[0]:
            raise OpError(f"{name}_prepack: optimized_qparams=True is not supported")
        return _encode(xp, f"{name}_prepack", weight, bits)

    @library(f"{name}_unpack(Tensor weight) -> Tensor", half="native")
    def unpack(xp: Any, weight: Array) -> Array:
        """The float32 table that bytes stand for."""
        return _decode(xp, f"{name}_unpack", weight, bits)

    @library(f"{name}_rowwise_offsets(Tensor weight, Tensor indices, {_BAG_TAIL}", half="native")
    def bag(
        xp: Any,
        weight: Array,
        indices: Array,
        offsets: Array | None,
        scale_grad_by_freq: bool,
        mode: int,
        pruned_weights: bool,
        per_sample_weights: Array | None,
        compressed: Array | None,
        include_last_offset: bool,
    ) -> Array:
        """Sums of rows of a table in the byte format, one for each bag."""
        op = f"{name}_rowwise_offsets"
        if pruned_weights and compressed is not None and compressed.size > 1:
            raise OpError(f"{op}: pruned tables are not supported")
        # PyTorch's kernel sums whatever mode says.
        return _bag(
            xp, op, lambda i: _decode(xp, op, weight[i], bits), weight.shape[0], indices, offsets, 0,
            per_sample_weights, include_last_offset,
        )  # fmt: skip


_declare_rowwise("byte", 8)
_declare_rowwise("4bit", 4)
_declare_rowwise("2bit", 2)


# ------------------------------------------------------------------------------------------------- packed parameters


def _table(op: str, p: Any) -> QTensor:
    if not isinstance(p, EmbeddingPackedParams):
        raise OpError(f"{op}: weight must be packed parameters of an embedding")
    return p.weight


def _rows(xp: Any, w: QTensor, indices: Array) -> Array:
    """The float32 rows at ``indices``; only they are dequantised."""
    q = QTensor(w.values[indices], w.dtype, w.scale[indices], w.zero_point[indices], 0)
    return dequantize(xp, q)


@library(f"quantized::embedding_bag_prepack(Tensor weight) -> {_PACKED} W_prepack", half="native")
def embedding_bag_prepack(xp: Any, weight: Any) -> EmbeddingPackedParams:
    """Packed parameters of a table quantised by rows."""
    check_quantised("quantized::embedding_bag_prepack", weight=weight)
    if weight.values.ndim != 2 or weight.axis != 0:
        raise ShapeError("quantized::embedding_bag_prepack: weight must be a matrix quantised per row")
    return EmbeddingPackedParams(weight)


@library(f"quantized::embedding_bag_unpack({_PACKED} W_prepack) -> Tensor W_origin", half="native")
def embedding_bag_unpack(xp: Any, p: Any) -> QTensor:
    """The quantised table of packed parameters."""
    return _table("quantized::embedding_bag_unpack", p)


def _declare_lookup(kind: str) -> None:
    @library(
        f"quantized::embedding_{kind}({_PACKED} weight, Tensor indices, bool pruned_weights=False) -> Tensor",
        half="native",
    )
    def lookup(xp: Any, p: Any, indices: Array, pruned_weights: bool) -> Array:
        """The float32 rows at the indices."""
        op = f"quantized::embedding_{kind}"
        w = _table(op, p)
        _check_indices(op, indices, w.shape[0])
        return _rows(xp, w, indices.reshape(-1)).reshape((*indices.shape, w.shape[1]))

    @library(f"quantized::embedding_bag_{kind}({_PACKED} weight, Tensor indices, {_BAG_TAIL}", half="native")
    def bag(
        xp: Any,
        p: Any,
        indices: Array,
        offsets: Array | None,
        scale_grad_by_freq: bool,
        mode: int,
        pruned_weights: bool,
        per_sample_weights: Array | None,
        compressed: Array | None,
        include_last_offset: bool,
    ) -> Array:
        """Sums of rows, one for each bag."""
        op = f"quantized::embedding_bag_{kind}"
        w = _table(op, p)
        return _bag(
            xp, op, lambda i: _rows(xp, w, i), w.shape[0], indices, offsets, 0, per_sample_weights, include_last_offset
        )  # fmt: skip


_declare_lookup("byte")
_declare_lookup("4bit")
