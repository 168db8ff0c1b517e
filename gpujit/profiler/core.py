"""One method of a module profiled on given inputs: phases apart, steps, fused against unfused, memory, ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gpujit.inference import optimize_for_inference
from gpujit.modules import ScriptMethod, ScriptModule
from gpujit.profiler.assemble import (
    arena_timings,
    difference,
    inputs_of,
    kernels_asked,
    planned_profile,
    unplanned_profile,
)
from gpujit.profiler.collect import ON_DEVICE, Profiler, device_of
from gpujit.profiler.data import Kernels, Phase, Profile, Ratio, Times
from gpujit.profiler.device_groups import device_pairs
from gpujit.profiler.device_machine import device_machine
from gpujit.profiler.device_steps import device_timings
from gpujit.profiler.graphs import graph_text
from gpujit.profiler.groups import measured, pairs_of
from gpujit.profiler.interpreted import with_steps
from gpujit.profiler.machine import machine
from gpujit.runtime.device_executor import DeviceExecutor
from gpujit.runtime.device_outputs import arguments
from gpujit.runtime.executor import Executor
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.values import bind_arguments
from gpujit.runtime.vm import Interpreter
from gpujit.runtime.warm import unchanged
from gpujit.static_runtime.device_module import DeviceGraph
from gpujit.static_runtime.module import PlannedGraph
from gpujit.support.errors import ArgumentError, GpujitError
from gpujit.support.progress import Stage

MAX_ROUNDS = 10_000
WARM_CALLS = 5
# Runs of a plan without fusion before any counts: on a device one captures, the next one replays.
UNFUSED_RUNS = 3
# Calls of the interpreter, which may be slow.
MAX_INTERPRETED = 10


def profile_module(
    module: ScriptModule,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    method: str = "forward",
    rounds: int = 30,
    threads: int | None = None,
    unfused: bool = True,
    groups: bool = True,
    interpreted: bool = False,
    ceilings: bool = True,
    file: str = "",
    phases: Sequence[Phase] = (),
) -> Profile:
    """Where the time and memory of calls of a module go.

    The module is optimised for inference first, unless it is already; it stays as it is, and so do its attributes, the
    inputs and random numbers. Call it while no other thread uses the module.
    Args:
        inputs, kwargs: what to call it with.
        method: the method to call.
        rounds: of calls that are timed; fused and unfused take turns in each.
        threads: that share the work of a call, as for ``optimize_for_inference``; for a module that is optimised
            already, those it has.
        unfused: also time the whole model without fusion.
        groups: also time each fused step against its operators one by one.
        interpreted: also time the interpreter, of a module on the CPU.
        ceilings: measure what the machine reaches, unless that is known.
        file: what the module comes from, to show.
        phases: that came before, to show.
    Raises ArgumentError for arguments that do not fit, and what the module raises.
    """
    if type(rounds) is not int or not 1 <= rounds <= MAX_ROUNDS:
        raise ArgumentError(f"rounds is a number from 1 to {MAX_ROUNDS}; found {rounds!r}")
    session = _Session(module, tuple(inputs), dict(kwargs or {}), method, threads, list(phases))
    session.file = file or module.original_name
    return session.run(rounds, unfused=unfused, groups=groups, interpreted=interpreted, ceilings=ceilings)


class _Session:
    """One profile being taken."""

    file = ""

    def __init__(
        self,
        module: ScriptModule,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        method: str,
        threads: int | None,
        phases: list[Phase],
    ) -> None:
        self.args, self.kwargs, self.phases = args, kwargs, phases
        methods = module.methods
        if method not in methods:
            raise ArgumentError(f"the module has no method {method!r}; it has {', '.join(sorted(methods))}")
        self.plain = module
        self.method = method
        if module._program.optimised is None:
            others = None if method == "forward" else [method]
            with self.phase("optimise"):
                self.module = optimize_for_inference(module, others, threads=threads)
        else:
            self.module = module
        self.target: Any = self.module if method == "forward" else self.module.methods[method]
        found: ScriptMethod = self.module.methods[method]
        self.function = found._function
        self.executor: Executor = self.module._program.executor(self.function)
        self.device = device_of(self.module)
        if self.device is not None:
            args, kwargs = arguments(self.device, args), arguments(self.device, kwargs)
        self.taken = [*args, *kwargs.values()]
        # What a plan's runner takes, and what plans are made for.
        self.values = self.example = [self.module._object, *bind_arguments(self.function.schema, args, kwargs, skip=1)]
        if isinstance(self.executor, DeviceExecutor):
            self.example = self.executor.host_like(self.values)

    @contextmanager
    def phase(self, name: str, note: Callable[[], str] = str) -> Iterator[None]:
        """A block that is a phase; ``note`` is asked at its end."""
        start = perf_counter()
        yield
        self.phases.append(Phase(name, perf_counter() - start, note()))

    def call(self) -> Any:
        """A call as a user makes it."""
        return self.target(*self.args, **self.kwargs)

    def seconds(self, call: Callable[[], Any]) -> float:
        """What a call takes, on a device until its results are there."""
        start = perf_counter()
        call()
        if self.device is not None:
            with self.device.here():
                self.device.synchronise(self.device.stream())
        return perf_counter() - start

    def run(self, rounds: int, *, unfused: bool, groups: bool, interpreted: bool, ceilings: bool) -> Profile:
        """Take it."""
        with unchanged([self.module._object, *self.taken], {}):
            return self._run(rounds, unfused=unfused, groups=groups, interpreted=interpreted, ceilings=ceilings)

    def _run(self, rounds: int, *, unfused: bool, groups: bool, interpreted: bool, ceilings: bool) -> Profile:
        before = kernels_asked()
        with self.phase("plan", lambda: _kernels_note(difference(kernels_asked(), before))):
            self.executor.plan_for(self.example)
        asked = difference(kernels_asked(), before)
        with self.phase("first call"):
            self.call()
        with self.phase("warm-up", lambda: f"{WARM_CALLS} calls"), Stage("warm up", WARM_CALLS) as stage:
            for _ in range(WARM_CALLS):
                self.call()
                stage.advance()
        profiler = Profiler(ceilings=False, samples=False)
        steady = self.steady(rounds, profiler)
        with self.executor.settings():
            # With as many threads as the plan has.
            here = machine(ceilings) if self.device is None else device_machine(self.device, ceilings)
        # Warming up may have changed what the plan assumed.
        plan = self.executor.plan_for(self.example)
        runner = None if plan is None else plan.runner
        arenas = profiler.arenas(runner) if isinstance(runner, PlannedGraph) else []
        common: dict[str, Any] = {
            "file": self.file,
            "calls": profiler.calls,
            "inputs": inputs_of(self.executor, self.values),
            "machine": here,
            "cache": asked,
            "phases": tuple(self.phases),
            "steady": steady,
        }
        if self.device is not None:
            return self.on_device(profiler, rounds, unfused=unfused, groups=groups, **common)
        if plan is None or not isinstance(runner, PlannedGraph) or not arenas:
            reason = "; ".join(self.executor.reasons()) or "its memory is not planned"
            graphs = (graph_text("frozen", self.function.graph),)
            profile = unplanned_profile(method=self.function.name, reason=reason, graphs=graphs, **common)
            lowerer = self.module._program.lowerer
            code = plan.code if plan is not None and plan.code is not None else lowerer.code(self.function)
            profile = with_steps(profile, Interpreter(lowerer), code, self.values, rounds, here)
            return self.with_interpreter(profile, rounds, interpreted)
        with self.executor.settings():
            timings = arena_timings(self.executor, plan, runner, arenas[0])
            profile = planned_profile(timings, method=self.function.name, **common)
            if unfused:
                profile = self.against_unfused(profile, runner, rounds)
            if groups and profile.groups:
                lowerer = Lowerer(np, self.module._program.lowerer.rules)
                pairs = pairs_of(timings.described, plan, lowerer, runner.options, self.values, arenas[0].plan)
                profile = replace(profile, groups=measured(pairs, profile.groups, rounds))
        return self.with_interpreter(profile, rounds, interpreted)

    def on_device(self, profiler: Profiler, rounds: int, *, unfused: bool, groups: bool, **common: Any) -> Profile:
        """The profile of calls on a device: of its steps when a plan ran there, of the calls otherwise."""
        name, recorders = self.function.name, profiler.recorders
        if not recorders:
            reason = "; ".join(self.executor.reasons()) or ON_DEVICE.format(self.device.name)
            graphs = (graph_text("frozen", self.function.graph),)
            return unplanned_profile(method=name, reason=reason, graphs=graphs, runner="device", **common)
        graph, recorder = max(recorders.items(), key=lambda item: len(item[1].marks))
        plan = next((p for p in self.executor.plans() if p.runner is graph), None)
        timings = device_timings(self.executor, plan, graph, recorder)
        profile = planned_profile(timings, method=name, **common)
        if plan is None:
            return profile
        with self.executor.settings():
            if unfused:
                profile = self.against_unfused(profile, graph, rounds)
            if groups and profile.groups:
                lowerer = Lowerer(np, self.module._program.lowerer.rules)
                pairs = device_pairs(timings.described, plan, graph, lowerer, self.values)
                profile = replace(profile, groups=measured(pairs, profile.groups, rounds))
        return profile

    def steady(self, rounds: int, profiler: Profiler) -> Times:
        """Times of calls that nobody watches; watched ones take turns with them."""
        found = []
        with Stage("time calls", rounds) as stage:
            for _ in range(rounds):
                found.append(self.seconds(self.call))
                with profiler.again():
                    self.call()
                stage.advance()
        return Times.of(found)

    def unfused(self, runner: PlannedGraph | DeviceGraph) -> PlannedGraph | DeviceGraph:
        """The graph that a runner is for, without fusion."""
        graph = self.executor.specialised(self.example).graph
        lowerer = Lowerer(np, self.module._program.lowerer.rules)
        options = replace(runner.options, endings=False)
        if isinstance(runner, DeviceGraph):
            return DeviceGraph(runner.device, graph, {}, lowerer, options)
        return PlannedGraph(graph, {}, lowerer, options)

    def against_unfused(self, profile: Profile, runner: PlannedGraph | DeviceGraph, rounds: int) -> Profile:
        """The profile with times of the whole graph, fused and without fusion, in turn."""
        try:
            other = self.unfused(runner)
            for _ in range(UNFUSED_RUNS):
                self.once(other)
        except GpujitError:
            # There is no plan without fusion, so nothing to compare with.
            return profile
        fused: list[float] = []
        unfused: list[float] = []
        with Stage("time without fusion", rounds) as stage:
            for k in range(rounds):
                sides = [(runner, fused), (other, unfused)]
                for side, times in sides if k % 2 == 0 else reversed(sides):
                    # The first run finds what the other side left in the caches.
                    self.once(side)
                    times.append(self.seconds(partial(self.once, side)))
                stage.advance()
        return replace(profile, fused=Times.of(fused), unfused=Times.of(unfused), speedup=Ratio.of(unfused, fused))

    def once(self, runner: PlannedGraph | DeviceGraph) -> None:
        """A run of a plan without what surrounds it in a call."""
        with nullcontext() if self.device is None else self.device.here():
            runner.run(self.values)

    def with_interpreter(self, profile: Profile, rounds: int, interpreted: bool) -> Profile:
        """The profile with times of the interpreter, when they are wanted."""
        if not interpreted:
            return profile
        times = []
        count = min(rounds, MAX_INTERPRETED)
        with Stage("time the interpreter", count) as stage:
            for _ in range(count):
                times.append(self.seconds(lambda: self.executor.interpret(list(self.values))))
                stage.advance()
        return replace(profile, interpreted=Times.of(times))


def _kernels_note(kernels: Kernels) -> str:
    parts = [
        f"{count} kernels {what}"
        for count, what in ((kernels.compiled, "compiled"), (kernels.loaded, "from the cache"))
        if count
    ]
    return ", ".join(parts) or "no new kernels"
