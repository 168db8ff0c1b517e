"""Softmax over many classes in clusters: frequent classes in the head, rare ones in smaller tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpujit import ops
from gpujit.nn import functional as F
from gpujit.nn.container import ModuleList, Sequential
from gpujit.nn.linear import Linear
from gpujit.nn.module import Module
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class _ASMoutput(NamedTuple):
    """The log-probability of each target, and the loss: the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of targets out of ``n_classes``, which are sorted by frequency and cut at ``cutoffs``.

    ``head [in_features, cutoffs[0] + clusters]`` has the frequent classes and one entry for each cluster of rare ones;
    ``tail[i]`` has those of cluster i. All clusters are computed for all rows, so that a trace holds for any targets.
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        given = list(cutoffs)
        fits = all(int(c) == c and 0 < c < n_classes for c in given) and given == sorted(set(given))
        if not given or not fits:
            raise LayerError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must be one or more growing ints from 1 to {n_classes - 1}, "
                f"found {given}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*given, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, False, device, dtype), Linear(hidden, classes, False, device, dtype)
                )
            )

    def reset_parameters(self) -> None:
        """Draw new first values."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        if target_.ndim > 1:
            raise LayerError("AdaptiveLogSoftmaxWithLoss: targets of 0 or 1 dimensions are needed")
        if input_.ndim != target_.ndim + 1:
            raise LayerError("AdaptiveLogSoftmaxWithLoss: the input needs one dimension more than the targets")
        batched = target_.ndim == 1
        if batched and input_.shape[0] != target_.shape[0]:
            raise LayerError("AdaptiveLogSoftmaxWithLoss: input and targets differ in the size of the batch")
        input = input_ if batched else ops.unsqueeze(input_, 0)
        target = target_ if batched else ops.unsqueeze(target_, 0)
        known = ops.logical_and(ops.ge(target, 0), ops.lt(target, self.n_classes))
        if not bool(ops.all(known)):
            raise LayerError("AdaptiveLogSoftmaxWithLoss: targets must be from 0 to n_classes - 1")
        head = F.log_softmax(self.head(input), 1)
        place = target
        output = ops.zeros_like(ops.select(head, 1, 0))
        for i, cluster in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            inside = ops.logical_and(ops.ge(target, low), ops.lt(target, high))
            place = ops.where(inside, ops.full_like(target, self.shortlist_size + i), place)
            within = ops.unsqueeze(ops.clamp(ops.sub(target, low), 0, high - low - 1), 1)
            found = ops.squeeze(ops.gather(F.log_softmax(cluster(input), 1), 1, within), 1)
            output = ops.where(inside, found, output)
        output = ops.add(output, ops.squeeze(ops.gather(head, 1, ops.unsqueeze(place, 1)), 1))
        loss = ops.mean(ops.neg(output))
        if not batched:
            output = ops.squeeze(output, 0)
        return _ASMoutput(output, loss)

    def _full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, 1)
        parts = [ops.slice(head, 1, 0, self.shortlist_size)]
        for i, cluster in enumerate(self.tail):
            entry = ops.unsqueeze(ops.select(head, 1, self.shortlist_size + i), 1)
            parts.append(ops.add(F.log_softmax(cluster(input), 1), entry))
        return ops.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: ``[N, n_classes]``."""
        return self._full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of each row."""
        head_output = self.head(input)
        first = ops.argmax(head_output, 1)
        rest = ops.argmax(self._full_log_prob(input, head_output), 1)
        return ops.where(ops.ge(first, self.shortlist_size), rest, first)
