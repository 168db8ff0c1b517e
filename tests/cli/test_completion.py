"""``gpujit completion`` and ``gpujit help``: scripts that shells take and that complete, help for every command."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpujit.cli.commands import ALIASES, COMMANDS
from gpujit.cli.main import main

NAMES = [*COMMANDS, *ALIASES]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def bash(text: str, program: str, folder: Path) -> str:
    path = folder / "completion.bash"
    path.write_text(text)
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source {path}; {program}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        cwd=folder,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my model.pt").write_text("")
    text = script("bash", capsys)
    cases: dict[tuple[str, ...], set[str]] = {
        ("",): set(NAMES),
        ("insp",): {"inspect"},
        ("opt",): {"optimise", "optimize"},
        ("--v",): {"--version"},
        ("run", "--re"): {"--repeat"},
        ("run", "model.pt", "--m"): {"--method"},
        ("optimise", "--dtype", "float"): {"float16", "float32", "float64"},
        ("cache", ""): {"ls", "clear", "where"},
        ("completion", "z"): {"zsh"},
        ("help", "ver"): {"verify"},
        ("inspect", "my"): {"my model.pt"},
        ("run", "--out", "my"): {"my model.pt"},
        ("run", "--repeat", "zzz"): set(),
        ("nothing", "zzz"): set(),
    }
    program = [
        f"COMP_WORDS=(gpujit {' '.join(repr(w) for w in words)}); COMP_CWORD={len(words)}; COMPREPLY=(); _gpujit; "
        'printf "%s|" "${COMPREPLY[@]}"; echo'
        for words in cases
    ]
    # Files with blanks are one entry each, as complete -o filenames wants them.
    lines = bash(text, "; ".join(program), tmp_path).splitlines()
    assert len(lines) == len(cases)
    for (words, wanted), line in zip(cases.items(), lines, strict=True):
        assert {w for w in line.split("|") if w} == wanted, words


def check(shell: str, text: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = folder / f"completion.{shell}"
    path.write_text(text)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_take_the_scripts(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(shell, script(shell, capsys), tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_every_command_and_are_made_the_same_each_time(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert text == script(shell, capsys) and all(name in text for name in NAMES)
    assert main(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": text}


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.fish").write_text(script("fish", capsys))
    program = 'source c.fish; complete -C "gpujit insp"; complete -C "gpujit optimise --dtype float1"'
    done = subprocess.run(
        ["fish", "-c", program], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == f"inspect\t{COMMANDS['inspect']}" and second.startswith("float16\t")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_described_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith((f"usage: gpujit {name} ", f"usage: gpujit {ALIASES.get(name, name)} "))
    assert "\nexamples:\n  " in text and "--json" in text and "--quiet" in text
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0 and capsys.readouterr().out == text


def test_help_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {name} " in text for name in COMMANDS) and "exit codes:\n" in text
    assert main(["help", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commands"] == COMMANDS


def test_help_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["help", "verify"]) == 0
    text = capsys.readouterr().out.split("\ninputs,")[0]
    assert max(map(len, text.splitlines())) <= 60


def test_help_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["help", "nothing"])
    assert stopped.value.code == 2 and "invalid choice: 'nothing'" in capsys.readouterr().err
