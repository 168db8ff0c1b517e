"""When the steps of a plan's runs on a GPU began and ended: events on the stream, and the host's clock around the rest.

A run whose times are taken goes call by call, without its graphs, and waits for the device behind each run of steps
and each call on the host: so none is in the other's time. The events of a run of steps count from a look at the host's
clock just before the first of them. They are read when the profile is made, or when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary, proxy

import numpy as np

from gpujit.runtime import bytecode as bc
from gpujit.runtime.device import GpuDevice, Handle
from gpujit.static_runtime.clock import CALLS, MAX_RUNS, Span, Taken
from gpujit.static_runtime.device_build import DevicePlan, DeviceSegment, ViewStep
from gpujit.static_runtime.device_run import DeviceArena
from gpujit.static_runtime.device_segments import SegmentRun

# Events that wait to be read; spans that are kept.
MAX_EVENTS, MAX_SPANS = 16_384, 65_536
now = perf_counter_ns


@dataclass
class _Run:
    """What is known of one run: seconds of its steps, and when the first began and the last ended."""

    seconds: dict[int, float] = field(default_factory=dict)
    first: float = float("inf")
    last: float = float("-inf")


class _Lap:
    """One run of steps: ``numbers`` say what the time between each event and the next one belongs to."""

    def __init__(self, recorder: DeviceRecorder, run: int, instruction: int, stream: Handle) -> None:
        self.run, self.stream = run, stream
        self._recorder, self._instruction = recorder, instruction
        self.numbers: list[int] = []
        # One more than numbers; the host's time just before the first.
        self.events: list[Handle] = []
        self.start = 0

    def begin(self) -> None:
        """Count from now on."""
        first = self._event()
        self.start = now()
        self._recorder.device.record(first, self.stream)

    def mark(self, number: int | None) -> None:
        """See device_run.Lap; copies are those of the instruction."""
        self._recorder.device.record(self._event(), self.stream)
        self.numbers.append(self._instruction if number is None else number)

    def _event(self) -> Handle:
        found = self._recorder.event()
        self.events.append(found)
        return found


def copies_of(plan: DevicePlan) -> tuple[int, int]:
    """The numbers that stand for copies of inputs and of results."""
    behind = -1 - len(plan.code.instructions)
    return behind, behind - 1


class DeviceRecorder:
    """Does runs of one plan on a device and takes down when they and their steps began and ended.

    Steps are numbered as Span says; the instruction of a run of steps stands for the copies before and after them.
    ``inputs`` and ``outputs``, behind all instructions, stand for copies of what is given to a run and of its results.
    ``is_host_input``: whether something of that came from the host.
    """

    def __init__(self, device: GpuDevice, plan: DevicePlan) -> None:
        self.device, self.plan = device, plan
        self.inputs, self.outputs = copies_of(plan)
        self.is_host_input = False
        # Start and end of all runs that raised nothing, one behind the other, of which the first MAX_RUNS have steps.
        self.marks: list[int] = []
        self._codes: WeakKeyDictionary[DeviceArena, bc.Code] = WeakKeyDictionary()
        self._laps: list[_Lap] = []
        self._idle: list[Handle] = []
        self._waiting = 0
        self._is_running = False
        self._runs: dict[int, _Run] = {}
        self._spans: list[tuple[int, Span]] = []

    def run(self, arena: DeviceArena, values: Sequence[Any]) -> Any:
        """A run of a runtime of the plan, when it is done on the device. Raises what the run raises."""
        device, number = self.device, len(self.marks) // 2
        if self._is_running:
            # An operator on the host called the module that it is in: that is a part of its time.
            return arena.run(values)
        code = self._code(arena) if number < MAX_RUNS else None
        # What came before is not in its time.
        device.synchronise(device.stream())
        start = now()
        self._is_running = True
        try:
            result = arena.run(values, code, self if code is not None else None)
            device.synchronise(arena.stream)
        except BaseException:
            self._forget(number)
            raise
        finally:
            self._is_running = False
        self.marks += (start, now())
        return result

    def moved(self, is_input: bool, call: Callable[[Any], Any], value: Any) -> Any:
        """See device_run.Watch."""
        if is_input:
            if not self.plan.inputs:
                return call(value)
            self.is_host_input |= any(type(value[i]) is np.ndarray for i in self.plan.inputs)
        lap = self._lap(self.inputs if is_input else self.outputs)
        result = call(value)
        lap.mark(None)
        self.device.synchronise(lap.stream)
        return result

    def event(self) -> Handle:
        """An event that nobody waits for."""
        self._waiting += 1
        return self._idle.pop() if self._idle else self.device.event()

    def _code(self, arena: DeviceArena) -> bc.Code:
        found = self._codes.get(arena)
        if found is None:
            code, me = arena.code, proxy(arena)
            instructions = []
            for k, i in enumerate(code.instructions):
                if i[0] in CALLS and self.plan.code.instructions[k][0] != bc.GET:
                    run = self._timed(me, -1 - k, i[1], self.plan.code.instructions[k][1])
                    i = (i[0], run, *i[2:])
                instructions.append(i)
            found = bc.Code(code.name, code.inputs, instructions, code.template, code.places, code.kinds)
            self._codes[arena] = found
        return found

    def _timed(self, arena: DeviceArena, number: int, call: Callable[..., Any], planned: Any) -> Callable[..., Any]:
        """What an instruction calls, with its times taken down."""
        if isinstance(call, SegmentRun):
            return partial(self._steps, arena, number, call)
        return partial(self._call, None if isinstance(planned, ViewStep) else arena, number, call)

    def _steps(self, arena: DeviceArena, number: int, steps: SegmentRun, *arrays: Any) -> Any:
        self.device.synchronise(arena.stream)
        lap = self._lap(number)
        result = steps.timed(lap, *arrays)
        self.device.synchronise(lap.stream)
        return result

    def _lap(self, number: int) -> _Lap:
        """A lap that begins now, on the stream of the run."""
        if self._waiting >= MAX_EVENTS:
            self._read()
        lap = _Lap(self, len(self.marks) // 2, number, self.device.stream())
        self._laps.append(lap)
        lap.begin()
        return lap

    def _call(self, arena: DeviceArena | None, number: int, call: Callable[..., Any], *values: Any) -> Any:
        """A call on the host, before and after which the device is waited for; without an arena it is not."""
        device = self.device
        if arena is not None:
            device.synchronise(arena.stream)
        start = now()
        result = call(*values)
        if arena is not None:
            device.synchronise(arena.stream)
        self._add(len(self.marks) // 2, number, start, now())
        return result

    def _forget(self, run: int) -> None:
        """Leave a run out that raised."""
        for lap in self._laps:
            if lap.run == run:
                self._idle += lap.events
                self._waiting -= len(lap.events)
        self._laps = [lap for lap in self._laps if lap.run != run]
        self._runs.pop(run, None)
        self._spans = [s for s in self._spans if s[0] != run]

    def _read(self) -> None:
        """Take the times from events that were passed."""
        for lap in self._laps:
            first = lap.events[0]
            ends = [lap.start + self.device.elapsed(first, e) for e in lap.events]
            for number, start, end in zip(lap.numbers, ends[:-1], ends[1:], strict=True):
                self._add(lap.run, number, start, max(end, start))
            self._idle += lap.events
        self._laps.clear()
        self._waiting = 0

    def _add(self, run: int, number: int, start: float, end: float) -> None:
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = _Run()
        found.seconds[number] = found.seconds.get(number, 0.0) + (end - start) / 1e9
        found.first, found.last = min(found.first, start), max(found.last, end)
        if len(self._spans) < MAX_SPANS:
            self._spans.append((run, Span(number, start, end)))

    # Afterwards

    def taken(self) -> Taken:
        """The times of all runs so far. Raises DeviceError when the device cannot say them any more."""
        with self.device.here():
            self._read()
        kept = min(len(self.marks) // 2, MAX_RUNS)
        runs = np.array(self.marks[: 2 * kept], np.float64).reshape(-1, 2)
        numbers = self._numbers()
        column = {n: k for k, n in enumerate(numbers)}
        seconds, entering, leaving = np.zeros((kept, len(numbers))), np.zeros(kept), np.zeros(kept)
        for k, (start, end) in enumerate(runs.tolist()):
            run = self._runs.get(k, _Run())
            for number, spent in run.seconds.items():
                seconds[k, column[number]] = spent
            entering[k] = max(min(run.first, end) - start, 0.0) / 1e9
            leaving[k] = max(end - max(run.last, start), 0.0) / 1e9 if run.seconds else 0.0
        return Taken(runs, numbers, seconds, entering, leaving, len(self.marks) // 2 - kept)

    def spans(self) -> list[Span]:
        """Every step of every run that is kept, in the order of their starts."""
        return sorted((s for _, s in self._spans), key=lambda s: s.start)

    def _numbers(self) -> tuple[int, ...]:
        """All steps that ran, in the order of the code's instructions."""
        ran = {n for run in self._runs.values() for n in run.seconds}
        found = [self.inputs]
        for k, instruction in enumerate(self.plan.code.instructions):
            found.append(-1 - k)
            what = instruction[1] if len(instruction) > 1 else None
            if isinstance(what, DeviceSegment):
                found += (s.position for s in what.steps)
        found.append(self.outputs)
        return tuple(n for n in dict.fromkeys(found) if n in ran)
