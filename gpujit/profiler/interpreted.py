"""Steps of what the interpreter runs: its instructions that call functions, each timed in calls of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from gpujit.profiler.data import Machine, Profile, Times
from gpujit.profiler.places import place_at
from gpujit.profiler.steps import Described, row, timed
from gpujit.runtime import bytecode as bc
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.clock import CALLS, Recorder
from gpujit.support.progress import Stage


def with_steps(
    profile: Profile, interpreter: Interpreter, code: bc.Code, values: Sequence[Any], rounds: int, machine: Machine
) -> Profile:
    """The profile with what the code consists of instead of the whole call; rounds of loops count together, and calls
    of functions that are not inlined are part of what lies between steps."""
    recorder = Recorder(code)
    noted = recorder.called(code)
    with Stage("time instructions", rounds) as stage:
        for _ in range(rounds):
            start = perf_counter_ns()
            with np.errstate(all="ignore"):
                interpreter.run(noted, list(values))
            recorder.marks += (start, perf_counter_ns())
            stage.advance()
    described = [
        Described(-1 - k, (), row(code.kinds[k], place_at(*code.places[k]), _tier(code.kinds[k])))
        for k, instruction in enumerate(code.instructions)
        if instruction[0] in CALLS
    ]
    taken = recorder.taken()
    steps, _ = timed(described, taken, np.zeros((len(taken.runs), 2)), machine)
    whole = (taken.runs[:, 1] - taken.runs[:, 0]) / 1e9
    return replace(profile, steps=tuple(steps), watched=Times.of(whole.tolist()), events=())


def _tier(kind: str) -> str:
    return "interpreter" if kind.startswith("prim::") else "numpy"
