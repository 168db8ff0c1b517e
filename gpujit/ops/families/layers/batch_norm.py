"""Batch normalisation in all the forms a graph may hold."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES
from gpujit.ir.values import Array
from gpujit.ops import row_bodies
from gpujit.ops.axes import need_floating, sum_squares, total
from gpujit.ops.into import fits
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rows import Rows, no_dims
from gpujit.ops.rules.common import same_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

Three = tuple[Array, Array, Array]


def widened(x: Array | None) -> Any:
    """``x`` in float32 when it is of a half type."""
    return x.astype(FLOAT32) if x is not None and x.dtype in HALF_TYPES else x


def check_channels(op: str, x: Array, c: int, **vectors: Array | None) -> None:
    """Refuse parameters and statistics that have not one element per channel, or another dtype."""
    for name, v in vectors.items():
        if v is None:
            continue
        if v.size != c:
            raise ShapeError(f"{op}: {name} has {v.size} elements, the input of shape {x.shape} has {c} channels")
        if v.dtype != x.dtype and not (v.dtype == FLOAT32 and x.dtype in HALF_TYPES):
            raise DTypeError(f"{op}: {name} is {v.dtype}, the input {x.dtype}; they must have the same dtype")


def _apply(
    x: Array, mean: Array, invstd: Array, weight: Array | None, bias: Array | None, shape: tuple[int, ...]
) -> Array:
    """(x - mean) * invstd * weight + bias as one multiply and one add: scale and shift are small."""
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    y = x * scale.reshape(shape)
    y += shift.reshape(shape)
    return y


def normalise_channels(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    op: str,
) -> tuple[Array, Array | None, Array | None, Array | None]:
    """Result, mean, variance (biased) and inverse deviation; the last three are None out of training.

    In training the running statistics are written through, the variance unbiased.
    """
    if x.ndim < 2 and x.size:
        raise ShapeError(f"{op}: expected at least 2 dims [N, C, ..], found shape {x.shape}")
    c = x.shape[1] if x.ndim > 1 else 0
    check_channels(op, x, c, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    half = x.dtype if x.dtype in HALF_TYPES else None
    if half is not None:
        x, weight, bias = x.astype(FLOAT32), widened(weight), widened(bias)
    elif x.dtype.kind in "bui":
        need_floating(x, op)
    channels = (c,) + (1,) * (x.ndim - 2)
    if not training:
        if running_mean is None or running_var is None:
            raise OpError(f"{op}: running_mean and running_var are needed out of training; pass them, or training=True")
        if half is not None:
            running_mean, running_var = widened(running_mean), widened(running_var)
        if x.ndim < 2:
            return (x.copy() if half is None else x.astype(half)), None, None, None
        y = _apply(x, running_mean, 1 / m.sqrt(running_var + eps), weight, bias, channels)
        return (y if half is None else y.astype(half)), None, None, None
    axes = (0, *range(2, x.ndim))
    n = x.size // c if c else 0
    if n == 0:
        zeros = m.zeros(c, dtype=x.dtype)
        return (x.copy() if half is None else x.astype(half)), zeros, zeros, 1 / m.sqrt(zeros + eps)
    mean = total(m, x, axes) / n
    d = x - mean.reshape(channels)
    var = sum_squares(m, d, axes) / n
    invstd = 1 / m.sqrt(var + eps)
    if running_mean is not None:
        running_mean[...] = (1 - momentum) * widened(running_mean) + momentum * mean
    if running_var is not None:
        unbiased = var * (n / (n - 1) if n != 1 else m.nan)
        running_var[...] = (1 - momentum) * widened(running_var) + momentum * unbiased
    d *= (invstd if weight is None else invstd * weight).reshape(channels)
    if bias is not None:
        d += bias.reshape(channels)
    return (d if half is None else d.astype(half)), mean, var, invstd


_BATCH = "Tensor input, Tensor? weight, Tensor? bias"


_CHANNELS = {"weight": 1, "bias": 1, "running_mean": 1, "running_var": 1}


# Statistics are written through without an alias mark, so half types must arrive as they are.
def _batch_norm_into(
    m: Any,
    out: Array,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    if training or mean is None or var is None or x.ndim < 2 or x.dtype.char not in "fd":
        return NotImplemented
    if not fits(out, x.shape, x.dtype):
        return NotImplemented
    check_channels("aten::batch_norm", x, x.shape[1], weight=weight, bias=bias, running_mean=mean, running_var=var)
    scale = 1 / m.sqrt(var + eps)
    if weight is not None:
        scale *= weight
    shift = -mean * scale if bias is None else bias - mean * scale
    channels = (x.shape[1],) + (1,) * (x.ndim - 2)
    m.multiply(x, scale.reshape(channels), out=out)
    out += shift.reshape(channels)
    return None


@reduction(
    f"aten::batch_norm({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, "
    "bool cudnn_enabled) -> Tensor",
    half="native",
    type_rule=same_type,
    into=_batch_norm_into,
    scalar=Rows(no_dims, row_bodies.batch_norm, aligned=_CHANNELS),
    hidden_writes=("running_mean", "running_var"),
    active_if=("training",),
)
def batch_norm(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Array:
    """``x [N, C, ..]`` normalised per channel: by running statistics, or in training by its own, which update those."""
    return normalise_channels(
        m, x, weight, bias, running_mean, running_var, training, momentum, eps, "aten::batch_norm"
    )[0]


def _three(
    m: Any, x: Array, weight: Array | None, found: tuple[Array, Array | None, Array | None, Array | None]
) -> Three:
    y, mean, _, invstd = found
    # Statistics of half types are kept in float32 only beside float32 weights.
    dtype = x.dtype if weight is None or x.dtype not in HALF_TYPES else weight.dtype
    if mean is None or invstd is None:
        return y, m.empty(0, dtype=dtype), m.empty(0, dtype=dtype)
    return y, mean.astype(dtype, copy=False), invstd.astype(dtype, copy=False)


@reduction(
    f"aten::native_batch_norm({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, "
    "float eps) -> (Tensor, Tensor, Tensor)",
    half="native",
    hidden_writes=("running_mean", "running_var"),
    active_if=("training",),
)
def native_batch_norm(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Three:
    """Batch norm, and in training the mean and inverse deviation it used (empty otherwise)."""
    found = normalise_channels(
        m, x, weight, bias, running_mean, running_var, training, momentum, eps, "aten::native_batch_norm"
    )
    return _three(m, x, weight, found)


out_form(
    f"aten::native_batch_norm.out({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, "
    "float eps, *, Tensor(a!) out, Tensor(b!) save_mean, Tensor(c!) save_invstd) -> (Tensor(a!), Tensor(b!), "
    "Tensor(c!))",
    "aten::native_batch_norm",
)


reduction(
    f"aten::_native_batch_norm_legit({_BATCH}, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, "
    "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    half="native",
)(native_batch_norm)


@reduction(
    f"aten::_native_batch_norm_legit.no_stats({_BATCH}, bool training, float momentum, float eps) -> (Tensor, "
    "Tensor, Tensor)",
    half="native",
)
def native_batch_norm_no_stats(
    m: Any, x: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> Three:
    """Batch norm by the input's own statistics, which are returned too."""
    found = normalise_channels(
        m, x, weight, bias, None, None, training, momentum, eps, "aten::_native_batch_norm_legit"
    )
    return _three(m, x, weight, found)


_STATS_OUT = (
    ", *, Tensor({}!) out, Tensor({}!) save_mean, Tensor({}!) save_invstd) -> (Tensor({}!), Tensor({}!), Tensor({}!))"
)
out_form(
    f"aten::_native_batch_norm_legit.out({_BATCH}, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, "
    "float momentum, float eps" + _STATS_OUT.format(*"defdef"),
    "aten::_native_batch_norm_legit",
)
out_form(
    f"aten::_native_batch_norm_legit.no_stats_out({_BATCH}, bool training, float momentum, float eps"
    + _STATS_OUT.format(*"abcabc"),
    "aten::_native_batch_norm_legit.no_stats",
)


@reduction(
    f"aten::_native_batch_norm_legit_no_training({_BATCH}, Tensor running_mean, Tensor running_var, float momentum, "
    "float eps) -> (Tensor, Tensor, Tensor)",
    half="native",
)
def native_batch_norm_no_training(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> Three:
    """Batch norm by running statistics, and two empty tensors."""
    op = "aten::_native_batch_norm_legit_no_training"
    return _three(
        m, x, weight, normalise_channels(m, x, weight, bias, running_mean, running_var, False, momentum, eps, op)
    )


THREE_OUT = ", *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
out_form(
    f"aten::_native_batch_norm_legit_no_training.out({_BATCH}, Tensor running_mean, Tensor running_var, float "
    "momentum, "
    "float eps" + THREE_OUT,
    "aten::_native_batch_norm_legit_no_training",
)


@reduction(
    f"aten::_batch_norm_impl_index({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, "
    "float eps, bool cudnn_enabled) -> (Tensor, Tensor, Tensor, Tensor, int)",
    half="native",
    hidden_writes=("running_mean", "running_var"),
    active_if=("training",),
)
def batch_norm_impl_index(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> tuple[Array, Array, Array, Array, int]:
    """Batch norm, the statistics it used, an empty reserve and the number of the implementation, 0."""
    y, mean, invstd = native_batch_norm(m, x, weight, bias, running_mean, running_var, training, momentum, eps)
    return y, mean, invstd, m.empty(0, dtype=m.uint8), 0


@reduction(
    f"aten::_batch_norm_with_update({_BATCH}, Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float "
    "eps) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    half="native",
)
def batch_norm_with_update(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array]:
    """Batch norm in training, the statistics it used, and an empty reserve."""
    y, mean, invstd = native_batch_norm(m, x, weight, bias, running_mean, running_var, True, momentum, eps)
    return y, mean, invstd, m.empty(0, dtype=m.uint8)


@reduction(
    f"aten::_batch_norm_no_update({_BATCH}, Tensor? running_mean, Tensor? running_var, float momentum, float eps) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    half="native",
)
def batch_norm_no_update(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array]:
    """Batch norm by running statistics, two empty tensors and an empty reserve."""
    y, mean, invstd = native_batch_norm(m, x, weight, bias, running_mean, running_var, False, momentum, eps)
    return y, mean, invstd, m.empty(0, dtype=m.uint8)


@reduction(
    f"aten::_batch_norm_with_update_functional({_BATCH}, Tensor running_mean, Tensor running_var, float momentum, "
    "float eps)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)",
    half="native",
)
def batch_norm_with_update_functional(
    m: Any,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Batch norm in training, the statistics it used, an empty reserve, and the new running statistics."""
    new_mean, new_var = running_mean.copy(), running_var.copy()
    found = batch_norm_with_update(m, x, weight, bias, new_mean, new_var, momentum, eps)
    return (*found, new_mean, new_var)


_FOUR_OUT = "-> (Tensor({}!), Tensor({}!), Tensor({}!), Tensor({}!))"
out_form(
    f"aten::_batch_norm_with_update.out({_BATCH}, Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, "
    "float eps, *, Tensor(d!) out, Tensor(e!) save_mean, Tensor(f!) save_invstd, Tensor(g!) reserve) "
    + _FOUR_OUT.format(*"defg"),
    "aten::_batch_norm_with_update",
)
out_form(
    f"aten::_batch_norm_no_update.out({_BATCH}, Tensor? running_mean, Tensor? running_var, float momentum, float "
    "eps, *, "
    "Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3) " + _FOUR_OUT.format(*"abcd"),
    "aten::_batch_norm_no_update",
)
