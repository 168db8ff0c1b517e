"""A program as serialized source: the classes and functions that a module needs, one text for each module path.

The inverse of ``frontend``: what is printed here compiles to the same graphs, in PyTorch as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.ops import upgraders
from gpujit.serialization.naming import Definition, TypeNames, is_name
from gpujit.serialization.old_operators import OLD_OPERATORS, SAME_TODAY
from gpujit.serialization.print_code import Code
from gpujit.serialization.print_function import FunctionPrinter
from gpujit.serialization.print_literals import Literals, quoted
from gpujit.support.errors import SaveError

# The least that PyTorch writes.
MIN_VERSION = 3
_OLD_PATH = "__torch__.upgraders"


@dataclass(slots=True)
class PrintedFile:
    """One source file: its module path, such as ``__torch__.torch.nn``, and its code."""

    path: str
    code: Code


class ProgramPrinter:
    """Prints what ``names`` has given a name to, and all that this needs in turn."""

    def __init__(self, names: TypeNames | None = None) -> None:
        self.names = TypeNames() if names is None else names
        self.literals = Literals(self.names)
        self.version = MIN_VERSION
        self._old: dict[str, None] = {}
        self._printed_old: set[str] = set()
        self._files: dict[str, Code] = {}

    def constant(self, value: Any, type_: T.Type) -> str:
        """A constant as an expression. Raises SaveError."""
        return self.literals.text(value, type_)

    def default(self, value: Any, type_: T.Type) -> str:
        """A constant where its type is declared."""
        return "None" if value is None else self.literals.text(value, type_)

    def uses_operator(self, node: Node) -> None:
        """Note an operator: some need a newer file format."""
        name = node.kind if node.schema is None else node.schema.full_name
        self.version = max(self.version, upgraders.changed_at(name))

    def old_operator(self, name: str) -> str:
        """What does as an operator did in older files: an operator of today, or a function that goes into the file."""
        if name in SAME_TODAY:
            today, version = SAME_TODAY[name]
            self.version = max(self.version, version)
            return today
        if name not in self._printed_old:
            self._printed_old.add(name)
            self._old[name] = None
        return f"{_OLD_PATH}.{name}"

    def files(self) -> list[PrintedFile]:
        """All files, in the order in which they were needed. More may be named afterwards, and this called again."""
        found = self._files
        for name, definition in self.names.unwritten():
            path, _, short = name.rpartition(".")
            found.setdefault(path, Code()).extend(self._definition(name, short, definition))
        for name in self._old:
            text, version = OLD_OPERATORS[name]
            self.version = max(self.version, version)
            code = found.setdefault(_OLD_PATH, Code())
            for line in text.strip().split("\n"):
                code.line(0, line)
        self._old.clear()
        return [PrintedFile(path, code) for path, code in found.items()]

    def _definition(self, name: str, short: str, definition: Definition) -> Code:
        if isinstance(definition, Function):
            return self.function(definition, short, 0)
        code = Code()
        if isinstance(definition, T.EnumType):
            code.line(0, f"class {short}(Enum):")
            for member, value in definition.members.items():
                code.line(1, f"{member} = {self.constant(value, definition.value_type)}")
        elif isinstance(definition, T.TupleType):
            code.line(0, f"class {short}(NamedTuple):")
            for field, t in zip(definition.fields or (), definition.elements, strict=True):
                code.line(1, f"{field} : {self.names.text(t)}")
        elif isinstance(definition, T.InterfaceType):
            code.line(0, f"class {short}({'ModuleInterface' if definition.is_module else 'Interface'}):")
            for method, function in definition.methods.items():
                arguments = [f"{a.name}: {self.names.text(a.type)}" for a in function.schema.arguments[1:]]
                returned = self.names.text(function.schema.returns[0].type)
                code.line(1, f"def {method}({', '.join(('self', *arguments))}) -> {returned}:")
                code.line(2, "pass")
        else:
            self._class(code, short, definition)
        if "\n" not in code.text.rstrip("\n"):
            code.line(1, "pass")
        return code

    def _class(self, code: Code, short: str, t: T.ClassType) -> None:
        code.line(0, f"class {short}(Module):" if t.is_module else f"class {short}:")
        if t.is_module:
            lists = {"parameters": t.parameters, "buffers": t.buffers}
            lists |= {"forward_pre_hooks": t.forward_pre_hooks} if t.forward_pre_hooks else {}
            lists |= {"forward_hooks": t.forward_hooks} if t.forward_hooks else {}
            for kind, members in lists.items():
                code.line(1, f"__{kind}__ = [{''.join(f'{quoted(m)}, ' for m in members)}]")
        for name, declared in t.attributes.items():
            text = self.names.text(declared)
            code.line(1, f"{name} : {text}" if is_name(name) else f"__annotations__[{quoted(name)}] = {text}")
        for name, (declared, value) in t.constants.items():
            code.line(1, f"{name} : Final[{self.names.text(declared)}] = {self.default(value, declared)}")
        for name, function in t.methods.items():
            code.extend(self.function(function, name, 1))

    def function(self, function: Function, short_name: str, depth: int) -> Code:
        """One function with its body. Raises SaveError for a graph that source has no form for."""
        try:
            return FunctionPrinter(self, function.graph, function.name).function(function, short_name, depth)
        except RecursionError:
            raise SaveError(f"{function.name} is nested too deeply to be written as source") from None


def print_function(function: Function) -> tuple[str, list[Any]]:
    """The source of one function as an archive would hold it, and the constants it names."""
    printer = ProgramPrinter()
    code = printer.function(function, function.short_name, 0)
    return code.text, printer.literals.values


def print_graph_as_source(graph: Graph, name: str = "forward") -> str:
    """The statements of a graph's body, as a function that declares nothing."""
    printer = FunctionPrinter(ProgramPrinter(), graph, name)
    for value in printer.graph.inputs:
        printer.define(value)
    printer.body(0)
    return printer.code.text
