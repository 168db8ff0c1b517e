"""Python values against TorchScript types: run-time ``isinstance``, ``tolist``, and arguments given by a caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.arrays import Misfit as _Misfit
from gpujit.ir.arrays import as_array, describe
from gpujit.ir.dtypes import is_tensor_dtype
from gpujit.ir.schema import Argument, Schema
from gpujit.ir.values import (
    Device,
    DeviceTensor,
    EnumValue,
    Future,
    QTensor,
    ScriptObject,
    SparseTensor,
    is_int64,
    namedtuple_class,
    parse_device,
)
from gpujit.support.errors import ArgumentError, AttributeTypeError, GpujitError, OpError

if TYPE_CHECKING:
    from gpujit.ir.graph import Graph

_SIMPLE: dict[T.Type, type | tuple[type, ...]] = {
    T.INT: int, T.FLOAT: float, T.BOOL: bool, T.COMPLEX: complex, T.STR: str, T.NONE: type(None), T.DEVICE: Device,
    T.ANY_LIST: list, T.ANY_TUPLE: tuple, T.ANY_ENUM: EnumValue, T.ANY_CLASS: ScriptObject,
}  # fmt: skip


_TENSORS = (np.ndarray, QTensor, SparseTensor, DeviceTensor)


def is_tensor(value: Any) -> bool:
    """Whether a run-time value is a tensor: an array, or a quantised or sparse one, or one on a device."""
    return isinstance(value, _TENSORS) or hasattr(value, "__cuda_array_interface__")


def has_type(value: Any, t: T.Type) -> bool:
    """Whether a run-time value belongs to a type. Lists and dicts are checked through their elements."""
    if t == T.ANY:
        return True
    if isinstance(t, T.TensorType):
        return is_tensor(value)
    simple = _SIMPLE.get(t)
    if simple is not None:
        return isinstance(value, simple) and (t != T.INT or not isinstance(value, bool))
    if t == T.NUMBER:
        return isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return any(has_type(value, m) for m in T.members_of(t))
    if isinstance(t, T.ListType):
        return isinstance(value, list) and all(has_type(v, t.element) for v in value)
    if isinstance(t, T.DictType):
        return isinstance(value, dict) and all(has_type(k, t.key) and has_type(v, t.value) for k, v in value.items())
    if isinstance(t, T.TupleType):
        if t.name is not None and not isinstance(value, namedtuple_class(t)):
            return False
        return isinstance(value, tuple) and len(value) == len(t.elements) and all(map(has_type, value, t.elements))
    if isinstance(t, T.ClassType):
        return isinstance(value, ScriptObject) and value.type == t
    if isinstance(t, T.InterfaceType):
        return isinstance(value, ScriptObject) and T.is_subtype(value.type, t)
    if isinstance(t, T.EnumType):
        return isinstance(value, EnumValue) and value.type == t
    if isinstance(t, T.BoxType):
        return isinstance(value, Future)
    return False


def is_instance(value: Any, types: tuple[T.Type, ...]) -> bool:
    """TorchScript's ``isinstance``."""
    return any(has_type(value, t) for t in types)


def tensor_to_list(value: Any, type_: T.Type) -> Any:
    """``x.tolist()`` with the annotated result type. Raises OpError when rank or dtype do not fit it."""
    rank = 0
    t = type_
    while isinstance(t, T.ListType):
        rank += 1
        t = t.element
    if value.ndim != rank:
        raise OpError(
            f"tolist: the annotated type {type_.annotation()} has {rank} dimensions, the tensor has {value.ndim}"
        )
    kinds: dict[T.Type, str] = {T.INT: "iu", T.FLOAT: "f", T.BOOL: "b", T.COMPLEX: "c"}
    kind = value.dtype.kind if value.dtype.kind != "V" else "f"
    if kind not in kinds.get(t, ""):
        raise OpError(f"tolist: the annotated type {type_.annotation()} does not fit a tensor of dtype {value.dtype}")
    return value.tolist()


# ---------------------------------------------------------------------------------- values given by a caller


def convert(value: Any, t: T.Type) -> Any:
    """A caller's value as a run-time value of type ``t`` (PyTorch's rules for arguments). Raises _Misfit.

    int becomes float, bool becomes int, int becomes bool, tuples and lists become each other, a 0-dim tensor becomes a
    number.
    """
    if isinstance(t, T.TensorType):
        number = isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)
        if number or isinstance(value, (str, list, tuple, dict, type(None))):
            raise _Misfit(describe(value))
        return as_array(value)
    if t == T.ANY:
        return as_array(value) if hasattr(value, "__array__") or hasattr(value, "__dlpack__") else value
    if isinstance(t, T.OptionalType):
        return None if value is None else convert(value, t.element)
    if isinstance(t, T.UnionType):
        for m in t.members:
            if has_type(value, m):
                return value
        for m in t.members:
            try:
                return convert(value, m)
            except _Misfit:
                continue
        raise _Misfit(describe(value))
    if t in (T.INT, T.FLOAT, T.BOOL, T.NUMBER, T.COMPLEX):
        return _number(value, t)
    if t == T.STR:
        if isinstance(value, str):
            return value
        raise _Misfit(describe(value))
    if t == T.NONE:
        if value is None:
            return None
        raise _Misfit(describe(value))
    if t == T.DEVICE:
        return value if isinstance(value, Device) else parse_device(str(value))
    if isinstance(t, T.ListType):
        if not isinstance(value, (list, tuple)):
            raise _Misfit(describe(value))
        if isinstance(value, list) and all(has_type(v, t.element) for v in value):
            # A copy, as in PyTorch: what the program appends is not seen by the caller.
            return list(value)
        return [convert(v, t.element) for v in value]
    if isinstance(t, T.DictType):
        if not isinstance(value, Mapping):
            raise _Misfit(describe(value))
        return {convert(k, t.key): convert(v, t.value) for k, v in value.items()}
    if isinstance(t, T.TupleType):
        if not isinstance(value, (tuple, list)) or len(value) != len(t.elements):
            raise _Misfit(describe(value))
        items = [convert(v, e) for v, e in zip(value, t.elements, strict=True)]
        return namedtuple_class(t)(*items) if t.name is not None else tuple(items)
    if isinstance(t, T.EnumType):
        if isinstance(value, EnumValue) and value.type == t:
            return value
        name = getattr(value, "name", None)
        if isinstance(name, str) and name in t.members and getattr(value, "value", None) == t.members[name]:
            return EnumValue(t, name, t.members[name])
        raise _Misfit(describe(value))
    inner = getattr(value, "_object", value)
    if has_type(inner, t):
        return inner
    raise _Misfit(describe(value))


def _number(value: Any, t: T.Type) -> Any:
    if not isinstance(value, (bool, int, float, complex)):
        if isinstance(value, np.generic) or hasattr(value, "__array__"):
            array = as_array(value)
            if array.ndim:
                raise _Misfit(describe(value))
            value = array.item()
        elif hasattr(value, "__index__"):
            value = value.__index__()
        else:
            raise _Misfit(describe(value))
    if t == T.NUMBER:
        return value
    if t == T.FLOAT and isinstance(value, (int, float)):
        return float(value)
    if t == T.COMPLEX:
        return complex(value)
    if t == T.INT and isinstance(value, int):
        if not is_int64(value):
            raise _Misfit(f"int {value} (outside 64 bits)")
        return int(value)
    if t == T.BOOL and isinstance(value, int):
        return bool(value)
    raise _Misfit(describe(value))


def bind_arguments(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], *, skip: int = 0) -> list[Any]:
    """Run-time values for a call, defaults filled in; the first ``skip`` arguments (self) are left out.

    Raises ArgumentError that names the argument and shows the declared signature.
    """
    arguments = schema.arguments[skip:]
    if not kwargs and len(args) == len(arguments) and all(map(_is_plain, args, arguments)):
        return list(args)
    name = schema.name.rpartition(".")[2]
    positional = [a for a in arguments if not a.kwarg_only]
    if len(args) > len(positional):
        raise ArgumentError(
            f"{name}() expected at most {len(positional)} positional arguments but received {len(args)}. "
            f"Declaration: {declaration(schema, skip)}"
        )
    values: list[Any] = []
    used = 0
    for i, argument in enumerate(arguments):
        if i < len(args) and not argument.kwarg_only:
            if argument.name in kwargs:
                raise ArgumentError(
                    f"{name}() got argument '{argument.name}' twice. Declaration: {declaration(schema, skip)}"
                )
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
            used += 1
        elif argument.has_default:
            values.append(_default(argument))
            continue
        else:
            raise ArgumentError(
                f"{name}() is missing value for argument '{argument.name}'. Declaration: {declaration(schema, skip)}"
            )
        try:
            values.append(convert(value, argument.type))
        except _Misfit as e:
            raise ArgumentError(
                f"{name}() expected a value of type '{argument.type.annotation()}' for argument '{argument.name}' "
                f"(position {i}) but found {e}. Declaration: {declaration(schema, skip)}"
            ) from None
        except GpujitError as e:
            raise ArgumentError(f"{name}(), argument '{argument.name}' (position {i}): {e.message}") from None
    if used != len(kwargs):
        unknown = sorted(set(kwargs) - {a.name for a in arguments})
        raise ArgumentError(
            f"{name}() got unknown keyword arguments {unknown}. Declaration: {declaration(schema, skip)}"
        )
    return values


def bind_inputs(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Run-time values for a graph's inputs, given in their order or by their names. Raises ArgumentError."""
    names = [v.name for v in graph.inputs]
    shown = f"Inputs: {', '.join(f'{v.name} : {v.type}' for v in graph.inputs)}"
    if len(args) > len(names):
        raise ArgumentError(f"the graph expected {len(names)} inputs but received {len(args)}. {shown}")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in given:
            raise ArgumentError(f"the graph got input {name!r} {'twice' if name in given else 'of no use'}. {shown}")
        given[name] = value
    values = []
    for value in graph.inputs:
        if value.name not in given:
            raise ArgumentError(f"the graph is missing a value for input {value.name!r}. {shown}")
        try:
            values.append(convert(given[value.name], value.type))
        except (_Misfit, GpujitError) as e:
            raise ArgumentError(f"input {value.name!r} of the graph is of type {value.type}; found {e}") from None
    return values


def _is_plain(value: Any, argument: Argument) -> bool:
    """Whether a value is an array that goes to a tensor's argument as it is: most calls have no other arguments."""
    return (
        type(value) is np.ndarray
        and type(argument.type) is T.TensorType
        and not argument.kwarg_only
        and is_tensor_dtype(value.dtype)
    )


def _default(argument: Argument) -> Any:
    value = argument.default
    if isinstance(value, (list, dict)):
        return type(value)(value)
    plain = argument.type.element if isinstance(argument.type, T.OptionalType) else argument.type
    if plain == T.FLOAT and isinstance(value, int):
        return float(value)
    return value


def declaration(schema: Schema, skip: int = 0) -> str:
    """The signature as its author wrote it: ``forward(Tensor x, int n=1) -> Tensor``."""
    arguments = ", ".join(str(a) for a in schema.arguments[skip:])
    return f"{schema.name.rpartition('.')[2]}({arguments}) -> {schema.returns[0].type}"


def convert_attribute(value: Any, t: T.Type, owner: str, name: str) -> Any:
    """A value to be stored in an attribute of type ``t``. Raises AttributeTypeError when it does not fit."""
    try:
        return convert(value, t)
    except (_Misfit, GpujitError) as e:
        raise AttributeTypeError(
            f"attribute '{name}' of {owner} has type {t.annotation()}; a value of {e} does not fit"
        ) from None
