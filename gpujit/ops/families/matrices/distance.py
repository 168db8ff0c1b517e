"""Lengths of vectors and distances between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.dtypes import numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import (
    axes_of,
    in_dtype,
    need_floating,
    one_axis,
    reduced_count,
    reduced_shape,
    sum_squares,
    to_asked,
    total,
)
from gpujit.ops.into import by_parts, fits
from gpujit.ops.promotion import can_cast, result_type, to_floating
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, all_dims, dims_at, flag_at
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import cdist_type, cosine_similarity_type, pairwise_distance_type, reduced_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

_INF = float("inf")
# Differences of all pairs are formed at once up to this many numbers, and row by row beyond.
_PAIRS = 1 << 22


def vector_norm(
    m: Any, x: Array, p: float, axes: tuple[int, ...] | None, keepdim: bool, code: int | None, op: str
) -> Array:
    """(sum |x|^p)^(1/p) over ``axes``; p = inf and -inf take the largest and smallest, 0 counts what is not zero."""
    half = None
    if code is not None:
        wanted = numpy_dtype(code)
        need_floating(x, op)
        if wanted.kind in "bui" or not can_cast(x.dtype, wanted):
            raise DTypeError(f"{op}: a tensor of {x.dtype} can't have a norm in {wanted}; pass a wider dtype")
        x, half = to_asked(x, code)
    if x.dtype.kind in "bui":
        need_floating(x, op)
    if p == 2:
        if x.dtype.kind == "c":
            x = m.stack((x.real, x.imag))
            axes = tuple(range(x.ndim)) if axes is None else (0, *(a + 1 for a in axes))
            y = total(m, x * x, axes, keepdim)
            return in_dtype(m.sqrt(y[0] if keepdim else y), half)
        if axes is None and not keepdim and x.flags.c_contiguous and x.size <= 1024:
            flat = x.reshape(-1)
            return in_dtype(m.sqrt(m.dot(flat, flat)), half)
        return in_dtype(m.sqrt(sum_squares(m, x, axes, keepdim)), half)
    size = m.abs(x)
    if x.size == 0 and (p < 0 or p == _INF) and reduced_count(x.shape, axes) == 0:
        raise ShapeError(f"{op}: a norm of order {p} needs elements, found shape {x.shape}")
    if p == 1:
        y = total(m, size, axes, keepdim)
    elif p == _INF:
        y = size.max(axes, keepdims=keepdim)
    elif p == -_INF:
        y = size.min(axes, keepdims=keepdim)
    elif p == 0:
        y = m.add.reduce(size != 0, axes, size.dtype, None, keepdim)
    else:
        y = total(m, m.power(size, size.dtype.type(p)), axes, keepdim) ** size.dtype.type(1.0 / p)
    return in_dtype(y, half)


def _order(p: float | None) -> float:
    return 2 if p is None else p


def _norm_into(m: Any, out: Array, x: Array, p: float, axes: tuple[int, ...] | None, keepdim: bool) -> Any:
    """The Euclidean norm of real numbers in ``out``."""
    if p != 2 or x.dtype.char not in "fd" or not fits(out, reduced_shape(x.shape, axes, keepdim), x.dtype):
        return NotImplemented
    sum_squares(m, x, axes, keepdim, out)
    m.sqrt(out, out=out)
    return None


def vector_norm_into(
    m: Any, out: Array, x: Array, ord: float, dim: Sequence[int] | None, keepdim: bool, dtype: int | None
) -> Any:
    """``aten::linalg_vector_norm`` in ``out``, when it is Euclidean and of real numbers."""
    if dtype is not None and numpy_dtype(dtype) != x.dtype:
        return NotImplemented
    return _norm_into(m, out, x, ord, axes_of(x.ndim, dim, "aten::linalg_vector_norm"), keepdim)


@reduction(
    "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    out="out",
    type_rule=reduced_type("real"),
    into=vector_norm_into,
    scalar=Rows(dims_at(2, "aten::linalg_vector_norm"), row_bodies.norm(1, 4, "aten::linalg_vector_norm"), flag_at(3)),
)
def linalg_vector_norm(m: Any, x: Array, ord: float, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    """The norm of order ``ord`` over ``dim`` (of all elements, when None)."""
    axes = axes_of(x.ndim, dim, "aten::linalg_vector_norm")
    return vector_norm(m, x, ord, axes, keepdim, dtype, "aten::linalg_vector_norm")


def _norm(m: Any, x: Array, p: float | None, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Array:
    return vector_norm(m, x, _order(p), axes_of(x.ndim, dim, "aten::norm"), keepdim, dtype, "aten::norm")


def _norm_all_into(m: Any, out: Array, x: Array, p: float | None) -> Any:
    return _norm_into(m, out, x, _order(p), None, False)


def _norm_dim_into(m: Any, out: Array, x: Array, p: float | None, dim: list[int], keepdim: bool) -> Any:
    return _norm_into(m, out, x, _order(p), axes_of(x.ndim, dim, "aten::norm"), keepdim)


def _frobenius_into(m: Any, out: Array, x: Array, dim: list[int], keepdim: bool) -> Any:
    return NotImplemented if len(dim) > 2 else _norm_dim_into(m, out, x, 2, dim, keepdim)


@reduction(
    "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
    type_rule=reduced_type("real"),
    into=_norm_all_into,
    scalar=Rows(all_dims, row_bodies.norm(1, None, "aten::norm")),
)
def norm(m: Any, x: Array, p: float) -> Array:
    """The norm of order ``p`` of all elements."""
    return _norm(m, x, p, None, False, None)


@reduction(
    "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
    type_rule=reduced_type("real"),
    into=_norm_dim_into,
    scalar=Rows(dims_at(2, "aten::norm"), row_bodies.norm(1, None, "aten::norm"), flag_at(3)),
)
def norm_dim(m: Any, x: Array, p: float | None, dim: list[int], keepdim: bool) -> Array:
    """The norm of order ``p`` over ``dim``."""
    return _norm(m, x, p, dim, keepdim, None)


@reduction(
    "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
    type_rule=reduced_type("real"),
    scalar=Rows(dims_at(2, "aten::norm"), row_bodies.norm(1, 4, "aten::norm"), flag_at(3)),
)
def norm_dim_dtype(m: Any, x: Array, p: float | None, dim: list[int], keepdim: bool, dtype: int) -> Array:
    """The norm of order ``p`` over ``dim``, computed in ``dtype``."""
    return _norm(m, x, p, dim, keepdim, dtype)


@reduction(
    "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
    type_rule=reduced_type("real"),
    scalar=Rows(all_dims, row_bodies.norm(1, 2, "aten::norm")),
)
def norm_dtype(m: Any, x: Array, p: float | None, dtype: int) -> Array:
    """The norm of order ``p`` of all elements, computed in ``dtype``."""
    return _norm(m, x, p, None, False, dtype)


for _text, _of in (
    ("dtype_out(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype", "ScalarOpt_dim_dtype"),
    ("out(Tensor self, Scalar? p, int[1] dim, bool keepdim=False, *", "ScalarOpt_dim"),
    ("ScalarOpt_dtype_out(Tensor self, Scalar? p, *, ScalarType dtype", "ScalarOpt_dtype"),
    ("Scalar_out(Tensor self, Scalar p=2, *", "Scalar"),
):
    out_form(f"aten::norm.{_text}, Tensor(a!) out) -> Tensor(a!)", f"aten::norm.{_of}")


@reduction("aten::native_norm(Tensor self, Scalar p=2) -> Tensor", out="out", into=_norm_all_into)
def native_norm(m: Any, x: Array, p: float) -> Array:
    """The norm of order ``p`` of all elements."""
    return _norm(m, x, p, None, False, None)


@reduction(
    "aten::native_norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, ScalarType? dtype) -> "
    "Tensor",
    out="ScalarOpt_dim_dtype_out",
)
def native_norm_dim(m: Any, x: Array, p: float | None, dim: list[int], keepdim: bool, dtype: int | None) -> Array:
    """The norm of order ``p`` over ``dim``."""
    return _norm(m, x, p, dim, keepdim, dtype)


@reduction(
    "aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", out="out", into=_frobenius_into
)
def frobenius_norm(m: Any, x: Array, dim: list[int], keepdim: bool) -> Array:
    """The square root of the sum of squares over ``dim``."""
    if len(dim) > 2:
        raise ShapeError(f"aten::frobenius_norm: expected at most 2 dims, found {dim}")
    axes = axes_of(x.ndim, dim, "aten::frobenius_norm")
    return vector_norm(m, x, 2, axes, keepdim, None, "aten::frobenius_norm")


@reduction("aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor")
def norm_except_dim(m: Any, v: Array, pow: int, dim: int) -> Array:
    """The norm of order ``pow`` over every dim but ``dim``, all dims kept; of everything, 0-dim, when ``dim`` is -1."""
    if dim == -1:
        return vector_norm(m, v, pow, None, False, None, "aten::norm_except_dim")
    keep = one_axis(v.ndim, dim, "aten::norm_except_dim")
    axes = tuple(i for i in range(v.ndim) if i != keep)
    return vector_norm(m, v, pow, axes, True, None, "aten::norm_except_dim")


def _renorm_axis(x: Array, p: float, dim: int, maxnorm: float) -> int | None:
    return dim % x.ndim if x.ndim > 1 else None


@reduction(
    "aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
    inplace=True,
    out="out",
    type_rule=same_type,
    into=by_parts(_renorm_axis),
)
def renorm(m: Any, x: Array, p: float, dim: int, maxnorm: float) -> Array:
    """``x`` with every slice along ``dim`` scaled down to a norm of ``maxnorm`` where it is longer."""
    if x.ndim < 2:
        raise ShapeError(f"aten::renorm: expected at least 2 dims, found a tensor of shape {x.shape}")
    if p <= 0 or maxnorm < 0:
        raise OpError(f"aten::renorm: p must be positive and maxnorm not negative, found p={p}, maxnorm={maxnorm}")
    keep = one_axis(x.ndim, dim, "aten::renorm")
    length = vector_norm(m, x, p, tuple(i for i in range(x.ndim) if i != keep), True, None, "aten::renorm")
    number = length.dtype.type
    return x * m.where(length > maxnorm, number(maxnorm) / (length + number(1e-7)), number(1))


# ----------------------------------------------------------------------------------------------------- distances


def together(op: str, *operands: Array) -> list[Array]:
    """The operands in the dtype they promote to. Raises ShapeError when they do not broadcast."""
    dtype = result_type(*operands)
    check_broadcast(op, *operands)
    return [x if x.dtype == dtype else x.astype(dtype) for x in operands]


def check_broadcast(op: str, *operands: Array) -> None:
    """Raise ShapeError unless the shapes broadcast."""
    first = operands[0].shape
    if all(x.shape == first for x in operands):
        return
    for sizes in zip(*([1] * (max(x.ndim for x in operands) - x.ndim) + list(x.shape) for x in operands), strict=True):
        if len({n for n in sizes if n != 1}) > 1:
            raise ShapeError(f"{op}: shapes {', '.join(str(x.shape) for x in operands)} do not broadcast")


@reduction("aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", out="out", half="promote")
def dist(m: Any, x: Array, other: Array, p: float) -> Array:
    """The norm of order ``p`` of ``x - other``."""
    x, other = together("aten::dist", x, other)
    need_floating(x, "aten::dist")
    return vector_norm(m, x - other, p, None, False, None, "aten::dist")


@reduction(
    "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
    half="promote",
    type_rule=cosine_similarity_type,
)
def cosine_similarity(m: Any, x1: Array, x2: Array, dim: int, eps: float) -> Array:
    """x1 · x2 / (|x1| |x2|) along ``dim``; no length counts as less than ``eps``."""
    op = "aten::cosine_similarity"
    x1, x2 = together(op, x1, x2)
    need_floating(x1, op)
    shape = m.broadcast_shapes(x1.shape, x2.shape)
    axis = one_axis(len(shape), dim, op)
    axes = (axis - len(shape),) if shape else None
    if shape and (x1.ndim < -axes[0] or x2.ndim < -axes[0]):  # type: ignore[index]  # axes is a tuple here
        x1, x2 = m.broadcast_to(x1, shape), m.broadcast_to(x2, shape)
    if x1.shape != shape:
        x1 = m.broadcast_to(x1, shape)
    if x2.shape != shape:
        x2 = m.broadcast_to(x2, shape)
    axes = (axis,) if shape else None
    n1 = vector_norm(m, x1, 2, axes, True, None, op)
    n2 = vector_norm(m, x2, 2, axes, True, None, op)
    least = n1.dtype.type(eps)
    return total(m, (x1 / m.maximum(n1, least)) * (x2 / m.maximum(n2, least)), axes)


@reduction(
    "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=9.9999999999999995e-07, bool keepdim=False) "
    "-> Tensor",
    half="promote",
    type_rule=pairwise_distance_type,
)
def pairwise_distance(m: Any, x1: Array, x2: Array, p: float, eps: float, keepdim: bool) -> Array:
    """The norm of order ``p`` of ``x1 - x2 + eps`` along the last dim."""
    return apart(m, x1, x2, p, eps, keepdim, "aten::pairwise_distance")


def apart(m: Any, x1: Array, x2: Array, p: float, eps: float, keepdim: bool, op: str) -> Array:
    """The norm of order ``p`` of ``x1 - x2 + eps`` along the last dim; integers are subtracted as integers."""
    x1, x2 = together(op, x1, x2)
    d = x1 - x2
    d = d.astype(to_floating(d.dtype), copy=False) + eps
    return vector_norm(m, d, p, (d.ndim - 1,) if d.ndim else None, keepdim, None, op)


def _by_products(m: Any, a: Array, b: Array) -> Array:
    """Euclidean distances as |a|² + |b|² - 2ab: one gemm, fewer digits for near points."""
    square = total(m, a * a, (a.ndim - 1,), True) + total(m, b * b, (b.ndim - 1,), True).swapaxes(-1, -2)
    square -= 2 * (a @ b.swapaxes(-1, -2))
    return m.sqrt(m.maximum(square, square.dtype.type(0)))


def _all_pairs(m: Any, a: Array, b: Array, p: float, op: str) -> Array:
    """Distances ``[..., P, R]`` of ``a [..., P, M]`` and ``b [..., R, M]``."""
    pairs = a.shape[-2] * b.shape[-2] * a.shape[-1]
    if a.shape[-1] == 0:
        return m.zeros((*a.shape[:-1], b.shape[-2]), dtype=a.dtype)
    if (a.ndim == 2 and pairs <= _PAIRS) or a.size == 0 or b.size == 0:
        return vector_norm(m, a[..., :, None, :] - b[..., None, :, :], p, (a.ndim,), False, None, op)
    y = m.empty((*a.shape[:-1], b.shape[-2]), dtype=a.dtype)
    # Rows in strips, so that the differences of a strip stay in cache.
    strip = max(1, _PAIRS // max(1, pairs * (a.size // (a.shape[-1] * a.shape[-2])) // a.shape[-2]))
    for i in range(0, a.shape[-2], strip):
        d = a[..., i : i + strip, None, :] - b[..., None, :, :]
        y[..., i : i + strip, :] = vector_norm(m, d, p, (a.ndim,), False, None, op)
    return y


def _cdist(m: Any, x1: Array, x2: Array, p: float, compute_mode: int | None, op: str) -> Array:
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"{op}: expected x1 [.., P, M] and x2 [.., R, M], found shapes {x1.shape} and {x2.shape}")
    if x1.dtype.char not in "fd" or x2.dtype.char not in "fd":
        raise DTypeError(f"{op}: expected floating tensors, found {x1.dtype} and {x2.dtype}")
    if p < 0:
        raise OpError(f"{op}: p must not be negative, found {p}")
    dtype = result_type(x1, x2)
    batch = m.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x1 = m.broadcast_to(x1, batch + x1.shape[-2:]).astype(dtype, copy=False)
    x2 = m.broadcast_to(x2, batch + x2.shape[-2:]).astype(dtype, copy=False)
    many = x1.shape[-2] > 25 or x2.shape[-2] > 25
    if p == 2 and (compute_mode == 1 or (many and compute_mode in (None, 0))) and x1.shape[-1]:
        return _by_products(m, x1, x2)
    return _all_pairs(m, x1, x2, p, op)


@reduction("aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor", type_rule=cdist_type)
def cdist(m: Any, x1: Array, x2: Array, p: float, compute_mode: int | None) -> Array:
    """Distances ``[.., P, R]`` of every row of ``x1 [.., P, M]`` to every row of ``x2 [.., R, M]``."""
    return _cdist(m, x1, x2, p, compute_mode, "aten::cdist")


@reduction(
    "aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", out="out", type_rule=cdist_type
)
def cdist_forward(m: Any, x1: Array, x2: Array, p: float, compute_mode: int | None) -> Array:
    """Distances ``[.., P, R]`` of every row of ``x1 [.., P, M]`` to every row of ``x2 [.., R, M]``."""
    return _cdist(m, x1, x2, p, compute_mode, "aten::_cdist_forward")


@reduction("aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", out="out", type_rule=cdist_type)
def euclidean_dist(m: Any, x1: Array, x2: Array) -> Array:
    """Euclidean distances ``[.., P, R]`` by one matrix product."""
    return _cdist(m, x1, x2, 2, 1, "aten::_euclidean_dist")


def _pdist(m: Any, x: Array, p: float, op: str) -> Array:
    if x.ndim != 2 or x.dtype.char not in "fd":
        raise ShapeError(f"{op}: expected a floating matrix, found {x.dtype} of shape {x.shape}")
    if p < 0:
        raise OpError(f"{op}: p must not be negative, found {p}")
    i, j = m.triu_indices(x.shape[0], 1)
    return vector_norm(m, x[i] - x[j], p, (1,), False, None, op) if x.shape[1] else m.zeros(len(i), dtype=x.dtype)


@reduction("aten::pdist(Tensor self, float p=2.) -> Tensor")
def pdist(m: Any, x: Array, p: float) -> Array:
    """Distances of all pairs of rows i < j, row by row."""
    return _pdist(m, x, p, "aten::pdist")


@reduction("aten::_pdist_forward(Tensor self, float p=2.) -> Tensor", out="out")
def pdist_forward(m: Any, x: Array, p: float) -> Array:
    """Distances of all pairs of rows i < j, row by row."""
    return _pdist(m, x, p, "aten::_pdist_forward")
