"""docs/cli.md holds: its examples run and print what it shows, and JSON has the keys that it names."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpujit.cli import bench
from gpujit.cli.commands import COMMANDS
from gpujit.cli.main import main
from gpujit.support.config import config
from tests.cli.shells import CLASSIFIER, ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()
SECTIONS = {name: text for name, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shutil.copy(CLASSIFIER, tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "IDLE", 0.0)
    with config(threads=1, progress=False):
        yield


def examples(text: str) -> Iterator[tuple[list[str], str]]:
    """Each command line of a section, and what it should print."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ gpujit ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield shlex.split(line), output


@pytest.mark.parametrize("name", [n for n, text in SECTIONS.items() if "```console" in text])
def test_examples_print_what_the_page_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    checker = doctest.OutputChecker()
    for given, wanted in examples(SECTIONS[name]):
        assert main(given) == 0
        got, err = capsys.readouterr()
        assert err == ""
        if not checker.check_output(wanted, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE):
            difference = checker.output_difference(doctest.Example("", wanted), got, doctest.REPORT_NDIFF)
            pytest.fail(f"{' '.join(given)}\n{difference}")


def test_every_command_is_described() -> None:
    table = re.findall(r"\[(\w+)\]\(#[\w-]+\)", PAGE.partition("\n## ")[0])
    assert set(table) == set(COMMANDS)


KEYS = {
    "inspect": ["inspect", "model.pt"],
    "verify": ["verify", "model.pt"],
    "run": ["run", "model.pt", "2x3x32x32"],
    "explain": ["explain", "model.pt", "2x3x32x32"],
    "compare": ["compare", "model.pt", "model.pt", "2x3x32x32"],
    "optimise": ["optimise", "model.pt", "-o", "o.pt"],
    "strip": ["strip", "model.pt", "-o", "o.pt"],
    "graph": ["graph", "model.pt", "-o", "o.svg"],
    "warm": ["warm", "model.pt", "1x3x32x32"],
    "doctor": ["doctor"],
    "config": ["config"],
}


@pytest.mark.parametrize("name", KEYS)
def test_json_has_the_keys_that_the_page_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*KEYS[name], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    found = found[0] if isinstance(found, list) else found
    # A list of names, up to the first sentence's end.
    text = SECTIONS[name].partition("\nJSON: ")[2].partition(".")[0]
    named = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", text))
    assert named == list(found)
