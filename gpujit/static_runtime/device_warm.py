"""The kernels that plans on a GPU will launch, found out without one: plans are made as for a GPU, and calls run on the
host."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.lower import Lowered
from gpujit.fuser.report import report_of
from gpujit.ir.graph import Graph, Node
from gpujit.ir.module import Function
from gpujit.kernels.cuda_tile import Limits, within
from gpujit.kernels.launches import DeviceKernel, Launch
from gpujit.passes.analysis.effects import entry_of
from gpujit.runtime.device import GpuDevice
from gpujit.runtime.device_executor import DeviceExecutor
from gpujit.runtime.explain import label_of
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets
from gpujit.static_runtime.device_build import DevicePlan, build_device
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.steps import Options
from gpujit.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel, and the first node that launches it: its operators, and its lines of source ('' for none)."""

    kernel: DeviceKernel
    operators: str
    place: str


@dataclass(frozen=True, slots=True)
class OnHost:
    """A node that has no step on the device: its operators, its line of source, and why."""

    operators: str
    place: str
    reason: str


@dataclass
class Found:
    """What plans need: kernels, each once, and nodes that run on the host.

    ``launches`` are all of the plans', ``calls`` those and the calls of libraries.
    """

    kernels: dict[DeviceKernel, Launched] = field(default_factory=dict)
    host: dict[OnHost, None] = field(default_factory=dict)
    plans: int = 0
    launches: int = 0
    calls: int = 0
    # Why some inputs have no plan.
    unplanned: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, plan: DevicePlan) -> None:
        """Note what a plan needs."""
        with self._lock:
            self.plans += 1
            for node, step in plan.steps.items():
                for call in step.calls:
                    self.calls += 1
                    if isinstance(call, Launch):
                        self.launches += 1
                        self.kernels.setdefault(call.kernel, Launched(call.kernel, label_of(node), place_of(node)))
            for node, reason in plan.host.items():
                # Lists, tuples and the like are the host's anyway.
                if entry_of(node) is not None or node.kind == FUSION_GROUP:
                    self.host.setdefault(OnHost(label_of(node), place_of(node), reason))


def place_of(node: Node) -> str:
    """Where a node comes from: the lines of a group's operators; empty when it is not known."""
    if node.kind != FUSION_GROUP:
        return "" if node.source is None else str(node.source)
    return "; ".join(dict.fromkeys(p for p in report_of(node).places if p))


@dataclass(frozen=True, slots=True)
class Target:
    """What plans need to know of a GPU that is not here."""

    name: str = "cuda:0"
    pid: int = field(default_factory=os.getpid)
    limits: Limits = field(default_factory=Limits)


class WarmExecutor(DeviceExecutor):
    """Makes the plans of one function for a target, notes what they need in ``found``, and runs calls on the host."""

    def __init__(self, function: Function, rules: dict[str, Callable[..., Any]], found: Found, target: Target) -> None:
        super().__init__(cast(GpuDevice, target), function, rules, planner=partial(_planned, found, target))

    def __call__(self, values: list[Any], out: Targets | None = None) -> Any:
        """The function's result for host arrays, by the interpreter."""
        self.plan_for(values)
        return self.interpret(values)


class _Planned:
    """Stands for what runs a plan on a GPU."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make = make

    def prepare(self, values: list[Any]) -> None:
        """Make the plan, and note what it needs. Raises what planning raises."""
        self._make()

    def run(self, values: list[Any], out: Targets | None = None) -> Any:
        """Nothing runs here."""
        raise InternalError("a plan that was made for a GPU elsewhere cannot run")

    def explain(self, reasons: Mapping[Node, str]) -> str:
        """Nothing: the plan is not kept."""
        return ""

    @property
    def quick(self) -> None:
        """Nothing runs here."""

    @property
    def is_quickened(self) -> bool:
        """Nothing runs here."""
        return False

    def nbytes(self) -> int:
        """None are kept."""
        return 0


def _planned(
    found: Found, target: Target, graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer
) -> _Planned:
    def make() -> None:
        with within(target.limits):
            found.add(build_device(DeviceDecisions(graph, programs, lowerer, Options())))

    return _Planned(make)
