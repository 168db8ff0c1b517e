"""How a value computed from padded inputs relates to what it would be without the padding; rules and their table.

A graph is specialised twice: for inputs as they are (the kept ones), and for the same with a dim made longer (the
padded ones). A value is the same in both; or the kept one is the first part of the padded one along one dim; or nothing
is known (``Mixed``). A rule says what an operator makes of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir.graph import Node, Value
from gpujit.ir.types import TensorType
from gpujit.ops.registry import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Same:
    """The padding changes nothing."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The kept value is what stands first along ``dim`` of the padded one: ``kept`` elements, when that is checked.

    ``below``: all numbers of the kept value are whole, not negative and less than this; 0 when that is not known.
    """

    dim: int
    kept: int = -1
    below: int = 0


@dataclass(frozen=True, slots=True)
class Strided:
    """The same of each of ``outer`` equal pieces of ``dim``, which was joined with one before that is not padded."""

    dim: int
    outer: int


@dataclass(frozen=True, slots=True)
class Differs:
    """A constant that is another one for the padded size."""

    kept: Any
    padded: Any


@dataclass(frozen=True, slots=True)
class Mixed:
    """The padding may change any element; why, and where in the program that is so."""

    reason: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """What no run reads, for want of a value: in one branch of two."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A list, tuple or dict of such values (of a dict the values, in order)."""

    items: tuple[Relation, ...]


Relation = Same | Prefix | Strided | Differs | Mixed | Unread | Parts
SAME = Same()


class Mixes(Exception):
    """Raised by a rule: results may depend on the padding. Never leaves this package."""


def leaves(relation: Relation) -> Iterator[Relation]:
    """A relation's parts that have none."""
    if isinstance(relation, Parts):
        for item in relation.items:
            yield from leaves(item)
    else:
        yield relation


def is_same(relation: Relation) -> bool:
    """Whether the padding changes nothing at all."""
    return all(isinstance(r, Same) for r in leaves(relation))


def shape_of(value: Value) -> Shape | None:
    """A tensor's shape when all of it is known."""
    t = value.type
    if not isinstance(t, TensorType) or t.shape is None or not all(type(n) is int for n in t.shape):
        return None
    return tuple(n for n in t.shape if type(n) is int)


class Call:
    """One operator in both graphs, with the relations of what it reads."""

    def __init__(self, op: Op, kept: Node, padded: Node, relations: Sequence[Relation]) -> None:
        self.op, self.kept, self.padded, self.relations = op, kept, padded, relations

    def __getitem__(self, name: str) -> Relation:
        """How the argument of that name relates; one that is left to its default is the same."""
        index = self.op.schema.index_of(name)
        return self.relations[index] if index < len(self.relations) else SAME

    def value(self, name: str) -> Any:
        """An argument that is no tensor. Raises Mixes when it is not known, or another one for the padded size."""
        index = self.op.schema.index_of(name)
        if index >= len(self.kept.inputs):
            return self.op.schema.arguments[index].default
        value = self.kept.inputs[index]
        if is_same(self.relations[index]):
            if value.is_constant:
                return value.constant()
            parts = value.node.inputs
            if value.node.kind == "prim::ListConstruct" and all(v.is_constant for v in parts):
                return [v.constant() for v in parts]
        raise Mixes(f"its argument {name} is not known beforehand")

    def has(self, name: str) -> bool:
        """Whether an argument is given, and not None."""
        index = self.op.schema.index_of(name)
        return index < len(self.kept.inputs) and not (
            (value := self.kept.inputs[index]).is_constant and value.constant() is None
        )

    def shape(self, name: str) -> Shape:
        """The kept shape of a tensor. Raises Mixes when it is not known."""
        found = shape_of(self.kept.inputs[self.op.schema.index_of(name)])
        if found is None:
            raise Mixes(f"the shape of its argument {name} is not known beforehand")
        return found

    def result(self, index: int = 0) -> tuple[Shape, Shape]:
        """The shapes of a result: kept, padded. Raises Mixes when they are not known."""
        kept, padded = shape_of(self.kept.outputs[index]), shape_of(self.padded.outputs[index])
        if kept is None or padded is None:
            raise Mixes("the shape of its result is not known beforehand")
        return kept, padded

    def axis(self, name: str, rank: int) -> int:
        """An argument that names one of ``rank`` dims, from the front."""
        dim = self.value(name)
        if type(dim) is not int or not -rank <= dim < rank:
            raise Mixes(f"its argument {name} is {dim}")
        return dim % rank

    def axes(self, name: str, rank: int) -> list[int]:
        """An argument that names some of ``rank`` dims, from the front."""
        dims = self.value(name)
        dims = [dims] if type(dims) is int else dims
        if not isinstance(dims, (list, tuple)) or not all(type(d) is int and -rank <= d < rank for d in dims):
            raise Mixes(f"its argument {name} is {dims}")
        return [d % rank for d in dims]

    def dim(self, name: str) -> int | None:
        """The dim along which a tensor is longer; None for one that is the same. Raises Mixes for anything else."""
        relation = self[name]
        if isinstance(relation, Prefix):
            return relation.dim
        if is_same(relation):
            return None
        raise Mixes(f"its argument {name} depends on the padding")

    def need_same(self, *names: str) -> None:
        """Raises Mixes unless the padding changes none of these."""
        for name in names:
            if not is_same(self[name]):
                raise Mixes(f"its argument {name} depends on the padding")


# What a rule returns: a relation for each result, or one for all.
Rule = Callable[[Call], "Relation | tuple[Relation, ...]"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule.

    Args:
        shapes: names of arguments that only decide shapes: numbers in them may differ, tensors be anything.
        rows: each row along a padded dim goes by itself, whatever its place, so that the rule is right for Strided
            operands as for Prefixes.
        strided: it looks at Strided operands itself.
    """

    rule: Rule
    shapes: frozenset[str] = frozenset()
    rows: bool = False
    strided: bool = False


RULES: dict[str, Entry] = {}


def rule(
    *names: str, shapes: Sequence[str] = (), rows: bool = False, strided: bool = False
) -> Callable[[Rule], Rule]:
    """Name the operators a rule is for, ``view`` for all overloads or ``view.dtype`` for one (in ``aten::``)."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name if "::" in name else f"aten::{name}"] = Entry(function, frozenset(shapes), rows, strided)
        return function

    return add


def along(dim: int | None, message: str, dims: Sequence[int]) -> None:
    """Raises Mixes when what is longer along ``dim`` is computed with along ``dims``."""
    if dim is not None and dim in dims:
        raise Mixes(f"it {message} dim {dim}, along which the padding lies")
