"""The executor: a function specialised for the inputs it meets, its groups fused, its plans kept.

A plan is made for the shapes and dtypes of the inputs, the values of those that are no tensors, and what the graph read
of the module's attributes (its guards). Inputs that a plan cannot be made for run on the interpreter: the answer is the
same, and ``explain`` says why.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Any, ClassVar, Protocol

import numpy as np

from gpujit.fuser.fuse import Fused, fuse
from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.ir.values import CPU
from gpujit.kernels.supply import NotCompiled
from gpujit.passes import pipeline
from gpujit.passes.autocast import settle_casts, with_casts
from gpujit.passes.inline import inlined
from gpujit.passes.specialise.guards import (
    ContainerSpec,
    Guard,
    LargeSpec,
    NumbersSpec,
    Spec,
    TensorSpec,
    ValueSpec,
)
from gpujit.passes.specialise.main import Specialised, key_of, specialise
from gpujit.runtime import bytecode as bc
from gpujit.runtime.explain import explain
from gpujit.runtime.fused import FusedStep
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets, put
from gpujit.runtime.ready import make_ready
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.vm import Interpreter
from gpujit.runtime.warm import are_plans_made_at_once
from gpujit.support import background
from gpujit.support.config import Overrides, Settings, config, current
from gpujit.support.errors import ArgumentError, GpujitError
from gpujit.support.progress import Stage

log = logging.getLogger("gpujit.fuser")

# Plans kept for one function, the least recently used one is dropped.
MAX_PLANS = 64
# Plans of one kind of inputs, which differ in what they assume about attributes.
MAX_VARIANTS = 8
# Plans made anew because a number, text or container in an attribute changed, after which plans read it when they run.
MAX_CHANGES = 2
# Attempts at a plan in the background, which the module changing meanwhile can make fail.
MAX_TRIES = 3


class Runner(Protocol):
    """What runs a specialised graph in another way than the interpreter: a PlannedGraph."""

    def prepare(self, values: list[Any]) -> None:
        """Have ready whatever a run on such values needs."""

    def run(self, values: list[Any], out: Targets | None = None) -> Any:
        """The graph's result for run-time values, written into ``out`` where there are arrays."""

    @property
    def quick(self) -> Callable[[Sequence[Any]], Any] | None:
        """What gives the result for a call's arguments, all but the object, or NotImplemented where that takes another
        look; None when there is nothing quicker than ``run``."""

    def explain(self, reasons: Mapping[Node, str]) -> str:
        """What runs each node and why nothing better, a line each; ``reasons`` are why nodes were not fused."""

    def nbytes(self) -> int:
        """Bytes kept between runs."""

    @property
    def is_quickened(self) -> bool:
        """Whether quicker code, compiled in the background, has taken the place of the plan's first."""


Planner = Callable[[Graph, Mapping[Node, Lowered], Lowerer], Runner]


@dataclass(frozen=True, slots=True)
class Plan:
    """A function for one kind of inputs: the graph it runs, what was fused, and what runs it.

    That is ``runner``, with planned memory, or ``code`` on the interpreter; the other one is None. ``guards`` are those
    of what it assumes that inputs of one key do not decide.
    """

    specialised: Specialised
    graph: Graph
    fused: Fused
    steps: dict[Node, FusedStep]
    guards: tuple[Guard, ...]
    code: bc.Code | None
    runner: Runner | None = None


@dataclass
class Counters:
    """What an executor did: calls that found a plan, plans made, plans dropped, calls left to the interpreter."""

    hits: int = 0
    made: int = 0
    dropped: int = 0
    interpreted: int = 0


@dataclass
class _Entry:
    """The plans of one key, which differ in their guards; or the fault for which there can be none."""

    plans: list[Plan] = field(default_factory=list)
    fault: GpujitError | None = None
    # What makes a plan in the background.
    job: background.Job | None = None
    tries: int = 0


class Executor:
    """Runs one function. Threads may call it at the same time.

    Args:
        function: the function; its first input is the object it is a method of, when it is one.
        rules: replacements for operators on quantised inputs, as the module's own Lowerer has them.
        interpret: runs the function on values when there is no plan.
        strict: raise instead of interpreting, and instead of running a group unfused.
        planner: makes what runs a specialised graph with planned memory; without it the interpreter does.
        compile: "ahead" makes plans, and compiles, before a call returns; "background" leaves calls to the interpreter
            until a plan is there; "never" makes plans of kernels that are at hand, and NumPy.
        threads: of a plan's team; None for those of the switch ``threads``.
        is_method: whether the first input is an object, which all calls share.
    """

    # Whether plans run on a processor's cores.
    on_cores: ClassVar[bool] = True
    # The passes that specialised graphs go through.
    pipeline: ClassVar[str] = "specialised"

    def __init__(
        self,
        function: Function,
        rules: dict[str, Callable[..., Any]],
        interpret: Callable[[list[Any]], Any],
        *,
        strict: bool = False,
        planner: Planner | None = None,
        compile: str = "ahead",
        threads: int | None = None,
        is_method: bool = True,
    ) -> None:
        self.function, self.interpret, self.strict, self.compile = function, interpret, strict, compile
        self.counters = Counters()
        self._rules, self._planner, self._first = rules, planner, int(is_method)
        self._graph: Graph | None = None
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._latest: _Entry | None = None
        # The plan that ran last.
        self._last: Plan | None = None
        # Why some inputs have no key.
        self._unknown = ""
        # How often plans could not be used because of an attribute's number, by its path; and those that changed too
        # often to be assumed.
        self._changes: Counter[str] = Counter()
        self._volatile: set[str] = set()
        self._lock = threading.RLock()
        self._making = Overrides(_without_compiler) if compile == "never" else None
        self._running = self._making
        if threads is not None:
            # All processors may compile: threads are those that run.
            self._running = Overrides(partial(_with_threads, threads, compile == "never"))

    def __call__(self, values: list[Any], out: Targets | None = None) -> Any:
        """The function's result for run-time values, the object first. It is written into the arrays ``out``."""
        plan = self.plan_for(values)
        if plan is None:
            self.counters.interpreted += 1
            result = self.interpret(values)
            return result if out is None else put(result, out)
        if self._running is None:
            return self._run(plan, values, out)
        token = self._running.begin()
        try:
            return self._run(plan, values, out)
        finally:
            self._running.end(token)

    def fitted(self, values: list[Any]) -> tuple[list[Any], Callable[[Any], Any] | None]:
        """The values a plan is found for in place of these, and what makes its result theirs: None when they are those.

        For who runs plans; calls do so themselves.
        """
        return values, None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """A block in which the switches are as for a run."""
        if self._running is None:
            yield
            return
        token = self._running.begin()
        try:
            yield
        finally:
            self._running.end(token)

    def quick(self) -> Callable[[Sequence[Any]], Any] | None:
        """What runs calls like the last one: a function of their arguments, which gives NotImplemented for others.

        None where nothing is quicker than a call. Counters and switches are as for a call.
        """
        plan = self._last
        if plan is None or plan.guards or plan.runner is None or not self._first:
            return None
        attempt, settings, running, counters = plan.runner.quick, current(), self._running, self.counters
        if attempt is None or settings.check_plan:
            return None

        def call(arguments: Sequence[Any]) -> Any:
            if current() is not settings:
                return NotImplemented
            if running is None:
                result = attempt(arguments)
            else:
                token = running.begin()
                try:
                    result = attempt(arguments)
                finally:
                    running.end(token)
            if result is not NotImplemented:
                counters.hits += 1
            return result

        return call

    def _run(self, plan: Plan, values: list[Any], out: Targets | None) -> Any:
        self._last = plan
        if plan.runner is not None:
            return plan.runner.run(values) if out is None else plan.runner.run(values, out)
        assert plan.code is not None
        with np.errstate(all="ignore"):
            result = _RUN(plan.code, values)
        return result if out is None else put(result, out)

    def plan_for(self, values: list[Any]) -> Plan | None:
        """The plan that runs these values, made when there is none yet; None when they are left to the interpreter."""
        try:
            key = key_of_values(values[self._first :])
        except TypeError as fault:
            # A value that can only be told from others by where it lies; nothing can be assumed about it.
            self._no_key(fault)
            return None
        entry = self._entries.get(key)
        if entry is not None:
            if entry is self._latest:
                for plan in entry.plans:
                    if not plan.guards or _failing(plan, values) is None:
                        self.counters.hits += 1
                        return plan
            found = self._found(key, entry, values)
            if found is not None or entry.fault is not None:
                return found
        if self.compile == "background" and not are_plans_made_at_once():
            return self._ask(key, values)
        with self._lock:
            # Another thread may have made it while this one waited for the lock.
            other = self._entries.get(key)
            if other is not None:
                found = self._found(key, other, values)
                if found is not None or other.fault is not None:
                    return found
            return self.make(key, values)

    def _no_key(self, fault: TypeError) -> None:
        """Note that inputs without a key are interpreted. Raises ArgumentError when ``strict``."""
        reason = f"its inputs cannot be told apart: {fault}"
        if self.strict:
            raise ArgumentError(f"{self.function.name}: {reason}")
        self._unknown = reason

    def _found(self, key: Any, entry: _Entry, values: list[Any]) -> Plan | None:
        """The entry's plan for these values. Raises the fault for which there is none when ``strict``."""
        for plan in entry.plans:
            if _failing(plan, values) is None:
                self.counters.hits += 1
                with suppress(KeyError):
                    self._entries.move_to_end(key)
                self._latest = entry
                return plan
        if entry.fault is not None and self.strict:
            raise entry.fault
        return None

    def make(self, key: Any, values: list[Any]) -> Plan | None:
        """A new plan. Raises what made it impossible when ``strict``."""
        self._note_change(key, values)
        try:
            plan = self.prepare(values)
        except GpujitError as fault:
            self._give_up(key, fault)
            if self.strict:
                raise
            return None
        self._keep(key, plan)
        return plan

    def _ask(self, key: Any, values: list[Any]) -> Plan | None:
        """Have a plan made in the background, unless that is being done; the plan if it has been made just now."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            found = self._found(key, entry, values)
            if found is not None or entry.fault is not None:
                return found
            if entry.job is None or entry.job.is_done:
                self._note_change(key, values)
                entry.job = background.submit(partial(self._make_behind, key, entry, list(values)))
                self._trim()
        return None

    def _make_behind(self, key: Any, entry: _Entry, values: list[Any]) -> None:
        try:
            for _ in range(MAX_VARIANTS):
                plan = self.prepare(values)
                guard = _failing(plan, values)
                if guard is None:
                    break
                # The module has changed meanwhile, as it may during the next attempt.
                self._count_change(guard)
        except GpujitError as fault:
            self._give_up(key, fault)
        except Exception as fault:
            # Another thread may have changed a dict while it was looked at; then the next call asks again.
            log.info("no plan for %s: %s", self.function.name, fault)
            entry.tries += 1
            if entry.tries >= MAX_TRIES:
                self._give_up(key, GpujitError(f"{type(fault).__name__}: {fault}"))
        else:
            self._keep(key, plan)

    def _note_change(self, key: Any, values: list[Any]) -> None:
        """Count the attribute that made the last plan of this kind useless."""
        entry = self._entries.get(key)
        if entry is None or not entry.plans:
            return
        guard = _failing(entry.plans[-1], values)
        if guard is not None:
            self._count_change(guard)

    def _count_change(self, guard: Guard) -> None:
        self._changes[guard.path] += 1
        if self._changes[guard.path] >= _most_changes(guard.spec):
            self._volatile.add(guard.path)

    def _keep(self, key: Any, plan: Plan) -> None:
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            entry.plans.append(plan)
            self.counters.made += 1
            if len(entry.plans) > MAX_VARIANTS:
                del entry.plans[0]
                self.counters.dropped += 1
            self._entries.move_to_end(key)
            self._latest = entry
            self._trim()

    def _give_up(self, key: Any, fault: GpujitError) -> None:
        with self._lock:
            self._entries.setdefault(key, _Entry()).fault = fault
            self._trim()
        if not self.strict:
            log.warning("%s runs on the interpreter: %s", self.function.name, fault.message)

    def _trim(self) -> None:
        while len(self._entries) > MAX_PLANS:
            self.counters.dropped += len(self._entries.popitem(last=False)[1].plans)

    def prepare(self, values: list[Any]) -> Plan:
        """Specialise, optimise and fuse for these values, and have ready what a run needs. Raises GpujitError."""
        if self._making is None:
            return self._prepare(values)
        token = self._making.begin()
        try:
            return self._prepare(values)
        finally:
            self._making.end(token)

    def specialised_only(self, values: list[Any]) -> Specialised:
        """The function for these values, before any pass. Raises GpujitError."""
        if self._graph is None:
            self._graph = inlined(with_casts(self.function.graph))
            settle_casts(self._graph, CPU)
        return specialise(self._graph, key_of(self._graph, values), volatile=frozenset(self._volatile))

    def specialised(self, values: list[Any], stage: Stage | None = None) -> Specialised:
        """What a plan for these values is made of, before anything is fused. Raises GpujitError."""
        stage = stage or Stage("specialise")
        stage.note = "specialise"
        found = self.specialised_only(values)
        stage.note = "optimise"
        pipeline.run(found.graph, self.pipeline)
        return found

    def _prepare(self, values: list[Any]) -> Plan:
        with Stage(f"plan {self.function.name}") as stage:
            return self._prepared(values, stage)

    def _prepared(self, values: list[Any], stage: Stage) -> Plan:
        found = self.specialised(values, stage)
        graph = found.graph
        stage.note = "fuse"
        planner = None if "static" in config.disable else self._planner
        on_cores = self.on_cores and planner is not None
        fused = Fused() if {"fuser", "fusion"} & {*config.disable} else fuse(graph, on_cores=on_cores)
        lowerer = Lowerer(np, self._rules)
        steps = {
            node: FusedStep(low, self._unfused(lowerer, node), node, self.strict)
            for node, low in fused.programs.items()
        }
        lowerer.fused = steps
        guards = tuple(g for g in found.guards if not g.path.startswith("input "))
        stage.note = "make kernels and lay out memory"
        if planner is not None:
            # It lowers what it leaves to the interpreter, and asks for the kernels its strides need.
            runner = planner(graph, fused.programs, lowerer)
            # Without the code that enters native steps there is no planned run.
            with suppress(NotCompiled):
                runner.prepare(values)
                return Plan(found, graph, fused, steps, guards, None, runner)
        known = {v: x for v, x in zip(graph.inputs, values, strict=False) if isinstance(x, np.ndarray)}
        make_ready(fused.programs.values(), known)
        return Plan(found, graph, fused, steps, guards, self.code_of(graph, lowerer))

    def code_of(self, graph: Graph, lowerer: Lowerer) -> bc.Code:
        """What the interpreter runs of a graph."""
        return lowerer.graph_code(graph)

    def _unfused(self, lowerer: Lowerer, node: Node) -> Callable[..., Any]:
        """A group operator by operator, for when its kernel cannot be had; lowered when it is first run so."""

        @cache
        def code() -> bc.Code:
            return lowerer.graph_code(node.attributes["Subgraph"])

        def run(*arrays: Any) -> Any:
            return Interpreter(lowerer).run(code(), list(arrays))

        return run

    def explain(self) -> str:
        """A text on every plan, and on inputs that have none."""
        parts = [
            f"{self.function.name} for {', '.join(map(str, p.specialised.key.inputs[self._first :]))}\n"
            + explain(p.graph, p.fused, p.steps, p.runner)
            for p in self.plans()
        ]
        parts += [f"{self.function.name} runs on the interpreter: {reason}" for reason in self.reasons()]
        pending = self.stats().pending
        if pending:
            parts.append(f"{self.function.name} runs on the interpreter while {pending} plans are made")
        return "\n\n".join(parts) or f"{self.function.name} was not called yet"

    def stats(self) -> PlanStats:
        """What was done so far."""
        entries, counters = list(self._entries.values()), self.counters
        plans = [p for e in entries for p in e.plans]
        return PlanStats(
            counters.hits,
            counters.made,
            counters.dropped,
            counters.interpreted,
            len(plans),
            sum(e.job is not None and not e.job.is_done for e in entries),
            sum(p.runner.nbytes() for p in plans if p.runner is not None),
            quickened=sum(p.runner.is_quickened for p in plans if p.runner is not None),
        )

    def plans(self) -> Sequence[Plan]:
        """All plans kept."""
        return [plan for entry in list(self._entries.values()) for plan in entry.plans]

    def reasons(self) -> Sequence[str]:
        """Why inputs were left to the interpreter."""
        found = [e.fault.message for e in list(self._entries.values()) if e.fault is not None]
        return [*found, self._unknown] if self._unknown else found


_RUN = Interpreter(Lowerer(np)).run


def key_of_values(values: list[Any]) -> Any:
    """Equal for inputs that one plan may serve, as far as they decide it. Raises TypeError when they have none."""
    return tuple([_key(v) for v in values])


def _key(value: Any) -> Any:
    """Equal for values that one plan may serve, as far as they decide it. Raises TypeError for one without a hash."""
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype, value.shape
    if kind in (list, tuple):
        return kind, tuple([_key(v) for v in value])
    if kind is dict:
        return kind, tuple([(k, _key(v)) for k, v in value.items()])
    if kind is float or kind is complex:
        return kind, repr(value)
    hash(value)
    return kind, value


def _failing(plan: Plan, values: list[Any]) -> Guard | None:
    """The first assumption about an attribute that is not so; the key has compared the inputs already."""
    for guard in plan.guards:
        if not guard.holds(values):
            return guard
    return None


def _most_changes(spec: Spec) -> float:
    """How often an attribute may have another value than plans assumed, before it is read at run time."""
    if isinstance(spec, ValueSpec):
        return MAX_CHANGES if type(spec.value) in (int, float, complex, str) else inf
    if isinstance(spec, (ContainerSpec, LargeSpec)):
        return MAX_CHANGES
    # Shapes are worth a plan each, as long as all these plans are kept.
    return MAX_VARIANTS if isinstance(spec, (TensorSpec, NumbersSpec)) else inf


def _without_compiler(settings: Settings) -> Settings:
    return replace(settings, disable=(*settings.disable, "compile"))


def _with_threads(threads: int, is_never: bool, settings: Settings) -> Settings:
    settings = replace(settings, threads=threads)
    return _without_compiler(settings) if is_never else settings
