"""Places in sources."""

from __future__ import annotations

from gpujit.ir.source import CallSite, Source, SourceRange

TEXT = "def f(x):\n  é = x\n  return g(x)\n"


def test_offsets_count_bytes() -> None:
    source = Source("code/f.py", TEXT)
    assert source.offset(1, 0) == 0
    assert source.offset(2, 2) == 12
    # The line above holds a character of two bytes.
    assert source.offset(3, 2) == 21
    for line, column in ((1, 0), (1, 9), (2, 2), (3, 5)):
        assert source.position(source.offset(line, column)) == (line, column)
    assert source.position(10_000)[0] >= 3


def test_a_range_shows_its_line_underlined() -> None:
    place = SourceRange(Source("code/f.py", TEXT), 3, 9, 3, 13)
    assert str(place) == "code/f.py:3:9"
    assert place.highlight() == "\n".join(
        ["    def f(x):", "      é = x", "      return g(x)", " " * 13 + "~~~~ <--- HERE", ""]
    )


def test_excerpts_start_later_and_missing_lines_show_nothing() -> None:
    source = Source("model.py", TEXT, first_line=40)
    assert str(SourceRange(source, 3, 2, 3, 4)) == "model.py:42:2"
    assert SourceRange(source, 99, 0, 99, 1).highlight() == ""
    assert SourceRange(Source("x.py", ""), 7, 0, 7, 0).highlight() == ""


def test_original_asks_the_source() -> None:
    author = SourceRange(Source("model.py", "y = x"), 1, 0, 1, 5)
    inner = SourceRange(Source("code/f.py", TEXT, original=lambda r: author), 1, 0, 1, 3)
    assert inner.original() is author
    assert author.original() is None


def test_call_stack_goes_outwards() -> None:
    outer = CallSite("forward", None)
    inner = CallSite("helper", None, outer)
    assert [site.function for site in inner.frames()] == ["helper", "forward"]


def test_a_very_long_line_is_shown_around_the_range() -> None:
    text = "a" * 300_000 + " HIT " + "b" * 300_000
    shown = SourceRange(Source("f.py", text), 1, 300_001, 1, 300_004).highlight()
    line, marks = shown.split("\n")
    assert len(shown) < 1000
    assert line[marks.index("~") : marks.rindex("~") + 1] == "HIT"


def test_marks_stand_under_characters_where_columns_count_bytes() -> None:
    text = 'x = "éé→" + y'
    column = text.encode().index(b"y")
    line, marks = SourceRange(Source("f.py", text), 1, column, 1, column + 1).highlight().split("\n")
    assert line[marks.index("~")] == "y"
