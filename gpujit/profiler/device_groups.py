"""Fused against unfused on a device: each step of several operators, and these one by one, on the same data in turn.

Both are timed between events on the stream, as what they put there many times over, in a graph where that can be: what
the host takes to get it there is in no time, and neither is what brings operands to their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gpujit.ir.graph import Value
from gpujit.ir.values import DeviceTensor
from gpujit.profiler.groups import graph_of_group, keeping, made_up, outside
from gpujit.profiler.steps import Described
from gpujit.runtime.device import GpuDevice, to_device
from gpujit.runtime.executor import Plan
from gpujit.runtime.lower import Lowerer
from gpujit.static_runtime.device_clock import DeviceRecorder
from gpujit.static_runtime.device_module import DeviceGraph, weights_on
from gpujit.static_runtime.device_run import DeviceArena
from gpujit.static_runtime.device_timer import CallTimer
from gpujit.static_runtime.places import facts_of
from gpujit.support.errors import GpujitError

# What runs operators: all of them steps on the device, none, or some.
DEVICE, HOST, MIXED = "device", "host", "mixed"


class DeviceValues:
    """What groups read in a call: tensors of a run whose results between steps were kept."""

    def __init__(self, plan: Plan, runner: DeviceGraph, lowerer: Lowerer, values: Sequence[Any], wanted: list[str]):
        """Runs the plan's graph once. ``wanted`` are the names (of ``name_values``) of values to keep."""
        self._device = runner.device
        self._random = np.random.default_rng(0)
        self._tensors: dict[str, Any] = {}
        graph, nodes, kept = keeping(plan.graph, wanted)
        programs = {nodes[n]: low for n, low in plan.fused.programs.items()}
        # Without memory for all of them, or a plan that gives them, numbers are made up.
        with suppress(GpujitError):
            results = DeviceGraph(runner.device, graph, programs, lowerer, runner.options).run(values)
            self._tensors = dict(zip(kept, results[len(results) - len(kept) :], strict=True))

    def of(self, value: Value, name: str) -> DeviceTensor | None:
        """A tensor on the device; made up where none was kept. None for what has no known shape."""
        facts = facts_of(value)
        if facts is None:
            return None
        found = self._tensors.get(name)
        if isinstance(found, DeviceTensor) and (found.shape, found.dtype) == facts:
            return found
        return to_device(self._device, made_up(facts, self._random), self._device.stream())


class _Side:
    """One way to run a group, in memory of its own."""

    def __init__(self, graph: DeviceGraph, inputs: Sequence[Any]) -> None:
        """Has the kernels, and runs it once. Raises GpujitError."""
        self.device, self.inputs = graph.device, inputs
        plan = graph.plan()
        self.tier = _tier_of(graph)
        self.arena = DeviceArena(plan, graph.device, weights_on(graph.device), graph.stats)
        self.arena.run(inputs)
        self._timer: CallTimer | None = None

    def prepare(self, is_whole: bool) -> None:
        """Get ready to be timed: what it puts on the stream, or, where the host takes part in one of the two sides, all
        that it does."""
        if is_whole:
            self.seconds()
        else:
            self._timer = CallTimer(self.device, [call for run in self.arena.runs for call in run.calls])

    def seconds(self) -> float:
        """What it takes now."""
        if self._timer is not None:
            return self._timer.seconds()
        recorder = DeviceRecorder(self.device, self.arena.plan)
        recorder.run(self.arena, self.inputs)
        taken = recorder.taken()
        around = (recorder.inputs, recorder.outputs)
        return float(sum(s for n, s in zip(taken.numbers, taken.seconds[-1], strict=True) if n not in around))


class DevicePair:
    """A group as two planned graphs on the same tensors. See groups.Timed."""

    def __init__(self, number: int, fused: DeviceGraph, unfused: DeviceGraph, inputs: Sequence[Any]) -> None:
        self.number, self.unfused_tier = number, ""
        self.seconds: tuple[list[float], list[float]] = ([], [])
        self._device, self._graphs, self._inputs = fused.device, (fused, unfused), inputs

    def prepare(self) -> None:
        """See Timed."""
        with self._device.here():
            self._sides = [_Side(g, self._inputs) for g in self._graphs]
            self.unfused_tier = self._sides[1].tier
            is_whole = any(s.tier != DEVICE for s in self._sides)
            for side in self._sides:
                side.prepare(is_whole)

    def round(self, turn: int) -> None:
        """See Timed."""
        sides = list(zip(self._sides, self.seconds, strict=True))
        with self._device.here():
            for side, times in sides if turn % 2 == 0 else reversed(sides):
                times.append(side.seconds())


def device_pairs(
    described: Sequence[Described], plan: Plan, runner: DeviceGraph, lowerer: Lowerer, values: Sequence[Any]
) -> Iterator[DevicePair]:
    """A pair for each step of several operators that can stand by itself, made when it is asked for.

    Args:
        described: steps of the runner's plan.
        values: run-time values of the graph's inputs, as the runner takes them.
    """
    device, names, options = runner.device, runner.plan().names, runner.options
    grouped = [d for d in described if d.step.group is not None]
    given = {d.number: outside(d.nodes) for d in grouped}
    with device.here():
        tensors = DeviceValues(
            plan, runner, lowerer, values, [names[v] for vs in given.values() for v in vs if v in names]
        )
    for each in grouped:
        found = _inputs(device, tensors, given[each.number], names)
        if found is None:
            continue
        whole, programs = graph_of_group(each.nodes, given[each.number], plan, keep=True)
        parts, _ = graph_of_group(each.nodes, given[each.number], plan, keep=False)
        assert each.step.group is not None
        yield DevicePair(
            each.step.group,
            DeviceGraph(device, whole, programs, lowerer, options),
            DeviceGraph(device, parts, {}, lowerer, replace(options, endings=False)),
            found,
        )


def _inputs(
    device: GpuDevice, tensors: DeviceValues, given: Sequence[Value], names: dict[Value, str]
) -> list[DeviceTensor] | None:
    """What a group is run on; None where that is not known, or there is no memory for it."""
    try:
        with device.here():
            found = [tensors.of(v, names.get(v, "")) for v in given]
    except GpujitError:
        return None
    return None if None in found else [x for x in found if x is not None]


def _tier_of(graph: DeviceGraph) -> str:
    names = {t.name for t in graph.tiers({}) if t.name not in ("view", "interpreter")}
    on_device = {n for n in names if n.startswith("device")}
    return DEVICE if names == on_device else MIXED if on_device else HOST
