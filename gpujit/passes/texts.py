"""Messages: constant text beside a formatted text becomes part of the pattern."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.passes.base import Edits, declined, graph_pass
from gpujit.passes.nodes import constant_before, like, replace_node
from gpujit.passes.peephole.facts import constant_of, full_name, remove_unread

# What cannot change between the place it is formatted at and the place the text is used.
_UNCHANGING = (T.INT, T.FLOAT, T.BOOL, T.STR, T.NONE, T.COMPLEX)


@graph_pass("join_texts")
def join_texts(graph: Graph) -> bool:
    """Make ``format("b {}", n)`` with ``"a "`` before it one ``format("a b {}", n)``, where it is used.

    Programs put together what they raise this way; the text is then made only where it is needed.
    """
    changed = False
    edits = Edits()
    for node in list(graph.all_nodes()):
        if full_name(node) != "aten::add.str":
            continue
        for place in (1, 0):
            made = node.inputs[place].node
            if made.kind != "aten::format":
                continue
            reason = _why_not(made, node.inputs[1 - place])
            if reason is not None:
                declined("join_texts", node, reason)
                continue
            if not edits.may_edit():
                return changed
            edits.count()
            _join(node, made, node.inputs[1 - place], place)
            changed = True
            break
    return changed


def _why_not(made: Node, text: Value) -> str | None:
    added, pattern = constant_of(text), constant_of(made.inputs[0])
    if not isinstance(added, str) or not isinstance(pattern, str):
        return "a text is not constant"
    if "{" in added or "}" in added:
        return "the text has braces, which would be taken for places to fill"
    if len(made.output.uses) != 1:
        return "the formatted text is read elsewhere too"
    if pattern.count("{}") != len(made.inputs) - 1:
        return "the pattern has not one place for each argument"
    if any(v.type not in _UNCHANGING for v in made.inputs[1:]):
        return "an argument may change before the text is put together"
    return None


def _join(node: Node, made: Node, text: Value, place: int) -> None:
    added, pattern = constant_of(text), constant_of(made.inputs[0])
    whole = constant_before(node, added + pattern if place == 1 else pattern + added, T.STR)
    joined = like(Node("aten::format", (whole, *made.inputs[1:])), node)
    joined.schema = made.schema
    joined.add_output(T.STR)
    joined.insert_before(node)
    replace_node(node, joined.outputs)
    remove_unread([made])
