"""StaticModule: one specialised graph with planned memory, safe to call from many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.arrays import arrays_in
from gpujit.static_runtime.build import build
from gpujit.static_runtime.idle import Idle, pool
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.native import Maker
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import Strides, facts_of
from gpujit.static_runtime.run import StaticRuntime
from gpujit.static_runtime.steps import Options, OutStep, StaticPlan
from gpujit.support.config import current
from gpujit.support.errors import ArgumentError

# How often a plan is made anew because tensors had other strides; after that they are copied.
MAX_PLANS = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """What a plan needs.

    ``arena`` bytes hold all ``planned`` values, which take ``separate`` bytes when none shares memory; ``bound`` is
    what is alive at the worst step, less than which no plan needs. ``overwritten`` values lie where an operand lay.
    """

    arena: int
    bound: int
    separate: int
    planned: int
    overwritten: int
    runtimes: int

    def __str__(self) -> str:
        share = self.arena / self.bound if self.bound else 1.0
        return (
            f"arena of {self.arena:,} bytes ({share:.3f} of the lower bound) for {self.planned} values of "
            f"{self.separate:,} bytes, {self.overwritten} of them in place of an operand; {self.runtimes} runtimes idle"
        )


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Seconds a call spends in a node on average, and what runs it: native, out, interpreter."""

    name: str
    tier: str
    seconds: float


class StaticModule:
    """A graph whose types say all shapes, ready to be run on inputs of those shapes.

    The plan is made at the first run, for the strides of its inputs. Any number of threads may call ``run``: each call
    takes a runtime from a pool, and no lock is held while it computes.
    Args:
        graph: specialised and fused, inputs and outputs as run-time values come and go; it is not changed.
        programs: of its fusion groups.
        lowerer: makes the code of whatever is not planned; its ``fused`` steps run groups without a kernel.
        options: what to do, see Options.
        maker: makes native steps of operators that have templates; None leaves them to the interpreter.
    """

    def __init__(
        self,
        graph: Graph,
        programs: Mapping[Node, Lowered],
        lowerer: Lowerer,
        options: Options = Options(),  # noqa: B008  # it is frozen
        maker: Maker | None = native_step,
    ) -> None:
        self.graph, self.options = graph, options
        self._programs, self._lowerer, self._maker = programs, lowerer, maker
        self._strides: dict[str, Strides] = {}
        self._plan: StaticPlan | None = None
        self._plans = 0
        self._idle: list[StaticRuntime] | Idle[StaticRuntime] = []
        self._lock = threading.Lock()

    def run(self, values: Sequence[Any], out: Sequence[np.ndarray | None] | None = None) -> Any:
        """The graph's result for run-time values, as the interpreter gives it; tensors are arrays of their own.

        Args:
            out: an array for each output (of a tuple's elements when the output is one tuple), or None for those to be
                made anew. They get the results and are returned in place of new arrays.
        Raises what the program raises, ArgumentError for an ``out`` that does not fit, LimitError when there is no
        memory for the arena; the module stays usable.
        """
        runtime = self.runtime(values)
        try:
            if out is not None:
                return self._run_into(runtime, values, out)
            return runtime.run(values)
        finally:
            if runtime.surprises:
                self._learn(runtime)
            if runtime.plan is self._plan:
                self._idle.append(runtime)

    def plan(self, values: Sequence[Any]) -> StaticPlan:
        """The plan; made for these values when there is none yet."""
        found = self._plan
        if found is None:
            with self._lock:
                found = self._plan
                if found is None:
                    self._see_inputs(values)
                    found = self._make()
                    self._idle = pool(found.arena.size)
                    self._plan = found
        return found

    def runtime(self, values: Sequence[Any]) -> StaticRuntime:
        """A runtime that nobody else uses, made when none is idle."""
        plan = self._plan or self.plan(values)
        check = current().check_plan
        try:
            found = self._idle.pop()
        except IndexError:
            return StaticRuntime(plan, check=check)
        return found if found.plan is plan and found.check is check else StaticRuntime(plan, check=check)

    def memory(self) -> Memory:
        """What the plan needs. Raises ArgumentError before the first run."""
        plan = self._known()
        return Memory(
            plan.arena.size,
            plan.arena.bound,
            plan.separate,
            len(plan.values),
            len(plan.values) - len(plan.buffers),
            len(self._idle),
        )

    def profile(self, values: Sequence[Any], runs: int = 10) -> list[NodeTime]:
        """The time of each node, the longest first. Native steps are called one by one for this."""
        plan = self.plan(values)
        runtime = StaticRuntime(plan, profile=True)
        runtime.run(values)
        runtime.times.clear()
        for _ in range(runs):
            runtime.run(values)
        total: dict[int, float] = {}
        for number, seconds in runtime.times:
            total[number] = total.get(number, 0.0) + seconds / runs
        found = []
        for number, seconds in total.items():
            if number >= 0:
                node = plan.order[number]
                found.append(NodeTime(_label(node), plan.kinds[node], seconds))
            else:
                kind = plan.code.kinds[-1 - number]
                tier = "out" if isinstance(plan.code.instructions[-1 - number][1], OutStep) else "interpreter"
                found.append(NodeTime(kind, tier, seconds))
        return sorted(found, key=lambda t: -t.seconds)

    def explain(self) -> str:
        """A line for each node: what runs it. Raises ArgumentError before the first run."""
        plan = self._known()
        lines = [str(self.memory())]
        lines += [f"{plan.kinds[n]:12} {_label(n)}" for n in plan.order if n.kind != RETURN]
        return "\n".join(lines)

    # Inside

    def _known(self) -> StaticPlan:
        if self._plan is None:
            raise ArgumentError("a static module has no plan before its first run")
        return self._plan

    def _make(self) -> StaticPlan:
        self._plans += 1
        return build(self.graph, self._programs, self._lowerer, self._strides, self.options, self._maker)

    def _see_inputs(self, values: Sequence[Any]) -> None:
        for i, (value, given) in enumerate(zip(self.graph.inputs, values, strict=True)):
            if type(given) is np.ndarray and facts_of(value) == (given.shape, given.dtype):
                self._strides[f"input {i}"] = given.strides

    def _learn(self, runtime: StaticRuntime) -> None:
        """Plan anew for strides that a run met."""
        surprises, runtime.surprises = runtime.surprises, {}
        with self._lock:
            if self._plans >= MAX_PLANS or runtime.plan is not self._plan:
                return
            for (segment, number), strides in surprises.items():
                name = runtime.plan.names.get(runtime.plan.segments[segment].given[number].value)
                if name is not None:
                    self._strides[name] = strides
            self._plan = self._make()
            self._idle = pool(self._plan.arena.size)

    def _run_into(self, runtime: StaticRuntime, values: Sequence[Any], out: Sequence[np.ndarray | None]) -> Any:
        plan = runtime.plan
        for i, target in enumerate(out):
            value = plan.made_outputs.get(i)
            if target is None or value is None or not _fits(target, value) or plan.reads_attributes:
                continue
            others = [x for x in arrays_in(list(values)) if np.may_share_memory(x, target)]
            others += [x for x in plan.constants() if np.may_share_memory(x, target)]
            others += [x for k, x in enumerate(out) if k != i and x is not None and np.may_share_memory(x, target)]
            if not others:
                runtime.targets[value] = target
        try:
            result = runtime.run(values)
        finally:
            runtime.targets.clear()
        parts = list(result) if isinstance(result, tuple) else [result]
        if len(parts) != len(out):
            raise ArgumentError(f"out has {len(out)} arrays for {len(parts)} outputs")
        for i, (target, made) in enumerate(zip(out, parts, strict=True)):
            if target is None or target is made:
                continue
            if type(made) is not np.ndarray or (made.shape, made.dtype) != (target.shape, target.dtype):
                what = f"{made.dtype}{list(made.shape)}" if isinstance(made, np.ndarray) else type(made).__name__
                raise ArgumentError(f"out[{i}] is {target.dtype}{list(target.shape)}, the output is {what}")
            target[...] = made
            parts[i] = target
        if not isinstance(result, tuple):
            return parts[0]
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)


def _fits(target: np.ndarray, value: Any) -> bool:
    is_writable = target.flags.c_contiguous and target.flags.writeable and target.flags.aligned
    return type(target) is np.ndarray and is_writable and facts_of(value) == (target.shape, target.dtype)


def _label(node: Node) -> str:
    inner = node.attributes.get("Subgraph")
    if not isinstance(inner, Graph):
        return node.kind
    return "+".join(n.kind.partition("::")[2] for n in inner.all_nodes() if not n.kind.startswith("prim::"))
