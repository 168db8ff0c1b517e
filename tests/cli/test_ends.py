"""How commands end when they are interrupted, when disks are full or cannot be written, when nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpujit.cli.main import main
from tests.cli.shells import (
    CLASSIFIER,
    MLP,
    command,
    environment,
    interrupted,
    listen_to_interrupts,
    on_terminal,
    process,
    read_to_end,
)
from tests.programs import archive, forward, module

# A model that never ends.
ENDLESS = module(forward("x: Tensor", "y = x\nfor _0 in range(1000000000):\n  y = torch.neg(y)\nreturn y"))
# Commands as users call them, whose progress is shown soon.
SOON = (
    "import sys; from gpujit.cli import progress; progress.DELAY = progress.EVERY = 0.05; "
    "from gpujit.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def endless(tmp_path: Path) -> str:
    (tmp_path / "m.pt").write_bytes(archive(ENDLESS, {}))
    return str(tmp_path / "m.pt")


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        (["run", "MODEL", "2", "--out", "OUT"], b"calls 0/1"),
        (["compare", "MODEL", "MODEL", "2"], b""),
        (["verify", "MODEL", "2"], b"gpujit: "),
        (["optimise", "MODEL", "2", "-o", "OUT"], b"check"),
        (["bench", "MODEL", "2", "--tiers", "interpreter"], b"prepare 0/1 (interpreter)"),
    ],
    ids=lambda a: a[0] if isinstance(a, list) else "",
)
def test_ctrl_c_ends_a_command_and_leaves_nothing(
    arguments: list[str], mark: bytes, endless: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    given = [a.replace("MODEL", endless).replace("OUT", str(target)) for a in arguments]
    program = SOON
    if not mark:
        # Nothing of it is shown: it says itself where it is.
        mark = b"now\n"
        program = "import sys; from gpujit.cli import compare; called = compare.called; "
        program += "compare.called = lambda *a: (sys.stderr.write('now\\n'), called(*a))[1]; "
        program += "from gpujit.cli.main import main; sys.exit(main(sys.argv[1:]))"
    code, out, err = interrupted([sys.executable, "-c", program, *given], mark, TMPDIR=str(tmp_path))
    assert code == 130 and out == "" and "Traceback" not in err and err.splitlines()[-1] == "interrupted", err
    assert target.read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["m.pt", "out"]


def test_ctrl_c_clears_the_bar(endless: str) -> None:
    # The terminal's own key, rather than a signal.
    import pty
    import time

    pid, master = pty.fork()
    if pid == 0:
        listen_to_interrupts()
        os.execve(sys.executable, [sys.executable, "-c", SOON, "run", endless, "2"], environment(TERM="xterm"))
    text = b""
    end = time.monotonic() + 30
    while b"calls" not in text and time.monotonic() < end:
        text += os.read(master, 65536)
    os.write(master, b"\x03")
    text += read_to_end(master)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert text.count(b"\x1b[?25h") == text.count(b"\x1b[?25l") > 0 and text.endswith(b"interrupted\r\n")
    assert b"Traceback" not in text


@pytest.mark.parametrize(
    "name", ["inspect", "run", "strip", "cache", "config", "doctor", "explain", "completion", "help"]
)
def test_an_interrupt_anywhere_ends_with_130(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpujit.cli.commands import module as module_of

    def stopped(arguments: Any) -> int:
        raise KeyboardInterrupt

    rest = {
        "run": [MLP, "2x8"], "inspect": [MLP], "explain": [MLP, "2x8"], "strip": [MLP, "-o", str(tmp_path / "o")],
        "cache": ["ls"], "completion": ["bash"],
    }  # fmt: skip
    monkeypatch.setattr(module_of(name), "execute", stopped)
    assert main([name, *rest.get(name, [])]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_an_interrupt_while_writing_leaves_the_old_file(
    moment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "o.pt"
    target.write_bytes(b"old")

    def stopped(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    place = {"write": "gpujit.serialization.zipwrite.ZipWriter.add", "fsync": "os.fsync", "replace": "os.replace"}[
        moment
    ]
    for given in (
        ["strip", MLP, "-o", str(target)],
        ["optimise", MLP, "-o", str(target)],
        ["run", MLP, "2x8", "--out", str(target)],
    ):
        if moment == "write" and given[0] != "strip":
            continue
        with monkeypatch.context() as patch:
            patch.setattr(place, stopped)
            assert main(given) == 130
        assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["o.pt"], given


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@FULL
@pytest.mark.parametrize(
    "arguments", [["inspect", MLP], ["inspect", MLP, "--json"], ["config"], ["run", MLP, "2x8"]], ids=str
)
def test_standard_output_on_a_full_disk(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
            timeout=60,
        )
    assert done.returncode == 2 and done.stderr == "gpujit: error[os]: [Errno 28] No space left on device\n"


@FULL
@pytest.mark.parametrize(
    "arguments", [["run", MLP, "2x8", "--out"], ["strip", MLP, "-o"], ["optimise", MLP, "-o"]], ids=str
)
def test_targets_on_a_full_disk(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "/dev/full"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "error[save-target]: /dev/full cannot be written: No space left on device" in err


@pytest.mark.parametrize(
    "arguments", [["run", MLP, "2x8", "--out"], ["strip", MLP, "-o"], ["optimise", MLP, "-o"]], ids=str
)
def test_targets_where_nothing_can_be_written(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Nobody, not even root, makes files there.
    assert main([*arguments, "/proc/self/o.pt"]) == 2
    assert "error[save-target]: /proc/self/o.pt cannot be written: " in capsys.readouterr().err


def test_without_standard_streams(tmp_path: Path) -> None:
    """As daemons are started: nothing to write to is no fault."""
    for closed in ("1", "2"):
        line = f'exec "$0" -m gpujit run "$1" 2x8 --out "$2" {closed}>&-'
        target = tmp_path / f"{closed}.npz"
        done = subprocess.run(
            ["sh", "-c", line, sys.executable, MLP, str(target)],
            capture_output=True,
            env=environment(),
            check=False,
            timeout=60,
        )
        assert done.returncode == 0 and target.exists() and b"Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["inspect", "help", "--help", "config"])
def test_starting_is_light(name: str) -> None:
    """What takes long to import is not imported by what does not need it."""
    code = "import sys; from gpujit.cli.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print(*sorted({'rich', 'llvmlite', 'networkx', 'jinja2', 'numba', 'torch'} & set(sys.modules)))"
    given = [name, CLASSIFIER] if name == "inspect" else [name]
    done = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, env=environment(), check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == ""
    code = code.replace("'rich', ", "'numpy', ")
    if name == "--help":
        done = subprocess.run(
            [sys.executable, "-c", code, name],
            capture_output=True,
            text=True,
            env=environment(),
            check=True,
            timeout=60,
        )
        assert done.stdout.splitlines()[-1] == ""


def test_warnings_are_lines_that_mean_nothing_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging
    import warnings

    from gpujit.cli import config

    def execute(arguments: Any) -> int:
        warnings.warn("a\x1b[31m group", UserWarning, stacklevel=1)
        logging.getLogger("gpujit.fuser").warning("runs %s", "\x1b[2J")
        return 0

    monkeypatch.setattr(config, "execute", execute)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["config"]) == 0
    assert capsys.readouterr().err == "gpujit: warning: a\\x1b[31m group\ngpujit: warning: runs \\x1b[2J\n"
    assert main(["config", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_options_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (
        ["run", "--repeat", "2", MLP, "2x8"],
        ["run", MLP, "--repeat", "2", "2x8"],
        ["run", MLP, "2x8", "--repeat", "2"],
    ):
        assert main(given) == 0
        assert "(median of 1)" in capsys.readouterr().out


def test_results_on_a_terminal(tmp_path: Path) -> None:
    code, text = on_terminal(command("run", MLP, "2x8"), 40)
    assert code == 0 and "\x1b[1m" in text and "\x1b[?25l" not in text
    assert process("run", MLP, "2x8").stdout.startswith("output  dtype    shape  values\n")
