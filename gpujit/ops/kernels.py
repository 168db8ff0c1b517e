"""From an operator's entry to a callable: operands cast as PyTorch promotes them, half types computed in float32, NumPy
scalars made 0-dim arrays, raw errors turned into ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES, INT64, kind_of
from gpujit.ir.types import NUMBER, TENSOR, ListType, OptionalType
from gpujit.ir.values import Array
from gpujit.ops.promotion import compute_type, promote, real_of, result_type, to_floating
from gpujit.ops.refusals import RAW_ERRORS, refusal
from gpujit.ops.writes import write_into
from gpujit.support.errors import DTypeError

if TYPE_CHECKING:
    from gpujit.ops.registry import Op


def make_kernel(op: Op, xp: Any) -> Callable[..., Any]:
    if op.form == "inplace":
        assert op.derived_from is not None
        if op.kind == "pointwise" and op.has_out_variant:
            return _pointwise_inplace_kernel(op, op.derived_from, xp)
        return _inplace_kernel(op.derived_from.kernel(xp), op.full_name)
    if op.form == "out":
        assert op.derived_from is not None
        return _out_form_kernel(make_out_kernel(op.derived_from, xp, op.full_name), len(op.schema.returns))
    if op.kind == "prim":
        return op.body
    if op.kind == "pointwise":
        return _pointwise_kernel(op, xp)
    if op.kind == "view":
        return explained(op, partial(op.body, xp))
    return _edge_kernel(op, xp)


def _inplace_kernel(functional: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(target: Array, *args: Any) -> Any:
        return write_into(target, functional(target, *args), name)

    return call


# Up to this many elements computing and copying costs less than what an out-variant checks first.
_COPIED = 2048


def _pointwise_inplace_kernel(op: Op, functional: Op, xp: Any) -> Callable[..., Any]:
    copying = _inplace_kernel(functional.kernel(xp), op.full_name)
    into = make_out_kernel(functional, xp, op.full_name)
    ndarray = xp.ndarray

    def call(target: Array, *args: Any) -> Any:
        if type(target) is ndarray and target.size <= _COPIED:
            return copying(target, *args)
        return into(target, target, *args)

    return call


def _out_form_kernel(kernel: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The kernel of an out= form, whose outputs come last, from one that takes them first."""

    def call(*args: Any) -> Any:
        return kernel(args[-1], *args[:-1])

    def call_several(*args: Any) -> Any:
        return kernel(args[-count:], *args[:-count])

    return call if count == 1 else call_several


def make_out_kernel(op: Op, xp: Any, name: str) -> Callable[..., Any]:
    # Imported late: what it holds is built on this module.
    from gpujit.ops.out_variants import out_kernel

    return out_kernel(op, xp, name)


def operand_positions(op: Op) -> tuple[int, ...]:
    """Positions of the arguments that take part in promotion."""
    found = []
    for i, a in enumerate(op.schema.arguments):
        plain = a.type.element if isinstance(a.type, OptionalType) else a.type
        if op.operands is not None:
            chosen = a.name in op.operands
        else:
            chosen = plain == TENSOR or (plain == NUMBER and a.name in ("self", "other"))
        if chosen:
            found.append(i)
    return tuple(found)


def pointwise_types(rule: str, promoted: Any, first: Any) -> tuple[Any, Any]:
    """Computing dtype and returned dtype of a pointwise operator; the second is None when the body decides."""
    if rule == "float":
        promoted = to_floating(promoted)
    elif rule == "first":
        promoted = first
    elif rule == "integer" and promoted == BOOL_:
        promoted = INT64
    compute = compute_type(promoted)
    if rule == "bool":
        return compute, BOOL_
    if rule == "real":
        return compute, real_of(promoted)
    return compute, None if rule == "any" else promoted


def pointwise_plan(op: Op, operands: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Computing, returned and promoted dtype of a pointwise entry for these operands: arrays, numbers or None.

    The returned dtype is None when the body decides. Raises DTypeError for a kind of dtype the entry refuses.
    """
    promoted = result_type(*operands)
    advice = op.refuse.get(_KIND_NAMES[kind_of(promoted)])
    if "bool operand" in op.refuse and any(x is not None and kind_of(result_type(x)) == 0 for x in operands):
        promoted, advice = BOOL_, op.refuse["bool operand"]
    if advice is not None:
        raise DTypeError(f"{op.full_name}: {promoted} tensors are not supported; {advice}")
    first = operands[0].dtype if hasattr(operands[0], "dtype") else result_type(operands[0])
    return *pointwise_types(op.result, promoted, first), promoted


def wrap_number(value: Any, dtype: Any, xp: Any) -> Any:
    """A Python number as an operand next to arrays of ``dtype``: NumPy treats it as weak, but must not overflow."""
    kind = dtype.kind
    if kind in "iu" and not isinstance(value, bool):
        info = xp.iinfo(dtype)
        value = int(value)
        if not info.min <= value <= info.max:
            bits = info.bits
            value &= (1 << bits) - 1
            if kind == "i" and value >= 1 << (bits - 1):
                value -= 1 << bits
    elif isinstance(value, bool) and kind in "fc":
        # Functions of a bare bool would answer in float16.
        value = float(value)
    return value


class _Memo(dict[Any, Any]):
    """A dict that computes what it lacks, so that a hit costs one lookup."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.compute(key)
        return value


_KIND_NAMES = ("bool", "integer", "floating", "complex")


def _pointwise_kernel(op: Op, xp: Any) -> Callable[..., Any]:
    body = op.body
    plan_for = partial(pointwise_plan, op)
    positions = operand_positions(op)
    ndarray, asarray = xp.ndarray, xp.asarray
    plans: dict[Any, tuple[Any, Any, Any, bool]] = {}

    def needs_wrap(kind: type, dtype: Any) -> bool:
        # Whether wrap_number may change a number of that class.
        if dtype.kind in "iu":
            return kind is not bool and (kind is not int or dtype.itemsize < 8 or dtype.kind == "u")
        return kind is bool and dtype.kind in "fc"

    def is_ready(operands: Sequence[Any], compute: Any) -> bool:
        # Whether operands of these classes and dtypes go to the body as they are.
        arrays = [x for x in operands if type(x) is ndarray]
        numbers = [x for x in operands if type(x) is not ndarray and x is not None]
        return (
            bool(arrays)
            and all(x.dtype == compute for x in arrays)
            and all(type(x) in by_number and not needs_wrap(type(x), compute) for x in numbers)
        )

    def general(args: Sequence[Any]) -> Any:
        key: list[Any] = []
        for i in positions:
            x = args[i]
            if type(x) is ndarray:
                key.append(x.dtype)
                if not x.ndim:
                    key.append(0)
            else:
                key.append(type(x))
        found = tuple(key)
        plan = plans.get(found)
        if plan is None:
            operands = [args[i] for i in positions]
            types = plan_for(operands)
            plan = plans[found] = (*types, is_ready(operands, types[0]))
        compute, returned, promoted, ready = plan
        if ready:
            try:
                y = body(xp, *args)
            except RAW_ERRORS as error:
                raise refusal(op, args, error) from error
            return finish(y, returned)
        values = list(args)
        any_array = False
        for i in positions:
            x = values[i]
            if x is None:
                continue
            if hasattr(x, "dtype"):
                any_array = True
                if x.dtype != compute:
                    values[i] = x.astype(compute)
            else:
                values[i] = wrap_number(x, compute, xp)
        if not any_array:
            for i in positions:
                if values[i] is not None:
                    values[i] = asarray(values[i], dtype=compute)
        try:
            y = body(xp, *values)
        except RAW_ERRORS as error:
            raise refusal(op, args, error) from error
        if returned is None and promoted in HALF_TYPES and y.dtype == FLOAT32:
            returned = promoted
        return finish(y, returned)

    def finish(y: Any, returned: Any) -> Any:
        if type(y) is not ndarray:
            y = asarray(y)
        if returned is not None and y.dtype != returned:
            y = y.astype(returned)
        return y

    # The common cases need no cast: arrays of one dtype that is computed in as it is, and a Python number beside one.
    # A plan there is the returned dtype in a tuple, or None when the general way must be taken.
    def plan_same(dtype: Any) -> tuple[Any] | None:
        compute, returned, _ = plan_for([xp.empty(1, dtype)])
        return (returned,) if compute == dtype else None

    def plan_number(kind: type, dtype: Any) -> tuple[Any] | None:
        compute, returned, _ = plan_for([xp.empty(1, dtype), kind(0)])
        return (returned,) if compute == dtype and not needs_wrap(kind, dtype) else None

    same = _Memo(plan_same)
    by_number = {kind: _Memo(partial(plan_number, kind)) for kind in (float, int, bool, complex)}

    if positions == (0,):

        def unary(*args: Any) -> Any:
            x = args[0]
            plan = same[x.dtype] if type(x) is ndarray else None
            if plan is None:
                return general(args)
            try:
                y = body(xp, *args)
            except RAW_ERRORS as error:
                raise refusal(op, args, error) from error
            if type(y) is ndarray and (y.dtype is plan[0] or plan[0] is None):
                return y
            return finish(y, plan[0])

        return unary
    if positions == (0, 1):

        def binary(*args: Any) -> Any:
            a, b = args[0], args[1]
            plan = None
            if type(a) is ndarray:
                if type(b) is ndarray:
                    if a.dtype is b.dtype:
                        plan = same[a.dtype]
                else:
                    numbers = by_number.get(type(b))
                    if numbers is not None:
                        plan = numbers[a.dtype]
            if plan is None:
                return general(args)
            try:
                y = body(xp, *args)
            except RAW_ERRORS as error:
                raise refusal(op, args, error) from error
            if type(y) is ndarray and (y.dtype is plan[0] or plan[0] is None):
                return y
            return finish(y, plan[0])

        return binary

    def call(*args: Any) -> Any:
        dtype = None
        for i in positions:
            x = args[i]
            if type(x) is not ndarray or (dtype is not None and x.dtype is not dtype):
                return general(args)
            dtype = x.dtype
        plan = same[dtype]
        if plan is None:
            return general(args)
        try:
            y = body(xp, *args)
        except RAW_ERRORS as error:
            raise refusal(op, args, error) from error
        if type(y) is ndarray and (y.dtype is plan[0] or plan[0] is None):
            return y
        return finish(y, plan[0])

    return call


def explained(op: Op, body: Callable[..., Any]) -> Callable[..., Any]:
    """The body with raw NumPy and Python errors turned into ours."""

    @wraps(body)
    def call(*args: Any) -> Any:
        try:
            return body(*args)
        except RAW_ERRORS as error:
            raise refusal(op, args, error) from error

    return call


def _edge_kernel(op: Op, xp: Any) -> Callable[..., Any]:
    """A reduction or library body with its edge: half types computed in float32, NumPy scalars made 0-dim arrays."""
    body = op.body
    ndarray, asarray = xp.ndarray, xp.asarray
    generic = getattr(xp, "generic", ())
    arguments = op.schema.arguments
    tensors = tuple(i for i, a in enumerate(arguments) if _holds_tensors(a.type) and not a.is_write)
    float32 = xp.dtype("float32")
    keeps_dtype = {a.name for a in arguments} & {"dtype"}
    dtype_at = op.schema.index_of("dtype") if keeps_dtype else None

    def edge(y: Any) -> Any:
        if type(y) is ndarray:
            return y
        if isinstance(y, tuple):
            return tuple(edge(v) for v in y)
        if isinstance(y, generic):
            return asarray(y)
        return y

    if op.half == "native" or not tensors:

        def native(*args: Any) -> Any:
            try:
                y = body(xp, *args)
            except RAW_ERRORS as error:
                raise refusal(op, args, error) from error
            return y if type(y) is ndarray else edge(y)

        return native

    def widen(x: Any, seen: list[Any]) -> Any:
        if type(x) is ndarray and x.dtype in HALF_TYPES:
            seen.append(x.dtype)
            return x.astype(float32)
        if isinstance(x, (list, tuple)):
            return [widen(v, seen) for v in x]
        return x

    def narrow(y: Any, dtype: Any) -> Any:
        if isinstance(y, (tuple, list)):
            return type(y)(narrow(v, dtype) for v in y)
        y = edge(y)
        return y.astype(dtype) if type(y) is ndarray and y.dtype == float32 else y

    first = tensors[0]
    promotes = op.half == "promote"

    def call(*args: Any) -> Any:
        x = args[first]
        if type(x) is ndarray and x.dtype not in HALF_TYPES:
            try:
                y = body(xp, *args)
            except RAW_ERRORS as error:
                raise refusal(op, args, error) from error
            return y if type(y) is ndarray else edge(y)
        seen: list[Any] = []
        values = [widen(v, seen) if i in tensors else v for i, v in enumerate(args)]
        try:
            y = body(xp, *values)
        except RAW_ERRORS as error:
            raise refusal(op, args, error) from error
        # An explicit dtype says what comes back; so does a float32 operand beside half ones.
        if not seen or (dtype_at is not None and args[dtype_at] is not None):
            return edge(y)
        if promotes:
            target = result_type(*(args[i] for i in tensors))
            return narrow(y, target) if target in HALF_TYPES else edge(y)
        target = seen[0]
        for d in seen[1:]:
            target = promote(target, d)
        return narrow(y, target)

    return call


def _holds_tensors(t: Any) -> bool:
    if isinstance(t, OptionalType):
        return _holds_tensors(t.element)
    return t == TENSOR or (isinstance(t, ListType) and _holds_tensors(t.element))
