"""What a program's constructs do when they run, as plain functions that the code calls like operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.values import EnumValue, Future, QTensor, ScriptObject
from gpujit.ops.families.language.containers import dict_key
from gpujit.runtime.values import convert_attribute
from gpujit.support.errors import GpujitError, UnknownOperatorError


def unknown_operator(name: str, types: Sequence[str], *_: Any) -> Any:
    """Raises UnknownOperatorError: a file may hold operators that it never reaches."""
    raise UnknownOperatorError(
        f"operator {name} has no entry in the table (called with {', '.join(types) or 'no arguments'}); "
        "declare it with gpujit.op, or see 'gpujit inspect' for all that are missing"
    )


def quantised(fn: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, or ``rule`` when an argument is a quantised tensor or a list with one."""

    def call(*args: Any) -> Any:
        for x in args:
            if type(x) is QTensor or (type(x) is list and any(type(v) is QTensor for v in x)):
                return rule(*args)
        return fn(*args)

    return call


def tuple_index(value: tuple[Any, ...], index: int) -> Any:
    """One element."""
    return value[index]


def tuple_slice(start: int, stop: int, value: tuple[Any, ...]) -> Any:
    """A part of a tuple."""
    return tuple(value[start:stop])


def make_dict(*items: Any) -> dict[Any, Any]:
    """A dict of keys and values in turn."""
    return dict(zip(map(dict_key, items[::2]), items[1::2], strict=True))


def create_object(type_: T.ClassType) -> ScriptObject:
    """An object of a class whose attributes are not set yet."""
    return ScriptObject(type_, [None] * len(type_.attributes))


def enum_name(value: EnumValue) -> str:
    """The member's name."""
    return value.name


def enum_value(value: EnumValue) -> Any:
    """The member's value."""
    return value.value


def wait(future: Any) -> Any:
    """What a task returned; raises what it raised."""
    if future.error is not None:
        # A copy, since every failing wait adds its own place.
        error = copy(future.error)
        if isinstance(error, GpujitError):
            error.frames = list(error.frames)
        raise error
    return future.value


def call_python(call: Callable[..., Any], name: str, type_: T.Type, *args: Any) -> Any:
    """What a function left to Python returns, as a value of its declared type."""
    return convert_attribute(call(*args), type_, name, "the result")


def nowait(value: Any) -> Any:
    """A future that has its value."""
    return Future(value)
