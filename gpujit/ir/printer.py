"""Graphs as text, in TorchScript's layout; ``parser.parse_graph`` reads it back.

Names of values are kept, so that text, graph and text again agree byte for byte. What has no text form (arrays,
objects) prints as ``CONSTANTS.cN``. The overload an operator was resolved to is not part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import copysign
from typing import Any

from gpujit.ir.dtypes import BY_CODE
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.schema import float_text
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.types import BOOL, DEVICE, FUNCTION, DictType, EnumType, ListType, OptionalType, TupleType, Type
from gpujit.ir.values import Device, EnumValue, QTensor

# The attribute whose graph is printed after the graph it occurs in, as ``with prim::fork_0 = graph(...)``.
SUBGRAPH = "Subgraph"


@dataclass(eq=False, slots=True)
class OpaqueConstant:
    """Stands for a constant whose text does not hold its value.

    Args:
        text: printed again as it is, such as ``<Tensor>``.
        index: N of ``CONSTANTS.cN``; None for text of any other form.
        note: what a comment said about it, such as ``float32[2, 3]``.
    """

    text: str
    index: int | None = None
    note: str = ""


_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t",
}  # fmt: skip
_PLAIN_TEXT = re.compile(r"[ !#-\[\]-~]*\Z")
_VALID_NAME = re.compile(r"[\w./]+\Z")
_INVALID_PART = re.compile(r"[^\w./]+")


def quote(text: str) -> str:
    """A string literal in ASCII that reads back as any Python string, lone surrogates included."""
    if _PLAIN_TEXT.match(text):
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or _escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    code = ord(c)
    if 32 <= code < 127:
        return c
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def complex_text(value: complex) -> str:
    """``1.+2.j``; both parts with 17 digits."""
    sign = "-" if copysign(1.0, value.imag) < 0 and value.imag == value.imag else "+"
    return f"{float_text(value.real)}{sign}{float_text(abs(value.imag))}j"


def describe(value: Any) -> str:
    """dtype and shape of an array, the type's name of anything else; what the comment beside ``CONSTANTS.cN`` says."""
    if isinstance(value, OpaqueConstant):
        return value.note
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if isinstance(value, QTensor):
        dtype = BY_CODE[value.dtype].name if value.dtype in BY_CODE else value.dtype
    if dtype is None or not isinstance(shape, tuple):
        return type(value).__name__
    return f"{dtype}[{', '.join(map(str, shape))}]".replace("#", "").replace("\n", " ")


def print_graph(
    graph: Graph, *, constants: list[Any] | None = None, sources: bool = True, canonical: bool = False
) -> str:
    """The graph's text; every line ends with a line feed.

    Args:
        constants: gets the values that have no text form, each object once; ``CONSTANTS.cN`` is its N-th entry.
            Without a list the numbers count from 0.
        sources: whether nodes are followed by the place they come from.
        canonical: number all values in order and leave comments out, to compare graphs up to names.
    """
    out: list[str] = []
    _Printer(out, _Constants(constants), sources and not canonical, canonical).graph(graph)
    return "".join(out)


def print_node(node: Node, graph: Graph | None = None) -> str:
    """A node without its blocks on one line, for messages.

    With its ``graph`` unnamed values show the numbers ``print_graph`` gives them, without it ``?``.
    """
    printer = _Printer([], _Constants(None), False, False)
    if graph is not None:
        printer.name_values(graph)
    printer.block_nodes = False
    printer.node(node, "")
    return "".join(printer.out).strip()


class _Constants:
    """Numbers of the objects that have no text form."""

    def __init__(self, values: list[Any] | None) -> None:
        self.values = values
        self.index: dict[int, int] = {}
        self.next = 0
        # Keeps what it numbered alive: ids are only unique among living objects.
        self.kept: list[Any] = []
        for i, value in enumerate(values or ()):
            self.index.setdefault(id(value), i)

    def text(self, value: Any) -> str:
        key = id(value)
        index = self.index.get(key)
        if index is None:
            if self.values is not None:
                index = len(self.values)
                self.values.append(value)
            elif isinstance(value, OpaqueConstant) and value.index is not None:
                # Text read without its constants prints back unchanged.
                index = value.index
            else:
                index = self.next
                self.next += 1
            self.index[key] = index
            self.kept.append(value)
        return f"CONSTANTS.c{index}"


class _Printer:
    def __init__(self, out: list[str], constants: _Constants, sources: bool, canonical: bool) -> None:
        self.out = out
        self.constants = constants
        self.sources = sources
        self.canonical = canonical
        self.block_nodes = True
        self.names: dict[int, str] = {}
        self.types: dict[int, str] = {}
        self.source_names: dict[int, tuple[Source, str]] = {}
        self.notes: list[str] = []
        self.subgraphs: list[tuple[str, Graph]] = []

    # -- names ---------------------------------------------------------------------------------------------------

    def name_values(self, graph: Graph) -> None:
        """Give every value of the graph a name of its own."""
        values: list[Value] = []
        order: list[Block | Node] = [graph.block]
        while order:
            item = order.pop()
            if isinstance(item, Block):
                values += item.params
                order.extend(item.nodes_reversed)
                continue
            values += item.outputs
            order.extend(reversed(item.blocks))
            for attribute in item.attributes.values():
                if isinstance(attribute, OpaqueConstant) and attribute.index is not None:
                    self.constants.next = max(self.constants.next, attribute.index + 1)
        if self.canonical:
            self.names = {id(v): str(i) for i, v in enumerate(values)}
            return
        taken = {v.name for v in values}
        names: dict[int, str] = {}
        used: set[str] = set()
        suffixes: dict[str, int] = {}
        fresh = 0
        for value in values:
            name = value.name
            if not name:
                while str(fresh) in taken:
                    fresh += 1
                name = str(fresh)
                fresh += 1
            elif name in used or not _VALID_NAME.match(name):
                base = _INVALID_PART.sub("_", name)
                count = suffixes.get(base, 0)
                name = base
                while name in taken:
                    count += 1
                    name = f"{base}.{count}"
                suffixes[base] = count
                taken.add(name)
            used.add(name)
            names[id(value)] = name
        self.names = names

    def name(self, value: Value) -> str:
        # A value of another graph still prints: verify reports it with this text.
        return self.names.get(id(value)) or f"{value.name or '?'}"

    # -- structure -----------------------------------------------------------------------------------------------

    def graph(self, graph: Graph) -> None:
        self.name_values(graph)
        parameters = ",\n      ".join(f"%{self.name(v)} : {self.type(v.type)}" for v in graph.inputs)
        self.out.append(f"graph({parameters}):\n")
        for node in graph.nodes:
            self.node(node, "  ")
        self.out.append(f"  return ({self.values(graph.outputs)})\n")
        # Each subgraph numbers its own values and its own subgraphs, which follow it.
        for name, subgraph in self.subgraphs:
            self.out.append(f"with {name} = ")
            _Printer(self.out, self.constants, self.sources, self.canonical).graph(subgraph)

    def block(self, block: Block, number: int, indent: str) -> None:
        parameters = ", ".join(f"%{self.name(v)} : {self.type(v.type)}" for v in block.params)
        self.out.append(f"{indent}block{number}({parameters}):\n")
        inner = indent + "  "
        for node in block.nodes:
            self.node(node, inner)
        self.out.append(f"{inner}-> ({self.values(block.returns)})\n")

    def values(self, values: Sequence[Value]) -> str:
        return ", ".join("%" + self.name(v) for v in values)

    def node(self, node: Node, indent: str) -> None:
        outputs = ", ".join(f"%{self.name(v)} : {self.type(v.type)}" for v in node.outputs)
        kind, attributes = self.attributes(node) if node.attributes else (node.kind, "")
        comment = ""
        if self.notes:
            if not self.canonical:
                # There even when empty, so that what follows is known to be the place.
                comment = f" # {'; '.join(self.notes)}".rstrip()
            self.notes = []
        if self.sources and node.source is not None:
            comment += f" # {self.place(node.source)}"
        self.out.append(f"{indent}{outputs} = {kind}{attributes}({self.values(node.inputs)}){comment}\n")
        if self.block_nodes:
            for number, block in enumerate(node.blocks):
                self.block(block, number, indent + "  ")

    def place(self, source: SourceRange) -> str:
        known = self.source_names.get(id(source.source))
        if known is None:
            known = (source.source, " ".join(source.source.name.split()))
            self.source_names[id(source.source)] = known
        return f"{known[1]}:{source.shown_line}:{source.column}"

    def type(self, t: Type) -> str:
        text = self.types.get(id(t))
        if text is None:
            text = self.types[id(t)] = str(t)
        return text

    # -- attributes ----------------------------------------------------------------------------------------------

    def attributes(self, node: Node) -> tuple[str, str]:
        """The node's kind and its attributes in brackets."""
        kind = node.kind
        expected = node.outputs[0].type if kind == "prim::Constant" and len(node.outputs) == 1 else None
        parts: list[str] = []
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                number = len(self.subgraphs)
                if name == SUBGRAPH:
                    kind = f"{node.kind}_{number}"
                    self.subgraphs.append((kind, value))
                    continue
                self.subgraphs.append((f"graph_{number}", value))
                parts.append(f"{name}=graph_{number}")
            elif isinstance(value, Function) and name == "value" and expected == FUNCTION:
                parts.append(f"name={quote(value.name)}")
            elif name == "types" and isinstance(value, (list, tuple)) and all(isinstance(v, Type) for v in value):
                parts.append(f"{name}=[{', '.join(map(str, value))}]")
            else:
                parts.append(f"{name}={self.attribute(value, expected)}")
        return kind, f"[{', '.join(parts)}]" if parts else ""

    def attribute(self, value: Any, expected: Type | None) -> str:
        """One value; ``expected`` is the type the reader will know it has."""
        if isinstance(expected, OptionalType):
            expected = expected.element
        if value is None:
            return "None"
        if isinstance(value, bool):
            return str(int(value)) if expected == BOOL else str(value)
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, float):
            return float_text(value)
        if isinstance(value, complex):
            return complex_text(value)
        if isinstance(value, list):
            element = expected.element if isinstance(expected, ListType) else None
            return f"[{', '.join(self.attribute(v, element) for v in value)}]"
        if isinstance(value, tuple):
            elements: Iterable[Type | None] = (
                expected.elements
                if isinstance(expected, TupleType) and len(expected.elements) == len(value)
                else [None] * len(value)
            )
            parts = [self.attribute(v, t) for v, t in zip(value, elements, strict=True)]
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if isinstance(value, dict):
            key, item = (expected.key, expected.value) if isinstance(expected, DictType) else (None, None)
            pairs = (f"{self.attribute(k, key)}: {self.attribute(v, item)}" for k, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, Device):
            return quote(str(value)) if expected == DEVICE else f"Device({quote(str(value))})"
        if isinstance(value, EnumValue):
            text = value.type.name if isinstance(expected, EnumType) else str(value.type)
            return f"{text}.{value.name}"
        if isinstance(value, Type):
            text = str(value)
            # Bare, a tuple type would read as a tuple of types.
            return f"Type({text})" if text.startswith("(") else text
        if isinstance(value, Function):
            return f"Function({quote(value.name)})"
        if isinstance(value, OpaqueConstant) and value.index is None:
            return value.text
        text = self.constants.text(value)
        self.notes.append(describe(value))
        return text
