"""Thread counts from the switch, affinity and the container's quota."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpujit.support.config import config
from gpujit.support.threads import available, thread_count


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)


@pytest.mark.parametrize(
    ("text", "count"), [("max 100000", 3), ("150000 100000", 2), ("20000 100000", 1), ("900000 100000", 3), ("?", 3)]
)
def test_the_quota_of_a_container_counts(three: None, tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert available(tmp_path) == count


@pytest.mark.parametrize(("quota", "count"), [("-1", 3), ("200000", 2)])
def test_the_older_form_of_quotas_counts(three: None, tmp_path: Path, quota: str, count: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available(tmp_path) == count


def test_affinity_alone_decides_without_a_quota(three: None, tmp_path: Path) -> None:
    assert available(tmp_path / "none") == 3


def test_the_switch_decides_first() -> None:
    with config(threads=7):
        assert thread_count() == 7
    with config(threads=0):
        assert thread_count() == 1
