"""The worker team: one per process and size, whose threads run the parts of a job's steps in native code.

Workers are daemon threads without the GIL, which sleep while there is nothing to do. A process that was forked makes
its own team. When two jobs come at once, one gets the team and the other runs on the thread that brought it.
A worker that is late costs nothing: its parts are taken by whoever is there.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache

import numpy as np

from gpujit.kernels import supply
from gpujit.kernels.native import Library
from gpujit.kernels.team_code import DATA_OFFSET, LINE, MASK_BYTES, OFFSETS, can_move, team_bytes, team_ir
from gpujit.support.threads import thread_count

_TRIES = 20
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


@cache
def _library() -> Library:
    code = team_ir()
    return supply.module(f"worker team\n{code}", lambda: code, optimise=1)


def team_run(address: int) -> Callable[[int, int, int, int], None]:
    """A function at an address that is called as ``Team.run`` is."""
    return _RUN(address)


@cache
def caller() -> Callable[[int, int, int, int], None]:
    """``call(team, function, block, arrays)``: one step by the team at an address, or by ``alone()``.

    ``function`` and ``block`` are addresses; the first ``arrays`` words of the block hold ``id`` of the arrays whose
    data the step takes. The caller keeps them alive.
    """
    return _CALL(_library().address("gpujit_team_call"))


@cache
def alone() -> int:
    """The address of a team of one: who calls it does all the work."""
    memory = np.zeros(team_bytes(1) // 8, np.int64)
    memory[OFFSETS["parts"] // 8] = 1
    _kept.append(memory)
    return int(memory.ctypes.data)


_kept: list[np.ndarray] = []


class Team:
    """``size`` threads, the caller's included.

    ``address`` and ``run`` are what a native job needs: ``run(address, functions, blocks, count)``, the two in the
    middle being addresses of arrays of ``count`` addresses each. It returns when all steps are done. Safe from any
    thread. ``caller`` runs one step.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.run = _RUN(_library().address("gpujit_team_run"))
        work = _WORK(_library().address("gpujit_team_work"))
        self._memory = np.zeros(team_bytes(size) + LINE, np.uint8)
        start = self._memory.ctypes.data
        self.address = -(-start // LINE) * LINE
        self._offset = self.address - start
        self._word("parts")[0] = size
        self._allow_processors()
        self._threads = [
            threading.Thread(target=work, args=(self.address, part), name=f"gpujit-{part}", daemon=True)
            for part in range(1, size)
        ]
        for thread in self._threads:
            thread.start()

    def _allow_processors(self) -> None:
        """Write down where workers may run: where this thread may."""
        if not can_move():
            return
        bits = sum(1 << p for p in os.sched_getaffinity(0) if p < MASK_BYTES * 8)
        at = self._offset + OFFSETS["allowed"]
        self._memory[at : at + MASK_BYTES] = np.frombuffer(bits.to_bytes(MASK_BYTES, "little"), np.uint8)

    def _word(self, name: str) -> np.ndarray:
        at = self._offset + OFFSETS[name]
        return self._memory[at : at + 8].view(np.int64)

    def close(self) -> None:
        """End the workers once a job under way is done; later jobs run on the thread that brings them."""
        self._word("stop")[0] = 1
        nothing = np.zeros(1, np.int64)
        for _ in range(_TRIES):
            # An empty job wakes who sleeps, unless another job has the team just now.
            self.run(self.address, nothing.ctypes.data, nothing.ctypes.data, 0)
            for thread in self._threads:
                thread.join(timeout=0.05)
            if not any(thread.is_alive() for thread in self._threads):
                break
        self._word("parts")[0] = 1


def _objects_hold_data() -> bool:
    """Whether array objects are laid out as the native code takes them to be."""
    x = np.zeros(3)
    if sys.implementation.name != "cpython":
        return False
    return ctypes.c_void_p.from_address(id(x) + DATA_OFFSET).value == x.ctypes.data


# Else the words of arrays are filled in by Python, which takes longer.
READS_OBJECTS = _objects_hold_data()

# Modules may ask for teams of different sizes; more than these are not kept.
MAX_TEAMS = 4
_lock = threading.Lock()
_teams: dict[int, Team] = {}
_owner = 0


def team() -> Team:
    """The process's team of ``thread_count()`` threads, made when there is none yet; after a fork another one."""
    global _teams, _owner
    size, owner = thread_count(), os.getpid()
    found = _teams.get(size)
    if found is not None and _owner == owner:
        return found
    with _lock:
        if _owner != owner:
            # After a fork the old teams' threads are gone; their memory is left alone.
            _teams, _owner = {}, owner
        found = _teams.get(size)
        if found is None:
            while len(_teams) >= MAX_TEAMS:
                _teams.pop(next(iter(_teams))).close()
            found = _teams[size] = Team(size)
        return found


@atexit.register
def _close() -> None:
    if _owner == os.getpid():
        for each in _teams.values():
            each.close()
