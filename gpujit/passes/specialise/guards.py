"""What a specialised graph assumes of its inputs and of the attributes it read: facts that can be shown and checked.

A ``Spec`` describes one value; a ``Guard`` says where it has to be found; a ``Key`` holds the Specs of all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_CODE
from gpujit.ir.graph import Graph
from gpujit.ir.types import TensorType
from gpujit.ir.values import Device, DeviceTensor, EnumValue, ScriptObject, SparseTensor
from gpujit.ops.infer_cases import type_of
from gpujit.passes.specialise.values import same_constant
from gpujit.support.errors import ArgumentError

# Inputs nested deeper than this are not described.
_DEPTH = 64
# Lists and dicts with more elements are not looked into: a guard on them would cost more than it brings.
LARGE = 1000


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a dtype and shape on the CPU; ``layout`` is 1 or 2 for a sparse one, whose shape is not looked at."""

    type: TensorType
    layout: int = 0

    def __str__(self) -> str:
        if self.layout:
            return "a sparse tensor"
        name = "Tensor" if self.type.dtype is None else BY_CODE[self.type.dtype].name
        return f"{name}{list(self.type.shape or ())}"

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is such a tensor."""
        known = self.type
        is_array = type(value) is np.ndarray or type(value) is DeviceTensor
        if is_array and known.dtype is not None and known.device is None:
            # What ``spec_of`` says of an array is its dtype and shape; this is asked on each call.
            dtype = BY_CODE[known.dtype].dtype
            return not self.layout and value.shape == known.shape and dtype is not None and bool(value.dtype == dtype)
        return spec_of(value) == self


@dataclass(frozen=True, slots=True, eq=False)
class ValueSpec:
    """A Python value, equal in type and number."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value) if not hasattr(self.value, "name") else str(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueSpec) and same_constant(self.value, other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is this one."""
        return same_constant(self.value, value)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A list, tuple (``kind`` is then its class) or dict with these elements; a dict has ``keys`` too."""

    kind: type
    items: tuple[Spec, ...]
    keys: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.kind is dict:
            return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(self.keys, self.items, strict=True)) + "}"
        inner = ", ".join(map(str, self.items))
        return f"[{inner}]" if self.kind is list else f"({inner})"

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is such a container."""
        if type(value) is not self.kind or not isinstance(value, (list, tuple, dict)) or len(value) != len(self.items):
            return False
        if isinstance(value, dict):
            keys = list(value)
            if not all(map(same_constant, keys, self.keys)):
                return False
            value = list(value.values())
        return all(spec.fits(v) for spec, v in zip(self.items, value, strict=True))


@dataclass(frozen=True, slots=True)
class LargeSpec:
    """A list or dict that is not described by its elements: it has more than ``least``, or other ones at each call."""

    kind: type
    least: int = LARGE

    def __str__(self) -> str:
        return f"a {self.kind.__name__}{'' if self.least < 0 else f' of more than {self.least} elements'}"

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is such a container."""
        return type(value) is self.kind and isinstance(value, (list, dict)) and len(value) > self.least


@dataclass(frozen=True, slots=True)
class SharingSpec:
    """Lists and dicts of which those are one, and no others, whose numbers are equal."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"one object each for {list(self.numbers)}"

    def fits(self, value: Any) -> bool:
        """Whether run-time values, in a tuple, are one and the same just so."""
        first: dict[int, int] = {}
        found = tuple([first.setdefault(id(v), n) for v, n in zip(value, self.numbers, strict=True)])
        return found == self.numbers and len(first) == len(set(self.numbers))


@dataclass(frozen=True, slots=True, eq=False)
class ObjectSpec:
    """One module or object, this very one."""

    object: Any

    def __str__(self) -> str:
        name = self.object.type.name if isinstance(self.object, ScriptObject) else type(self.object).__name__
        return f"this object of {name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectSpec) and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is this object."""
        return value is self.object


@dataclass(frozen=True, slots=True, eq=False)
class NumbersSpec:
    """A small tensor with these very numbers."""

    array: Any

    def __str__(self) -> str:
        return f"{self.array.dtype} {self.array.tolist()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumbersSpec) and self.fits(other.array)

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))

    def fits(self, value: Any) -> bool:
        """Whether a run-time value is such a tensor."""
        return (
            isinstance(value, np.ndarray)
            and value.dtype == self.array.dtype
            and value.shape == self.array.shape
            and bool((value == self.array).all())
        )


Spec = TensorSpec | ValueSpec | ContainerSpec | LargeSpec | SharingSpec | ObjectSpec | NumbersSpec


def is_array(value: Any) -> bool:
    """Whether a run-time value is a tensor."""
    return isinstance(value, np.ndarray) or (hasattr(value, "shape") and hasattr(value, "dtype")) or is_sparse(value)


def is_sparse(value: Any) -> bool:
    """Whether a run-time value is a sparse tensor."""
    return isinstance(value, SparseTensor)


def spec_of(value: Any, depth: int = 0) -> Spec:
    """What describes a run-time value."""
    if is_sparse(value):
        return TensorSpec(TensorType(), value.layout)
    if is_array(value):
        return TensorSpec(type_of(value))
    if isinstance(value, (list, dict)) and len(value) > LARGE:
        return LargeSpec(type(value))
    if depth < _DEPTH:
        if isinstance(value, (list, tuple)):
            return ContainerSpec(type(value), tuple(spec_of(v, depth + 1) for v in value))
        if isinstance(value, dict):
            return ContainerSpec(dict, tuple(spec_of(v, depth + 1) for v in value.values()), tuple(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, Device, EnumValue)):
        return ValueSpec(value)
    return ObjectSpec(value)


@dataclass(frozen=True, slots=True)
class Guard:
    """``path`` (``input x``, ``self.conv.weight``) is as ``spec`` says; ``find`` gets at it from the graph's inputs."""

    path: str
    spec: Spec
    find: Callable[[Sequence[Any]], Any]

    def __str__(self) -> str:
        return f"{self.path} is {self.spec}"

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the fact holds for these inputs."""
        try:
            return self.spec.fits(self.find(values))
        except (LookupError, AttributeError):
            return False

    def check(self, values: Sequence[Any]) -> str | None:
        """Why the fact does not hold for these inputs; None when it does."""
        try:
            found = self.find(values)
        except (LookupError, AttributeError) as error:
            return f"{self.path} is missing ({error})"
        if self.spec.fits(found):
            return None
        shown = NumbersSpec(found) if isinstance(self.spec, NumbersSpec) and is_array(found) else spec_of(found)
        return f"{self.path} is {shown}, the graph was specialised for {self.spec}"


@dataclass(frozen=True, slots=True)
class Key:
    """What a graph is specialised for: the Specs of all its inputs, ``self`` included. Keys are equal and hash alike
    for inputs that one specialised graph may serve, as far as inputs decide it."""

    inputs: tuple[Spec, ...]

    @staticmethod
    def of(graph: Graph, values: Sequence[Any]) -> Key:
        """The key of run-time values. Raises ArgumentError when they do not fit the graph's inputs."""
        if len(values) != len(graph.inputs):
            raise ArgumentError(
                f"{graph.name or 'the graph'} has {len(graph.inputs)} inputs, found {len(values)} values; "
                f"give one for each of {', '.join(f'{v.name} : {v.type}' for v in graph.inputs)}"
            )
        return Key(tuple(map(spec_of, values)))


def misfit_of(spec: Spec, t: T.Type) -> str | None:
    """Why a value of that Spec cannot be an argument of type ``t``; None when it can."""
    if t == T.ANY:
        return None
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return None if any(misfit_of(spec, m) is None for m in T.members_of(t)) else f"{spec} does not fit {t}"
    fits = True
    if isinstance(t, TensorType):
        fits = isinstance(spec, TensorSpec) and (
            bool(spec.layout) or T.is_subtype(spec.type, TensorType(t.dtype, t.shape))
        )
    elif isinstance(spec, LargeSpec):
        fits = isinstance(t, T.ListType if spec.kind is list else T.DictType)
    elif isinstance(t, T.ListType):
        fits = _holds(spec, list) and all(misfit_of(s, t.element) is None for s in spec.items)  # type: ignore[union-attr]
    elif isinstance(t, T.DictType):
        fits = _holds(spec, dict) and all(misfit_of(s, t.value) is None for s in spec.items)  # type: ignore[union-attr]
    elif isinstance(t, T.TupleType):
        fits = (
            isinstance(spec, ContainerSpec)
            and issubclass(spec.kind, tuple)
            and len(spec.items) == len(t.elements)
            and all(misfit_of(s, e) is None for s, e in zip(spec.items, t.elements, strict=True))
        )
    elif isinstance(t, T.ClassType):
        fits = isinstance(spec, ObjectSpec) and (not isinstance(spec.object, ScriptObject) or spec.object.type is t)
    elif t in _PYTHON:
        wanted = _PYTHON[t]
        fits = isinstance(spec, ValueSpec) and isinstance(spec.value, wanted)
        fits = fits and not (isinstance(spec, ValueSpec) and isinstance(spec.value, bool) and t in (T.INT, T.NUMBER))
    return None if fits else f"{spec} does not fit {t}"


def _holds(spec: Spec, kind: type) -> bool:
    return isinstance(spec, ContainerSpec) and spec.kind is kind


_PYTHON: dict[T.Type, type | tuple[type, ...]] = {
    T.INT: int, T.FLOAT: float, T.BOOL: bool, T.COMPLEX: complex, T.STR: str, T.NONE: type(None),
    T.NUMBER: (int, float, complex),
}  # fmt: skip


def check_key(graph: Graph, key: Key) -> None:
    """Raises ArgumentError when a key does not fit the graph's signature."""
    if len(key.inputs) != len(graph.inputs):
        raise ArgumentError(
            f"{graph.name or 'the graph'} has {len(graph.inputs)} inputs, the key describes {len(key.inputs)}"
        )
    for i, (value, spec) in enumerate(zip(graph.inputs, key.inputs, strict=True)):
        reason = misfit_of(spec, value.type)
        if reason is not None:
            raise ArgumentError(f"{graph.name or 'the graph'}: input {i} ({value.name or '?'}): {reason}")
