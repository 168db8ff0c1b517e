"""Tiny models on a device: what PyTorch computed for them; plans, graphs and the interpreter agree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit.runtime.device import GpuDevice, is_simulated
from gpujit.static_runtime.device_warm import Found, Target, WarmExecutor
from gpujit.support.config import config
from tests.compare import assert_same
from tests.models.test_corpus import NAMES, case

pytestmark = pytest.mark.gpu
# Those with little work.
IN_THE_SIMULATOR = ("mlp", "half", "containers")
FOLDER = os.environ.get("GPUJIT_TEST_MODELS", "")


@pytest.fixture(scope="module", autouse=True)
def _compiled(device: GpuDevice) -> None:
    """All kernels of these models, compiled side by side: a model alone has too few for many processes."""
    if is_simulated():
        return
    found = Found()
    for name in NAMES:
        module, inputs, _ = case(name)
        frozen = gpujit.freeze(module.eval())
        program, target = frozen._program, Target(limits=device.limits)
        rules = program.lowerer.rules
        program.optimise(lambda f, rules=rules, target=target: WarmExecutor(f, rules, found, target))
        frozen(*inputs)
    device.compile(list(found.kernels))


def host(value: Any) -> Any:
    """A result with NumPy's arrays in it."""
    if isinstance(value, (list, tuple)):
        items = [host(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: host(v) for k, v in value.items()}
    return value.get() if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__") else value


@pytest.mark.parametrize("name", IN_THE_SIMULATOR if is_simulated() else NAMES)
def test_outputs_are_those_of_pytorch(name: str, device: GpuDevice) -> None:
    module, inputs, expected = case(name)
    fast = gpujit.optimize_for_inference(module.to(device.name))
    for _ in range(3):
        assert_same(host(fast(*inputs)), expected, name)


@pytest.mark.parametrize("name", ["mlp"])
def test_the_interpreter_and_the_plan_agree(name: str, device: GpuDevice) -> None:
    module, inputs, expected = case(name)
    module.to(device.name)
    assert_same(host(module(*inputs)), expected, name)
    assert_same(host(module.cpu()(*inputs)), expected, name)


def test_graphs_can_be_turned_off(device: GpuDevice) -> None:
    module, inputs, expected = case("mlp")
    fast = gpujit.optimize_for_inference(module.to(device.name))
    with config(disable=("graphs",)):
        for _ in range(3):
            assert_same(host(fast(*inputs)), expected, "mlp")
    stats = fast.plan_stats()
    assert (stats.captures, stats.replays) == (0, 0) and stats.fallbacks
    assert "turns graphs off" in fast.methods["forward"].explain()


@pytest.mark.skipif(not FOLDER or is_simulated(), reason="GPUJIT_TEST_MODELS names no folder, or nothing is fast here")
def test_silero_keeps_its_state(device: GpuDevice) -> None:
    path = Path(FOLDER, "silero_vad.jit")
    slow, fast = gpujit.load(path), gpujit.optimize_for_inference(gpujit.load(path, device=device.name))
    audio = (np.random.default_rng(0).standard_normal((20, 1, 512)) * 0.1).astype(np.float32)
    for chunk in audio:
        np.testing.assert_allclose(host(fast(chunk, 16000)), slow(chunk, 16000), rtol=1e-3, atol=1e-4)
