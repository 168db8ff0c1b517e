"""A profile as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from gpujit.pictures.text import visible as safe
from gpujit.profiler.data import OVERHEAD, Profile, StepProfile, Times
from gpujit.support.units import bytes_text, rate_text, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# Steps shown of a profile, the longest first.
MOST_STEPS, MOST_GROUPS = 25, 15
# What runs a call, where no memory is planned.
WHERE = {"interpreter": "the interpreter", "device": "a device"}
# Columns where there is no terminal.
WIDTH = 160


def profile_text(profile: Profile, width: int = WIDTH, most: int = MOST_STEPS) -> str:
    """The profile as tables of at most ``width`` columns, without colours or anything that steers a terminal."""
    from rich.console import Console

    out = StringIO()
    console = Console(file=out, width=max(width, 40), force_terminal=False, color_system=None, markup=False)
    for part in tables(profile, most):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def tables(profile: Profile, most: int = MOST_STEPS) -> list[RenderableType]:
    """The parts of a profile for rich: head, phases, steps, groups."""
    found: list[RenderableType] = ["\n".join(_head(profile)), _steps(profile, most)]
    if any(g.fused is not None for g in profile.groups):
        found.append(_groups(profile))
    return found


def _head(profile: Profile) -> list[str]:
    names = ", ".join(f"{t.name} {t.text}" for t in profile.inputs)
    lines = [f"{safe(profile.file)}  {safe(profile.method)}({safe(names)})"]
    if profile.runner != "static":
        lines.append(f"runs on {WHERE.get(profile.runner, 'something else')}: {safe(profile.reason)}")
    if profile.phases:
        lines.append("; ".join(f"{p.name} {time_text(p.seconds)}{_note(p.note)}" for p in profile.phases))
    lines.append(f"a call takes {_spread(profile.steady)}, {_spread(profile.watched)} while steps are timed")
    if profile.speedup is not None and profile.unfused is not None:
        r = profile.speedup
        # Less than a call: what surrounds a plan there is in neither.
        itself = "" if profile.fused is None else f"its plan by itself {_spread(profile.fused)}, "
        times = f"{r.median:.2f} times (from {r.low:.2f} to {r.high:.2f})"
        lines.append(f"{itself}without fusion {_spread(profile.unfused)}: {times}")
    if profile.interpreted is not None:
        lines.append(f"on the interpreter {_spread(profile.interpreted)}")
    if profile.memory is not None:
        m = profile.memory
        lines.append(f"arena {bytes_text(m.arena)} (at least {bytes_text(m.bound)}), weights {bytes_text(m.weights)}")
    return [*lines, *_machine(profile)]


def _machine(profile: Profile) -> list[str]:
    m = profile.machine
    lines = [f"{safe(m.processor)}, {m.threads} thread{'' if m.threads == 1 else 's'}"]
    if m.bandwidths and m.peaks:
        threads = 1 if m.device else m.threads
        rates = ", ".join(f"{b.level} {bytes_text(b.bandwidth)}/s" for b in m.bandwidths if b.threads == threads)
        peaks = [p for p in m.peaks if p.threads == threads] or m.peaks[-1:]
        most = ", ".join(rate_text(p.rate) + (f" in {p.dtype}" if len(peaks) > 1 else "") for p in peaks)
        if m.device:
            lines.append(f"the device reaches {rates}; {most}")
        else:
            lines[0] = f"{lines[0]}; at most {rates}; {most}"
    return lines


def _note(note: str) -> str:
    return f" ({safe(note)})" if note else ""


def _spread(times: Times) -> str:
    return f"{time_text(times.median)} (± {times.spread:.0%})"


def _add_columns(table: Table, numbers: Sequence[str], texts: Sequence[str], folded: Collection[str]) -> None:
    """Columns of numbers, to the right, and of texts; ``folded`` ones take several lines where there is no room."""
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=name not in folded, overflow="fold")
    for name in texts:
        table.add_column(name, justify="left", no_wrap=name not in folded, overflow="fold")


def _steps(profile: Profile, most: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = ("time", "share", "±", "rate", "bandwidth", "of peak")
    _add_columns(table, numbers, ("bound by", "step", "module", "line"), folded=("step", "module", "line"))
    total = profile.total or 1.0
    rows = sorted(profile.steps, key=lambda s: -s.seconds.median)
    for step in rows[:most]:
        cells = (
            time_text(step.seconds.median),
            f"{step.seconds.median / total:.1%}",
            f"{step.seconds.spread:.0%}",
            "" if not step.flops else rate_text(step.rate or 0.0),
            "" if not step.bytes_moved else f"{bytes_text(step.bandwidth or 0.0)}/s",
            "" if step.fraction is None or step.bound == OVERHEAD else f"{step.fraction:.0%}",
            step.bound,
            _title(step),
            _end(step.place.module, 28),
            _end(step.place.original or step.place.archive, 34),
        )
        table.add_row(*(Text(safe(c)) for c in cells))
    if len(rows) > most:
        rest = sum(s.seconds.median for s in rows[most:])
        table.add_row(
            Text(time_text(rest)), Text(f"{rest / total:.1%}"), *[Text("")] * 5, Text(f"{len(rows) - most} more")
        )
    return table


def _end(text: str, width: int) -> str:
    """The end of a path, where names tell more."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def _title(step: StepProfile) -> str:
    group = "" if step.group is None else f"group {step.group}: "
    tier = "" if step.tier.startswith(("native", "call")) else f"[{step.tier}] "
    return f"{tier}{group}{step.label}"


def _groups(profile: Profile) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title="fused against its operators one by one",
        title_justify="left",
    )
    numbers = ("group", "fused", "±", "unfused", "±", "speed-up", "saves")
    _add_columns(table, numbers, ("operators",), folded=("operators",))
    shown = [g for g in profile.groups if g.fused is not None and g.unfused is not None]
    for g in shown[:MOST_GROUPS]:
        assert g.fused is not None and g.unfused is not None
        cells = (
            str(g.number), time_text(g.fused.median), f"{g.fused.spread:.0%}", time_text(g.unfused.median),
            f"{g.unfused.spread:.0%}", "" if g.speedup is None else f"{g.speedup.median:.2f}x",
            bytes_text(g.saved_bytes), ", ".join(g.operators),
        )  # fmt: skip
        table.add_row(*(Text(safe(c)) for c in cells))
    if len(shown) > MOST_GROUPS:
        table.add_row(*[Text("")] * 7, Text(f"and {len(shown) - MOST_GROUPS} more groups"))
    return table
