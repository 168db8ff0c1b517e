"""One operator, one entry: schema, body, type rule, and what the entry may be used for.

Five decorators make entries. A body gets the array module first (``m``: numpy or cupy) and then every argument of the
schema, by position, defaults filled in:

- ``pointwise``: element by element with broadcasting. Operands arrive already cast to the dtype PyTorch computes in
  (float32 for half types), so NumPy's own promotion decides nothing; the result is cast to the dtype PyTorch returns.
- ``reduction``: rows to values, norms, softmax. Half-precision inputs arrive as float32 and results go back.
- ``library``: everything that is worth its own kernel: convolution, matmul, sorting, recurrent layers, factories.
- ``view``: returns memory shared with its input; nothing is cast or wrapped.
- ``prim``: Python values only (numbers, strings, lists); the body takes the arguments without an array module.

``inplace=True`` also declares ``name_`` and ``out="overload"`` the out= form, both derived from the same body.
``into=`` is the out-variant, which computes the result in a given array, see ``out_variants``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, wraps
from typing import Any

from gpujit.ir.dtypes import BOOL_, FLOAT32, HALF_TYPES, INT64, kind_of
from gpujit.ir.schema import Schema, operator_name, parse_schema
from gpujit.ir.types import NUMBER, TENSOR, ListType, OptionalType
from gpujit.ir.values import Array
from gpujit.ops.into import OfBody, by_body, elementwise
from gpujit.ops.promotion import can_cast, compute_type, promote, real_of, result_type, to_floating
from gpujit.ops.refusals import RAW_ERRORS, refusal
from gpujit.support.errors import DTypeError, InternalError, ShapeError

Body = Callable[..., Any]
TypeRule = Callable[..., Any]

NOTHING_REFUSED: Mapping[str, str] = {}
KINDS = ("pointwise", "reduction", "library", "view", "prim")


class Op:
    """One overload of one operator.

    ``name`` is ``aten::add``, ``overload`` is ``Tensor``; ``kind`` is one of KINDS; ``derived_from`` is the functional
    entry when this one is its in-place or out= form.
    """

    def __init__(
        self,
        text: str,
        kind: str,
        body: Body,
        *,
        type_rule: TypeRule | None = None,
        onnx: object = None,
        result: str = "same",
        operands: tuple[str, ...] | None = None,
        refuse: Mapping[str, str] = NOTHING_REFUSED,
        half: str = "float32",
        effects: bool = False,
        derived_from: Op | None = None,
        form: str = "functional",
        into: Body | None = None,
    ) -> None:
        self.text = text
        self.name, self.overload = operator_name(text)
        self.kind = kind
        self.body = body
        self.type_rule = type_rule
        self.onnx = onnx
        self.result = result
        self.operands = operands
        self.refuse = refuse
        self.half = half
        self.effects = effects
        self.derived_from = derived_from
        self.form = form
        self.into = into
        self._kernels: dict[Any, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<Op {self.full_name} {self.kind}>"

    @property
    def full_name(self) -> str:
        """``aten::add.Tensor``."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def data_dependent(self) -> bool:
        """Whether sizes of the result depend on the numbers in the inputs (declared by the type rule)."""
        return bool(getattr(self.type_rule, "data_dependent", False))

    @cached_property
    def schema(self) -> Schema:
        """The parsed schema."""
        return parse_schema(self.text)

    def kernel(self, xp: Any) -> Callable[..., Any]:
        """A callable of the schema's arguments, all positional, bound to the array module ``xp``.

        It returns what the schema declares: arrays (never NumPy scalars), Python values, or a tuple of them.
        """
        found = self._kernels.get(xp)
        if found is None:
            found = self._kernels[xp] = _make_kernel(self, xp)
        return found

    @property
    def has_out_variant(self) -> bool:
        """Whether results are computed in the given arrays; else they are computed first and copied."""
        return (self.derived_from or self).into is not None

    def out_kernel(self, xp: Any) -> Callable[..., Any]:
        """A callable ``(out, *args) -> out`` that leaves the results in ``out``: an array, or a sequence for several.

        It raises as ``kernel`` does, and DTypeError or ShapeError for results that do not fit ``out``; nothing is
        written then. ``out`` may share memory with the arguments. Only for functional entries that return tensors.
        """
        found = self._kernels.get((xp, "out"))
        if found is None:
            found = self._kernels[xp, "out"] = _make_out_kernel(self, xp, self.full_name)
        return found


_OPS: dict[str, list[Op]] = {}
_BY_FULL_NAME: dict[str, Op] = {}


def add_op(op: Op) -> Op:
    """Enter an operator into the table. Raises InternalError when its name and overload are taken."""
    if op.full_name in _BY_FULL_NAME:
        raise InternalError(f"operator {op.full_name} is declared twice")
    _BY_FULL_NAME[op.full_name] = op
    _OPS.setdefault(op.name, []).append(op)
    return op


def remove_entry(op: Op) -> None:
    """Take an operator out of the table."""
    del _BY_FULL_NAME[op.full_name]
    overloads = _OPS[op.name]
    overloads.remove(op)
    if not overloads:
        del _OPS[op.name]


def registered() -> Iterable[Op]:
    """All entries of the families imported so far, in order of declaration."""
    return _BY_FULL_NAME.values()


def by_name(name: str) -> Sequence[Op]:
    """Overloads of ``aten::add`` in order of declaration; empty when there are none."""
    return _OPS.get(name, ())


def by_full_name(name: str) -> Op | None:
    """The entry ``aten::add.Tensor``."""
    return _BY_FULL_NAME.get(name)


def type_rule_of(name: str) -> TypeRule | None:
    """The type rule of an entry, for another one that follows it. Raises InternalError when there is no such entry."""
    op = by_full_name(name)
    if op is None:
        raise InternalError(f"{name} has to be declared before an entry that takes its type rule")
    return op.type_rule


# ------------------------------------------------------------------------------------------------- decorators


def pointwise(
    text: str,
    *,
    result: str = "same",
    operands: tuple[str, ...] | None = None,
    refuse: Mapping[str, str] = NOTHING_REFUSED,
    inplace: bool = False,
    out: str | None = None,
    into: Body | bool = False,
    type_rule: TypeRule | None = None,
    onnx: object = None,
) -> Callable[[Body], Body]:
    """Declare an element-by-element operator.

    Args:
        result: how the computing and the returned dtype follow from the promoted one. ``same``: both are it.
            ``float``: integers and bools become float32 first. ``bool``: computed in it, returned as bool.
            ``real``: a complex result becomes its real kind. ``first``: computed and returned in the first operand's
            dtype. ``integer``: bools become int64 first. ``any``: the body decides what it returns, except that float32
            results of half-precision operands go back to their dtype.
        operands: names of the arguments that take part in promotion; by default every Tensor, and every Scalar named
            ``self`` or ``other``.
        refuse: kinds of the promoted dtype (``bool``, ``integer``, ``floating``, ``complex``) that raise DTypeError,
            each with what to do instead; ``bool operand`` stands for a bool among the operands.
        into: the out-variant; by default the body runs on one part of the result after the other. True when the body is
            a chain of ufuncs of ``m``, each of which reads, of all that was computed before, the last one's result
            only: they then write into the given array.
    """

    def declare(body: Body) -> Body:
        op = add_op(
            Op(
                text,
                "pointwise",
                body,
                type_rule=type_rule,
                onnx=onnx,
                result=result,
                operands=operands,
                refuse=refuse,
                into=_pointwise_variant(body, into, result),
            )
        )
        _derive(op, inplace, out)
        return body

    return declare


def reduction(
    text: str,
    *,
    half: str = "float32",
    inplace: bool = False,
    out: str | None = None,
    into: Body | OfBody | None = None,
    type_rule: TypeRule | None = None,
    onnx: object = None,
) -> Callable[[Body], Body]:
    """Declare an operator over rows.

    ``half="native"`` hands half-precision arrays to the body as they are. ``half="promote"``: the result is half only
    when all tensor operands together promote to it (otherwise the half operands decide).
    """

    def declare(body: Body) -> Body:
        op = add_op(
            Op(text, "reduction", body, half=half, type_rule=type_rule, onnx=onnx, into=_out_variant(body, into))
        )
        _derive(op, inplace, out)
        return body

    return declare


def library(
    text: str,
    *,
    half: str = "float32",
    effects: bool = False,
    inplace: bool = False,
    out: str | None = None,
    into: Body | OfBody | None = None,
    type_rule: TypeRule | None = None,
    onnx: object = None,
) -> Callable[[Body], Body]:
    """Declare an operator with a kernel of its own. ``effects``: it must run even when nobody reads its result."""

    def declare(body: Body) -> Body:
        op = add_op(
            Op(
                text,
                "library",
                body,
                half=half,
                effects=effects,
                type_rule=type_rule,
                onnx=onnx,
                into=_out_variant(body, into),
            )
        )
        _derive(op, inplace, out)
        return body

    return declare


def view(text: str, *, type_rule: TypeRule | None = None, onnx: object = None) -> Callable[[Body], Body]:
    """Declare an operator whose result shares memory with its first argument (or may)."""

    def declare(body: Body) -> Body:
        op = add_op(Op(text, "view", body, half="native", type_rule=type_rule, onnx=onnx))
        if "(a" not in text:
            raise InternalError(f"view {op.full_name} has no alias mark in its schema")
        return body

    return declare


def _pointwise_variant(body: Body, into: Body | bool, result: str) -> Body | None:
    if into is True:
        return by_body(body)
    # Which dtype to compute in parts is not known beforehand when the body decides it.
    return into or (None if result == "any" else elementwise(body))


def _out_variant(body: Body, into: Body | OfBody | None) -> Body | None:
    return into.make(body) if isinstance(into, OfBody) else into


def prim(
    text: str, *, effects: bool = False, type_rule: TypeRule | None = None, may_fail: bool = False
) -> Callable[[Body], Body]:
    """Declare an operator on Python values; the body takes no array module.

    ``may_fail``: it may raise errors of Python's own, such as MemoryError, which become the operator's.
    """

    def declare(body: Body) -> Body:
        op = add_op(Op(text, "prim", body, effects=effects, type_rule=type_rule))
        if may_fail:
            op.body = _explained(op, body)
        return body

    return declare


def _explained(op: Op, body: Body) -> Body:
    @wraps(body)
    def call(*args: Any) -> Any:
        try:
            return body(*args)
        except RAW_ERRORS as error:
            raise refusal(op, args, error) from error

    return call


def _derive(op: Op, inplace: bool, out: str | None) -> None:
    head, _, rest = op.text.partition("(")
    parameters, _, returned = rest.rpartition(" -> ")
    parameters = parameters.rpartition(")")[0]
    if inplace:
        name, dot, overload = head.partition(".")
        if not parameters.startswith("Tensor self"):
            raise InternalError(f"{op.full_name}: only an operator of 'Tensor self' has an in-place form")
        text = f"{name}_{dot}{overload}(Tensor(a!) self{parameters[len('Tensor self') :]}) -> Tensor(a!)"
        add_op(Op(text, op.kind, op.body, derived_from=op, form="inplace"))
    if out is not None:
        if returned.strip() != "Tensor":
            raise InternalError(f"{op.full_name}: only an operator that returns one Tensor has a derived out= form")
        star = "" if "*," in parameters else "*, "
        name = head.partition(".")[0]
        add_op(
            Op(
                f"{name}.{out}({parameters}, {star}Tensor(a!) out) -> Tensor(a!)",
                op.kind,
                op.body,
                derived_from=op,
                form="out",
            )
        )


def out_form(text: str, functional: str) -> None:
    """Declare an out= form that cannot be derived by name alone: several results, or an argument not called ``out``.

    The written arguments come last in ``text``, in the order of the results of the entry ``functional``.
    """
    op = by_full_name(functional)
    if op is None:
        raise InternalError(f"{functional} has to be declared before its out= form {text!r}")
    add_op(Op(text, op.kind, op.body, derived_from=op, form="out"))


# --------------------------------------------------------------------------------------------------- kernels


def _make_kernel(op: Op, xp: Any) -> Callable[..., Any]:
    if op.form == "inplace":
        assert op.derived_from is not None
        if op.kind == "pointwise" and op.has_out_variant:
            return _pointwise_inplace_kernel(op, op.derived_from, xp)
        return _inplace_kernel(op.derived_from.kernel(xp), op.full_name)
    if op.form == "out":
        assert op.derived_from is not None
        return _out_form_kernel(_make_out_kernel(op.derived_from, xp, op.full_name), len(op.schema.returns))
    if op.kind == "prim":
        return op.body
    if op.kind == "pointwise":
        return _pointwise_kernel(op, xp)
    if op.kind == "view":
        return _explained(op, partial(op.body, xp))
    return _edge_kernel(op, xp)


def check_writable(target: Array, op: str) -> None:
    """Refuse to write where several elements share one place (an expanded tensor). Raises ShapeError."""
    if 0 in target.strides and target.size:
        shared = any(st == 0 and n > 1 for st, n in zip(target.strides, target.shape, strict=True))
        if not shared:
            return
        raise ShapeError(
            f"{op}: the tensor written to, of shape {target.shape}, has elements that share memory (it was expanded); "
            "clone it first"
        )


def check_write(target: Array, value: Array, op: str) -> None:
    """Refuse what ``write_into`` can't store, before anything is written.

    Raises DTypeError when the result's kind does not fit the target, ShapeError when it would have to grow.
    """
    if value.dtype != target.dtype and not can_cast(value.dtype, target.dtype):
        raise DTypeError(f"{op}: a result of dtype {value.dtype} can't be cast to the tensor's dtype {target.dtype}")
    if value.shape != target.shape:
        raise ShapeError(f"{op}: the result has shape {value.shape}, the tensor written to has {target.shape}")
    check_writable(target, op)


def write_into(target: Array, value: Array, op: str) -> Array:
    """Store ``value`` into ``target`` under PyTorch's rule for in-place results; returns ``target``.

    Raises what ``check_write`` raises.
    """
    check_write(target, value, op)
    target[...] = value
    return target


def write_all(targets: Sequence[Array], values: Sequence[Array], op: str) -> tuple[Array, ...]:
    """Store several results, once all have been checked; returns the targets. Raises as ``check_write`` does."""
    for target, value in zip(targets, values, strict=True):
        check_write(target, value, op)
    for target, value in zip(targets, values, strict=True):
        target[...] = value
    return tuple(targets)


def _inplace_kernel(functional: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(target: Array, *args: Any) -> Any:
        return write_into(target, functional(target, *args), name)

    return call


# Up to this many elements computing and copying costs less than what an out-variant checks first.
_COPIED = 2048


def _pointwise_inplace_kernel(op: Op, functional: Op, xp: Any) -> Callable[..., Any]:
    copying = _inplace_kernel(functional.kernel(xp), op.full_name)
    into = _make_out_kernel(functional, xp, op.full_name)
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


def _make_out_kernel(op: Op, xp: Any, name: str) -> Callable[..., Any]:
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
