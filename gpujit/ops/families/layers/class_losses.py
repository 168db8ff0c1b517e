"""Losses against class labels: log likelihood, cross entropy, margins, connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpujit.ir.dtypes import INT64
from gpujit.ir.values import Array
from gpujit.ops.axes import total
from gpujit.ops.families.layers.losses import MEAN, reduced
from gpujit.ops.families.layers.softmax import log_softmax_rows
from gpujit.ops.registry import out_form, reduction
from gpujit.ops.rules.reduce import class_loss_type, ctc_loss_type
from gpujit.support.errors import DTypeError, OpError, ShapeError

# -------------------------------------------------------------------------------------------- likelihood of a class


def _labels(m: Any, x: Array, target: Array, ignore: int, op: str) -> tuple[Array, Array, Array]:
    """Flat scores ``[N, C, rest]``, labels ``[N, rest]`` with 0 for ignored ones, and which are not ignored.

    Raises ShapeError: shapes that do not fit, or a label that names no class.
    """
    if target.dtype.kind not in "ui":
        raise DTypeError(f"{op}: labels must be integers, found {target.dtype}")
    c = x.shape[0 if x.ndim == 1 else 1] if x.ndim else 0
    expected = () if x.ndim == 1 else x.shape[:1] + x.shape[2:]
    if x.ndim == 0 or (target.shape != expected and not (x.ndim == 1 and target.size == 1)):
        raise ShapeError(f"{op}: scores of shape {x.shape} need labels of shape {expected}, found {target.shape}")
    n = 1 if x.ndim == 1 else x.shape[0]
    rest = x.size // (n * c) if n * c else 1
    labels = target.reshape(n, target.size // n if n else rest)
    there = labels != ignore
    labels = m.where(there, labels, 0).astype(INT64, copy=False)
    if labels.size and (labels.min() < 0 or labels.max() >= c):
        bad = labels[(labels < 0) | (labels >= c)][0]
        raise ShapeError(f"{op}: label {int(bad)} is out of bounds for {c} classes")
    return x.reshape(n, c, labels.shape[1]), labels, there


def _pick(m: Any, scores: Array, labels: Array) -> Array:
    n, _, rest = scores.shape
    if rest == 1:
        return scores[m.arange(n), labels[:, 0], 0].reshape(n, 1)
    return scores[m.arange(n)[:, None], labels, m.arange(rest)]


def _check_weight(x: Array, weight: Array | None, op: str) -> None:
    c = x.shape[0 if x.ndim == 1 else 1]
    if weight is not None and weight.shape != (c,):
        raise ShapeError(f"{op}: weight has shape {weight.shape}; scores of shape {x.shape} need ({c},)")


def _nll(m: Any, x: Array, target: Array, weight: Array | None, how: int, ignore: int, op: str) -> tuple[Array, Array]:
    """The loss, and the sum of the weights that took part."""
    scores, labels, there = _labels(m, x, target, ignore, op)
    _check_weight(x, weight, op)
    loss = -_pick(m, scores, labels)
    zero = x.dtype.type(0)
    if weight is None:
        loss = m.where(there, loss, zero)
        parts: Any = there
    else:
        parts = m.where(there, weight[labels], zero)
        loss = m.where(there, loss * parts, zero)
    if how == 0:
        shape = x.shape[:1] + x.shape[2:] if x.ndim > 1 else target.shape
        # One unbatched score always counts; PyTorch reports no weight for unreduced batches.
        share = m.asarray(total(m, parts, None) if x.ndim == 1 else 0, dtype=x.dtype)
        return loss.reshape(shape), share
    share = m.add.reduce(parts, None).astype(x.dtype) if weight is None else total(m, parts, None)
    s = total(m, loss, None)
    return (s / share if how == MEAN else s), share


_NLL = "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100"
_NLL_FORWARD = "Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index"


def _declare_nll(name: str, ndims: tuple[int, ...]) -> None:
    """Declare nll_loss or nll_loss2d with their forward and backward forms."""
    op = f"aten::{name}"

    def check(x: Array) -> None:
        if x.ndim not in ndims:
            raise ShapeError(f"{op}: expected scores of {' or '.join(map(str, ndims))} dims, found shape {x.shape}")

    @reduction(f"{op}({_NLL}) -> Tensor", out="out", type_rule=class_loss_type)
    def loss(m: Any, x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int) -> Array:
        """Minus the score of the labelled class, times its weight; the mean is weighted too."""
        check(x)
        return _nll(m, x, target, weight, reduction, ignore_index, op)[0]

    @reduction(f"{op}_forward({_NLL_FORWARD}) -> (Tensor output, Tensor total_weight)")
    def forward(
        m: Any, x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
    ) -> tuple[Array, Array]:
        """The loss and the sum of the weights that took part."""
        check(x)
        return _nll(m, x, target, weight, reduction, ignore_index, op)

    out_form(
        f"{op}_forward.output({_NLL_FORWARD}, *, Tensor(a!) output, Tensor(b!) total_weight) -> (Tensor(a!), "
        "Tensor(b!))",
        f"{op}_forward",
    )
    head = f"Tensor grad_output, {_NLL_FORWARD}, Tensor total_weight"

    @reduction(f"{op}_backward({head}) -> Tensor")
    def backward(
        m: Any,
        grad: Array,
        x: Array,
        target: Array,
        weight: Array | None,
        reduction: int,
        ignore_index: int,
        share: Array,
    ) -> Array:
        """Gradient of the loss with respect to the scores."""
        check(x)
        scores, labels, there = _labels(m, x, target, ignore_index, f"{op}_backward")
        each = grad.reshape(labels.shape) if reduction == 0 else (grad / share if reduction == MEAN else grad)
        each = m.where(there, -each if weight is None else -each * weight[labels], x.dtype.type(0))
        y = m.zeros(scores.shape, dtype=x.dtype)
        y[m.arange(scores.shape[0])[:, None], labels, m.arange(scores.shape[2])] = each
        return y.reshape(x.shape)

    out_form(f"{op}_backward.grad_input({head}, *, Tensor(a!) grad_input) -> Tensor(a!)", f"{op}_backward")


_declare_nll("nll_loss", (1, 2))
_declare_nll("nll_loss2d", (4,))


@reduction(f"aten::nll_loss_nd({_NLL}) -> Tensor", type_rule=class_loss_type)
def nll_loss_nd(m: Any, x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int) -> Array:
    """Minus the score of the labelled class, classes along dim 1 (dim 0 of a single vector)."""
    return _nll(m, x, target, weight, reduction, ignore_index, "aten::nll_loss_nd")[0]


@reduction(
    "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt "
    "ignore_index=-100, "
    "float label_smoothing=0.) -> Tensor",
    type_rule=class_loss_type,
)
def cross_entropy_loss(
    m: Any, x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int, label_smoothing: float
) -> Array:
    """Minus the log-probability of the labelled class; a ``target`` of x's own shape holds class probabilities."""
    op = "aten::cross_entropy_loss"
    if x.ndim == 0 or x.dtype.char not in "fd":
        raise DTypeError(f"{op}: expected floating scores of at least 1 dim, found {x.dtype} of shape {x.shape}")
    if not 0 <= label_smoothing <= 1:
        raise OpError(f"{op}: label_smoothing must lie between 0 and 1, found {label_smoothing}")
    axis = 0 if x.ndim == 1 else 1
    _check_weight(x, weight, op)
    c = x.shape[axis]
    spread = None if weight is None else weight.reshape((c,) + (1,) * (x.ndim - axis - 1))
    if target.shape == x.shape and target.dtype.kind not in "ui":
        logp = log_softmax_rows(m, x, axis)
        if label_smoothing > 0:
            target = target * (1 - label_smoothing) + label_smoothing / c
        loss = logp * target
        if spread is not None:
            loss = loss * spread
        if reduction == 0:
            return -total(m, loss, (axis,))
        s = -total(m, loss, None)
        return s / (x.size // c if c else 0) if reduction == MEAN else s
    there = target != ignore_index
    logp = log_softmax_rows(m, x, axis)
    loss, share = _nll(m, logp, target, weight, reduction, ignore_index, op)
    if label_smoothing == 0:
        return loss
    smooth = -total(m, logp if spread is None else logp * spread, (axis,))
    smooth = m.where(there, smooth, x.dtype.type(0))
    if reduction != 0:
        smooth = total(m, smooth, None)
        if reduction == MEAN:
            smooth = smooth / share
    return (1 - label_smoothing) * loss + smooth * (label_smoothing / c)


# -------------------------------------------------------------------------------------------------------- margins


def _check_labels(target: Array, op: str) -> None:
    if target.dtype != INT64:
        raise DTypeError(f"{op}: target holds {target.dtype} numbers, expected int64 labels")


@reduction(
    "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, "
    "int reduction=1) -> Tensor",
    out="out",
    type_rule=class_loss_type,
)
def multi_margin_loss(
    m: Any, x: Array, target: Array, p: float, margin: float, weight: Array | None, reduction: int
) -> Array:
    """Mean over the other classes of max(0, margin - score of the label + their score) to the power ``p``."""
    op = "aten::multi_margin_loss"
    if p not in (1, 2):
        raise OpError(f"{op}: p must be 1 or 2, found {p}")
    if x.ndim > 2 or (x.ndim and x.shape[-1] == 0):
        raise ShapeError(f"{op}: expected scores [C] or [N, C], found shape {x.shape}")
    _check_labels(target, op)
    rows = x.reshape(-1, x.shape[-1] if x.ndim else 1)
    if target.size != rows.shape[0]:
        raise ShapeError(f"{op}: {rows.shape[0]} rows of scores need as many labels, found shape {target.shape}")
    labels = target.reshape(-1)
    c = rows.shape[1]
    if labels.size and (labels.min() < 0 or labels.max() >= c):
        raise ShapeError(f"{op}: labels must lie between 0 and {c - 1}")
    each = m.arange(rows.shape[0])
    z = m.maximum(rows - rows[each, labels][:, None] + x.dtype.type(margin), x.dtype.type(0))
    z[each, labels] = 0
    if p == 2:
        z *= z
    loss = total(m, z, (1,)) / c
    if weight is not None:
        if weight.shape != (c,):
            raise ShapeError(f"{op}: weight has shape {weight.shape}, {c} classes need ({c},)")
        loss = loss * weight[labels]
    return reduced(m, loss if x.ndim > 1 and target.ndim else loss.reshape(()), reduction)


def _multilabel(m: Any, x: Array, target: Array, how: int, op: str) -> tuple[Array, Array]:
    """Loss and marks of labelled classes; a row of labels ends at its first -1."""
    if x.shape != target.shape or x.ndim > 2:
        raise ShapeError(f"{op}: scores of shape {x.shape} need labels of the same shape, found {target.shape}")
    _check_labels(target, op)
    c = x.shape[-1] if x.ndim else 1
    rows, labels = x.reshape(-1, c), target.reshape(-1, c)
    if labels.size and (labels.min() < -1 or labels.max() >= c):
        raise ShapeError(f"{op}: labels must lie between -1 and {c - 1}")
    valid = m.logical_and.accumulate(labels >= 0, axis=1)
    each = m.arange(rows.shape[0])
    marks = m.zeros(rows.shape, dtype=bool)
    i, j = m.nonzero(valid)
    marks[i, labels[i, j]] = True
    loss = m.zeros(rows.shape[0], dtype=x.dtype)
    zero = x.dtype.type(0)
    # A class named twice counts twice, so the loop is over labels and not over marks.
    for k in range(int(valid.sum(axis=1).max()) if rows.shape[0] else 0):
        column = m.maximum(labels[:, k], 0)
        z = m.maximum(1 - rows[each, column][:, None] + rows, zero)
        loss += m.where(valid[:, k], total(m, m.where(marks, zero, z), (1,)), zero)
    loss /= c
    y = reduced(m, loss if x.ndim == 2 else loss.reshape(()), how)
    return y, marks.astype(x.dtype).reshape(target.shape)


@reduction("aten::multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", out="out")
def multilabel_margin_loss(m: Any, x: Array, target: Array, reduction: int) -> Array:
    """Sum over labelled and unlabelled classes of max(0, 1 - labelled score + other score), over the classes."""
    return _multilabel(m, x, target, reduction, "aten::multilabel_margin_loss")[0]


@reduction(
    "aten::multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor "
    "is_target)"
)
def multilabel_margin_loss_forward(m: Any, x: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    """The loss, and 1 for every labelled class."""
    return _multilabel(m, x, target, reduction, "aten::multilabel_margin_loss_forward")


out_form(
    "aten::multilabel_margin_loss_forward.output(Tensor self, Tensor target, int reduction, *, Tensor(a!) output, "
    "Tensor(b!) is_target) -> (Tensor(a!), Tensor(b!))",
    "aten::multilabel_margin_loss_forward",
)


# ------------------------------------------------------------------------------------------------------------ ctc


def _ctc(
    m: Any,
    logp: Array,
    targets: Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int,
    op: str,
) -> tuple[Array, Array]:
    """Negative log likelihood ``[N]`` and the forward variables ``[N, T, 2 S + 1]``.

    Source: Graves et al. 2006, "Connectionist Temporal Classification", 4.1, in log space.
    """
    if logp.ndim != 3 or logp.dtype.char not in "fd":
        raise ShapeError(f"{op}: expected log-probabilities [T, N, C], found {logp.dtype} of shape {logp.shape}")
    steps, n, c = logp.shape
    if not 0 <= blank < c:
        raise OpError(f"{op}: blank {blank} is none of {c} classes")
    frames, sizes = m.asarray(input_lengths, dtype=INT64), m.asarray(target_lengths, dtype=INT64)
    if frames.shape != (n,) or sizes.shape != (n,):
        raise ShapeError(f"{op}: {n} samples need as many lengths, found {frames.size} and {sizes.size}")
    if n and (frames.min() < 0 or frames.max() > steps or sizes.min() < 0):
        raise ShapeError(
            f"{op}: input lengths must lie between 0 and {steps} and target lengths must not be negative, "
            f"found {frames.tolist()} and {sizes.tolist()}"
        )
    longest = int(sizes.max()) if n else 0
    if targets.ndim == 1:
        if targets.size != int(sizes.sum()):
            raise ShapeError(f"{op}: target lengths sum to {int(sizes.sum())}, there are {targets.size} targets")
        starts = m.cumsum(sizes) - sizes
        at = m.minimum(starts[:, None] + m.arange(longest), max(targets.size - 1, 0))
        labels = targets[at] if targets.size else m.zeros((n, longest), dtype=INT64)
    else:
        if targets.ndim != 2 or targets.shape[0] != n or targets.shape[1] < longest:
            raise ShapeError(f"{op}: targets of shape {targets.shape} do not hold {n} rows of up to {longest} labels")
        labels = targets[:, : max(longest, targets.shape[1])]
        longest = labels.shape[1]
    labels = m.where(m.arange(longest) < sizes[:, None], labels, blank).astype(INT64)
    if labels.size and (labels.min() < 0 or labels.max() >= c):
        raise ShapeError(f"{op}: targets must lie between 0 and {c - 1}")
    width = 2 * longest + 1
    path = m.full((n, width), blank, dtype=INT64)
    path[:, 1::2] = labels
    skips = m.zeros((n, width), dtype=bool)
    skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    each = m.arange(n)
    low = logp.dtype.type(-m.inf)
    alpha = m.full((n, steps, width), low, dtype=logp.dtype)
    inside = m.arange(width) < 2 * sizes[:, None] + 1
    if steps:
        alpha[:, 0, 0] = logp[0, :, blank]
        if longest:
            alpha[:, 0, 1] = m.where(sizes > 0, logp[0, each, path[:, 1]], low)
    for t in range(1, steps):
        before = alpha[:, t - 1]
        step = m.logaddexp(before[:, 1:], before[:, :-1])
        now = alpha[:, t]
        now[:, 0] = before[:, 0]
        now[:, 1:] = step
        now[:, 2:] = m.logaddexp(now[:, 2:], m.where(skips[:, 2:], before[:, :-2], low))
        now += logp[t, each[:, None], path]
        live = inside & (t < frames)[:, None]
        now[...] = m.where(live, now, low)
    last = m.maximum(frames - 1, 0)
    end = alpha[each, last, 2 * sizes] if steps else m.where(sizes == 0, logp.dtype.type(0), low)
    if longest and steps:
        end = m.logaddexp(end, m.where(sizes > 0, alpha[each, last, m.maximum(2 * sizes - 1, 0)], low))
    # No frames explain no labels, and nothing else.
    end = m.where(frames == 0, m.where(sizes == 0, logp.dtype.type(0), low), end)
    return -end, alpha


def _ctc_loss(
    m: Any,
    logp: Array,
    targets: Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int,
    how: int,
    zero_infinity: bool,
) -> Array:
    batched = logp.ndim == 3
    if not batched:
        logp = logp.reshape(logp.shape[0], 1, -1)
        targets = targets.reshape(1, -1) if targets.ndim < 2 else targets
    loss, _ = _ctc(m, logp, targets, input_lengths, target_lengths, blank, "aten::ctc_loss")
    if zero_infinity:
        loss = m.where(loss == m.inf, loss.dtype.type(0), loss)
    if how == MEAN:
        sizes = m.maximum(m.asarray(target_lengths, dtype=INT64), 1).astype(loss.dtype)
        return reduced(m, loss / sizes, MEAN)
    return reduced(m, loss if batched or how else loss.reshape(()), how)


_CTC = "int blank=0, int reduction=1, bool zero_infinity=False) -> Tensor"


@reduction(
    f"aten::ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, {_CTC}",
    type_rule=ctc_loss_type,
)
def ctc_loss(
    m: Any,
    logp: Array,
    targets: Array,
    input_lengths: list[int],
    target_lengths: list[int],
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Array:
    """Minus the log-probability of the targets under ``logp [T, N, C]``, summed over all alignments."""
    return _ctc_loss(m, logp, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


def _as_list(x: Array, op: str) -> list[int]:
    if x.dtype.kind not in "ui":
        raise DTypeError(f"{op}: lengths must be integers, found {x.dtype}")
    return [int(v) for v in x.reshape(-1).tolist()]


@reduction(
    f"aten::ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, {_CTC}",
    type_rule=ctc_loss_type,
)
def ctc_loss_tensor(
    m: Any,
    logp: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Array:
    """Minus the log-probability of the targets under ``logp [T, N, C]``, summed over all alignments."""
    frames, sizes = _as_list(input_lengths, "aten::ctc_loss"), _as_list(target_lengths, "aten::ctc_loss")
    return _ctc_loss(m, logp, targets, frames, sizes, blank, reduction, zero_infinity)


_CTC_PAIR = "int blank=0, bool zero_infinity=False"


@reduction(
    f"aten::_ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, {_CTC_PAIR}) "
    "-> (Tensor, Tensor)"
)
def ctc_forward(
    m: Any,
    logp: Array,
    targets: Array,
    input_lengths: list[int],
    target_lengths: list[int],
    blank: int,
    zero_infinity: bool,
) -> tuple[Array, Array]:
    """The loss of every sample, and the forward variables ``[N, T, 2 S + 1]``."""
    return _ctc(m, logp, targets, input_lengths, target_lengths, blank, "aten::_ctc_loss")


@reduction(
    f"aten::_ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    f"{_CTC_PAIR}) "
    "-> (Tensor, Tensor)"
)
def ctc_forward_tensor(
    m: Any, logp: Array, targets: Array, input_lengths: Array, target_lengths: Array, blank: int, zero_infinity: bool
) -> tuple[Array, Array]:
    """The loss of every sample, and the forward variables ``[N, T, 2 S + 1]``."""
    frames, sizes = _as_list(input_lengths, "aten::_ctc_loss"), _as_list(target_lengths, "aten::_ctc_loss")
    return _ctc(m, logp, targets, frames, sizes, blank, "aten::_ctc_loss")


for _kind, _overload in (("int[]", ""), ("Tensor", "Tensor")):
    out_form(
        f"aten::_ctc_loss.{_overload + '_' if _overload else ''}out(Tensor log_probs, Tensor targets, {_kind} "
        "input_lengths, "
        f"{_kind} target_lengths, {_CTC_PAIR}, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))",
        f"aten::_ctc_loss{'.' + _overload if _overload else ''}",
    )
