"""The worker team: every part of every step is done once, whoever is late, asleep or elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.kernels import native, team
from gpujit.kernels.team import Team
from gpujit.kernels.team_code import LINE, OFFSETS, PROCESSOR, THREAD, can_move

# Counts calls of each part in the block, and keeps busy for as many turns as the block's word 32 says.
COUNTING = """
define void @count(ptr %block, i64 %part, i64 %parts) {
entry:
  %word = getelementptr i64, ptr %block, i64 %part
  %before = load i64, ptr %word
  %after = add i64 %before, 1
  store i64 %after, ptr %word
  %many = getelementptr i64, ptr %block, i64 32
  %turns = load i64, ptr %many
  %of = getelementptr i64, ptr %block, i64 33
  store i64 %parts, ptr %of
  %slot = alloca i64
  br label %turn
turn:
  %i = phi i64 [0, %entry], [%next, %turn]
  %next = add i64 %i, 1
  store volatile i64 %next, ptr %slot
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %turn, label %out
out:
  ret void
}

; Fails to count when the step before it was not over: its block is behind the one of that step.
define void @check(ptr %block, i64 %part, i64 %parts) {
entry:
  %before = getelementptr i64, ptr %block, i64 -40
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %fine]
  %theirs = getelementptr i64, ptr %before, i64 %i
  %count = load i64, ptr %theirs
  %mine = getelementptr i64, ptr %block, i64 %part
  %own = load i64, ptr %mine
  %late = icmp sle i64 %count, %own
  br i1 %late, label %out, label %fine
fine:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %parts
  br i1 %more, label %look, label %good
good:
  %after = add i64 %own, 1
  store i64 %after, ptr %mine
  br label %out
out:
  ret void
}
"""
WORDS = 40


@pytest.fixture(scope="module")
def library() -> native.Library:
    return native.Library(native.compile_ir([COUNTING]))


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[Team]:
    made = Team(request.param)
    yield made
    made.close()
    assert not any(t.is_alive() for t in made._threads)


class Job:
    """A list of steps with blocks of their own; after each one that counts, one that checks that it is over."""

    def __init__(self, library: native.Library, steps: int, turns: int) -> None:
        self.blocks = np.zeros((2 * steps, WORDS), np.int64)
        self.blocks[::2, 32] = turns
        names = ["count", "check"] * steps
        self.functions = np.array([library.address(n) for n in names], np.int64)
        self.addresses = np.array([row.ctypes.data for row in self.blocks], np.int64)
        self.runs = 0

    def run(self, team: Team) -> None:
        team.run(team.address, self.functions.ctypes.data, self.addresses.ctypes.data, len(self.functions))
        self.runs += 1

    def assert_done(self, parts: int) -> None:
        assert (self.blocks[:, :parts] == self.runs).all()
        assert not self.blocks[:, parts:32].any()


def test_each_part_of_each_step_is_done_once(threads: Team, library: native.Library) -> None:
    for turns in (0, 3000):
        job = Job(library, 4, turns)
        for _ in range(300):
            job.run(threads)
        job.assert_done(threads.size)


def test_workers_that_sleep_are_woken(threads: Team, library: native.Library) -> None:
    job = Job(library, 2, 20_000)
    for _ in range(10):
        # Longer than they wait.
        time.sleep(0.004)
        job.run(threads)
    job.assert_done(threads.size)


@pytest.mark.skipif(
    not can_move() or len(os.sched_getaffinity(0)) < 2, reason="there is no other processor to go to, or no way to"
)
def test_a_worker_asleep_on_the_callers_processor_is_sent_elsewhere(library: native.Library) -> None:
    allowed = os.sched_getaffinity(0)
    made = Team(2)
    try:
        # Long enough that somebody is woken for it.
        job = Job(library, 2, 1_000_000)
        job.run(made)
        time.sleep(0.02)
        at = made._offset + OFFSETS["taken"] + LINE + PROCESSOR
        asleep_at = int(made._memory[at : at + 4].view(np.int32)[0])
        os.sched_setaffinity(0, {asleep_at})
        job.run(made)
        worker = made._threads[0].native_id
        assert worker is not None and os.sched_getaffinity(worker) == allowed - {asleep_at}
        job.assert_done(2)
    finally:
        os.sched_setaffinity(0, allowed)
        made.close()


@pytest.mark.skipif(not can_move() or len(os.sched_getaffinity(0)) < 2, reason="nobody is sent anywhere")
def test_only_workers_are_sent_elsewhere(library: native.Library) -> None:
    """A line of nobody, be it not begun or left, holds the number 0, by which the kernel knows the caller."""
    allowed = os.sched_getaffinity(0)
    made = Team(3)
    try:
        job = Job(library, 2, 1_000_000)
        job.run(made)
        at = made._offset + OFFSETS["taken"] + 2 * LINE
        for processor in allowed:
            time.sleep(0.02)
            made._memory[at + PROCESSOR : at + PROCESSOR + 4].view(np.int32)[0] = processor
            made._memory[at + THREAD : at + THREAD + 8].view(np.int64)[0] = 0
            job.run(made)
            assert os.sched_getaffinity(0) == allowed
        made.close()
        numbers = [made._offset + OFFSETS["taken"] + k * LINE + THREAD for k in (1, 2)]
        assert [made._memory[n : n + 8].view(np.int64)[0] for n in numbers] == [0, 0]
    finally:
        os.sched_setaffinity(0, allowed)
        made.close()


def test_more_threads_than_processors_and_breaks(library: native.Library) -> None:
    made = Team(8)
    try:
        job = Job(library, 3, 500)
        for k in range(150):
            job.run(made)
            if k % 30 == 0:
                time.sleep(0.002)
        job.assert_done(8)
    finally:
        made.close()


def test_jobs_of_many_threads_at_once(threads: Team, library: native.Library) -> None:
    jobs = [Job(library, 3, 200) for _ in range(4)]

    def work(job: Job) -> None:
        for k in range(200):
            job.run(threads)
            if k % 50 == 0:
                time.sleep(0.002)

    callers = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for job in jobs:
        counted = job.blocks[::2, : threads.size]
        assert (counted[:, 0] == 200).all()
        # Who found the team busy did all in one part.
        assert (counted[:, 1:] == counted[0, -1]).all() and counted[0, -1] <= 200


def test_an_empty_job_and_a_closed_team(library: native.Library) -> None:
    made = Team(3)
    job = Job(library, 1, 0)
    made.run(made.address, job.functions.ctypes.data, job.addresses.ctypes.data, 0)
    assert not job.blocks[:, :32].any()
    made.close()
    job.run(made)
    job.assert_done(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_makes_its_own_team(library: native.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "thread_count", lambda: 3)
    ours = team.team()
    job = Job(library, 2, 1000)
    job.run(ours)
    child = os.fork()
    if not child:
        status = 1
        try:
            theirs = team.team()
            job.run(theirs)
            job.assert_done(3)
            status = 0 if theirs is not ours else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    job.run(ours)
    job.assert_done(3)
