"""Warnings and log messages while a command runs: a line each on standard error, with nothing raw from a file."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from gpujit.cli.output import safe


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """A block in which warnings, and what the library logs, are shown as lines; not at all when ``quiet``."""
    handler = _Lines()
    log = logging.getLogger("gpujit")
    propagates, level = log.propagate, log.level
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        else:
            warnings.showwarning = _warn
        log.addHandler(handler)
        log.propagate = False
        log.setLevel(logging.CRITICAL + 1 if quiet else logging.WARNING)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.propagate = propagates
            log.setLevel(level)


def _say(text: str) -> None:
    print(f"gpujit: warning: {safe(text)}", file=sys.stderr)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: Any = None,
) -> None:
    _say(str(message))


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())
