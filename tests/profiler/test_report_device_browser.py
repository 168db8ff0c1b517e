"""The report of a module on a device in a real browser: a device that records, with ceilings as a card has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.profiler import device_machine, report
from gpujit.profiler.data import BUS, Ceiling, Peak, Profile
from tests.profiler.browsing import LEAST_CONTRAST, contrasts, launched, opened
from tests.profiler.test_device import Small
from tests.runtime.recording_device import RecordingDevice
from tests.static_runtime.test_device import placed, scripted

pytestmark = pytest.mark.browser

CEILINGS = (
    (Ceiling("100 B", 100, 4e12), Ceiling("memory", 10_000, 1e12), Ceiling(BUS, 10_000, 2e11)),
    (Peak(1, 1e13), Peak(1, 8e13, "float16")),
)
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


def taken(**options: Any) -> Profile:
    gpujit.manual_seed(0)
    return gpujit.profile_module(placed(scripted(Small()), RecordingDevice()), (X,), rounds=3, **options)


@pytest.fixture
def page_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device_machine, "kept_ceilings", lambda identity, measure: CEILINGS)
    report.write(taken(), tmp_path / "report.html")
    return tmp_path / "report.html"


def texts(page: Any, selector: str) -> list[str]:
    return [str(t) for t in page.locator(selector).all_text_contents()]


def test_the_report_of_a_device(browser: Any, page_of: Path) -> None:
    with opened(browser, page_of) as page:
        assert "Steps ran on cuda:0, a device that records" in page.inner_text("main")
        assert page.inner_text("#speedup") != "–"
        # Two groups, each fused and unfused.
        assert page.locator("#bars svg.bars rect").count() == 4
        assert page.locator("#graph-stage0 .item.node").count() > 0
        labels = " | ".join(texts(page, "#roofline-chart text, section[aria-labelledby=roofline] .key li"))
        for label in ("memory: 1.00 TB/s", "100 B: 4.00 TB/s", "10.0 TFLOP/s, float32", "80.0 TFLOP/s, float16"):
            assert label in labels, label
        # The way from the host is no roof over steps on the device, and the processor's threads are not the card's.
        assert BUS not in labels and "thread" not in labels
        assert page.locator("#roofline-chart circle.mark").count() >= 2
        assert page.locator("#timeline-chart .mark").count() >= 4
        assert {"GPU", "Python"} <= {t.strip() for t in texts(page, "#timeline-chart text")}
        rows = page.text_content("section[aria-labelledby=operators]")
        assert "inputs to their places" in rows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_text_can_be_read(browser: Any, page_of: Path, scheme: str) -> None:
    with opened(browser, page_of, scheme) as page:
        page.eval_on_selector_all("details", "all => all.forEach(e => e.open = true)")
        found = contrasts(page)
        assert found and [x for x in found if x[0] < LEAST_CONTRAST] == []


def test_without_ceilings_and_without_groups(browser: Any, tmp_path: Path) -> None:
    report.write(taken(ceilings=False, groups=False, unfused=False), tmp_path / "r.html")
    with opened(browser, tmp_path / "r.html") as page:
        assert page.inner_text("#speedup") == "–"
        assert "Steps ran on cuda:0" in page.inner_text("main")
        assert page.locator("#timeline-chart .mark").count() >= 4
