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

What a schema cannot say about memory and effects is declared with the entry as well: ``may_alias``, ``hidden_writes``,
``effects``, ``random``, ``active_if``, ``asked_for_shape`` (see ``Op``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from gpujit.ir.schema import Schema, operator_name, parse_schema
from gpujit.ops.into import OfBody, by_body, elementwise
from gpujit.ops.kernels import explained, make_kernel, make_out_kernel
from gpujit.support.errors import InternalError

Body = Callable[..., Any]
TypeRule = Callable[..., Any]

NOTHING_REFUSED: Mapping[str, str] = {}
KINDS = ("pointwise", "reduction", "library", "view", "prim")


class Op:
    """One overload of one operator.

    ``name`` is ``aten::add``, ``overload`` is ``Tensor``; ``kind`` is one of KINDS; ``derived_from`` is the functional
    entry when this one is its in-place or out= form.

    Facts that the schema does not hold:
        asked_for_shape: names of a view's tensor arguments of which shape and dtype alone matter. Where a view that
            reads the elements of others looks is known once it runs.
        may_alias: a result may be an argument, or share memory with one, without an alias mark in the schema.
        hidden_writes: names of arguments that are written although the schema does not mark them.
        effects: it must run even when nobody reads its result.
        random: it draws from a generator, which counts as an effect.
        active_if: names of arguments; while one of them is False or 0 there are no effects, draws or hidden writes.
        never_raises: it succeeds on all values that fit the schema.
        scalar: how it is recorded for kernels, when not by its body (see ``record``).
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
        scalar: object = None,
        may_alias: bool = False,
        hidden_writes: tuple[str, ...] = (),
        random: bool = False,
        active_if: tuple[str, ...] = (),
        never_raises: bool = False,
        asked_for_shape: tuple[str, ...] = (),
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
        self.effects = effects or random
        self.derived_from = derived_from
        self.form = form
        self.into = into
        self.scalar = scalar
        self.may_alias = may_alias
        # A form that is derived draws and writes what its functional entry does.
        self.hidden_writes: tuple[str, ...] = derived_from.hidden_writes if derived_from is not None else hidden_writes
        self.random: bool = derived_from.random if derived_from is not None else random
        self.active_if: tuple[str, ...] = derived_from.active_if if derived_from is not None else active_if
        self.never_raises = never_raises
        self.asked_for_shape = asked_for_shape
        self._kernels: dict[Any, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<Op {self.full_name} {self.kind}>"

    @property
    def full_name(self) -> str:
        """``aten::add.Tensor``."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    def asks_for_shape(self, position: int) -> bool:
        """Whether of an argument, a tensor, shape and dtype alone matter."""
        return self.schema.arguments[position].name in self.asked_for_shape

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
            found = self._kernels[xp] = make_kernel(self, xp)
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
            found = self._kernels[xp, "out"] = make_out_kernel(self, xp, self.full_name)
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
    scalar: object = None,
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
        scalar: a second body, to be recorded in place of the first (see ``record``), or OPAQUE when none can be.
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
                scalar=scalar,
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
    scalar: object = None,
    may_alias: bool = False,
    hidden_writes: tuple[str, ...] = (),
    active_if: tuple[str, ...] = (),
) -> Callable[[Body], Body]:
    """Declare an operator over rows.

    ``half="native"`` hands half-precision arrays to the body as they are. ``half="promote"``: the result is half only
    when all tensor operands together promote to it (otherwise the half operands decide). ``scalar``: a
    ``Rows`` that says what becomes of a row, to be recorded (see ``record``); without it nothing can be recorded.
    """

    def declare(body: Body) -> Body:
        op = add_op(
            Op(
                text,
                "reduction",
                body,
                half=half,
                type_rule=type_rule,
                onnx=onnx,
                into=_out_variant(body, into),
                scalar=scalar,
                may_alias=may_alias,
                hidden_writes=hidden_writes,
                active_if=active_if,
            )
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
    may_alias: bool = False,
    random: bool = False,
    active_if: tuple[str, ...] = (),
    scalar: object = None,
) -> Callable[[Body], Body]:
    """Declare an operator with a kernel of its own. ``scalar``: ``Rows``, for one that can be recorded all the same."""

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
                may_alias=may_alias,
                random=random,
                active_if=active_if,
                scalar=scalar,
            )
        )
        _derive(op, inplace, out)
        return body

    return declare


def view(
    text: str,
    *,
    type_rule: TypeRule | None = None,
    onnx: object = None,
    scalar: object = None,
    asked_for_shape: tuple[str, ...] = (),
) -> Callable[[Body], Body]:
    """Declare an operator whose result shares memory with its first argument (or may).

    ``scalar``: ``Rows`` of one that may compute, such as a cast. ``asked_for_shape``: see ``Op``.
    """

    def declare(body: Body) -> Body:
        op = add_op(
            Op(
                text,
                "view",
                body,
                half="native",
                type_rule=type_rule,
                onnx=onnx,
                scalar=scalar,
                asked_for_shape=asked_for_shape,
            )
        )
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
    text: str,
    *,
    effects: bool = False,
    type_rule: TypeRule | None = None,
    may_fail: bool = False,
    may_alias: bool = False,
    never_raises: bool = False,
) -> Callable[[Body], Body]:
    """Declare an operator on Python values; the body takes no array module.

    ``may_fail``: it may raise errors of Python's own, such as MemoryError, which become the operator's.
    """

    def declare(body: Body) -> Body:
        op = add_op(
            Op(
                text,
                "prim",
                body,
                effects=effects,
                type_rule=type_rule,
                may_alias=may_alias,
                never_raises=never_raises,
            )
        )
        if may_fail:
            op.body = explained(op, body)
        return body

    return declare


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
