"""Ranks of tensors that a graph's text gives away, without shapes being known."""

from __future__ import annotations

from gpujit.ir import types as T
from gpujit.ir.graph import Node, Value
from gpujit.ops import table

# Operators over a number of dims, the last of a tensor with or without a batch dim; and that number.
SPATIAL: dict[str, int] = {
    f"aten::{name}{rank}d": rank
    for name in ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool")
    for rank in (1, 2, 3)
}
_ELEMENTWISE = ("dropout", "relu", "relu6", "silu", "gelu", "hardswish", "hardsigmoid", "sigmoid", "leaky_relu")
# Operators whose result has the rank of their first input, whatever that is.
KEEPS_RANK = (
    frozenset(SPATIAL)
    | {f"aten::{name}{suffix}" for name in _ELEMENTWISE for suffix in ("", "_")}
    | {"aten::batch_norm", "aten::layer_norm", "aten::group_norm", "aten::contiguous", "aten::softmax"}
)
# Operators that cut a tensor into a list of tensors of its rank.
CUTS = frozenset(
    f"aten::{name}"
    for name in ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "tensor_split")
)
# Operators that put a list of tensors of one rank together, and how many dims they add.
JOINS = {"aten::cat": 0, "aten::concat": 0, "aten::stack": 1}
# How far back to look.
_DEPTH = 40


class Ranks:
    """Answers what rank a tensor has; answers are kept."""

    def __init__(self) -> None:
        self._known: dict[Value, int | None] = {}

    def of(self, value: Value, depth: int = _DEPTH) -> int | None:
        """The rank, None when it is not known."""
        t = value.type
        if isinstance(t, T.TensorType) and t.shape is not None:
            return len(t.shape)
        if value.is_constant:
            held = value.constant()
            return int(held.ndim) if hasattr(held, "ndim") else None
        if value not in self._known:
            self._known[value] = None if depth == 0 else self._of_node(value.node, depth - 1)
        return self._known[value]

    def _of_node(self, node: Node, depth: int) -> int | None:
        if len(node.outputs) != 1 or not node.inputs:
            return None
        kind = node.kind
        found = rank_by_form(node)
        if found is not None:
            return found
        if kind == "aten::flatten" and all(v.is_constant for v in node.inputs[1:]):
            start, end = (int(v.constant()) for v in node.inputs[1:3])
            inner = self.of(node.inputs[0], depth)
            if inner is None:
                return None
            span = (end % max(inner, 1)) - (start % max(inner, 1))
            return max(inner, 1) - span
        if kind == "aten::linear":
            # A weight of one dimension takes the last one away.
            return self.of(node.inputs[0], depth) if self.of(node.inputs[1], depth) == 2 else None
        if kind in KEEPS_RANK:
            return self.of(node.inputs[0], depth)
        if node.schema is not None:
            op = table.by_full_name(node.schema.full_name)
            tensors = [v for v in node.inputs if isinstance(v.type, T.TensorType)]
            if op is not None and op.kind == "pointwise" and tensors:
                # The result is as wide as the widest operand.
                ranks = [self.of(v, depth) for v in tensors]
                known = [r for r in ranks if r is not None]
                return max(known) if len(known) == len(ranks) else None
        return None


def rank_by_form(node: Node) -> int | None:
    """The rank of a node's result where its arguments alone tell: the length of a list of sizes and the like."""
    if node.kind in ("aten::view", "aten::reshape", "aten::expand") and len(node.inputs) > 1:
        return _length(node.inputs[1]) if node.inputs[1].type == T.ListType(T.INT) else None
    if node.kind == "aten::flatten" and all(v.is_constant for v in node.inputs[1:]):
        # From dim 1 to the last: two dims for every tensor that has two or more, an error for all others.
        return 2 if [v.constant() for v in node.inputs[1:]] == [1, -1] else None
    return 2 if node.kind in ("aten::mm", "aten::addmm") else None


def _length(sizes: Value) -> int | None:
    if sizes.is_constant:
        held = sizes.constant()
        return len(held) if isinstance(held, (list, tuple)) else None
    return len(sizes.node.inputs) if sizes.node.kind == "prim::ListConstruct" else None
