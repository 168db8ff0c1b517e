"""Normalisation layers: instance, layer, group, root mean square, weight; importing this declares batch norm too."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir.dtypes import HALF_TYPES
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import need_floating, one_axis, sum_squares, total
from gpujit.ops.families.layers.batch_norm import THREE_OUT, Three, check_channels, normalise_channels, widened
from gpujit.ops.families.matrices.distance import vector_norm
from gpujit.ops.into import fits
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, dims_from, last_dims
from gpujit.ops.rules.common import same_type
from gpujit.ops.rules.reduce import normalised_type
from gpujit.support.errors import DTypeError, ShapeError


@reduction(
    "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    half="native",
    type_rule=same_type,
    scalar=Rows(dims_from(2), row_bodies.instance_norm, aligned={"weight": 1, "bias": 1}),
    hidden_writes=("running_mean", "running_var"),
    active_if=("use_input_stats",),
)
def instance_norm(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Array:
    """``x [N, C, ..]`` normalised per sample and channel; running statistics take the mean over samples."""
    op = "aten::instance_norm"
    if not use_input_stats:
        return normalise_channels(m, x, weight, bias, running_mean, running_var, False, momentum, eps, op)[0]
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected at least 2 dims [N, C, ..], found shape {x.shape}")
    n, c = x.shape[:2]
    check_channels(op, x, c, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    need_floating(x, op)
    wide = widened(x)
    count = x.size // (n * c) if n * c else 0
    d, mean, var = _centred(m, wide.reshape(n * c, count))
    if running_mean is not None and n:
        running_mean[...] = (1 - momentum) * widened(running_mean) + momentum * mean.reshape(n, c).mean(axis=0)
    if running_var is not None and n:
        unbiased = var.reshape(n, c).mean(axis=0) * (count / (count - 1) if count != 1 else m.nan)
        running_var[...] = (1 - momentum) * widened(running_var) + momentum * unbiased
    d *= 1 / m.sqrt(var + eps)
    y = d.reshape(x.shape)
    channels = (c,) + (1,) * (x.ndim - 2)
    if weight is not None:
        y *= widened(weight).reshape(channels)
    if bias is not None:
        y += widened(bias).reshape(channels)
    return y if y.dtype == x.dtype else y.astype(x.dtype)


# ---------------------------------------------------------------------------------------------- layer, group norm


def _centred(m: Any, rows: Array, out: Array | None = None) -> Three:
    """Rows less their means (in ``out``, when given), the means ``[R, 1]`` and the biased variances ``[R, 1]``."""
    n = rows.shape[1]
    mean = total(m, rows, (1,), True)
    mean = mean / n if n else mean
    d = m.subtract(rows, mean, out)
    return d, mean, sum_squares(m, d, (1,), True) / n


def _check_normalized(
    x: Array, shape: list[int], weight: Array | None, bias: Array | None, op: str, complex_too: bool = False
) -> None:
    k = len(shape)
    wanted = tuple(shape)
    if k == 0 or x.ndim < k or x.shape[x.ndim - k :] != wanted:
        raise ShapeError(
            f"{op}: normalized_shape {list(shape)} needs an input of shape [.., {str(list(shape))[1:-1]}], found "
            f"{x.shape}"
        )
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.shape != wanted:
            raise ShapeError(
                f"{op}: {name} has shape {v.shape}, normalized_shape is {list(shape)}; they must be the same"
            )
    if x.dtype.kind in ("bui" if complex_too else "buic"):
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")


# Elements up to which rows are normalised in one go, of a block otherwise, and of the rows that blocks are made of.
SMALL, BLOCK, WIDE = 4096, 32768, (16, 4096)


def _norm_blocks(y: Array, x: Array, weight: Array | None, bias: Array | None, eps: float) -> tuple[Array, Array]:
    """Layer norm of each row of a contiguous ``x [R, N]`` into ``y``, block by block on the CPU.

    Factors of rows and of columns are spread to whole arrays, since loops over short rows cost more than what they
    compute. Returns means and inverse deviations.
    """
    rows, n = x.shape
    step = min(max(1, BLOCK // n), rows)
    ones = np.ones(n, x.dtype)
    mean, rstd = np.empty(rows, x.dtype), np.empty(rows, x.dtype)
    spread = np.empty((step, n), x.dtype)
    # Two columns by two rows, the second of zeros: an outer product that BLAS computes.
    left, right = np.zeros((step, 2), x.dtype), np.zeros((2, n), x.dtype)
    right[0] = 1 if weight is None else weight
    shift = None if bias is None else np.repeat(bias.astype(x.dtype, copy=False)[None], step, 0)
    for i in range(0, rows, step):
        part, d, means, factors = x[i : i + step], y[i : i + step], mean[i : i + step], rstd[i : i + step]
        count = part.shape[0]
        factor = spread[:count]
        np.matmul(part, ones, out=means)
        means /= n
        np.copyto(d, means[:, None])
        np.subtract(part, d, out=d)
        np.divide(1, np.sqrt(np.vecdot(d, d) / n + eps), out=factors)
        left[:count, 0] = factors
        np.matmul(left[:count], right, out=factor)
        d *= factor
        if shift is not None:
            d += shift[:count]
    return mean, rstd


def _norm_small(
    x: Array, rows: Array, weight: Array | None, bias: Array | None, eps: float, out: Array | None
) -> Three:
    """Layer norm of a small ``x``, seen as ``rows [R, N]``, with as few array calls as it takes; as _layer_norm."""
    n = rows.shape[1]
    mean = np.add.reduce(rows, 1, keepdims=True)
    mean /= n
    d = np.subtract(rows, mean, None if out is None or not out.flags.c_contiguous else out.reshape(rows.shape))
    deviation = np.vecdot(d, d)
    deviation /= n
    deviation += eps
    np.sqrt(deviation, deviation)
    rstd = np.reciprocal(deviation, deviation)[:, None]
    d *= rstd
    if weight is not None:
        d *= weight
    if bias is not None:
        d += bias
    y = d.reshape(x.shape)
    if out is not None and not out.flags.c_contiguous:
        out.reshape(x.shape)[...] = y
    return y, mean, rstd


def _layer_norm(
    m: Any,
    x: Array,
    shape: list[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
    op: str,
    out: Array | None = None,
) -> Three:
    _check_normalized(x, shape, weight, bias, op)
    if len(shape) == 1:
        n = shape[0]
        rows = x
    else:
        n = 1
        for s in shape:
            n *= s
        rows = x.reshape(*x.shape[: x.ndim - len(shape)], n)
        weight = None if weight is None else weight.reshape(n)
        bias = None if bias is None else bias.reshape(n)
        out = None if out is None else out.reshape(rows.shape)
    if m is np and 0 < x.size <= SMALL and rows.dtype.char in "fd":
        return _norm_small(x, rows.reshape(-1, n), weight, bias, eps, out)
    if m is np and x.size > SMALL and WIDE[0] <= n <= WIDE[1] and rows.flags.c_contiguous:
        y = np.empty_like(rows) if out is None else out
        if y.flags.c_contiguous:
            mean, rstd = _norm_blocks(y.reshape(-1, n), rows.reshape(-1, n), weight, bias, eps)
            kept = (*rows.shape[:-1], 1)
            return y.reshape(x.shape), mean.reshape(kept), rstd.reshape(kept)
    axes = (rows.ndim - 1,)
    mean = total(m, rows, axes, True) / n if n else total(m, rows, axes, True)
    d = m.subtract(rows, mean, out)
    rstd = 1 / m.sqrt(sum_squares(m, d, axes, True) / n + eps)
    d *= rstd
    if weight is not None:
        d *= weight
    if bias is not None:
        d += bias
    return (d if rows is x else d.reshape(x.shape)), mean, rstd


def _layer_norm_into(
    m: Any, out: Array, x: Array, shape: list[int], weight: Array | None, bias: Array | None, eps: float, enable: bool
) -> Any:
    if x.dtype.kind != "f" or not fits(out, x.shape, x.dtype) or (len(shape) > 1 and not out.flags.c_contiguous):
        return NotImplemented
    if any(v is not None and v.dtype != x.dtype for v in (weight, bias)) or not shape or not x.ndim:
        return NotImplemented
    _layer_norm(m, x, shape, weight, bias, eps, "aten::layer_norm", out)
    return None


@reduction(
    "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor",
    type_rule=normalised_type,
    into=_layer_norm_into,
    scalar=Rows(last_dims(1), row_bodies.layer_norm),
)
def layer_norm(
    m: Any, x: Array, shape: list[int], weight: Array | None, bias: Array | None, eps: float, cudnn_enable: bool
) -> Array:
    """``x`` normalised to mean 0 and variance 1 over its last dims, then scaled and shifted."""
    return _layer_norm(m, x, shape, weight, bias, eps, "aten::layer_norm")[0]


@reduction(
    "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
)
def native_layer_norm(
    m: Any, x: Array, shape: list[int], weight: Array | None, bias: Array | None, eps: float
) -> Three:
    """Layer norm, and the means and inverse deviations it used."""
    y, mean, rstd = _layer_norm(m, widened(x), shape, widened(weight), widened(bias), eps, "aten::native_layer_norm")
    kept = x.shape[: x.ndim - len(shape)] + (1,) * len(shape)
    stats = x.dtype if weight is None or x.dtype not in HALF_TYPES else weight.dtype
    return (
        y.astype(x.dtype, copy=False),
        mean.reshape(kept).astype(stats, copy=False),
        rstd.reshape(kept).astype(stats, copy=False),
    )


out_form(
    "aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps"
    + THREE_OUT,
    "aten::native_layer_norm",
)


def _group_norm(
    m: Any,
    x: Array,
    groups: int,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    op: str,
    out: Array | None = None,
) -> Three:
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{op}: an input of shape {x.shape} can't be divided into {groups} groups of channels")
    n, c = x.shape[:2]
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.shape != (c,):
            raise ShapeError(f"{op}: {name} has shape {v.shape}, the input of shape {x.shape} needs ({c},)")
    if x.dtype.kind in "buic":
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")
    rows = x.reshape(n * groups, x.size // (n * groups) if n else 0)
    d, mean, var = _centred(m, rows, None if out is None else out.reshape(rows.shape))
    rstd = 1 / m.sqrt(var + eps)
    channels = (c,) + (1,) * (x.ndim - 2)
    if weight is None:
        d *= rstd
        y = d.reshape(x.shape)
    else:
        # One factor per sample and channel: rstd of its group times its weight.
        y = d.reshape(x.shape)
        y *= (rstd.reshape(n, groups, 1) * weight.reshape(1, groups, -1)).reshape(n, *channels)
    if bias is not None:
        y += bias.reshape(channels)
    return y, mean, rstd


def _group_norm_into(
    m: Any, out: Array, x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float, enabled: bool
) -> Any:
    if x.dtype.kind != "f" or not fits(out, x.shape, x.dtype) or not out.flags.c_contiguous:
        return NotImplemented
    if any(v is not None and v.dtype != x.dtype for v in (weight, bias)):
        return NotImplemented
    _group_norm(m, x, groups, weight, bias, eps, "aten::group_norm", out)
    return None


@reduction(
    "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor",
    type_rule=same_type,
    into=_group_norm_into,
    scalar=Rows(
        dims_from(2), row_bodies.group_norm, aligned={"weight": 1, "bias": 1}, groups=lambda args: int(args[1])
    ),
)
def group_norm(
    m: Any, x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float, cudnn_enabled: bool
) -> Array:
    """``x [N, C, ..]`` normalised per sample and group of channels, then scaled and shifted per channel."""
    return _group_norm(m, x, groups, weight, bias, eps, "aten::group_norm")[0]


@reduction(
    "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, "
    "float eps) "
    "-> (Tensor, Tensor, Tensor)",
    half="native",
)
def native_group_norm(
    m: Any, x: Array, weight: Array | None, bias: Array | None, n: int, c: int, area: int, group: int, eps: float
) -> Three:
    """Group norm, and the means and inverse deviations ``[N, group]`` it used."""
    if x.size != n * c * area:
        raise ShapeError(
            f"aten::native_group_norm: N={n}, C={c}, HxW={area} do not describe an input of shape {x.shape}"
        )
    wide = widened(x).reshape(n, c, area)
    y, mean, rstd = _group_norm(m, wide, group, widened(weight), widened(bias), eps, "aten::native_group_norm")
    stats = x.dtype if weight is None or x.dtype not in HALF_TYPES else weight.dtype
    return (
        y.reshape(x.shape).astype(x.dtype, copy=False),
        mean.reshape(n, group).astype(stats, copy=False),
        rstd.reshape(n, group).astype(stats, copy=False),
    )


out_form(
    "aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int "
    "group, "
    "float eps" + THREE_OUT,
    "aten::native_group_norm",
)


# ------------------------------------------------------------------------------------------------------ rms, weight


def _rms_norm(
    m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None, op: str, out: Array | None = None
) -> tuple[Array, Array]:
    _check_normalized(x, shape, weight, None, op, complex_too=True)
    if eps is None:
        # Half types are normalised in float32, and with its epsilon.
        eps = float(m.finfo(x.dtype).eps)
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    n = 1
    for s in shape:
        n *= s
    # Complex numbers are squared as they are, not their absolute values.
    squares = total(m, x * x, axes, True) if x.dtype.kind == "c" else sum_squares(m, x, axes, True)
    rstd = 1 / m.sqrt(squares / n + eps)
    y = m.multiply(x, rstd, out)
    if weight is not None:
        y *= weight
    return y, rstd


def _rms_norm_into(m: Any, out: Array, x: Array, shape: list[int], weight: Array | None, eps: float | None) -> Any:
    if not fits(out, x.shape, x.dtype) or (weight is not None and weight.dtype != x.dtype) or not x.ndim:
        return NotImplemented
    _rms_norm(m, x, shape, weight, eps, "aten::rms_norm", out)
    return None


@reduction(
    "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
    type_rule=normalised_type,
    into=_rms_norm_into,
    scalar=Rows(last_dims(1), row_bodies.rms_norm),
)
def rms_norm(m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None) -> Array:
    """``x`` divided by the root of its mean square over its last dims, then scaled."""
    return _rms_norm(m, x, shape, weight, eps, "aten::rms_norm")[0]


@reduction(
    "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
    half="native",
)
def fused_rms_norm(m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None) -> tuple[Array, Array]:
    """RMS norm and the inverse root mean squares it used, which stay float32 for half types."""
    y, rstd = _rms_norm(m, widened(x), shape, widened(weight), eps, "aten::_fused_rms_norm")
    return y.astype(x.dtype, copy=False), rstd


def _weight_norm(m: Any, v: Array, g: Array, dim: int, op: str) -> tuple[Array, Array]:
    if dim == -1:
        norms = vector_norm(m, v, 2, None, False, None, op)
    else:
        keep = one_axis(v.ndim, dim, op)
        norms = vector_norm(m, v, 2, tuple(i for i in range(v.ndim) if i != keep), True, None, op)
    return v * (g / norms), norms


@reduction("aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor")
def weight_norm(m: Any, v: Array, g: Array, dim: int) -> Array:
    """``v`` with every slice along ``dim`` scaled to the length ``g`` (as a whole, when ``dim`` is -1)."""
    return _weight_norm(m, v, g, dim, "aten::_weight_norm")[0]


@reduction("aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)")
def weight_norm_interface(m: Any, v: Array, g: Array, dim: int) -> tuple[Array, Array]:
    """``v`` with every slice along ``dim`` scaled to the length ``g``, and the lengths it had."""
    return _weight_norm(m, v, g, dim, "aten::_weight_norm_interface")


out_form(
    "aten::_weight_norm_interface.out(Tensor v, Tensor g, int dim=0, *, Tensor(a!) out0, Tensor(b!) out1) "
    "-> (Tensor(a!), Tensor(b!))",
    "aten::_weight_norm_interface",
)
