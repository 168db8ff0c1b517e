"""Text for terminals: tables, sizes, and names from files made harmless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def safe(text: str) -> str:
    """The text with control characters escaped, so that a name from a file cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def size_text(size: int) -> str:
    """A number of bytes for people: ``1.2 MB``."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "  ") -> str:
    """Columns aligned to the left, two blanks apart."""
    cells = [[safe(str(c)) for c in row] for row in ([header, *rows] if header else rows)]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells)))]
    return "\n".join(
        indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False)).rstrip() for row in cells
    )
