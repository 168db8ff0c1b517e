"""Text to graph: reads what ``printer.print_graph`` writes, and what PyTorch prints for ordinary graphs.

One pass over the text with compiled expressions. Whitespace, line breaks and indentation carry no meaning; a ``#``
starts a comment that ends with its line. Nesting is limited, so that no text exhausts the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gpujit.ir import types as T
from gpujit.ir.graph import Block, Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.printer import SUBGRAPH, OpaqueConstant
from gpujit.ir.schema import Schema
from gpujit.ir.source import Source, SourceRange
from gpujit.ir.type_parser import MAX_NESTING, WORD, Fault, Scanner, TypeLookup, located, parse_type
from gpujit.ir.values import Device, EnumValue, namedtuple_class, parse_device
from gpujit.support.errors import DeviceError, InternalError

__all__ = ["MAX_NESTING", "TypeLookup", "parse_graph", "parse_type"]


def parse_graph(
    text: str,
    *,
    types: TypeLookup | None = None,
    constants: Sequence[Any] = (),
    functions: Mapping[str, Function] | None = None,
    resolve: Callable[[Node], Schema | None] | None = None,
) -> Graph:
    """The graph a text describes.

    Args:
        types: classes, enums, interfaces and NamedTuples by qualified name; others become empty placeholders.
        constants: ``CONSTANTS.cN`` is the N-th; those beyond the end become OpaqueConstants.
        functions: what ``prim::Constant[name="f"]`` stands for; others become functions without a body.
        resolve: gives the overload of a node, since the text does not name it.
    A value without a type is a Tensor, a constant without one gets the type of its value.
    Raises ParseError: the message has line and column, and shows the line with a caret.
    """
    reader = _Reader(text, types, constants, functions or {}, resolve)
    try:
        graph = reader.graph(0)
        reader.skip()
        if reader.pos < len(text):
            reader.fail("expected the end of the text after the graph")
    except Fault as fault:
        error = located(text, fault)
    else:
        return graph
    raise error


_GRAPH = re.compile(r"graph\s*\(")
_WITH = re.compile(r"with\s+(\S+)\s*=\s*")
_BLOCK = re.compile(r"block(\d{1,6})\s*\(")
_CLOSE_PARAMETERS = re.compile(r"\s*\)\s*:")
_RETURN = re.compile(r"(->|return)\s*(?=\()")
_NAME = re.compile(r"\s*%([\w./]+)")
_KIND = re.compile(r"\s*=\s*([\w.]+(?:::[\w.]+)+)\s*")
# The common node in one go: one output whose type is a word with marks.
_NODE = re.compile(r"%([\w./]+) : ([A-Za-z_][\w.]*(?:\[\]|\?)*) = ([\w.]+(?:::[\w.]+)+)(?=[\[(])")
_INPUTS = re.compile(r"\(\s*((?:%[\w./]+\s*(?:,\s*)?)*)\)")
_TAIL = re.compile(r"(?:,\s*scope:[^\n#]*)?[ \t]*(?:#([^\n]*))?")
_COMMA = re.compile(r"\s*,\s*")
_ATTRIBUTE = re.compile(r"\s*([A-Za-z_]\w*)\s*=")
_SUBGRAPH_KIND = re.compile(r"(.+)_(\d{1,6})\Z")

_REAL = r"(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_NUMBER = re.compile(rf"([-+]?{_REAL})(?:([-+]{_REAL})j|(j))?(?![\w.])")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CONSTANT = re.compile(r"CONSTANTS\.c(\d{1,9})(?!\w)")
_GRAPH_REFERENCE = re.compile(r"graph_\d{1,6}(?![\w.])")
_ANGLE = re.compile(r"<[^<>\n]*>")
_MEMBER = re.compile(r"\.([A-Za-z_]\w*)")

# Torch prints these in ways that do not read back; for all other types unreadable text is a mistake.
_PRINTED = (T.TensorType, T.ClassType, T.InterfaceType)
_HANDLES = frozenset((T.ANY, T.GENERATOR, T.STREAM, T.STORAGE, T.QSCHEME, T.CAPSULE))


class _Frame:
    """A block being read: names defined in it, its last node, and whether that node's outputs wait for its blocks."""

    __slots__ = ("block", "defined", "is_waiting", "node")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.defined: list[str] = []
        self.node: Node | None = None
        self.is_waiting = False


class _Reader(Scanner):
    def __init__(
        self,
        text: str,
        types: TypeLookup | None,
        constants: Sequence[Any],
        functions: Mapping[str, Function],
        resolve: Callable[[Node], Schema | None] | None,
    ) -> None:
        super().__init__(text, types)
        self.constants = constants
        self.functions = dict(functions)
        self.resolve = resolve
        self.sources: dict[str, Source] = {}
        self.opaque: dict[int, OpaqueConstant] = {}
        # Of the node being read.
        self.references: list[int] = []
        # Of the graph being read.
        self.env: dict[str, Value] = {}
        self.taken: set[str] = set()
        self.subgraph_users: dict[str, tuple[Node, str]] = {}

    # -- structure -----------------------------------------------------------------------------------------------

    def graph(self, depth: int) -> Graph:
        """A graph with the subgraphs that follow it."""
        self.skip()
        if depth > MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} graphs inside each other")
        if not self.take(_GRAPH):
            self.fail("expected 'graph('")
        graph = Graph()
        outer = self.env, self.taken, self.subgraph_users
        users: dict[str, tuple[Node, str]] = {}
        self.env, self.taken, self.subgraph_users = {}, set(), users
        self.body(graph)
        self.env, self.taken, self.subgraph_users = outer
        number = 0
        while True:
            self.skip()
            m = _WITH.match(self.text, self.pos)
            # A section of another name belongs to the graph around this one.
            if m is None or m.group(1) not in users or not m.group(1).endswith(f"_{number}"):
                break
            self.pos = m.end()
            node, attribute = users.pop(m.group(1))
            node.attributes[attribute] = self.graph(depth + 1)
            if attribute == SUBGRAPH:
                node.kind = m.group(1).rpartition("_")[0]
            number += 1
        missing = next((name for name, (_, attribute) in users.items() if attribute != SUBGRAPH), None)
        if missing is not None:
            self.fail(f"expected 'with {missing} = graph(...)'")
        if depth == 0 and m is not None:
            self.fail(f"no node holds the graph {m.group(1)}")
        return graph

    def body(self, graph: Graph) -> None:
        """Parameters, nodes and the return of a graph, inner blocks included."""
        frame = _Frame(graph.block)
        stack = [frame]
        self.parameters(frame)
        text = self.text
        while True:
            self.skip()
            start = self.pos
            c = text[start : start + 1]
            if c == "b" and (m := self.take(_BLOCK)):
                node = frame.node
                if node is None or int(m.group(1)) != len(node.blocks):
                    self.fail(f"expected block{len(node.blocks)}" if node else "a block needs a node before it", start)
                if not frame.is_waiting:
                    # Inside its blocks a node's outputs do not exist yet.
                    frame.is_waiting = True
                    for value in node.outputs:
                        del self.env[value.name]
                if len(stack) > MAX_NESTING:
                    self.fail(f"more than {MAX_NESTING} blocks inside each other", start)
                frame = _Frame(node.add_block())
                stack.append(frame)
                self.parameters(frame)
                continue
            if frame.is_waiting:
                frame.is_waiting = False
                assert frame.node is not None
                self.env.update((value.name, value) for value in frame.node.outputs)
            if c == "%" or c == "=":
                frame.node = self.node(frame)
                continue
            m = self.take(_RETURN)
            if m is None:
                self.fail("expected a node, a block, '->' or 'return'")
            is_last = len(stack) == 1
            if (m.group(1) == "return") != is_last:
                self.fail("a graph ends with 'return'" if is_last else "a block ends with '->'", start)
            for value in self.inputs():
                frame.block.add_return(value)
            if is_last:
                return
            for name in frame.defined:
                del self.env[name]
            stack.pop()
            frame = stack[-1]

    def parameters(self, frame: _Frame) -> None:
        """``%x : T, ...):``, the opening parenthesis already read."""
        while m := self.take(_NAME):
            t = self.optional_type()
            self.define(frame, frame.block.add_param(T.TENSOR if t is None else t, m.group(1)), m.start(1))
            if not self.take(_COMMA):
                break
        if not self.take(_CLOSE_PARAMETERS):
            self.fail("expected a parameter or '):'")

    def define(self, frame: _Frame, value: Value, pos: int) -> None:
        name = value.name
        if name in self.taken:
            self.fail(f"%{name} is defined twice", pos)
        self.taken.add(name)
        self.env[name] = value
        frame.defined.append(name)

    def node(self, frame: _Frame) -> Node:
        """One node up to its comment; its blocks are read by the caller."""
        text = self.text
        outputs: list[tuple[str, T.Type | None, int]] = []
        m = _NODE.match(text, self.pos)
        if m is not None:
            name, type_text, kind = m.groups()
            t = self.quick_types.get(type_text)
            if t is None:
                self.pos = m.start(2)
                t = self.quick_types[type_text] = self.type()
            outputs.append((name, t, m.start(1)))
            self.pos = m.end()
        else:
            while m := self.take(_NAME):
                outputs.append((m.group(1), self.optional_type(), m.start(1)))
                if not self.take(_COMMA):
                    break
            m = self.take(_KIND)
            if m is None:
                self.fail("expected '= namespace::name'")
            kind = m.group(1)
        self.references = []
        attributes: dict[str, Any] = {}
        node = Node(kind, (), attributes)
        is_constant = kind == "prim::Constant"
        if text.startswith("[", self.pos):
            expected = outputs[0][1] if is_constant and outputs else None
            self.attributes(node, expected, is_constant)
        for value in self.inputs():
            node.add_input(value)
        for name, t, pos in outputs:
            if t is None:
                t = type_of_constant(attributes.get("value")) if is_constant else T.TENSOR
            self.define(frame, node.add_output(t, name), pos)
        m = self.take(_TAIL)
        if m is not None and m.group(1) is not None:
            self.comment(node, m.group(1))
        frame.block.append(node)
        if kind[-1].isdecimal() and (m := _SUBGRAPH_KIND.match(kind)):
            self.subgraph_users[kind] = (node, SUBGRAPH)
        if self.resolve is not None:
            node.schema = self.resolve(node)
        return node

    def inputs(self) -> list[Value]:
        """``(%a, %b)`` as values."""
        m = self.take(_INPUTS)
        if m is None:
            self.fail("expected '(' and values such as '%x'")
        found = m.group(1)
        if not found:
            return []
        names = found.split(",")
        if not names[-1].strip():
            names.pop()
        env = self.env
        try:
            return [env[name.strip()[1:]] for name in names]
        except KeyError as error:
            name = error.args[0]
        at = re.compile(rf"%{re.escape(name)}(?![\w./])").search(self.text, m.start())
        pos = m.start(1) if at is None else at.start()
        if name in self.taken:
            self.fail(f"%{name} belongs to a block that cannot be seen from here", pos)
        raise Fault(f"%{name} is not defined" if "%" not in name else "expected ','", pos)

    def comment(self, node: Node, comment: str) -> None:
        """Take a node's place, and notes on its constants, from the comment behind it."""
        if self.references:
            notes, _, place = comment.partition(" # ")
            if not place and self.place(node, notes):
                return
            split = notes.strip().split("; ")
            if len(split) != len(self.references):
                split = [notes.strip()] + [""] * (len(self.references) - 1)
            for index, note in zip(self.references, split, strict=True):
                opaque = self.opaque.get(index)
                if opaque is not None and not opaque.note:
                    opaque.note = note
            comment = place
        self.place(node, comment)

    def place(self, node: Node, text: str) -> bool:
        """Whether the text is ``file:line:column``, which is then stored."""
        rest, _, column = text.strip().rpartition(":")
        name, colon, line = rest.rpartition(":")
        if not (colon and line.isdecimal() and column.isdecimal() and len(line) < 10 and len(column) < 10):
            return False
        source = self.sources.get(name)
        if source is None:
            source = self.sources[name] = Source(name, "")
        node.source = SourceRange(source, int(line), int(column), int(line), int(column))
        return True

    # -- attributes ----------------------------------------------------------------------------------------------

    def attributes(self, node: Node, expected: T.Type | None, is_constant: bool) -> None:
        """``[name=value, ...]``."""
        self.pos += 1
        while True:
            m = self.take(_ATTRIBUTE)
            if m is None:
                self.fail("expected an attribute's name and '='")
            name = m.group(1)
            if name in node.attributes:
                self.fail(f"attribute {name} is given twice", m.start(1))
            if is_constant and name == "value":
                node.attributes[name] = self.constant(expected)
            elif is_constant and name == "name" and expected == T.FUNCTION:
                node.attributes["value"] = self.function(self.string())
            elif name == "types" and self.literal("["):
                node.attributes[name] = self.types("]", 1)[0]
            else:
                if g := self.take(_GRAPH_REFERENCE):
                    self.subgraph_users[g.group()] = (node, name)
                    node.attributes[name] = None
                else:
                    node.attributes[name] = self.value(None, 0)
            if self.literal(","):
                continue
            self.expect("]")
            return

    def constant(self, expected: T.Type | None) -> Any:
        """A constant's value; text that holds no value (a printed tensor) becomes an OpaqueConstant."""
        start, plain = self.pos, expected
        if isinstance(plain, T.OptionalType):
            plain = plain.element
        if not isinstance(plain, T.TensorType) or self.text.startswith("CONSTANTS.", start):
            try:
                value = self.value(expected, 0)
                if self.text.startswith(("]", ","), self.pos):
                    return value
                fault = Fault("expected ']'", self.pos)
            except Fault as error:
                fault = error
            is_written_out = plain is None or not any(isinstance(t, _PRINTED) or t in _HANDLES for t in T.walk(plain))
            if is_written_out or "inside each other" in fault.message:
                raise fault
        else:
            fault = Fault("expected a tensor's text and ']()'", start)
        end = self.text.find("]()", start)
        if end <= start or self.text.find("\n", start, end) >= 0:
            raise fault
        self.pos = end
        return OpaqueConstant(self.text[start:end])

    def value(self, expected: T.Type | None, depth: int) -> Any:
        """Any value an attribute can have. ``expected`` is the constant's type: it tells bools from ints."""
        if depth > MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} values inside each other")
        if isinstance(expected, T.OptionalType):
            expected = expected.element
        self.skip()
        text, pos = self.text, self.pos
        c = text[pos : pos + 1]
        if c == '"':
            literal = self.string()
            return self.device(literal, pos) if expected == T.DEVICE else literal
        if m := self.take(_NUMBER):
            return self.number(m, expected)
        if c == "[":
            self.pos += 1
            element = expected.element if isinstance(expected, T.ListType) else None
            items: list[Any] = []
            while not self.literal("]"):
                items.append(self.value(element, depth + 1))
                if not self.literal(","):
                    self.expect("]")
                    break
            return items
        if c == "(":
            self.pos += 1
            elements = expected.elements if isinstance(expected, T.TupleType) else ()
            items = []
            while not self.literal(")"):
                items.append(self.value(elements[len(items)] if len(items) < len(elements) else None, depth + 1))
                if not self.literal(","):
                    self.expect(")")
                    break
            if isinstance(expected, T.TupleType) and expected.fields is not None and expected.name is not None:
                if len(items) != len(expected.fields):
                    self.fail(f"{expected} has {len(expected.fields)} fields, found {len(items)}", pos)
                return namedtuple_class(expected)(*items)
            return tuple(items)
        if c == "{":
            self.pos += 1
            key, item = (expected.key, expected.value) if isinstance(expected, T.DictType) else (None, None)
            entries: dict[Any, Any] = {}
            while not self.literal("}"):
                k = self.value(key, depth + 1)
                try:
                    hash(k)
                except TypeError:
                    self.fail("a dict's key must be a number, string or tuple", pos)
                self.expect(":")
                entries[k] = self.value(item, depth + 1)
                if not self.literal(","):
                    self.expect("}")
                    break
            return entries
        if m := self.take(_ANGLE):
            return OpaqueConstant(m.group())
        return self.word(expected, depth)

    def word(self, expected: T.Type | None, depth: int) -> Any:
        """A value that starts with a name: constant, enum member, device, function, type."""
        if m := self.take(_CONSTANT):
            index = int(m.group(1))
            self.references.append(index)
            if index < len(self.constants):
                return self.constants[index]
            if index not in self.opaque:
                self.opaque[index] = OpaqueConstant(m.group(), index)
            return self.opaque[index]
        start = self.pos
        m = WORD.match(self.text, start)
        if m is None:
            self.fail("expected a value")
        word, end = m.group(1), m.end()
        if word in ("None", "True", "False"):
            self.pos = end
            return {"None": None, "True": True, "False": False}[word]
        follows = self.text[end : end + 1]
        if follows == "(" and word in ("Device", "Function", "Type", "annotate"):
            self.pos = end + 1
            value: Any
            if word == "Device":
                value = self.device(self.string(), start)
            elif word == "Function":
                value = self.function(self.string())
            elif word == "Type":
                value = self.typed(depth + 1)[0]
            else:
                t = self.typed(depth + 1)[0]
                self.expect(",")
                value = self.value(t, depth + 1)
            self.expect(")")
            return value
        if isinstance(expected, T.EnumType) and "." in word:
            self.pos = end
            return self.member(expected, word.rpartition(".")[2], start)
        found = self.typed(depth + 1)[0]
        if isinstance(found, T.EnumType) and (m := self.take(_MEMBER)):
            return self.member(found, m.group(1), start)
        return found

    def member(self, enum: T.EnumType, name: str, pos: int) -> EnumValue:
        # An enum without members is a placeholder; its values are not known.
        if enum.members and name not in enum.members:
            self.fail(f"{enum.name} has no member {name}; it has {', '.join(enum.members)}", pos)
        return EnumValue(enum, name, enum.members.get(name))

    def number(self, m: re.Match[str], expected: T.Type | None) -> int | float | complex | bool:
        real, imaginary, suffix = m.groups()
        if imaginary is not None:
            return complex(float(real), float(imaginary))
        if suffix is not None:
            return complex(0.0, float(real))
        if not real.lstrip("+-").isdecimal():
            return complex(float(real)) if expected == T.COMPLEX else float(real)
        if len(real) > 40:
            self.fail("an integer of more than 40 digits", m.start())
        value = int(real)
        if expected == T.BOOL:
            if value not in (0, 1):
                self.fail(f"a bool is 0 or 1, found {value}", m.start())
            return bool(value)
        if expected == T.FLOAT:
            return float(value)
        return complex(value) if expected == T.COMPLEX else value

    def string(self) -> str:
        self.skip()
        m = self.take(_STRING)
        if m is None:
            self.fail("expected a string in double quotes")
        body = m.group(1)
        return _ESCAPE.sub(_unescape, body) if "\\" in body else body

    def device(self, text: str, pos: int) -> Device:
        try:
            return parse_device(text)
        except DeviceError as error:
            message = error.message
        raise Fault(message, pos)

    def function(self, name: str) -> Function:
        found = self.functions.get(name)
        if found is None:

            def signature() -> NoReturn:
                raise InternalError(f"function {name!r} was not given to parse_graph")

            found = self.functions[name] = Function(name, signature)
        return found


def _unescape(m: re.Match[str]) -> str:
    code: str = m.group(1)
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else m.group()
    if code.isdecimal():
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)


def type_of_constant(value: Any) -> T.Type:
    """The type a constant without a written one gets from its value."""
    for kind, t in _PYTHON_TYPES:
        if type(value) is kind:
            return t
    if isinstance(value, list) and value:
        return T.ListType(type_of_constant(value[0]))
    if isinstance(value, tuple):
        return T.TupleType(tuple(map(type_of_constant, value)))
    if isinstance(value, EnumValue):
        return value.type
    return T.TENSOR


_PYTHON_TYPES: tuple[tuple[type, T.Type], ...] = (
    (int, T.INT), (float, T.FLOAT), (bool, T.BOOL), (complex, T.COMPLEX), (str, T.STR), (type(None), T.NONE),
    (Device, T.DEVICE), (Function, T.FUNCTION),
)  # fmt: skip
