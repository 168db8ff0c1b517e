"""Arguments that an operator does not read, given by what is there already: the graph holds a constant fewer."""

from __future__ import annotations

from gpujit.passes.peephole.facts import constant_of
from gpujit.passes.rewrite import Match, Rule, rewrite_pass


def _may_read(m: Match) -> str | None:
    if constant_of(m["training"]) is not False:
        return "in training the running statistics move by the momentum"
    momentum, eps = constant_of(m["momentum"]), constant_of(m["eps"])
    if type(momentum) is not float or type(eps) is not float:
        return "momentum or eps is not constant"
    return "it is done" if momentum == eps else None


_HEAD = "graph(%x, %w, %b, %mean, %var, %training, %momentum, %eps, %cudnn):"
_CALL = "%y = aten::batch_norm(%x, %w, %b, %mean, %var, %training, {}, %eps, %cudnn)"

simplify_unread = rewrite_pass(
    "unread",
    (
        Rule(
            "batch-norm-momentum",
            before=f"{_HEAD}\n  {_CALL.format('%momentum')}\n  return (%y)",
            after=f"{_HEAD}\n  {_CALL.format('%eps')}\n  return (%y)",
            unless=_may_read,
        ),
    ),
)
