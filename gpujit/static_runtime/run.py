"""A runtime: one arena, the blocks of native steps with its addresses, and the plan's code bound to both.

One thread uses a runtime at a time; ``PlannedGraph`` keeps a pool of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from gpujit.ir.graph import Value
from gpujit.kernels.team import team
from gpujit.runtime import bytecode as bc
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime import enter
from gpujit.static_runtime.arrays import ALIGN, address_of, aligned, arrays_in
from gpujit.static_runtime.clock import CALLS, Recorder
from gpujit.static_runtime.native_run import NativeRun
from gpujit.static_runtime.plan import overlaps
from gpujit.static_runtime.steps import OutStep, Segment, Slot, StaticPlan
from gpujit.support.errors import InternalError, LimitError

_POISON = 0xA5
_INTERPRETER = Interpreter(Lowerer(np))


class Arena:
    """One arena and all that points into it.

    Args:
        plan: the plan.
        check: look for overlaps and poison what is free before each step.
        recorder: takes down when each step began and ended; see TimedArena.
    Raises LimitError when there is no memory for the arena.
    """

    def __init__(self, plan: StaticPlan, *, check: bool = False, recorder: Recorder | None = None) -> None:
        self.plan, self.check, self.recorder = plan, check, recorder
        # Strides of arrays that were not those planned for, by the number of a run and of its operand.
        self.surprises: dict[tuple[int, int], tuple[int, ...]] = {}
        # Arrays to make results in, by the result's place among those of its run.
        self.targets: dict[Value, np.ndarray] = {}
        self._poisoned = -1
        # Native runs as functions of a row of any values, which give NotImplemented for arrays that lie otherwise.
        self.quick_runs: dict[int, Callable[[Sequence[Any]], Any]] = {}
        # What such a function is for a call's values but the object, when the graph is that run and was seen to work.
        self.quick: Callable[[Sequence[Any]], Any] | None = None
        # Whether a run's results were seen to lie outside the arena.
        self._is_proven = False
        size = plan.arena.size
        try:
            self.memory = np.empty(size + ALIGN, np.uint8)
        except MemoryError:
            raise LimitError(f"there is no memory for an arena of {size} bytes") from None
        start = -address_of(self.memory) % ALIGN
        self.arena = self.memory[start : start + size]
        base = address_of(self.memory) + start
        self.blocks = plan.words.copy()
        self.blocks[plan.arena_words[:, 0]] = base + plan.arena_words[:, 1]
        self.words = memoryview(self.blocks)  # type: ignore[arg-type]  # it is a buffer
        self.flags = np.zeros(max(plan.checks, 1), np.int64)
        self.blocks[plan.flag_words[:, 0]] = address_of(self.flags) + plan.flag_words[:, 1] * 8
        # What native code was given the addresses of.
        self.jobs: list[enter.Job] = []
        self.parts = 0
        self.scratch = np.empty(0, np.uint8)
        # Held, since small runs call its code without asking for the team again.
        self.team = team()
        self.make_scratch(self.team.size)
        starts = np.array([s.first_word for g in plan.segments for s in g.steps], np.int64)
        self.block_addresses = address_of(self.blocks) + 8 * starts
        self._arrays: dict[Slot, np.ndarray] = {}
        self.code = self._bound(plan.code)
        self._direct = self._one_run()
        if check:
            found = overlaps(plan.buffers, plan.arena.offsets)
            if found is not None:
                raise InternalError(f"buffers {found[0]} and {found[1]} of the arena overlap")

    @property
    def nbytes(self) -> int:
        """Bytes of the arena and of scratch memory."""
        return self.memory.nbytes + self.scratch.nbytes

    def make_scratch(self, parts: int) -> None:
        """Have scratch memory for so many threads. Raises LimitError."""
        if parts > self.parts and self.plan.scratch:
            size = self.plan.scratch * parts
            try:
                self.scratch = aligned((size,), np.dtype(np.uint8), size)
            except MemoryError:
                arena = self.plan.arena.size
                raise LimitError(
                    f"there is no memory for {size} bytes of scratch, beside an arena of {arena} bytes"
                ) from None
            self.blocks[self.plan.scratch_words] = address_of(self.scratch)
        self.parts = max(parts, self.parts)

    def run(self, values: Sequence[Any]) -> Any:
        """The graph's result for run-time values of its inputs, without warnings of NumPy's."""
        if not self.plan.is_quiet:
            with np.errstate(all="ignore"):
                return self._run(values)
        return self._run(values)

    def _run(self, values: Sequence[Any]) -> Any:
        if self._is_proven:
            direct = self._direct
            if direct is None:
                return _INTERPRETER.run(self.code, values)
            # The graph is one native run: the interpreter would only hand it its inputs.
            return direct[0](*[values[k] for k in direct[1]])
        if self.check:
            self._poison_all()
        result = _INTERPRETER.run(self.code, values)
        for x in arrays_in(result):
            if np.may_share_memory(x, self.memory):
                raise InternalError("a result lies in the arena: an operator returned an operand, and does not say so")
        if self.check:
            self._poison_all()
        else:
            # Where there are branches, the next call may go another way.
            self._is_proven = self.plan.is_straight
            if self._is_proven and self._is_plain():
                self.quick = self.quick_runs.get(0)
        return result

    # Binding the code

    def array(self, slot: Slot) -> np.ndarray:
        """The tensor of a slot in this arena."""
        found = self._arrays.get(slot)
        if found is None:
            found = self._arrays[slot] = np.ndarray(slot.shape, slot.dtype, self.arena, slot.offset, slot.strides)
        return found

    def _bound(self, code: bc.Code) -> bc.Code:
        instructions = []
        for number, instruction in enumerate(code.instructions):
            what = instruction[1] if len(instruction) > 1 else None
            bound: Callable[..., Any] | None = None
            if isinstance(what, Segment):
                bound = NativeRun(self, what).function()
            elif isinstance(what, OutStep):
                bound = self._out_step(what)
            if self.recorder is not None and instruction[0] in CALLS and not isinstance(what, Segment):
                called: Callable[..., Any] = bound or what  # type: ignore[assignment]  # such instructions have a function
                bound = self.recorder.timed(-1 - number, called)
            if bound is not None:
                instruction = (instruction[0], bound, *instruction[2:])
            instructions.append(instruction)
        template = [self._filled(v) for v in code.template]
        return bc.Code(code.name, code.inputs, instructions, template, code.places, code.kinds)

    def _one_run(self) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
        """The only native run of a graph that consists of it, and the inputs it takes; None for other graphs, and for
        runs that raise errors of the program, whose places the interpreter knows."""
        plan = self.plan
        ran, returned = self.code.instructions[0], self.code.instructions[-1]
        if len(self.code.instructions) != 2 or len(plan.segments) != 1 or plan.checks:
            return None
        registers = {bc.OP1: ran[2:3], bc.OP2: ran[2:4], bc.OP3: ran[2:5], bc.OP: ran[2]}.get(ran[0])
        if registers is None or returned[1] != ran[-2] or any(k >= self.code.inputs for k in registers):
            return None
        return ran[1], tuple(registers)

    def _is_plain(self) -> bool:
        """Whether the graph is one native run of all its inputs but the first, the object, in their order."""
        return (
            self._direct is not None
            and self.recorder is None
            and self.plan.is_quiet
            and self._direct[1] == tuple(range(1, len(self.plan.graph.inputs)))
        )

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Slot):
            return self.array(value)
        if type(value) is list and any(isinstance(v, (Slot, list)) for v in value):
            return [self._filled(v) for v in value]
        return value

    def _out_step(self, step: OutStep) -> Callable[..., Any]:
        arrays = [self.array(s) for s in step.slots]
        out = arrays[0] if len(arrays) == 1 else tuple(arrays)
        call: Callable[..., Any] = partial(step.kernel, out)
        if not self.check:
            return call

        def checked(*args: Any) -> Any:
            self.poison(step.position)
            return call(*args)

        return checked

    # Debugging

    def poison(self, step: int) -> None:
        """Fill what died before ``step`` with values that show when they are read."""
        plan = self.plan
        if step <= self._poisoned:
            # Another round of a loop has begun.
            self._poisoned = step - 1
        for k, buffer in enumerate(plan.lifetimes):
            if self._poisoned < buffer.last + 1 <= step and not self._is_shared(k, buffer.last):
                self._fill(k)
        self._poisoned = step

    def _is_shared(self, k: int, step: int) -> bool:
        """Whether another value was written over a value at the step at which that died."""
        plan = self.plan
        mine = plan.offsets[k], plan.offsets[k] + plan.lifetimes[k].size
        return any(
            other.first == step and plan.offsets[i] < mine[1] and mine[0] < plan.offsets[i] + other.size
            for i, other in enumerate(plan.lifetimes)
            if i != k
        )

    def _fill(self, k: int) -> None:
        plan = self.plan
        start, size = plan.offsets[k], plan.lifetimes[k].size
        part = self.arena[start : start + size]
        part[:] = _POISON
        if plan.dtypes[k].kind in "fc":
            part.view(plan.dtypes[k])[:] = np.nan

    def _poison_all(self) -> None:
        self.arena[:] = _POISON
        for k in range(len(self.plan.lifetimes)):
            self._fill(k)
        self._poisoned = -1


class TimedArena(Arena):
    """An arena whose ``recorder`` has the times of its runs, of those that raise nothing, and of their steps."""

    recorder: Recorder

    def __init__(self, plan: StaticPlan, *, check: bool = False) -> None:
        super().__init__(plan, check=check, recorder=Recorder(plan.code, plan.segments))

    def run(self, values: Sequence[Any]) -> Any:
        """As Arena.run."""
        start = perf_counter_ns()
        result = Arena.run(self, values)
        mark = self.recorder.marks.append
        mark(start)
        mark(perf_counter_ns())
        return result
