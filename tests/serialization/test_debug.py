"""Debug tables: the author's lines beside the serialized ones, and tables that are absent, old or damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
from tests.programs import _Pickler, archive, forward, module
from tests.serialization.archives import pickled

SOURCE = module(forward("x: Tensor", "y = torch.neg(x)\nreturn torch.mm(y, y)"))
AUTHOR = "def forward(self, x):\n    y = -x  # ä\n    return y @ y\n"
AT = SOURCE.index("torch.mm"), SOURCE.index("torch.neg")
MATMUL = AUTHOR.encode().index(b"y @ y")


def table(value: Any) -> bytes:
    return pickled(_Pickler("little").value(value))


def row(offset: int, text: Any, name: Any, line: Any, start: Any, end: Any) -> tuple[Any, ...]:
    return (offset, ((text, name, line), start, end), 0)


NEW = (
    "FORMAT_WITH_STRING_TABLE",
    (AUTHOR, "train.py", "other.py"),
    (row(0, [0], 2, 1, 0, 1), row(AT[0], [0], 1, 40, MATMUL, MATMUL + 5)),
)
OLD = (row(0, AUTHOR, "other.py", 1, 0, 1), row(AT[0], AUTHOR, "train.py", 40, MATMUL, MATMUL + 5))


def failure(tables: dict[str, bytes]) -> str:
    m = gpujit.load(archive(SOURCE, {}, debug=tables))
    with pytest.raises(gpujit.OpError) as caught:
        m(np.ones(3))
    text = str(caught.value)
    assert (
        'File "code/__torch__.py", line 6, in forward' in text and "Traceback of TorchScript, serialized code" in text
    )
    return text


@pytest.mark.parametrize(
    "value", [NEW, OLD, ("FORMAT_WITH_STRING_TABLE", list(NEW[1]), list(NEW[2]))], ids=["new", "old", "lists"]
)
def test_both_tracebacks_are_shown(value: Any) -> None:
    text = failure({"__torch__.py": table(value)})
    original = text[text.index("Traceback of TorchScript, original code (most recent call last):") :]
    assert '  File "train.py", line 42, in forward\n' in original
    assert "        return y @ y\n               ~~~~~ <--- HERE" in original


def test_texts_in_pieces_are_joined() -> None:
    pieces = (
        "FORMAT_WITH_STRING_TABLE",
        (AUTHOR[:10], AUTHOR[10:], "train.py"),
        (row(AT[0], [0, 1], 2, 1, MATMUL, MATMUL + 5),),
    )
    assert "return y @ y" in failure({"__torch__.py": table(pieces)})


def test_without_a_table_or_outside_of_it_only_serialized_lines_are_shown() -> None:
    far = ("FORMAT_WITH_STRING_TABLE", (AUTHOR, "train.py"), (row(10_000, [0], 1, 1, 0, 1),))
    for tables in ({}, {"other.py": table(NEW)}, {"__torch__.py": table(far)}):
        assert "original code" not in failure(tables)


DAMAGED = {
    "empty": b"",
    "no pickle": b"hello",
    "cut": table(NEW)[:-20],
    "a number": table(3),
    "none": table(None),
    "numbers": table((1, 2, 3)),
    "strings": table(("a", "b")),
    "rows without places": table((("x",), (AT[0],))),
    "system": b"\x80\x02cos\nsystem\n.",
    "string index": table(("FORMAT_WITH_STRING_TABLE", ("a",), (row(AT[0], [7], 9, 1, 0, 1),))),
    "dicts": table(({0: 1, 1: 2},)),
    "float places": table((row(AT[0], AUTHOR, "a.py", 1, 0.5, 1.5),)),
    "text places": table((row(AT[0], AUTHOR, "a.py", 1, "a", "b"),)),
    "no text": table((row(AT[0], "", "a.py", 1, 0, 1),)),
    "lone surrogate": table((row(AT[0], 3, "a.py", 1, 0, 1),)),
    "line inf": table((row(AT[0], AUTHOR, "a.py", float("inf"), 0, 1),)),
    "deep": b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_does_not_hide_the_error(name: str) -> None:
    assert "original code" not in failure({"__torch__.py": DAMAGED[name]})


@pytest.mark.parametrize(("start", "end"), [(-5, 1), (0, 10**9), (10**9, 10**10), (20, 3), (1 << 62, 0)])
def test_places_outside_the_text_are_shown_as_far_as_they_go(start: int, end: int) -> None:
    text = failure({"__torch__.py": table((row(AT[0], AUTHOR, "a.py", -3, start, end),))})
    assert 'File "a.py", line ' in text and len(text) < 5000


def test_tables_are_read_only_when_an_error_is_shown() -> None:
    m = gpujit.load(archive(module(forward("x: Tensor", "return x")), {}, debug={"__torch__.py": b"broken"}))
    assert m(np.ones(1)) == 1
