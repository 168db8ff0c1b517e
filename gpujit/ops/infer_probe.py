"""Types found by running an operator on small arrays of the right rank, for entries whose rule is not written down."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.dtypes import BY_CODE, FLOAT32, INT64, numpy_dtype
from gpujit.ir.types import TensorType
from gpujit.ir.values import QTensor
from gpujit.ops.infer_cases import (
    GUESS_LIMIT,
    QUANTISED_STORAGE,
    guesses,
    join_all,
    type_of,
    unknown_result,
    without_shapes,
)
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import ListOf, Size, Unknown, tensor
from gpujit.ops.symbolic import NotKnown, is_live
from gpujit.support.errors import DTypeError, ShapeError

# ---------------------------------------------------------------------------------------------------------- probes

# Elements of all arrays of one probe: larger inputs are probed with small sizes in their place.
PROBE_LIMIT = 1 << 14


class _Failed(Exception):
    """A probe that ended in an error, which says nothing."""


# In place of unknown or too large sizes: each its own number, then one number for all of them.
_DISTINCT = ((4, 6, 10, 12, 14, 18, 20, 22), (8, 12, 5, 7, 16, 11, 13, 9), (2, 3, 14, 10, 7, 15, 8, 17), (1,))
_EQUAL = (4, 8, 6, 1)
# Known sizes up to this are kept when a probe has to be made smaller.
_SMALL = 8


def probe(op: Op, args: tuple[Any, ...]) -> Any:
    """The result's type by running the kernel on arrays of zeros."""
    tensors = list(_tensors_in(args))
    if is_live(args):
        raise NotKnown
    if any(x.shape is None for x in tensors) or not _all_known(args):
        return _probe_guessed(op, args)
    if any(x.dtype is None for x in tensors):
        return _probe_dtypes(op, args)
    unknown = any(None in (x.shape or ()) for x in tensors)
    if not unknown and _elements(args) <= PROBE_LIMIT:
        try:
            return _run(op, args)
        except _Failed:
            return unknown_result(op)
    for equal in (False, True):
        found = []
        for k in range(len(_EQUAL)):
            case, names = _filled(args, k, equal, shrink=False)
            if _elements(case) > PROBE_LIMIT:
                if k == len(_EQUAL) - 1:
                    # A size of 1 stands for too much.
                    continue
                case, names = _filled(args, k, equal, shrink=True)
            try:
                found.append(_renamed(_run(op, case), names))
            except (_Failed, ShapeError):
                continue
        if len(found) >= 2:
            return join_all(found)
        if not unknown:
            break
    return unknown_result(op)


def _elements(args: Any) -> int:
    return sum(prod(n or 0 for n in x.shape or ()) for x in _tensors_in(args))


def _tensors_in(args: Any) -> Iterator[TensorType]:
    for a in args:
        if isinstance(a, TensorType):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from _tensors_in(a)


def _all_known(args: Any) -> bool:
    if isinstance(args, (list, tuple)):
        return all(map(_all_known, args))
    return not isinstance(args, (Unknown, ListOf))


def _filled(args: tuple[Any, ...], k: int, equal: bool, shrink: bool) -> tuple[tuple[Any, ...], dict[int, int]]:
    """The ``k``-th case: arguments with a number for each unknown size, and with ``shrink`` for each large one.

    Also returns which number stands for which large size.
    """
    count = 0
    stands: dict[int, int] = {}

    def number() -> int:
        nonlocal count
        count += 1
        return _EQUAL[k] if equal else _DISTINCT[k][(count - 1) % len(_DISTINCT[k])]

    def size(n: Size) -> int:
        if n is None:
            return number()
        if not shrink or n <= _SMALL:
            return n
        if n not in stands:
            stands[n] = number()
        return stands[n]

    def fill(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(fill, value))
        return TensorType(value.dtype, tuple(map(size, value.shape or ()))) if isinstance(value, TensorType) else value

    case = tuple(map(fill, args))
    names = {number: n for n, number in stands.items()}
    return case, names if len(names) == len(stands) else {}


def _renamed(result: Any, names: dict[int, int]) -> Any:
    """The result of a probe with the sizes that numbers stood for put back."""
    if not names:
        return result
    if isinstance(result, (list, tuple)):
        return type(result)(_renamed(r, names) for r in result)
    if isinstance(result, TensorType) and result.shape is not None:
        return TensorType(result.dtype, tuple(n if n is None else names.get(n, n) for n in result.shape))
    return result


def _probe_guessed(op: Op, args: tuple[Any, ...]) -> Any:
    """Unknown ranks and values: only what all guesses agree on, and no shapes."""
    found = []
    for case in islice(guesses(op, args, size=2), GUESS_LIMIT):
        if not _all_known(case):
            return unknown_result(op)
        try:
            found.append(probe(op, case))
        except (ShapeError, DTypeError):
            continue
    return without_shapes(join_all(found)) if found else unknown_result(op)


def _probe_dtypes(op: Op, args: tuple[Any, ...]) -> Any:
    """Unknown dtypes: what holds for real numbers and for integers."""

    def with_dtype(value: Any, dtype: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(with_dtype(v, dtype) for v in value)
        return tensor(dtype, value.shape) if isinstance(value, TensorType) and value.dtype is None else value

    found = []
    for dtype in (FLOAT32, INT64, np.dtype(bool), np.dtype(np.float64), np.dtype(np.complex64)):
        try:
            found.append(probe(op, tuple(with_dtype(a, dtype) for a in args)))
        except (ShapeError, DTypeError):
            continue
    return join_all(found) if found else unknown_result(op)


def _run(op: Op, args: tuple[Any, ...]) -> Any:
    """The type of what the kernel returns for arrays of these types: of zeros, or (matrices) of ones on the diagonal.

    Raises ShapeError and DTypeError when the kernel does, _Failed when it cannot compute with such numbers.
    """
    kernel = op.kernel(np)
    refusal: Exception | None = None
    for fill in (_zeros, _identity):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return type_of(kernel(*(_dummy(a, fill) for a in args)))
        except (ShapeError, DTypeError) as error:
            refusal = error
        except Exception:
            refusal = None
    raise _Failed if refusal is None else refusal


def _dummy(value: Any, fill: Callable[[Any, Any], Any]) -> Any:
    if isinstance(value, TensorType):
        code, shape = value.dtype, value.shape
        assert code is not None and shape is not None
        if code in QUANTISED_STORAGE:
            return QTensor(np.zeros(shape, QUANTISED_STORAGE[code]), code, 1.0, 0)
        if BY_CODE[code].dtype is None:
            raise _Failed
        return fill(shape, numpy_dtype(code))
    if isinstance(value, (list, tuple)):
        return type(value)(_dummy(v, fill) for v in value)
    return value


def _zeros(shape: Any, dtype: Any) -> Any:
    return np.zeros(shape, dtype)


def _identity(shape: Any, dtype: Any) -> Any:
    if len(shape) < 2 or dtype.kind not in "fc":
        return np.ones(shape, dtype)
    return np.broadcast_to(np.eye(shape[-2], shape[-1], dtype=dtype), shape).copy()
