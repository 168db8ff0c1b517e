"""Operators that are written out for a GPU, in Numba's simulator: kernels whose threads work together."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import numpy as np

import gpujit
from gpujit import nn
from gpujit.runtime.device import is_simulated
from tests.static_runtime.device_models import numbers, scripted
from tests.static_runtime.test_device_written import POINTS

pytestmark = pytest.mark.skipif(not is_simulated(), reason="needs NUMBA_ENABLE_CUDASIM=1")

PROGRAMS = {
    "heads that share keys": (
        "torch.nn.functional.scaled_dot_product_attention(x, y, y)",
        numbers(1, 2, 3, 4),
        numbers(1, 1, 3, 4),
    ),
    "points of an image": ("torch.grid_sampler(x, y, 0, 1, False)", numbers(1, 2, 3, 4), POINTS),
    "a spectrogram": (
        "torch.abs(torch.stft(x, 8, 4, 8, y, True, 'reflect', False, True, True)) * 2.0",
        numbers(1, 20),
        np.hanning(8).astype("f4"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    code, x, y = PROGRAMS[name]
    module = scripted(nn.Identity())
    module.define(f"def run(self, x, y):\n    return {code}\n")
    reference = gpujit.load(module.save_to_buffer())
    module.to("cuda:0")
    for _ in range(2):
        np.testing.assert_allclose(module.run(x, y), reference.run(x, y), 1e-5, 1e-5)
    assert module.plan_stats().interpreted == 0
    assert "host    " not in module.run.explain()
