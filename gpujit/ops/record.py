"""From an operator's entry to the expressions of one element: its body, run on a Recorder, between PyTorch's casts.

The same plan that the NumPy kernels follow (``kernels.pointwise_plan``) says in which dtype operands arrive and in
which the result leaves. Entries whose bodies cannot be recorded have a ``scalar`` of their own, see ``rows``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpujit.ir.dtypes import FLOAT32, HALF_TYPES, kind_of, numpy_dtype
from gpujit.ir.recorded import Recorded
from gpujit.ir.recorder import Recorder
from gpujit.ir.scalar import ROW_OPS, Expr, RecordError, walk
from gpujit.ops.kernels import operand_positions, pointwise_plan, wrap_number
from gpujit.ops.promotion import can_cast, promote, result_type
from gpujit.ops.registry import Op, by_full_name
from gpujit.ops.rows import OPAQUE, Rows


@dataclass(frozen=True, slots=True)
class Recording:
    """What an operator does.

    ``results`` are its results' expressions; ``checks`` the conditions that must hold at every element, each with the
    message of the error. For an operator over rows ``rows`` is its declaration, ``axes`` are the dims a row lies along
    (None: all of them) and ``keepdim`` says whether those of results with one number a row stay.
    """

    results: tuple[Expr, ...]
    checks: tuple[tuple[Expr, str], ...]
    rows: Rows | None = None
    axes: tuple[int, ...] | None = None
    keepdim: bool = False


def can_record(op: Op) -> bool:
    """Whether ``record`` may succeed: a pointwise entry, or one over rows that says how."""
    functional = op.derived_from or op
    return functional.kind == "pointwise" or isinstance(functional.scalar, Rows)


def record(op: Op, args: Sequence[Any]) -> Recording:
    """The expressions of ``op`` for its schema's arguments: Recorded tensors of known rank, and Python values.

    An in-place form gives what it leaves in its first argument; of an out= form leave the out arguments away.
    Raises RecordError: the entry cannot be recorded, or not for these dtypes; and what the entry raises for them.
    """
    functional = op.derived_from or op
    if functional.kind == "pointwise":
        recording = _record_pointwise(functional, args)
    elif isinstance(functional.scalar, Rows):
        recording = _record_rows(functional, functional.scalar, args)
    else:
        raise RecordError(f"{op.full_name}: a {op.kind} operator without a `scalar` body cannot be recorded")
    if op.form != "inplace":
        return recording
    target, result = args[0].dtype, Recorded(recording.results[0])
    if not can_cast(result.dtype, target):
        raise RecordError(f"{op.full_name}: a result of {result.dtype} cannot be stored in a tensor of {target}")
    return Recording((result.astype(target).expr,), recording.checks)


def _record_pointwise(op: Op, args: Sequence[Any]) -> Recording:
    m = Recorder()
    positions = operand_positions(op)
    compute, returned, promoted = pointwise_plan(op, [args[i] for i in positions])
    for dtype in (compute, returned, *(a.dtype for a in args if isinstance(a, Recorded))):
        if dtype is not None and kind_of(dtype) == 3:
            raise RecordError(f"{op.full_name}: kernels know no {dtype}; it runs unfused")
    values = [x.copy() if isinstance(x, Recorded) else x for x in args]
    any_tensor = any(isinstance(args[i], Recorded) for i in positions)
    for i in positions:
        x = values[i]
        if isinstance(x, Recorded):
            values[i] = x.astype(compute)
        elif x is not None:
            number = wrap_number(x, compute, m)
            values[i] = number if any_tensor else m.asarray(number, dtype=compute)
    if op.scalar is OPAQUE:
        operands = [x for x in values if isinstance(x, (Recorded, bool, int, float))]
        if len(operands) != len(values):
            raise RecordError(f"{op.full_name}: an argument that is no number cannot be handed to a call")
        y = m.call(op.full_name, *operands, dtype=FLOAT32 if returned in HALF_TYPES else returned or compute)
    else:
        scalar = op.scalar.body if isinstance(op.scalar, Rows) else op.scalar
        body: Callable[..., Any] = scalar if callable(scalar) else op.body
        y = body(m, *values)
    if returned is None and promoted in HALF_TYPES and y.dtype == FLOAT32:
        returned = promoted
    y = m.asarray(y, dtype=compute if returned is None and not isinstance(y, Recorded) else returned)
    return Recording((y.expr,), tuple(m.checks))


def _record_rows(op: Op, rows: Rows, args: Sequence[Any]) -> Recording:
    m = Recorder()
    tensors = [a for a in args if isinstance(a, Recorded)]
    if any(kind_of(a.dtype) == 3 for a in tensors):
        raise RecordError(f"{op.full_name}: kernels know no complex numbers; it runs unfused")
    halves = [] if rows.exact else [a.dtype for a in tensors if a.dtype in HALF_TYPES]
    values = [_variable(a, halves) if isinstance(a, Recorded) else a for a in args]
    results = rows.body(m, *values)
    results = results if isinstance(results, tuple) else (results,)
    target = _asked_dtype(op, args)
    if rows.exact:
        target = None
    elif op.half == "native":
        target = tensors[0].dtype
    elif halves and target is None:
        target = result_type(*tensors) if op.half == "promote" else halves[0]
        for dtype in () if op.half == "promote" else halves[1:]:
            target = promote(target, dtype)
    if target not in HALF_TYPES:
        target = None
    finished = tuple(y.expr if target is None or y.dtype != FLOAT32 else y.astype(target).expr for y in results)
    axes = rows.axes(tensors[0].ndim + (rows.groups is not None), args)
    if axes == () and any(x.op in ROW_OPS for x in walk(finished)):
        raise RecordError(f"{op.full_name}: it reduces no dims of a tensor of {tensors[0].ndim}; it runs unfused")
    return Recording(finished, tuple(m.checks), rows, axes, rows.keeps(args))


def _variable(x: Recorded, widened: Sequence[Any]) -> Recorded:
    return x.astype(FLOAT32) if x.dtype in widened else x.copy()


def _asked_dtype(op: Op, args: Sequence[Any]) -> Any:
    for argument, value in zip(op.schema.arguments, args, strict=False):
        if argument.name == "dtype" and value is not None:
            return numpy_dtype(value)
    return None


@cache
def opaque_function(name: str) -> Callable[..., Any]:
    """What a recorded call computes: a function of arrays, or numbers for what the schema calls numbers, on NumPy.

    Raises RecordError for a name that no entry records.
    """
    op = by_full_name(name)
    if op is None or op.scalar is not OPAQUE:
        raise RecordError(f"{name} is no operator that is recorded as a call")
    is_tensor = [str(a.type) == "Tensor" for a in op.schema.arguments]
    body = op.body

    def call(*args: Any) -> Any:
        return body(np, *(a if tensor else np.asarray(a).item() for a, tensor in zip(args, is_tensor, strict=True)))

    return call
