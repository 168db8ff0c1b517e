"""Local rewrites as text: a rule has a graph to look for and a graph to put in its place.

    Rule("add-zero", before='''
        graph(%x, %alpha):
          %zero = prim::Constant[value=0]()
          %y = aten::add(%x, %zero, %alpha)
          return (%y)''', after='''
        graph(%x):
          return (%x)''', unless=may_promote)

``before``: its parameters match any value; its nodes match nodes of the same kind (``aten::add`` any overload,
``aten::add.Tensor`` that one), with the attributes written, and inputs that match in turn. A constant matches by type
and value. A type written after a name must hold the matched value's type. The last node is where the search starts, so
all others have to be reachable from it through inputs.
``after``: its parameters are values of ``before``, by name. Nodes between that it takes as parameters, or that
``before`` returns, may have other readers; so may all of them when ``after`` has nothing to compute.

A rewrite is declined, with the reason in the log, when a matched node has effects, when something the rule reads may be
written on the way, when a result that shared no memory (or did) would begin to (or cease to) where that can be told, or
when a type would be lost.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.parser import parse_graph
from gpujit.ir.types import TENSOR, TensorType, is_subtype
from gpujit.ops import table
from gpujit.passes.analysis.alias import AliasAnalysis, has_effect
from gpujit.passes.base import Pass, declined, graph_pass, may_change, spend
from gpujit.passes.nodes import (
    constant_before,
    infer_types,
    insert_node,
    insert_op,
    like,
    loop_around,
    replace_node,
    resolve_node,
)
from gpujit.support.errors import InternalError

__all__ = [
    "Match",
    "Rule",
    "apply_rules",
    "constant_before",
    "infer_types",
    "insert_node",
    "insert_op",
    "like",
    "replace_node",
    "resolve_node",
    "rewrite_pass",
]

# Sweeps over a graph; rules that undo each other would go on for ever.
MAX_SWEEPS = 1000
_TYPED_NAME = re.compile(r"%([\w./]+)\s*:(?!:)")


class Match:
    """What the names of a rule's ``before`` stand for in a graph."""

    __slots__ = ("graph", "root", "values")

    def __init__(self, graph: Graph, root: Node, values: dict[str, Value]) -> None:
        self.graph = graph
        self.root = root
        self.values = values

    def __getitem__(self, name: str) -> Value:
        """The value of that name in ``before``."""
        return self.values[name]

    def node(self, name: str) -> Node:
        """The node that defines the value."""
        return self.values[name].node

    def is_constant(self, name: str) -> bool:
        """Whether the value is a constant."""
        return self.values[name].is_constant

    def constant(self, name: str) -> Any:
        """The value of a constant. Raises InternalError for anything else."""
        return self.values[name].constant()


@dataclass(frozen=True)
class Rule:
    """One local rewrite.

    Args:
        name: what the log calls it.
        before, after: graphs as text, see the module's docstring.
        unless: returns the reason why a match is left alone, None to go on.
        same_memory: the old results always are the memory that the new ones are (an alias, the very input), so that
            replacing them changes nothing that could be told; the rule, not the engine, vouches for it.
        may_copy: the old results may be copies where operators' schemas speak of views (``to``, ``contiguous`` and
            ``reshape`` return either), so that they count as memory of their own.
    """

    name: str
    before: str
    after: str
    unless: Callable[[Match], str | None] | None = None
    same_memory: bool = False
    may_copy: bool = False

    @cached_property
    def pattern(self) -> Pattern:
        """The rule, parsed. Raises InternalError when it is no rule."""
        return Pattern(self)


class Pattern:
    """A rule's graphs and what the engine needs to know of them."""

    def __init__(self, rule: Rule) -> None:
        self.before = parse_graph(textwrap.dedent(rule.before).strip())
        self.after = parse_graph(textwrap.dedent(rule.after).strip())
        self.nodes = list(self.before.nodes)
        self.typed = set(_TYPED_NAME.findall(rule.before))
        self.typed_after = set(_TYPED_NAME.findall(rule.after))
        values = {v.name for v in self.before.inputs} | {v.name for n in self.nodes for v in n.outputs}

        def fault(what: str) -> InternalError:
            return InternalError(f"rule {rule.name}: {what}")

        if not self.nodes:
            raise fault("there is nothing to look for")
        if any(node.blocks for graph in (self.before, self.after) for node in graph.nodes):
            raise fault("nodes with blocks cannot be matched or made")
        if len(self.before.outputs) != len(self.after.outputs):
            raise fault("before and after return different numbers of values")
        missing = [v.name for v in self.after.inputs if v.name not in values]
        if missing:
            raise fault(f"%{missing[0]} of after is no value of before")
        self.root = self.nodes[-1]
        reached = {self.root}
        stack = [self.root]
        while stack:
            for value in stack.pop().inputs:
                node = value.node
                if node.kind != "prim::Param" and node not in reached:
                    reached.add(node)
                    stack.append(node)
        if len(reached) != len(self.nodes):
            raise fault("not every node is read, directly or not, by the last one")
        bound = {v.name for n in reached for v in (*n.inputs, *n.outputs)}
        unbound = [v.name for v in self.before.inputs if v.name not in bound]
        if unbound:
            raise fault(f"no node of before reads %{unbound[0]}")
        if any(v.node.kind == "prim::Param" for v in self.before.outputs):
            raise fault("before returns one of its parameters")
        self.kind = self.root.kind.partition(".")[0]
        # What the root has to read, looked at first because most nodes fail here: constants, then other kinds.
        read = [(i, v.node) for i, v in enumerate(self.root.inputs) if v.node.kind != "prim::Param"]
        self.constants = [(i, n.attributes.get("value")) for i, n in read if n.kind == "prim::Constant"]
        self.kinds = [(i, n.kind.partition(".")[0]) for i, n in read if n.kind != "prim::Constant"]
        self.arity = len(self.root.inputs)
        self.computes = any(node.kind != "prim::Constant" for node in self.after.nodes)
        kept = {v.name for v in self.after.inputs}
        returned = set(self.before.outputs)
        # Nodes that may have readers outside the match.
        self.shared = {
            n
            for n in self.nodes
            if n.kind == "prim::Constant"
            or not self.computes
            or any(v.name in kept or v in returned for v in n.outputs)
        }


def rewrite_pass(name: str, rules: Sequence[Rule]) -> Pass:
    """A pass that applies the rules until none fits; of several that fit a node, the first one that goes through."""
    index: dict[str, list[Rule]] = {}

    def run(graph: Graph) -> bool:
        """Apply the rules."""
        if not index:
            # Rules are parsed when they are first needed, which keeps importing quick.
            for rule in rules:
                index.setdefault(rule.pattern.kind, []).append(rule)
        return _Rewriter(name, graph, index).run()

    return graph_pass(name)(run)


def apply_rules(name: str, graph: Graph, rules: Sequence[Rule]) -> bool:
    """Apply rules once, outside a pass of their own; ``name`` stands in the log. Returns whether the graph changed."""
    index: dict[str, list[Rule]] = {}
    for rule in rules:
        index.setdefault(rule.pattern.kind, []).append(rule)
    return _Rewriter(name, graph, index).run()


class _Rewriter:
    def __init__(self, name: str, graph: Graph, index: dict[str, list[Rule]]) -> None:
        self.name = name
        self.graph = graph
        self.index = index
        self.changes = 0
        self._alias: AliasAnalysis | None = None

    @property
    def alias(self) -> AliasAnalysis:
        if self._alias is None:
            self._alias = AliasAnalysis(self.graph)
        return self._alias

    def run(self) -> bool:
        for _ in range(MAX_SWEEPS):
            before = self.changes
            candidates = [(n, rules) for n in self.graph.all_nodes() if (rules := self.index.get(n.kind))]
            for node, rules in candidates:
                if node.block is None:
                    continue
                for rule in rules:
                    found = _match(rule.pattern, node)
                    if found is None:
                        continue
                    if not may_change(uncounted=min(self.changes, 1)):
                        return self.changes > 0
                    if self.apply(rule, node, *found):
                        break
            if self.changes == before:
                return before > 0
        raise InternalError(f"pass {self.name}: the rules still change the graph after {MAX_SWEEPS} sweeps")

    def apply(self, rule: Rule, root: Node, nodes: dict[Node, Node], values: dict[Value, Value]) -> bool:
        pattern = rule.pattern
        match = Match(self.graph, root, {p.name: v for p, v in values.items()})
        # The rule's own reason first: it is cheap, and memory need not be analysed for nothing.
        reason = (rule.unless(match) if rule.unless else None) or self.reason_against(rule, nodes, values)
        if reason is not None:
            declined(f"{self.name}: {rule.name}", root, reason)
            return False
        made, results = _build(pattern, root, values)
        reason = self.fault_of_results(rule, pattern, root, nodes, values, made, results)
        if reason is not None:
            for node in reversed(made):
                node.destroy()
            declined(f"{self.name}: {rule.name}", root, reason)
            return False
        if self.changes:
            spend()
        self.changes += 1
        for old, new in zip(pattern.before.outputs, results, strict=True):
            if self._alias is not None:
                self._alias.replaced(values[old], new)
            values[old].replace_all_uses_with(new)
            if not new.name:
                new.name = values[old].name
        for each in reversed(pattern.nodes):
            matched = nodes[each]
            if matched.block is not None and not any(v.uses for v in matched.outputs):
                matched.destroy()
        return True

    def reason_against(self, rule: Rule, nodes: dict[Node, Node], values: dict[Value, Value]) -> str | None:
        pattern = rule.pattern
        root = nodes[pattern.root]
        matched = set(nodes.values())
        for each in pattern.nodes:
            node = nodes[each]
            if each.kind == "prim::Constant":
                continue
            if has_effect(node):
                return f"{node.kind} has effects"
            if each is not pattern.root and each not in pattern.shared:
                if any(use.node not in matched for v in node.outputs for use in v.uses):
                    return f"{node.kind} has other readers"
            if pattern.computes and node.block is not root.block and each not in pattern.shared:
                return f"{node.kind} lies in another block"
        # Without writers nothing can come in between, and results are told apart by nobody.
        first = [n for e, n in nodes.items() if e.kind != "prim::Constant" and e is not pattern.root]
        for node in first:
            for value in (*node.inputs, *node.outputs):
                if self.alias.is_written_between(value, node, root):
                    return f"{value!r} may be written between {node.kind} and {root.kind}"
        return None

    def fault_of_results(
        self,
        rule: Rule,
        pattern: Pattern,
        root: Node,
        nodes: dict[Node, Node],
        values: dict[Value, Value],
        made: Sequence[Node],
        results: Sequence[Value],
    ) -> str | None:
        for node in made:
            if self._alias is not None:
                self._alias.added(node, root)
            if has_effect(node):
                raise InternalError(f"rule {rule.name}: {node.kind} of after has effects")
        for wanted, new in zip(pattern.before.outputs, results, strict=True):
            old = values[wanted]
            if old is new:
                continue
            if not is_subtype(new.type, old.type):
                narrow = isinstance(old.type, TensorType) and isinstance(new.type, TensorType)
                if narrow and new.node in made and is_subtype(old.type, new.type):
                    new.type = old.type
                elif not narrow or any(use.node.kind.startswith("prim::") for use in old.uses):
                    return f"the type goes from {old.type} to {new.type}"
            if not rule.same_memory:
                reason = self.fault_of_memory(old, new, root, new.node in made, rule.may_copy)
                if reason is not None:
                    return reason
        return None

    def fault_of_memory(self, old: Value, new: Value, root: Node, is_made: bool, may_copy: bool) -> str | None:
        """Why somebody could tell that ``new`` is or is not the memory that ``old`` was."""
        alias = self.alias
        if not alias.has_memory(old) and not alias.has_memory(new):
            return None
        if is_made and alias.is_new(old) and alias.is_new(new):
            # Nobody else holds it yet.
            return None
        if alias.is_written_after(old, root):
            return f"{old!r}, whose memory may be shared, is written later"
        if alias.is_written_after(new, root):
            return f"{new!r}, which would stand for {old!r}, is written later"
        is_new = may_copy or alias.is_new(old)
        leaves = self.may_leave(old) if may_copy else alias.escapes(old)
        if not leaves or (alias.points_to_same(old, new) and not is_new):
            return None
        if is_new and alias.is_fresh(new) and not alias.escapes(new) and loop_around(new.node) is loop_around(root):
            # It leaves the graph in the place of another new one, once.
            return None
        return f"{old!r} may leave the graph, and {new!r} shares memory with other values"

    def may_leave(self, value: Value) -> bool:
        """Whether the very value, or a view of it, may come to be returned, kept in a container or written.

        ``AliasAnalysis.escapes`` asks this of all that may share its memory, such as the input a copy was made of.
        """
        seen = {value}
        stack = [value]
        while stack:
            for node, _ in stack.pop().uses:
                if node.kind.startswith("prim::") or has_effect(node):
                    return True
                found = [v for v in node.outputs if v not in seen and self.alias.may_alias(v, value)]
                seen.update(found)
                stack += found
        return False


def _match(pattern: Pattern, root: Node) -> tuple[dict[Node, Node], dict[Value, Value]] | None:
    """Nodes and values of the pattern with those they stand for, None when the pattern does not fit there."""
    inputs = root.inputs
    if len(inputs) != pattern.arity:
        return None
    for i, wanted_value in pattern.constants:
        definer = inputs[i].node
        if definer.kind != "prim::Constant" or type(definer.attributes.get("value")) is not type(wanted_value):
            return None
        if type(wanted_value) is int and definer.attributes["value"] != wanted_value:
            return None
    for i, kind in pattern.kinds:
        if inputs[i].node.kind != kind:
            return None
    nodes: dict[Node, Node] = {}
    values: dict[Value, Value] = {}
    stack: list[tuple[Node, Node]] = [(pattern.root, root)]
    while stack:
        wanted, node = stack.pop()
        known = nodes.get(wanted)
        if known is not None:
            if known is not node:
                return None
            continue
        if not _same_operation(wanted, node):
            return None
        nodes[wanted] = node
        for name, value in zip(wanted.outputs, node.outputs, strict=True):
            if not _bind(pattern, values, name, value):
                return None
        for name, value in zip(wanted.inputs, node.inputs, strict=True):
            if not _bind(pattern, values, name, value):
                return None
            if name.node.kind != "prim::Param":
                if value.index != name.index or value.node.kind == "prim::Param":
                    return None
                stack.append((name.node, value.node))
    return nodes, values


def _bind(pattern: Pattern, values: dict[Value, Value], name: Value, value: Value) -> bool:
    known = values.get(name)
    if known is not None:
        return known is value
    if name.name in pattern.typed and not name.is_constant and not is_subtype(value.type, name.type):
        return False
    values[name] = value
    return True


def _same_operation(wanted: Node, node: Node) -> bool:
    if wanted.kind != node.kind:
        name, _, overload = wanted.kind.partition(".")
        if name != node.kind or not overload:
            return False
        schema = node.schema or resolve_node(node)
        if schema is None or schema.full_name != wanted.kind:
            return False
    if len(wanted.inputs) != len(node.inputs) or len(wanted.outputs) != len(node.outputs):
        return False
    if wanted.kind == "prim::Constant" and "value" not in wanted.attributes:
        return "value" not in node.attributes
    return all(k in node.attributes and _equal(v, node.attributes[k]) for k, v in wanted.attributes.items())


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, float):
        # 0.0 is not -0.0, and NaN is NaN.
        return repr(a) == repr(b)
    return bool(a == b)


def _build(pattern: Pattern, root: Node, values: dict[Value, Value]) -> tuple[list[Node], list[Value]]:
    """The nodes of ``after``, put before the root, and what it returns."""
    by_name = {p.name: v for p, v in values.items()}
    known: dict[Value, Value] = {v: by_name[v.name] for v in pattern.after.inputs}
    made: list[Node] = []
    for node in pattern.after.nodes:
        name, _, overload = node.kind.partition(".")
        new = Node(name if overload else node.kind, [known[v] for v in node.inputs], dict(node.attributes))
        like(new, root).insert_before(root)
        made.append(new)
        for value in node.outputs:
            known[value] = new.add_output(value.type)
        if node.kind.startswith("aten::") or table.by_name(name):
            _resolve(new, node, pattern)
    return made, [known[v] for v in pattern.after.outputs]


def _resolve(new: Node, node: Node, pattern: Pattern) -> None:
    """Give a new node its overload and the types of its results."""
    if "." in node.kind:
        op = table.by_full_name(node.kind)
        new.schema = None if op is None else op.schema
    else:
        new.schema = resolve_node(new)
    if new.schema is None:
        raise InternalError(f"no overload of {node.kind} takes {', '.join(str(v.type) for v in new.inputs)}")
    types = infer_types(new)
    for value, t, written in zip(new.outputs, types, node.outputs, strict=True):
        if written.name not in pattern.typed_after or written.type == TENSOR:
            value.type = t
