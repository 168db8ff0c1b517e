"""Tensors that go round a loop, kept in one place: each round ends with a copy into it.

A loop that takes a tensor, and hands another one of the same shape on to its next round, becomes one that writes the
new one over the old. Then every step finds it where it always is, in the arena if it may be there, and what a round
makes is nobody's any more when the next one begins. Only tensors that nobody could tell from the copy are kept so:
they are read and nothing else, and nobody writes their memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.nodes import constant_before, insert_op
from gpujit.static_runtime.order import LOOP
from gpujit.static_runtime.places import facts_of


@dataclass(frozen=True, slots=True)
class Carried:
    """Nodes made for it: ``entries`` copy what a loop begins with, ``rounds`` what a round hands on, into that copy.

    ``apart`` are others that write memory which no input and no other attribute has; those of ``puts`` are copies too.
    """

    entries: set[Node] = field(default_factory=set)
    rounds: set[Node] = field(default_factory=set)
    puts: set[Node] = field(default_factory=set)
    apart: set[Node] = field(default_factory=set)


def keep_in_place(graph: Graph) -> Carried:
    """Change the loops of a graph so; what they carry else stays as it is."""
    made = Carried()
    loops = [n for n in graph.all_nodes() if n.kind == LOOP]
    if not loops:
        return made
    alias = AliasAnalysis(graph)
    for loop in loops:
        # Decided before anything is changed.
        chosen = [k for k in range(len(loop.outputs)) if _may_be_kept(loop, k, alias)]
        for k in reversed(chosen):
            _keep(loop, k, made)
    return made


def _may_be_kept(loop: Node, k: int, alias: AliasAnalysis) -> bool:
    (body,) = loop.blocks
    first, param, handed, result = loop.inputs[2 + k], body.params[1 + k], body.returns[1 + k], loop.outputs[k]
    facts = facts_of(first)
    if facts is None or any(facts_of(v) != facts for v in (param, handed, result)):
        return False
    if handed.node.block is not body or not _is_made_anew(handed.node) or alias.is_written(param):
        return False
    if not _is_only_read(param) or not _is_only_read(handed, body.return_node):
        return False
    # What else reads the result might see that it is not what the loop began with, or handed on.
    return _is_only_read(result) or (alias.is_fresh(param) and len(first.uses) == 1)


def _is_made_anew(node: Node) -> bool:
    op = entry_of(node)
    if op is None:
        return node.kind == FUSION_GROUP
    return op.form == "functional" and op.kind not in ("view", "prim") and not op.may_alias


def _is_only_read(value: Value, but: Node | None = None) -> bool:
    """Whether all uses of a tensor, but one by the node ``but``, compute something of its elements."""
    seen = 0
    for use in value.uses:
        node = use.node
        if node is but and not seen:
            seen = 1
            continue
        op = entry_of(node)
        if op is not None and op.kind == "view" and op.form == "functional":
            if not all(_is_only_read(v) for v in node.outputs):
                return False
        elif not _is_made_anew(node):
            return False
    return True


def _keep(loop: Node, k: int, made: Carried) -> None:
    (body,) = loop.blocks
    first, param, handed, result = loop.inputs[2 + k], body.params[1 + k], body.returns[1 + k], loop.outputs[k]
    place = insert_op(loop, "aten::clone", [first], loop)
    place.type = first.type
    made.entries.add(place.node)
    end = body.return_node
    copied = insert_op(end, "aten::copy_", [place, handed, constant_before(end, False)], loop)
    copied.type = first.type
    made.rounds.add(copied.node)
    param.replace_all_uses_with(place)
    result.replace_all_uses_with(place)
    loop.remove_input(2 + k)
    end.remove_input(1 + k)
    body.param_node.remove_output(1 + k)
    loop.remove_output(k)
