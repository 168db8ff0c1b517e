"""What the steps of a planned graph are: labels, places, tensors, costs, and how near they come to the ceilings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.cpu_launch import BoundKernel
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.passes.analysis.effects import entry_of
from gpujit.profiler.costs import bytes_of, expanded, flat, flops_of
from gpujit.profiler.data import (
    COMPUTE,
    MEMORY,
    OVERHEAD,
    UNKNOWN,
    Machine,
    Place,
    StepProfile,
    Tensor,
    Times,
)
from gpujit.profiler.machine import bandwidth_of, bus_of, peak_of
from gpujit.profiler.places import cut, place_at, place_of, tensor_of
from gpujit.profiler.sources import Sources
from gpujit.runtime.explain import label_of
from gpujit.static_runtime.clock import Taken
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.steps import OutStep, Segment, StaticPlan
from gpujit.support.threads import thread_count

# Seconds below which a step that is far from all ceilings is taken to consist of getting there: native ones and others.
SMALL, SMALL_CALL = 2e-6, 20e-6
FAR = 0.1
# The share of a call's time that has to be missing from its steps' to be shown.
LEAST_REST = 0.02
# Tier of what stands around the steps; and of copies from the host to a device.
CALL, FROM_HOST = "call", "device copy from the host"


@dataclass(frozen=True)
class Described:
    """A step without its times: ``number`` counts as Span.number does."""

    number: int
    nodes: tuple[Node, ...]
    step: StepProfile


def describe(runner: PlannedGraph, plan: StaticPlan, reasons: Mapping[Node, str], sources: Sources) -> list[Described]:
    """The steps of a plan in running order, their times left 0; ``reasons`` are why nodes were not fused."""
    tiers = {t.node: t for t in runner.tiers(reasons, plan)}
    order = set(plan.order)
    segments = iter(plan.segments)
    waiting = waiting_nodes(plan.order, plan.kinds, ("out", "interpreter"))
    found: list[Described] = []
    groups = 0
    for k, kind in enumerate(plan.code.kinds):
        if kind == "prim::NativeRun":
            segment = next(segments)
            threads = 1 if all(s.kernel.is_small for s in segment.steps) else thread_count()
            for native in {s.position: s for s in segment.steps}.values():
                nodes = nodes_of(native.node, order)
                tier = tiers[native.node]
                operators = operators_of(nodes)
                group = None
                if len(operators) > 1:
                    group, groups = groups, groups + 1
                step = step_of(plan.names, native.position, nodes, inputs_of(native.node, nodes, native.kernel.owner))
                step = replace(
                    step,
                    label=cut(tier.label),
                    tier=tier.name,
                    group=group,
                    kernel=sources.key(native.kernel, cut(tier.label)),
                    threads=threads,
                    bytes_read=_kept_narrow(step.bytes_read, nodes, native.kernel.owner),
                )
                found.append(Described(native.position, nodes, step))
            continue
        instruction = plan.code.instructions[k]
        what = instruction[1] if len(instruction) > 1 else None
        if isinstance(what, Segment) or (not callable(what) and not isinstance(what, OutStep)):
            continue
        source, call = plan.code.places[k]
        matching = waiting[kind, id(source), id(call)]
        node = matching.pop(0) if matching else None
        if node is None:
            tier_name = "interpreter" if kind.startswith("prim::") else "numpy"
            step = row(kind, place_at(source, call), tier_name)
        else:
            step = replace(
                step_of(plan.names, plan.order.index(node), (node,), node.inputs),
                label=cut(label_of(node)),
                tier=tiers[node].name if node in tiers else "interpreter",
            )
        found.append(Described(-1 - k, () if node is None else (node,), step))
    return found


def nodes_of(node: Node, order: set[Node]) -> tuple[Node, ...]:
    """A step's node, behind those whose results it goes on with: they have no step of their own."""
    for value in node.inputs:
        first = value.node
        views = []
        while first.inputs and first.kind != "prim::Constant" and is_view(first):
            views.append(first)
            first = first.inputs[0].node
        if first.inputs and first not in order and first.kind not in ("prim::Constant", "prim::ListConstruct"):
            return (*nodes_of(first, order), *reversed(views), node)
    return (node,)


def is_view(node: Node) -> bool:
    """Whether a node only looks at its operand's memory in another way."""
    op = entry_of(node)
    return op is not None and op.kind == "view"


def operators_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The operators of some nodes, without those that only look at memory in another way."""
    found = [n for n in expanded(nodes) if not is_view(n)]
    return tuple(cut(n.kind.rpartition("::")[2]) for n in found)


def inputs_of(node: Node, nodes: Sequence[Node], owner: object) -> list[Value]:
    """The tensors from outside that a native step reads."""
    made = {v for n in nodes for v in n.outputs}
    count = len(node.inputs)
    if isinstance(owner, BoundKernel):
        # A group's operands that no expression needs come last.
        count = min(count, len(owner.call.nest.program.inputs)) if len(nodes) == 1 and node.schema is None else count
    found = [v for n in nodes[:-1] for v in n.inputs]
    return [v for v in dict.fromkeys((*found, *node.inputs[:count])) if v not in made]


def _kept_narrow(read: int | None, nodes: Sequence[Node], owner: object) -> int | None:
    """The bytes read where a template keeps its matrix of weights as smaller numbers than the graph does."""
    kept = owner.constants.get("b") if isinstance(owner, BoundTemplate) else None
    if read is None or kept is None or kept.dtype == FLOAT32:
        return read
    constants = [v.constant() for n in nodes for v in n.inputs if v.is_constant]
    largest = max((c.nbytes for c in constants if isinstance(c, np.ndarray)), default=0)
    return max(read - largest + kept.nbytes, 0)


def waiting_nodes(
    order: Sequence[Node], kinds: Mapping[Node, str], wanted: Sequence[str]
) -> dict[tuple[str, int, int], list[Node]]:
    """Nodes that are instructions of a plan's code, by kind and place."""
    found: dict[tuple[str, int, int], list[Node]] = defaultdict(list)
    for node in order:
        if kinds.get(node) in wanted:
            found[node.kind, id(node.source), id(node.call)].append(node)
    return found


def step_of(names: Mapping[Value, str], position: int, nodes: Sequence[Node], inputs: Sequence[Value]) -> StepProfile:
    """The last one of some nodes, which a step does together, with what it reads and must do; its label, tier and times
    are still to come."""
    node = nodes[-1]
    moved = bytes_of(inputs, node.outputs, nodes)
    tensors = [t for v in flat(inputs) if (t := tensor_of(v, names.get(v, ""))) is not None]
    results = [t for v in node.outputs if (t := tensor_of(v, names.get(v, ""))) is not None]
    return StepProfile(
        number=0,
        position=position,
        label="",
        kind=node.kind,
        tier="",
        place=_best_place(nodes),
        group=None,
        kernel="",
        operators=operators_of(nodes),
        inputs=tuple(tensors),
        outputs=tuple(results),
        seconds=_NOTHING,
        bytes_read=None if moved is None else moved[0],
        bytes_written=None if moved is None else moved[1],
        flops=flops_of(nodes),
    )


def _best_place(nodes: Sequence[Node]) -> Place:
    """Where a step comes from: what its first operator says, whose module is the one people look for."""
    places = [place_of(n) for n in expanded(nodes) if not is_view(n)] or [place_of(n) for n in nodes]
    return max(places, key=lambda p: (bool(p.archive), len(p.module.split(".")) if p.module else 0))


_NOTHING = Times(0.0, 0.0, 0.0, 0.0, 0)


def row(label: str, place: Place = Place(), tier: str = CALL, kind: str | None = None) -> StepProfile:  # noqa: B008  # frozen
    nothing: tuple[Tensor, ...] = ()
    name = label if kind is None else kind
    return StepProfile(0, None, cut(label), name, tier, place, None, "", (), nothing, nothing, _NOTHING)


def timed(
    described: Sequence[Described], taken: Taken, around: np.ndarray, machine: Machine
) -> tuple[list[StepProfile], dict[int, int]]:
    """The steps with their times, and what stands around them: together they make up the whole of a call. Then which of
    them each number of a span stands for.

    Args:
        around: for each run the seconds of its call before it began and after it ended.
    """
    column = {n: k for k, n in enumerate(taken.numbers)}
    found = [_row("arguments, plan", around[:, 0])] if around[:, 0].any() else []
    found.append(_row("arrays in, results made", taken.entering))
    place = {}
    for each in described:
        k = column.get(each.number)
        if k is not None and len(taken.runs):
            place[each.number] = len(found)
            found.append(judged(replace(each.step, seconds=Times.of(taken.seconds[:, k].tolist())), machine))
    found.append(_row("between steps", taken.between))
    found.append(_row("results out", taken.leaving + around[:, 1]))
    # Other work on the machine hits one step in this run and another in that: it is in the time of every call and in
    # the median of no step.
    whole = around.sum(axis=1) + taken.entering + taken.seconds.sum(axis=1) + taken.between + taken.leaving
    rest = whole - sum(s.seconds.median for s in found)
    if len(whole) and np.median(rest) > LEAST_REST * np.median(whole):
        found.append(_row("interruptions", np.maximum(rest, 0.0)))
    return [replace(step, number=k) for k, step in enumerate(found)], place


def whole_call(times: Times, runner: str = "interpreter") -> StepProfile:
    """The only row of a call whose steps are not told apart."""
    label = "interpreted call" if runner == "interpreter" else f"call on a {runner}"
    return replace(row(label, tier=runner, kind=""), seconds=times)


def _row(label: str, seconds: np.ndarray) -> StepProfile:
    return replace(row(label, kind=""), seconds=Times.of(seconds.tolist() or [0.0]), bound=OVERHEAD)


def judged(step: StepProfile, machine: Machine) -> StepProfile:
    """The step with what bounds it, and how near to that it comes."""
    seconds = step.seconds.median
    limit = SMALL if step.tier.startswith("native") else SMALL_CALL
    if machine.device and not step.tier.startswith("device"):
        # What the host does has other ceilings.
        machine = replace(machine, bandwidths=(), peaks=())
    if step.tier == FROM_HOST:
        bandwidth = bus_of(machine)
    else:
        bandwidth = bandwidth_of(machine, step.bytes_moved or 0, step.threads)
    # Units for products of half types are for nothing else.
    dtype = step.outputs[0].dtype if step.tier == "device library" and step.outputs else "float32"
    peak = peak_of(machine, step.threads, dtype)
    if step.bytes_moved is None or bandwidth is None or peak is None or not seconds:
        return replace(step, bound=OVERHEAD if 0 < seconds < limit and step.bytes_moved is None else UNKNOWN)
    least = {MEMORY: step.bytes_moved / bandwidth, COMPUTE: (step.flops or 0) / peak}
    bound = max(least, key=lambda b: least[b])
    fraction = least[bound] / seconds
    if fraction < FAR and seconds < limit:
        bound = OVERHEAD
    return replace(step, bound=bound, fraction=fraction)
