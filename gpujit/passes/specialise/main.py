"""Specialisation: a graph for inputs of known shapes, dtypes and non-tensor values.

An online partial evaluator: what is known is computed now, the rest is emitted into a new graph. Sizes, branches on
sizes and numbers, counted loops, lists, dicts, texts, tuples and calls are gone from it; tensors have types with their
shapes. Branches and loops that depend on data stay, specialised inside. Effects stay, in their order; what the graph
assumes of attributes is stated as guards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.values import ScriptObject
from gpujit.passes.analysis.effects import entry_of, has_effect, has_own_effect
from gpujit.passes.inline import callee
from gpujit.passes.specialise import control, language, operators
from gpujit.passes.specialise.evaluator import HANDLERS, Evaluator, Unreachable
from gpujit.passes.specialise.guards import Guard, Key, ObjectSpec, Spec, check_key
from gpujit.passes.specialise.outside import Outside, of_outside, sharing
from gpujit.passes.specialise.values import Blank
from gpujit.support.errors import LimitError

# Nodes beyond which loops are not unrolled.
UNROLL_LIMIT = 50_000
# These modules fill the table of handlers when they are imported.
FAMILIES = (control, language, operators)


@dataclass(frozen=True, slots=True)
class Left:
    """A node that specialisation is meant to remove but could not, and why."""

    node: Node
    reason: str


@dataclass(frozen=True, slots=True)
class Specialised:
    """A graph for one Key, with what it assumes.

    Args:
        graph: inputs and outputs as those of the original.
        guards: one for each input but ``self``, and one for each attribute whose value or type was used.
        left: branches, loops, size queries, and operators on lists and texts that are still there.
    """

    graph: Graph
    key: Key
    guards: tuple[Guard, ...]
    left: tuple[Left, ...]

    def check(self, inputs: Sequence[Any], module: ScriptObject | None = None) -> str | None:
        """The first assumption that does not hold for these run-time values; None when the graph may be run on them.

        Args:
            inputs: one for each input of the graph; without the first when ``module`` stands for it.
        """
        values = list(inputs) if module is None else [module, *inputs]
        if len(values) != len(self.key.inputs):
            return f"{len(values)} inputs are given, the graph takes {len(self.key.inputs)}"
        for guard in self.guards:
            reason = guard.check(values)
            if reason is not None:
                return reason
        return _shared_container(values)


def specialise(
    graph: Graph, key: Key, *, unroll_limit: int = UNROLL_LIMIT, volatile: Collection[str] = ()
) -> Specialised:
    """The graph for inputs that the key describes. ``graph`` itself is not changed and need not be inlined.

    Modules and objects among the inputs (ObjectSpec) are looked into: attributes that the graph reads are taken as they
    are now, and each such fact is a guard. ``volatile`` names attributes as guards do (``self.calls``) that are not:
    they change too often, so the graph reads them at run time.
    Raises ArgumentError when the key does not fit the graph, LimitError when calls recurse or code is too large.
    """
    check_key(graph, key)
    ev = Evaluator(graph.name, unroll_limit)
    ev.volatile = frozenset(volatile)
    _find_writes(ev, graph, key)
    known = []
    for i, (value, spec) in enumerate(zip(graph.inputs, key.inputs, strict=True)):
        known.append(_input(ev, i, value, spec))
    try:
        results = ev.run_graph(graph, known, None)
    except Unreachable:
        results = [Blank(v.type) for v in graph.outputs]
    except RecursionError:
        raise LimitError(f"calls and blocks of {graph.name} are nested too deeply to be specialised") from None
    for value, result in zip(graph.outputs, results, strict=True):
        ev.graph.add_output(ev.place(result, value.type))
    ev.anchor.destroy()
    _remove_dead(ev.graph.block)
    shared = sharing(ev) if any(map(_depends_on_sharing, ev.graph.all_nodes())) else None
    if shared is not None:
        ev.guards[shared.path] = shared
    return Specialised(ev.graph, key, tuple(ev.guards.values()), tuple(_left(ev)))


def _input(ev: Evaluator, index: int, value: Value, spec: Spec) -> Any:
    made = ev.graph.add_input(value.type, value.name)
    ev.at_top.add(made)

    def place(t: T.Type) -> Value:
        if T.is_subtype(t, made.type):
            made.type = t
        return made

    name = value.name or str(index)
    if isinstance(spec, ObjectSpec):
        at = Outside(name, partial(_argument, index), place)
    else:
        at = Outside(f"input {name}", partial(_argument, index), place)
    return of_outside(ev, spec, value.type, at)


def _argument(index: int, values: Sequence[Any]) -> Any:
    return values[index]


def _find_writes(ev: Evaluator, graph: Graph, key: Key) -> None:
    """Note which attributes any code the graph may reach writes."""
    graphs, seen = [graph], {graph}

    def reach(other: Graph) -> None:
        if other not in seen:
            seen.add(other)
            graphs.append(other)

    for current in graphs:
        for node in current.all_nodes():
            if node.kind == "prim::SetAttr":
                ev.written.add((node.inputs[0].type, node.attributes["name"]))
            function: Function | None = callee(node)
            if function is not None:
                reach(function.graph)
            elif node.kind in ("prim::CallMethod", "prim::CallFunction", "prim::Enter") or (
                node.kind not in HANDLERS and entry_of(node) is None
            ):
                ev.all_written = True
            subgraph = node.attributes.get("Subgraph")
            if isinstance(subgraph, Graph):
                reach(subgraph)


def _remove_dead(block: Block) -> None:
    """Remove what nobody reads and what has no effect."""
    for node in block.nodes_reversed:
        if not any(v.uses for v in node.outputs) and not has_effect(node):
            node.destroy()
            continue
        for inner in node.blocks:
            _remove_dead(inner)


def _depends_on_sharing(node: Node) -> bool:
    """Whether a node changes a list or dict, or asks whether two are one."""
    op = entry_of(node)
    if op is None:
        return has_own_effect(node) and node.kind not in ("prim::SetAttr", "prim::RaiseException")
    containers = (T.ListType, T.DictType)
    is_write = any(a.is_write and isinstance(a.type, containers) for a in op.schema.arguments)
    return is_write or op.name in ("aten::__is__", "aten::__isnot__")


def _shared_container(values: Sequence[Any]) -> str | None:
    """Whether one list or dict is given twice, which the graph takes for two."""
    seen: set[int] = set()
    stack = [v for v in values if isinstance(v, (list, dict, tuple))]
    while stack:
        value = stack.pop()
        if not isinstance(value, tuple):
            if id(value) in seen:
                return f"one {type(value).__name__} is given in two places"
            seen.add(id(value))
        inner = value.values() if isinstance(value, dict) else value
        stack += [v for v in inner if isinstance(v, (list, dict, tuple))]
    return None


def _left(ev: Evaluator) -> list[Left]:
    found = []
    for node in ev.graph.all_nodes():
        reason = ev.reasons.get(node)
        if reason is None and is_leftover(node):
            reason = _why(node)
        if reason is not None:
            found.append(Left(node, reason))
    return found


def is_leftover(node: Node) -> bool:
    """Whether a node is one that specialisation is meant to remove: control flow, size queries, operators on Python's
    lists, dicts and texts. Lists made for, or by, an operator on tensors do not count."""
    if node.kind in ("prim::If", "prim::Loop"):
        return True
    op = entry_of(node)
    if op is None or op.kind != "prim":
        readers = {use.node.kind for value in node.outputs for use in value.uses}
        return node.kind == "prim::DictConstruct" and not readers <= {"prim::Return", "prim::TupleConstruct"}
    if node.kind in ("aten::size", "aten::dim", "aten::numel", "aten::len"):
        return True
    types = [a.type for a in (*op.schema.arguments, *op.schema.returns)]
    return any(part == T.STR or isinstance(part, (T.ListType, T.DictType)) for t in types for part in T.walk(t))


def _why(node: Node) -> str:
    unknown = [v for v in node.inputs if not v.is_constant]
    if not unknown:
        return "it raises"
    return f"it reads {', '.join(sorted({v.node.kind for v in unknown}))}, known only at run time"


def key_of(graph: Graph, values: Sequence[Any]) -> Key:
    """The key of run-time values for all inputs of a graph, ``self`` included.

    Raises ArgumentError when they do not fit.
    """
    key = Key.of(graph, values)
    check_key(graph, key)
    return key
