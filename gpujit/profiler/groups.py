"""Fused against unfused: each step of several operators, and these operators one by one, on the same data in turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value, copy_node
from gpujit.ir.printer import SUBGRAPH
from gpujit.profiler.data import GroupProfile, Ratio, Times
from gpujit.profiler.steps import Described
from gpujit.runtime.executor import Plan
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.decide import copied, name_values
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.places import contiguous, facts_of
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.steps import Options, StaticPlan
from gpujit.support.errors import GpujitError
from gpujit.support.progress import Stage

# Bytes of tensors between steps that are kept to run groups on; groups of others get numbers made up.
MAX_KEPT = 2 << 30
# Runs before those that count.
_WARM = 2


class Values:
    """What groups read in a call: arrays of a run whose results between steps were kept."""

    def __init__(self, plan: Plan, lowerer: Lowerer, values: Sequence[Any], wanted: Sequence[str]) -> None:
        """Runs the plan's graph once, operator by operator and group by group. ``wanted`` are the names (of
        ``name_values``) of values to keep."""
        self._arrays: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)
        self._keep(plan, lowerer, values, frozenset(wanted))

    def _keep(self, plan: Plan, lowerer: Lowerer, values: Sequence[Any], wanted: frozenset[str]) -> None:
        graph, nodes, kept = keeping(plan.graph, wanted)
        whole = Lowerer(lowerer.xp, lowerer.rules)
        whole.fused = {nodes[n]: step for n, step in plan.steps.items()}
        with np.errstate(all="ignore"):
            results = Interpreter(whole).run(whole.graph_code(graph), list(values))
        for name, array in zip(kept, results[len(results) - len(kept) :], strict=True):
            if isinstance(array, np.ndarray):
                self._arrays[name] = array

    def of(self, value: Value, name: str) -> Any:
        """The array for a tensor; made up where none was kept. None for what has no known shape."""
        found = self._arrays.get(name)
        facts = facts_of(value)
        if facts is None:
            return None
        is_it = found is not None and (found.shape, found.dtype) == facts
        return found if is_it else made_up(facts, self._random)


def keeping(graph: Graph, wanted: Collection[str]) -> tuple[Graph, dict[Node, Node], list[str]]:
    """A copy of a graph that gives, in one tuple, its results and then tensors between its nodes.

    Args:
        wanted: names (of ``name_values``) of the tensors, which are left out where they lie in branches and loops.
    Returns: the graph, its nodes by the given one's, and the names of the tensors that it gives.
    """
    graph, nodes = copied(graph)
    kept = []
    size = 0
    for value, name in name_values(graph).items():
        facts = facts_of(value)
        if name not in wanted or facts is None or value.node.block is not graph.block:
            # Inside branches and loops it has another value each time, or none.
            continue
        size += int(np.prod(facts[0])) * facts[1].itemsize
        if size > MAX_KEPT:
            break
        kept.append(name)
        graph.add_output(value)
    # The results of a graph with several outputs come as one tuple.
    node = Node("prim::TupleConstruct", list(graph.outputs))
    graph.block.append(node)
    graph.block.return_node.remove_all_inputs()
    graph.add_output(node.add_output(T.TupleType(tuple(v.type for v in node.inputs))))
    return graph, nodes, kept


def made_up(facts: tuple[tuple[int, ...], np.dtype], random: np.random.Generator) -> np.ndarray:
    """Numbers for a tensor of this shape and dtype."""
    shape, dtype = facts
    if dtype.kind in "iub":
        # Zeros are places that exist, whatever they index.
        return np.zeros(shape, dtype)
    return random.standard_normal(shape).astype(dtype)


class Timed(Protocol):
    """A group as two things that can be run in turn: one step, and a step for each operator.

    ``seconds`` are those of the group, then of its operators; ``unfused_tier`` is what runs those.
    """

    number: int
    seconds: tuple[list[float], list[float]]
    unfused_tier: str

    def prepare(self) -> None:
        """Have what it takes to run both. Raises GpujitError."""

    def round(self, turn: int) -> None:
        """One run of each, the first one in turn."""


@dataclass
class Pair:
    """A group as two planned graphs on the same arrays. See Timed."""

    number: int
    fused: PlannedGraph
    unfused: PlannedGraph
    inputs: list[Any]
    outputs: list[np.ndarray]

    def prepare(self) -> None:
        """Have plans, kernels and arenas, and let both run. Raises GpujitError."""
        self._arenas = [TimedArena(g.plan(self.inputs)) for g in (self.fused, self.unfused)]
        self.seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(_WARM):
            for graph, arena in zip((self.fused, self.unfused), self._arenas, strict=True):
                graph.run_on(arena, self.inputs, list(self.outputs))
        self.unfused_tier = _tier_of(self.unfused)

    def round(self, turn: int) -> None:
        """One run of each, the first one in turn."""
        sides = [(self.fused, self._arenas[0], 0), (self.unfused, self._arenas[1], 1)]
        for graph, arena, side in sides if turn % 2 == 0 else reversed(sides):
            out: Targets = list(self.outputs)
            graph.run_on(arena, self.inputs, out)
            taken = arena.recorder.taken()
            arena.recorder.clear()
            self.seconds[side].append(float(taken.seconds[-1].sum()))


def pairs_of(
    described: Sequence[Described],
    plan: Plan,
    lowerer: Lowerer,
    options: Options,
    values: Sequence[Any],
    planned: StaticPlan,
) -> list[Pair]:
    """A pair for each step of several operators that can stand by itself.

    Args:
        described: steps of ``planned``, a static plan of the plan's graph.
        values: run-time values of the graph's inputs.
    """
    found, names = [], planned.names
    grouped = [d for d in described if d.step.group is not None]
    given = {d.number: outside(d.nodes) for d in grouped}
    wanted = [names[v] for vs in given.values() for v in vs if v in names]
    arrays = Values(plan, lowerer, values, wanted)
    for each in grouped:
        inputs = [arrays.of(v, names.get(v, "")) for v in given[each.number]]
        facts = [facts_of(v) for v in each.nodes[-1].outputs]
        if any(x is None for x in inputs) or None in facts:
            continue
        whole, programs = graph_of_group(each.nodes, given[each.number], plan, keep=True)
        parts, _ = graph_of_group(each.nodes, given[each.number], plan, keep=False)
        plain = Lowerer(lowerer.xp, lowerer.rules)
        is_permuted = each.nodes[-1] in planned.orders
        assert each.step.group is not None
        found.append(
            Pair(
                each.step.group,
                _planned(whole, programs, plain, replace(options, out_bytes=0), is_permuted),
                _planned(parts, {}, plain, replace(options, out_bytes=0, endings=False), is_permuted),
                inputs,
                [np.empty(*f) for f in facts if f is not None],
            )
        )
    return found


def _planned(
    graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer, options: Options, is_permuted: bool
) -> PlannedGraph:
    """A planned graph whose results are contiguous where those of the step are, whose readers are not in the graph."""
    names = name_values(graph)
    facts = {names[v]: f for v in graph.outputs if (f := facts_of(v)) is not None and v in names}
    strides = {} if is_permuted else {name: contiguous(*f) for name, f in facts.items()}
    return PlannedGraph(graph, programs, lowerer, options, strides=strides)


def _told(group: GroupProfile, pair: Timed) -> GroupProfile:
    """The group with the times of both sides."""
    fused, unfused = pair.seconds
    return replace(
        group,
        fused=Times.of(fused),
        unfused=Times.of(unfused),
        unfused_tier=pair.unfused_tier,
        speedup=Ratio.of(unfused, fused),
    )


def measured(pairs: Iterable[Timed], groups: Sequence[GroupProfile], rounds: int) -> tuple[GroupProfile, ...]:
    """The groups with the times of both sides; those of a group that cannot run by itself stay None."""
    by_number = {g.number: g for g in groups}
    with Stage("time groups against their operators", len(groups)) as stage:
        for pair in pairs:
            stage.note = by_number[pair.number].label
            # Numbers that were made up may be none that the operators take.
            with suppress(GpujitError):
                pair.prepare()
                for turn in range(rounds):
                    pair.round(turn)
                by_number[pair.number] = _told(by_number[pair.number], pair)
            stage.advance()
    return tuple(by_number.values())


def outside(nodes: Sequence[Node]) -> list[Value]:
    """Tensors that some nodes read and that come from elsewhere, constants left out."""
    made = {v for n in nodes for v in n.outputs}
    found: dict[Value, None] = {}
    stack = [v for n in reversed(nodes) for v in reversed(n.inputs)]
    while stack:
        value = stack.pop()
        if value in made or value.is_constant:
            continue
        if value.node.kind == "prim::ListConstruct":
            stack += reversed(value.node.inputs)
            continue
        found[value] = None
    return list(found)


def graph_of_group(
    nodes: Sequence[Node], given: Sequence[Value], plan: Plan, keep: bool
) -> tuple[Graph, dict[Node, Lowered]]:
    """The nodes as a graph of their own; with ``keep`` groups stay groups, else their operators stand in it."""
    graph = Graph("group")
    known = {v: graph.add_input(v.type, v.name) for v in given}
    programs = {id(n.attributes[SUBGRAPH]): low for n, low in plan.fused.programs.items()}
    found: dict[Node, Lowered] = {}
    for node in nodes:
        for value in node.inputs:
            _copy_operand(value, graph, known)
        inner = node.attributes.get(SUBGRAPH)
        if keep or not isinstance(inner, Graph):
            new = copy_node(node, graph.block, known)
            low = programs.get(id(inner))
            if low is not None:
                found[new] = low
            continue
        values = dict(zip(inner.inputs, (known[v] for v in node.inputs), strict=True))
        for each in inner.nodes:
            copy_node(each, graph.block, values)
        known.update(zip(node.outputs, (values[v] for v in inner.outputs), strict=True))
    for value in nodes[-1].outputs:
        graph.add_output(known[value])
    return graph, found


def _copy_operand(value: Value, graph: Graph, known: dict[Value, Value]) -> None:
    """Have a constant, or a list, in the graph."""
    if value in known:
        return
    for inner in value.node.inputs:
        _copy_operand(inner, graph, known)
    copy_node(value.node, graph.block, known)


def _tier_of(graph: PlannedGraph) -> str:
    """What runs the operators: native steps, NumPy, or some of both."""
    names = {t.name for t in graph.tiers() if t.name not in ("view", "interpreter")}
    native = {n for n in names if n.startswith("native")}
    return "native" if names == native else "mixed" if native else "numpy"
