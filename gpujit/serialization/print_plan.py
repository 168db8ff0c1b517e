"""What printing a graph as source decides beforehand: arguments left out, expressions put inline.

Reading the source again must give the nodes back in their order. So a value is put inline only where the places of its
node's neighbours, read from left to right and inside out, are those the nodes have now.
"""

from __future__ import annotations

import re

from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_NAME
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.schema import Argument, Schema
from gpujit.ops import overloads

# Deeper expressions are cut: readers recurse.
MAX_NESTING = 24

_TEMPORARY = re.compile(r"_\d*\Z")
# Values of these kinds have a name, so that what comes after can refer to them.
_NEVER_INLINE = frozenset((
    "prim::isinstance", "prim::Enter", "prim::Exit", "prim::fork", "prim::awaitable", "prim::TupleUnpack",
    "prim::ListUnpack",
))  # fmt: skip
_CLOSURES = ("prim::fork", "prim::awaitable")

# A keyword, '' for an argument by position, and the value.
Printed = tuple[str, Value]


class Plan:
    """Decisions for one graph, which it changes a little: tuples that are made to be taken apart at once go."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.arguments: dict[Node, list[Printed]] = {}
        self.inlined: set[Node] = set()
        self._uses: dict[Value, int] = {}
        _join_tuples(graph)
        for node in graph.all_nodes():
            if node.schema is not None:
                self.arguments[node] = printed_arguments(node, node.schema)
            elif "keywords" in node.attributes:
                self.arguments[node] = _with_keywords(node)
        self._count_uses()
        self._scan_block(graph.block)

    def printed(self, node: Node) -> list[Value]:
        """The inputs that the node's text holds, in order."""
        found = self.arguments.get(node)
        if node.kind == "prim::SetAttr":
            # The right side of an assignment is evaluated first.
            return list(reversed(node.inputs))
        if node.kind == "prim::Return" and node.block is not None and node.block.owner is not None:
            owner = node.block.owner
            if owner.kind == "prim::Loop" and carried_condition(owner) is not None:
                return list(node.inputs[1:])
        return list(node.inputs) if found is None else [v for _, v in found]

    def _count_uses(self) -> None:
        blocks: list[Block] = [self.graph.block]
        while blocks:
            block = blocks.pop()
            for node in (*block.nodes, block.return_node):
                blocks += node.blocks
                for value in self.printed(node):
                    self._uses[value] = self._uses.get(value, 0) + 1

    # ---------------------------------------------------------------------------------------------- inlining

    def _scan_block(self, block: Block) -> None:
        node: Node | None = block.return_node
        while node is not None and node is not block.param_node:
            node = self._scan_node(node, 0)

    def _scan_node(self, node: Node, nesting: int) -> Node | None:
        """Put inline what can be in ``node``; the node before all of them."""
        for block in node.blocks:
            self._scan_block(block)
        before = self._previous(node)
        for index, value in reversed(list(enumerate(self.printed(node)))):
            if before is None or value.node is not before or not self._can_inline(value, node, index, nesting):
                continue
            self.inlined.add(before)
            before = self._scan_node(before, nesting + 1)
        return before

    def _previous(self, node: Node) -> Node | None:
        """The node before, constants aside; None at the start of the block."""
        found = node.prev
        while found is not None and found.kind == "prim::Constant":
            found = found.prev
        return None if found is None or found.kind == "prim::Param" else found

    def _can_inline(self, value: Value, user: Node, index: int, nesting: int) -> bool:
        node = value.node
        if len(node.outputs) != 1 or self._uses.get(value) != 1 or node.blocks or node.kind in _NEVER_INLINE:
            return False
        if user.kind in _CLOSURES or (user.kind == "prim::Loop" and index > 1) or nesting >= MAX_NESTING:
            return False
        # What a block returns is assigned to the name of the block's result anyway.
        is_result = user.kind == "prim::Return" and user.block is not None and user.block.owner is not None
        return is_result or not is_named(value)


def is_named(value: Value) -> bool:
    """Whether a value has a name that a person gave it."""
    return bool(value.name) and not _TEMPORARY.match(value.name)


def carried_condition(loop: Node) -> int | None:
    """Which of the values a loop carries is its condition as well, as in source that was printed before."""
    _, condition, *carried = loop.inputs
    again, *results = loop.blocks[0].returns
    if condition.is_constant and again.is_constant:
        return None
    pairs = list(zip(carried, results, strict=True))
    return pairs.index((condition, again)) if (condition, again) in pairs else None


def _join_tuples(graph: Graph) -> None:
    """Let those who read the parts of a tuple read what it was made of, where nobody else reads the tuple."""
    for node in list(graph.all_nodes()):
        if node.kind != "prim::TupleConstruct":
            continue
        uses = list(node.output.uses)
        if not uses or any(u.node.kind != "prim::TupleUnpack" for u in uses):
            continue
        for use in uses:
            for part, output in zip(node.inputs, use.node.outputs, strict=True):
                if is_named(output) and not is_named(part) and not part.is_constant:
                    part.name = output.name
                output.replace_all_uses_with(part)
            use.node.destroy()
        node.destroy()


def _with_keywords(node: Node) -> list[Printed]:
    names = node.attributes["keywords"]
    positional = len(node.inputs) - len(names)
    return list(zip(("",) * positional + tuple(names), node.inputs, strict=True))


def printed_arguments(node: Node, schema: Schema) -> list[Printed]:
    """An operator's arguments without those at the end, and those given by keyword, that equal their defaults."""
    arguments = schema.arguments
    if schema.name.startswith("upgrader::"):
        return _listed(node, arguments, len(arguments), leave_out=False)
    if len(node.inputs) < len(arguments):
        return [("", v) for v in node.inputs]
    needed = len([a for a in arguments if not a.kwarg_only])
    if len(node.inputs) == len(arguments):
        while needed and _is_default(arguments[needed - 1], node.inputs[needed - 1]):
            needed -= 1
    short = _listed(node, arguments, needed, leave_out=True)
    if len(short) < len(node.inputs) and not _means_the_same(node, schema, short):
        short = _listed(node, arguments, len(arguments), leave_out=False)
    last = short[-1] if short else None
    if last is not None and not last[0] and last[1].type == T.INT and not _means_the_same(node, schema, short):
        # Where lists of sizes are taken, a lone int counts as one of them: ``view(x, 7)`` is not a view as dtype 7.
        return [short[0], *((a.name, v) for a, v in zip(arguments[1:], node.inputs[1:], strict=False))]
    return short


def _listed(node: Node, arguments: tuple[Argument, ...], needed: int, *, leave_out: bool) -> list[Printed]:
    found: list[Printed] = []
    for i, (argument, value) in enumerate(zip(arguments, node.inputs, strict=False)):
        if argument.kwarg_only:
            if not leave_out or not _is_default(argument, value):
                found.append((argument.name, value))
        elif i < needed:
            found.append(("", value))
    found += [("", v) for v in node.inputs[len(arguments) :]]
    return found


def _means_the_same(node: Node, schema: Schema, printed: list[Printed]) -> bool:
    """Whether the shorter call still resolves to the node's overload."""
    candidates = overloads.candidates_for(node.kind)
    if not candidates:
        return True
    positional = [v.type for name, v in printed if not name]
    match = overloads.resolve(candidates, positional, {name: v.type for name, v in printed if name})
    return isinstance(match, overloads.Match) and match.schema is schema


def _is_default(argument: Argument, value: Value) -> bool:
    """Whether the argument is written as its default's constant. Lists are written out, as PyTorch does: where one is
    left out, PyTorch may take another overload (``conv2d`` with a text for its padding)."""
    if not argument.has_default or not value.is_constant:
        return False
    wanted, found = argument.default, value.constant()
    t = argument.type.element if isinstance(argument.type, T.OptionalType) else argument.type
    if wanted is None:
        return found is None
    if isinstance(wanted, str) and t == T.INT:
        # A dtype's default is written by name in schemas.
        wanted = BY_NAME[wanted].code if wanted in BY_NAME else None
    if t == T.FLOAT and isinstance(wanted, int):
        wanted = float(wanted)
    return type(found) is type(wanted) and isinstance(found, (bool, int, float, str)) and bool(found == wanted)
