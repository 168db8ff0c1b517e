"""What the modules of one file share: the interpreter, executors of optimised functions, the archive's source."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.ir.module import Function
from gpujit.ir.values import DeviceTensor, ScriptObject
from gpujit.runtime.device import GpuDevice, to_device, to_host
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import put, targets_of
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.vm import Interpreter
from gpujit.serialization import reader
from gpujit.support.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from gpujit.runtime.device_attributes import Attributes


class Program:
    """What the modules of one file share: the interpreter and the archive's source."""

    def __init__(self, xp: Any) -> None:
        self.lowerer = Lowerer(xp)
        self.interpreter = Interpreter(self.lowerer)
        self.loaded: reader.Loaded | None = None
        # What freezing did to the module; None before.
        self.report: Any = None
        # Makes the executor of a function, when functions are specialised and fused; None when they are interpreted.
        self.optimised: Callable[[Function], Any] | None = None
        # Optimises a copy of the module with the same options; None when functions are interpreted.
        self.optimise_copy: Callable[[Any], Any] | None = None
        # Where functions run; None for the CPU. ``choice`` says why, when nobody asked for just that.
        self.device: GpuDevice | None = None
        self.choice = ""
        # Its tensors on the device, and the modules whose they are.
        self.attributes: Attributes | None = None
        self.roots: dict[int, ScriptObject] = {}
        self._executors: dict[Function, Any] = {}
        # The object whose ``forward`` was called last, and what may answer calls like that one; see ``Executor.quick``.
        self.quick: tuple[Any, Callable[[Any], Any]] | None = None
        self._lock = threading.RLock()

    def run(self, function: Function, args: list[Any], out: Any = None) -> Any:
        """Run a function on run-time values; the result goes into the arrays ``out``, as ``targets`` gives them."""
        try:
            return self._run(function, args, out)
        except Exception as fault:
            if self.device is None and args:
                _require_here(args[0], fault)
            raise

    def _run(self, function: Function, args: list[Any], out: Any) -> Any:
        executor = self.executor(function)
        if executor is not None:
            if self.device is not None:
                return self.put(executor(args), out)
            return executor(args) if out is None else executor(args, out)
        result = self.interpret(function, args)
        return result if out is None else put(result, out)

    def copy(self) -> Program:
        """The same for a copy of the modules, on the CPU."""
        made = Program(np)
        made.loaded, made.report = self.loaded, self.report
        made.lowerer.rules = self.lowerer.rules
        return made

    def note_call(self, owner: Any, function: Function) -> None:
        """Have calls like this one, of an object's method without hooks, answered quickly."""
        executor = self._executors.get(function)
        call = None if executor is None else executor.quick()
        self.quick = None if call is None else (owner, call)

    # On a GPU

    def place(self, device: GpuDevice | None, choice: str = "") -> None:
        """Run functions on a device from now on, or on the CPU. Raises DeviceError when attributes that are on a device
        cannot be had from there; then nothing has changed."""
        with self._lock:
            if self.attributes is not None:
                self.attributes.bring_back()
            attributes = None
            if device is not None:
                from gpujit.runtime.device_attributes import Attributes

                attributes = Attributes(device, self.roots)
            self.device, self.choice, self.attributes = device, choice, attributes
            self._executors, self.quick = {}, None

    def add_root(self, root: ScriptObject) -> None:
        """Note a module; those met later are parts of the first one, or of no other."""
        if not self.roots:
            self.roots[id(root)] = root

    def read(self, owner: ScriptObject, slot: int) -> Any:
        """An attribute for callers."""
        return owner.slots[slot] if self.attributes is None else self.attributes.read(owner, slot)

    def taken(self, value: Any) -> Any:
        """A caller's value as attributes hold it."""
        return value if self.attributes is None else self.attributes.taken(value)

    def bring_back(self) -> None:
        """Have attributes on the host until functions run again."""
        if self.attributes is not None:
            self.attributes.bring_back()

    def on_host(self, root: ScriptObject) -> AbstractContextManager[None]:
        """A block in which the attributes of a module are host arrays, to be read only. Raises DeviceError for one that
        was moved to a device with another module that it is a part of."""
        if self.attributes is not None:
            return self.attributes.on_host(root)
        _require_here(root)
        return nullcontext()

    def arguments(self, value: Any) -> Any:
        """A caller's value as functions on the device take it. Raises DeviceError for arrays on another one."""
        from gpujit.runtime.device_outputs import arguments

        return value if self.device is None else arguments(self.device, value)

    def targets(self, out: Any) -> Any:
        """Arrays that a caller gives for results. Raises ArgumentError and DeviceError for what cannot be written."""
        if self.device is None:
            return targets_of(out)
        from gpujit.runtime.device_outputs import device_targets

        return device_targets(self.device, out)

    def put(self, result: Any, out: Any) -> Any:
        """A result in the arrays that were given for it, if any were. Raises ArgumentError when they do not fit."""
        if out is None or self.device is None:
            return result if out is None else put(result, out)
        from gpujit.runtime.device_outputs import put_on_device

        with self.device.here():
            return put_on_device(self.device, result, out)

    def array(self, tensor: DeviceTensor) -> Any:
        """A tensor on the device as callers see it."""
        from gpujit.runtime.device_attributes import Resident

        device = self.device
        if type(tensor.owner) is Resident:
            device, tensor = tensor.owner.device, replace(tensor, owner=tensor.owner.memory)
        assert device is not None
        return device.array(tensor)

    def fetched(self, value: Any) -> Any:
        """A caller's value, as a host array when it is one on the device. Raises DeviceError for arrays on another."""
        if self.device is None or isinstance(value, np.ndarray):
            return value
        tensor = self.device.tensor(value)
        if tensor is None:
            return value
        with self.device.here():
            return to_host(self.device, tensor, self.device.stream())

    def fill(self, array: Any, numbers: np.ndarray) -> None:
        """Copy numbers into an array, of their shape and dtype, that ``read`` gave."""
        if isinstance(array, np.ndarray) or self.device is None:
            array[...] = numbers
            return
        with self.device.here():
            device, stream = self.device, self.device.stream()
            tensor = device.tensor(array)
            if tensor is not None and tensor.nbytes:
                device.copy(tensor, to_device(device, numbers, stream), stream)
                # Plans on other streams read it, too.
                device.synchronise(stream)

    def optimise(self, make: Callable[[Function], Any]) -> None:
        """Run functions with what ``make`` makes for each from now on."""
        with self._lock:
            self.optimised, self._executors, self.quick = make, {}, None

    def executor(self, function: Function) -> Any:
        """What runs a function specialised for its inputs; None when it is interpreted."""
        found = self._executors.get(function)
        if found is None and (self.optimised is not None or self.device is not None):
            with self._lock:
                make = self.optimised or self.on_device
                found = self._executors.setdefault(function, make(function))
        return found

    def executors(self) -> list[Any]:
        """The executors of all functions that ran."""
        return list(self._executors.values())

    def on_device(self, function: Function, *, strict: bool = False, compile: str = "ahead") -> Any:
        """What runs a function on the program's device."""
        # What plans is needed by few, and loading by all.
        from gpujit.runtime.device_executor import DeviceExecutor
        from gpujit.static_runtime.device_module import device_planner

        assert self.device is not None
        planner, rules = device_planner(self.device), self.lowerer.rules
        return DeviceExecutor(
            self.device, function, rules, self.attributes, strict=strict, planner=planner, compile=compile
        )

    def stats(self) -> PlanStats:
        """What the executors of all functions did."""
        return sum((e.stats() for e in self.executors()), PlanStats())

    def require_plans(self, function: Function) -> None:
        """Raises ArgumentError when functions run on the interpreter alone."""
        if self.optimised is None and self.device is None:
            raise ArgumentError(
                f"{function.name} runs on the interpreter, where there is nothing to prepare; call "
                "gpujit.optimize_for_inference(module) first"
            )

    def compiling(self) -> threading.RLock:
        """What to hold while functions are compiled: that fills shared tables."""
        return self._lock

    def saving(self) -> dict[str, Any]:
        """What the writer has to know besides the module."""
        # Attributes are on the host meanwhile.
        run = self.run if self.device is None else self.interpret
        return {"run_method": run, "trainable": None if self.loaded is None else self.loaded.trainable}

    def interpret(self, function: Function, args: list[Any]) -> Any:
        """Run a function as it is written."""
        code = self.lowerer.find(function)
        if code is None:
            # Compiling reads and fills shared tables; running does not.
            with self._lock:
                code = self.lowerer.code(function)
        with np.errstate(all="ignore"):
            return self.interpreter.run(code, args)


def _require_here(root: Any, fault: Exception | None = None) -> None:
    """Raises DeviceError when attributes of an object are on a device, ``fault`` being what that led to."""
    if "gpujit.runtime.device_attributes" not in sys.modules:
        # No device was ever used.
        return
    from gpujit.passes.analysis.attributes import reachable

    for owner in reachable([root]):
        for name, value in zip(owner.type.attributes, owner.slots, strict=True):
            if type(value) is DeviceTensor:
                raise DeviceError(
                    f"{owner.type.name}.{name} is on a GPU: the module was moved there as a part of another one; move "
                    "that one to 'cpu', or this one to the GPU as well"
                ) from fault
