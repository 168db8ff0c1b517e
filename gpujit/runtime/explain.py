"""What runs each node of a plan, and why nothing better does, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpujit.fuser.fuse import FUSION_GROUP, Fused
from gpujit.fuser.report import describe
from gpujit.ir.graph import Graph, Node
from gpujit.ir.printer import SUBGRAPH
from gpujit.passes.analysis.effects import entry_of
from gpujit.runtime.fused import FusedStep


class Explained(Protocol):
    """What can say what it runs."""

    def explain(self, reasons: Mapping[Node, str]) -> str:
        """A line for each node."""


def explain(graph: Graph, fused: Fused, steps: Mapping[Node, FusedStep], runner: Explained | None) -> str:
    """What was fused and what was not, then a line for each node, each with the source it comes from."""
    groups = (n for n in graph.all_nodes() if n.kind == FUSION_GROUP)
    reasons = {r.node: r.reason for r in fused.refusals}
    if runner is not None:
        nodes = runner.explain(reasons)
    else:
        found = (n for n in graph.all_nodes() if n.kind != "prim::Constant")
        nodes = "\n".join(line(*_tier(n, steps, reasons), n) for n in found)
    return "\n".join(part for part in (describe(groups, fused.refusals), nodes) if part)


def line(tier: str, reason: str, node: Node, label: str = "") -> str:
    """One node's line: what runs it, what it is, where it comes from, why nothing better runs it."""
    place = "" if node.source is None else f" at {node.source}"
    return f"{tier:15} {label or label_of(node)}{place}{': ' if reason else ''}{reason}"


def label_of(node: Node) -> str:
    """What a node does: the operators of a group, the kind of any other."""
    inner = node.attributes.get(SUBGRAPH)
    if not isinstance(inner, Graph):
        return node.kind
    return "+".join(n.kind.partition("::")[2] for n in inner.all_nodes() if not n.kind.startswith("prim::"))


def _tier(node: Node, steps: Mapping[Node, FusedStep], reasons: Mapping[Node, str]) -> tuple[str, str]:
    """What runs a node where the interpreter runs a plan."""
    step = steps.get(node)
    if step is not None:
        return ("fused kernel", "") if step.is_fused else ("numpy", "its kernel cannot be had")
    if entry_of(node) is None:
        return "interpreter", "a construct of the language"
    return "numpy", reasons.get(node, "")
