"""Commands run as users run them: in a process, on a terminal of a given width, interrupted."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLASSIFIER = str(ROOT / "examples" / "classifier.pt")
MLP = str(ROOT / "tests" / "models" / "corpus" / "mlp.pt")


def environment(**more: str) -> dict[str, str]:
    """The environment of a command; plans run on one thread."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpujit", *arguments]


def process(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command without a terminal, to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60, env=environment(**more), check=False
    )


def on_terminal(given: Sequence[str], columns: int = 80, **more: str) -> tuple[int, str]:
    """The exit code of a program, and all it wrote to a terminal of so many columns."""
    master, slave = os.openpty()
    settings = environment(COLUMNS=str(columns), LINES="24", TERM="xterm-256color", **more)
    child = subprocess.Popen(given, stdin=slave, stdout=slave, stderr=slave, env=settings, start_new_session=True)
    os.close(slave)
    found = read_to_end(master)
    try:
        return child.wait(60), found.decode()
    finally:
        child.kill()


def read_to_end(master: int) -> bytes:
    """What is still written to a terminal until nobody has it open; it is closed then."""
    found = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            # Linux says so when nobody has the other end open any more.
            break
        if not data:
            break
        found += data
    os.close(master)
    return found


def interrupted(given: Sequence[str], mark: bytes, **more: str) -> tuple[int, str, str]:
    """The exit code, output and errors of a program that is interrupted once it has written ``mark`` as an error."""
    child = subprocess.Popen(
        given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**more), start_new_session=True,
        preexec_fn=listen_to_interrupts,
    )  # fmt: skip
    assert child.stdout is not None and child.stderr is not None
    errors, end = b"", time.monotonic() + 60
    try:
        while mark not in errors and time.monotonic() < end:
            if select.select([child.stderr], [], [], 0.1)[0]:
                data = os.read(child.stderr.fileno(), 65536)
                if not data:
                    break
                errors += data
        child.send_signal(signal.SIGINT)
        out, more_errors = child.communicate(timeout=60)
    finally:
        child.kill()
    return child.returncode, out.decode(), (errors + more_errors).decode()


def listen_to_interrupts() -> None:
    """For a program about to start. What a shell runs in the background inherits that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
