"""Pictures and memory plans as figures of matplotlib, for those who have it: same places, same colours."""

from __future__ import annotations

from typing import Any

from gpujit.pictures.layout import LINE, PAD, Layout, lay_out, node_lines
from gpujit.pictures.memory import MemoryPlan, describe, live_bytes
from gpujit.pictures.model import Picture
from gpujit.pictures.text import FONT, short
from gpujit.pictures.tones import GROUP_FILLS, TIER_COLOURS
from gpujit.support.errors import ArgumentError
from gpujit.support.units import bytes_text

# Units of a layout in an inch, and the longest side of a figure.
PER_INCH = 96.0
MOST_INCHES = 100.0


def picture_figure(picture: Picture, layout: Layout | None = None) -> Any:
    """The picture as a ``matplotlib.figure.Figure``. Raises ArgumentError without matplotlib."""
    figure_class, patches, path_class = _matplotlib()
    layout = layout or lay_out(picture)
    w, h = max(layout.width, 60.0), max(layout.height, 60.0)
    scale = min(1.0, MOST_INCHES * PER_INCH / max(w, h))
    figure = figure_class(figsize=(w / PER_INCH * scale, h / PER_INCH * scale))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, w)
    axes.set_ylim(h, 0)
    axes.axis("off")
    size = FONT * 72 / PER_INCH * scale
    for id_, box in picture.boxes.items():
        rect = layout.rects[id_]
        fill = GROUP_FILLS[box.number % len(GROUP_FILLS)] if box.kind == "group" else "#8c959f12"
        style = "--" if box.kind == "module" else "-"
        axes.add_patch(
            patches.Rectangle((rect.x, rect.y), rect.w, rect.h, fc=fill, ec="#8c959f", ls=style, lw=0.8 * scale)
        )
        _text(axes, rect.x + PAD, rect.y + FONT, short(box.label), size, "#656d76", ha="left")
    for path in layout.paths:
        for hop in path.hops:
            points, codes = _curve(hop, path.is_square, path_class)
            style = "--" if path.edge.kind == "control" else "-"
            shape = path_class(points, codes)
            axes.add_patch(patches.PathPatch(shape, fc="none", ec="#8c959f", lw=0.9 * scale, ls=style))
        for x, y in path.heads:
            axes.add_patch(patches.Polygon([(x, y), (x - 3.5, y - 6), (x + 3.5, y - 6)], fc="#8c959f", ec="none"))
    for id_, node in picture.nodes.items():
        rect = layout.rects[id_]
        colour = next((TIER_COLOURS[t] for t in node.tags if t in TIER_COLOURS), "#8c959f")
        axes.add_patch(patches.Rectangle((rect.x, rect.y), rect.w, rect.h, fc="#f6f8fa", ec=colour, lw=1.0 * scale))
        for i, line in enumerate(node_lines(node.label, node.lines)):
            y = rect.y + PAD / 2 + LINE * (i + 0.5)
            _text(axes, rect.x + rect.w / 2, y, line, size * (0.83 if i else 1), "#656d76" if i else "#1f2328")
        for label in layout.labels.get(id_, ()):
            _text(axes, label.x, label.y - 4, label.text, size * 0.83, "#656d76")
    return figure


def memory_figure(plan: MemoryPlan, title: str) -> Any:
    """The memory plan as a ``matplotlib.figure.Figure``. Raises ArgumentError without matplotlib."""
    figure_class, patches, _ = _matplotlib()
    figure = figure_class(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for i, value in enumerate(plan.values):
        colour = f"C{i % 10}"
        place = (value.first, value.offset)
        axes.add_patch(
            patches.Rectangle(place, value.last + 1 - value.first, value.nbytes, fc=colour, ec=colour, alpha=0.5)
        )
    live = live_bytes(plan.values)
    axes.step([s for s, _ in live], [b for _, b in live], where="post", color="#1f2328", lw=1, label="alive")
    axes.axhline(plan.arena, color="#dc3c3c", label=f"arena {bytes_text(plan.arena)}")
    axes.axhline(plan.bound, color="#3f9bd9", ls="--", label=f"lower bound {bytes_text(plan.bound)}")
    axes.set_xlim(0, max([v.last + 1 for v in plan.values], default=1))
    axes.set_ylim(0, max(plan.arena, plan.bound, 1) * 1.05)
    axes.set_xlabel("step")
    axes.set_ylabel("offset in bytes")
    axes.set_title(_plain(f"{short(title, 80)}\n{describe(plan)}"), fontsize=9)
    axes.legend(fontsize=8, loc="upper right")
    return figure


def _matplotlib() -> tuple[Any, Any, Any]:
    try:
        from matplotlib import patches
        from matplotlib.figure import Figure
        from matplotlib.path import Path
    except ImportError:
        raise ArgumentError("matplotlib is not installed; pip install 'gpujit[plot]', or take the SVG") from None
    return Figure, patches, Path


def _text(axes: Any, x: float, y: float, text: str, size: float, colour: str, ha: str = "center") -> None:
    axes.text(x, y, _plain(text), fontsize=size, color=colour, ha=ha, va="center", family="monospace")


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text


def _curve(hop: list[tuple[float, float]], is_square: bool, path_class: Any) -> tuple[list[Any], list[Any]]:
    points: list[tuple[float, float]] = [hop[0]]
    codes = [path_class.MOVETO]
    x, y = hop[0]
    for nx, ny in hop[1:]:
        if is_square or abs(nx - x) < 0.05:
            points.append((nx, ny))
            codes.append(path_class.LINETO)
        else:
            half = (y + ny) / 2
            points += [(x, half), (nx, half), (nx, ny)]
            codes += [path_class.CURVE4] * 3
        x, y = nx, ny
    return points, codes
