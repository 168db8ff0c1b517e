"""A runtime: one arena, the blocks of native steps with its addresses, and the plan's code bound to both.

One thread uses a runtime at a time; ``StaticModule`` keeps a pool of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gpujit.ir.graph import Value
from gpujit.kernels.team import alone, team
from gpujit.runtime import bytecode as bc
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime import enter
from gpujit.static_runtime.plan import overlaps
from gpujit.static_runtime.steps import Operand, OutStep, Segment, Slot, StaticPlan
from gpujit.support.errors import InternalError, LimitError, OpError

ALIGN = 64
_POISON = 0xA5
_DATA = 16
_word_at = ctypes.c_int64.from_address

# Instructions that call a function.
_CALLS = (bc.OP1, bc.OP2, bc.OP3, bc.OP, bc.OPM)
# A team of nobody but the caller.
_ALONE = alone()
_INTERPRETER = Interpreter(Lowerer(np))


def _slow_address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _quick_address(x: np.ndarray) -> int:
    return int(_word_at(id(x) + _DATA).value)


def _objects_hold_data() -> bool:
    """Whether array objects keep the address of their data behind the header of every object, as CPython's do."""
    x = np.zeros(3)
    try:
        return x.__sizeof__() >= 64 and object.__basicsize__ == _DATA and _quick_address(x) == _slow_address(x)
    except (AttributeError, ValueError):
        return False


address_of: Callable[[np.ndarray], int] = _quick_address if _objects_hold_data() else _slow_address


def aligned(shape: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    """A new contiguous array of ``size`` bytes that begins at a multiple of ALIGN."""
    memory = np.empty(size + ALIGN, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGN)


class StaticRuntime:
    """One arena and all that points into it.

    Args:
        plan: the plan.
        check: look for overlaps and poison what is free before each step.
        profile: take each step's time.
    Raises LimitError when there is no memory for the arena.
    """

    def __init__(self, plan: StaticPlan, *, check: bool = False, profile: bool = False) -> None:
        self.plan, self.check, self.profile = plan, check, profile
        # Strides of arrays that were not those planned for, by the number of a run and of its operand.
        self.surprises: dict[tuple[int, int], tuple[int, ...]] = {}
        # Arrays to make results in, by the result's place among those of its run.
        self.targets: dict[Value, np.ndarray] = {}
        self.times: list[tuple[int, float]] = []
        self._poisoned = -1
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

    def make_scratch(self, parts: int) -> None:
        """Have scratch memory for so many threads."""
        if parts > self.parts and self.plan.scratch:
            self.scratch = aligned((self.plan.scratch * parts,), np.dtype(np.uint8), self.plan.scratch * parts)
            self.blocks[self.plan.scratch_words] = address_of(self.scratch)
        self.parts = max(parts, self.parts)

    def run(self, values: Sequence[Any]) -> Any:
        """The graph's result for run-time values of its inputs."""
        if self._is_proven:
            direct = self._direct
            if direct is None:
                return _INTERPRETER.run(self.code, values)
            # The graph is one native run: the interpreter would only hand it its inputs.
            return direct[0](*[values[k] for k in direct[1]])
        if self.check:
            self._poison_all()
        result = _INTERPRETER.run(self.code, values)
        for x in _arrays_in(result):
            if np.may_share_memory(x, self.memory):
                raise InternalError("a result lies in the arena: an operator returned an operand, and does not say so")
        if self.check:
            self._poison_all()
        else:
            self._is_proven = True
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
            if self.profile and instruction[0] in _CALLS and not isinstance(what, Segment):
                timed: Any = bound or what
                bound = partial(_timed, self.times, -1 - number, timed)
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
        for k, buffer in enumerate(plan.lifetimes):
            if self._poisoned < buffer.last + 1 <= step and not self._is_shared(k, buffer.last):
                self._fill(k)
        self._poisoned = max(step, self._poisoned)

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


def _timed(times: list[tuple[int, float]], number: int, call: Callable[..., Any], *args: Any) -> Any:
    start = perf_counter()
    result = call(*args)
    times.append((number, perf_counter() - start))
    return result


def _arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in _arrays_in(v)] if isinstance(value, (list, tuple)) else []


class NativeRun:
    """A run of native steps as a function of the arrays it is given; it returns the arrays it makes."""

    def __init__(self, runtime: StaticRuntime, segment: Segment) -> None:
        self._runtime, self._segment = runtime, segment
        first = sum(len(s.steps) for s in runtime.plan.segments[: segment.number])
        self._functions = address_of(runtime.plan.functions) + 8 * first
        self._blocks = address_of(runtime.block_addresses) + 8 * first
        self._count = len(segment.steps)
        self._is_alone = all(s.kernel.is_small for s in segment.steps)
        self._given = [(o.shape, o.strides, o.dtype, o.words) for o in segment.given]
        self._made = [(o.shape, o.dtype, _bytes_of(o) + ALIGN, o.words, o.value) for o in segment.made]
        self._checks = any(s.kernel.checks for s in segment.steps)

    def function(self) -> Callable[..., Any]:
        """The run as a function, which a call of costs less than one of an object."""
        if enter.READS_ARRAYS and self._is_alone and not runtime_is_watched(self._runtime):
            return self._native_function()
        # What a call needs, as variables of a closure: each look-up counts here.
        runtime, words, address = self._runtime, self._runtime.words, address_of
        given, made, fitting, targets = self._given, self._made, self._fitting, self._runtime.targets
        launch, raise_found, checks = self.launcher(), self._raise_found, self._checks
        empty, array, byte = np.empty, np.ndarray, np.uint8

        def call(*arrays: np.ndarray) -> Any:
            kept: list[np.ndarray] = []
            for x, (shape, strides, dtype, places) in zip(arrays, given):
                if x.strides != strides or x.shape != shape or x.dtype != dtype:
                    x = fitting(x, len(kept), shape, strides, dtype)
                kept.append(x)
                at = address(x)
                for word, offset in places:
                    words[word] = at + offset
            results: list[np.ndarray] = []
            for shape, dtype, room, places, value in made:
                y = targets.get(value) if targets else None
                if y is None:
                    memory = empty(room, byte)
                    at = address(memory)
                    shift = -at % ALIGN
                    y = array(shape, dtype, memory, shift)
                    at += shift
                else:
                    at = address(y)
                results.append(y)
                for word, offset in places:
                    words[word] = at + offset
            launch()
            if checks and runtime.flags.any():
                raise_found()
            if len(results) == 1:
                return results[0]
            return results

        return call

    def _native_function(self) -> Callable[..., Any]:
        """The run as a function that leaves its arrays to native code."""
        runtime, first = self._runtime, address_of(self._runtime.blocks)
        made, fitting, targets = self._made, self._fitting, runtime.targets
        raise_found, checks = self._raise_found, self._checks
        new, array, byte, address = np.empty, np.ndarray, np.uint8, address_of
        layouts: list[enter.Layout] = [
            (shape, strides, dtype, [(first + 8 * word, offset) for word, offset in places])
            for shape, strides, dtype, places in self._given
        ]
        code = ctypes.cast(runtime.team.run, ctypes.c_void_p).value or 0
        job = enter.Job(code, _ALONE, self._functions, self._blocks, self._count, layouts)
        objects, job_address, native, words = job.objects, job.address, enter.enter(), runtime.words
        start = enter.OBJECTS
        given = self._given
        runtime.jobs.append(job)

        def call(*arrays: np.ndarray) -> Any:
            k = start
            for x in arrays:
                objects[k] = id(x)
                k += 1
            results: list[np.ndarray] = []
            for shape, dtype, room, places, value in made:
                y = targets.get(value) if targets else None
                if y is None:
                    memory = new(room, byte)
                    at = address(memory)
                    shift = -at % ALIGN
                    y = array(shape, dtype, memory, shift)
                    at += shift
                else:
                    at = address(y)
                results.append(y)
                for word, offset in places:
                    words[word] = at + offset
            fault = native(job_address)
            if fault:
                # Some array lies otherwise: copies take the place of those that do.
                kept = [fitting(x, i, *given[i][:3]) for i, x in enumerate(arrays)]
                for i, x in enumerate(kept):
                    for word, offset in given[i][3]:
                        words[word] = address(x) + offset
                runtime.team.run(_ALONE, self._functions, self._blocks, self._count)
            if checks and runtime.flags.any():
                raise_found()
            if len(results) == 1:
                return results[0]
            return results

        return call

    def launcher(self) -> Callable[[], None]:
        """Runs the steps once their blocks are filled in."""
        runtime, functions, blocks, count = self._runtime, self._functions, self._blocks, self._count
        if runtime_is_watched(runtime):
            return self._one_by_one
        if self._is_alone:
            return partial(runtime.team.run, _ALONE, functions, blocks, count)

        def launch() -> None:
            threads = team()
            if threads.size > runtime.parts:
                runtime.make_scratch(threads.size)
            threads.run(threads.address, functions, blocks, count)

        return launch

    def _fitting(
        self, x: np.ndarray, number: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray:
        """The tensor with the strides that were planned for. Raises InternalError when it is another tensor."""
        if x.shape != shape or x.dtype != dtype:
            value = self._segment.given[number].value
            found = f"{x.dtype}{list(x.shape)}"
            raise InternalError(f"{value.node.kind} was planned to give {dtype}{list(shape)}, but gave {found}")
        if all(a == b or n == 1 for a, b, n in zip(x.strides, strides, shape, strict=True)) or not x.size:
            return x
        self._runtime.surprises[self._segment.number, number] = x.strides
        low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
        high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
        memory = np.empty(high - low + dtype.itemsize, np.uint8)
        y = np.ndarray(shape, dtype, memory, -low, strides)
        y[...] = x
        return y

    def _one_by_one(self) -> None:
        runtime, threads = self._runtime, team()
        runtime.make_scratch(threads.size)
        where = _ALONE if self._is_alone else threads.address
        for k, step in enumerate(self._segment.steps):
            if runtime.check:
                runtime.poison(step.position)
            start = perf_counter()
            threads.run(where, self._functions + 8 * k, self._blocks + 8 * k, 1)
            if runtime.profile:
                runtime.times.append((step.position, perf_counter() - start))

    def _raise_found(self) -> None:
        """Raise the message of the first check that failed."""
        runtime = self._runtime
        flags = runtime.flags.copy()
        runtime.flags[:] = 0
        first = dict(runtime.plan.flag_words.tolist())
        for step in self._segment.steps:
            kernel = step.kernel
            if kernel.checks:
                start = first[step.first_word + kernel.flags_slot]
                for k, message in enumerate(kernel.checks):
                    if flags[start + k]:
                        raise OpError(message)


def runtime_is_watched(runtime: StaticRuntime) -> bool:
    """Whether steps are run one by one."""
    return runtime.check or runtime.profile


def _bytes_of(operand: Operand) -> int:
    size = operand.dtype.itemsize
    for n in operand.shape:
        size *= n
    return size
