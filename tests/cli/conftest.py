"""What all tests of commands share."""

from __future__ import annotations

import pytest

from gpujit.cli import progress


@pytest.fixture(autouse=True)
def _no_progress_on_slow_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error holds what a command has to say, however long it took; tests of progress set their own delay."""
    monkeypatch.setattr(progress, "DELAY", 600.0)
