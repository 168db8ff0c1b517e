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
from gpujit.runtime import bytecode as bc
from gpujit.runtime.device import (
    GpuDevice,
    Handle,
    Memory,
    SharedMemory,
    allocate,
    contiguous,
    contiguous_copy,
    mapped,
    new_tensor,
    raise_ours,
    to_device,
    to_host,
)
from gpujit.runtime.device_attributes import Resident, kept
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.static_runtime.device_build import CheckStep, DevicePlan, DeviceSegment, Kept, ViewStep
from gpujit.static_runtime.device_segments import SegmentRun
from gpujit.static_runtime.device_weights import Weights
from gpujit.static_runtime.places import Place, stand_in
from gpujit.static_runtime.steps import Slot
from gpujit.support.errors import DeviceError, InternalError, OpError

# Bytes of host arrays up to which it is looked whether they are on the device already: that takes some microseconds.
SMALL = 1 << 16

_INTERPRETER = Interpreter(Lowerer(np))
# Instructions that call a function.
_CALLS = (bc.OP1, bc.OP2, bc.OP3, bc.OP, bc.OPM)
# What holds tensors and does not look at them, and what does so when its first operand is a list or dict.
_HOLDING = ("prim::TupleConstruct", "prim::TupleIndex", "prim::TupleSlice", "prim::DictConstruct")
_OF_CONTAINERS = tuple(
    f"aten::{name}" for name in ("append", "insert", "__getitem__", "_set_item", "len", "pop", "extend", "values")
)


class _Fixed(list[Any]):
    """A list that the code holds: every run reads it, and none changes it."""


@dataclass
class DeviceStats:
    """What all runtimes of a plan did.

    ``launched``: runs of steps put on a stream call by call; ``captures`` and ``replays`` of graphs; ``fallbacks``: why
    graphs could not be had, and how often; bytes copied between host and device besides inputs and results; ``shared``:
    calls left to the host, as an attribute that is written had memory in common with another tensor.
    """

    launched: int = 0
    captures: int = 0
    replays: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    to_host: int = 0
    to_device: int = 0
    shared: int = 0


class Watch(Protocol):
    """Takes down when copies were done."""

    def moved(self, is_input: bool, call: Callable[[Any], Any], value: Any) -> Any:
        """What ``call`` makes of a value: brings inputs to their places, or results away from there."""


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
        # The bytes of small host arrays that were copied to places, where nothing else was written since.
        self._uploaded: dict[int, bytes] = {}
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

    def run(self, values: Sequence[Any], code: bc.Code | None = None, watch: Watch | None = None) -> Any:
        """The graph's result for run-time values; tensors are DeviceTensors of their own.

        ``code``: this runtime's, with the times of its instructions taken down, as ``watch`` does with copies.
        """
        device = self.device
        apart = self.plan.apart
        if apart is not None and not apart.holds(values):
            self.stats.shared += 1
            raise SharedMemory
        stream = device.stream()
        if stream != self.stream:
            device.follow(stream, self.stream)
            self.stream, self._has_moved = stream, True
        self.flags = None
        self.stored: list[tuple[ScriptObject, int]] = []
        given = self._inside(values) if watch is None else watch.moved(True, self._inside, values)
        try:
            with np.errstate(all="ignore"):
                result = _INTERPRETER.run(self.code if code is None else code, given)
            return self.outside(result) if watch is None else watch.moved(False, self.outside, result)
        finally:
            self.holds.clear()

    def _inside(self, values: Sequence[Any]) -> list[Any]:
        """The values with inputs at their places."""
        device, stream, given = self.device, self.stream, list(values)
        for i, place in self.inputs.items():
            x = given[i]
            if isinstance(x, DeviceTensor):
                if place.nbytes:
                    self.changes(place)
                    device.copy(place, x, stream)
                given[i] = place
            elif type(x) is np.ndarray:
                # Operators on the host read the caller's array itself.
                self.upload(place, x)
            else:
                raise InternalError(f"input {i} was planned to be a tensor, and is a {type(x).__name__}")
            self.holds[place.address] = given[i]
        return given

    def upload(self, place: DeviceTensor, x: np.ndarray) -> int:
        """Have a host array at a place; the bytes that were copied: none when they are there already."""
        if not place.nbytes:
            return 0
        if place.nbytes > SMALL:
            self.device.upload(place.address, np.ascontiguousarray(x), self.stream)
            return place.nbytes
        # The caller may change the array later, so that its bytes are kept, and not the array.
        now = x.tobytes()
        if self._uploaded.get(place.address) != now:
            self.changes(place)
            self.device.upload(place.address, np.ascontiguousarray(x), self.stream)
            self._uploaded[place.address] = now
            return place.nbytes
        return 0

    def changes(self, place: DeviceTensor) -> None:
        """Something else is written to a place."""
        self._uploaded.pop(place.address, None)

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
            return self._copied(value)
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

    def _copied(self, x: DeviceTensor) -> np.ndarray:
        """A tensor's copy on the host."""
        try:
            if type(x.owner) is Resident:
                return x.owner.host(x, self.stream)
            self.stats.to_host += x.nbytes
            return to_host(self.device, x, self.stream)
        except Exception as fault:
            raise_ours(self.device, fault)

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
        planned = step.base
        if any(n > 1 and a != b for n, a, b in zip(base.shape, base.strides, planned.strides, strict=True)):
            found = self._strided(step, base, rest)
        else:
            found = [_part(base, planned, p) for p in step.parts]
        return found if step.is_list or len(found) > 1 else found[0]

    def _strided(self, step: ViewStep, base: DeviceTensor, rest: Sequence[Any]) -> list[DeviceTensor]:
        """The views of a tensor that lies otherwise than was planned: an attribute."""
        memory, x = stand_in(base.shape, base.strides, base.dtype)
        made = step.call(x, *map(self.on_host, rest))
        views = made if isinstance(made, (list, tuple)) else [made]
        if not all(np.may_share_memory(memory, y) for y in views if y.size):
            # The operator copies what lies so, and sees what lies together.
            return self._strided(step, contiguous_copy(self.device, base, self.stream), rest)
        first = x.__array_interface__["data"][0]
        starts = [base.address + y.__array_interface__["data"][0] - first if y.size else base.address for y in views]
        return [DeviceTensor(at, y.shape, y.strides, y.dtype, base.owner) for at, y in zip(starts, views, strict=True)]

    def check(self, step: CheckStep) -> None:
        """Raise the first message whose flag a kernel set; who runs this drops the runtime then."""
        flags = self.flags
        if flags is None:
            plan = self.plan
            flags = self.flags = np.zeros(plan.checks, np.int32)
            try:
                self.device.download(self.base + plan.flags, flags, self.stream)
            except Exception as fault:
                raise_ours(self.device, fault)
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
