"""The intermediate representation: a Graph is a Block of Nodes over typed Values, each knowing its uses.

A node's inputs are values defined before it in its block or in an enclosing one. Control flow nests: ``prim::If`` has
two blocks, ``prim::Loop`` one. A block's parameters are outputs of its ``prim::Param`` node and what it returns are the
inputs of its ``prim::Return`` node, so that every use is (node, input position).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpujit.ir.schema import Schema
from gpujit.ir.source import CallSite, SourceRange
from gpujit.ir.types import TENSOR, Type
from gpujit.support.errors import InternalError


class Use(NamedTuple):
    """Input ``index`` of ``node`` reads the value."""

    node: Node
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs


class Value:
    """One result of a node or one parameter of a block. ``name`` is for people, or ''; it need not be unique."""

    __slots__ = ("index", "name", "node", "type", "uses")

    def __init__(self, node: Node, index: int, type_: Type, name: str = "") -> None:
        self.node = node
        self.index = index
        self.type = type_
        self.name = name
        self.uses: list[Use] = []

    def __repr__(self) -> str:
        return f"%{self.name or '?'} : {self.type}"

    def replace_all_uses_with(self, other: Value) -> None:
        """Make everyone who reads this value read ``other``."""
        if other is self:
            return
        for use in self.uses:
            use.node._inputs[use.index] = other
        other.uses.extend(self.uses)
        self.uses = []

    @property
    def is_constant(self) -> bool:
        """Whether a prim::Constant defines it."""
        return self.node.kind == "prim::Constant"

    def constant(self) -> Any:
        """The constant's value (None for the constant None). Raises InternalError for anything else."""
        if self.node.kind != "prim::Constant":
            raise InternalError(f"{self!r} is no constant")
        return self.node.attributes.get("value")


class Node:
    """One operation.

    ``kind`` is the operator's name (``aten::add``); ``schema`` the overload chosen, None for ``prim`` kinds without one
    and for operators the table does not know. ``attributes`` hold what is fixed at compile time. ``call`` is set when
    inlining brought the node here.
    """

    __slots__ = (
        "_inputs", "attributes", "block", "blocks", "call", "kind", "next", "outputs", "prev", "schema", "source"
    )  # fmt: skip

    def __init__(self, kind: str, inputs: Sequence[Value] = (), attributes: dict[str, Any] | None = None) -> None:
        self.kind = kind
        self._inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.blocks: list[Block] = []
        self.attributes: dict[str, Any] = {} if attributes is None else attributes
        self.schema: Schema | None = None
        self.source: SourceRange | None = None
        self.call: CallSite | None = None
        self.block: Block | None = None
        self.prev: Node | None = None
        self.next: Node | None = None
        for value in inputs:
            self.add_input(value)

    def __repr__(self) -> str:
        inputs = ", ".join("%" + (v.name or "?") for v in self._inputs)
        return f"<{', '.join(map(repr, self.outputs))} = {self.kind}({inputs})>"

    @property
    def inputs(self) -> Sequence[Value]:
        """What the node reads; change it through ``add_input``, ``set_input`` and ``remove_input`` only."""
        return self._inputs

    @property
    def output(self) -> Value:
        """The only output."""
        if len(self.outputs) != 1:
            raise InternalError(f"{self.kind} has {len(self.outputs)} outputs")
        return self.outputs[0]

    def add_input(self, value: Value) -> None:
        value.uses.append(Use(self, len(self._inputs)))
        self._inputs.append(value)

    def set_input(self, index: int, value: Value) -> None:
        self._inputs[index].uses.remove(Use(self, index))
        self._inputs[index] = value
        value.uses.append(Use(self, index))

    def remove_input(self, index: int) -> None:
        self._inputs[index].uses.remove(Use(self, index))
        for i in range(index + 1, len(self._inputs)):
            uses = self._inputs[i].uses
            uses[uses.index(Use(self, i))] = Use(self, i - 1)
        del self._inputs[index]

    def remove_all_inputs(self) -> None:
        while self._inputs:
            self.remove_input(len(self._inputs) - 1)

    def add_output(self, type_: Type = TENSOR, name: str = "") -> Value:
        value = Value(self, len(self.outputs), type_, name)
        self.outputs.append(value)
        return value

    def remove_output(self, index: int) -> None:
        """Drop an output nobody reads."""
        if self.outputs[index].uses:
            raise InternalError(f"output {index} of {self!r} is still read")
        del self.outputs[index]
        for i, value in enumerate(self.outputs):
            value.index = i

    def add_block(self) -> Block:
        block = Block(self.graph, self)
        self.blocks.append(block)
        return block

    @property
    def graph(self) -> Graph:
        """The graph the node sits in."""
        if self.block is None:
            raise InternalError(f"{self.kind} is in no graph")
        return self.block.graph

    def insert_before(self, other: Node) -> Node:
        """Put this new node before ``other``; returns itself."""
        block, prev = other.block, other.prev
        assert block is not None and self.block is None and prev is not None
        self.block, self.prev, self.next = block, prev, other
        prev.next = other.prev = self
        return self

    def insert_after(self, other: Node) -> Node:
        """Put this new node after ``other``; returns itself."""
        assert other.next is not None
        return self.insert_before(other.next)

    def unlink(self) -> None:
        """Take the node out of its block, keeping its inputs and outputs, so that it can be put elsewhere."""
        assert self.prev is not None and self.next is not None
        self.prev.next, self.next.prev = self.next, self.prev
        self.block = self.prev = self.next = None

    def move_before(self, other: Node) -> None:
        self.unlink()
        self.insert_before(other)

    def destroy(self) -> None:
        """Remove the node, whose outputs nobody may read any more, with all it contains."""
        for value in self.outputs:
            if value.uses:
                raise InternalError(f"{self!r} is destroyed while {value.uses[0].node!r} reads it")
        for block in self.blocks:
            block.destroy()
        self.blocks = []
        self.remove_all_inputs()
        if self.block is not None:
            self.unlink()


class Block:
    """A list of nodes with parameters and returned values.

    ``owner`` is the node it belongs to, None for a graph's own.
    """

    __slots__ = ("graph", "owner", "param_node", "return_node")

    def __init__(self, graph: Graph, owner: Node | None) -> None:
        self.graph = graph
        self.owner = owner
        self.param_node = Node("prim::Param")
        self.return_node = Node("prim::Return")
        for node in (self.param_node, self.return_node):
            node.block = self
        # The list is a ring: Param, the nodes, Return.
        self.param_node.next = self.return_node.next = self.return_node
        self.return_node.next = self.param_node
        self.param_node.prev = self.return_node
        self.return_node.prev = self.param_node

    @property
    def params(self) -> Sequence[Value]:
        return self.param_node.outputs

    @property
    def returns(self) -> Sequence[Value]:
        return self.return_node._inputs

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes in order. The node just yielded may be destroyed or moved meanwhile."""
        node = self.param_node.next
        while node is not self.return_node:
            assert node is not None
            following = node.next
            yield node
            node = following

    @property
    def nodes_reversed(self) -> Iterator[Node]:
        """The nodes, last first, under the same rule."""
        node = self.return_node.prev
        while node is not self.param_node:
            assert node is not None
            before = node.prev
            yield node
            node = before

    def add_param(self, type_: Type = TENSOR, name: str = "") -> Value:
        return self.param_node.add_output(type_, name)

    def add_return(self, value: Value) -> None:
        self.return_node.add_input(value)

    def append(self, node: Node) -> Node:
        """Put a new node at the end; returns it."""
        last = self.return_node
        prev = last.prev
        assert prev is not None
        node.block, node.prev, node.next = self, prev, last
        prev.next = last.prev = node
        return node

    def destroy(self) -> None:
        """Remove everything inside."""
        self.return_node.remove_all_inputs()
        for node in self.nodes_reversed:
            node.destroy()


class Graph:
    """A function's body: one block, whose parameters are the inputs and whose returns are the outputs."""

    __slots__ = ("block", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.block = Block(self, None)

    @property
    def inputs(self) -> Sequence[Value]:
        return self.block.params

    @property
    def outputs(self) -> Sequence[Value]:
        return self.block.returns

    @property
    def nodes(self) -> Iterator[Node]:
        """Nodes of the outermost block."""
        return self.block.nodes

    def all_nodes(self) -> Iterator[Node]:
        """Every node, those of inner blocks after the node they belong to.

        Subgraphs held as attributes are left out.
        """
        stack: list[Iterator[Node]] = [self.block.nodes]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            yield node
            stack.extend(block.nodes for block in reversed(node.blocks))

    def add_input(self, type_: Type = TENSOR, name: str = "") -> Value:
        return self.block.add_param(type_, name)

    def add_output(self, value: Value) -> None:
        self.block.add_return(value)

    def constant(self, value: Any, type_: Type, block: Block | None = None) -> Value:
        """A new prim::Constant at the end of ``block`` (the outermost one by default). None has no attribute."""
        node = Node("prim::Constant", (), {} if value is None else {"value": value})
        (block or self.block).append(node)
        return node.add_output(type_)

    def __str__(self) -> str:
        from gpujit.ir.printer import print_graph

        return print_graph(self)

    def _repr_html_(self) -> str:
        # Pictures are made of graphs; notebooks alone ask a graph for one.
        from gpujit.pictures.notebook import graph_html

        return graph_html(self)

    def copy(self) -> Graph:
        """A deep copy: nodes and values are new; types, schemas, ranges and attribute values are shared."""
        other = Graph(self.name)
        _copy_block(self.block, other.block, {})
        return other


def _copy_block(source: Block, target: Block, value_map: dict[Value, Value]) -> None:
    # Nesting is as deep as the program's ifs and loops, which the front end limits.
    for param in source.params:
        value_map[param] = target.add_param(param.type, param.name)
    for node in source.nodes:
        copy_node(node, target, value_map)
    for value in source.returns:
        target.add_return(value_map[value])


def copy_node(node: Node, target: Block, value_map: dict[Value, Value]) -> Node:
    """Append a copy of ``node``, inner blocks included, to ``target``.

    ``value_map`` gives its inputs and gets its outputs.
    """
    new = Node(node.kind, [value_map[v] for v in node._inputs], dict(node.attributes))
    new.schema, new.source, new.call = node.schema, node.source, node.call
    target.append(new)
    for block in node.blocks:
        _copy_block(block, new.add_block(), value_map)
    for value in node.outputs:
        value_map[value] = new.add_output(value.type, value.name)
    return new
