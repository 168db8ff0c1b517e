"""The type of an operator's result from the types of its arguments.

Asked in this order: the entry's own rule (``type_rule``); what its schema says (an in-place form returns what it writes
into); for pointwise entries broadcasting and the promotion of the entry itself; for operators on numbers and lists of
ints their body; for all others a probe: the entry's kernel run on small arrays of zeros, with several sizes in place of
each unknown one. What all probes agree on is known.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import numpy_dtype
from gpujit.ir.types import TensorType
from gpujit.ops.families.quantized.plain_operators import RULES as QUANTISED
from gpujit.ops.infer_cases import GUESS_LIMIT, QUANTISED_STORAGE, guesses, join_all, unknown_result, without_shapes
from gpujit.ops.infer_probe import probe
from gpujit.ops.kernels import operand_positions, pointwise_plan
from gpujit.ops.promotion import can_cast
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import (
    FLOAT32_CODE,
    UNKNOWN,
    ListOf,
    Unknown,
    broadcast,
    dtype_of,
    each_choice,
    same_shape,
    tensor,
    texts,
)
from gpujit.ops.rules.values import SOME_INT
from gpujit.ops.symbolic import NotKnown, forgotten, has_symbols, is_live, live, mapped, plain, symbolic_value
from gpujit.support.errors import DTypeError, InternalError, ShapeError

# Answers kept; each holds a few hundred bytes.
CACHE_LIMIT = 8192
_cache: OrderedDict[Any, Any] = OrderedDict()
_lock = Lock()
_MISSING = object()


def infer(op: Op, args: Sequence[Any]) -> Any:
    """The type of the result of ``op`` for arguments in the order of its schema; missing ones take their defaults.

    Tensors are given as TensorType, lists of tensors as lists of them, other arguments as values or ``UNKNOWN``.
    Returns what the schema declares: a TensorType, a value or UNKNOWN, a list of types or a ListOf, a tuple of these.
    Raises ShapeError or DTypeError, as the operator would, when the inputs cannot fit each other.
    """
    arguments = op.schema.arguments
    if len(args) < len(arguments):
        args = (*args, *(a.default for a in arguments[len(args) :]))
    if any(map(has_symbols, args)):
        return _symbolic(op, tuple(args))
    key = _key(op, args)
    if key is None:
        return _infer(op, tuple(args))
    try:
        found = _cache.get(key, _MISSING)
    except NotKnown:
        # A symbolic size has no place in the cache.
        return _infer(op, tuple(args))
    if found is _MISSING:
        found = _infer(op, tuple(args))
        with _lock:
            _cache[key] = found
            while len(_cache) > CACHE_LIMIT:
                _cache.popitem(last=False)
    return list(found) if type(found) is list else found


def _key(op: Op, args: Sequence[Any]) -> Any:
    """Equal for equal questions; None when a value has no equality to rely on."""

    def frozen(value: Any) -> Any:
        if isinstance(value, TensorType):
            return (value.dtype, value.shape)
        if isinstance(value, (list, tuple)):
            return (type(value), *map(frozen, value))
        if isinstance(value, Unknown):
            return (Unknown, value.type)
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            # Equal numbers of other types, 0.0 and -0.0, and NaN are told apart.
            return (type(value), repr(value) if isinstance(value, (float, complex)) else value)
        raise _Opaque

    try:
        return (op, *map(frozen, args))
    except _Opaque:
        return None


def _symbolic(op: Op, args: tuple[Any, ...]) -> Any:
    """The result for symbolic sizes: computed with them where the rule allows, else with them unknown."""
    try:
        return mapped(_infer(op, mapped(args, live)), plain)
    except (ShapeError, DTypeError):
        raise
    except Exception:  # a rule may do with a number what a symbol cannot do
        return infer(op, forgotten(args, SOME_INT))


class _Opaque(Exception):
    """A value that cannot be part of a cache key."""


def kind_of_rule(op: Op) -> str:
    """How ``infer`` answers for an entry: ``rule``, ``data`` (a rule, sizes depend on data), ``pointwise``, ``schema``,
    ``value`` (computed when the arguments are known) or ``probe``."""
    origin = origin_of(op)
    if origin.type_rule is not None:
        return "data" if origin.data_dependent else "rule"
    if (
        op.form != "functional"
        or _written_results(op) is not None
        or not any(_has_tensor(r.type) for r in op.schema.returns)
    ):
        return "value" if op.kind == "prim" and not op.effects else "schema"
    if op.kind == "pointwise":
        return "pointwise"
    return "schema" if op.effects or op.kind == "prim" else "probe"


def origin_of(op: Op) -> Op:
    """The functional entry an in-place or out= form is derived from; the entry itself otherwise."""
    while op.derived_from is not None:
        op = op.derived_from
    return op


def _has_tensor(t: T.Type) -> bool:
    return any(isinstance(part, TensorType) for part in T.walk(t))


# ---------------------------------------------------------------------------------------------------- dispatch


def _infer(op: Op, args: tuple[Any, ...]) -> Any:
    if any(_is_quantised(a) for a in args) and origin_of(op).full_name in QUANTISED:
        return _quantised(op, args)
    if op.form != "functional" and op.derived_from is not None:
        return _derived(op, args)
    if op.type_rule is not None:
        return _by_rule(op, args)
    written = _written_results(op)
    if written is not None:
        results = tuple(_plain(args[i]) for i in written)
        return results[0] if len(results) == 1 else results
    if op.kind == "pointwise":
        return _pointwise(op, args)
    if op.kind == "prim":
        return _value(op, args)
    if op.effects or not any(_has_tensor(r.type) for r in op.schema.returns):
        return unknown_result(op)
    return probe(op, args)


def _plain(x: Any) -> Any:
    return TensorType(x.dtype, x.shape) if isinstance(x, TensorType) else UNKNOWN


def _written_results(op: Op) -> tuple[int, ...] | None:
    """For an operator that returns just what it writes into, the positions of those arguments."""
    arguments = op.schema.arguments
    found = []
    for result in op.schema.returns:
        if result.alias is None or not result.alias.is_write or not isinstance(result.type, TensorType):
            return None
        at = [i for i, a in enumerate(arguments) if a.is_write and a.alias == result.alias]
        if len(at) != 1:
            return None
        found += at
    return tuple(found) or None


def _derived(op: Op, args: tuple[Any, ...]) -> Any:
    """An in-place or out= form: what it writes into, checked against what the functional entry returns."""
    assert op.derived_from is not None
    if op.form == "inplace":
        return _into(op, args[0], infer(op.derived_from, args))
    count = len(op.schema.returns)
    results = infer(op.derived_from, args[:-count])
    if count == 1:
        return _into(op, args[-1], results)
    return tuple(_into(op, x, y) for x, y in zip(args[-count:], results, strict=True))


def _into(op: Op, target: Any, value: Any) -> Any:
    if not isinstance(target, TensorType):
        return UNKNOWN
    if not isinstance(value, TensorType):
        return _plain(target)
    source, wanted = dtype_of(value), dtype_of(target)
    if source is not None and wanted is not None and not can_cast(source, wanted):
        raise DTypeError(f"{op.full_name}: a result of dtype {source} can't be cast to the tensor's dtype {wanted}")
    shape = target.shape
    if shape is None or value.shape is None:
        return TensorType(target.dtype, value.shape if shape is None else shape)
    message = f"{op.full_name}: the result has shape {texts(value.shape)}, the tensor written to has {texts(shape)}"
    return TensorType(target.dtype, same_shape(shape, value.shape, message))


# --------------------------------------------------------------------------------------------------------- rules


def _call_of(op: Op) -> Callable[[Sequence[Any]], Any]:
    """The entry's rule as a function of all arguments: it is handed those that its parameters ask for."""
    rule = op.type_rule
    assert rule is not None
    schema = op.schema
    positions: list[int] = []
    names: dict[str, int] = {}
    fixed: dict[str, Any] = {}
    for p in inspect.signature(rule).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            positions += range(len(positions), len(schema.arguments))
        elif p.kind is p.KEYWORD_ONLY:
            at = next((i for i, a in enumerate(schema.arguments) if a.name == p.name), None)
            if at is not None:
                names[p.name] = at
            elif p.name == "op":
                fixed["op"] = op.full_name
            elif p.default is p.empty:
                raise InternalError(f"the type rule of {op.full_name} asks for an argument {p.name} that it has not")
        elif len(positions) < len(schema.arguments):
            positions.append(len(positions))
        elif p.default is p.empty:
            raise InternalError(f"the type rule of {op.full_name} takes more arguments than the operator has")

    def call(args: Sequence[Any]) -> Any:
        return rule(*(args[i] for i in positions), **{n: args[i] for n, i in names.items()}, **fixed)

    return call


_calls: dict[Op, Callable[[Sequence[Any]], Any]] = {}


def _by_rule(op: Op, args: tuple[Any, ...]) -> Any:
    call = _calls.get(op)
    if call is None:
        call = _calls[op] = _call_of(op)
    try:
        return call(args)
    except NotKnown:
        if is_live(args):
            raise
    except (IndexError, ValueError):
        # Rules look for sizes that every call has; what no call can have says nothing, and fails when it is run.
        if is_live(args):
            raise
        return unknown_result(op)
    found: list[Any] = []
    for case in islice(guesses(op, args), GUESS_LIMIT):
        try:
            found.append(call(case))
        except (NotKnown, ShapeError, DTypeError, IndexError, ValueError):
            # The operator refuses the guess, or the rule does not look for a rank that no call has.
            continue
    if not found:
        return unknown_result(op)
    return without_shapes(join_all(found))


def _pointwise(op: Op, args: tuple[Any, ...]) -> Any:
    operands = [args[i] for i in operand_positions(op)]
    tensors = [x for x in args if isinstance(x, TensorType)]
    present = [x for x in operands if x is not None]
    cases = list(each_choice(present))
    dtype = _pointwise_dtype(op, args, cases)
    if any(x.shape is None for x in tensors):
        return tensor(dtype, None)
    return tensor(dtype, broadcast([x.shape for x in tensors if x.shape is not None], op.full_name))


def _pointwise_dtype(op: Op, args: tuple[Any, ...], cases: Sequence[tuple[Any, ...]]) -> Any:
    if op.result == "bool":
        found: set[Any] = {np.dtype(bool)}
        for case in cases:
            pointwise_plan(op, case)
    else:
        found = set()
        for case in cases:
            found.add(pointwise_plan(op, case)[1])
    if None in found:
        return _dtype_of_body(op, args)
    return found.pop() if len(found) == 1 else None


def _dtype_of_body(op: Op, args: tuple[Any, ...]) -> Any:
    """The dtype that a body which decides it itself returns: asked on one element."""

    def one(x: Any) -> Any:
        if not isinstance(x, TensorType):
            return x
        if x.shape is None:
            raise NotKnown
        return TensorType(x.dtype, (1,) * len(x.shape))

    try:
        result = probe(op, tuple(map(one, args)))
    except NotKnown:
        return None
    return None if not isinstance(result, TensorType) or result.dtype is None else numpy_dtype(result.dtype)


# ------------------------------------------------------------------------------------------------------ values

_SIMPLE = (bool, int, float, str, type(None))
# Larger numbers are not computed with: the time and memory it takes is not the type rule's to spend.
_LARGEST = 1 << 63
_LONGEST = 256


def _is_simple(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _LONGEST and all(map(_is_simple, value))
    if type(value) is int:
        return -_LARGEST <= value < _LARGEST
    return type(value) in _SIMPLE and (type(value) is not str or len(value) <= _LONGEST)


def _value(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of an operator on Python values, when all of them are known and it has no effects."""
    if is_live(args):
        found = symbolic_value(op, args)
        return unknown_result(op) if found is None else found
    schema = op.schema
    fresh = not any(a.alias is not None for a in schema.arguments)
    if (
        not op.effects
        and fresh
        and len(schema.returns) == 1
        and all(map(_is_simple, args))
        and not is_expensive(op, args)
    ):
        try:
            value = op.body(*args)
        except Exception:
            return unknown_result(op)
        if _is_simple(value):
            return value
    return unknown_result(op)


def is_expensive(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the result may be far larger than the arguments (powers, repeated lists)."""
    name = op.name.rpartition("::")[2]
    if name in ("pow", "factorial", "__range_length", "ldexp") or "shift" in name:
        return any(type(a) is int and abs(a) > 64 for a in args)
    return (
        name == "mul" and any(isinstance(a, (list, str)) for a in args) and any(type(a) is int and a > 64 for a in args)
    )


# ----------------------------------------------------------------------------------------------------- quantised


def _is_quantised(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_quantised, value))
    return isinstance(value, TensorType) and value.dtype in QUANTISED_STORAGE


def _quantised(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of a plain operator on quantised tensors: that for real numbers, in the quantised dtype."""
    if op.name == "aten::copy_":
        other = args[1]
        kept = isinstance(other, TensorType) and (args[0].dtype == other.dtype or not _is_quantised(other))
        return _plain(args[0]) if kept else TensorType(None, args[0].shape)
    dtype = next(x.dtype for a in args for x in (a if isinstance(a, list) else (a,)) if _is_quantised(x))

    def real(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(real, value))
        return TensorType(FLOAT32_CODE, value.shape) if _is_quantised(value) else value

    def back(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(back, value))
        if isinstance(value, ListOf):
            return ListOf(back(value.element))
        return (
            TensorType(dtype, value.shape) if isinstance(value, TensorType) and value.dtype == FLOAT32_CODE else value
        )

    return back(infer(op, [real(a) for a in args]))
