"""``gpujit.profile()``: what optimised modules do in a block of a program, taken down while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import Token
from functools import cache, cached_property
from itertools import islice, pairwise
from statistics import median
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from gpujit.modules import ScriptMethod, ScriptModule
from gpujit.profiler.assemble import (
    Call,
    Timings,
    arena_timings,
    difference,
    kernels_asked,
    planned_profile,
    unplanned_profile,
)
from gpujit.profiler.data import Machine, Profile
from gpujit.profiler.device_machine import device_machine
from gpujit.profiler.device_steps import device_timings
from gpujit.profiler.files import save_json
from gpujit.profiler.graphs import graph_text
from gpujit.profiler.machine import machine
from gpujit.profiler.places import cut, tensor_of
from gpujit.profiler.trace import save_trace
from gpujit.runtime.executor import Executor, Plan
from gpujit.static import StaticModule
from gpujit.static_runtime.device_build import DevicePlan
from gpujit.static_runtime.device_clock import DeviceRecorder
from gpujit.static_runtime.device_module import DeviceGraph
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.run import TimedArena
from gpujit.static_runtime.steps import StaticPlan
from gpujit.support.config import current
from gpujit.support.errors import ArgumentError
from gpujit.support.watch import Watch, entering, running

# Why there are no steps of calls on a device: nothing ran there.
ON_DEVICE = "no plan on {} ran"
# Calls that a profile is made of; of later ones the number is told.
MAX_CALLS = 100_000
# Calls that are all seen, before some may be passed over; at most so many in a row are. The share of the time that
# seeing the others may cost.
ALL_SEEN, MOST_SKIPPED, MOST = 20, 2000, 0.001
now = perf_counter_ns
set_entering, reset_entering, set_running, reset_running = entering.set, entering.reset, running.set, running.reset


class Profiler:
    """A block in which calls of modules, in this thread, are profiled.

    Modules that ``optimize_for_inference`` made, StaticModules and their runtimes have the time of each step taken,
    others that of each call. After the block ``profiles`` has a Profile for each method and kind of inputs met.
    """

    def __init__(self, ceilings: bool = True, samples: bool = True) -> None:
        """``ceilings``: measure what the machine reaches, unless that is known; it takes a second, after the block.
        ``samples``: pass over some of many short calls, so that the block takes hardly longer.
        """
        # Of each call seen its target, start, end and whether it raised, one behind the other: numbers rather than
        # records, which the collector of garbage would look at again and again.
        self._marks: list[Any] = []
        self._ceilings, self._samples = ceilings, samples
        self._arenas: dict[PlannedGraph, list[TimedArena]] = {}
        self._idle: dict[PlannedGraph, list[TimedArena]] = {}
        self._devices: dict[DeviceGraph, DeviceRecorder] = {}
        self._token: Token[Watch | None] | None = None
        self._is_used = self._is_going_on = False
        self._thread = 0
        # Calls to pass over now, and all of those so far; nanoseconds that they have to take together.
        self._skip = self._skipped = 0
        self._cost = _cost_of_seeing() / MOST if samples else 0.0

    def __enter__(self) -> Profiler:
        if self._is_used:
            raise ArgumentError("a profiler is for one block; make another one with gpujit.profile()")
        self._is_used = True
        self._before = kernels_asked()
        self._token, self._thread = entering.set(self), get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        entering.reset(self._token)
        self._token = None
        self._asked = difference(kernels_asked(), self._before)

    @contextmanager
    def again(self) -> Iterator[None]:
        """A block in which this profiler goes on."""
        token = entering.set(self)
        self._is_going_on, self._thread = True, get_ident()
        try:
            yield
        finally:
            self._is_going_on = False
            entering.reset(token)

    # What modules and planned graphs call

    def wants(self) -> bool:
        """See Watch."""
        if self._skip:
            self._skip -= 1
            return False
        return True

    def call(self, target: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See Watch."""
        start = now()
        outer = set_entering(None)
        if (self._token is None and not self._is_going_on) or get_ident() != self._thread:
            # A task that was begun in the block, and is now in another thread or has outlived it.
            try:
                return run(*args, **kwargs)
            finally:
                reset_entering(outer)
        inner = set_running(self)
        failed = True
        try:
            result = run(*args, **kwargs)
            failed = False
            return result
        finally:
            reset_running(inner)
            reset_entering(outer)
            end = now()
            # All else is looked up afterwards: here each look-up counts.
            self._marks += (target, start, end, failed)
            if self._samples and len(self._marks) >= 4 * ALL_SEEN:
                # Calls to pass over, so that seeing this one cost no more than MOST of what they take.
                self._skip = min(int(self._cost / (end - start + 1)), MOST_SKIPPED)
                self._skipped += self._skip

    def arena(self, graph: PlannedGraph, plan: StaticPlan) -> TimedArena:
        """See Watch."""
        check = current().check_plan
        idle = self._idle.get(graph)
        while idle:
            found = idle.pop()
            if found.plan is plan and found.check is check:
                return found
        self._idle.setdefault(graph, [])
        made = TimedArena(plan, check=check)
        self._arenas.setdefault(graph, []).append(made)
        return made

    def give_back(self, graph: PlannedGraph, arena: TimedArena) -> None:
        """See Watch."""
        self._idle[graph].append(arena)

    def recorder(self, graph: DeviceGraph, plan: DevicePlan) -> DeviceRecorder:
        """See Watch."""
        found = self._devices.get(graph)
        if found is None:
            found = self._devices[graph] = DeviceRecorder(graph.device, plan)
        return found

    # Afterwards

    @property
    def calls(self) -> list[Call]:
        """The calls seen, the first ones of very many."""
        return [Call(_name(t), t, start, end, failed) for t, start, end, failed in islice(self._each(), MAX_CALLS)]

    @property
    def count(self) -> int:
        """How many calls there were, those passed over included."""
        return len(self._marks) // 4 + self._skipped - self._skip

    def arenas(self, graph: PlannedGraph) -> list[TimedArena]:
        """The arenas in which a graph ran, those of its present plan first."""
        found = [a for a in self._arenas.get(graph, []) if a.recorder.runs]
        return sorted(found, key=lambda a: (not graph.is_current(a), -len(a.recorder.runs)))

    @property
    def recorders(self) -> dict[DeviceGraph, DeviceRecorder]:
        """The graphs that ran on devices, with what was taken down of each."""
        return {graph: found for graph, found in self._devices.items() if found.marks}

    def _each(self) -> Iterator[tuple[Any, int, int, bool]]:
        m = self._marks
        return zip(m[0::4], m[1::4], m[2::4], m[3::4], strict=True)

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
        if self._token is not None:
            raise ArgumentError("a profile is there after its block")
        found = []
        planned: list[tuple[float, float]] = []
        for runner in self._arenas:
            arenas = self.arenas(runner)
            if arenas:
                others = sum(len(a.recorder.runs) for a in arenas[1:])
                planned += [run for a in arenas for run in a.recorder.runs]
                executor, plan = self._owner(runner)
                # With as many threads as its plans have.
                with nullcontext() if executor is None else executor.settings():
                    timings = arena_timings(executor, plan, runner, arenas[0])
                    found.append(self._planned(executor, plan, timings, others, machine(self._ceilings)))
        for graph, recorder in self.recorders.items():
            executor, plan = self._owner(graph)
            planned += zip(recorder.marks[0::2], recorder.marks[1::2], strict=True)
            here = device_machine(graph.device, self._ceilings)
            found.append(self._planned(executor, plan, device_timings(executor, plan, graph, recorder), 0, here))
        found += self._interpreted(self.calls, planned)
        # The times are in the profiles now.
        self._arenas.clear()
        self._idle.clear()
        self._devices.clear()
        return tuple(found)

    def _planned(
        self, executor: Executor | None, plan: Plan | None, timings: Timings, others: int, here: Machine
    ) -> Profile:
        """The profile of a graph that ran, of whose runs ``others`` are not in the timings."""
        first = float(timings.taken.runs[0, 0]) if len(timings.taken.runs) else 0.0
        target = next((t for t, start, end, _ in self._each() if start <= first <= end), None)
        return planned_profile(
            timings,
            file=_file(target),
            method="" if executor is None else executor.function.name,
            calls=self.calls,
            inputs=() if plan is None else specialised_inputs(plan),
            machine=here,
            cache=self._asked,
            lost=others,
        )

    def _interpreted(self, calls_made: list[Call], planned: list[tuple[float, float]]) -> list[Profile]:
        """Profiles of calls in which no planned graph ran."""
        by_name: dict[tuple[str, int], list[Call]] = {}
        planned.sort()
        k = 0
        for call in calls_made:
            while k < len(planned) and planned[k][0] < call.start:
                k += 1
            if (k >= len(planned) or planned[k][0] > call.end) and not call.failed:
                by_name.setdefault((call.name, id(_root(call.target))), []).append(call)
        return [
            unplanned_profile(
                file=_file(calls[0].target),
                method=name,
                reason=_why(calls[0].target),
                calls=calls,
                inputs=(),
                machine=machine(self._ceilings),
                cache=self._asked,
                graphs=_graphs_of(calls[0].target),
                runner="interpreter" if device_of(calls[0].target) is None else "device",
            )
            for (name, _), calls in by_name.items()
        ]

    def _owner(self, runner: Any) -> tuple[Executor | None, Plan | None]:
        """The executor and plan that a graph belongs to, where they are known."""
        for target in {id(_root(t)): t for t, *_ in self._each()}.values():
            for executor in _executors(target):
                for plan in executor.plans():
                    if plan.runner is runner:
                        return executor, plan
        return None, None

    def as_json(self) -> dict[str, Any]:
        """All profiles, and how many calls there were, in types that JSON has."""
        return {
            "format": "gpujit-profiles",
            "calls": self.count,
            "seen": len(self._marks) // 4,
            "failed": sum(failed for *_, failed in self._each()),
            "profiles": [p.as_json() for p in self.profiles],
        }

    def save_json(self, path: Any) -> None:
        """Write ``as_json`` to a path or file object. Raises SaveError."""
        save_json(self.as_json(), path)

    def save_trace(self, path: Any) -> None:
        """Write a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing. Raises SaveError."""
        save_trace(self.profiles, path)

    def __str__(self) -> str:
        if self._token is not None:
            return f"<profiler, {self.count} calls so far>"
        return "\n\n".join(map(str, self.profiles)) or "nothing was profiled"


@cache
def _cost_of_seeing() -> float:
    """Nanoseconds that seeing a call costs, about: looks at the clock, what Python does around them, and that another
    arena than before is used, whose memory is not in the nearest cache, and not when it is left again.
    """
    times = [now() for _ in range(101)]
    return 7000.0 + 15.0 * median(b - a for a, b in pairwise(times))


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
    if isinstance(target, ScriptModule):
        return str(target.original_name)
    return _name(target).rpartition(".")[0] or _name(target)


def _why(target: Any) -> str:
    reasons = [r for e in _executors(target) for r in e.reasons()]
    if reasons:
        return "; ".join(dict.fromkeys(reasons))
    device = device_of(target)
    if device is not None:
        return ON_DEVICE.format(device.name)
    if isinstance(target, (ScriptModule, ScriptMethod)) and target._program.optimised is None:
        return "gpujit.optimize_for_inference was not called"
    return "no plan was there yet"


def device_of(target: Any) -> Any:
    """The device that a module was moved to; None for the CPU."""
    return getattr(getattr(target, "_program", None), "device", None)


def _graphs_of(target: Any) -> tuple[Any, ...]:
    graph = getattr(target, "inlined_graph", None) if isinstance(target, (ScriptModule, ScriptMethod)) else None
    return () if graph is None else (graph_text("frozen", graph),)
