"""Equal lists of numbers and equal small tensors that are only read become one constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Value
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.base import graph_pass

# Larger tensors are not compared: reading all weights takes longer than what it could save.
MAX_BYTES = 1 << 16
_ELEMENTS = (T.INT, T.FLOAT, T.BOOL, T.STR)


@graph_pass("pool_equal")
def pool_equal(graph: Graph) -> bool:
    """Let equal constants that operators neither write nor keep be one; it stands where the first one stood.

    Constants are taken to stand at the top of the graph, as ``pool_constants`` leaves them.
    """
    known: dict[Any, Value] = {}
    changed = False
    for node in list(graph.nodes):
        if node.kind != "prim::Constant" or not _is_only_read(node.output):
            continue
        key = _key(node.output)
        kept = node.output if key is None else known.setdefault(key, node.output)
        if kept is not node.output:
            node.output.replace_all_uses_with(kept)
            node.destroy()
            changed = True
    return changed


def _key(value: Value) -> Any:
    """Equal for equal constants; None for those that are not compared."""
    t, held = value.type, value.constant()
    if isinstance(t, T.ListType) and t.element in _ELEMENTS:
        return (t, repr(held))
    if isinstance(held, np.ndarray) and held.nbytes <= MAX_BYTES:
        return (t, held.strides, held.dtype, held.tobytes())
    return None


def _is_only_read(value: Value) -> bool:
    for node, index in value.uses:
        op = entry_of(node)
        if op is None or op.may_alias or index >= len(op.schema.arguments):
            return False
        if op.schema.arguments[index].alias is not None:
            return False
    return True
