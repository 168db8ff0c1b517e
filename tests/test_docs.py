"""The documentation holds: every example of its lessons runs and prints what the page shows; links lead somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


LESSONS = {
    "tour": 30,
    "running": 20,
    "quickstart": 10,
    "migrating": 5,
    "extending": 12,
    "pictures": 15,
    "profiling": 15,
}


@pytest.mark.parametrize(("name", "least"), LESSONS.items())
def test_examples_print_what_the_page_shows(name: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / f"{name}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks and all(b.startswith(">>> ") for b in blocks)
    parsed = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, f"docs/{name}.md", 0)
    report: list[str] = []
    with np.printoptions():
        failed, tried = doctest.DocTestRunner(verbose=False).run(parsed, out=report.append)
    assert tried > least and failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_of_the_project(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert target.startswith("http") or (page.parent / target).exists(), target
