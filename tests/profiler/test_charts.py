"""Where things stand in charts: scales, what is left out, and that bars and marks tell the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpujit.profiler import charts
from gpujit.profiler.data import Event, GroupProfile, Machine
from tests.profiler.samples import profile, step, times


def test_bars_share_one_scale() -> None:
    one = profile().groups[0]
    other = replace(one, number=1, fused=times(2e-5), unfused=times(8e-5))
    found = charts.bars(profile(groups=(one, other)), width=120.0)
    assert found[0][1].length == pytest.approx(2 * found[1][0].length)
    # The longest of all with its spread fills the width.
    assert found[1][1].high == pytest.approx(120.0)
    assert [b.style for b in found[0]] == ["fused", "unfused"]


def test_groups_that_were_not_measured_have_no_bars() -> None:
    unmeasured = GroupProfile(0, "relu", ("relu",), (), 0, "", "")
    assert charts.bars(profile(groups=(unmeasured,))) == {}


def test_roofline_is_logarithmic_and_under_the_ceilings() -> None:
    # 2 and 200 operations a byte, at a hundredth and all of the memory's 20 GB/s.
    slow = step(0, "relu", 1e-3, flops=4_000_000, bytes_read=1_000_000, bytes_written=1_000_000)
    fast = step(1, "mm", 1e-3, flops=80_000_000, bytes_read=200_000, bytes_written=200_000)
    chart = charts.roofline(profile(steps=(slow, fast)))
    assert chart is not None
    first, second = chart.marks
    decade = chart.x_ticks[1].at - chart.x_ticks[0].at
    assert second.x - first.x == pytest.approx(2 * decade)
    assert "step 1: mm" in second.tip
    tops = [line for line in chart.lines if line.y1 == line.y2]
    slopes = [line for line in chart.lines if line.y1 != line.y2]
    assert len(tops) == 2 and len(slopes) == 2
    # A slope of one decade by one decade, that ends at the highest top.
    up = (chart.y_ticks[0].at - chart.y_ticks[-1].at) / (len(chart.y_ticks) - 1)
    for line in slopes:
        assert (line.y1 - line.y2) / (line.x2 - line.x1) == pytest.approx(up / decade)
        assert line.y2 == pytest.approx(min(t.y1 for t in tops))
    # 80 GFLOP/s at 200 operations a byte lies on the lower top, which is that of one thread.
    assert second.y == pytest.approx(max(t.y1 for t in tops))


def test_roofline_without_what_it_needs() -> None:
    assert charts.roofline(profile(steps=(step(0, "view", 1e-6, flops=None), step(1, "copy", 1e-6, flops=0)))) is None
    bare = charts.roofline(profile(machine=Machine("cpu", 1, 1, "")))
    assert bare is not None and bare.lines == () and len(bare.marks) == 2
    some = charts.roofline(profile(steps=(step(0, "view", 1e-6, bytes_read=None), step(1, "relu", 1e-6))))
    assert some is not None and some.left_out == 1


def test_timeline_puts_steps_one_behind_the_other() -> None:
    found = charts.timeline(profile())
    assert found is not None and not found.is_seen
    first, second = found.chart.marks
    assert second.x == pytest.approx(first.x + first.width)
    assert first.width / second.width == pytest.approx(6 / 4)
    assert [lane.name for lane in found.lanes] == ["Python", "native"]


def test_timeline_shows_the_last_call_that_was_seen() -> None:
    events = (
        Event("call", "calls", 0.0, 1e-3, 0),
        Event("relu+tanh", "steps", 0.0, 1e-3, 0, step=0),
        Event("call", "calls", 2.0, 4e-3, 1),
        Event("relu+tanh", "steps", 2.0, 1e-3, 1, step=0),
        Event("softmax", "steps", 2.003, 1e-3, 1, step=1),
        Event("unknown", "steps", 2.004, 1e-3, 1, step=99),
    )
    found = charts.timeline(profile(events=events))
    assert found is not None and found.is_seen
    assert found.seconds == pytest.approx(4e-3)
    first, second = found.chart.marks
    assert second.x - first.x == pytest.approx(3 * first.width)


def test_too_many_marks_leave_the_shortest_out() -> None:
    steps = tuple(step(i, "relu", 1e-6 * (1 + (i == 7))) for i in range(charts.MAX_MARKS + 5))
    found = charts.timeline(profile(steps=steps))
    assert found is not None and found.chart.left_out == 5
    assert any("step 7:" in m.tip for m in found.chart.marks)
    roofline = charts.roofline(profile(steps=steps))
    assert roofline is not None and roofline.left_out == 5 and len(roofline.marks) == charts.MAX_MARKS


def test_nothing_to_show() -> None:
    assert charts.timeline(profile(steps=())) is None
    assert charts.timeline(profile(steps=(step(0, "relu", 0.0),))) is None


@pytest.mark.parametrize("top, ticks", [(10, [0, 2, 4, 6, 8, 10]), (0, [0]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0])])
def test_ticks_are_round(top: float, ticks: list[float]) -> None:
    assert charts.nice_ticks(top) == pytest.approx(ticks)
