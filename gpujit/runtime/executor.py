"""The executor: a function specialised for the inputs it meets, its groups fused, its plans kept.

A plan is made for the shapes and dtypes of the inputs, the values of those that are no tensors, and what the graph read
of the module's attributes (its guards). Inputs that a plan cannot be made for run on the interpreter: the answer is the
same, and ``explain`` says why.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from gpujit.fuser.fuse import FUSION_GROUP, Fused, fuse
from gpujit.fuser.lower import Lowered
from gpujit.fuser.report import describe
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.passes import pipeline
from gpujit.passes.inline import inlined
from gpujit.passes.specialise.guards import Guard, ValueSpec
from gpujit.passes.specialise.main import Specialised, key_of, specialise
from gpujit.runtime import bytecode as bc
from gpujit.runtime.fused import FusedStep
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.ready import make_ready
from gpujit.runtime.vm import Interpreter
from gpujit.support.config import config
from gpujit.support.errors import GpujitError

log = logging.getLogger("gpujit.fuser")

# Plans kept for one function, the least recently used one is dropped.
MAX_PLANS = 64
# Plans of one kind of inputs, which differ in what they assume about attributes.
MAX_VARIANTS = 8
# Plans made anew because a number in an attribute changed, after which plans read it when they run.
MAX_CHANGES = 2


class Runner(Protocol):
    """What runs a specialised graph in another way than the interpreter: a StaticModule."""

    def run(self, values: list[Any]) -> Any:
        """The graph's result for run-time values."""

    def explain(self) -> str:
        """What runs each node, a line each."""


Planner = Callable[[Graph, Mapping[Node, Lowered], Lowerer], Runner]


@dataclass(frozen=True, slots=True)
class Plan:
    """A function for one kind of inputs: the graph it runs, what was fused, and what runs it.

    That is ``runner``, with planned memory, or ``code`` on the interpreter; the other one is None.
    """

    specialised: Specialised
    graph: Graph
    fused: Fused
    steps: dict[Node, FusedStep]
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
    """The plans of one key, which differ in their guards; or the reason there can be none."""

    plans: list[Plan] = field(default_factory=list)
    reason: str | None = None


class Executor:
    """Runs one function of a module. Threads may call it at the same time.

    Args:
        function: the function; its first input is the object it is a method of.
        rules: replacements for operators on quantised inputs, as the module's own Lowerer has them.
        interpret: runs the function on values when there is no plan.
        strict: raise instead of interpreting, and instead of running a group unfused.
        planner: makes what runs a specialised graph with planned memory; without it the interpreter does.
    """

    def __init__(
        self,
        function: Function,
        rules: dict[str, Callable[..., Any]],
        interpret: Callable[[list[Any]], Any],
        *,
        strict: bool = False,
        planner: Planner | None = None,
    ) -> None:
        self.function, self.interpret, self.strict = function, interpret, strict
        self.counters = Counters()
        self._rules, self._planner = rules, planner
        self._graph: Graph | None = None
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        # How often plans could not be used because of an attribute's number, by its path; and those that changed too
        # often to be assumed.
        self._changes: Counter[str] = Counter()
        self._volatile: set[str] = set()
        self._lock = threading.RLock()

    def __call__(self, values: list[Any]) -> Any:
        """The function's result for run-time values, the object first."""
        plan = self.plan_for(values)
        if plan is None:
            self.counters.interpreted += 1
            return self.interpret(values)
        if plan.runner is not None:
            return plan.runner.run(values)
        assert plan.code is not None
        with np.errstate(all="ignore"):
            return _RUN(plan.code, values)

    def plan_for(self, values: list[Any]) -> Plan | None:
        """The plan that runs these values, made when there is none yet; None when they are left to the interpreter."""
        try:
            key = tuple([_key(v) for v in values[1:]])
        except TypeError:
            # A value that can only be told from others by where it lies; nothing can be assumed about it.
            return None
        entry = self._entries.get(key)
        if entry is not None:
            for plan in entry.plans:
                if _holds(plan, values):
                    self.counters.hits += 1
                    return plan
            if entry.reason is not None:
                return None
        with self._lock:
            return self.make(key, values)

    def make(self, key: Any, values: list[Any]) -> Plan | None:
        """A new plan. Raises what made it impossible when ``strict``."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.plans:
            guard = _failing(entry.plans[-1], values)
            if guard is not None and isinstance(guard.spec, ValueSpec) and type(guard.spec.value) in (int, float):
                self._changes[guard.path] += 1
                if self._changes[guard.path] >= MAX_CHANGES:
                    self._volatile.add(guard.path)
        try:
            plan = self.prepare(values)
        except GpujitError as fault:
            if self.strict:
                raise
            entry.reason = fault.message
            log.warning("%s runs on the interpreter: %s", self.function.name, fault.message)
            return None
        entry.plans.append(plan)
        self.counters.made += 1
        if len(entry.plans) > MAX_VARIANTS:
            del entry.plans[0]
            self.counters.dropped += 1
        self._entries.move_to_end(key)
        while len(self._entries) > MAX_PLANS:
            self._entries.popitem(last=False)
            self.counters.dropped += 1
        return plan

    def prepare(self, values: list[Any]) -> Plan:
        """Specialise, optimise and fuse for these values. Raises GpujitError."""
        if self._graph is None:
            self._graph = inlined(self.function.graph)
        found = specialise(self._graph, key_of(self._graph, values), volatile=self._volatile)
        graph = found.graph
        pipeline.run(graph, "specialised")
        fused = fuse(graph) if "fuser" not in config.disable else Fused()
        lowerer = Lowerer(np, self._rules)
        steps = {
            node: FusedStep(low, self._unfused(lowerer, node), node, self.strict)
            for node, low in fused.programs.items()
        }
        lowerer.fused = steps
        if self._planner is not None and "static" not in config.disable:
            # It lowers what it leaves to the interpreter, and asks for the kernels its strides need.
            return Plan(found, graph, fused, steps, None, self._planner(graph, fused.programs, lowerer))
        known = {v: x for v, x in zip(graph.inputs, values, strict=False) if isinstance(x, np.ndarray)}
        make_ready(fused.programs.values(), known)
        return Plan(found, graph, fused, steps, lowerer.graph_code(graph))

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
            f"{self.function.name} for {', '.join(map(str, p.specialised.key.inputs[1:]))}\n{explain(p)}"
            for p in self.plans()
        ]
        parts += [f"{self.function.name} runs on the interpreter: {reason}" for reason in self.reasons()]
        return "\n\n".join(parts) or f"{self.function.name} was not called yet"

    def plans(self) -> Sequence[Plan]:
        """All plans kept."""
        return [plan for entry in list(self._entries.values()) for plan in entry.plans]

    def reasons(self) -> Sequence[str]:
        """Why inputs were left to the interpreter."""
        return [e.reason for e in list(self._entries.values()) if e.reason is not None]


_RUN = Interpreter(Lowerer(np)).run


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


def _holds(plan: Plan, values: list[Any]) -> bool:
    """Whether what a plan assumes about attributes is so."""
    return _failing(plan, values) is None


def _failing(plan: Plan, values: list[Any]) -> Guard | None:
    """The first assumption about an attribute that is not so; the key has compared the inputs already."""
    for guard in plan.specialised.guards:
        if not guard.path.startswith("input ") and not guard.holds(values):
            return guard
    return None


def explain(plan: Plan) -> str:
    """What a plan fused and what it did not, a line each with the source it comes from."""
    fused = describe((n for n in plan.graph.all_nodes() if n.kind == FUSION_GROUP), plan.fused.refusals)
    return fused if plan.runner is None else f"{fused}\n{plan.runner.explain()}"
