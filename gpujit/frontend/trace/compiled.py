"""Calls of compiled functions and methods in a trace: they stay calls, with their loops, branches and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpujit.frontend.trace.current import CURRENT
from gpujit.frontend.trace.numpy_calls import traced_in
from gpujit.frontend.trace.state import Traced, Tracer
from gpujit.ir import types as T
from gpujit.ir.graph import Value
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.ir.values import ScriptObject
from gpujit.ops import calls
from gpujit.passes.analysis.effects import has_own_effect, inner_nodes
from gpujit.support.errors import ArgumentError

# Stands in the flat graph for a call of a compiled module's method; ``methods`` makes prim::CallMethod of it.
CALL_METHOD = "trace::call_method"

Run = Callable[[list[Any]], Any]


def call_function(tracer: Tracer, function: Function, args: Sequence[Any], kwargs: dict[str, Any], run: Run) -> Any:
    """Record a call of a compiled function.

    Args:
        run: runs it on this run's values, without what is traced.
    Raises ArgumentError for arguments that do not fit, TraceError for a result that no trace can hold, and what the
    function raises.
    """
    values, inputs = _given(tracer, function.schema, args, kwargs, 0)
    target = tracer.function(function)
    output = tracer.node("prim::CallFunction", [target, *inputs]).add_output(_returned(function))
    return _result(tracer, function, values, run, output)


def call_method(
    tracer: Tracer, module: ScriptObject, function: Function, args: Sequence[Any], kwargs: dict[str, Any], run: Run
) -> Any:
    """Record a call of a method of a compiled module, which has to be below what is traced.

    Raises TraceError when it is not, else as ``call_function``.
    """
    part = None if tracer.tree is None else tracer.tree.part_of(module)
    if part is None:
        raise tracer.error(
            f"{function.name} is called, but its module is no part of what is traced. Make it a submodule, which keeps "
            "its parameters: set it as an attribute of a gpujit.nn.Module, and trace that"
        )
    values, inputs = _given(tracer, function.schema, args, kwargs, 1)
    node = tracer.node(CALL_METHOD, inputs, {"part": part, "name": function.short_name})
    return _result(tracer, function, values, run, node.add_output(_returned(function)))


def arguments(schema: Schema, args: Sequence[Any], kwargs: dict[str, Any], skip: int) -> list[Any]:
    """An argument for each parameter after the first ``skip``: given by place, by name, or the default.

    Raises ArgumentError for too many, too few or unknown ones.
    """
    formals = schema.arguments[skip:]
    rest = formals[len(args) :]
    unknown = [k for k in kwargs if k not in [a.name for a in rest]]
    missing = [a.name for a in rest if a.name not in kwargs and not a.has_default]
    if len(args) > len(formals) or unknown or missing:
        names = ", ".join(a.name for a in formals)
        raise ArgumentError(f"{schema.name}() takes ({names}); found {len(args)} arguments and {list(kwargs)}")
    return [*args, *(kwargs.get(a.name, a.default) for a in rest)]


def _given(
    tracer: Tracer, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any], skip: int
) -> tuple[list[Any], list[Value]]:
    """The arguments of a call, and the graph's values of them."""
    formals = [a.type for a in schema.arguments[skip:]]
    values = [
        _as_float(tracer, v) if t == T.FLOAT else v
        for v, t in zip(arguments(schema, args, kwargs, skip), formals, strict=True)
    ]
    return values, [tracer.value(v, t) for v, t in zip(values, formals, strict=True)]


def _as_float(tracer: Tracer, value: Any) -> Any:
    """An int where a float is wanted, which Python callers may give."""
    if isinstance(value, Traced):
        return tracer.call("aten::Float", (value,)) if value._value.type == T.INT else value
    return float(value) if type(value) is int else value


def _returned(function: Function) -> T.Type:
    return function.schema.returns[0].type


def _result(tracer: Tracer, function: Function, values: list[Any], run: Run, output: Value) -> Any:
    """What a call gives in this run, as the traced function sees it."""
    if not _can_hold(output.type):
        raise tracer.error(
            f"{function.name} returns a {output.type.annotation()}; a trace holds tensors, numbers, and tuples, lists "
            "and dicts of them. Let it return those"
        )
    arrays = traced_in(values)
    before = [v._concrete.tobytes() for v in arrays]
    with suspended():
        result = run([tracer.concrete(v) for v in values])
    if may_write(function):
        tracer.has_writes = True
    for value, old in zip(arrays, before, strict=True):
        if value._concrete.tobytes() != old:
            tracer.wrote(value)
    return tracer.wrap(result, output, output.type)


def _can_hold(type_: T.Type) -> bool:
    if isinstance(type_, T.TupleType):
        return all(map(_can_hold, type_.elements))
    if isinstance(type_, (T.ListType, T.OptionalType)):
        return _can_hold(type_.element)
    if isinstance(type_, T.DictType):
        return type_.key in (T.STR, T.INT) and _can_hold(type_.value)
    return isinstance(type_, T.TensorType) or type_ in (T.INT, T.FLOAT, T.BOOL, T.NUMBER, T.NONE)


@contextmanager
def suspended() -> Iterator[None]:
    """While it lasts nothing is recorded: compiled code may call Python's."""
    token = CURRENT.set(None)
    try:
        with calls.recording(calls.run):
            yield
    finally:
        CURRENT.reset(token)


def may_write(function: Function) -> bool:
    """Whether a function, or one that it calls, may write into memory of its arguments."""
    pending, seen = [function], set()
    while pending:
        current = pending.pop()
        if id(current) in seen or not current.has_body:
            continue
        seen.add(id(current))
        for outer in current.graph.nodes:
            for node in (outer, *inner_nodes(outer)):
                if node.kind == "prim::CallFunction" and isinstance(node.inputs[0].constant(), Function):
                    pending.append(node.inputs[0].constant())
                elif node.kind == "prim::CallMethod":
                    owner = node.inputs[0].type
                    found = getattr(owner, "methods", {}).get(node.attributes["name"])
                    if found is None or not found.has_body:
                        return True
                    pending.append(found)
                elif has_own_effect(node):
                    return True
    return False
