"""``gpujit profile``: tables, JSON, files, exit codes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gpujit import modules
from gpujit.cli.main import main
from gpujit.profiler import core, machine
from gpujit.profiler.data import profile_from_json
from tests.profiler.test_machine import FOUND
from tests.programs import archive, forward, module
from tests.runtime.recording_device import RecordingDevice

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "classifier.pt")
SHAPE = "1x3x32x32"


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_known", {})
    monkeypatch.setattr(machine, "kept_ceilings", lambda identity, measure: FOUND)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    # On a busy machine there is progress to tell.
    code = main(["profile", "--quiet", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, EXAMPLE, SHAPE, "--rounds", "2", "--threads", "1")
    assert (code, err) == (0, "")
    for part in ("load ", "optimise ", "first call", "without fusion", "conv2d+relu", "fused against its operators"):
        assert part in out, part
    assert "1 thread;" in out and "interpreter" not in out.splitlines()[4]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, EXAMPLE, SHAPE, "int=2", "--rounds", "2", "--json", "--interpreter")
    found = profile_from_json(out)
    assert (code, err) == (0, "")
    assert found.file == EXAMPLE and found.phases[0].name == "load" and found.interpreted is not None
    assert [t.text for t in found.inputs] == ["float32[1, 3, 32, 32]", "2"]


def test_timeline_and_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace, page = tmp_path / "t.json", tmp_path / "r.html"
    code, out, _ = call(capsys, EXAMPLE, SHAPE, "--rounds", "2", "--quick", "--trace", str(trace), "--html", str(page))
    assert code == 0 and f"report: {page}" in out and f"timeline: {trace}" in out
    assert "without fusion" not in out
    assert any(e["name"] == "conv2d+relu" for e in json.loads(trace.read_text())["traceEvents"])
    text = page.read_text()
    assert text.startswith("<!") and "conv2d+relu" in text


def test_every_step_is_shown_when_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from gpujit.profiler import text

    monkeypatch.setattr(text, "MOST_STEPS", 3)
    assert "14 more" in call(capsys, EXAMPLE, SHAPE, "--rounds", "1", "--quick")[1]
    assert " more" not in call(capsys, EXAMPLE, SHAPE, "--rounds", "1", "--quick", "--all")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.pt", SHAPE], 3, "missing.pt"),
        ([EXAMPLE], 2, "a value is missing for images"),
        ([EXAMPLE, SHAPE, "--method", "other"], 2, "no method 'other'"),
        ([EXAMPLE, SHAPE, "--rounds", "100000"], 2, "at most 10000"),
        ([EXAMPLE, "3x32x32"], 4, "expected images of 4 dimensions"),
        ([EXAMPLE, SHAPE, "--rounds", "1", "--quick", "--trace", "/nowhere/t.json"], 2, "cannot be written"),
        ([EXAMPLE, SHAPE, "--rounds", "1", "--quick", "--html", "/nowhere/r.html"], 2, "cannot be written"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_exit_codes(
    arguments: list[str], code: int, message: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = call(capsys, *arguments, *form)
    assert found == code and message in err
    if form:
        assert "error" in json.loads(out) and message in out


@pytest.mark.parametrize("rounds", ["0", "-1", "x"])
def test_rounds_are_numbers(rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        main(["profile", EXAMPLE, SHAPE, "--rounds", rounds])
    assert e.value.code == 2


def test_control_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core._Session, "steady", stopped)
    target = tmp_path / "t.json"
    code, out, err = call(capsys, EXAMPLE, SHAPE, "--trace", str(target))
    assert (code, out, err) == (130, "", "interrupted\n") and not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_partial_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = call(capsys, EXAMPLE, SHAPE, "--rounds", "1", "--quick", "--trace", str(tmp_path / "t.json"))
    assert code == 2 and "No space left" in err and not list(tmp_path.iterdir())


def test_a_hostile_name_does_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m\x1b[31m\n.pt"
    path.write_bytes(archive(module(forward("x: Tensor", "return torch.relu(torch.neg(x))")), {}))
    code, out, _ = call(capsys, str(path), "2x3", "--rounds", "1", "--trace", str(tmp_path / "t\x1b.json"))
    assert code == 0 and "\x1b" not in out and "\\x1b[31m" in out


def test_a_device(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "open_device", lambda place: RecordingDevice(str(place)))
    body = "return torch.relu(torch.mul(torch.neg(x), 2))"
    (tmp_path / "m.pt").write_bytes(archive(module(forward("x: Tensor", body)), {}))
    code, out, err = call(capsys, str(tmp_path / "m.pt"), "2x3", "--rounds", "2", "--device", "cuda:0")
    assert (code, err) == (0, "")
    assert "runs on a device: cuda:0, a device that records" in out
    assert "[device kernel] group 0: neg+mul+relu" in out and "optimise " in out
