"""Where in the user's code the tracer is: the innermost frame outside of gpujit and NumPy, as a source range."""

from __future__ import annotations

import ast
import linecache
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from gpujit.ir.source import Source, SourceRange

_OWN = str(Path(__file__).parents[2]) + "/"
_LAYERS = _OWN + "nn/"
_NUMPY = str(Path(np.__file__).parent) + "/"
_SOURCES: dict[str, Source] = {}
_HIDDEN: dict[str, bool] = {}


def is_library(file: str) -> bool:
    """Whether a file belongs to gpujit (its layers apart, which are traced like a user's) or to NumPy."""
    found = _HIDDEN.get(file)
    if found is None:
        own = file.startswith(_OWN) and not file.startswith(_LAYERS)
        found = _HIDDEN[file] = own or file.startswith((_NUMPY, "<__array_function__"))
    return found


def is_guard(place: SourceRange | None) -> bool:
    """Whether a place is the condition of a check in gpujit's own layers, which raises or does nothing."""
    return place is not None and place.source.name.startswith(_LAYERS) and place.line in _guards(place.source)


@cache
def _guards(source: Source) -> frozenset[int]:
    """The lines of conditions that guard a raise, and of what is raised."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(found)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


class Places:
    """Source ranges of frames; those of one instruction are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[CodeType, int], SourceRange | None] = {}

    def here(self) -> tuple[SourceRange | None, str]:
        """The range the user's code is at and the name of its function; None and '' outside of any."""
        frame = user_frame()
        if frame is None:
            return None, ""
        return self.of(frame), frame.f_code.co_name

    def of(self, frame: FrameType) -> SourceRange | None:
        """The range a frame is at; None when its file cannot be read."""
        key = (frame.f_code, frame.f_lasti)
        if key not in self._known:
            self._known[key] = _range(frame)
        return self._known[key]


def _range(frame: FrameType) -> SourceRange | None:
    file, line = frame.f_code.co_filename, frame.f_lineno
    lines = linecache.getlines(file, frame.f_globals)
    if not lines or line is None or line > len(lines):
        return None
    source = _SOURCES.get(file)
    text = "".join(lines)
    if source is None or source.text != text:
        source = _SOURCES[file] = Source(file, text)
    whole = lines[line - 1].rstrip("\n").encode()
    start, end_line, end = len(whole) - len(whole.lstrip()), line, len(whole)
    # Columns are known to Python from 3.11 on.
    positions: Any = getattr(frame.f_code, "co_positions", None)
    if positions is not None:
        found = next(islice(positions(), frame.f_lasti // 2, None), None)
        if found is not None and None not in found:
            line, end_line, start, end = found
    return SourceRange(source, line, start, end_line, end)


def segment(place: SourceRange | None) -> str:
    """The text of a range, its first line alone."""
    if place is None:
        return ""
    text = place.source.lines()[place.line - 1].encode()
    end = place.end_column if place.end_line == place.line else len(text)
    return text[place.column : end].decode(errors="replace")
