"""Functions as serialized source: statements, control flow, and the names of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpujit.frontend.literals import INT_MAX
from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.serialization.naming import UniqueNames, identifier, is_name
from gpujit.serialization.print_code import Code, Pieces, joined
from gpujit.serialization.print_expressions import ExpressionPrinter
from gpujit.serialization.print_plan import carried_condition, is_named

if TYPE_CHECKING:
    from gpujit.serialization.python_print import ProgramPrinter


class FunctionPrinter(ExpressionPrinter):
    """Writes one function."""

    def __init__(self, owner: ProgramPrinter, graph: Graph, name: str, unique: UniqueNames | None = None) -> None:
        super().__init__(owner, graph, name)
        self.unique = UniqueNames() if unique is None else unique

    def new_name(self, value: Value) -> str:
        wanted = identifier(value.name) if is_named(value) else ""
        return self.unique.name(wanted) if wanted else self.unique.temporary()

    def define(self, value: Value) -> str:
        """Name a value; the name."""
        name = self.new_name(value)
        self.values[value] = [name]
        return name

    # ------------------------------------------------------------------------------------------------- wholes

    def function(self, function: Function, short_name: str, depth: int) -> Code:
        """``def`` with its body, ``depth`` levels deep."""
        schema = function.schema
        names = [self.unique.name(a.name) for a in schema.arguments]
        arguments: list[str] = []
        for name, argument in zip(names, schema.arguments, strict=True):
            default = f"={self.owner.default(argument.default, argument.type)}" if argument.has_default else ""
            arguments.append(f"{name}: {self.text_of(argument.type)}{default}")
        for name, value in zip(names, self.graph.inputs, strict=True):
            self.values[value] = [name]
        separator = ",\n" + "  " * (depth + 1)
        returned = self.text_of(schema.returns[0].type)
        self.code.line(depth, f"def {short_name}({separator.join(arguments)}) -> {returned}:")
        self.body(depth + 1)
        return self.code

    def body(self, depth: int) -> None:
        self.depth = depth
        block = self.graph.block
        self.block(block)
        node = block.return_node
        self.settle_long(self.plan.printed(node))
        result = self.use(node.inputs[0]) if len(node.inputs) == 1 else self._tuple(node)
        self.code.line(depth, "return ", *result)

    def _tuple(self, node: Node) -> Pieces:
        return ["(", *joined(self.use(v) for v in node.inputs), ")"]

    def block(self, block: Block) -> None:
        nodes = list(block.nodes)
        skip: set[Node] = set()
        for node in nodes:
            if node not in skip:
                self.statement(node, skip)

    # --------------------------------------------------------------------------------------------- statements

    def statement(self, node: Node, skip: set[Node]) -> None:
        kind = node.kind
        if kind == "prim::Constant":
            return
        if kind == "prim::If":
            self.if_(node)
        elif kind == "prim::Loop":
            self.loop(node)
        elif kind == "prim::SetAttr":
            self.set_attribute(node)
        elif kind == "prim::Enter":
            self.with_(node, skip)
        elif kind == "prim::Exit":
            raise self.fail("a context is left that was not entered in the same block", node)
        elif node.blocks:
            raise self.fail(f"{kind} has blocks that source has no form for", node)
        elif kind in ("prim::TupleUnpack", "prim::ListUnpack"):
            self.unpack(node)
        else:
            self.plain(node)

    def plain(self, node: Node) -> None:
        pieces = self.expression(node)
        if node in self.plan.inlined:
            self.values[node.output] = pieces
            self.pending.append(node.output)
        elif not node.outputs or (len(node.outputs) == 1 and node.output.type == T.NONE and not node.output.uses):
            self.code.line(self.depth, *pieces)
        else:
            self.code.line(self.depth, self.targets(node.outputs), *pieces)

    def targets(self, values: Sequence[Value]) -> str:
        names = [self.define(v) for v in values]
        return f"{names[0]} = " if len(names) == 1 else "".join(f"{n}, " for n in names) + "= "

    def unpack(self, node: Node) -> None:
        self.settle_long(list(node.inputs))
        pieces = self.use(node.inputs[0])
        if node.outputs:
            names = "".join(f"{self.define(v)}, " for v in node.outputs)
            self.code.line(self.depth, f"{names}= ", *self.range(node), *pieces)

    def set_attribute(self, node: Node) -> None:
        self.settle_long(self.plan.printed(node))
        owner, value = node.inputs
        name = node.attributes["name"]
        if not is_name(name):
            raise self.fail(f"source has no form for storing the attribute {name!r}", node)
        pieces = self.use(value)
        self.code.line(self.depth, *self.range(node), *self.atom(owner), f".{name} = ", *pieces)

    def with_(self, node: Node, skip: set[Node]) -> None:
        manager = node.inputs[0]
        self.settle_long([manager])
        inside: list[Node] = []
        nested = 0
        end: Node | None = node.next
        while end is not None and end.kind != "prim::Return":
            if end.kind == "prim::Enter":
                nested += 1
            elif end.kind == "prim::Exit":
                if not nested:
                    break
                nested -= 1
            inside.append(end)
            end = end.next
        if end is None or end.kind != "prim::Exit" or end.inputs[0] is not manager:
            raise self.fail("the context entered here is not left in the same block, or not in turn", node)
        if end.output.uses:
            raise self.fail("what leaving a context gives is read", end)
        pieces = self.use(manager)
        target = f" as {self.define(node.output)}" if node.output.uses else ""
        self.code.line(self.depth, "with ", *self.range(node), *pieces, f"{target}:")
        self.depth += 1
        before = self.code.size
        for inner in inside:
            if inner not in skip:
                self.statement(inner, skip)
        if self.code.size == before:
            self.code.line(self.depth, "pass")
        self.depth -= 1
        skip.update(inside)
        skip.add(end)

    # ------------------------------------------------------------------------------------------- control flow

    def assign(self, names: list[str], types: Sequence[T.Type | None], values: Sequence[Value]) -> None:
        """Assign all at once; those whose variable has a wider type than the value apart, with the type.

        ``types`` are None for variables that have been given a type before.
        """
        self.settle_long(list(values))
        apart = [t is not None and self._is_wider(t, v.type) for t, v in zip(types, values, strict=True)]
        if any(apart) and self.pending:
            # Several lines: what they hold is evaluated before, in its order.
            while self.pending and any(v in self.pending for v in values):
                self.settle(self.pending[0])
        if not any(apart):
            if names:
                self.code.line(self.depth, f"{', '.join(names)} = ", *joined(self.use(v) for v in values))
            return
        # In their order, which is that of the results when the source is read again.
        for name, value, t, alone in zip(names, values, types, apart, strict=True):
            declared = f" : {self.text_of(t)}" if alone and t is not None else ""
            self.code.line(self.depth, f"{name}{declared} = ", *self.use(value))

    def _is_wider(self, declared: T.Type, found: T.Type) -> bool:
        if T.UNKNOWN in (declared, found) or isinstance(declared, T.TensorType):
            return False
        return self.text_of(declared) != self.text_of(found)

    def inner(self, block: Block, names: list[str], types: Sequence[T.Type | None], node: Node) -> None:
        """A block with the assignment of its results."""
        self.depth += 1
        before = self.code.size
        self.block(block)
        results = list(block.returns)[len(block.returns) - len(names) :] if names else []
        if names:
            self.assign(names, types, results)
        if self.code.size == before:
            self.code.line(self.depth, "pass")
        self.depth -= 1

    def if_(self, node: Node) -> None:
        self.settle_long(list(node.inputs))
        condition = self.use(node.inputs[0])
        # The results' names are known outside only after; inside, they must not be read.
        names = [self.new_name(v) for v in node.outputs]
        types = [v.type for v in node.outputs]
        self.code.line(self.depth, *self.range(node), "if ", *condition, ":")
        self.inner(node.blocks[0], names, types, node)
        other = node.blocks[1]
        if names or any(n.kind != "prim::Constant" for n in other.nodes):
            self.code.line(self.depth, "else:")
            self.inner(other, names, types, node)
        for name, value in zip(names, node.outputs, strict=True):
            self.values[value] = [name]

    def loop(self, node: Node) -> None:
        trips, condition, *carried = node.inputs
        (block,) = node.blocks
        again = block.returns[0]
        self.settle_long([trips, condition])
        counted = _is_true(condition) and _is_true(again)
        index = block.params[0]
        endless = trips.is_constant and trips.constant() == INT_MAX
        limit, test = self.use(trips), self.use(condition)
        names = [self.new_name(v) for v in node.outputs]
        if carried:
            self.assign(names, [v.type for v in node.outputs], carried)
        for name, param, output in zip(names, block.params[1:], node.outputs, strict=True):
            self.values[param] = self.values[output] = [name]
        if counted:
            self.code.line(self.depth, *self.range(node), f"for {self.define(index)} in range(", *limit, "):")
            self.inner(block, names, [None] * len(names), node)
            return
        self.while_(node, names, limit, test, counts=not endless or bool(index.uses), bounded=not endless)

    def while_(
        self, node: Node, names: list[str], limit: Pieces, test: Pieces, *, counts: bool, bounded: bool
    ) -> None:
        """A loop with a condition; one that also counts does so in a variable."""
        (block,) = node.blocks
        results = list(block.returns)
        index = block.params[0]
        known = carried_condition(node)
        flag = "" if known is None else names[known]
        if not flag:
            flag = self.unique.temporary()
            self.code.line(self.depth, f"{flag} = ", *test)
        counter = ""
        if counts:
            counter = self.define(index)
            self.code.line(self.depth, f"{counter} = 0")
        shown: Pieces = [flag]
        if bounded:
            bound = self.unique.temporary()
            self.code.line(self.depth, f"{bound} = ", *limit)
            shown = [f"torch.__and__(torch.lt({counter}, {bound}), {flag})"]
        self.code.line(self.depth, *self.range(node), "while ", *shown, ":")
        self.depth += 1
        self.block(block)
        if flag in names:
            targets, values = names, results[1:]
        else:
            targets, values = [flag, *names], results
        self.assign(targets, [None] * len(targets), values)
        if counter:
            self.code.line(self.depth, f"{counter} = torch.add({counter}, 1)")
        self.depth -= 1

    # ------------------------------------------------------------------------------------------------ closures

    def closure(self, node: Node) -> Pieces:
        name = self.unique.name("__forked_function" if node.kind == "prim::fork" else "__awaitable_function")
        inner = FunctionPrinter(self.owner, node.attributes["Subgraph"], self.name, self.unique)
        for outside, inside in zip(node.inputs, inner.graph.inputs, strict=True):
            inner.values[inside] = self.use(outside)
        inner.body(self.depth + 1)
        t = node.output.type
        known = isinstance(t, T.BoxType) and t.element != T.UNKNOWN
        self.code.line(self.depth, f"def {name}() -> {self.text_of(t.children()[0])}:" if known else f"def {name}():")
        self.code.extend(inner.code)
        return [f"{node.kind.removeprefix('prim::')}({name})"]


def _is_true(value: Value) -> bool:
    return value.is_constant and value.constant() is True
