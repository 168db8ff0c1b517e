"""Host arrays that plans read on a device that records: when they are copied there, and when they are there already."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpujit
import gpujit.modules
from gpujit import nn
from gpujit.static_runtime import device_run
from tests.runtime.recording_device import RecordingDevice, transfers
from tests.static_runtime.device_models import Mlp, OneLayer, numbers, scripted
from tests.static_runtime.test_device import assert_close, placed


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    found = RecordingDevice()
    monkeypatch.setattr(gpujit.modules, "open_device", lambda place: found)
    return found


def uploads(device: RecordingDevice) -> list[int]:
    found = [n for what, n in transfers(device) if what == "upload"]
    device.forget()
    return found


def test_an_input_is_copied_when_its_numbers_are_others(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    found, x = placed(module, device), numbers(3, 6)
    found(x)
    uploads(device)

    def call(x: Any, copied: int) -> None:
        assert_close(found(x), module(x if isinstance(x, np.ndarray) else x.get()))
        assert uploads(device) == [x.dtype.itemsize * 18] * copied

    call(x, 0)
    call(x.copy(), 0)
    # The same numbers in another order in memory, and read backwards.
    call(np.asfortranarray(x), 0)
    call(x[::-1].copy()[::-1], 0)
    # The caller's own array, changed between two calls.
    x[1, 2] = 9
    call(x, 1)
    call(x, 0)
    # A number that is equal, and not the same.
    x[1, 2] = 0.0
    call(x, 1)
    x[1, 2] = -0.0
    call(x, 1)
    x[0] = np.nan
    call(x, 1)
    call(x, 0)
    # An array on the device took its place.
    y = numbers(3, 6, seed=1)
    call(device.of(y), 0)
    call(x, 1)


def test_large_inputs_are_not_looked_at(device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_run, "SMALL", 71)
    module = scripted(Mlp())
    found, x = placed(module, device), numbers(3, 6)
    for _ in range(3):
        assert_close(found(x), module(x))
        assert uploads(device)[-1:] == [72]


def test_each_runtime_knows_its_own_memory(device: RecordingDevice) -> None:
    module = scripted(Mlp())
    found, x, y = placed(module, device), numbers(3, 6), numbers(3, 6, seed=1)
    found(x)
    (runner,) = [p.runner for e in found._program.executors() for p in e.plans()]
    (first,) = runner._idle
    runner._idle.clear()
    found(y)
    (second,) = runner._idle
    for runtime, given, copied in ((first, x, 0), (second, y, 0), (second, x, 1), (first, x, 0), (first, y, 1)):
        runner._idle[:] = [runtime]
        uploads(device)
        assert_close(found(given), module(given))
        assert len(uploads(device)) == copied


class Adds(nn.Module):
    def forward(self, x, y):
        return x * y + x


def test_each_input_has_its_own(device: RecordingDevice) -> None:
    module = scripted(Adds())
    found, x, y = placed(module, device), numbers(2, 3), numbers(2, 3, seed=1)
    for a, b, copied in ((x, y, 2), (x, y, 0), (y, y, 1), (y, x, 1), (x, y, 2)):
        assert_close(found(a, b), module(a, b))
        assert len(uploads(device)) == copied


class Highest(OneLayer):
    """What is computed on the host goes to the device between two runs of steps."""

    def forward(self, x):
        y = self.linear(x)
        z = y.cummax(-1)[0]
        return (z + y).relu()


def test_results_of_the_host(device: RecordingDevice) -> None:
    module = scripted(Highest())
    found, x = placed(module, device), numbers(2, 4)
    sizes = []
    for a in (x, x, x + 1, x, x):
        assert_close(found(a), module(a))
        sizes.append(uploads(device)[-2:])
    assert sizes[1] == sizes[4] == [] and sizes[2] == sizes[3] == [32, 32]
    assert found.plan_stats().interpreted == 0


class WrittenOnHost(OneLayer):
    """A step makes ``y``, an operator on the host writes into it, and another step reads it."""

    def forward(self, x, z):
        y = self.linear(x)
        for row in y.unbind(0):
            if bool(row.sum() > 0):
                row.copy_(z)
        return y.relu() + 1.0


def test_what_the_host_writes_over_results_of_steps(device: RecordingDevice) -> None:
    module = scripted(WrittenOnHost())
    found, z = placed(module, device), np.ones(4, "f4")
    for seed in (0, 0, 1, 0, 1):
        x = numbers(3, 4, seed=seed)
        assert_close(found(x, z), module(x, z))


def test_arrays_in_lists_change_in_place(device: RecordingDevice) -> None:
    module = scripted(nn.Identity())
    module.define("""
    def run(self, xs: List[Tensor]):
        y = xs[0] * 2.0 + xs[1]
        return y.relu()
    """)
    arrays = [numbers(3), numbers(3, seed=1)]
    reference = gpujit.load(module.save_to_buffer())
    module._program.place(device)
    for k in range(5):
        arrays[k % 2][0] += k // 2
        assert_close(module.run(arrays), reference.run(arrays))


class Views(nn.Module):
    """Views of an attribute, and views of these."""

    def __init__(self):
        super().__init__()
        self.table = numbers(2, 3, 4)

    def forward(self, x):
        y = self.table.permute(2, 0, 1)
        # Of what lies together this is a view.
        flat = y.reshape(4, 6)
        first, last = self.table.unbind(0)
        return flat + x, first.t()[1:] + last.t()[:3], self.table[:, :0].reshape(-1), self.table.view(2, 3, 2, 2) * 2.0


@pytest.mark.parametrize("layout", ["together", "every second", "turned", "backwards"])
def test_views_of_attributes_that_lie_otherwise(layout: str, device: RecordingDevice) -> None:
    module = scripted(Views())
    reference = gpujit.load(module.save_to_buffer())
    module._program.place(device)
    x = numbers(4, 6)
    for k in range(3):
        assert_close(module(x), reference(x))
        whole = numbers(*((2, 3) if layout == "together" else (8, 9)), 4, seed=k)
        if layout == "every second":
            whole = whole[::5, ::3]
        elif layout == "turned":
            whole = whole[:4, :3, :2].transpose(2, 1, 0)
        elif layout == "backwards":
            whole = whole[1::-1, :3]
        module.table, reference.table = (device.of(whole[:2, :3]), whole[:2, :3].copy())
    assert module.plan_stats().interpreted == 0
