"""Timelines: valid JSON whatever names there are, in microseconds, of limited size, whole files or none."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpujit.profiler import trace
from gpujit.profiler.data import Event, Profile
from gpujit.support.errors import SaveError
from tests.profiler.samples import HOSTILE, profile


def with_events(count: int, name: str = "relu") -> Profile:
    calls = [Event("forward", "calls", 0.0, 1.0, 0)]
    steps = [Event(name, "steps", 1e-6 * k, 5e-7, 0, k % 2) for k in range(count)]
    return profile(name, events=(*calls, *steps), dropped=0)


def written(*profiles: Profile) -> dict[str, Any]:
    out = io.BytesIO()
    trace.save_trace(profiles, out)
    found: dict[str, Any] = json.loads(out.getvalue().decode("ascii"))
    return found


def test_seconds_are_microseconds_there() -> None:
    made = profile(events=(Event("relu", "steps", 0.0015, 2.5e-8, 3, 0),))
    (event,) = [e for e in written(made)["traceEvents"] if e["ph"] == "X"]
    assert (event["ts"], event["dur"], event["args"]["call"]) == (1500.0, 0.025, 3)
    assert event["args"]["source"] == "code/__torch__.py:20" and event["args"]["module"] == "encoder.0"
    assert event["args"]["bytes"] == 8192 and event["args"]["group"] == 0


@pytest.mark.parametrize("name", [HOSTILE, "", "\ud800", '"},{"ph":"X', "a" * 100_000, "\x00"])
def test_names_are_only_names(name: str) -> None:
    found = written(with_events(3, name))
    events = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert len(events) == 4 and all(0 < len(e["name"]) <= trace.MAX_NAME for e in events)


def test_tracks_have_names_and_an_order() -> None:
    made = profile(
        events=(
            Event("a", "calls", 0.0, 1.0, 0),
            Event("b", "steps", 0.0, 1.0, 0),
            Event("b", "steps", 0.0, 1.0, 0, thread=2),
            Event("c", "gpu", 0.0, 1.0, 0),
            Event("d", "\n</x>", 0.0, 1.0, 0),
        )
    )
    found = written(made, made)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert sorted(names.values()) == sorted(["calls", "steps", "gpu", "steps, thread 2", "\n</x>"] * 2)
    assert {(e["pid"], e["tid"]) for e in found if e["ph"] == "X"} == set(names)
    assert {e["args"]["name"] for e in found if e["name"] == "process_name"} == {"model.pt: forward"}


def test_what_is_too_much_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_EVENTS", 10)
    found = written(with_events(50))
    assert sum(e["ph"] == "X" for e in found["traceEvents"]) == 10
    assert found["otherData"]["note"].startswith("41 events were left out")
    assert any(e["ph"] == "i" and "41 events" in e["name"] for e in found["traceEvents"])
    monkeypatch.setattr(trace, "MAX_EVENTS", 1000)
    monkeypatch.setattr(trace, "MAX_BYTES", 5_000)
    assert 5 < sum(e["ph"] == "X" for e in written(with_events(50))["traceEvents"]) < 20
    monkeypatch.undo()
    assert written(with_events(50))["otherData"]["note"] == ""


def test_a_timeline_of_nothing_is_one() -> None:
    assert written()["traceEvents"] == []
    assert [e["ph"] for e in written(profile(events=()))["traceEvents"]] == ["M"]


@pytest.mark.parametrize("what", ["trace", "json"])
def test_a_full_disk_leaves_what_was_there(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.json"
    target.write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    save = profile().save_trace if what == "trace" else profile().save_json
    with pytest.raises(SaveError, match="No space left on device; nothing was left"):
        save(target)
    assert target.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["out.json"]
    monkeypatch.undo()
    save(target)
    assert isinstance(json.loads(target.read_text()), dict)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="cannot be written"):
        profile().save_trace(tmp_path / "none" / "out.json")
