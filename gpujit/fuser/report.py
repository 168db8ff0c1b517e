"""What was fused, what that saves, and what was not and why: as data, and as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpujit.fuser.partition import Refusal
from gpujit.fuser.tensors import bytes_of, is_tensor
from gpujit.ir.graph import Graph, Node
from gpujit.ir.printer import SUBGRAPH


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group: its operators in order, each with its source line ('' when there is none), and the bytes that a call
    neither writes nor reads because what operators hand to each other stays in registers."""

    operators: tuple[str, ...]
    places: tuple[str, ...]
    saved_bytes: int

    def __str__(self) -> str:
        return f"{', '.join(self.operators)} ({self.saved_bytes} bytes of memory traffic saved)"


def report_of(node: Node) -> GroupReport:
    """The report on a group's node."""
    graph = node.attributes[SUBGRAPH]
    assert isinstance(graph, Graph)
    inner = [n for n in graph.all_nodes() if not n.kind.startswith("prim::")]
    outputs = set(graph.outputs)
    saved = 0
    for each in inner:
        for value in each.outputs:
            if value not in outputs and value.uses and is_tensor(value):
                saved += 2 * bytes_of(value)
    places = tuple("" if n.source is None else str(n.source) for n in inner)
    return GroupReport(tuple(n.kind.partition("::")[2] for n in inner), places, saved)


def describe(groups: Iterable[Node], refusals: Sequence[Refusal]) -> str:
    """A line for each group and for each of its operators, then one for each refusal; the same reason is told once for
    each operator and line."""
    lines: dict[str, None] = {}
    for number, node in enumerate(groups):
        found = report_of(node)
        lines[f"group {number}: {found}"] = None
        for name, place in zip(found.operators, found.places, strict=True):
            if place:
                lines[f"  {number}.{name} at {place}"] = None
    for refusal in refusals:
        place = f" at {refusal.node.source}" if refusal.node.source is not None else ""
        lines[f"not fused: {refusal.node.kind}{place}: {refusal.reason}"] = None
    return "\n".join(lines)
