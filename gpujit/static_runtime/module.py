"""PlannedGraph: one specialised graph with planned memory, safe to call from many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.runtime.explain import label_of, line
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets, check_fit, put
from gpujit.static_runtime.arrays import aligned, arrays_in
from gpujit.static_runtime.build import build
from gpujit.static_runtime.decide import name_values
from gpujit.static_runtime.idle import Idle, pool
from gpujit.static_runtime.makers import native_step
from gpujit.static_runtime.native import Made, Maker
from gpujit.static_runtime.places import Strides, are_apart, facts_of
from gpujit.static_runtime.quicker import Quicker
from gpujit.static_runtime.report import Benchmark, MemoryReport, NodeTime, memory_report, results_of
from gpujit.static_runtime.run import Arena, TimedArena
from gpujit.static_runtime.steps import Operand, Options, OutStep, StaticPlan
from gpujit.static_runtime.tiers import Tier, tiers
from gpujit.support.config import config, current
from gpujit.support.errors import ArgumentError, InternalError, LimitError
from gpujit.support.watch import running

# The profiler that lends arenas, or None.
watched = running.get
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


def _made_for(threads: int, maker: Maker, *args: Any, **options: Any) -> Made | None:
    """What a maker gives for runs by so many threads."""
    with config(threads=threads):
        return maker(*args, **options)


def at_once(work: Callable[[], object]) -> None:
    """Do it now."""
    work()


def not_at_all(work: Callable[[], object]) -> None:
    """Leave it."""


class PlannedGraph:
    """A graph whose types say all shapes, ready to be run on inputs of those shapes.

    The plan is made at the first run, for the strides of its inputs. Any number of threads may call ``run``: each call
    takes a runtime from a pool, and no lock is held while it computes.
    Args:
        graph: specialised and fused, inputs and outputs as run-time values come and go; it is not changed.
        programs: of its fusion groups.
        lowerer: makes the code of whatever is not planned; its ``fused`` steps run groups without a kernel.
        options: what to do, see Options.
        maker: makes native steps of operators that have templates; None leaves them to the interpreter.
        replan: what to do with the work of planning anew for strides that a run met: do it now, later, or not.
        strides: those of some values (named as by ``name_values``), in bytes, before any are met.
        quicker: what has the plan exchanged for one of quicker code; None when there is none.
    """

    def __init__(
        self,
        graph: Graph,
        programs: Mapping[Node, Lowered],
        lowerer: Lowerer,
        options: Options = Options(),  # noqa: B008  # it is frozen
        maker: Maker | None = native_step,
        replan: Callable[[Callable[[], object]], object] = at_once,
        strides: Mapping[str, Strides] | None = None,
        quicker: Quicker | None = None,
    ) -> None:
        self.graph, self.options = graph, options
        if maker is native_step and options.weights != "float32":
            maker = partial(native_step, weights=options.weights)
        self._programs, self._lowerer, self._replan, self._quicker = programs, lowerer, replan, quicker
        self._maker = self._for_threads(maker)
        self._strides: dict[str, Strides] = dict(strides or {})
        self._plan: StaticPlan | None = None
        self._plans = 0
        self._is_asked = False
        self._is_quick = False
        self._idle: list[Arena] | Idle[Arena] = []
        self._lock = threading.Lock()

    def run(self, values: Sequence[Any], out: Targets | None = None) -> Any:
        """The graph's result for run-time values, as the interpreter gives it; tensors are arrays of their own.

        Args:
            out: an array for each output (of a tuple's elements when the output is one tuple), or None for those to be
                made anew. They get the results and are returned in place of new arrays.
        Raises what the program raises, ArgumentError for an ``out`` that does not fit, LimitError when there is no
        memory for the arena or results; the module stays usable.
        """
        runtime = self.runtime(values)
        try:
            return self._result(runtime, values, out)
        except MemoryError:
            raise self._no_memory(runtime) from None
        finally:
            self._is_quick = runtime.quick is not None
            if runtime.surprises:
                self._learn(runtime)
            if self._quicker is not None:
                self._quicker.ask(self)
            if runtime.recorder is not None:
                self._give_back(runtime)
            elif runtime.plan is self._plan:
                self._idle.append(runtime)

    @property
    def quick(self) -> Callable[[Sequence[Any]], Any] | None:
        """What gives the result for a call's arguments, all but the object; None when the plan is more than one native
        run of them.

        It gives NotImplemented where that would take another look: for arrays that lie otherwise than planned, for more
        or fewer arguments, when somebody watches. Then nothing was run.
        """
        return self._run_quickly if self._is_quick else None

    def _run_quickly(self, arguments: Sequence[Any]) -> Any:
        if watched() is not None:
            return NotImplemented
        try:
            runtime = self._idle.pop()
        except IndexError:
            return NotImplemented
        if runtime.plan is not self._plan:
            return NotImplemented
        try:
            return NotImplemented if runtime.quick is None else runtime.quick(arguments)
        except MemoryError:
            return NotImplemented
        finally:
            self._idle.append(runtime)

    def run_on(self, runtime: Arena, values: Sequence[Any], out: Targets | None = None) -> Any:
        """``run``, on a runtime that the caller keeps (``is_current`` says how long)."""
        try:
            return self._result(runtime, values, out)
        except MemoryError:
            raise self._no_memory(runtime) from None
        finally:
            if runtime.surprises:
                self._learn(runtime)

    def is_current(self, runtime: Arena) -> bool:
        """Whether a runtime is for the plan there is now."""
        return runtime.plan is self._plan

    def prepare(self, values: Sequence[Any]) -> None:
        """Have the plan and a runtime for it."""
        # Without memory whoever runs it is told: there may be some by then.
        with suppress(LimitError):
            found = self.runtime(values)
            if found.recorder is not None:
                self._give_back(found)
            else:
                self._idle.append(found)

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

    def runtime(self, values: Sequence[Any]) -> Arena:
        """A runtime that nobody else uses, made when none is idle."""
        plan = self._plan or self.plan(values)
        watch = watched()
        if watch is not None:
            lent: Arena = watch.arena(self, plan)
            return lent
        check = current().check_plan
        try:
            found = self._idle.pop()
        except IndexError:
            return Arena(plan, check=check)
        return found if found.plan is plan and found.check is check else Arena(plan, check=check)

    def new_outputs(self, values: Sequence[Any]) -> list[np.ndarray | None]:
        """An array for each output, where the plan leaves it without a copy; None for what is no tensor of known shape.

        The plan is made for these values when there is none yet.
        """
        plan = self.plan(values)
        found: list[np.ndarray | None] = []
        for i, value in enumerate(results_of(plan.graph)):
            facts, made = facts_of(value), plan.made_outputs.get(i)
            if facts is None or made is None:
                found.append(None if facts is None else np.empty(*facts))
            else:
                found.append(aligned(made.shape, made.dtype, made.nbytes, made.strides))
        return found

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

    def nbytes(self) -> int:
        """Bytes of the arenas kept between runs."""
        return sum(r.memory.nbytes + r.scratch.nbytes for r in list(self._idle))

    def report(self) -> MemoryReport:
        """Where everything lies. Raises ArgumentError before the first run."""
        return memory_report(self._known(), len(self._idle))

    def profile(self, values: Sequence[Any], runs: int = 10) -> list[NodeTime]:
        """The time of each node, the longest first. A look at the clock between native steps is part of it."""
        plan = self.plan(values)
        runtime = TimedArena(plan)
        runtime.run(values)
        runtime.recorder.clear()
        for _ in range(runs):
            runtime.run(values)
        taken = runtime.recorder.taken()
        means = taken.seconds.sum(axis=0) / max(len(taken.runs), 1)
        total = dict(zip(taken.numbers, means.tolist(), strict=True))
        labels = {t.node: t.label for t in self.tiers()}
        found = []
        for number, seconds in total.items():
            if number >= 0:
                node = plan.order[number]
                found.append(NodeTime(labels.get(node) or label_of(node), plan.kinds[node], seconds))
            else:
                kind = plan.code.kinds[-1 - number]
                is_out = isinstance(plan.code.instructions[-1 - number][1], OutStep)
                tier = "out" if is_out else "interpreter" if kind.startswith("prim::") else "numpy"
                found.append(NodeTime(kind, tier, seconds))
        return sorted(found, key=lambda t: -t.seconds)

    def benchmark(self, values: Sequence[Any], warmup_runs: int = 5, main_runs: int = 50) -> Benchmark:
        """What runs and nodes take, after runs that do not count. The program's effects happen in each of them.

        Raises ArgumentError when there would be no run to take the time of.
        """
        if warmup_runs < 0 or main_runs < 1:
            raise ArgumentError(f"{warmup_runs} runs to warm up and {main_runs} to measure: give at least 0 and 1")
        for _ in range(warmup_runs):
            self.run(values)
        runs = []
        for _ in range(main_runs):
            start = perf_counter()
            self.run(values)
            runs.append(perf_counter() - start)
        return Benchmark(tuple(runs), tuple(self.profile(values, min(main_runs, 10))))

    def tiers(self, reasons: Mapping[Node, str] | None = None, plan: StaticPlan | None = None) -> list[Tier]:
        """What runs each node. Raises ArgumentError before the first run.

        Args:
            reasons: why nodes of the graph were not fused.
            plan: one of its plans; None for the one there is now.
        """
        names = name_values(self.graph)
        by_name = {names[n.outputs[0]]: r for n, r in (reasons or {}).items() if n.outputs and n.outputs[0] in names}
        return tiers(plan or self._known(), self.options, self._lowerer.rules, by_name)

    def explain(self, reasons: Mapping[Node, str] | None = None) -> str:
        """A line for each node: what runs it and why nothing better. Raises ArgumentError before the first run.

        Args:
            reasons: why nodes of the graph were not fused.
        """
        lines = [str(self.memory()), *filter(None, [str(self._quicker or "")])]
        lines += [line(t.name, t.reason, t.node, t.label) for t in self.tiers(reasons)]
        return "\n".join(lines)

    @property
    def is_quickened(self) -> bool:
        """Whether quicker code, compiled in the background, has taken the place of the plan's first."""
        return self._quicker is not None and self._quicker.is_done

    def exchange(self, maker: Maker) -> bool:
        """Make the plan with another maker, whose steps give the same numbers, and use it from the next call on;
        whether it has other code. Calls go on meanwhile. Raises GpujitError."""
        old = self._known()
        own = self._for_threads(maker)
        made = self._build(own)
        if _what_runs(made) != _what_runs(old):
            # A library would round otherwise than the template whose kernel cannot be had.
            raise InternalError("one of its steps would be made otherwise")
        if np.array_equal(made.functions, old.functions):
            return False
        # What the next call would otherwise wait for.
        runtime = Arena(made, check=current().check_plan)
        with self._lock:
            if self._plan is not old:
                return False
            self._maker, self._plan, self._idle = own, made, pool(made.arena.size)
            self._idle.append(runtime)
        return True

    # Inside

    def _for_threads(self, maker: Maker | None) -> Maker | None:
        """A maker for runs by as many threads as the options say."""
        if maker is None or self.options.threads is None:
            return maker
        return partial(_made_for, self.options.threads, maker)

    def _known(self) -> StaticPlan:
        if self._plan is None:
            raise ArgumentError("a planned graph has no plan before its first run")
        return self._plan

    def _make(self) -> StaticPlan:
        self._plans += 1
        return self._build(self._maker)

    def _build(self, maker: Maker | None) -> StaticPlan:
        return build(self.graph, self._programs, self._lowerer, self._strides, self.options, maker)

    def _see_inputs(self, values: Sequence[Any]) -> None:
        for i, (value, given) in enumerate(zip(self.graph.inputs, values, strict=True)):
            if type(given) is np.ndarray and facts_of(value) == (given.shape, given.dtype):
                self._learn_strides(f"input {i}", given.shape, given.strides, given.itemsize)

    def _learn(self, runtime: Arena) -> None:
        """See to a plan for the strides that a run met."""
        surprises, runtime.surprises = runtime.surprises, {}
        with self._lock:
            if self._is_asked or self._plans >= MAX_PLANS or runtime.plan is not self._plan:
                return
            before = dict(self._strides)
            for (segment, number), strides in surprises.items():
                operand = runtime.plan.segments[segment].given[number]
                name = runtime.plan.names.get(operand.value)
                if name is not None:
                    self._learn_strides(name, operand.shape, strides, operand.dtype.itemsize)
            if self._strides == before:
                return
            self._is_asked = True
        self._replan(partial(self._plan_anew, runtime.plan))

    def _learn_strides(self, name: str, shape: Sequence[int], strides: Strides, itemsize: int) -> None:
        """Plan for a tensor that lies so, unless its elements share memory: others are copied to where it would lie."""
        if are_apart(shape, strides, itemsize):
            self._strides[name] = strides

    def _plan_anew(self, old: StaticPlan) -> None:
        try:
            made = self._make()
        finally:
            self._is_asked = False
        with self._lock:
            if self._plan is old:
                self._plan = made
                self._idle = pool(made.arena.size)

    def _give_back(self, runtime: Arena) -> None:
        """Give a lent arena back, if whoever lent it still watches."""
        watch = watched()
        if watch is not None:
            watch.give_back(self, runtime)

    def _no_memory(self, runtime: Arena) -> LimitError:
        size = runtime.plan.arena.size
        return LimitError(f"there is no memory for the results of a plan whose arena takes {size} bytes")

    def _result(self, runtime: Arena, values: Sequence[Any], out: Targets | None) -> Any:
        result = runtime.run(values) if out is None else self._run_into(runtime, values, out)
        return _in_plain_order(result, runtime.plan, out) if runtime.surprises else result

    def _run_into(self, runtime: Arena, values: Sequence[Any], out: Targets) -> Any:
        plan = runtime.plan
        results = results_of(plan.graph)
        if len(results) == len(out):
            for i, (target, value) in enumerate(zip(out, results, strict=True)):
                facts = facts_of(value)
                if target is not None and facts is not None:
                    # Before anything has run.
                    check_fit(i, target, *facts)
        for i, target in enumerate(out):
            made = plan.made_outputs.get(i)
            if target is None or made is None or not _fits(target, made) or plan.reads_attributes:
                continue
            others = [x for x in arrays_in(list(values)) if np.may_share_memory(x, target)]
            others += [x for x in plan.constants() if np.may_share_memory(x, target)]
            others += [x for k, x in enumerate(out) if k != i and x is not None and np.may_share_memory(x, target)]
            if not others:
                runtime.targets[made.value] = target
        try:
            result = runtime.run(values)
        finally:
            runtime.targets.clear()
        return put(result, out)


def _in_plain_order(result: Any, plan: StaticPlan, out: Targets | None) -> Any:
    """The result of a run that met other strides than were planned for: what was made anew in an order that need not be
    its operands' becomes contiguous."""
    count = len(result) if isinstance(result, (tuple, list)) else 1
    targets: list[np.ndarray | None] = [None] * count
    for i, made in plan.made_outputs.items():
        if (out is None or out[i] is None) and not made.is_contiguous:
            targets[i] = np.empty(made.shape, made.dtype)
    return put(result, targets) if any(t is not None for t in targets) else result


def _what_runs(plan: StaticPlan) -> list[tuple[str, str]]:
    return [(node.kind, plan.kinds.get(node, "")) for node in plan.order]


def _fits(target: np.ndarray, made: Operand) -> bool:
    is_writable = target.flags.writeable and target.flags.aligned
    same = (target.shape, target.dtype) == (made.shape, made.dtype)
    return type(target) is np.ndarray and is_writable and same and _lie_alike(target.strides, made)


def _lie_alike(strides: Strides, made: Operand) -> bool:
    return all(n == 1 or s == t for s, t, n in zip(strides, made.strides, made.shape, strict=True))
