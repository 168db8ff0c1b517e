"""The operator table on a device against NumPy: each operator as a plan of its own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.ir.values import DeviceTensor
from gpujit.runtime.device import GpuDevice, is_simulated, mapped, to_device, to_host
from gpujit.static_runtime.device_module import DeviceGraph
from tests.gpu.cases import Case, every
from tests.gpu.conftest import seconds_left
from tests.kernels.random_programs import assert_close

pytestmark = pytest.mark.gpu
# Seconds that the tests themselves have at least.
LEAST_LEFT = 25
# Each takes a moment in the simulator, where sampling them is enough: ci/ looks at their code elsewhere.
CASES = every()[:: 37 if is_simulated() else 1]


@pytest.fixture(scope="module", autouse=True)
def _compiled(device: GpuDevice, request: pytest.FixtureRequest) -> None:
    """All kernels of this module, compiled side by side. One that cannot be is told by its own test; where processors
    are few, those for which there is no time are left to their tests."""
    if is_simulated():
        return
    kernels = list(dict.fromkeys(k for case in CASES for k in case.kernels(device.limits)))
    refused, each = 0, 8 * (os.cpu_count() or 1)
    for k in range(0, len(kernels), each):
        if seconds_left(request.config) < LEAST_LEFT:
            break
        refused += len(device.compile(kernels[k : k + each]))
    assert refused < len(kernels)


@pytest.mark.parametrize("case", CASES, ids=[f"{k} {c}" for k, c in enumerate(CASES)])
def test_an_operator(case: Case, device: GpuDevice) -> None:
    expected = case.expected()
    assert expected is not None
    if case.then:
        expected = tuple(-e for e in expected)
    graph, fused, lowerer = case.graph()
    stream = device.stream()
    runner = DeviceGraph(device, graph, fused.programs, lowerer)
    values: list[Any] = [to_device(device, x, stream) for x in case.tensors()]
    # Call by call, then as a graph is recorded, then replayed.
    for _ in range(3):
        found = runner.run(values)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        host = mapped(results, DeviceTensor, lambda x: to_host(device, x, stream))
        device.synchronise(stream)
        assert len(host) == len(expected)
        assert_close([np.asarray(h).reshape(e.shape) for h, e in zip(host, expected, strict=True)], expected, str(case))
