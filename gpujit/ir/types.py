"""Types of TorchScript values, with both of their text forms.

``str(t)`` is the form of graph text (``Tensor?``, ``int[]``, ``Dict(str, Tensor)``); ``t.annotation()`` is the form of
Python source (``Optional[Tensor]``, ``List[int]``). Types are immutable and compared by structure; classes,
interfaces and enums are compared by identity, since two files may define different ones under one name.
Source: TorchScript language reference; docs/types.md lists the subtyping rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpujit.ir.dtypes import IR_NAMES
from gpujit.support.errors import InternalError

if TYPE_CHECKING:
    from gpujit.ir.module import Function


class Type:
    """Base of all types."""

    __slots__ = ()

    def annotation(self) -> str:
        """The type as Python source."""
        return str(self)

    def children(self) -> tuple[Type, ...]:
        """Element types, outermost first."""
        return ()

    @property
    def has_var(self) -> bool:
        """Whether a schema's type variable occurs in it."""
        return any(c.has_var for c in self.children())


@dataclass(frozen=True, slots=True)
class SimpleType(Type):
    """A type without parts; ``kind`` is its name in graph text."""

    kind: str
    source: str

    def __str__(self) -> str:
        return self.kind

    def annotation(self) -> str:
        return self.source


INT = SimpleType("int", "int")
FLOAT = SimpleType("float", "float")
COMPLEX = SimpleType("complex", "complex")
BOOL = SimpleType("bool", "bool")
NUMBER = SimpleType("Scalar", "number")
STR = SimpleType("str", "str")
NONE = SimpleType("NoneType", "NoneType")
DEVICE = SimpleType("Device", "Device")
GENERATOR = SimpleType("Generator", "Generator")
STREAM = SimpleType("Stream", "Stream")
STORAGE = SimpleType("Storage", "Storage")
QSCHEME = SimpleType("QScheme", "QScheme")
ANY = SimpleType("Any", "Any")
ANY_LIST = SimpleType("AnyListType", "list")
ANY_TUPLE = SimpleType("AnyTupleType", "tuple")
ANY_ENUM = SimpleType("AnyEnumType", "AnyEnumType")
ANY_CLASS = SimpleType("AnyClassType", "AnyClassType")
FUNCTION = SimpleType("Function", "Function")
CAPSULE = SimpleType("Capsule", "Capsule")
# What an operator without an entry returns: it fits everywhere, since nothing after it is ever run.
UNKNOWN = SimpleType("Unknown", "Unknown")

SIMPLE_TYPES: dict[str, SimpleType] = {
    t.kind: t
    for t in (
        INT, FLOAT, COMPLEX, BOOL, NUMBER, STR, NONE, DEVICE, GENERATOR, STREAM, STORAGE, QSCHEME, ANY,
        ANY_LIST, ANY_TUPLE, ANY_ENUM, ANY_CLASS, FUNCTION, CAPSULE, UNKNOWN,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor; what is not known is None.

    Args:
        dtype: TorchScript's ScalarType code (see ``ir.dtypes``).
        shape: one entry per dimension: a number, a Sym (an expression of unknown sizes), or None for any size; None
            when even the rank is unknown.
        strides: in elements, one per dimension.
        device: such as ``cpu`` or ``cuda:0``.
    """

    dtype: int | None = None
    shape: tuple[Any, ...] | None = None
    strides: tuple[int | None, ...] | None = None
    device: str | None = None
    requires_grad: bool | None = None

    def __str__(self) -> str:
        if self.dtype is None and self.shape is None and self.device is None:
            return "Tensor"
        name = "Tensor" if self.dtype is None else IR_NAMES[self.dtype]
        parts: list[str] = []
        if self.shape is not None:
            parts += ["*" if s is None else str(s) for s in self.shape]
            if self.strides is not None and None not in self.strides:
                parts.append("strides=[" + ", ".join(map(str, self.strides)) + "]")
        if self.requires_grad is not None:
            parts.append(f"requires_grad={int(self.requires_grad)}")
        if self.device is not None:
            parts.append(f"device={self.device}")
        if self.shape is None:
            if not parts:
                return name
            # Without sizes it would read as rank 0, as it does for torch.
            if self.dtype is not None:
                parts.insert(0, "...")
        return f"{name}({', '.join(parts)})"

    def annotation(self) -> str:
        return "Tensor"


TENSOR = TensorType()


@dataclass(frozen=True, slots=True)
class ListType(Type):
    """``List[element]``; invariant."""

    element: Type

    def __str__(self) -> str:
        return f"{self.element}[]"

    def annotation(self) -> str:
        return f"List[{self.element.annotation()}]"

    def children(self) -> tuple[Type, ...]:
        return (self.element,)


@dataclass(frozen=True, slots=True)
class DictType(Type):
    """``Dict[key, value]``; invariant."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"

    def annotation(self) -> str:
        return f"Dict[{self.key.annotation()}, {self.value.annotation()}]"

    def children(self) -> tuple[Type, ...]:
        return (self.key, self.value)


@dataclass(frozen=True, slots=True)
class OptionalType(Type):
    """``Optional[element]``. Build it with ``optional`` so that optionals do not nest."""

    element: Type

    def __str__(self) -> str:
        return f"{self.element}?"

    def annotation(self) -> str:
        return f"Optional[{self.element.annotation()}]"

    def children(self) -> tuple[Type, ...]:
        return (self.element,)


@dataclass(frozen=True, slots=True)
class UnionType(Type):
    """``Union[members]``. Build it with ``union`` so that it is flat and free of duplicates."""

    members: tuple[Type, ...]

    def __str__(self) -> str:
        return "Union[" + ", ".join(map(str, self.members)) + "]"

    def annotation(self) -> str:
        return "Union[" + ", ".join(m.annotation() for m in self.members) + "]"

    def children(self) -> tuple[Type, ...]:
        return self.members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnionType) and set(self.members) == set(other.members)

    def __hash__(self) -> int:
        return hash(frozenset(self.members))


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """``Tuple[elements]``, or a NamedTuple when ``name`` and ``fields`` are given."""

    elements: tuple[Type, ...]
    name: str | None = None
    fields: tuple[str, ...] | None = None

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return "(" + ", ".join(map(str, self.elements)) + ")"

    def annotation(self) -> str:
        if self.name is not None:
            return self.name
        return "Tuple[" + (", ".join(e.annotation() for e in self.elements) or "()") + "]"

    def children(self) -> tuple[Type, ...]:
        return self.elements


@dataclass(frozen=True, slots=True)
class BoxType(Type):
    """``Future[T]``, ``RRef[T]`` and ``Await[T]``: a handle to a value of type T."""

    kind: str
    element: Type

    def __str__(self) -> str:
        return f"{self.kind}({self.element})"

    def annotation(self) -> str:
        return f"{self.kind}[{self.element.annotation()}]"

    def children(self) -> tuple[Type, ...]:
        return (self.element,)


def future(element: Type) -> BoxType:
    """``Future[element]``."""
    return BoxType("Future", element)


@dataclass(frozen=True, slots=True)
class VarType(Type):
    """A type variable of a schema, such as ``t`` in ``aten::append.t(t[](a!) self, t el)``."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def has_var(self) -> bool:
        return True


@dataclass(eq=False, slots=True)
class ClassType(Type):
    """A class or module declared in source; filled in while its file is read, then left alone.

    Attributes keep slot order: an object's ``slots[i]`` holds the value of the i-th name in ``attributes``.
    """

    name: str
    is_module: bool = False
    attributes: dict[str, Type] = field(default_factory=dict)
    constants: dict[str, tuple[Type, Any]] = field(default_factory=dict)
    methods: dict[str, Function] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    forward_pre_hooks: tuple[str, ...] = ()
    forward_hooks: tuple[str, ...] = ()
    slot_of: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def add_attribute(self, name: str, type_: Type) -> int:
        """The slot of the new attribute."""
        slot = len(self.attributes)
        self.attributes[name] = type_
        self.slot_of[name] = slot
        return slot


@dataclass(eq=False, slots=True)
class InterfaceType(Type):
    """A set of methods an object must have. ``methods`` maps names to declared schemas (Function without a body)."""

    name: str
    is_module: bool = False
    methods: dict[str, Function] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"InterfaceType<{self.name}>"

    def annotation(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class EnumType(Type):
    """An enum class: member names to values, all of type ``value_type``."""

    name: str
    value_type: Type
    members: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"Enum<{self.name}>"

    def annotation(self) -> str:
        return self.name


@cache
def custom_class(name: str) -> ClassType:
    """The type of a C++ class, ``__torch__.torch.classes.quantized.LinearPackedParamsBase``: one in all programs."""
    return ClassType(name)


def optional(element: Type) -> Type:
    """``Optional[element]``, without nesting."""
    if isinstance(element, OptionalType) or element in (ANY, NONE):
        return element
    if isinstance(element, UnionType):
        return union((*element.members, NONE))
    return OptionalType(element)


def union(members: Iterable[Type]) -> Type:
    """The smallest type that holds all members: one of them, an Optional, or a flat Union."""
    flat: list[Type] = []

    def add(t: Type) -> None:
        if isinstance(t, UnionType):
            for m in t.members:
                add(m)
        elif isinstance(t, OptionalType):
            add(t.element)
            add(NONE)
        elif not any(is_subtype(t, m) for m in flat):
            flat[:] = [m for m in flat if not is_subtype(m, t)]
            flat.append(t)

    for member in members:
        add(member)
    if len(flat) == 1:
        return flat[0]
    if len(flat) == 2 and NONE in flat:
        return OptionalType(flat[0] if flat[1] == NONE else flat[1])
    return UnionType(tuple(flat))


def members_of(t: Type) -> tuple[Type, ...]:
    """The alternatives of an Optional or Union, or the type itself."""
    if isinstance(t, OptionalType):
        return (*members_of(t.element), NONE)
    if isinstance(t, UnionType):
        return t.members
    return (t,)


def may_be_none(t: Type) -> bool:
    """Whether None is among the type's values."""
    return t in (ANY, NONE) or NONE in members_of(t)


def is_subtype(a: Type, b: Type) -> bool:
    """Whether every value of type ``a`` is a value of type ``b``.

    T <: Optional[T] <: Any; int, float, complex <: number; List and Dict are invariant; Tuple is covariant and a
    NamedTuple is a subtype of the plain tuple; a class is a subtype of an interface whose methods it has; a tensor
    type with more known facts is a subtype of one with fewer. bool is no subtype of int.
    """
    if a is b or b == ANY or a in (b, UNKNOWN):
        return True
    if isinstance(a, (OptionalType, UnionType)):
        return all(is_subtype(m, b) for m in members_of(a))
    if isinstance(b, (OptionalType, UnionType)):
        return any(is_subtype(a, m) for m in members_of(b))
    if b == NUMBER:
        return a in (INT, FLOAT, COMPLEX)
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        pairs = ((a.dtype, b.dtype), (a.device, b.device), (a.requires_grad, b.requires_grad))
        if any(y is not None and x != y for x, y in pairs):
            return False
        if b.shape is not None and (
            a.shape is None
            or len(a.shape) != len(b.shape)
            or any(y is not None and x != y for x, y in zip(a.shape, b.shape, strict=True))
        ):
            return False
        return b.strides is None or a.strides == b.strides
    if isinstance(a, TupleType):
        if b == ANY_TUPLE:
            return True
        if isinstance(b, TupleType):
            if b.name is not None and a.name != b.name:
                return False
            return len(a.elements) == len(b.elements) and all(map(is_subtype, a.elements, b.elements))
        return False
    if isinstance(a, ListType):
        if b == ANY_LIST:
            return True
        if not isinstance(b, ListType):
            return False
        # Lists of tensors with more or fewer known facts are one type at run time.
        both_tensors = isinstance(a.element, TensorType) and isinstance(b.element, TensorType)
        return a.element == UNKNOWN or (both_tensors and is_subtype(a.element, b.element))
    if isinstance(a, BoxType):
        return isinstance(b, BoxType) and a.kind == b.kind and is_subtype(a.element, b.element)
    if isinstance(a, EnumType):
        return b == ANY_ENUM
    if isinstance(a, (ClassType, InterfaceType)):
        if b == ANY_CLASS:
            return isinstance(a, ClassType)
        return isinstance(b, InterfaceType) and all(name in a.methods for name in b.methods)
    return False


def unify(a: Type, b: Type, *, default_to_union: bool = False) -> Type | None:
    """The type that both branches of an ``if`` can be given, or None when there is none."""
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return TENSOR
    if a == NONE:
        return optional(b)
    if b == NONE:
        return optional(a)
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = unify(
            a.element if isinstance(a, OptionalType) else a,
            b.element if isinstance(b, OptionalType) else b,
            default_to_union=default_to_union,
        )
        if inner is not None:
            return optional(inner)
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.elements) == len(b.elements):
        parts = [unify(x, y) for x, y in zip(a.elements, b.elements, strict=True)]
        if all(p is not None for p in parts):
            return TupleType(tuple(p for p in parts if p is not None))
    if isinstance(a, ListType) and isinstance(b, ListType):
        if isinstance(a.element, TensorType) and isinstance(b.element, TensorType):
            return ListType(TENSOR)
    return union((a, b)) if default_to_union else None


def substitute(t: Type, binding: dict[str, Type]) -> Type:
    """``t`` with its type variables replaced."""
    if isinstance(t, VarType):
        if t.name not in binding:
            raise InternalError(f"type variable {t.name} is not bound")
        return binding[t.name]
    if not t.has_var:
        return t
    if isinstance(t, ListType):
        return ListType(substitute(t.element, binding))
    if isinstance(t, DictType):
        return DictType(substitute(t.key, binding), substitute(t.value, binding))
    if isinstance(t, OptionalType):
        return optional(substitute(t.element, binding))
    if isinstance(t, TupleType):
        return TupleType(tuple(substitute(e, binding) for e in t.elements), t.name, t.fields)
    if isinstance(t, BoxType):
        return BoxType(t.kind, substitute(t.element, binding))
    raise InternalError(f"cannot substitute in {t}")


def walk(t: Type) -> Iterator[Type]:
    """The type and all its parts."""
    yield t
    for child in t.children():
        yield from walk(child)
