"""When the steps of an arena's runs began and ended, taken down while they run and put together later.

Native steps leave a row of counts of the processor's clock for each native run (``kernels.ticks``), in memory that is
set aside before; calls of Python functions note the time before and after. Nothing is computed until somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from gpujit.kernels import ticks
from gpujit.kernels.ticks import CURSOR, LIMIT, WORDS
from gpujit.runtime import bytecode as bc
from gpujit.static_runtime.arrays import address_of
from gpujit.static_runtime.steps import Segment

# Runs of one arena that are kept; bytes of one native run's rows, of which memory is taken as they are filled.
MAX_RUNS, ROW_BYTES = 4096, 32 << 20


class Track:
    """Rows of counts of one native run, and the blocks to run it with: ``blocks`` is their address."""

    def __init__(self, blocks: Sequence[int]) -> None:
        self.words = len(blocks) + 1
        rows = max(2, min(4 * MAX_RUNS, ROW_BYTES // (8 * self.words)))
        # Not zeros, so that what is never written takes no memory.
        self.table = np.empty((rows, self.words), np.int64)
        self._blocks = np.array([0, 0, *blocks], np.int64)
        self.blocks = address_of(self._blocks) + 8 * WORDS
        # One row stays free for those that find no room.
        self._blocks[LIMIT] = address_of(self.table) + 8 * self.words * rows
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._blocks[CURSOR] = address_of(self.table)

    @property
    def rows(self) -> int:
        """Rows that are whole."""
        return int(self._blocks[CURSOR] - address_of(self.table)) // (8 * self.words)

    @property
    def is_full(self) -> bool:
        """Whether there was no room for some row."""
        return self.rows == len(self.table) - 1


# Instructions that call a function.
CALLS = (bc.OP1, bc.OP2, bc.OP3, bc.OP, bc.OPM)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run: a step by its position in the plan's order, or -1 - k for instruction k of the plan's code.

    Times are nanoseconds of ``time.perf_counter_ns``.
    """

    number: int
    start: float
    end: float


@dataclass(frozen=True)
class Taken:
    """The times of some runs.

    Args:
        runs: start and end of each, in nanoseconds.
        numbers: steps (see Span) in the order of the plan.
        seconds: what each step took in each run, all rounds of a loop together: a row a run, a column a step.
        entering: seconds of each run before its first step: arrays taken in, results made.
        leaving: seconds of each run behind its last step.
        lost: runs that there was no room for.
    """

    runs: np.ndarray
    numbers: tuple[int, ...]
    seconds: np.ndarray
    entering: np.ndarray
    leaving: np.ndarray
    lost: int

    @property
    def between(self) -> np.ndarray:
        """Seconds of each run between its steps: instructions that call nothing, getting in and out of native runs."""
        whole = (self.runs[:, 1] - self.runs[:, 0]) / 1e9
        left: np.ndarray = whole - self.entering - self.leaving - self.seconds.sum(axis=1)
        return left.clip(min=0.0)


class Recorder:
    """Takes down when the runs of some code, in one arena, and the steps in them began and ended.

    ``marks`` has the start and end of each run that raised nothing, in nanoseconds, one behind the other: numbers,
    since the collector of garbage looks at everything else.
    """

    def __init__(self, code: bc.Code, segments: Sequence[Segment] = ()) -> None:
        """``code`` is what runs; ``segments`` are its native runs, in the order in which they stand in it."""
        self.code, self.segments = code, segments
        self.tracks: dict[int, Track] = {}
        self.marks: list[int] = []
        # Starts and ends of the calls of each instruction.
        self.calls: dict[int, list[int]] = {}

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Start and end of each run that is kept."""
        return list(zip(self.marks[0 : 2 * MAX_RUNS : 2], self.marks[1 : 2 * MAX_RUNS : 2], strict=True))

    def track(self, segment: int, blocks: Sequence[int]) -> Track:
        """Where the native run of this number notes its times."""
        ticks.ticks()
        found = self.tracks[segment] = Track(blocks)
        return found

    def called(self, code: bc.Code) -> bc.Code:
        """The code, with the times of all functions that its instructions call taken down."""
        instructions = [
            (i[0], self.timed(-1 - k, i[1]), *i[2:]) if i[0] in CALLS else i for k, i in enumerate(code.instructions)
        ]
        return bc.Code(code.name, code.inputs, instructions, code.template, code.places, code.kinds)

    def timed(self, number: int, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its times taken down."""
        marks = self.calls[number] = []
        mark, now = marks.append, perf_counter_ns

        def run(*args: Any) -> Any:
            start = now()
            result = call(*args)
            mark(start)
            mark(now())
            return result

        return run

    def clear(self) -> None:
        """Forget all."""
        self.marks.clear()
        for marks in self.calls.values():
            marks.clear()
        for track in self.tracks.values():
            track.clear()

    def taken(self) -> Taken:
        """What was taken down so far; runs whose native steps found no room are left out."""
        runs = np.array(self.runs, np.float64).reshape(-1, 2)
        segments = {n: ticks.ticks().nanoseconds(t.table[: t.rows]) for n, t in self.tracks.items()}
        kept = len(runs)
        for number, rows in segments.items():
            if self.tracks[number].is_full and len(rows):
                # From the run on in which the last row was written.
                kept = min(kept, int(np.searchsorted(runs[:, 0], rows[-1, 0], "right")) - 1)
        kept = max(kept, 0)
        lost, runs = len(self.marks) // 2 - kept, runs[:kept]
        calls = self._called()
        numbers = self._numbers(calls)
        column = {n: k for k, n in enumerate(numbers)}
        seconds = np.zeros((kept, len(numbers)))
        first, last = np.full(kept, np.inf), np.full(kept, -np.inf)
        for number, rows in segments.items():
            of, inside = _run_of(runs, rows[:, 0])
            columns = np.array([column[s.position] for s in self.segments[number].steps], np.int64)
            np.add.at(seconds, (of[inside, None], columns), np.diff(rows[inside], axis=1) / 1e9)
            np.minimum.at(first, of[inside], rows[inside, 0])
            np.maximum.at(last, of[inside], rows[inside, -1])
        of, inside = _run_of(runs, calls[:, 1])
        columns = np.array([column[int(n)] for n in calls[inside, 0]], np.int64)
        np.add.at(seconds, (of[inside], columns), (calls[inside, 2] - calls[inside, 1]) / 1e9)
        np.minimum.at(first, of[inside], calls[inside, 1])
        np.maximum.at(last, of[inside], calls[inside, 2])
        none = ~np.isfinite(first)
        first[none], last[none] = runs[none, 1], runs[none, 1]
        entering = np.maximum(first - runs[:, 0], 0.0) / 1e9
        leaving = np.maximum(runs[:, 1] - last, 0.0) / 1e9
        return Taken(runs, numbers, seconds, entering, leaving, lost)

    def spans(self) -> Iterator[Span]:
        """Every step of every run, those of one native run together, in the order of their starts."""
        rows = []
        for number, track in self.tracks.items():
            positions = [s.position for s in self.segments[number].steps]
            rows += [(r[0], positions, r) for r in ticks.ticks().nanoseconds(track.table[: track.rows])]
        found = [(start, [int(number)], np.array([start, end])) for number, start, end in self._called().tolist()]
        for _, positions, times in sorted((*rows, *found), key=lambda row: row[0]):
            first = 0
            for k, position in enumerate(positions):
                if k + 1 == len(positions) or positions[k + 1] != position:
                    yield Span(position, float(times[first]), float(times[k + 1]))
                    first = k + 1

    def _called(self) -> np.ndarray:
        """Calls of instructions: number, start, end."""
        rows = [
            np.column_stack([np.full(len(m) // 2, n), np.array(m, np.float64).reshape(-1, 2)])
            for n, m in self.calls.items()
            if m
        ]
        return np.concatenate(rows) if rows else np.zeros((0, 3))

    def _numbers(self, calls: np.ndarray) -> tuple[int, ...]:
        """All steps, in the order of the code's instructions."""
        found: list[int] = []
        called = {int(n) for n in calls[:, 0]}
        segments = iter(self.segments)
        for k, kind in enumerate(self.code.kinds):
            if kind == "prim::NativeRun":
                # A kernel of several rounds is one step.
                found += dict.fromkeys(s.position for s in next(segments).steps)
            elif -1 - k in called:
                found.append(-1 - k)
        return tuple(found)


def _run_of(runs: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which run each time falls into, and which of the times fall into one."""
    if not len(runs):
        return np.zeros(len(times), np.int64), np.zeros(len(times), bool)
    of = np.searchsorted(runs[:, 0], times, "right") - 1
    inside = (of >= 0) & (times <= runs[np.maximum(of, 0), 1])
    return of, inside
