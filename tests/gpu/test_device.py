"""What only a device shows: arrays of its own come in and go out without a copy, streams are kept to, errors are told.

The simulated device has host arrays and one stream; there the same calls must give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.runtime.device import GpuDevice, is_simulated
from gpujit.support.errors import DeviceError
from tests.compare import assert_same
from tests.gpu.test_models import host
from tests.models.test_corpus import case

pytestmark = pytest.mark.gpu
on_a_gpu = pytest.mark.skipif(is_simulated(), reason="the simulator has no arrays or streams of its own")


@pytest.fixture(scope="module")
def mlp(device: GpuDevice) -> tuple[gpujit.ScriptModule, list[Any], Any]:
    module, inputs, expected = case("mlp")
    return gpujit.optimize_for_inference(module.to(device.name)), inputs, expected


def test_a_run_is_replayed_and_its_results_are_its_own(mlp: Any) -> None:
    module, inputs, expected = mlp
    first = module(*inputs)
    later = [module(*(x * 2 for x in inputs)) for _ in range(3)]
    assert_same(host(first), expected, "the first result, after other runs")
    assert_same(host(later[0]), host(later[2]), "results of equal inputs")
    assert module.plan_stats().interpreted == 0


@on_a_gpu
def test_arrays_of_cupy_and_tensors_of_torch_are_taken(mlp: Any) -> None:
    import cupy

    module, inputs, expected = mlp
    makers: list[Callable[[np.ndarray], Any]] = [cupy.asarray, lambda x: cupy.asfortranarray(cupy.asarray(x))]
    try:
        import torch

        makers.append(lambda x: torch.from_numpy(x).cuda())
    except ImportError:
        pass
    for make in makers:
        found = module(*map(make, inputs))
        assert isinstance(found, cupy.ndarray)
        assert_same(found.get(), expected, "mlp")


@on_a_gpu
def test_the_current_stream_is_used(mlp: Any) -> None:
    import cupy

    module, inputs, expected = mlp
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    found = []
    for stream in streams:
        with stream:
            given = [cupy.asarray(x) for x in inputs]
            found.append(module(*given) * 1)
    for stream, y in zip(streams, found, strict=True):
        stream.synchronize()
        assert_same(y.get(), expected, "mlp")


@on_a_gpu
def test_too_large_a_tensor_is_told_with_its_size(device: GpuDevice) -> None:
    module = gpujit.script(gpujit.nn.Module())
    module.define("def forward(self, x: Tensor, n: int) -> Tensor:\n    return torch.exp(x.expand([n, 1 << 20]))\n")
    fast = gpujit.optimize_for_inference(module.to(device.name))
    small = np.zeros((1, 1), np.float32)
    with pytest.raises(DeviceError, match="there is no memory on"):
        fast(small, 1 << 24)
    assert host(fast(small, 2)).shape == (2, 1 << 20)


def test_graphs_are_captured_where_that_can_be_done(mlp: Any, device: GpuDevice) -> None:
    module, inputs, _ = mlp
    for _ in range(3):
        module(*inputs)
    stats = module.plan_stats()
    if device.capture_refusal:
        assert stats.captures == 0 and device.capture_refusal in module.methods["forward"].explain()
    else:
        assert stats.captures == 1 and stats.replays > 0


def test_steps_are_timed_on_the_device(mlp: Any) -> None:
    module, inputs, expected = mlp
    module(*inputs)
    with gpujit.profile(ceilings=False) as p:
        results = [module(*inputs) for _ in range(3)]
    (profile,) = p.profiles
    steps = [s for s in profile.steps if s.tier in ("device kernel", "device library")]
    assert profile.watched.runs == 3 and steps
    assert all(s.seconds.median > 0 for s in steps)
    assert sum(s.seconds.median for s in steps) <= profile.watched.high
    calls = [e for e in profile.events if e.track == "calls"]
    for e in (e for e in profile.events if e.track == "gpu"):
        # The host's clock, from which the device's counts, is read a moment before it.
        assert calls[e.call].start <= e.start
        assert e.start + e.seconds <= calls[e.call].start + calls[e.call].seconds + 1e-4
    for found in (*results, module(*inputs)):
        assert_same(host(found), expected, "mlp, profiled")
