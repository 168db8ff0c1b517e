"""DeviceGraph: one specialised graph with planned memory on a GPU, safe to call from many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any
from weakref import WeakSet

from gpujit.fuser.lower import Lowered
from gpujit.ir.graph import Graph, Node
from gpujit.kernels.cuda_autotune import measuring
from gpujit.kernels.cuda_tile import within
from gpujit.kernels.launches import DeviceKernel, Gemm, Launch
from gpujit.passes.analysis.attributes import GET, SET
from gpujit.runtime.device import GpuDevice, reclaimers, require_process
from gpujit.runtime.device_attributes import settle
from gpujit.runtime.executor import Planner
from gpujit.runtime.explain import label_of, line
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets
from gpujit.static_runtime.decide import name_values
from gpujit.static_runtime.device_build import DevicePlan, build_device
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.device_run import DeviceArena, DeviceStats
from gpujit.static_runtime.device_timer import DeviceTimer
from gpujit.static_runtime.device_weights import Weights
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import facts_of
from gpujit.static_runtime.steps import Options
from gpujit.static_runtime.tiers import Tier
from gpujit.support.errors import ArgumentError
from gpujit.support.watch import running

# The profiler that takes times, or None.
watched = running.get
# What only holds tensors, wherever they are.
_PLUMBING = tuple(
    f"prim::{n}" for n in ("ListConstruct", "TupleConstruct", "DictConstruct", "ListUnpack", "TupleUnpack")
)

_weights: dict[str, Weights] = {}
_graphs: WeakSet[DeviceGraph] = WeakSet()
_lock = threading.Lock()


def weights_on(device: GpuDevice) -> Weights:
    """The copies of weights that a device has."""
    with _lock:
        found = _weights.get(device.name)
        if found is None or found.device is not device:
            found = _weights[device.name] = Weights(device)
        return found


def _give_back(device: GpuDevice) -> bool:
    """Drop the runtimes between two runs of all plans on a device; whether there were any."""
    found = False
    for graph in list(_graphs):
        if graph.device is device and graph._idle:
            found = True
            graph._idle.clear()
    return found


reclaimers.append(_give_back)


def device_planner(device: GpuDevice, options: Options = Options()) -> Planner:  # noqa: B008  # it is frozen
    """What plans graphs for a device."""
    return partial(_planned, device, options)


def _planned(
    device: GpuDevice, options: Options, graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer
) -> DeviceGraph:
    return DeviceGraph(device, graph, programs, lowerer, options)


class DeviceGraph:
    """A graph whose types say all shapes, ready to be run on one device on inputs of those shapes.

    Any number of threads may call ``run``: each call takes a runtime from a pool, and no lock is held while it runs.
    """

    def __init__(
        self,
        device: GpuDevice,
        graph: Graph,
        programs: Mapping[Node, Lowered],
        lowerer: Lowerer,
        options: Options = Options(),  # noqa: B008  # it is frozen
    ) -> None:
        self.device, self.graph, self.options = device, graph, options
        self.stats = DeviceStats()
        self._programs, self._lowerer = programs, lowerer
        self._plan: DevicePlan | None = None
        self._idle: list[DeviceArena] = []
        self._lock = threading.Lock()
        _graphs.add(self)

    def prepare(self, values: Sequence[Any]) -> None:
        """Make the plan. Raises DeviceError when the graph has none, with the reason."""
        self.plan()

    def plan(self) -> DevicePlan:
        """The plan, made when there is none yet."""
        with self._lock:
            if self._plan is None:
                self._plan = self._make()
            return self._plan

    def _make(self) -> DevicePlan:
        device, refused = self.device, set[DeviceKernel]()
        while True:
            with within(device.limits), measuring(DeviceTimer(device)):
                decisions = DeviceDecisions(
                    self.graph, self._programs, self._lowerer, self.options, device.room, refused
                )
                plan = build_device(decisions)
            found = device.compile(plan.kernels())
            if not found:
                return plan
            # Their operators run on the host.
            refused |= found

    def run(self, values: Sequence[Any], out: Targets | None = None) -> Any:
        """The graph's result for run-time values, in whose place tensors are DeviceTensors, or arrays of the host's.

        Raises what the program raises, and DeviceError when there is no memory; the module stays usable.
        """
        if out is not None:
            raise ArgumentError("results of a plan on a GPU are copied to given arrays by who asked for them")
        require_process(self.device)
        plan = self._plan or self.plan()
        try:
            runtime = self._idle.pop()
        except IndexError:
            runtime = DeviceArena(plan, self.device, weights_on(self.device), self.stats)
        # One whose run failed is not used again: nobody knows what of it was done.
        watch = watched()
        result = runtime.run(values) if watch is None else watch.recorder(self, plan).run(runtime, values)
        stored = runtime.stored
        self._idle.append(runtime)
        if stored:
            settle(self.device, stored)
        return result

    @property
    def quick(self) -> None:
        """There is nothing quicker than ``run``."""

    @property
    def is_quickened(self) -> bool:
        """There is one kernel for all sizes."""
        return False

    def nbytes(self) -> int:
        """Bytes of device memory kept between runs, without weights."""
        return sum(r.nbytes for r in list(self._idle))

    def tiers(self, reasons: Mapping[Node, str]) -> list[Tier]:
        """What runs each node, and why not the device. ``reasons``: why nodes were not fused.

        Raises ArgumentError before the first run.
        """
        plan = self._known()
        names = name_values(self.graph)
        why = {names[n.outputs[0]]: r for n, r in reasons.items() if n.outputs and n.outputs[0] in names}
        found = []
        for node in plan.order:
            if node.kind != RETURN:
                refusal = why.get(plan.names.get(node.outputs[0], ""), "") if node.outputs else ""
                name, reason = _tier(node, plan, refusal)
                found.append(Tier(node, name, plan.labels.get(node) or label_of(node), reason))
        return found

    def _known(self) -> DevicePlan:
        if self._plan is None:
            raise ArgumentError("a planned graph has no plan before its first run")
        return self._plan

    def explain(self, reasons: Mapping[Node, str]) -> str:
        """What runs each node, and why not the device; what is moved, and what graphs did. ``reasons``: why nodes
        were not fused."""
        plan, stats = self._known(), self.stats
        share = plan.arena.size / plan.arena.bound if plan.arena.bound else 1.0
        lines = [
            f"{self.device.name}: {plan.size:,} bytes for each runtime, of which an arena of {plan.arena.size:,} "
            f"({share:.3f} of the lower bound) for {plan.planned} values of {plan.separate:,} bytes, "
            f"{plan.overwritten} of them in place of an operand",
            f"{len(plan.segments)} runs of steps: {stats.launched} times call by call, {stats.captures} graphs "
            f"captured, {stats.replays} replays; {stats.to_host:,} bytes to the host and {stats.to_device:,} back so "
            "far",
        ]
        lines += [f"no graph: {reason} ({count} times)" for reason, count in stats.fallbacks.items()]
        if stats.shared:
            lines.append(
                f"{stats.shared} calls ran on the host: an attribute that is written shares memory with another tensor "
                "or does not lie together"
            )
        lines += [line(t.name, t.reason, t.node, t.label) for t in self.tiers(reasons)]
        return "\n".join(lines)


def _tier(node: Node, plan: DevicePlan, refusal: str) -> tuple[str, str]:
    """What runs a node, and why nothing better does."""
    step = plan.steps.get(node)
    if step is not None:
        kernels = sum(isinstance(c, Launch) for c in step.calls)
        calls = len(step.calls)
        declined = plan.declined.get(node, "")
        if kernels == calls:
            parts = ["" if kernels < 2 else f"{kernels} launches", declined]
            return "device kernel", "; ".join(p for p in parts if p)
        library = "cuBLAS" if any(isinstance(c, Gemm) for c in step.calls) else "cuDNN"
        text = library + (f" and {kernels} launches" if kernels else "")
        return "device library", f"{text}; {declined}" if declined else text
    if plan.kinds[node] == "view":
        return "view", ""
    if plan.kinds[node] == "control":
        return "control", "data decide what runs; its blocks are planned"
    reason = plan.host.get(node, "")
    moved = _bytes_between(node)
    if node.kind in (GET, SET) or node.kind in _PLUMBING or (node.kind.startswith("prim::") and not moved):
        return "interpreter", reason
    parts = [p for p in dict.fromkeys((reason, refusal)) if p]
    return "host", "; ".join([*parts, f"up to {moved:,} bytes to the host and back"])


def _bytes_between(node: Node) -> int:
    """Bytes of the tensors that a node on the host reads and makes, were they all on the device."""
    values = [*(v for v in node.inputs if not v.is_constant), *node.outputs]
    facts = [facts_of(v) for v in values]
    return sum(prod(f[0]) * f[1].itemsize for f in facts if f is not None)
