"""Runs of steps on a GPU as functions of tensors: copies to fixed places, calls, and graphs of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import proxy

import numpy as np

from gpujit.ir.graph import Node
from gpujit.ir.values import DeviceTensor
from gpujit.kernels.launches import FLAGS, SCRATCH
from gpujit.runtime.device import ALIGN, Call, Handle, bound, new_tensor, raise_ours, to_host
from gpujit.runtime.device_attributes import Resident
from gpujit.runtime.explain import label_of
from gpujit.static_runtime.device_build import DeviceSegment, Kept, PlannedStep
from gpujit.static_runtime.device_libraries import is_by_library
from gpujit.support.config import config
from gpujit.support.errors import DeviceError, InternalError

if TYPE_CHECKING:
    from gpujit.static_runtime.device_run import DeviceArena

# Calls that are worth a graph.
LEAST_CALLS = 2
# How often attributes may be found elsewhere, after which they are copied to one place: each time all is prepared anew.
MOST_MOVES = 4


def _is_in_place(x: Any, planned: Kept) -> bool:
    """Whether a tensor can be read where it lies."""
    if type(x) is not DeviceTensor or (x.shape, x.dtype) != (planned.shape, planned.dtype):
        return False
    return x.is_contiguous and x.address % ALIGN == 0


def _named(call: Call, node: Node) -> Call:
    """A call whose faults say which node it is a part of: many have one place in the program."""
    place = "" if node.source is None else f" at {node.source}"

    def put(stream: Handle) -> None:
        try:
            call(stream)
        except DeviceError as fault:
            raise DeviceError(f"{label_of(node)}{place}: {fault.message}", code=fault.code) from None

    return put


class Lap(Protocol):
    """Takes down when parts of a run of steps ended on the device."""

    def mark(self, number: int | None) -> None:
        """All since the last mark belonged to the step at this position; None for copies before and after steps."""


class SegmentRun:
    """A run of steps as a function of the tensors it is given; it returns those it makes."""

    def __init__(self, runtime: DeviceArena, segment: DeviceSegment, weights: dict[int, int]) -> None:
        self._runtime: DeviceArena = proxy(runtime)
        self._device, self._stats = runtime.device, runtime.stats
        # Attributes are read where they lie, and have a place here only when that will not do.
        self._given = [None if k.offset is None else runtime.kept(k) for k in segment.given]
        self._attributes = {i: k for i, k in enumerate(segment.given) if k.offset is None}
        self._bound_to: dict[int, DeviceTensor] = {}
        self._own: dict[int, DeviceTensor] = {}
        self._moves = 0
        self._made = [runtime.kept(k) for k in segment.made]
        self._written, self._segment, self._weights = segment.written, segment, weights
        self._has_checks = any(s.step.checks for s in segment.steps)
        self._steps: list[tuple[int, list[Call]]] = []
        self._calls: list[Call] = []
        self._graph: Handle = None
        self._is_warm = False
        # Why there is no graph.
        is_off = "graphs" in config.disable
        self._refusal = "the switch 'disable' turns graphs off" if is_off else runtime.device.capture_refusal
        if sum(len(s.step.calls) for s in segment.steps) < LEAST_CALLS:
            self._refusal = self._refusal or "a single call needs no graph"
        if not self._attributes:
            self._bind(runtime)

    def _bind(self, runtime: DeviceArena) -> None:
        """Prepare all calls, with the addresses that attributes have."""
        steps = self._segment.steps
        self._steps = [(s.position, self._bound(runtime, s)) for s in steps]
        self._calls = [call for _, calls in self._steps for call in calls]
        self._graph, self._is_warm = None, False

    def _bound(self, runtime: DeviceArena, planned: PlannedStep) -> list[Call]:
        plan, step, weights = runtime.plan, planned.step, self._weights
        base = runtime.base
        attributes = {id(k): self._bound_to[i].address for i, k in self._attributes.items()}

        def root(x: int | np.ndarray | Kept) -> int:
            if isinstance(x, Kept):
                return attributes[id(x)]
            return weights[id(x)] if isinstance(x, np.ndarray) else base + x

        roots = [*map(root, planned.roots), *(weights[id(x)] for x in step.constants)]

        def at(number: int) -> int:
            if number == SCRATCH:
                return base + plan.scratch
            if number == FLAGS:
                return base + plan.flags + 4 * planned.first_check
            return roots[number]

        workspace = 0 if runtime.workspace is None else runtime.workspace.address
        calls = (bound(runtime.device, call, at, workspace) for call in step.calls)
        return [_named(c, planned.node) if is_by_library(step) else c for c in calls]

    @property
    def calls(self) -> Sequence[Call]:
        """What it puts on a stream; nothing before the first run where attributes are read."""
        return self._calls

    def __call__(self, *arrays: Any) -> Any:
        stream = self._runtime.stream
        try:
            self._take(arrays, stream)
            self._run(stream)
            return self._give(arrays, stream)
        except Exception as fault:
            raise_ours(self._device, fault)

    def timed(self, lap: Lap, *arrays: Any) -> Any:
        """The same, call by call, with the times of copies and of each step taken down."""
        stream = self._runtime.stream
        try:
            self._take(arrays, stream)
            lap.mark(None)
            for position, calls in self._steps:
                for call in calls:
                    call(stream)
                lap.mark(position)
            self._stats.launched += 1
            result = self._give(arrays, stream)
            lap.mark(None)
            return result
        except Exception as fault:
            raise_ours(self._device, fault)

    def _take(self, arrays: Sequence[Any], stream: Handle) -> None:
        """Have what is given at its place."""
        runtime = self._runtime
        holds = runtime.holds
        if self._attributes:
            self._find(arrays, stream)
        for x, place in zip(arrays, self._given, strict=True):
            if place is None:
                continue
            # A host array that is no input may have been written since.
            is_known = isinstance(x, DeviceTensor) or place.address in runtime.input_addresses
            if x is not holds.get(place.address) or not is_known:
                self._bring(x, place, stream)

    def _find(self, arrays: Sequence[Any], stream: Handle) -> None:
        """Have calls read attributes where they lie now."""
        has_moved = not self._steps
        for i, attribute in self._attributes.items():
            x = arrays[i]
            if x is self._bound_to.get(i):
                continue
            place = x if self._moves < MOST_MOVES and _is_in_place(x, attribute) else self._own.get(i)
            if place is None:
                place = self._own[i] = self._runtime.kept(attribute)
            if place is not x:
                self._bring(x, place, stream)
            known = self._bound_to.get(i)
            has_moved |= known is None or known.address != place.address
            self._bound_to[i] = place
        if has_moved:
            self._moves += bool(self._steps)
            self._bind(self._runtime)

    def _give(self, arrays: Sequence[Any], stream: Handle) -> Any:
        """What was made, when what was written over went back to where it came from."""
        runtime, device = self._runtime, self._device
        holds = runtime.holds
        if self._has_checks:
            runtime.flags = None
        for k in self._written:
            place, x = self._given[k] or self._bound_to[k], arrays[k]
            runtime.changes(place)
            if place is not x:
                self._send_back(x, place, stream)
            if isinstance(x, DeviceTensor) and type(x.owner) is Resident:
                x.owner.written(stream)
        results = []
        for place in self._made:
            runtime.changes(place)
            y = new_tensor(device, place.shape, place.dtype)
            if place.nbytes:
                device.copy(y, place, stream)
            holds[place.address] = y
            results.append(y)
        return results[0] if len(results) == 1 else results

    def _bring(self, x: Any, place: DeviceTensor, stream: Handle) -> None:
        """Copy what is given to its place."""
        if (x.shape, x.dtype) != (place.shape, place.dtype):
            raise InternalError(
                f"a tensor was planned to be {place.dtype}{list(place.shape)}, found {x.dtype}{x.shape}"
            )
        if not place.nbytes:
            return
        if isinstance(x, DeviceTensor):
            if x.address != place.address:
                self._runtime.changes(place)
                self._device.copy(place, x, stream)
        else:
            self._stats.to_device += self._runtime.upload(place, x)
        self._runtime.holds[place.address] = x

    def _send_back(self, x: Any, place: DeviceTensor, stream: Handle) -> None:
        """Copy what was written over what was given."""
        if not place.nbytes:
            return
        if isinstance(x, DeviceTensor):
            self._device.copy(x, place, stream)
        else:
            self._stats.to_host += place.nbytes
            x[...] = to_host(self._device, place, stream)

    def _run(self, stream: Handle) -> None:
        """The steps: as a graph once there is one."""
        device, stats = self._device, self._stats
        if self._graph is None and self._is_warm and not self._refusal:
            self._graph = self._captured()
        if self._graph is not None:
            device.replay(self._graph, stream)
            stats.replays += 1
            return
        for call in self._calls:
            call(stream)
        stats.launched += 1
        self._is_warm = True
        if self._refusal:
            stats.fallbacks[self._refusal] += 1

    def _captured(self) -> Handle:
        """The graph of the steps; None, with the reason kept, when it cannot be had."""
        device = self._device
        try:
            with device.here():
                stream = device.begin_capture()
                try:
                    for call in self._calls:
                        call(stream)
                finally:
                    graph = device.end_capture(stream)
        except DeviceError as fault:
            self._refusal = f"capturing failed: {fault.message}"
            return None
        self._stats.captures += 1
        return graph
