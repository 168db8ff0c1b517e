"""Whether a value is what was inferred for it: how type rules are held against the bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpujit.ir.types import TENSOR, TensorType
from gpujit.ops.infer import infer
from gpujit.ops.infer_cases import type_of
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import ListOf, Unknown
from gpujit.support.errors import DTypeError, InternalError, ShapeError


def admits(inferred: Any, value: Any) -> bool:
    """Whether a run-time value is one that an inferred result allows."""
    if isinstance(inferred, Unknown):
        return True
    if isinstance(inferred, TensorType):
        if inferred == TENSOR:
            return True
        real = type_of(value)
        if not isinstance(real, TensorType):
            return False
        if inferred.dtype is not None and real.dtype is not None and inferred.dtype != real.dtype:
            return False
        if inferred.shape is None or real.shape is None:
            return True
        return len(inferred.shape) == len(real.shape) and all(
            m is None or m == n for m, n in zip(inferred.shape, real.shape, strict=True)
        )
    if isinstance(inferred, ListOf):
        return isinstance(value, (list, tuple)) and all(admits(inferred.element, v) for v in value)
    if isinstance(inferred, (list, tuple)):
        same_kind = isinstance(value, (list, tuple)) and len(value) == len(inferred)
        return same_kind and all(map(admits, inferred, value))
    return type(inferred) is type(value) and (inferred == value or inferred != inferred)


def checked(op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, a kernel of ``op``, with the type of each result compared to the inferred one.

    Raises InternalError when they differ, or when ``infer`` refuses inputs that the kernel takes.
    """

    def call(*args: Any) -> Any:
        # Taken before the call, which may change what it is given.
        types = [type_of(a) for a in args]
        result = fn(*args)
        if not op.schema.returns:
            return result
        found = f"{op.full_name}({', '.join(map(_text, types))}) returned {_text(type_of(result))}"
        try:
            inferred = infer(op, types)
        except (ShapeError, DTypeError) as error:
            raise InternalError(f"{found}, but its type rule refuses the inputs: {error}") from error
        if not admits(inferred, result):
            raise InternalError(f"{found}, but its type rule says {_text(inferred)}")
        return result

    return call


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, ListOf):
        return f"[{value.element}, ...]"
    return str(value) if isinstance(value, TensorType) else repr(value)[:80]
