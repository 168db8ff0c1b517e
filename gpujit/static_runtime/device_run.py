"""A runtime on a GPU: one block of device memory, launches with its addresses, and the plan's code bound to both.

One thread uses a runtime at a time. What a run of steps does is a list of calls with fixed addresses, put on the
caller's stream one by one the first time. The second time they are recorded as a CUDA graph, which later times replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import proxy

import numpy as np

from gpujit.ir.values import DeviceTensor, ScriptObject
from gpujit.kernels.launches import FLAGS, SCRATCH, Convolution, Gemm, Launch
from gpujit.runtime import bytecode as bc
from gpujit.runtime.device import (
    ALIGN,
    Call,
    GpuDevice,
    Handle,
    Memory,
    allocate,
    contiguous,
    contiguous_copy,
    mapped,
    new_tensor,
    to_device,
    to_host,
)
from gpujit.runtime.device_attributes import Resident, kept
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.device_build import CheckStep, DevicePlan, DeviceSegment, Kept, PlannedStep, ViewStep
from gpujit.static_runtime.device_weights import Weights
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.steps import Slot
from gpujit.support.config import config
from gpujit.support.errors import DeviceError, InternalError, OpError

_INTERPRETER = Interpreter(Lowerer(np))
# Instructions that call a function.
_CALLS = (bc.OP1, bc.OP2, bc.OP3, bc.OP, bc.OPM)
# What holds tensors and does not look at them, and what does so when its first operand is a list or dict.
_HOLDING = ("prim::TupleConstruct", "prim::TupleIndex", "prim::TupleSlice", "prim::DictConstruct")
_OF_CONTAINERS = tuple(
    f"aten::{name}" for name in ("append", "insert", "__getitem__", "_set_item", "len", "pop", "extend", "values")
)
# Calls that are worth a graph.
LEAST_CALLS = 2
# How often attributes may be found elsewhere, after which they are copied to one place: each time all is prepared anew.
MOST_MOVES = 4


class _Fixed(list[Any]):
    """A list that the code holds: every run reads it, and none changes it."""


@dataclass
class DeviceStats:
    """What all runtimes of a plan did.

    ``launched``: runs of steps put on a stream call by call; ``captures`` and ``replays`` of graphs; ``fallbacks``: why
    graphs could not be had, and how often; bytes copied between host and device besides inputs and results.
    """

    launched: int = 0
    captures: int = 0
    replays: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    to_host: int = 0
    to_device: int = 0


class DeviceArena:
    """The memory of one run at a time, and all that points into it.

    Raises DeviceError when there is no memory for it, InternalError and NotCompiled for kernels that cannot be had.
    """

    def __init__(self, plan: DevicePlan, device: GpuDevice, weights: Weights, stats: DeviceStats) -> None:
        self.plan, self.device, self.stats = plan, device, stats
        self.block = allocate(device, max(plan.size, 1), f"a plan of {len(plan.steps)} steps")
        self.base = self.block.address
        self.workspace = self._workspace()
        # The stream of the last run; and whether it is another than that which the memory was made for.
        self.stream: Handle = device.stream()
        self._has_moved = False
        device.zero(self.base + plan.flags, 4 * max(plan.checks, 1), self.stream)
        # What lies at the place of a kept tensor, besides what steps left there.
        self.holds: dict[int, Any] = {}
        self.flags: np.ndarray | None = None
        self.weights = [weights.of(x, self.stream) for x in _arrays(plan)]
        addresses = {id(x): w.address for x, w in zip(_arrays(plan), self.weights, strict=True)}
        self.runs = [SegmentRun(self, s, addresses) for s in plan.segments]
        self.inputs = {i: self.kept(k) for i, k in plan.inputs.items()}
        self.input_addresses = {x.address for x in self.inputs.values()}
        self._slots: dict[Slot, DeviceTensor] = {}
        self.code = self._bound(plan.code)

    def __del__(self) -> None:
        if getattr(self, "_has_moved", False):
            # Memory is given back in the order of the stream that it was made for.
            with suppress(DeviceError), self.device.here():
                self.device.synchronise(self.stream)

    def _workspace(self) -> Memory | None:
        """What libraries work in. Raises DeviceError when there is no memory for it."""
        if not self.plan.needs_workspace or not self.device.workspace:
            return None
        return allocate(self.device, self.device.workspace, "libraries to work in")

    @property
    def nbytes(self) -> int:
        """Bytes of its memory."""
        return self.block.nbytes + (0 if self.workspace is None else self.workspace.nbytes)

    def kept(self, kept: Kept) -> DeviceTensor:
        """The tensor at a fixed place; new memory for what has none."""
        if kept.offset is None:
            return new_tensor(self.device, kept.shape, kept.dtype)
        return self.at(kept.offset, kept.shape, contiguous(kept.shape, kept.dtype), kept.dtype)

    def at(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> DeviceTensor:
        """A tensor in this runtime's memory."""
        return DeviceTensor(self.base + offset, shape, strides, dtype, self.block)

    def run(self, values: Sequence[Any], code: bc.Code | None = None) -> Any:
        """The graph's result for run-time values; tensors are DeviceTensors of their own.

        ``code``: this runtime's, with the times of its instructions taken down.
        """
        device = self.device
        stream = device.stream()
        if stream != self.stream:
            device.follow(stream, self.stream)
            self.stream, self._has_moved = stream, True
        self.flags = None
        self.stored: list[tuple[ScriptObject, int]] = []
        given = list(values)
        for i, place in self.inputs.items():
            x = given[i]
            if isinstance(x, DeviceTensor):
                if place.nbytes:
                    device.copy(place, x, stream)
                given[i] = place
            elif type(x) is np.ndarray:
                # Operators on the host read the caller's array itself.
                if place.nbytes:
                    device.upload(place.address, np.ascontiguousarray(x), stream)
            else:
                raise InternalError(f"input {i} was planned to be a tensor, and is a {type(x).__name__}")
            self.holds[place.address] = given[i]
        try:
            with np.errstate(all="ignore"):
                result = _INTERPRETER.run(self.code if code is None else code, given)
            return self.outside(result)
        finally:
            self.holds.clear()

    def outside(self, result: Any) -> Any:
        """A result whose tensors are all on the device, and none in this runtime's memory."""
        result = mapped(result, np.ndarray, lambda x: to_device(self.device, x, self.stream))
        return mapped(result, DeviceTensor, self.of_its_own)

    def of_its_own(self, x: DeviceTensor) -> DeviceTensor:
        """The tensor, or a copy of one in this runtime's memory or an attribute's."""
        is_own = x.owner is not self.block and type(x.owner) is not Resident
        return x if is_own else contiguous_copy(self.device, x, self.stream)

    # Operators on the host

    def on_host(self, value: Any) -> Any:
        """A value whose tensors are host arrays. A list, which others may hold too, is changed itself."""
        if isinstance(value, DeviceTensor):
            if type(value.owner) is Resident:
                return value.owner.host(value, self.stream)
            self.stats.to_host += value.nbytes
            return to_host(self.device, value, self.stream)
        if type(value) is _Fixed:
            return [self.on_host(v) for v in value]
        if type(value) is list:
            for i, v in enumerate(value):
                found = self.on_host(v)
                if found is not v:
                    value[i] = found
            return value
        if type(value) is dict:
            for k, v in value.items():
                value[k] = self.on_host(v)
            return value
        if isinstance(value, tuple):
            return mapped(value, DeviceTensor, self.on_host)
        return value

    def hosted(self, call: Callable[..., Any], *values: Any) -> Any:
        """An operator's result for values that may be on the device."""
        return call(*map(self.on_host, values))

    def get_attribute(self, slot: int, owner: ScriptObject) -> Any:
        """An object's attribute."""
        value = owner.slots[slot]
        if type(value) is DeviceTensor and type(value.owner) is Resident:
            value.owner.follow(self.stream)
        return value

    def set_attribute(self, slot: int, owner: ScriptObject, value: Any) -> None:
        """Store a value in an object: tensors on the device stay there, those in lists and dicts go to the host."""
        if isinstance(value, DeviceTensor):
            owner.slots[slot] = kept(self.device, value, self.stream)
            return
        owner.slots[slot] = self.on_host(value)
        self.stored.append((owner, slot))

    def view(self, step: ViewStep, base: Any, *rest: Any) -> Any:
        """The view of a tensor."""
        if not isinstance(base, DeviceTensor):
            return step.call(base, *map(self.on_host, rest))
        found = [_part(base, step.base, p) for p in step.parts]
        return found if step.is_list or len(found) > 1 else found[0]

    def check(self, step: CheckStep) -> None:
        """Raise the first message whose flag a kernel set; who runs this drops the runtime then."""
        flags = self.flags
        if flags is None:
            plan = self.plan
            flags = self.flags = np.zeros(plan.checks, np.int32)
            self.device.download(self.base + plan.flags, flags, self.stream)
        for k, message in enumerate(step.messages):
            if flags[step.first_check + k]:
                raise OpError(message)

    # Binding the code

    def _bound(self, code: bc.Code) -> bc.Code:
        # The code holds functions that refer to the runtime: a reference would keep it until a collection of cycles.
        me = proxy(self)
        template = [self._filled(v) for v in code.template]
        instructions = []
        what: Any
        for kind, instruction in zip(code.kinds, code.instructions, strict=True):
            what = instruction[1] if len(instruction) > 1 else None
            if isinstance(what, DeviceSegment):
                instruction = (instruction[0], self.runs[what.number], *instruction[2:])
            elif isinstance(what, ViewStep):
                instruction = (instruction[0], partial(_view, me, what), *instruction[2:])
            elif isinstance(what, CheckStep):
                instruction = (instruction[0], partial(_check, me, what), *instruction[2:])
            elif instruction[0] in _CALLS and kind not in _HOLDING:
                run = _contained if kind in _OF_CONTAINERS else _hosted
                instruction = (instruction[0], partial(run, me, what), *instruction[2:])
            elif instruction[0] == bc.GET:
                instruction = (bc.OP1, partial(_get, me, instruction[2]), instruction[1], *instruction[3:])
            elif instruction[0] == bc.SET:
                owner, slot, value, free = instruction[1:]
                template.append(None)
                instruction = (bc.OP2, partial(_set, me, slot), owner, value, len(template) - 1, free)
            instructions.append(instruction)
        return bc.Code(code.name, code.inputs, instructions, template, code.places, code.kinds)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Slot):
            found = self._slots.get(value)
            if found is None:
                found = self._slots[value] = self.at(value.offset, value.shape, value.strides, value.dtype)
            return found
        if type(value) is list and any(isinstance(v, (Slot, list)) for v in value):
            return _Fixed(map(self._filled, value))
        return value


def _view(runtime: DeviceArena, step: ViewStep, *values: Any) -> Any:
    return runtime.view(step, *values)


def _check(runtime: DeviceArena, step: CheckStep) -> None:
    runtime.check(step)


def _hosted(runtime: DeviceArena, call: Callable[..., Any], *values: Any) -> Any:
    return runtime.hosted(call, *values)


def _contained(runtime: DeviceArena, call: Callable[..., Any], *values: Any) -> Any:
    """What an operator does that, for a list or dict, does not look at the tensors in it."""
    return call(*values) if isinstance(values[0], (list, dict)) else runtime.hosted(call, *values)


def _get(runtime: DeviceArena, slot: int, owner: Any) -> Any:
    return runtime.get_attribute(slot, owner)


def _set(runtime: DeviceArena, slot: int, owner: Any, value: Any) -> None:
    runtime.set_attribute(slot, owner, value)


def _part(x: DeviceTensor, base: Place, part: Place) -> DeviceTensor:
    """A part of a tensor, given where both were planned to lie."""
    return DeviceTensor(x.address + part.offset - base.offset, part.shape, part.strides, part.dtype, x.owner)


def _arrays(plan: DevicePlan) -> list[np.ndarray]:
    """Arrays that steps read: those that the graph holds and those of the steps themselves."""
    found: dict[int, np.ndarray] = {}
    for segment in plan.segments:
        for planned in segment.steps:
            for x in (*planned.roots, *planned.step.constants):
                if isinstance(x, np.ndarray):
                    found[id(x)] = x
    return list(found.values())


def _is_in_place(x: Any, planned: Kept) -> bool:
    """Whether a tensor can be read where it lies."""
    if type(x) is not DeviceTensor or (x.shape, x.dtype) != (planned.shape, planned.dtype):
        return False
    return x.is_contiguous and x.address % ALIGN == 0


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
        return [self._call(call, at, runtime.device, workspace) for call in step.calls]

    @staticmethod
    def _call(call: Launch | Gemm | Convolution, at: Callable[[int], int], device: GpuDevice, workspace: int) -> Call:
        if isinstance(call, Launch):
            return device.launch(call, at)
        if isinstance(call, Gemm):
            return device.gemm(call, at, workspace)
        found = device.convolution(call, at, workspace)
        if found is None:
            raise InternalError(f"{device.name} has no library for the convolution of {call.x_shape}")
        return found

    def __call__(self, *arrays: Any) -> Any:
        stream = self._runtime.stream
        self._take(arrays, stream)
        self._run(stream)
        return self._give(arrays, stream)

    def timed(self, lap: Lap, *arrays: Any) -> Any:
        """The same, call by call, with the times of copies and of each step taken down."""
        stream = self._runtime.stream
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
            place = self._given[k]
            assert place is not None
            self._send_back(arrays[k], place, stream)
        results = []
        for place in self._made:
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
                self._device.copy(place, x, stream)
        else:
            self._stats.to_device += place.nbytes
            self._device.upload(place.address, np.ascontiguousarray(x), stream)
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
