"""Tables, JSON and styles, on terminals of any width and where there is none."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from gpujit.cli import output
from gpujit.cli.output import for_json, print_json, styled, table, time_text
from tests.cli.shells import CLASSIFIER, environment, on_terminal, process

HOSTILE = "\x1b[31m[bold]x[/bold]\n:smile:\u202e"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_columns_may_be_aligned_to_the_right() -> None:
    assert table([("a", 1), ("b", 200)], ("name", "n"), right=(1,)) == "  name    n\n  a       1\n  b     200"


def test_a_table_is_folded_to_a_width_and_loses_nothing() -> None:
    text = table([("a" * 30, "word " * 10, 5)], ("name", "what", "n"), indent="", right=(2,), width=40)
    lines = text.split("\n")
    assert len(lines) > 3 and max(map(len, lines)) <= 40
    assert text.count("a") == 30 + len(re.findall("a", "name what")) and text.count("word") == 10


def test_numbers_stay_whole_and_without_room_rows_become_lines() -> None:
    rows = [("planned", "126 us", "6%", "ok " * 4), ("b\x1b", "1.48 ms", "", "")]
    header = ("", "median", "spread", "what")
    wide = table(rows, header, indent="", right=(1, 2), width=40).split("\n")
    assert "126 us" in wide[1] and max(map(len, wide)) <= 40
    narrow = table(rows, header, indent=" ", right=(1, 2), width=25).split("\n")
    assert narrow == [
        " planned", " median  126 us", " spread  6%", " what    ok ok ok ok", "",
        " b\\x1b", " median  1.48 ms",
    ]  # fmt: skip


def test_cells_mean_nothing_to_the_terminal_or_the_renderer() -> None:
    shown = "\\x1b[31m[bold]x[/bold]\\n:smile:\\u202e"
    assert table([(HOSTILE,)]) == f"  {shown}"
    assert table([(HOSTILE,)], (HOSTILE,), width=80).split("\n") == [f"  {shown}", f"  {shown}"]
    assert styled(HOSTILE.replace("\n", ""), "red") == shown.replace("\\n", "")


def test_very_long_names_do_not_take_long() -> None:
    assert len(table([("n" * 100_000, "v")], width=80).replace("\n", "").replace(" ", "")) == 100_001


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": float("nan"), "b": [np.float32(1.5), np.int64(2), (True, None)], 3: float("-inf"), "c": HOSTILE}
    print_json(value)
    text = capsys.readouterr().out
    assert text.isascii() and "\x1b" not in text
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found == {"a": "nan", "b": [1.5, 2, [True, None]], "3": "-inf", "c": HOSTILE}
    assert for_json(ml_dtypes.bfloat16(2)) == 2.0


def test_times_for_people() -> None:
    assert [time_text(s) for s in (2.0, 0.0123, 0.000456, 1.2e-7)] == ["2.00 s", "12.3 ms", "456 us", "0.12 us"]


def test_a_stream_that_is_closed_or_absent_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not output.is_terminal()


@pytest.mark.parametrize("columns", [120, 40])
def test_a_terminal_gets_colours_and_lines_that_fit(columns: int) -> None:
    code, text = on_terminal([sys.executable, "-m", "gpujit", "config"], columns)
    assert code == 0 and "GPUJIT_CACHE=" in text
    code, text = on_terminal([sys.executable, "-m", "gpujit", "inspect", CLASSIFIER], columns)
    assert code == 0 and ("blocks.0.norm.running_mean" if columns > 40 else "blocks.0.norm.r") in ANSI.sub("", text)
    listing = ANSI.sub("", text).split("parameters\r\n")[1].split("operators called")[0]
    assert max(len(line) for line in listing.split("\r\n")) <= columns


def test_no_colour_when_it_is_not_wanted() -> None:
    program = "from gpujit.cli.output import styled; print(styled('x', 'red'))"
    assert on_terminal([sys.executable, "-c", program])[1] == "\x1b[31mx\x1b[0m\r\n"
    assert on_terminal([sys.executable, "-c", program], NO_COLOR="1")[1] == "x\r\n"
    program = program.replace("print", "import os; os.environ['TERM'] = 'dumb'; print")
    assert on_terminal([sys.executable, "-c", program])[1] == "x\r\n"


def test_a_narrow_terminal_does_not_fold_what_goes_into_a_pipe() -> None:
    done = process("inspect", CLASSIFIER, COLUMNS="40")
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert any("blocks.0.norm.running_mean" in line and "float32" in line for line in done.stdout.splitlines())


def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    program = "import sys; from gpujit.cli.main import main; sys.exit(main(['run', 'grün.npy']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii:strict"),
        check=False,
        timeout=60,
    )
    assert done.returncode == 3 and b"gr\\xfcn.npy" in done.stderr and b"Traceback" not in done.stderr
