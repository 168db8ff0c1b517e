"""Text in pictures: names from files made harmless and short, how wide they are, and how they stand in XML and DOT."""

from __future__ import annotations

from html import escape
from unicodedata import east_asian_width

# Characters of a label; what is longer is shortened, and whole in the title that a pointer shows.
LABEL = 36
# The width of a character as a part of the font's size, in the monospaced fonts that pictures ask for.
ASPECT = 0.61
# Sizes of text: names, and all else.
FONT, SMALL = 12.0, 10.0


def visible(text: str) -> str:
    """The text on one line, with whatever does not print (control characters, line ends, marks that turn text around)
    written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def short(text: str, most: int = LABEL) -> str:
    """The text made visible, its middle left out where it is longer than ``most`` characters."""
    # Of a text of millions of characters only the ends are looked at.
    if len(text) > 4 * most:
        text = f"{text[: 2 * most]}{text[-2 * most :]}"
        is_cut = True
    else:
        is_cut = False
    text = visible(text)
    if len(text) <= most and not is_cut:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


def width(text: str, size: float) -> float:
    """How wide a text of this font size is."""
    if text.isascii():
        return len(text) * size * ASPECT
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text) * size * ASPECT


def xml(text: str) -> str:
    """The text for an element or attribute of XML and HTML, made visible."""
    return escape(visible(text))


def xml_lines(lines: list[str]) -> str:
    """Lines for an element of XML: only the ends of these lines break them."""
    return "\n".join(map(xml, lines))
