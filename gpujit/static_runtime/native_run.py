"""A run of native steps as one function: its arrays' addresses go into the blocks, the steps run, results come back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import proxy

import numpy as np

from gpujit.kernels import ticks
from gpujit.kernels.team import alone, team, team_run
from gpujit.static_runtime import enter
from gpujit.static_runtime.arrays import ALIGN, address_of, words_at
from gpujit.static_runtime.steps import Segment
from gpujit.support.errors import InternalError, OpError

if TYPE_CHECKING:
    from gpujit.static_runtime.run import Arena

# Bytes of a result, with room to move it to a cache line's border, up to which it stays where NumPy has put it.
SMALL = 2048 + ALIGN
# A team of nobody but the caller.
_ALONE = alone()


class NativeRun:
    """A run of native steps as a function of the arrays it is given; it returns the arrays it makes."""

    def __init__(self, runtime: Arena, segment: Segment) -> None:
        # The runtime's code holds this run: a reference back would keep the arena until a collection of cycles.
        self._runtime: Arena = proxy(runtime)
        self._segment = segment
        first = sum(len(s.steps) for s in runtime.plan.segments[: segment.number])
        self._functions = address_of(runtime.plan.functions) + 8 * first
        self._blocks = address_of(runtime.block_addresses) + 8 * first
        self._count = len(segment.steps)
        self._run: Any = runtime.team.run
        if runtime.recorder is not None:
            track = runtime.recorder.track(segment.number, words_at(self._blocks, self._count))
            self._blocks, self._run = track.blocks, team_run(ticks.run_address())
        self._is_alone = all(s.kernel.is_small for s in segment.steps)
        self._given = [(o.shape, o.strides, o.dtype, o.words) for o in segment.given]
        self._made = [
            (o.shape, o.dtype, o.nbytes + ALIGN, None if o.is_contiguous else o.strides, o.words, o.value)
            for o in segment.made
        ]
        self._checks = any(s.kernel.checks for s in segment.steps)

    def function(self) -> Callable[..., Any]:
        """The run as a function, which a call of costs less than one of an object."""
        if not self._given and not self._made and not self._checks:
            # All is in the arena.
            return self.launcher()
        if enter.READS_ARRAYS and not self._runtime.check:
            return self._native_function()
        # What a call needs, as variables of a closure: each look-up counts here.
        words, flags, address = self._runtime.words, self._runtime.flags, address_of
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
            for shape, dtype, room, lies, places, value in made:
                y = targets.get(value) if targets else None
                if y is None:
                    memory = empty(room, byte)
                    at = address(memory)
                    shift = -at % ALIGN
                    y = array(shape, dtype, memory, shift, lies)
                    at += shift
                else:
                    at = address(y)
                results.append(y)
                for word, offset in places:
                    words[word] = at + offset
            launch()
            if checks and flags.any():
                raise_found()
            if len(results) == 1:
                return results[0]
            return results

        return call

    def _native_function(self) -> Callable[..., Any]:
        """The run as a function that leaves its arrays to native code."""
        runtime, first = self._runtime, address_of(self._runtime.blocks)
        flags, run = runtime.flags, self._run
        made, fitting, targets = self._made, self._fitting, runtime.targets
        raise_found, checks, is_alone = self._raise_found, self._checks, self._is_alone
        new, array, byte, address = np.empty, np.ndarray, np.uint8, address_of
        layouts: list[enter.Layout] = [
            (o.shape, o.strides, o.dtype, [(first + 8 * word, offset) for word, offset in o.words])
            for o in (*self._segment.given, *self._segment.made)
        ]
        code = ctypes.cast(run, ctypes.c_void_p).value or 0
        job = enter.Job(code, _ALONE, self._functions, self._blocks, self._count, layouts)
        objects, job_address, native, words = job.objects, job.address, enter.enter(), runtime.words
        start, its_team = enter.OBJECTS, enter.TEAM
        given = self._given
        runtime.jobs.append(job)

        def attempt(arrays: Sequence[np.ndarray], results: list[np.ndarray]) -> int:
            """Makes the results; the number of the first array that lies otherwise, from 1 on: then nothing was run."""
            k = start
            for x in arrays:
                objects[k] = id(x)
                k += 1
            for shape, dtype, room, strides, _, value in made:
                y = targets.get(value) if targets else None
                if y is None:
                    if room <= SMALL and strides is None:
                        y = new(shape, dtype)
                    else:
                        memory = new(room, byte)
                        y = array(shape, dtype, memory, -address(memory) % ALIGN, strides)
                results.append(y)
                objects[k] = id(y)
                k += 1
            if not is_alone:
                threads = team()
                if threads.size > runtime.parts:
                    runtime.make_scratch(threads.size)
                objects[its_team] = threads.address
            return native(job_address)

        def call(*arrays: np.ndarray) -> Any:
            results: list[np.ndarray] = []
            if attempt(arrays, results):
                # Some array lies otherwise: copies take the place of those that do.
                kept = [fitting(x, i, *given[i][:3]) for i, x in enumerate(arrays)]
                for x, (*_, places) in zip(kept, given, strict=True):
                    for word, offset in places:
                        words[word] = address(x) + offset
                for y, (*_, places, _value) in zip(results, made, strict=True):
                    for word, offset in places:
                        words[word] = address(y) + offset
                run(objects[its_team], self._functions, self._blocks, self._count)
            if checks and flags.any():
                raise_found()
            if len(results) == 1:
                return results[0]
            return results

        def quick(arrays: Sequence[Any]) -> Any:
            if len(arrays) != len(given):
                return NotImplemented
            results: list[np.ndarray] = []
            return NotImplemented if attempt(arrays, results) else results[0]

        if not checks and len(made) == 1:
            runtime.quick_runs[self._segment.number] = quick
        return call

    def launcher(self) -> Callable[[], None]:
        """Runs the steps once their blocks are filled in."""
        runtime, functions, blocks, count = self._runtime, self._functions, self._blocks, self._count
        if runtime.check:
            return self._one_by_one
        run = self._run
        if self._is_alone:
            return partial(run, _ALONE, functions, blocks, count)

        def launch() -> None:
            threads = team()
            if threads.size > runtime.parts:
                runtime.make_scratch(threads.size)
            run(threads.address, functions, blocks, count)

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
            runtime.poison(step.position)
            threads.run(where, self._functions + 8 * k, self._blocks + 8 * k, 1)

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
