"""Numbers of bytes for people."""

from __future__ import annotations


def size_text(size: float) -> str:
    """A number of bytes for people: ``1.2 MB``."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
