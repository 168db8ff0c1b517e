"""Two copies of one program run side by side, so that the first operator that gives something else is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any

import numpy as np

from gpujit.cli.agree import Bounds, Difference, differences
from gpujit.modules import ScriptMethod
from gpujit.ops.generator import DEFAULT
from gpujit.ops.table import by_name
from gpujit.runtime import bytecode as bc
from gpujit.runtime.vm import Interpreter
from gpujit.support.progress import Stage

# Instructions that call an operator, and where the function and the number of results stand in them.
_OPERATORS = (bc.OP1, bc.OP2, bc.OP3, bc.OP, bc.OPM)
# Seconds between two looks at whether the other side has given up.
_PATIENCE = 0.1


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part: the operator, how many operators ran before it, its line, and how its results differ."""

    operator: str
    number: int
    place: str
    line: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class _Step:
    """What one operator gave."""

    instruction: int
    value: Any


class _Stopped(BaseException):
    """Nobody looks any more. No Exception: the interpreter would word it as the model's."""


def same_program(a: ScriptMethod, b: ScriptMethod) -> str:
    """Why two methods are not the same program, whatever their weights; empty when they are."""
    one, two = _code(a), _code(b)
    for i, (x, y) in enumerate(zip(one.kinds, two.kinds, strict=False)):
        if x != y or one.instructions[i][0] != two.instructions[i][0]:
            return f"instruction {i} is {x or 'a move'} in one and {y or 'a move'} in the other"
    if len(one.kinds) != len(two.kinds):
        return f"one has {len(one.kinds)} instructions, the other {len(two.kinds)}"
    return ""


def first_divergence(
    a: ScriptMethod, b: ScriptMethod, values: Callable[[], Sequence[Any]], bounds: Bounds
) -> Divergence | None:
    """The first operator whose result in ``a`` is not that in ``b``; None when there is none.

    Both run on the interpreter at the same time, so that no more than one result of each is kept. ``values`` gives the
    inputs anew. The methods must be the same program. Raises what they raise.
    """
    steps: Queue[_Step | Exception | None] = Queue(maxsize=1)
    stop = threading.Event()

    def give(item: _Step | Exception | None) -> None:
        while not stop.is_set():
            try:
                return steps.put(item, timeout=_PATIENCE)
            except Full:
                continue
        raise _Stopped

    def other() -> None:
        with suppress(_Stopped):
            try:
                _run(b, values(), give)
                give(None)
            except Exception as fault:
                give(fault)

    found: list[Divergence] = []
    code = _code(a)
    count = 0

    def look(step: _Step) -> None:
        nonlocal count
        theirs = _next(steps, thread)
        if isinstance(theirs, Exception):
            raise theirs
        if theirs is None or theirs.instruction != step.instruction:
            found.append(_divergence(code, step, count, Difference("", "", "", problem="data took another branch")))
            raise _Stopped
        bad = [d for d in differences(step.value, theirs.value, bounds) if not d.is_fine]
        if bad:
            found.append(_divergence(code, step, count, bad[0]))
            raise _Stopped
        count += 1
        stage.advance()

    thread = threading.Thread(target=other, daemon=True)
    with Stage("run node by node") as stage:
        thread.start()
        try:
            with suppress(_Stopped):
                _run(a, values(), look)
        finally:
            stop.set()
            thread.join()
    return found[0] if found else None


def _next(steps: Queue[_Step | Exception | None], thread: threading.Thread) -> _Step | Exception | None:
    while True:
        try:
            return steps.get(timeout=_PATIENCE)
        except Empty:
            if not thread.is_alive() and steps.empty():
                return None


def _code(method: ScriptMethod) -> bc.Code:
    return method._program.lowerer.code(method._function)


def _run(method: ScriptMethod, values: Sequence[Any], tell: Callable[[_Step], None]) -> Any:
    """Run a method on the interpreter and tell of each operator's result."""
    from gpujit.runtime.values import bind_arguments

    code, numbers = copy(_code(method)), _Numbers()
    instructions = [
        numbers.drawn(instruction) if _is_random(kind) else instruction
        for kind, instruction in zip(code.kinds, code.instructions, strict=True)
    ]
    code.instructions = [_telling(i, instruction, tell) for i, instruction in enumerate(instructions)]
    bound = bind_arguments(method.schema, tuple(values), {}, skip=1)
    # Attributes that the method writes are put back: the caller's module has to stay as it is.
    with _kept(method), np.errstate(all="ignore"):
        return Interpreter(method._program.lowerer).run(code, [method._owner, *bound])


def _kept(method: ScriptMethod) -> Any:
    from gpujit.runtime.warm import unchanged

    return unchanged([method._owner], {})


def _is_random(kind: str) -> bool:
    return any(op.random for op in by_name(kind))


class _Numbers:
    """Random numbers of one of the two runs: they would take each other's from the one generator there is."""

    _lock = threading.Lock()

    def __init__(self) -> None:
        self._state = DEFAULT.state()

    def drawn(self, instruction: bc.Instruction) -> bc.Instruction:
        """An instruction of an operator that may draw."""
        if instruction[0] not in _OPERATORS:
            return instruction
        fn = instruction[1]

        def run(*args: Any) -> Any:
            with self._lock:
                others = DEFAULT.state()
                DEFAULT.restore(self._state)
                try:
                    return fn(*args)
                finally:
                    self._state = DEFAULT.state()
                    DEFAULT.restore(others)

        return (instruction[0], run, *instruction[2:])


def _telling(number: int, instruction: bc.Instruction, tell: Callable[[_Step], None]) -> bc.Instruction:
    if instruction[0] not in _OPERATORS:
        return instruction
    fn = instruction[1]

    def run(*args: Any) -> Any:
        result = fn(*args)
        # What comes after may write into it, while the other side still looks at it.
        tell(_Step(number, deepcopy(result) if _is_data(result) else None))
        return result

    return (instruction[0], run, *instruction[2:])


def _is_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return isinstance(value, (np.ndarray, bool, int, float, complex, str, type(None)))


def _divergence(code: bc.Code, step: _Step, count: int, difference: Difference) -> Divergence:
    place, call = code.places[step.instruction]
    lines: Iterator[str] = iter(())
    if place is not None:
        lines = iter(place.source.lines()[place.line - 1 : place.line])
    where = "" if place is None else f"{place.source.name}:{place.shown_line}"
    if call is not None:
        where += f" in {call.function.rpartition('.')[2]}"
    return Divergence(code.kinds[step.instruction], count, where, next(lines, "").strip(), difference)
