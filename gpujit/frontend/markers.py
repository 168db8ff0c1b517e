"""What programs to be scripted say about themselves: decorators and functions that do little when Python runs them."""

from __future__ import annotations

import builtins
import typing
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from gpujit.frontend.trace.current import CURRENT
from gpujit.ir import types as T
from gpujit.ir.values import Future as FutureValue
from gpujit.support.errors import GpujitError

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")

# Constants of a module or class, as in ``k: Final[int]``.
Final = typing.Final
_MODIFIER = "_torchscript_modifier"


class Tensor:
    """The type of tensors, for annotations. At run time tensors are NumPy arrays; no object of this class exists."""

    _gpujit_type = T.TENSOR

    def __init__(self) -> None:
        raise TypeError("gpujit.Tensor is a name for annotations; tensors are NumPy arrays")


class Future(Generic[V]):
    """``Future[T]``, the type of what ``fork`` returns, for annotations."""

    def wait(self) -> V:
        """The value, once it is there."""
        raise NotImplementedError


class Attribute(NamedTuple):
    """An attribute's value with its type, for values whose type cannot be inferred: ``Attribute([], List[int])``."""

    value: Any
    type: Any


def annotate(the_type: Any, the_value: V) -> V:
    """``the_value``; in scripted code it has type ``the_type``."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:  # torch.jit's name
    """Whether ``obj`` is of a type that may be a generic, such as ``List[int]``; elements are looked at."""
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    origin, args = typing.get_origin(target_type), typing.get_args(target_type)
    if target_type is Any:
        return True
    if target_type is None:
        return obj is None
    if origin is None:
        if target_type is Tensor:
            return hasattr(obj, "shape") and hasattr(obj, "dtype")
        return builtins.isinstance(obj, target_type)
    if origin is typing.Union or type(target_type).__name__ == "UnionType":
        return any(isinstance(obj, a) for a in args)
    if origin is list:
        return builtins.isinstance(obj, list) and all(isinstance(v, args[0]) for v in obj)
    if origin is dict:
        return builtins.isinstance(obj, dict) and all(
            isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in obj.items()
        )
    if origin is tuple:
        return builtins.isinstance(obj, tuple) and len(obj) == len(args) and all(map(isinstance, obj, args))
    raise TypeError(f"isinstance of {target_type} is not known")


def _unwrap_optional(x: V | None) -> V:
    """``x``, which must not be None; its type in scripted code is that of what is inside."""
    if x is None:
        raise AssertionError("Unwrapping null optional")
    return x


def is_scripting() -> bool:
    """Whether this runs as scripted code: False here, True when scripted."""
    return False


def is_tracing() -> bool:
    """Whether this runs to be traced; False in scripted code."""
    return CURRENT.get() is not None


def fork(func: Callable[..., V], *args: Any, **kwargs: Any) -> FutureValue:
    """A Future of ``func(*args, **kwargs)``; what it raises is raised by ``wait``."""
    result = FutureValue()
    try:
        result.value = func(*args, **kwargs)
    except Exception as e:
        result.error = e
    return result


def wait(future: FutureValue) -> Any:
    """The value of a Future."""
    if future.error is not None:
        raise future.error
    return future.value


def export(fn: F) -> F:
    """Compile a method of a module although ``forward`` does not call it."""
    setattr(fn, _MODIFIER, "export")
    return fn


def unused(fn: F) -> F:
    """Do not compile a function or method: calling it from scripted code raises."""
    if builtins.isinstance(fn, property):
        for part in (fn.fget, fn.fset):
            if part is not None:
                setattr(part, _MODIFIER, "unused")
        return fn
    setattr(fn, _MODIFIER, "unused")
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Leave a function or method to Python, or with ``drop=True`` raise when it is called (as ``unused``).

    A module that reaches an ignored function cannot be saved.
    """
    if callable(drop):
        setattr(drop, _MODIFIER, "ignore")
        return drop
    if not builtins.isinstance(drop, bool):
        raise GpujitError(f"ignore takes a function or a bool, found {type(drop).__name__}")

    def decorate(fn: F) -> F:
        setattr(fn, _MODIFIER, "unused" if drop else "ignore")
        return fn

    return decorate


def interface(cls: type) -> type:
    """Declare a class as an interface: what has its methods may stand where it is asked for."""
    if not builtins.isinstance(cls, type):
        raise GpujitError(f"interface must be applied to a class, found {type(cls).__name__}")
    cls._gpujit_interface = True  # type: ignore[attr-defined]
    return cls


def _overload(fn: F) -> F:
    """Declare a signature of the function of this name that is defined below; see torch.jit._overload."""
    _DECLARED.setdefault((fn.__module__, fn.__qualname__), []).append(fn)
    return fn


_overload_method = _overload

# Signatures declared with ``_overload``, by module and name.
_DECLARED: dict[tuple[str, str], list[Any]] = {}


def declared_overloads(fn: Any) -> list[Any]:
    """The signatures declared for a function."""
    declared = _DECLARED.get((fn.__module__, fn.__qualname__), [])
    return [*getattr(fn, "overloads", ()), *(d for d in declared if d is not fn)]


_SPECIALS: tuple[tuple[Any, str], ...] = (
    (annotate, "annotate"), (isinstance, "isinstance"), (is_scripting, "is_scripting"), (is_tracing, "is_tracing"),
    (fork, "fork"), (wait, "wait"), (_unwrap_optional, "unwrap_optional"),
)  # fmt: skip
for _function, _name in _SPECIALS:
    _function._gpujit_special = _name
