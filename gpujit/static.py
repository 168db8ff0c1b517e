"""The static runtime as objects: a module planned for the inputs it meets, and runtimes with arenas of their own.

``optimize_for_inference`` gives the same speed to a module that is called as before; these are for who wants to choose
what is done, to keep arenas apart, or to see where time and memory go. Names are those of PyTorch's Static Runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gpujit.inference import check_options, freeze
from gpujit.ir import types as T
from gpujit.ir.arrays import describe
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function, named_modules
from gpujit.modules import ScriptModule, wrap
from gpujit.passes.freeze.methods import frozen_methods
from gpujit.runtime.executor import Executor, Plan
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets, put, targets_of
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.values import bind_arguments, bind_inputs
from gpujit.runtime.vm import Interpreter
from gpujit.runtime.warm import unchanged, warm_up
from gpujit.static_runtime.buckets import buckets_of
from gpujit.static_runtime.module import PlannedGraph
from gpujit.static_runtime.padded import PaddedExecutor
from gpujit.static_runtime.planner import planner_of
from gpujit.static_runtime.report import Benchmark, MemoryReport, NodeTime
from gpujit.static_runtime.run import Arena
from gpujit.static_runtime.steps import Options
from gpujit.support.errors import ArgumentError, LimitError
from gpujit.support.watch import entering, running

# The profiler that sees calls from outside, and the one that lends arenas, or None.
_entering, watched = entering.get, running.get


@dataclass(frozen=True, slots=True)
class StaticModuleOptions(Options):
    """What a StaticModule may do: what Options say, and

    Args:
        manage_output_tensors: a StaticRuntime keeps the arrays of its results, and its next run writes into them: who
            wants to keep a result copies it. A StaticModule itself always makes new ones.
        compile: "ahead", "background" or "never", as for ``optimize_for_inference``.
        strict: raise where a run would fall back to the interpreter.
        buckets: sizes that plans are made for, by dims of inputs, as for ``optimize_for_inference``.
    """

    manage_output_tensors: bool = False
    compile: str = "ahead"
    strict: bool = False
    buckets: Mapping[str | int, Mapping[int, Any]] | None = None


class StaticModule:
    """A module's ``forward``, or a graph, with planned memory. Threads may call it at the same time.

    Plans are made for the kinds of inputs it meets, and kept. A module is frozen first, as if in eval mode, unless it
    is frozen already; it stays as it is.

    Args:
        module_or_graph: a ScriptModule without hooks, or a graph whose inputs are all values to be given.
        options: what may be done.
    Raises ArgumentError for what is neither and for options of wrong values, FreezeError as ``gpujit.freeze`` does.
    """

    def __init__(
        self,
        module_or_graph: ScriptModule | Graph,
        options: StaticModuleOptions = StaticModuleOptions(),  # it is frozen
    ) -> None:
        if not isinstance(options, StaticModuleOptions):
            raise ArgumentError(f"options are StaticModuleOptions; found {describe(options)}")
        check_options(options.threads, options.compile, options.strict, options.weights)
        self.options = options
        if isinstance(module_or_graph, Graph):
            self._target: _Target = _GraphTarget(module_or_graph)
        elif isinstance(module_or_graph, ScriptModule) and module_or_graph._object.type.is_module:
            self._target = _ModuleTarget(module_or_graph)
        else:
            raise ArgumentError(
                "StaticModule expects a ScriptModule, such as gpujit.load returns, or a graph; found "
                f"{describe(module_or_graph)}"
            )
        target = self._target
        sizes = buckets_of(options.buckets, target.inputs())
        kind: Callable[..., Executor] = partial(PaddedExecutor, sizes) if sizes else Executor
        self._executor = kind(
            target.function,
            target.lowerer.rules,
            target.interpret,
            strict=options.strict,
            planner=planner_of(options.compile, options),
            compile=options.compile,
            threads=options.threads,
            is_method=target.is_method,
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments, as ``ScriptMethod.__call__`` gives it; ``out`` is taken as there."""
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self, self.__call__, args, kwargs)
        out = targets_of(kwargs.pop("out")) if "out" in kwargs and not self._target.has_out else None
        return self._target.wrap(self._executor(self._target.bind(args, kwargs), out))

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, out: Any = None) -> Any:
        """The result for arguments given as a tuple and a dict, and arrays for results; see ``__call__``."""
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self, self.run, (args, kwargs, out), {})
        values = self._target.bind(tuple(args), dict(kwargs or {}))
        return self._target.wrap(self._executor(values, None if out is None else targets_of(out)))

    def runtime(self) -> StaticRuntime:
        """A runtime with arenas of its own."""
        return StaticRuntime(self)

    def warmup(self, inputs: Sequence[Any]) -> PlanStats:
        """Make plans for inputs, as ``ScriptModule.warmup``; for a graph, examples are arrays and values."""
        target = self._target
        if isinstance(target, _ModuleTarget):
            return warm_up(self, target.function.schema, target.object, inputs, self.plan_stats)
        for entry in inputs:
            self.run(entry if isinstance(entry, (tuple, list)) else (entry,))
        return self.plan_stats()

    def benchmark(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, warmup_runs: int = 5, main_runs: int = 50
    ) -> Benchmark:
        """What runs on these inputs take, and what each node does (none where they run on the interpreter).

        What the module writes into its attributes is undone. Raises ArgumentError when there would be no run.
        """
        values = self._target.bind(tuple(args), dict(kwargs or {}))
        with self._target.unchanged(values):
            # What padding and cutting take is not part of it.
            given, _ = self._executor.fitted(values)
            plan = self._executor.plan_for(given)
            with self._executor.settings():
                if plan is not None and isinstance(plan.runner, PlannedGraph):
                    return plan.runner.benchmark(given, warmup_runs, main_runs)
            if warmup_runs < 0 or main_runs < 1:
                raise ArgumentError(f"{warmup_runs} runs to warm up and {main_runs} to measure: give at least 0 and 1")
            for _ in range(warmup_runs):
                self._executor(values)
            return Benchmark(tuple(_seconds(partial(self._executor, values)) for _ in range(main_runs)), ())

    def memory_report(self, *args: Any, **kwargs: Any) -> MemoryReport:
        """Where the bytes of a plan go: of that for these inputs, made if need be; without inputs of the one used last.

        Raises ArgumentError when there is no plan.
        """
        if args or kwargs:
            plan = self._executor.plan_for(self._executor.fitted(self._target.bind(args, kwargs))[0])
        else:
            plan = next(reversed(self._executor.plans()), None)
        if plan is None or not isinstance(plan.runner, PlannedGraph):
            why = "; ".join(self._executor.reasons()) or "it was not run yet"
            raise ArgumentError(f"there is no plan of memory for {self._target.function.name}: {why}")
        return plan.runner.report()

    def plan_stats(self) -> PlanStats:
        """Plans made, found and dropped so far."""
        return self._executor.stats()

    def explain(self) -> str:
        """What runs each node of each plan, and why nothing better, as ``ScriptModule.explain``."""
        return self._executor.explain()

    @property
    def graph(self) -> Graph:
        """The graph that plans are made of: frozen, not specialised."""
        return self._target.function.graph


class StaticRuntime:
    """Runs a StaticModule in arenas of its own, for one thread at a time.

    The module's own runs take arenas from a pool; a runtime's are never shared, so their number is the caller's choice.
    """

    def __init__(self, module: StaticModule) -> None:
        if not isinstance(module, StaticModule):
            raise ArgumentError(f"StaticRuntime expects a StaticModule; found {describe(module)}")
        self.module = module
        self._lock = threading.Lock()
        self._arenas: WeakKeyDictionary[PlannedGraph, Arena] = WeakKeyDictionary()
        # Arrays that results are written into, for those who let us keep them.
        self._outputs: WeakKeyDictionary[PlannedGraph, Targets] = WeakKeyDictionary()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments; see StaticModule.__call__. With the option ``manage_output_tensors`` its
        arrays hold until the next run.

        Raises LimitError when another thread runs it just now, besides what the module raises.
        """
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self.module, self.__call__, args, kwargs)
        target = self.module._target
        out = targets_of(kwargs.pop("out")) if "out" in kwargs and not target.has_out else None
        return self._run(target.bind(args, kwargs), out)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, out: Any = None) -> Any:
        """The result for arguments given as a tuple and a dict, and arrays for results; see ``__call__``."""
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self.module, self.run, (args, kwargs, out), {})
        values = self.module._target.bind(tuple(args), dict(kwargs or {}))
        return self._run(values, None if out is None else targets_of(out))

    def _run(self, values: list[Any], out: Targets | None) -> Any:
        if not self._lock.acquire(blocking=False):
            raise LimitError("a StaticRuntime runs one call at a time; make one for each thread")
        try:
            executor = self.module._executor
            given, finish = executor.fitted(values)
            plan = executor.plan_for(given)
            if plan is None or not isinstance(plan.runner, PlannedGraph):
                result = executor(values, out)
            else:
                with executor.settings():
                    result = self._planned(plan.runner, given, None if finish is not None else out)
                if finish is not None:
                    result = finish(result)
                    result = result if out is None else put(result, out)
        finally:
            self._lock.release()
        return self.module._target.wrap(result)

    def _planned(self, runner: PlannedGraph, values: list[Any], out: Targets | None) -> Any:
        if out is None and self.module.options.manage_output_tensors:
            out = self._outputs.get(runner)
            if out is None:
                out = self._outputs[runner] = runner.new_outputs(values)
        if watched() is not None:
            # A profiler lends arenas of its own.
            return runner.run(values, out)
        arena = self._arenas.get(runner)
        if arena is None or not runner.is_current(arena):
            arena = self._arenas[runner] = runner.runtime(values)
        return runner.run_on(arena, values, out)

    def benchmark(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, warmup_runs: int = 5, main_runs: int = 50
    ) -> Benchmark:
        """What runs in this runtime's arena take, and each node; see StaticModule.benchmark."""
        target = self.module._target
        values = target.bind(tuple(args), dict(kwargs or {}))
        if warmup_runs < 0 or main_runs < 1:
            raise ArgumentError(f"{warmup_runs} runs to warm up and {main_runs} to measure: give at least 0 and 1")
        with target.unchanged(values):
            for _ in range(warmup_runs):
                self._run(values, None)
            runs = tuple(_seconds(partial(self._run, values, None)) for _ in range(main_runs))
            return Benchmark(runs, tuple(self.profile(args, kwargs, min(main_runs, 10))))

    def profile(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, runs: int = 10
    ) -> Sequence[NodeTime]:
        """The mean time of each node, the longest first; nothing where the interpreter runs these inputs."""
        target, executor = self.module._target, self.module._executor
        values, _ = executor.fitted(target.bind(tuple(args), dict(kwargs or {})))
        plan: Plan | None = executor.plan_for(values)
        if plan is None or not isinstance(plan.runner, PlannedGraph):
            return ()
        with target.unchanged(values), executor.settings():
            return plan.runner.profile(values, runs)

    def memory_report(self, *args: Any, **kwargs: Any) -> MemoryReport:
        """Where the bytes of a plan go; see StaticModule.memory_report."""
        return self.module.memory_report(*args, **kwargs)

    def release(self) -> None:
        """Give the arenas back; the next run makes new ones."""
        with self._lock:
            self._arenas.clear()
            self._outputs.clear()


def _seconds(call: Any) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


# ----------------------------------------------------------------------------------------------------- what is planned


class _Target:
    """What a StaticModule runs: a function, how its arguments come and its results go."""

    function: Function
    lowerer: Lowerer
    is_method = True
    has_out = False

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Run-time values for arguments. Raises ArgumentError."""
        raise NotImplementedError

    def inputs(self) -> list[tuple[str, T.Type]]:
        """Names and types of the arguments."""
        raise NotImplementedError

    def interpret(self, values: list[Any]) -> Any:
        """The result as the interpreter gives it."""
        raise NotImplementedError

    def wrap(self, result: Any) -> Any:
        """A result as callers see it."""
        return result

    @contextmanager
    def unchanged(self, values: list[Any]) -> Iterator[None]:
        """A block after which inputs and state are as before."""
        with unchanged(values, {}):
            yield


class _ModuleTarget(_Target):
    def __init__(self, module: ScriptModule) -> None:
        object_ = module._object
        device = module._program.device
        if device is not None:
            raise ArgumentError(
                f"StaticModule plans for the CPU, and the module is on {device.name}; use "
                "gpujit.optimize_for_inference, which plans for its device"
            )
        hooks = [*object_.type.forward_pre_hooks, *object_.type.forward_hooks]
        if hooks:
            raise ArgumentError(
                f"StaticModule runs forward alone, and {object_.type.name} has hooks around it: {', '.join(hooks)}; "
                "gpujit.optimize_for_inference runs them too"
            )
        if next(frozen_methods(object_), None) is None:
            modes = [(m, m.get("training")) for _, m in named_modules(object_) if "training" in m.type.slot_of]
            module.eval()
            try:
                module = freeze(module)
            finally:
                for each, mode in modes:
                    each.set("training", mode)
        function = module._object.type.methods.get("forward")
        if function is None:
            raise ArgumentError(f"{object_.type.name} has no method 'forward'")
        self.object, self.function, self._program = module._object, function, module._program
        self.lowerer = module._program.lowerer
        self.has_out = any(a.name == "out" for a in function.schema.arguments)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [self.object, *bind_arguments(self.function.schema, args, kwargs, skip=1)]

    def inputs(self) -> list[tuple[str, T.Type]]:
        return [(a.name, a.type) for a in self.function.schema.arguments[1:]]

    def interpret(self, values: list[Any]) -> Any:
        return self._program.interpret(self.function, values)

    def wrap(self, result: Any) -> Any:
        return wrap(result, self._program)


class _GraphTarget(_Target):
    is_method = False

    def __init__(self, graph: Graph) -> None:
        # A copy: plans must not follow what is done to the graph later.
        graph = graph.copy()

        def no_schema() -> Any:
            raise ArgumentError(f"{graph.name or 'a graph'} has no schema")

        self.function = Function(graph.name or "graph", no_schema, lambda: graph)
        self.lowerer = Lowerer(np)
        self._code = self.lowerer.graph_code(graph)
        self._interpreter = Interpreter(self.lowerer)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return bind_inputs(self.function.graph, args, kwargs)

    def inputs(self) -> list[tuple[str, T.Type]]:
        return [(v.name, v.type) for v in self.function.graph.inputs]

    def interpret(self, values: list[Any]) -> Any:
        with np.errstate(all="ignore"):
            return self._interpreter.run(self._code, values)
