"""Type rules of operators over rows: reductions, scans, softmax, norms, sorting, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, INT64
from gpujit.ir.types import TensorType
from gpujit.ops.promotion import real_of
from gpujit.ops.rules.common import (
    INT64_CODE,
    DType,
    Rule,
    Shape,
    Unknown,
    axes,
    axis,
    broadcast,
    cast,
    dtype_of,
    floating,
    like,
    plus,
    promoted,
    replaced,
    same_size,
    same_type,
    shape_of,
    size_of,
    sizes_of,
    summed,
    tensor,
    texts,
)
from gpujit.ops.symbolic import NotKnown
from gpujit.support.errors import ShapeError

# ------------------------------------------------------------------------------------------------------- reductions


def reduced_shape(shape: Shape, dims: Any, keepdim: Any, op: str) -> Shape:
    """The sizes left when dims are reduced (all for None or an empty list). Raises NotKnown, ShapeError."""
    if isinstance(dims, Unknown) and dims.type is int and keepdim is False:
        return (None,) * (len(shape) - 1)
    if keepdim is True and isinstance(dims, Unknown):
        return (None,) * len(shape)
    chosen = axes(dims, len(shape), op)
    if keepdim:
        return tuple(1 if i in chosen else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in chosen)


def _truth(dtype: DType | None) -> DType | None:
    return None if dtype is None else dtype if dtype == np.uint8 else BOOL_


_RESULTS: dict[str, Callable[[DType | None], DType | None]] = {
    "same": lambda d: d,
    "sum": summed,
    "float": floating,
    "real": lambda d: None if d is None else real_of(d),
    "truth": _truth,
    "index": lambda d: INT64,
}


def reduced_type(result: str) -> Rule:
    """A rule: ``dim`` reduced, the result's dtype as ``result`` says unless one is asked for.

    ``same``; ``sum``: int64 for integers and bools; ``float``: float32 for them; ``real``: a complex one's real dtype;
    ``truth``: bool (uint8 for uint8); ``index``: int64.
    """
    of = _RESULTS[result]

    def rule(x: TensorType, *, dim: Any = None, keepdim: Any = False, dtype: Any = None, op: str) -> TensorType:
        """What is left of the shape."""
        found = cast(tensor(of(dtype_of(x)), None), dtype)
        if result == "real" and dtype is not None and not isinstance(dtype, Unknown):
            asked = dtype_of(found)
            found = tensor(None if asked is None else real_of(asked), None)
        return like(found, reduced_shape(shape_of(x), dim, keepdim, op))

    return rule


def reduced_pair_type(first: str, second: str) -> Rule:
    """A rule: two results of a reduction, their dtypes as for ``reduced_type``."""
    rules = reduced_type(first), reduced_type(second)

    def rule(x: TensorType, *, dim: Any = None, keepdim: Any = False, op: str) -> tuple[TensorType, TensorType]:
        """What is left of the shape, twice."""
        return rules[0](x, dim=dim, keepdim=keepdim, op=op), rules[1](x, dim=dim, keepdim=keepdim, op=op)

    return rule


def reduced_dims_type(x: TensorType, dim: Any, keepdim: Any, *, op: str) -> TensorType:
    """any and all over a list of dims: an empty list reduces nothing."""
    found = tensor(_truth(dtype_of(x)), x.shape)
    if isinstance(dim, (list, tuple)) and not dim:
        return found
    return like(found, reduced_shape(shape_of(x), dim, keepdim, op))


def quantile_type(x: TensorType, q: Any, dim: Any, keepdim: Any, *, op: str) -> TensorType:
    """The reduced shape behind the shape of ``q``."""
    rest = reduced_shape(shape_of(x), dim, keepdim, op)
    return like(x, (*(shape_of(q) if isinstance(q, TensorType) else ()), *rest))


def sum_to_size_type(x: TensorType, size: Any, *, op: str) -> TensorType:
    """The given sizes; int64 for integers and bools where something is summed."""
    sizes = sizes_of(size, op)
    dtype = dtype_of(x)
    if sizes and sizes == x.shape and None not in sizes:
        return same_type(x)
    may_stay = bool(sizes) and (x.shape is None or (len(x.shape) == len(sizes) and None in (*x.shape, *sizes)))
    return tensor(None if may_stay and dtype != summed(dtype) else summed(dtype), sizes)


# ------------------------------------------------------------------------------------------------------------- scans


def scanned_type(x: TensorType, dim: Any, *, dtype: Any = None, op: str) -> TensorType:
    """Sums or products along a dim: int64 for integers and bools, unless a dtype is given."""
    _check_dim(x, dim, op)
    return cast(tensor(summed(dtype_of(x)), x.shape), dtype)


def scanned_pair_type(x: TensorType, dim: Any, *, op: str) -> tuple[TensorType, TensorType]:
    """The largest or smallest so far, and where it was."""
    _check_dim(x, dim, op)
    return same_type(x), TensorType(INT64_CODE, x.shape)


def _check_dim(x: TensorType, dim: Any, op: str) -> None:
    if x.shape is not None and not isinstance(dim, Unknown):
        axis(dim, len(x.shape), op)


def diff_type(
    x: TensorType, n: Any, dim: Any, prepend: TensorType | None, append: TensorType | None, *, op: str
) -> TensorType:
    """Differences of neighbours, ``n`` times."""
    shape = shape_of(x)
    at = axis(dim, len(shape), op)
    if n == 0:
        # As in PyTorch, what would be joined is left out.
        return same_type(x)
    size = plus(shape[at], *(shape_of(t)[at] for t in (prepend, append) if t is not None))
    parts = [t for t in (prepend, x, append) if t is not None]
    left = None if size is None or isinstance(n, Unknown) else max(size - n, 0)
    return tensor(promoted(*parts), replaced(shape, at, left))


# ------------------------------------------------------------------------------------------------- softmax and norms


def softmax_type(x: TensorType, dim: Any, *, dtype: Any = None, op: str) -> TensorType:
    """The first argument, in another dtype when one is given."""
    _check_dim(x, dim, op)
    return cast(x, dtype)


def normalised_type(x: TensorType, normalized_shape: Any, *, op: str) -> TensorType:
    """The first argument, whose last sizes must be those given."""
    _normalised(x, normalized_shape, op)
    return same_type(x)


def _normalised(x: TensorType, normalized_shape: Any, op: str) -> int:
    """How many last dims are normalised over."""
    shape, wanted = shape_of(x), sizes_of(normalized_shape, op)
    k = len(wanted)
    message = f"{op}: normalized_shape {texts(wanted)} is not the end of the input's shape {texts(shape)}"
    if k > len(shape):
        raise ShapeError(message)
    for have, want in zip(shape[len(shape) - k :], wanted, strict=True):
        same_size(have, want, message)
    return k


# --------------------------------------------------------------------------------------------------------- sorting


def sorted_type(x: TensorType) -> tuple[TensorType, TensorType]:
    """The elements in order, and where each was."""
    return same_type(x), TensorType(INT64_CODE, x.shape)


def order_type(x: TensorType) -> TensorType:
    """Where each element in order was."""
    return TensorType(INT64_CODE, x.shape)


def topk_type(x: TensorType, k: Any, dim: Any, *, op: str) -> tuple[TensorType, TensorType]:
    """The ``k`` largest along a dim, and where they were."""
    shape = shape_of(x)
    at, count = axis(dim, len(shape), op), size_of(k)
    if shape:
        n = shape[at]
        if count is not None and (count < 0 or (n is not None and count > n)):
            raise ShapeError(f"{op}: k = {count} is out of range for dim {dim} of size {n}")
        shape = replaced(shape, at, count)
    return like(x, shape), TensorType(INT64_CODE, shape)


def multinomial_type(x: TensorType, num_samples: Any) -> TensorType:
    """Indices drawn for each row of weights."""
    return tensor(INT64, (*shape_of(x)[:-1], size_of(num_samples)))


# ---------------------------------------------------------------------------------------------------------- losses


def loss_type(x: TensorType, target: TensorType, *, weight: Any = None, reduction: Any = 1, op: str) -> TensorType:
    """One loss, or (``reduction`` 0) one for each element of the inputs broadcast."""
    dtype = promoted(x, target)
    if isinstance(weight, TensorType):
        dtype = promoted(x, target, weight)
    if op == "aten::l1_loss" and dtype is not None:
        # The only one that takes complex numbers: it measures distances.
        dtype = real_of(dtype)
    if isinstance(reduction, Unknown):
        return tensor(dtype, None)
    if reduction != 0:
        return tensor(dtype, ())
    return tensor(dtype, broadcast([shape_of(x), shape_of(target)], op))


def floating_loss_type(x: TensorType, target: TensorType, *, reduction: Any, op: str) -> TensorType:
    """As ``loss_type``, in the default float for integers."""
    found = loss_type(x, target, reduction=reduction, op=op)
    return tensor(floating(dtype_of(found)), found.shape)


def class_loss_type(x: TensorType, target: TensorType, *, reduction: Any) -> TensorType:
    """One loss, or (``reduction`` 0) one for each labelled place: the scores without their dim of classes."""
    if isinstance(reduction, Unknown):
        return like(x, None)
    if reduction != 0:
        return like(x, ())
    shape = shape_of(x)
    if len(shape) < 2:
        # A single score vector; a label given as a vector of one leaves its shape.
        dtype = dtype_of(target)
        if dtype is None:
            raise NotKnown
        return like(x, shape_of(target) if dtype.kind in "ui" else ())
    return like(x, (shape[0], *shape[2:]))


def ctc_loss_type(log_probs: TensorType, *, reduction: Any = 1) -> TensorType:
    """One loss, or (``reduction`` 0) one for each sequence."""
    if isinstance(reduction, Unknown):
        return like(log_probs, None)
    if reduction != 0:
        return like(log_probs, ())
    shape = shape_of(log_probs)
    return like(log_probs, shape[1:2] if len(shape) == 3 else ())


def cosine_similarity_type(x: TensorType, y: TensorType, dim: Any, *, op: str) -> TensorType:
    """The broadcast shape without a dim."""
    shape = broadcast([shape_of(x), shape_of(y)], op)
    return tensor(floating(promoted(x, y)), reduced_shape(shape, [dim], False, op) if shape else ())


def pairwise_distance_type(x: TensorType, y: TensorType, *, keepdim: Any, op: str) -> TensorType:
    """The broadcast shape with the last dim reduced."""
    shape = broadcast([shape_of(x), shape_of(y)], op)
    dtype = floating(promoted(x, y))
    return tensor(None if dtype is None else real_of(dtype), reduced_shape(shape, [-1], keepdim, op))


def cdist_type(x: TensorType, y: TensorType, *, op: str) -> TensorType:
    """A matrix of the distances of rows, for each batch."""
    a, b = shape_of(x), shape_of(y)
    if min(len(a), len(b)) < 2:
        raise ShapeError(f"{op}: both tensors need at least 2 dims, found {len(a)} and {len(b)}")
    same_size(a[-1], b[-1], f"{op}: rows of {a[-1]} and {b[-1]} numbers can't be compared")
    batch = broadcast([a[:-2], b[:-2]], op)
    return tensor(floating(promoted(x, y)), (*batch, a[-2], b[-2]))


def histogram_count_type(x: TensorType, bins: Any) -> TensorType:
    """As many counts as bins, in the first argument's dtype."""
    return like(x, (size_of(bins),))
