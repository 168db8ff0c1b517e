"""The profile as one HTML page that needs nothing beside itself: no network, no fonts, no other files.

Everything that comes from a profile goes through the template's escaping, with characters that cannot be seen (and
those that turn the direction of text) shown as escapes. The page's policy allows its own style and scripts, by their
hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import IO, TYPE_CHECKING, Any

from gpujit.pictures.build import picture_of
from gpujit.pictures.memory import memory_svg
from gpujit.profiler import charts
from gpujit.profiler.data import NATIVE, OVERHEAD, GraphText, GroupProfile, Profile, StepProfile
from gpujit.profiler.graph_data import Drawing, drawing, mark_of, steps_of
from gpujit.profiler.graphs import graph_of
from gpujit.serialization.target import write_to
from gpujit.support.errors import ParseError
from gpujit.support.units import bytes_text, flops_text, rate_text, time_text

if TYPE_CHECKING:
    from jinja2 import Environment

# Rows of the table of steps, and characters of a text that is not shown whole.
MAX_ROWS, MAX_TEXT = 300, 300
TITLES = {
    "frozen": "Before fusion",
    "fused": "After fusion",
    "plan": "As it runs",
}


class Whole(str):
    """Text that is shown at any length."""


def write(profile: Profile, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Put the page into a file, which gets all of it or stays as it was. Raises SaveError: it cannot be written."""
    page = html(profile).encode()
    write_to(path, lambda sink: sink.write(page))


def html(profile: Profile) -> str:
    """The page's text."""
    found_graphs = (_drawing(profile, g, f"stage{i}") for i, g in enumerate(profile.graphs))
    drawings = [d for d in found_graphs if d is not None]
    style = _file("report.css")
    scripts = [_file("report.js"), *([_file("graph.js")] if drawings else [])]
    found: str = _environment().get_template("report.html").render(
        profile=profile,
        style=_markup(style),
        scripts=[_markup(s) for s in scripts],
        policy=_policy([style], scripts),
        graph_data=_markup(_json([d.data for d in drawings])),
        drawings=drawings,
        bars=charts.bars(profile),
        roofline=charts.roofline(profile),
        timeline=charts.timeline(profile),
        memory=_memory(profile),
        groups_by_gain=sorted(profile.groups, key=lambda g: (-_gain(g), g.number)),
        operators=operators(profile.steps),
        max_rows=MAX_ROWS,
        rows=sorted(profile.steps, key=lambda s: -s.seconds.median)[:MAX_ROWS],
        overhead=_share(profile, [s for s in profile.steps if s.bound == OVERHEAD]),
        native=[s for s in profile.steps if s.tier.startswith(NATIVE)],
    )  # fmt: skip
    return found


def operators(steps: Iterable[StepProfile]) -> list[dict[str, Any]]:
    """Steps that do the same, together: the longest first."""
    found: dict[tuple[str, str], list[StepProfile]] = {}
    for step in steps:
        found.setdefault((step.label, step.tier), []).append(step)
    rows = [
        {
            "label": label,
            "tier": tier,
            "count": len(same),
            "seconds": sum(s.seconds.median for s in same),
            "bytes": _sum(s.bytes_moved for s in same),
            "flops": _sum(s.flops for s in same),
        }
        for (label, tier), same in found.items()
    ]
    return sorted(rows, key=lambda row: -row["seconds"])


def _memory(profile: Profile) -> Any:
    """The memory plan's picture; None without values."""
    if profile.memory is None or not profile.memory.values:
        return None
    values = [replace(v, name=shown(v.name), kind=shown(v.kind), dtype=shown(v.dtype)) for v in profile.memory.values]
    return _markup(memory_svg(replace(profile.memory, values=tuple(values)), style=False))


def _gain(group: GroupProfile) -> float:
    """Seconds that a call saves, as far as it was measured."""
    if group.fused is None or group.unfused is None:
        return 0.0
    return group.unfused.median - group.fused.median


def _sum(amounts: Iterable[int | None]) -> int | None:
    known = [a for a in amounts if a is not None]
    return sum(known) if known else None


def _share(profile: Profile, steps: Iterable[StepProfile]) -> float:
    return sum(s.seconds.median for s in steps) / profile.total if profile.total else 0.0


# -- graphs --------------------------------------------------------------------------------------------------------


def _drawing(profile: Profile, text: GraphText, name: str) -> Drawing | None:
    """The graph of a stage; None when there is nothing in it, or when its text cannot be read."""
    try:
        graph = graph_of(text)
    except ParseError:
        return None
    picture = picture_of(graph, marks={n: mark_of(step) for n, step in steps_of(graph, profile).items()})
    if not picture.nodes:
        return None
    return drawing(picture, name, shown(TITLES.get(text.stage, text.stage)), shown)


# -- text ----------------------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """Text for a page: what cannot be seen as escapes, lines kept, the middle of long text left out."""
    if len(text) > MAX_TEXT and not isinstance(text, Whole):
        half = MAX_TEXT // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _json(data: Any) -> str:
    """JSON that may stand in a script element: no ``<``, and ASCII alone."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(styles: Iterable[str], scripts: Iterable[str]) -> str:
    """What the page may load: its own style and scripts."""
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(map(_hash, styles))}",
            f"script-src {' '.join(map(_hash, scripts))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files("gpujit.profiler").joinpath("templates", name).read_text(encoding="utf-8")


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # files of this package, and JSON made for the purpose


@cache
def _environment() -> Environment:
    # Loaded for a report only.
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        time=_known(time_text),
        bytes=_known(bytes_text),
        rate=_known(rate_text),
        flops=_known(flops_text),
        percent=_known(lambda part: f"{part:.1%}"),
        ratio=_known(lambda number: f"{number:.2f}"),
        whole=Whole,
        point=lambda number: f"{number:.1f}",
    )
    return environment


def _known(text: Any) -> Any:
    return lambda number: "–" if number is None else text(number)
