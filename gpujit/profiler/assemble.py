"""A profile put together: what a planned graph is, what was taken down of its runs, and what is known besides."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpujit
from gpujit.fuser.tensors import bytes_of, is_tensor
from gpujit.ir.arrays import describe as describe_value
from gpujit.ir.graph import Graph
from gpujit.ir.printer import SUBGRAPH
from gpujit.kernels import supply
from gpujit.profiler.costs import expanded
from gpujit.profiler.data import (
    Event,
    GraphText,
    GroupProfile,
    Kernels,
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
from gpujit.static_runtime.clock import Taken
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.report import memory_report
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.tiers import Tier

# Calls and steps kept for the timeline.
MAX_EVENTS = 50_000
# Tiers that a refusal is told of.
_LOWER = ("out", "numpy", "interpreter", "control")


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
    c = supply.counters
    return Kernels(c.shared, c.loaded, c.compiled, c.refused)


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
        if isinstance(given, np.ndarray):
            found.append(Tensor(name, str(given.dtype), tuple(given.shape)))
        elif not hasattr(given, "slots"):
            text = repr(given) if isinstance(given, (bool, int, float, str, type(None))) else describe_value(given)
            found.append(Tensor(name, cut(text), None))
    return tuple(found)


def planned_profile(
    *,
    file: str,
    executor: Executor | None,
    plan: Plan | None,
    runner: PlannedGraph,
    arena: TimedArena,
    calls: Sequence[Call],
    inputs: tuple[Tensor, ...],
    machine: Machine,
    cache: Kernels,
    phases: tuple[Phase, ...] = (),
    steady: Times | None = None,
    lost: int = 0,
) -> tuple[Profile, list[Described]]:
    """The profile of a planned graph whose runs an arena has taken down, and its steps for who measures more of them.

    Args:
        calls: in which the runs happened.
        steady: calls that nobody watched; those watched stand for them when there are none.
        lost: runs besides the arena's.
    """
    taken = arena.recorder.taken()
    reasons = {r.node: r.reason for r in plan.fused.refusals} if plan is not None else {}
    sources = Sources()
    described = describe(runner, arena.plan, reasons, sources)
    around, whole = _around(taken, calls)
    steps, number = timed(described, taken, around, machine)
    tiers = runner.tiers(reasons, arena.plan)
    grouped = [(d, steps[number[d.number]]) for d in described if d.number in number and d.step.group is not None]
    events, dropped = _events(arena, calls, steps, number)
    watched = Times.of(whole.tolist())
    profile = Profile(
        file=cut(file),
        method=cut("" if executor is None else executor.function.name),
        inputs=inputs,
        versions=versions(),
        machine=machine,
        runner="static",
        reason="",
        phases=phases,
        steady=steady or watched,
        watched=watched,
        steps=tuple(steps),
        groups=tuple(_group(d, step) for d, step in grouped),
        refusals=tuple(_refusals(plan, tiers)),
        graphs=tuple(_graphs(executor, plan, arena)),
        kernels=sources.all(),
        cache=cache,
        memory=memory_report(arena.plan, 1),
        events=events,
        dropped=dropped + lost + taken.lost,
    )
    return profile, described


def interpreted_profile(
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
) -> Profile:
    """The profile of calls that were left to the interpreter: each is one step."""
    times = Times.of([(c.end - c.start) / 1e9 for c in calls if not c.failed] or [0.0])
    begin = calls[0].start if calls else 0
    kept = [c for c in calls if not c.failed][:MAX_EVENTS]
    return Profile(
        file=cut(file),
        method=cut(method),
        inputs=inputs,
        versions=versions(),
        machine=machine,
        runner="interpreter",
        reason=reason,
        phases=phases,
        steady=steady or times,
        watched=times,
        steps=(whole_call(times),),
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


def _refusals(plan: Plan | None, tiers: Sequence[Tier]) -> list[Refusal]:
    found = (
        []
        if plan is None
        else [Refusal(cut(r.node.kind), place_of(r.node), cut(r.reason)) for r in plan.fused.refusals]
    )
    found += [Refusal(cut(t.label), place_of(t.node), cut(t.reason)) for t in tiers if t.reason and t.name in _LOWER]
    # The same reason is told once for each operator and line.
    return list(dict.fromkeys(found))


def _graphs(executor: Executor | None, plan: Plan | None, arena: TimedArena) -> list[GraphText]:
    found = [] if executor is None else [graph_text("frozen", executor.function.graph)]
    if plan is not None:
        found.append(graph_text("fused", plan.graph))
    if arena.plan.order:
        # The fused graph with the copies that its views need.
        found.append(graph_text("plan", arena.plan.order[0].graph))
    return found


def _events(
    arena: TimedArena, calls: Sequence[Call], steps: Sequence[StepProfile], number: dict[int, int]
) -> tuple[tuple[Event, ...], int]:
    """Calls and the steps in them, from the first one on, and how many were left out."""
    runs = arena.recorder.runs
    begin = min([c.start for c in calls[:1]] + [r[0] for r in runs[:1]], default=0)
    found: list[Event] = []
    total = len(calls)
    starts = np.array([c.start for c in calls], np.float64)
    for k, call in enumerate(calls[:MAX_EVENTS]):
        found.append(Event(call.name, "calls", (call.start - begin) / 1e9, (call.end - call.start) / 1e9, k))
    for span in arena.recorder.spans():
        total += 1
        if len(found) >= MAX_EVENTS:
            continue
        at = number.get(span.number)
        if at is not None:
            of = max(int(np.searchsorted(starts, span.start, "right")) - 1, 0)
            seconds = max(span.end - span.start, 0.0) / 1e9
            found.append(Event(steps[at].label, "steps", (span.start - begin) / 1e9, seconds, of, at))
    return tuple(found), max(0, total - len(found)) if total > MAX_EVENTS else 0
