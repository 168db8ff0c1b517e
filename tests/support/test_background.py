"""Work behind the caller's back: in order, with the caller's switches, and gone with the process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest

from gpujit.support import background
from gpujit.support.config import Overrides, Settings, config, current


def test_work_is_done_in_order_in_one_thread_that_goes_away() -> None:
    seen: list[tuple[int, str]] = []
    jobs = [
        background.submit(lambda k=k: seen.append((k, threading.current_thread().name)))  # type: ignore[misc]
        for k in range(20)
    ]
    assert all(job.wait(10) and job.is_done for job in jobs)
    assert seen == [(k, "gpujit-background") for k in range(20)]
    for _ in range(100):
        if not any(t.name == "gpujit-background" for t in threading.enumerate()):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the thread is still there")
    assert background.submit(lambda: None).wait(10)


def test_what_nobody_waits_for_is_done_last() -> None:
    hold, seen = threading.Event(), list[str]()
    background.submit(lambda: hold.wait(10))
    last = background.submit_idle(lambda: seen.append("idle"))
    for k in range(3):
        background.submit(lambda k=k: seen.append(str(k)))  # type: ignore[misc]
    hold.set()
    assert last.wait(10) and seen == ["0", "1", "2", "idle"]


def test_work_sees_the_switches_of_who_handed_it_over() -> None:
    found: list[object] = []
    with config(threads=7):
        job = background.submit(lambda: found.append(config.threads))
    assert job.wait(10) and found == [7]


def test_a_fault_is_logged_and_the_next_work_is_done(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("no good")

    with caplog.at_level(logging.WARNING):
        assert background.submit(fail).wait(10) and background.submit(lambda: None).wait(10)
    assert "no good" in caplog.text


LEAVING = """
import sys, time
from gpujit.support import background

def long():
    for k in range(10_000):
        background.checkpoint()
        time.sleep(0.01)
    print("to the end")

job = background.submit(long)
background.submit(lambda: print("next"))
time.sleep(0.1)
print("leaving")
"""


def test_a_process_that_ends_stops_the_work_and_waits_for_it() -> None:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")
    assert time.monotonic() - start < 30


def _in_a_fork(queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    job = background.submit(lambda: None)
    queue.put((_pending.is_done, job.wait(10)))


_pending = background.submit(lambda: None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_its_own_work_and_not_its_parents() -> None:
    global _pending
    hold = threading.Event()
    _pending = background.submit(lambda: hold.wait(30))
    try:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_a_fork, args=(queue,))
        child.start()
        assert queue.get(timeout=30) == (True, True)
        child.join(30)
        assert child.exitcode == 0 and not _pending.is_done
    finally:
        hold.set()
    assert _pending.wait(10)


def test_overrides_follow_the_settings_they_change() -> None:
    def one_more(settings: Settings) -> Settings:
        from dataclasses import replace

        return replace(settings, threads=(settings.threads or 0) + 1)

    overrides = Overrides(one_more)
    for threads in (4, 6, 4):
        with config(threads=threads, check_plan=True):
            token = overrides.begin()
            try:
                assert (config.threads, config.check_plan) == (threads + 1, True)
            finally:
                overrides.end(token)
            assert config.threads == threads
    assert current().threads is None or isinstance(current().threads, int)
