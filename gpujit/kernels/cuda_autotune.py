"""Choosing a CUDA kernel's tile by measuring it on the GPU: a program is planned within several limits, and what is
fastest for the call's strides and sizes is kept, on disk as well. Off unless the switch ``autotune`` is on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, fields, replace
from typing import Protocol

from gpujit.kernels import cache, cuda_cache
from gpujit.kernels.cuda_steps import step_of
from gpujit.kernels.cuda_tile import Limits, limits_here
from gpujit.kernels.launches import DeviceKernel, DeviceStep, Launch
from gpujit.kernels.schedule import Strides, moves
from gpujit.kernels.tile import TileProgram, indexes_of
from gpujit.support.config import config

# Rounds over all candidates.
ROUNDS = 5
# A tile must be this much faster than what the rules choose, so that noise decides nothing.
WORTH = 0.97
# Bytes above which a call is not measured.
LARGEST = 4 << 30

# An array of a call: bytes from its root's start to its first element, and its strides in elements.
Laid = tuple[int, Strides]


class Timer(Protocol):
    """A GPU that steps are measured on. ``name``: its kind, of which all are taken to be as fast."""

    name: str

    def refused(self, kernels: list[DeviceKernel]) -> set[DeviceKernel]:
        """Compile kernels; those of them that cannot be."""

    def seconds(self, step: DeviceStep, nbytes: Sequence[int]) -> float:
        """The time of one run of a step on zeroed arrays of so many bytes, from its operands to its results."""


_timer: ContextVar[Timer | None] = ContextVar("gpujit_cuda_timer", default=None)


@contextmanager
def measuring(timer: Timer) -> Iterator[None]:
    """A block in which plans may measure on a GPU, in the running thread alone."""
    token = _timer.set(timer)
    try:
        yield
    finally:
        _timer.reset(token)


def limits_for(
    program: TileProgram,
    inputs: Sequence[Laid],
    outputs: Sequence[Laid],
    sizes: Sequence[int],
    params: Sequence[int],
    nbytes: Sequence[int],
) -> Limits:
    """What to plan a call within: what is measured, with the switch ``autotune`` where there is a GPU, else as always.

    See ``tuned``.
    """
    timer = _timer.get() if config.autotune else None
    return limits_here() if timer is None else tuned(program, inputs, outputs, sizes, params, nbytes, timer)


def tuned(
    program: TileProgram,
    inputs: Sequence[Laid],
    outputs: Sequence[Laid],
    sizes: Sequence[int],
    params: Sequence[int],
    nbytes: Sequence[int],
    timer: Timer,
) -> Limits:
    """The limits within which the rules plan the fastest kernel for a call: from the cache, or measured now.

    Those that always hold when no others are clearly faster, or when a call cannot be made up (indexes that come from
    data). Raises NotRendered.
    Args:
        nbytes: of each array, from the operands to the results.
    """
    usual = limits_here()
    if not is_measurable(program, nbytes):
        return usual
    where = f"{list(inputs)} {list(outputs)} {list(sizes)} {list(params)}"
    text = f"{timer.name}\n{where}\n{program.text}"
    version = f"cuda tile {cuda_cache.code_version()} {usual}"
    key = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()
    store = cache.store()
    kept = None if store is None else store.get(key, cache.TUNED)
    found = None if kept is None else _read(kept)
    if found is None:
        steps = {
            limits: step_of(program, inputs, outputs, sizes, params, "tile", limits) for limits in candidates(usual)
        }
        found, measured = fastest(steps, nbytes, timer)
        if store is not None:
            store.put(key, json.dumps(asdict(found)).encode(), f"{text}\n{measured}\n", cache.TUNED)
    return found


def is_measurable(program: TileProgram, nbytes: Sequence[int]) -> bool:
    """Whether a call can be made up: no index comes from data, and its arrays are there and not too large."""
    from_data = any(i.values() for item in moves(program) for i in indexes_of(item))
    return not from_data and all(nbytes) and sum(nbytes) <= LARGEST


def candidates(usual: Limits) -> Iterator[Limits]:
    """What to try, the usual limits first. Many of them make one and the same kernel."""
    yield usual
    for width in (1, 2, 4):
        for block in (1, 2, 4):
            for kept in (usual.kept, 0, 2 * usual.kept):
                for split in (usual.split, 2, 32):
                    yield replace(
                        usual, bytes=usual.bytes // width, block=usual.block // 2 * block, kept=kept, split=split
                    )


def fastest(steps: dict[Limits, DeviceStep], nbytes: Sequence[int], timer: Timer) -> tuple[Limits, str]:
    """The limits of the fastest step, and a text of what was measured; the first of ``steps`` are the usual ones."""
    usual = next(iter(steps))
    distinct: dict[tuple[object, ...], Limits] = {}
    for limits, step in steps.items():
        distinct.setdefault(step.calls, limits)
    runs = {limits: steps[limits] for limits in distinct.values()}
    refused = timer.refused([k for step in runs.values() for k in kernels_of(step)])
    if refused.intersection(kernels_of(runs[usual])):
        return usual, "the rules' own kernel cannot be compiled"
    runs = {limits: step for limits, step in runs.items() if not refused.intersection(kernels_of(step))}
    if len(runs) == 1 or not kernels_of(runs[usual]):
        return usual, "nothing to choose from"
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for limits, step in runs.items():
            best[limits] = min(best[limits], timer.seconds(step, nbytes))
    winner = min(best, key=best.__getitem__)
    if best[winner] > WORTH * best[usual]:
        winner = usual
    lines = [
        f"{seconds * 1e6:10.2f} us  {limits}{'  taken' if limits == winner else ''}"
        for limits, seconds in sorted(best.items(), key=lambda item: item[1])
    ]
    return winner, "\n".join(lines)


def kernels_of(step: DeviceStep) -> list[DeviceKernel]:
    """The kernels that a step launches, in order."""
    return [call.kernel for call in step.calls if isinstance(call, Launch)]


def _read(kept: bytes) -> Limits | None:
    """The limits that were kept; None for what is none."""
    names = {f.name for f in fields(Limits)}
    try:
        found = json.loads(kept)
        whole = set(found) == names and all(type(n) is int and n >= 0 for n in found.values())
        return Limits(**found) if whole else None
    except (ValueError, TypeError):
        return None
