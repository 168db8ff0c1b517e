"""Softmax, its logarithm, and the logarithm of a sum of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.dtypes import BOOL_, HALF_TYPES, numpy_dtype
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import axes_of, in_dtype, need_floating, one_axis, to_asked, total
from gpujit.ops.into import by_parts, fits, longest
from gpujit.ops.promotion import to_floating
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, dims_at, flag_at
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import reduced_type, softmax_type
from gpujit.support.errors import DTypeError, ShapeError

# Elements up to which softmax is done in one go, of a block otherwise, and of the longest row done in blocks.
SMALL, BLOCK, WIDE = 4096, 65536, 4096
# A row whose largest element weighs less than this beside the block's largest is computed on its own.
FAINT = 1e-6


def _softmax_blocks(x: Array, y: Array) -> None:
    """Softmax of each row of a contiguous ``x [R, N]`` into ``y``, block by block on the CPU.

    Any shift that keeps exp from overflow and underflow gives the same quotients, so the maximum of a whole block is
    tried first: it costs a fraction of the maxima of its rows. Factors of rows are spread to whole arrays, since loops
    over short rows cost more than what they compute.
    """
    rows, n = x.shape
    step = max(1, BLOCK // n)
    ones = np.ones(n, x.dtype)
    spread = np.empty((min(step, rows), n), x.dtype)
    shared = True
    for i in range(0, rows, step):
        part, e = x[i : i + step], y[i : i + step]
        if shared:
            np.exp(np.subtract(part, np.maximum.reduce(part, None), out=e), out=e)
            sums = np.matmul(e, ones)
            # False for NaN as well.
            shared = bool(np.minimum.reduce(sums) > FAINT)
        if not shared:
            np.exp(np.subtract(part, np.maximum.reduce(part, 1, keepdims=True), out=e), out=e)
            sums = np.matmul(e, ones)
        factors = spread[: e.shape[0]]
        np.copyto(factors, np.reciprocal(sums)[:, None])
        np.multiply(e, factors, out=e)


def softmax_rows(m: Any, x: Array, axis: int, out: Array | None = None) -> Array:
    """exp(x) / sum(exp(x)) along ``axis``, shifted by the maximum so that exp cannot overflow."""
    if x.size == 0:
        return x.copy()
    n = x.shape[axis]
    if m is np and x.size > SMALL and axis == x.ndim - 1 and n <= WIDE and x.flags.c_contiguous:
        y = np.empty_like(x) if out is None else out
        if y.flags.c_contiguous:
            _softmax_blocks(x.reshape(-1, n), y.reshape(-1, n))
            return y
    e = m.subtract(x, m.maximum.reduce(x, axis, None, None, True), out)
    m.exp(e, e)
    return m.true_divide(e, total(m, e, (axis,), True), e)


def log_softmax_rows(m: Any, x: Array, axis: int, out: Array | None = None) -> Array:
    """x - log(sum(exp(x))) along ``axis``, shifted by the maximum so that exp cannot overflow."""
    if x.size == 0:
        return x.copy()
    d = m.subtract(x, m.maximum.reduce(x, axis, None, None, True), out)
    return m.subtract(d, m.log(total(m, m.exp(d), (axis,), True)), d)


def _softmax(m: Any, x: Array, dim: int, code: int | None, rows: Any, op: str) -> Array:
    half = None
    if code is not None:
        x, half = to_asked(x, code)
    if x.dtype.char not in "fd":
        if x.dtype.kind == "c":
            raise DTypeError(f"{op}: complex tensors are not taken, found {x.dtype}")
        need_floating(x, op)
    axis = one_axis(x.ndim, dim, op)
    y = rows(m, x, axis) if x.ndim else rows(m, x.reshape(1), 0).reshape(())
    return y if half is None else y.astype(half)


def _declare_softmax(name: str, rows: Any, doc: str) -> None:
    """Declare softmax or log_softmax under its public and its private name."""
    op = f"aten::{name}"

    def public(m: Any, x: Array, dim: int, dtype: int | None) -> Array:
        return _softmax(m, x, dim, dtype, rows, op)

    def private(m: Any, x: Array, dim: int, half_to_float: bool) -> Array:
        if half_to_float:
            raise DTypeError(f"aten::_{name}: half_to_float is for GPUs only; call {op} with dtype=")
        return _softmax(m, x, dim, None, rows, f"aten::_{name}")

    def public_into(m: Any, out: Array, x: Array, dim: int, dtype: int | None = None) -> Any:
        if x.dtype.char not in "fd" or not x.size or not x.ndim or not fits(out, x.shape, x.dtype):
            return NotImplemented
        if dtype is not None and numpy_dtype(dtype) != x.dtype:
            return NotImplemented
        axis = one_axis(x.ndim, dim, op)
        if name == "log_softmax" and parts(m, out, x, axis) is None:
            return None
        rows(m, x, axis, out)
        return None

    def private_into(m: Any, out: Array, x: Array, dim: int, half_to_float: bool) -> Any:
        return NotImplemented if half_to_float else public_into(m, out, x, dim)

    # The exponentials take memory of their own.
    parts = by_parts(lambda x, axis: longest(x.shape, (axis,))).make(rows)

    along = dims_at(1, op)
    recorded = Rows(along, row_bodies.softmax(name == "log_softmax", True, op))
    public.__doc__ = private.__doc__ = doc
    reduction(
        f"{op}.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
        out="int_out",
        type_rule=softmax_type,
        into=public_into,
        scalar=recorded,
    )(public)
    reduction(
        f"aten::_{name}(Tensor self, int dim, bool half_to_float) -> Tensor",
        out="out",
        type_rule=same_type,
        into=private_into,
        scalar=Rows(along, row_bodies.softmax(name == "log_softmax", False, f"aten::_{name}")),
    )(private)
    star = "*, " if name == "log_softmax" else ""
    reduction(
        f"aten::special_{name}(Tensor self, int dim, {star}ScalarType? dtype=None) -> Tensor",
        type_rule=softmax_type,
        into=public_into,
        scalar=recorded,
    )(public)


_declare_softmax("softmax", softmax_rows, "exp(x) / sum(exp(x)) along ``dim``; a row of -inf alone gives NaN.")
_declare_softmax("log_softmax", log_softmax_rows, "log(softmax(x)) along ``dim``; a row of -inf alone gives NaN.")


@reduction(
    "aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    type_rule=softmax_type,
    scalar=Rows(dims_at(1, "aten::_safe_softmax"), row_bodies.safe_softmax),
)
def safe_softmax(m: Any, x: Array, dim: int, dtype: int | None) -> Array:
    """Softmax along ``dim``, except that a row of -inf alone gives zeros."""
    x, half = to_asked(x, dtype)
    y = _softmax(m, x, dim, None, softmax_rows, "aten::_safe_softmax")
    if x.size:
        y = m.where((x == -m.inf).all(axis=dim if x.ndim else None, keepdims=True), y.dtype.type(0), y)
    return in_dtype(y, half)


@reduction(
    "aten::_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor",
    out="out",
    type_rule=same_type,
)
def masked_softmax(m: Any, x: Array, mask: Array, dim: int | None, mask_type: int | None) -> Array:
    """Softmax along ``dim`` (the last, when None) of the elements where ``mask`` is false; zero elsewhere.

    ``mask_type`` 0 is a mask ``[L, L]`` for ``x [B, H, L, L]``, 1 a mask ``[B, L]`` of keys, 2 a mask of x's shape.
    """
    op = "aten::_masked_softmax"
    if mask.dtype != BOOL_:
        raise DTypeError(f"{op}: the mask must be bool, found {mask.dtype}")
    if mask_type == 1 and mask.ndim == 2 and x.ndim == 4:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[1])
    try:
        mask = m.broadcast_to(mask, x.shape)
    except ValueError:
        raise ShapeError(f"{op}: a mask of shape {mask.shape}, type {mask_type}, does not fit x {x.shape}") from None
    y = _softmax(m, m.where(mask, x.dtype.type(-m.inf), x), -1 if dim is None else dim, None, softmax_rows, op)
    return m.where(mask & (y == y), y.dtype.type(0), y)


# ------------------------------------------------------------------------------------------------------ backward


def _as_input(y: Array, code: int) -> Array:
    dtype = numpy_dtype(code)
    return y.astype(dtype) if dtype in HALF_TYPES else y


def _check_gradient(op: str, grad: Array, output: Array) -> None:
    if grad.shape != output.shape:
        raise ShapeError(f"{op}: grad_output has shape {grad.shape}, output {output.shape}; they must be equal")


def _other_dim(grad: Array, output: Array, dim: int, input_dtype: int) -> int | None:
    return longest(grad.shape, (dim % grad.ndim,)) if grad.ndim else None


@reduction(
    "aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
    into=by_parts(_other_dim, (0, 1)),
)
def softmax_backward(m: Any, grad: Array, output: Array, dim: int, input_dtype: int) -> Array:
    """Gradient of softmax's input, from the gradient of its output and the output itself."""
    _check_gradient("aten::_softmax_backward_data", grad, output)
    axis = one_axis(grad.ndim, dim, "aten::_softmax_backward_data")
    g = m.multiply(grad, output)
    return _as_input(g - output * total(m, g, (axis,) if grad.ndim else None, True), input_dtype)


@reduction(
    "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
    into=by_parts(_other_dim, (0, 1)),
)
def log_softmax_backward(m: Any, grad: Array, output: Array, dim: int, input_dtype: int) -> Array:
    """Gradient of log_softmax's input, from the gradient of its output and the output itself."""
    _check_gradient("aten::_log_softmax_backward_data", grad, output)
    axis = one_axis(grad.ndim, dim, "aten::_log_softmax_backward_data")
    return _as_input(grad - m.exp(output) * total(m, grad, (axis,) if grad.ndim else None, True), input_dtype)


for _name, _target in (("_softmax", "grad_input"), ("_log_softmax", "out")):
    out_form(
        f"aten::{_name}_backward_data.out(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype, *, "
        f"Tensor(a!) {_target}) -> Tensor(a!)",
        f"aten::{_name}_backward_data",
    )


# ----------------------------------------------------------------------------------------------------- logsumexp


def logsumexp_rows(m: Any, x: Array, axes: tuple[int, ...] | None, keepdim: bool) -> Array:
    """log(sum(exp(x))) over ``axes`` without overflow; -inf for no elements."""
    x = x.astype(to_floating(x.dtype), copy=False)
    if x.size == 0:
        return m.log(m.add.reduce(x, axes, None, None, keepdim))
    top = x.real if x.dtype.kind == "c" else x
    top = m.maximum.reduce(top, axes, None, None, True)
    top = m.where(m.isfinite(top), top, top.dtype.type(0))
    s = total(m, m.exp(x - top), axes, True)
    y = m.log(s) + top
    if keepdim:
        return y
    return y.reshape(()) if axes is None else y.squeeze(axes)


@reduction(
    "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    out="out",
    type_rule=reduced_type("float"),
    scalar=Rows(dims_at(1, "aten::logsumexp"), row_bodies.logsumexp, flag_at(2)),
)
def logsumexp(m: Any, x: Array, dim: list[int], keepdim: bool) -> Array:
    """log(sum(exp(x))) over ``dim`` without overflow."""
    return logsumexp_rows(m, x, axes_of(x.ndim, dim, "aten::logsumexp"), keepdim)


@reduction(
    "aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    out="out",
    type_rule=reduced_type("float"),
    scalar=Rows(dims_at(1, "aten::special_logsumexp"), row_bodies.logsumexp, flag_at(2)),
)
def special_logsumexp(m: Any, x: Array, dim: list[int], keepdim: bool) -> Array:
    """log(sum(exp(x))) over ``dim`` without overflow."""
    return logsumexp_rows(m, x, axes_of(x.ndim, dim, "aten::special_logsumexp"), keepdim)
