"""Losses between two tensors of numbers. ``reduction`` is 0 (one per element), 1 (mean) or 2 (sum)."""

from __future__ import annotations

from typing import Any

from gpujit.ir.values import Array
from gpujit.ops.axes import need_floating, total
from gpujit.ops.families.matrices.distance import apart, check_broadcast, together
from gpujit.ops.into import by_parts, longest
from gpujit.ops.promotion import to_floating
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rules.reduce import floating_loss_type, loss_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

MEAN, SUM = 1, 2


def reduced(m: Any, loss: Array, how: int) -> Array:
    """The losses themselves, their mean or their sum; the mean of none is NaN."""
    if how == 0:
        return loss
    if loss.dtype.kind in "bui":
        if how == MEAN:
            need_floating(loss, "aten::mean")
        return m.add.reduce(loss, None, m.int64)
    y = total(m, loss, None)
    return y / loss.size if how == MEAN else y


def _numbers(op: str, *operands: Array) -> list[Array]:
    values = together(op, *operands)
    if values[0].dtype.char not in "fd":
        raise DTypeError(f"{op}: expected floating tensors, found {', '.join(str(x.dtype) for x in operands)}")
    return values


# -------------------------------------------------------------------------------------------------- differences


def _unreduced_axis(x: Array, target: Array, reduction: int, *numbers: Any) -> int | None:
    return longest(x.shape) if reduction == 0 and x.shape == target.shape else None


# Losses of single elements, one part after the other; a reduced loss is one number.
_UNREDUCED = by_parts(_unreduced_axis, (0, 1))


@reduction(
    "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
    into=_UNREDUCED,
)
def mse_loss(m: Any, x: Array, target: Array, reduction: int) -> Array:
    """(x - target)²."""
    x, target = _numbers("aten::mse_loss", x, target)
    d = x - target
    return reduced(m, d * d, reduction)


@reduction(
    "aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    half="promote",
    type_rule=loss_type,
    into=_UNREDUCED,
)
def l1_loss(m: Any, x: Array, target: Array, reduction: int) -> Array:
    """|x - target|."""
    x, target = together("aten::l1_loss", x, target)
    return reduced(m, m.abs(x - target), reduction)


@reduction(
    "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
    into=_UNREDUCED,
)
def smooth_l1_loss(m: Any, x: Array, target: Array, reduction: int, beta: float) -> Array:
    """d² / (2 beta) where d = |x - target| is below ``beta``, d - beta / 2 elsewhere."""
    if beta < 0:
        raise OpError(f"aten::smooth_l1_loss: beta must not be negative, found {beta}")
    x, target = _numbers("aten::smooth_l1_loss", x, target)
    d = m.abs(x - target)
    if beta == 0:
        return reduced(m, d, reduction)
    return reduced(m, m.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta), reduction)


@reduction(
    "aten::huber_loss(Tensor self, Tensor target, int reduction=1, float delta=1.) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
    into=_UNREDUCED,
)
def huber_loss(m: Any, x: Array, target: Array, reduction: int, delta: float) -> Array:
    """d² / 2 where d = |x - target| is at most ``delta``, delta (d - delta / 2) elsewhere."""
    if delta <= 0:
        raise OpError(f"aten::huber_loss: delta must be positive, found {delta}")
    x, target = _numbers("aten::huber_loss", x, target)
    d = m.abs(x - target)
    return reduced(m, m.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


# -------------------------------------------------------------------------------------------------- probabilities


def softplus(m: Any, x: Array) -> Array:
    """log(1 + exp(x)), which neither overflows nor loses digits."""
    return m.maximum(x, x.dtype.type(0)) + m.log1p(m.exp(-m.abs(x)))


@reduction(
    "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
)
def binary_cross_entropy(m: Any, x: Array, target: Array, weight: Array | None, reduction: int) -> Array:
    """-(target log x + (1 - target) log(1 - x)), with logarithms cut at -100."""
    op = "aten::binary_cross_entropy"
    if x.shape != target.shape:
        raise ShapeError(f"{op}: the input has shape {x.shape}, the target {target.shape}; they must be the same")
    x, target = _numbers(op, x, target)
    for name, v in (("input", x), ("target", target)):
        if not ((v >= 0) & (v <= 1)).all():
            raise OpError(f"{op}: all elements of {name} must lie between 0 and 1; scores need the _with_logits form")
    least = x.dtype.type(-100)
    loss = (target - 1) * m.maximum(m.log1p(-x), least) - target * m.maximum(m.log(x), least)
    if weight is not None:
        check_broadcast(op, loss, weight)
        loss = loss * weight
    return reduced(m, loss, reduction)


@reduction(
    "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
    "int reduction=1) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
)
def binary_cross_entropy_with_logits(
    m: Any, x: Array, target: Array, weight: Array | None, pos_weight: Array | None, reduction: int
) -> Array:
    """Binary cross entropy of sigmoid(x); ``pos_weight`` scales the loss of positive targets."""
    op = "aten::binary_cross_entropy_with_logits"
    if x.shape != target.shape:
        raise ShapeError(f"{op}: the input has shape {x.shape}, the target {target.shape}; they must be the same")
    x, target = together(op, x, target)
    if x.dtype.kind in "bui":
        x, target = x.astype(to_floating(x.dtype)), target.astype(to_floating(x.dtype))
    if pos_weight is None:
        loss = (1 - target) * x + softplus(m, -x)
    else:
        check_broadcast(op, x, pos_weight)
        loss = (1 - target) * x + ((pos_weight - 1) * target + 1) * softplus(m, -x)
    if weight is not None:
        check_broadcast(op, loss, weight)
        loss = loss * weight
    return reduced(m, loss, reduction)


def _xlogy(m: Any, t: Array) -> Array:
    """t log t, zero at zero."""
    return m.where(t == 0, t.dtype.type(0), t * m.log(t))


@reduction(
    "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
    half="promote",
    type_rule=loss_type,
)
def kl_div(m: Any, x: Array, target: Array, reduction: int, log_target: bool) -> Array:
    """target (log target - x) for log-probabilities ``x``; ``target`` holds logarithms too when ``log_target``."""
    x, target = together("aten::kl_div", x, target)
    if x.dtype.kind in "bui":
        need_floating(x, "aten::kl_div")
    if log_target:
        return reduced(m, m.exp(target) * (target - x), reduction)
    return reduced(m, _xlogy(m, target) - target * x, reduction)


@reduction(
    "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> "
    "Tensor",
    half="promote",
    type_rule=floating_loss_type,
)
def poisson_nll_loss(m: Any, x: Array, target: Array, log_input: bool, full: bool, eps: float, reduction: int) -> Array:
    """Negative log likelihood of counts ``target`` under rates ``x`` (their logarithms when ``log_input``)."""
    x, target = together("aten::poisson_nll_loss", x, target)
    floating = to_floating(x.dtype)
    x, target = x.astype(floating, copy=False), target.astype(floating, copy=False)
    loss = m.exp(x) - target * x if log_input else x - target * m.log(x + eps)
    if full:
        stirling = target * m.log(target) - target + 0.5 * m.log(2 * m.pi * target)
        loss = loss + m.where(target <= 1, floating.type(0), stirling)
    return reduced(m, loss, reduction)


# -------------------------------------------------------------------------------------------------------- margins


def _at_least_zero(m: Any, x: Array) -> Array:
    return m.maximum(x, x.dtype.type(0))


def _with_margin(x: Array, margin: float) -> Array:
    """``x`` in a dtype that can hold a float margin added to it."""
    return x.astype(to_floating(x.dtype)) if x.dtype.kind in "bui" else x


@reduction(
    "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1., int reduction=1) -> Tensor",
    half="promote",
    type_rule=loss_type,
)
def hinge_embedding_loss(m: Any, x: Array, target: Array, margin: float, reduction: int) -> Array:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    check_broadcast("aten::hinge_embedding_loss", x, target)
    gap = (margin - x).astype(x.dtype, copy=False)
    zero = x.dtype.type(0)
    loss = m.where(target != 1, m.maximum(gap, zero), zero) + m.where(target != -1, x, zero)
    return reduced(m, loss, reduction)


@reduction(
    "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1) -> "
    "Tensor",
    half="promote",
)
def cosine_embedding_loss(m: Any, x1: Array, x2: Array, target: Array, margin: float, reduction: int) -> Array:
    """1 - cos(x1, x2) where the target is 1, max(0, cos - margin) where it is -1; vectors along the last dim."""
    op = "aten::cosine_embedding_loss"
    if target.ndim > 1 or x1.ndim != target.ndim + 1 or x2.ndim != target.ndim + 1:
        raise ShapeError(
            f"{op}: a target of shape {target.shape} needs inputs of one dim more, found {x1.shape} and {x2.shape}"
        )
    x1, x2 = together(op, x1, x2)
    floating = to_floating(x1.dtype)
    x1, x2 = x1.astype(floating, copy=False), x2.astype(floating, copy=False)
    axes = (target.ndim,)
    # The source adds this to squared lengths, so that zero vectors have a cosine of 0.
    tiny = floating.type(1e-12)
    lengths = (total(m, x1 * x1, axes) + tiny) * (total(m, x2 * x2, axes) + tiny)
    cos = total(m, x1 * x2, axes) / m.sqrt(lengths)
    zero = floating.type(0)
    check_broadcast(op, cos, target)
    loss = m.where(target == 1, 1 - cos, zero) + m.where(
        target == -1, m.maximum(cos - floating.type(margin), zero), zero
    )
    return reduced(m, loss, reduction)


@reduction(
    "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1) -> "
    "Tensor",
    half="promote",
)
def margin_ranking_loss(m: Any, x1: Array, x2: Array, target: Array, margin: float, reduction: int) -> Array:
    """max(0, margin - target (x1 - x2))."""
    x1, x2, target = together("aten::margin_ranking_loss", x1, x2, target)
    gap = _with_margin(-target * (x1 - x2), margin) + margin
    return reduced(m, _at_least_zero(m, gap), reduction)


@reduction(
    "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1., float p=2., "
    "float eps=9.9999999999999995e-07, bool swap=False, int reduction=1) -> Tensor",
    half="promote",
)
def triplet_margin_loss(
    m: Any,
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
    reduction: int,
) -> Array:
    """max(0, margin + |anchor - positive| - |anchor - negative|) along the last dim."""
    op = "aten::triplet_margin_loss"
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"{op}: the inputs have {anchor.ndim}, {positive.ndim} and {negative.ndim} dims; they must have as many"
        )
    near, far = apart(m, anchor, positive, p, eps, False, op), apart(m, anchor, negative, p, eps, False, op)
    if swap:
        far = m.minimum(far, apart(m, positive, negative, p, eps, False, op))
    check_broadcast(op, near, far)
    return reduced(m, _at_least_zero(m, margin + near - far), reduction)


@reduction(
    "aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    out="out",
    half="promote",
    type_rule=loss_type,
    into=_UNREDUCED,
)
def soft_margin_loss(m: Any, x: Array, target: Array, reduction: int) -> Array:
    """log(1 + exp(-target x)), infinite where exp overflows, as in PyTorch."""
    x, target = together("aten::soft_margin_loss", x, target)
    z = _with_margin(-target * x, 0.0)
    return reduced(m, m.log1p(m.exp(z)), reduction)


# ------------------------------------------------------------------------------------------------------- backward


def _spread(m: Any, grad: Array, shape: tuple[int, ...], how: int) -> Array:
    """The gradient of each element's loss: the mean's is shared out, the sum's is the same for all."""
    if how == 0:
        return grad
    n = 1
    for s in shape:
        n *= s
    return grad / n if how == MEAN else grad


@reduction(
    "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor", half="promote"
)
def mse_loss_backward(m: Any, grad: Array, x: Array, target: Array, reduction: int) -> Array:
    """Gradient of mse_loss with respect to ``self``."""
    x, target = _numbers("aten::mse_loss_backward", x, target)
    d = x - target
    return 2 * d * _spread(m, grad, d.shape, reduction)


@reduction(
    "aten::smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta) -> "
    "Tensor",
    half="promote",
)
def smooth_l1_loss_backward(m: Any, grad: Array, x: Array, target: Array, reduction: int, beta: float) -> Array:
    """Gradient of smooth_l1_loss with respect to ``self``."""
    x, target = _numbers("aten::smooth_l1_loss_backward", x, target)
    d = x - target
    slope = m.sign(d) if beta == 0 else m.clip(d / x.dtype.type(beta), -1, 1)
    return slope * _spread(m, grad, d.shape, reduction)


@reduction(
    "aten::huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta) -> Tensor",
    half="promote",
)
def huber_loss_backward(m: Any, grad: Array, x: Array, target: Array, reduction: int, delta: float) -> Array:
    """Gradient of huber_loss with respect to ``self``."""
    x, target = _numbers("aten::huber_loss_backward", x, target)
    d = x - target
    return m.clip(d, -delta, delta) * _spread(m, grad, d.shape, reduction)


@reduction(
    "aten::soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor",
    half="promote",
)
def soft_margin_loss_backward(m: Any, grad: Array, x: Array, target: Array, reduction: int) -> Array:
    """Gradient of soft_margin_loss with respect to ``self``."""
    x, target = _numbers("aten::soft_margin_loss_backward", x, target)
    z = m.exp(-target * x)
    return -target * z / (1 + z) * _spread(m, grad, z.shape, reduction)


@reduction(
    "aten::binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, "
    "int reduction=1) -> Tensor",
    half="promote",
)
def binary_cross_entropy_backward(
    m: Any, grad: Array, x: Array, target: Array, weight: Array | None, reduction: int
) -> Array:
    """Gradient of binary_cross_entropy with respect to ``self``."""
    x, target = _numbers("aten::binary_cross_entropy_backward", x, target)
    y = _spread(m, grad, x.shape, reduction) * (x - target) / m.maximum((1 - x) * x, x.dtype.type(1e-12))
    return y if weight is None else y * weight


for _text, _target in (
    ("mse_loss_backward.grad_input(Tensor grad_output, Tensor self, Tensor target, int reduction", "mse_loss_backward"),
    (
        "smooth_l1_loss_backward.grad_input(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta",
        "smooth_l1_loss_backward",
    ),
    (
        "huber_loss_backward.out(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta",
        "huber_loss_backward",
    ),
    (
        "soft_margin_loss_backward.grad_input(Tensor grad_output, Tensor self, Tensor target, int reduction",
        "soft_margin_loss_backward",
    ),
    (
        "binary_cross_entropy_backward.grad_input(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, "
        "int reduction=1",
        "binary_cross_entropy_backward",
    ),
):
    out_form(f"aten::{_text}, *, Tensor(a!) grad_input) -> Tensor(a!)", f"aten::{_target}")
