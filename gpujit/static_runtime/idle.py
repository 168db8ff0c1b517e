"""Runtimes between two runs: one pool for each plan, and a limit on what all pools of the process keep.

A call on inputs of a size that was met before finds its arena made. Many sizes of a large model would keep many large
arenas so: those of plans that ran longest ago are given back when all together take more than ``MOST`` bytes.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

MOST = 1 << 29
# Arenas of fewer bytes are not counted: there are not that many plans, and a list is quicker.
LARGE = 1 << 20


class Kept(Protocol):
    """What a pool keeps."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory it holds."""


K = TypeVar("K", bound=Kept)


class Idle(Generic[K]):
    """A pool of large ones. Threads may call all methods at the same time."""

    def __init__(self) -> None:
        self._waiting: list[K] = []

    def append(self, kept: K) -> None:
        """Take one in."""
        self._waiting.append(kept)
        _shelf.put(self, kept)

    def pop(self) -> K:
        """The one that came last. Raises IndexError when there is none."""
        found = self._waiting.pop()
        _shelf.take(found)
        return found

    def drop(self, kept: K) -> None:
        """Do without one that may have been taken out meanwhile."""
        with suppress(ValueError):
            self._waiting.remove(kept)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[K]:
        return iter(self._waiting.copy())


def pool(size: int) -> list[Any] | Idle[Any]:
    """A pool for runtimes whose arenas have this size."""
    return Idle() if size >= LARGE else []


class _Entry(NamedTuple):
    kept: weakref.ref[Kept]
    pool: weakref.ref[Idle[Any]]
    size: int


class _Shelf:
    """The large ones of all pools, by the time they came in. It keeps none of them alive."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._total = 0
        # A collection may call back while this thread holds it.
        self._lock = threading.RLock()

    def put(self, pool: Idle[Any], kept: Kept) -> None:
        """Take note of one, and have others dropped when that makes too many."""
        key, size = id(kept), kept.nbytes
        dropped: list[tuple[Idle[Any] | None, Kept | None]] = []
        with self._lock:
            self._entries[key] = _Entry(weakref.ref(kept, lambda ref: self._forget(key, ref)), weakref.ref(pool), size)
            self._total += size
            # A plan that many threads run at once needs all of its own again.
            for old, entry in list(self._entries.items()) if self._total > MOST else ():
                if entry.pool() is not pool:
                    del self._entries[old]
                    self._total -= entry.size
                    dropped.append((entry.pool(), entry.kept()))
                if self._total <= MOST:
                    break
        for other, gone in dropped:
            if other is not None and gone is not None:
                other.drop(gone)

    def take(self, kept: Kept) -> None:
        """Forget one that runs again."""
        with self._lock:
            entry = self._entries.pop(id(kept), None)
            self._total -= 0 if entry is None else entry.size

    def _forget(self, key: int, ref: weakref.ref[Kept]) -> None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.kept is ref:
                del self._entries[key]
                self._total -= entry.size


_shelf = _Shelf()
