"""Tracing: run a function on example inputs, and keep the graph of what it did."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpujit.frontend.trace.current import CURRENT
from gpujit.frontend.trace.methods import drop_unread, function_of, make_method, tidy
from gpujit.frontend.trace.modules import ModuleTree, is_module, placed
from gpujit.frontend.trace.numpy_calls import Call
from gpujit.frontend.trace.numpy_create import recorded
from gpujit.frontend.trace.report import TraceReport
from gpujit.frontend.trace.state import Traced, Tracer, root
from gpujit.ir import types as T
from gpujit.ir.dtypes import is_tensor_dtype
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.source import SourceRange
from gpujit.ir.values import Device
from gpujit.ops import calls, table
from gpujit.passes.analysis.effects import is_active
from gpujit.support.errors import ArgumentError, TraceError

_NUMBERS: dict[type, T.Type] = {bool: T.BOOL, int: T.INT, float: T.FLOAT}


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a recording as two recordings compare it: operands by number, a constant by value."""

    kind: str
    operands: tuple[int, ...]
    constant: Any
    place: SourceRange | None


@dataclass(slots=True)
class Recording:
    """What one run left: the function made of it, what was lost, the steps, and what the run returned."""

    function: Function
    report: TraceReport
    steps: list[Step] = field(default_factory=list)
    returned: Any = None
    is_random: bool = False


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """A name for each positional argument, those of the signature as far as it has them."""
    found: list[str] = []
    if is_module(function):
        function = getattr(function, "forward", function)
    try:
        for p in inspect.signature(function).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                found.append(p.name)
    except (TypeError, ValueError):
        pass
    return (found + [f"argument_{i}" for i in range(len(found), count)])[:count]


def record(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    name: str,
    tree: ModuleTree | None = None,
    method: str = "forward",
    strict: bool = False,
    warn: bool = True,
) -> Recording:
    """Run a function on example inputs and record it.

    Args:
        args, kwargs: arrays, Python numbers, and tuples, lists and dicts of them; the function gets copies.
        name: of the function in the IR.
        tree: the module that the function is a method of; the method is added to its class as ``method``.
        strict, warn: as for Tracer.
    Raises ArgumentError for inputs that cannot be traced, TraceError for what no graph can hold, and whatever the
    function raises itself.
    """
    tracer = Tracer(method if tree is not None else name.rpartition(".")[2], strict=strict, warn=warn)
    token = CURRENT.set(tracer)
    try:
        returned = _run(tracer, function, args, kwargs or {}, tree)
        graph = tracer.graph
        tracer.close()
        _list_leaks(tracer)
        drop_unread(graph)
        steps = _steps(graph)
        is_random = any(_is_random(node) for node in graph.nodes)
        if tree is not None:
            made = make_method(graph, tracer.scope_of, tree, method)
        else:
            tidy(graph)
            made = function_of(graph, name)
        return Recording(made, tracer.report, steps, returned, is_random)
    finally:
        tracer.closed = True
        CURRENT.reset(token)


def _run(
    tracer: Tracer, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], tree: ModuleTree | None
) -> Any:
    names = parameter_names(function, len(args))
    given = [_input(tracer, v, n) for v, n in zip(args, names, strict=True)]
    named = {k: _input(tracer, v, k) for k, v in kwargs.items()}

    def recorder(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tracer.call(name, args, kwargs)

    with ExitStack() as stack:
        stack.enter_context(recorded())
        stack.enter_context(calls.recording(recorder))
        if tree is not None:
            stack.enter_context(placed(tracer, tree))
        result = function(*given, **named)
        tracer.graph.add_output(_output(tracer, result))
        return tracer.concrete(result)


# ------------------------------------------------------------------------------------------------------- inputs


def input_type(value: Any, name: str) -> T.Type:
    """The type of an example input. Raises ArgumentError for what cannot be traced."""
    if type(value) in _NUMBERS:
        return _NUMBERS[type(value)]
    if value is None:
        return T.NONE
    if isinstance(value, tuple):
        return T.TupleType(tuple(input_type(v, f"{name}[{i}]") for i, v in enumerate(value)))
    if isinstance(value, list):
        return T.ListType(_one_type([input_type(v, f"{name}[{i}]") for i, v in enumerate(value)], name))
    if isinstance(value, dict):
        keys = {type(k) for k in value}
        if keys not in ({str}, {int}):
            raise ArgumentError(f"example input {name}: the keys of a dict have to be all str or all int")
        key = T.STR if keys == {str} else T.INT
        return T.DictType(key, _one_type([input_type(v, f"{name}[{k!r}]") for k, v in value.items()], name))
    array = _array(value)
    if array is None:
        raise ArgumentError(
            f"example input {name} is a {type(value).__name__}; traced are arrays, numbers, and tuples, lists and "
            "dicts of them. Bind everything else beforehand, with functools.partial or a lambda"
        )
    if not is_tensor_dtype(array.dtype):
        raise ArgumentError(f"example input {name} has the dtype {array.dtype}, which tensors cannot have")
    return T.TENSOR


def _array(value: Any) -> Any:
    if isinstance(value, (str, bytes, type)) or callable(value):
        return None
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        array = np.asarray(value)
        return array.astype(array.dtype.newbyteorder("=")) if array.dtype.isnative is False else array
    return None


def _one_type(types: list[T.Type], name: str) -> T.Type:
    if not types or any(t != types[0] for t in types):
        raise ArgumentError(f"example input {name}: its elements have to be there, and of one type; use a tuple")
    return types[0]


def _input(tracer: Tracer, value: Any, name: str) -> Any:
    type_ = input_type(value, name)
    if type_ == T.NONE:
        tracer.graph.add_input(type_, name)
        return None
    return _unpacked(tracer, value, tracer.graph.add_input(type_, name), type_)


def _unpacked(tracer: Tracer, value: Any, node_value: Value, type_: T.Type) -> Any:
    """An input as the function gets it: containers are its own, what is in them is traced."""
    if isinstance(type_, T.TensorType):
        array = np.array(_array(value), order="K", subok=False)
        tracer.own_input(array)
        return tracer.wrap(array, node_value, type_)
    if isinstance(type_, T.TupleType):
        node = tracer.node("prim::TupleUnpack", [node_value])
        parts = [
            None if t == T.NONE else _unpacked(tracer, v, o, t)
            for v, t in zip(value, type_.elements, strict=True)
            for o in [node.add_output(t)]
        ]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(type_, T.ListType):
        node = tracer.node("prim::ListUnpack", [node_value])
        return [_unpacked(tracer, v, node.add_output(type_.element), type_.element) for v in value]
    if isinstance(type_, T.DictType):
        return {k: _unpacked(tracer, v, tracer.entry(node_value, k, type_), type_.value) for k, v in value.items()}
    return tracer.wrap(value, node_value, type_)


# ------------------------------------------------------------------------------------------------------ outputs


def _output(tracer: Tracer, value: Any) -> Value:
    """The graph's value of what the function returned. Raises TraceError for what a graph cannot return."""
    if isinstance(value, Traced):
        if isinstance(value._concrete, np.ndarray):
            tracer.returned.append(root(value._concrete))
        return tracer.value(value)
    if isinstance(value, tuple):
        parts = [_output(tracer, v) for v in value]
        return tracer.node("prim::TupleConstruct", parts).add_output(T.TupleType(tuple(p.type for p in parts)))
    if isinstance(value, list):
        parts = [_output(tracer, v) for v in value]
        if any(p.type != parts[0].type for p in parts):
            raise TraceError("a list of unlike values is returned; return a tuple")
        return tracer.node("prim::ListConstruct", parts).add_output(T.ListType(parts[0].type if parts else T.TENSOR))
    if isinstance(value, dict):
        return _dict_output(tracer, value)
    if isinstance(value, (np.ndarray, np.generic)):
        tracer.lost("constant", "an array that is returned does not depend on the inputs")
        return Call(tracer, "return").tensor(np.asarray(value))._value  # type: ignore[no-any-return]
    if value is None or isinstance(value, (bool, int, float, complex, str, Device)):
        if value is not None:
            tracer.lost("constant", f"{value!r} is returned")
        return tracer.scalar(value)
    raise TraceError(
        f"the function returns a {type(value).__name__}; traced functions return arrays, numbers, and tuples, lists "
        "and dicts of them"
    )


def _dict_output(tracer: Tracer, value: dict[Any, Any]) -> Value:
    kinds = {type(k) for k in value}
    if kinds not in ({str}, {int}):
        raise TraceError("a dict is returned whose keys are not all str or all int")
    tracer.lost("container", f"a dict with the keys {', '.join(map(repr, value))}")
    parts = {k: _output(tracer, v) for k, v in value.items()}
    types = [p.type for p in parts.values()]
    if any(t != types[0] for t in types):
        raise TraceError("a dict of unlike values is returned; return a tuple")
    inputs = [v for k, p in parts.items() for v in (tracer.scalar(k), p)]
    key = T.STR if kinds == {str} else T.INT
    return tracer.node("prim::DictConstruct", inputs).add_output(T.DictType(key, types[0]))


# -------------------------------------------------------------------------------------------------------- after


def _list_leaks(tracer: Tracer) -> None:
    if tracer.leaked():
        # Cycles hold on to values that nobody can reach any more.
        gc.collect()
    places: set[str] = set()
    for found in tracer.leaked():
        where = str(found._place)
        if where not in places:
            places.add(where)
            tracer.lost("leak", f"{type(found).__name__} {_shown(found._concrete)}", found._place)


def _shown(concrete: Any) -> str:
    return f"{concrete.dtype}{list(concrete.shape)}" if isinstance(concrete, np.ndarray) else repr(concrete)


def _is_random(node: Node) -> bool:
    op = None if node.schema is None else table.by_full_name(node.schema.full_name)
    return op is not None and op.random and is_active(node, op)


def _steps(graph: Graph) -> list[Step]:
    number = {v: i for i, v in enumerate(graph.inputs)}
    steps = []
    for node in graph.nodes:
        for v in node.outputs:
            number[v] = len(number)
        steps.append(Step(node.kind, tuple(number[v] for v in node.inputs), node.attributes.get("value"), _place(node)))
    return steps


def _place(node: Node) -> SourceRange | None:
    """Where a node comes from; for a constant, where it is used first."""
    if node.kind == "prim::Constant" and node.outputs[0].uses:
        return node.outputs[0].uses[0].node.source or node.source
    return node.source
