"""A profile put together: what a planned graph is, what was taken down of its runs, and what is known besides."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import gpujit
from gpujit.fuser.tensors import bytes_of, is_tensor
from gpujit.ir.arrays import describe as describe_value
from gpujit.ir.graph import Graph, Node
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import DeviceTensor
from gpujit.kernels import cuda_cache, supply
from gpujit.profiler.costs import expanded
from gpujit.profiler.data import (
    Event,
    GraphText,
    GroupProfile,
    Kernels,
    KernelSource,
    Machine,
    Phase,
    Profile,
    Refusal,
    StepProfile,
    Tensor,
    Times,
    Versions,
)
from gpujit.profiler.graphs import graph_text
from gpujit.profiler.places import cut, place_of
from gpujit.profiler.sources import Sources
from gpujit.profiler.steps import Described, describe, is_view, timed, whole_call
from gpujit.runtime.executor import Executor, Plan
from gpujit.static_runtime.clock import Span, Taken
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.report import MemoryReport, memory_report
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.tiers import Tier

# Calls and steps kept for the timeline.
MAX_EVENTS = 50_000
# Tiers that a refusal is told of.
_LOWER = ("out", "numpy", "interpreter", "control", "host")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module from outside: its name, its target, when it began and ended in nanoseconds, whether it
    raised."""

    name: str
    target: Any
    start: int
    end: int
    failed: bool = False


def versions() -> Versions:
    """What runs here."""
    import llvmlite

    return Versions(
        gpujit.__version__, platform.python_version(), np.__version__, llvmlite.__version__, platform.platform()
    )


def kernels_asked() -> Kernels:
    """What became of all kernels asked for in this process so far."""
    both = (supply.counters, cuda_cache.counters)
    return Kernels(*(sum(getattr(c, f.name) for c in both) for f in fields(Kernels)))


def difference(after: Kernels, before: Kernels) -> Kernels:
    """Kernels asked for in between."""
    return Kernels(
        after.shared - before.shared,
        after.loaded - before.loaded,
        after.compiled - before.compiled,
        after.refused - before.refused,
    )


def inputs_of(executor: Executor, values: Sequence[Any]) -> tuple[Tensor, ...]:
    """The run-time values that a function is given, its object left out."""
    inputs = executor.function.graph.inputs
    found = []
    for value, given in list(zip(inputs, values, strict=False)):
        name = cut(value.name)
        if isinstance(given, (np.ndarray, DeviceTensor)):
            found.append(Tensor(name, str(given.dtype), tuple(given.shape)))
        elif not hasattr(given, "slots"):
            text = repr(given) if isinstance(given, (bool, int, float, str, type(None))) else describe_value(given)
            found.append(Tensor(name, cut(text), None))
    return tuple(found)


@dataclass(frozen=True)
class Timings:
    """What was taken down of a graph's runs, by a processor's clock or events on a device, and what their steps are.

    All times are nanoseconds of ``time.perf_counter_ns``; who has another clock shifts them.
    Args:
        described: the steps, whose times are still to come.
        taken: the times of each run.
        spans: the steps of all runs, for the timeline.
        track: on which of its lines they go: "steps" or "gpu"; what a host does between a device's steps is on
            "steps".
        memory: None where it is not planned.
        device: what the steps ran on, where that was not the processor.
    """

    described: Sequence[Described]
    taken: Taken
    spans: Iterable[Span]
    track: str = "steps"
    runner: str = "static"
    refusals: tuple[Refusal, ...] = ()
    graphs: tuple[GraphText, ...] = ()
    kernels: tuple[KernelSource, ...] = ()
    memory: MemoryReport | None = None
    device: str = ""


def arena_timings(executor: Executor | None, plan: Plan | None, runner: PlannedGraph, arena: TimedArena) -> Timings:
    """What an arena has taken down of the runs of a planned graph."""
    reasons = {r.node: r.reason for r in plan.fused.refusals} if plan is not None else {}
    sources = Sources()
    return Timings(
        describe(runner, arena.plan, reasons, sources),
        arena.recorder.taken(),
        arena.recorder.spans(),
        refusals=tuple(refusals_of(plan, runner.tiers(reasons, arena.plan))),
        graphs=tuple(graphs_of(executor, plan, arena.plan.order)),
        kernels=sources.all(),
        memory=memory_report(arena.plan, 1),
    )


def planned_profile(
    timings: Timings,
    *,
    file: str,
    method: str,
    calls: Sequence[Call],
    inputs: tuple[Tensor, ...],
    machine: Machine,
    cache: Kernels,
    phases: tuple[Phase, ...] = (),
    steady: Times | None = None,
    lost: int = 0,
) -> Profile:
    """The profile of a graph whose runs were taken down.

    Args:
        calls: in which the runs happened.
        steady: calls that nobody watched; those watched stand for them when there are none.
        lost: runs besides those taken down.
    """
    taken, described = timings.taken, timings.described
    around, whole = _around(taken, calls)
    steps, number = timed(described, taken, around, machine)
    grouped = [(d, steps[number[d.number]]) for d in described if d.number in number and d.step.group is not None]
    events, dropped = _events(timings, calls, steps, number)
    watched = Times.of(whole.tolist())
    return Profile(
        file=cut(file),
        method=cut(method),
        inputs=inputs,
        versions=versions(),
        machine=machine,
        runner=timings.runner,
        reason=cut(timings.device),
        phases=phases,
        steady=steady or watched,
        watched=watched,
        steps=tuple(steps),
        groups=tuple(_group(d, step) for d, step in grouped),
        refusals=timings.refusals,
        graphs=timings.graphs,
        kernels=timings.kernels,
        cache=cache,
        memory=timings.memory,
        events=events,
        dropped=dropped + lost + taken.lost,
    )


def unplanned_profile(
    *,
    file: str,
    method: str,
    reason: str,
    calls: Sequence[Call],
    inputs: tuple[Tensor, ...],
    machine: Machine,
    cache: Kernels,
    graphs: tuple[GraphText, ...] = (),
    phases: tuple[Phase, ...] = (),
    steady: Times | None = None,
    runner: str = "interpreter",
) -> Profile:
    """The profile of calls whose steps are not told apart: each is one row."""
    times = Times.of([(c.end - c.start) / 1e9 for c in calls if not c.failed] or [0.0])
    begin = calls[0].start if calls else 0
    kept = [c for c in calls if not c.failed][:MAX_EVENTS]
    return Profile(
        file=cut(file),
        method=cut(method),
        inputs=inputs,
        versions=versions(),
        machine=machine,
        runner=runner,
        reason=reason,
        phases=phases,
        steady=steady or times,
        watched=times,
        steps=(whole_call(times, runner),),
        groups=(),
        refusals=(),
        graphs=graphs,
        kernels=(),
        cache=cache,
        events=tuple(
            Event(c.name, "calls", (c.start - begin) / 1e9, (c.end - c.start) / 1e9, k) for k, c in enumerate(kept)
        ),
        dropped=max(0, len(calls) - len(kept)),
    )


def _around(taken: Taken, calls: Sequence[Call]) -> tuple[np.ndarray, np.ndarray]:
    """For each run the seconds of its call before and after it, and those of the whole call.

    Where a call had several runs, each stands for itself.
    """
    runs = taken.runs
    around = np.zeros((len(runs), 2))
    whole = (runs[:, 1] - runs[:, 0]) / 1e9
    if not len(calls) or not len(runs):
        return around, whole if len(runs) else np.zeros(1)
    starts, ends = (np.array([getattr(c, name) for c in calls], np.float64) for name in ("start", "end"))
    of = np.searchsorted(starts, runs[:, 0], "right") - 1
    inside = (of >= 0) & (runs[:, 1] <= ends[np.maximum(of, 0)])
    alone = inside & (np.bincount(np.maximum(of, 0), inside, len(calls))[np.maximum(of, 0)] == 1)
    around[alone, 0] = (runs[alone, 0] - starts[of[alone]]) / 1e9
    around[alone, 1] = (ends[of[alone]] - runs[alone, 1]) / 1e9
    return around, whole + around.sum(axis=1)


def _group(described: Described, step: StepProfile) -> GroupProfile:
    inner = expanded(described.nodes)
    shown = [n for n in inner if not is_view(n)]
    last = described.nodes[-1]
    body = last.attributes.get(SUBGRAPH)
    results = {*last.outputs, *(body.outputs if isinstance(body, Graph) else ())}
    handed = [v for n in shown for v in n.outputs if v not in results and v.uses and is_tensor(v)]
    assert step.group is not None
    return GroupProfile(
        number=step.group,
        label=step.label,
        operators=step.operators,
        places=tuple(place_of(n) for n in shown),
        saved_bytes=sum(2 * bytes_of(v) for v in handed),
        kernel=step.kernel,
        nodes="\n".join(repr(n) for n in inner),
    )


def refusals_of(plan: Plan | None, tiers: Sequence[Tier]) -> list[Refusal]:
    """What was not fused, or has no step of its own, and why."""
    found = (
        []
        if plan is None
        else [Refusal(cut(r.node.kind), place_of(r.node), cut(r.reason)) for r in plan.fused.refusals]
    )
    found += [Refusal(cut(t.label), place_of(t.node), cut(t.reason)) for t in tiers if t.reason and t.name in _LOWER]
    # The same reason is told once for each operator and line.
    return list(dict.fromkeys(found))


def graphs_of(executor: Executor | None, plan: Plan | None, order: Sequence[Node]) -> list[GraphText]:
    """The graph of a function as it was given, fused, and as its nodes are run."""
    found = [] if executor is None else [graph_text("frozen", executor.function.graph)]
    if plan is not None:
        found.append(graph_text("fused", plan.graph))
    if order:
        # The fused graph with the copies that its views need.
        found.append(graph_text("plan", order[0].graph))
    return found


def _events(
    timings: Timings, calls: Sequence[Call], steps: Sequence[StepProfile], number: dict[int, int]
) -> tuple[tuple[Event, ...], int]:
    """Calls and the steps in them, from the first one on, and how many were left out."""
    starts = [*(c.start for c in calls[:1]), *timings.taken.runs[:1, 0].tolist()]
    begin = min(starts, default=0)
    found: list[Event] = []
    total = len(calls)
    places = np.array([c.start for c in calls], np.float64)
    for k, call in enumerate(calls[:MAX_EVENTS]):
        found.append(Event(call.name, "calls", (call.start - begin) / 1e9, (call.end - call.start) / 1e9, k))
    for span in timings.spans:
        total += 1
        at = number.get(span.number)
        if len(found) < MAX_EVENTS and at is not None:
            of = max(int(np.searchsorted(places, span.start, "right")) - 1, 0)
            seconds = max(span.end - span.start, 0.0) / 1e9
            # What the host does for a device is on a line of its own.
            track = timings.track if timings.track != "gpu" or steps[at].tier.startswith("device") else "steps"
            found.append(Event(steps[at].label, track, (span.start - begin) / 1e9, seconds, of, at))
    return tuple(found), max(0, total - len(found)) if total > MAX_EVENTS else 0
