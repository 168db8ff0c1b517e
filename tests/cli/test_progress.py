"""Progress of commands: nothing at first, a bar on a terminal, lines elsewhere, nothing when it is not wanted."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpujit.cli import progress
from gpujit.cli.progress import Display, shown
from gpujit.support.config import config
from gpujit.support.progress import Stage, listening
from tests.cli.shells import on_terminal

HOSTILE = "\x1b[31m[bold]red[/bold]\n\u202e"


def lines_of(total: int | None, note: str, **options: Any) -> list[str]:
    """What is written of one stage by a display that waits for nothing."""
    stream = io.StringIO()
    display = Display(stream, 0.0, 0.02)
    with listening(display), Stage("work", total, **options) as stage:
        stage.note = note
        stage.advance(3)
        end = time.monotonic() + 5
        while stream.getvalue().count("\n") < 2 and time.monotonic() < end:
            time.sleep(0.01)
    display.close()
    return stream.getvalue().splitlines()


def test_lines_where_there_is_no_terminal() -> None:
    first, *more = lines_of(6, "now")
    assert re.fullmatch(r"gpujit: work 3/6 \(now\), 0 s, about 0 s left", first) and more


def test_lines_of_work_of_unknown_length_and_of_bytes() -> None:
    assert lines_of(None, "")[0] == "gpujit: work 3, 0 s"
    assert lines_of(2_000_000, "", unit="bytes")[0].startswith("gpujit: work 3 B/2.00 MB, 0 s")


def test_names_are_harmless() -> None:
    (first, *_) = lines_of(None, HOSTILE)
    assert first == "gpujit: work 3 (\\x1b[31m[bold]red[/bold]\\n\\u202e), 0 s"


def test_short_work_shows_nothing() -> None:
    stream = io.StringIO()
    display = Display(stream, 10.0, 0.0)
    with listening(display), Stage("work"):
        time.sleep(0.25)
    display.close()
    assert stream.getvalue() == ""


def test_lines_are_seldom() -> None:
    stream = io.StringIO()
    display = Display(stream, 0.0, 100.0)
    with listening(display):
        for _ in range(3):
            with Stage("work"):
                time.sleep(0.15)
    display.close()
    assert stream.getvalue().count("\n") == 1


def test_a_stream_that_fails_ends_the_display_and_not_the_work() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    display = Display(Full(), 0.0, 0.0)
    with listening(display), Stage("work") as stage:
        time.sleep(0.2)
        stage.advance()
    display.close()
    assert stage.done == 1


@pytest.mark.parametrize("how", ["quiet", "switch", "no stream"])
def test_nothing_is_shown_when_it_is_not_wanted(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", None if how == "no stream" else stream)
    with config(progress=how != "switch"), shown(quiet=how == "quiet"), Stage("work"):
        time.sleep(0.15)
    assert stream.getvalue() == ""


PROGRAM = """
import sys, time
from gpujit.cli import progress
from gpujit.support.progress import Stage
progress.DELAY = 0.05
with progress.shown():
    with Stage("load \\x1b[31m[bold]", 100) as outer, Stage("compile kernels", 10) as inner:
        outer.advance(50)
        inner.note = "exp [red]\\n"
        for _ in range(5):
            time.sleep(0.1)
            inner.advance()
print("result")
"""


@pytest.mark.parametrize("columns", [100, 40])
def test_a_bar_on_a_terminal_that_goes_before_results_come(columns: int) -> None:
    code, text = on_terminal([sys.executable, "-c", PROGRAM], columns)
    assert code == 0
    bar, _, after = text.rpartition("\x1b[2K")
    assert after.replace("\r\n", "\n") == "result\n"
    assert "compile kernels" in bar and re.search(r"[1-5]/10", bar) and "50/100" in bar
    assert ("━" in bar) == (columns == 100) and ("exp [red]\\n" in bar) == (columns == 100)
    # What a name holds is shown, and means nothing.
    assert "load \\x1b[31m[bold]" in bar
    # The cursor, which the bar hides, is back.
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") > 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= columns


def test_the_switch_and_quiet_reach_commands(tmp_path: Path) -> None:
    program = PROGRAM.replace("progress.shown()", "progress.shown(quiet=True)")
    assert on_terminal([sys.executable, "-c", program])[1] == "result\r\n"
    assert on_terminal([sys.executable, "-c", PROGRAM], GPUJIT_PROGRESS="0")[1] == "result\r\n"
