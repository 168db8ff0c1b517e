"""Losses of scores against classes."""

from __future__ import annotations

from collections.abc import Callable

from gpujit import ops
from gpujit.nn.functional.loss import reduced, reduction_code
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Less the log probability of the target's class; ``input [N, C, ...]`` holds log probabilities."""
    return ops.nll_loss_nd(input, target, weight, reduction_code(reduction, size_average, reduce), ignore_index)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of scores ``input [N, C, ...]`` and classes ``[N, ...]``, or probabilities ``[N, C, ...]``."""
    code = reduction_code(reduction, size_average, reduce)
    return ops.cross_entropy_loss(input, target, weight, code, ignore_index, label_smoothing)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross entropy of probabilities with targets from 0 to 1. Raises LayerError for shapes that differ."""
    code = reduction_code(reduction, size_average, reduce)
    if ops.size(input) != ops.size(target):
        raise LayerError(
            f"binary_cross_entropy: input has size {ops.size(input)}, target {ops.size(target)}; they must be equal"
        )
    if weight is not None:
        weight = ops.expand(weight, ops.size(ops.add(weight, target)))
    return ops.binary_cross_entropy(input, target, weight, code)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The cross entropy of the sigmoid of scores with targets. Raises LayerError for shapes that differ."""
    code = reduction_code(reduction, size_average, reduce)
    if ops.size(input) != ops.size(target):
        raise LayerError(
            f"binary_cross_entropy_with_logits: input has size {ops.size(input)}, target {ops.size(target)}; "
            "they must be equal"
        )
    return ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, code)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over classes of max(0, margin - score of the target + score) ** p, with p 1 or 2."""
    code = reduction_code(reduction, size_average, reduce)
    if p != 1 and p != 2:
        raise LayerError(f"multi_margin_loss: p must be 1 or 2, found {p}")
    return ops.multi_margin_loss(input, target, p, margin, weight, code)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The margin loss with several target classes, listed from the start of each row up to the first -1."""
    return ops.multilabel_margin_loss(input, target, reduction_code(reduction, size_average, reduce))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over classes of the cross entropy of sigmoid(score) with targets 0 and 1."""
    code = reduction_code(reduction, size_average, reduce)
    hits = ops.mul(target, ops.log_sigmoid(input))
    misses = ops.mul(ops.rsub(target, 1), ops.log_sigmoid(ops.neg(input)))
    loss = ops.neg(ops.add(hits, misses))
    if weight is not None:
        loss = ops.mul(loss, weight)
    return reduced(ops.mean(loss, [-1]), code)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification of ``log_probs [T, N, C]`` against sequences of classes."""
    return ops.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, reduction_code(reduction), zero_infinity
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``triplet_margin_loss`` with a distance of the caller's; the pairwise distance when None. Not to be scripted."""
    code = reduction_code(reduction)
    if margin <= 0:
        raise LayerError(f"triplet_margin_with_distance_loss: margin must be positive, found {margin}")
    distance = ops.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduced(ops.clamp_min(ops.add(ops.sub(near, far), margin), 0), code)
