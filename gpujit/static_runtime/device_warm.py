"""The kernels that plans on a GPU will launch, found out without one: plans are made as for a GPU, calls are
interpreted on the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpujit.fuser.fuse import FUSION_GROUP
from gpujit.fuser.lower import Lowered
from gpujit.fuser.report import report_of
from gpujit.ir.graph import Graph, Node
from gpujit.kernels.launches import DeviceKernel, DeviceStep, Launch
from gpujit.passes.analysis.effects import entry_of
from gpujit.runtime.explain import label_of
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets, put
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.steps import Options


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
    """What plans need: kernels, each once, and nodes that run on the host. ``launches`` counts each one of a plan."""

    kernels: dict[DeviceKernel, Launched] = field(default_factory=dict)
    host: dict[OnHost, None] = field(default_factory=dict)
    plans: int = 0
    launches: int = 0
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, graph: Graph, programs: Mapping[Node, Lowered], lowerer: Lowerer) -> None:
        """Note what the plan of a specialised, fused graph needs. Raises what planning raises."""
        decided = DeviceDecisions(graph, programs, lowerer, Options())
        with self._lock:
            self.plans += 1
            for node in decided.order:
                step = decided.natives.get(node)
                for call in step.calls if isinstance(step, DeviceStep) else ():
                    self.calls += 1
                    if isinstance(call, Launch):
                        self.launches += 1
                        self.kernels.setdefault(call.kernel, Launched(call.kernel, label_of(node), place_of(node)))
            for node, reason in decided.refusals.items():
                if entry_of(node) is None and node.kind != FUSION_GROUP:
                    # Lists, tuples and the like are the host's anyway.
                    continue
                self.host.setdefault(OnHost(label_of(node), place_of(node), reason))


def place_of(node: Node) -> str:
    """Where a node comes from: the lines of a group's operators; empty when it is not known."""
    if node.kind != FUSION_GROUP:
        return "" if node.source is None else str(node.source)
    return "; ".join(dict.fromkeys(p for p in report_of(node).places if p))


class Collector:
    """Stands for what runs a plan on a GPU."""

    def __init__(self, found: Found, interpret: Callable[[list[Any]], Any], parts: tuple[Any, ...]) -> None:
        self._found, self._interpret, self._parts = found, interpret, parts

    def prepare(self, values: list[Any]) -> None:
        """Make the plan, and note what it needs."""
        self._found.add(*self._parts)

    def run(self, values: list[Any], out: Targets | None = None) -> Any:
        """The function's result, by the interpreter."""
        result = self._interpret(values)
        return result if out is None else put(result, out)

    def explain(self, reasons: Mapping[Node, str]) -> str:
        """Nothing: the plan is not kept."""
        return ""

    def nbytes(self) -> int:
        """None are kept."""
        return 0


def collecting(found: Found, interpret: Callable[[list[Any]], Any]) -> Callable[..., Collector]:
    """A planner for executors whose plans' kernels are noted in ``found``."""
    return partial(_collector, found, interpret)


def _collector(
    found: Found,
    interpret: Callable[[list[Any]], Any],
    graph: Graph,
    programs: Mapping[Node, Lowered],
    lowerer: Lowerer,
) -> Collector:
    return Collector(found, interpret, (graph, programs, lowerer))
