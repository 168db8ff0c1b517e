"""Progress of work that takes over a second, on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from gpujit.cli.output import safe
from gpujit.support.config import config
from gpujit.support.progress import Stage, listening
from gpujit.support.units import bytes_text

# Seconds that work takes before anything is shown, between two looks at it, and between two lines.
DELAY, TICK, EVERY = 1.0, 0.1, 3.0
# Columns of a terminal below which there is no room for a bar.
NARROW = 60


@contextmanager
def shown(quiet: bool = False, stream: TextIO | None = None) -> Iterator[None]:
    """A block whose stages (``gpujit.support.progress``) are shown, unless it is to be quiet or the switch is off.

    Nothing may be printed inside of a stage.
    """
    stream = sys.stderr if stream is None else stream
    # There is no standard error in a process that was started without one.
    if quiet or not config.progress or stream is None:
        yield
        return
    display = Display(stream, DELAY, EVERY)
    try:
        with listening(display):
            yield
    finally:
        display.close()


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream can show a bar."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        # It is closed.
        return False


class Display:
    """Shows the stages that are under way, from a thread of its own: work need not report to be seen."""

    def __init__(self, stream: TextIO, delay: float, every: float) -> None:
        self.stream, self.delay, self.every = stream, delay, every
        self._stages: list[tuple[Stage, float]] = []
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._bars: _Bars | None = None
        self._next_line = 0.0

    def began(self, stage: Stage) -> None:
        with self._lock:
            now = time.monotonic()
            if not self._stages:
                self._next_line = max(self._next_line, now + self.delay)
            self._stages.append((stage, now))
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._loop, name="gpujit-progress", daemon=True)
                self._thread.start()

    def ended(self, stage: Stage) -> None:
        with self._lock:
            self._stages = [(s, at) for s, at in self._stages if s is not stage]
            if not self._stages:
                self._clear()

    def close(self) -> None:
        """Show nothing from now on."""
        self._closing.set()
        with self._lock:
            self._clear()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _clear(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _loop(self) -> None:
        while not self._closing.wait(min(TICK, self.delay or TICK)):
            with self._lock:
                if self._stages and not self._closing.is_set():
                    try:
                        self._show(time.monotonic())
                    except (OSError, ValueError):
                        # Nobody reads standard error any more: the work goes on.
                        return

    def _show(self, now: float) -> None:
        if now - self._stages[0][1] < self.delay:
            return
        if is_terminal(self.stream):
            if self._bars is None:
                self._bars = _Bars(self.stream)
            self._bars.update(self._stages)
        elif now >= self._next_line:
            self._next_line = now + self.every
            stage, at = self._stages[-1]
            self.stream.write(f"gpujit: {_line(stage, now - at)}\n")
            self.stream.flush()


def _line(stage: Stage, seconds: float) -> str:
    """``compile kernels 3/20 (exp), 12 s, about 68 s left``."""
    done = stage.done
    text = f"{stage.name} {_count(stage, done)}".rstrip()
    if stage.note:
        text += f" ({stage.note})"
    text += f", {seconds:.0f} s"
    if stage.total is not None and 0 < done < stage.total:
        text += f", about {seconds * (stage.total - done) / done:.0f} s left"
    return _one_line(text)


def _count(stage: Stage, done: int) -> str:
    """``3/20``, ``1.2 MB/3.4 MB``, ``3`` where nobody knows of how many, and nothing where none is done."""
    show = bytes_text if stage.unit == "bytes" else str
    if stage.total is not None:
        return f"{show(min(done, stage.total))}/{show(stage.total)}"
    return show(done) if done else ""


class _Bars:
    """A line of a terminal for each stage, kept up to date."""

    def __init__(self, stream: TextIO) -> None:
        # Most commands end before anything is to be shown.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        console = Console(file=stream, highlight=False, markup=False, emoji=False)
        columns: list[Any] = [
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        ]
        if console.width >= NARROW:
            columns.append(BarColumn(bar_width=24))
        columns.append(TextColumn("{task.fields[count]}", markup=False, table_column=Column(no_wrap=True)))
        columns.append(TimeRemainingColumn(compact=True, elapsed_when_finished=True))
        if console.width >= NARROW:
            note = Column(no_wrap=True, overflow="ellipsis")
            columns.append(TextColumn("{task.fields[note]}", markup=False, table_column=note))
        # Standard output is not the bar's: it may go to a file.
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._tasks: dict[int, tuple[Stage, Any]] = {}
        self._progress.start()

    def update(self, stages: list[tuple[Stage, float]]) -> None:
        here = {id(stage) for stage, _ in stages}
        for key, (_, task) in list(self._tasks.items()):
            if key not in here:
                self._progress.remove_task(task)
                del self._tasks[key]
        for depth, (stage, _) in enumerate(stages):
            done = stage.done
            values: dict[str, Any] = {
                "description": "  " * depth + _one_line(stage.name), "count": _count(stage, done),
                "note": _one_line(stage.note), "total": stage.total, "completed": done,
            }  # fmt: skip
            known = self._tasks.get(id(stage))
            if known is None:
                self._tasks[id(stage)] = stage, self._progress.add_task(**values)
            else:
                self._progress.update(known[1], **values)

    def stop(self) -> None:
        self._progress.stop()


def _one_line(text: str) -> str:
    return safe(text).replace("\n", "\\n")
