"""Debug tables: from a byte offset in serialized code to the author's file and line; read when an error is shown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from gpujit.ir.source import Source, SourceRange
from gpujit.serialization.tensors import torch_globals
from gpujit.serialization.unpickle import Malformed, Unpickler
from gpujit.support.errors import GpujitError

_FORMAT = "FORMAT_WITH_STRING_TABLE"
_MAX_TABLE_BYTES = 64 << 20


class DebugTable:
    """One file's table. ``read`` gives the pickle's bytes, or None when the archive has none."""

    def __init__(self, read: Callable[[], bytes | None], where: str) -> None:
        self._read = read
        self._where = where
        self._rows: list[Any] | None = None
        self._offsets: list[int] = []
        self._strings: list[Any] = []
        # Ranges of one text share their source.
        self._sources: dict[Any, Source] = {}

    def _load(self) -> list[Any]:
        if self._rows is None:
            found: list[Any] = []
            try:
                data = self._read()
                if data is not None and len(data) <= _MAX_TABLE_BYTES:
                    table = Unpickler(data, globals=torch_globals(), persistent=_no_storage, where=self._where).load()
                    if isinstance(table, tuple) and len(table) == 3 and table[0] == _FORMAT:
                        self._strings, rows = list(table[1]), table[2]
                    else:
                        rows = table
                    found = sorted((r for r in rows if isinstance(r[0], int)), key=lambda r: r[0])
            except (GpujitError, TypeError, IndexError, KeyError):
                # A damaged table must not hide the error that is being shown.
                found = []
            self._offsets = [r[0] for r in found]
            self._rows = found
        return self._rows

    def original(self, place: SourceRange) -> SourceRange | None:
        """The author's range for a range of serialized code, when the table has one."""
        rows = self._load()
        at = bisect_right(self._offsets, place.source.offset(place.line, place.column)) - 1
        if at < 0:
            return None
        try:
            (text, name, first_line), start, end = rows[at][1][:3]
            if type(start) is not int or type(end) is not int:
                return None
            key = (tuple(text) if isinstance(text, list) else text, name, first_line)
            source = self._sources.get(key)
            if source is None:
                if isinstance(text, list):
                    text = "".join(self._strings[i] for i in text)
                    name = self._strings[name]
                if not isinstance(text, str) or not text:
                    return None
                source = self._sources[key] = Source(
                    name if isinstance(name, str) and name else "<unknown>", text, first_line=max(int(first_line), 1)
                )
            line, column = source.position(start)
            end_line, end_column = source.position(end)
            return SourceRange(source, line, column, end_line, end_column)
        except (TypeError, ValueError, IndexError, KeyError, OverflowError):
            return None


def _no_storage(pid: object) -> object:
    raise Malformed("a debug table holds no tensors")
