"""Normalisation layers: batch, layer, group, instance, root mean square, weight."""

from __future__ import annotations

from typing import Any

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES
from gpujit.ir.values import Array
from gpujit.ops.axes import need_floating, one_axis, sum_squares, total
from gpujit.ops.distance import vector_norm
from gpujit.ops.registry import out_form, reduction
from gpujit.support.errors import DTypeError, OpError, ShapeError

Three = tuple[Array, Array, Array]

# ---------------------------------------------------------------------------------------------------- batch norm


def _float32(x: Array | None) -> Any:
    return x.astype(FLOAT32) if x is not None and x.dtype in HALF_TYPES else x


def _check_channels(op: str, x: Array, c: int, **vectors: Array | None) -> None:
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


def _batch_norm(
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
    _check_channels(op, x, c, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    half = x.dtype if x.dtype in HALF_TYPES else None
    if half is not None:
        x, weight, bias = x.astype(FLOAT32), _float32(weight), _float32(bias)
    elif x.dtype.kind in "bui":
        need_floating(x, op)
    channels = (c,) + (1,) * (x.ndim - 2)
    if not training:
        if running_mean is None or running_var is None:
            raise OpError(f"{op}: running_mean and running_var are needed out of training; pass them, or training=True")
        if half is not None:
            running_mean, running_var = _float32(running_mean), _float32(running_var)
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
        running_mean[...] = (1 - momentum) * _float32(running_mean) + momentum * mean
    if running_var is not None:
        unbiased = var * (n / (n - 1) if n != 1 else m.nan)
        running_var[...] = (1 - momentum) * _float32(running_var) + momentum * unbiased
    d *= (invstd if weight is None else invstd * weight).reshape(channels)
    if bias is not None:
        d += bias.reshape(channels)
    return (d if half is None else d.astype(half)), mean, var, invstd


_BATCH = "Tensor input, Tensor? weight, Tensor? bias"


# Statistics are written through without an alias mark, so half types must arrive as they are.
@reduction(
    f"aten::batch_norm({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, "
    "bool cudnn_enabled) -> Tensor",
    half="native",
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
    return _batch_norm(m, x, weight, bias, running_mean, running_var, training, momentum, eps, "aten::batch_norm")[0]


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
    found = _batch_norm(
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
    found = _batch_norm(m, x, weight, bias, None, None, training, momentum, eps, "aten::_native_batch_norm_legit")
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
    return _three(m, x, weight, _batch_norm(m, x, weight, bias, running_mean, running_var, False, momentum, eps, op))


_THREE_OUT = ", *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
out_form(
    f"aten::_native_batch_norm_legit_no_training.out({_BATCH}, Tensor running_mean, Tensor running_var, float "
    "momentum, "
    "float eps" + _THREE_OUT,
    "aten::_native_batch_norm_legit_no_training",
)


@reduction(
    f"aten::_batch_norm_impl_index({_BATCH}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, "
    "float eps, bool cudnn_enabled) -> (Tensor, Tensor, Tensor, Tensor, int)",
    half="native",
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


@reduction(
    "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    half="native",
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
        return _batch_norm(m, x, weight, bias, running_mean, running_var, False, momentum, eps, op)[0]
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected at least 2 dims [N, C, ..], found shape {x.shape}")
    n, c = x.shape[:2]
    _check_channels(op, x, c, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    need_floating(x, op)
    wide = _float32(x)
    count = x.size // (n * c) if n * c else 0
    d, mean, var = _centred(m, wide.reshape(n * c, count))
    if running_mean is not None and n:
        running_mean[...] = (1 - momentum) * _float32(running_mean) + momentum * mean.reshape(n, c).mean(axis=0)
    if running_var is not None and n:
        unbiased = var.reshape(n, c).mean(axis=0) * (count / (count - 1) if count != 1 else m.nan)
        running_var[...] = (1 - momentum) * _float32(running_var) + momentum * unbiased
    d *= 1 / m.sqrt(var + eps)
    y = d.reshape(x.shape)
    channels = (c,) + (1,) * (x.ndim - 2)
    if weight is not None:
        y *= _float32(weight).reshape(channels)
    if bias is not None:
        y += _float32(bias).reshape(channels)
    return y if y.dtype == x.dtype else y.astype(x.dtype)


# ---------------------------------------------------------------------------------------------- layer, group norm


def _centred(m: Any, rows: Array) -> Three:
    """Rows less their means, the means ``[R, 1]`` and the biased variances ``[R, 1]``."""
    n = rows.shape[1]
    mean = total(m, rows, (1,), True)
    mean = mean / n if n else mean
    d = rows - mean
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


def _layer_norm(
    m: Any, x: Array, shape: list[int], weight: Array | None, bias: Array | None, eps: float, op: str
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
    axes = (rows.ndim - 1,)
    mean = total(m, rows, axes, True) / n if n else total(m, rows, axes, True)
    d = rows - mean
    rstd = 1 / m.sqrt(sum_squares(m, d, axes, True) / n + eps)
    d *= rstd
    if weight is not None:
        d *= weight
    if bias is not None:
        d += bias
    return (d if rows is x else d.reshape(x.shape)), mean, rstd


@reduction(
    "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor"
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
    y, mean, rstd = _layer_norm(m, _float32(x), shape, _float32(weight), _float32(bias), eps, "aten::native_layer_norm")
    kept = x.shape[: x.ndim - len(shape)] + (1,) * len(shape)
    stats = x.dtype if weight is None or x.dtype not in HALF_TYPES else weight.dtype
    return (
        y.astype(x.dtype, copy=False),
        mean.reshape(kept).astype(stats, copy=False),
        rstd.reshape(kept).astype(stats, copy=False),
    )


out_form(
    "aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps"
    + _THREE_OUT,
    "aten::native_layer_norm",
)


def _group_norm(m: Any, x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float, op: str) -> Three:
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{op}: an input of shape {x.shape} can't be divided into {groups} groups of channels")
    n, c = x.shape[:2]
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.shape != (c,):
            raise ShapeError(f"{op}: {name} has shape {v.shape}, the input of shape {x.shape} needs ({c},)")
    if x.dtype.kind in "buic":
        raise DTypeError(f"{op}: expected a floating tensor, found {x.dtype}")
    d, mean, var = _centred(m, x.reshape(n * groups, x.size // (n * groups) if n else 0))
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


@reduction(
    "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor"
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
    wide = _float32(x).reshape(n, c, area)
    y, mean, rstd = _group_norm(m, wide, group, _float32(weight), _float32(bias), eps, "aten::native_group_norm")
    stats = x.dtype if weight is None or x.dtype not in HALF_TYPES else weight.dtype
    return (
        y.reshape(x.shape).astype(x.dtype, copy=False),
        mean.reshape(n, group).astype(stats, copy=False),
        rstd.reshape(n, group).astype(stats, copy=False),
    )


out_form(
    "aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int "
    "group, "
    "float eps" + _THREE_OUT,
    "aten::native_group_norm",
)


# ------------------------------------------------------------------------------------------------------ rms, weight


def _rms_norm(
    m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None, op: str
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
    y = x * rstd
    if weight is not None:
        y *= weight
    return y, rstd


@reduction("aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor")
def rms_norm(m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None) -> Array:
    """``x`` divided by the root of its mean square over its last dims, then scaled."""
    return _rms_norm(m, x, shape, weight, eps, "aten::rms_norm")[0]


@reduction(
    "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
    half="native",
)
def fused_rms_norm(m: Any, x: Array, shape: list[int], weight: Array | None, eps: float | None) -> tuple[Array, Array]:
    """RMS norm and the inverse root mean squares it used, which stay float32 for half types."""
    y, rstd = _rms_norm(m, _float32(x), shape, _float32(weight), eps, "aten::_fused_rms_norm")
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
