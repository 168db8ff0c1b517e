"""Automatic casts, which depend on where their operand lies until that is settled."""

from __future__ import annotations

from gpujit.ir.graph import Node

REDUCED = "aten::_autocast_to_reduced_precision"
FULL = "aten::_autocast_to_full_precision"
# Positions of the arguments for CUDA and for the CPU.
BY_DEVICE: dict[str, tuple[tuple[int, int], ...]] = {REDUCED: ((1, 2), (3, 4)), FULL: ((1, 2),)}


def depends_on_place(node: Node) -> bool:
    """Whether an automatic cast does something else on a GPU than on the CPU, so that it cannot be computed ahead."""
    return any(not _agree(node, *pair) for pair in BY_DEVICE.get(node.kind, ()))


def _agree(node: Node, cuda: int, cpu: int) -> bool:
    a, b = node.inputs[cuda], node.inputs[cpu]
    return a is b or (a.is_constant and b.is_constant and bool(a.constant() == b.constant()))
