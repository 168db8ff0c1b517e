"""Which tensors of a graph are one piece of memory, and where it is written, read, and handed on.

A *cell* is memory as one value first gets hold of it (its root): the fresh result of an operator, or what an if, a loop
or an operator that may copy hands on. All other values show a cell: they are views that can be made again, the results
of in-place calls, or lists and tuples that are only read. Cells that inputs, attributes, constants and containers hold
are ``foreign``: others may see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Use, Value
from gpujit.ir.types import TensorType
from gpujit.ops.infer import infer
from gpujit.ops.registry import Op
from gpujit.ops.rules.common import UNKNOWN
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.analysis.effects import BUILT_IN, entry_of, hidden_writes
from gpujit.passes.unmutate.views import UNPACK, VIEWS

NO_ROOTS: tuple[Value, ...] = ()
# Kinds without an entry that only read.
_READERS = ("prim::isinstance", "prim::RaiseException", "prim::tolist", "prim::Print")


@dataclass(frozen=True, slots=True)
class Handover:
    """A value that shows ``cell`` becomes ``target`` at ``place``; None stands for memory that others may see."""

    cell: Value
    target: Value | None
    place: Node
    use: Use


@dataclass(frozen=True, slots=True)
class Write:
    """``node`` writes into ``value``, its input ``index``, which shows ``cell``."""

    node: Node
    index: int
    value: Value
    cell: Value


@dataclass(slots=True)
class Cell:
    """What happens to one piece of memory."""

    root: Value
    is_foreign: bool = False
    # Whether it may be the same piece of memory as another cell that handed it on.
    is_received: bool = False
    uses: list[Use] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)


class Cells:
    """The cells of a graph.

    ``roots_of(value)`` are those a value shows; ``same(value)`` the value that first had an in-place call's result.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = Order(graph)
        self.cells: dict[Value, Cell] = {}
        self.handovers: list[Handover] = []
        # Roots of cells that views show.
        self.viewed: set[Value] = set()
        # Nodes that may write into memory of which only others know.
        self.foreign_writers: list[Node] = []
        # What views and lists that show cells were made from, and by which operator or kind.
        self.sources: dict[Value, tuple[Value, ...]] = {}
        self.makers: dict[Value, str] = {}
        self._roots: dict[Value, tuple[Value, ...]] = {}
        self._same: dict[Value, Value] = {}
        self._says_type_only: dict[Op, bool] = {}
        for value in graph.inputs:
            self._root(value, foreign=True)
        self._block(graph.block)
        for i in range(len(graph.outputs)):
            self._read(graph.block.return_node, i)

    @cached_property
    def alias(self) -> AliasAnalysis:
        """What others may write; only asked for memory that they see."""
        return AliasAnalysis(self.graph)

    def roots_of(self, value: Value) -> tuple[Value, ...]:
        """Roots of the cells a value shows; empty for numbers and the like."""
        return self._roots.get(self.same(value), NO_ROOTS)

    def same(self, value: Value) -> Value:
        """The value that an in-place call returned, or the value itself."""
        while value in self._same:
            value = self._same[value]
        return value

    def origins(self) -> dict[Value, frozenset[Value]]:
        """For each cell the fresh or foreign cells whose memory it may be."""
        sources: dict[Value, list[Value]] = {}
        for handover in self.handovers:
            if handover.target is not None:
                sources.setdefault(handover.target, []).append(handover.cell)
        found: dict[Value, frozenset[Value]] = {}
        for root, cell in self.cells.items():
            if not cell.is_received:
                found[root] = frozenset((root,))
                continue
            seen = {root}
            stack = [root]
            origins: set[Value] = set()
            while stack:
                current = stack.pop()
                if current in found:
                    origins |= found[current]
                elif not self.cells[current].is_received:
                    origins.add(current)
                else:
                    # Foreign memory is received with nobody named as its source.
                    if self.cells[current].is_foreign:
                        origins.add(current)
                    for source in sources.get(current, ()):
                        if source not in seen:
                            seen.add(source)
                            stack.append(source)
            found[root] = frozenset(origins or (root,))
        return found

    # ------------------------------------------------------------------------------------------------ values

    def _root(self, value: Value, *, foreign: bool = False, received: bool = False) -> None:
        if holds_memory(value.type):
            self.cells[value] = Cell(value, foreign, received)
            self._roots[value] = (value,)

    def _shows(self, value: Value, inputs: Sequence[Value]) -> None:
        roots: dict[Value, None] = {}
        for v in inputs:
            roots.update(dict.fromkeys(self.roots_of(v)))
        self._roots[value] = tuple(roots)
        self.viewed.update(roots)
        self.sources[value] = tuple(value.node.inputs)
        op = entry_of(value.node)
        self.makers[value] = value.node.kind if op is None else op.full_name

    def _read(self, node: Node, index: int) -> None:
        for root in self.roots_of(node.inputs[index]):
            self.cells[root].uses.append(Use(node, index))

    def _hand_over(self, node: Node, index: int, target: Value | None, place: Node | None = None) -> None:
        for root in self.roots_of(node.inputs[index]):
            self.handovers.append(Handover(root, target, place or node, Use(node, index)))

    def _receive(self, value: Value) -> None:
        """A result that may be one of several cells."""
        self._root(value, foreign=not isinstance(value.type, (TensorType, T.OptionalType)), received=True)

    # ------------------------------------------------------------------------------------------------- nodes

    def _block(self, block: Block) -> None:
        for node in block.nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        if node.kind not in ("prim::If", "prim::Loop"):
            for i in range(len(node.inputs)):
                self._read(node, i)
        if node.kind == "prim::If":
            for block in node.blocks:
                self._block(block)
            for k, out in enumerate(node.outputs):
                self._receive(out)
                for block in node.blocks:
                    self._pass_on(block.return_node, k, out)
            for block in node.blocks:
                for i in range(len(block.returns)):
                    self._read(block.return_node, i)
        elif node.kind == "prim::Loop":
            self._loop(node)
        elif node.kind == "prim::Constant":
            for value in node.outputs:
                self._root(value, foreign=node.attributes.get("value") is not None)
        elif node.kind == "prim::Uninitialized":
            self._root(node.output)
        elif node.kind in VIEWS and node.kind.startswith("prim::") and node.kind != UNPACK:
            self._shows(node.output, node.inputs)
        elif node.kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            if is_only_read(node.output):
                self._shows(node.output, node.inputs)
            else:
                self._escape(node)
        elif node.kind == UNPACK and self.makers.get(node.inputs[0]) in VIEWS:
            for value in node.outputs:
                self._shows(value, node.inputs)
        elif node.kind in _READERS:
            for value in node.outputs:
                self._root(value, foreign=True)
        else:
            op = entry_of(node)
            if op is None:
                self._escape(node)
                if BUILT_IN.get(node.kind) is None or BUILT_IN[node.kind].has_effect:
                    self.foreign_writers.append(node)
            else:
                self._operator(node, op)

    def _pass_on(self, node: Node, index: int, target: Value) -> None:
        """Memory goes into what an if or a loop returns."""
        if not holds_memory(target.type):
            return
        cell = self.cells.get(target)
        self._hand_over(node, index, None if cell is None or cell.is_foreign else target)

    def _loop(self, node: Node) -> None:
        (block,) = node.blocks
        for i in range(len(node.inputs)):
            self._read(node, i)
        for value in (*block.params[1:], *node.outputs):
            self._receive(value)
        for k, (param, out) in enumerate(zip(block.params[1:], node.outputs, strict=True)):
            self._pass_on(node, k + 2, param)
            self._pass_on(node, k + 2, out)
        self._block(block)
        for k, (param, out) in enumerate(zip(block.params[1:], node.outputs, strict=True)):
            self._pass_on(block.return_node, k + 1, param)
            self._pass_on(block.return_node, k + 1, out)
        for i in range(len(block.returns)):
            self._read(block.return_node, i)

    def _escape(self, node: Node) -> None:
        for i in range(len(node.inputs)):
            self._hand_over(node, i, None)
        for value in node.outputs:
            self._root(value, foreign=True)

    def _operator(self, node: Node, op: Op) -> None:
        arguments = op.schema.arguments
        hidden = hidden_writes(node, op)
        for i, value in enumerate(node.inputs):
            argument = arguments[i] if i < len(arguments) else None
            alias = None if argument is None else argument.alias or argument.element_alias
            writes = i in hidden or (alias is not None and alias.is_write)
            if writes and holds_memory(value.type):
                self._write(node, i, value)
            if argument is None or (alias is not None and "*" in alias.after and not _makes_pieces(node, op)):
                self._hand_over(node, i, None)
        for k, out in enumerate(node.outputs):
            if holds_memory(out.type):
                self._result(node, op, k, out)

    def _write(self, node: Node, index: int, value: Value) -> None:
        roots = self.roots_of(value)
        if not isinstance(value.type, TensorType) or not roots:
            # A list of tensors is written, or the elements of one.
            self._hand_over(node, index, None)
            self.foreign_writers.append(node)
            return
        for root in roots:
            cell = self.cells[root]
            cell.writes.append(Write(node, index, self.same(value), root))
            if cell.is_foreign:
                self.foreign_writers.append(node)

    def _result(self, node: Node, op: Op, k: int, out: Value) -> None:
        schema = op.schema
        returned = schema.returns[k] if k < len(schema.returns) else None
        alias = None if returned is None else returned.alias or returned.element_alias
        plain = isinstance(out.type, TensorType)
        if returned is not None and alias is None and plain and not op.may_alias:
            self._root(out)
            return
        sources = [
            i
            for i, a in enumerate(schema.arguments)
            if holds_memory(node.inputs[i].type) and self.roots_of(node.inputs[i])
            and (
                (alias is None and op.may_alias)
                or (alias is not None and a.alias is not None and alias.before & (a.alias.before | {"*"}))
            )
        ]  # fmt: skip
        if (
            alias is not None
            and alias.is_write
            and len(sources) == 1
            and schema.arguments[sources[0]].is_write
            and plain
        ):
            self._same[out] = node.inputs[sources[0]]
        elif op.full_name in VIEWS and sources == [0] and (plain or _makes_pieces(node, op)):
            self._shows(out, node.inputs[:1])
        elif plain and sources and "*" not in (alias.before if alias else ()):
            self._receive(out)
            for i in sources:
                self._hand_over(node, i, out)
        else:
            self._root(out, foreign=True)
            for i in range(len(node.inputs)):
                self._hand_over(node, i, None)

    # ----------------------------------------------------------------------------------------------- readers

    def reads_elements(self, use: Use) -> bool:
        """Whether a use depends on more than the shape and dtype of what it reads."""
        node = use.node
        op = entry_of(node)
        if op is None or any(holds_memory(v.type) for v in node.outputs) or op.effects:
            return True
        known = self._says_type_only.get(op)
        if known is None:
            known = self._says_type_only[op] = _says_type_only(op)
        return not known


def _says_type_only(op: Op) -> bool:
    """Whether results follow from the types of the arguments alone."""
    samples: dict[T.Type, object] = {T.INT: 0, T.BOOL: False, T.FLOAT: 0.5}
    args: list[object] = []
    for argument in op.schema.arguments:
        if isinstance(argument.type, TensorType):
            args.append(T.TensorType(6, (2, 3)))
        else:
            args.append(argument.default if argument.has_default else samples.get(argument.type, UNKNOWN))
    try:
        result = infer(op, args)
    except Exception:  # a rule may refuse the sample
        return False
    results = result if isinstance(result, (list, tuple)) else (result,)
    return bool(op.schema.returns) and not any(r is UNKNOWN or isinstance(r, type(UNKNOWN)) for r in results)


def _makes_pieces(node: Node, op: Op) -> bool:
    """Whether the node cuts a tensor into a list of views that is only unpacked or read."""
    if op.full_name not in VIEWS or len(node.outputs) != 1 or not isinstance(node.output.type, T.ListType):
        return False
    return all(use.node.kind == UNPACK for use in node.output.uses) or is_only_read(node.output)


def holds_memory(t: T.Type) -> bool:
    """Whether values of the type are, or may hold, tensors."""
    if isinstance(t, TensorType):
        return True
    if isinstance(t, (T.ClassType, T.InterfaceType, T.VarType)):
        return True
    if isinstance(t, T.SimpleType):
        return t in (T.ANY, T.ANY_LIST, T.ANY_TUPLE, T.ANY_CLASS, T.UNKNOWN, T.STORAGE)
    return any(map(holds_memory, t.children()))


def is_only_read(value: Value) -> bool:
    """Whether all that becomes of a list or tuple is that operators read its elements, or that the graph returns it."""
    for use in value.uses:
        node = use.node
        if node.kind == "prim::Return" and node.block is not None and node.block.owner is None:
            continue
        if node.kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            if not is_only_read(node.output):
                return False
            continue
        op = entry_of(node)
        if op is None or op.may_alias or use.index >= len(op.schema.arguments):
            return False
        argument = op.schema.arguments[use.index]
        if argument.alias is not None or argument.element_alias is not None:
            return False
        if any(holds_memory(v.type) and not isinstance(v.type, TensorType) for v in node.outputs):
            return False
        # Elements may go into another container, which is written or made.
        if op.kind == "prim" and (op.schema.is_mutable or any(holds_memory(v.type) for v in node.outputs)):
            return False
    return True


class Order:
    """Which nodes may run after which others."""

    def __init__(self, graph: Graph) -> None:
        self.position: dict[Node, int] = {}
        self._number(graph.block)

    def _number(self, block: Block) -> None:
        self.position[block.param_node] = len(self.position)
        for node in block.nodes:
            self.position[node] = len(self.position)
            for inner in node.blocks:
                self._number(inner)
        self.position[block.return_node] = len(self.position)

    def may_follow(self, later: Node, earlier: Node, defined: Value | None) -> bool:
        """Whether ``later`` may run after ``earlier`` while the memory made at ``defined`` is the same piece.

        Loops come round again, but to another piece when it is made inside; None says that it never is.
        """
        if self.position[later] > self.position[earlier] and not _are_alternatives(later, earlier):
            return True
        home = None if defined is None else defined.node.block
        for loop in loops_around(later):
            body = loop.blocks[0]
            if is_inside(earlier, body) and (defined is None or not _holds(body, home)):
                return True
        return False


def loops_around(node: Node) -> Iterator[Node]:
    """Loops a node runs in, the innermost first."""
    for owner in owners(node):
        if owner.kind == "prim::Loop":
            yield owner


def owners(node: Node) -> Iterator[Node]:
    """Nodes in whose blocks a node sits, the innermost first."""
    block = node.block
    while block is not None and block.owner is not None:
        yield block.owner
        block = block.owner.block


def is_inside(node: Node, block: Block) -> bool:
    """Whether a node sits in a block, at any depth."""
    return _holds(block, node.block)


def _holds(outer: Block, block: Block | None) -> bool:
    while block is not None:
        if block is outer:
            return True
        block = None if block.owner is None else block.owner.block
    return False


def _are_alternatives(a: Node, b: Node) -> bool:
    """Whether two nodes sit in different blocks of one if."""
    blocks = {}
    block = a.block
    while block is not None and block.owner is not None:
        blocks[block.owner] = block
        block = block.owner.block
    block = b.block
    while block is not None and block.owner is not None:
        if block.owner in blocks:
            return blocks[block.owner] is not block
        block = block.owner.block
    return False
