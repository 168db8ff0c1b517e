"""Profiles as tables for a terminal."""

from __future__ import annotations

import pytest

from gpujit.profiler.data import Times
from gpujit.profiler.text import profile_text
from tests.profiler.samples import HOSTILE, profile, step


def test_the_tables_have_what_a_call_consists_of() -> None:
    text = str(profile())
    for part in (
        "model.pt  forward(x float32[4, 8])",
        "load 10.0 ms; optimise 200 ms (12 passes)",
        "its plan by itself 100 µs (± 15%), without fusion 130 µs",
        "1.30 times (from 1.25 to 1.40)",
        "arena 256 B",
        "60.0 µs  60.0%",
        "group 0: relu+tanh",
        "[numpy] softmax",
        "encoder.0",
        "model.py:41",
        "4.00x",
    ):
        assert part in text, part


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_no_name_steers_the_terminal_and_lines_fit(width: int) -> None:
    hostile = profile(
        HOSTILE, steps=(step(0, HOSTILE, 1e-6, operators=(HOSTILE,)),), runner="interpreter", reason=HOSTILE
    )
    text = profile_text(hostile, width)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "[31m" in text and "\x1b" not in text and "\u202e" not in text
    table = text[text.index("time") :].splitlines()[:5]
    assert all(len(line) <= max(width, 40) for line in table)


def test_markup_is_text() -> None:
    assert "[red]x[/red]" in profile_text(profile("[red]x[/red]"))


def test_many_steps_are_cut_and_counted() -> None:
    many = profile(steps=tuple(step(k, f"op{k}", 1e-6 * (k + 1)) for k in range(40)))
    text = profile_text(many, 160, most=10)
    assert "op39" in text and "op30" in text and "op29" not in text and "30 more" in text


def test_a_profile_of_nothing_is_shown() -> None:
    nothing = Times(0.0, 0.0, 0.0, 0.0, 0)
    empty = profile(
        steps=(), groups=(), memory=None, speedup=None, steady=nothing, watched=nothing, inputs=(), phases=()
    )
    assert "a call takes 0 s" in profile_text(empty)
