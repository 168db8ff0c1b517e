"""The stages a graph goes through, from source to plan: each as a graph with what is known of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.report import report_of
from gpujit.inference import freeze, optimize_for_inference
from gpujit.ir.arrays import describe
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import named_modules
from gpujit.ir.printer import print_graph
from gpujit.modules import ScriptModule
from gpujit.passes.freeze.methods import frozen_methods
from gpujit.pictures.build import Mark, picture_of
from gpujit.pictures.model import Picture
from gpujit.runtime.executor import Executor, Plan
from gpujit.runtime.explain import explain
from gpujit.runtime.values import bind_arguments
from gpujit.runtime.warm import example_of, plans_made_at_once
from gpujit.scripting import ScriptFunction
from gpujit.static import StaticModule
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.steps import StaticPlan
from gpujit.support.errors import ArgumentError

# As written; calls replaced by bodies; weights as constants; specialised and fused for inputs; and what runs each node.
STAGES = ("source", "inlined", "frozen", "fused", "plan")


@dataclass
class Stage:
    """A graph at one stage.

    Args:
        text: the graph for people; for a plan, what runs each node.
        plan: what the executor keeps for the inputs; of the stages ``fused`` and ``plan``.
    """

    name: str
    title: str
    graph: Graph
    marks: Mapping[Node, Mark] = field(default_factory=dict)
    plan: Plan | None = None

    def picture(self) -> Picture:
        """What a picture of it shows."""
        return picture_of(self.graph, self.title, self.marks)

    def text(self) -> str:
        """The graph's text; of a plan what runs each node, and why nothing better."""
        if self.name == "plan" and self.plan is not None:
            return explain(self.plan.graph, self.plan.fused, self.plan.steps, self.plan.runner) + "\n"
        return print_graph(self.graph)


def stage_of(target: Any, stage: str, inputs: Sequence[Any] = (), method: str = "forward") -> Stage:
    """A module, function or graph at a stage; it stays as it is.

    Args:
        target: a ScriptModule, StaticModule, ScriptFunction or Graph.
        stage: one of STAGES.
        inputs: of the stages ``fused`` and ``plan``, something for each argument, as ``warmup`` takes it (arrays and
            values for a graph or function); without them the plan that was used last.
        method: of a ScriptModule.
    Raises ArgumentError for other targets, stages and methods, for inputs that do not fit, and where there is no plan;
    and what freezing raises.
    """
    if stage not in STAGES:
        raise ArgumentError(f"there is no stage {stage!r}; stages are {', '.join(STAGES)}")
    if isinstance(target, Graph):
        if stage == "source":
            return Stage(stage, target.name or "graph", target)
        return _of_static(StaticModule(target), stage, inputs)
    if isinstance(target, StaticModule):
        return _of_static(target, stage, inputs)
    if isinstance(target, ScriptFunction):
        if stage in ("source", "inlined"):
            graph = target.graph if stage == "source" else target.inlined_graph
            return Stage(stage, target.qualified_name, graph)
        return _of_static(StaticModule(target.inlined_graph), stage, inputs)
    if isinstance(target, ScriptModule) and target._object.type.is_module:
        return _of_module(target, stage, inputs, method)
    raise ArgumentError(
        f"expected a ScriptModule, such as gpujit.load returns, a StaticModule, a scripted function or a graph; found "
        f"{describe(target)}"
    )


def fused_stage(plan: Plan, title: str) -> Stage:
    """What an executor made of a function for some inputs: specialised, its groups fused."""
    marks: dict[Node, Mark] = {}
    for refusal in plan.fused.refusals:
        marks[refusal.node] = Mark((), (("not fused", refusal.reason),))
    for node in plan.graph.all_nodes():
        if node.kind == FUSION_GROUP:
            marks[node] = Mark((), (("memory traffic saved", f"{report_of(node).saved_bytes:,} bytes"),))
    return Stage("fused", title, plan.graph, marks, plan)


def plan_stage(plan: Plan, title: str, values: Sequence[Any]) -> Stage:
    """What runs each node of a plan. Raises ArgumentError where the interpreter runs it.

    Args:
        values: run-time values, for which memory is planned unless that has been done.
    """
    runner = plan.runner
    if not isinstance(runner, PlannedGraph):
        raise ArgumentError(f"{title} has no plan of memory: the interpreter runs it (see the switch GPUJIT_DISABLE)")
    static = runner.plan(values)
    reasons = {r.node: r.reason for r in plan.fused.refusals}
    marks: dict[Node, Mark] = {}
    graph = static.order[0].graph if static.order else plan.graph
    for node in graph.all_nodes():
        marks[node] = Mark(("tier-merged",), (("runs in", "the step of a neighbour"),))
    places = _places(static)
    for tier in runner.tiers(reasons):
        facts = [("tier", tier.name)]
        if tier.label != tier.node.kind:
            facts.append(("step", tier.label))
        if tier.reason:
            facts.append(("why", tier.reason))
        marks[tier.node] = Mark((f"tier-{tier.name.replace(' ', '-')}",), (*facts, *places.get(tier.node, ())))
    return Stage("plan", title, graph, marks, plan)


def _places(plan: StaticPlan) -> dict[Node, list[tuple[str, str]]]:
    """Where results lie in the arena."""
    found: dict[Node, list[tuple[str, str]]] = {}
    for value, offset, life in zip(plan.values, plan.offsets, plan.lifetimes, strict=True):
        text = f"{life.size:,} bytes from {offset:,}, steps {life.first} to {life.last}"
        found.setdefault(value.node, []).append(("arena", text))
    return found


def _of_static(static: StaticModule, stage: str, inputs: Sequence[Any]) -> Stage:
    function = static._target.function
    if stage in ("source", "inlined", "frozen"):
        return Stage(stage, function.name, static.graph)
    values = None
    if inputs:
        args: Sequence[Any] = inputs
        if static._target.is_method:
            args, _ = example_of(function.schema, tuple(inputs))
        values = static._target.bind(tuple(args), {})
    return _planned(static._executor, function.name, stage, values)


def _of_module(module: ScriptModule, stage: str, inputs: Sequence[Any], method: str) -> Stage:
    methods = module.methods
    if method not in methods:
        raise ArgumentError(f"the module has no method {method!r}; it has {', '.join(sorted(methods)) or 'none'}")
    found = methods[method]
    title = found._function.name
    if stage == "source":
        return Stage(stage, title, found.graph)
    if stage == "inlined":
        return Stage(stage, title, found.inlined_graph)
    others = [] if method == "forward" else [method]
    is_frozen = next(frozen_methods(module._object), None) is not None
    if stage == "frozen":
        if is_frozen:
            return Stage(stage, title, found.graph)
        with _evaluating(module):
            frozen = freeze(module, preserved_attrs=others)
        return Stage(stage, title, frozen.methods[method].graph)
    if module._program.optimised is None:
        if not inputs:
            raise ArgumentError(f"the stage {stage!r} is made for inputs: give one for each argument of {method!r}")
        # What is made must not be the given module's: a frozen one is optimised in place.
        copy = freeze(module, preserved_attrs=others) if is_frozen else module
        # What is fused does not depend on which kernels there are; what runs a node does.
        mode = "never" if stage == "fused" else "ahead"
        module = optimize_for_inference(copy, other_methods=others, compile=mode)
        found = module.methods[method]
    values = None
    if inputs:
        args, kwargs = example_of(found.schema, tuple(inputs))
        values = [found._owner, *bind_arguments(found.schema, tuple(args), kwargs, skip=1)]
    return _planned(module._program.executor(found._function), title, stage, values)


def _planned(executor: Executor, title: str, stage: str, values: list[Any] | None) -> Stage:
    """The plan for run-time values, or the one that was made last."""
    if values is None:
        plan = next(reversed(executor.plans()), None)
        if plan is None:
            raise ArgumentError(f"{title} was not called yet, so that it has no plan; give something for each argument")
        values = []
    else:
        with plans_made_at_once():
            plan = executor.plan_for(values)
        if plan is None:
            raise ArgumentError(f"{title} has no plan for these inputs: {'; '.join(executor.reasons())}")
    return fused_stage(plan, title) if stage == "fused" else plan_stage(plan, title, values)


@contextmanager
def _evaluating(module: ScriptModule) -> Iterator[None]:
    """A block in which the module is in eval mode."""
    modules = [m for _, m in named_modules(module._object) if "training" in m.type.slot_of]
    modes = [m.get("training") for m in modules]
    module.eval()
    try:
        yield
    finally:
        for each, mode in zip(modules, modes, strict=True):
            each.set("training", mode)
