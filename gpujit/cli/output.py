"""What commands print: tables that fit a terminal, JSON, sizes and times, and names from files made harmless."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

import numpy as np

# Characters of a column of text below which it is hard to read.
_NARROWEST = 8


def safe(text: str) -> str:
    """The text with control characters escaped, so that a name from a file cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def time_text(seconds: float) -> str:
    """A time for people, to three digits: ``1.23 ms``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale or unit == "us":
            amount = seconds / scale
            return f"{amount:.{0 if amount >= 100 else 1 if amount >= 10 else 2}f} {unit}"
    raise AssertionError


def is_terminal() -> bool:
    """Whether standard output is a terminal that can show more than plain text."""
    try:
        return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        # It is closed.
        return False


def table(
    rows: Iterable[Sequence[object]],
    header: Sequence[str] = (),
    indent: str = "  ",
    right: Collection[int] = (),
    *,
    width: int | None = None,
) -> str:
    """Columns two blanks apart, on a terminal folded to its width and with a header that stands out.

    Args:
        rows: what is in the cells; control characters are escaped.
        right: numbers of the columns that are aligned to the right.
        width: fold to so many characters; by default to the terminal, and where there is none not at all.
    """
    cells = [[_cell(c) for c in row] for row in rows]
    if not cells and not header:
        return ""
    if width is None and is_terminal():
        width = shutil.get_terminal_size().columns
    if width is not None:
        return _folded(cells, header, indent, right, width)
    everything = [[_cell(c) for c in header], *cells] if header else cells
    count = max(map(len, everything))
    widths = [max(len(row[i]) for row in everything if i < len(row)) for i in range(count)]
    return "\n".join(
        indent
        + "  ".join(
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in everything
    )


def _cell(value: object) -> str:
    return safe(str(value)).replace("\n", "\\n")


def _folded(cells: list[list[str]], header: Sequence[str], indent: str, right: Collection[int], width: int) -> str:
    # It takes longer to import than most tables to make.
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    count = max(map(len, [header, *cells]))
    natural = [max((len(row[i]) for row in [header, *cells] if i < len(row)), default=0) for i in range(count)]
    least = len(indent) + sum(n if i in right else min(n, _NARROWEST) for i, n in enumerate(natural)) + 2 * (count - 1)
    if header and least > width:
        return _records(cells, header, indent, width)
    made = Table(box=None, show_header=bool(header), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i in range(count):
        name = Text(_cell(header[i])) if i < len(header) else ""
        # Numbers stay whole.
        is_number = i in right
        made.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in cells:
        made.add_row(*map(Text, row))
    return _rendered(Padding(made, (0, 0, 0, len(indent)), expand=False), width)


def _records(cells: list[list[str]], header: Sequence[str], indent: str, width: int) -> str:
    """Each row as lines of names and values, for where the columns have no room side by side."""
    names = [_cell(h) for h in header]
    longest = max(map(len, names))
    lines = []
    for row in cells:
        for name, value in zip(names, row, strict=False):
            if value:
                lines.append((f"{name.ljust(longest)}  " if name else "") + value)
        lines.append("")
    room = max(width - len(indent), 1)
    folded = [line[k : k + room] for line in lines[:-1] for k in range(0, max(len(line), 1), room)]
    return "\n".join((indent + line).rstrip() for line in folded)


def _rendered(thing: Any, width: int) -> str:
    from rich.console import Console

    stream = StringIO()
    is_coloured = is_terminal()
    console = Console(
        file=stream, width=max(width, 20), force_terminal=is_coloured, color_system="standard" if is_coloured else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    console.print(thing, end="")
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip("\n").split("\n"))


def styled(text: str, style: str) -> str:
    """The text in a style of rich (``bold red``), escaped; plain where there is no terminal."""
    if not is_terminal():
        return safe(text)
    from rich.text import Text

    # As wide as the text: folding it is the terminal's.
    return _rendered(Text(safe(text), style=style, no_wrap=True), len(text) * 2 + 20)


def print_json(value: Any) -> None:
    """Print a value as JSON in one line; numbers that JSON lacks as text: ``"nan"``, ``"inf"``."""
    print(json.dumps(for_json(value), allow_nan=False))


def for_json(value: Any) -> Any:
    """A value that JSON can hold: numbers of NumPy as Python's, those that are not finite as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): for_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(v) for v in value]
    return value if isinstance(value, (int, str, type(None))) else str(value)
