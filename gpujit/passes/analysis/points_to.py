"""Which memory each value of a graph may point to.

Memory is a set of locations: one for each node that makes some (all runs of a node in a loop share it), and those of
what comes from outside. Ints, strings and other values that nothing can change have none. Each node adds constraints,
which ``points_to_solver`` solves; the order of nodes plays no part: a set holds what may be pointed to at any time of
any run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.schema import AliasInfo
from gpujit.ops.registry import Op
from gpujit.passes.analysis.constant_memory import ConstantMemory
from gpujit.passes.analysis.effects import entry_of, hidden_writes
from gpujit.passes.analysis.points_to_solver import Field, Locations, Solver, has_location

__all__ = ["Locations", "PointsTo"]


class PointsTo(Solver):
    """The locations of every value of a graph and of the subgraphs its nodes hold.

    Args:
        frozen: attributes and constants share no memory with inputs, nor separate constants with each other.
    """

    def __init__(self, graph: Graph, frozen: bool = False) -> None:
        super().__init__(frozen)
        # Nodes that write, with what they write; of nodes with blocks only the inner ones.
        self.writes: dict[Node, Locations] = {}
        self._variables: dict[Value, int] = {}
        self._constants = ConstantMemory()
        self._written: list[tuple[Node, int, bool]] = []
        self._unknown: list[Node] = []
        self._done: set[Node] = set()
        self._made: dict[Node, Locations] = {}
        self._current: Node | None = None
        self._graphs = [graph]
        for each in self._graphs:
            self._graphs += _subgraphs(each)
        if frozen:
            for each in self._graphs:
                for node in each.all_nodes():
                    if node.kind == "prim::Constant":
                        self._constants.add(node.attributes.get("value"))
        self._meet_types()
        for value in graph.inputs:
            # The program's own objects come in as arguments too.
            origin = "held" if self.categories(value.type) == ("object",) else "given"
            self._sets[self._variable(value)] |= self.outside_of(value.type, origin)
        self._block(graph.block)
        self._solve(self._constraints)
        self._find_writes()

    # ------------------------------------------------------------------------------------------------ answers

    def of(self, value: Value) -> Locations:
        """The locations a value may point to, itself only: not what it contains."""
        if not self.categories(value.type):
            return 0
        variable = self._variables.get(value)
        if variable is None or value.node not in self._done:
            variable = self._meet(value)
        return self._sets[variable]

    def made_by(self, node: Node) -> Locations:
        """The memory a node makes itself, whenever it runs."""
        return self._made.get(node, 0) & ~self.outside

    def _meet_types(self) -> None:
        """Make a location for each type of the outside world that occurs, so that "anything" means all of them."""
        types = {v.type for graph in self._graphs for v in graph.inputs}
        for graph in self._graphs:
            for node in graph.all_nodes():
                types.update(v.type for v in node.outputs)
        types.add(T.TENSOR)
        for t in types:
            for part in T.walk(t):
                if has_location(part):
                    if not isinstance(part, (T.InterfaceType, T.VarType)):
                        self._outside_location(part, "given")
                        self._outside_location(part, "held")
        if not self._category["object"] & self.outside:
            # An interface or Any may hold an object of a class that no value has.
            self._outside_location(T.ClassType("object"), "held")

    def _variable(self, value: Value) -> int:
        found = self._variables.get(value)
        if found is None:
            found = self._variables[value] = self._new_variable()
        return found

    def _find_writes(self) -> None:
        for node, variable, inside in self._written:
            mask = self._sets[variable]
            if inside:
                mask = self.reach(mask)
            self.writes[node] = self.writes.get(node, 0) | mask
        for node in self._unknown:
            self.writes[node] = self.outside | self.leaked

    def _write(self, node: Node, value: Value, inside: bool = False) -> None:
        if self.categories(value.type):
            self._written.append((node, self._variable(value), inside))
            self.writes.setdefault(node, 0)

    def _make_location(self, category: str) -> int:
        """New memory, made by the node at hand."""
        location = self._location(category)
        assert self._current is not None
        self._made[self._current] = self._made.get(self._current, 0) | 1 << location
        return location

    # ---------------------------------------------------------------------------------------------------- nodes

    def _meet(self, value: Value) -> int:
        """Take in a value made since the analysis was built."""
        node = value.node
        if node.kind == "prim::Param":
            owner = node.block.owner if node.block is not None else None
            if owner is None:
                # Nothing is known of where it comes from.
                variable = self._variable(value)
                self._sets[variable] |= self._allowed(value.type)
                return variable
            node = owner
        if node not in self._done:
            first = len(self._constraints)
            self._node(node)
            fresh = self._pending or self._constraints[first:]
            if fresh:
                self._solve(self._constraints)
                self._find_writes()
        return self._variable(value)

    def _block(self, block: Block) -> None:
        self._done.add(block.param_node)
        for node in block.nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        self._done.add(node)
        self._current = node
        handler = _HANDLERS.get(node.kind)
        if handler is not None:
            handler(self, node)
        elif isinstance(node.attributes.get(SUBGRAPH), Graph):
            self._subgraph(node, node.attributes[SUBGRAPH])
        else:
            op = entry_of(node)
            if op is None:
                self._unknown_node(node)
            else:
                self._operator(node, op)

    def _flow(self, source: Value, target: Value) -> None:
        if self.categories(target.type) and self.categories(source.type):
            self._copy(self._variable(target), self._variable(source), target.type)

    def _constant(self, node: Node) -> None:
        output = node.output
        if not self.categories(output.type):
            return
        variable = self._variable(output)
        group = self._constants.group(node.attributes.get("value")) if self.frozen else None
        if group is None:
            self._sets[variable] |= self.outside_of(output.type, "held")
            return
        location = self._constant_locations.get(group)
        if location is None:
            location = self._constant_locations[group] = self._location("tensor")
            self.outside |= 1 << location
            self._held |= 1 << location
        self._sets[variable] |= 1 << location

    def _if(self, node: Node) -> None:
        for block in node.blocks:
            self._block(block)
            for value, output in zip(block.returns, node.outputs, strict=True):
                self._flow(value, output)

    def _loop(self, node: Node) -> None:
        (block,) = node.blocks
        self._block(block)
        for first, param, again, output in zip(
            node.inputs[2:], block.params[1:], block.returns[1:], node.outputs, strict=True
        ):
            self._flow(first, param)
            self._flow(again, param)
            self._flow(param, output)

    def _cast(self, node: Node) -> None:
        self._flow(node.inputs[0], node.output)

    def _nothing(self, node: Node) -> None:
        """Results that are no memory, or that nobody may look at."""

    def _new_container(self, node: Node) -> int | None:
        output = node.output
        categories = self.categories(output.type)
        if not categories:
            return None
        variable = self._variable(output)
        self._sets[variable] |= 1 << self._make_location(categories[0] if len(categories) == 1 else "any")
        return variable

    def _construct(self, node: Node) -> None:
        container = self._new_container(node)
        if container is None:
            return
        is_tuple = node.kind == "prim::TupleConstruct"
        for i, value in enumerate(node.inputs):
            if self.categories(value.type):
                self._store(container, self._variable(value), i if is_tuple else None)

    def _unpack(self, node: Node) -> None:
        is_tuple = node.kind == "prim::TupleUnpack"
        for i, output in enumerate(node.outputs):
            self._read(node.inputs[0], output, i if is_tuple else None)

    def _read(self, container: Value, output: Value, field: Field) -> None:
        if self.categories(output.type) and self.categories(container.type):
            self._load(self._variable(output), self._variable(container), field, output.type)

    def _tuple_index(self, node: Node) -> None:
        container, index = node.inputs
        field: Field = None
        if index.is_constant and isinstance(container.type, T.TupleType):
            at = index.constant()
            field = at if at >= 0 else at + len(container.type.elements)
        self._read(container, node.output, field)

    def _tuple_slice(self, node: Node) -> None:
        container = self._new_container(node)
        kind, source = node.output.type, node.inputs[0]
        if container is None:
            return
        start = node.attributes.get("beg")
        exact = isinstance(start, int) and start >= 0 and isinstance(kind, T.TupleType)
        for i, t in enumerate(kind.elements if isinstance(kind, T.TupleType) else (T.ANY,)):
            part = self._new_variable()
            self._load(part, self._variable(source), start + i if exact and isinstance(start, int) else None, t)
            self._store(container, part, i if exact else None)

    def _get_attribute(self, node: Node) -> None:
        self._read(node.inputs[0], node.output, node.attributes["name"])

    def _set_attribute(self, node: Node) -> None:
        owner, value = node.inputs
        self._write(node, owner)
        if self.categories(value.type):
            self._store(self._variable(owner), self._variable(value), node.attributes["name"])

    def _make(self, node: Node) -> None:
        if self.categories(node.output.type):
            self._fresh(self._variable(node.output), node.output.type, ())

    def _wait(self, node: Node) -> None:
        self._read(node.inputs[0], node.output, None)

    def _subgraph(self, node: Node, graph: Graph) -> None:
        for value, param in zip(node.inputs, graph.inputs, strict=True):
            self._flow(value, param)
        self._block(graph.block)
        if len(node.outputs) == 1 and isinstance(node.output.type, T.BoxType):
            container = self._new_container(node)
            for value in graph.outputs:
                if container is not None and self.categories(value.type):
                    self._store(container, self._variable(value), None)
            return
        for value, output in zip(graph.outputs, node.outputs, strict=True):
            self._flow(value, output)

    def _unknown_node(self, node: Node) -> None:
        self._has_unknown = True
        self._unknown.append(node)
        self.writes.setdefault(node, 0)
        given = list(node.inputs)
        taken = list(node.outputs)
        for block in node.blocks:
            self._block(block)
            given += block.returns
            taken += block.params
        for value in given:
            if self.categories(value.type):
                self._give_away(self._variable(value))
        for value in taken:
            if self.categories(value.type):
                self._arrive(self._variable(value), value.type)

    # ------------------------------------------------------------------------------------------------ operators

    def _operator(self, node: Node, op: Op) -> None:
        arguments = op.schema.arguments
        tracked = [v for v in node.inputs if self.categories(v.type)]
        marked: dict[str, list[tuple[Value, bool]]] = {}
        containers: list[Value] = []
        for argument, value in zip(arguments, node.inputs, strict=False):
            for info, inside in ((argument.alias, False), (argument.element_alias, True)):
                if info is None:
                    continue
                for name in info.before:
                    marked.setdefault(name, []).append((value, inside))
                if info.is_write:
                    self._write(node, value, inside)
                    if not inside and not isinstance(value.type, T.TensorType):
                        containers.append(value)
        for position in hidden_writes(node, op):
            self._write(node, node.inputs[position])
        for container in containers:
            for part in container.type.children() or (T.ANY,):
                if self.categories(part):
                    for value in tracked:
                        if value is not container:
                            stored = self._new_variable()
                            self._pass_through(stored, self._variable(value), part)
                            self._store(self._variable(container), stored, None)
        for i, output in enumerate(node.outputs):
            if self.categories(output.type):
                result = op.schema.returns[i] if i < len(op.schema.returns) else None
                alias = None if result is None else result.alias
                element = None if result is None else result.element_alias
                self._result(output, alias, element, marked, tracked, op)

    def _result(
        self,
        output: Value,
        alias: AliasInfo | None,
        element: AliasInfo | None,
        marked: dict[str, list[tuple[Value, bool]]],
        tracked: Sequence[Value],
        op: Op,
    ) -> None:
        variable = self._variable(output)
        if op.may_alias:
            for value in tracked:
                self._pass_through(variable, self._variable(value), output.type)
        if alias is not None and "*" not in alias.before:
            for name in alias.before:
                for value, inside in marked.get(name, ()):
                    if inside:
                        self._load(variable, self._variable(value), None, output.type)
                    else:
                        self._copy(variable, self._variable(value), output.type)
                if name not in marked:
                    self._fresh(variable, output.type, ())
            return
        if alias is not None:
            # Out of some container, or a default given for it; keys() and values() are new lists as well.
            for value in tracked:
                self._pass_through(variable, self._variable(value), output.type)
            if output.type.children():
                self._fresh(variable, output.type, tracked)
            return
        if element is not None:
            part = self._new_variable()
            (kind, *_) = output.type.children() or (T.ANY,)
            for name in element.before:
                for value, _ in marked.get(name, ()):
                    self._pass_through(part, self._variable(value), kind)
            self._fresh(variable, output.type, ())
            self._store(variable, part, None)
            return
        # Results that are objects or of any type may hold on to what they were made of.
        shares = op.may_alias or op.kind == "prim" or not isinstance(output.type, (T.TensorType, T.ListType))
        self._fresh(variable, output.type, tracked if shares else ())
        if shares and not output.type.children():
            for value in tracked:
                self._pass_through(variable, self._variable(value), output.type)

    def _fresh(self, variable: int, t: T.Type, held: Sequence[Value]) -> None:
        """Point to new memory of the type; containers hold new elements and, directly or not, ``held``."""
        categories = self.categories(t)
        self._sets[variable] |= 1 << self._make_location(categories[0] if len(categories) == 1 else "any")
        parts = t.children()
        if not parts and not isinstance(t, T.TensorType):
            # An object, or a value of any type.
            for value in held:
                self._store(variable, self._variable(value), None)
            return
        for part in parts:
            if self.categories(part):
                inner = self._new_variable()
                self._fresh(inner, part, held)
                for value in held:
                    self._pass_through(inner, self._variable(value), part)
                self._store(variable, inner, None)


_HANDLERS: dict[str, Callable[[PointsTo, Node], None]] = {
    "prim::Constant": PointsTo._constant,
    "prim::If": PointsTo._if,
    "prim::Loop": PointsTo._loop,
    "prim::unchecked_cast": PointsTo._cast,
    "prim::Uninitialized": PointsTo._nothing,
    "prim::ListConstruct": PointsTo._construct,
    "prim::TupleConstruct": PointsTo._construct,
    "prim::DictConstruct": PointsTo._construct,
    "prim::ListUnpack": PointsTo._unpack,
    "prim::TupleUnpack": PointsTo._unpack,
    "prim::TupleIndex": PointsTo._tuple_index,
    "prim::TupleSlice": PointsTo._tuple_slice,
    "prim::GetAttr": PointsTo._get_attribute,
    "prim::SetAttr": PointsTo._set_attribute,
    "prim::CreateObject": PointsTo._make,
    "prim::isinstance": PointsTo._nothing,
    "prim::tolist": PointsTo._make,
    "prim::EnumName": PointsTo._nothing,
    "prim::EnumValue": PointsTo._nothing,
    "prim::RaiseException": PointsTo._nothing,
    "aten::wait": PointsTo._wait,
    "prim::awaitable_wait": PointsTo._wait,
    "prim::awaitable_nowait": PointsTo._construct,
}


def _subgraphs(graph: Graph) -> list[Graph]:
    found = (node.attributes.get(SUBGRAPH) for node in graph.all_nodes())
    return [g for g in found if isinstance(g, Graph)]
