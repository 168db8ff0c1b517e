"""Where a piece of a program comes from: source texts, ranges in them, and call stacks of inlined code."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Lines shown before and after a highlighted one.
_CONTEXT_BEFORE = 3
_CONTEXT_AFTER = 1
# Characters shown of a line.
_WIDTH = 400


class Source:
    """One source text. ``name`` is shown in messages, such as ``code/__torch__.py``.

    ``original`` maps a range of serialized code to the author's file, when the archive holds debug tables; it is called
    only when an error is reported.
    """

    def __init__(
        self,
        name: str,
        text: str,
        original: Callable[[SourceRange], SourceRange | None] | None = None,
        first_line: int = 1,
    ) -> None:
        self.name = name
        self.text = text
        self.original = original
        self.first_line = first_line
        self._starts: list[int] | None = None
        self._lines: list[str] | None = None

    def lines(self) -> list[str]:
        """The text's lines without line ends."""
        if self._lines is None:
            self._lines = self.text.split("\n")
        return self._lines

    def offset(self, line: int, column: int) -> int:
        """Byte offset in UTF-8 of a 1-based line and 0-based byte column."""
        return self._line_starts()[line - 1] + column

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and 0-based column of a byte offset."""
        starts = self._line_starts()
        if not 0 <= offset < starts[-1]:
            return len(self.lines()), 0
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1]

    def _line_starts(self) -> list[int]:
        """Byte offsets of the lines, and one past the end of the last."""
        if self._starts is None:
            starts = [0]
            for text in self.lines():
                starts.append(starts[-1] + len(text.encode()) + 1)
            self._starts = starts
        return self._starts


@dataclass(slots=True, eq=False)
class SourceRange:
    """A stretch of a source; lines are 1-based, columns are 0-based byte columns as in Python's ``ast``."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def shown_line(self) -> int:
        """The line number to print: sources that are excerpts start later than 1."""
        return self.line + self.source.first_line - 1

    def __str__(self) -> str:
        return f"{self.source.name}:{self.shown_line}:{self.column}"

    def original(self) -> SourceRange | None:
        """The author's range this one was compiled from, when the archive tells."""
        return None if self.source.original is None else self.source.original(self)

    def highlight(self) -> str:
        """The line with a few around it, the range underlined, as torch.jit shows it."""
        lines = self.source.lines()
        if not 1 <= self.line <= len(lines):
            return ""
        shown = []
        last = min(self.end_line, self.line + 8, len(lines))
        for number in range(max(1, self.line - _CONTEXT_BEFORE), min(len(lines), last + _CONTEXT_AFTER) + 1):
            text = lines[number - 1]
            if not self.line <= number <= last:
                shown.append(f"    {text[:_WIDTH]}".rstrip())
                continue
            start = _characters(text, self.column) if number == self.line else len(text) - len(text.lstrip())
            end = _characters(text, self.end_column) if number == self.end_line else len(text)
            # Of a very long line, what lies around the range.
            cut = max(0, min(start - _WIDTH // 4, len(text) - _WIDTH))
            start, end = start - cut, min(end - cut, _WIDTH)
            shown.append(f"    {text[cut : cut + _WIDTH]}".rstrip())
            shown.append(" " * (4 + start) + "~" * max(end - start, 1) + (" <--- HERE" if number == self.line else ""))
        return "\n".join(shown)


def _characters(text: str, column: int) -> int:
    """How many characters stand before a byte column."""
    return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))


@dataclass(slots=True, eq=False)
class CallSite:
    """One level of a call stack kept by inlining.

    ``function`` was entered from ``range``; ``parent`` is its caller's level. ``module`` is the dotted path, from the
    graph's own object, of the object whose method it is; a function that is no method has its caller's.
    """

    function: str
    range: SourceRange | None
    parent: CallSite | None = None
    module: str = ""

    def frames(self) -> Iterator[CallSite]:
        """From the innermost call outwards."""
        site: CallSite | None = self
        while site is not None:
            yield site
            site = site.parent
