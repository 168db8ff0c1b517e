"""Edits of ifs and loops that several passes share: splicing, copying, and dropping what a block hands over."""

from __future__ import annotations

from collections.abc import Iterable

from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.passes.nodes import insert_op


def splice(block: Block, before: Node) -> Node:
    """Move a block's nodes in front of ``before``; returns the first of them, ``before`` when there are none.

    What the block returns stays readable; its parameters must have been replaced.
    """
    first = before
    for node in block.nodes:
        node.move_before(before)
        if first is before:
            first = node
    return first


def copy_before(block: Block, before: Node, known: dict[Value, Value]) -> list[Node]:
    """Put copies of a block's nodes in front of ``before``; returns them.

    ``known`` gives values for the block's parameters and gets those of all values inside; values it does not hold are
    defined outside and read as they are.
    """
    made: list[Node] = []
    for node in block.nodes:
        new = Node(node.kind, [known.get(v, v) for v in node.inputs], dict(node.attributes))
        new.schema, new.source, new.call = node.schema, node.source, node.call
        new.insert_before(before)
        made.append(new)
        for inner in node.blocks:
            copy_block(inner, new.add_block(), known)
        for value in node.outputs:
            known[value] = new.add_output(value.type, value.name)
    return made


def copy_block(source: Block, target: Block, known: dict[Value, Value]) -> None:
    """Fill an empty block with a copy of another's parameters, nodes and returns; ``known`` as for ``copy_before``."""
    for param in source.params:
        known[param] = target.add_param(param.type, param.name)
    copy_before(source, target.return_node, known)
    for value in source.returns:
        target.add_return(known.get(value, value))


def negated(condition: Value, before: Node) -> Value:
    """The opposite of a bool, computed in front of ``before`` unless the bool is itself somebody's opposite."""
    if condition.node.kind == "aten::__not__":
        return condition.node.inputs[0]
    return insert_op(before, "aten::__not__", (condition,), like=before)


def body_size(block: Block) -> int:
    """How many nodes a block holds, those of inner blocks included; constants cost nothing and are not counted."""
    size = 0
    stack = [block]
    while stack:
        for node in stack.pop().nodes:
            size += node.kind != "prim::Constant"
            stack.extend(node.blocks)
    return size


def drop_output(node: Node, index: int) -> None:
    """Remove an output of a prim::If that nobody reads, with what the blocks return for it."""
    node.remove_output(index)
    for block in node.blocks:
        block.return_node.remove_input(index)


def drop_carried(node: Node, index: int) -> None:
    """Remove carried value ``index`` of a prim::Loop, whose parameter and output nobody reads."""
    node.remove_output(index)
    node.remove_input(index + 2)
    body = node.blocks[0]
    body.param_node.remove_output(index + 1)
    body.return_node.remove_input(index + 1)


def is_within(node: Node, block: Block) -> bool:
    """Whether a node stands in a block or in one inside it."""
    current = node.block
    while current is not None and current is not block:
        current = None if current.owner is None else current.owner.block
    return current is block


def is_empty(block: Block) -> bool:
    """Whether a block has no nodes."""
    return block.param_node.next is block.return_node


def all_blocks(graph: Graph) -> list[Block]:
    """Every block of a graph, inner ones after the one they belong to."""
    return [graph.block, *(block for node in graph.all_nodes() for block in node.blocks)]


def nodes_of_kind(graph: Graph, kinds: Iterable[str]) -> list[Node]:
    """The nodes of some kinds, inner ones after those they belong to."""
    wanted = frozenset(kinds)
    return [node for node in graph.all_nodes() if node.kind in wanted]
