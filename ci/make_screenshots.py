"""Pictures of a profile's report for docs/profiling.md. Usage: make_screenshots.py silero_vad.jit

Takes a browser as the tests do: needs the extra ``browser`` and chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import gpujit  # noqa: E402
from gpujit.profiler import report  # noqa: E402
from tests.profiler.browsing import launched, opened  # noqa: E402

MAX_BYTES = 300_000


def picture(page: Any, name: str, first: str, last: str) -> None:
    """The sections from ``first`` to ``last``, by the ids of their headings, as docs/images/NAME.png."""
    path = ROOT / "docs" / "images" / f"{name}.png"
    place = "(id) => document.getElementById(id).closest('section').getBoundingClientRect()"
    top, bottom = page.evaluate(f"({place})('{first}').top"), page.evaluate(f"({place})('{last}').bottom")
    clip = {"x": 0, "y": top + page.evaluate("scrollY"), "width": 1200, "height": bottom - top}
    page.screenshot(path=path, full_page=True, clip=clip)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size} bytes")
    if size > MAX_BYTES:
        sys.exit(f"{path} is too large")


def main(file: str) -> None:
    chunk = np.random.default_rng(0).standard_normal((1, 512), np.float32)
    profile = gpujit.profile_module(gpujit.load(file), [chunk, 16000], rounds=300, file=Path(file).name)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        path = Path(folder) / "report.html"
        report.write(profile, path)
        for scheme in ("light", "dark"):
            with opened(browser, path, scheme) as page:
                picture(page, f"report-{scheme}", "summary", "groups")
                picture(page, f"report-charts-{scheme}", "roofline", "memory")
                page.click("#tab-stage1")
                page.fill("#graph-stage1 input", "encoder.0")
                page.wait_for_timeout(500)
                picture(page, f"report-graph-{scheme}", "graph", "graph")


if __name__ == "__main__":
    main(sys.argv[1])
