"""Cases of what is not known about arguments, what the results of several cases have in common, and types of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from itertools import product as combinations_of
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import code_of, is_tensor_dtype
from gpujit.ir.schema import Argument
from gpujit.ir.types import TENSOR, TensorType
from gpujit.ir.values import QTensor, SparseTensor
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import UNKNOWN, ListOf, Shape, Size, Unknown
from gpujit.ops.rules.values import SOME_INT

# Cases tried for what a rule can't do without (ranks, flags).
GUESS_LIMIT = 32
QUANTISED_STORAGE = {12: np.dtype(np.int8), 13: np.dtype(np.uint8), 14: np.dtype(np.int32)}


def unknown_result(op: Op) -> Any:
    """What the schema alone says."""

    def of(result: Argument) -> Any:
        if isinstance(result.type, TensorType):
            return TENSOR
        if isinstance(result.type, T.ListType) and isinstance(result.type.element, TensorType):
            return ListOf(TENSOR)
        return UNKNOWN

    results = tuple(map(of, op.schema.returns))
    if not results:
        return None
    return results[0] if len(results) == 1 else results


# What is tried in place of an unknown argument, by its schema's type.
_TRIED: dict[T.Type, tuple[Any, ...]] = {
    T.INT: (1, 0, 2), T.BOOL: (False, True), T.FLOAT: (0.5, 2.0), T.NUMBER: (1, 0.5),
}  # fmt: skip


def guesses(op: Op, args: tuple[Any, ...], size: Size = None) -> Iterator[tuple[Any, ...]]:
    """Arguments with every unknown rank and value replaced, one case after the other.

    ``size`` is that of every dim of a tensor of unknown rank.
    """

    def choices(value: Any, t: T.Type, text: str) -> tuple[Any, ...]:
        if isinstance(value, TensorType):
            if value.shape is not None:
                return (value,)
            return tuple(TensorType(value.dtype, (size,) * rank) for rank in (2, 0, 3, 4, 1, 5))
        optional = isinstance(t, T.OptionalType)
        plain = t.element if isinstance(t, T.OptionalType) else t
        if isinstance(value, Unknown):
            if text.startswith("ScalarType"):
                # The type of the result hangs on it: nothing may be guessed.
                return (value,)
            if isinstance(plain, T.ListType):
                tried: tuple[Any, ...] = tuple([v] * n for v in _TRIED.get(plain.element, ()) for n in (1, 2, 3))
                if plain.element == T.INT:
                    # Numbers that do not fit the other arguments say nothing; unknown ones may.
                    tried = (*([SOME_INT] * n for n in (1, 2, 3, 4)), *tried)
            else:
                tried = _TRIED.get(plain, ())
            return (*tried, None) if optional else tried or (value,)
        if isinstance(value, (list, tuple)) and isinstance(plain, T.ListType):
            # Lists of many tensors have more combinations than could be tried.
            cases = combinations_of(*(choices(v, plain.element, "") for v in value))
            return tuple(list(c) for c in islice(cases, GUESS_LIMIT))
        return (value,)

    arguments = op.schema.arguments
    return combinations_of(*(choices(v, a.type, a.text) for v, a in zip(args, arguments, strict=False)))


def without_shapes(result: Any) -> Any:
    if isinstance(result, TensorType):
        return TensorType(result.dtype)
    if isinstance(result, tuple):
        return tuple(map(without_shapes, result))
    if isinstance(result, list):
        return ListOf(without_shapes(join_all(result))) if result else ListOf(TENSOR)
    return ListOf(TensorType(result.element.dtype)) if isinstance(result, ListOf) else UNKNOWN


def join_all(results: Sequence[Any]) -> Any:
    found = results[0]
    for other in results[1:]:
        found = join(found, other)
    return found


def join(a: Any, b: Any) -> Any:
    """What holds for both of two results of one operator."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        shape: Shape | None = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True))
        return TensorType(a.dtype if a.dtype == b.dtype else None, shape)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(join, a, b))
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return list(map(join, a, b))
    if isinstance(a, (list, ListOf)) and isinstance(b, (list, ListOf)):
        elements = [*(a if isinstance(a, list) else [a.element]), *(b if isinstance(b, list) else [b.element])]
        if all(isinstance(e, TensorType) for e in elements):
            return ListOf(join_all(elements))
        return UNKNOWN
    if type(a) is type(b) and not isinstance(a, Unknown) and repr(a) == repr(b):
        return a
    return UNKNOWN


def type_of(value: Any) -> Any:
    """The type of a run-time value, as ``infer`` takes and returns it: complete for arrays, other values themselves."""
    if isinstance(value, np.ndarray) or (hasattr(value, "dtype") and hasattr(value, "strides")):
        return TensorType(code_of(value.dtype) if is_tensor_dtype(value.dtype) else None, tuple(value.shape))
    if isinstance(value, QTensor):
        return TensorType(value.dtype, value.shape)
    if isinstance(value, SparseTensor):
        return TENSOR
    if type(value) in (list, tuple):
        return type(value)(map(type_of, value))
    return value
