"""Things that several threads ask for and one of them makes: futures by key, which outlive a fork."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from gpujit.support.errors import InternalError
from gpujit.support.forks import after_fork

T = TypeVar("T")


@dataclass
class Counters:
    """Kernels asked for: found in this process, loaded from disk, compiled, impossible."""

    shared: int = 0
    loaded: int = 0
    compiled: int = 0
    refused: int = 0


class Promises(Generic[T]):
    """What was made by key; a future that is not done is being made by some thread."""

    def __init__(self) -> None:
        self._futures: dict[str, Future[T]] = {}
        self._lock = threading.Lock()
        _all.add(self)

    def get(self, key: str) -> Future[T] | None:
        """What was promised, if anything was."""
        return self._futures.get(key)

    @contextmanager
    def ask(self, keys: Iterable[str]) -> Iterator[tuple[dict[str, Future[T]], dict[str, Future[T]]]]:
        """The futures of all keys, and those of them that the block has to fulfil, since nobody has promised them yet.

        When the block raises an error, what it has not fulfilled fails with that, and may be asked for again.
        """
        found, mine = {}, {}
        with self._lock:
            for key in keys:
                known = self._futures.get(key)
                if known is None:
                    known = mine[key] = self._futures[key] = Future()
                found[key] = known
        try:
            yield found, mine
        except BaseException as fault:
            stopped = fault if isinstance(fault, Exception) else InternalError("interrupted while compiling")
            for key, future in mine.items():
                if not future.done():
                    self.refuse(key, future, stopped)
            raise

    def refuse(self, key: str, future: Future[T], fault: Exception) -> None:
        """Whoever waits gets this error; another call may try again."""
        self._futures.pop(key, None)
        future.set_exception(fault)

    def after_fork(self) -> None:
        """What other threads of the parent were making is made by nobody here."""
        self._lock = threading.Lock()
        for key, found in list(self._futures.items()):
            if not found.done():
                del self._futures[key]


_all: WeakSet[Promises[Any]] = WeakSet()


@after_fork
def _after_fork() -> None:
    for each in list(_all):
        each.after_fork()
