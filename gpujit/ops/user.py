"""Operators of a program's own: ``gpujit.op`` enters them into the table, ``gpujit.remove_op`` takes them out again.

They are entries like all others, declared through the registry's five decorators; only the checks are stricter, since a
mistake here is a user's and has to be explained.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from gpujit.ir.schema import Schema, parse_schema
from gpujit.ir.types import TENSOR
from gpujit.ops import registry
from gpujit.ops.registry import KINDS, NOTHING_REFUSED, Body, Op, TypeRule
from gpujit.ops.table import by_full_name, by_name, registered
from gpujit.support.errors import ArgumentError, OpError, SchemaError

RESERVED = ("aten", "prim")
_LOCK = threading.RLock()
# Entries declared here, by full name.
_USER: dict[str, Op] = {}


def op(
    text: str,
    *,
    kind: str = "library",
    inplace: bool = False,
    out: str | None = None,
    type_rule: TypeRule | None = None,
    onnx: object = None,
    effects: bool = False,
    result: str = "same",
    operands: tuple[str, ...] | None = None,
    refuse: Mapping[str, str] = NOTHING_REFUSED,
    half: str = "float32",
    replace: bool = False,
    override: bool = False,
) -> Callable[[Body], Body]:
    """Decorator: the function becomes the operator that the schema ``text`` names, and is returned unchanged.

    The body gets the array module first (not for ``kind="prim"``), then all arguments of the schema by position,
    defaults filled in. Tensors are arrays.

    Args:
        text: ``my::thing(Tensor x, int n=2) -> Tensor``; alias marks as in PyTorch's schemas.
        kind: ``library``: the body does as it likes; half types arrive as float32 and go back (``half="native"``: as
            they are). ``pointwise``: element by element, operands arrive cast to PyTorch's promoted dtype.
            ``reduction``: rows to values. ``view``: the result shares the first argument's memory. ``prim``: Python
            values only.
        inplace: also declare ``thing_``; the first argument must be ``Tensor self``.
        out: also declare an out= form, under this overload name.
        type_rule, onnx: what the result's type is without running, and the ONNX operator's name.
        effects: it must run even when nobody reads its result (library and prim).
        result, operands, refuse: dtypes of a pointwise operator, see gpujit.ops.registry.pointwise.
        replace: take the place of an operator declared with ``gpujit.op`` before.
        override: allow the namespaces ``aten`` and ``prim``. Operators that gpujit has itself are never replaced.
    Raises SchemaError for a text that is no schema, ArgumentError for everything else that does not fit.
    """
    schema = _schema(text)
    namespace = schema.name.partition("::")[0]
    if kind not in KINDS:
        raise ArgumentError(f"gpujit.op {schema.full_name}: kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if namespace in RESERVED and not override:
        raise ArgumentError(
            f"gpujit.op {schema.full_name}: the namespace {namespace!r} is PyTorch's own; use another one, or pass "
            "override=True to add an operator that gpujit lacks"
        )
    _check_options(schema, kind, inplace, out, effects, half, result, operands)
    names = _names(schema, inplace, out)
    _check_free(names, replace)

    def declare(body: Body) -> Body:
        _check_body(schema, kind, body)
        checked = body if kind in ("prim", "pointwise") else _checked(body, schema)
        with _LOCK:
            _check_free(names, replace)
            for name in names:
                if name in _USER:
                    registry.remove_entry(_USER.pop(name))
            _declare(text, kind, checked, inplace, out, type_rule, onnx, effects, result, operands, refuse, half)
            for entry in list(registered()):
                if entry.full_name in names:
                    _USER[entry.full_name] = entry
        return body

    return declare


def remove_op(name: str) -> None:
    """Take an operator declared with ``gpujit.op`` out of the table, with its in-place and out= forms.

    ``my::thing`` removes all overloads, ``my::thing.int`` one. A model that ran before keeps what it was compiled with.
    Raises ArgumentError when there is no such operator, or when it is one of gpujit's own.
    """
    with _LOCK:
        found = [e for e in _USER.values() if name in (e.name, e.full_name)]
        if not found:
            known = "is an operator of gpujit's own" if by_name(name) or by_full_name(name) else "is not declared"
            raise ArgumentError(
                f"gpujit.remove_op: {name} {known}; declared with gpujit.op are: {', '.join(sorted(_USER)) or 'none'}"
            )
        found += [e for e in _USER.values() if e.derived_from in found and e not in found]
        for entry in found:
            registry.remove_entry(entry)
            del _USER[entry.full_name]


# ------------------------------------------------------------------------------------------------------ checks


def _schema(text: str) -> Schema:
    if not isinstance(text, str):
        raise SchemaError(
            f"gpujit.op takes a schema such as 'my::thing(Tensor x) -> Tensor', found {type(text).__name__}; "
            "write @gpujit.op(...) with the text in parentheses"
        )
    try:
        schema = parse_schema(text)
    except (ValueError, IndexError) as e:
        raise SchemaError(f"schema {text!r} cannot be read: {e}") from None
    if schema.name.count("::") != 1:
        raise SchemaError(f"schema {text!r}: {schema.name!r} needs one namespace, as in 'my::thing(...) -> ...'")
    if schema.is_vararg or schema.is_varret:
        raise SchemaError(f"schema {text!r}: '...' is not supported; take a list instead")
    arguments = [a.name for a in schema.arguments]
    if "" in arguments:
        raise SchemaError(f"schema {text!r}: argument {arguments.index('') + 1} has no name")
    if len(set(arguments)) != len(arguments):
        raise SchemaError(f"schema {text!r}: two arguments have the same name")
    return schema


def _check_options(
    schema: Schema,
    kind: str,
    inplace: bool,
    out: str | None,
    effects: bool,
    half: str,
    result: str,
    operands: tuple[str, ...] | None,
) -> None:
    def refuse(reason: str) -> ArgumentError:
        return ArgumentError(f"gpujit.op {schema.full_name}: {reason}")

    arguments, returns = schema.arguments, schema.returns
    if kind == "view" and (not arguments or not returns or None in [a.alias for a in (arguments[0], *returns)]):
        raise SchemaError(
            f"schema {schema}: a view shares memory, so its first argument and its result need an alias mark: Tensor(a)"
        )
    if kind == "pointwise" and ([r.type for r in returns] != [TENSOR] or not any(a.type == TENSOR for a in arguments)):
        raise refuse("a pointwise operator takes a Tensor or more and returns one Tensor; declare it as kind='library'")
    if kind == "pointwise" and any(a.is_write for a in arguments):
        raise refuse("a pointwise operator writes nothing; declare the plain form with inplace=True")
    if kind == "reduction" and not any(a.type == TENSOR for a in arguments):
        raise refuse("a reduction takes at least one Tensor; declare it as kind='library'")
    if kind in ("view", "prim") and (inplace or out is not None):
        raise refuse(f"an operator of kind {kind!r} has no derived in-place or out= form")
    if inplace and [str(a) for a in arguments[:1]] != ["Tensor self"]:
        raise refuse("an in-place form needs 'Tensor self' as the first argument")
    if (inplace or out is not None) and [r.text for r in returns] != ["Tensor"]:
        raise refuse("in-place and out= forms are derived from operators that return one Tensor")
    if effects and kind not in ("library", "prim"):
        raise refuse(f"effects=True goes with kind 'library' or 'prim', not {kind!r}")
    for name, value, known in (
        ("half", half, ("float32", "native", "promote")),
        ("result", result, ("same", "float", "bool", "real", "first", "integer", "any")),
    ):
        if value not in known:
            raise refuse(f"{name} is {value!r}, expected one of {', '.join(known)}")
    for name in operands or ():
        if name not in [a.name for a in arguments]:
            raise refuse(f"operands names {name!r}, which is none of its arguments")


def _names(schema: Schema, inplace: bool, out: str | None) -> list[str]:
    names = [schema.full_name]
    if inplace:
        names.append(f"{schema.name}_.{schema.overload}" if schema.overload else f"{schema.name}_")
    if out is not None:
        names.append(f"{schema.name}.{out}")
    return names


def _check_free(names: list[str], replace: bool) -> None:
    for name in names:
        if by_full_name(name) is None or (replace and name in _USER):
            continue
        if name in _USER:
            raise ArgumentError(f"gpujit.op {name}: the name is declared already; pass replace=True to declare it anew")
        raise ArgumentError(f"gpujit.op {name}: gpujit has this operator itself and keeps it; use another name")


def _check_body(schema: Schema, kind: str, body: Body) -> None:
    if not callable(body):
        raise ArgumentError(f"gpujit.op {schema.full_name} decorates a function, found {type(body).__name__}")
    count = len(schema.arguments) + (kind != "prim")
    try:
        signature = inspect.signature(body)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError:
        takes = ", ".join([*(["xp"] if kind != "prim" else []), *(a.name for a in schema.arguments)])
        raise ArgumentError(
            f"gpujit.op {schema.full_name}: the body takes {signature}, but is called with {count} arguments: ({takes})"
        ) from None


def _checked(body: Body, schema: Schema) -> Body:
    """The body with a check that it gives what the schema declares: the interpreter relies on it."""
    name, count = schema.full_name, len(schema.returns)
    tensor = [r.type == TENSOR for r in schema.returns]
    plain = (int, float, complex, str, list, tuple, dict, type(None))

    @wraps(body)
    def call(*args: Any) -> Any:
        y = body(*args)
        if count == 1:
            values = (y,)
        elif isinstance(y, (tuple, list)) and len(y) == count:
            values = y = tuple(y)
        elif count == 0:
            return None
        else:
            found = type(y).__name__
            raise OpError(f"{name}: the body returned one {found}, the schema declares {count} results; return a tuple")
        for value, wanted in zip(values, tensor, strict=True):
            # NumPy's scalars count as arrays, and float64 is a float.
            if wanted and isinstance(value, plain) and not hasattr(value, "dtype"):
                raise OpError(f"{name}: the body returned {type(value).__name__} where the schema declares a Tensor")
        return y

    return call


def _declare(
    text: str,
    kind: str,
    body: Body,
    inplace: bool,
    out: str | None,
    type_rule: TypeRule | None,
    onnx: object,
    effects: bool,
    result: str,
    operands: tuple[str, ...] | None,
    refuse: Mapping[str, str],
    half: str,
) -> None:
    if kind == "pointwise":
        dtypes: dict[str, Any] = {"result": result, "operands": operands, "refuse": refuse}
        registry.pointwise(text, inplace=inplace, out=out, type_rule=type_rule, onnx=onnx, **dtypes)(body)
    elif kind == "reduction":
        registry.reduction(text, half=half, inplace=inplace, out=out, type_rule=type_rule, onnx=onnx)(body)
    elif kind == "library":
        registry.library(
            text, half=half, effects=effects, inplace=inplace, out=out, type_rule=type_rule, onnx=onnx
        )(body)
    elif kind == "view":
        registry.view(text, type_rule=type_rule, onnx=onnx)(body)
    else:
        registry.prim(text, effects=effects, type_rule=type_rule, may_fail=True)(body)
