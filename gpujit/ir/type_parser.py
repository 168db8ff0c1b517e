"""Text to types, in graph form (``Dict(str, Tensor?)``) and in Python's (``Dict[str, Optional[Tensor]]``).

The Scanner below also carries the graph parser: a text, a position, and faults that know where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from gpujit.ir import symbols
from gpujit.ir import types as T
from gpujit.ir.dtypes import BY_IR_NAME
from gpujit.ir.symbols import Sym
from gpujit.support.errors import ParseError

# Blocks in blocks, types in types, values in values, graphs in graphs.
MAX_NESTING = 200

TypeLookup = Mapping[str, T.Type] | Callable[[str], T.Type | None]


def parse_type(text: str, types: TypeLookup | None = None) -> T.Type:
    """The type a text such as ``Dict(str, Tensor?)`` or ``Float(2, *)`` describes; Python's form is read as well.

    Raises ParseError.
    """
    reader = Scanner(text, types)
    try:
        found = reader.type()
        reader.skip()
        if reader.pos < len(text):
            reader.fail("expected the end of the type")
    except Fault as fault:
        error = located(text, fault)
    else:
        return found
    raise error


class Fault(Exception):
    """What is wrong and where; becomes a ParseError once it is known that nothing else reads the text."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(message)
        self.message = message
        self.pos = pos


def located(text: str, fault: Fault) -> ParseError:
    """The error to raise: line, column, and the line with a caret."""
    pos = min(fault.pos, len(text))
    line = text.count("\n", 0, pos) + 1
    start = text.rfind("\n", 0, pos) + 1
    end = text.find("\n", pos)
    excerpt = text[start : len(text) if end < 0 else end]
    column = pos - start
    # A long line is cut round the fault.
    cut = max(0, column - 80)
    shown = excerpt[cut : column + 40].replace("\t", " ")
    return ParseError(
        f"line {line}, column {column + 1}: {fault.message}", where=f"  {shown}\n  {' ' * (column - cut)}^"
    )


_SKIP = re.compile(r"(?:\s+|#[^\n]*)*")
_COLON = re.compile(r"\s*:\s*")
_QUICK_TYPE = re.compile(r"\s*([A-Za-z_][\w.]*(?:\([^()]*\))?(?:\[\]|\?)*)(?=\s*[,)=])")
WORD = re.compile(r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_TYPE_MARK = re.compile(r"\s*(\[\s*\]|\?)")
_DIM = re.compile(r"\s*(?:(-?\d{1,18})|\*|\?|SS\(-?\d+\))")
# What may begin an expression; a plain number does not, unless an operator follows.
_SYMBOLIC = re.compile(r"\s*-?\s*(?:SS\(|floordiv|mod|min|max|\d{1,18}\s*[-+*])")
_PROPERTY = re.compile(r"\s*(?:requires_grad\s*=\s*([01])|device\s*=\s*([a-z]+(?::\d{1,3})?)|(strides)\s*=\s*\[)")
_ANGLE_NAME = re.compile(r"\s*<\s*([\w.]+)\s*>")
_FIELD = re.compile(r"\s*[A-Za-z_]\w*\s*:(?!:)")

_SPELLINGS: dict[str, T.Type] = {
    "number": T.NUMBER,
    "list": T.ANY_LIST,
    "tuple": T.ANY_TUPLE,
    "SymInt": T.INT,
    "SymFloat": T.FLOAT,
    "SymBool": T.BOOL,
    "ScalarType": T.INT,
    "Layout": T.INT,
    "MemoryFormat": T.INT,
}
_CUSTOM = "__torch__.torch.classes."
_VARIABLE = re.compile(r"t(?:\d|[A-Z]\w*)?\Z")
_BRACKETS = {"(": ")", "[": "]"}


class Scanner:
    """A text being read, and how to read a type at the position."""

    def __init__(self, text: str, types: TypeLookup | None) -> None:
        self.text = text
        self.pos = 0
        self.lookup: Callable[[str], T.Type | None] = (
            (lambda name: None) if types is None else types.get if isinstance(types, Mapping) else types
        )
        self.quick_types: dict[str, T.Type] = {}
        self.named_types: dict[tuple[str, str], T.Type] = {}

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        """Raise a fault at ``pos``, by default at what comes next."""
        if pos is None:
            self.skip()
            pos = self.pos
        raise Fault(message, pos)

    def skip(self) -> None:
        """Go past white space and comments."""
        m = _SKIP.match(self.text, self.pos)
        assert m is not None
        self.pos = m.end()

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of ``pattern`` here, which is consumed; None leaves the position."""
        m = pattern.match(self.text, self.pos)
        if m is not None:
            self.pos = m.end()
        return m

    def literal(self, token: str) -> bool:
        """Whether ``token`` comes next, after white space; it is consumed."""
        text, pos = self.text, self.pos
        while pos < len(text) and text[pos].isspace():
            pos += 1
        if not text.startswith(token, pos):
            return False
        self.pos = pos + len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.literal(token):
            self.fail(f"expected {token!r}")

    # -- types ---------------------------------------------------------------------------------------------------

    def optional_type(self) -> T.Type | None:
        """The type after ``:``, None when there is no colon."""
        colon = _COLON.match(self.text, self.pos)
        if colon is None:
            return None
        self.pos = colon.end()
        return self.type()

    def type(self) -> T.Type:
        """A type. Texts seen before are looked up."""
        m = _QUICK_TYPE.match(self.text, self.pos)
        if m is None:
            return self.typed(0)[0]
        found = self.quick_types.get(m.group(1))
        if found is not None:
            self.pos = m.end()
            return found
        found = self.typed(0)[0]
        if self.pos == m.end():
            self.quick_types[m.group(1)] = found
        return found

    def typed(self, depth: int) -> tuple[T.Type, int]:
        """A type and how deep it nests; ``depth`` is how deep it lies in others."""
        self.skip()
        start = self.pos
        if depth > MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} types inside each other")
        found: T.Type
        if self.text.startswith("(", start):
            self.pos += 1
            elements, height = self.types(")", depth + 1)
            found = T.TupleType(tuple(elements))
        else:
            m = self.take(WORD)
            if m is None:
                self.fail("expected a type")
            word = m.group(1)
            opening = self.text[self.pos : self.pos + 1]
            if word in ("Enum", "InterfaceType") and (name := self.take(_ANGLE_NAME)):
                found, height = self.named(name.group(1), start, word), 0
            elif word == "Tensor" or (word in BY_IR_NAME and "." not in word):
                found, height = self.tensor(word, opening), 0
            elif opening in _BRACKETS and word in _GENERIC and not self.text.startswith("[]", self.pos):
                self.pos += 1
                arguments, height = self.types(_BRACKETS[opening], depth + 1)
                count, build = _GENERIC[word]
                if count is not None and len(arguments) != count:
                    self.fail(f"{word} takes {count} type{'s' if count > 1 else ''}, found {len(arguments)}", start)
                if word == "Union" and not arguments:
                    self.fail("a Union needs members", start)
                found = build(arguments)
            elif word in T.SIMPLE_TYPES:
                found, height = T.SIMPLE_TYPES[word], 0
            else:
                found, height = self.named(word, start), 0
        while m := self.take(_TYPE_MARK):
            height += 1
            if depth + height > MAX_NESTING:
                self.fail(f"more than {MAX_NESTING} types inside each other", start)
            found = T.optional(found) if m.group(1) == "?" else T.ListType(found)
        return found, height

    def types(self, close: str, depth: int) -> tuple[list[T.Type], int]:
        """Types up to ``close`` and one more than the deepest one's depth; names of NamedTuple fields are skipped."""
        found: list[T.Type] = []
        height = 0
        while not self.literal(close):
            self.take(_FIELD)
            t, inner = self.typed(depth)
            found.append(t)
            height = max(height, inner)
            if not self.literal(","):
                self.expect(close)
                break
        return found, height + 1

    def tensor(self, word: str, opening: str) -> T.TensorType:
        """``Float(2, *, strides=[3, 1], requires_grad=0, device=cpu)``, the name already read."""
        dtype = None if word == "Tensor" else BY_IR_NAME[word].code
        if opening != "(":
            return T.TENSOR if dtype is None else T.TensorType(dtype)
        self.pos += 1
        dims: list[Any] = []
        strides: tuple[int | None, ...] | None = None
        device: str | None = None
        requires_grad: bool | None = None
        # Torch prints no sizes for rank 0; ours tells an unknown rank by "...".
        is_unknown = has_property = False
        while not self.literal(")"):
            if m := self.take(_PROPERTY):
                has_property = True
                if m.group(1):
                    requires_grad = m.group(1) == "1"
                elif m.group(2):
                    device = m.group(2)
                else:
                    strides = self.dims("]")
            elif not (has_property or dims or is_unknown) and self.literal("..."):
                is_unknown = True
            elif not (has_property or is_unknown) and (found := self.symbolic()) is not None:
                dims.append(found)
            elif not (has_property or is_unknown) and (m := self.take(_DIM)):
                dims.append(_size(m))
            else:
                self.fail("expected a size, strides=[...], requires_grad= or device=")
            if not self.literal(","):
                self.expect(")")
                break
        if dtype is None and has_property and not dims:
            is_unknown = True
        shape = None if is_unknown else tuple(dims)
        return T.TensorType(dtype, shape, strides, device, requires_grad)

    def symbolic(self) -> Sym | None:
        """A size that is an expression of symbols; None leaves the position."""
        m = _SYMBOLIC.match(self.text, self.pos)
        found = None if m is None else symbols.parse(self.text, self.pos)
        if found is None or not isinstance(found[0], Sym):
            return None
        self.pos = found[1]
        return found[0]

    def dims(self, close: str) -> tuple[int | None, ...]:
        found: list[int | None] = []
        while not self.literal(close):
            m = self.take(_DIM)
            if m is None:
                self.fail("expected a number or '*'")
            found.append(_size(m))
            if not self.literal(","):
                self.expect(close)
                break
        return tuple(found)

    def named(self, name: str, pos: int, kind: str = "") -> T.Type:
        """A user's type by name; a placeholder when nobody knows it."""
        found = self.named_types.get((name, kind))
        if found is None:
            found = self.lookup(name)
            if kind == "Enum" and not isinstance(found, T.EnumType):
                found = T.EnumType(name, T.ANY)
            elif kind == "InterfaceType" and not isinstance(found, T.InterfaceType):
                found = T.InterfaceType(name)
            if found is None:
                found = _SPELLINGS.get(name)
            if found is None and _VARIABLE.match(name):
                found = T.VarType(name)
            if found is None and "." not in name:
                self.fail(f"unknown type {name!r}", pos)
            if found is None:
                found = T.custom_class(name) if name.startswith(_CUSTOM) else T.ClassType(name)
            self.named_types[name, kind] = found
        return found


def _size(m: re.Match[str]) -> int | None:
    return None if m.group(1) is None else int(m.group(1))


def _future(kind: str) -> Callable[[list[T.Type]], T.Type]:
    return lambda arguments: T.BoxType(kind, arguments[0])


# Types with arguments: how many, and what they make. Python's spellings are among them.
_GENERIC: dict[str, tuple[int | None, Callable[[list[T.Type]], T.Type]]] = {
    "Dict": (2, lambda a: T.DictType(a[0], a[1])),
    "List": (1, lambda a: T.ListType(a[0])),
    "Optional": (1, lambda a: T.optional(a[0])),
    "Union": (None, T.union),
    "Tuple": (None, lambda a: T.TupleType(() if a == [T.TupleType(())] else tuple(a))),
    "NamedTuple": (None, lambda a: T.TupleType(tuple(a))),
    "Future": (1, _future("Future")),
    "RRef": (1, _future("RRef")),
    "Await": (1, _future("Await")),
}
