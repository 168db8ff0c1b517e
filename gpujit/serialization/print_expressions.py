"""Nodes as expressions of serialized source: operators, calls, containers, and the forms with a syntax of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.source import SourceRange
from gpujit.serialization.debug_tables import original_range
from gpujit.serialization.naming import is_name
from gpujit.serialization.print_code import Code, Pieces, joined, width
from gpujit.serialization.print_literals import quoted
from gpujit.serialization.print_plan import Plan
from gpujit.support.errors import SaveError

if TYPE_CHECKING:
    from gpujit.serialization.python_print import ProgramPrinter

# Longer expressions get a line of their own.
_MAX_WIDTH = 40

# Operators that are written like Python's conversions, and those that a declared type stands for.
_CASTS = {"aten::Int": "int", "aten::Float": "float", "aten::Bool": "bool", "aten::str": "str"}
_IMPLICIT = {
    "aten::IntImplicit": "int", "aten::FloatImplicit": "float", "aten::ComplexImplicit": "complex",
    "aten::ScalarImplicit": "number",
}  # fmt: skip
_PLAIN_CALLS = {
    "prim::awaitable_wait": "awaitable_wait", "prim::awaitable_nowait": "awaitable_nowait", "prim::Print": "print",
}  # fmt: skip


class ExpressionPrinter:
    """Writes the expressions of one function. Subclasses write its statements."""

    def __init__(self, owner: ProgramPrinter, graph: Graph, name: str) -> None:
        # Knows what goes beyond the function: names of types, constants, old operators.
        self.owner = owner
        self.names = owner.names
        self.name = name
        self.graph = graph.copy()
        self.plan = Plan(self.graph)
        self.code = Code()
        self.depth = 0
        self.values: dict[Value, Pieces] = {}
        # Values put inline whose expression stands in no line yet, in the order of their nodes.
        self.pending: list[Value] = []

    # ------------------------------------------------------------------------------------------------- values

    def range(self, node: Node) -> Pieces:
        place: SourceRange | None = original_range(node.source)
        return [] if place is None else [place]

    def fail(self, message: str, node: Node) -> SaveError:
        place = "" if node.source is None else f"  at {node.source}\n{node.source.highlight()}"
        return SaveError(f"{self.name} cannot be written as source: {message}", where=place, code="save-code")

    def text_of(self, t: T.Type) -> str:
        return self.names.text(t)

    def use(self, value: Value) -> Pieces:
        """The expression that stands for a value where it is read."""
        if value.is_constant:
            try:
                return [self.owner.constant(value.constant(), value.type)]
            except SaveError as e:
                raise self.fail(e.message, value.node) from None
        found = self.values.get(value)
        if found is None:
            raise self.fail(f"{value!r} is read where it is not known", value.node)
        if self.pending and value in self.pending:
            self.pending.remove(value)
        return found

    def atom(self, value: Value) -> Pieces:
        """As ``use``, in parentheses unless it is a name."""
        pieces = self.use(value)
        plain = len(pieces) == 1 and isinstance(pieces[0], str) and pieces[0].isidentifier()
        return pieces if plain else ["(", *pieces, ")"]

    def settle_long(self, values: list[Value]) -> None:
        """Give lines of their own to those of the values that are long, and to all that are evaluated before them."""
        last = None
        for value in values:
            if value in self.pending and width(self.values[value]) + 2 * self.depth >= _MAX_WIDTH:
                last = value
        while last is not None and last in self.pending:
            self.settle(self.pending[0])

    def settle(self, value: Value) -> None:
        pieces = self.use(value)
        name = self.new_name(value)
        self.code.line(self.depth, f"{name} = ", *pieces)
        self.values[value] = [name]

    def new_name(self, value: Value) -> str:
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------- expressions

    def expression(self, node: Node) -> Pieces:
        """The node as an expression."""
        self.settle_long(self.plan.printed(node))
        special = _SPECIAL.get(node.kind)
        pieces = self.operator(node) if special is None else special(self, node)
        return [*self.range(node), *pieces]

    def operator(self, node: Node) -> Pieces:
        space, _, name = node.kind.partition("::")
        if node.kind == "prim::PythonOp":
            raise self.fail(
                f"{node.attributes['name']} is marked with 'ignore' and left to Python; mark it with 'unused' to save "
                "what calls it",
                node,
            )
        if space == "upgrader":
            return self.call(self.owner.old_operator(name), node)
        if node.kind in _CASTS and len(node.inputs) == 1:
            return [f"{_CASTS[node.kind]}(", *self.use(node.inputs[0]), ")"]
        if node.kind in _IMPLICIT:
            return [f"annotate({_IMPLICIT[node.kind]}, ", *self.use(node.inputs[0]), ")"]
        if node.kind in _PLAIN_CALLS:
            return self.call(_PLAIN_CALLS[node.kind], node)
        if not is_name(name) or not is_name(space):
            raise self.fail(f"{node.kind} is no operator that source can name", node)
        self.owner.uses_operator(node)
        return self.call(f"torch.{name}" if space == "aten" else f"ops.{space}.{name}", node)

    def call(self, function: str, node: Node) -> Pieces:
        arguments = self.plan.arguments.get(node)
        if arguments is None:
            arguments = [("", v) for v in node.inputs]
        parts: list[Pieces] = [[f"{k}=", *self.use(v)] if k else self.use(v) for k, v in arguments]
        return [f"{function}(", *joined(parts), ")"]

    def getitem(self, node: Node) -> Pieces:
        owner, key = node.inputs
        return [*self.atom(owner), "[", *self.use(key), "]"]

    def wait(self, node: Node) -> Pieces:
        return ["torch.wait(", *self.use(node.inputs[0]), ")"]

    def get_attribute(self, node: Node) -> Pieces:
        name = node.attributes["name"]
        if is_name(name):
            return [*self.atom(node.inputs[0]), f".{name}"]
        return ["getattr(", *self.use(node.inputs[0]), f", {quoted(name)})"]

    def list_(self, node: Node) -> Pieces:
        t = node.output.type
        items = joined(self.use(v) for v in node.inputs)
        text: Pieces = ["[", *items, "]"]
        element = t.element if isinstance(t, T.ListType) else T.UNKNOWN
        wanted = self.text_of(element)
        plain = bool(node.inputs) and all(self.text_of(v.type) == wanted for v in node.inputs)
        if (plain and not isinstance(element, (T.OptionalType, T.UnionType))) or element == T.UNKNOWN:
            return text
        return [f"annotate(List[{wanted}], ", *text, ")"]

    def dict_(self, node: Node) -> Pieces:
        t = node.output.type
        keys, items = node.inputs[::2], node.inputs[1::2]
        pairs: list[Pieces] = [[*self.use(k), ": ", *self.use(v)] for k, v in zip(keys, items, strict=True)]
        text: Pieces = ["{", *joined(pairs), "}"]
        if not isinstance(t, T.DictType) or T.UNKNOWN in (t.key, t.value):
            return text
        same = all(self.text_of(k.type) == self.text_of(t.key) for k in keys)
        if node.inputs and same and all(self.text_of(v.type) == self.text_of(t.value) for v in items):
            return text
        return [f"annotate({self.text_of(t)}, ", *text, ")"]

    def tuple_(self, node: Node) -> Pieces:
        t = node.output.type
        items = joined(self.use(v) for v in node.inputs)
        if isinstance(t, T.TupleType) and t.name is not None:
            return [f"{self.text_of(t)}(", *items, ")"]
        return ["(", *items, ",)" if len(node.inputs) == 1 else ")"]

    def tuple_index(self, node: Node) -> Pieces:
        return ["(", *self.use(node.inputs[0]), ")[", *self.use(node.inputs[1]), "]"]

    def tuple_slice(self, node: Node) -> Pieces:
        return ["(", *self.use(node.inputs[0]), f")[{node.attributes['beg']}:{node.attributes['end']}]"]

    def unchecked_cast(self, node: Node) -> Pieces:
        return [f"unchecked_cast({self.text_of(node.output.type)}, ", *self.use(node.inputs[0]), ")"]

    def uninitialized(self, node: Node) -> Pieces:
        return [f"uninitialized({self.text_of(node.output.type)})"]

    def is_instance(self, node: Node) -> Pieces:
        types = [self.text_of(t) for t in node.attributes["types"]]
        asked = types[0] if len(types) == 1 else f"({', '.join(types)})"
        return ["isinstance(", *self.use(node.inputs[0]), f", {asked})"]

    def to_list(self, node: Node) -> Pieces:
        return [f"annotate({self.text_of(node.output.type)}, ", *self.atom(node.inputs[0]), ".tolist())"]

    def enum_part(self, node: Node) -> Pieces:
        return ["(", *self.use(node.inputs[0]), ").value" if node.kind == "prim::EnumValue" else ").name"]

    def create_object(self, node: Node) -> Pieces:
        name = self.text_of(node.output.type)
        return [f"{name}.__new__({name})"]

    def raise_(self, node: Node) -> Pieces:
        return ["ops.prim.RaiseException(", *joined(self.use(v) for v in node.inputs), ")"]

    def call_function(self, node: Node) -> Pieces:
        return [*self.use(node.inputs[0]), "(", *self._all_arguments(list(node.inputs[1:])), ")"]

    def call_method(self, node: Node) -> Pieces:
        owner, name = node.inputs[0], node.attributes["name"]
        t = owner.type
        arguments = list(node.inputs[1:])
        if isinstance(t, T.ClassType) and name in (*t.forward_pre_hooks, *t.forward_hooks):
            # Hooks are no attributes of a module that others may call.
            return [f"{self.text_of(t)}.{name}(", *self._all_arguments([owner, *arguments]), ")"]
        return ["(", *self.use(owner), f").{name}(", *self._all_arguments(arguments), ")"]

    def _all_arguments(self, values: list[Value]) -> Pieces:
        found: Pieces = []
        for value in values:
            found += [*self.use(value), ", "]
        return found

    def closure(self, node: Node) -> Pieces:
        raise NotImplementedError


_SPECIAL: dict[str, Callable[[Any, Node], Pieces]] = {
    "aten::__getitem__": ExpressionPrinter.getitem,
    "aten::wait": ExpressionPrinter.wait,
    "prim::GetAttr": ExpressionPrinter.get_attribute,
    "prim::ListConstruct": ExpressionPrinter.list_,
    "prim::DictConstruct": ExpressionPrinter.dict_,
    "prim::TupleConstruct": ExpressionPrinter.tuple_,
    "prim::TupleIndex": ExpressionPrinter.tuple_index,
    "prim::TupleSlice": ExpressionPrinter.tuple_slice,
    "prim::unchecked_cast": ExpressionPrinter.unchecked_cast,
    "prim::Uninitialized": ExpressionPrinter.uninitialized,
    "prim::isinstance": ExpressionPrinter.is_instance,
    "prim::tolist": ExpressionPrinter.to_list,
    "prim::EnumValue": ExpressionPrinter.enum_part,
    "prim::EnumName": ExpressionPrinter.enum_part,
    "prim::CreateObject": ExpressionPrinter.create_object,
    "prim::RaiseException": ExpressionPrinter.raise_,
    "prim::CallFunction": ExpressionPrinter.call_function,
    "prim::CallMethod": ExpressionPrinter.call_method,
    "prim::fork": lambda self, node: self.closure(node),
    "prim::awaitable": lambda self, node: self.closure(node),
}
