"""Where things stand in the report's charts: numbers of a profile to places in a picture. The template draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import ClassVar

from gpujit.profiler.data import BUS, NATIVE, Ceiling, Event, Machine, Profile, StepProfile
from gpujit.support.units import bytes_text, flops_text, rate_text, time_text

# Marks in one chart: more would not be told apart, and take a browser long.
MAX_MARKS = 1500
# Of a chart, in units of its picture; room for the labels of its axes on the left, below, at the top and right.
WIDTH, LEFT, BELOW, ABOVE, RIGHT = 1150.0, 100.0, 44.0, 14.0, 20.0
# How slopes are told apart.
DASHES = ("12 0", "10 4", "4 4", "1 4")


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, with its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that can be pointed at: a rectangle, or a dot around (x, y) of radius ``width``.

    Args:
        style: class of its colour.
        tip: what it says when it is pointed at.
        label: text inside it; "" when there is no room.
    """

    x: float
    y: float
    width: float
    height: float
    style: str
    tip: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line from point to point. ``label`` stands at its end, ``below`` the line or above it, for a level one; for a
    slope, in a list beside the chart, with the ``dash`` that the line has."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str
    below: bool = False
    dash: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart; ``left_out`` marks are not in it, being the smallest of too many, or having no place. Its axes stand
    between ``left`` and ``right``, ``top`` and ``bottom``."""

    width: float
    height: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    lines: tuple[Line, ...] = ()
    left_out: int = 0

    left: ClassVar[float] = LEFT
    top: ClassVar[float] = ABOVE

    @property
    def right(self) -> float:
        return self.width - RIGHT

    @property
    def bottom(self) -> float:
        return self.height - BELOW


@dataclass(frozen=True, slots=True)
class Bar:
    """A time as a bar with its quartiles, in units of a picture."""

    length: float
    low: float
    high: float
    style: str


class _Log:
    """Positions on an axis whose ends are powers of ten."""

    def __init__(self, numbers: Iterable[float], start: float, end: float) -> None:
        found = list(numbers)
        self.low = floor(log10(min(found)))
        self.high = max(ceil(log10(max(found))), self.low + 1)
        self.start, self.end = start, end

    def at(self, number: float) -> float:
        part = (log10(number) - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(max(part, 0.0), 1.0)

    def powers(self) -> list[float]:
        return [10.0**p for p in range(self.low, self.high + 1)]


def nice_ticks(top: float, count: int = 6) -> list[float]:
    """About so many round numbers from 0 to ``top``."""
    if top <= 0:
        return [0.0]
    step = 10.0 ** floor(log10(top / count))
    step *= next(m for m in (1, 2, 5, 10, 20) if top / (step * m) <= count)
    return [i * step for i in range(floor(top / step * (1 + 1e-9)) + 1)]


def style_of(tier: str) -> str:
    """The class of a tier's colour: native or on a device, or not."""
    return "fused" if tier.startswith(NATIVE) else "python"


def bars(profile: Profile, width: float = 200.0) -> dict[int, tuple[Bar, ...]]:
    """For each measured group the bars of the kernel and of its operators one by one, all on one scale."""
    measured = [g for g in profile.groups if g.fused is not None and g.unfused is not None]
    longest = max((t.high for g in measured for t in (g.fused, g.unfused) if t is not None), default=0.0)
    scale = width / longest if longest else 0.0
    return {
        g.number: tuple(
            Bar(t.median * scale, t.low * scale, t.high * scale, style)
            for t, style in ((g.fused, "fused"), (g.unfused, "unfused"))
            if t is not None
        )
        for g in measured
    }


def roofline(profile: Profile, height: float = 420.0) -> Chart | None:
    """A dot for each step whose operations and bytes are known, below what the machine reaches. None without any."""
    dots = [s for s in profile.steps if s.flops and s.intensity and s.rate]
    if not dots:
        return None
    left_out = len(profile.steps) - len(dots)
    if len(dots) > MAX_MARKS:
        left_out += len(dots) - MAX_MARKS
        dots = sorted(dots, key=lambda s: -s.seconds.median)[:MAX_MARKS]
    peaks, slopes = profile.machine.peaks, _of_a_call(profile.machine)
    tops = [p.rate for p in peaks if p.rate > 0] or [max(s.rate or 0.0 for s in dots)]
    intensities = [s.intensity or 1.0 for s in dots]
    # Where the roof's slopes meet its tops lies inside the picture.
    intensities += [t / c.bandwidth for t in tops for c in slopes if c.bandwidth > 0]
    x = _Log([*intensities, min(intensities) / 2, max(intensities) * 2], LEFT, WIDTH - RIGHT)
    rates = [s.rate or 1.0 for s in dots]
    y = _Log([*rates, *tops, min(rates) / 2, max(tops) * 1.2], height - BELOW, ABOVE)
    lines = _ceilings(profile.machine, x, y)
    longest = max(s.seconds.median for s in dots) or 1.0
    marks = []
    for s in dots:
        assert s.intensity is not None and s.rate is not None
        radius = 4.0 + 8.0 * (s.seconds.median / longest) ** 0.5
        marks.append(Mark(x.at(s.intensity), y.at(s.rate), radius, radius, style_of(s.tier), step_tip(s)))
    return Chart(
        WIDTH,
        height,
        tuple(Tick(x.at(p), f"{p:g}") for p in x.powers()),
        tuple(Tick(y.at(p), rate_text(p)) for p in y.powers()),
        tuple(marks),
        tuple(lines),
        left_out,
    )


def _of_a_call(machine: Machine) -> list[Ceiling]:
    """The bandwidths that as many threads reach as a call has, the highest first; all when none is of so many."""
    found = [c for c in machine.bandwidths if c.bandwidth > 0 and c.level != BUS]
    if machine.device:
        return sorted(found, key=lambda c: -c.bandwidth)
    return sorted([c for c in found if c.threads == machine.threads] or found, key=lambda c: -c.bandwidth)


def _ceilings(machine: Machine, x: _Log, y: _Log) -> list[Line]:
    """Level lines for what threads compute at most, slopes for what memories deliver."""
    peaks = sorted((p for p in machine.peaks if p.rate > 0), key=lambda p: -p.rate)
    lines = []
    for i, peak in enumerate(peaks):
        at = y.at(peak.rate)
        label = f"{rate_text(peak.rate)}, {peak.dtype if machine.device else threads_text(peak.threads)}"
        # The highest has its label above, others below, so that two that are close do not meet.
        lines.append(Line(x.start, at, x.end, at, label, below=i > 0))
    top = peaks[0].rate if peaks else 10.0**y.high
    for i, slope in enumerate(_of_a_call(machine)):
        # From where it enters the picture, on the left or from below, to where it meets the highest top.
        first = max(10.0**x.low, 10.0**y.low / slope.bandwidth)
        last = min(top / slope.bandwidth, 10.0**x.high)
        if last > first:
            label = f"{slope.level}: {bytes_text(slope.bandwidth)}/s"
            label += "" if machine.device else f", {threads_text(slope.threads)}"
            ends = (x.at(first), y.at(first * slope.bandwidth), x.at(last), y.at(last * slope.bandwidth))
            lines.append(Line(*ends, label, dash=DASHES[i % len(DASHES)]))
    return lines


def threads_text(count: int) -> str:
    """``2 threads``."""
    return "1 thread" if count == 1 else f"{count} threads"


def step_tip(step: StepProfile) -> str:
    """What is known of a step, on a few lines."""
    lines = [f"step {step.number}: {step.label}", f"{time_text(step.seconds.median)}, {step.tier}"]
    if step.intensity is not None and step.rate is not None:
        lines.append(f"{step.intensity:.3g} operations a byte, {rate_text(step.rate)}")
    elif step.flops:
        lines.append(flops_text(step.flops))
    if step.bytes_moved is not None and step.bandwidth is not None:
        lines.append(f"{bytes_text(step.bytes_moved)} moved, {bytes_text(step.bandwidth)}/s")
    if step.fraction is not None:
        lines.append(f"{step.fraction:.0%} of the most that {step.bound} allows")
    if step.outputs:
        lines.append(f"gives {', '.join(t.text for t in step.outputs[:4])}")
    if step.place.module:
        lines.append(f"in {step.place.module}")
    if step.place.original or step.place.archive:
        lines.append(f"at {step.place.original or step.place.archive}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Lane:
    """A line of the timeline, and where it stands."""

    name: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """A call: its steps in the order they ran, native ones and the rest each on a line of their own."""

    chart: Chart
    lanes: tuple[Lane, ...]
    seconds: float
    # Whether steps stand where they were seen, or one behind the other, each with its median time.
    is_seen: bool


def timeline(profile: Profile) -> Timeline | None:
    """One call's steps against time; None without steps."""
    steps = {s.number: s for s in profile.steps}
    seen = _last_call(profile.events)
    spans: list[tuple[StepProfile, float, float, str]]
    if seen:
        begin = min(e.start for e in seen)
        spans = [(steps[e.step], e.start - begin, e.seconds, e.track) for e in seen if e.step in steps]
    else:
        spans, at = [], 0.0
        for s in profile.steps:
            spans.append((s, at, s.seconds.median, "steps"))
            at += s.seconds.median
    if not spans:
        return None
    total = max(start + seconds for _, start, seconds, _ in spans)
    if total <= 0:
        return None
    left_out = max(len(spans) - MAX_MARKS, 0)
    if left_out:
        spans = sorted(sorted(spans, key=lambda s: -s[2])[:MAX_MARKS], key=lambda s: s[1])
    names = list(dict.fromkeys(_lane(step, track) for step, _, _, track in spans))
    lane_height, gap = 34.0, 10.0
    lanes = {name: Lane(name, ABOVE + i * (lane_height + gap), lane_height) for i, name in enumerate(sorted(names))}
    height = ABOVE + len(lanes) * (lane_height + gap) + BELOW
    scale = (WIDTH - LEFT - RIGHT) / total
    marks = []
    for step, start, seconds, track in spans:
        lane, wide = lanes[_lane(step, track)], max(seconds * scale, 0.8)
        label = step.label if wide > 7.2 * len(step.label) + 8 else ""
        style = style_of(step.tier)
        marks.append(Mark(LEFT + start * scale, lane.y, wide, lane.height, style, step_tip(step), label))
    ticks = tuple(Tick(LEFT + t * scale, time_text(t)) for t in nice_ticks(total))
    return Timeline(
        Chart(WIDTH, height, ticks, (), tuple(marks), (), left_out), tuple(lanes.values()), total, bool(seen)
    )


def _lane(step: StepProfile, track: str) -> str:
    if track == "gpu":
        return "GPU"
    if step.tier.startswith("native"):
        return "native"
    return "around" if step.tier == "call" else "Python"


def _last_call(events: Sequence[Event]) -> list[Event]:
    """The steps of the last call that has any, on the thread that has most of them."""
    steps = [e for e in events if e.step is not None]
    if not steps:
        return []
    last = max(e.call for e in steps)
    return [e for e in steps if e.call == last]
