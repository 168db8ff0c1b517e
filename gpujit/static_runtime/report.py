"""Where a static plan's bytes go, and where its time goes: as data, and as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import fmean, median

import numpy as np

from gpujit.ir.graph import Graph, Value
from gpujit.kernels.templates.bound import BoundTemplate
from gpujit.runtime.explain import label_of
from gpujit.static_runtime.places import facts_of
from gpujit.static_runtime.steps import StaticPlan


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A value in the arena: from byte ``offset`` on, between the steps ``first`` and ``last``, both inclusive.

    ``kind`` is the operator that makes it; of a group its operators.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    first: int
    last: int

    def __str__(self) -> str:
        where = f"{self.offset:>10} +{self.nbytes:<10} steps {self.first:>4} to {self.last:<4}"
        return f"{where} {self.dtype}{list(self.shape)} of {self.kind}"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What one plan takes, in bytes.

    Args:
        arena: what holds all planned values of one run.
        bound: the most bytes alive at one step, which no plan can do with less than.
        separate: what the planned values would take if none shared memory.
        scratch: room for native steps' own use, for each thread of a team.
        weights: constants of the graph; those shared with other graphs count in each.
        packed: copies of weights in the layouts of kernels.
        outputs: results whose size is known, made anew for each run.
        runtimes: arenas kept between runs, one for each thread that ran at the same time.
        values: the planned values, by offset.
    """

    arena: int
    bound: int
    separate: int
    scratch: int
    weights: int
    packed: int
    outputs: int
    runtimes: int
    values: tuple[PlannedValue, ...]

    def __str__(self) -> str:
        share = self.arena / self.bound if self.bound else 1.0
        head = [
            f"arena    {self.arena:>14,} ({share:.3f} of the lower bound; {self.separate:,} if nothing shared memory)",
            f"scratch  {self.scratch:>14,} for each thread",
            f"weights  {self.weights:>14,}",
            f"packed   {self.packed:>14,}",
            f"outputs  {self.outputs:>14,}",
            f"{self.runtimes} arenas kept, {len(self.values)} values in each:",
        ]
        return "\n".join([*head, *map(str, self.values)])


def results_of(graph: Graph) -> Sequence[Value]:
    """The outputs; the elements of a tuple that is the only one."""
    outputs = graph.outputs
    is_tuple = len(outputs) == 1 and outputs[0].node.kind == "prim::TupleConstruct"
    return outputs[0].node.inputs if is_tuple else outputs


def planned_values(plan: StaticPlan) -> list[PlannedValue]:
    """The values in a plan's arena, by offset."""
    values = [
        PlannedValue(
            plan.names.get(value) or value.name or "copy",
            label_of(value.node),
            str(dtype),
            (facts_of(value) or ((), None))[0],
            offset,
            life.size,
            life.first,
            life.last,
        )
        for value, dtype, offset, life in zip(plan.values, plan.dtypes, plan.offsets, plan.lifetimes, strict=True)
    ]
    return sorted(values, key=lambda v: (v.offset, v.first))


def output_bytes(graph: Graph) -> int:
    """Bytes of a graph's results, of those whose size is known."""
    outputs = [facts_of(v) for v in results_of(graph)]
    return sum(prod(f[0]) * f[1].itemsize for f in outputs if f is not None)


def memory_report(plan: StaticPlan, runtimes: int) -> MemoryReport:
    """The report on a plan of which so many runtimes are kept."""
    return MemoryReport(
        plan.arena.size,
        plan.arena.bound,
        plan.separate,
        plan.scratch,
        bytes_of(plan.constants()),
        bytes_of([x for owner in _owners(plan) for x in owner.constants.values()]),
        output_bytes(plan.graph),
        runtimes,
        tuple(planned_values(plan)),
    )


def _owners(plan: StaticPlan) -> list[BoundTemplate]:
    kernels = [s.kernel.owner for g in plan.segments for s in g.steps]
    return [k for k in kernels if isinstance(k, BoundTemplate)]


def bytes_of(arrays: Sequence[np.ndarray]) -> int:
    """Bytes of arrays, memory that several have counted once."""
    return sum({x.__array_interface__["data"][0]: x.nbytes for x in arrays}.values())


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Seconds a call spends in a node on average, and what runs it: native, out, numpy, interpreter."""

    name: str
    tier: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What running on the same inputs took: the seconds of each run, and of each node, the longest first.

    Nodes are timed in runs of their own, in which looking at the clock takes some time too.
    """

    runs: tuple[float, ...]
    nodes: tuple[NodeTime, ...]

    @property
    def seconds(self) -> float:
        """The median run."""
        return median(self.runs)

    @property
    def mean(self) -> float:
        """The mean run."""
        return fmean(self.runs)

    def by_kind(self) -> dict[str, float]:
        """Seconds for each kind of node, the longest first."""
        found: dict[str, float] = {}
        for node in self.nodes:
            found[node.name] = found.get(node.name, 0.0) + node.seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        total = sum(n.seconds for n in self.nodes) or 1.0
        head = (
            f"{len(self.runs)} runs: median {self.seconds * 1e6:.1f} us, mean {self.mean * 1e6:.1f} us, "
            f"least {min(self.runs) * 1e6:.1f} us"
        )
        lines = [f"{n.seconds * 1e6:>10.1f} us {n.seconds / total:>6.1%} {n.tier:12} {n.name}" for n in self.nodes]
        return "\n".join([head, *lines])
