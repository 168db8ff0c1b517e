"""Measuring steps on a device: what is put on streams, how often, and what is made of the clock; with a fake device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.kernels import cache
from gpujit.kernels.launches import FLAGS, SCRATCH, Address, DeviceKernel, DeviceStep, Launch
from gpujit.runtime.device import GpuDevice, OutOfMemory, is_simulated
from gpujit.static_runtime.device_timer import REPLAYS, ROUNDS, RUNS, DeviceTimer
from gpujit.support.config import config
from gpujit.support.errors import DeviceError
from tests.models.test_corpus import case

KERNEL = DeviceKernel("source", ("*float32", "*float32"), 32, "k")


class Memory:
    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes


class Recorder:
    """Notes what it is asked; a launch takes a microsecond of its clock, alone or replayed."""

    name, description, workspace, room = "cuda:0", "a card", 0, 1 << 40

    def __init__(self, capture_refusal: str = "", fails: bool = False) -> None:
        self.capture_refusal, self._fails = capture_refusal, fails
        self.now, self.next, self.recorded = 0.0, 256, 0
        self.asked: list[Any] = []
        self.capturing = False

    @contextmanager
    def here(self) -> Iterator[None]:
        yield

    def stream(self) -> str:
        return "stream"

    def allocate(self, nbytes: int) -> Memory:
        assert not self.capturing
        if nbytes > self.room:
            raise OutOfMemory(nbytes)
        self.next += 1 << 20
        return Memory(self.next, nbytes)

    def zero(self, address: int, nbytes: int, stream: str) -> None:
        self.asked.append(("zero", nbytes))

    def upload(self, address: int, array: np.ndarray, stream: str) -> None:
        self.asked.append(("upload", array.nbytes))

    def launch(self, launch: Launch, at: Any) -> Any:
        self.asked.append(("launch", [at(a.array) for a in launch.arguments if isinstance(a, Address)]))

        def call(stream: str) -> None:
            if self.capturing:
                self.recorded += 1
            else:
                self.now += 1e-6

        return call

    def synchronise(self, stream: str) -> None:
        assert not self.capturing

    def begin_capture(self) -> str:
        self.capturing, self.recorded = True, 0
        return "capture"

    def end_capture(self, stream: str) -> int:
        self.capturing = False
        if self._fails:
            raise DeviceError("it could not be recorded")
        return self.recorded

    def replay(self, graph: int, stream: str) -> None:
        self.asked.append(("replay", graph))
        self.now += graph * 1e-6


def timer(device: Recorder) -> DeviceTimer:
    return DeviceTimer(cast(GpuDevice, device), lambda: device.now)


def step(count: int = 1) -> DeviceStep:
    launch = Launch(KERNEL, 4, (Address(0), Address(1), Address(SCRATCH), Address(FLAGS), Address(2)))
    return DeviceStep((launch,) * count, scratch=100, checks=("no",), constants=(np.ones(3, np.float32),))


def test_runs_are_recorded_and_replayed() -> None:
    device = Recorder()
    assert timer(device).seconds(step(2), [64, 0]) == pytest.approx(2e-6)
    assert device.asked.count(("replay", 2 * RUNS)) == 1 + ROUNDS * REPLAYS
    # Arrays and flags are zeroed, constants come from the host, nothing has an address of another's.
    assert [a for a in device.asked if a[0] in ("zero", "upload")] == [("zero", 64), ("upload", 12), ("zero", 4)]
    (addresses,) = {tuple(a[1]) for a in device.asked if a[0] == "launch"}
    assert len(set(addresses)) == 5


@pytest.mark.parametrize("device", [Recorder("no graphs"), Recorder(fails=True)], ids=["refused", "failed"])
def test_where_nothing_can_be_recorded_calls_are_made(device: Recorder) -> None:
    assert timer(device).seconds(step(), [64, 64]) == pytest.approx(1e-6)
    assert not any(a[0] == "replay" for a in device.asked)


def test_without_room_it_says_so() -> None:
    device = Recorder()
    device.room = 1000
    with pytest.raises(DeviceError, match="there is no memory on cuda:0 for arrays to measure a kernel on"):
        timer(device).seconds(step(), [64, 2000])


@pytest.mark.skipif(not is_simulated(), reason="kernels run in the simulator: NUMBA_ENABLE_CUDASIM=1")
def test_a_module_that_is_tuned_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpujit
    from gpujit.kernels import cuda_autotune
    from gpujit.static_runtime import device_timer

    for name in ("RUNS", "REPLAYS", "ROUNDS"):
        monkeypatch.setattr(device_timer, name, 1)
    monkeypatch.setattr(cuda_autotune, "ROUNDS", 1)
    monkeypatch.setattr(cuda_autotune, "candidates", lambda usual: [usual, replace(usual, bytes=4)])
    module, inputs, expected = case("mlp")
    with config(autotune=True, cache_dir=str(tmp_path)):
        found = gpujit.optimize_for_inference(module.to("cuda:0"))(*inputs)
        store = cache.store()
        assert store is not None
        kept = [e.source() for e in store.entries() if e.kind == cache.TUNED]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert kept and all("taken" in text or "nothing to choose" in text for text in kept)
