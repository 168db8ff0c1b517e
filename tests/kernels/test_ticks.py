"""The team's loop with a look at the clock after each step."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from gpujit.kernels import supply, ticks
from gpujit.kernels.native import Library
from gpujit.kernels.team import alone, team, team_run
from gpujit.support.config import config

# A step that counts its block's word up, for each part once.
_CODE = """
define void @count(ptr %block, i64 %part, i64 %parts) {
  %before = atomicrmw add ptr %block, i64 1 seq_cst
  ret void
}
"""
STEPS = 5


@pytest.fixture(scope="module")
def library() -> Library:
    return supply.module(_CODE, lambda: _CODE, 1)


class Job:
    """Steps that count, behind the two words that say where times go."""

    def __init__(self, library: Library, rows: int) -> None:
        self.table = np.zeros((rows, STEPS + 1), np.int64)
        self.counters = np.zeros((STEPS, 8), np.int64)
        self.functions = np.full(STEPS, library.address("count"), np.int64)
        self.blocks = np.zeros(ticks.WORDS + STEPS, np.int64)
        self.blocks[ticks.LIMIT] = self.table.ctypes.data + self.table.nbytes
        self.blocks[ticks.CURSOR] = self.table.ctypes.data
        self.blocks[ticks.WORDS :] = self.counters.ctypes.data + 64 * np.arange(STEPS)

    def run(self, where: int, run: int, count: int = STEPS) -> None:
        team_run(run)(where, self.functions.ctypes.data, self.blocks.ctypes.data + 8 * ticks.WORDS, count)

    @property
    def rows(self) -> int:
        return int(self.blocks[ticks.CURSOR] - self.table.ctypes.data) // (8 * (STEPS + 1))


@pytest.fixture(params=[1, 3])
def parts(request: pytest.FixtureRequest) -> Iterator[int]:
    with config(threads=request.param):
        yield request.param


def test_steps_run_as_without_the_clock_and_leave_a_row(library: Library, parts: int) -> None:
    job = Job(library, 4)
    where = alone() if parts == 1 else team().address
    before = time.perf_counter_ns()
    job.run(where, ticks.run_address())
    after = time.perf_counter_ns()
    assert job.counters[:, 0].tolist() == [parts] * STEPS
    assert job.rows == 1
    times = ticks.ticks().nanoseconds(job.table[0])
    assert (np.diff(times) >= 0).all()
    # Times of Python's own clock, within a part of a millisecond.
    assert before - 200_000 < times[0] and times[-1] < after + 200_000


def test_when_the_table_is_full_steps_still_run(library: Library) -> None:
    job = Job(library, 3)
    for _ in range(10):
        job.run(alone(), ticks.run_address())
    assert job.counters[:, 0].tolist() == [10] * STEPS
    assert job.rows == 2 and job.table[:2].all()


def test_a_job_of_no_steps(library: Library) -> None:
    job = Job(library, 2)
    job.run(alone(), ticks.run_address(), 0)
    assert not job.counters.any()


def test_both_ways_of_looking_at_the_clock(library: Library) -> None:
    for counts in (True, False):
        code = ticks.ticks_ir(counts)
        found = supply.module(f"test {counts}\n{code}", lambda code=code: code, 1)  # type: ignore[misc]
        job = Job(library, 2)
        job.run(alone(), found.address("gpujit_team_run_timed"))
        assert job.rows == 1 and (np.diff(job.table[0]) >= 0).all()
        if not counts:
            now = time.perf_counter_ns()
            assert now - 10**9 < job.table[0, 0] <= now


def test_only_a_steady_counter_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks.platform, "machine", lambda: "x86_64")
    assert ticks.has_steady_counter("model name: x\nflags\t: fpu constant_tsc nonstop_tsc\n")
    assert not ticks.has_steady_counter("flags\t: fpu constant_tsc\n")
    assert not ticks.has_steady_counter("")
    monkeypatch.setattr(ticks.platform, "machine", lambda: "aarch64")
    assert not ticks.has_steady_counter("flags\t: constant_tsc nonstop_tsc\n")


def test_counts_become_nanoseconds() -> None:
    clock = ticks.ticks()
    first = clock._both()
    time.sleep(0.03)
    second = clock._both()
    found = clock.nanoseconds(np.array([first[0], second[0]], np.int64))
    assert found[1] - found[0] == pytest.approx(second[1] - first[1], rel=0.01)
