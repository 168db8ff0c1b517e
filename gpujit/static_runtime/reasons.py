"""Why a node of a plan is left to the interpreter, for reports."""

from __future__ import annotations

from gpujit.ir.graph import Node
from gpujit.ir.types import TensorType
from gpujit.passes.effects import entry_of
from gpujit.static_runtime.decide import Decisions
from gpujit.static_runtime.lifetime import may_be_planned
from gpujit.static_runtime.places import facts_of


def reasons_of(made: Decisions) -> dict[Node, str]:
    """Of the nodes that make tensors and are run by the interpreter, why no native step or out-variant does it."""
    found = {n: _reason(made, n) for n, kind in made.kinds.items() if kind == "interpreter"}
    return {n: reason for n, reason in found.items() if reason is not None}


def _reason(made: Decisions, node: Node) -> str | None:
    tensors = [v for v in node.outputs if isinstance(v.type, TensorType)]
    op = entry_of(node)
    if op is None or not tensors:
        # Numbers, containers, attributes: there is nothing to plan.
        return None
    if any(facts_of(v) is None for v in tensors):
        return "its shape is not known before it is run"
    if op.form != "functional":
        return "it writes into an operand"
    if op.full_name in made.lowerer.rules:
        return "it may be given quantised tensors"
    if op.kind == "view":
        return "it is a view of something whose strides are not known"
    if not op.has_out_variant:
        return "it has no native step and cannot write into given memory"
    if not made.options.enable_out_variant:
        return "it has no native step"
    if max(p.nbytes for p in map(made.places.of, tensors) if p is not None) < made.options.out_bytes:
        return "it has no native step, and its result is small"
    if not all(may_be_planned(v, made.alias) for v in tensors):
        return "it has no native step, and its result outlives the run"
    return "it has no native step, and what it makes may be kept longer than the plan knows"
