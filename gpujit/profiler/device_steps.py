"""What the steps of a plan on a GPU are, and what a recorder took down of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.profiler.assemble import Timings, graphs_of, refusals_of
from gpujit.profiler.data import Place, StepProfile
from gpujit.profiler.places import cut, place_at
from gpujit.profiler.sources import Sources
from gpujit.profiler.steps import FROM_HOST, Described, inputs_of, nodes_of, row, step_of, waiting_nodes
from gpujit.runtime import bytecode as bc
from gpujit.runtime.executor import Executor, Plan
from gpujit.static_runtime.clock import CALLS
from gpujit.static_runtime.device_build import CheckStep, DevicePlan, DeviceSegment, Kept, PlannedStep
from gpujit.static_runtime.device_clock import DeviceRecorder, copies_of
from gpujit.static_runtime.device_module import DeviceGraph
from gpujit.static_runtime.report import MemoryReport, bytes_of, output_bytes
from gpujit.static_runtime.tiers import Tier

# Tiers of rows that are no nodes: tensors brought to their places and away from there; what the host does.
COPIES, HOST = "device copy", "host"
INPUTS, BETWEEN, OUTPUTS = "inputs to their places", "copies in and out", "results away from their places"


def device_timings(
    executor: Executor | None, plan: Plan | None, graph: DeviceGraph, recorder: DeviceRecorder
) -> Timings:
    """What a recorder has taken down of the runs of a graph on a device. Raises DeviceError when that is lost."""
    reasons = {r.node: r.reason for r in plan.fused.refusals} if plan is not None else {}
    sources, tiers = Sources(), graph.tiers(reasons)
    taken = recorder.taken()
    return Timings(
        describe_device(recorder.plan, tiers, sources, FROM_HOST if recorder.is_host_input else COPIES),
        taken,
        recorder.spans(),
        track="gpu",
        runner="device",
        refusals=tuple(refusals_of(plan, tiers)),
        graphs=tuple(graphs_of(executor, plan, recorder.plan.order)),
        kernels=sources.all(),
        memory=_memory(recorder.plan),
        device=f"{graph.device.name}, {graph.device.description}",
    )


def describe_device(
    plan: DevicePlan, tiers: Sequence[Tier], sources: Sources, inputs: str = COPIES
) -> list[Described]:
    """The steps of a plan in running order, their times left 0. ``inputs``: the tier of copies of inputs."""
    by_node = {t.node: t for t in tiers}
    waiting = waiting_nodes(plan.order, plan.kinds, ("view", "interpreter"))
    first, last = copies_of(plan)
    found = [Described(first, (), _copies(INPUTS, plan.inputs.values(), inputs))]
    made = {k.value for s in plan.segments for k in s.made} | {k.value for k in plan.inputs.values()}
    groups = 0
    for k, instruction in enumerate(plan.code.instructions):
        what = instruction[1] if len(instruction) > 1 else None
        kind, (source, call) = plan.code.kinds[k], plan.code.places[k]
        if isinstance(what, DeviceSegment):
            # What other steps made, and inputs, is where it has to be.
            brought = [x for x in what.given if x.value not in made and x.offset is not None]
            back = [what.given[i] for i in what.written]
            found.append(Described(-1 - k, (), _copies(BETWEEN, [*brought, *back, *what.made])))
            for planned in what.steps:
                described = _described(plan, planned, by_node[planned.node], sources)
                if len(described.step.operators) > 1:
                    described = replace(described, step=replace(described.step, group=groups))
                    groups += 1
                found.append(described)
        elif isinstance(what, CheckStep):
            found.append(Described(-1 - k, (), row("checks of kernels", place_at(source, call), HOST)))
        elif instruction[0] in (*CALLS, bc.SET):
            matching = waiting[kind, id(source), id(call)]
            node = matching.pop(0) if matching else None
            if node is None:
                step = row(kind, place_at(source, call), "interpreter" if kind.startswith("prim::") else HOST)
            else:
                step = step_of(plan.names, plan.order.index(node), (node,), node.inputs)
                step = replace(step, label=cut(by_node[node].label), tier=by_node[node].name)
            found.append(Described(-1 - k, () if node is None else (node,), step))
    return [*found, Described(last, (), row(OUTPUTS, Place(), COPIES))]


def _copies(label: str, kept: Iterable[Kept], tier: str = COPIES) -> StepProfile:
    """The row of copies of some tensors."""
    nbytes = sum(k.nbytes for k in kept)
    # What comes from the host is read there.
    return replace(row(label, Place(), tier), bytes_read=0 if tier == FROM_HOST else nbytes, bytes_written=nbytes)


def _described(plan: DevicePlan, planned: PlannedStep, tier: Tier, sources: Sources) -> Described:
    node, label = planned.node, cut(tier.label)
    nodes = nodes_of(node, set(plan.order))
    inputs = inputs_of(node, nodes, None)
    if node.kind == FUSION_GROUP:
        # Operands that no expression needs come last.
        inputs = list(dict.fromkeys(node.inputs[: len(planned.roots) - len(node.outputs)]))
    step = step_of(plan.names, planned.position, nodes, inputs)
    step = replace(step, label=label, tier=tier.name, kernel=sources.device_key(planned.step, label))
    return Described(planned.position, nodes, step)


def _memory(plan: DevicePlan) -> MemoryReport:
    """What a plan takes on the device, and where its values lie."""
    packed = [x for step in plan.steps.values() for x in step.constants]
    weights = [x for s in plan.segments for p in s.steps for x in p.roots if isinstance(x, np.ndarray)]
    return MemoryReport(
        plan.arena.size,
        plan.arena.bound,
        plan.separate,
        plan.scratch_size,
        bytes_of(weights),
        bytes_of(packed),
        output_bytes(plan.graph),
        1,
        tuple(plan.values),
    )
