"""Tests that need a CUDA device. Without one, or Numba's simulator in its place, they are not even collected.

In the simulator (NUMBA_ENABLE_CUDASIM=1) few cases run, since a thread takes a third of a millisecond there.
``--gpu-seconds`` bounds how long they may take: what is left then is skipped, and said so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpujit.runtime.device import GpuDevice, is_simulated, open_device
from gpujit.support.errors import DeviceError

_started = time.monotonic()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests without the packages that a device needs are not collected."""
    return True if not is_simulated() and (find_spec("cupy") is None or find_spec("numba_cuda") is None) else None


@pytest.fixture(scope="session")
def device() -> GpuDevice:
    """The first CUDA device, or the simulated one."""
    try:
        return open_device("cuda:0")
    except DeviceError as fault:
        pytest.skip(fault.message)


def seconds_left(config: pytest.Config) -> float:
    """Seconds until what is left is skipped."""
    seconds = config.getoption("--gpu-seconds", None)
    return float("inf") if seconds is None else float(seconds) - (time.monotonic() - _started)


@pytest.fixture(autouse=True)
def _within_time(request: pytest.FixtureRequest) -> Iterator[None]:
    if seconds_left(request.config) < 0:
        pytest.skip("no time is left (--gpu-seconds)")
    yield
