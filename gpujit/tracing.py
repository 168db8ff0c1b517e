"""``gpujit.trace`` and ``gpujit.trace_module``, with torch.jit's names and arguments."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

from gpujit.api import load
from gpujit.frontend.trace.check import Checker
from gpujit.frontend.trace.main import Recording, record
from gpujit.frontend.trace.modules import ModuleTree, State, is_module
from gpujit.frontend.trace.report import Diagnostic, TraceReport
from gpujit.ir.module import Function
from gpujit.modules import ScriptModule
from gpujit.program import Program
from gpujit.scripting import ScriptFunction
from gpujit.support.errors import ArgumentError, TraceError, TracerWarning


class TracedFunction(ScriptFunction):
    """A traced function. ``trace_report`` lists what the trace does not hold."""

    def __init__(self, function: Function, report: TraceReport) -> None:
        super().__init__(function)
        self.trace_report = report

    @property
    def code(self) -> str:
        """The function as an archive would hold it, as ``forward`` of a module."""
        return self._as_module().code

    def __repr__(self) -> str:
        return f"<gpujit.TracedFunction {self.qualified_name}>"


class TracedModule(ScriptModule):
    """A traced module. ``trace_report`` lists what the trace does not hold."""

    trace_report: TraceReport

    def __init__(self, object_: Any, program: Program, report: TraceReport) -> None:
        super().__init__(object_, program)
        object.__setattr__(self, "trace_report", report)


def trace(
    func: Callable[..., Any],
    example_inputs: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = False,
    example_kwarg_inputs: dict[str, Any] | None = None,
) -> Any:
    """Run a function or module on example inputs and return what it did as a TracedFunction or TracedModule.

    What can be traced: functions over NumPy arrays, functions over ``gpujit.ops``, modules, and, through
    torch.jit.trace, what is written with PyTorch. Sizes stay variable. Wherever Python itself takes a number from an
    array or a size, and so what is computed with it is fixed, a TracerWarning names the line, and ``trace_report``
    lists it.

    Args:
        func: a function or a module. What has a graph already comes back as it is.
        example_inputs: a tuple of inputs (arrays, numbers, and tuples, lists and dicts of them), or one array.
        check_trace: run both again and compare: on the same inputs, and on inputs of other sizes.
        check_inputs: tuples of further inputs to compare on.
        check_tolerance: relative difference that is allowed.
        strict: raise TraceError at the first place where the trace would lose something.
        example_kwarg_inputs: inputs that are given by name.
    Raises ArgumentError for inputs that cannot be traced, TraceError for what no graph can hold, TraceCheckError when
    the comparison fails, and whatever the function raises itself.
    """
    if isinstance(func, (ScriptModule, ScriptFunction)):
        # As in PyTorch: it is a graph already.
        return func
    args, kwargs = _inputs(example_inputs, example_kwarg_inputs)
    if _is_torch(func, (args, kwargs)):
        return _trace_torch(func, args, kwargs, check_trace, check_inputs, check_tolerance, strict)
    if is_module(func):
        methods = {"forward": args}
        return _trace_methods(func, methods, kwargs, check_trace, check_inputs, check_tolerance, strict)
    if not callable(func):
        raise ArgumentError(f"trace expects a function or a module; found a {type(func).__name__}")
    name = getattr(func, "__name__", type(func).__name__)
    qualified = f"__torch__.{name if name.isidentifier() else 'traced'}"
    recording = record(func, args, kwargs, name=qualified, strict=strict)
    traced = TracedFunction(recording.function, recording.report)
    if check_trace:
        Checker(
            recording,
            plain=lambda a, k: func(*a, **k),
            run=lambda a, k: traced(*a, **k),
            again=lambda a, k: record(func, a, k, name=qualified, warn=False),
            tolerance=check_tolerance,
            strict=strict,
        ).check(args, kwargs, [_inputs(i, None)[0] for i in check_inputs or ()])
    return traced


def trace_module(
    mod: Any,
    inputs: dict[str, Any],
    check_trace: bool = True,
    check_inputs: Sequence[dict[str, Any]] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = False,
    example_inputs_is_kwarg: bool = False,
) -> Any:
    """Trace several methods of a module and return them as one TracedModule.

    Args:
        mod: a module.
        inputs: for each method by name a tuple of example inputs, or one array; dicts of inputs by name when
            ``example_inputs_is_kwarg``.
        check_inputs: dicts as ``inputs``, to compare on.
    The other arguments, and what is raised, are as for ``trace``.
    """
    if not isinstance(inputs, dict) or not inputs:
        raise ArgumentError("trace_module expects a dict from names of methods to their example inputs")
    if _is_torch(mod, tuple(inputs.values())):
        torch = sys.modules["torch"]
        traced = torch.jit.trace_module(
            mod, inputs, check_trace=check_trace, check_tolerance=check_tolerance,
            example_inputs_is_kwarg=example_inputs_is_kwarg,
        )  # fmt: skip
        return _loaded(traced, TraceReport())
    if isinstance(mod, ScriptModule):
        raise ArgumentError(f"{mod._object.type.name} has graphs already; trace_module expects a module that has none")
    if not is_module(mod):
        raise ArgumentError(f"trace_module expects a module; found a {type(mod).__name__}")
    for name in inputs:
        if not callable(getattr(mod, name, None)):
            raise ArgumentError(f"{type(mod).__name__} has no method {name!r} to trace")
    return _trace_methods(
        mod, inputs, {}, check_trace, check_inputs, check_tolerance, strict, named=example_inputs_is_kwarg
    )


def _trace_methods(
    mod: Any,
    inputs: dict[str, Any],
    kwargs: dict[str, Any],
    check_trace: bool,
    check_inputs: Sequence[Any] | None,
    tolerance: float,
    strict: bool,
    *,
    named: bool = False,
) -> TracedModule:
    tree, report = ModuleTree(mod), TraceReport()
    program = Program(np)
    traced = TracedModule(tree.root.object, program, report)
    for name, given in inputs.items():
        args, by_name = ((), dict(given)) if named else _inputs(given, kwargs)
        function = mod if name == "forward" and callable(mod) else getattr(mod, name)
        make = partial(record, function, name=name, method=name)
        recording = make(args, by_name, tree=tree, strict=strict)
        if check_trace:
            others = [c[name] if isinstance(c, dict) else c for c in check_inputs or ()]
            _check_method(mod, tree, recording, traced, name, args, by_name, others, tolerance, strict)
        for diagnostic in recording.report:
            report.add(diagnostic)
    return traced


def _check_method(
    mod: Any,
    tree: ModuleTree,
    recording: Recording,
    traced: TracedModule,
    name: str,
    args: Any,
    kwargs: Any,
    others: Sequence[Any],
    tolerance: float,
    strict: bool,
) -> None:
    function = mod if name == "forward" and callable(mod) else getattr(mod, name)

    def kept(call: Callable[[], Any]) -> Any:
        # Runs may write buffers, which all of them share.
        state = State(tree)
        try:
            return call()
        finally:
            state.restore()

    Checker(
        recording,
        plain=lambda a, k: kept(lambda: function(*a, **k)),
        run=lambda a, k: kept(lambda: getattr(traced, name)(*a, **k)),
        again=lambda a, k: record(function, a, k, name=name, method=name, tree=ModuleTree(mod), warn=False),
        tolerance=tolerance,
        strict=strict,
    ).check(args, kwargs, [_inputs(i, None)[0] for i in others])


def _inputs(example_inputs: Any, kwargs: dict[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments, in the forms that torch.jit.trace takes."""
    if example_inputs is None:
        if kwargs is None:
            raise ArgumentError("trace needs example_inputs, or example_kwarg_inputs")
        return (), dict(kwargs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), dict(kwargs or {})
    return (example_inputs,), dict(kwargs or {})


# ------------------------------------------------------------------------------------------------------ PyTorch


def _is_torch(func: Any, inputs: Any) -> bool:
    """Whether something of PyTorch is to be traced; it can only be if the user has imported it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    return isinstance(func, torch.nn.Module) or _holds(inputs, torch.Tensor)


def _holds(value: Any, kind: type) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return any(_holds(v, kind) for v in value) if isinstance(value, (tuple, list)) else isinstance(value, kind)


def _trace_torch(
    func: Any, args: Any, kwargs: Any, check_trace: bool, check_inputs: Any, tolerance: float, strict: bool
) -> Any:
    """Trace with PyTorch, and load what it wrote. Its warnings become ours."""
    torch = sys.modules["torch"]
    report = TraceReport()
    options: dict[str, Any] = {"check_trace": check_trace, "check_tolerance": tolerance, "strict": False}
    if check_inputs is not None:
        options["check_inputs"] = [_to_torch(torch, tuple(_inputs(i, None)[0])) for i in check_inputs]
    if kwargs:
        options["example_kwarg_inputs"] = _to_torch(torch, kwargs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traced = torch.jit.trace(func, _to_torch(torch, tuple(args)) if args or not kwargs else None, **options)
        result = _loaded(traced, report)
    for warning in caught:
        if not issubclass(warning.category, torch.jit.TracerWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            continue
        text = str(warning.message).split("\n")[0]
        report.add(Diagnostic("number", text, None))
        if strict:
            raise TraceError(f"strict tracing: {text}", where=f"  {warning.filename}:{warning.lineno}")
        warnings.warn_explicit(text, TracerWarning, warning.filename, warning.lineno)
    return result


def _to_torch(torch: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, dict):
        return {k: _to_torch(torch, v) for k, v in value.items()}
    return type(value)(_to_torch(torch, v) for v in value) if isinstance(value, (tuple, list)) else value


def _loaded(traced: Any, report: TraceReport) -> TracedModule:
    file = BytesIO()
    sys.modules["torch"].jit.save(traced, file)
    module = load(file.getvalue())
    return TracedModule(module._object, module._program, report)
