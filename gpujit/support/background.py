"""Work done behind the caller's back: one thread, which goes when there is nothing to do and when the process ends.

It is a daemon thread, so that a process may end at any time; at its end the work under way is stopped where it next
asks (``checkpoint``), and waited for, since native compilers do not survive their process being torn down.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from gpujit.support.forks import after_fork
from gpujit.support.watch import unwatched

log = logging.getLogger("gpujit.background")


class Stopped(BaseException):
    """Raised by ``checkpoint`` in work that is to end. No Exception: nothing may go on instead."""


class Job:
    """A piece of work that was handed over."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._context = copy_context()
        # Who watches calls does not watch what is done behind them.
        self._context.run(unwatched)
        self._owner = os.getpid()
        self._done = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, one way or another; also true in a process forked since, which does not do it."""
        return self._done.is_set() or self._owner != os.getpid()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; whether it has."""
        return self._owner != os.getpid() or self._done.wait(timeout)

    def run(self) -> None:
        """Do it, with the switches that held where it was handed over."""
        try:
            self._context.run(self._work)
        except Stopped:
            pass
        except Exception:
            # Whoever hands over work deals with its errors; this one comes from what a process loses as it ends.
            log.warning("work in the background failed", exc_info=True)
        finally:
            self._done.set()


class _Worker:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[Job] = deque()
        # What can wait for all the other.
        self.idle: deque[Job] = deque()
        self.thread: threading.Thread | None = None
        self.is_ending = False

    def add(self, job: Job, queue: deque[Job]) -> None:
        with self.lock:
            queue.append(job)
            if self.thread is None and not self.is_ending:
                self.thread = threading.Thread(target=self.loop, name="gpujit-background", daemon=True)
                self.thread.start()

    def loop(self) -> None:
        while True:
            with self.lock:
                queue = self.waiting or self.idle
                if self.is_ending or not queue:
                    self.thread = None
                    return
                job = queue.popleft()
            job.run()

    def end(self) -> None:
        with self.lock:
            self.is_ending = True
            thread = self.thread
        if thread is not None:
            thread.join()


_worker = _Worker()


def submit(work: Callable[[], object]) -> Job:
    """Have something done in the background, after what was handed over before."""
    job = Job(work)
    _worker.add(job, _worker.waiting)
    return job


def submit_idle(work: Callable[[], object]) -> Job:
    """Have something done in the background when there is nothing else to do, which nobody waits for."""
    job = Job(work)
    _worker.add(job, _worker.idle)
    return job


def checkpoint() -> None:
    """A place where work may be stopped. Raises Stopped in the background thread of a process that is ending."""
    if _worker.is_ending and threading.current_thread() is _worker.thread:
        raise Stopped


@atexit.register
def _end() -> None:
    _worker.end()


@after_fork
def _after_fork() -> None:
    # The thread stayed behind, perhaps with the lock.
    global _worker
    _worker = _Worker()
