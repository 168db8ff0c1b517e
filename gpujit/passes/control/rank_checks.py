"""What a model checks once about a tensor's rank is known from there on.

Scripted layers refuse inputs of a wrong rank (``if x.dim() != 4: raise``). What runs after such a check may count on
it, and so may, through operators that keep the rank, what was computed before: of a row of checks the first one stays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ops.registry import Op
from gpujit.passes.analysis.effects import entry_of
from gpujit.passes.analysis.ranks import CUTS, JOINS, KEEPS_RANK, SPATIAL, rank_by_form
from gpujit.passes.base import declined, graph_pass
from gpujit.passes.nodes import constant_before, infer_types, replace_node

NAME = "rank_checks"


@graph_pass(NAME)
def use_rank_checks(graph: Graph) -> bool:
    """Infer types of tensors with what checks before them say, and answer questions for their rank."""
    reshaping = next((n for n in graph.all_nodes() if _may_reshape_in_place(n)), None)
    if reshaping is not None:
        declined(NAME, reshaping, "it may give a tensor another shape in place")
        return False
    walker = _Walker()
    walker.block(graph.block)
    return walker.changed


def _may_reshape_in_place(node: Node) -> bool:
    op = entry_of(node)
    if op is None:
        # An operator without an entry may do anything to its inputs; the language's own kinds do not.
        return not node.kind.startswith("prim::") and node.kind != "aten::wait"
    written = [v for v, a in zip(node.inputs, op.schema.arguments, strict=False) if a.is_write]
    if not any(isinstance(v.type, T.TensorType) for v in written) or op.form == "inplace":
        return op.kind == "view" and op.form == "inplace"
    return op.kind == "view" or not op.name.endswith("_") or op.name.startswith(("aten::resize", "aten::set_"))


class _Walker:
    def __init__(self) -> None:
        self.changed = False
        # Ranks that values defined before a check have after it.
        self.facts: dict[Value, int] = {}

    def block(self, block: Block) -> None:
        outer = dict(self.facts)
        for node in block.nodes:
            for inner in node.blocks:
                self.block(inner)
            if node.kind == "prim::If":
                self.results(node)
                self.check(node)
            elif node.kind == "prim::ListUnpack":
                self.parts(node)
            elif not self.answer(node):
                self.infer(node)
        self.facts = outer

    def rank(self, value: Value) -> int | None:
        t = value.type
        if isinstance(t, T.TensorType) and t.shape is not None:
            return len(t.shape)
        return self.facts.get(value)

    def possible(self, value: Value) -> tuple[int, ...]:
        """The ranks a tensor may have; empty when nothing is known."""
        known = self.rank(value)
        if known is not None:
            return (known,)
        while value.node.kind in KEEPS_RANK:
            if value.node.kind in SPATIAL:
                # With or without a batch; all other ranks are refused.
                return (SPATIAL[value.node.kind] + 1, SPATIAL[value.node.kind] + 2)
            value = value.node.inputs[0]
        return ()

    def answer(self, node: Node) -> bool:
        """Replace a question for a rank that is known, or a comparison of one that can only have one outcome."""
        compare = _COMPARISONS.get(node.kind)
        if compare is not None and len(node.inputs) == 2 and node.inputs[1].is_constant and node.output.uses:
            asked, number = _asked(node.inputs[0].node), node.inputs[1].constant()
            outcomes = {compare(r, number) for r in self.possible(asked)} if asked is not None else set()
            if len(outcomes) != 1 or type(number) is not int:
                return False
            replace_node(node, [constant_before(node, outcomes.pop(), T.BOOL)])
            self.changed = True
            return True
        tensor = _asked(node)
        rank = None if tensor is None else self.rank(tensor)
        if rank is None or not node.output.uses:
            return False
        replace_node(node, [constant_before(node, rank, T.INT)])
        self.changed = True
        return True

    def infer(self, node: Node) -> None:
        op = entry_of(node)
        if op is None or len(node.outputs) != 1 or not _is_untyped(node.output) or len(op.schema.returns) != 1:
            return
        t, old = self.type(node, op), node.output.type
        if isinstance(t, T.TensorType) and isinstance(old, T.TensorType) and t.shape is not None:
            node.output.type = replace(old, shape=t.shape, dtype=t.dtype if old.dtype is None else old.dtype)
            self.changed = True

    def results(self, node: Node) -> None:
        """Give the results of an if the rank that both sides have."""
        for value, *given in zip(node.outputs, *(block.returns for block in node.blocks), strict=True):
            ranks = {self.rank(v) if isinstance(v.type, T.TensorType) else None for v in given}
            if len(ranks) == 1 and None not in ranks and _is_untyped(value):
                assert isinstance(value.type, T.TensorType)
                value.type = replace(value.type, shape=(None,) * (ranks.pop() or 0))
                self.changed = True

    def parts(self, node: Node) -> None:
        """Give the parts that a tensor was cut into its rank."""
        cut = node.inputs[0].node
        rank = self.rank(cut.inputs[0]) if cut.kind in CUTS and _is_only_read(cut.output) else None
        if rank is None:
            return
        for value in node.outputs:
            if isinstance(value.type, T.TensorType) and value.type.shape is None:
                value.type = replace(value.type, shape=(None,) * rank)
                self.changed = True

    def joined(self, node: Node) -> int | None:
        """The rank of tensors put together, when all of them have one rank, and of one out of a list of parts."""
        if node.kind == "aten::__getitem__":
            cut = node.inputs[0].node
            return self.rank(cut.inputs[0]) if cut.kind in CUTS and _is_only_read(cut.output) else None
        listed = node.inputs[0].node if node.kind in JOINS else None
        if listed is None or listed.kind != "prim::ListConstruct" or not _is_only_read(listed.output):
            return None
        ranks = {self.rank(v) for v in listed.inputs}
        only = ranks.pop() if len(ranks) == 1 else None
        return None if only is None else only + JOINS[node.kind]

    def type(self, node: Node, op: Op) -> T.Type:
        saved = [(v, v.type) for v in node.inputs if v in self.facts and _is_untyped(v)]
        for value, t in saved:
            assert isinstance(t, T.TensorType)
            value.type = replace(t, shape=(None,) * self.facts[value])
        try:
            # With an input of unknown rank nothing is known of the result's but by its form.
            found = node.output.type if any(map(_is_untyped, node.inputs)) else infer_types(node, op)[0]
        finally:
            for value, t in saved:
                value.type = t
        rank = rank_by_form(node)
        if rank is None:
            rank = self.joined(node)
        if rank is not None and isinstance(found, T.TensorType) and found.shape is None:
            return replace(found, shape=(None,) * rank)
        return found

    def check(self, node: Node) -> None:
        """Take in what is known when an if that raises on one side is over."""
        condition = node.inputs[0]
        raises = [_always_raises(block) for block in node.blocks]
        if raises[0] == raises[1] or condition.node.kind not in ("aten::eq", "aten::ne"):
            return
        equal = (condition.node.kind == "aten::eq") == raises[1]
        if not equal or len(condition.node.inputs) != 2:
            return
        for asked, other in (condition.node.inputs, condition.node.inputs[::-1]):
            tensor = _asked(asked.node)
            if tensor is not None and other.is_constant and type(other.constant()) is int and other.constant() >= 0:
                self.learn(tensor, other.constant())

    def learn(self, value: Value, rank: int) -> None:
        while self.rank(value) is None:
            self.facts[value] = rank
            if value.node.kind not in KEEPS_RANK:
                return
            value = value.node.inputs[0]


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    f"aten::{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


def _is_only_read(listed: Value) -> bool:
    """Whether a list stays as it was made: it is only taken apart, counted or joined."""
    return all(use.node.kind in ("aten::__getitem__", "prim::ListUnpack", "aten::len", *JOINS) for use in listed.uses)


def _is_untyped(value: Value) -> bool:
    return isinstance(value.type, T.TensorType) and value.type.shape is None


def _asked(node: Node) -> Value | None:
    """The tensor whose rank a node asks for."""
    if node.kind == "aten::dim":
        return node.inputs[0]
    if node.kind == "aten::len" and node.inputs[0].node.kind == "aten::size" and len(node.inputs[0].node.inputs) == 1:
        return node.inputs[0].node.inputs[0]
    return None


def _always_raises(block: Block) -> bool:
    return any(node.kind == "prim::RaiseException" for node in block.nodes)
