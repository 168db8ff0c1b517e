"""Stages of long work: silent unless somebody listens, counted from any thread."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit.support.progress import Stage, listening
from tests.programs import archive, forward, module


class Notes:
    """What a listener was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.stages: list[Stage] = []

    def began(self, stage: Stage) -> None:
        self.told.append(("began", stage.name))
        self.stages.append(stage)

    def ended(self, stage: Stage) -> None:
        self.told.append(("ended", stage.name))


def test_nobody_need_listen() -> None:
    with Stage("work", 3) as stage:
        stage.advance(2)
    assert (stage.done, stage.total) == (2, 3)


def test_a_listener_is_told_of_what_begins_and_ends_also_by_an_error() -> None:
    notes = Notes()
    with listening(notes), pytest.raises(ValueError, match="broken"), Stage("outer"), Stage("inner"):
        raise ValueError("broken")
    with Stage("unheard"):
        pass
    assert notes.told == [("began", "outer"), ("began", "inner"), ("ended", "inner"), ("ended", "outer")]


def test_threads_count_together() -> None:
    with Stage("work", 4000) as stage:
        threads = [threading.Thread(target=lambda: [stage.advance() for _ in range(1000)]) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert stage.done == 4000


def test_work_may_count_by_other_means() -> None:
    found = [1, 2]
    stage = Stage("work", 5, count=lambda: len(found))
    assert stage.done == 2
    found.append(3)
    assert stage.done == 3


def test_the_library_says_what_takes_long(tmp_path: Path) -> None:
    """Loading, freezing, planning, compiling and writing are stages, and those that count come to their end."""
    source = module(forward("x: Tensor", "return torch.relu(torch.add(x, self.w))"), "w : Tensor", parameters=["w"])
    path = tmp_path / "model.pt"
    path.write_bytes(archive(source, {"w": np.ones((3, 100_000), np.float32)}))
    notes = Notes()
    with listening(notes):
        fast = gpujit.optimize_for_inference(gpujit.load(path), threads=1)
        fast(np.ones((3, 1), np.float32))
        fast.save(tmp_path / "again.pt")
    began = [name for what, name in notes.told if what == "began"]
    assert began[:3] == ["load model.pt", "freeze", "optimise"] and began[-1] == "write"
    assert any(name.startswith("plan ") for name in began) and "compile kernels" in began
    assert len(notes.told) == 2 * len(began)
    load, write = notes.stages[0], notes.stages[-1]
    assert load.unit == write.unit == "bytes"
    assert load.total is not None and 1_200_000 < load.done <= load.total * 2
    assert write.total is not None and write.done == write.total > 1_200_000
    kernels = next(s for s in notes.stages if s.name == "compile kernels")
    assert kernels.done == kernels.total
