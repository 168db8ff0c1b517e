"""``gpujit.profile()``: what optimised modules do in a block of a program, taken down while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from functools import cached_property
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from gpujit.modules import ScriptMethod, ScriptModule
from gpujit.profiler.assemble import (
    Call,
    difference,
    interpreted_profile,
    kernels_asked,
    planned_profile,
)
from gpujit.profiler.data import Machine, Profile
from gpujit.profiler.files import save_json
from gpujit.profiler.graphs import graph_text
from gpujit.profiler.machine import machine
from gpujit.profiler.places import cut, tensor_of
from gpujit.profiler.trace import save_trace
from gpujit.runtime.executor import Executor, Plan
from gpujit.static import StaticModule
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.steps import StaticPlan
from gpujit.support.config import current
from gpujit.support.errors import ArgumentError
from gpujit.support.watch import Watch, entering, running

# Calls that are kept; later ones are counted.
MAX_CALLS = 100_000


class Profiler:
    """A block in which calls of modules, in this thread, are profiled.

    Modules that ``optimize_for_inference`` made, StaticModules and their runtimes have the time of each step taken,
    others that of each call. After the block ``profiles`` has a Profile for each method and kind of inputs met.
    """

    def __init__(self, ceilings: bool = True) -> None:
        """``ceilings``: measure what the machine reaches, unless that is known; it takes a second, after the block."""
        self.calls: list[Call] = []
        self.dropped = 0
        self._ceilings = ceilings
        self._arenas: dict[PlannedGraph, list[TimedArena]] = {}
        self._idle: dict[PlannedGraph, list[TimedArena]] = {}
        self._tokens: tuple[Token[Watch | None], Token[Watch | None]] | None = None
        self._thread = 0

    def __enter__(self) -> Profiler:
        if self._tokens is not None or self.calls:
            raise ArgumentError("a profiler is for one block; make another one with gpujit.profile()")
        self._thread = threading.get_ident()
        self._before = kernels_asked()
        self._tokens = entering.set(self), running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tokens is not None
        entering.reset(self._tokens[0])
        running.reset(self._tokens[1])
        self._tokens = None
        self._asked = difference(kernels_asked(), self._before)

    @contextmanager
    def again(self) -> Iterator[None]:
        """A block that goes on with what this profiler has; used up in the end like one."""
        tokens = entering.set(self), running.set(self)
        try:
            yield
        finally:
            entering.reset(tokens[0])
            running.reset(tokens[1])

    def arenas(self, graph: PlannedGraph) -> list[TimedArena]:
        """The arenas in which a graph ran, those of its present plan first."""
        found = [a for a in self._arenas.get(graph, []) if a.recorder.runs]
        return sorted(found, key=lambda a: (not graph.is_current(a), -len(a.recorder.runs)))

    # What modules and planned graphs call

    def call(self, target: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See Watch."""
        token = entering.set(None)
        failed = True
        start = perf_counter_ns()
        try:
            result = run(*args, **kwargs)
            failed = False
            return result
        finally:
            end = perf_counter_ns()
            entering.reset(token)
            if len(self.calls) < MAX_CALLS:
                self.calls.append(Call(_name(target), target, start, end, failed))
            else:
                self.dropped += 1

    def arena(self, graph: PlannedGraph, plan: StaticPlan) -> TimedArena:
        """See Watch."""
        idle = self._idle.setdefault(graph, [])
        check = current().check_plan
        while idle:
            found = idle.pop()
            if found.plan is plan and found.check is check:
                return found
        made = TimedArena(plan, check=check)
        self._arenas.setdefault(graph, []).append(made)
        return made

    def give_back(self, graph: PlannedGraph, arena: TimedArena) -> None:
        """See Watch."""
        self._idle.setdefault(graph, []).append(arena)

    # Afterwards

    @property
    def profile(self) -> Profile:
        """The profile of what took longest. Raises ArgumentError when nothing was called."""
        if not self.profiles:
            raise ArgumentError("nothing was profiled: no module was called in the block, in its thread")
        return max(self.profiles, key=lambda p: p.watched.median * p.watched.runs)

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """A profile for each planned graph that ran, then one for each module whose calls ran on the interpreter.

        Raises ArgumentError inside the block.
        """
        if self._tokens is not None:
            raise ArgumentError("a profile is there after its block")
        here = machine(self._ceilings)
        found = []
        planned: list[tuple[float, float]] = []
        for runner in self._arenas:
            arenas = self.arenas(runner)
            if not arenas:
                continue
            arena = arenas[0]
            others = sum(len(a.recorder.runs) for a in arenas[1:])
            planned += [run for a in arenas for run in a.recorder.runs]
            owner = self._owner(runner)
            executor, plan = owner if owner is not None else (None, None)
            profile, _ = planned_profile(
                file=_file(self._target_of(arena)),
                executor=executor,
                plan=plan,
                runner=runner,
                arena=arena,
                calls=self.calls,
                inputs=() if plan is None else specialised_inputs(plan),
                machine=here,
                cache=self._asked,
                lost=others,
            )
            found.append(profile)
        found += self._interpreted(planned, here)
        # The times are in the profiles now.
        self._arenas.clear()
        self._idle.clear()
        return tuple(found)

    def _interpreted(self, planned: list[tuple[float, float]], here: Machine) -> list[Profile]:
        """Profiles of calls in which no planned graph ran."""
        by_name: dict[tuple[str, int], list[Call]] = {}
        planned.sort()
        k = 0
        for call in self.calls:
            while k < len(planned) and planned[k][0] < call.start:
                k += 1
            if (k >= len(planned) or planned[k][0] > call.end) and not call.failed:
                by_name.setdefault((call.name, id(_root(call.target))), []).append(call)
        return [
            interpreted_profile(
                file=_file(calls[0].target),
                method=name,
                reason=_why(calls[0].target),
                calls=calls,
                inputs=(),
                machine=here,
                cache=self._asked,
                graphs=_graphs_of(calls[0].target),
            )
            for (name, _), calls in by_name.items()
        ]

    def _owner(self, runner: PlannedGraph) -> tuple[Executor, Plan] | None:
        """The executor and plan that a planned graph belongs to."""
        for target in {id(_root(c.target)): c.target for c in self.calls}.values():
            for executor in _executors(target):
                for plan in executor.plans():
                    if plan.runner is runner:
                        return executor, plan
        return None

    def _target_of(self, arena: TimedArena) -> Any:
        start = arena.recorder.runs[0][0]
        return next((c.target for c in reversed(self.calls) if c.start <= start <= c.end), None)

    def as_json(self) -> dict[str, Any]:
        """All profiles, and how many calls there were, in types that JSON has."""
        return {
            "format": "gpujit-profiles",
            "calls": len(self.calls) + self.dropped,
            "failed": sum(c.failed for c in self.calls),
            "profiles": [p.as_json() for p in self.profiles],
        }

    def save_json(self, path: Any) -> None:
        """Write ``as_json`` to a path or file object. Raises SaveError."""
        save_json(self.as_json(), path)

    def save_trace(self, path: Any) -> None:
        """Write a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing. Raises SaveError."""
        save_trace(self.profiles, path)

    def __str__(self) -> str:
        if self._tokens is not None:
            return f"<profiler, {len(self.calls)} calls so far>"
        return "\n\n".join(map(str, self.profiles)) or "nothing was profiled"


def profile(ceilings: bool = True) -> Profiler:
    """A block in which what modules do is profiled: ``with gpujit.profile() as p: model(x)``, then ``print(p)``.

    Calls in the thread of the block count, not those of other threads. See Profiler.
    Args:
        ceilings: measure what the machine reaches, unless that is known; it takes a second, after the block.
    """
    return Profiler(ceilings)


def specialised_inputs(plan: Plan) -> tuple[Any, ...]:
    """The inputs that a plan is for."""
    return tuple(t for v in plan.graph.inputs if (t := tensor_of(v)) is not None)


def _name(target: Any) -> str:
    if isinstance(target, ScriptMethod):
        return cut(target.name)
    if isinstance(target, StaticModule):
        return cut(target._target.function.name)
    name = getattr(target, "original_name", "")
    return cut(f"{name}.forward" if name else type(target).__name__)


def _root(target: Any) -> Any:
    return getattr(target, "_program", target)


def _executors(target: Any) -> list[Executor]:
    if isinstance(target, StaticModule):
        return [target._executor]
    return list(target._program.executors())


def _file(target: Any) -> str:
    return str(getattr(target, "original_name", "")) or _name(target)


def _why(target: Any) -> str:
    reasons = [r for e in _executors(target) for r in e.reasons()]
    if reasons:
        return "; ".join(dict.fromkeys(reasons))
    if isinstance(target, (ScriptModule, ScriptMethod)) and target._program.optimised is None:
        return "gpujit.optimize_for_inference was not called"
    return "no plan was there yet"


def _graphs_of(target: Any) -> tuple[Any, ...]:
    graph = getattr(target, "inlined_graph", None) if isinstance(target, (ScriptModule, ScriptMethod)) else None
    return () if graph is None else (graph_text("frozen", graph),)
