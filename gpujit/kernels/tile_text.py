"""Text to tile program: ``parse_program(program.text) == program``."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import numpy as np

from gpujit.ir.dtypes import BOOL_, BY_NAME, kind_of
from gpujit.ir.scalar import ROW_OPS
from gpujit.kernels.index import DIM, PARAM, SIZE, Index, dim, div, index, mod, param, size, value
from gpujit.kernels.tile import (
    ArrayType,
    Bound,
    Call,
    Check,
    Compute,
    Const,
    Count,
    Effect,
    Inside,
    Instruction,
    Load,
    Position,
    Reduce,
    Store,
    TileError,
    TileProgram,
    verify,
)

_TOKEN = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*"|<=|->|%\d+|-?inf\b|nan\b|\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|\w+|[^\s\w])"""
)


class _Line:
    """The tokens of one line, read from the left."""

    def __init__(self, text: str, number: int) -> None:
        self.text, self.line = text, number
        self.tokens: list[str] = _TOKEN.findall(text)
        self.at = 0

    def fail(self, wanted: str) -> NoReturn:
        found = self.tokens[self.at] if self.at < len(self.tokens) else "the end of the line"
        raise TileError(f"tile, line {self.line}: {wanted} expected, found {found}\n  {self.text.strip()}")

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at == len(self.tokens):
            self.fail("more")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, token: str) -> bool:
        if self.next != token:
            return False
        self.at += 1
        return True

    def need(self, *tokens: str) -> None:
        for token in tokens:
            if not self.accept(token):
                self.fail(repr(token))

    def end(self) -> None:
        if self.at < len(self.tokens):
            self.fail("the end of the line")

    def numbered(self, *prefixes: str) -> tuple[str, int]:
        """``d0`` as ("d", 0)."""
        token = self.next
        if token[:1] not in prefixes or not token[1:].isdigit():
            self.fail(" or ".join(f"{p}0" for p in prefixes))
        self.at += 1
        return token[0], int(token[1:])

    def value(self) -> int:
        return self.numbered("%")[1]

    def string(self) -> str:
        token = self.take()
        if not token.startswith('"'):
            self.at -= 1
            self.fail("a string")
        return str(json.loads(token))

    def dtype(self) -> np.dtype:
        found = BY_NAME.get(self.next)
        if found is None or found.dtype is None:
            self.fail("a dtype")
        self.at += 1
        return found.dtype

    def number(self, dtype: np.dtype) -> bool | int | float:
        sign = "-" if self.accept("-") else ""
        token = sign + self.take()
        try:
            if kind_of(dtype) == 0:
                return {"True": True, "False": False}[token]
            return int(token) if kind_of(dtype) == 1 else float(token)
        except (KeyError, ValueError):
            self.at -= 1
            self.fail(f"a number of {dtype}")

    # Index expressions.

    def index(self) -> Index:
        negative = self.accept("-")
        total = -self._product() if negative else self._product()
        while self.next in ("+", "-"):
            total = total + self._product() if self.take() == "+" else total - self._product()
        return total

    def _product(self) -> Index:
        product = self._factor()
        while self.accept("*"):
            product = product * self._factor()
        return product

    def _factor(self) -> Index:
        if self.next.isdigit():
            return index(int(self.take()))
        if self.next in ("div", "mod"):
            make = div if self.take() == "div" else mod
            self.need("(")
            a = self.index()
            self.need(",")
            b = self.index()
            self.need(")")
            return make(a, b)
        kind, number = self.numbered(DIM, SIZE, PARAM, "%")
        return {DIM: dim, SIZE: size, PARAM: param, "%": value}[kind](number)

    def coords(self) -> tuple[Index, ...]:
        self.need("[")
        found: list[Index] = []
        while not self.accept("]"):
            if found:
                self.need(",")
            found.append(self.index())
        return tuple(found)


def parse_program(text: str) -> TileProgram:
    """The program whose text it is. Raises TileError with the line: text that is none, or does not fit together."""
    lines = [_Line(t, i + 1) for i, t in enumerate(text.splitlines()) if t.strip()]
    if not lines:
        raise TileError("tile: no text")
    head, rest = lines[0], lines[1:]
    head.need("tile")
    inputs = _arrays(head, "a")
    head.need("->")
    outputs = _arrays(head, "o")
    head.end()
    outer = _names(rest, "for", DIM, 0)
    rows = _names(rest, "row", DIM, outer)
    params = _names(rest, "params", PARAM, 0)
    body: list[Instruction] = []
    effects: list[Effect] = []
    for line in rest:
        if line.next.startswith("%"):
            if effects or line.value() != len(body):
                line.at = 0
                line.fail(f"%{len(body)} before all effects")
            line.need(":")
            dtype = line.dtype()
            line.need("=")
            body.append(_instruction(line, dtype, body))
        else:
            effects.append(_effect(line))
        line.end()
    return verify(TileProgram(inputs, outputs, outer + rows, rows, params, tuple(body), tuple(effects)))


def _arrays(line: _Line, prefix: str) -> tuple[ArrayType, ...]:
    line.need("(")
    found: list[ArrayType] = []
    while not line.accept(")"):
        if found:
            line.need(",")
        line.need(f"{prefix}{len(found)}", ":")
        dtype = line.dtype()
        line.need("[")
        found.append(ArrayType(dtype, int(line.number(np.dtype("i8")))))
        line.need("]")
    return tuple(found)


def _names(lines: list[_Line], word: str, kind: str, first: int) -> int:
    """How many names a header line lists, which is taken off; 0 when it is not there."""
    if not lines or lines[0].next != word:
        return 0
    line = lines.pop(0)
    line.need(word)
    count = 0
    while not count or line.accept(","):
        line.need(f"{kind}{first + count}")
        if kind == DIM:
            line.need("<", f"n{first + count}")
        count += 1
    line.end()
    return count


def _values(line: _Line) -> tuple[int, ...]:
    found: list[int] = []
    while line.next:
        if found:
            line.need(",")
        found.append(line.value())
    return tuple(found)


def _instruction(line: _Line, dtype: np.dtype, body: list[Instruction]) -> Instruction:
    word = line.take()
    if word == "load":
        array = line.numbered("a")[1]
        coords = line.coords()
        if not line.accept("if"):
            return Load(array, coords, dtype)
        mask = line.value()
        line.need("else")
        return Load(array, coords, dtype, mask, Const(line.number(dtype), dtype))
    if word == "const":
        return Const(line.number(dtype), dtype)
    if word == "position":
        return Position(line.index())
    if word == "inside":
        bounds = [_bound(line)]
        while line.accept(","):
            bounds.append(_bound(line))
        return Inside(tuple(bounds), BOOL_)
    if word == "count":
        return Count(dtype)
    if word == "call":
        return Call(line.string(), _values(line), dtype)
    if word in ROW_OPS:
        return Reduce(word, line.value(), dtype)
    return Compute(word, _values(line), dtype)


def _bound(line: _Line) -> Bound:
    low = line.index()
    line.need("<=")
    middle = line.index()
    line.need("<")
    return Bound(low, middle, line.index())


def _effect(line: _Line) -> Effect:
    word: Any = line.take()
    if word == "store":
        array = line.numbered("o")[1]
        coords = line.coords()
        line.need(",")
        stored = line.value()
        return Store(array, coords, stored, line.value() if line.accept("if") else None)
    if word != "check":
        line.at -= 1
        line.fail("a value, store or check")
    checked = line.value()
    line.need(",")
    return Check(checked, line.string())
