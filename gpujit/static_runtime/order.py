"""The steps of a graph in one row: nodes of its blocks where the branch or loop stands that they belong to.

Positions in this row are what lifetimes are made of. A row says which of two nodes of one block, or of a block and one
around it, comes first; of two branches only one is run, which makes lifetimes that span both longer than they need be,
never shorter. What a loop's body reads of what was there before it is read again in the next round: to the end of the
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis

RETURN = "prim::Return"
LOOP = "prim::Loop"


def steps_of(graph: Graph) -> list[Node]:
    """All nodes but constants: behind a branch or loop what is in its blocks, and behind each of these its Return."""
    found: list[Node] = []
    _add_steps(graph.block, found)
    return found


def _add_steps(block: Block, found: list[Node]) -> None:
    for node in block.nodes:
        if node.kind != "prim::Constant":
            found.append(node)
        for inner in node.blocks:
            _add_steps(inner, found)
            found.append(inner.return_node)


def loops_around(node: Node) -> tuple[Node, ...]:
    """The loops whose bodies hold the node, outermost first."""
    found: list[Node] = []
    block = node.block
    while block is not None and block.owner is not None:
        if block.owner.kind == LOOP:
            found.append(block.owner)
        block = block.owner.block
    return tuple(reversed(found))


class Rounds:
    """What loops do to lifetimes in a row of steps."""

    def __init__(self, order: Sequence[Node]) -> None:
        self._end = {n.block.owner: i for i, n in enumerate(order) if n.kind == RETURN and n.block is not None}
        is_looping = any(n.kind == LOOP for n in order)
        self._around = {n: loops_around(n) for n in order} if is_looping else {}

    def read_until(self, value: Value, reader: Node, position: int) -> int:
        """The position up to which a value's memory must last when ``reader``, at ``position``, reads it."""
        loops = self._around.get(reader)
        if not loops:
            return position
        mine = self._around.get(value.node, ())
        again = next((loop for loop in loops if loop not in mine), None)
        return position if again is None else self._end[again]


def within_rounds(order: Sequence[Node], alias: AliasAnalysis) -> Callable[[Value], bool]:
    """Says of a node's result whether its memory is nobody's when the next round of a loop around the node begins.

    What is carried into the next round, or put into a list that outlives one, is not: each round needs memory of its
    own for it.
    """
    around = {n: loops_around(n) for n in order}
    outside = {n: 0 for n in order if n.kind == LOOP}
    if not outside:
        return lambda value: True
    for node in order:
        loops = around[node]
        mask = 0
        for value in node.outputs:
            mask |= alias.memory(value)
        for loop in outside:
            if loop not in loops:
                outside[loop] |= mask
        for block in node.blocks:
            carried = 0
            for value in block.params:
                carried |= alias.memory(value)
            for loop in outside:
                if loop not in loops:
                    outside[loop] |= carried
    return lambda value: all(not outside[loop] & alias.memory(value) for loop in around[value.node])
