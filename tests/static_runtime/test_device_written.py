"""Operators that are written out for a GPU, run on a device that records: their kernels, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import gpujit
from gpujit import nn
from gpujit.support.errors import OpError
from tests.runtime.recording_device import RecordingDevice
from tests.static_runtime.device_models import numbers, scripted
from tests.static_runtime.test_device import assert_close

POINTS = np.random.default_rng(0).uniform(-1.3, 1.3, (1, 2, 3, 2)).astype(np.float32)

PROGRAMS = {
    "points of an image": ("torch.grid_sampler(x, y, 0, 0, False)", numbers(1, 2, 3, 4), POINTS),
    "points of an affine map": (
        "torch.grid_sampler(x, torch.affine_grid_generator(y, [1, 2, 2, 2], True), 1, 1, True)",
        numbers(1, 2, 3, 4),
        numbers(1, 2, 3),
    ),
    "a spectrogram": (
        "torch.abs(torch.stft(x, 8, 4, 8, y, True, 'reflect', False, True, True)) * 2.0",
        numbers(1, 20),
        np.hanning(8).astype("f4"),
    ),
    "a filter": ("torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y), 8)", numbers(2, 8), numbers(8)),
    "rotary embeddings": (
        "torch.view_as_real(torch.view_as_complex(x) * torch.polar(torch.ones_like(y), y)).flatten(1)",
        numbers(3, 2, 2),
        numbers(3, 2),
    ),
    "images among words": ("torch.masked_scatter(x, x > 0, y)", numbers(3, 4), numbers(12)),
    "experts": (
        "torch._grouped_mm(x, y, torch.histc(x[:, 0].abs().clamp(0.0, 1.9).floor(), 2, 0, 1).cumsum(0).int())",
        numbers(5, 3),
        numbers(2, 3, 4),
    ),
    "buckets": ("torch.bucketize(x, y)", numbers(3, 4), np.sort(numbers(5))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    code, x, y = PROGRAMS[name]
    module = scripted(nn.Identity())
    module.define(f"def run(self, x, y):\n    return {code}\n")
    reference = gpujit.load(module.save_to_buffer())
    module._program.place(RecordingDevice())
    for k in range(3):
        assert_close(module.run(x + k * np.float32(0.01), y), reference.run(x + k * np.float32(0.01), y))
    assert module.plan_stats().interpreted == 0
    assert "host    " not in module.run.explain()


def test_more_places_than_elements() -> None:
    module = scripted(nn.Identity())
    module.define("def run(self, x, y):\n    return torch.masked_scatter(x, x > 0, y)\n")
    module._program.place(RecordingDevice())
    x, y = np.ones(4, "f4"), numbers(3)
    for _ in range(2):
        with pytest.raises(OpError):
            module.run(x, y)
        x[3] = -1
        assert_close(module.run(x, y), np.array([*y, -1], "f4"))
        x[3] = 1
