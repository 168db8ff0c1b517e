"""What the machine reaches: measured once, kept on disk, measured again when that is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpujit.profiler import machine
from gpujit.profiler.data import Ceiling, Machine, Peak
from gpujit.support.config import config

FOUND = ((Ceiling("L1", 1000, 4e11, 1), Ceiling("memory", 10**8, 2e10, 1)), (Peak(1, 1e11), Peak(4, 3e11)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(machine, "_known", {})
    with config(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []

    def measured() -> object:
        calls.append(1)
        return FOUND

    monkeypatch.setattr(machine, "measured", measured)
    return calls


def test_it_is_measured_once(folder: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine.machine()
    assert machine.machine() == first and len(counted) == 1
    assert (first.bandwidths, first.peaks) == FOUND and first.threads >= 1 and first.processor
    # A later process reads the file.
    monkeypatch.setattr(machine, "_known", {})
    assert machine.machine() == first and len(counted) == 1
    assert [p.suffix for p in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"bandwidths": [], "peaks": []}', '{"bandwidths": [{"level": 1}]}'])
def test_a_damaged_file_is_measured_again(
    damage: str, folder: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.machine()
    (path,) = folder.iterdir()
    path.write_text(damage)
    monkeypatch.setattr(machine, "_known", {})
    assert machine.machine().peaks == FOUND[1] and len(counted) == 2
    assert json.loads(path.read_text())["peaks"]


def test_nothing_is_kept_where_nothing_is_to_be(folder: Path, counted: list[int]) -> None:
    with config(cache=False):
        assert machine.machine().peaks == FOUND[1]
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_the_file_alone(tmp_path: Path, counted: list[int]) -> None:
    (tmp_path / "file").write_text("")
    machine._known.clear()
    with config(cache=True, cache_dir=str(tmp_path / "file")):
        assert machine.machine().peaks == FOUND[1]
    machine._known.clear()


def test_another_machine_is_measured_anew(folder: Path, counted: list[int]) -> None:
    with config(threads=1):
        machine.machine()
    with config(threads=2):
        machine.machine()
    assert len(counted) == 2


def test_without_measuring_there_are_no_ceilings(counted: list[int]) -> None:
    found = machine.machine(measure=False)
    assert found.bandwidths == found.peaks == () and not counted
    assert machine.bandwidth_of(found, 100, 1) is None and machine.peak_of(found, 1) is None


def test_the_level_follows_from_the_bytes() -> None:
    here = Machine("x", 4, 4, "8", *FOUND)
    assert machine.bandwidth_of(here, 500, 1) == 4e11 and machine.bandwidth_of(here, 10**12, 1) == 2e10
    assert machine.bandwidth_of(here, 1001, 1) == 2e10
    assert machine.peak_of(here, 1) == 1e11 and machine.peak_of(here, 3) == 3e11


def test_measurements_are_possible_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_RUNS", 2)
    monkeypatch.setattr(machine, "cache_sizes", lambda: {"L1": 32 << 10, "L3": 1 << 20})
    monkeypatch.setattr(machine, "_LARGEST", 1 << 22)
    with config(threads=2):
        bandwidths, peaks = machine.measured()
    assert [(b.level, b.threads) for b in bandwidths] == [(n, t) for t in (1, 2) for n in ("L1", "L3", "memory")]
    # From a very old processor to one that there is not.
    assert all(1e8 < b.bandwidth < 1e14 for b in bandwidths)
    assert [p.threads for p in peaks] == [1, 2] and all(1e8 < p.rate < 1e14 for p in peaks)


def test_cache_sizes_are_read_or_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "2M"))
    ):
        at = tmp_path / f"index{k}"
        at.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (at / name).write_text(value + "\n")
    monkeypatch.setattr(machine, "_CACHES", tmp_path)
    machine.cache_sizes.cache_clear()
    assert machine.cache_sizes() == {"L1": 48 << 10, "L3": 2 << 20}
    (tmp_path / "index0" / "size").write_text("?")
    monkeypatch.setattr(machine, "_CACHES", tmp_path / "none")
    machine.cache_sizes.cache_clear()
    assert machine.cache_sizes() == machine._USUAL
    machine.cache_sizes.cache_clear()
