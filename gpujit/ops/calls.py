"""Operators as functions: ``gpujit.ops.relu(x)`` finds the overload that its arguments mean, and runs it on NumPy.

The names are PyTorch's: ``gpujit.ops.softmax`` is ``aten::softmax``, ``gpujit.ops.linalg.norm`` is
``aten::linalg_norm``, and ``gpujit.ops.my.thing`` is ``my::thing``, declared with ``gpujit.op``. Overloads are resolved
as TorchScript resolves them, so a function written with these names means the same when it is run, traced and scripted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.arrays import Misfit, as_array
from gpujit.ir.dtypes import BY_NAME, code_of, is_tensor_dtype
from gpujit.ir.values import Device, QTensor, SparseTensor
from gpujit.ops import overloads, table
from gpujit.ops.registry import Op
from gpujit.support.errors import ArgumentError, UnknownOperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

# PyTorch's namespaces of Python functions whose operators carry the namespace in their name.
PREFIXES = ("linalg", "fft", "special")

Recorder = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
_RECORDER: ContextVar[Recorder | None] = ContextVar("gpujit.ops recorder", default=None)
_SIMPLE: dict[type, T.Type] = {
    bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STR, type(None): T.NONE, Device: T.DEVICE,
    np.ndarray: T.TENSOR, QTensor: T.TENSOR, SparseTensor: T.TENSOR,
}  # fmt: skip

# Which overload calls meant, by the overloads there are and the arguments' types: to find it takes longer than to run a
# small operator.
_FOUND: dict[Any, tuple[Op, overloads.Match]] = {}
MAX_FOUND = 4096


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """While it lasts, calls in this thread go to ``recorder(name, args, kwargs)``, which gives their result.

    ``name`` is the operator's, ``aten::relu``. The recorder may call ``run`` itself.
    """
    token = _RECORDER.set(recorder)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
    """The result of an operator: an array, a Python value, or a tuple of them.

    Args:
        name: ``aten::relu``; which overload is meant follows from the arguments.
        args, kwargs: tensors are NumPy arrays, or anything with ``__array__``; dtypes are NumPy's or PyTorch's names of
            theirs (``dtype="bfloat16"``); everything else is as in PyTorch.
    Raises UnknownOperatorError for a name that is not in the table, ArgumentError for arguments that fit no overload
    (it lists them with the reason why each does not fit), and OpError where the operator refuses what it was given.
    """
    recorder = _RECORDER.get()
    return run(name, args, kwargs) if recorder is None else recorder(name, args, kwargs)


def run(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What ``call`` does when nothing records."""
    op, values = bind(name, args, kwargs)
    with np.errstate(all="ignore"):
        return op.kernel(np)(*values)


def bind(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Op, list[Any]]:
    """The overload that a call means, and a run-time value for each of its parameters. Raises as ``call`` does."""
    values, named = [plain(v) for v in args], {k: keyword(k, v) for k, v in kwargs.items()}
    op, match = find(name, values, named)
    return op, [step_value(step, [*values, *named.values()]) for step in match.steps]


def find(name: str, values: Sequence[Any], named: dict[str, Any]) -> tuple[Op, overloads.Match]:
    """The overload that a call with these run-time values means, and how they get to its parameters.

    Raises as ``call`` does.
    """
    candidates = table.by_name(name)
    if not candidates:
        raise UnknownOperatorError(f"there is no operator {name}; docs/operators.md lists them")
    types, named_types = tuple(map(type_of, values)), {k: type_of(v) for k, v in named.items()}
    # Operators may be declared and removed between two calls.
    key = tuple(candidates), types, tuple(named_types.items())
    known = _FOUND.get(key)
    if known is not None:
        return known
    found = overloads.resolve(candidates, types, named_types)
    if not isinstance(found, overloads.Match):
        reasons = "\n".join(f"  {schema}\n    {reason}" for schema, reason in found)
        raise ArgumentError(f"{name}: the arguments fit none of its overloads\n{reasons}")
    op = table.by_full_name(found.schema.full_name)
    assert op is not None
    if len(_FOUND) >= MAX_FOUND:
        _FOUND.clear()
    _FOUND[key] = op, found
    return op, found


def plain(value: Any) -> Any:
    """An argument as a run-time value: arrays for tensors, codes for dtypes, lists and tuples of them."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if kind in (list, tuple):
        return kind(map(plain, value))
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return _dtype_code(np.dtype(value))
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return BY_NAME[str(value).removeprefix("torch.")].code
    if hasattr(value, "__index__") and not hasattr(value, "__array__"):
        return int(value)
    try:
        return as_array(value)
    except Misfit as e:
        raise ArgumentError(f"a {kind.__name__} cannot be an argument of an operator: {e}") from None


def type_of(value: Any) -> T.Type:
    """The TorchScript type of a run-time value; a list has the type that all its elements can be given.

    Raises ArgumentError for a value that has none: an object of a foreign class, or a list of unlike elements.
    """
    kind = type(value)
    found = _SIMPLE.get(kind)
    if found is not None:
        if kind is np.ndarray and not is_tensor_dtype(value.dtype):
            raise ArgumentError(f"an array of dtype {value.dtype} cannot be a tensor")
        return found
    if kind is tuple:
        return T.TupleType(tuple(map(type_of, value)))
    if kind is list:
        element: T.Type = T.UNKNOWN
        for i, v in enumerate(value):
            t = type_of(v)
            joint = t if i == 0 else T.unify(element, t)
            if joint is None:
                raise ArgumentError(f"a list of {element} cannot hold the {t} at index {i}")
            element = joint
        return T.ListType(element)
    raise ArgumentError(f"a {kind.__name__} cannot be an argument of an operator")


def keyword(name: str, value: Any) -> Any:
    """As ``plain``; ``dtype`` takes names, too, which elsewhere are strings."""
    if name.endswith("dtype") and isinstance(value, str):
        known = BY_NAME.get(value)
        if known is None:
            raise ArgumentError(f"{name}={value!r} is no dtype; known are {', '.join(BY_NAME)}")
        return known.code
    if name == "dtype" and value in (bool, int, float, complex):
        return _dtype_code(np.dtype(np.float32 if value is float else np.complex64 if value is complex else value))
    return plain(value)


def _dtype_code(dtype: np.dtype) -> int:
    if not is_tensor_dtype(dtype):
        raise ArgumentError(f"tensors cannot have the dtype {dtype}")
    return code_of(dtype)


def step_value(step: overloads.Step, values: list[Any]) -> Any:
    """What one parameter gets."""
    if step.kind == "default":
        return list(step.default) if isinstance(step.default, list) else _default(step)
    value = values[step.index]
    if step.kind == "convert":
        entry = table.by_full_name(step.op)
        assert entry is not None
        return entry.kernel(np)(value)
    if step.kind == "repeat":
        return [value] * step.count
    if step.kind == "pack":
        return values[step.index : step.index + step.count]
    return list(value) if step.kind == "unpack" else value


def _default(step: overloads.Step) -> Any:
    wanted = step.type.element if isinstance(step.type, T.OptionalType) else step.type
    if isinstance(step.default, str) and wanted == T.INT:
        # Schemas name a dtype that is a default.
        return BY_NAME[step.default].code if step.default in BY_NAME else 4
    return float(step.default) if wanted == T.FLOAT and isinstance(step.default, int) else step.default


class Namespace:
    """Operators as attributes: of a namespace of the table (``my::``), or those whose names begin alike."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = operator(f"{self._prefix}{name}")
        if found is None:
            raise AttributeError(f"there is no operator {self._prefix}{name}")
        return found

    def __repr__(self) -> str:
        return f"<operators {self._prefix}*>"


@cache
def _function(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return call(name, *args, **kwargs)

    function.__name__ = function.__qualname__ = name.rpartition("::")[2]
    function.__module__ = "gpujit.ops"
    shown = "\n".join(str(op.schema) for op in table.by_name(name))
    function.__doc__ = f"{shown}\n\nSee ``gpujit.ops.calls.call``."
    function.operator = name  # type: ignore[attr-defined]  # what a compiler of Python source reads
    return function


def operator(name: str) -> Callable[..., Any] | None:
    """The operator ``aten::relu`` as a function of its arguments; None when there is no such operator."""
    return _function(name) if table.by_name(name) else None


def lookup(name: str) -> Any:
    """What ``gpujit.ops`` has under a name: an operator, or a namespace of them; None for neither."""
    found = operator(f"aten::{name}")
    if found is not None:
        return found
    if name in PREFIXES:
        return Namespace(f"aten::{name}_")
    if any(op.name.startswith(f"{name}::") for op in table.registered()):
        return Namespace(f"{name}::")
    return None
