"""``gpujit graph``: every stage in every form, to the terminal and to files, and what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from gpujit.cli import graph as command
from gpujit.cli.main import main
from gpujit.plot import STAGES
from tests.programs import archive, module

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "classifier.pt")
SHAPE = "2x3x16x16"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["graph", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_stages_are_those_of_plot() -> None:
    # Written out there too, so that the command line's help imports no compiler.
    assert command.STAGES == STAGES


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("form", command.FORMATS)
def test_each_stage_in_each_form(stage: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [SHAPE] if stage in ("fused", "plan") else []
    code, out, err = call(capsys, EXAMPLE, *inputs, "--stage", stage, "--format", form)
    assert code == 0 and err == "" and out.endswith("\n")
    if form == "svg":
        assert ET.fromstring(out).tag.endswith("svg")
    elif form == "dot":
        assert out.startswith("digraph") and out.endswith("}\n")
    elif form == "json":
        data = json.loads(out)
        assert data["stage"] == stage and data["nodes"] and data["edges"]
        assert any(b["kind"] == "group" for b in data["boxes"]) == (stage in ("fused", "plan"))
    else:
        assert ("native template" if stage == "plan" else "graph(") in out


def test_what_is_shown_without_saying(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    frozen = call(capsys, EXAMPLE)[1]
    assert frozen == call(capsys, EXAMPLE, "--stage", "frozen", "--format", "text")[1] and "aten::conv2d" in frozen
    assert "prim::FusionGroup" in call(capsys, EXAMPLE, SHAPE)[1]
    assert json.loads(call(capsys, EXAMPLE, "--json")[1])["stage"] == "frozen"


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, start in (
        ("a.svg", "<svg"),
        ("a.dot", "digraph"),
        ("a.gv", "digraph"),
        ("a.json", "{"),
        ("a.txt", "graph("),
    ):
        code, out, err = call(capsys, EXAMPLE, "-o", str(tmp_path / name))
        assert code == 0 and err == "" and (tmp_path / name).read_text().startswith(start)
        assert out.startswith(f"{tmp_path / name}: frozen, 27 operators in 12 modules")
    code, out, _ = call(capsys, EXAMPLE, "-o", str(tmp_path / "b.picture"), "--format", "svg", "--json", "--fold", "20")
    facts = json.loads(out)
    assert code == 0 and facts["bytes"] == (tmp_path / "b.picture").stat().st_size and facts["nodes"] <= 20
    assert facts["stage"] == "frozen" and facts["format"] == "svg" and facts["operators"] > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.dot", "a.gv", "a.json", "a.svg", "a.txt", "b.picture"]


def test_inputs_from_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 16, 16), np.float32))
    assert "Float(5, 3, 16, 16)" in call(capsys, EXAMPLE, str(tmp_path / "x.npy"))[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.pt"], 3, "no such file"),
        ([EXAMPLE, "--stage", "plan"], 2, "a value is missing for images"),
        ([EXAMPLE, SHAPE, "--stage", "source"], 2, "the same for all inputs"),
        ([EXAMPLE, "nonsense"], 2, "neither an array file nor a shape"),
        ([EXAMPLE, "--method", "other"], 2, "no method 'other'"),
        ([EXAMPLE, "-o", "out.png"], 2, "ends in none of .svg"),
        ([EXAMPLE, "-o", "nowhere/out.svg"], 2, "cannot be written"),
        ([EXAMPLE, "--fold", "0"], 2, "fold is a number of nodes"),
        ([EXAMPLE, "str=x"], 2, "images"),
    ],
)
def test_what_goes_wrong(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, out, err = call(capsys, *arguments)
    assert found == code and message in err and out == ""
    found, out, err = call(capsys, *arguments, "--json")
    assert found == code and message in json.loads(out)["message"]


def test_a_file_stays_when_drawing_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.svg"
    target.write_text("old")

    def interrupted(*arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpujit.plot.svg_of", interrupted)
    assert call(capsys, EXAMPLE, "-o", str(target))[0] == 130
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_names_from_a_file_reach_the_terminal_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = module('def forward(self, x: Tensor) -> str:\n  return "\\x1b[31m<b>"\n')
    path = tmp_path / "m.pt"
    path.write_bytes(archive(source))
    for form in command.FORMATS:
        code, out, _ = call(capsys, str(path), "--format", form, "--stage", "source")
        assert code == 0 and "\x1b" not in out and ("<b>" not in out or form != "svg")


def test_a_closed_pipe_ends_quietly() -> None:
    line = f"{sys.executable} -m gpujit graph {EXAMPLE} --format svg | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout == "<svg xmlns" and done.stderr == ""


def test_help_names_stages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["graph", "--help"])
    out = capsys.readouterr().out
    assert raised.value.code == 0 and all(stage in out for stage in STAGES)
