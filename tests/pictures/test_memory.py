"""Pictures of memory plans."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpujit.pictures.memory import describe, live_bytes, memory_svg
from gpujit.static_runtime.plan import Lifetime, plan_arena
from gpujit.static_runtime.report import MemoryReport, PlannedValue
from tests.pictures.graphs import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def report(*values: PlannedValue, arena: int = 0, bound: int = 0, separate: int = 0) -> MemoryReport:
    return MemoryReport(arena, bound, separate, 0, 0, 0, 0, 0, values)


def value(name: str, offset: int, nbytes: int, first: int, last: int) -> PlannedValue:
    return PlannedValue(name, "aten::relu", "float32", (nbytes // 4,), offset, nbytes, first, last)


SMALL = report(
    value("a", 0, 400, 0, 1),
    value("b", 400, 600, 1, 2),
    value("c", 0, 400, 2, 3),
    arena=1000,
    bound=1000,
    separate=1400,
)


def test_a_bar_for_each_value_and_lines_for_peak_and_bound() -> None:
    root = ET.fromstring(memory_svg(SMALL, "plan of a model"))
    bars = [g for g in root.iter(f"{SVG}g") if "buffer" in g.get("class", "")]
    assert [(g.get("data-first"), g.get("data-last"), g.get("data-offset"), g.get("data-bytes")) for g in bars] == [
        ("0", "1", "0", "400"),
        ("1", "2", "400", "600"),
        ("2", "3", "0", "400"),
    ]
    title = bars[1].findtext(f"{SVG}title")
    assert title == "%b\nfloat32[150] of aten::relu\n600 bytes from 400\nsteps 1 to 2"
    rects = [g.find(f"{SVG}rect") for g in bars]
    x, y, w, h = zip(
        *[[float(r.get(k, "")) for k in ("x", "y", "width", "height")] for r in rects if r is not None], strict=True
    )
    # Time to the right, offsets upwards, lengths as lifetimes and sizes are.
    assert x[0] < x[1] < x[2] and w[0] == pytest.approx(w[1], abs=0.2)
    assert y[0] + h[0] == pytest.approx(y[2] + h[2]) and y[1] + h[1] == pytest.approx(y[0], abs=0.2)
    assert h[1] / h[0] == pytest.approx(1.5, abs=0.01)
    titles = {p.get("class"): p.findtext(f"{SVG}title") for p in root.iter(f"{SVG}path")}
    assert titles["peak"] == "arena: 1,000 bytes" and titles["bound"] == "lower bound: 1,000 bytes"
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert "1.40 kB" in texts and "separate" in texts
    assert root.findtext(f"{SVG}desc") == describe(SMALL)
    assert (
        describe(SMALL)
        == "3 values in an arena of 1.00 kB (1.000 of the lower bound); allocated separately they take 1.40 kB."
    )


def test_nothing_to_plan() -> None:
    root = ET.fromstring(memory_svg(report()))
    assert root.findtext(f"{SVG}desc") == "No value lies in an arena."
    assert [g for g in root.iter(f"{SVG}g") if "buffer" in g.get("class", "")] == []


def test_hostile_names_in_a_plan() -> None:
    plan = report(PlannedValue(HOSTILE, HOSTILE, HOSTILE, (1,), 0, 64, 0, 0), arena=64, bound=64, separate=64)
    root = ET.fromstring(memory_svg(plan, HOSTILE))
    assert not any(e.tag.endswith("script") for e in root.iter())


def test_what_lies_in_place_of_an_operand_counts_once() -> None:
    plan = [value("a", 0, 400, 0, 2), value("b", 0, 400, 2, 3)]
    assert live_bytes(plan) == [(0, 400), (2, 400), (3, 400), (4, 0)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 300)), max_size=12))
def test_what_is_alive_never_passes_the_arena(drawn: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(first, first + more, size) for first, more, size in drawn]
    plan = plan_arena(lives)
    values = [
        PlannedValue(str(i), "k", "uint8", (t.size,), o, t.size, t.first, t.last)
        for i, (t, o) in enumerate(zip(lives, plan.offsets, strict=True))
    ]
    live = live_bytes(values)
    assert all(0 <= size <= plan.size for _, size in live)
    assert not live or live[-1][1] == 0
    for step, size in live:
        assert size == sum(t.size for t in lives if t.first <= step <= t.last)
