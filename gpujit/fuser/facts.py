"""What the fuser knows about a node: its entry, its arguments, which map a view is, which rows it works over.

``Facts`` finds these once for each node of a graph that is being fused, since partitioning asks again and again.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

from gpujit.fuser.errors import NotFused
from gpujit.fuser.geometry import Geometry, geometry_of
from gpujit.fuser.moves import MOVES, Move
from gpujit.fuser.template import Template, template_of
from gpujit.fuser.tensors import dtype_of, elements_of, is_tensor, shape_of
from gpujit.ir.graph import Node, Value
from gpujit.ir.values import Device
from gpujit.ops.record import can_record
from gpujit.ops.registry import Op
from gpujit.ops.rows import OPAQUE, Rows
from gpujit.passes.analysis.effects import entry_of


class Fact:
    """One node. What cannot be known raises NotFused with the reason."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.op: Op | None = entry_of(node)
        self.why_no_view = ""
        self.functional: Op | None = None if self.op is None else self.op.derived_from or self.op

    @property
    def name(self) -> str:
        """The overload's name, or the kind of a node without one."""
        return self.node.kind if self.op is None else self.op.full_name

    @cached_property
    def arguments(self) -> list[Any]:
        """By position: Values for tensors, lists of Values (and None) for lists of them, else what is known."""
        if self.op is None:
            raise NotFused(f"{self.node.kind} is no operator of the table")
        found = [_argument(value) for value in self.node.inputs]
        return found + [a.default for a in self.op.schema.arguments[len(found) :]]

    @cached_property
    def view(self) -> tuple[Value, list[Geometry]] | None:
        """What a view looks at and the map of each result; None for other nodes, and for those without such a map."""
        if self.op is None or self.op.kind != "view":
            return None
        try:
            return geometry_of(self.node, self.op, self.arguments)
        except NotFused as fault:
            self.why_no_view = str(fault)
            return None

    @cached_property
    def keeps_all(self) -> bool:
        """Whether it is a view that has each element of its operand just once."""
        return self.view is not None and len(self.view[1]) == 1 and self.view[1][0].is_bijective

    @cached_property
    def is_reshape(self) -> bool:
        """Whether it is a view of the same elements in the same order, of another shape."""
        return self.view is not None and all(g.is_reshape for g in self.view[1])

    @cached_property
    def move(self) -> Move | None:
        """How it copies elements, for an operator that does."""
        return None if self.functional is None else MOVES.get(self.functional.full_name)

    @cached_property
    def is_factory(self) -> bool:
        """Whether it makes a tensor out of numbers alone."""
        return self.move is not None and self.move.is_factory

    @cached_property
    def rows(self) -> Rows | None:
        """What an operator that is not pointwise does to a row."""
        if self.functional is None or self.functional.kind == "pointwise":
            return None
        return self.functional.scalar if isinstance(self.functional.scalar, Rows) else None

    @cached_property
    def reduces(self) -> bool:
        """Whether it works over rows of more than an element."""
        return self.rows is not None and bool(self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the first operand; dim 1 is two dims where rows are of groups of it."""
        shape = shape_of(self.arguments[0])
        if self.rows is None or self.rows.groups is None:
            return shape
        groups = self.rows.groups(self.arguments)
        if len(shape) < 2 or groups < 1 or shape[1] % groups:
            raise NotFused(f"{self.name}: {list(shape)} has no {groups} groups")
        return (shape[0], groups, shape[1] // groups, *shape[2:])

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The dims of ``shape`` that make up its rows."""
        if self.rows is None:
            return ()
        rank = len(self.shape)
        axes = self.rows.axes(rank, self.arguments) if rank else None
        return tuple(range(rank)) if axes is None else tuple(axes)

    @cached_property
    def template(self) -> Template:
        """The recorded expressions of an element."""
        op = self.op
        if op is None or self.functional is None or not can_record(op) or self.functional.scalar is OPAQUE:
            raise NotFused(f"{self.name} has no expression for one element")
        return template_of(op, self.arguments)

    @cached_property
    def cost(self) -> int:
        """Instructions, roughly, for each element of a result."""
        return 1 if self.move is not None or self.view is not None else self.template.cost

    @cached_property
    def points(self) -> int:
        """At how many points it computes."""
        tensors = [v for v in self.node.outputs if is_tensor(v)]
        if self.reduces:
            tensors.append(self.arguments[0])
        return max((prod(shape_of(v)) for v in tensors), default=1)

    def require(self) -> None:
        """Raise NotFused when the node cannot be a part of a kernel, whatever its neighbours."""
        for value in (*self.node.inputs, *self.node.outputs):
            if is_tensor(value):
                shape_of(value)
                dtype_of(value)
        self.require_elements()
        if self.is_factory and any(isinstance(a, Device) and a.type != "cpu" for a in self.arguments):
            raise NotFused(f"{self.name} makes a tensor on another device")
        if self.move is not None:
            self.move.require(self.arguments)
        elif self.template.has_rows and not self.axes:
            raise NotFused(f"{self.name} reduces a 0-dim tensor")

    def require_elements(self) -> None:
        """Raise NotFused where there is nothing to compute: what is refused then is for the operator itself to say."""
        if not all(elements_of(v) for v in self.node.outputs if is_tensor(v)):
            raise NotFused(f"{self.name} has a result without elements")
        if self.reduces and not elements_of(self.arguments[0]):
            raise NotFused(f"{self.name} reduces a tensor without elements")


class Facts:
    """Facts about the nodes of a graph, each found when first asked for."""

    def __init__(self) -> None:
        self._found: dict[Node, Fact] = {}

    def of(self, node: Node) -> Fact:
        """What is known of a node."""
        found = self._found.get(node)
        if found is None:
            found = self._found[node] = Fact(node)
        return found


def _argument(value: Value) -> Any:
    if is_tensor(value):
        if not value.is_constant or hasattr(value.constant(), "strides"):
            return value
    if value.is_constant:
        return value.constant()
    if value.node.kind == "prim::ListConstruct" and any(map(is_tensor, value.node.inputs)):
        return [_argument(v) for v in value.node.inputs]
    return _known(value)


def _known(value: Value) -> Any:
    if value.is_constant:
        return value.constant()
    if value.node.kind in ("prim::ListConstruct", "prim::TupleConstruct"):
        items = [_known(v) for v in value.node.inputs]
        return items if value.node.kind == "prim::ListConstruct" else tuple(items)
    raise NotFused(f"{value!r}, an argument of the operator, is known only at run time")
