"""Debug tables to be written: from offsets in printed code to the author's files, texts and lines stored once."""

from __future__ import annotations

from gpujit.ir.source import Source, SourceRange
from gpujit.serialization.pickler import integer_op, memo_op, text_op

FORMAT = "FORMAT_WITH_STRING_TABLE"


def original_range(place: SourceRange | None) -> SourceRange | None:
    """The author's range for a node's range, or None when it is not known."""
    if place is None:
        return None
    if place.source.original is not None:
        return place.original()
    # Without a table to look in, the source is the author's own.
    return place


class DebugTableWriter:
    """The table of one source file."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, tuple[Source, int, int]]] = []
        self._texts: dict[str, int] = {"": 0}

    def add(self, offset: int, place: SourceRange) -> None:
        """The code from byte ``offset`` on, up to the next row's, comes from ``place``. Offsets rise."""
        source = place.source
        start = source.offset(place.line, place.column)
        end = source.offset(place.end_line, place.end_column)
        row = (source, start, end)
        if not self._rows or self._rows[-1][1] != row:
            self._rows.append((offset, row))

    def dumps(self) -> bytes:
        """The table's pickle; empty when there are no rows, and so nothing to write."""
        if not self._rows:
            return b""
        # Each source is written at its first row, and remembered there under a number of its own.
        numbers: dict[int, int] = {}
        rows: list[bytes] = []
        for offset, (source, start, end) in self._rows:
            number = numbers.get(id(source))
            if number is None:
                # Entry 0 is the constructor of lists, which the first source brings.
                number = numbers[id(source)] = len(numbers) + 1
                place = self._source(source, first=number == 1) + memo_op(b"q", b"r", number)
            else:
                place = memo_op(b"h", b"j", number)
            rows.append(
                integer_op(offset) + place + integer_op(start) + integer_op(end) + b"\x87" + integer_op(0) + b"\x87"
            )
        texts = b"".join(map(text_op, self._texts))
        return b"".join((b"\x80\x02", text_op(FORMAT), b"(", texts, b"t(", *rows, b"t\x87."))

    def _source(self, source: Source, first: bool) -> bytes:
        lines = [line + "\n" for line in source.text.split("\n")]
        lines[-1] = lines[-1][:-1]
        places = b"".join(integer_op(self._text(line)) for line in lines)
        constructor = b"ctorch.jit._pickle\nbuild_intlist\n" + memo_op(b"q", b"r", 0) if first else b"h\x00"
        name = integer_op(self._text(source.name))
        return constructor + b"](" + places + b"e\x85R" + name + integer_op(source.first_line) + b"\x87"

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))
