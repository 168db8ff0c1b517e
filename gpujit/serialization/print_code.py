"""Text under construction, with the places in the author's source that its parts come from."""

from __future__ import annotations

from collections.abc import Iterable

from gpujit.ir.source import SourceRange

# An expression: text, with the range of the node that what follows comes from.
Pieces = list[str | SourceRange]


def width(pieces: Pieces) -> int:
    """Characters of an expression."""
    return sum(len(p) for p in pieces if isinstance(p, str))


def joined(parts: Iterable[Pieces], separator: str = ", ") -> Pieces:
    """Expressions in a row."""
    found: Pieces = []
    for part in parts:
        if found:
            found.append(separator)
        found += part
    return found


class Code:
    """Lines of source. ``rows`` holds byte offsets with the ranges of what starts there."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.rows: list[tuple[int, SourceRange]] = []
        self.size = 0

    def line(self, depth: int, *pieces: str | SourceRange) -> None:
        """One line, ``depth`` levels deep."""
        self._add("  " * depth)
        for piece in pieces:
            if isinstance(piece, str):
                self._add(piece)
            else:
                self.rows.append((self.size, piece))
        self._add("\n")

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text) if text.isascii() else len(text.encode())

    def extend(self, other: Code) -> None:
        """Append other code."""
        self.rows += [(self.size + at, place) for at, place in other.rows]
        self.parts += other.parts
        self.size += other.size

    @property
    def text(self) -> str:
        return "".join(self.parts)
