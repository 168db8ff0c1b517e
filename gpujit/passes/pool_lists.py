"""Equal lists of numbers that are only read become one constant."""

from __future__ import annotations

from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Value
from gpujit.passes.base import graph_pass
from gpujit.passes.effects import entry_of

_ELEMENTS = (T.INT, T.FLOAT, T.BOOL, T.STR)


@graph_pass("pool_lists")
def pool_lists(graph: Graph) -> bool:
    """Let equal constant lists that operators neither write nor keep be one; it stands where the first one stood.

    Constants are taken to stand at the top of the graph, as ``pool_constants`` leaves them.
    """
    known: dict[Any, Value] = {}
    changed = False
    for node in list(graph.nodes):
        if node.kind != "prim::Constant" or not _is_only_read(node.output):
            continue
        t = node.output.type
        if not isinstance(t, T.ListType) or t.element not in _ELEMENTS:
            continue
        kept = known.setdefault((t, repr(node.output.constant())), node.output)
        if kept is not node.output:
            node.output.replace_all_uses_with(kept)
            node.destroy()
            changed = True
    return changed


def _is_only_read(value: Value) -> bool:
    for node, index in value.uses:
        op = entry_of(node)
        if op is None or op.may_alias or index >= len(op.schema.arguments):
            return False
        if op.schema.arguments[index].alias is not None:
            return False
    return True
