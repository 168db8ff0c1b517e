"""What a device reaches: what is asked of it, how that becomes rates, and that it is asked once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpujit.kernels.cuda_tile import limits_of
from gpujit.kernels.launches import Launch
from gpujit.profiler import device_machine, machine
from gpujit.profiler.data import BUS
from gpujit.runtime.device import OutOfMemory, is_simulated
from gpujit.static_runtime import device_timer
from gpujit.support.config import config
from gpujit.support.errors import DeviceError
from tests.runtime.recording_device import RecordingDevice


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    monkeypatch.setattr(device_timer, "MOST_RUNS", 2)
    return RecordingDevice()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(machine, "_known", {})
    with config(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def test_rates_are_what_was_moved_and_computed_by_the_device_s_clock(
    device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "elapsed", lambda start, end: 1000.0 * (end[0] - start[0]))
    bandwidths, peaks = device_machine.measured(device)
    # One thread keeps this device busy; two runs lie between events, which are a microsecond apart.
    assert [(b.level, b.size) for b in bandwidths] == [("16 B", 16), ("128 B", 128), ("memory", 1024), (BUS, 512)]
    assert [b.bandwidth * 1e-6 for b in bandwidths] == pytest.approx([2 * b.size for b in bandwidths])
    assert [p.dtype for p in peaks] == ["float32", "float16", "bfloat16"]
    assert peaks[0].rate * 1e-6 == pytest.approx(2 * max(2 * 128 * 32, 2 * 8**3))
    assert device.kinds().count("gemm") and device.kinds().count("launch") and not device.refused


def test_it_is_asked_once(folder: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    found = device_machine.device_machine(device)
    assert found.device == "cuda:0, a device that records" and found.bandwidths and found.processor
    # A later process reads the file; the processor's own is another one.
    monkeypatch.setattr(machine, "_known", {})
    device.forget()
    assert device_machine.device_machine(device) == found and not device.events
    assert [p.name[:15] for p in folder.iterdir()] == ["machine-device-"]
    assert not device_machine.device_machine(device, measure=False).peaks
    # Another card is another device.
    device.description = "another card"
    assert device_machine.device_machine(device).device.endswith("another card") and device.events


def test_without_memory_it_says_so(folder: Path, device: RecordingDevice) -> None:
    device.most_bytes = 300
    with pytest.raises(DeviceError, match="no memory on cuda:0") as caught:
        device_machine.device_machine(device)
    assert not isinstance(caught.value, OutOfMemory)


def test_nothing_is_left_of_a_graph_that_cannot_be_had(device: RecordingDevice) -> None:
    device.capture_fault = "an operation is not permitted"
    bandwidths, peaks = device_machine.measured(device)
    assert "replay" not in device.kinds() and len(bandwidths) == 4 and peaks
    with config(disable=("graphs",)):
        device.forget()
        assert device_machine.measured(device)[0] and "begin" not in device.kinds()


def test_the_kernel_that_computes_consists_of_fused_multiply_and_adds() -> None:
    if is_simulated():
        pytest.skip("the simulator compiles nothing")
    pytest.importorskip("numba_cuda")
    from gpujit.kernels import cuda_cache, cuda_compile

    step = device_machine._chain_step(_place(limits_of((9, 0))))
    (call,) = step.calls
    assert isinstance(call, Launch)
    (compiled,) = cuda_cache.prepare([(call.kernel, (9, 0))])
    assert isinstance(compiled, cuda_cache.Compiled)
    found = [re.split(r"[\s.]", line.strip())[0] for line in cuda_compile.instructions(compiled)]
    count, wide = found.count("FFMA"), int(re.search(r"(\d+) elements wide", call.kernel.source).group(1))  # type: ignore[union-attr]
    assert count == 128 * wide and not {"FADD", "FMUL", "DFMA"} & set(found)


def _place(limits: Any) -> Any:
    return SimpleNamespace(limits=limits)
