"""The type of an operator's result from the types of its arguments.

Asked in this order: the entry's own rule (``type_rule``); what its schema says (an in-place form returns what it writes
into); for pointwise entries broadcasting and the promotion of the entry itself; for operators on numbers and lists of
ints their body; for all others a probe: the entry's kernel run on small arrays of zeros, with several sizes in place of
each unknown one. What all probes agree on is known.
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from itertools import product as combinations_of
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_CODE, FLOAT32, INT64, code_of, is_tensor_dtype, numpy_dtype
from gpujit.ir.schema import Argument
from gpujit.ir.types import TENSOR, TensorType
from gpujit.ir.values import QTensor, SparseTensor
from gpujit.ops.families.quantized.plain_operators import RULES as QUANTISED
from gpujit.ops.kernels import operand_positions, pointwise_plan
from gpujit.ops.promotion import can_cast
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import (
    FLOAT32_CODE,
    UNKNOWN,
    ListOf,
    Shape,
    Size,
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
# Elements of all arrays of one probe: larger inputs are probed with small sizes in their place.
PROBE_LIMIT = 1 << 14
# Cases tried for what a rule can't do without (ranks, flags).
GUESS_LIMIT = 32
_QUANTISED_STORAGE = {12: np.dtype(np.int8), 13: np.dtype(np.uint8), 14: np.dtype(np.int32)}
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
    return _probe(op, args)


def _plain(x: Any) -> Any:
    return TensorType(x.dtype, x.shape) if isinstance(x, TensorType) else UNKNOWN


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
    for case in islice(_guesses(op, args), GUESS_LIMIT):
        try:
            found.append(call(case))
        except (NotKnown, ShapeError, DTypeError, IndexError, ValueError):
            # The operator refuses the guess, or the rule does not look for a rank that no call has.
            continue
    if not found:
        return unknown_result(op)
    return _without_shapes(_join_all(found))


# What is tried in place of an unknown argument, by its schema's type.
_TRIED: dict[T.Type, tuple[Any, ...]] = {
    T.INT: (1, 0, 2), T.BOOL: (False, True), T.FLOAT: (0.5, 2.0), T.NUMBER: (1, 0.5),
}  # fmt: skip


def _guesses(op: Op, args: tuple[Any, ...], size: Size = None) -> Iterator[tuple[Any, ...]]:
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


def _without_shapes(result: Any) -> Any:
    if isinstance(result, TensorType):
        return TensorType(result.dtype)
    if isinstance(result, tuple):
        return tuple(map(_without_shapes, result))
    if isinstance(result, list):
        return ListOf(_without_shapes(_join_all(result))) if result else ListOf(TENSOR)
    return ListOf(TensorType(result.element.dtype)) if isinstance(result, ListOf) else UNKNOWN


def _join_all(results: Sequence[Any]) -> Any:
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
            return ListOf(_join_all(elements))
        return UNKNOWN
    if type(a) is type(b) and not isinstance(a, Unknown) and repr(a) == repr(b):
        return a
    return UNKNOWN


# --------------------------------------------------------------------------------------------------- pointwise


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
        result = _probe(op, tuple(map(one, args)))
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
    return isinstance(value, TensorType) and value.dtype in _QUANTISED_STORAGE


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


# ---------------------------------------------------------------------------------------------------------- probes


class _Failed(Exception):
    """A probe that ended in an error, which says nothing."""


# In place of unknown or too large sizes: each its own number, then one number for all of them.
_DISTINCT = ((4, 6, 10, 12, 14, 18, 20, 22), (8, 12, 5, 7, 16, 11, 13, 9), (2, 3, 14, 10, 7, 15, 8, 17), (1,))
_EQUAL = (4, 8, 6, 1)
# Known sizes up to this are kept when a probe has to be made smaller.
_SMALL = 8


def _probe(op: Op, args: tuple[Any, ...]) -> Any:
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
            return _join_all(found)
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
    for case in islice(_guesses(op, args, size=2), GUESS_LIMIT):
        if not _all_known(case):
            return unknown_result(op)
        try:
            found.append(_probe(op, case))
        except (ShapeError, DTypeError):
            continue
    return _without_shapes(_join_all(found)) if found else unknown_result(op)


def _probe_dtypes(op: Op, args: tuple[Any, ...]) -> Any:
    """Unknown dtypes: what holds for real numbers and for integers."""

    def with_dtype(value: Any, dtype: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(with_dtype(v, dtype) for v in value)
        return tensor(dtype, value.shape) if isinstance(value, TensorType) and value.dtype is None else value

    found = []
    for dtype in (FLOAT32, INT64, np.dtype(bool), np.dtype(np.float64), np.dtype(np.complex64)):
        try:
            found.append(_probe(op, tuple(with_dtype(a, dtype) for a in args)))
        except (ShapeError, DTypeError):
            continue
    return _join_all(found) if found else unknown_result(op)


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
        if code in _QUANTISED_STORAGE:
            return QTensor(np.zeros(shape, _QUANTISED_STORAGE[code]), code, 1.0, 0)
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


# -------------------------------------------------------------------------------------------- checking against results


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
