"""Overload resolution: which schema a call means, and how each argument gets to its parameter.

Candidates are tried in declaration order in two rounds, first without and then with implicit conversions; the first
that matches wins. Within one schema: positional arguments, then keywords, then defaults; a broadcasting list takes a
lone element, the last list parameter takes several positional arguments, tuples become lists.
Source: the behaviour of torch.jit's schema matcher, found by experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.schema import Argument, Schema
from gpujit.ops import table
from gpujit.ops.registry import Op
from gpujit.support.errors import InternalError

# How a value of one type becomes another: the operator that converts it.
FROM_TENSOR: dict[T.Type, str] = {
    T.FLOAT: "aten::FloatImplicit", T.COMPLEX: "aten::ComplexImplicit",
    T.INT: "aten::IntImplicit", T.NUMBER: "aten::ScalarImplicit",
}  # fmt: skip
_FROM_NUMBER: dict[T.Type, str] = {
    T.FLOAT: "aten::Float.Scalar",
    T.COMPLEX: "aten::Complex.Scalar",
    T.INT: "aten::Int.Scalar",
}
_FROM_BOOL: dict[T.Type, str] = {
    T.FLOAT: "aten::Float.bool",
    T.INT: "aten::Int.bool",
    T.NUMBER: "aten::Int.bool",
    T.COMPLEX: "aten::Complex.Scalar",
}


@dataclass(frozen=True, slots=True)
class Step:
    """How one parameter gets its value.

    ``kind`` is ``value`` (argument ``index`` as it is), ``convert`` (through operator ``op``), ``repeat`` (argument
    ``index`` copied ``count`` times into a list), ``unpack`` (a tuple's elements into a list), ``pack`` (``count``
    positional arguments from ``index`` on into a list) or ``default``.
    """

    kind: str
    type: T.Type
    index: int = -1
    op: str = ""
    count: int = 0
    default: Any = None
    element: T.Type | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A call's meaning: the schema, a step for each parameter (varargs follow), and the types of the results."""

    schema: Schema
    steps: tuple[Step, ...]
    results: tuple[T.Type, ...]


def bind(formal: T.Type, actual: T.Type, binding: dict[str, T.Type]) -> bool:
    """Bind the type variables of ``formal`` so that ``actual`` fits, as far as variables go; False when they cannot."""
    if isinstance(formal, T.VarType):
        known = binding.get(formal.name)
        if known is None:
            binding[formal.name] = T.TENSOR if isinstance(actual, T.TensorType) else actual
            return True
        joint = T.unify(known, actual)
        if joint is None:
            return False
        binding[formal.name] = joint
        return True
    if not formal.has_var:
        return True
    if actual == T.UNKNOWN:
        return all(bind(child, actual, binding) for child in formal.children())
    if isinstance(formal, T.OptionalType):
        if actual == T.NONE:
            return True
        return bind(formal.element, actual.element if isinstance(actual, T.OptionalType) else actual, binding)
    if isinstance(formal, T.ListType):
        if isinstance(actual, T.TupleType):
            return all(bind(formal.element, e, binding) for e in actual.elements)
        return isinstance(actual, T.ListType) and bind(formal.element, actual.element, binding)
    if isinstance(formal, T.DictType):
        return (
            isinstance(actual, T.DictType)
            and bind(formal.key, actual.key, binding)
            and bind(formal.value, actual.value, binding)
        )
    if isinstance(formal, T.TupleType):
        return (
            isinstance(actual, T.TupleType)
            and len(actual.elements) == len(formal.elements)
            and all(bind(f, a, binding) for f, a in zip(formal.elements, actual.elements, strict=True))
        )
    if isinstance(formal, T.BoxType):
        return (
            isinstance(actual, T.BoxType)
            and actual.kind == formal.kind
            and bind(formal.element, actual.element, binding)
        )
    return False


def _conversion(formal: T.Type, actual: T.Type) -> str | None:
    if isinstance(formal, T.OptionalType) and not isinstance(actual, T.OptionalType) and actual != T.NONE:
        formal = formal.element
    if isinstance(actual, T.TensorType):
        return FROM_TENSOR.get(formal)
    if actual == T.NUMBER:
        return _FROM_NUMBER.get(formal)
    if actual == T.BOOL:
        return _FROM_BOOL.get(formal)
    if actual == T.STR and formal == T.DEVICE:
        return "aten::device"
    return None


def _fit(argument: Argument, index: int, actual: T.Type, binding: dict[str, T.Type], convert: bool) -> Step | str:
    """The step that brings an argument of type ``actual`` to its parameter, or the reason why there is none."""
    formal = argument.type
    plain = formal.element if isinstance(formal, T.OptionalType) else formal
    if argument.length and isinstance(plain, T.ListType) and T.is_subtype(actual, plain.element) and actual != T.NONE:
        return Step("repeat", plain, index, count=argument.length, element=plain.element)
    if isinstance(plain, T.ListType) and isinstance(actual, T.TupleType) and actual.elements:
        if not bind(plain, actual, binding):
            return f"Could not match type {actual} to {formal} in argument '{argument.name}'"
        element = T.substitute(plain.element, binding)
        if all(T.is_subtype(e, element) for e in actual.elements):
            return Step("unpack", T.ListType(element), index, count=len(actual.elements), element=element)
    if not bind(formal, actual, binding):
        return f"Could not match type {actual} to {formal} in argument '{argument.name}'"
    try:
        concrete = T.substitute(formal, binding) if formal.has_var else formal
    except InternalError:
        return f"Could not infer the type variables of argument '{argument.name}' from {actual}"
    if T.is_subtype(actual, concrete):
        return Step("value", concrete, index)
    if convert:
        op = _conversion(concrete, actual)
        if op is not None:
            return Step("convert", concrete, index, op=op)
    return f"Expected a value of type '{concrete}' for argument '{argument.name}' but instead found type '{actual}'."


def match_schema(
    schema: Schema, positional: Sequence[T.Type], keywords: Mapping[str, T.Type], convert: bool
) -> Match | str:
    """How a call with arguments of these types fits the schema, or the reason why it does not.

    Keyword arguments are numbered after the positional ones, in their order.
    """
    binding: dict[str, T.Type] = {}
    steps: list[Step] = []
    names = list(keywords)
    used: set[str] = set()
    at = 0
    arguments = schema.arguments
    last_positional = max((i for i, a in enumerate(arguments) if not a.kwarg_only), default=-1)
    for i, argument in enumerate(arguments):
        result: Step | str
        if at < len(positional) and not argument.kwarg_only:
            left = len(positional) - at
            if (
                i == last_positional
                and left >= 1
                and not schema.is_vararg
                and isinstance(argument.type, T.ListType)
                and not argument.type.element.has_var
                and not argument.length
                and not isinstance(positional[at], (T.ListType, T.TupleType))
                and all(T.is_subtype(t, argument.type.element) for t in positional[at:])
            ):
                result = Step("pack", argument.type, at, count=left, element=argument.type.element)
                at += left
            else:
                result = _fit(argument, at, positional[at], binding, convert)
                at += 1
        elif argument.name in keywords:
            used.add(argument.name)
            index = len(positional) + names.index(argument.name)
            result = _fit(argument, index, keywords[argument.name], binding, convert)
        elif argument.has_default:
            result = Step("default", argument.type, default=argument.default)
        else:
            return f"Argument {argument.name} not provided."
        if isinstance(result, str):
            return result
        steps.append(result)
    if at < len(positional):
        if not schema.is_vararg:
            return f"Expected at most {len(arguments)} arguments but found {len(positional)} positional arguments."
        steps.extend(Step("value", t, k) for k, t in enumerate(positional[at:], at))
    for name in names:
        if name not in used:
            known = any(a.name == name for a in arguments)
            return f"Argument {name} specified twice." if known else f"Unknown keyword argument '{name}'."
    try:
        results = tuple(T.substitute(r.type, binding) if r.type.has_var else r.type for r in schema.returns)
    except InternalError:
        return "Could not infer the result's type variables from the arguments."
    return Match(schema, tuple(steps), results)


def resolve(
    candidates: Sequence[Op],
    positional: Iterable[T.Type],
    keywords: Mapping[str, T.Type],
    cache: dict[Any, Match] | None = None,
) -> Match | tuple[tuple[Schema, str], ...]:
    """The first candidate that fits, or all of them with the reason why each does not.

    ``cache`` remembers answers; it must not outlive the program whose types it holds.
    """
    types = tuple(positional)
    key = (candidates[0] if candidates else None, types, tuple(keywords.items()))
    if cache is not None and key in cache:
        return cache[key]
    for convert in (False, True):
        for op in candidates:
            found = match_schema(op.schema, types, keywords, convert)
            if not isinstance(found, str):
                if cache is not None:
                    cache[key] = found
                return found
    return tuple((op.schema, str(match_schema(op.schema, types, keywords, True))) for op in candidates)


def candidates_for(name: str, version: int | None = None) -> Sequence[Op]:
    """The overloads of an operator, as a file of that format version means them (None: today's)."""
    ops = table.by_name(name)
    if version is None:
        return ops
    old = table.historic(name, version)
    if not old:
        return ops
    return tuple(old.get(op.overload, op) for op in ops)
