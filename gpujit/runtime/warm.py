"""Warming up: calls on examples whose effects on the module, its inputs and random numbers are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.arrays import describe
from gpujit.ir.dtypes import is_tensor_dtype
from gpujit.ir.saved import Saved
from gpujit.ir.schema import Schema
from gpujit.ir.values import ScriptObject
from gpujit.ops.generator import DEFAULT
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.values import declaration
from gpujit.support.errors import ArgumentError

# Calls on one example: each may leave the module in a state that another plan is for.
MAX_CALLS = 8

_at_once: ContextVar[bool] = ContextVar("gpujit_plans_at_once", default=False)
# Whether plans are made before a call returns, whatever their executor does otherwise.
are_plans_made_at_once: Callable[[], bool] = _at_once.get


def warm_up(
    call: Callable[..., Any], schema: Schema, root: ScriptObject, inputs: Sequence[Any], stats: Callable[[], PlanStats]
) -> PlanStats:
    """Call a method on examples until no new plans are made; ``stats()`` then.

    Args:
        call: runs it.
        schema: its signature, ``self`` first.
        root: the module whose state stays as it is.
        inputs: an entry for each kind of inputs (``example_of``).
    Raises ArgumentError for entries that are none, and what calls raise; the state is as before then too.
    """
    if not isinstance(inputs, (list, tuple)):
        raise ArgumentError(f"warmup takes a list with an entry for each kind of inputs, found {describe(inputs)}")
    with plans_made_at_once():
        for i, entry in enumerate(inputs):
            args, kwargs = example_of(schema, entry, i)
            call_until_planned(call, root, args, kwargs, stats)
    return stats()


@contextmanager
def plans_made_at_once() -> Iterator[None]:
    """A block in which plans are made before a call returns."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


def call_until_planned(
    call: Callable[..., Any],
    root: ScriptObject,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stats: Callable[[], PlanStats],
) -> None:
    """Call a method on an example until that makes no new plan, and undo what it does. Raises what calls raise."""
    with unchanged([root, *args], kwargs):
        for _ in range(MAX_CALLS):
            before = stats().made
            call(*args, **kwargs)
            if stats().made == before:
                break


def example_of(schema: Schema, entry: Any, number: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for an entry: a tuple with something for each argument, or a dict by name.

    For a tensor that is an array, a shape (of float32), or a pair of shape and dtype; other arguments are given as they
    are. An array or shape alone stands for a tuple of it. Raises ArgumentError.
    """
    arguments = schema.arguments[1:]
    is_tensor = bool(arguments) and _plain(arguments[0].type) == T.TENSOR
    if not isinstance(entry, (tuple, list, dict)) or (is_tensor and entry and _is_shape(entry)):
        entry = (entry,)
    if isinstance(entry, dict):
        types = {a.name: a.type for a in arguments}
        return [], {k: _value(v, types.get(k, T.ANY), number) for k, v in entry.items()}
    if len(entry) > len(arguments):
        raise ArgumentError(
            f"warmup, entry {number}: {len(entry)} values for {len(arguments)} arguments. "
            f"Declaration: {declaration(schema, 1)}"
        )
    return [_value(v, a.type, number) for v, a in zip(entry, arguments, strict=False)], {}


def _plain(t: T.Type) -> T.Type:
    return t.element if isinstance(t, T.OptionalType) else t


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(n) is int for n in value)


def _value(value: Any, t: T.Type, number: int) -> Any:
    """A value for an argument of this type."""
    t = _plain(t)
    if isinstance(t, T.ListType) and isinstance(value, (list, tuple)):
        return [_value(v, t.element, number) for v in value]
    if isinstance(t, T.TupleType) and isinstance(value, (list, tuple)) and len(value) == len(t.elements):
        return tuple(_value(v, e, number) for v, e in zip(value, t.elements, strict=True))
    if not isinstance(t, T.TensorType):
        return value
    shape: Any = value
    dtype: np.dtype = np.dtype(np.float32)
    if isinstance(value, (tuple, list)) and len(value) == 2 and _is_shape(value[0]):
        shape = value[0]
        try:
            dtype = np.dtype(value[1])
        except TypeError:
            raise ArgumentError(f"warmup, entry {number}: {value[1]!r} is no dtype") from None
        if not is_tensor_dtype(dtype):
            raise ArgumentError(f"warmup, entry {number}: tensors cannot have the dtype {dtype}")
    if not _is_shape(shape):
        return value
    if any(n < 0 for n in shape):
        raise ArgumentError(f"warmup, entry {number}: {list(shape)} is no shape")
    return np.zeros(shape, dtype)


# ------------------------------------------------------------------------------------------------------------- state


@contextmanager
def unchanged(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """A block after which arguments (objects among them) and the default generator are what they were before.

    Arrays are the same objects with the same numbers; so are lists and dicts. Other threads that use them meanwhile see
    what the block does, and lose what they do.
    """
    saved = Saved([*args, *kwargs.values()])
    numbers = DEFAULT.state()
    try:
        yield
    finally:
        DEFAULT.restore(numbers)
        saved.restore()
