"""A memory plan as SVG: steps from left to right, bytes of the arena upwards, a bar for each value that lies in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpujit.pictures.style import style_sheet
from gpujit.pictures.svg import number
from gpujit.pictures.text import SMALL, short, width, xml, xml_lines
from gpujit.pictures.tones import HUES
from gpujit.support.units import bytes_text

WIDTH, HEIGHT = 900.0, 340.0
LEFT, RIGHT, TOP = 78.0, 16.0, 34.0
# Below the plan: the axis, then a bar for each total.
AXIS, TOTAL = 40.0, 20.0
TICKS = 6


class Planned(Protocol):
    """A value in the arena, from byte ``offset`` on, between the steps ``first`` and ``last``, both inclusive."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


class MemoryPlan(Protocol):
    """What ``StaticModule.memory_report`` gives."""

    @property
    def arena(self) -> int: ...
    @property
    def bound(self) -> int: ...
    @property
    def separate(self) -> int: ...
    @property
    def values(self) -> Sequence[Planned]: ...


def memory_svg(plan: MemoryPlan, title: str = "memory plan", *, style: bool = True) -> str:
    """The plan as one ``svg`` element; ``style`` says whether it brings its style sheet."""
    return _Drawing(plan, title).text(style)


def live_bytes(values: Sequence[Planned]) -> list[tuple[int, int]]:
    """Bytes that are taken from each step on where that changes.

    Values that lie over each other, because one is written in place of another, count once.
    """
    changes: dict[int, None] = {}
    for v in values:
        changes[v.first] = changes[v.last + 1] = None
    starts = sorted(values, key=lambda v: v.first)
    found: list[tuple[int, int]] = []
    alive: list[Planned] = []
    k = 0
    for step in sorted(changes):
        alive = [v for v in alive if v.last >= step]
        while k < len(starts) and starts[k].first <= step:
            alive.append(starts[k])
            k += 1
        found.append((step, _covered(alive)))
    return found


def _covered(values: Sequence[Planned]) -> int:
    """Bytes under at least one of the values."""
    total = end = 0
    for start, stop in sorted((v.offset, v.offset + v.nbytes) for v in values):
        total += max(stop - max(start, end), 0)
        end = max(end, stop)
    return total


class _Drawing:
    def __init__(self, plan: MemoryPlan, title: str) -> None:
        self.plan, self.title = plan, title
        self.steps = max([v.last + 1 for v in plan.values], default=1)
        self.most = max(plan.arena, plan.bound, 1)
        self.right, self.bottom = WIDTH - RIGHT, TOP + HEIGHT

    def x(self, step: float) -> float:
        return LEFT + (self.right - LEFT) * step / self.steps

    def y(self, offset: float) -> float:
        return self.bottom - HEIGHT * offset / self.most

    def text(self, style: bool) -> str:
        plan = self.plan
        height = self.bottom + AXIS + 3 * TOTAL + 8
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="gpujit-picture memory" role="img" '
            f'viewBox="0 0 {number(WIDTH)} {number(height)}" width="{number(WIDTH)}" height="{number(height)}" '
            f'aria-label="{xml(short(self.title, 80))}">',
            f"<title>{xml(self.title)}</title>",
            f"<desc>{xml(describe(plan))}</desc>",
        ]
        if style:
            out.append(f"<style>{style_sheet(memory=True)}</style>")
        out.append(f'<text x="{number(LEFT)}" y="16">{xml(describe(plan))}</text>')
        out += self.axes()
        out += [self.bar(v, i) for i, v in enumerate(plan.values)]
        out += self.levels()
        out += self.totals()
        return "\n".join([*out, "</svg>\n"])

    def axes(self) -> list[str]:
        left, bottom = number(LEFT), number(self.bottom)
        out = [f'<path class="axis" d="M{left} {number(TOP)}V{bottom}H{number(self.right)}"/>']
        for k in range(TICKS + 1):
            y = self.y(self.most * k / TICKS)
            out.append(f'<path class="grid" d="M{left} {number(y)}H{number(self.right)}"/>')
            label = bytes_text(self.most * k / TICKS)
            out.append(f'<text class="small end" x="{number(LEFT - 6)}" y="{number(y + 3)}">{label}</text>')
        for step in dict.fromkeys(round(self.steps * k / TICKS) for k in range(TICKS + 1)):
            place = f'x="{number(self.x(step))}" y="{number(self.bottom + 14)}"'
            out.append(f'<text class="small mid" {place}>{step}</text>')
        out.append(f'<text class="small end" x="{number(self.right)}" y="{number(self.bottom + 28)}">step</text>')
        return out

    def bar(self, value: Planned, number_: int) -> str:
        x, y = self.x(value.first), self.y(value.offset + value.nbytes)
        w, h = self.x(value.last + 1) - x, self.y(value.offset) - y
        shape = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        title = [
            f"%{value.name}",
            f"{shape} of {value.kind}",
            f"{value.nbytes:,} bytes from {value.offset:,}",
            f"steps {value.first} to {value.last}",
        ]
        search = short(f"{value.name} {value.kind}", 120).lower()
        out = (
            f'<g class="buffer hue-{number_ % len(HUES)}" data-first="{value.first}" data-last="{value.last}" '
            f'data-offset="{value.offset}" data-bytes="{value.nbytes}" data-text="{xml(search)}">'
            f"<title>{xml_lines(title)}</title>"
            f'<rect class="bar" x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}"/>'
        )
        name = short(value.kind.removeprefix("aten::"), 24)
        if h > SMALL and width(name, SMALL) + 4 < w:
            out += f'<text class="small mid" x="{number(x + w / 2)}" y="{number(y + h / 2 + 3)}">{xml(name)}</text>'
        return out + "</g>"

    def levels(self) -> list[str]:
        plan = self.plan
        points = "".join(
            f"{'M' if not i else 'H'}{number(self.x(step))}{' ' if not i else 'V'}{number(self.y(size))}"
            for i, (step, size) in enumerate(live_bytes(plan.values))
        )
        out = [f'<path class="live" d="{points}"><title>bytes alive</title></path>'] if points else []
        for name, size, kind in (("lower bound", plan.bound, "bound"), ("arena", plan.arena, "peak")):
            y = number(self.y(size))
            title = f"{name}: {size:,} bytes"
            line = f"M{number(LEFT)} {y}H{number(self.right)}"
            out.append(f'<path class="{kind}" d="{line}"><title>{title}</title></path>')
        return out

    def totals(self) -> list[str]:
        plan = self.plan
        most = max(plan.separate, plan.arena, plan.bound, 1)
        out = []
        for k, (name, size) in enumerate(
            (("arena", plan.arena), ("lower bound", plan.bound), ("separate", plan.separate))
        ):
            y = self.bottom + AXIS + k * TOTAL
            w = (self.right - LEFT - 90) * size / most
            out.append(f'<text class="small end" x="{number(LEFT - 6)}" y="{number(y + 10)}">{name}</text>')
            out.append(
                f'<rect class="total" x="{number(LEFT)}" y="{number(y + 2)}" width="{number(w)}" height="10"/>'
                f'<text class="small" x="{number(LEFT + w + 6)}" y="{number(y + 10)}">{bytes_text(size)}</text>'
            )
        return out


def describe(plan: MemoryPlan) -> str:
    """The plan in a sentence."""
    if not plan.values:
        return "No value lies in an arena."
    share = f"{plan.arena / plan.bound:.3f} of the lower bound" if plan.bound else "nothing is alive"
    return (
        f"{len(plan.values)} values in an arena of {bytes_text(plan.arena)} ({share}); "
        f"allocated separately they take {bytes_text(plan.separate)}."
    )
