"""From a specialised, fused graph to a plan for a GPU.

The code is the interpreter's, as on the CPU. Runs of device steps are single instructions, and so is each view of a
tensor in device memory. Tensors in the arena are constants of the code, which each runtime fills in. Everything that
steps are given or leave behind has a fixed place too, beside the arena, to which it is copied before a run, or from
which after it: so a run's launches always have the same addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gpujit.ir.graph import Graph, Node, Value
from gpujit.kernels.launches import DeviceKernel, DeviceStep, Gemm, Launch
from gpujit.passes.analysis.attributes import GET, SET
from gpujit.passes.analysis.effects import entry_of
from gpujit.runtime import bytecode as bc
from gpujit.runtime.device import ALIGN, NO_PLAN
from gpujit.runtime.explain import label_of
from gpujit.static_runtime.build import NATIVE_RUN, Emit
from gpujit.static_runtime.device_decide import DeviceDecisions
from gpujit.static_runtime.device_writes import Apart, apart_of
from gpujit.static_runtime.order import RETURN
from gpujit.static_runtime.places import Place, facts_of
from gpujit.static_runtime.plan import Plan
from gpujit.static_runtime.report import PlannedValue, planned_values
from gpujit.support.errors import DeviceError

# Instructions that run code of other functions, whose operators would meet tensors in device memory.
_ELSEWHERE = (bc.CALL, bc.CALLM, bc.FORK, bc.ENTER, bc.EXIT)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A device step of a run. ``roots`` are where its arrays' memory begins: a place in the block of a runtime's
    memory, an array that the graph holds, or an attribute, which is read where it lies. ``first_check`` numbers its
    flags."""

    node: Node
    position: int
    step: DeviceStep
    roots: tuple[int | np.ndarray | Kept, ...]
    first_check: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A contiguous tensor with a fixed place in a runtime's memory; ``offset`` is None for an attribute, which has its
    own."""

    value: Value
    offset: int | None
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(eq=False)
class DeviceSegment:
    """Steps that are put on a stream one behind the other.

    ``given`` come from the code's registers, ``made`` go there as new tensors, and the numbers in ``written`` are those
    of given ones that are written over.
    """

    number: int
    steps: list[PlannedStep]
    given: list[Kept]
    made: list[Kept]
    written: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """A view: of a tensor on the device one with a place relative to it; of a host array what the operator makes.

    ``base`` is the place of the operand, ``parts`` are those of the results, and ``is_list`` says that they come as a
    list.
    """

    call: Any
    base: Place
    parts: tuple[Place, ...]
    is_list: bool


@dataclass(frozen=True, slots=True, eq=False)
class CheckStep:
    """Raises what a step's kernels found wrong."""

    messages: tuple[str, ...]
    first_check: int


@dataclass(eq=False)
class DevicePlan:
    """Everything about one graph on one device that all its runtimes share.

    A runtime's memory is one block of ``size`` bytes: the arena, then the places of kept tensors, flags and scratch.
    ``inputs`` are the graph's inputs with a place; ``host`` the nodes that run on the host, with the reason;
    ``declined`` say why a library does not do a step that it might; ``labels`` what steps do that are those of two
    nodes; ``values`` are those that lie in the arena; ``apart`` has the attributes that are written, which must share
    no memory.
    """

    graph: Graph
    code: bc.Code
    segments: list[DeviceSegment]
    arena: Plan
    size: int
    flags: int
    checks: int
    scratch: int
    scratch_size: int
    inputs: dict[int, Kept]
    order: list[Node]
    kinds: dict[Node, str]
    names: dict[Value, str]
    steps: dict[Node, DeviceStep]
    host: dict[Node, str]
    declined: dict[Node, str]
    labels: dict[Node, str]
    separate: int
    planned: int
    overwritten: int
    values: list[PlannedValue]
    apart: Apart | None

    def kernels(self) -> list[DeviceKernel]:
        """The kernels of all steps, each once."""
        calls = (c for step in self.steps.values() for c in step.calls)
        return list(dict.fromkeys(c.kernel for c in calls if isinstance(c, Launch)))

    @property
    def needs_workspace(self) -> bool:
        """Whether there are products."""
        return any(isinstance(c, Gemm) for step in self.steps.values() for c in step.calls)


def build_device(decisions: DeviceDecisions) -> DevicePlan:
    """The plan of a graph. Raises DeviceError, which says why, when it cannot be run on a GPU."""
    return _DeviceEmit(decisions).planned()


def _fixed(build: DeviceDecisions) -> set[Value]:
    """Tensors in attributes that the graph reads and never replaces, nor writes but by copies to where they lie."""
    nodes = list(build.graph.all_nodes())
    replaced = {n.attributes["name"] for n in nodes if n.kind == SET}
    found = {n.output for n in nodes if n.kind == GET and n.attributes["name"] not in replaced}
    known = build.writes.known
    return {v for v in found if facts_of(v) is not None and all(n in known for n in build.alias.writers(v))}


def _label(joined: Node, node: Node) -> str:
    """What a step does that is also that of a node before or behind it."""
    if joined.inputs[1:2] == node.outputs:
        return f"{label_of(node)}, into an attribute"
    return f"{label_of(joined)}+{label_of(node).rpartition('::')[2]}"


class _DeviceEmit(Emit):
    ends_at_checks = False
    build: DeviceDecisions

    def __init__(self, build: DeviceDecisions) -> None:
        # What lies behind the arena.
        self.end = build.plan.size
        self.kept: dict[Value, Kept] = {}
        # Attributes that nothing here writes.
        self.fixed = _fixed(build)
        self.device_segments: list[DeviceSegment] = []
        self.device_steps: dict[Node, DeviceStep] = {}
        super().__init__(build)

    def planned(self) -> DevicePlan:
        build = self.build
        inputs = {}
        for i, value in enumerate(build.graph.inputs):
            if facts_of(value) is not None:
                inputs[i] = self.keep(value)
        found = self.finish()
        code = found.code
        elsewhere = [code.kinds[i] for i, item in enumerate(code.instructions) if item[0] in _ELSEWHERE]
        if elsewhere:
            text = f"it calls what is only known when it runs ({elsewhere[0]}), which the host does"
            raise DeviceError(text, code=NO_PLAN)
        flags = self.room(4 * max(self.checks, 1))
        scratch = self.room(self.scratch)
        nodes = [n for n in build.order if n.kind != RETURN]
        return DevicePlan(
            graph=found.graph,
            code=code,
            segments=self.device_segments,
            arena=build.plan,
            size=self.end,
            flags=flags,
            checks=self.checks,
            scratch=scratch,
            scratch_size=self.scratch,
            inputs=inputs,
            order=build.order,
            kinds=build.kinds,
            names=build.names,
            steps=self.device_steps,
            labels={n: _label(first, n) for first, n in build.ended_by.items()},
            declined={n: r for n, r in build.declined.items() if n in self.device_steps},
            host={n: build.refusals.get(n, "") for n in nodes if build.kinds[n] == "interpreter"},
            separate=found.separate,
            planned=len(found.values),
            overwritten=len(found.values) - len(found.buffers),
            values=planned_values(found),
            apart=apart_of(build.graph, build.order, build.places, build.writes),
        )

    def room(self, nbytes: int) -> int:
        """A place for so many bytes of a runtime's memory."""
        start = -(-self.end // ALIGN) * ALIGN
        self.end = start + nbytes
        return start

    def keep(self, value: Value) -> Kept:
        """The fixed place of a tensor."""
        found = self.kept.get(value)
        if found is None:
            facts = facts_of(value)
            place = self.places.of(value)
            assert place is not None
            shape, dtype = facts or (place.shape, place.dtype)
            offset = None if value in self.fixed else self.room(prod(shape) * dtype.itemsize)
            found = self.kept[value] = Kept(value, offset, shape, dtype)
        return found

    # Nodes that are no device steps

    def python(self, node: Node) -> None:
        base = self.places.of(node.inputs[0]) if node.inputs else None
        if node not in self.places.views or base is None or entry_of(node) is None:
            super().python(node)
            return
        self.flush()
        new = self.like(node)
        self.block.append(new)
        for value in node.outputs:
            self.new[value] = new.add_output(value.type, value.name)
        items = self.places.parts_of(node.outputs[0])
        places = [p for p in (map(self.places.of, node.outputs) if items is None else items) if p is not None]
        step = ViewStep(self.build.lowerer.operator(node), base, tuple(places), items is not None)
        self.steps[new] = step  # type: ignore[assignment]  # a runtime makes it callable

    # Runs

    def flush(self) -> None:
        if not self.pending:
            return
        build = self.build
        nodes, self.pending = self.pending, []
        given: dict[Value, Kept] = {}
        made: dict[Value, Kept] = {}
        written: set[Value] = set()
        steps: list[PlannedStep] = []

        def root_of(place: Place, is_written: bool) -> int | np.ndarray | Kept:
            root = place.root
            if root in build.offset:
                return build.offset[root]
            if root.is_constant:
                array: np.ndarray = root.constant()
                return array
            if root not in made:
                given[root] = self.keep(root)
                if is_written:
                    written.add(root)
            found = self.keep(root)
            return found if found.offset is None else found.offset

        for node in nodes:
            step = build.natives[node]
            assert isinstance(step, DeviceStep)
            roots: list[int | np.ndarray | Kept] = []
            for place in map(self.places.of, build.operands[node]):
                assert place is not None
                roots.append(root_of(place, False))
            for value in node.outputs:
                result = self.places.of(value)
                assert result is not None
                if result.root is value and value not in build.offset:
                    made[value] = self.keep(value)
                roots.append(root_of(result, True))
            step = self.over(node, step, roots)
            self.scratch = max(self.scratch, step.scratch)
            steps.append(PlannedStep(node, build.position[node], step, tuple(roots), self.checks))
            self.checks += len(step.checks)
            self.device_steps[node] = step
        places = list(given)
        segment = DeviceSegment(
            len(self.device_segments),
            steps,
            list(given.values()),
            list(made.values()),
            tuple(k for k, v in enumerate(places) if v in written),
        )
        self.device_segments.append(segment)
        new = Node(NATIVE_RUN, [self.get(v) for v in places])
        new.source, new.call = nodes[-1].source, nodes[-1].call
        self.block.append(new)
        for value in made:
            self.new[value] = new.add_output(value.type, value.name)
        self.steps[new] = segment  # type: ignore[assignment]  # a runtime makes it callable
        for planned in steps:
            if planned.step.checks:
                self.check(planned)

    def over(self, node: Node, step: DeviceStep, roots: Sequence[int | np.ndarray | Kept]) -> DeviceStep:
        """The step without the copy of its first operand to where that already is."""
        operands = self.build.operands[node]
        start, stop = step.restates
        if start == stop:
            return step
        x, out = self.places.of(operands[0]), self.places.of(node.outputs[0])
        first, last = roots[0], roots[len(operands)]
        assert x is not None and out is not None
        if isinstance(first, int) and isinstance(last, int):
            is_same = first + x.offset == last + out.offset
        else:
            is_same = first is last and x.offset == out.offset
        return replace(step, calls=step.calls[:start] + step.calls[stop:], restates=(0, 0)) if is_same else step

    def check(self, planned: PlannedStep) -> None:
        """An instruction that raises what a step found, at the place of its node."""
        new = Node(NATIVE_RUN, [])
        new.source, new.call = planned.node.source, planned.node.call
        self.block.append(new)
        self.steps[new] = CheckStep(planned.step.checks, planned.first_check)  # type: ignore[assignment]  # a runtime runs it
