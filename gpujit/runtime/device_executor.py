"""The executor of a function whose tensors live on a GPU: plans of the device, and the host where there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Node, Value
from gpujit.ir.module import Function
from gpujit.ir.values import CPU, Device, DeviceTensor, ScriptObject, parse_device
from gpujit.passes.analysis.alias import AliasAnalysis
from gpujit.passes.autocast import settle_casts, with_casts
from gpujit.passes.device import remap_devices, values_of
from gpujit.passes.inline import inlined
from gpujit.passes.nodes import constant_before, insert_op, replace_node
from gpujit.passes.peephole.device import on_device
from gpujit.runtime import bytecode as bc
from gpujit.runtime.device import NO_PLAN, GpuDevice, SharedMemory, mapped, require_process, to_device, to_host
from gpujit.runtime.device_attributes import Attributes, HostRun, residents_of, settle, within
from gpujit.runtime.executor import Executor, Plan, Planner
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.vm import Interpreter
from gpujit.support.errors import DeviceError, GpujitError

# Moves to a device that is not named.
_TO_DEVICES = ("aten::cuda", "aten::cpu")


# What takes tensors out of containers.
_TAKING = ("prim::ListUnpack", "prim::Tuple", "aten::__getitem__", "aten::pop", "aten::values", "aten::items")


class DeviceExecutor(Executor):
    """Runs one function on a device. Tensors come and go as DeviceTensors; host arrays are taken, too.

    What has no plan runs on the host, on copies: the answer is the same, and ``explain`` says why. All tensors of a
    program lie on its device, so that devices named in it are that one. ``attributes`` has those of the object; without
    it they are host arrays.
    """

    on_cores = False
    pipeline = "on_device"

    def __init__(
        self,
        device: GpuDevice,
        function: Function,
        rules: dict[str, Callable[..., Any]],
        attributes: Attributes | None = None,
        *,
        strict: bool = False,
        planner: Planner | None = None,
        compile: str = "ahead",
        threads: int | None = None,
    ) -> None:
        super().__init__(
            function, rules, self._interpret, strict=strict, planner=planner, compile=compile, threads=threads
        )
        self.device, self.attributes = device, attributes
        # Has this thread's run on the host.
        self._hosting = threading.local()
        lowerer = Lowerer(np, rules)
        lowerer.attributes = self._get, self._set
        self._interpreter = Interpreter(lowerer)
        self._code: bc.Code | None = None
        self._writes: bool | None = None
        # What is wrong with the device itself.
        self._broken: DeviceError | None = None

    def __call__(self, values: list[Any], out: Targets | None = None) -> Any:
        """The function's result for run-time values, the object first: tensors are DeviceTensors.

        ``out`` is not taken here: results are copied by who has the arrays.
        """
        require_process(self.device)
        with self.device.here():
            return self._call(values)

    def host_like(self, values: list[Any]) -> list[Any]:
        """Values that plans are made for: host arrays of the same shapes and dtypes instead of tensors."""
        return [*values[: self._first], *mapped(values[self._first :], DeviceTensor, _stand_in)]

    def _call(self, values: list[Any]) -> Any:
        plan = self.plan_for(self.host_like(values))
        if plan is None and self._broken is not None:
            raise DeviceError(self._broken.message, code=self._broken.code)
        if plan is None:
            self.counters.interpreted += 1
            return self._on_host(self.interpret, values)
        with self.settings():
            if plan.runner is None:
                return self._on_host(lambda host: self._run(plan, host, None), values)
            if self._first and self.attributes is not None:
                self.attributes.move(values[0])
            try:
                return plan.runner.run(values)
            except SharedMemory:
                # Nothing was done yet.
                self.counters.interpreted += 1
                return self._on_host(self.interpret, values)

    def _give_up(self, key: Any, fault: GpujitError) -> None:
        if isinstance(fault, DeviceError) and fault.code != NO_PLAN:
            self._broken = fault
        super()._give_up(key, fault)

    def _on_host(self, call: Callable[[list[Any]], Any], values: list[Any]) -> Any:
        """What a function on host arrays makes, on the device; what it writes into its operands, it writes there."""
        device = self.device
        stream = device.stream()
        given = values[self._first :]
        copies: list[tuple[DeviceTensor, np.ndarray]] = []
        run = HostRun(device, stream)
        residents = residents_of(values[0]) if self._first and self._may_write() else []

        def copied(x: DeviceTensor) -> np.ndarray:
            own = within(x, residents)
            if own is not None:
                # An attribute: what is written into it is seen in the input, too.
                return run.array(own)
            found = to_host(device, x, stream)
            copies.append((x, found))
            return found

        before = getattr(self._hosting, "run", None)
        self._hosting.run = run
        try:
            result = call([*values[: self._first], *mapped(given, DeviceTensor, copied)])
        finally:
            self._hosting.run = before
            run.write_back()
            if run.stored and self.attributes is not None and self.attributes.has(values[0]):
                settle(device, run.stored)
            if copies and self._may_write():
                for x, host in copies:
                    device.copy(x, to_device(device, host, stream), stream)
        return mapped(result, np.ndarray, lambda x: to_device(device, x, stream))

    def _get(self, slot: int, owner: ScriptObject) -> Any:
        run: HostRun | None = getattr(self._hosting, "run", None)
        return owner.slots[slot] if run is None else run.get(slot, owner)

    def _set(self, slot: int, owner: ScriptObject, value: Any) -> None:
        run: HostRun | None = getattr(self._hosting, "run", None)
        if run is None:
            owner.slots[slot] = value
        else:
            run.set(slot, owner, value)

    def code_of(self, graph: Graph, lowerer: Lowerer) -> bc.Code:
        lowerer.attributes = self._get, self._set
        return super().code_of(graph, lowerer)

    def _interpret(self, values: list[Any]) -> Any:
        if self._code is None:
            with self._lock:
                self._code = self._interpreter.lowerer.graph_code(self._source_graph())
        with np.errstate(all="ignore"):
            return self._interpreter.run(self._code, values)

    def _may_write(self) -> bool:
        """Whether the function may write into its operands."""
        if self._writes is None:
            graph = self._source_graph()
            self._writes = bool(written_inputs(graph, AliasAnalysis(graph)))
        return self._writes

    def _source_graph(self) -> Graph:
        if self._graph is None:
            self._graph = on_one_device(inlined(with_casts(self.function.graph)), parse_device(self.device.name))
        return self._graph

    def _prepare(self, values: list[Any]) -> Plan:
        self._source_graph()
        return super()._prepare(values)

    def stats(self) -> PlanStats:
        """What was done so far."""
        found = [getattr(p.runner, "stats", None) for p in self.plans()]
        done = [s for s in found if s is not None]
        return replace(
            super().stats(),
            captures=sum(s.captures for s in done),
            replays=sum(s.replays for s in done),
            fallbacks=sum(s.fallbacks.total() for s in done),
        )


def written_inputs(graph: Graph, alias: AliasAnalysis, apart: Collection[Node] = ()) -> list[Value]:
    """Inputs that a graph may write into, or into the tensors they hold; nodes in ``apart`` do not."""

    def is_written(value: Value) -> bool:
        return any(n not in apart for n in alias.writers(value))

    tensors = [v for v in graph.inputs if isinstance(v.type, T.TensorType)]
    found = [v for v in tensors if is_written(v)]
    # What is written and was not made here may come from any container, but not from an object's attributes.
    others = [v for v in graph.inputs if not isinstance(v.type, (T.TensorType, T.ClassType)) and _may_hold(v.type)]
    if others:
        for node in graph.all_nodes():
            if not node.kind.startswith(_TAKING):
                continue
            if any(isinstance(v.type, T.TensorType) and is_written(v) for v in node.outputs):
                return [*found, *others]
    return found


def _may_hold(t: T.Type) -> bool:
    """Whether values of a type may be tensors, or hold some."""
    if isinstance(t, T.TupleType):
        return any(map(_may_hold, t.elements))
    if isinstance(t, (T.OptionalType, T.UnionType)):
        return any(map(_may_hold, T.members_of(t)))
    if isinstance(t, T.DictType):
        return _may_hold(t.key) or _may_hold(t.value)
    return _may_hold(t.element) if isinstance(t, T.ListType) else isinstance(t, T.TensorType) or t == T.ANY


def on_one_device(graph: Graph, place: Device) -> Graph:
    """A copy of a graph whose tensors all lie on one device: it is told so where it asks, and to operators, which the
    host runs as well, it is the CPU."""
    graph = graph.copy()
    settle_casts(graph, place)
    remap_devices(graph, place)
    on_device(graph, str(place))
    for node in list(graph.all_nodes()):
        if node.kind in _TO_DEVICES:
            replace_node(node, [insert_op(node, "aten::alias", node.inputs[:1], node)])
        elif node.kind.startswith("aten::") and any(isinstance(v.type, T.TensorType) for v in node.outputs):
            for i, value in enumerate(node.inputs):
                if value.type == T.DEVICE and value.is_constant and value.constant() == place:
                    node.set_input(i, constant_before(node, CPU, T.DEVICE))
    for value in values_of(graph):
        t = value.type
        if isinstance(t, T.TensorType) and t.device is not None:
            value.type = replace(t, device=None)
    return graph


def _stand_in(x: DeviceTensor) -> np.ndarray:
    """A host array of the same shape and dtype, whose numbers mean nothing."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)
