"""Reductions over stretches of a dim that are given by their lengths or offsets."""

from __future__ import annotations

from math import prod
from typing import Any

from gpujit.ir.dtypes import INT64
from gpujit.ir.values import Array
from gpujit.ops.registry import reduction
from gpujit.ops.rules.data import segment_reduce_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


@reduction(
    "aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? "
    "offsets=None, "
    "int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor",
    out="out",
    type_rule=segment_reduce_type,
)
def segment_reduce(
    m: Any,
    x: Array,
    how: str,
    lengths: Array | None,
    indices: Array | None,
    offsets: Array | None,
    axis: int,
    unsafe: bool,
    initial: float | None,
) -> Array:
    """The sum, mean, prod, max or min of each segment of ``axis``; segments lie one after another.

    ``lengths [.., S]`` or ``offsets [.., S + 1]`` have the dims of ``x`` before ``axis`` in front.
    """
    op = "aten::segment_reduce"
    if how not in _STARTS:
        raise OpError(f"{op}: reduction {how!r} is unknown; use one of {', '.join(sorted(_STARTS))}")
    if x.dtype.char not in "fd":
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")
    given = lengths if lengths is not None else offsets
    if given is None or indices is not None:
        raise OpError(f"{op}: pass lengths or offsets; indices are not supported (nor are they in PyTorch)")
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis < x.ndim or given.ndim != axis + 1 or given.shape[:-1] != x.shape[:axis]:
        raise ShapeError(f"{op}: lengths of shape {given.shape} do not fit axis {axis} of data of shape {x.shape}")
    size = x.shape[axis]
    if given.dtype.kind not in "iu":
        raise DTypeError(f"{op}: lengths or offsets must be integers, found {given.dtype}")
    marks = given.reshape(prod(given.shape[:-1]), given.shape[-1]).astype(INT64, copy=False)
    first = (m.arange(marks.shape[0]) * size)[:, None]
    if lengths is not None:
        if not unsafe and ((marks < 0).any() or (marks.sum(axis=1) != size).any()):
            raise ShapeError(f"{op}: lengths must not be negative and sum to {size}, the size of axis {axis}")
        stops = m.cumsum(marks, axis=1)
        starts, counts = (stops - marks + first).reshape(-1), marks.reshape(-1)
    else:
        counts = (marks[:, 1:] - marks[:, :-1]).reshape(-1)
        starts = (marks[:, :-1] + first).reshape(-1)
    start = _STARTS[how] if initial is None else float(initial)
    rest = x.shape[axis + 1 :]
    rows = x.reshape(first.shape[0] * size, *rest)
    y = m.full((counts.shape[0], *rest), start, dtype=x.dtype)
    full = counts > 0
    if full.any():
        # Start and end of each segment in turn; only the stretches that begin at a start are of interest.
        bounds = m.stack((starts[full], starts[full] + counts[full]), axis=1).reshape(-1)
        bounds = bounds[:-1] if bounds[-1] == rows.shape[0] else bounds
        step = {"sum": m.add, "mean": m.add, "prod": m.multiply, "max": m.maximum, "min": m.minimum}[how]
        y[full] = step(step.reduceat(rows, bounds, 0)[::2], x.dtype.type(start))
    if how == "mean":
        divisor = m.where(full, counts, 1 if initial is not None else 0).astype(x.dtype)
        y = y / divisor.reshape(-1, *(1,) * len(rest))
    return y.reshape(*given.shape[:-1], -1 if counts.size else 0, *rest)
