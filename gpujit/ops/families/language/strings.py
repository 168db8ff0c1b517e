"""Strings: every operator on them, and what makes text of other values.

TorchScript's strings are UTF-8 bytes: lengths, indices and letters are those of bytes, and only ASCII letters have
case. ASCII strings, the usual ones, are worked on as they are; others go through one character for each byte.
Source: PyTorch's registrations of string operators; every quirk kept here was seen with torch 2.13.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ops.numbers import INT_MAX
from gpujit.ops.registry import prim
from gpujit.ops.text import as_bytes, as_text, value_text
from gpujit.support.errors import OpError

Body = Callable[..., Any]


# ------------------------------------------------------------------------------------------------- bytes and letters


def _back(value: Any) -> Any:
    """A result made of bytes as strings."""
    if type(value) is str:
        return value if value.isascii() else as_text(value)
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_back, value))
    return value


def bytewise(text: str) -> Callable[[Body], Body]:
    """Declare an operator whose body sees one character for each byte of its string arguments."""

    def declare(body: Body) -> Body:
        def call(*args: Any) -> Any:
            for a in args:
                if type(a) is str and not a.isascii():
                    return _back(body(*[as_bytes(a) if type(a) is str else a for a in args]))
            return body(*args)

        prim(text, may_fail=True)(call)
        return body

    return declare


def _letters(name: str, result: str, ascii_only: Callable[[str], Any], of_bytes: Callable[[bytes], Any]) -> None:
    """Declare an operator on letters: one way for ASCII strings, one for the bytes of others."""

    def call(text: str) -> Any:
        if text.isascii():
            return ascii_only(text)
        y = of_bytes(text.encode("utf-8", "surrogateescape"))
        return y.decode("utf-8", "surrogateescape") if type(y) is bytes else y

    prim(f"aten::{name}(str self) -> {result}")(call)


for _name in ("lower", "upper", "swapcase", "capitalize", "title"):
    _letters(_name, "str", getattr(str, _name), getattr(bytes, _name))
for _name in ("isdigit", "isalnum", "isalpha", "isupper", "islower", "istitle"):
    _letters(_name, "bool", getattr(str, _name), getattr(bytes, _name))
_letters("isdecimal", "bool", str.isdigit, bytes.isdigit)
_letters("isnumeric", "bool", str.isdigit, bytes.isdigit)
# Python counts the separators 0x1c to 0x1f as space in strings, not in bytes.
_letters("isspace", "bool", lambda s: s.encode().isspace(), bytes.isspace)
_letters("isprintable", "bool", str.isprintable, lambda b: False)
# The rule of Python 2 without the underscore, as PyTorch has it.
_letters("isidentifier", "bool", lambda s: s.isalnum() and not s[0].isdigit(), lambda b: False)


# ------------------------------------------------------------------------------------------------------ basic parts


@prim("aten::add.str(str a, str b) -> str")
def add_str(a: str, b: str) -> str:
    """Both strings in a row."""
    return _whole(a + b)


def _whole(text: str) -> str:
    """The string with bytes that stand in a row joined to characters."""
    return text if text.isascii() else as_text(as_bytes(text))


@prim("aten::len.str(str s) -> int")
def len_str(text: str) -> int:
    """The number of bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _character(data: str, index: int) -> str:
    try:
        return data[index]
    except IndexError:
        raise OpError(
            f"aten::__getitem__: string index out of range: {index} in a string of {len(data)} bytes"
        ) from None


bytewise("aten::__getitem__.str(str s, int index) -> str")(_character)
bytewise("prim::StringIndex(str string, int index) -> str")(_character)
bytewise("aten::list(str t) -> str[]")(list)


@bytewise("aten::slice.str(str string, int? start=None, int? end=None, int step=1) -> str")
def slice_str(data: str, start: int | None, end: int | None, step: int) -> str:
    """The bytes from ``start`` to ``end``; an end of 2**63 - 1 means none."""
    if step == 0:
        raise OpError("aten::slice: List slice should have non-zero step; use a positive or negative one")
    return data[None if start == INT_MAX else start : None if end == INT_MAX else end : step]


@prim("aten::join(str self, str[] values) -> str")
def join(separator: str, values: list[str]) -> str:
    """All strings with the separator between them."""
    return _whole(separator.join(values))


# ------------------------------------------------------------------------------------------------------- searching


def _bounds(n: int, start: int, end: int) -> tuple[int, int]:
    """Start and end of a search in ``n`` bytes; an end of -1 is the end of the string."""
    return max(0, n + start) if start < 0 else start, max(0, n + end + 1) if end < 0 else end


def _piece(op: str, data: str, start: int, end: int) -> str:
    if start > len(data):
        raise OpError(f"aten::{op}: start {start} lies beyond the string's {len(data)} bytes")
    return data[start:end] if end >= start else data[start:]


def _find(op: str, data: str, part: str, start: int, end: int, reverse: bool) -> int:
    start, end = _bounds(len(data), start, end)
    piece = _piece(op, data, start, end) if end > start else ""
    found = piece.rfind(part) if reverse else piece.find(part)
    return found if found < 0 else found + start


def _must_find(op: str, data: str, part: str, start: int, end: int, reverse: bool) -> int:
    found = _find(op, data, part, start, end, reverse)
    if found < 0:
        raise OpError(f"aten::{op}: ValueError: substring not found; {part[:40]!r} does not occur")
    return found


def _searches(text: str, op: str, search: Callable[..., int], reverse: bool) -> None:
    def body(data: str, part: str, start: int, end: int) -> int:
        return search(op, data, part, start, end, reverse)

    bytewise(f"aten::{text}(str self, str substr, int start=0, int end=-1) -> int")(body)


_searches("find", "find", _find, False)
_searches("rfind", "rfind", _find, True)
_searches("index.str", "index", _must_find, False)
_searches("rindex", "rindex", _must_find, True)


@bytewise("aten::count(str self, str substr, int start=0, int end=-1) -> int")
def count(data: str, part: str, start: int, end: int) -> int:
    """How often ``part`` begins between ``start`` and ``end``, without overlaps."""
    if start > len(data):
        return 0
    start, end = _bounds(len(data), start, end)
    # The last one may reach beyond the end.
    return data.count(part, start, end + max(len(part) - 1, 0)) if end else 0


@bytewise("aten::startswith(str self, str substr, int start=0, int end=-1) -> bool")
def startswith(data: str, part: str, start: int, end: int) -> bool:
    """Whether the string from ``start`` to ``end`` begins with ``part``."""
    return _piece("startswith", data, *_bounds(len(data), start, end)).startswith(part)


@bytewise("aten::endswith(str self, str substr, int start=0, int end=-1) -> bool")
def endswith(data: str, part: str, start: int, end: int) -> bool:
    """Whether the string from ``start`` to ``end`` ends with ``part``."""
    return _piece("endswith", data, *_bounds(len(data), start, end)).endswith(part)


# ------------------------------------------------------------------------------------------------ cutting and filling

for _name in ("strip", "lstrip", "rstrip"):
    bytewise(rf'aten::{_name}(str self, str chars=" \n\t\f\v") -> str')(getattr(str, _name))

# Bytes that end a word or a line: PyTorch lists U+0085, U+2028 and U+2029 by their bytes.
_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\xe2\x80\xa8\xa9"
_WORDS = re.compile(f"[^ \t{_ENDS}]+")
_LINES = re.compile(f"[{_ENDS}]")
_LINES_AND_ENDS = re.compile(f"([{_ENDS}])")


def _check_separator(op: str, separator: str) -> None:
    if not separator:
        raise OpError(f"aten::{op}: ValueError: empty separator; give at least one character")


@bytewise("aten::split.str(str self, str? separator=None, int max=-1) -> str[]")
def split(data: str, separator: str | None, limit: int) -> list[str]:
    """The parts between separators, at most ``limit`` cuts; without a separator the words, however many."""
    if separator is None:
        return _WORDS.findall(data)
    _check_separator("split", separator)
    return data.split(separator, limit)


@bytewise('aten::rsplit(str self, str separator=" ", int max=-1) -> str[]')
def rsplit(data: str, separator: str, limit: int) -> list[str]:
    """The parts between separators, cut from the right."""
    _check_separator("rsplit", separator)
    return data.rsplit(separator, limit)


@bytewise("aten::splitlines(str self, bool keepends=False) -> str[]")
def splitlines(data: str, keepends: bool) -> list[str]:
    """The lines; each byte that ends one counts, and is a part of its own when kept."""
    parts = (_LINES_AND_ENDS if keepends else _LINES).split(data)
    if not parts[-1]:
        parts.pop()
    return parts


@bytewise("aten::partition(str self, str separator) -> (str, str, str)")
def partition(data: str, separator: str) -> tuple[str, str, str]:
    """What lies before the first separator, the separator, and the rest."""
    return data.partition(separator) if separator else ("", "", data)


@bytewise("aten::rpartition(str self, str separator) -> (str, str, str)")
def rpartition(data: str, separator: str) -> tuple[str, str, str]:
    """What lies before the last separator, the separator, and the rest."""
    return data.rpartition(separator) if separator else (data, "", "")


@bytewise("aten::replace(str self, str old, str new, int max=-1) -> str")
def replace(data: str, old: str, new: str, limit: int) -> str:
    """The string with ``old`` replaced, at most ``limit`` times when that is not negative."""
    if old:
        return data.replace(old, new, limit)
    if limit < 0:
        raise OpError("aten::replace: an empty string occurs without end; give the text to replace or a limit")
    return new * limit + data


def _check_fill(op: str, fill: str) -> None:
    if len(fill) != 1:
        raise OpError(
            f"aten::{op}: TypeError: The fill character must be exactly one character long; found {len(fill)} bytes"
        )


def _fills(name: str) -> None:
    method = getattr(str, name)

    def body(data: str, width: int, fill: str) -> str:
        _check_fill(name, fill)
        return method(data, width, fill)  # type: ignore[no-any-return]

    bytewise(f'aten::{name}(str self, int width, str fillchar=" ") -> str')(body)


for _name in ("center", "ljust", "rjust"):
    _fills(_name)


@bytewise("aten::zfill(str self, int width) -> str")
def zfill(data: str, width: int) -> str:
    """The string with zeros before it, even before a sign."""
    return data.rjust(width, "0")


@bytewise("aten::expandtabs(str self, int tabsize=8) -> str")
def expandtabs(data: str, tabsize: int) -> str:
    """The string with tabs as blanks; columns count from its start, not from the start of a line."""
    if tabsize <= 0:
        return data.replace("\t", "")
    first, *rest = data.split("\t")
    out, column = [first], len(first)
    for part in rest:
        gap = tabsize - column % tabsize
        out.append(" " * gap + part)
        column += gap + len(part)
    return "".join(out)


# ------------------------------------------------------------------------------------------------------- formatting


@prim("aten::str(t elem) -> str")
def str_(value: Any) -> str:
    """Any value as text."""
    return value_text(value)


@prim("aten::format(str self, ...) -> str")
def format_(pattern: str, *args: Any) -> str:
    """The pattern with each ``{}`` replaced by an argument; other braces stay. Raises OpError for too few arguments."""
    parts = pattern.split("{}")
    holes = len(parts) - 1
    if holes > len(args):
        raise OpError(f"aten::format: Too few arguments for format string: {pattern!r} has {holes}, found {len(args)}")
    out = [parts[0]]
    for value, part in zip(args, parts[1:]):
        out.append(value_text(value))
        out.append(part)
    return _whole("".join(out))


def _number(key: str, value: Any) -> float:
    if type(value) is not int and type(value) is not float:
        raise OpError(f"aten::percentFormat: %{key} requires a number for formatting, but got {type(value).__name__}")
    return value


def _percent(key: str, value: Any) -> str:
    if key == "s":
        return value_text(value)
    if key in "di":
        number = _number(key, value)
        if type(number) is int:
            return str(number)
        return str(int(number) if -(2**31) <= number < 2**31 else -(2**31))
    if key in "eEfF":
        with np.errstate(over="ignore"):
            number = float(np.float32(_number(key, value)))
        return f"{number:.6{key}}" if math.isfinite(number) or key == "E" else f"{number}"
    if key == "c":
        if type(value) is int:
            return chr(value & 255)
        if type(value) is str and len_str(value) == 1:
            return value
        raise OpError(f"aten::percentFormat: %c requires an int or char for formatting, but got {type(value).__name__}")
    raise OpError(f"aten::percentFormat: The specifier %{key} is not supported in TorchScript format strings")


@prim("aten::percentFormat(str self, ...) -> str")
def percent_format(pattern: str, *args: Any) -> str:
    """``pattern % values`` with the specifiers s d i f F e E c, without width or precision.

    Raises OpError for other specifiers and for too many or too few values.
    """
    values = args[0] if args and isinstance(args[0], tuple) else args[:1]
    out, used, begin = [], 0, 0
    while (at := pattern.find("%", begin)) >= 0:
        if at + 1 == len(pattern):
            raise OpError("aten::percentFormat: Incomplete format specifier; write %% for a percent sign")
        out.append(pattern[begin:at])
        key, begin = pattern[at + 1], at + 2
        if key == "%":
            out.append("%")
            continue
        if used == len(values):
            raise OpError(f"aten::percentFormat: Too few arguments for format string; found {len(values)}")
        text = _percent(key, values[used])
        # A byte that is no character of its own may become part of one.
        out.append(as_text(text) if key == "c" and type(values[used]) is int else text)
        used += 1
    if used < len(values):
        raise OpError(f"aten::percentFormat: Too many arguments for format string; {used} of {len(values)} are used")
    return _whole("".join([*out, pattern[begin:]]))


# --------------------------------------------------------------------------------------------------------- messages


@prim("prim::Print(...) -> ()", effects=True)
def print_(*values: Any) -> None:
    """Nothing; writes the values as text, blanks between them."""
    _write(" ".join(map(value_text, values)))


@prim("aten::_print(str s) -> ()", effects=True)
def print_str(text: str) -> None:
    """Nothing; writes the string."""
    _write(text)


def _write(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n")


@prim("aten::warn(str message, int stacklevel=2) -> ()", effects=True)
def warn(message: str, stacklevel: int) -> None:
    """Nothing; warns the user."""
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
