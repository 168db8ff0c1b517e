"""Operator schemas: parsed once from text such as ``aten::relu_(Tensor(a!) self) -> Tensor(a!)``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpujit.ir import types as T
from gpujit.support.errors import SchemaError


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """An alias mark: ``(a)`` shares memory, ``(a!)`` is written, ``(a -> *)`` may end inside a container."""

    before: frozenset[str]
    is_write: bool = False
    after: frozenset[str] = frozenset()

    def __str__(self) -> str:
        text = "|".join(sorted(self.before)) + ("!" if self.is_write else "")
        if self.after and self.after != self.before:
            text += f" -> {'|'.join(sorted(self.after))}"
        return f"({text})"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or return of a schema.

    ``length`` is N of a broadcasting list ``int[N]``: a lone int stands for a list of N. ``text`` is the type as
    written (``ScalarType``, ``SymInt[2]``), ``type`` what it means (int, a list of int).
    """

    name: str
    type: T.Type
    text: str
    default: Any = None
    has_default: bool = False
    kwarg_only: bool = False
    length: int | None = None
    alias: AliasInfo | None = None
    element_alias: AliasInfo | None = None

    @property
    def is_write(self) -> bool:
        """Whether the call may write into this argument."""
        return self.alias is not None and self.alias.is_write

    def __str__(self) -> str:
        alias = "" if self.alias is None else str(self.alias)
        name = f" {self.name}" if self.name else ""
        default = f"={format_default(self.default, self.text)}" if self.has_default else ""
        return f"{_with_alias(self.text, alias, self.element_alias)}{name}{default}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The signature of an operator, function or method."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    is_vararg: bool = False
    is_varret: bool = False

    @property
    def full_name(self) -> str:
        """``aten::add.Tensor``; without a dot when the overload has no name."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def is_mutable(self) -> bool:
        """Whether the call may write into one of its arguments."""
        return any(a.is_write for a in self.arguments)

    def index_of(self, name: str) -> int:
        """Position of an argument. Raises KeyError when there is none of that name."""
        for i, a in enumerate(self.arguments):
            if a.name == name:
                return i
        raise KeyError(name)

    def __str__(self) -> str:
        parts: list[str] = []
        star = False
        for a in self.arguments:
            if a.kwarg_only and not star:
                parts.append("*")
                star = True
            parts.append(str(a))
        if self.is_vararg:
            parts.append("...")
        returns = [str(r) for r in self.returns]
        if self.is_varret:
            returns.append("...")
        # One result that starts with a parenthesis is a tuple, and needs its own.
        bare = len(returns) == 1 and not returns[0].startswith("(")
        text = returns[0] if bare else "(" + ", ".join(returns) + ")"
        return f"{self.full_name}({', '.join(parts)}) -> {text}"


def _with_alias(text: str, alias: str, element: AliasInfo | None) -> str:
    if not alias and element is None:
        return text
    m = re.match(r"^(.*?)(\[\d*\])?(\?*)$", text)
    assert m is not None
    base, brackets, marks = m.group(1), m.group(2) or "", m.group(3)
    if not brackets:
        return f"{base}{alias}{marks}"
    return f"{base}{element or ''}{brackets}{alias}{marks}"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f", "\v": "\\v"}


def format_default(value: Any, type_text: str = "") -> str:
    """A default value in schema text."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(format_default(v) for v in value) + "]"
    if isinstance(value, float):
        return float_text(value)
    return str(value)


def float_text(value: float) -> str:
    """A float the way TorchScript prints it: 17 significant digits, ``1.`` for one, ``inf`` and ``nan`` bare."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = f"{value:.17g}"
    return text if any(c in text for c in ".en") else text + "."


_TOKEN = re.compile(
    r'\s*(->|\.\.\.|::|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
    r"|-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|[A-Za-z_][A-Za-z0-9_]*|[()\[\]?,*=!|.<>-])"
)
# Types written differently in a schema than what they mean.
_SPELLINGS: dict[str, T.Type] = {
    "Tensor": T.TENSOR,
    "SymInt": T.INT,
    "SymBool": T.BOOL,
    "ScalarType": T.INT,
    "Layout": T.INT,
    "MemoryFormat": T.INT,
    "Dimname": T.STR,
    "number": T.NUMBER,
    "list": T.ANY_LIST,
    "tuple": T.ANY_TUPLE,
}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        pos = 0
        while pos < len(text.rstrip()):
            m = _TOKEN.match(text, pos)
            if m is None:
                raise SchemaError(f"schema {text!r}: cannot read {text[pos:pos + 12]!r} at column {pos}")
            self.tokens.append(m.group(1))
            pos = m.end()
        self.i = 0

    def fail(self, wanted: str) -> SchemaError:
        found = self.tokens[self.i] if self.i < len(self.tokens) else "the end"
        return SchemaError(f"schema {self.text!r}: expected {wanted}, found {found!r}")

    def peek(self, k: int = 0) -> str:
        return self.tokens[self.i + k] if self.i + k < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        if self.peek() == token:
            self.i += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(repr(token))

    def ident(self) -> str:
        token = self.peek()
        if not re.match(r"[A-Za-z_]", token):
            raise self.fail("a name")
        self.i += 1
        return token

    def schema(self) -> Schema:
        name = self.ident()
        while self.take("::"):
            name += "::" + self.ident()
        overload = self.ident() if self.take(".") else ""
        self.expect("(")
        arguments, is_vararg = self.arguments(")")
        self.expect("->")
        is_varret = False
        returns: tuple[Argument, ...]
        if self.peek() == "(":
            self.i += 1
            returns, is_varret = self.arguments(")")
        elif self.take("..."):
            returns, is_varret = (), True
        else:
            returns = (self.argument(False, is_return=True),)
        if self.i != len(self.tokens):
            raise self.fail("the end")
        return Schema(name, overload, arguments, returns, is_vararg, is_varret)

    def arguments(self, close: str) -> tuple[tuple[Argument, ...], bool]:
        out: list[Argument] = []
        kwarg_only = vararg = False
        while not self.take(close):
            if self.take("*"):
                kwarg_only = True
            elif self.take("..."):
                vararg = True
            else:
                out.append(self.argument(kwarg_only))
            if not self.take(","):
                self.expect(close)
                break
        return tuple(out), vararg

    def alias(self) -> AliasInfo | None:
        # "(" opens an alias mark only right after a type.
        if self.peek() != "(":
            return None
        self.i += 1
        before = {"*"} if self.take("*") else {self.ident()}
        while self.take("|"):
            before.add(self.ident())
        is_write = self.take("!")
        after: set[str] = set()
        if self.take("->"):
            after.add("*" if self.take("*") else self.ident())
            while self.take("|"):
                after.add("*" if self.take("*") else self.ident())
        self.expect(")")
        return AliasInfo(frozenset(before), is_write, frozenset(after))

    def type(self) -> tuple[T.Type, str, int | None, AliasInfo | None, AliasInfo | None]:
        """The type, its text, its broadcasting length, its alias mark and its elements'."""
        alias: AliasInfo | None = None
        element_alias: AliasInfo | None = None
        length: int | None = None
        base: T.Type
        if self.take("("):
            parts: list[T.Type] = []
            texts: list[str] = []
            while not self.take(")"):
                t, text, *_ = self.type()
                parts.append(t)
                texts.append(text)
                # Names of tuple elements carry no meaning.
                if re.match(r"[A-Za-z_]", self.peek()):
                    self.i += 1
                if not self.take(","):
                    self.expect(")")
                    break
            base, text = T.TupleType(tuple(parts)), "(" + ", ".join(texts) + ")"
        else:
            word = self.ident()
            while self.peek() == "." and re.match(r"[A-Za-z_]", self.peek(1)):
                self.i += 1
                word += "." + self.ident()
            if word in ("Dict", "Future", "RRef", "Await") and self.peek() == "(":
                self.i += 1
                key, key_text, *_ = self.type()
                if word == "Dict":
                    self.expect(",")
                    value, value_text, *_ = self.type()
                    base, text = T.DictType(key, value), f"Dict({key_text}, {value_text})"
                else:
                    base, text = T.BoxType(word, key), f"{word}({key_text})"
                self.expect(")")
            elif word == "Union" and self.take("["):
                members: list[T.Type] = []
                while not self.take("]"):
                    members.append(self.type()[0])
                    self.take(",")
                base = T.union(members)
                text = str(base)
            elif word == "Enum" and self.take("<"):
                base, text = T.ANY_ENUM, "AnyEnumType"
                self.ident()
                self.expect(">")
            else:
                base, text = self.simple(word), word
        alias = self.alias()
        while self.peek() in ("[", "?"):
            if self.take("?"):
                base, text = T.optional(base), text + "?"
                if alias is None:
                    alias = self.alias()
                continue
            self.i += 1
            if self.peek() != "]":
                length = int(self.tokens[self.i])
                self.i += 1
            self.expect("]")
            base, text = T.ListType(base), f"{text}[{length or ''}]"
            element_alias, alias = alias, self.alias()
        return base, text, length, alias, element_alias

    def simple(self, word: str) -> T.Type:
        if word in _SPELLINGS:
            return _SPELLINGS[word]
        if word in T.SIMPLE_TYPES:
            return T.SIMPLE_TYPES[word]
        if re.fullmatch(r"t\d?|t[A-Z]\w*", word):
            return T.VarType(word)
        if word.startswith("__torch__."):
            return T.custom_class(word)
        raise SchemaError(f"schema {self.text!r}: unknown type {word!r}")

    def argument(self, kwarg_only: bool, is_return: bool = False) -> Argument:
        t, text, length, alias, element_alias = self.type()
        name = ""
        if re.match(r"[A-Za-z_]", self.peek()) or (self.peek() and not is_return and re.match(r"\w", self.peek())):
            name = self.ident()
        default: Any = None
        has_default = False
        if self.take("="):
            default, has_default = self.default(t, length), True
        return Argument(name, t, text, default, has_default, kwarg_only, length, alias, element_alias)

    def default(self, t: T.Type, length: int | None) -> Any:
        value = self.literal()
        plain = t.element if isinstance(t, T.OptionalType) else t
        if isinstance(plain, T.ListType) and length is not None and not isinstance(value, list) and value is not None:
            value = [value] * length
        if plain == T.FLOAT and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return value

    def literal(self) -> Any:
        token = self.peek()
        self.i += 1
        if token == "[":
            items = []
            while not self.take("]"):
                items.append(self.literal())
                self.take(",")
            return items
        if token == "-":
            return -self.literal()
        if token[:1] in "\"'":
            try:
                return ast.literal_eval(token)
            except (SyntaxError, ValueError):
                self.i -= 1
                raise self.fail("a string") from None
        words: dict[str, Any] = {
            "None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan"),
            "Mean": 1, "Sum": 2, "contiguous_format": 0, "preserve_format": 1, "long": 4, "strided": 0,
        }  # fmt: skip
        if token in words:
            return words[token]
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        try:
            return float(token)
        except ValueError:
            self.i -= 1
            raise self.fail("a default value") from None


@cache
def parse_schema(text: str) -> Schema:
    """The schema a text describes; equal texts give one object.

    Raises SchemaError: the text is no schema; the message says which word was not understood.
    Source: the grammar of PyTorch's native_functions.yaml.
    """
    return _Parser(text).schema()


def operator_name(text: str) -> tuple[str, str]:
    """Name and overload of a schema's text, without parsing the rest."""
    full = text[: text.index("(")].strip()
    name, _, overload = full.partition(".")
    return name, overload
