"""Losses of numbers against numbers: regression, distributions, distances."""

from __future__ import annotations

import math

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


def reduction_code(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> int:
    """The operators' number of a reduction: none 0, mean 1, sum 2.

    ``size_average`` and ``reduce`` are the older way to say it; either one, when given, stands above ``reduction``.
    """
    if size_average is not None or reduce is not None:
        averaged = True
        if size_average is not None:
            averaged = size_average
        reduced = True
        if reduce is not None:
            reduced = reduce
        if not reduced:
            return 0
        return 1 if averaged else 2
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise LayerError(f"reduction must be none, mean or sum, found {reduction}")


def reduced(loss: Tensor, code: int) -> Tensor:
    """The loss of each element, their mean, or their sum, as ``reduction_code`` numbers them."""
    if code == 1:
        return ops.mean(loss)
    if code == 2:
        return ops.sum(loss)
    return loss


def _weighted(loss: Tensor, weight: Tensor, code: int) -> Tensor:
    """As ``reduced``, each element multiplied by its weight; the mean is over the weights' sum."""
    weighted = ops.mul(loss, weight)
    if code == 1:
        return ops.div(ops.sum(weighted), ops.sum(weight))
    return reduced(weighted, code)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """abs(input - target)."""
    code = reduction_code(reduction, size_average, reduce)
    x, y = ops.broadcast_tensors([input, target])
    if weight is not None:
        return _weighted(ops.l1_loss(x, y, 0), weight, code)
    return ops.l1_loss(x, y, code)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target) ** 2."""
    code = reduction_code(reduction, size_average, reduce)
    x, y = ops.broadcast_tensors([input, target])
    if weight is not None:
        return _weighted(ops.mse_loss(x, y, 0), weight, code)
    return ops.mse_loss(x, y, code)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared below a distance of ``beta``, linear above."""
    code = reduction_code(reduction, size_average, reduce)
    x, y = ops.broadcast_tensors([input, target])
    if beta == 0.0:
        return ops.l1_loss(x, y, code)
    return ops.smooth_l1_loss(x, y, code, beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """``delta`` times the smooth L1 loss."""
    code = reduction_code(reduction)
    x, y = ops.broadcast_tensors([input, target])
    if weight is not None:
        return _weighted(ops.huber_loss(x, y, 0, delta), weight, code)
    return ops.huber_loss(x, y, code, delta)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The Kullback-Leibler divergence of probabilities ``target`` from ``input``, which are logarithms.

    ``reduction`` batchmean is the sum over the number of samples.
    """
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = ops.kl_div(input, target, 2, log_target=log_target)
        if input.ndim == 0:
            return total
        return ops.div(total, input.shape[0])
    return ops.kl_div(input, target, reduction_code(reduction, size_average, reduce), log_target=log_target)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Less the log likelihood of counts ``target`` under Poisson rates ``input`` (or their logarithms)."""
    code = reduction_code(reduction, size_average, reduce)
    return ops.poisson_nll_loss(input, target, log_input, full, eps, code)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Less the log likelihood of ``target`` under normal distributions of mean ``input`` and variance ``var``.

    ``var`` is one number, of the shape of ``input``, or has size 1 (or is missing) in its last dimension. The constant
    term is added with ``full``. Raises LayerError for a negative variance, or one of another shape.
    """
    if isinstance(var, float):
        if var < 0:
            raise LayerError("gaussian_nll_loss: var has negative elements")
        spread = ops.mul(ops.ones_like(input), var)
    else:
        if bool(ops.any(ops.lt(var, 0))):
            raise LayerError("gaussian_nll_loss: var has negative elements")
        spread = var
    shape = ops.size(input)
    found = ops.size(spread)
    if found != shape:
        if shape[:-1] == found:
            spread = ops.unsqueeze(spread, -1)
        else:
            fits = len(shape) == len(found)
            differing = 0
            if fits:
                for i in range(len(shape)):
                    if shape[i] != found[i]:
                        differing += 1
                        fits = fits and found[i] == 1
            if not fits or differing != 1:
                raise LayerError(f"gaussian_nll_loss: var of size {found} does not fit an input of size {shape}")
    code = reduction_code(reduction)
    bounded = ops.clamp_min(spread, eps)
    gap = ops.sub(input, target)
    loss = ops.mul(ops.add(ops.log(bounded), ops.div(ops.mul(gap, gap), bounded)), 0.5)
    if full:
        loss = ops.add(loss, 0.5 * math.log(2 * math.pi))
    return reduced(loss, code)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)), targets 1 and -1."""
    return ops.soft_margin_loss(input, target, reduction_code(reduction, size_average, reduce))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """input where the target is 1, max(0, margin - input) where it is -1."""
    return ops.hinge_embedding_loss(input, target, margin, reduction_code(reduction, size_average, reduce))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    return ops.margin_ranking_loss(input1, input2, target, margin, reduction_code(reduction, size_average, reduce))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    return ops.cosine_embedding_loss(input1, input2, target, margin, reduction_code(reduction, size_average, reduce))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance to positive - distance to negative + margin), which must itself be positive.

    With ``swap`` the negative's distance is the smaller of that to the anchor and that to the positive.
    """
    code = reduction_code(reduction, size_average, reduce)
    if margin <= 0:
        raise LayerError(f"triplet_margin_loss: margin must be positive, found {margin}")
    return ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, code)
