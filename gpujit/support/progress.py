"""Progress of work that may take long: who works says how far it is; nobody looks unless a program asks to.

with Stage("compile kernels", 20) as stage:
    for kernel in kernels:
        stage.note = kernel.name
        ...
        stage.advance()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol


class Stage:
    """Work under way, as a context manager.

    ``done`` of ``total`` pieces are done (None: nobody knows how many there are); ``note`` says what is done now. Any
    thread may count on.

    Args:
        unit: "bytes" when that is what is counted, to be shown as such.
        count: tells how many are done, for work that counts by other means; asked when somebody looks.
    """

    __slots__ = ("_count", "_done", "_listener", "_lock", "name", "note", "total", "unit")

    def __init__(
        self, name: str, total: int | None = None, *, unit: str = "", count: Callable[[], int] | None = None
    ) -> None:
        self.name, self.total, self.unit, self.note = name, total, unit, ""
        self._done, self._count = 0, count
        self._lock = threading.Lock()
        self._listener: Listener | None = None

    def advance(self, count: int = 1) -> None:
        """So many more pieces are done."""
        with self._lock:
            self._done += count

    @property
    def done(self) -> int:
        """Pieces that are done."""
        return self._done if self._count is None else self._count()

    def __enter__(self) -> Stage:
        self._listener = _listener.get()
        if self._listener is not None:
            self._listener.began(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.ended(self)


class Listener(Protocol):
    """Who wants to know. It looks at the stages that have begun whenever it likes; several threads may call it."""

    def began(self, stage: Stage) -> None:
        """Work began, perhaps as a part of what began before."""

    def ended(self, stage: Stage) -> None:
        """It is over, one way or another."""


_listener: ContextVar[Listener | None] = ContextVar("gpujit_progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """A block in which a listener is told of all stages."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
