"""A profile as data: what was run, where its time and memory went, and what the machine could have done.

Everything is frozen and made of numbers, texts and tuples, so that a profile can be written as JSON, read back, and
shown by whoever likes. Times are seconds, sizes bytes, rates per second. None stands for what was not measured. Texts
may come from a file and hold anything: who shows them escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from gpujit.profiler.plain import as_plain, from_plain
from gpujit.static_runtime.report import MemoryReport
from gpujit.support.errors import ArgumentError

# Of the form that ``as_json`` gives: goes up when a reader of the old one would misread the new one.
VERSION = 1

# What bounds a step.
MEMORY, COMPUTE, OVERHEAD, UNKNOWN = "memory", "compute", "overhead", "unknown"
# What tiers of steps in compiled code begin with.
NATIVE = ("native", "device kernel", "device library")
# The level of memory that is no memory: from the host to a device.
BUS = "host to device"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of several runs: the median, the quartiles around it, the least, and how many runs there were."""

    median: float
    low: float
    high: float
    least: float
    runs: int

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """The times of these runs. Raises ArgumentError when there are none."""
        if not seconds:
            raise ArgumentError("there are no times of no runs")
        low, _, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
        return cls(median(seconds), low, high, min(seconds), len(seconds))


@dataclass(frozen=True, slots=True)
class Ratio:
    """How much longer one thing takes than another, round by round: the median and the quartiles around it."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
        """The ratio of times taken in turn."""
        found = Times.of([a / b if b else 1.0 for a, b in zip(numerators, denominators, strict=True)])
        return cls(found.median, found.low, found.high, found.runs)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a program: its name in the graph, dtype and shape (None when only a run tells it)."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None

    @property
    def text(self) -> str:
        """``float32[1, 3, 32, 32]``."""
        return self.dtype if self.shape is None else f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step comes from; '' for what is not known.

    Args:
        archive: line of the code in the archive, ``code/__torch__.py:20``.
        original: line of the author's file, when the archive tells, ``model.py:41``.
        module: path of attributes to the module whose method it is, ``encoder.layers.0.conv``.
        code: the archive's line.
    """

    archive: str = ""
    original: str = ""
    module: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One step of a call.

    Args:
        number: its place in the list of steps, which is in running order.
        position: number of its node in the plan, as ``first`` and ``last`` of planned values count; None for what is
            no node: entering and leaving the plan, instructions of the interpreter between steps.
        label: what it does, for people: ``conv2d+relu``.
        kind: its node's kind, ``aten::conv2d``; "" for what is no node.
        tier: what runs it, as ``static_runtime.tiers`` names it; "call" for what stands around the steps.
        group: number of its fusion group, None when it is none.
        kernel: key of its source in ``Profile.kernels``, "" when there is none.
        operators: the operators it runs, in order.
        seconds: what it takes in one call.
        bytes_read, bytes_written: of the tensors that it reads and writes, each once; None when that is not known.
        flops: floating-point operations by its definition; None when that is not known.
        threads: that share its work.
        bound: what it cannot be faster than for: "memory", "compute"; "overhead" when it is so small that getting there
            counts most; "unknown".
        fraction: of what the machine reaches at most for what bounds it.
    """

    number: int
    position: int | None
    label: str
    kind: str
    tier: str
    place: Place
    group: int | None
    kernel: str
    operators: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    seconds: Times
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    threads: int = 1
    bound: str = UNKNOWN
    fraction: float | None = None

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def bandwidth(self) -> float | None:
        """Bytes moved per second."""
        return _per(self.bytes_moved, self.seconds.median)

    @property
    def rate(self) -> float | None:
        """Floating-point operations per second."""
        return _per(self.flops, self.seconds.median)

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte moved."""
        return None if self.flops is None else _per(self.flops, self.bytes_moved or 0)


@dataclass(frozen=True, slots=True)
class GroupProfile:
    """A fusion group: one kernel against the same operators, each by itself, on the same data in the same rounds.

    Args:
        number: as ``StepProfile.group`` counts.
        operators, places: its operators in order, and where each comes from.
        saved_bytes: bytes that a call neither writes nor reads, since what operators hand to each other stays in
            registers.
        fused, unfused: what the kernel takes, and what the operators take one by one; None when it was not measured.
        unfused_tier: what ran the operators: "native" (on a device "device") when each had a kernel of its own,
            "numpy" ("host") when none, "mixed".
        speedup: unfused over fused.
        kernel: key of its source.
        nodes: text of the graph it stands for.
    """

    number: int
    label: str
    operators: tuple[str, ...]
    places: tuple[Place, ...]
    saved_bytes: int
    kernel: str
    nodes: str
    fused: Times | None = None
    unfused: Times | None = None
    unfused_tier: str = ""
    speedup: Ratio | None = None


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A generated kernel: text that it was made of, in ``language``; ``is_cut`` says that the text was too long."""

    key: str
    title: str
    language: str
    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operator that was not fused, or runs on a lower tier than native, and why."""

    label: str
    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class GraphText:
    """A graph at one stage ("frozen", "fused" or "plan") as text; ``profiler.graphs.graph_of`` makes a graph of it.

    ``modules``: for each node, those of groups behind the group, the path of attributes to its module.
    """

    stage: str
    text: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bytes per second, read and written together, that ``threads`` reach when they copy inside ``size`` bytes each
    (together, in "L3" and "memory"): ``level`` says which memory that is. On a device the level of small copies is
    their size, and BUS is the way there from the host."""

    level: str
    size: int
    bandwidth: float
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Peak:
    """Floating-point operations (a multiply-and-add counts two) per second of so many threads, or of a device."""

    threads: int
    rate: float
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Machine:
    """What it ran on, and the most that reached: empty when ceilings were not measured.

    ``device`` is what steps ran on besides the processor: ceilings are those of the device then.
    """

    processor: str
    cores: int
    threads: int
    vector: str
    bandwidths: tuple[Ceiling, ...] = ()
    peaks: tuple[Peak, ...] = ()
    device: str = ""


@dataclass(frozen=True, slots=True)
class Versions:
    """What ran it."""

    gpujit: str
    python: str
    numpy: str
    llvmlite: str
    platform: str


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels asked for: at hand in the process, loaded from disk, compiled, impossible."""

    shared: int = 0
    loaded: int = 0
    compiled: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of work before calls are at their full speed: ``load``, ``optimise``, ``plan``, ``first call``,
    ``warm-up``; ``note`` says more."""

    name: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something on the timeline: ``start`` counts from the profile's begin. ``step`` is a StepProfile's number or None
    for a whole call; ``track`` says on whose line it goes ("calls", "steps", "gpu")."""

    name: str
    track: str
    start: float
    seconds: float
    call: int
    step: int | None = None
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """One method of a model on inputs of one kind.

    Args:
        file: the model's file or the class's name.
        runner: "static" when memory is planned, "device" on a GPU, "interpreter" when calls were left to it; ``reason``
            says why there is nothing better, and of steps on a device which one it is.
        steady: a call at full speed, without anything being watched.
        unfused: a call of the same model with fusion off, timed in turn with fused ones; ``fused`` are those.
        interpreted: a call on the interpreter, when it was measured.
        watched: a call while steps are timed.
        steps: what a call consists of, in running order. Their times add up to ``watched``: what other work on the
            machine added here and there is a row of its own.
        memory: None where no memory is planned.
        events: some calls and their steps, for a timeline.
        dropped: events that were left out because there were too many.
    """

    file: str
    method: str
    inputs: tuple[Tensor, ...]
    versions: Versions
    machine: Machine
    runner: str
    reason: str
    phases: tuple[Phase, ...]
    steady: Times
    watched: Times
    steps: tuple[StepProfile, ...]
    groups: tuple[GroupProfile, ...]
    refusals: tuple[Refusal, ...]
    graphs: tuple[GraphText, ...]
    kernels: tuple[KernelSource, ...]
    cache: Kernels
    memory: MemoryReport | None = None
    fused: Times | None = None
    unfused: Times | None = None
    speedup: Ratio | None = None
    interpreted: Times | None = None
    events: tuple[Event, ...] = ()
    dropped: int = 0

    def group(self, number: int) -> GroupProfile:
        """The group with this number. Raises ArgumentError when there is none."""
        for found in self.groups:
            if found.number == number:
                return found
        raise ArgumentError(f"there is no group {number} among {len(self.groups)}")

    def kernel(self, key: str) -> KernelSource | None:
        """The source with this key, or None."""
        return next((k for k in self.kernels if k.key == key), None)

    @property
    def total(self) -> float:
        """Seconds of all steps together."""
        return sum(s.seconds.median for s in self.steps)

    def as_json(self) -> dict[str, Any]:
        """The profile in types that JSON has, with what is computed of it; ``profile_from_json`` reads it back."""
        return {"format": "gpujit-profile", "version": VERSION, **as_plain(self)}

    def save_json(self, path: Any) -> None:
        """Write ``as_json`` to a path or file object. Raises SaveError."""
        from gpujit.profiler.files import save_json

        save_json(self.as_json(), path)

    def save_trace(self, path: Any) -> None:
        """Write a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing. Raises SaveError."""
        from gpujit.profiler.trace import save_trace

        save_trace((self,), path)

    def save_html(self, path: Any) -> None:
        """Write a page for a browser, whole in itself, to a path or file object. Raises SaveError."""
        from gpujit.profiler.report import write

        write(self, path)

    def __str__(self) -> str:
        from gpujit.profiler.text import profile_text

        return profile_text(self)


def profile_from_json(data: Any) -> Profile:
    """The profile that ``as_json`` made ``data`` of (a dict, or JSON text). Raises ArgumentError for anything else."""
    if isinstance(data, (str, bytes)):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as fault:
            raise ArgumentError(f"a profile is JSON; this is not: {fault}") from None
    if not isinstance(data, dict) or data.get("format") != "gpujit-profile":
        raise ArgumentError("this is no profile: it lacks the format 'gpujit-profile'")
    if data.get("version") != VERSION:
        raise ArgumentError(f"a profile of version {data.get('version')!r} cannot be read; this reads {VERSION}")
    found: Profile = from_plain(Profile, data, "profile")
    return found


def _per(amount: int | None, by: float) -> float | None:
    return None if amount is None or not by else amount / by
